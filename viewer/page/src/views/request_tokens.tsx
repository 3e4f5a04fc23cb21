// SPDX-License-Identifier: MIT
//
// A request token by token: its text, and for each position and layer the experts in the order of
// the choice. A position that was reused has the experts of whoever computed it; one without a row says so.
import type {JSX} from 'preact';
import type {Arrays, Row, Sections} from '../data';
import {askArrays, askSections, objects} from '../data';
import {real} from '../format';
import type {Layer} from '../load';
import {layersOf} from '../load';
import {Choice, Help, Wait} from '../parts';
import {adjust, useAddress, useAnswer, viewAddress} from '../state';
import {Exports} from '../table';
import type {TokenText} from '../tokens';
import {describe, tokenTexts} from '../tokens';
import type {ViewProps} from '../view';

export const PAGE = 64;

const states = ['computed', 'dummy', 'draft', 'unresolved', 'rejected', 'reused'];

interface TokenRow {
	position: number;
	last: number; // of a run of positions that have no row; else the same
	pass: number; // 0: none
	source: number; // request that computed it; 0: this one
	state: string;
	experts: Map<number, {expert: number; weight: number}[]>; // by layer_id
}

function rowsOf(arrays: Arrays): TokenRow[] {
	const {position, layer_id: layerId, expert, weight, pass_id: passId, row, state, source} = arrays.of as Record<string, Float64Array>;
	const rows: TokenRow[] = [];
	let key = '';
	for (let i = 0; i < arrays.n; i++) {
		const next = `${position![i]} ${passId![i]} ${row![i]}`;
		if (next !== key) {
			key = next;
			rows.push({position: position![i]!, last: position![i]!, pass: passId![i]!, source: source![i]!, state: states[state![i]!] ?? '', experts: new Map()});
		}
		const experts = rows[rows.length - 1]!.experts;
		const list = experts.get(layerId![i]!) ?? [];
		list.push({expert: expert![i]!, weight: weight![i]!});
		experts.set(layerId![i]!, list);
	}
	return rows;
}

// Every position of the page has a line, also one of which no row is stored.
function allRows(arrays: Arrays, first: number, last: number, reuse: Row[]): TokenRow[] {
	const rows = rowsOf(arrays);
	const seen = new Set(rows.map((row) => row.position));
	for (let position = first; position <= last; position++) {
		if (seen.has(position))
			continue;
		const link = reuse.find((row) => Number(row['first_position']) <= position && position < Number(row['first_position']) + Number(row['n_positions']));
		rows.push({position, last: position, pass: 0, source: Number(link?.['source_request_id'] ?? 0), experts: new Map(),
			state: !link ? 'no row' : link['source_request_id'] === null ? 'reused, from an unknown source' : 'reused, its source has no row'});
	}
	return rows.sort((a, b) => a.position - b.position);
}

// Runs of positions that nothing tells apart take one line.
function folded(rows: TokenRow[], tokens: Map<number, number>): TokenRow[] {
	const lines: TokenRow[] = [];
	for (const row of rows) {
		const before = lines[lines.length - 1];
		if (before && before.pass === 0 && row.pass === 0 && before.state === row.state && before.source === row.source && !tokens.has(row.position) && !tokens.has(before.position))
			before.last = row.position;
		else
			lines.push({...row});
	}
	return lines;
}

function expertsText(list: {expert: number; weight: number}[] | undefined, hole: string | undefined, how: 'best' | 'all' | 'one'): string {
	if (!list)
		return hole ?? '-';
	if (how === 'best')
		return String(list[0]!.expert);
	return list.map(({expert, weight}) => (how === 'one' && weight >= 0 ? `${expert} (${real(weight, 3)})` : String(expert))).join(how === 'one' ? '  ' : ' ');
}

function Text({rows, texts, tokens, prompt}: {rows: TokenRow[]; texts: Map<number, TokenText>; tokens: Map<number, number>; prompt: number | null}): JSX.Element {
	const seen = new Set<number>();
	return (
		<p class="text" aria-label="the text of these positions">
			{rows.map((row, i) => {
				const text = texts.get(row.position);
				if (seen.has(row.position) || (text && text.part > 1 && seen.has(row.position - text.part + 1)))
					return null;
				seen.add(row.position);
				return <span key={i} class={`${row.state.startsWith('reused') ? 'reused' : ''} ${prompt !== null && row.position >= prompt ? 'made' : ''}`}
					title={`position ${row.position}, ${describe(tokens.get(row.position), text)}, ${row.state}`}>{text?.text ?? '\u00b7'}</span>;
			})}
		</p>
	);
}

