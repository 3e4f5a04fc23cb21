// SPDX-License-Identifier: MIT
//
// End-to-end tests of the page: node page.mjs CHROMIUM ADDRESS FOLDER; those of a view that has many
// are in a file of its own. Speeds are printed, not judged.
import assert from 'node:assert/strict';
import {join} from 'node:path';
import {accessible, address, context, downloaded, finish, folder, open, page, part, quiet, spoken, state, tableJson, text, told, tolerate, url} from './page-browser.mjs';
import {fps, pan, plays} from './page-measure.mjs';

// ---- overview ----

// What the tables of the overview show of the rows of report, and so take along.
const shown = (rows, name) => rows.map((row) => Object.fromEntries(Object.entries(row)
	.filter(([key]) => key !== 'recording_id' && !(name === 'balance' && ['n_experts', 'max_load'].includes(key)))));

await part('the numbers of the overview are those of report', async () => {
	await open({});
	const report = told('report');
	for (const [name, section] of [['throughput', 'throughput'], ['balance', 'balance'], ['hottest', 'hottest'], ['layer_times', 'layer_times']])
		assert.deepEqual(await tableJson(name), shown(report[section], name), name);
	for (const section of ['recordings', 'verdicts']) {
		const title = section === 'recordings' ? 'What was recorded' : 'Verdicts and losses';
		const facts = JSON.parse((await downloaded(page.locator(`.facts[aria-label="${title}"]`).getByRole('button', {name: 'JSON'}))).toString());
		assert.deepEqual(facts, report[section], section);
	}
	const findings = await page.locator('.attention li').allInnerTexts();
	assert.equal(findings[0], report.slow.length > 0 ? report.attention[0].says.replace('nothing: ', '') : report.attention[0].says);
	report.slow.forEach((row, i) => assert.ok(findings[1 + i].startsWith(`${row.passes} slow pass`) && findings[1 + i].includes(`${row.why}; the slowest is pass ${row.slowest_pass_id} `)));
	const best = told('oea').oea.filter((row) => row.k0 < 8 && row.lost_weight < 0.1).sort((a, b) => a.ratio - b.ratio)[0];
	assert.match(findings.at(-1), new RegExp(`k0 = ${best.k0} would load .* instead of .* experts a batch in ${best.phase} passes`));
	if (report.slow.length > 0) {
		await page.getByText('The figures of slow passes and of padding').click();
		assert.deepEqual(await tableJson('slow'), shown(report.slow));
	}
	const seen = await text('[role=region][aria-label=balance] tbody tr:first-child');
	assert.match(seen, new RegExp(`^\\d+\\s+${report.balance[0].layer}\\s+${report.balance[0].tokens.toLocaleString('en')}`));
	assert.match(await text('.facts'), new RegExp(`assignments\\s+${report.recordings[0].assignments.toLocaleString('en')}`));
	const csv = (await downloaded(page.locator('[role=region][aria-label=hottest]').getByRole('button', {name: 'CSV'}))).toString();
	assert.equal(csv.split('\r\n')[0], Object.keys(shown(report.hottest)[0]).join(','));
	assert.equal(csv.split('\r\n').length, report.hottest.length + 2);
	await page.locator('[role=region][aria-label=hottest] tbody a').first().click();
	await quiet();
	assert.equal((await state()).get('view'), 'heatmap');
	assert.equal((await state()).get('layer'), String(report.hottest[0].layer));
});

// ---- heatmap ----

const load = told('load');

