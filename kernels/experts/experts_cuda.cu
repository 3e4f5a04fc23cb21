/* SPDX-License-Identifier: MIT */
/*
 * Streaming: a block has 16 rows of weights (eight gates and the eight ups that belong to them, or
 * 16 outputs of down) of one expert and all its rows of the batch, up to 64; four warps share the
 * inputs. So a weight is read once, 16 bytes a lane, and many small blocks keep the memory busy to
 * the end. Weights are the product's first operand, rows of the batch its second, so that eight
 * rows cost no more than one. Sums are added in the order of the warps.
 */
#include "kernels/cuda/status.cuh"
#include "kernels/experts/experts_cuda.h"
#include "kernels/gemm/tiles.cuh"

#define N_THREADS 128
#define N_WARPS	  (N_THREADS / 32)

static __device__ __forceinline__ float activate(const struct mtk_swiglu_clamp *clamp, float gate,
						 float up)
{
	gate = gate > clamp->limit ? clamp->limit : gate;
	up = up > clamp->limit ? clamp->limit : up;
	up = up < -clamp->limit ? -clamp->limit : up;
	return gate / (1.0f + expf(-clamp->alpha * gate)) * (up + clamp->offset);
}

/* The element of the middle that a gate and an up make; weights on the input are linear in both. */
static __device__ __forceinline__ float middle_of(const struct mtk_experts_cuda *e, int32_t expert,
						  int64_t pair, uint32_t output, float gate,
						  float up)
{
	const size_t first = (size_t)expert * 2 * e->n_intermediate;

	if (e->weighting == MTK_WEIGHT_ON_INPUT) {
		gate *= e->weights[pair];
		up *= e->weights[pair];
	}
	if (e->gate_up_bias) {
		gate += e->gate_up_bias[first + output];
		up += e->gate_up_bias[first + e->n_intermediate + output];
	}
	return activate(&e->clamp, gate, up);
}

static __device__ __forceinline__ float out_of(const struct mtk_experts_cuda *e, int32_t expert,
					       int64_t pair, uint32_t output, float sum)
{
	if (e->down_bias)
		sum += e->down_bias[(size_t)expert * e->n_hidden + output];
	return e->weighting == MTK_WEIGHT_ON_OUTPUT ? sum * e->weights[pair] : sum;
}

/*
 * The sums of 16 rows of weights, low and high of which are the lane's two, and of 8 * N rows of
 * the batch. n_used groups of eight hold any.
 */
template <class T, int N>
static __device__ __forceinline__ void stream(uint32_t n_in, const T *low, const T *high,
					      bool is_low, bool is_high, const T *const *rows,
					      uint32_t n_used, float sums[N][4])
{
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t t = lane % 4;

#pragma unroll 4
	for (uint32_t first = warp * 32; first < n_in; first += N_WARPS * 32) {
		const uint32_t k = first + t * 8;
		const bool is_there = k < n_in;
		const uint4 a = mma_load_stream(low + k, is_there && is_low);
		const uint4 b = mma_load_stream(high + k, is_there && is_high);

#pragma unroll
		for (int j = 0; j < N; j++)
			if (N == 1 || j < n_used)
				mma_stream<T>(sums[j], a, b,
					      mma_load(rows[j] + k, is_there && rows[j]));
	}
}

/* Every warp's sums, one after another; [warp][group * 4 + register][lane]. */
template <int N> struct parts {
	float values[N_WARPS][N * 4][32];
};

template <int N>
static __device__ __forceinline__ void share(struct parts<N> *parts, float sums[N][4])
{
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;

#pragma unroll
	for (int i = 0; i < N * 4; i++)
		parts->values[warp][i][lane] = sums[i / 4][i % 4];
	__syncthreads();
}

template <int N>
static __device__ __forceinline__ float add_parts(const struct parts<N> *parts, uint32_t i,
						  uint32_t lane)
{
	float sum = 0.0f;

#pragma unroll
	for (int warp = 0; warp < N_WARPS; warp++)
		sum += parts->values[warp][i][lane];
	return sum;
}

