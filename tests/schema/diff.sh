# SPDX-License-Identifier: MIT
#
# moe_diff, moe_diff_request, moe_attempts, moe_similarity and moe_outliers: against joins over what the
# rows of synthetic traces mean, over two recordings of one file, and what they refuse.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command sqlite3

make_pairs=$MOETRACE_BUILDDIR/tests/schema/make_pairs
runner=$MOETRACE_BUILDDIR/tests/schema/sql_runner
cd "$tmp" || exit 99

# answer WHAT SQL WANT: of a.db, with b.db attached.
answer() {
	expect_ok "$runner" a.db "ATTACH 'b.db' AS b; $2"
	expect_eq "$1" "$(cat "$tmp/out")" "$3"
}

expect_ok "$make_pairs" a.db 0 2
expect_ok "$make_pairs" b.db 1 2
answer "the definition" "$(cat "$MOETRACE_SRCDIR/tests/schema/diff.sql")" "by layer and position|1|0|0
positions are what bits say|0
layers are their positions|0
the first row is all layers|1
intervals|3|0|0|0
load shifts|3|0|0
by request|1|0|0
requests that nothing is joined to|1|1|1
what there is to find|1
piece by piece|0|0
attempts|1|1|0|0
attempts of all layers|1"

expect_ok "$runner" a.db "$(cat "$MOETRACE_SRCDIR/tests/schema/similar.sql")"
expect_eq "similarity" "$(cat "$tmp/out")" "similarity|1|0|0
its mean|1
either way|0
distances|1|0|0|0|0
the floor|1
scores|1|0"

# The same from the other side: A and B change places, and nothing else does.
answer "the other way around" "SELECT sum(rows), sum(choices), sum(differing_choices), sum(moved_choices),
	round(sum(weight_distance), 6) FROM moe_diff(1, 1, 'b')" "$(
	"$runner" b.db "ATTACH 'a.db' AS b; SELECT sum(rows), sum(choices), sum(differing_choices),
		sum(moved_choices), round(sum(weight_distance), 6) FROM moe_diff(1, 1, 'b')"
)"
# A recording is the same as itself.
answer "itself" "SELECT count(*) > 3, sum(rows) > 0, sum(differing_choices), sum(reordered_rows), sum(weight_distance) < 1e-9,
	max(load_shift), min(p_value) FROM moe_diff(1, 1)" "1|1|0|0|1|0.0|1.0"
answer "requests by their tokens alone" "SELECT sum(joined_by = 'tokens') > 10, sum(joined_by = 'id')
	FROM moe_diff_request(NULL, NULL, 'b', 'tokens')" "1|0"
answer "requests by their ids alone" "SELECT sum(joined_by = 'tokens'), sum(joined_by = 'id') > 20
	FROM moe_diff_request(NULL, NULL, 'b', 'id')" "0|1"

# Two recordings of one file: the second one is B's.
cp a.db both.db
expect_ok sqlite3 -batch -bail both.db "ATTACH 'b.db' AS b;
	INSERT INTO recording SELECT 2, process_id, start_ns, end_ns, end_reason, mode, routing_source, sampling FROM b.recording;
	INSERT INTO request SELECT request_id + 1000, 2, handle, external_id, prompt_positions, n_positions, n_attempts,
		n_pauses, paused_ns, begin_ns, end_ns, end_state, verdict, reasons FROM b.request;
	INSERT INTO request_token SELECT request_id + 1000, position, token_id FROM b.request_token;
	INSERT INTO request_reuse SELECT request_id + 1000, attempt, first_position, n_positions, source_request_id + 1000,
		source_attempt FROM b.request_reuse;
	INSERT INTO pass SELECT pass_id + 1000, 2, model_id, phase, begin_ns, end_ns, n_rows, padding_rows, runtime_pass,
		parent_pass_id, microbatch, verdict, reasons, n_dropped, device_id FROM b.pass;
	INSERT INTO pass_request SELECT pass_id + 1000, slice, request_id + 1000, attempt, first_position, positions,
		row_offset, n_rows, phase, accepted FROM b.pass_request;
	CREATE TEMP TABLE t AS SELECT * FROM b.topk; UPDATE t SET topk_id = topk_id + 1000; INSERT INTO topk SELECT * FROM t;
	CREATE TEMP TABLE p AS SELECT * FROM b.pass_layer;
	UPDATE p SET topk_id = topk_id + 1000, pass_id = pass_id + 1000; INSERT INTO pass_layer SELECT * FROM p;"
expect_ok "$runner" a.db "ATTACH 'b.db' AS b; SELECT * FROM moe_diff(1, 1, 'b')"
cp "$tmp/out" two_files
expect_ok "$runner" both.db "SELECT * FROM moe_diff(1, 2)"
expect_same "$tmp/out" two_files

