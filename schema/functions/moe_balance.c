/* SPDX-License-Identifier: MIT */
/*
 * moe_balance(n_ranks, placement, shared, phase, model, recording): how even the ranks of expert parallelism were, or
 * would have been, in each recording and layer, pass by pass from the stored ids or counts.
 * Padding, dense layers and passes without rows are in no figure; passes of which nothing is known
 * are counted in left_out. placement is JSON: for each MoE layer of the model, in order, the expert
 * in each slot, the slots of rank 0 first; or 'recorded': the maps of the trace, each for the
 * passes that ran under it; absent: the experts in order, as many on each rank. shared: see
 * rank_load.h; absent: routed experts alone. phase, model, recording: passes of that
 * phase, model_id and recording_id alone.
 *
 * With load[p][r] of pass p on rank r, mean[p] over the ranks, max[p] the largest:
 *   mean_balancedness   mean over p of (mean[p] + 1e-5) / (max[p] + 1e-5), as SGLang logs it
 *   total_balancedness  sum over p of mean[p] / sum over p of max[p], as vLLM logs it
 *   mean_max_over_mean  mean over p of max[p] / mean[p]; less 1 it is TensorRT-LLM's imbalance
 * ratio p50, p95, p99, max  of max[p] / mean[p] mean_cv             mean over p of the standard
 * deviation over ranks / mean[p] mean_gini           mean over p of the Gini coefficient of load[p]
 *   mean_entropy        mean over p of the entropy of the ranks' shares / log of the ranks
 *   cv, max_over_mean   of the totals over passes
 * moe_balance_pass() has the figures of each p; its mean over passes is what is said here.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "array.h"
#include "mt_sql.h"
#include "rank_load.h"
#include "tvf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/compare.h"

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows);

static const struct mt_tvf balance = {
	.name = "moe_balance",
	.declaration =
		"CREATE TABLE moe_balance (recording_id INTEGER, model_id INTEGER,"
		" layer_id INTEGER, layer INTEGER, ranks INTEGER, n_passes INTEGER,"
		" left_out INTEGER, tokens INTEGER, mean_rank_tokens REAL,"
		" mean_max_rank_tokens REAL, mean_balancedness REAL, total_balancedness REAL,"
		" mean_max_over_mean REAL, p50_max_over_mean REAL, p95_max_over_mean REAL,"
		" p99_max_over_mean REAL, max_max_over_mean REAL, mean_cv REAL, mean_gini REAL,"
		" mean_entropy REAL, max_over_mean REAL, cv REAL," MT_RANK_ARGUMENTS_SQL,
	.n_columns = 22,
	.n_arguments = MT_N_RANK_ARGUMENTS,
	.n_rows = 100,
	.compute = compute,
};

/* A layer in a recording: the sums over its passes. */
struct layer {
	sqlite3_int64 recording_id, model_id, layer_id, layer;
	uint32_t n_ranks;    /* 0: no pass with rows so far */
	double *rank_tokens; /* [n_ranks], over all passes */
	double tokens, sum_max, sum_balancedness, sum_cv, sum_gini, sum_entropy, sum_ratio;
	double *ratios; /* [n_passes]: max over mean */
	size_t n_passes, size, n_left_out;
};

struct state {
	struct mt_rank_load load;
	struct layer **layers;
	size_t n_layers, size, hint;
};

/* ---- layers ---- */

static void layer_free(struct layer *layer)
{
	sqlite3_free(layer->rank_tokens);
	sqlite3_free(layer->ratios);
	sqlite3_free(layer);
}

static int layer_add(struct state *state, const struct mt_pass_load *load)
{
	struct layer *layer;

	if (mt_array_reserve(&state->layers, &state->size, state->n_layers + 1,
			     sizeof(*state->layers)) != SQLITE_OK)
		return SQLITE_NOMEM;
	layer = sqlite3_malloc(sizeof(*layer));
	if (!layer)
		return SQLITE_NOMEM;
	memset(layer, 0, sizeof(*layer));
	layer->recording_id = load->reader.recording_id;
	layer->model_id = load->layer.model_id;
	layer->layer_id = load->layer.layer_id;
	layer->layer = load->layer.layer;
	state->layers[state->n_layers++] = layer;
	return SQLITE_OK;
}

/* One that has seen a map of other ranks is another one. */
static bool is_layer(const struct layer *layer, const struct mt_rank_load *load)
{
	return layer->layer_id == load->load.layer.layer_id &&
	       layer->recording_id == load->load.reader.recording_id &&
	       (layer->n_ranks == 0 || !load->is_known || layer->n_ranks == load->map->n_ranks);
}

/* Passes repeat their layers: the one after the last found is nearly always it. */
static int layer_find(struct state *state, struct layer **ret_layer)
{
	int rc;

	for (size_t i = 0; i < state->n_layers; i++) {
		size_t at = (state->hint + i) % state->n_layers;

		if (is_layer(state->layers[at], &state->load)) {
			state->hint = at + 1;
			*ret_layer = state->layers[at];
			return SQLITE_OK;
		}
	}
	rc = layer_add(state, &state->load.load);
	if (rc == SQLITE_OK)
		*ret_layer = state->layers[state->n_layers - 1];
	return rc;
}

/* ---- passes ---- */

static int ratio_add(struct layer *layer, double ratio)
{
	if (mt_array_reserve(&layer->ratios, &layer->size, layer->n_passes + 1,
			     sizeof(*layer->ratios)) != SQLITE_OK)
		return SQLITE_NOMEM;
	layer->ratios[layer->n_passes++] = ratio;
	return SQLITE_OK;
}

