/* SPDX-License-Identifier: MIT */
/*
 * Random rows over random settings, on every level of instructions, against brute force: the same
 * ids and flags, weights and margins within 1e-6. Two orders are right where brute force finds two values that
 * double precision barely tells apart and that come from different numbers; such rows are counted
 * and must stay rare. The number of rows is a million, or that of MOETRACE_TEST_ROWS.
 * The second test shows that a row's result depends on nothing but the row, nor on whether its
 * margin is asked for.
 */
#include <check.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/threads.h"
#include "tests/kernels/support/levels.h"
#include "tests/routing/support/brute.h"
#include "tests/routing/support/settings.h"
#include "tests/support/run_suite.h"

#define N_ROWS	    32
#define MAX_COLUMNS 512

struct outcome {
	int32_t ids[N_ROWS * MTK_ROUTE_MAX_TOP_K];
	float weights[N_ROWS * MTK_ROUTE_MAX_TOP_K];
	uint8_t flags[N_ROWS];
	float margins[N_ROWS];
};

static float logits[N_ROWS * MAX_COLUMNS];
static float biases[N_ROWS * MAX_COLUMNS];
static double scratch[8 * MAX_COLUMNS];
static uint64_t n_close_rows;

static const float *row_bias(const struct mtk_route_config *config, uint32_t row)
{
	if (config->bias == MTK_ROUTE_BIAS_NONE)
		return NULL;
	return config->bias_per_token ? biases + row * mtk_route_columns(config) : biases;
}

static void make_rows(struct random *random, const struct mtk_route_config *config)
{
	const uint32_t n = mtk_route_columns(config);

	for (uint32_t r = 0; r < N_ROWS; r++) {
		random_logits(random, config, logits + r * n);
		random_biases(random, n, biases + r * n);
	}
}

static bool is_close(double a, double b)
{
	return fabs(a - b) <= 1e-13 * (fabs(a) + fabs(b));
}

/* Whether some group, or some expert in its place, has a value that hardly differs. */
static bool has_close_groups(const struct mtk_route_config *config, const struct brute_row *row)
{
	for (uint32_t g = 0; g < config->n_groups; g++)
		for (uint32_t h = 0; h < g; h++)
			if (row->group_scores[g] != row->group_scores[h] &&
			    is_close(row->group_scores[g], row->group_scores[h]))
				return true;
	return false;
}

static bool is_either_order(const struct mtk_route_config *config, const struct brute_row *row,
			    const int32_t *ids)
{
	if (has_close_groups(config, row))
		return true;
	for (uint32_t j = 0; j < config->top_k; j++)
		if (ids[j] != row->ids[j] &&
		    !is_close(row->values[ids[j]], row->values[row->ids[j]]))
			return false;
	return true;
}

/* Check writes a mark at every assertion, which would take most of the time: only failures call it.
 */
__attribute__((format(printf, 3, 4), noreturn)) static void
refute(const struct mtk_route_config *c, const char *level, const char *format, ...)
{
	char text[128];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	ck_abort_msg("%s, %u+%u top %u, %s by %d, bias %s%s, groups %s %u/%u n %u, "
		     "renormalise %s, cap %g: %s",
		     level, c->n_experts, c->n_zero_experts, c->top_k,
		     mtk_route_scoring_name(c->scoring), (int)c->choose_by,
		     mtk_route_bias_name(c->bias), c->bias_per_token ? " per token" : "",
		     mtk_route_groups_name(c->groups), c->n_keep_groups, c->n_groups,
		     c->group_top_n, mtk_route_renormalise_name(c->renormalise), c->soft_cap, text);
	abort();
}

static void assert_sound(const struct mtk_route_config *config, const char *level,
			 const int32_t *ids, const float *weights)
{
	for (uint32_t j = 0; j < config->top_k; j++) {
		if (ids[j] < 0 || ids[j] >= (int32_t)mtk_route_columns(config))
			refute(config, level, "id %d is out of range", ids[j]);
		if (!isfinite(weights[j]))
			refute(config, level, "weight %u is %g", j, (double)weights[j]);
		for (uint32_t i = 0; i < j; i++)
			if (ids[i] == ids[j])
				refute(config, level, "id %d comes twice", ids[j]);
	}
}

/* 0 is of ties alone, and infinity of rows that leave nothing. */
static void assert_margin(const struct mtk_route_config *config, const struct brute_row *brute,
			  const char *level, double margin)
{
	const double want = brute->margin;
	const bool is_right =
		isinf(want) || want == 0.0
			? margin == want
			: margin > 0.0 && fabs(margin - want) <= 1e-6 * want + brute->margin_error +
							      1.5e-45;

	if (!is_right)
		refute(config, level, "the margin is %.9g, not %.9g", margin, want);
}

static void assert_row(const struct mtk_route_config *config, const struct brute_row *brute,
		       const char *level, uint32_t r, const struct outcome *outcome,
		       bool has_margins)
{
	const int32_t *ids = outcome->ids + r * config->top_k;
	const float *weights = outcome->weights + r * config->top_k;
	const double factor =
		config->scale_owner == MTK_ROUTE_SCALE_IN_ROUTER ? config->scale : 1.0;
	bool is_same = true;

	assert_sound(config, level, ids, weights);
	for (uint32_t j = 0; j < config->top_k; j++)
		is_same = is_same && ids[j] == brute->ids[j];
	if (!is_same) {
		n_close_rows++;
		if (!is_either_order(config, brute, ids))
			refute(config, level, "other ids");
		return;
	}
	if (outcome->flags[r] != brute->flags)
		refute(config, level, "flags %u, not %u", outcome->flags[r], brute->flags);
	if (has_margins)
		assert_margin(config, brute, level, (double)outcome->margins[r]);
	for (uint32_t j = 0; !brute->is_fragile && j < config->top_k; j++) {
		double expected = brute->weights[j];

		if (fabs(weights[j] - expected) > 1e-6 * fmax(factor, fabs(expected)))
			refute(config, level, "weight %u of id %d is %.9g, not %.9g", j, ids[j],
			       (double)weights[j], expected);
	}
}

