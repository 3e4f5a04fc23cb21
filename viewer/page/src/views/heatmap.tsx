// SPDX-License-Identifier: MIT
//
// Layers and experts: who got how much, of which requests, when; and how even each layer is.
import type {JSX, RefObject} from 'preact';
import {useEffect, useLayoutEffect, useMemo, useRef, useState} from 'preact/hooks';
import {attributeOf, phaseChoices} from '../address';
import {PictureExports, svgOf} from '../chart';
import type {Arrays, Parameters, Row, Rows} from '../data';
import {askArrays, askSections, isFile} from '../data';
import {count, percent, real} from '../format';
import type {Picture, Scale} from '../heat';
import {cellAt, expertAt, fullHeight, heatDraw, heatFullDraw, heatFullHeight, isMarked, legendDraw, legendTexts, margins, placeOf, scaleOf, sideNames, stepOf} from '../heat';
import {takeKeys} from '../keys';
import type {Balance, Layer, Matrix, Metric, Room} from '../load';
import type {Span} from '../pinch';
import {Fingers, pinched, wheelFactor, zoomed} from '../pinch';
import {layersOf, Load, metrics, placementInOrder, placementOf, valuesOf} from '../load';
import {Choice, Fold, Help, say, Wait} from '../parts';
import {adjust, go, useAddress, useAnswer, viewAddress} from '../state';
import {canvasSurface} from '../svg';
import {Table} from '../table';
import {useDraw, useTheme, useWidth} from '../use';
import type {ViewProps} from '../view';
import type {Frame, Shown, Source} from './heatmap_frame';
import {Ahead, frameOf, widest} from './heatmap_frame';
import type {Windows} from './heatmap_time';
import {boundsOf, Player, windowsOf} from './heatmap_time';
import {usualRanks} from './ranks';

function filterText(filter: string): string {
	const attribute = attributeOf(filter);
	return attribute ? `requests with ${attribute[0]} = ${attribute[1]}` : filter.startsWith('request:') ? `request ${filter.slice(8)}` : 'all rows';
}

async function sourceAsk({trace, recording, model, info, holds}: ViewProps, isFiltered: boolean): Promise<Source> {
	const layers = layersOf(info.layers, model);
	const [windows, rows, map] = await Promise.all([
		askArrays(trace, 'load_windows', {recording, model}), isFiltered ? null : askArrays(trace, 'load', {recording, model}),
		holds['maps'] && !isFile ? askArrays(trace, 'map', {model}) : null]);
	return {layers, windows, load: rows && new Load(layers, rows, windows.n), map: map && placementOf(layers, map)};
}

// What of the rows a filter leaves, as parameters of questions.
function filterParameters(filter: string): Parameters {
	if (filter.startsWith('request:'))
		return {request: filter.slice(8)};
	const attribute = attributeOf(filter);
	return attribute ? {key: attribute[0], value: attribute[1]} : {};
}

function filteredAsk({trace, recording, model}: ViewProps, filter: string, from: number | null, until: number | null): Promise<Arrays> {
	const question = filter.startsWith('request:') ? 'load_request' : attributeOf(filter) ? 'load_attribute' : 'load_weight';
	return askArrays(trace, question, {recording, model, ...filterParameters(filter), from, until});
}

// ---- the picture with its cursor ----

function cellText(picture: Picture, matrix: Matrix, row: number, column: number): string {
	const layer = picture.layers[row]!;
	const expert = expertAt(picture, row, column);
	if (expert >= layer.nSlots)
		return `layer ${layer.layer}: no ${picture.unit} ${expert}`;
	const tokens = matrix.tokens[row * matrix.nSlots + expert]!;
	const balance = picture.balance[row]!;
	const weight = matrix.weight?.[row * matrix.nSlots + expert];
	return `layer ${layer.layer}, ${picture.unit} ${expert}${expert >= layer.nExperts ? ' (not routed)' : ''}: ${count(Math.round(tokens))} tokens, `
		+ `${percent(tokens / balance.tokens)} of the layer, ${real(tokens / balance.mean, 2)} times the mean`
		+ (weight !== undefined && weight >= 0 ? `, mean weight ${real(weight)}` : '');
}

// By what it is, not by where: the order may change.
interface Place {
	layer: number;
	expert: number;
}

// What is drawn between two views of the page.
export interface Playing {
	now: {picture: Picture; matrix: Matrix} | null; // null: what the page shows
	draw: () => void;
}

