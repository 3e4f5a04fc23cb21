// SPDX-License-Identifier: MIT
//
// Which values the names of an address may have. An address may hold anything: what is not known is
// left out of what views read, so that they show the usual, and Unusable says what was left out.

export const phaseChoices = [['all', 'all phases'], ['prefill', 'prefill'], ['decode', 'decode'], ['verify', 'verify'],
	['other', 'draft, dummy'], ['padding', 'padding alone']] as const;

// More than any table of ranks could show.
export const MAX_RANKS = 1024;

type Check = (value: string, state: Record<string, string>) => boolean;

const among = (...values: string[]): Check => (value) => values.includes(value);
const isWhole: Check = (value) => /^\d{1,9}$/.test(value);
const isPositive: Check = (value) => isWhole(value, {}) && Number(value) > 0;
const isNumber: Check = (value) => /^-?\d{1,20}(\.\d+)?$/.test(value);
const areRanks: Check = (value) => isPositive(value, {}) && Number(value) <= MAX_RANKS;
const isOn = among('1');

const isRange: Check = (value) => {
	const ends = value.split('~');
	return ends.length === 2 && ends.every((end) => isNumber(end, {})) && Number(ends[1]) > Number(ends[0]);
};

// A filter by an attribute is attribute:["key","value"]; the pair, or null.
export function attributeOf(filter: string): [string, string] | null {
	try {
		const pair = JSON.parse(filter.slice(10)) as unknown;
		return filter.startsWith('attribute:') && Array.isArray(pair) && pair.length === 2 ? [String(pair[0]), String(pair[1])] : null;
	} catch {
		return null;
	}
}

const isFilter: Check = (value) => /^request:\d{1,15}$/.test(value) || attributeOf(value) !== null;

// What people type into boxes is no business of this list: it is judged where it is used.
const everywhere: Record<string, Check> = {trace: isWhole, recording: isWhole, model: isWhole, paused: isOn};

const checks: Record<string, Record<string, Check>> = {
	heatmap: {
		phase: among(...phaseChoices.map(([key]) => key)), metric: (value, state) => among('tokens', 'share', 'times')(value, state) || (value === 'weight' && state['columns'] !== 'rank'),
		columns: among('expert', 'rank'), order: among('id', 'load', 'rank'), rows: among('layer', 'balance'), beside: among('ratio', 'gini', 'jain', 'entropy', 'dead'),
		scale: among('linear', 'log', 'clip'), filter: isFilter, window: isWhole, span: isPositive, ranks: areRanks, layer: isWhole, expert: isWhole, table: isOn, part: isRange,
	},
	timeline: {range: isRange, sel: isRange, at: isNumber, pass: isWhole, kernel_id: isWhole, node: isWhole, table: isOn},
	request: {
		request: isWhole, other: isWhole, offset: isWhole, first: isWhole, attempt: isWhole, attempts: isOn, verdict: among('complete', 'partial', 'unfinished'),
		layer: (value, state) => value === 'all' || isWhole(value, state),
	},
	oea: {
		rule: among('oea', 'pruned', 'budget', 'expand'), by: among('layer', 'batch'), k0: isPositive, time: among('fit', 'given', 'bandwidth'),
		by_order: among('choice', 'weight'), groups: among('kept', 'any'), ranks: (value, state) => value === 'recorded' || areRanks(value, state),
	},
	ranks: {ranks: areRanks, phase: among('decode', 'prefill', 'mixed', 'all'), placement: among('recorded', 'eplb', 'file'), redundant: isWhole},
	compare: {
		with: isWhole, with_recording: isWhole, with_model: isWhole, phase: among('all', 'prefill', 'decode'), show: among('change', 'first', 'second'),
		layer: isWhole, expert: isWhole,
	},
	query: {as: among('table', 'lines', 'bars', 'heatmap')},
	overview: {},
};

export const isView = (name: string): boolean => Object.hasOwn(checks, name);

// The names of a state whose values mean nothing.
export function unusable(state: Record<string, string>): string[] {
	const own = checks[isView(state['view'] ?? '') ? state['view']! : 'overview']!;
	const of = (name: string) => (Object.hasOwn(own, name) ? own[name] : Object.hasOwn(everywhere, name) ? everywhere[name] : undefined);
	return Object.keys(state).filter((name) => state[name] !== '' && (name === 'view' ? !isView(state[name]!) : of(name)?.(state[name]!, state) === false));
}

export function usable(state: Record<string, string>): Record<string, string> {
	const out = new Set(unusable(state));
	return out.size === 0 ? state : Object.fromEntries(Object.entries(state).filter(([name]) => !out.has(name)));
}
