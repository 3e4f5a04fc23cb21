// SPDX-License-Identifier: MIT
//
// Layers and experts: who got how much, of which requests, when; and how even each layer is.
import type {JSX} from 'preact';
import {useEffect, useMemo, useRef, useState} from 'preact/hooks';
import type {Arrays, Row, Rows} from '../data';
import {askArrays, askSections, isFile} from '../data';
import {download, downloadPng} from '../export';
import {count, duration, percent, real} from '../format';
import type {Picture, Scale} from '../heat';
import {cellAt, expertAt, heatDraw, heatSvg, legendDraw, legendTexts, placeOf, scaleOf, stepOf} from '../heat';
import {takeKeys} from '../keys';
import type {Balance, Layer, Matrix, Metric} from '../load';
import {balanceOf, filteredMatrix, layersOf, Load, metrics, valuesOf} from '../load';
import {Choice, Help, say, Wait} from '../parts';
import {adjust, go, useAddress, useAnswer, viewAddress} from '../state';
import {Table} from '../table';
import {useWidth} from '../use';
import type {ViewProps} from '../view';

interface Source {
	load: Load | null; // all rows, by window
	filtered: Arrays | null;
	windows: Arrays | null;
	layers: Layer[];
}

function filterText(filter: string): string {
	if (filter.startsWith('request:'))
		return `request ${filter.slice(8)}`;
	if (filter.startsWith('attribute:')) {
		const [key, value] = JSON.parse(filter.slice(10)) as [string, string];
		return `requests with ${key} = ${value}`;
	}
	return 'all rows';
}

async function sourceAsk({trace, recording, model, info}: ViewProps, filter: string, metric: Metric): Promise<Source> {
	const layers = layersOf(info.layers, model);
	const source: Source = {load: null, filtered: null, windows: null, layers};
	if (filter.startsWith('request:'))
		source.filtered = await askArrays(trace, 'load_request', {request: filter.slice(8)});
	else if (filter.startsWith('attribute:')) {
		const [key, value] = JSON.parse(filter.slice(10)) as [string, string];
		source.filtered = await askArrays(trace, 'load_attribute', {recording, model, key, value});
	} else if (metric === 'weight')
		source.filtered = await askArrays(trace, 'load_weight', {recording, model});
	else {
		const [windows, rows] = await Promise.all([
			askArrays(trace, 'load_windows', {recording, model}), askArrays(trace, 'load', {recording, model})]);
		source.windows = windows;
		source.load = new Load(layers, rows, windows.n);
	}
	return source;
}

function ordersOf(matrix: Matrix, layers: Layer[]): Int32Array[] {
	return layers.map((layer, row) => {
		const order = Int32Array.from({length: matrix.nSlots}, (_, i) => i);
		const tokens = (expert: number) => (expert < layer.nSlots ? matrix.tokens[row * matrix.nSlots + expert]! : -1);
		return order.sort((a, b) => tokens(b) - tokens(a) || a - b);
	});
}

// ---- the picture with its cursor ----

function cellText(picture: Picture, matrix: Matrix, row: number, column: number): string {
	const layer = picture.layers[row]!;
	const expert = expertAt(picture, row, column);
	if (expert >= layer.nSlots)
		return `layer ${layer.layer}: no expert ${expert}`;
	const tokens = matrix.tokens[row * matrix.nSlots + expert]!;
	const balance = picture.balance[row]!;
	const weight = matrix.weight?.[row * matrix.nSlots + expert];
	return `layer ${layer.layer}, expert ${expert}${expert >= layer.nExperts ? ' (not routed)' : ''}: ${count(tokens)} tokens, `
		+ `${percent(tokens / balance.tokens)} of the layer, ${real(tokens / balance.mean, 2)} times the mean`
		+ (weight !== undefined && weight >= 0 ? `, mean weight ${real(weight)}` : '');
}

