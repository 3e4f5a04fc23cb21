// SPDX-License-Identifier: MIT
//
// What opportunistic expert activation would save: active experts before and after for each k0, by
// layer and size of batches; lost weight; time by a fit that is shown with its points; what rules of
// the recording did; and what cannot be judged, with the reason.
import type {JSX} from 'preact';
import {useEffect, useRef} from 'preact/hooks';
import type {Row, Rows, Sections} from '../data';
import {askRows, askSections, isFile, objects} from '../data';
import {downloadPng} from '../export';
import {count, duration, percent, real} from '../format';
import {Choice, Help, Wait} from '../parts';
import {dotsDraw, linesDraw} from '../plot';
import {adjust, useAddress, useAnswer} from '../state';
import {Table} from '../table';
import {useTheme, useWidth} from '../use';
import type {ViewProps} from '../view';

function keyOf(row: Row): string {
	return `${String(row['model_id'])} ${String(row['phase'])}`;
}

function Lines({rows, k0}: {rows: Row[]; k0: number}): JSX.Element {
	const canvas = useRef<HTMLCanvasElement>(null);
	const [box, width] = useWidth();
	const theme = useTheme();
	useEffect(() => {
		if (width > 0)
			linesDraw(canvas.current!, width, 230, {
				x: rows.map((row) => Number(row['k0'])),
				lines: [
					{name: 'active experts under the rule', values: rows.map((row) => Number(row['active_after'])), color: '--accent'},
					{name: 'as recorded', values: rows.map((row) => Number(row['active_before'])), color: '--quiet'},
					{name: 'if choices were even', values: rows.map((row) => Number(row['uniform_after'])), color: '--warn', isDashed: true},
				],
				xLabel: 'k0', yLabel: 'experts a batch', mark: k0,
			});
	}, [rows, k0, width, theme]);
	const at = rows.find((row) => Number(row['k0']) === k0);
	return (
		<div ref={box} class="chart" role="img" aria-label={`Active experts by k0: with k0 ${k0} ${real(at?.['active_after'])}, as recorded ${real(at?.['active_before'])}. The table below has all of it.`}>
			<canvas ref={canvas} aria-hidden="true" />
		</div>
	);
}

function One({rows, k0, fit}: {rows: Row[]; k0: number; fit: Row | undefined}): JSX.Element {
	const row = rows.find((each) => Number(each['k0']) === k0) ?? rows[rows.length - 1]!;
	const a = Number(fit?.['a_ns'] ?? NaN), b = Number(fit?.['b_ns'] ?? NaN), c = Number(fit?.['c_ns'] ?? 0);
	const isFitted = Number.isFinite(a) && row['phase'] === 'decode';
	const time = (active: number) => a + b * active + c * Number(row['rows']);
	const isExtrapolated = fit && Number(row['active_after']) < Number(fit['min_active']);
	return (
		<section aria-label={`${String(row['phase'])} passes`}>
			<h2>{String(row['phase'])} passes: {count(row['batches'])} batches of {real(row['rows'], 2)} rows</h2>
			<div class="columns">
				<Lines rows={rows} k0={k0} />
				<dl class="big">
					<div><dt>active experts a batch</dt><dd>{real(row['active_before'])} &rarr; {real(row['active_after'])}</dd></div>
					<div><dt>that is</dt><dd>{percent(row['ratio'], 1)} {row['ratio_low'] !== null && <small>({percent(row['ratio_low'], 1)} to {percent(row['ratio_high'], 1)})</small>}</dd></div>
					<div><dt>lost weight of the router</dt><dd>{percent(row['lost_weight'])}{row['lost_weight'] === null && <small> not known: the rows' weights, or the router's own, were not recorded</small>}</dd></div>
					<div><dt>rows with fewer than k experts</dt><dd>{count(row['below_k'])}</dd></div>
					{isFitted && <div><dt>time of a layer by the fit</dt><dd>{`${duration(time(Number(row['active_before'])))} \u2192 ${duration(time(Number(row['active_after'])))}`}
						{isExtrapolated && <small> extrapolated: no batch as small was recorded</small>}</dd></div>}
				</dl>
			</div>
		</section>
	);
}

