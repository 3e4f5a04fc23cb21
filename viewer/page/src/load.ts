// SPDX-License-Identifier: MIT
//
// Expert load as a matrix of layers and experts, summed over phases and windows of time from the
// rows of expert_load_window; and how even it is. Rows of a window are next to each other, so that
// a step of the slider costs one window.
import type {Arrays, NumberArray, Row} from './data';

export interface Layer {
	layerId: number;
	layer: number;
	kind: string;
	nExperts: number; // routed
	nSlots: number; // with zero experts and shared slots
	topK: number;
}

export function layersOf(rows: Row[], model: number): Layer[] {
	return rows.filter((row) => row['model_id'] === model).map((row) => ({
		layerId: Number(row['layer_id']),
		layer: Number(row['layer']),
		kind: String(row['kind']),
		nExperts: Number(row['n_experts']) || 0,
		nSlots: Math.min(65536, (Number(row['n_experts']) || 0) + (Number(row['n_zero_experts']) || 0)
			+ (Number(row['n_shared_slots']) || 0)),
		topK: Number(row['top_k']) || 0,
	})).filter((layer) => layer.nSlots > 0);
}

export const phaseNames = ['prefill', 'decode', 'verify', 'other'] as const;

export function phasesOf(phase: string): string[] {
	return phase === 'padding' ? ['padding'] : phase === 'all' || phase === '' ? [...phaseNames] : [phase];
}

export interface Matrix {
	nLayers: number;
	nSlots: number;
	tokens: Float64Array; // [nLayers][nSlots]
	weight?: Float64Array; // mean weight, NaN where unknown
}

// Where what is shown for the blink of an eye is counted, again and again in the same place.
export type Room = Partial<Record<'tokens' | 'weight' | 'values', Float64Array>>;

function roomFor(room: Room | undefined, name: keyof Room, length: number): Float64Array {
	const kept = room?.[name];
	if (kept?.length === length)
		return kept;
	const made = new Float64Array(length);
	if (room)
		room[name] = made;
	return made;
}

export class Load {
	readonly nSlots: number;
	private readonly cellOf: Int32Array; // of each row, where it is in a matrix; -1: nowhere
	private readonly firstOf: number[] = []; // of each window, its first row

	constructor(readonly layers: Layer[], private readonly rows: Arrays, readonly nWindows: number) {
		this.nSlots = Math.max(1, ...layers.map((layer) => layer.nSlots));
		const rowOf = new Map(layers.map((layer, i) => [layer.layerId, i]));
		const layerIds = rows.of['layer_id']!;
		const experts = rows.of['expert']!;
		this.cellOf = Int32Array.from({length: rows.n}, (_, i) => {
			const row = rowOf.get(layerIds[i]!);
			return row === undefined || experts[i]! >= this.nSlots ? -1 : row * this.nSlots + experts[i]!;
		});
		const windows = rows.of['window']!;
		let next = 0;
		for (let i = 0; i < rows.n; i++)
			while (next <= windows[i]!)
				this.firstOf[next++] = i;
		while (next <= nWindows)
			this.firstOf[next++] = rows.n;
	}

	// Of the windows from first to last, both included.
	matrix(phase: string, first: number, last: number, room?: Room): Matrix {
		const tokens = roomFor(room, 'tokens', this.layers.length * this.nSlots).fill(0);
		const end = this.firstOf[last + 1] ?? this.rows.n;
		for (const name of phasesOf(phase)) {
			const column = this.rows.of[name]!;
			for (let i = this.firstOf[first] ?? 0; i < end; i++)
				if (this.cellOf[i]! >= 0)
					tokens[this.cellOf[i]!]! += column[i]!;
		}
		return {nLayers: this.layers.length, nSlots: this.nSlots, tokens};
	}
}

