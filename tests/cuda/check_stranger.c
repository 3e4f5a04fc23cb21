/* SPDX-License-Identifier: MIT */
/*
 * <moetrace/cuda.h> in the hands of somebody who gets everything wrong, against a fake driver: wrong
 * pointers, streams, threads and moments, and contexts that are destroyed under the recorder. Each is
 * a status code, said in words or counted in the file, and no pass is lost without being counted.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "libtrace/cuda/capture.h"
#include "tests/cuda/support/gpu_toy.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

#define N_LAYERS 3
#define N_EXPERTS 16
#define TOP_K 2

#define INVALID_CONTEXT 201
#define INVALID_HANDLE	400

static struct gpu start(const char *name)
{
	return gpu_start(name, N_LAYERS, N_EXPERTS, TOP_K, 0);
}

static void expect_said(const struct gpu *gpu, const char *words)
{
	char text[512];

	moetrace_errmsg(gpu->toy.session, text, sizeof(text));
	ck_assert_msg(strstr(text, words) != NULL, "\"%s\" is not in \"%s\"", words, text);
}

/* How often the file says that something was done wrong. */
static int64_t n_told(sqlite3 *db, const char *words)
{
	return db_int(db,
		      "SELECT ifnull(sum(n_times), 0) FROM diagnostic WHERE message LIKE '%%%s%%'",
		      words);
}

static int64_t n_lost(sqlite3 *db)
{
	return db_int(db, "SELECT ifnull(sum(n_lost), 0) FROM gap WHERE reason = 'device'");
}

static int64_t n_complete(sqlite3 *db)
{
	return db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'");
}

static struct moetrace_pass_info info_of(const struct gpu *gpu, struct moetrace_slice *slice)
{
	return gpu_info(gpu, slice, MOETRACE_NO_REQUEST, 0, 4, 0);
}

static void route_all(struct gpu *gpu)
{
	for (uint32_t i = 0; i < N_LAYERS; i++)
		gpu_route(gpu, gpu->lane, gpu->stream, i, 4, 4);
}

/* Nothing is there: no handle, no description, no place for the answer, no size in a struct. */
START_TEST(test_nothing_given)
{
	struct gpu gpu = start("nothing.db");
	struct moetrace_cuda_lane *lane = gpu.lane;
	struct moetrace_cuda_lane_info info;
	struct moetrace_cuda_status status;
	struct moetrace_cuda_target target;
	struct moetrace_cuda_buffer buffer;
	sqlite3 *db;

	MOETRACE_INIT(&info);
	ck_assert_int_eq(moetrace_cuda_lane_add(NULL, &info, &lane), MOETRACE_E_INVALID);
	ck_assert_ptr_null(lane);
	ck_assert_int_eq(moetrace_cuda_lane_add(gpu.cuda, NULL, &lane), MOETRACE_E_INVALID);
	expect_said(&gpu, "no description");
	ck_assert_int_eq(moetrace_cuda_lane_add(gpu.cuda, &info, NULL), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_cuda_lane_add(gpu.cuda, &info, &lane), MOETRACE_E_INVALID);
	expect_said(&gpu, "a lane for a model");
	info.size = 0;
	ck_assert_int_eq(moetrace_cuda_lane_add(gpu.cuda, &info, &lane), MOETRACE_E_INVALID);
	expect_said(&gpu, "size is not set");

	MOETRACE_INIT(&status);
	ck_assert_int_eq(moetrace_cuda_query(NULL, &status), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_cuda_query(gpu.cuda, NULL), MOETRACE_E_INVALID);
	status.size = 0;
	ck_assert_int_eq(moetrace_cuda_query(gpu.cuda, &status), MOETRACE_E_INVALID);

	ck_assert_int_eq(moetrace_cuda_target_get(gpu.lane, 0, 4, NULL), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_cuda_target_get(NULL, 0, 4, &target), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_cuda_adopt(NULL, NULL), MOETRACE_E_INVALID);
	memset(&buffer, 0, sizeof(buffer));
	ck_assert_int_eq(moetrace_cuda_adopt(gpu.lane, &buffer), MOETRACE_E_INVALID);
	expect_said(&gpu, "adopt: size is not set");
	MOETRACE_INIT(&buffer);
	ck_assert_int_eq(moetrace_cuda_adopt(gpu.lane, &buffer), MOETRACE_E_INVALID);
	expect_said(&gpu, "do not fit");
	ck_assert_int_eq(moetrace_cuda_store(NULL, gpu.stream, NULL), MOETRACE_E_INVALID);
	ck_assert_uint_eq(moetrace_cuda_pass_number(NULL), 0);
	moetrace_cuda_mark(NULL, 0, MOETRACE_ROLE_TOPK);
	ck_assert_int_eq(moetrace_cuda_pass_begin(NULL, NULL), MOETRACE_OK);

	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, NULL), MOETRACE_E_INVALID);
	ck_assert_uint_eq(moetrace_cuda_pass_number(gpu.lane), 0);
	route_all(&gpu);
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(n_told(db, "size member is not set"), 1);
	ck_assert_int_eq(n_complete(db), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 1);
	db_close(db);
}
END_TEST