function Fit({sections}: {sections: Sections}): JSX.Element {
	const canvas = useRef<HTMLCanvasElement>(null);
	const [box, width] = useWidth();
	const theme = useTheme();
	const fit = objects(sections['fit'])[0];
	const points = objects(sections['points']);
	const c = Number(fit?.['c_ns'] ?? 0);
	const n = points.reduce((sum, row) => sum + Number(row['n_batches']), 0);
	const rows = points.reduce((sum, row) => sum + Number(row['n_rows']) * Number(row['n_batches']), 0) / Math.max(1, n);
	useEffect(() => {
		if (width > 0 && fit)
			dotsDraw(canvas.current!, width, 280, {
				// What the number of rows makes of it by the fit is taken away, so that the line belongs to the points.
				dots: points.map((row) => ({x: Number(row['active_experts']), y: (Number(row['duration_ns']) - c * (Number(row['n_rows']) - rows)) / 1e3, size: Number(row['n_batches'])})),
				line: (x) => (Number(fit['a_ns']) + Number(fit['b_ns']) * x + c * rows) / 1e3,
				xLabel: 'active experts', yLabel: `\u00b5s a layer, as with ${real(rows, 1)} rows`,
			});
	}, [sections, width, theme]);
	if (!fit || fit['b_ns'] === null)
		return <p class="none">No line fits the recorded layer times: layers were not timed, or all batches have as many active experts.</p>;
	return (
		<section aria-label="Time and active experts">
			<h2>Time of a layer and its active experts <span class="exports"><button type="button" onClick={() => downloadPng('fit.png', canvas.current!)}>PNG</button></span></h2>
			<p>time = {duration(fit['a_ns'])} + {duration(fit['b_ns'])} &times; active{fit['c_ns'] !== null ? <> + {duration(fit['c_ns'])} &times; rows</> : ''}, R&sup2; {real(fit['r2'])}, {count(fit['n_batches'])} batches,
				{' '}{count(fit['n_outliers'])} interrupted ones left out, by {fit['source'] === 'kernel' ? 'the operations\u2019 own times' : 'the time between selections'}.
				{Number(fit['n_ruled']) === 0 ? ' No batch ran under a rule, so what lies below the smallest one is extrapolated.' : ''}</p>
			<div ref={box} class="chart" role="img" aria-label={`Layer time against active experts: ${points.length} points, and the line`}>
				<canvas ref={canvas} aria-hidden="true" />
			</div>
			<details class="behind"><summary>The points as a table</summary><Table rows={sections['points']!} name="points of the fit" most={20} /></details>
		</section>
	);
}

function Notes({sections}: {sections: Sections}): JSX.Element {
	const rules = objects(sections['rules']);
	const left = objects(sections['left_out']);
	return (
		<>
			{left.length > 0 && (
				<section class="refusals" aria-label="What is in no figure">
					<h2>What is in no figure, and why</h2>
					<ul>{left.map((row, i) => <li key={i}>{row['batches'] !== null ? <b>{count(row['batches'])} batches: </b> : ''}{String(row['left_out'])}</li>)}</ul>
				</section>
			)}
			{rules.length > 0 && (
				<section aria-label="Rules that ran">
					<h2>Rules that the recording ran under</h2>
					<ul>{rules.map((row, i) => (
						<li key={i}><b>{String(row['rule'])}</b> in {String(row['phase'])} passes: {ruleSays(row)}</li>
					))}</ul>
					<Table rows={sections['rules']!} name="what the rules did" hide={['recording_id', 'model_id']} />
				</section>
			)}
		</>
	);
}

