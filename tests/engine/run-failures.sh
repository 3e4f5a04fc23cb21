# SPDX-License-Identifier: MIT
#
# What `moetrace run` does when something is in its way: a disk that takes no more,
# a reader that keeps the file, another run into the same file. Each is one line,
# and nothing that was there is lost.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

need_command sqlite3 prlimit
model=$tinymoe/tinymoe.safetensors
head -n 3 "$tinymoe/workload.jsonl" >"$tmp/short.jsonl"
cp "$tinymoe/workload.jsonl" "$tmp/long.jsonl"

# into WORKLOAD OPTION...: a run. (Not for the background: the job is a shell then.)
into() {
	workload=$tmp/$1
	shift
	"$moetrace" run --model "$model" --workload "$workload" "$@"
}

# narrow BYTES WORKLOAD OPTION...: a run none of whose files may pass BYTES.
narrow() (
	trap '' XFSZ
	limit=$1
	workload=$tmp/$2
	shift 2
	prlimit --fsize="$limit" "$moetrace" run --model "$model" --workload "$workload" "$@"
)

run into short.jsonl -o "$tmp/a.db" --text-output "$tmp/a.jsonl"
if grep -q libyajl-dev "$tmp/err"; then
	skip "built without a JSON parser"
fi
expect_eq 'exit status' "$status" 0

# nothing_left_aside: neither a set-aside recording nor a temporary text.
nothing_left_aside() {
	expect_eq 'files left' "$(find "$tmp" -name '*.old*' -o -name '*.tmp')" ''
}

# ---- what -f replaces stays until its successor has begun ----

cp "$tmp/a.db" "$tmp/kept.db"
cp "$tmp/a.jsonl" "$tmp/kept.jsonl"
: >"$tmp/a.db-wal"
expect_error 1 'a.db: ' narrow 50000 short.jsonl -o "$tmp/a.db" --text-output "$tmp/a.jsonl" -f
expect_same "$tmp/a.db" "$tmp/kept.db"
expect_same "$tmp/a.jsonl" "$tmp/kept.jsonl"
[ -e "$tmp/a.db-wal" ] || fail "the journal of what was to be replaced is gone"
nothing_left_aside
expect_ok into short.jsonl -o "$tmp/a.db" -f
expect_ok "$moetrace" check "$tmp/a.db"
expect_absent "$tmp/a.db-wal"
nothing_left_aside
echo stale >"$tmp/b.db-wal"
expect_ok into short.jsonl -o "$tmp/b.db" -f
expect_absent "$tmp/b.db-wal"
nothing_left_aside

# ---- the disk takes no more in the middle ----

# escaped N: N characters that take six bytes each in JSON.
escaped() {
	i=0
	while [ $i -lt "$1" ]; do
		printf '\\u0001'
		i=$((i + 1))
	done
}
# Of names that long the text is wide enough, and they are no work for the model.
name=$(escaped 900)
prompt=$(escaped 150)
for i in $(seq 90); do
	echo "{\"id\": \"$i$name\", \"prompt\": \"$prompt\", \"max_new_tokens\": 1}"
done >"$tmp/wide.jsonl"
status=0
narrow 425984 wide.jsonl -o "$tmp/full.db" --text-output "$tmp/full.jsonl" --format json \
	>"$tmp/out" 2>"$tmp/err" || status=$?
expect_eq 'exit status on a full disk' "$status" 1
expect_eq 'lines on stderr' "$(wc -l <"$tmp/err")" 1
expect_match "$tmp/err" 'the recording is not complete: .*full.db.*; .*full.jsonl cannot be written: File too large$'
expect_absent "$tmp/full.jsonl"
nothing_left_aside
# number NAME: of the summary.
number() {
	sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$tmp/out" | head -n 1
}
n_passes=$(($(number n_prefill_passes) + $(number n_decode_passes) + $(number n_mixed_passes)))
expect_eq 'recorded passes' "$(number recorded_passes)" \
	"$(sql "$tmp/full.db" 'select count(*) from pass')"
expect_eq 'recorded rows' "$(number recorded_rows)" \
	"$(sql "$tmp/full.db" 'select coalesce(sum(n_rows), 0) from pass')"
