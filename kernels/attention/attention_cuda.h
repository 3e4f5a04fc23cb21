/* SPDX-License-Identifier: MIT */
/*
 * Attention on a GPU: each row attends to the positions of its slot up to its own, as
 * kernels/attention/attention.h defines it, with scores and sums in fp32. Without scratch the order
 * of a sum depends on the row's position alone: the same bits in any batch. With scratch few rows
 * are spread over the GPU, each over several blocks; then the order depends on the power of two
 * that holds the pass's rows, and on the GPU, too. All arrays in device memory.
 */
#ifndef MTK_ATTENTION_ATTENTION_CUDA_H
#define MTK_ATTENTION_ATTENTION_CUDA_H

#include "kernels/engine/error.h"
#include "kernels/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MTK_ATTENTION_CUDA_MAX_HEAD_DIM 256
#define MTK_ATTENTION_CUDA_SPLIT_ROWS	256 /* passes of more rows are never spread */

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
	/* mtk_attention_cuda_scratch_bytes(), zero before the first use; NULL: a row has one block.
	   For launches that follow each other in a stream. */
	void *scratch;
};

size_t mtk_attention_cuda_scratch_bytes(void);

int mtk_attention_cuda(const struct mtk_attention_cuda *attention, void *stream,
		       struct mtk_error *error);

#ifdef __cplusplus
}
#endif

#endif
