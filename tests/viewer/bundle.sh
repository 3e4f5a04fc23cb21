# SPDX-License-Identifier: MIT
#
# The committed bundle is what its sources give, stays small, and comes from no other place.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_plain_build

page=$MOETRACE_SRCDIR/viewer/page
dist=$MOETRACE_SRCDIR/viewer/dist
bytes=$(cat "$dist"/* | wc -c)
[ "$bytes" -lt 200000 ] || fail "the bundle has $bytes bytes"
# It loads nothing from elsewhere, and makes no code from text.
expect_no_match "$dist/app.css" 'url\(|@import'
expect_no_match "$dist/index.html" 'https?:|<script>|style='
! grep -oE '.{20}(eval\(|new Function|importScripts|document\.write).{20}' "$dist/app.js" ||
	fail "the bundle makes code from text"
! grep -rnE 'eval\(|new Function|document\.write|[iI]nnerHTML|outerHTML|insertAdjacent' "$page/src" ||
	fail "the page makes markup from text"
expect_no_match "$page/package-lock.json" '"resolved"'

need_command node
[ -d "$page/node_modules/esbuild" ] || skip "no packages: 'npm ci' in viewer/page gets them"
for tool in esbuild preact typescript; do
	expect_eq "version of $tool" "$(node -p "require('$page/node_modules/$tool/package.json').version")" \
		"$(node -p "require('$page/package.json').devDependencies.$tool")"
done
(cd "$page" && node_modules/.bin/tsc) || fail "the page's types do not hold"
expect_ok node "$page/build.mjs" "$tmp/dist"
for file in index.html app.js app.css script.sha256; do
	expect_same "$tmp/dist/$file" "$dist/$file"
done
echo "$bytes bytes, built again byte by byte"
