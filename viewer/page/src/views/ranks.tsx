// SPDX-License-Identifier: MIT
//
// Expert parallelism: who sent how much to whom, how even the ranks were or would be, and what
// another placement would give.
import type {JSX} from 'preact';
import {useState} from 'preact/hooks';
import {Grid, LinesChart} from '../chart';
import type {Row, Rows} from '../data';
import {askQuery, askSections, isFile, objects} from '../data';
import {amountColors, css} from '../color';
import {count, percent, real} from '../format';
import {Choice, Help, Wait} from '../parts';
import {adjust, useAddress, useAnswer, viewAddress} from '../state';
import {Exports, Table} from '../table';
import type {ViewProps} from '../view';

function name(row: Row): string {
	return row['ep_rank'] === null ? `process ${String(row['process_id'])}` : `rank ${String(row['ep_rank'])}`;
}

const MAX_TABLE = 16;

// Sources down, destinations across: as numbers on their colours, many as a grid of cells.
function Matrix({rows, column, title}: {rows: Rows; column: string; title: string}): JSX.Element {
	const list = objects(rows);
	const from = [...new Set(list.map(name))];
	const to = [...new Set(list.map((row) => Number(row['to_rank'])))].sort((a, b) => a - b);
	const most = Math.max(1, ...list.map((row) => Number(row[column] ?? 0)));
	// What was not told is no zero.
	const of = new Map(list.map((row) => [`${name(row)} ${String(row['to_rank'])}`, Number(row[column] ?? NaN)]));
	if (from.length > MAX_TABLE || to.length > MAX_TABLE)
		return (
			<>
				<Grid name={column} title={title} picture={{
					rows: from, columns: to.map(String), rowTitle: 'from', columnTitle: 'to rank', valueTitle: column, show: count,
					values: Float64Array.from(from.flatMap((source) => to.map((rank) => of.get(`${source} ${rank}`) ?? NaN))),
				}} />
				<details class="behind"><summary>The cells as a table</summary><Table rows={rows} name={title} /></details>
			</>
		);
	return (
		<div class="table" role="region" aria-label={title} tabIndex={0}>
			<table class="matrix">
				<caption>{title}, from the rank of the row to that of the column <Exports rows={() => rows} name={column} /></caption>
				<thead><tr><td />{to.map((rank) => <th key={rank} scope="col" class="n">to {rank}</th>)}<th scope="col" class="n">sum</th><th scope="col" class="n">busiest / mean</th></tr></thead>
				<tbody>{from.map((source) => {
					const all = to.map((rank) => of.get(`${source} ${rank}`) ?? NaN);
					const sum = all.reduce((a, b) => a + (b || 0), 0);
					return (
						<tr key={source}><th scope="row">{source}</th>{all.map((tokens, i) => {
							const index = Math.round((tokens / most) * 255);
							if (!(tokens >= 0))
								return <td key={i} class="n">-</td>;
							return <td key={i} class="n" style={{background: css(amountColors[index]!), color: index > 140 ? '#000' : '#fff'}}>{count(tokens)}</td>;
						})}<td class="n">{all.some((tokens) => tokens >= 0) ? count(sum) : '-'}</td><td class="n">{sum > 0 ? real((Math.max(...all.map((tokens) => tokens || 0)) * all.length) / sum, 2) : '-'}</td></tr>
					);
				})}</tbody>
			</table>
		</div>
	);
}

const placements: [string, string][] = [['', 'experts in order'], ['recorded', 'as recorded'], ['eplb', 'by load (EPLB)']];
const placementText: Record<string, string> = {recorded: 'as the recording had them', eplb: 'by their own load', file: 'as the file says'};

function mean(rows: Rows | undefined, column: string): number | null {
	const list = objects(rows).map((row) => row[column]).filter((value): value is number => typeof value === 'number');
	return list.length ? list.reduce((sum, value) => sum + value, 0) / list.length : null;
}

// As many as the recording had; else 8, or fewer where that does not divide the experts.
export function usualRanks({info, model}: Pick<ViewProps, 'info' | 'model'>): number {
	const told = Number(info.processes[0]?.['ep_size'] ?? 0);
	const layers = info.layers.filter((row) => row['model_id'] === model);
	const divides = (n: number) => layers.every((row) => Number(row['n_experts']) % n === 0);
	return told > 0 && divides(told) ? told : [8, 4, 2].find(divides) ?? 1;
}