/* Groups of eight rows of the block that hold any. */
template <int N>
static __device__ __forceinline__ uint32_t count_used(const int64_t *pairs, int64_t n_pairs)
{
	uint32_t n_used = 1;

#pragma unroll
	for (int j = 1; j < N; j++)
		n_used += pairs[j * 8] < n_pairs;
	return n_used;
}

template <class T, int N>
__global__ void __launch_bounds__(N_THREADS)
	stream_gate_up_kernel(const __grid_constant__ struct mtk_experts_cuda e)
{
	__shared__ struct parts<N> parts;
	const int32_t expert = e.expert_ids[blockIdx.y];
	const int64_t first = (int64_t)blockIdx.y * 8 * N;
	const int64_t *pairs = e.sorted_pairs + first;
	const uint32_t g = threadIdx.x % 32 / 4;
	const uint32_t output = blockIdx.x * 8;
	const T *rows[N];
	float sums[N][4] = {};
	uint32_t n_used;

	if (expert < 0)
		return;
	n_used = count_used<N>(pairs, e.n_pairs);
#pragma unroll
	for (int j = 0; j < N; j++) {
		const int64_t pair = pairs[j * 8 + g];

		rows[j] = pair < e.n_pairs ? (const T *)e.x + pair / e.top_k * (size_t)e.n_hidden
					   : NULL;
	}
	const T *gate = (const T *)e.gate_up +
			((size_t)expert * 2 * e.n_intermediate + output + g) * e.n_hidden;

	stream<T, N>(e.n_hidden, gate, gate + (size_t)e.n_intermediate * e.n_hidden, true, true,
		     rows, n_used, sums);
	share<N>(&parts, sums);
	for (uint32_t i = threadIdx.x; i < n_used * 64; i += N_THREADS) {
		const uint32_t j = i / 64, lane = i % 32, side = i / 32 % 2;
		const uint32_t row = j * 8 + lane % 4 * 2 + side;
		const uint32_t at = output + lane / 4;
		const int64_t pair = pairs[row];

		if (pair < e.n_pairs)
			((T *)e.middle)[(first + row) * (size_t)e.n_intermediate + at] =
				mma_type<T>::narrow(
					middle_of(&e, expert, pair, at,
						  add_parts<N>(&parts, j * 4 + side, lane),
						  add_parts<N>(&parts, j * 4 + 2 + side, lane)));
	}
}

template <class T, int N>
__global__ void __launch_bounds__(N_THREADS)
	stream_down_kernel(const __grid_constant__ struct mtk_experts_cuda e)
{
	__shared__ struct parts<N> parts;
	const int32_t expert = e.expert_ids[blockIdx.y];
	const int64_t first = (int64_t)blockIdx.y * 8 * N;
	const int64_t *pairs = e.sorted_pairs + first;
	const uint32_t g = threadIdx.x % 32 / 4;
	const uint32_t output = blockIdx.x * 16;
	const T *rows[N];
	float sums[N][4] = {};
	uint32_t n_used;

	if (expert < 0)
		return;
	n_used = count_used<N>(pairs, e.n_pairs);
#pragma unroll
	for (int j = 0; j < N; j++)
		rows[j] = pairs[j * 8 + g] < e.n_pairs
				  ? (const T *)e.middle +
					    (first + j * 8 + g) * (size_t)e.n_intermediate
				  : NULL;
	const T *low =
		(const T *)e.down + ((size_t)expert * e.n_hidden + output + g) * e.n_intermediate;

	stream<T, N>(e.n_intermediate, low, low + (size_t)8 * e.n_intermediate, true,
		     output + 8 < e.n_hidden, rows, n_used, sums);
	share<N>(&parts, sums);
	for (uint32_t i = threadIdx.x; i < n_used * 128; i += N_THREADS) {
		const uint32_t part = i / 32, lane = i % 32;
		const uint32_t row = part / 4 * 8 + lane % 4 * 2 + part % 2;
		const uint32_t at = output + part % 4 / 2 * 8 + lane / 4;
		const int64_t pair = pairs[row];

		if (pair < e.n_pairs && at < e.n_hidden)
			e.out[(first + row) * (size_t)e.n_hidden + at] =
				out_of(&e, expert, pair, at, add_parts<N>(&parts, part, lane));
	}
}

