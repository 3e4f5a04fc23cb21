/* SPDX-License-Identifier: MIT */
/* The frame of a test program, and the check of an error's text. */
#ifndef MTK_TESTS_MOE_OPS_SUITE_H
#define MTK_TESTS_MOE_OPS_SUITE_H

#include <check.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/engine/error.h"
#include "tests/support/run_suite.h"

/* An assertion for loops over elements: one that holds costs nothing. */
#define require(condition)                                                                         \
	do {                                                                                       \
		if (!(condition))                                                                  \
			ck_abort_msg("does not hold: %s", #condition);                             \
	} while (0)

/* The setting was refused, and the text names the field. */
static inline void assert_refused(int status, const struct mtk_error *error, const char *field)
{
	ck_assert_int_eq(status, MOETRACE_E_INVALID);
	ck_assert_msg(strstr(error->text, field), "\"%s\" does not name %s", error->text, field);
}

#endif
