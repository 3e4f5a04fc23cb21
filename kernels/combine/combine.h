/* SPDX-License-Identifier: MIT */
/*
 * Combination of one row's experts, in the order of topk_rank: sum = w[0] * out[0] + w[1] * out[1]
 * + ..., which is stored and added to the hidden state.
 */
#ifndef MTK_COMBINE_COMBINE_H
#define MTK_COMBINE_COMBINE_H

#include <stdint.h>

/* outputs is [top_k][n]; the three others are [top_k], [n] and [n]. */
typedef void (*mtk_combine_fn)(uint32_t n, uint32_t top_k, const float *outputs,
			       const float *weights, float *ret_sum, float *hidden);

void mtk_combine_plain(uint32_t n, uint32_t top_k, const float *outputs, const float *weights,
		       float *ret_sum, float *hidden);

#endif
