/* SPDX-License-Identifier: MIT */
/*
 * The columns that may be told, and those that may not. Which columns of a file hold text is read
 * from its schema once a connection; every one of them that no list here names is left out.
 */
#include "viewer/redact.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct column {
	const char *table, *column;
};

/* Words of the recorder, numbers of versions, names of models and of the code that serves them. */
static const struct column harmless[] = {
	{"meta", "key"},
	{"device", "kind"},
	{"device", "name"},
	{"model", "kind"},
	{"model", "architecture"},
	{"model", "quantization"},
	{"layer", "kind"},
	{"layer", "scoring"},
	{"layer", "scaling_owner"},
	{"layer", "weight_kind"},
	{"layer", "router_impl"},
	{"layer", "runner_backend"},
	{"layer", "router_output"},
	{"recording", "mode"},
	{"recording", "sampling"},
	{"request", "end_state"},
	{"request", "verdict"},
	{"request", "reasons"},
	{"pass", "phase"},
	{"pass", "verdict"},
	{"pass", "reasons"},
	{"pass_request", "phase"},
	{"rule", "name"},
	{"topk", "weight_format"},
	{"topk", "score_format"},
	{"stats", "name"},
	{"gap", "stream"},
	{"gap", "reason"},
	{"diagnostic", "severity"},
	{"diagnostic", "source"},
	{"string", "role"},
	{"collector", "name"},
	{"collector", "state"},
	{"collector", "mode"},
	{"collector", "version"},
	{"collective", "kind"},
	{"collector_overhead", "kind"},
	{"power_sample", "domain"},
	{"power_sample", "source"},
	{"device_clock", "clock"},
};

/* Not text, and not to be told. */
static const struct column telling[] = {
	{"request_token", "token_id"},
};

/*
 * Columns with values of both kinds, and the views through which the harmless ones are read: those
 * below, and views of the file that the viewer asks for nothing else.
 */
static const struct {
	struct column column;
	const char *view;
} mixed[] = {
	{{"meta", "value"}, "meta"},
	{{"model", "name"}, "model"},
	{{"recording", "end_reason"}, "recording"},
	{{"recording", "end_reason"},
	 "loss"}, /* of which report tells the recorder's own words alone */
	{{"recording", "routing_source"}, "recording"},
	{{"string", "value"}, "kernel_event"}, /* names of kernels; other strings name ranges */
};

/* A model's name may be its path; recordings may end for the runtime's own reasons. */
static const char sql_views[] =
	"CREATE TEMP VIEW meta AS SELECT key, CASE WHEN key IN ('format', 'moetrace_version', "
	"'part', "
	"'engine_name', 'engine_version') OR key GLOB 'version.*' OR key GLOB 'source.*' OR "
	"(key GLOB 'opt.*' AND key <> 'opt.socket_dir') THEN value END AS value FROM main.meta;"
	"CREATE TEMP VIEW model AS SELECT model_id, CASE WHEN name GLOB '[/~.]*' OR "
	"name LIKE '%/%/%' OR instr(name, '\\') THEN 'model ' || model_id ELSE name END AS name, "
	"kind, "
	"architecture, n_layers, quantization FROM main.model;"
	"CREATE TEMP VIEW recording AS SELECT recording_id, process_id, start_ns, end_ns, "
	"CASE WHEN end_reason IN ('stopped', 'closed', 'rotated', 'dump', 'trigger', "
	"'interrupted', "
	"'file_limit', 'io_error', 'killed') THEN end_reason WHEN end_reason IS NOT NULL THEN "
	"'redacted' END AS end_reason, mode, CASE WHEN routing_source IN ('model', 'uniform', "
	"'round-robin') OR routing_source GLOB 'zipf:[0-9]*' THEN routing_source "
	"WHEN routing_source GLOB 'replay*' THEN 'replay' WHEN routing_source IS NOT NULL THEN "
	"'redacted' END AS routing_source, sampling FROM main.recording";

/* The bytes of the file itself. */
static const char raw_table[] = "sqlite_dbpage";

struct mt_redacted {
	size_t n;
	struct column *columns; /* [n], which are left out whoever asks */
};

