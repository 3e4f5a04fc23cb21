/* SPDX-License-Identifier: MIT */
/* The vector path of SwiGLU, element by element. */
#include "kernels/experts/experts.h"

VEC_FN struct vec swiglu_lanes(struct vec gate, struct vec up)
{
	struct vec denominator =
		vec_add(vec_set1(1.0f), vec_exp(vec_sub(vec_set1(0.0f), gate)));

	return vec_mul(vec_div(gate, denominator), up);
}

static VEC_TARGET void swiglu_vec(uint32_t n, float *gate_up)
{
	const uint32_t tail = n % VEC_LANES;
	const uint32_t whole = n - tail;

	for (uint32_t i = 0; i < whole; i += VEC_LANES)
		vec_store(gate_up + i,
			  swiglu_lanes(vec_load(gate_up + i), vec_load(gate_up + n + i)));
	vec_store_first(gate_up + whole, tail,
			swiglu_lanes(vec_load_first(gate_up + whole, tail),
				     vec_load_first(gate_up + n + whole, tail)));
}

VEC_FN struct vec swiglu_clamped_lanes(const struct mtk_swiglu_clamp *clamp, struct vec gate,
				       struct vec up)
{
	/* vec_min() and vec_max() give their second operand where either is NaN. */
	struct vec g = vec_min(vec_set1(clamp->limit), gate);
	struct vec u = vec_max(vec_set1(-clamp->limit), vec_min(vec_set1(clamp->limit), up));
	struct vec power = vec_exp(vec_mul(vec_set1(-clamp->alpha), g));

	return vec_mul(vec_div(g, vec_add(vec_set1(1.0f), power)),
		       vec_add(u, vec_set1(clamp->offset)));
}

static VEC_TARGET void swiglu_clamped_vec(const struct mtk_swiglu_clamp *clamp, uint32_t n,
					  float *gate_up)
{
	for (uint32_t i = 0; i < n; i += VEC_LANES) {
		uint32_t count = n - i < VEC_LANES ? n - i : VEC_LANES;

		vec_store_first(gate_up + i, count,
				swiglu_clamped_lanes(clamp, vec_load_first(gate_up + i, count),
						     vec_load_first(gate_up + n + i, count)));
	}
}
