/* SPDX-License-Identifier: MIT */
/*
 * One stored layer of a pass: its rows are found in their run and every id is decoded once, for
 * the range, for distinctness, for active_experts and max_load, and for the sums. Runs are shared
 * by many passes and layers, so the last ones are kept in memory.
 */
#include "cli/check.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"

/* ---- runs ---- */

void check_run_free(struct check_run *run)
{
	free(run->ids);
	free(run->weights);
	free(run->base_ids);
	free(run->row_map);
	free(run->n_valid);
	free(run->physical_ids);
	free(run->candidate_ids);
	free(run->candidate_scores);
	free(run->margins);
	free(run->row_flags);
	memset(run, 0, sizeof(*run));
}

/* Copy the blob in @column if it has @n_bytes. Returns whether it has, or is NULL and may be. */
static bool blob_copy(sqlite3_stmt *stmt, int column, int64_t n_bytes, bool may_be_null,
		      uint8_t **ret_copy)
{
	if (sqlite3_column_type(stmt, column) == SQLITE_NULL)
		return may_be_null;
	if (sqlite3_column_type(stmt, column) != SQLITE_BLOB ||
	    sqlite3_column_bytes(stmt, column) != n_bytes)
		return false;
	*ret_copy = malloc((size_t)n_bytes + 1);
	if (*ret_copy && n_bytes > 0)
		memcpy(*ret_copy, sqlite3_column_blob(stmt, column), (size_t)n_bytes);
	return *ret_copy != NULL;
}

static void run_read(struct check_run *run, sqlite3_stmt *stmt)
{
	run->n_rows = sqlite3_column_int64(stmt, 0);
	run->k = sqlite3_column_int64(stmt, 1);
	run->id_bytes = sqlite3_column_int64(stmt, 2);
	run->has_rule = sqlite3_column_int(stmt, 6) != 0;
	run->base_k = sqlite3_column_int64(stmt, 7);
	run->is_bf16 = sqlite3_column_int(stmt, 8) != 0;
	run->physical_id_bytes = sqlite3_column_int64(stmt, 11);
	run->n_candidates = sqlite3_column_int64(stmt, 13);
	run->is_score_bf16 = sqlite3_column_int(stmt, 16) != 0;
	if (run->n_rows < 0 || run->n_rows > INT32_MAX || run->k < 1 || run->k > 255 ||
	    (run->id_bytes != 1 && run->id_bytes != 2) || run->base_k < 0 || run->base_k > 255 ||
	    run->physical_id_bytes < 0 || run->physical_id_bytes > 2 || run->n_candidates < 0 ||
	    run->n_candidates > CHECK_MAX_IDS)
		return;
	run->is_sound =
		blob_copy(stmt, 3, run->n_rows * run->k * run->id_bytes, false, &run->ids) &&
		blob_copy(stmt, 4, run->n_rows * 4, true, &run->row_map) &&
		blob_copy(stmt, 5, run->n_rows, true, &run->n_valid) &&
		blob_copy(stmt, 9, run->n_rows * run->k * 2, true, &run->weights) &&
		blob_copy(stmt, 10, run->n_rows * run->base_k * run->id_bytes, true,
			  &run->base_ids) &&
		blob_copy(stmt, 12, run->n_rows * run->k * run->physical_id_bytes, true,
			  &run->physical_ids) &&
		blob_copy(stmt, 14, run->n_rows * run->n_candidates * run->id_bytes, true,
			  &run->candidate_ids) &&
		blob_copy(stmt, 15, run->n_rows * run->n_candidates * 2, true,
			  &run->candidate_scores) &&
		blob_copy(stmt, 17, run->n_rows * 4, true, &run->margins) &&
		blob_copy(stmt, 18, run->n_rows, true, &run->row_flags);
}

