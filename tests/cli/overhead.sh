#!/bin/sh
# SPDX-License-Identifier: MIT
#
# overhead: the estimate finds what recording costs a runtime that takes 2 ms more for each pass that is
# recorded, as the runtime saw it itself; and the session goes on when the command is killed.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command sqlite3
runtime=$MOETRACE_BUILDDIR/tests/control/steady_runtime
[ -x "$runtime" ] || skip "the test's runtime was not built"
MOETRACE_SOCKET_DIR=$tmp/sockets
export MOETRACE_SOCKET_DIR
mkdir -m 700 "$MOETRACE_SOCKET_DIR"

"$runtime" "$tmp/trace.db" "$tmp/steps" 2>"$tmp/runtime.err" &
pid=$!
records() {
	"$moetrace" status "$pid" >"$tmp/out" 2>&1
	grep -Eq 'state +recording' "$tmp/out"
}
await "a recording of the runtime" "$pid" "$tmp/runtime.err" records

# measure OPTION...: overhead, again where the machine stood still so long that no two blocks have passes.
measure() {
	measure_tries=0
	while :; do
		run "$moetrace" overhead "$pid" "$@"
		[ "$status" -ne 0 ] || return 0
		measure_tries=$((measure_tries + 1))
		[ "$measure_tries" -lt 100 ] || fail "nothing is measured"
		grep -q 'no pair of blocks has passes in both' "$tmp/err" || fail "overhead $*"
	done
}

# The medians of what steps took meanwhile: how much more those that were recorded, in percent; of 4 rows, of
# 16, and tokens a second. On a quiet machine 2 and 4 ms in turns, or 4 and 6, so 100, 50 and -40.
took() {
	sort -k 1,1n -k 2,2n -k 3,3n "$1" | awk '
		{ ns[$1, $2, ++n[$1, $2]] = $3 }
		function median(rows, on) { return ns[rows, on, int((n[rows, on] + 1) / 2)] + 0 }
		END {
			if (median(4, 0) * median(16, 0) * median(4, 1) * median(16, 1))
				print median(4, 1) / median(4, 0) * 100 - 100, median(16, 1) / median(16, 0) * 100 - 100,
					(median(4, 0) + median(16, 0)) / (median(4, 1) + median(16, 1)) * 100 - 100
			else
				print 1e9, 1e9, 1e9
		}'
}

is_estimated() {
	before=$(wc -l <"$tmp/steps")
	measure --blocks 7 --block-ms $((60 + tries % 10 * 20)) --format json
	tail -n +$((before + 1)) "$tmp/steps" | sed '$d' >"$tmp/meanwhile"
	took "$tmp/meanwhile" >"$tmp/took"
	read -r of4 of16 tokens <"$tmp/took"
	estimate=$(sqlite3 :memory: "
	WITH step AS (SELECT json_extract(value, '\$.rows') AS n_rows, json_extract(value, '\$.change_percent') AS percent,
			     json_extract(value, '\$.low_percent') <= json_extract(value, '\$.change_percent') AND
			     json_extract(value, '\$.change_percent') <= json_extract(value, '\$.high_percent') AS is_inside
		      FROM json_each(CAST(readfile('$tmp/out') AS TEXT), '\$.steps')
		      WHERE json_extract(value, '\$.phase') = 'decode')
	SELECT (SELECT group_concat(n_rows || ':' || is_inside ||
				    (abs(percent - CASE n_rows WHEN 4 THEN $of4 ELSE $of16 END) < 25), ' ')
		FROM step),
	       abs(json_extract(CAST(readfile('$tmp/out') AS TEXT), '\$.throughput[0].change_percent') - $tokens) < 15,
	       json_extract(CAST(readfile('$tmp/out') AS TEXT), '\$.throughput[0].pairs')")
	[ "$estimate" = '4:11 16:11|1|7' ]
}
# A machine that stands still for a moment needs another try: the shorter, the likelier it is without; the
# longer, the more steps are in a block.
tries=0
until is_estimated; do
	tries=$((tries + 1))
	[ "$tries" -lt 60 ] || fail "the estimate is not what it costs: $estimate, $(cat "$tmp/took")"
done

# As a table, with too few pairs for an interval.
measure --blocks 2 --block-ms 200
expect_match "$tmp/out" '^Step time by batch size$'
expect_match "$tmp/out" '^Tokens a second$'
expect_match "$tmp/out" ' - +-$'

# ---- killed in the middle: everything is recorded again ----
notes() {
	sqlite3 "$tmp/trace.db" "SELECT coalesce(sum(n_times), 0) FROM diagnostic WHERE
		message LIKE 'the cost of%'"
}
expect_ok "$moetrace" dump "$pid" -o "$tmp/part.db"
before=$(notes)
"$moetrace" overhead "$pid" --blocks 1000 --block-ms 60000 >"$tmp/killed" 2>&1 &
killed=$!
has_begun() {
	[ "$(notes)" -gt "$before" ]
}
await "a measurement" "$killed" "$tmp/killed" has_begun
expect_error 1 'being measured already' "$moetrace" overhead "$pid"
kill -KILL "$killed"
wait "$killed" 2>/dev/null
# Once it is seen that it is gone.
is_free() {
	run "$moetrace" overhead "$pid" --blocks 1 --block-ms 200
	[ "$status" -eq 0 ]
}
await "another measurement" "$pid" "$tmp/err" is_free

# ---- what is wrong ----
expect_error 2 'which SESSION' "$moetrace" overhead
expect_error 2 'one SESSION at a time' "$moetrace" overhead "$pid" other
expect_error 2 'blocks' "$moetrace" overhead "$pid" --blocks 0
expect_error 2 'block-ms' "$moetrace" overhead "$pid" --block-ms 1
expect_error 3 'neither a file nor a live session' "$moetrace" overhead nobody
expect_ok "$moetrace" stop "$pid"
expect_error 1 'nothing is recorded' "$moetrace" overhead "$pid"

kill -TERM "$pid"
wait "$pid" || fail "the runtime failed"
expect_ok "$moetrace" check "$tmp/trace.db"
