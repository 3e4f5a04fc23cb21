/* SPDX-License-Identifier: MIT */
/*
 * Flight mode at its edges and under load: requests and verify passes that a dump cuts through,
 * ranges, limits, wrong use, triggers; nothing else reaches the file.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/control/support/flight.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

enum { N_THREADS = 3, MAX_LOAD_PASSES = 2500 };

/* ---- edges ---- */

START_TEST(test_requests_at_the_edge)
{
	struct moetrace_recording_opts opts = flight_opts(FLIGHT_BYTES, 0, MOETRACE_MODE_PER_TOKEN);
	struct toy toy = flight_start("edge.db", NULL, &opts);
	uint64_t before = toy_request(&toy, "before"), open = toy_request(&toy, "open");
	uint64_t inside, number = 0;
	sqlite3 *db;

	flight_pass(&toy, ++number, before, 0, 4);
	while (number < 2000)
		flight_pass(&toy, ++number, MOETRACE_NO_REQUEST, 0, 32);
	inside = toy_request(&toy, "inside");
	flight_pass(&toy, ++number, inside, 0, 4);
	flight_pass(&toy, ++number, before, 4, 1);
	flight_pass(&toy, ++number, open, 0, 1);
	moetrace_request_end(toy.session, before, MOETRACE_REQUEST_FINISHED, 5);
	moetrace_request_end(toy.session, inside, MOETRACE_REQUEST_FINISHED, 4);
	ck_assert_uint_eq(flight_dump(&toy), 1);
	flight_pass(&toy, ++number, open, 1, 1);
	moetrace_request_end(toy.session, open, MOETRACE_REQUEST_FINISHED, 2);
	ck_assert_uint_eq(flight_dump(&toy), 2);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(recording_id || external_id || ':' || "
				     "verdict || ifnull(':' || reasons, ''), ' ') FROM (SELECT * "
				     "FROM request WHERE recording_id < 3 ORDER BY recording_id, "
				     "external_id)"),
			 "1before:partial:began_before 1inside:complete 1open:unfinished "
			 "2open:partial:began_before");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM gap"), 0);
	db_close(db);
}
END_TEST

/*
 * Where only so many seconds are kept, a slow machine may need more for what a test keeps: these
 * say whether it did in time, and are tried again with more.
 */
static bool is_within(uint64_t from_ns, uint32_t n_s)
{
	return suite_now_ns() - from_ns < n_s * UINT64_C(1000000000);
}

static bool verify_at_the_edge(uint32_t n_s)
{
	struct moetrace_recording_opts opts =
		flight_opts(FLIGHT_BYTES, n_s, MOETRACE_MODE_PER_TOKEN);
	struct toy toy = flight_start("verify.db", NULL, &opts);
	struct moetrace_slice slice = {.request = toy_request(&toy, "r"), .n_rows = 4};
	const uint8_t accepted[4] = {1, 1, 0, 0};
	uint64_t numbers[2], from_ns = 0;
	bool is_in_time;
	sqlite3 *db;

	for (int i = 0; i < 2; i++) {
		struct moetrace_pass *pass;

		from_ns = suite_now_ns();
		pass = toy_begin(&toy, MOETRACE_PHASE_VERIFY, &slice, 1);
		numbers[i] = moetrace_pass_number(pass);
		toy_finish(&toy, pass, 4);
		slice.first_position += 2;
		/* The first is let go before its acceptance comes. */
		suite_sleep_ms(i == 0 ? n_s * 1000 + 300 : 0);
	}
	for (int i = 0; i < 2; i++)
		moetrace_pass_accept(toy.session, numbers[i], 0, accepted, 4);
	ck_assert_uint_eq(flight_dump(&toy), 1);
	is_in_time = is_within(from_ns, n_s);
	db = toy_close_and_open(&toy);
	if (!is_in_time)
		return false;
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 1);
	ck_assert_str_eq(db_text(db, "SELECT hex(accepted) FROM pass_request"), "01010000");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM diagnostic WHERE severity <> 'info'"), 0);
	db_close(db);
	return true;
}

START_TEST(test_verify_at_the_edge)
{
	for (uint32_t n_s = 1; !verify_at_the_edge(n_s); n_s *= 4)
		continue;
}
END_TEST

