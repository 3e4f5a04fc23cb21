// SPDX-License-Identifier: MIT
//
// Two traces side by side: the share of each expert in the second beside the first, on a scale that
// both share; how even the layers are in each; what changed most.
import type {JSX} from 'preact';
import {useMemo} from 'preact/hooks';
import type {Rows, Sections} from '../data';
import {askArrays, askSections, isFile, objects} from '../data';
import {count, percent, real} from '../format';
import type {Picture} from '../heat';
import type {Layer, Matrix} from '../load';
import {balanceOf, layersOf, Load} from '../load';
import {Choice, Wait} from '../parts';
import {adjust, useAddress, useAnswer} from '../state';
import {Table} from '../table';
import type {ViewProps} from '../view';
import {Heat, Legend} from './heatmap';

interface Side {
	layers: Layer[];
	load: Load;
	nWindows: number;
}

async function sideAsk(trace: number, recording: number, model: number, info: Sections): Promise<Side> {
	const layers = layersOf(objects(info['layers']), model);
	const [windows, rows] = await Promise.all([askArrays(trace, 'load_windows', {recording, model}), askArrays(trace, 'load', {recording, model})]);
	return {layers, load: new Load(layers, rows, windows.n), nWindows: windows.n};
}

function share(matrix: Matrix, row: number, nExperts: number, expert: number): number {
	return matrix.tokens[row * matrix.nSlots + expert]! / balanceOf(matrix, row, nExperts).tokens;
}

export function Compare(props: ViewProps): JSX.Element {
	const {session, trace, recording, model} = props;
	const state = useAddress();
	const others = session.traces.map((each, i) => [String(i), each.name] as const).filter(([i]) => i !== String(trace));
	const with_ = Number(state['with'] ?? others[0]?.[0] ?? 0);
	const phase = state['phase'] ?? 'all';
	const answer = useAnswer(async () => {
		const [mine, theirs] = await Promise.all([askSections(trace, 'info'), askSections(with_, 'info')]);
		const recordings = objects(theirs['recordings']);
		const models = objects(theirs['models']);
		const theirRecording = Number(state['with_recording'] ?? recordings[0]?.['recording_id'] ?? 0);
		const a = await sideAsk(trace, recording, model, mine);
		const b = await sideAsk(with_, theirRecording, Number(models[0]?.['model_id'] ?? 0), theirs);
		return {a, b, recordings, theirRecording};
	}, [trace, recording, model, with_, state['with_recording']]);
	if (others.length === 0)
		return <div class="view"><p class="none">Give moetrace view two traces to compare them.</p></div>;
	return (
		<div class="view compare">
			<div class="controls">
				<Choice label="compared with" value={String(with_)} options={others} onChange={(value) => adjust({with: value, with_recording: null})} />
				{(answer.value?.recordings.length ?? 0) > 1 && <Choice label="its recording" value={String(answer.value!.theirRecording)} options={answer.value!.recordings.map((row) => [String(row['recording_id']), String(row['recording_id'])] as const)} onChange={(value) => adjust({with_recording: value})} />}
				<Choice label="phase" value={phase} options={[['all', 'all phases'], ['prefill', 'prefill'], ['decode', 'decode']]} onChange={(value) => adjust({phase: value === 'all' ? null : value})} />
			</div>
			<Wait answer={answer}>{({a, b}) => <Difference a={a} b={b} phase={phase} names={[session.traces[trace]!.name, session.traces[with_]!.name]} />}</Wait>
			{isFile ? null : <p class="help">Both are whole recordings; of layers that only one of them has nothing is said.</p>}
		</div>
	);
}

