// SPDX-License-Identifier: MIT
//
// What stands below the picture of a timeline: what lies behind a bar, figures of what is selected,
// the picture as tables, and what a trace without operations, ranges or power is missing.
import type {JSX} from 'preact';
import type {Strip, Throttle} from '../bars';
import {firstIn, hitOf} from '../bars';
import {laneName, layoutOf} from '../bars_draw';
import type {NumberArray, Row, Rows, Sections, Value} from '../data';
import {askRows, askSections, objects} from '../data';
import {cell, duration, heading} from '../format';
import {Wait} from '../parts';
import {adjust, useAnswer, viewAddress} from '../state';
import {Table} from '../table';
import type {ViewProps} from '../view';
import type {Range} from './timeline_picture';

export function Pass({trace, recording, pass, holds}: ViewProps & {pass: string}): JSX.Element {
	const answer = useAnswer(() => askSections(trace, 'pass', {recording, pass}), [trace, recording, pass]);
	return (
		<section aria-label={`Pass ${pass}`}>
			<h2>Pass {pass} <button type="button" onClick={() => adjust({pass: null})}>Close</button></h2>
			<Wait answer={answer} what="Reading">
				{(sections) => {
					const summary = objects(sections['summary'])[0];
					if (!summary)
						return <p class="error">There is no pass {pass} in recording {recording}.</p>;
					return (
						<>
							<dl class="inline">{Object.entries(summary).filter(([, value]) => value !== null).map(([column, value]) => <div key={column}><dt>{heading(column)}</dt><dd>{cell(column, value)}</dd></div>)}</dl>
							<div class="columns">
								<Table rows={sections['slices']!} name="whom it served" most={12} link={(column, row: Row) => (column === 'request_id' && row['request_id'] !== null ? viewAddress('request', {request: row['request_id'] as number}) : undefined)} />
								<Table rows={sections['layers']!} name="its layers" most={12} link={(column, row: Row) => (column === 'layer' && holds['ids'] ? viewAddress('heatmap', {layer: row['layer'] as number, expert: 0}) : undefined)} />
							</div>
						</>
					);
				}}
			</Wait>
		</section>
	);
}

export function Kernel({trace, id, node}: ViewProps & {id: string; node: string | undefined}): JSX.Element {
	const answer = useAnswer(() => (node ? askRows(trace, 'graph_node', {graph_launch_id: id, node: Number(node) - 1}) : askRows(trace, 'kernel', {kernel_id: id})), [trace, id, node]);
	const title = node ? `Node ${Number(node) - 1} of launch ${id}` : `Operation ${id}`;
	return (
		<section aria-label="Operation">
			<h2>{title} <button type="button" onClick={() => adjust({kernel_id: null, node: null})}>Close</button></h2>
			<Wait answer={answer} what="Reading">
				{(rows) => (rows.rows.length === 0 ? <p class="error">There is no such operation in this trace.</p> : (
					<dl class="inline">{Object.entries(objects(rows)[0]!).filter(([, value]) => value !== null).map(([column, value]) => (
						<div key={column}><dt>{heading(column)}</dt><dd>{column === 'pass_id' ? <a href={viewAddress('timeline', {pass: value})}>{value}</a> : cell(column, value)}</dd></div>
					))}</dl>
				))}
			</Wait>
		</section>
	);
}

// ---- figures of what is selected ----

const parts: [string, string][] = [
	['passes', 'passes in the selection'], ['roles', 'roles of operations in the selection'], ['kernels', 'operations in the selection'],
	['layers', 'layers in the selection'], ['ranges', 'ranges in the selection'], ['energy', 'energy in the selection'], ['gaps', 'losses in the selection'],
];

export function Selection({trace, recording, range, start}: ViewProps & {range: Range; start: number}): JSX.Element {
	const answer = useAnswer<Sections>(() => askSections(trace, 'selection', {recording, from: Math.floor(range.from), until: Math.ceil(range.until)}), [trace, recording, range.from, range.until]);
	return (
		<section class="selection" aria-label="What is selected">
			<h2>{duration(range.until - range.from)} from {duration(range.from - start)} on <button type="button" onClick={() => adjust({sel: null})}>Close</button></h2>
			<p class="help">Of everything that lies in the selection at least in part, in its full length. Percentiles are of the nearest rank.</p>
			<Wait answer={answer}>
				{(sections) => (
					<>
						{parts.map(([section, name]) => sections[section] && (sections[section].rows.length > 0 || section === 'passes') && <Table key={section} rows={sections[section]} name={name} most={20} />)}
					</>
				)}
			</Wait>
		</section>
	);
}

// ---- the picture as tables ----

const MAX_BARS = 5000;

