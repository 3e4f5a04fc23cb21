/* SPDX-License-Identifier: MIT */
/*
 * The definition of opportunistic expert activation. A row's preferences are all columns by the
 * router's choosing value, equal ones by lower id; rank r of a row is the r-th of them, from 1. The
 * first top_k ranks are what the router chose, so that the best k0 need no scores, and a row that
 * keeps its choice needs none at all.
 */
#include <math.h>
#include <string.h>

#include "kernels/oea/oea.h"
#include "kernels/route/route_impl.h"

static bool is_decode(const struct mtk_oea_batch *batch, uint32_t row)
{
	return row < batch->rows.n_valid_rows && batch->is_decode && batch->is_decode[row];
}

static const int32_t *base_ids(const struct mtk_oea_batch *batch, uint32_t row)
{
	return batch->base_ids + (size_t)row * mtk_route_width(batch->route);
}

/* The column of an id that the router wrote: shared slots may lie between the ranks' blocks. */
static uint32_t column_of(const struct mtk_route_config *route, int32_t id)
{
	const uint32_t n_block = route->n_local_experts + route->n_shared_slots;

	if (route->n_shared_slots == 0 || route->shared != MTK_ROUTE_SHARED_BLOCK)
		return (uint32_t)id;
	return (uint32_t)id - (uint32_t)id / n_block * route->n_shared_slots;
}

/* ---- phase 1: what each row keeps, and the union ---- */

/* How many of the best k0 hold p of the row's mass together; k0 where they do not. */
static uint8_t count_mass(const struct mtk_oea_batch *batch, uint32_t r, double *scratch)
{
	const struct mtk_route_row row = mtk_route_row_of(batch->route, &batch->rows, r);
	const int32_t *ids = base_ids(batch, r);
	double *scores = scratch;
	double sum = 0.0, mass = 0.0;
	uint8_t n = 0;

	(void)mtk_route_score_row(&row, scores, scratch + row.n);
	if (batch->route->scoring == MTK_ROUTE_SOFTMAX_SELECTED)
		mtk_route_softmax(row.n, scores);
	for (uint32_t e = 0; e < row.n; e++)
		sum += scores[e];
	do
		mass += scores[column_of(batch->route, ids[n++])];
	while (n < batch->oea->k0 && !(sum > 0.0 && mass >= batch->oea->p * sum));
	return n;
}

void mtk_oea_base(const struct mtk_oea_batch *batch, uint32_t begin, uint32_t end, void *scratch)
{
	for (uint32_t r = begin; r < end; r++) {
		if (r >= batch->rows.n_valid_rows)
			batch->n_base[r] = 0;
		else if (!is_decode(batch, r))
			batch->n_base[r] = (uint8_t)batch->route->top_k;
		else if (batch->oea->p < 1.0)
			batch->n_base[r] = count_mass(batch, r, scratch);
		else
			batch->n_base[r] = (uint8_t)batch->oea->k0;
	}
}

void mtk_oea_unite(const struct mtk_oea_batch *batch)
{
	const struct mtk_route_config *route = batch->route;

	memset(batch->is_loaded, 0, route->n_experts);
	memset(batch->is_loaded + route->n_experts, 1, route->n_zero_experts);
	for (uint32_t r = 0; r < batch->rows.n_rows; r++)
		for (uint32_t j = 0; j < batch->n_base[r]; j++)
			batch->is_loaded[column_of(route, base_ids(batch, r)[j])] = 1;
}

/* ---- phase 2: what each row takes of the union ---- */

static bool keeps_choice(const struct mtk_oea_batch *batch, uint32_t row)
{
	const struct mtk_oea *oea = batch->oea;
	const uint32_t top_k = batch->route->top_k;

	if (!is_decode(batch, row))
		return true;
	if (oea->k_max != top_k || oea->max_rank < top_k)
		return false;
	for (uint32_t j = batch->n_base[row]; j < top_k; j++)
		if (!batch->is_loaded[column_of(batch->route, base_ids(batch, row)[j])])
			return false;
	return true;
}

/* Whether a comes before b in the row's preferences. */
static bool is_before(const double *values, uint32_t a, uint32_t b)
{
	return values[a] > values[b] || (values[a] == values[b] && a < b);
}

/* The best expert of the union that comes after `last`; n: there is none. */
static uint32_t next_loaded(const uint8_t *is_loaded, uint32_t n, const double *values,
			    uint32_t last)
{
	uint32_t best = n;

	for (uint32_t e = 0; e < n; e++)
		if (is_loaded[e] && values[e] != -INFINITY && is_before(values, last, e) &&
		    (best == n || is_before(values, e, best)))
			best = e;
	return best;
}

static uint32_t rank_of(uint32_t n, const double *values, uint32_t column)
{
	uint32_t rank = 1;

	for (uint32_t e = 0; e < n; e++)
		rank += is_before(values, e, column);
	return rank;
}

