#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Is the predicted time of a layer the one that the rule then takes? On the engine, on the CPU, with
# the true sizes of Qwen3-30B-A3B and some layers of it, B requests in lockstep, plainly and at every
# k0 in turns, in one process. The line of layer time over active experts is taken from the runs at
# k0 = 2, 4 and 6; with it and what moe_oea() says of the plain runs, the time at k0 = 3, 5 and 7 is
# predicted and held against the measured one. The bar, for B = 4 and 16, is 3 %; B = 64 and tinymoe are
# printed without.
#
# A machine's speed drifts, so that runs of different minutes cannot be compared. All runs of a kind do the
# same work, and every round has one of each kind, every other one in reverse: the speed of a round is the
# median, over all kinds, positions and layers, of its times over their medians. Times are divided by
# it, and of each kind, position and layer the run with the median time is taken.
#
# Beside it, of tinymoe: what the rule really costs in cross-entropy, and the lost weight that stands
# for it.
#
#   bench_oea_time.sh [SECONDS [POSITIONS [LAYERS [THREADS]]]]
#
# It runs in the build folder; as many rounds as fit into 300 seconds, at least 3, of 12 positions unless told
# otherwise.

set -eu
LC_ALL=C
export LC_ALL

source=$(cd -- "$(dirname -- "$0")/.." && pwd)
seconds=${1:-300}
positions=${2:-12}
threads=${4:-$(nproc)}
moetrace=$PWD/cli/moetrace
[ -x "$moetrace" ] || {
	echo "bench_oea_time: $moetrace is not there: run this in the build folder" >&2
	exit 1
}
command -v sqlite3 >/dev/null || {
	echo "bench_oea_time: sqlite3 is not installed" >&2
	exit 1
}
# A layer's experts take 1.2 GB; a half of what is available is left to others.
layers=${3:-$(awk '/^MemAvailable/ { n = int(($2 / 1048576 / 2 - 1) / 1.3); print n > 4 ? 4 : n }' /proc/meminfo)}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/moetrace-bench.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# workload B: prompts of random letters.
workload() {
	awk -v b="$1" -v n="$positions" 'BEGIN {
		srand(7)
		for (i = 0; i < b; i++) {
			text = ""
			for (j = 0; j < n; j++)
				text = text sprintf("%c", 97 + int(rand() * 26))
			printf "{\"prompt\":\"%s\",\"max_new_tokens\":1}\n", text
		}
	}' >"$tmp/workload"
}

now_ms() {
	sqlite3 -batch :memory: "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
}

# rounds_count SECONDS MODEL...: how many rounds fit, between 3 and 15, odd. A run makes its weights first,
# which a comparison does once.
rounds_count() {
	limit=$1
	shift
	begin=$(now_ms)
	"$moetrace" run "$@" --workload "$tmp/workload" --batch 999 --lockstep --threads "$threads" -f \
		-o "$tmp/one.db" >/dev/null
	ask "$tmp/one.db" "SELECT max(3, min(15, CAST(($limit - (wall - served)) / (7 * served) AS INTEGER))) | 1
		FROM (SELECT ($(now_ms) - $begin) / 1000.0 AS wall, (max(end_ns) - min(begin_ns)) / 1e9 AS served FROM pass)"
}

