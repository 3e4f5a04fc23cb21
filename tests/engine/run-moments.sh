# SPDX-License-Identifier: MIT
#
# SIGTERM at any moment of a run, more than once at a time as timeout(1) sends it: there is no file yet, or
# one that is sound and has its end. The moments are spread over what a whole run takes here.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

need_command sqlite3
n_moments=12
! is_sanitized || n_moments=4
for i in $(seq 8); do
	echo "{\"prompt\": \"Request $i: the router \", \"max_new_tokens\": 40}"
done >"$tmp/workload.jsonl"

# run_it NAME: a run into NAME.db.
run_it() {
	exec "$moetrace" run --model "$tinymoe/tinymoe.safetensors" --workload "$tmp/workload.jsonl" \
		--kernels --collect host -o "$tmp/$1.db" >"$tmp/run.out" 2>"$tmp/run.err"
}

begin_ns=$(date +%s%N)
if ! (run_it whole); then
	if grep -q libyajl-dev "$tmp/run.err"; then
		skip "built without a JSON parser"
	fi
	fail "a run fails: $(cat "$tmp/run.err")"
fi
whole_ns=$(($(date +%s%N) - begin_ns))
expect_ok "$moetrace" check "$tmp/whole.db"

# is_begun: it is no copy of this shell any more.
is_begun() {
	! is_running $process || { { read -r name <"/proc/$process/comm"; } 2>/dev/null && [ "$name" != "${name#*moetrace}" ]; }
}

for i in $(seq "$n_moments"); do
	(run_it "$i") &
	process=$!
	await "a process" - - is_begun
	sleep "$(printf '%d.%09d' $((whole_ns * i / n_moments / 1000000000)) \
		$((whole_ns * i / n_moments % 1000000000)))"
	# From one process within a moment; the run may have ended. Where the machine makes two seconds
	# and more of the moment, the last of them ends the run as it does every process.
	told_ns=$(date +%s%N)
	for _ in 1 2 3 4 5 6 7 8; do
		kill -s TERM $process $process $process $process $process $process 2>/dev/null || :
	done
	ended=0
	wait $process || ended=$?
	case $ended in
	0 | 1) expect_file "$tmp/$i.db" ;;
	143)
		[ $(($(date +%s%N) - told_ns)) -ge 2000000000 ] || expect_absent "$tmp/$i.db"
		[ -e "$tmp/$i.db" ] || continue
		expect_ok "$moetrace" check "$tmp/$i.db"
		continue
		;;
	*) fail "exit status $ended after SIGTERM: $(cat "$tmp/run.err")" ;;
	esac
	[ -e "$tmp/$i.db" ] || continue
	expect_ok "$moetrace" check "$tmp/$i.db"
	expect_absent "$tmp/$i.db-wal" "$tmp/$i.db-shm" "$tmp/$i.db-journal"
	expect_eq "end_reason where the run ended with $ended" \
		"$(sql "$tmp/$i.db" 'SELECT end_reason FROM recording')" \
		"$([ $ended -eq 0 ] && echo finished || echo interrupted)"
done
