/* SPDX-License-Identifier: MIT */
/*
 * Passes on a lane, against a fake driver: what reaches the file is what host memory would have
 * given, whatever the order in which host and device get there.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "libtrace/cuda/capture.h"
#include "tests/cuda/support/caller.h"
#include "tests/cuda/support/gpu_toy.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

/* The same passes from host memory: rows of one request, one after the other. */
static char *from_host(uint32_t n_layers, uint32_t n_experts, uint32_t top_k, uint32_t n_passes,
		       uint32_t n_rows)
{
	struct toy toy = toy_start("host.db", NULL, n_layers, n_experts, top_k);
	const uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;
	char *stored;

	for (uint32_t i = 0; i < n_passes; i++) {
		WAIT_UNTIL(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, i * n_rows, n_rows));
	}
	db = toy_close_and_open(&toy);
	stored = gpu_stored(db);
	db_close(db);
	return stored;
}

static void expect_same(sqlite3 *db, char *want)
{
	char *got = gpu_stored(db);

	ck_assert_str_eq(got, want);
	free(got);
	free(want);
}

static const struct {
	uint32_t n_layers, n_experts, top_k, n_rows, padding_rows;
} shapes[] = {
	{3, 16, 2, 5, 0},   {3, 254, 8, 64, 0}, {2, 255, 8, 3, 1},     {2, 256, 7, 1, 63},
	{1, 300, 9, 33, 0}, {4, 128, 1, 7, 2},	{2, 1000, 32, 130, 0}, {1, 64, 6, 1000, 24},
};

/* Widths of ids, odd numbers of entries, rows that are rounded up, padding. */
START_TEST(test_same_as_host)
{
	struct gpu gpu =
		gpu_start("gpu.db", shapes[_i].n_layers, shapes[_i].n_experts, shapes[_i].top_k, 0);
	const uint64_t request = toy_request(&gpu.toy, "r");
	const uint32_t n_rows = shapes[_i].n_rows;
	sqlite3 *db;

	for (uint32_t i = 0; i < 20; i++)
		ck_assert_int_eq(
			gpu_pass(&gpu, request, i * n_rows, n_rows, shapes[_i].padding_rows),
			MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_end(gpu.toy.session, request, MOETRACE_REQUEST_FINISHED,
					      20 * n_rows),
			 MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM request"), "complete");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 20);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer WHERE selected_ns IS NULL"),
			 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer WHERE"
				    " padding_active_experts IS NULL"),
			 0);
	expect_same(db, from_host(shapes[_i].n_layers, shapes[_i].n_experts, shapes[_i].top_k, 20,
				  n_rows));
	db_close(db);
}
END_TEST

/* The request ends while its passes are still on the device: it is complete all the same. */
START_TEST(test_request_ends_before_its_passes)
{
	struct gpu gpu = gpu_start("order.db", 2, 16, 2, 0);
	sqlite3 *db;

	gpu.fake->hold(true);
	for (uint32_t i = 0; i < 5; i++) {
		const uint64_t request = toy_request(&gpu.toy, "r");

		gpu_pass(&gpu, request, 0, 3, 0);
		gpu_pass(&gpu, request, 3, 1, 0);
		ck_assert_int_eq(moetrace_request_end(gpu.toy.session, request,
						      MOETRACE_REQUEST_FINISHED, 4),
				 MOETRACE_OK);
	}
	suite_sleep_ms(100);
	ck_assert_uint_eq(gpu_status(&gpu).delivered_passes, 0);
	gpu.fake->hold(false);
	ck_assert_int_eq(moetrace_flush(gpu.toy.session), MOETRACE_OK);
	ck_assert_uint_eq(toy_status(&gpu.toy).recorded_passes, 10);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE verdict = 'complete'"), 5);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 0);
	db_close(db);
}
END_TEST

