/* SPDX-License-Identifier: MIT */
/*
 * Kernels and graph launches from a CUPTI made for tests, which delivers on threads of its own.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "collectors/cupti/api.h"
#include "tests/collectors/support/fakes.h"
#include "tests/cuda/support/gpu_toy.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

static const struct fake_cupti_api *fake;

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

	fake->put(&record);
}

static struct toy open_toy(const char *name, const char *mode)
{
	struct moetrace_session_opts opts = toy_opts();

	fake = fakes_cupti();
	fakes_be_patient();
	fakes_set("MOETRACE_CUPTI_MODE", mode);
	opts.collectors = "cupti";
	return toy_open(name, &opts, 1, 64, 2);
}

static void start(const struct toy *toy)
{
	ck_assert_int_eq(moetrace_start(toy->session, NULL), MOETRACE_OK);
}

/* With a first flush what was before is thrown away, with the second one it is the recording's. */
static void start_delivering(const struct toy *toy)
{
	const uint32_t n_flushes = fake->n_flushes();

	start(toy);
	WAIT_UNTIL(fake->n_flushes() >= n_flushes + 2);
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

static sqlite3 *finish(struct toy *toy)
{
	sqlite3 *db;

	ck_assert_int_eq(moetrace_stop(toy->session, NULL), MOETRACE_OK);
	toy_close(toy);
	db = db_open(toy->path);
	agree_check(db);
	return db;
}

START_TEST(test_kernels)
{
	struct toy toy;
	uint64_t base_ns;
	sqlite3 *db;

	fakes_set("MOETRACE_KERNEL_ROLES", "my_*_gemm=gate,something=topk");
	toy = open_toy("kernels.db", "kernel");
	/* What is set from then on is not looked at. */
	fakes_set("MOETRACE_KERNEL_ROLES", "fused*=norm");
	put("none", fakes_realtime_ns(), fakes_realtime_ns(), 1); /* the kind is not on yet */
	start_delivering(&toy);
	base_ns = fakes_realtime_ns();
	put("fused_moe_kernel", base_ns, base_ns + 5000, 10);
	put("my_big_gemm", base_ns + 6000, base_ns + 6500, 11);
	put("ncclDevKernel_AllReduce", base_ns + 7000, base_ns + 7500, 12);
	put("something", 0, 0, 13);
	put("something", base_ns + 8000, 0, 14);
	put("something", base_ns + 9000, base_ns + 8000, 15);
	put("something", base_ns + UINT64_C(7200000000000), base_ns + UINT64_C(7200000000001), 16);
	db = finish(&toy);
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
	struct toy toy = open_toy("graphs.db", "graph");
	uint64_t base_ns = fakes_realtime_ns();
	sqlite3 *db;

	put(NULL, base_ns - 2000000000, base_ns - 1000000000, 1); /* before the recording */
	start_delivering(&toy);
	base_ns = fakes_realtime_ns();
	put(NULL, base_ns, base_ns + 300000, 20);
	put("kernel", base_ns, base_ns + 10, 21); /* of a kind that is off */
	put(NULL, base_ns + 400000, base_ns + 700000, 22);
	db = finish(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(correlation || ':' || (end_ns - start_ns) ||"
				     " ':' || stream || ':' || flags) FROM graph_launch"),
			 "20:300000:7:0,22:300000:7:0");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE"), 2);
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
	toy = open_toy("within.db", "graph");
	start_delivering(&toy);
	snprintf(next, sizeof(next), "%s.next", toy.path);
	fake->stall(1);
	fake->wait_for_stalled();
	ck_assert_int_eq(moetrace_rotate(toy.session, next), MOETRACE_OK);
	n_flushes = fake->n_flushes();
	fake->stall(0);
	/* The look, the last one of the old recording, and what is thrown away and read of the new. */
	for (int i = 0; i < 3000 && fake->n_flushes() < n_flushes + 6; i++)
		suite_sleep_ms(10);
	base_ns = fakes_realtime_ns();
	put(NULL, base_ns, base_ns + 300000, 30);
	for (int i = 0; i < 3000 && fake->n_waiting(); i++)
		suite_sleep_ms(10);
	toy.path = next;
	db = finish(&toy);
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
	struct toy toy = open_toy("threads.db", "kernel");
	uint32_t firsts[3] = { 0, 10000, 20000 };
	pthread_t threads[3];
	sqlite3 *db;

	start_delivering(&toy);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, launch, &firsts[i]), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	start_delivering(&toy);
	put("late", fakes_realtime_ns(), fakes_realtime_ns(), 1);
	db = finish(&toy);
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
	toy = open_toy("state.db", states[_i].mode);
	start(&toy);
	db = finish(&toy);
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
	toy = open_toy("no_driver.db", "graph");
	start(&toy);
	db = finish(&toy);
	ck_assert_str_eq(db_text(db, "SELECT state FROM collector"), expected[_i]);
	ck_assert_int_eq(db_int(db, "SELECT instr(reason, '%s') FROM collector", reasons[_i]), 1);
	db_close(db);
}
END_TEST

