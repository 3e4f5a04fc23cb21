/* SPDX-License-Identifier: MIT */
/*
 * What a router's kernels say beside the ids, or do not say, against a fake driver: layers and rows that
 * were not stored, scores that are no numbers, margins, and when a layer was there.
 */
#include <string.h>

#include "tests/cuda/support/gpu_toy.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

/* A layer that no kernel stored is unwritten, also where an earlier pass had the same place. */
START_TEST(test_unwritten)
{
	struct gpu gpu = gpu_start("unwritten.db", 2, 64, 4, 0);
	struct moetrace_slice slice;
	const struct moetrace_pass_info info =
		gpu_info(&gpu, &slice, MOETRACE_NO_REQUEST, 0, 16, 0);
	sqlite3 *db;

	/* These fill the ring once, so that every place was written before. */
	for (uint32_t lap = 0; lap < 40; lap++) {
		struct moetrace_slice big;
		const struct moetrace_pass_info all =
			gpu_info(&gpu, &big, MOETRACE_NO_REQUEST, 0, 3600, 0);

		ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &all), MOETRACE_OK);
		gpu_route(&gpu, gpu.lane, gpu.stream, 0, 3600, 3600);
		gpu_route(&gpu, gpu.lane, gpu.stream, 1, 3600, 3600);
		moetrace_cuda_pass_end(gpu.lane);
		ck_assert_int_eq(moetrace_flush(gpu.toy.session), MOETRACE_OK);
	}
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_OK);
		if (i > 0)
			gpu_route(&gpu, gpu.lane, gpu.stream, 1, 16, 16);
		/* A graph of another size. */
		if (i == 2)
			gpu_route(&gpu, gpu.lane, gpu.stream, 0, 32, 32);
		moetrace_cuda_pass_end(gpu.lane);
	}
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 40);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE reasons = 'unwritten'"), 3);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer WHERE state = 1"), 4);
	db_close(db);
}
END_TEST

/* A kernel that was launched for fewer rows makes the others absent; one that stored fewer than it
   was launched for makes the layer unwritten. */
START_TEST(test_some_rows)
{
	struct gpu gpu = gpu_start("rows.db", 2, 64, 4, 0);
	struct moetrace_slice slice;
	const struct moetrace_pass_info info =
		gpu_info(&gpu, &slice, MOETRACE_NO_REQUEST, 0, 16, 0);
	sqlite3 *db;

	for (uint32_t i = 0; i < 2; i++) {
		ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_OK);
		gpu_route(&gpu, gpu.lane, gpu.stream, 0, 16, 16);
		gpu_route(&gpu, gpu.lane, gpu.stream, 1, i == 0 ? 5 : 16, 16);
		ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
	}
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(
		db_int(db, "SELECT n_rows FROM pass_layer WHERE pass_id = 1 AND layer_id = 2"), 5);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 2);
	db_close(db);
}
END_TEST

/* Rows whose scores were no numbers are stored, and counted. */
START_TEST(test_nan)
{
	struct gpu gpu = gpu_start("nan.db", 2, 64, 4, 0);
	sqlite3 *db;

	gpu.flags = 1;
	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 3, 0), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 1);
	ck_assert_int_eq(db_int(db, "SELECT n_times FROM diagnostic WHERE source = 'cuda'"), 2 * 3);
	db_close(db);
}
END_TEST

/* Of two readings between which nothing else had the processor. */
static int64_t timer_offset_ns(const struct gpu *gpu)
{
	uint64_t before_ns, timer_ns;

	do {
		before_ns = suite_now_ns();
		timer_ns = gpu->fake->timer_ns();
	} while (suite_now_ns() - before_ns > 100000);
	return (int64_t)(timer_ns - before_ns);
}

/*
 * The GPU's timer against the session's clock: at the attach, and about once a second from what the
 * passes carry. The fake's timer is CLOCK_MONOTONIC with an offset, which must come out.
 */
