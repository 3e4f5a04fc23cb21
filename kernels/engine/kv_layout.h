/* SPDX-License-Identifier: MIT */
/*
 * The inside of the KV cache, for the forward pass alone. One slot of one layer and one key/value
 * head is contiguous; keys lie as attention.h says, values as [position][value_stride].
 * n_appending counts the rows of the batch being checked or run; it is 0 between forward passes.
 */
#ifndef MTK_ENGINE_KV_LAYOUT_H
#define MTK_ENGINE_KV_LAYOUT_H

#include <stdbool.h>

#include "kernels/engine/kv_cache.h"

struct mtk_batch;

struct mtk_kv_slot {
	uint32_t length;
	uint32_t n_appending;
	bool acquired;
};

struct mtk_kv_cache {
	uint32_t n_layers;
	uint32_t n_kv_heads;
	uint32_t head_dim;
	uint32_t value_stride;		/* floats */
	uint32_t n_slots;
	uint32_t n_context;
	size_t head_key_floats;		/* of one slot, layer and head */
	size_t head_value_floats;
	size_t reserved_bytes;
	void *memory;			/* holds keys, then values; NULL: they are elsewhere */
	float *keys;
	float *values;
	struct mtk_kv_slot *slots;
	uint32_t *free_slots;		/* a stack of the slots that are free */
	uint32_t n_free;
	/* Copies positions between slots where they are elsewhere, for mtk_kv_cache_slot_copy(). */
	void (*copy_elsewhere)(void *context, uint32_t to, uint32_t from, uint32_t n_positions);
	void *elsewhere;
};

static inline size_t mtk_kv_head_index(const struct mtk_kv_cache *kv, uint32_t layer, uint32_t slot,
				       uint32_t head)
{
	return ((size_t)layer * kv->n_slots + slot) * kv->n_kv_heads + head;
}

static inline float *mtk_kv_keys(const struct mtk_kv_cache *kv, uint32_t layer, uint32_t slot,
				 uint32_t head)
{
	return kv->keys + mtk_kv_head_index(kv, layer, slot, head) * kv->head_key_floats;
}

static inline float *mtk_kv_values(const struct mtk_kv_cache *kv, uint32_t layer, uint32_t slot,
				   uint32_t head)
{
	return kv->values + mtk_kv_head_index(kv, layer, slot, head) * kv->head_value_floats;
}

/*
 * Reserve the positions of a batch's rows: MOETRACE_OK, or MOETRACE_E_INVALID where a row breaks a
 * rule of struct mtk_batch or the cache is not the model's; then nothing is reserved.
 */
int mtk_kv_append_begin(struct mtk_kv_cache *kv, const struct mtk_model_config *config,
			const struct mtk_batch *batch);

/* The rows' keys and values are stored; or, with is_stored false, they will not be. */
void mtk_kv_append_end(struct mtk_kv_cache *kv, const struct mtk_batch *batch, bool is_stored);

#endif
