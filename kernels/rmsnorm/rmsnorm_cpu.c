/* SPDX-License-Identifier: MIT */
/* The definition of the root-mean-square norm. */
#include "kernels/rmsnorm/rmsnorm.h"

#include <math.h>

void mtk_rmsnorm_plain(const float *x, const float *weight, uint32_t n, float epsilon, float *y)
{
	float sum = 0.0f;
	float scale;

	for (uint32_t i = 0; i < n; i++)
		sum += x[i] * x[i];
	scale = 1.0f / sqrtf(sum / (float)n + epsilon);
	for (uint32_t i = 0; i < n; i++)
		y[i] = x[i] * scale * weight[i];
}
