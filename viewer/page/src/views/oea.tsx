// SPDX-License-Identifier: MIT
//
// What opportunistic expert activation, or another rule, would save: active experts before and after
// for each k0, by layer and size of batches, over ranks; lost weight; time; whether rules of the
// recording did anything; and what cannot be judged, with the reason.
import type {JSX} from 'preact';
import {LinesChart} from '../chart';
import type {Parameters, Row, Rows, Sections} from '../data';
import {askRows, askSections, isFile, objects} from '../data';
import {count, percent, real} from '../format';
import {Choice, Help, Wait} from '../parts';
import {adjust, useAddress, useAnswer, viewAddress} from '../state';
import {Table} from '../table';
import type {ViewProps} from '../view';
import {unevenText} from './ranks';
import {RuleControls, ruleOf} from './oea_rule';
import type {TimeLine} from './oea_time';
import {Fit, TimeControls, TimeFacts, useTimeLine} from './oea_time';

// Layers that choose different numbers of experts are groups of their own.
function keyOf(row: Row): string {
	return `${String(row['phase'])} ${String(row['k'])}`;
}

function nameOf(row: Row, hasManyK: boolean): string {
	return `${String(row['phase'])} passes${hasManyK ? `, layers with top ${String(row['k'])}` : ''}`;
}

const numbers = (rows: Row[], column: string) => rows.map((row) => (typeof row[column] === 'number' ? (row[column] as number) : NaN));

function One({rows, name, k0, line, ruleName}: {rows: Row[]; name: string; k0: number; line: TimeLine | null; ruleName: string}): JSX.Element {
	const row = rows.find((each) => Number(each['k0']) === k0) ?? rows[rows.length - 1]!;
	const phase = String(row['phase']);
	const hasLost = typeof row['lost_weight'] === 'number';
	return (
		<section aria-label={name}>
			<h2>{name}: {count(row['batches'])} batches of {real(row['rows'], 2)} rows</h2>
			<div class="columns">
				{rows.length > 1 && (
					<div>
						<LinesChart name={`oea-${phase}-top${String(row['k'])}`} title="Active experts a batch" label={`Active experts by k0: with k0 ${k0} ${real(row['active_after'])}, as recorded ${real(row['active_before'])}`}
							plot={{
								x: numbers(rows, 'k0'), xLabel: 'k0', yLabel: 'experts', mark: Number(row['k0']),
								lines: [
									{name: 'under the rule', values: numbers(rows, 'active_after'), color: '--accent'},
									{name: 'as recorded', values: numbers(rows, 'active_before'), color: '--quiet'},
									{name: 'if choices were even', values: numbers(rows, 'uniform_after'), color: '--warn', isDashed: true},
								],
							}} />
						{hasLost && <LinesChart name={`oea-lost-${phase}-top${String(row['k'])}`} title="What it costs" label={`Lost weight by k0: with k0 ${k0} ${percent(row['lost_weight'])}`} height={170}
							plot={{
								x: numbers(rows, 'k0'), xLabel: 'k0', yLabel: '%', mark: Number(row['k0']),
								lines: [
									{name: 'lost weight of a row, mean', values: numbers(rows, 'lost_weight').map((x) => x * 100), color: '--bad'},
									{name: '95th percentile', values: numbers(rows, 'p95').map((x) => x * 100), color: '--warn', isDashed: true},
								],
							}} />}
					</div>
				)}
				<dl class="big">
					<div><dt>active experts a batch</dt><dd>{real(row['active_before'])} &rarr; {real(row['active_after'])}</dd></div>
					<div><dt>that is</dt><dd>{percent(row['ratio'], 1)} {row['ratio_low'] !== null && <small>({percent(row['ratio_low'], 1)} to {percent(row['ratio_high'], 1)} in 95 of 100 cases)</small>}</dd></div>
					<div><dt>lost weight of the router</dt><dd>{hasLost ? percent(row['lost_weight']) : <small>not known: the rows' weights, or the router's own, were not recorded</small>}</dd></div>
					<div><dt>rows that end with fewer than k experts</dt><dd>{row['below_k'] === null ? <small>not known without further candidates</small> : <>{count(row['below_k'])} <small>of {count(Number(row['batches']) * Number(row['rows']))}</small></>}</dd></div>
					{typeof row['retained'] === 'number' && <div><dt>score that rows keep</dt><dd>{percent(row['retained'])} {Number(row['truncated']) > 0 && <small>at least: {percent(row['truncated'], 1)} of the rows needed more candidates</small>}</dd></div>}
					{typeof row['max_rank_before'] === 'number' && <div><dt>experts of the rank that has most</dt><dd>{real(row['max_rank_before'])} &rarr; {real(row['max_rank_after'])}</dd></div>}
					{Number(row['padding_active']) > 0 && <div><dt>experts a batch that padding alone made active</dt><dd>{real(row['padding_active'])}</dd></div>}
					<TimeFacts line={line} row={row} />
				</dl>
			</div>
			{ruleName === 'oea' && Number(row['rows']) < 1.05 && <p class="warn">With one row a batch nothing can be shared: rows are only cut to k0.</p>}
		</section>
	);
}

