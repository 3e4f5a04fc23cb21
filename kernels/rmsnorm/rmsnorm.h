/* SPDX-License-Identifier: MIT */
/*
 * Root-mean-square norm of one row: y[i] = x[i] / sqrt(mean(x^2) + epsilon) * weight[i].
 * y may be x.
 */
#ifndef MTK_RMSNORM_RMSNORM_H
#define MTK_RMSNORM_RMSNORM_H

#include <stdint.h>

typedef void (*mtk_rmsnorm_fn)(const float *x, const float *weight, uint32_t n, float epsilon,
			       float *y);

void mtk_rmsnorm_plain(const float *x, const float *weight, uint32_t n, float epsilon, float *y);

#endif
