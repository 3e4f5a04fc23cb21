/* SPDX-License-Identifier: MIT */
/*
 * What tests say of the toy runtime's requests, and what its file says of them. Every call
 * must succeed, and the file must be sound.
 */
#ifndef TEST_SAID_H
#define TEST_SAID_H

#include <sqlite3.h>

#include "tests/unit/support/toy.h"

void toy_end_as(const struct toy *toy, uint64_t request, enum moetrace_request_end_state state,
		uint64_t n_positions);
/* Finished. */
void toy_end(const struct toy *toy, uint64_t request, uint64_t n_positions);
void toy_reuse(const struct toy *toy, uint64_t request, uint32_t first, uint32_t n, uint64_t source,
	       uint32_t attempt);

/* Close the session; `moetrace check` accepts the file, and it has so much misuse. */
sqlite3 *toy_prove_and_open(struct toy *toy, int64_t n_misuse);

/* "verdict reasons" of a request. */
const char *toy_verdict(sqlite3 *db, const char *external_id);
/* All links: "request attempt first+n source attempt", with handles. */
const char *toy_links(sqlite3 *db);

#endif
