/* SPDX-License-Identifier: MIT */
/*
 * What both halves of the reader need: messages, columns that have to be numbers, statements.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "trace_reader_internal.h"

#include <stdarg.h>
#include <string.h>

int mt_reader_fail(struct mt_reader *reader, const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	text = sqlite3_vmprintf(format, args);
	va_end(args);
	sqlite3_free(reader->error);
	reader->error = sqlite3_mprintf("%s: %z", reader->name, text);
	return reader->error ? SQLITE_CORRUPT_VTAB : SQLITE_NOMEM;
}

int mt_reader_fail_sqlite(struct mt_reader *reader, int rc)
{
	sqlite3_free(reader->error);
	reader->error = sqlite3_mprintf("%s: %s", reader->name, sqlite3_errmsg(reader->db));
	return rc;
}

/*
 * Every sqlite3_column_*() locks the connection, which the statement that runs us holds
 * already; the value behind a column is read without that. It halves the time of a slice.
 */
bool mt_column_int(sqlite3_stmt *stmt, int column, sqlite3_int64 *ret_value)
{
	sqlite3_value *value = sqlite3_column_value(stmt, column);

	if (sqlite3_value_type(value) != SQLITE_INTEGER)
		return false;
	*ret_value = sqlite3_value_int64(value);
	return true;
}

/* A non-negative integer of bounded size; anything else in the column is damage. */
bool mt_column_count(sqlite3_stmt *stmt, int column, size_t *ret_count)
{
	sqlite3_int64 value;

	if (!mt_column_int(stmt, column, &value) || value < 0 || value > mt_max_count)
		return false;
	*ret_count = (size_t)value;
	return true;
}

/* The texts are constants, so that a result may outlive its reader. */
const char *mt_reader_phase(const char *text, const char *before)
{
	static const char *const phases[] = {
		"prefill", "decode", "mixed", "verify", "draft", "idle", "dummy",
	};

	if (text && before && strcmp(before, text) == 0)
		return before;
	for (size_t i = 0; text && i < sizeof(phases) / sizeof(phases[0]); i++)
		if (strcmp(phases[i], text) == 0)
			return phases[i];
	return NULL;
}

/* Tables only: a file whose `topk` is a view of moe_topk must not recurse. */
static const unsigned prepare_flags = SQLITE_PREPARE_PERSISTENT | SQLITE_PREPARE_NO_VTAB;

/* The statements name tables as main.TABLE; another database has another name. */
char *mt_sql_in_schema(const char *sql, const char *schema)
{
	static const char main_dot[] = "main.";
	sqlite3_str *text = sqlite3_str_new(NULL);
	const char *at;

	while ((at = strstr(sql, main_dot))) {
		sqlite3_str_append(text, sql, (int)(at - sql));
		sqlite3_str_appendf(text, "\"%w\".", schema);
		sql = at + sizeof(main_dot) - 1;
	}
	sqlite3_str_appendall(text, sql);
	return sqlite3_str_finish(text);
}

int mt_reader_prepare(struct mt_reader *reader, const char *sql, sqlite3_stmt **ret_stmt)
{
	char *other = reader->schema ? mt_sql_in_schema(sql, reader->schema) : NULL;
	int rc = SQLITE_NOMEM;

	if (other || !reader->schema)
		rc = sqlite3_prepare_v3(reader->db, other ? other : sql, -1, prepare_flags,
					ret_stmt, NULL);
	sqlite3_free(other);
	return rc == SQLITE_OK ? rc : mt_reader_fail_sqlite(reader, rc);
}

static double largest_key(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *stmt = NULL;
	double key = 0;

	if (sqlite3_prepare_v3(db, sql, -1, prepare_flags, &stmt, NULL) == SQLITE_OK &&
	    sqlite3_step(stmt) == SQLITE_ROW)
		key = sqlite3_column_double(stmt, 0);
	sqlite3_finalize(stmt);
	return key > 1 ? key : 1;
}

double mt_trace_estimate(sqlite3 *db, double *ret_n_passes)
{
	/* A full run holds 64 KiB of one-byte ids; files of few runs hold less. */
	const double per_run = 30000;

	*ret_n_passes = largest_key(db, "SELECT max(pass_id) FROM main.pass");
	return per_run * largest_key(db, "SELECT max(topk_id) FROM main.topk");
}
