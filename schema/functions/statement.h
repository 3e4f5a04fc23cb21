/* SPDX-License-Identifier: MIT */
/*
 * SQL that a person wrote: what is asked of it before it runs.
 */
#ifndef MT_SCHEMA_FUNCTIONS_STATEMENT_H
#define MT_SCHEMA_FUNCTIONS_STATEMENT_H

#include <sqlite3.h>
#include <stdbool.h>

/* Whether nothing but blanks, comments and semicolons follows. */
static inline bool mt_sql_is_end(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *stmt;
	int rc;

	while (*sql) {
		rc = sqlite3_prepare_v2(db, sql, -1, &stmt, &sql);
		sqlite3_finalize(stmt);
		if (rc != SQLITE_OK || stmt)
			return false;
	}
	return true;
}

#endif
