/* SPDX-License-Identifier: MIT */
/* The vector path of combination: the same chain for each element. */
#include "kernels/combine/combine.h"

VEC_FN struct vec combine_lanes(uint32_t n, uint32_t top_k, const float *outputs,
				const float *weights, uint32_t count)
{
	struct vec sum = vec_set1(0.0f);

	for (uint32_t j = 0; j < top_k; j++)
		sum = vec_fma(vec_set1(weights[j]),
			      vec_load_first(outputs + (size_t)j * n, count), sum);
	return sum;
}

static VEC_TARGET void combine_vec(uint32_t n, uint32_t top_k, const float *outputs,
				   const float *weights, float *ret_sum, float *hidden)
{
	for (uint32_t i = 0; i < n; i += VEC_LANES) {
		uint32_t count = n - i < VEC_LANES ? n - i : VEC_LANES;
		struct vec sum = combine_lanes(n, top_k, outputs + i, weights, count);

		vec_store_first(ret_sum + i, count, sum);
		vec_store_first(hidden + i, count,
				vec_add(vec_load_first(hidden + i, count), sum));
	}
}
