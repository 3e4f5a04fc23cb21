/* SPDX-License-Identifier: MIT */
/* Panels become rows, an element a thread; and numbers out of a mixed counter. */
#include "kernels/cuda/status.cuh"
#include "kernels/cuda/weights.h"

#define N_THREADS 256

template <class T>
__global__ void __launch_bounds__(N_THREADS)
	unpack_kernel(uint32_t n_out, uint32_t n_in, const T *packed, T *rows)
{
	const uint32_t in = blockIdx.x * N_THREADS + threadIdx.x;

	for (uint32_t out = blockIdx.y; in < n_in && out < n_out; out += gridDim.y)
		rows[(size_t)out * n_in + in] =
			packed[((size_t)(out / MTK_PANEL) * n_in + in) * MTK_PANEL +
			       out % MTK_PANEL];
}

int mtk_cuda_unpack(enum mtk_dtype dtype, uint32_t n_out, uint32_t n_in, const void *packed,
		    void *ret_rows, void *stream, struct mtk_error *error)
{
	const dim3 grid((n_in + N_THREADS - 1) / N_THREADS, n_out < 65535 ? n_out : 65535);
	cudaStream_t on = (cudaStream_t)stream;

	if (n_out == 0 || n_in == 0)
		return MOETRACE_OK;
	if (dtype == MTK_DTYPE_F32)
		unpack_kernel<<<grid, N_THREADS, 0, on>>>(n_out, n_in, (const uint32_t *)packed,
							  (uint32_t *)ret_rows);
	else
		unpack_kernel<<<grid, N_THREADS, 0, on>>>(n_out, n_in, (const uint16_t *)packed,
							  (uint16_t *)ret_rows);
	return mtk_cuda_launched(error, "unpacking of weights");
}

static __device__ __forceinline__ uint64_t mixed(uint64_t seed, uint64_t number)
{
	uint64_t x = seed + (number + 1) * 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* Sign and fraction as they are drawn; two more bits are added to the lowest exponent. */
__global__ void __launch_bounds__(N_THREADS)
	synthesize_kernel(uint64_t seed, size_t n, uint32_t lowest, uint16_t *values)
{
	const size_t step = (size_t)gridDim.x * N_THREADS;

	for (size_t i = (size_t)blockIdx.x * N_THREADS + threadIdx.x; 4 * i < n; i += step) {
		const uint64_t drawn = mixed(seed, i);

		for (size_t j = 0; j < 4 && 4 * i + j < n; j++) {
			const uint32_t bits = (uint32_t)(drawn >> 16 * j) & 0xffffu;

			values[4 * i + j] =
				(uint16_t)((bits & 0x807fu) + lowest + (bits & 0x0180u));
		}
	}
}

int mtk_cuda_synthesize(uint64_t seed, size_t n, int top_exponent, void *ret_values, void *stream,
			struct mtk_error *error)
{
	if (top_exponent < -100 || top_exponent > 100)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "weights: top_exponent: %d is not in -100 .. 100",
				     top_exponent);
	if (n == 0)
		return MOETRACE_OK;
	synthesize_kernel<<<4096, N_THREADS, 0, (cudaStream_t)stream>>>(
		seed, n, (uint32_t)(127 + top_exponent - 3) << 7, (uint16_t *)ret_values);
	return mtk_cuda_launched(error, "making of weights");
}
