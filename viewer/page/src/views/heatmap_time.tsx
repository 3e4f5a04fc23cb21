// SPDX-License-Identifier: MIT
//
// The slider of time under the heatmap: so many windows at a time, from one on; it plays through them.
import type {JSX} from 'preact';
import {useEffect, useState} from 'preact/hooks';
import type {Arrays} from '../data';
import {duration} from '../format';
import {Choice} from '../parts';
import {adjust, current} from '../state';

export interface Windows {
	first: number;
	last: number;
	isAll: boolean;
}

export function windowsOf(state: Record<string, string>, n: number): Windows {
	if (state['window'] === undefined || n === 0)
		return {first: 0, last: Math.max(0, n - 1), isAll: true};
	const first = Math.max(0, Math.min(n - 1, Number(state['window']) || 0));
	return {first, last: Math.min(n - 1, first + Math.max(1, Number(state['span']) || 1) - 1), isAll: false};
}

export function boundsOf(windows: Arrays, {first, last, isAll}: Windows): {from: number | null; until: number | null} {
	return isAll || windows.n === 0 ? {from: null, until: null}
		: {from: windows.of['start_ns']![first]!, until: windows.of['start_ns']![last]! + windows.of['length_ns']![last]!};
}

export function Player({windows, seen}: {windows: Arrays; seen: Windows}): JSX.Element {
	const [plays, setPlays] = useState(false);
	const n = windows.n;
	const span = seen.isAll ? 1 : seen.last - seen.first + 1;
	useEffect(() => {
		if (!plays)
			return;
		let frame = 0;
		let at = seen.isAll ? -1 : seen.first;
		let before = 0;
		// Whoever wants less motion gets a step a second.
		const wait = matchMedia('(prefers-reduced-motion: reduce)').matches ? 1000 : 120;
		const step = (now: number) => {
			if (now - before >= wait) {
				before = now;
				at = (at + 1) % Math.max(1, n - (Number(current()['span']) || 1) + 1);
				adjust({window: at});
			}
			frame = requestAnimationFrame(step);
		};
		frame = requestAnimationFrame(step);
		return () => cancelAnimationFrame(frame);
	}, [plays]);
	const origin = windows.of['start_ns']![0]!;
	const start = windows.of['start_ns']![seen.first]!;
	const end = windows.of['start_ns']![seen.last]! + windows.of['length_ns']![seen.last]!;
	const spans = [1, 2, 3, 5, 10, 20, 50].filter((each) => each < n || each === span);
	return (
		<div class="player controls" role="group" aria-label="Time">
			<button type="button" aria-pressed={plays} onClick={() => setPlays(!plays)}>{plays ? 'Pause' : 'Play'}</button>
			<label><span>time</span>
				<input type="range" min={0} max={Math.max(0, n - span)} value={seen.first} aria-valuetext={`${duration(start - origin)} to ${duration(end - origin)}`}
					onInput={(event) => adjust({window: event.currentTarget.value})} />
			</label>
			<Choice label="windows at a time" value={String(span)} options={spans.map((each) => [String(each), String(each)] as const)}
				onChange={(value) => adjust({window: seen.first, span: value === '1' ? null : value})} />
			<button type="button" disabled={seen.isAll} onClick={() => {
				setPlays(false);
				adjust({window: null, span: null});
			}}>All of it</button>
			<span>{seen.isAll ? 'all: ' : `${seen.first === seen.last ? `window ${seen.first + 1}` : `windows ${seen.first + 1} to ${seen.last + 1}`} of ${n}: `}{duration(start - origin)} to {duration(end - origin)}</span>
		</div>
	);
}
