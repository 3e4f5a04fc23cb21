/* SPDX-License-Identifier: MIT */
/*
 * Opportunistic expert activation: batches of which the outcome is known without an oracle.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/oea/oea.h"
#include "tests/moe_ops/support/suite.h"
#include "tests/routing/support/oea_trial.h"
#include "tests/routing/support/settings.h"

static struct oea_trial trial_make(uint32_t n_experts, uint32_t top_k, const char *rule,
			       uint32_t n_rows)
{
	struct oea_trial trial = {.route = mtk_route_config_make(n_experts, top_k),
			      .n_rows = n_rows,
			      .n_valid_rows = n_rows};
	struct mtk_oea given;
	struct mtk_error error = {""};

	memset(trial.is_decode, 1, sizeof(trial.is_decode));
	trial.route.renormalise = MTK_ROUTE_RENORMALISE_IF_POSITIVE;
	ck_assert_msg(mtk_oea_parse(rule, &given, &error) == MOETRACE_OK, "%s", error.text);
	ck_assert_msg(mtk_oea_resolve(&given, &trial.route, &trial.oea, &error) == MOETRACE_OK,
		      "%s", error.text);
	return trial;
}

static void assert_ids(const struct oea_trial *trial, uint32_t r, const int32_t *expected)
{
	const uint32_t width = mtk_oea_width(&trial->oea, &trial->route);

	for (uint32_t j = 0; j < width; j++)
		ck_assert_msg(trial->ids[r * width + j] == expected[j],
			      "row %u, entry %u: %d instead of %d", r, j, trial->ids[r * width + j],
			      expected[j]);
}

/* Three rows over six experts, by hand: preferences 0 1 2 .., 1 3 0 2 .., and 4 5 2 0 .. */
static struct oea_trial trial_by_hand(const char *rule)
{
	static const float logits[3][6] = {
		{6, 5, 4, 3, 2, 1}, {4, 6, 3, 5, 2, 1}, {3, 2, 4, 1, 6, 5}};
	struct oea_trial trial = trial_make(6, 3, rule, 3);

	memcpy(trial.logits, logits, sizeof(logits));
	return trial;
}

START_TEST(test_by_hand)
{
	struct oea_trial trial = trial_by_hand("k0=1");
	const double e = exp(1.0);

	oea_trial_apply(&trial, mtk_route_plain, 3);
	/* The union is 0, 1 and 4. */
	assert_ids(&trial, 0, (int32_t[]){0, 1, 4});
	assert_ids(&trial, 1, (int32_t[]){1, 0, 4});
	assert_ids(&trial, 2, (int32_t[]){4, 0, 1});
	ck_assert_double_eq_tol(trial.weights[0], 1 / (1 + 1 / e + exp(-4.0)), 1e-6);
	ck_assert_double_eq_tol(trial.weights[5], exp(-4.0) / (1 + exp(-2.0) + exp(-4.0)), 1e-6);
	ck_assert_uint_eq(trial.flags[0] | trial.flags[1] | trial.flags[2], 0);

	/* Without taking more, this is pruning; two more entries than k0 at most. */
	trial = trial_by_hand("k0=1,kmax=1");
	oea_trial_apply(&trial, mtk_route_plain, 3);
	assert_ids(&trial, 1, (int32_t[]){1, -1, -1});
	ck_assert_float_eq(trial.weights[3], 1.0f);
	ck_assert_uint_eq(trial.flags[1], MTK_OEA_FLAG_BELOW_K);

	/* More entries than top_k where the union has them: 0, 1, 3, 4 and 5. */
	trial = trial_by_hand("k0=2,kmax=4");
	oea_trial_apply(&trial, mtk_route_plain, 3);
	assert_ids(&trial, 0, (int32_t[]){0, 1, 3, 4});
	assert_ids(&trial, 2, (int32_t[]){4, 5, 0, 1});

	/* Rank 4 is the deepest: row 0 cannot reach expert 4, which is its fifth. */
	trial = trial_by_hand("k0=1,maxp=4");
	oea_trial_apply(&trial, mtk_route_plain, 3);
	assert_ids(&trial, 0, (int32_t[]){0, 1, -1});
	assert_ids(&trial, 2, (int32_t[]){4, 0, -1});
	ck_assert_uint_eq(trial.flags[0], MTK_OEA_FLAG_BELOW_K);

	/* The best expert alone holds 0.63 of each row, the best two 0.87. */
	trial = trial_by_hand("k0=3,p=0.6");
	oea_trial_apply(&trial, mtk_route_plain, 3);
	ck_assert_uint_eq(trial.n_base[0], 1);
	trial = trial_by_hand("k0=3,p=0.7");
	oea_trial_apply(&trial, mtk_route_plain, 3);
	ck_assert_uint_eq(trial.n_base[0], 2);
}
END_TEST

