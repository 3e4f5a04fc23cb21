/* SPDX-License-Identifier: MIT */
/*
 * Copying traces. Which rows of a table belong to a recording follows from its columns: a
 * recording_id, a pass_id or a request_id; tables with none of them are definitions and facts
 * about the whole, and are copied whole.
 */
#include "cli/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/out_file.h"

static int failed(const struct mt_snapshot *snapshot, const char *what)
{
	mt_error("%s: %s: %s", snapshot->path, what,
		 snapshot->db ? sqlite3_errmsg(snapshot->db) : strerror(errno));
	return MT_EXIT_FAILED;
}

int mt_snapshot_exec(struct mt_snapshot *snapshot, const char *sql)
{
	if (sqlite3_exec(snapshot->db, sql, NULL, NULL, NULL) == SQLITE_OK)
		return MT_EXIT_OK;
	return failed(snapshot, "cannot be written");
}

int mt_snapshot_begin(const char *path, bool overwrites, struct mt_snapshot *ret_snapshot)
{
	struct mt_snapshot snapshot = {.path = path, .overwrites = overwrites};
	int fd, status = mt_out_file_may_be(path, overwrites);

	if (status != MT_EXIT_OK)
		return status;
	snapshot.temporary = mt_out_file_temporary(path);
	fd = snapshot.temporary ? open(snapshot.temporary,
				       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644)
				: -1;
	if (fd < 0) {
		failed(&snapshot, "cannot be made");
		free(snapshot.temporary);
		return MT_EXIT_FAILED;
	}
	close(fd);
	*ret_snapshot = snapshot;
	return MT_EXIT_OK;
}

/* Nobody reads the copy before it is complete: it needs no journal. */
static int database_open(struct mt_snapshot *snapshot)
{
	char *uri = mt_trace_uri(snapshot->temporary, "mode=rw");
	int rc = SQLITE_NOMEM;

	sqlite3_close(snapshot->db);
	snapshot->db = NULL;
	if (uri && truncate(snapshot->temporary, 0) == 0)
		rc = sqlite3_open_v2(uri, &snapshot->db,
				     SQLITE_OPEN_READWRITE | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX,
				     NULL);
	free(uri);
	if (rc != SQLITE_OK)
		return failed(snapshot, "cannot be written");
	sqlite3_busy_timeout(snapshot->db, 5000);
	return mt_snapshot_exec(snapshot, "PRAGMA page_size = 4096; PRAGMA journal_mode = OFF; "
					  "PRAGMA synchronous = OFF");
}

/* One integer of the source; 0 where there is no row. */
static int number_read(struct mt_snapshot *snapshot, const char *sql, int64_t parameter,
		       int64_t *ret_value)
{
	sqlite3_stmt *stmt;
	int rc;

	*ret_value = 0;
	if (sqlite3_prepare_v2(snapshot->db, sql, -1, &stmt, NULL) != SQLITE_OK)
		return failed(snapshot, "the source cannot be read");
	sqlite3_bind_int64(stmt, 1, parameter);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*ret_value = sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	return rc == SQLITE_ROW || rc == SQLITE_DONE
		       ? MT_EXIT_OK
		       : failed(snapshot, "the source cannot be read");
}

static int source_attach(struct mt_snapshot *snapshot, const char *source)
{
	char *uri = mt_trace_uri(source, "mode=ro");
	char *sql = uri ? sqlite3_mprintf("ATTACH %Q AS src", uri) : NULL;
	int status;

	if (sql && sqlite3_exec(snapshot->db, sql, NULL, NULL, NULL) == SQLITE_OK) {
		status = MT_EXIT_OK;
	} else {
		mt_error("%s: cannot be opened: %s", source, sqlite3_errmsg(snapshot->db));
		status = MT_EXIT_FAILED;
	}
	sqlite3_free(sql);
	free(uri);
	return status;
}

static int header_copy(struct mt_snapshot *snapshot)
{
	static const char *const pragmas[] = {"application_id", "user_version"};
	int status = MT_EXIT_OK;
	size_t i;

	for (i = 0; i < 2 && status == MT_EXIT_OK; i++) {
		char sql[64];
		int64_t value;

		snprintf(sql, sizeof(sql), "PRAGMA src.%s", pragmas[i]);
		status = number_read(snapshot, sql, 0, &value);
		snprintf(sql, sizeof(sql), "PRAGMA main.%s = %lld", pragmas[i], (long long)value);
		if (status == MT_EXIT_OK && i == 0 && value != MT_APPLICATION_ID) {
			mt_error("%s: the source is not a trace", snapshot->path);
			return MT_EXIT_FAILED;
		}
		if (status == MT_EXIT_OK)
			status = mt_snapshot_exec(snapshot, sql);
	}
	return status;
}

#define OF_RECORDING "(SELECT pass_id FROM src.pass WHERE recording_id = ?1)"

