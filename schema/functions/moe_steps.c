/* SPDX-License-Identifier: MIT */
/*
 * moe_steps(): how much consecutive steps have in common, by recording, layer and the slice's own
 * phase. A pair is a position of a request and the one before it in the same attempt, both stored;
 * draft rows and verify rows that were not accepted are left out. kept_share       of the experts
 * that a position selected, the part that the one before selected too chance_share     what it
 * would be if positions were independent: sum of the squares of the shares of rows that select an
 * expert, over the experts a row active_kept_share  of the experts that a pass touched in the
 * layer, the part that the pass of the same phase and model before it touched too (pass_pairs: such
 * passes) The last position of at most 64 MiB of requests is remembered; beyond, those are
 * forgotten that were longest not seen, each of which costs a pair.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "common/bytes.h"
#include "array.h"
#include "mt_sql.h"
#include "trace_reader.h"
#include "tvf.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_K = 64, MAX_REMEMBERED_BYTES = 64 << 20, N_IDS = 65536 };

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows);

static const struct mt_tvf steps = {
	.name = "moe_steps",
	.declaration = "CREATE TABLE moe_steps (recording_id INTEGER, model_id INTEGER,"
		       " layer_id INTEGER, layer INTEGER, phase TEXT, rows INTEGER, pairs INTEGER,"
		       " selected INTEGER, kept INTEGER, kept_share REAL, chance_share REAL,"
		       " pass_pairs INTEGER, active INTEGER, active_kept INTEGER,"
		       " active_kept_share REAL)",
	.n_columns = 15,
	.n_arguments = 0,
	.n_rows = 100,
	.compute = compute,
};

struct group {
	sqlite3_int64 recording_id, model_id, layer_id, layer;
	const char *phase;
	size_t index; /* of the layer, in what is remembered of a request */
	uint64_t n_rows, n_chosen, n_pairs, n_selected, n_kept;
	uint32_t *chosen; /* [N_IDS]: rows that selected the expert */
	uint8_t *active;  /* [N_IDS]: 2, this pass touched it; 1, the one before did */
	size_t n_ids;	  /* above every id that was seen */
	sqlite3_int64 active_pass, before_pass;
	uint64_t n_pass_pairs, n_active, n_active_kept;
};

struct remembered {
	bool is_set;
	uint16_t n;
	uint16_t ids[MAX_K];
	sqlite3_int64 position;
};

struct request {
	sqlite3_int64 request_id, attempt;
	uint64_t last_use;
	size_t n_layers;
	struct remembered *layers;
};

struct state {
	struct mt_reader reader;
	struct group **groups;
	size_t n_groups, groups_size, hint, n_layers;
	struct request *requests;
	size_t n_requests, requests_size, request_hint, n_bytes;
	uint64_t clock;
	struct place *places; /* of the rows of a mapped layer, in their order in the pass */
	size_t places_size;
};

struct place {
	size_t row, i;
};

/* ---- groups ---- */

static void group_free(struct group *group)
{
	sqlite3_free(group->chosen);
	sqlite3_free(group->active);
	sqlite3_free(group);
}

/* Layers are numbered as they are first seen. */
static size_t layer_index(struct state *state)
{
	for (size_t i = 0; i < state->n_groups; i++)
		if (state->groups[i]->layer_id == state->reader.layer_id)
			return state->groups[i]->index;
	return state->n_layers++;
}

static int group_add(struct state *state, const char *phase)
{
	const struct mt_reader *reader = &state->reader;
	struct group *group;

	if (mt_array_reserve(&state->groups, &state->groups_size, state->n_groups + 1,
			     sizeof(*state->groups)) != SQLITE_OK)
		return SQLITE_NOMEM;
	group = sqlite3_malloc(sizeof(*group));
	if (!group)
		return SQLITE_NOMEM;
	*group = (struct group){.recording_id = reader->recording_id,
				.model_id = reader->layer_model_id,
				.layer_id = reader->layer_id,
				.layer = reader->layer,
				.phase = phase,
				.index = layer_index(state),
				.chosen = sqlite3_malloc64(N_IDS * sizeof(uint32_t)),
				.active = sqlite3_malloc64(N_IDS)};
	state->groups[state->n_groups++] = group;
	if (!group->chosen || !group->active)
		return SQLITE_NOMEM;
	memset(group->chosen, 0, N_IDS * sizeof(uint32_t));
	memset(group->active, 0, N_IDS);
	return SQLITE_OK;
}

