/* SPDX-License-Identifier: MIT */
/*
 * A disk that is full, refuses, or goes away, and limits on the file's size. The traced
 * program goes on as if nothing were, the recording ends with its reason, and the file opens.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tests/fault/support/io_fault.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

/* Far more passes than any of the limits here lets through. */
enum { N_PASSES = 20000, N_ROWS = 64, N_LAYERS = 4, TOP_K = 8 };

static uint64_t size_of(const char *path, const char *suffix)
{
	char name[1024];
	struct stat info;

	snprintf(name, sizeof(name), "%s%s", path, suffix);
	return stat(name, &info) == 0 ? (uint64_t)info.st_size : 0;
}

static uint64_t size_with_journal(const char *path)
{
	return size_of(path, "") + size_of(path, "-wal");
}

struct run {
	uint32_t n_recorded;
	uint64_t largest_bytes; /* file and journal, seen between passes */
};

/* Passes until one is not recorded, or @n_passes. Flushes, so that no ring runs over. */
static struct run run_until_null(const struct toy *toy, uint32_t n_passes)
{
	struct run run = {0};
	uint32_t i;

	for (i = 0; i < n_passes; i++) {
		const bool is_recorded =
			toy_pass(toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, N_ROWS);
		const uint64_t bytes = size_with_journal(toy->path);

		run.largest_bytes = bytes > run.largest_bytes ? bytes : run.largest_bytes;
		if (!is_recorded)
			break;
		run.n_recorded++;
		if (i % 64 == 63)
			moetrace_flush(toy->session);
	}
	return run;
}

/* The session after its end by itself: idle, refusing, and telling why. */
static void check_ended(const struct toy *toy)
{
	char message[512];
	int status;

	ck_assert_uint_eq(toy_status(toy).is_recording, 0);
	ck_assert(!toy_pass(toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	moetrace_errmsg(toy->session, message, sizeof(message));
	ck_assert_uint_gt(strlen(message), 10);
	/* There may be room for a short recording still. */
	status = moetrace_start(toy->session, NULL);
	if (status == MOETRACE_OK)
		status = moetrace_stop(toy->session, NULL);
	ck_assert_msg(status == MOETRACE_OK || status == MOETRACE_E_IO ||
			      status == MOETRACE_E_STATE,
		      "start and stop: %d", status);
}

/* What is in the file agrees with itself, also if its end could not be written. */
static void check_file(const char *path, const char *end_reason)
{
	sqlite3 *db = db_open(path);
	const char *got;

	agree_check(db);
	ck_assert_int_gt(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 0);
	got = db_text(db, "SELECT end_reason FROM recording WHERE recording_id = 1");
	if (end_reason)
		ck_assert_str_eq(got, end_reason);
	db_close(db);
}

/* ---- a disk that refuses ---- */

static const int refusals[] = {ENOSPC, EIO};

/* It refuses for a while: the end is written once it works again. */
START_TEST(test_disk_refuses_for_a_while)
{
	struct toy toy;
	struct run run;
	int status;

	io_fault_install();
	toy = toy_start("refuses.db", NULL, N_LAYERS, 64, TOP_K);
	ck_assert_uint_eq(run_until_null(&toy, 100).n_recorded, 100);
	io_fault_fail(refusals[_i], 20);
	run = run_until_null(&toy, N_PASSES);
	ck_assert_uint_lt(run.n_recorded, N_PASSES);
	check_ended(&toy);
	io_fault_fail(0, 0);
	status = moetrace_session_close(toy.session);
	ck_assert_msg(status == MOETRACE_OK || status == MOETRACE_E_IO, "close: %d", status);
	check_file(toy.path, "io_error");
}
END_TEST

/* It never works again: close comes back, says so, and what was committed is there. */
START_TEST(test_disk_refuses_for_ever)
{
	struct toy toy;

	io_fault_install();
	toy = toy_start("never.db", NULL, N_LAYERS, 64, TOP_K);
	ck_assert_uint_eq(run_until_null(&toy, 100).n_recorded, 100);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	io_fault_fail(refusals[_i], 0);
	ck_assert_uint_lt(run_until_null(&toy, N_PASSES).n_recorded, N_PASSES);
	check_ended(&toy);
	ck_assert_int_eq(moetrace_session_close(toy.session), MOETRACE_E_IO);
	io_fault_fail(0, 0);
	check_file(toy.path, NULL);
}
END_TEST

/* Whichever write it is that fails first. */
START_TEST(test_any_write_may_fail)
{
	struct toy toy;

	io_fault_install();
	toy = toy_start("any.db", NULL, N_LAYERS, 64, TOP_K);
	ck_assert_uint_eq(run_until_null(&toy, 50).n_recorded, 50);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	io_fault_fail(ENOSPC, (uint32_t)_i);
	run_until_null(&toy, 200);
	moetrace_stop(toy.session, NULL);
	moetrace_session_close(toy.session);
	io_fault_fail(0, 0);
	check_file(toy.path, NULL);
}
END_TEST

/* stop and flush tell the caller that not everything could be written. */
START_TEST(test_stop_and_flush_tell)
{
	struct moetrace_session_opts opts = toy_opts();
	struct toy toy;

	io_fault_install();
	/* The writer is not to find it out before it is asked. */
	opts.commit_interval_ms = 10000;
	toy = toy_start("tell.db", &opts, N_LAYERS, 64, TOP_K);
	ck_assert_uint_eq(run_until_null(&toy, 10).n_recorded, 10);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	io_fault_fail(ENOSPC, 0);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, N_ROWS));
	if (_i)
		ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_E_IO);
	else
		ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_IO);
	ck_assert_uint_eq(toy_status(&toy).is_recording, 0);
	ck_assert_int_eq(moetrace_session_close(toy.session), MOETRACE_E_IO);
	io_fault_fail(0, 0);
	check_file(toy.path, NULL);
}
END_TEST

