/* SPDX-License-Identifier: MIT */
/*
 * Sessions and recordings: what a file holds about where it comes from, how recordings start
 * and end, and what a second connection sees while one is written.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

static bool exists(const char *path, const char *suffix)
{
	char name[1024];

	snprintf(name, sizeof(name), "%s%s", path, suffix);
	return access(name, F_OK) == 0;
}

/* ---- the file ---- */

START_TEST(test_file_header)
{
	struct toy toy = toy_open("header.db", NULL, 1, 64, 2);
	sqlite3 *db;

	toy_close(&toy);
	ck_assert(exists(toy.path, ""));
	ck_assert(!exists(toy.path, "-wal"));
	ck_assert(!exists(toy.path, "-shm"));
	ck_assert(!exists(toy.path, "-journal"));
	db = db_open(toy.path);
	ck_assert_int_eq(db_int(db, "PRAGMA application_id"), 1299137908);
	ck_assert_int_eq(db_int(db, "PRAGMA user_version"), 1001);
	ck_assert_str_eq(db_text(db, "PRAGMA journal_mode"), "delete");
	ck_assert_str_eq(db_text(db, "SELECT value FROM meta WHERE key = 'engine_name'"), "toy");
	ck_assert_str_eq(db_text(db, "SELECT value FROM meta WHERE key = 'moetrace_version'"),
			 moetrace_version());
	ck_assert_int_eq(db_int(db, "SELECT pid FROM process"), getpid());
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM device WHERE kind = 'host'"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM process WHERE tp_rank IS NULL AND"
				    " tp_size IS NULL AND dp_size IS NULL"),
			 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM recording"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM model"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM byte"), 256);
	db_close(db);
}
END_TEST

START_TEST(test_options_are_stored)
{
	struct moetrace_session_opts opts = toy_opts();
	struct toy toy;
	sqlite3 *db;

	opts.session_name = "name";
	opts.engine_version = "1.2";
	opts.tp = (struct moetrace_rank){.rank = 1, .n_ranks = 2};
	opts.pp = (struct moetrace_rank){.rank = 0, .n_ranks = 3};
	opts.ep = (struct moetrace_rank){.rank = 7, .n_ranks = 8};
	opts.dp = (struct moetrace_rank){.rank = 5, .n_ranks = 0};
	toy = toy_open("options.db", &opts, 1, 64, 2);
	toy_close(&toy);
	db = db_open(toy.path);
	ck_assert_str_eq(db_text(db, "SELECT tp_rank || '/' || tp_size || ' ' || pp_rank || '/' ||"
				     " pp_size || ' ' || ep_rank || '/' || ep_size FROM process"),
			 "1/2 0/3 7/8");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM process WHERE dp_rank IS NULL AND"
				    " dp_size IS NULL"),
			 1);
	ck_assert_str_eq(db_text(db, "SELECT value FROM meta WHERE key = 'session_name'"), "name");
	ck_assert_str_eq(db_text(db, "SELECT value FROM meta WHERE key = 'engine_version'"), "1.2");
	ck_assert_int_eq(db_int(db, "SELECT CAST(value AS INTEGER) FROM meta WHERE"
				    " key = 'opt.commit_interval_ms'"),
			 20);
	ck_assert_int_eq(db_int(db, "SELECT CAST(value AS INTEGER) FROM meta WHERE"
				    " key = 'opt.n_rings'"),
			 4);
	db_close(db);
}
END_TEST

START_TEST(test_session_name_defaults_to_the_program)
{
	struct toy toy = toy_open("name.db", NULL, 1, 64, 2);
	sqlite3 *db;

	toy_close(&toy);
	db = db_open(toy.path);
	ck_assert_ptr_nonnull(
		strstr(db_text(db, "SELECT value FROM meta WHERE key = 'session_name'"),
		       "check_recording"));
	db_close(db);
}
END_TEST

/* ---- start and stop ---- */

