/* SPDX-License-Identifier: MIT */
/*
 * Bars that overlap others of their lane go to lanes below it, each to the highest in which it begins
 * after what lies there has ended, so that none hides another. Ranges lie in one another over any
 * length of time: theirs is found from all of them, for as many as that is quick for. Elsewhere what
 * overlaps was told together, and a block is looked at alone; passes and layers that last many times
 * as long as is usual there go below the rest, so that one that was held up does not take the others'
 * place.
 */
#include "viewer/timeline.h"

#include <stdlib.h>

#define MAX_DEPTH 16
/* Ranges whose depth is found from all. */
#define MAX_RANGES (2 << 20)
/* Times the median of its lane from which on a bar is one that was held up. */
#define MANY 8

/* Where lanes lie full up to. */
struct level {
	struct mt_lane lane;
	unsigned n;
	int64_t end_ns[MAX_DEPTH];
};

#define MAX_LEVELS 256

struct levels {
	struct level levels[MAX_LEVELS];
	size_t n, hint;
};

static struct level *level_find(struct levels *levels, const struct mt_lane *lane)
{
	for (size_t i = 0; i < levels->n; i++) {
		struct level *level = &levels->levels[(levels->hint + i) % levels->n];

		if (mt_lane_compare(&level->lane, lane) == 0) {
			levels->hint = (size_t)(level - levels->levels);
			return level;
		}
	}
	if (levels->n == MAX_LEVELS)
		return NULL;
	levels->levels[levels->n] = (struct level){.lane = *lane};
	return &levels->levels[levels->n++];
}

/* The depth of what begins next. */
static unsigned depth_of(struct level *level, int64_t start_ns, int64_t end_ns)
{
	unsigned depth = 0;

	while (depth < level->n && level->end_ns[depth] > start_ns)
		depth++;
	if (depth == MAX_DEPTH)
		return MAX_DEPTH - 1;
	level->end_ns[depth] = end_ns;
	if (depth == level->n)
		level->n++;
	return depth;
}

static int order_compare(const void *a, const void *b)
{
	const struct mt_item *first = *(const struct mt_item *const *)a;
	const struct mt_item *second = *(const struct mt_item *const *)b;

	if (first->start_ns != second->start_ns)
		return first->start_ns < second->start_ns ? -1 : 1;
	if (first->end_ns != second->end_ns)
		return first->end_ns > second->end_ns ? -1 : 1;
	return first->id < second->id ? -1 : first->id > second->id;
}

/* Whether nothing overlaps, and it is in the order of time. */
static bool is_simple(struct levels *levels, const struct mt_item *items, size_t n)
{
	struct level *level;

	for (size_t i = 0; i < n; i++) {
		if (items[i].lane.type >= MT_LANE_N_BARS)
			continue;
		level = level_find(levels, &items[i].lane);
		if (!level || (level->n > 0 && items[i].start_ns < level->end_ns[0]))
			return false;
		level->n = 1;
		level->end_ns[0] = items[i].end_ns;
	}
	return true;
}

/* By lane, and there by length. */
static int length_compare(const void *a, const void *b)
{
	const struct mt_item *first = *(const struct mt_item *const *)a;
	const struct mt_item *second = *(const struct mt_item *const *)b;
	const int64_t lengths[] = {first->end_ns - first->start_ns, second->end_ns - second->start_ns};
	const int lanes = mt_lane_compare(&first->lane, &second->lane);

	return lanes != 0 ? lanes : (lengths[0] > lengths[1]) - (lengths[0] < lengths[1]);
}

/* Move what was held up behind the rest; returns how many the rest are. */
static size_t held_up_split(struct mt_item **order, struct mt_item **behind, size_t n)
{
	size_t n_kept = 0, n_behind = 0;

	qsort(order, n, sizeof(order[0]), length_compare);
	for (size_t i = 0, end; i < n; i = end) {
		const struct mt_item *middle;
		int64_t usual_ns;

		for (end = i; end < n && mt_lane_compare(&order[i]->lane, &order[end]->lane) == 0;)
			end++;
		middle = order[i + (end - i) / 2];
		usual_ns = middle->end_ns - middle->start_ns;
		for (size_t j = i; j < end; j++) {
			if ((order[j]->end_ns - order[j]->start_ns) / MANY > usual_ns)
				behind[n_behind++] = order[j];
			else
				order[n_kept++] = order[j];
		}
	}
	for (size_t i = 0; i < n_behind; i++)
		order[n_kept + i] = behind[i];
	return n_kept;
}

