// SPDX-License-Identifier: MIT
//
// Search: requests by number or id, "layer N", "expert N", passes and kernels by name, views. Enter
// opens, the arrow keys choose; how many were found is told.
import type {JSX} from 'preact';
import {useLayoutEffect, useRef, useState} from 'preact/hooks';
import {askRows, askSections, isFile, objects} from './data';
import {count} from './format';
import {useAnswer, viewAddress} from './state';
import type {ViewProps} from './view';

interface Hit {
	text: string;
	target: string;
}

const views = [['overview', 'Overview'], ['heatmap', 'Heatmap'], ['timeline', 'Timeline'], ['request', 'Requests'], ['oea', 'OEA'], ['ranks', 'Ranks'], ['compare', 'Compare'], ['query', 'SQL']];

async function find({trace, recording, model, info, holds}: ViewProps, text: string): Promise<Hit[]> {
	const word = text.trim().toLowerCase();
	if (!word)
		return [];
	const hits: Hit[] = [];
	const layer = /^l(?:ayer)?\s*(\d+)(?:\D+(\d+))?$/.exec(word);
	const expert = /^e(?:xpert)?\s*(\d+)$/.exec(word);
	if (layer && info.layers.some((row) => row['model_id'] === model && String(row['layer']) === layer[1]))
		hits.push({text: `layer ${layer[1]}${layer[2] ? `, expert ${layer[2]}` : ''}`, target: viewAddress('heatmap', {layer: layer[1], expert: layer[2] ?? 0})});
	if (expert)
		for (const row of info.layers.filter((each) => each['model_id'] === model && Number(each['n_experts']) > Number(expert[1])).slice(0, 64))
			hits.push({text: `expert ${expert[1]} of layer ${String(row['layer'])}`, target: viewAddress('heatmap', {layer: row['layer'] as number, expert: expert[1]})});
	const pass = /^p(?:ass)?\s*(\d+)$/.exec(word);
	if (pass)
		hits.push({text: `pass ${pass[1]}`, target: viewAddress('timeline', {pass: pass[1]})});
	for (const [view, title] of views)
		if (title!.toLowerCase().includes(word))
			hits.push({text: `view ${title}`, target: viewAddress(view!)});
	for (const row of info.attributes.filter((each) => String(each['value']).toLowerCase().includes(word)).slice(0, 20))
		hits.push({text: `requests with ${String(row['key'])} = ${String(row['value'])} (${count(row['n_requests'])})`, target: viewAddress('heatmap', {filter: `attribute:${JSON.stringify([row['key'], row['value']])}`})});
	if (isFile)
		return hits;
	for (const row of objects(await askRows(trace, 'requests', {recording, like: word})).slice(0, 50))
		hits.push({text: `request ${String(row['request_id'])}${row['external_id'] === null ? '' : ` (${String(row['external_id']).slice(0, 60)})`}`, target: viewAddress('request', {request: row['request_id'] as number})});
	if (holds['kernels'])
		for (const row of objects((await askSections(trace, 'kernels', {recording}))['names']).filter((each) => String(each['name']).toLowerCase().includes(word)).slice(0, 50))
			hits.push({text: `kernel ${String(row['name'])}`, target: viewAddress('timeline', {kernel: row['name'] as string})});
	return hits;
}

export function Search({onClose, ...props}: ViewProps & {onClose: () => void}): JSX.Element {
	const dialog = useRef<HTMLDialogElement>(null);
	const [text, setText] = useState('');
	const [at, setAt] = useState(0);
	const answer = useAnswer(() => find(props, text), [text]);
	const hits = answer.value ?? [];
	useLayoutEffect(() => dialog.current!.showModal(), []); // what is typed next is meant for it
	const open = (hit: Hit | undefined) => {
		if (!hit)
			return;
		location.hash = hit.target;
		dialog.current!.close();
	};
	return (
		<dialog ref={dialog} class="search" aria-label="Search" onClose={onClose}>
			<form onSubmit={(event) => {
				event.preventDefault();
				open(hits[at]);
			}}>
				<label><span>request, layer 3, expert 17, pass 40, kernel, attribute, view</span>
					<input type="text" value={text} role="combobox" aria-expanded={hits.length > 0} aria-controls="hits" aria-activedescendant={hits[at] ? `hit${at}` : undefined}
						onInput={(event) => {
							setText(event.currentTarget.value);
							setAt(0);
						}}
						onKeyDown={(event) => {
							const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
							if (step && hits.length > 0) {
								event.preventDefault();
								setAt((at + step + hits.length) % hits.length);
							}
						}} />
				</label>
			</form>
			<p aria-live="polite" class="quiet">{text ? `${hits.length} found${answer.isLate ? ', looking on' : ''}` : ''}</p>
			<ul id="hits" role="listbox" aria-label="What was found">
				{hits.map((hit, i) => (
					<li key={i} id={`hit${i}`} role="option" aria-selected={i === at} onClick={() => open(hit)}>{hit.text}</li>
				))}
			</ul>
		</dialog>
	);
}
