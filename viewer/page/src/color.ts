// SPDX-License-Identifier: MIT
//
// Colours: cividis for amounts and a scale of blue, grey and orange for differences, both legible to
// the colour-blind; one fixed colour and letter a role of kernels, the same in every view.

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

// After Okabe and Ito; none is so light or so dark that it is lost on a page of either theme.
export const roles: Record<string, string> = {
	gate: '#c48700', topk: '#d55e00', align: '#cc79a7', dispatch: '#8c6bb1', experts: '#0072b2', combine: '#3d9bd3',
	shared: '#5b7fb0', attention: '#009e73', norm: '#5d9c58', embed: '#8a8a2b', head: '#a08700', collective: '#b8407c',
	copy: '#8f8f8f', other: '#757575',
};

export const phases: Record<string, string> = {
	prefill: '#c48619', decode: '#4a7fb5', mixed: '#4f9a86', verify: '#b27a9c', draft: '#5f97c4', idle: '#939393',
	dummy: '#808080',
};

// What stands on a bar that is too narrow for its name, and in the legend: colour never tells alone.
export const letters: Record<string, string> = {
	gate: 'G', topk: 'T', align: 'L', dispatch: 'D', experts: 'E', combine: 'C', shared: 'S', attention: 'A', norm: 'N',
	embed: 'M', head: 'H', collective: 'X', copy: 'Y', other: 'o', prefill: 'P', decode: 'D', mixed: 'M', verify: 'V',
	draft: 'R', idle: 'I', dummy: 'U',
};

const inks = new Map<string, string>();

// Black or white, what is read better on a colour.
export function inkOn(hex: string): string {
	let ink = inks.get(hex);
	if (!ink) {
		const [r, g, b] = [1, 3, 5].map((at) => (parseInt(hex.slice(at, at + 2), 16) / 255) ** 2.2) as [number, number, number];
		ink = 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? '#000000' : '#ffffff';
		inks.set(hex, ink);
	}
	return ink;
}

// Those of a list at once: the style is looked up one time, however much is drawn with them.
export function themeColors<Name extends string>(...names: Name[]): Record<Name, string> {
	const style = getComputedStyle(document.documentElement);
	return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()])) as Record<Name, string>;
}

// The colours of the style sheet, for what is drawn.
export function themeColor(name: string): string {
	return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
