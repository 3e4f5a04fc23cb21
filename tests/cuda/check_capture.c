/* SPDX-License-Identifier: MIT */
/*
 * The capture on a real GPU: what the file holds is, bit for bit, what the router kernels wrote to
 * their own buffers in the same replay. Skipped without a GPU. With MOETRACE_TEST_SMALL set there are
 * few layers and passes, for tools that make each launch take a thousand times as long.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/support/gpu.h"
#include "tests/cuda/support/graph.h"
#include "tests/cuda/support/kept.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

enum { MAX_LAYERS = 58, SMALL_LAYERS = 6 };

static uint32_t n_layers = MAX_LAYERS;

static bool is_small(void)
{
	return n_layers == SMALL_LAYERS;
}

struct fixture {
	struct toy toy;
	struct moetrace_cuda *cuda;
	struct moetrace_cuda_lane *lane;
	void *stream;
	struct graph_buffers *buffers;
	struct moetrace_cuda_target targets[MAX_LAYERS];
	uint32_t n_rows; /* with padding */
};

static struct fixture open_fixture(const char *name, uint32_t n_rows, uint32_t n_kept,
				   uint64_t ring_bytes)
{
	struct fixture f = {.n_rows = n_rows};

	gpu_open();
	f.toy = toy_start(name, NULL, n_layers, GRAPH_EXPERTS, GRAPH_TOP_K);
	f.stream = graph_stream_new();
	f.buffers = graph_buffers_new(n_layers, n_rows, n_kept);
	f.cuda = gpu_attach(f.toy.session, ring_bytes);
	f.lane = gpu_lane_add(f.cuda, f.toy.model, f.stream, n_layers, n_rows, f.targets);
	return f;
}

static struct moetrace_pass_info info_of(const struct fixture *f, const uint64_t *runtime_pass,
					 uint32_t padding_rows)
{
	struct moetrace_pass_info info;

	MOETRACE_INIT(&info);
	info.model = f->toy.model;
	info.phase = MOETRACE_PHASE_DECODE;
	info.n_rows = f->n_rows - padding_rows;
	info.padding_rows = padding_rows;
	info.runtime_pass = runtime_pass;
	return info;
}

static void begin(struct fixture *f, uint64_t number, uint32_t padding_rows)
{
	const struct moetrace_pass_info info = info_of(f, &number, padding_rows);

	ck_assert_int_eq(moetrace_cuda_pass_begin(f->lane, &info), MOETRACE_OK);
}

/* The file has the passes that were kept as [0, n_replays), of these the wanted ones; NULL: all. */
static void expect_kept(sqlite3 *db, struct fixture *f, uint32_t n_replays,
			const uint8_t *is_wanted, bool has_weights)
{
	const struct kept kept = {
		.buffers = f->buffers,
		.n_layers = n_layers,
		.n_rows = f->n_rows,
		.n_replays = n_replays,
		.is_wanted = is_wanted,
		.without_weights = !has_weights,
	};
	const uint32_t n = kept_compare(db, &kept);

	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), n);
}

START_TEST(test_fused)
{
	const uint32_t n = is_small() ? 20 : 200;
	struct fixture f = open_fixture("fused.db", 64, n, 0);
	struct graph *graph = graph_new(f.buffers, f.stream, 0, n_layers, f.targets, NULL, NULL);
	static const struct moetrace_cuda_target none[MAX_LAYERS];
	struct moetrace_cuda_status status;
	sqlite3 *db;

	/* Nothing is stored without a target, nor outside of a pass. */
	graph_eager(f.buffers, f.stream, 0, n_layers, none);
	graph_launch(graph, f.stream);
	for (uint32_t i = 0; i < n; i++) {
		begin(&f, i, _i == 0 ? 0 : 4);
		graph_launch(graph, f.stream);
		ck_assert_int_eq(moetrace_cuda_pass_end(f.lane), MOETRACE_OK);
		graph_keep(f.buffers, i, f.stream);
	}
	MOETRACE_INIT(&status);
	ck_assert_int_eq(moetrace_cuda_query(f.cuda, &status), MOETRACE_OK);
	printf("%s, driver %u, stream writes %u, waits %u, kernels %u, timer %llu ns\n",
	       status.name, status.driver_version, status.has_stream_writes,
	       status.has_stream_waits, status.has_kernels,
	       (unsigned long long)status.timer_resolution_ns);
	db = toy_close_and_open(&f.toy);
	expect_kept(db, &f, n, NULL, true);
	/* Layers follow each other on the GPU's own clock. */
	ck_assert_int_eq(db_int(db,
				"SELECT count(*) FROM pass_layer AS a JOIN pass_layer AS b ON"
				" b.pass_id = a.pass_id AND b.layer_id = a.layer_id + 1"
				" WHERE b.selected_ns < a.selected_ns OR a.selected_ns IS NULL"),
			 0);
	printf("layers lie %.0f ns apart\n",
	       db_double(db,
			 "SELECT avg(d) FROM (SELECT (max(selected_ns) - min(selected_ns)) /"
			 " (count(*) - 1.0) AS d FROM pass_layer GROUP BY pass_id)"));
	db_close(db);
	/* The graph outlives the session. */
	graph_launch(graph, f.stream);
	graph_stream_wait(f.stream);
}
END_TEST