/* What a kernel needs is asked for, or stored, of layers and arrays that there are not. */
START_TEST(test_no_such_layer)
{
	struct gpu gpu = start("layer.db");
	const uint64_t addresses[N_LAYERS] = {4096, 4096, 4096};
	struct moetrace_cuda_target target;
	struct moetrace_cuda_layers layers;
	struct moetrace_slice slice;
	const struct moetrace_pass_info info = info_of(&gpu, &slice);
	sqlite3 *db;

	memset(&target, 0x5a, sizeof(target));
	ck_assert_int_eq(moetrace_cuda_target_get(gpu.lane, N_LAYERS, 4, &target),
			 MOETRACE_E_INVALID);
	ck_assert_uint_eq(target.word, 0);
	ck_assert_int_eq(moetrace_cuda_store(gpu.lane, gpu.stream, NULL), MOETRACE_E_INVALID);
	MOETRACE_INIT(&layers);
	layers.n_layers = N_LAYERS + 1;
	layers.n_rows = 4;
	layers.id_type = MOETRACE_TYPE_I32;
	layers.ids = addresses;
	ck_assert_int_eq(moetrace_cuda_store(gpu.lane, gpu.stream, &layers), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_OK);
	ck_assert_int_eq(moetrace_cuda_pass_layers(gpu.lane, N_LAYERS), MOETRACE_E_INVALID);
	/* The stream is not the driver's: what it refuses is a layer that nobody wrote. */
	gpu_route(&gpu, gpu.lane, gpu.stream, 0, 4, 4);
	gpu_route(&gpu, gpu.lane, gpu.stream, 1, 4, 4);
	layers.first_layer = 2;
	layers.n_layers = 1;
	gpu.fake->refuse("cuLaunchKernel", 0, INVALID_HANDLE);
	ck_assert_int_eq(moetrace_cuda_store(gpu.lane, gpu.stream, &layers), MOETRACE_E_IO);
	gpu.fake->heal();
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(n_told(db, "told of layers, types or arrays"), 3);
	ck_assert_int_eq(n_told(db, "pass_layers() with a layer"), 1);
	ck_assert_int_eq(n_told(db, "refused the kernel of moetrace_cuda_store"), 1);
	ck_assert_int_eq(n_complete(db), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE reasons = 'unwritten'"), 1);
	db_close(db);
}
END_TEST

/* Where the driver takes none of the recorder's code, it is said once, and each try is counted. */
START_TEST(test_without_kernels)
{
	const uint64_t addresses[N_LAYERS] = {4096, 4096, 4096};
	struct gpu gpu = {.fake = gpu_load()};
	struct moetrace_cuda_layers layers;
	sqlite3 *db;

	gpu.toy = toy_start("kernels.db", NULL, N_LAYERS, N_EXPERTS, TOP_K);
	gpu.fake->refuse("cuModuleLoadData", 0, 218);
	ck_assert_int_eq(moetrace_cuda_attach(gpu.toy.session, NULL, &gpu.cuda), MOETRACE_OK);
	gpu.fake->heal();
	gpu.lane = gpu_lane(&gpu, &gpu.stream);
	MOETRACE_INIT(&layers);
	layers.n_layers = N_LAYERS;
	layers.n_rows = 4;
	layers.id_type = MOETRACE_TYPE_I32;
	layers.ids = addresses;
	ck_assert_int_eq(moetrace_cuda_store(gpu.lane, gpu.stream, &layers),
			 MOETRACE_E_UNSUPPORTED);
	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(n_told(db, "the driver refused the recorder''s kernels"), 1);
	ck_assert_int_eq(n_told(db, "refused the kernel of moetrace_cuda_store"), 1);
	ck_assert_int_eq(n_complete(db), 1);
	db_close(db);
}
END_TEST

/* A lane for a stream of another device, or for what is no stream. */
START_TEST(test_stream_of_another_device)
{
	struct gpu gpu = start("stream.db");
	struct moetrace_cuda_lane_info info;
	struct moetrace_cuda_lane *lane;
	sqlite3 *db;

	MOETRACE_INIT(&info);
	info.model = gpu.toy.model;
	info.order = MOETRACE_ORDER_SELECTION;
	info.stream = gpu.fake->stream_new();
	gpu.fake->stream_of_device(info.stream, 1);
	ck_assert_int_eq(moetrace_cuda_lane_add(gpu.cuda, &info, &lane), MOETRACE_E_INVALID);
	ck_assert_ptr_null(lane);
	expect_said(&gpu, "a stream of another device");
	gpu.fake->stream_of_device(info.stream, 0);
	gpu.fake->refuse("cuStreamIsCapturing", 0, INVALID_HANDLE);
	ck_assert_int_eq(moetrace_cuda_lane_add(gpu.cuda, &info, &lane), MOETRACE_E_INVALID);
	expect_said(&gpu, "what is no stream");
	gpu.fake->heal();
	ck_assert_int_eq(moetrace_cuda_lane_add(gpu.cuda, &info, &lane), MOETRACE_OK);
	ck_assert_uint_eq(gpu_status(&gpu).n_lanes, 2);
	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(n_complete(db), 1);
	db_close(db);
}
END_TEST

/* What the driver says when a lane or a ring is made is told with its own number and call. */
START_TEST(test_driver_says_why)
{
	struct gpu gpu = start("why.db");
	static const uint32_t ordinal = 1;
	struct moetrace_cuda_lane_info info;
	struct moetrace_cuda_lane *lane;
	struct moetrace_cuda_opts opts;
	struct moetrace_cuda *cuda;

	MOETRACE_INIT(&info);
	info.model = gpu.toy.model;
	info.stream = gpu.stream;
	gpu.fake->refuse("cuEventCreate", 0, 2);
	ck_assert_int_eq(moetrace_cuda_lane_add(gpu.cuda, &info, &lane), MOETRACE_E_NOMEM);
	expect_said(&gpu, "error 2");
	gpu.fake->refuse("cuEventCreate", 0, 719);
	ck_assert_int_eq(moetrace_cuda_lane_add(gpu.cuda, &info, &lane), MOETRACE_E_IO);
	expect_said(&gpu, "error 719");
	MOETRACE_INIT(&opts);
	opts.ordinal = &ordinal;
	opts.ring_bytes = 1 << 20;
	gpu.fake->refuse("cuStreamSynchronize", 0, 700);
	ck_assert_int_eq(moetrace_cuda_attach(gpu.toy.session, &opts, &cuda), MOETRACE_E_IO);
	expect_said(&gpu, "cuStreamSynchronize: error 700");
	gpu.fake->heal();
	toy_close(&gpu.toy);
}
END_TEST

/* A thread in which no context is current: it is refused, and the pass is not the worse for it. */
START_TEST(test_thread_without_context)
{
	struct gpu gpu = start("thread.db");
	struct moetrace_slice slice;
	const struct moetrace_pass_info info = info_of(&gpu, &slice);
	sqlite3 *db;

	gpu.fake->refuse("cuStreamIsCapturing", 0, INVALID_CONTEXT);
	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_E_STATE);
	gpu.fake->heal();
	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_OK);
	route_all(&gpu);
	gpu.fake->refuse("cuStreamIsCapturing", 0, INVALID_CONTEXT);
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_E_STATE);
	gpu.fake->heal();
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
	/* A driver that says so only when it is asked to write. */
	gpu.fake->refuse("cuStreamWriteValue64", 0, INVALID_CONTEXT);
	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_E_IO);
	gpu.fake->heal();
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(n_complete(db), 2);
	ck_assert_int_eq(n_lost(db), 1);
	ck_assert_int_eq(n_told(db, "no context is current"), 3);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM meta WHERE key = 'source.cuda'"
				    " AND value LIKE 'failed: %%'"),
			 0);
	db_close(db);
}
END_TEST

