/* SPDX-License-Identifier: MIT */
/*
 * Attaching, and everything that can go wrong with a device: each answer is a status code, what is
 * lost is counted, and the file says what happened.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libtrace/session.h"
#include "tests/cuda/support/gpu_toy.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

/* Without a driver, or without a context: the traced program goes on with NULL. */
START_TEST(test_no_driver)
{
	struct toy toy = toy_start("none.db", NULL, 2, 16, 2);
	struct moetrace_cuda *cuda = (struct moetrace_cuda *)&toy;
	struct moetrace_cuda_lane *lane = (struct moetrace_cuda_lane *)&toy;
	struct moetrace_cuda_lane_info lane_info;
	struct moetrace_cuda_target target;
	char text[512];
	sqlite3 *db;

	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(moetrace_cuda_attach(toy.session, NULL, &cuda), MOETRACE_E_UNSUPPORTED);
		ck_assert_ptr_null(cuda);
	}
	moetrace_errmsg(toy.session, text, sizeof(text));
	ck_assert_msg(strncmp(text, "cuda: no ", 9) == 0, "%s", text);
	MOETRACE_INIT(&lane_info);
	ck_assert_int_eq(moetrace_cuda_lane_add(cuda, &lane_info, &lane), MOETRACE_E_INVALID);
	ck_assert_ptr_null(lane);
	ck_assert_int_eq(moetrace_cuda_target_get(lane, 0, 4, &target), MOETRACE_E_INVALID);
	ck_assert_uint_eq(target.word, 0);
	ck_assert_int_eq(moetrace_cuda_pass_begin(lane, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_cuda_pass_layers(lane, 0), MOETRACE_OK);
	ck_assert_int_eq(moetrace_cuda_pass_end(lane), MOETRACE_OK);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM meta WHERE key = 'source.cuda'"
				    " AND value LIKE 'absent: no %%'"),
			 1);
	ck_assert_int_eq(db_int(db, "SELECT sum(n_times) * 10 + count(*) FROM diagnostic WHERE"
				    " source = 'cuda' AND message LIKE 'absent: no %%'"),
			 31);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM device WHERE kind = 'cuda'"), 0);
	db_close(db);
}
END_TEST

/* A function that the recorder needs is not there: said by name, and nothing is called. */
START_TEST(test_old_driver)
{
	struct toy toy = toy_start("old.db", NULL, 2, 16, 2);
	struct moetrace_cuda *cuda;
	char text[512];
	sqlite3 *db;

	(void)gpu_load_driver("old/.libs");
	ck_assert_int_eq(moetrace_cuda_attach(toy.session, NULL, &cuda), MOETRACE_E_UNSUPPORTED);
	moetrace_errmsg(toy.session, text, sizeof(text));
	ck_assert_str_eq(text, "cuda: libcuda.so.1 lacks cuDeviceGet: the driver is too old");
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT value FROM meta WHERE key = 'source.cuda'"),
			 "absent: libcuda.so.1 lacks cuDeviceGet: the driver is too old");
	db_close(db);
}
END_TEST

START_TEST(test_what_is_found)
{
	struct gpu gpu = gpu_start("found.db", 2, 16, 2, GPU_USUAL_RING);
	const struct moetrace_cuda_status status = gpu_status(&gpu);
	struct moetrace_cuda *other;
	sqlite3 *db;

	ck_assert_str_eq(status.name, "Fake GPU");
	ck_assert_uint_eq(status.driver_version, 13000);
	ck_assert_uint_eq(status.has_stream_writes, 1);
	ck_assert_uint_eq(status.has_kernels, 1);
	ck_assert_uint_eq(status.timer_resolution_ns, 32);
	ck_assert_uint_eq(status.ring_bytes, 64 << 20);
	ck_assert_int_eq(moetrace_cuda_attach(gpu.toy.session, NULL, &other), MOETRACE_E_LIMIT);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_str_eq(db_text(db, "SELECT name || ' ' || uuid FROM device WHERE kind = 'cuda'"),
			 "Fake GPU GPU-00112233-4455-6677-8899-aabbccddeeff");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM meta WHERE key = 'source.cuda'"
				    " AND value LIKE 'attached: driver 13.0, words written by the"
				    " stream%%'"),
			 1);
	/* The lanes' words, and nothing else. */
	ck_assert_uint_eq(gpu.fake->allocated_bytes(), 1024);
	db_close(db);
}
END_TEST

