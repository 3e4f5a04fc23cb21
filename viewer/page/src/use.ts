// SPDX-License-Identifier: MIT
//
// What of the window a chart depends on: its width, and light or dark.
import type {RefObject} from 'preact';
import {useEffect, useRef, useState} from 'preact/hooks';

export function useWidth(): [RefObject<HTMLDivElement | null>, number] {
	const box = useRef<HTMLDivElement>(null);
	const [width, set] = useState(0);
	useEffect(() => {
		const seen = new ResizeObserver(([entry]) => set(Math.floor(entry!.contentRect.width)));
		seen.observe(box.current!);
		return () => seen.disconnect();
	}, []);
	return [box, width];
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
