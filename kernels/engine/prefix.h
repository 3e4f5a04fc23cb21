/* SPDX-License-Identifier: MIT */
/*
 * Prefix reuse: who holds which slot of the KV cache, and whose keys and values lie in it. A slot
 * whose sequence ended or was retracted is kept, filled, until its room is needed; the oldest goes
 * first. A sequence that is admitted takes over the longest run of positions, from 0 on, whose
 * tokens are its own, of a running sequence or of a kept one; at least its last known token is left
 * to compute, since its logits are wanted. Keys and values of a position depend on the tokens up to
 * it alone, so what is taken over is, bit for bit, what would have been computed.
 */
#ifndef MTK_ENGINE_PREFIX_H
#define MTK_ENGINE_PREFIX_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/engine/kv_cache.h"
#include "kernels/engine/scheduler.h"

struct mtk_prefix;

/* Whose positions 0 .. n_positions - 1 a sequence took over. */
struct mtk_prefix_hit {
	uint32_t n_positions; /* 0: none */
	uint32_t source;      /* the sequence that held them; perhaps the same one, earlier */
	uint32_t source_attempt;
	bool is_where_computed; /* nothing was copied: the slot is that of the passes that computed
				   the positions */
};

/**
 * @kv, @scheduler  In use until it is destroyed. All slots of @kv are free.
 *
 * Returns  MOETRACE_OK or MOETRACE_E_NOMEM
 * Owner    caller; release with mtk_prefix_destroy().
 */
int mtk_prefix_create(struct mtk_kv_cache *kv, struct mtk_scheduler *scheduler,
		      struct mtk_prefix **ret_prefix);

/* NULL is allowed. */
void mtk_prefix_destroy(struct mtk_prefix *prefix);

/**
 * Give sequence @index, just admitted, its slot and what it can take over: sets its slot and
 * n_computed.
 *
 * Returns  MOETRACE_OK, or MOETRACE_E_LIMIT when every slot is held by a running sequence
 */
int mtk_prefix_take(struct mtk_prefix *prefix, uint32_t index, struct mtk_prefix_hit *ret_hit);

/* The sequence that holds @slot does not run any more; what the slot holds is kept. */
void mtk_prefix_keep(struct mtk_prefix *prefix, uint32_t slot);

/* Let go kept positions, the oldest slot's first and each from its end, until n_max are left. */
void mtk_prefix_trim(struct mtk_prefix *prefix, uint64_t n_max);

#endif
