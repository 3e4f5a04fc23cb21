// SPDX-License-Identifier: MIT
//
// Charts as views use them: a picture that follows the window's width and the theme, that can be
// taken along as PNG and SVG, and a grid of cells with a cursor. The figures of each are in a table
// of the view.
import type {ComponentChildren, JSX} from 'preact';
import {useRef, useState} from 'preact/hooks';
import {amountColors, css, differenceColors, themeColor} from './color';
import {downloadPng, downloadSvg} from './export';
import {real} from './format';
import {takeKeys} from './keys';
import {say} from './parts';
import type {Lines} from './plot';
import {linesDraw, nearest} from './plot';
import type {Surface} from './svg';
import {canvasSurface, SvgSurface} from './svg';
import {useDraw, useTheme, useWidth} from './use';

type Draw = (surface: Surface, width: number, height: number) => void;

export function svgOf(draw: Draw, width: number, height: number, title: string): string {
	const surface = new SvgSurface(width, height);
	draw(surface, width, height);
	return surface.text(title);
}

export function PictureExports({name, title, canvas, svg}: {
	name: string; // of the files
	title: string;
	canvas: () => HTMLCanvasElement | null;
	svg: () => string;
}): JSX.Element {
	return (
		<span class="exports" role="group" aria-label={`${title} as a picture`}>
			<button type="button" onClick={() => canvas() && downloadPng(`${name}.png`, canvas()!)}>PNG</button>
			<button type="button" onClick={() => downloadSvg(`${name}.svg`, svg())}>SVG</button>
		</span>
	);
}

export function Chart({name, title, label, height, draw, tip, children}: {
	name: string;
	title: string;
	label: string; // what those hear who do not see it
	height: number;
	draw: Draw;
	tip?: (x: number, width: number) => string;
	children?: ComponentChildren; // beside the exports
}): JSX.Element {
	const canvas = useRef<HTMLCanvasElement>(null);
	const [box, width] = useWidth();
	const [seen, setSeen] = useState<{x: number; text: string} | null>(null);
	useTheme();
	useDraw(() => {
		if (canvas.current && width > 0)
			draw(canvasSurface(canvas.current, width, height), width, height);
	});
	return (
		<figure>
			<figcaption>{title} <PictureExports name={name} title={title} canvas={() => canvas.current} svg={() => svgOf(draw, width, height, title)} />{children}</figcaption>
			<div ref={box} class="chart">
				<canvas ref={canvas} role="img" aria-label={label}
					onMouseMove={(event) => tip && setSeen({x: event.offsetX, text: tip(event.offsetX, width)})}
					onMouseLeave={() => setSeen(null)} />
				{seen?.text && <div class="tip" style={{left: Math.max(0, Math.min(seen.x + 14, width - 280)), top: 30}}>{seen.text}</div>}
			</div>
		</figure>
	);
}

export function LinesChart({plot, height = 230, ...rest}: {
	name: string;
	title: string;
	label: string;
	height?: number;
	plot: Lines;
	children?: ComponentChildren;
}): JSX.Element {
	return <Chart {...rest} height={height} draw={(surface, width, h) => linesDraw(surface, width, h, plot)}
		tip={(x, width) => {
			const at = nearest(plot, width, x);
			return at < 0 ? '' : `${plot.xLabel} ${real(plot.x[at]!)}: ${plot.lines.map((line) => `${line.name} ${real(line.values[at]!)}`).join('; ')}`;
		}} />;
}

// ---- a grid of cells ----

export interface GridPicture {
	rows: string[];
	columns: string[];
	values: Float64Array; // [rows][columns], NaN: nothing
	rowTitle: string;
	columnTitle: string;
	valueTitle: string;
	isDifference?: boolean; // zero in the middle
	to?: number; // the end of the scale; else the largest value
	show?: (value: number) => string;
}

const gridPad = {top: 22, right: 12, bottom: 62};

