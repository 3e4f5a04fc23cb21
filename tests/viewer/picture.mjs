// SPDX-License-Identifier: MIT
//
// Pictures of moetrace plot as a browser draws them: node picture.mjs CHROMIUM FOLDER. Of each heatmap
// NAME.svg in FOLDER the pixels of cells are compared with the colours that the page's maps give for
// the tokens in NAME.json, [{layer, expert, tokens}]; light and dark, the frame with the style sheet.
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';

const [, , chromium, folder, ...names] = process.argv;
const tree = join(dirname(fileURLToPath(import.meta.url)), '../..');
const {chromium: engine} = await import(join(tree, 'viewer/page/node_modules/playwright-core/index.mjs'));
const browser = await engine.launch({executablePath: chromium, timeout: 120000, args: ['--headless', '--no-sandbox', '--disable-gpu']});

const source = readFileSync(join(tree, 'viewer/page/src/color.ts'), 'utf8');
const cividis = JSON.parse(`[${/const cividis: Rgb\[\] = \[([^;]*)\];/.exec(source)[1].trim().replace(/,$/, '')}]`);
assert.equal(cividis.length, 11);

function color(part) {
	const at = (Math.round(part * 255) / 255) * (cividis.length - 1);
	const from = Math.min(Math.floor(at), cividis.length - 2);
	return cividis[from].map((c, i) => Math.round(c + (cividis[from + 1][i] - c) * (at - from)));
}

// The picture as an image, and its pixels at points of it.
function pixels({svg, points}) {
	return new Promise((done, fail) => {
		const image = new Image();
		image.onerror = () => fail(new Error('the picture is not drawn'));
		image.onload = () => {
			const canvas = document.createElement('canvas');
			canvas.width = image.naturalWidth;
			canvas.height = image.naturalHeight;
			const context = canvas.getContext('2d', {willReadFrequently: true});
			context.drawImage(image, 0, 0);
			done(points.map(([x, y]) => [...context.getImageData(x, y, 1, 1).data.slice(0, 3)]));
		};
		image.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
	});
}

const cell = /<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)" fill="#\w+"><title>layer (\d+), expert (\d+):/g;

for (const name of names) {
	const svg = readFileSync(join(folder, `${name}.svg`), 'utf8');
	const tokens = new Map(JSON.parse(readFileSync(join(folder, `${name}.json`), 'utf8'))
		.map((row) => [`${row.layer}/${row.expert}`, row.tokens]));
	const most = Math.max(...tokens.values());
	const cells = [...svg.matchAll(cell)].map((match) => match.slice(1).map(Number));
	assert.equal(cells.length, tokens.size, `${name}: cells`);
	// A corner of the cell: in its middle may be a mark.
	const points = cells.map(([x, y, width, height]) => [x + width - 1, y + height - 1]);
	for (const scheme of ['light', 'dark']) {
		const page = await browser.newPage({colorScheme: scheme});
		const complaints = [];
		page.on('console', (message) => complaints.push(message.text()));
		const seen = await page.evaluate(pixels, {svg, points: [[3, 3], ...points]});
		assert.deepEqual(seen[0], scheme === 'dark' ? [0x14, 0x17, 0x1c] : [255, 255, 255], `${name}: ground, ${scheme}`);
		cells.forEach(([, , , , layer, expert], i) => assert.deepEqual(seen[i + 1],
			color(tokens.get(`${layer}/${expert}`) / most), `${name}: layer ${layer}, expert ${expert}, ${scheme}`));
		assert.deepEqual(complaints, []);
		await page.close();
	}
	console.log(`ok ${name}: ${cells.length} cells have their colours, light and dark`);
}
await browser.close();
