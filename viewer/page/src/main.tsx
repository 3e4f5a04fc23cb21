// SPDX-License-Identifier: MIT
//
// The page: which trace and recording, which view of it; theme, shortcuts, search.
import type {JSX} from 'preact';
import {options, render} from 'preact';
import {useEffect, useLayoutEffect, useState} from 'preact/hooks';
import type {Row, Sections, Session} from './data';
import {askSections, isFile, objects, session as sessionAsk} from './data';
import {shown} from './format';
import {isTyping, keyLabels} from './keys';
import {Live} from './live';
import {Choice, Speaker, Wait} from './parts';
import {Search} from './search';
import {addressOf, go, useAddress, useAnswer, viewAddress} from './state';
import {Boundary, Troubles} from './trouble';
import {themeChanged} from './use';
import type {Info, ViewProps} from './view';
import {Compare} from './views/compare';
import {Heatmap} from './views/heatmap';
import {Oea} from './views/oea';
import {Overview} from './views/overview';
import {Query} from './views/query';
import {Ranks} from './views/ranks';
import {Requests} from './views/request';
import {Timeline} from './views/timeline';
import './style.css';

interface Tab {
	name: string;
	title: string;
	view: (props: ViewProps) => JSX.Element;
	isShown: (props: {session: Session; info: Info}) => boolean;
}

const tabs: Tab[] = [
	{name: 'overview', title: 'Overview', view: Overview, isShown: () => true},
	{name: 'heatmap', title: 'Heatmap', view: Heatmap, isShown: () => true},
	{name: 'timeline', title: 'Timeline', view: Timeline, isShown: () => true},
	{name: 'request', title: 'Requests', view: Requests, isShown: () => true},
	{name: 'oea', title: 'OEA', view: Oea, isShown: () => true},
	{name: 'ranks', title: 'Ranks', view: Ranks, isShown: () => true},
	{name: 'compare', title: 'Compare', view: Compare, isShown: ({session, info}) => session.traces.length > 1 || info.recordings.length > 1},
	{name: 'query', title: 'SQL', view: Query, isShown: () => !isFile},
];

// ---- light and dark ----

type Theme = 'auto' | 'light' | 'dark';

function themeStored(): Theme {
	try {
		const stored = localStorage.getItem('moetrace-theme');
		return stored === 'light' || stored === 'dark' ? stored : 'auto';
	} catch {
		return 'auto';
	}
}

function themeApply(theme: Theme): void {
	if (theme === 'auto')
		document.documentElement.removeAttribute('data-theme');
	else
		document.documentElement.setAttribute('data-theme', theme);
	try {
		localStorage.setItem('moetrace-theme', theme);
	} catch {
		// It is not remembered then.
	}
	themeChanged();
}

themeApply(themeStored());

// Paper is light. What is drawn is drawn again by those who listen after this.
addEventListener('beforeprint', () => document.documentElement.setAttribute('data-theme', 'light'));
addEventListener('afterprint', () => themeApply(themeStored()));

function ThemeSwitch(): JSX.Element {
	const [theme, set] = useState(themeStored());
	return (
		<Choice label="theme" value={theme} options={[['auto', 'auto'], ['light', 'light'], ['dark', 'dark']]}
			onChange={(value) => {
				set(value as Theme);
				themeApply(value as Theme);
			}} />
	);
}

// Where the browser lets a page do so: not in a file.
function CopyLink(): JSX.Element | null {
	const [says, setSays] = useState('Copy link');
	if (!navigator.clipboard || isFile)
		return null;
	return (
		<button type="button" aria-live="polite" onClick={() => {
			const tell = (text: string) => {
				setSays(text);
				setTimeout(() => setSays('Copy link'), 1500);
			};
			navigator.clipboard.writeText(location.href).then(() => tell('Copied'), () => tell('Not allowed'));
		}}>{says}</button>
	);
}

// ---- the sheet of shortcuts ----