START_TEST(test_missing)
{
	struct toy toy = open_toy("first.db", "graph");
	struct moetrace_session_opts opts = toy_opts();
	sqlite3 *db;

	/* A second session finds it taken. */
	opts.collectors = "cupti";
	start(&toy);
	{
		struct toy other = toy_start("second.db", &opts, 1, 64, 2);

		db = finish(&other);
		ck_assert_str_eq(db_text(db, "SELECT state FROM collector"), "busy");
		db_close(db);
	}
	db = finish(&toy);
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
	db = finish(&toy);
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
	toy = open_toy("hang.db", "graph");
	start(&toy);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	WAIT_UNTIL(says(&toy, "state = 'hung' AND instr(reason, 'did not come back') > 0"));
	db = finish(&toy);
	ck_assert_str_eq(db_text(db, "SELECT state FROM collector"), "hung");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 1);
	db_close(db);
}
END_TEST

#define QUIET "(state = 'on' AND instr(reason, 'no record came for a second') > 0)"

/* Nothing comes: that is said, and taken back by the first record. */
START_TEST(test_quiet)
{
	struct toy toy = open_toy("quiet.db", "graph");
	const uint64_t begin_ns = suite_now_ns();

	start_delivering(&toy);
	WAIT_UNTIL(says(&toy, QUIET));
	ck_assert_uint_ge(suite_now_ns() - begin_ns, UINT64_C(1000000000));
	/* Again and again, since a second may pass before it is seen. */
	WAIT_UNTIL((put(NULL, fakes_realtime_ns(), fakes_realtime_ns(), 1),
		    says(&toy, "state = 'on' AND reason IS NULL")));
	db_close(finish(&toy));
}
END_TEST

/* A while after the end of the recording has begun to wait for the last look. */
static void *go_on_later(void *argument)
{
	const struct toy *toy = argument;

	WAIT_UNTIL(!toy_status(toy).is_recording);
	suite_sleep_ms(700);
	fake->stall(0);
	return NULL;
}

/* Who lets calls last for long has the end of a recording wait for what the last one brings. */
START_TEST(test_last_look)
{
	struct toy toy = open_toy("last.db", "graph");
	pthread_t thread;
	uint64_t base_ns;
	sqlite3 *db;

	start_delivering(&toy);
	fake->stall(1);
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
		struct toy toy = open_toy(i ? "later.db" : "kept.db", "graph");
		sqlite3 *db;

		start_delivering(&toy);
		put(NULL, fakes_realtime_ns(), fakes_realtime_ns(), 1);
		WAIT_UNTIL(says(&toy, "n_dropped > 0"));
		db = finish(&toy);
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
	struct toy toy = open_toy("last_launch.db", is_kernel ? "kernel" : "graph");
	uint64_t base_ns;
	sqlite3 *db;

	start_delivering(&toy);
	if (is_kernel)
		WAIT_UNTIL(fake->is_enabled(MTC_CUPTI_CONCURRENT_KERNEL));
	base_ns = fakes_realtime_ns();
	fake->launch(!is_kernel, NULL, 30);
	put(is_kernel ? "expert_k" : NULL, base_ns, base_ns + 1000, 30);
	/* More than there are at the end, if it does not wait. */
	fake->hold_some(is_too_late ? 1000000 : 8);
	db = finish(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM %s WHERE correlation = 30",
				is_kernel ? "kernel" : "graph_launch"), !is_too_late);
	ck_assert_str_eq(db_text(db, "SELECT n_dropped FROM collector"), is_too_late ? "(null)" : "0");
	/* Before its records go off: from then on other launches may write its ends. */
	if (is_kernel)
		ck_assert_uint_eq(fake->n_left(), 0);
	db_close(db);
}
END_TEST

