/* SPDX-License-Identifier: MIT */
/*
 * Rows of a stretch of time that is finer than what is kept. Which rows may lie in it is known from
 * the bounds of the blocks, all of which hold, whatever the order of the rows; how many, too, so
 * that an answer is of the bins where they would be too many.
 */
#include "viewer/timeline.h"

#include <stdlib.h>

static bool is_lane_of(enum mt_scan_table table, enum mt_lane_type type)
{
	switch (type) {
	case MT_LANE_KERNELS:
	case MT_LANE_COLLECTIVES:
		return table == MT_SCAN_KERNEL || table == MT_SCAN_GRAPH;
	case MT_LANE_RANGES:
		return table == MT_SCAN_RANGE;
	case MT_LANE_POWER:
	case MT_LANE_CLOCK:
	case MT_LANE_MEMORY_CLOCK:
	case MT_LANE_TEMPERATURE:
		return table == MT_SCAN_POWER;
	default:
		return table == MT_SCAN_PASS;
	}
}

bool mt_exact_has(const struct mt_exact *exact, enum mt_lane_type type)
{
	for (size_t i = 0; i < MT_SCAN_N_TABLES; i++)
		if (exact->has_table[i] && is_lane_of((enum mt_scan_table)i, type))
			return true;
	return false;
}

static bool is_in(const struct mt_block *block, int64_t from_ns, int64_t until_ns)
{
	return block->is_read && block->start_ns <= block->end_ns && block->start_ns < until_ns &&
	       block->end_ns >= from_ns;
}

static size_t items_count(const struct mt_block_table *table, const struct mt_stretch *stretch)
{
	size_t n = 0;

	for (size_t i = 0; i < table->n_blocks; i++)
		if (is_in(&table->blocks[i], stretch->from_ns, stretch->until_ns))
			n += table->blocks[i].n_items;
	return n;
}

/* Under the lock: the tables that are to be read. */
static void tables_choose(const struct mt_timeline *timeline, const struct mt_stretch *stretch,
			  struct mt_exact *exact)
{
	size_t left = timeline->max_items, n;

	for (size_t i = 0; i < timeline->n_lanes; i++)
		for (size_t j = 0; j < MT_SCAN_N_TABLES; j++)
			if (timeline->lanes[i].bins.shift > stretch->shift &&
			    is_lane_of((enum mt_scan_table)j, timeline->lanes[i].lane.type))
				exact->has_table[j] = true;
	/* A lane of both comes from both or none. */
	n = exact->has_table[MT_SCAN_KERNEL]
		    ? items_count(&timeline->tables[MT_SCAN_KERNEL], stretch) +
			      items_count(&timeline->tables[MT_SCAN_GRAPH], stretch)
		    : 0;
	if (n > left)
		exact->has_table[MT_SCAN_KERNEL] = exact->has_table[MT_SCAN_GRAPH] = false;
	else
		left -= n;
	for (size_t j = 0; j < MT_SCAN_GRAPH; j++) {
		n = exact->has_table[j] ? items_count(&timeline->tables[j], stretch) : 0;
		if (n > left)
			exact->has_table[j] = false;
		else
			left -= n;
	}
}

/* The blocks of a table in a stretch, in memory of its own, since they move when the file grows. */
static bool blocks_copy(struct mt_timeline *timeline, size_t table, const struct mt_stretch *stretch,
			struct mt_block **ret_blocks, size_t *ret_n)
{
	const struct mt_block_table *from = &timeline->tables[table];
	struct mt_block *blocks;
	size_t n = 0;

	mt_timeline_lock(timeline);
	blocks = malloc((from->n_blocks + 1) * sizeof(*blocks));
	for (size_t i = 0; blocks && i < from->n_blocks; i++)
		if (is_in(&from->blocks[i], stretch->from_ns, stretch->until_ns))
			blocks[n++] = from->blocks[i];
	mt_timeline_unlock(timeline);
	*ret_blocks = blocks;
	*ret_n = n;
	return blocks != NULL;
}