/* What the program lost while the write was on its way that failed is said with its failure. */
START_TEST(test_losses_before_failure)
{
	struct moetrace_session_opts opts = toy_opts();
	struct moetrace_slice slice = {.n_rows = 4};
	struct moetrace_pass *pass;
	struct toy toy;
	sqlite3 *db;

	io_fault_install();
	opts.n_rings = 1;
	toy = toy_start("losses.db", &opts, N_LAYERS, 64, TOP_K);
	pass = toy_begin(&toy, MOETRACE_PHASE_DECODE, &slice, 1);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	io_fault_stall(true);
	io_fault_wait_for_stalled();
	for (int i = 0; i < 3; i++)
		ck_assert_ptr_null(toy_begin(&toy, MOETRACE_PHASE_DECODE, &slice, 1));
	io_fault_fail(ENOSPC, 0);
	io_fault_stall(false);
	while (!toy_status(&toy).is_failed)
		suite_sleep_ms(1);
	io_fault_fail(0, 0);
	moetrace_pass_end(pass);
	(void)moetrace_session_close(toy.session);
	db = db_open(toy.path);
	/* With the pass that was open. */
	ck_assert_int_eq(db_int(db, "SELECT sum(n_lost) FROM gap"), 4);
	ck_assert_int_eq(db_stat(db, 1, "dropped_passes"), 4);
	db_close(db);
}
END_TEST

/* ---- a disk that is full ---- */

/* A file system of this size at @folder, which vanishes with this process; else false. */
static bool mount_small(const char *folder, const char *options)
{
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	return unshare(CLONE_NEWNS) == 0 &&
	       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("tmpfs", folder, "tmpfs", 0, options) == 0;
}

static struct toy start_in(const char *folder, uint64_t file_limit_bytes)
{
	struct moetrace_session_opts opts = toy_opts();
	static char path[1024];
	struct toy toy = {.path = path, .n_layers = N_LAYERS, .n_experts = 64, .top_k = TOP_K};

	snprintf(path, sizeof(path), "%s/full.db", folder);
	opts.file_limit_bytes = file_limit_bytes;
	ck_assert_int_eq(moetrace_session_open(toy.path, &opts, &toy.session), MOETRACE_OK);
	toy.model = toy_model_add(toy.session, "toy", 0, N_LAYERS, 64, TOP_K);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	return toy;
}

/* Full by ourselves, with a limit that promises more than there is. */
START_TEST(test_full_disk)
{
	const char *folder = suite_path("full");
	struct toy toy;
	struct run run;
	sqlite3 *db;
	int status;

	/* In the smallest not even the recording's own row has room. */
	if (!mount_small(folder, _i ? "size=6m" : "size=3m"))
		return;
	toy = start_in(folder, UINT64_C(1) << 30);
	run = run_until_null(&toy, N_PASSES);
	ck_assert_uint_lt(run.n_recorded, N_PASSES);
	ck_assert_uint_gt(run.n_recorded, 50);
	check_ended(&toy);
	status = moetrace_session_close(toy.session);
	ck_assert_msg(status == MOETRACE_OK || status == MOETRACE_E_IO, "close: %d", status);
	if (_i) {
		check_file(toy.path, NULL);
		return;
	}
	db = db_open(toy.path);
	db_check_integrity(db);
	db_close(db);
}
END_TEST