// Fewer columns are no picture.
const LEAST_COLUMNS = 4;

// The columns that an address names; all of them: null.
export function sightOf(text: string | undefined, nSlots: number): Span | null {
	const [from, until] = (text ?? '').split('~').map(Number);
	return text === undefined || nSlots <= LEAST_COLUMNS ? null : sightClamp({from: from!, until: until!}, nSlots);
}

function sightClamp({from, until}: Span, nSlots: number): Span | null {
	const n = Math.max(LEAST_COLUMNS, until - from);
	const first = Math.max(0, Math.min(nSlots - n, (from + until - n) / 2));
	return n < nSlots ? {from: first, until: first + n} : null;
}

export function Heat({title, opened = null, onOpen, playing, part, onPart, ...own}: {
	picture: Picture;
	part?: string | undefined; // of the columns, as in the address
	onPart?: (part: string | null) => void; // it is zoomed

	opened?: Place | null; // where the address has the cursor
	matrix: Matrix;
	title: string;
	onOpen: (row: number, expert: number) => void;
	playing?: Playing;
}): JSX.Element {
	const canvas = useRef<HTMLCanvasElement>(null);
	const readout = useRef<HTMLParagraphElement>(null);
	const [box, width] = useWidth();
	const [place, setPlace] = useState(opened);
	// At once: a key that is pressed before the next picture would be undone.
	useLayoutEffect(() => setPlace(opened), [opened?.layer, opened?.expert]);
	const [tip, setTip] = useState<{x: number; y: number; text: string} | null>(null);
	const {picture: all, matrix} = playing?.now ?? own;
	const sight = onPart ? sightOf(part, all.nSlots) : null;
	const picture = {...all, sight};
	const cursor = cursorOf(picture, place);
	const setCursor = (next: {row: number; column: number} | null) =>
		setPlace(next && {layer: picture.layers[next.row]!.layer, expert: expertAt(picture, next.row, next.column)});
	useTheme();
	const draw = () => {
		const now = playing?.now ?? own;
		const cursor = cursorOf(now.picture, place);
		if (canvas.current && width > 0)
			heatDraw(canvasSurface(canvas.current, width, fullHeight(placeOf(now.picture, width))), {...now.picture, cursor, sight}, width);
		if (readout.current && cursor)
			readout.current.textContent = cellText(now.picture, now.matrix, cursor.row, cursor.column);
	};
	useDraw(draw);
	if (playing)
		playing.draw = draw;
	const move = (row: number, column: number) => {
		const next = {
			row: Math.max(0, Math.min(picture.layers.length - 1, row)),
			column: Math.max(0, Math.min(picture.nSlots - 1, column)),
		};
		setCursor(next);
		if (sight && (next.column < sight.from || next.column + 1 > sight.until)) {
			const n = sight.until - sight.from;
			see({from: next.column + 0.5 - n / 2, until: next.column + 0.5 + n / 2});
		}
		say(cellText(picture, matrix, next.row, next.column));
	};
	const see = (next: Span) => {
		const seen = sightClamp(next, picture.nSlots);
		onPart?.(seen && `${seen.from.toFixed(2)}~${seen.until.toFixed(2)}`);
	};
	const {from, until} = sight ?? {from: 0, until: picture.nSlots};
	const columnAt = (x: number) => from + ((x - margins.left) / placeOf(picture, width).width) * (until - from);
	const limits = {least: LEAST_COLUMNS, most: picture.nSlots};
	const zoom = (factor: number, at: number) => see(zoomed({from, until}, factor, at, limits));
	const middle = () => (cursor ? cursor.column + 0.5 : (from + until) / 2);
	const fingers = useRef(new Fingers());
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
		...(onPart && {KeyW: () => zoom(0.7, middle()), KeyS: () => zoom(1 / 0.7, middle()), Digit0: () => onPart(null)}),
	};
	const point = (event: MouseEvent) => {
		const bounds = canvas.current!.getBoundingClientRect();
		return cellAt(picture, placeOf(picture, width), event.clientX - bounds.left, event.clientY - bounds.top);
	};
	return (
		<div ref={box} class="chart" tabIndex={0} role="application" aria-roledescription="heatmap"
			aria-label={`${title}. Arrow keys move over layers and ${picture.unit}s, M goes to the busiest, Enter opens a cell${onPart ? ', W and S zoom, 0 shows all' : ''}.`}
			onKeyDown={(event) => takeKeys(event, keys)}
			onFocus={() => cursor && say(cellText(picture, matrix, cursor.row, cursor.column))}>
			<canvas ref={canvas} aria-hidden="true"
				onWheel={(event) => {
					const isAlong = sight !== null && Math.abs(event.deltaX) > Math.abs(event.deltaY);
					if (!onPart || (!event.ctrlKey && !isAlong))
						return;
					event.preventDefault();
					if (event.ctrlKey)
						zoom(wheelFactor(event), columnAt(event.offsetX));
					else
						see({from: from + event.deltaX * (until - from) / width, until: until + event.deltaX * (until - from) / width});
				}}
				onPointerDown={(event) => event.pointerType !== 'mouse' && fingers.current.down(event)}
				onPointerMove={(event) => {
					const moved = fingers.current.move(event);
					if (moved && onPart)
						see(pinched({from, until}, moved.before, moved.after, margins.left, placeOf(picture, width).width, limits));
				}}
				onPointerUp={(event) => fingers.current.up(event)}
				onPointerCancel={(event) => fingers.current.up(event)}
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
			{tip && <div class="tip" style={{left: Math.max(0, Math.min(tip.x + 14, width - 280)), top: tip.y + 16}}>{tip.text}</div>}
			{cursor && <p class="readout" ref={readout} />}
		</div>
	);
}

