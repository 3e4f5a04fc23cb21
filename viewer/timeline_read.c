/* SPDX-License-Identifier: MIT */
/*
 * The thread that reads a timeline. Blocks are read in the order of their numbers with the bits
 * reversed, each table as far as the others, so that what is there always lies all over the
 * recording. A lane whose bins have become too many for its bars, or the one with most when all
 * together are too many, becomes coarser.
 */
#include "viewer/timeline.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_BLOCKS     65536 /* of a table, about */
#define FIRST_SHIFT    10
#define MAX_SHIFT      54
#define IDLE_NS	       5000000000
#define LOOK_AGAIN_NS  1000000000
#define FREE_CHUNKS    16 /* that a lane may have whatever it holds */
#define BARS_A_CHUNK   128
#define MAX_ITEMS      200000 /* that are read for an answer */
#define FEW_RANGES     100000 /* that are read anew where the file grows */

/* Ids of a block at least. */
static const int64_t block_ids[MT_SCAN_N_TABLES] = {
	[MT_SCAN_PASS] = 64, [MT_SCAN_POWER] = 2048, [MT_SCAN_RANGE] = 2048,
	[MT_SCAN_GRAPH] = 16, [MT_SCAN_KERNEL] = 2048,
};

void mt_timeline_lock(struct mt_timeline *timeline)
{
	atomic_fetch_add(&timeline->n_waiting, 1);
	pthread_mutex_lock(&timeline->lock);
	atomic_fetch_sub(&timeline->n_waiting, 1);
}

void mt_timeline_unlock(struct mt_timeline *timeline)
{
	pthread_mutex_unlock(&timeline->lock);
}

static void thread_lock(struct mt_timeline *timeline)
{
	const struct timespec a_moment = {.tv_nsec = 200000};

	while (atomic_load(&timeline->n_waiting) > 0)
		nanosleep(&a_moment, NULL);
	pthread_mutex_lock(&timeline->lock);
}

double mt_timeline_progress(const struct mt_timeline *timeline)
{
	size_t n_blocks = 0, n_read = 0;

	for (size_t i = 0; i < MT_SCAN_N_TABLES; i++) {
		n_blocks += timeline->tables[i].n_blocks;
		n_read += timeline->tables[i].n_read;
	}
	if (timeline->looked_ns == 0)
		return 0;
	return n_blocks == 0 ? 1 : (double)n_read / (double)n_blocks;
}

/* ---- blocks ---- */

/* Blocks for the ids beyond those that have one. Returns whether there was memory. */
static bool blocks_extend(struct mt_block_table *table, int64_t first, int64_t last, int64_t n_least)
{
	uint64_t n_ids, n_each, n_new;
	struct mt_block *more;

	/* Those from before come first. */
	if (table->n_read < table->n_blocks)
		return true;
	if (table->n_blocks > 0 && first <= table->last_id)
		first = table->last_id < INT64_MAX ? table->last_id + 1 : table->last_id;
	if (first > last || (table->n_blocks > 0 && last <= table->last_id))
		return true;
	n_ids = (uint64_t)last - (uint64_t)first;
	n_each = n_ids / MAX_BLOCKS + 1;
	if (n_each < (uint64_t)n_least)
		n_each = (uint64_t)n_least;
	n_new = n_ids / n_each + 1;
	more = realloc(table->blocks, (table->n_blocks + n_new) * sizeof(*more));
	if (!more)
		return false;
	table->blocks = more;
	table->first = table->n_blocks;
	table->turn = 0;
	for (uint64_t i = 0; i < n_new; i++) {
		const int64_t begin = (int64_t)((uint64_t)first + i * n_each);

		more[table->n_blocks++] = (struct mt_block){
			.first_id = begin,
			.last_id = i + 1 < n_new ? (int64_t)((uint64_t)begin + n_each - 1) : last,
		};
	}
	table->last_id = last;
	return true;
}

/* The next one to be read; NULL: all are. */
static struct mt_block *block_next(struct mt_block_table *table)
{
	const size_t n = table->n_blocks - table->first;
	unsigned n_bits = 0;

	while (n_bits < 40 && (size_t)1 << n_bits < n)
		n_bits++;
	while (table->n_read < table->n_blocks && table->turn >> n_bits == 0) {
		const uint64_t turn = table->turn++;
		uint64_t i = 0;

		for (unsigned bit = 0; bit < n_bits; bit++)
			i |= (turn >> bit & 1) << (n_bits - 1 - bit);
		if (i < n && !table->blocks[table->first + i].is_read)
			return &table->blocks[table->first + i];
	}
	return NULL;
}

