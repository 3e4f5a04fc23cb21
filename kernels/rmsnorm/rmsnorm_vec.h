/* SPDX-License-Identifier: MIT */
/*
 * The vector path of the root-mean-square norm: lane l sums the squares of elements l, l + 16,
 * l + 32 and so on, then vec_sum() folds the lanes.
 */
#include <math.h>

#include "kernels/rmsnorm/rmsnorm.h"

static VEC_TARGET void rmsnorm_vec(const float *x, const float *weight, uint32_t n, float epsilon,
				   float *y)
{
	const uint32_t tail = n % VEC_LANES;
	const uint32_t whole = n - tail;
	struct vec sum = vec_set1(0.0f);
	struct vec scale, last;

	for (uint32_t i = 0; i < whole; i += VEC_LANES) {
		struct vec part = vec_load(x + i);

		sum = vec_fma(part, part, sum);
	}
	last = vec_load_first(x + whole, tail);
	sum = vec_fma(last, last, sum);

	scale = vec_set1(1.0f / sqrtf(vec_sum(sum) / (float)n + epsilon));
	for (uint32_t i = 0; i < whole; i += VEC_LANES)
		vec_store(y + i, vec_mul(vec_mul(vec_load(x + i), scale), vec_load(weight + i)));
	vec_store_first(y + whole, tail,
			vec_mul(vec_mul(last, scale), vec_load_first(weight + whole, tail)));
}
