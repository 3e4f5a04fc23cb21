/* SPDX-License-Identifier: MIT */
/*
 * Opportunistic expert activation against the paper's two loops, written out over lists of
 * preferences that brute force sorted. Rows whose order a rounding could decide are not compared, and
 * counted. The cases that have names are in check_oea_cases.c.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/oea/oea.h"
#include "tests/kernels/support/levels.h"
#include "tests/moe_ops/support/suite.h"
#include "tests/routing/support/brute.h"
#include "tests/routing/support/oea_trial.h"
#include "tests/routing/support/settings.h"

#define MAX_ROWS 24
/* The oracle asks for a list of all columns, which is as long as a choice may be. */
#define MAX_COLUMNS MTK_ROUTE_MAX_TOP_K

/* ---- the paper's definition ---- */

/* A row of the oracle: e[j] of the paper, as far as the row may go, and R. */
struct wishes {
	int list[OEA_TRIAL_MAX_COLUMNS];
	uint32_t n_list;
	double mass[OEA_TRIAL_MAX_COLUMNS];  /* R, by column */
	double score[OEA_TRIAL_MAX_COLUMNS]; /* before it was divided by its sum, by column; of the
				      softmax over the selected, the logit */
	bool is_close;		   /* a rounding may decide */
};

static bool is_near(double a, double b)
{
	return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)) + 1e-300;
}

static bool order_is_close(const struct oea_trial *trial, uint32_t r, const struct brute_row *row,
			   uint32_t n_list)
{
	const uint32_t n = mtk_route_columns(&trial->route);
	const float *logits = trial->logits + r * n;

	for (uint32_t j = 1; j < n_list; j++) {
		int a = row->ids[j - 1], b = row->ids[j];

		if (is_near(row->values[a], row->values[b]) &&
		    (logits[a] != logits[b] || trial->bias[a] != trial->bias[b]) &&
		    row->values[a] > -1e300)
			return true;
	}
	for (uint32_t g = 0; g < trial->route.n_groups; g++)
		for (uint32_t h = 0; h < g; h++)
			if (is_near(row->group_scores[g], row->group_scores[h]) &&
			    row->group_scores[g] > -1e300)
				return true;
	return false;
}

/* A logit for the softmax over the selected; minus infinity has no weight. */
static double logit_of(const struct oea_trial *trial, uint32_t r, uint32_t e)
{
	const struct mtk_route_config *route = &trial->route;
	double x = trial->logits[r * mtk_route_columns(route) + e];
	double bias = route->bias == MTK_ROUTE_BIAS_NONE ? 0.0 : (double)trial->bias[e];

	if (route->soft_cap > 0.0)
		x = route->soft_cap * tanh(x / route->soft_cap);
	if (route->bias == MTK_ROUTE_BIAS_LOGIT)
		x += bias;
	return isnan(x) || !(x + bias > -INFINITY) ? -INFINITY : x;
}

static void wish(const struct oea_trial *trial, uint32_t r, struct wishes *ret_wishes)
{
	static struct brute_row row;
	const uint32_t n = mtk_route_columns(&trial->route);
	const float *logits = trial->logits + r * n;
	const float *bias = trial->route.bias == MTK_ROUTE_BIAS_NONE ? NULL : trial->bias;
	struct mtk_route_config all = trial->route;
	double sum = 0.0;

	all.top_k = n;
	all.renormalise = MTK_ROUTE_RENORMALISE_NONE;
	all.scale_owner = MTK_ROUTE_SCALE_ON_OUTPUT;
	brute_route(&all, logits, bias, &row);
	memcpy(ret_wishes->list, row.ids, sizeof(row.ids));
	ret_wishes->n_list = all.n_groups == 0 ? n : n / all.n_groups * all.n_keep_groups;
	ret_wishes->is_close = order_is_close(trial, r, &row, ret_wishes->n_list);
	all.groups = MTK_ROUTE_GROUPS_NONE;
	brute_route(&all, logits, bias, &row);
	for (uint32_t j = 0; j < n; j++)
		sum += row.weights[j];
	for (uint32_t j = 0; j < n; j++) {
		ret_wishes->score[row.ids[j]] = row.weights[j];
		ret_wishes->mass[row.ids[j]] = row.weights[j] / sum;
	}
	for (uint32_t e = 0; all.scoring == MTK_ROUTE_SOFTMAX_SELECTED && e < n; e++)
		ret_wishes->score[e] = logit_of(trial, r, e);
}

