# SPDX-License-Identifier: MIT
#
# moe_oea against a replay of the definition in plain SQL, from what the synthetic traces mean:
# several recordings and models, mixed and verify passes, row maps, shared slots, experts without
# weights, rows with fewer entries. And what it refuses.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command sqlite3

make_trace=$MOETRACE_BUILDDIR/tests/schema/make_trace
runner=$MOETRACE_BUILDDIR/tests/schema/sql_runner

# answer WHAT FILE SQL WANT
answer() {
	expect_ok "$runner" "$2" "$3"
	expect_eq "$1 of ${2##*/}" "$(cat "$tmp/out")" "$4"
}

# Tables that say what the rule does, k0 by k0: row (a stored row), entry (one of its experts, shared
# slots left out), loaded (the union), and figure.
replay="
	CREATE TEMP TABLE kind AS
	SELECT pass_id, CASE WHEN max(k) = 0 THEN NULL WHEN min(k) = 0 THEN 'mixed' WHEN max(v) THEN 'verify'
		WHEN max(d) THEN 'draft' ELSE 'decode' END AS phase
	FROM (SELECT pass_id, phase IN ('decode', 'verify', 'draft') AS k, phase = 'verify' AS v,
		phase = 'draft' AS d FROM pass_request WHERE n_rows > 0) GROUP BY pass_id;
	CREATE TEMP TABLE row AS
	SELECT t.recording_id, t.model_id, t.pass_id, t.layer_id, t.row, t.n_valid,
		t.phase NOT IN ('decode', 'verify', 'draft') AS kept, kind.phase AS kind,
		t.request_id IS NOT NULL AND t.state <> 'rejected' AS rated,
		l.top_k - iif(l.n_shared_slots < l.top_k, l.n_shared_slots, 0) AS k, l.n_experts, l.n_zero_experts
	FROM token_topk AS t JOIN layer AS l USING (layer_id) JOIN kind USING (pass_id)
	WHERE t.pass_id IS NOT NULL AND kind.phase IS NOT NULL;
	CREATE UNIQUE INDEX row_key ON row (pass_id, layer_id, row);
	CREATE TEMP TABLE entry AS
	SELECT * FROM (SELECT r.*, e.expert, e.weight, row_number() OVER (PARTITION BY e.pass_id,
		e.layer_id, e.row ORDER BY e.topk_rank) - 1 AS place
		FROM expected AS e JOIN row AS r USING (pass_id, layer_id, row)
		WHERE e.expert < r.n_experts + r.n_zero_experts) WHERE place < k;
	CREATE TEMP TABLE cut AS SELECT value AS k0 FROM byte WHERE value BETWEEN 1 AND 8;
	CREATE TEMP TABLE loaded AS SELECT DISTINCT k0, pass_id, layer_id, expert FROM entry, cut
		WHERE k0 <= k AND expert < n_experts AND (kept OR place < k0);
	CREATE UNIQUE INDEX loaded_key ON loaded (k0, pass_id, layer_id, expert);
	CREATE TEMP TABLE batch AS SELECT pass_id, layer_id, k0, count(expert) AS active
		FROM (SELECT DISTINCT pass_id, layer_id, k0 FROM row, cut WHERE k0 <= k)
		LEFT JOIN loaded USING (pass_id, layer_id, k0) GROUP BY 1, 2, 3;
	CREATE TEMP TABLE kept_row AS SELECT c.k0, r.recording_id, r.layer_id, r.kind, r.pass_id, r.row, r.k,
		r.rated, r.n_zero_experts + b.active AS n_union,
		count(e.expert) AS n_entries,
		count(iif(e.expert >= e.n_experts OR l.expert IS NOT NULL, 1, NULL)) AS survivors,
		sum(e.weight) AS weight, total(iif(e.expert >= e.n_experts OR l.expert IS NOT NULL, 0,
		e.weight)) AS lost
		FROM row AS r JOIN cut AS c ON c.k0 <= r.k
		JOIN batch AS b USING (pass_id, layer_id, k0)
		LEFT JOIN entry AS e USING (pass_id, layer_id, row)
		LEFT JOIN loaded AS l ON l.k0 = c.k0 AND l.pass_id = r.pass_id AND l.layer_id = r.layer_id
			AND l.expert = e.expert
		WHERE NOT r.kept GROUP BY 1, 2, 3, 4, 5, 6;
	CREATE TEMP TABLE figure AS
	SELECT recording_id, layer_id, kind AS phase, k0, count(*) AS changed_rows,
		sum(n_entries - survivors) AS lost_entries, sum(n_union < k) AS below_k,
		sum(weight > 0 AND rated) AS rated_rows,
		total(iif(weight > 0 AND rated, lost / weight, 0)) AS lost_weight
	FROM kept_row GROUP BY 1, 2, 3, 4;
	CREATE TEMP TABLE got AS SELECT * FROM moe_oea WHERE k0 IS NOT NULL;"

