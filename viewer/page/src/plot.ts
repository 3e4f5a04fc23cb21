// SPDX-License-Identifier: MIT
//
// Small plots of lines and of dots with a line through them, for some hundred points.
import {themeColor} from './color';
import {real} from './format';
import type {Surface} from './svg';

const pad = {left: 58, right: 14, top: 26, bottom: 36};

interface Axes {
	context: Surface;
	x: (value: number) => number;
	y: (value: number) => number;
	width: number;
	height: number;
}

// Steps of 1, 2 or 5 times a power of ten, about n of them.
export function ticks(from: number, to: number, n: number, least = 0): number[] {
	const raw = Math.max(least, (to - from) / Math.max(1, n));
	if (!(raw > 0))
		return [from];
	const power = 10 ** Math.floor(Math.log10(raw));
	const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw)!;
	const list: number[] = [];
	for (let i = Math.ceil(from / step); i * step <= to + step * 1e-9; i++)
		list.push(i * step);
	return list;
}

function axes(context: Surface, width: number, height: number, xs: [number, number], ys: [number, number],
	xLabel: string, yLabel: string, leastStep = 0, top = pad.top): Axes {
	context.fillStyle = themeColor('--page');
	context.fillRect(0, 0, width, height);
	const x = (value: number) => pad.left + ((value - xs[0]) / (xs[1] - xs[0] || 1)) * (width - pad.left - pad.right);
	const y = (value: number) => height - pad.bottom - ((value - ys[0]) / (ys[1] - ys[0] || 1)) * (height - top - pad.bottom);
	context.font = '11px system-ui, sans-serif';
	context.strokeStyle = themeColor('--line');
	context.fillStyle = themeColor('--quiet');
	context.textBaseline = 'middle';
	context.textAlign = 'right';
	for (const tick of ticks(ys[0], ys[1], height / 45)) {
		context.beginPath();
		context.moveTo(pad.left, Math.round(y(tick)) + 0.5);
		context.lineTo(width - pad.right, Math.round(y(tick)) + 0.5);
		context.stroke();
		context.fillText(real(tick, 2), pad.left - 6, y(tick));
	}
	context.textAlign = 'center';
	context.textBaseline = 'top';
	for (const tick of ticks(xs[0], xs[1], width / 70, leastStep))
		context.fillText(real(tick, 2), x(tick), height - pad.bottom + 6);
	context.textAlign = 'right';
	context.fillText(xLabel, width - pad.right, height - 14);
	context.textAlign = 'left';
	context.fillText(yLabel, 4, 6);
	return {context, x, y, width, height};
}

export interface Line {
	name: string;
	values: number[];
	color: string; // a variable of the style sheet
	isDashed?: boolean;
}

export interface Lines {
	x: number[];
	lines: Line[];
	xLabel: string;
	yLabel: string;
	mark?: number;
}

function pathDraw(context: Surface, points: [number, number][]): void {
	let isDown = false;
	context.beginPath();
	for (const [x, y] of points) {
		if (!Number.isFinite(y))
			isDown = false;
		else if (isDown)
			context.lineTo(x, y);
		else {
			context.moveTo(x, y);
			isDown = true;
		}
	}
	context.stroke();
}

const plotX = (width: number, from: number, to: number) => (value: number) =>
	pad.left + ((value - from) / (to - from || 1)) * (width - pad.left - pad.right);

// The point whose x is nearest to a place on the chart.
export function nearest(plot: Lines, width: number, place: number): number {
	const x = plotX(width, Math.min(...plot.x), Math.max(...plot.x));
	let best = -1;
	plot.x.forEach((value, i) => {
		if (best < 0 || Math.abs(x(value) - place) < Math.abs(x(plot.x[best]!) - place))
			best = i;
	});
	return best;
}

// Where the name of each line stands; those that have no room begin another row.
function legendPlaces(context: Surface, width: number, plot: Lines): {left: number; row: number}[] {
	context.font = '11px system-ui, sans-serif';
	const begin = Math.max(pad.left, context.measureText(plot.yLabel).width + 24);
	let left = begin, row = 0;
	return plot.lines.map((line) => {
		const length = 36 + context.measureText(line.name).width;
		if (left > begin && left + length > width) {
			left = begin;
			row++;
		}
		const place = {left, row};
		left += length;
		return place;
	});
}

