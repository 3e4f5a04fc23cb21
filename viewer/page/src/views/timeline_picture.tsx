// SPDX-License-Identifier: MIT
//
// The picture of a timeline and all that moves it: wheel, pointer and keys. Where it stands, what is
// selected and where the cursor is are in the address.
import type {JSX} from 'preact';
import {useEffect, useRef, useState} from 'preact/hooks';
import type {Gap, Hit, Strip, Throttle} from '../bars';
import {barAt, barBeside, hitLines, throttlesOf, valueAt} from '../bars';
import type {Sight} from '../bars_draw';
import {AXIS, LABELS, laneKey, laneName, laneOf, layoutOf, timelineCanvas, timelineSvg} from '../bars_draw';
import {download, downloadPng} from '../export';
import {duration, real} from '../format';
import {takeKeys} from '../keys';
import {say} from '../parts';
import type {Limits} from '../pinch';
import {Fingers, pinched, wheelFactor, zoomed} from '../pinch';
import {adjust, current, go, useAddress} from '../state';
import {useTheme, useWidth} from '../use';

export interface Range {
	from: number;
	until: number;
}

export function rangeOf(text: string | undefined): Range | null {
	const match = /^(-?\d+(?:\.\d+)?)~(-?\d+(?:\.\d+)?)$/.exec(text ?? '');
	return match && Number(match[2]) > Number(match[1]) ? {from: Number(match[1]), until: Number(match[2])} : null;
}

export const textOf = (range: Range) => `${Math.round(range.from)}~${Math.round(range.until)}`;

export const wholeOf = (strip: Strip): Range => ({from: strip.start, until: Math.max(strip.end, strip.start + 1000)});

const limitsOf = (strip: Strip): Limits => ({least: 100, most: Math.max(1000, strip.end - strip.start) * 1.1});

// Up to half of it lies beside the whole; what is longer has the whole in it.
export function clampRange(strip: Strip, range: Range): Range {
	const {least, most} = limitsOf(strip);
	const span = Math.max(least, Math.min(most, range.until - range.from));
	const asked = (range.from + range.until - span) / 2;
	const [low, high] = span > strip.end - strip.start ? [strip.end - span, strip.start] : [strip.start - span * 0.5, strip.end - span * 0.5];
	const from = Math.max(low, Math.min(high, asked));
	return {from, until: from + span};
}

const numberOf = (text: string | undefined) => (text !== undefined && /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : null);

const markedOf = (state: Record<string, string>) =>
	state['kernel_id'] ? {type: 'kernels', id: Number(state['kernel_id']), node: Number(state['node'] ?? 0)}
		: state['pass'] ? {type: 'passes', id: Number(state['pass']), node: 0} : null;

