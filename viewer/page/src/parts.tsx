// SPDX-License-Identifier: MIT
//
// Small parts that views share: what waits, what failed, choices, and the line that is read aloud.
import type {ComponentChildren, JSX} from 'preact';
import type {Answer} from './state';
import {useEffect, useState} from 'preact/hooks';
import type {Progress} from './data';
import {askProgress, isFile, stopAsking} from './data';
import {useNarrow} from './use';

export function Wait<T>({answer, children, what = 'Counting'}: {
	answer: Answer<T>;
	children: (value: T) => ComponentChildren;
	what?: string;
}): JSX.Element {
	if (answer.error)
		return <p class="error" role="alert">{answer.error.message}</p>;
	if (answer.value === undefined)
		return <p class="loading" aria-live="polite">{answer.isLate ? `${what} ...` : ''}{answer.isLate && <Patience />}</p>;
	return <div class={answer.isLate ? 'late' : ''} aria-busy={answer.isLate}>{answer.isLate && <Patience />}{children(answer.value)}</div>;
}

const progressText = ({part, n_parts: nParts, share}: Progress) =>
	`${nParts > 1 ? `step ${part} of ${nParts}: ` : ''}${share === null ? 'under way' : `${Math.floor(share * 100)} % of the passes read`}`;

// After a while: how long it takes already, how far it is, and a way out.
function Patience(): JSX.Element | null {
	const [seconds, set] = useState(0);
	const [running, setRunning] = useState<Progress[]>([]);
	useEffect(() => {
		let isOver = false, isAsked = false;
		const timer = setInterval(() => {
			set((n) => n + 1);
			if (isAsked || isFile)
				return;
			isAsked = true;
			void askProgress().then((list) => {
				isAsked = false;
				if (!isOver)
					setRunning(list);
			});
		}, 1000);
		return () => {
			isOver = true;
			clearInterval(timer);
		};
	}, []);
	return seconds < 2 ? null : (
		<span class="patience" aria-live="off"> {seconds} s{running.map((each) => `, ${progressText(each)}`)} <button type="button" onClick={stopAsking}>Stop</button></span>
	);
}

export function Choice({label, value, options, onChange}: {
	label: string;
	value: string;
	options: (readonly [string, string])[];
	onChange: (value: string) => void;
}): JSX.Element {
	return (
		<label>
			<span>{label}</span>
			<select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
				{options.map(([key, text]) => <option key={key} value={key}>{text}</option>)}
			</select>
		</label>
	);
}

// What the cursor is on, for those who hear it; the rest sees it beside the picture.
let speak: ((text: string) => void) | null = null;

export function say(text: string): void {
	speak?.(text);
}

export function Speaker(): JSX.Element {
	const [text, set] = useState('');
	speak = set;
	return <div class="unseen" aria-live="polite" id="speaker">{text}</div>;
}

// Where there is little room, what is chosen is folded away, so that the picture is seen first.
export function Fold({title, children}: {title: string; children: ComponentChildren}): JSX.Element {
	return useNarrow() ? <details class="fold"><summary>{title}</summary>{children}</details> : <>{children}</>;
}

export function Help({children}: {children: ComponentChildren}): JSX.Element {
	return <p class="help">{children}</p>;
}
