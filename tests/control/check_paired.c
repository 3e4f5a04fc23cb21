/* SPDX-License-Identifier: MIT */
/*
 * The statistics of `moetrace overhead`, on steps whose change is known.
 */
#include <stdlib.h>

#include "cli/paired.h"
#include "tests/unit/support/suite.h"

/* Ranks of the bound for the median at 95 %, from the tables of the sign test. */
START_TEST(test_order_of_bounds)
{
	static const size_t known[][2] = {{1, 0},  {5, 0},  {6, 1},   {8, 1},	{9, 2},	  {11, 2},
					  {12, 3}, {20, 6}, {25, 8}, {30, 10}, {100, 40}};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		size_t n = known[i][0], k = known[i][1];
		struct mt_interval interval;
		double values[100];

		for (size_t j = 0; j < n; j++)
			values[j] = (double)(n - j);
		mt_median_interval(values, n, &interval);
		ck_assert_double_eq(interval.median, (double)(n + 1) / 2);
		ck_assert_int_eq(interval.has_bounds, k > 0);
		if (k == 0)
			continue;
		ck_assert_double_eq(interval.low, (double)k);
		ck_assert_double_eq(interval.high, (double)(n + 1 - k));
	}
}
END_TEST

/*
 * Steps of two batch sizes in turns, 10 and 30 us, 10 % and 20 % longer when recorded; while the
 * machine gets slower by half over the time, and each block's first quarter is twice as slow.
 */
static size_t steps_make(struct mt_step *steps, const struct mt_blocks *blocks)
{
	double time_ns = (double)blocks->start_ns;
	double end_ns = time_ns + 2.0 * blocks->n_pairs * (double)blocks->block_ns;
	size_t n;

	for (n = 0; time_ns < end_ns; n++) {
		double since_ns = time_ns - (double)blocks->start_ns;
		uint64_t block = (uint64_t)since_ns / blocks->block_ns;
		bool is_on = block % 4 == 1 || block % 4 == 2;
		double ns = n % 2 ? 30000 * (is_on ? 1.2 : 1) : 10000 * (is_on ? 1.1 : 1);

		if ((uint64_t)since_ns % blocks->block_ns < blocks->block_ns / 4)
			ns *= 2;
		steps[n].time_ns = (uint64_t)time_ns;
		steps[n].model = 1;
		steps[n].phase = 2;
		steps[n].n_rows = n % 2 ? 64 : 8;
		time_ns += ns * (1 + since_ns / (end_ns - (double)blocks->start_ns) / 2);
	}
	return n;
}

START_TEST(test_known_change)
{
	const struct mt_blocks blocks = {.start_ns = 12345, .block_ns = 4000000, .n_pairs = 20};
	struct mt_step *steps = calloc(20000, sizeof(*steps));
	size_t n_steps = steps_make(steps, &blocks);
	size_t n_counted = 0, n_small;
	struct mt_change small, large, rate;
	struct mt_step first = steps[0];

	/* In whatever order they come. */
	steps[0] = steps[n_steps / 2];
	steps[n_steps / 2] = first;
	mt_steps_prepare(steps, n_steps, &blocks);
	for (size_t i = 0; i < n_steps; i++)
		if (steps[i].is_counted)
			steps[n_counted++] = steps[i];
	ck_assert_uint_gt(n_counted, n_steps / 2);
	ck_assert_uint_lt(n_counted, n_steps);
	ck_assert_int_eq(mt_rate_change(steps, n_counted, blocks.n_pairs, &rate), 0);
	mt_steps_group(steps, n_counted);
	n_small = mt_steps_group_size(steps, n_counted, 0);
	ck_assert_uint_eq(steps[0].n_rows, 8);
	ck_assert_uint_eq(mt_steps_group_size(steps, n_counted, n_small), n_counted - n_small);
	ck_assert_int_eq(mt_step_change(steps, n_small, blocks.n_pairs, &small), 0);
	ck_assert_int_eq(mt_step_change(steps + n_small, n_counted - n_small, blocks.n_pairs,
					&large), 0);
	ck_assert_uint_eq(small.n_pairs, blocks.n_pairs);
	ck_assert_double_eq_tol(small.percent.median, 10, 0.3);
	ck_assert_double_eq_tol(large.percent.median, 20, 0.3);
	ck_assert_double_eq_tol(large.off / small.off, 3, 0.05);
	/* 72 rows take 40 us, or 11 + 36. */
	ck_assert_double_eq_tol(rate.percent.median, (40.0 / 47 - 1) * 100, 0.5);
	/* The drift of 1.3 % a pair has a sign in turns: both signs are among the pairs. */
	ck_assert(small.percent.has_bounds && small.percent.low < 10 && small.percent.high > 10);
	free(steps);
}
END_TEST

/* Blocks of one kind alone, and batch sizes with too few steps: nothing to compare. */
START_TEST(test_nothing_to_compare)
{
	const struct mt_blocks blocks = {.start_ns = 0, .block_ns = 1000000, .n_pairs = 2};
	struct mt_change change;
	struct mt_step steps[64];
	uint32_t i;

	for (i = 0; i < 64; i++)
		steps[i] = (struct mt_step){.time_ns = 300000 + i, .n_rows = 4};
	mt_steps_prepare(steps, 64, &blocks);
	ck_assert_int_eq(mt_step_change(steps, 63, 2, &change), 0);
	ck_assert_uint_eq(change.n_pairs, 0);
	ck_assert_int_eq(mt_rate_change(steps, 63, 2, &change), 0);
	ck_assert_uint_eq(change.n_pairs, 0);
	/* Two of the other kind. */
	steps[62].time_ns = 1300000;
	steps[63].time_ns = 1300005;
	mt_steps_prepare(steps, 64, &blocks);
	ck_assert(steps[62].is_on && steps[62].is_counted && !steps[63].is_counted);
	ck_assert_int_eq(mt_step_change(steps, 63, 2, &change), 0);
	ck_assert_uint_eq(change.n_pairs, 0);
	ck_assert_int_eq(mt_rate_change(steps, 0, 2, &change), 0);
	ck_assert_uint_eq(change.n_pairs, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("paired");
	TCase *paired = tcase_create("paired");

	tcase_add_test(paired, test_order_of_bounds);
	tcase_add_test(paired, test_known_change);
	tcase_add_test(paired, test_nothing_to_compare);
	suite_add_tcase(suite, paired);
	return suite_run(suite);
}
