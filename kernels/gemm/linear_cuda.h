/* SPDX-License-Identifier: MIT */
/*
 * The linear operation on a GPU with inputs in fp32: y[r][o] = bias[o] + sum over i of x[r][i] *
 * w[o][i], with weights of any type, widened exactly, and sums in fp32. Each output is one reduction
 * in an order that depends on n_in alone: the same bits in any batch. For inputs of 16 bits there is
 * kernels/gemm/router_cuda.h, which is faster.
 */
#ifndef MTK_GEMM_LINEAR_CUDA_H
#define MTK_GEMM_LINEAR_CUDA_H

#include "kernels/engine/error.h"
#include "kernels/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All arrays in device memory. */
struct mtk_linear_cuda {
	enum mtk_dtype dtype; /* of the weights */
	uint32_t n_rows;
	uint32_t n_in;
	uint32_t n_out;
	const float *x;
	size_t x_stride;   /* floats from row to row */
	const void *w;	   /* [n_out][n_in] */
	const float *bias; /* [n_out]; NULL: none */
	float *y;	   /* [n_rows][n_out] */
};

int mtk_linear_cuda(const struct mtk_linear_cuda *linear, void *stream, struct mtk_error *error);

#ifdef __cplusplus
}
#endif

#endif
