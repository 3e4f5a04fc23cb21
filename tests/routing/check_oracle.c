/* SPDX-License-Identifier: MIT */
/*
 * The routers of 22 model families: what each one's reference implementation chose on random
 * logits, against the preset of that name on every level of instructions. Rows are compared as
 * sets: sorted by id, ids equal and weights within 2e-6. Margins are those of brute force.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include <moetrace/status.h>

#include "tests/kernels/support/levels.h"
#include "tests/routing/support/brute.h"
#include "tests/routing/support/oracle.h"
#include "tests/support/run_suite.h"

static void assert_margins(const struct mtk_route_config *config, const float *logits,
			   const float *bias, const float *margins)
{
	static struct brute_row brute;
	const uint32_t n = mtk_route_columns(config);

	for (uint32_t r = 0; r < ORACLE_ROWS; r++) {
		brute_route(config, logits + (size_t)r * n, bias, &brute);
		ck_assert_msg((double)margins[r] == brute.margin ||
				      fabs((double)margins[r] - brute.margin) <=
					      1e-6 * brute.margin + brute.margin_error,
			      "row %u: margin %.9g, not %.9g", r, (double)margins[r], brute.margin);
	}
}

START_TEST(test_family)
{
	const char *family = oracle_families[_i % ORACLE_N_FAMILIES];
	const struct mtk_cpu_ops *ops =
		mtk_cpu_ops_find((enum mtk_cpu_level)(_i / ORACLE_N_FAMILIES));
	static int32_t ids[ORACLE_ROWS * MTK_ROUTE_MAX_TOP_K];
	static float weights[ORACLE_ROWS * MTK_ROUTE_MAX_TOP_K], margins[ORACLE_ROWS];
	const struct mtk_route_result result = {
		.ids = ids, .weights = weights, .margins = margins};
	static char text[ORACLE_MESSAGE_BYTES];
	const struct mtk_route_config *config;
	struct oracle oracle;
	double *scratch;

	ck_assert_msg(oracle_load(family, &oracle, text) == 0, "%s", text);
	config = &oracle.preset->route;
	const struct mtk_route_batch batch = {ORACLE_ROWS, ORACLE_ROWS, oracle.logits, oracle.bias,
					      NULL};

	ck_assert_msg(mtk_route_config_check(config, text) == MOETRACE_OK, "%s", text);
	scratch = malloc(mtk_route_scratch_floats(mtk_route_columns(config)) * sizeof(float));
	ops->route(config, &batch, 0, ORACLE_ROWS, scratch, &result);
	assert_margins(config, oracle.logits, oracle.bias, margins);
	ck_assert_msg(oracle_compare(&oracle, ids, weights, text) == 0, "%s %s", ops->name, text);
	oracle_free(&oracle);
	free(scratch);
}
END_TEST

START_TEST(test_presets_are_sound)
{
	char message[MTK_ROUTE_MESSAGE_BYTES] = "";
	size_t n_presets;
	const struct mtk_preset *presets = mtk_presets(&n_presets);

	for (size_t i = 0; i < n_presets; i++) {
		ck_assert_msg(mtk_route_config_check(&presets[i].route, message) == MOETRACE_OK,
			      "%s: %s", presets[i].name, message);
		ck_assert_ptr_eq(mtk_preset_find(presets[i].name), &presets[i]);
	}
	ck_assert_ptr_null(mtk_preset_find("deepseek"));
	ck_assert_ptr_null(mtk_preset_find(""));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("oracle");
	TCase *tcase = tcase_create("families");

	tcase_add_loop_test(tcase, test_family, 0, ORACLE_N_FAMILIES * levels_available());
	tcase_add_test(tcase, test_presets_are_sound);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
