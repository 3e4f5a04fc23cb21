/* SPDX-License-Identifier: MIT */
/* The definition of combination. */
#include "kernels/combine/combine.h"

#include <stddef.h>

void mtk_combine_plain(uint32_t n, uint32_t top_k, const float *outputs, const float *weights,
		       float *ret_sum, float *hidden)
{
	for (uint32_t i = 0; i < n; i++) {
		float sum = 0.0f;

		for (uint32_t j = 0; j < top_k; j++)
			sum += weights[j] * outputs[(size_t)j * n + i];
		ret_sum[i] = sum;
		hidden[i] += sum;
	}
}
