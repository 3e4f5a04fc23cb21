/* SPDX-License-Identifier: MIT */
/*
 * The virtual table behind table-valued functions. The rows at hand are cells one after the other; the arguments of the query are kept to be read back as hidden columns.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "array.h"
#include "mt_sql.h"
#include "tvf.h"

#include <stdarg.h>
#include <string.h>

struct mt_tvf_cell {
	int type; /* SQLITE_NULL, SQLITE_INTEGER, SQLITE_FLOAT or SQLITE_TEXT */
	union {
		sqlite3_int64 int64;
		double real;
		const char *text;
	} value;
};

struct tvf_table {
	sqlite3_vtab base;
	sqlite3 *db;
	const struct mt_tvf *tvf;
};

struct tvf_cursor {
	sqlite3_vtab_cursor base;
	sqlite3_value *arguments[MT_TVF_MAX_ARGUMENTS];
	struct mt_tvf_rows rows;
	void *state;	      /* of a function whose rows come a few at a time; NULL: none */
	sqlite3_int64 before; /* cells that were at hand earlier */
	size_t at;	      /* cell that the current row begins with */
};

/* ---- rows ---- */

static int add(struct mt_tvf_rows *rows, struct mt_tvf_cell cell)
{
	if (mt_array_reserve(&rows->cells, &rows->size, rows->n_cells + 1,
			     sizeof(*rows->cells)) != SQLITE_OK)
		return SQLITE_NOMEM;
	rows->cells[rows->n_cells++] = cell;
	return SQLITE_OK;
}

int mt_tvf_null(struct mt_tvf_rows *rows)
{
	return add(rows, (struct mt_tvf_cell){.type = SQLITE_NULL});
}

int mt_tvf_int64(struct mt_tvf_rows *rows, sqlite3_int64 value)
{
	return add(rows, (struct mt_tvf_cell){.type = SQLITE_INTEGER, .value.int64 = value});
}

int mt_tvf_double(struct mt_tvf_rows *rows, double value)
{
	return add(rows, (struct mt_tvf_cell){.type = SQLITE_FLOAT, .value.real = value});
}

int mt_tvf_known(struct mt_tvf_rows *rows, bool is_known, double value)
{
	return is_known ? mt_tvf_double(rows, value) : mt_tvf_null(rows);
}

int mt_tvf_text(struct mt_tvf_rows *rows, const char *text)
{
	return add(rows, (struct mt_tvf_cell){.type = text ? SQLITE_TEXT : SQLITE_NULL,
					      .value.text = text});
}

int mt_tvf_fail(struct mt_tvf_rows *rows, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	sqlite3_free(rows->error);
	rows->error = sqlite3_vmprintf(format, arguments);
	va_end(arguments);
	return MT_SQL_ARGUMENT;
}

int mt_tvf_uint(struct mt_tvf_rows *rows, const struct mt_tvf *tvf, sqlite3_value *const *arguments,
		int index, const char *argument, uint32_t min, uint32_t max, uint32_t fallback,
		uint32_t *ret_value)
{
	sqlite3_value *value = arguments[index];
	sqlite3_int64 number = fallback;

	if (value) {
		number = sqlite3_value_int64(value);
		if (sqlite3_value_numeric_type(value) != SQLITE_INTEGER || number < min ||
		    number > max)
			return mt_tvf_fail(rows, "%s: %s: give a whole number from %u to %u",
					   tvf->name, argument, min, max);
	}
	*ret_value = (uint32_t)number;
	return SQLITE_OK;
}

/* ---- the virtual table ---- */

static int tvf_connect(sqlite3 *db, void *aux, int argc, const char *const *argv,
		       sqlite3_vtab **ret_table, char **ret_error)
{
	const struct mt_tvf *tvf = aux;
	struct tvf_table *table;
	int rc = sqlite3_declare_vtab(db, tvf->declaration);

	(void)argc, (void)argv, (void)ret_error;
	if (rc != SQLITE_OK)
		return rc;
	table = sqlite3_malloc(sizeof(*table));
	if (!table)
		return SQLITE_NOMEM;
	memset(table, 0, sizeof(*table));
	table->db = db;
	table->tvf = tvf;
	sqlite3_vtab_config(db, SQLITE_VTAB_INNOCUOUS);
	*ret_table = &table->base;
	return SQLITE_OK;
}

static int tvf_disconnect(sqlite3_vtab *table)
{
	sqlite3_free(table);
	return SQLITE_OK;
}

/* Arguments change the rows: they are handed over, or this plan is not one. */
static int tvf_best_index(sqlite3_vtab *base, sqlite3_index_info *info)
{
	const struct mt_tvf *tvf = ((struct tvf_table *)base)->tvf;
	int constraint_of[MT_TVF_MAX_ARGUMENTS], n_given = 0;
	unsigned mask = 0;

	for (int i = 0; i < info->nConstraint; i++) {
		const struct sqlite3_index_constraint *c = &info->aConstraint[i];
		int argument = c->iColumn - tvf->n_columns;

		if (argument < 0)
			continue;
		if (!c->usable || c->op != SQLITE_INDEX_CONSTRAINT_EQ || mask & 1u << argument)
			return SQLITE_CONSTRAINT;
		constraint_of[argument] = i;
		mask |= 1u << argument;
	}
	for (int i = 0; i < tvf->n_arguments; i++) {
		if (!(mask & 1u << i))
			continue;
		info->aConstraintUsage[constraint_of[i]].argvIndex = ++n_given;
		info->aConstraintUsage[constraint_of[i]].omit = 1;
	}
	info->idxNum = (int)mask;
	info->estimatedCost = 1000 * tvf->n_rows;
	info->estimatedRows = (sqlite3_int64)tvf->n_rows;
	return SQLITE_OK;
}

