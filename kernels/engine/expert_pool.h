/* SPDX-License-Identifier: MIT */
/*
 * Synthetic weights: bf16 numbers of no meaning, spread like those of a fresh model, the same for
 * the same seed everywhere. And a pool of them that matrices of any size alias: the pool's memory
 * is mapped over and over behind itself, so that a matrix is a window into it, larger than the
 * pool where need be, at an offset of its own.
 */
#ifndef MTK_ENGINE_EXPERT_POOL_H
#define MTK_ENGINE_EXPERT_POOL_H

#include <stddef.h>
#include <stdint.h>

/*
 * Write n numbers, a multiple of 4, whose exponents are the four up to top_exponent; their root
 * mean square is about 0.88 * 2^top_exponent.
 */
void mtk_synthetic_fill(uint64_t seed, size_t n, int top_exponent, uint16_t *ret_values);

/* A well mixed number of two. */
uint64_t mtk_synthetic_hash(uint64_t seed, uint64_t number);

#define MTK_EXPERT_POOL_MIN_BYTES ((size_t)1 << 16)

struct mtk_expert_pool;

/**
 * Make a pool of at most n_bytes, an odd number of pages of them: no power of two divides it, so
 * the columns of a matrix do not repeat. Windows have up to max_window_bytes.
 *
 * Returns  MOETRACE_OK, MOETRACE_E_INVALID (below the minimum, or too large), MOETRACE_E_NOMEM.
 * Owner    caller; release with mtk_expert_pool_destroy().
 */
int mtk_expert_pool_create(size_t n_bytes, size_t max_window_bytes, uint64_t seed, int top_exponent,
			   struct mtk_expert_pool **ret_pool);

/* NULL is allowed. */
void mtk_expert_pool_destroy(struct mtk_expert_pool *pool);

/* What a pool made of n_bytes takes; 0 where it cannot be made. */
size_t mtk_expert_pool_size(size_t n_bytes);

/* The window that a number chooses: at a cache line, with max_window_bytes behind it. */
void *mtk_expert_pool_window(const struct mtk_expert_pool *pool, uint64_t number);

#endif
