#!/bin/sh
# SPDX-License-Identifier: MIT
#
# rotate, dump and recover: files of a live `moetrace run`, and of one that was killed.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/support/live.sh"
need_command sqlite3

live_begin "$tmp/trace.db"
live_wait 'recorded_passes +[1-9]'

# ---- dump: the recording goes on, and the snapshot is a sound trace that ends ----
expect_ok "$moetrace" dump moetrace -o "$tmp/part.db"
expect_out "$tmp/part.db"
expect_ok "$moetrace" check "$tmp/part.db"
expect_eq 'end of the snapshot' \
	"$(sql "$tmp/part.db" 'SELECT end_reason, end_ns >= start_ns FROM recording')" 'dump|1'
n_passes=$(sql "$tmp/part.db" 'SELECT count(*) FROM pass')
[ "$n_passes" -gt 0 ] || fail "the snapshot has no pass"
expect_error 1 'exists already' "$moetrace" dump moetrace -o "$tmp/part.db"
expect_ok "$moetrace" dump "$live_pid" -f -o "$tmp/part.db"
[ "$(sql "$tmp/part.db" 'SELECT count(*) FROM pass')" -ge "$n_passes" ] ||
	fail "a later snapshot has fewer passes"
cp "$tmp/part.db" "$tmp/first-part.db"
expect_error 3 'has no recording 7' "$moetrace" dump moetrace --recording 7 -o "$tmp/seven.db"
expect_error 1 'No such file' "$moetrace" dump moetrace -o "$tmp/nowhere/part.db"
expect_error 3 'neither a file nor a live session' "$moetrace" dump nobody -o "$tmp/nobody.db"
expect_error 2 'is a file, and -o is for live sessions' \
	"$moetrace" dump "$tmp/part.db" -o "$tmp/copy.db"
expect_error 2 'recording goes with -o' "$moetrace" dump "$tmp/part.db" --recording 1
expect_ok "$moetrace" dump "$tmp/part.db"
expect_match "$tmp/out" '^table +pass '

# ---- every session ----
mkdir "$tmp/all"
expect_ok "$moetrace" dump --all -o "$tmp/all"
expect_eq 'a file a session' "$(cat "$tmp/out")" "$(echo "$tmp"/all/moetrace.*."$live_pid".*.db)"
expect_ok "$moetrace" check "$(cat "$tmp/out")"
expect_error 1 'exists already' "$moetrace" dump -o "$tmp/all" --all
expect_ok "$moetrace" dump --all -f -o "$tmp/all"
expect_error 2 'is no folder' "$moetrace" dump --all -o "$tmp/part.db"
expect_error 2 'is no folder' "$moetrace" dump --all -o "$tmp/nowhere"
expect_error 2 'needs -o FOLDER' "$moetrace" dump --all
expect_error 2 'exclude each other' "$moetrace" dump moetrace --all -o "$tmp/all"

# ---- a second recording, dumped alone ----
expect_ok "$moetrace" stop moetrace
# As from a GPU: graphs have no recording of their own, they go with their launches.
sqlite3 -batch -bail -cmd '.timeout 20000' "$tmp/trace.db" "INSERT INTO string VALUES (9000, 'k', 'other', 0);
	INSERT INTO device (device_id, process_id, kind, uuid) VALUES (50, 1, 'cuda', 'GPU-1');
	INSERT INTO graph_node VALUES (1, 0, 9000, NULL, NULL, NULL, NULL, 0);
	INSERT INTO graph_launch SELECT 1, 1, 50, 7, 1, start_ns, start_ns + 10, NULL, NULL, 0, 1, 0, x'000000000a000000', NULL
		FROM recording WHERE recording_id = 1;
	INSERT INTO collector VALUES (1, 'cupti', 'on', 'kernel', '13.0', NULL, 1, 0, 0, 1, 1, 1, 100000000);" ||
	fail "the file of the session that rests cannot be changed"
expect_ok "$moetrace" start moetrace
live_wait 'recorded_passes +[1-9]'
expect_ok "$moetrace" dump moetrace -o "$tmp/second.db"
expect_ok "$moetrace" check "$tmp/second.db"
expect_eq 'graphs of the other recording' "$(sql "$tmp/second.db" 'SELECT count(*) FROM graph_node')" 0
expect_eq 'recordings' "$(sql "$tmp/second.db" 'SELECT group_concat(recording_id) FROM recording')" 2
expect_ok "$moetrace" dump moetrace --recording 1 -o "$tmp/first.db"
expect_ok "$moetrace" check "$tmp/first.db"
expect_eq 'end' "$(sql "$tmp/first.db" 'SELECT end_reason FROM recording')" stopped
expect_eq 'its graphs' "$(sql "$tmp/first.db" 'SELECT count(*) FROM graph_node')" 1

# ---- rotate ----
expect_ok "$moetrace" rotate moetrace
expect_match "$tmp/out" " recording +3 +$tmp/trace.1.db$"
live_wait 'recorded_passes +[1-9]'
expect_ok "$moetrace" check "$tmp/trace.db"
expect_absent "$tmp/trace.db-wal"
(cd "$tmp" && exec "$moetrace" rotate moetrace -o given.db >"$tmp/out")
expect_match "$tmp/out" " recording +4 +$tmp/given.db$"
expect_error 1 'exists already|cannot create' "$moetrace" rotate moetrace -o "$tmp/given.db"
expect_error 2 'names one file' "$moetrace" rotate --all -o "$tmp/x.db"
live_wait 'recorded_passes +[1-9]'

# ---- recover: what is left when it is killed now ----
expect_error 1 'in use by another process' "$moetrace" recover "$tmp/given.db" -o "$tmp/no.db"
kill -KILL "$live_pid"
wait "$live_pid" 2>/dev/null
expect_file "$tmp/given.db-wal"
cp "$tmp/given.db" "$tmp/kept.db"
cp "$tmp/given.db-wal" "$tmp/kept.db-wal"
rm -f "$tmp/given.db-shm"
expect_ok "$moetrace" recover "$tmp/given.db" -o "$tmp/clean.db"
expect_out "$tmp/clean.db"
expect_same "$tmp/given.db" "$tmp/kept.db"
expect_same "$tmp/given.db-wal" "$tmp/kept.db-wal"
expect_absent "$tmp/given.db-shm" "$tmp/clean.db-wal"
expect_ok "$moetrace" check "$tmp/clean.db"
expect_eq 'how it ended' \
	"$(sql "$tmp/clean.db" 'SELECT end_reason FROM recording ORDER BY recording_id DESC LIMIT 1')" killed
for table in pass pass_request pass_layer request model layer; do
	expect_eq "rows of $table" "$(sql "$tmp/clean.db" "SELECT count(*) FROM $table")" \
		"$(sqlite3 "$tmp/kept.db" "SELECT count(*) FROM $table")"
done
expect_eq 'orphans' "$(sql "$tmp/clean.db" 'SELECT count(*) FROM topk WHERE topk_id NOT IN
	(SELECT topk_id FROM pass_layer WHERE topk_id IS NOT NULL)')" 0
expect_error 3 'No such file' "$moetrace" recover "$tmp/none.db" -o "$tmp/no.db"
echo 'no trace' >"$tmp/text"
expect_error 1 'is damaged or not a trace' "$moetrace" recover "$tmp/text" -o "$tmp/no.db"
expect_error 2 '-o NEW.db is missing' "$moetrace" recover "$tmp/given.db"

# ---- nothing unfinished lies around ----
for path in "$tmp"/.*.tmp*; do
	[ ! -e "$path" ] || fail "$path was left"
done
