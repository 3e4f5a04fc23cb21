// SPDX-License-Identifier: MIT
//
// One request, or two side by side: its tokens, and for each token and layer its experts in the
// order of the choice; what differs from the rest; its attempts, reuse and passes.
import type {JSX} from 'preact';
import {useState} from 'preact/hooks';
import type {Arrays, Row, Rows, Sections, Value} from '../data';
import {askArrays, askRows, askSections, isFile, objects} from '../data';
import {cell, count, duration, heading, real} from '../format';
import {balanceOf, filteredMatrix, layersOf, Load} from '../load';
import {Choice, Wait} from '../parts';
import {adjust, go, useAddress, useAnswer, viewAddress} from '../state';
import {Table} from '../table';
import type {ViewProps} from '../view';

const PAGE = 64;

// ---- the list ----

function List(props: ViewProps & {like: string; chosen: string | undefined}): JSX.Element {
	const {trace, recording, like, chosen} = props;
	const state = useAddress();
	const offset = Number(state['offset'] ?? 0) || 0;
	const answer = useAnswer(() => askRows(trace, 'requests', {recording, like, offset: offset || null}), [trace, recording, like, offset]);
	return (
		<nav class="list" aria-label="Requests">
			{!isFile && (
				<label>
					<span>find</span>
					<input type="search" value={like} placeholder="number or part of an id" id="find"
						onChange={(event) => adjust({like: event.currentTarget.value, offset: null})} />
				</label>
			)}
			<Wait answer={answer} what="Looking">
				{(rows) => (
					<>
						<ul>
							{objects(rows).map((row) => (
								<li key={String(row['request_id'])}>
									<a href={viewAddress('request', {...state, request: row['request_id'] as number, first: null})}
										aria-current={String(row['request_id']) === chosen ? 'true' : undefined}>
										<b>{String(row['request_id'])}</b> <span class="id">{row['external_id'] === null ? '' : String(row['external_id']).slice(0, 40)}</span>
										<span class={`tag ${String(row['verdict'])}`}>{row['verdict']}</span>
										<span class="quiet">{count(row['n_rows'])} rows</span>
									</a>
								</li>
							))}
						</ul>
						{rows.rows.length === 0 && <p class="none">no request{like ? ` matches '${like}'` : ''}</p>}
						{offset > 0 && <button type="button" onClick={() => adjust({offset: Math.max(0, offset - 200)})}>Earlier</button>}
						{rows.is_cut && <button type="button" onClick={() => adjust({offset: offset + 200})}>Later</button>}
					</>
				)}
			</Wait>
		</nav>
	);
}

// ---- tokens ----

// Tokens below 256 everywhere are bytes, as the built-in engine has them: shown as text.
function tokenText(id: Value | undefined, areBytes: boolean): string {
	if (typeof id !== 'number')
		return '\u00b7';
	if (!areBytes)
		return String(id);
	if (id === 10)
		return '\u21b5';
	if (id === 32)
		return '\u2423';
	return id > 32 && id < 127 ? String.fromCharCode(id) : `\\x${id.toString(16)}`;
}

const states = ['computed', 'dummy', 'draft', 'unresolved', 'rejected'];

interface TokenRow {
	position: number;
	pass: number;
	state: string;
	experts: Map<number, {expert: number; weight: number}[]>; // by layer_id
}

function tokenRows(arrays: Arrays): TokenRow[] {
	const {position, layer_id: layerId, expert, weight, pass_id: passId, row, state} = arrays.of as Record<string, Float64Array>;
	const rows: TokenRow[] = [];
	let key = '';
	for (let i = 0; i < arrays.n; i++) {
		const next = `${position![i]} ${passId![i]} ${row![i]}`;
		if (next !== key) {
			key = next;
			rows.push({position: position![i]!, pass: passId![i]!, state: states[state![i]!] ?? '', experts: new Map()});
		}
		const experts = rows[rows.length - 1]!.experts;
		const list = experts.get(layerId![i]!) ?? [];
		list.push({expert: expert![i]!, weight: weight![i]!});
		experts.set(layerId![i]!, list);
	}
	return rows;
}

