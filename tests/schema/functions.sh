# SPDX-License-Identifier: MIT
#
# moe_topk and moe_load, linked in as the command has them: what they return, under conditions,
# in joins, interrupted, and on damaged files.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command sqlite3

make_trace=$MOETRACE_BUILDDIR/tests/schema/make_trace
runner=$MOETRACE_BUILDDIR/tests/schema/sql_runner
damage=$MOETRACE_BUILDDIR/tests/schema/damage_sql

# answer WHAT FILE SQL WANT
answer() {
	expect_ok "$runner" "$2" "$3"
	expect_eq "$1 of ${2##*/}" "$(cat "$tmp/out")" "$4"
}

for scenario in mixed halves slices domains; do
	expect_ok "$make_trace" $scenario "$tmp/$scenario.db"
	answer "moe_topk" "$tmp/$scenario.db" "
		CREATE TEMP TABLE got AS SELECT * FROM moe_topk;
		SELECT count(*) > 0, (SELECT count(*) FROM got) - count(*) FROM expected;
		SELECT count(*) FROM (SELECT * FROM expected EXCEPT SELECT * FROM got);
		SELECT count(*) FROM (SELECT * FROM got EXCEPT SELECT * FROM expected);" "1|0
0
0"
	answer "moe_load" "$tmp/$scenario.db" "
		CREATE TEMP TABLE want AS SELECT recording_id, model_id, layer_id, layer, expert,
			iif(request_id IS NULL, 'dummy', phase) AS phase, count(*) AS tokens
			FROM expected GROUP BY 1, 2, 3, 4, 5, 6;
		CREATE TEMP TABLE got AS SELECT * FROM moe_load;
		SELECT count(*) > 0, (SELECT count(*) FROM got) - count(*) FROM want;
		SELECT count(*) FROM (SELECT * FROM want EXCEPT SELECT * FROM got);
		SELECT count(*) FROM (
			SELECT recording_id, layer_id, expert, sum(tokens) FROM got GROUP BY 1, 2, 3
			EXCEPT SELECT recording_id, layer_id, expert, tokens FROM expert_load);" "1|0
0
0"
done

# moe_topk says what the view says.
answer "moe_topk against routed_expert" "$tmp/mixed.db" "
	SELECT count(*) FROM (SELECT * FROM routed_expert EXCEPT SELECT * FROM moe_topk);
	SELECT count(*) FROM (SELECT * FROM moe_topk WHERE request_id IS NOT NULL
		EXCEPT SELECT * FROM routed_expert);" "0
0"

# Every condition that is pushed down, alone and with others, against the same over a table.
expect_ok sqlite3 "$tmp/mixed.db" "CREATE TABLE plain (recording_id INTEGER, model_id INTEGER,
	request_id INTEGER, attempt INTEGER, position INTEGER, pass_id INTEGER, row INTEGER, phase TEXT,
	layer_id INTEGER, layer INTEGER, state TEXT, topk_rank INTEGER, expert INTEGER, weight REAL);
	INSERT INTO plain SELECT * FROM expected"
for condition in 'request_id = 3' 'pass_id = 30' 'layer_id = 2' 'layer = 6' 'attempt = 1' \
	'position = 17' 'recording_id = 2' 'model_id = 2' 'request_id = 3 AND layer = 5' \
	'request_id = 3 AND attempt = 0 AND position > 10' 'pass_id = 30 AND layer_id = 4' \
	"request_id = '3'" 'request_id = 3.0' "request_id = 'x'" 'request_id = NULL' 'position = 17.5' \
	"position = '17'" 'layer = 5 AND layer = 6' 'request_id = 3 AND request_id = 4' \
	'request_id IN (1, 2, 12)' 'request_id IS NULL' 'pass_id BETWEEN 5 AND 9' \
	"state = 'rejected'" 'request_id = 1 OR layer = 5' 'position IN (3, 4) AND layer_id = 1'; do
	answer "moe_topk WHERE $condition" "$tmp/mixed.db" "
		SELECT (SELECT count(*) FROM moe_topk WHERE $condition)
			- (SELECT count(*) FROM plain WHERE $condition),
			(SELECT coalesce(sum(expert * (position % 1000)), 0) FROM moe_topk WHERE $condition)
			- (SELECT coalesce(sum(expert * (position % 1000)), 0) FROM plain WHERE $condition);" "0|0"