static void check_setting(struct random *random, int n_levels, bool has_margins)
{
	static struct brute_row brute[N_ROWS];
	static struct outcome outcome;
	const struct mtk_route_result result = {
		.ids = outcome.ids, .weights = outcome.weights, .flags = outcome.flags,
		.margins = has_margins ? outcome.margins : NULL};
	const struct mtk_route_config config = random_setting(random);
	const struct mtk_route_batch batch = {N_ROWS, N_ROWS, logits, biases, NULL};
	const uint32_t n = mtk_route_columns(&config);

	make_rows(random, &config);
	for (uint32_t r = 0; r < N_ROWS; r++)
		brute_route(&config, logits + r * n, row_bias(&config, r), &brute[r]);
	for (int level = 0; level < n_levels; level++) {
		const struct mtk_cpu_ops *ops = mtk_cpu_ops_find((enum mtk_cpu_level)level);

		memset(&outcome, 0xff, sizeof(outcome));
		ops->route(&config, &batch, 0, N_ROWS, scratch, &result);
		for (uint32_t r = 0; r < N_ROWS; r++)
			assert_row(&config, &brute[r], ops->name, r, &outcome, has_margins);
	}
}

START_TEST(test_random_rows)
{
	const char *wanted = getenv("MOETRACE_TEST_ROWS");
	const char *sanitizers = getenv("MOETRACE_SANITIZERS");
	/* Sanitizers look at memory, which the first settings use as the others do. */
	const uint64_t usual = sanitizers && *sanitizers ? 100000 : 1000000;
	const uint64_t n_rows = wanted ? strtoull(wanted, NULL, 10) : usual;
	struct random random = {20240601};
	const int n_levels = levels_available();
	uint64_t done = 0;

	for (; done < n_rows; done += N_ROWS)
		check_setting(&random, n_levels, done / N_ROWS % 16 == 0);
	printf("%llu rows, %llu of them with values closer than double precision tells\n",
	       (unsigned long long)done, (unsigned long long)n_close_rows);
	ck_assert_uint_le(n_close_rows, 10 + done / 1000);
}
END_TEST

/* Independence of everything but the row. */

struct job {
	const struct mtk_cpu_ops *ops;
	const struct mtk_route_config *config;
	struct mtk_route_batch batch;
	struct mtk_route_result result;
};

static struct mtk_route_result result_of(struct outcome *outcome)
{
	return (struct mtk_route_result){
		.ids = outcome->ids, .weights = outcome->weights, .flags = outcome->flags,
		.margins = outcome->margins};
}

static void job_run(void *arg, uint32_t begin, uint32_t end)
{
	const struct job *job = arg;
	void *own_scratch =
		malloc(mtk_route_scratch_floats(mtk_route_columns(job->config)) * sizeof(float));

	job->ops->route(job->config, &job->batch, begin, end, own_scratch, &job->result);
	free(own_scratch);
}

START_TEST(test_rows_are_independent)
{
	static float turned[N_ROWS * MAX_COLUMNS];
	static struct outcome whole, other;
	const struct mtk_cpu_ops *ops = mtk_cpu_ops_find((enum mtk_cpu_level)_i);
	struct random random = {5};
	struct mtk_threads *threads;

	ck_assert_int_eq(mtk_threads_create(3, &threads), MOETRACE_OK);
	for (int i = 0; i < 200; i++) {
		struct mtk_route_config config = random_setting(&random);
		const size_t n = mtk_route_columns(&config), width = config.top_k;
		struct job job = {
			ops, &config, {N_ROWS, N_ROWS, logits, biases, NULL}, result_of(&whole)};

		make_rows(&random, &config);
		job_run(&job, 0, N_ROWS);
		job.result = result_of(&other);
		job.result.margins = NULL;
		mtk_threads_run(threads, N_ROWS, 1 + (uint32_t)i % 7, job_run, &job);
		ck_assert_mem_eq(whole.ids, other.ids, N_ROWS * width * sizeof(int32_t));
		ck_assert_mem_eq(whole.weights, other.weights, N_ROWS * width * sizeof(float));
		if (config.bias_per_token)
			continue;
		for (uint32_t r = 0; r < N_ROWS; r++)
			memcpy(turned + r * n, logits + (N_ROWS - 1 - r) * n, n * sizeof(float));
		job.batch.logits = turned;
		job_run(&job, 0, N_ROWS);
		for (uint32_t r = 0; r < N_ROWS; r++)
			ck_assert_mem_eq(whole.weights + r * width,
					 other.weights + (N_ROWS - 1 - r) * width,
					 width * sizeof(float));
	}
	mtk_threads_destroy(threads);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("property");
	TCase *tcase = tcase_create("rows");

	tcase_set_timeout(tcase, 1200);
	tcase_add_test(tcase, test_random_rows);
	tcase_add_loop_test(tcase, test_rows_are_independent, 0, levels_available());
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
