// SPDX-License-Identifier: MIT
//
// Addresses that hold anything, and what follows them: what is not known is told and the usual is shown,
// "back" brings back what was there, and an exception leaves the page and the address. And tables: each
// column by its place, and what is taken along is what is seen.
import assert from 'node:assert/strict';
import {accessible, address, downloaded, finish, open, page, part, quiet, spoken, state, tableJson, text, told, tolerate} from './page-browser.mjs';

const names = told('traces');
const at = (name) => String(names.indexOf(name));

async function changeTo(values) {
	await page.evaluate((hash) => new Promise((done) => {
		addEventListener('hashchange', done, {once: true});
		location.hash = hash;
	}), `#${new URLSearchParams(values)}`);
	await quiet();
}

const cells = (name) => page.locator(`[role=region][aria-label="${name}"] tbody tr`).evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.innerText)));

// ---- tables ----

await part('columns with one name keep their own values, also as JSON', async () => {
	await open({view: 'query', sql: 'SELECT 1 AS a, 2 AS a, 3 AS a, 4 AS a_2, 5 AS b'});
	await page.getByText('1 row in').waitFor();
	assert.deepEqual(await cells('result'), [['1', '2', '3', '4', '5']]);
	const [row] = await tableJson('result');
	assert.deepEqual(row, {a: 1, a_3: 2, a_4: 3, a_2: 4, b: 5});
});

await part('a sorted table: nothing known comes last, and files have the same order and columns', async () => {
	await open({view: 'query', sql: 'SELECT column1 AS n, column2 AS m FROM (VALUES (3, 1), (NULL, 2), (10, 3), (2, 4))'});
	await page.getByText('4 rows in').waitFor();
	const head = page.locator('[role=region][aria-label="result"] thead button').first();
	for (const order of [[10, 3, 2, null], [2, 3, 10, null]]) {
		await head.click();
		assert.deepEqual((await cells('result')).map(([n]) => n), order.map((n) => (n === null ? '-' : String(n))));
		assert.deepEqual((await tableJson('result')).map((row) => row.n), order);
		const csv = (await downloaded(page.locator('[role=region][aria-label="result"]').getByRole('button', {name: 'CSV'}))).toString();
		assert.deepEqual(csv.trim().split('\r\n').slice(1).map((line) => line.split(',')[0]), order.map((n) => String(n ?? '')));
	}
	await open({view: 'oea'});
	const heads = await page.locator('[role=region][aria-label="every k0"] thead th').count();
	assert.equal(Object.keys((await tableJson('every k0'))[0]).length, heads);
});

// ---- what follows the address ----

await part('SQL: another address, back and forward are other queries', async () => {
	await open({view: 'query', sql: 'SELECT 17'});
	await page.getByText('1 row in').waitFor();
	await page.locator('#sql').fill('SELECT 18 UNION ALL SELECT 19');
	await page.getByRole('button', {name: /^Run/}).click();
	await page.getByText('2 rows in').waitFor();
	await page.goBack();
	await page.getByText('1 row in').waitFor();
	assert.equal(await page.locator('#sql').inputValue(), 'SELECT 17');
	assert.deepEqual(await cells('result'), [['17']]);
	await page.goForward();
	await page.getByText('2 rows in').waitFor();
	await changeTo({view: 'query', sql: 'SELECT 20'});
	await page.getByText('1 row in').waitFor();
	assert.equal(await page.locator('#sql').inputValue(), 'SELECT 20');
	await changeTo({view: 'query'});
	assert.match(await page.locator('#sql').inputValue(), /FROM pass_summary/);
	assert.equal(await page.getByText('1 row in').count(), 0);
});

