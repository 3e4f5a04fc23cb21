/* SPDX-License-Identifier: MIT */
/*
 * What the scan counts by recording, layer and expert, and the sum over computed rows: against the
 * rows of requests as the extension gives them. The sum over all slices is check_window.c's.
 */
#include "cli/check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void count_free(struct check_count *count)
{
	if (!count)
		return;
	free(count->load);
	free(count->computed);
	free(count->in_view);
	free(count);
}

static struct check_count *count_create(uint32_t n_ids)
{
	struct check_count *count = calloc(1, sizeof(*count));

	if (!count)
		return NULL;
	count->load = calloc(n_ids, sizeof(*count->load));
	count->computed = calloc(n_ids, sizeof(*count->computed));
	count->in_view = calloc(n_ids, sizeof(*count->in_view));
	if (count->load && count->computed && count->in_view)
		return count;
	count_free(count);
	return NULL;
}

struct check_count *check_count_get(struct check *check, const struct check_layer *layer)
{
	struct check_recording *recording = check->pass.recording;
	size_t i = (size_t)(layer - check->layers);

	if (!recording->counts)
		recording->counts = calloc(check->n_layers, sizeof(*recording->counts));
	if (recording->counts && !recording->counts[i]) {
		check->count_bytes += layer->n_ids * (CHECK_N_COLUMNS + 2) * sizeof(uint64_t);
		if (check->count_bytes <= CHECK_MAX_COUNT_BYTES)
			recording->counts[i] = count_create(layer->n_ids);
	}
	if (recording->counts && recording->counts[i])
		return recording->counts[i];
	mt_error("%s: out of memory for the counts of %zu layers and %zu recordings",
		 check->trace->path, check->n_layers, check->n_recordings);
	return NULL;
}

/* The counts that a row (recording, layer, expert, ...) of @stmt speaks of; NULL: none. */
static struct check_count *count_of_row(struct check *check, sqlite3_stmt *stmt, size_t *ret_id)
{
	const struct check_recording *recording;
	const struct check_layer *layer;
	int64_t id = sqlite3_column_int64(stmt, 2);

	recording = check_recording_find(check, sqlite3_column_int64(stmt, 0));
	layer = check_layer_find(check, sqlite3_column_int64(stmt, 1));
	if (!recording || !recording->counts || !layer || id < 0 || id >= layer->n_ids)
		return NULL;
	*ret_id = (size_t)id;
	return recording->counts[layer - check->layers];
}

/* Rows of ids that the scan did not find at all have no counts to add to. */
static void view_row_take(struct check *check, sqlite3_stmt *stmt)
{
	size_t id = 0;
	struct check_count *count = count_of_row(check, stmt, &id);

	check->results[CHECK_SUM_REQUESTS].n_checked++;
	if (count)
		count->in_view[id]++;
	else
		check_violation(check, CHECK_SUM_REQUESTS,
				"recording, layer, expert %s,%s,%s: a "
				"request has it, no pass",
				(const char *)sqlite3_column_text(stmt, 0),
				(const char *)sqlite3_column_text(stmt, 1),
				(const char *)sqlite3_column_text(stmt, 2));
}

#define SQL_COMPUTED                                           \
	"SELECT recording_id, layer_id, expert FROM moe_topk " \
	"WHERE request_id IS NOT NULL AND state = 'computed'"

/*
 * Counted here, not by GROUP BY, which would sort every assignment of the file. The function
 * refuses a file whose blobs or references are wrong: then the sum cannot hold.
 */
static int view_count(struct check *check)
{
	sqlite3_stmt *stmt = mt_trace_prepare(check->trace, SQL_COMPUTED);
	int status = MT_EXIT_OK;
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		view_row_take(check, stmt);
	if (rc == SQLITE_ERROR || rc == SQLITE_CORRUPT)
		check_violation(check, CHECK_SUM_REQUESTS, "%s", sqlite3_errmsg(check->trace->db));
	else if (rc != SQLITE_DONE)
		status = mt_trace_error(check->trace);
	sqlite3_finalize(stmt);
	return status;
}

/* Where the two ways to the computed rows differ. */
static void count_compare(struct check *check, const struct check_recording *recording,
			  const struct check_layer *layer, const struct check_count *count)
{
	uint32_t id;

	for (id = 0; id < layer->n_ids; id++) {
		if (count->computed[id] != count->in_view[id])
			check_violation(check, CHECK_SUM_REQUESTS,
					"recording, layer, expert %" PRId64 ",%" PRId64
					",%u: the requests have %" PRIu64
					" rows, the passes %" PRIu64,
					recording->recording_id, layer->layer_id, id,
					count->in_view[id], count->computed[id]);
	}
}

int check_load_compare(struct check *check)
{
	int status = view_count(check);
	size_t i;
	size_t j;

	for (i = 0; i < check->n_recordings && status == MT_EXIT_OK; i++)
		for (j = 0; check->recordings[i].counts && j < check->n_layers; j++)
			if (check->recordings[i].counts[j])
				count_compare(check, &check->recordings[i], &check->layers[j],
					      check->recordings[i].counts[j]);
	return status;
}

static void recording_free(struct check *check, struct check_recording *recording)
{
	size_t i;

	for (i = 0; recording->counts && i < check->n_layers; i++)
		count_free(recording->counts[i]);
	free(recording->counts);
}

void check_free(struct check *check)
{
	size_t i;
	size_t j;

	for (i = 0; i < check->n_recordings; i++)
		recording_free(check, &check->recordings[i]);
	for (i = 0; i < CHECK_N_RUNS; i++)
		check_run_free(&check->runs[i]);
	for (i = 0; i < CHECK_N_PROOFS; i++)
		for (j = 0; j < CHECK_MAX_EXAMPLES; j++)
			free(check->results[i].examples[j]);
	sqlite3_finalize(check->run_stmt);
	sqlite3_finalize(check->handle_stmt);
	sqlite3_finalize(check->counts_stmt);
	sqlite3_finalize(check->map_stmt);
	for (i = 0; i < check->n_layers; i++) {
		free(check->layers[i].bias);
		free(check->layers[i].slot_experts);
	}
	free(check->layers);
	free(check->models);
	free(check->recordings);
	free(check->windows);
	free(check->loads);
	free(check->pass.is_short);
	free(check->pass.columns);
	free(check->pass.is_computed);
	free(check->pass.is_kept);
	free(check->pass.seen);
	free(check->spans);
	free(check->links);
	free(check->ranges);
	free(check->load);
	free(check->row_of_id);
}
