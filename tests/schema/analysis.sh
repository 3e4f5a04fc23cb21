# SPDX-License-Identifier: MIT
#
# The functions that analyse whole files, against their definitions in plain SQL over the table of
# what a synthetic trace means.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command sqlite3

make_trace=$MOETRACE_BUILDDIR/tests/schema/make_trace
runner=$MOETRACE_BUILDDIR/tests/schema/sql_runner

# answer WHAT FILE SQL WANT
answer() {
	expect_ok "$runner" "$2" "$3"
	expect_eq "$1 of ${2##*/}" "$(cat "$tmp/out")" "$4"
}

# same WHAT FILE WANT GOT [BEFORE]: two queries give the same rows, and at least one.
same() {
	answer "$1" "$2" "${5:-}
		CREATE TEMP TABLE want AS $3;
		CREATE TEMP TABLE got AS $4;
		SELECT count(*) > 0, (SELECT count(*) FROM got) - count(*) FROM want;
		SELECT count(*) FROM (SELECT * FROM want EXCEPT SELECT * FROM got);
		SELECT count(*) FROM (SELECT * FROM got EXCEPT SELECT * FROM want);" "1|0
0
0"
}

for scenario in mixed domains; do
	expect_ok "$make_trace" $scenario "$tmp/$scenario.db"
done

# ---- coverage: the heaviest experts are taken until the share is reached ----
for scenario in mixed domains; do
	answer "expert_coverage" "$tmp/$scenario.db" "
		CREATE TEMP TABLE place AS SELECT recording_id, layer_id, tokens, row_number() OVER (
			PARTITION BY recording_id, layer_id ORDER BY tokens DESC, expert) AS n
			FROM expert_load WHERE kind = 'routed';
		CREATE TEMP TABLE part AS SELECT a.recording_id, a.layer_id, a.n, (SELECT sum(b.tokens) FROM place AS b
			WHERE b.recording_id = a.recording_id AND b.layer_id = a.layer_id AND b.n <= a.n) AS reached
			FROM place AS a;
		SELECT count(*) > 0, sum(c.experts_50 <> coalesce((SELECT min(n) FROM part AS p WHERE p.recording_id =
			c.recording_id AND p.layer_id = c.layer_id AND reached * 2 >= c.tokens AND c.tokens > 0), 0)),
			sum(c.experts_90 <> coalesce((SELECT min(n) FROM part AS p WHERE p.recording_id = c.recording_id
			AND p.layer_id = c.layer_id AND reached * 10 >= c.tokens * 9 AND c.tokens > 0), 0)),
			sum(c.experts_99 <> coalesce((SELECT min(n) FROM part AS p WHERE p.recording_id = c.recording_id
			AND p.layer_id = c.layer_id AND reached * 100 >= c.tokens * 99 AND c.tokens > 0), 0)),
			sum(c.dead_experts <> b.dead_experts OR c.tokens <> b.tokens OR c.n_experts <> b.n_experts)
			FROM expert_coverage AS c JOIN layer_balance AS b USING (recording_id, layer_id)
			WHERE c.phase = 'all';
		SELECT count(*) - (SELECT sum(prefill_tokens) FROM (SELECT recording_id, layer_id,
			sum(prefill_tokens) > 0 AS prefill_tokens FROM expert_load WHERE kind = 'routed' GROUP BY 1, 2))
			FROM expert_coverage WHERE phase = 'prefill';" "1|0|0|0|0
0"
done

