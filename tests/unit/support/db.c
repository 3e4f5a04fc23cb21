/* SPDX-License-Identifier: MIT */
/*
 * Thin wrappers of the sqlite3 calls that tests use; see db.h. All of them end the test case
 * when SQLite reports an error.
 */
#include "tests/unit/support/db.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>

#include "tests/unit/support/suite.h"

static _Thread_local char text_of_last_call[16384];

sqlite3 *db_open(const char *path)
{
	sqlite3 *db = NULL;
	int rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL);

	REQUIRE(rc == SQLITE_OK, "%s: cannot open: %s", path, sqlite3_errmsg(db));
	sqlite3_busy_timeout(db, 60000);
	return db;
}

void db_close(sqlite3 *db)
{
	ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *format, va_list arguments)
{
	char *sql = sqlite3_vmprintf(format, arguments);
	sqlite3_stmt *stmt = NULL;

	REQUIRE(sql, "out of memory");
	if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
		ck_abort_msg("%s: %s", sql, sqlite3_errmsg(db));
	sqlite3_free(sql);
	return stmt;
}

sqlite3_stmt *db_query(sqlite3 *db, const char *format, ...)
{
	sqlite3_stmt *stmt;
	va_list arguments;

	va_start(arguments, format);
	stmt = prepare(db, format, arguments);
	va_end(arguments);
	return stmt;
}

bool db_step(sqlite3_stmt *stmt)
{
	int rc = sqlite3_step(stmt);

	REQUIRE(rc == SQLITE_ROW || rc == SQLITE_DONE, "%s: %s", sqlite3_sql(stmt),
		sqlite3_errmsg(sqlite3_db_handle(stmt)));
	return rc == SQLITE_ROW;
}

int64_t db_int(sqlite3 *db, const char *format, ...)
{
	sqlite3_stmt *stmt;
	va_list arguments;
	int64_t value;

	va_start(arguments, format);
	stmt = prepare(db, format, arguments);
	va_end(arguments);
	REQUIRE(db_step(stmt), "no row: %s", sqlite3_sql(stmt));
	REQUIRE(sqlite3_column_type(stmt, 0) == SQLITE_INTEGER, "no integer: %s",
		sqlite3_sql(stmt));
	value = sqlite3_column_int64(stmt, 0);
	REQUIRE(!db_step(stmt), "more than one row: %s", sqlite3_sql(stmt));
	sqlite3_finalize(stmt);
	return value;
}

double db_double(sqlite3 *db, const char *format, ...)
{
	sqlite3_stmt *stmt;
	va_list arguments;
	double value;

	va_start(arguments, format);
	stmt = prepare(db, format, arguments);
	va_end(arguments);
	REQUIRE(db_step(stmt), "no row: %s", sqlite3_sql(stmt));
	REQUIRE(sqlite3_column_type(stmt, 0) != SQLITE_NULL, "NULL: %s", sqlite3_sql(stmt));
	value = sqlite3_column_double(stmt, 0);
	sqlite3_finalize(stmt);
	return value;
}

const char *db_text(sqlite3 *db, const char *format, ...)
{
	const unsigned char *text;
	sqlite3_stmt *stmt;
	va_list arguments;

	va_start(arguments, format);
	stmt = prepare(db, format, arguments);
	va_end(arguments);
	REQUIRE(db_step(stmt), "no row: %s", sqlite3_sql(stmt));
	text = sqlite3_column_text(stmt, 0);
	snprintf(text_of_last_call, sizeof(text_of_last_call), "%s",
		 text ? (const char *)text : "(null)");
	REQUIRE(!db_step(stmt), "more than one row: %s", sqlite3_sql(stmt));
	sqlite3_finalize(stmt);
	return text_of_last_call;
}

int64_t db_stat(sqlite3 *db, int64_t recording_id, const char *name)
{
	return db_int(db, "SELECT value FROM stats WHERE recording_id = %lld AND name = %Q",
		      (long long)recording_id, name);
}

void db_check_integrity(sqlite3 *db)
{
	ck_assert_str_eq(db_text(db, "PRAGMA integrity_check"), "ok");
	ck_assert_str_eq(db_text(db, "SELECT coalesce(group_concat(DISTINCT \"table\" || ' names no '"
				     " || parent), '') FROM pragma_foreign_key_check"), "");
}