// From rows that were counted for a filter: layer_id, expert, phase (0 to 3), tokens, weight.
export function filteredMatrix(layers: Layer[], rows: Arrays, phase: string, room?: Room): Matrix {
	const nSlots = Math.max(1, ...layers.map((layer) => layer.nSlots));
	const rowOf = new Map(layers.map((layer, i) => [layer.layerId, i]));
	const tokens = roomFor(room, 'tokens', layers.length * nSlots).fill(0);
	const weight = roomFor(room, 'weight', layers.length * nSlots).fill(0);
	const wanted = phasesOf(phase);
	const of = rows.of as Record<string, NumberArray>;
	for (let i = 0; i < rows.n; i++) {
		const row = rowOf.get(of['layer_id']![i]!);
		if (row === undefined || of['expert']![i]! >= nSlots || !wanted.includes(phaseNames[of['phase']![i]!] ?? 'other'))
			continue;
		const at = row * nSlots + of['expert']![i]!;
		tokens[at]! += of['tokens']![i]!;
		weight[at]! += of['weight']![i]! * of['tokens']![i]!;
	}
	for (let i = 0; i < weight.length; i++)
		weight[i] = tokens[i]! > 0 ? weight[i]! / tokens[i]! : NaN;
	return {nLayers: layers.length, nSlots, tokens, weight};
}

export interface Balance {
	tokens: number;
	mean: number;
	hottest: number; // -1: no token
	most: number;
	maxOverMean: number; // NaN: no token
	balancedness: number;
	gini: number;
	jain: number;
	entropy: number; // over the logarithm of the experts
	dead: number;
}

let sorting = new Float64Array();

// Routed experts only, as in view layer_balance. @isWhole: Gini and entropy, too, which take far longer
// than the rest and are NaN without.
export function balanceOf(matrix: Matrix, row: number, nExperts: number, isWhole = true): Balance {
	const loads = matrix.tokens.subarray(row * matrix.nSlots, row * matrix.nSlots + nExperts);
	let tokens = 0, squares = 0, hottest = -1, most = 0, dead = 0, entropy = 0;
	for (let i = 0; i < loads.length; i++) {
		const n = loads[i]!;
		tokens += n;
		squares += n * n;
		if (n === 0)
			dead++;
		if (n > most) {
			most = n;
			hottest = i;
		}
	}
	if (sorting.length < nExperts)
		sorting = new Float64Array(nExperts);
	const sorted = sorting.subarray(0, isWhole ? loads.length : 0);
	if (isWhole)
		sorted.set(loads);
	sorted.sort();
	let ranked = 0;
	for (let i = 0; i < sorted.length; i++) {
		ranked += (i + 1) * sorted[i]!;
		if (sorted[i]! > 0)
			entropy -= (sorted[i]! / tokens) * Math.log(sorted[i]! / tokens);
	}
	const n = nExperts;
	return {
		tokens, hottest, most, dead,
		mean: tokens / n,
		maxOverMean: (most * n) / tokens,
		balancedness: tokens / (most * n),
		gini: isWhole ? (2 * ranked) / (n * tokens) - (n + 1) / n : NaN,
		jain: (tokens * tokens) / (n * squares),
		entropy: isWhole && n > 1 ? entropy / Math.log(n) : NaN,
	};
}

export type Metric = 'tokens' | 'share' | 'times' | 'weight';

export const metrics: (readonly [Metric, string])[] = [
	['tokens', 'tokens'], ['share', 'share of the layer'], ['times', 'difference to uniform'], ['weight', 'mean weight'],
];

// What is drawn: NaN where there is nothing, as beyond the experts of a smaller layer.
export function valuesOf(matrix: Matrix, layers: Layer[], metric: Metric, room?: Room): Float64Array {
	const values = roomFor(room, 'values', matrix.tokens.length).fill(NaN);
	for (let row = 0; row < layers.length; row++) {
		const layer = layers[row]!;
		const base = row * matrix.nSlots;
		let sum = 0;
		for (let i = 0; i < layer.nExperts; i++)
			sum += matrix.tokens[base + i]!;
		for (let i = 0; i < layer.nSlots; i++) {
			const tokens = matrix.tokens[base + i]!;
			if (metric === 'weight')
				values[base + i] = matrix.weight ? matrix.weight[base + i]! : NaN;
			else if (metric === 'share')
				values[base + i] = sum > 0 ? tokens / sum : NaN;
			else if (metric === 'times')
				values[base + i] = sum > 0 ? (tokens * layer.nExperts) / sum : NaN;
			else
				values[base + i] = tokens;
		}
	}
	return values;
}

