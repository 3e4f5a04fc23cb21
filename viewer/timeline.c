/* SPDX-License-Identifier: MIT */
/*
 * Answers a stretch of a timeline, in steps of a power of two of nanoseconds, of which one or two
 * make a pixel. Bars that are no longer than a step become one a step, with how many they are, how
 * long together, and what the longest is; counters become the lowest and the highest of a step.
 */
#include "viewer/timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PIXELS   20000
#define MAX_WAIT_MS  2000
#define MAX_REACHING 64
#define MAX_TIME     4e18
#define MAX_ID	     999999999999999999
#define NAME_SLOTS   8192 /* a power of two */
#define NAME_BYTES   200

enum {
	A_TRACK, A_START, A_END, A_KIND, A_COUNT, A_ID, A_NAME, A_NODE, A_LAYER, A_TOTAL, A_LONGEST,
	C_COUNTER, C_TIME, C_LOW, C_HIGH,
};

/* An answer while it is made. */
struct making {
	struct mt_view_reply *reply;
	struct mt_timeline *timeline;
	struct mt_stretch stretch;
	struct mt_exact exact;
	const struct mt_timeline_lane *lanes[MT_TIMELINE_MAX_LANES]; /* in their order */
	size_t n_lanes, n_tracks;
	struct {
		uint32_t name, number;
	} slots[NAME_SLOTS]; /* the number in the answer of each name, from 1; 0: a slot is free */
	uint32_t names[NAME_SLOTS / 2]; /* in the order of their numbers */
	uint32_t n_names;
};

/* The number of a name in the answer; 0: none, or there are too many. */
static uint32_t name_number(struct making *making, uint32_t name)
{
	uint32_t i = name * 2654435761u >> 19;

	_Static_assert(NAME_SLOTS == 1 << 13, "a slot's number has 13 bits");
	if (name == 0)
		return 0;
	while (making->slots[i].number && making->slots[i].name != name)
		i = (i + 1) % NAME_SLOTS;
	if (!making->slots[i].number && making->n_names < NAME_SLOTS / 2) {
		making->slots[i].name = name;
		making->names[making->n_names++] = name;
		making->slots[i].number = making->n_names;
	}
	return making->slots[i].number;
}

static void bar_write(struct making *making, size_t track, const struct mt_bin *bin,
		      int64_t start_ns, int64_t end_ns)
{
	struct mt_view_reply *reply = making->reply;

	mt_view_reply_item(reply, A_TRACK, (double)track);
	mt_view_reply_item(reply, A_START, (double)start_ns);
	mt_view_reply_item(reply, A_END, (double)end_ns);
	mt_view_reply_item(reply, A_KIND, bin->kind);
	mt_view_reply_item(reply, A_COUNT, bin->n);
	mt_view_reply_item(reply, A_ID, bin->id);
	mt_view_reply_item(reply, A_NAME, name_number(making, bin->name));
	mt_view_reply_item(reply, A_NODE, bin->node);
	mt_view_reply_item(reply, A_LAYER, bin->layer);
	mt_view_reply_item(reply, A_TOTAL, bin->total_ns);
	mt_view_reply_item(reply, A_LONGEST, (double)(bin->end_ns - bin->start_ns));
}

static void point_write(struct making *making, size_t counter, const struct mt_bin *bin,
			int64_t time_ns)
{
	mt_view_reply_item(making->reply, C_COUNTER, (double)counter);
	mt_view_reply_item(making->reply, C_TIME, (double)time_ns);
	mt_view_reply_item(making->reply, C_LOW, bin->low);
	mt_view_reply_item(making->reply, C_HIGH, bin->high);
}

/* ---- from bins ---- */

static int bin_compare(const void *a, const void *b)
{
	const struct mt_bin *first = *(const struct mt_bin *const *)a;
	const struct mt_bin *second = *(const struct mt_bin *const *)b;

	return first->start_ns < second->start_ns ? -1 : first->start_ns > second->start_ns;
}

/* Bars from before that reach in: the longest of each bin. */
static void reaching_write(struct making *making, const struct mt_bins *bins, unsigned shift,
			   size_t track)
{
	const struct mt_bin *reaching[MAX_REACHING];
	const size_t n = mt_bins_reaching(bins, shift, making->stretch.from_ns, MAX_REACHING, reaching);

	qsort(reaching, n, sizeof(reaching[0]), bin_compare);
	for (size_t i = 0; i < n; i++) {
		struct mt_bin bar = *reaching[i];

		bar.n = 1;
		bar.total_ns = (double)(bar.end_ns - bar.start_ns);
		bar_write(making, track, &bar, bar.start_ns, bar.end_ns);
	}
}

