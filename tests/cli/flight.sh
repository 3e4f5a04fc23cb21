#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Flight mode of `moetrace run`: nothing is in the file before a dump, which writes the last passes.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/support/live.sh"
need_command sqlite3

live_begin "$tmp/trace.db" --flight-bytes 1048576 --flight-seconds 60
live_wait 'flight_passes +[1-9]'
expect_ok "$moetrace" status moetrace
expect_match "$tmp/out" '^flight_bytes +1048576$'
expect_match "$tmp/out" '^recorded_passes +0$'
expect_eq 'passes in the file' "$(sql "$tmp/trace.db" 'SELECT count(*) FROM pass')" 0

# ---- a dump: the recording that was kept, and flight goes on in the next one ----
expect_ok "$moetrace" dump moetrace -o "$tmp/first.db"
expect_out "$tmp/first.db"
expect_ok "$moetrace" check "$tmp/first.db"
expect_eq 'the recording' \
	"$(sql "$tmp/first.db" 'SELECT recording_id, end_reason FROM recording')" '1|dump'
live_wait 'recording_id +2'
live_wait 'flight_passes +[1-9]'

# ---- once its memory is full, passes are let go ----
# A dump empties the memory: full is what has come near its end and is given a little more.
lets_go() {
	live_wait 'flight_fill_bytes +(10[2-4][0-9]{4}|9[5-9][0-9]{4})$'
	n_dumps=$((n_dumps + 1))
	sleep "$((n_dumps / 10)).$((n_dumps % 10))"
	expect_ok "$moetrace" dump moetrace -f -o "$tmp/second.db"
	expect_ok "$moetrace" check "$tmp/second.db"
	[ "$(sql "$tmp/second.db" "SELECT value FROM stats WHERE name = 'flight_let_go_passes'")" -gt 0 ]
}
n_dumps=0
until lets_go; do
	[ "$n_dumps" -lt 90 ] || fail "no pass was let go"
done
expect_match_text=$(sql "$tmp/second.db" "SELECT message FROM diagnostic WHERE severity = 'info'")
case $expect_match_text in
*'were let go on purpose, none of them is a loss') ;;
*) fail "the snapshot does not say that passes were let go: '$expect_match_text'" ;;
esac
expect_eq 'losses' "$(sql "$tmp/second.db" 'SELECT count(*) FROM gap')" 0

# ---- killed in flight: what was dumped is there, and the file is sound ----
live_wait 'flight_passes +[1-9]'
kill -KILL "$live_pid"
wait "$live_pid" 2>/dev/null
expect_ok "$moetrace" recover "$tmp/trace.db" -o "$tmp/clean.db"
expect_ok "$moetrace" check "$tmp/clean.db"

# ---- the end lets go what was not dumped ----
live_begin "$tmp/ends.db" --flight-seconds 1
live_wait 'flight_passes +[1-9]'
live_end
expect_ok "$moetrace" check "$tmp/ends.db"
expect_eq 'what is left' "$(sql "$tmp/ends.db" "SELECT end_reason, (SELECT count(*) FROM pass),
	(SELECT value > 0 FROM stats WHERE name = 'flight_let_go_passes') FROM recording")" \
	'interrupted|0|1'

expect_error 2 'flight-bytes' "$moetrace" run --flight-bytes 1000
expect_error 2 'flight-seconds' "$moetrace" run --flight-seconds 0
