/* SPDX-License-Identifier: MIT */
/*
 * Rotation by command, size and time, and recording again after the disk or the file limit ended
 * it: every pass that was recorded is in exactly one file, whole, and each file agrees with
 * itself.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fault/support/io_fault.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

enum { N_THREADS = 3, MAX_PARTS = 200 };

/* "x.db" and 3: "x.3.db"; 0: the first file. Valid until the next call but one. */
static const char *part(const char *path, uint32_t n)
{
	static char names[2][1024];
	static uint32_t which;
	char *name = names[which++ % 2];

	if (n == 0)
		snprintf(name, sizeof(names[0]), "%s", path);
	else
		snprintf(name, sizeof(names[0]), "%.*s.%u.db", (int)strlen(path) - 3, path, n);
	return name;
}

/* Every part agrees with itself. */
static void check_each(const char *path)
{
	for (uint32_t n = 0; access(part(path, n), F_OK) == 0; n++)
		agree_check_file(part(path, n));
}

/* What @sql gives, added up over all parts. */
static int64_t sum_over_parts(const char *path, const char *sql, uint32_t *ret_n_parts)
{
	int64_t sum = 0;
	uint32_t n;

	for (n = 0; access(part(path, n), F_OK) == 0; n++) {
		sqlite3 *db = db_open(part(path, n));

		sum += db_int(db, "%s", sql);
		db_close(db);
	}
	*ret_n_parts = n;
	return sum;
}

/* ---- under load ---- */

struct load {
	struct toy toy;
	uint32_t pause_us; /* of a thread, between two passes */
	atomic_bool stop;
	atomic_uint n_recorded;
	atomic_uint n_not_recorded;
};

static void *load_main(void *argument)
{
	struct load *load = argument;

	while (!load->stop) {
		uint64_t request;

		usleep(load->pause_us);
		REQUIRE(moetrace_request_begin(load->toy.session, NULL, &request) == MOETRACE_OK,
			"request");
		if (toy_pass(&load->toy, MOETRACE_PHASE_PREFILL, request, 0, 4))
			load->n_recorded++;
		else
			load->n_not_recorded++;
		moetrace_request_end(load->toy.session, request, MOETRACE_REQUEST_FINISHED, 4);
	}
	return NULL;
}

static void load_begin(struct load *load, pthread_t *threads, const char *name,
		       const struct moetrace_session_opts *given)
{
	struct moetrace_session_opts opts = given ? *given : toy_opts();

	/* The writer may have to wait for a processor that these threads have. */
	opts.ring_bytes = UINT64_C(32) << 20;
	/* Enough for passes at every boundary; more is read for long afterwards. */
	load->pause_us = suite_has_sanitizer("thread") ? 2000 : opts.rotate_bytes ? 150 : 1000;
	load->toy = toy_start(name, &opts, 2, 64, 4);
	load->stop = false;
	load->n_recorded = 0;
	load->n_not_recorded = 0;
	for (uint32_t i = 0; i < N_THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, load_main, load), 0);
}

