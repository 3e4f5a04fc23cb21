/* SPDX-License-Identifier: MIT */
/*
 * The API end to end against brute force: a random runtime of several threads runs through
 * idle times and recordings, and every row of the file is compared with what it noted. A seed
 * is a test case; the long tier runs more of them, and longer.
 */
#include <pthread.h>
#include <stdlib.h>

#include "tests/unit/support/suite.h"
#include "tests/unit/support/world.h"

/* How many seeds: four have all formats of weights and all kinds of recordings. */
static int n_seeds(void)
{
	if (suite_is_long())
		return 40;
	return suite_has_sanitizer("thread") ? 3 : 4;
}

static uint32_t n_steps(void)
{
	return suite_is_long() ? 1500 : 200;
}

/* Other seeds by hand: MOETRACE_TEST_SEED is the first of them. */
static uint64_t first_seed(void)
{
	const char *seed = getenv("MOETRACE_TEST_SEED");

	return seed ? strtoull(seed, NULL, 10) : 1000;
}

static enum moetrace_weight_format format_of(int seed)
{
	static const enum moetrace_weight_format formats[] = {
		MOETRACE_WEIGHT_FORMAT_FP16,
		MOETRACE_WEIGHT_FORMAT_BF16,
		MOETRACE_WEIGHT_FORMAT_FP16,
		MOETRACE_WEIGHT_FORMAT_NONE,
	};

	return formats[seed % 4];
}

/* Idle, recording, idle, recording with a model that came late, closed while recording. */
START_TEST(test_two_recordings)
{
	struct world *world = world_open(suite_path("world.db"), first_seed() + (uint64_t)_i,
					 1 + (uint32_t)_i % 4, format_of(_i));

	world_run(world, n_steps() / 4);
	world_start(world);
	world_run(world, n_steps());
	world_stop(world);
	world_run(world, n_steps() / 4);
	world_end_some(world);
	world_start(world);
	world_run(world, n_steps() / 2);
	world_model_add(world);
	world_run(world, n_steps() / 2);
	world_end_some(world);
	world_close(world);
	world_compare(world);
	world_free(world);
}
END_TEST

/* What recordings may keep, by turns with the seed. */
static const struct world_kept kinds[] = {
	{.mode = MOETRACE_MODE_PER_PASS},
	{.mode = MOETRACE_MODE_PER_TOKEN, .every_n_passes = 3},
	{.mode = MOETRACE_MODE_STAT},
	{.mode = MOETRACE_MODE_PER_TOKEN, .every_n_requests = 2},
	{.mode = MOETRACE_MODE_PER_PASS, .every_n_passes = 2},
	{.mode = MOETRACE_MODE_PER_TOKEN, .every_n_passes = 2, .every_n_requests = 3},
	{.mode = MOETRACE_MODE_STAT, .every_n_passes = 2},
	{.mode = MOETRACE_MODE_PER_TOKEN},
};

/*
 * Recordings of three kinds in one file, with experts that move, counts in place of ids, and
 * dispatch.
 */
START_TEST(test_kinds_of_recordings)
{
	struct world *world = world_open(suite_path("kinds.db"), first_seed() + 500 + (uint64_t)_i,
					 1 + (uint32_t)_i % 4, format_of(_i));
	const uint32_t n_kinds = sizeof(kinds) / sizeof(kinds[0]);
	uint32_t i;

	world->has_counters = true;
	for (i = 0; i < 3; i++) {
		if (i > 0)
			world_maps_set(world);
		world_start_keeping(world, &kinds[((uint32_t)_i * 3 + i) % n_kinds]);
		world_run(world, n_steps() / 3);
		world_maps_set(world);
		world_run(world, n_steps() / 3);
		world_stop(world);
		world_run(world, n_steps() / 8);
		world_end_some(world);
	}
	world_close(world);
	world_compare(world);
	world_free(world);
}
END_TEST

/* Slices of thousands of rows, and the two bytes of positions that follow. */
START_TEST(test_long_slices)
{
	struct world *world = world_open(suite_path("long.db"), 77, 2, MOETRACE_WEIGHT_FORMAT_FP16);

	world->max_rows = 6000;
	world_start(world);
	world_run(world, 40);
	world_close(world);
	world_compare(world);
	world_free(world);
}
END_TEST

static void *start_and_stop(void *argument)
{
	struct world *world = argument;
	uint32_t i;

	for (i = 0; i < 5; i++) {
		world_start(world);
		suite_sleep_ms(30);
		world_stop(world);
		suite_sleep_ms(5);
	}
	return NULL;
}

/*
 * Recordings that start and stop in the middle of passes: a pass that was accepted is stored
 * whole, one that was not leaves no trace.
 */
START_TEST(test_start_and_stop_under_load)
{
	struct world *world = world_open(suite_path("load.db"), 99, 3, MOETRACE_WEIGHT_FORMAT_FP16);
	pthread_t id;

	world->is_free_running = true;
	ck_assert_int_eq(pthread_create(&id, NULL, start_and_stop, world), 0);
	while (world_recording(world->epoch) == 0)
		suite_sleep_ms(1);
	world_run(world, n_steps() * 3);
	ck_assert_int_eq(pthread_join(id, NULL), 0);
	world_close(world);
	world_compare(world);
	world_free(world);
}
END_TEST

static Suite *world_suite(void)
{
	Suite *suite = suite_create("world");
	TCase *seeds = tcase_create("seeds");
	TCase *other = tcase_create("other");

	tcase_set_timeout(seeds, suite_is_long() ? 600 : 60);
	tcase_add_loop_test(seeds, test_two_recordings, 0, n_seeds());
	tcase_add_loop_test(seeds, test_kinds_of_recordings, 0, n_seeds());
	tcase_add_test(other, test_long_slices);
	tcase_add_test(other, test_start_and_stop_under_load);
	suite_add_tcase(suite, seeds);
	suite_add_tcase(suite, other);
	return suite;
}

int main(void)
{
	return suite_run(world_suite());
}
