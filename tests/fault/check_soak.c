/* SPDX-License-Identifier: MIT */
/*
 * Half a minute (ten minutes each in the long tier): at a moderate rate with default rings, where
 * nothing is lost; then under life-cycle calls at random from four threads. Memory does not grow,
 * and the files agree with themselves.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/rng.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

enum {
	N_THREADS = 2,
	N_LAYERS = 8,
	N_ROWS = 32,
	PASSES_PER_SECOND = 125, /* of a thread: 0.5 million assignments a second in all */
	PASSES_PER_REQUEST = 40,
	TICKS_PER_SECOND = 10,
};

struct soaker {
	const struct toy *toy;
	uint64_t duration_ns;
	uint32_t n_passes;
	uint32_t n_lost;
};

/* Half of the passes prefill a request, the others decode it. */
static void *soak_main(void *argument)
{
	struct soaker *soaker = argument;
	const uint64_t start_ns = suite_now_ns();
	uint64_t request = MOETRACE_NO_REQUEST;
	uint32_t position = 0;

	while (suite_now_ns() - start_ns < soaker->duration_ns) {
		const uint32_t n = soaker->n_passes++ % PASSES_PER_REQUEST;
		const uint64_t due_ns =
			start_ns + soaker->n_passes * (UINT64_C(1000000000) / PASSES_PER_SECOND);
		const uint32_t phase =
			n < PASSES_PER_REQUEST / 2 ? MOETRACE_PHASE_PREFILL : MOETRACE_PHASE_DECODE;

		if (n == 0) {
			position = 0;
			if (moetrace_request_begin(soaker->toy->session, NULL, &request) !=
			    MOETRACE_OK)
				ck_abort_msg("a request was refused");
		}
		soaker->n_lost += !toy_pass(soaker->toy, phase, request, position, N_ROWS);
		position += N_ROWS;
		if (n == PASSES_PER_REQUEST - 1)
			moetrace_request_end(soaker->toy->session, request,
					     MOETRACE_REQUEST_FINISHED, position);
		while (suite_now_ns() < due_ns)
			suite_sleep_ms(1);
	}
	return NULL;
}

/* So many of them a second at most: as this thread, so the others had the machine. */
static uint32_t tick_for(uint64_t duration_ns)
{
	const uint64_t start_ns = suite_now_ns();
	uint32_t n;

	for (n = 0; suite_now_ns() - start_ns < duration_ns; n++)
		suite_sleep_ms(1000 / TICKS_PER_SECOND);
	return n;
}

static uint64_t resident_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	unsigned long total, resident = 0;

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fscanf(file, "%lu %lu", &total, &resident), 2);
	fclose(file);
	return resident * UINT64_C(4096);
}

START_TEST(test_soak)
{
	const uint64_t duration_ns = UINT64_C(1000000000) * (suite_is_long() ? 600 : 20);
	struct moetrace_session_opts opts = toy_opts();
	struct soaker soakers[N_THREADS];
	pthread_t ids[N_THREADS];
	uint64_t early_bytes, late_bytes;
	uint32_t i, n_ticks, n_passes = 0;
	struct toy toy;
	sqlite3 *db;

	opts.ring_bytes = 0;
	toy = toy_start("soak.db", &opts, N_LAYERS, 64, 8);
	for (i = 0; i < N_THREADS; i++) {
		soakers[i] = (struct soaker){.toy = &toy, .duration_ns = duration_ns};
		ck_assert_int_eq(pthread_create(&ids[i], NULL, soak_main, &soakers[i]), 0);
	}
	n_ticks = tick_for(duration_ns / 3);
	early_bytes = resident_bytes();
	n_ticks += tick_for(duration_ns - duration_ns / 3);
	for (i = 0; i < N_THREADS; i++) {
		ck_assert_int_eq(pthread_join(ids[i], NULL), 0);
		ck_assert_uint_eq(soakers[i].n_lost, 0);
		n_passes += soakers[i].n_passes;
	}
	late_bytes = resident_bytes();
	if (!suite_has_sanitizer("address") && !suite_has_sanitizer("thread"))
		ck_assert_msg(late_bytes < early_bytes + (UINT64_C(16) << 20),
			      "memory grew from %llu to %llu bytes",
			      (unsigned long long)early_bytes, (unsigned long long)late_bytes);
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"),
			 n_passes);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE verdict = 'partial'"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM gap"), 0);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 0);
	/* One a second while the machine does not stand still, and each is not to be missed. */
	ck_assert_int_ge(db_int(db, "SELECT count(*) FROM clock_snapshot"),
			 n_ticks / TICKS_PER_SECOND / 2);
	db_close(db);
}
END_TEST

/* ---- life-cycle calls at random ---- */

enum { N_CALLERS = 4, N_OPEN = 4 };

struct caller {
	const struct toy *toy;
	struct rng rng;
	uint64_t until_ns;
	uint64_t requests[N_OPEN]; /* 0: none */
	uint32_t positions[N_OPEN];
	uint32_t n_unexpected; /* statuses that no order of the calls explains */
	int unexpected;
	atomic_uint *n_rotations;
};

static void expect(struct caller *caller, int status, int also)
{
	if (status == MOETRACE_OK || status == also || status == MOETRACE_E_STATE ||
	    status == MOETRACE_E_TIMEOUT)
		return;
	caller->n_unexpected++;
	caller->unexpected = status;
}

