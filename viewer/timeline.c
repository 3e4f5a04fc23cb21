/* SPDX-License-Identifier: MIT */
/*
 * Answers a part of a timeline. Each track is walked pixel by pixel: from a bar that is at least a
 * pixel wide to the next, and over narrower ones by a binary search for the end of the pixel, so
 * that a track costs its pixels times a logarithm. Points of a counter become the lowest and highest
 * of each pixel.
 */
#include "viewer/timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_PIXELS 20000
/* What is live is read again after this long. */
#define LIVE_NS 2000000000

enum {
	A_TRACK, A_START, A_END, A_KIND, A_COUNT, A_ID, A_NAME, A_NODE, A_LAYER,
	C_COUNTER, C_TIME, C_LOW, C_HIGH
};

struct part {
	double from_ns, until_ns, pixel_ns;
	struct mt_view_reply *reply;
	uint32_t *sent_names; /* the number in the answer of each name, from 1; 0: not in it yet */
	uint32_t n_sent_names;
};

/* One bar for @n: the longest of them is told of. */
static void bar_write(struct part *part, size_t track, double start_ns, double end_ns,
		      const struct mt_bar *bar, size_t n)
{
	uint32_t *name = &part->sent_names[bar->name];

	if (bar->name && !*name)
		*name = ++part->n_sent_names;
	mt_view_reply_item(part->reply, A_TRACK, (double)track);
	mt_view_reply_item(part->reply, A_START, start_ns);
	mt_view_reply_item(part->reply, A_END, end_ns);
	mt_view_reply_item(part->reply, A_KIND, bar->kind);
	mt_view_reply_item(part->reply, A_COUNT, (double)n);
	mt_view_reply_item(part->reply, A_ID, bar->id);
	mt_view_reply_item(part->reply, A_NAME, *name);
	mt_view_reply_item(part->reply, A_NODE, bar->node);
	mt_view_reply_item(part->reply, A_LAYER, bar->layer);
}

static void one_write(struct part *part, size_t track, const struct mt_bar *bar)
{
	bar_write(part, track, (double)bar->start_ns, (double)bar->end_ns, bar, 1);
}

