/* SPDX-License-Identifier: MIT */
/* The map from logical to physical experts on a GPU: the same copies as mtk_map_run() chooses. */
#ifndef MTK_MAP_MAP_CUDA_H
#define MTK_MAP_MAP_CUDA_H

#include "kernels/map/map.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mtk_map_cuda;

/*
 * The tables of a map on the current GPU; the map is not needed afterwards.
 *
 * Owner  caller; release with mtk_map_cuda_destroy(), which waits for the GPU.
 */
int mtk_map_cuda_create(const struct mtk_map *map, struct mtk_error *error,
			struct mtk_map_cuda **ret_map);

/* NULL is allowed. */
void mtk_map_cuda_destroy(struct mtk_map_cuda *map);

/*
 * Map n_rows rows, whose arrays are in device memory. n_invalid, in device memory, grows by the
 * ids that were neither -1 nor a logical expert; NULL: they are not counted.
 */
int mtk_map_cuda_run(const struct mtk_map_cuda *map, const struct mtk_map_rows *rows,
		     uint32_t n_rows, uint64_t *n_invalid, void *stream, struct mtk_error *error);

#ifdef __cplusplus
}
#endif

#endif
