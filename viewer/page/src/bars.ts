// SPDX-License-Identifier: MIT
//
// The timeline as it is drawn: a track is one row of pixels, filled from its bars and stretched to
// the track's height, so that a frame costs the pixels and the bars that lie in them. What the
// server sent for a wider stretch of time serves while it is panned and zoomed.
import {abgr, phases, roles, themeColor} from './color';
import type {Arrays, NumberArray} from './data';
import {duration, pointText, real} from './format';
import {ticks} from './plot';

export interface Track {
	type: string;
	name: string;
	n: number;
}

export interface Counter {
	name: string;
	unit: string;
	most: number;
	limit: number;
}

export interface Gap {
	start: number;
	end: number;
	text: string;
}

export interface Strip {
	from: number;
	until: number;
	pixelNs: number;
	tracks: Track[];
	counters: Counter[];
	kinds: string[];
	start: number;
	end: number;
	nLeftOut: number;
	bars: Arrays;
	firstOf: number[]; // of each track, its first bar; one more than there are tracks
	pointOf: number[];
}

function firsts(numbers: NumberArray, n: number): number[] {
	const list: number[] = [];
	for (let i = 0; i < numbers.length; i++)
		while (list.length <= numbers[i]!)
			list.push(i);
	while (list.length <= n)
		list.push(numbers.length);
	return list;
}

export function stripOf(bars: Arrays, from: number, until: number, width: number): Strip {
	const header = bars.header as unknown as {
		tracks: Track[];
		counters: Counter[];
		kinds: string[];
		start_ns: number;
		end_ns: number;
		n_left_out: number;
	};
	return {
		from, until, pixelNs: (until - from) / width, tracks: header.tracks, counters: header.counters, kinds: header.kinds,
		start: header.start_ns, end: header.end_ns, nLeftOut: header.n_left_out, bars,
		firstOf: firsts(bars.of['track']!, header.tracks.length), pointOf: firsts(bars.of['counter']!, header.counters.length),
	};
}

export interface Sight {
	from: number;
	until: number;
	width: number;
	track: number; // the one that the keys are on
	selection: {from: number; until: number} | null;
	gaps: Gap[];
	pass: number; // marked; 0: none
}

export const LABELS = 150;
const AXIS = 22;
const TRACK = 26;
const GROUP = 6;
const COUNTER = 58;

export interface Lane {
	top: number;
	height: number;
	track?: number;
	counter?: number;
}

export function lanesOf(strip: Strip): Lane[] {
	const lanes: Lane[] = [];
	let top = AXIS;
	let before = '';
	strip.tracks.forEach((track, i) => {
		if (before && track.type !== before)
			top += GROUP;
		before = track.type;
		lanes.push({top, height: TRACK - 4, track: i});
		top += TRACK;
	});
	strip.counters.forEach((_, i) => {
		top += GROUP;
		lanes.push({top, height: COUNTER - GROUP, counter: i});
		top += COUNTER;
	});
	return lanes;
}

export function heightOf(strip: Strip): number {
	const last = lanesOf(strip).at(-1);
	return last ? last.top + last.height + 10 : 80;
}

export function kindColor(kind: string): string {
	return phases[kind] ?? roles[kind] ?? (kind === 'range' ? '#8c6bb1' : '#56788f');
}

let colorCache: {kinds: string[]; colors: Uint32Array} | null = null;

function colorsOf(kinds: string[]): Uint32Array {
	if (colorCache?.kinds !== kinds)
		colorCache = {kinds, colors: Uint32Array.from(kinds, (kind) => abgr(kindColor(kind)))};
	return colorCache.colors;
}

let row: HTMLCanvasElement | null = null;

// The first bar of a track that may reach @time: bars are in the order of their starts.
function firstIn(start: NumberArray, from: number, to: number, time: number): number {
	let low = from, high = to;
	while (low < high) {
		const middle = (low + high) >> 1;
		if (start[middle]! < time)
			low = middle + 1;
		else
			high = middle;
	}
	return Math.max(from, low - 17);
}

