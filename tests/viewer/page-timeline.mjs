// SPDX-License-Identifier: MIT
//
// The timeline in a browser: over a run of the demo's model, over a large trace and over
// timeline.sql, where everything that can be in a timeline is. Figures of a selection are computed
// here once more from the rows themselves.
import assert from 'node:assert/strict';
import {join} from 'node:path';
import {accessible, downloaded, finish, folder, open, page, part, pinch, pinchWheel, quiet, spoken, state, tableJson, text, told, tolerate, until, url} from './page-browser.mjs';

const trace = '5';
const chart = page.getByRole('application');
const range = async () => (await state()).get('range').split('~').map(Number);

async function openTimeline(more = {}) {
	await open({view: 'timeline', trace, ...more});
	await page.getByText(/ bars over /).waitFor();
	await page.waitForFunction(() => document.querySelector('.timeline canvas')?.width > 300);
}

const svg = async () => (await downloaded(page.locator('.timeline').getByRole('button', {name: 'SVG'}))).toString();
const decode = (text) => text.replace(/&#(\d+);/g, (_, n) => String.fromCharCode(n));

// The texts of the picture and where they are; it is drawn by the same code as the canvas.
async function texts() {
	return [...(await svg()).matchAll(/<text x="([-\d.]+)" y="([-\d.]+)"[^>]*>([^<]*)<\/text>/g)].map(([, x, y, text]) => ({x: Number(x), y: Number(y) - 4, text: decode(text)}));
}

async function at(text) {
	const found = (await texts()).find((each) => each.text === text);
	assert.ok(found, `${text} is not in the picture`);
	return found;
}

const LABELS = 190;

async function xOf(ns) {
	const box = await page.locator('.timeline canvas').boundingBox();
	const [from, until] = (await state()).get('range') ? await range() : [0, 500000000];
	return LABELS + ((ns - from) / (until - from)) * (box.width - LABELS);
}

async function hover(ns, y) {
	await page.mouse.move(0, 0);
	await page.locator('.tip').waitFor({state: 'detached'});
	await page.locator('.timeline canvas').hover({position: {x: await xOf(ns), y}});
	return page.locator('.tip').innerText();
}

// ---- moving ----

await part('the timeline: keys, selection, bars, restored', async () => {
	await open({view: 'timeline'});
	await page.getByText(/ bars over /).waitFor();
	await chart.focus();
	await page.keyboard.press('w');
	await page.keyboard.press('w');
	const zoomed = await range();
	await page.keyboard.press('d');
	const panned = await range();
	assert.ok(panned[0] > zoomed[0] && Math.abs(panned[1] - panned[0] - (zoomed[1] - zoomed[0])) < 10);
	await page.keyboard.press('l');
	assert.ok((await range())[0] > panned[0]);
	await page.keyboard.press('h');
	assert.ok(Math.abs((await range())[0] - panned[0]) < 10);
	await page.keyboard.press('ArrowDown');
	assert.match(await spoken(), /^layers, tinymoe, at /);
	await page.keyboard.press('ArrowUp');
	await page.keyboard.press('e');
	await quiet();
	assert.ok((await tableJson('passes in the selection')).length > 0);
	await page.getByRole('button', {name: 'All of it'}).click();
	await page.getByRole('button', {name: 'Figures of what is visible'}).click();
	await quiet();
	const whole = await tableJson('passes in the selection');
	assert.equal(whole.reduce((sum, row) => sum + row.n, 0), told('report').recordings[0].passes);
	await page.locator('.timeline canvas').click({position: {x: 700, y: 50}});
	await quiet();
	assert.match((await state()).get('pass') ?? '', /^\d+$/);
	assert.ok((await tableJson('whom it served')).length > 0);
	const before = await url();
	await page.reload();
	await quiet();
	assert.equal(await url(), before);
	await open({view: 'timeline', pass: '9'});
	await page.waitForFunction(() => new URLSearchParams(location.hash.slice(1)).has('range'));
	assert.match(await text('main h2'), /Pass 9/);
});

await part('the timeline: wheel and drag move it to the pixel', async () => {
	await openTimeline({range: '100000000~300000000'});
	const canvas = page.locator('.timeline canvas');
	const {width} = await canvas.boundingBox();
	const timeAt = async (x) => {
		const [from, until] = await range();
		return from + ((x - LABELS) / (width - LABELS)) * (until - from);
	};
	await canvas.hover({position: {x: 500, y: 60}});
	const held = await timeAt(500);
	for (const delta of [-300, -200, 150]) {
		const before = await url();
		await page.mouse.wheel(0, delta);
		await until('the wheel', url, (now) => now !== before);
		await quiet();
		const pixel = ((await range())[1] - (await range())[0]) / (width - LABELS);
		assert.ok(Math.abs(await timeAt(500) - held) < pixel, 'what lies under the pointer stays there');
	}
	assert.ok((await range())[1] - (await range())[0] < 200000000);
	const before = await range(), pixel = (before[1] - before[0]) / (width - LABELS);
	const box = await canvas.boundingBox();
	await page.mouse.move(box.x + 500, box.y + 60);
	await page.mouse.down();
	await page.mouse.move(box.x + 430, box.y + 60, {steps: 5});
	await page.mouse.up();
	assert.ok(Math.abs((await range())[0] - before[0] - 70 * pixel) < 0.02 * pixel + 2, 'a drag of 70 pixels moves it by 70');
	await page.keyboard.down('Shift');
	await page.mouse.move(box.x + 400, box.y + 60);
	await page.mouse.down();
	await page.mouse.move(box.x + 600, box.y + 60, {steps: 4});
	await page.mouse.up();
	await page.keyboard.up('Shift');
	const selected = (await state()).get('sel').split('~').map(Number);
	assert.ok(Math.abs(selected[0] - await timeAt(400)) < pixel && Math.abs(selected[1] - await timeAt(600)) < pixel);
	await chart.focus();
	await page.keyboard.press('f');
	assert.ok(Math.abs((await range())[0] - (selected[0] - (selected[1] - selected[0]) * 0.1)) < 3);
	await page.keyboard.press('0');
	assert.equal((await state()).get('range'), null);
});

await part('the timeline: the address follows however fast it moves', async () => {
	await openTimeline({range: '100000000~110000000'});
	const n = await page.evaluate(() => {
		const picture = document.querySelector('[aria-roledescription=timeline]');
		const write = history.replaceState.bind(history);
		let nWrites = 0;
		history.replaceState = (...values) => {
			nWrites++;
			write(...values);
		};
		for (let i = 0; i < 301; i++)
			picture.dispatchEvent(new KeyboardEvent('keydown', {code: i % 2 ? 'KeyA' : 'KeyD', bubbles: true, cancelable: true}));
		return nWrites;
	});
	// Of one browser a hundred in half a minute fail, of another two hundred in ten seconds.
	assert.ok(n < 100, `written ${n} times`);
	await until('the address', range, ([from]) => Math.abs(from - 101500000) < 10);
	await quiet();
});

await part('the timeline: two fingers zoom it, on a screen and on a trackpad', async () => {
	await openTimeline({range: '100000000~300000000'});
	const box = await page.locator('.timeline canvas').boundingBox();
	const timeAt = ([from, until], x) => from + ((x - LABELS) / (box.width - LABELS)) * (until - from);
	const near = (a, b) => assert.ok(Math.abs(a - b) < 1e6, `${a} is not ${b}`);
	const before = await range();
	await pinch([[box.x + 500, box.y + 60], [box.x + 600, box.y + 60]], [[box.x + 400, box.y + 60], [box.x + 800, box.y + 60]]);
	const after = await until('two fingers', range, ([from, end]) => end - from < 55e6);
	near(timeAt(after, 400), timeAt(before, 500));
	near(timeAt(after, 800), timeAt(before, 600));
	assert.deepEqual([(await state()).get('pass'), (await state()).get('sel')], [null, null], 'nothing was chosen');
	await page.locator('.timeline canvas').hover({position: {x: 500, y: 60}});
	await pinchWheel(50);
	const wider = await range();
	near((wider[1] - wider[0]) / (after[1] - after[0]) * 1e8, Math.exp(0.5) * 1e8);
	near(timeAt(wider, 500), timeAt(after, 500));
});

await part('the timeline: at the limits of zooming nothing moves, and the whole is in sight', async () => {
	const [first, last] = [0, 500000000], canvas = page.locator('.timeline canvas');
	for (const x of [200, 700, 1100]) {
		await openTimeline({range: `${first}~${Math.round(first + (last - first) / 3)}`});
		await canvas.hover({position: {x, y: 60}});
		for (let i = 0; i < 4; i++)
			await page.mouse.wheel(0, 600);
		const [from, end] = await until('the whole', range, (now) => now[1] - now[0] > (last - first) * 1.09);
		assert.ok(from <= first && end >= last, `${from} to ${end} is not all of ${first} to ${last}`);
	}
	await openTimeline({range: '100000000~100000100'});
	await canvas.hover({position: {x: 700, y: 60}});
	for (let i = 0; i < 5; i++)
		await page.mouse.wheel(0, -300);
	await page.keyboard.down('Control');
	await page.mouse.wheel(0, -50);
	await page.keyboard.up('Control');
	await quiet();
	assert.deepEqual(await range(), [100000000, 100000100]);
});

// ---- what is seen ----

await part('the timeline: names without a click, nested ranges, roles with letters, losses', async () => {
	await openTimeline();
	const all = await texts();
	for (const text of ['Passes', 'Layers', 'Operations', 'Between ranks', 'Ranges', 'Counters', 'cuda 1, stream 7', 'cuda 2, stream 9', 'cuda 1, stream 13',
		'pass 1, prefill', 'step', 'forward', 'E', 'limit 700 W', '37 lost', 'active experts', 'power (W)', 'temperature (\u00b0C)', 'clock (MHz)'])
		assert.ok(all.some((each) => each.text === text), `${text} is not in the picture`);
	const y = (text) => all.find((each) => each.text === text).y;
	assert.ok(y('step') < y('forward') && y('forward') < all.find((each) => /^atten/.test(each.text)).y, 'a range within another lies below it');
	assert.deepEqual(await page.locator('.swatch.letter').allInnerTexts(), ['P', 'D', 'G', 'T', 'L', 'D', 'E', 'C', 'S', 'A', 'N']);
	// The loss is hatched in its colour on the canvas.
	const n = await page.evaluate(() => {
		const canvas = document.querySelector('.timeline canvas');
		const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
		let found = 0;
		for (let i = 0; i < data.length; i += 4)
			found += data[i] === 179 && data[i + 1] === 38 && data[i + 2] === 30;
		return found;
	});
	assert.ok(n > 300, `${n} pixels of the hatching`);
	assert.match(await hover(286000000, 60), /kernel: 37 lost \(ring_full\)/);
	await page.getByRole('button', {name: 'kernel: 37 lost (ring_full)'}).click();
	assert.ok((await range())[0] < 283000000 && (await range())[1] > 289000000 && (await range())[1] - (await range())[0] < 30000000);
	await openTimeline({range: '20000000~46000000'});
	const near = await texts();
	assert.ok(near.some((each) => each.text === 'flash::attention_kernel, layer 0'), 'the short name on a wide bar');
	const tip = await hover(22000000, (await at('cuda 1, stream 7')).y);
	assert.match(tip, /void flash::attention_kernel<__half, 128, 64>\(float const\*, int\)\nattention, layer 0\n4\.5 ms, at 2\d/);
	assert.match(await hover(24900000, (await at('cuda 1, stream 7')).y), /<img src=x onerror=alert\(1\)>/);
	assert.equal(await page.locator('main img').count(), 0);
	await openTimeline({range: '225000000~300000000'});
	const held = await texts();
	assert.ok(['pass 2, decode', 'pass 3, decode'].every((text) => held.some((each) => each.text === text)), 'a pass that was held up lies below the others');
	await openTimeline({range: '26000000~29000000'});
	assert.ok((await texts()).some((each) => each.text === 'router::topk_softmax, layer 0'), 'a name that a compiler wrote');
	assert.match(await hover(27000000, (await at('cuda 1, stream 7')).y), /^router::topk_softmax\n_ZN6router12topk_softmaxILi64EEEvPKf\ntopk, layer 0\n/);
	await openTimeline({range: '340000000~390000000'});
	assert.match(await hover(359000000, (await at('cuda 1, stream 7')).y), /router_gemm_64\ngate, layer 0, node 1 of a graph\n7 ms/);
	await page.locator('.timeline canvas').click({position: {x: await xOf(359000000), y: (await at('cuda 1, stream 7')).y}});
	await quiet();
	assert.equal((await state()).get('node'), '2');
	assert.match(await text('section[aria-label=Operation]'), /Node 1 of launch 1[^]*7 ms[^]*router_gemm_64/);
	assert.match(await hover(365000000, (await at('active experts')).y), /^active experts: \d+ experts\nread at 36\d/);
});

await part('the timeline: keys go from bar to bar, aloud, and open one', async () => {
	await openTimeline({range: '230000000~262000000'});
	await chart.focus();
	// Over the pass that was held up, and the layers.
	for (let i = 0; i < 3; i++)
		await page.keyboard.press('ArrowDown');
	assert.match(await spoken(), /^operations, cuda 1, stream 7, at 246 ms: flash::attention_kernel, void flash::attention_kernel<.*>\(float const\*, int\), attention, layer 4, 719\.\d+ \u00b5s/);
	await page.keyboard.press('.');
	assert.match(await spoken(), /onerror.*norm, layer 4/);
	await page.keyboard.press(',');
	assert.match(await spoken(), /attention, layer 4/);
	await page.keyboard.press('[');
	for (let i = 0; i < 5; i++)
		await page.keyboard.press('.');
	assert.match(await spoken(), /grouped_gemm.*experts, layer 4/);
	await page.keyboard.press(']');
	const [from, until] = (await state()).get('sel').split('~').map(Number);
	assert.ok(from > 246000000 && from < 246800000 && until > 247700000 && until < 249300000);
	await page.keyboard.press('Enter');
	await quiet();
	assert.match(await text('section[aria-label=Operation]'), /Operation \d+[^]*grouped_gemm/);
	const before = await url();
	const seen = await text('.readout');
	assert.match(seen, /operations, cuda 1, stream 7 at /);
	await page.reload();
	await quiet();
	assert.equal(await url(), before);
	assert.equal(await text('.readout'), seen);
	await chart.focus();
	await page.keyboard.press('Escape');
	assert.deepEqual([...(await state()).keys()].sort(), ['lane', 'range', 'trace', 'view']);
	await page.keyboard.press('End');
	assert.ok(Math.abs((await range())[1] - 500000000) < 2);
	await page.getByLabel('Ranges').uncheck();
	assert.equal((await state()).get('hide'), 'ranges');
	assert.ok(!(await texts()).some((each) => each.text === 'thread 1'));
});

// ---- figures ----

const rowsOf = (table) => told(`timeline-${table}`);

// Of the numbers by key: how many, their sum, mean and percentiles of the nearest rank.
function spread(list, key) {
	const groups = new Map();
	for (const row of list)
		groups.set(row[key], [...(groups.get(row[key]) ?? []), row.duration]);
	return [...groups].map(([name, all]) => {
		const known = all.filter((value) => value !== null).sort((a, b) => a - b);
		const total = known.reduce((sum, value) => sum + value, 0);
		const percentile = (p) => known[Math.ceil((p / 100) * known.length) - 1];
		return {name, n: all.length, total_ns: total, mean_ns: total / known.length, p50_ns: percentile(50), p95_ns: percentile(95), p99_ns: percentile(99)};
	});
}

function same(table, expected, key, what) {
	assert.equal(table.length, expected.length, what);
	for (const row of expected) {
		const found = table.find((each) => each[key] === row.name);
		assert.ok(found, `${what}: ${row.name}`);
		for (const column of ['n', 'total_ns', 'p50_ns', 'p95_ns', 'p99_ns'])
			assert.equal(found[column], row[column], `${what}: ${column} of ${row.name}`);
		assert.ok(Math.abs(found.mean_ns - row.mean_ns) < 1e-6 * row.mean_ns, `${what}: mean of ${row.name}`);
	}
}

function operations() {
	const strings = new Map(rowsOf('string').map((row) => [row.string_id, row]));
	const list = rowsOf('kernel').map((row) => ({start: row.start_ns, end: row.end_ns, ...strings.get(row.name_id)}));
	for (const launch of rowsOf('graph_launch')) {
		const times = Buffer.from(launch.node_times, 'hex');
		for (const node of rowsOf('graph_node').filter((row) => row.graph === launch.graph)) {
			const start = times.readUInt32LE(8 * node.node), length = times.readUInt32LE(8 * node.node + 4);
			if (start !== 0xffffffff)
				list.push({start: launch.start_ns + start, end: launch.start_ns + start + length, ...strings.get(node.name_id)});
		}
	}
	return list.map((row) => ({...row, duration: row.end - row.start}));
}

await part('the timeline: figures of a selection are those of the rows', async () => {
	for (const [from, until] of [[0, 500000000], [231000000, 372000000], [352000000, 353000000]]) {
		const inside = (row) => row.start < until && row.end >= from;
		await openTimeline({sel: `${from}~${until}`});
		const kernels = operations().filter(inside);
		same(await tableJson('operations in the selection'), spread(kernels, 'value'), 'name', `operations ${from}`);
		same(await tableJson('roles of operations in the selection'), spread(kernels, 'role'), 'role', `roles ${from}`);
		const passes = rowsOf('pass').map((row) => ({...row, start: row.begin_ns, end: row.end_ns, duration: row.end_ns - row.begin_ns})).filter(inside);
		const told = await tableJson('passes in the selection');
		same(told, spread(passes, 'phase'), 'phase', `passes ${from}`);
		assert.equal(told.reduce((sum, row) => sum + row.rows, 0), passes.reduce((sum, row) => sum + row.n_rows, 0));
		const names = new Map(rowsOf('string').map((row) => [row.string_id, row.value]));
		const ranges = rowsOf('range').map((row) => ({start: row.start_ns, end: row.end_ns, duration: row.end_ns - row.start_ns, name: names.get(row.name_id)}));
		same(await tableJson('ranges in the selection'), spread(ranges.filter(inside), 'name'), 'name', `ranges ${from}`);
		const layers = passes.flatMap((pass) => {
			const of = rowsOf('pass_layer').filter((row) => row.pass_id === pass.pass_id).sort((a, b) => a.selected_ns - b.selected_ns);
			return of.map((row, i) => {
				const end = of[i + 1]?.selected_ns ?? pass.end_ns;
				return {layer: row.layer_id - 1, start: row.selected_ns, end, duration: end - row.selected_ns};
			});
		});
		same(await tableJson('layers in the selection'), spread(layers.filter(inside), 'layer'), 'layer', `layers ${from}`);
	}
});

await part('the timeline: energy has a basis, and none below a second', async () => {
	await openTimeline({sel: '0~500000000'});
	for (const row of await tableJson('energy in the selection')) {
		assert.equal(row.energy_j, null);
		assert.match(row.basis, /^none: the readings here lie less than a second apart/);
		const watts = rowsOf('power_sample').filter((each) => each.device_id === row.device_id).map((each) => each.instant_mw / 1000);
		assert.ok(Math.abs(row.mean_w - watts.reduce((a, b) => a + b) / watts.length) < 1e-6 && row.max_w === Math.max(...watts));
	}
	await open({view: 'timeline', trace: '2', sel: '10050000000~20000000000'});
	const [row] = await tableJson('energy in the selection');
	assert.match(row.basis, /^energy counter/);
	// big.sql's counter goes on by 55 J each 0.1 s.
	assert.equal(row.between_ns, 9900000000);
	assert.ok(Math.abs(row.energy_j - 99 * 55) < 1e-9);
});

await part('the timeline: the picture as tables', async () => {
	await openTimeline({table: '1', range: '230000000~262000000'});
	const bars = await tableJson('bars of the picture');
	const kernels = bars.filter((row) => row.lane === 'operations, cuda 1, stream 7');
	const expected = rowsOf('kernel').filter((row) => row.device_id === 1 && row.stream === 7 && row.start_ns <= 262000000 && row.end_ns >= 230000000);
	assert.deepEqual(kernels.map((row) => [row.start_ns, row.duration_ns]), expected.map((row) => [row.start_ns, row.end_ns - row.start_ns]));
	assert.equal(bars.filter((row) => row.lane.startsWith('between ranks')).length, 32);
	assert.deepEqual(bars.filter((row) => row.lane === 'ranges, thread 1, 1 deep').map((row) => row.name), ['forward', 'sample']);
	const counters = await tableJson('counters of the picture');
	const power = counters.find((row) => row.counter === 'power of cuda 2, gpu');
	const readings = rowsOf('power_sample').filter((row) => row.device_id === 2 && row.time_ns >= 230000000 && row.time_ns <= 262000000).map((row) => row.instant_mw / 1000);
	assert.ok(Math.abs(power.least - Math.min(...readings)) < 0.01 && Math.abs(power.most - Math.max(...readings)) < 0.01 && power.limit === 700);
	const csv = (await downloaded(page.locator('[role=region][aria-label="bars of the picture"]').getByRole('button', {name: 'CSV'}))).toString();
	assert.equal(csv.split('\r\n').length, bars.length + 2);
	assert.match(csv, /"void flash::attention_kernel<__half, 128, 64>\(float const\*, int\)"/);
});

await part('the timeline: where clocks were held down, and by what', async () => {
	// Readings of cuda 1, each 20 ms apart: 5 to 9 say the power limit, 10 a temperature, too.
	const expected = [['cuda 1', 'power limit', 100000000, 100000000, 5], ['cuda 1', 'power limit, temperature (hardware)', 200000000, 20000000, 1]];
	const held = async () => (await tableJson('clocks held down')).map((row) => [row.device, row.held_down_by, row.start_ns, row.duration_ns, row.n_readings]);
	await openTimeline({table: '1'});
	assert.deepEqual(await held(), expected);
	const picture = await texts();
	assert.equal(picture.filter((each) => each.text === 'held down: power limit').length, 1, 'on the power of cuda 1 alone');
	const {y} = picture.find((each) => each.text === 'held down: power limit');
	assert.match(await hover(150000000, y - 20), /^power of cuda 1, gpu: .*\nread at 140 ms.*\nclocks held down: power limit$/);
	assert.doesNotMatch(await hover(50000000, y - 20), /held down/);
	await openTimeline({table: '1', range: '205000000~215000000'});
	assert.deepEqual(await held(), expected.slice(1));
});

// ---- taken along, printed ----

await part('the timeline: PNG and SVG', async () => {
	await openTimeline({range: '230000000~300000000'});
	const png = await downloaded(page.locator('.timeline').getByRole('button', {name: 'PNG'}));
	const canvas = await page.evaluate(() => {
		const {width, height} = document.querySelector('.timeline canvas');
		return {width, height};
	});
	assert.deepEqual([png.readUInt32BE(16), png.readUInt32BE(20)], [canvas.width, canvas.height]);
	const text = await svg();
	const parsed = await page.evaluate((source) => {
		const root = new DOMParser().parseFromString(source, 'image/svg+xml').documentElement;
		return {name: root.nodeName, errors: root.querySelectorAll('parsererror').length, height: Number(root.getAttribute('height')), rects: root.querySelectorAll('rect').length, scripts: root.querySelectorAll('script, image, img').length};
	}, text);
	assert.equal(parsed.name, 'svg');
	assert.equal(parsed.errors + parsed.scripts, 0);
	assert.ok(parsed.rects > 100 && Math.abs(parsed.height - canvas.height) <= 1);
});

await part('the timeline: printed light, without controls; nothing moves by itself', async () => {
	await page.emulateMedia({colorScheme: 'dark', reducedMotion: 'reduce'});
	await openTimeline();
	const corner = () => page.evaluate(() => [...document.querySelector('.timeline canvas').getContext('2d').getImageData(1, 1, 1, 1).data]);
	assert.deepEqual(await corner(), [20, 23, 28, 255]);
	await page.evaluate(() => dispatchEvent(new Event('beforeprint')));
	assert.deepEqual(await corner(), [255, 255, 255, 255]);
	await page.emulateMedia({media: 'print', colorScheme: 'dark'});
	assert.equal(await page.locator('.controls').first().isVisible(), false);
	assert.ok((await page.locator('.timeline canvas').boundingBox()).height > 300);
	await page.emulateMedia({media: null, colorScheme: 'dark', reducedMotion: 'reduce'});
	await page.evaluate(() => dispatchEvent(new Event('afterprint')));
	await quiet();
	assert.deepEqual(await corner(), [20, 23, 28, 255]);
	assert.equal(await page.evaluate(() => [...document.querySelectorAll('*')].some((each) => parseFloat(getComputedStyle(each).transitionDuration) > 0 || getComputedStyle(each).animationName !== 'none')), false);
	await page.emulateMedia({colorScheme: null, reducedMotion: null});
	tolerate(/willReadFrequently/);
});

// ---- what is missing ----

await part('the timeline: what is not there, why, and how to get it', async () => {
	await openTimeline();
	assert.equal(await page.locator('.missing').count(), 0);
	await page.getByText('The sources of times and power that were asked for').click();
	const rapl = (await tableJson('sources')).find((row) => row.name === 'rapl');
	assert.deepEqual([rapl.state, rapl.reason], ['denied', '/sys/class/powercap is for root alone: chmod it']);
	await open({view: 'timeline'});
	await page.locator('.missing').waitFor();
	const missing = await text('.missing');
	assert.match(missing, /power\. Nobody asked for it: record with MOETRACE_COLLECTORS=nvml/);
	assert.doesNotMatch(missing, /operations\./);
	await open({view: 'timeline', trace: '3'});
	await page.locator('.missing').waitFor();
	assert.match(await text('.missing'), /operations\. Nobody asked for it: record with MOETRACE_COLLECTORS=cupti/);
	// Also in a single file, from disk.
	await page.goto(`file://${join(folder, 'page.html')}#view=timeline`);
	await page.locator('.missing').waitFor();
	assert.ok((await text('.missing')).includes(missing.split('\n').find((line) => line.startsWith('power'))));
});

await part('the timeline: by axe in both themes, with all that can be open', async () => {
	for (const scheme of ['light', 'dark']) {
		await page.emulateMedia({colorScheme: scheme});
		await openTimeline({range: '230000000~300000000', sel: '240000000~250000000', pass: '2', lane: 't2', at: '246000000', table: '1'});
		await accessible(`timeline, ${scheme}`);
	}
	await page.emulateMedia({colorScheme: null});
});

await finish();