function cursorOf(picture: Picture, place: Place | null): {row: number; column: number} | null {
	const row = place ? picture.layers.findIndex((layer) => layer.layer === place.layer) : -1;
	const column = row < 0 ? -1 : columnOf(picture, row, place!.expert);
	return column < 0 || column >= picture.nSlots ? null : {row, column};
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

// ---- behind a cell ----

function Cell({trace, recording, layer, expert, more, of}: ViewProps & {layer: Layer; expert: number; more: Parameters; of: string}): JSX.Element {
	const answer = useAnswer(() => askSections(trace, 'cell', {recording, layer_id: layer.layerId, expert, ...more}),
		[trace, recording, layer.layerId, expert, JSON.stringify(more)]);
	const link = (column: string, row: Row) =>
		column === 'request_id' && row['request_id'] !== null ? viewAddress('request', {request: row['request_id'] as number, layer: layer.layer})
			: column === 'pass_id' ? viewAddress('timeline', {pass: row['pass_id'] as number}) : undefined;
	return (
		<section class="cell" aria-label={`Layer ${layer.layer}, expert ${expert}`}>
			<h2>Behind layer {layer.layer}, expert {expert} <button type="button" onClick={() => adjust({layer: null, expert: null})}>Close</button></h2>
			{of !== '' && <p class="quiet">{of}</p>}
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

function cellRows(layers: Layer[], matrix: Matrix, unit: string): Rows {
	const rows: Rows = {columns: ['layer', unit, 'tokens', ...(matrix.weight ? ['mean_weight'] : [])], rows: [], is_cut: false};
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

function filterChoices({info}: ViewProps, filter: string): [string, string][] {
	const choices: [string, string][] = [['', 'all rows']];
	if (!isFile)
		for (const row of info.attributes.slice(0, 200))
			choices.push([`attribute:${JSON.stringify([row['key'], row['value']])}`,
				`${String(row['key'])} = ${String(row['value'])} (${count(row['n_requests'])})`]);
	if (filter && !choices.some(([key]) => key === filter)) // a request
		choices.push([filter, filterText(filter)]);
	return choices;
}

function RequestFilter(): JSX.Element {
	const [text, setText] = useState('');
	return (
		<form onSubmit={(event) => {
			event.preventDefault();
			adjust({filter: `request:${text}`});
		}}>
			<label><span>or request</span><input value={text} inputMode="numeric" size={5} onInput={(event) => setText(event.currentTarget.value)} /></label>
			{' '}<button type="submit" disabled={!/^\d+$/.test(text)}>Show</button>
		</form>
	);
}

function Controls({props, phase, metric, filter, hasMap}: {props: ViewProps; phase: string; metric: Metric; filter: string; hasMap: boolean}): JSX.Element {
	const state = useAddress();
	const isByRank = state['order'] === 'rank' || state['columns'] === 'rank';
	const rankChoices = [...new Set(['2', '4', '8', '16', '32', '64', state['ranks'] ?? String(usualRanks(props))])].sort((a, b) => Number(a) - Number(b)).filter((n) => /^\d+$/.test(n));
	return (
		<div class="controls" role="group" aria-label="What is shown">
			<Choice label="phase" value={phase} options={[...phaseChoices]} onChange={(value) => adjust({phase: value === 'all' ? null : value})} />
			<Choice label="value" value={metric}
				options={metrics.filter(([key]) => key !== 'weight' || (props.holds['weights'] && !isFile && state['columns'] !== 'rank'))}
				onChange={(value) => adjust({metric: value === 'tokens' ? null : value})} />
			<Choice label="rows of" value={filter} options={filterChoices(props, filter)} onChange={(value) => adjust({filter: value})} />
			{!isFile && props.holds['ids'] && <RequestFilter />}
			<Choice label="columns" value={state['columns'] ?? 'expert'} options={[['expert', 'experts'], ['rank', 'ranks']]}
				onChange={(value) => adjust({columns: value === 'expert' ? null : value, layer: null, expert: null, part: null, ...(metric === 'weight' ? {metric: null} : {})})} />
			<Choice label="order" value={state['order'] ?? 'id'} options={[['id', 'by id'], ['load', 'by load'], ...(state['columns'] === 'rank' ? [] : [['rank', 'by rank, then load'] as const])]}
				onChange={(value) => adjust({order: value === 'id' ? null : value})} />
			{isByRank && <Choice label="ranks" value={hasMap && state['ranks'] === undefined ? '' : state['ranks'] ?? String(usualRanks(props))}
				options={[...(hasMap ? [['', 'as recorded'] as const] : []), ...rankChoices.map((n) => [n, `${n}, experts in order`] as const)]} onChange={(value) => adjust({ranks: value})} />}
			<Choice label="layers" value={state['rows'] ?? 'layer'} options={[['layer', 'by number'], ['balance', 'least even first']]} onChange={(value) => adjust({rows: value === 'layer' ? null : value})} />
			<Choice label="beside" value={state['beside'] ?? 'ratio'} options={[...sideNames]} onChange={(value) => adjust({beside: value === 'ratio' ? null : value})} />
			<Choice label="scale" value={state['scale'] ?? 'linear'} options={[['linear', 'linear'], ['log', 'logarithmic'], ['clip', 'linear, up to the 99th percentile']]}
				onChange={(value) => adjust({scale: value === 'linear' ? null : value})} />
		</div>
	);
}

export function Heatmap(props: ViewProps): JSX.Element {
	const state = useAddress();
	const phase = state['phase'] ?? 'all';
	const filter = state['filter'] ?? '';
	const metric = (state['metric'] ?? 'tokens') as Metric;
	const isFiltered = filter !== '' || metric === 'weight';
	const source = useAnswer(() => sourceAsk(props, isFiltered), [props.trace, props.recording, props.model, isFiltered]);
	const windows = source.value?.windows;
	const [followed, follow] = useState<number | null>(null); // while it plays, the window that the page shows
	const seen = windowsOf(followed === null ? state : {...state, window: String(followed)}, windows?.n ?? 0);
	const bounds = windows ? boundsOf(windows, seen) : {from: null, until: null};
	const playing = useRef<Playing>({now: null, draw: () => undefined});
	const frame = useRef<((seen: Windows, filtered: Arrays | null) => void) | null>(null);
	const ahead = useRef<Ahead | null>(null);
	const onFrame = (next: Windows): boolean => {
		const span = next.last - next.first + 1;
		const what = JSON.stringify([filter, metric, span]);
		if (isFiltered && ahead.current?.what !== what)
			ahead.current = new Ahead(what, (first) => {
				const {from, until} = boundsOf(windows!, {first, last: first + span - 1, isAll: false});
				return filteredAsk(props, filter, from, until);
			});
		if (isFiltered && !ahead.current!.isReady(next.first, windows!.n - span + 1))
			return false;
		const rows = isFiltered ? ahead.current!.at(next.first) : null;
		if (rows || !isFiltered)
			frame.current?.(next, rows);
		return true;
	};
	const onStop = (first: number) => {
		playing.current.now = null;
		ahead.current = null;
		follow(null);
		adjust(first < 0 ? {window: null, span: null} : {window: first});
	};
	const filtered = useAnswer(() => {
		const rows = followed === null ? null : ahead.current?.at(seen.first);
		return !isFiltered || !windows ? null : rows ? Promise.resolve(rows) : filteredAsk(props, filter, bounds.from, bounds.until);
	},
		[props.trace, props.recording, props.model, filter, isFiltered, windows, bounds.from, bounds.until]);
	return (
		<div class="view heatmap">
			<Fold title={`What is shown: ${metrics.find(([key]) => key === metric)?.[1] ?? 'tokens'}, ${phase === 'all' ? 'all phases' : phase}, ${filterText(filter)}`}>
				<Controls props={props} phase={phase} metric={metric} filter={filter} hasMap={Boolean(source.value?.map)} />
			</Fold>
			<Wait answer={source}>
				{(value) => (
					<>
						{value.windows.n > 1 && <Fold title={`Time: ${seen.isAll ? 'all of it' : `from window ${seen.first + 1} of ${value.windows.n}`}`}>
							<Player windows={value.windows} seen={seen} onFrame={onFrame} onFollow={follow} onStop={onStop} />
						</Fold>}
						{value.load && !isFiltered ? <Whole {...props} source={value} playing={playing.current} frame={frame} filtered={null} seen={seen} phase={phase} metric={metric} filter={filter} />
							: <Wait answer={filtered}>{(rows) => <Whole {...props} source={value} playing={playing.current} frame={frame} filtered={rows} seen={seen} phase={phase} metric={metric} filter={filter} />}</Wait>}
					</>
				)}
			</Wait>
		</div>
	);
}

// While it plays the scale stays: that of the widest window, or of the widest that a filter has met.
function useScale({source, phase, metric, isRanks}: Shown, scaleName: string, seen: Windows, isFiltered: boolean, what: string): (values: Float64Array) => Scale {
	const met = useRef<{what: string; scale: Scale} | null>(null);
	const span = seen.last - seen.first + 1;
	const own = (values: Float64Array) => scaleOf(values, metric, scaleName === 'log', scaleName === 'clip');
	const ofWindows = useMemo(() => {
		if (seen.isAll || !source.load || isFiltered || isRanks)
			return null;
		let scale: Scale | null = null;
		for (let first = 0; first + span <= source.windows.n; first += Math.max(1, Math.floor(span / 2)))
			scale = widest(scale, own(valuesOf(source.load.matrix(phase, first, first + span - 1), source.layers, metric)));
		return scale;
	}, [source, phase, metric, scaleName, span, seen.isAll, isFiltered, isRanks]);
	return (values) => {
		if (seen.isAll || ofWindows)
			return ofWindows ?? own(values);
		met.current = {what, scale: widest(met.current?.what === what ? met.current.scale : null, own(values))};
		return met.current.scale;
	};
}

function Whole({source, filtered, seen, phase, metric, filter, playing, frame, ...props}: ViewProps & {
	source: Source;
	filtered: Arrays | null;
	seen: Windows;
	phase: string;
	metric: Metric;
	filter: string;
	playing: Playing;
	frame: RefObject<((seen: Windows, filtered: Arrays | null) => void) | null>;
}): JSX.Element {
	const state = useAddress();
	const isRanks = state['columns'] === 'rank';
	const order = state['order'] ?? 'id';
	const scaleName = state['scale'] ?? 'linear';
	const beside = state['beside'] ?? 'ratio';
	const isByBalance = state['rows'] === 'balance';
	const room = useRef<Room>({});
	const placement = useMemo(() => (order !== 'rank' && !isRanks ? null
		: source.map && state['ranks'] === undefined ? source.map : placementInOrder(source.layers, Math.max(1, Number(state['ranks']) || usualRanks(props)))),
		[source, order, isRanks, state['ranks']]);
	const shown: Shown = {source, phase, metric, order, placement, isRanks, isByBalance, beside};
	const made = useMemo(() => frameOf(shown, seen, filtered), [source, filtered, phase, metric, order, placement, isRanks, isByBalance, beside, seen.first, seen.last]);
	const what = `${phase} ${metric} ${filter} ${scaleName} ${isRanks ? `rank ${placement!.nRanks}` : ''} ${seen.last - seen.first}`;
	const scaleAt = useScale(shown, scaleName, seen, filtered !== null, what);
	const pictureOf = ({matrix, ...rest}: Frame): Picture => ({...rest, nSlots: matrix.nSlots, scale: scaleAt(rest.values), metric, cursor: null, unit: isRanks ? 'rank' : 'expert'});
	const picture = pictureOf(made);
	const {matrix, layers, balance} = made;
	const {scale} = picture;
	frame.current = (at, rows) => {
		const next = frameOf(shown, at, rows, room.current);
		playing.now = {picture: pictureOf(next), matrix: next.matrix};
		playing.draw();
	};
	const tokens = balance.reduce((sum, b) => sum + b.tokens, 0);
	const title = `${metrics.find(([key]) => key === metric)?.[1] ?? 'tokens'} by layer and ${picture.unit}, ${phase === 'all' ? 'all phases' : phase}, ${filterText(filter)}`;
	const opened = layers.find((layer) => String(layer.layer) === state['layer']);
	const expert = Number(state['expert'] ?? NaN);
	const every = stepOf(layers.length, placeOf(picture, 1000).height, 13);
	const bounds = boundsOf(source.windows, seen);
	const more: Parameters = {...filterParameters(filter), ...bounds, phase: ['prefill', 'decode', 'verify'].includes(phase) ? phase : null};
	const of = [filter !== '' ? `of ${filterText(filter)}` : '', more['phase'] ? `in ${phase} slices` : '', seen.isAll ? '' : 'in this time'].filter((each) => each).join(', ');
	return (
		<>
			{tokens === 0 ? <p class="none">No row of {filterText(filter)} selected an expert in this phase and time.</p> : null}
			<Heat key={picture.unit} picture={picture} matrix={matrix} title={title} playing={playing} part={state['part']} onPart={(part) => adjust({part})} opened={opened && expert < opened.nSlots && !isRanks ? {layer: opened.layer, expert} : null}
				onOpen={(row, at) => !isRanks && go({layer: layers[row]!.layer, expert: at})} />
			<div class="under">
				<Legend scale={scale} />
				<PictureExports name="heatmap" title={title} canvas={() => {
					const canvas = document.createElement('canvas');
					heatFullDraw(canvasSurface(canvas, 1000, heatFullHeight(picture, 1000)), picture, 1000, title);
					return canvas;
				}} svg={() => svgOf((surface) => heatFullDraw(surface, picture, 1000, title), 1000, heatFullHeight(picture, 1000), title)} />
				<Help>{count(Math.round(tokens))} selections of routed experts.{every > 1 ? ` One of ${every} layers has its label.` : ''}{balance.some(isMarked) ? ` A ring marks the busiest ${picture.unit} of a layer where it gets more than 3 times the mean.` : ''}
					{metric === 'times' ? ' Colours are by how many times the mean: half and double are equally far from even.' : ''}{isRanks && placement === source.map ? ' Replicas share the tokens of their expert.' : ''}</Help>
			</div>
			{opened && expert < opened.nSlots && !isRanks && (isFile ? <p class="none">What is behind layer {opened.layer}, expert {expert} is not in this file: open the trace with moetrace view.</p>
				: phase === 'padding' ? <p class="none">Padding belongs to no request, and which rows of a pass were padding is not kept: what is behind layer {opened.layer}, expert {expert} cannot be told for padding alone.</p>
				: phase === 'other' ? <p class="none">Rows of drafts and of no request are counted together: what is behind layer {opened.layer}, expert {expert} cannot be told for them alone. Choose another phase.</p>
				: props.holds['ids'] ? <Cell {...props} layer={opened} expert={expert} more={more} of={of} />
					: <p class="none">The trace keeps counts alone: which requests and passes are behind layer {opened.layer}, expert {expert} is not known.</p>)}
			<details class="behind" open={state['table'] === '1'} onToggle={(event) => adjust({table: event.currentTarget.open ? '1' : null})}>
				<summary>The figures of this picture as tables</summary>
				{state['table'] === '1' && (
					<>
						<Table rows={balanceRows(layers, balance)} name="balance of the layers"
							link={(column, row) => (column === 'layer' && row['hottest_expert'] !== null && !isRanks
								? viewAddress('heatmap', {...state, layer: row['layer'] as number, expert: row['hottest_expert'] as number}) : undefined)} />
						<Table rows={cellRows(layers, matrix, picture.unit)} name="load of the experts" most={64} />
					</>
				)}
			</details>
		</>
	);
}
