/* SPDX-License-Identifier: MIT */
/*
 * Routing by hand: the faults that routers in the field have had with what they choose, each as a
 * test of that name on every level of instructions; margins, groups, outputs, padding, shared
 * slots, hash layers.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include <moetrace/status.h>

#include "kernels/presets/presets.h"
#include "tests/kernels/support/levels.h"
#include "tests/routing/support/routed.h"
#include "tests/routing/support/settings.h"
#include "tests/support/run_suite.h"

/* NaN, infinities, degenerate rows. */

START_TEST(test_nan_rows_have_distinct_ids)
{
	struct mtk_route_config config = mtk_route_config_make(40, 8);
	const int32_t expected[] = {0, 1, 2, 3, 4, 5, 6, 7};
	float logits[40];

	for (int scoring = 0; scoring < MTK_ROUTE_N_SCORINGS; scoring++) {
		const struct routed *routed;

		config.scoring = (enum mtk_route_scoring)scoring;
		config.renormalise = MTK_ROUTE_RENORMALISE_EPSILON;
		for (int e = 0; e < 40; e++)
			logits[e] = NAN;
		routed = routed_run(_i, &config, 1, logits, NULL);
		routed_assert_ids(routed, 8, expected);
		for (int j = 0; j < 8; j++)
			ck_assert_float_eq(routed->weights[j], 0.0f);
		ck_assert_uint_eq(routed->flags[0],
				  MTK_ROUTE_FLAG_NAN | MTK_ROUTE_FLAG_FEW | MTK_ROUTE_FLAG_TIE);
	}
}
END_TEST

START_TEST(test_nan_bias_is_never_chosen_first)
{
	struct mtk_route_config config = mtk_route_config_make(4, 2);
	const float logits[] = {3, 2, 1, 0};
	const float bias[] = {NAN, 0, 0, NAN};
	const int32_t expected[] = {1, 2};
	const struct routed *routed;

	config.scoring = MTK_ROUTE_SIGMOID;
	config.bias = MTK_ROUTE_BIAS_SCORE;
	routed = routed_run(_i, &config, 1, logits, bias);
	routed_assert_ids(routed, 2, expected);
	ck_assert_uint_eq(routed->flags[0], MTK_ROUTE_FLAG_NAN);
}
END_TEST

START_TEST(test_all_negative_logits)
{
	struct mtk_route_config config = mtk_route_config_make(6, 2);
	const float logits[] = {-9, -3, -5, -4, -8, -7};
	const int32_t expected[] = {1, 3};

	config.renormalise = MTK_ROUTE_RENORMALISE_IF_POSITIVE;
	for (int scoring = 0; scoring < MTK_ROUTE_N_SCORINGS; scoring++) {
		config.scoring = (enum mtk_route_scoring)scoring;
		routed_assert_ids(routed_run(_i, &config, 1, logits, NULL), 2, expected);
	}
}
END_TEST

START_TEST(test_fewer_than_k_eligible)
{
	struct mtk_route_config config = mtk_route_config_make(5, 3);
	const float logits[] = {-INFINITY, NAN, -INFINITY, 2, -INFINITY};
	const int32_t expected[] = {3, 0, 2};
	const struct routed *routed;

	config.renormalise = MTK_ROUTE_RENORMALISE_IF_POSITIVE;
	routed = routed_run(_i, &config, 1, logits, NULL);
	routed_assert_ids(routed, 3, expected);
	ck_assert_float_eq(routed->weights[0], 1.0f);
	ck_assert_float_eq(routed->weights[1] + routed->weights[2], 0.0f);
	ck_assert_uint_eq(routed->flags[0] & MTK_ROUTE_FLAG_FEW, MTK_ROUTE_FLAG_FEW);
}
END_TEST

START_TEST(test_hash_token_out_of_table)
{
	static const int32_t table[] = {4, 1, 0, 2, 3, 5};
	const int32_t tokens[] = {2, 3, -1, 0};
	const float logits[4 * 6] = {0};
	struct mtk_route_config config = mtk_route_config_make(6, 2);
	struct mtk_route_batch batch = {4, 4, logits, NULL, tokens};
	static struct routed routed;
	struct mtk_route_result result = routed_result(&routed);
	void *scratch = routed_scratch(&config);
	const int32_t expected[] = {3, 5, -1, -1, -1, -1, 4, 1};

	config.scoring = MTK_ROUTE_SQRTSOFTPLUS;
	config.renormalise = MTK_ROUTE_RENORMALISE_EPSILON;
	config.hash_table = table;
	config.n_hash_tokens = 3;
	routed_assert_valid(&config);
	mtk_cpu_ops_find((enum mtk_cpu_level)_i)->route(&config, &batch, 0, 4, scratch, &result);
	routed_assert_ids(&routed, 8, expected);
	ck_assert_float_eq_tol(routed.weights[0], 0.5f, 1e-6f);
	ck_assert_uint_eq(routed.flags[1], MTK_ROUTE_FLAG_TOKEN);
	ck_assert_uint_eq(routed.flags[0], 0);
	ck_assert(isinf(routed.margins[0]) && isinf(routed.margins[1]));
	free(scratch);
}
END_TEST

