/* SPDX-License-Identifier: MIT */
/*
 * Combination on a GPU, to the bits of mtk_combine_pairs_plain(): product and sum are rounded
 * apart. All arrays are in device memory.
 */
#ifndef MTK_COMBINE_COMBINE_CUDA_H
#define MTK_COMBINE_COMBINE_CUDA_H

#include "kernels/combine/combine.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mtk_combine_cuda_rows {
	uint32_t n_rows;
	const float *outputs;
	const int64_t *slots; /* [n_rows][top_k] */
	const float *weights; /* [n_rows][top_k]; NULL: the experts have applied them */
	const float *input;   /* [n_rows][n]; NULL where no slot is MTK_PAIR_IDENTITY */
	float *sums;	      /* [n_rows][n] */
};

/* Combine n_rows rows of a setting that was checked. */
int mtk_combine_cuda(const struct mtk_combine *combine, const struct mtk_combine_cuda_rows *rows,
		     void *stream, struct mtk_error *error);

#ifdef __cplusplus
}
#endif

#endif