for scenario in mixed domains; do
	expect_ok "$make_trace" $scenario "$tmp/$scenario.db"
	answer "the replay" "$tmp/$scenario.db" "$replay
		SELECT 'batches', count(*) > 0, sum(got.n_batches <> w.n OR got.rows <> w.rows
			OR got.active_after <> w.active OR got.active_before <> w.before)
		FROM (SELECT recording_id, layer_id, kind AS phase, k0, count(*) AS n, sum(n_rows) AS rows,
			sum(active) AS active, sum(before) AS before
			FROM (SELECT recording_id, layer_id, kind, pass_id, k, count(*) AS n_rows FROM row
				GROUP BY 1, 2, 3, 4)
			JOIN batch USING (pass_id, layer_id)
			JOIN (SELECT pass_id, layer_id, max(active) AS before FROM batch GROUP BY 1, 2)
				USING (pass_id, layer_id) GROUP BY 1, 2, 3, 4) AS w
		LEFT JOIN got USING (recording_id, layer_id, phase, k0);
		SELECT 'rows', count(*) > 0, sum(got.changed_rows <> w.changed_rows
			OR got.lost_entries <> w.lost_entries OR got.tokens_below_k <> w.below_k)
		FROM figure AS w LEFT JOIN got USING (recording_id, layer_id, phase, k0);
		SELECT 'more', (SELECT count(*) FROM got) - (SELECT count(*) FROM (SELECT DISTINCT recording_id,
			layer_id, kind, k0 FROM row, cut WHERE k0 <= k));" "batches|1|0
rows|1|0
more|0"
done

# Weights, where they are numbers; passes and sums over other groups; what a group's mean hides.
answer "lost weight" "$tmp/domains.db" "$replay
	SELECT count(*), sum(got.rated_rows <> w.rated_rows), max(abs(got.lost_weight - w.lost_weight)) < 1e-2,
		sum(got.p95_lost_weight < got.lost_weight / got.rated_rows)
	FROM figure AS w JOIN got USING (recording_id, layer_id, phase, k0) WHERE k0 < 6" "15|0|1|0"
answer "layers together" "$tmp/domains.db" "
	SELECT a.k0, a.active_after - sum(b.active_after), a.changed_rows - sum(b.changed_rows),
		a.n_passes - max(b.n_passes), abs(a.lost_weight - sum(b.lost_weight)) < 1e-6,
		a.ratio_low < 1.0 * a.active_after / a.active_before, a.ratio_high > 1.0 * a.active_after / a.active_before
	FROM moe_oea(0) AS a JOIN moe_oea AS b USING (k0) WHERE k0 = 3;
	SELECT k0, sum(active_after) - (SELECT active_after FROM moe_oea(0) WHERE k0 = 3), min(max_batch_rows),
		max(max_batch_rows), count(*) FROM moe_oea(0, 1) WHERE k0 = 3;
	SELECT max_batch_rows, sum(active_after <> k0 * n_batches OR (k0 < k) <> (tokens_below_k = rows))
		FROM moe_oea(0, 1) WHERE max_batch_rows = 1" "3|0|0|0|1|1|1
3|0|1|16|5
1|0"
# The expectation is that of each batch, not of the mean batch.
answer "uniform choices" "$tmp/domains.db" "
	SELECT max(abs(got.uniform_after - w.expected)) < 1e-6, max(abs(got.uniform_before - w.before)) < 1e-6 FROM (
		SELECT k0, sum(60 * (1 - pow(1 - k0 / 60.0, n_rows))) AS expected,
			sum(60 * (1 - pow(1 - 6 / 60.0, n_rows))) AS before
		FROM pass, (SELECT value AS k0 FROM byte WHERE value BETWEEN 1 AND 6) WHERE phase = 'decode' GROUP BY k0
	) AS w JOIN moe_oea AS got USING (k0)" "1|1"
