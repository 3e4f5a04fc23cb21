/* SPDX-License-Identifier: MIT */
/* A thread an element, or four where rows and pointers are aligned; a block a part of a row. */
#include "kernels/combine/combine_cuda.h"
#include "kernels/cuda/status.cuh"

#define N_THREADS 256

static __device__ __forceinline__ float add(float sum, float weight, bool has_weight, float value)
{
	return __fadd_rn(sum, has_weight ? __fmul_rn(weight, value) : value);
}

static __device__ __forceinline__ float4 add(float4 sum, float weight, bool has_weight,
					     float4 value)
{
	return make_float4(
		add(sum.x, weight, has_weight, value.x), add(sum.y, weight, has_weight, value.y),
		add(sum.z, weight, has_weight, value.z), add(sum.w, weight, has_weight, value.w));
}

static __device__ __forceinline__ float scaled(float sum, float scale)
{
	return __fmul_rn(sum, scale);
}

static __device__ __forceinline__ float4 scaled(float4 sum, float scale)
{
	return make_float4(scaled(sum.x, scale), scaled(sum.y, scale), scaled(sum.z, scale),
			   scaled(sum.w, scale));
}

template <class T>
__global__ void __launch_bounds__(N_THREADS)
	combine_kernel(const __grid_constant__ struct mtk_combine combine,
		       const __grid_constant__ struct mtk_combine_cuda_rows rows)
{
	constexpr uint32_t WIDTH = sizeof(T) / sizeof(float);
	const uint32_t n = combine.n / WIDTH;
	const uint32_t i = blockIdx.x * N_THREADS + threadIdx.x;
	const size_t row = blockIdx.y + (size_t)blockIdx.z * gridDim.y;
	T sum = {};

	if (i >= n || row >= rows.n_rows)
		return;
	for (uint32_t j = 0; j < combine.top_k; j++) {
		const size_t pair = row * combine.top_k + j;
		const int64_t slot = rows.slots[pair];
		const float *from;

		if (slot == MTK_PAIR_SKIP)
			continue;
		from = slot == MTK_PAIR_IDENTITY ? rows.input + row * combine.n
						 : rows.outputs + slot * combine.output_stride;
		sum = add(sum, rows.weights ? rows.weights[pair] : 1.0f, rows.weights != NULL,
			  ((const T *)from)[i]);
	}
	((T *)(rows.sums + row * combine.n))[i] = scaled(sum, combine.scale);
}

static bool is_vector(const struct mtk_combine *combine, const struct mtk_combine_cuda_rows *rows)
{
	const uintptr_t pointers =
		(uintptr_t)rows->outputs | (uintptr_t)rows->input | (uintptr_t)rows->sums;

	return pointers % sizeof(float4) == 0 && combine->n % 4 == 0 &&
	       combine->output_stride % 4 == 0;
}

int mtk_combine_cuda(const struct mtk_combine *combine, const struct mtk_combine_cuda_rows *rows,
		     void *stream, struct mtk_error *error)
{
	const bool by_four = is_vector(combine, rows);
	const uint32_t n = combine->n / (by_four ? 4 : 1);
	const uint32_t n_high = (rows->n_rows + 32767) / 32768;
	const dim3 grid((n + N_THREADS - 1) / N_THREADS,
			rows->n_rows < 32768 ? rows->n_rows : 32768, n_high);

	if (rows->n_rows == 0)
		return MOETRACE_OK;
	if (by_four)
		combine_kernel<float4>
			<<<grid, N_THREADS, 0, (cudaStream_t)stream>>>(*combine, *rows);
	else
		combine_kernel<float>
			<<<grid, N_THREADS, 0, (cudaStream_t)stream>>>(*combine, *rows);
	return mtk_cuda_launched(error, "combination");
}
