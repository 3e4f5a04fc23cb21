/* SPDX-License-Identifier: MIT */
/*
 * moe_rule(): what the rules that a recording ran under did, from the router's own choice beside
 * theirs: by recording, model, layer, phase of the pass and rule; rows without a rule have rule_id
 * NULL. It says what the view rule_effect says, for whole files.
 *
 *   known_rows       rows whose own choice was recorded; the figures behind it are theirs
 *   changed_rows     rows whose set of experts is another one
 *   swapped_entries  experts that the router had not chosen
 *   lost_entries     experts that the rule left out
 *   active_before    distinct routed experts of the router's choices, summed over batches
 *   active_after     of the rule's
 *   equal_rows       rows of more than one weight that are all the same
 *   one_row_batches  batches of a single row
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "common/bytes.h"
#include "array.h"
#include "mt_sql.h"
#include "oea_sweep.h"
#include "trace_reader.h"
#include "tvf.h"

#include <stdlib.h>
#include <string.h>

#define MAX_GROUPS 65536

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows);

static const struct mt_tvf rule_tvf = {
	.name = "moe_rule",
	.declaration = "CREATE TABLE moe_rule (recording_id INTEGER, model_id INTEGER,"
		       " layer_id INTEGER, layer INTEGER, phase TEXT, rule_id INTEGER,"
		       " n_batches INTEGER, one_row_batches INTEGER, rows INTEGER,"
		       " known_rows INTEGER, changed_rows INTEGER, swapped_entries INTEGER,"
		       " lost_entries INTEGER, active_before INTEGER, active_after INTEGER,"
		       " equal_rows INTEGER)",
	.n_columns = 16,
	.n_arguments = 0,
	.n_rows = 200,
	.compute = compute,
};

enum figure {
	N_BATCHES,
	ONE_ROW_BATCHES,
	ROWS,
	KNOWN_ROWS,
	CHANGED_ROWS,
	SWAPPED_ENTRIES,
	LOST_ENTRIES,
	ACTIVE_BEFORE,
	ACTIVE_AFTER,
	EQUAL_ROWS,
	N_FIGURES
};

struct group {
	sqlite3_int64 recording_id, model_id, layer_id, layer, rule_id;
	bool has_rule;
	uint32_t n_experts;
	const char *phase;
	sqlite3_int64 figures[N_FIGURES];
};

struct state {
	struct mt_tvf_rows *rows;
	struct mt_reader reader;
	sqlite3_stmt *layer_stmt;
	struct group *groups;
	size_t n_groups, size, hint;
	const char *phase;	/* of the pass; NULL: it has no rows */
	uint32_t seen[2][65536]; /* by id: number of the last batch that had it before, after */
	uint32_t marks[65536];	/* by id: number of the last row that had it before */
	uint32_t n_batches, n_rows;
};

/* ---- groups ---- */

static int layer_experts(struct state *state, uint32_t *ret_n_experts)
{
	int rc;

	sqlite3_reset(state->layer_stmt);
	sqlite3_bind_int64(state->layer_stmt, 1, state->reader.layer_id);
	rc = sqlite3_step(state->layer_stmt);
	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? SQLITE_CORRUPT_VTAB : rc;
	*ret_n_experts = (uint32_t)sqlite3_column_int64(state->layer_stmt, 0);
	return SQLITE_OK;
}

static int group_add(struct state *state)
{
	const struct mt_reader *reader = &state->reader;
	struct group group = {
		.recording_id = reader->recording_id,
		.model_id = reader->layer_model_id,
		.layer_id = reader->layer_id,
		.layer = reader->layer,
		.has_rule = reader->run->has_rule,
		.rule_id = reader->run->has_rule ? reader->run->rule_id : 0,
		.phase = state->phase,
	};
	int rc = layer_experts(state, &group.n_experts);

	if (rc != SQLITE_OK)
		return rc;
	if (state->n_groups == MAX_GROUPS)
		return mt_tvf_fail(state->rows, "moe_rule: more than %d layers and rules",
				   MAX_GROUPS);
	if (mt_array_reserve(&state->groups, &state->size, state->n_groups + 1,
			     sizeof(*state->groups)) != SQLITE_OK)
		return SQLITE_NOMEM;
	state->groups[state->n_groups++] = group;
	return SQLITE_OK;
}

