/* SPDX-License-Identifier: MIT */
/*
 * The vector path of routing: the same rules, sixteen experts side by side. Lanes beyond the last
 * expert hold minus infinity as logits and -1, below every score, from the softmax on.
 */
#include <math.h>

#include "kernels/route/route.h"

/* The largest lane; logits are copied to scores, with NaN as minus infinity. */
VEC_FN float route_load(uint32_t n_experts, const float *logits, float *scores)
{
	const struct vec lowest = vec_set1(-INFINITY);
	struct vec max = lowest;

	for (uint32_t e = 0; e < n_experts; e += VEC_LANES) {
		uint32_t left = n_experts - e;
		struct vec part = lowest;

		if (left >= VEC_LANES) {
			part = vec_load(logits + e);
		} else {
			vec_store(scores + e, lowest);
			vec_store_first(scores + e, left, vec_load_first(logits + e, left));
			part = vec_load(scores + e);
		}
		/* vec_max() gives its second operand where the first is NaN. */
		part = vec_max(part, lowest);
		vec_store(scores + e, part);
		max = vec_max(max, part);
	}
	return vec_max_lane(max);
}

VEC_FN void route_softmax(uint32_t n_experts, const float *logits, float *scores)
{
	const uint32_t padded = mtk_route_scratch_floats(n_experts);
	const struct vec max = vec_set1(route_load(n_experts, logits, scores));
	struct vec sum = vec_set1(0.0f);

	for (uint32_t e = 0; e < padded; e += VEC_LANES) {
		struct vec logit = vec_load(scores + e);
		uint32_t equal = vec_equal_bits(logit, max);

		vec_store(scores + e, vec_exp(vec_sub(logit, max)));
		/* The difference of two infinities would be NaN. */
		for (; equal != 0; equal &= equal - 1)
			scores[e + (uint32_t)__builtin_ctz(equal)] = 1.0f;
		if (e + VEC_LANES > n_experts)
			for (uint32_t pad = n_experts; pad < padded; pad++)
				scores[pad] = 0.0f;
		sum = vec_add(sum, vec_load(scores + e));
	}
	sum = vec_set1(vec_sum(sum));
	for (uint32_t e = 0; e < padded; e += VEC_LANES)
		vec_store(scores + e, vec_div(vec_load(scores + e), sum));
	for (uint32_t pad = n_experts; pad < padded; pad++)
		scores[pad] = -1.0f;
}

VEC_FN uint32_t route_best(uint32_t padded, const float *scores)
{
	struct vec max = vec_load(scores);
	uint32_t e = 0;
	uint32_t equal;

	for (uint32_t i = VEC_LANES; i < padded; i += VEC_LANES)
		max = vec_max(max, vec_load(scores + i));
	max = vec_set1(vec_max_lane(max));
	while ((equal = vec_equal_bits(vec_load(scores + e), max)) == 0)
		e += VEC_LANES;
	return e + (uint32_t)__builtin_ctz(equal);
}

static VEC_TARGET void route_vec(const struct mtk_route *route, const float *logits,
				 float *scratch, int32_t *ret_ids, float *ret_weights)
{
	const uint32_t padded = mtk_route_scratch_floats(route->n_experts);
	float sum = 0.0f;

	route_softmax(route->n_experts, logits, scratch);
	for (uint32_t j = 0; j < route->top_k; j++) {
		uint32_t best = route_best(padded, scratch);

		ret_ids[j] = (int32_t)best;
		ret_weights[j] = scratch[best];
		sum += scratch[best];
		scratch[best] = -1.0f;
	}
	for (uint32_t j = 0; route->renormalise && j < route->top_k; j++)
		ret_weights[j] /= sum;
}
