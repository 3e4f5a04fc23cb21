// SPDX-License-Identifier: MIT
//
// What was recorded, and what deserves attention, worst first: the sections of 'moetrace report',
// with links to where each can be looked at.
import type {JSX} from 'preact';
import type {Row, Rows, Sections} from '../data';
import {askRows, askSections, objects} from '../data';
import {cell, count, duration, heading, real} from '../format';
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
		return viewAddress('request', {});
	if (/lost|written by nobody|sampling/.test(text))
		return viewAddress('timeline', {});
	if (/diagnostic/.test(text))
		return viewAddress('query', {sql: 'SELECT * FROM diagnostic ORDER BY time_ns'});
	return undefined;
}

function Attention({rows}: {rows: Rows}): JSX.Element {
	const findings = objects(rows);
	const isFine = findings.length === 1 && String(findings[0]!['says']).startsWith('nothing');
	return (
		<section class={isFine ? 'attention fine' : 'attention'} aria-labelledby="attention">
			<h2 id="attention">What deserves attention</h2>
			<ul>
				{findings.map((finding, i) => {
					const text = String(finding['says']);
					const target = findingLink(text);
					return (
						<li key={i}>
							{finding['recording_id'] !== null && <span class="tag">recording {finding['recording_id']}</span>}{' '}
							{target ? <a href={target}>{text}</a> : text}
						</li>
					);
				})}
			</ul>
		</section>
	);
}

// One recording is a list of facts, several are a table.
function Facts({rows, title, name}: {rows: Rows; title: string; name: string}): JSX.Element {
	if (rows.rows.length !== 1)
		return <Table rows={rows} name={name} caption={title} />;
	return (
		<section class="facts" aria-label={title}>
			<h2>{title} <Exports rows={rows} name={name} /></h2>
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
			expert: (row['expert'] ?? row['hottest_expert']) as number}) : undefined;

function Saving({oea}: {oea: Rows}): JSX.Element | null {
	const best = objects(oea).filter((row) => Number(row['k0']) < Number(row['k']) && Number(row['lost_weight']) < 0.1)
		.sort((a, b) => Number(a['ratio']) - Number(b['ratio']))[0];
	if (!best)
		return null;
	return (
		<p>
			<a href={viewAddress('oea', {k0: best['k0'] as number})}>Opportunistic expert activation</a> with k0 = {best['k0']} would load{' '}
			{real(best['active_after'])} instead of {real(best['active_before'])} experts a batch in {String(best['phase'])} passes
			({real(Number(best['ratio']) * 100, 1)} %), and lose {real(Number(best['lost_weight']) * 100, 2)} % of the router's weight.
		</p>
	);
}

export function Overview(props: ViewProps): JSX.Element {
	const {trace, recording, holds} = props;
	const section = (name: string) => useAnswer(() => askSections(trace, 'report', {recording, section: name}), [trace, recording]);
	const attention = section('attention');
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
			<Wait answer={attention}>{(s) => <Attention rows={of('attention')(s)} />}</Wait>
			{oea.value && <Saving oea={oea.value} />}
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
				? <Table rows={of('layer_times')(s)} name="layer_times" caption="Time of the layers, in the last 1000 passes" hide={['recording_id']} link={layerLink} /> : null}</Wait>
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