answer "k0 = k" "$tmp/mixed.db" "
	SELECT count(*) > 0, sum(active_after <> active_before OR lost_entries <> 0 OR lost_weight <> 0
		OR p95_lost_weight <> 0) FROM moe_oea WHERE k0 = k" "1|0"
answer "the plain count" "$tmp/domains.db" "
	SELECT (SELECT sum(active_experts) FROM pass_layer JOIN pass USING (pass_id) WHERE phase = 'decode')
		- sum(active_before) FROM moe_oea WHERE k0 = 1" "0"
answer "pruning, and a budget" "$tmp/domains.db" "
	SELECT sum(a.active_after <> b.active_after OR a.lost_weight > b.lost_weight + 1e-6
		OR b.lost_entries <> b.changed_rows * (6 - k0) OR b.swapped_entries > 0
		OR b.tokens_below_k <> iif(k0 < 6, b.changed_rows, 0))
		FROM moe_oea AS a JOIN moe_oea(1, 0, 'pruned') AS b USING (layer_id, k0);
	SELECT count(*), sum(b.active_after > 20 * b.n_batches), sum(b.active_after < a.active_after) FROM
		moe_oea(1, 0, 'budget:20') AS b JOIN moe_oea AS a USING (layer_id) WHERE a.k0 = 1;
	SELECT sum(active_after <> active_before OR lost_weight <> 0) FROM moe_oea(1, 0, 'budget:60')" "0
3|0|0
0"

# The rank with most experts: in order, by a placement, and one rank alone.
answer "ranks" "$tmp/domains.db" "
	CREATE TEMP TABLE active AS SELECT DISTINCT pass_id, layer_id, expert, min(topk_rank) OVER (PARTITION BY pass_id, layer_id,
		expert) AS place FROM moe_topk WHERE phase = 'decode';
	CREATE TEMP TABLE want AS SELECT layer_id, k0, sum(most) AS most FROM (
		SELECT layer_id, pass_id, k0, max(n) AS most FROM (
			SELECT layer_id, pass_id, k0, expert / 15 AS rank, count(*) AS n FROM active,
				(SELECT value AS k0 FROM byte WHERE value BETWEEN 1 AND 6) WHERE place < k0 GROUP BY 1, 2, 3, 4)
		GROUP BY 1, 2, 3) GROUP BY 1, 2;
	SELECT count(*), sum(rank_active_after <> most), sum(rank_active_before <> (SELECT most FROM want AS w
		WHERE w.layer_id = want.layer_id AND w.k0 = 6)) FROM want JOIN moe_oea(1, 0, 'oea', 4) USING (layer_id, k0);
	SELECT sum(rank_active_after <> active_after) FROM moe_oea(1, 0, 'oea', 1);
	SELECT sum(a.rank_active_after <> b.rank_active_after) FROM moe_oea(1, 0, 'oea', 4) AS a JOIN moe_oea(1, 0, 'oea', 4,
		(SELECT json_group_array(json(slots)) FROM byte, (SELECT json_group_array(value) AS slots FROM byte WHERE value < 60)
		WHERE value < 3)) AS b USING (layer_id, k0);
	SELECT count(rank_active_after) FROM moe_oea(1, 0, 'oea', NULL, 'recorded');
	SELECT count(rank_active_after) FROM moe_oea" "18|0|0
0
0
0
0"