START_TEST(test_options)
{
	const uint32_t ordinals[] = {0, 7, UINT32_MAX};
	const struct fake_api *fake = gpu_load();
	struct toy toy = toy_open("options.db", NULL, 1, 16, 2);
	struct moetrace_cuda_opts opts;
	struct moetrace_cuda *cuda;
	char text[256];

	MOETRACE_INIT(&opts);
	opts.ring_bytes = 3 << 20;
	ck_assert_int_eq(moetrace_cuda_attach(toy.session, &opts, &cuda), MOETRACE_E_INVALID);
	opts.ring_bytes = UINT64_C(2) << 30;
	ck_assert_int_eq(moetrace_cuda_attach(toy.session, &opts, &cuda), MOETRACE_E_INVALID);
	opts.ring_bytes = 1 << 20;
	opts.size = 0;
	ck_assert_int_eq(moetrace_cuda_attach(toy.session, &opts, &cuda), MOETRACE_E_INVALID);
	moetrace_errmsg(toy.session, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "size is not set"));
	ck_assert_int_eq(moetrace_cuda_attach(NULL, NULL, &cuda), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_cuda_attach(toy.session, NULL, NULL), MOETRACE_E_INVALID);
	moetrace_errmsg(toy.session, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "no place for the handle"));
	opts.size = sizeof(opts);
	fake->make_current(false);
	ck_assert_int_eq(moetrace_cuda_attach(toy.session, &opts, &cuda), MOETRACE_E_UNSUPPORTED);
	for (int i = 2; i >= 0; i--) {
		opts.ordinal = &ordinals[i];
		ck_assert_int_eq(moetrace_cuda_attach(toy.session, &opts, &cuda),
				 i ? MOETRACE_E_UNSUPPORTED : MOETRACE_OK);
	}
	toy_close(&toy);
}
END_TEST

/* What the driver refuses at attach, and what comes of it. */
static const struct {
	const char *symbol;
	int status;
	uint32_t has_stream_writes, has_kernels;
} refusals[] = {
	{"cuStreamWriteValue64", MOETRACE_OK, 0, 1}, {"cuStreamWaitValue64", MOETRACE_OK, 1, 1},
	{"cuModuleLoadData", MOETRACE_OK, 1, 0},     {"cuLaunchKernel", MOETRACE_OK, 1, 0},
	{"cuMemAlloc", MOETRACE_E_NOMEM, 0, 0},	     {"cuMemHost", MOETRACE_E_NOMEM, 0, 0},
	{"cuMemHostRegister", MOETRACE_OK, 1, 1},    {"cuMemHostGetDevice", MOETRACE_OK, 1, 1},
	{"cuStreamCreate", MOETRACE_E_IO, 0, 0},     {"cuMemsetD8Async", MOETRACE_E_IO, 0, 0},
	{"cuCtxPushCurrent", MOETRACE_E_IO, 0, 0},   {"cuInit", MOETRACE_E_UNSUPPORTED, 0, 0},
	{"cuDeviceGetUuid", MOETRACE_OK, 1, 1},
};

START_TEST(test_refused)
{
	const struct fake_api *fake = gpu_load();
	struct gpu gpu = {.fake = fake};
	uint64_t request;
	sqlite3 *db;

	gpu.toy = toy_start("refused.db", NULL, 3, 64, 4);
	request = toy_request(&gpu.toy, "r");
	fake->refuse(refusals[_i].symbol, 0, 999);
	ck_assert_int_eq(moetrace_cuda_attach(gpu.toy.session, NULL, &gpu.cuda),
			 refusals[_i].status);
	if (refusals[_i].status) {
		fake->heal();
		db = toy_close_and_open(&gpu.toy);
		ck_assert_int_eq(db_int(db, "SELECT count(*) FROM meta WHERE key = 'source.cuda'"
					    " AND value LIKE 'absent: %%CUDA_ERROR_UNKNOWN'"),
				 1);
		ck_assert_uint_eq(fake->allocated_bytes(), 0);
		db_close(db);
		return;
	}
	ck_assert_uint_eq(gpu_status(&gpu).has_stream_writes, refusals[_i].has_stream_writes);
	ck_assert_uint_eq(gpu_status(&gpu).has_kernels, refusals[_i].has_kernels);
	gpu.lane = gpu_lane(&gpu, &gpu.stream);
	for (uint32_t i = 0; i < 50; i++)
		ck_assert_int_eq(gpu_pass(&gpu, request, i * 4, 4, 1), MOETRACE_OK);
	ck_assert_int_eq(
		moetrace_request_end(gpu.toy.session, request, MOETRACE_REQUEST_FINISHED, 200),
		MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM request"), "complete");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 50);
	/* Every GPU has a name of its own. */
	ck_assert_str_eq(db_text(db, "SELECT substr(uuid, 1, 6) FROM device WHERE kind = 'cuda'"),
			 strcmp(refusals[_i].symbol, "cuDeviceGetUuid") == 0 ? "cuda:0" : "GPU-00");
	db_close(db);
}
END_TEST

/* The device fails on the hot path: everything from then on is lost and counted, nothing crashes.
 */
static const char *const hot_calls[] = {"cuStreamWriteValue64", "cuStreamWaitValue64",
					"cuMemcpyDtoHAsync"};

START_TEST(test_hot_failure)
{
	struct gpu gpu = gpu_start("failure.db", 3, 64, 4, 0);
	const uint64_t request = toy_request(&gpu.toy, "r");
	sqlite3 *db;

	for (uint32_t i = 0; i < 10; i++)
		ck_assert_int_eq(gpu_pass(&gpu, request, i * 4, 4, 0), MOETRACE_OK);
	ck_assert_int_eq(moetrace_flush(gpu.toy.session), MOETRACE_OK);
	gpu.fake->refuse(hot_calls[_i], _i == 0 ? 1 : 0, 999);
	for (uint32_t i = 10; i < 20; i++)
		gpu_pass(&gpu, request, i * 4, 4, 0);
	gpu.fake->heal();
	ck_assert_int_eq(
		moetrace_request_end(gpu.toy.session, request, MOETRACE_REQUEST_FINISHED, 80),
		MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_stat(db, 1, "recorded_passes"), 10);
	ck_assert_int_eq(db_stat(db, 1, "dropped_passes"), 10);
	ck_assert_int_eq(db_int(db, "SELECT sum(n_lost) FROM gap WHERE reason = 'device'"), 10);
	ck_assert_str_eq(db_text(db, "SELECT verdict || ' ' || reasons FROM request"),
			 "partial lost");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM meta WHERE key = 'source.cuda'"
				    " AND value LIKE 'failed: %%CUDA_ERROR_UNKNOWN%%'"),
			 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM diagnostic WHERE source = 'cuda' AND"
				    " message LIKE 'failed: %%CUDA_ERROR_UNKNOWN%%'"),
			 1);
	db_close(db);
}
END_TEST

