/* SPDX-License-Identifier: MIT */
/* A warp has four outputs of up to eight rows. */
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/status.cuh"
#include "kernels/gemm/linear_cuda.h"

#define N_THREADS 128
#define N_OUT	  4
#define MAX_ROWS  8
#define MAX_GRID  65535u

template <class W, int N_ROWS>
__global__ void __launch_bounds__(N_THREADS)
	linear_kernel(const __grid_constant__ struct mtk_linear_cuda linear)
{
	const uint32_t output = (blockIdx.x * (N_THREADS / 32) + threadIdx.x / 32) * N_OUT;
	const uint32_t row = blockIdx.y * N_ROWS;
	const W *weights[N_OUT];
	const float *rows[N_ROWS];
	float sums[N_OUT][N_ROWS] = {};

	if (output >= linear.n_out)
		return;
	/* What is not there is computed as what is, and not written. */
#pragma unroll
	for (int o = 0; o < N_OUT; o++)
		weights[o] = (const W *)linear.w +
			     (size_t)min(output + o, linear.n_out - 1) * linear.n_in;
#pragma unroll
	for (int r = 0; r < N_ROWS; r++)
		rows[r] = linear.x + (size_t)min(row + r, linear.n_rows - 1) * linear.x_stride;
	element_dots<W, N_OUT, N_ROWS>(linear.n_in, weights, rows, sums);
	if (threadIdx.x % 32 != 0)
		return;
#pragma unroll
	for (int r = 0; r < N_ROWS; r++)
#pragma unroll
		for (int o = 0; o < N_OUT; o++)
			if (row + r < linear.n_rows && output + o < linear.n_out)
				linear.y[(size_t)(row + r) * linear.n_out + output + o] =
					sums[o][r] +
					(linear.bias ? linear.bias[output + o] : 0.0f);
}

template <class W, int N_ROWS>
static void launch_rows(const struct mtk_linear_cuda *linear, cudaStream_t on)
{
	const uint32_t n_per_block = N_THREADS / 32 * N_OUT;
	const dim3 grid((linear->n_out + n_per_block - 1) / n_per_block,
			(linear->n_rows + N_ROWS - 1) / N_ROWS);

	linear_kernel<W, N_ROWS><<<grid, N_THREADS, 0, on>>>(*linear);
}

template <class W> static void launch(const struct mtk_linear_cuda *linear, cudaStream_t on)
{
	if (linear->n_rows == 1)
		launch_rows<W, 1>(linear, on);
	else
		launch_rows<W, MAX_ROWS>(linear, on);
}

int mtk_linear_cuda(const struct mtk_linear_cuda *linear, void *stream, struct mtk_error *error)
{
	cudaStream_t on = (cudaStream_t)stream;

	if (linear->n_rows > MAX_GRID * MAX_ROWS)
		return mtk_error_set(error, MOETRACE_E_LIMIT,
				     "linear: n_rows: %u are too many for a launch",
				     linear->n_rows);
	if (linear->n_rows == 0 || linear->n_out == 0)
		return MOETRACE_OK;
	if (linear->dtype == MTK_DTYPE_F32)
		launch<float>(linear, on);
	else if (linear->dtype == MTK_DTYPE_F16)
		launch<__half>(linear, on);
	else
		launch<__nv_bfloat16>(linear, on);
	return mtk_cuda_launched(error, "linear operation");
}
