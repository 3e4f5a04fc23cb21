// SPDX-License-Identifier: MIT
//
// Which rule is asked about, as 'moetrace oea --rule' takes it: its name and options, and over how
// many ranks. Everything lies in the address.
import type {JSX} from 'preact';
import {isFile} from '../data';
import {Choice} from '../parts';
import type {State} from '../state';
import {adjust, useAddress} from '../state';
import type {ViewProps} from '../view';

export const ruleNames = [
	['oea', 'oea: fill up from what is loaded'], ['pruned', 'pruned: the best k0 alone'],
	['budget', 'budget: N experts a batch'], ['expand', 'expand: more experts near the cut'],
] as const;

const whole = (text: string | undefined) => (text !== undefined && /^\d{1,5}$/.test(text) ? text : null);
const share = (text: string | undefined) => (text !== undefined && /^(0?\.\d{1,9}|1|1\.0*)$/.test(text) ? text : null);

export interface Rule {
	name: string;
	text: string; // for moe_oea
	n: number; // of budget
	margin: number; // of expand
	kmax: string | null;
}

export function ruleOf(state: State): Rule {
	const name = ruleNames.some(([key]) => key === state['rule']) ? state['rule']! : 'oea';
	const kmax = whole(state['kmax']);
	const n = Math.max(1, Number(whole(state['budget']) ?? 32));
	const options = [
		name === 'oea' && kmax ? `kmax=${kmax}` : '', (name === 'oea' || name === 'pruned') && share(state['p']) ? `p=${share(state['p'])!}` : '',
		name === 'oea' && whole(state['maxp']) ? `maxp=${whole(state['maxp'])!}` : '',
		name === 'oea' && state['groups'] === 'any' ? 'groups=any' : '',
		(name === 'oea' || name === 'pruned') && state['by_order'] === 'weight' ? 'order=weight' : '',
	].filter((option) => option !== '');
	const margin = Number(state['margin']);
	return {
		name, n, kmax, margin: state['margin'] !== undefined && margin >= 0 ? margin : 0.01,
		text: name === 'budget' ? `budget:${n}` : `${name}${options.length ? `:${options.join(',')}` : ''}`,
	};
}

function Box({name, label, otherwise, size = 4}: {name: string; label: string; otherwise: string; size?: number}): JSX.Element {
	const state = useAddress();
	return <label><span>{label}</span><input size={size} inputMode="decimal" value={state[name] ?? ''} placeholder={otherwise} onChange={(event) => adjust({[name]: event.currentTarget.value.trim()})} /></label>;
}

export function RuleControls({props, k0, k}: {props: ViewProps; k0: number; k: number}): JSX.Element {
	const state = useAddress();
	const rule = ruleOf(state);
	const isGrouped = props.info.layers.some((row) => row['model_id'] === props.model && Number(row['n_groups'] ?? 1) > 1);
	const hasK0 = rule.name === 'oea' || rule.name === 'pruned';
	return (
		<div class="controls" role="group" aria-label="The rule">
			{!isFile && <Choice label="rule" value={rule.name} options={[...ruleNames]} onChange={(value) => adjust({rule: value === 'oea' ? null : value})} />}
			{hasK0 && k > 0 && (
				<label><span>k0</span>
					<input type="range" min={1} max={k} value={k0} onInput={(event) => adjust({k0: event.currentTarget.value})} />
					<output>{k0} of {k}</output>
				</label>
			)}
			{!isFile && rule.name === 'budget' && <Box name="budget" label="experts a batch" otherwise="32" />}
			{!isFile && rule.name === 'expand' && <Box name="margin" label="margin of scores" otherwise="0.01" size={6} />}
			{!isFile && (rule.name === 'oea' || rule.name === 'expand') && <Box name="kmax" label={rule.name === 'oea' ? 'fill up to kmax' : 'at most kmax a row'} otherwise={rule.name === 'oea' ? 'k' : 'all'} />}
			{!isFile && rule.name === 'oea' && <Box name="maxp" label="from the first maxp places" otherwise="all" />}
			{!isFile && hasK0 && <Box name="p" label="base ends at share p" otherwise="none" />}
			{!isFile && hasK0 && <Choice label="preference" value={state['by_order'] ?? 'choice'} options={[['choice', 'order of the choice'], ['weight', 'order of weights']]} onChange={(value) => adjust({by_order: value === 'choice' ? null : value})} />}
			{!isFile && rule.name === 'oea' && isGrouped && <Choice label="groups" value={state['groups'] ?? 'kept'} options={[['kept', 'those that a row kept'], ['any', 'any']]} onChange={(value) => adjust({groups: value === 'kept' ? null : value})} />}
			{!isFile && rule.name !== 'expand' && (
				<Choice label="also by rank" value={state['ranks'] ?? ''} options={[['', 'no'], ...[...new Set(['2', '4', '8', '16', '32', '64', ...(state['ranks'] && state['ranks'] !== 'recorded' ? [state['ranks']] : [])])].map((n) => [n, `${n} ranks`] as const), ...(props.holds['maps'] ? [['recorded', 'as recorded'] as const] : [])]}
					onChange={(value) => adjust({ranks: value})} />
			)}
		</div>
	);
}
