/* SPDX-License-Identifier: MIT */
/*
 * Most batches are handed on as they lie in their run. The others are copied row by row: where
 * there are shared slots, rows with fewer entries, or weights that do not fall in a layer in which
 * they must, because nothing but them chose; such rows are put in order here.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "common/bytes.h"
#include "array.h"
#include "oea_batch.h"

#include <math.h>
#include <string.h>

#include "trace_reader_internal.h"

const char *const mt_oea_kind_names[MT_OEA_N_KINDS] = {NULL, "decode", "draft", "verify", "mixed"};

const char *const mt_oea_refusal_names[MT_OEA_N_REFUSALS] = {
	NULL, "hash", "order", "equal", "base", "sampled", "wide", "scores",
};

/* ---- layers ---- */

static const char sql_layer[] =
	"SELECT layer, model_id, moe_ordinal, n_experts, n_zero_experts, n_shared_slots,"
	" coalesce(n_groups, 1), top_k, kind = 'hash', has_correction_bias IS 0,"
	" weight_kind IS 'raw', scoring IS 'softmax', coalesce(topk_groups, 0), bias_values"
	" FROM main.layer WHERE layer_id = ?1";

enum { COLUMN_BIAS = 13 };

/* Values that are no numbers say nothing of an order. */
static int bias_read(sqlite3_stmt *stmt, struct mt_oea_layer *layer)
{
	const size_t n = (size_t)layer->n_experts + layer->n_zero_experts;
	const uint8_t *bytes = sqlite3_column_blob(stmt, COLUMN_BIAS);

	if (!bytes || n == 0 || (size_t)sqlite3_column_bytes(stmt, COLUMN_BIAS) != n * 4)
		return SQLITE_OK;
	layer->bias = sqlite3_malloc64(n * sizeof(*layer->bias));
	if (!layer->bias)
		return SQLITE_NOMEM;
	for (size_t i = 0; i < n; i++) {
		const uint32_t bits = mt_u32_at(bytes + 4 * i);

		memcpy(&layer->bias[i], &bits, sizeof(bits));
		if (!isfinite(layer->bias[i])) {
			sqlite3_free(layer->bias);
			layer->bias = NULL;
			return SQLITE_OK;
		}
	}
	return SQLITE_OK;
}

static int layer_read(struct mt_oea_source *source, sqlite3_stmt *stmt, struct mt_oea_layer *layer)
{
	size_t numbers[5];

	for (int i = 0; i < 5; i++)
		if (!mt_column_count(stmt, 3 + i, &numbers[i]) || numbers[i] > 65536)
			return mt_reader_fail(&source->reader, "layer %lld: its numbers are not valid",
					      source->reader.layer_id);
	layer->layer = sqlite3_column_int64(stmt, 0);
	layer->model_id = sqlite3_column_int64(stmt, 1);
	layer->moe_ordinal = sqlite3_column_int64(stmt, 2);
	layer->n_experts = (uint32_t)numbers[0];
	layer->n_zero_experts = (uint32_t)numbers[1];
	layer->n_shared_slots = (uint32_t)numbers[2];
	layer->n_groups = (uint32_t)numbers[3];
	layer->top_k = (uint32_t)numbers[4];
	layer->is_hash = sqlite3_column_int(stmt, 8);
	layer->is_unbiased = sqlite3_column_int(stmt, 9);
	layer->is_raw = sqlite3_column_int(stmt, 10);
	layer->is_softmax = sqlite3_column_int(stmt, 11);
	if (mt_column_count(stmt, 12, &numbers[0]) && numbers[0] <= layer->n_groups)
		layer->topk_groups = (uint32_t)numbers[0];
	return bias_read(stmt, layer);
}

static int layer_add(struct mt_oea_source *source)
{
	struct mt_oea_layer layer = {.layer_id = source->reader.layer_id};
	sqlite3_stmt *stmt = NULL;
	int rc = mt_reader_prepare(&source->reader, sql_layer, &stmt);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_int64(stmt, 1, layer.layer_id);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		rc = layer_read(source, stmt, &layer);
	else
		rc = rc == SQLITE_DONE
			     ? mt_reader_fail(&source->reader, "layer %lld: no such row",
					      layer.layer_id)
			     : mt_reader_fail_sqlite(&source->reader, rc);
	sqlite3_finalize(stmt);
	if (rc != SQLITE_OK)
		return rc;
	rc = mt_array_reserve(&source->layers, &source->size, source->n_layers + 1,
			      sizeof(*source->layers));
	if (rc != SQLITE_OK) {
		sqlite3_free(layer.bias);
		return rc;
	}
	source->layers[source->n_layers++] = layer;
	return SQLITE_OK;
}