/* The run @topk_id; one without a row in the file is kept as unsound. NULL after an error line. */
static const struct check_run *run_get(struct check *check, int64_t topk_id)
{
	struct check_run *run;
	size_t i;
	int rc;

	for (i = 0; i < CHECK_N_RUNS; i++)
		if (check->runs[i].topk_id == topk_id && topk_id != 0)
			return &check->runs[i];
	if (!check->run_stmt)
		check->run_stmt =
			mt_trace_prepare(check->trace, "SELECT n_rows, k, id_bytes, "
						       "topk_ids, row_map, n_valid, "
						       "rule_id IS NOT NULL, coalesce(base_k, 0), "
						       "weight_format = 'bf16', topk_weights, "
						       "base_ids, "
						       "coalesce(physical_id_bytes, 0), "
						       "physical_ids, coalesce(n_candidates, 0), "
						       "candidate_ids, candidate_scores, "
						       "score_format = 'bf16', margins, "
						       "row_flags FROM topk "
						       "WHERE topk_id = ?1");
	if (!check->run_stmt)
		return NULL;
	run = &check->runs[check->next_run++ % CHECK_N_RUNS];
	check_run_free(run);
	run->topk_id = topk_id;
	sqlite3_bind_int64(check->run_stmt, 1, topk_id);
	rc = sqlite3_step(check->run_stmt);
	if (rc == SQLITE_ROW)
		run_read(run, check->run_stmt);
	sqlite3_reset(check->run_stmt);
	if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
		mt_trace_error(check->trace);
		return NULL;
	}
	return run;
}

/* ---- rows ---- */

/* What the rows of one layer add up to. */
struct layer_sum {
	struct check_count *count;
	bool is_in_window; /* of a pass that expert_load_window includes */
	uint64_t n_active;
	uint64_t max_load;
	uint64_t n_assignments;
	const char *fault; /* the first one of the ids; NULL: none */
	int64_t fault_row;
	const char *weight_fault; /* the first one of the weights; NULL: none */
	int64_t weight_fault_row;
};

static uint32_t id_of(const struct check_run *run, const uint8_t *ids, int64_t at)
{
	return mt_narrow_at(ids, (size_t)run->id_bytes, (size_t)at);
}

static uint32_t id_at(const struct check_run *run, int64_t at)
{
	return id_of(run, run->ids, at);
}

static void fault_note(struct layer_sum *sum, const char *fault, int64_t row)
{
	if (sum->fault)
		return;
	sum->fault = fault;
	sum->fault_row = row;
}

static void id_take(struct check *check, const struct check_layer *layer, struct layer_sum *sum,
		    uint32_t id, int64_t row)
{
	const struct check_pass *pass = &check->pass;

	if (id >= layer->n_ids) {
		fault_note(sum, "an id that the layer does not have", row);
		return;
	}
	if (check->row_of_id[id] == check->row_serial)
		fault_note(sum, "an id twice in a row", row);
	check->row_of_id[id] = check->row_serial;
	sum->n_assignments++;
	if (sum->is_in_window)
		sum->count->load[id][pass->columns[row]]++;
	sum->count->computed[id] += pass->is_computed[row];
	if (id >= layer->n_experts)
		return;
	sum->n_active += check->load[id] == 0;
	if (++check->load[id] > sum->max_load)
		sum->max_load = check->load[id];
}

/* A new serial number for rows; when it wraps, what was noted with the old ones is dropped. */
void check_row_serial_next(struct check *check)
{
	if (++check->row_serial != 0)
		return;
	memset(check->row_of_id, 0, CHECK_MAX_IDS * sizeof(*check->row_of_id));
	check->row_serial = 1;
}

/* The bits of a weight: NaN and infinity have all bits of the exponent, -0 is no fault. */
static bool is_weight_number(const struct check_run *run, uint32_t bits)
{
	uint32_t exponent = run->is_bf16 ? 0x7f80 : 0x7c00;

	return (bits & exponent) != exponent && (!(bits & 0x8000) || bits == 0x8000);
}

static void weights_take(struct check *check, const struct check_layer *layer,
			 const struct check_run *run, struct layer_sum *sum, int64_t stored,
			 int64_t n_valid, int64_t row)
{
	const uint8_t *p = run->weights + 2 * stored * run->k;
	const char *fault = NULL;
	int64_t i;

	check->results[CHECK_WEIGHTS].n_checked += (uint64_t)run->k;
	for (i = 0; i < run->k && !fault; i++) {
		uint32_t bits = mt_u16_at(p + 2 * i);

		if (i >= n_valid && bits != 0)
			fault = "an unused weight that is not 0";
		else if (layer->is_renormalized && !is_weight_number(run, bits))
			fault = "a renormalized weight that is negative or no finite number";
	}
	if (!fault || sum->weight_fault)
		return;
	sum->weight_fault = fault;
	sum->weight_fault_row = row;
}

