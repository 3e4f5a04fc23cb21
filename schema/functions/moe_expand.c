/* SPDX-License-Identifier: MIT */
/*
 * moe_expand(margin, kmax, by_layer): what it would take to let rows have more experts than k, those
 * whose score lies within margin of the least score of the row's own choice, best first and kmax
 * entries a row at most; from recorded candidates. free_entries are of experts that the batch has
 * active anyway, and cost no weights; active_after counts the others, too. Scores are those that the
 * choice goes by, with the bias. Rows that have no candidates, or whose scores are not known (a bias that
 * the file does not have, or groups of which the row's own entries do not show all), are in rows and not
 * in known_rows, of which all other figures are. Prefill rows of mixed batches keep their choice: they are
 * in kept_rows alone. full_rows have further candidates that are
 * within the margin to the last one recorded: there may be more.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "array.h"
#include "mt_sql.h"
#include "oea_rules.h"
#include "tvf.h"

#include <math.h>
#include <string.h>

enum argument { ARG_MARGIN, ARG_KMAX, ARG_BY_LAYER, N_ARGUMENTS };

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows);

static const struct mt_tvf expand = {
	.name = "moe_expand",
	.declaration = "CREATE TABLE moe_expand (recording_id INTEGER, model_id INTEGER,"
		       " layer_id INTEGER, layer INTEGER, phase TEXT, n_batches INTEGER,"
		       " rows INTEGER, known_rows INTEGER, further_entries INTEGER,"
		       " free_entries INTEGER, full_rows INTEGER, active_before INTEGER,"
		       " active_after INTEGER, kept_rows INTEGER, margin REAL HIDDEN, kmax INTEGER HIDDEN,"
		       " by_layer INTEGER HIDDEN)",
	.n_columns = 14,
	.n_arguments = N_ARGUMENTS,
	.n_rows = 100,
	.compute = compute,
};

enum figure { BATCHES, ROWS, KNOWN, FURTHER, FREE, FULL, BEFORE, AFTER, KEPT, N_FIGURES };

struct group {
	sqlite3_int64 recording_id, model_id, layer_id, layer;
	uint32_t kind;
	sqlite3_int64 figures[N_FIGURES];
};

struct state {
	struct mt_tvf_rows *rows;
	double margin;
	uint32_t kmax, by_layer;
	struct mt_oea_source source;
	struct mt_oea_scratch scratch;
	struct mt_oea_result result;
	struct group *groups;
	size_t n_groups, size, hint;
	struct mt_oea_candidate *candidates;
	size_t n_candidates;
};

static int group_find(struct state *state, struct group **ret_group)
{
	const struct mt_oea_source *source = &state->source;
	const sqlite3_int64 layer_id = state->by_layer ? source->layer->layer_id : 0;

	for (size_t i = 0; i < state->n_groups; i++) {
		const size_t at = (state->hint + i) % state->n_groups;
		struct group *group = &state->groups[at];

		if (group->layer_id == layer_id && group->kind == source->kind &&
		    group->recording_id == source->reader.recording_id &&
		    group->model_id == source->reader.model_id) {
			state->hint = at + 1;
			*ret_group = group;
			return SQLITE_OK;
		}
	}
	if (mt_array_reserve(&state->groups, &state->size, state->n_groups + 1,
			     sizeof(*state->groups)) != SQLITE_OK)
		return SQLITE_NOMEM;
	state->groups[state->n_groups] = (struct group){
		.recording_id = source->reader.recording_id,
		.model_id = source->reader.model_id,
		.layer_id = layer_id,
		.layer = source->layer->layer,
		.kind = source->kind,
	};
	*ret_group = &state->groups[state->n_groups++];
	return SQLITE_OK;
}

/* Places above those of rows' own choices mark experts that were added. */
#define PLACE_ADDED 254

static void row_expand(struct state *state, struct group *group, size_t row)
{
	const struct mt_oea_batch *batch = &state->source.batch;
	const size_t n = mt_oea_n_of(batch, row);
	float scores[MT_OEA_MAX_K], cut = INFINITY;
	size_t n_candidates, n_taken = 0;

	if (n == 0 || !mt_oea_row_scores(&state->source, row, scores, state->candidates,
					 &n_candidates))
		return;
	for (size_t j = 0; j < n; j++)
		cut = fminf(cut, scores[j] + mt_oea_bias(&state->source, mt_oea_id_at(batch, row, j)));
	group->figures[KNOWN]++;
	while (n_taken < n_candidates && n + n_taken < state->kmax &&
	       (double)state->candidates[n_taken].key >= (double)cut - state->margin) {
		uint8_t *place = &state->scratch.place[state->candidates[n_taken].id];

		group->figures[FURTHER]++;
		group->figures[FREE] += *place < PLACE_ADDED;
		group->figures[AFTER] += *place == 255;
		if (*place == 255)
			*place = PLACE_ADDED;
		n_taken++;
	}
	group->figures[FULL] += n_taken == n_candidates && n + n_taken < state->kmax;
}