/* Passes repeat their layers: the one after the last found is nearly always it. */
static int layer_find(struct mt_oea_source *source)
{
	int rc;

	for (size_t i = 0; i < source->n_layers; i++) {
		size_t at = (source->hint + i) % source->n_layers;

		if (source->layers[at].layer_id == source->reader.layer_id) {
			source->hint = at + 1;
			source->layer = &source->layers[at];
			return SQLITE_OK;
		}
	}
	rc = layer_add(source);
	if (rc == SQLITE_OK)
		source->layer = &source->layers[source->n_layers - 1];
	return rc;
}

/* ---- passes ---- */

static bool is_phase(const struct mt_slice *slice, const char *phase)
{
	return strcmp(slice->phase, phase) == 0;
}

/* What the rule of decode rows makes of a slice. */
static uint8_t slice_class(const struct mt_slice *slice)
{
	if (!is_phase(slice, "decode") && !is_phase(slice, "verify") && !is_phase(slice, "draft"))
		return MT_OEA_ROW_KEPT;
	return slice->has_request ? 0 : MT_OEA_ROW_UNRATED;
}

static enum mt_oea_kind pass_kind(const struct mt_reader *reader, bool *ret_is_plain)
{
	enum mt_oea_kind kind = MT_OEA_KIND_NONE, of_slice;
	bool has_kept = false;

	*ret_is_plain = true;
	for (size_t i = 0; i < reader->n_slices; i++) {
		const struct mt_slice *slice = &reader->slices[i];
		const uint8_t class = slice_class(slice);

		if (slice->n_rows == 0)
			continue;
		*ret_is_plain &= class == 0 && slice->accepted == 0;
		has_kept |= class == MT_OEA_ROW_KEPT;
		if (class == MT_OEA_ROW_KEPT)
			continue;
		of_slice = is_phase(slice, "verify")  ? MT_OEA_KIND_VERIFY
			   : is_phase(slice, "draft") ? MT_OEA_KIND_DRAFT
						      : MT_OEA_KIND_DECODE;
		kind = of_slice > kind ? of_slice : kind;
	}
	return has_kept && kind != MT_OEA_KIND_NONE ? MT_OEA_KIND_MIXED : kind;
}

static int pass_begin(struct mt_oea_source *source)
{
	int rc;

	source->kind = pass_kind(&source->reader, &source->is_plain_pass);
	if (source->kind == MT_OEA_KIND_NONE)
		return SQLITE_OK;
	sqlite3_reset(source->pass_stmt);
	sqlite3_bind_int64(source->pass_stmt, 1, source->reader.pass_id);
	rc = sqlite3_step(source->pass_stmt);
	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? SQLITE_CORRUPT_VTAB
					 : mt_reader_fail_sqlite(&source->reader, rc);
	source->is_sampled = sqlite3_column_int(source->pass_stmt, 0);
	source->is_drawn = sqlite3_column_int(source->pass_stmt, 1);
	return SQLITE_OK;
}

/* ---- batches ---- */

/* The rows' classes follow the slices; acceptance is a row's own. */
static int rows_mark(struct mt_oea_source *source, uint8_t *rows)
{
	struct mt_reader *reader = &source->reader;
	const struct mt_slice *slice;
	size_t row;
	int rc;

	for (size_t i = 0; i < reader->n_layer_rows; i++) {
		row = i;
		rc = reader->run->row_map ? mt_reader_map_row(reader, i, &row) : SQLITE_OK;
		if (rc != SQLITE_OK)
			return rc;
		slice = mt_reader_find_slice(reader, row);
		rows[i] = slice ? slice_class(slice) : MT_OEA_ROW_KEPT;
		if (slice && slice->accepted &&
		    !reader->blobs[slice->accepted - 1 + row - slice->row_offset])
			rows[i] |= MT_OEA_ROW_UNRATED;
	}
	return SQLITE_OK;
}

/* Copies the entries of a row that are no shared slots; returns how many. */
static size_t row_copy(const struct mt_oea_batch *from, size_t r, size_t n, uint32_t first_shared,
		       uint8_t *ids, uint8_t *weights)
{
	size_t n_copied = 0;

	for (size_t j = 0; j < n; j++) {
		const size_t at = r * from->k + j;

		if (mt_narrow_at(from->ids, from->id_bytes, at) >= first_shared)
			continue;
		memcpy(ids + n_copied * from->id_bytes, from->ids + at * from->id_bytes,
		       from->id_bytes);
		if (from->weights)
			memcpy(weights + n_copied * 2, from->weights + at * 2, 2);
		n_copied++;
	}
	return n_copied;
}

