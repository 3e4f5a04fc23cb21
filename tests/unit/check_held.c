/* SPDX-License-Identifier: MIT */
/*
 * Threads that are held in the middle of a call while their recording ends: what they then tell is
 * counted once, where it can still be read, and nobody waits for them longer than was asked. What
 * cannot be held from outside is done by hand, in two halves.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtrace/collect_internal.h"
#include "libtrace/hot.h"
#include "libtrace/late.h"
#include "libtrace/range_tool.h"
#include "tests/fault/support/io_fault.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

static struct toy toy;

static void start(const char *name)
{
	struct moetrace_session_opts opts = toy_opts();

	opts.stop_timeout_ms = 20;
	toy = toy_start(name, &opts, 2, 64, 4);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, MOETRACE_NO_REQUEST, 0, 1));
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
}

/* A thread begins a pass of recording 1, and is held when it has a ring and knows the recording. */
static struct mt_ring *hold(void)
{
	struct mt_ring *ring = mt_ring_claim(&toy.session->pool);

	ck_assert(ring);
	return ring;
}

static struct moetrace_pass *pass_of(const struct mt_ring *ring)
{
	return &toy.session->passes[mt_ring_index(&toy.session->pool, ring)];
}

/* The same, and it has said so. */
static struct mt_ring *hold_latched(void)
{
	struct mt_ring *ring = hold();

	pass_of(ring)->session = toy.session;
	pass_of(ring)->ring = ring;
	atomic_store(&pass_of(ring)->recording_id, 1);
	return ring;
}

static void let_go(struct mt_ring *ring)
{
	atomic_store(&pass_of(ring)->recording_id, 0);
	mt_ring_release(&toy.session->pool, ring);
}

/* It goes on, and tells its pass. */
static void go_on(struct mt_ring *ring)
{
	const struct moetrace_slice slice = {.n_rows = 1, .phase = MOETRACE_PHASE_DECODE};
	struct mt_pass_start begin = {.recording_id = 1};
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;

	MOETRACE_INIT(&info);
	info.model = toy.model;
	info.phase = MOETRACE_PHASE_DECODE;
	info.n_rows = 1;
	info.slices = &slice;
	info.n_slices = 1;
	/* All rings are empty: it gets the first one again. */
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	let_go(ring);
	ck_assert_int_eq(mt_pass_check(toy.session, &info, &begin), 0);
	begin.begin_ns = mt_session_ns(toy.session, suite_now_ns());
	ck_assert_int_eq(mt_pass_begin_late(toy.session, &info, &begin, &pass), MOETRACE_OK);
	ck_assert_ptr_eq(pass->ring, ring);
	toy_finish(&toy, pass, 1);
}

/* The gaps of a file, by recording; it agrees with itself. */
static void expect_gaps(const char *path, const char *gaps)
{
	sqlite3 *db;

	agree_prove(path);
	db = db_open(path);
	agree_check(db);
	ck_assert_str_eq(db_text(db,
				 "SELECT ifnull(group_concat(lost), '') FROM (SELECT recording_id"
				 " || ' ' || stream || ' ' || reason || ' ' || sum(n_lost) AS lost"
				 " FROM gap GROUP BY recording_id, stream, reason ORDER BY 1)"),
			 gaps);
	db_close(db);
}

static const char *next_file(void)
{
	static char path[1024];

	snprintf(path, sizeof(path), "%.*s.1.db", (int)strlen(toy.path) - 3, toy.path);
	return path;
}

static int64_t number(const char *path, const char *sql)
{
	sqlite3 *db = db_open(path);
	int64_t value = db_int(db, "%s", sql);

	db_close(db);
	return value;
}

/* ---- a pass that its recording does not know of ---- */

START_TEST(test_late_while_idle)
{
	struct mt_ring *ring;

	start("idle.db");
	ring = hold();
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_TIMEOUT);
	ck_assert_int_eq(number(toy.path, "SELECT count(*) FROM gap"), 0);
	go_on(ring);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	/* It need not wait for the end of the session. */
	ck_assert_int_eq(number(toy.path, "SELECT n_lost FROM gap"), 1);
	toy_close(&toy);
	expect_gaps(toy.path, "1 pass stop_timeout 1");
}
END_TEST

