/* SPDX-License-Identifier: MIT */
/*
 * The timeline of a recording: bars in lanes (passes, layers, operations by device and stream, ranges
 * by thread) and counters (active experts, rows, power). A thread reads the tables once, some thousand
 * rows at a time and all over the recording first, and keeps what they come to in steps of time,
 * within a bound, and when the rows of each span begin and end. That answers any stretch of time at
 * once, more and more truly, as long as its pixels are no finer than the steps; a finer one is read
 * from the rows of the spans that reach into it. So an answer, and what it takes, grow with the
 * pixels and not with the trace. The thread ends when nobody has asked for a while, and goes on
 * from there when somebody asks; where the file grows, what was added is read alone.
 */
#ifndef MT_VIEWER_TIMELINE_H
#define MT_VIEWER_TIMELINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "viewer/answer.h"
#include "viewer/timeline_bins.h"
#include "viewer/timeline_scan.h"

#define MT_TIMELINE_MAX_LANES 512
/* Of some 12 kB each. */
#define MT_TIMELINE_MAX_CHUNKS 6144

/* A span of row ids of a table. */
struct mt_block {
	int64_t first_id, last_id;
	int64_t start_ns, end_ns; /* of what it holds; nothing: start_ns is greater */
	uint32_t n_items;
	bool is_read;
};

struct mt_block_table {
	struct mt_block *blocks; /* [n_blocks] */
	size_t n_blocks, n_read;
	size_t first; /* of those that are read in turns now */
	uint64_t turn;
	int64_t last_id; /* the blocks reach to here */
};

/* How deep ranges lie in one another; without depths each block is looked at alone. */
struct mt_range_depths {
	int64_t first_id;
	size_t n;
	unsigned char *depths; /* [n], by id */
};

struct mt_timeline_lane {
	struct mt_lane lane;
	char name[96];
	struct mt_bins bins;
	uint64_t n;
	double most, limit; /* of a counter */
};

struct mt_timeline {
	struct mt_source *source;
	int64_t recording_id;
	pthread_t thread;
	bool has_thread;       /* to be joined; this and the next one belong to the source's lock */
	bool is_held;	       /* nothing is read until somebody says so */
	atomic_bool stops;     /* the thread shall end */
	atomic_int n_waiting;  /* who want the lock below; the thread lets them */
	atomic_llong asked_ns; /* when somebody asked last */
	pthread_mutex_t lock;  /* protects all below */
	pthread_cond_t changed;
	bool is_reading, has_failed;
	int64_t looked_ns; /* when the thread last looked for rows that were added */
	char error[256];
	struct mt_block_table tables[MT_SCAN_N_TABLES];
	struct mt_range_depths ranges;
	int64_t start_ns, end_ns;
	uint64_t n_left_out;
	size_t max_items; /* that are read for an answer */
	size_t n_lanes;
	struct mt_timeline_lane lanes[MT_TIMELINE_MAX_LANES];
};

/* Under the source's timeline lock: that of the recording, begun if need be, and reading goes on if
 * there is anything to read. NULL without memory. */
struct mt_timeline *mt_timeline_get(struct mt_source *source, int64_t recording_id);

/* Between 0 and 1; under the timeline's lock. */
double mt_timeline_progress(const struct mt_timeline *timeline);

/* Wait until all was read, at most so long. Returns whether it was. */
bool mt_timeline_wait(struct mt_timeline *timeline, uint32_t limit_ms);

/* Under the source's timeline lock: end the thread, what was read stays; or let it go on, when somebody
 * asks next. */
void mt_timeline_hold(struct mt_timeline *timeline, bool is_held);

void mt_timeline_lock(struct mt_timeline *timeline);
void mt_timeline_unlock(struct mt_timeline *timeline);

void mt_timeline_free(struct mt_timeline *timeline);

/* A stretch of time as it is answered, in steps of 2^shift ns. */
struct mt_stretch {
	int64_t from_ns, until_ns;
	unsigned shift;
};

/* Rows of the blocks that reach into a stretch. */
struct mt_exact {
	bool has_table[MT_SCAN_N_TABLES];
	struct mt_items items; /* in the order of lanes, starts, and lengths, longest first */
};

/*
 * Read what lies in @stretch from the tables of which some lane is too coarse for it, unless the
 * blocks that reach into it hold more than is read for one answer. Returns whether it went well.
 */
bool mt_exact_read(struct mt_timeline *timeline, struct mt_source_run *run,
		   const struct mt_stretch *stretch, struct mt_exact *exact);

/* What table a lane's items come from; operations come from two. */
bool mt_exact_has(const struct mt_exact *exact, enum mt_lane_type type);

/*
 * Where the operations lie that reach into a stretch, by the parameters recording, from and until: the
 * first and last id in table kernel, and in graph_launch. Returns whether that is known: where the timeline
 * is read, or soon is.
 */
bool mt_timeline_operations(const struct mt_question *question, struct mt_source_run *run,
			    char ret_ids[4][24]);

/* The same of any table, in numbers; none: the first is greater. */
void mt_timeline_ids(struct mt_timeline *timeline, enum mt_scan_table table, int64_t from_ns,
		     int64_t until_ns, int64_t *ret_first, int64_t *ret_last);

/* The depths of ranges from @first to @last, if they are not too many. */
enum mt_scan_result mt_range_depths_find(struct mt_scan *scan, int64_t first, int64_t last,
					 struct mt_range_depths *ret_ranges);

/* Set the depths in the lanes of what a block of @table holds. Returns whether there was memory. */
bool mt_depths_of(const struct mt_range_depths *ranges, enum mt_scan_table table,
		  struct mt_item *items, size_t n);

/* The order of lanes. */
int mt_lane_compare(const struct mt_lane *a, const struct mt_lane *b);

/*
 * Parameters: recording, from and until (ns; absent: all of it), width (pixels), wait (ms, for all to
 * be read), read (no: read no more for now; yes: go on).
 */
void mt_timeline_answer(const struct mt_question *question, struct mt_source_run *run,
			struct mt_view_reply *reply);

#endif
