# SPDX-License-Identifier: MIT
#
# The views in a stock sqlite3, read-only and with trusted_schema off, against what synthetic
# traces mean: every decoded value, every count, and plans that touch only what was asked for.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_plain_build
need_command sqlite3

make_trace=$MOETRACE_BUILDDIR/tests/schema/make_trace

# answer WHAT FILE SQL WANT: the view answers the same.
answer() {
	expect_ok sqlite3 -batch -readonly -cmd 'PRAGMA trusted_schema = OFF' "$2" "$3"
	expect_eq "$1 of ${2##*/}" "$(cat "$tmp/out")" "$4"
}

for scenario in mixed halves slices domains; do
	expect_ok "$make_trace" $scenario "$tmp/$scenario.db"
done

# Every assignment of a request, in both directions; NULLs count as equal here.
for scenario in mixed halves slices domains; do
	answer "routed_expert" "$tmp/$scenario.db" "
		CREATE TEMP TABLE got AS SELECT * FROM routed_expert;
		SELECT count(*) > 0, (SELECT count(*) FROM got) - count(*) FROM expected
			WHERE request_id IS NOT NULL;
		SELECT count(*) FROM (SELECT * FROM expected WHERE request_id IS NOT NULL
			EXCEPT SELECT * FROM got);
		SELECT count(*) FROM (SELECT * FROM got EXCEPT SELECT * FROM expected);" "1|0
0
0"
done

# token_topk has a row for each stored row, those without a valid entry included.
answer "token_topk" "$tmp/mixed.db" "
	CREATE TEMP TABLE entries (pass_id, layer_id, row, n, PRIMARY KEY (pass_id, layer_id, row))
		WITHOUT ROWID;
	INSERT INTO entries SELECT pass_id, layer_id, row, count(*) FROM expected GROUP BY 1, 2, 3;
	SELECT count(*) - (SELECT sum(n_rows) FROM pass_layer WHERE state = 0) FROM token_topk;
	SELECT count(*) FROM (SELECT recording_id, model_id, request_id, attempt, position, pass_id,
		row, phase, layer_id, layer, state FROM expected EXCEPT
		SELECT recording_id, model_id, request_id, attempt, position, pass_id, row, phase,
		layer_id, layer, state FROM token_topk);
	SELECT count(*) FROM token_topk AS t WHERE length(topk_ids) <> k * id_bytes
		OR n_valid <> coalesce((SELECT n FROM entries AS e WHERE e.pass_id = t.pass_id
			AND e.layer_id = t.layer_id AND e.row = t.row), 0)
		OR coalesce(length(topk_weights), 2 * k) <> 2 * k
		OR (weight_format = 'none') <> (topk_weights IS NULL) LIMIT 1;" "0
0
0"

# The load, and what is derived from it.
for scenario in mixed halves domains; do
	answer "expert_load" "$tmp/$scenario.db" "
		CREATE TEMP TABLE want AS SELECT recording_id, layer_id, expert, count(*) AS tokens,
			sum(phase = 'prefill' AND request_id IS NOT NULL) AS prefill_tokens,
			sum(phase = 'decode' AND request_id IS NOT NULL) AS decode_tokens,
			sum(phase = 'verify' AND request_id IS NOT NULL) AS verify_tokens,
			sum(phase = 'draft' OR request_id IS NULL) AS other_tokens
			FROM expected GROUP BY 1, 2, 3;
		SELECT count(*) FROM (SELECT * FROM want EXCEPT SELECT recording_id, layer_id, expert, tokens,
			prefill_tokens, decode_tokens, verify_tokens, other_tokens FROM expert_load);
		SELECT (SELECT sum(tokens) FROM want) - (SELECT sum(tokens) FROM expert_load);
		SELECT (SELECT count(*) FROM recording) * (SELECT sum(n_experts + n_zero_experts
			+ n_shared_slots) FROM layer) - (SELECT count(*) FROM expert_load);
		SELECT count(*) FROM expert_load AS e JOIN layer USING (layer_id) WHERE e.kind <> CASE
			WHEN expert < n_experts THEN 'routed' WHEN expert < n_experts + n_zero_experts THEN 'zero'
			ELSE 'shared' END;" "0
0
0
0"
	answer "layer_balance" "$tmp/$scenario.db" "
		SELECT count(*) FROM (
			SELECT recording_id, layer_id, tokens, hottest_expert, dead_experts,
				round(max_over_mean, 9), round(balancedness, 9) FROM layer_balance
			EXCEPT
			SELECT recording_id, layer_id, sum(tokens), (SELECT expert FROM expert_load AS h
				WHERE h.recording_id = e.recording_id AND h.layer_id = e.layer_id
				AND h.kind = 'routed' AND h.tokens > 0 ORDER BY h.tokens DESC, h.expert LIMIT 1),
				sum(tokens = 0), round(max(tokens) / avg(tokens), 9),
				round(avg(tokens) / max(tokens), 9)
			FROM expert_load AS e WHERE kind = 'routed' GROUP BY 1, 2);
		SELECT count(*) - (SELECT count(*) FROM recording) * (SELECT count(*) FROM layer)
			FROM layer_balance;
		SELECT count(*) FROM layer_balance WHERE n_passes > 0 AND (mean_active_experts > n_experts
			OR max_active_experts < mean_active_experts OR max_load < mean_max_load);" "0