function Expand({rows}: {rows: Rows}): JSX.Element {
	return (
		<>
			{objects(rows).map((row, i) => (
				<section key={i} aria-label={`${String(row['phase'])} passes`}>
					<h2>{String(row['phase'])} passes: {count(row['rows'])} rows, of {count(row['known_rows'])} the candidates are known</h2>
					{Number(row['known_rows']) === 0 ? <p class="none">No row has further candidates with their scores: hand them over with the selections to know.</p> : <dl class="inline">
						<div><dt>further experts a row</dt><dd>{real(row['further_a_row'])}</dd></div>
						<div><dt>of them active in the batch anyway</dt><dd>{real(row['free_a_row'])}</dd></div>
						<div><dt>to be loaded</dt><dd>{real(row['loading_a_row'])}</dd></div>
						<div><dt>active experts a batch</dt><dd>{real(row['active_before'])} &rarr; {real(row['active_after'])}</dd></div>
						<div><dt>rows that ran out of candidates</dt><dd>{percent(row['full_share'], 1)}</dd></div>
					</dl>}
				</section>
			))}
			<Table rows={rows} name="further experts" hide={['recording_id']} />
		</>
	);
}

function Refusals({rows}: {rows: Rows}): JSX.Element | null {
	const left = objects(rows);
	if (left.length === 0)
		return null;
	return (
		<section class="refusals" aria-label="What is in no figure">
			<h2>What is in no figure, and what to know about those that are</h2>
			<ul>{left.map((row, i) => <li key={i}>{row['batches'] !== null ? <b>{count(row['batches'])} batches: </b> : ''}{String(row['left_out']).replace(/^note: /, '')}</li>)}</ul>
			<details class="behind"><summary>As a table</summary><Table rows={rows} name="left out" hide={['recording_id']} /></details>
		</section>
	);
}

const effects: Record<string, string> = {acted: 'complete', nothing: 'error', unknown: 'partial'};

function Verdicts({verify, rules}: {verify: Rows; rules: Rows | undefined}): JSX.Element {
	const list = objects(verify).filter((row) => row['rule'] !== '-');
	return (
		<section aria-label="Rules that ran">
			<h2>Did a rule do anything?</h2>
			{list.length === 0 ? <p class="none">No recording of this trace ran under a rule: the figures above are of the router's own choice.</p> : (
				<ul>{list.map((row, i) => (
					<li key={i}><b>{String(row['rule'])}</b> <span class={`tag ${effects[String(row['effect'])] ?? ''}`}>{row['effect'] === 'nothing' ? 'did nothing' : row['effect']}</span> {String(row['why'])}</li>
				))}</ul>
			)}
			{list.length > 0 && (
				<details class="behind"><summary>Its figures</summary>
					<Table rows={verify} name="whether rules did anything" />
					{rules && rules.rows.length > 0 && <Table rows={rules} name="what the rules did" hide={['recording_id', 'model_id']} />}
				</details>
			)}
		</section>
	);
}

