/* SPDX-License-Identifier: MIT */
/*
 * The load of every layer of every pass: how many rows each of its experts got, counted from the
 * stored ids, or as the runtime told it where counts alone were kept. Padding is in neither. Layers
 * of which nothing is known are returned too, so that a caller can say what it left out.
 */
#ifndef MT_SCHEMA_FUNCTIONS_PASS_LOAD_H
#define MT_SCHEMA_FUNCTIONS_PASS_LOAD_H

#include "trace_reader.h"

struct mt_pass_load {
	struct mt_reader reader; /* the pass and layer: see passes_only there */
	sqlite3_stmt *counted_stmt;
	const char *phase; /* passes of this phase alone; a constant, NULL: all */
	uint32_t *counts;  /* [65536]; in use are those of layer.n_slots */
	uint32_t n_used;   /* counts that may not be 0 */
	struct mt_layer_facts layer;
	uint32_t n_slots;  /* experts of every kind */
	bool is_known;	   /* else counts are 0 */
	size_t n_rows;	   /* rows that were counted */
	uint64_t n_routed; /* sum of the counts of routed experts */
};

/*
 * Return SQLite result codes; next SQLITE_ROW or SQLITE_DONE. After an error, reader.error is the
 * message, or NULL where sqlite3_errmsg() has it. One that was zeroed may be closed.
 */
int mt_pass_load_open(struct mt_pass_load *load, sqlite3 *db, const char *name,
		      const struct mt_filter *filter, const char *phase);
int mt_pass_load_next(struct mt_pass_load *load);
void mt_pass_load_close(struct mt_pass_load *load);

#endif
