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

/* Whether the block is that of the hook's head, which is done then. */
template <class Hook> static __device__ __forceinline__ bool route_is_head(const Hook &hook)
{
	const bool is_head = Hook::HAS_HEAD && blockIdx.x == gridDim.x - 1;

	if (is_head)
		hook.head();
	return is_head;
}

/* Blocks for a kernel with n_warps rows each. */
template <class Hook> static uint32_t route_blocks(const struct route_args *args, uint32_t n_warps)
{
	return (args->n_rows + n_warps - 1) / n_warps + (Hook::HAS_HEAD ? 1 : 0);
}

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
template <int N, class Row>
static __device__ __forceinline__ void
route_do_columns(const struct route_args *args, uint32_t row, const float *logits,
		 const float *all_bias, float *x, const float *bias, const Row &to)
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
	route_write_row(args, row, lane, entry, flags, to);
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
	route_do_columns<N>(args, row, one.logits, one.bias, x, bias,
			    route_hook_row(hook, row, lane));
}

/* N columns a lane. */
template <int N, class Hook>
__global__ void __launch_bounds__(ROUTE_MAX_THREADS, N <= 16 ? 8 : 5)
	route_fast_kernel(const __grid_constant__ struct route_args args,
			  const __grid_constant__ Hook hook)
{
	const uint32_t lane = threadIdx.x % 32;
	const uint32_t row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
	float x[N], bias[N];
	const size_t offset = (size_t)row * args.n;
	const float *logits = args.logits + offset;
	const float *all_bias = args.bias + (args.config.bias_per_token ? offset : 0);
	uint32_t n_valid = args.n_rows;
	typename Hook::Row to;

	if (route_is_head(hook) || row >= args.n_rows)
		return;
	if (args.n_valid_rows)
		n_valid = __ldg(args.n_valid_rows);
	route_load<N>(&args, logits, lane, x);
	route_load_bias<N>(&args, all_bias, lane, bias);
	to.open(hook, row, lane);
	to.arrive();
	if (ROUTE_UNLIKELY(row >= n_valid)) {
		route_write_empty_row(&args, row, lane, 0, to);
		return;
	}
	route_do_columns<N>(&args, row, logits, args.bias ? all_bias : NULL, x, bias, to);
}

/* The general kernel's launch; args are prepared. */
template <int N, class Hook>
static void route_fast_launch(const struct route_args *args, size_t n_bytes, const Hook &hook,
			      cudaStream_t stream)
{
	/* Few rows are spread over all multiprocessors, many share blocks. */
	const uint32_t n_warps = args->n_rows <= 1024 ? 1 : ROUTE_MAX_THREADS / 32;

	route_fast_kernel<N><<<route_blocks<Hook>(args, n_warps), 32 * n_warps, n_warps * n_bytes,
			       stream>>>(*args, hook);
}

/* What a hook stores of a row whose margin is known. */
template <class Row> struct route_margin_row {
	const Row &to;
	float margin;

	__device__ __forceinline__ void store(int32_t id, float weight, uint8_t flags) const
	{
		to.store_margin(id, weight, flags, margin);
	}
};

/* The end of a row, or of one that selects nothing, with its margin. */
template <class Row>
static __device__ __forceinline__ void
route_write_defined(const struct route_args *args, uint32_t row, const struct route_entry *entry,
		    uint8_t flags, float margin, const Row &to)
{
	const struct route_margin_row<Row> with_margin = {to, margin};
	const uint32_t lane = threadIdx.x;

	if (args->result.margins && lane == 0)
		args->result.margins[row] = margin;
	if (entry)
		route_write_row(args, row, lane, *entry, flags, with_margin);
	else
		route_write_empty_row(args, row, lane, flags, with_margin);
}

static __device__ __forceinline__ float route_given_weight(const struct route_args *args,
							    uint32_t row, uint32_t slot)
{
	const size_t width = args->config.top_k + args->config.n_shared_slots;

	return args->result.weights[row * width + slot];
}

/*
 * Any setting, by the definition, margins included; a warp a block. @has_weights: in the result, by
 * the fast path, whose weights stay. It is no part of the arguments, which all kernels carry.
 */
template <class Hook>
static __global__ void __launch_bounds__(32)
	route_define_kernel(const __grid_constant__ struct route_args args,
			    const __grid_constant__ Hook hook, bool has_weights)
{
	extern __shared__ double buffers[];
	const uint32_t row = blockIdx.x;
	const struct route_row one = route_row_of(&args, row);
	float margin = INFINITY;
	struct route_entry entry;
	uint8_t flags;

	if (route_is_head(hook))
		return;
	const typename Hook::Row to = route_hook_row(hook, row, threadIdx.x);
	if (args.n_valid_rows && row >= *args.n_valid_rows) {
		route_write_defined(&args, row, NULL, 0, margin, to);
		return;
	}
	if (!args.config.hash_table) {
		entry = define_row(&one, buffers, buffers + args.n, &flags);
		if (Hook::HAS_HEAD || args.result.margins)
			margin = define_margin(&one, buffers, entry.id);
		if (has_weights && threadIdx.x < args.config.top_k)
			entry.weight = route_given_weight(&args, row, threadIdx.x);
	} else {
		const int32_t token = args.token_ids[row];

		if (token < 0 || (uint32_t)token >= args.config.n_hash_tokens) {
			route_write_defined(&args, row, NULL, MTK_ROUTE_FLAG_TOKEN, margin, to);
			return;
		}
		entry = define_hash_row(&one, token, &flags);
	}
	route_write_defined(&args, row, &entry, flags, margin, to);
}

#endif