// ---- ranks ----

// Where experts are: of each layer (by layer_id) and expert the ranks that have it.
export interface Placement {
	nRanks: number;
	ranks: Map<number, number[][]>;
}

export function placementInOrder(layers: Layer[], nRanks: number): Placement {
	return {nRanks, ranks: new Map(layers.map((layer) => [layer.layerId,
		Array.from({length: layer.nExperts}, (_, expert) => [Math.floor((expert * nRanks) / layer.nExperts)])]))};
}

// From rows of layer_id, expert, rank, n_ranks; a rank counts once for each slot.
export function placementOf(layers: Layer[], rows: Arrays): Placement | null {
	const ranks = new Map(layers.map((layer) => [layer.layerId, Array.from({length: layer.nExperts}, () => [] as number[])]));
	let nRanks = 0;
	for (let i = 0; i < rows.n; i++) {
		nRanks = Math.max(nRanks, rows.of['n_ranks']![i]!);
		ranks.get(rows.of['layer_id']![i]!)?.[rows.of['expert']![i]!]?.push(rows.of['rank']![i]!);
	}
	return nRanks > 0 ? {nRanks, ranks} : null;
}

// Tokens by rank in place of experts: replicas share those of their expert.
export function byRank(matrix: Matrix, layers: Layer[], placement: Placement): {matrix: Matrix; layers: Layer[]} {
	const tokens = new Float64Array(layers.length * placement.nRanks);
	layers.forEach((layer, row) => placement.ranks.get(layer.layerId)?.forEach((ranks, expert) => {
		for (const rank of ranks)
			tokens[row * placement.nRanks + rank]! += matrix.tokens[row * matrix.nSlots + expert]! / ranks.length;
	}));
	return {
		matrix: {nLayers: layers.length, nSlots: placement.nRanks, tokens},
		layers: layers.map((layer) => ({...layer, nExperts: placement.nRanks, nSlots: placement.nRanks})),
	};
}

// Experts of each layer by their (first) rank, the busiest of a rank first, and where ranks begin.
export function orderByRank(matrix: Matrix, layers: Layer[], placement: Placement): {order: Int32Array[]; breaks: number[][]} {
	const breaks: number[][] = [];
	const order = layers.map((layer, row) => {
		const rankOf = (expert: number) => (expert < layer.nExperts ? placement.ranks.get(layer.layerId)?.[expert]?.[0] ?? placement.nRanks : placement.nRanks + 1);
		const tokens = (expert: number) => (expert < layer.nSlots ? matrix.tokens[row * matrix.nSlots + expert]! : -1);
		const list = Int32Array.from({length: matrix.nSlots}, (_, i) => i).sort((a, b) => rankOf(a) - rankOf(b) || tokens(b) - tokens(a) || a - b);
		const begins: number[] = [];
		for (let i = 1; i < list.length; i++)
			if (rankOf(list[i]!) !== rankOf(list[i - 1]!))
				begins.push(i);
		breaks.push(begins);
		return list;
	});
	return {order, breaks};
}

// Layers in another order.
export function permuted(matrix: Matrix, layers: Layer[], rows: number[]): {matrix: Matrix; layers: Layer[]} {
	const pick = (values: Float64Array) => {
		const out = new Float64Array(values.length);
		rows.forEach((from, to) => out.set(values.subarray(from * matrix.nSlots, (from + 1) * matrix.nSlots), to * matrix.nSlots));
		return out;
	};
	return {
		matrix: {...matrix, tokens: pick(matrix.tokens), ...(matrix.weight ? {weight: pick(matrix.weight)} : {})},
		layers: rows.map((row) => layers[row]!),
	};
}