/* Passes repeat their layers: the one after the last found is nearly always it. */
static int group_find(struct state *state, struct group **ret_group)
{
	const struct mt_reader *reader = &state->reader;
	int rc;

	for (size_t i = 0; i < state->n_groups; i++) {
		const size_t at = (state->hint + i) % state->n_groups;
		struct group *group = &state->groups[at];

		if (group->layer_id == reader->layer_id && group->phase == state->phase &&
		    group->recording_id == reader->recording_id &&
		    group->has_rule == reader->run->has_rule &&
		    (!group->has_rule || group->rule_id == reader->run->rule_id)) {
			state->hint = at + 1;
			*ret_group = group;
			return SQLITE_OK;
		}
	}
	rc = group_add(state);
	if (rc == SQLITE_OK)
		*ret_group = &state->groups[state->n_groups - 1];
	return rc;
}

/* ---- batches ---- */

/* Counts an expert that the batch did not have yet. */
static void meet(struct state *state, struct group *group, int side, uint32_t id)
{
	if (id >= group->n_experts || state->seen[side][id] == state->n_batches)
		return;
	state->seen[side][id] = state->n_batches;
	group->figures[ACTIVE_BEFORE + side]++;
}

/* Ids of a row are distinct, so that sets differ where an entry is new, or one is missing. */
static void row_compare(struct state *state, struct group *group, size_t row, size_t n_valid)
{
	const struct mt_run *run = state->reader.run;
	const size_t at = state->reader.first_row + row;
	size_t n_new = 0;

	state->n_rows++;
	for (size_t j = 0; j < run->base_k; j++) {
		const uint32_t id =
			mt_narrow_at(run->base_ids, run->id_bytes, at * run->base_k + j);

		state->marks[id] = state->n_rows;
		meet(state, group, 0, id);
	}
	for (size_t j = 0; j < n_valid; j++) {
		const uint32_t id = mt_narrow_at(run->ids, run->id_bytes, at * run->k + j);

		n_new += state->marks[id] != state->n_rows;
		meet(state, group, 1, id);
	}
	group->figures[KNOWN_ROWS]++;
	group->figures[CHANGED_ROWS] += n_new > 0 || n_valid != run->base_k;
	group->figures[SWAPPED_ENTRIES] += (sqlite3_int64)n_new;
	group->figures[LOST_ENTRIES] += (sqlite3_int64)(run->base_k + n_new - n_valid);
}

static void weights_look(struct state *state, struct group *group)
{
	const struct mt_run *run = state->reader.run;
	const size_t first = state->reader.first_row;
	const struct mt_oea_batch batch = {
		.weights = run->weights ? run->weights + first * run->k * 2 : NULL,
		.n_valid = run->n_valid ? run->n_valid + first : NULL,
		.n_rows = state->reader.n_layer_rows,
		.k = run->k,
	};
	struct mt_oea_look look;

	mt_oea_look(&batch, &look);
	group->figures[EQUAL_ROWS] += (sqlite3_int64)look.n_equal;
}

static int batch_add(struct state *state)
{
	struct mt_reader *reader = &state->reader;
	struct group *group;
	int rc = group_find(state, &group);

	if (rc != SQLITE_OK)
		return rc;
	state->n_batches++;
	group->figures[N_BATCHES]++;
	group->figures[ROWS] += (sqlite3_int64)reader->n_layer_rows;
	group->figures[ONE_ROW_BATCHES] += reader->n_layer_rows == 1;
	for (size_t i = 0; i < reader->n_layer_rows; i++) {
		size_t n_valid;

		rc = mt_reader_n_valid(reader, i, &n_valid);
		if (rc != SQLITE_OK)
			return rc;
		if (reader->run->base_ids)
			row_compare(state, group, i, n_valid);
	}
	weights_look(state, group);
	return SQLITE_OK;
}