static int group_find(struct state *state, const char *phase, struct group **ret_group)
{
	const struct mt_reader *reader = &state->reader;
	int rc;

	for (size_t i = 0; i < state->n_groups; i++) {
		const size_t at = (state->hint + i) % state->n_groups;
		struct group *group = state->groups[at];

		if (group->layer_id == reader->layer_id && group->phase == phase &&
		    group->recording_id == reader->recording_id) {
			state->hint = at;
			*ret_group = group;
			return SQLITE_OK;
		}
	}
	rc = group_add(state, phase);
	if (rc == SQLITE_OK)
		*ret_group = state->groups[state->n_groups - 1];
	return rc;
}

/* ---- requests ---- */

static size_t request_bytes(size_t n_layers)
{
	return n_layers * sizeof(struct remembered);
}

static void forget_oldest(struct state *state)
{
	size_t oldest = 0;

	for (size_t i = 1; i < state->n_requests; i++)
		if (state->requests[i].last_use < state->requests[oldest].last_use)
			oldest = i;
	state->n_bytes -= request_bytes(state->requests[oldest].n_layers);
	sqlite3_free(state->requests[oldest].layers);
	state->requests[oldest] = state->requests[--state->n_requests];
}

static int request_grow(struct state *state, struct request *request, size_t n_layers)
{
	const size_t old = request->n_layers;
	void *layers = sqlite3_realloc64(request->layers, request_bytes(n_layers));

	if (!layers)
		return SQLITE_NOMEM;
	request->layers = layers;
	memset(request->layers + old, 0, request_bytes(n_layers - old));
	request->n_layers = n_layers;
	state->n_bytes += request_bytes(n_layers - old);
	return SQLITE_OK;
}

static int request_add(struct state *state, const struct mt_slice *slice)
{
	while (state->n_requests > 0 &&
	       state->n_bytes + request_bytes(state->n_layers) > MAX_REMEMBERED_BYTES)
		forget_oldest(state);
	if (mt_array_reserve(&state->requests, &state->requests_size, state->n_requests + 1,
			     sizeof(struct request)) != SQLITE_OK)
		return SQLITE_NOMEM;
	state->requests[state->n_requests++] =
		(struct request){.request_id = slice->request_id, .attempt = slice->attempt};
	return SQLITE_OK;
}

/* Slices come in much the same order in every pass. */
static int request_find(struct state *state, const struct mt_slice *slice,
			struct request **ret_request)
{
	struct request *found = NULL;
	int rc = SQLITE_OK;

	for (size_t i = 0; !found && i < state->n_requests; i++) {
		const size_t at = (state->request_hint + i) % state->n_requests;

		if (state->requests[at].request_id == slice->request_id &&
		    state->requests[at].attempt == slice->attempt) {
			state->request_hint = at + 1;
			found = &state->requests[at];
		}
	}
	if (!found) {
		rc = request_add(state, slice);
		found = rc == SQLITE_OK ? &state->requests[state->n_requests - 1] : NULL;
	}
	if (found && found->n_layers < state->n_layers)
		rc = request_grow(state, found, state->n_layers);
	if (rc == SQLITE_OK) {
		found->last_use = ++state->clock;
		*ret_request = found;
	}
	return rc;
}

/* ---- rows ---- */

static bool is_computed(const struct mt_reader *reader, const struct mt_slice *slice, size_t row)
{
	if (!slice->has_request || strcmp(slice->phase, "draft") == 0)
		return false;
	if (strcmp(slice->phase, "verify") != 0)
		return true;
	return slice->accepted && reader->blobs[slice->accepted - 1 + row - slice->row_offset] == 1;
}

static sqlite3_int64 position_of(const struct mt_reader *reader, const struct mt_slice *slice,
				 size_t row)
{
	if (!slice->positions)
		return slice->first_position + (sqlite3_int64)(row - slice->row_offset);
	return mt_u32_at(reader->blobs + slice->positions - 1 + 4 * (row - slice->row_offset));
}