0
0"
done

answer "layer_balance's passes" "$tmp/mixed.db" "
	WITH load AS (SELECT recording_id, pass_id, e.layer_id, expert, count(*) AS n FROM expected AS e
		JOIN layer AS l USING (layer_id) WHERE expert < n_experts GROUP BY 1, 2, 3, 4),
	per_pass AS (SELECT pass_id, layer_id, count(*) AS active, max(n) AS most FROM load GROUP BY 1, 2)
	SELECT count(*) FROM pass_layer AS pl LEFT JOIN per_pass AS w USING (pass_id, layer_id)
		WHERE pl.state = 0 AND (pl.active_experts <> coalesce(w.active, 0)
		OR pl.max_load <> coalesce(w.most, 0));" "0"

answer "pass_summary" "$tmp/mixed.db" "
	SELECT count(*) - (SELECT count(*) FROM pass) FROM pass_summary;
	SELECT count(*) FROM pass_summary AS s WHERE
		n_requests <> (SELECT count(DISTINCT request_id) FROM pass_request AS r WHERE r.pass_id = s.pass_id)
		OR n_rows <> (SELECT coalesce(sum(n_rows), 0) FROM pass_request AS r WHERE r.pass_id = s.pass_id)
		OR duration_ns <> 2500000 OR n_layers_stored > 4;" "0
0"

answer "request_summary" "$tmp/mixed.db" "
	SELECT count(*) - (SELECT count(*) FROM request) FROM request_summary;
	SELECT count(*) FROM request_summary AS s WHERE n_rows <> (SELECT coalesce(sum(n_rows), 0)
		FROM pass_request AS r WHERE r.request_id = s.request_id) OR prefill_rows + decode_rows > n_rows
		OR n_passes > n_rows OR (end_state IS NULL) <> (duration_ns IS NULL);" "0
0"

# A layer's time ends where the next one begins, the last layer's with the pass.
answer "layer_time" "$tmp/mixed.db" "
	SELECT count(*) - (SELECT count(*) FROM pass_layer WHERE selected_ns IS NOT NULL) FROM layer_time;
	SELECT count(*) FROM (SELECT t.pass_id, sum(t.duration_ns) + min(t.selected_ns) AS covered, p.end_ns
		FROM layer_time AS t JOIN pass AS p USING (pass_id) GROUP BY t.pass_id)
		WHERE covered <> end_ns;" "0
0"

answer "loss" "$tmp/mixed.db" "
	SELECT recording_id, end_reason, dropped_layers, n_gaps, partial_requests, unfinished_requests,
		lag_passes FROM loss ORDER BY 1;" "1|stopped|3|1|3|2|0
2|||0|1|2|90"

# One request: one scan of pass_request, everything else by key, nothing built in between.
sqlite3 -batch -readonly "$tmp/mixed.db" \
	'EXPLAIN QUERY PLAN SELECT * FROM routed_expert WHERE request_id = 3' >"$tmp/plan"
expect_eq "scans in the plan of one request" "$(grep -c 'SCAN' "$tmp/plan")" \
	"$(grep -cE 'SCAN (pr$|CONSTANT ROW|e$)' "$tmp/plan")"
expect_eq "scans of pass_request" "$(grep -c 'SCAN pr$' "$tmp/plan")" 1
expect_no_match "$tmp/plan" 'MATERIALIZE|TEMP B-TREE|AUTOMATIC'
sqlite3 -batch -readonly "$tmp/mixed.db" \
	'EXPLAIN QUERY PLAN SELECT * FROM routed_expert WHERE pass_id = 3 AND layer_id = 2' >"$tmp/plan"
expect_match "$tmp/plan" 'SEARCH pr USING PRIMARY KEY \(pass_id=\?\)'
expect_match "$tmp/plan" 'SEARCH pl USING PRIMARY KEY \(pass_id=\? AND layer_id=\?\)'

# Sorting carries no blob of 64 KiB along with each assignment: 20 MB hold all that it writes.
run sh -c "ulimit -f 40960 && sqlite3 -batch -readonly '$tmp/domains.db' 'SELECT layer, expert,
	count(*), sum(weight), max(position) FROM routed_expert GROUP BY 1, 2'"
expect_eq "exit status of a GROUP BY that may write 20 MB" "$status" 0
expect_eq "groups" "$(wc -l <"$tmp/out")" 180

# An oracle that shares no line with ours, where there is one.
if command -v python3 >/dev/null 2>&1 && python3 -c 'import struct, sqlite3' 2>/dev/null; then
	expect_ok python3 "$MOETRACE_SRCDIR/tests/schema/halves.py" "$tmp/halves.db"
else
	echo "no python3: the formats are compared with the generator's own values only"
fi
