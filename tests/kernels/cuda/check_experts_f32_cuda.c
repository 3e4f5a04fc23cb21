/* SPDX-License-Identifier: MIT */
/*
 * The expert MLP and its activation in fp32 on a GPU against their definitions, for all types of
 * weights, both activations, clamps and every weighting; slots without a pair must not be written.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device.h"
#include "kernels/experts/experts_f32_cuda.h"
#include "tests/kernels/cuda/support/gpu.h"
#include "tests/kernels/cuda/support/values.h"

static struct random state = {20261130};

enum { N_EXPERTS = 3, N_HIDDEN = 40, N_UNITS = 19, TOP_K = 2, N_PAIRS = 10, N_BLOCKS = 3 };

static double activation(const struct mtk_activation_cuda *a, double gate, double up)
{
	if (a->squared_relu)
		return up > 0.0 ? up * up : 0.0;
	gate = fmin(gate, (double)a->clamp.limit);
	up = fmax(fmin(up, (double)a->clamp.limit), -(double)a->clamp.limit);
	return gate / (1.0 + exp(-(double)a->clamp.alpha * gate)) * (up + (double)a->clamp.offset);
}

/* One pair, from its row to its output. */
static void expert_pair(const struct mtk_experts_f32_cuda *e, const float *gate_up,
			const float *down, const float *biases, const float *x, float weight,
			uint32_t expert, float *ret_out)
{
	const uint32_t n_up = e->activation.squared_relu ? 0 : N_UNITS, n = n_up + N_UNITS;
	const double in = e->weighting == MTK_WEIGHT_ON_INPUT ? (double)weight : 1.0;
	const double after = e->weighting == MTK_WEIGHT_ON_OUTPUT ? (double)weight : 1.0;
	double middle[N_UNITS];

	for (uint32_t u = 0; u < N_UNITS; u++) {
		double sums[2] = {biases[expert * n + u], biases[expert * n + n_up + u]};

		for (uint32_t i = 0; i < N_HIDDEN; i++) {
			sums[0] += in * (double)x[i] *
				   (double)gate_up[((size_t)expert * n + u) * N_HIDDEN + i];
			sums[1] += in * (double)x[i] *
				   (double)gate_up[((size_t)expert * n + n_up + u) * N_HIDDEN + i];
		}
		middle[u] = activation(&e->activation, sums[0], sums[1]);
	}
	for (uint32_t o = 0; o < N_HIDDEN; o++) {
		double sum = biases[N_EXPERTS * 2 * N_UNITS + expert * N_HIDDEN + o];

		for (uint32_t u = 0; u < N_UNITS; u++)
			sum += middle[u] *
			       (double)down[((size_t)expert * N_HIDDEN + o) * N_UNITS + u];
		ret_out[o] = (float)(after * sum);
	}
}

static void check_experts(enum mtk_dtype dtype, bool squared_relu, bool is_clamped,
			  enum mtk_expert_weighting weighting)
{
	/* Expert 2 has a full block, expert 0 two pairs; the last block has none. */
	static const int64_t pairs[N_BLOCKS * 8] = {1, 4, 10, 10, 10, 10, 10, 10, 0,  2,  3,  5,
						    6, 7, 8,  9,  10, 10, 10, 10, 10, 10, 10, 10};
	static const int32_t experts_of[N_BLOCKS] = {0, 2, -1};
	const size_t n_gate_up = (size_t)N_EXPERTS * (squared_relu ? 1 : 2) * N_UNITS * N_HIDDEN;
	struct weights gate_up = weights_random(&state, dtype, n_gate_up);
	struct weights down = weights_random(&state, dtype, N_EXPERTS * N_HIDDEN * N_UNITS);
	float *x = values_random(&state, N_PAIRS / TOP_K * N_HIDDEN),
	      *weights = values_random(&state, N_PAIRS);
	float *biases = values_random(&state, N_EXPERTS * (2 * N_UNITS + N_HIDDEN));
	float want[N_BLOCKS * 8 * N_HIDDEN], *device_biases;
	struct mtk_experts_f32_cuda e = {
		.dtype = dtype,
		.n_hidden = N_HIDDEN,
		.n_intermediate = N_UNITS,
		.top_k = TOP_K,
		.activation = {squared_relu, {INFINITY, 1.0f, 0.0f}},
		.weighting = weighting,
		.n_pairs = N_PAIRS,
		.n_blocks = N_BLOCKS,
	};
	struct mtk_error error;

