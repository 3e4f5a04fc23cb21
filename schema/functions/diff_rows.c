/* SPDX-License-Identifier: MIT */
/*
 * The rows of a group's parts on one side: those that the attempt computed, and those that it reused,
 * from the attempt that computed them. Positions of an attempt come in the order of its passes but
 * for a few that ran at once, so reading begins a little before the pass that the part before it was
 * read to, and ends a little after the last position was seen. A row is an entry of fixed size: its
 * head, ids [max_k] and weights [max_k], without entries that are no choice.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "array.h"
#include "diff_part.h"
#include "trace_reader_internal.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/f16.h"

/* Passes that may end in another order than that of their positions. */
enum { SLACK_PASSES = 64 };

size_t mt_diff_entry_words(const struct mt_diff *diff)
{
	return sizeof(struct mt_diff_row) / sizeof(uint16_t) + diff->max_k * 2;
}

struct mt_diff_row *mt_diff_entry(const struct mt_diff *diff, size_t side, size_t at, size_t layer)
{
	return (struct mt_diff_row *)(diff->entries[side] +
				      (at * diff->n_layers + layer) * mt_diff_entry_words(diff));
}

const uint16_t *mt_diff_row_ids(const struct mt_diff_row *row)
{
	return (const uint16_t *)(row + 1);
}

float mt_diff_row_weight(const struct mt_diff *diff, const struct mt_diff_row *row, uint32_t i)
{
	const uint16_t bits = mt_diff_row_ids(row)[diff->max_k + i];

	return row->flags & MT_DIFF_FP16 ? mt_f32_from_f16(bits) : mt_f32_from_bf16(bits);
}

/* ---- what is wanted ---- */

static int want_add(struct mt_diff_group *group, size_t side, struct mt_diff_want want)
{
	const struct mt_diff_request *request =
		mt_diff_request_find(&group->diff->sides[side], want.request_id);
	int rc;

	if (!request || want.first >= want.end || request->first_pass > request->last_pass)
		return SQLITE_OK;
	rc = mt_array_reserve(&group->wants, &group->wants_size, group->n_wants + 1,
			      sizeof(*group->wants));
	if (rc != SQLITE_OK)
		return rc;
	want.first_pass = request->first_pass;
	want.last_pass = request->last_pass;
	if (want.pair && want.pair->reached[side] > SLACK_PASSES &&
	    want.pair->reached[side] - SLACK_PASSES > want.first_pass)
		want.first_pass = want.pair->reached[side] - SLACK_PASSES;
	group->wants[group->n_wants++] = want;
	return SQLITE_OK;
}

/* What the part reused lies where its source computed it. */
static int reuse_add(struct mt_diff_group *group, size_t side, const struct mt_diff_part *part)
{
	const struct mt_diff_pair *pair = &group->diff->pairs[part->pair];
	sqlite3_stmt *stmt = group->reuse[side];
	int rc;

	sqlite3_reset(stmt);
	sqlite3_bind_int64(stmt, 1, pair->request_id[side]);
	sqlite3_bind_int64(stmt, 2, pair->attempt[side]);
	sqlite3_bind_int64(stmt, 3, part->first);
	sqlite3_bind_int64(stmt, 4, part->end);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		sqlite3_int64 first = sqlite3_column_int64(stmt, 0);
		sqlite3_int64 n = sqlite3_column_int64(stmt, 1), end;

		/* The query leaves first below the part's end, and n is not trusted to be added. */
		end = n > INT32_MAX || first + n > part->end ? part->end : first + n;
		if (first < part->first)
			first = part->first;
		if (n <= 0 || end <= first)
			continue;
		rc = want_add(group, side,
			      (struct mt_diff_want){
				      .request_id = sqlite3_column_int64(stmt, 2),
				      .attempt = sqlite3_column_int64(stmt, 3),
				      .first = (uint32_t)first,
				      .end = (uint32_t)end,
				      .at = part->at + (size_t)(first - part->first),
			      });
		if (rc != SQLITE_OK)
			return rc;
	}
	return mt_diff_finish(group->diff, NULL, rc);
}