function trackDraw(context: CanvasRenderingContext2D, strip: Strip, sight: Sight, lane: Lane, image: ImageData): void {
	const pixels = new Uint32Array(image.data.buffer);
	pixels.fill(0);
	const {start, end, kind, count, id} = strip.bars.of as Record<string, NumberArray>;
	const colors = colorsOf(strip.kinds);
	const isLayers = strip.tracks[lane.track!]!.type === 'layers';
	const scale = pixels.length / (sight.until - sight.from);
	const last = strip.firstOf[lane.track! + 1]!;
	const texts: [number, number, string][] = [];
	for (let i = firstIn(start!, strip.firstOf[lane.track!]!, last, sight.from); i < last; i++) {
		if (start![i]! > sight.until)
			break;
		const left = Math.max(0, Math.floor((start![i]! - sight.from) * scale));
		const right = Math.min(pixels.length, Math.max(left + 1, Math.round((end![i]! - sight.from) * scale)));
		let color = colors[kind![i]!]!;
		if (isLayers && id![i]! % 2 === 1)
			color = (color & 0xff000000) | ((color >> 1) & 0x7f7f7f) + 0x303030;
		for (let x = left; x < right; x++)
			pixels[x] = color;
		if (right - left > 3 && right < pixels.length)
			pixels[right - 1] = 0; // a seam between neighbours
		if (right - left > 60 && count![i] === 1)
			texts.push([left, right, barText(strip, lane.track!, id![i]!, strip.kinds[kind![i]!]!)]);
	}
	row ??= document.createElement('canvas');
	if (row.width !== image.width)
		row.width = image.width;
	row.height = 1;
	row.getContext('2d')!.putImageData(image, 0, 0);
	context.imageSmoothingEnabled = false;
	context.drawImage(row, LABELS, lane.top, sight.width - LABELS, lane.height);
	const ratio = (sight.width - LABELS) / pixels.length;
	context.fillStyle = '#ffffff';
	context.textBaseline = 'middle';
	context.textAlign = 'left';
	for (const [left, right, text] of texts) {
		context.save();
		context.beginPath();
		context.rect(LABELS + left * ratio, lane.top, (right - left) * ratio - 4, lane.height);
		context.clip();
		context.shadowColor = '#000';
		context.shadowBlur = 3;
		context.fillText(text, LABELS + left * ratio + 4, lane.top + lane.height / 2);
		context.restore();
	}
}

export function barText(strip: Strip, track: number, id: number, kind: string): string {
	const type = strip.tracks[track]!.type;
	return type === 'passes' ? `pass ${id}, ${kind}` : type === 'layers' ? `layer ${id}` : type === 'ranges' ? `range ${id}` : kind;
}

function counterDraw(context: CanvasRenderingContext2D, strip: Strip, sight: Sight, lane: Lane): void {
	const counter = strip.counters[lane.counter!]!;
	const {time, low, high} = strip.bars.of as Record<string, NumberArray>;
	const most = Math.max(counter.most, counter.limit) * 1.05 || 1;
	const x = (at: number) => LABELS + ((at - sight.from) / (sight.until - sight.from)) * (sight.width - LABELS);
	const y = (value: number) => lane.top + lane.height - (value / most) * lane.height;
	context.save();
	context.beginPath();
	context.rect(LABELS, lane.top, sight.width - LABELS, lane.height + 1);
	context.clip();
	context.strokeStyle = themeColor('--line');
	context.beginPath();
	context.moveTo(LABELS, lane.top + lane.height + 0.5);
	context.lineTo(sight.width, lane.top + lane.height + 0.5);
	context.stroke();
	if (counter.limit > 0) {
		context.strokeStyle = themeColor('--bad');
		context.setLineDash([6, 4]);
		context.beginPath();
		context.moveTo(LABELS, y(counter.limit));
		context.lineTo(sight.width, y(counter.limit));
		context.stroke();
		context.setLineDash([]);
	}
	context.strokeStyle = themeColor('--accent');
	context.lineWidth = 1.3;
	context.beginPath();
	const last = strip.pointOf[lane.counter! + 1]!;
	let isFirst = true;
	for (let i = firstIn(time!, strip.pointOf[lane.counter!]!, last, sight.from); i < last; i++) {
		if (isFirst)
			context.moveTo(x(time![i]!), y(high![i]!));
		else
			context.lineTo(x(time![i]!), y(high![i]!));
		isFirst = false;
		if (low![i] !== high![i])
			context.lineTo(x(time![i]!), y(low![i]!));
		if (time![i]! > sight.until)
			break;
	}
	context.stroke();
	context.lineWidth = 1;
	context.restore();
}

function axisDraw(context: CanvasRenderingContext2D, strip: Strip, sight: Sight, height: number): void {
	const x = (at: number) => LABELS + ((at - sight.from) / (sight.until - sight.from)) * (sight.width - LABELS);
	context.textAlign = 'center';
	context.textBaseline = 'top';
	const list = ticks(sight.from - strip.start, sight.until - strip.start, (sight.width - LABELS) / 110);
	for (const tick of list) {
		context.strokeStyle = themeColor('--line');
		context.beginPath();
		context.moveTo(Math.round(x(tick + strip.start)) + 0.5, AXIS - 4);
		context.lineTo(Math.round(x(tick + strip.start)) + 0.5, height);
		context.stroke();
		context.fillStyle = themeColor('--quiet');
		context.fillText(pointText(tick, list.length > 1 ? list[1]! - list[0]! : 1e9, Math.abs(sight.until - strip.start)), x(tick + strip.start), 3);
	}
}