static uint32_t oracle_n_base(const struct oea_trial *trial, struct wishes *wishes)
{
	double cumulated = 0.0;
	uint32_t t = 0;

	if (trial->oea.p >= 1.0)
		return trial->oea.k0;
	while (t < trial->oea.k0) {
		cumulated += wishes->mass[wishes->list[t++]];
		wishes->is_close = wishes->is_close || fabs(cumulated - trial->oea.p) < 1e-9;
		if (cumulated >= trial->oea.p)
			break;
	}
	return t;
}

static void oracle_weights(const struct mtk_route_config *route, const struct wishes *wishes,
			   const int *set, uint32_t n, double *ret_weights)
{
	const bool is_selected = route->scoring == MTK_ROUTE_SOFTMAX_SELECTED;
	double sum = 0.0, max = -INFINITY, scale = 1.0;

	for (uint32_t j = 0; j < n; j++)
		max = fmax(max, wishes->score[set[j]]);
	for (uint32_t j = 0; j < n; j++) {
		double x = wishes->score[set[j]];

		ret_weights[j] = !is_selected ? x : x == max ? (max > -INFINITY) : exp(x - max);
		sum += ret_weights[j];
	}
	for (uint32_t j = 0; is_selected && sum > 0.0 && j < n; j++)
		ret_weights[j] /= sum;
	sum = is_selected && sum > 0.0 ? 1.0 : sum;
	if (route->renormalise == MTK_ROUTE_RENORMALISE_EPSILON)
		scale = 1.0 / (sum + 1e-20);
	else if (route->renormalise == MTK_ROUTE_RENORMALISE_IF_POSITIVE && sum > 0.0)
		scale = 1.0 / sum;
	else if (route->renormalise == MTK_ROUTE_RENORMALISE_CLAMP)
		scale = 1.0 / fmax(sum, route->renormalise_min);
	if (route->scale_owner == MTK_ROUTE_SCALE_IN_ROUTER)
		scale *= route->scale;
	for (uint32_t j = 0; j < n; j++)
		ret_weights[j] *= scale;
}

static int oracle_id(const struct mtk_route_config *route, int column)
{
	if (route->n_shared_slots == 0 || route->shared != MTK_ROUTE_SHARED_BLOCK)
		return column;
	return column + column / (int)route->n_local_experts * (int)route->n_shared_slots;
}

static void require_row(const struct oea_trial *trial, const struct wishes *wishes, uint32_t r,
			const int *set, uint32_t n)
{
	const uint32_t n_shared = trial->route.n_shared_slots;
	const uint32_t width = mtk_oea_width(&trial->oea, &trial->route);
	const int32_t *ids = trial->ids + r * width;
	const float *weights = trial->weights + r * width;
	double expected[OEA_TRIAL_MAX_COLUMNS];

	oracle_weights(&trial->route, wishes, set, n, expected);
	for (uint32_t j = 0; j < n; j++) {
		if (ids[j] != oracle_id(&trial->route, set[j]))
			ck_abort_msg("row %u, entry %u: %d instead of %d", r, j, ids[j], set[j]);
		if (!(fabs(weights[j] - expected[j]) <=
		      1e-6 * (trial->route.scale + fabs(expected[j]))))
			ck_abort_msg("row %u, entry %u: %g instead of %g", r, j, weights[j],
				     expected[j]);
	}
	for (uint32_t j = n; j < width - n_shared; j++)
		require(ids[j] == -1 && weights[j] == 0.0f);
	for (uint32_t j = width - n_shared; j < width; j++)
		require(ids[j] >= 0 && weights[j] == (float)trial->route.shared_weight);
	require((trial->flags[r] & MTK_OEA_FLAG_BELOW_K) ==
		(n < trial->route.top_k ? MTK_OEA_FLAG_BELOW_K : 0));
}

