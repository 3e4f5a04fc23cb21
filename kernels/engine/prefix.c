/* SPDX-License-Identifier: MIT */
/*
 * A walk over all slots finds the longest prefix: there are as many as a batch has requests. A
 * kept slot that is matched whole is taken as it is; of any other the positions are copied, so that
 * those behind the match stay to be found, unless there is no second slot to copy into.
 */
#include "kernels/engine/prefix.h"

#include <stdlib.h>

#include <moetrace/status.h>

enum holder_state {
	HOLDER_NONE, /* the slot is free */
	HOLDER_RUNNING,
	HOLDER_KEPT,
};

/* Of a slot: whose tokens those of its positions are. */
struct holder {
	enum holder_state state;
	uint32_t sequence;
	uint32_t attempt;
	uint32_t n_copied; /* positions that were computed elsewhere, from 0 on */
	uint64_t kept_at;  /* orders the kept ones */
};

struct mtk_prefix {
	struct mtk_kv_cache *kv;
	struct mtk_scheduler *scheduler;
	struct holder *holders; /* [n_slots] */
	uint32_t n_slots;
	uint64_t n_kept; /* so far */
};

int mtk_prefix_create(struct mtk_kv_cache *kv, struct mtk_scheduler *scheduler,
		      struct mtk_prefix **ret_prefix)
{
	struct mtk_prefix *prefix = calloc(1, sizeof(*prefix));

	if (!prefix)
		return MOETRACE_E_NOMEM;
	prefix->kv = kv;
	prefix->scheduler = scheduler;
	prefix->n_slots = mtk_kv_cache_n_slots(kv);
	prefix->holders = calloc(prefix->n_slots, sizeof(*prefix->holders));
	if (!prefix->holders) {
		free(prefix);
		return MOETRACE_E_NOMEM;
	}
	*ret_prefix = prefix;
	return MOETRACE_OK;
}

void mtk_prefix_destroy(struct mtk_prefix *prefix)
{
	if (!prefix)
		return;
	free(prefix->holders);
	free(prefix);
}

static unsigned char token_at(const struct mtk_sequence *sequence, uint32_t position)
{
	return position < sequence->n_prompt ? sequence->request->prompt[position]
					     : sequence->text[position - sequence->n_prompt];
}

/* How many of the slot's positions @wanted can take over. */
static uint32_t n_matching(const struct mtk_prefix *prefix, uint32_t slot,
			   const struct mtk_sequence *wanted)
{
	const struct mtk_sequence *held =
		mtk_scheduler_sequence(prefix->scheduler, prefix->holders[slot].sequence);
	uint32_t n_max = wanted->n_prompt + wanted->n_generated - 1;
	uint32_t n_held = mtk_kv_cache_slot_length(prefix->kv, slot);
	uint32_t n = 0;

	if (n_held < n_max)
		n_max = n_held;
	while (n < n_max && token_at(held, n) == token_at(wanted, n))
		n++;
	return n;
}

/* The slot with the longest match; of equal ones a kept one, which may cost no copy. */
static uint32_t find_source(const struct mtk_prefix *prefix, const struct mtk_sequence *wanted,
			    uint32_t *ret_n_positions)
{
	uint32_t best = prefix->n_slots, n_best = 0;

	for (uint32_t slot = 0; slot < prefix->n_slots; slot++) {
		bool is_kept = prefix->holders[slot].state == HOLDER_KEPT;
		uint32_t n;

		if (prefix->holders[slot].state == HOLDER_NONE)
			continue;
		n = n_matching(prefix, slot, wanted);
		if (n > n_best || (n > 0 && n == n_best && is_kept &&
				   prefix->holders[best].state == HOLDER_RUNNING)) {
			best = slot;
			n_best = n;
		}
	}
	*ret_n_positions = n_best;
	return best;
}

