// SPDX-License-Identifier: MIT
//
// What the server is asked for while one moves along a timeline. While it still reads the trace,
// it is asked again now and then; as long as nobody asks it stops reading by itself.
import type {Strip} from './bars';
import {stripOf} from './bars';
import {LABELS} from './bars_draw';
import {askArrays, isFile} from './data';

// How long a small trace may take to be read, so that it is shown whole at once; and until the next look.
const WAIT_MS = 300;
const AGAIN_MS = 500;

export class Feed {
	strip: Strip | null = null;
	error: Error | null = null;
	progress = 1; // of reading, from 0 to 1
	isHeld = false; // the server was told to read no more
	private asked = '';
	private busy = false;
	private timer: ReturnType<typeof setTimeout> | undefined;
	private last: [number | null, number | null, number] = [null, null, 0];
	private order: 'yes' | 'no' | null = null;
	private abort = new AbortController();

	constructor(private readonly trace: number, private readonly recording: number, private readonly changed: () => void) {}

	// Three times as wide as what is seen, and again when what is there is too coarse or too narrow.
	want(from: number | null, until: number | null, width: number): void {
		this.last = [from, until, width];
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

	// Read no more for now, or go on.
	hold(isHeld: boolean): void {
		this.isHeld = isHeld;
		this.order = isHeld ? 'no' : 'yes';
		this.again();
	}

	end(): void {
		clearTimeout(this.timer);
		this.abort.abort();
	}

	// The trace has grown: the same again, and where all of it is seen, up to its end.
	refresh(range: {from: number; until: number} | null): void {
		if (!this.strip || this.last[2] <= 0)
			return;
		this.last = [range?.from ?? null, range?.until ?? null, this.last[2]];
		this.again();
	}

	private again(): void {
		clearTimeout(this.timer);
		const [from, until, width] = this.last;
		this.asked = '';
		if (this.busy)
			this.timer = setTimeout(() => this.again(), AGAIN_MS);
		else
			void this.ask(from, until, width, from === null || until === null ? 0 : until - from);
	}

	private async ask(from: number | null, until: number | null, width: number, span: number): Promise<void> {
		const parameters = {
			recording: this.recording, width: (width - LABELS) * (span ? 3 : 1), from: span ? Math.floor(from! - span) : null, until: span ? Math.ceil(until! + span) : null,
			wait: this.strip ? null : WAIT_MS, read: this.order,
		};
		const text = JSON.stringify(parameters);
		if (text === this.asked)
			return;
		this.asked = text;
		this.order = null;
		this.busy = true;
		try {
			const bars = await askArrays(this.trace, 'timeline', isFile ? {recording: this.recording} : parameters, this.abort.signal);
			const header = bars.header as {start_ns: number; end_ns: number; step_ns: number; progress: number};
			this.strip = stripOf(bars, parameters.from ?? header.start_ns, parameters.until ?? header.end_ns + 1, parameters.width);
			this.progress = header.progress;
			this.error = null;
		} catch (error) {
			if (this.abort.signal.aborted)
				return;
			this.error = error as Error;
		}
		this.busy = false;
		if (!isFile && !this.error && this.progress < 1 && !this.isHeld)
			this.timer = setTimeout(() => this.again(), AGAIN_MS);
		this.changed();
	}
}
