// SPDX-License-Identifier: MIT
//
// Passes, layers, operations, ranges and counters over time; what lies behind a bar, and figures of
// what is selected.
import type {JSX} from 'preact';
import {useEffect, useRef, useState} from 'preact/hooks';
import type {Strip, Sight, Gap, Hit} from '../bars';
import {barAt, heightOf, hitText, kindColor, LABELS, lanesOf, stripOf, timelineDraw, valueAt} from '../bars';
import {phases} from '../color';
import type {Row, Sections} from '../data';
import {askArrays, askRows, askSections, isFile, objects} from '../data';
import {downloadPng} from '../export';
import {cell, count, duration, heading, real} from '../format';
import {takeKeys} from '../keys';
import {Help, say, Wait} from '../parts';
import {adjust, current, go, useAddress, useAnswer, viewAddress} from '../state';
import {Table} from '../table';
import {useTheme, useWidth} from '../use';
import type {ViewProps} from '../view';

// ---- what the server is asked for while one moves ----

class Feed {
	strip: Strip | null = null;
	error: Error | null = null;
	private asked = '';
	private busy = false;

	constructor(private readonly trace: number, private readonly recording: number, private readonly changed: () => void) {}

	// Three times as wide as what is seen, and again when what is there is too coarse or too narrow.
	want(from: number | null, until: number | null, width: number): void {
		const strip = this.strip;
		if (this.busy || width <= 0)
			return;
		const span = from === null || until === null ? 0 : until - from;
		if (strip && from !== null && until !== null) {
			const pixel = span / (width - LABELS);
			const covers = Math.max(from, strip.start) >= strip.from && Math.min(until, strip.end) <= strip.until;
			if (isFile || (covers && strip.pixelNs <= pixel * 1.01 && strip.pixelNs >= pixel * 0.2))
				return;
		}
		void this.ask(from, until, width, span);
	}

	private async ask(from: number | null, until: number | null, width: number, span: number): Promise<void> {
		const parameters = {recording: this.recording, width: (width - LABELS) * (span ? 3 : 1), from: span ? Math.floor(from! - span) : null, until: span ? Math.ceil(until! + span) : null};
		const text = JSON.stringify(parameters);
		if (text === this.asked)
			return;
		this.asked = text;
		this.busy = true;
		try {
			const bars = await askArrays(this.trace, 'timeline', isFile ? {recording: this.recording} : parameters, new AbortController().signal);
			const header = bars.header as {start_ns: number; end_ns: number};
			this.strip = stripOf(bars, parameters.from ?? header.start_ns, parameters.until ?? header.end_ns + 1, isFile ? 4000 : parameters.width);
			this.error = null;
		} catch (error) {
			this.error = error as Error;
		}
		this.busy = false;
		this.changed();
	}
}

// ---- the picture ----

interface Range {
	from: number;
	until: number;
}

function rangeOf(text: string | undefined): Range | null {
	const match = /^(-?\d+(?:\.\d+)?)~(-?\d+(?:\.\d+)?)$/.exec(text ?? '');
	return match && Number(match[2]) > Number(match[1]) ? {from: Number(match[1]), until: Number(match[2])} : null;
}

const textOf = (range: Range) => `${Math.round(range.from)}~${Math.round(range.until)}`;

function clampRange(strip: Strip, range: Range): Range {
	const whole = Math.max(1000, strip.end - strip.start);
	const span = Math.max(100, Math.min(whole * 1.1, range.until - range.from));
	const from = Math.max(strip.start - span * 0.5, Math.min(strip.end - span * 0.5, range.from));
	return {from, until: from + span};
}

