/* SPDX-License-Identifier: MIT */
/*
 * Reading a trace in tests, with the sqlite3 library alone. Errors end the test case with the
 * statement and SQLite's message. Statements are formats of sqlite3_mprintf() (%q, %Q, %lld).
 */
#ifndef TEST_DB_H
#define TEST_DB_H

#include <stdbool.h>
#include <stdint.h>

#include <sqlite3.h>

/* Open a file read-only. */
sqlite3 *db_open(const char *path);

void db_close(sqlite3 *db);

/* Prepare a statement; end it with sqlite3_finalize(). */
sqlite3_stmt *db_query(sqlite3 *db, const char *format, ...);

/* True: there is a row; false: the end. */
bool db_step(sqlite3_stmt *stmt);

/* The single value that a statement returns. NULL is an error: ask with ifnull(). */
int64_t db_int(sqlite3 *db, const char *format, ...);
double db_double(sqlite3 *db, const char *format, ...);

/* The single value as text, "(null)" for NULL; valid until the next call. */
const char *db_text(sqlite3 *db, const char *format, ...);

/* A counter of a recording. */
int64_t db_stat(sqlite3 *db, int64_t recording_id, const char *name);

/* What the whole file must satisfy by SQLite's own checks; fails otherwise. */
void db_check_integrity(sqlite3 *db);

#endif