# ---- pairs ----
for scenario in mixed domains; do
	same "moe_pairs" "$tmp/$scenario.db" "
		WITH one AS (SELECT DISTINCT recording_id, model_id, layer_id, layer, pass_id, row, expert
			FROM expected),
		alone AS (SELECT recording_id, layer_id, expert, count(*) AS n FROM one GROUP BY 1, 2, 3),
		rows AS (SELECT p.recording_id, pl.layer_id, sum(pl.n_rows) AS n FROM pass_layer AS pl
			JOIN pass AS p USING (pass_id) WHERE pl.state = 0 GROUP BY 1, 2)
		SELECT a.recording_id, a.model_id, a.layer_id, a.layer, a.expert AS x, b.expert AS y,
			count(*) AS together, na.n AS n_a, nb.n AS n_b, r.n AS n_rows,
			round(count(*) * 1.0 * r.n / (na.n * nb.n), 6) AS lift
		FROM one AS a JOIN one AS b ON b.pass_id = a.pass_id AND b.layer_id = a.layer_id
			AND b.row = a.row AND b.expert > a.expert
		JOIN alone AS na ON na.recording_id = a.recording_id AND na.layer_id = a.layer_id
			AND na.expert = a.expert
		JOIN alone AS nb ON nb.recording_id = a.recording_id AND nb.layer_id = a.layer_id
			AND nb.expert = b.expert
		JOIN rows AS r ON r.recording_id = a.recording_id AND r.layer_id = a.layer_id
		GROUP BY a.recording_id, a.layer_id, a.expert, b.expert" "
		SELECT recording_id, model_id, layer_id, layer, expert_a, expert_b, together, rows_a, rows_b,
			rows, round(lift, 6) FROM moe_pairs"
done
answer "moe_pairs' argument" "$tmp/mixed.db" "SELECT count(DISTINCT layer_id), min(layer_id) FROM moe_pairs(3)" "1|3"

# ---- steps ----
one="CREATE TEMP TABLE one (recording_id INTEGER, model_id INTEGER, request_id INTEGER, attempt INTEGER,
		layer_id INTEGER, layer INTEGER, phase TEXT, pass_id INTEGER, row INTEGER, expert INTEGER);
	CREATE TEMP TABLE turn (recording_id INTEGER, request_id INTEGER, attempt INTEGER, layer_id INTEGER,
		layer INTEGER, phase TEXT, pass_id INTEGER, row INTEGER, position INTEGER, before_position INTEGER,
		before_pass INTEGER, before_row INTEGER);
	INSERT INTO one SELECT DISTINCT recording_id, model_id, request_id, attempt, layer_id, layer,
		phase, pass_id, row, expert FROM expected WHERE state = 'computed';
	CREATE INDEX temp.one_row ON one (pass_id, layer_id, row, expert);
	CREATE TEMP TABLE stored AS SELECT recording_id, request_id, attempt, layer_id, layer, phase, pass_id,
		row, position FROM token_topk WHERE state = 'computed' AND pass_id IS NOT NULL;
	INSERT INTO turn SELECT *, lag(position) OVER w AS before_position,
		lag(pass_id) OVER w AS before_pass, lag(row) OVER w AS before_row FROM stored
		WINDOW w AS (PARTITION BY request_id, attempt, layer_id ORDER BY pass_id, row);"
for scenario in mixed domains; do
	# Of a position that was computed twice, each computation follows the one before it.
	same "moe_steps" "$tmp/$scenario.db" "
		SELECT t.recording_id, t.layer_id, t.layer, t.phase, count(*) AS n_rows,
			sum(coalesce(before_position + 1 = position, 0)) AS pairs,
			sum(iif(before_position + 1 = position, (SELECT count(*) FROM one AS o WHERE o.pass_id = t.pass_id
				AND o.layer_id = t.layer_id AND o.row = t.row), 0)) AS selected,
			sum(iif(before_position + 1 = position, (SELECT count(*) FROM one AS o CROSS JOIN one AS b
				ON b.expert = o.expert WHERE o.pass_id = t.pass_id AND o.layer_id = t.layer_id
				AND o.row = t.row AND b.pass_id = t.before_pass AND b.layer_id = t.layer_id
				AND b.row = t.before_row), 0)) AS kept
		FROM turn AS t GROUP BY 1, 2, 4" "
		SELECT recording_id, layer_id, layer, phase, rows, pairs, selected, kept FROM moe_steps" "$one"
	same "moe_steps between passes" "$tmp/$scenario.db" "
		SELECT s.recording_id, s.layer_id, s.phase, count(DISTINCT s.before) AS pairs,
			count(o.expert) AS active, count(b.expert) AS kept
		FROM step AS s LEFT JOIN touched AS o ON o.pass_id = s.pass_id AND o.layer_id = s.layer_id
			AND o.phase = s.phase AND s.before IS NOT NULL
		LEFT JOIN touched AS b ON b.pass_id = s.before AND b.layer_id = s.layer_id AND b.phase = s.phase
			AND b.expert = o.expert
		GROUP BY 1, 2, 3" "
		SELECT recording_id, layer_id, phase, pass_pairs, active, active_kept FROM moe_steps" "$one
		CREATE TEMP TABLE touched AS SELECT DISTINCT recording_id, layer_id, phase, pass_id, expert FROM one;
		CREATE INDEX temp.touched_pass ON touched (pass_id, layer_id, phase, expert);
		CREATE TEMP TABLE step AS SELECT *, lag(pass_id) OVER (PARTITION BY recording_id, layer_id, phase
			ORDER BY pass_id) AS before FROM (SELECT DISTINCT recording_id, layer_id, phase, pass_id FROM turn);"