START_TEST(test_padding_and_zero_experts_differ)
{
	struct mtk_route_config config = mtk_route_config_make(2, 1);
	const float logits[] = {0, 1, 5, 0, 0, 9};
	const struct mtk_route_batch batch = {2, 1, logits, NULL, NULL};
	static struct routed routed;
	struct mtk_route_result result = routed_result(&routed);
	void *scratch;

	config.n_zero_experts = 1;
	routed_assert_valid(&config);
	scratch = routed_scratch(&config);
	mtk_cpu_ops_find((enum mtk_cpu_level)_i)->route(&config, &batch, 0, 2, scratch, &result);
	ck_assert_int_eq(routed.ids[0], 2);
	ck_assert_int_eq(routed.ids[1], -1);
	ck_assert_float_eq(routed.weights[1], 0.0f);
	ck_assert_uint_eq(routed.packed[1], 0xffff0000u);
	ck_assert_float_eq_tol(routed.margins[0], 0.957691f, 1e-5f);
	ck_assert(isinf(routed.margins[1]));
	free(scratch);
}
END_TEST

/* Margins. */

START_TEST(test_margins)
{
	static const struct {
		enum mtk_route_scoring scoring;
		uint32_t top_k;
		float logits[4];
		float margin;
	} cases[] = {
		{MTK_ROUTE_SOFTMAX_SELECTED, 1, {3, 1, 2.5f, NAN}, 0.5f},
		{MTK_ROUTE_SOFTMAX_SELECTED, 2, {3, 1, 2.5f, NAN}, 1.5f},
		{MTK_ROUTE_SOFTMAX_SELECTED, 3, {3, 1, 2.5f, NAN}, INFINITY},
		{MTK_ROUTE_SOFTMAX_SELECTED, 4, {3, 1, 2.5f, 2}, INFINITY},
		{MTK_ROUTE_SOFTMAX_SELECTED, 2, {3, 1, 1, 1}, 0},
		{MTK_ROUTE_SOFTMAX_SELECTED, 1, {INFINITY, INFINITY, 1, 0}, 0},
		{MTK_ROUTE_SOFTMAX_SELECTED, 2, {INFINITY, INFINITY, 1, 0}, INFINITY},
		{MTK_ROUTE_SOFTMAX_SELECTED, 1, {3e38f, -3e38f, -3e38f, -3e38f}, INFINITY},
		{MTK_ROUTE_SOFTMAX_SELECTED, 2, {NAN, -INFINITY, NAN, NAN}, 0},
		{MTK_ROUTE_SIGMOID, 2, {-300, -200, -250, 0}, 1e-45f},
		{MTK_ROUTE_SIGMOID, 1, {-1, 0, -INFINITY, -INFINITY}, 0.23105858f},
		{MTK_ROUTE_SOFTMAX, 2, {0, 0, -INFINITY, -INFINITY}, 0.5f},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mtk_route_config config = mtk_route_config_make(4, cases[i].top_k);
		const struct routed *routed;

		config.scoring = cases[i].scoring;
		routed = routed_run(_i, &config, 1, cases[i].logits, NULL);
		ck_assert_msg(routed->margins[0] == cases[i].margin, "case %zu: %.9g", i,
			      (double)routed->margins[0]);
		ck_assert_int_eq((routed->flags[0] & MTK_ROUTE_FLAG_TIE) != 0,
				 cases[i].margin == 0.0f);
	}
}
END_TEST

/* An expert of a group that was not kept does not count; the bias does. */
START_TEST(test_margin_in_groups)
{
	struct mtk_route_config config = mtk_route_config_make(8, 2);
	const float logits[] = {0, 0, 0, 0, 0, 0, 0, 0};
	const float bias[] = {4, 3, 2.5f, 0, 9, -20, -20, -20};

	config.scoring = MTK_ROUTE_SIGMOID;
	config.bias = MTK_ROUTE_BIAS_SCORE;
	config.groups = MTK_ROUTE_GROUPS_TOP2;
	config.n_groups = 2;
	config.n_keep_groups = 1;
	ck_assert_float_eq(routed_run(_i, &config, 1, logits, bias)->margins[0], 0.5f);
	config.top_k = 4;
	ck_assert(isinf(routed_run(_i, &config, 1, logits, bias)->margins[0]));
}
END_TEST

