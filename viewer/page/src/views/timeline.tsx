// SPDX-License-Identifier: MIT
//
// Passes, layers, operations, ranges and counters over time; what lies behind a bar, and figures of
// what is selected.
import type {JSX} from 'preact';
import {useEffect, useMemo, useState} from 'preact/hooks';
import type {Gap, Hit, Strip, Throttle} from '../bars';
import {groups, kindColor} from '../bars_draw';
import {inkOn, letters, phases, roles} from '../color';
import {askRows, askSections, isFile, objects} from '../data';
import {Feed} from '../feed';
import {count, duration} from '../format';
import {Help} from '../parts';
import {adjust, current, go, useAddress, useAnswer, useRefreshes} from '../state';
import type {ViewProps} from '../view';
import {Kernel, Pass, Selection, Sources, Tables} from './timeline_behind';
import type {Range} from './timeline_picture';
import {clampRange, Picture, rangeOf, textOf, wholeOf} from './timeline_picture';

// ---- around the picture ----

// What is drawn, each with its letter: roles and phases in their order.
function Legend({strip}: {strip: Strip}): JSX.Element {
	const seen = new Set(Array.from(strip.bars.of['kind'] as Uint8Array, (i) => strip.kinds[i]!));
	return (
		<div class="keys legend-line">{([['passes', phases], ['operations', roles]] as const).map(([title, all]) => {
			const kinds = Object.keys(all).filter((kind) => seen.has(kind));
			return kinds.length > 0 && <span key={title} class="keys" role="group" aria-label={`colours of ${title}`}>{title}:{kinds.map((kind) => (
				<span key={kind}><span class="swatch letter" style={{background: kindColor(kind), color: inkOn(kindColor(kind))}} aria-hidden="true">{letters[kind]}</span>{kind}</span>
			))}</span>;
		})}</div>
	);
}

// Which groups of lanes are shown.
function Groups({strip, hidden}: {strip: Strip; hidden: string}): JSX.Element {
	const list = hidden ? hidden.split(',') : [];
	const there = Object.keys(groups).filter((type) => (type === 'counters' ? strip.counters.length > 0 : strip.tracks.some((track) => track.type === type)));
	return (
		<span class="groups" role="group" aria-label="Lanes shown">{there.map((type) => (
			<label key={type}><input type="checkbox" checked={!list.includes(type)}
				onChange={() => adjust({hide: list.includes(type) ? list.filter((each) => each !== type).join(',') : [...list, type].join(','), lane: null})} />{groups[type]!.title}</label>
		))}</span>
	);
}

// Each loss, and the way to it.
function Losses({gaps, strip}: {gaps: Gap[]; strip: Strip}): JSX.Element {
	const around = (gap: Gap): Range => {
		const more = Math.max(1e6, gap.end - gap.start);
		return clampRange(strip, {from: gap.start - more, until: gap.end + more});
	};
	return (
		<p class="warn">Hatched: something was lost. {gaps.slice(0, 5).map((gap, i) => (
			<span key={i}>{i > 0 && '; '}<button type="button" class="link" onClick={() => adjust({range: textOf(around(gap))})}>{gap.text}</button></span>
		))}{gaps.length > 5 ? `; and ${count(gaps.length - 5)} more, which a selection lists` : ''}</p>
	);
}

const isBeyond = (strip: Strip, range: Range | null) => range !== null && strip.end > strip.start && (range.until <= strip.start || range.from >= strip.end);

// ---- the view ----

// A large trace is shown while it is still read.
function Reading({feed}: {feed: Feed}): JSX.Element {
	return (
		<p class="reading">
			<progress value={feed.progress} aria-label="read so far" />
			{' '}{Math.floor(feed.progress * 100)} % of the trace is read{feed.isHeld ? '; the rest is missing here' : ': the picture becomes whole'}.{' '}
			<button type="button" onClick={() => feed.hold(!feed.isHeld)}>{feed.isHeld ? 'Read on' : 'Stop reading'}</button>
		</p>
	);
}

