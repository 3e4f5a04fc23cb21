/* SPDX-License-Identifier: MIT */
/*
 * The thread that switches records of kernels, driven by hand: passes are numbers that a test counts
 * up, and each look at the clock finds it further on, so that nothing waits for long.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "collectors/cupti/sampler.h"
#include "collectors/registry.h"
#include "tests/collectors/support/fakes.h"
#include "tests/unit/support/suite.h"

#define NS_PER_S UINT64_C(1000000000)
/* In which nothing is given up that is to come. */
#define SLOW_NS UINT64_C(1000000)

enum { MAX_SWITCHES = 16 };

static struct {
	_Atomic uint64_t now_ns, look_ns;
	_Atomic uint64_t n_begun, n_ended, n_whole;
	_Atomic uint32_t n_on, n_off; /* times that records were switched */
	_Atomic uint64_t on_ns[MAX_SWITCHES], off_ns[MAX_SWITCHES];
	_Atomic int is_watched;
	_Atomic int is_flushed;
	_Atomic int is_behind; /* the GPU */
	_Atomic int result; /* of switching on */
	_Atomic int has_pass; /* a whole one, each time that they are on */
} world;

static uint64_t now_ns(void *context)
{
	(void)context;
	return atomic_fetch_add(&world.now_ns, world.look_ns);
}

static void count_passes(void *context, struct mt_pass_counts *ret_counts)
{
	(void)context;
	*ret_counts = (struct mt_pass_counts){ world.n_begun, world.n_ended, world.n_whole };
}

/* Its passes are the host's. */
static void gpu_passes(void *context, struct mt_gpu_passes *ret_passes)
{
	(void)context;
	memset(ret_passes, 0, sizeof(*ret_passes));
}

static int gpu_passes_are_through(void *context, const struct mt_gpu_passes *passes)
{
	(void)context;
	(void)passes;
	return !world.is_behind;
}

static void set_on(void *context, int is_on)
{
	(void)context;
	world.is_watched = is_on;
}

static void ask(void *context, int is_asked)
{
	(void)context;
	(void)is_asked;
}

static void take_version(void *context, const char *what, const char *version)
{
	(void)context;
	(void)what;
	(void)version;
}

static void take_comparison(void *context, uint32_t device, enum mt_clock_kind clock,
			    mt_clock_read_fn *read, void *reader)
{
	(void)context;
	(void)device;
	(void)clock;
	(void)read;
	(void)reader;
}

static const struct mt_collector_out out = {
	.now_ns = now_ns,
	.count_passes = count_passes,
	.gpu_passes = gpu_passes,
	.gpu_passes_are_through = gpu_passes_are_through,
	.set_on = set_on,
	.ask = ask,
	.version = take_version,
	.compare_clock = take_comparison,
};

static void begin_pass(void)
{
	world.n_begun++;
}

static void end_pass(bool is_whole)
{
	world.n_ended++;
	world.n_whole += is_whole;
}

static int enable(uint32_t kind)
{
	(void)kind;
	if (world.result)
		return world.result;
	if (world.n_on < MAX_SWITCHES)
		world.on_ns[world.n_on] = world.now_ns;
	if (world.has_pass) {
		begin_pass();
		end_pass(true);
	}
	world.n_on++;
	return MTC_CUPTI_OK;
}

static int flush(uint32_t flags)
{
	world.is_flushed = flags == 0;
	return MTC_CUPTI_OK;
}

/* What has ended has been read by then, since the last time. */
static int disable(uint32_t kind)
{
	(void)kind;
	ck_assert(atomic_exchange(&world.is_flushed, 0));
	if (world.n_off < MAX_SWITCHES)
		world.off_ns[world.n_off] = world.now_ns;
	world.n_off++;
	return MTC_CUPTI_OK;
}

static const struct mtc_cupti api = { .enable = enable, .disable = disable, .flush = flush };

static struct mtc_cupti_sampler *start(const char *words, uint64_t look_ns)
{
	struct mtc_cupti_sampler *sampler;
	struct mtc_cupti_mode mode;

	world.look_ns = look_ns;
	ck_assert_int_eq(mtc_cupti_mode_parse(words, &mode), 0);
	sampler = mtc_cupti_sampler_start(&api, &mode, &out);
	ck_assert_ptr_nonnull(sampler);
	return sampler;
}

/* How long records were on, the n-th time. */
static uint64_t on_for_ns(uint32_t n)
{
	return world.off_ns[n] - world.on_ns[n];
}

static const char *const sampled[] = { "kernel:every=20", "kernel:per_s=5" };

/* Where no pass comes records go off, for longer each time that they waited in vain, until one comes. */
START_TEST(test_no_pass)
{
	struct mtc_cupti_sampler *sampler = start(sampled[_i], NS_PER_S / 2);

	WAIT_UNTIL(world.n_off == 1);
	ck_assert_uint_eq(world.n_on, 1);
	ck_assert_uint_ge(on_for_ns(0), 10 * NS_PER_S);
	ck_assert_uint_le(on_for_ns(0), 13 * NS_PER_S);
	suite_sleep_ms(50);
	ck_assert_uint_eq(world.n_on, 1);
	begin_pass();
	WAIT_UNTIL(world.n_off == 2);
	ck_assert_uint_eq(world.n_on, 2);
	ck_assert_uint_ge(on_for_ns(1), 20 * NS_PER_S);
	ck_assert_uint_le(on_for_ns(1), 23 * NS_PER_S);
	/* The next one is there as a whole: on until the one behind it has ended. */
	world.look_ns = SLOW_NS;
	end_pass(false);
	begin_pass();
	WAIT_UNTIL(world.n_on == 3);
	begin_pass();
	end_pass(true);
	WAIT_UNTIL(!world.is_watched);
	end_pass(false);
	WAIT_UNTIL(world.n_off == 3);
	ck_assert_int_eq(mtc_cupti_sampler_stop(sampler), MTC_CUPTI_OK);
	ck_assert_uint_eq(world.n_on, world.n_off);
}
END_TEST