template <class T>
__global__ void __launch_bounds__(TILE_THREADS)
	tile_gate_up_kernel(const __grid_constant__ struct mtk_experts_cuda e,
			    const __grid_constant__ struct tile_args args)
{
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int32_t expert = e.expert_ids[blockIdx.y];
	float sums[4][4][4];

	if (expert < 0)
		return;
	tile_run<T, true>(&args, expert, sums);
#pragma unroll
	for (int i = 0; i < 32; i++) {
		const int row_part = i / 8, column_part = i / 4 % 2, r = i % 4;
		const int64_t slot = (int64_t)blockIdx.y * TILE_ROWS + warp / 4 * 64 +
				     row_part * 16 + r / 2 * 8 + lane / 4;
		const uint32_t output = blockIdx.x * (TILE_OUTPUTS / 2) + warp % 4 * 16 +
					column_part * 8 + lane % 4 * 2 + r % 2;
		const int64_t pair = e.sorted_pairs[slot];

		if (pair < e.n_pairs && output < e.n_intermediate)
			((T *)e.middle)[slot * (size_t)e.n_intermediate + output] =
				mma_type<T>::narrow(middle_of(&e, expert, pair, output,
							      sums[row_part][column_part][r],
							      sums[row_part][column_part + 2][r]));
	}
}

template <class T>
__global__ void __launch_bounds__(TILE_THREADS)
	tile_down_kernel(const __grid_constant__ struct mtk_experts_cuda e,
			 const __grid_constant__ struct tile_args args)
{
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int32_t expert = e.expert_ids[blockIdx.y];
	float sums[4][4][4];

	if (expert < 0)
		return;
	tile_run<T, false>(&args, expert, sums);
#pragma unroll
	for (int i = 0; i < 64; i++) {
		const int64_t slot = (int64_t)blockIdx.y * TILE_ROWS + warp / 4 * 64 + i / 16 * 16 +
				     i % 4 / 2 * 8 + lane / 4;
		const uint32_t output = blockIdx.x * TILE_OUTPUTS + warp % 4 * 32 + i / 4 % 4 * 8 +
					lane % 4 * 2 + i % 2;
		const int64_t pair = e.sorted_pairs[slot];

		if (pair < e.n_pairs && output < e.n_hidden)
			e.out[slot * (size_t)e.n_hidden + output] =
				out_of(&e, expert, pair, output, sums[i / 16][i / 4 % 4][i % 4]);
	}
}

static int check(const struct mtk_experts_cuda *e, struct mtk_error *error)
{
	const uintptr_t pointers =
		(uintptr_t)e->gate_up | (uintptr_t)e->down | (uintptr_t)e->x | (uintptr_t)e->middle;
	const uint32_t rows = e->block_rows;

	if (e->dtype != MTK_DTYPE_BF16 && e->dtype != MTK_DTYPE_F16)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "experts: dtype: expected bf16 or fp16");
	if (e->n_hidden == 0 || e->n_hidden % 8 != 0 || e->n_intermediate == 0 ||
	    e->n_intermediate % 8 != 0 || e->n_intermediate > INT32_MAX / 2)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "experts: n_hidden, n_intermediate: %u, %u are no multiples "
				     "of 8",
				     e->n_hidden, e->n_intermediate);
	if (rows < 8 || rows > 128 || (rows & (rows - 1)) != 0)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "experts: block_rows: %u, expected 8, 16, 32, 64 or 128",
				     rows);
	if (e->top_k == 0 || pointers % 16 != 0)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "experts: expected a top_k and arrays aligned to 16 bytes");
	if (e->n_blocks > 65535)
		return mtk_error_set(error, MOETRACE_E_LIMIT,
				     "experts: n_blocks: %lld are too many for a launch: give "
				     "larger blocks",
				     (long long)e->n_blocks);
	return MOETRACE_OK;
}

