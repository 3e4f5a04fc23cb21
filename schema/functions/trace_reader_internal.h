/* SPDX-License-Identifier: MIT */
/*
 * Shared by the reader's own files.
 */
#ifndef MT_SCHEMA_FUNCTIONS_TRACE_READER_INTERNAL_H
#define MT_SCHEMA_FUNCTIONS_TRACE_READER_INTERNAL_H

#include "trace_reader.h"

/* Sizes beyond this are damage: a blob of SQLite holds at most 2^31 bytes. */
static const sqlite3_int64 mt_max_count = INT64_C(1) << 31;

enum layer_column {
	LC_LAYER_ID,
	LC_LAYER,
	LC_MODEL_ID,
	LC_N_ROWS,
	LC_TOPK_ID,
	LC_TOPK_ROW,
	LC_ORDER,
	LC_PADDING
};

/* Sets the reader's message and returns the code for damage. */
int mt_reader_fail(struct mt_reader *reader, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Takes the connection's message and returns rc. */
int mt_reader_fail_sqlite(struct mt_reader *reader, int rc);

/* False where the column holds no integer, or none from 0 to mt_max_count. */
bool mt_column_int(sqlite3_stmt *stmt, int column, sqlite3_int64 *ret_value);
bool mt_column_count(sqlite3_stmt *stmt, int column, size_t *ret_count);

int mt_reader_prepare(struct mt_reader *reader, const char *sql, sqlite3_stmt **ret_stmt);

#endif
