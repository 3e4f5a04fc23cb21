/* SPDX-License-Identifier: MIT */
/*
 * dump: the tables and views of a trace with their row counts, or the rows of one of them. The
 * views that decode blobs have a row for each routed token; their count is added up from the
 * tables below them, which is the same number without decoding the file.
 */
#include "cli/cmd_dump.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <moetrace/status.h>

enum { OPT_TABLE = MT_OPT_OWN, OPT_SOCKET_DIR, OPT_ALL };

struct dump_args {
	struct mt_args common;
	const char *table;
	const char *output; /* NULL: of a file */
	const char *dir;
	bool overwrites;
	bool all;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct dump_args *args = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &args->common;
		return 0;
	case OPT_TABLE:
		args->table = arg;
		return 0;
	case OPT_SOCKET_DIR:
		args->dir = arg;
		return 0;
	case 'o':
		args->output = arg;
		return 0;
	case ARGP_KEY_END:
		if (args->all && !args->output)
			return mt_args_error(&args->common,
					     "--all needs -o FOLDER, for a file a session");
		if (args->all && args->common.file)
			return mt_args_error(&args->common,
					     "--all and the session %s exclude each other",
					     args->common.file);
		return 0;
	case OPT_ALL:
		args->all = true;
		args->common.no_file = true;
		return 0;
	case 'f':
		args->overwrites = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{"output", 'o', "FILE", 0, "Write a snapshot of SESSION into this new file, and print it",
	 1},
	{"all", OPT_ALL, NULL, 0,
	 "Every live session, into a folder that is there; a file is called by the session's name and "
	 "its socket's: NAME.HOST.PID.RANK.N.db",
	 1},
	{"force", 'f', NULL, 0, "Replace the file if it exists", 1},
	{"socket-dir", OPT_SOCKET_DIR, "FOLDER", 0,
	 "Where the sockets are [MOETRACE_SOCKET_DIR, else $XDG_RUNTIME_DIR/moetrace or "
	 "/tmp/moetrace-UID]",
	 1},
	{"table", OPT_TABLE, "NAME", 0, "Print the rows of this table or view", 0},
	{0},
};

static const struct argp_child children[] = {{&mt_args_recording_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "FILE\nSESSION -o FILE\n--all -o FOLDER",
	.doc = "List the tables and views of a trace with their row counts, or print one of them; "
	       "or write one recording of a live session into a file of its own."
	       "\v"
	       "An existing regular file is a FILE, anything else a SESSION: a name, a process id "
	       "or the path of a socket, as 'moetrace list' shows them. The snapshot holds the "
	       "current recording, else the last one, or --recording N, up to the last commit; the "
	       "session goes on. "
	       "Blobs are printed as hex digits, two a byte. NULL is '-' in a table, empty in CSV "
	       "and null in JSON. What the columns mean is said in the file itself: "
	       "moetrace query FILE \"select sql from sqlite_schema where name = 'pass'\"",
	.children = children,
};

/* Counts of views that would decode every blob of the file to be counted. */
static const struct {
	const char *name;
	const char *sql;
} counts[] = {
	{"stored_topk", "SELECT coalesce(sum(n_rows), 0) FROM pass_layer WHERE state = 0"},
	{"token_topk", "SELECT (SELECT coalesce(sum(n_rows), 0) FROM pass_layer WHERE state = 0) "
		       "+ (SELECT count(*) FROM token_topk WHERE pass_id IS NULL)"},
	{"routed_expert", "SELECT count(*) FROM moe_topk WHERE request_id IS NOT NULL"},
};

/* The statement that counts @name; release with sqlite3_free(). NULL: no memory. */
static char *count_sql(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		if (strcmp(counts[i].name, name) == 0)
			return sqlite3_mprintf("%s", counts[i].sql);
	return sqlite3_mprintf("SELECT count(*) FROM \"%w\"", name);
}

static int row_count(const struct mt_trace *trace, const char *name, int64_t *ret_count)
{
	char *sql = count_sql(name);
	int status;

	if (!sql)
		return mt_trace_error(trace);
	status = mt_trace_int(trace, sql, ret_count);
	sqlite3_free(sql);
	return status;
}

#define SQL_NAMES                                                               \
	"SELECT type, name FROM sqlite_schema WHERE type IN ('table', 'view') " \
	"AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY type, name"

static int names_print(const struct mt_trace *trace, struct mt_table *table)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, SQL_NAMES);
	int status = MT_EXIT_OK;
	int64_t n_rows;
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && status == MT_EXIT_OK) {
		const char *name = (const char *)sqlite3_column_text(stmt, 1);

		status = name ? row_count(trace, name, &n_rows) : mt_trace_error(trace);
		if (status != MT_EXIT_OK)
			break;
		mt_table_text(table, (const char *)sqlite3_column_text(stmt, 0));
		mt_table_text(table, name);
		mt_table_int64(table, n_rows);
	}
	if (rc != SQLITE_DONE && status == MT_EXIT_OK)
		status = mt_trace_error(trace);
	sqlite3_finalize(stmt);
	return status;
}

