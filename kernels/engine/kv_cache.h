/* SPDX-License-Identifier: MIT */
/*
 * The keys and values of the sequences in flight, in fp32. A slot holds one sequence of up to
 * n_context positions; acquiring and releasing one are O(1). Memory of positions that were never
 * used is reserved, not touched. A slot's length is the number of positions whose keys and values
 * are stored; only a successful forward pass and a copy raise it.
 */
#ifndef MTK_ENGINE_KV_CACHE_H
#define MTK_ENGINE_KV_CACHE_H

#include <stddef.h>
#include <stdint.h>

struct mtk_kv_cache;
struct mtk_model_config;

/**
 * Reserve the cache of n_slots sequences of n_context positions each.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID  n_slots or n_context is 0, n_context exceeds config->n_context, or
 *                              the size overflows
 *          MOETRACE_E_NOMEM
 * Owner    caller; release with mtk_kv_cache_destroy().
 */
int mtk_kv_cache_create(const struct mtk_model_config *config, uint32_t n_slots,
			uint32_t n_context, struct mtk_kv_cache **ret_kv);

/* The same without memory for keys and values, which are kept elsewhere, by slot and position. */
int mtk_kv_cache_create_slots(const struct mtk_model_config *config, uint32_t n_slots,
			      uint32_t n_context, struct mtk_kv_cache **ret_kv);

/* The bytes that such a cache reserves; 0 where it cannot be made. */
size_t mtk_kv_cache_size(const struct mtk_model_config *config, uint32_t n_slots,
			 uint32_t n_context);

/* NULL is allowed. */
void mtk_kv_cache_destroy(struct mtk_kv_cache *kv);

/* Take a free slot, of length 0. Returns MOETRACE_OK, or MOETRACE_E_LIMIT when none is free. */
int mtk_kv_cache_slot_acquire(struct mtk_kv_cache *kv, uint32_t *ret_slot);

/* Give an acquired slot back. A slot that is not acquired is ignored. */
void mtk_kv_cache_slot_release(struct mtk_kv_cache *kv, uint32_t slot);

/* Positions stored in a slot; 0 for a slot that is not acquired. */
uint32_t mtk_kv_cache_slot_length(const struct mtk_kv_cache *kv, uint32_t slot);

/* Forget the positions from n_positions on; does nothing when the slot is not longer. */
void mtk_kv_cache_slot_truncate(struct mtk_kv_cache *kv, uint32_t slot, uint32_t n_positions);

/*
 * Store the first n_positions of slot @from in slot @to, which then has just them. Both are
 * acquired and differ, and @from is at least so long.
 */
void mtk_kv_cache_slot_copy(struct mtk_kv_cache *kv, uint32_t to, uint32_t from,
			    uint32_t n_positions);

uint32_t mtk_kv_cache_n_slots(const struct mtk_kv_cache *kv);
uint32_t mtk_kv_cache_n_free_slots(const struct mtk_kv_cache *kv);
uint32_t mtk_kv_cache_n_context(const struct mtk_kv_cache *kv);

/* Bytes reserved for keys and values, and those that the positions now stored take. */
size_t mtk_kv_cache_reserved_bytes(const struct mtk_kv_cache *kv);
size_t mtk_kv_cache_used_bytes(const struct mtk_kv_cache *kv);

#endif
