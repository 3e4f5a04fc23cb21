// SPDX-License-Identifier: MIT
//
// Questions to the traces and their answers: from the server, or in a single file from what lies
// inside it. An answer is rows (JSON) or arrays (bytes as they lie in memory, little-endian).

export type Value = string | number | null;

export interface Rows {
	columns: string[];
	rows: Value[][];
	is_cut: boolean;
}

export type Sections = Record<string, Rows>;

export type NumberArray = Uint8Array | Uint16Array | Uint32Array | Float32Array | Float64Array;

export interface Arrays {
	is_cut: boolean;
	n: number; // of the last one; those of a timeline differ
	header: Record<string, unknown>;
	of: Record<string, NumberArray>;
}

export interface TraceName {
	name: string;
	path: string;
	is_live: boolean;
}

export interface Session {
	version: string;
	is_redacted: boolean;
	query_limit_ms: number;
	traces: TraceName[];
	is_file?: boolean;
	left_out?: string[];
}

// Of a trace that may be growing, as viewer/state.h says.
export interface TraceState {
	state: 'still' | 'recording' | 'idle' | 'ended' | 'killed' | 'deleted' | 'replaced';
	version: string;
	last_pass_id: number;
	recording_id: number;
	n_recordings: number;
	end_reason: string | null;
}

export type Parameters = Record<string, string | number | null | undefined>;

// A single file has its answers in an element of this id, each by its question.
interface Inside {
	session: Session;
	answers: Record<string, unknown>;
}

let inside: Inside | null = null;
const insideElement = document.getElementById('moetrace-data');
if (insideElement?.textContent)
	inside = JSON.parse(insideElement.textContent) as Inside;

function bytesOf(base64: string): Uint8Array {
	const text = atob(base64);
	const bytes = new Uint8Array(text.length);
	for (let i = 0; i < text.length; i++)
		bytes[i] = text.charCodeAt(i);
	return bytes;
}

export const isFile = inside !== null;

export class AnswerError extends Error {
	constructor(message: string, readonly status: number) {
		super(message);
	}
}

export function questionText(question: string, parameters: Parameters): string {
	const named = Object.entries(parameters)
		.filter(([, value]) => value !== null && value !== undefined && value !== '')
		.map(([name, value]) => [name, String(value)]);
	return named.length ? `${question}?${new URLSearchParams(named as [string, string][])}` : question;
}

let nAsked = 0;

// Whether an answer is on its way.
export const isAsking = () => nAsked > 0;

async function fetched(path: string, init?: RequestInit): Promise<Response> {
	let response;
	nAsked++;
	try {
		response = await fetch(path, init).finally(() => nAsked--);
	} catch (error) {
		if (error instanceof DOMException && error.name === 'AbortError')
			throw error;
		throw new AnswerError('moetrace view does not answer: was it ended?', 0);
	}
	if (!response.ok) {
		const text = await response.text();
		let message = text.trim();
		try {
			message = (JSON.parse(text) as {error: string}).error;
		} catch {
			// The refusals of the server are plain text.
		}
		throw new AnswerError(message, response.status);
	}
	return response;
}

function insideAnswer(trace: number, text: string): unknown {
	const answer = inside!.answers[`${trace}/${text}`];
	if (answer === undefined)
		throw new AnswerError(
			'this is not in the single file: open the trace with moetrace view to ask for it', 404);
	return answer;
}

export async function session(): Promise<Session> {
	if (inside)
		return {...inside.session, is_file: true};
	return (await fetched('api/traces')).json() as Promise<Session>;
}

// Answers of a trace that does not change are kept, the newest ones.
const kept = new Map<string, Promise<unknown>>();
const MAX_KEPT = 60;

function once<T>(key: string, make: () => Promise<T>): Promise<T> {
	const known = kept.get(key) as Promise<T> | undefined;
	if (known)
		return known;
	const made = make();
	kept.set(key, made);
	made.catch(() => kept.delete(key));
	if (kept.size > MAX_KEPT)
		kept.delete(kept.keys().next().value!);
	return made;
}

export function forgetAnswers(): void {
	kept.clear();
}

export async function askState(trace: number): Promise<TraceState> {
	return (await fetched(`api/${trace}/state`)).json() as Promise<TraceState>;
}

// What is on its way; a large trace may take long.
const onTheirWay = new Map<AbortController, {trace: number; name: string}>();

export function stopAsking(): void {
	for (const controller of onTheirWay.keys())
		controller.abort();
}

