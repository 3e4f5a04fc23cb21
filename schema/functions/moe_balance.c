/* SPDX-License-Identifier: MIT */
/*
 * moe_balance(n_ranks, placement): how even the ranks of expert parallelism were, or would have
 * been, in each recording and layer, pass by pass from the stored ids. Routed experts only;
 * padding, dense layers and passes without rows are in no figure. placement is JSON: for each MoE
 * layer of the model, in order, the expert in each slot, the slots of rank 0 first; absent: the
 * experts in order, the same number on each rank. An expert's tokens are shared evenly by its
 * replicas, so loads are fractions.
 *
 * With load[p][r] of pass p on rank r, mean[p] over the ranks, max[p] the largest:
 *   mean_balancedness   mean over p of (mean[p] + 1e-5) / (max[p] + 1e-5), as SGLang logs it
 *   total_balancedness  sum over p of mean[p] / sum over p of max[p], as vLLM logs it
 *   p50, p95 and max    of max[p] / mean[p]
 *   cv                  standard deviation / mean over ranks of the totals over passes
 *   max_over_mean       largest / mean over ranks of the totals over passes
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "mt_sql.h"
#include "placement.h"
#include "trace_reader.h"
#include "tvf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum argument { ARG_RANKS, ARG_PLACEMENT, N_ARGUMENTS };

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows);

static const struct mt_tvf balance = {
	.name = "moe_balance",
	.declaration = "CREATE TABLE moe_balance (recording_id INTEGER, model_id INTEGER,"
		       " layer_id INTEGER, layer INTEGER, n_passes INTEGER, tokens INTEGER,"
		       " mean_rank_tokens REAL, mean_max_rank_tokens REAL, mean_balancedness REAL,"
		       " total_balancedness REAL, p50_max_over_mean REAL, p95_max_over_mean REAL,"
		       " max_max_over_mean REAL, max_over_mean REAL, cv REAL,"
		       " n_ranks INTEGER HIDDEN, placement TEXT HIDDEN)",
	.n_columns = 15,
	.n_arguments = N_ARGUMENTS,
	.n_rows = 100,
	.compute = compute,
};

/* A layer in a recording: where its experts are, and the sums over its passes. */
struct layer {
	sqlite3_int64 recording_id, model_id, layer_id, layer;
	uint32_t n_experts, n_slots;
	uint32_t *rank_of;   /* [n_slots] */
	uint32_t *expert_of; /* [n_slots] */
	uint32_t *replicas;  /* [n_experts] */
	double *rank_tokens; /* [n_ranks], over all passes */
	double tokens, sum_max, sum_balancedness;
	double *ratios; /* [n_passes]: max over mean */
	size_t n_passes, size;
};

struct state {
	sqlite3 *db;
	struct mt_tvf_rows *rows;
	uint32_t n_ranks;
	sqlite3_value *placement;
	struct layer **layers;
	size_t n_layers, size, hint;
	uint32_t *slots;    /* [MT_PLACEMENT_MAX], of the layer being prepared */
	uint32_t *counts;   /* [MT_PLACEMENT_MAX], of the layer being read; zero between layers */
	double *rank_loads; /* [n_ranks] */
};

static void *zeroed(size_t n, size_t bytes)
{
	void *memory = sqlite3_malloc64(n * bytes);

	if (memory)
		memset(memory, 0, n * bytes);
	return memory;
}

/* ---- placements ---- */

static int slots_in_order(struct state *state, struct layer *layer)
{
	if (layer->n_experts % state->n_ranks != 0)
		return mt_tvf_fail(state->rows,
				   "moe_balance: layer %lld: %u experts cannot be divided by %u"
				   " ranks: give a placement",
				   layer->layer, layer->n_experts, state->n_ranks);
	layer->n_slots = layer->n_experts;
	for (uint32_t i = 0; i < layer->n_slots; i++)
		state->slots[i] = i;
	return SQLITE_OK;
}

static const char sql_slots[] =
	"SELECT s.type, s.value FROM json_each(?1, '$[' || ?2 || ']') AS s ORDER BY s.key";