static int tvf_open(sqlite3_vtab *table, sqlite3_vtab_cursor **ret_cursor)
{
	struct tvf_cursor *cursor = sqlite3_malloc(sizeof(*cursor));

	(void)table;
	if (!cursor)
		return SQLITE_NOMEM;
	memset(cursor, 0, sizeof(*cursor));
	*ret_cursor = &cursor->base;
	return SQLITE_OK;
}

static void clear(struct tvf_cursor *cursor)
{
	if (cursor->state)
		((struct tvf_table *)cursor->base.pVtab)->tvf->end(cursor->state);
	cursor->state = NULL;
	cursor->before = 0;
	for (int i = 0; i < MT_TVF_MAX_ARGUMENTS; i++) {
		sqlite3_value_free(cursor->arguments[i]);
		cursor->arguments[i] = NULL;
	}
	sqlite3_free(cursor->rows.error);
	cursor->rows.error = NULL;
	cursor->rows.n_cells = 0;
	cursor->at = 0;
}

static int tvf_close(sqlite3_vtab_cursor *base)
{
	struct tvf_cursor *cursor = (struct tvf_cursor *)base;

	clear(cursor);
	sqlite3_free(cursor->rows.cells);
	sqlite3_free(cursor);
	return SQLITE_OK;
}

/* Hands the function's message over to SQLite. */
static int finish_rows(struct tvf_cursor *cursor, int rc)
{
	if (rc != SQLITE_OK && cursor->rows.error) {
		sqlite3_free(cursor->base.pVtab->zErrMsg);
		cursor->base.pVtab->zErrMsg = cursor->rows.error;
		cursor->rows.error = NULL;
	}
	return rc;
}

static int tvf_filter(sqlite3_vtab_cursor *base, int mask, const char *name, int n_given,
		      sqlite3_value **given)
{
	struct tvf_cursor *cursor = (struct tvf_cursor *)base;
	const struct tvf_table *table = (const struct tvf_table *)base->pVtab;
	const struct mt_tvf *tvf = table->tvf;
	int next = 0, rc;

	(void)name, (void)n_given;
	clear(cursor);
	for (int i = 0; i < tvf->n_arguments; i++) {
		sqlite3_value *value = (unsigned)mask & 1u << i ? given[next++] : NULL;

		if (!value || sqlite3_value_type(value) == SQLITE_NULL)
			continue;
		cursor->arguments[i] = sqlite3_value_dup(value);
		if (!cursor->arguments[i])
			return SQLITE_NOMEM;
	}
	if (tvf->compute)
		return finish_rows(cursor,
				   tvf->compute(table->db, cursor->arguments, &cursor->rows));
	rc = tvf->begin(table->db, cursor->arguments, &cursor->rows, &cursor->state);
	if (rc == SQLITE_OK)
		rc = tvf->more(cursor->state, &cursor->rows);
	return finish_rows(cursor, rc);
}

static int tvf_next(sqlite3_vtab_cursor *base)
{
	struct tvf_cursor *cursor = (struct tvf_cursor *)base;
	const struct mt_tvf *tvf = ((struct tvf_table *)base->pVtab)->tvf;

	cursor->at += (size_t)tvf->n_columns;
	if (!cursor->state || cursor->at < cursor->rows.n_cells)
		return SQLITE_OK;
	cursor->before += (sqlite3_int64)cursor->rows.n_cells;
	cursor->rows.n_cells = 0;
	cursor->at = 0;
	return finish_rows(cursor, tvf->more(cursor->state, &cursor->rows));
}

static int tvf_eof(sqlite3_vtab_cursor *base)
{
	const struct tvf_cursor *cursor = (const struct tvf_cursor *)base;

	return cursor->at >= cursor->rows.n_cells;
}

static int tvf_column(sqlite3_vtab_cursor *base, sqlite3_context *context, int column)
{
	const struct tvf_cursor *cursor = (const struct tvf_cursor *)base;
	const int argument = column - ((struct tvf_table *)base->pVtab)->tvf->n_columns;
	const struct mt_tvf_cell *cell = &cursor->rows.cells[cursor->at + (size_t)column];

	if (argument >= 0) {
		if (cursor->arguments[argument])
			sqlite3_result_value(context, cursor->arguments[argument]);
	} else if (cell->type == SQLITE_INTEGER) {
		sqlite3_result_int64(context, cell->value.int64);
	} else if (cell->type == SQLITE_FLOAT) {
		sqlite3_result_double(context, cell->value.real);
	} else if (cell->type == SQLITE_TEXT) {
		sqlite3_result_text(context, cell->value.text, -1, SQLITE_STATIC);
	}
	return SQLITE_OK;
}

static int tvf_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *ret_rowid)
{
	const struct tvf_cursor *cursor = (const struct tvf_cursor *)base;

	*ret_rowid = cursor->before + (sqlite3_int64)cursor->at;
	return SQLITE_OK;
}

static const sqlite3_module tvf_module = {
	.iVersion = 0,
	.xConnect = tvf_connect,
	.xBestIndex = tvf_best_index,
	.xDisconnect = tvf_disconnect,
	.xOpen = tvf_open,
	.xClose = tvf_close,
	.xFilter = tvf_filter,
	.xNext = tvf_next,
	.xEof = tvf_eof,
	.xColumn = tvf_column,
	.xRowid = tvf_rowid,
};

int mt_tvf_register(sqlite3 *db, const struct mt_tvf *tvf)
{
	return sqlite3_create_module_v2(db, tvf->name, &tvf_module, (void *)tvf, NULL);
}
