/* SPDX-License-Identifier: MIT */
/* The routing kernels that record what they choose, for the code that chooses among kernels. */
#ifndef MTK_ROUTE_ROUTE_RECORD_CUH
#define MTK_ROUTE_ROUTE_RECORD_CUH

#include <moetrace/cuda.h>

#include "kernels/route/route_args.cuh"

/* Whether there is such a kernel for lanes of that many columns. */
bool mtk_route_record_has(uint32_t width);

/* Launch it; args are prepared. */
void mtk_route_record_launch(const struct route_args *args, uint32_t width, size_t shared_bytes,
			     const struct moetrace_cuda_target *target, cudaStream_t stream);

#endif