static bool is_kept(const struct mt_oea_batch *batch, size_t row)
{
	return batch->rows && (batch->rows[row] & MT_OEA_ROW_KEPT);
}

static int batch_add(void *data)
{
	struct state *state = data;
	const struct mt_oea_source *source = &state->source;
	struct mt_oea_batch unweighted = source->batch;
	const size_t n_candidates = source->reader.run->n_candidates;
	struct group *group;
	int rc = source->refusal == MT_OEA_REFUSED_NONE ? group_find(state, &group) : SQLITE_DONE;

	if (rc != SQLITE_OK)
		return rc == SQLITE_DONE ? SQLITE_OK : rc;
	for (size_t r = 0; r < source->batch.n_rows; r++)
		group->figures[is_kept(&source->batch, r) ? KEPT : ROWS]++;
	if (!mt_oea_has_candidates(source))
		return SQLITE_OK;
	if (n_candidates > state->n_candidates) {
		void *candidates = sqlite3_realloc64(state->candidates,
						     n_candidates * sizeof(*state->candidates));

		if (!candidates)
			return SQLITE_NOMEM;
		state->candidates = candidates;
		state->n_candidates = n_candidates;
	}
	unweighted.weights = NULL;
	mt_oea_sweep(&unweighted, &state->scratch, NULL, &state->result);
	group->figures[BATCHES]++;
	group->figures[BEFORE] += state->scratch.n_active;
	group->figures[AFTER] += state->scratch.n_active;
	for (size_t r = 0; r < source->batch.n_rows; r++)
		if (!is_kept(&source->batch, r))
			row_expand(state, group, r);
	return SQLITE_OK;
}

static int group_list(const struct state *state, const struct group *group)
{
	struct mt_tvf_rows *rows = state->rows;
	int rc = mt_tvf_int64(rows, group->recording_id);

	if (rc == SQLITE_OK)
		rc = mt_tvf_int64(rows, group->model_id);
	if (rc == SQLITE_OK)
		rc = state->by_layer ? mt_tvf_int64(rows, group->layer_id) : mt_tvf_null(rows);
	if (rc == SQLITE_OK)
		rc = state->by_layer ? mt_tvf_int64(rows, group->layer) : mt_tvf_null(rows);
	if (rc == SQLITE_OK)
		rc = mt_tvf_text(rows, mt_oea_kind_names[group->kind]);
	for (int i = 0; rc == SQLITE_OK && i < N_FIGURES; i++)
		rc = mt_tvf_int64(rows, group->figures[i]);
	return rc;
}

static int margin_take(struct state *state, sqlite3_value *value)
{
	state->margin = value ? sqlite3_value_double(value) : -1;
	if (!value || sqlite3_value_numeric_type(value) == SQLITE_TEXT || !(state->margin >= 0))
		return mt_tvf_fail(state->rows,
				   "moe_expand: margin: give a distance of scores, 0 or more");
	return SQLITE_OK;
}

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows)
{
	struct state *state = sqlite3_malloc64(sizeof(*state));
	int rc;

	if (!state)
		return SQLITE_NOMEM;
	memset(state, 0, sizeof(*state));
	state->rows = rows;
	rc = margin_take(state, arguments[ARG_MARGIN]);
	if (rc == SQLITE_OK)
		rc = mt_tvf_uint(rows, &expand, arguments, ARG_KMAX, "kmax", 1, 65536, 65536,
				 &state->kmax);
	if (rc == SQLITE_OK)
		rc = mt_tvf_uint(rows, &expand, arguments, ARG_BY_LAYER, "by_layer", 0, 1, 1,
				 &state->by_layer);
	if (rc == SQLITE_OK)
		rc = mt_oea_source_walk(&state->source, db, expand.name, batch_add, state,
					&rows->error);
	for (size_t i = 0; rc == SQLITE_OK && i < state->n_groups; i++)
		rc = group_list(state, &state->groups[i]);
	sqlite3_free(state->groups);
	sqlite3_free(state->candidates);
	sqlite3_free(state);
	return rc;
}

int mt_sql_register_expand(sqlite3 *db)
{
	return mt_tvf_register(db, &expand);
}
