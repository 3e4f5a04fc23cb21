// SPDX-License-Identifier: MIT
//
// Everything shown can be taken along: tables as CSV or JSON, pictures as PNG or SVG.
import type {Rows, Value} from './data';

export function download(name: string, data: Blob | string, type = 'text/plain'): void {
	const url = URL.createObjectURL(data instanceof Blob ? data : new Blob([data], {type}));
	const link = document.createElement('a');
	link.href = url;
	link.download = name;
	document.body.append(link);
	link.click();
	link.remove();
	setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function csvCell(value: Value): string {
	if (value === null)
		return '';
	const text = String(value);
	return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function csvOf(rows: Rows): string {
	return [rows.columns, ...rows.rows].map((row) => row.map(csvCell).join(',')).join('\r\n') + '\r\n';
}

// Names that come again get a number: "a", "a_2".
export function ownNames(columns: string[]): string[] {
	const taken = new Set(columns);
	const seen = new Set<string>();
	return columns.map((name) => {
		let own = name;
		for (let n = 2; seen.has(own) || (own !== name && taken.has(own)); n++)
			own = `${name}_${n}`;
		seen.add(own);
		return own;
	});
}

export function jsonOf(rows: Rows): string {
	const names = ownNames(rows.columns);
	return JSON.stringify(rows.rows.map((row) => Object.fromEntries(names.map((name, i) => [name, row[i]]))), null, 1) + '\n';
}

export function downloadPng(name: string, canvas: HTMLCanvasElement): void {
	canvas.toBlob((blob) => blob && download(name, blob));
}

export function downloadSvg(name: string, text: string): void {
	download(name, text, 'image/svg+xml');
}

export function xml(text: string): string {
	return text.replace(/[<>&"']/g, (c) => `&#${c.charCodeAt(0)};`);
}