/* Which rows of @table are copied; ?1 is the recording. */
static const char *condition(struct mt_snapshot *snapshot, const char *table, bool is_all)
{
	static const struct {
		const char *column;
		const char *rows;
	} rules[] = {
		{"recording_id", "recording_id = ?1"},
		{"pass_id", "pass_id IN " OF_RECORDING},
		{"request_id", "request_id IN (SELECT request_id FROM src.request "
			       "WHERE recording_id = ?1)"},
	};
	size_t i;

	/* A graph belongs to whatever launched it. */
	if (strcmp(table, "graph_node") == 0 && !is_all)
		return "graph IN (SELECT graph FROM src.graph_launch WHERE recording_id = ?1)";
	if (strcmp(table, "topk") == 0)
		return is_all ? "topk_id IN (SELECT topk_id FROM src.pass_layer)"
			      : "topk_id IN (SELECT topk_id FROM src.pass_layer WHERE pass_id "
				"IN " OF_RECORDING ")";
	for (i = 0; i < sizeof(rules) / sizeof(rules[0]) && !is_all; i++) {
		char *sql = sqlite3_mprintf("SELECT count(*) FROM pragma_table_info(%Q, 'src') "
					    "WHERE name = %Q",
					    table, rules[i].column);
		int64_t n = 0;

		if (sql)
			(void)number_read(snapshot, sql, 0, &n);
		sqlite3_free(sql);
		if (n)
			return rules[i].rows;
	}
	return "1";
}

static int rows_copy(struct mt_snapshot *snapshot, const char *table, int64_t recording_id)
{
	char *sql = sqlite3_mprintf("INSERT INTO main.\"%w\" SELECT * FROM src.\"%w\" WHERE %s",
				    table, table, condition(snapshot, table, !recording_id));
	sqlite3_stmt *stmt = NULL;
	int rc = SQLITE_NOMEM;

	if (sql)
		rc = sqlite3_prepare_v2(snapshot->db, sql, -1, &stmt, NULL);
	sqlite3_free(sql);
	if (rc == SQLITE_OK) {
		sqlite3_bind_int64(stmt, 1, recording_id);
		rc = sqlite3_step(stmt);
	}
	if (rc != SQLITE_DONE)
		mt_error("%s: table %s cannot be copied: %s", snapshot->path, table,
			 sqlite3_errmsg(snapshot->db));
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE ? MT_EXIT_OK : MT_EXIT_FAILED;
}

/* Tables first, with their rows, since views may name any of them. */
static int objects_copy(struct mt_snapshot *snapshot, const char *type, int64_t recording_id)
{
	sqlite3_stmt *stmt;
	int status = MT_EXIT_OK;
	int rc;

	if (sqlite3_prepare_v2(snapshot->db,
			       "SELECT name, sql FROM src.sqlite_schema WHERE type = ?1 AND "
			       "sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
			       "ORDER BY rowid",
			       -1, &stmt, NULL) != SQLITE_OK)
		return failed(snapshot, "the source cannot be read");
	sqlite3_bind_text(stmt, 1, type, -1, SQLITE_STATIC);
	while (status == MT_EXIT_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const char *name = (const char *)sqlite3_column_text(stmt, 0);

		status = mt_snapshot_exec(snapshot, (const char *)sqlite3_column_text(stmt, 1));
		if (status == MT_EXIT_OK && strcmp(type, "table") == 0)
			status = rows_copy(snapshot, name, recording_id);
	}
	if (status == MT_EXIT_OK && rc != SQLITE_DONE)
		status = failed(snapshot, "the source cannot be read");
	sqlite3_finalize(stmt);
	return status;
}

static int everything_copy(struct mt_snapshot *snapshot, int64_t recording_id,
			   int64_t last_pass_id, bool *ret_is_later)
{
	int64_t last = 0;
	int status = mt_snapshot_exec(snapshot, "BEGIN");

	/* The first read makes the snapshot that everything else is read from. */
	if (status == MT_EXIT_OK)
		status = number_read(snapshot,
				     "SELECT max(pass_id) FROM src.pass WHERE recording_id = ?1",
				     recording_id, &last);
	if (status == MT_EXIT_OK && last_pass_id >= 0 && last > last_pass_id) {
		*ret_is_later = true;
		return MT_EXIT_FAILED;
	}
	if (status == MT_EXIT_OK)
		status = header_copy(snapshot);
	if (status == MT_EXIT_OK)
		status = objects_copy(snapshot, "table", recording_id);
	if (status == MT_EXIT_OK)
		status = objects_copy(snapshot, "view", recording_id);
	if (status == MT_EXIT_OK)
		status = mt_snapshot_exec(snapshot, "COMMIT");
	return status == MT_EXIT_OK ? mt_snapshot_exec(snapshot, "DETACH src") : status;
}

int mt_snapshot_copy(struct mt_snapshot *snapshot, const char *source, int64_t recording_id,
		     int64_t last_pass_id, bool *ret_is_later)
{
	int status = database_open(snapshot);

	*ret_is_later = false;
	if (status == MT_EXIT_OK)
		status = source_attach(snapshot, source);
	return status == MT_EXIT_OK
		       ? everything_copy(snapshot, recording_id, last_pass_id, ret_is_later)
		       : status;
}

/* On the disk before it has its name. */
static int sync_file(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	int result = fd < 0 ? -1 : fsync(fd);

	if (fd >= 0)
		close(fd);
	return result;
}

int mt_snapshot_finish(struct mt_snapshot *snapshot)
{
	int rc = sqlite3_close(snapshot->db);

	snapshot->db = NULL;
	if (rc != SQLITE_OK || sync_file(snapshot->temporary) < 0)
		return failed(snapshot, "cannot be written");
	if (mt_out_file_name(snapshot->temporary, snapshot->path, snapshot->overwrites) < 0)
		return failed(snapshot, "cannot get its name");
	free(snapshot->temporary);
	snapshot->temporary = NULL;
	return MT_EXIT_OK;
}

void mt_snapshot_discard(struct mt_snapshot *snapshot)
{
	sqlite3_close(snapshot->db);
	snapshot->db = NULL;
	if (snapshot->temporary)
		(void)unlink(snapshot->temporary);
	free(snapshot->temporary);
	snapshot->temporary = NULL;
}
