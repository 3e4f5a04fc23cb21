/* SPDX-License-Identifier: MIT */
/*
 * The timeline of a recording, kept in memory in the order of time: bars on tracks (passes, layers,
 * operations by device and stream, ranges by thread, nested) and counters (active experts, rows,
 * power, clocks, temperature). It
 * is read once and then answers any part of it at the width that is looked at: bars that are
 * narrower than a pixel become one bar a pixel, which says how many they are. So an answer grows
 * with the pixels and not with the trace.
 */
#ifndef MT_VIEWER_TIMELINE_H
#define MT_VIEWER_TIMELINE_H

#include "viewer/answer.h"

/* Bars and points together; more are left out, which is told. */
#define MT_TIMELINE_MAX_ITEMS (6u << 20)
#define MT_TIMELINE_MAX_TRACKS 256

struct mt_bar {
	int64_t start_ns, end_ns;
	uint32_t id;	/* of the pass, operation or range; with a node, of the launch of the graph */
	uint32_t name;	/* in the timeline's names; 0: none */
	uint32_t node;	/* of the graph, from 1; 0: none */
	uint16_t layer; /* its number, from 1; 0: none */
	uint8_t kind;	/* index into mt_timeline_kinds */
};

struct mt_track {
	char type[16]; /* "passes", "layers", "kernels", "collectives", "ranges" */
	char name[96];
	unsigned int depth; /* below another track of this type and name */
	struct mt_bar *bars;
	size_t n_bars, size;
};

struct mt_point {
	int64_t time_ns;
	float value;
};

struct mt_counter {
	char name[96];
	char unit[16];
	double limit; /* a line across it; 0: none */
	struct mt_point *points;
	size_t n_points, size;
};

/* Names of operations and ranges, each once, and an index to find them by. */
struct mt_timeline_names {
	char **texts; /* texts[0] is NULL: no name */
	uint32_t n_texts;
	uint32_t *slots;
	uint32_t n_slots;
};

struct mt_timeline {
	int64_t recording_id;
	int64_t start_ns, end_ns;
	int64_t read_ns; /* when it was read */
	uint64_t n_left_out;
	size_t n_items;
	size_t n_tracks, n_counters;
	struct mt_track tracks[MT_TIMELINE_MAX_TRACKS];
	struct mt_counter counters[MT_TIMELINE_MAX_TRACKS];
	struct mt_timeline_names names;
};

/* What bars are drawn as: phases of passes, roles of operations, then "layer" and "range". */
extern const char *const mt_timeline_kinds[];
extern const size_t mt_n_timeline_kinds;

/* Read it. Returns NULL after a failure in @reply. */
struct mt_timeline *mt_timeline_read(struct mt_source_run *run, int64_t recording_id,
				     struct mt_view_reply *reply);
void mt_timeline_free(struct mt_timeline *timeline);

/*
 * The number of a name, new or known; 0 without memory, for NULL and beyond a number of names that
 * no one could tell apart. Long ones are shortened.
 */
uint32_t mt_timeline_name(struct mt_timeline_names *names, const char *text);
void mt_timeline_names_free(struct mt_timeline_names *names);

/*
 * Put the tracks' bars in the order of time, and those that overlap others of their track on tracks
 * of their own below it, so that none hides another: ranges within ranges are a step deeper. Returns
 * false without memory.
 */
bool mt_timeline_lanes(struct mt_timeline *timeline);

/* Parameters: recording, from and until (ns; absent: all of it), width (pixels). */
void mt_timeline_answer(const struct mt_question *question, struct mt_source_run *run,
			struct mt_view_reply *reply);

#endif
