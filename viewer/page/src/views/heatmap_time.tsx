// SPDX-License-Identifier: MIT
//
// The slider of time under the heatmap: so many windows at a time, from one on; it plays through them.
import type {JSX} from 'preact';
import {useEffect, useLayoutEffect, useRef, useState} from 'preact/hooks';
import type {Arrays} from '../data';
import {duration} from '../format';
import {Choice} from '../parts';
import {adjust, useAddress} from '../state';

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

// Windows a second.
const paces = [['8', '8'], ['30', '30'], ['60', '60']] as const;

// How often all else follows what is drawn, in milliseconds.
const FOLLOW_MS = 250;

// While it plays, or the slider is drawn, @onFrame alone shows a window, or says that its rows are not here
// yet; the view follows by @onFollow, some times a second, and when it ends the address by @onStop.
export function Player({windows, seen, onFrame, onFollow, onStop}: {
	windows: Arrays;
	seen: Windows;
	onFrame: (seen: Windows) => boolean;
	onFollow: (first: number) => void;
	onStop: (first: number) => void;
}): JSX.Element {
	const [plays, setPlaysLater] = useState(false);
	const isPlaying = useRef(false); // at once, so that no frame is drawn after the last
	const setPlays = (value: boolean) => {
		isPlaying.current = value;
		setPlaysLater(value);
	};
	const slider = useRef<HTMLInputElement>(null);
	const told = useRef<HTMLSpanElement>(null);
	const at = useRef(-1); // -1: all of it
	const isDrawn = useRef(false); // the slider, by a hand
	const followed = useRef(0);
	const pace = Number(useAddress()['pace']) || 8;
	const n = windows.n;
	const span = seen.isAll ? 1 : seen.last - seen.first + 1;
	const textOf = ({first, last, isAll}: Windows) => {
		const since = (ns: number) => duration(ns - windows.of['start_ns']![0]!);
		const time = `${since(windows.of['start_ns']![first]!)} to ${since(windows.of['start_ns']![last]! + windows.of['length_ns']![last]!)}`;
		return {time, all: `${isAll ? 'all: ' : `${first === last ? `window ${first + 1}` : `windows ${first + 1} to ${last + 1}`} of ${n}: `}${time}`};
	};
	const show = (first: number): boolean => {
		const frame = {first, last: first + span - 1, isAll: false};
		const isShown = onFrame(frame);
		const now = performance.now();
		if (isShown) {
			at.current = first;
			slider.current!.value = String(first);
			told.current!.textContent = textOf(frame).all;
		}
		if (now - followed.current >= FOLLOW_MS) {
			followed.current = now;
			onFollow(isShown ? first : at.current);
		}
		return isShown;
	};
	const latest = useRef({show, nFirsts: 1});
	latest.current = {show, nFirsts: Math.max(1, n - span + 1)};
	// What the view follows is behind what is drawn.
	useLayoutEffect(() => {
		if (!plays && !isDrawn.current) {
			at.current = seen.isAll ? -1 : seen.first;
			told.current!.textContent = textOf(seen).all;
		}
	});
	useEffect(() => {
		if (!plays)
			return;
		let frame = 0;
		let before = 0;
		// Whoever wants less motion gets a step a second. Half a refresh early is in time.
		const wait = matchMedia('(prefers-reduced-motion: reduce)').matches ? 1000 : 1000 / pace - 8;
		const step = (now: number) => {
			if (isPlaying.current && now - before >= wait && latest.current.show((at.current + 1) % latest.current.nFirsts))
				before = now;
			frame = requestAnimationFrame(step);
		};
		frame = requestAnimationFrame(step);
		return () => cancelAnimationFrame(frame);
	}, [plays, pace]);
	const spans = [1, 2, 3, 5, 10, 20, 50].filter((each) => each < n || each === span);
	return (
		<div class="player controls" role="group" aria-label="Time">
			<button type="button" aria-pressed={plays} onClick={() => {
				if (plays)
					onStop(at.current);
				else
					onFollow(Math.max(0, at.current));
				setPlays(!plays);
			}}>{plays ? 'Pause' : 'Play'}</button>
			<label><span>time</span>
				<input ref={slider} type="range" min={0} max={Math.max(0, n - span)} value={plays || isDrawn.current ? Math.max(0, at.current) : seen.first} aria-valuetext={textOf(seen).time}
					onInput={(event) => {
						isDrawn.current = true;
						at.current = Number(event.currentTarget.value);
						show(at.current);
					}}
					onChange={() => {
						isDrawn.current = false;
						if (!plays)
							onStop(at.current);
					}} />
			</label>
			<Choice label="windows at a time" value={String(span)} options={spans.map((each) => [String(each), String(each)] as const)}
				onChange={(value) => adjust({window: Math.max(0, at.current), span: value === '1' ? null : value})} />
			<Choice label="a second" value={String(pace)} options={[...paces, ...(paces.some(([key]) => Number(key) === pace) ? [] : [[String(pace), String(pace)] as const])]}
				onChange={(value) => adjust({pace: value === '8' ? null : value})} />
			<button type="button" disabled={seen.isAll} onClick={() => {
				setPlays(false);
				onStop(-1);
			}}>All of it</button>
			<span ref={told} />
		</div>
	);
}
