/* SPDX-License-Identifier: MIT */
/*
 * Recordings that follow each other while passes are on a GPU, against a fake driver: each pass is in
 * the recording that was on when it began, however late it comes, or is counted as lost there.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "libtrace/cuda/capture.h"
#include "tests/cuda/support/caller.h"
#include "tests/cuda/support/gpu_toy.h"
#include "tests/fault/support/io_fault.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

/* Until passes that begin belong to this recording. */
static void wait_for_recording(const struct gpu *gpu, uint32_t recording_id)
{
	WAIT_UNTIL(toy_status(&gpu->toy).recording_id == recording_id);
}

static void wait_for_delivered(const struct gpu *gpu, uint64_t n_passes)
{
	WAIT_UNTIL(gpu_status(gpu).delivered_passes >= n_passes);
}

/* A lane in a stream of its own, of the same device or of another. */
static struct gpu second_lane(const struct gpu *gpu)
{
	struct gpu other = *gpu;

	other.lane = gpu_lane(&other, &other.stream);
	return other;
}

/* Of "x.db" the file that was rotated into as number @n, 0: itself. */
static sqlite3 *open_part(const struct gpu *gpu, uint32_t n)
{
	char path[1024];

	snprintf(path, sizeof(path), "%s", gpu->toy.path);
	if (n)
		snprintf(path + strlen(path) - strlen(".db"), sizeof(path) / 2, ".%u.db", n);
	return db_open(path);
}

/* The file has a pass of the request of this name, complete like that, nothing else and no loss. */
static void expect(const struct gpu *gpu, uint32_t n, const char *external_id)
{
	sqlite3 *db = open_part(gpu, n);

	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM gap"), 0);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(external_id || ' ' || p.verdict || ' ' ||"
				     " r.verdict) FROM pass p JOIN pass_request USING (pass_id)"
				     " JOIN request r USING (recording_id, request_id)"),
			 external_id);
	db_close(db);
}

/* Passes that have begun after the switch are none of a rotation's business. */
START_TEST(test_rotate_with_next_in_flight)
{
	struct gpu one = gpu_start("next.db", 2, 64, 4, 0);
	struct gpu two = second_lane(&one);
	const uint64_t old = toy_request(&one.toy, "old");
	uint64_t new;
	struct caller caller;

	one.fake->hold_one(one.stream, true);
	one.fake->hold_one(two.stream, true);
	ck_assert_int_eq(gpu_pass(&one, old, 0, 4, 0), MOETRACE_OK);
	toy_request_end(&one.toy, old, 4);
	caller_start(&caller, one.toy.session, caller_rotate);
	wait_for_recording(&one, 2);
	new = toy_request(&one.toy, "new");
	ck_assert_int_eq(gpu_pass(&two, new, 0, 4, 0), MOETRACE_OK);
	/* Kept back for the pass before it, also when the rotation is over. */
	toy_request_end(&one.toy, new, 4);
	one.fake->hold_one(one.stream, false);
	ck_assert_int_eq(caller_status(&caller), MOETRACE_OK);
	ck_assert_uint_eq(gpu_status(&one).lost_passes, 0);
	one.fake->hold_one(two.stream, false);
	ck_assert_int_eq(moetrace_flush(one.toy.session), MOETRACE_OK);
	toy_close(&one.toy);
	expect(&one, 0, "old complete complete");
	expect(&one, 1, "new complete complete");
}
END_TEST

/*
 * The old pass comes after a pass of the next recording, which waits in a ring of the recorder: behind
 * it the old one would come too late.
 */
START_TEST(test_rotate_with_late_device)
{
	struct gpu one = gpu_start("late.db", 2, 64, 4, 0);
	struct gpu two = gpu_second_device(&one);
	const uint64_t old = toy_request(&one.toy, "old");
	uint64_t new;
	struct caller caller;

	one.fake->hold_one(one.stream, true);
	ck_assert_int_eq(gpu_pass(&one, old, 0, 4, 0), MOETRACE_OK);
	caller_start(&caller, one.toy.session, caller_rotate);
	wait_for_recording(&one, 2);
	new = toy_request(&one.toy, "new");
	ck_assert_int_eq(gpu_pass(&two, new, 0, 4, 0), MOETRACE_OK);
	wait_for_delivered(&two, 1);
	one.fake->hold_one(one.stream, false);
	ck_assert_int_eq(caller_status(&caller), MOETRACE_OK);
	toy_request_end(&one.toy, new, 4);
	toy_close(&one.toy);
	expect(&one, 0, "old complete unfinished");
	expect(&one, 1, "new complete complete");
}
END_TEST

#define FILE_BYTES (UINT64_C(2) << 20)

