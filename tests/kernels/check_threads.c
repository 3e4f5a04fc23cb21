/* SPDX-License-Identifier: MIT */
/*
 * The thread pool runs every iteration exactly once, whatever the sizes, back to back and after
 * its threads slept; and the sampler keeps its rules.
 */
#include <check.h>
#include <math.h>
#include <stdatomic.h>
#include <time.h>

#include <moetrace/status.h>

#include "kernels/sample/sample.h"
#include "kernels/threads.h"
#include "tests/support/run_suite.h"
#include "tests/unit/support/suite.h"

#define MAX_ITERATIONS 1000

struct counters {
	atomic_uint runs[MAX_ITERATIONS];
	atomic_uint n_pieces;
	uint32_t longest;	/* the grain, which no piece of a shared loop may exceed */
};

static void count_runs(void *arg, uint32_t begin, uint32_t end)
{
	struct counters *counters = arg;

	REQUIRE(begin < end && end - begin <= counters->longest, "a piece from %u to %u", begin,
		end);
	atomic_fetch_add(&counters->n_pieces, 1);
	for (uint32_t i = begin; i < end; i++)
		atomic_fetch_add(&counters->runs[i], 1);
}

static void check_loop(struct mtk_threads *threads, uint32_t n, uint32_t grain)
{
	static struct counters counters;
	uint32_t n_pieces = mtk_threads_count(threads) == 1 ? n > 0 : (n + grain - 1) / grain;

	for (uint32_t i = 0; i < MAX_ITERATIONS; i++)
		atomic_store(&counters.runs[i], 0);
	atomic_store(&counters.n_pieces, 0);
	counters.longest = mtk_threads_count(threads) == 1 ? n : grain;
	mtk_threads_run(threads, n, grain, count_runs, &counters);
	for (uint32_t i = 0; i < MAX_ITERATIONS; i++)
		REQUIRE(atomic_load(&counters.runs[i]) == (i < n), "iteration %u ran %u times", i,
			atomic_load(&counters.runs[i]));
	ck_assert_uint_eq(atomic_load(&counters.n_pieces), n_pieces);
}

START_TEST(test_every_iteration_once)
{
	static const uint32_t thread_counts[] = {1, 2, 3, 8};
	static const uint32_t counts[] = {0, 1, 2, 3, 31, 32, 33, 997, 1000};
	static const uint32_t grains[] = {1, 2, 7, 500, 4000};
	struct mtk_threads *threads;

	ck_assert_int_eq(mtk_threads_create(thread_counts[_i], &threads), MOETRACE_OK);
	ck_assert_uint_eq(mtk_threads_count(threads), thread_counts[_i]);
	for (int round = 0; round < 20; round++)
		for (size_t n = 0; n < sizeof(counts) / sizeof(counts[0]); n++)
			for (size_t g = 0; g < sizeof(grains) / sizeof(grains[0]); g++)
				check_loop(threads, counts[n], grains[g]);
	mtk_threads_destroy(threads);
}
END_TEST

START_TEST(test_after_sleep)
{
	const struct timespec pause = {.tv_nsec = 5000000};
	struct mtk_threads *threads;

	ck_assert_int_eq(mtk_threads_create(3, &threads), MOETRACE_OK);
	for (int round = 0; round < 20; round++) {
		nanosleep(&pause, NULL);
		check_loop(threads, 100, 1);
	}
	mtk_threads_destroy(threads);
}
END_TEST

/*
 * Idle threads take no processor time: 0.3 s of rest cost this process less than a tenth of that,
 * as soon as each has had a processor to come to rest on.
 */
START_TEST(test_idle_costs_nothing)
{
	const struct timespec pause = {.tv_nsec = 300000000};
	struct timespec before, after;
	struct mtk_threads *threads;
	double used = 1;

	ck_assert_int_eq(mtk_threads_create(4, &threads), MOETRACE_OK);
	check_loop(threads, 100, 1);
	for (int round = 0; round < 30 && used >= 0.03; round++) {
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
		nanosleep(&pause, NULL);
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
		used = (double)(after.tv_sec - before.tv_sec) +
		       1e-9 * (double)(after.tv_nsec - before.tv_nsec);
	}
	ck_assert_double_lt(used, 0.03);
	mtk_threads_destroy(threads);
}
END_TEST

