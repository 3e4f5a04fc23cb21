/* SPDX-License-Identifier: MIT */
/*
 * The faults that routers in the field have had with biases, weights and scaling, each as a test of
 * that name on every level of instructions.
 */
#include <check.h>
#include <float.h>
#include <math.h>

#include "kernels/presets/presets.h"
#include "tests/kernels/support/levels.h"
#include "tests/routing/support/routed.h"
#include "tests/routing/support/settings.h"
#include "tests/support/run_suite.h"

START_TEST(test_bias_never_leaks_into_weights)
{
	struct mtk_route_config config = mtk_route_config_make(256, 8);
	struct random random = {3};
	float logits[256], bias[256];
	const struct routed *routed;

	for (int e = 0; e < 256; e++) {
		logits[e] = 3.0f * random_unit(&random);
		bias[e] = 34.5f + 0.1f * random_unit(&random);
	}
	config.scoring = MTK_ROUTE_SIGMOID;
	config.bias = MTK_ROUTE_BIAS_SCORE;
	routed = routed_run(_i, &config, 1, logits, bias);
	for (int j = 0; j < 8; j++) {
		double x = logits[routed->ids[j]];

		ck_assert_double_eq_tol(routed->weights[j], 1.0 / (1.0 + exp(-x)), 2e-7);
	}
}
END_TEST

START_TEST(test_three_meanings_of_softmax_with_bias)
{
	struct mtk_route_config config = mtk_route_config_make(4, 1);
	/* Probabilities .6, .3, .05, .05. */
	const float logits[] = {logf(.6f), logf(.3f), logf(.05f), logf(.05f)};
	const float bias[] = {0, 0.31f, 2.0f, 0};
	const struct routed *routed;

	config.bias = MTK_ROUTE_BIAS_SCORE; /* .6 .61 2.05 */
	routed = routed_run(_i, &config, 1, logits, bias);
	ck_assert_int_eq(routed->ids[0], 2);
	ck_assert_float_eq_tol(routed->weights[0], .05f, 1e-6f);
	config.bias = MTK_ROUTE_BIAS_LOGIT_CHOICE; /* -.51 -.89 -1.0 */
	routed = routed_run(_i, &config, 1, logits, bias);
	ck_assert_int_eq(routed->ids[0], 0);
	ck_assert_float_eq_tol(routed->weights[0], .6f, 1e-6f);
	config.bias = MTK_ROUTE_BIAS_LOGIT;
	routed = routed_run(_i, &config, 1, logits, bias);
	ck_assert_int_eq(routed->ids[0], 0);
	/* .6 / (.6 + .3 e^.31 + .05 e^2 + .05) */
	ck_assert_float_eq_tol(routed->weights[0], 0.420027f, 1e-5f);
}
END_TEST

START_TEST(test_softmax_before_and_after_choice_differ)
{
	struct mtk_route_config config = mtk_route_config_make(4, 2);
	const float logits[] = {logf(.4f), logf(.4f), logf(.1f), logf(.1f)};

	ck_assert_float_eq_tol(routed_run(_i, &config, 1, logits, NULL)->weights[0], .4f, 1e-6f);
	config.scoring = MTK_ROUTE_SOFTMAX_SELECTED;
	ck_assert_float_eq_tol(routed_run(_i, &config, 1, logits, NULL)->weights[0], .5f, 1e-6f);
}
END_TEST

START_TEST(test_underflowing_sigmoids_give_no_nan)
{
	struct mtk_route_config config = mtk_preset_find("deepseek-v3")->route;
	const float bias[256] = {0};
	float logits[256];
	const struct routed *routed;

	for (int e = 0; e < 256; e++)
		logits[e] = -3000.0f - (float)e;
	for (int how = 0; how < MTK_ROUTE_N_RENORMALISE; how++) {
		config.renormalise = (enum mtk_route_renormalise)how;
		config.renormalise_min = 1e-12;
		routed = routed_run(_i, &config, 1, logits, bias);
		for (int j = 0; j < 8; j++)
			ck_assert_float_eq(routed->weights[j], 0.0f);
	}
}
END_TEST

