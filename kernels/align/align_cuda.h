/* SPDX-License-Identifier: MIT */
/*
 * Alignment on a GPU: the result of mtk_align_plain(), the order within an expert included. Few
 * pairs take one launch, more take three. Nothing waits for the host: sizes are the capacity.
 */
#ifndef MTK_ALIGN_ALIGN_CUDA_H
#define MTK_ALIGN_ALIGN_CUDA_H

#include "kernels/align/align.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All in device memory. */
struct mtk_align_cuda_result {
	int64_t *sorted_pairs; /* as struct mtk_align_result has them */
	int32_t *expert_ids;
	int64_t *first_slots;
	int64_t *pair_slots;
	int64_t *n_padded;  /* [1] */
	int64_t *n_dropped; /* [1] */
};

/* Elements of the scratch, in device memory; 0 where they overflow. */
size_t mtk_align_cuda_scratch_elements(const struct mtk_align_settings *settings,
				       const struct mtk_align_sizes *sizes);

/*
 * Align ids [n_rows][top_k] in device memory. The settings were checked, with an expert_map in host
 * memory; expert_map is its copy in device memory, NULL where it is NULL. scratch may hold anything
 * and belongs to the call until it has run.
 */
int mtk_align_cuda(const struct mtk_align_settings *settings, const struct mtk_align_sizes *sizes,
		   const int32_t *expert_map, const int32_t *ids, uint32_t *scratch,
		   const struct mtk_align_cuda_result *result, void *stream,
		   struct mtk_error *error);

#ifdef __cplusplus
}
#endif

#endif