// By layer or size of batches at this k0: the picture, and the table behind it.
function Parts({rows, by, k0}: {rows: Rows; by: string; k0: number}): JSX.Element {
	const column = by === 'layer' ? 'layer' : 'max_batch_rows';
	const at = rows.columns.indexOf('k0');
	const mine = {...rows, rows: rows.rows.filter((row) => row[at] === k0)};
	const list = objects(mine);
	const phases = [...new Set(list.map((row) => String(row['phase'])))].filter((phase) => by === 'layer' || isOneK({...mine, rows: mine.rows.filter((row) => row[mine.columns.indexOf('phase')] === phase)}));
	return (
		<>
			{phases.map((phase) => {
				const of = list.filter((row) => row['phase'] === phase);
				return of.length > 1 && (
					<LinesChart key={phase} name={`oea-by-${by}-${phase}`} title={`Active experts by ${by}, ${phase} passes, k0 = ${k0}`} label={`Active experts by ${by}, before and under the rule: the table below has them`} height={190}
						plot={{x: numbers(of, column), xLabel: by === 'layer' ? 'layer' : 'rows of the batch, at most', yLabel: 'experts', lines: [
							{name: 'under the rule', values: numbers(of, 'active_after'), color: '--accent'}, {name: 'as recorded', values: numbers(of, 'active_before'), color: '--quiet'}]}} />
				);
			})}
			<Table rows={mine} name={`by ${by}, k0 = ${k0}`} hide={['recording_id', 'model_id', 'k0', 'k', by === 'layer' ? 'max_batch_rows' : 'layer', ...emptyColumns(mine)]}
				link={(name, row) => (name === 'layer' && row['layer'] !== null ? viewAddress('heatmap', {layer: row['layer'] as number, expert: 0, phase: 'decode'}) : undefined)} />
		</>
	);
}

function ofModel(rows: Rows, model: number): Rows {
	const at = rows.columns.indexOf('model_id');
	return {...rows, rows: rows.rows.filter((row) => row[at] === model)};
}

function isOneK(rows: Rows): boolean {
	const at = rows.columns.indexOf('k');
	return rows.rows.every((row) => row[at] === rows.rows[0]![at]);
}

// What this trace cannot tell, or was not asked for, takes no room.
const optional = ['retained', 'truncated', 'max_rank_before', 'max_rank_after'];

function emptyColumns(rows: Rows): string[] {
	return optional.filter((name) => rows.rows.every((row) => row[rows.columns.indexOf(name)] === null));
}

