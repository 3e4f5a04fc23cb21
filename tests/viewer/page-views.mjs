// SPDX-License-Identifier: MIT
//
// The views of the page beyond what page.mjs looks at: filters at once, tokens and reuse, other rules,
// placements, comparisons, what can be taken along. Figures are held against what verbs say, or are
// counted again from the tables of the page.
import assert from 'node:assert/strict';
import {accessible, address, downloaded, finish, open, page, part, pinch, pinchWheel, quiet, spoken, state, tableJson, text, told, tolerate, until, url} from './page-browser.mjs';

const names = told('traces');
const at = (name) => String(names.indexOf(name));
const sum = (rows, column) => rows.reduce((total, row) => total + row[column], 0);

// By a query of the page's own, so that nothing but the trace is believed.
async function asked(trace, sql) {
	if (!page.url().startsWith(address))
		await open({});
	return page.evaluate(async ([i, text]) => {
		const {columns, rows} = await (await fetch(`api/${i}/query`, {method: 'POST', body: text})).json();
		return rows.map((row) => Object.fromEntries(columns.map((name, n) => [name, row[n]])));
	}, [trace, sql]);
}

async function pictures(figure) {
	const png = await downloaded(figure.getByRole('button', {name: 'PNG'}));
	assert.equal(png.subarray(1, 4).toString(), 'PNG');
	const svg = (await downloaded(figure.getByRole('button', {name: 'SVG'}))).toString();
	assert.match(svg, /^<svg xmlns/);
	assert.equal(await page.evaluate((source) => new DOMParser().parseFromString(source, 'image/svg+xml').querySelectorAll('parsererror').length, svg), 0);
	return svg;
}

// ---- overview ----

await part('findings: padding, with its figures and where it leads', async () => {
	await open({trace: at('hostile.db')});
	const finding = page.locator('.attention li', {hasText: 'padding alone made'});
	const [worst] = await asked(at('hostile.db'), `SELECT l.layer, avg(pl.padding_active_experts) AS active FROM pass AS p JOIN pass_layer AS pl USING (pass_id) JOIN layer AS l USING (layer_id)
		WHERE p.padding_rows > 0 AND pl.padding_active_experts IS NOT NULL AND p.recording_id = 1 GROUP BY layer_id ORDER BY active DESC LIMIT 1`);
	assert.match(await finding.innerText(), new RegExp(`padding alone made ${worst.active.toLocaleString('en', {maximumFractionDigits: 2})} experts active in a padded pass of layer ${worst.layer},`));
	await finding.getByRole('link').click();
	await quiet();
	assert.deepEqual([(await state()).get('view'), (await state()).get('phase'), (await state()).get('layer')], ['heatmap', 'padding', String(worst.layer)]);
	await open({trace: at('hostile.db')});
	await page.locator('.attention li a', {hasText: 'requests unfinished'}).click();
	await quiet();
	assert.equal(await page.locator('.list li').count(), 2);
});

await part('findings: each reason for a slow pass is told, and only where the file shows it', async () => {
	await open({trace: at('slow.db')});
	const slow = await (async () => {
		await page.getByText('The figures of slow passes and of padding').click();
		return tableJson('slow');
	})();
	assert.deepEqual(Object.fromEntries(slow.map((row) => [row.slowest_pass_id, [row.passes, row.why.replace(/\d+\.\d/g, 'N')]])), {
		101: [2, 'they hold rows of prefill, too'],
		103: [6, 'they are larger: N rows with padding, where 8 are usual'],
		110: [1, 'they touch more experts than others of their size: N a layer, where N are usual'],
		111: [1, 'clocks were held down then (see view power)'],
		112: [1, 'they are the first of their size'],
		113: [1, 'the recorder lost something then'],
		114: [1, 'nothing recorded tells why'],
	});
	await page.locator('.attention li a', {hasText: 'clocks were held down'}).click();
	await quiet();
	assert.equal((await state()).get('pass'), '111');
});