/* ---- the order of a stream ---- */

struct run {
	int64_t start_ns;
	int64_t end_ns;
	uint32_t stream; /* 0: 7 */
	uint32_t node;	 /* 0: launched alone */
};

static void put_runs(uint64_t base_ns, const struct run *runs, uint32_t n_runs, uint32_t kind,
		     uint32_t correlation, uint32_t graph)
{
	for (uint32_t i = 0; i < n_runs; i++) {
		const struct fake_cupti_record record = {
			.kind = kind,
			.name = "norm_kernel",
			.start_ns = base_ns + (uint64_t)runs[i].start_ns,
			.end_ns = base_ns + (uint64_t)runs[i].end_ns,
			.stream = runs[i].stream,
			.node = runs[i].node,
			.graph = graph,
			.correlation = graph ? correlation : correlation + i,
		};

		fake->put(&record);
	}
}

#define PUT(base_ns, runs, kind, correlation, graph) \
	put_runs(base_ns, runs, sizeof(runs) / sizeof((runs)[0]), kind, correlation, graph)

static sqlite3 *finish_proved(struct toy *toy)
{
	sqlite3 *db = finish(toy);

	agree_prove(toy->path);
	return db;
}

/* Of launches of graphs the second one after it may not begin early, in whatever order they come. */
static const struct run alone[] = {
	{ 0, 500000, 0, 0 },	   { 100000, 200000, 0, 0 },  { 400000, 600000, 0, 0 },
	{ 0, 1000000, 9, 0 },	   { 550000, 700000, 0, 0 },  { 800000, 850000, 0, 0 },
	{ 710000, 790000, 0, 0 },  { 900000, 950000, 9, 0 },  { 860000, 206000000, 0, 0 },
	{ 870000, 206000000, 0, 0 }, { 880000, 206000000, 0, 0 },
};
/* Kernels that are launched alone may chain, and have ends of their own. */
static const char *const alone_flags[] = { "0,0,0,0,0,0,0,0,0,0,0", "32,0,0,0,0,0,0,0,32,32,32" };

START_TEST(test_overtaken)
{
	static const uint32_t kinds[] = { MTC_CUPTI_CONCURRENT_KERNEL, MTC_CUPTI_GRAPH_TRACE };
	static const char *const tables[] = { "kernel", "graph_launch" };
	struct toy toy = open_toy("overtaken.db", _i ? "graph" : "kernel");
	sqlite3 *db;

	start_delivering(&toy);
	PUT(fakes_realtime_ns(), alone, kinds[_i], 10, 0);
	db = finish_proved(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(flags) FROM (SELECT * FROM %s ORDER BY"
				     " correlation)", tables[_i]), alone_flags[_i]);
	/* Marked, not mended. */
	ck_assert_int_eq(db_int(db, "SELECT end_ns - start_ns FROM %s WHERE correlation = 10",
				tables[_i]), 500000);
	ck_assert_int_eq(db_int(db, "SELECT n_invalid FROM collector"), _i ? 4 : 0);
	db_close(db);
}
END_TEST

