/* SPDX-License-Identifier: MIT */
/*
 * The vector path of attention. Positions are taken in stretches that start at multiples of
 * ATTENTION_STRETCH; a running maximum rescales what the stretches before gave, so that scratch
 * memory is bounded. A score is one chain over the dimensions, sixteen positions side by side. An
 * output is two chains in each stretch, over its even and its odd positions.
 */
#include <math.h>

#include "kernels/attention/attention.h"

#define ATTENTION_STRETCH 256

/* n_blocks is a constant in each caller. */
VEC_FN struct vec attention_scores_blocks(const struct mtk_attention *a, uint32_t first,
					  float *scores, struct vec max, const uint32_t n_blocks)
{
	const float *keys = a->keys + mtk_key_offset(a->head_dim, first, 0);
	const struct vec scale = vec_set1(a->scale);
	struct vec sums[4];

	VEC_UNROLL
	for (uint32_t b = 0; b < n_blocks; b++)
		sums[b] = vec_set1(0.0f);
	for (uint32_t d = 0; d < a->head_dim; d++) {
		struct vec query = vec_set1(a->query[d]);

		VEC_UNROLL
		for (uint32_t b = 0; b < n_blocks; b++) {
			size_t offset = ((size_t)b * a->head_dim + d) * MTK_KEY_BLOCK;

			sums[b] = vec_fma(query, vec_load(keys + offset), sums[b]);
		}
	}
	VEC_UNROLL
	for (uint32_t b = 0; b < n_blocks; b++) {
		sums[b] = vec_mul(sums[b], scale);
		vec_store(scores + (size_t)b * MTK_KEY_BLOCK, sums[b]);
		max = vec_max(max, sums[b]);
	}
	return max;
}

/* Fill scores, up to a whole block with minus infinity; returns the largest lane by lane. */
VEC_FN struct vec attention_scores(const struct mtk_attention *a, uint32_t first, uint32_t count,
				   float *scores)
{
	const uint32_t whole = count / MTK_KEY_BLOCK * MTK_KEY_BLOCK;
	struct vec max = vec_set1(-INFINITY);
	uint32_t t = 0;

	for (; t + 4 * MTK_KEY_BLOCK <= whole; t += 4 * MTK_KEY_BLOCK)
		max = attention_scores_blocks(a, first + t, scores + t, max, 4);
	for (; t < whole; t += MTK_KEY_BLOCK)
		max = attention_scores_blocks(a, first + t, scores + t, max, 1);
	if (whole == count)
		return max;

	attention_scores_blocks(a, first + whole, scores + whole, max, 1);
	for (t = count; t < whole + MTK_KEY_BLOCK; t++)
		scores[t] = -INFINITY;
	return vec_max(max, vec_load(scores + whole));
}

/* out = out * rescale + weights . values, for the n_vecs x 16 dimensions from dim on. */
VEC_FN void attention_values(const struct mtk_attention *a, uint32_t first, uint32_t count,
			     const float *weights, struct vec rescale, uint32_t dim,
			     const uint32_t n_vecs)
{
	const float *values = a->values + (size_t)first * a->value_stride + dim;
	struct vec even[2], odd[2];
	uint32_t t = 0;

	VEC_UNROLL
	for (uint32_t v = 0; v < n_vecs; v++) {
		even[v] = vec_set1(0.0f);
		odd[v] = vec_set1(0.0f);
	}
	for (; t + 1 < count; t += 2) {
		const float *row = values + (size_t)t * a->value_stride;

		VEC_UNROLL
		for (uint32_t v = 0; v < n_vecs; v++) {
			even[v] = vec_fma(vec_set1(weights[t]), vec_load(row + v * VEC_LANES),
					  even[v]);
			odd[v] = vec_fma(vec_set1(weights[t + 1]),
					 vec_load(row + a->value_stride + v * VEC_LANES), odd[v]);
		}
	}
	VEC_UNROLL
	for (uint32_t v = 0; v < n_vecs; v++) {
		float *out = a->out + dim + v * VEC_LANES;
		uint32_t left = a->head_dim - dim - v * VEC_LANES;

		if (left > VEC_LANES)
			left = VEC_LANES;
		if (t < count)
			even[v] = vec_fma(vec_set1(weights[t]),
					  vec_load(values + (size_t)t * a->value_stride +
						   v * VEC_LANES),
					  even[v]);
		vec_store_first(out, left, vec_fma(vec_load_first(out, left), rescale,
						   vec_add(even[v], odd[v])));
	}
}

/* Turn scores into weights e^(score - max) and add them to the sums lane by lane. */
VEC_FN struct vec attention_weights(uint32_t count, float *scores, struct vec max, struct vec sum)
{
	for (uint32_t t = 0; t < count; t += VEC_LANES) {
		struct vec weight = vec_exp(vec_sub(vec_load(scores + t), max));

		vec_store(scores + t, weight);
		sum = vec_add(sum, weight);
	}
	return sum;
}

static VEC_TARGET void attention_vec(const struct mtk_attention *a)
{
	float scores[ATTENTION_STRETCH];
	struct vec max = vec_set1(-INFINITY);
	struct vec sum = vec_set1(0.0f);
	float total;

	for (uint32_t d = 0; d < a->head_dim; d++)
		a->out[d] = 0.0f;
	for (uint32_t first = 0; first < a->n_positions; first += ATTENTION_STRETCH) {
		uint32_t left = a->n_positions - first;
		uint32_t count = left < ATTENTION_STRETCH ? left : ATTENTION_STRETCH;
		struct vec stretch = attention_scores(a, first, count, scores);
		struct vec new_max = vec_max(max, vec_set1(vec_max_lane(stretch)));
		struct vec rescale = vec_exp(vec_sub(max, new_max));
		uint32_t dim = 0;

		sum = attention_weights(count, scores, new_max, vec_mul(sum, rescale));
		for (; dim + VEC_LANES < a->head_dim; dim += 2 * VEC_LANES)
			attention_values(a, first, count, scores, rescale, dim, 2);
		if (dim < a->head_dim)
			attention_values(a, first, count, scores, rescale, dim, 1);
		max = new_max;
	}
	total = vec_sum(sum);
	for (uint32_t d = 0; d < a->head_dim; d++)
		a->out[d] /= total;
}