export function Heat({picture, matrix, title, onOpen}: {
	picture: Picture;
	matrix: Matrix;
	title: string;
	onOpen: (row: number, expert: number) => void;
}): JSX.Element {
	const canvas = useRef<HTMLCanvasElement>(null);
	const [box, width] = useWidth();
	const [cursor, setCursor] = useState<{row: number; column: number} | null>(null);
	const [tip, setTip] = useState<{x: number; y: number; text: string} | null>(null);
	const shown = {...picture, cursor};
	useEffect(() => {
		if (canvas.current && width > 0)
			heatDraw(canvas.current, shown, width);
	});
	const move = (row: number, column: number) => {
		const next = {
			row: Math.max(0, Math.min(picture.layers.length - 1, row)),
			column: Math.max(0, Math.min(picture.nSlots - 1, column)),
		};
		setCursor(next);
		say(cellText(picture, matrix, next.row, next.column));
	};
	const page = stepOf(picture.nSlots, 800, 60);
	const at = cursor ?? {row: 0, column: -1};
	const keys: Record<string, () => void> = {
		ArrowRight: () => move(at.row, at.column + 1),
		ArrowLeft: () => move(at.row, at.column - 1),
		ArrowDown: () => move(at.row + 1, at.column),
		ArrowUp: () => move(at.row - 1, at.column),
		PageUp: () => move(at.row, at.column - page),
		PageDown: () => move(at.row, at.column + page),
		Home: () => move(at.row, 0),
		End: () => move(at.row, picture.nSlots - 1),
		KeyM: () => move(at.row, columnOf(picture, at.row, picture.balance[at.row]!.hottest)),
		Enter: () => cursor && onOpen(cursor.row, expertAt(picture, cursor.row, cursor.column)),
		Escape: () => setCursor(null),
	};
	const point = (event: MouseEvent) => {
		const bounds = canvas.current!.getBoundingClientRect();
		return cellAt(picture, placeOf(picture, width), event.clientX - bounds.left, event.clientY - bounds.top);
	};
	return (
		<div ref={box} class="chart" tabIndex={0} role="application" aria-roledescription="heatmap"
			aria-label={`${title}. Arrow keys move over layers and experts, M goes to the busiest, Enter opens a cell.`}
			onKeyDown={(event) => takeKeys(event, keys)}
			onFocus={() => cursor && say(cellText(picture, matrix, cursor.row, cursor.column))}>
			<canvas ref={canvas} aria-hidden="true"
				onMouseMove={(event) => {
					const cell = point(event);
					setTip(cell && {x: event.offsetX, y: event.offsetY, text: cellText(picture, matrix, cell.row, cell.column)});
				}}
				onMouseLeave={() => setTip(null)}
				onClick={(event) => {
					const cell = point(event);
					if (cell) {
						setCursor(cell);
						onOpen(cell.row, expertAt(picture, cell.row, cell.column));
					}
				}} />
			{tip && <div class="tip" style={{left: Math.min(tip.x + 14, width - 280), top: tip.y + 16}}>{tip.text}</div>}
			{cursor && <p class="readout">{cellText(picture, matrix, cursor.row, cursor.column)}</p>}
		</div>
	);
}

function columnOf(picture: Picture, row: number, expert: number): number {
	return picture.order ? picture.order[row]!.indexOf(expert) : Math.max(0, expert);
}

export function Legend({scale}: {scale: Scale}): JSX.Element {
	const canvas = useRef<HTMLCanvasElement>(null);
	useEffect(() => legendDraw(canvas.current!, scale));
	return (
		<div class="legend" aria-label={`colours: ${legendTexts(scale).join(', ')}`} role="img">
			<canvas ref={canvas} aria-hidden="true" />
			<div>{legendTexts(scale).map((text, i) => <span key={i}>{text}</span>)}</div>
		</div>
	);
}

// ---- time ----

function Player({windows, first, last}: {windows: Arrays; first: number; last: number}): JSX.Element {
	const [plays, setPlays] = useState(false);
	const n = windows.n;
	const isOne = first === last;
	useEffect(() => {
		if (!plays)
			return;
		let frame = 0;
		let at = isOne ? first : -1;
		let before = 0;
		const quick = !matchMedia('(prefers-reduced-motion: reduce)').matches;
		const step = (now: number) => {
			if (now - before >= (quick ? 120 : 1000)) {
				before = now;
				at = (at + 1) % n;
				adjust({window: at});
			}
			frame = requestAnimationFrame(step);
		};
		frame = requestAnimationFrame(step);
		return () => cancelAnimationFrame(frame);
	}, [plays]);
	const start = windows.of['start_ns']![first]!;
	const end = windows.of['start_ns']![last]! + windows.of['length_ns']![last]!;
	const origin = windows.of['start_ns']![0]!;
	return (
		<div class="player">
			<button type="button" aria-pressed={plays} onClick={() => setPlays(!plays)}>{plays ? 'Pause' : 'Play'}</button>
			<label>
				<span>window</span>
				<input type="range" min={0} max={n - 1} value={isOne ? first : 0}
					aria-valuetext={`${duration(start - origin)} to ${duration(end - origin)}`}
					onInput={(event) => adjust({window: event.currentTarget.value})} />
			</label>
			<button type="button" disabled={!isOne || n === 1} onClick={() => {
				setPlays(false);
				adjust({window: null});
			}}>All of it</button>
			<span>{isOne && n > 1 ? `window ${first + 1} of ${n}: ` : ''}{duration(start - origin)} to {duration(end - origin)}</span>
		</div>
	);
}

