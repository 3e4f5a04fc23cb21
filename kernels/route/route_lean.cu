/* SPDX-License-Identifier: MIT */
/* The lean kernels as they are without a hook. */
#include "kernels/route/route_lean_launch.cuh"
#include "kernels/route/route_variants.cuh"

bool mtk_route_lean_launch(const struct route_args *args, uint32_t width, size_t shared_bytes,
			   cudaStream_t stream)
{
	return route_lean_launch(args, width, shared_bytes, route_no_hook(), stream);
}