static void *begin_from_thread(void *argument)
{
	struct gpu *gpu = argument;
	struct moetrace_slice slice;
	const struct moetrace_pass_info info = info_of(gpu, &slice);

	return (void *)(intptr_t)moetrace_cuda_pass_begin(gpu->lane, &info);
}

/* A lane that another thread is in: every call is refused and counted, and that thread's goes on. */
START_TEST(test_two_threads)
{
	struct gpu gpu = start("two.db");
	struct moetrace_slice slice;
	const struct moetrace_pass_info info = info_of(&gpu, &slice);
	pthread_t thread;
	void *status;
	sqlite3 *db;

	gpu.fake->stall("cuStreamWriteValue64");
	ck_assert_int_eq(pthread_create(&thread, NULL, begin_from_thread, &gpu), 0);
	gpu.fake->wait_for_stalled();
	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_E_STATE);
	ck_assert_int_eq(moetrace_cuda_pass_layers(gpu.lane, 0), MOETRACE_E_STATE);
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_E_STATE);
	ck_assert_int_eq(moetrace_cuda_adopt(gpu.lane, NULL), MOETRACE_E_STATE);
	gpu.fake->stall("");
	ck_assert_int_eq(pthread_join(thread, &status), 0);
	ck_assert_int_eq((int)(intptr_t)status, MOETRACE_OK);
	route_all(&gpu);
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_E_STATE);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(n_complete(db), 1);
	ck_assert_int_eq(n_told(db, "a lane was used by two threads"), 5);
	db_close(db);
}
END_TEST