START_TEST(test_capturing)
{
	struct gpu gpu = gpu_start("capturing.db", 2, 16, 2, 0);
	struct moetrace_slice slice;
	const struct moetrace_pass_info info = gpu_info(&gpu, &slice, MOETRACE_NO_REQUEST, 0, 4, 0);
	struct moetrace_cuda_target target;
	struct moetrace_cuda_lane_info lane_info;
	struct moetrace_cuda_lane *lane;
	uint64_t n_calls;
	sqlite3 *db;

	gpu.fake->capture(gpu.stream, true);
	n_calls = gpu.fake->n_calls("cuStreamWriteValue64");
	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_E_STATE);
	ck_assert_int_eq(moetrace_cuda_target_get(gpu.lane, 0, 4, &target), MOETRACE_OK);
	MOETRACE_INIT(&lane_info);
	lane_info.stream = gpu.stream;
	lane_info.model = gpu.toy.model;
	ck_assert_int_eq(moetrace_cuda_lane_add(gpu.cuda, &lane_info, &lane), MOETRACE_E_STATE);
	ck_assert_uint_eq(gpu.fake->n_calls("cuStreamWriteValue64"), n_calls);
	gpu.fake->capture(gpu.stream, false);
	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_OK);
	gpu.fake->capture(gpu.stream, true);
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_E_STATE);
	gpu.fake->capture(gpu.stream, false);
	gpu_route(&gpu, gpu.lane, gpu.stream, 0, 4, 4);
	gpu_route(&gpu, gpu.lane, gpu.stream, 1, 4, 4);
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 1);
	ck_assert_int_eq(db_int(db, "SELECT n_times FROM diagnostic WHERE source = 'cuda'"), 2);
	db_close(db);
}
END_TEST

START_TEST(test_misuse)
{
	struct gpu gpu = gpu_start("misuse.db", 2, 16, 2, 0);
	struct moetrace_slice slice;
	struct moetrace_pass_info info = gpu_info(&gpu, &slice, MOETRACE_NO_REQUEST, 0, 4, 0);
	sqlite3 *db;

	/* Ended without a begin. */
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_E_STATE);
	/* Begun twice: the first is lost. */
	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_OK);
	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
	/* Inconsistent: the rows are not the slices'. */
	info.n_rows = 5;
	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
	/* Of another model. */
	info.n_rows = 4;
	info.model = toy_model_add(gpu.toy.session, "other", 0, 1, 16, 2);
	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 2);
	ck_assert_int_eq(db_int(db, "SELECT sum(n_lost) FROM gap WHERE reason = 'device'"), 1);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 4);
	db_close(db);
}
END_TEST

