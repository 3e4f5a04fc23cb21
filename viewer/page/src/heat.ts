// SPDX-License-Identifier: MIT
//
// The heatmap as it is drawn: one pixel a cell in an ImageData, written through a table of 256
// colours, then stretched once without smoothing. So a frame costs the cells and not the area.
import {amountColors, css, differenceColors, themeColor} from './color';
import {xml} from './export';
import {real} from './format';
import type {Balance, Layer, Metric} from './load';

export interface Scale {
	from: number;
	to: number;
	isLog: boolean;
	isDifference: boolean;
	middle?: string; // what the middle of a difference is
}

export function scaleOf(values: Float64Array, metric: Metric, isLog: boolean): Scale {
	let to = 0;
	let least = Infinity;
	for (const value of values) {
		if (value > to)
			to = value;
		if (value > 0 && value < least)
			least = value;
	}
	if (metric === 'times')
		return {from: 0, to: Math.max(2, to), isLog: true, isDifference: true};
	return {from: isLog ? Math.min(least, to) : 0, to: to || 1, isLog, isDifference: false};
}

// Which of the 256 colours; -1: none.
function indexOf(value: number, scale: Scale): number {
	if (!(value >= 0))
		return -1;
	if (scale.isDifference) {
		// The mean in the middle; each way by factors, so that half and double are as far from it.
		const most = Math.log2(Math.max(2, scale.to));
		const at = value > 0 ? Math.log2(value) / most : -1;
		return Math.round((Math.max(-1, Math.min(1, at)) + 1) * 127.5);
	}
	if (scale.isLog) {
		if (value <= 0)
			return 0;
		const range = Math.log(scale.to / scale.from) || 1;
		return Math.round(Math.max(0, Math.min(1, Math.log(value / scale.from) / range)) * 254) + 1;
	}
	return Math.round(Math.max(0, Math.min(1, value / scale.to)) * 255);
}

export interface Picture {
	layers: Layer[];
	nSlots: number;
	values: Float64Array;
	order: Int32Array[] | null; // of each layer, the expert in each column; null: by id
	scale: Scale;
	metric: Metric;
	balance: Balance[];
	cursor: {row: number; column: number} | null;
	marks: Set<number>; // layers of which a row is pointed at
}

export interface Place {
	left: number;
	top: number;
	width: number;
	cellWidth: number;
	cellHeight: number;
	height: number;
	sideLeft: number;
	sideWidth: number;
}

export const margins = {left: 46, top: 18, right: 152, bottom: 34};

export function placeOf(picture: Picture, width: number): Place {
	const cellHeight = Math.max(7, Math.min(30, Math.floor(620 / Math.max(1, picture.layers.length))));
	const inner = Math.max(60, width - margins.left - margins.right);
	return {
		left: margins.left, top: margins.top, width: inner, cellWidth: inner / picture.nSlots, cellHeight,
		height: cellHeight * picture.layers.length, sideLeft: margins.left + inner + 10, sideWidth: margins.right - 10,
	};
}

export const fullHeight = (place: Place) => margins.top + place.height + margins.bottom;

export function expertAt(picture: Picture, row: number, column: number): number {
	return picture.order ? picture.order[row]![column]! : column;
}

let cells: HTMLCanvasElement | null = null;

// The cells alone, a pixel each.
export function cellsDraw(picture: Picture): HTMLCanvasElement {
	const n = picture.nSlots;
	cells ??= document.createElement('canvas');
	if (cells.width !== n || cells.height !== Math.max(1, picture.layers.length)) {
		cells.width = n;
		cells.height = Math.max(1, picture.layers.length);
	}
	const context = cells.getContext('2d')!;
	const image = context.createImageData(cells.width, cells.height);
	const pixels = new Uint32Array(image.data.buffer);
	const colors = picture.scale.isDifference ? differenceColors : amountColors;
	for (let row = 0; row < picture.layers.length; row++) {
		const order = picture.order?.[row];
		for (let column = 0; column < n; column++) {
			const index = indexOf(picture.values[row * n + (order ? order[column]! : column)]!, picture.scale);
			pixels[row * n + column] = index < 0 ? 0 : colors[index]!;
		}
	}
	context.putImageData(image, 0, 0);
	return cells;
}

