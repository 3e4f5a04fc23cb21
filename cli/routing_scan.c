/* SPDX-License-Identifier: MIT */
/*
 * The scan: passes in their order, each with its layers, of every state. Rows are looked at where
 * they lie in their run; nothing is copied or kept a row. Passes of no work (idle, dummy) say
 * nothing of a router: their inputs are no tokens.
 */
#include "cli/routing.h"

#include <stdlib.h>
#include <string.h>

static int fail(struct routing *routing, int rc)
{
	if (rc == SQLITE_NOMEM)
		mt_error("%s: out of memory", routing->trace->path);
	else
		mt_error("%s: %s; 'moetrace check' says what is wrong with the file",
			 routing->trace->path,
			 routing->reader.error ? routing->reader.error
					       : sqlite3_errmsg(routing->trace->db));
	return MT_EXIT_FAILED;
}

static struct routing_layer *layer_find(struct routing *routing, int64_t layer_id)
{
	size_t low = 0;
	size_t high = routing->n_layers;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (routing->layers[middle].layer_id < layer_id)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == routing->n_layers || routing->layers[low].layer_id != layer_id)
		return NULL;
	return &routing->layers[low];
}

static struct routing_recording *recording_find(struct routing *routing, int64_t recording_id)
{
	for (size_t i = 0; i < routing->n_recordings; i++)
		if (routing->recordings[i].recording_id == recording_id)
			return &routing->recordings[i];
	return NULL;
}

/* NULL after an error line. */
static struct routing_count *count_get(struct routing *routing, struct routing_recording *recording,
				       struct routing_layer *layer)
{
	struct routing_count **place = &recording->counts[layer - routing->layers];

	if (!*place) {
		*place = calloc(1, sizeof(**place));
		if (!*place) {
			mt_error("%s: out of memory", routing->trace->path);
			return NULL;
		}
		(*place)->layer = layer;
		(*place)->recording = recording;
	}
	return *place;
}

/* ---- loads by map ---- */

/* The loads of the current epoch; NULL: the layer has seen more maps than are told apart. */
static struct routing_epoch *epoch_get(struct routing_count *count, int64_t epoch)
{
	struct routing_epoch *of;

	for (size_t i = count->n_epochs; i-- > 0;)
		if (count->epochs[i].epoch == epoch)
			return &count->epochs[i];
	if (count->n_epochs == ROUTING_N_EPOCHS)
		return NULL;
	of = &count->epochs[count->n_epochs];
	of->load = calloc(count->layer->n_ids, sizeof(*of->load));
	if (!of->load)
		return NULL;
	of->epoch = epoch;
	count->n_epochs++;
	return of;
}

static void load_take(struct routing_epoch *of, const struct routing_row *row)
{
	for (size_t j = 0; j < row->n; j++) {
		const uint32_t id = routing_id(row, j);

		if (id >= row->layer->n_experts)
			continue;
		of->load[id]++;
		of->n_assignments++;
	}
}

/* ---- rows ---- */

/* What 'moetrace check' tells of, and what no look can be trusted after. */
static int damage_tell(const struct routing *routing, const struct routing_layer *layer,
		       const char *what)
{
	mt_error("%s: pass %lld, layer %lld: %s; run moetrace check first", routing->trace->path,
		 (long long)routing->reader.pass_id, (long long)layer->layer, what);
	return MT_EXIT_FAILED;
}

static int rows_take(struct routing *routing, struct routing_count *count)
{
	struct mt_reader *reader = &routing->reader;
	const struct mt_run *run = reader->run;
	struct routing_layer *layer = count->layer;
	const bool is_own = count->recording->is_routed && !layer->is_hash && !run->has_rule;
	struct routing_epoch *epoch = NULL;
	int rc = SQLITE_OK;

	if (run->k > (run->has_rule ? layer->n_ids : layer->top_k))
		return damage_tell(routing, layer,
				   "its rows have more entries than the layer selects");
	if ((run->id_bytes == 1) != (layer->n_ids <= 256))
		return damage_tell(routing, layer, "its ids are of a size that is not the layer's");
	if (reader->map_epoch > 0)
		epoch = epoch_get(count, reader->map_epoch);
	for (size_t i = 0; i < reader->n_layer_rows && rc == SQLITE_OK; i++) {
		const size_t stored = reader->first_row + i;
		struct routing_row row = {
			.run = run,
			.layer = layer,
			.count = count,
			.ids = run->ids + stored * run->k * run->id_bytes,
			.weights = run->weights ? run->weights + stored * run->k * 2 : NULL,
			.stored = stored,
			.i = i,
			.is_bf16 = run->weight_format == MT_WEIGHT_BF16,
			.is_own = is_own,
			.is_ordered = is_own && reader->selection_order == 0,
		};

		rc = mt_reader_n_valid(reader, i, &row.n);
		if (rc != SQLITE_OK)
			break;
		if (!routing_row_take(routing, &row))
			return damage_tell(routing, layer,
					   "a row has an id that is not the layer's");
		if (epoch)
			load_take(epoch, &row);
		if (run->candidate_ids && row.n == layer->top_k)
			routing_scores_take(routing, &row);
	}
	return rc == SQLITE_OK ? MT_EXIT_OK : fail(routing, rc);
}