function barRows(strip: Strip, range: Range, hidden: string): Rows {
	const rows: Value[][] = [];
	const {start, end} = strip.bars.of as Record<string, NumberArray>;
	let isCut = false;
	for (const lane of layoutOf(strip, hidden).lanes) {
		if (lane.track === undefined)
			continue;
		const last = strip.firstOf[lane.track + 1]!;
		for (let i = firstIn(start!, strip.firstOf[lane.track]!, last, range.from); i < last && start![i]! <= range.until; i++) {
			if (end![i]! < range.from)
				continue;
			isCut = rows.length >= MAX_BARS;
			if (isCut)
				break;
			const hit = hitOf(strip, lane.track, i);
			rows.push([laneName(strip, lane), hit.name || null, hit.kind, hit.layer >= 0 ? hit.layer : null, strip.tracks[lane.track]!.type === 'passes' && hit.count === 1 ? hit.id : null,
				hit.count, hit.start - strip.start, hit.end - hit.start]);
		}
	}
	return {columns: ['lane', 'name', 'kind', 'layer', 'pass_id', 'n_bars', 'start_ns', 'duration_ns'], rows, is_cut: isCut};
}

function counterRows(strip: Strip, range: Range): Rows {
	const {time, low, high} = strip.bars.of as Record<string, NumberArray>;
	return {
		columns: ['counter', 'unit', 'least', 'most', 'last', 'limit'],
		rows: strip.counters.map((counter, i) => {
			const of: Value[] = [counter.name, counter.unit, null, null, null, counter.limit > 0 ? counter.limit : null];
			for (let j = strip.pointOf[i]!; j < strip.pointOf[i + 1]!; j++) {
				if (time![j]! < range.from || time![j]! > range.until)
					continue;
				of[2] = Math.min(low![j]!, (of[2] as number | null) ?? Infinity);
				of[3] = Math.max(high![j]!, (of[3] as number | null) ?? -Infinity);
				of[4] = high![j]!;
			}
			return of;
		}),
		is_cut: false,
	};
}

function throttleRows(strip: Strip, range: Range, throttles: Throttle[]): Rows {
	return {
		columns: ['device', 'held_down_by', 'start_ns', 'duration_ns', 'n_readings'], is_cut: false,
		rows: throttles.filter(({start, end}) => start <= range.until && end >= range.from)
			.map(({device, reason, start, end, nReadings}) => [device, reason, start - strip.start, end - start, nReadings]),
	};
}

export function Tables({strip, throttles, range, hidden, isOpen}: {strip: Strip; throttles: Throttle[]; range: Range; hidden: string; isOpen: boolean}): JSX.Element {
	return (
		<details class="behind" open={isOpen} onToggle={(event) => adjust({table: event.currentTarget.open ? '1' : null})}>
			<summary>This picture as tables</summary>
			{isOpen && (
				<>
					<Table rows={barRows(strip, range, hidden)} name="bars of the picture" most={50}
						link={(column, row) => (column === 'pass_id' && row['pass_id'] !== null ? viewAddress('timeline', {pass: row['pass_id']}) : undefined)} />
					<Table rows={counterRows(strip, range)} name="counters of the picture" />
					{throttles.length > 0 && <Table rows={throttleRows(strip, range, throttles)} name="clocks held down" />}
				</>
			)}
		</details>
	);
}

// ---- what is missing, and why ----

const wanted: {type: string; what: string; sources: string[]; how: string}[] = [
	{type: 'kernels', what: 'operations', sources: ['cupti'],
		how: 'Kernels of a GPU come with the collector cupti, times that a runtime measures itself with moetrace_pass_kernels(); the built-in engine does the latter with run --kernels'},
	{type: 'power', what: 'power', sources: ['nvml', 'rapl'], how: 'It comes with the collector nvml for GPUs, rapl for processors'},
	{type: 'ranges', what: 'ranges', sources: [], how: 'A runtime says them with moetrace_range_push() and moetrace_range_pop()'},
];

function reasonOf(sources: Row[], names: string[]): string {
	const asked = sources.filter((row) => names.includes(String(row['name'])));
	if (names.length === 0)
		return '';
	if (asked.length === 0)
		return `Nobody asked for it: record with MOETRACE_COLLECTORS=${names[0]!}, or run --collect ${names[0]!}; moetrace doctor says what this machine has.`;
	return asked.map((row) => `${String(row['name'])} was ${row['state'] === 'on' ? 'on and brought nothing' : String(row['state'])}${row['reason'] !== null ? `: ${String(row['reason'])}` : ''}.`).join(' ');
}

export function Sources({trace, recording, strip}: ViewProps & {strip: Strip}): JSX.Element | null {
	const answer = useAnswer(() => askRows(trace, 'sources', {recording}), [trace, recording]);
	const has = (type: string) => (type === 'power' ? strip.counters.some((counter) => counter.unit === 'W')
		: strip.tracks.some((track) => track.type === type || (type === 'kernels' && track.type === 'collectives')));
	const missing = wanted.filter(({type}) => !has(type));
	const sources = objects(answer.value);
	if (!answer.value)
		return null;
	return (
		<>
			{missing.length > 0 && (
				<section class="missing" aria-label="What is not in this recording">
					<h2>Not in this recording</h2>
					<ul>{missing.map(({type, what, sources: names, how}) => <li key={type}><strong>{what}</strong>. {reasonOf(sources, names)} {how}.</li>)}</ul>
				</section>
			)}
			{sources.length > 0 && (
				<details class="behind">
					<summary>The sources of times and power that were asked for</summary>
					<Table rows={answer.value} name="sources" />
				</details>
			)}
		</>
	);
}
