/* SPDX-License-Identifier: MIT */
/*
 * Opportunistic expert activation on a GPU, by the definition in kernels/oea/oea.h: the same ids
 * but where double precision rounds two scores apart or together, weights within 1e-6 of it. Two
 * launches; rows are a warp each. All arrays in device memory.
 */
#ifndef MTK_OEA_OEA_CUDA_H
#define MTK_OEA_OEA_CUDA_H

#include "kernels/oea/oea.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mtk_oea_cuda {
	struct mtk_oea oea; /* resolved */
	struct mtk_route_config route;
	uint32_t n_rows;
	const uint32_t *n_valid_rows; /* rows from there on are padding; NULL: there is none */
	const float *logits;	      /* what was routed */
	const float *bias;
	const uint8_t *is_decode;  /* [n_rows], 0: a prefill row */
	const int32_t *base_ids;   /* [n_rows][mtk_route_width()]: what the router wrote */
	const float *base_weights; /* likewise */
	uint32_t *n_base;	   /* [n_rows]: scratch */
	uint32_t *is_loaded;	   /* [columns / 32, rounded up]: the union, a bit a column */
	int32_t *ids;		   /* [n_rows][mtk_oea_width()] */
	float *weights;		   /* likewise */
};

int mtk_oea_cuda(const struct mtk_oea_cuda *oea, void *stream, struct mtk_error *error);

#ifdef __cplusplus
}
#endif

#endif