/* Filled by somebody else in the middle of a recording. */
START_TEST(test_disk_filled_by_another)
{
	const char *folder = suite_path("filled");
	static char block[65536];
	char path[1024];
	struct toy toy;
	sqlite3 *db;
	FILE *other;

	if (!mount_small(folder, "size=8m"))
		return;
	toy = start_in(folder, 0);
	ck_assert_uint_eq(run_until_null(&toy, 50).n_recorded, 50);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	snprintf(path, sizeof(path), "%s/other", folder);
	other = fopen(path, "w");
	ck_assert_ptr_nonnull(other);
	setbuf(other, NULL);
	while (fwrite(block, 1, sizeof(block), other) == sizeof(block))
		continue;
	ck_assert_uint_lt(run_until_null(&toy, N_PASSES).n_recorded, N_PASSES);
	check_ended(&toy);
	fclose(other);
	ck_assert_int_eq(unlink(path), 0);
	/* There is room again, and the user starts it again. */
	WAIT_UNTIL(moetrace_start(toy.session, NULL) == MOETRACE_OK);
	ck_assert_uint_eq(run_until_null(&toy, 20).n_recorded, 20);
	ck_assert_int_eq(moetrace_session_close(toy.session), MOETRACE_OK);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(end_reason) FROM recording"),
			 "io_error,closed");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE recording_id = 2 AND verdict ="
				    " 'complete'"),
			 20);
	db_close(db);
}
END_TEST

/* By default the recorder leaves half of what is free to others. */
START_TEST(test_default_limit)
{
	const char *folder = suite_path("default");
	struct statvfs info;
	uint64_t limit;
	struct toy toy;

	if (!mount_small(folder, "size=8m"))
		return;
	ck_assert_int_eq(statvfs(folder, &info), 0);
	toy = start_in(folder, 0);
	limit = toy_status(&toy).file_limit_bytes;
	ck_assert_uint_le(limit, (uint64_t)info.f_bavail * info.f_frsize / 2);
	ck_assert_uint_ge(limit, (uint64_t)info.f_bavail * info.f_frsize * 4 / 10);
	ck_assert_uint_lt(run_until_null(&toy, N_PASSES).n_recorded, N_PASSES);
	check_ended(&toy);
	ck_assert_int_eq(moetrace_session_close(toy.session), MOETRACE_OK);
	check_file(toy.path, "file_limit");
	ck_assert_uint_le(size_with_journal(toy.path), limit);
}
END_TEST

/* ---- limits ---- */

/* The signal that the kernel sends here would end the program. */
START_TEST(test_file_size_limit_of_the_process)
{
	const struct rlimit limit = {.rlim_cur = 2 << 20, .rlim_max = RLIM_INFINITY};
	const struct rlimit unlimited = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
	struct toy toy;

	toy = toy_start("rlimit.db", NULL, N_LAYERS, 64, TOP_K);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ck_assert_uint_lt(run_until_null(&toy, N_PASSES).n_recorded, N_PASSES);
	check_ended(&toy);
	/* Closed while the limit holds: the calling thread must not be killed either. */
	moetrace_session_close(toy.session);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
	check_file(toy.path, NULL);
}
END_TEST

static const uint64_t file_limits[] = {UINT64_C(1) << 20, UINT64_C(5) << 20};

START_TEST(test_file_limit)
{
	struct moetrace_session_opts opts = toy_opts();
	struct toy toy;
	struct run run;

	opts.file_limit_bytes = file_limits[_i];
	toy = toy_start("limit.db", &opts, N_LAYERS, 64, TOP_K);
	ck_assert_uint_eq(toy_status(&toy).file_limit_bytes, file_limits[_i]);
	run = run_until_null(&toy, N_PASSES);
	ck_assert_uint_lt(run.n_recorded, N_PASSES);
	ck_assert_uint_gt(run.n_recorded, 50);
	check_ended(&toy);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_STATE);
	ck_assert_uint_le(run.largest_bytes, file_limits[_i]);
	ck_assert_int_eq(moetrace_session_close(toy.session), MOETRACE_OK);
	ck_assert_uint_le(size_with_journal(toy.path), file_limits[_i]);
	/* The room was used, not given up at once. */
	ck_assert_uint_ge(size_of(toy.path, ""), file_limits[_i] / 4);
	check_file(toy.path, "file_limit");
}
END_TEST

