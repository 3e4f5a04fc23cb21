/* SPDX-License-Identifier: MIT */
/*
 * A session with two devices, against a fake driver: their passes are in one recording, and what
 * ends a request waits for the passes of both. And lanes whose passes are parts of another, or whose
 * ids are physical.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/support/gpu_toy.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

START_TEST(test_two_devices)
{
	static const uint32_t ordinals[] = {0, 1, 2};
	struct gpu one = gpu_start("two.db", 3, 64, 4, 0);
	struct gpu two = gpu_second_device(&one);
	uint64_t requests[] = {toy_request(&one.toy, "one"), toy_request(&one.toy, "two")};
	struct moetrace_cuda_opts opts;
	struct moetrace_cuda *cuda;
	sqlite3 *db;

	MOETRACE_INIT(&opts);
	for (int i = 0; i < 3; i++) {
		opts.ordinal = &ordinals[i];
		ck_assert_int_eq(moetrace_cuda_attach(one.toy.session, &opts, &cuda),
				 i < 2 ? MOETRACE_E_LIMIT : MOETRACE_E_UNSUPPORTED);
		ck_assert_ptr_null(cuda);
	}
	for (uint32_t i = 0; i < 60; i++) {
		ck_assert_int_eq(gpu_pass(&one, requests[0], i * 4, 4, 0), MOETRACE_OK);
		ck_assert_int_eq(gpu_pass(&two, requests[1], i * 3, 3, 1), MOETRACE_OK);
	}
	for (uint32_t i = 0; i < 2; i++)
		ck_assert_int_eq(moetrace_request_end(one.toy.session, requests[i],
						      MOETRACE_REQUEST_FINISHED, i == 0 ? 240 : 180),
				 MOETRACE_OK);
	ck_assert_int_eq(moetrace_flush(one.toy.session), MOETRACE_OK);
	ck_assert_uint_eq(gpu_status(&one).delivered_passes, 60);
	ck_assert_uint_eq(gpu_status(&two).delivered_passes, 60);
	db = toy_close_and_open(&one.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 120);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE verdict = 'complete'"), 2);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(uuid, ' ') FROM device WHERE"
				     " kind = 'cuda' ORDER BY device_id"),
			 "GPU-00112233-4455-6677-8899-aabbccddeeff"
			 " GPU-00112233-4455-6677-8899-aabbccddeefe");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(text, ', ') FROM (SELECT uuid || ' ' ||"
				     " count(*) || ' ' || min(n_rows) || ' ' || max(n_rows) AS text"
				     " FROM pass JOIN device USING (device_id) GROUP BY device_id)"),
			 "GPU-00112233-4455-6677-8899-aabbccddeeff 60 4 4,"
			 " GPU-00112233-4455-6677-8899-aabbccddeefe 60 3 3");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(key || ' ' || substr(value, 1, 8), ', ')"
				     " FROM meta WHERE key LIKE 'source.cuda%%'"),
			 "source.cuda attached, source.cuda.1 attached, source.cuda.2 absent: ");
	/* The lanes' words of both, and nothing else. */
	ck_assert_uint_eq(one.fake->allocated_bytes(), 2048);
	db_close(db);
}
END_TEST

/*
 * The second device stands still. The first request's passes are on the first one alone; its end
 * waits all the same, as it was said after passes had begun on the second, and what the first
 * device computed since then waits for it, as it was begun later.
 */
