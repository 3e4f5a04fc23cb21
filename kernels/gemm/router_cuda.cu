/* SPDX-License-Identifier: MIT */
/*
 * Few rows: a block has eight outputs and up to 64 rows; its warps share the
 * inputs, so that enough of the weights is on its way to keep the memory busy, and their sums are
 * added in the order of the warps. Many rows: tiles.
 */
#include "kernels/cuda/status.cuh"
#include "kernels/gemm/router_cuda.h"
#include "kernels/gemm/tiles.cuh"

#define FEW_THREADS 512
#define FEW_WARPS   (FEW_THREADS / 32)
#define FEW_ROWS    64
/* Up to here tiles would leave most multiprocessors without work. */
#define MAX_FEW_ROWS 2048

template <class T, int M>
__global__ void __launch_bounds__(FEW_THREADS)
	router_few_kernel(const __grid_constant__ struct mtk_router_cuda router)
{
	__shared__ float parts[FEW_WARPS][M * 128];
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t g = lane / 4, t = lane % 4;
	const uint32_t output = blockIdx.x * 8 + g;
	const uint32_t first = blockIdx.y * FEW_ROWS;
	const uint32_t n_rows = min(router.n_rows - first, (uint32_t)FEW_ROWS);
	const T *x = (const T *)router.x + (size_t)first * router.n_in;
	const T *w = (const T *)router.w + (size_t)output * router.n_in;
	float sums[M][4] = {};

#pragma unroll 4
	for (uint32_t k = warp * 32 + t * 8; k < router.n_in + t * 8; k += FEW_WARPS * 32) {
		const bool is_there = k < router.n_in;
		const uint4 b = mma_load(w + k, is_there && output < router.n_out);

#pragma unroll
		for (int i = 0; i < M; i++) {
			const uint32_t row = i * 16 + g;
			const uint4 low = mma_load(x + (size_t)row * router.n_in + k,
						   is_there && row < n_rows);
			const uint4 high = mma_load(x + (size_t)(row + 8) * router.n_in + k,
						    is_there && row + 8 < n_rows);

			mma_stream<T>(sums[i], low, high, b);
		}
	}
#pragma unroll
	for (int i = 0; i < M * 4; i++)
		parts[warp][i * 32 + lane] = sums[i / 4][i % 4];
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < M * 128; i += FEW_THREADS) {
		const uint32_t part = i / 32, from = i % 32;
		const uint32_t row = part / 4 * 16 + part % 4 / 2 * 8 + from / 4;
		const uint32_t column = blockIdx.x * 8 + from % 4 * 2 + part % 2;
		float sum = 0.0f;

		for (int j = 0; j < FEW_WARPS; j++)
			sum += parts[j][i];
		if (row < n_rows && column < router.n_out)
			router.y[(size_t)(first + row) * router.n_out + column] = sum;
	}
}

template <class T>
__global__ void __launch_bounds__(TILE_THREADS)
	router_many_kernel(const __grid_constant__ struct tile_args args, float *y)
{
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	float sums[4][4][4];

	tile_run<T, false>(&args, 0, sums);
#pragma unroll
	for (int i = 0; i < 64; i++) {
		const uint32_t row = blockIdx.y * TILE_ROWS + warp / 4 * 64 + i / 16 * 16 +
				     i % 4 / 2 * 8 + lane / 4;
		const uint32_t output = blockIdx.x * TILE_OUTPUTS + warp % 4 * 32 + i / 4 % 4 * 8 +
					lane % 4 * 2 + i % 2;

		if (row < args.n_rows && output < args.n_out)
			y[(size_t)row * args.n_out + output] = sums[i / 16][i / 4 % 4][i % 4];
	}
}

static int check(const struct mtk_router_cuda *r, struct mtk_error *error)
{
	if (r->dtype != MTK_DTYPE_BF16 && r->dtype != MTK_DTYPE_F16)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "router: dtype: expected bf16 or fp16");
	if (r->n_in == 0 || r->n_in % 8 != 0)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "router: n_in: %u is not a multiple of 8", r->n_in);
	if (((uintptr_t)r->x | (uintptr_t)r->w) % 16 != 0)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "router: x and w: expected an alignment of 16 bytes");
	return MOETRACE_OK;
}

template <class T>
static int launch_many(const struct mtk_router_cuda *r, cudaStream_t stream,
		       struct mtk_error *error)
{
	const dim3 grid((r->n_out + TILE_OUTPUTS - 1) / TILE_OUTPUTS,
			(r->n_rows + TILE_ROWS - 1) / TILE_ROWS);
	struct tile_args args = {};
	int status = mtk_cuda_fail(error,
				   cudaFuncSetAttribute(router_many_kernel<T>,
							cudaFuncAttributeMaxDynamicSharedMemorySize,
							TILE_SHARED_BYTES),
				   "shared memory for tiles");

	if (status)
		return status;
	if (grid.y > 65535)
		return mtk_error_set(error, MOETRACE_E_LIMIT,
				     "router: n_rows: %u are too many for a launch", r->n_rows);
	args.n_in = r->n_in;
	args.n_out = r->n_out;
	args.n_rows = r->n_rows;
	args.x = r->x;
	args.w = r->w;
	router_many_kernel<T><<<grid, TILE_THREADS, TILE_SHARED_BYTES, stream>>>(args, r->y);
	return MOETRACE_OK;
}

template <class T>
static int launch(const struct mtk_router_cuda *r, cudaStream_t stream, struct mtk_error *error)
{
	const dim3 n_blocks((r->n_out + 7) / 8, (r->n_rows + FEW_ROWS - 1) / FEW_ROWS);

	if (r->n_rows > MAX_FEW_ROWS)
		return launch_many<T>(r, stream, error);
	if (r->n_rows <= 16)
		router_few_kernel<T, 1><<<n_blocks, FEW_THREADS, 0, stream>>>(*r);
	else if (r->n_rows <= 32)
		router_few_kernel<T, 2><<<n_blocks, FEW_THREADS, 0, stream>>>(*r);
	else
		router_few_kernel<T, 4><<<n_blocks, FEW_THREADS, 0, stream>>>(*r);
	return MOETRACE_OK;
}

int mtk_router_cuda(const struct mtk_router_cuda *router, void *stream, struct mtk_error *error)
{
	int status = check(router, error);

	if (status || router->n_rows == 0 || router->n_out == 0)
		return status;
	if (router->dtype == MTK_DTYPE_BF16)
		status = launch<__nv_bfloat16>(router, (cudaStream_t)stream, error);
	else
		status = launch<__half>(router, (cudaStream_t)stream, error);
	if (!status)
		status = mtk_cuda_launched(error, "router");
	return status;
}
