/* SPDX-License-Identifier: MIT */
/*
 * The JSON writer: the text of nested values, escapes, ill-formed UTF-8, numbers that read back,
 * and the reports of wrong use and of a stream that fails.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include <moetrace/status.h>

#include "common/jsonw.h"
#include "common/utf8.h"
#include "tests/support/run_suite.h"

static char *text;
static size_t n_text_bytes;
static struct mt_jsonw writer;

static void setup(void)
{
	FILE *out = open_memstream(&text, &n_text_bytes);

	ck_assert_ptr_nonnull(out);
	mt_jsonw_init(&writer, out);
}

static void teardown(void)
{
	fclose(writer.out);
	free(text);
}

static void expect_line(const char *expected)
{
	ck_assert_int_eq(mt_jsonw_end_line(&writer), MOETRACE_OK);
	fflush(writer.out);
	ck_assert_str_eq(text, expected);
}

START_TEST(test_nesting)
{
	mt_jsonw_object_begin(&writer);
	mt_jsonw_key(&writer, "a");
	mt_jsonw_array_begin(&writer);
	mt_jsonw_int64(&writer, INT64_MIN);
	mt_jsonw_uint64(&writer, UINT64_MAX);
	mt_jsonw_object_begin(&writer);
	mt_jsonw_object_end(&writer);
	mt_jsonw_array_begin(&writer);
	mt_jsonw_array_end(&writer);
	mt_jsonw_array_end(&writer);
	mt_jsonw_key(&writer, "b");
	mt_jsonw_boolean(&writer, true);
	mt_jsonw_key(&writer, "c");
	mt_jsonw_null(&writer);
	mt_jsonw_key(&writer, "d");
	mt_jsonw_hex(&writer, "\x00\xfe", 2);
	mt_jsonw_object_end(&writer);
	expect_line(
		"{\"a\":[-9223372036854775808,18446744073709551615,{},[]],\"b\":true,\"c\":null,"
		"\"d\":\"00fe\"}\n");
}
END_TEST

START_TEST(test_lines)
{
	mt_jsonw_int64(&writer, 1);
	ck_assert_int_eq(mt_jsonw_end_line(&writer), MOETRACE_OK);
	mt_jsonw_boolean(&writer, false);
	expect_line("1\nfalse\n");
}
END_TEST

static const struct {
	const char *bytes;
	size_t n_bytes;
	const char *json;
} strings[] = {
	{"", 0, "\"\"\n"},
	{"a\"b\\c/", 6, "\"a\\\"b\\\\c/\"\n"},
	{"\b\f\n\r\t", 5, "\"\\b\\f\\n\\r\\t\"\n"},
	{"\0\x1f\x7f", 3, "\"\\u0000\\u001f\\u007f\"\n"},
	{"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"\n"},
	/* One replacement for each maximal part, as Unicode recommends. */
	{"a\xff"
	 "b",
	 3,
	 "\"a\xef\xbf\xbd"
	 "b\"\n"},
	{"\xc0\xaf", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\"\n"},
	{"\xf0\x9f\x98", 3, "\"\xef\xbf\xbd\"\n"},
	{"\xf0\x9f\x98x", 4, "\"\xef\xbf\xbdx\"\n"},
	{"\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"\n"},
	{"\xf4\x90\x80\x80", 4, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"\n"},
	{"\xe2\x82", 2, "\"\xef\xbf\xbd\"\n"},
};

START_TEST(test_strings)
{
	size_t n_bytes = strings[_i].n_bytes;
	bool has_replacement = strstr(strings[_i].json, "\xef\xbf\xbd") != NULL;

	mt_jsonw_bytes(&writer, strings[_i].bytes, n_bytes);
	expect_line(strings[_i].json);
	ck_assert_int_eq(mt_utf8_is_valid(strings[_i].bytes, n_bytes), !has_replacement);
	ck_assert(mt_utf8_is_valid(text, n_text_bytes));
}
END_TEST

