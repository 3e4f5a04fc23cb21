/* SPDX-License-Identifier: MIT */
/*
 * The workload reader: requests with their ids and attributes, and a table of workloads that must
 * be refused, each with the line and the words of the error.
 */
#include <stdio.h>
#include <string.h>

#include <check.h>

#include <moetrace/status.h>

#include "kernels/engine/workload.h"
#include "tests/engine/support/model_file.h"
#include "tests/support/run_suite.h"

static int parse(const char *text, struct mtk_workload **ret_workload, struct mtk_error *error)
{
	return mtk_workload_parse("w", text, strlen(text), ret_workload, error);
}

START_TEST(test_parse_requests)
{
	static const char text[] =
		"{\"prompt\": \"ab\", \"max_new_tokens\": 3}\n"
		"\n"
		" \t\r\n"
		"{\"id\": \"x-1\", \"domain\": \"c\", \"max_new_tokens\": 9223372036854775807, "
		"\"prompt\": \"\\u0000\\u00e9\\n\", \"hot\": true, \"weight\": 1.50, \"note\": "
		"\"\"}\r\n"
		"{\"max_new_tokens\":1,\"prompt\":\"z\",\"id\":-7}";
	struct mtk_workload *workload;
	const struct mtk_workload_request *request;

	ck_assert_int_eq(parse(text, &workload, NULL), MOETRACE_OK);
	ck_assert_uint_eq(workload->n_requests, 3);

	request = &workload->requests[0];
	ck_assert_str_eq(request->id, "0");
	ck_assert(request->id_is_integer);
	ck_assert_uint_eq(request->line, 1);
	ck_assert_uint_eq(request->n_prompt_bytes, 2);
	ck_assert_uint_eq(request->max_new_tokens, 3);
	ck_assert_uint_eq(request->n_attributes, 0);

	request = &workload->requests[1];
	ck_assert_str_eq(request->id, "x-1");
	ck_assert(!request->id_is_integer);
	ck_assert_uint_eq(request->line, 4);
	ck_assert_uint_eq(request->n_prompt_bytes, 4);
	ck_assert_mem_eq(request->prompt, "\0\xc3\xa9\n", 4);
	ck_assert_uint_eq(request->max_new_tokens, INT64_MAX);
	ck_assert_uint_eq(request->n_attributes, 4);
	ck_assert_str_eq(request->attributes[0].key, "domain");
	ck_assert_str_eq(request->attributes[0].value, "c");
	ck_assert_str_eq(request->attributes[1].value, "true");
	ck_assert_str_eq(request->attributes[2].value, "1.50");
	ck_assert_str_eq(request->attributes[3].value, "");

	request = &workload->requests[2];
	ck_assert_str_eq(request->id, "-7");
	ck_assert(request->id_is_integer);
	mtk_workload_destroy(workload);
}
END_TEST

/* The default id is the line's number in the file, empty lines counted. */
START_TEST(test_parse_default_id)
{
	struct mtk_workload *workload;

	ck_assert_int_eq(parse("\n\n{\"prompt\":\"a\",\"max_new_tokens\":1}\n", &workload, NULL),
			 MOETRACE_OK);
	ck_assert_str_eq(workload->requests[0].id, "2");
	mtk_workload_destroy(workload);
}
END_TEST

#define GOOD "{\"prompt\":\"a\",\"max_new_tokens\":1}\n"