START_TEST(test_order_between_devices)
{
	struct gpu one = _i == 0 ? gpu_start("order.db", 2, 16, 2, 0) :
				   gpu_start_hasty("order.db", 2, 16, 2);
	struct gpu two = gpu_second_device(&one);
	const uint64_t first = toy_request(&one.toy, "first");
	const uint64_t other = toy_request(&one.toy, "other");
	uint64_t later;
	sqlite3 *db;

	one.fake->hold_one(two.stream, true);
	ck_assert_int_eq(gpu_pass(&one, first, 0, 3, 0), MOETRACE_OK);
	ck_assert_int_eq(gpu_pass(&two, other, 0, 2, 0), MOETRACE_OK);
	ck_assert_int_eq(
		moetrace_request_end(one.toy.session, first, MOETRACE_REQUEST_FINISHED, 3),
		MOETRACE_OK);
	later = toy_request(&one.toy, "later");
	ck_assert_int_eq(gpu_pass(&one, later, 0, 1, 0), MOETRACE_OK);
	ck_assert_int_eq(
		moetrace_request_end(one.toy.session, later, MOETRACE_REQUEST_FINISHED, 1),
		MOETRACE_OK);
	WAIT_UNTIL(gpu_status(&one).delivered_passes > 0);
	suite_sleep_ms(50);
	ck_assert_uint_eq(gpu_status(&one).delivered_passes, 1);
	ck_assert_uint_eq(gpu_status(&two).delivered_passes, 0);
	if (_i == 0) {
		one.fake->hold_one(two.stream, false);
		ck_assert_int_eq(moetrace_flush(one.toy.session), MOETRACE_OK);
	} else {
		/* Stop gives up on what hangs, and no more. */
		ck_assert_int_eq(moetrace_stop(one.toy.session, NULL), MOETRACE_E_TIMEOUT);
		one.fake->hold_one(two.stream, false);
	}
	db = toy_close_and_open(&one.toy);
	ck_assert_int_eq(db_stat(db, 1, "recorded_passes"), _i == 0 ? 3 : 1);
	ck_assert_int_eq(db_stat(db, 1, "dropped_passes"), _i == 0 ? 0 : 2);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(verdict, ' ') FROM request ORDER BY"
				     " request_id"),
			 _i == 0 ? "complete unfinished complete" : "complete unfinished partial");
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 0);
	db_close(db);
}
END_TEST

/* One device fails: it is said of that one, and the other goes on. */
START_TEST(test_one_device_fails)
{
	struct gpu one = gpu_start("fails.db", 2, 16, 2, 0);
	struct gpu two = gpu_second_device(&one);
	sqlite3 *db;

	ck_assert_int_eq(gpu_pass(&two, MOETRACE_NO_REQUEST, 0, 3, 0), MOETRACE_OK);
	ck_assert_int_eq(moetrace_flush(one.toy.session), MOETRACE_OK);
	one.fake->refuse("cuMemcpyDtoHAsync", 0, 999);
	gpu_pass(&two, MOETRACE_NO_REQUEST, 0, 3, 0);
	one.fake->heal();
	for (uint32_t i = 0; i < 5; i++) {
		ck_assert_int_eq(gpu_pass(&one, MOETRACE_NO_REQUEST, 0, 3, 0), MOETRACE_OK);
		ck_assert_int_eq(gpu_pass(&two, MOETRACE_NO_REQUEST, 0, 3, 0), MOETRACE_E_IO);
	}
	db = toy_close_and_open(&one.toy);
	ck_assert_int_eq(db_stat(db, 1, "recorded_passes"), 6);
	ck_assert_int_eq(db_stat(db, 1, "dropped_passes"), 6);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM meta WHERE (key = 'source.cuda' AND"
				    " value LIKE 'attached: %%') OR (key = 'source.cuda.1' AND"
				    " value LIKE 'failed: %%')"),
			 2);
	db_close(db);
}
END_TEST

/* The driver refuses allocations while a stream is captured, and ends the capture, unless told. */
START_TEST(test_attach_in_capture)
{
	struct gpu one = gpu_start("captured.db", 2, 16, 2, 0);
	struct gpu two;
	sqlite3 *db;

	one.fake->capture(one.stream, true);
	two = gpu_second_device(&one);
	one.fake->capture(one.stream, false);
	ck_assert_int_eq(gpu_pass(&one, MOETRACE_NO_REQUEST, 0, 3, 0), MOETRACE_OK);
	ck_assert_int_eq(gpu_pass(&two, MOETRACE_NO_REQUEST, 0, 3, 0), MOETRACE_OK);
	db = toy_close_and_open(&one.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 2);
	db_close(db);
}
END_TEST

