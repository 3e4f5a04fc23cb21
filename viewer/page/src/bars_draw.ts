// SPDX-License-Identifier: MIT
//
// The timeline as it is drawn: a lane is one row of pixels, filled from its track's bars and stretched
// to the lane's height, so that a frame costs the pixels and the bars that lie in them. Names and
// letters stand on bars that have room for them. The same code draws the canvas and the SVG.
import type {Gap, Hit, Strip, Throttle} from './bars';
import {barText, firstIn, hitOf, shortName, throttlesOf} from './bars';
import {abgr, css, inkOn, letters, phases, roles, themeColor} from './color';
import type {NumberArray} from './data';
import {count, pointText, real} from './format';
import {ticks} from './plot';
import type {Surface} from './svg';
import {canvasSurface, SvgSurface} from './svg';

export interface Sight {
	from: number;
	until: number;
	width: number;
	lane: number; // the one that the keys are on
	cursor: number | null; // a time
	selection: {from: number; until: number} | null;
	gaps: Gap[];
	throttles: Throttle[];
	marked: {type: string; id: number; node: number} | null;
}

export const LABELS = 190;
export const AXIS = 24;
const HEADING = 17;
const COUNTER = 48;
// Lanes for what overlaps others have no room for names, and together not much.
const LOWER = 10;
const ALL_LOWER = 48;
const FONT = '11px system-ui, sans-serif';

export interface Lane {
	top: number;
	height: number;
	track?: number;
	counter?: number;
}

export interface Layout {
	lanes: Lane[];
	headings: {top: number; text: string}[];
	height: number;
}

// Groups of lanes, from top to bottom: their titles and the height of a lane.
export const groups: Record<string, {title: string; height: number}> = {
	passes: {title: 'Passes', height: 20},
	layers: {title: 'Layers', height: 18},
	kernels: {title: 'Operations', height: 24},
	collectives: {title: 'Between ranks', height: 22},
	ranges: {title: 'Ranges', height: 17},
	counters: {title: 'Counters', height: COUNTER},
};

let laidOut: {strip: Strip; hidden: string; layout: Layout} | null = null;

// @hidden: groups that are not shown, with commas.
export function layoutOf(strip: Strip, hidden: string): Layout {
	if (laidOut?.strip === strip && laidOut.hidden === hidden)
		return laidOut.layout;
	const layout: Layout = {lanes: [], headings: [], height: 0};
	const isHidden = hidden.split(',');
	let top = AXIS;
	for (const [type, {title, height}] of Object.entries(groups)) {
		const counters = type === 'counters' ? strip.counters.map((_, i) => i) : [];
		const tracks = strip.tracks.map((track, i) => ({...track, i})).filter((track) => track.type === type && (track.depth === 0 || strip.firstOf[track.i]! < strip.firstOf[track.i + 1]!))
			.sort((a, b) => a.name.localeCompare(b.name, 'en', {numeric: true}) || a.depth - b.depth);
		const nLower = (name: string) => tracks.filter((track) => track.depth > 0 && track.name === name).length;
		if (isHidden.includes(type) || counters.length + tracks.length === 0)
			continue;
		layout.headings.push({top, text: title});
		top += HEADING;
		tracks.forEach((track, i) => {
			const lower = track.depth > 0 && type !== 'ranges' ? Math.max(2, Math.min(LOWER, Math.floor(ALL_LOWER / nLower(track.name)) - 1)) : height;
			layout.lanes.push({top, height: lower, track: track.i});
			top += lower + (tracks[i + 1]?.depth ? 1 : 4);
		});
		for (const counter of counters) {
			layout.lanes.push({top, height, counter});
			top += height + 15;
		}
	}
	layout.height = Math.max(top + 4, 60);
	laidOut = {strip, hidden, layout};
	return layout;
}

// A lane in the address; it stays the same when others come and go.
export const laneKey = (lane: Lane) => (lane.track !== undefined ? `t${lane.track}` : `c${lane.counter}`);

export const laneOf = (layout: Layout | null, key: string | undefined) => Math.max(0, layout?.lanes.findIndex((lane) => laneKey(lane) === key) ?? 0);

