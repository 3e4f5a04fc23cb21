#!/bin/sh
# SPDX-License-Identifier: MIT
#
# list, status, start and stop against a running `moetrace run`, by name, process id and socket.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/support/live.sh"
need_command sqlite3

live_begin "$tmp/trace.db" --idle

# ---- finding it ----
expect_ok "$moetrace" list
expect_match "$tmp/out" "^moetrace +$live_pid +0 .* idle +0 +$tmp/trace.db +$live_socket$"
expect_ok "$moetrace" list --format json
expect_match "$tmp/out" "\"pid\":$live_pid,.*\"state\":\"idle\""
for session in moetrace "$live_pid" "$live_socket" "${live_socket##*/}"; do
	expect_ok "$moetrace" status "$session" --format csv
	expect_match "$tmp/out" "^moetrace,$live_pid,"
done
expect_ok "$moetrace" status --all
expect_match "$tmp/out" '^limit_in_s +-1$'

# ---- start and stop ----
expect_ok "$moetrace" start moetrace
expect_match "$tmp/out" ' recording +1 '
expect_error 1 'already recording' "$moetrace" start moetrace
live_wait 'recorded_passes +[1-9]'
expect_ok "$moetrace" stop "$live_pid" --reason lunch
expect_match "$tmp/out" ' idle +1 '
expect_error 1 'not recording' "$moetrace" stop "$live_pid"
expect_ok "$moetrace" start --all --source replay
live_wait 'recording_id +2'
live_wait 'recorded_passes +[1-9]'

# ---- one that stands still for some seconds is there still ----
# status_after S: of a session that is stopped for S seconds.
status_after() {
	kill -STOP "$live_pid"
	"$moetrace" status "$live_pid" >"$tmp/out" 2>"$tmp/err" &
	asker=$!
	sleep "$1"
	kill -CONT "$live_pid"
	status=0
	wait "$asker" || status=$?
}
# A machine that stands still, too, makes ten seconds of them, and then that is said.
tries=0
while status_after 2.5 && [ "$status" -ne 0 ]; do
	expect_match "$tmp/err" "$live_pid: no session that answers, and .* does not; is its process stopped"
	tries=$((tries + 1))
	[ "$tries" -lt 20 ] || fail "a session that stood still for 2.5 s is not found"
done
expect_match "$tmp/out" '^state +recording$'

# ---- what is wrong ----
expect_error 3 "nobody: neither a file nor a live session" "$moetrace" status nobody
expect_error 3 'nowhere.sock: No such file' "$moetrace" status "$tmp/nowhere.sock"
expect_error 1 'is not a socket' "$moetrace" status "$tmp/trace.db"
ln -s "$live_socket" "$tmp/link.sock"
expect_error 1 'symbolic links are not followed' "$moetrace" status "$tmp/link.sock"
long=$tmp/$(printf '%0200d' 0)
: >"$long"
expect_error 1 'has too long a name' "$moetrace" status "$long"
expect_error 2 'which SESSION' "$moetrace" status
expect_error 2 'exclude each other' "$moetrace" stop moetrace --all
expect_error 2 "unexpected argument 'moetrace'" "$moetrace" list moetrace
expect_error 1 'mode is per_token' "$moetrace" start moetrace --mode everything

# ---- two of the same name ----
first_pid=$live_pid
first_socket=$live_socket
live_begin "$tmp/second.db"
expect_error 1 "several sessions are called 'moetrace'" "$moetrace" status moetrace
expect_ok "$moetrace" status "$live_pid" "$first_pid" --format csv
expect_eq 'rows of status' "$(wc -l <"$tmp/out")" 3
expect_ok "$moetrace" stop "$first_socket"
expect_ok "$moetrace" status "$live_socket"
expect_match "$tmp/out" '^state +recording$'

# ---- the files ----
live_end
live_pid=$first_pid
live_end
expect_ok "$moetrace" list
expect_err 'no live session'
for file in trace second; do
	expect_ok "$moetrace" check "$tmp/$file.db"
done
expect_eq 'recordings' "$(sql "$tmp/trace.db" \
	'SELECT group_concat(end_reason || "," || routing_source, " ") FROM recording')" \
	'lunch,model stopped,replay'
expect_absent "$live_socket" "$first_socket"