// ---- heatmap ----

await part('the heatmap: time and filter at once, and behind a cell', async () => {
	const trace = at('windows.db');
	await open({view: 'heatmap', trace, table: '1'});
	const windows = await asked(trace, 'SELECT start_ns, max(length_ns) AS length_ns FROM expert_load_window WHERE recording_id = 1 GROUP BY start_ns ORDER BY start_ns');
	assert.ok(windows.length > 2);
	const [from, until] = [windows[1].start_ns, windows[2].start_ns + windows[2].length_ns];
	await open({view: 'heatmap', trace, table: '1', window: '1', span: '2'});
	assert.match(await text('.player'), new RegExp(`windows 2 to 3 of ${windows.length}:`));
	const all = await asked(trace, `SELECT count(*) AS n FROM moe_topk AS t JOIN pass AS p USING (pass_id) WHERE p.begin_ns >= ${from} AND p.begin_ns < ${until}`);
	assert.equal(sum(await tableJson('load of the experts'), 'tokens'), all[0].n);
	const [{request_id: request}] = await asked(trace, `SELECT t.request_id FROM moe_topk AS t JOIN pass AS p USING (pass_id) WHERE p.begin_ns >= ${from} AND p.begin_ns < ${until} GROUP BY 1 ORDER BY count(*) DESC LIMIT 1`);
	await open({view: 'heatmap', trace, table: '1', window: '1', span: '2', filter: `request:${request}`});
	const mine = await asked(trace, `SELECT l.layer, t.expert, count(*) AS n FROM moe_topk AS t JOIN pass AS p USING (pass_id) JOIN layer AS l USING (layer_id) WHERE t.request_id = ${request} AND p.begin_ns >= ${from} AND p.begin_ns < ${until} GROUP BY 1, 2 ORDER BY n DESC, 1, 2`);
	assert.equal(sum(await tableJson('load of the experts'), 'tokens'), sum(mine, 'n'));
	await open({view: 'heatmap', trace, window: '1', span: '2', filter: `request:${request}`, layer: String(mine[0].layer), expert: String(mine[0].expert)});
	assert.deepEqual((await tableJson('requests with most rows')).map((row) => [row.request_id, row.rows]), [[request, mine[0].n]]);
	assert.equal(sum(await tableJson('passes with most rows'), 'rows'), mine[0].n);
	await page.getByRole('button', {name: 'All of it'}).click();
	await quiet();
	assert.equal((await state()).get('window'), null);
});

await part('the heatmap plays: where it stops, table, balance, picture and address are of the window shown', async () => {
	const trace = at('windows.db');
	const windows = await asked(trace, 'SELECT DISTINCT start_ns FROM expert_load_window WHERE recording_id = 1 ORDER BY start_ns');
	const painted = () => page.evaluate(() => document.querySelector('.chart canvas').toDataURL());
	for (const more of [{}, {span: '2'}, {filter: 'request:3'}]) {
		const shown = {view: 'heatmap', trace, table: '1', window: '0', pace: '30', ...more};
		await open(shown);
		await page.getByRole('application').focus();
		await page.keyboard.press('ArrowRight');
		const begin = await text('.player > span');
		const first = await painted();
		await page.getByRole('button', {name: 'Play'}).click();
		// Some windows further.
		for (let i = 0, last = begin; i < 4; i++)
			last = await until('another window', () => text('.player > span'), (words) => words !== last);
		assert.equal((await state()).get('window'), '0'); // the address follows when it ends
		await page.getByRole('button', {name: 'Pause'}).click();
		await quiet();
		const window = Number((await state()).get('window'));
		const told = await text('.player > span');
		assert.match(told, new RegExp(`^windows? ${window + 1} `));
		const seen = [await tableJson('load of the experts'), await tableJson('balance of the layers'), await text('.readout'), await painted()];
		if (window > 0 && !more.filter) // a request may have nothing in either window
			assert.notEqual(seen[3], first);
		if (!more.filter) {
			const last = window + Number(more.span ?? 1) - 1;
			const [{n}] = await asked(trace, `SELECT sum(prefill_tokens + decode_tokens) AS n FROM expert_load_window WHERE recording_id = 1 AND start_ns BETWEEN ${windows[window].start_ns} AND ${windows[last].start_ns}`);
			assert.equal(sum(seen[0], 'tokens'), n);
		}
		await open({...shown, window: String(window)});
		await page.getByRole('application').focus();
		await page.keyboard.press('ArrowRight');
		const again = [await tableJson('load of the experts'), await tableJson('balance of the layers'), await text('.readout'), await painted()];
		assert.deepEqual(again.slice(0, 3), seen.slice(0, 3));
		if (!more.filter) // whose scale is that of the widest window met
			assert.equal(again[3], seen[3]);
	}
	await page.getByRole('slider', {name: 'time'}).fill('1');
	await quiet();
	assert.equal((await state()).get('window'), '1');
	assert.match(await text('.player > span'), /^window 2 of /);
});

