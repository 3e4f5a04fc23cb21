/* SPDX-License-Identifier: MIT */
/*
 * Runs of top-k rows. Rows of equal format are gathered over layers and passes, since a row of
 * the table per layer would waste a large part of each page; a run is written when the next
 * layer would make it longer than MT_RUN_BYTES, and at each commit. A layer is never split.
 *
 * Invariant: an open run's rows are in no committed transaction, nor is a pass_layer row that
 * points to it.
 */
#include "libtrace/store/store_internal.h"

#include <stdlib.h>
#include <string.h>

static uint64_t row_bytes(const struct mt_run *run)
{
	return (uint64_t)run->k * run->id_bytes +
	       (run->weight_format != MOETRACE_WEIGHT_FORMAT_NONE ? run->k * 2u : 0) +
	       (run->has_row_map ? 4 : 0) + (run->has_valid ? 1 : 0) +
	       (run->has_margins ? 4 : 0) + (run->has_flags ? 1 : 0) +
	       (uint64_t)run->base_k * run->id_bytes + (uint64_t)run->k * run->physical_id_bytes +
	       (uint64_t)run->n_candidates * (run->id_bytes + 2u);
}

static int is_same_format(const struct mt_run *run, const struct mt_topk_rows *rows)
{
	return run->k == rows->k && run->id_bytes == rows->id_bytes &&
	       run->weight_format == rows->weight_format &&
	       run->has_row_map == (rows->row_map != NULL) &&
	       run->has_valid == (rows->n_valid != NULL) && run->base_k == rows->base_k &&
	       run->has_margins == (rows->margins != NULL) &&
	       run->has_flags == (rows->row_flags != NULL) &&
	       run->rule_id == rows->rule_id &&
	       run->physical_id_bytes == rows->physical_id_bytes &&
	       run->n_candidates == rows->n_candidates && run->score_format == rows->score_format;
}

static const char *const weight_format_names[] = {
	[MOETRACE_WEIGHT_FORMAT_FP16] = "fp16",
	[MOETRACE_WEIGHT_FORMAT_BF16] = "bf16",
	[MOETRACE_WEIGHT_FORMAT_NONE] = "none",
};

static void bind_blob(sqlite3_stmt *stmt, int index, const void *blob, uint64_t n_bytes)
{
	/* Not NULL, even where it is empty: sqlite3_bind_blob() makes NULL of a null pointer. */
	if (n_bytes)
		sqlite3_bind_blob64(stmt, index, blob, n_bytes, SQLITE_STATIC);
	else
		sqlite3_bind_zeroblob(stmt, index, 0);
}

/* Physical ids, candidates and facts of rows: columns 13 to 20. */
static void bind_extras(sqlite3_stmt *stmt, const struct mt_run *run)
{
	uint64_t n_candidates = (uint64_t)run->n_rows * run->n_candidates;

	if (run->physical_id_bytes) {
		mt_store_bind_int(stmt, 13, run->physical_id_bytes);
		bind_blob(stmt, 14, run->physical_ids,
			  (uint64_t)run->n_rows * run->k * run->physical_id_bytes);
	}
	if (run->has_margins)
		bind_blob(stmt, 19, run->margins, run->n_rows * 4ul);
	if (run->has_flags)
		bind_blob(stmt, 20, run->row_flags, run->n_rows);
	if (!run->n_candidates)
		return;
	mt_store_bind_int(stmt, 15, run->n_candidates);
	bind_blob(stmt, 16, run->candidate_ids, n_candidates * run->id_bytes);
	mt_store_bind_text(stmt, 17, weight_format_names[run->score_format]);
	bind_blob(stmt, 18, run->candidate_scores, n_candidates * 2);
}