// ---- behind a cell ----

function Cell({trace, recording, layer, expert}: ViewProps & {layer: Layer; expert: number}): JSX.Element {
	const answer = useAnswer(() => askSections(trace, 'cell', {recording, layer_id: layer.layerId, expert}),
		[trace, recording, layer.layerId, expert]);
	const link = (column: string, row: Row) =>
		column === 'request_id' && row['request_id'] !== null ? viewAddress('request', {request: row['request_id'] as number})
			: column === 'pass_id' ? viewAddress('timeline', {pass: row['pass_id'] as number}) : undefined;
	return (
		<section class="cell" aria-label={`Layer ${layer.layer}, expert ${expert}`}>
			<h2>Behind layer {layer.layer}, expert {expert} <button type="button" onClick={() => adjust({layer: null, expert: null})}>Close</button></h2>
			<Wait answer={answer}>
				{(sections) => (
					<div class="columns">
						<Table rows={sections['requests']!} name="requests with most rows" hide={['verdict']} link={link} most={12} />
						<Table rows={sections['passes']!} name="passes with most rows" link={link} most={12} />
					</div>
				)}
			</Wait>
		</section>
	);
}

// ---- the table behind the picture ----

function balanceRows(layers: Layer[], balance: Balance[]): Rows {
	return {
		columns: ['layer', 'n_experts', 'tokens', 'hottest_expert', 'max_over_mean', 'balancedness', 'gini', 'jain', 'entropy',
			'dead_experts'],
		rows: layers.map((layer, i) => {
			const b = balance[i]!;
			const known = (value: number) => (Number.isFinite(value) ? value : null);
			return [layer.layer, layer.nExperts, b.tokens, b.hottest >= 0 ? b.hottest : null, known(b.maxOverMean),
				known(b.balancedness), known(b.gini), known(b.jain), known(b.entropy), b.dead];
		}),
		is_cut: false,
	};
}

function cellRows(layers: Layer[], matrix: Matrix): Rows {
	const rows: Rows = {columns: ['layer', 'expert', 'tokens', ...(matrix.weight ? ['mean_weight'] : [])], rows: [], is_cut: false};
	layers.forEach((layer, row) => {
		for (let expert = 0; expert < layer.nSlots; expert++) {
			const at = row * matrix.nSlots + expert;
			const weight = matrix.weight?.[at];
			rows.rows.push([layer.layer, expert, matrix.tokens[at]!, ...(matrix.weight ? [weight !== undefined && weight >= 0 ? weight : null] : [])]);
		}
	});
	return rows;
}

// ---- the view ----

const phaseChoices = [['all', 'all phases'], ['prefill', 'prefill'], ['decode', 'decode'], ['verify', 'verify'],
	['other', 'draft, dummy'], ['padding', 'padding alone']] as const;

function filterChoices({info}: ViewProps, filter: string): [string, string][] {
	const choices: [string, string][] = [['', 'all rows']];
	if (!isFile)
		for (const row of info.attributes.slice(0, 200))
			choices.push([`attribute:${JSON.stringify([row['key'], row['value']])}`,
				`${String(row['key'])} = ${String(row['value'])} (${count(row['n_requests'])})`]);
	if (filter && !choices.some(([key]) => key === filter))
		choices.push([filter, filterText(filter)]);
	return choices;
}

export function Heatmap(props: ViewProps): JSX.Element {
	const state = useAddress();
	const phase = state['phase'] ?? 'all';
	const filter = state['filter'] ?? '';
	const metric = (state['metric'] ?? 'tokens') as Metric;
	const answer = useAnswer(() => sourceAsk(props, filter, metric),
		[props.trace, props.recording, props.model, filter, metric === 'weight']);
	return (
		<div class="view heatmap">
			<div class="controls" role="group" aria-label="What is shown">
				<Choice label="phase" value={phase} options={[...phaseChoices]} onChange={(value) => adjust({phase: value === 'all' ? null : value})} />
				<Choice label="value" value={metric}
					options={metrics.filter(([key]) => key !== 'weight' || (props.holds['weights'] && !isFile)).map(([a, b]) => [a, b] as const)}
					onChange={(value) => adjust({metric: value === 'tokens' ? null : value})} />
				<Choice label="rows of" value={filter} options={filterChoices(props, filter)} onChange={(value) => adjust({filter: value})} />
				<Choice label="order" value={state['order'] ?? 'id'} options={[['id', 'expert id'], ['load', 'load']]}
					onChange={(value) => adjust({order: value === 'id' ? null : value})} />
				<Choice label="scale" value={state['scale'] ?? 'linear'} options={[['linear', 'linear'], ['log', 'logarithmic']]}
					onChange={(value) => adjust({scale: value === 'linear' ? null : value})} />
			</div>
			<Wait answer={answer}>{(source) => <Whole {...props} source={source} phase={phase} metric={metric} filter={filter} />}</Wait>
		</div>
	);
}