/* Two microbatches in two streams; their parent has a lane of its own, which costs nothing. */
START_TEST(test_parts)
{
	struct gpu gpu = gpu_start("parts.db", 2, 16, 2, 0);
	struct moetrace_pass_info whole, infos[2];
	struct moetrace_slice none, slices[2];
	struct moetrace_cuda_lane *lanes[2], *parent;
	const uint64_t request = toy_request(&gpu.toy, "r");
	void *streams[2], *unused;
	uint64_t n_writes;
	sqlite3 *db;

	lanes[0] = gpu.lane;
	streams[0] = gpu.stream;
	lanes[1] = gpu_lane(&gpu, &streams[1]);
	parent = gpu_lane(&gpu, &unused);
	gpu.fake->hold(true);
	n_writes = gpu.fake->n_calls("cuStreamWriteValue64");
	for (uint32_t i = 0; i < 200; i++) {
		whole = gpu_info(&gpu, &none, request, 0, 0, 0);
		whole.n_slices = 0;
		ck_assert_int_eq(moetrace_cuda_pass_begin(parent, &whole), MOETRACE_OK);
		for (uint32_t m = 0; m < 2; m++) {
			infos[m] = gpu_info(&gpu, &slices[m], request, i * 5 + m * 2, m == 0 ? 2 : 3, 0);
			infos[m].parent = moetrace_cuda_pass_number(parent);
			infos[m].microbatch = &m;
			ck_assert_int_eq(moetrace_cuda_pass_begin(lanes[m], &infos[m]), MOETRACE_OK);
		}
		for (uint32_t l = 0; l < 2; l++)
			for (uint32_t m = 0; m < 2; m++)
				gpu_route(&gpu, lanes[m], streams[m], l, m == 0 ? 2 : 3,
					  m == 0 ? 2 : 3);
		ck_assert_int_eq(moetrace_cuda_pass_end(lanes[i % 2]), MOETRACE_OK);
		ck_assert_int_eq(moetrace_cuda_pass_end(lanes[1 - i % 2]), MOETRACE_OK);
		ck_assert_int_eq(moetrace_cuda_pass_end(parent), MOETRACE_OK);
	}
	/* Of three passes two write something: a word, the word that closes it, the done word. */
	ck_assert_uint_eq(gpu.fake->n_calls("cuStreamWriteValue64") - n_writes, 200 * 2 * 3);
	gpu.fake->hold(false);
	ck_assert_int_eq(
		moetrace_request_end(gpu.toy.session, request, MOETRACE_REQUEST_FINISHED, 1000),
		MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 600);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass AS p JOIN pass AS q ON q.pass_id ="
				    " p.parent_pass_id WHERE q.n_rows = 0 AND p.microbatch ="
				    " (p.n_rows = 3)"),
			 400);
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM request"), "complete");
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 0);
	db_close(db);
}
END_TEST

/* Slots in reverse order, one more than experts: what kernels store are slots. */
START_TEST(test_physical_ids)
{
	struct gpu gpu = gpu_start("physical.db", 2, 300, 4, 0);
	struct moetrace_cuda_lane_info lane_info;
	int32_t slot_experts[2 * 301];
	struct moetrace_expert_map map;
	uint32_t epoch;
	sqlite3 *db;

	for (int32_t i = 0; i < 602; i++)
		slot_experts[i] = 299 - i % 301;
	MOETRACE_INIT(&map);
	map.n_slots = 301;
	map.n_ranks = 1;
	map.slot_experts = slot_experts;
	ck_assert_int_eq(moetrace_expert_map_set(gpu.toy.session, gpu.toy.model, &map, &epoch),
			 MOETRACE_OK);
	MOETRACE_INIT(&lane_info);
	lane_info.stream = gpu.stream;
	lane_info.model = gpu.toy.model;
	lane_info.order = MOETRACE_ORDER_SELECTION;
	lane_info.id_space = MOETRACE_ID_PHYSICAL + 1;
	ck_assert_int_eq(moetrace_cuda_lane_add(gpu.cuda, &lane_info, &gpu.lane), MOETRACE_E_INVALID);
	lane_info.id_space = MOETRACE_ID_PHYSICAL;
	ck_assert_int_eq(moetrace_cuda_lane_add(gpu.cuda, &lane_info, &gpu.lane), MOETRACE_OK);
	for (uint32_t i = 0; i < 20; i++)
		ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 5, 0), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 20);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer WHERE map_epoch = 1"), 40);
	/* The first row's slots and their experts: slot s holds 299 - s, the last none. */
	ck_assert_str_eq(db_text(db, "SELECT substr(hex(physical_ids), 1, 16) || ' ' ||"
				     " substr(hex(topk_ids), 1, 16) FROM topk LIMIT 1"),
			 "0000010002000300 "
			 "2B012A0129012801");
	db_close(db);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("cuda devices");
	TCase *tc = tcase_create("devices");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_two_devices);
	tcase_add_loop_test(tc, test_order_between_devices, 0, 2);
	tcase_add_test(tc, test_one_device_fails);
	tcase_add_test(tc, test_attach_in_capture);
	tcase_add_test(tc, test_parts);
	tcase_add_test(tc, test_physical_ids);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
