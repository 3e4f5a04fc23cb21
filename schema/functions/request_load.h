/* SPDX-License-Identifier: MIT */
/*
 * How often each request chose each expert, for moe_similarity() and moe_outliers(): rows that the
 * request itself computed in its last attempt. A request whose rows are all read is handed over; only
 * those that are not, a batch or two of them, are in memory.
 */
#ifndef MT_SCHEMA_FUNCTIONS_REQUEST_LOAD_H
#define MT_SCHEMA_FUNCTIONS_REQUEST_LOAD_H

#include "diff.h"

struct mt_request_load {
	struct mt_diff diff;
	size_t *first_cell; /* a layer: its first expert among all of them; [n_layers + 1] */
	size_t n_cells;
	void *state;
	/* @n_rows: positions times layers. @tokens [n_cells]. Returns an SQLite code. */
	int (*request)(void *state, sqlite3_int64 request_id, uint64_t n_rows,
		       const uint32_t *tokens);
};

/* @load is zeroed; @recording NULL: the only one. */
int mt_request_load_open(struct mt_request_load *load, sqlite3 *db, const char *name,
			 struct mt_tvf_rows *rows, sqlite3_value *recording);
/* Choose model @index. SQLITE_DONE: there are no more. */
int mt_request_load_model(struct mt_request_load *load, size_t index);
/* Read all requests, or @request_id alone (0: all). */
int mt_request_load_read(struct mt_request_load *load, sqlite3_int64 request_id);
void mt_request_load_close(struct mt_request_load *load);

/*
 * What chance makes of a load: the mean of |share - p| where @n choices are drawn that take an expert
 * with probability @p.
 */
double mt_chance_deviation(double n, double p);

#endif
