// SPDX-License-Identifier: MIT
//
// Time under a rule: a line through the recorded layer times with its points, or one that is given:
// constants, or the bandwidth at which experts' weights are read.
import type {JSX} from 'preact';
import {Chart} from '../chart';
import type {Row, Sections} from '../data';
import {objects} from '../data';
import {count, duration, real} from '../format';
import {Choice, Help} from '../parts';
import {dotsDraw} from '../plot';
import {adjust, useAddress} from '../state';
import {Table} from '../table';
import type {ViewProps} from '../view';

export interface TimeLine {
	by: string; // what it rests on
	a: number | null; // ns; null: not told, differences alone are known
	b: number;
	c: number;
	minActive: number; // below it nothing was recorded; 0: does not matter
	nRuled: number;
}

function numberOf(text: string | undefined): number | null {
	const value = Number(text);
	return text !== undefined && text !== '' && Number.isFinite(value) ? value : null;
}

export function useTimeLine(props: ViewProps, fit: Sections | undefined): TimeLine | null {
	const state = useAddress();
	const by = state['time'] ?? 'fit';
	if (by === 'given') {
		const b = numberOf(state['b']);
		return b === null ? null : {by: 'the constants given', a: (numberOf(state['a']) ?? 0) * 1e3, b: b * 1e3, c: (numberOf(state['c']) ?? 0) * 1e3, minActive: 0, nRuled: 0};
	}
	if (by === 'bandwidth') {
		const speed = numberOf(state['gbs']);
		const bytes = props.info.layers.filter((row) => row['model_id'] === props.model && typeof row['expert_weight_bytes'] === 'number').map((row) => Number(row['expert_weight_bytes']));
		if (!speed || speed <= 0 || bytes.length === 0)
			return null;
		// Bytes over GB/s are nanoseconds.
		return {by: `an expert's weights at ${real(speed)} GB/s`, a: null, b: bytes.reduce((sum, x) => sum + x, 0) / bytes.length / speed, c: 0, minActive: 0, nRuled: 0};
	}
	const row = objects(fit?.['fit']).find((each) => each['model_id'] === props.model);
	if (!row || typeof row['b_ns'] !== 'number' || row['b_ns'] <= 0)
		return null;
	return {by: 'the fit', a: Number(row['a_ns']), b: row['b_ns'], c: Number(row['c_ns'] ?? 0), minActive: Number(row['min_active']), nRuled: Number(row['n_ruled'])};
}

function NumberBox({name, label}: {name: string; label: string}): JSX.Element {
	const state = useAddress();
	return <label><span>{label}</span><input size={7} inputMode="decimal" value={state[name] ?? ''} onChange={(event) => adjust({[name]: event.currentTarget.value})} /></label>;
}

export function TimeControls(): JSX.Element {
	const state = useAddress();
	const by = state['time'] ?? 'fit';
	return (
		<div class="controls" role="group" aria-label="How time is predicted">
			<Choice label="time by" value={by} options={[['fit', 'the recorded layer times (fit)'], ['given', 'constants'], ['bandwidth', 'memory bandwidth']]}
				onChange={(value) => adjust({time: value === 'fit' ? null : value})} />
			{by === 'given' && <><NumberBox name="a" label="a, µs a layer" /><NumberBox name="b" label="b, µs an active expert" /><NumberBox name="c" label="c, µs a row" /></>}
			{by === 'bandwidth' && <NumberBox name="gbs" label="GB/s" />}
		</div>
	);
}

// Of a group of batches, before and after the rule.
export function TimeFacts({line, row}: {line: TimeLine | null; row: Row}): JSX.Element | null {
	if (!line || !['decode', 'verify'].includes(String(row['phase'])))
		return null;
	const before = Number(row['active_before']), after = Number(row['active_after']);
	const time = (active: number) => (line.a ?? 0) + line.b * active + line.c * Number(row['rows']);
	const isBeyond = line.by === 'the fit' && (line.nRuled === 0 || after < line.minActive);
	return (
		<div>
			<dt>predicted time of a layer, by {line.by}</dt>
			<dd>{line.a === null ? `${duration(line.b * (before - after))} less` : <>{duration(time(before))} &rarr; {duration(time(after))}</>}
				{isBeyond && <small> extrapolated: {line.nRuled === 0 ? 'nothing was recorded under a rule' : 'no batch with as few active experts was recorded'}</small>}</dd>
		</div>
	);
}

export function Fit({model, sections}: {model: number; sections: Sections}): JSX.Element {
	const fit = objects(sections['fit']).find((row) => row['model_id'] === model);
	const points = objects(sections['points']).filter((row) => row['model_id'] === model);
	const c = Number(fit?.['c_ns'] ?? 0);
	const n = points.reduce((sum, row) => sum + Number(row['n_batches']), 0);
	const rows = points.reduce((sum, row) => sum + Number(row['n_rows']) * Number(row['n_batches']), 0) / Math.max(1, n);
	if (!fit || fit['b_ns'] === null)
		return <p class="none">No line fits the recorded layer times: {points.length === 0 ? 'no decode layer was timed' : 'all batches have as many active experts'}. Give constants or a bandwidth above to predict time.</p>;
	const b = Number(fit['b_ns']), low = Number(fit['b_low_ns']);
	const at = (x: number) => (Number(fit['a_ns']) + b * x + c * rows) / 1e3;
	return (
		<section aria-label="Time and active experts">
			<h2>Time of a layer and its active experts</h2>
			<p>time = {duration(fit['a_ns'])} + {duration(b)} &times; active{fit['c_ns'] !== null ? <> + {duration(fit['c_ns'])} &times; rows</> : ''}, R&sup2; {real(fit['r2'])}; from {count(fit['n_batches'])} layers of decode passes,
				{' '}{count(fit['n_outliers'])} interrupted ones left out, by {fit['source'] === 'kernel' ? 'the operations\u2019 own times' : 'the time from one selection to the next'}.</p>
			{b <= 0 ? <p class="warn">Layers with more active experts do not take longer here: nothing is predicted.</p>
				: low <= 0 ? <p class="warn">Whether layers with more active experts take longer is not sure: b lies between {duration(low)} and {duration(fit['b_high_ns'])}. What is predicted may be chance.</p> : null}
			<Chart name="fit" title="Layer times and the line" height={280}
				label={`Layer time against active experts: ${points.length} points, and the line from ${real(at(0))} microseconds up by ${real(b / 1e3)} an expert`}
				// What the number of rows makes of it by the fit is taken away, so that the line belongs to the points.
				draw={(surface, width, height) => dotsDraw(surface, width, height, {
					dots: points.map((row) => ({x: Number(row['active_experts']), y: (Number(row['duration_ns']) - c * (Number(row['n_rows']) - rows)) / 1e3, size: Number(row['n_batches'])})),
					line: at, from: Number(fit['min_active']),
					xLabel: 'active experts', yLabel: `\u00b5s a layer, as with ${real(rows, 1)} rows`,
				})} />
			<Help>A point is the median of layers with as many active experts and rows; its size is how many there were. The line is dashed where no layer was recorded.</Help>
			<details class="behind"><summary>The points as a table</summary><Table rows={sections['points']!} name="points of the fit" most={20} hide={['model_id']} /></details>
		</section>
	);
}