await part('the heatmap: keyboard, read-out, click-through, tables', async () => {
	await open({view: 'heatmap', phase: 'decode'});
	const chart = page.getByRole('application');
	await chart.focus();
	await page.keyboard.press('ArrowRight');
	await page.keyboard.press('ArrowRight');
	await page.keyboard.press('ArrowDown');
	const one = load.find((row) => row.layer === 1 && row.expert === 1);
	assert.match(await spoken(), new RegExp(`^layer 1, expert 1: ${one.decode_tokens.toLocaleString('en')} tokens`));
	await page.keyboard.press('End');
	assert.match(await spoken(), /^layer 1, expert 63:/);
	await page.keyboard.press('m');
	const hot = load.filter((row) => row.layer === 1).reduce((a, b) => (b.decode_tokens > a.decode_tokens ? b : a));
	assert.match(await spoken(), new RegExp(`^layer 1, expert ${hot.expert}: `));
	await page.keyboard.press('Enter');
	await quiet();
	assert.equal((await state()).get('expert'), String(hot.expert));
	const behind = await tableJson('requests with most rows');
	const passes = await tableJson('passes with most rows');
	assert.ok(behind.length > 0 && passes.length > 0);
	assert.equal(passes.every((row) => row.rows > 0 && row.rows <= row.pass_rows), true);
	await page.getByText('The figures of this picture as tables').click();
	const balance = await tableJson('balance of the layers');
	assert.equal(balance.length, 6);
	assert.equal(balance[1].hottest_expert, hot.expert);
	const cells = await tableJson('load of the experts');
	assert.deepEqual(cells.map((row) => row.tokens), load.map((row) => row.decode_tokens));
	await accessible('heatmap');
	const before = await url();
	await page.reload();
	await quiet();
	assert.equal(await url(), before);
	assert.match(await text('.cell h2'), new RegExp(`Behind layer 1, expert ${hot.expert}`));
	await page.locator('[role=region][aria-label="requests with most rows"] tbody a').first().click();
	await quiet();
	assert.equal((await state()).get('request'), String(behind[0].request_id));
});

await part('the heatmap: without a filter it agrees with the view layer_balance', async () => {
	await open({view: 'heatmap', table: '1'});
	const mine = await tableJson('balance of the layers');
	for (const row of told('report').balance) {
		const of = mine.find((each) => each.layer === row.layer);
		assert.equal(of.tokens, row.tokens);
		assert.equal(of.hottest_expert, row.hottest_expert);
		assert.ok(Math.abs(of.max_over_mean - row.max_over_mean) < 1e-9 && Math.abs(of.balancedness - row.balancedness) < 1e-9);
		assert.equal(of.dead_experts, row.dead_experts);
	}
});

