/* SPDX-License-Identifier: MIT */
/*
 * The hot path in all its situations, prepared so that hot_go() consists of calls of the API
 * and of nothing else that could allocate, lock or enter the kernel.
 */
#ifndef TEST_HOT_H
#define TEST_HOT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/fault/support/api.h"

enum hot_scenario {
	HOT_DECODE,    /* 64 requests, a row each, four layers */
	HOT_FORMS,     /* every id and weight type, strides, maps, padding, wrong ids */
	HOT_LARGE,     /* 70000 rows */
	HOT_MISUSE,    /* wrong calls of all kinds */
	HOT_NO_RING,   /* more passes at once than rings */
	HOT_RING_FULL, /* more in a pass than a ring holds */
	HOT_IDLE,      /* no recording */
	HOT_NULL,      /* no session */
	HOT_PER_PASS,  /* the other modes */
	HOT_STAT,
	HOT_SAMPLED,  /* every third pass, and the rows of every second request */
	HOT_FLIGHT,   /* what is taken goes into memory */
	HOT_WIDE,     /* unordered, by slot, with candidates; counts in place of ids; dispatch */
	HOT_REGION,   /* regions in which recording is off */
	HOT_MEASURED, /* while the cost of recording is measured, off and on by turns */
	HOT_BESIDE,   /* while another thread retracts, reuses and accepts */
	HOT_N_SCENARIOS,
};

enum {
	HOT_N_LAYERS = 4,
	HOT_N_EXPERTS = 256,
	HOT_TOP_K = 8,
	HOT_N_REQUESTS = 64,
	HOT_MAX_ROWS = 70000
};

struct hot {
	const struct api *api;
	enum hot_scenario scenario;
	const char *path;
	struct moetrace_session *session;
	uint32_t model;
	uint32_t kernel_name;
	uint32_t range_name;
	struct moetrace_slice slices[HOT_N_REQUESTS];
	uint32_t positions[HOT_N_REQUESTS];
	uint32_t row_map[HOT_N_REQUESTS];
	int64_t *ids; /* HOT_MAX_ROWS x HOT_TOP_K of the widest type, each 0 to 7 */
	float *weights;
	uint32_t n_begun; /* passes that were recorded, counted by hot_go() */
	uint32_t n_null;
	int peer; /* on the control socket */
	pthread_t beside;
	atomic_bool is_over;
	atomic_uint_fast64_t number; /* of the last pass */
};

/* Open a session in the state that the scenario asks for. */
struct hot *hot_prepare(const struct api *api, enum hot_scenario scenario);

/* The calls. */
void hot_go(struct hot *hot);

/* hot_kinds.c: what the later scenarios need when the session is open, do, and leave behind. */
void hot_kinds_recording(const struct hot *hot, struct moetrace_recording_opts *ret_opts);
void hot_kinds_prepare(struct hot *hot);
void hot_kinds_go(struct hot *hot);
void hot_kinds_check(struct hot *hot, const struct moetrace_session_status *status);
void hot_kinds_finish(struct hot *hot);

/* For these: a pass that is counted, and one of 64 requests with everything it needs. */
struct moetrace_pass *hot_begin(struct hot *hot);
void hot_whole_pass(struct hot *hot);
struct moetrace_selection hot_selection(const struct hot *hot, uint32_t layer);

/* Close the session and check that the calls did what the scenario is about. */
void hot_finish(struct hot *hot);

#endif
