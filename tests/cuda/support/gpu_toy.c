/* SPDX-License-Identifier: MIT */
/*
 * The toy runtime on the fake GPU; see gpu_toy.h.
 */
#include "tests/cuda/support/gpu_toy.h"

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/support/device.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

void *gpu_load_driver(const char *folder)
{
	const char *build = getenv("MOETRACE_BUILDDIR");
	char path[1024];
	void *library;

	snprintf(path, sizeof(path), "%s/tests/cuda/%s/libcuda.so.1", build ? build : ".", folder);
	library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	REQUIRE(library, "%s", dlerror());
	return library;
}

const struct fake_api *gpu_load(void)
{
	void *symbol = dlsym(gpu_load_driver(".libs"), "fake_api");
	const struct fake_api *(*get)(void);

	REQUIRE(symbol, "the fake driver has no fake_api()");
	memcpy(&get, &symbol, sizeof(get));
	return get();
}

struct moetrace_cuda_lane *gpu_lane(struct gpu *gpu, void **ret_stream)
{
	struct moetrace_cuda_lane_info info;
	struct moetrace_cuda_lane *lane;

	*ret_stream = gpu->fake->stream_new();
	MOETRACE_INIT(&info);
	info.stream = *ret_stream;
	info.model = gpu->toy.model;
	info.order = MOETRACE_ORDER_SELECTION;
	info.with_margins = gpu->has_margins;
	ck_assert_int_eq(moetrace_cuda_lane_add(gpu->cuda, &info, &lane), MOETRACE_OK);
	return lane;
}

struct gpu gpu_open_idle(const char *name, const struct moetrace_session_opts *opts,
			 uint32_t n_layers, uint32_t n_experts, uint32_t top_k, uint64_t ring_bytes)
{
	struct gpu gpu = {.fake = gpu_load()};
	struct moetrace_cuda_opts cuda_opts;

	gpu.toy = toy_open(name, opts, n_layers, n_experts, top_k);
	MOETRACE_INIT(&cuda_opts);
	/* As with the host's rings: clearing the usual 64 MiB is most of a small case's time. */
	cuda_opts.ring_bytes = ring_bytes ? ring_bytes : UINT64_C(4) << 20;
	if (ring_bytes == GPU_USUAL_RING)
		cuda_opts.ring_bytes = 0;
	ck_assert_int_eq(moetrace_cuda_attach(gpu.toy.session, &cuda_opts, &gpu.cuda), MOETRACE_OK);
	gpu.lane = gpu_lane(&gpu, &gpu.stream);
	return gpu;
}

struct gpu gpu_second_device(const struct gpu *gpu)
{
	static const uint32_t ordinal = 1;
	struct gpu other = *gpu;
	struct moetrace_cuda_opts opts;

	MOETRACE_INIT(&opts);
	opts.ordinal = &ordinal;
	opts.ring_bytes = 1 << 20;
	ck_assert_int_eq(moetrace_cuda_attach(gpu->toy.session, &opts, &other.cuda), MOETRACE_OK);
	other.lane = gpu_lane(&other, &other.stream);
	return other;
}

static struct gpu start(const char *name, uint32_t n_layers, uint32_t n_experts, uint32_t top_k,
			uint64_t ring_bytes, uint32_t stop_timeout_ms)
{
	struct moetrace_session_opts opts = toy_opts();
	struct gpu gpu;

	opts.stop_timeout_ms = stop_timeout_ms;
	gpu = gpu_open_idle(name, &opts, n_layers, n_experts, top_k, ring_bytes);
	ck_assert_int_eq(moetrace_start(gpu.toy.session, NULL), MOETRACE_OK);
	return gpu;
}

struct gpu gpu_start(const char *name, uint32_t n_layers, uint32_t n_experts, uint32_t top_k,
		     uint64_t ring_bytes)
{
	return start(name, n_layers, n_experts, top_k, ring_bytes, toy_opts().stop_timeout_ms);
}

struct gpu gpu_start_hasty(const char *name, uint32_t n_layers, uint32_t n_experts, uint32_t top_k)
{
	return start(name, n_layers, n_experts, top_k, 0, 300);
}

