/* SPDX-License-Identifier: MIT */
/*
 * Kernels and graph launches from a CUPTI made for tests, which delivers on threads of its own.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "collectors/cupti/api.h"
#include "tests/collectors/support/cupti_toy.h"
#include "tests/cuda/support/gpu_toy.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

/* A launch of a graph where @name is NULL, else a kernel that is launched alone. */
static void put(const char *name, uint64_t start_ns, uint64_t end_ns, uint32_t correlation)
{
	const struct fake_cupti_record record = {
		.kind = name ? MTC_CUPTI_CONCURRENT_KERNEL : MTC_CUPTI_GRAPH_TRACE,
		.name = name,
		.start_ns = start_ns,
		.end_ns = end_ns,
		.correlation = correlation,
	};

	cupti_fake->put(&record);
}

static void start(const struct toy *toy)
{
	ck_assert_int_eq(moetrace_start(toy->session, NULL), MOETRACE_OK);
}

/* What the collector's row says by now. */
static bool says(const struct toy *toy, const char *condition)
{
	int64_t holds;
	sqlite3 *db;

	ck_assert_int_eq(moetrace_flush(toy->session), MOETRACE_OK);
	db = db_open(toy->path);
	holds = db_int(db, "SELECT count(*) FROM collector WHERE %s", condition);
	db_close(db);
	return holds > 0;
}

START_TEST(test_kernels)
{
	struct toy toy;
	uint64_t base_ns;
	sqlite3 *db;

	fakes_set("MOETRACE_KERNEL_ROLES", "my_*_gemm=gate,something=topk");
	toy = cupti_toy_open("kernels.db", "kernel");
	/* What is set from then on is not looked at. */
	fakes_set("MOETRACE_KERNEL_ROLES", "fused*=norm");
	put("none", fakes_realtime_ns(), fakes_realtime_ns(), 1); /* the kind is not on yet */
	cupti_toy_start(&toy);
	base_ns = fakes_realtime_ns();
	put("fused_moe_kernel", base_ns, base_ns + 5000, 10);
	put("my_big_gemm", base_ns + 6000, base_ns + 6500, 11);
	put("ncclDevKernel_AllReduce", base_ns + 7000, base_ns + 7500, 12);
	put("something", 0, 0, 13);
	put("something", base_ns + 8000, 0, 14);
	put("something", base_ns + 9000, base_ns + 8000, 15);
	put("something", base_ns + UINT64_C(7200000000000), base_ns + UINT64_C(7200000000001), 16);
	db = cupti_toy_finish(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(correlation || ':' || flags) FROM (SELECT * FROM"
				     " kernel ORDER BY correlation)"),
			 "10:0,11:0,12:0,13:1,14:16,15:2,16:5");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(name || '=' || role || moves_data || '/' ||"
				     " duration_ns) FROM kernel_event"),
			 "fused_moe_kernel=experts0/5000,my_big_gemm=gate0/500,"
			 "ncclDevKernel_AllReduce=collective1/500");
	ck_assert_int_eq(db_int(db, "SELECT abs(k.start_ns + c.realtime_ns - c.session_ns - %lld) <"
				    " 1000000 FROM kernel AS k, clock_snapshot AS c WHERE"
				    " correlation = 10 LIMIT 1", (long long)base_ns), 1);
	ck_assert_str_eq(db_text(db, "SELECT state || n_rows || n_invalid || n_dropped || version ||"
				     " mode FROM collector"), "on740130001kernel");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(grid_x || grid_y || grid_z || block_x ||"
				     " block_z || registers) FROM launch_shape"), "1231332");
	ck_assert_str_eq(db_text(db, "SELECT kind || uuid FROM device WHERE device_id = 2"),
			 "cudacuda:0");
	/* CUPTI's clock is that of the day. */
	ck_assert_int_eq(db_int(db, "SELECT count(*) >= 1 AND max(d.device_id) IS NULL AND max(abs("
				    "d.clock_ns - d.session_ns - c.realtime_ns + c.session_ns)) <"
				    " 1000000 AND max(uncertainty) < 1000000 FROM (SELECT *,"
				    " uncertainty_ns AS uncertainty FROM device_clock WHERE clock ="
				    " 'cupti') AS d, (SELECT * FROM clock_snapshot LIMIT 1) AS c"), 1);
	db_close(db);
}
END_TEST

