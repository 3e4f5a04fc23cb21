// SPDX-License-Identifier: MIT
//
// Colours: cividis for amounts and a scale of blue, grey and orange for differences, both legible to
// the colour-blind; one fixed colour a role of kernels (Okabe and Ito), the same in every view.

type Rgb = readonly [number, number, number];

// Points of the cividis map (Nunez, Anderton, Renslow 2018), evenly spaced.
const cividis: Rgb[] = [
	[0, 32, 77], [0, 48, 111], [42, 64, 108], [72, 80, 108], [97, 96, 110], [119, 113, 116], [142, 131, 120],
	[167, 149, 119], [193, 169, 112], [221, 190, 97], [255, 233, 69],
];
const difference: Rgb[] = [
	[5, 80, 160], [60, 130, 195], [140, 180, 215], [205, 215, 222], [225, 225, 225], [230, 212, 190],
	[240, 175, 110], [225, 125, 40], [170, 75, 0],
];

function ramp(points: Rgb[]): Uint32Array {
	const colors = new Uint32Array(256);
	for (let i = 0; i < 256; i++) {
		const at = (i / 255) * (points.length - 1);
		const from = points[Math.min(Math.floor(at), points.length - 2)]!;
		const to = points[Math.min(Math.floor(at), points.length - 2) + 1]!;
		const part = at - Math.min(Math.floor(at), points.length - 2);
		const mix = from.map((c, j) => Math.round(c + (to[j]! - c) * part));
		colors[i] = 0xff000000 | (mix[2]! << 16) | (mix[1]! << 8) | mix[0]!;
	}
	return colors;
}

export const amountColors = ramp(cividis);
export const differenceColors = ramp(difference);

export function css(color: number): string {
	return `rgb(${color & 255} ${(color >> 8) & 255} ${(color >> 16) & 255})`;
}

export function abgr(hex: string): number {
	const value = parseInt(hex.slice(1), 16);
	return (0xff000000 | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

export const roles: Record<string, string> = {
	gate: '#e69f00', topk: '#d55e00', align: '#cc79a7', dispatch: '#8c6bb1', experts: '#0072b2', combine: '#56b4e9',
	shared: '#3b8fc2', attention: '#009e73', norm: '#7fbf7b', embed: '#999933', head: '#aa8f00', collective: '#882255',
	copy: '#bbbbbb', other: '#888888',
};

export const phases: Record<string, string> = {
	prefill: '#c98a1a', decode: '#4a7fb5', mixed: '#4f9a86', verify: '#b27a9c', draft: '#7aaed6', idle: '#bbbbbb',
	dummy: '#999999',
};

// The colours of the style sheet, for what is drawn.
export function themeColor(name: string): string {
	return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