/* Groups. */

START_TEST(test_dropped_groups_never_win)
{
	struct mtk_route_config config = mtk_route_config_make(8, 3);
	const float logits[] = {1, 1, 2, 2, 9, 9, 1, 1};
	const float biases[][8] = {
		{-5, -6, -50, -51, -4, -7, -60, -61},
		{-1e30f, -1e30f, -2e30f, -2e30f, -1e29f, -1e29f, -3e30f, -3e30f},
		{-40, -41, -INFINITY, -INFINITY, -42, -40, -INFINITY, -INFINITY},
	};

	config.scoring = MTK_ROUTE_SIGMOID;
	config.bias = MTK_ROUTE_BIAS_SCORE;
	config.groups = MTK_ROUTE_GROUPS_TOP2;
	config.n_groups = 4;
	config.n_keep_groups = 2;
	for (int i = 0; i < 3; i++) {
		const struct routed *routed = routed_run(_i, &config, 1, logits, biases[i]);

		for (int j = 0; j < 3; j++)
			ck_assert_msg(routed->ids[j] / 2 == 0 || routed->ids[j] / 2 == 2,
				      "case %d: id %d is of a dropped group", i, routed->ids[j]);
	}
}
END_TEST

START_TEST(test_top2_sum_counts_equal_maxima_twice)
{
	struct mtk_route_config config = mtk_route_config_make(64, 1);
	float logits[64];
	const float bias[64] = {0};

	for (int e = 0; e < 64; e++)
		logits[e] = -8.0f;
	/* Twice 2.0 in the first group, 2.1 and 1.0 in the second. */
	logits[3] = logits[30] = 2.0f;
	logits[32] = 2.1f;
	logits[63] = 1.0f;
	config.scoring = MTK_ROUTE_SIGMOID;
	config.bias = MTK_ROUTE_BIAS_SCORE;
	config.groups = MTK_ROUTE_GROUPS_TOP2;
	config.n_groups = 2;
	config.n_keep_groups = 1;
	ck_assert_int_eq(routed_run(_i, &config, 1, logits, bias)->ids[0], 3);
}
END_TEST

START_TEST(test_equal_groups_lower_is_kept)
{
	struct mtk_route_config config = mtk_route_config_make(128, 8);
	const int32_t expected[] = {0, 1, 2, 3, 4, 5, 6, 7};
	float logits[128];

	for (int e = 0; e < 128; e++)
		logits[e] = 1.0f;
	for (int groups = 1; groups < MTK_ROUTE_N_GROUPINGS; groups++) {
		const struct routed *routed;

		config.groups = (enum mtk_route_groups)groups;
		config.n_groups = 4;
		config.n_keep_groups = 2;
		config.group_top_n = 3;
		routed = routed_run(_i, &config, 1, logits, NULL);
		routed_assert_ids(routed, 8, expected);
		ck_assert_uint_eq(routed->flags[0], MTK_ROUTE_FLAG_TIE);
	}
}
END_TEST

START_TEST(test_keep_groups_is_a_run_time_value)
{
	struct mtk_route_config config = mtk_preset_find("deepseek-v3")->route;
	struct random random = {7};
	float logits[256];
	const float bias[256] = {0};

	config.n_keep_groups = 1;
	for (int e = 0; e < 256; e++)
		logits[e] = random_unit(&random);
	for (uint32_t j = 1; j < 8; j++)
		ck_assert_int_eq(routed_run(_i, &config, 1, logits, bias)->ids[j] / 32,
				 routed_run(_i, &config, 1, logits, bias)->ids[0] / 32);
}
END_TEST

START_TEST(test_group_score_of_n)
{
	struct mtk_route_config config = mtk_route_config_make(8, 1);
	/* The first group wins by two, the second by three. */
	const float logits[] = {3, 2.9f, -9, -9, 2.8f, 2.7f, 2.6f, -9};

	config.scoring = MTK_ROUTE_SIGMOID;
	config.n_groups = 2;
	config.n_keep_groups = 1;
	config.groups = MTK_ROUTE_GROUPS_TOPN;
	config.group_top_n = 2;
	ck_assert_int_eq(routed_run(_i, &config, 1, logits, NULL)->ids[0], 0);
	config.group_top_n = 3;
	ck_assert_int_eq(routed_run(_i, &config, 1, logits, NULL)->ids[0], 4);
}
END_TEST

/* Sizes. */

