/* SPDX-License-Identifier: MIT */
/* Greedy sampling on a GPU: mtk_sample_greedy() of every row. All arrays in device memory. */
#ifndef MTK_SAMPLE_SAMPLE_CUDA_H
#define MTK_SAMPLE_SAMPLE_CUDA_H

#include "kernels/engine/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* logits is [n_rows][n_vocab], ret_token_ids [n_rows]. */
int mtk_sample_greedy_cuda(const float *logits, uint32_t n_rows, uint32_t n_vocab,
			   int32_t *ret_token_ids, void *stream, struct mtk_error *error);

#ifdef __cplusplus
}
#endif

#endif