# ---- what is refused, or put in order first ----
# changed SQL: domains.db, changed so.
changed() {
	cp "$tmp/domains.db" "$tmp/changed.db"
	expect_ok sqlite3 "$tmp/changed.db" "$1"
}
# refuses WORD SQL: after the change, layer 2 is refused for that reason and the others are not.
refuses() {
	changed "$2"
	answer "$1" "$tmp/changed.db" "
		SELECT layer_id, n_batches, rows, active_after, k FROM moe_oea WHERE refusal = '$1';
		SELECT count(*) FROM moe_oea WHERE k0 IS NOT NULL AND layer_id <> 2;" "2|160|2080||
12"
}
refuses hash "UPDATE layer SET kind = 'hash' WHERE layer_id = 2"
refuses order "UPDATE pass_layer SET selection_order = 2 WHERE layer_id = 2"
refuses order "UPDATE pass_layer SET selection_order = NULL WHERE layer_id = 2"
changed "UPDATE topk SET topk_weights = CAST(replace(hex(zeroblob(n_rows * k * 2)), '00', '1') AS BLOB)"
answer "equal weights" "$tmp/changed.db" "SELECT DISTINCT refusal, k0 FROM moe_oea" "equal|"
changed "UPDATE pass SET verdict = 'partial', reasons = 'sampled' WHERE phase = 'decode'"
answer "sampled requests" "$tmp/changed.db" "SELECT DISTINCT refusal, k0 FROM moe_oea" "sampled|"
changed "UPDATE topk SET rule_id = 1"
answer "a rule without the router's own choice" "$tmp/changed.db" "SELECT DISTINCT refusal, k0 FROM moe_oea" "base|"
changed "UPDATE topk SET rule_id = 1, base_k = k, base_ids = topk_ids"
answer "a rule with it" "$tmp/changed.db" "SELECT a.active_after - b.active_after, a.lost_weight
	FROM (SELECT sum(active_after) AS active_after, sum(lost_weight) AS lost_weight FROM moe_oea) AS a,
	(SELECT sum(active_after) AS active_after FROM moe_oea(0)) AS b" "0|"
changed "DELETE FROM pass_layer; DELETE FROM pass_request; DELETE FROM pass"
answer "nothing" "$tmp/changed.db" "SELECT count(*) FROM moe_oea" 0
changed "UPDATE recording SET mode = 'per_pass'"
expect_status 1 "$runner" "$tmp/changed.db" "SELECT * FROM moe_oea"
expect_match "$tmp/err" 'moe_oea: recording 1 is of mode per_pass, which keeps no rows'

# Weights that rise, in layers in which nothing but the weight chose: rows are put in order first.
changed "UPDATE topk SET topk_weights = CAST(replace(hex(zeroblob(n_rows)), '00', '!1!2!3!4!5!6') AS BLOB)"
answer "an order that nobody doubts" "$tmp/changed.db" "SELECT sum(restored_rows), sum(active_after) - (SELECT sum(active_after)
	FROM moe_oea WHERE k0 = 1) FROM moe_oea WHERE k0 = 1" "0|0"
expect_ok sqlite3 "$tmp/changed.db" "UPDATE layer SET has_correction_bias = 0"
answer "the restored order" "$tmp/changed.db" "SELECT sum(restored_rows) = sum(rows), sum(active_after) - (SELECT count(*)
	FROM (SELECT DISTINCT pass_id, layer_id, expert FROM moe_topk WHERE topk_rank = 5 AND phase = 'decode'))
	FROM moe_oea WHERE k0 = 1" "1|0"
# Candidates: expert 60, which no row chose, and 48, which some did; scores 0.0821 and 0.0332, where the
# least chosen one is 0.09375. Both are printable, so that a replacement makes the blobs.
changed "UPDATE layer SET n_experts = 64, has_correction_bias = 0, weight_kind = 'raw'; UPDATE topk SET n_candidates = 2,
	candidate_ids = CAST(replace(hex(zeroblob(n_rows)), '00', '<0') AS BLOB), score_format = 'fp16',
	candidate_scores = CAST(replace(hex(zeroblob(n_rows)), '00', 'A-A(') AS BLOB)"
replay_48="CREATE TEMP TABLE r AS SELECT pass_id, layer_id, row, max(expert = 48) AS has FROM moe_topk
	WHERE phase = 'decode' GROUP BY 1, 2, 3;
	CREATE TEMP TABLE b AS SELECT pass_id, layer_id, max(has) AS has, count(*) AS n FROM r GROUP BY 1, 2;"
answer "a narrow margin" "$tmp/changed.db" "$replay_48
	SELECT sum(known_rows - (rows - 0)), sum(further_entries) = (SELECT count(*) FROM r), sum(free_entries),
		sum(active_after - active_before) = (SELECT count(*) FROM b) FROM moe_expand(0.02)" "0|1|0|1"
answer "a wide margin" "$tmp/changed.db" "$replay_48
	SELECT sum(further_entries) - (SELECT count(*) + sum(NOT has) FROM r), sum(free_entries) - (SELECT count(*)
		FROM r JOIN b USING (pass_id, layer_id) WHERE b.has AND NOT r.has), sum(active_after - active_before)
		- (SELECT count(*) + sum(NOT has) FROM b) FROM moe_expand(0.07, 99, 0);
	SELECT sum(further_entries) = sum(known_rows) FROM moe_expand(0.07, 7);
	SELECT sum(further_entries) FROM moe_expand(0.07, 6)" "0|0|0