static const struct {
	const char *text;
	const char *words;
} refused[] = {
	{"", "w: the workload has no requests"},
	{"\n \n", "w: the workload has no requests"},
	{"hello\n", "w: line 1, column "},
	{GOOD "{\"prompt\": \"a\", \"max_new_tokens\": }\n", "w: line 2, column "},
	{GOOD "[]\n", "w: line 2, column "},
	{"7\n", "not a JSON object"},
	{"{\"max_new_tokens\":1}", "w: line 1: prompt is missing"},
	{GOOD "\n{\"prompt\":\"a\"}", "w: line 3: max_new_tokens is missing"},
	{"{\"prompt\":\"\",\"max_new_tokens\":1}", "prompt is empty"},
	{"{\"prompt\":7,\"max_new_tokens\":1}", "prompt is not a string"},
	{"{\"prompt\":null,\"max_new_tokens\":1}", "prompt is not a string"},
	{"{\"prompt\":[97],\"max_new_tokens\":1}", "prompt is not a string"},
	{"{\"prompt\":\"a\",\"max_new_tokens\":0}", "max_new_tokens is not a positive integer"},
	{"{\"prompt\":\"a\",\"max_new_tokens\":-1}", "max_new_tokens is not a positive integer"},
	{"{\"prompt\":\"a\",\"max_new_tokens\":1.0}", "max_new_tokens is not a positive integer"},
	{"{\"prompt\":\"a\",\"max_new_tokens\":\"1\"}", "max_new_tokens is not a positive integer"},
	{"{\"prompt\":\"a\",\"max_new_tokens\":9223372036854775808}", "not a positive integer"},
	{"{\"prompt\":\"a\",\"max_new_tokens\":1,\"id\":\"\"}", "id is neither"},
	{"{\"prompt\":\"a\",\"max_new_tokens\":1,\"id\":1.5}", "id is neither"},
	{"{\"prompt\":\"a\",\"max_new_tokens\":1,\"id\":true}", "id is neither"},
	{"{\"prompt\":\"a\",\"max_new_tokens\":1,\"id\":\"a\\u0000\"}", "id holds a zero byte"},
	{"{\"prompt\":\"a\",\"max_new_tokens\":1,\"k\":null}", "k is not a string, a number"},
	{"{\"prompt\":\"a\",\"max_new_tokens\":1,\"k\":[1]}", "k is not a string, a number"},
	{"{\"prompt\":\"a\",\"max_new_tokens\":1,\"k\":{}}", "k is not a string, a number"},
	{"{\"prompt\":\"a\",\"max_new_tokens\":1,\"k\":[[1]]}", "k is not a string, a number"},
	{"{\"prompt\":\"a\",\"max_new_tokens\":1,\"k\":\"\\u0000\"}", "k holds a zero byte"},
	{"{\"prompt\":\"a\",\"max_new_tokens\":1,\"\":1}", "a key is empty"},
	{"{\"prompt\":\"a\",\"prompt\":\"b\",\"max_new_tokens\":1}", "key \"prompt\" comes twice"},
	{"{\"prompt\":\"a\",\"max_new_tokens\":1,\"k\":1,\"k\":2}", "key \"k\" comes twice"},
	{"{\"prompt\":\"a\",\"max_new_tokens\":1} {}", "w: line 1, column "},
	{"{\"prompt\":\"\xff\",\"max_new_tokens\":1}", "UTF-8"},
	{"\xef\xbb\xbf" GOOD, "w: begins with a UTF-8 byte order mark; remove it"},
	{"\xef\xbb\xbf", "w: begins with a UTF-8 byte order mark; remove it"},
	{GOOD "\xef\xbb\xbf" GOOD, "w: line 2, column 1: "},
	/* The place is that of the value or key at fault. */
	{"{\"prompt\": \"\", \"max_new_tokens\": 1}", "line 1, column 12: prompt is empty"},
	{"{\"prompt\": \"\xc3\xa9\", \"max_new_tokens\": 0}", "line 1, column 35: max_new_tokens"},
	{GOOD "  {\"prompt\": 7}", "line 2, column 14: prompt is not a string"},
	{"{\"prompt\": \"a\", \"\": 1}", "line 1, column 17: a key is empty"},
	{"{\"k\": [1]}", "line 1, column 7: k is not a string"},
	{"{\"prompt\": \"a\", \"max_new_tokens\": }", "line 1, column 35: this cannot stand here"},
	{"{\"prompt\": \"a\"", "line 1, column 15: the JSON ends too early"},
	{"{\"prompt\":\"\\ud800\",\"max_new_tokens\":1}", "surrogate"},
	/* The default id of line 2 is taken by line 1. */
	{"{\"prompt\":\"a\",\"max_new_tokens\":1,\"id\":\"1\"}\n" GOOD,
	 "w: line 2: id 1 is that of line 1"},
	{"{\"prompt\":\"a\",\"max_new_tokens\":1,\"id\":\"q\"}\n" GOOD
	 "{\"prompt\":\"a\",\"max_new_tokens\":1,\"id\":\"q\"}\n",
	 "w: line 3: id q is that of line 1"},
};