function Picture({feed, gaps, onHit}: {feed: Feed; gaps: Gap[]; onHit: (hit: Hit) => void}): JSX.Element {
	const canvas = useRef<HTMLCanvasElement>(null);
	const [box, width] = useWidth();
	const theme = useTheme();
	const state = useAddress();
	const [lane, setLane] = useState(0);
	const [tip, setTip] = useState<{x: number; y: number; text: string} | null>(null);
	const [, redraw] = useState(0);
	const drag = useRef<{x: number; range: Range; isSelect: boolean; hasMoved: boolean} | null>(null);
	const strip = feed.strip;
	const whole: Range | null = strip && {from: strip.start, until: Math.max(strip.end, strip.start + 1000)};
	const range = rangeOf(state['range']) ?? whole;
	const selection = rangeOf(state['sel']);
	const sight = useRef<Sight | null>(null);
	sight.current = range && {from: range.from, until: range.until, width, track: lane, selection, gaps, pass: Number(state['pass'] ?? 0)};
	useEffect(() => {
		feed.want(range?.from ?? null, range?.until ?? null, width);
		if (strip && sight.current && width > LABELS + 50)
			timelineDraw(canvas.current!, strip, sight.current);
	}, [strip, state, width, theme, lane, gaps]);
	// A pass that a link names is looked at.
	useEffect(() => {
		const pass = state['pass'];
		if (!pass || state['range'] || !strip)
			return;
		void askSections(feed['trace'], 'pass', {pass}).then((sections) => {
			const summary = objects(sections['summary'])[0];
			const begin = Number(summary?.['begin_ns']), length = Number(summary?.['duration_ns']);
			if (summary && Number.isFinite(begin))
				adjust({range: textOf(clampRange(strip, {from: begin - length, until: begin + 2 * length}))});
		}, () => undefined);
	}, [state['pass'], strip === null]);
	if (feed.error)
		return <p class="error" role="alert">{feed.error.message}</p>;
	const set = (next: Range) => strip && adjust({range: textOf(clampRange(strip, next))});
	const timeAt = (x: number) => range!.from + ((x - LABELS) / (width - LABELS)) * (range!.until - range!.from);
	const zoom = (factor: number, at: number) => set({from: at - (at - range!.from) * factor, until: at + (range!.until - at) * factor});
	const pan = (part: number) => {
		const step = (range!.until - range!.from) * part;
		set({from: range!.from + step, until: range!.until + step});
	};
	const middle = () => (range!.from + range!.until) / 2;
	const laneAt = (y: number) => lanesOf(strip!).findIndex((each) => y >= each.top - 2 && y <= each.top + each.height + 2);
	const read = (index: number, time: number): string => {
		const at = lanesOf(strip!)[index];
		if (!at)
			return '';
		if (at.counter !== undefined) {
			const counter = strip!.counters[at.counter]!;
			const value = valueAt(strip!, at.counter, time);
			return `${counter.name}: ${value === null ? 'nothing yet' : `${real(value, 2)} ${counter.unit}`}`;
		}
		const hit = barAt(strip!, sight.current!, at.track!, time);
		return hit ? hitText(strip!, hit) : '';
	};
	const tell = (index: number) => {
		setLane(index);
		const at = lanesOf(strip!)[index]!;
		const name = at.track !== undefined ? strip!.tracks[at.track]!.type : strip!.counters[at.counter!]!.name;
		say(`${name}. At the middle: ${read(index, middle()) || 'nothing'}`);
	};
	const choose = (index: number, time: number) => {
		const at = lanesOf(strip!)[index];
		const hit = at?.track !== undefined ? barAt(strip!, sight.current!, at.track, time) : null;
		if (hit)
			onHit(hit);
	};
	const keys: Record<string, () => unknown> = range && strip ? {
		KeyW: () => zoom(0.7, middle()), KeyS: () => zoom(1 / 0.7, middle()),
		KeyA: () => pan(-0.15), KeyD: () => pan(0.15), ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15),
		ArrowUp: () => tell(Math.max(0, lane - 1)), ArrowDown: () => tell(Math.min(lanesOf(strip).length - 1, lane + 1)),
		KeyF: () => selection && set({from: selection.from - (selection.until - selection.from) * 0.1, until: selection.until + (selection.until - selection.from) * 0.1}),
		Digit0: () => adjust({range: null}),
		Enter: () => choose(lane, middle()),
		KeyE: () => go({sel: textOf(range)}),
		Escape: () => adjust({sel: null, pass: null, kernel_id: null}),
	} : {};
	return (
		<div ref={box} class="chart" tabIndex={0} role="application" aria-roledescription="timeline"
			aria-label="Timeline. W and S zoom, A and D pan, up and down choose a track, Enter opens the bar at the middle, E selects what is visible, 0 shows all."
			onKeyDown={(event) => takeKeys(event, keys)}>
			<canvas ref={canvas} aria-hidden="true" style={strip ? {height: heightOf(strip)} : {height: 120}}
				onWheel={(event) => {
					if (!range)
						return;
					event.preventDefault();
					if (Math.abs(event.deltaX) > Math.abs(event.deltaY))
						pan(event.deltaX / width);
					else
						zoom(Math.exp(event.deltaY * 0.002), timeAt(event.offsetX));
				}}
				onPointerDown={(event) => {
					if (!range || event.button !== 0)
						return;
					event.currentTarget.setPointerCapture(event.pointerId);
					drag.current = {x: event.offsetX, range, isSelect: event.shiftKey, hasMoved: false};
				}}
				onPointerMove={(event) => {
					if (!range || !strip)
						return;
					const held = drag.current;
					if (!held) {
						const text = read(laneAt(event.offsetY), timeAt(event.offsetX));
						setTip(text ? {x: event.offsetX, y: event.offsetY, text} : null);
						return;
					}
					held.hasMoved ||= Math.abs(event.offsetX - held.x) > 3;
					if (!held.hasMoved)
						return;
					if (held.isSelect) {
						const a = timeAt(held.x), b = timeAt(event.offsetX);
						adjust({sel: textOf({from: Math.min(a, b), until: Math.max(a, b)})});
					} else {
						const step = ((held.x - event.offsetX) / (width - LABELS)) * (held.range.until - held.range.from);
						set({from: held.range.from + step, until: held.range.until + step});
					}
				}}
				onPointerUp={(event) => {
					const held = drag.current;
					drag.current = null;
					if (held && !held.hasMoved && strip)
						choose(laneAt(event.offsetY), timeAt(event.offsetX));
					redraw((n) => n + 1);
				}}
				onMouseLeave={() => setTip(null)} />
			{!strip && <p class="loading">Reading the timeline ...</p>}
			{tip && <div class="tip" style={{left: Math.min(tip.x + 14, width - 280), top: tip.y + 16}}>{tip.text}</div>}
		</div>
	);
}