static int tables_list(const struct mt_trace *trace, struct mt_output *output)
{
	static const char *const columns[] = {"type", "name", "n_rows"};
	struct mt_table table;
	int status;

	if (mt_table_begin(&table, output, columns, 3) != MOETRACE_OK) {
		mt_error("%s: out of memory", trace->path);
		return MT_EXIT_FAILED;
	}
	status = names_print(trace, &table);
	if (mt_table_end(&table) != MOETRACE_OK && status == MT_EXIT_OK) {
		mt_error("%s: out of memory", trace->path);
		status = MT_EXIT_FAILED;
	}
	return status;
}

#define MAX_NAMES 256

/* The names in the file, NULL-terminated. Returns how many; the caller frees each. */
static size_t names_read(const struct mt_trace *trace, char *names[MAX_NAMES + 1])
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, SQL_NAMES);
	size_t n = 0;

	while (stmt && n < MAX_NAMES && sqlite3_step(stmt) == SQLITE_ROW) {
		const char *name = (const char *)sqlite3_column_text(stmt, 1);

		names[n] = name ? strdup(name) : NULL;
		if (!names[n])
			break;
		n++;
	}
	names[n] = NULL;
	sqlite3_finalize(stmt);
	return n;
}

static int table_unknown(const struct mt_trace *trace, const char *name)
{
	char *names[MAX_NAMES + 1];
	size_t n = names_read(trace, names);
	const char *close = mt_closest(name, (const char *const *)names);

	if (close)
		mt_error("%s: has no table or view '%s'; did you mean '%s'?", trace->path, name,
			 close);
	else
		mt_error("%s: has no table or view '%s'; 'moetrace dump %s' lists them",
			 trace->path, name, trace->path);
	while (n > 0)
		free(names[--n]);
	return MT_EXIT_NOT_FOUND;
}

static int table_exists(const struct mt_trace *trace, const char *name, bool *ret_exists)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, "SELECT 1 FROM sqlite_schema "
						     "WHERE type IN ('table', 'view') "
						     "AND name = ?1 COLLATE NOCASE");
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
	rc = sqlite3_step(stmt);
	sqlite3_finalize(stmt);
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		return mt_trace_error(trace);
	*ret_exists = rc == SQLITE_ROW;
	return MT_EXIT_OK;
}

static int table_print(const struct mt_trace *trace, struct mt_output *output, const char *name)
{
	bool exists = false;
	int status = table_exists(trace, name, &exists);
	char *sql;

	if (status != MT_EXIT_OK)
		return status;
	if (!exists)
		return table_unknown(trace, name);
	sql = sqlite3_mprintf("SELECT * FROM \"%w\"", name);
	if (!sql)
		return mt_trace_error(trace);
	status = mt_trace_print_sql(trace, output, sql);
	sqlite3_free(sql);
	return status;
}

static int live_dump(const struct dump_args *args)
{
	const struct mt_dump_live dump = {
		.session = args->common.file,
		.dir = args->dir,
		.output = args->output,
		.overwrites = args->overwrites,
		.recording_id = args->common.recording_id,
	};
	struct stat info;

	if (!dump.session || stat(dump.session, &info) != 0 || !S_ISREG(info.st_mode))
		return mt_dump_live(&dump);
	mt_error("%s is a file, and -o is for live sessions; copy it, or name a SESSION",
		 dump.session);
	return MT_EXIT_USAGE;
}

int mt_cmd_dump(int argc, char **argv)
{
	struct dump_args args = {0};
	struct mt_trace trace;
	struct mt_output output;
	int status;

	status = mt_args_parse(&argp, argc, argv, &args.common, &args);
	if (status == MT_EXIT_OK && args.output)
		return live_dump(&args);
	if (status == MT_EXIT_OK && args.common.recording_id) {
		mt_error("--recording goes with -o; 'moetrace query' finds rows of a recording");
		return MT_EXIT_USAGE;
	}
	if (status == MT_EXIT_OK)
		status = mt_trace_open(args.common.file, &trace);
	if (status != MT_EXIT_OK)
		return status;
	mt_output_begin(&output, stdout, args.common.format);
	if (args.table)
		status = table_print(&trace, &output, args.table);
	else
		status = tables_list(&trace, &output);
	if (status == MT_EXIT_OK)
		mt_output_end(&output);
	mt_trace_close(&trace);
	return status;
}