1
0"
# Rows fill up with 48 where it is loaded and they lack it, and say where they would have needed more.
answer "what rows take" "$tmp/changed.db" "SELECT sum(candidate_rows - rated_rows), sum(truncated_rows), sum(abs(retained_score
	- candidate_rows) > 1e-6) FROM moe_oea WHERE k0 = k;
	SELECT sum(retained_score < rated_rows - lost_weight - 1e-2), sum(retained_score > candidate_rows),
		sum(truncated_rows > 0) FROM moe_oea WHERE k0 = 3" "0|0|0
0|0|3"
expect_ok sqlite3 "$tmp/changed.db" "UPDATE layer SET has_correction_bias = 1"
answer "a bias that is not known" "$tmp/changed.db" "SELECT sum(known_rows) FROM moe_expand(1);
	SELECT sum(candidate_rows) FROM moe_oea" "0
0"

# ---- the general form ----
# A bias that the file has, 0.02 on expert 48: it comes nearer to the cut, and the score is without it.
zeros() {
	printf "%0$(($1 * 8))d" 0
}
expect_ok sqlite3 "$tmp/changed.db" "UPDATE layer SET bias_values = x'$(zeros 48)0ad7a33c$(zeros 15)'"
answer "a bias that is known" "$tmp/changed.db" "$replay_48
	SELECT sum(known_rows - rows), sum(further_entries) - (SELECT count(*) + sum(NOT has) FROM r) FROM moe_expand(0.05);
	SELECT sum(candidate_rows - rated_rows) FROM moe_oea;
	SELECT count(*) FROM moe_oea(1, 0, 'oea:order=weight') WHERE k0 = 3" "0|0
0
3"
# Eight groups of eight experts, of which rows keep six: known where a row's own entries are of six.
# Candidates are of groups 7 and 6.
expect_ok sqlite3 "$tmp/changed.db" "UPDATE layer SET has_correction_bias = 0, bias_values = NULL, n_groups = 8, topk_groups = 6"
in_groups="CREATE TEMP TABLE g AS SELECT count(DISTINCT expert / 8) = 6 AS known, max(expert / 8 = 7) AS seven,
	max(expert / 8 = 6) AS six, max(expert = 48) AS has FROM moe_topk WHERE phase = 'decode' GROUP BY pass_id, layer_id, row;"
answer "groups that rows had kept" "$tmp/changed.db" "$in_groups
	SELECT sum(known) > 100, sum(known) - (SELECT sum(known_rows) FROM moe_expand(1)),
		sum(known * seven + known * six * NOT has) - (SELECT sum(further_entries) FROM moe_expand(1)) FROM g;
	SELECT sum(candidate_rows) - 6 * (SELECT sum(known) FROM g), count(swapped_entries), count(tokens_below_k) FROM moe_oea;
	SELECT sum(a.active_after <> b.active_after) FROM moe_oea AS a JOIN moe_oea(1, 0, 'oea:groups=any') AS b
		USING (layer_id, k0)" "1|0|0
0|0|0
0"
answer "groups that do not matter" "$tmp/changed.db" "SELECT sum(candidate_rows - rated_rows), sum(swapped_entries IS NULL) FROM
	moe_oea(1, 0, 'oea:groups=any')" "0|0"
