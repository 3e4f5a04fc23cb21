/* SPDX-License-Identifier: MIT */
/*
 * Routing and recording in one kernel: the hook loads the lane's word before anything else, and
 * stores each entry as it is written. Made for the widths of usual models, 64 to 384 experts; other
 * settings are recorded by a launch of their own.
 */
#include <moetrace/cuda_device.cuh>

#include "kernels/route/route_kernel.cuh"
#include "kernels/route/route_record.cuh"

struct route_record_hook {
	struct moetrace_cuda_target target;
	uint32_t n_rows;
	struct moetrace_cuda_row to;

	/* The row as the kernels count them. */
	__device__ __forceinline__ void begin()
	{
		to = moetrace_cuda_open(target, blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
	}
	__device__ __forceinline__ void store(uint32_t, uint32_t slot, int32_t id,
					      float weight) const
	{
		if (moetrace_cuda_is_on(to))
			moetrace_cuda_put(
				moetrace_cuda_row_at(to), slot,
				moetrace_cuda_entry(to, id, moetrace_cuda_narrow(to, weight)));
	}
	__device__ __forceinline__ void finish(uint32_t row, uint8_t flags) const
	{
		const uint32_t nan = flags & MTK_ROUTE_FLAG_NAN ? MOETRACE_CUDA_FLAG_NAN : 0;

		if (!moetrace_cuda_is_on(to))
			return;
		if (row == 0)
			moetrace_cuda_store_head(to, n_rows);
		moetrace_cuda_put(moetrace_cuda_row_at(to), moetrace_cuda_k(to),
				  moetrace_cuda_mark(to, nan));
	}
};

template <int N>
static void launch(const struct route_args *args, size_t n_bytes,
		   const struct moetrace_cuda_target *target, cudaStream_t stream)
{
	const uint32_t n_warps = args->n_rows <= 1024 ? 1 : ROUTE_MAX_THREADS / 32;
	const uint32_t n_blocks = (args->n_rows + n_warps - 1) / n_warps;
	struct route_record_hook hook = {};

	hook.target = *target;
	hook.n_rows = args->n_rows;
	route_fast_kernel<N><<<n_blocks, 32 * n_warps, n_warps * n_bytes, stream>>>(*args, hook);
}

bool mtk_route_record_has(uint32_t width)
{
	return width == 2 || width == 4 || width == 8 || width == 12;
}

void mtk_route_record_launch(const struct route_args *args, uint32_t width, size_t shared_bytes,
			     const struct moetrace_cuda_target *target, cudaStream_t stream)
{
	if (width == 2)
		launch<2>(args, shared_bytes, target, stream);
	else if (width == 4)
		launch<4>(args, shared_bytes, target, stream);
	else if (width == 8)
		launch<8>(args, shared_bytes, target, stream);
	else
		launch<12>(args, shared_bytes, target, stream);
}
