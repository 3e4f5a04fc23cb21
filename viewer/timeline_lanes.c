/* SPDX-License-Identifier: MIT */
/*
 * Names of a timeline, each kept once, and the order of its bars: by time, and those that overlap
 * on tracks one below the other. A bar goes to the highest of them where it begins after what lies
 * there has ended; so of ranges the depth is that of their nesting.
 */
#include "viewer/timeline.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NAMES      65536
#define MAX_NAME_BYTES 200
#define MAX_DEPTH      16

/* ---- names ---- */

static uint32_t hash_of(const char *text)
{
	uint32_t hash = 2166136261u;

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 16777619u;
	return hash;
}

/* Where the name is, or belongs. */
static uint32_t *slot_find(const struct mt_timeline_names *names, const char *text)
{
	uint32_t i = hash_of(text) & (names->n_slots - 1);

	while (names->slots[i] && strcmp(names->texts[names->slots[i]], text) != 0)
		i = (i + 1) & (names->n_slots - 1);
	return &names->slots[i];
}

/* At most half of the slots are used. */
static bool names_grow(struct mt_timeline_names *names)
{
	const uint32_t n_slots = names->n_slots ? 2 * names->n_slots : 256;
	uint32_t *slots = calloc(n_slots, sizeof(*slots));
	char **texts = realloc(names->texts, n_slots / 2 * sizeof(*texts));

	if (texts)
		names->texts = texts;
	if (!slots || !texts) {
		free(slots);
		return false;
	}
	if (names->n_texts == 0)
		names->texts[names->n_texts++] = NULL;
	free(names->slots);
	names->slots = slots;
	names->n_slots = n_slots;
	for (uint32_t i = 1; i < names->n_texts; i++)
		*slot_find(names, names->texts[i]) = i;
	return true;
}

uint32_t mt_timeline_name(struct mt_timeline_names *names, const char *text)
{
	char shortened[MAX_NAME_BYTES + 1];
	uint32_t *slot;

	if (!text || !*text)
		return 0;
	snprintf(shortened, sizeof(shortened), "%s", text);
	if (names->n_texts >= names->n_slots / 2 && !names_grow(names))
		return 0;
	slot = slot_find(names, shortened);
	if (*slot || names->n_texts >= MAX_NAMES)
		return *slot;
	names->texts[names->n_texts] = strdup(shortened);
	if (!names->texts[names->n_texts])
		return 0;
	*slot = names->n_texts++;
	return *slot;
}

void mt_timeline_names_free(struct mt_timeline_names *names)
{
	for (uint32_t i = 1; i < names->n_texts; i++)
		free(names->texts[i]);
	free(names->texts);
	free(names->slots);
	memset(names, 0, sizeof(*names));
}

/* ---- lanes ---- */

static int bar_compare(const void *a, const void *b)
{
	const struct mt_bar *first = a, *second = b;

	if (first->start_ns != second->start_ns)
		return first->start_ns < second->start_ns ? -1 : 1;
	if (first->end_ns != second->end_ns)
		return first->end_ns > second->end_ns ? -1 : 1;
	return first->id < second->id ? -1 : first->id > second->id;
}

static void track_order(struct mt_track *track)
{
	for (size_t i = 1; i < track->n_bars; i++) {
		if (bar_compare(&track->bars[i - 1], &track->bars[i]) > 0) {
			qsort(track->bars, track->n_bars, sizeof(*track->bars), bar_compare);
			return;
		}
	}
}

/* The depth of each bar, of which there are at most @max_depth; returns how many there are. */
static unsigned int depths_find(const struct mt_track *track, unsigned int max_depth,
				unsigned char *depths)
{
	int64_t end_ns[MAX_DEPTH];
	unsigned int n = 0;

	for (size_t i = 0; i < track->n_bars; i++) {
		const struct mt_bar *bar = &track->bars[i];
		unsigned int depth = 0;

		while (depth < n && end_ns[depth] > bar->start_ns)
			depth++;
		if (depth == max_depth)
			depth--;
		if (depth == n)
			end_ns[n++] = bar->end_ns;
		else if (bar->end_ns > end_ns[depth])
			end_ns[depth] = bar->end_ns;
		depths[i] = (unsigned char)depth;
	}
	return n;
}

/* What lies at @depth goes to a track of its own; the order stays. */
static bool depth_take(const struct mt_track *track, const unsigned char *depths, unsigned int depth,
		       struct mt_track *ret_taken)
{
	struct mt_track taken = *track;

	taken.depth = depth;
	taken.n_bars = taken.size = 0;
	taken.bars = NULL;
	for (size_t i = 0; i < track->n_bars; i++)
		taken.size += depths[i] == depth;
	taken.bars = malloc(taken.size * sizeof(*taken.bars));
	if (!taken.bars)
		return false;
	for (size_t i = 0; i < track->n_bars; i++)
		if (depths[i] == depth)
			taken.bars[taken.n_bars++] = track->bars[i];
	*ret_taken = taken;
	return true;
}

static bool track_part(struct mt_timeline *timeline, size_t number)
{
	struct mt_track *track = &timeline->tracks[number];
	const size_t room = MT_TIMELINE_MAX_TRACKS - timeline->n_tracks + 1;
	unsigned char *depths = malloc(track->n_bars + 1);
	unsigned int n;
	size_t n_kept = 0;

	if (!depths)
		return false;
	n = depths_find(track, room < MAX_DEPTH ? (unsigned int)room : MAX_DEPTH, depths);
	for (unsigned int depth = 1; depth < n; depth++) {
		if (!depth_take(track, depths, depth, &timeline->tracks[timeline->n_tracks])) {
			free(depths);
			return false;
		}
		timeline->n_tracks++;
	}
	for (size_t i = 0; i < track->n_bars; i++)
		if (depths[i] == 0)
			track->bars[n_kept++] = track->bars[i];
	track->n_bars = n_kept;
	free(depths);
	return true;
}

bool mt_timeline_lanes(struct mt_timeline *timeline)
{
	const size_t n_tracks = timeline->n_tracks;

	for (size_t i = 0; i < n_tracks; i++) {
		track_order(&timeline->tracks[i]);
		if (!track_part(timeline, i))
			return false;
	}
	return true;
}
