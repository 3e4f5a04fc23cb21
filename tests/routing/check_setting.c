/* SPDX-License-Identifier: MIT */
/*
 * Settings: what is refused, with the field's name first and in one line, and which code serves
 * what is not.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/presets/presets.h"

#define REFUSE(change, text)                                                                      \
	do {                                                                                      \
		struct mtk_route_config config = mtk_preset_find("deepseek-v3")->route;           \
		char message[MTK_ROUTE_MESSAGE_BYTES] = "";                                       \
                                                                                                  \
		change;                                                                           \
		ck_assert_int_eq(mtk_route_config_check(&config, message), MOETRACE_E_INVALID);   \
		ck_assert_msg(strstr(message, text) == message, "'%s', not '%s'", message, text); \
		ck_assert_ptr_null(strchr(message, '\n'));                                        \
	} while (0)

START_TEST(test_refusals)
{
	static const int32_t table[] = {0, 1, 2, 3, 4, 5, 6, 256};
	static const int32_t twice[] = {0, 1, 2, 3, 4, 5, 6, 6};

	REFUSE(config.n_experts = 0, "n_experts is 0, expected 1 to 8192");
	REFUSE(config.n_experts = 8193, "n_experts is 8193");
	REFUSE(config.n_zero_experts = UINT32_MAX, "n_zero_experts is 4294967295");
	REFUSE(config.top_k = 0, "top_k is 0");
	REFUSE(config.top_k = 33, "top_k is 33, expected 1 to 32");
	REFUSE((config.n_experts = 4, config.top_k = 5),
	       "top_k is 5, expected at most the experts");
	REFUSE(config.n_groups = 7, "n_groups is 7, which does not divide the 256 experts");
	REFUSE(config.n_groups = 0, "n_groups is 0");
	REFUSE(config.n_groups = 512, "n_groups is 512");
	REFUSE(config.n_keep_groups = 9, "n_keep_groups is 9, expected 1 to n_groups, which is 8");
	REFUSE(config.n_keep_groups = 0, "n_keep_groups is 0");
	REFUSE((config.n_groups = 64, config.n_keep_groups = 1),
	       "top_k is 8, but the kept groups hold 4 experts");
	REFUSE((config.n_groups = 256, config.n_keep_groups = 8), "groups is top2");
	REFUSE((config.groups = MTK_ROUTE_GROUPS_TOPN, config.group_top_n = 33),
	       "group_top_n is 33");
	REFUSE(config.groups = MTK_ROUTE_GROUPS_NONE, "n_groups is 8 and n_keep_groups 4");
	REFUSE(config.scoring = (enum mtk_route_scoring)99, "scoring is 99, which is unknown");
	REFUSE(config.bias = (enum mtk_route_bias)99, "bias is 99");
	REFUSE(config.groups = (enum mtk_route_groups)99, "groups is 99");
	REFUSE(config.renormalise = (enum mtk_route_renormalise)99, "renormalise is 99");
	REFUSE(config.scale_owner = (enum mtk_route_scale_owner)99, "scale_owner is 99");
	REFUSE(config.output = (enum mtk_route_output)99, "output is 99");
	REFUSE(config.shared = (enum mtk_route_shared)99, "shared is 99");
	REFUSE(config.softplus = (enum mtk_route_softplus)99, "softplus is 99");
	REFUSE(config.choose_by = (enum mtk_route_choose_by)99, "choose_by is 99");
	REFUSE(config.scale = NAN, "scale is nan");
	REFUSE(config.scale = INFINITY, "scale is inf");
	REFUSE(config.scale = 0.0, "scale is 0");
	REFUSE(config.soft_cap = NAN, "soft_cap is nan");
	REFUSE(config.soft_cap = -1.0, "soft_cap is -1");
	REFUSE(config.shared_weight = NAN, "shared_weight is nan");
	REFUSE((config.renormalise = MTK_ROUTE_RENORMALISE_CLAMP, config.renormalise_min = 0.0),
	       "renormalise_min is 0");
	REFUSE(config.scoring = MTK_ROUTE_SPARSEMIXER, "scoring is sparsemixer");
	REFUSE(config.scoring = MTK_ROUTE_SOFTMAX_SELECTED, "bias is score");
	REFUSE(config.choose_by = MTK_ROUTE_BY_LOGIT, "bias is score");
	REFUSE((config.bias = MTK_ROUTE_BIAS_NONE, config.bias_per_token = true),
	       "bias_per_token is set");
	REFUSE(config.n_shared_slots = 9, "n_shared_slots is 9");
	REFUSE((config.n_shared_slots = 1, config.shared = MTK_ROUTE_SHARED_BLOCK,
		config.n_local_experts = 3),
	       "n_local_experts is 3");
	REFUSE((config.n_shared_slots = 1, config.shared = MTK_ROUTE_SHARED_BLOCK,
		config.n_local_experts = 64, config.rank = 4),
	       "rank is 4");
	REFUSE((config.output = MTK_ROUTE_OUTPUT_NONE, config.has_expert_map = true),
	       "output is none");
	REFUSE((config.hash_table = table, config.n_hash_tokens = 1),
	       "hash_table has id 256 for token 0");
	REFUSE((config.hash_table = twice, config.n_hash_tokens = 1),
	       "hash_table has id 6 twice for token 0");
	REFUSE((config.hash_table = table, config.n_hash_tokens = 0), "n_hash_tokens is 0");
}
END_TEST

START_TEST(test_variants)
{
	struct mtk_route_variant_info info[MTK_ROUTE_N_VARIANTS];
	const struct mtk_route_config *glm = &mtk_preset_find("glm-5")->route;
	char reason[MTK_ROUTE_REASON_BYTES];

	ck_assert_int_eq(mtk_route_variant_choose(&mtk_preset_find("deepseek-v3")->route),
			 MTK_ROUTE_VARIANT_GROUPED);
	ck_assert_int_eq(mtk_route_variant_choose(glm), MTK_ROUTE_VARIANT_GENERAL);
	ck_assert_int_eq(mtk_route_variant_choose(&mtk_preset_find("phi-3.5-moe")->route),
			 MTK_ROUTE_VARIANT_PLAIN);
	mtk_route_variant_explain(glm, true, info);
	ck_assert_str_eq(info[MTK_ROUTE_VARIANT_GROUPED].reason,
			 "at most 32 experts a group; this layer has 256 in 1 group");
	ck_assert(info[MTK_ROUTE_VARIANT_GENERAL].serves);
	mtk_route_variant_explain(glm, false, info);
	ck_assert(info[MTK_ROUTE_VARIANT_PLAIN].serves);
	mtk_route_variant_reason(glm, true, reason, sizeof(reason));
	ck_assert_ptr_eq(strstr(reason, "fast general serves: "), reason);
	ck_assert_ptr_nonnull(strstr(reason, "fast grouped: at most 32 experts a group"));
	mtk_route_variant_reason(glm, true, reason, 10);
	ck_assert_str_eq(reason, "fast gene");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("setting");
	TCase *tcase = tcase_create("settings");
	SRunner *runner;
	int n_failed;

	tcase_add_test(tcase, test_refusals);
	tcase_add_test(tcase, test_variants);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	n_failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