START_TEST(test_thread_limits)
{
	struct mtk_threads *threads = NULL;

	ck_assert_int_eq(mtk_threads_create(0, &threads), MOETRACE_E_INVALID);
	ck_assert_int_eq(mtk_threads_create(MTK_MAX_THREADS + 1, &threads), MOETRACE_E_INVALID);
	ck_assert_ptr_null(threads);
	mtk_threads_destroy(NULL);
}
END_TEST

START_TEST(test_greedy)
{
	const float plain[] = {1, 5, 3, 5};
	const float with_nan[] = {NAN, -2, NAN, -1};
	const float all_nan[] = {NAN, NAN};
	const float infinite[] = {-INFINITY, INFINITY, 3};

	ck_assert_int_eq(mtk_sample_greedy(plain, 4), 1);
	ck_assert_int_eq(mtk_sample_greedy(with_nan, 4), 3);
	ck_assert_int_eq(mtk_sample_greedy(all_nan, 2), 0);
	ck_assert_int_eq(mtk_sample_greedy(infinite, 3), 1);
}
END_TEST

START_TEST(test_softmax_shares)
{
	/* At temperature 2 the shares are 4/8, 2/8, 1/8 and 1/8; the NaN has none. */
	const float unit = 2.0f * logf(2.0f);
	const float logits[] = {2 * unit, NAN, unit, 0, 0};
	const double shares[] = {0.5, 0.0, 0.25, 0.125, 0.125};
	const int n_draws = 40000;
	int counts[5] = {0};
	struct mtk_rng rng;

	mtk_rng_seed(&rng, 42, 7);
	for (int i = 0; i < n_draws; i++)
		counts[mtk_sample_softmax(logits, 5, 2.0f, &rng)]++;
	/* Six standard deviations of the largest share. */
	for (int i = 0; i < 5; i++)
		ck_assert_double_eq_tol((double)counts[i] / n_draws, shares[i], 0.015);
	ck_assert_int_eq(counts[1], 0);
}
END_TEST

START_TEST(test_softmax_of_temperature_zero)
{
	const float logits[] = {0, 3, 1};
	struct mtk_rng rng, same;

	mtk_rng_seed(&rng, 1, 1);
	same = rng;
	ck_assert_int_eq(mtk_sample_softmax(logits, 3, 0.0f, &rng), 1);
	ck_assert_mem_eq(&rng, &same, sizeof(rng));
	ck_assert_int_eq(mtk_sample_softmax(logits, 3, 1e-3f, &rng), 1);
	ck_assert_mem_ne(&rng, &same, sizeof(rng));
}
END_TEST

START_TEST(test_rng_streams)
{
	struct mtk_rng a, again, other_stream, other_seed;
	double sum = 0.0;

	mtk_rng_seed(&a, 5, 0);
	mtk_rng_seed(&again, 5, 0);
	mtk_rng_seed(&other_stream, 5, 1);
	mtk_rng_seed(&other_seed, 6, 0);
	for (int i = 0; i < 10000; i++) {
		double value = mtk_rng_next(&a);

		REQUIRE(value >= 0.0 && value < 1.0, "number %d is %g", i, value);
		REQUIRE(value == mtk_rng_next(&again), "number %d differs the second time", i);
		REQUIRE(value != mtk_rng_next(&other_stream), "number %d of two streams", i);
		REQUIRE(value != mtk_rng_next(&other_seed), "number %d of two seeds", i);
		sum += value;
	}
	ck_assert_double_eq_tol(sum / 10000, 0.5, 0.02);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("threads and sampling");
	TCase *threads = tcase_create("threads");
	TCase *sample = tcase_create("sample");

	tcase_set_timeout(threads, 60);
	tcase_add_loop_test(threads, test_every_iteration_once, 0, 4);
	tcase_add_test(threads, test_after_sleep);
	tcase_add_test(threads, test_idle_costs_nothing);
	tcase_add_test(threads, test_thread_limits);
	suite_add_tcase(suite, threads);

	tcase_add_test(sample, test_greedy);
	tcase_add_test(sample, test_softmax_shares);
	tcase_add_test(sample, test_softmax_of_temperature_zero);
	tcase_add_test(sample, test_rng_streams);
	suite_add_tcase(suite, sample);
	return suite;
}

int main(void)
{
	return run_suite(make_suite());
}