function Difference({a, b, phase, names}: {a: Side; b: Side; phase: string; names: [string, string]}): JSX.Element {
	const common = a.layers.filter((layer) => b.layers.some((other) => other.layer === layer.layer && other.nExperts === layer.nExperts));
	const made = useMemo(() => {
		const first = a.load.matrix(phase, 0, Math.max(0, a.nWindows - 1)), second = b.load.matrix(phase, 0, Math.max(0, b.nWindows - 1));
		const nSlots = Math.max(1, ...common.map((layer) => layer.nExperts));
		const values = new Float64Array(common.length * nSlots).fill(NaN);
		const tokens = new Float64Array(common.length * nSlots);
		const changes: Rows = {columns: ['layer', 'expert', 'first_share', 'second_share', 'change'], rows: [], is_cut: false};
		const layersTable: Rows = {columns: ['layer', 'first_max_over_mean', 'second_max_over_mean', 'first_dead', 'second_dead', 'moved_share'], rows: [], is_cut: false};
		common.forEach((layer, row) => {
			const rowA = a.layers.indexOf(layer), rowB = b.layers.findIndex((other) => other.layer === layer.layer);
			const balanceA = balanceOf(first, rowA, layer.nExperts), balanceB = balanceOf(second, rowB, layer.nExperts);
			let moved = 0;
			for (let expert = 0; expert < layer.nExperts; expert++) {
				const x = balanceA.tokens ? share(first, rowA, layer.nExperts, expert) : NaN, y = balanceB.tokens ? share(second, rowB, layer.nExperts, expert) : NaN;
				tokens[row * nSlots + expert] = second.tokens[rowB * second.nSlots + expert]!;
				values[row * nSlots + expert] = x > 0 ? y / x : y > 0 ? 1e6 : 1;
				moved += Math.abs(y - x) / 2;
				if (Number.isFinite(y - x))
					changes.rows.push([layer.layer, expert, x, y, y - x]);
			}
			const known = (value: number) => (Number.isFinite(value) ? value : null);
			layersTable.rows.push([layer.layer, known(balanceA.maxOverMean), known(balanceB.maxOverMean), balanceA.dead, balanceB.dead, known(moved)]);
		});
		changes.rows.sort((p, q) => Math.abs(Number(q[4])) - Math.abs(Number(p[4])));
		changes.rows.length = Math.min(changes.rows.length, 500);
		return {matrix: {nLayers: common.length, nSlots, tokens} as Matrix, values, changes, layersTable};
	}, [a, b, phase]);
	if (common.length === 0)
		return <p class="none">These traces have no layer in common: other models, or other numbers of experts.</p>;
	const picture: Picture = {
		layers: common, nSlots: made.matrix.nSlots, values: made.values, order: null, scale: {from: 0, to: 4, isLog: true, isDifference: true, middle: 'the same'}, metric: 'times',
		balance: common.map((layer, row) => balanceOf(made.matrix, row, layer.nExperts)), cursor: null, marks: new Set(),
	};
	const moved = made.layersTable.rows.map((row) => Number(row[5])).filter(Number.isFinite);
	return (
		<>
			<p>From <b>{names[0]}</b> to <b>{names[1]}</b>: on average {percent(moved.reduce((sum, x) => sum + x, 0) / Math.max(1, moved.length), 1)} of a layer's tokens go to other experts.
				The colour is an expert's share in the second over that in the first; the bars are the second's.</p>
			<Heat picture={picture} matrix={made.matrix} title={`Change of shares from ${names[0]} to ${names[1]}`} onOpen={(row, expert) => adjust({layer: common[row]!.layer, expert})} />
			<Legend scale={picture.scale} />
			<div class="columns">
				<Table rows={made.changes} name="largest changes" most={20} show={(column, value) => (column.includes('share') ? percent(value) : column === 'change' ? `${Number(value) > 0 ? '+' : ''}${percent(value)}` : undefined)} />
				<Table rows={made.layersTable} name="layers of both" most={64} show={(column, value) => (column === 'moved_share' ? percent(value, 1) : column.includes('dead') ? count(value) : column === 'layer' ? undefined : real(value, 3))} />
			</div>
		</>
	);
}
