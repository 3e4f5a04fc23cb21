// SPDX-License-Identifier: MIT
//
// Numbers as people read them. NULL is a dash and never a zero.
import type {Value} from './data';

const whole = new Intl.NumberFormat('en', {maximumFractionDigits: 0});

export function count(value: Value | undefined): string {
	return typeof value === 'number' && Number.isFinite(value) ? whole.format(value) : '-';
}

// By how many digits; to make one takes longer than to use it.
const formats: Intl.NumberFormat[] = [];

export function real(value: Value | undefined, digits = 3): string {
	if (typeof value !== 'number' || !Number.isFinite(value))
		return '-';
	if (value !== 0 && (Math.abs(value) < 0.001 || Math.abs(value) >= 1e7))
		return value.toExponential(2);
	formats[digits] ??= new Intl.NumberFormat('en', {maximumFractionDigits: digits});
	return formats[digits].format(value);
}

export function percent(value: Value | undefined, digits = 2): string {
	return typeof value === 'number' && Number.isFinite(value) ? `${(value * 100).toFixed(digits)} %` : '-';
}

export function duration(ns: Value | undefined): string {
	if (typeof ns !== 'number' || !Number.isFinite(ns))
		return '-';
	const size = Math.abs(ns);
	if (size >= 60e9) {
		const seconds = Math.round(ns / 1e9);
		return `${Math.trunc(seconds / 60)} min ${seconds % 60} s`;
	}
	if (size >= 1e9)
		return `${real(ns / 1e9, 3)} s`;
	if (size >= 1e6)
		return `${real(ns / 1e6, 3)} ms`;
	if (size >= 1e3)
		return `${real(ns / 1e3, 2)} \u00b5s`;
	return `${real(ns, 0)} ns`;
}

// A point of an axis whose points are @step apart and reach to @most: all in one unit, as exact as need be.
export function pointText(ns: number, step: number, most: number): string {
	const [size, unit] = most >= 1e9 ? [1e9, 's'] as const : most >= 1e6 ? [1e6, 'ms'] as const : [1e3, '\u00b5s'] as const;
	return `${(ns / size).toFixed(Math.max(0, Math.ceil(Math.log10(size / step) - 1e-9)))} ${unit}`;
}

// By its name a column says what it holds.
export function cell(column: string, value: Value | undefined): string {
	if (value === null || value === undefined)
		return '-';
	if (typeof value === 'string')
		return value;
	if (column.endsWith('_ns'))
		return duration(value);
	if (column === 'share' || column.endsWith('_share') || column === 'share_of_rows')
		return percent(value);
	if (Number.isInteger(value))
		return column.endsWith('_id') || column === 'layer' || column === 'expert' ? String(value) : count(value);
	const size = Math.abs(value);
	return real(value, size >= 1000 ? 1 : size >= 100 ? 2 : size >= 10 ? 3 : 4);
}

// What turns text around or is not seen, but for what ends lines and what makes an emoji one.
const hidden = /(?![\t\n\r\ufe0f])[\p{Cc}\p{Cf}\p{Cs}\p{Default_Ignorable_Code_Point}\u2028\u2029]/gu;

// A trace's texts as they are shown, in the page and in pictures: nothing in them is hidden.
export function shown(text: string): string {
	return text.replace(hidden, (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`);
}

// "mean_duration_ns" as a heading.
export function heading(column: string): string {
	return column.replace(/_ns$/, '').replace(/^n_/, '').replaceAll('_', ' ');
}
