/* SPDX-License-Identifier: MIT */
/*
 * A warp has two units of the middle, or four outputs, of the eight slots of a block. Slots that
 * hold no pair are computed as the first one and not written.
 */
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/status.cuh"
#include "kernels/experts/experts_f32_cuda.h"

#define N_THREADS 128
#define N_WARPS	  (N_THREADS / 32)
#define BLOCK	  MTK_EXPERTS_F32_BLOCK
#define N_UNITS	  2
#define N_OUTPUTS 4

static __device__ __forceinline__ float activate(const struct mtk_activation_cuda *a, float gate,
						 float up)
{
	const struct mtk_swiglu_clamp *clamp = &a->clamp;

	if (a->squared_relu)
		return up > 0.0f ? up * up : isnan(up) ? up : 0.0f;
	gate = gate > clamp->limit ? clamp->limit : gate;
	up = up > clamp->limit ? clamp->limit : up;
	up = up < -clamp->limit ? -clamp->limit : up;
	return gate / (1.0f + expf(-clamp->alpha * gate)) * (up + clamp->offset);
}

/* The middle of a slot: what the sums of a gate and an up become. */
static __device__ __forceinline__ float middle_of(const struct mtk_experts_f32_cuda *e,
						  int32_t expert, int64_t pair, uint32_t unit,
						  float gate, float up)
{
	const uint32_t n_up = e->activation.squared_relu ? 0 : e->n_intermediate;
	const size_t first = (size_t)expert * (n_up + e->n_intermediate);

	if (e->weighting == MTK_WEIGHT_ON_INPUT) {
		gate *= e->weights[pair];
		up *= e->weights[pair];
	}
	if (e->gate_up_bias) {
		gate += e->gate_up_bias[first + unit];
		up += e->gate_up_bias[first + n_up + unit];
	}
	return activate(&e->activation, gate, up);
}

template <class W>
__global__ void __launch_bounds__(N_THREADS)
	gate_up_kernel(const __grid_constant__ struct mtk_experts_f32_cuda e)
{
	const int32_t expert = e.expert_ids[blockIdx.x];
	const uint32_t unit = (blockIdx.y * N_WARPS + threadIdx.x / 32) * N_UNITS;
	const uint32_t n_up = e.activation.squared_relu ? 0 : e.n_intermediate;
	const int64_t *pairs = e.sorted_pairs + (int64_t)blockIdx.x * BLOCK;
	const W *weights[2 * N_UNITS];
	const float *rows[BLOCK];
	float sums[2 * N_UNITS][BLOCK] = {};

	if (expert < 0 || unit >= e.n_intermediate)
		return;
	const W *first = (const W *)e.gate_up +
			 (size_t)expert * (n_up + e.n_intermediate) * e.n_hidden;

#pragma unroll
	for (int u = 0; u < N_UNITS; u++) {
		const size_t at = min(unit + u, e.n_intermediate - 1);

		weights[u] = first + at * e.n_hidden;
		weights[N_UNITS + u] = first + (n_up + at) * e.n_hidden;
	}
#pragma unroll
	for (int r = 0; r < BLOCK; r++)
		rows[r] = e.x +
			  (pairs[r] < e.n_pairs ? pairs[r] : pairs[0]) / e.top_k * (size_t)e.n_hidden;
	element_dots<W, 2 * N_UNITS, BLOCK>(e.n_hidden, weights, rows, sums);
	if (threadIdx.x % 32 != 0)
		return;
#pragma unroll
	for (int r = 0; r < BLOCK; r++)
#pragma unroll
		for (int u = 0; u < N_UNITS; u++)
			if (pairs[r] < e.n_pairs && unit + u < e.n_intermediate)
				e.middle[((int64_t)blockIdx.x * BLOCK + r) *
						 (size_t)e.n_intermediate +
					 unit + u] = middle_of(&e, expert, pairs[r], unit + u,
							       sums[u][r], sums[N_UNITS + u][r]);
}

