/* SPDX-License-Identifier: MIT */
/* Reading of the greedy continuations. */
#include "tests/kernels/support/greedy.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "tests/kernels/support/tinymoe.h"

static size_t copy_text(const struct mt_json_event *event, char *to, size_t size)
{
	ck_assert_uint_le(event->n_bytes, size);
	memcpy(to, event->text, event->n_bytes);
	return event->n_bytes;
}

static int take_greedy(void *context, const struct mt_json_event *event,
		       struct mt_json_error *error)
{
	struct greedy_cases *cases = context;
	struct greedy_case *current = &cases->cases[cases->n_cases];

	(void)error;
	ck_assert_uint_lt(cases->n_cases, GREEDY_MAX);
	if (event->kind == MT_JSON_KEY)
		cases->key[copy_text(event, cases->key, sizeof(cases->key) - 1)] = '\0';
	else if (event->kind == MT_JSON_OBJECT_END)
		cases->n_cases++;
	else if (event->kind == MT_JSON_STRING && !strcmp(cases->key, "prompt"))
		current->n_prompt = copy_text(event, current->prompt, sizeof(current->prompt));
	else if (event->kind == MT_JSON_STRING && !strcmp(cases->key, "text"))
		current->n_text = copy_text(event, current->text, sizeof(current->text));
	else if (event->kind == MT_JSON_NUMBER && !strcmp(cases->key, "min_logit_gap"))
		ck_assert_int_eq(mt_json_double(event, &current->min_logit_gap), 0);
	return 0;
}

void greedy_read(struct greedy_cases *ret_cases)
{
	const struct mt_json_limits limits = {1u << 20, 4};
	struct mt_json_error error;
	size_t n_bytes;
	char *json = tinymoe_read_file("tests/data/tinymoe/greedy.json", 0, &n_bytes);

	memset(ret_cases, 0, sizeof(*ret_cases));
	ck_assert_int_eq(mt_json_parse(json, n_bytes, &limits, take_greedy, ret_cases, &error), 0);
	ck_assert_uint_eq(ret_cases->n_cases, 15);
	free(json);
}
