/* SPDX-License-Identifier: MIT */
/*
 * moe_share(phase): the share of each routed expert in its layer's selections, by recording, with
 * the error that it has as an estimate from the recorded passes. phase: passes of that phase alone.
 * Experts that nothing selected have no row.
 *
 * Rows of one pass are alike, so the pass is what was sampled, not the row. With x[p] selections of
 * the expert and n[p] of the layer in pass p of m, share = sum x / sum n, and its variance is that
 * of a ratio of sums over passes: m / (m - 1) * sum (x[p] - share * n[p])^2 / (sum n)^2.
 * share_error is its root, one standard error, NULL for a single pass. It holds where further
 * passes of the same kind are meant; where the passes are a part f of all passes that ran, the
 * error of what ran is sqrt(1 - f) times that.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "array.h"
#include "mt_sql.h"
#include "pass_load.h"
#include "trace_reader_internal.h"
#include "tvf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows);

static const struct mt_tvf share = {
	.name = "moe_share",
	.declaration = "CREATE TABLE moe_share (recording_id INTEGER, model_id INTEGER,"
		       " layer_id INTEGER, layer INTEGER, expert INTEGER, n_passes INTEGER,"
		       " tokens INTEGER, share REAL, share_error REAL, phase_is TEXT HIDDEN)",
	.n_columns = 9,
	.n_arguments = 1,
	.n_rows = 10000,
	.compute = compute,
};

/* Sums over passes: of x, x * x and x * n of an expert. */
struct sums {
	double x, xx, xn;
};

struct layer {
	sqlite3_int64 recording_id, model_id, layer_id, layer;
	uint32_t n_experts;
	size_t n_passes;
	double n, nn; /* sums over passes of n and n * n */
	struct sums *experts;
};

struct state {
	struct mt_pass_load load;
	struct layer *layers;
	size_t n_layers, size, hint;
};

static int layer_add(struct state *state)
{
	const struct mt_pass_load *load = &state->load;
	const size_t n_bytes = load->layer.n_experts * sizeof(struct sums);
	struct layer *layer;

	if (mt_array_reserve(&state->layers, &state->size, state->n_layers + 1,
			     sizeof(*state->layers)) != SQLITE_OK)
		return SQLITE_NOMEM;
	layer = &state->layers[state->n_layers];
	*layer = (struct layer){.recording_id = load->reader.recording_id,
				.model_id = load->layer.model_id,
				.layer_id = load->layer.layer_id,
				.layer = load->layer.layer,
				.n_experts = load->layer.n_experts,
				.experts = sqlite3_malloc64(n_bytes + 1)};
	if (!layer->experts)
		return SQLITE_NOMEM;
	memset(layer->experts, 0, n_bytes);
	state->n_layers++;
	return SQLITE_OK;
}

/* Passes repeat their layers: the one after the last found is nearly always it. */
static int layer_find(struct state *state, struct layer **ret_layer)
{
	int rc;

	for (size_t i = 0; i < state->n_layers; i++) {
		const size_t at = (state->hint + i) % state->n_layers;

		if (state->layers[at].layer_id == state->load.layer.layer_id &&
		    state->layers[at].recording_id == state->load.reader.recording_id) {
			state->hint = at + 1;
			*ret_layer = &state->layers[at];
			return SQLITE_OK;
		}
	}
	rc = layer_add(state);
	if (rc == SQLITE_OK)
		*ret_layer = &state->layers[state->n_layers - 1];
	return rc;
}

static int pass_add(struct state *state)
{
	const uint32_t *counts = state->load.counts;
	const double n = (double)state->load.n_routed;
	struct layer *layer;
	int rc;

	if (state->load.n_routed == 0)
		return SQLITE_OK;
	rc = layer_find(state, &layer);
	if (rc != SQLITE_OK)
		return rc;
	layer->n_passes++;
	layer->n += n;
	layer->nn += n * n;
	for (uint32_t i = 0; i < layer->n_experts; i++) {
		const double x = counts[i];

		layer->experts[i].x += x;
		layer->experts[i].xx += x * x;
		layer->experts[i].xn += x * n;
	}
	return SQLITE_OK;
}

static int compare_layers(const void *left, const void *right)
{
	const struct layer *a = left, *b = right;

	if (a->recording_id != b->recording_id)
		return a->recording_id < b->recording_id ? -1 : 1;
	return a->layer_id < b->layer_id ? -1 : a->layer_id > b->layer_id;
}

static int expert_list(const struct layer *layer, uint32_t expert, struct mt_tvf_rows *rows)
{
	const struct sums *s = &layer->experts[expert];
	const double share_is = s->x / layer->n, m = (double)layer->n_passes;
	const double squares = s->xx - 2 * share_is * s->xn + share_is * share_is * layer->nn;
	const sqlite3_int64 keys[] = {
		layer->recording_id, layer->model_id, layer->layer_id,
		layer->layer,	     expert,	      (sqlite3_int64)layer->n_passes,
		(sqlite3_int64)s->x};
	int rc = SQLITE_OK;

	for (size_t i = 0; rc == SQLITE_OK && i < sizeof(keys) / sizeof(keys[0]); i++)
		rc = mt_tvf_int64(rows, keys[i]);
	if (rc == SQLITE_OK)
		rc = mt_tvf_double(rows, share_is);
	if (rc != SQLITE_OK)
		return rc;
	if (layer->n_passes < 2)
		return mt_tvf_null(rows);
	return mt_tvf_double(rows, sqrt(m / (m - 1) * (squares > 0 ? squares : 0)) / layer->n);
}

static int phase_read(sqlite3_value *value, struct mt_tvf_rows *rows, const char **ret_phase)
{
	*ret_phase = value ? mt_reader_phase((const char *)sqlite3_value_text(value), NULL) : NULL;
	if (value && !*ret_phase)
		return mt_tvf_fail(rows, "moe_share: phase: give 'prefill', 'decode', 'mixed',"
					 " 'verify' or 'draft'");
	return SQLITE_OK;
}

static int read_all(struct state *state, sqlite3 *db, sqlite3_value *const *arguments,
		    struct mt_tvf_rows *rows)
{
	const struct mt_filter filter = {.schema = NULL};
	const char *phase;
	int rc = phase_read(arguments[0], rows, &phase);

	if (rc == SQLITE_OK)
		rc = mt_pass_load_open(&state->load, db, share.name, &filter, phase);
	while (rc == SQLITE_OK && (rc = mt_pass_load_next(&state->load)) == SQLITE_ROW)
		rc = pass_add(state);
	if (rc != SQLITE_DONE && !rows->error) {
		rows->error = state->load.reader.error;
		state->load.reader.error = NULL;
	}
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows)
{
	struct state state = {.layers = NULL};
	int rc = read_all(&state, db, arguments, rows);

	if (state.n_layers > 0)
		qsort(state.layers, state.n_layers, sizeof(*state.layers), compare_layers);
	for (size_t i = 0; i < state.n_layers; i++) {
		const struct layer *layer = &state.layers[i];

		for (uint32_t e = 0; rc == SQLITE_OK && e < layer->n_experts; e++)
			if (layer->experts[e].x > 0)
				rc = expert_list(layer, e, rows);
		sqlite3_free(layer->experts);
	}
	sqlite3_free(state.layers);
	mt_pass_load_close(&state.load);
	return rc;
}

int mt_sql_register_share(sqlite3 *db)
{
	return mt_tvf_register(db, &share);
}
