// SPDX-License-Identifier: MIT
//
// The page over a trace that is being recorded: see page-browser.mjs for how it is called. The process
// in the environment's MOETRACE_TEST_PID records it, and is ended here.
import assert from 'node:assert/strict';
import {finish, open, page, part, quiet, state, text, until} from './page-browser.mjs';

const number = (words, pattern) => Number(pattern.exec(words)[1].replaceAll(',', ''));
const tokens = async () => number(await text('.readout'), /: ([\d,]+) tokens/);

// The next answer to what the page asks while it follows.
const nextState = async () => (await page.waitForResponse((response) => response.url().endsWith('/state'))).json();

// From now on, whether anything that waits is shown, or the picture is taken away.
const watch = () => page.evaluate(() => {
	globalThis.flickers = [];
	const canvas = document.querySelector('canvas');
	globalThis.watcher = new MutationObserver(() => {
		if (document.querySelector('.loading, .late, [aria-busy=true], .error'))
			globalThis.flickers.push('waits');
		if (canvas && !canvas.isConnected)
			globalThis.flickers.push('another picture');
	});
	globalThis.watcher.observe(document.body, {subtree: true, childList: true, attributes: true});
});
const flickers = () => page.evaluate(() => globalThis.flickers);

await part('a recording is said to be one, and the heatmap follows it without flicker', async () => {
	await open({view: 'heatmap', phase: 'decode', order: 'load'});
	await page.waitForSelector('.following .tag.live');
	assert.equal(await text('.following .tag'), 'recording');
	await page.locator('.heatmap .chart').focus();
	await page.keyboard.press('ArrowDown');
	await page.keyboard.press('ArrowRight');
	const before = await tokens();
	const cell = /layer \d+/.exec(await text('.readout'))[0];
	await watch();
	for (let i = 0, last = before; i < 3; i++)
		last = await until('tokens', tokens, (n) => n > last);
	assert.deepEqual(await flickers(), []);
	assert.equal(/layer \d+/.exec(await text('.readout'))[0], cell, 'the cursor stays');
	assert.equal((await state()).get('phase'), 'decode', 'what is chosen stays');
	assert.equal(await page.evaluate(() => document.activeElement.getAttribute('role')), 'application', 'the focus stays');
});

await part('it pauses and follows again', async () => {
	await page.getByRole('button', {name: 'Pause'}).click();
	await quiet();
	const held = await tokens();
	const {last_pass_id: first} = await nextState();
	await until('passes', async () => (await nextState()).last_pass_id, (last) => last > first);
	await quiet();
	assert.equal(await tokens(), held);
	assert.equal((await state()).get('paused'), '1');
	await page.getByRole('button', {name: 'Follow'}).click();
	await until('tokens', tokens, (n) => n > held);
});

await part('the overview and the timeline grow, and a chosen part of the time stays', async () => {
	await open({});
	const passes = async () => number((await page.locator('.facts[aria-label="What was recorded"]').innerText()).replace(/\s+/g, ' '), /passes ([\d,]+)/);
	const first = await passes();
	await until('passes', passes, (n) => n > first);
	await open({view: 'timeline'});
	const bars = async () => number(await text('.timeline .controls .quiet'), /([\d,]+) bars/);
	await until('bars', bars, (n) => n > 0);
	const few = await bars();
	await watch();
	await until('bars', bars, (n) => n > few);
	assert.deepEqual(await flickers(), []);
});

await part('a page that nobody looks at asks seldom, and at once when it is seen again', async () => {
	await open({view: 'heatmap'});
	await page.waitForSelector('.following .tag.live');
	let n = 0;
	page.on('request', (request) => {
		n += request.url().endsWith('/state');
	});
	const see = (isSeen) => page.evaluate((hidden) => {
		Object.defineProperty(document, 'hidden', {configurable: true, get: () => hidden});
		document.dispatchEvent(new Event('visibilitychange'));
	}, !isSeen);
	await see(false);
	await nextState(); // whose time had been set before
	const [begin, hidden] = [Date.now(), n];
	await new Promise((done) => setTimeout(done, 4000)); // so long it is watched
	assert.ok(n === hidden || Date.now() - begin > 14000, 'asked while hidden');
	await see(true);
	await until('asked again', () => n, (now) => now >= hidden + 2);
});

await part('the end is said', async () => {
	await open({view: 'heatmap'});
	await page.waitForSelector('.following .tag.live');
	process.kill(Number(process.env.MOETRACE_TEST_PID), 'SIGTERM');
	await until('the end', () => text('.following .tag'), (words) => words.startsWith('ended'));
	assert.equal(await page.locator('.following button').count(), 0);
	assert.ok(!(await page.locator('.error').count()), 'nothing has failed');
});

await finish();
