/* SPDX-License-Identifier: MIT */
/*
 * Half a minute (ten in the long tier) at a moderate rate with default rings: nothing is lost,
 * memory does not grow, and the file agrees with itself.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

enum {
	N_THREADS = 2,
	N_LAYERS = 8,
	N_ROWS = 32,
	PASSES_PER_SECOND = 125, /* of a thread: 0.5 million assignments a second in all */
	PASSES_PER_REQUEST = 40,
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
				break;
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

/* Without SQLite's page cache, which is bounded and fills in the course of time. */
static uint64_t resident_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	unsigned long total, resident = 0;

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fscanf(file, "%lu %lu", &total, &resident), 2);
	fclose(file);
	return resident * UINT64_C(4096) - (uint64_t)sqlite3_memory_used();
}

START_TEST(test_soak)
{
	const uint64_t duration_ns = UINT64_C(1000000000) * (suite_is_long() ? 600 : 30);
	struct toy toy = toy_start("soak.db", NULL, N_LAYERS, 64, 8);
	struct soaker soakers[N_THREADS];
	pthread_t ids[N_THREADS];
	uint64_t early_bytes, late_bytes;
	uint32_t i, n_passes = 0;
	sqlite3 *db;

	for (i = 0; i < N_THREADS; i++) {
		soakers[i] = (struct soaker){.toy = &toy, .duration_ns = duration_ns};
		ck_assert_int_eq(pthread_create(&ids[i], NULL, soak_main, &soakers[i]), 0);
	}
	suite_sleep_ms((uint32_t)(duration_ns / 1000000 / 3));
	early_bytes = resident_bytes();
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
	ck_assert_int_ge(db_int(db, "SELECT count(*) FROM clock_snapshot"),
			 (int64_t)(duration_ns / UINT64_C(1000000000) / 2));
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("soak");
	TCase *tcase = tcase_create("soak");

	tcase_set_timeout(tcase, suite_is_long() ? 1200 : 180);
	tcase_add_test(tcase, test_soak);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
