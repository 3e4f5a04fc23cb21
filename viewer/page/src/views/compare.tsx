// SPDX-License-Identifier: MIT
//
// Two recordings, of two traces or of one: the shares of experts in each on one scale, the second
// beside the first; how even the layers are in each; what changed most.
import type {JSX} from 'preact';
import {useMemo} from 'preact/hooks';
import {PictureExports, svgOf} from '../chart';
import type {Row, Rows, Sections} from '../data';
import {askArrays, askSections, objects} from '../data';
import {count, percent, real} from '../format';
import type {Picture} from '../heat';
import {heatFullDraw, heatFullHeight, scaleOf, sideOf} from '../heat';
import type {Layer, Matrix} from '../load';
import {balanceOf, layersOf, Load, valuesOf} from '../load';
import {Choice, Wait} from '../parts';
import {adjust, useAddress, useAnswer, viewAddress} from '../state';
import {canvasSurface} from '../svg';
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

// Of the layers that both have, with as many experts, the load in one of them.
function commonMatrix(side: Side, common: Layer[], nSlots: number, phase: string): Matrix {
	const all = side.load.matrix(phase, 0, Math.max(0, side.nWindows - 1));
	const tokens = new Float64Array(common.length * nSlots);
	common.forEach((layer, row) => {
		const from = side.layers.findIndex((each) => each.layer === layer.layer);
		tokens.set(all.tokens.subarray(from * all.nSlots, from * all.nSlots + layer.nExperts), row * nSlots);
	});
	return {nLayers: common.length, nSlots, tokens};
}

const known = (value: number) => (Number.isFinite(value) ? value : null);

interface Made {
	matrices: [Matrix, Matrix];
	ratio: Float64Array; // second over first, by expert
	changes: Rows;
	layers: Rows;
	moved: number; // of a layer's tokens, on average
}

function make(a: Side, b: Side, common: Layer[], phase: string): Made {
	const nSlots = Math.max(1, ...common.map((layer) => layer.nExperts));
	const first = commonMatrix(a, common, nSlots, phase), second = commonMatrix(b, common, nSlots, phase);
	const ratio = new Float64Array(common.length * nSlots).fill(NaN);
	const changes: Rows = {columns: ['layer', 'expert', 'first_share', 'second_share', 'change'], rows: [], is_cut: false};
	const layers: Rows = {columns: ['layer', 'moved_share', 'first_max_over_mean', 'second_max_over_mean', 'max_over_mean_change', 'first_dead', 'second_dead'], rows: [], is_cut: false};
	const moves: number[] = [];
	common.forEach((layer, row) => {
		const balanceA = balanceOf(first, row, layer.nExperts), balanceB = balanceOf(second, row, layer.nExperts);
		let moved = 0;
		for (let expert = 0; expert < layer.nExperts; expert++) {
			const x = first.tokens[row * nSlots + expert]! / balanceA.tokens, y = second.tokens[row * nSlots + expert]! / balanceB.tokens;
			ratio[row * nSlots + expert] = x > 0 ? y / x : y > 0 ? 1e6 : 1;
			moved += Math.abs(y - x) / 2;
			if (Number.isFinite(y - x))
				changes.rows.push([layer.layer, expert, x, y, y - x]);
		}
		if (Number.isFinite(moved))
			moves.push(moved);
		layers.rows.push([layer.layer, known(moved), known(balanceA.maxOverMean), known(balanceB.maxOverMean), known(balanceB.maxOverMean - balanceA.maxOverMean), balanceA.dead, balanceB.dead]);
	});
	changes.rows.sort((p, q) => Math.abs(Number(q[4])) - Math.abs(Number(p[4])));
	changes.rows.length = Math.min(changes.rows.length, 500);
	return {matrices: [first, second], ratio, changes, layers, moved: moves.reduce((sum, x) => sum + x, 0) / Math.max(1, moves.length)};
}

function signed(value: unknown, text: string): string {
	return Number(value) > 0 ? `+${text}` : text;
}

