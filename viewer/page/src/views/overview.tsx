// SPDX-License-Identifier: MIT
//
// What was recorded, and what deserves attention, worst first: the sections of 'moetrace report',
// with links to where each can be looked at.
import type {JSX} from 'preact';
import type {Row, Rows, Sections, Value} from '../data';
import {askRows, askSections, objects} from '../data';
import {cell, count, duration, heading, percent, real} from '../format';
import {Wait} from '../parts';
import {useAnswer, viewAddress} from '../state';
import {Exports, Table} from '../table';
import type {ViewProps} from '../view';

// Where a finding can be looked at: what it speaks of is in its words.
function findingLink(text: string): string | undefined {
	const layer = /layer (\d+) of model (\d+)/.exec(text);
	const expert = /expert (\d+) gets/.exec(text);
	if (layer)
		return viewAddress('heatmap', {layer: layer[1], model: layer[2], expert: expert?.[1], metric: 'times'});
	if (/^requests /.test(text))
		return viewAddress('request', {verdict: /^requests (\w+)/.exec(text)![1]});
	if (/lost|written by nobody|sampling|cut off|no end|end before/.test(text))
		return viewAddress('timeline', {});
	if (/diagnostic/.test(text))
		return viewAddress('query', {sql: 'SELECT * FROM diagnostic ORDER BY time_ns'});
	return undefined;
}

interface Finding {
	recording: Value;
	text: string;
	target: string | undefined;
}

function attentionOf(rows: Rows): Finding[] {
	return objects(rows).map((row) => ({recording: row['recording_id']!, text: String(row['says']), target: findingLink(String(row['says']))}));
}

function slowOf(rows: Rows): Finding[] {
	return objects(rows).map((row) => ({
		recording: row['recording_id']!,
		text: `${count(row['passes'])} slow ${row['passes'] === 1 ? 'pass' : 'passes'}, more than 1.5 times the usual ${duration(row['usual_ns'])}: ${String(row['why'])}; the slowest is pass ${String(row['slowest_pass_id'])} with ${duration(row['max_duration_ns'])}`,
		target: viewAddress('timeline', {pass: row['slowest_pass_id'] as number, recording: row['recording_id'] as number}),
	}));
}

function paddingOf(rows: Rows): Finding[] {
	const list = objects(rows);
	const worst = list[0];
	return worst ? [{
		recording: worst['recording_id']!,
		text: `padding alone made ${real(worst['padding_active_experts'], 2)} experts active in a padded pass of layer ${String(worst['layer'])}, beside ${real(worst['active_experts'], 1)} that rows selected: they are loaded for nothing`,
		target: viewAddress('heatmap', {phase: 'padding', layer: worst['layer'] as number, model: worst['model_id'] as number, expert: 0}),
	}] : [];
}

// Said in any case: how far the worst layer is from even.
function balanceOf(rows: Rows): Finding[] {
	const worst = objects(rows)[0];
	return worst ? [{
		recording: worst['recording_id']!,
		text: `the least even layer is layer ${String(worst['layer'])}: its busiest expert, ${String(worst['hottest_expert'])}, gets ${real(worst['max_over_mean'], 2)} times the mean`,
		target: viewAddress('heatmap', {layer: worst['layer'] as number, expert: worst['hottest_expert'] as number, model: worst['model_id'] as number, metric: 'times'}),
	}] : [];
}

function savingOf(oea: Rows | null | undefined): Finding[] {
	const best = objects(oea ?? undefined).filter((row) => Number(row['k0']) < Number(row['k']) && row['lost_weight'] !== null && Number(row['lost_weight']) < 0.1)
		.sort((a, b) => Number(a['ratio']) - Number(b['ratio']))[0];
	return best ? [{
		recording: best['recording_id']!,
		text: `opportunistic expert activation with k0 = ${String(best['k0'])} would load ${real(best['active_after'])} instead of ${real(best['active_before'])} experts a batch in ${String(best['phase'])} passes (${percent(best['ratio'], 1)}) and lose ${percent(best['lost_weight'])} of the router's weight`,
		target: viewAddress('oea', {k0: best['k0'] as number, model: best['model_id'] as number}),
	}] : [];
}

function List({findings, isTagged}: {findings: Finding[]; isTagged: boolean}): JSX.Element {
	return (
		<ul>
			{findings.map(({recording, text, target}, i) => (
				<li key={i}>
					{isTagged && recording !== null && <><span class="tag">recording {recording}</span>{' '}</>}
					{target ? <a href={target}>{text}</a> : text}
				</li>
			))}
		</ul>
	);
}

function Attention({attention, slow, padding, others, isTagged}: {
	attention: Rows;
	slow: Rows;
	padding: Rows;
	others: Finding[];
	isTagged: boolean;
}): JSX.Element {
	const first = attentionOf(attention);
	const isFine = first.length === 1 && first[0]!.text.startsWith('nothing');
	const more = [...slowOf(slow), ...paddingOf(padding)];
	return (
		<section class={isFine && more.length === 0 ? 'attention fine' : 'attention'} aria-labelledby="attention">
			<h2 id="attention">What deserves attention</h2>
			<List findings={isFine && more.length > 0 ? [...first.map((each) => ({...each, text: each.text.replace('nothing: ', '')})), ...more] : [...first, ...more]} isTagged={isTagged} />
			{others.length > 0 && <><h3>Worth a look</h3><List findings={others} isTagged={isTagged} /></>}
			{(slow.rows.length > 0 || padding.rows.length > 0) && (
				<details class="behind"><summary>The figures of slow passes and of padding</summary>
					<Table rows={slow} name="slow" caption="Passes that took more than 1.5 times the usual" hide={['recording_id']}
						link={(column, row) => (column === 'slowest_pass_id' ? viewAddress('timeline', {pass: row['slowest_pass_id'] as number}) : undefined)} />
					<Table rows={padding} name="padding" caption="Experts that padding alone made active, in the last 1000 padded passes" hide={['recording_id']} link={layerLink} />
				</details>
			)}
		</section>
	);
}