static int slots_step(struct state *state, struct layer *layer, sqlite3_stmt *stmt)
{
	int rc;

	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const char *type = (const char *)sqlite3_column_text(stmt, 0);
		const sqlite3_int64 expert = sqlite3_column_int64(stmt, 1);

		if (!type || strcmp(type, "integer") != 0 || expert < 0 ||
		    expert >= layer->n_experts)
			return mt_tvf_fail(state->rows,
					   "moe_balance: placement of layer %lld, slot %u: give an"
					   " expert from 0 to %u",
					   layer->layer, layer->n_slots, layer->n_experts - 1);
		if (layer->n_slots == MT_PLACEMENT_MAX)
			return mt_tvf_fail(state->rows,
					   "moe_balance: placement of layer %lld: more than %d"
					   " slots",
					   layer->layer, MT_PLACEMENT_MAX);
		state->slots[layer->n_slots++] = (uint32_t)expert;
	}
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int slots_from_json(struct state *state, struct layer *layer, sqlite3_int64 moe_ordinal)
{
	sqlite3_stmt *stmt;
	int rc = sqlite3_prepare_v2(state->db, sql_slots, -1, &stmt, NULL);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_value(stmt, 1, state->placement);
	sqlite3_bind_int64(stmt, 2, moe_ordinal);
	rc = slots_step(state, layer, stmt);
	sqlite3_finalize(stmt);
	if (rc != SQLITE_OK && !state->rows->error)
		rc = mt_tvf_fail(state->rows, "moe_balance: placement: %s",
				 sqlite3_errmsg(state->db));
	if (rc == SQLITE_OK && layer->n_slots % state->n_ranks != 0)
		rc = mt_tvf_fail(state->rows,
				 "moe_balance: placement of layer %lld: %u slots cannot be divided"
				 " by %u ranks",
				 layer->layer, layer->n_slots, state->n_ranks);
	return rc;
}

/* Every expert has a slot. */
static int slots_finish(struct state *state, struct layer *layer)
{
	layer->rank_of = zeroed(layer->n_slots, sizeof(*layer->rank_of));
	layer->expert_of = zeroed(layer->n_slots, sizeof(*layer->expert_of));
	if (!layer->rank_of || !layer->expert_of)
		return SQLITE_NOMEM;
	memcpy(layer->expert_of, state->slots, layer->n_slots * sizeof(*layer->expert_of));
	for (uint32_t i = 0; i < layer->n_slots; i++) {
		layer->rank_of[i] = i / (layer->n_slots / state->n_ranks);
		layer->replicas[layer->expert_of[i]]++;
	}
	for (uint32_t i = 0; i < layer->n_experts; i++)
		if (layer->replicas[i] == 0)
			return mt_tvf_fail(state->rows,
					   "moe_balance: placement of layer %lld: expert %u has no"
					   " slot",
					   layer->layer, i);
	return SQLITE_OK;
}

/* ---- layers ---- */

static void layer_free(struct layer *layer)
{
	sqlite3_free(layer->rank_of);
	sqlite3_free(layer->expert_of);
	sqlite3_free(layer->replicas);
	sqlite3_free(layer->rank_tokens);
	sqlite3_free(layer->ratios);
	sqlite3_free(layer);
}

static int layer_describe(struct state *state, struct layer *layer, sqlite3_int64 *ret_ordinal)
{
	sqlite3_stmt *stmt;
	int rc = sqlite3_prepare_v2(state->db,
				    "SELECT n_experts, moe_ordinal FROM layer WHERE layer_id = ?1",
				    -1, &stmt, NULL);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_int64(stmt, 1, layer->layer_id);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW) {
		layer->n_experts = (uint32_t)sqlite3_column_int64(stmt, 0);
		*ret_ordinal = sqlite3_column_int64(stmt, 1);
		rc = layer->n_experts > 0 && layer->n_experts <= MT_PLACEMENT_MAX ? SQLITE_OK
										  : SQLITE_CORRUPT;
	}
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE ? SQLITE_CORRUPT : rc;
}

static int layer_prepare(struct state *state, struct layer *layer)
{
	sqlite3_int64 moe_ordinal = 0;
	int rc = layer_describe(state, layer, &moe_ordinal);

	if (rc != SQLITE_OK)
		return rc;
	layer->replicas = zeroed(layer->n_experts, sizeof(*layer->replicas));
	layer->rank_tokens = zeroed(state->n_ranks, sizeof(*layer->rank_tokens));
	if (!layer->replicas || !layer->rank_tokens)
		return SQLITE_NOMEM;
	rc = state->placement ? slots_from_json(state, layer, moe_ordinal)
			      : slots_in_order(state, layer);
	return rc == SQLITE_OK ? slots_finish(state, layer) : rc;
}

