/* SPDX-License-Identifier: MIT */
/*
 * Passes that are sampled: which of them are kept, how often records are switched on, and when they are
 * switched off again. Nothing here depends on how fast the machine is.
 */
#include <time.h>

#include "collectors/cupti/api.h"
#include "tests/collectors/support/cupti_lane.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

#define SELDOM "kernel:every=1000000"
/* In which anything happens that is to happen. */
#define PATIENCE_NS UINT64_C(60000000000)

enum { N_KERNELS = 5, ENABLED_AT_OPEN = 1 };

static uint32_t n_switches(void)
{
	return cupti_fake->n_enabled(MTC_CUPTI_CONCURRENT_KERNEL) - ENABLED_AT_OPEN;
}

static int is_on(void)
{
	return cupti_fake->is_enabled(MTC_CUPTI_CONCURRENT_KERNEL);
}

/* ---- which passes ---- */

static const struct {
	const char *mode;
	uint32_t n_switches;  /* passes come until records were on so often */
	uint32_t every;       /* passes from one time to the next, at least; 0: any number */
	uint32_t per_s;       /* times a second, at most; 0: any number */
	int is_host;          /* passes are told from the host, not on a lane */
} samplings[] = {
	{ "kernel:every=20", 6, 20, 0, 0 },
	{ "kernel:every=20", 6, 20, 0, 1 },
	{ "kernel:per_s=50", 6, 0, 50, 0 },
	{ "kernel:every=1", 1, 0, 0, 0 },
	{ "kernel:window=0+3600", 1, 0, 0, 0 },
	{ "kernel:window=3600+1", 0, 0, 0, 0 },
};

static void run_pass(struct gpu *gpu, uint32_t number, int is_host)
{
	const struct timespec pause = { 0, 500000 };
	struct moetrace_pass *pass = NULL;

	if (is_host)
		pass = cupti_host_begin(gpu, number, 0);
	else
		cupti_pass_begin(gpu);
	for (uint32_t i = 0; i < N_KERNELS; i++) {
		cupti_launch_kernel(gpu, cupti_kernel_names[i]);
		if (i == 2)
			nanosleep(&pause, NULL);
	}
	if (is_host)
		moetrace_pass_end(pass);
	else
		cupti_pass_end(gpu);
	nanosleep(&pause, NULL);
}

/* Kernels of a sampled pass are all there, those of another pass not at all. */
START_TEST(test_sampling)
{
	struct gpu gpu = cupti_lane_start("sampling.db", samplings[_i].mode);
	uint32_t n_passes = 0, n;
	uint64_t begin_ns;
	sqlite3 *db;

	/* What could have been sampled meanwhile is not made up for. */
	if (samplings[_i].per_s)
		suite_sleep_ms(200);
	begin_ns = suite_now_ns();
	while ((n_switches() < samplings[_i].n_switches || n_passes < 40) &&
	       suite_now_ns() < begin_ns + PATIENCE_NS) {
		run_pass(&gpu, n_passes++, samplings[_i].is_host);
		/* What the collector's list has no room for would be lost. */
		WAIT_UNTIL(cupti_fake->n_waiting() <= 300 * N_KERNELS);
		toy_keep_pace(&gpu.toy, n_passes, 300);
	}
	db = cupti_lane_finish(&gpu);
	/* Each time but the last, which may have been cut short, gave a pass. */
	n = n_switches();
	ck_assert_uint_ge(n, samplings[_i].n_switches);
	ck_assert_int_ge(db_int(db, "SELECT count(DISTINCT pass_id) FROM kernel") + 1, n);
	if (samplings[_i].every)
		ck_assert_uint_le(n, 1 + n_passes / samplings[_i].every);
	if (samplings[_i].per_s)
		ck_assert_uint_le(n, 2 + samplings[_i].per_s * (suite_now_ns() - begin_ns) / 1000000000);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM (SELECT 1 FROM kernel GROUP BY pass_id HAVING"
				    " count(*) <> %d OR pass_id IS NULL)", N_KERNELS), 0);
	/* What is on all the time has all passes from the first one on. */
	if (samplings[_i].n_switches == 1)
		ck_assert_int_eq(db_int(db, "SELECT count(DISTINCT pass_id) + min(pass_id) - 1 FROM kernel"),
				 n_passes);
	if (samplings[_i].n_switches == 0)
		ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel"), 0);
	ck_assert_int_eq(is_on(), 0);
	db_close(db);
}
END_TEST

/*
 * The host ends a pass long after its kernel was read, and the GPU one that the host has ended at once:
 * kernels wait for as long as their pass is open, or on its way.
 */
