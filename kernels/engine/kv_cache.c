/* SPDX-License-Identifier: MIT */
/*
 * The KV cache. Memory comes zeroed and untouched from calloc, so that pages which no position
 * ever used cost address space only; the padding of value rows stays zero for good. Every block
 * of keys and every row of values begins at a cache line.
 */
#include "kernels/engine/kv_cache.h"

#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/attention/attention.h"
#include "kernels/engine/kv_layout.h"
#include "kernels/engine/model.h"

/* Loads that straddle cache lines cost the vector paths of attention half their speed. */
#define CACHE_LINE 64

static float *align_up(void *memory)
{
	uintptr_t address = (uintptr_t)memory;

	return (float *)((char *)memory + (CACHE_LINE - address % CACHE_LINE) % CACHE_LINE);
}

static uint32_t blocks_of(uint32_t n)
{
	return n / MTK_KEY_BLOCK + (n % MTK_KEY_BLOCK != 0);
}

/* Compute the sizes. False when one of them overflows. */
static bool size_up(struct mtk_kv_cache *kv, size_t *ret_key_floats)
{
	size_t n_heads = (size_t)kv->n_layers * kv->n_slots;
	size_t key_floats, value_floats, floats;

	kv->head_key_floats = (size_t)blocks_of(kv->n_context) * MTK_KEY_BLOCK * kv->head_dim;
	kv->head_value_floats = (size_t)kv->n_context * kv->value_stride;
	if (__builtin_mul_overflow(n_heads, kv->n_kv_heads, &n_heads) ||
	    __builtin_mul_overflow(n_heads, kv->head_key_floats, &key_floats) ||
	    __builtin_mul_overflow(n_heads, kv->head_value_floats, &value_floats) ||
	    __builtin_add_overflow(key_floats, value_floats, &floats) ||
	    floats > PTRDIFF_MAX / sizeof(float) - CACHE_LINE)
		return false;
	kv->reserved_bytes = floats * sizeof(float);
	*ret_key_floats = key_floats;
	return true;
}

static struct mtk_kv_cache sizes_of(const struct mtk_model_config *config, uint32_t n_slots,
				    uint32_t n_context)
{
	return (struct mtk_kv_cache){
		.n_layers = config->n_layers,
		.n_kv_heads = config->n_kv_heads,
		.head_dim = config->head_dim,
		.value_stride = blocks_of(config->head_dim) * MTK_KEY_BLOCK,
		.n_slots = n_slots,
		.n_context = n_context,
	};
}

size_t mtk_kv_cache_size(const struct mtk_model_config *config, uint32_t n_slots,
			 uint32_t n_context)
{
	struct mtk_kv_cache kv = sizes_of(config, n_slots, n_context);
	size_t key_floats;

	if (n_slots == 0 || n_context == 0 || n_context > config->n_context)
		return 0;
	return size_up(&kv, &key_floats) ? kv.reserved_bytes : 0;
}

static int create(const struct mtk_model_config *config, uint32_t n_slots, uint32_t n_context,
		  bool is_elsewhere, struct mtk_kv_cache **ret_kv)
{
	struct mtk_kv_cache *kv;
	size_t key_floats;

	if (n_slots == 0 || n_context == 0 || n_context > config->n_context)
		return MOETRACE_E_INVALID;
	kv = calloc(1, sizeof(*kv));
	if (!kv)
		return MOETRACE_E_NOMEM;
	*kv = sizes_of(config, n_slots, n_context);
	if (!size_up(kv, &key_floats)) {
		free(kv);
		return MOETRACE_E_INVALID;
	}
	/* Zeroed and untouched; the keys' size is a multiple of a cache line. */
	kv->memory = is_elsewhere ? NULL : calloc(1, kv->reserved_bytes + CACHE_LINE);
	kv->slots = calloc(n_slots, sizeof(*kv->slots));
	kv->free_slots = calloc(n_slots, sizeof(*kv->free_slots));
	if ((!kv->memory && !is_elsewhere) || !kv->slots || !kv->free_slots) {
		mtk_kv_cache_destroy(kv);
		return MOETRACE_E_NOMEM;
	}
	if (!is_elsewhere) {
		kv->keys = align_up(kv->memory);
		kv->values = kv->keys + key_floats;
	}
	/* The lowest slot lies on top, so that few sequences touch few pages. */
	for (uint32_t slot = n_slots; slot-- > 0;)
		kv->free_slots[kv->n_free++] = slot;
	*ret_kv = kv;
	return MOETRACE_OK;
}

int mtk_kv_cache_create(const struct mtk_model_config *config, uint32_t n_slots,
			uint32_t n_context, struct mtk_kv_cache **ret_kv)
{
	return create(config, n_slots, n_context, false, ret_kv);
}

int mtk_kv_cache_create_slots(const struct mtk_model_config *config, uint32_t n_slots,
			      uint32_t n_context, struct mtk_kv_cache **ret_kv)
{
	return create(config, n_slots, n_context, true, ret_kv);
}

void mtk_kv_cache_destroy(struct mtk_kv_cache *kv)
{
	if (!kv)
		return;
	free(kv->free_slots);
	free(kv->slots);
	free(kv->memory);
	free(kv);
}