START_TEST(test_recordings_are_rows)
{
	struct toy toy = toy_open("rows.db", NULL, 1, 64, 2);
	struct moetrace_recording_opts opts;
	sqlite3 *db;

	MOETRACE_INIT(&opts);
	opts.routing_source = "uniform";
	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert(!toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 2));
	ck_assert_int_eq(moetrace_stop(toy.session, "lunch"), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_str_eq(
		db_text(db, "SELECT group_concat(end_reason || ' ' ||"
			    " coalesce(routing_source, '?') || ' ' || mode) FROM (SELECT * FROM"
			    " recording ORDER BY recording_id)"),
		"stopped uniform per_token,lunch ? per_token,closed ? per_token");
	ck_assert_str_eq(
		db_text(db, "SELECT group_concat(n) FROM (SELECT (SELECT coalesce(sum(n_rows),"
			    " 0) FROM pass AS p WHERE p.recording_id = r.recording_id) AS n FROM"
			    " recording AS r ORDER BY recording_id)"),
		"1,2,0");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM recording WHERE end_ns >= start_ns"), 3);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM stats WHERE name = 'recorded_passes'"),
			 3);
	ck_assert_int_ge(db_int(db,
				"SELECT count(*) FROM clock_snapshot WHERE uncertainty_ns >= 0 AND"
				" monotonic_ns > session_ns AND realtime_ns > 0"),
			 1);
	db_close(db);
}
END_TEST

START_TEST(test_start_twice_and_stop_twice)
{
	struct toy toy = toy_open("twice.db", NULL, 1, 64, 2);
	char message[256];
	sqlite3 *db;

	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_STATE);
	moetrace_errmsg(toy.session, message, sizeof(message));
	ck_assert_uint_gt(strlen(message), 10);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_E_STATE);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_STATE);
	toy_close(&toy);
	db = db_open(toy.path);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM recording"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 2);
	db_close(db);
}
END_TEST

/* stop waits for a pass in flight, which belongs to the recording wholly. */
static void *end_later(void *argument)
{
	suite_sleep_ms(150);
	moetrace_pass_end(argument);
	return NULL;
}

START_TEST(test_stop_waits_for_passes)
{
	const struct moetrace_slice slice = {.n_rows = 1};
	struct toy toy = toy_start("waits.db", NULL, 1, 64, 2);
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	const uint64_t before_ns = suite_now_ns();
	pthread_t id;
	sqlite3 *db;

	toy_select(&toy, pass, 0, 1);
	ck_assert_int_eq(pthread_create(&id, NULL, end_later, pass), 0);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_uint_ge(suite_now_ns() - before_ns, 140000000);
	ck_assert_int_eq(pthread_join(id, NULL), 0);
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM pass"), "complete");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM gap"), 0);
	db_close(db);
}
END_TEST

/* A pass that does not end in time is cut off; its late calls harm nobody. */
START_TEST(test_stop_gives_up)
{
	struct moetrace_session_opts opts = toy_opts();
	const struct moetrace_slice slice = {.n_rows = 1};
	struct moetrace_pass *pass;
	uint64_t before_ns;
	struct toy toy;
	sqlite3 *db;

	opts.stop_timeout_ms = 100;
	toy = toy_start("late.db", &opts, 3, 64, 2);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	pass = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	toy_select(&toy, pass, 0, 1);
	before_ns = suite_now_ns();
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_TIMEOUT);
	ck_assert_uint_ge(suite_now_ns() - before_ns, 90000000);
	toy_select(&toy, pass, 1, 1);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	toy_select(&toy, pass, 2, 1);
	moetrace_pass_end(pass);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT sum(n_lost) FROM gap WHERE stream = 'pass' AND"
				    " reason = 'stop_timeout'"),
			 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 3);
	ck_assert_str_eq(db_text(db, "SELECT verdict || recording_id FROM pass WHERE"
				     " instr(reasons, 'unended') > 0"),
			 "partial1");
	ck_assert_int_eq(db_int(db,
				"SELECT count(*) FROM pass_layer JOIN pass USING (pass_id) WHERE"
				" verdict = 'partial' AND state = 0"),
			 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE recording_id = 2"), 2);
	db_close(db);
}
END_TEST

