/* SPDX-License-Identifier: MIT */
/*
 * The proofs that are SQL: each statement returns a row (table, key, what is wrong) for every
 * violation, and another one counts what was looked at.
 */
#include "cli/check.h"

#include <stdio.h>
#include <string.h>

struct sql_proof {
	enum check_proof proof;
	const char *count; /* NULL: counted with another statement of the same proof */
	const char *violations;
};

static const struct sql_proof sql_proofs[] = {
	{CHECK_VALUES, "SELECT count(*) FROM model",
	 "SELECT 'model', model_id, 'kind' FROM model "
	 "WHERE kind NOT IN ('target', 'draft', 'mtp')"},
	{CHECK_VALUES, "SELECT count(*) FROM layer",
	 "SELECT 'layer', layer_id, 'kind or sizes' FROM layer "
	 "WHERE kind NOT IN ('routed', 'hash') OR typeof(n_experts) <> 'integer' "
	 "OR typeof(n_zero_experts) <> 'integer' OR typeof(n_shared_slots) <> 'integer' "
	 "OR typeof(top_k) <> 'integer' OR n_experts < 1 OR n_zero_experts < 0 "
	 "OR n_shared_slots < 0 OR n_experts > 65536 OR n_zero_experts > 65536 "
	 "OR n_shared_slots > 65536 OR n_experts + n_zero_experts + n_shared_slots > 65536 "
	 "OR top_k < 1 OR top_k > 255 OR top_k > n_experts + n_zero_experts + n_shared_slots"},
	{CHECK_VALUES, "SELECT count(*) FROM recording",
	 "SELECT 'recording', recording_id, 'mode' FROM recording WHERE mode <> 'per_token'"},
	{CHECK_VALUES, "SELECT count(*) FROM request",
	 "SELECT 'request', request_id, 'verdict, end_state or counts' FROM request "
	 "WHERE verdict NOT IN ('complete', 'partial', 'unfinished') "
	 "OR end_state NOT IN ('finished', 'aborted', 'failed') "
	 "OR typeof(n_attempts) <> 'integer' OR n_attempts < 1 "
	 "OR typeof(n_positions) NOT IN ('integer', 'null') OR n_positions < 0"},
	{CHECK_VALUES, "SELECT count(*) FROM pass",
	 "SELECT 'pass', pass_id, 'phase, verdict or counts' FROM pass "
	 "WHERE phase NOT IN ('prefill', 'decode', 'mixed', 'verify', 'draft', 'idle', 'dummy') "
	 "OR verdict NOT IN ('complete', 'partial') OR typeof(n_rows) <> 'integer' OR n_rows < 0 "
	 "OR n_rows > 67108864 OR typeof(padding_rows) <> 'integer' OR padding_rows < 0 "
	 "OR typeof(n_dropped) <> 'integer' OR n_dropped < 0"},
	{CHECK_VALUES, "SELECT count(*) FROM pass_request",
	 "SELECT 'pass_request', pass_id || ',' || slice, 'phase, request or attempt' "
	 "FROM pass_request "
	 "WHERE phase NOT IN ('prefill', 'decode', 'verify', 'draft', 'idle', 'dummy') "
	 "OR (request_id IS NULL) <> (attempt IS NULL) "
	 "OR (request_id IS NULL) <> (first_position IS NULL) "
	 "OR typeof(attempt) NOT IN ('integer', 'null') OR attempt < 0 "
	 "OR typeof(first_position) NOT IN ('integer', 'null') OR first_position < 0 "
	 "OR (attempt IS NOT NULL AND attempt >= (SELECT n_attempts FROM request AS r "
	 "WHERE r.request_id = pass_request.request_id))"},
	{CHECK_VALUES, NULL,
	 "SELECT 'pass_request', pr.pass_id || ',' || pr.slice, "
	 "'its request is of another recording' FROM pass_request AS pr "
	 "JOIN pass AS p USING (pass_id) JOIN request AS r USING (request_id) "
	 "WHERE r.recording_id <> p.recording_id"},
	{CHECK_VALUES, "SELECT count(*) FROM topk",
	 "SELECT 'topk', topk_id, 'weight_format or id_bytes' FROM topk "
	 "WHERE weight_format NOT IN ('none', 'fp16', 'bf16') OR id_bytes NOT IN (1, 2)"},
	{CHECK_VALUES, "SELECT count(*) FROM gap",
	 "SELECT 'gap', gap_id, 'stream, reason or n_lost' FROM gap "
	 "WHERE stream NOT IN ('pass', 'layer') OR n_lost < 1 "
	 "OR reason NOT IN ('no_ring', 'ring_full', 'stop_timeout', 'file_limit')"},
	{CHECK_VALUES, "SELECT count(*) FROM byte",
	 "SELECT 'byte', n, 'is missing or wrong' FROM (WITH RECURSIVE c(n) AS "
	 "(SELECT 0 UNION ALL SELECT n + 1 FROM c WHERE n < 255) SELECT n FROM c) "
	 "WHERE NOT EXISTS (SELECT 1 FROM byte WHERE value = n "
	 "AND typeof(byte) = 'blob' AND hex(byte) = printf('%02X', n))"},

	{CHECK_TIMES, "SELECT count(*) FROM recording",
	 "SELECT 'recording', recording_id, 'end_ns before start_ns' FROM recording "
	 "WHERE end_ns < start_ns"},
	{CHECK_TIMES, "SELECT count(*) FROM request",
	 "SELECT 'request', request_id, 'end_ns before begin_ns' FROM request "
	 "WHERE end_ns < begin_ns"},
	{CHECK_TIMES, "SELECT count(*) FROM pass",
	 "SELECT 'pass', pass_id, 'end_ns before begin_ns' FROM pass WHERE end_ns < begin_ns"},
	{CHECK_TIMES, "SELECT count(*) FROM pass_layer",
	 "SELECT 'pass_layer', pl.pass_id || ',' || pl.layer_id, 'selected_ns outside its pass' "
	 "FROM pass_layer AS pl JOIN pass AS p USING (pass_id) "
	 "WHERE pl.selected_ns < p.begin_ns OR pl.selected_ns > p.end_ns"},
	{CHECK_TIMES, "SELECT count(*) FROM gap",
	 "SELECT 'gap', gap_id, 'end_ns before start_ns' FROM gap WHERE end_ns < start_ns"},

	{CHECK_TOPK_BLOBS, "SELECT count(*) FROM topk",
	 "SELECT 'topk', topk_id, 'n_rows ' || n_rows || ', k ' || k || ', id_bytes ' || id_bytes "
	 "|| ', but topk_ids has ' || coalesce(length(topk_ids), 'no') || ' bytes, topk_weights ' "
	 "|| coalesce(length(topk_weights), 'none') || ' (' || weight_format || '), row_map ' "
	 "|| coalesce(length(row_map), 'none') || ', n_valid ' || coalesce(length(n_valid), "
	 "'none') || ', base_ids ' || coalesce(length(base_ids), 'none') "
	 "FROM topk WHERE typeof(n_rows) <> 'integer' OR typeof(k) <> 'integer' OR n_rows < 0 "
	 "OR k < 1 OR k > 255 OR typeof(topk_ids) <> 'blob' "
	 "OR length(topk_ids) <> n_rows * k * id_bytes "
	 "OR (topk_weights IS NULL) <> (weight_format = 'none') "
	 "OR typeof(topk_weights) NOT IN ('blob', 'null') OR length(topk_weights) <> n_rows * k * "
	 "2 "
	 "OR typeof(row_map) NOT IN ('blob', 'null') OR length(row_map) <> n_rows * 4 "
	 "OR typeof(n_valid) NOT IN ('blob', 'null') OR length(n_valid) <> n_rows "
	 "OR (base_ids IS NULL) <> (base_k IS NULL) OR (base_ids IS NOT NULL AND rule_id IS NULL) "
	 "OR typeof(base_ids) NOT IN ('blob', 'null') "
	 "OR length(base_ids) <> n_rows * base_k * id_bytes"},

	{CHECK_SLICE_BLOBS, "SELECT count(*) FROM pass_request",
	 "SELECT 'pass_request', pass_id || ',' || slice, 'n_rows ' || n_rows || ' in phase ' "
	 "|| phase || ', but positions has ' || coalesce(length(positions), 'no') "
	 "|| ' bytes, accepted ' || coalesce(length(accepted), 'none') "
	 "FROM pass_request WHERE typeof(positions) NOT IN ('blob', 'null') "
	 "OR length(positions) <> n_rows * 4 OR (positions IS NOT NULL AND request_id IS NULL) "
	 "OR typeof(accepted) NOT IN ('blob', 'null') OR length(accepted) <> n_rows "
	 "OR (accepted IS NOT NULL AND phase <> 'verify') "
	 "OR replace(replace(hex(accepted), '00', ''), '01', '') <> ''"},

	{CHECK_RECORDINGS, "SELECT count(*) FROM recording",
	 "SELECT 'recording', recording_id, 'end_ns and end_reason are not both there' "
	 "FROM recording WHERE (end_ns IS NULL) <> (end_reason IS NULL)"},
	{CHECK_RECORDINGS, NULL,
	 "SELECT 'recording', recording_id, 'has no end, but a later recording of its process "
	 "begins' FROM recording AS r WHERE end_ns IS NULL AND EXISTS (SELECT 1 FROM recording "
	 "AS l WHERE l.process_id = r.process_id AND l.recording_id > r.recording_id)"},
	{CHECK_RECORDINGS, NULL,
	 "SELECT 'recording', r.recording_id, 'is closed, but expert_load_window ends before its "
	 "last pass' FROM recording AS r WHERE r.end_ns IS NOT NULL AND (SELECT max(pass_id) "
	 "FROM pass AS p WHERE p.recording_id = r.recording_id) > coalesce((SELECT value FROM "
	 "stats "
	 "AS s WHERE s.recording_id = r.recording_id AND s.name = 'last_pass_id'), 0)"},
};

