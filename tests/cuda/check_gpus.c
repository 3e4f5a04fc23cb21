/* SPDX-License-Identifier: MIT */
/*
 * What depends on the machine: as many GPUs as it has (two of them at most) recorded into one file by
 * one process, and what a GPU refuses: memory that it has not, streams that are not the lane's, calls
 * inside a capture or by threads that have no context, everything after a reset. Skipped without a GPU.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/cuda/support/gpu.h"
#include "tests/cuda/support/graph.h"
#include "tests/cuda/support/kept.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

enum { N_LAYERS = 12, N_ROWS = 16, N_REPLAYS = 1500, APART = 1000000 };

/* One GPU, and a lane on it. */
struct rig {
	struct toy toy;
	struct moetrace_cuda *cuda;
	struct moetrace_cuda_lane *lane;
	void *stream;
	struct moetrace_cuda_target targets[N_LAYERS];
};

static struct rig open_rig(const char *name)
{
	struct rig rig = {.toy = toy_start(name, NULL, N_LAYERS, GRAPH_EXPERTS, GRAPH_TOP_K)};

	gpu_open();
	rig.cuda = gpu_attach(rig.toy.session, 0);
	rig.stream = graph_stream_new();
	rig.lane = gpu_lane_add(rig.cuda, rig.toy.model, rig.stream, N_LAYERS, N_ROWS, rig.targets);
	return rig;
}

/* All layers of the rig's lane, to be launched into @stream. */
static struct graph *graph_in(const struct rig *rig, void *stream)
{
	return graph_new(graph_buffers_new(N_LAYERS, N_ROWS, 1), stream, 0, N_LAYERS, rig->targets,
			 NULL, NULL);
}

static int begin(const struct toy *toy, struct moetrace_cuda_lane *lane, uint64_t number)
{
	struct moetrace_pass_info info;

	MOETRACE_INIT(&info);
	info.model = toy->model;
	info.phase = MOETRACE_PHASE_DECODE;
	info.n_rows = N_ROWS;
	info.runtime_pass = &number;
	return moetrace_cuda_pass_begin(lane, &info);
}

/* ---- several GPUs ---- */

struct worker {
	pthread_t thread;
	const struct toy *toy;
	uint32_t ordinal;
	struct kept kept;
	int status; /* of attach */
	char text[256];
};

/* A GPU has a thread of its own, which alone makes its device current. */
static void *work(void *argument)
{
	struct worker *worker = argument;
	struct moetrace_cuda_target targets[N_LAYERS];
	struct moetrace_cuda_lane *lane;
	struct moetrace_cuda_opts opts;
	struct moetrace_cuda *cuda;
	struct graph *graph;
	void *stream;

	graph_use(worker->ordinal);
	MOETRACE_INIT(&opts);
	opts.ordinal = worker->ordinal ? &worker->ordinal : NULL;
	worker->status = moetrace_cuda_attach(worker->toy->session, &opts, &cuda);
	moetrace_errmsg(worker->toy->session, worker->text, sizeof(worker->text));
	if (worker->status)
		return NULL;
	stream = graph_stream_new();
	worker->kept = (struct kept){
		.buffers = graph_buffers_new(N_LAYERS, N_ROWS, N_REPLAYS),
		.n_layers = N_LAYERS,
		.n_rows = N_ROWS,
		.first_number = (uint64_t)worker->ordinal * APART,
		.n_replays = N_REPLAYS,
	};
	lane = gpu_lane_add(cuda, worker->toy->model, stream, N_LAYERS, N_ROWS, targets);
	graph = graph_new(worker->kept.buffers, stream, 0, N_LAYERS, targets, NULL, NULL);
	for (uint32_t i = 0; i < N_REPLAYS; i++) {
		REQUIRE(begin(worker->toy, lane, worker->kept.first_number + i) == MOETRACE_OK,
			"GPU %u, pass %u", worker->ordinal, i);
		graph_launch(graph, stream);
		REQUIRE(moetrace_cuda_pass_end(lane) == MOETRACE_OK, "GPU %u, pass %u",
			worker->ordinal, i);
		graph_keep(worker->kept.buffers, i, stream);
	}
	graph_stream_wait(stream);
	return NULL;
}