/* A verify pass is told which of its rows were accepted by the number that it had while open. */
START_TEST(test_number_and_acceptance)
{
	static const uint8_t accepted[] = {1, 1, 0};
	struct gpu gpu = gpu_start("accept.db", 2, 64, 4, 0);
	const uint64_t request = toy_request(&gpu.toy, "r");
	struct moetrace_slice slice;
	struct moetrace_pass_info info = gpu_info(&gpu, &slice, request, 3, 3, 0);
	uint64_t number;
	sqlite3 *db;

	ck_assert_uint_eq(moetrace_cuda_pass_number(NULL), 0);
	ck_assert_uint_eq(moetrace_cuda_pass_number(gpu.lane), 0);
	ck_assert_int_eq(gpu_pass(&gpu, request, 0, 3, 0), MOETRACE_OK);
	info.phase = slice.phase = MOETRACE_PHASE_VERIFY;
	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_OK);
	number = moetrace_cuda_pass_number(gpu.lane);
	ck_assert_uint_ne(number, 0);
	for (uint32_t layer = 0; layer < 2; layer++)
		gpu_route(&gpu, gpu.lane, gpu.stream, layer, 3, 3);
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
	ck_assert_uint_eq(moetrace_cuda_pass_number(gpu.lane), 0);
	ck_assert_int_eq(moetrace_pass_accept(gpu.toy.session, number, 0, accepted, 3),
			 MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_end(gpu.toy.session, request, MOETRACE_REQUEST_FINISHED, 5),
			 MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_str_eq(db_text(db, "SELECT hex(accepted) FROM pass_request WHERE phase = 'verify'"),
			 "010100");
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM request"), "complete");
	db_close(db);
}
END_TEST

/* The device is late by more than the ring holds: many laps, in order, nothing lost. */
START_TEST(test_many_laps)
{
	struct gpu gpu = gpu_start("laps.db", 3, 128, 8, 1 << 20);
	const uint64_t request = toy_request(&gpu.toy, "r");
	const uint32_t n_passes = 400, n_rows = 32;
	sqlite3 *db;

	for (uint32_t i = 0; i < n_passes; i++) {
		WAIT_UNTIL(gpu_status(&gpu).begun_passes - gpu_status(&gpu).delivered_passes <= 50);
		ck_assert_int_eq(gpu_pass(&gpu, request, i * n_rows, n_rows, 0), MOETRACE_OK);
	}
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_stat(db, 1, "recorded_passes"), n_passes);
	ck_assert_int_eq(db_stat(db, 1, "dropped_passes"), 0);
	expect_same(db, from_host(3, 128, 8, n_passes, n_rows));
	db_close(db);
}
END_TEST

/* Without room a pass is dropped as a whole, and the next one with room is recorded. */
START_TEST(test_full_ring)
{
	struct gpu gpu = gpu_start("full.db", 2, 128, 8, 1 << 20);
	uint32_t n_begun = 0;
	sqlite3 *db;

	gpu.fake->hold(true);
	for (uint32_t i = 0; i < 400; i++)
		n_begun += gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 64, 0) == MOETRACE_OK;
	ck_assert_uint_gt(n_begun, 100);
	ck_assert_uint_lt(n_begun, 400);
	ck_assert_uint_eq(gpu_status(&gpu).begun_passes, n_begun);
	ck_assert_uint_eq(gpu_status(&gpu).refused_passes, 400 - n_begun);
	gpu.fake->hold(false);
	ck_assert_int_eq(moetrace_flush(gpu.toy.session), MOETRACE_OK);
	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 64, 0), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_stat(db, 1, "recorded_passes"), n_begun + 1);
	ck_assert_int_eq(db_stat(db, 1, "dropped_passes"), 400 - n_begun);
	ck_assert_int_eq(
		db_int(db, "SELECT sum(n_lost) FROM gap WHERE reason = 'device_ring_full'"),
		400 - n_begun);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"),
			 n_begun + 1);
	db_close(db);
}
END_TEST