/* The table of which the smallest part was read. */
static struct mt_block_table *table_next(struct mt_timeline *timeline)
{
	struct mt_block_table *next = NULL;
	double least = 1;

	for (size_t i = 0; i < MT_SCAN_N_TABLES; i++) {
		struct mt_block_table *table = &timeline->tables[i];
		const double part =
			table->n_blocks ? (double)table->n_read / (double)table->n_blocks : 1;

		if (part < least) {
			least = part;
			next = table;
		}
	}
	return next;
}

/* ---- adding ---- */

static struct mt_timeline_lane *lane_find(struct mt_timeline *timeline, struct mt_scan *scan,
					  const struct mt_lane *lane, size_t *hint)
{
	struct mt_timeline_lane *found;

	for (size_t i = 0; i < timeline->n_lanes; i++) {
		const size_t at = (*hint + i) % timeline->n_lanes;

		found = &timeline->lanes[at];
		if (found->lane.type == lane->type && found->lane.a == lane->a &&
		    found->lane.b == lane->b && found->lane.depth == lane->depth) {
			*hint = at;
			return found;
		}
	}
	if (timeline->n_lanes == MT_TIMELINE_MAX_LANES)
		return NULL;
	found = &timeline->lanes[timeline->n_lanes++];
	found->lane = *lane;
	found->bins.shift = FIRST_SHIFT;
	mt_scan_lane_name(scan, lane, found->name, sizeof(found->name));
	return found;
}

static bool item_add(struct mt_timeline *timeline, struct mt_timeline_lane *lane,
		     const struct mt_item *item)
{
	const struct mt_bin bin = {
		.start_ns = item->start_ns,
		.end_ns = item->end_ns,
		.total_ns = (double)(item->end_ns - item->start_ns),
		.n = 1,
		.id = item->id,
		.name = item->name,
		.node = item->node,
		.layer = item->layer,
		.low = item->value,
		.high = item->value,
		.kind = item->kind,
	};

	lane->n++;
	if (lane->n == 1 || item->value > lane->most)
		lane->most = item->value;
	if (item->limit > lane->limit)
		lane->limit = item->limit;
	if (item->start_ns < timeline->start_ns)
		timeline->start_ns = item->start_ns;
	if (item->end_ns > timeline->end_ns)
		timeline->end_ns = item->end_ns;
	return mt_bins_add(&lane->bins, &bin);
}

static void lanes_coarsen(struct mt_timeline *timeline)
{
	for (;;) {
		struct mt_timeline_lane *most = NULL;
		size_t n_chunks = 0;

		for (size_t i = 0; i < timeline->n_lanes; i++) {
			struct mt_timeline_lane *lane = &timeline->lanes[i];

			while (lane->bins.n_chunks > FREE_CHUNKS + lane->n / BARS_A_CHUNK &&
			       lane->bins.shift < MAX_SHIFT)
				mt_bins_coarsen(&lane->bins);
			n_chunks += lane->bins.n_chunks;
			if (lane->bins.shift < MAX_SHIFT &&
			    (!most || lane->bins.n_chunks > most->bins.n_chunks))
				most = lane;
		}
		if (n_chunks <= MT_TIMELINE_MAX_CHUNKS || !most)
			return;
		mt_bins_coarsen(&most->bins);
	}
}

/* Under the lock. Returns whether there was memory. */
static bool block_add(struct mt_timeline *timeline, struct mt_scan *scan, struct mt_block *block,
		      const struct mt_items *items)
{
	size_t hint = 0;

	block->start_ns = INT64_MAX;
	block->end_ns = INT64_MIN;
	for (size_t i = 0; i < items->n; i++) {
		const struct mt_item *item = &items->items[i];
		struct mt_timeline_lane *lane = lane_find(timeline, scan, &item->lane, &hint);

		if (item->start_ns < block->start_ns)
			block->start_ns = item->start_ns;
		if (item->end_ns > block->end_ns)
			block->end_ns = item->end_ns;
		if (!lane)
			timeline->n_left_out++;
		else if (!item_add(timeline, lane, item))
			return false;
	}
	block->n_items = (uint32_t)items->n;
	block->is_read = true;
	timeline->n_left_out += items->n_left_out;
	lanes_coarsen(timeline);
	return true;
}

/* ---- the thread ---- */

