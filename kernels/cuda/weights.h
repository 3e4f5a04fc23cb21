/* SPDX-License-Identifier: MIT */
/*
 * Weights in device memory are plain rows, [n_out][n_in]. They come from the packed matrices of the
 * CPU (kernels/matrix.h), or are made where they lie, for measurements of models that no host
 * memory would hold.
 */
#ifndef MTK_CUDA_WEIGHTS_H
#define MTK_CUDA_WEIGHTS_H

#include "kernels/engine/error.h"
#include "kernels/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* packed, in device memory, is the data of a matrix of the CPU. */
int mtk_cuda_unpack(enum mtk_dtype dtype, uint32_t n_out, uint32_t n_in, const void *packed,
		    void *ret_rows, void *stream, struct mtk_error *error);

/* n bf16 numbers of the spread that mtk_synthetic_fill() gives, of another seed's kind. */
int mtk_cuda_synthesize(uint64_t seed, size_t n, int top_exponent, void *ret_values, void *stream,
			struct mtk_error *error);

#ifdef __cplusplus
}
#endif

#endif