/* Algorithm 2. Returns false where a rounding may decide. */
static bool require_trial(const struct oea_trial *trial)
{
	static struct wishes wishes[OEA_TRIAL_MAX_ROWS];
	const struct mtk_oea *oea = &trial->oea;
	bool in_union[OEA_TRIAL_MAX_COLUMNS] = {false};
	uint32_t n_base[OEA_TRIAL_MAX_ROWS];

	for (uint32_t e = trial->route.n_experts; e < mtk_route_columns(&trial->route); e++)
		in_union[e] = true;
	for (uint32_t r = 0; r < trial->n_valid_rows; r++) {
		wish(trial, r, &wishes[r]);
		n_base[r] =
			trial->is_decode[r] ? oracle_n_base(trial, &wishes[r]) : trial->route.top_k;
		if (wishes[r].is_close)
			return false;
		for (uint32_t j = 0; j < n_base[r]; j++)
			in_union[wishes[r].list[j]] = true;
	}
	for (uint32_t r = 0; r < trial->n_valid_rows; r++) {
		int set[OEA_TRIAL_MAX_COLUMNS];
		uint32_t n = 0;

		for (; n < n_base[r]; n++)
			set[n] = wishes[r].list[n];
		for (uint32_t j = n; trial->is_decode[r] && j < wishes[r].n_list; j++) {
			if (n == oea->k_max || j + 1 > oea->max_rank)
				break;
			if (in_union[wishes[r].list[j]])
				set[n++] = wishes[r].list[j];
		}
		require_row(trial, &wishes[r], r, set, n);
	}
	return true;
}

/* ---- random batches ---- */

static bool draw_setting(struct random *random, struct mtk_route_config *ret_route)
{
	char message[MTK_ROUTE_MESSAGE_BYTES];

	*ret_route = random_setting(random);
	ret_route->bias_per_token = false;
	ret_route->n_shared_slots = random_below(random, 3) == 0 ? 1 + random_below(random, 2) : 0;
	if (ret_route->n_shared_slots != 0 && random_below(random, 2) == 0) {
		ret_route->shared = MTK_ROUTE_SHARED_BLOCK;
		ret_route->n_local_experts = ret_route->n_experts;
		if (ret_route->n_experts % 4 == 0)
			ret_route->n_local_experts /= 4;
	}
	return mtk_route_columns(ret_route) <= OEA_TRIAL_MAX_COLUMNS &&
	       ret_route->scoring != MTK_ROUTE_SPARSEMIXER &&
	       mtk_route_config_check(ret_route, message) == MOETRACE_OK;
}

static void draw_rule(struct random *random, struct oea_trial *trial)
{
	const uint32_t n = mtk_route_columns(&trial->route);
	struct mtk_oea given = {.k0 = 1 + random_below(random, trial->route.top_k)};
	struct mtk_error error;

	if (random_below(random, 3) == 0)
		given.k_max = given.k0 + random_below(random, n - given.k0 + 1);
	if (random_below(random, 3) == 0)
		given.p = 0.05 + 0.95 * (0.5 + 0.5 * random_unit(random));
	if (random_below(random, 3) == 0)
		given.max_rank = 1 + random_below(random, n);
	ck_assert_msg(mtk_oea_resolve(&given, &trial->route, &trial->oea, &error) == 0, "%s",
		      error.text);
}

static void draw_rows(struct random *random, struct oea_trial *trial)
{
	const uint32_t n = mtk_route_columns(&trial->route);
	const uint32_t kind = random_below(random, 4);

	trial->n_rows = 1 + random_below(random, OEA_TRIAL_MAX_ROWS);
	trial->n_valid_rows = trial->n_rows;
	if (random_below(random, 3) == 0)
		trial->n_valid_rows -= random_below(random, trial->n_rows);
	for (uint32_t r = 0; r < trial->n_rows; r++) {
		trial->is_decode[r] = kind != 0 || random_below(random, 3) != 0;
		if (kind == 1)
			random_logits(random, &trial->route, trial->logits + r * n);
		for (uint32_t e = 0; kind != 1 && e < n; e++)
			trial->logits[r * n + e] =
				kind == 2 ? 0.25f * (float)random_below(random, 24)
					  : 3.0f * random_unit(random) - 0.1f * (float)e;
	}
	if (kind == 1)
		random_biases(random, n, trial->bias);
	else
		for (uint32_t e = 0; e < n; e++)
			trial->bias[e] = 0.25f * (float)random_below(random, 8);
}

