// SPDX-License-Identifier: MIT
//
// Small plots of lines and of dots with a line through them, for some hundred points.
import {themeColor} from './color';
import {real} from './format';

const pad = {left: 58, right: 14, top: 26, bottom: 36};

interface Axes {
	context: CanvasRenderingContext2D;
	x: (value: number) => number;
	y: (value: number) => number;
	width: number;
	height: number;
}

// Steps of 1, 2 or 5 times a power of ten, about n of them.
export function ticks(from: number, to: number, n: number): number[] {
	const raw = (to - from) / Math.max(1, n);
	if (!(raw > 0))
		return [from];
	const power = 10 ** Math.floor(Math.log10(raw));
	const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw)!;
	const list: number[] = [];
	for (let i = Math.ceil(from / step); i * step <= to + step * 1e-9; i++)
		list.push(i * step);
	return list;
}

function axes(canvas: HTMLCanvasElement, width: number, height: number, xs: [number, number], ys: [number, number],
	xLabel: string, yLabel: string): Axes {
	const ratio = window.devicePixelRatio || 1;
	canvas.width = Math.round(width * ratio);
	canvas.height = Math.round(height * ratio);
	canvas.style.height = `${height}px`;
	const context = canvas.getContext('2d')!;
	context.setTransform(ratio, 0, 0, ratio, 0, 0);
	context.fillStyle = themeColor('--page');
	context.fillRect(0, 0, width, height);
	const x = (value: number) => pad.left + ((value - xs[0]) / (xs[1] - xs[0] || 1)) * (width - pad.left - pad.right);
	const y = (value: number) => height - pad.bottom - ((value - ys[0]) / (ys[1] - ys[0] || 1)) * (height - pad.top - pad.bottom);
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
	for (const tick of ticks(xs[0], xs[1], width / 70))
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

export function linesDraw(canvas: HTMLCanvasElement, width: number, height: number, plot: {
	x: number[];
	lines: Line[];
	xLabel: string;
	yLabel: string;
	mark?: number;
}): void {
	const most = Math.max(1, ...plot.lines.flatMap((line) => line.values.filter(Number.isFinite)));
	const {context, x, y} = axes(canvas, width, height, [Math.min(...plot.x), Math.max(...plot.x)], [0, most * 1.06], plot.xLabel, plot.yLabel);
	if (plot.mark !== undefined) {
		context.fillStyle = themeColor('--mark');
		context.fillRect(x(plot.mark) - 6, pad.top, 12, height - pad.top - pad.bottom);
	}
	let legend = pad.left + 90;
	for (const line of plot.lines) {
		context.strokeStyle = context.fillStyle = themeColor(line.color);
		context.lineWidth = 2;
		context.setLineDash(line.isDashed ? [5, 4] : []);
		context.beginPath();
		line.values.forEach((value, i) => (i === 0 ? context.moveTo(x(plot.x[i]!), y(value)) : context.lineTo(x(plot.x[i]!), y(value))));
		context.stroke();
		context.beginPath();
		context.moveTo(legend, 12);
		context.lineTo(legend + 18, 12);
		context.stroke();
		context.setLineDash([]);
		if (!line.isDashed)
			line.values.forEach((value, i) => context.fillRect(x(plot.x[i]!) - 2.5, y(value) - 2.5, 5, 5));
		context.textAlign = 'left';
		context.textBaseline = 'middle';
		context.fillStyle = themeColor('--text');
		context.fillText(line.name, legend + 23, 12);
		legend += 36 + context.measureText(line.name).width;
	}
	context.lineWidth = 1;
}

export function dotsDraw(canvas: HTMLCanvasElement, width: number, height: number, plot: {
	dots: {x: number; y: number; size: number}[];
	line: (x: number) => number;
	xLabel: string;
	yLabel: string;
}): void {
	const xs: [number, number] = [0, Math.max(1, ...plot.dots.map((dot) => dot.x)) * 1.04];
	const most = Math.max(plot.line(xs[1]), ...plot.dots.map((dot) => dot.y));
	const {context, x, y} = axes(canvas, width, height, xs, [0, most * 1.06 || 1], plot.xLabel, plot.yLabel);
	const largest = Math.max(1, ...plot.dots.map((dot) => dot.size));
	context.globalAlpha = 0.65;
	context.fillStyle = themeColor('--accent');
	for (const dot of plot.dots) {
		context.beginPath();
		context.arc(x(dot.x), y(dot.y), 2 + 4 * Math.sqrt(dot.size / largest), 0, 2 * Math.PI);
		context.fill();
	}
	context.globalAlpha = 1;
	context.strokeStyle = themeColor('--warn');
	context.lineWidth = 2;
	context.beginPath();
	context.moveTo(x(xs[0]), y(plot.line(xs[0])));
	context.lineTo(x(xs[1]), y(plot.line(xs[1])));
	context.stroke();
	context.lineWidth = 1;
}