START_TEST(test_late_end)
{
	struct gpu gpu = cupti_lane_start("late.db", "kernel");
	struct gpu other = gpu;
	sqlite3 *db;

	other.lane = gpu_lane(&gpu, &other.stream);
	gpu.fake->hold_one(other.stream, true);
	cupti_pass_begin(&other);
	cupti_launch_kernel(&other, "expert_k");
	cupti_pass_end(&other);
	cupti_pass_begin(&gpu);
	cupti_launch_kernel(&gpu, "expert_k");
	suite_sleep_ms(2600);
	cupti_pass_end(&gpu);
	gpu.fake->hold_one(other.stream, false);
	ck_assert_int_eq(moetrace_flush(gpu.toy.session), MOETRACE_OK);
	db = cupti_lane_finish(&gpu);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel AS k JOIN pass AS p USING (pass_id)"
				    " WHERE p.end_ns - k.end_ns > 2000000000"), 2);
	ck_assert_int_eq(db_stat(db, 1, "untied_kernels"), 0);
	db_close(db);
}
END_TEST

/* ---- until when ---- */

/* The pass that is kept is followed by one whose launches are recorded, too, however late it comes. */
START_TEST(test_behind)
{
	struct gpu gpu = cupti_lane_start("behind.db", SELDOM);
	const uint64_t begin_ns = suite_now_ns();
	sqlite3 *db;

	run_pass(&gpu, 0, 0);
	suite_sleep_ms(50);
	cupti_pass_begin(&gpu);
	ck_assert(is_on());
	/* It is the one that is kept where the sampler was too late for the first. */
	cupti_launch_kernel(&gpu, "expert_k");
	cupti_pass_end(&gpu);
	for (uint32_t i = 1; is_on() && suite_now_ns() < begin_ns + PATIENCE_NS; i++)
		run_pass(&gpu, i, 0);
	ck_assert(!is_on());
	db = cupti_lane_finish(&gpu);
	ck_assert_int_ge(db_int(db, "SELECT count(DISTINCT pass_id) FROM kernel"), 1);
	db_close(db);
}
END_TEST

/*
 * The host is passes ahead of the GPU, which it does not wait for: records stay on until the GPU has come
 * to the end of those that are kept.
 */
START_TEST(test_gpu_behind)
{
	struct gpu gpu = cupti_lane_start("ahead.db", SELDOM);
	const uint64_t begin_ns = suite_now_ns();
	uint32_t n = 0;
	sqlite3 *db;

	gpu.fake->hold_one(gpu.stream, true);
	/* The sampler does not wait for a GPU that hangs: not so long. */
	for (; n < 200 && suite_now_ns() < begin_ns + 5 * UINT64_C(1000000000); n++)
		run_pass(&gpu, n, 0);
	ck_assert(is_on() || suite_now_ns() > begin_ns + 9 * UINT64_C(1000000000));
	gpu.fake->hold_one(gpu.stream, false);
	for (; is_on() && suite_now_ns() < begin_ns + PATIENCE_NS; n++)
		run_pass(&gpu, n, 0);
	ck_assert(!is_on());
	db = cupti_lane_finish(&gpu);
	ck_assert_int_ge(db_int(db, "SELECT count(DISTINCT pass_id) FROM kernel"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM (SELECT 1 FROM kernel GROUP BY pass_id HAVING"
				    " count(*) <> %d OR pass_id IS NULL)", N_KERNELS), 0);
	db_close(db);
}
END_TEST

/* A graph of two kernels, whose ends nothing proves; each pass has its own one. */
static void run_short_graph(struct gpu *gpu, uint64_t graph)
{
	const uint32_t correlation = cupti_next_correlation();
	const uint64_t start_ns = fakes_realtime_ns() + 1000000;

	cupti_pass_begin(gpu);
	cupti_fake->launch_graph((void *)(uintptr_t)graph, gpu->stream, correlation);
	cupti_put_kernel("gate_k", start_ns, 1000, correlation, 201);
	cupti_put_kernel("expert_k", start_ns + 1000, 1000, correlation, 202);
	cupti_pass_end(gpu);
	suite_sleep_ms(2);
}

/*
 * Launched again while that is not recorded, before anybody has read their ends: those may be of the
 * later launch.
 */
START_TEST(test_relaunched)
{
	struct gpu gpu = cupti_lane_start("relaunched.db", SELDOM);
	const uint64_t begin_ns = suite_now_ns();
	uint64_t n_graphs = 0;
	sqlite3 *db;

	cupti_fake->hold(1);
	while (is_on() && suite_now_ns() < begin_ns + PATIENCE_NS)
		run_short_graph(&gpu, ++n_graphs);
	for (uint64_t i = 1; _i && i <= n_graphs; i++)
		cupti_fake->launch_graph((void *)(uintptr_t)i, gpu.stream, cupti_next_correlation());
	cupti_fake->hold(0);
	db = cupti_lane_finish(&gpu);
	agree_prove(gpu.toy.path);
	ck_assert_int_ge(db_int(db, "SELECT count(*) FROM graph_launch WHERE pass_id IS NOT NULL"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM graph_launch WHERE flags & 32 <> %d OR n_untimed"
				    " <> %d", _i ? 32 : 0, _i ? 2 : 0), 0);
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cupti_sample");
	TCase *tests = tcase_create("cupti_sample");

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, test_sampling, 0, sizeof(samplings) / sizeof(samplings[0]));
	tcase_add_test(tests, test_late_end);
	tcase_add_test(tests, test_behind);
	tcase_add_test(tests, test_gpu_behind);
	tcase_add_loop_test(tests, test_relaunched, 0, 2);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
