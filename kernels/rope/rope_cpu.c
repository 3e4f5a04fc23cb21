/* SPDX-License-Identifier: MIT */
/* The definition of the rotary position embedding; the only one, since its cost is negligible. */
#include "kernels/rope/rope.h"

#include <math.h>
#include <stddef.h>

void mtk_rope_table_fill(float theta, uint32_t head_dim, uint32_t n_positions, float *ret_cosines,
			 float *ret_sines)
{
	const uint32_t half = head_dim / 2;

	for (uint32_t i = 0; i < half; i++) {
		float frequency = 1.0f / powf(theta, (float)(2 * i) / (float)head_dim);

		for (uint32_t position = 0; position < n_positions; position++) {
			float angle = (float)position * frequency;

			ret_cosines[(size_t)position * half + i] = cosf(angle);
			ret_sines[(size_t)position * half + i] = sinf(angle);
		}
	}
}

void mtk_rope_plain(const float *cosines, const float *sines, uint32_t head_dim, float *head)
{
	const uint32_t half = head_dim / 2;

	for (uint32_t i = 0; i < half; i++) {
		float a = head[i];
		float b = head[i + half];

		head[i] = a * cosines[i] - b * sines[i];
		head[i + half] = b * cosines[i] + a * sines[i];
	}
}