/* The router's own choice: whole, in range and distinct. */
static void base_take(struct check *check, const struct check_layer *layer,
		      const struct check_run *run, struct layer_sum *sum, int64_t stored,
		      int64_t row)
{
	uint32_t id;
	int64_t i;

	check_row_serial_next(check);
	for (i = 0; i < run->base_k; i++) {
		id = id_of(run, run->base_ids, stored * run->base_k + i);
		if (id >= layer->n_ids)
			fault_note(sum, "a base id that the layer does not have", row);
		else if (check->row_of_id[id] == check->row_serial)
			fault_note(sum, "a base id twice in a row", row);
		else
			check->row_of_id[id] = check->row_serial;
	}
}

static void row_take(struct check *check, const struct check_layer *layer,
		     const struct check_run *run, struct layer_sum *sum, int64_t stored,
		     int64_t row)
{
	int64_t n_valid = run->n_valid ? run->n_valid[stored] : run->k;
	int64_t i;

	if (n_valid > run->k) {
		fault_note(sum, "n_valid above k", row);
		n_valid = run->k;
	}
	check->pass.is_short[row] |= n_valid < run->k;
	if (run->weights)
		weights_take(check, layer, run, sum, stored, n_valid, row);
	if (run->base_ids)
		base_take(check, layer, run, sum, stored, row);
	check_row_serial_next(check);
	for (i = 0; i < n_valid; i++)
		id_take(check, layer, sum, id_at(run, stored * run->k + i), row);
	for (; i < run->k; i++)
		if (id_at(run, stored * run->k + i) != 0)
			fault_note(sum, "an unused entry that is not 0", row);
	check_extra_row(check, layer, run, stored, n_valid, row);
}

static void load_clear(struct check *check, const struct check_layer *layer)
{
	memset(check->load, 0, layer->n_experts * sizeof(*check->load));
}

/* The row of the pass that stored row @at of the run is; -1: outside the pass, or seen before. */
static int64_t pass_row(struct check *check, const struct check_run *run, int64_t at, int64_t i)
{
	struct check_pass *pass = &check->pass;
	const int64_t row = run->row_map ? (int64_t)mt_u32_at(run->row_map + 4 * at) : i;

	if (row >= pass->n_rows || pass->seen[row] == check->layer_serial || !pass->is_kept[row])
		return -1;
	pass->seen[row] = check->layer_serial;
	return row;
}

static void layer_serial_next(struct check *check)
{
	if (++check->layer_serial != 0)
		return;
	memset(check->pass.seen, 0, check->pass.max_rows * sizeof(*check->pass.seen));
	check->layer_serial = 1;
}

static void rows_violation(struct check *check, const struct check_layer *layer, const char *what)
{
	check_violation(check, CHECK_LAYER_ROWS, "pass_layer %lld,%lld: %s",
			(long long)check->pass.pass_id, (long long)layer->layer_id, what);
}

static void rows_take(struct check *check, const struct check_layer *layer,
		      const struct check_run *run, struct layer_sum *sum, int64_t first, int64_t n)
{
	int64_t i;
	int64_t row;

	layer_serial_next(check);
	for (i = 0; i < n; i++) {
		row = pass_row(check, run, first + i, i);
		if (row < 0) {
			rows_violation(check, layer,
				       "row_map names a row twice, outside the pass or of a request "
				       "that is not sampled");
			return;
		}
		row_take(check, layer, run, sum, first + i, row);
	}
}

/* ---- the layer ---- */

/* Why the rows of the layer cannot be read; NULL: they can. */
static const char *rows_fault(const struct check_pass *pass, const struct check_layer *layer,
			      const struct check_run *run, int64_t first, int64_t n)
{
	if (!run->is_sound)
		return "its run is missing or has blobs of a wrong size";
	if (first < 0 || n < 0 || n > run->n_rows || first > run->n_rows - n)
		return "its rows are not in its run";
	if (run->k > (run->has_rule ? layer->n_ids : layer->top_k))
		return "its run has more entries a row than the layer selects";
	if (run->base_k > layer->top_k)
		return "its run has more base_ids a row than the layer selects";
	if ((run->id_bytes == 1) != (layer->n_ids <= 256))
		return "its run has ids of a size that is not the layer's";
	if (run->row_map ? n > pass->n_rows : n != pass->n_rows && n != 0)
		return "it has another number of rows than its pass";
	return NULL;
}