static int layer_add(struct state *state, const struct mt_reader *reader)
{
	struct layer *layer = zeroed(1, sizeof(*layer));

	if (!layer)
		return SQLITE_NOMEM;
	if (state->n_layers == state->size) {
		size_t size = state->size ? state->size * 2 : 64;
		void *layers = sqlite3_realloc64(state->layers, size * sizeof(*state->layers));

		if (!layers) {
			sqlite3_free(layer);
			return SQLITE_NOMEM;
		}
		state->layers = layers;
		state->size = size;
	}
	layer->recording_id = reader->recording_id;
	layer->model_id = reader->layer_model_id;
	layer->layer_id = reader->layer_id;
	layer->layer = reader->layer;
	state->layers[state->n_layers++] = layer;
	return layer_prepare(state, layer);
}

/* Passes repeat their layers: the one after the last found is nearly always it. */
static int layer_find(struct state *state, const struct mt_reader *reader, struct layer **ret_layer)
{
	int rc;

	for (size_t i = 0; i < state->n_layers; i++) {
		size_t at = (state->hint + i) % state->n_layers;
		struct layer *layer = state->layers[at];

		if (layer->layer_id == reader->layer_id &&
		    layer->recording_id == reader->recording_id) {
			state->hint = at + 1;
			*ret_layer = layer;
			return SQLITE_OK;
		}
	}
	rc = layer_add(state, reader);
	if (rc == SQLITE_OK)
		*ret_layer = state->layers[state->n_layers - 1];
	return rc;
}

/* ---- passes ---- */

static int count_rows(struct state *state, struct mt_reader *reader, uint32_t n_experts)
{
	const struct mt_run *run = reader->run;

	for (size_t i = 0; i < reader->n_layer_rows; i++) {
		const uint8_t *ids = run->ids + (reader->first_row + i) * run->k * run->id_bytes;
		size_t n_valid;
		int rc = mt_reader_n_valid(reader, i, &n_valid);

		if (rc != SQLITE_OK)
			return rc;
		for (size_t j = 0; j < n_valid; j++) {
			uint32_t id = run->id_bytes == 1
					      ? ids[j]
					      : (uint32_t)(ids[2 * j] | ids[2 * j + 1] << 8);

			if (id < n_experts)
				state->counts[id]++;
		}
	}
	return SQLITE_OK;
}

static int ratio_add(struct layer *layer, double ratio)
{
	if (layer->n_passes == layer->size) {
		size_t size = layer->size ? layer->size * 2 : 64;
		void *ratios = sqlite3_realloc64(layer->ratios, size * sizeof(*layer->ratios));

		if (!ratios)
			return SQLITE_NOMEM;
		layer->ratios = ratios;
		layer->size = size;
	}
	layer->ratios[layer->n_passes++] = ratio;
	return SQLITE_OK;
}

/* Spread the counts over the ranks, take the pass's figures, and clear the counts. */
static int pass_add(struct state *state, struct layer *layer)
{
	double tokens = 0, max = 0, mean;

	memset(state->rank_loads, 0, state->n_ranks * sizeof(*state->rank_loads));
	for (uint32_t i = 0; i < layer->n_slots; i++) {
		const uint32_t expert = layer->expert_of[i];

		state->rank_loads[layer->rank_of[i]] +=
			(double)state->counts[expert] / layer->replicas[expert];
	}
	for (uint32_t i = 0; i < layer->n_experts; i++)
		tokens += state->counts[i];
	memset(state->counts, 0, layer->n_experts * sizeof(*state->counts));
	if (tokens == 0)
		return SQLITE_OK;
	for (uint32_t i = 0; i < state->n_ranks; i++) {
		layer->rank_tokens[i] += state->rank_loads[i];
		if (state->rank_loads[i] > max)
			max = state->rank_loads[i];
	}
	mean = tokens / state->n_ranks;
	layer->tokens += tokens;
	layer->sum_max += max;
	layer->sum_balancedness += (mean + 1e-5) / (max + 1e-5);
	return ratio_add(layer, max / mean);
}

