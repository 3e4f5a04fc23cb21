/* SPDX-License-Identifier: MIT */
/*
 * Reads what a timeline is made of from a trace, a span of row ids at a time: the tables ascend by
 * their keys as time does, about, and have no other index. What a span holds comes as bars and
 * points, each in a lane. Spans do not depend on one another and may be read in any order; rows
 * whose times cannot be true are counted.
 */
#ifndef MT_VIEWER_TIMELINE_SCAN_H
#define MT_VIEWER_TIMELINE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "viewer/source.h"

/* Where rows come from. Passes bring their layers, and counters. */
enum mt_scan_table {
	MT_SCAN_PASS,
	MT_SCAN_POWER,
	MT_SCAN_RANGE,
	MT_SCAN_GRAPH,
	MT_SCAN_KERNEL,
	MT_SCAN_N_TABLES,
};

/* Bars before counters: lanes are shown in this order. */
enum mt_lane_type {
	MT_LANE_PASSES,	 /* a: model, b: 1 for microbatches */
	MT_LANE_LAYERS,	 /* a: model */
	MT_LANE_KERNELS, /* a: device, b: stream, INT64_MIN without one */
	MT_LANE_COLLECTIVES, /* the same of what moves data between ranks */
	MT_LANE_RANGES,	 /* a: thread */
	MT_LANE_N_BARS,
	MT_LANE_ACTIVE = MT_LANE_N_BARS,
	MT_LANE_ROWS,
	MT_LANE_POWER, /* a: device, b: its domain, as a number */
	MT_LANE_CLOCK, /* a: device */
	MT_LANE_MEMORY_CLOCK,
	MT_LANE_TEMPERATURE,
	MT_LANE_N_TYPES,
};

struct mt_lane {
	enum mt_lane_type type;
	int64_t a, b;
	unsigned depth; /* below another lane that is equal but for it */
};

#define MT_NAME_GRAPH 0x80000000u

/* A bar, or a point of a counter, whose value it has. */
struct mt_item {
	struct mt_lane lane;
	int64_t start_ns, end_ns; /* of a point equal */
	uint32_t id;		  /* of the pass, operation, launch of a graph or range; a layer's number */
	uint32_t name;		  /* key of table string; a graph's number and MT_NAME_GRAPH; 0: none */
	uint32_t node;		  /* of the graph, from 1; 0: none */
	uint16_t layer;		  /* its number, from 1; 0: none */
	uint8_t kind;		  /* index into mt_timeline_kinds */
	float value, limit;	  /* limit: a line across the counter; 0: none */
};

struct mt_items {
	struct mt_item *items;
	size_t n, size;
	uint64_t n_left_out;
};

/* What bars are drawn as: phases of passes, roles of operations, then "layer" and "range". */
extern const char *const mt_timeline_kinds[];
extern const size_t mt_n_timeline_kinds;

struct mt_scan;

/* Reads by @run, which stays the caller's. Returns NULL without memory, or if tables are missing. */
struct mt_scan *mt_scan_open(struct mt_source_run *run, int64_t recording_id);
void mt_scan_close(struct mt_scan *scan);

/* Rows of @table lie from *ret_first to *ret_last; none: the first is greater. Returns whether it
 * could be read. */
bool mt_scan_bounds(struct mt_scan *scan, enum mt_scan_table table, int64_t *ret_first,
		    int64_t *ret_last);

enum mt_scan_result {
	MT_SCAN_DONE,
	MT_SCAN_FAILED, /* the connection says why */
	MT_SCAN_NO_MEMORY,
};

/* Append what the rows from @first to @last hold. */
enum mt_scan_result mt_scan_read(struct mt_scan *scan, enum mt_scan_table table, int64_t first,
				 int64_t last, struct mt_items *items);

/* The name, as it is shown, of a lane that this scan has read, and a counter's unit. */
void mt_scan_lane_name(struct mt_scan *scan, const struct mt_lane *lane, char *ret_name,
		       size_t n_bytes);
const char *mt_scan_lane_unit(const struct mt_lane *lane);

/* Of a bar's lane the sort: "passes", "layers", "kernels", "collectives" or "ranges". */
const char *mt_scan_lane_sort(const struct mt_lane *lane);

/* The text of an item's name; it is cut to @n_bytes. */
void mt_scan_name(struct mt_scan *scan, uint32_t name, char *ret_text, size_t n_bytes);

#endif
