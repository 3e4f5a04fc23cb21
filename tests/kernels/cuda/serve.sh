#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The command serves the example's workload on a GPU: the text is the same with and without recording,
# with margins and kernel by kernel; files are sound, each pass says its device, each row of a router its
# margin, and a rule, which a lane does not take, is recorded from the host.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

# serve NAME [OPTION...]: into $tmp/NAME.db, with the text in $tmp/NAME.jsonl.
serve() {
	name=$1
	shift
	"$moetrace" run --device cuda --model "$tinymoe/tinymoe.safetensors" \
		--workload "$tinymoe/workload.jsonl" --text-output "$tmp/$name.jsonl" "$@" \
		>"$tmp/out" 2>"$tmp/err"
}

# record NAME [OPTION...]: the same into a file that is sound and without loss.
record() {
	name=$1
	shift
	serve "$name" --output "$tmp/$name.db" "$@" || fail "run $name: $?"
	"$moetrace" check --strict "$tmp/$name.db" >"$tmp/out" 2>"$tmp/err" || fail "check $name: $?"
}

# expect NAME WANT SQL: what a query of the file gives.
expect() {
	got=$("$moetrace" query "$tmp/$1.db" "$3") || fail "query of $1: $3"
	[ "$got" = "$2" ] || fail "$1: '$got', not '$2': $3"
}

ids() {
	"$moetrace" query "$tmp/$1.db" "SELECT group_concat(h, '') FROM
		(SELECT hex(topk_ids) AS h FROM topk ORDER BY topk_id)"
}

serve silent --no-record || {
	grep -q 'no GPU' "$tmp/err" && skip 'there is no GPU'
	fail "run: $?"
}
[ -s "$tmp/silent.jsonl" ] || fail 'no text was written'
record plain
record margins --margins
record launched --no-graph
for name in plain margins launched; do
	cmp "$tmp/silent.jsonl" "$tmp/$name.jsonl" || fail "$name: the text is another"
	expect "$name" 0 'SELECT count(*) FROM pass WHERE device_id IS NULL'
	expect "$name" 1 "SELECT count(*) FROM meta WHERE key = 'source.cuda' AND
		value LIKE 'attached: %'"
	expect "$name" 0 'SELECT count(*) FROM diagnostic'
	expect "$name" 0 "SELECT count(*) FROM request WHERE verdict <> 'complete'"
done
expect plain 0 'SELECT count(margins) FROM topk'
expect margins 0 'SELECT count(*) FROM topk WHERE margins IS NULL'
ids plain >"$tmp/plain.ids"
[ "$(wc -c <"$tmp/plain.ids")" -gt 1000 ] || fail 'there are no ids'
for name in margins launched; do
	ids "$name" | cmp - "$tmp/plain.ids" || fail "$name: the ids are others"
done
record rule --oea k0=2
expect rule 0 'SELECT count(*) FROM pass WHERE device_id IS NOT NULL'