done
answer "the argument" "$tmp/mixed.db" "
	SELECT count(*) - (SELECT count(*) FROM plain WHERE request_id = 3) FROM moe_topk(3);
	SELECT count(*) FROM moe_topk(NULL);
	SELECT count(*) - (SELECT count(*) FROM plain WHERE request_id = 3 AND layer = 5)
		FROM moe_topk(3) WHERE layer = 5 AND request_id = 3;
	SELECT count(*) FROM moe_topk(3) WHERE request_id = 4;" "0
0
0
0"

# Arguments and conditions of moe_load; NULL does not restrict.
answer "moe_load's arguments" "$tmp/mixed.db" "
	SELECT sum(tokens) - (SELECT count(*) FROM plain JOIN pass USING (pass_id)
		WHERE begin_ns >= 90000000 AND begin_ns < 300000000) FROM moe_load(90000000, 300000000);
	SELECT sum(tokens) - (SELECT count(*) FROM plain WHERE request_id = 3) FROM moe_load(NULL, NULL, 3);
	SELECT sum(tokens) - (SELECT count(*) FROM plain WHERE request_id = 3) FROM moe_load WHERE request_id = 3;
	SELECT sum(tokens) - (SELECT count(*) FROM plain) FROM moe_load(NULL, NULL, NULL);
	SELECT sum(tokens) - (SELECT count(*) FROM plain WHERE layer = 5 AND phase = 'decode'
		AND request_id IS NOT NULL AND recording_id = 1)
		FROM moe_load WHERE layer = 5 AND phase = 'decode' AND recording_id = 1;
	SELECT count(*) FROM moe_load(300000000, 300000000);
	SELECT sum(tokens) - (SELECT count(*) FROM plain WHERE request_id IN (3, 4)) FROM moe_load
		WHERE request_id = 3 OR request_id = 4;
	SELECT sum(tokens) - (SELECT count(*) FROM plain WHERE layer = 5 OR recording_id = 1) FROM moe_load
		WHERE layer = 5 OR recording_id = 1;
	SELECT DISTINCT from_ns, until_ns, request_id FROM moe_load(5, 900000000, 3);" "0
0
0
0
0
0
0
0
5|900000000|3"

# In joins, also as the inner side, and in several cursors at once.
answer "joins" "$tmp/mixed.db" "
	SELECT count(*) - (SELECT count(*) FROM plain JOIN request_attribute USING (request_id)
		WHERE value = 'c') FROM request_attribute AS a JOIN moe_topk AS t
		ON t.request_id = a.request_id WHERE a.value = 'c';
	SELECT count(*) - (SELECT count(*) FROM plain WHERE request_id IS NOT NULL)
		FROM request AS r CROSS JOIN moe_topk(r.request_id);
	SELECT count(*) - (SELECT count(*) FROM plain AS a JOIN plain AS b USING (pass_id, layer_id, row)
		WHERE a.request_id = 3 AND a.expert < b.expert)
		FROM moe_topk(3) AS a JOIN moe_topk AS b ON b.pass_id = a.pass_id
		AND b.layer_id = a.layer_id AND b.row = a.row AND a.expert < b.expert;
	SELECT sum(l.tokens) - (SELECT count(*) FROM plain WHERE request_id IS NOT NULL)
		FROM request AS r JOIN moe_load(NULL, NULL, r.request_id) AS l;" "0
0
0
0"

expect_status 1 "$runner" --interrupt "$tmp/mixed.db" 'SELECT count(*), sum(expert) FROM moe_topk'
expect_match "$tmp/err" 'interrupted'
expect_status 1 "$runner" --interrupt "$tmp/mixed.db" 'SELECT sum(tokens) FROM moe_load'
expect_match "$tmp/err" 'interrupted'

# damaged SQL REGEX [FUNCTIONS]: after the damage the functions refuse, and say what and where.
damaged() {
	cp "$tmp/domains.db" "$tmp/damaged.db"
	expect_ok sqlite3 "$tmp/damaged.db" "$1"
	for function in ${3:-moe_topk moe_load}; do
		expect_status 1 "$runner" "$tmp/damaged.db" "SELECT count(*) FROM $function"
		expect_match "$tmp/err" "^$function: $2"
	done
}

