#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What recording costs a model that is really served: decode tokens a second of `moetrace run`
# on the example model, with recording and with --no-record in turn, the order changing from
# pair to pair; the workload is served eight times over, so that a run lasts seconds. Printed is the median of the pairs' relative losses with the 95 % interval of
# the median (order statistics), for one thread and for two.
#
#   bench_overhead.sh [PAIRS]      run in the build folder; 20 pairs unless told otherwise

set -eu
LC_ALL=C
export LC_ALL

source=$(cd -- "$(dirname -- "$0")/.." && pwd)
pairs=${1:-20}
moetrace=$PWD/cli/moetrace
[ -x "$moetrace" ] || {
	echo "bench_overhead: $moetrace is not there: run this in the build folder" >&2
	exit 1
}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/moetrace-bench.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

for _ in 1 2 3 4 5 6 7 8; do
	cat "$source/examples/tinymoe/workload.jsonl"
done >"$tmp/workload.jsonl"

# decode THREADS OPTION...: tokens a second of one run.
decode() {
	threads=$1
	shift
	"$moetrace" run --model "$source/examples/tinymoe/tinymoe.safetensors" \
		--workload "$tmp/workload.jsonl" --threads "$threads" \
		--format json "$@" >"$tmp/summary"
	sed -n 's/.*"decode_tokens_per_s":\([0-9.e+]*\).*/\1/p' "$tmp/summary"
}

with() {
	rm -f "$tmp/run.db"
	decode "$1" -o "$tmp/run.db"
}

without() {
	decode "$1" --no-record
}

# compare THREADS BAR: the pairs of one thread count.
compare() {
	: >"$tmp/pairs"
	without "$1" >/dev/null
	i=0
	while [ "$i" -lt "$pairs" ]; do
		if [ $((i % 2)) -eq 0 ]; then
			on=$(with "$1")
			off=$(without "$1")
		else
			off=$(without "$1")
			on=$(with "$1")
		fi
		echo "$on $off" >>"$tmp/pairs"
		i=$((i + 1))
	done
	awk '{ print ($2 / $1 - 1) * 100, $1, $2 }' "$tmp/pairs" | sort -g |
		awk -v threads="$1" -v bar="$2" '
		{ loss[NR] = $1; on += $2; off += $3 }
		END {
			half = 1.96 * sqrt(NR) / 2
			low = int(NR / 2 - half) + 1
			if (low < 1)
				low = 1
			median = NR % 2 ? loss[(NR + 1) / 2] : (loss[NR / 2] + loss[NR / 2 + 1]) / 2
			high = NR + 1 - low
			met = median <= bar
			printf "--threads %d: %d pairs, decode %.0f tokens/s recorded, %.0f not; a token takes %.2f %% longer (95 %%: %.2f to %.2f); bar %.0f %%: %s%s\n",
				threads, NR, on / NR, off / NR, median, loss[low], loss[high], bar,
				met ? "met" : "NOT MET",
				loss[low] <= bar && bar < loss[high] ? ", but the interval holds the bar" : ""
			exit !met
		}'
}

result=0
compare 1 1 || result=1
compare 2 3 || result=1
exit $result