/* Another thread of the parent says something at the moment of the fork. */
START_TEST(test_forked_child)
{
	struct toy toy = toy_open("forked.db", NULL, 1, 8, 2);
	int status;
	pid_t pid;

	pthread_mutex_lock(&toy.session->text);
	pid = fork();
	if (pid == 0) {
		alarm(30); /* a child that hangs is killed */
		_exit(moetrace_cuda_attach(toy.session, NULL, NULL) != MOETRACE_E_STATE);
	}
	pthread_mutex_unlock(&toy.session->text);
	ck_assert_int_ge(pid, 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	toy_close(&toy);
}
END_TEST

/* A pass that the device does not finish: stop and close give up, and say what they lost. */
START_TEST(test_close_in_flight)
{
	struct gpu gpu = gpu_start_hasty("hung.db", 2, 64, 4);
	const uint64_t request = toy_request(&gpu.toy, "r");
	sqlite3 *db;

	ck_assert_int_eq(gpu_pass(&gpu, request, 0, 4, 0), MOETRACE_OK);
	WAIT_UNTIL(gpu_status(&gpu).delivered_passes == 1);
	ck_assert_int_eq(moetrace_flush(gpu.toy.session), MOETRACE_OK);
	gpu.fake->hold(true);
	for (uint32_t i = 1; i < 4; i++)
		ck_assert_int_eq(gpu_pass(&gpu, request, i * 4, 4, 0), MOETRACE_OK);
	ck_assert_int_eq(moetrace_flush(gpu.toy.session), MOETRACE_E_TIMEOUT);
	ck_assert_int_eq(
		moetrace_request_end(gpu.toy.session, request, MOETRACE_REQUEST_FINISHED, 16),
		MOETRACE_OK);
	if (_i == 0)
		ck_assert_int_eq(moetrace_stop(gpu.toy.session, NULL), MOETRACE_E_TIMEOUT);
	if (_i == 2) {
		gpu.fake->hold(false);
		WAIT_UNTIL(gpu_status(&gpu).delivered_passes == 4);
	}
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), _i == 2 ? 4 : 1);
	ck_assert_int_eq(
		db_int(db, "SELECT ifnull(sum(n_lost), 0) FROM gap WHERE reason = 'device'"),
		_i == 2 ? 0 : 3);
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM request"),
			 _i == 2 ? "complete" : "partial");
	ck_assert_uint_eq(gpu.fake->allocated_bytes() > 1024, _i != 2);
	db_close(db);
}
END_TEST

/* Passes that arrive after stop gave up on them belong to no recording. */
START_TEST(test_late_after_stop)
{
	struct gpu gpu = gpu_start_hasty("late.db", 2, 64, 4);
	sqlite3 *db;

	gpu.fake->hold(true);
	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
	ck_assert_int_eq(moetrace_stop(gpu.toy.session, NULL), MOETRACE_E_TIMEOUT);
	ck_assert_int_eq(moetrace_start(gpu.toy.session, NULL), MOETRACE_OK);
	gpu.fake->hold(false);
	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
	WAIT_UNTIL(gpu_status(&gpu).delivered_passes == 1);
	ck_assert_int_eq(moetrace_stop(gpu.toy.session, NULL), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE recording_id = 2"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 1);
	ck_assert_int_eq(db_int(db, "SELECT n_lost FROM gap WHERE recording_id = 1"), 1);
	db_close(db);
}
END_TEST

/* A child makes no call of the driver, and can close its copy. */
START_TEST(test_fork)
{
	struct gpu gpu = gpu_start("fork.db", 2, 64, 4, 0);
	int status;
	pid_t child;
	sqlite3 *db;

	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
	ck_assert_int_eq(moetrace_flush(gpu.toy.session), MOETRACE_OK);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		struct moetrace_slice slice;
		struct moetrace_pass_info info =
			gpu_info(&gpu, &slice, MOETRACE_NO_REQUEST, 0, 4, 0);
		struct moetrace_cuda *cuda;
		int is_good;

		is_good = moetrace_cuda_pass_begin(gpu.lane, &info) == MOETRACE_E_STATE &&
			  moetrace_cuda_pass_end(gpu.lane) == MOETRACE_E_STATE &&
			  moetrace_cuda_attach(gpu.toy.session, NULL, &cuda) == MOETRACE_E_STATE &&
			  moetrace_session_close(gpu.toy.session) == MOETRACE_OK;
		_exit(is_good ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 2);
	db_close(db);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("cuda attach");
	TCase *tc = tcase_create("attach");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_no_driver);
	tcase_add_test(tc, test_old_driver);
	tcase_add_test(tc, test_what_is_found);
	tcase_add_test(tc, test_options);
	tcase_add_loop_test(tc, test_refused, 0, (int)(sizeof(refusals) / sizeof(refusals[0])));
	tcase_add_loop_test(tc, test_hot_failure, 0,
			    (int)(sizeof(hot_calls) / sizeof(hot_calls[0])));
	tcase_add_test(tc, test_capturing);
	tcase_add_test(tc, test_misuse);
	tcase_add_loop_test(tc, test_close_in_flight, 0, 3);
	tcase_add_test(tc, test_forked_child);
	tcase_add_test(tc, test_late_after_stop);
	tcase_add_test(tc, test_fork);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