static int close_run(struct mt_store *store, struct mt_run *run)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_TOPK);
	uint64_t n_ids = (uint64_t)run->n_rows * run->k;

	mt_store_bind_int(stmt, 1, run->topk_id);
	mt_store_bind_int(stmt, 2, run->n_rows);
	mt_store_bind_int(stmt, 3, run->k);
	mt_store_bind_int(stmt, 4, run->id_bytes);
	mt_store_bind_text(stmt, 5, weight_format_names[run->weight_format]);
	bind_blob(stmt, 6, run->ids, n_ids * run->id_bytes);
	if (run->weight_format != MOETRACE_WEIGHT_FORMAT_NONE)
		bind_blob(stmt, 7, run->weights, n_ids * 2);
	if (run->has_row_map)
		bind_blob(stmt, 8, run->row_map, (uint64_t)run->n_rows * 4);
	if (run->has_valid)
		bind_blob(stmt, 9, run->n_valid, run->n_rows);
	if (run->base_k) {
		mt_store_bind_int(stmt, 10, run->base_k);
		bind_blob(stmt, 11, run->base_ids,
			  (uint64_t)run->n_rows * run->base_k * run->id_bytes);
	}
	if (run->rule_id)
		mt_store_bind_int(stmt, 12, run->rule_id);
	bind_extras(stmt, run);
	store->stats.pending_bytes += run->n_rows * row_bytes(run) + 64;
	run->topk_id = 0;
	run->n_rows = 0;
	return mt_store_step(store, MT_STMT_TOPK);
}

int mt_store_close_runs(struct mt_store *store)
{
	for (uint32_t done = 0; done < MT_MAX_RUNS; done++) {
		struct mt_run *oldest = NULL;

		/* By ascending key, so that the table only grows at its end. */
		for (uint32_t i = 0; i < MT_MAX_RUNS; i++) {
			struct mt_run *run = &store->runs[i];

			if (run->topk_id && (!oldest || run->topk_id < oldest->topk_id))
				oldest = run;
		}
		if (!oldest)
			return MOETRACE_OK;
		if (close_run(store, oldest))
			return store->status;
	}
	return MOETRACE_OK;
}

void mt_store_free_runs(struct mt_store *store)
{
	for (uint32_t i = 0; i < MT_MAX_RUNS; i++) {
		free(store->runs[i].ids);
		free(store->runs[i].weights);
		free(store->runs[i].row_map);
		free(store->runs[i].n_valid);
		free(store->runs[i].margins);
		free(store->runs[i].row_flags);
		free(store->runs[i].base_ids);
		free(store->runs[i].physical_ids);
		free(store->runs[i].candidate_ids);
		free(store->runs[i].candidate_scores);
	}
}

static int reserve_extras(struct mt_run *run, uint64_t capacity_rows)
{
	uint64_t n = capacity_rows * run->n_candidates;
	void *physical = realloc(run->physical_ids,
				 capacity_rows * run->k * run->physical_id_bytes + 1);
	void *margins = realloc(run->margins, capacity_rows * 4);
	void *row_flags = realloc(run->row_flags, capacity_rows);
	void *ids, *scores;

	run->margins = margins ? margins : run->margins;
	run->row_flags = row_flags ? row_flags : run->row_flags;
	run->physical_ids = physical ? physical : run->physical_ids;
	ids = realloc(run->candidate_ids, n * run->id_bytes + 1);
	run->candidate_ids = ids ? ids : run->candidate_ids;
	scores = realloc(run->candidate_scores, n * 2 + 1);
	run->candidate_scores = scores ? scores : run->candidate_scores;
	return physical && margins && row_flags && ids && scores ? 0 : -1;
}

/* Make room for @n_rows of the run's format. */
static int reserve_rows(struct mt_store *store, struct mt_run *run, uint64_t n_rows)
{
	uint64_t capacity_rows = MT_RUN_BYTES / row_bytes(run) + 1;
	void *ids, *weights, *row_map, *n_valid, *base_ids;

	if (n_rows <= run->capacity_rows)
		return MOETRACE_OK;
	if (capacity_rows < n_rows)
		capacity_rows = n_rows;
	ids = realloc(run->ids, capacity_rows * run->k * run->id_bytes);
	run->ids = ids ? ids : run->ids;
	weights = realloc(run->weights, capacity_rows * run->k * 2);
	run->weights = weights ? weights : run->weights;
	row_map = realloc(run->row_map, capacity_rows * 4);
	run->row_map = row_map ? row_map : run->row_map;
	n_valid = realloc(run->n_valid, capacity_rows);
	run->n_valid = n_valid ? n_valid : run->n_valid;
	/* One byte more, so that the size is never 0, for which NULL would be no failure. */
	base_ids = realloc(run->base_ids, capacity_rows * run->base_k * run->id_bytes + 1);
	run->base_ids = base_ids ? base_ids : run->base_ids;
	if (!ids || !weights || !row_map || !n_valid || !base_ids)
		return mt_store_fail(store, "gather rows: out of memory");
	if (reserve_extras(run, capacity_rows))
		return mt_store_fail(store, "gather rows: out of memory");
	run->capacity_rows = capacity_rows;
	return MOETRACE_OK;
}

