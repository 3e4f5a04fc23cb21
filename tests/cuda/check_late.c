/* SPDX-License-Identifier: MIT */
/*
 * The moments in which one recording follows another, held still: what is lost or comes late then
 * is told in the recording that it belongs to, once. Against a fake driver.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libtrace/cuda/capture.h"
#include "libtrace/late.h"
#include "tests/cuda/support/caller.h"
#include "tests/cuda/support/gpu_toy.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

/* Where a thread asks for the time it is stopped, once, and goes on when that is over. */
static struct {
	_Atomic bool is_on;
	_Atomic bool is_reached;
	bool (*is_here)(void);
	bool (*is_over)(void);
} stop;

int clock_gettime(clockid_t clock, struct timespec *ret_time)
{
	const struct timespec pause = {0, 1000000};
	bool is_on = true;

	if (atomic_load(&stop.is_on) && stop.is_here() &&
	    atomic_compare_exchange_strong(&stop.is_on, &is_on, false)) {
		atomic_store(&stop.is_reached, true);
		while (!stop.is_over())
			nanosleep(&pause, NULL);
	}
	return (int)syscall(SYS_clock_gettime, clock, ret_time);
}

static void stop_where(bool (*is_here)(void), bool (*is_over)(void))
{
	stop.is_here = is_here;
	stop.is_over = is_over;
	atomic_store(&stop.is_on, true);
}

static _Atomic bool is_let_go;

static bool is_released(void)
{
	return atomic_load(&is_let_go);
}

/* A pass of recording 1 is on the second GPU, and recording 2 has begun. */
static void switch_with_one_late(struct gpu *late, struct caller *caller)
{
	late->fake->hold_one(late->stream, true);
	ck_assert_int_eq(gpu_pass(late, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
	caller_start(caller, late->toy.session, caller_rotate);
	WAIT_UNTIL(toy_status(&late->toy).recording_id == 2);
}

static void let_come(struct gpu *late, struct caller *caller)
{
	late->fake->hold_one(late->stream, false);
	ck_assert_int_eq(caller_status(caller), MOETRACE_OK);
}

/* The gaps of the file that was rotated into as number @n, 0: the first one, which is proved. */
static void expect_gaps(const struct gpu *gpu, uint32_t n, uint64_t n_passes, const char *gaps)
{
	char path[1024];
	sqlite3 *db;

	snprintf(path, sizeof(path), "%s", gpu->toy.path);
	if (n)
		snprintf(path + strlen(path) - strlen(".db"), sizeof(path) / 2, ".%u.db", n);
	agree_prove(path);
	db = db_open(path);
	agree_check(db);
	ck_assert_str_eq(db_text(db, "SELECT ifnull(group_concat(lost), '') FROM (SELECT stream ||"
				     " ' ' || reason || ' ' || sum(n_lost) AS lost FROM gap"
				     " GROUP BY stream, reason ORDER BY stream, reason)"),
			 gaps);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), (int64_t)n_passes);
	db_close(db);
}

/* The next recording loses a pass, and layers, before the writer has ended the old one. */
START_TEST(test_lost_of_the_next)
{
	struct moetrace_session_opts opts = toy_opts();
	struct gpu one = gpu_open_idle("next.db", &opts, 4, 16, 4, 1 << 20);
	struct gpu two = one;
	struct gpu late = gpu_second_device(&one);
	struct moetrace_slice slice;
	const struct moetrace_pass_info large =
		gpu_info(&one, &slice, MOETRACE_NO_REQUEST, 0, 20000, 0);
	struct caller caller;

	two.lane = gpu_lane(&two, &two.stream);
	ck_assert_int_eq(moetrace_start(one.toy.session, NULL), MOETRACE_OK);
	switch_with_one_late(&late, &caller);
	ck_assert_int_eq(moetrace_cuda_pass_begin(one.lane, &large), MOETRACE_E_LIMIT);
	moetrace_cuda_pass_end(one.lane);
	/* Four groups, and of the next pass one: then the ring is full. */
	one.fake->hold_one(one.stream, true);
	ck_assert_int_eq(gpu_pass(&one, MOETRACE_NO_REQUEST, 0, 4500, 0), MOETRACE_OK);
	ck_assert_int_eq(gpu_pass(&two, MOETRACE_NO_REQUEST, 0, 4500, 0), MOETRACE_OK);
	one.fake->hold_one(one.stream, false);
	WAIT_UNTIL(gpu_status(&one).delivered_passes == 2);
	ck_assert_uint_eq(gpu_status(&late).delivered_passes, 0);
	let_come(&late, &caller);
	toy_close(&one.toy);
	expect_gaps(&one, 0, 1, "");
	expect_gaps(&one, 1, 2, "layer ring_full 3,pass device_ring_full 1");
}
END_TEST