function Difference({a, b, phase, names}: {a: Side; b: Side; phase: string; names: [string, string]}): JSX.Element {
	const state = useAddress();
	const common = a.layers.filter((layer) => b.layers.some((other) => other.layer === layer.layer && other.nExperts === layer.nExperts));
	const made = useMemo(() => make(a, b, common, phase), [a, b, phase]);
	if (common.length === 0)
		return <p class="none">These have no layer in common: other models, or other numbers of experts.</p>;
	const show = ['first', 'second'].includes(state['show'] ?? '') ? state['show']! : 'change';
	const matrix = made.matrices[show === 'first' ? 0 : 1];
	const balance = common.map((layer, row) => balanceOf(matrix, row, layer.nExperts));
	const shares = made.matrices.map((each) => valuesOf(each, common, 'share'));
	const scales = shares.map((each) => scaleOf(each, 'share', false));
	const picture: Picture = {
		layers: common, nSlots: matrix.nSlots, order: null, breaks: null, unit: 'expert', metric: show === 'change' ? 'times' : 'share', balance, cursor: null,
		values: show === 'change' ? made.ratio : shares[show === 'first' ? 0 : 1]!,
		scale: show === 'change' ? {from: 0, to: 4, isLog: true, isDifference: true, middle: 'the same'} : {...scales[0]!, to: Math.max(scales[0]!.to, scales[1]!.to)},
		side: sideOf('ratio', balance, common),
	};
	const title = show === 'change' ? `Share in ${names[1]} over that in ${names[0]}` : `Share of the layer in ${names[show === 'first' ? 0 : 1]}`;
	const link = (column: string, row: Row) => (column === 'expert' ? viewAddress('heatmap', {layer: row['layer'] as number, expert: row['expert'] as number}) : undefined);
	return (
		<>
			<p>From <b>{names[0]}</b> to <b>{names[1]}</b>: on average {percent(made.moved, 1)} of a layer's tokens go to other experts.
				{' '}{show === 'change' ? 'The colour is an expert\u2019s share in the second over that in the first; the bars are the second\u2019s.' : 'First and second have the same colours.'}</p>
			<Choice label="show" value={show} options={[['change', 'the change'], ['first', `the first: ${names[0]}`], ['second', `the second: ${names[1]}`]]} onChange={(value) => adjust({show: value === 'change' ? null : value})} />
			<Heat key={show} picture={picture} matrix={matrix} title={title} onOpen={(row, expert) => adjust({layer: common[row]!.layer, expert})} />
			<div class="under">
				<Legend scale={picture.scale} />
				<PictureExports name="compare" title={title} canvas={() => {
					const canvas = document.createElement('canvas');
					heatFullDraw(canvasSurface(canvas, 1000, heatFullHeight(picture, 1000)), picture, 1000, title);
					return canvas;
				}} svg={() => svgOf((surface) => heatFullDraw(surface, picture, 1000, title), 1000, heatFullHeight(picture, 1000), title)} />
			</div>
			<div class="columns">
				<Table rows={made.changes} name="largest changes" most={20} link={link} show={(column, value) => (column.includes('share') ? percent(value) : column === 'change' ? signed(value, percent(value)) : undefined)} />
				<Table rows={made.layers} name="layers of both" most={64} show={(column, value) => (column === 'moved_share' ? percent(value, 1) : column.includes('dead') ? count(value) : column === 'layer' ? undefined
					: column.endsWith('change') ? signed(value, real(value, 3)) : real(value, 3))} />
			</div>
		</>
	);
}

export function Compare(props: ViewProps): JSX.Element {
	const {session, trace, recording, model, info} = props;
	const state = useAddress();
	// The same trace is one of them where it has another recording.
	const others = session.traces.map((each, i) => [String(i), i === trace ? `${each.name} (this one)` : each.name] as const)
		.filter(([i]) => i !== String(trace) || info.recordings.length > 1);
	const usual = others.find(([i]) => i !== String(trace)) ?? others[0];
	const with_ = others.some(([i]) => i === state['with']) ? Number(state['with']) : Number(usual?.[0] ?? 0);
	const phase = state['phase'] ?? 'all';
	const answer = useAnswer(async () => {
		const [mine, theirs] = await Promise.all([askSections(trace, 'info'), askSections(with_, 'info')]);
		const recordings = objects(theirs['recordings']).filter((row) => with_ !== trace || row['recording_id'] !== recording);
		const models = objects(theirs['models']);
		const chosen = recordings.find((row) => String(row['recording_id']) === state['with_recording']) ?? recordings[0];
		const sameName = models.find((row) => row['name'] === info.models.find((each) => each['model_id'] === model)?.['name']);
		const chosenModel = models.find((row) => String(row['model_id']) === state['with_model']) ?? sameName ?? models[0];
		const a = await sideAsk(trace, recording, model, mine);
		const b = await sideAsk(with_, Number(chosen?.['recording_id'] ?? 0), Number(chosenModel?.['model_id'] ?? 0), theirs);
		return {a, b, recordings, models, chosen: Number(chosen?.['recording_id'] ?? 0), chosenModel: Number(chosenModel?.['model_id'] ?? 0)};
	}, [trace, recording, model, with_, state['with_recording'], state['with_model']]);
	if (others.length === 0)
		return <div class="view"><p class="none">Give moetrace view two traces, or one with two recordings, to compare them.</p></div>;
	const nameOf = (i: number, id: number, isOne: boolean) => `${session.traces[i]!.name}${isOne ? '' : `, recording ${id}`}`;
	return (
		<div class="view compare">
			<div class="controls" role="group" aria-label="What is compared">
				<Choice label="compared with" value={String(with_)} options={others} onChange={(value) => adjust({with: value, with_recording: null, with_model: null})} />
				{answer.value && (answer.value.recordings.length > 1 || with_ === trace) && <Choice label="its recording" value={String(answer.value.chosen)} options={answer.value.recordings.map((row) => [String(row['recording_id']), String(row['recording_id'])] as const)} onChange={(value) => adjust({with_recording: value})} />}
				{answer.value && answer.value.models.length > 1 && <Choice label="its model" value={String(answer.value.chosenModel)} options={answer.value.models.map((row) => [String(row['model_id']), String(row['name'])] as const)} onChange={(value) => adjust({with_model: value})} />}
				<Choice label="phase" value={phase} options={[['all', 'all phases'], ['prefill', 'prefill'], ['decode', 'decode']]} onChange={(value) => adjust({phase: value === 'all' ? null : value})} />
			</div>
			<Wait answer={answer}>{({a, b, recordings, chosen}) => <Difference a={a} b={b} phase={phase}
				names={[nameOf(trace, recording, info.recordings.length === 1), nameOf(with_, chosen, recordings.length === 1 && with_ !== trace)]} />}</Wait>
			<p class="help">Both are whole recordings; of layers that only one of them has nothing is said. 'moetrace diff' compares row by row.</p>
		</div>
	);
}