function ruleSays(row: Row): string {
	const changed = Number(row['changed_rows'] ?? 0), known = Number(row['known_rows'] ?? 0);
	if (known === 0)
		return 'what it did is not known: the router\u2019s own choice was not recorded';
	if (changed === 0)
		return 'it changed no row' + (Number(row['one_row_batches']) === Number(row['n_batches']) ? ': every batch had a single row' : '')
			+ (Number(row['equal_rows']) === known ? ': all weights of each row are equal' : '');
	return `it changed ${percent(changed / known, 1)} of the rows; active experts ${percent(Number(row['active_after']) / Number(row['active_before']), 1)} of before`;
}

export function Oea(props: ViewProps): JSX.Element {
	const {trace, recording, model, holds} = props;
	const state = useAddress();
	const rule = state['rule'] ?? 'oea';
	const by = state['by'] ?? '';
	const ask = (more: Record<string, number>) => () => (holds['ids'] ? askRows(trace, 'oea', {recording, rule: rule === 'oea' ? null : rule, ...more}) : null);
	const figures = useAnswer(ask({}), [trace, recording, rule]);
	const parts = useAnswer<Rows>(by === '' ? () => null : ask(by === 'layer' ? {by_layer: 1} : {by_batch: 1}), [trace, recording, rule, by]);
	const fit = useAnswer(() => (holds['ids'] ? askSections(trace, 'oea_fit', {recording}) : null), [trace, recording]);
	const notes = useAnswer(() => (holds['ids'] ? askSections(trace, 'oea_notes', {recording}) : null), [trace, recording]);
	if (!holds['ids'])
		return <div class="view"><p class="none">This trace has counts and no ids: what another rule would do is not known. Record in mode per_token.</p></div>;
	return (
		<div class="view oea">
			<Wait answer={figures}>
				{(rows) => {
					const all = objects(rows).filter((row) => row['model_id'] === model);
					const groups = [...new Set(all.map(keyOf))].map((key) => all.filter((row) => keyOf(row) === key));
					const k = Math.max(1, ...all.map((row) => Number(row['k'])));
					const k0 = Math.max(1, Math.min(k, Number(state['k0'] ?? Math.ceil(k / 2)) || 1));
					const fitted = objects(fit.value?.['fit']).find((row) => row['model_id'] === model);
					return (
						<>
							<div class="controls" role="group" aria-label="The rule">
								{!isFile && <Choice label="rule" value={rule} options={[['oea', 'oea: fill up from what is loaded'], ['pruned', 'pruned: best k0 alone']]} onChange={(value) => adjust({rule: value === 'oea' ? null : value})} />}
								<label><span>k0</span>
									<input type="range" min={1} max={k} value={k0} onInput={(event) => adjust({k0: event.currentTarget.value})} />
									<output>{k0} of {k}</output>
								</label>
							</div>
							{groups.length === 0 && <p class="none">No decode batch can be judged; below is why.</p>}
							{groups.map((group) => <One key={keyOf(group[0]!)} rows={group} k0={k0} fit={fitted} />)}
							<Help>Lost weight is no accuracy: 'moetrace eval --oea k0={k0}' measures the change of cross-entropy on texts. Every layer is judged on the inputs that were recorded.</Help>
							<Table rows={rows} name="every k0" hide={['recording_id', 'layer', 'max_batch_rows']} most={16} />
							{!isFile && <Choice label="by" value={by} options={[['', 'all layers and batches'], ['layer', 'layer'], ['batch', 'size of batches']]} onChange={(value) => adjust({by: value})} />}
							{by !== '' && <Wait answer={parts}>{(more) => <Table rows={{...more, rows: more.rows.filter((row) => row[more.columns.indexOf('k0')] === k0)}} name={`by ${by}, k0 = ${k0}`} hide={['recording_id', 'k0', by === 'layer' ? 'max_batch_rows' : 'layer']} />}</Wait>}
						</>
					);
				}}
			</Wait>
			<Wait answer={fit}>{(sections) => <Fit sections={sections} />}</Wait>
			<Wait answer={notes}>{(sections) => <Notes sections={sections} />}</Wait>
		</div>
	);
}