START_TEST(test_graphs)
{
	struct toy toy = cupti_toy_open("graphs.db", "graph");
	uint64_t base_ns = fakes_realtime_ns();
	sqlite3 *db;

	put(NULL, base_ns - 2000000000, base_ns - 1000000000, 1); /* before the recording */
	cupti_toy_start(&toy);
	base_ns = fakes_realtime_ns();
	put(NULL, base_ns, base_ns + 300000, 20);
	put("kernel", base_ns, base_ns + 10, 21); /* of a kind that is off */
	put(NULL, base_ns + 400000, base_ns + 700000, 22);
	db = cupti_toy_finish(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(correlation || ':' || (end_ns - start_ns) ||"
				     " ':' || stream || ':' || flags) FROM graph_launch"),
			 "20:300000:7:0,22:300000:7:0");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE"), 2);
	db_close(db);
}
END_TEST

/* A buffer cannot be read to its end: how many records are lost is not known. */
START_TEST(test_unreadable)
{
	struct toy toy;
	uint64_t base_ns;
	sqlite3 *db;

	fakes_set("FAKE_CUPTI", "unreadable");
	toy = cupti_toy_open("unreadable.db", "graph");
	cupti_toy_start(&toy);
	base_ns = fakes_realtime_ns();
	for (uint32_t i = 0; i < 100; i++)
		put(NULL, base_ns, base_ns + 10, 20 + i);
	db = cupti_toy_finish(&toy);
	ck_assert_int_eq(db_int(db, "SELECT n_dropped IS NULL AND state = 'on' FROM collector"), 1);
	db_close(db);
}
END_TEST

