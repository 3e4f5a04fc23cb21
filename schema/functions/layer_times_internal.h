/* SPDX-License-Identifier: MIT */
/*
 * What is remembered while operations are read: of each layer of a pass from when to when they lasted, and
 * which passes count.
 */
#ifndef MT_SCHEMA_FUNCTIONS_LAYER_TIMES_INTERNAL_H
#define MT_SCHEMA_FUNCTIONS_LAYER_TIMES_INTERNAL_H

#include "layer_times.h"

#include <stddef.h>
#include <stdint.h>

/* A layer of a pass whose operations were timed; pass_id 0: a free place. */
struct mt_timed {
	sqlite3_int64 pass_id, layer_id, start_ns, end_ns, busy_ns, experts_ns;
	bool has_experts;
};

/* An open hash, at most half full. */
struct mt_timed_table {
	struct mt_timed *places;
	size_t n, n_places;
};

/* What is at (pass, layer), made if need be; NULL: no memory. */
struct mt_timed *mt_timed_at(struct mt_timed_table *table, sqlite3_int64 pass_id,
			     sqlite3_int64 layer_id);
/* NULL: nothing is there. */
const struct mt_timed *mt_timed_find(const struct mt_timed_table *table, sqlite3_int64 pass_id,
				     sqlite3_int64 layer_id);
void mt_timed_add(struct mt_timed *timed, sqlite3_int64 start_ns, sqlite3_int64 end_ns,
		  bool is_experts);

/* Passes that count: every so manieth, or those of a list. */
struct mt_passes {
	sqlite3_int64 stride; /* 0: those of the list */
	sqlite3_int64 *ids;   /* ascending */
	size_t n, size;
};

bool mt_passes_have(const struct mt_passes *passes, sqlite3_int64 pass_id);
/* In ascending order. Returns whether there was memory. */
bool mt_passes_add(struct mt_passes *passes, sqlite3_int64 pass_id);

/* Read stretches of table kernel, or all of it, into @table, and choose passes. Return SQLite codes. */
int mt_kernel_times_read(sqlite3 *db, sqlite3_int64 n_operations, struct mt_timed_table *table,
			 struct mt_passes *passes);
/* Read launches of graphs of the passes that count. */
int mt_graph_times_read(sqlite3 *db, const struct mt_passes *passes, struct mt_timed_table *table);

/* One integer of a statement without parameters; NULL is @otherwise. */
int mt_layer_times_number(sqlite3 *db, const char *sql, sqlite3_int64 otherwise,
			  sqlite3_int64 *ret_number);

/* Tables and views of the file alone: a view of one of the functions' names must not recurse. */
int mt_layer_times_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret_stmt);

#endif