static bool seconds(uint32_t n_s)
{
	struct moetrace_recording_opts opts = flight_opts(0, n_s, MOETRACE_MODE_PER_TOKEN);
	struct toy toy = flight_start("seconds.db", NULL, &opts);
	uint64_t from_ns;
	bool is_in_time;
	sqlite3 *db;

	ck_assert_uint_ge(toy_status(&toy).memory_bytes, 256 << 20);
	for (uint64_t i = 0; i < 10; i++)
		flight_pass(&toy, i, MOETRACE_NO_REQUEST, 0, 4);
	suite_sleep_ms(n_s * 1000 + 300);
	from_ns = suite_now_ns();
	for (uint64_t i = 10; i < 13; i++)
		flight_pass(&toy, i, MOETRACE_NO_REQUEST, 0, 4);
	flight_dump(&toy);
	is_in_time = is_within(from_ns, n_s);
	db = toy_close_and_open(&toy);
	if (!is_in_time)
		return false;
	ck_assert_str_eq(db_text(db, "SELECT group_concat(runtime_pass) FROM pass"), "10,11,12");
	flight_check_bounds(db, 1, 13);
	db_close(db);
	return true;
}

START_TEST(test_seconds)
{
	for (uint32_t n_s = 1; !seconds(n_s); n_s *= 4)
		continue;
}
END_TEST

/* Ranges of the time that is kept are written with its passes, older ones are let go with theirs. */
static bool ranges(uint32_t n_s)
{
	const struct moetrace_recording_opts opts =
		flight_opts(FLIGHT_BYTES, n_s, MOETRACE_MODE_PER_TOKEN);
	struct toy toy = flight_start("ranges.db", NULL, &opts);
	struct moetrace_range range;
	uint32_t old, step, recording_id;
	uint64_t from_ns;
	bool is_in_time;
	sqlite3 *db;

	ck_assert_int_eq(moetrace_range_name_add(toy.session, "old", &old), MOETRACE_OK);
	ck_assert_int_eq(moetrace_range_name_add(toy.session, "step", &step), MOETRACE_OK);
	moetrace_range_push(toy.session, old, &range);
	flight_pass(&toy, 1, MOETRACE_NO_REQUEST, 0, 1);
	moetrace_range_pop(toy.session, &range);
	suite_sleep_ms(n_s * 1000 + 50);
	from_ns = suite_now_ns();
	/* More than the ring of ranges holds, while nothing is written. */
	for (uint64_t i = 0; i < 5000; i++) {
		if (i % 1000 == 0) {
			flight_pass(&toy, 2 + i / 1000, MOETRACE_NO_REQUEST, 0, 1);
			ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
		}
		moetrace_range_push(toy.session, step, &range);
		moetrace_range_pop(toy.session, &range);
	}
	recording_id = flight_dump(&toy);
	is_in_time = is_within(from_ns, n_s);
	toy_close(&toy);
	if (!is_in_time)
		return false;
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_stat(db, recording_id, "dropped_ranges"), 0);
	ck_assert_int_eq(db_stat(db, recording_id, "recorded_ranges"), 5000);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM range WHERE recording_id = %u",
				recording_id), 5000);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM range JOIN string ON string_id = name_id"
				    " WHERE value = 'old'"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 5);
	db_close(db);
	return true;
}

START_TEST(test_ranges)
{
	for (uint32_t n_s = 1; !ranges(n_s); n_s *= 4)
		continue;
}
END_TEST