START_TEST(test_timer)
{
	struct gpu gpu = gpu_start("timer.db", 2, 64, 4, 0);
	const int64_t offset_ns = timer_offset_ns(&gpu);
	sqlite3 *db;

	for (int i = 0; i < 55; i++) {
		ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 3, 0), MOETRACE_OK);
		suite_sleep_ms(20);
	}
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) BETWEEN 2 AND 2 + (max(session_ns) - min(session_ns)) /"
				    " 1000000000 FROM device_clock WHERE clock = 'gpu_timer' AND"
				    " device_id = 2 AND uncertainty_ns >= 0"), 1);
	ck_assert_int_eq(db_int(db, "SELECT max(abs(d.clock_ns - d.session_ns + c.session_ns -"
				    " c.monotonic_ns - %lld) - d.uncertainty_ns) < 1000000 FROM"
				    " device_clock AS d, clock_snapshot AS c", (long long)offset_ns), 1);
	ck_assert_int_eq(db_int(db, "SELECT max(session_ns) - min(session_ns) >= 1000000000 FROM"
				    " device_clock"), 1);
	db_close(db);
}
END_TEST

/*
 * Layers that arrive more than 2^31 ns after they were stamped, with a pass that takes long, have their
 * times: unless the machine stood still, so that the pass took almost as long as 32 bits last.
 */
START_TEST(test_timer_of_long_pass)
{
	struct gpu gpu = gpu_start("long.db", 2, 64, 4, 0);
	const int64_t offset_ns = timer_offset_ns(&gpu);
	struct moetrace_slice slice;
	const struct moetrace_pass_info info =
		gpu_info(&gpu, &slice, MOETRACE_NO_REQUEST, 0, 3, 0);
	sqlite3 *db;

	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 3, 0), MOETRACE_OK);
	WAIT_UNTIL(gpu_status(&gpu).delivered_passes == 1);
	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_OK);
	gpu_route(&gpu, gpu.lane, gpu.stream, 0, 3, 3);
	gpu_route(&gpu, gpu.lane, gpu.stream, 1, 3, 3);
	gpu.fake->stream_wait(gpu.stream);
	suite_sleep_ms(2300);
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer JOIN pass USING (pass_id) WHERE"
				    " pass_id = 2 AND (selected_ns BETWEEN begin_ns AND"
				    " end_ns - 2200000000 OR end_ns - begin_ns > 3700000000)"), 2);
	ck_assert_int_eq(db_int(db, "SELECT max(abs(d.clock_ns - d.session_ns + c.session_ns -"
				    " c.monotonic_ns - %lld) - d.uncertainty_ns) < 1000000 FROM"
				    " device_clock AS d, clock_snapshot AS c", (long long)offset_ns), 1);
	db_close(db);
}
END_TEST

static float margin_of(uint32_t layer, uint32_t row)
{
	return row == 2 ? 0.0f : (float)(layer + 1) / (float)(row + 1);
}

/* 0: kernels store margins; 1: they know none, though there is room. */
START_TEST(test_margins)
{
	struct gpu gpu = gpu_start("margins.db", 2, 64, 6, 0);
	const uint64_t request = toy_request(&gpu.toy, "r");
	sqlite3 *db;

	gpu.has_margins = true;
	gpu.lane = gpu_lane(&gpu, &gpu.stream);
	gpu.margin = _i == 0 ? margin_of : NULL;
	gpu.flags = _i == 0 ? MOETRACE_ROW_TIE | 4 : 0;
	ck_assert_int_eq(gpu_pass(&gpu, request, 0, 5, 3), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 1);
	if (_i == 0) {
		sqlite3_stmt *stmt = db_query(db, "SELECT margins, hex(row_flags), topk_row"
						  " FROM pass_layer JOIN topk USING (topk_id)"
						  " ORDER BY layer_id");

		for (uint32_t layer = 0; layer < 2; layer++) {
			float got[5];

			ck_assert(db_step(stmt));
			memcpy(got,
			       (const float *)sqlite3_column_blob(stmt, 0) +
				       sqlite3_column_int(stmt, 2),
			       sizeof(got));
			for (uint32_t row = 0; row < 5; row++)
				ck_assert(got[row] == margin_of(layer, row));
			ck_assert_str_eq((const char *)sqlite3_column_text(stmt, 1),
					 "02020202020202020202");
		}
		sqlite3_finalize(stmt);
	} else {
		ck_assert_int_eq(db_int(db, "SELECT count(*) FROM topk WHERE margins IS NOT NULL"
					    " OR row_flags IS NOT NULL"),
				 0);
	}
	db_close(db);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("cuda rows");
	TCase *tc = tcase_create("rows");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_unwritten);
	tcase_add_test(tc, test_some_rows);
	tcase_add_test(tc, test_nan);
	tcase_add_test(tc, test_timer);
	tcase_add_test(tc, test_timer_of_long_pass);
	tcase_add_loop_test(tc, test_margins, 0, 2);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