/* ---- counts ---- */

/* The sum of the counts that the runtime told; false: there are none that can be read. */
static bool counts_add(struct routing *routing, const struct routing_layer *layer,
		       uint64_t *ret_sum)
{
	sqlite3_stmt *stmt = routing->counts_stmt;
	const int64_t width = sqlite3_column_int64(stmt, 0);
	const uint8_t *p = sqlite3_column_blob(stmt, 1);
	uint64_t sum = 0;

	if (width < 1 || width > 4 ||
	    sqlite3_column_bytes(stmt, 1) != width * (int64_t)layer->n_ids)
		return false;
	for (uint32_t i = 0; i < layer->n_ids; i++)
		for (int64_t j = 0; j < width; j++)
			sum += (uint64_t)*p++ << (8 * j);
	*ret_sum = sum;
	return true;
}

static int counts_take(struct routing *routing, struct routing_count *count)
{
	struct mt_reader *reader = &routing->reader;
	const uint64_t n = (uint64_t)reader->n_rows * count->layer->top_k;
	uint64_t sum;
	int rc;

	if (!routing->counts_stmt)
		routing->counts_stmt = mt_trace_prepare(
			routing->trace, "SELECT count_bytes, counts FROM layer_load "
					"WHERE pass_id = ?1 AND layer_id = ?2");
	if (!routing->counts_stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(routing->counts_stmt, 1, reader->pass_id);
	sqlite3_bind_int64(routing->counts_stmt, 2, count->layer->layer_id);
	rc = sqlite3_step(routing->counts_stmt);
	if (rc == SQLITE_ROW && counts_add(routing, count->layer, &sum)) {
		count->faults[ROUTING_RANK_MULTIPLIED].n_seen++;
		count->n_told++;
		if (sum > n && sum % n == 0 &&
		    (count->n_multiple == 0 || sum / n == count->multiple)) {
			count->multiple = sum / n;
			count->n_multiple++;
		}
	}
	sqlite3_reset(routing->counts_stmt);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? MT_EXIT_OK : mt_trace_error(routing->trace);
}

/* ---- passes ---- */

static int layer_take(struct routing *routing, struct routing_recording *recording)
{
	struct mt_reader *reader = &routing->reader;
	struct routing_layer *layer = layer_find(routing, reader->layer_id);
	struct routing_count *count;

	if (!layer || reader->n_rows == 0)
		return MT_EXIT_OK;
	count = count_get(routing, recording, layer);
	if (!count)
		return MT_EXIT_FAILED;
	count->n_passes[reader->state]++;
	if (routing_map_load(routing, layer, reader->map_epoch) != MT_EXIT_OK)
		return MT_EXIT_FAILED;
	if (reader->state == MT_LAYER_STORED) {
		if (reader->map_epoch > 0 &&
		    routing_dispatch_seek(routing, reader->layer_id) != MT_EXIT_OK)
			return MT_EXIT_FAILED;
		if (reader->map_epoch > 0 && routing->is_at_dispatch)
			routing_dispatch_take(routing, count);
		return rows_take(routing, count);
	}
	return reader->state == MT_LAYER_COUNTED ? counts_take(routing, count) : MT_EXIT_OK;
}

static int pass_take(struct routing *routing)
{
	struct mt_reader *reader = &routing->reader;
	struct routing_recording *recording = recording_find(routing, reader->recording_id);
	const bool is_work =
		strcmp(reader->phase, "idle") != 0 && strcmp(reader->phase, "dummy") != 0;
	int status = MT_EXIT_OK;
	int rc;

	while (status == MT_EXIT_OK && (rc = mt_reader_next_layer(reader)) != SQLITE_DONE) {
		if (rc != SQLITE_ROW)
			return fail(routing, rc);
		if (recording && is_work)
			status = layer_take(routing, recording);
	}
	return status;
}

int routing_scan_run(struct routing *routing)
{
	const struct mt_filter filter = {.values = {NULL}};
	int status = MT_EXIT_OK;
	int rc = mt_reader_open_layers(&routing->reader, routing->trace->db, "check --routing",
				       &filter);

	routing->is_reader_open = true;
	if (rc != SQLITE_OK)
		return fail(routing, rc);
	while (status == MT_EXIT_OK && (rc = mt_reader_next_pass(&routing->reader)) != SQLITE_DONE)
		status = rc == SQLITE_ROW ? pass_take(routing) : fail(routing, rc);
	return status;
}