/* Those of a launch whose ends are of a later one of its graph: all, or the first ones. */
static const struct run good_nodes[] = {
	{ 0, 5000, 0, 1 },     { 5200, 10700, 0, 2 },  { 11000, 21500, 0, 3 },
	{ 21000, 24000, 0, 4 }, { 24000, 25000, 0, 5 },
};
static const struct run late_nodes[] = {
	{ 0, 205660627, 0, 1 },	    { 5280, 205666195, 0, 2 },	{ 11168, 205676787, 0, 3 },
	{ 21888, 205679667, 0, 4 }, { 24888, 205680667, 0, 5 },
};
static const struct run half_nodes[] = {
	{ 0, 389150, 0, 1 },	 { 1633, 391166, 0, 2 },   { 173631, 188255, 0, 3 },
	{ 188671, 191903, 0, 4 }, { 192159, 193695, 0, 5 },
};
/* A branch that runs beside the others. */
static const struct run forked_nodes[] = {
	{ 0, 5000, 0, 11 },	   { 5200, 90000, 8, 12 }, { 5300, 10000, 0, 13 },
	{ 11000, 20000, 0, 14 }, { 21000, 30000, 0, 15 }, { 91000, 95000, 0, 16 },
};
/* Now another node has that stream. */
static const struct run mixed_nodes[] = {
	{ 0, 5000, 0, 11 },	   { 5200, 10000, 0, 12 }, { 5300, 90000, 8, 13 },
	{ 11000, 20000, 0, 14 }, { 21000, 30000, 0, 15 }, { 91000, 95000, 0, 16 },
};

/* Branches that have one number: the first kernel runs beside all others. */
static const struct run beside_nodes[] = {
	{ 0, 100000, 0, 21 },	   { 1000, 9000, 0, 22 },   { 11000, 20000, 0, 23 },
	{ 21000, 30000, 0, 24 }, { 31000, 40000, 0, 25 },
};
/* Kernels that chain. */
static const struct run chained_nodes[] = {
	{ 0, 25000, 0, 1 },      { 5200, 26000, 0, 2 },   { 11000, 27000, 0, 3 },
	{ 21000, 28000, 0, 4 }, { 28000, 29000, 0, 5 },
};

START_TEST(test_overtaken_nodes)
{
	const uint32_t kind = MTC_CUPTI_CONCURRENT_KERNEL;
	struct toy toy = open_toy("overtaken_nodes.db", "kernel");
	uint64_t base_ns;
	sqlite3 *db;

	start_delivering(&toy);
	/* Of 11 and 12 it is not known whether their graph was launched again. */
	for (uint32_t i = 10; i <= 18; i++)
		if (i != 11 && i != 12)
			fake->launch(1, NULL, i);
	base_ns = fakes_realtime_ns();
	PUT(base_ns, good_nodes, kind, 10, 4);
	PUT(base_ns + 1000000, late_nodes, kind, 11, 4);
	PUT(base_ns + 2000000, half_nodes, kind, 12, 4);
	PUT(base_ns + 3000000, good_nodes, kind, 13, 4);
	PUT(base_ns + 4000000, forked_nodes, kind, 14, 6);
	PUT(base_ns + 5000000, mixed_nodes, kind, 15, 6);
	PUT(base_ns + 6000000, forked_nodes, kind, 16, 6);
	PUT(base_ns + 7000000, beside_nodes, kind, 17, 8);
	PUT(base_ns + 8000000, chained_nodes, kind, 18, 4);
	db = finish_proved(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(correlation || ':' || flags || ':' || n_untimed"
				     " || ':' || coalesce(end_ns - start_ns, '-')) FROM (SELECT * FROM"
				     " graph_launch ORDER BY correlation)"),
			 "10:0:0:25000,11:33:5:-,12:32:2:20064,13:0:0:25000,14:0:0:95000,"
			 "15:0:0:95000,16:0:0:95000,17:0:0:100000,18:0:0:29000");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(b) FROM (SELECT graph, group_concat(coalesce("
				     "branch, '-'), '') AS b FROM (SELECT * FROM graph_node ORDER BY"
				     " graph, node) GROUP BY graph)"), "00000,010000,------,-----");
	ck_assert_int_eq(db_int(db, "SELECT n_rows = 9 AND n_invalid = 2 FROM collector"), 1);
	ck_assert_int_eq(db_int(db, "SELECT max(duration_ns) FROM kernel_event"), 100000);
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
	tcase_add_loop_test(tests, test_overtaken, 0, 2);
	tcase_add_test(tests, test_overtaken_nodes);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
