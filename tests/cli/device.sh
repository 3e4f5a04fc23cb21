#!/bin/sh
# SPDX-License-Identifier: MIT
#
# --device where no GPU can be used, since its driver is older than what the command was built with: cuda
# is an error that says so, auto serves on the CPU, says why, and gives what cpu gives. Who asks for no GPU
# does not depend on a driver's file either.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"

driver=$MOETRACE_BUILDDIR/tests/cuda/old/.libs
[ -f "$driver/libcuda.so.1" ] || skip 'the driver of the tests was not built'
head -n 2 "$tinymoe/workload.jsonl" >"$tmp/workload.jsonl"

# serve DEVICE TEXT: on a machine with that driver.
serve() {
	LD_LIBRARY_PATH=$driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$moetrace" run --no-record \
		--model "$tinymoe/tinymoe.safetensors" --workload "$tmp/workload.jsonl" \
		--device "$1" --text-output "$2"
}

why='cuda: (no GPU to use: CUDA driver version is insufficient|this build has no code for GPUs)'
expect_error 1 "^moetrace run: $why.*; give --device cpu\$" serve cuda "$tmp/cuda.jsonl"
expect_absent "$tmp/cuda.jsonl"
expect_ok serve cpu "$tmp/cpu.jsonl"
expect_ok serve auto "$tmp/auto.jsonl"
expect_match "$tmp/out" "^device +cpu \\($why"
expect_same "$tmp/cpu.jsonl" "$tmp/auto.jsonl"
expect_error 2 'device.*gpu' serve gpu "$tmp/gpu.jsonl"

# What the CPU has not is an error where it was asked for, and a word where it is what is left.
base="--model $tinymoe/tinymoe.safetensors --workload $tmp/workload.jsonl --no-record"
for device in '' '--device cpu'; do
	expect_error 2 '^moetrace run: --precision 16bit is of a GPU: give --device cuda or auto' \
		"$moetrace" run $base $device --precision 16bit
	expect_error 2 '^moetrace run: --no-graph is of a GPU: give --device cuda or auto' \
		"$moetrace" run $base $device --no-graph
done
expect_error 2 '^moetrace run: --threads is of the CPU' "$moetrace" run $base --device cuda --threads 2
expect_error 2 '^moetrace eval: --precision 16bit is of a GPU' \
	"$moetrace" eval --model "$tinymoe/tinymoe.safetensors" --text "$tmp/workload.jsonl" --precision 16bit
expect_error 2 '^moetrace eval: --threads is of the CPU' \
	"$moetrace" eval --model "$tinymoe/tinymoe.safetensors" --text "$tmp/workload.jsonl" --device cuda --threads 2
for option in '--precision 16bit' --no-graph; do
	expect_ok env LD_LIBRARY_PATH="$driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
		"$moetrace" run $base --device auto $option
	expect_err "moetrace run: note: $option has no effect: the CPU computes"
done
expect_ok "$moetrace" run $base --precision fp32
expect_err ""

# Who reads that file waits for ever, and who maps one that is cut short is ended.
mkdir "$tmp/pipe" "$tmp/cut"
mkfifo "$tmp/pipe/libcuda.so.1"
head -c 4096 "$driver/libcuda.so.1" >"$tmp/cut/libcuda.so.1"
for what in 'pipe no regular file' 'cut cut short'; do
	folder=$tmp/${what%% *}
	why="cuda: (no GPU to use: the driver cannot be opened: $folder/libcuda.so.1: ${what#* }|this build)"
	expect_error 1 "^moetrace run: $why.*; give --device cpu\$" env \
		LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" timeout -k 5 100 \
		"$moetrace" run $base --device cuda
done
expect_ok env LD_LIBRARY_PATH="$tmp/pipe${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" timeout -k 5 100 "$moetrace" run \
	--model "$tinymoe/tinymoe.safetensors" --workload "$tmp/workload.jsonl" --output "$tmp/pipe.db"