/* Three graphs with eager work and waits in between make one pass. */
START_TEST(test_pieces)
{
	struct fixture f = open_fixture("pieces.db", 16, 20, 0);
	struct graph *pieces[3];
	sqlite3 *db;

	for (uint32_t p = 0; p < 3; p++)
		pieces[p] = graph_new(f.buffers, f.stream, p * n_layers / 3,
				      (p + 1) * n_layers / 3, f.targets, NULL, NULL);
	for (uint32_t i = 0; i < 20; i++) {
		begin(&f, i, 0);
		for (uint32_t p = 0; p < 3; p++) {
			graph_launch(pieces[p], f.stream);
			if (p == i % 3)
				graph_stream_wait(f.stream);
		}
		ck_assert_int_eq(moetrace_cuda_pass_end(f.lane), MOETRACE_OK);
		graph_keep(f.buffers, i, f.stream);
	}
	db = toy_close_and_open(&f.toy);
	expect_kept(db, &f, 20, NULL, true);
	db_close(db);
}
END_TEST

/* A prefill in groups of layers, with a graph a layer. */
START_TEST(test_groups)
{
	struct fixture f = open_fixture("groups.db", is_small() ? 2051 : 4099, 2,
					is_small() ? 1 << 20 : 16 << 20);
	struct graph *layers[MAX_LAYERS];
	sqlite3 *db;

	for (uint32_t l = 0; l < n_layers; l++)
		layers[l] = graph_new(f.buffers, f.stream, l, l + 1, f.targets, NULL, NULL);
	for (uint32_t i = 0; i < 2; i++) {
		begin(&f, i, 0);
		for (uint32_t l = 0; l < n_layers; l++) {
			WAIT_UNTIL(moetrace_cuda_pass_layers(f.lane, l) == MOETRACE_OK);
			graph_launch(layers[l], f.stream);
		}
		ck_assert_int_eq(moetrace_cuda_pass_end(f.lane), MOETRACE_OK);
		graph_keep(f.buffers, i, f.stream);
		ck_assert_int_eq(moetrace_flush(f.toy.session), MOETRACE_OK);
	}
	db = toy_close_and_open(&f.toy);
	expect_kept(db, &f, 2, NULL, true);
	db_close(db);
}
END_TEST

/* Replays go on while recordings start and stop. */
START_TEST(test_start_stop)
{
	struct fixture f = open_fixture("start.db", 64, 60, 0);
	struct graph *graph = graph_new(f.buffers, f.stream, 0, n_layers, f.targets, NULL, NULL);
	uint8_t is_wanted[60];
	sqlite3 *db;

	for (uint32_t i = 0; i < 60; i++) {
		is_wanted[i] = i % 20 < 10;
		begin(&f, i, 0);
		graph_launch(graph, f.stream);
		ck_assert_int_eq(moetrace_cuda_pass_end(f.lane), MOETRACE_OK);
		graph_keep(f.buffers, i, f.stream);
		if (i % 20 == 9)
			ck_assert_int_eq(moetrace_stop(f.toy.session, NULL), MOETRACE_OK);
		if (i % 20 == 19)
			ck_assert_int_eq(moetrace_start(f.toy.session, NULL), MOETRACE_OK);
	}
	db = toy_close_and_open(&f.toy);
	expect_kept(db, &f, 60, is_wanted, true);
	db_close(db);
}
END_TEST

struct gather {
	struct fixture *f;
	struct moetrace_cuda_layers layers;
};

static void launch_gather(void *context)
{
	struct gather *gather = context;

	ck_assert_int_eq(moetrace_cuda_store(gather->f->lane, gather->f->stream, &gather->layers),
			 MOETRACE_OK);
}