/* Passes of no request from the host, until the writer begins another file and recording. */
static void fill_file(const struct gpu *gpu)
{
	for (;;) {
		const struct moetrace_session_status status = toy_status(&gpu->toy);

		if (status.recording_id != 1)
			return;
		if (status.ring_fill_bytes > FILE_BYTES / 4)
			suite_sleep_ms(1);
		else
			REQUIRE(toy_pass(&gpu->toy, MOETRACE_PHASE_DECODE, MOETRACE_NO_REQUEST, 0, 500),
				"a pass is not recorded");
	}
}

/* A session that rotates by itself at some size, or that keeps a recording in memory. */
static struct gpu start_switching(const char *name, uint64_t rotate_bytes, uint64_t flight_bytes,
				  uint32_t stop_timeout_ms)
{
	struct moetrace_session_opts opts = toy_opts();
	struct moetrace_recording_opts recording;
	struct gpu gpu;

	opts.stop_timeout_ms = stop_timeout_ms;
	opts.rotate_bytes = rotate_bytes;
	MOETRACE_INIT(&recording);
	recording.flight_bytes = flight_bytes;
	gpu = gpu_open_idle(name, &opts, 2, 64, 4, 0);
	ck_assert_int_eq(moetrace_start(gpu.toy.session, &recording), MOETRACE_OK);
	return gpu;
}

/* The writer begins another recording by itself while a pass is on the GPU. */
START_TEST(test_writer_waits)
{
	const bool is_flight = _i == 1;
	struct gpu gpu = start_switching("self.db", is_flight ? 0 : FILE_BYTES,
					 is_flight ? UINT64_C(1) << 20 : 0, toy_opts().stop_timeout_ms);
	const uint64_t old = toy_request(&gpu.toy, "old");

	gpu.fake->hold(true);
	ck_assert_int_eq(gpu_pass(&gpu, old, 0, 4, 0), MOETRACE_OK);
	toy_request_end(&gpu.toy, old, 4);
	if (is_flight)
		ck_assert_int_eq(moetrace_flight_trigger(gpu.toy.session, "now"), MOETRACE_OK);
	else
		fill_file(&gpu);
	wait_for_recording(&gpu, 2);
	/* Time for a writer that does not look for passes on the GPU to go on without. */
	suite_sleep_ms(100);
	gpu.fake->hold(false);
	wait_for_delivered(&gpu, 1);
	toy_close(&gpu.toy);
	expect(&gpu, 0, "old complete complete");
}
END_TEST

static int64_t n_lost(const struct gpu *gpu, uint32_t part)
{
	sqlite3 *db = open_part(gpu, part);
	const int64_t n = db_int(db, "SELECT ifnull(sum(n_lost), 0) FROM gap");

	db_close(db);
	return n;
}

/*
 * The pass before the switch does not come in time: it is counted as lost where it belongs. The pass
 * after it is recorded.
 */
START_TEST(test_given_up)
{
	const bool is_asked = _i == 0;
	struct gpu one = start_switching("given-up.db", is_asked ? 0 : FILE_BYTES, 0, 200);
	struct gpu two = second_lane(&one);
	struct caller caller;
	uint64_t new;

	one.fake->hold_one(one.stream, true);
	ck_assert_int_eq(gpu_pass(&one, toy_request(&one.toy, "old"), 0, 4, 0), MOETRACE_OK);
	if (is_asked)
		caller_start(&caller, one.toy.session, caller_rotate);
	else
		fill_file(&one);
	wait_for_recording(&one, 2);
	new = toy_request(&one.toy, "new");
	ck_assert_int_eq(gpu_pass(&two, new, 0, 4, 0), MOETRACE_OK);
	toy_request_end(&one.toy, new, 4);
	if (is_asked)
		ck_assert_int_eq(caller_status(&caller), MOETRACE_E_TIMEOUT);
	WAIT_UNTIL(gpu_status(&one).lost_passes == 1);
	one.fake->hold_one(one.stream, false);
	wait_for_delivered(&one, 1);
	toy_close(&one.toy);
	ck_assert_int_eq(n_lost(&one, 0), 1);
	expect(&one, 1, "new complete complete");
}
END_TEST