int mtk_kv_cache_slot_acquire(struct mtk_kv_cache *kv, uint32_t *ret_slot)
{
	uint32_t slot;

	if (kv->n_free == 0)
		return MOETRACE_E_LIMIT;
	slot = kv->free_slots[--kv->n_free];
	kv->slots[slot] = (struct mtk_kv_slot){.acquired = true};
	*ret_slot = slot;
	return MOETRACE_OK;
}

void mtk_kv_cache_slot_release(struct mtk_kv_cache *kv, uint32_t slot)
{
	if (slot >= kv->n_slots || !kv->slots[slot].acquired)
		return;
	kv->slots[slot] = (struct mtk_kv_slot){.acquired = false};
	kv->free_slots[kv->n_free++] = slot;
}

uint32_t mtk_kv_cache_slot_length(const struct mtk_kv_cache *kv, uint32_t slot)
{
	return slot < kv->n_slots ? kv->slots[slot].length : 0;
}

void mtk_kv_cache_slot_truncate(struct mtk_kv_cache *kv, uint32_t slot, uint32_t n_positions)
{
	if (slot < kv->n_slots && kv->slots[slot].length > n_positions)
		kv->slots[slot].length = n_positions;
}

void mtk_kv_cache_slot_copy(struct mtk_kv_cache *kv, uint32_t to, uint32_t from,
			    uint32_t n_positions)
{
	/* Of the last block of keys also what lies behind the positions: it may hold anything. */
	size_t key_floats = (size_t)blocks_of(n_positions) * MTK_KEY_BLOCK * kv->head_dim;
	size_t value_floats = (size_t)n_positions * kv->value_stride;

	if (kv->copy_elsewhere)
		kv->copy_elsewhere(kv->elsewhere, to, from, n_positions);
	for (uint32_t layer = 0; kv->memory && layer < kv->n_layers; layer++) {
		for (uint32_t head = 0; head < kv->n_kv_heads; head++) {
			memcpy(mtk_kv_keys(kv, layer, to, head), mtk_kv_keys(kv, layer, from, head),
			       key_floats * sizeof(float));
			memcpy(mtk_kv_values(kv, layer, to, head),
			       mtk_kv_values(kv, layer, from, head), value_floats * sizeof(float));
		}
	}
	kv->slots[to].length = n_positions;
}

uint32_t mtk_kv_cache_n_slots(const struct mtk_kv_cache *kv)
{
	return kv->n_slots;
}

uint32_t mtk_kv_cache_n_free_slots(const struct mtk_kv_cache *kv)
{
	return kv->n_free;
}

uint32_t mtk_kv_cache_n_context(const struct mtk_kv_cache *kv)
{
	return kv->n_context;
}

size_t mtk_kv_cache_reserved_bytes(const struct mtk_kv_cache *kv)
{
	return kv->reserved_bytes;
}

size_t mtk_kv_cache_used_bytes(const struct mtk_kv_cache *kv)
{
	size_t position_floats = (size_t)kv->n_layers * kv->n_kv_heads *
				 ((size_t)kv->head_dim + kv->value_stride);
	size_t n_positions = 0;

	for (uint32_t slot = 0; slot < kv->n_slots; slot++)
		n_positions += kv->slots[slot].length;
	return n_positions * position_floats * sizeof(float);
}

static bool row_fits(const struct mtk_kv_cache *kv, const struct mtk_model_config *config,
		     const struct mtk_batch *batch, uint32_t row)
{
	const struct mtk_kv_slot *slot = &kv->slots[batch->slots[row]];
	int64_t position = batch->positions[row];

	return batch->token_ids[row] >= 0 && (uint32_t)batch->token_ids[row] < config->n_vocab &&
	       slot->acquired && position == (int64_t)slot->length + slot->n_appending &&
	       position < kv->n_context;
}

static bool fits_model(const struct mtk_kv_cache *kv, const struct mtk_model_config *config)
{
	return kv->n_layers == config->n_layers && kv->n_kv_heads == config->n_kv_heads &&
	       kv->head_dim == config->head_dim && kv->n_context <= config->n_context;
}

int mtk_kv_append_begin(struct mtk_kv_cache *kv, const struct mtk_model_config *config,
			const struct mtk_batch *batch)
{
	uint32_t row;

	if (!fits_model(kv, config))
		return MOETRACE_E_INVALID;
	for (row = 0; row < batch->n_rows; row++) {
		if (batch->slots[row] >= kv->n_slots || !row_fits(kv, config, batch, row))
			goto err_row;
		kv->slots[batch->slots[row]].n_appending++;
	}
	return MOETRACE_OK;

err_row:
	while (row-- > 0)
		kv->slots[batch->slots[row]].n_appending--;
	return MOETRACE_E_INVALID;
}

void mtk_kv_append_end(struct mtk_kv_cache *kv, const struct mtk_batch *batch, bool is_stored)
{
	for (uint32_t row = 0; row < batch->n_rows; row++) {
		struct mtk_kv_slot *slot = &kv->slots[batch->slots[row]];

		slot->length += is_stored;
		slot->n_appending--;
	}
}
