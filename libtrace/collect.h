/* SPDX-License-Identifier: MIT */
/*
 * The collectors of a session: which were asked for, a thread for each one, and the readings
 * between those threads and the writer. Lock: one for all of it, taken alone; no collector is
 * called under it.
 *
 * A collector that does not come back is cut off: what it delivers later is dropped, its thread is
 * left behind, and this memory stays until that thread lets go of it.
 */
#ifndef MT_COLLECT_H
#define MT_COLLECT_H

#include <pthread.h>
#include <stdint.h>

#include "libtrace/clocks.h"
#include "libtrace/collector.h"
#include "libtrace/versions.h"

#define MT_MAX_COLLECTORS 8u
#define MT_MAX_COLLECT_DEVICES 64u
/* Readings that wait for the writer; further ones push the oldest out. */
#define MT_MAX_READINGS 8192u

struct moetrace_session;
struct mt_collect;

/* Graphs whose nodes are known, a session, and nodes a graph; the launches of others have none. */
#define MT_MAX_GRAPHS 4096u
#define MT_MAX_GRAPH_NODES 65536u

enum mt_reading_type {
	MT_READING_POWER,
	MT_READING_LINK,
	MT_READING_HOST,
	MT_READING_KERNEL,
	MT_READING_CLOCK,
	MT_READING_OVERHEAD,
};

struct mt_reading {
	enum mt_reading_type type;
	uint32_t source; /* number of its collector */
	union {
		struct mt_power_reading power;
		struct mt_link_reading link;
		struct mt_host_reading host;
		struct mt_kernel_reading kernel;
		struct mt_clock_reading clock;
		struct mt_overhead_reading overhead;
	};
};

struct mt_collect_device {
	char uuid[64];
	char name[96];
};

/* The nodes of a graph. */
struct mt_collect_graph {
	uint32_t n_nodes;
	struct mt_graph_node nodes[];
};

/* What the writer stores of a collector. */
struct mt_collect_status {
	const char *name;
	int is_known; /* it was opened, or tried to be */
	int has_hung_at_end; /* its end did not come back */
	struct mt_collector_report report;
	uint64_t n_dropped;
	int is_dropped_unknown;
	int is_calls_unknown; /* n_calls, calls_ns and longest_call_ns are */
	uint64_t n_calls;
	uint64_t calls_ns;
	uint64_t longest_call_ns;
	uint64_t interval_ns;
};

/*
 * Whether a list such as "host,cupti=graph" names collectors, with modes that they have; NULL, "" and
 * "none" name none. Otherwise what is wrong, and what to do.
 */
int mt_collect_check(const char *list, char *ret_why, size_t why_bytes);
/* Whether the variables of the environment can be followed; else the error of the opening is set. */
int mt_collect_check_environment(void);
/* The names of all, with commas between them. */
void mt_collect_names(char *ret_names, size_t names_bytes);

/*
 * Threads for the collectors of the list, which was checked. @ret_collect is NULL where it names none.
 * Returns MOETRACE_OK or MOETRACE_E_NOMEM.
 */
int mt_collect_open(struct moetrace_session *session, const char *list,
		    struct mt_collect **ret_collect);
/* NULL is fine for each of the following. */
/* Close the collectors, while there is still a writer to tell of those that hang. */
void mt_collect_end(struct mt_collect *collect);
/* After that: nothing of it is used any more. */
void mt_collect_close(struct mt_collect *collect);
/* In a forked child: the threads are not there. */
void mt_collect_free(struct mt_collect *collect);

/* The GPU whose passes are recorded: from the next recording on the others are left alone. */
void mt_collect_use_gpu(struct mt_collect *collect, const char *uuid);

/* A recording begins: each collector reads now and then from time to time. */
void mt_collect_start(struct mt_collect *collect);
/*
 * It ends: each one reads once more; then they rest. With @until_ns (CLOCK_MONOTONIC) that is waited for,
 * until then, for half of the time in which a call is given up at most, and for a sixth of it at least.
 * 0: it is not.
 */
void mt_collect_stop(struct mt_collect *collect, uint64_t until_ns);
/* After an end that was not waited for: a call that was under way then has a tenth of a second more. */
void mt_collect_settle(struct mt_collect *collect);

/* Writer: counters begin anew with a recording. */
void mt_collect_reset(struct mt_collect *collect);
/* Writer: they are those of a recording whose rows begin at @start_ns on the session's clock. */
void mt_collect_recount(struct mt_collect *collect, uint64_t start_ns);
/* Writer: cut off whoever did not come back. */
void mt_collect_watch(struct mt_collect *collect);
/*
 * Writer: take the oldest readings, as far as they are not later than @until_ns; how many. Each is to
 * be given back.
 */
uint32_t mt_collect_take(struct mt_collect *collect, uint64_t until_ns,
			 struct mt_reading *ret_readings, uint32_t n_max);
void mt_reading_release(struct mt_reading *reading);
/* Writer: a reading that was taken makes no row: its source has lost it. */
void mt_collect_lose(struct mt_collect *collect, uint32_t source);
uint64_t mt_reading_ns(const struct mt_reading *reading);
uint32_t mt_collect_count(const struct mt_collect *collect);
/* Of a recording whose end has come if @is_over. */
void mt_collect_status_get(struct mt_collect *collect, uint32_t source, int is_over,
			   struct mt_collect_status *ret_status);
/* Writer: the versions that collectors told, added to @versions. */
void mt_collect_versions_get(struct mt_collect *collect, struct mt_versions *versions);
/* Writer: a GPU that was named; 0: there is none of the number. */
int mt_collect_device_get(struct mt_collect *collect, uint32_t device,
			  struct mt_collect_device *ret_device);
/* Writer: a graph that was told; it stays as long as the session. NULL: there is none. */
const struct mt_collect_graph *mt_collect_graph_get(struct mt_collect *collect, uint32_t number);

#endif
