/* SPDX-License-Identifier: MIT */
/* Reproducible draws and checked memory for these tests. */
#ifndef MTK_TESTS_MOE_OPS_DRAW_H
#define MTK_TESTS_MOE_OPS_DRAW_H

#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/sample/sample.h"

/* What memory that nobody filled is taken to hold: a positive id, far too large. */
#define POISON_ID 0x7fffffff

static inline uint32_t draw_below(struct mtk_rng *rng, uint32_t n)
{
	return (uint32_t)(mtk_rng_next(rng) * n);
}

static inline float draw_float(struct mtk_rng *rng)
{
	return (float)(2.0 * mtk_rng_next(rng) - 1.0);
}

/* Memory of exactly n elements, filled with 0x7f bytes. */
static inline void *take(size_t n, size_t size)
{
	void *memory = malloc(n ? n * size : 1);

	ck_assert_ptr_nonnull(memory);
	memset(memory, 0x7f, n * size);
	return memory;
}

/* An id of n_ids; bad ones, negative, just too large or poison, one time in ten where allowed. */
static inline int32_t draw_id(struct mtk_rng *rng, uint32_t n_ids, int allow_bad)
{
	const int32_t bad[] = {-1, (int32_t)n_ids, POISON_ID, INT32_MIN, -2};

	if (n_ids == 0 || (allow_bad && draw_below(rng, 10) == 0))
		return bad[draw_below(rng, 5)];
	return (int32_t)draw_below(rng, n_ids);
}

#endif