/* A runtime that stands still: ranges are kept without a pass, and before the oldest (by pass). */
START_TEST(test_ranges_without_passes)
{
	const struct moetrace_recording_opts opts =
		flight_opts(FLIGHT_BYTES, 0, MOETRACE_MODE_PER_TOKEN);
	struct toy toy = flight_start("still.db", NULL, &opts);
	struct moetrace_range range;
	uint32_t step, recording_id;
	sqlite3 *db;

	ck_assert_int_eq(moetrace_range_name_add(toy.session, "step", &step), MOETRACE_OK);
	for (int i = 0; i < 100; i++) {
		moetrace_range_push(toy.session, step, &range);
		moetrace_range_pop(toy.session, &range);
	}
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	if (_i)
		flight_pass(&toy, 1, MOETRACE_NO_REQUEST, 0, 1);
	recording_id = flight_dump(&toy);
	/* The next one is stopped: its ranges are let go, whether or not they were taken. */
	for (int i = 0; i < 100; i++) {
		moetrace_range_push(toy.session, step, &range);
		moetrace_range_pop(toy.session, &range);
	}
	if (_i)
		flight_pass(&toy, 2, MOETRACE_NO_REQUEST, 0, 1);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_stat(db, recording_id, "recorded_ranges"), 100);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM range WHERE recording_id = %u",
				recording_id), 100);
	ck_assert_int_eq(db_int(db, "SELECT start_ns = (SELECT min(end_ns) FROM range) FROM "
				    "recording WHERE recording_id = %u", recording_id), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), _i);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM range"), 100);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM diagnostic WHERE message LIKE "
				    "'%% is what flight mode kept: nothing, %%'"), _i);
	db_close(db);
}
END_TEST

START_TEST(test_stop_lets_go)
{
	struct moetrace_recording_opts opts = flight_opts(FLIGHT_BYTES, 0, (uint32_t)_i);
	struct toy toy = flight_start("stop.db", NULL, &opts);
	uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;

	flight_pass(&toy, 1, request, 0, 4);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_uint_eq(toy_status(&toy).flight_bytes, 0);
	/* What was said of requests holds on. */
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	flight_pass(&toy, 2, request, 4, 1);
	moetrace_request_end(toy.session, request, MOETRACE_REQUEST_FINISHED, 5);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_OK);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(end_reason) FROM recording"),
			 "stopped,stopped,closed");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(recording_id || ':' || runtime_pass) "
				     "FROM pass"),
			 "2:2");
	ck_assert_str_eq(db_text(db, "SELECT verdict || ':' || reasons FROM request"),
			 "partial:began_before");
	ck_assert_int_eq(db_stat(db, 1, "flight_let_go_passes"), 1);
	db_close(db);
}
END_TEST

START_TEST(test_wrong_use)
{
	struct moetrace_recording_opts opts = flight_opts(1000, 0, MOETRACE_MODE_PER_TOKEN);
	struct toy toy = toy_open("wrong.db", NULL, FLIGHT_LAYERS, FLIGHT_EXPERTS, FLIGHT_K);

	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_E_INVALID);
	opts.flight_bytes = UINT64_MAX;
	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_flight_trigger(toy.session, NULL), MOETRACE_E_STATE);
	ck_assert_int_eq(moetrace_flight_trigger(NULL, NULL), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_flight_trigger(toy.session, NULL), MOETRACE_E_STATE);
	toy_close(&toy);
}
END_TEST

/* A pass that hangs does not keep the others from the file. */
START_TEST(test_hanging_pass)
{
	struct moetrace_recording_opts opts = flight_opts(FLIGHT_BYTES, 0, MOETRACE_MODE_PER_TOKEN);
	struct moetrace_session_opts session_opts = toy_opts();
	const struct moetrace_slice slice = {.n_rows = 3};
	struct moetrace_pass *pass;
	struct toy toy;
	sqlite3 *db;

	session_opts.stop_timeout_ms = 50;
	toy = flight_start("hangs.db", &session_opts, &opts);
	pass = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	flight_pass(&toy, 1, MOETRACE_NO_REQUEST, 0, 4);
	flight_dump(&toy);
	toy_finish(&toy, pass, 3);
	flight_pass(&toy, 2, MOETRACE_NO_REQUEST, 0, 4);
	flight_dump(&toy);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(recording_id || ':' || verdict, ' ') FROM "
				     "(SELECT * FROM pass ORDER BY recording_id, verdict)"),
			 "1:complete 1:partial 2:complete");
	ck_assert_str_eq(db_text(db, "SELECT reason FROM gap"), "stop_timeout");
	db_close(db);
}
END_TEST