done
answer "moe_steps' chance" "$tmp/domains.db" "
	WITH one AS (SELECT layer_id, phase, expert, count(*) AS n FROM expected GROUP BY 1, 2, 3),
	rows AS (SELECT layer_id, phase, sum(n) / 6.0 AS n FROM one GROUP BY 1, 2)
	SELECT count(*), sum(abs(want - chance_share) < 1e-9) FROM (SELECT o.layer_id, o.phase,
		sum((o.n / r.n) * (o.n / r.n)) / 6 AS want FROM one AS o JOIN rows AS r USING (layer_id, phase)
		GROUP BY 1, 2) JOIN moe_steps USING (layer_id, phase)" "6|6"

# ---- shares, and their error between passes ----
answer "moe_share" "$tmp/mixed.db" "
	CREATE TEMP TABLE x AS SELECT e.recording_id, e.layer_id, e.pass_id, e.expert, count(*) AS x
		FROM expected AS e JOIN layer AS l USING (layer_id) WHERE e.expert < l.n_experts GROUP BY 1, 2, 3, 4;
	CREATE TEMP TABLE n AS SELECT recording_id, layer_id, pass_id, sum(x) AS n FROM x GROUP BY 1, 2, 3;
	CREATE TEMP TABLE want AS WITH total AS (SELECT recording_id, layer_id, count(*) AS m, sum(n) AS n
		FROM n GROUP BY 1, 2), expert AS (SELECT recording_id, layer_id, expert, sum(x) AS x FROM x GROUP BY 1, 2, 3)
		SELECT e.recording_id, e.layer_id, e.expert, t.m, e.x, 1.0 * e.x / t.n AS share,
			t.m / (t.m - 1.0) * (SELECT sum((coalesce(x.x, 0) - 1.0 * e.x / t.n * n.n) * (coalesce(x.x, 0) - 1.0 * e.x / t.n * n.n))
				FROM n LEFT JOIN x ON x.pass_id = n.pass_id AND x.layer_id = n.layer_id AND x.expert = e.expert
				WHERE n.recording_id = e.recording_id AND n.layer_id = e.layer_id) / t.n / t.n AS variance
		FROM expert AS e JOIN total AS t USING (recording_id, layer_id) WHERE e.layer_id <> 2;
	SELECT count(*) > 100, count(*) - sum(g.n_passes = w.m AND g.tokens = w.x AND abs(g.share - w.share) < 1e-12
		AND abs(g.share_error * g.share_error - w.variance) < 1e-12) FROM want AS w
		JOIN moe_share AS g USING (recording_id, layer_id, expert);
	SELECT (SELECT count(*) FROM want) - count(*) FROM moe_share WHERE layer_id <> 2;
	SELECT count(*) FROM moe_share('idle');" "1|0
0
0"
expect_status 1 "$runner" "$tmp/mixed.db" "SELECT * FROM moe_share('sleep')"
expect_match "$tmp/err" "^moe_share: phase: give 'prefill'"
