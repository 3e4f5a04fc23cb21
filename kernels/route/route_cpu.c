/* SPDX-License-Identifier: MIT */
/* The definition of routing. */
#include "kernels/route/route.h"

#include <math.h>

static void softmax(uint32_t n, const float *logits, float *scores)
{
	float max = -INFINITY;
	float sum = 0.0f;

	for (uint32_t e = 0; e < n; e++) {
		scores[e] = isnan(logits[e]) ? -INFINITY : logits[e];
		max = scores[e] > max ? scores[e] : max;
	}
	for (uint32_t e = 0; e < n; e++) {
		/* The difference of two infinities would be NaN. */
		scores[e] = scores[e] == max ? 1.0f : expf(scores[e] - max);
		sum += scores[e];
	}
	for (uint32_t e = 0; e < n; e++)
		scores[e] /= sum;
}

static uint32_t best_expert(uint32_t n, const float *scores)
{
	uint32_t best = 0;

	for (uint32_t e = 1; e < n; e++)
		if (scores[e] > scores[best])
			best = e;
	return best;
}

void mtk_route_plain(const struct mtk_route *route, const float *logits, float *scratch,
		     int32_t *ret_ids, float *ret_weights)
{
	float sum = 0.0f;

	softmax(route->n_experts, logits, scratch);
	for (uint32_t j = 0; j < route->top_k; j++) {
		uint32_t best = best_expert(route->n_experts, scratch);

		ret_ids[j] = (int32_t)best;
		ret_weights[j] = scratch[best];
		sum += scratch[best];
		/* Scores are not negative: an expert taken is never the best again. */
		scratch[best] = -1.0f;
	}
	for (uint32_t j = 0; route->renormalise && j < route->top_k; j++)
		ret_weights[j] /= sum;
}
