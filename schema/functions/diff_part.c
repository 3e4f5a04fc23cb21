/* SPDX-License-Identifier: MIT */
/*
 * Goes through the pairs group by group. A's slices are followed in the order of its passes; every
 * pair takes part with the positions from where it was up to the slice's end, so that gaps, and what
 * was reused, belong to the part that comes after them. A group ends where the memory is full, and
 * at last what no slice led to is taken.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "array.h"
#include "diff_part.h"

#include <string.h>

static size_t n_sides(const struct mt_diff *diff)
{
	return diff->is_single ? 1 : MT_N_SIDES;
}

/* Positions of a pair before the first token that differs; those that nobody saw are only counted. */
static void pair_measure(const struct mt_diff *diff, struct mt_diff_pair *pair)
{
	uint32_t end = UINT32_MAX, seen = 0;

	pair->end = pair->n_unseen = 0;

	for (size_t side = 0; side < n_sides(diff); side++) {
		const struct mt_diff_request *request =
			mt_diff_request_find(&diff->sides[side], pair->request_id[side]);

		if (!request)
			return;
		if (request->end < end)
			end = request->end;
		if (request->seen > seen)
			seen = request->seen;
	}
	if (pair->token_position >= 0 && pair->token_position < end)
		end = (uint32_t)pair->token_position;
	pair->end = end < seen ? end : seen;
	pair->n_unseen = end - pair->end;
}

/* ---- parts ---- */

/* The pair of an attempt of A; NULL: it is in none. */
static struct mt_diff_pair *pair_find(const struct mt_diff_group *group, sqlite3_int64 request_id,
				      sqlite3_int64 attempt)
{
	struct mt_diff_pair *pairs = group->diff->pairs;
	size_t low = 0, high = group->n_a_pairs;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (pairs[middle].request_id[0] < request_id ||
		    (pairs[middle].request_id[0] == request_id &&
		     pairs[middle].attempt[0] < attempt))
			low = middle + 1;
		else
			high = middle;
	}
	return low < group->n_a_pairs && pairs[low].request_id[0] == request_id &&
			       pairs[low].attempt[0] == attempt
		       ? &pairs[low]
		       : NULL;
}

/* Let the pair's part reach up to @end, or as far as there is room. */
static int pair_take(struct mt_diff_group *group, struct mt_diff_pair *pair, uint32_t end)
{
	const size_t room = group->max_positions - group->n_positions;
	uint32_t n = end > pair->next_position ? end - pair->next_position : 0;
	int rc;

	if (pair->part == 0) {
		rc = mt_array_reserve(&group->parts, &group->parts_size, group->n_parts + 1,
				      sizeof(*group->parts));
		if (rc != SQLITE_OK)
			return rc;
		group->parts[group->n_parts++] = (struct mt_diff_part){
			.pair = (size_t)(pair - group->diff->pairs),
			.first = pair->next_position,
		};
		pair->part = group->n_parts;
	}
	if (n > room)
		n = (uint32_t)room;
	pair->next_position += n;
	group->parts[pair->part - 1].end = pair->next_position;
	group->n_positions += n;
	return SQLITE_OK;
}

/* A's slice: SQLITE_ROW: it has been taken, SQLITE_OK: there was no room for all of it. */
static int slice_take(struct mt_diff_group *group)
{
	sqlite3_stmt *stmt = group->slices;
	struct mt_diff_pair *pair =
		pair_find(group, sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1));
	uint32_t end = pair ? mt_diff_slice_end(stmt, 2) : 0;
	int rc;

	if (pair && end > pair->end)
		end = pair->end;
	if (!pair || pair->is_done || end <= pair->next_position)
		return SQLITE_ROW;
	rc = pair_take(group, pair, end);
	if (rc != SQLITE_OK)
		return rc;
	return pair->next_position == end ? SQLITE_ROW : SQLITE_OK;
}

static int slices_follow(struct mt_diff_group *group)
{
	int rc = SQLITE_ROW;

	while (group->slices && group->n_positions < group->max_positions) {
		if (!group->slice_waits)
			rc = sqlite3_step(group->slices);
		if (rc != SQLITE_ROW) {
			sqlite3_stmt *stmt = group->slices;

			group->slices = NULL;
			return mt_diff_finish(group->diff, stmt, rc);
		}
		rc = slice_take(group);
		group->slice_waits = rc == SQLITE_OK;
		if (rc != SQLITE_ROW && rc != SQLITE_OK)
			return rc;
		rc = SQLITE_ROW;
	}
	return SQLITE_OK;
}

/* What slices did not lead to: trailing gaps, and pairs without any row. */
static int rest_take(struct mt_diff_group *group)
{
	struct mt_diff *diff = group->diff;
	int rc = SQLITE_OK;

	while (rc == SQLITE_OK && group->drained < diff->n_pairs &&
	       group->n_positions < group->max_positions) {
		struct mt_diff_pair *pair = &diff->pairs[group->drained];

		if (!pair->is_done)
			rc = pair_take(group, pair, pair->end);
		if (pair->next_position >= pair->end)
			group->drained++;
	}
	return rc;
}

static int group_fill(struct mt_diff_group *group)
{
	size_t at = 0;
	int rc;

	group->n_parts = 0;
	group->n_positions = 0;
	rc = slices_follow(group);
	if (rc == SQLITE_OK && !group->slices)
		rc = rest_take(group);
	for (size_t i = 0; i < group->n_parts; i++) {
		group->parts[i].at = at;
		at += group->parts[i].end - group->parts[i].first;
	}
	return rc;
}

