// SPDX-License-Identifier: MIT
//
// One request, or two side by side: its tokens, and for each token and layer its experts in the
// order of the choice; what differs from the rest; its attempts, reuse and passes.
import type {JSX} from 'preact';
import {useEffect, useState} from 'preact/hooks';
import type {Row, Rows, Value} from '../data';
import {askArrays, askRows, askSections, isFile, objects} from '../data';
import {cell, count, duration, heading, percent} from '../format';
import {balanceOf, filteredMatrix, layersOf, Load} from '../load';
import {Choice, Help, Wait} from '../parts';
import {adjust, go, useAddress, useAnswer, viewAddress} from '../state';
import {Table} from '../table';
import type {ViewProps} from '../view';
import {Tokens} from './request_tokens';

// ---- the list ----

const LIST = 200;

// Of the pages before @beyond, which has nothing, the last that has something.
async function lastOffset(hasRows: (offset: number) => Promise<boolean>, beyond: number): Promise<number> {
	let low = 0, high = Math.ceil(beyond / LIST);
	while (high - low > 1) {
		const middle = Math.floor((low + high) / 2);
		if (await hasRows(middle * LIST))
			low = middle;
		else
			high = middle;
	}
	return low * LIST;
}

function List(props: ViewProps & {like: string; chosen: string | undefined}): JSX.Element {
	const {trace, recording, like, chosen} = props;
	const state = useAddress();
	const offset = isFile ? 0 : Number(state['offset'] ?? 0);
	const verdict = state['verdict'] ?? '';
	const answer = useAnswer(() => askRows(trace, 'requests', {recording, like, verdict, offset: offset || null}), [trace, recording, like, verdict, offset]);
	const isBeyond = offset > 0 && !answer.isLate && answer.value?.rows.length === 0;
	useEffect(() => {
		let isCurrent = true;
		if (isBeyond)
			void lastOffset(async (at) => (await askRows(trace, 'requests', {recording, like, verdict, offset: at || null})).rows.length > 0, offset)
				.then((at) => isCurrent && adjust({offset: at || null}), () => undefined);
		return () => {
			isCurrent = false;
		};
	}, [isBeyond, offset]);
	return (
		<nav class="list" aria-label="Requests">
			{!isFile && (
				<label>
					<span>find</span>
					<input type="search" value={like} placeholder="number or part of an id" id="find"
						onChange={(event) => adjust({like: event.currentTarget.value, offset: null})} />
				</label>
			)}
			{!isFile && <Choice label="verdict" value={verdict} options={[['', 'any'], ['complete', 'complete'], ['partial', 'partial'], ['unfinished', 'unfinished']]} onChange={(value) => adjust({verdict: value, offset: null})} />}
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
						{rows.rows.length === 0 && <p class="none">no request{like ? ` matches '${like}'` : ''}{verdict ? ` is ${verdict}` : ''}</p>}
						{offset > 0 && <button type="button" onClick={() => adjust({offset: Math.max(0, offset - LIST)})}>Earlier</button>}
						{rows.is_cut && <button type="button" onClick={() => adjust({offset: offset + LIST})}>Later</button>}
					</>
				)}
			</Wait>
		</nav>
	);
}

// ---- what differs ----

function Differences({props, request}: {props: ViewProps; request: string}): JSX.Element {
	const {trace, recording, model} = props;
	const answer = useAnswer(async () => {
		const [own, windows, rows] = await Promise.all([askArrays(trace, 'load_request', {recording, model, request}),
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
			{(rows) => <><Table rows={rows} name="what differs from the rest" caption="Experts that this request prefers, beside the rest of the recording" most={10}
				link={(column, row: Row) => (column === 'expert' ? viewAddress('heatmap', {layer: row['layer'] as number, expert: row['expert'] as number, filter: `request:${request}`}) : undefined)} />
				<Help>Lift is the request's share of the layer's selections over that of all other rows.</Help></>}
		</Wait>
	);
}

// ---- attempts, and two requests ----

const shares = (column: string, value: Value) => (['same_rows', 'same_choices', 'reordered_rows', 'overlap', 'chance_overlap', 'jaccard', 'cosine'].includes(column) ? percent(value, 1) : column === 'layer' && value === null ? 'all' : undefined);

function Attempts({props, request}: {props: ViewProps; request: string}): JSX.Element | null {
	const state = useAddress();
	const isOpen = state['attempts'] === '1' && !isFile;
	const answer = useAnswer(() => (isOpen ? askRows(props.trace, 'attempts', {recording: props.recording, request}) : null), [props.trace, props.recording, request, isOpen]);
	return isFile ? null : (
		<details class="behind" open={isOpen} onToggle={(event) => adjust({attempts: event.currentTarget.open ? '1' : null})}>
			<summary>Did its attempts choose the same experts?</summary>
			{isOpen && <Wait answer={answer} what="Comparing">{(rows) => <Table rows={rows} name="attempts beside the last one" hide={['model_id']} show={shares} />}</Wait>}
		</details>
	);
}

// Of two requests that are side by side.
function Similar({props, request, other}: {props: ViewProps; request: string; other: string}): JSX.Element {
	const answer = useAnswer(() => (props.holds['ids'] && !isFile ? askRows(props.trace, 'similarity', {request, other}) : null), [props.trace, request, other]);
	return (
		<Wait answer={answer} what="Comparing">
			{(rows) => {
				const all = objects(rows).find((row) => row['layer'] === null);
				return (
					<section aria-label="How alike they choose">
						{all && typeof all['overlap'] === 'number' && <p>Of what requests {request} and {other} choose, <b>{percent(all['overlap'], 1)}</b> goes to the same experts, as often; by chance it would be {percent(all['chance_overlap'], 1)}.</p>}
						<details class="behind"><summary>By layer</summary><Table rows={rows} name="how alike they choose" hide={['model_id']} show={shares} /></details>
					</section>
				);
			}}
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
							{String(summary['recording_id']) !== String(props.recording) && <p class="warn">It belongs to recording {String(summary['recording_id'])}, not to {props.recording}, which is chosen.</p>}
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
							{attempts.length > 1 && <Attempts props={props} request={request} />}
							{props.holds['ids'] ? <Tokens props={props} request={request} attempt={attempt} isLatest={attempt === latest} sections={sections} /> : <p class="none">No row's experts are stored, only counts.</p>}
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
						{state['other'] && <Similar props={props} request={request} other={state['other']} />}
						<div class={state['other'] ? 'columns pair' : ''}>
							<One key={request} props={props} request={request} isSecond={false} />
							{state['other'] && <One key={`o${state['other']}`} props={props} request={state['other']} isSecond={true} />}
						</div>
					</>
				)}
			</div>
		</div>
	);
}

