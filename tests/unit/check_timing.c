/* SPDX-License-Identifier: MIT */
/*
 * What a runtime times itself: operations of a pass. The expected rows are the times that were
 * handed over, seen from the session's clock.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

enum { N_LAYERS = 2, N_EXPERTS = 64, TOP_K = 2 };

static uint32_t kernel_name(const struct toy *toy, const char *name, uint32_t role)
{
	uint32_t number = 0;

	ck_assert_int_eq(moetrace_kernel_name_add(toy->session, name, role, 0, &number),
			 MOETRACE_OK);
	ck_assert_uint_ne(number, 0);
	return number;
}

static struct moetrace_pass *begin(const struct toy *toy)
{
	const struct moetrace_slice slice = { .n_rows = 1 };
	struct moetrace_pass *pass = toy_begin(toy, MOETRACE_PHASE_DUMMY, &slice, 1);

	ck_assert_ptr_nonnull(pass);
	return pass;
}

START_TEST(test_names)
{
	struct toy toy = toy_start("names.db", NULL, N_LAYERS, N_EXPERTS, TOP_K);
	uint32_t first = kernel_name(&toy, "gemm", MOETRACE_ROLE_EXPERTS);
	uint32_t other = kernel_name(&toy, "gemm", MOETRACE_ROLE_SHARED);
	uint32_t moving = 7, none = 7;
	char name[16];
	sqlite3 *db;

	ck_assert_uint_ne(first, other);
	ck_assert_uint_eq(kernel_name(&toy, "gemm", MOETRACE_ROLE_EXPERTS), first);
	ck_assert_int_eq(moetrace_kernel_name_add(toy.session, "send", MOETRACE_ROLE_DISPATCH,
						  MOETRACE_KERNEL_MOVES_DATA, &moving),
			 MOETRACE_OK);
	ck_assert_int_eq(moetrace_kernel_name_add(toy.session, "", 0, 0, &none),
			 MOETRACE_E_INVALID);
	ck_assert_uint_eq(none, 0);
	ck_assert_int_eq(moetrace_kernel_name_add(toy.session, "x", MOETRACE_ROLE_COPY + 1, 0,
						  &none),
			 MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_kernel_name_add(toy.session, "x", 0, 2, &none),
			 MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_kernel_name_add(toy.session, NULL, 0, 0, &none),
			 MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_kernel_name_add(NULL, "x", 0, 0, &none), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_kernel_name_add(toy.session, "x", 0, 0, NULL),
			 MOETRACE_E_INVALID);
	/* More than a block of them. */
	for (int i = 0; i < 1500; i++) {
		snprintf(name, sizeof(name), "k%d", i);
		ck_assert_uint_eq(kernel_name(&toy, name, MOETRACE_ROLE_OTHER), moving + 1u + i);
	}
	toy_close(&toy);
	db = db_open(toy.path);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM string"), 1503);
	ck_assert_str_eq(db_text(db, "SELECT value || role || moves_data FROM string"
				     " WHERE string_id = %u", first), "gemmexperts0");
	ck_assert_str_eq(db_text(db, "SELECT value || role || moves_data FROM string"
				     " WHERE string_id = %u", moving), "senddispatch1");
	ck_assert_int_eq(db_int(db, "SELECT string_id FROM string WHERE value = 'k1499'"),
			 moving + 1500);
	db_close(db);
}
END_TEST

START_TEST(test_kernels)
{
	struct toy toy = toy_start("kernels.db", NULL, N_LAYERS, N_EXPERTS, TOP_K);
	uint32_t name = kernel_name(&toy, "experts", MOETRACE_ROLE_EXPERTS);
	uint64_t before_ns = moetrace_clock_ns();
	struct moetrace_pass *pass = begin(&toy);
	uint64_t now_ns = moetrace_clock_ns();
	struct moetrace_kernel_time times[] = {
		{ now_ns, now_ns, name, MOETRACE_NO_LAYER },
		{ now_ns, moetrace_clock_ns() + 1, name, 1 },
		{ before_ns, now_ns, name, 0 }, /* began before its pass */
	};
	sqlite3 *db;

	suite_sleep_ms(1);
	moetrace_pass_kernels(pass, times, 1);
	moetrace_pass_kernels(pass, times + 1, 2);
	toy_finish(&toy, pass, 1);
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_stat(db, 1, "recorded_kernels"), 3);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel WHERE pass_id = 1 AND known_by = 0"
				    " AND recording_id = 1 AND device_id = 1 AND name_id = %u",
				name), 3);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(coalesce(layer_id, '-') || ':' || flags)"
				     " FROM kernel"), "-:0,2:0,1:4");
	ck_assert_int_eq(db_int(db, "SELECT end_ns - start_ns FROM kernel WHERE layer_id = 2"),
			 (int64_t)(times[1].end_ns - times[1].start_ns));
	ck_assert_int_eq(db_int(db, "SELECT k.start_ns + monotonic_ns - session_ns FROM kernel AS k,"
				    " clock_snapshot WHERE layer_id = 2 LIMIT 1"),
			 (int64_t)now_ns);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(layer_id || source || ifnull(experts_ns, ''))"
				     " FROM layer_time WHERE layer_id = 1"), "1selection");
	ck_assert_int_eq(db_int(db, "SELECT experts_ns FROM layer_time WHERE layer_id = 2"
				    " AND source = 'kernel' AND busy_ns = duration_ns"),
			 (int64_t)(times[1].end_ns - times[1].start_ns));
	db_close(db);
}
END_TEST

