/* SPDX-License-Identifier: MIT */
/*
 * The kernels that record: those that only choose, made for a hook that stores the row from the
 * registers in which it is. Other settings are recorded by a launch of their own, and all of them,
 * where margins are wanted, by the definition.
 */
#include <moetrace/cuda_device.cuh>

#include "kernels/cuda/status.cuh"
#include "kernels/route/route_kernel.cuh"
#include "kernels/route/route_lean_launch.cuh"
#include "kernels/route/route_variants.cuh"

struct route_record_hook {
	static constexpr bool HAS_HEAD = true;
	struct moetrace_cuda_target target;
	uint32_t n_rows;

	struct Row {
		struct moetrace_cuda_row to;

		__device__ __forceinline__ void open(const struct route_record_hook &hook,
						     uint32_t row, uint32_t)
		{
			to = moetrace_cuda_open(hook.target, row);
		}
		__device__ __forceinline__ void arrive()
		{
			moetrace_cuda_arrive(to);
		}
		__device__ __forceinline__ void store(int32_t id, float weight, uint8_t flags) const
		{
			moetrace_cuda_store_entries(to, id, weight,
						    flags & MTK_ROUTE_FLAG_NAN
							    ? MOETRACE_CUDA_FLAG_NAN
							    : 0);
		}
		__device__ __forceinline__ void store_margin(int32_t id, float weight,
							     uint8_t flags, float margin) const
		{
			const uint32_t known =
				MOETRACE_CUDA_FLAG_MARGIN |
				(flags & MTK_ROUTE_FLAG_NAN ? MOETRACE_CUDA_FLAG_NAN : 0) |
				(flags & MTK_ROUTE_FLAG_TIE ? MOETRACE_CUDA_FLAG_TIE : 0);

			moetrace_cuda_store_entries_margin(to, id, weight, known, margin);
		}
	};
	__device__ __forceinline__ void head() const
	{
		if (threadIdx.x == 0)
			moetrace_cuda_store_layer(target, n_rows);
	}
};

bool mtk_route_record_has(const struct route_args *args, uint32_t width)
{
	const struct mtk_route_config *config = &args->config;

	if (config->top_k + config->n_shared_slots > 31)
		return false;
	return width == 2 || width == 4 || width == 8 || width == 12 ||
	       (config->n_shared_slots == 0 && route_lean_has(args, width));
}

bool mtk_route_record_launch(const struct route_args *args, uint32_t width, size_t shared_bytes,
			     const struct moetrace_cuda_target *target, cudaStream_t stream)
{
	struct route_record_hook hook = {};

	hook.target = *target;
	hook.n_rows = args->n_rows;
	/* The lean ones do not hold what is in shared slots. */
	if (args->config.n_shared_slots == 0 &&
	    route_lean_launch(args, width, shared_bytes, hook, stream))
		return true;
	switch (width) {
	case 2:
		route_fast_launch<2>(args, shared_bytes, hook, stream);
		return true;
	case 4:
		route_fast_launch<4>(args, shared_bytes, hook, stream);
		return true;
	case 8:
		route_fast_launch<8>(args, shared_bytes, hook, stream);
		return true;
	case 12:
		route_fast_launch<12>(args, shared_bytes, hook, stream);
		return true;
	default:
		return false;
	}
}

int mtk_route_record_define(const struct route_args *args, const struct moetrace_cuda_target *target,
			    bool has_weights, cudaStream_t stream, struct mtk_error *error)
{
	const size_t n_bytes = (args->n + args->config.n_groups) * sizeof(double);
	struct route_record_hook hook = {};
	int status;

	hook.target = *target;
	hook.n_rows = args->n_rows;
	/* The definition's buffer can exceed what a block has without asking. */
	status = mtk_cuda_fail(error,
			       cudaFuncSetAttribute(route_define_kernel<struct route_record_hook>,
						    cudaFuncAttributeMaxDynamicSharedMemorySize,
						    (int)n_bytes),
			       "shared memory for routing");
	if (status)
		return status;
	route_define_kernel<<<route_blocks<struct route_record_hook>(args, 1), 32, n_bytes,
			      stream>>>(*args, hook, has_weights);
	return MOETRACE_OK;
}