await part('the heatmap: two fingers and keys zoom it; the cursor stays in sight', async () => {
	await open({view: 'heatmap'});
	const canvas = page.locator('.heatmap .chart canvas');
	const box = await canvas.boundingBox();
	const left = 46, width = box.width - 46 - 152;
	const seen = async () => (await state()).get('part')?.split('~').map(Number) ?? [0, 64];
	const columnAt = ([from, end], x) => from + ((x - left) / width) * (end - from);
	const near = (a, b) => assert.ok(Math.abs(a - b) < 0.05, `${a} is not ${b}`);
	await pinch([[box.x + 300, box.y + 60], [box.x + 500, box.y + 60]], [[box.x + 200, box.y + 60], [box.x + 600, box.y + 60]]);
	const halved = await until('two fingers', seen, ([from, end]) => end - from < 32.1);
	near(columnAt(halved, 200), columnAt([0, 64], 300));
	near(columnAt(halved, 600), columnAt([0, 64], 500));
	await canvas.hover({position: {x: 400, y: 60}});
	await pinchWheel(-50);
	const near400 = await seen();
	near((near400[1] - near400[0]) / 32, Math.exp(-0.5));
	near(columnAt(near400, 400), columnAt(halved, 400));
	const expert = Math.floor(columnAt(near400, 400));
	await page.mouse.move(0, 0);
	await page.locator('.tip').waitFor({state: 'detached'});
	await canvas.hover({position: {x: 400, y: 60}});
	assert.match(await text('.tip'), new RegExp(`, expert ${expert}: `));
	await page.getByRole('application').focus();
	await page.keyboard.press('End');
	assert.match(await spoken(), /, expert 63: /);
	near((await seen())[1], 64);
	await accessible('a zoomed heatmap');
	const before = await url();
	await page.reload();
	await quiet();
	assert.equal(await url(), before);
	await page.getByRole('application').focus();
	await page.keyboard.press('w');
	near((await seen())[1] - (await seen())[0], (near400[1] - near400[0]) * 0.7);
	await page.keyboard.press('0');
	assert.equal((await state()).get('part'), null);
	await open({view: 'heatmap', part: '30.00~34.00'});
	await canvas.hover({position: {x: 400, y: 60}});
	await page.keyboard.down('Control');
	for (let i = 0; i < 4; i++)
		await page.mouse.wheel(0, -100);
	await page.keyboard.up('Control');
	await page.getByRole('application').focus();
	for (let i = 0; i < 4; i++)
		await page.keyboard.press('w');
	await quiet();
	assert.equal((await state()).get('part'), '30.00~34.00', 'it stays where it is');
});