START_TEST(test_kernels_misuse)
{
	struct toy toy = toy_start("misuse.db", NULL, N_LAYERS, N_EXPERTS, TOP_K);
	uint32_t name = kernel_name(&toy, "experts", MOETRACE_ROLE_EXPERTS);
	struct moetrace_pass *pass = begin(&toy);
	uint64_t now_ns = moetrace_clock_ns();
	const struct moetrace_kernel_time wrong[] = {
		{ now_ns, now_ns, 0, 0 },	    { now_ns, now_ns, name + 1, 0 },
		{ now_ns, now_ns, name, N_LAYERS }, { now_ns, now_ns - 1, name, 0 },
		{ 0, now_ns, name, 0 },		    { now_ns, UINT64_MAX, name, 0 },
	};
	const uint32_t n_wrong = sizeof(wrong) / sizeof(wrong[0]);
	sqlite3 *db;

	for (uint32_t i = 0; i < n_wrong; i++)
		moetrace_pass_kernels(pass, &wrong[i], 1);
	moetrace_pass_kernels(pass, NULL, 1);
	moetrace_pass_kernels(pass, NULL, 0);
	moetrace_pass_kernels(NULL, wrong, 1);
	toy_finish(&toy, pass, 1);
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), n_wrong + 1);
	ck_assert_int_eq(db_stat(db, 1, "recorded_kernels"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel"), 0);
	db_close(db);
}
END_TEST

/* Times that do not fit are counted one by one, and the pass stays what it is. */
START_TEST(test_kernels_loss)
{
	struct moetrace_session_opts opts = toy_opts();
	struct moetrace_kernel_time *times = calloc(8000, sizeof(*times));
	struct moetrace_pass *pass;
	struct toy toy;
	uint64_t now_ns;
	uint32_t name;
	sqlite3 *db;

	opts.ring_bytes = 65536;
	toy = toy_start("loss.db", &opts, N_LAYERS, N_EXPERTS, TOP_K);
	name = kernel_name(&toy, "experts", MOETRACE_ROLE_EXPERTS);
	pass = begin(&toy);
	now_ns = moetrace_clock_ns();
	for (int i = 0; i < 8000; i++)
		times[i] = (struct moetrace_kernel_time){ now_ns, now_ns, name, 0 };
	moetrace_pass_kernels(pass, times, 8000);
	moetrace_pass_kernels(pass, times, 1);
	toy_finish(&toy, pass, 1);
	toy_close(&toy);
	free(times);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_stat(db, 1, "recorded_kernels"), 1);
	ck_assert_int_eq(db_stat(db, 1, "dropped_kernels"), 8000);
	ck_assert_int_eq(db_stat(db, 1, "dropped_passes"), 0);
	ck_assert_str_eq(db_text(db, "SELECT stream || ':' || reason || ':' || n_lost FROM gap"),
			 "kernel:ring_full:8000");
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM pass"), "complete");
	db_close(db);
}
END_TEST

/* Recordings of other modes, and a file that a rotation begins. */
START_TEST(test_kernels_modes)
{
	struct toy toy = toy_open("modes.db", NULL, N_LAYERS, N_EXPERTS, TOP_K);
	uint32_t name = kernel_name(&toy, "experts", MOETRACE_ROLE_EXPERTS);
	struct moetrace_recording_opts opts;
	char paths[3][1024];
	sqlite3 *db;

	for (uint32_t mode = 0; mode <= MOETRACE_MODE_STAT; mode++) {
		struct moetrace_kernel_time time = { .name = name };
		struct moetrace_pass *pass;

		snprintf(paths[mode], sizeof(paths[mode]), "%s", suite_path("next.db"));
		MOETRACE_INIT(&opts);
		opts.mode = mode;
		opts.flight_bytes = mode == MOETRACE_MODE_PER_PASS ? 1 << 20 : 0;
		ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_OK);
		pass = begin(&toy);
		time.start_ns = time.end_ns = moetrace_clock_ns();
		moetrace_pass_kernels(pass, &time, 1);
		toy_finish(&toy, pass, 1);
		/* Flight mode writes before it rotates. */
		ck_assert_int_eq(moetrace_rotate(toy.session, paths[mode]), MOETRACE_OK);
		ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	}
	toy_close(&toy);
	db = db_open(toy.path);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel_event WHERE name = 'experts'"), 1);
	db_close(db);
	db = db_open(paths[0]);
	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel_event JOIN recording"
				    " USING (recording_id) WHERE mode = 'per_pass'"), 1);
	db_close(db);
	db = db_open(paths[1]);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM string"), 1);
	db_close(db);
}
END_TEST