function Tokens({props, request, attempt, sections}: {props: ViewProps; request: string; attempt: number; sections: Sections}): JSX.Element {
	const state = useAddress();
	const summary = objects(sections['summary'])[0]!;
	const n = Math.max(Number(summary['n_positions'] ?? 0), ...objects(sections['attempts']).map((row) => Number(row['last_position']) + 1), 0);
	const first = Math.max(0, Math.min(Number(state['first'] ?? 0) || 0, Math.max(0, n - 1)));
	const last = first + PAGE - 1;
	const answer = useAnswer(() => Promise.all([
		askArrays(props.trace, 'request_topk', {request, attempt, first, last}),
		askSections(props.trace, 'request', {request, first, last}),
	]), [props.trace, request, attempt, first]);
	const model = Number(state['model'] ?? props.model);
	const layers = layersOf(props.info.layers, model);
	const chosen = state['layer'];
	const shown = chosen ? layers.filter((layer) => String(layer.layer) === chosen) : layers;
	return (
		<section aria-label="Tokens and experts">
			<h3>Tokens and their experts</h3>
			<div class="controls">
				<Choice label="layer" value={chosen ?? ''} options={[['', 'all, best expert each'], ...layers.map((layer) => [String(layer.layer), `layer ${layer.layer}`] as const)]}
					onChange={(value) => adjust({layer: value})} />
				{n > PAGE && (
					<label><span>from position</span>
						<input type="range" min={0} max={Math.max(0, n - PAGE)} step={PAGE / 2} value={first} onChange={(event) => adjust({first: event.currentTarget.value})} />
						<output>{first} to {Math.min(last, n - 1)} of {n}</output>
					</label>
				)}
			</div>
			<Wait answer={answer} what="Reading">
				{([arrays, more]) => {
					const tokens = new Map(objects(more['tokens']).map((row) => [row['position'], row['token_id']]));
					const areBytes = [...tokens.values()].every((id) => typeof id === 'number' && id < 256);
					const rows = tokenRows(arrays);
					if (rows.length === 0)
						return <p class="none">No row of these positions is stored: they were reused, lost or not recorded (see attempts and reuse).</p>;
					return (
						<>
							{tokens.size > 0 && <p class="text" aria-label="the text of these positions">{rows.map((row, i) => <span key={i} title={`position ${row.position}`}>{tokenText(tokens.get(row.position), areBytes)}</span>)}</p>}
							<div class="table" role="region" aria-label="experts by position" tabIndex={0}>
								<table class="experts">
									<thead><tr><th scope="col" class="n">position</th><th scope="col">token</th><th scope="col" class="n">pass</th><th scope="col">state</th>
										{shown.map((layer) => <th key={layer.layer} scope="col">L{layer.layer}</th>)}</tr></thead>
									<tbody>{rows.map((row, i) => (
										<tr key={i} class={row.state}>
											<th scope="row" class="n">{row.position}</th>
											<td class="token">{tokenText(tokens.get(row.position), areBytes)}</td>
											<td class="n"><a href={viewAddress('timeline', {pass: row.pass})}>{row.pass}</a></td>
											<td>{row.state}</td>
											{shown.map((layer) => <td key={layer.layer}>{expertsText(row.experts.get(layer.layerId), chosen !== undefined)}</td>)}
										</tr>
									))}</tbody>
								</table>
							</div>
						</>
					);
				}}
			</Wait>
		</section>
	);
}

function expertsText(list: {expert: number; weight: number}[] | undefined, isWhole: boolean): string {
	if (!list)
		return '-';
	return isWhole ? list.map(({expert, weight}) => (weight >= 0 ? `${expert} (${real(weight, 3)})` : String(expert))).join('  ') : String(list[0]!.expert);
}

// ---- what differs ----

function Differences({props, request}: {props: ViewProps; request: string}): JSX.Element {
	const {trace, recording, model} = props;
	const answer = useAnswer(async () => {
		const [own, windows, rows] = await Promise.all([askArrays(trace, 'load_request', {request}),
			askArrays(trace, 'load_windows', {recording, model}), askArrays(trace, 'load', {recording, model})]);
		const layers = layersOf(props.info.layers, model);
		const mine = filteredMatrix(layers, own, 'all');
		const all = new Load(layers, rows, windows.n).matrix('all', 0, Math.max(0, windows.n - 1));
		const list: Value[][] = [];
		layers.forEach((layer, row) => {
			const n = balanceOf(mine, row, layer.nExperts).tokens;
			const rest = balanceOf(all, row, layer.nExperts).tokens - n;
			for (let expert = 0; expert < layer.nExperts && n > 0; expert++) {
				const at = row * all.nSlots + expert;
				const share = mine.tokens[row * mine.nSlots + expert]! / n;
				const others = rest > 0 ? (all.tokens[at]! - mine.tokens[row * mine.nSlots + expert]!) / rest : 0;
				if (mine.tokens[row * mine.nSlots + expert]! >= 3)
					list.push([layer.layer, expert, mine.tokens[row * mine.nSlots + expert]!, share, others, others > 0 ? share / others : null]);
			}
		});
		list.sort((a, b) => Number(b[5] ?? 1e9) - Number(a[5] ?? 1e9));
		return {columns: ['layer', 'expert', 'tokens', 'share', 'rest_share', 'lift'], rows: list.slice(0, 200), is_cut: false} as Rows;
	}, [trace, recording, model, request]);
	return (
		<Wait answer={answer}>
			{(rows) => <Table rows={rows} name="what differs from the rest" caption="Experts that this request prefers, beside the rest of the recording" most={10}
				link={(column, row: Row) => (column === 'expert' ? viewAddress('heatmap', {layer: row['layer'] as number, expert: row['expert'] as number, filter: `request:${request}`}) : undefined)} />}
		</Wait>
	);
}

