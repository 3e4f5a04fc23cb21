/* SPDX-License-Identifier: MIT */
/*
 * What every test program shares: a folder of its own that vanishes at the end, the tier it
 * runs in, and the main function around Check.
 */
#ifndef TEST_SUITE_H
#define TEST_SUITE_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>

#define SUITE_SKIPPED 77

/*
 * ck_assert_msg() for loops: Check writes to a file for every assertion that holds, which
 * costs a system call each.
 */
#define REQUIRE(condition, ...)                    \
	do {                                       \
		if (!(condition))                  \
			ck_abort_msg(__VA_ARGS__); \
	} while (0)

/* In which whatever is to happen happens, on a machine that stands still for seconds, too. */
#define SUITE_PATIENCE_NS UINT64_C(60000000000)

/*
 * Wait until @condition holds: what another thread does is waited for, never for a time. Where it does
 * not come to pass the test case fails, before it runs out of its own time.
 */
#define WAIT_UNTIL(condition)                                                                    \
	do {                                                                                     \
		const uint64_t waiting_since_ns = suite_now_ns();                                \
                                                                                                 \
		while (!(condition)) {                                                           \
			REQUIRE(suite_now_ns() - waiting_since_ns < SUITE_PATIENCE_NS,           \
				"%s:%d: not within a minute: %s", __FILE__, __LINE__, #condition); \
			suite_sleep_ms(1);                                                       \
		}                                                                                \
	} while (0)

/* Run a suite that is freed with it; the return value is the program's exit status. */
int suite_run(Suite *suite);

/*
 * A path that ends in @name and was not returned before, in memory of the process. The
 * folder exists, the file does not.
 */
const char *suite_path(const char *name);

/* True in `make check-long`. */
bool suite_is_long(void);

/* True where the sanitizers named by the build contain @name. */
bool suite_has_sanitizer(const char *name);

/* CLOCK_MONOTONIC. */
uint64_t suite_now_ns(void);

void suite_sleep_ms(uint32_t duration_ms);

#endif
