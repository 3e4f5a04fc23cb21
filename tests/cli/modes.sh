# SPDX-License-Identifier: MIT
#
# Recordings of every mode and sample, made by the engine: check proves them, every verb that reads
# is right about them or refuses in one line, and two recordings of a file are told apart.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/cli/trace.sh"

model=$tinymoe/tinymoe.safetensors
head -n 6 "$tinymoe/workload.jsonl" >"$tmp/workload.jsonl"

# record NAME OPTION...: $tmp/NAME.db, of the same few requests.
record() {
	name=$1
	shift
	run "$moetrace" run --model "$model" --workload "$tmp/workload.jsonl" --batch 4 -o "$tmp/$name.db" "$@"
	if grep -q libyajl-dev "$tmp/err"; then
		skip "built without a JSON parser"
	fi
	[ "$status" -eq 0 ] || fail "run $*"
	expect_ok "$moetrace" check "$tmp/$name.db"
	expect_ok "$moetrace" check --routing "$tmp/$name.db"
}

# refuses STATUS PATTERN ARGUMENT...: one line that says why.
refuses() {
	expected=$1
	pattern=$2
	shift 2
	expect_status "$expected" "$moetrace" "$@"
	expect_eq "lines of '$*'" "$(wc -l <"$tmp/err")" 1
	expect_match "$tmp/err" "$pattern"
	[ ! -s "$tmp/out" ] || fail "output beside a refusal: $*"
}

# query FILE SQL: the single value.
query() {
	sqlite3 -batch "$tmp/$1.db" "$2"
}

load="SELECT group_concat(layer_id || ':' || expert || ':' || tokens || ':' || decode_tokens, ' ') FROM expert_load"

record token
record pass --mode per_pass
record stat --mode stat
expect_eq "load by pass" "$(query pass "$load")" "$(query token "$load")"
expect_eq "load by window" "$(query stat "$load")" "$(query token "$load")"
columns="SELECT group_concat(active_experts || ',' || max_load || ',' || n_rows, ' ') FROM pass_layer"
expect_eq "columns of layers" "$(query pass "$columns")" "$(query token "$columns")"
expect_eq "tables of stat" "$(query stat "SELECT (SELECT count(*) FROM pass) || (SELECT count(*) FROM request)
	|| (SELECT count(*) FROM topk) || (SELECT count(*) FROM layer_load)")" 0000

# What needs no rows is the same in every mode.
for verb in "experts --top 3" "experts --phase decode --layer 2"; do
	# shellcheck disable=SC2086 # a verb with its options
	expect_ok "$moetrace" $verb "$tmp/token.db"
	cp "$tmp/out" "$tmp/expected"
	for mode in pass stat; do
		# shellcheck disable=SC2086
		expect_ok "$moetrace" $verb "$tmp/$mode.db"
		expect_same "$tmp/out" "$tmp/expected"
	done
done
expect_ok "$moetrace" balance --format csv "$tmp/token.db"
cp "$tmp/out" "$tmp/expected"
expect_ok "$moetrace" balance --format csv "$tmp/pass.db"
expect_same "$tmp/out" "$tmp/expected"
expect_ok "$moetrace" balance --format csv "$tmp/stat.db"
expect_eq "balancedness of stat" "$(cut -d, -f6,11- "$tmp/out")" "$(cut -d, -f6,11- "$tmp/expected")"
for mode in pass stat; do
	for verb in report info dump; do
		expect_ok "$moetrace" $verb "$tmp/$mode.db"
	done
done
expect_ok "$moetrace" report "$tmp/stat.db"
expect_match "$tmp/out" '^mode +stat$'
# Times of operations are of another mode.
expect_ok "$moetrace" kernels "$tmp/stat.db"
expect_match "$tmp/err" 'note: recording 1: its mode is stat, .*: record in mode per_token or per_pass$'
expect_eq "notes" "$(wc -l <"$tmp/err")" 1
expect_ok "$moetrace" requests "$tmp/pass.db"

# What needs rows refuses.
refuses 1 'recording 1 is of mode per_pass: one request.s experts needs one of mode per_token$' \
	requests "$tmp/pass.db" @1
refuses 1 'recording 1 is of mode stat: a list of requests needs one of mode per_token,per_pass$' \
	requests "$tmp/stat.db"