# rounds_run SECONDS MODEL...: plain runs and runs at every k0 into all.db, of which the median one of a
# layer, position and k0 is kept, at the speed of the median round; fit.db has those of k0 = 2, 4 and 6
# alone.
rounds_run() {
	limit=$1
	shift
	rounds=$(rounds_count "$limit" "$@")
	"$moetrace" run "$@" --workload "$tmp/workload" --batch 999 --lockstep --kernels \
		--threads "$threads" --pairs "$rounds" \
		--compare oea:k0=2 --compare oea:k0=3 --compare oea:k0=4 --compare oea:k0=5 \
		--compare oea:k0=6 --compare oea:k0=7 -f -o "$tmp/all.db" >/dev/null
	sqlite3 -batch -bail "$tmp/all.db" "
		CREATE TABLE kind AS SELECT p.recording_id, (p.recording_id - 1) / 7 AS round,
			coalesce(max(CAST(substr(r.name, 8) AS INTEGER)), 0) AS k0
			FROM pass AS p JOIN pass_layer USING (pass_id) JOIN topk USING (topk_id)
			LEFT JOIN rule AS r USING (rule_id) GROUP BY p.recording_id;
		CREATE TEMP TABLE cell AS SELECT round, k0, p.runtime_pass - (SELECT min(runtime_pass) FROM pass AS f
			WHERE f.recording_id = p.recording_id) AS position, t.pass_id, t.layer_id, t.duration_ns
			FROM layer_time AS t JOIN pass AS p USING (pass_id) JOIN kind ON kind.recording_id = p.recording_id
			WHERE t.source = 'kernel';
		CREATE TEMP TABLE usual AS SELECT k0, position, layer_id, duration_ns AS ns FROM (SELECT *,
			row_number() OVER (PARTITION BY k0, position, layer_id ORDER BY duration_ns) AS n FROM cell)
			WHERE n = ($rounds + 1) / 2;
		CREATE TABLE speed AS SELECT round, slow FROM (SELECT round, slow, row_number() OVER (PARTITION BY round
			ORDER BY slow) AS n, count(*) OVER (PARTITION BY round) AS of FROM (SELECT round, duration_ns / ns AS slow
			FROM (SELECT c.round, 1.0 * c.duration_ns AS duration_ns, u.ns FROM cell AS c
				JOIN usual AS u USING (k0, position, layer_id)))) WHERE n = (of + 1) / 2;
		CREATE TEMP TABLE kept AS SELECT pass_id, layer_id, slow FROM (SELECT c.*, s.slow, row_number() OVER
			(PARTITION BY k0, position, layer_id ORDER BY duration_ns / slow) AS n FROM cell AS c
			JOIN speed AS s USING (round)) WHERE n = ($rounds + 1) / 2;
		CREATE UNIQUE INDEX temp.kept_key ON kept (pass_id, layer_id);
		DELETE FROM pass_layer WHERE (pass_id, layer_id) NOT IN (SELECT pass_id, layer_id FROM kept);
		DELETE FROM kernel WHERE layer_id IS NULL OR (pass_id, layer_id) NOT IN (SELECT pass_id, layer_id FROM kept);
		UPDATE kernel SET end_ns = round(end_ns / k.slow), start_ns = round(start_ns / k.slow) FROM kept AS k
			WHERE k.pass_id = kernel.pass_id AND k.layer_id = kernel.layer_id;"
	cp "$tmp/all.db" "$tmp/fit.db"
	sqlite3 -batch -bail "$tmp/fit.db" "DELETE FROM pass_layer WHERE pass_id NOT IN (SELECT pass_id FROM pass
		JOIN kind USING (recording_id) WHERE k0 IN (2, 4, 6))"
}

# ask FILE SQL: one row, its values apart by spaces.
ask() {
	"$moetrace" query "$1" --format csv "$2" | tail -n 1 | tr -d '\r"' | tr ',' ' '
}

# layer_us K0: mean layer time of the runs at k0; 0: of the plain ones.
layer_us() {
	ask "$tmp/all.db" "SELECT avg(duration_ns) / 1000 FROM layer_time JOIN kind USING (recording_id)
		WHERE phase = 'decode' AND source = 'kernel' AND k0 = $1"
}

