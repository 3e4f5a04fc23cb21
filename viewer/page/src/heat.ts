// SPDX-License-Identifier: MIT
//
// The heatmap as it is drawn: one pixel a cell in an ImageData, written through a table of 256
// colours, then stretched once without smoothing. So a frame costs the cells and not the area.
import {amountColors, css, differenceColors, themeColor, themeColors} from './color';
import {real} from './format';
import type {Balance, Layer, Metric} from './load';
import type {Span} from './pinch';
import type {Surface} from './svg';

export interface Scale {
	from: number;
	to: number;
	isLog: boolean;
	isDifference: boolean;
	middle?: string; // what the middle of a difference is
}

// @isClipped: the brightest colour is that of the 99th percentile and of what lies above.
export function scaleOf(values: Float64Array, metric: Metric, isLog: boolean, isClipped = false): Scale {
	let to = 0;
	let least = Infinity;
	for (const value of values) {
		if (value > to)
			to = value;
		if (value > 0 && value < least)
			least = value;
	}
	if (isClipped && to > 0) {
		const sorted = values.filter((value) => value >= 0).sort();
		to = sorted[Math.floor((sorted.length - 1) * 0.99)]! || to;
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
	unit: 'expert' | 'rank'; // what a column is
	breaks: number[][] | null; // of each layer, the columns at which another rank begins
	side: Side;
	sight?: Span | null; // the columns that are seen, in parts of one; none: all
}

// What stands beside each layer.
export interface Side {
	title: string;
	values: number[]; // NaN: nothing
	even?: number; // the value of an even layer, which is marked
	isBad: (value: number) => boolean;
}

export const sideNames = [['ratio', 'busiest / mean'], ['gini', 'Gini'], ['jain', 'Jain'], ['entropy', 'entropy'], ['dead', 'without a token']] as const;

export function sideOf(name: string, balance: Balance[], layers: Layer[]): Side {
	switch (name) {
	case 'gini': return {title: 'Gini (0: even)', values: balance.map((b) => b.gini), isBad: (value) => value > 0.6};
	case 'jain': return {title: 'Jain (1: even)', values: balance.map((b) => b.jain), even: 1, isBad: (value) => value < 0.4};
	case 'entropy': return {title: 'entropy (1: even)', values: balance.map((b) => b.entropy), even: 1, isBad: (value) => value < 0.8};
	case 'dead': return {title: 'without a token', values: balance.map((b) => (b.tokens > 0 ? b.dead : NaN)), isBad: (value) => value * 10 >= (layers[0]?.nExperts ?? 0)};
	default: return {title: 'busiest / mean', values: balance.map((b) => b.maxOverMean), even: 1, isBad: (value) => value > 3};
	}
}

export interface Place {
	left: number;
	top: number;
	width: number;
	cellWidth: number;
	origin: number; // of column 0, which may be out of sight
	cellHeight: number;
	height: number;
	sideLeft: number;
	sideWidth: number;
}

export const margins = {left: 46, top: 18, right: 152, bottom: 34};

export function placeOf(picture: Picture, width: number): Place {
	const cellHeight = Math.max(7, Math.min(30, Math.floor(620 / Math.max(1, picture.layers.length))));
	const inner = Math.max(60, width - margins.left - margins.right);
	const {from, until} = picture.sight ?? {from: 0, until: picture.nSlots};
	const cellWidth = inner / (until - from);
	return {
		left: margins.left, top: margins.top, width: inner, cellWidth, origin: margins.left - from * cellWidth, cellHeight,
		height: cellHeight * picture.layers.length, sideLeft: margins.left + inner + 10, sideWidth: margins.right - 10,
	};
}

export const fullHeight = (place: Place) => margins.top + place.height + margins.bottom;

export function expertAt(picture: Picture, row: number, column: number): number {
	return picture.order ? picture.order[row]![column]! : column;
}

let cells: HTMLCanvasElement | null = null;
let image: ImageData | null = null;
let pixels = new Uint32Array();

// The cells alone, a pixel each.
export function cellsDraw(picture: Picture): HTMLCanvasElement {
	const n = picture.nSlots;
	cells ??= document.createElement('canvas');
	if (cells.width !== n || cells.height !== Math.max(1, picture.layers.length)) {
		cells.width = n;
		cells.height = Math.max(1, picture.layers.length);
	}
	const context = cells.getContext('2d')!;
	if (!image || image.width !== cells.width || image.height !== cells.height) {
		image = context.createImageData(cells.width, cells.height);
		pixels = new Uint32Array(image.data.buffer);
	}
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

// The colours of the page, read once a picture.
const inksOf = () => themeColors('page', 'quiet', 'warn', 'accent', 'text', 'focus');
type Inks = ReturnType<typeof inksOf>;

export function heatDraw(context: Surface, picture: Picture, width: number): void {
	const place = placeOf(picture, width);
	const inks = inksOf();
	context.fillStyle = inks.page;
	context.fillRect(0, 0, width, fullHeight(place));
	context.save();
	if (picture.sight) {
		context.beginPath();
		context.rect(place.left, 0, place.width, fullHeight(place));
		context.clip();
	}
	if (picture.layers.length > 0)
		context.image(cellsDraw(picture), place.origin, place.top, place.cellWidth * picture.nSlots, place.height);
	breaksDraw(context, picture, place, inks);
	marksDraw(context, picture, place);
	columnsDraw(context, picture, place, inks);
	cursorDraw(context, picture, place, inks);
	context.restore();
	labelsDraw(context, picture, place, inks);
	sideDraw(context, picture, place, inks);
}

// Where one rank ends and the next begins.
function breaksDraw(context: Surface, picture: Picture, place: Place, inks: Inks): void {
	if (!picture.breaks)
		return;
	context.strokeStyle = inks.page;
	context.lineWidth = 1;
	context.beginPath();
	picture.breaks.forEach((columns, row) => {
		for (const column of columns) {
			const x = Math.round(place.origin + column * place.cellWidth) + 0.5;
			context.moveTo(x, place.top + row * place.cellHeight);
			context.lineTo(x, place.top + (row + 1) * place.cellHeight);
		}
	});
	context.stroke();
}

// The busiest one of a layer, where it is far above the mean: by a ring, not by its colour alone.
export function isMarked(balance: Balance): boolean {
	return balance.hottest >= 0 && balance.maxOverMean > 3;
}

function marksDraw(context: Surface, picture: Picture, place: Place): void {
	const radius = Math.min(3.5, place.cellHeight / 2 - 0.5);
	picture.balance.forEach((balance, row) => {
		if (!isMarked(balance))
			return;
		const column = picture.order ? picture.order[row]!.indexOf(balance.hottest) : balance.hottest;
		const x = place.origin + (column + 0.5) * place.cellWidth, y = place.top + (row + 0.5) * place.cellHeight;
		for (const [color, lineWidth] of [['#ffffff', 3], ['#000000', 1.2]] as const) {
			context.strokeStyle = color;
			context.lineWidth = lineWidth;
			context.beginPath();
			context.arc(x, y, radius, 0, 2 * Math.PI);
			context.stroke();
		}
	});
	context.lineWidth = 1;
}

function labelsDraw(context: Surface, picture: Picture, place: Place, inks: Inks): void {
	context.font = font;
	context.fillStyle = inks.quiet;
	context.textBaseline = 'middle';
	context.textAlign = 'right';
	const every = stepOf(picture.layers.length, place.height, 13);
	picture.layers.forEach((layer, row) => {
		if (row % every === 0)
			context.fillText(`L${layer.layer}`, place.left - 6, place.top + (row + 0.5) * place.cellHeight);
	});
	context.textAlign = 'left';
	context.textBaseline = 'top';
	context.fillText(picture.breaks ? 'experts by rank, the busiest of each first' : picture.order ? 'experts, the busiest of each layer first' : picture.unit, place.left, place.top + place.height + 19);
}

function columnsDraw(context: Surface, picture: Picture, place: Place, inks: Inks): void {
	context.font = font;
	context.fillStyle = inks.quiet;
	context.textAlign = 'center';
	context.textBaseline = 'top';
	const step = stepOf(Math.round(place.width / place.cellWidth), place.width, 34);
	for (let i = 0; i < picture.nSlots && !picture.breaks; i += step)
		context.fillText(String(i), place.origin + (i + 0.5) * place.cellWidth, place.top + place.height + 4);
	const breaks = picture.breaks?.[0];
	if (breaks && picture.breaks!.every((each) => each.join() === breaks.join()) && place.width / (breaks.length + 1) > 20)
		[0, ...breaks].forEach((from, rank) => {
			const to = breaks[rank] ?? picture.nSlots;
			context.fillText(`rank ${rank}`, place.origin + ((from + to) / 2) * place.cellWidth, place.top + place.height + 4);
		});
}

const SIDE_TEXT = 44;

function sideDraw(context: Surface, picture: Picture, place: Place, inks: Inks): void {
	const {side} = picture;
	const most = Math.max(side.even === 1 ? 1.2 : 0, ...side.values.filter((value) => value > 0)) || 1;
	const room = place.sideWidth - SIDE_TEXT;
	const every = stepOf(picture.layers.length, place.height, 12);
	context.font = font;
	context.textAlign = 'left';
	context.textBaseline = 'bottom';
	context.fillStyle = inks.quiet;
	context.fillText(side.title, place.sideLeft, place.top - 4);
	context.textBaseline = 'middle';
	side.values.forEach((value, row) => {
		if (!(value >= 0))
			return;
		const middle = place.top + (row + 0.5) * place.cellHeight;
		const length = (value / most) * room;
		context.fillStyle = side.isBad(value) ? inks.warn : inks.accent;
		context.fillRect(place.sideLeft, middle - place.cellHeight * 0.35, length, place.cellHeight * 0.7);
		if (row % every === 0) {
			context.fillStyle = inks.text;
			context.fillText(real(value, 2), place.sideLeft + length + 4, middle);
		}
	});
	if (side.even === undefined)
		return;
	context.strokeStyle = inks.quiet;
	context.setLineDash([2, 2]);
	context.beginPath();
	context.moveTo(place.sideLeft + (side.even / most) * room, place.top);
	context.lineTo(place.sideLeft + (side.even / most) * room, place.top + place.height);
	context.stroke();
	context.setLineDash([]);
}

function cursorDraw(context: Surface, picture: Picture, place: Place, inks: Inks): void {
	if (!picture.cursor)
		return;
	const {row, column} = picture.cursor;
	const x = place.origin + column * place.cellWidth;
	const y = place.top + row * place.cellHeight;
	context.lineWidth = 2;
	context.strokeStyle = inks.page;
	context.strokeRect(x - 2, y - 2, Math.max(2, place.cellWidth) + 4, place.cellHeight + 4);
	context.strokeStyle = inks.focus;
	context.strokeRect(x - 1, y - 1, Math.max(2, place.cellWidth) + 2, place.cellHeight + 2);
	context.lineWidth = 1;
}

// The cell at a point of the canvas.
export function cellAt(picture: Picture, place: Place, x: number, y: number): {row: number; column: number} | null {
	const row = Math.floor((y - place.top) / place.cellHeight);
	const column = Math.floor((x - place.origin) / place.cellWidth);
	if (x < place.left || x >= place.left + place.width)
		return null;
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

// ---- to take along: with its title and colours ----

const FOOT = 40;

export const heatFullHeight = (picture: Picture, width: number) => fullHeight(placeOf(picture, width)) + FOOT;

export function heatFullDraw(context: Surface, picture: Picture, width: number, title: string): void {
	const place = placeOf({...picture, sight: null}, width);
	const top = fullHeight(place);
	const colors = picture.scale.isDifference ? differenceColors : amountColors;
	const legend = legendTexts(picture.scale);
	heatDraw(context, {...picture, cursor: null, sight: null}, width);
	context.fillStyle = themeColor('--page');
	context.fillRect(0, top, width, FOOT);
	for (let i = 0; i < 64; i++) {
		context.fillStyle = css(colors[i * 4 + 2]!);
		context.fillRect(place.left + i * 4, top + 2, 4.2, 9);
	}
	context.font = font;
	context.textBaseline = 'top';
	context.fillStyle = themeColor('--text');
	legend.forEach((text, i) => {
		context.textAlign = (['left', 'center', 'right'] as const)[i]!;
		context.fillText(text, place.left + i * 128, top + 15);
	});
	context.textAlign = 'left';
	context.fillText(title, place.left + 276, top + 2);
}