/* Decode rows ride on what prefill rows load, which keep all of their choice. */
START_TEST(test_mixed_batch)
{
	struct oea_trial trial = trial_by_hand("k0=1");

	trial.is_decode[0] = 0;
	oea_trial_apply(&trial, mtk_route_plain, 3);
	assert_ids(&trial, 0, (int32_t[]){0, 1, 2});
	assert_ids(&trial, 1, (int32_t[]){1, 0, 2});
	assert_ids(&trial, 2, (int32_t[]){4, 2, 0});
	ck_assert_mem_eq(trial.weights, trial.base_weights, 3 * sizeof(float));

	memset(trial.is_decode, 0, sizeof(trial.is_decode));
	oea_trial_apply(&trial, mtk_route_plain, 3);
	ck_assert_mem_eq(trial.ids, trial.base_ids, 9 * sizeof(int32_t));
	ck_assert_mem_eq(trial.weights, trial.base_weights, 9 * sizeof(float));
}
END_TEST

/* Padding selects nothing, and its experts are not in the union. */
START_TEST(test_padding)
{
	struct oea_trial trial = trial_by_hand("k0=1");

	trial.n_valid_rows = 2;
	oea_trial_apply(&trial, mtk_route_plain, 1);
	assert_ids(&trial, 0, (int32_t[]){0, 1, -1});
	assert_ids(&trial, 1, (int32_t[]){1, 0, -1});
	assert_ids(&trial, 2, (int32_t[]){-1, -1, -1});
	ck_assert_uint_eq(trial.flags[0], MTK_OEA_FLAG_BELOW_K);
	ck_assert_uint_eq(trial.flags[2], 0);
	ck_assert_uint_eq(trial.is_loaded[4], 0);

	trial.n_valid_rows = 0;
	oea_trial_apply(&trial, mtk_route_plain, 1);
	assert_ids(&trial, 0, (int32_t[]){-1, -1, -1});
}
END_TEST

START_TEST(test_one_row)
{
	struct oea_trial trial = trial_by_hand("k0=2");

	trial.n_rows = trial.n_valid_rows = 1;
	oea_trial_apply(&trial, mtk_route_plain, 1);
	assert_ids(&trial, 0, (int32_t[]){0, 1, -1});
	ck_assert_uint_eq(trial.flags[0], MTK_OEA_FLAG_BELOW_K | MTK_OEA_FLAG_ONE_ROW);
	/* Rows of padding make no company. */
	trial.n_rows = 3;
	oea_trial_apply(&trial, mtk_route_plain, 1);
	ck_assert_uint_eq(trial.flags[0], MTK_OEA_FLAG_BELOW_K | MTK_OEA_FLAG_ONE_ROW);
	ck_assert_uint_eq(trial.flags[1], 0);
}
END_TEST

/* The bias decides what is preferred, never what an entry weighs. */
START_TEST(test_bias)
{
	struct oea_trial trial = trial_by_hand("k0=1");

	trial.route.scoring = MTK_ROUTE_SIGMOID;
	trial.route.bias = MTK_ROUTE_BIAS_SCORE;
	trial.bias[5] = 100.0f;
	oea_trial_apply(&trial, mtk_route_plain, 3);
	/* All want expert 5 first, so that the union is expert 5. */
	assert_ids(&trial, 0, (int32_t[]){5, -1, -1});
	ck_assert_float_eq(trial.weights[0], 1.0f);
	trial.oea.k0 = 2;
	oea_trial_apply(&trial, mtk_route_plain, 3);
	assert_ids(&trial, 0, (int32_t[]){5, 0, 1});
	assert_ids(&trial, 2, (int32_t[]){5, 4, 0});
	ck_assert_double_eq_tol(trial.weights[0] / trial.weights[1],
				(1 + exp(-6.0)) / (1 + exp(-1.0)), 1e-6);
}
END_TEST

