/* SPDX-License-Identifier: MIT */
/*
 * Layers of which only counts are stored: all layers of a recording in mode per_pass, and those
 * that the runtime counted itself. Their counts are added to the sums that windows of expert load
 * are held against, in the column of the pass's rows where that is one.
 */
#include "cli/check.h"

#include <string.h>

/* The counts of the layer in the current pass; NULL: there are none of the right size. */
struct layer_load {
	const uint8_t *counts;
	int64_t count_bytes;
};

static bool load_read(struct check *check, const struct check_layer *layer, sqlite3_stmt *stmt,
		      struct layer_load *ret_load)
{
	struct layer_load load = {NULL, sqlite3_column_int64(stmt, 0)};
	int64_t n_bytes;

	if (load.count_bytes != 1 && load.count_bytes != 2 && load.count_bytes != 4)
		return false;
	n_bytes = (int64_t)layer->n_ids * load.count_bytes;
	if (sqlite3_column_type(stmt, 1) != SQLITE_BLOB ||
	    sqlite3_column_bytes(stmt, 1) != n_bytes)
		return false;
	if (sqlite3_column_type(stmt, 2) != SQLITE_NULL &&
	    (sqlite3_column_type(stmt, 2) != SQLITE_BLOB ||
	     sqlite3_column_bytes(stmt, 2) != n_bytes || check->pass.padding_rows == 0))
		return false;
	load.counts = sqlite3_column_blob(stmt, 1);
	*ret_load = load;
	return load.counts != NULL;
}

static uint64_t count_at(const struct layer_load *load, uint32_t id)
{
	uint64_t count = 0;
	int64_t i;

	for (i = 0; i < load->count_bytes; i++)
		count |= (uint64_t)load->counts[id * load->count_bytes + i] << (8 * i);
	return count;
}

/* The column that all rows of the pass count in. */
static enum check_column column_of_pass(const struct check_pass *pass, bool has_rows)
{
	int64_t i;

	for (i = 1; i < pass->n_rows; i++)
		if (pass->columns[i] != pass->columns[0])
			return has_rows ? CHECK_ANY : CHECK_OTHER;
	return pass->n_rows > 0 ? (enum check_column)pass->columns[0] : CHECK_OTHER;
}

/* What the counts of a layer add up to. */
struct counted {
	uint64_t n_active;
	uint64_t max_load;
	uint64_t n_assignments;
};

static struct counted counts_add(const struct check *check, const struct check_layer *layer,
				 const struct layer_load *load, struct check_count *count,
				 enum check_column column)
{
	struct counted counted = {0, 0, 0};
	bool is_in_window = check->pass.pass_id <= check->pass.recording->last_pass_id;
	uint32_t id;

	for (id = 0; id < layer->n_ids; id++) {
		uint64_t n = count_at(load, id);

		if (is_in_window)
			count->load[id][column] += n;
		counted.n_assignments += n;
		if (id >= layer->n_experts)
			continue;
		counted.n_active += n > 0;
		counted.max_load = n > counted.max_load ? n : counted.max_load;
	}
	return counted;
}

static void layer_violation(struct check *check, const struct check_layer *layer, const char *what)
{
	check_violation(check, CHECK_LAYER_LOAD, "layer_load %lld,%lld: %s",
			(long long)check->pass.pass_id, (long long)layer->layer_id, what);
}

static int counts_take(struct check *check, const struct check_layer *layer,
		       const struct layer_load *load, sqlite3_stmt *stmt)
{
	struct check_recording *recording = check->pass.recording;
	struct check_count *count = check_count_get(check, layer);
	bool has_rows = sqlite3_column_type(stmt, 5) != SQLITE_NULL;
	uint64_t n_rows = (uint64_t)sqlite3_column_int64(stmt, 5);
	struct counted counted;

	if (!count)
		return MT_EXIT_FAILED;
	counted = counts_add(check, layer, load, count, column_of_pass(&check->pass, has_rows));
	recording->n_assignments += counted.n_assignments;
	if (sqlite3_column_int64(stmt, 2) != (int64_t)counted.n_active ||
	    sqlite3_column_int64(stmt, 3) != (int64_t)counted.max_load)
		layer_violation(check, layer, "active_experts or max_load is not what it gives");
	else if (has_rows && (n_rows > (uint64_t)check->pass.n_rows ||
			      counted.n_assignments > n_rows * layer->n_ids))
		layer_violation(check, layer, "it has more rows than its pass or layer can have");
	return MT_EXIT_OK;
}

int check_layer_counts(struct check *check, const struct check_layer *layer, sqlite3_stmt *stmt)
{
	struct layer_load load;
	int status = MT_EXIT_OK;
	int rc;

	check->results[CHECK_LAYER_LOAD].n_checked++;
	check->pass.recording->n_layers++;
	if (!check->counts_stmt)
		check->counts_stmt = mt_trace_prepare(
			check->trace, "SELECT count_bytes, counts, padding_counts FROM layer_load "
				      "WHERE pass_id = ?1 AND layer_id = ?2");
	if (!check->counts_stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(check->counts_stmt, 1, check->pass.pass_id);
	sqlite3_bind_int64(check->counts_stmt, 2, layer->layer_id);
	rc = sqlite3_step(check->counts_stmt);
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		return mt_trace_error(check->trace);
	if (rc == SQLITE_DONE)
		layer_violation(check, layer, "the layer is counted, but its counts are missing");
	else if (!load_read(check, layer, check->counts_stmt, &load))
		layer_violation(check, layer, "its counts do not have the size of the layer");
	else
		status = counts_take(check, layer, &load, stmt);
	sqlite3_reset(check->counts_stmt);
	return status;
}
