/* SPDX-License-Identifier: MIT */
/* Both permutations on a GPU, to the bytes of the definitions. All arrays are in device memory. */
#ifndef MTK_PERMUTE_PERMUTE_CUDA_H
#define MTK_PERMUTE_PERMUTE_CUDA_H

#include "kernels/engine/error.h"
#include "kernels/permute/permute.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fill the slots [0, n_slots). */
int mtk_permute_cuda(const struct mtk_permute *permute, int64_t n_slots, void *stream,
		     struct mtk_error *error);

/* Fill the pairs [0, n_pairs). */
int mtk_unpermute_cuda(const struct mtk_unpermute *unpermute, int64_t n_pairs, void *stream,
		       struct mtk_error *error);

#ifdef __cplusplus
}
#endif

#endif
