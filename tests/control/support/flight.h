/* SPDX-License-Identifier: MIT */
/*
 * A toy whose recording is one of flight mode: start it, let it compute, dump.
 */
#ifndef TEST_FLIGHT_H
#define TEST_FLIGHT_H

#include <moetrace/moetrace.h>

#include "tests/unit/support/toy.h"

enum {
	FLIGHT_LAYERS = 3,
	FLIGHT_EXPERTS = 64,
	FLIGHT_K = 8,
	FLIGHT_BYTES = 1 << 20, /* as much as most tests keep */
};

/* What is kept: bytes, seconds (0: any), enum moetrace_mode. */
struct moetrace_recording_opts flight_opts(uint64_t n_bytes, uint32_t n_s, uint32_t mode);

/* Open and start; session_opts may be NULL. */
struct toy flight_start(const char *name, const struct moetrace_session_opts *session_opts,
			const struct moetrace_recording_opts *opts);

/* Returns the recording that was written. */
uint32_t flight_dump(const struct toy *toy);

/* A pass of one slice that has a number of its own; the rows' experts follow from it. */
void flight_pass(const struct toy *toy, uint64_t number, uint64_t request, uint32_t first_position,
		 uint32_t n_rows);

/* A dumped recording of so many passes, of which it has some and says how many were let go. */
void flight_check_bounds(sqlite3 *db, int64_t recording_id, int64_t n_passes);

#endif
