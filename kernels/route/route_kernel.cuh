/* SPDX-License-Identifier: MIT */
/*
 * The routing kernels: a warp a row, several warps a block, each with a buffer for the definition,
 * which few rows need. Made for a hook (route_args.cuh), so that what records a row does so in the
 * kernel that chose it.
 */
#ifndef MTK_ROUTE_ROUTE_KERNEL_CUH
#define MTK_ROUTE_ROUTE_KERNEL_CUH

#include "kernels/route/route_args.cuh"
#include "kernels/route/route_define.cuh"
#include "kernels/route/route_fast.cuh"

#define ROUTE_MAX_THREADS 128

static __device__ __forceinline__ struct route_row route_row_of(const struct route_args *args,
								uint32_t row)
{
	const bool has_bias = args->config.bias != MTK_ROUTE_BIAS_NONE;
	const size_t offset = (size_t)row * args->n;

	return {args, args->logits + offset,
		has_bias ? args->bias + (args->config.bias_per_token ? offset : 0) : NULL};
}

struct route_defined {
	struct route_entry entry;
	uint8_t flags;
};

/* The definition, in the warp's own part of the block's memory. */
static __device__ __noinline__ struct route_defined route_define(const struct route_args *args,
								 uint32_t row)
{
	extern __shared__ double buffers[];
	const struct route_row one = route_row_of(args, row);
	double *buffer = buffers + (size_t)(threadIdx.x / 32) * (args->n + args->config.n_groups);
	struct route_defined defined;

	defined.entry = define_row(&one, buffer, buffer + args->n, &defined.flags);
	return defined;
}

/* Choose, weigh and write a row whose columns are there. */
template <int N, class Hook>
static __device__ __forceinline__ void
route_do_columns(const struct route_args *args, uint32_t row, const float *logits,
		 const float *all_bias, float *x, const float *bias, const Hook &hook)
{
	const uint32_t lane = threadIdx.x % 32;
	struct route_entry entry;
	uint8_t flags;

	if (ROUTE_UNLIKELY(
		    !route_row_fast<N>(args, logits, all_bias, lane, x, bias, &entry, &flags))) {
		const struct route_defined defined = route_define(args, row);

		entry = defined.entry;
		flags = defined.flags;
	}
	route_write_row(args, row, lane, entry, flags, hook);
}

template <int N>
static __device__ __forceinline__ void route_load_bias(const struct route_args *args,
						       const float *all_bias, uint32_t lane,
						       float *ret_bias)
{
	if (ROUTE_LIKELY(args->bias != NULL))
		route_load<N>(args, all_bias, lane, ret_bias);
	else
#pragma unroll
		for (int i = 0; i < N; i++)
			ret_bias[i] = 0.0f;
}

/* One row of a kernel that could not do it itself. */
template <int N, class Hook>
static __device__ __noinline__ void route_do_row(const struct route_args *args, uint32_t row,
						 const Hook &hook)
{
	const struct route_row one = route_row_of(args, row);
	const uint32_t lane = threadIdx.x % 32;
	float x[N], bias[N];

	route_load<N>(args, one.logits, lane, x);
	route_load_bias<N>(args, one.bias, lane, bias);
	route_do_columns<N>(args, row, one.logits, one.bias, x, bias, hook);
}

/* N columns a lane. */
template <int N, class Hook>
__global__ void __launch_bounds__(ROUTE_MAX_THREADS, N <= 16 ? 8 : 5)
	route_fast_kernel(const __grid_constant__ struct route_args args, Hook hook)
{
	const uint32_t lane = threadIdx.x % 32;
	const uint32_t row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
	float x[N], bias[N];
	const size_t offset = (size_t)row * args.n;
	const float *logits = args.logits + offset;
	const float *all_bias = args.bias + (args.config.bias_per_token ? offset : 0);
	uint32_t n_valid = args.n_rows;

	hook.begin();
	if (row >= args.n_rows)
		return;
	if (args.n_valid_rows)
		n_valid = __ldg(args.n_valid_rows);
	route_load<N>(&args, logits, lane, x);
	route_load_bias<N>(&args, all_bias, lane, bias);
	if (ROUTE_UNLIKELY(row >= n_valid)) {
		route_write_empty_row(&args, row, lane, 0, hook);
		return;
	}
	route_do_columns<N>(&args, row, logits, args.bias ? all_bias : NULL, x, bias, hook);
}

/* Any setting, by the definition; a warp a block. */
template <class Hook>
__global__ void __launch_bounds__(32)
	route_define_kernel(const __grid_constant__ struct route_args args, Hook hook)
{
	extern __shared__ double buffer[];
	const uint32_t lane = threadIdx.x;
	const uint32_t row = blockIdx.x;
	const struct route_row one = route_row_of(&args, row);
	struct route_entry entry;
	uint8_t flags;

	hook.begin();
	if (args.n_valid_rows && row >= *args.n_valid_rows) {
		route_write_empty_row(&args, row, lane, 0, hook);
		return;
	}
	if (!args.config.hash_table) {
		entry = define_row(&one, buffer, buffer + args.n, &flags);
	} else {
		const int32_t token = args.token_ids[row];

		if (token < 0 || (uint32_t)token >= args.config.n_hash_tokens) {
			route_write_empty_row(&args, row, lane, MTK_ROUTE_FLAG_TOKEN, hook);
			return;
		}
		entry = define_hash_row(&one, token, &flags);
	}
	route_write_row(&args, row, lane, entry, flags, hook);
}

#endif