/* The next recording begins while a look of the last one is still under way: it is read, too. */
START_TEST(test_rotate_within_look)
{
	struct toy toy;
	char next[1024];
	uint64_t base_ns;
	uint32_t n_flushes;
	sqlite3 *db;

	fakes_set("MOETRACE_COLLECTOR_TIMEOUT_MS", "60000");
	toy = cupti_toy_open("within.db", "graph");
	cupti_toy_start(&toy);
	snprintf(next, sizeof(next), "%s.next", toy.path);
	cupti_fake->stall(1);
	cupti_fake->wait_for_stalled();
	ck_assert_int_eq(moetrace_rotate(toy.session, next), MOETRACE_OK);
	n_flushes = cupti_fake->n_flushes();
	cupti_fake->stall(0);
	/* The look, the last one of the old recording, and what is thrown away and read of the new. */
	for (int i = 0; i < 3000 && cupti_fake->n_flushes() < n_flushes + 6; i++)
		suite_sleep_ms(10);
	base_ns = fakes_realtime_ns();
	put(NULL, base_ns, base_ns + 300000, 30);
	for (int i = 0; i < 3000 && cupti_fake->n_waiting(); i++)
		suite_sleep_ms(10);
	toy.path = next;
	db = cupti_toy_finish(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(correlation) FROM graph_launch"), "30");
	db_close(db);
}
END_TEST

/* Launching threads of the program, two recordings, and more than the pool holds at once. */
static void *launch(void *argument)
{
	const uint32_t first = *(const uint32_t *)argument;

	for (uint32_t i = 0; i < 3000; i++)
		put(i % 2 ? "norm_kernel" : "expert_kernel", fakes_realtime_ns(), fakes_realtime_ns(), first + i);
	return NULL;
}

START_TEST(test_threads)
{
	struct toy toy = cupti_toy_open("threads.db", "kernel");
	uint32_t firsts[3] = { 0, 10000, 20000 };
	pthread_t threads[3];
	sqlite3 *db;

	cupti_toy_start(&toy);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, launch, &firsts[i]), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	cupti_toy_start(&toy);
	put("late", fakes_realtime_ns(), fakes_realtime_ns(), 1);
	db = cupti_toy_finish(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) + (SELECT n_dropped FROM collector WHERE"
				    " recording_id = 1) FROM kernel WHERE recording_id = 1"), 9000);
	ck_assert_int_eq(db_int(db, "SELECT count(DISTINCT correlation) = count(*) FROM kernel WHERE"
				    " recording_id = 1"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel WHERE recording_id = 2"), 1);
	db_close(db);
}
END_TEST

static const struct {
	const char *wrong, *mode, *state, *reason, *dropped;
} states[] = {
	{ "busy", "graph", "busy", "another tool has CUPTI (a tool of the test's): end it", "0" },
	{ "busy_long", "graph", "busy", "xxxxxxxxxxxxxxx): end it", "0" },
	{ "old_busy", "kernel", "busy", "another tool has CUPTI (nsys, ncu, ", "0" },
	{ "no_clock", "graph", "unsupported", "not CLOCK_REALTIME", "0" },
	{ "refuses", "graph", "unsupported", "refuses records", "0" },
	{ "no_register", "graph", "unsupported", "refuses records", "0" },
	{ "no_limit", "graph", "on", "could not be limited", "0" },
	{ "no_callbacks", "kernel", "on", "may lack pass and layer", "0" },
	{ "", "off", "absent", "mode off was asked for", "0" },
	{ "drops", "graph", "on", NULL, "14" },
	{ "drops_unknown", "graph", "on", NULL, "(null)" },
};

START_TEST(test_state)
{
	struct toy toy;
	sqlite3 *db;

	fakes_set("FAKE_CUPTI", states[_i].wrong);
	toy = cupti_toy_open("state.db", states[_i].mode);
	start(&toy);
	db = cupti_toy_finish(&toy);
	ck_assert_str_eq(db_text(db, "SELECT state FROM collector"), states[_i].state);
	if (states[_i].reason)
		ck_assert_msg(strstr(db_text(db, "SELECT reason FROM collector"),
				     states[_i].reason) != NULL, "%s: %s", states[_i].wrong,
			      db_text(db, "SELECT reason FROM collector"));
	/* A look at the start, one at the stop, and one behind it. */
	if (strcmp(states[_i].dropped, "14") == 0)
		ck_assert_int_ge(db_int(db, "SELECT n_dropped FROM collector"), 14);
	else
		ck_assert_str_eq(db_text(db, "SELECT n_dropped FROM collector"), states[_i].dropped);
	db_close(db);
}
END_TEST

/* The same error, without a driver and with one. */
START_TEST(test_no_driver)
{
	static const char *const expected[] = { "absent", "unsupported" };
	static const char *const reasons[] = { "no driver: ", "CUPTI does not start: " };
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	struct toy toy;
	sqlite3 *db;

	/* One that is there cannot be taken away. */
	if (driver && _i == 0)
		return;
	if (_i == 1)
		gpu_load_driver(".libs");
	fakes_set("FAKE_CUPTI", "no_start");
	toy = cupti_toy_open("no_driver.db", "graph");
	start(&toy);
	db = cupti_toy_finish(&toy);
	ck_assert_str_eq(db_text(db, "SELECT state FROM collector"), expected[_i]);
	ck_assert_int_eq(db_int(db, "SELECT instr(reason, '%s') FROM collector", reasons[_i]), 1);
	db_close(db);
}
END_TEST

START_TEST(test_missing)
{
	struct toy toy = cupti_toy_open("first.db", "graph");
	struct moetrace_session_opts opts = toy_opts();
	sqlite3 *db;

	/* A second session finds it taken. */
	opts.collectors = "cupti";
	start(&toy);
	{
		struct toy other = toy_start("second.db", &opts, 1, 64, 2);

		db = cupti_toy_finish(&other);
		ck_assert_str_eq(db_text(db, "SELECT state FROM collector"), "busy");
		db_close(db);
	}
	db = cupti_toy_finish(&toy);
	ck_assert_str_eq(db_text(db, "SELECT state FROM collector"), "on");
	db_close(db);
}
END_TEST

START_TEST(test_absent)
{
	static const char *const libraries[] = { "/nonexistent/libcupti.so", "libm.so.6" };
	struct moetrace_session_opts opts = toy_opts();
	struct toy toy;
	sqlite3 *db;

	fakes_set("MOETRACE_CUPTI", libraries[_i]);
	fakes_be_patient();
	opts.collectors = "cupti";
	toy = toy_start("absent.db", &opts, 1, 64, 2);
	db = cupti_toy_finish(&toy);
	ck_assert_str_eq(db_text(db, "SELECT state FROM collector"), "absent");
	ck_assert_int_eq(db_int(db, "SELECT instr(reason, 'no CUPTI: ') FROM collector"), 1);
	db_close(db);
}
END_TEST

/* In a look, or as it starts, which the opening of the session waits for. */
START_TEST(test_hang)
{
	struct toy toy;
	sqlite3 *db;

	fakes_set("FAKE_CUPTI", _i ? "start_hangs" : "hang");
	fakes_set("MOETRACE_COLLECTOR_TIMEOUT_MS", "100");
	toy = cupti_toy_open("hang.db", "graph");
	start(&toy);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	WAIT_UNTIL(says(&toy, "state = 'hung' AND instr(reason, 'did not come back') > 0"));
	db = cupti_toy_finish(&toy);
	ck_assert_str_eq(db_text(db, "SELECT state FROM collector"), "hung");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 1);
	db_close(db);
}
END_TEST

#define QUIET "(state = 'on' AND instr(reason, 'no record came for a second') > 0)"