await part('the heatmap: its cursor is where the address says, and stays with its expert', async () => {
	await open({view: 'heatmap', layer: '0', expert: '39'});
	assert.match(await text('.readout'), /^layer 0, expert 39:/);
	await changeTo({view: 'heatmap', layer: '1', expert: '37'});
	assert.match(await text('.cell h2'), /^Behind layer 1, expert 37/);
	assert.match(await text('.readout'), /^layer 1, expert 37:/);
	await changeTo({view: 'heatmap', layer: '1', expert: '37', order: 'load', phase: 'decode'});
	assert.match(await text('.readout'), /^layer 1, expert 37:/);
	await changeTo({view: 'heatmap', layer: '1', expert: '37', order: 'load', phase: 'prefill', rows: 'balance'});
	assert.match(await text('.readout'), /^layer 1, expert 37:/);
	await page.goBack();
	await quiet();
	assert.match(await text('.readout'), /^layer 1, expert 37:/);
	await page.locator('[aria-roledescription=heatmap]').focus();
	await page.keyboard.press('ArrowRight');
	const moved = /expert (\d+)/.exec(await spoken())[1];
	await page.getByLabel('order').selectOption('id');
	await quiet();
	assert.match(await text('.readout'), new RegExp(`^layer 1, expert ${moved}:`));
});

// Keys that come as soon as something is there, before any picture of it.
const keyAtOnce = (selector, key) => page.evaluate(([name, code]) => {
	globalThis.pressed = new Promise((done) => {
		const press = () => {
			const there = document.querySelector(name);
			if (!there)
				return;
			watcher.disconnect();
			there.dispatchEvent(new KeyboardEvent('keydown', {code, bubbles: true, cancelable: true}));
			done();
		};
		const watcher = new MutationObserver(press);
		watcher.observe(document.body, {subtree: true, childList: true, attributes: true});
	});
}, [selector, key]);

await part('keys that come before the first picture count', async () => {
	await open({view: 'overview'});
	await keyAtOnce('[aria-roledescription=heatmap]', 'ArrowRight');
	await changeTo({view: 'heatmap'});
	assert.match(await text('.readout'), /^layer 0, expert 0:/);
	// What is typed after the key that opens the search is meant for it.
	assert.equal(await page.evaluate(async () => {
		document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '/', code: 'Slash', bubbles: true, cancelable: true}));
		for (let i = 0; i < 9; i++)
			await null;
		return document.activeElement.getAttribute('role');
	}), 'combobox');
	await page.keyboard.press('Escape');
	await page.locator('dialog.search').waitFor({state: 'detached'});
});

await part('the heatmap: of padding, and of rows of no request, no request is told', async () => {
	for (const phase of ['padding', 'other']) {
		await open({view: 'heatmap', phase, layer: '0', expert: '39'});
		assert.match(await text('main'), /layer 0, expert 39 cannot be told for/);
		assert.equal(await page.locator('section.cell').count(), 0);
	}
	assert.doesNotMatch(await text('main'), /NaN/);
});

// ---- what an address cannot have ----

// Of each view the names that take some values only.
const bad = {
	overview: {recording: 'x', model: '77'},
	heatmap: {phase: 'bogus', metric: 'bogus', columns: 'zz', order: 'xx', rows: 'yy', beside: 'qq', scale: 'ww', filter: 'bogus', window: '0.5', span: '-4', ranks: '0', layer: '-1', expert: '1.5', part: '9~2', recording: '99'},
	timeline: {range: '5~1', sel: 'x', at: 'y', pass: 'z', kernel_id: '-1'},
	request: {verdict: 'bogus', offset: '-20', first: '-9', attempt: 'q', request: '1e3', other: 'abc', layer: 'w'},
	oea: {rule: 'bogus', by: 'bogus', k0: '2.5', time: 'bogus', ranks: '1000000', by_order: 'bogus'},
	ranks: {ranks: '1000000', phase: 'bogus', placement: 'zzz'},
	compare: {phase: 'bogus', show: 'zzz', with: 'w'},
	query: {as: 'zzz', trace: '99'},
};

