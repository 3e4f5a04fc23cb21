/* SPDX-License-Identifier: MIT */
/*
 * The router's matrix product on a GPU: y[r][o] = sum over i of x[r][i] * w[o][i], x and w of bf16
 * or fp16, y and the sums of fp32. Each output is one reduction in an order that depends on the
 * number of rows alone: up to 2048 rows a kernel that streams the weights, above a tiled one.
 */
#ifndef MTK_GEMM_ROUTER_CUDA_H
#define MTK_GEMM_ROUTER_CUDA_H

#include "kernels/engine/error.h"
#include "kernels/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All arrays in device memory, aligned to 16 bytes. */
struct mtk_router_cuda {
	enum mtk_dtype dtype; /* MTK_DTYPE_BF16 or MTK_DTYPE_F16 */
	uint32_t n_rows;
	uint32_t n_in; /* a multiple of 8 */
	uint32_t n_out;
	const void *x; /* [n_rows][n_in] */
	const void *w; /* [n_out][n_in] */
	float *y;      /* [n_rows][n_out] */
};

/* MOETRACE_OK, MOETRACE_E_INVALID with the field's name, or what the launch failed with. */
int mtk_router_cuda(const struct mtk_router_cuda *router, void *stream, struct mtk_error *error);

#ifdef __cplusplus
}
#endif

#endif