// One recording is a list of facts, several are a table.
function Facts({rows, title, name}: {rows: Rows; title: string; name: string}): JSX.Element {
	if (rows.rows.length !== 1)
		return <Table rows={rows} name={name} caption={title} />;
	return (
		<section class="facts" aria-label={title}>
			<h2>{title} <Exports rows={() => rows} name={name} /></h2>
			<dl>
				{rows.columns.map((column, i) => {
					const value = rows.rows[0]![i]!;
					const isLoss = name === 'verdicts' && column !== 'complete_requests' && column !== 'recording_id'
						&& typeof value === 'number' && value > 0;
					return (
						<div key={column} class={isLoss ? 'bad' : ''}>
							<dt>{heading(column)}</dt>
							<dd>{cell(column, value)}</dd>
						</div>
					);
				})}
			</dl>
		</section>
	);
}

const layerLink = (column: string, row: Row) =>
	column === 'layer' || column === 'expert' || column === 'hottest_expert'
		? viewAddress('heatmap', {model: row['model_id'] as number, layer: row['layer'] as number, recording: row['recording_id'] as number,
			expert: (row['expert'] ?? row['hottest_expert'] ?? 0) as number}) : undefined;

const nothing: Rows = {columns: [], rows: [], is_cut: false};

export function Overview(props: ViewProps): JSX.Element {
	const {trace, recording, holds} = props;
	const section = (name: string) => useAnswer(() => askSections(trace, 'report', {recording, section: name}), [trace, recording]);
	const attention = section('attention');
	const slow = section('slow');
	const padding = section('padding');
	const recordings = section('recordings');
	const verdicts = section('verdicts');
	const throughput = section('throughput');
	const balance = section('balance');
	const hottest = section('hottest');
	const times = section('layer_times');
	const oea = useAnswer<Rows | null>(() => (holds['ids'] ? askRows(trace, 'oea', {recording}) : null), [trace, recording]);
	const of = (name: string) => (sections: Sections) => sections[name]!;
	return (
		<div class="view overview">
			<Wait answer={attention}>{(s) => (
				<Attention attention={of('attention')(s)} slow={slow.value?.['slow'] ?? nothing} padding={padding.value?.['padding'] ?? nothing} isTagged={props.info.recordings.length > 1}
					others={[...(balance.value ? balanceOf(balance.value['balance']!) : []), ...savingOf(oea.value)]} />
			)}</Wait>
			{(slow.error ?? padding.error) && <p class="error" role="alert">{(slow.error ?? padding.error)!.message}</p>}
			<div class="columns">
				<Wait answer={recordings}>{(s) => <Facts rows={of('recordings')(s)} name="recordings" title="What was recorded" />}</Wait>
				<Wait answer={verdicts}>{(s) => <Facts rows={of('verdicts')(s)} name="verdicts" title="Verdicts and losses" />}</Wait>
			</div>
			<Wait answer={throughput}>{(s) => <Table rows={of('throughput')(s)} name="throughput" caption="Tokens and throughput" hide={['recording_id']} />}</Wait>
			<div class="columns">
				<Wait answer={balance}>{(s) => <Table rows={of('balance')(s)} name="balance" caption="The least even layers" hide={['recording_id', 'n_experts', 'max_load']} link={layerLink} />}</Wait>
				<Wait answer={hottest}>{(s) => <Table rows={of('hottest')(s)} name="hottest" caption="The hottest experts" hide={['recording_id']} link={layerLink} />}</Wait>
			</div>
			<Wait answer={times}>{(s) => of('layer_times')(s).rows.length > 0
				? <Table rows={of('layer_times')(s)} name="layer_times" caption="Time of the layers" hide={['recording_id']} link={layerLink} /> : null}</Wait>
			<Models {...props} />
			{props.info.diagnostics.length > 0 && (
				<section>
					<h2>What the recorder noted</h2>
					<ul>{props.info.diagnostics.map((row, i) => (
						<li key={i}><span class={`tag ${String(row['severity'])}`}>{row['severity']}</span> {String(row['source'])}, at {duration(row['time_ns'])}: {String(row['message'])}
							{Number(row['n_times']) > 1 ? ` (${count(row['n_times'])} times)` : ''}</li>
					))}</ul>
				</section>
			)}
		</div>
	);
}

function Models({info}: ViewProps): JSX.Element {
	return (
		<section>
			<h2>Models</h2>
			<ul>
				{info.models.map((model) => {
					const layers = info.layers.filter((row) => row['model_id'] === model['model_id']);
					const first = layers[0];
					return (
						<li key={String(model['model_id'])}>
							<b>{String(model['name'])}</b>{model['architecture'] ? ` (${String(model['architecture'])})` : ''}, {String(model['kind'])}: {layers.length} layers with experts
							{first ? `, ${count(first['n_experts'])} experts, top ${count(first['top_k'])}${first['scoring'] ? `, ${String(first['scoring'])}` : ''}` : ''}
						</li>
					);
				})}
			</ul>
			{info.session.length > 0 && <p class="help">Recorded by {info.session.filter((row) => row['value'] !== null && ['engine_name', 'engine_version', 'moetrace_version', 'session_name'].includes(String(row['key'])))
				.map((row) => `${heading(String(row['key']))} ${String(row['value'])}`).join(', ') || 'a program that did not name itself'}.</p>}
		</section>
	);
}