/* Requests that are open when the limit comes are unfinished, not lost from sight. */
START_TEST(test_file_limit_and_requests)
{
	struct moetrace_session_opts opts = toy_opts();
	uint64_t request;
	struct toy toy;
	sqlite3 *db;

	opts.file_limit_bytes = 1 << 20;
	toy = toy_start("limit-requests.db", &opts, N_LAYERS, 64, TOP_K);
	request = toy_request(&toy, "open");
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 8));
	ck_assert_uint_lt(run_until_null(&toy, N_PASSES).n_recorded, N_PASSES);
	ck_assert_int_eq(moetrace_request_end(toy.session, request, MOETRACE_REQUEST_FINISHED, 8),
			 MOETRACE_OK);
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM request"), "unfinished");
	db_close(db);
}
END_TEST

/* No room for anything: the session opens or says why not, and start says so. */
START_TEST(test_file_limit_below_the_schema)
{
	struct moetrace_session_opts opts = toy_opts();
	const char *path = suite_path("tiny.db");
	struct moetrace_session *session;
	int status;

	opts.file_limit_bytes = 4096;
	status = moetrace_session_open(path, &opts, &session);
	if (status == MOETRACE_OK) {
		ck_assert_int_eq(moetrace_start(session, NULL), MOETRACE_E_IO);
		ck_assert_int_eq(moetrace_session_close(session), MOETRACE_OK);
	} else {
		ck_assert_int_eq(status, MOETRACE_E_INVALID);
		ck_assert_int_ne(access(path, F_OK), 0);
	}
}
END_TEST

/* ---- a folder that goes away ---- */

static void remove_folder(const char *folder, const char *path)
{
	static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
	char name[1024];
	size_t i;

	for (i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "%s%s", path, suffixes[i]);
		unlink(name);
	}
	ck_assert_int_eq(rmdir(folder), 0);
}

START_TEST(test_folder_removed)
{
	const char *folder = suite_path("removed");
	struct toy toy;
	int status;

	ck_assert_int_eq(mkdir(folder, 0700), 0);
	toy = start_in(folder, 0);
	ck_assert_uint_eq(run_until_null(&toy, 100).n_recorded, 100);
	remove_folder(folder, toy.path);
	run_until_null(&toy, 300);
	moetrace_flush(toy.session);
	moetrace_stop(toy.session, NULL);
	status = moetrace_session_close(toy.session);
	ck_assert_msg(status == MOETRACE_OK || status == MOETRACE_E_IO, "close: %d", status);
	ck_assert_int_ne(access(folder, F_OK), 0);
}
END_TEST

/* A file that somebody takes away is not made again under its name. */
START_TEST(test_file_renamed)
{
	const char *elsewhere = suite_path("elsewhere.db");
	struct toy toy = toy_start("renamed.db", NULL, N_LAYERS, 64, TOP_K);
	int status;

	ck_assert_uint_eq(run_until_null(&toy, 100).n_recorded, 100);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	ck_assert_int_eq(rename(toy.path, elsewhere), 0);
	run_until_null(&toy, 100);
	status = moetrace_session_close(toy.session);
	ck_assert_msg(status == MOETRACE_OK || status == MOETRACE_E_IO, "close: %d", status);
	ck_assert_int_ne(access(toy.path, F_OK), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("disk");
	TCase *refusing = tcase_create("refusing");
	TCase *full = tcase_create("full");
	TCase *limits = tcase_create("limits");
	TCase *gone = tcase_create("gone");

	tcase_add_loop_test(refusing, test_disk_refuses_for_a_while, 0, 2);
	tcase_add_loop_test(refusing, test_disk_refuses_for_ever, 0, 2);
	tcase_add_loop_test(refusing, test_any_write_may_fail, 0, suite_is_long() ? 300 : 24);
	tcase_add_loop_test(refusing, test_stop_and_flush_tell, 0, 2);
	tcase_add_test(refusing, test_losses_before_failure);
	tcase_add_loop_test(full, test_full_disk, 0, 2);
	tcase_add_test(full, test_disk_filled_by_another);
	tcase_add_test(full, test_default_limit);
	tcase_add_test(limits, test_file_size_limit_of_the_process);
	tcase_add_loop_test(limits, test_file_limit, 0, 2);
	tcase_add_test(limits, test_file_limit_and_requests);
	tcase_add_test(limits, test_file_limit_below_the_schema);
	tcase_add_test(gone, test_folder_removed);
	tcase_add_test(gone, test_file_renamed);
	suite_add_tcase(suite, refusing);
	suite_add_tcase(suite, full);
	suite_add_tcase(suite, limits);
	suite_add_tcase(suite, gone);
	return suite_run(suite);
}