/* What was retained for an attach that failed is given back. */
START_TEST(test_primary_context)
{
	static const uint32_t ordinal = 1;
	const struct fake_api *fake = gpu_load();
	struct toy toy = toy_open("primary.db", NULL, N_LAYERS, N_EXPERTS, TOP_K);
	struct moetrace_cuda_opts opts;
	struct moetrace_cuda *cuda;

	MOETRACE_INIT(&opts);
	opts.ordinal = &ordinal;
	opts.ring_bytes = 1 << 20;
	fake->refuse("cuMemAlloc", 0, 2);
	ck_assert_int_eq(moetrace_cuda_attach(toy.session, &opts, &cuda), MOETRACE_E_NOMEM);
	fake->heal();
	ck_assert_uint_eq(fake->n_retained(), 0);
	ck_assert_int_eq(moetrace_cuda_attach(toy.session, &opts, &cuda), MOETRACE_OK);
	ck_assert_int_eq(moetrace_cuda_attach(toy.session, &opts, &cuda), MOETRACE_E_LIMIT);
	ck_assert_uint_eq(fake->n_retained(), 1);
	toy_close(&toy);
}
END_TEST

/*
 * The program resets the device while 0: nothing is in flight; 1: passes are, and it goes on; 2: a pass
 * is open; 3: passes are, and nobody says anything more: the drain thread finds out.
 */
START_TEST(test_context_destroyed)
{
	struct gpu gpu = gpu_start_hasty("destroyed.db", N_LAYERS, N_EXPERTS, TOP_K);
	struct moetrace_slice slice;
	const struct moetrace_pass_info info = info_of(&gpu, &slice);
	int64_t want_lost = 0;
	sqlite3 *db;

	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
	WAIT_UNTIL(gpu_status(&gpu).delivered_passes == 1);
	if (_i == 1 || _i == 3) {
		gpu.fake->hold(true);
		ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
		want_lost++;
	}
	if (_i == 2)
		ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_OK);
	gpu.fake->destroy_contexts();
	gpu.fake->hold(false);
	if (_i == 1) {
		ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_E_IO);
		ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
		want_lost++;
	}
	if (_i == 2) {
		ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_E_IO);
		want_lost++;
	}
	if (want_lost)
		WAIT_UNTIL(gpu_status(&gpu).lost_passes == (uint64_t)want_lost);
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(n_complete(db), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 1);
	ck_assert_int_eq(n_lost(db), want_lost);
	ck_assert_int_eq(n_told(db, "failed: a look"), want_lost ? 1 : 0);
	db_close(db);
}
END_TEST

/* A pass that nobody ends is lost with 0: the session, 1: its recording; the next one is recorded. */
START_TEST(test_left_open)
{
	struct gpu gpu = gpu_start_hasty("open.db", N_LAYERS, N_EXPERTS, TOP_K);
	struct moetrace_slice slice;
	const struct moetrace_pass_info info = info_of(&gpu, &slice);
	sqlite3 *db;

	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_OK);
	route_all(&gpu);
	if (_i == 1) {
		ck_assert_int_eq(moetrace_stop(gpu.toy.session, NULL), MOETRACE_E_TIMEOUT);
		ck_assert_int_eq(moetrace_start(gpu.toy.session, NULL), MOETRACE_OK);
		ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_OK);
		ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
		WAIT_UNTIL(gpu_status(&gpu).delivered_passes == 1);
	}
	db = toy_close_and_open(&gpu.toy);
	ck_assert_int_eq(n_complete(db), _i);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), _i);
	ck_assert_int_eq(n_lost(db), 1);
	ck_assert_int_eq(db_int(db, "SELECT recording_id FROM gap WHERE reason = 'device'"), 1);
	db_close(db);
}
END_TEST