/* Puts a row in order of its weights; equal ones stay as they are. Returns whether it was not. */
static bool row_sort(const struct mt_oea_batch *batch, size_t n, uint8_t *ids, uint8_t *weights)
{
	bool moved = false;

	for (size_t i = 1; i < n; i++) {
		uint8_t id[2], half[2];
		size_t at = i;

		memcpy(id, ids + i * batch->id_bytes, batch->id_bytes);
		memcpy(half, weights + i * 2, 2);
		for (; at > 0 && mt_oea_weight(half, batch->is_bf16) >
					 mt_oea_weight(weights + (at - 1) * 2, batch->is_bf16);
		     at--) {
			memcpy(ids + at * batch->id_bytes, ids + (at - 1) * batch->id_bytes,
			       batch->id_bytes);
			memcpy(weights + at * 2, weights + (at - 1) * 2, 2);
		}
		memcpy(ids + at * batch->id_bytes, id, batch->id_bytes);
		memcpy(weights + at * 2, half, 2);
		moved |= at != i;
	}
	return moved;
}

static int memory_reserve(struct mt_oea_source *source, size_t n_bytes)
{
	void *memory;

	if (n_bytes <= source->memory_bytes)
		return SQLITE_OK;
	memory = sqlite3_realloc64(source->memory, n_bytes);
	if (!memory)
		return SQLITE_NOMEM;
	source->memory = memory;
	source->memory_bytes = n_bytes;
	return SQLITE_OK;
}

/* Makes a copy of the batch in which every row is what the sweep expects. */
static int batch_copy(struct mt_oea_source *source, bool sorts)
{
	struct mt_oea_batch *batch = &source->batch, from = *batch;
	const struct mt_oea_layer *layer = source->layer;
	const uint32_t first_shared = layer->n_experts + layer->n_zero_experts;
	const size_t n = from.n_rows, id_bytes = from.id_bytes;
	const size_t n_shared = layer->n_shared_slots < from.k ? layer->n_shared_slots : 0;
	const size_t k = from.k - n_shared;
	const size_t row_ids = from.k * id_bytes, row_weights = from.k * 2;
	uint8_t *ids, *weights, *n_valid, *rows;
	int rc = memory_reserve(source, n * (row_ids + row_weights + 2) + 1);

	if (rc != SQLITE_OK)
		return rc;
	ids = source->memory;
	weights = ids + n * row_ids;
	n_valid = weights + n * row_weights;
	rows = n_valid + n;
	for (size_t r = 0; r < n; r++) {
		size_t n_entries = from.k, n_copied;
		uint8_t entry_ids[MT_OEA_MAX_K * 2 + 2], entry_weights[MT_OEA_MAX_K * 2 + 2];

		rc = source->has_rule ? SQLITE_OK
				      : mt_reader_n_valid(&source->reader, r, &n_entries);
		if (rc != SQLITE_OK)
			return rc;
		n_copied = row_copy(&from, r, n_entries, first_shared, entry_ids, entry_weights);
		n_copied = n_copied < k ? n_copied : k;
		if (sorts)
			source->n_restored_rows +=
				row_sort(&from, n_copied, entry_ids, entry_weights);
		memset(ids + r * k * id_bytes, 0, k * id_bytes);
		memset(weights + r * k * 2, 0, k * 2);
		memcpy(ids + r * k * id_bytes, entry_ids, n_copied * id_bytes);
		if (from.weights)
			memcpy(weights + r * k * 2, entry_weights, n_copied * 2);
		n_valid[r] = (uint8_t)n_copied;
	}
	batch->k = k;
	batch->ids = ids;
	batch->weights = from.weights ? weights : NULL;
	batch->n_valid = n_valid;
	if (source->is_plain_pass)
		return SQLITE_OK;
	batch->rows = rows;
	return rows_mark(source, rows);
}

/* The stored rows as they lie in the run: the router's own choice, where a rule changed it. */
static enum mt_oea_refusal batch_take(struct mt_oea_source *source)
{
	const struct mt_reader *reader = &source->reader;
	const struct mt_run *run = reader->run;
	struct mt_oea_batch *batch = &source->batch;

