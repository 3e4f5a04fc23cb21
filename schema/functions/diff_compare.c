/* SPDX-License-Identifier: MIT */
/*
 * Two rows of one position and layer: the experts that are not in both, and where these are the same,
 * whether their order and their weights are.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "diff.h"

#include <math.h>
#include <string.h>

/* The place of @id in @row; row->n: it is not there. */
static uint32_t place_of(const struct mt_diff_row *row, uint16_t id)
{
	const uint16_t *ids = mt_diff_row_ids(row);
	uint32_t i;

	for (i = 0; i < row->n && ids[i] != id; i++)
		;
	return i;
}

static uint32_t n_common(const struct mt_diff_row *a, const struct mt_diff_row *b)
{
	const uint16_t *ids = mt_diff_row_ids(a);
	uint32_t n = 0;

	if (a->n == b->n && memcmp(ids, mt_diff_row_ids(b), a->n * sizeof(*ids)) == 0)
		return a->n;
	for (uint32_t i = 0; i < a->n; i++)
		n += place_of(b, ids[i]) < b->n;
	return n < b->n ? n : b->n;
}

/* The sum of a row's weights; 0: there are none, or they cannot be shares of it. */
static double weight_sum(const struct mt_diff *diff, const struct mt_diff_row *row)
{
	double sum = 0;

	if (!(row->flags & (MT_DIFF_FP16 | MT_DIFF_BF16)))
		return 0;
	for (uint32_t i = 0; i < row->n; i++) {
		const float weight = mt_diff_row_weight(diff, row, i);

		if (!isfinite(weight) || weight < 0)
			return 0;
		sum += (double)weight;
	}
	return sum;
}

static void weights_compare(const struct mt_diff *diff, bool is_same_weight,
			    const struct mt_diff_row *a, const struct mt_diff_row *b,
			    struct mt_diff_compared *compared)
{
	const double sum_a = weight_sum(diff, a), sum_b = weight_sum(diff, b);
	double shared = 0;

	if (!(sum_a > 0) || !(sum_b > 0))
		return;
	compared->is_weighted = true;
	/* The distance is 1 less what the two have in common. */
	for (uint32_t i = 0; i < a->n; i++) {
		const uint32_t j = place_of(b, mt_diff_row_ids(a)[i]);
		double weight_a, weight_b, difference;

		if (j == b->n)
			continue;
		weight_a = (double)mt_diff_row_weight(diff, a, i);
		weight_b = (double)mt_diff_row_weight(diff, b, j);
		shared += fmin(weight_a / sum_a, weight_b / sum_b);
		if (!is_same_weight)
			continue;
		difference = fabs(weight_a - weight_b);
		compared->n_common_weights++;
		compared->weight_difference += difference;
		compared->max_weight_difference = fmax(compared->max_weight_difference, difference);
	}
	/* 16-bit weights differ by more, if they do. */
	compared->weight_distance = 1 - shared > 1e-9 ? 1 - shared : 0;
}

void mt_diff_compare(const struct mt_diff *diff, size_t layer, const struct mt_diff_row *a,
		     const struct mt_diff_row *b, struct mt_diff_compared *ret_compared)
{
	struct mt_diff_compared compared = {.n_choices = a->n > b->n ? a->n : b->n};
	const uint16_t *ids_a = mt_diff_row_ids(a), *ids_b = mt_diff_row_ids(b);

	compared.n_differing = compared.n_choices - n_common(a, b);
	if (compared.n_differing == 0 && a->flags & b->flags & MT_DIFF_ORDERED) {
		compared.is_ordered = true;
		for (uint32_t i = 0; i < a->n; i++)
			compared.n_moved += ids_a[i] != ids_b[i];
		compared.is_reordered = compared.n_moved > 0;
	}
	weights_compare(diff, diff->layers[layer].is_same_weight, a, b, &compared);
	*ret_compared = compared;
}
