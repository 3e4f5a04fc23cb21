/* SPDX-License-Identifier: MIT */
/* The main function of a test program of one suite, and the check of an error's text. */
#ifndef MTK_TESTS_MOE_OPS_SUITE_H
#define MTK_TESTS_MOE_OPS_SUITE_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/engine/error.h"

/* An assertion for loops over elements: one that holds costs nothing. */
#define require(condition)                                                                         \
	do {                                                                                       \
		if (!(condition))                                                                  \
			ck_abort_msg("does not hold: %s", #condition);                             \
	} while (0)

static inline int run_suite(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int n_failed;

	srunner_run_all(runner, CK_NORMAL);
	n_failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* The setting was refused, and the text names the field. */
static inline void assert_refused(int status, const struct mtk_error *error, const char *field)
{
	ck_assert_int_eq(status, MOETRACE_E_INVALID);
	ck_assert_msg(strstr(error->text, field), "\"%s\" does not name %s", error->text, field);
}

#endif
