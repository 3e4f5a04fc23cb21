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

/* The lanes [i, i + count). */
VEC_FN struct vec combine_pairs_lanes(const struct mtk_combine *combine, const float *outputs,
				      const int64_t *slots, const float *weights,
				      const float *input, uint32_t i, uint32_t count)
{
	struct vec sum = vec_set1(0.0f);

	for (uint32_t j = 0; j < combine->top_k; j++) {
		const float *from = input;
		struct vec value;

		if (slots[j] == MTK_PAIR_SKIP)
			continue;
		if (slots[j] != MTK_PAIR_IDENTITY)
			from = outputs + (size_t)slots[j] * combine->output_stride;
		value = vec_load_first(from + i, count);
		sum = weights ? vec_fma(vec_set1(weights[j]), value, sum) : vec_add(sum, value);
	}
	return vec_mul(sum, vec_set1(combine->scale));
}

static VEC_TARGET void combine_pairs_vec(const struct mtk_combine *combine, const float *outputs,
					 const int64_t *slots, const float *weights,
					 const float *input, float *ret_sum)
{
	for (uint32_t i = 0; i < combine->n; i += VEC_LANES) {
		uint32_t count = combine->n - i < VEC_LANES ? combine->n - i : VEC_LANES;

		vec_store_first(ret_sum + i, count,
				combine_pairs_lanes(combine, outputs, slots, weights, input, i,
						    count));
	}
}