const shortcuts: [string[], string][] = [
	[['?'], 'this sheet'],
	[['/'], 'search'],
	[['1', '8'], 'the views, from left to right'],
	[['ArrowLeft', 'ArrowRight', 'ArrowUp', 'ArrowDown'], 'heatmap and other cells: move the cursor; timeline: pan and choose a lane'],
	[['Enter'], 'heatmap: open the cell; timeline: open the bar at the cursor'],
	[['KeyM'], 'heatmap: go to the busiest expert of the layer'],
	[['Home', 'End', 'PageUp', 'PageDown'], 'heatmap and other cells: far steps'],
	[['KeyW', 'KeyS'], 'timeline and heatmap: zoom in and out'],
	[['KeyA', 'KeyD'], 'timeline: pan'],
	[['KeyH', 'KeyJ', 'KeyK', 'KeyL'], 'timeline: the same as left, down, up and right'],
	[['Comma', 'Period'], 'timeline: to the bar before or after'],
	[['Home', 'End'], 'timeline: to its begin or end'],
	[['KeyE'], 'timeline: select what is visible'],
	[['BracketLeft', 'BracketRight'], 'timeline: select from or to the cursor'],
	[['KeyF'], 'timeline: fit what is selected, or the bar at the cursor'],
	[['Digit0'], 'timeline and heatmap: all of it'],
	[['Escape'], 'close, or take the cursor away'],
];

function Sheet({onClose}: {onClose: () => void}): JSX.Element {
	const [label, setLabel] = useState<(code: string) => string>(() => (code: string) => code);
	const [word, setWord] = useState('');
	const shown = shortcuts.filter(([keys, text]) => text.toLowerCase().includes(word.toLowerCase()) || keys.some((key) => label(key).toLowerCase() === word.toLowerCase()));
	useLayoutEffect(() => {
		void keyLabels().then((found) => setLabel(() => found));
		(document.querySelector('dialog.sheet') as HTMLDialogElement).showModal();
	}, []);
	return (
		<dialog class="sheet" aria-labelledby="sheet-title" onClose={onClose}>
			<h2 id="sheet-title">Shortcuts</h2>
			<label><span>find</span><input type="search" value={word} onInput={(event) => setWord(event.currentTarget.value)} /></label>
			{shown.length === 0 && <p class="none">no shortcut does that</p>}
			<table>
				<tbody>
					{shown.map(([keys, text]) => (
						<tr key={text}><th scope="row">{keys.map((key) => <kbd key={key}>{label(key)}</kbd>)}</th><td>{text}</td></tr>
					))}
				</tbody>
			</table>
			<p class="help">Keys are those at the same place on every keyboard. Two fingers zoom the timeline and the heatmap, as does the wheel the timeline, with Ctrl the heatmap. Dragging pans the timeline, dragging with Shift or on the axis selects.</p>
			<h2>About</h2>
			<p class="help">The page is drawn by moetrace's own code with Preact (MIT licence); the licence's text is at the top of app.js. Everything shown is in the address: copy it to share or to come back. Nothing leaves this machine.</p>
			<form method="dialog"><button>Close</button></form>
		</dialog>
	);
}

// ---- the frame ----

function infoOf(sections: Sections): Info {
	const of = (name: string) => objects(sections[name]);
	return {
		recordings: of('recordings'), models: of('models'), layers: of('layers'), processes: of('processes'), devices: of('devices'),
		rules: of('rules'), attributes: of('attributes'), session: of('session'), diagnostics: of('diagnostics'),
	};
}

function holdsOf(sections: Sections): Record<string, boolean> {
	return Object.fromEntries(Object.entries(objects(sections['holds'])[0] ?? {}).map(([name, value]) => [name, value === 1]));
}

function recordingText(row: Row): string {
	return `${String(row['recording_id'])}: ${String(row['mode'])}${row['end_reason'] === null ? ', open' : ''}`;
}

// The one that the address names, or the first.
function chosen(text: string | undefined, rows: Row[], column: string): number {
	const found = rows.find((row) => String(row[column]) === text) ?? rows[0];
	return Number(found?.[column] ?? 0);
}