static void bins_write(struct making *making, const struct mt_bins *bins, size_t track)
{
	const struct mt_stretch *stretch = &making->stretch;
	const unsigned shift = stretch->shift > bins->shift ? stretch->shift : bins->shift;
	struct mt_bins_walk walk;
	struct mt_bin bin;
	int64_t step;

	reaching_write(making, bins, shift, track);
	mt_bins_walk(&walk, bins, shift, stretch->from_ns, stretch->until_ns);
	while (mt_bins_next(&walk, &bin, &step)) {
		const int64_t begin_ns = step * (INT64_C(1) << shift);
		int64_t end_ns;

		if (bin.n == 1) {
			bar_write(making, track, &bin, bin.start_ns, bin.end_ns);
			continue;
		}
		if (__builtin_add_overflow(begin_ns, INT64_C(1) << shift, &end_ns) || end_ns < bin.end_ns)
			end_ns = bin.end_ns;
		bar_write(making, track, &bin, begin_ns, end_ns);
	}
}

/* With a step more on both sides, so that lines reach the borders. */
static void points_write(struct making *making, const struct mt_bins *bins, size_t counter)
{
	const struct mt_stretch *stretch = &making->stretch;
	const unsigned shift = stretch->shift > bins->shift ? stretch->shift : bins->shift;
	const int64_t from_ns = (stretch->from_ns >> shift) * (INT64_C(1) << shift);
	struct mt_bin bin, before = {.n = 0};
	struct mt_bins_walk walk;
	int64_t step;

	mt_bins_walk(&walk, bins, shift, INT64_MIN / 2, INT64_MAX / 2);
	while (mt_bins_next(&walk, &bin, &step)) {
		if (bin.start_ns < from_ns) {
			before = bin;
			continue;
		}
		if (before.n > 0)
			point_write(making, counter, &before, before.start_ns);
		before.n = 0;
		point_write(making, counter, &bin, bin.start_ns);
		if (bin.start_ns >= stretch->until_ns)
			return;
	}
	if (before.n > 0)
		point_write(making, counter, &before, before.start_ns);
}

/* ---- from rows ---- */

static void group_flush(struct making *making, size_t track, struct mt_bin *group,
			int64_t group_end_ns, int64_t first_ns)
{
	if (group->n > 0)
		bar_write(making, track, group, first_ns, group_end_ns);
	group->n = 0;
}

static struct mt_bin bin_of(const struct mt_item *item)
{
	return (struct mt_bin){.start_ns = item->start_ns, .end_ns = item->end_ns,
			       .total_ns = (double)(item->end_ns - item->start_ns), .n = 1,
			       .id = item->id, .name = item->name, .node = item->node,
			       .layer = item->layer, .low = item->value, .high = item->value,
			       .kind = item->kind};
}

/* Bars of a step and longer are by themselves. */
static void exact_bars_write(struct making *making, const struct mt_item *items, size_t n,
			     size_t track)
{
	const int64_t step_ns = INT64_C(1) << making->stretch.shift;
	int64_t first_ns = 0, end_ns = 0;
	struct mt_bin group = {.n = 0};

	for (size_t i = 0; i < n; i++) {
		const struct mt_bin bin = bin_of(&items[i]);
		const bool is_long = bin.end_ns - bin.start_ns >= step_ns;

		if (is_long || (group.n > 0 && first_ns >> making->stretch.shift !=
						       bin.start_ns >> making->stretch.shift))
			group_flush(making, track, &group, end_ns, first_ns);
		if (is_long) {
			bar_write(making, track, &bin, bin.start_ns, bin.end_ns);
			continue;
		}
		first_ns = group.n ? first_ns : bin.start_ns;
		end_ns = group.n && end_ns > bin.end_ns ? end_ns : bin.end_ns;
		mt_bin_merge(&group, &bin);
	}
	group_flush(making, track, &group, end_ns, first_ns);
}

