/* SPDX-License-Identifier: MIT */
/*
 * A toy whose session reads a CUPTI made for tests.
 */
#ifndef TEST_CUPTI_TOY_H
#define TEST_CUPTI_TOY_H

#include <sqlite3.h>

#include "tests/collectors/support/fakes.h"
#include "tests/unit/support/toy.h"

extern const struct fake_cupti_api *cupti_fake;

/* With a mode of the collector; nothing is recorded yet. */
struct toy cupti_toy_open(const char *name, const char *mode);

/* Record; what is put from here on is the recording's. */
void cupti_toy_start(const struct toy *toy);

/* Stop, close, and open the file, which agrees with itself. */
sqlite3 *cupti_toy_finish(struct toy *toy);

#endif
