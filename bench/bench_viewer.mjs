// SPDX-License-Identifier: MIT
//
// What a browser shows how fast: node bench_viewer.mjs CHROMIUM ADDRESS SERVER_PID. The medians of five,
// and what the processes take.
import {mkdtempSync, readFileSync, readdirSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {fps, pan, plays} from '../tests/viewer/page-measure.mjs';

const [, , chromium, address, server] = process.argv;
const packages = join(dirname(fileURLToPath(import.meta.url)), '../viewer/page/node_modules');
const {chromium: engine} = await import(join(packages, 'playwright-core/index.mjs'));
const profile = mkdtempSync(join(tmpdir(), 'moetrace-bench.'));
const context = await engine.launchPersistentContext(profile, {
	executablePath: chromium,
	args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
		'--disable-component-update', '--disable-sync'],
	viewport: {width: 1280, height: 900},
});
const page = context.pages()[0] ?? await context.newPage();
const ROUNDS = 5;

const median = (list) => list.sort((a, b) => a - b)[list.length >> 1];

async function open(state) {
	await page.goto('about:blank');
	const begin = Date.now();
	await page.goto(`${address}#${new URLSearchParams(state)}`);
	await page.waitForSelector('main');
	return begin;
}

async function repeat(run) {
	const list = [];
	for (let i = 0; i < ROUNDS; i++)
		list.push(await run());
	return median(list);
}

// So many frames, and how many a second.
async function pans(address, length) {
	const times = await pan(page, address, {first: length / 5, step: length / 400, length: length / 50, n: 120});
	return {n: times.length, fps: fps(times)};
}

// Resident, in MB.
function memoryOf(pid) {
	return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) / 1000;
}

// The browser's process for the page: that with most memory.
function renderer() {
	let most = 0, found = 0;
	for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
		try {
			const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8');
			if (!command.includes('--type=renderer') || !command.includes(profile) || memoryOf(pid) <= most)
				continue;
			most = memoryOf(pid);
			found = Number(pid);
		} catch {
			// It has ended.
		}
	}
	return found;
}

// Processor time of a process, in milliseconds.
function cpuOf(pid) {
	const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\) /s, '').split(' ');
	return (Number(fields[11]) + Number(fields[12])) * 10;
}

// Frames a second, and what one takes of a processor, which a busy machine does not change.
async function speed(name, run) {
	const pid = renderer();
	const begin = cpuOf(pid);
	let nFrames = 0;
	const perSecond = await repeat(async () => {
		const each = await run();
		nFrames += each.n;
		return each.fps;
	});
	console.log(`${name}: ${perSecond.toFixed(1)} frames/s, ${((cpuOf(pid) - begin) / nFrames).toFixed(1)} ms of a processor a frame`);
}

const paint = await repeat(async () => {
	await open({view: 'overview'});
	return page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime);
});
console.log(`first paint ${Math.round(paint)} ms`);
const quiet = () => page.waitForFunction(() => !document.querySelector('.loading, [aria-busy=true]'), undefined, {timeout: 600000});
for (const view of ['overview', 'heatmap', 'timeline', 'request', 'oea', 'ranks']) {
	const begin = await open({view});
	await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 30)))));
	await quiet();
	console.log(`view ${view}, all of it: ${Date.now() - begin} ms`);
}
await open({view: 'timeline'});
await page.getByText(/bars over /).waitFor({timeout: 60000});
await page.waitForFunction(() => !document.querySelector('.reading'), undefined, {timeout: 600000});
const {start, end} = await page.evaluate(async () => {
	const bytes = await (await fetch('api/0/timeline?recording=1&width=10')).arrayBuffer();
	const header = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 8, new DataView(bytes).getUint32(4, true))));
	return {start: header.start_ns, end: header.end_ns};
});
await speed('timeline pan', () => pans('#view=timeline&range=RANGE', end - start));
await open({view: 'heatmap', window: '0', pace: '60'});
await quiet();
await speed('heatmap play', () => plays(page));
const heap = await page.evaluate(() => performance.memory.usedJSHeapSize / 1e6);
console.log(`${heap.toFixed(0)} MB of scripts' memory, page's process ${memoryOf(renderer()).toFixed(0)} MB, server ${memoryOf(server).toFixed(0)} MB`);
await context.close();
rmSync(profile, {recursive: true, force: true});
