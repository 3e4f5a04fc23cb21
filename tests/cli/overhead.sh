#!/bin/sh
# SPDX-License-Identifier: MIT
#
# overhead: the estimate finds what recording is known to cost a runtime that takes 2 ms more for
# each pass that is recorded; and the session goes on when the command is killed.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command sqlite3
runtime=$MOETRACE_BUILDDIR/tests/control/steady_runtime
[ -x "$runtime" ] || skip "the test's runtime was not built"
MOETRACE_SOCKET_DIR=$tmp/sockets
export MOETRACE_SOCKET_DIR
mkdir -m 700 "$MOETRACE_SOCKET_DIR"

"$runtime" "$tmp/trace.db" 2>"$tmp/runtime.err" &
pid=$!
records() {
	"$moetrace" status "$pid" >"$tmp/out" 2>&1
	grep -Eq 'state +recording' "$tmp/out"
}
await "a recording of the runtime" "$pid" "$tmp/runtime.err" records

# Off: 2 and 4 ms, in turns; on: 4 and 6 ms. So 20 tokens take 6 ms, or 10.
estimate() {
	expect_ok "$moetrace" overhead "$pid" --blocks 7 --block-ms $((120 + 60 * tries)) --format json
	sqlite3 :memory: "
	WITH step AS (SELECT json_extract(value, '\$.rows') AS n_rows, json_extract(value, '\$.change_percent') AS percent,
			     json_extract(value, '\$.low_percent') <= json_extract(value, '\$.change_percent') AND
			     json_extract(value, '\$.change_percent') <= json_extract(value, '\$.high_percent') AS is_inside
		      FROM json_each(CAST(readfile('$tmp/out') AS TEXT), '\$.steps')
		      WHERE json_extract(value, '\$.phase') = 'decode')
	SELECT (SELECT group_concat(n_rows || ':' || is_inside ||
				    (abs(percent - CASE n_rows WHEN 4 THEN 100 ELSE 50 END) < 25), ' ')
		FROM step),
	       abs(json_extract(CAST(readfile('$tmp/out') AS TEXT), '\$.throughput[0].change_percent') + 40) < 15,
	       json_extract(CAST(readfile('$tmp/out') AS TEXT), '\$.throughput[0].pairs')"
}
# A machine with other things to do may need another try, of longer blocks.
tries=0
until [ "$(estimate)" = '4:11 16:11|1|7' ]; do
	tries=$((tries + 1))
	[ "$tries" -lt 20 ] || fail "the estimate is not what it costs: $(cat "$tmp/out")"
done

# As a table, with too few pairs for an interval.
expect_ok "$moetrace" overhead "$pid" --blocks 2 --block-ms 200
expect_match "$tmp/out" '^Step time by batch size$'
expect_match "$tmp/out" '^Tokens a second$'
expect_match "$tmp/out" ' - +-$'

# ---- killed in the middle: everything is recorded again ----
notes() {
	sqlite3 "$tmp/trace.db" "SELECT count(*) FROM diagnostic WHERE message LIKE 'the cost of%'"
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
expect_ok "$moetrace" overhead "$pid" --blocks 1 --block-ms 200

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