START_TEST(test_parse_refuses)
{
	struct mtk_workload *workload = NULL;
	struct mtk_error error = {.text = ""};

	ck_assert_int_eq(parse(refused[_i].text, &workload, &error), MOETRACE_E_FORMAT);
	ck_assert_ptr_null(workload);
	ck_assert_msg(strstr(error.text, refused[_i].words) != NULL, "%s: %s", refused[_i].text,
		      error.text);
	ck_assert_ptr_null(strchr(error.text, '\n'));
}
END_TEST

/* What can be mended says how. */
START_TEST(test_parse_says_what_to_do)
{
	struct mtk_workload *workload = NULL;
	struct mtk_error error = {.text = ""};

	ck_assert_int_eq(parse(refused[_i].text, &workload, &error), MOETRACE_E_FORMAT);
	ck_assert_msg(strchr(error.text, ';') != NULL, "%s", error.text);
}
END_TEST

START_TEST(test_read_errors)
{
	struct mtk_workload *workload;
	struct mtk_error error;

	ck_assert_int_eq(mtk_workload_read("/nonexistent/w", &workload, &error),
			 MOETRACE_E_NOT_FOUND);
	ck_assert_str_eq(error.text, "/nonexistent/w: cannot open: No such file or directory");
	ck_assert_int_eq(mtk_workload_read("/", &workload, &error), MOETRACE_E_IO);
	ck_assert_str_eq(error.text, "/: cannot read: Is a directory");
}
END_TEST

START_TEST(test_read_example)
{
	struct mtk_workload *workload;
	size_t n_tokens = 0, i;

	ck_assert_int_eq(mtk_workload_read(model_file_workload_path(), &workload, NULL),
			 MOETRACE_OK);
	ck_assert_uint_eq(workload->n_requests, 64);
	for (i = 0; i < workload->n_requests; i++) {
		ck_assert_uint_eq(workload->requests[i].n_attributes, 1);
		ck_assert_str_eq(workload->requests[i].attributes[0].key, "domain");
		n_tokens += workload->requests[i].n_prompt_bytes;
	}
	ck_assert_uint_eq(n_tokens, 7520);
	mtk_workload_destroy(workload);
}
END_TEST

START_TEST(test_repeat)
{
	struct mtk_workload *workload;
	struct mtk_error error;
	size_t i;

	ck_assert_int_eq(parse("{\"id\":\"a\",\"prompt\":\"xy\",\"max_new_tokens\":3,\"k\":\"v\"}\n"
			       "{\"prompt\":\"z\",\"max_new_tokens\":1}\n",
			       &workload, NULL),
			 MOETRACE_OK);
	ck_assert_int_eq(mtk_workload_repeat(workload, UINT32_MAX, &error), MOETRACE_E_LIMIT);
	ck_assert_int_eq(mtk_workload_repeat(workload, 3, &error), MOETRACE_OK);
	ck_assert_uint_eq(workload->n_requests, 6);
	for (i = 0; i < 6; i += 2) {
		ck_assert_str_eq(workload->requests[i].id, i == 0 ? "a" : i == 2 ? "a.2" : "a.3");
		ck_assert_mem_eq(workload->requests[i].prompt, "xy", 2);
		ck_assert_uint_eq(workload->requests[i].max_new_tokens, 3);
		ck_assert_str_eq(workload->requests[i].attributes[0].value, "v");
		ck_assert_uint_eq(workload->requests[i + 1].n_attributes, 0);
	}
	ck_assert_str_eq(workload->requests[5].id, "1.3");
	mtk_workload_destroy(workload);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("workload");
	TCase *tcase = tcase_create("read");

	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, test_parse_requests);
	tcase_add_test(tcase, test_parse_default_id);
	tcase_add_loop_test(tcase, test_parse_refuses, 0, sizeof(refused) / sizeof(refused[0]));
	tcase_add_loop_test(tcase, test_parse_says_what_to_do, 0,
			    sizeof(refused) / sizeof(refused[0]));
	tcase_add_test(tcase, test_read_errors);
	tcase_add_test(tcase, test_read_example);
	tcase_add_test(tcase, test_repeat);
	return run_suite(suite);
}
