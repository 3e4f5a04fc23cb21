#!/bin/sh
# SPDX-License-Identifier: MIT
#
# How the viewer does on a large trace: makes one of some passes (36000 give 5 GB, 860 a million bars),
# and prints how long each question takes, how long the single file takes and how large it is, and, where
# Chromium and the page's packages are, what a browser shows how fast.
#
#   bench_viewer.sh [PASSES [FILE]]
#
# It runs in the build folder. A FILE that is there is taken as it is; one that is named is kept.

set -eu
LC_ALL=C
export LC_ALL

source=$(cd -- "$(dirname -- "$0")/.." && pwd)
passes=${1:-2000}
moetrace=$PWD/cli/moetrace
ask=$PWD/tests/viewer/ask
for program in "$moetrace" "$ask"; do
	[ -x "$program" ] || {
		echo "bench_viewer: $program is not there: run this in the build folder, after make check" >&2
		exit 1
	}
done
tmp=$(mktemp -d "${TMPDIR:-/tmp}/moetrace-bench.XXXXXX")
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
file=${2:-$tmp/large.db}

now_ms() {
	sqlite3 -batch :memory: "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
}

# Runs of top-k rows: 16 of them are taken in turns.
runs_make() {
	awk 'BEGIN {
		srand(5)
		for (i = 0; i < 256; i++)
			byte[i] = sprintf("%02x", i)
		weights = "00340033003200310030002e002c002a"
		for (i = 0; i < 7; i++)
			weights = weights weights
		for (p = 0; p < 16; p++) {
			printf "INSERT INTO proto VALUES (%d, x'\''", p
			for (row = 1; row <= 8192; row++) {
				text = ""
				for (r = 0; r < 8; r++) {
					do
						id = int(rand() * rand() * 256)
					while (used[id] == p * 8192 + row)
					used[id] = p * 8192 + row
					text = text byte[id]
				}
				printf "%s", text
			}
			printf "'\'', x'\''"
			for (i = 0; i < 64; i++)
				printf "%s", weights
			print "'\'');"
		}
	}'
}

trace_make() {
	{
		echo "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -200000;"
		cat "$source"/schema/[0-9]*.sql "$source"/schema/views/*.sql
		echo "CREATE TABLE size (n_passes); INSERT INTO size VALUES ($passes);"
		echo "CREATE TABLE proto (proto_id INTEGER PRIMARY KEY, ids, weights);"
		runs_make
		cat "$source/bench/bench_viewer.sql"
	} | sqlite3 -batch -bail "$file" >/dev/null
}

# question TEXT: asks trace 0, and prints how long that took.
question() {
	begin=$(now_ms)
	"$ask" "$port" GET "${base}api/0/$1" >"$tmp/answer" || true
	echo "$(($(now_ms) - begin)) ms, $(wc -c <"$tmp/answer") bytes, $(head -n 1 "$tmp/answer" | tr -d '\0'): $1"
}

[ -f "$file" ] || trace_make
echo "$file: $(($(wc -c <"$file") / 1000000)) MB, $("$moetrace" query "$file" "SELECT count(*) FROM pass") passes"

"$moetrace" view "$file" >"$tmp/address" &
pid=$!
while ! grep -qs '^http.*/$' "$tmp/address"; do
	kill -0 "$pid"
	sleep 0.05
done
address=$(cat "$tmp/address")
port=${address#http://127.0.0.1:}
base=/${port#*/}
port=${port%%/*}

question info
for section in attention slow padding recordings verdicts throughput balance hottest layer_times; do
	question "report?recording=1&section=$section"
done
question "load?recording=1&model=1"
question "load_windows?recording=1&model=1"
question "requests?recording=1"
question "timeline?recording=1&width=1100&wait=300"
begin=$(now_ms)
until "$ask" "$port" GET "${base}api/0/timeline?recording=1&width=1100&wait=2000" >"$tmp/answer" &&
	grep -aq '"progress":1,' "$tmp/answer"; do
	[ "$(head -n 1 "$tmp/answer" | tr -d '\0')" = 200 ] || {
		echo "bench_viewer: no timeline: $(tail -n 1 "$tmp/answer")" >&2
		exit 1
	}
done
echo "$(($(now_ms) - begin)) ms until the timeline is read whole"
question "timeline?recording=1&width=1100"
for part in 10000000000 1000000000 100000000 1000000; do
	question "timeline?recording=1&width=3400&from=3000000000&until=$((3000000000 + part))"
done
question "selection?recording=1&from=3000000000&until=3100000000"
question "cell?recording=1&layer_id=5&expert=7"
question "pass?pass=100"
question "request?request=70"
question "oea_fit?recording=1"
question "oea?recording=1"
question "ranks?recording=1&model=1&ranks=8&phase=decode"
grep '^Vm\(HWM\|RSS\)' "/proc/$pid/status"

chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || chromium=
if [ -n "$chromium" ] && [ -d "$source/viewer/page/node_modules/playwright-core" ]; then
	node "$source/bench/bench_viewer.mjs" "$chromium" "$address" "$pid"
fi
kill -INT "$pid"
wait "$pid" || true
pid=

begin=$(now_ms)
"$moetrace" view --html "$tmp/page.html" "$file"
echo "$(($(now_ms) - begin)) ms for the single file of $(wc -c <"$tmp/page.html") bytes"
