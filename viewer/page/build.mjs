// SPDX-License-Identifier: MIT
//
// Makes ../dist from src/: one script, one style sheet, one page. The same sources and the locked
// packages give the same bytes. `node build.mjs DIR` writes elsewhere.
import {build} from 'esbuild';
import {createHash} from 'node:crypto';
import {copyFileSync, mkdirSync, readFileSync, writeFileSync} from 'node:fs';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, '../dist');

// What the licences of the bundled packages ask for.
const licences = ['preact']
	.map((name) => `${name}: ${readFileSync(join(here, 'node_modules', name, 'LICENSE'), 'utf8').trim()}`)
	.join('\n\n')
	.replaceAll('*/', '* /');

mkdirSync(out, {recursive: true});
await build({
	absWorkingDir: here,
	entryPoints: {app: 'src/main.tsx'},
	bundle: true,
	minify: true,
	charset: 'ascii',
	format: 'iife',
	target: 'es2022',
	jsx: 'automatic',
	jsxImportSource: 'preact',
	legalComments: 'none',
	banner: {js: `/*\nmoetrace's page. It holds these packages:\n\n${licences}\n*/`},
	outdir: out,
	logLevel: 'warning',
});
copyFileSync(join(here, 'src/index.html'), join(out, 'index.html'));
const script = readFileSync(join(out, 'app.js'), 'utf8').trimEnd() + '\n';
if (/<\/script|<!--/i.test(script))
	throw new Error('the script cannot stand inside a page');
writeFileSync(join(out, 'app.js'), script);
// A single file lets this script through and no other.
writeFileSync(join(out, 'script.sha256'), createHash('sha256').update(script).digest('base64') + '\n');