// Why so many ranks cannot have as many experts each, with @redundant ones on top; '' where they can.
export function unevenText({info, model}: Pick<ViewProps, 'info' | 'model'>, ranks: number, redundant = 0): string {
	const layers = info.layers.filter((row) => row['model_id'] === model && Number(row['n_experts']) > 0);
	const uneven = layers.find((row) => (Number(row['n_experts']) + redundant) % ranks !== 0);
	if (!uneven)
		return '';
	const n = Number(uneven['n_experts']) + redundant;
	const near = Array.from({length: Math.min(n, ranks)}, (_, i) => i + 1).filter((each) => n % each === 0).pop();
	return `The ${count(n)} experts of layer ${String(uneven['layer'])} cannot be shared evenly by ${ranks} ranks: choose a number that divides them, as ${near}.`;
}

// ---- a placement of one's own ----

// As 'moetrace eplb' and SGLang write it: of each layer the expert in each slot.
function placementRead(text: string): number[][] {
	const found = JSON.parse(text) as Record<string, unknown> | unknown[];
	const list = Array.isArray(found) ? found : found['phy2log'] ?? found['physical_to_logical_map'];
	if (!Array.isArray(list) || list.length === 0 || !list.every((layer) => Array.isArray(layer) && layer.every((expert) => Number.isInteger(expert) && expert >= -1 && expert < 65536)))
		throw new Error('it is no list of layers with the expert in each slot (phy2log)');
	return list as number[][];
}

async function ownAsk({trace, recording, model}: ViewProps, slots: number[][], ranks: string, phase: string): Promise<Rows> {
	const sql = 'SELECT layer, ranks, n_passes, left_out, tokens, mean_rank_tokens, mean_max_rank_tokens, mean_balancedness, total_balancedness, mean_max_over_mean, p50_max_over_mean, p95_max_over_mean, max_over_mean, mean_gini, mean_entropy '
		+ `FROM moe_balance(${Number(ranks)}, '${JSON.stringify(slots)}', NULL, ${phase === 'all' ? 'NULL' : `'${phase.replaceAll("'", "''")}'`}, ${model}, ${recording}) ORDER BY layer`;
	return askQuery(trace, sql, new AbortController().signal);
}

function OwnPlacement({onChange}: {onChange: (slots: number[][] | null) => void}): JSX.Element {
	const [says, setSays] = useState('');
	return (
		<label><span>from a file</span>
			<input type="file" accept=".json,application/json" onChange={(event) => {
				const file = event.currentTarget.files?.[0];
				if (!file)
					return;
				void file.text().then((text) => {
					const slots = placementRead(text);
					setSays(`${slots.length} layers of ${slots[0]!.length} slots`);
					onChange(slots);
				}).catch((error: Error) => {
					setSays(`cannot be used: ${error.message}`);
					onChange(null);
				});
			}} />
			<output>{says}</output>
		</label>
	);
}

// ---- balance, before and after ----

function Balance({before, after, placement}: {before: Rows; after: Rows | undefined; placement: string}): JSX.Element {
	const x = objects(before).map((row) => Number(row['layer']));
	const ratios = (rows: Rows) => objects(rows).map((row) => Number(row['mean_max_over_mean'] ?? NaN));
	const compared: Rows | null = after ? {
		columns: ['layer', 'in_order', 'placed', 'change'], is_cut: false,
		rows: objects(before).map((row) => {
			const a = row['mean_max_over_mean'], b = objects(after).find((each) => each['layer'] === row['layer'])?.['mean_max_over_mean'];
			return [row['layer']!, a ?? null, b ?? null, typeof a === 'number' && typeof b === 'number' ? b - a : null];
		}),
	} : null;
	return (
		<>
			{x.length > 1 && <LinesChart name="ranks" title="The busiest rank's tokens over the mean rank's, by layer" label="The busiest rank over the mean by layer; the table below has the figures" height={210}
				plot={{x, xLabel: 'layer', yLabel: 'times', lines: [
					...(after ? [{name: `placed ${placementText[placement] ?? ''}`, values: ratios(after), color: '--accent'}] : []),
					{name: 'experts in order', values: ratios(before), color: after ? '--quiet' : '--accent'}]}} />}
			{compared && <Table rows={compared} name="before and after by layer" caption="Busiest rank / mean, before and after" most={64} />}
			<Table rows={after ?? before} name="balance of the ranks by layer" caption={after ? `Balance of the ranks by layer, experts placed ${placementText[placement] ?? ''}` : undefined} most={64}
				link={(column, row) => (column === 'layer' ? viewAddress('heatmap', {columns: 'rank', ranks: row['ranks'] as number, layer: row['layer'] as number}) : undefined)} />
		</>
	);
}

