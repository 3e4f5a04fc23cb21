/* SPDX-License-Identifier: MIT */
/*
 * Table-valued functions: what such a function has to say is its declaration and how its rows come:
 * all of them by one call when the query begins, or a few at a time. Its arguments are the hidden
 * columns at the end of the declaration, `FROM moe_x(first, second)`; an argument that is absent
 * or NULL arrives as NULL.
 */
#ifndef MT_SCHEMA_FUNCTIONS_TVF_H
#define MT_SCHEMA_FUNCTIONS_TVF_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MT_TVF_MAX_ARGUMENTS 8

/* The rows so far, and what went wrong. */
struct mt_tvf_rows {
	struct mt_tvf_cell *cells;
	size_t n_cells, size;
	char *error; /* sqlite3_malloc'ed; NULL: sqlite3_errmsg() has it, or out of memory */
};

struct mt_tvf {
	const char *name;
	const char *declaration; /* CREATE TABLE ... (columns, arguments HIDDEN) */
	int n_columns;		 /* without the arguments */
	int n_arguments;
	double n_rows; /* about, for the planner */
	/* @arguments [n_arguments]: NULL where absent or SQL NULL. Returns an SQLite code. */
	int (*compute)(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows);
	/*
	 * In place of compute. The arguments stay valid until the end. more appends the next rows;
	 * none: there are no more. end is called for every state that begin set, failed or not.
	 */
	int (*begin)(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows,
		     void **ret_state);
	int (*more)(void *state, struct mt_tvf_rows *rows);
	void (*end)(void *state);
};

/* @tvf must stay valid as long as @db. */
int mt_tvf_register(sqlite3 *db, const struct mt_tvf *tvf);

/* The next cell; n_columns of them are a row. Return an SQLite code. */
int mt_tvf_null(struct mt_tvf_rows *rows);
int mt_tvf_int64(struct mt_tvf_rows *rows, sqlite3_int64 value);
int mt_tvf_double(struct mt_tvf_rows *rows, double value);
int mt_tvf_known(struct mt_tvf_rows *rows, bool is_known, double value); /* or NULL */
/* @text must be a constant, or stay valid as long as the row. */
int mt_tvf_text(struct mt_tvf_rows *rows, const char *text);

/* Set the error's text: the arguments ask for what cannot be done. Returns MT_SQL_ARGUMENT. */
int mt_tvf_fail(struct mt_tvf_rows *rows, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/**
 * Argument @index as a whole number in [@min, @max].
 *
 * @fallback  Taken when it is absent.
 */
int mt_tvf_uint(struct mt_tvf_rows *rows, const struct mt_tvf *tvf, sqlite3_value *const *arguments,
		int index, const char *argument, uint32_t min, uint32_t max, uint32_t fallback,
		uint32_t *ret_value);

#endif