// A question that the server works on, as viewer/progress.h says.
export interface Progress {
	question: string;
	ms: number;
	part: number;
	n_parts: number;
	share: number | null; // of a part
}

// How far the questions are that are on their way; what cannot be told is left out.
export async function askProgress(): Promise<Progress[]> {
	const ours = [...onTheirWay.values()];
	const lists = await Promise.all([...new Set(ours.map(({trace}) => trace))].map(async (trace) => {
		try {
			const {running} = await (await fetch(`api/${trace}/progress`)).json() as {running: Progress[]};
			return running.filter(({question}) => ours.some((each) => each.trace === trace && each.name === question));
		} catch {
			return [];
		}
	}));
	return lists.flat().sort((a, b) => b.ms - a.ms);
}

// The server ends what nobody waits for any more.
async function stoppable<T>(trace: number, name: string, get: (signal: AbortSignal) => Promise<T>): Promise<T> {
	const controller = new AbortController();
	onTheirWay.set(controller, {trace, name});
	try {
		return await get(controller.signal);
	} catch (error) {
		if (controller.signal.aborted)
			throw new AnswerError('Stopped. Come back to this view to ask again.', 0);
		throw error;
	} finally {
		onTheirWay.delete(controller);
	}
}

function json<T>(trace: number, question: string, parameters: Parameters): Promise<T> {
	const text = questionText(question, parameters);
	return once(`${trace}/${text}`, async () => {
		if (inside)
			return insideAnswer(trace, text) as T;
		return stoppable(trace, question, async (signal) => (await fetched(`api/${trace}/${text}`, {signal})).json() as Promise<T>);
	});
}

export const askRows = (trace: number, question: string, parameters: Parameters = {}) =>
	json<Rows>(trace, question, parameters);
export const askSections = (trace: number, question: string, parameters: Parameters = {}) =>
	json<Sections>(trace, question, parameters);

const makers: Record<string, [new (buffer: ArrayBuffer, offset: number, n: number) => NumberArray, number]> = {
	u8: [Uint8Array, 1],
	u16: [Uint16Array, 2],
	u32: [Uint32Array, 4],
	f32: [Float32Array, 4],
	f64: [Float64Array, 8],
};

export function arraysOf(buffer: ArrayBuffer): Arrays {
	const view = new DataView(buffer);
	if (buffer.byteLength < 8 || view.getUint32(0, true) !== 0x3141544d)
		throw new AnswerError('the answer is not what this page expects: reload it', 0);
	const nHeader = view.getUint32(4, true);
	const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, nHeader))) as {
		is_cut: boolean;
		arrays: [string, string, number][];
	};
	const of: Record<string, NumberArray> = {};
	let offset = 8 + nHeader;
	let n = 0;
	for (const [name, type, length] of header.arrays) {
		const [make, bytes] = makers[type]!;
		of[name] = new make(buffer, offset, length);
		offset += (length * bytes + 7) & ~7;
		n = length;
	}
	return {is_cut: header.is_cut, n, header: header as unknown as Record<string, unknown>, of};
}

export function askArrays(trace: number, question: string, parameters: Parameters = {},
	signal?: AbortSignal): Promise<Arrays> {
	const text = questionText(question, parameters);
	const get = async (until: AbortSignal) => {
		if (inside)
			return arraysOf(bytesOf(insideAnswer(trace, text) as string).buffer as ArrayBuffer);
		return arraysOf(await (await fetched(`api/${trace}/${text}`, {signal: until})).arrayBuffer());
	};
	return signal ? get(signal) : once(`${trace}/${text}`, () => stoppable(trace, question, get));
}

export async function askQuery(trace: number, sql: string, signal: AbortSignal): Promise<Rows> {
	return (await fetched(`api/${trace}/query`, {method: 'POST', body: sql, signal})).json() as Promise<Rows>;
}

export async function cookbook(): Promise<string> {
	return (await fetched('cookbook.md')).text();
}

// ---- rows by name ----

export type Row = Record<string, Value>;

// Of columns with the same name the first: who asks by name means it.
export function objectOf(columns: string[], row: Value[]): Row {
	const object: Row = {};
	columns.forEach((name, i) => {
		if (!Object.hasOwn(object, name))
			object[name] = row[i] ?? null;
	});
	return object;
}

export function objects(rows: Rows | undefined): Row[] {
	return (rows?.rows ?? []).map((row) => objectOf(rows!.columns, row));
}
