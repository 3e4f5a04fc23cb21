/* SPDX-License-Identifier: MIT */
/*
 * moe_similarity(request_a, request_b): how alike two requests of the main database were routed, by
 * layer; the last row of a model, layer NULL, is the mean over layers. Of each, the rows that it computed
 * in its last attempt.
 *   overlap         what their loads have in common, the sum over experts of the smaller share:
 *                   1 the same load, 0 no expert in common
 *   chance_overlap  about what it would be for choices of that number, drawn one by one from the load
 *                   of both together: short requests overlap less though nothing sets them apart
 *   jaccard         experts that both chose / experts that one of them chose
 *   cosine          of the two loads
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "mt_sql.h"
#include "request_load.h"
#include "tvf.h"

#include <math.h>
#include <string.h>

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows);

static const struct mt_tvf similarity = {
	.name = "moe_similarity",
	.declaration = "CREATE TABLE moe_similarity (model_id INTEGER, layer_id INTEGER,"
		       " layer INTEGER, choices_a INTEGER, choices_b INTEGER, overlap REAL,"
		       " chance_overlap REAL, jaccard REAL, cosine REAL, request_a INTEGER HIDDEN,"
		       " request_b INTEGER HIDDEN)",
	.n_columns = 9,
	.n_arguments = 2,
	.n_rows = 100,
	.compute = compute,
};

enum { N_FIGURES = 4 };

struct state {
	struct mt_request_load load;
	uint32_t *tokens; /* of the request that is read; NULL: it has no row */
};

static int tokens_keep(void *context, sqlite3_int64 request_id, uint64_t n_rows,
		       const uint32_t *tokens)
{
	struct state *state = context;
	const size_t n_bytes = state->load.n_cells * sizeof(*tokens);

	(void)request_id, (void)n_rows;
	state->tokens = sqlite3_malloc64(n_bytes + 1);
	if (!state->tokens)
		return SQLITE_NOMEM;
	memcpy(state->tokens, tokens, n_bytes);
	return SQLITE_OK;
}

static void layer_compare(const uint32_t *a, const uint32_t *b, size_t n, uint64_t n_a, uint64_t n_b,
			  double figures[N_FIGURES])
{
	const double both = (double)n_a + (double)n_b;
	/* As many draws from one load as have the variance of the difference of the two. */
	const double draws = fmax(1, round((double)n_a * (double)n_b / both));
	double overlap = 0, chance = 0, product = 0, square_a = 0, square_b = 0;
	uint64_t n_common = 0, n_any = 0;

	for (size_t i = 0; i < n; i++) {
		overlap += fmin(a[i] / (double)n_a, b[i] / (double)n_b);
		chance += 0.5 * mt_chance_deviation(draws, ((double)a[i] + b[i]) / both);
		product += (double)a[i] * b[i];
		square_a += (double)a[i] * a[i];
		square_b += (double)b[i] * b[i];
		n_common += a[i] > 0 && b[i] > 0;
		n_any += a[i] > 0 || b[i] > 0;
	}
	figures[0] = overlap;
	figures[1] = 1 - chance;
	figures[2] = (double)n_common / (double)n_any;
	figures[3] = product / sqrt(square_a * square_b);
}

static int row_emit(const struct state *state, size_t layer, uint64_t n_a, uint64_t n_b,
		    const double *figures)
{
	const struct mt_diff *diff = &state->load.diff;
	const bool is_whole = layer == diff->n_layers;
	struct mt_tvf_rows *rows = diff->rows;
	int rc = mt_tvf_int64(rows, diff->sides[0].model_id);

	if (rc == SQLITE_OK)
		rc = is_whole ? mt_tvf_null(rows)
			      : mt_tvf_int64(rows, diff->layers[layer].layer_id[0]);
	if (rc == SQLITE_OK)
		rc = is_whole ? mt_tvf_null(rows) : mt_tvf_int64(rows, diff->layers[layer].layer);
	if (rc == SQLITE_OK)
		rc = mt_tvf_int64(rows, (sqlite3_int64)n_a);
	if (rc == SQLITE_OK)
		rc = mt_tvf_int64(rows, (sqlite3_int64)n_b);
	for (int i = 0; rc == SQLITE_OK && i < N_FIGURES; i++)
		rc = figures ? mt_tvf_double(rows, figures[i]) : mt_tvf_null(rows);
	return rc;
}

