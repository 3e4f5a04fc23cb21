// SPDX-License-Identifier: MIT
//
// What is shown is in the address, all of it: a reload or a link shows the same again. Views read and
// write it by name; a name that is absent, or whose value means nothing, has its default.
import {useEffect, useRef, useState} from 'preact/hooks';
import {usable} from './address';

export type State = Record<string, string>;

function read(): State {
	return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

let asked = read(); // as the address has it
let state = usable(asked);
const listeners = new Set<() => void>();

function tell(): void {
	for (const listener of listeners)
		listener();
}

function take(next: State): void {
	asked = next;
	state = usable(next);
	tell();
}

// Browsers take no more than some hundred changes of an address in half a minute; what is beyond is
// written a little later.
const MAX_WRITES = 60, WRITE_MS = 1000;
let nWrites = MAX_WRITES; // that are left
let counted = 0;
let later: ReturnType<typeof setTimeout> | undefined;

function writeNow(): void {
	clearTimeout(later);
	later = undefined;
	history.replaceState(null, '', addressOf(asked));
}

function write(): void {
	const now = performance.now();
	nWrites = Math.min(MAX_WRITES, nWrites + (now - counted) / WRITE_MS);
	counted = now;
	if (nWrites >= 1) {
		nWrites--;
		writeNow();
	} else
		later ??= setTimeout(() => {
			later = undefined;
			write();
		}, WRITE_MS);
}

window.addEventListener('hashchange', () => {
	clearTimeout(later);
	later = undefined;
	take(read());
});

export function addressOf(next: State): string {
	return '#' + new URLSearchParams(Object.entries(next).filter(([, value]) => value !== ''));
}

export type Change = Record<string, string | number | null | undefined>;

function changed(change: Change): State {
	const next = {...asked};
	for (const [name, value] of Object.entries(change)) {
		if (value === null || value === undefined || value === '')
			delete next[name];
		else
			next[name] = String(value);
	}
	return next;
}

// A step that "back" returns from.
export function go(change: Change): void {
	if (later !== undefined)
		writeNow();
	location.hash = addressOf(changed(change));
}

// A change of the present step: sliders, zooming, cursors.
export function adjust(change: Change): void {
	take(changed(change));
	write();
}

// Another view keeps what all views share.
const shared = ['trace', 'recording', 'model', 'paused'];

export function viewAddress(view: string, change: Change = {}): string {
	const next: State = {view};
	for (const name of shared)
		if (state[name] !== undefined)
			next[name] = state[name]!;
	for (const [name, value] of Object.entries(change)) {
		if (value === null || value === undefined || value === '')
			delete next[name];
		else
			next[name] = String(value);
	}
	return addressOf(next);
}

export function current(): State {
	return state;
}

// With what means nothing.
export const asWritten = (): State => asked;

export function useAddress(): State {
	const [seen, see] = useState(state);
	useEffect(() => {
		const listener = () => see(state);
		listeners.add(listener);
		listener();
		return () => {
			listeners.delete(listener);
		};
	}, []);
	return seen;
}

// ---- an answer that arrives some time ----

export interface Answer<T> {
	value?: T;
	error?: Error;
	isLate: boolean;
}

let nRefreshes = 0;
const refreshed = new Set<() => void>();

// What is shown may have changed: ask again.
export function refresh(): void {
	nRefreshes++;
	for (const listener of refreshed)
		listener();
}

// Grows with each refresh.
export function useRefreshes(): number {
	const [n, set] = useState(nRefreshes);
	useEffect(() => {
		const listener = () => set(nRefreshes);
		refreshed.add(listener);
		listener();
		return () => {
			refreshed.delete(listener);
		};
	}, []);
	return n;
}

const isSame = (a: unknown[] | null, b: unknown[]) => a !== null && a.length === b.length && a.every((each, i) => Object.is(each, b[i]));

// While a new answer is on its way the old one stays, so that nothing flickers; where the same is asked
// again it also stays when there is no new one.
export function useAnswer<T>(ask: () => Promise<T> | null, inputs: unknown[]): Answer<T> {
	const [answer, set] = useState<Answer<T>>({isLate: true});
	const before = useRef<unknown[] | null>(null);
	const refreshes = useRefreshes();
	useEffect(() => {
		let isCurrent = true;
		const isAgain = isSame(before.current, inputs);
		before.current = inputs;
		const answered = ask();
		if (!answered) {
			set({isLate: false});
			return;
		}
		if (!isAgain)
			set((old) => ({value: old.value, isLate: true}));
		answered.then(
			(value) => isCurrent && set({value, isLate: false}),
			(error: Error) => isCurrent && set((old) => (isAgain && old.value !== undefined ? {value: old.value, isLate: false} : {error, isLate: false})));
		return () => {
			isCurrent = false;
		};
	}, [...inputs, refreshes]);
	return answer;
}
