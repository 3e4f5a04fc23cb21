/* SPDX-License-Identifier: MIT */
/*
 * moe_diff_request(recording_a, recording_b, b, join_by, memory_bytes): the comparison of moe_diff() by request. A
 * row a pair of requests, and one each request that nothing is joined to; the id of the other one is
 * NULL there. Positions below n_positions belong together, up to token_position, the first
 * at which the tokens differ; compared_positions of them have a row of both in some layer. rows are pairs of a position and a layer that both computed,
 * reused_rows those that one of them reused; they are not in rows. first_position and first_layer are
 * where the sets of experts differ first, by position, then layer, reused ones included. missing_a and
 * missing_b are rows that the other recording has, missing_both those that neither has.
 *
 * moe_attempts(recording): the same between attempts of one request that was retracted: each earlier
 * attempt, as A, with the last one, by layer. The last row of a pair, layer NULL, is all layers.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "diff.h"
#include "mt_sql.h"
#include "tvf.h"

#include <string.h>

static int compute_requests(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows);
static int compute_attempts(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows);

static const struct mt_tvf request_function = {
	.name = "moe_diff_request",
	.declaration = "CREATE TABLE moe_diff_request (model_a INTEGER, model_b INTEGER,"
		       " request_a INTEGER, request_b INTEGER, attempt_a INTEGER, attempt_b INTEGER,"
		       " joined_by TEXT, n_positions INTEGER, compared_positions INTEGER,"
		       " has_tokens INTEGER,"
		       " token_position INTEGER, rows INTEGER, differing_rows INTEGER,"
		       " choices INTEGER, differing_choices INTEGER, reordered_rows INTEGER,"
		       " reused_rows INTEGER, reused_differing_rows INTEGER, missing_a INTEGER,"
		       " missing_b INTEGER, missing_both INTEGER, first_position INTEGER,"
		       " first_layer INTEGER, for_a INTEGER HIDDEN, for_b INTEGER HIDDEN,"
		       " b TEXT HIDDEN, join_by TEXT HIDDEN, memory_bytes INTEGER HIDDEN)",
	.n_columns = 23,
	.n_arguments = 5,
	.n_rows = 1000,
	.compute = compute_requests,
};

static const struct mt_tvf attempts_function = {
	.name = "moe_attempts",
	.declaration = "CREATE TABLE moe_attempts (model_id INTEGER, request_id INTEGER,"
		       " attempt INTEGER, last_attempt INTEGER, layer_id INTEGER, layer INTEGER,"
		       " rows INTEGER, differing_rows INTEGER, choices INTEGER,"
		       " differing_choices INTEGER, reordered_rows INTEGER, reused_rows INTEGER,"
		       " for_recording INTEGER HIDDEN)",
	.n_columns = 12,
	.n_arguments = 1,
	.n_rows = 1000,
	.compute = compute_attempts,
};

struct sums {
	uint64_t rows, differing_rows, choices, differing_choices, reordered_rows;
	uint64_t reused_rows, reused_differing_rows;
};

/* Of a pair that is being read. */
struct pair_state {
	uint64_t n_missing[MT_N_SIDES];
	uint64_t n_compared;		 /* positions; they come in their order */
	sqlite3_int64 compared_position; /* the last of them; -1: none */
	sqlite3_int64 first_position, first_layer; /* -1: no row differs */
	struct sums layers[];			   /* [n_layers + 1] */
};

struct state {
	struct mt_diff diff;
	int (*emit)(const struct state *state, const struct mt_diff_pair *pair,
		    struct pair_state *of_pair);
};

static struct pair_state *pair_state(const struct state *state, struct mt_diff_pair *pair)
{
	const size_t n_bytes = sizeof(struct pair_state) +
			       (state->diff.n_layers + 1) * sizeof(struct sums);
	struct pair_state *of_pair = pair->state;

	if (of_pair)
		return of_pair;
	pair->state = of_pair = sqlite3_malloc64(n_bytes);
	if (!of_pair)
		return NULL;
	memset(of_pair, 0, n_bytes);
	of_pair->first_position = of_pair->first_layer = -1;
	of_pair->compared_position = -1;
	return of_pair;
}