static int loads_emit(const struct state *state, const uint32_t *a, const uint32_t *b)
{
	const struct mt_request_load *load = &state->load;
	double means[N_FIGURES] = {0};
	uint64_t all_a = 0, all_b = 0;
	size_t n_layers = 0;
	int rc = SQLITE_OK;

	for (size_t layer = 0; rc == SQLITE_OK && layer < load->diff.n_layers; layer++) {
		const size_t first = load->first_cell[layer];
		const size_t n = load->first_cell[layer + 1] - first;
		double figures[N_FIGURES];
		uint64_t n_a = 0, n_b = 0;

		for (size_t i = first; i < first + n; i++) {
			n_a += a ? a[i] : 0;
			n_b += b ? b[i] : 0;
		}
		all_a += n_a;
		all_b += n_b;
		if (n_a > 0 && n_b > 0) {
			layer_compare(a + first, b + first, n, n_a, n_b, figures);
			n_layers++;
			for (int i = 0; i < N_FIGURES; i++)
				means[i] += figures[i];
		}
		rc = row_emit(state, layer, n_a, n_b, n_a > 0 && n_b > 0 ? figures : NULL);
	}
	for (int i = 0; i < N_FIGURES && n_layers > 0; i++)
		means[i] /= (double)n_layers;
	return rc == SQLITE_OK
		       ? row_emit(state, load->diff.n_layers, all_a, all_b,
				  n_layers > 0 ? means : NULL)
		       : rc;
}

/* The recording of a request, to be finalized: the statement stands on its row. */
static int recording_find(sqlite3 *db, struct mt_tvf_rows *rows, sqlite3_value *request,
			  sqlite3_stmt **ret_stmt)
{
	int rc = sqlite3_prepare_v2(db,
				    "SELECT recording_id, request_id FROM main.request WHERE "
				    "request_id = ?1",
				    -1, ret_stmt, NULL);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_value(*ret_stmt, 1, request);
	rc = sqlite3_step(*ret_stmt);
	if (rc == SQLITE_DONE)
		return mt_tvf_fail(rows, "%s: there is no request %s", similarity.name,
				   sqlite3_value_text(request));
	return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

/* Read one request of model @index; its tokens are left in the state. */
static int request_read(struct state *state, sqlite3 *db, struct mt_tvf_rows *rows,
			sqlite3_value *request, size_t index)
{
	sqlite3_stmt *stmt = NULL;
	int rc = recording_find(db, rows, request, &stmt);

	state->tokens = NULL;
	mt_request_load_close(&state->load);
	if (rc == SQLITE_OK)
		rc = mt_request_load_open(&state->load, db, similarity.name, rows,
					  sqlite3_column_value(stmt, 0));
	state->load.state = state;
	state->load.request = tokens_keep;
	if (rc == SQLITE_OK)
		rc = mt_request_load_model(&state->load, index);
	if (rc == SQLITE_OK)
		rc = mt_request_load_read(&state->load, sqlite3_column_int64(stmt, 1));
	sqlite3_finalize(stmt);
	return rc;
}

static int model_compare(struct state *state, sqlite3 *db, struct mt_tvf_rows *rows,
			 sqlite3_value *const *arguments, size_t index)
{
	int rc = request_read(state, db, rows, arguments[0], index);
	const sqlite3_int64 model_id = state->load.diff.sides[0].model_id;
	uint32_t *a = state->tokens;

	state->tokens = NULL;
	if (rc == SQLITE_OK)
		rc = request_read(state, db, rows, arguments[1], index);
	if (rc == SQLITE_OK && state->load.diff.sides[0].model_id != model_id)
		rc = mt_tvf_fail(rows, "%s: the requests are of other models", similarity.name);
	if (rc == SQLITE_OK)
		rc = loads_emit(state, a, state->tokens);
	sqlite3_free(a);
	sqlite3_free(state->tokens);
	state->tokens = NULL;
	return rc;
}

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows)
{
	struct state state = {.tokens = NULL};
	int rc = SQLITE_OK;

	if (!arguments[0] || !arguments[1])
		return mt_tvf_fail(rows, "%s: give two requests", similarity.name);
	for (size_t i = 0; rc == SQLITE_OK; i++)
		rc = model_compare(&state, db, rows, arguments, i);
	mt_request_load_close(&state.load);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int mt_sql_register_similarity(sqlite3 *db)
{
	return mt_tvf_register(db, &similarity);
}
