/* SPDX-License-Identifier: MIT */
/*
 * Who computed what lies in a KV slot: filled from the slots that passes name, read when a
 * prefix hit is given as slots. Pages of neighbouring slots are made as they are used; past
 * the limit new pages are not made, and their slots are unknown.
 */
#ifndef MT_SLOTS_H
#define MT_SLOTS_H

#include <stddef.h>
#include <stdint.h>

#define MT_SLOTS_PAGE 256u
#define MT_SLOTS_MAX_PAGES 16384u

struct mt_slot {
	uint64_t request; /* handle; 0: unknown */
	uint32_t attempt;
	uint32_t position;
};

struct mt_slot_page {
	struct mt_slot_page *next; /* in its bucket */
	uint64_t number;           /* slot / MT_SLOTS_PAGE */
	struct mt_slot slots[MT_SLOTS_PAGE];
};

#define MT_SLOTS_BUCKETS 4096u

struct mt_slots {
	struct mt_slot_page *buckets[MT_SLOTS_BUCKETS];
	struct mt_slot_page *last; /* found last */
	size_t n_pages;
};

void mt_slots_clear(struct mt_slots *slots);
void mt_slots_set(struct mt_slots *slots, uint64_t slot, const struct mt_slot *owner);
/* The owner of a slot; its request is 0 if it is unknown. */
struct mt_slot mt_slots_get(struct mt_slots *slots, uint64_t slot);

#endif