export function laneName(strip: Strip, lane: Lane): string {
	if (lane.counter !== undefined)
		return strip.counters[lane.counter]!.name;
	const track = strip.tracks[lane.track!]!;
	return `${groups[track.type]?.title.toLowerCase() ?? track.type}${track.name ? `, ${track.name}` : ''}${track.depth ? `, ${track.depth} deep` : ''}`;
}

export function kindColor(kind: string): string {
	return phases[kind] ?? roles[kind] ?? (kind === 'range' ? '#8c6bb1' : '#56788f');
}

const OTHER_LAYER = '#7f8fa6';

let colorCache: {kinds: string[]; colors: Uint32Array} | null = null;

function colorsOf(kinds: string[]): Uint32Array {
	if (colorCache?.kinds !== kinds)
		colorCache = {kinds, colors: Uint32Array.from(kinds, (kind) => abgr(kindColor(kind)))};
	return colorCache.colors;
}

// The style sheet is asked once a picture.
const themeColors = new Map<string, string>();

function theme(name: string): string {
	let color = themeColors.get(name);
	if (color === undefined) {
		color = themeColor(name);
		themeColors.set(name, color);
	}
	return color;
}

// ---- text ----

const widths = new Map<string, number>();

function widthOf(surface: Surface, text: string): number {
	let width = widths.get(text);
	if (width === undefined) {
		if (widths.size > 5000)
			widths.clear();
		width = surface.measureText(text).width;
		widths.set(text, width);
	}
	return width;
}

// What of a text there is room for.
function fit(surface: Surface, text: string, room: number): string {
	const width = widthOf(surface, text);
	if (width <= room)
		return text;
	for (let n = Math.floor((text.length * room) / width); n > 1; n--)
		if (widthOf(surface, `${text.slice(0, n)}\u2026`) <= room)
			return `${text.slice(0, n)}\u2026`;
	return '';
}

// What stands on a bar: the name, or what of it there is room for, or what it is, or a letter for that.
function label(surface: Surface, strip: Strip, hit: Hit, room: number): string {
	const type = strip.tracks[hit.track]!.type;
	const first = (texts: string[]) => texts.find((text) => widthOf(surface, text) <= room) ?? '';
	if (type === 'layers')
		return first([`layer ${hit.layer}`, `${hit.layer}`]);
	if (type === 'ranges')
		return room >= 30 ? fit(surface, barText(strip, hit), room) : '';
	const letter = letters[hit.kind] ?? '';
	if (type === 'passes')
		return first([barText(strip, hit), `pass ${hit.id}`, String(hit.id)]) || (widthOf(surface, letter) <= room + 5 ? letter : '');
	const name = shortName(hit.name || hit.kind);
	return first(hit.layer >= 0 ? [`${name}, layer ${hit.layer}`, name] : [name]) || (room >= 70 ? fit(surface, name, room) : first([hit.kind]))
		|| (widthOf(surface, letter) <= room + 5 ? letter : '');
}

interface Label {
	text: string;
	left: number;
	right: number; // of the bar
	lane: Lane;
	color: string; // of the bar
}

// ---- lanes of bars ----

let row: HTMLCanvasElement | null = null;

function rowDraw(surface: Surface, lane: Lane, width: number, pixels: Uint32Array<ArrayBuffer>): void {
	const ratio = width / pixels.length;
	if (surface instanceof SvgSurface) {
		for (let x = 0; x < pixels.length;) {
			let end = x + 1;
			while (end < pixels.length && pixels[end] === pixels[x])
				end++;
			if (pixels[x] !== 0) {
				surface.fillStyle = css(pixels[x]!);
				surface.fillRect(LABELS + x * ratio, lane.top, (end - x) * ratio, lane.height);
			}
			x = end;
		}
		return;
	}
	row ??= document.createElement('canvas');
	if (row.width !== pixels.length)
		row.width = pixels.length;
	row.height = 1;
	row.getContext('2d')!.putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer), pixels.length, 1), 0, 0);
	surface.image(row, LABELS, lane.top, width, lane.height);
}

