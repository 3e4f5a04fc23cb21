/* SPDX-License-Identifier: MIT */
/*
 * Load over the whole recording, from expert_load_window. Windows that are older than the last few
 * do not change any more and are added up once; when their length changed, because the recorder
 * joined them two by two, all are read again. Where no pass is kept, what came on since the look
 * before is what happened between the two, which is taken into the bucket of now.
 */
#include "cli/top.h"

#include <stdlib.h>
#include <string.h>

/* A pass counts where it began, so windows before the last may still change. */
#define OPEN_WINDOWS "3"

#define SQL_EDGES                                                                               \
	"SELECT (SELECT length_ns FROM expert_load_window WHERE recording_id = ?1 "            \
	"ORDER BY start_ns LIMIT 1), (SELECT max(start_ns) - " OPEN_WINDOWS " * "              \
	"max(length_ns) FROM (SELECT start_ns, length_ns FROM expert_load_window "             \
	"WHERE recording_id = ?1 ORDER BY start_ns DESC LIMIT 1))"

#define SQL_LOAD                                                                           \
	"SELECT start_ns, layer_id, expert, prefill_tokens, decode_tokens, verify_tokens, " \
	"other_tokens FROM expert_load_window WHERE recording_id = ?1 AND start_ns >= ?2"

static uint64_t sum_of(sqlite3_stmt *stmt, uint64_t ret_phases[MT_TOP_PHASES])
{
	uint64_t sum = 0;
	int i;

	for (i = 0; i < MT_TOP_PHASES; i++) {
		const int64_t value = sqlite3_column_int64(stmt, 3 + i);

		ret_phases[i] = value < 0 ? 0 : (uint64_t)value;
		sum += ret_phases[i];
	}
	return sum;
}

/* Rows of the first layer stand for those of the model: each of them selected top_k experts. */
static void row_take(struct mt_top *top, sqlite3_stmt *stmt, int64_t open_ns)
{
	struct mt_top_totals *totals = &top->totals;
	const size_t i = mt_top_layer_find(top, sqlite3_column_int64(stmt, 1));
	const int64_t expert = sqlite3_column_int64(stmt, 2);
	const bool is_closed = sqlite3_column_int64(stmt, 0) < open_ns;
	uint64_t phases[MT_TOP_PHASES], sum;
	int phase;

	if (i == top->n_layers || expert < 0)
		return;
	sum = sum_of(stmt, phases);
	for (phase = 0; i == 0 && phase < MT_TOP_PHASES; phase++) {
		totals->rows[phase] += phases[phase];
		totals->closed_rows[phase] += is_closed ? phases[phase] : 0;
	}
	if (expert >= top->layers[i].n_experts)
		return;
	totals->all[top->layers[i].first_cell + (size_t)expert] += sum;
	if (is_closed)
		totals->closed[top->layers[i].first_cell + (size_t)expert] += sum;
}

static int edges_read(const struct mt_top *top, const struct mt_trace *trace, int64_t *ret_length_ns,
		      int64_t *ret_open_ns)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, SQL_EDGES);
	int status = MT_EXIT_OK;

	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, top->facts.recording_id);
	if (sqlite3_step(stmt) == SQLITE_ROW) {
		*ret_length_ns = sqlite3_column_int64(stmt, 0);
		*ret_open_ns = sqlite3_column_int64(stmt, 1);
	} else {
		status = mt_trace_error(trace);
	}
	sqlite3_finalize(stmt);
	return status;
}

/* All begins with what is closed; what is open is read on top of it. */
static void totals_begin(struct mt_top *top, int64_t length_ns)
{
	struct mt_top_totals *totals = &top->totals;

	if (totals->open_ns < 0 || totals->length_ns != length_ns) {
		memset(totals->closed, 0, top->n_cells * sizeof(*totals->closed));
		memset(totals->closed_rows, 0, sizeof(totals->closed_rows));
		totals->open_ns = INT64_MIN;
		totals->length_ns = length_ns;
	}
	memcpy(totals->all, totals->closed, top->n_cells * sizeof(*totals->all));
	memcpy(totals->rows, totals->closed_rows, sizeof(totals->rows));
}

static int loads_read(struct mt_top *top, const struct mt_trace *trace)
{
	struct mt_top_totals *totals = &top->totals;
	int64_t length_ns = 0, open_ns = 0;
	int status = edges_read(top, trace, &length_ns, &open_ns), rc;
	sqlite3_stmt *stmt;

	if (status != MT_EXIT_OK)
		return status;
	totals_begin(top, length_ns);
	open_ns = open_ns > totals->open_ns ? open_ns : totals->open_ns;
	stmt = mt_trace_prepare(trace, SQL_LOAD);
	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, top->facts.recording_id);
	sqlite3_bind_int64(stmt, 2, totals->open_ns);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		row_take(top, stmt, open_ns);
	if (rc != SQLITE_DONE)
		status = mt_trace_error(trace);
	sqlite3_finalize(stmt);
	/* After an error everything is read again. */
	totals->open_ns = rc == SQLITE_DONE ? open_ns : -1;
	return status;
}

static uint64_t grown_by(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

static void changes_take(struct mt_top *top, struct mt_top_bucket *bucket)
{
	struct mt_top_totals *totals = &top->totals;
	const uint64_t top_k = top->layers[0].top_k;
	size_t i;

	for (i = 0; i < top->n_cells; i++)
		bucket->tokens[i] += (uint32_t)grown_by(totals->all[i], totals->before[i]);
	for (i = 0; i < MT_TOP_PHASES; i++) {
		const uint64_t rows = grown_by(totals->rows[i] / top_k, totals->rows_before[i] / top_k);

		bucket->rows[i] += rows;
		bucket->n_rows += rows;
	}
	bucket->n_passes +=
		grown_by((uint64_t)top->facts.recorded_passes, (uint64_t)totals->passes_before);
}

static int changes_read(struct mt_top *top)
{
	struct mt_top_totals *totals = &top->totals;
	struct mt_top_bucket *bucket = mt_top_bucket_at(top, mt_top_until_ns(top));

	if (!totals->before) {
		totals->before = malloc(top->n_cells * sizeof(*totals->before));
		if (!totals->before) {
			mt_error("out of memory");
			return MT_EXIT_FAILED;
		}
		top->first_seen_ns = mt_top_until_ns(top);
	} else if (bucket) {
		changes_take(top, bucket);
	}
	memcpy(totals->before, totals->all, top->n_cells * sizeof(*totals->before));
	memcpy(totals->rows_before, totals->rows, sizeof(totals->rows_before));
	totals->passes_before = top->facts.recorded_passes;
	return MT_EXIT_OK;
}

int mt_top_totals_read(struct mt_top *top, const struct mt_trace *trace)
{
	const bool is_stat = strcmp(top->facts.mode, "stat") == 0;
	int status;

	if (top->n_cells == 0 || (!is_stat && top->window_ns))
		return MT_EXIT_OK;
	status = loads_read(top, trace);
	return status == MT_EXIT_OK && is_stat ? changes_read(top) : status;
}