static int range_add(struct check *check, const struct check_layer *layer, int64_t topk_id,
		     int64_t first, int64_t n)
{
	struct check_range *ranges;

	if (n == 0)
		return MT_EXIT_OK;
	ranges = check_array_grow(check, check->ranges, check->n_ranges, &check->max_ranges,
				  sizeof(*ranges));
	if (!ranges)
		return MT_EXIT_FAILED;
	check->ranges = ranges;
	ranges[check->n_ranges++] = (struct check_range){
		.topk_id = topk_id,
		.first = first,
		.n = n,
		.pass_id = check->pass.pass_id,
		.layer_id = layer->layer_id,
	};
	return MT_EXIT_OK;
}

/* Padding rows are not stored: what they touched is only bounded. */
static void padding_compare(struct check *check, const struct check_layer *layer,
			    const struct layer_sum *sum, sqlite3_stmt *stmt)
{
	int64_t n = sqlite3_column_int64(stmt, 9);
	int64_t n_left = (int64_t)layer->n_experts - (int64_t)sum->n_active;

	if (sqlite3_column_type(stmt, 9) == SQLITE_NULL)
		return;
	if (n < 0 || n > n_left || (n > 0 && check->pass.padding_rows == 0))
		check_violation(check, CHECK_ACTIVE_EXPERTS,
				"pass_layer %lld,%lld: says %lld padding_active_experts, but %lld "
				"experts are left for %lld padding rows",
				(long long)check->pass.pass_id, (long long)layer->layer_id,
				(long long)n, (long long)n_left,
				(long long)check->pass.padding_rows);
}

static void columns_compare(struct check *check, const struct check_layer *layer,
			    const struct layer_sum *sum, sqlite3_stmt *stmt)
{
	int64_t active = sqlite3_column_int64(stmt, 2);
	int64_t max_load = sqlite3_column_int64(stmt, 3);
	long long pass_id = check->pass.pass_id;

	check->results[CHECK_ACTIVE_EXPERTS].n_checked++;
	if (sum->fault)
		check_violation(check, CHECK_IDS, "pass_layer %lld,%lld: row %lld has %s", pass_id,
				(long long)layer->layer_id, (long long)sum->fault_row, sum->fault);
	if (sum->weight_fault)
		check_violation(check, CHECK_WEIGHTS, "pass_layer %lld,%lld: row %lld has %s",
				pass_id, (long long)layer->layer_id,
				(long long)sum->weight_fault_row, sum->weight_fault);
	/* Of a sampled pass all rows are counted, but not all are stored. */
	if (check->pass.is_sampled ? active < (int64_t)sum->n_active ||
					     max_load < (int64_t)sum->max_load
				   : active != (int64_t)sum->n_active ||
					     max_load != (int64_t)sum->max_load)
		check_violation(check, CHECK_ACTIVE_EXPERTS,
				"pass_layer %lld,%lld: says %lld active "
				"experts and maximum load %lld, its ids give %llu and %llu",
				pass_id, (long long)layer->layer_id, (long long)active,
				(long long)max_load, (unsigned long long)sum->n_active,
				(unsigned long long)sum->max_load);
	padding_compare(check, layer, sum, stmt);
}

int check_layer_rows(struct check *check, const struct check_layer *layer, sqlite3_stmt *stmt)
{
	struct check_recording *recording = check->pass.recording;
	struct layer_sum sum = {0};
	int64_t n = sqlite3_column_int64(stmt, 5);
	int64_t topk_id = sqlite3_column_int64(stmt, 6);
	int64_t first = sqlite3_column_int64(stmt, 7);
	const struct check_run *run = run_get(check, topk_id);
	const char *fault;

	if (!run)
		return MT_EXIT_FAILED;
	check->results[CHECK_LAYER_ROWS].n_checked++;
	recording->n_layers++;
	fault = rows_fault(&check->pass, layer, run, first, n);
	if (fault) {
		rows_violation(check, layer, fault);
		return MT_EXIT_OK;
	}
	sum.count = check_count_get(check, layer);
	if (!sum.count)
		return MT_EXIT_FAILED;
	sum.is_in_window = check->pass.pass_id <= recording->last_pass_id;
	load_clear(check, layer);
	if (check_extra_begin(check, layer, stmt) != MT_EXIT_OK)
		return MT_EXIT_FAILED;
	rows_take(check, layer, run, &sum, first, n);
	check->results[CHECK_IDS].n_checked += sum.n_assignments;
	recording->n_assignments += sum.n_assignments;
	columns_compare(check, layer, &sum, stmt);
	return range_add(check, layer, topk_id, first, n);
}