static int want_order(const void *a, const void *b)
{
	const struct mt_diff_want *one = a, *other = b;

	if (one->request_id != other->request_id)
		return one->request_id < other->request_id ? -1 : 1;
	if (one->attempt != other->attempt)
		return one->attempt < other->attempt ? -1 : 1;
	return (one->first > other->first) - (one->first < other->first);
}

static int start_order(const void *a, const void *b)
{
	const struct mt_diff_start *one = a, *other = b;

	return (one->first_pass > other->first_pass) - (one->first_pass < other->first_pass);
}

/* Wants in the order in which they are looked up, and their first passes in order. */
static int starts_make(struct mt_diff_group *group)
{
	void *starts;

	if (group->n_wants > 1)
		qsort(group->wants, group->n_wants, sizeof(*group->wants), want_order);
	starts = sqlite3_realloc64(group->starts, (group->n_wants + 1) * sizeof(*group->starts));
	if (!starts)
		return SQLITE_NOMEM;
	group->starts = starts;
	for (size_t i = 0; i < group->n_wants; i++)
		group->starts[i] = (struct mt_diff_start){
			.first_pass = group->wants[i].first_pass, .want = i};
	if (group->n_wants > 1)
		qsort(group->starts, group->n_wants, sizeof(*group->starts), start_order);
	return SQLITE_OK;
}

static int wants_make(struct mt_diff_group *group, size_t side)
{
	int rc = SQLITE_OK;

	group->n_wants = 0;
	for (size_t i = 0; rc == SQLITE_OK && i < group->n_parts; i++) {
		const struct mt_diff_part *part = &group->parts[i];
		struct mt_diff_pair *pair = &group->diff->pairs[part->pair];

		rc = want_add(group, side,
			      (struct mt_diff_want){.request_id = pair->request_id[side],
						    .attempt = pair->attempt[side],
						    .first = part->first,
						    .end = part->end,
						    .at = part->at,
						    .pair = pair});
		if (rc == SQLITE_OK)
			rc = reuse_add(group, side, part);
	}
	return rc == SQLITE_OK ? starts_make(group) : rc;
}

/* The first want of an attempt; n_wants: none. */
static size_t want_find(const struct mt_diff_group *group, sqlite3_int64 request_id,
			sqlite3_int64 attempt)
{
	size_t low = 0, high = group->n_wants;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;
		const struct mt_diff_want *want = &group->wants[middle];

		if (want->request_id < request_id ||
		    (want->request_id == request_id && want->attempt < attempt))
			low = middle + 1;
		else
			high = middle;
	}
	return low < group->n_wants && group->wants[low].request_id == request_id &&
			       group->wants[low].attempt == attempt
		       ? low
		       : group->n_wants;
}

/* ---- the rows of a pass ---- */

static sqlite3_int64 position_at(const struct mt_reader *reader, const struct mt_slice *slice,
				 size_t within)
{
	if (!slice->positions)
		return slice->first_position + (sqlite3_int64)within;
	return mt_u32_at(reader->blobs + (slice->positions - 1) + within * 4);
}

/* Whether the request relies on the row. */
static bool is_computed(const struct mt_reader *reader, const struct mt_slice *slice, size_t within)
{
	if (strcmp(slice->phase, "draft") == 0)
		return false;
	if (strcmp(slice->phase, "verify") != 0)
		return true;
	return slice->accepted && reader->blobs[slice->accepted - 1 + within] == 1;
}

static int target_add(struct mt_diff_group *group, size_t row, size_t at, bool is_reused)
{
	int rc = mt_array_reserve(&group->targets, &group->targets_size, group->n_targets + 1,
				  sizeof(*group->targets));

	if (rc == SQLITE_OK)
		group->targets[group->n_targets++] =
			(struct mt_diff_target){.row = row, .at = at, .is_reused = is_reused};
	return rc;
}

/* A row of a wanted position, or one that shows that the wanted ones were passed. */
static int want_take(struct mt_diff_group *group, const struct mt_reader *reader,
		     struct mt_diff_want *want, sqlite3_int64 position, size_t row)
{
	if (position >= (sqlite3_int64)want->end - 1 && !want->is_found) {
		want->is_found = true;
		group->n_open -= want->is_open;
		group->found_pass = reader->pass_id;
	}
	if (position >= want->end)
		return SQLITE_OK;
	if (want->pair)
		want->pair->reached[group->side] = reader->pass_id;
	return target_add(group, row, want->at + (size_t)(position - want->first), !want->pair);
}

