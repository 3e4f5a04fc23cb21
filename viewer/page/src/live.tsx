// SPDX-License-Identifier: MIT
//
// A trace that is being recorded is followed: its state is asked for once a second, less often when
// nobody looks, and what is shown is asked again when the trace has changed. What is chosen stays.
import type {JSX} from 'preact';
import {useEffect, useState} from 'preact/hooks';
import type {TraceState} from './data';
import {askState, forgetAnswers, isAsking} from './data';
import {say} from './parts';
import {adjust, current, refresh, useAddress} from './state';

const EVERY_MS = 1000;
const HIDDEN_MS = 15000;

const words: Record<TraceState['state'], string> = {
	still: '', recording: 'recording', idle: 'waiting for a start', ended: 'ended', killed: 'ended: its process is gone',
	deleted: 'its file was deleted', replaced: 'its file was replaced by another',
};

function textOf(now: TraceState): string {
	if (now.state === 'ended' && now.end_reason === 'rotated')
		return 'ended: it goes on in another file';
	return now.state === 'ended' && now.end_reason && now.end_reason !== 'closed' ? `ended: ${now.end_reason}` : words[now.state];
}

// What was deleted or replaced is not asked for again; the rest may begin anew.
const isOver = (now: TraceState) => now.state === 'still' || now.state === 'deleted' || now.state === 'replaced';

class Follower {
	private timer: ReturnType<typeof setTimeout> | undefined;
	private version = '';
	private isEnded = false;

	constructor(private readonly trace: number, private readonly tell: (now: TraceState) => void) {
		document.addEventListener('visibilitychange', this.seen);
		void this.ask();
	}

	end(): void {
		this.isEnded = true;
		clearTimeout(this.timer);
		document.removeEventListener('visibilitychange', this.seen);
	}

	private readonly seen = (): void => {
		if (!document.hidden && !this.isEnded) {
			clearTimeout(this.timer);
			void this.ask();
		}
	};

	private async ask(): Promise<void> {
		try {
			const now = await askState(this.trace);
			if (this.isEnded)
				return;
			this.tell(now);
			this.take(now);
			if (isOver(now))
				return;
		} catch {
			// It is asked again; the views say what is wrong.
		}
		if (!this.isEnded)
			this.timer = setTimeout(() => void this.ask(), document.hidden ? HIDDEN_MS : EVERY_MS);
	}

	private take(now: TraceState): void {
		if (current()['paused'] === '1' || document.hidden || isAsking() || now.version === '')
			return;
		if (this.version !== '' && this.version !== now.version) {
			forgetAnswers();
			refresh();
		}
		this.version = now.version;
	}
}

export function Live({trace}: {trace: number}): JSX.Element | null {
	const [now, set] = useState<TraceState | null>(null);
	const isPaused = useAddress()['paused'] === '1';
	useEffect(() => {
		const follower = new Follower(trace, set);
		return () => follower.end();
	}, [trace]);
	const text = now ? textOf(now) : '';
	useEffect(() => {
		if (text)
			say(`The trace: ${text}`);
	}, [text]);
	if (!now || !text)
		return null;
	const isOpen = now.state === 'recording' || now.state === 'idle';
	return (
		<span class="following" role="group" aria-label="Live trace">
			<span class={`tag${isOpen ? ' live' : ''}`}>{text}</span>
			{isOpen && <button type="button" aria-pressed={isPaused} onClick={() => adjust({paused: isPaused ? null : '1'})}>{isPaused ? 'Follow' : 'Pause'}</button>}
		</span>
	);
}