static void present_add(const struct state *state, struct pair_state *of_pair, uint32_t position,
			size_t layer, const struct mt_diff_row *a, const struct mt_diff_row *b)
{
	struct sums *sums = &of_pair->layers[layer];
	struct mt_diff_compared compared;

	of_pair->n_compared += of_pair->compared_position != position;
	of_pair->compared_position = position;
	mt_diff_compare(&state->diff, layer, a, b, &compared);
	if (compared.n_differing > 0 && of_pair->first_position < 0) {
		of_pair->first_position = position;
		of_pair->first_layer = state->diff.layers[layer].layer;
	}
	if ((a->flags | b->flags) & MT_DIFF_REUSED) {
		sums->reused_rows++;
		sums->reused_differing_rows += compared.n_differing > 0;
		return;
	}
	sums->rows++;
	sums->differing_rows += compared.n_differing > 0;
	sums->choices += compared.n_choices;
	sums->differing_choices += compared.n_differing;
	sums->reordered_rows += compared.is_reordered;
}

static int row_add(void *context, struct mt_diff_pair *pair, uint32_t position, size_t layer,
		   const struct mt_diff_row *a, const struct mt_diff_row *b)
{
	struct state *state = context;
	struct pair_state *of_pair = pair_state(state, pair);

	if (!of_pair)
		return SQLITE_NOMEM;
	of_pair->n_missing[0] += !(a->flags & MT_DIFF_PRESENT);
	of_pair->n_missing[1] += !(b->flags & MT_DIFF_PRESENT);
	if (a->flags & b->flags & MT_DIFF_PRESENT)
		present_add(state, of_pair, position, layer, a, b);
	return SQLITE_OK;
}

static int part_end(void *context, struct mt_diff_pair *pair)
{
	(void)context, (void)pair;
	return SQLITE_OK;
}

static void sums_join(struct sums *sums, const struct sums *other)
{
	sums->rows += other->rows;
	sums->differing_rows += other->differing_rows;
	sums->choices += other->choices;
	sums->differing_choices += other->differing_choices;
	sums->reordered_rows += other->reordered_rows;
	sums->reused_rows += other->reused_rows;
	sums->reused_differing_rows += other->reused_differing_rows;
}

/* The numbers of a row; -1 is NULL. */
static int numbers_emit(struct mt_tvf_rows *rows, const sqlite3_int64 *numbers, size_t n)
{
	int rc = SQLITE_OK;

	for (size_t i = 0; rc == SQLITE_OK && i < n; i++)
		rc = numbers[i] < 0 ? mt_tvf_null(rows) : mt_tvf_int64(rows, numbers[i]);
	return rc;
}

static int request_emit(const struct state *state, const struct mt_diff_pair *pair,
			struct pair_state *of_pair)
{
	const struct mt_diff *diff = &state->diff;
	const bool has_a = pair->request_id[0] != 0, has_b = pair->request_id[1] != 0;
	const bool is_joined = has_a && has_b;
	struct sums sums = {0};
	int rc;

	for (size_t i = 0; i < diff->n_layers; i++)
		sums_join(&sums, &of_pair->layers[i]);
	rc = numbers_emit(diff->rows,
			  (const sqlite3_int64[]){diff->sides[0].model_id, diff->sides[1].model_id,
						  has_a ? pair->request_id[0] : -1,
						  has_b ? pair->request_id[1] : -1,
						  has_a ? pair->attempt[0] : -1,
						  has_b ? pair->attempt[1] : -1},
			  6);
	if (rc == SQLITE_OK)
		rc = mt_tvf_text(diff->rows, pair->joined_by);
	if (rc != SQLITE_OK)
		return rc;
	return numbers_emit(
		diff->rows,
		(const sqlite3_int64[]){
			is_joined ? (sqlite3_int64)pair->end + pair->n_unseen : -1,
			is_joined ? (sqlite3_int64)of_pair->n_compared : -1,
			is_joined ? pair->has_tokens : -1,
			pair->token_position, (sqlite3_int64)sums.rows,
			(sqlite3_int64)sums.differing_rows, (sqlite3_int64)sums.choices,
			(sqlite3_int64)sums.differing_choices, (sqlite3_int64)sums.reordered_rows,
			(sqlite3_int64)sums.reused_rows, (sqlite3_int64)sums.reused_differing_rows,
			(sqlite3_int64)of_pair->n_missing[0],
			(sqlite3_int64)of_pair->n_missing[1],
			(sqlite3_int64)(pair->n_both_missing + pair->n_unseen * diff->n_layers),
			of_pair->first_position, of_pair->first_layer},
		16);
}