function gridPlace(picture: GridPicture, width: number): {left: number; width: number; cellHeight: number; height: number} {
	const left = Math.min(160, 18 + 6.5 * Math.max(...picture.rows.map((row) => row.length), 2));
	const cellHeight = Math.max(4, Math.min(26, Math.floor(460 / Math.max(1, picture.rows.length))));
	return {left, width: Math.max(40, Math.min(width - left - gridPad.right, picture.columns.length * 64)), cellHeight, height: cellHeight * picture.rows.length};
}

const gridHeight = (picture: GridPicture, width: number) => gridPad.top + gridPlace(picture, width).height + gridPad.bottom;

function gridScale(picture: GridPicture): {from: number; to: number} {
	let most = picture.to ?? 0;
	if (picture.to === undefined)
		for (const value of picture.values)
			most = Math.max(most, picture.isDifference ? Math.abs(value) || 0 : value || 0);
	most ||= 1;
	return {from: picture.isDifference ? -most : 0, to: most};
}

function gridCells(picture: GridPicture): HTMLCanvasElement {
	const cells = document.createElement('canvas');
	const {from, to} = gridScale(picture);
	const colors = picture.isDifference ? differenceColors : amountColors;
	cells.width = Math.max(1, picture.columns.length);
	cells.height = Math.max(1, picture.rows.length);
	const context = cells.getContext('2d')!;
	const image = context.createImageData(cells.width, cells.height);
	const pixels = new Uint32Array(image.data.buffer);
	picture.values.forEach((value, i) => {
		if (Number.isFinite(value))
			pixels[i] = colors[Math.round(Math.max(0, Math.min(1, (value - from) / (to - from))) * 255)]!;
	});
	context.putImageData(image, 0, 0);
	return cells;
}

// The grid, its labels where there is room for them, and its colours.
function gridDraw(surface: Surface, picture: GridPicture, width: number, cursor: {row: number; column: number} | null): void {
	const place = gridPlace(picture, width);
	const {from, to} = gridScale(picture);
	const show = picture.show ?? ((value: number) => real(value));
	const cellWidth = place.width / Math.max(1, picture.columns.length);
	surface.fillStyle = themeColor('--page');
	surface.fillRect(0, 0, width, gridHeight(picture, width));
	surface.image(gridCells(picture), place.left, gridPad.top, place.width, place.height);
	surface.font = '11px system-ui, sans-serif';
	surface.fillStyle = themeColor('--quiet');
	surface.textAlign = 'left';
	surface.textBaseline = 'middle';
	surface.fillText(`${picture.rowTitle} down, ${picture.columnTitle} across`, place.left, 10);
	surface.textAlign = 'right';
	const everyRow = Math.max(1, Math.ceil(13 / place.cellHeight));
	picture.rows.forEach((row, i) => {
		if (i % everyRow === 0)
			surface.fillText(row.length > 22 ? `${row.slice(0, 21)}\u2026` : row, place.left - 6, gridPad.top + (i + 0.5) * place.cellHeight);
	});
	surface.textAlign = 'center';
	surface.textBaseline = 'top';
	const most = Math.max(...picture.columns.map((column) => column.length), 1);
	const everyColumn = Math.max(1, Math.ceil((Math.min(most, 14) * 6.5 + 8) / cellWidth));
	picture.columns.forEach((column, i) => {
		if (i % everyColumn === 0)
			surface.fillText(column.length > 14 ? `${column.slice(0, 13)}\u2026` : column, place.left + (i + 0.5) * cellWidth, gridPad.top + place.height + 4);
	});
	const colors = picture.isDifference ? differenceColors : amountColors;
	const below = gridPad.top + place.height + 28;
	for (let i = 0; i < 64; i++) {
		surface.fillStyle = css(colors[i * 4 + 2]!);
		surface.fillRect(place.left + i * 3, below, 3.2, 8);
	}
	surface.fillStyle = themeColor('--quiet');
	surface.textAlign = 'left';
	surface.fillText(show(from), place.left, below + 12);
	surface.textAlign = 'right';
	surface.fillText(show(to), place.left + 192, below + 12);
	surface.textAlign = 'left';
	surface.fillText(picture.valueTitle, place.left + 202, below);
	if (cursor) {
		surface.lineWidth = 2;
		surface.strokeStyle = themeColor('--focus');
		surface.strokeRect(place.left + cursor.column * cellWidth - 1, gridPad.top + cursor.row * place.cellHeight - 1, Math.max(3, cellWidth) + 2, place.cellHeight + 2);
		surface.lineWidth = 1;
	}
}

