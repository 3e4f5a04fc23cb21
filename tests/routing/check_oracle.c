/* SPDX-License-Identifier: MIT */
/*
 * The routers of 22 model families: what each one's reference implementation chose on random
 * logits, against the preset of that name on every level of instructions. Rows are compared as
 * sets: sorted by id, ids equal and weights within 2e-6. Margins are those of brute force.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <moetrace/status.h>

#include "kernels/presets/presets.h"
#include "tests/kernels/support/levels.h"
#include "tests/routing/support/brute.h"

#define N_ROWS 48

static const char *const families[] = {
	"afmoe",	 "deepseek-v2-236b", "deepseek-v2-lite", "deepseek-v3", "deepseek-v4",
	"ernie-4.5-moe", "exaone-moe",	     "glm-4.5",		 "glm-5",	"gpt-oss-120b",
	"granite-moe",	 "hunyuan-a13b",     "kimi-k2",		 "lfm2-moe",	"llama4-maverick",
	"longcat-flash", "mixtral-8x7b",     "olmoe-1b-7b",	 "phi-3.5-moe", "qwen2-moe-57b",
	"qwen3-30b-a3b", "qwen3-next-80b",
};

#define N_FAMILIES ((int)(sizeof(families) / sizeof(families[0])))

static void *read_items(const char *family, const char *name, size_t n_items)
{
	const char *root = getenv("MOETRACE_SRCDIR");
	char path[4096];
	uint32_t *items = calloc(n_items + 1, sizeof(*items));
	FILE *file;

	snprintf(path, sizeof(path), "%s/tests/data/router-oracle/%s/%s", root ? root : ".", family,
		 name);
	file = fopen(path, "rb");
	ck_assert_msg(file != NULL, "%s: cannot be opened", path);
	ck_assert_ptr_nonnull(items);
	ck_assert_msg(fread(items, sizeof(*items), n_items + 1, file) == n_items,
		      "%s: not %zu items", path, n_items);
	fclose(file);
	return items;
}

static void assert_margins(const struct mtk_route_config *config, const float *logits,
			   const float *bias, const float *margins)
{
	static struct brute_row brute;
	const uint32_t n = mtk_route_columns(config);

	for (uint32_t r = 0; r < N_ROWS; r++) {
		brute_route(config, logits + (size_t)r * n, bias, &brute);
		ck_assert_msg((double)margins[r] == brute.margin ||
				      fabs((double)margins[r] - brute.margin) <=
					      1e-6 * brute.margin + brute.margin_error,
			      "row %u: margin %.9g, not %.9g", r, (double)margins[r], brute.margin);
	}
}

static void sort_row(uint32_t n, int32_t *ids, float *weights)
{
	for (uint32_t i = 1; i < n; i++) {
		for (uint32_t j = i; j > 0 && ids[j] < ids[j - 1]; j--) {
			int32_t id = ids[j];
			float weight = weights[j];

			ids[j] = ids[j - 1];
			weights[j] = weights[j - 1];
			ids[j - 1] = id;
			weights[j - 1] = weight;
		}
	}
}

START_TEST(test_family)
{
	const char *family = families[_i % N_FAMILIES];
	const struct mtk_cpu_ops *ops = mtk_cpu_ops_find((enum mtk_cpu_level)(_i / N_FAMILIES));
	const struct mtk_preset *preset = mtk_preset_find(family);
	const struct mtk_route_config *config = &preset->route;
	const uint32_t n = mtk_route_columns(config), top_k = config->top_k;
	const bool has_bias = config->bias != MTK_ROUTE_BIAS_NONE;
	float *logits = read_items(family, "logits.f32", (size_t)N_ROWS * n);
	float *bias = has_bias ? read_items(family, "correction_bias.f32", n) : NULL;
	int32_t *expected_ids = read_items(family, "ids_sorted.i32", (size_t)N_ROWS * top_k);
	float *expected = read_items(family, "weights_by_id.f32", (size_t)N_ROWS * top_k);
	const struct mtk_route_batch batch = {N_ROWS, N_ROWS, logits, bias, NULL};
	static int32_t ids[N_ROWS * MTK_ROUTE_MAX_TOP_K];
	static float weights[N_ROWS * MTK_ROUTE_MAX_TOP_K], margins[N_ROWS];
	const struct mtk_route_result result = {
		.ids = ids, .weights = weights, .margins = margins};
	char message[MTK_ROUTE_MESSAGE_BYTES];
	double *scratch = malloc(mtk_route_scratch_floats(n) * sizeof(float));

	ck_assert_msg(mtk_route_config_check(config, message) == MOETRACE_OK, "%s", message);
	ops->route(config, &batch, 0, N_ROWS, scratch, &result);
	assert_margins(config, logits, bias, margins);
	for (uint32_t r = 0; r < N_ROWS; r++)
		sort_row(top_k, ids + r * top_k, weights + r * top_k);
	for (uint32_t i = 0; i < N_ROWS * top_k; i++) {
		ck_assert_msg(ids[i] == expected_ids[i], "%s %s row %u: id %d, not %d", ops->name,
			      family, i / top_k, ids[i], expected_ids[i]);
		ck_assert_msg(fabsf(weights[i] - expected[i]) <= 2e-6f,
			      "%s %s row %u: weight %.9g, not %.9g", ops->name, family, i / top_k,
			      (double)weights[i], (double)expected[i]);
	}
	free(logits);
	free(bias);
	free(expected_ids);
	free(expected);
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
	SRunner *runner;
	int n_failed;

	tcase_add_loop_test(tcase, test_family, 0, N_FAMILIES * levels_available());
	tcase_add_test(tcase, test_presets_are_sound);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	n_failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