static void start_anyhow(struct caller *caller)
{
	struct moetrace_recording_opts opts;

	MOETRACE_INIT(&opts);
	opts.mode = rng_below(&caller->rng, 3);
	opts.sample_every_n_passes = rng_below(&caller->rng, 3);
	if (rng_chance(&caller->rng, 30))
		opts.flight_bytes = 1 << 20;
	expect(caller, moetrace_start(caller->toy->session, &opts), MOETRACE_OK);
}

/* Not for ever: each leaves a file behind. */
static void rotate(struct caller *caller)
{
	if (atomic_fetch_add(caller->n_rotations, 1) < 100)
		expect(caller, moetrace_rotate(caller->toy->session, NULL), MOETRACE_OK);
}

static void request_call(struct caller *caller)
{
	struct moetrace_session *session = caller->toy->session;
	const uint32_t i = rng_below(&caller->rng, N_OPEN);
	struct moetrace_reuse reuse;

	if (!caller->requests[i]) {
		caller->positions[i] = 0;
		expect(caller, moetrace_request_begin(session, NULL, &caller->requests[i]),
		       MOETRACE_OK);
		return;
	}
	switch (rng_below(&caller->rng, 4)) {
	case 0:
		expect(caller, moetrace_request_retract(session, caller->requests[i]), MOETRACE_OK);
		caller->positions[i] = 0;
		break;
	case 1:
		MOETRACE_INIT(&reuse);
		reuse.first_position = caller->positions[i];
		reuse.n_positions = 8;
		reuse.source_request = caller->requests[(i + 1) % N_OPEN];
		caller->positions[i] += 8;
		expect(caller, moetrace_request_reuse(session, caller->requests[i], &reuse),
		       MOETRACE_OK);
		break;
	default:
		expect(caller,
		       moetrace_request_end(session, caller->requests[i], MOETRACE_REQUEST_FINISHED,
					    MOETRACE_POSITIONS_UNKNOWN),
		       MOETRACE_OK);
		caller->requests[i] = 0;
	}
}

static void pass_of_some(struct caller *caller)
{
	const uint32_t i = rng_below(&caller->rng, N_OPEN);

	toy_pass(caller->toy, MOETRACE_PHASE_DECODE, caller->requests[i], caller->positions[i], 4);
	caller->positions[i] += 4;
}

static void *call_main(void *argument)
{
	struct caller *caller = argument;
	struct moetrace_session *session = caller->toy->session;
	struct moetrace_session_status status;
	struct moetrace_dump_result dumped;

	while (suite_now_ns() < caller->until_ns) {
		const uint32_t dice = rng_below(&caller->rng, 1000);

		MOETRACE_INIT(&status);
		MOETRACE_INIT(&dumped);
		if (dice < 15)
			start_anyhow(caller);
		else if (dice < 25)
			expect(caller, moetrace_stop(session, NULL), MOETRACE_OK);
		else if (dice < 27)
			rotate(caller);
		else if (dice < 32)
			expect(caller, moetrace_dump(session, &dumped), MOETRACE_E_NOT_FOUND);
		else if (dice < 37)
			expect(caller, moetrace_flush(session), MOETRACE_OK);
		else if (dice < 50)
			expect(caller, moetrace_status(session, &status), MOETRACE_OK);
		else if (dice < 53)
			moetrace_region_disable(session), moetrace_region_enable(session);
		else if (dice < 200)
			request_call(caller);
		else
			pass_of_some(caller);
		suite_sleep_ms(1);
	}
	return NULL;
}

START_TEST(test_life_cycle)
{
	const uint64_t duration_ns = UINT64_C(1000000000) * (suite_is_long() ? 600 : 10);
	struct toy toy = toy_start("cycle.db", NULL, N_LAYERS, 64, 8);
	struct caller callers[N_CALLERS];
	atomic_uint n_rotations = 0;
	pthread_t ids[N_CALLERS];
	uint64_t early_bytes, late_bytes;
	uint32_t i;

	for (i = 0; i < N_CALLERS; i++) {
		callers[i] = (struct caller){.toy = &toy,
					     .rng = {.state = 77 + i},
					     .until_ns = suite_now_ns() + duration_ns,
					     .n_rotations = &n_rotations};
		ck_assert_int_eq(pthread_create(&ids[i], NULL, call_main, &callers[i]), 0);
	}
	suite_sleep_ms((uint32_t)(duration_ns / 1000000 / 3));
	early_bytes = resident_bytes();
	for (i = 0; i < N_CALLERS; i++) {
		ck_assert_int_eq(pthread_join(ids[i], NULL), 0);
		ck_assert_msg(callers[i].n_unexpected == 0,
			      "thread %u: %u calls failed, one with %d", i, callers[i].n_unexpected,
			      callers[i].unexpected);
	}
	late_bytes = resident_bytes();
	if (!suite_has_sanitizer("address") && !suite_has_sanitizer("thread"))
		ck_assert_msg(late_bytes < early_bytes + (UINT64_C(24) << 20),
			      "memory grew from %llu to %llu bytes",
			      (unsigned long long)early_bytes, (unsigned long long)late_bytes);
	ck_assert_int_eq(moetrace_session_close(toy.session), MOETRACE_OK);
	agree_prove(toy.path);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("soak");
	TCase *tcase = tcase_create("soak");
	TCase *cycle = tcase_create("cycle");

	tcase_set_timeout(tcase, suite_is_long() ? 1200 : 180);
	tcase_add_test(tcase, test_soak);
	tcase_add_test(cycle, test_life_cycle);
	tcase_set_timeout(cycle, suite_is_long() ? 1200 : 180);
	suite_add_tcase(suite, cycle);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
