/* SPDX-License-Identifier: MIT */
/*
 * Keys are computed in fp32, as routers do, so that what tied for the router ties here. Where the
 * weights come to us rounded, keys nearer to each other than the rounding count as tied, too.
 */
#include "libtrace/restore.h"

#include <math.h>

uint32_t mt_restore_bases(const struct mt_settle_input *input, enum mt_basis ret_bases[2])
{
	const struct moetrace_layer_info *info = input->info;
	int is_scaled = (info->weight_kind & MOETRACE_WEIGHT_SCALED) != 0;
	int knows_bias = info->correction_bias == MOETRACE_NO || input->layer->bias_values;
	uint32_t n = 0;

	if (info->kind == MOETRACE_LAYER_HASH || !knows_bias)
		return 0;
	if (input->wide->n_candidates)
		ret_bases[n++] = MT_BASIS_SCORES;
	if (!input->wide->has_weights || info->scoring == MOETRACE_SCORING_SPARSEMIXER ||
	    (is_scaled && info->routed_scaling_factor < 0))
		return n;
	if (!input->layer->bias_values)
		ret_bases[n++] = MT_BASIS_WEIGHTS;
	else if (info->weight_kind == MOETRACE_WEIGHT_RAW ||
		 (info->weight_kind == MOETRACE_WEIGHT_SCALED && info->routed_scaling_factor > 0))
		ret_bases[n++] = MT_BASIS_BIASED;
	return n;
}

static int is_shared(const struct mt_settle_input *input, int32_t id)
{
	return (uint32_t)id >= input->info->n_experts + input->info->n_zero_experts;
}

/* The score of an id among the candidates of a row; NaN: it is not there. */
static float score_of(const struct mt_wide_parts *parts, uint32_t n_candidates, uint32_t row,
		      int32_t id)
{
	uint64_t first = (uint64_t)row * n_candidates;

	for (uint32_t i = 0; i < n_candidates; i++)
		if (parts->candidate_ids[first + i] == id)
			return parts->candidate_scores[first + i];
	return NAN;
}

int mt_restore_keys(const struct mt_settle_input *input, enum mt_basis basis, uint32_t row,
		    struct mt_entry *entries, uint32_t n)
{
	struct mt_wide_parts parts = mt_wide_parts(input->wide);
	const float *bias = input->layer->bias_values;
	float scale = input->info->weight_kind == MOETRACE_WEIGHT_SCALED ?
			      (float)input->info->routed_scaling_factor :
			      1.0f;

	for (uint32_t i = 0; i < n; i++) {
		float key;

		if (is_shared(input, entries[i].id)) {
			entries[i].key = 0;
			continue;
		}
		if (basis == MT_BASIS_SCORES)
			key = score_of(&parts, input->wide->n_candidates, row, entries[i].id);
		else if (basis == MT_BASIS_BIASED)
			key = entries[i].weight / scale;
		else
			key = entries[i].weight;
		if (bias)
			key += bias[entries[i].id];
		if (isnan(key))
			return 0;
		entries[i].key = key;
	}
	return 1;
}

/* How far keys may be from what chose, relative to the entry that was rounded. */
static float error_of(const struct mt_settle_input *input, enum mt_basis basis)
{
	uint32_t type = basis == MT_BASIS_SCORES ? input->wide->score_type :
						   input->wide->weight_type;

	/* Rounding keeps the order of what it does not make equal. */
	if (!input->layer->bias_values)
		return 0;
	if (type == MOETRACE_TYPE_F16)
		return 0x1p-11f;
	if (type == MOETRACE_TYPE_BF16)
		return 0x1p-8f;
	return basis == MT_BASIS_BIASED && input->info->weight_kind == MOETRACE_WEIGHT_SCALED ?
		       0x1p-22f :
		       0;
}

static int is_tied(const struct mt_entry *a, const struct mt_entry *b, float error, const float *bias)
{
	float distance = a->key - b->key;
	float size_a = a->key, size_b = b->key;

	if (a->key == b->key)
		return 1;
	if (error == 0)
		return 0;
	if (bias) {
		size_a -= bias[a->id];
		size_b -= bias[b->id];
	}
	return distance <= error * (fabsf(size_a) + fabsf(size_b));
}

/* Does @a stand before @b? */
static int is_before(const struct mt_settle_input *input, const struct mt_entry *a,
		     const struct mt_entry *b)
{
	int a_is_shared = is_shared(input, a->id);
	int b_is_shared = is_shared(input, b->id);

	if (a_is_shared != b_is_shared)
		return b_is_shared;
	if (!a_is_shared && a->key != b->key)
		return a->key > b->key;
	return a->id < b->id;
}

int mt_restore_sort(const struct mt_settle_input *input, enum mt_basis basis,
		    struct mt_entry *entries, uint32_t n)
{
	float error = error_of(input, basis);
	int tied = 0;

	/* By insertion: rows are short, and often nearly in order. */
	for (uint32_t i = 1; i < n; i++) {
		struct mt_entry entry = entries[i];
		uint32_t at = i;

		for (; at > 0 && is_before(input, &entry, &entries[at - 1]); at--)
			entries[at] = entries[at - 1];
		entries[at] = entry;
	}
	for (uint32_t i = 1; i < n && !is_shared(input, entries[i].id); i++)
		tied |= is_tied(&entries[i - 1], &entries[i], error, input->layer->bias_values);
	return tied;
}