function trackDraw(surface: Surface, strip: Strip, sight: Sight, lane: Lane, pixels: Uint32Array<ArrayBuffer>, texts: Label[]): void {
	pixels.fill(0);
	const {start, end, kind, count: counts, layer, id, node} = strip.bars.of as Record<string, NumberArray>;
	const colors = colorsOf(strip.kinds);
	const {type} = strip.tracks[lane.track!]!;
	const other = abgr(OTHER_LAYER);
	const scale = pixels.length / (sight.until - sight.from);
	const ratio = (sight.width - LABELS) / pixels.length;
	const last = strip.firstOf[lane.track! + 1]!;
	const wide: [number, number, number][] = [];
	let marked: [number, number] | null = null;
	for (let i = firstIn(start!, strip.firstOf[lane.track!]!, last, sight.from); i < last; i++) {
		if (start![i]! > sight.until)
			break;
		if (end![i]! < sight.from)
			continue;
		const left = Math.max(0, Math.floor((start![i]! - sight.from) * scale));
		const right = Math.min(pixels.length, Math.max(left + 1, Math.round((end![i]! - sight.from) * scale)));
		const color = type === 'layers' && layer![i]! % 2 === 1 ? other : colors[kind![i]!]!;
		pixels.fill(color, left, right);
		if (right - left > 3 && right < pixels.length)
			pixels[right - 1] = 0; // a seam between neighbours
		if (wide.length && wide.at(-1)![1] > left * ratio)
			wide.at(-1)![1] = left * ratio; // what lies above hides it
		if (lane.height > LOWER && (right - left) * ratio > 10 && counts![i] === 1)
			wide.push([left * ratio, right * ratio, i]);
		if (sight.marked?.type === type && id![i] === sight.marked.id && node![i] === sight.marked.node && counts![i] === 1 && right > 0)
			marked = [left * ratio, right * ratio];
	}
	rowDraw(surface, lane, sight.width - LABELS, pixels);
	for (const [left, right, i] of wide) {
		const hit = hitOf(strip, lane.track!, i);
		const text = label(surface, strip, hit, right - left - 7);
		if (text)
			texts.push({text, left: LABELS + left, right: LABELS + right, lane, color: type === 'layers' && layer![i]! % 2 === 1 ? OTHER_LAYER : kindColor(hit.kind)});
	}
	if (marked)
		frame(surface, LABELS + marked[0], lane.top, Math.max(3, marked[1] - marked[0]), lane.height);
}

// Last of all; where something was lost, on a spot that is not hatched.
function textsDraw(surface: Surface, texts: Label[], hatched: [number, number][]): void {
	surface.textBaseline = 'middle';
	surface.textAlign = 'left';
	for (const {text, left, right, lane, color} of texts) {
		const width = widthOf(surface, text);
		const x = left + Math.min(3, (right - left - 1 - width) / 2);
		if (hatched.some((each) => each[0] <= x + width && each[1] >= x)) {
			surface.fillStyle = color;
			surface.fillRect(x - 1, lane.top + 2, width + 2, lane.height - 4);
		}
		surface.fillStyle = inkOn(color);
		surface.fillText(text, x, lane.top + lane.height / 2 + 0.5);
	}
}

function frame(surface: Surface, left: number, top: number, width: number, height: number): void {
	surface.strokeStyle = theme('--focus');
	surface.lineWidth = 2;
	surface.strokeRect(left, top, width, height);
	surface.lineWidth = 1;
}

// ---- counters ----

// What is shown ends a little above all that was read and above the limit; without a limit at a round
// number above what is in sight, so that small values among large ones are seen.
function scaleOf(strip: Strip, sight: Sight, lane: Lane): number {
	const counter = strip.counters[lane.counter!]!;
	if (counter.limit > 0)
		return Math.max(counter.most, counter.limit) * 1.08;
	const most = pathOf(strip, sight, lane).high.reduce((a, b) => Math.max(a, b), 0) * 1.04 || 1;
	const power = 10 ** Math.floor(Math.log10(most));
	return [1, 1.5, 2, 3, 5, 7, 10].map((f) => f * power).find((f) => f >= most)!;
}

// Readings of power are joined by lines; what passes, layers and clocks have stays until the next one.
const isStep = (unit: string) => unit !== 'W';

interface Path {
	x: number[];
	low: number[];
	high: number[];
}

// A counter's path, its scale and its labels are drawn from the same points of a picture.
let paths: {strip: Strip; sight: Sight; of: Map<number, Path>} | null = null;

