// SPDX-License-Identifier: MIT
//
// What the server sent of a timeline, and how it is looked up. Sent for a wider stretch of time than
// is seen, it serves while one pans and zooms.
import {phases} from './color';
import type {Arrays, NumberArray} from './data';
import {duration} from './format';

export interface Track {
	type: string;
	name: string;
	depth: number; // below another track of this type and name
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
	nLost: number;
	text: string;
}

// Clocks of a device were held down.
export interface Throttle {
	device: string;
	start: number;
	end: number;
	nReadings: number;
	reason: string;
}

export interface Strip {
	from: number;
	until: number;
	pixelNs: number;
	tracks: Track[];
	counters: Counter[];
	kinds: string[];
	names: string[]; // of bars, from 1
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
		names: string[];
		start_ns: number;
		end_ns: number;
		n_left_out: number;
	};
	return {
		from, until, pixelNs: (until - from) / width, tracks: header.tracks, counters: header.counters, kinds: header.kinds, names: header.names,
		start: header.start_ns, end: header.end_ns, nLeftOut: header.n_left_out, bars,
		firstOf: firsts(bars.of['track']!, header.tracks.length), pointOf: firsts(bars.of['counter']!, header.counters.length),
	};
}

// The first bar of a track that may reach @time: bars are in the order of their starts.
export function firstIn(start: NumberArray, from: number, to: number, time: number): number {
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

export interface Hit {
	track: number;
	bar: number; // its index in the strip
	id: number;
	node: number; // of a graph, from 1; 0: none
	kind: string;
	name: string; // "": none
	layer: number; // -1: none
	count: number;
	start: number;
	end: number;
	longest: number; // of several bars, in ns
}

export function hitOf(strip: Strip, track: number, bar: number): Hit {
	const {start, end, kind, count, id, name, node, layer, longest} = strip.bars.of as Record<string, NumberArray>;
	return {
		track, bar, id: id![bar]!, node: node![bar]!, kind: strip.kinds[kind![bar]!]!, name: strip.names[name![bar]! - 1] ?? '', layer: layer![bar]! - 1,
		count: count![bar]!, start: start![bar]!, end: end![bar]!, longest: longest![bar]!,
	};
}

// The topmost bar of a track that lies within @slack of a time.
export function barAt(strip: Strip, track: number, time: number, slack: number): Hit | null {
	const {start, end} = strip.bars.of as Record<string, NumberArray>;
	const last = strip.firstOf[track + 1]!;
	let bar = -1;
	for (let i = firstIn(start!, strip.firstOf[track]!, last, time); i < last && start![i]! <= time + slack; i++)
		if (end![i]! >= time - slack && (bar < 0 || start![i]! <= time))
			bar = i;
	return bar < 0 ? null : hitOf(strip, track, bar);
}

// The bar of a track that begins after a time, or before it; null: there is none in the strip.
export function barBeside(strip: Strip, track: number, time: number, step: 1 | -1): Hit | null {
	const start = strip.bars.of['start']!;
	const first = strip.firstOf[track]!, last = strip.firstOf[track + 1]!;
	let i = firstIn(start, first, last, time);
	while (i < last && start[i]! <= time)
		i++;
	if (step < 0)
		for (i--; i >= first && start[i]! >= time; i--);
	return i >= first && i < last ? hitOf(strip, track, i) : null;
}

// The parts of a name as compilers write it: "_ZN8cublasLt6kernelI..." has "cublasLt" and "kernel".
function mangledParts(name: string): string[] {
	const parts: string[] = [];
	for (let rest = name.replace(/^_ZN?[VK]*/, '');;) {
		const length = /^\d+/.exec(rest)?.[0];
		if (!length || rest.length < length.length + Number(length))
			return parts;
		parts.push(rest.slice(length.length, length.length + Number(length)));
		rest = rest.slice(length.length + Number(length));
		if (!name.startsWith('_ZN'))
			return parts;
	}
}

// "void cutlass::gemm<...>(...)" as "cutlass::gemm", as compilers write it, too.
export function shortName(name: string): string {
	const short = name.startsWith('_Z') ? mangledParts(name).join('::') : name.replace(/^void /, '').replace(/[<(].*$/s, '');
	return short || name;
}

export function barText(strip: Strip, hit: Hit): string {
	const type = strip.tracks[hit.track]!.type;
	if (type === 'passes')
		return `pass ${hit.id}, ${hit.kind}`;
	if (type === 'layers')
		return `layer ${hit.layer}`;
	return hit.name || (type === 'ranges' ? `range ${hit.id}` : hit.kind);
}

export function hitLines(strip: Strip, hit: Hit): string[] {
	const isOperation = hit.kind in phases ? false : strip.tracks[hit.track]!.type !== 'layers' && strip.tracks[hit.track]!.type !== 'ranges';
	const text = isOperation ? shortName(barText(strip, hit)) : barText(strip, hit);
	const lines = [hit.count > 1 ? `${hit.count} bars in one pixel, the longest: ${text}` : text];
	if (text !== barText(strip, hit))
		lines.push(barText(strip, hit));
	if (isOperation)
		lines.push(`${hit.kind}${hit.layer >= 0 ? `, layer ${hit.layer}` : ''}${hit.node > 0 ? `, node ${hit.node - 1} of a graph` : ''}`);
	lines.push(`${duration(hit.count > 1 ? hit.longest : hit.end - hit.start)}, at ${duration(hit.start - strip.start)}`);
	return lines;
}

// What held down the clocks of the device whose power a counter is; of other counters nothing.
export function throttlesOf(throttles: Throttle[], counter: Counter): Throttle[] {
	return counter.unit !== 'W' ? [] : throttles.filter(({device}) => counter.name === `power of ${device}` || counter.name.startsWith(`power of ${device},`));
}

// The value of a counter at a time: that of the point before it.
export function valueAt(strip: Strip, counter: number, time: number): {low: number; high: number; time: number} | null {
	const {time: times, low, high} = strip.bars.of as Record<string, NumberArray>;
	let value = null;
	for (let i = firstIn(times!, strip.pointOf[counter]!, strip.pointOf[counter + 1]!, time); i < strip.pointOf[counter + 1]! && times![i]! <= time; i++)
		value = {low: low![i]!, high: high![i]!, time: times![i]!};
	return value;
}
