/* SPDX-License-Identifier: MIT */
/*
 * Tables: cells come one by one and are written at once in JSON, JSON lines and CSV; the aligned
 * table and Markdown keep rows until the widths are known. A row that was begun is always ended by
 * its last cell, so the number of cells is a multiple of the columns whenever a row is written.
 */
#include "cli/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "common/utf8.h"

char *mt_double_text(double value, char buffer[MT_DOUBLE_BYTES])
{
	int digits;

	for (digits = 15; digits <= 17; digits++) {
		snprintf(buffer, MT_DOUBLE_BYTES, "%.*g", digits, value);
		if (strtod(buffer, NULL) == value)
			break;
	}
	return buffer;
}

/* ---- the aligned table and Markdown ---- */

static bool is_aligned(const struct mt_table *table)
{
	return table->output->format == MT_FORMAT_TABLE ||
	       table->output->format == MT_FORMAT_MARKDOWN;
}

/* Characters of @text, which is valid UTF-8. */
static size_t text_width(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

/* Copy @n_bytes of @text to @to, printable: at most four bytes for each. Returns the end. */
static char *printable_copy(char *to, const char *text, size_t n_bytes, bool is_markdown)
{
	size_t length;
	unsigned char c;

	for (; n_bytes > 0; text += length, n_bytes -= length) {
		c = (unsigned char)*text;
		length = 1;
		if (c == '\n' || c == '\t' || c == '\r') {
			*to++ = '\\';
			*to++ = c == '\n' ? 'n' : c == '\t' ? 't' : 'r';
		} else if (c < 0x20 || c == 0x7f) {
			to += sprintf(to, "\\x%02x", c);
		} else if (c < 0x80) {
			if (is_markdown && c == '|')
				*to++ = '\\';
			*to++ = (char)c;
		} else if (!mt_utf8_sequence((const unsigned char *)text, n_bytes, &length)) {
			memcpy(to, "\xef\xbf\xbd", 3);
			to += 3;
		} else if (c == 0xc2 && (unsigned char)text[1] < 0xa0) {
			/* The control characters U+0080 to U+009F. */
			to += sprintf(to, "\\x%02x", (unsigned char)text[1]);
		} else {
			memcpy(to, text, length);
			to += length;
		}
	}
	return to;
}

static void spaces_write(FILE *out, size_t n)
{
	for (; n > 0; n--)
		putc(' ', out);
}

/* Write a cell; the last one of a table's row has nothing after it. */
static void aligned_cell_write(const struct mt_table *table, size_t column, const char *text,
			       bool is_right)
{
	FILE *out = table->output->out;
	bool is_markdown = table->output->format == MT_FORMAT_MARKDOWN;
	bool is_last = column + 1 == table->n_columns;
	size_t width = text_width(text);
	size_t pad = width < table->widths[column] ? table->widths[column] - width : 0;

	if (is_markdown)
		fputs(column ? " " : "| ", out);
	else if (column > 0)
		fputs("  ", out);
	if (is_right)
		spaces_write(out, pad);
	fputs(text, out);
	if (!is_right && (is_markdown || !is_last))
		spaces_write(out, pad);
	if (is_markdown)
		fputs(" |", out);
	if (is_last)
		putc('\n', out);
}

static void aligned_header_write(const struct mt_table *table)
{
	FILE *out = table->output->out;
	bool is_bold = table->output->is_colored;
	size_t i;
	size_t width;

	if (is_bold)
		fputs("\033[1m", out);
	for (i = 0; i < table->n_columns; i++)
		aligned_cell_write(table, i, table->columns[i], table->is_number[i]);
	if (is_bold)
		fputs("\033[0m", out);
	if (table->output->format != MT_FORMAT_MARKDOWN)
		return;
	putc('|', out);
	for (i = 0; i < table->n_columns; i++) {
		for (width = 0; width < table->widths[i] + 1; width++)
			putc('-', out);
		fputs(table->is_number[i] ? ":|" : "-|", out);
	}
	putc('\n', out);
}

static void aligned_rows_write(struct mt_table *table)
{
	size_t i;

	for (i = 0; i < table->n_cells; i++) {
		aligned_cell_write(table, i % table->n_columns, table->cells[i].text,
				   table->cells[i].is_number);
		free(table->cells[i].text);
	}
	table->n_cells = 0;
}

/* Rows of many columns as lines `name  value`, rows apart by an empty line. */
static void vertical_rows_write(struct mt_table *table)
{
	FILE *out = table->output->out;
	size_t width = 0;
	size_t i;

	for (i = 0; i < table->n_columns; i++)
		if (text_width(table->columns[i]) > width)
			width = text_width(table->columns[i]);
	for (i = 0; i < table->n_cells; i++) {
		if (i % table->n_columns == 0 && (i > 0 || table->is_streaming))
			putc('\n', out);
		fprintf(out, "%-*s  %s\n", (int)width, table->columns[i % table->n_columns],
			table->cells[i].text);
		free(table->cells[i].text);
	}
	table->n_cells = 0;
	table->is_streaming = true;
}

/* The widths are known: write what was kept. Only the first call writes the header. */
static void aligned_flush(struct mt_table *table)
{
	size_t i;
	size_t column;
	size_t width;

	if (table->output->is_vertical && table->output->format == MT_FORMAT_TABLE) {
		vertical_rows_write(table);
		return;
	}
	if (!table->is_streaming) {
		for (i = 0; i < table->n_cells; i++) {
			column = i % table->n_columns;
			width = text_width(table->cells[i].text);
			if (width > table->widths[column])
				table->widths[column] = width;
		}
		aligned_header_write(table);
		table->is_streaming = true;
	}
	aligned_rows_write(table);
}

static bool cells_grow(struct mt_table *table)
{
	size_t max = table->max_cells ? table->max_cells * 2 : 64;
	struct mt_cell *cells;

	if (table->n_cells < table->max_cells)
		return true;
	cells = realloc(table->cells, max * sizeof(*cells));
	if (!cells)
		return false;
	table->cells = cells;
	table->max_cells = max;
	return true;
}

/* Keep the value of a first cell that may turn out to be the only one. */
static void bare_keep(struct mt_table *table, const char *text, size_t n_bytes)
{
	if (!table->output->is_bare || table->n_columns != 1 || table->n_rows > 0 ||
	    table->output->format != MT_FORMAT_TABLE)
		return;
	table->bare = malloc(n_bytes + 1);
	if (!table->bare) {
		table->has_failed = true;
		return;
	}
	memcpy(table->bare, text, n_bytes);
	table->n_bare_bytes = n_bytes;
}

static void aligned_cell_add(struct mt_table *table, const char *text, size_t n_bytes,
			     bool is_number, bool is_null)
{
	struct mt_cell *cell;
	char *copy;
	char *end;

	if (table->has_failed)
		return;
	copy = malloc(n_bytes * 4 + 1);
	if (!copy || !cells_grow(table)) {
		free(copy);
		table->has_failed = true;
		return;
	}
	end = printable_copy(copy, text, n_bytes, table->output->format == MT_FORMAT_MARKDOWN);
	*end = '\0';
	cell = &table->cells[table->n_cells++];
	cell->text = copy;
	cell->is_number = is_number || (is_null && table->is_number[table->column]);
	table->n_bytes += n_bytes;
	if (!is_null && !table->is_decided[table->column]) {
		table->is_decided[table->column] = true;
		table->is_number[table->column] = is_number;
	}
}

/* ---- CSV ---- */

/* The empty text is quoted, which tells it from NULL. */
static void csv_text_write(FILE *out, const char *text, size_t n_bytes)
{
	size_t i;

	for (i = 0; i < n_bytes && !strchr("\",\r\n", text[i]); i++)
		;
	if (i == n_bytes && n_bytes > 0) {
		fwrite(text, 1, n_bytes, out);
		return;
	}
	putc('"', out);
	for (i = 0; i < n_bytes; i++) {
		if (text[i] == '"')
			putc('"', out);
		putc(text[i], out);
	}
	putc('"', out);
}

static void csv_header_write(const struct mt_table *table)
{
	size_t i;

	for (i = 0; i < table->n_columns; i++) {
		if (i > 0)
			putc(',', table->output->out);
		csv_text_write(table->output->out, table->columns[i], strlen(table->columns[i]));
	}
	fputs("\r\n", table->output->out);
}

/* ---- cells ---- */

/* Write what stands before a cell in the formats that do not keep rows. */
static void cell_begin(struct mt_table *table)
{
	struct mt_output *output = table->output;

	if (output->format == MT_FORMAT_CSV) {
		if (table->column > 0)
			putc(',', output->out);
	} else if (!is_aligned(table)) {
		if (table->column == 0)
			mt_jsonw_object_begin(&output->json);
		if (table->column == 0 && output->format == MT_FORMAT_JSONL && output->section) {
			mt_jsonw_key(&output->json, "section");
			mt_jsonw_string(&output->json, output->section);
		}
		mt_jsonw_key(&output->json, table->columns[table->column]);
	}
}

static void row_end(struct mt_table *table)
{
	struct mt_output *output = table->output;

	table->column = 0;
	table->n_rows++;
	switch (output->format) {
	case MT_FORMAT_CSV:
		fputs("\r\n", output->out);
		break;
	case MT_FORMAT_JSON:
		mt_jsonw_object_end(&output->json);
		break;
	case MT_FORMAT_JSONL:
		mt_jsonw_object_end(&output->json);
		if (mt_jsonw_end_line(&output->json) != MOETRACE_OK)
			table->has_failed = true;
		break;
	default:
		if (table->is_streaming || table->n_rows >= MT_TABLE_LOOK_AHEAD_ROWS ||
		    table->n_bytes >= MT_TABLE_LOOK_AHEAD_BYTES)
			aligned_flush(table);
	}
}

static void cell_end(struct mt_table *table)
{
	if (++table->column == table->n_columns)
		row_end(table);
}

void mt_table_null(struct mt_table *table)
{
	cell_begin(table);
	bare_keep(table, "-", 1);
	if (is_aligned(table))
		aligned_cell_add(table, "-", 1, false, true);
	else if (table->output->format != MT_FORMAT_CSV)
		mt_jsonw_null(&table->output->json);
	cell_end(table);
}

/* A number as @text, where it is not JSON. */
static void number_text_add(struct mt_table *table, const char *text)
{
	if (is_aligned(table))
		aligned_cell_add(table, text, strlen(text), true, false);
	else
		fputs(text, table->output->out);
}

void mt_table_int64(struct mt_table *table, int64_t value)
{
	char text[48];

	cell_begin(table);
	if (is_aligned(table) && table->is_ns[table->column])
		snprintf(text, sizeof(text), "%.3f", (double)value / 1e6);
	else
		snprintf(text, sizeof(text), "%" PRId64, value);
	bare_keep(table, text, strlen(text));
	if (is_aligned(table) || table->output->format == MT_FORMAT_CSV)
		number_text_add(table, text);
	else
		mt_jsonw_int64(&table->output->json, value);
	cell_end(table);
}

/* For people: six digits, and no exponent where that is as short. */
static void double_text_short(double value, char buffer[MT_DOUBLE_BYTES])
{
	double magnitude = value < 0 ? -value : value;

	snprintf(buffer, MT_DOUBLE_BYTES, magnitude >= 1e5 && magnitude < 1e15 ? "%.1f" : "%.6g",
		 value);
}

void mt_table_double(struct mt_table *table, double value)
{
	char text[MT_DOUBLE_BYTES];

	cell_begin(table);
	if (is_aligned(table)) {
		mt_double_text(value, text);
		bare_keep(table, text, strlen(text));
		if (table->is_ns[table->column])
			snprintf(text, sizeof(text), "%.3f", value / 1e6);
		else
			double_text_short(value, text);
		number_text_add(table, text);
	} else if (table->output->format == MT_FORMAT_CSV) {
		number_text_add(table, mt_double_text(value, text));
	} else {
		mt_jsonw_double(&table->output->json, value);
	}
	cell_end(table);
}

void mt_table_bytes(struct mt_table *table, const char *text, size_t n_bytes)
{
	cell_begin(table);
	bare_keep(table, text, n_bytes);
	if (is_aligned(table))
		aligned_cell_add(table, text, n_bytes, false, false);
	else if (table->output->format == MT_FORMAT_CSV)
		csv_text_write(table->output->out, text, n_bytes);
	else
		mt_jsonw_bytes(&table->output->json, text, n_bytes);
	cell_end(table);
}

void mt_table_text(struct mt_table *table, const char *text)
{
	if (text)
		mt_table_bytes(table, text, strlen(text));
	else
		mt_table_null(table);
}

void mt_table_blob(struct mt_table *table, const void *bytes, size_t n_bytes)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *from = bytes;
	char *text;
	size_t i;

	text = malloc(n_bytes * 2 + 1);
	if (!text) {
		table->has_failed = true;
		mt_table_null(table);
		return;
	}
	for (i = 0; i < n_bytes; i++) {
		text[2 * i] = digits[from[i] >> 4];
		text[2 * i + 1] = digits[from[i] & 15];
	}
	mt_table_bytes(table, text, n_bytes * 2);
	free(text);
}