/* Definitions may come at any time, and counters begin anew with each recording. */
START_TEST(test_model_added_while_recording)
{
	struct toy toy = toy_start("late-model.db", NULL, 1, 64, 2);
	struct toy second = toy;
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	second.model = toy_model_add(toy.session, "second", 0, 2, 300, 4);
	second.n_layers = 2;
	second.n_experts = 300;
	second.top_k = 4;
	ck_assert(toy_pass(&second, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 5));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(name || n_rows) FROM (SELECT name, n_rows"
				     " FROM pass JOIN model USING (model_id) ORDER BY pass_id)"),
			 "toy3,second5,toy3");
	db_close(db);
}
END_TEST

/* ---- status and flush ---- */

START_TEST(test_status)
{
	struct moetrace_session_opts opts = toy_opts();
	struct moetrace_session_status status;
	struct toy toy;

	opts.ring_bytes = 0;
	toy = toy_open("status.db", &opts, 2, 64, 4);
	status = toy_status(&toy);

	ck_assert_uint_eq(status.is_recording, 0);
	ck_assert_uint_eq(status.recording_id, 0);
	ck_assert_uint_gt(status.file_bytes, 0);
	ck_assert_uint_gt(status.file_limit_bytes, 0);
	ck_assert_uint_eq(status.ring_bytes, UINT64_C(4) * 32 << 20);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 10));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	status = toy_status(&toy);
	ck_assert_uint_eq(status.is_recording, 1);
	ck_assert_uint_eq(status.recording_id, 1);
	ck_assert_uint_eq(status.recorded_passes, 2);
	ck_assert_uint_eq(status.recorded_rows, 11);
	ck_assert_uint_eq(status.recorded_assignments, 11 * 2 * 4);
	ck_assert_uint_eq(status.dropped_passes + status.dropped_layers + status.dropped_bytes +
				  status.misuse,
			  0);
	ck_assert_uint_gt(status.ring_peak_bytes, 0);
	ck_assert_uint_gt(status.writer_cpu_ns, 0);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	status = toy_status(&toy);
	ck_assert_uint_eq(status.is_recording, 0);
	ck_assert_uint_eq(status.recording_id, 1);
	ck_assert_uint_eq(status.recorded_passes, 2);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	status = toy_status(&toy);
	ck_assert_uint_eq(status.recording_id, 2);
	ck_assert_uint_eq(status.recorded_passes, 0);
	toy_close(&toy);
}
END_TEST

/* What was handed over before a flush is in the file after it, seen by a second reader. */
START_TEST(test_flush)
{
	struct moetrace_session_opts opts = toy_opts();
	struct toy toy;
	sqlite3 *db;
	uint32_t i;

	opts.commit_interval_ms = 10000;
	toy = toy_start("flush.db", &opts, 1, 64, 2);
	db = db_open(toy.path);
	for (i = 1; i <= 20; i++) {
		const uint64_t request = toy_request(&toy, "r");

		ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, i));
		ck_assert_int_eq(
			moetrace_request_end(toy.session, request, MOETRACE_REQUEST_FINISHED, i),
			MOETRACE_OK);
		ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
		ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), i);
		ck_assert_int_eq(
			db_int(db, "SELECT count(*) FROM request WHERE verdict = 'complete'"), i);
		ck_assert_int_eq(db_stat(db, 1, "recorded_passes"), i);
	}
	ck_assert_str_eq(db_text(db, "SELECT end_reason FROM recording"), "(null)");
	db_close(db);
	toy_close(&toy);
}
END_TEST

/* Without a flush, what was handed over is committed after the interval. */
START_TEST(test_commit_interval)
{
	struct toy toy = toy_start("interval.db", NULL, 1, 64, 2);
	sqlite3 *db = db_open(toy.path);

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	WAIT_UNTIL(db_int(db, "SELECT count(*) FROM pass") > 0);
	db_close(db);
	toy_close(&toy);
}
END_TEST

