// SPDX-License-Identifier: MIT
//
// What of the window a chart depends on: its width, and light or dark.
import type {RefObject} from 'preact';
import {useEffect, useRef, useState} from 'preact/hooks';

export function useWidth(): [RefObject<HTMLDivElement | null>, number] {
	const box = useRef<HTMLDivElement>(null);
	const [width, set] = useState(0);
	const seen = useRef<{element: Element | null; observer: ResizeObserver} | null>(null);
	// The box may come and go between what is drawn.
	useEffect(() => {
		seen.current ??= {element: null, observer: new ResizeObserver(([entry]) => set(Math.floor(entry!.contentRect.width)))};
		if (seen.current.element === box.current)
			return;
		seen.current.observer.disconnect();
		seen.current.element = box.current;
		if (box.current)
			seen.current.observer.observe(box.current);
	});
	useEffect(() => () => seen.current?.observer.disconnect(), []);
	return [box, width];
}

// Drawn after every change of what it shows, and again in the colours of paper before it is printed.
export function useDraw(draw: () => void): void {
	const latest = useRef(draw);
	latest.current = draw;
	useEffect(draw);
	useEffect(() => {
		const print = () => latest.current();
		addEventListener('beforeprint', print);
		return () => removeEventListener('beforeprint', print);
	}, []);
}

// Room for one column of a phone: as the style sheet has it.
const narrow = matchMedia('(max-width: 32rem)');

export function useNarrow(): boolean {
	const [isNarrow, set] = useState(narrow.matches);
	useEffect(() => {
		const listener = () => set(narrow.matches);
		narrow.addEventListener('change', listener);
		listener();
		return () => narrow.removeEventListener('change', listener);
	}, []);
	return isNarrow;
}

const listeners = new Set<() => void>();

export function themeChanged(): void {
	for (const listener of listeners)
		listener();
}

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', themeChanged);

// A canvas does not follow the style sheet by itself.
export function useTheme(): number {
	const [n, set] = useState(0);
	useEffect(() => {
		const listener = () => set((old) => old + 1);
		listeners.add(listener);
		return () => {
			listeners.delete(listener);
		};
	}, []);
	return n;
}
