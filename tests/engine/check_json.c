/* SPDX-License-Identifier: MIT */
/*
 * The strict JSON reader: every event of a document with its depth, exact integers, and a table of
 * texts that must be refused, each with the place and the words of the error.
 */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include <moetrace/status.h>

#include "common/json.h"
#include "tests/support/run_suite.h"

static const struct mt_json_limits limits = {1 << 20, 8};

/* A trace of the events, one letter and the depth each, with the text of what has one. */
struct log {
	char text[4096];
	size_t n_bytes;
	struct mt_json_event last; /* without its text */
	double number;
	int refuse_at; /* refuse this event, from 1; 0: none */
	int n_events;
};

static int log_event(void *context, const struct mt_json_event *event, struct mt_json_error *error)
{
	static const char letters[] = "nbdsk{}[]";
	struct log *log = context;

	log->n_events++;
	if (log->n_events == log->refuse_at) {
		snprintf(error->text, sizeof(error->text), "refused");
		return MOETRACE_E_LIMIT;
	}
	log->n_bytes += (size_t)snprintf(log->text + log->n_bytes, sizeof(log->text) - log->n_bytes,
					 "%c%u%.*s ", letters[event->kind], event->depth,
					 event->text ? (int)event->n_bytes : 0,
					 event->text ? event->text : "");
	log->last = *event;
	log->last.text = NULL;
	if (event->kind == MT_JSON_NUMBER)
		ck_assert_int_eq(mt_json_double(event, &log->number), MOETRACE_OK);
	return MOETRACE_OK;
}

static int parse(const char *text, struct log *log, struct mt_json_error *error)
{
	memset(log, 0, sizeof(*log));
	return mt_json_parse(text, strlen(text), &limits, log_event, log, error);
}

START_TEST(test_parse_events_and_depths)
{
	struct mt_json_error error;
	struct log log;

	ck_assert_int_eq(
		parse(" {\"a\": [1, {\"b\": null}], \"c\": \"x\\ny\", \"\": true} ", &log, &error),
		MOETRACE_OK);
	ck_assert_str_eq(log.text, "{0 k1a [1 d21 {2 k3b n3 }2 ]1 k1c s1x\ny k1 b1 }0 ");
}
END_TEST

static const struct {
	const char *text;
	bool is_int64;
	int64_t int64;
	double number;
} numbers[] = {
	{"0", true, 0, 0.0},
	{"-0", true, 0, 0.0},
	{"9007199254740993", true, INT64_C(9007199254740993), 9007199254740992.0},
	{"9223372036854775807", true, INT64_MAX, 9223372036854775808.0},
	{"-9223372036854775808", true, INT64_MIN, -9223372036854775808.0},
	{"9223372036854775808", false, 0, 9223372036854775808.0},
	{"-9223372036854775809", false, 0, -9223372036854775808.0},
	{"18446744073709551616", false, 0, 18446744073709551616.0},
	{"123456789012345678901234567890", false, 0, 123456789012345678901234567890.0},
	{"1.0", false, 0, 1.0},
	{"1e3", false, 0, 1000.0},
	{"1E-06", false, 0, 1e-6},
	{"0.1", false, 0, 0.1},
};

START_TEST(test_parse_number)
{
	struct mt_json_error error;
	struct log log;

	ck_assert_int_eq(parse(numbers[_i].text, &log, &error), MOETRACE_OK);
	ck_assert_int_eq(log.last.is_int64, numbers[_i].is_int64);
	if (numbers[_i].is_int64)
		ck_assert_int_eq(log.last.int64, numbers[_i].int64);
	ck_assert(log.number == numbers[_i].number);
}
END_TEST

/* Where the locale writes 0,5 the point of JSON must still be one. */
START_TEST(test_double_in_another_locale)
{
	static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "ru_RU.UTF-8"};
	struct mt_json_error error;
	struct log log;
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]) && !setlocale(LC_ALL, names[i]); i++)
		;
	ck_assert_int_eq(parse("0.5", &log, &error), MOETRACE_OK);
	ck_assert(log.number == 0.5);
}
END_TEST