await part('unknown values are told by name, and the usual is shown', async () => {
	for (const [view, values] of Object.entries(bad)) {
		await open({view, trace: view === 'compare' ? at('ranks.db') : '0', ...values});
		const says = await text('#troubles');
		for (const [name, value] of Object.entries(values))
			assert.ok(says.includes(`${name} is no '${value}'`) || says.includes(`there is no ${name} ${value}`), `${view}: ${name} in: ${says}`);
		assert.equal(await page.locator('main [role=alert]').count(), 0, view);
		assert.ok((await text('main')).length > says.length + 40, view);
		assert.doesNotMatch(await text('main'), /NaN/);
		assert.equal((await state()).get('view'), view);
		await accessible(`${view} with unknown values`);
		await page.getByRole('button', {name: 'Take it out of the address'}).click();
		await quiet();
		assert.equal(await page.locator('#troubles').count(), 0, view);
		for (const name of Object.keys(values))
			assert.equal((await state()).get(name), null, `${view}: ${name}`);
	}
	await open({view: 'constructor', trace: '__proto__'});
	assert.match(await text('#troubles'), /view is no 'constructor'/);
	await open({view: 'heatmap', layer: '77'});
	assert.match(await text('#troubles'), /there is no layer 77/);
	await open({view: 'heatmap', layer: '1', expert: '64'});
	assert.match(await text('#troubles'), /there is no expert 64 in layer 1/);
	await open({view: 'heatmap', filter: 'bogus'});
	assert.deepEqual((await page.getByLabel('rows of').locator('option').allInnerTexts()).filter((each) => each === 'all rows').length, 1);
	await open({view: 'heatmap', filter: 'request:3', columns: 'rank', metric: 'weight'});
	assert.match(await text('#troubles'), /metric is no 'weight'/);
});

await part('ranks that do not divide the experts are told once, in plain words', async () => {
	for (const values of [{view: 'ranks', ranks: '7'}, {view: 'ranks', ranks: '7', placement: 'eplb'}, {view: 'ranks', ranks: '8', placement: 'eplb', redundant: '3'}, {view: 'oea', ranks: '7'}]) {
		await open(values);
		const alerts = await page.locator('main [role=alert]').allInnerTexts();
		assert.equal(alerts.length, 1, JSON.stringify(values));
		assert.match(alerts[0], /^The 6[47] experts of layer 0 cannot be shared evenly by [78] ranks: choose a number that divides them, as [14]\.$/);
	}
});

await part('a range where nothing lies, and a page of requests beyond the last', async () => {
	await open({view: 'timeline', range: '9000000000000000~9100000000000000'});
	await page.getByText(/Nothing lies there: .* wholly after it/).waitFor();
	await page.getByRole('button', {name: 'Show all of it'}).click();
	await quiet();
	assert.equal((await state()).get('range'), null);
	assert.equal(await page.getByText('Nothing lies there').count(), 0);
	await open({view: 'request', offset: '999999'});
	await page.locator('.list li').first().waitFor();
	assert.equal((await state()).get('offset'), null);
	assert.equal(await page.locator('.list li').count(), 24);
});

await part('an exception in a view leaves the page and its address, and ways on', async () => {
	await open({view: 'overview'});
	await page.route('**/api/0/requests?*', (route) => route.fulfill({json: {columns: null, rows: [[1]], is_cut: false}}));
	await changeTo({view: 'request', request: '2'});
	const alert = page.locator('main [role=alert]').filter({hasText: 'This cannot be shown'});
	await alert.waitFor();
	assert.deepEqual([(await state()).get('view'), (await state()).get('request')], ['request', '2']);
	await accessible('what went wrong');
	await alert.getByRole('button', {name: 'Back'}).click();
	await page.locator('.attention').waitFor();
	assert.equal(await alert.count(), 0);
	await page.unroute('**/api/0/requests?*');
	await page.goto('about:blank');
	await page.goto(address);
	await page.waitForSelector('main');
	await quiet();
	tolerate(/null/);
});

await finish();
