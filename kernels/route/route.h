/* SPDX-License-Identifier: MIT */
/*
 * Routing of one row: scores = softmax(logits) over all experts, then the top_k experts by score
 * descending, equal scores by lower id. Weights are the scores, or with renormalise the scores
 * divided by their sum. A logit that is NaN counts as minus infinity, and plus infinity shares
 * the whole score among those that have it; ids are distinct and in range whatever the logits.
 */
#ifndef MTK_ROUTE_ROUTE_H
#define MTK_ROUTE_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

/* Scratch holds at least this many floats for n_experts. */
static inline uint32_t mtk_route_scratch_floats(uint32_t n_experts)
{
	return (n_experts + 15) / 16 * 16;
}

struct mtk_route {
	uint32_t n_experts;
	uint32_t top_k;			/* at most n_experts */
	bool renormalise;
};

/* ids and weights are [top_k], in the order of the choice. */
typedef void (*mtk_route_fn)(const struct mtk_route *route, const float *logits, float *scratch,
			     int32_t *ret_ids, float *ret_weights);

void mtk_route_plain(const struct mtk_route *route, const float *logits, float *scratch,
		     int32_t *ret_ids, float *ret_weights);

#endif