function Lines({rows, layers, how, texts, tokens, holes}: {
	rows: TokenRow[];
	layers: Layer[];
	how: 'best' | 'all' | 'one';
	texts: Map<number, TokenText>;
	tokens: Map<number, number>;
	holes: Map<string, string>;
}): JSX.Element {
	const table = {
		columns: ['position', 'token_id', 'pass_id', 'state', 'source_request_id', ...layers.map((layer) => `layer_${layer.layer}`)],
		rows: rows.map((row) => [row.position, tokens.get(row.position) ?? null, row.pass || null, row.state, row.source || null,
			...layers.map((layer) => (row.experts.has(layer.layerId) ? expertsText(row.experts.get(layer.layerId), undefined, how === 'one' ? 'one' : 'all') : null))]),
		is_cut: false,
	};
	return (
		<div class="table" role="region" aria-label="experts by position" tabIndex={0}>
			<table class="experts">
				<caption>Experts by position <Exports rows={() => table} name="experts-by-position" /></caption>
				<thead><tr><th scope="col" class="n">position</th><th scope="col">token</th><th scope="col" class="n">pass</th><th scope="col">state</th>
					{layers.map((layer) => <th key={layer.layer} scope="col">L{layer.layer}</th>)}</tr></thead>
				<tbody>{folded(rows, tokens).map((row, i) => {
					const text = texts.get(row.position);
					return (
						<tr key={i} class={row.state.split(',')[0]}>
							<th scope="row" class="n">{row.position}{row.last > row.position ? ` to ${row.last}` : ''}</th>
							<td class="token" title={describe(tokens.get(row.position), text)}>{text ? <>{text.text}{text.part > 0 && <small class="quiet"> {text.part}/{text.nParts}</small>}</> : '\u00b7'}</td>
							<td class="n">{row.pass > 0 ? <a href={viewAddress('timeline', {pass: row.pass})}>{row.pass}</a> : '-'}</td>
							<td>{row.state}{row.source > 0 && <> from <a href={viewAddress('request', {request: row.source})}>request {row.source}</a></>}</td>
							{layers.map((layer) => <td key={layer.layer}>{expertsText(row.experts.get(layer.layerId), holes.get(`${row.pass} ${layer.layerId}`), how)}</td>)}
						</tr>
					);
				})}</tbody>
			</table>
		</div>
	);
}

// How far an attempt reaches.
function lengthOf(sections: Sections, attempt: number, isLatest: boolean): number {
	const ends = [
		...objects(sections['attempts']).filter((row) => row['attempt'] === attempt).map((row) => Number(row['last_position']) + 1),
		...objects(sections['reuse']).filter((row) => row['attempt'] === attempt).map((row) => Number(row['first_position']) + Number(row['n_positions'])),
		isLatest ? Number(objects(sections['summary'])[0]?.['n_positions'] ?? 0) : 0,
	].filter(Number.isFinite);
	return Math.max(0, ...ends);
}

export function Tokens({props, request, attempt, isLatest, sections}: {
	props: ViewProps;
	request: string;
	attempt: number;
	isLatest: boolean;
	sections: Sections;
}): JSX.Element {
	const state = useAddress();
	const n = lengthOf(sections, attempt, isLatest);
	const first = Math.max(0, Math.min(Number(state['first'] ?? 0) || 0, Math.max(0, n - 1)));
	const last = first + PAGE - 1;
	const answer = useAnswer(() => Promise.all([
		askArrays(props.trace, 'request_topk', {request, attempt, first, last}),
		askSections(props.trace, 'request', {request, first, last}),
	]), [props.trace, request, attempt, first]);
	const layers = layersOf(props.info.layers, Number(state['model'] ?? props.model));
	const chosen = layers.some((layer) => String(layer.layer) === state['layer']) ? state['layer'] : undefined;
	const how = chosen !== undefined ? 'one' : state['layer'] === 'all' ? 'all' : 'best';
	const shown = chosen !== undefined ? layers.filter((layer) => String(layer.layer) === chosen) : layers;
	const text = objects(sections['text'])[0];
	const areBytes = Number(text?.['n_tokens']) > 0 && Number(text?.['n_bytes']) >= 0.9 * Number(text?.['n_tokens']);
	const promptLength = objects(sections['summary'])[0]?.['prompt_positions'];
	return (
		<section aria-label="Tokens and experts">
			<h3>Tokens and their experts</h3>
			<div class="controls">
				<Choice label="layer" value={chosen ?? (how === 'all' ? 'all' : '')}
					options={[['', 'every layer, the first expert'], ['all', 'every layer, all experts'], ...layers.map((layer) => [String(layer.layer), `layer ${layer.layer}, with weights`] as const)]}
					onChange={(value) => adjust({layer: value})} />
				{n > PAGE && (
					<label><span>from position</span>
						<input type="range" min={0} max={Math.max(0, n - PAGE)} step={1} value={first} onChange={(event) => adjust({first: event.currentTarget.value})} />
						<output>{first} to {Math.min(last, n - 1)} of {n}</output>
					</label>
				)}
			</div>
			<Wait answer={answer} what="Reading">
				{([arrays, more]) => {
					const tokens = new Map(objects(more['tokens']).map((row) => [Number(row['position']), Number(row['token_id'])]));
					const texts = tokenTexts(tokens, areBytes);
					const rows = allRows(arrays, first, Math.min(last, n - 1), objects(sections['reuse']).filter((row) => row['attempt'] === attempt));
					const holes = new Map(objects(more['holes']).map((row) => [`${String(row['pass_id'])} ${String(row['layer_id'])}`, String(row['state'])]));
					if (rows.length === 0)
						return <p class="none">No position of this attempt was computed, reused or recorded.</p>;
					return (
						<>
							{tokens.size > 0 && <Text rows={rows} texts={texts} tokens={tokens} prompt={typeof promptLength === 'number' ? promptLength : null} />}
							{tokens.size > 0 && !areBytes && <Help>Numbers are the tokenizer's ids: the trace has no vocabulary.</Help>}
							<Lines rows={rows} layers={shown} how={how} texts={texts} tokens={tokens} holes={holes} />
						</>
					);
				}}
			</Wait>
		</section>
	);
}