export function Ranks(props: ViewProps): JSX.Element {
	const {trace, recording, model, holds} = props;
	const state = useAddress();
	const [own, setOwn] = useState<number[][] | null>(null);
	const ranks = state['ranks'] ?? String(usualRanks(props));
	const placement = state['placement'] ?? '';
	const redundant = placement === 'eplb' && /^\d{1,5}$/.test(state['redundant'] ?? '') ? state['redundant']! : null;
	const phase = state['phase'] ?? 'decode';
	const ask = (place: string) => () => askSections(trace, 'ranks', {recording, model, ranks, phase: phase === 'all' ? null : phase, placement: place || null, redundant: place ? redundant : null});
	const uneven = isFile ? '' : unevenText(props, Number(ranks)) || unevenText(props, Number(ranks), Number(redundant ?? 0));
	const plain = useAnswer(uneven ? () => null : ask(''), [trace, recording, model, ranks, phase]);
	const other = useAnswer(() => (!uneven && (placement === 'eplb' || placement === 'recorded') ? ask(placement)() : null), [trace, recording, model, ranks, phase, placement, redundant]);
	const mine = useAnswer<Rows>(() => (!uneven && placement === 'file' && own ? ownAsk(props, own, ranks, phase) : null), [trace, recording, model, ranks, phase, placement, own]);
	const after = placement === 'file' ? mine.value : placement ? other.value?.['balance'] : undefined;
	const error = placement === 'file' ? mine.error : placement ? other.error : undefined;
	return (
		<div class="view ranks">
			{!isFile && (
				<div class="controls" role="group" aria-label="What is asked">
					<Choice label="ranks" value={ranks} options={[...new Set(['1', '2', '4', '8', '16', '32', '64', ranks])].map((n) => [n, n] as const)} onChange={(value) => adjust({ranks: value})} />
					<Choice label="passes" value={phase} options={[['decode', 'decode'], ['prefill', 'prefill'], ['mixed', 'mixed'], ['all', 'all']]} onChange={(value) => adjust({phase: value})} />
					<Choice label="placement" value={placement} options={[...placements.filter(([key]) => key !== 'recorded' || holds['maps']), ['file', 'from a file']]} onChange={(value) => adjust({placement: value, redundant: null})} />
					{placement === 'eplb' && <Choice label="redundant experts" value={redundant ?? '0'} options={[...new Set(['0', ranks, String(2 * Number(ranks)), String(4 * Number(ranks)), redundant ?? '0'])].map((n) => [n, n] as const)} onChange={(value) => adjust({redundant: value === '0' ? null : value})} />}
					{placement === 'file' && <OwnPlacement onChange={setOwn} />}
				</div>
			)}
			{uneven !== '' && <p class="error" role="alert">{uneven}</p>}
			{error && error.message !== plain.error?.message && <p class="error" role="alert">{error.message}</p>}
			{uneven === '' && <Wait answer={plain}>
				{(before) => {
					const a = mean(before['balance'], 'mean_max_over_mean');
					const b = mean(after, 'mean_max_over_mean');
					const sent = before['sent']!;
					const has = (column: string) => objects(sent).some((row) => row[column] !== null);
					return (
						<>
							<h2>Balance of {ranks} ranks in {phase === 'all' ? 'all' : phase} passes</h2>
							{a !== null && (
								<p>The busiest of {ranks} ranks gets {real(a, 3)} times the mean of a pass, averaged over layers, with the experts in order
									{b !== null && <>; <b>{real(b, 3)} times</b> when they are placed {placementText[placement]}: the slowest rank would have {percent(Math.abs(1 - b / a), 1)} {b <= a ? 'less' : 'more'} to do</>}.</p>
							)}
							{before['balance']!.rows.length === 0 ? <p class="none">No pass of this phase can be judged by rank.</p>
								: <Balance before={before['balance']!} after={after} placement={placement} />}
							<Help>Ratios are of each pass: the mean, the median and the 95th percentile over passes of the busiest rank's tokens to the mean rank's.</Help>
							<h2>From rank to rank</h2>
							{!has('tokens') && !has('bytes') && <p class="none">What ranks sent to each other was not told to the recorder; below is what the experts that rows chose would have sent.</p>}
							{has('tokens') && <Matrix rows={sent} column="tokens" title="Tokens sent" />}
							{has('bytes') && <Matrix rows={sent} column="bytes" title="Bytes sent" />}
							{before['chosen']!.rows.length > 0 && (
								<>
									<Matrix rows={placement === 'recorded' && other.value ? other.value['chosen']! : before['chosen']!} column="selections" title="Selections of experts" />
									<Help>By the experts that rows chose in all phases, placed {placement === 'recorded' ? 'as the recording had them' : 'in order'}: a token that chooses two experts of a rank counts twice, and is sent once.</Help>
								</>
							)}
						</>
					);
				}}
			</Wait>}
		</div>
	);
}
