/* SPDX-License-Identifier: MIT */
/*
 * Settings: what is refused, with the field's name first and in one line, and which code serves
 * what is not.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/oea/oea.h"
#include "kernels/presets/presets.h"
#include "tests/moe_ops/support/suite.h"
#include "tests/support/run_suite.h"

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
	REFUSE(config.scale = 1e39, "scale is 1e+39, expected a finite number above 0, from 1e-12 "
				    "to 1e+12");
	REFUSE(config.scale = 1e-46, "scale is 1e-46");
	REFUSE(config.shared_weight = -1e39, "shared_weight is -1e+39");
	REFUSE((config.renormalise = MTK_ROUTE_RENORMALISE_CLAMP, config.renormalise_min = 1e300),
	       "renormalise_min is 1e+300");
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

/* ---- the rule oea ---- */

START_TEST(test_oea_parse)
{
	struct mtk_oea oea, again;
	struct mtk_error error;
	char name[MTK_OEA_NAME_BYTES];

	ck_assert_int_eq(mtk_oea_parse("p=0.75,maxp=32,k0=3,kmax=9", &oea, &error), MOETRACE_OK);
	ck_assert_uint_eq(oea.k0, 3);
	ck_assert_uint_eq(oea.k_max, 9);
	ck_assert_uint_eq(oea.max_rank, 32);
	ck_assert_double_eq(oea.p, 0.75);
	mtk_oea_name(&oea, name);
	ck_assert_str_eq(name, "oea:k0=3,kmax=9,p=0.75,maxp=32");
	/* What is written of a small p is read again. */
	ck_assert_int_eq(mtk_oea_parse("p=0.00001,k0=3", &oea, &error), MOETRACE_OK);
	mtk_oea_name(&oea, name);
	ck_assert_str_eq(name, "oea:k0=3,p=1e-05");
	ck_assert_int_eq(mtk_oea_parse(name + strlen("oea:"), &again, &error), MOETRACE_OK);
	ck_assert_double_eq(again.p, 1e-05);
	ck_assert_int_eq(mtk_oea_parse("k0=3,p=2.5E-1", &oea, &error), MOETRACE_OK);
	ck_assert_double_eq(oea.p, 0.25);
	ck_assert_int_eq(mtk_oea_parse("k0=8", &oea, &error), MOETRACE_OK);
	mtk_oea_name(&oea, name);
	ck_assert_str_eq(name, "oea:k0=8");
	oea = (struct mtk_oea){UINT32_MAX, UINT32_MAX, 0.123456789012345, UINT32_MAX};
	mtk_oea_name(&oea, name);
	ck_assert_str_eq(name, "oea:k0=4294967295,kmax=4294967295,p=0.123456789012345,"
			       "maxp=4294967295");
}
END_TEST

START_TEST(test_oea_parse_refuses)
{
	static const struct {
		const char *text;
		const char *complaint;
	} cases[] = {
		{"", "k0 is missing"},
		{"kmax=8", "k0 is missing"},
		{"3", "'3' is not of the form key=value"},
		{"k0", "'k0' is not of the form key=value"},
		{"k0=", "k0 is ''"},
		{"k0=0", "k0 is '0', expected a whole number from 1"},
		{"k0=-1", "k0 is '-1'"},
		{"k0=3.5", "k0 is '3.5'"},
		{"k0= 3", "k0 is ' 3'"},
		{"k0=4294967296", "k0 is '4294967296'"},
		{"k0=99999999999999999999999", "k0 is '9999"},
		{"k0=3,k0=3", "k0 is given twice"},
		{"k0=3,kmax=x", "kmax is 'x'"},
		{"k0=3,maxp=0", "maxp is '0'"},
		{"k0=3,p=0", "p is '0', expected a decimal number above 0, at most 1"},
		{"k0=3,p=1.5", "p is '1.5'"},
		{"k0=3,p=1e", "p is '1e'"},
		{"k0=3,p=1e-", "p is '1e-'"},
		{"k0=3,p=1e1", "p is '1e1'"},
		{"k0=3,p=1e-400", "p is '1e-400'"},
		{"k0=3,p=nan", "p is 'nan'"},
		{"k0=3,p=-0.5", "p is '-0.5'"},
		{"k0=3,p=1e-3x", "p is '1e-3x'"},
		{"k0=3,p=.5", "p is '.5'"},
		{"k0=3,p=0.5,p=0.5", "p is given twice"},
		{"k0=3,,kmax=8", "'' is not of the form"},
		{"k0=3,k=8", "'k' is not one of its fields"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mtk_oea oea;
		struct mtk_error error = {""};

		assert_refused(mtk_oea_parse(cases[i].text, &oea, &error), &error,
			       cases[i].complaint);
	}
}
END_TEST

START_TEST(test_oea_resolve)
{
	struct mtk_route_config route = mtk_route_config_make(64, 8);
	static const int32_t table[8] = {0, 1, 2, 3, 4, 5, 6, 7};
	struct mtk_oea oea;
	struct mtk_error error;

	ck_assert_int_eq(mtk_oea_resolve(&(struct mtk_oea){.k0 = 3}, &route, &oea, &error), 0);
	ck_assert_uint_eq(oea.k_max, 8);
	ck_assert_uint_eq(oea.max_rank, 64);
	ck_assert_double_eq(oea.p, 1.0);
	assert_refused(mtk_oea_resolve(&(struct mtk_oea){.k0 = 9}, &route, &oea, &error), &error,
		       "k0 is 9, expected 1 to 8");
	assert_refused(mtk_oea_resolve(&(struct mtk_oea){.k0 = 0}, &route, &oea, &error), &error,
		       "k0 is 0");
	assert_refused(
		mtk_oea_resolve(&(struct mtk_oea){.k0 = 3, .k_max = 2}, &route, &oea, &error),
		&error, "kmax is 2, expected k0, which is 3, to 32");
	assert_refused(
		mtk_oea_resolve(&(struct mtk_oea){.k0 = 3, .k_max = 33}, &route, &oea, &error),
		&error, "kmax is 33");
	assert_refused(mtk_oea_resolve(&(struct mtk_oea){.k0 = 3, .p = NAN}, &route, &oea, &error),
		       &error, "p is nan");
	assert_refused(
		mtk_oea_resolve(&(struct mtk_oea){.k0 = 3, .max_rank = 65}, &route, &oea, &error),
		&error, "maxp is 65, expected 1 to 64");

	route.scoring = MTK_ROUTE_SPARSEMIXER;
	ck_assert_int_eq(mtk_oea_resolve(&(struct mtk_oea){.k0 = 3}, &route, &oea, &error),
			 MOETRACE_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(error.text, "scoring sparsemixer"));
	route.scoring = MTK_ROUTE_SOFTMAX;
	route.hash_table = table;
	ck_assert_int_eq(mtk_oea_resolve(&(struct mtk_oea){.k0 = 3}, &route, &oea, &error),
			 MOETRACE_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(error.text, "hash table"));
	route.hash_table = NULL;
	route.output = MTK_ROUTE_OUTPUT_NONE;
	ck_assert_int_eq(mtk_oea_resolve(&(struct mtk_oea){.k0 = 3}, &route, &oea, &error),
			 MOETRACE_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(error.text, "output none"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("setting");
	TCase *tcase = tcase_create("settings");

	tcase_add_test(tcase, test_refusals);
	tcase_add_test(tcase, test_variants);
	tcase_add_test(tcase, test_oea_parse);
	tcase_add_test(tcase, test_oea_parse_refuses);
	tcase_add_test(tcase, test_oea_resolve);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