await part('the heatmap: filters, values, order, pictures to take along', async () => {
	await open({view: 'heatmap', table: '1'});
	await page.getByLabel('rows of').selectOption({index: 1});
	await quiet();
	assert.match((await state()).get('filter'), /^attribute:/);
	const filtered = (await tableJson('load of the experts')).reduce((sum, row) => sum + row.tokens, 0);
	assert.ok(filtered > 0 && filtered < load.reduce((sum, row) => sum + row.tokens, 0));
	for (const value of ['share', 'times', 'weight']) {
		await page.getByLabel('value').selectOption(value);
		await quiet();
	}
	await page.getByLabel('order').selectOption('load');
	await page.getByLabel('scale').selectOption('log');
	await quiet();
	const png = await downloaded(page.getByRole('button', {name: 'PNG'}));
	assert.equal(png.subarray(1, 4).toString(), 'PNG');
	const svg = (await downloaded(page.getByRole('button', {name: 'SVG'}))).toString();
	assert.match(svg, /^<svg xmlns/);
	assert.match(svg, /<image [^>]*href="data:image\/png;base64,/);
	assert.match(svg, /L5<\/text>/);
});

// ---- requests ----

await part('a request: its experts are those of requests', async () => {
	const request = told('request');
	await open({view: 'request', request: String(request.request.request_id), layer: '3'});
	const rows = await page.locator('table.experts tbody tr').count();
	assert.equal(rows, Math.min(64, request.tokens.length));
	for (const at of [0, 5, 17]) {
		const token = request.tokens[at];
		const layer = token.layers.find((each) => each.layer === 3);
		const cells = await page.locator('table.experts tbody tr').nth(at).locator('th, td').allInnerTexts();
		assert.equal(cells[0], String(token.position));
		assert.equal(cells[2], String(token.pass_id));
		assert.deepEqual(cells[4].trim().split(/\s+/).filter((word) => !word.startsWith('(')).map(Number), layer.experts);
	}
	await accessible('request');
	await page.getByLabel('beside request').fill('3');
	await page.getByRole('button', {name: 'Compare'}).click();
	await quiet();
	assert.equal(await page.locator('article.request').count(), 2);
	await page.getByLabel('find').fill('7');
	await page.getByLabel('find').press('Enter');
	await quiet();
	assert.ok((await page.locator('.list li').count()) < 24);
});

// ---- OEA ----

await part('OEA: the figures of the verb, by the slider', async () => {
	await open({view: 'oea', k0: '3'});
	const oea = told('oea').oea;
	const decode = oea.find((row) => row.phase === 'decode' && row.k0 === 3);
	assert.match(await text('section[aria-label="decode passes"] dl'), new RegExp(`\\u2192 ${decode.active_after.toLocaleString('en', {maximumFractionDigits: 3})}`));
	const all = await tableJson('every k0');
	assert.deepEqual(all.map(({k0, phase, ratio, lost_weight}) => ({k0, phase, ratio, lost_weight})),
		oea.map(({k0, phase, ratio, lost_weight}) => ({k0, phase, ratio, lost_weight})));
	await page.getByRole('slider', {name: 'k0'}).focus();
	await page.keyboard.press('ArrowRight');
	assert.equal((await state()).get('k0'), '4');
	await page.locator('label:has(> span:text-is("by")) select').selectOption('layer');
	await quiet();
	assert.equal((await tableJson('by layer, k0 = 4')).filter((row) => row.phase === 'decode').length, 6);
	await accessible('oea');
});

// ---- SQL ----

await part('SQL: results, errors, limits, cancelling', async () => {
	await open({view: 'query'});
	await page.locator('#sql').fill("SELECT layer, expert, tokens FROM expert_load WHERE layer < 2");
	await page.locator('#sql').press('Control+Enter');
	await page.getByText('128 rows in').waitFor();
	assert.deepEqual((await tableJson('result')).map((row) => row.tokens), load.filter((row) => row.layer < 2).map((row) => row.tokens));
	await page.getByLabel('show as').selectOption('heatmap');
	const grid = page.getByRole('application', {name: /The result as a heatmap: tokens by layer and expert/});
	await grid.focus();
	for (const key of ['ArrowDown', 'ArrowDown', 'End'])
		await page.keyboard.press(key);
	assert.equal(await spoken(), `layer 1, expert 63: ${load.find((row) => row.layer === 1 && row.expert === 63).tokens.toLocaleString('en')}`);
	for (const as of ['heatmap', 'lines', 'bars']) {
		await page.getByLabel('show as').selectOption(as);
		await page.locator('figcaption', {hasText: 'The result as'}).waitFor();
		assert.equal((await downloaded(page.getByRole('button', {name: 'PNG'}))).subarray(1, 4).toString(), 'PNG', as);
		assert.match((await downloaded(page.getByRole('button', {name: 'SVG'}))).toString(), /^<svg xmlns[^]*<\/svg>\n$/, as);
	}
	await page.getByLabel('cookbook').selectOption({index: 3});
	assert.match(await page.locator('#sql').inputValue(), /SELECT/i);
	const errors = page.locator('[role=alert]');
	await page.locator('#sql').fill('SELECT * FROM no_such_table');
	await page.getByRole('button', {name: /^Run/}).click();
	await errors.waitFor();
	assert.match(await errors.innerText(), /no such table: no_such_table/);
	await page.locator('#sql').fill('WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c');
	await page.getByRole('button', {name: /^Run/}).click();
	await page.getByRole('button', {name: 'Cancel'}).click();
	await errors.filter({hasText: 'cancelled'}).waitFor();
	tolerate(/400|408/);
	await accessible('query');
});

// ---- ranks, comparison ----

await part('ranks: who sent how much to whom', async () => {
	await open({view: 'ranks', trace: '1', ranks: '2', phase: 'all'});
	const matrix = page.locator('[role=region][aria-label="Tokens sent"] tbody tr');
	assert.equal(await matrix.count(), 2);
	assert.match(await matrix.nth(1).innerText(), /rank 1\s+3\s+5\s+8/);
	await open({view: 'ranks', ranks: '4', placement: 'eplb'});
	assert.equal((await tableJson('balance of the ranks by layer')).length, 6);
	assert.match(await text('.ranks p'), /less to do/);
	await accessible('ranks');
});

await part('two traces compared', async () => {
	await open({view: 'compare', with: '1'});
	assert.match(await text('main'), /no layer in common/);
	await open({view: 'compare', trace: '2', with: '2'});
	await quiet();
});

// ---- the frame ----

await part('search, shortcuts, theme, views by number, skip link', async () => {
	await open({});
	await page.keyboard.press('/');
	await page.keyboard.type('layer 4');
	await page.getByRole('option', {name: 'layer 4'}).waitFor();
	await page.keyboard.press('Enter');
	await quiet();
	assert.equal((await state()).get('layer'), '4');
	await page.keyboard.press('?');
	await page.locator('dialog.sheet').waitFor();
	await accessible('shortcuts');
	await page.keyboard.press('Escape');
	await page.locator('dialog.sheet').waitFor({state: 'hidden'});
	await page.keyboard.press('5');
	await page.waitForFunction(() => location.hash.includes('view=oea'));
	await quiet();
	await page.getByLabel('theme').selectOption('dark');
	const dark = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
	await page.reload();
	await quiet();
	assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), dark);
	await page.getByLabel('theme').selectOption('light');
	assert.notEqual(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), dark);
	await page.getByLabel('theme').selectOption('auto');
	await page.goto(`${address}#view=nothing&trace=99&recording=x`);
	await page.reload();
	await quiet();
});

