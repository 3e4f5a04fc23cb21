/* SPDX-License-Identifier: MIT */
/* A block a row; a thread reads again what it wrote itself. */
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/status.cuh"
#include "kernels/rmsnorm/rmsnorm_cuda.h"

#define N_THREADS 256
#define N_WARPS	  (N_THREADS / 32)

static __device__ __forceinline__ float block_sum(float value)
{
	__shared__ float parts[N_WARPS];
	float sum = 0.0f;

	value = element_sum(value);
	if (threadIdx.x % 32 == 0)
		parts[threadIdx.x / 32] = value;
	__syncthreads();
	for (int i = 0; i < N_WARPS; i++)
		sum += parts[i];
	return sum;
}

template <class T>
__global__ void __launch_bounds__(N_THREADS)
	rmsnorm_kernel(const __grid_constant__ struct mtk_rmsnorm_cuda norm)
{
	const size_t row = norm.rows ? norm.rows[blockIdx.x] : blockIdx.x;
	const size_t first = row * norm.n;
	const bool stores = !norm.rows && norm.first_add;
	T *to = (T *)norm.normed + (size_t)blockIdx.x * norm.n;
	float sum = 0.0f;

	for (uint32_t i = threadIdx.x; i < norm.n; i += N_THREADS) {
		float x = norm.hidden[first + i];

		if (norm.first_add)
			x += norm.first_add[first + i];
		if (norm.second_add)
			x += norm.second_add[first + i];
		if (stores)
			norm.hidden[first + i] = x;
		sum = fmaf(x, x, sum);
	}
	sum = block_sum(sum);
	const float scale = 1.0f / sqrtf(sum / (float)norm.n + norm.epsilon);

	for (uint32_t i = threadIdx.x; i < norm.n; i += N_THREADS) {
		float x = norm.hidden[first + i];

		if (!stores && norm.first_add)
			x += norm.first_add[first + i];
		if (!stores && norm.second_add)
			x += norm.second_add[first + i];
		element_store(to + i, x * scale * norm.weight[i]);
	}
}

int mtk_rmsnorm_cuda(const struct mtk_rmsnorm_cuda *norm, void *stream, struct mtk_error *error)
{
	cudaStream_t on = (cudaStream_t)stream;

	if (norm->second_add && !norm->first_add)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "norm: second_add is given without first_add");
	if (norm->n_rows == 0)
		return MOETRACE_OK;
	if (norm->dtype == MTK_DTYPE_F32)
		rmsnorm_kernel<float><<<norm->n_rows, N_THREADS, 0, on>>>(*norm);
	else if (norm->dtype == MTK_DTYPE_F16)
		rmsnorm_kernel<__half><<<norm->n_rows, N_THREADS, 0, on>>>(*norm);
	else
		rmsnorm_kernel<__nv_bfloat16><<<norm->n_rows, N_THREADS, 0, on>>>(*norm);
	return mtk_cuda_launched(error, "norm");
}
