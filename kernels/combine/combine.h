/* SPDX-License-Identifier: MIT */
/*
 * Combination of one row's experts, in the order of topk_rank: sum = w[0] * out[0] + w[1] * out[1]
 * + ..., a chain that starts at zero. mtk_combine_fn takes the outputs side by side, and stores the
 * sum and adds it to the hidden state; mtk_combine_pairs_fn finds each output by its slot, which
 * may also say that the pair adds nothing or that it adds the layer's input.
 */
#ifndef MTK_COMBINE_COMBINE_H
#define MTK_COMBINE_COMBINE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/engine/error.h"

/* outputs is [top_k][n]; the three others are [top_k], [n] and [n]. */
typedef void (*mtk_combine_fn)(uint32_t n, uint32_t top_k, const float *outputs,
			       const float *weights, float *ret_sum, float *hidden);

void mtk_combine_plain(uint32_t n, uint32_t top_k, const float *outputs, const float *weights,
		       float *ret_sum, float *hidden);

/* Instead of a slot: padding, or an expert that is on no rank. Its weight is not even read. */
#define MTK_PAIR_SKIP	  (-1)
/* Instead of a slot: a zero expert, whose output is the row that the layer read. */
#define MTK_PAIR_IDENTITY (-2)

struct mtk_combine {
	uint32_t n;			/* elements of a row */
	uint32_t top_k;
	size_t output_stride;		/* floats from one slot to the next */
	float scale;			/* of the sum; 1 changes no bit */
};

/* MOETRACE_OK, or MOETRACE_E_INVALID with the field's name in @error. */
int mtk_combine_check(const struct mtk_combine *combine, struct mtk_error *error);

/*
 * One row: slots and weights are [top_k], weights NULL where the experts have applied them. input
 * is [n], and may be NULL when no slot is MTK_PAIR_IDENTITY. A row of skipped pairs alone is zero.
 */
typedef void (*mtk_combine_pairs_fn)(const struct mtk_combine *combine, const float *outputs,
				     const int64_t *slots, const float *weights,
				     const float *input, float *ret_sum);

void mtk_combine_pairs_plain(const struct mtk_combine *combine, const float *outputs,
			     const int64_t *slots, const float *weights, const float *input,
			     float *ret_sum);

#endif