// ---- one request ----

function One({props, request, isSecond}: {props: ViewProps; request: string; isSecond: boolean}): JSX.Element {
	const state = useAddress();
	const answer = useAnswer(() => askSections(props.trace, 'request', {request}), [props.trace, request]);
	return (
		<article class="request" aria-label={`Request ${request}`}>
			<Wait answer={answer} what="Reading">
				{(sections) => {
					const summary = objects(sections['summary'])[0];
					if (!summary)
						return <p class="error">There is no request {request} in this trace.</p>;
					const attempts = objects(sections['attempts']);
					const latest = Math.max(0, ...attempts.map((row) => Number(row['attempt'])));
					const attempt = state['attempt'] !== undefined && !isSecond ? Number(state['attempt']) : latest;
					return (
						<>
							<h2>Request {request} <span class="id">{summary['external_id']}</span> <span class={`tag ${String(summary['verdict'])}`}>{summary['verdict']}</span></h2>
							{summary['reasons'] && <p class="warn">Why: {String(summary['reasons'])}</p>}
							<dl class="inline">
								{['prompt_positions', 'n_positions', 'n_passes', 'prefill_rows', 'decode_rows', 'queue_ns', 'duration_ns', 'end_state'].map((column) => (
									<div key={column}><dt>{heading(column)}</dt><dd>{cell(column, summary[column])}</dd></div>
								))}
								{objects(sections['attributes']).filter((row) => row['key'] !== null).map((row) => (
									<div key={String(row['key'])}><dt>{String(row['key'])}</dt><dd>{String(row['value'] ?? '-')}</dd></div>
								))}
							</dl>
							<p><a href={viewAddress('heatmap', {filter: `request:${request}`})}>Heatmap of this request</a>
								{isSecond && <>{' '}<button type="button" onClick={() => go({other: null})}>Close</button></>}</p>
							{attempts.length > 1 && !isSecond && <Choice label="attempt" value={String(attempt)} options={attempts.map((row) => [String(row['attempt']), `attempt ${String(row['attempt'])}, ${count(row['n_rows'])} rows`] as const)}
								onChange={(value) => adjust({attempt: value})} />}
							{props.holds['ids'] ? <Tokens props={props} request={request} attempt={attempt} sections={sections} /> : <p class="none">No row's experts are stored, only counts.</p>}
							{props.holds['ids'] && <Differences props={props} request={request} />}
							{objects(sections['reuse']).length > 0 && <Table rows={sections['reuse']!} name="reused positions" link={(column, row) => (column === 'source_request_id' && row['source_request_id'] !== null ? viewAddress('request', {request: row['source_request_id'] as number}) : undefined)} />}
							<Table rows={sections['slices']!} name="passes that served it" most={10} link={(column, row) => (column === 'pass_id' ? viewAddress('timeline', {pass: row['pass_id'] as number}) : undefined)}
								show={(column, value) => (column === 'begin_ns' ? duration(value) : undefined)} />
						</>
					);
				}}
			</Wait>
		</article>
	);
}

export function Requests(props: ViewProps): JSX.Element {
	const state = useAddress();
	const [other, setOther] = useState('');
	const request = state['request'];
	return (
		<div class="view requests">
			<List {...props} like={state['like'] ?? ''} chosen={request} />
			<div class="main">
				{request === undefined ? <p class="none">Choose a request.</p> : (
					<>
						{state['other'] === undefined && !isFile && (
							<form class="controls" onSubmit={(event) => {
								event.preventDefault();
								go({other});
							}}>
								<label><span>beside request</span><input value={other} inputMode="numeric" onInput={(event) => setOther(event.currentTarget.value)} size={6} /></label>
								<button type="submit" disabled={!/^\d+$/.test(other)}>Compare</button>
							</form>
						)}
						<div class={state['other'] ? 'columns' : ''}>
							<One key={request} props={props} request={request} isSecond={false} />
							{state['other'] && <One key={`o${state['other']}`} props={props} request={state['other']} isSecond={true} />}
						</div>
					</>
				)}
			</div>
		</div>
	);
}