/* The end of the recording comes before the writer has noticed the trigger. */
START_TEST(test_trigger_before_the_end)
{
	const bool is_closed = _i == 1;
	struct moetrace_recording_opts opts = flight_opts(FLIGHT_BYTES, 0, MOETRACE_MODE_PER_TOKEN);
	struct toy toy = flight_start("end.db", NULL, &opts);
	sqlite3 *db;

	flight_pass(&toy, 1, MOETRACE_NO_REQUEST, 0, 4);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	ck_assert_int_eq(moetrace_flight_trigger(toy.session, "at the end"), MOETRACE_OK);
	if (!is_closed)
		ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT end_reason FROM recording WHERE recording_id = 1"),
			 "at the end");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 1);
	db_close(db);
}
END_TEST

START_TEST(test_file_limit)
{
	struct moetrace_recording_opts opts = flight_opts(8 << 20, 0, MOETRACE_MODE_PER_TOKEN);
	struct moetrace_session_opts session_opts = toy_opts();
	struct moetrace_dump_result result;
	struct toy toy;
	sqlite3 *db;

	session_opts.file_limit_bytes = 1 << 20;
	toy = flight_start("limit.db", &session_opts, &opts);
	for (uint64_t i = 0; i < 2000; i++) {
		flight_pass(&toy, i, MOETRACE_NO_REQUEST, 0, 64);
		if (i % 64 == 63)
			moetrace_flush(toy.session);
	}
	ck_assert_uint_eq(toy_status(&toy).is_recording, 1);
	MOETRACE_INIT(&result);
	ck_assert_int_eq(moetrace_dump(toy.session, &result), MOETRACE_E_IO);
	ck_assert_uint_eq(toy_status(&toy).is_recording, 0);
	ck_assert_int_eq(moetrace_rotate(toy.session, NULL), MOETRACE_OK);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT end_reason FROM recording"), "file_limit");
	ck_assert_int_eq(db_int(db, "SELECT (SELECT count(*) FROM pass) + "
				    "(SELECT sum(n_lost) FROM gap)"),
			 2000 - db_stat(db, 1, "flight_let_go_passes"));
	db_close(db);
}
END_TEST

/* ---- under load ---- */

struct load {
	struct toy toy;
	atomic_bool stop;
	atomic_uint n_recorded;
	atomic_uint n_other;
};

static void *load_main(void *argument)
{
	struct load *load = argument;

	for (uint32_t n = 0; !load->stop; n++) {
		uint64_t request;

		suite_sleep_ms(1);
		/* The rings hold all of them, where the writer waits for a processor for long. */
		if (n >= MAX_LOAD_PASSES)
			continue;
		REQUIRE(moetrace_request_begin(load->toy.session, NULL, &request) == MOETRACE_OK,
			"request");
		if (toy_pass(&load->toy, MOETRACE_PHASE_PREFILL, request, 0, 16))
			load->n_recorded++;
		else
			load->n_other++;
		moetrace_request_end(load->toy.session, request, MOETRACE_REQUEST_FINISHED, 16);
	}
	return NULL;
}

static void write_somehow(struct load *load, uint32_t i)
{
	switch (i % 4) {
	case 0:
		suite_sleep_ms(30);
		break;
	case 1:
		ck_assert_int_eq(moetrace_flight_trigger(load->toy.session, "slow step"), MOETRACE_OK);
		break;
	case 2:
		ck_assert_int_eq(moetrace_rotate(load->toy.session, NULL), MOETRACE_OK);
		break;
	default:
		(void)moetrace_flight_trigger(load->toy.session, NULL);
		break;
	}
}

