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

# ---- balance of ranks, pass by pass ----
# load (pass_id, layer_id, rank, x): what each of four ranks got, experts in order.
loads="CREATE TEMP TABLE load (pass_id INTEGER, layer_id INTEGER, rank INTEGER, x REAL,
		PRIMARY KEY (pass_id, layer_id, rank)) WITHOUT ROWID;
	INSERT INTO load SELECT t.pass_id, t.layer_id, r.value, coalesce(c.x, 0) FROM
		(SELECT DISTINCT e.pass_id, e.layer_id FROM expected AS e JOIN layer AS l USING (layer_id)
			WHERE e.expert < l.n_experts) AS t CROSS JOIN byte AS r ON r.value < 4
		LEFT JOIN (SELECT e.pass_id, e.layer_id, e.expert * 4 / l.n_experts AS rank, count(*) AS x
			FROM expected AS e JOIN layer AS l USING (layer_id) WHERE e.expert < l.n_experts GROUP BY 1, 2, 3)
			AS c ON c.pass_id = t.pass_id AND c.layer_id = t.layer_id AND c.rank = r.value;"
figures="round(total(x), 6), round(avg(x), 6), round(max(x), 6), round(max(x) / avg(x), 6),
	round((avg(x) + 1e-5) / (max(x) + 1e-5), 6),
	round(sqrt(max(avg(x * x) - avg(x) * avg(x), 0)) / avg(x), 6),
	round((SELECT sum(abs(a.x - b.x)) FROM load AS a JOIN load AS b ON b.pass_id = a.pass_id
		AND b.layer_id = a.layer_id WHERE a.pass_id = l.pass_id AND a.layer_id = l.layer_id) / (32 * avg(x)), 6),
	round(sum(iif(x > 0, -x / (SELECT sum(x) FROM load AS s WHERE s.pass_id = l.pass_id AND s.layer_id = l.layer_id)
		* ln(x / (SELECT sum(x) FROM load AS s WHERE s.pass_id = l.pass_id AND s.layer_id = l.layer_id)), 0)) / ln(4), 6)"
for scenario in mixed domains; do
	same "moe_balance_pass" "$tmp/$scenario.db" "
		SELECT pass_id, layer_id, $figures FROM load AS l GROUP BY 1, 2" "
		SELECT pass_id, layer_id, round(1.0 * tokens, 6), round(mean_rank_tokens, 6), round(max_rank_tokens, 6),
			round(max_over_mean, 6), round(balancedness, 6), round(cv, 6), round(gini, 6),
			round(entropy + 0.0, 6) FROM moe_balance_pass(4)" "$loads"
	same "moe_balance" "$tmp/$scenario.db" "
		SELECT recording_id, layer_id, count(*) AS n, sum(tokens) AS tokens, round(avg(balancedness), 9) AS a,
			round(sum(mean_rank_tokens) / sum(max_rank_tokens), 9) AS b, round(avg(max_over_mean), 9) AS c,
			round(max(max_over_mean), 9) AS d, round(avg(cv), 9) AS e, round(avg(gini), 9) AS f,
			round(avg(entropy), 9) AS g FROM moe_balance_pass(4) GROUP BY 1, 2" "
		SELECT recording_id, layer_id, n_passes, tokens, round(mean_balancedness, 9), round(total_balancedness, 9),
			round(mean_max_over_mean, 9), round(max_max_over_mean, 9), round(mean_cv, 9), round(mean_gini, 9),
			round(mean_entropy, 9) FROM moe_balance(4)"
	same "layers left out" "$tmp/$scenario.db" "
		SELECT recording_id, layer_id, sum(state NOT IN (0, 3)) AS n FROM pass_layer JOIN pass USING (pass_id)
			GROUP BY 1, 2" "SELECT recording_id, layer_id, left_out FROM moe_balance(4)"
done
answer "percentiles" "$tmp/domains.db" "
	WITH r AS (SELECT layer_id, max_over_mean AS x, row_number() OVER (PARTITION BY layer_id ORDER BY max_over_mean) AS n,
		count(*) OVER (PARTITION BY layer_id) AS m FROM moe_balance_pass(4))
	SELECT sum(abs(x - p50_max_over_mean) < 1e-12) FROM r JOIN moe_balance(4) USING (layer_id) WHERE n = (m + 1) / 2;
	WITH r AS (SELECT layer_id, max_over_mean AS x, row_number() OVER (PARTITION BY layer_id ORDER BY max_over_mean) AS n,
		count(*) OVER (PARTITION BY layer_id) AS m FROM moe_balance_pass(4))
	SELECT sum(abs(x - p95_max_over_mean) < 1e-12) FROM r JOIN moe_balance(4) USING (layer_id) WHERE n = (m * 95 + 99) / 100;" "3