/* ---- handing over ---- */

static int part_hand(const struct mt_diff_group *group, const struct mt_diff_part *part,
		     const struct mt_diff_sink *sink)
{
	const struct mt_diff *diff = group->diff;
	struct mt_diff_pair *pair = &diff->pairs[part->pair];
	int rc = SQLITE_OK;

	for (uint32_t position = part->first; position < part->end; position++) {
		const size_t at = part->at + (position - part->first);

		for (size_t layer = 0; rc == SQLITE_OK && layer < diff->n_layers; layer++) {
			const struct mt_diff_row *a = mt_diff_entry(diff, 0, at, layer);
			const struct mt_diff_row *b =
				diff->is_single ? a : mt_diff_entry(diff, 1, at, layer);

			if ((a->flags | b->flags) & MT_DIFF_PRESENT)
				rc = sink->row(sink->state, pair, position, layer, a, b);
			else
				pair->n_both_missing++;
		}
		if (rc != SQLITE_OK)
			return rc;
	}
	return sink->part(sink->state, pair);
}

static int group_hand(const struct mt_diff_group *group, const struct mt_diff_sink *sink)
{
	int rc = SQLITE_OK;

	for (size_t i = 0; rc == SQLITE_OK && i < group->n_parts; i++) {
		struct mt_diff_pair *pair = &group->diff->pairs[group->parts[i].pair];

		rc = part_hand(group, &group->parts[i], sink);
		pair->part = 0;
		if (rc != SQLITE_OK || pair->next_position < pair->end)
			continue;
		rc = sink->pair(sink->state, pair);
		sqlite3_free(pair->state);
		pair->state = NULL;
		pair->is_done = true;
	}
	return rc;
}

/* ---- the whole ---- */

static int memory_take(struct mt_diff_group *group)
{
	struct mt_diff *diff = group->diff;
	const size_t position_bytes =
		diff->n_layers * mt_diff_entry_words(diff) * sizeof(uint16_t);

	/* One position is the least that can be compared. */
	group->max_positions = diff->memory_bytes / position_bytes;
	if (group->max_positions == 0)
		group->max_positions = 1;
	for (size_t side = 0; side < n_sides(diff); side++) {
		sqlite3_free(diff->entries[side]);
		diff->entries[side] = sqlite3_malloc64(group->max_positions * position_bytes);
		if (!diff->entries[side])
			return SQLITE_NOMEM;
	}
	return SQLITE_OK;
}

static int statements_prepare(struct mt_diff_group *group)
{
	static const char sql_reuse[] =
		"SELECT first_position, n_positions, source_request_id, source_attempt FROM "
		"main.request_reuse WHERE request_id = ?1 AND attempt = ?2 AND first_position < ?4 AND "
		"first_position + n_positions > ?3 AND source_request_id IS NOT NULL";
	static const char sql_slices[] =
		"SELECT pr.request_id, pr.attempt, pr.first_position, pr.n_rows, pr.positions FROM "
		"main.pass AS p CROSS JOIN main.pass_request AS pr ON pr.pass_id = p.pass_id WHERE "
		"p.recording_id = ?1 AND p.model_id = ?2 AND pr.phase <> 'draft' AND pr.request_id IS "
		"NOT NULL ORDER BY p.pass_id, pr.slice";
	struct mt_diff *diff = group->diff;
	int rc = mt_diff_prepare(diff, 0, sql_slices, &group->slices);

	for (size_t side = 0; rc == SQLITE_OK && side < MT_N_SIDES; side++)
		rc = mt_diff_prepare(diff, side, sql_reuse, &group->reuse[side]);
	if (rc == SQLITE_OK) {
		sqlite3_bind_int64(group->slices, 1, diff->sides[0].recording_id);
		sqlite3_bind_int64(group->slices, 2, diff->sides[0].model_id);
	}
	return rc;
}

static void pairs_begin(struct mt_diff_group *group)
{
	struct mt_diff *diff = group->diff;

	for (size_t i = 0; i < diff->n_pairs; i++) {
		pair_measure(diff, &diff->pairs[i]);
		if (diff->pairs[i].request_id[0] != 0)
			group->n_a_pairs = i + 1;
	}
}

static void group_end(struct mt_diff_group *group)
{
	for (size_t i = 0; i < group->diff->n_pairs; i++) {
		sqlite3_free(group->diff->pairs[i].state);
		group->diff->pairs[i].state = NULL;
	}
	sqlite3_finalize(group->slices);
	sqlite3_finalize(group->reuse[0]);
	sqlite3_finalize(group->reuse[1]);
	sqlite3_free(group->parts);
	sqlite3_free(group->wants);
	sqlite3_free(group->starts);
	sqlite3_free(group->targets);
}

int mt_diff_read(struct mt_diff *diff, const struct mt_diff_sink *sink)
{
	struct mt_diff_group group = {.diff = diff};
	int rc;

	if (diff->n_layers == 0)
		return SQLITE_OK;
	pairs_begin(&group);
	rc = memory_take(&group);
	if (rc == SQLITE_OK)
		rc = statements_prepare(&group);
	do {
		if (rc == SQLITE_OK)
			rc = group_fill(&group);
		for (size_t side = 0; rc == SQLITE_OK && side < n_sides(diff); side++)
			rc = mt_diff_side_read(&group, side);
		if (rc == SQLITE_OK)
			rc = group_hand(&group, sink);
	} while (rc == SQLITE_OK && group.n_parts > 0);
	group_end(&group);
	return rc;
}
