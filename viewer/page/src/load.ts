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

export class Load {
	readonly nSlots: number;
	private readonly rowOf = new Map<number, number>();
	private readonly firstOf: number[] = []; // of each window, its first row

	constructor(readonly layers: Layer[], private readonly rows: Arrays, readonly nWindows: number) {
		this.nSlots = Math.max(1, ...layers.map((layer) => layer.nSlots));
		layers.forEach((layer, i) => this.rowOf.set(layer.layerId, i));
		const windows = rows.of['window']!;
		let next = 0;
		for (let i = 0; i < rows.n; i++)
			while (next <= windows[i]!)
				this.firstOf[next++] = i;
		while (next <= nWindows)
			this.firstOf[next++] = rows.n;
	}

	// Of the windows from first to last, both included.
	matrix(phase: string, first: number, last: number): Matrix {
		const tokens = new Float64Array(this.layers.length * this.nSlots);
		const columns = phasesOf(phase).map((name) => this.rows.of[name]!);
		const layerIds = this.rows.of['layer_id']!;
		const experts = this.rows.of['expert']!;
		const end = this.firstOf[last + 1] ?? this.rows.n;
		for (let i = this.firstOf[first] ?? 0; i < end; i++) {
			const row = this.rowOf.get(layerIds[i]!);
			const expert = experts[i]!;
			if (row === undefined || expert >= this.nSlots)
				continue;
			let sum = 0;
			for (const column of columns)
				sum += column[i]!;
			tokens[row * this.nSlots + expert]! += sum;
		}
		return {nLayers: this.layers.length, nSlots: this.nSlots, tokens};
	}
}

// From rows that were counted for a filter: layer_id, expert, phase (0 to 3), tokens, weight.
export function filteredMatrix(layers: Layer[], rows: Arrays, phase: string): Matrix {
	const nSlots = Math.max(1, ...layers.map((layer) => layer.nSlots));
	const rowOf = new Map(layers.map((layer, i) => [layer.layerId, i]));
	const tokens = new Float64Array(layers.length * nSlots);
	const weight = new Float64Array(layers.length * nSlots);
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

// Routed experts only, as in view layer_balance.
export function balanceOf(matrix: Matrix, row: number, nExperts: number): Balance {
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
	const sorted = Float64Array.from(loads).sort();
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
		gini: (2 * ranked) / (n * tokens) - (n + 1) / n,
		jain: (tokens * tokens) / (n * squares),
		entropy: n > 1 ? entropy / Math.log(n) : NaN,
	};
}

export type Metric = 'tokens' | 'share' | 'times' | 'weight';

export const metrics: (readonly [Metric, string])[] = [
	['tokens', 'tokens'], ['share', 'share of the layer'], ['times', 'difference to uniform'], ['weight', 'mean weight'],
];

// What is drawn: NaN where there is nothing, as beyond the experts of a smaller layer.
export function valuesOf(matrix: Matrix, layers: Layer[], metric: Metric): Float64Array {
	const values = new Float64Array(matrix.tokens.length).fill(NaN);
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