await part('contrast and roles in both themes, in every view', async () => {
	for (const scheme of ['light', 'dark']) {
		await page.emulateMedia({colorScheme: scheme, reducedMotion: 'reduce'});
		for (const view of ['overview', 'heatmap', 'timeline', 'request', 'oea', 'ranks', 'query']) {
			await open({view});
			await accessible(`${view}, ${scheme}`);
		}
	}
	await page.emulateMedia({colorScheme: null, reducedMotion: null});
});

const unseen = 'safe\\u{202e}live\\u{200b}\\u{1b}!';

await part('every view of every trace, also of a hostile and of an empty one', async () => {
	for (const trace of ['1', '3', '4']) {
		for (const view of ['overview', 'heatmap', 'timeline', 'request', 'oea', 'ranks', 'compare', 'query']) {
			await open({view, trace});
			assert.ok((await text('main')).length > 10, `${view} of trace ${trace} is empty`);
			assert.equal(await page.locator('main [role=alert]').count(), 0, `${view} of trace ${trace}: ${await page.locator('main [role=alert]').allInnerTexts()}`);
		}
	}
	await open({view: 'request', trace: '3', request: '1'});
	assert.match(await text('article.request h2'), /<img src=x onerror=alert\(1\)>1/);
	assert.equal(await page.locator('main img').count(), 0);
	// What turns text around or is not seen is shown as what it is, and taken along as it is.
	await open({view: 'request', trace: '3', request: '2'});
	for (const selector of ['article.request h2', '.list li:nth-child(2)'])
		assert.ok((await text(selector)).includes(unseen), selector);
	await open({view: 'query', trace: '3', sql: 'SELECT external_id FROM request WHERE request_id = 2'});
	assert.equal(await text('[role=region][aria-label=result] tbody td'), unseen);
	assert.deepEqual(await tableJson('result'), [{external_id: 'safe\u202elive\u200b\u001b!'}]);
});

// ---- the single file ----

