/* SPDX-License-Identifier: MIT */
/*
 * Rows routed on one level of instructions, with everything that a router can put out.
 */
#ifndef TEST_ROUTED_H
#define TEST_ROUTED_H

#include <stdint.h>

#include "kernels/route/route.h"

enum { ROUTED_MAX_ROWS = 64, ROUTED_MAX_ENTRIES = ROUTED_MAX_ROWS * MTK_ROUTE_MAX_WIDTH };

struct routed {
	int32_t ids[ROUTED_MAX_ENTRIES];
	float weights[ROUTED_MAX_ENTRIES];
	uint32_t packed[ROUTED_MAX_ENTRIES];
	uint8_t flags[ROUTED_MAX_ROWS];
	float margins[ROUTED_MAX_ROWS];
};

/* Where a router is to put it. */
struct mtk_route_result routed_result(struct routed *routed);

/* To be freed. */
void *routed_scratch(const struct mtk_route_config *config);

void routed_assert_valid(const struct mtk_route_config *config);

/* Route the rows on an enum mtk_cpu_level; the result stays until the next call. */
struct routed *routed_run(int level, const struct mtk_route_config *config, uint32_t n_rows,
			  const float *logits, const float *bias);

/* The first ids are these. */
void routed_assert_ids(const struct routed *routed, uint32_t n, const int32_t *ids);

#endif