await part('the heatmap: by rank, layers by balance, other figures beside, marks, a bad address', async () => {
	await open({view: 'heatmap', table: '1', columns: 'rank', ranks: '4'});
	const load = told('load');
	const ranks = await tableJson('load of the experts');
	assert.equal(ranks.length, 24);
	for (const {layer, rank, tokens} of ranks)
		assert.equal(tokens, sum(load.filter((row) => row.layer === layer && Math.floor(row.expert / 16) === rank), 'tokens'));
	await open({view: 'heatmap', table: '1', order: 'rank', ranks: '4', rows: 'balance', beside: 'gini', scale: 'clip'});
	const ratios = (await tableJson('balance of the layers')).map((row) => row.max_over_mean);
	assert.deepEqual(ratios, [...ratios].sort((a, b) => b - a));
	const chart = page.getByRole('application');
	await chart.focus();
	await page.keyboard.press('ArrowRight');
	// The first column is the busiest expert of rank 0.
	const first = (await tableJson('balance of the layers'))[0].layer;
	const hot = load.filter((row) => row.layer === first && row.expert < 16).reduce((a, b) => (b.tokens > a.tokens ? b : a));
	assert.match(await spoken(), new RegExp(`^layer ${first}, expert ${hot.expert}: ${hot.tokens.toLocaleString('en')} tokens`));
	const svg = await pictures(page.locator('.under'));
	for (const word of ['rank 3', 'Gini \\(0: even\\)', 'tokens by layer and expert'])
		assert.match(svg, new RegExp(word));
	await accessible('heatmap by rank');
	await open({view: 'heatmap', filter: 'attribute:[1', order: 'x', metric: 'y', beside: '<b>', window: 'NaN', rows: '-', layer: 'x', expert: '1e99'});
	assert.match(await text('main'), /selections of routed experts/);
	await page.getByLabel('or request').fill('3');
	await page.getByLabel('or request').press('Enter');
	await quiet();
	assert.equal((await state()).get('filter'), 'request:3');
});

// ---- requests ----

await part('a request as text: characters of several tokens, reuse, what is made', async () => {
	const trace = at('text.db');
	await open({view: 'request', trace, request: '3'});
	assert.match(await text('.text'), /^Grüße␣aus␣Köln:␣naïve␣café,␣日本語␣und␣dann\.␣/);
	const token = async (position) => (await page.locator('table.experts tbody tr').nth(position).locator('td').first().innerText()).trim();
	assert.deepEqual([await token(0), await token(2), await token(3), await token(33), await token(35)], ['G', 'ü 1/2', 'ü 2/2', '日 1/3', '日 3/3']);
	const [link] = await asked(trace, 'SELECT * FROM request_reuse WHERE request_id = 3 AND attempt = 0');
	const reused = page.locator('table.experts tr.reused');
	assert.equal(await reused.count(), link.n_positions);
	assert.match(await reused.first().innerText(), /reused from request 1/);
	assert.equal(await page.locator('.text .reused').count() > 20, true);
	const source = await asked(trace, `SELECT position, expert FROM moe_topk WHERE request_id = ${link.source_request_id} AND attempt = ${link.source_attempt} AND layer = 0 AND topk_rank = 0 AND position < ${link.n_positions} ORDER BY position`);
	const shown = await page.locator('table.experts tr.reused td:nth-child(5)').allInnerTexts();
	assert.deepEqual(shown.map(Number), source.map((row) => row.expert));
	// A page that begins within a character has it whole all the same.
	await open({view: 'request', trace, request: '3', first: '14'});
	assert.equal(await token(0), 'ö 2/2');
	await page.getByLabel('layer').selectOption('all');
	await quiet();
	assert.equal((await page.locator('table.experts tbody tr').first().locator('td').nth(3).innerText()).trim().split(' ').length, 8);
	await page.locator('table.experts tr.reused a', {hasText: 'request 1'}).first().click();
	await quiet();
	assert.equal((await state()).get('request'), '1');
});

