/* SPDX-License-Identifier: MIT */
/* Elements of the three types of weights and activations, which are computed with in fp32. */
#ifndef MTK_CUDA_ELEMENT_CUH
#define MTK_CUDA_ELEMENT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#define ELEMENT_ALL_LANES 0xffffffffu

static __device__ __forceinline__ float element_widen(float value)
{
	return value;
}

static __device__ __forceinline__ float element_widen(__half value)
{
	return __half2float(value);
}

static __device__ __forceinline__ float element_widen(__nv_bfloat16 value)
{
	return __bfloat162float(value);
}

static __device__ __forceinline__ void element_store(float *to, float value)
{
	*to = value;
}

static __device__ __forceinline__ void element_store(__half *to, float value)
{
	*to = __float2half_rn(value);
}

static __device__ __forceinline__ void element_store(__nv_bfloat16 *to, float value)
{
	*to = __float2bfloat16_rn(value);
}

/* The sum over a warp, in every lane, in an order that is always the same. */
static __device__ __forceinline__ float element_sum(float value)
{
	for (int step = 16; step > 0; step /= 2)
		value += __shfl_xor_sync(ELEMENT_ALL_LANES, value, step);
	return value;
}

/*
 * N_OUT rows of weights times N_ROWS rows of inputs, by one warp: a lane takes every 32nd element,
 * and the lanes are added up in a tree. So a sum's order depends on n_in alone.
 */
template <class W, int N_OUT, int N_ROWS>
static __device__ __forceinline__ void element_dots(uint32_t n_in, const W *const *weights,
						    const float *const *rows,
						    float sums[N_OUT][N_ROWS])
{
	const uint32_t lane = threadIdx.x % 32;

	for (uint32_t i = lane; i < n_in; i += 32) {
		float w[N_OUT];

#pragma unroll
		for (int o = 0; o < N_OUT; o++)
			w[o] = element_widen(weights[o][i]);
#pragma unroll
		for (int r = 0; r < N_ROWS; r++) {
			const float x = rows[r][i];

#pragma unroll
			for (int o = 0; o < N_OUT; o++)
				sums[o][r] = fmaf(w[o], x, sums[o][r]);
		}
	}
#pragma unroll
	for (int o = 0; o < N_OUT; o++)
#pragma unroll
		for (int r = 0; r < N_ROWS; r++)
			sums[o][r] = element_sum(sums[o][r]);
}

#endif
