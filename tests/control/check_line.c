/* SPDX-License-Identifier: MIT */
/*
 * The line protocol: what is a line and what is not, and answers that nothing in a value can
 * break.
 */
#include <stdlib.h>
#include <string.h>

#include "libtrace/control/line.h"
#include "libtrace/include/moetrace/status.h"
#include "tests/unit/support/rng.h"
#include "tests/unit/support/suite.h"

static struct mt_control_line line;

static int parse(const char *text)
{
	const char *error = NULL;
	int status = mt_control_line_parse(text, strlen(text), &line, &error);

	ck_assert((status == MOETRACE_OK) == (error == NULL));
	return status;
}

START_TEST(test_lines)
{
	ck_assert_int_eq(parse("status"), MOETRACE_OK);
	ck_assert_str_eq(line.verb, "status");
	ck_assert_uint_eq(line.n_args, 0);
	ck_assert_int_eq(parse(" \tstart  mode=per_token\tsource=a=b \r"), MOETRACE_OK);
	ck_assert_str_eq(line.verb, "start");
	ck_assert_uint_eq(line.n_args, 2);
	ck_assert_str_eq(mt_control_line_value(&line, "mode"), "per_token");
	ck_assert_str_eq(mt_control_line_value(&line, "source"), "a=b");
	ck_assert_ptr_null(mt_control_line_value(&line, "mod"));
	ck_assert_int_eq(parse("dump path=\"/a b/\\\"c\\\\\\n\" x=\"\" y="), MOETRACE_OK);
	ck_assert_str_eq(mt_control_line_value(&line, "path"), "/a b/\"c\\\n");
	ck_assert_str_eq(mt_control_line_value(&line, "x"), "");
	ck_assert_str_eq(mt_control_line_value(&line, "y"), "");
	ck_assert_int_eq(parse(""), MOETRACE_OK);
	ck_assert_str_eq(line.verb, "");
	ck_assert_int_eq(parse("a b=\xc3\xa4"), MOETRACE_OK);
}
END_TEST

static const char *const wrong[] = {
	"STATUS",	"sta;tus",	"a b",	    "a =b",	 "a b=\"c",    "a b=\"c\"d",
	"a b=\"\\t\"",	"a b=c\"d",	"a b=1 b=2", "a b=\"\\", "a\tb=c\nd",  "a b=\x7f",
	"a b=\x1b[2J", "a 1=1 2=2 3=3 4=4 5=5 6=6 7=7 8=8 9=9",
};

START_TEST(test_no_line)
{
	ck_assert_int_eq(parse(wrong[_i]), MOETRACE_E_FORMAT);
}
END_TEST

START_TEST(test_limits)
{
	static char text[MT_CONTROL_LINE_BYTES + 2];
	const char *error;

	memset(text, 'a', sizeof(text));
	ck_assert_int_eq(mt_control_line_parse(text, MT_CONTROL_LINE_BYTES, &line, &error),
			 MOETRACE_OK);
	ck_assert_uint_eq(strlen(line.verb), MT_CONTROL_LINE_BYTES);
	ck_assert_int_eq(mt_control_line_parse(text, MT_CONTROL_LINE_BYTES + 1, &line, &error),
			 MOETRACE_E_FORMAT);
	/* A zero byte is no text either. */
	ck_assert_int_eq(mt_control_line_parse("a\0b", 3, &line, &error), MOETRACE_E_FORMAT);
}
END_TEST

/* Any bytes: refused, or understood as words that lie within the line. */
START_TEST(test_any_bytes)
{
	static const char letters[] = "ab =\"\\\tn.";
	struct rng rng = {.state = 1};
	const char *error;
	char text[40];
	uint32_t i, j;

	for (i = 0; i < 200000; i++) {
		const uint32_t n = rng_below(&rng, sizeof(text));

		for (j = 0; j < n; j++)
			text[j] = i % 4 ? letters[rng_below(&rng, sizeof(letters) - 1)]
					: (char)rng_below(&rng, 256);
		if (mt_control_line_parse(text, n, &line, &error) != MOETRACE_OK)
			continue;
		REQUIRE(line.n_args <= MT_CONTROL_MAX_ARGS, "%u arguments", line.n_args);
		for (j = 0; j < line.n_args; j++)
			REQUIRE(line.args[j].key > line.text &&
					line.args[j].value + strlen(line.args[j].value) <=
						line.text + n,
				"an argument outside of the line");
	}
}
END_TEST

START_TEST(test_answers)
{
	struct mt_reply reply = {0};
	uint32_t i;

	mt_reply_text(&reply, "file", "a\nok\\");
	mt_reply_number(&reply, "n", UINT64_MAX);
	mt_reply_double(&reply, "x", -1.25);
	mt_reply_double(&reply, "y", 1e300);
	mt_reply_double(&reply, "z", 0.0004);
	mt_reply_end(&reply, MOETRACE_E_STATE, "two\nlines");
	mt_reply_end(&reply, MOETRACE_OK, NULL);
	ck_assert_int_eq(memcmp(reply.text,
				"file a\\nok\\\\\nn 18446744073709551615\nx -1.250\n"
				"y 1000000000000000.000\nz 0.000\nerror E_STATE two\\nlines\nok\n",
				reply.n_bytes),
			 0);
	mt_reply_free(&reply);
	for (i = 0; i < 5000; i++)
		mt_reply_line(&reply, "%u", i);
	ck_assert_uint_eq(reply.n_bytes, 10 * 2 + 90 * 3 + 900 * 4 + 4000 * 5);
	ck_assert(!reply.has_failed);
	mt_reply_free(&reply);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("line");
	TCase *lines = tcase_create("lines");

	tcase_add_test(lines, test_lines);
	tcase_add_loop_test(lines, test_no_line, 0, sizeof(wrong) / sizeof(wrong[0]));
	tcase_add_test(lines, test_limits);
	tcase_add_test(lines, test_any_bytes);
	tcase_add_test(lines, test_answers);
	suite_add_tcase(suite, lines);
	return suite_run(suite);
}
