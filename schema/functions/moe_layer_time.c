/* SPDX-License-Identifier: MIT */
/*
 * moe_layer_time(operations): view layer_time, of passes that have no more operations together than
 * that, about, and lie all over the file (400 000 unless told otherwise); of all passes where the
 * file has no more. For figures of a file of any size.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "layer_times.h"
#include "mt_sql.h"
#include "tvf.h"

static int begin(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows, void **ret_state);
static int more(void *state, struct mt_tvf_rows *rows);
static void end(void *state);

static const struct mt_tvf layer_time = {
	.name = "moe_layer_time",
	.declaration =
		"CREATE TABLE moe_layer_time (recording_id INTEGER, pass_id INTEGER, model_id INTEGER,"
		" layer_id INTEGER, layer INTEGER, phase TEXT, n_rows INTEGER, active_experts INTEGER,"
		" selected_ns INTEGER, duration_ns INTEGER, source TEXT, busy_ns INTEGER,"
		" experts_ns INTEGER, operations INTEGER HIDDEN)",
	.n_columns = 13,
	.n_arguments = 1,
	.n_rows = 100000,
	.begin = begin,
	.more = more,
	.end = end,
};

static int begin(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows, void **ret_state)
{
	struct mt_layer_times *times;
	uint32_t n_operations;
	int rc = mt_tvf_uint(rows, &layer_time, arguments, 0, "operations", 1, INT32_MAX,
			     MT_LAYER_TIMES_OPERATIONS, &n_operations);

	if (rc != SQLITE_OK)
		return rc;
	rc = mt_layer_times_begin(db, n_operations, &times);
	*ret_state = times;
	return rc;
}

static int number(struct mt_tvf_rows *rows, bool is_known, sqlite3_int64 value)
{
	return is_known ? mt_tvf_int64(rows, value) : mt_tvf_null(rows);
}

static int row_add(struct mt_tvf_rows *rows, const struct mt_layer_time *time)
{
	const struct {
		bool is_known;
		sqlite3_int64 value;
	} first[] = {{true, time->recording_id}, {true, time->pass_id}, {true, time->model_id},
		     {true, time->layer_id}, {true, time->layer}},
	  then[] = {{time->has_n_rows, time->n_rows}, {time->has_active_experts, time->active_experts},
		    {time->has_selected, time->selected_ns}, {time->has_duration, time->duration_ns}};
	int rc = SQLITE_OK;

	for (size_t i = 0; rc == SQLITE_OK && i < sizeof(first) / sizeof(first[0]); i++)
		rc = number(rows, first[i].is_known, first[i].value);
	if (rc == SQLITE_OK)
		rc = time->phase ? mt_tvf_text(rows, time->phase) : mt_tvf_null(rows);
	for (size_t i = 0; rc == SQLITE_OK && i < sizeof(then) / sizeof(then[0]); i++)
		rc = number(rows, then[i].is_known, then[i].value);
	if (rc == SQLITE_OK)
		rc = mt_tvf_text(rows, time->is_kernel ? "kernel" : "selection");
	if (rc == SQLITE_OK)
		rc = number(rows, time->is_kernel, time->busy_ns);
	if (rc == SQLITE_OK)
		rc = number(rows, time->is_kernel && time->has_experts, time->experts_ns);
	return rc;
}

static int more(void *state, struct mt_tvf_rows *rows)
{
	struct mt_layer_time time;
	int rc = mt_layer_times_next(state, &time);

	if (rc == SQLITE_ROW)
		return row_add(rows, &time);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static void end(void *state)
{
	mt_layer_times_free(state);
}

int mt_sql_register_layer_time(sqlite3 *db)
{
	return mt_tvf_register(db, &layer_time);
}