function pathOf(strip: Strip, sight: Sight, lane: Lane): Path {
	if (paths?.strip !== strip || paths.sight !== sight)
		paths = {strip, sight, of: new Map()};
	const known = paths.of.get(lane.counter!);
	if (known)
		return known;
	const {time, low, high} = strip.bars.of as Record<string, NumberArray>;
	const last = strip.pointOf[lane.counter! + 1]!;
	const path: Path = {x: [], low: [], high: []};
	const scale = (sight.width - LABELS) / (sight.until - sight.from);
	let i = firstIn(time!, strip.pointOf[lane.counter!]!, last, sight.from);
	while (i + 1 < last && time![i + 1]! <= sight.from)
		i++;
	for (; i < last; i++) {
		path.x.push(LABELS + (time![i]! - sight.from) * scale);
		path.low.push(low![i]!);
		path.high.push(high![i]!);
		if (time![i]! > sight.until)
			break;
	}
	paths.of.set(lane.counter!, path);
	return path;
}

const BAND = 13;

// Where clocks were held down: a band across the lane with its reason below it, where there is room for it.
function throttlesDraw(surface: Surface, strip: Strip, sight: Sight, lane: Lane): void {
	const scale = (sight.width - LABELS) / (sight.until - sight.from);
	const bottom = lane.top + lane.height;
	surface.textAlign = 'left';
	surface.textBaseline = 'middle';
	for (const {start, end, reason} of throttlesOf(sight.throttles, strip.counters[lane.counter!]!)) {
		if (end < sight.from || start > sight.until)
			continue;
		const left = Math.max(LABELS, LABELS + (start - sight.from) * scale);
		const width = Math.max(2, Math.min(sight.width, LABELS + (end - sight.from) * scale) - left);
		surface.fillStyle = theme('--warn');
		surface.globalAlpha = 0.2;
		surface.fillRect(left, lane.top, width, lane.height);
		surface.globalAlpha = 1;
		const text = width > 30 ? fit(surface, `held down: ${reason}`, width - 6) : '';
		surface.fillRect(left, bottom, width, text ? BAND : 4);
		surface.fillStyle = theme('--page');
		if (text)
			surface.fillText(text, left + 3, bottom + BAND / 2 + 0.5);
	}
}

function counterDraw(surface: Surface, strip: Strip, sight: Sight, lane: Lane): void {
	const counter = strip.counters[lane.counter!]!;
	const most = scaleOf(strip, sight, lane);
	const bottom = lane.top + lane.height;
	const y = (value: number) => bottom - (value / most) * lane.height;
	const path = pathOf(strip, sight, lane);
	const end = Math.min(sight.width, LABELS + ((strip.end - sight.from) / (sight.until - sight.from)) * (sight.width - LABELS));
	surface.save();
	surface.beginPath();
	surface.rect(LABELS, lane.top - 2, sight.width - LABELS, lane.height + 4);
	surface.clip();
	surface.strokeStyle = theme('--line');
	for (const tick of ticks(0, most, 2)) {
		surface.beginPath();
		surface.moveTo(LABELS, Math.round(y(tick)) + 0.5);
		surface.lineTo(sight.width, Math.round(y(tick)) + 0.5);
		surface.stroke();
	}
	const isStepped = isStep(counter.unit);
	const trace = () => {
		path.x.forEach((x, i) => {
			if (i === 0)
				surface.lineTo(x, y(path.high[i]!));
			else if (isStepped)
				surface.lineTo(x, y(path.high[i - 1]!));
			surface.lineTo(x, y(path.high[i]!));
		});
		if (isStepped && path.x.length && path.x.at(-1)! < end)
			surface.lineTo(end, y(path.high.at(-1)!));
	};
	if (path.x.length) {
		surface.fillStyle = theme('--accent');
		surface.globalAlpha = 0.14;
		surface.beginPath();
		surface.moveTo(path.x[0]!, bottom);
		trace();
		surface.lineTo(isStepped ? Math.max(end, path.x.at(-1)!) : path.x.at(-1)!, bottom);
		surface.fill();
		surface.globalAlpha = 1;
		surface.strokeStyle = theme('--accent');
		surface.lineWidth = 1.4;
		surface.beginPath();
		surface.moveTo(path.x[0]!, y(path.high[0]!));
		trace();
		surface.stroke();
		// Where a pixel holds several points, from the lowest to the highest.
		surface.beginPath();
		path.x.forEach((x, i) => {
			if (path.low[i] === path.high[i])
				return;
			surface.moveTo(x, y(path.low[i]!));
			surface.lineTo(x, y(path.high[i]!));
		});
		surface.stroke();
		// So few that they are seen one by one: then it is seen what was read and what is a line between.
		surface.fillStyle = theme('--accent');
		if (path.x.length < (sight.width - LABELS) / 12)
			path.x.forEach((x, i) => surface.fillRect(x - 2, y(path.high[i]!) - 2, 4, 4));
	}
	if (counter.limit > 0) {
		surface.strokeStyle = surface.fillStyle = theme('--bad');
		surface.lineWidth = 1.4;
		surface.setLineDash([6, 4]);
		surface.beginPath();
		surface.moveTo(LABELS, y(counter.limit));
		surface.lineTo(sight.width, y(counter.limit));
		surface.stroke();
		surface.setLineDash([]);
	}
	surface.restore();
	surface.lineWidth = 1;
	if (counter.limit > 0) {
		const text = `limit ${real(counter.limit, 1)} ${counter.unit}`;
		surface.textAlign = 'right';
		surface.textBaseline = 'top';
		surface.fillStyle = theme('--page');
		surface.fillRect(sight.width - widthOf(surface, text) - 8, y(counter.limit) + 2, widthOf(surface, text) + 8, 13);
		surface.fillStyle = theme('--bad');
		surface.fillText(text, sight.width - 4, y(counter.limit) + 3);
	}
}