export function Oea(props: ViewProps): JSX.Element {
	const {trace, recording, model, holds} = props;
	const state = useAddress();
	const rule = ruleOf(state);
	const by = state['by'] ?? '';
	const isExpand = rule.name === 'expand';
	const text = rule.text === 'oea' ? null : rule.text;
	const ranks = /^\d+$/.test(state['ranks'] ?? '') ? state['ranks']! : null;
	const placement = state['ranks'] === 'recorded' ? 'recorded' : null;
	const shared: Parameters = {recording, rule: text, ranks, placement};
	const uneven = ranks && !isFile ? unevenText(props, Number(ranks)) : '';
	const ask = (more: Parameters) => () => (holds['ids'] && !isExpand && uneven === '' ? askRows(trace, 'oea', {...shared, ...more}) : null);
	const inputs = [trace, recording, rule.text, ranks, placement];
	const figures = useAnswer(ask({}), inputs);
	const parts = useAnswer<Rows>(by === '' || isExpand ? () => null : ask(by === 'layer' ? {by_layer: 1} : {by_batch: 1}), [...inputs, by]);
	const expand = useAnswer(() => (holds['ids'] && isExpand ? askRows(trace, 'oea_expand', {recording, margin: rule.margin, kmax: rule.kmax, by_layer: by === 'layer' ? 1 : null}) : null),
		[trace, recording, isExpand, rule.margin, rule.kmax, by]);
	const fit = useAnswer<Sections>(() => (holds['ids'] ? askSections(trace, 'oea_fit', {recording}) : null), [trace, recording]);
	const notes = useAnswer<Sections>(() => (holds['ids'] ? askSections(trace, 'oea_notes', {recording, ...(isExpand ? {margin: rule.margin} : {rule: text})}) : null), [trace, recording, rule.text, isExpand, rule.margin]);
	const verify = useAnswer(() => (holds['ids'] ? askRows(trace, 'oea_verify') : null), [trace]);
	const line = useTimeLine(props, fit.value);
	const allK = Math.max(0, ...props.info.layers.filter((row) => row['model_id'] === model).map((row) => Number(row['top_k']) - Number(row['n_shared_slots'] ?? 0)));
	const k0 = Math.max(1, Math.min(allK, Number(state['k0'] ?? Math.ceil(allK / 2)) || 1));
	const at = rule.name === 'budget' ? rule.n : k0;
	if (!holds['ids'])
		return <div class="view"><p class="none">This trace has counts and no ids: what another rule would do is not known. Record in mode per_token.</p></div>;
	return (
		<div class="view oea">
			<RuleControls props={props} k0={k0} k={allK} />
			{!isExpand && <TimeControls />}
			{uneven !== '' && <p class="error" role="alert">{uneven}</p>}
			{isExpand && <Wait answer={expand}>{(rows) => <Expand rows={rows} />}</Wait>}
			{!isExpand && uneven === '' && <Wait answer={figures} what="Replaying the rule over every batch">
				{(rows) => {
					const all = objects(rows).filter((row) => row['model_id'] === model);
					const groups = [...new Set(all.map(keyOf))].map((key) => all.filter((row) => keyOf(row) === key))
						.sort((a, b) => Number(b[0]!['phase'] === 'decode') - Number(a[0]!['phase'] === 'decode') || Number(b[0]!['k']) - Number(a[0]!['k']));
					const hasManyK = new Set(all.map((row) => row['k'])).size > 1;
					const one = (group: Row[]) => <One rows={group} name={nameOf(group[0]!, hasManyK)} k0={at} line={line} ruleName={rule.name} />;
					return (
						<>
							{groups.length === 0 && <p class="none">No decode batch can be judged; below is why.</p>}
							{groups.slice(0, 1).map((group) => <div key={keyOf(group[0]!)}>{one(group)}</div>)}
							{groups.slice(1).map((group) => {
								const row = group.find((each) => each['k0'] === at) ?? group[group.length - 1]!;
								return (
									<details class="behind" key={keyOf(group[0]!)}>
										<summary>{nameOf(row, hasManyK)}: {count(row['batches'])} batches, active experts {real(row['active_before'])} &rarr; {real(row['active_after'])} ({percent(row['ratio'], 1)})</summary>
										{one(group)}
									</details>
								);
							})}
							<Help>Lost weight is no accuracy: 'moetrace eval --oea k0={k0}' measures the change of cross-entropy on texts. Every layer is judged on the inputs that were recorded.</Help>
						</>
					);
				}}
			</Wait>}
			<Wait answer={verify} what="Looking for rules">{(rows) => <Verdicts verify={rows} rules={notes.value?.['rules']} />}</Wait>
			<Wait answer={notes}>{(sections) => <Refusals rows={sections['left_out']!} />}</Wait>
			{!isExpand && <Wait answer={fit} what="Fitting times">{(sections) => <Fit model={model} sections={sections} />}</Wait>}
			{!isExpand && uneven === '' && figures.value && (
				<section aria-label="All figures">
					<h2>All figures</h2>
					<Table rows={ofModel(figures.value, model)} name="every k0" hide={['recording_id', 'model_id', 'layer', 'max_batch_rows', ...(isOneK(figures.value) ? ['k'] : []), ...emptyColumns(figures.value)]} most={16} />
					{!isFile && <Choice label="by" value={by} options={[['', 'all layers and batches'], ['layer', 'layer'], ['batch', 'size of batches']]} onChange={(value) => adjust({by: value})} />}
					{by !== '' && <Wait answer={parts}>{(more) => <Parts rows={ofModel(more, model)} by={by} k0={at} />}</Wait>}
				</section>
			)}
		</div>
	);
}