/* The columns of row r's final set, in order of preference. Returns how many. */
static uint32_t columns_take(const struct mtk_oea_batch *batch, uint32_t r, uint32_t n_columns,
			     const double *values, int32_t *ret_columns)
{
	const int32_t *ids = base_ids(batch, r);
	uint32_t n = 0;

	for (; n < batch->n_base[r]; n++)
		ret_columns[n] = (int32_t)column_of(batch->route, ids[n]);
	while (n < batch->oea->k_max) {
		uint32_t next = next_loaded(batch->is_loaded, n_columns, values,
					    (uint32_t)ret_columns[n - 1]);

		if (next == n_columns || rank_of(n_columns, values, next) > batch->oea->max_rank)
			break;
		ret_columns[n++] = (int32_t)next;
	}
	return n;
}

static void weights_make(const struct mtk_route_row *row, const double *scores,
			 const double *values, uint32_t n, struct mtk_route_choice *choice)
{
	struct mtk_route_config config = *row->config;

	for (uint32_t j = 0; j < n; j++) {
		uint32_t e = (uint32_t)choice->ids[j];

		choice->weights[j] = mtk_route_weight_of(row, scores, e, values[e], &choice->flags);
	}
	if (config.scoring == MTK_ROUTE_SOFTMAX_SELECTED)
		mtk_route_softmax(n, choice->weights);
	config.top_k = n;
	mtk_route_weigh(&config, choice->weights);
}

/* The router's own row, in a row of the result: shared slots stay last. */
static void row_copy(const struct mtk_oea_batch *batch, uint32_t r,
		     const struct mtk_oea_result *result)
{
	const struct mtk_route_config *route = batch->route;
	const uint32_t n_shared = route->n_shared_slots;
	const uint32_t n_gap = mtk_oea_width(batch->oea, route) - mtk_route_width(route);
	const int32_t *ids = base_ids(batch, r);
	const float *weights = batch->base_weights + (size_t)r * mtk_route_width(route);
	int32_t *to_ids = result->ids + (size_t)r * mtk_oea_width(batch->oea, route);
	float *to_weights = result->weights + (size_t)r * mtk_oea_width(batch->oea, route);
	uint32_t j = 0;

	for (; j < route->top_k; j++) {
		to_ids[j] = ids[j];
		to_weights[j] = weights[j];
	}
	for (; j < route->top_k + n_gap; j++) {
		to_ids[j] = -1;
		to_weights[j] = 0.0f;
	}
	for (; j < route->top_k + n_gap + n_shared; j++) {
		to_ids[j] = ids[j - n_gap];
		to_weights[j] = weights[j - n_gap];
	}
}

/* Whether a row took what the router had chosen, in its order. */
static bool is_base(const struct mtk_oea_batch *batch, uint32_t r, uint32_t n,
		    const int32_t *columns)
{
	const struct mtk_route_config *route = batch->route;

	for (uint32_t j = 0; n == route->top_k && j < n; j++)
		if ((uint32_t)columns[j] != column_of(route, base_ids(batch, r)[j]))
			return false;
	return n == route->top_k;
}

/* Restrict row r. Returns the number of its entries. */
static uint32_t row_choose(const struct mtk_oea_batch *batch, uint32_t r, double *scratch,
			   const struct mtk_oea_result *result)
{
	const struct mtk_route_result written = {.ids = result->ids, .weights = result->weights};
	const struct mtk_route_row row = mtk_route_row_of(batch->route, &batch->rows, r);
	struct mtk_route_config wide = *batch->route;
	struct mtk_route_choice choice;
	double *scores = scratch;
	double *values = scratch + row.n;
	uint32_t n;

	choice.flags = mtk_route_score_row(&row, scores, values);
	n = columns_take(batch, r, row.n, values, choice.ids);
	/* The router's weights may differ from the definition's in their last bits. */
	if (is_base(batch, r, n, choice.ids)) {
		row_copy(batch, r, result);
		return n;
	}
	weights_make(&row, scores, values, n, &choice);
	wide.top_k = mtk_oea_width(batch->oea, batch->route) - wide.n_shared_slots;
	for (uint32_t j = n; j < wide.top_k; j++) {
		choice.ids[j] = -1;
		choice.weights[j] = 0.0;
	}
	mtk_route_write_row(&wide, &choice, r, &written);
	return n;
}

void mtk_oea_choose(const struct mtk_oea_batch *batch, uint32_t begin, uint32_t end, void *scratch,
		    const struct mtk_oea_result *result)
{
	const uint8_t one_row = batch->rows.n_valid_rows == 1 ? MTK_OEA_FLAG_ONE_ROW : 0;

	for (uint32_t r = begin; r < end; r++) {
		uint32_t n = batch->route->top_k;
		uint8_t flags = is_decode(batch, r) ? one_row : 0;

		if (keeps_choice(batch, r))
			row_copy(batch, r, result);
		else
			n = row_choose(batch, r, scratch, result);
		flags |= n < batch->route->top_k ? MTK_OEA_FLAG_BELOW_K : 0;
		if (result->flags)
			result->flags[r] = flags;
	}
}