START_TEST(test_each_gpu)
{
	const struct toy toy =
		toy_start("gpus.db", NULL, N_LAYERS, GRAPH_EXPERTS, GRAPH_TOP_K);
	struct worker workers[2];
	struct toy closing = toy;
	uint32_t n;
	sqlite3 *db;

	gpu_open();
	n = graph_n_devices() < 2 ? 1 : 2;
	memset(workers, 0, sizeof(workers));
	for (uint32_t i = 0; i < n; i++) {
		workers[i].toy = &toy;
		workers[i].ordinal = i;
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (uint32_t i = 0; i < n; i++)
		ck_assert_int_eq(pthread_join(workers[i].thread, NULL), 0);
	for (uint32_t i = 0; i < n; i++)
		ck_assert_msg(workers[i].status == MOETRACE_OK, "GPU %u: %s", i, workers[i].text);
	db = toy_close_and_open(&closing);
	for (uint32_t i = 0; i < n; i++) {
		graph_use(i);
		ck_assert_uint_eq(kept_compare(db, &workers[i].kept), N_REPLAYS);
	}
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), n * N_REPLAYS);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM gap"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(DISTINCT uuid) FROM device WHERE kind = 'cuda'"),
			 n);
	printf("%u GPUs of %u in one recording, %d passes\n", n, graph_n_devices(), n * N_REPLAYS);
	db_close(db);
}
END_TEST

/* ---- what a GPU refuses ---- */

START_TEST(test_out_of_memory)
{
	struct toy toy = toy_start("memory.db", NULL, N_LAYERS, GRAPH_EXPERTS, GRAPH_TOP_K);
	struct moetrace_cuda_opts opts;
	struct moetrace_cuda *cuda;
	char text[256];
	sqlite3 *db;

	gpu_open();
	MOETRACE_INIT(&opts);
	opts.ring_bytes = UINT64_C(1) << 30;
	graph_memory_take((size_t)256 << 20);
	ck_assert_int_eq(moetrace_cuda_attach(toy.session, &opts, &cuda), MOETRACE_E_NOMEM);
	ck_assert_ptr_null(cuda);
	moetrace_errmsg(toy.session, text, sizeof(text));
	printf("%s\n", text);
	ck_assert_ptr_nonnull(strstr(text, "the ring could not be made"));
	graph_memory_give();
	/* Nothing is left of it. */
	ck_assert_int_eq(moetrace_cuda_attach(toy.session, &opts, &cuda), MOETRACE_OK);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM meta WHERE key = 'source.cuda' AND"
				    " value LIKE 'attached: %%'"),
			 1);
	db_close(db);
}
END_TEST

/* The pass is in one stream and its kernels are in another: no row is made up, none is lost silently. */
START_TEST(test_wrong_stream)
{
	struct rig rig = open_rig("stream.db");
	void *wrong = graph_stream_new();
	struct graph *graph = graph_in(&rig, wrong);
	sqlite3 *db;

	for (uint32_t i = 0; i < 50; i++) {
		ck_assert_int_eq(begin(&rig.toy, rig.lane, i), MOETRACE_OK);
		ck_assert_int_eq(moetrace_cuda_pass_end(rig.lane), MOETRACE_OK);
		/* The stream has closed the pass by then, and does not open the next one yet. */
		graph_stream_wait(rig.stream);
		graph_launch(graph, wrong);
		graph_stream_wait(wrong);
	}
	db = toy_close_and_open(&rig.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE reasons = 'unwritten'"), 50);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer WHERE state <> 1"), 0);
	db_close(db);
}
END_TEST

