// SPDX-License-Identifier: MIT
//
// What the tests of the page share: a browser, and how its page is asked. Every check is one line of
// output; the first failure of each part is told and ends the part. A word of the browser's console, a
// dialog or a request to elsewhere is a failure, too. The programs are called with CHROMIUM ADDRESS
// FOLDER; FOLDER holds what the verbs say of the same traces.
import assert from 'node:assert/strict';
import {mkdtempSync, readFileSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {basename, dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';

const [, program, chromium, address, folder] = process.argv;
export {address, folder};
const packages = join(dirname(fileURLToPath(import.meta.url)), '../../viewer/page/node_modules');
const {chromium: engine} = await import(join(packages, 'playwright-core/index.mjs'));
const axe = readFileSync(join(packages, 'axe-core/axe.min.js'), 'utf8');
export const told = (name) => JSON.parse(readFileSync(join(folder, `${name}.json`), 'utf8'));

// What does not happen within this time never will, however busy the machine is.
const PATIENCE_MS = 120000;

const profile = mkdtempSync(join(tmpdir(), 'moetrace-page.'));
export const context = await engine.launchPersistentContext(profile, {
	executablePath: chromium,
	timeout: PATIENCE_MS,
	args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
		'--disable-component-update', '--disable-sync'],
	viewport: {width: 1280, height: 900},
	acceptDownloads: true,
	bypassCSP: false,
});
context.setDefaultTimeout(PATIENCE_MS);
export const page = context.pages()[0] ?? await context.newPage();
let complaints = [];
page.on('console', (message) => ['error', 'warning'].includes(message.type()) && complaints.push(message.text()));
page.on('pageerror', (error) => complaints.push(`exception: ${error.message}`));
page.on('dialog', (dialog) => {
	complaints.push(`dialog: ${dialog.message()}`);
	void dialog.dismiss();
});
page.on('request', (request) => {
	if (!request.url().startsWith(new URL(address).origin) && !request.url().startsWith(`file://${folder}/`) && !request.url().startsWith('data:') && !request.url().startsWith('blob:'))
		complaints.push(`asks elsewhere: ${request.url()}`);
});

let nFailed = 0;
const wanted = new RegExp(process.env.PARTS ?? ''); // while one works at some of them
export async function part(name, run) {
	if (!wanted.test(name))
		return;
	complaints = [];
	try {
		await run();
		assert.deepEqual(complaints, [], 'the browser complains');
		console.log(`ok ${name}`);
	} catch (error) {
		nFailed++;
		console.log(`FAILED ${name}: ${error.message}\n${(error.stack ?? '').split('\n').filter((line) => line.includes(basename(program))).slice(0, 3).join('\n')}`);
		await page.screenshot({path: join(folder, `failed-${basename(program)}-${nFailed}.png`)}).catch(() => undefined);
	}
}

// The browser may say so in this part.
export function tolerate(pattern) {
	complaints = complaints.filter((line) => !pattern.test(line));
}

export async function finish() {
	await context.close();
	rmSync(profile, {recursive: true, force: true});
	if (nFailed > 0)
		console.log(`${nFailed} parts failed`);
	process.exit(nFailed > 0 ? 1 : 0);
}

// Questions to the server that are under way, and how many have begun or ended.
const underWay = new Set();
let nTurns = 0;
for (const [event, turn] of [['request', 'add'], ['requestfinished', 'delete'], ['requestfailed', 'delete']])
	page.on(event, (request) => {
		if (!request.url().includes('/api/'))
			return;
		underWay[turn](request);
		nTurns++;
	});

// What was done has its effect: for some frames nothing is asked for, nothing comes, and nothing is shown as
// not yet whole. An event, what it draws and what that asks for follow each other in as many frames.
export async function quiet() {
	const end = Date.now() + PATIENCE_MS;
	for (let isStill = false; !isStill;) {
		const before = nTurns;
		const isShown = await page.evaluate(async () => {
			for (let i = 0; i < 4; i++)
				await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
			return !document.querySelector('.loading, .reading, [aria-busy=true]');
		});
		isStill = isShown && underWay.size === 0 && nTurns === before;
		assert.ok(isStill || Date.now() < end, 'the page does not come to rest');
	}
}

// What @is says of it becomes true.
export async function until(what, ask, is) {
	for (const end = Date.now() + PATIENCE_MS; ;) {
		const answer = await ask();
		if (is(answer))
			return answer;
		assert.ok(Date.now() < end, `${what}: still ${answer}`);
		await new Promise((done) => setTimeout(done, 50));
	}
}

export async function open(state) {
	await page.goto('about:blank');
	await page.goto(`${address}#${new URLSearchParams(state)}`);
	await page.waitForSelector('main');
	await quiet();
}

export const text = (selector) => page.locator(selector).first().innerText();
export const spoken = () => page.locator('#speaker').textContent();
// As the page has it: what the browser tells of itself may come after what it says of a key.
export const url = () => page.evaluate(() => location.href);
export const state = async () => new URLSearchParams(new URL(await url()).hash.slice(1));

export async function downloaded(locator) {
	const [download] = await Promise.all([page.waitForEvent('download'), locator.click()]);
	return readFileSync(await download.path());
}

// Two fingers go down at some points and move to others.
export async function pinch(from, to) {
	const session = await context.newCDPSession(page);
	const touch = (type, points) => session.send('Input.dispatchTouchEvent', {type, touchPoints: points.map(([x, y], id) => ({x, y, id}))});
	await touch('touchStart', from);
	for (const part of [0.25, 0.5, 0.75, 1])
		await touch('touchMove', from.map(([x, y], i) => [x + (to[i][0] - x) * part, y + (to[i][1] - y) * part]));
	await touch('touchEnd', []);
	await session.detach();
	assert.equal(await page.evaluate(() => visualViewport.scale), 1, 'the page itself is not zoomed');
}

// The wheel with Ctrl, as a trackpad tells two fingers.
export async function pinchWheel(delta) {
	const before = await url();
	await page.keyboard.down('Control');
	await page.mouse.wheel(0, delta);
	await page.keyboard.up('Control');
	await until('the wheel with Ctrl', url, (now) => now !== before);
}

// The rows of a table by name, as its JSON says.
export async function tableJson(name) {
	return JSON.parse((await downloaded(page.locator(`[role=region][aria-label="${name}"]`).getByRole('button', {name: 'JSON'}))).toString());
}

export async function accessible(what, rules = {}) {
	await page.evaluate(axe);
	const result = await page.evaluate((options) => globalThis.axe.run(document, options), {rules, resultTypes: ['violations']});
	assert.deepEqual(result.violations.map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.target} ${n.failureSummary?.split('\n')[1] ?? ''}`).join(' | ')}`), [], `axe: ${what}`);
}