// Labels every so many, and that it is so many is told beside the picture.
export function stepOf(n: number, size: number, least: number): number {
	for (const step of [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 256, 512, 1024])
		if ((n / step) * least <= size)
			return step;
	return n;
}

const font = '11px system-ui, sans-serif';

export function heatDraw(canvas: HTMLCanvasElement, picture: Picture, width: number): void {
	const place = placeOf(picture, width);
	const height = fullHeight(place);
	const ratio = window.devicePixelRatio || 1;
	if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
		canvas.width = Math.round(width * ratio);
		canvas.height = Math.round(height * ratio);
		canvas.style.height = `${height}px`;
	}
	const context = canvas.getContext('2d')!;
	context.setTransform(ratio, 0, 0, ratio, 0, 0);
	context.fillStyle = themeColor('--page');
	context.fillRect(0, 0, width, height);
	context.imageSmoothingEnabled = false;
	if (picture.layers.length > 0)
		context.drawImage(cellsDraw(picture), place.left, place.top, place.width, place.height);
	labelsDraw(context, picture, place);
	sideDraw(context, picture, place);
	cursorDraw(context, picture, place);
}

function labelsDraw(context: CanvasRenderingContext2D, picture: Picture, place: Place): void {
	context.font = font;
	context.fillStyle = themeColor('--quiet');
	context.textBaseline = 'middle';
	context.textAlign = 'right';
	const every = stepOf(picture.layers.length, place.height, 13);
	picture.layers.forEach((layer, row) => {
		if (row % every === 0)
			context.fillText(`L${layer.layer}`, place.left - 6, place.top + (row + 0.5) * place.cellHeight);
	});
	context.textAlign = 'center';
	context.textBaseline = 'top';
	const step = stepOf(picture.nSlots, place.width, 34);
	for (let i = 0; i < picture.nSlots; i += step)
		context.fillText(String(i), place.left + (i + 0.5) * place.cellWidth, place.top + place.height + 4);
	context.textAlign = 'left';
	context.fillText(picture.order ? 'experts, the busiest of each layer first' : 'expert', place.left, place.top + place.height + 19);
}

const SIDE_TEXT = 44;

function sideDraw(context: CanvasRenderingContext2D, picture: Picture, place: Place): void {
	const most = Math.max(2, ...picture.balance.map((b) => (b.maxOverMean > 0 ? b.maxOverMean : 0)));
	const room = place.sideWidth - SIDE_TEXT;
	const every = stepOf(picture.layers.length, place.height, 12);
	context.font = font;
	context.textAlign = 'left';
	context.textBaseline = 'bottom';
	context.fillStyle = themeColor('--quiet');
	context.fillText('busiest / mean', place.sideLeft, place.top - 4);
	context.textBaseline = 'middle';
	picture.balance.forEach((balance, row) => {
		if (!(balance.maxOverMean > 0))
			return;
		const middle = place.top + (row + 0.5) * place.cellHeight;
		const length = (balance.maxOverMean / most) * room;
		context.fillStyle = balance.maxOverMean > 3 ? themeColor('--warn') : themeColor('--accent');
		context.fillRect(place.sideLeft, middle - place.cellHeight * 0.35, length, place.cellHeight * 0.7);
		if (row % every === 0) {
			context.fillStyle = themeColor('--text');
			context.fillText(real(balance.maxOverMean, 2), place.sideLeft + length + 4, middle);
		}
	});
	// The mean itself.
	context.strokeStyle = themeColor('--quiet');
	context.setLineDash([2, 2]);
	context.beginPath();
	context.moveTo(place.sideLeft + room / most, place.top);
	context.lineTo(place.sideLeft + room / most, place.top + place.height);
	context.stroke();
	context.setLineDash([]);
}

function cursorDraw(context: CanvasRenderingContext2D, picture: Picture, place: Place): void {
	if (!picture.cursor)
		return;
	const {row, column} = picture.cursor;
	const x = place.left + column * place.cellWidth;
	const y = place.top + row * place.cellHeight;
	context.lineWidth = 2;
	context.strokeStyle = themeColor('--page');
	context.strokeRect(x - 2, y - 2, Math.max(2, place.cellWidth) + 4, place.cellHeight + 4);
	context.strokeStyle = themeColor('--focus');
	context.strokeRect(x - 1, y - 1, Math.max(2, place.cellWidth) + 2, place.cellHeight + 2);
	context.lineWidth = 1;
}