// ---- what lies over all lanes ----

function axisDraw(surface: Surface, strip: Strip, sight: Sight, height: number): void {
	const x = (at: number) => LABELS + ((at - sight.from) / (sight.until - sight.from)) * (sight.width - LABELS);
	const list = ticks(sight.from - strip.start, sight.until - strip.start, (sight.width - LABELS) / 110);
	surface.textBaseline = 'top';
	for (const tick of list) {
		const at = x(tick + strip.start);
		const text = pointText(tick, list.length > 1 ? list[1]! - list[0]! : 1e9, Math.abs(sight.until - strip.start));
		surface.strokeStyle = theme('--line');
		surface.beginPath();
		surface.moveTo(Math.round(at) + 0.5, AXIS - 6);
		surface.lineTo(Math.round(at) + 0.5, height);
		surface.stroke();
		surface.fillStyle = theme('--quiet');
		const half = widthOf(surface, text) / 2;
		surface.textAlign = 'center';
		surface.fillText(text, Math.max(LABELS + half, Math.min(at, sight.width - half - 1)), 3);
	}
}

function gapDraw(surface: Surface, gap: Gap, left: number, right: number, height: number, width: number): void {
	const wide = Math.max(left + 3, right);
	surface.save();
	surface.beginPath();
	surface.rect(left, AXIS - 4, wide - left, height);
	surface.clip();
	surface.strokeStyle = theme('--loss');
	surface.lineWidth = 1.5;
	for (let x = left - height; x < wide; x += 7) {
		surface.beginPath();
		surface.moveTo(x, height);
		surface.lineTo(x + height, AXIS - 4);
		surface.stroke();
	}
	surface.restore();
	const text = `${count(gap.nLost)} lost`;
	const space = widthOf(surface, text) + 8;
	const at = Math.min(left, width - space);
	surface.fillStyle = theme('--page');
	surface.fillRect(at, AXIS, space, 15);
	surface.fillStyle = theme('--loss');
	surface.textAlign = 'left';
	surface.textBaseline = 'top';
	surface.fillText(text, at + 4, AXIS + 2);
}