await part('requests: attempts, states, losses, two side by side', async () => {
	const trace = at('hostile.db');
	const [twice] = await asked(trace, 'SELECT request_id FROM pass_request WHERE request_id IS NOT NULL GROUP BY 1 HAVING count(DISTINCT attempt) > 1 ORDER BY 1 LIMIT 1');
	await open({view: 'request', trace, request: String(twice.request_id)});
	await page.locator('label:has(> span:text-is("attempt")) select').selectOption('0');
	await quiet();
	assert.equal((await state()).get('attempt'), '0');
	await page.getByText('Did its attempts choose the same experts?').click();
	await quiet();
	assert.equal(await page.locator('[role=region][aria-label="attempts beside the last one"]').count(), 1);
	const seen = await page.locator('table.experts tbody td:nth-child(4)').allInnerTexts();
	assert.ok(seen.some((each) => each === 'no row'), String(seen));
	assert.deepEqual(seen.filter((each) => !/^(computed|draft|rejected|unresolved|dummy|no row|reused.*)$/.test(each)), []);
	const [lost] = await asked(trace, `SELECT t.request_id, t.position FROM pass_layer AS pl JOIN layer AS l USING (layer_id) CROSS JOIN moe_topk AS t ON t.pass_id = pl.pass_id
		WHERE pl.state = 2 AND l.model_id = 1 AND t.position < 1000 AND t.attempt = (SELECT max(attempt) FROM pass_request AS o WHERE o.request_id = t.request_id) LIMIT 1`);
	await open({view: 'request', trace, request: String(lost.request_id), first: String(lost.position)});
	assert.ok((await page.locator('table.experts tbody td').allInnerTexts()).includes('lost'));
	await accessible('a request with losses');
	await open({view: 'request', request: '2', other: '3'});
	const [all] = (await asked('0', 'SELECT overlap FROM moe_similarity(2, 3) WHERE layer IS NULL'));
	assert.match(await text('section[aria-label="How alike they choose"]'), new RegExp(`${(all.overlap * 100).toFixed(1)} %`));
	assert.equal(await page.locator('article.request').count(), 2);
});

// ---- OEA ----

