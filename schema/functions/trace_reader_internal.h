/* SPDX-License-Identifier: MIT */
/*
 * Shared by the reader's own files.
 */
#ifndef MT_SCHEMA_FUNCTIONS_TRACE_READER_INTERNAL_H
#define MT_SCHEMA_FUNCTIONS_TRACE_READER_INTERNAL_H

#include "trace_reader.h"

/* Sizes beyond this are damage: a blob of SQLite holds at most 2^31 bytes. */
static const sqlite3_int64 mt_max_count = INT64_C(1) << 31;

/* Columns of the statements that give slices. */
enum slice_column {
	SC_PASS_ID,
	SC_RECORDING_ID,
	SC_MODEL_ID,
	SC_PASS_ROWS,
	SC_SLICE,
	SC_REQUEST_ID,
	SC_ATTEMPT,
	SC_FIRST_POSITION,
	SC_POSITIONS,
	SC_ROW_OFFSET,
	SC_N_ROWS,
	SC_PHASE,
	SC_ACCEPTED
};

/* Those of the statements that give a pass a row; the last two share their place. */
enum uniform_column { UC_PHASE = SC_PASS_ROWS + 1, UC_END, UC_BEGIN_NS = UC_END };

enum layer_column {
	LC_LAYER_ID,
	LC_LAYER,
	LC_MODEL_ID,
	LC_N_ROWS,
	LC_TOPK_ID,
	LC_TOPK_ROW,
	LC_ORDER,
	LC_PADDING,
	LC_MAP_EPOCH
};

/* The same where the layers of all passes are scanned. */
enum scan_column {
	KC_PASS_ID,
	KC_LAYER_ID,
	KC_N_ROWS,
	KC_TOPK_ID,
	KC_TOPK_ROW,
	KC_STATE,
	KC_MAP_EPOCH
};

/* Instead of the last two, with MT_READ_EXTRAS. */
enum scan_extra { KX_ORDER = KC_TOPK_ROW + 1, KX_PADDING, KX_MAP_EPOCH };

/* After the last two, with both. */
enum scan_choice { KB_ORDER = KC_MAP_EPOCH + 1, KB_PADDING };

/* Sets the reader's message and returns the code for damage. */
int mt_reader_fail(struct mt_reader *reader, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Takes the connection's message and returns rc. */
int mt_reader_fail_sqlite(struct mt_reader *reader, int rc);

/* False where the column holds no integer, or none from 0 to mt_max_count. */
bool mt_column_int(sqlite3_stmt *stmt, int column, sqlite3_int64 *ret_value);
bool mt_column_count(sqlite3_stmt *stmt, int column, size_t *ret_count);

/* Let the scan of the layers go on at the current pass. */
int mt_reader_scan_pass(struct mt_reader *reader);

/* The text of a phase as a constant, @before if it is that one; NULL: it is none. */
const char *mt_reader_phase(const char *text, const char *before);

/* @sql with every "main." replaced by the schema; to be sqlite3_free'd; NULL: out of memory. */
char *mt_sql_in_schema(const char *sql, const char *schema);

int mt_reader_prepare(struct mt_reader *reader, const char *sql, sqlite3_stmt **ret_stmt);

#endif