/* The slot kept longest, but for @except; n_slots: none. */
static uint32_t find_oldest(const struct mtk_prefix *prefix, uint32_t except)
{
	uint32_t oldest = prefix->n_slots;

	for (uint32_t slot = 0; slot < prefix->n_slots; slot++) {
		if (prefix->holders[slot].state != HOLDER_KEPT || slot == except)
			continue;
		if (oldest == prefix->n_slots ||
		    prefix->holders[slot].kept_at < prefix->holders[oldest].kept_at)
			oldest = slot;
	}
	return oldest;
}

static void let_go(struct mtk_prefix *prefix, uint32_t slot)
{
	mtk_kv_cache_slot_release(prefix->kv, slot);
	prefix->holders[slot].state = HOLDER_NONE;
}

/* An empty slot beside @source; it may cost the oldest of the kept ones. */
static int acquire(struct mtk_prefix *prefix, uint32_t source, uint32_t *ret_slot)
{
	if (mtk_kv_cache_n_free_slots(prefix->kv) == 0) {
		uint32_t oldest = find_oldest(prefix, source);

		if (oldest == prefix->n_slots)
			return MOETRACE_E_LIMIT;
		let_go(prefix, oldest);
	}
	return mtk_kv_cache_slot_acquire(prefix->kv, ret_slot);
}

int mtk_prefix_take(struct mtk_prefix *prefix, uint32_t index, struct mtk_prefix_hit *ret_hit)
{
	struct mtk_sequence *sequence = mtk_scheduler_sequence(prefix->scheduler, index);
	struct mtk_prefix_hit hit = {.n_positions = 0};
	uint32_t source = find_source(prefix, sequence, &hit.n_positions), slot = source;
	bool is_kept = source < prefix->n_slots && prefix->holders[source].state == HOLDER_KEPT;
	uint32_t n_copied = 0;

	if (hit.n_positions > 0) {
		hit.source = prefix->holders[source].sequence;
		hit.source_attempt = prefix->holders[source].attempt;
		n_copied = prefix->holders[source].n_copied;
	}
	if (is_kept && (hit.n_positions == mtk_kv_cache_slot_length(prefix->kv, source) ||
			acquire(prefix, source, &slot) < 0)) {
		mtk_kv_cache_slot_truncate(prefix->kv, source, hit.n_positions);
		slot = source;
		hit.is_where_computed = n_copied == 0;
	} else {
		if (!is_kept && acquire(prefix, source, &slot) < 0)
			return MOETRACE_E_LIMIT;
		if (hit.n_positions > 0)
			mtk_kv_cache_slot_copy(prefix->kv, slot, source, hit.n_positions);
		n_copied = hit.n_positions;
	}
	prefix->holders[slot] = (struct holder){
		.state = HOLDER_RUNNING,
		.sequence = index,
		.attempt = sequence->n_retracts,
		.n_copied = n_copied < hit.n_positions ? n_copied : hit.n_positions,
	};
	sequence->slot = slot;
	sequence->n_computed = hit.n_positions;
	*ret_hit = hit;
	return MOETRACE_OK;
}

void mtk_prefix_keep(struct mtk_prefix *prefix, uint32_t slot)
{
	if (slot >= prefix->n_slots || prefix->holders[slot].state != HOLDER_RUNNING)
		return;
	prefix->holders[slot].state = HOLDER_KEPT;
	prefix->holders[slot].kept_at = prefix->n_kept++;
	if (mtk_kv_cache_slot_length(prefix->kv, slot) == 0)
		let_go(prefix, slot);
}

void mtk_prefix_trim(struct mtk_prefix *prefix, uint64_t n_max)
{
	uint64_t n_positions = 0;

	for (uint32_t slot = 0; slot < prefix->n_slots; slot++)
		if (prefix->holders[slot].state == HOLDER_KEPT)
			n_positions += mtk_kv_cache_slot_length(prefix->kv, slot);
	while (n_positions > n_max) {
		uint32_t slot = find_oldest(prefix, prefix->n_slots);
		uint32_t n = mtk_kv_cache_slot_length(prefix->kv, slot);

		if (n > n_positions - n_max) {
			mtk_kv_cache_slot_truncate(prefix->kv, slot,
						   n - (uint32_t)(n_positions - n_max));
			return;
		}
		n_positions -= n;
		let_go(prefix, slot);
	}
}