damaged "UPDATE topk SET topk_ids = substr(topk_ids, 2) WHERE topk_id = 2" \
	'topk 2: topk_ids is no blob of [0-9]+ bytes'
damaged "UPDATE topk SET topk_weights = NULL WHERE topk_id = 2" 'topk 2: topk_weights is no blob'
damaged "UPDATE topk SET n_rows = n_rows + 1 WHERE topk_id = 1" 'topk 1: topk_ids is no blob'
damaged "UPDATE topk SET k = 0 WHERE topk_id = 1" 'topk 1: n_rows, k or id_bytes'
damaged "UPDATE topk SET id_bytes = 3" 'topk 1: n_rows, k or id_bytes'
damaged "UPDATE topk SET weight_format = 'fp8'" 'topk 1: weight_format'
damaged "UPDATE topk SET n_valid = zeroblob(3)" 'topk 1: n_valid is no blob'
damaged "UPDATE topk SET row_map = x'00'" 'topk 1: row_map is no blob'
damaged "UPDATE topk SET row_map = randomblob(4 * n_rows)" 'topk 1: row_map names row'
damaged "UPDATE topk SET n_valid = substr(CAST(hex(zeroblob(n_rows)) AS BLOB), 1, n_rows)" \
	'topk 1: n_valid of row 0 is 48, more than k = 6'
damaged "DELETE FROM topk WHERE topk_id = 2" \
	'pass_layer .pass [0-9]+, layer_id [0-9]+.: topk 2 does not exist'
damaged "UPDATE pass_layer SET topk_row = 1000000 WHERE pass_id = 7 AND layer_id = 2" \
	'pass_layer .pass 7, layer_id 2.: rows 1000000 to [0-9]+ lie outside'
damaged "UPDATE pass_layer SET topk_row = -1 WHERE pass_id = 7 AND layer_id = 2" 'pass_layer .pass 7, layer_id 2.'
damaged "UPDATE pass_layer SET topk_id = NULL WHERE pass_id = 7 AND layer_id = 2" 'pass_layer .pass 7, layer_id 2.'
damaged "UPDATE pass_layer SET n_rows = NULL WHERE pass_id = 7 AND layer_id = 2" 'pass_layer .pass 7, layer_id 2.'
# Slices that all count alike are one to moe_load, so that it sees only where the last one ends.
damaged "UPDATE pass_request SET n_rows = 9 WHERE pass_id = 7 AND slice = 3" \
	'pass_request .pass 7, slice [0-9]+.: row_offset or n_rows' moe_topk
damaged "UPDATE pass_request SET n_rows = 9 WHERE pass_id = 7 AND slice = 15" \
	'pass_request .pass 7, slice [0-9]+.: row_offset or n_rows'
damaged "DELETE FROM pass_request WHERE pass_id = 7" 'pass 7: its slices in pass_request hold 0 of 16 rows'
damaged "UPDATE pass_request SET phase = 'sleep' WHERE pass_id = 7" "pass_request .pass 7.: 'sleep' is no known phase"
damaged "DELETE FROM layer WHERE layer_id = 3" 'layer 3: no such row'
damaged "DROP TABLE pass_layer" 'no such table'
damaged "DROP VIEW routed_expert; DROP VIEW token_topk; ALTER TABLE topk RENAME TO other;
	CREATE VIEW topk AS SELECT 1 AS topk_id, 1 AS n_rows, 1 AS k, 1 AS id_bytes, 'none' AS weight_format,
	x'00' AS topk_ids, NULL AS topk_weights, NULL AS row_map, NULL AS n_valid, NULL AS margins, NULL AS row_flags
	FROM moe_topk" '.*moe_topk'

# Damage at random; a sanitizer sees reads outside of blobs.
expect_ok "$damage" "$tmp/mixed.db" 60
if [ "${MOETRACE_TEST_TIER:-}" = long ]; then
	for seed in 1 2 3 4; do
		expect_ok "$damage" "$tmp/mixed.db" 5000 $seed
	done
fi