/* Passes of the next recording have been in all rings when the old one comes: each had its own. */
START_TEST(test_late_has_a_ring)
{
	struct moetrace_session_opts opts = toy_opts();
	const struct moetrace_slice slice = {.n_rows = 1};
	struct moetrace_pass *passes[64];
	const uint32_t n_rings = _i < 4 ? (uint32_t)_i : 64;
	struct gpu one, late;
	struct caller caller;

	opts.n_rings = n_rings;
	opts.ring_bytes = UINT64_C(1) << 18;
	one = gpu_open_idle("ring.db", &opts, 2, 64, 4, 0);
	late = gpu_second_device(&one);
	ck_assert_int_eq(moetrace_start(one.toy.session, NULL), MOETRACE_OK);
	switch_with_one_late(&late, &caller);
	for (uint32_t i = 0; i < n_rings; i++) {
		passes[i] = toy_begin(&one.toy, MOETRACE_PHASE_DECODE, &slice, 1);
		ck_assert(passes[i]);
	}
	/* There is one more, and it is not theirs. */
	ck_assert(!toy_begin(&one.toy, MOETRACE_PHASE_DECODE, &slice, 1));
	for (uint32_t i = 0; i < n_rings; i++)
		toy_finish(&one.toy, passes[i], 1);
	let_come(&late, &caller);
	ck_assert_uint_eq(gpu_status(&late).delivered_passes, 1);
	toy_close(&one.toy);
	expect_gaps(&one, 0, 1, "");
	expect_gaps(&one, 1, n_rings, "pass no_ring 1");
}
END_TEST

static struct gpu watched;
static _Thread_local bool is_refused_here;

static bool is_refusing(void)
{
	return is_refused_here;
}

static bool is_given_up(void)
{
	struct moetrace_cuda *cuda = watched.cuda;
	uint32_t abandoned_id;

	pthread_mutex_lock(&cuda->deliver);
	abandoned_id = cuda->abandoned_id;
	pthread_mutex_unlock(&cuda->deliver);
	return abandoned_id != 0;
}

static void *begin_too_large(void *argument)
{
	struct caller *caller = argument;
	struct moetrace_slice slice;
	const struct moetrace_pass_info info =
		gpu_info(&watched, &slice, MOETRACE_NO_REQUEST, 0, 200000, 0);

	is_refused_here = true;
	caller->status = moetrace_cuda_pass_begin(watched.lane, &info);
	is_refused_here = false;
	return NULL;
}

/* A pass is refused while its recording is given up. */
START_TEST(test_refused_as_given_up)
{
	struct moetrace_session_opts opts = toy_opts();
	struct caller caller;

	opts.stop_timeout_ms = 20;
	watched = gpu_open_idle("refused.db", &opts, 2, 64, 4, 0);
	ck_assert_int_eq(moetrace_start(watched.toy.session, NULL), MOETRACE_OK);
	stop_where(is_refusing, is_given_up);
	caller_start(&caller, watched.toy.session, begin_too_large);
	WAIT_UNTIL(atomic_load(&stop.is_reached));
	(void)moetrace_stop(watched.toy.session, NULL);
	ck_assert_int_eq(caller_status(&caller), MOETRACE_E_LIMIT);
	ck_assert_uint_eq(gpu_status(&watched).refused_passes, 1);
	ck_assert_uint_eq(gpu_status(&watched).lost_passes, 0);
	toy_close(&watched.toy);
	expect_gaps(&watched, 0, 0, "pass device_ring_full 1");
}
END_TEST

static bool has_writer_moved(void)
{
	const struct moetrace_session *session = watched.toy.session;

	return pthread_equal(pthread_self(), session->thread) &&
	       strcmp(session->path, watched.toy.path) != 0 && session->published.recording_id == 1;
}