/* The recording ends by itself, at the file's limit or for want of a disk, with a pass on the GPU. */
START_TEST(test_ends_by_itself)
{
	const bool is_limit = _i == 0;
	struct moetrace_session_opts opts = toy_opts();
	struct gpu gpu;

	io_fault_install();
	opts.file_limit_bytes = is_limit ? 1 << 20 : 0;
	gpu = gpu_open_idle("full.db", &opts, 2, 64, 4, 0);
	ck_assert_int_eq(moetrace_start(gpu.toy.session, NULL), MOETRACE_OK);
	gpu.fake->hold(true);
	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
	if (!is_limit)
		io_fault_fail(ENOSPC, 0);
	while (!toy_status(&gpu.toy).is_failed)
		if (!is_limit ||
		    !toy_pass(&gpu.toy, MOETRACE_PHASE_DECODE, MOETRACE_NO_REQUEST, 0, 500))
			suite_sleep_ms(1);
	io_fault_fail(0, 0);
	WAIT_UNTIL(gpu_status(&gpu).lost_passes == 1);
	gpu.fake->hold(false);
	(void)moetrace_session_close(gpu.toy.session);
	if (!is_limit) {
		ck_assert_int_eq(n_lost(&gpu, 0), 1);
	} else {
		sqlite3 *db = db_open(gpu.toy.path);

		ck_assert_int_eq(db_int(db, "SELECT sum(n_lost) FROM gap WHERE reason = 'device'"),
				 1);
		db_close(db);
	}
}
END_TEST

struct end {
	struct caller caller; /* first: its address is that of all */
	uint64_t request;
};

static void *end_request(void *argument)
{
	struct end *end = argument;

	end->caller.status = moetrace_request_end(end->caller.session, end->request,
						  MOETRACE_REQUEST_FINISHED,
						  MOETRACE_POSITIONS_UNKNOWN);
	return NULL;
}

/* A pass is lost while the end of its request is being said. */
START_TEST(test_lost_as_its_request_ends)
{
	struct gpu gpu = gpu_start("lost.db", 2, 64, 4, 0);
	struct end end = {.request = toy_request(&gpu.toy, "r")};
	struct mt_cuda_set *set = atomic_load(&gpu.toy.session->cuda);
	struct moetrace_slice slice;
	const struct moetrace_pass_info info = gpu_info(&gpu, &slice, end.request, 4, 4, 0);
	sqlite3 *db;

	ck_assert_int_eq(gpu_pass(&gpu, end.request, 0, 4, 0), MOETRACE_OK);
	ck_assert_int_eq(moetrace_flush(gpu.toy.session), MOETRACE_OK);
	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_OK);
	pthread_mutex_lock(&set->messages);
	caller_start(&end.caller, gpu.toy.session, end_request);
	/* Time for the caller to come to where it asks whether passes are in flight. */
	suite_sleep_ms(20);
	gpu.fake->refuse("cuMemcpyDtoH", 0, 700);
	moetrace_cuda_pass_end(gpu.lane);
	WAIT_UNTIL(!mt_cuda_in_flight(gpu.cuda));
	pthread_mutex_unlock(&set->messages);
	ck_assert_int_eq(caller_status(&end.caller), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_str_eq(db_text(db, "SELECT verdict || ':' || reasons FROM request"),
			 "partial:lost");
	db_close(db);
}
END_TEST

/* What was given up on one device is no longer waited for by what is recorded on another. */
START_TEST(test_other_device_hangs)
{
	struct moetrace_session_opts opts = toy_opts();
	struct gpu one, two;
	uint64_t request;

	opts.stop_timeout_ms = 100;
	one = gpu_open_idle("hangs.db", &opts, 2, 64, 4, 0);
	two = gpu_second_device(&one);
	ck_assert_int_eq(moetrace_start(one.toy.session, NULL), MOETRACE_OK);
	one.fake->hold_one(two.stream, true);
	ck_assert_int_eq(gpu_pass(&two, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
	ck_assert_int_eq(moetrace_stop(one.toy.session, NULL), MOETRACE_E_TIMEOUT);
	ck_assert_int_eq(moetrace_start(one.toy.session, NULL), MOETRACE_OK);
	request = toy_request(&one.toy, "r");
	one.fake->hold_one(one.stream, true);
	ck_assert_int_eq(gpu_pass(&one, request, 0, 4, 0), MOETRACE_OK);
	/* Kept back for that pass alone. */
	toy_request_end(&one.toy, request, 4);
	ck_assert_int_eq(gpu_pass(&one, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
	one.fake->hold_one(one.stream, false);
	wait_for_delivered(&one, 2);
	one.fake->hold_one(two.stream, false);
	toy_close(&one.toy);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("switch");
	TCase *tc = tcase_create("switch");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_rotate_with_next_in_flight);
	tcase_add_test(tc, test_rotate_with_late_device);
	tcase_add_loop_test(tc, test_writer_waits, 0, 2);
	tcase_add_loop_test(tc, test_given_up, 0, 2);
	tcase_add_test(tc, test_other_device_hangs);
	tcase_add_test(tc, test_lost_as_its_request_ends);
	tcase_add_loop_test(tc, test_ends_by_itself, 0, 2);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