START_TEST(test_late_as_the_session_is_closed)
{
	struct mt_ring *ring;

	start("close.db");
	ring = hold();
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_TIMEOUT);
	go_on(ring);
	toy_close(&toy);
	expect_gaps(toy.path, "1 pass stop_timeout 1");
}
END_TEST

/* In flight mode (1), too, whose recordings may be all in memory. */
START_TEST(test_late_beside_the_next)
{
	struct moetrace_recording_opts opts;
	struct mt_ring *ring;

	start("beside.db");
	ring = hold();
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_TIMEOUT);
	MOETRACE_INIT(&opts);
	opts.flight_bytes = _i ? UINT64_C(1) << 20 : 0;
	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_OK);
	go_on(ring);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, MOETRACE_NO_REQUEST, 0, 1));
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	ck_assert_uint_eq(toy_status(&toy).dropped_passes, 0);
	toy_close(&toy);
	expect_gaps(toy.path, "1 pass stop_timeout 1");
	ck_assert_int_eq(number(toy.path, "SELECT count(*) FROM pass WHERE recording_id = 2"), !_i);
}
END_TEST

/* The file is closed: the recording that runs has it. */
START_TEST(test_late_in_the_next_file)
{
	struct mt_ring *ring;

	start("next.db");
	ring = hold();
	ck_assert_int_eq(moetrace_rotate(toy.session, NULL), MOETRACE_E_TIMEOUT);
	go_on(ring);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, MOETRACE_NO_REQUEST, 0, 1));
	toy_close(&toy);
	expect_gaps(toy.path, "");
	expect_gaps(next_file(), "2 pass stop_timeout 1");
	ck_assert_int_eq(number(next_file(), "SELECT count(*) FROM pass"), 1);
}
END_TEST

/* And none runs. */
START_TEST(test_late_with_nothing_left)
{
	struct mt_ring *ring;

	start("nothing.db");
	ring = hold();
	ck_assert_int_eq(moetrace_rotate(toy.session, NULL), MOETRACE_E_TIMEOUT);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_TIMEOUT);
	go_on(ring);
	toy_close(&toy);
	expect_gaps(toy.path, "");
	expect_gaps(next_file(), "");
	ck_assert_int_eq(number(next_file(), "SELECT count(*) FROM diagnostic WHERE message LIKE"
					     " 'recording 1 lacks 1 more of stream ''pass''%'"),
			 1);
}
END_TEST

/* ---- a pass that its recording has counted ---- */

START_TEST(test_told_once)
{
	struct mt_ring *ring;

	start("told.db");
	ring = hold_latched();
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_TIMEOUT);
	ck_assert_int_eq(number(toy.path, "SELECT n_lost FROM gap"), 1);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	go_on(ring);
	/* The ring's next one is one of its own. */
	ring = hold();
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_TIMEOUT);
	go_on(ring);
	toy_close(&toy);
	expect_gaps(toy.path, "1 pass stop_timeout 2");
}
END_TEST

/* It does not fit its ring: whoever comes first counts it. */
START_TEST(test_refused_once)
{
	struct mt_ring *told, *refused;

	start("refused.db");
	told = hold_latched();
	refused = hold_latched();
	ck_assert_int_eq(mt_pass_refuse(pass_of(refused)), 1);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_TIMEOUT);
	ck_assert_int_eq(mt_pass_refuse(pass_of(told)), 0);
	let_go(told);
	let_go(refused);
	toy_close(&toy);
	expect_gaps(toy.path, "1 pass stop_timeout 1");
}
END_TEST

static _Atomic bool is_in_tool;
static _Atomic bool is_let_go;

static uint64_t tool_begin(void *name, uint64_t payload)
{
	(void)name;
	return payload;
}

static void tool_end(uint64_t range)
{
	(void)range;
	atomic_store(&is_in_tool, true);
	while (!atomic_load(&is_let_go))
		suite_sleep_ms(1);
}