static void fail(struct mt_timeline *timeline, const char *text)
{
	thread_lock(timeline);
	timeline->has_failed = true;
	snprintf(timeline->error, sizeof(timeline->error), "%s", text);
	pthread_mutex_unlock(&timeline->lock);
}

/* Ranges around those that were there may have come: few are read anew. Under the lock. */
static void ranges_forget(struct mt_timeline *timeline)
{
	struct mt_block_table *table = &timeline->tables[MT_SCAN_RANGE];

	for (size_t i = 0; i < timeline->n_lanes; i++) {
		struct mt_timeline_lane *lane = &timeline->lanes[i];

		if (lane->lane.type != MT_LANE_RANGES)
			continue;
		mt_bins_free(&lane->bins);
		lane->bins.shift = FIRST_SHIFT;
		lane->n = 0;
	}
	table->n_blocks = table->n_read = 0;
}

/* Returns whether they could be read. */
static bool ranges_look(struct mt_timeline *timeline, struct mt_scan *scan, int64_t first, int64_t last)
{
	struct mt_range_depths ranges;

	if (timeline->tables[MT_SCAN_RANGE].n_blocks > 0 &&
	    (last <= timeline->tables[MT_SCAN_RANGE].last_id || last - first > FEW_RANGES))
		return true;
	if (mt_range_depths_find(scan, first, last, &ranges) != MT_SCAN_DONE)
		return false;
	thread_lock(timeline);
	ranges_forget(timeline);
	free(timeline->ranges.depths);
	timeline->ranges = ranges;
	pthread_mutex_unlock(&timeline->lock);
	return true;
}

/* What there is to read, once a second at most. */
static bool tables_look(struct mt_timeline *timeline, struct mt_scan *scan)
{
	bool has_memory = true;

	for (size_t i = 0; i < MT_SCAN_N_TABLES && has_memory; i++) {
		int64_t first, last;

		if (!mt_scan_bounds(scan, (enum mt_scan_table)i, &first, &last) ||
		    (i == MT_SCAN_RANGE && !ranges_look(timeline, scan, first, last)))
			return false;
		thread_lock(timeline);
		has_memory = blocks_extend(&timeline->tables[i], first, last, block_ids[i]);
		pthread_mutex_unlock(&timeline->lock);
	}
	thread_lock(timeline);
	timeline->looked_ns = mt_source_now_ns();
	pthread_mutex_unlock(&timeline->lock);
	return has_memory;
}

static bool block_read(struct mt_timeline *timeline, struct mt_scan *scan,
		       struct mt_block_table *table, struct mt_items *items)
{
	const enum mt_scan_table which = (enum mt_scan_table)(table - timeline->tables);
	struct mt_block *block = block_next(table);
	enum mt_scan_result result = MT_SCAN_DONE;

	if (!block)
		return false;
	items->n = 0;
	items->n_left_out = 0;
	result = mt_scan_read(scan, which, block->first_id, block->last_id, items);
	if (result != MT_SCAN_DONE ||
	    !mt_depths_of(&timeline->ranges, which, items->items, items->n))
		return false;
	thread_lock(timeline);
	if (!block_add(timeline, scan, block, items))
		result = MT_SCAN_NO_MEMORY;
	table->n_read++;
	pthread_cond_broadcast(&timeline->changed);
	pthread_mutex_unlock(&timeline->lock);
	return result == MT_SCAN_DONE;
}

static bool shall_end(const struct mt_timeline *timeline)
{
	return atomic_load(&timeline->stops) || atomic_load(timeline->source->stops) ||
	       mt_source_now_ns() - atomic_load(&timeline->asked_ns) > IDLE_NS;
}

static void read_all(struct mt_timeline *timeline, struct mt_source_run *run)
{
	struct mt_scan *scan = mt_scan_open(run, timeline->recording_id);
	struct mt_items items = {.items = NULL};
	struct mt_block_table *table;
	bool is_good = scan && tables_look(timeline, scan);

	while (is_good && !shall_end(timeline)) {
		table = table_next(timeline);
		if (!table)
			break;
		is_good = block_read(timeline, scan, table, &items);
	}
	if (!is_good && !shall_end(timeline))
		fail(timeline, sqlite3_errcode(run->db) == SQLITE_OK ||
					       sqlite3_errcode(run->db) == SQLITE_DONE
				       ? "out of memory for the timeline"
				       : sqlite3_errmsg(run->db));
	free(items.items);
	mt_scan_close(scan);
}

