// SPDX-License-Identifier: MIT
//
// SQL over the trace: the schema beside it, the cookbook's queries to start from, the result as a
// table, as lines, bars or a heatmap. The server cuts off what takes too long; "Cancel" does so at once.
import type {JSX} from 'preact';
import {useEffect, useRef, useState} from 'preact/hooks';
import type {Rows} from '../data';
import {askQuery, askRows, cookbook, objects} from '../data';
import {Chart, Grid, LinesChart} from '../chart';
import {Choice, Wait} from '../parts';
import {barsDraw} from '../plot';
import {adjust, go, useAddress, useAnswer} from '../state';
import {Table} from '../table';
import type {ViewProps} from '../view';

interface Recipe {
	title: string;
	sql: string;
}

// "## Title", text, ```sql ... ```
export function recipesOf(markdown: string): Recipe[] {
	const recipes: Recipe[] = [];
	let title = '';
	let sql: string[] | null = null;
	for (const line of markdown.split('\n')) {
		if (sql && line.startsWith('```')) {
			recipes.push({title, sql: sql.join('\n')});
			sql = null;
		} else if (sql)
			sql.push(line);
		else if (line.startsWith('```sql'))
			sql = [];
		else if (line.startsWith('#'))
			title = line.replace(/^#+\s*/, '');
	}
	return recipes;
}

function Schema({trace, onPick}: {trace: number; onPick: (text: string) => void}): JSX.Element {
	const answer = useAnswer(() => askRows(trace, 'schema'), [trace]);
	return (
		<Wait answer={answer} what="Reading">
			{(rows) => {
				const tables = new Map<string, {type: string; columns: string[]}>();
				for (const row of objects(rows)) {
					const table = tables.get(String(row['name'])) ?? {type: String(row['type']), columns: []};
					table.columns.push(String(row['column']));
					tables.set(String(row['name']), table);
				}
				return (
					<ul class="schema">
						{[...tables].map(([name, table]) => (
							<li key={name}>
								<details>
									<summary>{name} {table.type === 'view' && <span class="quiet">view</span>}</summary>
									<ul>{table.columns.map((column) => <li key={column}><button type="button" onClick={() => onPick(column)}>{column}</button></li>)}</ul>
								</details>
							</li>
						))}
					</ul>
				);
			}}
		</Wait>
	);
}

// ---- the result as a picture ----

const isNumeric = (rows: Rows, i: number) => rows.rows.some((row) => typeof row[i] === 'number') && rows.rows.every((row) => typeof row[i] === 'number' || row[i] === null);

// The first column is x, every other number a line.
function AsLines({rows}: {rows: Rows}): JSX.Element {
	const lines = rows.columns.map((name, i) => ({name, i})).filter(({i}) => i > 0 && isNumeric(rows, i)).slice(0, 4);
	const colors = ['--accent', '--warn', '--good', '--quiet'];
	if (!isNumeric(rows, 0) || lines.length === 0 || rows.rows.length < 2)
		return <p class="none">Lines need two rows or more of numbers: the first column is x, the others are lines.</p>;
	const sorted = [...rows.rows].sort((a, b) => Number(a[0]) - Number(b[0]));
	return <LinesChart name="result" title="The result as lines" label="The result as lines; the table below has its numbers" height={320}
		plot={{
			x: sorted.map((row) => Number(row[0])), xLabel: rows.columns[0]!, yLabel: '',
			lines: lines.map(({name, i}, n) => ({name, values: sorted.map((row) => Number(row[i] ?? NaN)), color: colors[n]!, isDashed: n === 3})),
		}} />;
}

// The first column names the bars, the next one that holds numbers is their length.
function AsBars({rows}: {rows: Rows}): JSX.Element {
	const at = rows.columns.findIndex((_, i) => i > 0 && isNumeric(rows, i));
	if (at < 0)
		return <p class="none">Bars need two columns: a name, and a number.</p>;
	return <Chart name="result" title="The result as bars" label="The result as bars; the table below has its numbers" height={300}
		draw={(surface, width, height) => barsDraw(surface, width, height, {
			names: rows.rows.map((row) => String(row[0] ?? '-')), values: rows.rows.map((row) => Number(row[at] ?? NaN)), xLabel: rows.columns[0]!, yLabel: rows.columns[at]!,
		})} />;
}

// Three columns: row, column, value.
function AsGrid({rows}: {rows: Rows}): JSX.Element {
	const keys = (at: number) => [...new Set(rows.rows.map((row) => row[at] ?? null))].sort((a, b) => (typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b), 'en', {numeric: true})));
	const ys = keys(0), xs = keys(1);
	if (rows.columns.length < 3 || !isNumeric(rows, 2) || xs.length > 2048 || ys.length > 2048)
		return <p class="none">A heatmap needs three columns: row, column and a number; at most 2048 rows and columns.</p>;
	const values = new Float64Array(xs.length * ys.length).fill(NaN);
	const atX = new Map(xs.map((x, i) => [x, i])), atY = new Map(ys.map((y, i) => [y, i]));
	for (const row of rows.rows)
		if (row[2] !== null)
			values[atY.get(row[0]!)! * xs.length + atX.get(row[1]!)!] = Number(row[2]);
	return <Grid name="result" title="The result as a heatmap" picture={{
		rows: ys.map(String), columns: xs.map(String), values, rowTitle: rows.columns[0]!, columnTitle: rows.columns[1]!, valueTitle: rows.columns[2]!,
		isDifference: values.some((value) => value < 0),
	}} />;
}