# predict NAME BAR SECONDS MODEL...: a line for each k0.
predict() {
	name=$1
	bar=$2
	shift 2
	rounds_run "$@"
	fit=$(ask "$tmp/fit.db" "SELECT a_ns / 1000, b_ns / 1000, coalesce(c_ns, 0) / 1000 FROM moe_fit")
	echo "$name: $rounds rounds, the slowest took $(ask "$tmp/all.db" "SELECT round(max(slow) / min(slow), 2) FROM speed") times as long as the fastest"
	echo "$name: $(ask "$tmp/fit.db" "SELECT round(a_ns / 1000, 1) || ' + ' || round(b_ns / 1000, 2)
		|| ' * active us; R2 ' || round(r2, 4) || '; ' || n_outliers || ' of ' || n_batches
		|| ' left out' FROM moe_fit")"
	for k0 in 3 5 7; do
		figures=$(ask "$tmp/all.db" "SELECT 1.0 * sum(active_before) / sum(n_batches),
			1.0 * sum(active_after) / sum(n_batches), sum(lost_weight) / sum(rated_rows),
			1.0 * sum(rows) / sum(n_batches) FROM moe_oea(0) AS o JOIN kind USING (recording_id)
			WHERE o.k0 = $k0 AND o.phase = 'decode' AND kind.k0 = 0")
		echo "$fit $figures $(layer_us 0) $(layer_us "$k0")" |
			awk -v name="$name" -v k0="$k0" -v bar="$bar" '{
				predicted = $1 + $2 * $5 + $3 * $7
				off = predicted / $9 - 1
				printf "%s, k0 %d: active %.1f -> %.1f, lost weight %.4f; layer %.0f us, under the rule %.0f, predicted %.0f: %+.1f %%%s\n",
					name, k0, $4, $5, $6, $8, $9, predicted, 100 * off,
					bar == "" ? "" : (off < 0 ? -off : off) <= bar / 100 ? " (within " bar " %)" : " (bar " bar " %: missed)"
			}'
	done
}

if [ "$layers" -gt 0 ]; then
	for batch in 4 16 64; do
		workload "$batch"
		bar=3
		[ "$batch" -lt 64 ] || bar=
		# What a run takes grows with the experts that its batches touch.
		share=$((batch == 4 ? seconds / 5 : seconds / 3))
		predict "Qwen3-30B-A3B, $layers layers, B = $batch" "$bar" "$share" --shape qwen3-30b-a3b --layers "$layers"
	done
else
	echo "Qwen3-30B-A3B: too little memory for one layer"
fi
workload 16
predict "tinymoe, B = 16" "" $((seconds / 20)) --model "$source/examples/tinymoe/tinymoe.safetensors"

# ---- what lost weight is worth ----
split -b 161 -d -a 1 "$source/tests/data/tinymoe/golden/tokens.u8" "$tmp/text-"
evaluate() {
	"$moetrace" eval --model "$source/examples/tinymoe/tinymoe.safetensors" --text "$tmp"/text-? \
		--batch 10 --format json "$@" | sed -n 's/.*"ce_nats":\([0-9.]*\).*/\1/p'
}
for i in 0 1 2 3 4 5 6 7 8 9; do
	head -c 160 "$tmp/text-$i" >"$tmp/prompt"
	sqlite3 -batch :memory: "SELECT json_object('prompt', CAST(readfile('$tmp/prompt') AS TEXT),
		'max_new_tokens', 1)"
done >"$tmp/workload"
"$moetrace" run --model "$source/examples/tinymoe/tinymoe.safetensors" --workload "$tmp/workload" \
	--lockstep --batch 10 -f -o "$tmp/plain.db" >/dev/null
plain=$(evaluate)
for k0 in 1 2 3 4 5 6 7; do
	echo "$plain $(evaluate --oea k0=$k0) $(ask "$tmp/plain.db" "SELECT lost_weight / rated_rows FROM moe_oea(0)
		WHERE k0 = $k0")" | awk -v k0="$k0" '{
		printf "tinymoe on text, k0 %d: lost weight %.4f, cross-entropy %.4f -> %.4f (%+.4f nats)\n",
			k0, $3, $1, $2, $2 - $1
	}'
done
