/* SPDX-License-Identifier: MIT */
/*
 * The norm on a GPU, and what comes before it in a transformer: the outputs of the blocks before
 * are added to the residual stream, which is then normed as kernels/rmsnorm/rmsnorm.h says. A row's
 * values depend on no other row. All arrays in device memory.
 */
#ifndef MTK_RMSNORM_RMSNORM_CUDA_H
#define MTK_RMSNORM_RMSNORM_CUDA_H

#include "kernels/engine/error.h"
#include "kernels/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mtk_rmsnorm_cuda {
	uint32_t n_rows; /* of the result */
	uint32_t n;
	float epsilon;
	float *hidden;		   /* [][n]; changed where something is added and rows is NULL */
	const float *first_add;	   /* as hidden; NULL: nothing is added */
	const float *second_add;   /* likewise, after the first */
	const uint32_t *rows;	   /* the row of hidden that row r is made of; NULL: r */
	const float *weight;	   /* [n] */
	enum mtk_dtype dtype;	   /* of the result */
	void *normed;		   /* [n_rows][n] */
};

int mtk_rmsnorm_cuda(const struct mtk_rmsnorm_cuda *norm, void *stream, struct mtk_error *error);

#ifdef __cplusplus
}
#endif

#endif
