/* SPDX-License-Identifier: MIT */
/*
 * Times of layers in passes, as view layer_time has them, of a trace of any size: of all passes, or
 * where these have too many operations, of some that lie all over the file, each of them whole. The
 * table of operations has no index but ascends in time, so stretches of it are read. A pass counts if
 * none of its operations lies near an end of its stretch; where operations were not told in the order of
 * passes, all of them are read, and every so manieth pass counts.
 */
#ifndef MT_SCHEMA_FUNCTIONS_LAYER_TIMES_H
#define MT_SCHEMA_FUNCTIONS_LAYER_TIMES_H

#include <sqlite3.h>
#include <stdbool.h>

#define MT_LAYER_TIMES_OPERATIONS 400000

struct mt_layer_times;

/* A layer of a pass. What may be unknown has a flag. */
struct mt_layer_time {
	sqlite3_int64 recording_id, pass_id, model_id, layer_id, layer;
	const char *phase; /* valid until the next one */
	sqlite3_int64 n_rows, active_experts, selected_ns, duration_ns, busy_ns, experts_ns;
	bool has_n_rows, has_active_experts, has_selected, has_duration, has_experts;
	bool is_kernel; /* its operations were timed; else from its selection to the next one */
};

/* Choose passes with some @n_operations together, and read these. Returns an SQLite code; after any,
 * *ret_times is to be freed. */
int mt_layer_times_begin(sqlite3 *db, sqlite3_int64 n_operations, struct mt_layer_times **ret_times);
void mt_layer_times_free(struct mt_layer_times *times);

/* The next one, pass by pass. Returns SQLITE_ROW, SQLITE_DONE or an error. */
int mt_layer_times_next(struct mt_layer_times *times, struct mt_layer_time *ret_time);

#endif