/* A pass of the time before the recording is none that was waited for. */
START_TEST(test_passes)
{
	struct mtc_cupti_sampler *sampler;

	world.n_begun = world.n_ended = world.n_whole = 100;
	sampler = start("kernel:every=3", SLOW_NS);
	WAIT_UNTIL(world.n_on == 1);
	for (uint32_t i = 0; i < 3; i++) {
		WAIT_UNTIL(world.is_watched);
		begin_pass();
		end_pass(true);
		WAIT_UNTIL(!world.is_watched);
		ck_assert_uint_eq(world.n_on, i + 1);
		begin_pass();
		end_pass(false);
		WAIT_UNTIL(world.n_off == i + 1);
		/* That is two of three. */
		suite_sleep_ms(20);
		ck_assert_uint_eq(world.n_on, i + 1);
		begin_pass();
		end_pass(false);
		WAIT_UNTIL(world.n_on == i + 2);
	}
	ck_assert_int_eq(mtc_cupti_sampler_stop(sampler), MTC_CUPTI_OK);
	ck_assert_uint_eq(world.n_off, 4);
}
END_TEST

/* What ends while the GPU is behind is kept, too, and the next look comes so much later. */
START_TEST(test_gpu_behind)
{
	struct mtc_cupti_sampler *sampler = start("kernel:every=3", SLOW_NS);
	uint32_t n = 0;

	world.is_behind = 1;
	WAIT_UNTIL(world.n_on == 1);
	for (; n < 4; n++) {
		begin_pass();
		end_pass(true);
		suite_sleep_ms(20);
		ck_assert_int_eq(world.is_watched, 1);
	}
	world.is_behind = 0;
	WAIT_UNTIL(!world.is_watched);
	begin_pass();
	end_pass(false);
	WAIT_UNTIL(world.n_off == 1);
	/* Four were kept: that makes twelve. */
	for (n++; n < 11; n++) {
		begin_pass();
		end_pass(false);
	}
	suite_sleep_ms(50);
	ck_assert_uint_eq(world.n_on, 1);
	begin_pass();
	WAIT_UNTIL(world.n_on == 2);
	ck_assert_int_eq(mtc_cupti_sampler_stop(sampler), MTC_CUPTI_OK);
}
END_TEST

/* A window without a whole pass has nobody to wait for; with one, 10 s at most. */
START_TEST(test_window)
{
	struct mtc_cupti_sampler *sampler;

	world.has_pass = _i;
	sampler = start("kernel:window=0+2", NS_PER_S * 4 / 5);
	WAIT_UNTIL(world.n_off == 1);
	if (_i)
		ck_assert_uint_ge(on_for_ns(0), 10 * NS_PER_S);
	else
		ck_assert_uint_le(on_for_ns(0), 3 * NS_PER_S);
	ck_assert_int_eq(mtc_cupti_sampler_stop(sampler), MTC_CUPTI_OK);
	ck_assert_uint_eq(world.n_on, 1);
}
END_TEST

START_TEST(test_refused)
{
	struct mtc_cupti_sampler *sampler;

	world.result = 99;
	sampler = start("kernel:every=2", SLOW_NS);
	WAIT_UNTIL(mtc_cupti_sampler_result(sampler) == 99);
	ck_assert_int_eq(mtc_cupti_sampler_stop(sampler), 99);
	ck_assert_uint_eq(world.n_off, 0);
}
END_TEST

/* ---- no thread ---- */

static bool has_no_threads;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
			  void *(*run)(void *argument), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
			  void *(*run)(void *argument), void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
			  void *(*run)(void *argument), void *argument)
{
	return has_no_threads ? EAGAIN : __real_pthread_create(thread, attributes, run, argument);
}

/* Then nothing is sampled, and what was asked for is not recorded of every pass either. */
START_TEST(test_no_thread)
{
	const struct fake_cupti_api *fake = fakes_cupti();
	struct mt_collector_places places = { .cupti_mode = "kernel:every=2", .kernel_roles = "" };
	struct mt_collector_report report = { .state = MT_COLLECTOR_ON };
	void *cupti = NULL;

	places.cupti = getenv("MOETRACE_CUPTI");
	mtc_cupti.open(&places, &out, &cupti, &report);
	ck_assert_msg(cupti != NULL, "%s", report.reason);
	has_no_threads = true;
	mtc_cupti.begin(cupti);
	mtc_cupti.poll(cupti, &report);
	ck_assert_int_eq(report.state, MT_COLLECTOR_FAILED);
	ck_assert_ptr_nonnull(strstr(report.reason, "no thread to take samples with"));
	ck_assert_int_eq(fake->is_enabled(MTC_CUPTI_CONCURRENT_KERNEL), 0);
	mtc_cupti.close(cupti);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sampler");
	TCase *tests = tcase_create("sampler");

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, test_no_pass, 0, sizeof(sampled) / sizeof(sampled[0]));
	tcase_add_test(tests, test_passes);
	tcase_add_test(tests, test_gpu_behind);
	tcase_add_loop_test(tests, test_window, 0, 2);
	tcase_add_test(tests, test_refused);
	tcase_add_test(tests, test_no_thread);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
