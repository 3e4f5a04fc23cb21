# SPDX-License-Identifier: MIT
#
# A trace that is looked at while it is recorded: by its session's number, it is followed, its end is
# seen, and the recorder notices nothing: its journal stays short, and it ends with one file.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/support/live.sh"
. "$MOETRACE_SRCDIR/tests/viewer/view.sh"
need_server
need_command sqlite3
need_json

# state MEMBER: of the first trace, now.
state() {
	answered 200 GET "${base}api/0/state"
	sqlite3 :memory: "SELECT json_extract(readfile('$tmp/body'), '$.$1')"
}

# state_wait WANT: until it is so.
state_wait() {
	await "state $1" "$view_pid" "$tmp/view-err" state_is "$1"
}
state_is() {
	[ "$(state state)" = "$1" ]
}

live_begin "$tmp/live.db"
live_wait '^ *recorded_passes +[1-9][0-9]'
view_start "$live_pid"
answered 200 GET "${base}api/traces"
expect_match "$tmp/body" '"name":"live.db".*"is_live":true'
expect_eq "state" "$(state state)" recording
first=$(state last_pass_id)
version=$(state version)

# Everything is asked again and again, for two commits of the recorder and more.
longest=0
for _ in $(seq 6); do
	for question in info report load?recording=1\&model=1 timeline?recording=1\&width=800 requests?recording=1; do
		answered 200 GET "${base}api/0/$question"
	done
	bytes=$(stat -c %s "$tmp/live.db-wal" 2>/dev/null || echo 0)
	[ "$bytes" -le "$longest" ] || longest=$bytes
done
has_grown() {
	[ "$(state last_pass_id)" -gt "$first" ] && [ "$(state version)" != "$version" ]
}
await "a pass in the meantime, and a version that tells of it" "$live_pid" "$live_file.out" has_grown
# The recorder copies its journal into the file from 16 MiB on, and where readers are in the way, soon after.
[ "$longest" -lt 33554432 ] || fail "the journal has grown to $longest bytes"

# It ends at once, with one file, while the page goes on asking.
(
	while [ ! -e "$tmp/stop" ]; do
		"$ask" "$port" GET "${base}api/0/load?recording=1&model=1" >/dev/null 2>&1 || true
		sleep 0.05
	done
) &
asker=$!
live_end
touch "$tmp/stop"
wait "$asker"
state_wait ended
expect_eq "why" "$(state end_reason)" interrupted
expect_eq "files" "$(cd "$tmp" && echo live.db*)" "live.db live.db.out"
expect_eq "journal" "$(sql "$tmp/live.db" "SELECT count(*) FROM diagnostic WHERE message LIKE '%WAL%'")" 0
expect_eq "last pass" "$(state last_pass_id)" "$(sql "$tmp/live.db" 'SELECT max(pass_id) FROM pass')"

# The file may go, or another may take its place.
mv "$tmp/live.db" "$tmp/moved.db"
expect_eq "state" "$(state state)" deleted
cp "$tmp/moved.db" "$tmp/live.db"
expect_eq "state" "$(state state)" replaced
view_end

# A file that nobody records into is still; one whose recorder was killed is told apart from one that ended.
view_start "$tmp/moved.db"
expect_eq "state" "$(state state)" still
view_end
live_begin "$tmp/killed.db"
live_wait '^ *recorded_passes +[1-9]'
view_start "$tmp/killed.db"
expect_eq "state" "$(state state)" recording
expect_ok "$moetrace" rotate "$live_pid"
state_wait ended
expect_eq "why" "$(state end_reason)" rotated
view_end
view_start "$live_pid"
answered 200 GET "${base}api/traces"
expect_match "$tmp/body" '"name":"killed.1.db".*"is_live":true'
state_wait recording
kill -KILL "$live_pid"
wait "$live_pid" 2>/dev/null
state_wait killed
view_end

expect_error 3 "nobody: neither a file nor a live session" "$moetrace" view nobody
expect_error 3 'no such file' "$moetrace" view nobody.db