static const struct {
	const char *text;
	uint32_t line;
	uint32_t column;
	const char *words; /* part of the error */
} refused[] = {
	/* The end of the text. */
	{"", 1, 1, "ends too early"},
	{"   ", 1, 4, "ends too early"},
	{"{", 1, 2, "ends too early"},
	{"[1,\n2", 2, 2, "ends too early"},
	{"[\"abc", 1, 6, "ends too early"},
	{"{\"a\": nul", 1, 7, "not a JSON value"},
	/* A token in the wrong place: where it begins. */
	{"{} xyz", 1, 4, "remove it"},
	{"{} \"a\"", 1, 4, "follows the JSON value; remove it"},
	{"{}{}", 1, 3, "follows the JSON value"},
	{"{\"a\":1}}", 1, 8, "follows the JSON value"},
	{"[1,]", 1, 4, "cannot stand here"},
	{"{\"a\": }", 1, 7, "cannot stand here"},
	{"{\"a\" 123}", 1, 6, "a colon is missing before this"},
	{"{\"a\": 1 \"bcd\": 2}", 1, 9, "a comma or } is missing"},
	{"{\"a\":\"b\"]", 1, 9, "a comma or } is missing"},
	{"[1 234]", 1, 4, "a comma or ] is missing"},
	{"{\"a\": [1,\n   \"x\\\"y\" \"z\"]}", 2, 11, "a comma or ] is missing"},
	{"{12: 1}", 1, 2, "put keys between double quotes"},
	{"[01]", 1, 3, "a comma or ] is missing"},
	{"[-01]", 1, 4, "a comma or ] is missing"},
	{"{\"a\":1 {}", 1, 8, "a comma or } is missing"},
	/* Something that is no token. */
	{"{abc: 1}", 1, 2, "between double quotes"},
	{"{\"a\": hello}", 1, 7, "between double quotes"},
	{"{\"a\": tru}", 1, 7, "not a JSON value"},
	{"{\"a\": truex}", 1, 7, "not a JSON value"},
	{"'a'", 1, 1, "between double quotes"},
	{"[+1]", 1, 2, "not a JSON value"},
	{"[.5]", 1, 2, "not a JSON value"},
	{"[NaN]", 1, 2, "not a JSON value"},
	{"[Infinity]", 1, 2, "not a JSON value"},
	{"\xef\xbb\xbf{}", 1, 1, "not a JSON value"},
	{"/* c */ {}", 1, 1, "no comments"},
	{"[1,/* c */ 2]", 1, 4, "no comments"},
	{"[1, /* c */ 2]", 1, 5, "no comments"},
	/* Within a string or a number: the byte. */
	{"[1.]", 1, 4, "a digit is missing"},
	{"[-x]", 1, 3, "a digit is missing"},
	{"[1e+]", 1, 5, "a digit is missing"},
	{"[\"ab\ncd\"]", 1, 5, "a control character"},
	{"[\"ab\\xcd\"]", 1, 6, "not an escape"},
	{"[\"\\u12g4\"]", 1, 7, "not a hexadecimal digit"},
	{"[\"\xff\"]", 1, 3, "UTF-8"},
	{"[\"\xc0\x80\"]", 1, 3, "UTF-8"},
	{"[\"\\ud800\"]", 1, 3, "surrogate"},
	{"[\n \"\\udc00\"]", 2, 3, "surrogate"},
	{"[\"\\ud800\\u0041\"]", 1, 3, "surrogate"},
	{"[\"\\ud800", 1, 3, "surrogate"},
	/* Columns count characters, not bytes. */
	{"[\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\", x]", 1, 9, "not a JSON value"},
	{"[\"\xc3\xa9\xff\"]", 1, 4, "UTF-8"},
	/* What JSON allows and this reader does not. */
	{"[[[[[[[[[0]]]]]]]]]", 1, 9, "nested deeper than 8"},
	{"{\"a\": 1,\n \"b\": 2, \"a\": 3}", 2, 10, "key \"a\" comes twice"},
	{"[{\"a\": {\"b\": 1, \"b\": 2}}]", 1, 17, "key \"b\" comes twice"},
	{"{\"a\": 1, \"\\u0061\": 2}", 1, 10, "key \"a\" comes twice"},
	{"{\"\": 1, \"\": 2}", 1, 9, "comes twice"},
};

START_TEST(test_parse_refuses)
{
	struct mt_json_error error = {.text = ""};
	struct log log;

	ck_assert_int_eq(parse(refused[_i].text, &log, &error), MOETRACE_E_FORMAT);
	ck_assert_msg(strstr(error.text, refused[_i].words) != NULL, "%s: %s", refused[_i].text,
		      error.text);
	ck_assert_uint_gt(strlen(error.text), 0);
	ck_assert_ptr_null(strchr(error.text, '\n'));
	ck_assert_uint_le(error.byte, strlen(refused[_i].text));
	ck_assert_msg(error.line == refused[_i].line && error.column == refused[_i].column,
		      "%s: line %u, column %u", refused[_i].text, error.line, error.column);
}
END_TEST

START_TEST(test_parse_decodes_escapes)
{
	struct mt_json_error error;
	struct log log;

	ck_assert_int_eq(parse("\"\\ud83d\\ude00\\u00e9\\\\ud800\\/\\u0041\"", &log, &error),
			 MOETRACE_OK);
	ck_assert_str_eq(log.text, "s0\xf0\x9f\x98\x80\xc3\xa9\\ud800/A ");
	ck_assert_int_eq(parse("\"a\\u0000b\"", &log, &error), MOETRACE_OK);
	ck_assert_uint_eq(log.last.n_bytes, 3);
}
END_TEST

