// SPDX-License-Identifier: MIT
//
// Tables: every chart has one behind it. Columns sort by their headings; a table can be taken along.
import type {ComponentChildren, JSX} from 'preact';
import {useMemo, useState} from 'preact/hooks';
import type {Row, Rows, Value} from './data';
import {objectOf} from './data';
import {csvOf, download, jsonOf} from './export';
import {cell, heading} from './format';

export type CellLink = (column: string, row: Row) => string | undefined;

// What is not known comes last, whichever way.
function compare(a: Value, b: Value, isDown: boolean): number {
	if (a === null || b === null)
		return a === b ? 0 : a === null ? 1 : -1;
	return isDown ? -order(a, b) : order(a, b);
}

function order(a: string | number, b: string | number): number {
	if (typeof a === 'number' && typeof b === 'number')
		return a - b;
	return String(a).localeCompare(String(b), 'en', {numeric: true});
}

export function Exports({rows, name}: {rows: () => Rows; name: string}): JSX.Element {
	return (
		<span class="exports">
			<button type="button" onClick={() => download(`${name}.csv`, csvOf(rows()), 'text/csv')}>CSV</button>
			<button type="button" onClick={() => download(`${name}.json`, jsonOf(rows()), 'application/json')}>JSON</button>
		</span>
	);
}

// Of a cell's text that is shown.
const MAX_TEXT = 400;

export interface TableProps {
	rows: Rows;
	name: string; // of files, and of the table for those who hear it
	caption?: ComponentChildren;
	hide?: string[];
	link?: CellLink;
	most?: number; // rows shown before "all" is asked for
	show?: (column: string, value: Value, row: Row) => ComponentChildren | undefined;
}

export function Table({rows, name, caption, hide = [], link, most = 100, show}: TableProps): JSX.Element {
	const [sorted, setSorted] = useState<{column: number; down: boolean} | null>(null);
	const [isWhole, setWhole] = useState(false);
	// By their places: names may come twice.
	const columns = rows.columns.map((column, at) => ({column, at})).filter(({column}) => !hide.includes(column));
	const list = useMemo(() => (sorted ? [...rows.rows].sort((a, b) => compare(a[sorted.column] ?? null, b[sorted.column] ?? null, sorted.down)) : rows.rows), [rows, sorted]);
	const isNumeric = (at: number) => typeof list.find((row) => row[at] !== null)?.[at] === 'number';
	const numeric = columns.map(({at}) => isNumeric(at));
	const shown = isWhole ? list : list.slice(0, most);
	const sort = (column: number) =>
		setSorted((old) => ({column, down: old?.column === column ? !old.down : isNumeric(column)}));
	// What is taken along is what is seen: these columns, in this order.
	const taken = () => ({columns: columns.map(({column}) => column), rows: list.map((row) => columns.map(({at}) => row[at] ?? null)), is_cut: rows.is_cut});

	return (
		<div class="table" role="region" aria-label={name} tabIndex={0}>
			<table>
				<caption>
					{caption ?? heading(name)} <Exports rows={taken} name={name} />
				</caption>
				<thead>
					<tr>
						{columns.map(({column, at}, i) => (
							<th key={at} scope="col" class={numeric[i] ? 'n' : ''}
								aria-sort={sorted?.column === at ? (sorted.down ? 'descending' : 'ascending') : 'none'}>
								<button type="button" onClick={() => sort(at)}>
									{heading(column)}
									{sorted?.column === at ? (sorted.down ? ' \u25be' : ' \u25b4') : ''}
								</button>
							</th>
						))}
					</tr>
				</thead>
				<tbody>
					{shown.map((values, i) => {
						const row = objectOf(rows.columns, values);
						return <tr key={i}>
							{columns.map(({column, at}, j) => {
								const target = link?.(column, row);
								const whole = show?.(column, values[at] ?? null, row) ?? cell(column, values[at]);
								const isLong = typeof whole === 'string' && whole.length > MAX_TEXT;
								const text = isLong ? `${whole.slice(0, MAX_TEXT)}\u2026` : whole;
								return (
									<td key={at} class={numeric[j] ? 'n' : typeof text === 'string' && text.length > 40 ? 'long' : ''}
										title={isLong ? 'Cut here; CSV and JSON have all of it.' : undefined}>
										{target ? <a href={target}>{text}</a> : text}
									</td>
								);
							})}
						</tr>;
					})}
				</tbody>
			</table>
			{list.length === 0 && <p class="none">no rows</p>}
			{shown.length < list.length && (
				<p>
					{shown.length} of {list.length} rows are shown.{' '}
					<button type="button" onClick={() => setWhole(true)}>Show all</button>
				</p>
			)}
			{rows.is_cut && <p class="warn">There are more rows: these are the first {rows.rows.length}.</p>}
		</div>
	);
}