static int slice_targets(struct mt_diff_group *group, const struct mt_reader *reader,
			 const struct mt_slice *slice, size_t first_want)
{
	int rc = SQLITE_OK;

	for (size_t within = 0; rc == SQLITE_OK && within < slice->n_rows; within++) {
		const sqlite3_int64 position = position_at(reader, slice, within);

		if (!is_computed(reader, slice, within))
			continue;
		for (size_t i = first_want; rc == SQLITE_OK && i < group->n_wants; i++) {
			struct mt_diff_want *want = &group->wants[i];

			if (want->request_id != slice->request_id ||
			    want->attempt != slice->attempt || want->first > position)
				break;
			rc = want_take(group, reader, want, position, slice->row_offset + within);
		}
	}
	return rc;
}

static int pass_targets(struct mt_diff_group *group, const struct mt_reader *reader)
{
	group->n_targets = 0;
	for (size_t i = 0; i < reader->n_slices; i++) {
		const struct mt_slice *slice = &reader->slices[i];
		size_t want;
		int rc;

		if (!slice->has_request)
			continue;
		want = want_find(group, slice->request_id, slice->attempt);
		if (want == group->n_wants)
			continue;
		rc = slice_targets(group, reader, slice, want);
		if (rc != SQLITE_OK)
			return rc;
	}
	return SQLITE_OK;
}

/* ---- copying ---- */

/* Copy row @i of the current layer, choices first; a position that came before is kept. */
static int row_copy(const struct mt_diff_group *group, struct mt_reader *reader, size_t layer,
		    size_t i, const struct mt_diff_target *target)
{
	const struct mt_diff *diff = group->diff;
	const struct mt_run *run = reader->run;
	struct mt_diff_row *entry = mt_diff_entry(diff, group->side, target->at, layer);
	uint16_t *ids = (uint16_t *)(entry + 1), *bits = ids + diff->max_k;
	const size_t first = (reader->first_row + i) * run->k;
	size_t n_valid;
	int rc = mt_reader_n_valid(reader, i, &n_valid);

	if (rc != SQLITE_OK || entry->flags & MT_DIFF_PRESENT)
		return rc;
	if (n_valid > diff->max_k)
		return mt_reader_fail(reader, "topk %lld: k grew while it was read", run->topk_id);
	for (size_t j = first; j < first + n_valid; j++) {
		const uint16_t id = (uint16_t)mt_narrow_at(run->ids, run->id_bytes, j);

		if (id >= diff->layers[layer].n_choices)
			continue;
		ids[entry->n] = id;
		if (run->weights)
			bits[entry->n] = (uint16_t)mt_u16_at(run->weights + 2 * j);
		entry->n++;
	}
	entry->flags = MT_DIFF_PRESENT;
	if (reader->selection_order == 0 || reader->selection_order == 1)
		entry->flags |= MT_DIFF_ORDERED;
	if (run->weights)
		entry->flags |= run->weight_format == MT_WEIGHT_FP16 ? MT_DIFF_FP16 : MT_DIFF_BF16;
	if (target->is_reused)
		entry->flags |= MT_DIFF_REUSED;
	return SQLITE_OK;
}