	source->has_rule = run->has_rule;
	source->rule_id = run->rule_id;
	memset(batch, 0, sizeof(*batch));
	batch->n_rows = reader->n_layer_rows;
	batch->id_bytes = run->id_bytes;
	batch->n_experts = source->layer->n_experts;
	batch->is_bf16 = run->weight_format == MT_WEIGHT_BF16;
	batch->k = run->has_rule ? run->base_k : run->k;
	if (source->layer->is_hash)
		return MT_OEA_REFUSED_HASH;
	if (source->is_sampled)
		return MT_OEA_REFUSED_SAMPLED;
	if (run->has_rule && !run->base_ids)
		return MT_OEA_REFUSED_BASE;
	/* What was put in order afterwards is the rule's choice, not the router's. */
	if (reader->selection_order < 0 || reader->selection_order > (run->has_rule ? 0 : 1))
		return MT_OEA_REFUSED_ORDER;
	if (batch->k > MT_OEA_MAX_K)
		return MT_OEA_REFUSED_WIDE;
	if (source->by_weight && (run->has_rule || !run->weights))
		return MT_OEA_REFUSED_ORDER;
	batch->ids = (run->has_rule ? run->base_ids : run->ids) +
		     reader->first_row * batch->k * run->id_bytes;
	if (!run->has_rule && run->weights)
		batch->weights = run->weights + reader->first_row * batch->k * 2;
	return MT_OEA_REFUSED_NONE;
}

static int batch_make(struct mt_oea_source *source)
{
	struct mt_oea_batch *batch = &source->batch;
	const struct mt_run *run = source->reader.run;
	struct mt_oea_look look;
	bool copies;
	int rc = layer_find(source);

	if (rc != SQLITE_OK)
		return rc;
	source->n_restored_rows = 0;
	source->refusal = batch_take(source);
	if (source->refusal != MT_OEA_REFUSED_NONE || batch->n_rows == 0)
		return SQLITE_OK;
	copies = !source->is_plain_pass || run->n_valid || source->layer->n_shared_slots > 0;
	rc = copies ? batch_copy(source, false) : SQLITE_OK;
	mt_oea_look(batch, &look);
	if (look.n_looked > 0 && look.n_equal == look.n_looked)
		source->refusal = MT_OEA_REFUSED_EQUAL;
	else if (rc == SQLITE_OK && look.n_unordered > 0 &&
		 ((source->layer->is_unbiased && !source->is_drawn) || source->by_weight)) {
		batch_take(source);
		rc = batch_copy(source, true);
	}
	source->has_weights = batch->weights != NULL;
	return rc;
}

/* ---- the walk ---- */

int mt_oea_source_open(struct mt_oea_source *source, sqlite3 *db, const char *name,
		       const struct mt_filter *filter)
{
	static const char sql[] =
		"SELECT coalesce(reasons, '') LIKE '%sampled%', coalesce((SELECT routing_source <> 'model'"
		" FROM main.recording AS r WHERE r.recording_id = p.recording_id), 0)"
		" FROM main.pass AS p WHERE pass_id = ?1";
	int rc;

	memset(source, 0, sizeof(*source));
	rc = mt_reader_open(&source->reader, db, name, MT_READ_COUNTS | MT_READ_EXTRAS, filter);
	return rc == SQLITE_OK ? mt_reader_prepare(&source->reader, sql, &source->pass_stmt) : rc;
}

int mt_oea_source_next(struct mt_oea_source *source)
{
	int rc;

	for (;;) {
		if (source->kind != MT_OEA_KIND_NONE) {
			rc = mt_reader_next_layer(&source->reader);
			if (rc == SQLITE_ROW) {
				rc = batch_make(source);
				if (rc != SQLITE_OK)
					return rc;
				if (source->reader.n_layer_rows > 0)
					return SQLITE_ROW;
				continue;
			}
			if (rc != SQLITE_DONE)
				return rc;
		}
		rc = mt_reader_next_pass(&source->reader);
		if (rc == SQLITE_ROW)
			rc = pass_begin(source);
		if (rc != SQLITE_OK)
			return rc;
	}
}

int mt_oea_source_walk(struct mt_oea_source *source, sqlite3 *db, const char *name,
		       int (*add)(void *state), void *state, char **ret_error)
{
	const struct mt_filter filter = {.schema = NULL};
	const bool any_group = source->any_group, by_weight = source->by_weight;
	int rc = mt_oea_source_open(source, db, name, &filter);

	source->any_group = any_group;
	source->by_weight = by_weight;
	while (rc == SQLITE_OK) {
		rc = mt_oea_source_next(source);
		if (rc != SQLITE_ROW)
			break;
		rc = add(state);
	}
	if (rc != SQLITE_DONE && source->reader.error && !*ret_error) {
		*ret_error = source->reader.error;
		source->reader.error = NULL;
	}
	mt_oea_source_close(source);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

void mt_oea_source_close(struct mt_oea_source *source)
{
	mt_reader_close(&source->reader);
	sqlite3_finalize(source->pass_stmt);
	for (size_t i = 0; i < source->n_layers; i++)
		sqlite3_free(source->layers[i].bias);
	sqlite3_free(source->layers);
	sqlite3_free(source->memory);
	memset(source, 0, sizeof(*source));
}