static void exact_points_write(struct making *making, const struct mt_item *items, size_t n,
			       size_t counter)
{
	const struct mt_stretch *stretch = &making->stretch;
	struct mt_bin group = {.n = 0};
	size_t first = 0, end = n;

	while (first + 1 < n && items[first + 1].start_ns < stretch->from_ns)
		first++;
	while (end > first + 1 && items[end - 2].start_ns >= stretch->until_ns)
		end--;
	for (size_t i = first; i < end; i++) {
		const struct mt_bin bin = bin_of(&items[i]);

		if (group.n > 0 &&
		    group.start_ns >> stretch->shift != bin.start_ns >> stretch->shift) {
			point_write(making, counter, &group, group.start_ns);
			group.n = 0;
		}
		mt_bin_merge(&group, &bin);
	}
	if (group.n > 0)
		point_write(making, counter, &group, group.start_ns);
}

/* The items of a lane, from *at on; *at is then behind them. */
static size_t items_of(const struct mt_items *items, const struct mt_lane *lane, size_t *at)
{
	size_t n = 0;

	while (*at < items->n && mt_lane_compare(&items->items[*at].lane, lane) < 0)
		(*at)++;
	while (*at + n < items->n && mt_lane_compare(&items->items[*at + n].lane, lane) == 0)
		n++;
	return n;
}

static void lanes_write(struct making *making)
{
	size_t at = 0;

	for (size_t i = 0; i < making->n_lanes; i++) {
		const struct mt_timeline_lane *lane = making->lanes[i];
		const bool is_track = i < making->n_tracks;
		const size_t number = is_track ? i : i - making->n_tracks;
		const struct mt_item *items;
		size_t n;

		if (!mt_exact_has(&making->exact, lane->lane.type)) {
			if (is_track)
				bins_write(making, &lane->bins, number);
			else
				points_write(making, &lane->bins, number);
			continue;
		}
		n = items_of(&making->exact.items, &lane->lane, &at);
		items = making->exact.items.items + at;
		if (is_track)
			exact_bars_write(making, items, n, number);
		else
			exact_points_write(making, items, n, number);
	}
}

/* ---- the header ---- */

static void tracks_write(struct mt_jsonw *json, struct making *making)
{
	mt_jsonw_key(json, "tracks");
	mt_jsonw_array_begin(json);
	for (size_t i = 0; i < making->n_tracks; i++) {
		mt_jsonw_object_begin(json);
		mt_jsonw_key(json, "type");
		mt_jsonw_string(json, mt_scan_lane_sort(&making->lanes[i]->lane));
		mt_jsonw_key(json, "name");
		mt_jsonw_string(json, making->lanes[i]->name);
		mt_jsonw_key(json, "depth");
		mt_jsonw_uint64(json, making->lanes[i]->lane.depth);
		mt_jsonw_key(json, "n");
		mt_jsonw_uint64(json, making->lanes[i]->n);
		mt_jsonw_object_end(json);
	}
	mt_jsonw_array_end(json);
}

static void counters_write(struct mt_jsonw *json, struct making *making)
{
	mt_jsonw_key(json, "counters");
	mt_jsonw_array_begin(json);
	for (size_t i = making->n_tracks; i < making->n_lanes; i++) {
		mt_jsonw_object_begin(json);
		mt_jsonw_key(json, "name");
		mt_jsonw_string(json, making->lanes[i]->name);
		mt_jsonw_key(json, "unit");
		mt_jsonw_string(json, mt_scan_lane_unit(&making->lanes[i]->lane));
		mt_jsonw_key(json, "most");
		mt_jsonw_double(json, making->lanes[i]->most);
		mt_jsonw_key(json, "limit");
		mt_jsonw_double(json, making->lanes[i]->limit);
		mt_jsonw_object_end(json);
	}
	mt_jsonw_array_end(json);
}

/* Returns whether they could be read. */
static bool names_write(struct mt_jsonw *json, struct making *making, struct mt_source_run *run)
{
	struct mt_scan *scan = mt_scan_open(run, making->timeline->recording_id);
	char text[NAME_BYTES];

	mt_jsonw_key(json, "names");
	mt_jsonw_array_begin(json);
	for (uint32_t i = 0; scan && i < making->n_names; i++) {
		mt_scan_name(scan, making->names[i], text, sizeof(text));
		mt_jsonw_string(json, text);
	}
	mt_jsonw_array_end(json);
	mt_scan_close(scan);
	return scan != NULL;
}

