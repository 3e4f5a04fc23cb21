/* SPDX-License-Identifier: MIT */
/*
 * Statements of the verbs: prepared, stepped and printed with one way of reporting errors.
 */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "schema/functions/mt_sql.h"

int mt_trace_error(const struct mt_trace *trace)
{
	int rc = sqlite3_errcode(trace->db);
	const char *advice = "'moetrace check' says what is wrong with the file";

	/* Then the message itself says what to give. */
	if (sqlite3_extended_errcode(trace->db) == MT_SQL_ARGUMENT) {
		mt_error("%s: %s", trace->path, sqlite3_errmsg(trace->db));
		return MT_EXIT_FAILED;
	}
	if (rc == SQLITE_BUSY || rc == SQLITE_NOMEM || rc == SQLITE_IOERR)
		advice = "try again";
	else if (trace->is_check)
		advice = "the proofs end here";
	else if (trace->is_query && rc != SQLITE_CORRUPT && rc != SQLITE_NOTADB)
		advice = "correct the SQL";
	mt_error("%s: %s; %s", trace->path, sqlite3_errmsg(trace->db), advice);
	return MT_EXIT_FAILED;
}

sqlite3_stmt *mt_trace_prepare(const struct mt_trace *trace, const char *sql)
{
	sqlite3_stmt *stmt = NULL;

	if (sqlite3_prepare_v2(trace->db, sql, -1, &stmt, NULL) != SQLITE_OK)
		mt_trace_error(trace);
	return stmt;
}

int mt_trace_int(const struct mt_trace *trace, const char *sql, int64_t *ret_value)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, sql);
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW || rc == SQLITE_DONE) {
		*ret_value = rc == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
		sqlite3_finalize(stmt);
		return MT_EXIT_OK;
	}
	mt_trace_error(trace);
	sqlite3_finalize(stmt);
	return MT_EXIT_FAILED;
}

static void cell_print(struct mt_table *table, sqlite3_stmt *stmt, int column)
{
	switch (sqlite3_column_type(stmt, column)) {
	case SQLITE_INTEGER:
		mt_table_int64(table, sqlite3_column_int64(stmt, column));
		break;
	case SQLITE_FLOAT:
		mt_table_double(table, sqlite3_column_double(stmt, column));
		break;
	case SQLITE_TEXT:
		mt_table_bytes(table, (const char *)sqlite3_column_text(stmt, column),
			       (size_t)sqlite3_column_bytes(stmt, column));
		break;
	case SQLITE_BLOB:
		mt_table_blob(table, sqlite3_column_blob(stmt, column),
			      (size_t)sqlite3_column_bytes(stmt, column));
		break;
	default:
		mt_table_null(table);
	}
}

static int table_begin(struct mt_table *ret_table, struct mt_output *output, sqlite3_stmt *stmt)
{
	int n_columns = sqlite3_column_count(stmt);
	const char **names = calloc((size_t)n_columns, sizeof(*names));
	int status = MOETRACE_E_NOMEM;
	int i;

	if (!names)
		return status;
	for (i = 0; i < n_columns; i++) {
		names[i] = sqlite3_column_name(stmt, i);
		if (!names[i])
			goto out;
	}
	status = mt_table_begin(ret_table, output, names, (size_t)n_columns);
out:
	free(names);
	return status;
}

/* Print the row that @stmt stands on and those after it; returns SQLite's code of the last step. */
static int rows_print(struct mt_table *table, sqlite3_stmt *stmt, int rc)
{
	int n_columns = sqlite3_column_count(stmt);
	int i;

	for (; rc == SQLITE_ROW && !ferror(table->output->out); rc = sqlite3_step(stmt))
		for (i = 0; i < n_columns; i++)
			cell_print(table, stmt, i);
	return rc;
}

