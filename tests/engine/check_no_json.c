/* SPDX-License-Identifier: MIT */
/*
 * What a program that was built without a JSON parser says. The replacement is linked in by name,
 * so that this is tested in every build.
 */
#include <string.h>

#include <check.h>

#include <moetrace/status.h>

#include "common/json.h"
#include "tests/support/run_suite.h"

static int receive(void *context, const struct mt_json_event *event, struct mt_json_error *error)
{
	(void)context;
	(void)event;
	(void)error;
	ck_abort_msg("an event without a parser");
	return MOETRACE_OK;
}

START_TEST(test_parse_names_the_package)
{
	struct mt_json_limits limits = {100, 10};
	struct mt_json_error error;

	ck_assert_int_eq(mt_json_parse("{}", 2, &limits, receive, NULL, &error),
			 MOETRACE_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(error.text, "libyajl-dev"));
	ck_assert_uint_eq(error.line, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("no_json");
	TCase *tcase = tcase_create("parse");

	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, test_parse_names_the_package);
	return run_suite(suite);
}
