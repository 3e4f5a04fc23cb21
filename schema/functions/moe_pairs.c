/* SPDX-License-Identifier: MIT */
/*
 * moe_pairs(layer_id): how often two experts of a layer were selected by the same row, by
 * recording, over all stored rows; a row a pair that was. lift = together * rows / (rows_a *
 * rows_b): 1 is what independent experts would give. layer_id: that layer alone.
 *
 * A layer of n experts takes n * (n - 1) / 2 counters of four bytes; where all layers together
 * would take more than 96 MiB, the function asks for one layer.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "common/bytes.h"
#include "array.h"
#include "mt_sql.h"
#include "trace_reader.h"
#include "tvf.h"

#include <string.h>

enum { MAX_BYTES = 96 << 20, MAX_K = 256 };

static int begin(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows,
		 void **ret_state);
static int more(void *state, struct mt_tvf_rows *rows);
static void end(void *state);

static const struct mt_tvf pairs = {
	.name = "moe_pairs",
	.declaration = "CREATE TABLE moe_pairs (recording_id INTEGER, model_id INTEGER,"
		       " layer_id INTEGER, layer INTEGER, expert_a INTEGER, expert_b INTEGER,"
		       " together INTEGER, rows_a INTEGER, rows_b INTEGER, rows INTEGER, lift REAL,"
		       " layer_is INTEGER HIDDEN)",
	.n_columns = 11,
	.n_arguments = 1,
	.n_rows = 100000,
	.begin = begin,
	.more = more,
	.end = end,
};

struct layer {
	sqlite3_int64 recording_id, model_id, layer_id, layer;
	uint32_t n; /* experts of every kind */
	uint64_t n_rows;
	uint32_t *alone;    /* [n] */
	uint32_t *together; /* pair (a, b), a < b, is at b * (b - 1) / 2 + a */
};

struct state {
	struct mt_reader reader;
	struct layer *layers;
	size_t n_layers, size, hint;
	uint64_t n_bytes;
	size_t at; /* layer that is listed next */
	uint32_t at_expert;
};

static int layer_alloc(struct state *state, struct layer *layer, struct mt_tvf_rows *rows)
{
	const uint64_t n_pairs = (uint64_t)layer->n * (layer->n - 1) / 2;
	const uint64_t n_bytes = (n_pairs + layer->n) * sizeof(uint32_t);

	if (n_bytes > MAX_BYTES || (state->n_bytes += n_bytes) > MAX_BYTES)
		return mt_tvf_fail(rows,
				   "moe_pairs: the pairs of all layers are too many for memory:"
				   " give a layer_id, moe_pairs(%lld)",
				   layer->layer_id);
	layer->alone = sqlite3_malloc64(n_bytes + 1);
	if (!layer->alone)
		return SQLITE_NOMEM;
	memset(layer->alone, 0, n_bytes);
	layer->together = layer->alone + layer->n;
	return SQLITE_OK;
}

static int layer_add(struct state *state, struct mt_tvf_rows *rows)
{
	const struct mt_reader *reader = &state->reader;
	const struct mt_layer_facts *facts = reader->layer_facts;
	struct layer *layer;

	if (mt_array_reserve(&state->layers, &state->size, state->n_layers + 1,
			     sizeof(*state->layers)) != SQLITE_OK)
		return SQLITE_NOMEM;
	layer = &state->layers[state->n_layers];
	*layer = (struct layer){.recording_id = reader->recording_id,
				.model_id = facts->model_id,
				.layer_id = facts->layer_id,
				.layer = facts->layer,
				.n = facts->n_experts + facts->n_zero_experts +
				     facts->n_shared_slots};
	if (layer->n == 0)
		return SQLITE_CORRUPT;
	state->n_layers++;
	return layer_alloc(state, layer, rows);
}

/* Passes repeat their layers: the one after the last found is nearly always it. */
static int layer_find(struct state *state, struct mt_tvf_rows *rows, struct layer **ret_layer)
{
	int rc;

	for (size_t i = 0; i < state->n_layers; i++) {
		const size_t at = (state->hint + i) % state->n_layers;

		if (state->layers[at].layer_id == state->reader.layer_id &&
		    state->layers[at].recording_id == state->reader.recording_id) {
			state->hint = at + 1;
			*ret_layer = &state->layers[at];
			return SQLITE_OK;
		}
	}
	rc = layer_add(state, rows);
	if (rc == SQLITE_OK)
		*ret_layer = &state->layers[state->n_layers - 1];
	return rc;
}

