/* SPDX-License-Identifier: MIT */
/*
 * Causal attention at one position, over the positions up to its own, of the query heads that
 * share one key/value head: out = sum over t of softmax(scale * q . k[t]) * v[t]. The order of
 * every sum depends on n_positions alone, and heads do not influence each other. Keys lie in
 * blocks of MTK_KEY_BLOCK positions, [block][head_dim][position]; values as
 * [position][value_stride], value_stride being head_dim rounded up to MTK_KEY_BLOCK.
 * Keys of the last block beyond n_positions may hold anything.
 */
#ifndef MTK_ATTENTION_ATTENTION_H
#define MTK_ATTENTION_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#define MTK_KEY_BLOCK 16

struct mtk_attention {
	const float *queries;		/* [n_queries][head_dim] */
	uint32_t n_queries;
	const float *keys;
	const float *values;
	uint32_t head_dim;
	uint32_t value_stride;
	uint32_t n_positions;		/* at least 1 */
	float scale;
	float *out;			/* [n_queries][head_dim] */
};

static inline size_t mtk_key_offset(uint32_t head_dim, uint32_t position, uint32_t dim)
{
	return ((size_t)(position / MTK_KEY_BLOCK) * head_dim + dim) * MTK_KEY_BLOCK +
	       position % MTK_KEY_BLOCK;
}

typedef void (*mtk_attention_fn)(const struct mtk_attention *attention);

void mtk_attention_plain(const struct mtk_attention *attention);

#endif
