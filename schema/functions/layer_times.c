/* SPDX-License-Identifier: MIT */
/*
 * Passes one after another, each with its layers: the time of their operations if there is one, else from
 * the selection to the next later one of the same pass, or to the pass's end.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "array.h"
#include "layer_times_internal.h"

#include <string.h>

struct mt_layer_times {
	sqlite3 *db;
	struct mt_timed_table timed;
	struct mt_passes passes;
	sqlite3_stmt *pass, *layers, *later;
	bool has_pass; /* layers stand in one */
	sqlite3_int64 last_pass;
};

/* ---- what was timed ---- */

static size_t place_of(const struct mt_timed_table *table, sqlite3_int64 pass_id, sqlite3_int64 layer_id)
{
	const uint64_t hash = ((uint64_t)pass_id * 0x9e3779b97f4a7c15u) ^ ((uint64_t)layer_id * 0xc2b2ae3d27d4eb4fu);
	size_t i = (size_t)(hash >> 20) & (table->n_places - 1);

	while (table->places[i].pass_id != 0 &&
	       (table->places[i].pass_id != pass_id || table->places[i].layer_id != layer_id))
		i = (i + 1) & (table->n_places - 1);
	return i;
}

static bool table_grow(struct mt_timed_table *table)
{
	struct mt_timed_table more = {.n = table->n, .n_places = table->n_places ? 2 * table->n_places : 4096};

	more.places = sqlite3_malloc64(more.n_places * sizeof(*more.places));
	if (!more.places)
		return false;
	memset(more.places, 0, more.n_places * sizeof(*more.places));
	for (size_t i = 0; i < table->n_places; i++)
		if (table->places[i].pass_id != 0)
			more.places[place_of(&more, table->places[i].pass_id, table->places[i].layer_id)] =
				table->places[i];
	sqlite3_free(table->places);
	*table = more;
	return true;
}

struct mt_timed *mt_timed_at(struct mt_timed_table *table, sqlite3_int64 pass_id, sqlite3_int64 layer_id)
{
	struct mt_timed *timed;

	if (2 * table->n >= table->n_places && !table_grow(table))
		return NULL;
	timed = &table->places[place_of(table, pass_id, layer_id)];
	if (timed->pass_id == 0) {
		*timed = (struct mt_timed){.pass_id = pass_id, .layer_id = layer_id,
					   .start_ns = INT64_MAX, .end_ns = INT64_MIN};
		table->n++;
	}
	return timed;
}

const struct mt_timed *mt_timed_find(const struct mt_timed_table *table, sqlite3_int64 pass_id,
				     sqlite3_int64 layer_id)
{
	const struct mt_timed *timed;

	if (table->n_places == 0)
		return NULL;
	timed = &table->places[place_of(table, pass_id, layer_id)];
	return timed->pass_id == 0 ? NULL : timed;
}

void mt_timed_add(struct mt_timed *timed, sqlite3_int64 start_ns, sqlite3_int64 end_ns, bool is_experts)
{
	/* Of a damaged file: sums wrap as little as SQLite's do. */
	const sqlite3_int64 length_ns = (sqlite3_int64)((uint64_t)end_ns - (uint64_t)start_ns);

	if (start_ns < timed->start_ns)
		timed->start_ns = start_ns;
	if (end_ns > timed->end_ns)
		timed->end_ns = end_ns;
	timed->busy_ns = (sqlite3_int64)((uint64_t)timed->busy_ns + (uint64_t)length_ns);
	if (is_experts) {
		timed->experts_ns = (sqlite3_int64)((uint64_t)timed->experts_ns + (uint64_t)length_ns);
		timed->has_experts = true;
	}
}

/* ---- passes ---- */

bool mt_passes_have(const struct mt_passes *passes, sqlite3_int64 pass_id)
{
	size_t low = 0, high = passes->n;

	if (passes->stride)
		return pass_id % passes->stride == 0;
	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (passes->ids[middle] < pass_id)
			low = middle + 1;
		else
			high = middle;
	}
	return low < passes->n && passes->ids[low] == pass_id;
}

bool mt_passes_add(struct mt_passes *passes, sqlite3_int64 pass_id)
{
	if (passes->n > 0 && passes->ids[passes->n - 1] >= pass_id)
		return true;
	if (mt_array_reserve(&passes->ids, &passes->size, passes->n + 1,
			     sizeof(*passes->ids)) != SQLITE_OK)
		return false;
	passes->ids[passes->n++] = pass_id;
	return true;
}

/* ---- statements ---- */

int mt_layer_times_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret_stmt)
{
	return sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_NO_VTAB, ret_stmt, NULL);
}

int mt_layer_times_number(sqlite3 *db, const char *sql, sqlite3_int64 otherwise,
			  sqlite3_int64 *ret_number)
{
	sqlite3_stmt *stmt = NULL;
	int rc = mt_layer_times_prepare(db, sql, &stmt);

	if (rc == SQLITE_OK)
		rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW) {
		*ret_number = sqlite3_column_type(stmt, 0) == SQLITE_NULL ? otherwise
									: sqlite3_column_int64(stmt, 0);
		rc = SQLITE_OK;
	}
	sqlite3_finalize(stmt);
	return rc;
}

static const char sql_pass[] =
	"SELECT pass_id, recording_id, model_id, phase, iif(device_id IS NULL, end_ns, NULL) FROM main.pass WHERE pass_id > ?1 ORDER BY pass_id";