static void violations_take(struct check *check, enum check_proof proof, sqlite3_stmt *stmt)
{
	const char *table = (const char *)sqlite3_column_text(stmt, 0);
	const char *key = (const char *)sqlite3_column_text(stmt, 1);
	const char *what = (const char *)sqlite3_column_text(stmt, 2);

	check_violation(check, proof, "%s %s: %s", table ? table : "?", key ? key : "NULL",
			what ? what : "a value is NULL");
}

static int sql_proof_run(struct check *check, const struct sql_proof *proof)
{
	sqlite3_stmt *stmt;
	int64_t n = 0;
	int status = MT_EXIT_OK;
	int rc;

	if (proof->count)
		status = mt_trace_int(check->trace, proof->count, &n);
	check->results[proof->proof].n_checked += (uint64_t)n;
	if (status != MT_EXIT_OK)
		return status;
	stmt = mt_trace_prepare(check->trace, proof->violations);
	if (!stmt)
		return MT_EXIT_FAILED;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		violations_take(check, proof->proof, stmt);
	if (rc != SQLITE_DONE)
		status = mt_trace_error(check->trace);
	sqlite3_finalize(stmt);
	return status;
}

/* PRAGMA integrity_check answers one row 'ok', or a row for each fault. */
static int integrity_run(struct check *check)
{
	sqlite3_stmt *stmt = mt_trace_prepare(check->trace, "PRAGMA integrity_check(100)");
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	check->results[CHECK_INTEGRITY].n_checked = 1;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const char *text = (const char *)sqlite3_column_text(stmt, 0);

		if (!text || strcmp(text, "ok") != 0)
			check_violation(check, CHECK_INTEGRITY, "file: %s", text ? text : "?");
	}
	if (rc != SQLITE_DONE)
		check_violation(check, CHECK_INTEGRITY, "file: %s",
				sqlite3_errmsg(check->trace->db));
	sqlite3_finalize(stmt);
	return MT_EXIT_OK;
}