export function Picture({strip, want, gaps, throttles, onHit}: {
	strip: Strip | null;
	want: (from: number | null, until: number | null, width: number) => void;
	gaps: Gap[];
	throttles: Throttle[];
	onHit: (hit: Hit) => void;
}): JSX.Element {
	const canvas = useRef<HTMLCanvasElement>(null);
	const [box, width] = useWidth();
	const theme = useTheme();
	const state = useAddress();
	const [tip, setTip] = useState<{x: number; y: number; lines: string[]} | null>(null);
	const fingers = useRef(new Fingers());
	const drag = useRef<{x: number; range: Range; isSelect: boolean; hasMoved: boolean} | null>(null);
	const whole = strip && wholeOf(strip);
	const range = rangeOf(state['range']) ?? whole;
	const selection = rangeOf(state['sel']);
	const layout = strip && layoutOf(strip, state['hide'] ?? '');
	const lane = laneOf(layout, state['lane']);
	const sight: Sight | null = range && {from: range.from, until: range.until, width, lane, cursor: numberOf(state['at']), selection, gaps, throttles, marked: markedOf(state)};
	const draw = () => {
		if (strip && sight && layout && canvas.current && width > LABELS + 50)
			timelineCanvas(canvas.current, strip, sight, layout);
	};
	useEffect(() => {
		want(range?.from ?? null, range?.until ?? null, width);
		draw();
	}, [strip, state, width, theme, gaps, throttles]);
	// Paper is light; main.tsx has set the theme when this runs.
	useEffect(() => {
		addEventListener('beforeprint', draw);
		return () => removeEventListener('beforeprint', draw);
	});
	// Several events may come before the next picture: each goes on from the address.
	const now = () => rangeOf(current()['range']) ?? whole!;
	const set = (next: Range) => strip && adjust({range: textOf(clampRange(strip, next))});
	const pixel = () => (now().until - now().from) / (width - LABELS);
	const timeAt = (x: number) => now().from + Math.max(0, x - LABELS) * pixel();
	const zoom = (factor: number, at: number) => strip && set(zoomed(now(), factor, at, limitsOf(strip)));
	const pan = (part: number) => {
		const step = (now().until - now().from) * part;
		set({from: now().from + step, until: now().until + step});
	};
	// Where the keys are: the cursor if it is in sight, else the middle.
	const cursor = () => {
		const at = numberOf(current()['at']);
		return at !== null && at >= now().from && at <= now().until ? at : (now().from + now().until) / 2;
	};
	const laneNow = () => laneOf(layout, current()['lane']);
	const laneAt = (y: number) => layout!.lanes.findIndex((each) => y >= each.top - 2 && y <= each.top + each.height + 2);
	const hitAt = (index: number, time: number) => {
		const at = layout!.lanes[index];
		return at?.track === undefined ? null : barAt(strip!, at.track, time, pixel());
	};
	const read = (index: number, time: number): string[] => {
		const at = layout!.lanes[index];
		if (!at)
			return [];
		if (at.track !== undefined) {
			const hit = hitAt(index, time);
			return hit ? hitLines(strip!, hit) : [];
		}
		const counter = strip!.counters[at.counter!]!;
		const value = valueAt(strip!, at.counter!, time);
		if (!value)
			return [`${counter.name}: nothing yet`];
		const span = value.low === value.high ? real(value.high, 2) : `${real(value.low, 2)} to ${real(value.high, 2)}`;
		return [`${counter.name}: ${span} ${counter.unit}`, `read at ${duration(value.time - strip!.start)}${counter.limit > 0 ? `, limit ${real(counter.limit, 1)} ${counter.unit}` : ''}`,
			...throttlesOf(throttles, counter).filter(({start, end}) => start <= time + pixel() && end >= time - pixel()).map(({reason}) => `clocks held down: ${reason}`)];
	};
	const readGap = (time: number) => gaps.filter((gap) => gap.start <= time + pixel() * 2 && gap.end >= time - pixel() * 2).map((gap) => gap.text);
	const tell = (index: number, time: number) => {
		adjust({lane: laneKey(layout!.lanes[index]!), at: Math.round(time)});
		say([`${laneName(strip!, layout!.lanes[index]!)}, at ${duration(time - strip!.start)}`, read(index, time).join(', ') || 'nothing', ...readGap(time)].join(': '));
	};
	const see = (hit: Hit) => {
		const {from, until} = now();
		const middle = (hit.start + hit.end) / 2;
		if (hit.start < from || hit.start > until)
			set({from: middle - (until - from) / 2, until: middle + (until - from) / 2});
		tell(laneNow(), Math.min(hit.end, Math.max(hit.start, middle)));
	};
	const step = (by: 1 | -1) => {
		const at = layout!.lanes[laneNow()]!;
		if (at.track === undefined)
			return say('A counter has no bars to go along');
		const here = hitAt(laneNow(), cursor());
		const next = barBeside(strip!, at.track, here ? here.start : cursor(), by);
		if (next)
			see(next);
		else
			say(by > 0 ? 'No further bar in sight' : 'No bar before it in sight');
	};
	const edge = (name: 'from' | 'until') => {
		const old = rangeOf(current()['sel']) ?? now();
		const next = {...old, [name]: cursor()};
		if (next.until > next.from)
			adjust({sel: textOf(next)});
		say(`Selected from ${duration(next.from - strip!.start)} to ${duration(next.until - strip!.start)}`);
	};
	const showSelection = () => {
		const held = rangeOf(current()['sel']) ?? hitAt(laneNow(), cursor());
		if (!held)
			return;
		const [from, until] = 'from' in held ? [held.from, held.until] : [held.start, held.end];
		set({from: from - (until - from) * 0.1, until: until + (until - from) * 0.1});
	};
	const choose = (index: number, time: number) => {
		const hit = hitAt(index, time);
		if (hit)
			onHit(hit);
	};
	const up = () => tell(Math.max(0, laneNow() - 1), cursor());
	const down = () => tell(Math.min(layout!.lanes.length - 1, laneNow() + 1), cursor());
	const keys: Record<string, () => unknown> = range && strip && layout && layout.lanes.length > 0 ? {
		KeyW: () => zoom(0.7, cursor()), KeyS: () => zoom(1 / 0.7, cursor()),
		KeyA: () => pan(-0.15), KeyD: () => pan(0.15), ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), KeyH: () => pan(-0.15), KeyL: () => pan(0.15),
		ArrowUp: up, ArrowDown: down, KeyK: up, KeyJ: down,
		Comma: () => step(-1), Period: () => step(1),
		Home: () => set({from: strip.start, until: strip.start + now().until - now().from}),
		End: () => set({from: strip.end - (now().until - now().from), until: strip.end}),
		KeyF: showSelection, Digit0: () => adjust({range: null}),
		Enter: () => choose(laneNow(), cursor()),
		KeyE: () => go({sel: textOf(now())}),
		BracketLeft: () => edge('from'), BracketRight: () => edge('until'),
		Escape: () => adjust({sel: null, pass: null, kernel_id: null, node: null, at: null}),
	} : {};
	return (
		<>
			<div ref={box} class="chart" tabIndex={0} role="application" aria-roledescription="timeline"
				aria-label="Timeline. W and S zoom, A and D pan, up and down choose a lane, comma and period go from bar to bar, Enter opens the bar at the cursor, E selects what is visible, brackets select from and to the cursor, F fits the selection, 0 shows all."
				onKeyDown={(event) => takeKeys(event, keys)}>
				<canvas ref={canvas} aria-hidden="true" style={{height: layout?.height ?? 120}}
					onWheel={(event) => {
						if (!range)
							return;
						event.preventDefault();
						if (Math.abs(event.deltaX) > Math.abs(event.deltaY))
							pan((event.deltaX * (event.deltaMode === 1 ? 16 : 1)) / width);
						else
							zoom(wheelFactor(event), timeAt(event.offsetX));
					}}
					onPointerDown={(event) => {
						if (!range || event.button !== 0)
							return;
						event.currentTarget.setPointerCapture(event.pointerId);
						fingers.current.down(event);
						drag.current = fingers.current.n > 1 ? null : {x: event.offsetX, range: now(), isSelect: event.shiftKey || event.offsetY < AXIS, hasMoved: false};
					}}
					onPointerMove={(event) => {
						if (!range || !strip || !layout)
							return;
						const held = drag.current;
						const moved = fingers.current.move(event);
						if (moved)
							set(pinched(now(), moved.before, moved.after, LABELS, width - LABELS, limitsOf(strip)));
						if (fingers.current.n > 1)
							return;
						if (!held) {
							const time = timeAt(event.offsetX);
							const lines = event.offsetX < LABELS ? [] : [...read(laneAt(event.offsetY), time), ...readGap(time)];
							const under = layout.lanes[laneAt(event.offsetY)];
							if (event.offsetX < LABELS && under)
								lines.push(laneName(strip, under));
							setTip(lines.length ? {x: event.offsetX, y: event.offsetY, lines} : null);
							return;
						}
						held.hasMoved ||= Math.abs(event.offsetX - held.x) > 3;
						if (!held.hasMoved)
							return;
						setTip(null);
						if (held.isSelect) {
							const a = timeAt(held.x), b = timeAt(event.offsetX);
							adjust({sel: textOf({from: Math.min(a, b), until: Math.max(a, b)})});
						} else {
							const shift = ((held.x - event.offsetX) / (width - LABELS)) * (held.range.until - held.range.from);
							set({from: held.range.from + shift, until: held.range.until + shift});
						}
					}}
					onPointerUp={(event) => {
						fingers.current.up(event);
						const held = drag.current;
						drag.current = null;
						if (!held || held.hasMoved || !strip || event.offsetX < LABELS)
							return;
						const index = laneAt(event.offsetY);
						if (index >= 0)
							adjust({lane: laneKey(layout!.lanes[index]!), at: Math.round(timeAt(event.offsetX))});
						choose(index, timeAt(event.offsetX));
					}}
					onPointerCancel={(event) => {
						fingers.current.up(event);
						drag.current = null;
					}}
					onMouseLeave={() => setTip(null)} />
				{!strip && <p class="loading">Reading the timeline ...</p>}
				{tip && <div class="tip" style={{left: Math.max(0, Math.min(tip.x + 14, width - 280)), top: tip.y + 16}}>{tip.lines.map((line, i) => <div key={i}>{line}</div>)}</div>}
			</div>
			{strip && layout && sight && (
				<p class="under">
					{sight.cursor !== null && layout.lanes[lane] && <span class="readout">{laneName(strip, layout.lanes[lane]!)} at {duration(sight.cursor - strip.start)}: {read(lane, sight.cursor).join(', ') || 'nothing'}</span>}
					<span class="exports" role="group" aria-label="The timeline as a picture">
						<button type="button" onClick={() => downloadPng('timeline.png', canvas.current!)}>PNG</button>
						<button type="button" onClick={() => download('timeline.svg', timelineSvg(strip, sight, layout), 'image/svg+xml')}>SVG</button>
					</span>
				</p>
			)}
		</>
	);
}