static const char sql_layers[] =
	"SELECT pl.layer_id, l.layer, pl.n_rows, pl.active_experts, pl.selected_ns FROM main.pass_layer AS pl"
	" JOIN main.layer AS l ON l.layer_id = pl.layer_id WHERE pl.pass_id = ?1";
static const char sql_later[] =
	"SELECT min(selected_ns) FROM main.pass_layer WHERE pass_id = ?1 AND selected_ns > ?2";

int mt_layer_times_begin(sqlite3 *db, sqlite3_int64 n_operations, struct mt_layer_times **ret_times)
{
	struct mt_layer_times *times = sqlite3_malloc64(sizeof(*times));
	int rc;

	*ret_times = times;
	if (!times)
		return SQLITE_NOMEM;
	memset(times, 0, sizeof(*times));
	times->db = db;
	times->last_pass = INT64_MIN;
	rc = mt_kernel_times_read(db, n_operations, &times->timed, &times->passes);
	if (rc == SQLITE_OK)
		rc = mt_graph_times_read(db, &times->passes, &times->timed);
	if (rc == SQLITE_OK)
		rc = mt_layer_times_prepare(db, sql_pass, &times->pass);
	if (rc == SQLITE_OK)
		rc = mt_layer_times_prepare(db, sql_layers, &times->layers);
	if (rc == SQLITE_OK)
		rc = mt_layer_times_prepare(db, sql_later, &times->later);
	if (rc == SQLITE_OK)
		rc = sqlite3_bind_int64(times->pass, 1, INT64_MIN);
	return rc;
}

void mt_layer_times_free(struct mt_layer_times *times)
{
	if (!times)
		return;
	sqlite3_finalize(times->pass);
	sqlite3_finalize(times->layers);
	sqlite3_finalize(times->later);
	sqlite3_free(times->timed.places);
	sqlite3_free(times->passes.ids);
	sqlite3_free(times);
}

/* The next pass that counts. */
static int pass_next(struct mt_layer_times *times)
{
	int rc;

	do
		rc = sqlite3_step(times->pass);
	while (rc == SQLITE_ROW && !mt_passes_have(&times->passes, sqlite3_column_int64(times->pass, 0)));
	if (rc != SQLITE_ROW)
		return rc;
	times->has_pass = true;
	sqlite3_reset(times->layers);
	sqlite3_bind_int64(times->layers, 1, sqlite3_column_int64(times->pass, 0));
	return SQLITE_ROW;
}

static bool optional(sqlite3_stmt *stmt, int column, sqlite3_int64 *ret_value)
{
	*ret_value = sqlite3_column_int64(stmt, column);
	return sqlite3_column_type(stmt, column) != SQLITE_NULL;
}

/* From the selection to the next later one, or to the pass's end where the host told it. */
static int selection_time(struct mt_layer_times *times, struct mt_layer_time *time)
{
	sqlite3_int64 end_ns;
	int rc;

	sqlite3_reset(times->later);
	sqlite3_bind_int64(times->later, 1, time->pass_id);
	sqlite3_bind_int64(times->later, 2, time->selected_ns);
	rc = sqlite3_step(times->later);
	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? SQLITE_CORRUPT : rc;
	time->has_duration = optional(times->later, 0, &end_ns) || optional(times->pass, 4, &end_ns);
	time->duration_ns = (sqlite3_int64)((uint64_t)end_ns - (uint64_t)time->selected_ns);
	sqlite3_reset(times->later);
	return SQLITE_ROW;
}

static int layer_read(struct mt_layer_times *times, struct mt_layer_time *time)
{
	const struct mt_timed *timed;

	*time = (struct mt_layer_time){
		.pass_id = sqlite3_column_int64(times->pass, 0),
		.recording_id = sqlite3_column_int64(times->pass, 1),
		.model_id = sqlite3_column_int64(times->pass, 2),
		.phase = (const char *)sqlite3_column_text(times->pass, 3),
		.layer_id = sqlite3_column_int64(times->layers, 0),
		.layer = sqlite3_column_int64(times->layers, 1),
	};
	time->has_n_rows = optional(times->layers, 2, &time->n_rows);
	time->has_active_experts = optional(times->layers, 3, &time->active_experts);
	time->has_selected = optional(times->layers, 4, &time->selected_ns);
	timed = mt_timed_find(&times->timed, time->pass_id, time->layer_id);
	if (!timed)
		return time->has_selected ? selection_time(times, time) : SQLITE_OK;
	time->is_kernel = time->has_duration = true;
	time->duration_ns = (sqlite3_int64)((uint64_t)timed->end_ns - (uint64_t)timed->start_ns);
	time->busy_ns = timed->busy_ns;
	time->experts_ns = timed->experts_ns;
	time->has_experts = timed->has_experts;
	return SQLITE_ROW;
}

int mt_layer_times_next(struct mt_layer_times *times, struct mt_layer_time *ret_time)
{
	int rc = SQLITE_ROW;

	for (;;) {
		if (!times->has_pass)
			rc = pass_next(times);
		if (rc != SQLITE_ROW)
			return rc;
		rc = sqlite3_step(times->layers);
		if (rc == SQLITE_DONE) {
			times->has_pass = false;
			rc = SQLITE_ROW;
			continue;
		}
		if (rc == SQLITE_ROW)
			rc = layer_read(times, ret_time);
		if (rc != SQLITE_OK) /* that has neither time */
			return rc;
		rc = SQLITE_ROW;
	}
}