/* The reciprocal of a denormal sum is infinite; its parts are not. */
START_TEST(test_denormal_sums_give_finite_weights)
{
	struct mtk_route_config config = mtk_preset_find("deepseek-v3")->route;
	const float bias[256] = {0};
	float logits[256];

	for (int i = 0; i < 50 * MTK_ROUTE_N_RENORMALISE; i++) {
		const struct routed *routed;
		double sum = 0.0;

		for (int e = 0; e < 256; e++)
			logits[e] = -700.0f - (float)(i % 50);
		config.renormalise = (enum mtk_route_renormalise)(i / 50);
		config.renormalise_min = 1e-320;
		routed = routed_run(_i, &config, 1, logits, bias);
		for (int j = 0; j < 8; j++) {
			ck_assert_float_finite(routed->weights[j]);
			ck_assert_float_ge(routed->weights[j], 0.0f);
			sum += routed->weights[j];
		}
		if (config.renormalise == MTK_ROUTE_RENORMALISE_IF_POSITIVE && sum > 0.0)
			ck_assert_double_eq_tol(sum, config.scale, 1e-6);
		ck_assert_double_le(sum, config.scale + 1e-6);
	}
}
END_TEST

START_TEST(test_largest_settings_give_finite_weights)
{
	struct mtk_route_config config = mtk_route_config_make(2, 2);
	const float logits[] = {FLT_MAX, -FLT_MAX};
	const float bias[] = {FLT_MAX, FLT_MAX};

	config.scoring = MTK_ROUTE_SQRTSOFTPLUS;
	config.bias = MTK_ROUTE_BIAS_LOGIT;
	config.n_shared_slots = 1;
	config.scale = config.shared_weight = MTK_ROUTE_MAX_SCALE;
	for (int j = 0; j < 3; j++)
		ck_assert_float_finite(routed_run(_i, &config, 1, logits, bias)->weights[j]);
}
END_TEST

START_TEST(test_every_shape_weighs_alike)
{
	static const uint32_t shapes[][2] = {
		{8, 2},	  {16, 1},  {16, 2},   {16, 4},	  {32, 4},   {32, 8},	{40, 8},
		{60, 4},  {64, 4},  {64, 6},   {64, 8},	  {72, 10},  {128, 1},	{128, 4},
		{128, 6}, {128, 8}, {160, 6},  {160, 8},  {256, 6},  {256, 8},	{288, 8},
		{384, 6}, {384, 8}, {512, 10}, {512, 22}, {896, 16}, {1024, 8}, {8192, 32}};
	static float logits[8192], bias[8192];
	struct random random = {11};

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		struct mtk_route_config config = mtk_route_config_make(shapes[i][0], shapes[i][1]);
		const struct routed *routed;
		double sum = 0.0;

		config.scoring = MTK_ROUTE_SIGMOID;
		config.bias = MTK_ROUTE_BIAS_SCORE;
		config.renormalise = MTK_ROUTE_RENORMALISE_EPSILON;
		config.scale = 2.5;
		for (uint32_t e = 0; e < shapes[i][0]; e++) {
			logits[e] = 4.0f * random_unit(&random);
			bias[e] = 0.1f * random_unit(&random);
		}
		routed = routed_run(_i, &config, 1, logits, bias);
		for (uint32_t j = 0; j < config.top_k; j++)
			sum += 1.0 / (1.0 + exp(-(double)logits[routed->ids[j]]));
		for (uint32_t j = 0; j < config.top_k; j++) {
			double x = logits[routed->ids[j]];

			ck_assert_double_eq_tol(routed->weights[j], 2.5 / (1 + exp(-x)) / sum,
						1e-6);
		}
	}
}
END_TEST

