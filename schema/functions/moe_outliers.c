/* SPDX-License-Identifier: MIT */
/*
 * moe_outliers(recording): how far the routing of each request is from that of the others; NULL: the
 * only recording. In a layer it is the total variation distance between the request's load and the load
 * of all others together: the part of its choices that it would have to make otherwise, 0 to 1.
 * distance is the mean over layers, weighted with choices.
 *
 * Short requests are far from everything by chance. floor is the distance that as many choices have
 * in the mean when they are drawn from the others' load one by one; excess is distance - floor.
 * Tokens of one text are alike, so that real requests have some excess: score says how unusual it is
 * among those of the recording, (excess - median) / (1.4826 x median of the deviations from it), as
 * the standard deviation of a normal distribution would be. Above 3.5 is worth a look. It is NULL
 * with fewer than five requests, and where all are alike.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "array.h"
#include "mt_sql.h"
#include "request_load.h"
#include "tvf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows);

static const struct mt_tvf outliers = {
	.name = "moe_outliers",
	.declaration = "CREATE TABLE moe_outliers (model_id INTEGER, request_id INTEGER,"
		       " rows INTEGER, choices INTEGER, distance REAL, floor REAL, excess REAL,"
		       " score REAL, for_recording INTEGER HIDDEN)",
	.n_columns = 8,
	.n_arguments = 1,
	.n_rows = 1000,
	.compute = compute,
};

enum { MIN_REQUESTS = 5 };

struct one {
	sqlite3_int64 request_id;
	uint64_t n_rows, n_choices;
	double distance, floor;
	bool is_known; /* others chose something, too */
};

struct state {
	struct mt_request_load load;
	uint64_t *totals;	/* [n_cells] */
	uint64_t *layer_totals; /* [n_layers] */
	struct one *all;
	size_t n, size;
};

static uint64_t layer_sum(const struct mt_request_load *load, size_t layer, const uint32_t *tokens)
{
	uint64_t sum = 0;

	for (size_t cell = load->first_cell[layer]; cell < load->first_cell[layer + 1]; cell++)
		sum += tokens[cell];
	return sum;
}

/* The first time over: what all chose together. */
static int total_add(void *context, sqlite3_int64 request_id, uint64_t n_rows, const uint32_t *tokens)
{
	struct state *state = context;

	(void)request_id, (void)n_rows;
	for (size_t cell = 0; cell < state->load.n_cells; cell++)
		state->totals[cell] += tokens[cell];
	for (size_t layer = 0; layer < state->load.diff.n_layers; layer++)
		state->layer_totals[layer] += layer_sum(&state->load, layer, tokens);
	return SQLITE_OK;
}

/* Add a layer, weighted by the request's choices in it. */
static void layer_add(const struct state *state, size_t layer, const uint32_t *tokens,
		      struct one *one)
{
	const struct mt_request_load *load = &state->load;
	const uint64_t n = layer_sum(load, layer, tokens), rest = state->layer_totals[layer] - n;
	double distance = 0, chance = 0;

	one->n_choices += n;
	if (n == 0 || rest == 0)
		return;
	for (size_t cell = load->first_cell[layer]; cell < load->first_cell[layer + 1]; cell++) {
		const double p = (double)(state->totals[cell] - tokens[cell]) / (double)rest;

		distance += 0.5 * fabs(tokens[cell] / (double)n - p);
		chance += 0.5 * mt_chance_deviation((double)n, p);
	}
	one->distance += distance * (double)n;
	one->floor += chance * (double)n;
	one->is_known = true;
}

/* The second time over: each against the others. */
static int one_add(void *context, sqlite3_int64 request_id, uint64_t n_rows, const uint32_t *tokens)
{
	struct state *state = context;
	struct one *one;
	int rc = mt_array_reserve(&state->all, &state->size, state->n + 1, sizeof(*state->all));

	if (rc != SQLITE_OK)
		return rc;
	one = &state->all[state->n++];
	*one = (struct one){.request_id = request_id, .n_rows = n_rows};
	for (size_t layer = 0; layer < state->load.diff.n_layers; layer++)
		layer_add(state, layer, tokens, one);
	if (one->n_choices > 0) {
		one->distance /= (double)one->n_choices;
		one->floor /= (double)one->n_choices;
	}
	return SQLITE_OK;
}