static size_t first_target(const struct mt_diff_group *group, size_t row)
{
	size_t low = 0, high = group->n_targets;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (group->targets[middle].row < row)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int mapped_copy(const struct mt_diff_group *group, struct mt_reader *reader, size_t layer)
{
	int rc = SQLITE_OK;
	size_t row;

	for (size_t i = 0; rc == SQLITE_OK && i < reader->n_layer_rows; i++) {
		rc = mt_reader_map_row(reader, i, &row);
		if (rc != SQLITE_OK)
			break;
		for (size_t t = first_target(group, row);
		     rc == SQLITE_OK && t < group->n_targets && group->targets[t].row == row; t++)
			rc = row_copy(group, reader, layer, i, &group->targets[t]);
	}
	return rc;
}

/* Layers of a pass come in the order of their keys, which is nearly always that of ours. */
static size_t layer_find(const struct mt_diff *diff, size_t side, sqlite3_int64 layer_id, size_t hint)
{
	for (size_t i = 0; i < diff->n_layers; i++) {
		const size_t at = (hint + i) % diff->n_layers;

		if (diff->layers[at].layer_id[side] == layer_id)
			return at;
	}
	return diff->n_layers;
}

static int pass_copy(const struct mt_diff_group *group, struct mt_reader *reader)
{
	size_t layer = 0;
	int rc;

	while ((rc = mt_reader_next_layer(reader)) == SQLITE_ROW) {
		layer = layer_find(group->diff, group->side, reader->layer_id, layer);
		if (layer == group->diff->n_layers) {
			layer = 0;
			continue;
		}
		rc = SQLITE_OK;
		if (reader->run->row_map)
			rc = mapped_copy(group, reader, layer);
		else
			for (size_t t = 0; rc == SQLITE_OK && t < group->n_targets; t++)
				if (group->targets[t].row < reader->n_layer_rows)
					rc = row_copy(group, reader, layer,
						      group->targets[t].row, &group->targets[t]);
		if (rc != SQLITE_OK)
			return rc;
		layer++;
	}
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* ---- passes ---- */

/* Count wants that begin by the current pass as open ones. */
static void wants_open(struct mt_diff_group *group, sqlite3_int64 pass_id)
{
	while (group->next_start < group->n_wants &&
	       group->starts[group->next_start].first_pass <= pass_id) {
		struct mt_diff_want *want = &group->wants[group->starts[group->next_start++].want];

		want->is_open = true;
		group->n_open += !want->is_found;
		if (want->last_pass > group->open_last_pass)
			group->open_last_pass = want->last_pass;
	}
}

/* Whether the wants that are open were all found, or can be in no later pass. */
static bool is_through(const struct mt_diff_group *group, sqlite3_int64 pass_id)
{
	if (pass_id >= group->open_last_pass)
		return true;
	return group->n_open == 0 && pass_id > group->found_pass &&
	       (uint64_t)pass_id - (uint64_t)group->found_pass > SLACK_PASSES;
}

/* Read from the next want's first pass until nothing that began is open. */
static int range_read(struct mt_diff_group *group)
{
	struct mt_diff *diff = group->diff;
	const sqlite3_int64 first_pass = group->starts[group->next_start].first_pass;
	const struct mt_diff_side *side = &diff->sides[group->side];
	const struct mt_filter filter = {
		.numbers = {[MT_TERM_RECORDING_ID] = &side->recording_id,
			    [MT_TERM_MODEL_ID] = &side->model_id,
			    [MT_TERM_FIRST_PASS] = &first_pass},
		.schema = side->schema,
	};
	struct mt_reader reader;
	int rc = mt_reader_open(&reader, diff->db, diff->name, MT_READ_ROWS, &filter);

	group->n_open = 0;
	group->found_pass = group->open_last_pass = INT64_MIN;
	wants_open(group, first_pass);
	while (rc == SQLITE_OK && (rc = mt_reader_next_pass(&reader)) == SQLITE_ROW) {
		wants_open(group, reader.pass_id);
		rc = pass_targets(group, &reader);
		if (rc == SQLITE_OK && group->n_targets > 0)
			rc = pass_copy(group, &reader);
		if (rc == SQLITE_OK && is_through(group, reader.pass_id))
			break;
	}
	if (rc == SQLITE_DONE)
		group->next_start = group->n_wants;
	if (reader.error) {
		sqlite3_free(diff->rows->error);
		diff->rows->error = reader.error;
		reader.error = NULL;
	}
	mt_reader_close(&reader);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int mt_diff_side_read(struct mt_diff_group *group, size_t side)
{
	const struct mt_diff *diff = group->diff;
	int rc;

	group->side = side;
	group->next_start = 0;
	rc = wants_make(group, side);
	memset(diff->entries[side], 0,
	       group->n_positions * diff->n_layers * mt_diff_entry_words(diff) * sizeof(uint16_t));
	while (rc == SQLITE_OK && group->next_start < group->n_wants)
		rc = range_read(group);
	return rc;
}