START_TEST(test_under_load)
{
	struct moetrace_recording_opts opts = flight_opts(FLIGHT_BYTES, 0, MOETRACE_MODE_PER_TOKEN);
	struct moetrace_session_opts session_opts = toy_opts();
	struct load load = {.stop = false};
	char path[1024];
	pthread_t threads[N_THREADS];
	int64_t n_found = 0, n_triggered = 0;
	uint32_t i;

	/* The writer may have to wait for a processor that these threads have. */
	session_opts.ring_bytes = UINT64_C(16) << 20;
	load.toy = flight_start("load.db", &session_opts, &opts);
	for (i = 0; i < N_THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, load_main, &load), 0);
	for (i = 0; i < 12; i++) {
		struct moetrace_dump_result result;

		suite_sleep_ms(i * 7 % 40);
		write_somehow(&load, i);
		MOETRACE_INIT(&result);
		ck_assert_int_eq(moetrace_dump(load.toy.session, &result), MOETRACE_OK);
	}
	load.stop = true;
	for (i = 0; i < N_THREADS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	/* No pass begins between two recordings. */
	ck_assert_uint_eq(load.n_other, 0);
	toy_close(&load.toy);
	snprintf(path, sizeof(path), "%s", load.toy.path);
	for (i = 1; i <= 4; i++) {
		sqlite3 *db = db_open(path);

		agree_check(db);
		n_found += db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'");
		n_found += db_int(db, "SELECT sum(value) FROM stats WHERE name = "
				      "'flight_let_go_passes'");
		n_triggered += db_int(db, "SELECT count(*) FROM recording WHERE end_reason IN "
					  "('slow step', 'trigger')");
		ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE recording_id IN "
					    "(SELECT recording_id FROM stats WHERE name = "
					    "'flight_let_go_passes' AND value = 0) AND "
					    "reasons LIKE '%%missing%%'"),
				 0);
		/* Passes know their requests, whichever recording they came to. */
		ck_assert_int_eq(db_int(db, "SELECT count(*) FROM diagnostic WHERE severity <> "
					    "'info'"),
				 0);
		ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_request WHERE request_id "
					    "IS NULL"),
				 0);
		db_close(db);
		snprintf(path, sizeof(path), "%.*s.%u.db", (int)strlen(load.toy.path) - 3,
			 load.toy.path, i);
	}
	ck_assert_int_eq(n_found, load.n_recorded);
	ck_assert_int_le(n_triggered, 6);
}
END_TEST

/* The trigger alone, of a thread in the middle of a pass. */
START_TEST(test_trigger)
{
	struct moetrace_recording_opts opts = flight_opts(FLIGHT_BYTES, 0, MOETRACE_MODE_PER_TOKEN);
	struct toy toy = flight_start("trigger.db", NULL, &opts);
	const struct moetrace_slice slice = {.n_rows = 3};
	struct moetrace_pass *pass;
	char reason[300];
	sqlite3 *db;

	/* Its 255th byte is the first of two of a letter. */
	memset(reason, 'r', sizeof(reason));
	memcpy(reason + 254, "\xc3\xa4", 2);
	reason[299] = '\0';
	flight_pass(&toy, 1, MOETRACE_NO_REQUEST, 0, 4);
	pass = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	ck_assert_int_eq(moetrace_flight_trigger(toy.session, reason), MOETRACE_OK);
	toy_finish(&toy, pass, 3);
	WAIT_UNTIL(toy_status(&toy).recording_id >= 2);
	flight_pass(&toy, 2, MOETRACE_NO_REQUEST, 0, 4);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 2);
	ck_assert_int_eq(db_int(db, "SELECT length(end_reason) FROM recording WHERE "
				    "recording_id = 1"),
			 254);
	ck_assert_str_eq(db_text(db, "SELECT end_reason FROM recording WHERE recording_id = 2"),
			 "closed");
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("flight");
	TCase *edges = tcase_create("edges");
	TCase *load = tcase_create("load");

	tcase_add_test(edges, test_requests_at_the_edge);
	tcase_add_test(edges, test_verify_at_the_edge);
	tcase_add_test(edges, test_seconds);
	tcase_add_test(edges, test_ranges);
	tcase_add_loop_test(edges, test_ranges_without_passes, 0, 2);
	tcase_add_loop_test(edges, test_stop_lets_go, MOETRACE_MODE_PER_TOKEN,
			    MOETRACE_MODE_STAT + 1);
	tcase_add_test(edges, test_wrong_use);
	tcase_add_test(edges, test_hanging_pass);
	tcase_add_loop_test(edges, test_trigger_before_the_end, 0, 2);
	tcase_add_test(edges, test_file_limit);
	tcase_add_test(load, test_under_load);
	tcase_add_test(load, test_trigger);
	suite_add_tcase(suite, edges);
	suite_add_tcase(suite, load);
	return suite_run(suite);
}