/* A thread that still runs when the session is closed, in which a pass is 1: open. */
START_TEST(test_after_close)
{
	struct gpu gpu = gpu_start_hasty("closed.db", N_LAYERS, N_EXPERTS, TOP_K);
	struct moetrace_slice slice;
	const struct moetrace_pass_info info = info_of(&gpu, &slice);
	const uint64_t addresses[N_LAYERS] = {4096, 4096, 4096};
	struct moetrace_cuda_lane_info lane_info;
	struct moetrace_cuda_target target;
	struct moetrace_cuda_layers layers;
	struct moetrace_cuda_status status;
	struct moetrace_cuda_lane *lane;
	uint64_t n_calls;

	ck_assert_int_eq(gpu_pass(&gpu, MOETRACE_NO_REQUEST, 0, 4, 0), MOETRACE_OK);
	WAIT_UNTIL(gpu_status(&gpu).delivered_passes == 1);
	if (_i)
		ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_OK);
	toy_close(&gpu.toy);
	n_calls = gpu.fake->n_calls("cu");
	MOETRACE_INIT(&lane_info);
	MOETRACE_INIT(&layers);
	MOETRACE_INIT(&status);
	layers.n_layers = N_LAYERS;
	layers.n_rows = 4;
	layers.id_type = MOETRACE_TYPE_I32;
	layers.ids = addresses;
	ck_assert_uint_eq(moetrace_cuda_pass_number(gpu.lane), 0);
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu.lane), MOETRACE_E_STATE);
	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu.lane, &info), MOETRACE_E_STATE);
	ck_assert_int_eq(moetrace_cuda_pass_layers(gpu.lane, 0), MOETRACE_E_STATE);
	ck_assert_int_eq(moetrace_cuda_adopt(gpu.lane, NULL), MOETRACE_E_STATE);
	ck_assert_int_eq(moetrace_cuda_store(gpu.lane, gpu.stream, &layers), MOETRACE_E_STATE);
	ck_assert_int_eq(moetrace_cuda_target_get(gpu.lane, 0, 4, &target), MOETRACE_E_STATE);
	ck_assert_uint_eq(target.word, 0);
	ck_assert_int_eq(moetrace_cuda_lane_add(gpu.cuda, &lane_info, &lane), MOETRACE_E_STATE);
	ck_assert_int_eq(moetrace_cuda_query(gpu.cuda, &status), MOETRACE_OK);
	ck_assert_uint_eq(status.delivered_passes, 1);
	moetrace_cuda_mark(gpu.lane, 0, MOETRACE_ROLE_TOPK);
	ck_assert_uint_eq(gpu.fake->n_calls("cu"), n_calls);
}
END_TEST

/* The first error is told with its own call, whatever failed since. */
START_TEST(test_first_error)
{
	struct moetrace_cuda *cuda = calloc(1, sizeof(*cuda));

	REQUIRE(cuda, "out of memory");
	mt_cuda_fail(cuda, "one call", 700);
	mt_cuda_fail(cuda, "another", 719);
	ck_assert_int_eq(atomic_load(&cuda->error), 700);
	ck_assert_str_eq(atomic_load(&cuda->error_call), "one call");
	free(cuda);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("cuda stranger");
	TCase *tc = tcase_create("stranger");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_nothing_given);
	tcase_add_test(tc, test_no_such_layer);
	tcase_add_test(tc, test_without_kernels);
	tcase_add_test(tc, test_stream_of_another_device);
	tcase_add_test(tc, test_driver_says_why);
	tcase_add_test(tc, test_thread_without_context);
	tcase_add_test(tc, test_two_threads);
	tcase_add_test(tc, test_primary_context);
	tcase_add_loop_test(tc, test_context_destroyed, 0, 4);
	tcase_add_loop_test(tc, test_left_open, 0, 2);
	tcase_add_loop_test(tc, test_after_close, 0, 2);
	tcase_add_test(tc, test_first_error);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
