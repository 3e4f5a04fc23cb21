/* SPDX-License-Identifier: MIT */
/*
 * Requests compared with each other: two of them by moe_similarity(), each with all others by
 * moe_outliers(), and the attempts of a retracted one by moe_attempts().
 */
#include "cli/cmd_requests.h"

#include <stdlib.h>
#include <string.h>

#include "cli/explain.h"
#include "cli/notes.h"
#include "schema/functions/questions.h"

/* Recordings that the functions can be asked about. ?1: recording or NULL. */
#define SQL_RECORDINGS                                                                           \
	"(SELECT * FROM recording AS k WHERE (?1 IS NULL OR recording_id = ?1) AND mode = "      \
	"'per_token' AND EXISTS (SELECT 1 FROM pass AS p JOIN model AS m USING (model_id) WHERE " \
	"p.recording_id = k.recording_id AND m.kind = 'target')) AS r"

#define SQL_OUTLIERS                                                                           \
	"SELECT r.recording_id, o.model_id, o.request_id, q.external_id, o.rows, o.distance, " \
	"o.floor, o.excess, o.score FROM " SQL_RECORDINGS " CROSS JOIN "                      \
	"moe_outliers(r.recording_id) AS o JOIN request AS q ON q.request_id = o.request_id "  \
	"ORDER BY o.score IS NULL, o.score DESC, o.excess DESC, o.request_id, o.model_id"

/* Recordings in which there is nothing to compare a request with. */
#define SQL_ALONE                                                                                \
	"SELECT r.recording_id, 'one request alone was computed: there are no others to compare " \
	"it with' FROM " SQL_RECORDINGS " WHERE 1 = (SELECT count(*) FROM (SELECT DISTINCT "     \
	"pr.request_id FROM pass AS p JOIN pass_request AS pr USING (pass_id) WHERE "            \
	"p.recording_id = r.recording_id AND pr.request_id IS NOT NULL LIMIT 2))"

#define SQL_ATTEMPTS                                                                              \
	"SELECT r.recording_id, t.model_id, t.request_id, q.external_id, t.attempt, "            \
	"t.last_attempt, t.layer, t.rows, 1.0 - 1.0 * t.differing_rows / nullif(t.rows, 0) AS "  \
	"same_rows, 1.0 - 1.0 * t.differing_choices / nullif(t.choices, 0) AS same_choices, "    \
	"1.0 * t.reordered_rows / nullif(t.rows, 0) AS reordered_rows FROM " SQL_RECORDINGS      \
	" CROSS JOIN moe_attempts(r.recording_id) AS t JOIN request AS q ON q.request_id = "     \
	"t.request_id ORDER BY r.recording_id, t.model_id, t.request_id, t.attempt, t.layer IS " \
	"NULL, t.layer"

int mt_requests_similar_print(const struct mt_trace *trace, const struct requests_args *args,
			      int64_t request_a, int64_t request_b)
{
	struct mt_question_part part = mt_question_section("similarity", "");
	char *sql = strndup(part.sql, part.n_bytes);
	sqlite3_stmt *stmt = sql ? mt_trace_prepare(trace, sql) : NULL;

	if (!sql)
		mt_error("%s: out of memory", trace->path);
	free(sql);
	if (stmt) {
		sqlite3_bind_int64(stmt, sqlite3_bind_parameter_index(stmt, ":request"), request_a);
		sqlite3_bind_int64(stmt, sqlite3_bind_parameter_index(stmt, ":other"), request_b);
	}
	return mt_explain_print_only(trace, &args->common, MT_SCALE_NONE, "similarity", NULL,
				     stmt);
}

int mt_requests_judged_print(const struct mt_trace *trace, const struct requests_args *args)
{
	const char *sql = args->has_outliers ? SQL_OUTLIERS : SQL_ATTEMPTS;
	int status = mt_explain_print_only(
		trace, &args->common, MT_SCALE_NONE, args->has_outliers ? "outliers" : "attempts",
		NULL, mt_trace_prepare_recording(trace, sql, args->common.recording_id));

	if (status == MT_EXIT_OK && args->has_outliers)
		status = mt_trace_print_notes(
			trace, mt_trace_prepare_recording(trace, SQL_ALONE,
							  args->common.recording_id));
	return status == MT_EXIT_OK
		       ? mt_notes_print(trace, args->common.recording_id, MT_NOTES_ROWS)
		       : status;
}
