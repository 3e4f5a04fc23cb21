/* SPDX-License-Identifier: MIT */
/*
 * Alignment: the (row, topk_rank) pairs of a batch, numbered p = row * top_k + topk_rank, sorted by
 * expert for a grouped matrix product that works in blocks of one expert each.
 *
 * Every expert's run of pairs, ascending by expert and by pair within one, is padded to whole
 * blocks; a padding slot holds n_pairs, one past the last pair. expert_ids has an entry a block,
 * and -1 beyond the last block in use; n_padded is the slots in use. Slots and blocks are sized by
 * the capacity, which is a multiple of the block whatever the ids are. A pair whose id is negative,
 * too large or mapped to -1 is dropped: it is in no block and is counted. With invalid_first such
 * pairs keep a run of their own instead, before all others, in blocks of expert -1 that count in
 * n_padded. No number of experts, rows or pairs is too large while memory lasts.
 */
#ifndef MTK_ALIGN_ALIGN_H
#define MTK_ALIGN_ALIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/engine/error.h"
#include "kernels/threads.h"

struct mtk_align_settings {
	uint32_t n_experts;		/* with blocks here; 0 where a rank holds none */
	uint32_t top_k;
	uint32_t block_rows;
	bool invalid_first;
	uint32_t n_ids;			/* entries of expert_map */
	const int32_t *expert_map;	/* id to expert, -1: not here; NULL: the id is the expert */
};

struct mtk_align_sizes {
	int64_t n_pairs;
	int64_t capacity;		/* slots */
	int64_t n_blocks;		/* capacity / block_rows */
};

struct mtk_align_result {
	int64_t *sorted_pairs;		/* [capacity] */
	int32_t *expert_ids;		/* [n_blocks] */
	int64_t *first_slots;		/* [n_experts + 1]: where each run begins; then n_padded */
	int64_t *pair_slots;		/* [n_pairs]: the slot of a pair; -1: it is in no expert */
	int64_t n_padded;
	int64_t n_dropped;		/* pairs with -1 in pair_slots */
};

/* MOETRACE_OK, or MOETRACE_E_INVALID with the field's name (and entry) in @error. */
int mtk_align_check(const struct mtk_align_settings *settings, struct mtk_error *error);

/*
 * The sizes for n_rows rows. MOETRACE_E_INVALID, naming n_rows, when the slots cannot be counted
 * in 64 bits or their bytes in memory.
 */
int mtk_align_sizes(const struct mtk_align_settings *settings, uint64_t n_rows,
		    struct mtk_error *error, struct mtk_align_sizes *ret_sizes);

/* Elements of the scratch of mtk_align_run() on n_threads threads; 0 when they overflow. */
size_t mtk_align_scratch_elements(const struct mtk_align_settings *settings, uint32_t n_threads);

/* The definition. ids is [n_rows][top_k]; settings and sizes must have passed the checks above. */
void mtk_align_plain(const struct mtk_align_settings *settings,
		     const struct mtk_align_sizes *sizes, const int32_t *ids,
		     struct mtk_align_result *result);

/*
 * The same result in time linear in pairs, experts and capacity, on all threads of the pool.
 * scratch holds mtk_align_scratch_elements() elements, of any content.
 */
void mtk_align_run(const struct mtk_align_settings *settings, const struct mtk_align_sizes *sizes,
		   const int32_t *ids, struct mtk_threads *threads, int64_t *scratch,
		   struct mtk_align_result *result);

#endif