/* ---- a reader beside the writer ---- */

struct recorder {
	struct toy *toy;
	atomic_bool stop;
};

static int64_t count_passes(const char *path)
{
	sqlite3 *db = db_open(path);
	int64_t n = db_int(db, "SELECT count(*) FROM pass");

	db_close(db);
	return n;
}

static void *record_main(void *argument)
{
	struct recorder *recorder = argument;

	uint32_t i;

	for (i = 0; i < 500 && !recorder->stop; i++) {
		uint64_t request;

		REQUIRE(moetrace_request_begin(recorder->toy->session, NULL, &request) == MOETRACE_OK,
			"request %u", i);
		toy_pass(recorder->toy, MOETRACE_PHASE_PREFILL, request, 0, 30);
		toy_pass(recorder->toy, MOETRACE_PHASE_DECODE, request, 30, 1);
		moetrace_request_end(recorder->toy->session, request, MOETRACE_REQUEST_FINISHED,
				     31);
		suite_sleep_ms(1);
	}
	return NULL;
}

/* Whatever moment a reader takes, it finds a file that agrees with itself: eight moments of a file
   that grows with each. */
START_TEST(test_read_while_recording)
{
	struct toy toy = toy_start("live.db", NULL, 2, 64, 4);
	struct recorder recorder = {.toy = &toy};
	int64_t n_passes = 0;
	pthread_t id;
	uint32_t i;

	ck_assert_int_eq(pthread_create(&id, NULL, record_main, &recorder), 0);
	WAIT_UNTIL(count_passes(toy.path) > 0);
	for (i = 0; i < 8; i++) {
		sqlite3 *db = db_open(toy.path);

		agree_check(db);
		ck_assert_int_ge(db_int(db, "SELECT count(*) FROM pass"), n_passes);
		n_passes = db_int(db, "SELECT count(*) FROM pass");
		db_close(db);
		suite_sleep_ms(10);
	}
	recorder.stop = true;
	ck_assert_int_eq(pthread_join(id, NULL), 0);
	toy_close(&toy);
	agree_check_file(toy.path);
}
END_TEST

/* Two sessions of one process know nothing of each other. */
START_TEST(test_two_sessions)
{
	struct toy one = toy_start("one.db", NULL, 1, 64, 2);
	struct toy two = toy_start("two.db", NULL, 1, 64, 2);
	sqlite3 *db;

	ck_assert(toy_pass(&one, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	ck_assert(toy_pass(&two, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 2));
	toy_close(&one);
	ck_assert(toy_pass(&two, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 2));
	toy_close(&two);
	db = db_open(one.path);
	ck_assert_int_eq(db_int(db, "SELECT sum(n_rows) FROM pass"), 1);
	db_close(db);
	db = db_open(two.path);
	ck_assert_int_eq(db_int(db, "SELECT sum(n_rows) FROM pass"), 4);
	db_close(db);
}
END_TEST

static Suite *recording_suite(void)
{
	Suite *suite = suite_create("recording");
	TCase *file = tcase_create("file");
	TCase *life = tcase_create("life");
	TCase *live = tcase_create("live");

	tcase_add_test(file, test_file_header);
	tcase_add_test(file, test_options_are_stored);
	tcase_add_test(file, test_session_name_defaults_to_the_program);
	tcase_add_test(life, test_recordings_are_rows);
	tcase_add_test(life, test_start_twice_and_stop_twice);
	tcase_add_test(life, test_stop_waits_for_passes);
	tcase_add_test(life, test_stop_gives_up);
	tcase_add_test(life, test_model_added_while_recording);
	tcase_add_test(live, test_status);
	tcase_add_test(live, test_flush);
	tcase_add_test(live, test_commit_interval);
	tcase_add_test(live, test_read_while_recording);
	tcase_add_test(live, test_two_sessions);
	suite_add_tcase(suite, file);
	suite_add_tcase(suite, life);
	suite_add_tcase(suite, live);
	return suite;
}

int main(void)
{
	return suite_run(recording_suite());
}
