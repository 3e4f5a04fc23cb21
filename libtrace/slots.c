/* SPDX-License-Identifier: MIT */
/*
 * Pages in a hash table. Neighbouring slots mostly follow each other, so the page found last
 * is looked at first. A page that cannot be made leaves its slots unknown, which is no error.
 */
#include "libtrace/slots.h"

#include <stdlib.h>

void mt_slots_clear(struct mt_slots *slots)
{
	for (size_t i = 0; slots->n_pages && i < MT_SLOTS_BUCKETS; i++) {
		while (slots->buckets[i]) {
			struct mt_slot_page *page = slots->buckets[i];

			slots->buckets[i] = page->next;
			free(page);
		}
	}
	slots->last = NULL;
	slots->n_pages = 0;
}

static struct mt_slot_page *find(struct mt_slots *slots, uint64_t slot)
{
	uint64_t number = slot / MT_SLOTS_PAGE;
	struct mt_slot_page *page = slots->last;

	if (page && page->number == number)
		return page;
	page = slots->buckets[number & (MT_SLOTS_BUCKETS - 1)];
	while (page && page->number != number)
		page = page->next;
	if (page)
		slots->last = page;
	return page;
}

static struct mt_slot_page *make(struct mt_slots *slots, uint64_t slot)
{
	uint64_t number = slot / MT_SLOTS_PAGE;
	struct mt_slot_page **bucket = &slots->buckets[number & (MT_SLOTS_BUCKETS - 1)];
	struct mt_slot_page *page;

	if (slots->n_pages >= MT_SLOTS_MAX_PAGES)
		return NULL;
	page = calloc(1, sizeof(*page));
	if (!page)
		return NULL;
	page->number = number;
	page->next = *bucket;
	*bucket = page;
	slots->last = page;
	slots->n_pages++;
	return page;
}

void mt_slots_set(struct mt_slots *slots, uint64_t slot, const struct mt_slot *owner)
{
	struct mt_slot_page *page = find(slots, slot);

	if (!page)
		page = make(slots, slot);
	if (page)
		page->slots[slot % MT_SLOTS_PAGE] = *owner;
}

struct mt_slot mt_slots_get(struct mt_slots *slots, uint64_t slot)
{
	const struct mt_slot_page *page = find(slots, slot);
	struct mt_slot none = { .request = 0 };

	return page ? page->slots[slot % MT_SLOTS_PAGE] : none;
}