await part('the single file, from disk: every view, the same numbers, no network', async () => {
	const file = `file://${join(folder, 'page.html')}`;
	const openFile = async (address) => {
		await page.goto('about:blank');
		await page.goto(address);
		await page.waitForSelector('main');
		await quiet();
	};
	await context.setOffline(true);
	for (const trace of ['0', '1', '2', '3'])
		for (const view of ['overview', 'heatmap', 'timeline', 'request', 'oea', 'ranks', 'compare']) {
			await openFile(`${file}#view=${view}&trace=${trace}`);
			assert.equal(await page.locator('main [role=alert]').count(), 0, `${view} of trace ${trace}: ${await page.locator('main [role=alert]').allInnerTexts()}`);
		}
	assert.match(await text('.note'), /single file .* Left out: /);
	await openFile(file);
	for (const name of ['throughput', 'balance', 'hottest'])
		assert.deepEqual(await tableJson(name), shown(told('report')[name], name), name);
	await openFile(`${file}#view=heatmap&phase=decode&table=1`);
	assert.deepEqual((await tableJson('load of the experts')).map((row) => row.tokens), load.map((row) => row.decode_tokens));
	await openFile(`${file}#view=request&request=${told('request').request.request_id}&layer=3`);
	assert.ok((await page.locator('table.experts tbody tr').count()) > 10);
	await openFile(`${file}#view=request&trace=2&request=2`);
	for (const selector of ['article.request h2', '.list li:nth-child(2)'])
		assert.ok((await text(selector)).includes(unseen), selector);
	// A request belongs to a recording.
	await openFile(`${file}#view=heatmap&filter=request:2`);
	assert.match(await text('main'), /[1-9][\d,]* selections of routed experts/);
	await openFile(`${file}#view=heatmap&trace=1&recording=2&filter=request:1`);
	assert.doesNotMatch(await text('main'), /[1-9][\d,]* selections of routed experts/);
	await openFile(`file://${join(folder, 'big.html')}#view=timeline`);
	await page.getByText(/1,000,000 bars over /).waitFor();
	await context.setOffline(false);
});

// ---- a million bars ----

await part('what takes long can be stopped', async () => {
	await open({view: 'overview', trace: '2'});
	await page.route('**/api/2/requests?*', () => undefined);
	await page.route('**/api/2/progress', (route) => route.fulfill({json: {running: [
		{question: 'requests', ms: 3000, part: 2, n_parts: 3, share: 0.418}, {question: 'oea', ms: 9000, part: 1, n_parts: 1, share: 0.5}]}}));
	await page.goto(`${address}#view=request&trace=2`);
	await page.getByText(/Looking \.\.\. \d+ s, step 2 of 3: 41 % of the passes read Stop/).waitFor();
	await page.getByRole('button', {name: 'Stop'}).click();
	await page.getByText('Stopped. Come back to this view').waitFor();
	await page.unroute('**/api/2/requests?*');
	await page.unroute('**/api/2/progress');
});

await part('a large trace: 61 x 256, a million bars', async () => {
	const begin = Date.now();
	await open({view: 'overview', trace: '2'});
	const painted = await page.waitForFunction(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
	const paint = Math.round(await painted.jsonValue());
	assert.match(await text('.attention'), /40 passes and 0 layers of other passes were lost/);
	console.log(`first paint ${paint} ms, all of the overview ${Date.now() - begin} ms`);
	const first = Date.now();
	await open({view: 'timeline', trace: '2'});
	await page.getByText(/1,000,000 bars over /).waitFor();
	console.log(`the timeline of a million bars after ${Date.now() - first} ms`);
	assert.match(await text('.timeline'), /Hatched: something was lost/);
	const frames = await pan(page, '#view=timeline&trace=2&range=RANGE', {first: 3e10, step: 1e8, length: 4e9, n: 90});
	const slow = [...frames].sort((a, b) => a - b)[85];
	await open({view: 'heatmap', trace: '2', window: '0', pace: '60'});
	const play = await plays(page);
	const memory = await page.evaluate(() => Math.round((performance.memory?.usedJSHeapSize ?? 0) / 1e6));
	console.log(`timeline pan ${Math.round(fps(frames))} fps (95 % of frames within ${Math.round(slow)} ms), heatmap play ${Math.round(play.fps)} fps, ${memory} MB of scripts' memory`);
	await accessible('heatmap of 61 layers');
});

await finish();
