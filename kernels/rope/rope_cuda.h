/* SPDX-License-Identifier: MIT */
/*
 * What becomes of the query, key and value projections on a GPU: each query and key head is normed
 * and turned by its position, queries in place, and keys and values are stored in the cache. The
 * cache is [slot][kv_head][position][head_dim] of one layer. All arrays in device memory.
 */
#ifndef MTK_ROPE_ROPE_CUDA_H
#define MTK_ROPE_ROPE_CUDA_H

#include "kernels/engine/error.h"
#include "kernels/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mtk_heads_cuda {
	uint32_t n_rows;
	const uint32_t *n_valid_rows; /* rows from there on are padding: nothing is stored of them */
	uint32_t n_heads;
	uint32_t n_kv_heads;
	uint32_t head_dim;	/* even */
	uint32_t n_context;	/* positions a slot */
	float epsilon;
	const float *query_norm; /* [head_dim] */
	const float *key_norm;
	const float *cosines; /* [n_context or more][head_dim / 2] */
	const float *sines;
	const int32_t *positions; /* [n_rows], below n_context */
	const uint32_t *slots;	  /* [n_rows] */
	float *qkv;		  /* [n_rows][n_heads + 2 * n_kv_heads][head_dim] */
	enum mtk_dtype kv_dtype;
	void *keys;
	void *values;
};

int mtk_heads_cuda(const struct mtk_heads_cuda *heads, void *stream, struct mtk_error *error);

#ifdef __cplusplus
}
#endif

#endif
