/* SPDX-License-Identifier: MIT */
/*
 * query: one SQL statement that only reads. The file is opened read-only; beyond that, statements
 * that would attach or write another file are refused before they run.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "cli/cli.h"
#include "schema/functions/statement.h"

#define MAX_SQL_BYTES 1000000

struct query_args {
	struct mt_args common;
	char *sql;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct query_args *args = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &args->common;
		return 0;
	case ARGP_KEY_ARG:
		if (!args->common.file || args->sql)
			return ARGP_ERR_UNKNOWN;
		args->sql = arg;
		return 0;
	case ARGP_KEY_END:
		if (args->common.file && !args->sql)
			return mt_args_error(&args->common, "which SQL? Give one statement, or - "
							    "to read it from standard input");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_child children[] = {{&mt_args_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.parser = parse,
	.args_doc = "FILE SQL",
	.doc = "Run one SQL statement that reads, and print its rows. SQL '-' reads the statement "
	       "from standard input."
	       "\v"
	       "The table-valued functions of the extension (moe_topk, moe_load) are there. A "
	       "result of one row and one column is printed bare in the table format.",
	.children = children,
};

/* Read standard input whole, to be freed by the caller; NULL after an error line. */
static char *stdin_read(void)
{
	char *text = malloc(MAX_SQL_BYTES + 1);
	size_t n_bytes;

	if (!text) {
		mt_error("standard input: out of memory");
		return NULL;
	}
	n_bytes = fread(text, 1, MAX_SQL_BYTES + 1, stdin);
	if (ferror(stdin))
		mt_error("standard input: %s", strerror(errno));
	else if (n_bytes > MAX_SQL_BYTES)
		mt_error("standard input: more than %d bytes of SQL; give one statement",
			 MAX_SQL_BYTES);
	else if (memchr(text, '\0', n_bytes))
		mt_error("standard input: a zero byte; give one SQL statement as text");
	else {
		text[n_bytes] = '\0';
		return text;
	}
	free(text);
	return NULL;
}

/* Writing is refused by the read-only file; what is left is reaching other files. */
static int authorize(void *context, int action, const char *a, const char *b, const char *c,
		     const char *d)
{
	(void)context;
	(void)a;
	(void)b;
	(void)c;
	(void)d;
	return action == SQLITE_ATTACH || action == SQLITE_DETACH ? SQLITE_DENY : SQLITE_OK;
}

/* Where in @sql SQLite found the error; -1: it does not say. */
static int error_offset(sqlite3 *db)
{
#if SQLITE_VERSION_NUMBER >= 3038000
	return sqlite3_error_offset(db);
#else
	(void)db;
	return -1;
#endif
}

static int sql_error(const struct mt_trace *trace, const char *sql)
{
	int offset = error_offset(trace->db);
	int line = 1;
	int column = 1;
	int i;

	if (offset < 0) {
		mt_error("%s: %s; correct the SQL", trace->path, sqlite3_errmsg(trace->db));
		return MT_EXIT_FAILED;
	}
	for (i = 0; i < offset; i++) {
		column = sql[i] == '\n' ? 1 : column + 1;
		line += sql[i] == '\n';
	}
	mt_error("%s: %s at line %d, byte %d of the SQL: '%.40s'; correct it there", trace->path,
		 sqlite3_errmsg(trace->db), line, column, sql + offset);
	return MT_EXIT_FAILED;
}

static int statement_refuse(const struct mt_trace *trace, const char *why)
{
	mt_error("%s: %s", trace->path, why);
	return MT_EXIT_USAGE;
}

/* MT_EXIT_OK and a statement that reads, or an error line. */
static int statement_prepare(const struct mt_trace *trace, const char *sql, sqlite3_stmt **ret_stmt)
{
	sqlite3_stmt *stmt = NULL;
	const char *tail = NULL;
	int status = MT_EXIT_OK;

	sqlite3_set_authorizer(trace->db, authorize, NULL);
	if (sqlite3_prepare_v2(trace->db, sql, -1, &stmt, &tail) != SQLITE_OK) {
		if (sqlite3_errcode(trace->db) != SQLITE_AUTH)
			return sql_error(trace, sql);
		return statement_refuse(trace, "ATTACH and DETACH are refused: a query reads this "
					       "file only");
	}
	if (!stmt)
		status = statement_refuse(trace, "the SQL is empty; give one SELECT");
	else if (!mt_sql_is_end(trace->db, tail))
		status = statement_refuse(trace, "more than one statement; give one, and run the "
						 "command once for each");
	else if (!sqlite3_stmt_readonly(stmt))
		status = statement_refuse(trace, "the statement would write; a trace is only read");
	else if (sqlite3_column_count(stmt) == 0)
		status = statement_refuse(trace, "the statement returns no rows; give a SELECT");
	if (status != MT_EXIT_OK) {
		sqlite3_finalize(stmt);
		return status;
	}
	*ret_stmt = stmt;
	return MT_EXIT_OK;
}

static int query_print(const struct mt_trace *trace, enum mt_format format, sqlite3_stmt *stmt)
{
	struct mt_output output;
	int status;

	mt_output_begin(&output, stdout, format);
	output.is_bare = true;
	status = mt_trace_print(trace, &output, stmt);
	if (status == MT_EXIT_OK)
		mt_output_end(&output);
	return status;
}

static int query_run(const struct query_args *args, const char *sql)
{
	struct mt_trace trace;
	sqlite3_stmt *stmt = NULL;
	int status;

	status = mt_trace_open(args->common.file, &trace);
	if (status != MT_EXIT_OK)
		return status;
	trace.is_query = true;
	status = statement_prepare(&trace, sql, &stmt);
	if (status == MT_EXIT_OK) {
		status = query_print(&trace, args->common.format, stmt);
		sqlite3_finalize(stmt);
	}
	mt_trace_close(&trace);
	return status;
}

int mt_cmd_query(int argc, char **argv)
{
	struct query_args args = {0};
	char *text = NULL;
	int status;

	status = mt_args_parse(&argp, argc, argv, &args.common, &args);
	if (status != MT_EXIT_OK)
		return status;
	if (strcmp(args.sql, "-") == 0) {
		text = stdin_read();
		if (!text)
			return MT_EXIT_FAILED;
	}
	status = query_run(&args, text ? text : args.sql);
	free(text);
	return status;
}
