/* SPDX-License-Identifier: MIT */
/*
 * The expert MLP on a GPU, on an aligned batch (kernels/align): out[slot] = down(act(gate(x),
 * up(x))) as kernels/experts/experts.h defines it, with weights and x of bf16 or fp16, sums in
 * fp32, and the middle rounded to 16 bits. Blocks of at most 64 rows are served by kernels that
 * stream the weights of each active expert once; blocks of 128 rows by tiles. Nothing waits for the
 * host: a launch is sized by the capacity, and blocks beyond the last one in use return at once.
 */
#ifndef MTK_EXPERTS_EXPERTS_CUDA_H
#define MTK_EXPERTS_EXPERTS_CUDA_H

#include "kernels/experts/experts.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All arrays in device memory, aligned to 16 bytes. */
struct mtk_experts_cuda {
	enum mtk_dtype dtype;	 /* MTK_DTYPE_BF16 or MTK_DTYPE_F16 */
	uint32_t n_hidden;	 /* a multiple of 8 */
	uint32_t n_intermediate; /* a multiple of 8 */
	uint32_t top_k;
	const void *gate_up;	       /* [n_experts][2 * n_intermediate][n_hidden], gates first */
	const void *down;	       /* [n_experts][n_hidden][n_intermediate] */
	const float *gate_up_bias;     /* [n_experts][2 * n_intermediate]; NULL: none */
	const float *down_bias;	       /* [n_experts][n_hidden]; NULL: none */
	struct mtk_swiglu_clamp clamp; /* {INFINITY, 1, 0} is SwiGLU itself */
	enum mtk_expert_weighting weighting;
	/* The batch. */
	uint32_t block_rows; /* 8, 16, 32, 64 or 128 */
	int64_t n_pairs;
	int64_t n_blocks;
	const int64_t *sorted_pairs; /* [n_blocks * block_rows] */
	const int32_t *expert_ids;   /* [n_blocks]; -1: nothing is to be done */
	const void *x;		     /* [n_pairs / top_k][n_hidden] */
	const float *weights;	     /* [n_pairs]; unless in the combination */
	void *middle;		     /* scratch: [slots][n_intermediate] of 16 bits */
	float *out;		     /* [slots][n_hidden]; padding slots are not written */
};

/* Two launches. MOETRACE_OK, MOETRACE_E_INVALID with the field's name, or what failed. */
int mtk_experts_cuda(const struct mtk_experts_cuda *experts, void *stream, struct mtk_error *error);

#ifdef __cplusplus
}
#endif

#endif
