/* SPDX-License-Identifier: MIT */
/* The embedding on a GPU: mtk_embed() of every row, to the bit. All arrays in device memory. */
#ifndef MTK_EMBED_EMBED_CUDA_H
#define MTK_EMBED_EMBED_CUDA_H

#include "kernels/engine/error.h"
#include "kernels/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mtk_embed_cuda {
	enum mtk_dtype dtype;
	uint32_t n_rows;
	uint32_t n_vocab;
	uint32_t n_hidden;
	const void *weights;	  /* [n_vocab][n_hidden], rows one after another */
	const int32_t *token_ids; /* [n_rows]; one that is not in the vocabulary gives zeros */
	float *hidden;		  /* [n_rows][n_hidden] */
};

int mtk_embed_cuda(const struct mtk_embed_cuda *embed, void *stream, struct mtk_error *error);

#ifdef __cplusplus
}
#endif

#endif
