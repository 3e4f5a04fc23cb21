# SPDX-License-Identifier: MIT
#
# run and eval on the device that they are told: without a GPU auto takes the CPU and says why, and
# cuda fails in one line; on one, the recording is sound and agrees with the CPU's.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

need_json
model=$tinymoe/tinymoe.safetensors
cd "$tmp" || exit 99

cat >requests.jsonl <<'END'
{"prompt": "The first request is the longest of them all, so that it comes in chunks.", "max_new_tokens": 24, "id": "a"}
{"prompt": "int main(void)", "max_new_tokens": 30, "id": "b"}
{"prompt": "def f(x):", "max_new_tokens": 12, "id": "c"}
{"prompt": "#!/usr/bin/perl", "max_new_tokens": 9, "id": "d"}
{"prompt": "A", "max_new_tokens": 17, "id": "e"}
END
base="--model $model --workload requests.jsonl --batch 4 --chunk 32"

# The choice is told; what is computed is the CPU's where there is no GPU.
expect_ok "$moetrace" run $base --device cpu --no-record --text-output cpu.jsonl
expect_match out '^device     cpu$'
expect_error 2 "--device 'gpu': expected cpu, cuda or auto" \
	"$moetrace" run $base --device gpu --no-record
expect_error 2 "--precision 'bf16': expected fp32 or 16bit" \
	"$moetrace" run $base --precision bf16 --no-record
expect_error 2 '--kernels times the operations of --device cpu alone' \
	"$moetrace" run $base --device auto --kernels -o refused.db
printf 'Some text to predict.' >text
run "$moetrace" run $base --device cuda --no-record
if [ "$status" -ne 0 ]; then
	! [ "${MOETRACE_NEED_GPU-}" ] || fail "there is no GPU"
	expect_error 1 '^moetrace run: cuda: .*; give --device cpu$' \
		"$moetrace" run $base --device cuda -o refused.db
	expect_absent refused.db
	expect_error 1 '^moetrace eval: cuda: .*; give --device cpu$' \
		"$moetrace" eval --model "$model" --text text --device cuda
	expect_ok "$moetrace" run $base --device auto -o auto.db --text-output auto.jsonl
	expect_match out '^device     cpu \(cuda: .*\)$'
	expect_same cpu.jsonl auto.jsonl
	expect_ok "$moetrace" check auto.db
	exit 0
fi

# ---- on a GPU ----

# value FILE SQL: one number; the command itself reads it, there may be no sqlite3.
value() {
	"$moetrace" query "$1" "$2"
}

# chosen FILE: every expert of every row, a line each.
chosen() {
	"$moetrace" query --format csv "$1" "
		select request.external_id, layer, position, topk_rank, expert
		from routed_expert join request using (request_id)
		order by 1, 2, 3, 4" || fail "$1 cannot be read"
}

expect_ok "$moetrace" run $base --device cpu -o cpu.db
expect_ok "$moetrace" run $base --device cuda -o cuda.db --text-output cuda.jsonl
expect_match out '^device     cuda, '
expect_ok "$moetrace" run $base --device cuda --no-graph -o eager.db --text-output eager.jsonl
expect_ok "$moetrace" run $base --device auto --no-record --text-output auto.jsonl
chosen cpu.db >cpu.csv
for name in cuda eager; do
	expect_ok "$moetrace" check $name.db
	expect_same cpu.jsonl $name.jsonl
	expect_eq "incomplete requests" \
		"$(value $name.db "select count(*) from request_summary where verdict <> 'complete'")" 0
	expect_eq "who computes" "$(value $name.db \
		"select count(*) from layer where runner_backend like 'moetrace cuda, %'")" 6
	chosen $name.db >$name.csv
	expect_eq "lines of $name" "$(wc -l <$name.csv)" "$(wc -l <cpu.csv)"
done
expect_same cpu.jsonl auto.jsonl
# A near tie may be decided otherwise, a graph may decide nothing otherwise.
expect_same cuda.csv eager.csv
n_other=$(diff cpu.csv cuda.csv | grep -c '^>')
[ $((n_other * 200)) -le "$(wc -l <cpu.csv)" ] || fail "$n_other experts are not the CPU's"
# Three requests decode in a graph of four rows; the fourth selects nothing.
[ "$(value cuda.db "select sum(padding_rows) from pass")" -gt 0 ] || fail "nothing was padded"
expect_eq "padding" "$(value eager.db "select sum(padding_rows) from pass")" 0
expect_eq "experts of padding" \
	"$(value cuda.db "select coalesce(sum(padding_active_experts), 0) from pass_layer")" 0

# A rule's base experts are recorded; retracts, prefixes and aborts go on as on the CPU.
expect_ok "$moetrace" run $base --device cuda --oea k0=3 -o rule.db
expect_ok "$moetrace" check rule.db
expect_eq "rows without base experts" "$(value rule.db "
	select count(*) from topk where (base_ids is null) <> (rule_id is null)")" 0
for more in "--kv-positions 120" "--prefix-reuse --repeat 2" "--abort-after 5" \
	"--temperature 0.7 --seed 3" "--routing uniform"; do
	rm -f more.db
	# shellcheck disable=SC2086 # options
	expect_ok "$moetrace" run $base $more --device cpu --no-record --text-output more-cpu.jsonl -f
	# shellcheck disable=SC2086 # options
	expect_ok "$moetrace" run $base $more --device cuda -o more.db \
		--text-output more-cuda.jsonl -f
	expect_ok "$moetrace" check more.db
	expect_same more-cpu.jsonl more-cuda.jsonl
done

# Graphs that were captured while idle record once a recording begins, and stop.
mkdir sockets
"$moetrace" run $base --device cuda --idle --repeat 400 --socket-dir "$tmp/sockets" -o live.db \
	>live.out 2>&1 &
runner=$!
export MOETRACE_SOCKET_DIR="$tmp/sockets"
# told REGEX: a line of the session's status matches.
told() {
	"$moetrace" status $runner >out 2>&1
	grep -Eq -e "$1" out
}
await "a session" $runner live.out told '^state +idle'
for i in 1 2 3; do
	expect_ok "$moetrace" start $runner
	await "recording $i" $runner live.out told "^recording_id +$i"
	await "a pass of recording $i" $runner live.out told '^recorded_passes +[1-9]'
	expect_ok "$moetrace" stop $runner
done
wait $runner || fail "the run that was recorded in parts failed: $(cat live.out)"
expect_ok "$moetrace" check live.db
expect_eq "recordings" "$(value live.db "select count(*) from recording")" 3
expect_eq "recordings without a pass" "$(value live.db "
	select count(*) from recording
	where not exists (select 1 from pass where pass.recording_id = recording.recording_id)")" 0