template <class T, int N>
static void launch_stream(const struct mtk_experts_cuda *e, cudaStream_t on)
{
	const uint32_t n_blocks = (uint32_t)e->n_blocks;

	stream_gate_up_kernel<T, N>
		<<<dim3(e->n_intermediate / 8, n_blocks), N_THREADS, 0, on>>>(*e);
	stream_down_kernel<T, N><<<dim3((e->n_hidden + 15) / 16, n_blocks), N_THREADS, 0, on>>>(*e);
}

template <class T>
static int launch_tiles(const struct mtk_experts_cuda *e, cudaStream_t on, struct mtk_error *error)
{
	const uint32_t n_blocks = (uint32_t)e->n_blocks;
	const uint32_t half = TILE_OUTPUTS / 2;
	struct tile_args up = {}, down;
	int status = mtk_cuda_fail(error,
				   cudaFuncSetAttribute(tile_gate_up_kernel<T>,
							cudaFuncAttributeMaxDynamicSharedMemorySize,
							TILE_SHARED_BYTES),
				   "shared memory for tiles");

	if (!status)
		status = mtk_cuda_fail(
			error,
			cudaFuncSetAttribute(tile_down_kernel<T>,
					     cudaFuncAttributeMaxDynamicSharedMemorySize,
					     TILE_SHARED_BYTES),
			"shared memory for tiles");
	if (status)
		return status;
	up.n_in = e->n_hidden;
	up.n_out = e->n_intermediate;
	up.top_k = e->top_k;
	up.n_pairs = e->n_pairs;
	up.pairs = e->sorted_pairs;
	up.x = e->x;
	up.w = e->gate_up;
	up.expert_elements = (size_t)2 * e->n_intermediate * e->n_hidden;
	down = up;
	down.n_in = e->n_intermediate;
	down.n_out = e->n_hidden;
	down.top_k = 0;
	down.x = e->middle;
	down.w = e->down;
	down.expert_elements = (size_t)e->n_intermediate * e->n_hidden;
	tile_gate_up_kernel<T><<<dim3((e->n_intermediate + half - 1) / half, n_blocks),
				 TILE_THREADS, TILE_SHARED_BYTES, on>>>(*e, up);
	tile_down_kernel<T><<<dim3((e->n_hidden + TILE_OUTPUTS - 1) / TILE_OUTPUTS, n_blocks),
			      TILE_THREADS, TILE_SHARED_BYTES, on>>>(*e, down);
	return MOETRACE_OK;
}

template <class T>
static int launch(const struct mtk_experts_cuda *e, cudaStream_t on, struct mtk_error *error)
{
	switch (e->block_rows) {
	case 8:
		launch_stream<T, 1>(e, on);
		break;
	case 16:
		launch_stream<T, 2>(e, on);
		break;
	case 32:
		launch_stream<T, 4>(e, on);
		break;
	case 64:
		launch_stream<T, 8>(e, on);
		break;
	default:
		return launch_tiles<T>(e, on, error);
	}
	return MOETRACE_OK;
}

int mtk_experts_cuda(const struct mtk_experts_cuda *experts, void *stream, struct mtk_error *error)
{
	int status = check(experts, error);

	if (status || experts->n_blocks == 0)
		return status;
	if (experts->dtype == MTK_DTYPE_BF16)
		status = launch<__nv_bfloat16>(experts, (cudaStream_t)stream, error);
	else
		status = launch<__half>(experts, (cudaStream_t)stream, error);
	if (!status)
		status = mtk_cuda_launched(error, "experts");
	return status;
}