static void tool_mark(void *name, uint64_t payload)
{
	(void)name;
	(void)payload;
}

static void *compute(void *argument)
{
	(void)argument;
	REQUIRE(toy_pass(&toy, MOETRACE_PHASE_DECODE, MOETRACE_NO_REQUEST, 0, 1), "a pass");
	return NULL;
}

/* A thread is held in the end of its pass, with all of it told: nothing is lost. */
START_TEST(test_held_behind_its_end)
{
	const struct mt_range_tool_ops tool = {
		.begin = tool_begin, .end = tool_end, .mark = tool_mark};
	pthread_t thread;

	start("behind.db");
	toy.session->tool.ops = &tool;
	ck_assert_int_eq(pthread_create(&thread, NULL, compute, NULL), 0);
	WAIT_UNTIL(atomic_load(&is_in_tool));
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_TIMEOUT);
	atomic_store(&is_let_go, true);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	toy.session->tool.ops = NULL;
	toy_close(&toy);
	expect_gaps(toy.path, "");
	ck_assert_int_eq(number(toy.path, "SELECT count(*) FROM pass WHERE verdict = 'complete'"),
			 2);
}
END_TEST

/* The disk is full: what is lost is what was begun. */
START_TEST(test_held_as_the_disk_fills)
{
	struct mt_ring *ring;
	int64_t n_begun = 2;

	io_fault_install();
	start("disk.db");
	ring = hold_latched();
	io_fault_fail(ENOSPC, 0);
	/* Slowly: the first that is not recorded is to find that nothing is recorded any more. */
	for (; toy_pass(&toy, MOETRACE_PHASE_DECODE, MOETRACE_NO_REQUEST, 0, 1); n_begun++)
		suite_sleep_ms(1);
	WAIT_UNTIL(toy_status(&toy).is_failed);
	io_fault_fail(0, 0);
	WAIT_UNTIL(moetrace_start(toy.session, NULL) == MOETRACE_OK);
	go_on(ring);
	toy_close(&toy);
	ck_assert_int_eq(
		number(toy.path, "SELECT (SELECT sum(n_lost) FROM gap) + count(*) FROM pass"),
		n_begun);
	agree_prove(toy.path);
}
END_TEST

/* ---- losses that are counted late ---- */

/* While nothing is recorded, and while the next recording runs; of a pass, and of a layer. */
START_TEST(test_lost_after_the_end)
{
	const enum mt_loss_kind kind = _i & 1 ? MT_LOSS_LAYER_RING_FULL : MT_LOSS_PASS_NO_RING;

	start("lost.db");
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	if (_i & 2)
		ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	mt_count_loss(toy.session, 1, kind, 64, mt_session_ns(toy.session, suite_now_ns()));
	if (!(_i & 2))
		ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	ck_assert_uint_eq(toy_status(&toy).dropped_passes + toy_status(&toy).dropped_layers, 0);
	toy_close(&toy);
	expect_gaps(toy.path, _i & 1 ? "1 layer ring_full 1" : "1 pass no_ring 1");
	ck_assert_int_eq(number(toy.path,
				"SELECT sum(value) FROM stats WHERE recording_id = 1 AND"
				" name IN ('dropped_passes', 'dropped_layers', 'dropped_bytes')"),
			 65);
}
END_TEST

/* Eight recordings later the counters are those of others. */
START_TEST(test_lost_long_ago)
{
	struct mt_ring *ring;

	start("ago.db");
	ring = hold();
	for (int i = 0; i < 9; i++) {
		(void)moetrace_stop(toy.session, NULL);
		ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	}
	go_on(ring);
	toy_close(&toy);
	ck_assert_int_eq(number(toy.path, "SELECT sum(n_lost) FROM gap WHERE recording_id < 10"),
			 1);
	agree_prove(toy.path);
}
END_TEST