struct mt_jsonw *mt_table_json_begin(struct mt_table *table)
{
	if (is_aligned(table) || table->output->format == MT_FORMAT_CSV)
		return NULL;
	cell_begin(table);
	return &table->output->json;
}

void mt_table_json_end(struct mt_table *table)
{
	cell_end(table);
}

/* ---- begin and end ---- */

/* In tables for people, nanoseconds are shown in milliseconds: X_ns becomes X_ms. */
static void column_scale(struct mt_table *table, size_t i)
{
	size_t length = strlen(table->columns[i]);

	if (!table->output->is_scaled || !is_aligned(table) || length < 3 ||
	    strcmp(table->columns[i] + length - 3, "_ns") != 0)
		return;
	table->is_ns[i] = true;
	table->columns[i][length - 2] = 'm';
}

static void table_free(struct mt_table *table)
{
	size_t i;

	for (i = 0; i < table->n_cells; i++)
		free(table->cells[i].text);
	for (i = 0; table->columns && i < table->n_columns; i++)
		free(table->columns[i]);
	free(table->columns);
	free(table->is_ns);
	free(table->widths);
	free(table->is_number);
	free(table->is_decided);
	free(table->cells);
	free(table->bare);
}

static char *column_copy(const struct mt_table *table, const char *name)
{
	size_t n_bytes = strlen(name);
	char *copy;

	if (!is_aligned(table))
		return strdup(name);
	copy = malloc(n_bytes * 4 + 1);
	if (copy)
		*printable_copy(copy, name, n_bytes, table->output->format == MT_FORMAT_MARKDOWN) =
			'\0';
	return copy;
}