static int number_order(const void *a, const void *b)
{
	const double one = *(const double *)a, other = *(const double *)b;

	return (one > other) - (one < other);
}

static double median(double *numbers, size_t n)
{
	qsort(numbers, n, sizeof(*numbers), number_order);
	return n % 2 ? numbers[n / 2] : 0.5 * (numbers[n / 2 - 1] + numbers[n / 2]);
}

/* The median of the excess, and the spread around it; 0: there is none. */
static int spread_find(const struct state *state, double *ret_median, double *ret_spread)
{
	double *numbers = sqlite3_malloc64((state->n + 1) * sizeof(*numbers));
	size_t n = 0;

	*ret_median = *ret_spread = 0;
	if (!numbers)
		return SQLITE_NOMEM;
	for (size_t i = 0; i < state->n; i++)
		if (state->all[i].is_known)
			numbers[n++] = state->all[i].distance - state->all[i].floor;
	if (n >= MIN_REQUESTS) {
		*ret_median = median(numbers, n);
		for (size_t i = 0; i < n; i++)
			numbers[i] = fabs(numbers[i] - *ret_median);
		*ret_spread = 1.4826 * median(numbers, n);
	}
	sqlite3_free(numbers);
	return SQLITE_OK;
}

static int rows_emit(const struct state *state)
{
	struct mt_tvf_rows *rows = state->load.diff.rows;
	double middle, spread;
	int rc = spread_find(state, &middle, &spread);

	for (size_t i = 0; rc == SQLITE_OK && i < state->n; i++) {
		const struct one *one = &state->all[i];
		const double excess = one->distance - one->floor;
		const double figures[] = {one->distance, one->floor, excess,
					  spread > 0 ? (excess - middle) / spread : 0};

		rc = mt_tvf_int64(rows, state->load.diff.sides[0].model_id);
		if (rc == SQLITE_OK)
			rc = mt_tvf_int64(rows, one->request_id);
		if (rc == SQLITE_OK)
			rc = mt_tvf_int64(rows, (sqlite3_int64)one->n_rows);
		if (rc == SQLITE_OK)
			rc = mt_tvf_int64(rows, (sqlite3_int64)one->n_choices);
		for (int j = 0; rc == SQLITE_OK && j < 4; j++)
			rc = one->is_known && (j < 3 || spread > 0)
				     ? mt_tvf_double(rows, figures[j])
				     : mt_tvf_null(rows);
	}
	return rc;
}

static int model_judge(struct state *state)
{
	struct mt_request_load *load = &state->load;
	const size_t n_cells = load->n_cells, n_layers = load->diff.n_layers;
	int rc;

	state->n = 0;
	state->totals = sqlite3_malloc64((n_cells + 1) * sizeof(*state->totals));
	state->layer_totals = sqlite3_malloc64((n_layers + 1) * sizeof(*state->layer_totals));
	rc = state->totals && state->layer_totals ? SQLITE_OK : SQLITE_NOMEM;
	if (rc == SQLITE_OK) {
		memset(state->totals, 0, n_cells * sizeof(*state->totals));
		memset(state->layer_totals, 0, n_layers * sizeof(*state->layer_totals));
		load->request = total_add;
		rc = mt_request_load_read(load, 0);
	}
	load->request = one_add;
	if (rc == SQLITE_OK)
		rc = mt_request_load_read(load, 0);
	if (rc == SQLITE_OK)
		rc = rows_emit(state);
	sqlite3_free(state->totals);
	sqlite3_free(state->layer_totals);
	return rc;
}

static int compute(sqlite3 *db, sqlite3_value *const *arguments, struct mt_tvf_rows *rows)
{
	struct state state = {.n = 0};
	int rc = mt_request_load_open(&state.load, db, outliers.name, rows, arguments[0]);

	state.load.state = &state;
	for (size_t i = 0; rc == SQLITE_OK; i++) {
		rc = mt_request_load_model(&state.load, i);
		if (rc == SQLITE_OK)
			rc = model_judge(&state);
	}
	sqlite3_free(state.all);
	mt_request_load_close(&state.load);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int mt_sql_register_outliers(sqlite3 *db)
{
	return mt_tvf_register(db, &outliers);
}