3"
answer "what is asked for" "$tmp/mixed.db" "
	SELECT count(DISTINCT model_id), min(model_id) FROM moe_balance(4, NULL, NULL, NULL, 2);
	SELECT count(DISTINCT recording_id), min(recording_id) FROM moe_balance(4, NULL, NULL, NULL, NULL, 2);
	SELECT sum(phase <> 'decode') FROM moe_balance_pass(4, NULL, NULL, 'decode');
	SELECT count(*) - (SELECT count(*) FROM moe_balance_pass(4) WHERE phase = 'mixed')
		FROM moe_balance_pass(4, NULL, NULL, 'mixed');" "1|2
1|2
0
0"

# ---- shared experts: to all ranks alike, or to those with the least to do until all are level ----
answer "shared experts" "$tmp/domains.db" "$loads
	CREATE TEMP TABLE r AS SELECT pass_id, layer_id, max(x) AS most, sum(x) AS total, sum(x) / 6 AS amount FROM load GROUP BY 1, 2;
	SELECT count(*) > 0, sum(abs(e.max_rank_tokens - (r.most + r.amount / 4)) < 1e-9 AND e.tokens = r.total + r.amount) = count(*)
		FROM moe_balance_pass(4, NULL, 'even') AS e JOIN r USING (pass_id, layer_id);
	-- The water reaches the level at which it is used up, unless it lies below the highest rank.
	SELECT sum(w.max_rank_tokens < r.most), sum(w.max_rank_tokens > r.most AND abs((SELECT sum(max(w.max_rank_tokens - x, 0))
			FROM load AS l WHERE l.pass_id = r.pass_id AND l.layer_id = r.layer_id) - r.amount) > 1e-9),
		sum(w.max_rank_tokens = r.most AND (SELECT sum(r.most - x) FROM load AS l WHERE l.pass_id = r.pass_id
			AND l.layer_id = r.layer_id) < r.amount - 1e-9), sum(w.tokens = r.total + r.amount) = count(*)
		FROM moe_balance_pass(4, NULL, 'waterfill') AS w JOIN r USING (pass_id, layer_id);" "1|1
0|0|0|1"

# ---- the maps of a trace: each for the passes that ran under it; the others are left out ----
# Epoch 1 has expert 5 twice and an empty slot, epoch 2 the experts in descending order on four ranks.
slots() {
	i=0
	while [ "$i" -lt 64 ]; do
		printf '%02x000000' $(($1 * i + $2))
		i=$((i + 1))
	done
}
cp "$tmp/mixed.db" "$tmp/maps.db"
expect_ok sqlite3 "$tmp/maps.db" "INSERT INTO expert_map VALUES
		(1, 1, 0, 66, 2, x'$(slots 1 0)ffffffff05000000'), (1, 2, 9, 64, 4, x'$(slots -1 63)');
	UPDATE pass_layer SET map_epoch = 1 + (pass_id > 100) WHERE layer_id = 1 AND pass_id > 20;"
same "moe_balance_pass under recorded maps" "$tmp/maps.db" "
	WITH s AS (SELECT e.pass_id, CASE WHEN pass_id <= 100 THEN e.expert >= 33 ELSE (63 - e.expert) / 16 END AS rank,
			iif(pass_id <= 100 AND expert = 5, 0.5, 1) AS w FROM expected AS e WHERE layer_id = 1 AND pass_id > 20
		UNION ALL SELECT pass_id, 1, 0.5 FROM expected WHERE layer_id = 1 AND pass_id BETWEEN 21 AND 100 AND expert = 5)
	SELECT pass_id, iif(pass_id <= 100, 2, 4) AS ranks, max(x) AS most, sum(x) AS tokens FROM
		(SELECT pass_id, rank, sum(w) AS x FROM s GROUP BY 1, 2) GROUP BY pass_id" "
	SELECT pass_id, ranks, max_rank_tokens, 1.0 * tokens FROM moe_balance_pass(NULL, 'recorded') WHERE layer_id = 1"
answer "moe_balance under recorded maps" "$tmp/maps.db" "
	SELECT layer_id, recording_id, ranks, n_passes > 0 FROM moe_balance(NULL, 'recorded')
		WHERE layer_id = 1 ORDER BY 1, 2, 3;
	SELECT sum(left_out) - (SELECT count(*) FROM pass_layer WHERE map_epoch IS NULL OR state <> 0)
		FROM moe_balance(NULL, 'recorded');
	SELECT sum(n_passes) FROM moe_balance(NULL, 'recorded') WHERE layer_id <> 1;" "1|1|2|1
1|1|4|1
1|2|4|1
0
0"
expect_status 1 "$runner" "$tmp/maps.db" "SELECT * FROM moe_balance(5, 'recorded')"
expect_match "$tmp/err" 'moe_balance: placement of layer 1: 66 slots cannot be divided by 5 ranks'
expect_ok sqlite3 "$tmp/maps.db" "UPDATE expert_map SET slot_experts = x'00000000' WHERE epoch = 2"
expect_status 1 "$runner" "$tmp/maps.db" "SELECT * FROM moe_balance(NULL, 'recorded')"
expect_match "$tmp/err" 'moe_balance: placement of layer 1: '