static void header_write(struct mt_jsonw *json, struct making *making)
{
	const struct mt_timeline *timeline = making->timeline;
	const bool is_empty = timeline->end_ns < timeline->start_ns;

	mt_jsonw_object_begin(json);
	mt_jsonw_key(json, "is_cut");
	mt_jsonw_boolean(json, timeline->n_left_out > 0);
	mt_jsonw_key(json, "n_left_out");
	mt_jsonw_uint64(json, timeline->n_left_out);
	mt_jsonw_key(json, "start_ns");
	mt_jsonw_int64(json, is_empty ? 0 : timeline->start_ns);
	mt_jsonw_key(json, "end_ns");
	mt_jsonw_int64(json, is_empty ? 0 : timeline->end_ns);
	mt_jsonw_key(json, "step_ns");
	mt_jsonw_double(json, exp2(making->stretch.shift));
	mt_jsonw_key(json, "progress");
	mt_jsonw_double(json, mt_timeline_progress(timeline));
	mt_jsonw_key(json, "is_reading");
	mt_jsonw_boolean(json, timeline->is_reading);
	tracks_write(json, making);
	counters_write(json, making);
	mt_jsonw_key(json, "kinds");
	mt_jsonw_array_begin(json);
	for (size_t i = 0; i < mt_n_timeline_kinds; i++)
		mt_jsonw_string(json, mt_timeline_kinds[i]);
	mt_jsonw_array_end(json);
}

static void arrays_begin(struct mt_view_reply *reply)
{
	mt_view_reply_array(reply, "track", MT_ARRAY_U16);
	mt_view_reply_array(reply, "start", MT_ARRAY_F64);
	mt_view_reply_array(reply, "end", MT_ARRAY_F64);
	mt_view_reply_array(reply, "kind", MT_ARRAY_U8);
	mt_view_reply_array(reply, "count", MT_ARRAY_U32);
	mt_view_reply_array(reply, "id", MT_ARRAY_U32);
	mt_view_reply_array(reply, "name", MT_ARRAY_U32);
	mt_view_reply_array(reply, "node", MT_ARRAY_U32);
	mt_view_reply_array(reply, "layer", MT_ARRAY_U16);
	mt_view_reply_array(reply, "total", MT_ARRAY_F32);
	mt_view_reply_array(reply, "longest", MT_ARRAY_F32);
	mt_view_reply_array(reply, "counter", MT_ARRAY_U16);
	mt_view_reply_array(reply, "time", MT_ARRAY_F64);
	mt_view_reply_array(reply, "low", MT_ARRAY_F32);
	mt_view_reply_array(reply, "high", MT_ARRAY_F32);
}

/* ---- the question ---- */

static double real_of(const struct mt_question *question, const char *name, double otherwise)
{
	const char *text = mt_question_text(question, name);
	char *end;
	const double value = text ? strtod(text, &end) : otherwise;

	return text && (end == text || *end != '\0' || !isfinite(value)) ? otherwise : value;
}

static int64_t time_of(const struct mt_question *question, const char *name, int64_t otherwise)
{
	return (int64_t)fmin(MAX_TIME, fmax(-MAX_TIME, real_of(question, name, (double)otherwise)));
}

/* The power of two that is a pixel, or a part of one. */
static unsigned shift_of(int64_t from_ns, int64_t until_ns, double pixels)
{
	const double pixel_ns = fmax(1, ((double)until_ns - (double)from_ns) / pixels);

	return (unsigned)fmin(52, floor(log2(pixel_ns)));
}

static struct mt_stretch stretch_of(const struct mt_question *question, struct mt_timeline *timeline)
{
	const double pixels = fmin(MAX_PIXELS, fmax(1, real_of(question, "width", 1000)));
	struct mt_stretch stretch = {.from_ns = 0, .until_ns = 1};

	mt_timeline_lock(timeline);
	if (timeline->start_ns <= timeline->end_ns) {
		stretch.from_ns = timeline->start_ns;
		stretch.until_ns = timeline->end_ns < INT64_MAX ? timeline->end_ns + 1 : INT64_MAX;
	}
	mt_timeline_unlock(timeline);
	stretch.from_ns = time_of(question, "from", stretch.from_ns);
	stretch.until_ns = time_of(question, "until", stretch.until_ns);
	stretch.shift = shift_of(stretch.from_ns, stretch.until_ns, pixels);
	return stretch;
}

static int lane_compare(const void *a, const void *b)
{
	const struct mt_timeline_lane *const *first = a, *const *second = b;

	return mt_lane_compare(&(*first)->lane, &(*second)->lane);
}