// The cell at a point of the canvas.
export function cellAt(picture: Picture, place: Place, x: number, y: number): {row: number; column: number} | null {
	const row = Math.floor((y - place.top) / place.cellHeight);
	const column = Math.floor((x - place.left) / place.cellWidth);
	return row >= 0 && row < picture.layers.length && column >= 0 && column < picture.nSlots ? {row, column} : null;
}

// ---- the legend ----

export function legendDraw(canvas: HTMLCanvasElement, scale: Scale): void {
	canvas.width = 256;
	canvas.height = 1;
	const context = canvas.getContext('2d')!;
	const image = context.createImageData(256, 1);
	new Uint32Array(image.data.buffer).set(scale.isDifference ? differenceColors : amountColors);
	context.putImageData(image, 0, 0);
}

export function legendTexts(scale: Scale): string[] {
	if (scale.isDifference)
		return [`1/${real(Math.max(2, scale.to), 1)}`, scale.middle ?? 'the mean', `${real(Math.max(2, scale.to), 1)} \u00d7`];
	return [real(scale.isLog ? scale.from : 0), scale.isLog ? 'log' : real(scale.to / 2), real(scale.to)];
}

// ---- as SVG: the cells as a picture, all that is text as text ----

export function heatSvg(picture: Picture, width: number, title: string): string {
	const place = placeOf(picture, width);
	const height = fullHeight(place);
	const image = cellsDraw(picture).toDataURL('image/png');
	const most = Math.max(2, ...picture.balance.map((b) => (b.maxOverMean > 0 ? b.maxOverMean : 0)));
	const every = stepOf(picture.layers.length, place.height, 12);
	const step = stepOf(picture.nSlots, place.width, 34);
	const text: string[] = [];
	picture.layers.forEach((layer, row) => {
		const middle = place.top + (row + 0.5) * place.cellHeight;
		const ratio = picture.balance[row]!.maxOverMean;
		const length = ratio > 0 ? (ratio / most) * (place.sideWidth - SIDE_TEXT) : 0;
		if (row % every === 0)
			text.push(`<text x="${place.left - 6}" y="${middle + 4}" text-anchor="end">L${layer.layer}</text>`);
		if (!(ratio > 0))
			return;
		text.push(`<rect x="${place.sideLeft}" y="${middle - place.cellHeight * 0.35}" width="${length.toFixed(1)}" height="${(place.cellHeight * 0.7).toFixed(1)}" fill="${ratio > 3 ? '#b45309' : '#2b6cb0'}"/>`);
		if (row % every === 0)
			text.push(`<text x="${(place.sideLeft + length + 4).toFixed(1)}" y="${middle + 4}">${real(ratio, 2)}</text>`);
	});
	for (let i = 0; i < picture.nSlots; i += step)
		text.push(`<text x="${(place.left + (i + 0.5) * place.cellWidth).toFixed(1)}" y="${place.top + place.height + 14}" text-anchor="middle">${i}</text>`);
	const colors = picture.scale.isDifference ? differenceColors : amountColors;
	const stops = [0, 64, 128, 192, 255].map((i) => `<stop offset="${i / 255}" stop-color="${css(colors[i]!)}"/>`);
	const legend = legendTexts(picture.scale);
	return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height + 26}" viewBox="0 0 ${width} ${height + 26}" font-family="sans-serif" font-size="11">
<title>${xml(title)}</title><rect width="100%" height="100%" fill="#fff"/>
<image x="${place.left}" y="${place.top}" width="${place.width}" height="${place.height}" preserveAspectRatio="none" style="image-rendering:pixelated" href="${image}"/>
<text x="${place.sideLeft}" y="${place.top - 5}">busiest / mean</text>
${text.join('\n')}
<linearGradient id="scale">${stops.join('')}</linearGradient>
<rect x="${place.left}" y="${height}" width="200" height="9" fill="url(#scale)"/>
<text x="${place.left}" y="${height + 20}">${xml(legend[0]!)}</text><text x="${place.left + 100}" y="${height + 20}" text-anchor="middle">${xml(legend[1]!)}</text><text x="${place.left + 200}" y="${height + 20}" text-anchor="end">${xml(legend[2]!)}</text>
<text x="${place.left + 220}" y="${height + 12}">${xml(title)}</text>
</svg>
`;
}