static bool holds(const struct remembered *before, uint16_t id)
{
	for (uint16_t i = 0; i < before->n; i++)
		if (before->ids[i] == id)
			return true;
	return false;
}

static void row_add(struct state *state, struct group *group, struct remembered *before, size_t i,
		    size_t n_valid, sqlite3_int64 position)
{
	const struct mt_run *run = state->reader.run;
	const uint8_t *ids = run->ids + (state->reader.first_row + i) * run->k * run->id_bytes;
	const bool is_pair = before->is_set && before->position + 1 == position;
	uint16_t now[MAX_K];

	group->n_rows++;
	group->n_chosen += n_valid;
	group->n_pairs += is_pair;
	for (size_t j = 0; j < n_valid; j++) {
		now[j] = (uint16_t)mt_narrow_at(ids, run->id_bytes, j);
		group->chosen[now[j]]++;
		if (now[j] >= group->n_ids)
			group->n_ids = now[j] + (size_t)1;
		if (is_pair && holds(before, now[j]))
			group->n_kept++;
	}
	group->n_selected += is_pair ? n_valid : 0;
	before->is_set = true;
	before->position = position;
	before->n = (uint16_t)n_valid;
	memcpy(before->ids, now, n_valid * sizeof(now[0]));
}

/* Touches the experts of a row, in a pass that began with what the one before it touched. */
static void active_add(struct state *state, struct group *group, size_t i, size_t n_valid)
{
	const struct mt_run *run = state->reader.run;
	const uint8_t *ids = run->ids + (state->reader.first_row + i) * run->k * run->id_bytes;

	if (group->active_pass != state->reader.pass_id) {
		group->before_pass = group->active_pass;
		group->active_pass = state->reader.pass_id;
		group->n_pass_pairs += group->before_pass != 0;
		for (size_t e = 0; e < group->n_ids; e++)
			group->active[e] = group->active[e] & 2 ? 1 : 0;
	}
	for (size_t j = 0; j < n_valid; j++) {
		const size_t id = mt_narrow_at(ids, run->id_bytes, j);

		if (group->active[id] & 2)
			continue;
		if (group->before_pass) {
			group->n_active++;
			group->n_active_kept += group->active[id] & 1;
		}
		group->active[id] |= 2;
	}
}

static int row_take(struct state *state, size_t row, size_t i)
{
	struct mt_reader *reader = &state->reader;
	const struct mt_slice *slice = mt_reader_find_slice(reader, row);
	struct request *request;
	struct group *group;
	size_t n_valid;
	int rc = mt_reader_n_valid(reader, i, &n_valid);

	if (rc != SQLITE_OK || !slice || n_valid > MAX_K || !is_computed(reader, slice, row))
		return rc;
	rc = group_find(state, slice->phase, &group);
	if (rc == SQLITE_OK)
		rc = request_find(state, slice, &request);
	if (rc != SQLITE_OK)
		return rc;
	row_add(state, group, &request->layers[group->index], i, n_valid,
		position_of(reader, slice, row));
	active_add(state, group, i, n_valid);
	return SQLITE_OK;
}

static int compare_places(const void *left, const void *right)
{
	const struct place *a = left, *b = right;

	return a->row < b->row ? -1 : a->row > b->row;
}

static int take_mapped(struct state *state)
{
	struct mt_reader *reader = &state->reader;
	const size_t n = reader->n_layer_rows;
	int rc = SQLITE_OK;

	if (n > state->places_size) {
		void *places = sqlite3_realloc64(state->places, n * sizeof(*state->places));

		if (!places)
			return SQLITE_NOMEM;
		state->places = places;
		state->places_size = n;
	}
	for (size_t i = 0; rc == SQLITE_OK && i < n; i++) {
		state->places[i].i = i;
		rc = mt_reader_map_row(reader, i, &state->places[i].row);
	}
	if (rc == SQLITE_OK && n > 0)
		qsort(state->places, n, sizeof(*state->places), compare_places);
	for (size_t i = 0; rc == SQLITE_OK && i < n; i++)
		rc = row_take(state, state->places[i].row, state->places[i].i);
	return rc;
}