refuses 1 'recording 1 is of mode stat: one request.s experts needs' requests "$tmp/stat.db" @1
for mode in pass stat; do
	refuses 1 'is of mode (per_pass|stat): --by-attribute needs one of mode per_token$' \
		experts --by-attribute domain "$tmp/$mode.db"
	refuses 1 'is of mode (per_pass|stat), which keeps no rows to count' \
		query "$tmp/$mode.db" "SELECT count(*) FROM moe_load"
done
expect_ok "$moetrace" query "$tmp/pass.db" "SELECT count(*) FROM moe_topk"
expect_out 0

# Samples.
record passes --sample-passes 3
expect_eq "sampling" "$(query passes "SELECT sampling FROM recording")" passes=3
expect_eq "passes" "$(query passes "SELECT value FROM stats WHERE name = 'sampled_passes'")" \
	$(($(query token "SELECT count(*) FROM pass") - $(query passes "SELECT count(*) FROM pass")))
expect_eq "reasons" "$(query passes "SELECT group_concat(DISTINCT reasons) FROM request")" sampled
# A sample has no rate, and its first pass of a request need not be the request's first.
expect_ok "$moetrace" top --once "$tmp/passes.db"
expect_match "$tmp/out" '^passes: n/a a second, [1-9]'
expect_match "$tmp/out" '^tokens: n/a a second'
expect_ok "$moetrace" top --once "$tmp/token.db"
expect_match "$tmp/out" '^passes: [0-9.]+ a second'
expect_eq "waits" "$(query passes "SELECT count(queue_ns) FROM request_summary")$(query token "SELECT count(queue_ns) FROM request_summary")" 06
# What was left out on purpose is no loss; anything else beside it is.
expect_ok "$moetrace" check --strict "$tmp/passes.db"
cp "$tmp/passes.db" "$tmp/faulty.db"
sqlite3 "$tmp/faulty.db" "UPDATE request SET reasons = 'missing,sampled' WHERE request_id = 1"
expect_status 4 "$moetrace" check --strict "$tmp/faulty.db"
record requests --sample-requests 2
expect_ok "$moetrace" check --strict "$tmp/requests.db"
expect_eq "load of all rows" "$(query requests "$load")" "$(query token "$load")"
expect_eq "verdicts" "$(query requests "SELECT group_concat(verdict) FROM request ORDER BY request_id")" \
	"complete,partial,complete,partial,complete,partial"
rows="SELECT count(*) || ':' || sum(position) FROM token_topk JOIN request USING (request_id) WHERE handle % 2 = 1"
expect_eq "rows of sampled requests" "$(query requests "$rows")" "$(query token "$rows")"
expect_eq "other rows" "$(query requests "SELECT count(*) FROM token_topk JOIN request USING (request_id)
	WHERE handle % 2 = 0")" 0

# The command line wins over the environment; what is not known is refused.
MOETRACE_MODE=stat
export MOETRACE_MODE
record environment
expect_eq "mode" "$(query environment "SELECT mode FROM recording")" stat
record flag --mode per_pass
expect_eq "mode" "$(query flag "SELECT mode FROM recording")" per_pass
unset MOETRACE_MODE
# What a mode does not keep, whoever has chosen it, is not asked for in vain.
run_it="run --model $model --workload $tmp/workload.jsonl -o $tmp/x.db"
refuses 2 '--record-tokens is of other modes: stat keeps no requests' $run_it --mode stat --record-tokens
refuses 2 '--kernels is of other modes: stat keeps no passes' $run_it --mode stat --kernels
MOETRACE_MODE=stat
export MOETRACE_MODE
refuses 2 '--kernels is of other modes' $run_it --kernels
refuses 2 '--sample-requests is of mode per_token' $run_it --sample-requests 2
refuses 2 '--margins is of mode per_token' $run_it --margins
unset MOETRACE_MODE
refuses 2 "mode 'tokens' is not known" run --model "$model" --workload "$tmp/workload.jsonl" -o "$tmp/x.db" --mode tokens
refuses 2 'sample-requests is of mode per_token' run --model "$model" --workload "$tmp/workload.jsonl" \
	-o "$tmp/x.db" --mode stat --sample-requests 2

