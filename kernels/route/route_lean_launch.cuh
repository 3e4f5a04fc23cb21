/* SPDX-License-Identifier: MIT */
/* The kernels of the common settings (route_lean.cuh), for the code that chooses among kernels. */
#ifndef MTK_ROUTE_ROUTE_LEAN_LAUNCH_CUH
#define MTK_ROUTE_ROUTE_LEAN_LAUNCH_CUH

#include "kernels/route/route_args.cuh"

/*
 * Launch the kernel for a setting whose lanes hold `width` columns, if there is one; args are
 * prepared. Returns false where there is none: then nothing was launched.
 */
bool mtk_route_lean_launch(const struct route_args *args, uint32_t width, size_t shared_bytes,
			   cudaStream_t stream);

#endif