static int layer_take(struct state *state)
{
	int rc = SQLITE_OK;

	if (state->reader.run->row_map)
		return take_mapped(state);
	for (size_t i = 0; rc == SQLITE_OK && i < state->reader.n_layer_rows; i++)
		rc = row_take(state, i, i);
	return rc;
}

static int read_all(struct state *state, sqlite3 *db)
{
	const struct mt_filter filter = {.schema = NULL};
	struct mt_reader *reader = &state->reader;
	int rc = mt_reader_open(reader, db, steps.name, MT_READ_ROWS, &filter);

	while (rc == SQLITE_OK && (rc = mt_reader_next_pass(reader)) == SQLITE_ROW) {
		while ((rc = mt_reader_next_layer(reader)) == SQLITE_ROW) {
			rc = layer_take(state);
			if (rc != SQLITE_OK)
				return rc;
		}
		rc = rc == SQLITE_DONE ? SQLITE_OK : rc;
	}
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* ---- listing ---- */

static int compare_groups(const void *left, const void *right)
{
	const struct group *a = *(struct group *const *)left, *b = *(struct group *const *)right;

	if (a->recording_id != b->recording_id)
		return a->recording_id < b->recording_id ? -1 : 1;
	if (a->layer_id != b->layer_id)
		return a->layer_id < b->layer_id ? -1 : 1;
	return strcmp(a->phase, b->phase);
}

static double chance(const struct group *group)
{
	const double n = (double)group->n_rows;
	double sum = 0;

	for (size_t e = 0; e < group->n_ids; e++)
		sum += group->chosen[e] / n * (group->chosen[e] / n);
	return sum / ((double)group->n_chosen / n);
}

static int quotient(struct mt_tvf_rows *rows, uint64_t part, uint64_t whole)
{
	return whole ? mt_tvf_double(rows, (double)part / (double)whole) : mt_tvf_null(rows);
}

static int group_list(const struct group *group, struct mt_tvf_rows *rows)
{
	const sqlite3_int64 keys[] = {group->recording_id, group->model_id, group->layer_id,
				      group->layer};
	const uint64_t counts[] = {group->n_rows, group->n_pairs, group->n_selected, group->n_kept};
	const uint64_t passes[] = {group->n_pass_pairs, group->n_active, group->n_active_kept};
	int rc = SQLITE_OK;

	for (int i = 0; rc == SQLITE_OK && i < 4; i++)
		rc = mt_tvf_int64(rows, keys[i]);
	if (rc == SQLITE_OK)
		rc = mt_tvf_text(rows, group->phase);
	for (int i = 0; rc == SQLITE_OK && i < 4; i++)
		rc = mt_tvf_int64(rows, (sqlite3_int64)counts[i]);
	if (rc == SQLITE_OK)
		rc = quotient(rows, group->n_kept, group->n_selected);
	if (rc == SQLITE_OK)
		rc = group->n_chosen ? mt_tvf_double(rows, chance(group)) : mt_tvf_null(rows);
	for (int i = 0; rc == SQLITE_OK && i < 3; i++)
		rc = mt_tvf_int64(rows, (sqlite3_int64)passes[i]);
	return rc == SQLITE_OK ? quotient(rows, group->n_active_kept, group->n_active) : rc;
}

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows)
{
	struct state state = {.groups = NULL};
	int rc = read_all(&state, db);

	(void)arguments;
	if (rc != SQLITE_OK && !rows->error) {
		rows->error = state.reader.error;
		state.reader.error = NULL;
	}
	if (state.n_groups > 0)
		qsort(state.groups, state.n_groups, sizeof(*state.groups), compare_groups);
	for (size_t i = 0; rc == SQLITE_OK && i < state.n_groups; i++)
		rc = group_list(state.groups[i], rows);
	for (size_t i = 0; i < state.n_groups; i++)
		group_free(state.groups[i]);
	for (size_t i = 0; i < state.n_requests; i++)
		sqlite3_free(state.requests[i].layers);
	sqlite3_free(state.groups);
	sqlite3_free(state.requests);
	sqlite3_free(state.places);
	mt_reader_close(&state.reader);
	return rc;
}

int mt_sql_register_steps(sqlite3 *db)
{
	return mt_tvf_register(db, &steps);
}