function labelsDraw(surface: Surface, strip: Strip, sight: Sight, layout: Layout): void {
	surface.fillStyle = theme('--page');
	surface.fillRect(0, 0, LABELS - 2, layout.height);
	surface.textAlign = 'left';
	surface.textBaseline = 'middle';
	surface.fillStyle = theme('--text');
	surface.font = `600 ${FONT}`;
	for (const heading of layout.headings)
		surface.fillText(heading.text, 4, heading.top + HEADING / 2 + 1);
	surface.font = FONT;
	layout.lanes.forEach((lane, i) => {
		const isCursor = i === sight.lane && sight.cursor !== null;
		surface.textAlign = 'left';
		surface.fillStyle = isCursor ? theme('--focus') : theme('--text');
		if (isCursor)
			surface.fillRect(2, lane.top, 3, lane.height);
		if (lane.track !== undefined) {
			const track = strip.tracks[lane.track]!;
			if (!track.depth)
				surface.fillText(fit(surface, track.name || '(no name)', LABELS - 18), 12, lane.top + lane.height / 2);
			return;
		}
		const counter = strip.counters[lane.counter!]!;
		const [what, ...of] = counter.name.split(' of ');
		const unit = what!.includes(counter.unit) ? '' : ` (${counter.unit})`;
		surface.fillText(fit(surface, `${what}${unit}`, LABELS - 58), 12, lane.top + 10);
		surface.fillStyle = theme('--quiet');
		surface.fillText(fit(surface, of.join(' of '), LABELS - 58), 12, lane.top + 25);
		surface.textAlign = 'right';
		const most = scaleOf(strip, sight, lane);
		for (const tick of ticks(0, most, 2))
			surface.fillText(real(tick, 2), LABELS - 6, lane.top + lane.height - (tick / most) * lane.height);
	});
}

function timelineDraw(surface: Surface, strip: Strip, sight: Sight, layout: Layout, ratio: number): void {
	themeColors.clear();
	surface.fillStyle = theme('--page');
	surface.fillRect(0, 0, sight.width, layout.height);
	surface.font = FONT;
	axisDraw(surface, strip, sight, layout.height);
	const x = (at: number) => LABELS + ((at - sight.from) / (sight.until - sight.from)) * (sight.width - LABELS);
	const pixels = new Uint32Array(Math.max(1, Math.round((sight.width - LABELS) * ratio)));
	const texts: Label[] = [];
	for (const lane of layout.lanes) {
		if (lane.track !== undefined)
			trackDraw(surface, strip, sight, lane, pixels, texts);
		else {
			counterDraw(surface, strip, sight, lane);
			throttlesDraw(surface, strip, sight, lane);
		}
	}
	const hatched: [number, number][] = [];
	for (const gap of sight.gaps) {
		if (gap.end < sight.from || gap.start > sight.until)
			continue;
		hatched.push([Math.max(LABELS, x(gap.start)), Math.min(sight.width, x(gap.end))]);
		gapDraw(surface, gap, ...hatched.at(-1)!, layout.height, sight.width);
	}
	textsDraw(surface, texts, hatched);
	if (sight.selection && sight.selection.until >= sight.from && sight.selection.from <= sight.until) {
		const left = Math.max(LABELS, x(sight.selection.from)), right = Math.min(sight.width, x(sight.selection.until));
		surface.fillStyle = theme('--mark');
		surface.fillRect(left, AXIS - 6, right - left, layout.height);
		surface.strokeStyle = theme('--accent');
		surface.strokeRect(left + 0.5, AXIS - 5.5, Math.max(1, right - left - 1), layout.height - AXIS + 4);
	}
	if (sight.cursor !== null && sight.cursor >= sight.from && sight.cursor <= sight.until) {
		const lane = layout.lanes[sight.lane];
		surface.fillStyle = theme('--focus');
		surface.fillRect(Math.round(x(sight.cursor)) - 0.5, AXIS - 6, 1, layout.height);
		if (lane)
			surface.fillRect(Math.round(x(sight.cursor)) - 3, lane.top + lane.height / 2 - 3, 6, 6);
	}
	labelsDraw(surface, strip, sight, layout);
}

export function timelineCanvas(canvas: HTMLCanvasElement, strip: Strip, sight: Sight, layout: Layout): void {
	timelineDraw(canvasSurface(canvas, sight.width, layout.height), strip, sight, layout, window.devicePixelRatio || 1);
}

export function timelineSvg(strip: Strip, sight: Sight, layout: Layout): string {
	const surface = new SvgSurface(sight.width, layout.height);
	timelineDraw(surface, strip, sight, layout, 1);
	return surface.text('Timeline');
}
