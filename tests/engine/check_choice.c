/* SPDX-License-Identifier: MIT */
/*
 * Choices of experts that are not the router's: how often each expert is chosen, and what is
 * refused.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/engine/choice.h"
#include "tests/support/run_suite.h"

static struct mtk_choice *chosen(struct mtk_choice_settings settings)
{
	struct mtk_choice *choice;
	struct mtk_error error;

	ck_assert_int_eq(mtk_choice_create(&settings, &error, &choice), MOETRACE_OK);
	return choice;
}

/* How often each of n_columns is in n rows; ids are distinct and in range. */
static void count(const struct mtk_choice *choice, uint32_t n_rows, uint32_t layer,
		  uint32_t *ret_counts)
{
	const struct mtk_choice_settings *s = mtk_choice_borrow_settings(choice);
	double scratch[64];
	int32_t ids[MTK_ROUTE_MAX_TOP_K];

	memset(ret_counts, 0, s->n_columns * sizeof(*ret_counts));
	for (uint32_t r = 0; r < n_rows; r++) {
		uint64_t seen = 0;

		mtk_choice_row(choice, layer, r % 7, r / 7, scratch, ids);
		for (uint32_t j = 0; j < s->top_k; j++) {
			ck_assert_int_ge(ids[j], 0);
			ck_assert_uint_lt((uint32_t)ids[j], s->n_columns);
			ck_assert(!(seen >> ids[j] & 1));
			seen |= 1ull << ids[j];
			ret_counts[ids[j]]++;
		}
	}
}

static int descending(const void *a, const void *b)
{
	return *(const uint32_t *)a < *(const uint32_t *)b ? 1 : -1;
}

START_TEST(choices_have_their_distribution)
{
	struct mtk_choice_settings settings = {
		.kind = MTK_CHOICE_UNIFORM, .seed = 3, .n_layers = 2, .n_columns = 60, .top_k = 6};
	struct mtk_choice *choice = chosen(settings);
	uint32_t counts[60], others[60];
	double sum = 0.0;

	/* A tenth of the rows each, with a deviation of 42. */
	count(choice, 20000, 0, counts);
	for (int e = 0; e < 60; e++)
		ck_assert_double_eq_tol(counts[e], 2000.0, 200.0);
	mtk_choice_destroy(choice);

	settings.kind = MTK_CHOICE_ROUND_ROBIN;
	choice = chosen(settings);
	count(choice, 700, 1, counts);
	for (int e = 0; e < 60; e++)
		ck_assert_double_eq_tol(counts[e], 70.0, 35.0);
	mtk_choice_destroy(choice);

	settings.kind = MTK_CHOICE_ZIPF;
	settings.exponent = 1.0;
	settings.top_k = 1;
	choice = chosen(settings);
	count(choice, 20000, 0, counts);
	count(choice, 20000, 1, others);
	ck_assert_int_ne(memcmp(counts, others, sizeof(counts)), 0);
	qsort(counts, 60, sizeof(*counts), descending);
	for (int e = 0; e < 60; e++)
		sum += 1.0 / (e + 1);
	for (int e = 0; e < 4; e++)
		ck_assert_double_eq_tol(counts[e], 20000.0 / sum / (e + 1), 250.0);
	mtk_choice_destroy(choice);

	/* All there are, at the extremes of S. */
	settings.n_columns = settings.top_k = 8;
	for (int i = 0; i < 2; i++) {
		settings.exponent = i * MTK_CHOICE_MAX_EXPONENT;
		choice = chosen(settings);
		count(choice, 100, 1, counts);
		mtk_choice_destroy(choice);
	}
}
END_TEST

START_TEST(choices_are_checked)
{
	const struct mtk_replay replay = {.n_layers = 1, .top_k = 2};
	const struct {
		struct mtk_choice_settings settings;
		const char *field;
	} bad[] = {
		{{.kind = MTK_CHOICE_REPLAY + 1, .n_columns = 4, .top_k = 2}, "kind"},
		{{.kind = MTK_CHOICE_UNIFORM, .n_columns = 4, .top_k = 5}, "top_k"},
		{{.kind = MTK_CHOICE_UNIFORM, .n_columns = 4}, "top_k"},
		{{.kind = MTK_CHOICE_UNIFORM, .top_k = 1}, "n_columns"},
		{{.kind = MTK_CHOICE_ZIPF, .n_columns = 4, .top_k = 2, .exponent = NAN},
		 "exponent"},
		{{.kind = MTK_CHOICE_ZIPF, .n_columns = 4, .top_k = 2, .exponent = -1}, "exponent"},
		{{.kind = MTK_CHOICE_ZIPF, .n_columns = 4, .top_k = 2, .exponent = INFINITY},
		 "exponent"},
		{{.kind = MTK_CHOICE_REPLAY, .n_columns = 4, .top_k = 2, .n_layers = 1}, "replay"},
		{{.kind = MTK_CHOICE_REPLAY,
		  .replay = &replay,
		  .n_columns = 4,
		  .top_k = 2,
		  .n_layers = 2},
		 "n_layers"},
		{{.kind = MTK_CHOICE_REPLAY,
		  .replay = &replay,
		  .n_columns = 4,
		  .top_k = 3,
		  .n_layers = 1},
		 "top_k"},
	};
	struct mtk_choice *choice = NULL;
	struct mtk_error error;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_int_eq(mtk_choice_create(&bad[i].settings, &error, &choice),
				 MOETRACE_E_INVALID);
		ck_assert_msg(strstr(error.text, bad[i].field) != NULL, "'%s' does not name %s",
			      error.text, bad[i].field);
	}
	ck_assert_ptr_null(choice);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("choice");
	TCase *tcase = tcase_create("choice");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, choices_have_their_distribution);
	tcase_add_test(tcase, choices_are_checked);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