static int ranks_begin(struct layer *layer, uint32_t n_ranks)
{
	layer->rank_tokens = sqlite3_malloc64(n_ranks * sizeof(*layer->rank_tokens));
	if (!layer->rank_tokens)
		return SQLITE_NOMEM;
	memset(layer->rank_tokens, 0, n_ranks * sizeof(*layer->rank_tokens));
	layer->n_ranks = n_ranks;
	return SQLITE_OK;
}

static int pass_add(struct state *state)
{
	struct mt_rank_load *load = &state->load;
	struct mt_balance b;
	struct layer *layer;
	int rc = layer_find(state, &layer);

	if (rc != SQLITE_OK)
		return rc;
	if (!load->is_known) {
		layer->n_left_out++;
		return SQLITE_OK;
	}
	if (load->tokens == 0)
		return SQLITE_OK;
	rc = layer->n_ranks ? SQLITE_OK : ranks_begin(layer, load->map->n_ranks);
	if (rc != SQLITE_OK)
		return rc;
	mt_rank_load_balance(load, &b);
	for (uint32_t i = 0; i < layer->n_ranks; i++)
		layer->rank_tokens[i] += load->ranks[i];
	layer->tokens += load->tokens;
	layer->sum_max += b.max;
	layer->sum_balancedness += b.balancedness;
	layer->sum_ratio += b.max_over_mean;
	layer->sum_cv += b.cv;
	layer->sum_gini += b.gini;
	layer->sum_entropy += b.entropy;
	return ratio_add(layer, b.max_over_mean);
}

/* ---- listing ---- */

static int compare_layers(const void *left, const void *right)
{
	const struct layer *a = *(struct layer *const *)left, *b = *(struct layer *const *)right;

	if (a->recording_id != b->recording_id)
		return a->recording_id < b->recording_id ? -1 : 1;
	if (a->layer_id != b->layer_id)
		return a->layer_id < b->layer_id ? -1 : 1;
	return a->n_ranks < b->n_ranks ? -1 : a->n_ranks > b->n_ranks;
}

/* The smallest ratio that at least a share @q of the passes does not exceed. */
static double quantile(const struct layer *layer, double q)
{
	size_t rank = (size_t)ceil(q * (double)layer->n_passes);

	return layer->ratios[rank > 0 ? rank - 1 : 0];
}

static int figures_list(struct layer *layer, struct mt_tvf_rows *rows)
{
	const double n = (double)layer->n_passes, mean = layer->tokens / layer->n_ranks;
	double max = 0, variance = 0;
	int rc = SQLITE_OK;

	qsort(layer->ratios, layer->n_passes, sizeof(*layer->ratios), mt_compare_doubles);
	for (uint32_t i = 0; i < layer->n_ranks; i++) {
		const double off = layer->rank_tokens[i] - mean;

		variance += off * off / layer->n_ranks;
		if (layer->rank_tokens[i] > max)
			max = layer->rank_tokens[i];
	}
	const double figures[] = {mean / n,
				  layer->sum_max / n,
				  layer->sum_balancedness / n,
				  mean / layer->sum_max,
				  layer->sum_ratio / n,
				  quantile(layer, 0.5),
				  quantile(layer, 0.95),
				  quantile(layer, 0.99),
				  quantile(layer, 1.0),
				  layer->sum_cv / n,
				  layer->sum_gini / n,
				  layer->sum_entropy / n,
				  max / mean,
				  sqrt(variance) / mean};

	for (size_t i = 0; rc == SQLITE_OK && i < sizeof(figures) / sizeof(figures[0]); i++)
		rc = mt_tvf_double(rows, figures[i]);
	return rc;
}

static int layer_list(struct layer *layer, struct mt_tvf_rows *rows)
{
	const sqlite3_int64 keys[] = {layer->recording_id,
				      layer->model_id,
				      layer->layer_id,
				      layer->layer,
				      layer->n_ranks,
				      (sqlite3_int64)layer->n_passes,
				      (sqlite3_int64)layer->n_left_out,
				      (sqlite3_int64)layer->tokens};
	int rc = SQLITE_OK;

	if (layer->n_passes == 0 && layer->n_left_out == 0)
		return SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < sizeof(keys) / sizeof(keys[0]); i++)
		rc = i == 4 && !layer->n_ranks ? mt_tvf_null(rows) : mt_tvf_int64(rows, keys[i]);
	if (rc == SQLITE_OK && layer->n_passes > 0)
		return figures_list(layer, rows);
	for (int i = 0; rc == SQLITE_OK && i < 14; i++)
		rc = mt_tvf_null(rows);
	return rc;
}

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows)
{
	struct state state = {.layers = NULL};
	int rc = mt_rank_load_open(&state.load, db, &balance, arguments, rows);

	while (rc == SQLITE_OK && (rc = mt_rank_load_next(&state.load)) == SQLITE_ROW)
		rc = pass_add(&state);
	rc = rc == SQLITE_DONE ? SQLITE_OK : rc;
	if (state.n_layers > 0)
		qsort(state.layers, state.n_layers, sizeof(*state.layers), compare_layers);
	for (size_t i = 0; rc == SQLITE_OK && i < state.n_layers; i++)
		rc = layer_list(state.layers[i], rows);
	for (size_t i = 0; i < state.n_layers; i++)
		layer_free(state.layers[i]);
	sqlite3_free(state.layers);
	mt_rank_load_close(&state.load);
	return rc;
}

int mt_sql_register_balance(sqlite3 *db)
{
	return mt_tvf_register(db, &balance);
}