export function linesDraw(surface: Surface, width: number, height: number, plot: Lines): void {
	const all = plot.lines.flatMap((line) => line.values.filter(Number.isFinite));
	const most = all.reduce((a, b) => Math.max(a, b), 0) || 1;
	const least = all.reduce((a, b) => Math.min(a, b), 0);
	const places = legendPlaces(surface, width, plot);
	const top = pad.top + 16 * places[places.length - 1]!.row;
	const {context, x, y} = axes(surface, width, height, [Math.min(...plot.x), Math.max(...plot.x)], [least * 1.06, most * 1.06], plot.xLabel, plot.yLabel,
		plot.x.every(Number.isInteger) ? 1 : 0, top);
	if (plot.mark !== undefined) {
		context.fillStyle = themeColor('--mark');
		context.fillRect(x(plot.mark) - 6, top, 12, height - top - pad.bottom);
	}
	plot.lines.forEach((line, n) => {
		const {left, row} = places[n]!;
		const middle = 12 + 16 * row;
		context.strokeStyle = context.fillStyle = themeColor(line.color);
		context.lineWidth = 2;
		context.setLineDash(line.isDashed ? [5, 4] : []);
		pathDraw(context, line.values.map((value, i) => [x(plot.x[i]!), y(value)]));
		context.beginPath();
		context.moveTo(left, middle);
		context.lineTo(left + 18, middle);
		context.stroke();
		context.setLineDash([]);
		if (!line.isDashed && plot.x.length <= 100)
			line.values.forEach((value, i) => Number.isFinite(value) && context.fillRect(x(plot.x[i]!) - 2.5, y(value) - 2.5, 5, 5));
		context.textAlign = 'left';
		context.textBaseline = 'middle';
		context.fillStyle = themeColor('--text');
		context.fillText(line.name, left + 23, middle);
	});
	context.lineWidth = 1;
}

export interface Dots {
	dots: {x: number; y: number; size: number}[];
	line: (x: number) => number;
	from: number; // to the left of it the line is dashed: nothing was seen there
	xLabel: string;
	yLabel: string;
}

export function dotsDraw(surface: Surface, width: number, height: number, plot: Dots): void {
	const xs: [number, number] = [0, Math.max(1, ...plot.dots.map((dot) => dot.x)) * 1.04];
	const sorted = plot.dots.map((dot) => dot.y).sort((a, b) => a - b);
	// Few that lie far above would press the others flat: they stand at the edge as triangles.
	const most = Math.max(1.3 * plot.line(xs[1]), 1.3 * (sorted[Math.floor(sorted.length * 0.9)] ?? 0));
	const nAbove = sorted.filter((value) => value > most).length;
	const {context, x, y} = axes(surface, width, height, xs, [0, most * 1.06 || 1], plot.xLabel, plot.yLabel);
	const largest = Math.max(1, ...plot.dots.map((dot) => dot.size));
	context.globalAlpha = 0.65;
	context.fillStyle = themeColor('--accent');
	for (const dot of plot.dots) {
		context.beginPath();
		if (dot.y > most) {
			context.moveTo(x(dot.x), pad.top);
			context.lineTo(x(dot.x) - 5, pad.top + 8);
			context.lineTo(x(dot.x) + 5, pad.top + 8);
			context.closePath();
			context.fill();
			continue;
		}
		context.arc(x(dot.x), y(dot.y), 2 + 4 * Math.sqrt(dot.size / largest), 0, 2 * Math.PI);
		context.fill();
	}
	context.globalAlpha = 1;
	context.strokeStyle = themeColor('--warn');
	context.lineWidth = 2;
	const from = Math.max(0, Math.min(plot.from, xs[1]));
	for (const [left, right, dash] of [[0, from, [5, 4]], [from, xs[1], []]] as const) {
		context.setLineDash(dash);
		pathDraw(context, [[x(left), y(plot.line(left))], [x(right), y(plot.line(right))]]);
	}
	context.setLineDash([]);
	context.lineWidth = 1;
	if (nAbove > 0) {
		context.fillStyle = themeColor('--quiet');
		context.textAlign = 'right';
		context.textBaseline = 'middle';
		context.fillText(`${nAbove} ${nAbove === 1 ? 'point lies' : 'points lie'} above`, width - pad.right, 12);
	}
}

// A bar for each name; what does not fit below is left to the table.
export function barsDraw(surface: Surface, width: number, height: number, plot: {names: string[]; values: number[]; xLabel: string; yLabel: string}): void {
	const all = plot.values.filter(Number.isFinite);
	const most = all.reduce((a, b) => Math.max(a, b), 0) || 1;
	const least = all.reduce((a, b) => Math.min(a, b), 0);
	const {context, y} = axes(surface, width, height, [0, 0], [least * 1.06, most * 1.06], plot.xLabel, plot.yLabel);
	const step = (width - pad.left - pad.right) / Math.max(1, plot.names.length);
	context.textBaseline = 'top';
	context.textAlign = 'center';
	// The axis of numbers that was drawn below does not belong to names.
	context.fillStyle = themeColor('--page');
	context.fillRect(pad.left - 4, height - pad.bottom + 2, width - pad.left, 16);
	const every = Math.ceil(46 / step);
	plot.values.forEach((value, i) => {
		if (!Number.isFinite(value))
			return;
		context.fillStyle = themeColor('--accent');
		context.fillRect(pad.left + i * step + step * 0.1, Math.min(y(0), y(value)), Math.max(1, step * 0.8), Math.abs(y(value) - y(0)));
	});
	context.fillStyle = themeColor('--quiet');
	plot.names.forEach((name, i) => {
		if (i % every === 0)
			context.fillText(name.length > 14 ? `${name.slice(0, 13)}\u2026` : name, pad.left + (i + 0.5) * step, height - pad.bottom + 6);
	});
}
