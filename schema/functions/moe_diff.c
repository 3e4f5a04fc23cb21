/* SPDX-License-Identifier: MIT */
/*
 * moe_diff(recording_a, recording_b, b, join_by, memory_bytes): what differs between the choices of two recordings,
 * by layer and position. recording_a is of the main database, recording_b of database b, or of the
 * main one too; NULL: the only one. Requests are joined by external id, and the others by the tokens
 * of their prompts; join_by 'id' or 'tokens' takes one of the two. A request is compared up to the
 * first token that differs. memory_bytes: for the rows of one side, 40 MiB where it is not given.
 * A row a layer has the sums over all positions (position_from NULL), before the rows of its
 * positions: 0, 1, 2 to 3, 4 to 7, ... The first row of a model, layer NULL, is all its layers.
 *
 * Positions that one of the two reused from another request are in no sum: they are compared where
 * they were computed, and by request in moe_diff_request(). share_low and share_high are a 95 %
 * interval of differing_choices / choices, with requests as what was drawn: the variance is that of
 * a ratio of sums over requests. load_shift, chance_shift, p_value and p_adjusted: diff_shift.h.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "diff.h"
#include "diff_shift.h"
#include "mt_sql.h"
#include "tvf.h"

#include <math.h>
#include <string.h>

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows);

static const struct mt_tvf diff_function = {
	.name = "moe_diff",
	.declaration =
		"CREATE TABLE moe_diff (model_a INTEGER, model_b INTEGER, layer_id_a INTEGER,"
		" layer_id_b INTEGER, layer INTEGER, position_from INTEGER, position_to INTEGER,"
		" n_requests INTEGER, rows INTEGER, differing_rows INTEGER, choices INTEGER,"
		" differing_choices INTEGER, share_low REAL, share_high REAL, ordered_rows INTEGER,"
		" reordered_rows INTEGER, moved_choices INTEGER, weighted_rows INTEGER,"
		" weight_distance REAL, compared_weights INTEGER, weight_difference REAL,"
		" max_weight_difference REAL, load_shift REAL, chance_shift REAL, p_value REAL,"
		" p_adjusted REAL, for_a INTEGER HIDDEN, for_b INTEGER HIDDEN, b TEXT HIDDEN,"
		" join_by TEXT HIDDEN, memory_bytes INTEGER HIDDEN)",
	.n_columns = 26,
	.n_arguments = 5,
	.n_rows = 1000,
	.compute = compute,
};

/* 0, 1, 2 to 3, ...: those of 32 bits. */
enum { N_BUCKETS = 33 };

struct sums {
	uint64_t rows, differing_rows, choices, differing_choices;
	uint64_t ordered_rows, reordered_rows, moved_choices;
	uint64_t weighted_rows, compared_weights;
	double weight_distance, weight_difference, max_weight_difference;
};

/* Of one layer, or of all: sums over requests of squares and products of the two. */
struct spread {
	double cc, cd, dd;
	uint64_t n_requests;
};

/* Of a layer and the pair at hand. */
struct pair_sums {
	double choices, differing;
};

struct state {
	struct mt_diff diff;
	struct mt_diff_shift shift;
	struct sums *sums;	/* [n_layers][N_BUCKETS] */
	struct spread *spreads; /* [n_layers + 1] */
};

/* ---- adding up ---- */

static size_t bucket_of(uint32_t position)
{
	size_t bucket = 0;

	for (; position > 0; position >>= 1)
		bucket++;
	return bucket;
}

static void sums_add(struct sums *sums, const struct mt_diff_compared *compared)
{
	sums->rows++;
	sums->differing_rows += compared->n_differing > 0;
	sums->choices += compared->n_choices;
	sums->differing_choices += compared->n_differing;
	sums->ordered_rows += compared->is_ordered;
	sums->reordered_rows += compared->is_reordered;
	sums->moved_choices += compared->n_moved;
	sums->weighted_rows += compared->is_weighted;
	sums->weight_distance += compared->weight_distance;
	sums->compared_weights += compared->n_common_weights;
	sums->weight_difference += compared->weight_difference;
	sums->max_weight_difference =
		fmax(sums->max_weight_difference, compared->max_weight_difference);
}

static void sums_join(struct sums *sums, const struct sums *other)
{
	sums->rows += other->rows;
	sums->differing_rows += other->differing_rows;
	sums->choices += other->choices;
	sums->differing_choices += other->differing_choices;
	sums->ordered_rows += other->ordered_rows;
	sums->reordered_rows += other->reordered_rows;
	sums->moved_choices += other->moved_choices;
	sums->weighted_rows += other->weighted_rows;
	sums->weight_distance += other->weight_distance;
	sums->compared_weights += other->compared_weights;
	sums->weight_difference += other->weight_difference;
	sums->max_weight_difference = fmax(sums->max_weight_difference, other->max_weight_difference);
}

