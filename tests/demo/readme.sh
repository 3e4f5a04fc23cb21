# SPDX-License-Identifier: MIT
#
# README.md tells the truth: the commands of its console blocks print, on the demo's file,
# exactly what stands below them.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_plain_build
need_command sqlite3

run "$moetrace" run --model "$tinymoe/tinymoe.safetensors" --workload "$tinymoe/workload.jsonl" \
	--record-tokens -o "$tmp/demo.db"
if grep -q libyajl-dev "$tmp/err"; then
	skip "built without a JSON parser"
fi
[ "$status" -eq 0 ] || fail "the demo does not run"

moetrace() {
	"$moetrace" "$@"
}

awk '/^```console$/ { inside = 1; next } /^```$/ { inside = 0 } inside' \
	"$MOETRACE_SRCDIR/README.md" >"$tmp/console"
grep -q '^\$ ' "$tmp/console" || fail "README.md has no console block"
cd "$tmp" || exit 99
: >"$tmp/got"
grep '^\$ ' "$tmp/console" | while IFS= read -r line; do
	printf '%s\n' "$line" >>"$tmp/got"
	eval "${line#\$ }" >>"$tmp/got" 2>&1 || echo "exit status $?" >>"$tmp/got"
done
expect_same "$tmp/got" "$tmp/console"

# What the prose says of the last table.
expect_match "$tmp/console" '^ +1 +1 +0 +51 +py +559 +867 +0\.644752 +3\.30173$'