template <class W>
__global__ void __launch_bounds__(N_THREADS)
	down_kernel(const __grid_constant__ struct mtk_experts_f32_cuda e)
{
	const int32_t expert = e.expert_ids[blockIdx.x];
	const uint32_t output = (blockIdx.y * N_WARPS + threadIdx.x / 32) * N_OUTPUTS;
	const int64_t slot = (int64_t)blockIdx.x * BLOCK;
	const int64_t *pairs = e.sorted_pairs + slot;
	const W *weights[N_OUTPUTS];
	const float *rows[BLOCK];
	float sums[N_OUTPUTS][BLOCK] = {};

	if (expert < 0 || output >= e.n_hidden)
		return;
#pragma unroll
	for (int o = 0; o < N_OUTPUTS; o++)
		weights[o] = (const W *)e.down +
			     ((size_t)expert * e.n_hidden + min(output + o, e.n_hidden - 1)) *
				     e.n_intermediate;
#pragma unroll
	for (int r = 0; r < BLOCK; r++)
		rows[r] = e.middle + (slot + (pairs[r] < e.n_pairs ? r : 0)) * (size_t)e.n_intermediate;
	element_dots<W, N_OUTPUTS, BLOCK>(e.n_intermediate, weights, rows, sums);
	if (threadIdx.x % 32 != 0)
		return;
#pragma unroll
	for (int r = 0; r < BLOCK; r++)
#pragma unroll
		for (int o = 0; o < N_OUTPUTS; o++) {
			float sum = sums[o][r];

			if (pairs[r] >= e.n_pairs || output + o >= e.n_hidden)
				continue;
			if (e.down_bias)
				sum += e.down_bias[(size_t)expert * e.n_hidden + output + o];
			if (e.weighting == MTK_WEIGHT_ON_OUTPUT)
				sum *= e.weights[pairs[r]];
			e.out[(slot + r) * (size_t)e.n_hidden + output + o] = sum;
		}
}

template <class W>
static void launch(const struct mtk_experts_f32_cuda *e, cudaStream_t on)
{
	const uint32_t n_blocks = (uint32_t)e->n_blocks;
	const uint32_t n_units = N_WARPS * N_UNITS, n_outputs = N_WARPS * N_OUTPUTS;

	gate_up_kernel<W><<<dim3(n_blocks, (e->n_intermediate + n_units - 1) / n_units), N_THREADS,
			    0, on>>>(*e);
	down_kernel<W><<<dim3(n_blocks, (e->n_hidden + n_outputs - 1) / n_outputs), N_THREADS, 0,
			 on>>>(*e);
}

int mtk_experts_f32_cuda(const struct mtk_experts_f32_cuda *experts, void *stream,
			 struct mtk_error *error)
{
	cudaStream_t on = (cudaStream_t)stream;

	if (experts->top_k == 0 || experts->n_hidden == 0 || experts->n_intermediate == 0)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "experts: expected a top_k and sizes above 0");
	if (experts->n_blocks > INT32_MAX || experts->n_hidden > 65535 * N_WARPS * N_OUTPUTS ||
	    experts->n_intermediate > 65535 * N_WARPS * N_UNITS)
		return mtk_error_set(error, MOETRACE_E_LIMIT,
				     "experts: %lld blocks, %u, %u are too many for a launch",
				     (long long)experts->n_blocks, experts->n_hidden,
				     experts->n_intermediate);
	if (experts->n_blocks == 0)
		return MOETRACE_OK;
	if (experts->dtype == MTK_DTYPE_F32)
		launch<float>(experts, on);
	else if (experts->dtype == MTK_DTYPE_F16)
		launch<__half>(experts, on);
	else
		launch<__nv_bfloat16>(experts, on);
	return mtk_cuda_launched(error, "experts in fp32");
}

template <class T>
__global__ void __launch_bounds__(N_THREADS)
	activate_kernel(const __grid_constant__ struct mtk_activate_cuda a)
{
	const size_t row = blockIdx.x;
	const uint32_t i = blockIdx.y * N_THREADS + threadIdx.x;
	const uint32_t n_up = a.activation.squared_relu ? 0 : a.n;
	const float *from = a.gate_up + row * (n_up + a.n);
	float value;

	if (i >= a.n)
		return;
	value = activate(&a.activation, from[i], from[n_up + i]);
	if (a.row_gates)
		value *= 1.0f / (1.0f + expf(-a.row_gates[row]));
	element_store((T *)a.out + row * a.n + i, value);
}

int mtk_activate_cuda(const struct mtk_activate_cuda *activate, void *stream,
		      struct mtk_error *error)
{
	const dim3 grid(activate->n_rows, (activate->n + N_THREADS - 1) / N_THREADS);
	cudaStream_t on = (cudaStream_t)stream;

	if (activate->n_rows == 0 || activate->n == 0)
		return MOETRACE_OK;
	if (activate->dtype == MTK_DTYPE_F32)
		activate_kernel<float><<<grid, N_THREADS, 0, on>>>(*activate);
	else if (activate->dtype == MTK_DTYPE_F16)
		activate_kernel<__half><<<grid, N_THREADS, 0, on>>>(*activate);
	else
		activate_kernel<__nv_bfloat16><<<grid, N_THREADS, 0, on>>>(*activate);
	return mtk_cuda_launched(error, "activation");
}