/* The writer is in the next file, and has committed nothing there yet. */
START_TEST(test_watermark_between_two_files)
{
	struct moetrace_session_opts opts = toy_opts();
	struct moetrace_dump_result result;

	opts.rotate_ns = 50000000;
	watched.toy = toy_open("files.db", &opts, 2, 64, 4);
	ck_assert_int_eq(moetrace_start(watched.toy.session, NULL), MOETRACE_OK);
	stop_where(has_writer_moved, is_released);
	WAIT_UNTIL(atomic_load(&stop.is_reached));
	mt_session_watermark(watched.toy.session, 0, &result);
	atomic_store(&is_let_go, true);
	ck_assert_uint_eq(result.recording_id, 1);
	ck_assert_str_eq(result.path, watched.toy.path);
	toy_close(&watched.toy);
}
END_TEST

static bool is_writer(void)
{
	return pthread_equal(pthread_self(), watched.toy.session->thread);
}

static void *page;
static _Atomic bool is_in_begin;

/* The thread reads the page's slots in the middle of a begin. */
static void wait_in_begin(int number)
{
	const struct timespec pause = {0, 1000000};

	(void)number;
	atomic_store(&is_in_begin, true);
	while (!is_released())
		nanosleep(&pause, NULL);
	if (mprotect(page, 4096, PROT_READ))
		_exit(99);
}

static void *begin_slowly(void *argument)
{
	struct caller *caller = argument;
	struct toy *toy = &watched.toy;
	struct moetrace_slice slice;
	struct moetrace_pass_info info = gpu_info(&watched, &slice, MOETRACE_NO_REQUEST, 0, 1, 0);

	info.kv_slots = page;
	info.kv_slot_type = MOETRACE_TYPE_I64;
	toy_finish(toy, moetrace_pass_begin(caller->session, &info), 1);
	return NULL;
}

/* A thread does not come out of the begin of its pass before stop gives up. */
START_TEST(test_stop_during_a_begin)
{
	struct moetrace_session_opts opts = toy_opts();
	const struct sigaction action = {.sa_handler = wait_in_begin};
	struct caller caller;

	page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert(page != MAP_FAILED);
	ck_assert_int_eq(sigaction(SIGSEGV, &action, NULL), 0);
	opts.stop_timeout_ms = 20;
	watched.toy = toy_start("begin.db", &opts, 2, 64, 4);
	ck_assert(toy_pass(&watched.toy, MOETRACE_PHASE_DECODE, MOETRACE_NO_REQUEST, 0, 1));
	caller_start(&caller, watched.toy.session, begin_slowly);
	WAIT_UNTIL(atomic_load(&is_in_begin));
	ck_assert_int_eq(moetrace_stop(watched.toy.session, NULL), MOETRACE_E_TIMEOUT);
	atomic_store(&is_let_go, true);
	(void)caller_status(&caller);
	toy_close(&watched.toy);
	expect_gaps(&watched, 0, 1, "pass stop_timeout 1");
}
END_TEST

/*
 * A thread is between the latch of its pass and BEGIN when stop gives up, and is through before the
 * writer hears of that. The two halves are done by hand, since nothing in between can be held.
 */
START_TEST(test_stop_before_a_begin)
{
	struct moetrace_session_opts opts = toy_opts();
	struct moetrace_session *session;
	struct moetrace_slice slice;
	struct mt_pass_start start = {.recording_id = 1};
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;
	struct mt_ring *ring;
	struct caller caller;

	opts.stop_timeout_ms = 20;
	watched.toy = toy_start("before.db", &opts, 2, 64, 4);
	session = watched.toy.session;
	info = gpu_info(&watched, &slice, MOETRACE_NO_REQUEST, 0, 1, 0);
	ck_assert(toy_pass(&watched.toy, MOETRACE_PHASE_DECODE, MOETRACE_NO_REQUEST, 0, 1));
	ck_assert_int_eq(moetrace_flush(session), MOETRACE_OK);
	ring = mt_ring_claim(&session->pool);
	atomic_store(&session->passes[mt_ring_index(&session->pool, ring)].recording_id, 1);
	stop_where(is_writer, is_released);
	WAIT_UNTIL(atomic_load(&stop.is_reached));
	caller_start(&caller, session, caller_stop);
	WAIT_UNTIL(mt_queue_has_messages(&session->queue));
	atomic_store(&session->passes[mt_ring_index(&session->pool, ring)].recording_id, 0);
	mt_ring_release(&session->pool, ring);
	ck_assert_int_eq(mt_pass_check(session, &info, &start), 0);
	ck_assert_int_eq(mt_pass_begin_late(session, &info, &start, &pass), MOETRACE_OK);
	toy_finish(&watched.toy, pass, 1);
	atomic_store(&is_let_go, true);
	ck_assert_int_eq(caller_status(&caller), MOETRACE_E_TIMEOUT);
	toy_close(&watched.toy);
	expect_gaps(&watched, 0, 1, "pass stop_timeout 1");
}
END_TEST