/* A capture that stands in the strictest mode outlives everything that is called meanwhile. */
START_TEST(test_in_capture)
{
	struct rig rig = open_rig("capture.db");
	struct toy other = toy_start("other.db", NULL, N_LAYERS, GRAPH_EXPERTS, GRAPH_TOP_K);
	struct moetrace_cuda_target targets[N_LAYERS];
	struct moetrace_cuda_lane_info info;
	struct moetrace_cuda_lane *refused;
	sqlite3 *db;

	MOETRACE_INIT(&info);
	info.stream = rig.stream;
	info.model = rig.toy.model;
	ck_assert_int_eq(begin(&rig.toy, rig.lane, 0), MOETRACE_OK);
	graph_capture_begin(rig.stream);
	ck_assert_int_eq(moetrace_cuda_pass_end(rig.lane), MOETRACE_E_STATE);
	ck_assert_int_eq(begin(&rig.toy, rig.lane, 1), MOETRACE_E_STATE);
	ck_assert_int_eq(moetrace_cuda_lane_add(rig.cuda, &info, &refused), MOETRACE_E_STATE);
	for (uint32_t i = 0; i < N_LAYERS; i++)
		ck_assert_int_eq(moetrace_cuda_target_get(rig.lane, i, N_ROWS, &targets[i]),
				 MOETRACE_OK);
	/* Beside it, in another stream. */
	(void)gpu_lane_add(gpu_attach(other.session, 0), other.model, graph_stream_new(), N_LAYERS,
			   N_ROWS, targets);
	ck_assert_int_eq(moetrace_stop(other.session, NULL), MOETRACE_OK);
	toy_close(&other);
	graph_capture_end(rig.stream);
	ck_assert_int_eq(moetrace_cuda_pass_end(rig.lane), MOETRACE_OK);
	db = toy_close_and_open(&rig.toy);
	ck_assert_int_eq(db_int(db, "SELECT n_times FROM diagnostic WHERE source = 'cuda'"), 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 1);
	db_close(db);
}
END_TEST

struct elsewhere {
	struct rig rig;
	int begun, ended;
};

static void *run_elsewhere(void *argument)
{
	struct elsewhere *elsewhere = argument;

	elsewhere->begun = begin(&elsewhere->rig.toy, elsewhere->rig.lane, 0);
	elsewhere->ended = moetrace_cuda_pass_end(elsewhere->rig.lane);
	return NULL;
}

/* A thread in which no context is current: the driver knows the stream's, or the pass is refused. */
START_TEST(test_thread_without_context)
{
	struct elsewhere elsewhere = {.rig = open_rig("thread.db")};
	struct rig *rig = &elsewhere.rig;
	struct graph *graph = graph_in(rig, rig->stream);
	pthread_t thread;
	sqlite3 *db;

	ck_assert_int_eq(pthread_create(&thread, NULL, run_elsewhere, &elsewhere), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	printf("a thread without a context: begin %d, end %d\n", elsewhere.begun, elsewhere.ended);
	ck_assert_int_eq(begin(&rig->toy, rig->lane, 1), MOETRACE_OK);
	graph_launch(graph, rig->stream);
	ck_assert_int_eq(moetrace_cuda_pass_end(rig->lane), MOETRACE_OK);
	db = toy_close_and_open(&rig->toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM meta WHERE key = 'source.cuda' AND"
				    " value LIKE 'failed: %%'"),
			 0);
	/* What was begun there is in the file, or it was refused. */
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE runtime_pass = 0"),
			 elsewhere.begun == MOETRACE_OK);
	db_close(db);
}
END_TEST

/* The program resets the device with 0: nothing, 1: a pass in flight, and closes the session. */
START_TEST(test_reset)
{
	struct rig rig = open_rig("reset.db");
	struct graph *graph = graph_in(&rig, rig.stream);
	struct moetrace_cuda_status status;
	sqlite3 *db;

	for (uint32_t i = 0; i < 50; i++) {
		ck_assert_int_eq(begin(&rig.toy, rig.lane, i), MOETRACE_OK);
		graph_launch(graph, rig.stream);
		ck_assert_int_eq(moetrace_cuda_pass_end(rig.lane), MOETRACE_OK);
	}
	MOETRACE_INIT(&status);
	if (_i == 0)
		WAIT_UNTIL(moetrace_cuda_query(rig.cuda, &status) == MOETRACE_OK &&
			   status.delivered_passes == 50);
	graph_reset();
	db = toy_close_and_open(&rig.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict <> 'complete'"), 0);
	ck_assert_int_eq(db_int(db, "SELECT (SELECT count(*) FROM pass) +"
				    " (SELECT ifnull(sum(n_lost), 0) FROM gap)"),
			 50);
	if (_i == 0)
		ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 50);
	db_close(db);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("gpus");
	TCase *tc = tcase_create("gpus");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_each_gpu);
	tcase_add_test(tc, test_out_of_memory);
	tcase_add_test(tc, test_wrong_stream);
	tcase_add_test(tc, test_in_capture);
	tcase_add_test(tc, test_thread_without_context);
	tcase_add_loop_test(tc, test_reset, 0, 2);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	if (!gpu_is_here())
		return SUITE_SKIPPED;
	return suite_run(make_suite());
}