function Frame({session}: {session: Session}): JSX.Element {
	const state = useAddress();
	const trace = Number(state['trace'] ?? 0) < session.traces.length ? Number(state['trace'] ?? 0) : 0;
	const answer = useAnswer(() => askSections(trace, 'info'), [trace]);
	const [isSheet, setSheet] = useState(false);
	const [isSearch, setSearch] = useState(false);
	const viewName = state['view'] ?? 'overview';
	useEffect(() => {
		document.title = `${shown(session.traces[trace]?.name ?? 'no trace')} - ${tabs.find((tab) => tab.name === viewName)?.title ?? ''} - moetrace`;
	}, [trace, viewName]);
	useEffect(() => {
		const press = (event: KeyboardEvent) => {
			if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey)
				return;
			const tab = /^Digit([1-8])$/.exec(event.code);
			if (event.key === '?')
				setSheet(true);
			else if (event.key === '/')
				setSearch(true);
			else if (tab && tabs[Number(tab[1]) - 1])
				location.hash = viewAddress(tabs[Number(tab[1]) - 1]!.name);
			else
				return;
			event.preventDefault();
		};
		addEventListener('keydown', press);
		return () => removeEventListener('keydown', press);
	}, []);
	return (
		<>
			<a class="skip" href="#content" onClick={(event) => {
				event.preventDefault();
				document.getElementById('content')!.focus();
			}}>To the content</a>
			<Wait answer={answer} what="Reading the trace">
				{(sections) => {
					const info = infoOf(sections);
					const holds = holdsOf(sections);
					const recording = chosen(state['recording'], info.recordings, 'recording_id');
					const model = chosen(state['model'], info.models, 'model_id');
					const props = {session, trace, recording, model, info, holds};
					const shown = tabs.filter((tab) => tab.isShown({session, info}));
					const View = (shown.find((tab) => tab.name === viewName) ?? shown[0]!).view;
					return (
						<>
							<header>
								<h1>moetrace</h1>
								{session.traces.length > 1 ? (
									<Choice label="trace" value={String(trace)} options={session.traces.map((each, i) => [String(i), each.name] as const)}
										onChange={(value) => go({trace: value, recording: null, model: null, request: null, layer: null, expert: null})} />
								) : <span class="name" title={session.traces[trace]?.path}>{session.traces[trace]?.name}</span>}
								{info.recordings.length > 1 && <Choice label="recording" value={String(recording)} options={info.recordings.map((row) => [String(row['recording_id']), recordingText(row)] as const)}
									onChange={(value) => go({recording: value, window: null})} />}
								{info.models.length > 1 && <Choice label="model" value={String(model)} options={info.models.map((row) => [String(row['model_id']), String(row['name'])] as const)}
									onChange={(value) => go({model: value, layer: null})} />}
								{session.traces[trace]?.is_live && !isFile && <Live trace={trace} />}
								{session.is_redacted && <span class="tag">redacted</span>}
								<span class="space" />
								<button type="button" onClick={() => setSearch(true)}>Search <kbd>/</kbd></button>
								<button type="button" onClick={() => setSheet(true)} aria-label="Shortcuts"><kbd>?</kbd></button>
								<CopyLink />
								<ThemeSwitch />
							</header>
							<nav class="tabs" aria-label="Views">
								{shown.map((tab) => <a key={tab.name} href={viewAddress(tab.name)} aria-current={tab.view === View ? 'page' : undefined}>{tab.title}</a>)}
							</nav>
							<main id="content" tabIndex={-1}>
								{isFile && <p class="note">This is a single file with summed-up data of {session.traces.map((each) => each.name).join(', ')}. Left out: {(session.left_out ?? []).join('; ')}.</p>}
								<Troubles nTraces={session.traces.length} info={info} recording={recording} model={model} />
								{info.recordings.length === 0 ? <p class="none">This trace has no recording: none was committed.</p> : (
									<Boundary address={addressOf(state)}><View key={`${viewName} ${trace} ${recording} ${model}`} {...props} /></Boundary>
								)}
							</main>
							{isSearch && <Search {...props} onClose={() => setSearch(false)} />}
						</>
					);
				}}
			</Wait>
			{isSheet && <Sheet onClose={() => setSheet(false)} />}
			<Speaker />
		</>
	);
}

function App(): JSX.Element {
	const answer = useAnswer(sessionAsk, []);
	return <Wait answer={answer} what="Asking for the traces">{(session) => <Frame session={session} />}</Wait>;
}

// Whatever is written or read aloud passes here; what is typed, chosen or taken along does not.
const make = options.vnode;
options.vnode = (vnode) => {
	const props = vnode.props as Record<string, unknown>;
	for (const name of ['title', 'aria-label'])
		if (typeof props[name] === 'string')
			props[name] = shown(props[name]);
	const {children} = props;
	if (typeof children === 'string')
		props['children'] = shown(children);
	else if (Array.isArray(children))
		props['children'] = children.map((each: unknown) => (typeof each === 'string' ? shown(each) : each));
	make?.(vnode);
};

const root = document.getElementById('app')!;
root.textContent = '';
render(<App />, root);