START_TEST(test_random_batches)
{
	static struct oea_trial trial;
	mtk_route_fn route = mtk_cpu_ops_find((enum mtk_cpu_level)_i)->route;
	struct random random = {20251102};
	uint32_t n_done = 0, n_close = 0;

	while (n_done < 10000) {
		if (!draw_setting(&random, &trial.route))
			continue;
		draw_rule(&random, &trial);
		draw_rows(&random, &trial);
		oea_trial_apply(&trial, route, 1 + random_below(&random, OEA_TRIAL_MAX_ROWS));
		n_close += !require_trial(&trial);
		n_done++;
	}
	printf("%u batches, %u of them not compared: a rounding may decide\n", n_done, n_close);
	ck_assert_uint_lt(n_close, n_done / 3);
}
END_TEST

/* Nothing depends on the order of the rows. */
START_TEST(test_row_order)
{
	static struct oea_trial trial, turned;
	mtk_route_fn route = mtk_cpu_ops_find((enum mtk_cpu_level)_i)->route;
	struct random random = {77};

	for (uint32_t i = 0; i < 500;) {
		uint32_t n, width;

		if (!draw_setting(&random, &trial.route))
			continue;
		i++;
		n = mtk_route_columns(&trial.route);
		draw_rule(&random, &trial);
		draw_rows(&random, &trial);
		trial.n_valid_rows = trial.n_rows;
		turned = trial;
		for (uint32_t r = 0; r < trial.n_rows; r++) {
			uint32_t to = trial.n_rows - 1 - r;

			turned.is_decode[to] = trial.is_decode[r];
			memcpy(turned.logits + to * n, trial.logits + r * n, n * sizeof(float));
		}
		oea_trial_apply(&trial, route, OEA_TRIAL_MAX_ROWS);
		oea_trial_apply(&turned, route, 1);
		width = mtk_oea_width(&trial.oea, &trial.route);
		for (uint32_t r = 0; r < trial.n_rows; r++) {
			uint32_t to = trial.n_rows - 1 - r;

			require(memcmp(trial.ids + r * width, turned.ids + to * width,
				       width * sizeof(int32_t)) == 0);
			require(memcmp(trial.weights + r * width, turned.weights + to * width,
				       width * sizeof(float)) == 0);
			require(trial.flags[r] == turned.flags[to]);
		}
	}
}
END_TEST

/* k0 = top_k is the router itself, whatever the setting is. */
START_TEST(test_k0_is_top_k)
{
	static struct oea_trial trial;
	mtk_route_fn route = mtk_cpu_ops_find((enum mtk_cpu_level)_i)->route;
	struct random random = {4};
	struct mtk_error error;

	for (uint32_t i = 0; i < 2000;) {
		uint32_t n_entries;

		if (!draw_setting(&random, &trial.route))
			continue;
		i++;
		ck_assert_int_eq(mtk_oea_resolve(&(struct mtk_oea){.k0 = trial.route.top_k},
						 &trial.route, &trial.oea, &error),
				 MOETRACE_OK);
		draw_rows(&random, &trial);
		oea_trial_apply(&trial, route, OEA_TRIAL_MAX_ROWS);
		n_entries = trial.n_rows * mtk_route_width(&trial.route);
		require(memcmp(trial.ids, trial.base_ids, n_entries * sizeof(int32_t)) == 0);
		require(memcmp(trial.weights, trial.base_weights, n_entries * sizeof(float)) == 0);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("oea");
	TCase *tcase = tcase_create("rule");
	const int n_levels = levels_available();

	tcase_set_timeout(tcase, 300);
	tcase_add_loop_test(tcase, test_random_batches, 0, n_levels);
	tcase_add_loop_test(tcase, test_row_order, 0, n_levels);
	tcase_add_loop_test(tcase, test_k0_is_top_k, 0, n_levels);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
