/* SPDX-License-Identifier: MIT */
/*
 * What the parts of the collectors' machinery share: the session's side (collect.c), the threads
 * (collect_thread.c), what is said of their calls (collect_calls.c) and the list of readings
 * (collect_out.c).
 */
#ifndef MT_COLLECT_INTERNAL_H
#define MT_COLLECT_INTERNAL_H

#include <pthread.h>
#include <stdint.h>

#include "libtrace/clock.h"
#include "libtrace/collect.h"
#include "libtrace/ties.h"

/* Calls of a source that are remembered: those of 200 s, ten times a second. */
#define MT_MAX_CALLS 2048u

struct mt_call {
	uint64_t end_ns; /* session clock */
	uint64_t cost_ns;
	uint64_t n_dropped; /* that it told, or somebody meanwhile */
};

struct mt_source {
	struct mt_collect *collect;
	const struct mt_collector_ops *ops;
	struct mt_collector_out out;
	pthread_t thread;
	int has_thread;
	int has_left;           /* its thread is about to end */
	int is_cut;             /* nobody waits for it any more */
	int is_ending;          /* it is being closed, which whoever closes it waits for */
	uint32_t n_begun;       /* recordings that it has read for */
	uint32_t n_finished;    /* ends of recordings that it has read for */
	uint64_t busy_since_ns; /* CLOCK_MONOTONIC; 0: it is not called */
	uint64_t mean_ns;       /* of its last readings; 0: there was none but the first */
	uint64_t n_dropped;     /* told since the last call that was noted */
	uint64_t pushed_out_ns; /* session clock: the last reading of it that found no room; 0: none */
	uint64_t n_noted;
	struct mt_call calls[MT_MAX_CALLS]; /* the last of the n_noted */
	struct mt_collect_status status;
};

struct mt_collect {
	struct moetrace_session *session; /* for its names, which the threads do not outlive */
	uint64_t start_monotonic_ns;
	struct mt_collector_places places;
	char paths[5][MT_PLACE_BYTES];
	char *kernel_roles;
	uint64_t hang_ns;
	struct mt_ties ties;              /* its own memory, since callbacks may outlive the session */
	pthread_mutex_t lock;             /* protects all that follows */
	pthread_cond_t changed;
	uint32_t n_users;                 /* the session, and threads */
	int is_closing;
	uint32_t n_starts;                /* recordings begun */
	uint32_t n_stops;                 /* and ended */
	uint32_t n_waited;                /* the last end that was waited for */
	uint64_t stopped_ns;              /* CLOCK_MONOTONIC: the last end */
	struct mt_clock_map realtime;
	uint64_t last_pair_ns;
	struct mt_clock_map clocks[MT_N_CLOCKS];
	uint64_t clock_stored_ns[MT_N_CLOCKS]; /* session clock; 0: never */
	struct mt_versions versions;
	char used_uuids[MT_MAX_COLLECT_DEVICES][64]; /* [n_used] of GPUs whose passes are recorded */
	uint32_t n_used;
	uint32_t n_devices;
	struct mt_collect_device devices[MT_MAX_COLLECT_DEVICES];
	uint32_t n_sources;
	struct mt_source sources[MT_MAX_COLLECTORS];
	uint32_t n_graphs;
	struct mt_collect_graph *graphs[MT_MAX_GRAPHS];
	uint64_t head;                    /* readings ever put in */
	uint64_t tail;                    /* and taken, or pushed out */
	struct mt_reading readings[MT_MAX_READINGS];
};

/* collect_out.c: the calls that a collector is given. */
void mt_collect_out_fill(struct mt_source *source);
uint64_t mt_collect_now_ns(void *source);

/* collect.c: a call that has lasted for so long at the end of a recording, or of the session, hangs. */
uint64_t mt_collect_patience_ns(const struct mt_collect *collect);

/* collect_calls.c: under the lock, a call is over. */
void mt_collect_call_note(struct mt_source *source, uint64_t cost_ns);

/* collect_graph.c: those of them about graphs and passes; and the end of the graphs. */
void mt_collect_graph_fill(struct mt_collector_out *out);
void mt_collect_graphs_free(struct mt_collect *collect);

/* collect_thread.c */
int mt_collect_thread_start(struct mt_source *source);
/* Under the lock, which it lets go of meanwhile. */
void mt_collect_sleep_until(struct mt_source *source, uint64_t until_ns);
/* Under the lock, which it gives back: the last user frees the memory, the session or a thread. */
void mt_collect_leave(struct mt_collect *collect);

#endif
