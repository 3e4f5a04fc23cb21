/* SPDX-License-Identifier: MIT */
/*
 * Routing on a GPU: every setting of kernels/route/route.h, a warp a row. Ids and flags are those
 * of the definition; weights are within 1e-6 of it, relative to those above 1. Rows whose choice
 * fp32 cannot decide are decided in double precision, as are all rows of the settings that the
 * fast path does not know, with device functions that repeat the definition; the only difference
 * left is the last bit of the GPU's exponential in double precision, which can part or join two
 * scores that are equal to 15 digits.
 */
#ifndef MTK_ROUTE_ROUTE_CUDA_H
#define MTK_ROUTE_ROUTE_CUDA_H

#include "kernels/engine/error.h"
#include "kernels/route/route.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All pointers are to device memory. */
struct moetrace_cuda_target;

struct mtk_route_cuda_batch {
	uint32_t n_rows;
	const uint32_t *n_valid_rows; /* rows from there on are padding; NULL: there is none */
	const float *logits;	      /* as struct mtk_route_batch has them */
	const float *bias;
	const int32_t *token_ids;
	const int32_t *hash_table; /* of a setting that has one: its copy */
	/* In host memory, copied: where the rows are recorded as they are chosen, of a setting that
	   mtk_route_cuda_records() is true for; NULL: nowhere. */
	const struct moetrace_cuda_target *target;
	/* They are recorded with margins and flags of ties, of a setting that
	   mtk_route_cuda_records_margins() is true for. */
	bool with_margins;
};

/* Whether the kernel that serves a setting can record what it chooses. */
bool mtk_route_cuda_records(const struct mtk_route_config *config);

/* Whether it can be recorded with margins. */
bool mtk_route_cuda_records_margins(const struct mtk_route_config *config);

/*
 * Route a batch by a setting that was checked. Launches one kernel into the stream, does not wait,
 * and may be captured in a graph. The pointers of @result are to device memory. For margins, with
 * @result or with the batch's target, the definition routes every row once more behind it; ids and
 * weights stay as they are without.
 *
 * Returns MOETRACE_OK, or what the launch failed with.
 */
int mtk_route_cuda(const struct mtk_route_config *config, const struct mtk_route_cuda_batch *batch,
		   const struct mtk_route_result *result, void *stream, struct mtk_error *error);

/*
 * Columns that a lane of the fast path holds for a setting; 0: the definition routes every row.
 * ret_reason is a static text.
 */
uint32_t mtk_route_cuda_lane_columns(const struct mtk_route_config *config,
				     const char **ret_reason);

#ifdef __cplusplus
}
#endif

#endif
