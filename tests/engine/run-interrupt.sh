# SPDX-License-Identifier: MIT
#
# SIGINT, SIGTERM and SIGHUP during a run: the recording is closed properly and
# says that it was interrupted, the open requests are aborted, and no text is
# published. A second run cannot replace the file meanwhile. A signal that was
# ignored stays so. A second signal leaves no temporary file.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

need_command sqlite3
need_json
for i in $(seq 200); do
	echo "{\"prompt\": \"Request $i: the router \", \"max_new_tokens\": 900}"
done >"$tmp/workload.jsonl"

# A shell starts what it puts into the background with SIGINT ignored, and nohup
# starts everything with SIGHUP ignored.
env --default-signal=INT,HUP true 2>/dev/null ||
	skip "env cannot give signals their default effect back"

# begin NAME COMMAND...: a run into NAME.db in the background, once it has recorded
# passes; $process is its number.
begin() {
	db=$tmp/$1.db
	text=$tmp/$1.jsonl
	shift
	"$@" "$moetrace" run --model "$tinymoe/tinymoe.safetensors" \
		--workload "$tmp/workload.jsonl" --text-output "$text" -o "$db" \
		>"$tmp/run.out" 2>"$tmp/run.err" &
	process=$!
	await "committed passes" $process "$tmp/run.err" has_passes 5
}

# has_passes N: so many were committed.
has_passes() {
	[ "$(sql "$db" 'select count(*) from pass' 2>/dev/null || echo 0)" -ge "$1" ]
}

signals='INT TERM HUP'
! is_sanitized || signals=TERM
for signal in $signals; do
	begin $signal env --default-signal=INT,HUP
	# Nobody replaces a file that is being recorded into.
	expect_error 1 "$signal.db is in use by another process" "$moetrace" run --model \
		"$tinymoe/tinymoe.safetensors" --workload "$tmp/workload.jsonl" -f -o "$db"
	kill -s $signal $process
	status=0
	wait $process || status=$?
	expect_eq "exit status after SIG$signal" "$status" 1
	expect_eq 'lines on stderr' "$(wc -l <"$tmp/run.err")" 1
	expect_match "$tmp/run.err" 'interrupted by a signal: [0-9]+ of 200 requests were served; the recording was closed; no text was written$'
	expect_match "$tmp/run.out" '^served +[0-9]+ of 200 requests'
	expect_absent "$db-wal" "$db-shm" "$db-journal" "$text"
	expect_eq 'temporary files' "$(find "$tmp" -name '*.tmp')" ''
	expect_eq 'end_reason' "$(sql "$db" 'select end_reason from recording')" interrupted
	expect_eq 'aborted requests' \
		"$(sql "$db" "select count(*) from request where end_state = 'aborted'")" 16
	expect_ok "$moetrace" check "$db"
done

# Ignored signals change nothing; one that is not ends the run.
begin ignored env --ignore-signal=INT --ignore-signal=HUP
kill -s INT $process
kill -s HUP $process
n_passes=$(sql "$db" 'select count(*) from pass')
await "passes after ignored signals" $process "$tmp/run.err" has_passes $((n_passes + 1))
kill -s TERM $process
status=0
wait $process || status=$?
expect_eq 'exit status after SIGTERM' "$status" 1
expect_match "$tmp/run.err" 'interrupted by a signal'

# Two signals at once: the second has its own effect, but the text is gone.
begin second env --default-signal=INT,HUP
expect_eq 'temporary files during the run' "$(find "$tmp" -name '*.tmp' | wc -l)" 1
kill -s STOP $process
kill -s INT $process
kill -s TERM $process
kill -s CONT $process
status=0
wait $process || status=$?
expect_eq 'exit status after the second signal' "$status" 143
expect_absent "$text"
expect_eq 'temporary files' "$(find "$tmp" -name '*.tmp')" ''
expect_ok "$moetrace" check "$db"
