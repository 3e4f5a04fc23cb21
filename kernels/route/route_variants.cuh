/* SPDX-License-Identifier: MIT */
/*
 * Launches that lie in objects of their own, for the code that chooses among kernels; args are
 * prepared, `width` is the columns of a lane.
 */
#ifndef MTK_ROUTE_ROUTE_VARIANTS_CUH
#define MTK_ROUTE_ROUTE_VARIANTS_CUH

#include <moetrace/cuda.h>

#include "kernels/engine/error.h"
#include "kernels/route/route_args.cuh"

/*
 * The kernel of a common setting, if there is one. Returns false where there is none: then nothing
 * was launched.
 */
bool mtk_route_lean_launch(const struct route_args *args, uint32_t width, size_t shared_bytes,
			   cudaStream_t stream);

/* Whether rows of a setting can be recorded by the kernel that chooses. */
bool mtk_route_record_has(const struct route_args *args, uint32_t width);

/*
 * The kernels that record what they choose, of settings that have one. Returns false where these rows
 * have none: then nothing was launched.
 */
bool mtk_route_record_launch(const struct route_args *args, uint32_t width, size_t shared_bytes,
			     const struct moetrace_cuda_target *target, cudaStream_t stream);

/*
 * Any of up to 31 entries, by the definition, with margins; weights that the result has already stay.
 * MOETRACE_OK or why it cannot start.
 */
int mtk_route_record_define(const struct route_args *args, const struct moetrace_cuda_target *target,
			    bool has_weights, cudaStream_t stream, struct mtk_error *error);

#endif