static void set_format(struct mt_run *run, const struct mt_topk_rows *rows)
{
	run->k = rows->k;
	run->id_bytes = rows->id_bytes;
	run->weight_format = rows->weight_format;
	run->has_row_map = rows->row_map != NULL;
	run->has_valid = rows->n_valid != NULL;
	run->has_margins = rows->margins != NULL;
	run->has_flags = rows->row_flags != NULL;
	run->base_k = rows->base_k;
	run->rule_id = rows->rule_id;
	run->physical_id_bytes = rows->physical_id_bytes;
	run->n_candidates = rows->n_candidates;
	run->score_format = rows->score_format;
	run->capacity_rows = 0; /* of this format: the arrays are resized */
}

/* The run to append to, open or fresh; NULL: a failure. */
static struct mt_run *find_run(struct mt_store *store, const struct mt_topk_rows *rows)
{
	struct mt_run *chosen = NULL;

	for (uint32_t i = 0; i < MT_MAX_RUNS; i++) {
		struct mt_run *run = &store->runs[i];

		if (run->topk_id && is_same_format(run, rows)) {
			chosen = run;
			break;
		}
		/* Otherwise a free one, best of the same format, else the oldest. */
		if (!chosen || (!run->topk_id && (chosen->topk_id || is_same_format(run, rows))) ||
		    (chosen->topk_id && run->topk_id < chosen->topk_id))
			chosen = run;
	}
	if (chosen->topk_id && (!is_same_format(chosen, rows) ||
				(chosen->n_rows + (uint64_t)rows->n_rows) * row_bytes(chosen) >
					MT_RUN_BYTES)) {
		if (close_run(store, chosen))
			return NULL;
	}
	if (!chosen->topk_id) {
		if (!is_same_format(chosen, rows))
			set_format(chosen, rows);
		chosen->topk_id = ++store->last_topk_id;
	}
	return chosen;
}

static void append_extras(struct mt_run *run, const struct mt_topk_rows *rows)
{
	uint64_t physical_bytes = (uint64_t)run->k * run->physical_id_bytes;
	uint64_t n = (uint64_t)rows->n_rows * run->n_candidates;
	uint64_t at = (uint64_t)run->n_rows * run->n_candidates;

	if (physical_bytes)
		memcpy(run->physical_ids + run->n_rows * physical_bytes, rows->physical_ids,
		       rows->n_rows * physical_bytes);
	if (rows->margins)
		memcpy(run->margins + run->n_rows, rows->margins, rows->n_rows * 4ul);
	if (rows->row_flags)
		memcpy(run->row_flags + run->n_rows, rows->row_flags, rows->n_rows);
	if (!n)
		return;
	memcpy(run->candidate_ids + at * run->id_bytes, rows->candidate_ids, n * run->id_bytes);
	memcpy(run->candidate_scores + at, rows->candidate_scores, n * 2);
}

int mt_store_topk(struct mt_store *store, const struct mt_topk_rows *rows, int64_t *ret_topk_id,
		  int64_t *ret_topk_row)
{
	struct mt_run *run;
	uint64_t at;
	uint64_t n_ids = (uint64_t)rows->n_rows * rows->k;

	if (store->status)
		return store->status;
	run = find_run(store, rows);
	if (!run || reserve_rows(store, run, run->n_rows + (uint64_t)rows->n_rows))
		return store->status;
	at = (uint64_t)run->n_rows * run->k;
	if (rows->n_rows) {
		memcpy(run->ids + at * run->id_bytes, rows->ids, n_ids * run->id_bytes);
		if (rows->weights)
			memcpy(run->weights + at, rows->weights, n_ids * 2);
		if (rows->row_map)
			memcpy(run->row_map + run->n_rows, rows->row_map, rows->n_rows * 4ul);
		if (rows->n_valid)
			memcpy(run->n_valid + run->n_rows, rows->n_valid, rows->n_rows);
		if (rows->base_k)
			memcpy(run->base_ids +
				       (uint64_t)run->n_rows * run->base_k * run->id_bytes,
			       rows->base_ids, (uint64_t)rows->n_rows * run->base_k * run->id_bytes);
		append_extras(run, rows);
	}
	*ret_topk_id = run->topk_id;
	*ret_topk_row = run->n_rows;
	run->n_rows += rows->n_rows;
	return MOETRACE_OK;
}