static int row_add(void *context, struct mt_diff_pair *pair, uint32_t position, size_t layer,
		   const struct mt_diff_row *a, const struct mt_diff_row *b)
{
	struct state *state = context;
	struct mt_diff_compared compared;
	struct pair_sums *sums = pair->state;

	if (!(a->flags & b->flags & MT_DIFF_PRESENT) || (a->flags | b->flags) & MT_DIFF_REUSED)
		return SQLITE_OK;
	if (!sums)
		sums = pair->state = mt_diff_zeroed(state->diff.n_layers, sizeof(*sums));
	if (!sums)
		return SQLITE_NOMEM;
	mt_diff_compare(&state->diff, layer, a, b, &compared);
	sums_add(&state->sums[layer * N_BUCKETS + bucket_of(position)], &compared);
	sums[layer].choices += compared.n_choices;
	sums[layer].differing += compared.n_differing;
	mt_diff_shift_row(&state->shift, layer, a, b);
	return SQLITE_OK;
}

static void spread_add(struct spread *spread, double choices, double differing)
{
	if (choices <= 0)
		return;
	spread->cc += choices * choices;
	spread->cd += choices * differing;
	spread->dd += differing * differing;
	spread->n_requests++;
}

static int part_end(void *context, struct mt_diff_pair *pair)
{
	struct state *state = context;

	mt_diff_shift_part(&state->shift, (size_t)(pair - state->diff.pairs));
	return SQLITE_OK;
}

static int pair_end(void *context, struct mt_diff_pair *pair)
{
	struct state *state = context;
	const struct pair_sums *sums = pair->state;
	struct pair_sums all = {0};

	for (size_t layer = 0; sums && layer < state->diff.n_layers; layer++) {
		spread_add(&state->spreads[layer], sums[layer].choices, sums[layer].differing);
		all.choices += sums[layer].choices;
		all.differing += sums[layer].differing;
	}
	spread_add(&state->spreads[state->diff.n_layers], all.choices, all.differing);
	return SQLITE_OK;
}

/* ---- the rows ---- */

/* Student's t for 95 %, by its expansion around the normal distribution. */
static double student(double n)
{
	return 1.960 + 2.372 / n + 2.823 / (n * n) + 2.556 / (n * n * n);
}

static bool interval(const struct spread *spread, const struct sums *sums, double *ret_low,
		     double *ret_high)
{
	const double n = (double)spread->n_requests, total = (double)sums->choices;
	double share, squares, half;

	if (spread->n_requests < 2 || sums->choices == 0)
		return false;
	share = (double)sums->differing_choices / total;
	squares = spread->dd - 2 * share * spread->cd + share * share * spread->cc;
	half = student(n - 1) * sqrt(fmax(0, squares) * n / (n - 1)) / total;
	*ret_low = fmax(0, share - half);
	*ret_high = fmin(1, share + half);
	return true;
}

static int keys_emit(const struct state *state, size_t layer, size_t bucket)
{
	const struct mt_diff *diff = &state->diff;
	struct mt_tvf_rows *rows = diff->rows;
	int rc = mt_tvf_int64(rows, diff->sides[0].model_id);

	if (rc == SQLITE_OK)
		rc = mt_tvf_int64(rows, diff->sides[1].model_id);
	for (int i = 0; rc == SQLITE_OK && i < 3; i++) {
		if (layer == diff->n_layers)
			rc = mt_tvf_null(rows);
		else
			rc = mt_tvf_int64(rows, i < 2 ? diff->layers[layer].layer_id[i]
						      : diff->layers[layer].layer);
	}
	for (int i = 0; rc == SQLITE_OK && i < 2; i++) {
		if (bucket == N_BUCKETS)
			rc = mt_tvf_null(rows);
		else
			rc = mt_tvf_int64(rows, bucket == 0 ? 0
						: i == 0    ? INT64_C(1) << (bucket - 1)
							    : (INT64_C(1) << bucket) - 1);
	}
	return rc;
}

static int sums_emit(struct mt_tvf_rows *rows, const struct sums *sums, const struct spread *spread)
{
	double low = 0, high = 0;
	const bool has_interval = spread && interval(spread, sums, &low, &high);
	int rc = spread ? mt_tvf_int64(rows, (sqlite3_int64)spread->n_requests) : mt_tvf_null(rows);
	const uint64_t before[] = {sums->rows, sums->differing_rows, sums->choices,
				   sums->differing_choices};
	const uint64_t after[] = {sums->ordered_rows, sums->reordered_rows, sums->moved_choices,
				  sums->weighted_rows};

	for (int i = 0; rc == SQLITE_OK && i < 4; i++)
		rc = mt_tvf_int64(rows, (sqlite3_int64)before[i]);
	for (int i = 0; rc == SQLITE_OK && i < 2; i++)
		rc = has_interval ? mt_tvf_double(rows, i == 0 ? low : high) : mt_tvf_null(rows);
	for (int i = 0; rc == SQLITE_OK && i < 4; i++)
		rc = mt_tvf_int64(rows, (sqlite3_int64)after[i]);
	if (rc == SQLITE_OK)
		rc = sums->weighted_rows ? mt_tvf_double(rows, sums->weight_distance)
					 : mt_tvf_null(rows);
	if (rc == SQLITE_OK)
		rc = mt_tvf_int64(rows, (sqlite3_int64)sums->compared_weights);
	for (int i = 0; rc == SQLITE_OK && i < 2; i++)
		rc = sums->compared_weights == 0 ? mt_tvf_null(rows)
						 : mt_tvf_double(rows, i == 0
									       ? sums->weight_difference
									       : sums->max_weight_difference);
	return rc;
}