static void *thread_main(void *context)
{
	struct mt_timeline *timeline = context;
	struct mt_source_run *run = mt_source_take(timeline->source, UINT32_MAX, -1);

	if (run) {
		read_all(timeline, run);
		mt_source_return(run);
	} else {
		fail(timeline, "cannot be opened, or all of its connections are busy");
	}
	thread_lock(timeline);
	timeline->is_reading = false;
	pthread_cond_broadcast(&timeline->changed);
	pthread_mutex_unlock(&timeline->lock);
	return NULL;
}

/* Threads inherit the mask of the one that makes them; signals are for others. */
static void thread_start(struct mt_timeline *timeline)
{
	sigset_t all, before;

	atomic_store(&timeline->stops, false);
	timeline->is_reading = true;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	timeline->has_thread = pthread_create(&timeline->thread, NULL, thread_main, timeline) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!timeline->has_thread) {
		timeline->is_reading = false;
		timeline->has_failed = true;
		snprintf(timeline->error, sizeof(timeline->error), "no thread for the timeline");
	}
}

static void thread_end(struct mt_timeline *timeline)
{
	atomic_store(&timeline->stops, true);
	if (timeline->has_thread)
		pthread_join(timeline->thread, NULL);
	timeline->has_thread = false;
}

/* ---- life ---- */

static struct mt_timeline *timeline_new(struct mt_source *source, int64_t recording_id)
{
	struct mt_timeline *timeline = calloc(1, sizeof(*timeline));
	pthread_condattr_t attributes;

	if (!timeline)
		return NULL;
	timeline->source = source;
	timeline->recording_id = recording_id;
	timeline->start_ns = INT64_MAX;
	timeline->end_ns = INT64_MIN;
	timeline->max_items = MAX_ITEMS;
	pthread_mutex_init(&timeline->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&timeline->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	return timeline;
}

/* Whether reading should begin, or go on. */
static bool wants_thread(const struct mt_timeline *timeline)
{
	if (timeline->is_reading || timeline->has_failed || timeline->is_held)
		return false;
	if (mt_timeline_progress(timeline) < 1)
		return true;
	return timeline->source->is_live &&
	       mt_source_now_ns() - timeline->looked_ns > LOOK_AGAIN_NS;
}

struct mt_timeline *mt_timeline_get(struct mt_source *source, int64_t recording_id)
{
	struct mt_timeline *timeline = source->timeline;

	if (timeline && timeline->recording_id != recording_id) {
		mt_timeline_free(timeline);
		timeline = NULL;
	}
	if (!timeline)
		timeline = timeline_new(source, recording_id);
	source->timeline = timeline;
	if (!timeline)
		return NULL;
	atomic_store(&timeline->asked_ns, mt_source_now_ns());
	mt_timeline_lock(timeline);
	if (wants_thread(timeline)) {
		mt_timeline_unlock(timeline);
		if (timeline->has_thread)
			pthread_join(timeline->thread, NULL);
		mt_timeline_lock(timeline);
		thread_start(timeline);
	}
	mt_timeline_unlock(timeline);
	return timeline;
}

bool mt_timeline_wait(struct mt_timeline *timeline, uint32_t limit_ms)
{
	const int64_t end_ns = mt_source_now_ns() + (int64_t)limit_ms * 1000000;
	const struct timespec until = {.tv_sec = end_ns / 1000000000, .tv_nsec = end_ns % 1000000000};
	bool is_whole;

	mt_timeline_lock(timeline);
	while (timeline->is_reading &&
	       pthread_cond_timedwait(&timeline->changed, &timeline->lock, &until) == 0)
		atomic_store(&timeline->asked_ns, mt_source_now_ns());
	is_whole = !timeline->is_reading && !timeline->has_failed &&
		   mt_timeline_progress(timeline) >= 1;
	mt_timeline_unlock(timeline);
	return is_whole;
}

void mt_timeline_hold(struct mt_timeline *timeline, bool is_held)
{
	timeline->is_held = is_held;
	if (is_held)
		thread_end(timeline);
}

void mt_timeline_free(struct mt_timeline *timeline)
{
	if (!timeline)
		return;
	thread_end(timeline);
	for (size_t i = 0; i < timeline->n_lanes; i++)
		mt_bins_free(&timeline->lanes[i].bins);
	for (size_t i = 0; i < MT_SCAN_N_TABLES; i++)
		free(timeline->tables[i].blocks);
	free(timeline->ranges.depths);
	pthread_cond_destroy(&timeline->changed);
	pthread_mutex_destroy(&timeline->lock);
	free(timeline);
}