static bool is_column(const struct column *known, const char *table, const char *column)
{
	return sqlite3_stricmp(table, known->table) == 0 &&
	       sqlite3_stricmp(column, known->column) == 0;
}

static bool is_harmless(const char *table, const char *column)
{
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		if (is_column(&harmless[i], table, column))
			return true;
	return false;
}

/* Whether it is one of them; *ret_is_open: and may be read through @view. */
static bool is_mixed(const char *table, const char *column, const char *view, bool *ret_is_open)
{
	bool is_known = false;

	*ret_is_open = false;
	for (size_t i = 0; i < sizeof(mixed) / sizeof(mixed[0]); i++) {
		if (!is_column(&mixed[i].column, table, column))
			continue;
		is_known = true;
		if (view && sqlite3_stricmp(view, mixed[i].view) == 0)
			*ret_is_open = true;
	}
	return is_known;
}

static bool column_add(struct mt_redacted *redacted, const char *table, const char *column)
{
	struct column *grown = realloc(redacted->columns, (redacted->n + 1) * sizeof(*grown));
	struct column *added;

	if (!grown)
		return false;
	redacted->columns = grown;
	added = &grown[redacted->n];
	added->table = strdup(table);
	added->column = strdup(column);
	redacted->n++;
	return added->table && added->column;
}

static bool columns_read(struct mt_redacted *redacted, sqlite3_stmt *stmt)
{
	bool is_open;
	int rc;

	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const char *table = (const char *)sqlite3_column_text(stmt, 0);
		const char *column = (const char *)sqlite3_column_text(stmt, 1);

		if (!table || !column)
			return false;
		if (!is_harmless(table, column) && !is_mixed(table, column, NULL, &is_open) &&
		    !column_add(redacted, table, column))
			return false;
	}
	return rc == SQLITE_DONE;
}

static const char sql_columns[] =
	"SELECT m.name, c.name FROM main.sqlite_schema AS m, pragma_table_xinfo(m.name) AS c "
	"WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite~_%' ESCAPE '~' "
	"AND c.type NOT IN ('INTEGER', 'REAL', 'BLOB')";

struct mt_redacted *mt_redacted_new(sqlite3 *db)
{
	struct mt_redacted *redacted = calloc(1, sizeof(*redacted));
	sqlite3_stmt *stmt = NULL;
	bool is_good = redacted &&
		       sqlite3_prepare_v2(db, sql_columns, -1, &stmt, NULL) == SQLITE_OK &&
		       columns_read(redacted, stmt);

	sqlite3_finalize(stmt);
	for (size_t i = 0; is_good && i < sizeof(telling) / sizeof(telling[0]); i++)
		is_good = column_add(redacted, telling[i].table, telling[i].column);
	if (is_good && sqlite3_exec(db, sql_views, NULL, NULL, NULL) == SQLITE_OK)
		return redacted;
	mt_redacted_free(redacted);
	return NULL;
}

void mt_redacted_free(struct mt_redacted *redacted)
{
	if (!redacted)
		return;
	for (size_t i = 0; i < redacted->n; i++) {
		free((char *)(uintptr_t)redacted->columns[i].table);
		free((char *)(uintptr_t)redacted->columns[i].column);
	}
	free(redacted->columns);
	free(redacted);
}

int mt_redacted_read(const struct mt_redacted *redacted, const struct mt_column_read *read,
		     bool is_of_user)
{
	bool is_open;

	if (!read->table || !read->column)
		return SQLITE_OK;
	if (sqlite3_stricmp(read->table, raw_table) == 0)
		return SQLITE_DENY;
	/* Of our views; what these read is asked for, too. */
	if (read->database && strcmp(read->database, "temp") == 0)
		return SQLITE_OK;
	/* A user's statement can give any part of itself the name of a view. */
	if (is_mixed(read->table, read->column, read->view, &is_open))
		return is_open && !is_of_user ? SQLITE_OK : SQLITE_IGNORE;
	for (size_t i = 0; i < redacted->n; i++)
		if (is_column(&redacted->columns[i], read->table, read->column))
			return SQLITE_IGNORE;
	return SQLITE_OK;
}