static int shift_emit(const struct state *state, size_t layer, bool is_whole)
{
	struct mt_tvf_rows *rows = state->diff.rows;
	struct mt_diff_shifted shifted = {0};
	const bool has = is_whole && mt_diff_shift_of(&state->shift, layer, &shifted);
	int rc = SQLITE_OK;

	for (int i = 0; rc == SQLITE_OK && i < 4; i++)
		rc = !has ? mt_tvf_null(rows)
			  : mt_tvf_double(rows, i == 0	 ? shifted.shift
						: i == 1 ? shifted.chance_shift
						: i == 2 ? shifted.p_value
							 : shifted.p_adjusted);
	return rc;
}

static int row_emit(const struct state *state, size_t layer, size_t bucket, const struct sums *sums)
{
	const bool is_whole = bucket == N_BUCKETS;
	int rc = keys_emit(state, layer, bucket);

	if (rc == SQLITE_OK)
		rc = sums_emit(state->diff.rows, sums, is_whole ? &state->spreads[layer] : NULL);
	return rc == SQLITE_OK ? shift_emit(state, layer, is_whole) : rc;
}

static void layer_sum(const struct state *state, size_t layer, struct sums *sums)
{
	for (size_t bucket = 0; bucket < N_BUCKETS; bucket++)
		sums_join(sums, &state->sums[layer * N_BUCKETS + bucket]);
}

static int rows_emit(const struct state *state)
{
	const size_t n_layers = state->diff.n_layers;
	struct sums whole = {0};
	int rc;

	for (size_t layer = 0; layer < n_layers; layer++)
		layer_sum(state, layer, &whole);
	rc = row_emit(state, n_layers, N_BUCKETS, &whole);
	for (size_t layer = 0; rc == SQLITE_OK && layer < n_layers; layer++) {
		struct sums sums = {0};

		layer_sum(state, layer, &sums);
		rc = row_emit(state, layer, N_BUCKETS, &sums);
		for (size_t bucket = 0; rc == SQLITE_OK && bucket < N_BUCKETS; bucket++) {
			const struct sums *part = &state->sums[layer * N_BUCKETS + bucket];

			if (part->rows > 0)
				rc = row_emit(state, layer, bucket, part);
		}
	}
	return rc;
}

/* ---- the whole ---- */

static int models_compare(struct state *state)
{
	const struct mt_diff_sink sink = {.state = state, .row = row_add, .part = part_end, .pair = pair_end};
	const size_t n_layers = state->diff.n_layers;
	int rc = mt_diff_shift_begin(&state->shift, &state->diff);

	state->sums = mt_diff_zeroed(n_layers * N_BUCKETS, sizeof(*state->sums));
	state->spreads = mt_diff_zeroed(n_layers + 1, sizeof(*state->spreads));
	if (rc == SQLITE_OK && (!state->sums || !state->spreads))
		rc = SQLITE_NOMEM;
	if (rc == SQLITE_OK)
		rc = mt_diff_read(&state->diff, &sink);
	if (rc == SQLITE_OK) {
		state->shift.n_requests = state->spreads[n_layers].n_requests;
		mt_diff_shift_settle(&state->shift);
		rc = rows_emit(state);
	}
	mt_diff_shift_end(&state->shift);
	sqlite3_free(state->sums);
	sqlite3_free(state->spreads);
	return rc;
}

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows)
{
	enum mt_diff_join join;
	struct state state;
	int rc = mt_diff_arguments(&state.diff, db, &diff_function, arguments, rows, &join);

	for (size_t i = 0; rc == SQLITE_OK; i++) {
		rc = mt_diff_models(&state.diff, i);
		if (rc == SQLITE_OK)
			rc = mt_diff_load(&state.diff);
		if (rc == SQLITE_OK)
			rc = mt_diff_join(&state.diff, join);
		if (rc == SQLITE_OK)
			rc = models_compare(&state);
	}
	mt_diff_close(&state.diff);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int mt_sql_register_diff(sqlite3 *db)
{
	return mt_tvf_register(db, &diff_function);
}