static void load_end(struct load *load, pthread_t *threads)
{
	load->stop = true;
	for (uint32_t i = 0; i < N_THREADS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}

/* What all parts hold together is what the program saw recorded, and nothing was cut. */
static void check_parts(struct load *load, uint32_t n_parts)
{
	uint32_t n;

	toy_close(&load->toy);
	check_each(load->toy.path);
	ck_assert_int_eq(sum_over_parts(load->toy.path,
					"SELECT count(*) FROM pass WHERE verdict = 'complete'", &n),
			 load->n_recorded);
	ck_assert_uint_ge(n, n_parts);
	ck_assert_int_eq(sum_over_parts(load->toy.path, "SELECT count(*) FROM pass", &n),
			 load->n_recorded);
	ck_assert_int_eq(sum_over_parts(load->toy.path, "SELECT count(*) FROM gap", &n), 0);
	/* Each says that it is a part of the whole. */
	ck_assert_int_eq(sum_over_parts(load->toy.path,
					"SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'part'",
					&n),
			 (int64_t)n * (n - 1) / 2);
	ck_assert_int_eq(
		sum_over_parts(load->toy.path,
			       "SELECT count(*) FROM recording WHERE end_reason = 'rotated'", &n),
		(int64_t)n - 1);
}

START_TEST(test_rotate_under_load)
{
	pthread_t threads[N_THREADS];
	struct load load;
	uint32_t i;

	load_begin(&load, threads, "load.db", NULL);
	for (i = 0; i < (suite_is_long() ? 100 : 10); i++) {
		suite_sleep_ms(i % 3 * 10);
		ck_assert_int_eq(moetrace_rotate(load.toy.session, NULL), MOETRACE_OK);
	}
	load_end(&load, threads);
	/* No pass begins between two recordings. */
	ck_assert_uint_eq(load.n_not_recorded, 0);
	check_parts(&load, i + 1);
}
END_TEST

static const uint64_t rotations[][2] = {{0, 50000000}, {1 << 20, 0}};

START_TEST(test_rotate_by_itself)
{
	struct moetrace_session_opts opts = toy_opts();
	pthread_t threads[N_THREADS];
	struct load load;
	const char *third;

	opts.rotate_bytes = rotations[_i][0];
	opts.rotate_ns = rotations[_i][1];
	load_begin(&load, threads, "by-itself.db", &opts);
	third = part(load.toy.path, 3);
	WAIT_UNTIL(access(third, F_OK) == 0);
	load_end(&load, threads);
	ck_assert_uint_eq(load.n_not_recorded, 0);
	check_parts(&load, 3);
}
END_TEST

/* Rotations of every kind, stops and starts at once. */
START_TEST(test_rotate_and_stop)
{
	struct moetrace_session_opts opts = toy_opts();
	pthread_t threads[N_THREADS];
	struct load load;
	uint32_t i, n;

	opts.rotate_ns = 20000000;
	load_begin(&load, threads, "mixed.db", &opts);
	for (i = 0; i < (suite_is_long() ? 100 : 5); i++) {
		suite_sleep_ms(i * 7 % 30);
		ck_assert_int_eq(moetrace_rotate(load.toy.session, NULL), MOETRACE_OK);
		suite_sleep_ms(i * 5 % 30);
		ck_assert_int_eq(moetrace_stop(load.toy.session, NULL), MOETRACE_OK);
		ck_assert_int_eq(moetrace_start(load.toy.session, NULL), MOETRACE_OK);
	}
	load_end(&load, threads);
	toy_close(&load.toy);
	check_each(load.toy.path);
	ck_assert_int_eq(sum_over_parts(load.toy.path,
					"SELECT count(*) FROM pass WHERE verdict = 'complete'", &n),
			 load.n_recorded);
	ck_assert_uint_ge(n, i + 1);
}
END_TEST

/* ---- what the next file knows ---- */

/* A request that is open, a pass that is running, a rule and a second model. */
START_TEST(test_definitions_and_open_requests)
{
	const struct moetrace_slice slice = {.n_rows = 3};
	const char *wanted = suite_path("wanted.db");
	struct moetrace_session_opts opts = toy_opts();
	struct moetrace_pass *pass;
	struct toy toy;
	uint64_t request;
	uint32_t rule;
	sqlite3 *db;

	opts.stop_timeout_ms = 200;
	toy = toy_start("open.db", &opts, 2, 64, 4);
	toy_model_add(toy.session, "draft", 0, 1, 8, 2);
	ck_assert_int_eq(moetrace_rule_add(toy.session, "oea:k0=3", &rule), MOETRACE_OK);
	request = toy_request(&toy, "open");
	ck_assert_int_eq(moetrace_request_attribute_set(toy.session, request, "domain", "c"),
			 MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 4));
	ck_assert_int_eq(moetrace_rotate(toy.session, wanted), MOETRACE_OK);
	ck_assert_uint_eq(toy_status(&toy).recording_id, 2);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 4, 1));
	/* The old file is closed and whole while the session goes on. */
	ck_assert_int_ne(access(part(toy.path, 1), F_OK), 0);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM request"), "unfinished");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 1);
	db_close(db);
	ck_assert_int_eq(moetrace_request_end(toy.session, request, MOETRACE_REQUEST_FINISHED, 5),
			 MOETRACE_OK);
	/* A pass that is still running is cut off like by stop, and not waited for for ever. */
	pass = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	ck_assert_int_eq(moetrace_rotate(toy.session, NULL), MOETRACE_E_TIMEOUT);
	toy_finish(&toy, pass, 3);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	toy_close(&toy);
	db = db_open(wanted);
	agree_check(db);
	ck_assert_str_eq(db_text(db, "SELECT verdict || ':' || reasons FROM request"),
			 "partial:began_before");
	ck_assert_str_eq(db_text(db, "SELECT value FROM request_attribute"), "c");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(name) FROM model"), "toy,draft");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM layer"), 3);
	ck_assert_str_eq(db_text(db, "SELECT name FROM rule"), "oea:k0=3");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE reasons LIKE '%%unended%%'"),
			 1);
	db_close(db);
	db = db_open(part(toy.path, 2));
	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 1);
	db_close(db);
}
END_TEST

