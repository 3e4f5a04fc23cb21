// SPDX-License-Identifier: MIT
//
// What the heatmap shows of some windows: counted for the view, and, while it plays, for each frame. Both
// are made by the same function; a frame is counted in the same room as the one before and has of the balance
// what is drawn, the view's own is kept and has all of it.
import type {Arrays} from '../data';
import type {Scale, Side} from '../heat';
import {sideOf} from '../heat';
import type {Balance, Layer, Load, Matrix, Metric, Placement, Room} from '../load';
import {balanceOf, byRank, filteredMatrix, orderByRank, permuted, valuesOf} from '../load';
import type {Windows} from './heatmap_time';

export interface Source {
	load: Load | null; // all rows, by window
	windows: Arrays;
	layers: Layer[];
	map: Placement | null; // as recorded
}

// What of the windows is shown, and how; all of it from the address.
export interface Shown {
	source: Source;
	phase: string;
	metric: Metric;
	order: string;
	placement: Placement | null;
	isRanks: boolean;
	isByBalance: boolean;
	beside: string;
}

export interface Frame {
	matrix: Matrix;
	layers: Layer[];
	values: Float64Array;
	balance: Balance[];
	order: Int32Array[] | null;
	breaks: number[][] | null;
	side: Side;
}

function ordersOf(matrix: Matrix, layers: Layer[]): Int32Array[] {
	return layers.map((layer, row) => {
		const order = Int32Array.from({length: matrix.nSlots}, (_, i) => i);
		const tokens = (expert: number) => (expert < layer.nSlots ? matrix.tokens[row * matrix.nSlots + expert]! : -1);
		return order.sort((a, b) => tokens(b) - tokens(a) || a - b);
	});
}

// @filtered: the rows that a filter leaves of these windows; null: there is none.
export function frameOf(shown: Shown, {first, last}: Windows, filtered: Arrays | null, room?: Room): Frame {
	const {source, phase, placement, isRanks} = shown;
	const plain = filtered ? filteredMatrix(source.layers, filtered, phase, room) : source.load!.matrix(phase, first, last, room);
	let {matrix, layers} = isRanks ? byRank(plain, source.layers, placement!) : {matrix: plain, layers: source.layers};
	if (shown.isByBalance) {
		const ratio = layers.map((layer, row) => balanceOf(matrix, row, layer.nExperts, false).maxOverMean || 0);
		({matrix, layers} = permuted(matrix, layers, layers.map((_, row) => row).sort((a, b) => ratio[b]! - ratio[a]! || a - b)));
	}
	const isWhole = !room || ['gini', 'entropy'].includes(shown.beside);
	const balance = layers.map((layer, row) => balanceOf(matrix, row, layer.nExperts, isWhole));
	const columns = shown.order === 'load' ? {order: ordersOf(matrix, layers), breaks: null}
		: shown.order === 'rank' && !isRanks ? orderByRank(matrix, layers, placement!) : {order: null, breaks: null};
	return {matrix, layers, balance, ...columns, values: valuesOf(matrix, layers, shown.metric, room), side: sideOf(shown.beside, balance, layers)};
}

export function widest(a: Scale | null, b: Scale): Scale {
	return a ? {...b, from: Math.min(a.from, b.from), to: Math.max(a.to, b.to)} : b;
}

// ---- rows that a filter leaves, asked for before they are shown ----

const N_AHEAD = 4, N_KEPT = 64;

export class Ahead {
	private readonly kept = new Map<number, Arrays | 'asked' | 'failed'>();

	constructor(readonly what: string, private readonly ask: (first: number) => Promise<Arrays>) {}

	at(first: number): Arrays | null {
		const rows = this.kept.get(first);
		return rows && typeof rows !== 'string' ? rows : null;
	}

	// Whether what there is to wait for is here; asks for it, and for what comes after it.
	isReady(first: number, n: number): boolean {
		for (let i = 0; i < Math.min(N_AHEAD, n); i++)
			this.want((first + i) % n);
		return this.kept.get(first) !== 'asked';
	}

	private want(first: number): void {
		if (this.kept.has(first))
			return;
		for (const old of this.kept.keys())
			if (this.kept.size >= N_KEPT)
				this.kept.delete(old);
		this.kept.set(first, 'asked');
		this.ask(first).then((rows) => this.kept.set(first, rows), () => this.kept.set(first, 'failed'));
	}
}