struct moetrace_pass_info gpu_info(const struct gpu *gpu, struct moetrace_slice *slice,
				   uint64_t request, uint32_t first_position, uint32_t n_rows,
				   uint32_t padding_rows)
{
	struct moetrace_pass_info info;

	memset(slice, 0, sizeof(*slice));
	slice->request = request;
	slice->first_position = first_position;
	slice->n_rows = n_rows;
	MOETRACE_INIT(&info);
	info.model = gpu->toy.model;
	info.phase = MOETRACE_PHASE_DECODE;
	info.n_rows = n_rows;
	info.padding_rows = padding_rows;
	info.slices = slice;
	info.n_slices = 1;
	return info;
}

struct router {
	struct moetrace_cuda_target target;
	const struct fake_api *fake;
	struct toy toy;
	uint32_t n_rows;
	uint32_t flags;
	float (*margin)(uint32_t layer, uint32_t row);
};

static void run_router(void *argument)
{
	const struct router *router = argument;
	const struct moetrace_cuda_target *target = &router->target;
	const uint64_t word = device_load(target);
	int64_t ids[TOY_MAX_K];
	double weights[TOY_MAX_K];

	if (!device_is_on(target, word))
		return;
	for (uint32_t row = 0; row < router->n_rows; row++) {
		for (uint32_t i = 0; i < device_k(target); i++) {
			ids[i] = toy_expert(&router->toy, target->indices >> 16, row, i);
			weights[i] = (double)toy_weight(target->indices >> 16, row, i);
		}
		device_store_row(target, word, row, ids, weights, router->flags);
		if (router->margin)
			device_store_margin(target, word, row,
					    router->margin(target->indices >> 16, row));
	}
	device_store_head(target, word, router->n_rows, router->fake->timer_ns());
}

void gpu_route(struct gpu *gpu, struct moetrace_cuda_lane *lane, void *stream, uint32_t layer,
	       uint32_t n_rows, uint32_t n_all)
{
	struct router router = {
		.fake = gpu->fake, .toy = gpu->toy, .n_rows = n_rows, .flags = gpu->flags,
		.margin = gpu->margin};

	REQUIRE(moetrace_cuda_target_get(lane, layer, n_all, &router.target) == MOETRACE_OK,
		"layer %u has no target", layer);
	gpu->fake->launch(stream, run_router, &router, sizeof(router));
}

int gpu_pass(struct gpu *gpu, uint64_t request, uint32_t first_position, uint32_t n_rows,
	     uint32_t padding_rows)
{
	struct moetrace_slice slice;
	const struct moetrace_pass_info info =
		gpu_info(gpu, &slice, request, first_position, n_rows, padding_rows);
	const int status = moetrace_cuda_pass_begin(gpu->lane, &info);

	for (uint32_t i = 0; i < gpu->toy.n_layers; i++) {
		moetrace_cuda_pass_layers(gpu->lane, i);
		gpu_route(gpu, gpu->lane, gpu->stream, i, n_rows + padding_rows,
			  n_rows + padding_rows);
	}
	moetrace_cuda_pass_end(gpu->lane);
	return status;
}

struct moetrace_cuda_status gpu_status(const struct gpu *gpu)
{
	struct moetrace_cuda_status status;

	MOETRACE_INIT(&status);
	ck_assert_int_eq(moetrace_cuda_query(gpu->cuda, &status), MOETRACE_OK);
	return status;
}

char *gpu_stored(sqlite3 *db)
{
	sqlite3_stmt *stmt = db_query(db, "SELECT hex(topk_ids), hex(topk_weights) FROM topk"
					  " ORDER BY topk_id");
	size_t n_ids = 0, n_weights = 0;
	char *ids = calloc(1, 1), *weights = calloc(1, 1);

	while (db_step(stmt)) {
		const size_t more_ids = (size_t)sqlite3_column_bytes(stmt, 0);
		const size_t more_weights = (size_t)sqlite3_column_bytes(stmt, 1);

		ids = realloc(ids, n_ids + more_ids + 1);
		weights = realloc(weights, n_weights + more_weights + 1);
		REQUIRE(ids && weights, "out of memory");
		memcpy(ids + n_ids, sqlite3_column_text(stmt, 0), more_ids + 1);
		if (more_weights)
			memcpy(weights + n_weights, sqlite3_column_text(stmt, 1), more_weights + 1);
		n_ids += more_ids;
		n_weights += more_weights;
	}
	sqlite3_finalize(stmt);
	ids = realloc(ids, n_ids + n_weights + 2);
	REQUIRE(ids, "out of memory");
	ids[n_ids] = ' ';
	memcpy(ids + n_ids + 1, weights, n_weights);
	ids[n_ids + 1 + n_weights] = '\0';
	free(weights);
	return ids;
}