/* ---- the function ---- */

static const char *pass_phase(const struct mt_reader *reader)
{
	const char *phase = NULL;

	for (size_t i = 0; i < reader->n_slices; i++) {
		const struct mt_slice *slice = &reader->slices[i];

		if (slice->n_rows == 0)
			continue;
		if (phase && phase != slice->phase)
			return "mixed";
		phase = slice->phase;
	}
	return phase;
}

static int read_passes(struct state *state)
{
	struct mt_reader *reader = &state->reader;
	int rc;

	while ((rc = mt_reader_next_pass(reader)) == SQLITE_ROW) {
		state->phase = pass_phase(reader);
		while ((rc = mt_reader_next_layer(reader)) == SQLITE_ROW) {
			rc = state->phase && reader->n_layer_rows > 0 ? batch_add(state)
								      : SQLITE_OK;
			if (rc != SQLITE_OK)
				return rc;
		}
		if (rc != SQLITE_DONE)
			return rc;
	}
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int compare_groups(const void *left, const void *right)
{
	const struct group *a = left, *b = right;
	const int phases = strcmp(a->phase, b->phase);

	if (a->recording_id != b->recording_id)
		return a->recording_id < b->recording_id ? -1 : 1;
	if (a->layer_id != b->layer_id)
		return a->layer_id < b->layer_id ? -1 : 1;
	if (phases != 0)
		return phases;
	return a->rule_id < b->rule_id ? -1 : a->rule_id > b->rule_id;
}

static int group_list(struct mt_tvf_rows *rows, const struct group *group)
{
	const sqlite3_int64 keys[] = {group->recording_id, group->model_id, group->layer_id,
				      group->layer};
	int rc = SQLITE_OK;

	for (size_t i = 0; rc == SQLITE_OK && i < 4; i++)
		rc = mt_tvf_int64(rows, keys[i]);
	if (rc == SQLITE_OK)
		rc = mt_tvf_text(rows, group->phase);
	if (rc == SQLITE_OK)
		rc = group->has_rule ? mt_tvf_int64(rows, group->rule_id) : mt_tvf_null(rows);
	for (int i = 0; rc == SQLITE_OK && i < N_FIGURES; i++) {
		const bool is_known = i < CHANGED_ROWS || i > ACTIVE_AFTER ||
				      group->figures[KNOWN_ROWS] > 0;

		rc = is_known ? mt_tvf_int64(rows, group->figures[i]) : mt_tvf_null(rows);
	}
	return rc;
}

static int read_all(struct state *state, sqlite3 *db)
{
	static const char sql[] = "SELECT n_experts FROM main.layer WHERE layer_id = ?1";
	const struct mt_filter filter = {.schema = NULL};
	int rc = mt_reader_open(&state->reader, db, rule_tvf.name,
				MT_READ_COUNTS | MT_READ_EXTRAS, &filter);

	if (rc == SQLITE_OK)
		rc = sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_NO_VTAB, &state->layer_stmt,
					NULL);
	if (rc == SQLITE_OK)
		rc = read_passes(state);
	if (rc != SQLITE_OK && state->reader.error && !state->rows->error) {
		state->rows->error = state->reader.error;
		state->reader.error = NULL;
	}
	mt_reader_close(&state->reader);
	sqlite3_finalize(state->layer_stmt);
	return rc;
}

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows)
{
	struct state *state = sqlite3_malloc64(sizeof(*state));
	int rc;

	(void)arguments;
	if (!state)
		return SQLITE_NOMEM;
	memset(state, 0, sizeof(*state));
	state->rows = rows;
	rc = read_all(state, db);
	if (state->n_groups > 0)
		qsort(state->groups, state->n_groups, sizeof(*state->groups), compare_groups);
	for (size_t i = 0; rc == SQLITE_OK && i < state->n_groups; i++)
		rc = group_list(rows, &state->groups[i]);
	sqlite3_free(state->groups);
	sqlite3_free(state);
	return rc;
}

int mt_sql_register_rule(sqlite3 *db)
{
	return mt_tvf_register(db, &rule_tvf);
}