static int foreign_keys_run(struct check *check)
{
	sqlite3_stmt *stmt;
	int64_t n = 0;
	int status;
	int rc;

	status = mt_trace_int(check->trace,
			      "SELECT count(*) FROM sqlite_schema AS s, "
			      "pragma_foreign_key_list(s.name) WHERE s.type = 'table'",
			      &n);
	if (status != MT_EXIT_OK)
		return status;
	check->results[CHECK_FOREIGN_KEYS].n_checked = (uint64_t)n;
	stmt = mt_trace_prepare(check->trace, "PRAGMA foreign_key_check");
	if (!stmt)
		return MT_EXIT_FAILED;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		check_violation(check, CHECK_FOREIGN_KEYS, "%s rowid %s: refers to no row of %s",
				(const char *)sqlite3_column_text(stmt, 0),
				sqlite3_column_type(stmt, 1) == SQLITE_NULL
					? "unknown"
					: (const char *)sqlite3_column_text(stmt, 1),
				(const char *)sqlite3_column_text(stmt, 2));
	if (rc != SQLITE_DONE)
		status = mt_trace_error(check->trace);
	sqlite3_finalize(stmt);
	return status;
}

int check_sql_run(struct check *check)
{
	int status;
	size_t i;

	status = integrity_run(check);
	if (status == MT_EXIT_OK)
		status = foreign_keys_run(check);
	for (i = 0; i < sizeof(sql_proofs) / sizeof(sql_proofs[0]) && status == MT_EXIT_OK; i++)
		status = sql_proof_run(check, &sql_proofs[i]);
	return status;
}
