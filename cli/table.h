/* SPDX-License-Identifier: MIT */
/*
 * Output of rows in four formats: an aligned table, JSON (an array of objects), JSON lines, CSV
 * after RFC 4180; and Markdown for reports. Rows are streamed: the table's widths come from the
 * first rows, later and wider cells are printed whole. An output may be divided into named
 * sections; JSON then is one object with the sections as members. NULL is '-' in a table, empty
 * in CSV and null in JSON; blobs are hex digits. Text in a table has its control characters
 * escaped, so that no file can drive the terminal.
 */
#ifndef MT_CLI_TABLE_H
#define MT_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/jsonw.h"

enum mt_format {
	MT_FORMAT_TABLE,
	MT_FORMAT_JSON,
	MT_FORMAT_JSONL,
	MT_FORMAT_CSV,
	MT_FORMAT_MARKDOWN,
};

/* The format called @name. Returns whether there is one. */
bool mt_format_parse(const char *name, enum mt_format *ret_format);

/* Whether programs read it: then no rows are an empty document, else nothing at all. */
bool mt_format_is_data(enum mt_format format);

/* Rows that a table looks at to find its widths, and their largest total size. */
#define MT_TABLE_LOOK_AHEAD_ROWS  2000
#define MT_TABLE_LOOK_AHEAD_BYTES (1u << 20)

struct mt_output {
	FILE *out;
	enum mt_format format;
	struct mt_jsonw json;
	bool is_colored;  /* escape sequences are wanted */
	bool is_bare;	  /* a table of one row and one column is its value alone, unchanged */
	bool is_vertical; /* in tables, a row is a line for each of its columns */
	bool is_scaled;	  /* in tables, columns X_ns are shown in milliseconds as X_ms */
	bool in_sections;
	uint64_t n_rows; /* of the table that ended last */
	uint32_t n_sections;
	const char *section;
};

/* @out must stay open until mt_output_end(). */
void mt_output_begin(struct mt_output *output, FILE *out, enum mt_format format);

/* Begin an output of several named tables, in place of a single one. */
void mt_output_sections(struct mt_output *output);

/**
 * Name the next table.
 *
 * @name   The member's name in JSON, and what a line of JSONL and CSV begins with.
 * @title  The heading of tables; NULL: none.
 */
void mt_output_section(struct mt_output *output, const char *name, const char *title);

/* A line of prose: in tables and Markdown only. */
void mt_output_line(struct mt_output *output, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* End the output. Returns MOETRACE_OK, or a negative status: it could not all be written. */
int mt_output_end(struct mt_output *output);

struct mt_cell {
	char *text;
	bool is_number;
};

struct mt_table {
	struct mt_output *output;
	char **columns;
	bool *is_ns; /* shown in milliseconds */
	size_t n_columns;
	size_t *widths;
	bool *is_number; /* of the first cell that is not NULL */
	bool *is_decided;
	struct mt_cell *cells; /* of the rows looked ahead, or of the current row */
	size_t n_cells;
	size_t max_cells;
	size_t n_bytes;
	char *bare; /* the first cell unchanged, where it may be printed bare */
	size_t n_bare_bytes;
	size_t column; /* of the next cell */
	uint64_t n_rows;
	bool is_streaming;
	bool has_failed; /* out of memory */
};

/**
 * Begin a table.
 *
 * @columns  [n_columns], copied.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_NOMEM  @ret_table needs no end
 */
int mt_table_begin(struct mt_table *ret_table, struct mt_output *output, const char *const *columns,
		   size_t n_columns);

/* The next cell of the row; the last one of a row ends it. */
void mt_table_null(struct mt_table *table);
void mt_table_int64(struct mt_table *table, int64_t value);
void mt_table_double(struct mt_table *table, double value);
void mt_table_text(struct mt_table *table, const char *text);
void mt_table_bytes(struct mt_table *table, const char *text, size_t n_bytes);
void mt_table_blob(struct mt_table *table, const void *bytes, size_t n_bytes);

/**
 * In JSON and JSON lines, begin a cell that is a value of several parts.
 *
 * Returns the writer to write one value to, followed by mt_table_json_end(); NULL in the other
 * formats, where the caller adds a plain cell instead.
 */
struct mt_jsonw *mt_table_json_begin(struct mt_table *table);
void mt_table_json_end(struct mt_table *table);

/* End the table and free it. Returns MOETRACE_OK, or MOETRACE_E_NOMEM: rows are missing. */
int mt_table_end(struct mt_table *table);

/* Decimal digits that read back as @value, in any locale. Returns @buffer. */
#define MT_DOUBLE_BYTES 32
char *mt_double_text(double value, char buffer[MT_DOUBLE_BYTES]);

#endif