static const double doubles[] = {0.0, -1.5, 0.1, 1.0 / 3.0, 1e300, 5e-324, DBL_MAX, 123456789.125};

START_TEST(test_doubles)
{
	mt_jsonw_double(&writer, doubles[_i]);
	ck_assert_int_eq(mt_jsonw_end_line(&writer), MOETRACE_OK);
	fflush(writer.out);
	ck_assert(strtod(text, NULL) == doubles[_i]);
}
END_TEST

START_TEST(test_double_not_finite)
{
	mt_jsonw_array_begin(&writer);
	mt_jsonw_double(&writer, NAN);
	mt_jsonw_double(&writer, -INFINITY);
	mt_jsonw_double(&writer, 0.1);
	mt_jsonw_array_end(&writer);
	expect_line("[null,null,0.1]\n");
}
END_TEST

START_TEST(test_wrong_use)
{
	mt_jsonw_array_begin(&writer);
	ck_assert_int_eq(mt_jsonw_end_line(&writer), MOETRACE_E_STATE);
	mt_jsonw_object_begin(&writer);
	mt_jsonw_int64(&writer, 1);
	mt_jsonw_object_end(&writer);
	ck_assert_int_eq(mt_jsonw_end_line(&writer), MOETRACE_E_STATE);
	mt_jsonw_object_begin(&writer);
	mt_jsonw_key(&writer, "a");
	mt_jsonw_object_end(&writer);
	ck_assert_int_eq(mt_jsonw_end_line(&writer), MOETRACE_E_STATE);
	mt_jsonw_object_begin(&writer);
	mt_jsonw_array_end(&writer);
	ck_assert_int_eq(mt_jsonw_end_line(&writer), MOETRACE_E_STATE);
	mt_jsonw_key(&writer, "a");
	ck_assert_int_eq(mt_jsonw_end_line(&writer), MOETRACE_E_STATE);
	mt_jsonw_null(&writer);
	mt_jsonw_null(&writer);
	ck_assert_int_eq(mt_jsonw_end_line(&writer), MOETRACE_E_STATE);
	ck_assert_int_eq(mt_jsonw_end_line(&writer), MOETRACE_E_STATE);
	mt_jsonw_null(&writer);
	ck_assert_int_eq(mt_jsonw_end_line(&writer), MOETRACE_OK);
}
END_TEST

START_TEST(test_too_deep)
{
	int i;

	for (i = 0; i < 3 * MT_JSONW_MAX_DEPTH; i++)
		mt_jsonw_array_begin(&writer);
	for (i = 0; i < 3 * MT_JSONW_MAX_DEPTH; i++)
		mt_jsonw_array_end(&writer);
	ck_assert_int_eq(mt_jsonw_end_line(&writer), MOETRACE_E_STATE);
}
END_TEST

START_TEST(test_stream_error)
{
	FILE *out = fopen("/dev/full", "w");
	struct mt_jsonw full;

	if (!out)
		return;
	setvbuf(out, NULL, _IONBF, 0);
	mt_jsonw_init(&full, out);
	mt_jsonw_string(&full, "text");
	ck_assert_int_eq(mt_jsonw_end_line(&full), MOETRACE_E_IO);
	fclose(out);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("jsonw");
	TCase *tcase = tcase_create("writer");

	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, test_nesting);
	tcase_add_test(tcase, test_lines);
	tcase_add_loop_test(tcase, test_strings, 0, sizeof(strings) / sizeof(strings[0]));
	tcase_add_loop_test(tcase, test_doubles, 0, sizeof(doubles) / sizeof(doubles[0]));
	tcase_add_test(tcase, test_double_not_finite);
	tcase_add_test(tcase, test_wrong_use);
	tcase_add_test(tcase, test_too_deep);
	tcase_add_test(tcase, test_stream_error);
	return run_suite(suite);
}