static void expect_exactly(sqlite3 *db, const uint8_t *is_begun, uint32_t n_passes)
{
	sqlite3_stmt *stmt = db_query(db, "SELECT runtime_pass FROM pass WHERE verdict = 'complete'"
					  " ORDER BY runtime_pass");
	uint32_t i = 0;

	while (db_step(stmt)) {
		while (i < n_passes && !is_begun[i])
			i++;
		REQUIRE(sqlite3_column_int64(stmt, 0) == i, "pass %lld for %u",
			(long long)sqlite3_column_int64(stmt, 0), i);
		i++;
	}
	while (i < n_passes && !is_begun[i])
		i++;
	ck_assert_uint_eq(i, n_passes);
	sqlite3_finalize(stmt);
}

/*
 * Passes back to back into a ring that is too small (0), or while another thread starts and stops
 * (1): each is in the file exactly if its begin said so, and each that found no room is counted.
 */
START_TEST(test_each_pass)
{
	enum { N_PASSES = 2000 };
	struct gpu gpu = gpu_start("each.db", 2, 128, 8, 1 << 20);
	struct switcher switcher = {.session = gpu.toy.session, .on_ms = 3, .off_ms = 2};
	static uint8_t is_begun[N_PASSES];
	uint32_t n_refused = 0;
	sqlite3 *db;

	if (_i == 1)
		switcher_start(&switcher);
	for (uint64_t i = 0; i < N_PASSES; i++) {
		const uint32_t n_rows = _i == 0 ? 64 : 2;
		struct moetrace_slice slice;
		struct moetrace_pass_info info =
			gpu_info(&gpu, &slice, MOETRACE_NO_REQUEST, 0, n_rows, 0);

		/* A device that stands still for a while. */
		if (_i == 0 && i % 500 == 0)
			gpu.fake->hold(true);
		if (_i == 0 && i % 500 == 250)
			gpu.fake->hold(false);
		info.runtime_pass = &i;
		n_refused += moetrace_cuda_pass_begin(gpu.lane, &info) == MOETRACE_E_LIMIT;
		is_begun[i] = moetrace_cuda_pass_number(gpu.lane) != 0;
		for (uint32_t l = 0; l < 2; l++)
			gpu_route(&gpu, gpu.lane, gpu.stream, l, n_rows, n_rows);
		moetrace_cuda_pass_end(gpu.lane);
		/* Else all of it would be over before the first stop. */
		if (_i == 1 && i % 50 == 0)
			suite_sleep_ms(2);
		if (i == N_PASSES / 2 && _i == 1)
			WAIT_UNTIL(atomic_load(&switcher.has_stopped));
		if (!is_begun[i])
			atomic_store(&switcher.was_idle, 1);
	}
	if (_i == 1)
		ck_assert_int_eq(switcher_end(&switcher), MOETRACE_OK);
	ck_assert_uint_eq(gpu_status(&gpu).refused_passes, n_refused);
	if (_i == 0)
		ck_assert_uint_gt(n_refused, 0);
	else
		ck_assert_ptr_nonnull(memchr(is_begun, 0, N_PASSES));
	db = toy_close_and_open(&gpu.toy);
	expect_exactly(db, is_begun, N_PASSES);
	ck_assert_int_eq(
		db_int(db, "SELECT ifnull(sum(n_lost), 0) FROM gap WHERE reason = 'device_ring_full'"),
		n_refused);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM gap WHERE reason <> 'device_ring_full'"), 0);
	db_close(db);
}
END_TEST

static void *pass_once(void *argument)
{
	gpu_pass(argument, MOETRACE_NO_REQUEST, 0, 4, 0);
	return NULL;
}

