// SPDX-License-Identifier: MIT
//
// SQL over the trace: the schema beside it, the cookbook's queries to start from, the result as a
// table, as lines or as a heatmap. The server cuts off what takes too long; "Cancel" does so at once.
import type {JSX} from 'preact';
import {useEffect, useRef, useState} from 'preact/hooks';
import type {Rows} from '../data';
import {askQuery, askRows, cookbook, objects} from '../data';
import {amountColors} from '../color';
import {Choice, Wait} from '../parts';
import {linesDraw} from '../plot';
import {adjust, useAddress, useAnswer} from '../state';
import {Table} from '../table';
import {useTheme, useWidth} from '../use';
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

// The first column is x, every other number a line.
function Chart({rows}: {rows: Rows}): JSX.Element {
	const canvas = useRef<HTMLCanvasElement>(null);
	const [box, width] = useWidth();
	const theme = useTheme();
	const numeric = rows.columns.map((_, i) => rows.rows.every((row) => typeof row[i] === 'number' || row[i] === null));
	const lines = rows.columns.map((name, i) => ({name, i})).filter(({i}) => i > 0 && numeric[i]).slice(0, 4);
	const colors = ['--accent', '--warn', '--good', '--quiet'];
	const isUsable = numeric[0] && lines.length > 0 && rows.rows.length > 1;
	useEffect(() => {
		if (isUsable && width > 0)
			linesDraw(canvas.current!, width, 320, {
				x: rows.rows.map((row) => Number(row[0])),
				lines: lines.map(({name, i}, n) => ({name, values: rows.rows.map((row) => Number(row[i] ?? NaN)), color: colors[n]!})),
				xLabel: rows.columns[0]!, yLabel: '',
			});
	}, [rows, width, theme]);
	return isUsable ? <div ref={box} class="chart" role="img" aria-label="The result as lines"><canvas ref={canvas} aria-hidden="true" /></div>
		: <p class="none">Lines need numbers: the first column is x, the others are lines.</p>;
}

// Three columns: row, column, value.
function Grid({rows}: {rows: Rows}): JSX.Element {
	const canvas = useRef<HTMLCanvasElement>(null);
	const ys = [...new Set(rows.rows.map((row) => row[0]))].sort((a, b) => Number(a) - Number(b));
	const xs = [...new Set(rows.rows.map((row) => row[1]))].sort((a, b) => Number(a) - Number(b));
	const isUsable = rows.columns.length >= 3 && rows.rows.every((row) => typeof row[2] === 'number' || row[2] === null) && xs.length <= 2048 && ys.length <= 2048 && xs.length > 0;
	useEffect(() => {
		if (!isUsable)
			return;
		canvas.current!.width = xs.length;
		canvas.current!.height = ys.length;
		const context = canvas.current!.getContext('2d')!;
		const image = context.createImageData(xs.length, ys.length);
		const pixels = new Uint32Array(image.data.buffer);
		const most = Math.max(...rows.rows.map((row) => Number(row[2] ?? 0))) || 1;
		const atX = new Map(xs.map((x, i) => [x, i])), atY = new Map(ys.map((y, i) => [y, i]));
		for (const row of rows.rows)
			if (row[2] !== null)
				pixels[atY.get(row[0]!)! * xs.length + atX.get(row[1]!)!] = amountColors[Math.max(0, Math.min(255, Math.round((Number(row[2]) / most) * 255)))]!;
		context.putImageData(image, 0, 0);
	}, [rows]);
	return isUsable ? (
		<div class="chart" role="img" aria-label={`${rows.columns[2]!} by ${rows.columns[0]!} and ${rows.columns[1]!}`}>
			<canvas class="cells" ref={canvas} aria-hidden="true" style={{height: Math.max(120, Math.min(500, ys.length * 10))}} />
			<p class="quiet">{rows.columns[0]} down ({ys.length}), {rows.columns[1]} across ({xs.length}), {rows.columns[2]} as colour</p>
		</div>
	) : <p class="none">A heatmap needs three columns: row, column and a number.</p>;
}

export function Query({trace, session}: ViewProps): JSX.Element {
	const state = useAddress();
	const [text, setText] = useState(state['sql'] ?? 'SELECT phase, count(*) AS passes, avg(mean_active_experts) AS active_experts\nFROM pass_summary GROUP BY phase');
	const [result, setResult] = useState<{rows?: Rows; error?: string; ms?: number}>({});
	const [running, setRunning] = useState<AbortController | null>(null);
	const box = useRef<HTMLTextAreaElement>(null);
	const recipes = useAnswer(async () => recipesOf(await cookbook()), []);
	const as = state['as'] ?? 'table';
	const run = async (sql: string) => {
		const abort = new AbortController();
		const begin = performance.now();
		setRunning(abort);
		setResult({});
		adjust({sql});
		try {
			const rows = await askQuery(trace, sql, abort.signal);
			setResult({rows, ms: performance.now() - begin});
		} catch (error) {
			setResult({error: abort.signal.aborted ? 'cancelled' : (error as Error).message});
		}
		setRunning(null);
	};
	useEffect(() => {
		if (state['sql'])
			void run(state['sql']);
	}, [trace]);
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
					void run(text);
				}}>
					<label class="block"><span>one SQL statement that reads</span>
						<textarea ref={box} id="sql" rows={9} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)}
							onKeyDown={(event) => {
								if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
									event.preventDefault();
									void run(event.currentTarget.value);
								}
							}} />
					</label>
					<div class="controls">
						<button type="submit" class="main" disabled={running !== null}>Run (Ctrl+Enter)</button>
						<button type="button" disabled={running === null} onClick={() => running?.abort()}>Cancel</button>
						<Choice label="cookbook" value="" options={[['', 'choose a query ...'], ...(recipes.value ?? []).map((recipe, i) => [String(i), recipe.title.slice(0, 80)] as const)]}
							onChange={(value) => value && setText(recipes.value![Number(value)]!.sql)} />
						<Choice label="show as" value={as} options={[['table', 'table'], ['lines', 'lines'], ['heatmap', 'heatmap']]} onChange={(value) => adjust({as: value === 'table' ? null : value})} />
					</div>
				</form>
				<div aria-live="polite" class="result">
					{running && <p class="loading">Running, for at most {session.query_limit_ms / 1000} s ...</p>}
					{result.error && <p class="error" role="alert">{result.error}</p>}
					{result.rows && <p class="quiet">{result.rows.rows.length} rows in {Math.round(result.ms ?? 0)} ms</p>}
				</div>
				{result.rows && as === 'lines' && <Chart rows={result.rows} />}
				{result.rows && as === 'heatmap' && <Grid rows={result.rows} />}
				{result.rows && <Table rows={result.rows} name="result" most={200} show={(_, value) => (value === null ? undefined : String(value))} />}
			</div>
		</div>
	);
}