static bool depths_set(struct mt_timeline *timeline, size_t table, struct mt_items *items, size_t from)
{
	bool has_memory;

	mt_timeline_lock(timeline);
	has_memory = mt_depths_of(&timeline->ranges, (enum mt_scan_table)table, items->items + from,
				  items->n - from);
	mt_timeline_unlock(timeline);
	return has_memory;
}

static bool table_read(struct mt_timeline *timeline, struct mt_scan *scan, size_t table,
		       const struct mt_stretch *stretch, struct mt_items *items)
{
	enum mt_scan_result result = MT_SCAN_DONE;
	struct mt_block *blocks;
	size_t n, kept = items->n;

	if (!blocks_copy(timeline, table, stretch, &blocks, &n))
		return false;
	for (size_t i = 0; i < n && result == MT_SCAN_DONE; i++) {
		result = mt_scan_read(scan, (enum mt_scan_table)table, blocks[i].first_id,
				      blocks[i].last_id, items);
		if (result == MT_SCAN_DONE && items->n > kept &&
		    !depths_set(timeline, table, items, kept))
			result = MT_SCAN_NO_MEMORY;
		/* Points beside it belong to it, so that lines reach its borders. */
		for (size_t j = kept; j < items->n; j++)
			if (items->items[j].lane.type >= MT_LANE_N_BARS ||
			    (items->items[j].start_ns < stretch->until_ns &&
			     items->items[j].end_ns >= stretch->from_ns))
				items->items[kept++] = items->items[j];
		items->n = kept;
	}
	free(blocks);
	return result == MT_SCAN_DONE;
}

int mt_lane_compare(const struct mt_lane *a, const struct mt_lane *b)
{
	if (a->type != b->type)
		return a->type < b->type ? -1 : 1;
	if (a->a != b->a)
		return a->a < b->a ? -1 : 1;
	if (a->b != b->b)
		return a->b < b->b ? -1 : 1;
	return a->depth < b->depth ? -1 : a->depth > b->depth;
}

static int item_compare(const void *first, const void *second)
{
	const struct mt_item *a = first, *b = second;
	const int order = mt_lane_compare(&a->lane, &b->lane);

	if (order != 0)
		return order;
	if (a->start_ns != b->start_ns)
		return a->start_ns < b->start_ns ? -1 : 1;
	return a->end_ns > b->end_ns ? -1 : a->end_ns < b->end_ns;
}

bool mt_exact_read(struct mt_timeline *timeline, struct mt_source_run *run,
		   const struct mt_stretch *stretch, struct mt_exact *exact)
{
	struct mt_scan *scan = NULL;
	bool is_good = true;

	mt_timeline_lock(timeline);
	tables_choose(timeline, stretch, exact);
	mt_timeline_unlock(timeline);
	for (size_t i = 0; i < MT_SCAN_N_TABLES && is_good; i++) {
		if (!exact->has_table[i])
			continue;
		if (!scan)
			scan = mt_scan_open(run, timeline->recording_id);
		is_good = scan && table_read(timeline, scan, i, stretch, &exact->items);
	}
	mt_scan_close(scan);
	if (exact->items.n > 0)
		qsort(exact->items.items, exact->items.n, sizeof(*exact->items.items), item_compare);
	return is_good;
}

void mt_timeline_ids(struct mt_timeline *timeline, enum mt_scan_table table, int64_t from_ns,
		     int64_t until_ns, int64_t *ret_first, int64_t *ret_last)
{
	const struct mt_block_table *of = &timeline->tables[table];

	*ret_first = INT64_MAX;
	*ret_last = INT64_MIN;
	mt_timeline_lock(timeline);
	for (size_t i = 0; i < of->n_blocks; i++) {
		if (of->blocks[i].is_read && !is_in(&of->blocks[i], from_ns, until_ns))
			continue;
		if (of->blocks[i].first_id < *ret_first)
			*ret_first = of->blocks[i].first_id;
		if (of->blocks[i].last_id > *ret_last)
			*ret_last = of->blocks[i].last_id;
	}
	/* What was added since. */
	if (timeline->source->is_live)
		*ret_last = INT64_MAX;
	mt_timeline_unlock(timeline);
}