static int columns_copy(struct mt_table *table, const char *const *columns)
{
	size_t n = table->n_columns;
	size_t i;

	table->columns = calloc(n, sizeof(*table->columns));
	table->is_ns = calloc(n, sizeof(*table->is_ns));
	table->widths = calloc(n, sizeof(*table->widths));
	table->is_number = calloc(n, sizeof(*table->is_number));
	table->is_decided = calloc(n, sizeof(*table->is_decided));
	if (!table->columns || !table->is_ns || !table->widths || !table->is_number ||
	    !table->is_decided)
		return MOETRACE_E_NOMEM;
	for (i = 0; i < n; i++) {
		table->columns[i] = column_copy(table, columns[i]);
		if (!table->columns[i])
			return MOETRACE_E_NOMEM;
		column_scale(table, i);
		table->widths[i] = text_width(table->columns[i]);
	}
	return MOETRACE_OK;
}

int mt_table_begin(struct mt_table *ret_table, struct mt_output *output, const char *const *columns,
		   size_t n_columns)
{
	int status;

	memset(ret_table, 0, sizeof(*ret_table));
	ret_table->output = output;
	ret_table->n_columns = n_columns;
	status = columns_copy(ret_table, columns);
	if (status != MOETRACE_OK) {
		table_free(ret_table);
		return status;
	}
	if (output->format == MT_FORMAT_CSV)
		csv_header_write(ret_table);
	else if (output->format == MT_FORMAT_JSON)
		mt_jsonw_array_begin(&output->json);
	return MOETRACE_OK;
}

static void bare_write(struct mt_table *table)
{
	fwrite(table->bare, 1, table->n_bare_bytes, table->output->out);
	putc('\n', table->output->out);
}

int mt_table_end(struct mt_table *table)
{
	int status = table->has_failed ? MOETRACE_E_NOMEM : MOETRACE_OK;

	table->output->n_rows = table->n_rows;
	/* No value is printed as nothing: a header alone would look like one. */
	bool is_nothing = table->output->is_bare && table->n_columns == 1 && table->n_rows == 0;

	if (table->bare && table->n_rows == 1 && !table->has_failed)
		bare_write(table);
	else if (is_aligned(table) && !table->has_failed && !is_nothing)
		aligned_flush(table);
	else if (table->output->format == MT_FORMAT_JSON)
		mt_jsonw_array_end(&table->output->json);
	table_free(table);
	return status;
}