/* A name that is taken, or a folder that is not there: recording goes on where it was. */
START_TEST(test_next_file_cannot_be_made)
{
	struct toy toy = toy_start("stays.db", NULL, 2, 64, 4);
	char message[512];
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	ck_assert_int_eq(moetrace_rotate(toy.session, toy.path), MOETRACE_E_EXISTS);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	ck_assert_int_eq(moetrace_rotate(toy.session, "/nonexistent/x.db"), MOETRACE_E_IO);
	moetrace_errmsg(toy.session, message, sizeof(message));
	ck_assert_ptr_nonnull(strstr(message, "/nonexistent/x.db"));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	ck_assert_int_eq(moetrace_rotate(toy.session, ""), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_rotate(NULL, NULL), MOETRACE_E_INVALID);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 3);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM recording"), 3);
	db_close(db);
}
END_TEST

/* A server that is idle: files and recordings without a pass are as sound as others. */
START_TEST(test_rotate_while_idle)
{
	static const struct moetrace_recording_opts kinds[] = {
		{.size = sizeof(kinds[0])},
		{.size = sizeof(kinds[0]), .mode = MOETRACE_MODE_PER_PASS},
		{.size = sizeof(kinds[0]), .mode = MOETRACE_MODE_STAT},
		{.size = sizeof(kinds[0]), .flight_bytes = 1 << 20},
	};
	const char *wanted = suite_path("idle-wanted.db");
	struct moetrace_dump_result dumped;
	struct toy toy = toy_start("idle.db", NULL, 2, 64, 4);
	sqlite3 *db;
	uint32_t n;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, &kinds[_i]), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	ck_assert_int_eq(moetrace_rotate(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_rotate(toy.session, NULL), MOETRACE_OK);
	MOETRACE_INIT(&dumped);
	ck_assert_int_eq(moetrace_dump(toy.session, &dumped), MOETRACE_OK);
	ck_assert_uint_eq(dumped.last_pass_id, 0);
	ck_assert_int_eq(moetrace_rotate(toy.session, toy.path), MOETRACE_E_EXISTS);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_rotate(toy.session, wanted), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, &kinds[_i]), MOETRACE_OK);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	toy_close(&toy);
	check_each(toy.path);
	agree_check_file(wanted);
	ck_assert_int_eq(sum_over_parts(toy.path,
					"SELECT count(*) FROM stats AS s WHERE name = 'last_pass_id' "
					"AND value <> (SELECT coalesce(max(pass_id), 0) FROM pass AS p "
					"WHERE p.recording_id = s.recording_id)",
					&n),
			 0);
	ck_assert_uint_eq(n, 3);
	db = db_open(wanted);
	ck_assert_int_eq(db_int(db, "SELECT value FROM stats WHERE name = 'last_pass_id'"), 0);
	db_close(db);
}
END_TEST

/* The program may change its folder later, and tools look from others. */
START_TEST(test_relative_path)
{
	struct toy toy = toy_start("absolute.db", NULL, 2, 64, 4);
	const char *wanted = suite_path("relative.db");
	struct moetrace_dump_result dumped;
	char folder[1024];

	snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(toy.path, '/') - toy.path),
		 toy.path);
	ck_assert_int_eq(chdir(folder), 0);
	ck_assert_int_eq(moetrace_rotate(toy.session, strrchr(wanted, '/') + 1), MOETRACE_OK);
	ck_assert_int_eq(chdir("/"), 0);
	MOETRACE_INIT(&dumped);
	ck_assert_int_eq(moetrace_dump(toy.session, &dumped), MOETRACE_OK);
	ck_assert_str_eq(dumped.path, wanted);
	ck_assert_int_eq(access(dumped.path, F_OK), 0);
	toy_close(&toy);
	agree_check_file(wanted);
}
END_TEST