export function Timeline(props: ViewProps): JSX.Element {
	const {trace, recording} = props;
	const state = useAddress();
	const [, changed] = useState(0);
	const [feed] = useState(() => new Feed(trace, recording, () => changed((n) => n + 1)));
	useEffect(() => () => feed.end(), [feed]);
	const gapRows = useAnswer(() => askRows(trace, 'gaps', {recording}), [trace, recording]);
	const gaps: Gap[] = objects(gapRows.value).map((row) => ({
		start: Number(row['start_ns']), end: Number(row['end_ns']), nLost: Number(row['n_lost']),
		text: `${String(row['stream'])}: ${count(row['n_lost'])} lost (${String(row['reason'])})`,
	}));
	const throttleRows = useAnswer(() => askRows(trace, 'throttles', {recording}), [trace, recording]);
	const throttles: Throttle[] = useMemo(() => objects(throttleRows.value).map((row) => ({
		device: String(row['device']), start: Number(row['start_ns']), end: Number(row['end_ns']), nReadings: Number(row['n_readings']), reason: String(row['reason']),
	})), [throttleRows.value]);
	const refreshes = useRefreshes();
	useEffect(() => {
		if (refreshes > 0)
			feed.refresh(rangeOf(current()['range']));
	}, [refreshes]);
	const strip = feed.strip;
	const selection = rangeOf(state['sel']);
	// A pass that a link names is looked at.
	useEffect(() => {
		const pass = state['pass'];
		if (!pass || state['range'] || !strip)
			return;
		void askSections(trace, 'pass', {recording, pass}).then((sections) => {
			const summary = objects(sections['summary'])[0];
			const begin = Number(summary?.['begin_ns']), length = Number(summary?.['duration_ns']);
			if (summary && Number.isFinite(begin))
				adjust({range: textOf(clampRange(strip, {from: begin - length * 0.1, until: begin + 1.1 * length}))});
		}, () => undefined);
	}, [state['pass'], strip === null]);
	const onHit = (hit: Hit) => {
		const type = strip!.tracks[hit.track]!.type;
		if (type === 'passes' && hit.count === 1)
			go({pass: hit.id, kernel_id: null, node: null, range: current()['range'] ?? textOf(wholeOf(strip!))});
		else if ((type === 'kernels' || type === 'collectives') && hit.count === 1 && !isFile)
			go({kernel_id: hit.id, node: hit.node || null, pass: null});
		else
			go({sel: textOf({from: hit.start, until: Math.max(hit.end, hit.start + 1)})});
	};
	if (feed.error)
		return <p class="error" role="alert">{feed.error.message}</p>;
	const n = strip?.tracks.reduce((sum, track) => sum + track.n, 0) ?? 0;
	const hidden = state['hide'] ?? '';
	return (
		<div class="view timeline">
			<div class="controls">
				<button type="button" onClick={() => adjust({range: null})}>All of it</button>
				{!isFile && <button type="button" disabled={!strip} onClick={() => go({sel: current()['range'] ?? textOf({from: strip!.start, until: strip!.end + 1})})}>Figures of what is visible</button>}
				{strip && <Groups strip={strip} hidden={hidden} />}
				{strip && <span class="quiet">{count(n)} bars over {duration(strip.end - strip.start)}</span>}
				{strip && strip.nLeftOut > 0 && <span class="warn">{count(strip.nLeftOut)} more are not shown: there are too many, or their times cannot be true</span>}
			</div>
			{strip && feed.progress < 1 && <Reading feed={feed} />}
			{strip && <Legend strip={strip} />}
			<Picture strip={strip} want={(from, until, width) => feed.want(from, until, width)} gaps={gaps} throttles={throttles} onHit={onHit} />
			{strip && isBeyond(strip, rangeOf(state['range'])) && <p class="warn" role="status">Nothing lies there: the trace goes on for {duration(strip.end - strip.start)}, and this is wholly {rangeOf(state['range'])!.until <= strip.start ? 'before' : 'after'} it.{' '}
				<button type="button" onClick={() => adjust({range: null})}>Show all of it</button></p>}
			{gaps.length > 0 && strip && <Losses gaps={gaps} strip={strip} />}
			<Help>Scroll to zoom at the pointer, drag to pan, drag with Shift or on the axis to select; the keys are in the sheet of shortcuts (?).</Help>
			{state['pass'] && !isFile && <Pass {...props} pass={state['pass']} />}
			{state['kernel_id'] && !isFile && <Kernel {...props} id={state['kernel_id']} node={state['node']} />}
			{selection && strip && !isFile && <Selection {...props} range={selection} start={strip.start} />}
			{strip && <Tables strip={strip} throttles={throttles} range={rangeOf(state['range']) ?? wholeOf(strip)} hidden={hidden} isOpen={state['table'] === '1'} />}
			{strip && <Sources {...props} strip={strip} />}
		</div>
	);
}