expect_ok sqlite3 "$tmp/changed.db" "UPDATE layer SET n_groups = NULL, topk_groups = NULL"
# Weights are 0.5, 0.375, ...: a share of 0.5 is the first entry alone, one of 0.8 two, one of 0.9 three.
answer "p without scores" "$tmp/changed.db" "SELECT DISTINCT refusal, k0 FROM moe_oea(0, 0, 'oea:p=0.5')" "scores|"
expect_ok sqlite3 "$tmp/changed.db" "UPDATE layer SET scoring = 'softmax'"
answer "p" "$tmp/changed.db" "
	SELECT p.value, count(*), sum(a.active_after <> b.active_after), sum(a.active_before <> b.active_before),
		sum(abs(a.uniform_after - b.uniform_after) > 1e-6), sum(abs(a.lost_weight - b.lost_weight) > 1e-2),
		sum(a.lost_entries <> b.lost_entries), sum(a.swapped_entries <> b.swapped_entries), sum(a.truncated_rows <> b.truncated_rows)
	FROM (SELECT 0.5 AS p, 1 AS n UNION ALL SELECT 0.8, 2 UNION ALL SELECT 0.9, 3) AS t
	CROSS JOIN json_each(json_array(t.p)) AS p
	CROSS JOIN moe_oea(1, 0, printf('oea:p=%g', p.value)) AS a JOIN moe_oea AS b ON b.layer_id = a.layer_id AND b.k0 = min(a.k0, t.n)
	GROUP BY p.value;
	SELECT sum(b.lost_entries <> b.changed_rows * (6 - min(b.k0, 2)) OR b.swapped_entries <> 0) FROM moe_oea(1, 0, 'pruned:p=0.8') AS b" \
	"0.5|18|0|0|0|0|0|0|0
0.8|18|0|0|0|0|0|0|0
0.9|18|0|0|0|0|0|0|0
0"
# kmax = 7: with all places loaded, a row takes one entry more where the batch has seven. kmax = 3 bounds what is
# taken, never the base. maxp = 6: nothing beyond a row's own; 8: as far as the candidates go, of rows without 48.
answer "kmax and maxp" "$tmp/changed.db" "$replay_48
	SELECT sum(a.active_after <> b.active_after OR a.lost_entries <> b.lost_entries), sum(iif(k0 = 6, a.swapped_entries, 0))
		- (SELECT sum(pl.n_rows) FROM pass_layer AS pl JOIN pass USING (pass_id) WHERE phase = 'decode' AND active_experts > 6)
		FROM moe_oea(1, 0, 'oea:kmax=7') AS a JOIN moe_oea AS b USING (layer_id, k0);
	SELECT sum(lost_entries <> changed_rows * iif(k0 = 3, 3, 0)), sum(tokens_below_k - iif(k0 = 3, changed_rows, 0)) FROM
		moe_oea(1, 0, 'oea:kmax=3') WHERE k0 IN (3, 6);
	SELECT sum(a.lost_entries <> b.lost_entries OR a.swapped_entries <> 0 OR a.truncated_rows <> 0 OR a.retained_score
		> b.retained_score) FROM moe_oea(1, 0, 'oea:maxp=6') AS a JOIN moe_oea AS b USING (layer_id, k0);
	SELECT count(swapped_entries), count(tokens_below_k), sum(retained_score IS NULL), max(truncated_rows) <= (SELECT sum(has) FROM r)
		FROM moe_oea(0, 0, 'oea:maxp=8');
	SELECT sum(a.lost_entries <> b.lost_entries) FROM moe_oea(1, 0, 'oea:maxp=1') AS a JOIN moe_oea(1, 0, 'pruned') AS b
		USING (layer_id, k0)" "0|0
0|0
0
0|0|0|1
0"
answer "arguments" "$tmp/domains.db" "SELECT count(*) FROM moe_oea(NULL, NULL, NULL);
	SELECT DISTINCT by_layer, by_batch, rule FROM moe_oea(0, 1, 'oea')" "18
0|1|oea"
for bad in moe_expand "moe_expand(-1)" "moe_expand('x')" "moe_expand(1, 0)" "moe_oea(2)" "moe_oea('x')" "moe_oea(0, -1)" "moe_oea(0, 0, 'oae')" "moe_oea(0, 0, 'oea:kmax=0')" "moe_oea(0, 0, 'pruned:maxp=2')" "moe_oea(0, 0, 'budget:')" \
	"moe_oea(0, 0, 'oea', NULL, '[[0]]')" "moe_oea(0, 0, 'oea', 7)" "moe_oea(0, 0, 'budget:0')" "moe_oea(0, 0, 'budget:9x')" "moe_oea(0, 0, 'budget:70000')"; do
	expect_status 1 "$runner" "$tmp/domains.db" "SELECT * FROM $bad"
	expect_match "$tmp/err" 'moe_(oea|expand): (margin|kmax|by_layer|by_batch|rule|n_ranks|layer 0)'
done
expect_status 1 "$runner" --interrupt "$tmp/mixed.db" 'SELECT count(*) FROM moe_oea(0)'