function hatch(context: CanvasRenderingContext2D, left: number, right: number, height: number): void {
	context.save();
	context.beginPath();
	context.rect(left, AXIS - 4, Math.max(3, right - left), height);
	context.clip();
	context.strokeStyle = themeColor('--loss');
	context.lineWidth = 1.5;
	for (let x = left - height; x < Math.max(left + 3, right); x += 7) {
		context.beginPath();
		context.moveTo(x, height);
		context.lineTo(x + height, AXIS - 4);
		context.stroke();
	}
	context.restore();
}

export function timelineDraw(canvas: HTMLCanvasElement, strip: Strip, sight: Sight): void {
	const height = heightOf(strip);
	const ratio = window.devicePixelRatio || 1;
	if (canvas.width !== Math.round(sight.width * ratio) || canvas.height !== Math.round(height * ratio)) {
		canvas.width = Math.round(sight.width * ratio);
		canvas.height = Math.round(height * ratio);
		canvas.style.height = `${height}px`;
	}
	const context = canvas.getContext('2d', {alpha: false})!;
	context.setTransform(ratio, 0, 0, ratio, 0, 0);
	context.fillStyle = themeColor('--page');
	context.fillRect(0, 0, sight.width, height);
	context.font = '11px system-ui, sans-serif';
	axisDraw(context, strip, sight, height);
	const x = (at: number) => LABELS + ((at - sight.from) / (sight.until - sight.from)) * (sight.width - LABELS);
	const image = new ImageData(Math.max(1, Math.round((sight.width - LABELS) * ratio)), 1);
	for (const lane of lanesOf(strip)) {
		if (lane.track !== undefined)
			trackDraw(context, strip, sight, lane, image);
		else
			counterDraw(context, strip, sight, lane);
	}
	for (const gap of sight.gaps)
		if (gap.end >= sight.from && gap.start <= sight.until)
			hatch(context, Math.max(LABELS, x(gap.start)), Math.min(sight.width, x(gap.end)), height);
	if (sight.selection) {
		context.fillStyle = themeColor('--mark');
		context.fillRect(x(sight.selection.from), AXIS - 4, x(sight.selection.until) - x(sight.selection.from), height);
	}
	labelsDraw(context, strip, sight, height);
}

function labelsDraw(context: CanvasRenderingContext2D, strip: Strip, sight: Sight, height: number): void {
	context.fillStyle = themeColor('--page');
	context.fillRect(0, 0, LABELS - 2, height);
	context.textAlign = 'left';
	context.textBaseline = 'middle';
	lanesOf(strip).forEach((lane, i) => {
		context.fillStyle = i === sight.track ? themeColor('--focus') : themeColor('--text');
		const middle = lane.top + lane.height / 2;
		context.save();
		context.beginPath();
		context.rect(0, lane.top - 3, LABELS - 6, lane.height + 8);
		context.clip();
		if (lane.track !== undefined) {
			const track = strip.tracks[lane.track]!;
			context.fillText(`${track.type}: ${track.name}`, 4, middle);
		} else {
			const counter = strip.counters[lane.counter!]!;
			context.fillText(counter.name, 4, lane.top + 9);
			context.fillStyle = themeColor('--quiet');
			context.fillText(`up to ${real(counter.most, 1)} ${counter.unit}`, 4, lane.top + 24);
			if (counter.limit > 0)
				context.fillText(`limit ${real(counter.limit, 1)} ${counter.unit}`, 4, lane.top + 38);
		}
		context.restore();
	});
}

export interface Hit {
	track: number;
	id: number;
	kind: string;
	count: number;
	start: number;
	end: number;
}

// The topmost bar of a track at a time, within a pixel.
export function barAt(strip: Strip, sight: Sight, track: number, time: number): Hit | null {
	const {start, end, kind, count, id} = strip.bars.of as Record<string, NumberArray>;
	const slack = (sight.until - sight.from) / Math.max(1, sight.width - LABELS);
	const last = strip.firstOf[track + 1]!;
	let hit: Hit | null = null;
	for (let i = firstIn(start!, strip.firstOf[track]!, last, time); i < last && start![i]! <= time + slack; i++)
		if (end![i]! >= time - slack)
			hit = {track, id: id![i]!, kind: strip.kinds[kind![i]!]!, count: count![i]!, start: start![i]!, end: end![i]!};
	return hit;
}

export function hitText(strip: Strip, hit: Hit): string {
	const name = hit.count > 1 ? `${hit.count} bars in one pixel, the longest: ${barText(strip, hit.track, hit.id, hit.kind)}` : barText(strip, hit.track, hit.id, hit.kind);
	return `${name}, ${duration(hit.end - hit.start)}, at ${duration(hit.start - strip.start)}`;
}

// The value of a counter at a time: that of the point before it.
export function valueAt(strip: Strip, counter: number, time: number): number | null {
	const {time: times, high} = strip.bars.of as Record<string, NumberArray>;
	let value = null;
	for (let i = firstIn(times!, strip.pointOf[counter]!, strip.pointOf[counter + 1]!, time); i < strip.pointOf[counter + 1]! && times![i]! <= time; i++)
		value = high![i]!;
	return value;
}