START_TEST(test_parse_same_key_in_other_objects)
{
	struct mt_json_error error;
	struct log log;

	ck_assert_int_eq(
		parse("[{\"a\": 1}, {\"a\": {\"a\": [{\"a\": 2}]}}, {\"a\": 3}]", &log, &error),
		MOETRACE_OK);
}
END_TEST

static int count_event(void *context, const struct mt_json_event *event,
		       struct mt_json_error *error)
{
	(void)event;
	(void)error;
	++*(int *)context;
	return MOETRACE_OK;
}

/* Enough keys to grow the set many times; then one of them again. */
START_TEST(test_parse_many_keys)
{
	size_t max_bytes = 600000, n_bytes = 1;
	char *text = malloc(max_bytes);
	struct mt_json_error error;
	int n_events = 0, i;

	ck_assert_ptr_nonnull(text);
	text[0] = '{';
	for (i = 0; i < 30000; i++)
		n_bytes += (size_t)snprintf(text + n_bytes, max_bytes - n_bytes, "\"key%d\":%d,", i,
					    i);
	n_bytes += (size_t)snprintf(text + n_bytes, max_bytes - n_bytes, "\"key%d\":0}", _i);
	ck_assert_int_eq(mt_json_parse(text, n_bytes, &limits, count_event, &n_events, &error),
			 _i < 30000 ? MOETRACE_E_FORMAT : MOETRACE_OK);
	ck_assert_int_eq(n_events, _i < 30000 ? 60001 : 60004);
	free(text);
}
END_TEST

START_TEST(test_parse_limits)
{
	struct mt_json_limits narrow = {4, 1};
	struct mt_json_error error;
	struct log log = {.refuse_at = 0};

	ck_assert_int_eq(mt_json_parse("[12]", 4, &narrow, log_event, &log, &error), MOETRACE_OK);
	ck_assert_int_eq(mt_json_parse("[123]", 5, &narrow, log_event, &log, &error),
			 MOETRACE_E_FORMAT);
	ck_assert_ptr_nonnull(strstr(error.text, "limit"));
	ck_assert_int_eq(mt_json_parse("[[]]", 4, &narrow, log_event, &log, &error),
			 MOETRACE_E_FORMAT);
	narrow.max_depth = 0;
	ck_assert_int_eq(mt_json_parse("7", 1, &narrow, log_event, &log, &error), MOETRACE_OK);
	ck_assert_int_eq(mt_json_parse("[]", 2, &narrow, log_event, &log, &error),
			 MOETRACE_E_FORMAT);
}
END_TEST

/* The status and the words of the receiver come back; the place is added. */
START_TEST(test_parse_receiver_refuses)
{
	struct mt_json_error error;
	struct log log = {.refuse_at = 3};
	const char *text = "{\n\"a\": 12345}";

	ck_assert_int_eq(mt_json_parse(text, strlen(text), &limits, log_event, &log, &error),
			 MOETRACE_E_LIMIT);
	ck_assert_str_eq(error.text, "refused");
	ck_assert_uint_eq(error.line, 2);
	ck_assert_uint_eq(error.column, 6);
	/* A number that ends the text is delivered at the end. */
	ck_assert_int_eq(mt_json_parse("  12345", 7, &limits, log_event,
				       &(struct log){.refuse_at = 1}, &error),
			 MOETRACE_E_LIMIT);
	ck_assert_uint_eq(error.column, 3);
}
END_TEST

START_TEST(test_text_is)
{
	struct mt_json_event event = {.kind = MT_JSON_KEY, .text = "abc", .n_bytes = 3};

	ck_assert(mt_json_text_is(&event, "abc"));
	ck_assert(!mt_json_text_is(&event, "ab"));
	ck_assert(!mt_json_text_is(&event, "abcd"));
	event.text = NULL;
	ck_assert(!mt_json_text_is(&event, ""));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("json");
	TCase *tcase = tcase_create("parse");

	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, test_parse_events_and_depths);
	tcase_add_loop_test(tcase, test_parse_number, 0, sizeof(numbers) / sizeof(numbers[0]));
	tcase_add_test(tcase, test_double_in_another_locale);
	tcase_add_loop_test(tcase, test_parse_refuses, 0, sizeof(refused) / sizeof(refused[0]));
	tcase_add_test(tcase, test_parse_decodes_escapes);
	tcase_add_test(tcase, test_parse_same_key_in_other_objects);
	tcase_add_loop_test(tcase, test_parse_many_keys, 29998, 30002);
	tcase_add_test(tcase, test_parse_limits);
	tcase_add_test(tcase, test_parse_receiver_refuses);
	tcase_add_test(tcase, test_text_is);
	return run_suite(suite);
}
