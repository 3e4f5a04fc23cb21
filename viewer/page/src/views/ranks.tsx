// SPDX-License-Identifier: MIT
//
// Expert parallelism: who sent how much to whom, how even the ranks were or would be, and what
// another placement would give.
import type {JSX} from 'preact';
import type {Row, Rows} from '../data';
import {askSections, isFile, objects} from '../data';
import {amountColors, css} from '../color';
import {count, percent, real} from '../format';
import {Choice, Help, Wait} from '../parts';
import {adjust, useAddress, useAnswer, viewAddress} from '../state';
import {Exports, Table} from '../table';
import type {ViewProps} from '../view';

function name(row: Row): string {
	return row['ep_rank'] === null ? `process ${String(row['process_id'])}` : `rank ${String(row['ep_rank'])}`;
}

function Sent({rows}: {rows: Rows}): JSX.Element {
	const list = objects(rows);
	if (list.length === 0)
		return <p class="none">What ranks sent to each other was not told to the recorder.</p>;
	const from = [...new Set(list.map(name))];
	const to = [...new Set(list.map((row) => Number(row['to_rank'])))].sort((a, b) => a - b);
	const most = Math.max(1, ...list.map((row) => Number(row['tokens'])));
	const of = new Map(list.map((row) => [`${name(row)} ${String(row['to_rank'])}`, Number(row['tokens'])]));
	return (
		<div class="table" role="region" aria-label="tokens sent between ranks" tabIndex={0}>
			<table class="matrix">
				<caption>Tokens sent, from the rank of the row to that of the column <Exports rows={rows} name="sent" /></caption>
				<thead><tr><td />{to.map((rank) => <th key={rank} scope="col" class="n">to {rank}</th>)}<th scope="col" class="n">sum</th></tr></thead>
				<tbody>{from.map((source) => (
					<tr key={source}><th scope="row">{source}</th>{to.map((rank) => {
						const tokens = of.get(`${source} ${rank}`) ?? 0;
						const index = Math.round((tokens / most) * 255);
						return <td key={rank} class="n" style={{background: css(amountColors[index]!), color: index > 140 ? '#000' : '#fff'}}>{count(tokens)}</td>;
					})}<td class="n">{count(to.reduce((sum, rank) => sum + (of.get(`${source} ${rank}`) ?? 0), 0))}</td></tr>
				))}</tbody>
			</table>
		</div>
	);
}

const placements: [string, string][] = [['', 'experts in order'], ['recorded', 'as recorded'], ['eplb', 'by load (EPLB)']];

function mean(rows: Rows, column: string): number | null {
	const list = objects(rows).map((row) => row[column]).filter((value): value is number => typeof value === 'number');
	return list.length ? list.reduce((sum, value) => sum + value, 0) / list.length : null;
}

// As many as the recording had; else 8, or fewer where that does not divide the experts.
function usualRanks({info, model}: ViewProps): number {
	const told = Number(info.processes[0]?.['ep_size'] ?? 0);
	const layers = info.layers.filter((row) => row['model_id'] === model);
	const divides = (n: number) => layers.every((row) => Number(row['n_experts']) % n === 0);
	return told > 0 && divides(told) ? told : [8, 4, 2].find(divides) ?? 1;
}

export function Ranks(props: ViewProps): JSX.Element {
	const {trace, recording, model, holds} = props;
	const state = useAddress();
	const ranks = state['ranks'] ?? String(usualRanks(props));
	const placement = state['placement'] ?? '';
	const phase = state['phase'] ?? 'decode';
	const ask = (place: string) => () => askSections(trace, 'ranks', {recording, model, ranks, phase: phase === 'all' ? null : phase, placement: place || null});
	const plain = useAnswer(ask(''), [trace, recording, model, ranks, phase]);
	const other = useAnswer(() => (placement ? ask(placement)() : null), [trace, recording, model, ranks, phase, placement]);
	const set = (change: Record<string, string>) => adjust(change);
	return (
		<div class="view ranks">
			{!isFile && (
				<div class="controls" role="group" aria-label="What is asked">
					<Choice label="ranks" value={ranks} options={[...new Set(['1', '2', '4', '8', '16', '32', '64', ranks])].map((n) => [n, n] as const)} onChange={(value) => set({ranks: value})} />
					<Choice label="passes" value={phase} options={[['decode', 'decode'], ['prefill', 'prefill'], ['mixed', 'mixed'], ['all', 'all']]} onChange={(value) => set({phase: value})} />
					<Choice label="placement" value={placement} options={placements.filter(([key]) => key !== 'recorded' || holds['maps'])} onChange={(value) => set({placement: value})} />
				</div>
			)}
			<Wait answer={plain}>
				{(before) => {
					const after = placement && !isFile ? other.value : undefined;
					const a = mean(before['balance']!, 'mean_max_over_mean'), b = after ? mean(after['balance']!, 'mean_max_over_mean') : null;
					return (
						<>
							{a !== null && (
								<p>The busiest of {ranks} ranks gets {real(a, 3)} times the mean of a pass, averaged over layers, with the experts in order
									{b !== null && <>; <b>{real(b, 3)} times</b> when they are placed {placements.find(([key]) => key === placement)![1]}: the slowest rank would have {percent(1 - b / a, 1)} less to do</>}.</p>
							)}
							<Sent rows={before['sent']!} />
							{before['balance']!.rows.length === 0 && <p class="none">No pass of this phase can be judged by rank.</p>}
							<Table rows={(after ?? before)['balance']!} name="balance of the ranks by layer" most={64} link={(column, row) => (column === 'layer' ? viewAddress('heatmap', {layer: row['layer'] as number, expert: 0}) : undefined)} />
							<Help>Ratios are of each pass: the mean, the median and the 95th percentile over passes of the busiest rank's tokens to the mean rank's.</Help>
						</>
					);
				}}
			</Wait>
			{other.error && <p class="error" role="alert">{other.error.message}</p>}
		</div>
	);
}