static void lanes_order(struct making *making)
{
	const struct mt_timeline *timeline = making->timeline;

	making->n_lanes = timeline->n_lanes;
	for (size_t i = 0; i < timeline->n_lanes; i++) {
		making->lanes[i] = &timeline->lanes[i];
		making->n_tracks += timeline->lanes[i].lane.type < MT_LANE_N_BARS;
	}
	qsort(making->lanes, making->n_lanes, sizeof(making->lanes[0]), lane_compare);
}

static void failed(struct making *making, struct mt_source_run *run)
{
	if (making->timeline->has_failed)
		mt_view_reply_fail(making->reply, MT_REPLY_BAD, "%s: %s", run->source->name,
				   making->timeline->error);
	else if (sqlite3_errcode(run->db) == SQLITE_OK || sqlite3_errcode(run->db) == SQLITE_DONE)
		mt_view_reply_fail(making->reply, MT_REPLY_FAILED, "out of memory for the timeline");
	else
		mt_answer_error(run, making->reply);
}

static void make(const struct mt_question *question, struct mt_source_run *run, struct making *making)
{
	struct mt_timeline *timeline = making->timeline;
	bool is_good;

	mt_timeline_wait(timeline, (uint32_t)fmin(MAX_WAIT_MS, fmax(0, real_of(question, "wait", 0))));
	making->stretch = stretch_of(question, timeline);
	is_good = making->stretch.from_ns >= making->stretch.until_ns ||
		  mt_exact_read(timeline, run, &making->stretch, &making->exact);
	mt_timeline_lock(timeline);
	if (!is_good || timeline->has_failed) {
		failed(making, run);
		timeline->has_failed = false; /* the next one who asks may have more luck */
	} else {
		arrays_begin(making->reply);
		lanes_order(making);
		if (making->stretch.from_ns < making->stretch.until_ns)
			lanes_write(making);
		header_write(&making->reply->json, making);
		if (!names_write(&making->reply->json, making, run))
			failed(making, run);
	}
	mt_timeline_unlock(timeline);
	free(making->exact.items.items);
}

void mt_timeline_answer(const struct mt_question *question, struct mt_source_run *run,
			struct mt_view_reply *reply)
{
	struct making *making = calloc(1, sizeof(*making));
	struct mt_source *source = run->source;
	const char *read = mt_question_text(question, "read");

	pthread_mutex_lock(&source->timeline_lock);
	if (source->timeline && read && (strcmp(read, "no") == 0 || strcmp(read, "yes") == 0))
		mt_timeline_hold(source->timeline, *read == 'n');
	if (making) {
		making->reply = reply;
		making->timeline =
			mt_timeline_get(source, (int64_t)real_of(question, "recording", 0));
	}
	if (making && making->timeline)
		make(question, run, making);
	else
		mt_view_reply_fail(reply, MT_REPLY_FAILED, "out of memory for the timeline");
	pthread_mutex_unlock(&source->timeline_lock);
	free(making);
}

/* Of as many digits as are bound as a number. */
static void id_print(char ret_id[24], int64_t id)
{
	snprintf(ret_id, 24, "%lld", (long long)(id > MAX_ID ? MAX_ID : id < 0 ? 0 : id));
}

/* Whoever selects looks at the timeline, so that it is read, or will be. */
bool mt_timeline_operations(const struct mt_question *question, struct mt_source_run *run,
			    char ret_ids[4][24])
{
	const int64_t recording_id = (int64_t)real_of(question, "recording", 0);
	const int64_t from_ns = time_of(question, "from", INT64_MIN);
	const int64_t until_ns = time_of(question, "until", INT64_MAX);
	struct mt_source *source = run->source;
	struct mt_timeline *timeline;
	int64_t first, last;
	bool is_known;

	pthread_mutex_lock(&source->timeline_lock);
	timeline = source->timeline && source->timeline->recording_id == recording_id ? source->timeline : NULL;
	is_known = timeline && mt_timeline_wait(timeline, MAX_WAIT_MS);
	for (int i = 0; is_known && i < 2; i++) {
		mt_timeline_ids(timeline, i ? MT_SCAN_GRAPH : MT_SCAN_KERNEL, from_ns, until_ns, &first, &last);
		id_print(ret_ids[2 * i], first);
		id_print(ret_ids[2 * i + 1], last);
	}
	pthread_mutex_unlock(&source->timeline_lock);
	return is_known;
}
