/* SPDX-License-Identifier: MIT */
/*
 * A comparison (diff.h) of which one side is read: every request is a pair with itself.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "request_load.h"

#include <math.h>
#include <string.h>

/* Of a request that is being read. */
struct of_request {
	uint64_t n_rows;
	uint32_t tokens[]; /* [n_cells] */
};

int mt_request_load_open(struct mt_request_load *load, sqlite3 *db, const char *name,
			 struct mt_tvf_rows *rows, sqlite3_value *recording)
{
	const int rc = mt_diff_open(&load->diff, db, name, rows, recording, recording, NULL);

	load->diff.is_single = true;
	return rc;
}

int mt_request_load_model(struct mt_request_load *load, size_t index)
{
	struct mt_diff *diff = &load->diff;
	int rc = mt_diff_models(diff, index);

	if (rc != SQLITE_OK)
		return rc;
	diff->sides[1].model_id = diff->sides[0].model_id;
	rc = mt_diff_load(diff);
	if (rc != SQLITE_OK)
		return rc;
	sqlite3_free(load->first_cell);
	load->first_cell = sqlite3_malloc64((diff->n_layers + 1) * sizeof(*load->first_cell));
	if (!load->first_cell)
		return SQLITE_NOMEM;
	load->n_cells = 0;
	for (size_t i = 0; i < diff->n_layers; i++) {
		load->first_cell[i] = load->n_cells;
		load->n_cells += diff->layers[i].n_choices;
	}
	load->first_cell[diff->n_layers] = load->n_cells;
	return SQLITE_OK;
}

static int row_add(void *context, struct mt_diff_pair *pair, uint32_t position, size_t layer,
		   const struct mt_diff_row *a, const struct mt_diff_row *b)
{
	const struct mt_request_load *load = context;
	const size_t n_bytes =
		sizeof(struct of_request) + load->n_cells * sizeof(uint32_t);
	struct of_request *request = pair->state;

	(void)position, (void)b;
	if (a->flags & MT_DIFF_REUSED)
		return SQLITE_OK;
	if (!request) {
		pair->state = request = sqlite3_malloc64(n_bytes);
		if (!request)
			return SQLITE_NOMEM;
		memset(request, 0, n_bytes);
	}
	request->n_rows++;
	for (uint32_t i = 0; i < a->n; i++)
		request->tokens[load->first_cell[layer] + mt_diff_row_ids(a)[i]]++;
	return SQLITE_OK;
}

static int part_end(void *context, struct mt_diff_pair *pair)
{
	(void)context, (void)pair;
	return SQLITE_OK;
}

static int pair_end(void *context, struct mt_diff_pair *pair)
{
	const struct mt_request_load *load = context;
	const struct of_request *request = pair->state;

	return request ? load->request(load->state, pair->request_id[0], request->n_rows,
				       request->tokens)
		       : SQLITE_OK;
}

int mt_request_load_read(struct mt_request_load *load, sqlite3_int64 request_id)
{
	const struct mt_diff_sink sink = {
		.state = load, .row = row_add, .part = part_end, .pair = pair_end};
	const int rc = mt_diff_join_single(&load->diff, request_id);

	return rc == SQLITE_OK ? mt_diff_read(&load->diff, &sink) : rc;
}

void mt_request_load_close(struct mt_request_load *load)
{
	sqlite3_free(load->first_cell);
	load->first_cell = NULL;
	mt_diff_close(&load->diff);
}

/* De Moivre's mean deviation of a binomial variable; for many, the normal distribution's. */
double mt_chance_deviation(double n, double p)
{
	const double m = floor(n * p);

	if (!(p > 0) || !(p < 1) || !(n >= 1))
		return 0;
	if (n * p * (1 - p) > 20)
		return sqrt(2 / M_PI * p * (1 - p) / n);
	if (m == 0)
		return 2 * p * pow(1 - p, n);
	return 2 / n *
	       exp(log(m + 1) + lgamma(n + 1) - lgamma(m + 2) - lgamma(n - m) + (m + 1) * log(p) +
		   (n - m) * log1p(-p));
}
