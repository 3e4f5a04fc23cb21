// SPDX-License-Identifier: MIT
//
// The page over a trace that is being recorded: see page-browser.mjs for how it is called. The process
// in the environment's MOETRACE_TEST_PID records it, and is ended here.
import assert from 'node:assert/strict';
import {finish, open, page, part, state, text} from './page-browser.mjs';

const number = (words, pattern) => Number(pattern.exec(words)[1].replaceAll(',', ''));
const tokens = async () => number(await text('.readout'), /: ([\d,]+) tokens/);
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

async function until(what, ask, is) {
	for (let i = 0; i < 150; i++) {
		if (is(await ask()))
			return;
		await sleep(100);
	}
	assert.fail(`${what}: still ${await ask()}`);
}

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
	await until('tokens', tokens, (n) => n > before);
	await sleep(1500);
	assert.deepEqual(await flickers(), []);
	assert.equal(/layer \d+/.exec(await text('.readout'))[0], cell, 'the cursor stays');
	assert.equal(state().get('phase'), 'decode', 'what is chosen stays');
	assert.equal(await page.evaluate(() => document.activeElement.getAttribute('role')), 'application', 'the focus stays');
});

await part('it pauses and follows again', async () => {
	await page.getByRole('button', {name: 'Pause'}).click();
	await sleep(1500);
	const held = await tokens();
	await sleep(2500);
	assert.equal(await tokens(), held);
	assert.equal(state().get('paused'), '1');
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
	await sleep(1200); // what was under way
	n = 0;
	await sleep(4000);
	assert.equal(n, 0, 'asked while hidden');
	await see(true);
	await sleep(2500);
	assert.ok(n >= 2, `asked ${n} times after it was seen again`);
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