int mt_trace_print(const struct mt_trace *trace, struct mt_output *output, sqlite3_stmt *stmt)
{
	struct mt_table table;
	int status;
	int rc;

	/* A statement that fails at once prints nothing but the error. */
	rc = sqlite3_step(stmt);
	if (rc != SQLITE_DONE && rc != SQLITE_ROW)
		return mt_trace_error(trace);
	if (table_begin(&table, output, stmt) != MOETRACE_OK) {
		mt_error("%s: out of memory", trace->path);
		return MT_EXIT_FAILED;
	}
	rc = rows_print(&table, stmt, rc);
	status = mt_table_end(&table);
	if (rc != SQLITE_DONE && rc != SQLITE_ROW)
		return mt_trace_error(trace);
	if (status != MOETRACE_OK) {
		mt_error("%s: out of memory; rows are missing", trace->path);
		return MT_EXIT_FAILED;
	}
	return MT_EXIT_OK;
}

int mt_trace_print_sql(const struct mt_trace *trace, struct mt_output *output, const char *sql)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, sql);
	int status;

	if (!stmt)
		return MT_EXIT_FAILED;
	status = mt_trace_print(trace, output, stmt);
	sqlite3_finalize(stmt);
	return status;
}

sqlite3_stmt *mt_trace_prepare_recording(const struct mt_trace *trace, const char *sql,
					 uint64_t recording_id)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, sql);

	if (stmt && recording_id != 0)
		sqlite3_bind_int64(stmt, 1, (int64_t)recording_id);
	return stmt;
}

int mt_trace_print_notes(const struct mt_trace *trace, sqlite3_stmt *stmt)
{
	const int text = sqlite3_column_count(stmt) - 1;
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const char *note = (const char *)sqlite3_column_text(stmt, text);

		if (text > 0)
			mt_note("recording %lld: %s", (long long)sqlite3_column_int64(stmt, 0),
				note ? note : "");
		else
			mt_note("%s", note ? note : "");
	}
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE ? MT_EXIT_OK : mt_trace_error(trace);
}

bool mt_trace_has_recording(const struct mt_trace *trace)
{
	int64_t has_one;

	if (mt_trace_int(trace, "SELECT EXISTS (SELECT 1 FROM recording)", &has_one) != MT_EXIT_OK)
		return false;
	if (!has_one)
		mt_warn("%s: has no recording: none was committed", trace->path);
	return has_one != 0;
}

int mt_trace_has_row(const struct mt_trace *trace, sqlite3_stmt *stmt)
{
	const int rc = sqlite3_step(stmt);

	sqlite3_finalize(stmt);
	if (rc == SQLITE_ROW)
		return MT_EXIT_OK;
	return rc == SQLITE_DONE ? MT_EXIT_NOT_FOUND : mt_trace_error(trace);
}

int mt_trace_recording_check(const struct mt_trace *trace, uint64_t recording_id)
{
	sqlite3_stmt *stmt;
	int status;

	if (recording_id == 0)
		return MT_EXIT_OK;
	stmt = mt_trace_prepare(trace, "SELECT 1 FROM recording WHERE recording_id = ?1");
	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, (int64_t)recording_id);
	status = mt_trace_has_row(trace, stmt);
	if (status == MT_EXIT_NOT_FOUND)
		mt_error("%s: has no recording %llu; 'moetrace info' lists them", trace->path,
			 (unsigned long long)recording_id);
	return status;
}

int mt_trace_mode_check(const struct mt_trace *trace, uint64_t recording_id, const char *modes,
			const char *needs)
{
	sqlite3_stmt *stmt;
	int status = MT_EXIT_OK;
	int rc;

	stmt = mt_trace_prepare(trace, "SELECT recording_id, mode FROM recording WHERE (?1 = 0 OR "
				       "recording_id = ?1) ORDER BY instr(',' || ?2 || ',', ',' || mode "
				       "|| ',') = 0, recording_id LIMIT 1");
	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, (int64_t)recording_id);
	sqlite3_bind_text(stmt, 2, modes, -1, SQLITE_STATIC);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW) {
		const char *mode = (const char *)sqlite3_column_text(stmt, 1);

		/* The best of them comes first. */
		if (mode && !strstr(modes, mode)) {
			mt_error("%s: recording %lld is of mode %s: %s needs one of mode %s",
				 trace->path, (long long)sqlite3_column_int64(stmt, 0), mode, needs,
				 modes);
			status = MT_EXIT_FAILED;
		}
	} else if (rc != SQLITE_DONE) {
		status = mt_trace_error(trace);
	}
	sqlite3_finalize(stmt);
	return status;
}