# A file broken in what only these modes have.
cp "$tmp/pass.db" "$tmp/sound.db"
violates layer_load "UPDATE layer_load SET counts = CAST(substr(counts, 2) AS BLOB) WHERE pass_id = 1;"
violates layer_load "UPDATE layer_load SET counts = CAST(x'63' || substr(counts, 2) AS BLOB) WHERE pass_id = 1;"
violates layer_load "UPDATE layer_load SET count_bytes = 3 WHERE pass_id = 2;"
violates layer_load "DELETE FROM layer_load WHERE pass_id = 2;"
violates layer_load "UPDATE layer_load SET padding_counts = counts WHERE pass_id = 2;"
violates sum_load "UPDATE expert_load_window SET decode_tokens = decode_tokens + 1 WHERE decode_tokens > 0;"
violates values "UPDATE recording SET mode = 'stat';"
violates pass_verdicts "UPDATE recording SET mode = 'per_token';"
cp "$tmp/stat.db" "$tmp/sound.db"
violates stats "UPDATE expert_load_window SET decode_tokens = decode_tokens + 1 WHERE decode_tokens > 0;"
violates stats "UPDATE stats SET value = value + 1 WHERE name IN ('recorded_assignments');"
violates stats "UPDATE stats SET value = value + 1 WHERE name IN ('recorded_passes');"
cp "$tmp/requests.db" "$tmp/sound.db"
violates layer_rows "UPDATE recording SET sampling = 'requests=3';"
violates pass_verdicts "UPDATE recording SET sampling = NULL;"
violates active_experts "UPDATE pass_layer SET active_experts = 0 WHERE n_rows > 0;"
violates sum_load "UPDATE expert_load_window SET decode_tokens = 0;"

# Two recordings in one file: each analysis of one of them has nothing of the other, and without
# a choice both.
make_sound "$tmp/sound.db"
for verb in experts balance requests; do
	expect_ok "$moetrace" $verb --format csv "$tmp/sound.db"
	sed 1d "$tmp/out" | LC_ALL=C sort >"$tmp/both"
	: >"$tmp/apart"
	for recording in 1 2; do
		expect_ok "$moetrace" $verb --format csv --recording $recording "$tmp/sound.db"
		[ "$(wc -l <"$tmp/out")" -gt 1 ] || fail "$verb: nothing of recording $recording"
		sed 1d "$tmp/out" >>"$tmp/apart"
	done
	LC_ALL=C sort "$tmp/apart" >"$tmp/apart.sorted"
	expect_same "$tmp/apart.sorted" "$tmp/both"
	refuses 3 'has no recording 9' $verb --recording 9 "$tmp/sound.db"
done
for recording in 1 2; do
	expect_ok "$moetrace" report --format json --recording $recording "$tmp/sound.db"
	expect_match "$tmp/out" "\"recording_id\":$recording[,}]"
	expect_no_match "$tmp/out" "\"recording_id\":$((3 - recording))[,}]"
done
# align_waste speaks of layers that say their blocks.
change "$tmp/sound.db" 'UPDATE layer SET gemm_block_rows = 16;'
for view in expert_load layer_balance expert_coverage pass_summary request_summary token_topk routed_expert layer_time pass_expert align_waste loss; do
	expect_eq "recordings of $view" "$(query sound "SELECT group_concat(DISTINCT recording_id) FROM
		(SELECT recording_id FROM $view ORDER BY 1)")" 1,2
done

# A collector that there is none of: a mistake of whoever named it, the command line or the environment.
run_it="run --model $model --workload $tmp/workload.jsonl -o $tmp/none.db"
refuses 2 "^moetrace run: --collect: there is no collector 'bogus': give some of host," $run_it --collect bogus
MOETRACE_COLLECTORS=bogus
export MOETRACE_COLLECTORS
refuses 2 "^moetrace run: MOETRACE_COLLECTORS: there is no collector 'bogus'" $run_it
unset MOETRACE_COLLECTORS
MOETRACE_MODE=none
MOETRACE_NVTX=off
export MOETRACE_MODE MOETRACE_NVTX
refuses 2 "^moetrace run: MOETRACE_NVTX is 'off': set it to 0 or 1" $run_it
unset MOETRACE_NVTX
refuses 2 "^moetrace run: MOETRACE_MODE is 'none': set it to per_token" $run_it
unset MOETRACE_MODE
[ ! -e "$tmp/none.db" ] || fail "a file is left of a recording that was refused"