struct worker {
	const struct toy *toy;
	struct moetrace_pass *pass;
	uint32_t name;
};

static void *work(void *argument)
{
	const struct worker *worker = argument;

	for (int i = 0; i < 200; i++) {
		uint64_t now_ns = moetrace_clock_ns();
		const struct moetrace_kernel_time time = { now_ns, now_ns, worker->name, 1 };

		(void)kernel_name(worker->toy, "shared", MOETRACE_ROLE_SHARED);
		moetrace_pass_kernels(worker->pass, &time, 1);
	}
	return NULL;
}

/* Several threads of one pass. */
START_TEST(test_kernels_threads)
{
	struct toy toy = toy_start("threads.db", NULL, N_LAYERS, N_EXPERTS, TOP_K);
	struct worker worker = { &toy, begin(&toy), kernel_name(&toy, "a", 0) };
	pthread_t threads[3];
	sqlite3 *db;

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &worker), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	toy_finish(&toy, worker.pass, 1);
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_stat(db, 1, "recorded_kernels"), 600);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM string"), 2);
	db_close(db);
}
END_TEST

/* ---- ranges ---- */

static void *pop(void *argument)
{
	const struct worker *worker = argument;
	struct moetrace_range range;

	for (int i = 0; i < 300; i++) {
		moetrace_range_push(worker->toy->session, worker->name, &range);
		moetrace_range_pop(worker->toy->session, &range);
		suite_sleep_ms(i % 50 == 0);
	}
	return NULL;
}

START_TEST(test_ranges)
{
	struct toy toy = toy_open("ranges.db", NULL, N_LAYERS, N_EXPERTS, TOP_K);
	struct moetrace_range outer, inner, before;
	struct worker worker = { &toy, NULL, 0 };
	uint32_t kernel = kernel_name(&toy, "experts", MOETRACE_ROLE_EXPERTS);
	uint32_t step, load, none = 7;
	pthread_t threads[3];
	sqlite3 *db;

	ck_assert_int_eq(moetrace_range_name_add(toy.session, "step", &step), MOETRACE_OK);
	ck_assert_int_eq(moetrace_range_name_add(toy.session, "load", &load), MOETRACE_OK);
	ck_assert_int_eq(moetrace_range_name_add(toy.session, "", &none), MOETRACE_E_INVALID);
	ck_assert_uint_eq(none, 0);
	/* Nothing is recorded yet. */
	moetrace_range_push(toy.session, step, &before);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	moetrace_range_pop(toy.session, &before);
	moetrace_range_push(toy.session, step, &outer);
	moetrace_range_push(toy.session, load, &inner);
	suite_sleep_ms(2);
	moetrace_range_pop(toy.session, &inner);
	moetrace_range_pop(toy.session, &inner); /* once is enough */
	moetrace_range_pop(toy.session, &outer);
	moetrace_range_push(toy.session, kernel, &inner);
	moetrace_range_pop(toy.session, &inner);
	moetrace_range_push(toy.session, 99, &inner);
	moetrace_range_push(NULL, step, &inner);
	moetrace_range_pop(toy.session, &inner);
	/* Never pushed: no name, that of a kernel, a beginning in the future. */
	for (int i = 0; i < 3; i++) {
		memset(&inner, 0xff, sizeof(inner));
		inner.name = i == 0 ? UINT32_MAX : i == 1 ? kernel : step;
		inner.start_ns = i == 2 ? UINT64_MAX : 0;
		moetrace_range_pop(toy.session, &inner);
		moetrace_range_pop(toy.session, &inner); /* counted once */
	}
	worker.name = step;
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, pop, &worker), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 5);
	ck_assert_int_eq(db_stat(db, 1, "recorded_ranges") + db_stat(db, 1, "dropped_ranges"), 902);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM range"), db_stat(db, 1, "recorded_ranges"));
	ck_assert_str_eq(db_text(db, "SELECT group_concat(value) FROM (SELECT value FROM range JOIN"
				     " string ON string_id = name_id ORDER BY range_id LIMIT 2)"),
			 "load,step");
	ck_assert_int_eq(db_int(db, "SELECT a.start_ns <= b.start_ns AND b.end_ns <= a.end_ns AND"
				    " b.end_ns - b.start_ns >= 2000000 FROM range AS a, range AS b"
				    " WHERE a.range_id = 2 AND b.range_id = 1"), 1);
	ck_assert_int_eq(db_int(db, "SELECT min(thread) = 1 AND max(thread) <= 4 FROM range"), 1);
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("timing");
	TCase *tests = tcase_create("kernels");

	tcase_add_test(tests, test_names);
	tcase_add_test(tests, test_kernels);
	tcase_add_test(tests, test_kernels_misuse);
	tcase_add_test(tests, test_kernels_loss);
	tcase_add_test(tests, test_kernels_modes);
	tcase_add_test(tests, test_kernels_threads);
	tcase_add_test(tests, test_ranges);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
