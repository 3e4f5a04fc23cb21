/* SPDX-License-Identifier: MIT */
/*
 * The vector path of attention. Query heads go two at a time, so that keys and values are loaded
 * once for both. Positions are taken in stretches that start at multiples of ATTENTION_STRETCH; a
 * running maximum rescales what the stretches before gave, so that scratch memory is bounded. A
 * score is one chain over the dimensions, sixteen positions side by side; an output is one chain
 * over the positions of each stretch. Blocking never changes a chain.
 */
#include <math.h>

#include "kernels/attention/attention.h"

#define ATTENTION_STRETCH 256
#define ATTENTION_MAX_QUERIES 2

/* What one head has gathered so far; n_queries of them go side by side. */
struct attention_head {
	const float *query;
	float *out;
	struct vec max;		/* of the scores so far, in every lane */
	struct vec sum;		/* of the weights so far, lane by lane */
	struct vec rescale;	/* what the stretch at hand does to earlier weights */
	float scores[ATTENTION_STRETCH];
};

/* Score n_blocks x 16 positions from first + t on. n_queries and n_blocks are constants. */
VEC_FN void attention_scores(const struct mtk_attention *a, struct attention_head *heads,
			     uint32_t first, uint32_t t, const uint32_t n_queries,
			     const uint32_t n_blocks)
{
	const float *keys = a->keys + mtk_key_offset(a->head_dim, first + t, 0);
	const struct vec scale = vec_set1(a->scale);
	struct vec sums[ATTENTION_MAX_QUERIES][VEC_ATTENTION_BLOCKS];

	VEC_UNROLL
	for (uint32_t q = 0; q < n_queries; q++) {
		VEC_UNROLL
		for (uint32_t b = 0; b < n_blocks; b++)
			sums[q][b] = vec_set1(0.0f);
	}
	for (uint32_t d = 0; d < a->head_dim; d++) {
		VEC_UNROLL
		for (uint32_t b = 0; b < n_blocks; b++) {
			struct vec key = vec_load(keys + ((size_t)b * a->head_dim + d) *
							 MTK_KEY_BLOCK);

			VEC_UNROLL
			for (uint32_t q = 0; q < n_queries; q++)
				sums[q][b] = vec_fma(vec_set1(heads[q].query[d]), key, sums[q][b]);
		}
	}
	VEC_UNROLL
	for (uint32_t q = 0; q < n_queries; q++) {
		VEC_UNROLL
		for (uint32_t b = 0; b < n_blocks; b++)
			vec_store(heads[q].scores + t + b * MTK_KEY_BLOCK,
				  vec_mul(sums[q][b], scale));
	}
}

/* Turn the scores of a stretch into weights e^(score - max), and add them up. */
VEC_FN void attention_weights(struct attention_head *head, uint32_t count)
{
	struct vec max = vec_set1(-INFINITY);
	uint32_t padded = (count + VEC_LANES - 1) / VEC_LANES * VEC_LANES;

	/* Beyond the row's own position there may be anything. */
	for (uint32_t t = count; t < padded; t++)
		head->scores[t] = -INFINITY;
	for (uint32_t t = 0; t < padded; t += VEC_LANES)
		max = vec_max(max, vec_load(head->scores + t));
	max = vec_max(head->max, vec_set1(vec_max_lane(max)));
	head->rescale = vec_exp(vec_sub(head->max, max));
	head->max = max;
	head->sum = vec_mul(head->sum, head->rescale);
	for (uint32_t t = 0; t < padded; t += VEC_LANES) {
		struct vec weight = vec_exp(vec_sub(vec_load(head->scores + t), max));

		vec_store(head->scores + t, weight);
		head->sum = vec_add(head->sum, weight);
	}
}