/* The experts of one row that the layer has, in ascending order, each once. */
static size_t row_read(const struct mt_run *run, size_t row, size_t n_valid, uint32_t n,
		       uint32_t sorted[MAX_K])
{
	const uint8_t *ids = run->ids + row * run->k * run->id_bytes;
	size_t n_sorted = 0;

	for (size_t i = 0; i < n_valid && n_sorted < MAX_K; i++) {
		const uint32_t id = mt_narrow_at(ids, run->id_bytes, i);
		size_t at = n_sorted;

		if (id >= n)
			continue;
		for (; at > 0 && sorted[at - 1] > id; at--)
			;
		if (at > 0 && sorted[at - 1] == id)
			continue;
		memmove(sorted + at + 1, sorted + at, (n_sorted - at) * sizeof(*sorted));
		sorted[at] = id;
		n_sorted++;
	}
	return n_sorted;
}

static int layer_count(struct state *state, struct mt_tvf_rows *rows)
{
	struct mt_reader *reader = &state->reader;
	uint32_t sorted[MAX_K + 1];
	struct layer *layer;
	int rc = layer_find(state, rows, &layer);

	for (size_t i = 0; rc == SQLITE_OK && i < reader->n_layer_rows; i++) {
		size_t n_valid, n;

		rc = mt_reader_n_valid(reader, i, &n_valid);
		if (rc != SQLITE_OK)
			return rc;
		n = row_read(reader->run, reader->first_row + i, n_valid, layer->n, sorted);
		layer->n_rows++;
		for (size_t b = 0; b < n; b++) {
			uint32_t *with =
				layer->together + (size_t)sorted[b] * (sorted[b] - (size_t)1) / 2;

			layer->alone[sorted[b]]++;
			for (size_t a = 0; a < b; a++)
				with[sorted[a]]++;
		}
	}
	return rc;
}

static int count_all(struct state *state, struct mt_tvf_rows *rows)
{
	struct mt_reader *reader = &state->reader;
	int rc;

	while ((rc = mt_reader_next_pass(reader)) == SQLITE_ROW) {
		while ((rc = mt_reader_next_layer(reader)) == SQLITE_ROW) {
			if (reader->state == MT_LAYER_STORED)
				rc = layer_count(state, rows);
			if (rc != SQLITE_OK && rc != SQLITE_ROW)
				return rc;
		}
		if (rc != SQLITE_DONE)
			return rc;
	}
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int begin(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows,
		 void **ret_state)
{
	struct mt_filter filter = {.schema = NULL};
	struct state *state = sqlite3_malloc(sizeof(*state));
	int rc;

	if (!state)
		return SQLITE_NOMEM;
	memset(state, 0, sizeof(*state));
	*ret_state = state;
	filter.values[MT_TERM_LAYER_ID] = arguments[0];
	rc = mt_reader_open_passes(&state->reader, db, pairs.name, &filter);
	if (rc == SQLITE_OK)
		rc = count_all(state, rows);
	if (rc != SQLITE_OK && !rows->error) {
		rows->error = state->reader.error;
		state->reader.error = NULL;
	}
	return rc;
}

static void end(void *context)
{
	struct state *state = context;

	for (size_t i = 0; i < state->n_layers; i++)
		sqlite3_free(state->layers[i].alone);
	sqlite3_free(state->layers);
	mt_reader_close(&state->reader);
	sqlite3_free(state);
}

static int pair_list(const struct layer *layer, uint32_t a, uint32_t b, uint32_t together,
		     struct mt_tvf_rows *rows)
{
	const double expected =
		(double)layer->alone[a] * (double)layer->alone[b] / (double)layer->n_rows;
	const sqlite3_int64 keys[] = {layer->recording_id,
				      layer->model_id,
				      layer->layer_id,
				      layer->layer,
				      a,
				      b,
				      together,
				      layer->alone[a],
				      layer->alone[b],
				      (sqlite3_int64)layer->n_rows};
	int rc = SQLITE_OK;

	for (size_t i = 0; rc == SQLITE_OK && i < sizeof(keys) / sizeof(keys[0]); i++)
		rc = mt_tvf_int64(rows, keys[i]);
	return rc == SQLITE_OK ? mt_tvf_double(rows, together / expected) : rc;
}

/* The pairs of one expert with those below it, of the next expert that has any. */
static int more(void *context, struct mt_tvf_rows *rows)
{
	struct state *state = context;
	int rc = SQLITE_OK;

	while (rc == SQLITE_OK && rows->n_cells == 0 && state->at < state->n_layers) {
		const struct layer *layer = &state->layers[state->at];
		const uint32_t b = state->at_expert++;
		const uint32_t *with;

		if (b >= layer->n) {
			state->at++;
			state->at_expert = 0;
			continue;
		}
		with = layer->together + (size_t)b * (b - (size_t)1) / 2;
		for (uint32_t a = 0; rc == SQLITE_OK && a < b; a++)
			if (with[a] > 0)
				rc = pair_list(layer, a, b, with[a], rows);
	}
	return rc;
}

int mt_sql_register_pairs(sqlite3 *db)
{
	return mt_tvf_register(db, &pairs);
}