static int attempt_emit(const struct state *state, const struct mt_diff_pair *pair,
			struct pair_state *of_pair)
{
	const struct mt_diff *diff = &state->diff;
	int rc = SQLITE_OK;

	for (size_t i = 0; rc == SQLITE_OK && i <= diff->n_layers; i++) {
		const bool is_whole = i == diff->n_layers;
		const struct sums *sums = &of_pair->layers[i];

		if (!is_whole)
			sums_join(&of_pair->layers[diff->n_layers], sums);
		rc = numbers_emit(
			diff->rows,
			(const sqlite3_int64[]){
				diff->sides[0].model_id, pair->request_id[0], pair->attempt[0],
				pair->attempt[1], is_whole ? -1 : diff->layers[i].layer_id[0],
				is_whole ? -1 : diff->layers[i].layer, (sqlite3_int64)sums->rows,
				(sqlite3_int64)sums->differing_rows, (sqlite3_int64)sums->choices,
				(sqlite3_int64)sums->differing_choices,
				(sqlite3_int64)sums->reordered_rows,
				(sqlite3_int64)sums->reused_rows},
			12);
	}
	return rc;
}

static int pair_end(void *context, struct mt_diff_pair *pair)
{
	const struct state *state = context;
	struct pair_state *of_pair = pair_state(state, pair);

	return of_pair ? state->emit(state, pair, of_pair) : SQLITE_NOMEM;
}

/* The pairs of the models that were chosen. */
static int pairs_compare(struct state *state)
{
	const struct mt_diff_sink sink = {
		.state = state, .row = row_add, .part = part_end, .pair = pair_end};

	return mt_diff_read(&state->diff, &sink);
}

static int compute_requests(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows)
{
	struct state state = {.emit = request_emit};
	enum mt_diff_join join;
	int rc = mt_diff_arguments(&state.diff, db, &request_function, arguments, rows, &join);

	for (size_t i = 0; rc == SQLITE_OK; i++) {
		rc = mt_diff_models(&state.diff, i);
		if (rc == SQLITE_OK)
			rc = mt_diff_load(&state.diff);
		if (rc == SQLITE_OK)
			rc = mt_diff_join(&state.diff, join);
		if (rc == SQLITE_OK)
			rc = pairs_compare(&state);
	}
	mt_diff_close(&state.diff);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int compute_attempts(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows)
{
	struct state state = {.emit = attempt_emit};
	int rc = mt_diff_open(&state.diff, db, attempts_function.name, rows, arguments[0],
			      arguments[0], NULL);

	for (size_t i = 0; rc == SQLITE_OK; i++) {
		rc = mt_diff_models(&state.diff, i);
		state.diff.sides[1].model_id = state.diff.sides[0].model_id;
		if (rc == SQLITE_OK)
			rc = mt_diff_load(&state.diff);
		if (rc == SQLITE_OK)
			rc = mt_diff_join_attempts(&state.diff);
		if (rc == SQLITE_OK)
			rc = pairs_compare(&state);
	}
	mt_diff_close(&state.diff);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int mt_sql_register_diff_request(sqlite3 *db)
{
	const int rc = mt_tvf_register(db, &request_function);

	return rc == SQLITE_OK ? mt_tvf_register(db, &attempts_function) : rc;
}
