/* SPDX-License-Identifier: MIT */
/*
 * The hot path in all its situations, prepared so that hot_go() consists of calls of the API
 * and of nothing else that could allocate, lock or enter the kernel.
 */
#ifndef TEST_HOT_H
#define TEST_HOT_H

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
};

/* Open a session in the state that the scenario asks for. */
struct hot *hot_prepare(const struct api *api, enum hot_scenario scenario);

/* The calls. */
void hot_go(struct hot *hot);

/* Close the session and check that the calls did what the scenario is about. */
void hot_finish(struct hot *hot);

#endif