# ---- rows of an expert, and what blocks add ----
cp "$tmp/mixed.db" "$tmp/blocks.db"
expect_ok sqlite3 "$tmp/blocks.db" "UPDATE layer SET gemm_block_rows = 4 WHERE layer_id <> 3"
same "pass_expert" "$tmp/mixed.db" "
	SELECT e.recording_id, e.model_id, e.pass_id, e.layer_id, e.layer, p.phase, e.expert, count(*) AS rows
		FROM expected AS e JOIN pass AS p USING (pass_id) GROUP BY pass_id, layer_id, expert" "
	SELECT recording_id, model_id, pass_id, layer_id, layer, phase, expert, rows FROM pass_expert"
same "align_waste" "$tmp/blocks.db" "
	SELECT pass_id, layer_id, sum(n) AS rows, count(*) AS active, sum(n / 4 + (n % 4 > 0)) AS blocks,
		sum((4 - n % 4) % 4) AS padded FROM (SELECT pass_id, layer_id, expert, count(*) AS n FROM expected
			JOIN layer AS l USING (layer_id) WHERE expert < n_experts AND layer_id <> 3 GROUP BY 1, 2, 3)
		GROUP BY 1, 2" "SELECT pass_id, layer_id, rows, active_experts, blocks, padded_rows FROM align_waste"
same "moe_rows" "$tmp/blocks.db" "
	SELECT recording_id, layer_id, p.phase, (SELECT min(b.value) FROM byte AS b WHERE 1 << b.value >= n) AS class,
		count(*) AS experts, sum(n) AS rows, iif(layer_id = 3, NULL, sum(n / 4 + (n % 4 > 0))) AS blocks,
		iif(layer_id = 3, NULL, sum((4 - n % 4) % 4)) AS padded
		FROM (SELECT pass_id, layer_id, expert, count(*) AS n FROM expected JOIN layer AS l USING (layer_id)
			WHERE expert < n_experts GROUP BY 1, 2, 3) JOIN pass AS p USING (pass_id) GROUP BY 1, 2, 3, 4" "
	SELECT recording_id, layer_id, phase, (SELECT b.value FROM byte AS b WHERE b.value < 32 AND 1 << b.value = rows_to),
		experts, rows, blocks, padded_rows FROM moe_rows"
answer "classes of moe_rows" "$tmp/domains.db" "SELECT sum(rows_from <> coalesce((SELECT max(b.rows_to) + 1 FROM moe_rows AS b
	WHERE b.layer_id = a.layer_id AND b.phase = a.phase AND b.rows_to < a.rows_to), rows_from)),
	sum(rows < rows_from * experts OR rows > rows_to * experts) FROM moe_rows AS a" "0|0"

# ---- times of layers: all of them, or of some passes, but of these all ----
cat "$MOETRACE_SRCDIR"/schema/[0-9]*.sql "$MOETRACE_SRCDIR"/schema/views/*.sql "$MOETRACE_SRCDIR/tests/viewer/timeline.sql" |
	sqlite3 -batch -bail "$tmp/graphs.db" || fail "cannot make graphs.db"
columns="recording_id, pass_id, model_id, layer_id, layer, phase, n_rows, active_experts, selected_ns, duration_ns, source,
	busy_ns, experts_ns"
for scenario in mixed domains graphs; do
	same "moe_layer_time" "$tmp/$scenario.db" "SELECT $columns FROM layer_time" "SELECT $columns FROM moe_layer_time"
done
cp "$tmp/domains.db" "$tmp/order.db"
cp "$tmp/domains.db" "$tmp/gaps.db"
sqlite3 "$tmp/order.db" "UPDATE kernel SET kernel_id = kernel_id + 1000000; UPDATE kernel SET kernel_id = 1100000 - kernel_id"
# Two passes of three were not timed, and some operations of a pass stand a little beside it.
sqlite3 "$tmp/gaps.db" "DELETE FROM kernel WHERE pass_id % 3 > 0; UPDATE kernel SET kernel_id = kernel_id + 1000000;
	UPDATE kernel SET kernel_id = 10 * kernel_id - 145 * (kernel_id % 4 = 1)"
for scenario in domains order gaps; do
	for operations in 1 60 700; do
		answer "moe_layer_time($operations)" "$tmp/$scenario.db" "
			CREATE TEMP TABLE whole AS SELECT $columns FROM layer_time;
			CREATE TEMP TABLE part AS SELECT $columns FROM moe_layer_time($operations);
			SELECT (SELECT count(*) FROM part) BETWEEN 1 AND (SELECT count(*) FROM whole) - 1, (SELECT count(*) FROM
				(SELECT * FROM part EXCEPT SELECT * FROM whole)), (SELECT count(*) FROM whole
				WHERE pass_id IN (SELECT pass_id FROM part)) - (SELECT count(*) FROM part);" "1|0|0"
	done
done
