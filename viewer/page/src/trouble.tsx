// SPDX-License-Identifier: MIT
//
// What an address asks for and cannot have is told; what goes wrong in a view leaves the rest of the
// page, and the address, as they are.
import type {ComponentChildren, JSX} from 'preact';
import {Component} from 'preact';
import {MAX_RANKS, unusable} from './address';
import {adjust, asWritten, useAddress, viewAddress} from './state';
import type {Info} from './view';

const meanings: Record<string, string> = {
	ranks: `a whole number from 1 to ${MAX_RANKS}`, span: 'a whole number from 1 on', k0: 'a whole number from 1 on',
	part: 'two columns with ~ between, the lower first',
	range: 'two times in ns with ~ between, the earlier first', sel: 'two times in ns with ~ between, the earlier first',
	filter: 'request:NUMBER or attribute:["KEY","VALUE"]', metric: 'a value that this picture has',
};
const numbers = ['trace', 'recording', 'model', 'request', 'other', 'layer', 'expert', 'offset', 'first', 'attempt', 'window', 'pass', 'kernel_id', 'node',
	'with', 'with_recording', 'with_model', 'redundant'];

// What is no value at all, and numbers that the trace does not have.
function troubles(state: Record<string, string>, nTraces: number, info: Info, recording: number, model: number): {name: string; text: string}[] {
	const list = unusable(state).map((name) => ({name, text: `${name} is no '${state[name]!.slice(0, 60)}': it takes ${meanings[name] ?? (numbers.includes(name) ? 'a whole number' : 'other words')}`}));
	const miss = (name: string, isThere: boolean, of: string) => {
		if (state[name] !== undefined && state[name] !== '' && !isThere && !list.some((each) => each.name === name))
			list.push({name, text: `there is no ${name} ${state[name]!.slice(0, 20)} ${of}`});
	};
	miss('trace', Number(state['trace']) < nTraces, 'here');
	miss('recording', Number(state['recording']) === recording, 'in this trace');
	miss('model', Number(state['model']) === model, 'in this trace');
	if (state['view'] === 'heatmap') {
		const layer = info.layers.find((row) => row['model_id'] === model && String(row['layer']) === state['layer']);
		const slots = ['n_experts', 'n_zero_experts', 'n_shared_slots'].reduce((sum, name) => sum + Number(layer?.[name] ?? 0), 0);
		miss('layer', layer !== undefined, 'with experts in this model');
		miss('expert', layer === undefined || Number(state['expert']) < slots, `in layer ${state['layer']}`);
	}
	return list;
}

export function Troubles({nTraces, info, recording, model}: {nTraces: number; info: Info; recording: number; model: number}): JSX.Element | null {
	useAddress();
	const list = troubles(asWritten(), nTraces, info, recording, model);
	if (list.length === 0)
		return null;
	return (
		<p class="warn" id="troubles" role="status">
			Of the address, {list.map((each) => each.text).join('; ')}. The usual is shown instead.{' '}
			<button type="button" onClick={() => adjust(Object.fromEntries(list.map(({name}) => [name, null])))}>Take it out of the address</button>
		</p>
	);
}

// A new address (key) tries again.
export class Boundary extends Component<{children: ComponentChildren; address: string}, {error: Error | null; address: string}> {
	override state = {error: null as Error | null, address: this.props.address};

	static override getDerivedStateFromError(error: Error): {error: Error} {
		return {error};
	}

	static override getDerivedStateFromProps(props: {address: string}, state: {address: string}): object | null {
		return props.address === state.address ? null : {error: null, address: props.address};
	}

	override render(): ComponentChildren {
		const {error} = this.state;
		if (!error)
			return this.props.children;
		return (
			<div class="error" role="alert">
				<p>This cannot be shown: {error.message}. The address is as it was.</p>
				<p><button type="button" onClick={() => history.back()}>Back</button>{' '}
					<button type="button" onClick={() => this.setState({error: null})}>Try again</button>{' '}
					<a href={viewAddress('overview')}>Overview</a></p>
			</div>
		);
	}
}