/* Nothing comes: that is said, and taken back by the first record. */
START_TEST(test_quiet)
{
	struct toy toy = cupti_toy_open("quiet.db", "graph");
	const uint64_t begin_ns = suite_now_ns();

	cupti_toy_start(&toy);
	WAIT_UNTIL(says(&toy, QUIET));
	ck_assert_uint_ge(suite_now_ns() - begin_ns, UINT64_C(1000000000));
	/* Again and again, since a second may pass before it is seen. */
	WAIT_UNTIL((put(NULL, fakes_realtime_ns(), fakes_realtime_ns(), 1),
		    says(&toy, "state = 'on' AND reason IS NULL")));
	db_close(cupti_toy_finish(&toy));
}
END_TEST

/* A while after the end of the recording has begun to wait for the last look. */
static void *go_on_later(void *argument)
{
	const struct toy *toy = argument;

	WAIT_UNTIL(!toy_status(toy).is_recording);
	suite_sleep_ms(700);
	cupti_fake->stall(0);
	return NULL;
}

/* Who lets calls last for long has the end of a recording wait for what the last one brings. */
START_TEST(test_last_look)
{
	struct toy toy = cupti_toy_open("last.db", "graph");
	pthread_t thread;
	uint64_t base_ns;
	sqlite3 *db;

	cupti_toy_start(&toy);
	cupti_fake->stall(1);
	base_ns = fakes_realtime_ns();
	put(NULL, base_ns, base_ns + 1000, 20);
	ck_assert_int_eq(pthread_create(&thread, NULL, go_on_later, &toy), 0);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM graph_launch WHERE correlation = 20"), 1);
	db_close(db);
}
END_TEST

/* All buffers are gone: what has no place is lost and counted, in the next session too. */
START_TEST(test_kept)
{
	fakes_set("FAKE_CUPTI", "keeps");
	for (int i = 0; i < 2; i++) {
		struct toy toy = cupti_toy_open(i ? "later.db" : "kept.db", "graph");
		sqlite3 *db;

		cupti_toy_start(&toy);
		put(NULL, fakes_realtime_ns(), fakes_realtime_ns(), 1);
		WAIT_UNTIL(says(&toy, "n_dropped > 0"));
		db = cupti_toy_finish(&toy);
		ck_assert_str_eq(db_text(db, "SELECT state || n_rows FROM collector"), "on0");
		db_close(db);
	}
}
END_TEST

/*
 * What was launched last still runs: its record is waited for, for a while. What comes later than that
 * is lost where whole graphs are recorded, and nobody knows how much it was.
 */
START_TEST(test_last_launch)
{
	const int is_kernel = _i == 1, is_too_late = _i == 2;
	struct toy toy = cupti_toy_open("last_launch.db", is_kernel ? "kernel" : "graph");
	uint64_t base_ns;
	sqlite3 *db;

	cupti_toy_start(&toy);
	if (is_kernel)
		WAIT_UNTIL(cupti_fake->is_enabled(MTC_CUPTI_CONCURRENT_KERNEL));
	base_ns = fakes_realtime_ns();
	cupti_fake->launch(!is_kernel, NULL, 30);
	put(is_kernel ? "expert_k" : NULL, base_ns, base_ns + 1000, 30);
	/* More than there are at the end, if it does not wait. */
	cupti_fake->hold_some(is_too_late ? 1000000 : 8);
	db = cupti_toy_finish(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM %s WHERE correlation = 30",
				is_kernel ? "kernel" : "graph_launch"), !is_too_late);
	ck_assert_str_eq(db_text(db, "SELECT n_dropped FROM collector"), is_too_late ? "(null)" : "0");
	/* Before its records go off: from then on other launches may write its ends. */
	if (is_kernel)
		ck_assert_uint_eq(cupti_fake->n_left(), 0);
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cupti");
	TCase *tests = tcase_create("cupti");

	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, test_kernels);
	tcase_add_test(tests, test_graphs);
	tcase_add_test(tests, test_unreadable);
	tcase_add_test(tests, test_rotate_within_look);
	tcase_add_test(tests, test_threads);
	tcase_add_loop_test(tests, test_state, 0, sizeof(states) / sizeof(states[0]));
	tcase_add_loop_test(tests, test_no_driver, 0, 2);
	tcase_add_test(tests, test_missing);
	tcase_add_loop_test(tests, test_absent, 0, 2);
	tcase_add_loop_test(tests, test_hang, 0, 2);
	tcase_add_test(tests, test_quiet);
	tcase_add_test(tests, test_last_look);
	tcase_add_test(tests, test_kept);
	tcase_add_loop_test(tests, test_last_launch, 0, 3);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