/* In the order of time; above lie @above's levels, if there are any. */
static void depths_find(struct levels *levels, struct levels *above, struct mt_item **order, size_t n)
{
	levels->n = levels->hint = 0;
	qsort(order, n, sizeof(order[0]), order_compare);
	for (size_t i = 0; i < n; i++) {
		struct level *level = level_find(levels, &order[i]->lane);
		const struct level *upper = above ? level_find(above, &order[i]->lane) : NULL;
		unsigned depth;

		if (!level)
			continue;
		depth = depth_of(level, order[i]->start_ns, order[i]->end_ns) + (upper ? upper->n : 0);
		order[i]->lane.depth = depth < MAX_DEPTH ? depth : MAX_DEPTH - 1;
	}
}

/* Found with depth 0 in all: the lanes are told apart by the rest. */
static bool block_depths(struct mt_item *items, size_t n, bool has_held_up)
{
	struct levels *levels = calloc(2, sizeof(*levels));
	struct mt_item **order = NULL;
	size_t n_bars = 0, n_usual;
	bool has_memory = levels != NULL;

	if (levels && !is_simple(levels, items, n)) {
		order = malloc(2 * n * sizeof(struct mt_item *));
		has_memory = order != NULL;
		for (size_t i = 0; order && i < n; i++)
			if (items[i].lane.type < MT_LANE_N_BARS)
				order[n_bars++] = &items[i];
		if (order) {
			n_usual = has_held_up ? held_up_split(order, order + n, n_bars) : n_bars;
			depths_find(&levels[0], NULL, order, n_usual);
			depths_find(&levels[1], &levels[0], order + n_usual, n_bars - n_usual);
		}
	}
	free(order);
	free(levels);
	return has_memory;
}

bool mt_depths_of(const struct mt_range_depths *ranges, enum mt_scan_table table,
		  struct mt_item *items, size_t n)
{
	if (table != MT_SCAN_RANGE || !ranges->depths)
		return n == 0 || block_depths(items, n, table == MT_SCAN_PASS);
	for (size_t i = 0; i < n; i++) {
		const uint32_t at = items[i].id - (uint32_t)ranges->first_id;

		items[i].lane.depth = at < ranges->n ? ranges->depths[at] : 0;
	}
	return true;
}

/* ---- all ranges ---- */

enum mt_scan_result mt_range_depths_find(struct mt_scan *scan, int64_t first, int64_t last,
					 struct mt_range_depths *ret_ranges)
{
	struct mt_items items = {.items = NULL};
	struct mt_range_depths ranges = {.first_id = first};
	enum mt_scan_result result;

	*ret_ranges = (struct mt_range_depths){.depths = NULL};
	if (first > last || (uint64_t)last - (uint64_t)first >= MAX_RANGES)
		return MT_SCAN_DONE;
	result = mt_scan_read(scan, MT_SCAN_RANGE, first, last, &items);
	ranges.n = (size_t)(last - first) + 1;
	if (result == MT_SCAN_DONE) {
		ranges.depths = calloc(ranges.n, 1);
		if (!ranges.depths || (items.n > 0 && !block_depths(items.items, items.n, false)))
			result = MT_SCAN_NO_MEMORY;
	}
	for (size_t i = 0; result == MT_SCAN_DONE && i < items.n; i++)
		ranges.depths[items.items[i].id - (uint32_t)first] =
			(unsigned char)items.items[i].lane.depth;
	free(items.items);
	if (result == MT_SCAN_DONE)
		*ret_ranges = ranges;
	else
		free(ranges.depths);
	return result;
}
