/* SPDX-License-Identifier: MIT */
/*
 * What a test tells the CUPTI that was made for it: the records to deliver with the next flush, and
 * the calls of the program that a subscriber hears of.
 */
#ifndef TEST_FAKE_CUPTI_H
#define TEST_FAKE_CUPTI_H

#include <stdint.h>

/* A record of a kind that is not on is not delivered. */
struct fake_cupti_record {
	uint32_t kind; /* of collectors/cupti/api.h */
	const char *name;
	uint64_t start_ns;
	uint64_t end_ns;
	uint32_t correlation;
	uint32_t graph; /* of a kernel; 0: it was launched alone */
	uint64_t node;
	uint32_t overhead; /* its kind */
	uint32_t stream; /* 0: 7 */
};

struct fake_cupti_api {
	void (*put)(const struct fake_cupti_record *record);
	/* On the calling thread: it launches a graph, or a kernel, into a stream. */
	void (*launch)(int is_graph, void *stream, uint32_t correlation);
	/* One of several graphs. */
	void (*launch_graph)(void *executable, void *stream, uint32_t correlation);
	/* It captures a node, or with an original makes a copy of that. */
	void (*node)(uint64_t node, uint64_t original);
	/* Times that a kind was switched on, and whether it is. */
	uint32_t (*n_enabled)(uint32_t kind);
	int (*is_enabled)(uint32_t kind);
	uint32_t (*n_flushes)(void);
	/* Records that no flush has delivered yet. */
	uint32_t (*n_waiting)(void);
	/* How many there were when records of kernels were switched off the last time. */
	uint32_t (*n_left)(void);
	/* While it is on a flush delivers nothing. */
	void (*hold)(int is_on);
	/* So many of the next flushes deliver nothing. */
	void (*hold_some)(uint32_t n_flushes);
	/* While it is on a flush does not return; until one does not. */
	void (*stall)(int is_on);
	void (*wait_for_stalled)(void);
};

const struct fake_cupti_api *fake_cupti(void);

#endif