/* Numbers that are taken are passed over, and nothing of theirs is touched. */
START_TEST(test_taken_numbers)
{
	struct toy toy = toy_start("taken.db", NULL, 2, 64, 4);
	FILE *file = fopen(part(toy.path, 1), "w");
	uint32_t n;

	ck_assert_ptr_nonnull(file);
	fputs("a stranger's", file);
	fclose(file);
	ck_assert_int_eq(moetrace_rotate(toy.session, NULL), MOETRACE_OK);
	/* While nothing is recorded the files are changed, too. */
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_rotate(toy.session, NULL), MOETRACE_OK);
	ck_assert_uint_eq(toy_status(&toy).is_recording, 0);
	toy_close(&toy);
	ck_assert_int_eq(access(part(toy.path, 3), F_OK), 0);
	ck_assert_int_eq(unlink(part(toy.path, 1)), 0);
	check_each(toy.path);
	ck_assert_int_eq(sum_over_parts(toy.path, "SELECT count(*) FROM recording", &n), 1);
}
END_TEST

/* ---- recording again ---- */

static void fill(const struct toy *toy)
{
	uint32_t i;

	for (i = 0; i < 20000 && toy_status(toy).is_recording; i++) {
		toy_pass(toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 64);
		if (i % 64 == 63)
			moetrace_flush(toy->session);
	}
	ck_assert_uint_eq(toy_status(toy).is_recording, 0);
	ck_assert_uint_eq(toy_status(toy).is_failed, 1);
}

START_TEST(test_again_after_file_limit)
{
	struct moetrace_session_opts opts = toy_opts();
	struct toy toy;
	sqlite3 *db;

	opts.file_limit_bytes = 1 << 20;
	toy = toy_start("limit.db", &opts, 4, 64, 8);
	fill(&toy);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_E_IO);
	ck_assert_int_eq(moetrace_rotate(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 64));
	toy_close(&toy);
	agree_check_file(toy.path);
	db = db_open(part(toy.path, 1));
	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 1);
	db_close(db);
}
END_TEST

/* What begins and ends while nothing can be written is known when something can be again. */
START_TEST(test_again_after_disk_full)
{
	uint64_t before, ended, open, late;
	struct toy toy;
	sqlite3 *db;

	io_fault_install();
	toy = toy_start("full.db", NULL, 4, 64, 8);
	before = toy_request(&toy, "before");
	ended = toy_request(&toy, "ended");
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, before, 0, 4));
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	io_fault_fail(ENOSPC, suite_is_long() ? (uint32_t)_i : (uint32_t)_i * 2);
	fill(&toy);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_E_IO);
	open = toy_request(&toy, "open");
	moetrace_request_end(toy.session, ended, MOETRACE_REQUEST_FINISHED, 0);
	toy_model_add(toy.session, "late", 0, 1, 8, 2);
	io_fault_fail(0, 0);
	WAIT_UNTIL(moetrace_start(toy.session, NULL) == MOETRACE_OK);
	ck_assert_uint_eq(toy_status(&toy).is_recording, 1);
	ck_assert_uint_eq(toy_status(&toy).is_failed, 0);
	late = toy_request(&toy, "late");
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, before, 4, 1));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, open, 0, 2));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, late, 0, 2));
	moetrace_request_end(toy.session, before, MOETRACE_REQUEST_FINISHED, 5);
	moetrace_request_end(toy.session, open, MOETRACE_REQUEST_FINISHED, 2);
	moetrace_request_end(toy.session, late, MOETRACE_REQUEST_FINISHED, 2);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT end_reason FROM recording WHERE recording_id = 1"),
			 "io_error");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(external_id || ':' || verdict, ' ') FROM "
				     "(SELECT * FROM request WHERE recording_id = 2 "
				     "ORDER BY external_id)"),
			 "before:partial late:complete open:complete");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE recording_id = 2 AND "
				    "verdict = 'complete'"),
			 3);
	ck_assert_int_gt(db_int(db, "SELECT sum(n_lost) FROM gap WHERE recording_id = 1"), 0);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(name) FROM model"), "toy,late");
	db_close(db);
}
END_TEST

enum deed { REMOVED, MOVED, REPLACED, N_DEEDS };

static void take_away(const char *path, enum deed deed)
{
	char name[1100], moved[1100];
	FILE *file;

	snprintf(moved, sizeof(moved), "%s.moved", path);
	ck_assert_int_eq(deed == REMOVED ? unlink(path) : rename(path, moved), 0);
	snprintf(name, sizeof(name), "%s-wal", path);
	ck_assert_int_eq(unlink(name), 0);
	snprintf(name, sizeof(name), "%s-shm", path);
	ck_assert_int_eq(unlink(name), 0);
	if (deed != REPLACED)
		return;
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fclose(file);
}

