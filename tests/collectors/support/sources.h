/* SPDX-License-Identifier: MIT */
/*
 * Sessions whose collectors read fakes, as their files tell of them. Whatever a test waits for is a
 * condition on the file.
 */
#ifndef TEST_SOURCES_H
#define TEST_SOURCES_H

#include <stdbool.h>
#include <stdint.h>

#include <sqlite3.h>

#include "tests/unit/support/toy.h"

enum { SOURCES_LAYERS = 1, SOURCES_EXPERTS = 64, SOURCES_TOP_K = 2 };

/* Every source has been opened, and has read where it is on. */
#define SOURCES_ANSWERED                                                                \
	"iif(state = 'on', n_calls >= 2, instr(reason, 'has not answered yet') = 0)"

/* Four domains of powercap at @root, which sessions are to read; @root. */
const char *sources_make_powercap(const char *root);

/* Record with a list of collectors. */
struct toy sources_start(const char *name, const char *collectors);

/* Whether what was read so far fits @sql, in the file @path. */
bool sources_hold(const struct toy *toy, const char *path, const char *sql);

/* Until a condition on each collector of the recording that runs holds in the file @path. */
void sources_wait_in(const struct toy *toy, const char *path, const char *condition);
void sources_wait_until_read(const struct toy *toy);

/* Stop where it still records, close, and open the file. */
sqlite3 *sources_finish(struct toy *toy);

/* The state of a collector, and whether its reason has a text. */
const char *sources_state(sqlite3 *db, const char *name);
bool sources_say(sqlite3 *db, const char *name, const char *text);

/*
 * Where calls that do not come back are given up soon, so are good ones on a machine that stands still
 * for longer: a test that sets this says whether it did not, and is tried again with more time.
 */
void sources_give_calls(uint32_t timeout_ms);

/* Whether a call of @name's lasted for as long as it may, as the file has it. */
bool sources_was_late(sqlite3 *db, const char *name, uint32_t timeout_ms);

#endif