START_TEST(test_scale_has_one_owner)
{
	struct mtk_route_config config = mtk_route_config_make(2, 2);
	const float logits[] = {0, 0};

	config.scale = 16.0;
	config.n_shared_slots = 1;
	ck_assert_float_eq(routed_run(_i, &config, 1, logits, NULL)->weights[0], 8.0f);
	ck_assert_float_eq(routed_run(_i, &config, 1, logits, NULL)->weights[2], 1.0f);
	config.scale_owner = MTK_ROUTE_SCALE_ON_OUTPUT;
	ck_assert_float_eq(routed_run(_i, &config, 1, logits, NULL)->weights[0], 0.5f);
}
END_TEST

START_TEST(test_sqrtsoftplus_is_stable)
{
	struct mtk_route_config config = mtk_route_config_make(6, 6);
	const float logits[] = {1e30f, 100, 0, -20, -60, -70};
	const double expected[] = {
		1e15, 10, 0.832554611157698, 4.539992976e-5, 9.357622969e-14, 6.305116760e-16};
	const struct routed *routed;

	config.scoring = MTK_ROUTE_SQRTSOFTPLUS;
	routed = routed_run(_i, &config, 1, logits, NULL);
	for (int j = 0; j < 6; j++) {
		ck_assert_int_eq(routed->ids[j], j);
		ck_assert_double_eq_tol(routed->weights[j] / expected[j], 1.0, 1e-6);
	}
	/* The form of fp32 kernels loses what is small. */
	config.softplus = MTK_ROUTE_SOFTPLUS_LOG;
	routed = routed_run(_i, &config, 1, logits, NULL);
	ck_assert_float_eq(routed->weights[3], 0.0f);
	ck_assert_float_eq_tol(routed->weights[1], 10.0f, 1e-6f);
}
END_TEST

START_TEST(test_choice_by_logit_when_sigmoids_saturate)
{
	struct mtk_route_config config = mtk_route_config_make(3, 1);
	const float logits[] = {100, 200, 150};

	config.scoring = MTK_ROUTE_SIGMOID;
	ck_assert_int_eq(routed_run(_i, &config, 1, logits, NULL)->ids[0], 0);
	config.choose_by = MTK_ROUTE_BY_LOGIT;
	ck_assert_int_eq(routed_run(_i, &config, 1, logits, NULL)->ids[0], 1);
}
END_TEST

/* Precision: biases and scores are not rounded to 16 bits before the choice. */
START_TEST(test_close_biases_keep_their_order)
{
	struct mtk_route_config config = mtk_route_config_make(64, 8);
	float logits[64], bias[64];
	const struct routed *routed;

	config.scoring = MTK_ROUTE_SIGMOID;
	config.bias = MTK_ROUTE_BIAS_SCORE;
	for (int e = 0; e < 64; e++) {
		logits[e] = 0.5f;
		bias[e] = 34.5f + (float)e * 0x1p-18f; /* neighbours in fp32 */
	}
	routed = routed_run(_i, &config, 1, logits, bias);
	for (int j = 0; j < 8; j++)
		ck_assert_int_eq(routed->ids[j], 63 - j);
}
END_TEST

int main(void)
{
	const TTest *const level_tests[] = {
		test_bias_never_leaks_into_weights,
		test_three_meanings_of_softmax_with_bias,
		test_softmax_before_and_after_choice_differ,
		test_underflowing_sigmoids_give_no_nan,
		test_denormal_sums_give_finite_weights,
		test_largest_settings_give_finite_weights,
		test_every_shape_weighs_alike,
		test_scale_has_one_owner,
		test_sqrtsoftplus_is_stable,
		test_choice_by_logit_when_sigmoids_saturate,
		test_close_biases_keep_their_order,
	};
	Suite *suite = suite_create("route weights");
	TCase *levels = tcase_create("levels");

	tcase_set_timeout(levels, 120);
	for (size_t i = 0; i < sizeof(level_tests) / sizeof(level_tests[0]); i++)
		tcase_add_loop_test(levels, level_tests[i], 0, levels_available());
	suite_add_tcase(suite, levels);
	return run_suite(suite);
}
