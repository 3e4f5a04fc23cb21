/* SPDX-License-Identifier: MIT */
/*
 * Attention on a GPU: each row attends to the positions of its slot up to its own, as
 * kernels/attention/attention.h defines it, with scores and sums in fp32. The order of a sum depends
 * on the row's position alone: the same bits in any batch. All arrays in device memory.
 */
#ifndef MTK_ATTENTION_ATTENTION_CUDA_H
#define MTK_ATTENTION_ATTENTION_CUDA_H

#include "kernels/engine/error.h"
#include "kernels/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MTK_ATTENTION_CUDA_MAX_HEAD_DIM 256

struct mtk_attention_cuda {
	uint32_t n_rows;
	const uint32_t *n_valid_rows; /* padding rows from there on get zeros */
	uint32_t n_heads;	      /* a multiple of n_kv_heads */
	uint32_t n_kv_heads;
	uint32_t head_dim; /* at most MTK_ATTENTION_CUDA_MAX_HEAD_DIM */
	uint32_t n_context;
	float scale;
	const int32_t *positions;
	const uint32_t *slots;
	const float *queries; /* [n_rows][n_heads][head_dim], query_stride floats from row to row */
	size_t query_stride;
	enum mtk_dtype dtype; /* of keys, values and the output */
	const void *keys; /* [slot][kv_head][n_context][head_dim] */
	const void *values;
	void *out; /* [n_rows][n_heads][head_dim] */
};

int mtk_attention_cuda(const struct mtk_attention_cuda *attention, void *stream,
		       struct mtk_error *error);

#ifdef __cplusplus
}
#endif

#endif