static int read_passes(struct state *state, struct mt_reader *reader)
{
	struct layer *layer;
	int rc;

	while ((rc = mt_reader_next_pass(reader)) == SQLITE_ROW) {
		while ((rc = mt_reader_next_layer(reader)) == SQLITE_ROW) {
			rc = layer_find(state, reader, &layer);
			if (rc == SQLITE_OK)
				rc = count_rows(state, reader, layer->n_experts);
			if (rc == SQLITE_OK)
				rc = pass_add(state, layer);
			if (rc != SQLITE_OK)
				return rc;
		}
		if (rc != SQLITE_DONE)
			return rc;
	}
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* ---- listing ---- */

static int compare_ratios(const void *left, const void *right)
{
	const double a = *(const double *)left, b = *(const double *)right;

	return a < b ? -1 : a > b;
}

static int compare_layers(const void *left, const void *right)
{
	const struct layer *a = *(struct layer *const *)left, *b = *(struct layer *const *)right;

	if (a->recording_id != b->recording_id)
		return a->recording_id < b->recording_id ? -1 : 1;
	return a->layer_id < b->layer_id ? -1 : a->layer_id > b->layer_id;
}

/* The smallest ratio that at least a share @q of the passes does not exceed. */
static double quantile(const struct layer *layer, double q)
{
	size_t rank = (size_t)ceil(q * (double)layer->n_passes);

	return layer->ratios[rank > 0 ? rank - 1 : 0];
}

static int layer_list(const struct state *state, struct layer *layer)
{
	const double n = (double)layer->n_passes, mean = layer->tokens / state->n_ranks;
	double max = 0, variance = 0;
	int rc = SQLITE_OK;

	if (layer->n_passes == 0)
		return SQLITE_OK;
	qsort(layer->ratios, layer->n_passes, sizeof(*layer->ratios), compare_ratios);
	for (uint32_t i = 0; i < state->n_ranks; i++) {
		const double off = layer->rank_tokens[i] - mean;

		variance += off * off / state->n_ranks;
		if (layer->rank_tokens[i] > max)
			max = layer->rank_tokens[i];
	}
	const sqlite3_int64 keys[] = {layer->recording_id,
				      layer->model_id,
				      layer->layer_id,
				      layer->layer,
				      (sqlite3_int64)layer->n_passes,
				      (sqlite3_int64)layer->tokens};
	const double figures[] = {mean / n,
				  layer->sum_max / n,
				  layer->sum_balancedness / n,
				  mean / layer->sum_max,
				  quantile(layer, 0.5),
				  quantile(layer, 0.95),
				  quantile(layer, 1.0),
				  max / mean,
				  sqrt(variance) / mean};

	for (size_t i = 0; rc == SQLITE_OK && i < sizeof(keys) / sizeof(keys[0]); i++)
		rc = mt_tvf_int64(state->rows, keys[i]);
	for (size_t i = 0; rc == SQLITE_OK && i < sizeof(figures) / sizeof(figures[0]); i++)
		rc = mt_tvf_double(state->rows, figures[i]);
	return rc;
}

static int read_all(struct state *state)
{
	const struct mt_filter filter = {{NULL}};
	struct mt_reader reader = {0};
	int rc = mt_reader_open(&reader, state->db, balance.name, true, &filter);

	if (rc == SQLITE_OK)
		rc = read_passes(state, &reader);
	if (rc != SQLITE_OK && reader.error && !state->rows->error) {
		state->rows->error = reader.error;
		reader.error = NULL;
	}
	mt_reader_close(&reader);
	return rc;
}

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows)
{
	struct state state = {.db = db, .rows = rows, .placement = arguments[ARG_PLACEMENT]};
	int rc;

	if (!arguments[ARG_RANKS])
		return mt_tvf_fail(rows, "moe_balance: n_ranks: give how many ranks there are");
	rc = mt_tvf_uint(rows, &balance, arguments, ARG_RANKS, "n_ranks", 1, MT_PLACEMENT_MAX, 0,
			 &state.n_ranks);
	if (rc != SQLITE_OK)
		return rc;
	state.slots = zeroed(MT_PLACEMENT_MAX, sizeof(*state.slots));
	state.counts = zeroed(MT_PLACEMENT_MAX, sizeof(*state.counts));
	state.rank_loads = zeroed(state.n_ranks, sizeof(*state.rank_loads));
	rc = state.slots && state.counts && state.rank_loads ? read_all(&state) : SQLITE_NOMEM;
	if (state.n_layers > 0)
		qsort(state.layers, state.n_layers, sizeof(*state.layers), compare_layers);
	for (size_t i = 0; rc == SQLITE_OK && i < state.n_layers; i++)
		rc = layer_list(&state, state.layers[i]);
	for (size_t i = 0; i < state.n_layers; i++)
		layer_free(state.layers[i]);
	sqlite3_free(state.layers);
	sqlite3_free(state.slots);
	sqlite3_free(state.counts);
	sqlite3_free(state.rank_loads);
	return rc;
}

int mt_sql_register_balance(sqlite3 *db)
{
	return mt_tvf_register(db, &balance);
}
