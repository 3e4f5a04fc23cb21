/* SPDX-License-Identifier: MIT */
/*
 * What a file holds against what the router kernels wrote to buffers of their own, which a copy in
 * the stream kept after each replay: ids bit for bit, weights rounded to fp16.
 */
#ifndef TEST_CUDA_KEPT_H
#define TEST_CUDA_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#include <sqlite3.h>

#include "tests/cuda/support/graph.h"

struct kept {
	struct graph_buffers *buffers;
	uint32_t n_layers;
	uint32_t n_rows;       /* that were kept of a layer; a pass may have fewer, with padding */
	uint64_t first_number; /* runtime's number of the pass that was kept as number 0 */
	uint32_t n_replays;
	const uint8_t *is_wanted; /* [n_replays] 1: the file must have it, 0: it must not; NULL: all */
	bool without_weights;
};

/* Ends the test case at the first difference; returns how many passes there were. */
uint32_t kept_compare(sqlite3 *db, const struct kept *kept);

/*
 * Record the wanted replays into a new file @name by way of host memory: each is fetched from what
 * was kept, and handed over before the next. The file, opened.
 */
sqlite3 *kept_record(const struct kept *kept, const char *name);

/* The same ids and weights in the same order, to the bit; returns how many bytes that are. */
uint64_t kept_same_rows(sqlite3 *db, sqlite3 *other);

#endif