expect_eq 'passes not stored' "$(number dropped_passes)" \
	"$((n_passes - $(number recorded_passes)))"
[ "$(number dropped_passes)" -gt 0 ] || fail "nothing was lost on a full disk"

# ---- a reader, and another run ----

# hold NAME: a run into NAME.db in the background, $process, that has recorded passes and is stopped
# before its end, so that it does not end while others try.
hold() {
	hold_tries=0
	while :; do
		rm -f "$tmp/$1.db"
		"$moetrace" run --model "$model" --workload "$tmp/long.jsonl" -o "$tmp/$1.db" \
			>"$tmp/$1.out" 2>"$tmp/$1.err" &
		process=$!
		await "a pass in $1.db" $process "$tmp/$1.err" has_pass "$tmp/$1.db"
		kill -s STOP $process 2>/dev/null || :
		await "a run that is stopped" - - is_held
		! is_running $process || return 0
		# It was faster than those who look.
		wait $process || fail "a run has failed: $(cat "$tmp/$1.err")"
		hold_tries=$((hold_tries + 1))
		[ $hold_tries -lt 10 ] || fail "no run lasts"
	done
}
is_held() {
	! is_running $process || grep -q '^State:.*T' "/proc/$process/status" 2>/dev/null
}
has_pass() {
	[ "$(sql "$1" 'select count(*) from pass' 2>/dev/null || echo 0)" -ge 1 ]
}

for i in 1 2 3 4; do
	! is_sanitized || [ "$i" -eq 1 ] || break
	cat "$tinymoe/workload.jsonl"
done | sed 's/"id": *[^,]*, *//' >"$tmp/long.jsonl"

hold live
for option in '' -f; do
	# shellcheck disable=SC2086 # an option or none
	expect_error 1 'live.db is in use by another process' into short.jsonl \
		-o "$tmp/live.db" $option
done
nothing_left_aside
mkfifo "$tmp/fifo"
sqlite3 -batch "$tmp/live.db" <"$tmp/fifo" >"$tmp/reader.out" 2>&1 &
reader=$!
exec 9>"$tmp/fifo"
echo 'begin; select count(*) from pass;' >&9
await "a reader" $reader - grep -q . "$tmp/reader.out"
kill -s CONT $process
status=0
wait $process || status=$?
expect_eq 'exit status beside a reader' "$status" 0
expect_eq 'lines on stderr' "$(wc -l <"$tmp/live.err")" 1
expect_match "$tmp/live.err" 'warning: another program has .*live.db open: its journal .*live.db-wal stays beside it until that program ends'
expect_file "$tmp/live.db-wal"
exec 9>&-
wait $reader
expect_match "$tmp/reader.out" '^[0-9]+$'
expect_ok "$moetrace" check "$tmp/live.db"

# The journal of a live recording whose file was removed is nobody's to move.
hold gone
rm "$tmp/gone.db"
for option in '' -f; do
	# shellcheck disable=SC2086
	expect_error 1 'gone.db is in use by another process' into short.jsonl \
		-o "$tmp/gone.db" $option
	expect_file "$tmp/gone.db-wal"
done
kill -s KILL $process
wait $process 2>/dev/null

# Of several at once one records; no other touches its files or says to.
processes=
for i in 1 2 3 4; do
	"$moetrace" run --model "$model" --workload "$tmp/short.jsonl" -o "$tmp/race.db" \
		>"$tmp/race.$i.out" 2>"$tmp/race.$i.err" &
	processes="$processes $!"
done
n_done=0
for process in $processes; do
	status=0
	wait "$process" || status=$?
	[ $status -ne 0 ] || n_done=$((n_done + 1))
done
expect_eq 'runs that recorded' $n_done 1
cat "$tmp"/race.*.err >"$tmp/err"
expect_eq 'lines on stderr' "$(wc -l <"$tmp/err")" 3
expect_no_match "$tmp/err" 'move it away'
expect_ok "$moetrace" check "$tmp/race.db"
expect_absent "$tmp/race.db-wal" "$tmp/race.db-shm" "$tmp/race.db-journal"
