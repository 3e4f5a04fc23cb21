/* SPDX-License-Identifier: MIT */
/*
 * Finding the request that a command line names. A name that fits several is an error, since which
 * of them is meant cannot be known.
 */
#include "cli/request_find.h"

#include <inttypes.h>

static int none_report(const struct mt_trace *trace, uint64_t recording_id, const char *id)
{
	mt_error("%s: has no request '%s'%s; 'moetrace requests %s' lists them", trace->path, id,
		 recording_id ? " in this recording" : "", trace->path);
	return MT_EXIT_NOT_FOUND;
}

static int several_report(const struct mt_trace *trace, const char *id, int64_t a, int64_t b)
{
	mt_error("%s: several requests are called '%s', such as @%" PRId64 " and @%" PRId64
		 "; name one of them as @N, or its recording with --recording N",
		 trace->path, id, a, b);
	return MT_EXIT_USAGE;
}

/* The rows that the name fits: by number if it is @N, else by external id. */
static sqlite3_stmt *find_prepare(const struct mt_trace *trace, uint64_t recording_id,
				  const char *id)
{
	sqlite3_stmt *stmt;
	uint64_t number = 0;
	bool is_number;

	is_number = id[0] == '@' && mt_parse_uint(id + 1, 0, INT64_MAX, &number);
	stmt = mt_trace_prepare(
		trace, is_number ? "SELECT request_id FROM request WHERE request_id = ?2 "
				   "AND (?1 IS NULL OR recording_id = ?1)"
				 : "SELECT request_id FROM request WHERE external_id = ?2 "
				   "AND (?1 IS NULL OR recording_id = ?1) ORDER BY request_id");
	if (!stmt)
		return NULL;
	if (recording_id != 0)
		sqlite3_bind_int64(stmt, 1, (int64_t)recording_id);
	if (is_number)
		sqlite3_bind_int64(stmt, 2, (int64_t)number);
	else
		sqlite3_bind_text(stmt, 2, id, -1, SQLITE_STATIC);
	return stmt;
}

int mt_request_find(const struct mt_trace *trace, uint64_t recording_id, const char *id,
		    int64_t *ret_request_id)
{
	sqlite3_stmt *stmt = find_prepare(trace, recording_id, id);
	int64_t request_id = 0;
	int status = MT_EXIT_OK;
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_DONE)
		status = none_report(trace, recording_id, id);
	if (rc == SQLITE_ROW) {
		request_id = sqlite3_column_int64(stmt, 0);
		rc = sqlite3_step(stmt);
		if (rc == SQLITE_ROW)
			status = several_report(trace, id, request_id,
						sqlite3_column_int64(stmt, 0));
	}
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		status = mt_trace_error(trace);
	sqlite3_finalize(stmt);
	if (status == MT_EXIT_OK)
		*ret_request_id = request_id;
	return status;
}