await part('OEA: other rules and ranks as the verb has them', async () => {
	const figures = (rows) => rows.map((row) => [row.phase, row.k0, row.active_after, row.ratio, row.lost_weight, row.below_k]);
	await open({view: 'oea'});
	await page.locator('label:has(> span:text-is("rule")) select').selectOption('pruned');
	await quiet();
	assert.deepEqual(figures(await tableJson('every k0')), figures(told('oea-pruned').oea));
	await open({view: 'oea', rule: 'oea', kmax: '9', maxp: '12', ranks: '4'});
	const ranked = await tableJson('every k0');
	assert.deepEqual(figures(ranked), figures(told('oea-general').oea));
	assert.deepEqual(ranked.map((row) => [row.max_rank_before, row.max_rank_after]), told('oea-general').oea.map((row) => [row.max_rank_before, row.max_rank_after]));
	await open({view: 'oea', rule: 'budget', budget: '20'});
	assert.deepEqual(figures(await tableJson('every k0')), figures(told('oea-budget').oea));
	await open({view: 'oea', rule: 'expand', margin: '0.05'});
	assert.match(await text('.refusals'), /further candidates, or the scores that they are compared by, are not known/);
	assert.deepEqual((await tableJson('further experts')).map((row) => row.rows), told('oea-expand').expand.map((row) => row.rows));
	await open({view: 'oea', rule: 'oea', p: '0.7'});
	await page.locator('.refusals summary').click();
	assert.deepEqual((await tableJson('left out')).map((row) => row.left_out), told('oea-share').left_out.map((row) => row.left_out));
	assert.match(await text('.refusals'), /p is a share of the router's whole score/);
	await open({view: 'oea', rule: '"><b>', kmax: 'x', p: '7', k0: '-3', ranks: '<', margin: '-1', by: 'layer'});
	assert.equal(await page.locator('main [role=alert]').count(), 0);
});

await part('OEA: layers that choose different numbers of experts are apart', async () => {
	const trace = at('hostile.db');
	await open({view: 'oea', trace, k0: '2'});
	const groups = await asked(trace, 'SELECT phase, k, n_batches, active_before, active_after FROM moe_oea(0) WHERE k0 = 2 AND recording_id = 1 AND model_id = 1');
	assert.ok(new Set(groups.map((row) => row.k)).size > 1);
	for (const summary of await page.locator('.oea > div > details > summary, .oea > details > summary').all())
		if (/passes, layers/.test(await summary.innerText()))
			await summary.click();
	for (const row of groups) {
		const figures = await text(`section[aria-label="${row.phase} passes, layers with top ${row.k}"]`);
		const real = (value) => (value / row.n_batches).toLocaleString('en', {maximumFractionDigits: 3});
		assert.ok(figures.includes(`: ${row.n_batches} batches of`) && figures.includes(`${real(row.active_before)} → ${real(row.active_after)}`), `${row.phase} ${row.k}: ${figures}`);
	}
});

await part('OEA: whether a rule did anything, in the words of the verb', async () => {
	await open({view: 'oea', trace: at('ruled.db')});
	const [verdict] = told('verify');
	assert.equal(verdict.effect, 'acted');
	assert.ok((await text('section[aria-label="Rules that ran"]')).includes(verdict.why));
	await page.getByText('Its figures').click();
	assert.deepEqual(await tableJson('whether rules did anything'), told('verify'));
	await open({view: 'oea'});
	assert.match(await text('section[aria-label="Rules that ran"]'), /No recording of this trace ran under a rule/);
});

await part('OEA: time by the fit, by constants and by a bandwidth; charts to take along', async () => {
	await open({view: 'oea', k0: '3', time: 'given', a: '10', b: '2', c: '0.5'});
	const decode = told('oea').oea.find((row) => row.phase === 'decode' && row.k0 === 3);
	const time = (active) => `${(10 + 2 * active + 0.5 * decode.rows).toLocaleString('en', {maximumFractionDigits: 2})} µs`;
	assert.ok((await text('section[aria-label="decode passes"] dl')).includes(`${time(decode.active_before)} → ${time(decode.active_after)}`));
	await open({view: 'oea', k0: '3', time: 'bandwidth', gbs: '100'});
	assert.match(await text('section[aria-label="decode passes"] dl'), /by an expert's weights at 100 GB\/s\s+[\d.]+ (µs|ns) less/);
	await open({view: 'oea', k0: '3', by: 'batch'});
	for (const title of ['Active experts a batch', 'What it costs', 'Layer times and the line', 'Active experts by batch, decode passes, k0 = 3'])
		await pictures(page.locator('figure', {has: page.locator('figcaption', {hasText: title})}).first());
	const points = (await page.getByText('The points as a table').click(), await tableJson('points of the fit'));
	assert.ok(points.length > 3);
	await accessible('OEA by size of batches');
});

// ---- ranks ----

await part('ranks: bytes, what chosen experts would send, placements, one from a file', async () => {
	const trace = at('ranks.db');
	await open({view: 'ranks', trace, ranks: '2', phase: 'all'});
	const [bytes] = await asked(trace, "SELECT hex(rank_bytes) AS bytes FROM dispatch WHERE rank_bytes IS NOT NULL");
	const number = (hex) => Number(BigInt(`0x${hex.match(/../g).reverse().join('')}`));
	assert.match(await text('[role=region][aria-label="Bytes sent"] tbody tr:nth-child(1)'), new RegExp([0, 16].map((i) => number(bytes.bytes.slice(i, i + 16)).toLocaleString('en')).join('\\s+')));
	assert.match(await text('[role=region][aria-label="Bytes sent"] tbody tr:nth-child(2)'), /rank 1\s+-\s+-\s+-/);
	await open({view: 'ranks', ranks: '4', phase: 'all'});
	const load = told('load');
	const cells = (await text('[role=region][aria-label="Selections of experts"] tbody tr')).split(/\s+/).filter((word) => /^[\d,]+$/.test(word)).map((word) => Number(word.replaceAll(',', '')));
	assert.deepEqual(cells.slice(1, 5), [0, 1, 2, 3].map((rank) => sum(load.filter((row) => Math.floor(row.expert / 16) === rank), 'tokens')));
	await open({view: 'ranks', ranks: '4', placement: 'eplb', redundant: '4'});
	const placed = await tableJson('balance of the ranks by layer');
	await open({view: 'ranks', ranks: '4', placement: 'file'});
	await page.locator('input[type=file]').setInputFiles({name: 'bad.json', mimeType: 'application/json', buffer: Buffer.from('{"phy2log": [[1.5]]}')});
	await page.getByText(/cannot be used: it is no list of layers/).waitFor();
	await page.locator('input[type=file]').setInputFiles({name: 'eplb.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify(told('eplb')))});
	await page.getByText('6 layers of 68 slots').waitFor();
	await quiet();
	await page.getByRole('region', {name: 'before and after by layer'}).waitFor();
	assert.deepEqual((await tableJson('balance of the ranks by layer')).map((row) => row.mean_max_over_mean), placed.map((row) => row.mean_max_over_mean));
	await pictures(page.locator('figure').first());
	await accessible('ranks, before and after');
});

// ---- comparison ----

await part('two traces: shared colours, the change by expert and layer', async () => {
	await open({view: 'compare', with: at('ruled.db')});
	const tokens = async (trace) => asked(trace, "SELECT layer, expert, tokens FROM expert_load WHERE kind = 'routed'");
	const [a, b] = [await tokens('0'), await tokens(at('ruled.db'))];
	const share = (rows, layer, expert) => rows.find((row) => row.layer === layer && row.expert === expert).tokens / sum(rows.filter((row) => row.layer === layer), 'tokens');
	const changes = await tableJson('largest changes');
	for (const row of changes.slice(0, 20))
		assert.ok(Math.abs(row.change - (share(b, row.layer, row.expert) - share(a, row.layer, row.expert))) < 1e-12);
	assert.ok(changes.every((row, i) => i === 0 || Math.abs(row.change) <= Math.abs(changes[i - 1].change)));
	const legends = [];
	for (const which of ['first', 'second']) {
		await page.getByLabel('show').selectOption(which);
		await quiet();
		legends.push(await page.locator('.legend').getAttribute('aria-label'));
	}
	assert.equal(legends[0], legends[1]);
	await pictures(page.locator('.under'));
	await accessible('comparison');
	// One trace with two recordings can be compared with itself.
	await open({view: 'compare', trace: at('ranks.db'), with: at('ranks.db')});
	assert.match(await text('main'), /ranks\.db, recording 1 to ranks\.db, recording 2/);
});

// ---- SQL, the frame ----

await part('SQL: bars and their exports; a result that is no chart says why', async () => {
	await open({view: 'query', as: 'bars', sql: 'SELECT value, count(*) FROM request_attribute GROUP BY 1'});
	const svg = await pictures(page.locator('figure'));
	assert.match(svg, />prose<\/text>/);
	for (const [as, says] of [['lines', /Lines need two rows or more/], ['heatmap', /A heatmap needs three columns/]]) {
		await page.getByLabel('show as').selectOption(as);
		assert.match(await text('.view .none'), says);
	}
	await open({view: 'query', as: 'heatmap', sql: "SELECT '<b>' || layer, '&' || expert, tokens FROM expert_load WHERE layer < 2"});
	assert.match(await pictures(page.locator('figure')), /&#60;b&#62;0/);
	await open({view: 'query', as: 'heatmap', sql: "SELECT 'a' || char(8238) || layer, expert, tokens FROM expert_load WHERE layer < 2"});
	assert.match(await pictures(page.locator('figure')), />a\\u\{202e\}0</);
});

await part('the sheet finds shortcuts, the link is copied, less motion plays slowly', async () => {
	await open({});
	await page.keyboard.press('?');
	await page.locator('dialog.sheet input').fill('busiest');
	assert.equal(await page.locator('dialog.sheet tbody tr').count(), 1);
	await accessible('the sheet, searched');
	await page.getByRole('button', {name: 'Close'}).click();
	await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], {origin: new URL(address).origin});
	// It says so for a moment only, which begins when it was copied: here both are when the test says so.
	await page.evaluate(() => {
		const {clipboard} = navigator, write = clipboard.writeText.bind(clipboard), wait = setTimeout;
		globalThis.restore = () => Object.assign(globalThis, {setTimeout: wait});
		globalThis.setTimeout = (run, ms) => (ms === 1500 ? void (globalThis.over = run) : wait(run, ms));
		clipboard.writeText = (text) => new Promise((done) => {
			globalThis.copy = () => done(write(text));
		});
	});
	await page.getByRole('button', {name: 'Copy link'}).click();
	assert.ok(await page.evaluate(() => globalThis.copy && !globalThis.over), 'the moment begins before it was copied');
	await page.evaluate(() => globalThis.copy());
	await page.getByRole('button', {name: 'Copied'}).waitFor();
	assert.equal(await page.evaluate(() => navigator.clipboard.readText()), await url());
	await page.evaluate(() => [globalThis.over(), globalThis.restore()].length);
	await page.getByRole('button', {name: 'Copy link'}).waitFor();
	await page.emulateMedia({reducedMotion: 'reduce'});
	await open({view: 'heatmap', trace: at('windows.db'), window: '0'});
	const begin = Date.now();
	await page.getByRole('button', {name: 'Play'}).click();
	await until('a step', () => text('.player > span'), (words) => !words.startsWith('window 1 '));
	await page.getByRole('button', {name: 'Pause'}).click();
	assert.ok(Number((await state()).get('window')) <= 1 + (Date.now() - begin) / 1000, 'a step a second');
	await page.emulateMedia({reducedMotion: null});
	tolerate(/never/);
});

await part('narrow: nothing is wider than the window, nothing fails axe', async () => {
	await page.setViewportSize({width: 420, height: 800});
	await page.emulateMedia({colorScheme: 'dark'});
	for (const view of ['overview', 'heatmap', 'request', 'oea', 'ranks', 'compare', 'query']) {
		await open({view, with: at('ruled.db'), request: '2', table: '1'});
		const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
		assert.ok(over <= 0, `${view} is ${over} pixels too wide`);
		await accessible(`${view}, narrow`);
	}
	await page.emulateMedia({colorScheme: null});
	// On a phone the picture comes first, and what is chosen unfolds.
	await page.setViewportSize({width: 360, height: 640});
	for (const trace of ['0', at('windows.db')]) {
		await open({view: 'heatmap', trace});
		const {y, height} = await page.locator('.heatmap .chart canvas').boundingBox();
		assert.ok(y + height / 2 < 640, `the middle of the picture lies at ${y + height / 2}`);
		await accessible('heatmap on a phone');
		await page.getByText('What is shown: tokens, all phases, all rows').click();
		await page.getByRole('combobox', {name: 'phase'}).selectOption('decode');
		await quiet();
		await page.getByText('What is shown: tokens, decode, all rows').waitFor();
		assert.equal((await state()).get('phase'), 'decode');
		assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
	}
	for (const view of ['overview', 'request', 'oea', 'ranks', 'compare', 'timeline']) {
		await open({view, trace: at('windows.db'), with: at('ruled.db'), request: '2'});
		await quiet();
		const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
		assert.ok(over <= 0, `${view} with long names is ${over} pixels too wide`);
	}
	await page.setViewportSize({width: 1280, height: 900});
});

await finish();
