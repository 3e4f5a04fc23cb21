/* SPDX-License-Identifier: MIT */
/*
 * The expert MLP on a GPU with inputs in fp32, on an aligned batch (kernels/align) in blocks of
 * MTK_EXPERTS_F32_BLOCK rows: as kernels/experts/experts.h defines it, with weights of any type,
 * widened exactly, and everything between in fp32. A slot's values depend on no other slot: the same
 * bits in any batch. kernels/experts/experts_cuda.h is faster, with inputs of 16 bits. And the
 * activation alone, for shared experts.
 */
#ifndef MTK_EXPERTS_EXPERTS_F32_CUDA_H
#define MTK_EXPERTS_EXPERTS_F32_CUDA_H

#include "kernels/experts/experts.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MTK_EXPERTS_F32_BLOCK 8

struct mtk_activation_cuda {
	bool squared_relu;	       /* else SwiGLU */
	struct mtk_swiglu_clamp clamp; /* {INFINITY, 1, 0} is SwiGLU itself */
};

/* All arrays in device memory. */
struct mtk_experts_f32_cuda {
	enum mtk_dtype dtype;
	uint32_t n_hidden;
	uint32_t n_intermediate;
	uint32_t top_k;
	struct mtk_activation_cuda activation;
	const void *gate_up; /* [n_experts][2 * n_intermediate][n_hidden], gates first; with
				squared_relu [n_experts][n_intermediate][n_hidden] */
	const void *down;    /* [n_experts][n_hidden][n_intermediate] */
	const float *gate_up_bias; /* [n_experts][outputs of gate_up]; NULL: none */
	const float *down_bias;	   /* [n_experts][n_hidden]; NULL: none */
	enum mtk_expert_weighting weighting;
	/* The batch. */
	int64_t n_pairs;
	int64_t n_blocks;
	const int64_t *sorted_pairs; /* [n_blocks * MTK_EXPERTS_F32_BLOCK] */
	const int32_t *expert_ids;   /* [n_blocks]; -1: nothing is to be done */
	const float *x;		     /* [n_pairs / top_k][n_hidden] */
	const float *weights;	     /* [n_pairs]; unless in the combination */
	float *middle;		     /* scratch: [slots][n_intermediate] */
	float *out;		     /* [slots][n_hidden]; padding slots are not written */
};

int mtk_experts_f32_cuda(const struct mtk_experts_f32_cuda *experts, void *stream,
			 struct mtk_error *error);

/* A row's outputs of a first linear operation, [gate n | up n] or [up n], become [n]. */
struct mtk_activate_cuda {
	struct mtk_activation_cuda activation;
	uint32_t n_rows;
	uint32_t n;
	const float *gate_up;
	const float *row_gates; /* [n_rows], whose sigmoid multiplies a row; NULL: none */
	enum mtk_dtype dtype;	/* of the result */
	void *out;		/* [n_rows][n] */
};

int mtk_activate_cuda(const struct mtk_activate_cuda *activate, void *stream,
		      struct mtk_error *error);

#ifdef __cplusplus
}
#endif

#endif
