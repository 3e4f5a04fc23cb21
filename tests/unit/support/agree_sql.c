/* SPDX-License-Identifier: MIT */
/*
 * What contradicts itself within the tables of a trace: a statement a kind, which counts and must
 * return 0. None of them looks into a blob.
 */
#include "tests/unit/support/agree.h"

#include <check.h>

#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

struct contradiction {
	const char *what;
	const char *sql; /* counts them */
};

static const struct contradiction contradictions[] = {
	{"a pass whose slices do not follow each other",
	 "SELECT count(*) FROM (SELECT pass_id, row_offset, coalesce(sum(n_rows) OVER (PARTITION BY"
	 " pass_id ORDER BY slice ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before"
	 " FROM pass_request) WHERE row_offset <> before"},
	{"a pass whose slices do not add up to its rows",
	 "SELECT count(*) FROM pass AS p WHERE n_rows <> (SELECT coalesce(sum(n_rows), 0) FROM"
	 " pass_request AS s WHERE s.pass_id = p.pass_id)"},
	{"a slice of phase mixed", "SELECT count(*) FROM pass_request WHERE phase = 'mixed'"},
	{"a slice that is half of no request",
	 "SELECT count(*) FROM pass_request WHERE (request_id IS NULL) <> (attempt IS NULL)"
	 " OR (request_id IS NULL) <> (first_position IS NULL)"},
	{"a slice of a request of another recording",
	 "SELECT count(*) FROM pass_request AS s JOIN pass AS p USING (pass_id)"
	 " JOIN request AS r USING (request_id) WHERE r.recording_id <> p.recording_id"},
	{"a positions blob of another size than its slice",
	 "SELECT count(*) FROM pass_request WHERE length(positions) <> 4 * n_rows"},
	{"a pass that has not a row for each layer of its model",
	 "SELECT count(*) FROM pass AS p WHERE n_rows > 0 AND (SELECT count(*) FROM pass_layer AS "
	 "l WHERE"
	 " l.pass_id = p.pass_id) <> (SELECT count(*) FROM layer AS l WHERE l.model_id ="
	 " p.model_id)"},
	{"a layer of another model than its pass",
	 "SELECT count(*) FROM pass_layer AS pl JOIN pass AS p USING (pass_id)"
	 " JOIN layer AS l USING (layer_id) WHERE l.model_id <> p.model_id"},
	{"a layer state that is none, or does not fit its columns",
	 "SELECT count(*) FROM pass_layer WHERE state NOT IN (0, 1, 2, 3)"
	 " OR (state IN (0, 3)) <> (active_experts IS NOT NULL)"
	 " OR (state IN (0, 3)) <> (max_load IS NOT NULL)"
	 " OR (state IN (1, 2) AND selected_ns IS NOT NULL)"
	 " OR (state = 0 AND n_rows IS NULL) OR (state IN (1, 2) AND n_rows IS NOT NULL)"
	 " OR (tied_rows IS NOT NULL) <> (selection_order IS 1)"
	 " OR (state = 0) <> (selection_order IS NOT NULL)"
	 " OR (topk_id IS NULL) <> (topk_row IS NULL)"
	 " OR (state <> 0 AND topk_id IS NOT NULL)"
	 " OR (state = 0 AND n_rows > 0 AND topk_id IS NULL)"},
	{"a pass verdict that its layers contradict",
	 "SELECT count(*) FROM pass AS p WHERE verdict NOT IN ('complete', 'partial')"
	 " OR (verdict = 'complete') <> (reasons IS NULL) OR (verdict = 'complete' AND"
	 " (n_dropped <> 0 OR EXISTS (SELECT 1 FROM pass_layer AS l WHERE l.pass_id = p.pass_id"
	 " AND (l.state = 2 OR (l.state = 1 AND p.n_rows > 0)))))"},
	{"a dropped layer whose pass does not say lost",
	 "SELECT count(*) FROM pass_layer AS l JOIN pass AS p USING (pass_id)"
	 " WHERE l.state = 2 AND instr(coalesce(p.reasons, ''), 'lost') = 0"},
	{"an unwritten layer whose pass does not say unwritten",
	 "SELECT count(*) FROM pass_layer AS l JOIN pass AS p USING (pass_id)"
	 " WHERE l.state = 1 AND p.n_rows > 0 AND instr(coalesce(p.reasons, ''), 'unwritten') = 0"
	 " AND instr(coalesce(p.reasons, ''), 'unended') = 0"},
	{"a request verdict without its reasons, or with needless ones",
	 "SELECT count(*) FROM request WHERE verdict NOT IN ('complete', 'partial', 'unfinished')"
	 " OR (verdict = 'partial') <> (reasons IS NOT NULL)"
	 " OR (verdict <> 'unfinished' AND (end_ns IS NULL OR end_state IS NULL"
	 " OR n_positions IS NULL)) OR (verdict = 'unfinished' AND end_state IS NOT NULL)"},
	{"a request with two rows in a recording",
	 "SELECT count(*) FROM (SELECT 1 FROM request GROUP BY recording_id, handle"
	 " HAVING count(*) > 1)"},
	{"a run whose blobs do not have the size that it says",
	 "SELECT count(*) FROM topk WHERE id_bytes NOT IN (1, 2)"
	 " OR length(topk_ids) <> n_rows * k * id_bytes"
	 " OR weight_format NOT IN ('none', 'fp16', 'bf16')"
	 " OR (weight_format = 'none') <> (topk_weights IS NULL)"
	 " OR length(topk_weights) <> n_rows * k * 2 OR length(row_map) <> n_rows * 4"
	 " OR length(n_valid) <> n_rows OR (base_ids IS NULL) <> (base_k IS NULL)"
	 " OR length(base_ids) <> n_rows * base_k * id_bytes"
	 " OR (base_ids IS NOT NULL AND rule_id IS NULL)"},
	{"a run with fewer rows than its layers take from it",
	 "SELECT count(*) FROM topk AS t WHERE n_rows < (SELECT coalesce(sum(n_rows), 0) FROM"
	 " used_run AS l WHERE l.topk_id = t.topk_id)"},
	{"a layer that begins before the one before it ends",
	 "SELECT count(*) FROM (SELECT topk_row, coalesce(lag(topk_row + n_rows) OVER (PARTITION BY"
	 " topk_id ORDER BY topk_row), 0) AS before FROM used_run WHERE n_rows > 0)"
	 " WHERE topk_row < before"},
	/* Rows of a pass that has not ended yet are in a run before they are in pass_layer. */
	{"a run with rows of no layer in a file whose recordings have all ended",
	 "SELECT count(*) FROM topk AS t WHERE n_rows <> (SELECT coalesce(sum(n_rows), 0) FROM"
	 " used_run AS l WHERE l.topk_id = t.topk_id) AND NOT EXISTS (SELECT 1 FROM recording"
	 " WHERE end_reason IS NULL)"},
	{"times that run backwards",
	 "SELECT count(*) FROM pass AS p JOIN recording AS r USING (recording_id)"
	 " WHERE p.begin_ns < r.start_ns OR p.end_ns < p.begin_ns"},
	{"a selection outside its pass",
	 "SELECT count(*) FROM pass_layer AS l JOIN pass AS p USING (pass_id)"
	 " WHERE l.selected_ns < p.begin_ns OR l.selected_ns > p.end_ns"},
	{"a wrong number of recorded passes or rows",
	 "SELECT count(*) FROM recording AS r WHERE"
	 " mode <> 'stat' AND ((SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id "
	 "AND"
	 " name = 'recorded_passes') IS NOT (SELECT count(*) FROM pass AS p WHERE"
	 " p.recording_id = r.recording_id)"
	 " OR (SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id AND"
	 " name = 'recorded_rows') IS NOT (SELECT coalesce(sum(n_rows), 0) FROM pass AS p WHERE"
	 " p.recording_id = r.recording_id))"},
	{"a wrong number of recorded layers",
	 "SELECT count(*) FROM recording AS r WHERE mode <> 'stat' AND"
	 " (SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id AND"
	 " name = 'recorded_layers') IS NOT (SELECT count(*) FROM pass_layer AS l JOIN pass AS p"
	 " USING (pass_id) WHERE p.recording_id = r.recording_id AND l.state IN (0, 3))"},
	{"counts of a layer that is not counted, or none of one that is",
	 "SELECT (SELECT count(*) FROM pass_layer WHERE state = 3) <> (SELECT count(*) FROM"
	 " layer_load JOIN pass_layer USING (pass_id, layer_id) WHERE state = 3)"
	 " OR (SELECT count(*) FROM layer_load) <> (SELECT count(*) FROM pass_layer"
	 " WHERE state = 3)"},
	{"tokens of expert load that are not those that were added",
	 "SELECT count(*) FROM stats AS s WHERE name = 'load_assignments' AND value <>"
	 " (SELECT coalesce(sum(prefill_tokens + decode_tokens + verify_tokens + other_tokens), 0)"
	 " FROM expert_load_window AS w WHERE w.recording_id = s.recording_id)"},
	{"losses that no gap tells of, or the reverse",
	 "SELECT count(*) FROM recording AS r WHERE"
	 " coalesce((SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id AND"
	 " name = 'dropped_passes'), -1) NOT BETWEEN (SELECT coalesce(sum(n_lost), 0) FROM gap AS g"
	 " WHERE g.recording_id = r.recording_id AND stream = 'pass' AND reason <> 'stop_timeout')"
	 " AND (SELECT coalesce(sum(n_lost), 0) FROM gap AS g"
	 " WHERE g.recording_id = r.recording_id AND stream = 'pass')"
	 " OR (SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id AND"
	 " name = 'dropped_layers') IS NOT (SELECT coalesce(sum(n_lost), 0) FROM gap AS g WHERE"
	 " g.recording_id = r.recording_id AND stream = 'layer')"},
	{"windows that overlap, or have no length",
	 "SELECT count(*) FROM (SELECT start_ns, length_ns, lead(start_ns) OVER (PARTITION BY"
	 " recording_id ORDER BY start_ns) AS next FROM (SELECT DISTINCT recording_id, start_ns,"
	 " length_ns FROM expert_load_window)) WHERE length_ns <= 0 OR start_ns + length_ns > "
	 "next"},
	{"a window row without a token",
	 "SELECT count(*) FROM expert_load_window WHERE prefill_tokens + decode_tokens +"
	 " verify_tokens + other_tokens + padding_tokens <= 0"},
};

/* Layers' places in runs as a table with the order that the statements need. */
static const char used_run_sql[] =
	"CREATE TEMP TABLE used_run AS SELECT topk_id, topk_row, n_rows FROM pass_layer"
	" WHERE topk_id IS NOT NULL;"
	"CREATE INDEX temp.used_run_topk ON used_run(topk_id, topk_row);";

void agree_check_statements(sqlite3 *db)
{
	size_t i;

	ck_assert_int_eq(sqlite3_exec(db, used_run_sql, NULL, NULL, NULL), SQLITE_OK);
	for (i = 0; i < sizeof(contradictions) / sizeof(contradictions[0]); i++) {
		const int64_t n = db_int(db, "%s", contradictions[i].sql);

		REQUIRE(n == 0, "%lld times: %s", (long long)n, contradictions[i].what);
	}
	ck_assert_int_eq(sqlite3_exec(db, "DROP TABLE temp.used_run", NULL, NULL, NULL), SQLITE_OK);
}
