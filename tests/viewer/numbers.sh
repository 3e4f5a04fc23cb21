# SPDX-License-Identifier: MIT
#
# What the page is told is what the verbs print.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
. "$MOETRACE_SRCDIR/tests/viewer/view.sh"
need_server
need_command sqlite3
need_json

head -n 12 "$tinymoe/workload.jsonl" >"$tmp/workload.jsonl"
expect_ok "$moetrace" run --model "$tinymoe/tinymoe.safetensors" --workload "$tmp/workload.jsonl" --record-tokens \
	--kernels -o "$tmp/trace.db"
view_start "$tmp/trace.db"

# cells FILE PATH: a list of objects as lines `row|column|value`.
cells() {
	sqlite3 :memory: "SELECT r.key, c.key, c.value FROM json_each(readfile('$1'), '$2') AS r,
		json_each(r.value) AS c ORDER BY 1, 2"
}

# told FILE PATH: the same of the page's rows.
told() {
	sqlite3 :memory: "SELECT r.key, json_extract(readfile('$1'), '$2.columns[' || c.key || ']'),
		c.value FROM json_each(readfile('$1'), '$2.rows') AS r, json_each(r.value) AS c ORDER BY 1, 2"
}

expect_ok "$moetrace" report "$tmp/trace.db" --format json
cp "$tmp/out" "$tmp/report.json"
answered 200 GET "${base}api/0/report"
cp "$tmp/body" "$tmp/report-page.json"
for section in attention slow padding recordings verdicts throughput balance hottest layer_times; do
	cells "$tmp/report.json" "\$.$section" >"$tmp/want"
	told "$tmp/report-page.json" "\$.$section" >"$tmp/got"
	# Whether a pass was slow depends on the machine.
	[ "$section" = padding ] || [ "$section" = slow ] || expect_file "$tmp/want"
	expect_same "$tmp/got" "$tmp/want"
done
answered 200 GET "${base}api/0/report?section=balance"
told "$tmp/body" '$.balance' >"$tmp/got"
cells "$tmp/report.json" '$.balance' >"$tmp/want"
expect_same "$tmp/got" "$tmp/want"

# The page has columns for the layer, the size of batches, candidates and ranks in any case.
expect_ok "$moetrace" oea "$tmp/trace.db" --format json
cells "$tmp/out" '$.oea' >"$tmp/want"
answered 200 GET "${base}api/0/oea"
told "$tmp/body" '$' | grep -vE '\|(layer|max_batch_rows|k|retained|truncated|max_rank_before|max_rank_after)\|' >"$tmp/got"
expect_file "$tmp/want"
expect_same "$tmp/got" "$tmp/want"

# A table's bytes: the header, then columns in little-endian, each from a multiple of 8.
answered 200 GET "${base}api/0/load?recording=1&model=1"
expect_eq "magic" "$(head -c 4 "$tmp/body")" MTA1
n=$(sqlite3 "$tmp/trace.db" 'SELECT count(*) FROM expert_load_window')
expect_match "$tmp/body" "\[\"decode\",\"u32\",$n\]"
n_header=$(od -An -tu4 -j 4 -N 4 "$tmp/body" | tr -d ' ')
n_u16=$(((n * 2 + 7) / 8 * 8))
n_u32=$(((n * 4 + 7) / 8 * 8))
od -An -v -w4 -tu4 -j $((8 + n_header + 3 * n_u16 + n_u32)) -N $((4 * n)) "$tmp/body" |
	awk '{ n += $1 } END { print n }' >"$tmp/got"
sql "$tmp/trace.db" 'SELECT sum(decode_tokens) FROM expert_load' >"$tmp/want"
expect_same "$tmp/got" "$tmp/want"
view_end