# A layer whose load is elsewhere, and layers where it is not.
cp a.db shifted.db
expect_ok sqlite3 -batch -bail shifted.db "UPDATE topk SET topk_ids = zeroblob(length(topk_ids)) WHERE k = 2;"
expect_ok "$runner" a.db "ATTACH 'shifted.db' AS b; SELECT layer, load_shift > 0.3, p_value, p_adjusted = p_value
	FROM moe_diff(1, 1, 'b') WHERE position_from IS NULL AND layer IS NOT NULL"
expect_eq "a shift" "$(cat "$tmp/out")" "1|0|1.0|1
2|0|1.0|1
4|1|0.002|1"

# What cannot be compared is refused, with the reason.
refuse() {
	expect_status 1 "$runner" a.db "ATTACH '$1' AS b; $3"
	grep -Eq "$2" "$tmp/err" || {
		cat "$tmp/err" >&2
		fail "the error does not match '$2'"
	}
}
change() {
	cp b.db "$1"
	expect_ok sqlite3 -batch -bail "$1" "$2"
}
change experts.db "UPDATE layer SET n_experts = 32 WHERE layer_id = 1"
refuse experts.db 'layer 1 has 16 experts in A and 32 in B' "SELECT * FROM moe_diff(1, 1, 'b')"
change layers.db "UPDATE layer SET layer = 3 WHERE layer = 2"
refuse layers.db 'layer 2 has experts in A alone' "SELECT * FROM moe_diff(1, 1, 'b')"
change fewer.db "DELETE FROM layer WHERE layer = 4; DELETE FROM pass_layer WHERE layer_id = 3"
refuse fewer.db 'layer 4 has experts in A alone' "SELECT * FROM moe_diff(1, 1, 'b')"
change mode.db "UPDATE recording SET mode = 'per_pass'"
refuse mode.db 'B has no recording of mode per_token' "SELECT * FROM moe_diff(1, NULL, 'b')"
refuse mode.db 'recording 1 of B is of mode per_pass' "SELECT * FROM moe_diff(1, 1, 'b')"
change models.db "UPDATE model SET name = 'x'; INSERT INTO model VALUES (2, 'y', 'target', NULL, 1, NULL);
	UPDATE pass SET model_id = 2 WHERE pass_id = 1"
refuse models.db 'no model in common' "SELECT * FROM moe_diff(1, 1, 'b')"
refuse b.db 'A has no recording 7' "SELECT * FROM moe_diff(7, 1, 'b')"
refuse b.db "no database is attached as 'c'" "SELECT * FROM moe_diff(1, 1, 'c')"
refuse b.db "join_by: give 'id' or 'tokens'" "SELECT * FROM moe_diff(1, 1, 'b', 'name')"
refuse both.db 'B has several recordings' "SELECT * FROM moe_diff(1, NULL, 'b')"
change damaged.db "UPDATE topk SET topk_ids = x'00' WHERE topk_id = 3"
refuse damaged.db 'moe_diff: topk 3: ' "SELECT * FROM moe_diff(1, 1, 'b')"

expect_status 1 "$runner" a.db "SELECT * FROM moe_similarity(1, 99)"
expect_match "$tmp/err" 'moe_similarity: there is no request 99'
expect_status 1 "$runner" a.db "SELECT * FROM moe_similarity(1)"
expect_match "$tmp/err" 'moe_similarity: give two requests'
expect_status 1 "$runner" mode.db "SELECT * FROM moe_outliers"
expect_match "$tmp/err" 'moe_outliers: A has no recording of mode per_token'
# One request has no others to differ from.
cp a.db alone.db
expect_ok sqlite3 -batch -bail alone.db "DELETE FROM request WHERE request_id <> 3"
expect_ok "$runner" alone.db "SELECT count(*), max(distance), max(floor), max(score) FROM moe_outliers"
expect_eq "a request alone" "$(cat "$tmp/out")" "1|||"

# Whatever is wrong with a file, they answer.
expect_ok "$MOETRACE_BUILDDIR/tests/schema/damage_sql" a.db 40 3 requests

# Nothing in common: rows, and nothing is divided by zero.
change nothing.db "UPDATE request SET external_id = NULL; DELETE FROM request_token"
expect_ok "$runner" a.db "ATTACH 'nothing.db' AS b; SELECT sum(rows), max(share_high), max(p_value) FROM moe_diff(1, 1, 'b');
	SELECT count(*), sum(joined_by IS NULL) FROM moe_diff_request(1, 1, 'b');"
expect_eq "nothing in common" "$(cat "$tmp/out")" "0||
$(sqlite3 a.db "ATTACH 'b.db' AS b; SELECT (SELECT count(*) FROM main.request) + (SELECT count(*) FROM b.request) AS n,
	(SELECT count(*) FROM main.request) + (SELECT count(*) FROM b.request)")"