/* out = out * rescale + weights . values, for the n_vecs x 16 dimensions from dim on. */
VEC_FN void attention_values(const struct mtk_attention *a, struct attention_head *heads,
			     uint32_t first, uint32_t count, uint32_t dim,
			     const uint32_t n_queries, const uint32_t n_vecs)
{
	const float *row = a->values + (size_t)first * a->value_stride + dim;
	struct vec sums[ATTENTION_MAX_QUERIES][2];

	VEC_UNROLL
	for (uint32_t q = 0; q < n_queries; q++) {
		VEC_UNROLL
		for (uint32_t v = 0; v < n_vecs; v++)
			sums[q][v] = vec_set1(0.0f);
	}
	for (uint32_t t = 0; t < count; t++, row += a->value_stride) {
		VEC_UNROLL
		for (uint32_t v = 0; v < n_vecs; v++) {
			struct vec value = vec_load(row + v * VEC_LANES);

			VEC_UNROLL
			for (uint32_t q = 0; q < n_queries; q++)
				sums[q][v] = vec_fma(vec_set1(heads[q].scores[t]), value,
						     sums[q][v]);
		}
	}
	VEC_UNROLL
	for (uint32_t q = 0; q < n_queries; q++) {
		VEC_UNROLL
		for (uint32_t v = 0; v < n_vecs; v++) {
			float *out = heads[q].out + dim + v * VEC_LANES;
			uint32_t left = a->head_dim - dim - v * VEC_LANES;

			if (left > VEC_LANES)
				left = VEC_LANES;
			vec_store_first(out, left, vec_fma(vec_load_first(out, left),
							   heads[q].rescale, sums[q][v]));
		}
	}
}

VEC_FN void attention_stretch(const struct mtk_attention *a, struct attention_head *heads,
			      uint32_t first, uint32_t count, const uint32_t n_queries)
{
	const uint32_t step = VEC_ATTENTION_BLOCKS * MTK_KEY_BLOCK;
	uint32_t t = 0;
	uint32_t dim = 0;

	for (; t + step <= count; t += step)
		attention_scores(a, heads, first, t, n_queries, VEC_ATTENTION_BLOCKS);
	for (; t < count; t += MTK_KEY_BLOCK)
		attention_scores(a, heads, first, t, n_queries, 1);
	VEC_UNROLL
	for (uint32_t q = 0; q < n_queries; q++)
		attention_weights(&heads[q], count);
	for (; dim + VEC_LANES < a->head_dim; dim += 2 * VEC_LANES)
		attention_values(a, heads, first, count, dim, n_queries, 2);
	if (dim < a->head_dim)
		attention_values(a, heads, first, count, dim, n_queries, 1);
}

VEC_FN void attention_heads(const struct mtk_attention *a, uint32_t first_query,
			    const uint32_t n_queries)
{
	struct attention_head heads[ATTENTION_MAX_QUERIES];

	for (uint32_t q = 0; q < n_queries; q++) {
		size_t offset = (size_t)(first_query + q) * a->head_dim;

		heads[q].query = a->queries + offset;
		heads[q].out = a->out + offset;
		heads[q].max = vec_set1(-INFINITY);
		heads[q].sum = vec_set1(0.0f);
		for (uint32_t d = 0; d < a->head_dim; d++)
			heads[q].out[d] = 0.0f;
	}
	for (uint32_t first = 0; first < a->n_positions; first += ATTENTION_STRETCH) {
		uint32_t left = a->n_positions - first;

		attention_stretch(a, heads, first,
				  left < ATTENTION_STRETCH ? left : ATTENTION_STRETCH, n_queries);
	}
	for (uint32_t q = 0; q < n_queries; q++) {
		float total = vec_sum(heads[q].sum);

		for (uint32_t d = 0; d < a->head_dim; d++)
			heads[q].out[d] /= total;
	}
}

static VEC_TARGET void attention_vec(const struct mtk_attention *a)
{
	uint32_t query = 0;

	for (; a->n_queries - query >= 2; query += 2)
		attention_heads(a, query, 2);
	if (query < a->n_queries)
		attention_heads(a, query, 1);
}