	if (is_clamped)
		e.activation.clamp = (struct mtk_swiglu_clamp){0.5f, 1.7f, 1.0f};
	/* What is not written keeps its pattern. */
	memset(want, 0xa5, sizeof(want));
	for (int slot = 0; slot < N_BLOCKS * 8; slot++)
		if (pairs[slot] < N_PAIRS)
			expert_pair(&e, gate_up.wide, down.wide, biases,
				    x + pairs[slot] / TOP_K * N_HIDDEN, weights[pairs[slot]],
				    (uint32_t)experts_of[slot / 8], want + slot * N_HIDDEN);
	e.gate_up = gpu_copy_of(gate_up.data, gate_up.n_bytes);
	e.down = gpu_copy_of(down.data, down.n_bytes);
	device_biases = gpu_copy_of(biases, N_EXPERTS * (2 * N_UNITS + N_HIDDEN) * sizeof(float));
	e.gate_up_bias = device_biases;
	e.down_bias = device_biases + N_EXPERTS * 2 * N_UNITS;
	e.sorted_pairs = gpu_copy_of(pairs, sizeof(pairs));
	e.expert_ids = gpu_copy_of(experts_of, sizeof(experts_of));
	e.x = gpu_copy_of(x, N_PAIRS / TOP_K * N_HIDDEN * sizeof(float));
	e.weights = gpu_copy_of(weights, N_PAIRS * sizeof(float));
	e.middle = gpu_memory(N_BLOCKS * 8 * N_UNITS * sizeof(float));
	e.out = gpu_memory(sizeof(want));
	gpu_must(mtk_experts_f32_cuda(&e, gpu_stream(), &error), &error, "experts");
	values_near(want, e.out, N_BLOCKS * 8 * N_HIDDEN, 3e-6, "experts");
	gpu_free_all();
	weights_free(&gate_up);
	weights_free(&down);
	free(x);
	free(weights);
	free(biases);
}

static void check_activation(bool squared_relu)
{
	enum { N_ROWS = 5, N = 131 };
	const size_t n_in = squared_relu ? N : 2 * N;
	float *x = values_random(&state, N_ROWS * n_in), *gates = values_random(&state, N_ROWS);
	float want[N_ROWS * N];
	struct mtk_activate_cuda activate = {
		.activation = {squared_relu, {INFINITY, 1.0f, 0.0f}},
		.n_rows = N_ROWS,
		.n = N,
		.dtype = MTK_DTYPE_F32,
	};
	struct mtk_error error;

	for (size_t r = 0; r < N_ROWS; r++)
		for (size_t i = 0; i < N; i++)
			want[r * N + i] =
				(float)(activation(&activate.activation, (double)x[r * n_in + i],
						   (double)x[r * n_in + n_in - N + i]) /
					(1.0 + exp(-(double)gates[r])));
	activate.gate_up = gpu_copy_of(x, N_ROWS * n_in * sizeof(float));
	activate.row_gates = gpu_copy_of(gates, N_ROWS * sizeof(float));
	activate.out = gpu_memory(sizeof(want));
	gpu_must(mtk_activate_cuda(&activate, gpu_stream(), &error), &error, "activation");
	values_near(want, activate.out, N_ROWS * N, 1e-6, "activation");
	gpu_free_all();
	free(x);
	free(gates);
}

int main(void)
{
	gpu_open_or_skip();
	for (int dtype = MTK_DTYPE_F32; dtype <= MTK_DTYPE_BF16; dtype++)
		for (int weighting = 0; weighting <= MTK_WEIGHT_ON_INPUT; weighting++) {
			const enum mtk_expert_weighting on = (enum mtk_expert_weighting)weighting;

			check_experts((enum mtk_dtype)dtype, false, false, on);
			check_experts((enum mtk_dtype)dtype, false, true, on);
			check_experts((enum mtk_dtype)dtype, true, false, on);
		}
	check_activation(false);
	check_activation(true);
	puts("experts in fp32: all equal within tolerance");
	return 0;
}