/* A begin that saw a recording, and a stop before it counted its pass: nothing is cut off. */
START_TEST(test_stop_within_begin)
{
	struct gpu gpu = gpu_start("within.db", 2, 64, 4, 0);
	struct caller stop;
	pthread_t thread;
	sqlite3 *db;

	gpu.fake->stall("cuStreamIsCapturing");
	ck_assert_int_eq(pthread_create(&thread, NULL, pass_once, &gpu), 0);
	gpu.fake->wait_for_stalled();
	caller_start(&stop, gpu.toy.session, caller_stop);
	WAIT_UNTIL(!toy_status(&gpu.toy).is_recording);
	/* Time for a stop that does not look for callers to look for passes. */
	suite_sleep_ms(5);
	gpu.fake->stall("");
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(caller_status(&stop), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM gap"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 0);
	db_close(db);
}
END_TEST

/* A prefill that needs more than a quarter of the ring goes in groups of layers. */
START_TEST(test_groups)
{
	const uint32_t n_rows = 1150;
	struct gpu gpu = gpu_start("groups.db", 12, 128, 8, 1 << 20);
	const uint64_t request = toy_request(&gpu.toy, "r");
	const uint64_t n_writes = gpu.fake->n_calls("cuStreamWriteValue64");
	sqlite3 *db;

	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_int_eq(gpu_pass(&gpu, request, i * n_rows, n_rows, 0), MOETRACE_OK);
		ck_assert_int_eq(moetrace_flush(gpu.toy.session), MOETRACE_OK);
	}
	/* 81 KiB a layer, 3 layers a group: 4 groups, each with a word and a done word, and the
	   word that closes the pass. */
	ck_assert_uint_eq(gpu.fake->n_calls("cuStreamWriteValue64") - n_writes, 3 * (4 * 2 + 1));
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 3);
	expect_same(db, from_host(12, 128, 8, 3, n_rows));
	db_close(db);
}
END_TEST

/* The same when half of all stamps have gone to other lanes since the lane's last pass. */
START_TEST(test_after_long)
{
	const uint32_t n_rows = _i ? 1150 : 50;
	struct gpu gpu = gpu_start("long.db", 12, 128, 8, _i ? 1 << 20 : 0);
	const uint64_t request = toy_request(&gpu.toy, "r");
	sqlite3 *db;

	for (uint32_t i = 0; i < 3; i++) {
		if (i == 1)
			atomic_fetch_add(&gpu.cuda->n_stamps, MT_CUDA_STAMP_MASK / 2 + 10);
		gpu.fake->hold_one(gpu.stream, i > 0);
		ck_assert_int_eq(gpu_pass(&gpu, request, i * n_rows, n_rows, 0), MOETRACE_OK);
		/* Time for a side stream that does not wait. */
		suite_sleep_ms(20);
		gpu.fake->hold_one(gpu.stream, false);
		ck_assert_int_eq(moetrace_flush(gpu.toy.session), MOETRACE_OK);
	}
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 3);
	expect_same(db, from_host(12, 128, 8, 3, n_rows));
	db_close(db);
}
END_TEST

/* Groups that are never asked for, and groups that find no room, are layers that were dropped. */
START_TEST(test_groups_dropped)
{
	const uint32_t n_rows = 1150;
	struct gpu gpu = gpu_start("dropped.db", 16, 128, 8, 1 << 20);
	struct moetrace_slice slice;
	struct moetrace_pass_info info = gpu_info(&gpu, &slice, MOETRACE_NO_REQUEST, 0, n_rows, 0);
	sqlite3 *db;

	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_OK);
	for (uint32_t i = 0; i < 16; i++)
		gpu_route(&gpu, gpu.lane, gpu.stream, i, n_rows, n_rows);
	moetrace_cuda_pass_end(gpu.lane);
	ck_assert_int_eq(moetrace_flush(gpu.toy.session), MOETRACE_OK);
	gpu.fake->hold(true);
	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, n_rows, 0), MOETRACE_OK);
	gpu.fake->hold(false);
	ck_assert_int_eq(moetrace_flush(gpu.toy.session), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT n_dropped FROM pass WHERE pass_id = 1"), 13);
	ck_assert_int_ge(db_int(db, "SELECT n_dropped FROM pass WHERE pass_id = 2"), 4);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer WHERE state = 2"
				    " AND pass_id = 2"),
			 db_int(db, "SELECT n_dropped FROM pass WHERE pass_id = 2"));
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE reasons = 'lost'"), 2);
	db_close(db);
}
END_TEST