static void end_range(uint64_t time_ns)
{
	struct mt_ring *ring = atomic_load(&toy.session->ranges);
	struct mt_reservation got =
		mt_ring_reserve(ring, MT_RECORD_RANGE, sizeof(struct mt_record_range));
	struct mt_record_range *range = (struct mt_record_range *)got.record;

	range->record.time_ns = time_ns;
	range->start_ns = time_ns;
	range->thread = 1;
	range->name = 1;
	range->reserved = 0;
	mt_ring_commit(ring, got);
}

/* A range of the recording that its thread tells after the end, and one from between two. */
START_TEST(test_late_range)
{
	uint64_t in_ns, after_ns;
	uint32_t name;

	start("range.db");
	ck_assert_int_eq(moetrace_range_name_add(toy.session, "step", &name), MOETRACE_OK);
	ck_assert_uint_eq(name, 1);
	in_ns = mt_session_ns(toy.session, suite_now_ns());
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	after_ns = mt_session_ns(toy.session, suite_now_ns());
	if (_i)
		ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	end_range(in_ns);
	end_range(after_ns);
	toy_close(&toy);
	expect_gaps(toy.path, "1 range stop_timeout 1");
}
END_TEST

/* ---- readings ---- */

/* What names no device, or no operation, makes no row, and its source has lost it. */
START_TEST(test_readings_of_nothing)
{
	struct moetrace_session_opts opts = toy_opts();
	struct mt_power_reading power = {.device = 60, .domain = "gpu"};
	struct mt_kernel_reading kernel = {.device = MT_DEVICE_HOST, .name = 0};
	const struct mt_collector_out *out;
	struct mt_collect *collect;
	sqlite3 *db;

	opts.collectors = "null";
	toy = toy_start("readings.db", &opts, 2, 64, 4);
	collect = atomic_load(&toy.session->collect);
	out = &collect->sources[0].out;
	power.time_ns = out->now_ns(out->context);
	out->power(out->context, &power);
	kernel.time_ns = out->now_ns(out->context);
	kernel.end_ns = (int64_t)kernel.time_ns;
	out->kernel(out->context, &kernel);
	kernel.is_graph = 1;
	kernel.graph = 7;
	out->kernel(out->context, &kernel);
	toy_close(&toy);
	agree_prove(toy.path);
	db = db_open(toy.path);
	ck_assert_int_eq(db_int(db, "SELECT n_dropped FROM collector WHERE n_rows = 0"), 3);
	db_close(db);
}
END_TEST

/* ---- nobody waits for them ---- */

/* A record that is not complete is waited for once, and not with each message behind it. */
START_TEST(test_waited_for_once)
{
	enum { N = 40 };
	struct mt_ring *ring;
	struct mt_reservation record;
	uint64_t begin_ns;

	start("once.db");
	ring = hold_latched();
	record = mt_ring_reserve_alone(ring, MT_RECORD_PAD, MT_LINE_BYTES, MT_END_BYTES);
	ck_assert(record.record);
	record.record->time_ns = 0;
	begin_ns = suite_now_ns();
	for (int i = 0; i < N; i++)
		toy_request_end(&toy, toy_request(&toy, "r"), 0);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	ck_assert_uint_lt(suite_now_ns() - begin_ns, N * UINT64_C(1000000000));
	mt_ring_commit(ring, record);
	let_go(ring);
	toy_close(&toy);
	expect_gaps(toy.path, "");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("held");
	TCase *tc = tcase_create("held");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_late_while_idle);
	tcase_add_test(tc, test_late_as_the_session_is_closed);
	tcase_add_loop_test(tc, test_late_beside_the_next, 0, 2);
	tcase_add_test(tc, test_late_in_the_next_file);
	tcase_add_test(tc, test_late_with_nothing_left);
	tcase_add_test(tc, test_told_once);
	tcase_add_test(tc, test_refused_once);
	tcase_add_test(tc, test_held_behind_its_end);
	tcase_add_test(tc, test_held_as_the_disk_fills);
	tcase_add_loop_test(tc, test_lost_after_the_end, 0, 4);
	tcase_add_test(tc, test_lost_long_ago);
	tcase_add_loop_test(tc, test_late_range, 0, 2);
	tcase_add_test(tc, test_readings_of_nothing);
	tcase_add_test(tc, test_waited_for_once);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