function Whole({source, phase, metric, filter, ...props}: ViewProps & {
	source: Source;
	phase: string;
	metric: Metric;
	filter: string;
}): JSX.Element {
	const state = useAddress();
	const nWindows = source.windows?.n ?? 0;
	const chosen = state['window'] === undefined || nWindows === 0 ? null : Math.min(nWindows - 1, Number(state['window']) || 0);
	const first = chosen ?? 0;
	const last = chosen ?? Math.max(0, nWindows - 1);
	const isLog = state['scale'] === 'log';
	const layers = source.layers;
	const matrix = useMemo(() => source.filtered ? filteredMatrix(layers, source.filtered, phase)
		: source.load!.matrix(phase, first, last), [source, phase, first, last]);
	// While it plays the scale stays: that of the busiest window.
	const scale = useMemo(() => {
		if (chosen === null || !source.load)
			return scaleOf(valuesOf(matrix, layers, metric), metric, isLog);
		let widest: Scale | null = null;
		for (let window = 0; window < nWindows; window++) {
			const one = scaleOf(valuesOf(source.load.matrix(phase, window, window), layers, metric), metric, isLog);
			widest = widest ? {...one, from: Math.min(one.from, widest.from), to: Math.max(one.to, widest.to)} : one;
		}
		return widest!;
	}, [source, phase, metric, isLog, chosen === null ? matrix : nWindows]);
	const balance = layers.map((layer, row) => balanceOf(matrix, row, layer.nExperts));
	const isByLoad = state['order'] === 'load';
	const order = useMemo(() => (isByLoad ? ordersOf(matrix, layers) : null), [matrix, isByLoad]);
	const picture: Picture = {
		layers, nSlots: matrix.nSlots, values: valuesOf(matrix, layers, metric), order, scale, metric, balance, cursor: null,
		marks: new Set(),
	};
	const tokens = balance.reduce((sum, b) => sum + b.tokens, 0);
	const title = `${metrics.find(([key]) => key === metric)![1]} by layer and expert, ${phase === 'all' ? 'all phases' : phase}, ${filterText(filter)}`;
	const opened = layers.findIndex((layer) => String(layer.layer) === state['layer']);
	const expert = Number(state['expert']);
	const every = stepOf(layers.length, placeOf(picture, 1000).height, 13);
	return (
		<>
			{source.windows && nWindows > 1 && <Player windows={source.windows} first={first} last={last} />}
			{tokens === 0 ? <p class="none">No row of {filterText(filter)} selected an expert in this phase and time.</p> : null}
			<Heat picture={picture} matrix={matrix} title={title}
				onOpen={(row, at) => go({layer: layers[row]!.layer, expert: at})} />
			<div class="under">
				<Legend scale={scale} />
				<span class="exports">
					<button type="button" onClick={() => downloadPng('heatmap.png', document.querySelector('.heatmap canvas')!)}>PNG</button>
					<button type="button" onClick={() => download('heatmap.svg', heatSvg(picture, 1000, title), 'image/svg+xml')}>SVG</button>
				</span>
				<Help>{count(tokens)} selections of routed experts.{every > 1 ? ` One of ${every} layers has its label.` : ''}</Help>
			</div>
			{opened >= 0 && expert >= 0 && !isFile && props.holds['ids'] ? <Cell {...props} layer={layers[opened]!} expert={expert} /> : null}
			<details class="behind" open={state['table'] === '1'} onToggle={(event) => adjust({table: event.currentTarget.open ? '1' : null})}>
				<summary>The figures of this picture as tables</summary>
				{state['table'] === '1' && (
					<>
						<Table rows={balanceRows(layers, balance)} name="balance of the layers"
							link={(column, row) => (column === 'layer' && row['hottest_expert'] !== null
								? viewAddress('heatmap', {...state, layer: row['layer'] as number, expert: row['hottest_expert'] as number}) : undefined)} />
						<Table rows={cellRows(layers, matrix)} name="load of the experts" most={64} />
					</>
				)}
			</details>
		</>
	);
}