/* However many groups there are: none that is never asked for stores where the first one does. */
START_TEST(test_many_groups_dropped)
{
	const uint32_t n_rows = 1150, n_layers = 30;
	struct gpu gpu = gpu_start("many.db", n_layers, 128, 8, 1 << 20);
	struct moetrace_slice slice;
	struct moetrace_pass_info info = gpu_info(&gpu, &slice, MOETRACE_NO_REQUEST, 0, n_rows, 0);
	sqlite3 *db;

	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_OK);
	for (uint32_t i = 0; i < n_layers; i++)
		gpu_route(&gpu, gpu.lane, gpu.stream, i, n_rows, n_rows);
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT n_dropped FROM pass"), n_layers - 3);
	ck_assert_str_eq(db_text(db, "SELECT reasons FROM pass"), "lost");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer WHERE state = 0"), 3);
	db_close(db);
}
END_TEST

/* Several graph launches with eager work between them make one pass; a second lane runs beside. */
START_TEST(test_pieces_and_two_lanes)
{
	struct gpu gpu = gpu_start("lanes.db", 4, 64, 4, 0);
	const uint64_t one = toy_request(&gpu.toy, "one");
	const uint64_t two = toy_request(&gpu.toy, "two");
	void *stream;
	struct moetrace_cuda_lane *lane = gpu_lane(&gpu, &stream);
	struct moetrace_slice slices[2];
	sqlite3 *db;

	gpu.fake->delay(200);
	for (uint32_t i = 0; i < 10; i++) {
		const struct moetrace_pass_info info = gpu_info(&gpu, &slices[0], one, i * 4, 4, 0);
		const struct moetrace_pass_info other = gpu_info(&gpu, &slices[1], two, i, 1, 7);

		ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_OK);
		ck_assert_int_eq(moetrace_cuda_pass_begin(lane, &other), MOETRACE_OK);
		for (uint32_t l = 0; l < 4; l++) {
			gpu_route(&gpu, gpu.lane, gpu.stream, l, 4, 4);
			if (l == 1)
				gpu.fake->stream_wait(gpu.stream);
			gpu_route(&gpu, lane, stream, l, 8, 8);
		}
		ck_assert_int_eq(moetrace_cuda_pass_end(lane), MOETRACE_OK);
		ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
	}
	ck_assert_int_eq(moetrace_request_end(gpu.toy.session, one, MOETRACE_REQUEST_FINISHED, 40),
			 MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_end(gpu.toy.session, two, MOETRACE_REQUEST_FINISHED, 10),
			 MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 20);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE verdict = 'complete'"), 2);
	ck_assert_int_eq(db_int(db, "SELECT count(DISTINCT active_experts) FROM pass_layer"), 2);
	db_close(db);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("cuda lane");
	TCase *tc = tcase_create("lane");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, test_same_as_host, 0, (int)(sizeof(shapes) / sizeof(shapes[0])));
	tcase_add_test(tc, test_request_ends_before_its_passes);
	tcase_add_test(tc, test_number_and_acceptance);
	tcase_add_test(tc, test_many_laps);
	tcase_add_test(tc, test_full_ring);
	tcase_add_loop_test(tc, test_each_pass, 0, 2);
	tcase_add_test(tc, test_stop_within_begin);
	tcase_add_test(tc, test_groups);
	tcase_add_loop_test(tc, test_after_long, 0, 2);
	tcase_add_test(tc, test_groups_dropped);
	tcase_add_test(tc, test_many_groups_dropped);
	tcase_add_test(tc, test_pieces_and_two_lanes);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