const usual = 'SELECT phase, count(*) AS passes, avg(mean_active_experts) AS active_experts\nFROM pass_summary GROUP BY phase';

export function Query({trace, session}: ViewProps): JSX.Element {
	const state = useAddress();
	const [text, setText] = useState(usual);
	const [result, setResult] = useState<{rows?: Rows; error?: string; ms?: number}>({});
	const [running, setRunning] = useState<AbortController | null>(null);
	const last = useRef<AbortController | null>(null);
	const box = useRef<HTMLTextAreaElement>(null);
	const recipes = useAnswer(async () => recipesOf(await cookbook()), []);
	const as = state['as'] ?? 'table';
	const run = async (sql: string) => {
		const abort = new AbortController();
		const begin = performance.now();
		last.current?.abort();
		last.current = abort;
		setRunning(abort);
		setResult({});
		let now: typeof result;
		try {
			const rows = await askQuery(trace, sql, abort.signal);
			now = {rows, ms: performance.now() - begin};
		} catch (error) {
			now = {error: abort.signal.aborted ? 'cancelled' : (error as Error).message};
		}
		// Another query may have taken its place.
		if (last.current !== abort)
			return;
		last.current = null;
		setResult(now);
		setRunning(null);
	};
	// The query is the address's: who runs another makes a step that "back" returns from.
	const ask = (sql: string) => (sql === state['sql'] ? void run(sql) : go({sql}));
	useEffect(() => {
		setText(state['sql'] ?? usual);
		if (state['sql'])
			void run(state['sql']);
		else {
			last.current?.abort();
			last.current = null;
			setRunning(null);
			setResult({});
		}
	}, [trace, state['sql']]);
	useEffect(() => () => last.current?.abort(), []);
	const pick = (word: string) => {
		const at = box.current!;
		at.setRangeText(word, at.selectionStart, at.selectionEnd, 'end');
		setText(at.value);
		at.focus();
	};
	return (
		<div class="view query">
			<aside aria-label="Tables and views"><h2>Tables and views</h2><Schema trace={trace} onPick={pick} /></aside>
			<div class="main">
				<form onSubmit={(event) => {
					event.preventDefault();
					ask(text);
				}}>
					<label class="block"><span>one SQL statement that reads</span>
						<textarea ref={box} id="sql" rows={9} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)}
							onKeyDown={(event) => {
								if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
									event.preventDefault();
									ask(event.currentTarget.value);
								}
							}} />
					</label>
					<div class="controls">
						<button type="submit" class="main" disabled={running !== null}>Run (Ctrl+Enter)</button>
						<button type="button" disabled={running === null} onClick={() => running?.abort()}>Cancel</button>
						<Choice label="cookbook" value="" options={[['', 'choose a query ...'], ...(recipes.value ?? []).map((recipe, i) => [String(i), recipe.title.slice(0, 80)] as const)]}
							onChange={(value) => value && setText(recipes.value![Number(value)]!.sql)} />
						<Choice label="show as" value={as} options={[['table', 'table'], ['lines', 'lines'], ['bars', 'bars'], ['heatmap', 'heatmap']]} onChange={(value) => adjust({as: value === 'table' ? null : value})} />
					</div>
				</form>
				<div aria-live="polite" class="result">
					{running && <p class="loading">Running, for at most {session.query_limit_ms / 1000} s ...</p>}
					{result.error && <p class="error" role="alert">{result.error}</p>}
					{result.rows && <p class="quiet">{result.rows.rows.length} {result.rows.rows.length === 1 ? 'row' : 'rows'} in {Math.round(result.ms ?? 0)} ms</p>}
				</div>
				{result.rows && as === 'lines' && <AsLines rows={result.rows} />}
				{result.rows && as === 'bars' && <AsBars rows={result.rows} />}
				{result.rows && as === 'heatmap' && <AsGrid rows={result.rows} />}
				{result.rows && <Table rows={result.rows} name="result" most={200} show={(_, value) => (value === null ? undefined : String(value))} />}
			</div>
		</div>
	);
}
