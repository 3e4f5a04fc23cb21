/* SPDX-License-Identifier: MIT */
/* Rules r03 and r04, against a fake driver: what the host half does for routers on a GPU. */
#include "tests/contract/rules/rules.h"

#include <stdlib.h>

#include "tests/cuda/support/gpu_toy.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

static uint64_t n_calls(const struct gpu *gpu)
{
	static const char *const calls[] = {"cuStreamWriteValue", "cuMem",
					    "cuStreamWaitValue",  "cuEventRecord",
					    "cuStreamWaitEvent",  "cuLaunchKernel"};
	uint64_t n = 0;

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		n += gpu->fake->n_calls(calls[i]);
	return n;
}

START_TEST(r03_five_driver_calls_a_pass_and_none_while_idle)
{
	struct toy twin = toy_start("host.db", NULL, 3, 64, 4);
	struct gpu gpu = gpu_start("device.db", 3, 64, 4, 0);
	uint64_t before;
	char *on_host, *on_device;
	sqlite3 *db;

	ck_assert(toy_pass(&twin, MOETRACE_PHASE_PREFILL, MOETRACE_NO_REQUEST, 0, 4));
	ck_assert_int_eq(moetrace_flush(gpu.toy.session), MOETRACE_OK);
	before = n_calls(&gpu);
	gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0);
	ck_assert_int_eq(moetrace_flush(gpu.toy.session), MOETRACE_OK);
	ck_assert_uint_eq(n_calls(&gpu) - before, 5);
	ck_assert_int_eq(moetrace_stop(gpu.toy.session, NULL), MOETRACE_OK);
	before = n_calls(&gpu);
	gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0);
	ck_assert_uint_eq(n_calls(&gpu), before);
	/* What the routers stored is, byte for byte, what the host would have handed over. */
	db = toy_close_and_open(&twin);
	on_host = gpu_stored(db);
	db_close(db);
	db = toy_close_and_open(&gpu.toy);
	on_device = gpu_stored(db);
	db_close(db);
	ck_assert_str_eq(on_device, on_host);
	free(on_host);
	free(on_device);
}
END_TEST

/* Passes that are replayed all the time, while recordings start and stop. */
START_TEST(r04_replays_outlive_start_and_stop)
{
	struct gpu gpu = gpu_start("start.db", 2, 64, 4, 0);
	uint64_t n_want = 0;
	sqlite3 *db;

	gpu.fake->delay(100);
	for (uint32_t i = 0; i < 6; i++) {
		for (uint32_t j = 0; j < 7; j++)
			ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
		n_want += i % 2 == 0 ? 7 : 0;
		if (i % 2 == 0)
			ck_assert_int_eq(moetrace_stop(gpu.toy.session, NULL), MOETRACE_OK);
		else
			ck_assert_int_eq(moetrace_start(gpu.toy.session, NULL), MOETRACE_OK);
	}
	/* A replay outside of begin and end finds nothing to write to. */
	gpu_route(&gpu, gpu.lane, gpu.stream, 0, 4, 4);
	gpu.fake->stream_wait(gpu.stream);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM recording"), 4);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"),
			 (int64_t)n_want);
	db_close(db);
	/* Nor does one after the end of the session: its target still names a word. */
	gpu.fake->delay(0);
}
END_TEST

TCase *rules_of_devices(void)
{
	TCase *tcase = tcase_create("devices");

	tcase_add_test(tcase, r03_five_driver_calls_a_pass_and_none_while_idle);
	tcase_add_test(tcase, r04_replays_outlive_start_and_stop);
	return tcase;
}