START_TEST(test_zero_rows)
{
	struct mtk_route_config config = mtk_preset_find("deepseek-v3")->route;
	const struct mtk_route_batch batch = {0, 0, NULL, NULL, NULL};
	int64_t first[3] = {9, 9, 9};
	struct mtk_route_result nothing = {NULL, NULL, NULL, NULL, NULL};
	void *scratch = routed_scratch(&config);

	mtk_cpu_ops_find((enum mtk_cpu_level)_i)->route(&config, &batch, 0, 0, scratch, &nothing);
	mtk_route_ragged(NULL, 0, 8, 2, first, NULL, NULL);
	ck_assert_int_eq(first[0] + first[1] + first[2], 0);
	free(scratch);
}
END_TEST

START_TEST(test_one_expert)
{
	struct mtk_route_config config = mtk_route_config_make(1, 1);
	const float logits[] = {-4, 3};

	config.renormalise = MTK_ROUTE_RENORMALISE_IF_POSITIVE;
	ck_assert_int_eq(routed_run(_i, &config, 2, logits, NULL)->ids[1], 0);
	ck_assert_float_eq(routed_run(_i, &config, 2, logits, NULL)->weights[0], 1.0f);
	ck_assert_float_eq(routed_run(_i, &config, 2, logits, NULL)->weights[1], 1.0f);
}
END_TEST

/* Shared slots and outputs. */

START_TEST(test_shared_slots_in_rank_blocks)
{
	struct mtk_route_config config = mtk_route_config_make(8, 2);
	const float logits[] = {0, 0, 0, 9, 0, 0, 8, 0};
	const int32_t global[] = {3, 6, 8};
	const int32_t blocks[] = {4, 9, 5};

	config.n_shared_slots = 1;
	config.shared_weight = 0.25;
	routed_assert_ids(routed_run(_i, &config, 1, logits, NULL), 3, global);
	config.shared = MTK_ROUTE_SHARED_BLOCK;
	config.n_local_experts = 2;
	config.rank = 1;
	routed_assert_ids(routed_run(_i, &config, 1, logits, NULL), 3, blocks);
	ck_assert_float_eq(routed_run(_i, &config, 1, logits, NULL)->weights[2], 0.25f);
}
END_TEST

START_TEST(test_packed_and_ragged)
{
	const int32_t ids[] = {2, 0, -1, -1, 0, 2};
	const int64_t expected_first[] = {0, 2, 2, 4};
	const int32_t expected_gather[] = {0, 2, 0, 2, -1, -1};
	const int64_t expected_scatter[] = {2, 0, -1, -1, 1, 3};
	int64_t first[4], scatter[6];
	int32_t gather[6];

	ck_assert_uint_eq(mtk_route_pack(3, 1.0f), 0x00033f80u);
	ck_assert_uint_eq(mtk_route_pack(32767, -1.0f), 0x7fffbf80u);
	/* Halves go to the even neighbour. */
	ck_assert_uint_eq(mtk_route_pack(0, 1.00390625f), 0x3f80u);
	ck_assert_uint_eq(mtk_route_pack(0, 1.01171875f), 0x3f82u);
	mtk_route_ragged(ids, 3, 2, 3, first, gather, scatter);
	ck_assert_mem_eq(first, expected_first, sizeof(first));
	ck_assert_mem_eq(gather, expected_gather, sizeof(gather));
	ck_assert_mem_eq(scatter, expected_scatter, sizeof(scatter));
}
END_TEST

int main(void)
{
	const TTest *const level_tests[] = {
		test_nan_rows_have_distinct_ids,
		test_nan_bias_is_never_chosen_first,
		test_all_negative_logits,
		test_fewer_than_k_eligible,
		test_hash_token_out_of_table,
		test_padding_and_zero_experts_differ,
		test_margins,
		test_margin_in_groups,
		test_dropped_groups_never_win,
		test_top2_sum_counts_equal_maxima_twice,
		test_equal_groups_lower_is_kept,
		test_keep_groups_is_a_run_time_value,
		test_group_score_of_n,
		test_zero_rows,
		test_one_expert,
		test_shared_slots_in_rank_blocks,
	};
	Suite *suite = suite_create("route");
	TCase *levels = tcase_create("levels");
	TCase *outputs = tcase_create("outputs");

	tcase_set_timeout(levels, 120);
	for (size_t i = 0; i < sizeof(level_tests) / sizeof(level_tests[0]); i++)
		tcase_add_loop_test(levels, level_tests[i], 0, levels_available());
	tcase_add_test(outputs, test_packed_and_ragged);
	suite_add_tcase(suite, levels);
	suite_add_tcase(suite, outputs);
	return run_suite(suite);
}