// ---- behind a bar ----

function Pass({trace, pass, holds}: ViewProps & {pass: string}): JSX.Element {
	const answer = useAnswer(() => askSections(trace, 'pass', {pass}), [trace, pass]);
	return (
		<section aria-label={`Pass ${pass}`}>
			<h2>Pass {pass} <button type="button" onClick={() => adjust({pass: null})}>Close</button></h2>
			<Wait answer={answer} what="Reading">
				{(sections) => {
					const summary = objects(sections['summary'])[0];
					if (!summary)
						return <p class="error">There is no pass {pass} in this trace.</p>;
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

function Kernel({trace, id}: ViewProps & {id: string}): JSX.Element {
	const answer = useAnswer(() => askRows(trace, 'kernel', {kernel_id: id}), [trace, id]);
	return (
		<section aria-label="Operation">
			<h2>Operation {id} <button type="button" onClick={() => adjust({kernel_id: null})}>Close</button></h2>
			<Wait answer={answer} what="Reading">
				{(rows) => (
					<dl class="inline">{Object.entries(objects(rows)[0] ?? {}).filter(([, value]) => value !== null).map(([column, value]) => (
						<div key={column}><dt>{heading(column)}</dt><dd>{column === 'pass_id' ? <a href={viewAddress('timeline', {pass: value})}>{value}</a> : cell(column, value)}</dd></div>
					))}</dl>
				)}
			</Wait>
		</section>
	);
}

function Selection({trace, recording, range, start}: ViewProps & {range: Range; start: number}): JSX.Element {
	const answer = useAnswer<Sections>(() => askSections(trace, 'selection', {recording, from: Math.floor(range.from), until: Math.ceil(range.until)}), [trace, recording, range.from, range.until]);
	return (
		<section class="selection" aria-label="What is selected">
			<h2>{duration(range.until - range.from)} from {duration(range.from - start)} on <button type="button" onClick={() => adjust({sel: null})}>Close</button></h2>
			<Wait answer={answer}>
				{(sections) => (
					<>
						<Table rows={sections['passes']!} name="passes in the selection" />
						{sections['kernels']!.rows.length > 0 && <Table rows={sections['kernels']!} name="operations in the selection" most={20} />}
						{sections['energy']!.rows.length > 0 && <Table rows={sections['energy']!} name="energy in the selection" />}
						{sections['gaps']!.rows.length > 0 && <Table rows={sections['gaps']!} name="losses in the selection" />}
					</>
				)}
			</Wait>
		</section>
	);
}

// ---- the view ----

function Keys({strip}: {strip: Strip}): JSX.Element {
	const seen = new Set<number>(strip.bars.of['kind'] as Uint8Array);
	return (
		<p class="keys">{[true, false].map((isPhase) => {
			const kinds = [...seen].map((i) => strip.kinds[i]!).filter((kind) => kind !== 'layer' && (kind in phases) === isPhase);
			return kinds.length > 0 && <span key={String(isPhase)} class="keys">{isPhase ? 'passes:' : 'operations:'}{kinds.map((kind) => (
				<span key={kind}><span class="swatch" style={{background: kindColor(kind)}} />{kind}</span>
			))}</span>;
		})}</p>
	);
}

export function Timeline(props: ViewProps): JSX.Element {
	const {trace, recording} = props;
	const state = useAddress();
	const [, changed] = useState(0);
	const [feed] = useState(() => new Feed(trace, recording, () => changed((n) => n + 1)));
	const gapRows = useAnswer(() => askRows(trace, 'gaps', {recording}), [trace, recording]);
	const gaps: Gap[] = objects(gapRows.value).map((row) => ({start: Number(row['start_ns']), end: Number(row['end_ns']), text: `${String(row['stream'])}: ${count(row['n_lost'])} lost (${String(row['reason'])})`}));
	const strip = feed.strip;
	const selection = rangeOf(state['sel']);
	const onHit = (hit: Hit) => {
		const type = strip!.tracks[hit.track]!.type;
		if (type === 'passes')
			go({pass: hit.id, kernel_id: null, range: current()['range'] ?? textOf({from: strip!.start, until: strip!.end})});
		else if (type === 'kernels' && hit.id > 0 && !isFile)
			go({kernel_id: hit.id, pass: null});
		else
			go({sel: textOf({from: hit.start, until: hit.end})});
	};
	const n = strip?.tracks.reduce((sum, track) => sum + track.n, 0) ?? 0;
	return (
		<div class="view timeline">
			<div class="controls">
				<button type="button" onClick={() => adjust({range: null})}>All of it</button>
				{!isFile && <button type="button" disabled={!strip} onClick={() => go({sel: current()['range'] ?? textOf({from: strip!.start, until: strip!.end + 1})})}>Figures of what is visible</button>}
				<span class="exports"><button type="button" onClick={() => downloadPng('timeline.png', document.querySelector('.timeline canvas')!)}>PNG</button></span>
				{strip && <span class="quiet">{count(n)} bars over {duration(strip.end - strip.start)}</span>}
				{strip && strip.nLeftOut > 0 && <span class="warn">{count(strip.nLeftOut)} more are not shown: there are too many, or their times cannot be true</span>}
			</div>
			<Picture feed={feed} gaps={gaps} onHit={onHit} />
			{strip && <Keys strip={strip} />}
			{gaps.length > 0 && <p class="warn">Hatched: something was lost. {gaps.slice(0, 5).map((gap) => gap.text).join('; ')}{gaps.length > 5 ? '; ...' : ''}</p>}
			<Help>Scroll to zoom, drag to pan, drag with Shift to select; W, A, S, D and the arrow keys do the same.</Help>
			{state['pass'] && !isFile && <Pass {...props} pass={state['pass']} />}
			{state['kernel_id'] && !isFile && <Kernel {...props} id={state['kernel_id']} />}
			{selection && strip && !isFile && <Selection {...props} range={selection} start={strip.start} />}
		</div>
	);
}
