/* SPDX-License-Identifier: MIT */
/*
 * The two sums. Over all slices: what the scan counted by recording, layer, expert and column,
 * against expert_load_window; a row of the file takes its count away, so that whatever is left
 * over is missing from the file. Over computed rows: what the scan counted of them, against the
 * rows of requests as the extension gives them.
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

static void load_row_compare(struct check *check, sqlite3_stmt *stmt)
{
	static const uint64_t nothing[CHECK_N_COLUMNS];
	size_t id = 0;
	struct check_count *count = count_of_row(check, stmt, &id);
	const uint64_t *load = count ? count->load[id] : nothing;
	int64_t in_file[CHECK_N_COLUMNS];
	bool is_equal = true;
	int i;

	for (i = 0; i < CHECK_N_COLUMNS; i++) {
		in_file[i] = sqlite3_column_int64(stmt, 3 + i);
		is_equal = is_equal && in_file[i] == (int64_t)load[i];
	}
	check->results[CHECK_SUM_LOAD].n_checked++;
	if (!is_equal)
		check_violation(check, CHECK_SUM_LOAD,
				"expert_load_window %s,%s,%s: prefill, decode, "
				"verify, other are %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
				", the slices give %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64,
				(const char *)sqlite3_column_text(stmt, 0),
				(const char *)sqlite3_column_text(stmt, 1),
				(const char *)sqlite3_column_text(stmt, 2), in_file[0], in_file[1],
				in_file[2], in_file[3], load[0], load[1], load[2], load[3]);
	if (count)
		memset(count->load[id], 0, sizeof(count->load[id]));
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

#define SQL_LOAD                                                                           \
	"SELECT recording_id, layer_id, expert, sum(prefill_tokens), sum(decode_tokens), " \
	"sum(verify_tokens), sum(other_tokens) FROM expert_load_window "                   \
	"GROUP BY recording_id, layer_id, expert"

static int load_compare(struct check *check)
{
	sqlite3_stmt *stmt = mt_trace_prepare(check->trace, SQL_LOAD);
	int status = MT_EXIT_OK;
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		load_row_compare(check, stmt);
	if (rc != SQLITE_DONE)
		status = mt_trace_error(check->trace);
	sqlite3_finalize(stmt);
	return status;
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

/* What no row of the windows took away, and where the two ways to the computed rows differ. */
static void count_compare(struct check *check, const struct check_recording *recording,
			  const struct check_layer *layer, const struct check_count *count)
{
	uint32_t id;
	uint64_t n;

	for (id = 0; id < layer->n_ids; id++) {
		n = count->load[id][0] + count->load[id][1] + count->load[id][2] +
		    count->load[id][3];
		if (n > 0)
			check_violation(check, CHECK_SUM_LOAD,
					"expert_load_window %" PRId64 ",%" PRId64
					",%u: no row, but the slices give %" PRIu64 " tokens",
					recording->recording_id, layer->layer_id, id, n);
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
	int status;
	size_t i;
	size_t j;

	status = load_compare(check);
	if (status == MT_EXIT_OK)
		status = view_count(check);
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
	for (i = 0; i < CHECK_N_RUNS; i++) {
		free(check->runs[i].ids);
		free(check->runs[i].row_map);
		free(check->runs[i].n_valid);
	}
	for (i = 0; i < CHECK_N_PROOFS; i++)
		for (j = 0; j < CHECK_MAX_EXAMPLES; j++)
			free(check->results[i].examples[j]);
	sqlite3_finalize(check->run_stmt);
	free(check->layers);
	free(check->models);
	free(check->recordings);
	free(check->pass.columns);
	free(check->pass.is_computed);
	free(check->pass.seen);
	free(check->spans);
	free(check->ranges);
	free(check->load);
	free(check->row_of_id);
}
