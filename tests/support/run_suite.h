/* SPDX-License-Identifier: MIT */
/* The end of a test program's main(): run its suite, which is freed; the program's exit status. */
#ifndef TEST_RUN_SUITE_H
#define TEST_RUN_SUITE_H

#include <check.h>
#include <stdlib.h>

static inline int run_suite_as(Suite *suite, enum fork_status fork_status)
{
	SRunner *runner = srunner_create(suite);
	int n_failed;

	srunner_set_fork_status(runner, fork_status);
	srunner_run_all(runner, CK_ENV);
	n_failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Each case in a process of its own, unless CK_FORK says otherwise. */
static inline int run_suite(Suite *suite)
{
	return run_suite_as(suite, CK_FORK_GETENV);
}

/* All in this process: what it has opened does not survive a fork. */
static inline int run_suite_unforked(Suite *suite)
{
	return run_suite_as(suite, CK_NOFORK);
}

#endif