/* 0: the runtime's buffer is adopted; 1: a launch a pass gathers, inside the graph. */
START_TEST(test_buffers)
{
	struct fixture f = open_fixture("buffers.db", 33, 40, 0);
	uint64_t ids[MAX_LAYERS], weights[MAX_LAYERS];
	const uint64_t row_bytes = GRAPH_TOP_K * 4;
	struct moetrace_cuda_buffer buffer;
	struct gather gather = {.f = &f};
	struct graph *graph;
	sqlite3 *db;

	for (uint32_t l = 0; l < n_layers; l++) {
		ids[l] = graph_ids(f.buffers) + l * f.n_rows * row_bytes;
		weights[l] = graph_weights(f.buffers) + l * f.n_rows * row_bytes;
	}
	MOETRACE_INIT(&gather.layers);
	gather.layers.n_layers = n_layers;
	gather.layers.n_rows = f.n_rows;
	gather.layers.id_type = MOETRACE_TYPE_I32;
	gather.layers.ids = ids;
	gather.layers.weight_type = MOETRACE_TYPE_F32;
	gather.layers.weights = weights;
	MOETRACE_INIT(&buffer);
	buffer.ids = ids[0];
	buffer.id_type = MOETRACE_TYPE_I32;
	buffer.order = MOETRACE_ORDER_SELECTION;
	buffer.max_rows = f.n_rows;
	buffer.row_bytes = row_bytes;
	buffer.layer_bytes = f.n_rows * row_bytes;
	if (_i == 0)
		ck_assert_int_eq(moetrace_cuda_adopt(f.lane, &buffer), MOETRACE_OK);
	graph = graph_new(f.buffers, f.stream, 0, n_layers, NULL, _i == 0 ? NULL : launch_gather,
			  &gather);
	for (uint32_t i = 0; i < 40; i++) {
		begin(&f, i, 0);
		graph_launch(graph, f.stream);
		ck_assert_int_eq(moetrace_cuda_pass_end(f.lane), MOETRACE_OK);
		graph_keep(f.buffers, i, f.stream);
	}
	db = toy_close_and_open(&f.toy);
	expect_kept(db, &f, 40, NULL, _i == 1);
	db_close(db);
}
END_TEST

/* Two graphs in two streams at once, and calls that must not be made in a capture. */
START_TEST(test_two_streams)
{
	struct fixture f = open_fixture("streams.db", 16, 30, 0);
	struct graph_buffers *other = graph_buffers_new(n_layers, 16, 1);
	struct moetrace_cuda_target targets[MAX_LAYERS];
	void *stream = graph_stream_new();
	struct moetrace_cuda_lane *lane =
		gpu_lane_add(f.cuda, f.toy.model, stream, n_layers, 16, targets);
	struct graph *graph, *beside;
	sqlite3 *db;

	graph = graph_new(f.buffers, f.stream, 0, n_layers, f.targets, NULL, NULL);
	beside = graph_new(other, stream, 0, n_layers, targets, NULL, NULL);
	for (uint32_t i = 0; i < 30; i++) {
		const struct moetrace_pass_info info = info_of(&f, NULL, 0);

		begin(&f, i, 0);
		ck_assert_int_eq(moetrace_cuda_pass_begin(lane, &info), MOETRACE_OK);
		graph_launch(graph, f.stream);
		graph_launch(beside, stream);
		ck_assert_int_eq(moetrace_cuda_pass_end(lane), MOETRACE_OK);
		ck_assert_int_eq(moetrace_cuda_pass_end(f.lane), MOETRACE_OK);
		graph_keep(f.buffers, i, f.stream);
	}
	graph_stream_wait(f.stream);
	graph_capture_begin(f.stream);
	{
		const struct moetrace_pass_info info = info_of(&f, NULL, 0);

		ck_assert_int_eq(moetrace_cuda_pass_begin(f.lane, &info), MOETRACE_E_STATE);
	}
	graph_capture_end(f.stream);
	ck_assert_int_eq(moetrace_stop(f.toy.session, NULL), MOETRACE_OK);
	db = toy_close_and_open(&f.toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 60);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE runtime_pass IS NULL"), 30);
	db_close(db);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("cuda capture");
	TCase *tc = tcase_create("capture");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, test_fused, 0, 2);
	tcase_add_test(tc, test_pieces);
	tcase_add_test(tc, test_groups);
	tcase_add_test(tc, test_start_stop);
	tcase_add_loop_test(tc, test_buffers, 0, 2);
	tcase_add_test(tc, test_two_streams);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	if (!gpu_is_here())
		return SUITE_SKIPPED;
	if (getenv("MOETRACE_TEST_SMALL"))
		n_layers = SMALL_LAYERS;
	return suite_run(make_suite());
}
