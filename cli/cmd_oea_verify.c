/* SPDX-License-Identifier: MIT */
/*
 * oea --verify: one line a rule, as schema/questions/oea_verify.sql says it. A rule that is named on
 * the command line and not in the trace was never called.
 */
#include "cli/cmd_oea.h"

#include <stdlib.h>
#include <string.h>

#include "schema/functions/questions.h"

enum { COLUMN_RULE, COLUMN_EFFECT, COLUMN_WHY, N_COLUMNS };

static sqlite3_stmt *verify_prepare(const struct mt_trace *trace, const struct mt_oea_args *args)
{
	struct mt_question_part part = mt_question_section("oea_verify", "");
	char *sql = strndup(part.sql, part.n_bytes);
	sqlite3_stmt *stmt = sql ? mt_trace_prepare(trace, sql) : NULL;

	if (!sql)
		mt_error("%s: out of memory", trace->path);
	free(sql);
	if (stmt && args->common.recording_id)
		sqlite3_bind_int64(stmt, sqlite3_bind_parameter_index(stmt, ":recording"),
				   (int64_t)args->common.recording_id);
	if (stmt && args->rule)
		sqlite3_bind_text(stmt, sqlite3_bind_parameter_index(stmt, ":rule"), args->rule, -1,
				  SQLITE_STATIC);
	return stmt;
}

static const char *text_of(sqlite3_stmt *stmt, int column)
{
	const char *text = (const char *)sqlite3_column_text(stmt, column);

	return text ? text : "-";
}

/* *ret_did: no rule did nothing. */
static int rows_print(const struct mt_trace *trace, sqlite3_stmt *stmt, struct mt_table *table,
		      bool *ret_did)
{
	bool did = true;
	int rc;

	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		for (int i = 0; i < N_COLUMNS; i++)
			mt_table_text(table, text_of(stmt, i));
		did &= strcmp(text_of(stmt, COLUMN_EFFECT), "nothing") != 0;
	}
	if (rc != SQLITE_DONE)
		return mt_trace_error(trace);
	*ret_did = did;
	return MT_EXIT_OK;
}

int mt_oea_verify(const struct mt_trace *trace, const struct mt_oea_args *args)
{
	static const char *const columns[N_COLUMNS] = {
		[COLUMN_RULE] = "rule", [COLUMN_EFFECT] = "effect", [COLUMN_WHY] = "why"};
	sqlite3_stmt *stmt = verify_prepare(trace, args);
	struct mt_output output;
	struct mt_table table;
	bool did = true;
	int status;

	if (!stmt)
		return MT_EXIT_FAILED;
	mt_output_begin(&output, stdout, args->common.format);
	status = mt_table_begin(&table, &output, columns, N_COLUMNS) < 0 ? MT_EXIT_FAILED : MT_EXIT_OK;
	if (status == MT_EXIT_OK) {
		status = rows_print(trace, stmt, &table, &did);
		if (mt_table_end(&table) < 0)
			status = MT_EXIT_FAILED;
	}
	sqlite3_finalize(stmt);
	mt_output_end(&output);
	return status == MT_EXIT_OK && !did ? MT_EXIT_FAILED : status;
}