export function Grid({name, title, picture, onOpen}: {
	name: string;
	title: string;
	picture: GridPicture;
	onOpen?: (row: number, column: number) => void;
}): JSX.Element {
	const canvas = useRef<HTMLCanvasElement>(null);
	const [box, width] = useWidth();
	const [cursor, setCursor] = useState<{row: number; column: number} | null>(null);
	const [tip, setTip] = useState<{x: number; y: number; text: string} | null>(null);
	useTheme();
	useDraw(() => {
		if (canvas.current && width > 0)
			gridDraw(canvasSurface(canvas.current, width, gridHeight(picture, width)), picture, width, cursor);
	});
	const textOf = (row: number, column: number) => {
		const value = picture.values[row * picture.columns.length + column]!;
		return `${picture.rowTitle} ${picture.rows[row]}, ${picture.columnTitle} ${picture.columns[column]}: ${Number.isFinite(value) ? (picture.show ?? ((v: number) => real(v)))(value) : 'nothing'}`;
	};
	const move = (row: number, column: number) => {
		const next = {row: Math.max(0, Math.min(picture.rows.length - 1, row)), column: Math.max(0, Math.min(picture.columns.length - 1, column))};
		setCursor(next);
		say(textOf(next.row, next.column));
	};
	const at = cursor ?? {row: 0, column: -1};
	const keys: Record<string, () => void> = {
		ArrowRight: () => move(at.row, at.column + 1),
		ArrowLeft: () => move(at.row, at.column - 1),
		ArrowDown: () => move(at.row + 1, at.column),
		ArrowUp: () => move(at.row - 1, at.column),
		Home: () => move(at.row, 0),
		End: () => move(at.row, picture.columns.length - 1),
		Enter: () => cursor && onOpen?.(cursor.row, cursor.column),
		Escape: () => setCursor(null),
	};
	const point = (event: MouseEvent) => {
		const place = gridPlace(picture, width);
		const row = Math.floor((event.offsetY - gridPad.top) / place.cellHeight);
		const column = Math.floor((event.offsetX - place.left) / (place.width / picture.columns.length));
		return row >= 0 && row < picture.rows.length && column >= 0 && column < picture.columns.length ? {row, column} : null;
	};
	return (
		<figure>
			<figcaption>{title} <PictureExports name={name} title={title} canvas={() => canvas.current}
				svg={() => svgOf((surface, w) => gridDraw(surface, picture, w, null), width, gridHeight(picture, width), title)} /></figcaption>
			<div ref={box} class="chart" tabIndex={0} role="application" aria-roledescription="grid of cells"
				aria-label={`${title}: ${picture.valueTitle} by ${picture.rowTitle} and ${picture.columnTitle}. Arrow keys move over the cells${onOpen ? ', Enter opens one' : ''}.`}
				onKeyDown={(event) => takeKeys(event, keys)}>
				<canvas ref={canvas} aria-hidden="true"
					onMouseMove={(event) => {
						const cell = point(event);
						setTip(cell && {x: event.offsetX, y: event.offsetY, text: textOf(cell.row, cell.column)});
					}}
					onMouseLeave={() => setTip(null)}
					onClick={(event) => {
						const cell = point(event);
						if (cell) {
							setCursor(cell);
							onOpen?.(cell.row, cell.column);
						}
					}} />
				{tip && <div class="tip" style={{left: Math.max(0, Math.min(tip.x + 14, width - 280)), top: tip.y + 16}}>{tip.text}</div>}
			</div>
			{cursor && <p class="readout">{textOf(cursor.row, cursor.column)}</p>}
		</figure>
	);
}