/* Experts of groups that the row did not keep stay out, also where others load them. */
START_TEST(test_groups)
{
	struct oea_trial trial = trial_by_hand("k0=1");
	char message[MTK_ROUTE_MESSAGE_BYTES];

	trial.route.groups = MTK_ROUTE_GROUPS_MAX;
	trial.route.n_groups = 2;
	trial.route.n_keep_groups = 1;
	ck_assert_msg(mtk_route_config_check(&trial.route, message) == MOETRACE_OK, "%s", message);
	oea_trial_apply(&trial, mtk_route_plain, 3);
	assert_ids(&trial, 0, (int32_t[]){0, 1, -1});
	assert_ids(&trial, 1, (int32_t[]){1, 0, -1});
	assert_ids(&trial, 2, (int32_t[]){4, -1, -1});
}
END_TEST

/* The union of identical rows is what one of them keeps. */
START_TEST(test_identical_rows)
{
	struct oea_trial trial = trial_make(6, 3, "k0=2", 3);

	for (uint32_t i = 0; i < 18; i++)
		trial.logits[i] = (float)(i % 6);
	oea_trial_apply(&trial, mtk_route_plain, 3);
	for (uint32_t r = 0; r < 3; r++) {
		assert_ids(&trial, r, (int32_t[]){5, 4, -1});
		ck_assert_uint_eq(trial.flags[r], MTK_OEA_FLAG_BELOW_K);
	}
}
END_TEST

/* Independent uniform choices: N (1 - (1 - k0 / N)^B) experts are active on average. */
START_TEST(test_uniform_expectation)
{
	static float logits[16 * 128];
	static int32_t ids[16 * 8], base_ids[16 * 8];
	static float weights[16 * 8], base_weights[16 * 8];
	static uint8_t n_base[16], is_loaded[128], is_decode[16], flags[16];
	static double scratch[8 * 128];
	struct random random = {9};
	const struct mtk_route_config route = mtk_route_config_make(128, 8);
	const struct mtk_route_batch rows = {16, 16, logits, NULL, NULL};
	const struct mtk_route_result base = {.ids = base_ids, .weights = base_weights};
	const struct mtk_oea_result result = {ids, weights, flags};
	struct mtk_oea oea;
	struct mtk_oea_batch batch = {&oea,	&route,	      rows,   is_decode,
				      base_ids, base_weights, n_base, is_loaded};
	uint64_t n_active[9] = {0};

	memset(is_decode, 1, sizeof(is_decode));
	for (int i = 0; i < 400; i++) {
		for (uint32_t j = 0; j < 16 * 128; j++)
			logits[j] = random_unit(&random);
		mtk_route_plain(&route, &rows, 0, 16, scratch, &base);
		for (uint32_t k0 = 3; k0 <= 8; k0++) {
			bool is_active[128] = {false};

			oea = (struct mtk_oea){k0, 8, 1.0, 128};
			mtk_oea_base(&batch, 0, 16, scratch);
			mtk_oea_unite(&batch);
			mtk_oea_choose(&batch, 0, 16, scratch, &result);
			for (uint32_t j = 0; j < 16 * 8; j++)
				is_active[ids[j]] = true;
			for (uint32_t e = 0; e < 128; e++)
				n_active[k0] += is_active[e];
		}
	}
	for (uint32_t k0 = 3; k0 <= 8; k0++)
		ck_assert_double_eq_tol((double)n_active[k0] / 400,
					128 * (1 - pow(1 - k0 / 128.0, 16)), 0.8);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("oea cases");
	TCase *tcase = tcase_create("rule");

	tcase_add_test(tcase, test_by_hand);
	tcase_add_test(tcase, test_mixed_batch);
	tcase_add_test(tcase, test_padding);
	tcase_add_test(tcase, test_one_row);
	tcase_add_test(tcase, test_bias);
	tcase_add_test(tcase, test_groups);
	tcase_add_test(tcase, test_identical_rows);
	tcase_add_test(tcase, test_uniform_expectation);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