/* The first bar that starts at @time_ns or later. */
static size_t bar_find(const struct mt_track *track, double time_ns)
{
	size_t low = 0, high = track->n_bars;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if ((double)track->bars[middle].start_ns < time_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Of the bars [first, end) of a pixel the longest, for all of them; some are looked at. */
static const struct mt_bar *bar_choose(const struct mt_track *track, size_t first, size_t end)
{
	const size_t step = (end - first) / 64 + 1;
	const struct mt_bar *best = &track->bars[first];

	for (size_t i = first; i < end; i += step)
		if (track->bars[i].end_ns - track->bars[i].start_ns > best->end_ns - best->start_ns)
			best = &track->bars[i];
	return best;
}

static void track_answer(struct part *part, const struct mt_track *track, size_t number)
{
	size_t i = bar_find(track, part->from_ns);

	/* Those before may reach in; ranges within one another are a few deep. */
	for (size_t back = i < 16 ? 0 : i - 16; back < i; back++)
		if ((double)track->bars[back].end_ns > part->from_ns)
			one_write(part, number, &track->bars[back]);
	while (i < track->n_bars && (double)track->bars[i].start_ns < part->until_ns) {
		const struct mt_bar *bar = &track->bars[i];
		double pixel = floor(((double)bar->start_ns - part->from_ns) / part->pixel_ns);
		size_t end;

		if ((double)(bar->end_ns - bar->start_ns) >= part->pixel_ns) {
			one_write(part, number, bar);
			i++;
			continue;
		}
		end = bar_find(track, part->from_ns + (pixel + 1) * part->pixel_ns);
		if (end <= i)
			end = i + 1;
		/* A wide bar that begins in this pixel is written by itself. */
		if ((double)(track->bars[end - 1].end_ns - track->bars[end - 1].start_ns) >=
			    part->pixel_ns &&
		    end - 1 > i)
			end--;
		bar = bar_choose(track, i, end);
		if (end - i == 1)
			one_write(part, number, bar);
		else
			bar_write(part, number, (double)track->bars[i].start_ns,
				  (double)track->bars[end - 1].end_ns, bar, end - i);
		i = end;
	}
}

static size_t point_find(const struct mt_counter *counter, double time_ns)
{
	size_t low = 0, high = counter->n_points;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if ((double)counter->points[middle].time_ns < time_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Also the points just outside, so that lines reach the borders. */
static void counter_answer(const struct part *part, const struct mt_counter *counter, size_t number)
{
	size_t i = point_find(counter, part->from_ns);
	size_t last = point_find(counter, part->until_ns);

	i = i > 0 ? i - 1 : 0;
	last = last < counter->n_points ? last + 1 : last;
	while (i < last) {
		const double pixel =
			floor(((double)counter->points[i].time_ns - part->from_ns) / part->pixel_ns);
		const double end_ns = part->from_ns + (pixel + 1) * part->pixel_ns;
		const int64_t time_ns = counter->points[i].time_ns;
		float low = counter->points[i].value, high = low;

		for (i++; i < last && (double)counter->points[i].time_ns < end_ns; i++) {
			low = fminf(low, counter->points[i].value);
			high = fmaxf(high, counter->points[i].value);
		}
		mt_view_reply_item(part->reply, C_COUNTER, (double)number);
		mt_view_reply_item(part->reply, C_TIME, (double)time_ns);
		mt_view_reply_item(part->reply, C_LOW, low);
		mt_view_reply_item(part->reply, C_HIGH, high);
	}
}

/* ---- the header ---- */

static void tracks_write(struct mt_jsonw *json, const struct mt_timeline *timeline)
{
	mt_jsonw_key(json, "tracks");
	mt_jsonw_array_begin(json);
	for (size_t i = 0; i < timeline->n_tracks; i++) {
		mt_jsonw_object_begin(json);
		mt_jsonw_key(json, "type");
		mt_jsonw_string(json, timeline->tracks[i].type);
		mt_jsonw_key(json, "name");
		mt_jsonw_string(json, timeline->tracks[i].name);
		mt_jsonw_key(json, "depth");
		mt_jsonw_uint64(json, timeline->tracks[i].depth);
		mt_jsonw_key(json, "n");
		mt_jsonw_uint64(json, timeline->tracks[i].n_bars);
		mt_jsonw_object_end(json);
	}
	mt_jsonw_array_end(json);
}

static void counters_write(struct mt_jsonw *json, const struct mt_timeline *timeline)
{
	mt_jsonw_key(json, "counters");
	mt_jsonw_array_begin(json);
	for (size_t i = 0; i < timeline->n_counters; i++) {
		const struct mt_counter *counter = &timeline->counters[i];
		float most = 0;

		for (size_t j = 0; j < counter->n_points; j++)
			most = fmaxf(most, counter->points[j].value);
		mt_jsonw_object_begin(json);
		mt_jsonw_key(json, "name");
		mt_jsonw_string(json, counter->name);
		mt_jsonw_key(json, "unit");
		mt_jsonw_string(json, counter->unit);
		mt_jsonw_key(json, "most");
		mt_jsonw_double(json, most);
		mt_jsonw_key(json, "limit");
		mt_jsonw_double(json, counter->limit);
		mt_jsonw_object_end(json);
	}
	mt_jsonw_array_end(json);
}

/* Of the names those that the answer's bars have, in the order of their numbers there. */
static void names_write(struct mt_jsonw *json, const struct mt_timeline *timeline,
			const struct part *part, uint32_t *order)
{
	for (uint32_t i = 1; i < timeline->names.n_texts; i++)
		if (part->sent_names[i])
			order[part->sent_names[i] - 1] = i;
	mt_jsonw_key(json, "names");
	mt_jsonw_array_begin(json);
	for (uint32_t i = 0; i < part->n_sent_names; i++)
		mt_jsonw_string(json, timeline->names.texts[order[i]]);
	mt_jsonw_array_end(json);
}

static void header_write(struct mt_jsonw *json, const struct mt_timeline *timeline)
{
	mt_jsonw_object_begin(json);
	mt_jsonw_key(json, "is_cut");
	mt_jsonw_boolean(json, timeline->n_left_out > 0);
	mt_jsonw_key(json, "n_left_out");
	mt_jsonw_uint64(json, timeline->n_left_out);
	mt_jsonw_key(json, "start_ns");
	mt_jsonw_int64(json, timeline->start_ns);
	mt_jsonw_key(json, "end_ns");
	mt_jsonw_int64(json, timeline->end_ns);
	tracks_write(json, timeline);
	counters_write(json, timeline);
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
	mt_view_reply_array(reply, "counter", MT_ARRAY_U16);
	mt_view_reply_array(reply, "time", MT_ARRAY_F64);
	mt_view_reply_array(reply, "low", MT_ARRAY_F32);
	mt_view_reply_array(reply, "high", MT_ARRAY_F32);
}

/* ---- the question ---- */

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static double real_of(const struct mt_question *question, const char *name, double otherwise)
{
	const char *text = mt_question_text(question, name);
	char *end;
	const double value = text ? strtod(text, &end) : otherwise;

	return text && (end == text || *end != '\0' || !isfinite(value)) ? otherwise : value;
}

/* Under the source's lock: the timeline of this recording, the one that is kept or a new one. */
static const struct mt_timeline *timeline_get(struct mt_source_run *run, int64_t recording_id,
					      struct mt_view_reply *reply)
{
	struct mt_source *source = run->source;
	struct mt_timeline *kept = source->timeline;

	if (kept && kept->recording_id == recording_id &&
	    (!source->is_live || now_ns() - kept->read_ns < LIVE_NS))
		return kept;
	source->timeline = NULL;
	mt_timeline_free(kept);
	kept = mt_timeline_read(run, recording_id, reply);
	if (kept)
		kept->read_ns = now_ns();
	source->timeline = kept;
	return kept;
}

static void part_answer(const struct mt_question *question, const struct mt_timeline *timeline,
			struct mt_view_reply *reply)
{
	const double pixels = fmin(MAX_PIXELS, fmax(1, real_of(question, "width", 1000)));
	const size_t n_names = timeline->names.n_texts + 1;
	struct part part = {.reply = reply};

	/* Behind the numbers of names their order. */
	part.sent_names = calloc(2 * n_names, sizeof(*part.sent_names));
	if (!part.sent_names) {
		mt_view_reply_fail(reply, MT_REPLY_FAILED, "out of memory for the timeline");
		return;
	}
	part.from_ns = real_of(question, "from", (double)timeline->start_ns);
	part.until_ns = real_of(question, "until", (double)timeline->end_ns + 1);
	part.pixel_ns = fmax(1, (part.until_ns - part.from_ns) / pixels);
	arrays_begin(reply);
	for (size_t i = 0; i < timeline->n_tracks; i++)
		track_answer(&part, &timeline->tracks[i], i);
	for (size_t i = 0; i < timeline->n_counters; i++)
		counter_answer(&part, &timeline->counters[i], i);
	header_write(&reply->json, timeline);
	names_write(&reply->json, timeline, &part, part.sent_names + n_names);
	free(part.sent_names);
}

void mt_timeline_answer(const struct mt_question *question, struct mt_source_run *run,
			struct mt_view_reply *reply)
{
	const struct mt_timeline *timeline;

	pthread_mutex_lock(&run->source->timeline_lock);
	timeline = timeline_get(run, (int64_t)real_of(question, "recording", 0), reply);
	if (timeline)
		part_answer(question, timeline, reply);
	pthread_mutex_unlock(&run->source->timeline_lock);
}
