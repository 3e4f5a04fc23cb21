/* SPDX-License-Identifier: MIT */
/*
 * The vendor's library for dense matrix products, opened at run time: declared here, never linked.
 * Where it is missing, our own kernels do its work; why is told in words.
 */
#ifndef MTK_CUDA_CUBLAS_H
#define MTK_CUDA_CUBLAS_H

#include <stddef.h>

#include "kernels/engine/error.h"
#include "kernels/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mtk_cublas;

/**
 * Open the library for products in a stream, on the current GPU.
 *
 * @ret_text  What was found, or why nothing was; cut to n_bytes.
 *
 * Returns  the library, to be released with mtk_cublas_close(); NULL: there is none to use
 */
struct mtk_cublas *mtk_cublas_open(void *stream, char *ret_text, size_t n_bytes);

/* NULL is allowed. */
void mtk_cublas_close(struct mtk_cublas *cublas);

/* y[r][o] = sum over i of x[r][i] * w[o][i]; x and w of 16 bits, y of fp32, in device memory. */
struct mtk_cublas_product {
	enum mtk_dtype dtype;
	uint32_t n_rows;
	uint32_t n_in;
	uint32_t n_out;
	const void *x;
	const void *w;
	float *y;
};

/* MOETRACE_OK, or MOETRACE_E_IO. Sums are in an order of the library's choice. */
int mtk_cublas_multiply(struct mtk_cublas *cublas, const struct mtk_cublas_product *product,
			struct mtk_error *error);

#ifdef __cplusplus
}
#endif

#endif