/* The next file is sound, and says what the one before it lacks. */
static void check_next(const char *path, const char *lacks)
{
	sqlite3 *db = db_open(path);

	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM diagnostic WHERE message LIKE '%%%s%%' "
				    "AND message LIKE '%%was removed, moved or replaced%%'",
				lacks),
			 1);
	db_close(db);
}

/* A file that was taken away is noticed with the next commit. */
START_TEST(test_again_after_file_is_gone)
{
	struct toy toy = toy_start("gone.db", NULL, 2, 64, 4);
	struct moetrace_dump_result dumped;
	char message[1024];

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	take_away(toy.path, (enum deed)_i);
	toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3);
	WAIT_UNTIL(toy_status(&toy).is_failed);
	ck_assert_uint_eq(toy_status(&toy).is_recording, 0);
	ck_assert_uint_le(toy_status(&toy).dropped_passes, 1);
	ck_assert(!toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	moetrace_errmsg(toy.session, message, sizeof(message));
	ck_assert_ptr_nonnull(strstr(message, toy.path));
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_E_IO);
	MOETRACE_INIT(&dumped);
	ck_assert_int_eq(moetrace_dump(toy.session, &dumped), MOETRACE_E_IO);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_STATE);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_E_IO);
	ck_assert_int_eq(moetrace_rotate(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert_uint_eq(toy_status(&toy).is_failed, 0);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	toy_close(&toy);
	ck_assert_int_eq(access(toy.path, F_OK) == 0, _i == REPLACED);
	check_next(part(toy.path, 1), "the file before this one lacks");
}
END_TEST

/* Before it is noticed: a rotation goes on in the next file; stop and close tell. */
START_TEST(test_file_is_gone_at_once)
{
	const struct moetrace_recording_opts flight = {.size = sizeof(flight),
						       .flight_bytes = 1 << 20};
	struct moetrace_session_opts opts = toy_opts();
	struct toy toy;
	uint32_t i;

	opts.commit_interval_ms = 10000;
	toy = toy_open("at-once.db", &opts, 2, 64, 4);
	ck_assert_int_eq(moetrace_start(toy.session, _i ? &flight : NULL), MOETRACE_OK);
	for (i = 0; i < 5; i++)
		ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	take_away(toy.path, REMOVED);
	ck_assert_int_eq(moetrace_rotate(toy.session, NULL), MOETRACE_OK);
	ck_assert_uint_eq(toy_status(&toy).is_recording, 1);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	ck_assert_int_eq(moetrace_rotate(toy.session, NULL), MOETRACE_OK);
	check_next(part(toy.path, 1), "lacks 5 passes");
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	take_away(part(toy.path, 2), REMOVED);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_IO);
	ck_assert_uint_eq(toy_status(&toy).dropped_passes, 1);
	ck_assert_int_eq(moetrace_session_close(toy.session), MOETRACE_E_IO);
	ck_assert_int_ne(access(part(toy.path, 2), F_OK), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rotate");
	TCase *load = tcase_create("load");
	TCase *files = tcase_create("files");
	TCase *again = tcase_create("again");

	tcase_set_timeout(load, 60);
	tcase_add_test(load, test_rotate_under_load);
	tcase_add_loop_test(load, test_rotate_by_itself, 0, 2);
	tcase_add_test(load, test_rotate_and_stop);
	tcase_add_test(files, test_definitions_and_open_requests);
	tcase_add_test(files, test_next_file_cannot_be_made);
	tcase_add_loop_test(files, test_rotate_while_idle, 0, 4);
	tcase_add_test(files, test_relative_path);
	tcase_add_test(files, test_taken_numbers);
	tcase_add_test(again, test_again_after_file_limit);
	tcase_add_loop_test(again, test_again_after_disk_full, 0, suite_is_long() ? 100 : 6);
	tcase_add_loop_test(again, test_again_after_file_is_gone, 0, N_DEEDS);
	tcase_add_loop_test(again, test_file_is_gone_at_once, 0, 2);
	suite_add_tcase(suite, load);
	suite_add_tcase(suite, files);
	suite_add_tcase(suite, again);
	return suite_run(suite);
}