#define FLIGHT_BYTES (UINT64_C(1) << 20)
#define TEXT_BYTES   200000u

/* Passes until what came first has been let go, up to somewhere in the text. */
static void fill_flight(const struct toy *toy)
{
	const uint64_t before_bytes = toy_status(toy).flight_fill_bytes;
	uint64_t pass_bytes;

	ck_assert(toy_pass(toy, MOETRACE_PHASE_DECODE, MOETRACE_NO_REQUEST, 0, 500));
	ck_assert_int_eq(moetrace_flush(toy->session), MOETRACE_OK);
	pass_bytes = toy_status(toy).flight_fill_bytes - before_bytes;
	for (uint64_t i = 1; before_bytes + i * pass_bytes < FLIGHT_BYTES + TEXT_BYTES / 2; i++) {
		REQUIRE(toy_pass(toy, MOETRACE_PHASE_DECODE, MOETRACE_NO_REQUEST, 0, 500),
			"a pass is not recorded");
		REQUIRE(moetrace_flush(toy->session) == MOETRACE_OK, "no flush");
	}
}

/* The writer sees that layers are lost before it sees their pass: flight mode keeps both or none. */
START_TEST(test_flight_keeps_losses)
{
	struct moetrace_session_opts opts = toy_opts();
	struct toy *toy = &watched.toy;
	const struct moetrace_slice slice = {.n_rows = 6000};
	struct moetrace_recording_opts recording;
	struct moetrace_dump_result result;
	struct caller caller;
	char *text = malloc(TEXT_BYTES + 1);
	uint64_t request;
	sqlite3 *db;

	REQUIRE(text, "out of memory");
	memset(text, 'x', TEXT_BYTES);
	text[TEXT_BYTES] = '\0';
	opts.n_rings = 1;
	opts.ring_bytes = UINT64_C(1) << 16;
	MOETRACE_INIT(&recording);
	recording.flight_bytes = FLIGHT_BYTES;
	*toy = toy_open("flight.db", &opts, 2, 64, 4);
	ck_assert_int_eq(moetrace_start(toy->session, &recording), MOETRACE_OK);
	request = toy_request(toy, "r");
	ck_assert_int_eq(moetrace_flush(toy->session), MOETRACE_OK);
	stop_where(is_writer, is_released);
	WAIT_UNTIL(atomic_load(&stop.is_reached));
	caller_start(&caller, toy->session, caller_flush);
	/* It says up to where the rings are to be taken first. */
	WAIT_UNTIL(mt_queue_has_messages(&toy->session->queue));
	ck_assert_int_eq(moetrace_request_attribute_set(toy->session, request, "text", text),
			 MOETRACE_OK);
	toy_finish(toy, toy_begin(toy, MOETRACE_PHASE_DECODE, &slice, 1), 6000);
	atomic_store(&is_let_go, true);
	ck_assert_int_eq(caller_status(&caller), MOETRACE_OK);
	ck_assert_int_eq(moetrace_flush(toy->session), MOETRACE_OK);
	fill_flight(toy);
	MOETRACE_INIT(&result);
	ck_assert_int_eq(moetrace_dump(toy->session, &result), MOETRACE_OK);
	toy_close(toy);
	free(text);
	agree_prove(toy->path);
	db = db_open(toy->path);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE n_rows = 6000"), 1);
	ck_assert_int_eq(db_int(db, "SELECT sum(n_lost) FROM gap WHERE stream = 'layer'"), 2);
	db_close(db);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("late");
	TCase *tc = tcase_create("late");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_lost_of_the_next);
	tcase_add_loop_test(tc, test_late_has_a_ring, 1, 5);
	tcase_add_test(tc, test_refused_as_given_up);
	tcase_add_test(tc, test_watermark_between_two_files);
	tcase_add_test(tc, test_stop_during_a_begin);
	tcase_add_test(tc, test_stop_before_a_begin);
	tcase_add_test(tc, test_flight_keeps_losses);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
