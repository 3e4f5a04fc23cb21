/* SPDX-License-Identifier: MIT */
/*
 * A batch of rows that is routed on the GPU and held against the definition in every respect:
 * plain, recorded, and with margins.
 */
#ifndef MTK_TESTS_ROUTE_BATCH_H
#define MTK_TESTS_ROUTE_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/route/route.h"
#include "tests/routing/support/settings.h"

/* A batch on the host and what the definition makes of it. */
struct route_batch {
	struct mtk_route_config config;
	uint32_t n_rows;
	uint32_t n_valid;
	float *logits;
	float *bias;
	int32_t *token_ids;
	bool is_askew; /* its logits on the device are not aligned to vectors */
	struct mtk_route_result want;
};

/* Rows that were compared: all, those of settings with a fast path, the recorded, with margins. */
extern struct route_rows {
	uint64_t n_checked, n_fast, n_recorded, n_told;
} route_rows;

/* Of at most @n_rows rows, all valid; hard ones are such as random_logits() draws. */
struct route_batch route_batch_make(struct random *random, const struct mtk_route_config *config,
				    uint32_t n_rows, bool is_hard);
void route_batch_release(struct route_batch *batch);

/* Batches that are made from here on have so many rows at most. */
void route_batch_limit(uint32_t n_rows);

/* How many numbers batch->bias has. */
size_t route_batch_biases(const struct route_batch *batch);

/* Route on the GPU, by graph if asked to, and compare; ends the program at the first difference. */
void route_batch_check(struct route_batch *batch, bool by_graph);

#endif
