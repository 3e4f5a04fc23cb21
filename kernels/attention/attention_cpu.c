/* SPDX-License-Identifier: MIT */
/* The definition of attention: the largest score first, so that no exponential overflows. */
#include "kernels/attention/attention.h"

#include <math.h>

static float score_at(const struct mtk_attention *a, const float *query, uint32_t position)
{
	const float *key = a->keys + mtk_key_offset(a->head_dim, position, 0);
	float sum = 0.0f;

	for (uint32_t d = 0; d < a->head_dim; d++)
		sum += query[d] * key[(size_t)d * MTK_KEY_BLOCK];
	return sum * a->scale;
}

static void attend(const struct mtk_attention *a, const float *query, float *out)
{
	float max = -INFINITY;
	float sum = 0.0f;

	for (uint32_t t = 0; t < a->n_positions; t++)
		max = fmaxf(max, score_at(a, query, t));
	for (uint32_t d = 0; d < a->head_dim; d++)
		out[d] = 0.0f;
	for (uint32_t t = 0; t < a->n_positions; t++) {
		float weight = expf(score_at(a, query, t) - max);
		const float *value = a->values + (size_t)t * a->value_stride;

		sum += weight;
		for (uint32_t d = 0; d < a->head_dim; d++)
			out[d] += weight * value[d];
	}
	for (uint32_t d = 0; d < a->head_dim; d++)
		out[d] /= sum;
}

void mtk_attention_plain(const struct mtk_attention *a)
{
	for (uint32_t i = 0; i < a->n_queries; i++)
		attend(a, a->queries + (size_t)i * a->head_dim, a->out + (size_t)i * a->head_dim);
}
