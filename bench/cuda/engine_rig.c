/* SPDX-License-Identifier: MIT */
/* Models, contexts and passes for the benchmarks of the engine; see engine_rig.h. */
#include "bench/cuda/engine_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/engine/serve_record.h"
#include "kernels/engine/shape.h"

enum { MAX_ROWS = 8192 };

double rig_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

void rig_must(int status, const struct mtk_error *error, const char *what)
{
	if (status == MOETRACE_OK)
		return;
	fprintf(stderr, "%s: %s\n", what, error ? error->text : moetrace_status_string(status));
	exit(status == MOETRACE_E_UNSUPPORTED ? 77 : 1);
}

struct rig rig_open_layers(const char *shape, uint32_t n_layers, uint32_t n_local_experts,
			   uint32_t n_context, bool without_cublas)
{
	const struct mtk_shape_settings settings = {
		.preset = mtk_preset_find(shape), .n_layers = n_layers, .n_context = n_context};
	const struct mtk_cuda_backend_settings cuda = {.precision = MTK_CUDA_16BIT,
						       .without_cublas = without_cublas,
						       .n_local_experts = n_local_experts};
	struct rig rig = {.shape = shape};
	struct mtk_error error;

	rig_must(mtk_shape_plan(&settings, &error, &rig.model), &error, shape);
	rig_must(mtk_backend_cuda_create(rig.model, &cuda, &error, &rig.backend), &error, shape);
	rig.state = rig.backend->state;
	printf("%s: %u layers, %u of %u experts here, %.1f GB of weights on %s\n", shape,
	       rig.model->config.n_layers, rig.state->weights.n_experts, rig.model->moe.n_experts,
	       (double)rig.state->weights.n_bytes / 1e9, mtk_backend_cuda_description(rig.backend));
	fflush(stdout);
	return rig;
}

struct rig rig_open(const char *shape, uint32_t n_local_experts, uint32_t n_context,
		    bool without_cublas)
{
	return rig_open_layers(shape, 0, n_local_experts, n_context, without_cublas);
}

void rig_close(struct rig *rig)
{
	mtk_backend_cuda_destroy(rig->backend);
	mtk_model_destroy(rig->model);
}

static void session_open(struct rig *rig, struct lane *lane)
{
	static unsigned n_sessions;
	const char *folder = getenv("TMPDIR");
	struct mtk_error error;

	snprintf(lane->path, sizeof(lane->path), "%s/bench_engine-%ld-%u.db",
		 folder && *folder ? folder : "/tmp", (long)getpid(), n_sessions++);
	rig_must(moetrace_session_open(lane->path, NULL, &lane->session), NULL, "session");
	rig_must(mtk_serve_record_model(lane->session, rig->backend, NULL, rig->shape, &lane->model,
					&error),
		 &error, "model");
	lane->lane = rig->backend->ops->record(lane->context, lane->session, lane->model, false);
	if (!lane->lane)
		rig_must(MOETRACE_E_IO, NULL, "no lane");
	lane->known = lane->lane;
}

struct lane rig_lane(struct rig *rig, uint32_t n_slots, uint32_t n_context, uint32_t n_rows_max,
		     const struct mtk_oea *oea, int recording)
{
	const struct mtk_context_settings settings = {.n_slots = n_slots,
						      .n_context = n_context,
						      .n_rows_max = n_rows_max,
						      .n_threads = 1,
						      .oea = oea};
	struct lane lane = {.recording = recording};
	struct mtk_error error;
	void *context;

	rig_must(mtk_cuda_context_create(rig->backend, &settings, &context, &error), &error,
		 "context");
	lane.context = context;
	for (uint32_t slot = 0; slot < n_slots; slot++) {
		uint32_t taken;

		rig_must(mtk_kv_cache_slot_acquire(lane.context->kv, &taken), NULL, "slot");
	}
	if (recording == RIG_UNRECORDED)
		return lane;
	rig->state->settings.recording = (enum mtk_cuda_recording)recording;
	session_open(rig, &lane);
	return lane;
}

struct lane rig_twin(struct lane *lane)
{
	struct lane twin = {.context = lane->context, .recording = RIG_UNRECORDED};

	lane->spare = twin.spare = calloc(MTK_CUDA_N_GRAPHS, sizeof(*lane->spare));
	if (!lane->spare)
		rig_must(MOETRACE_E_NOMEM, NULL, "twin");
	return twin;
}

/* The context launches the lane's kernels, or those of its twin. */
static void enter(const struct lane *lane)
{
	struct mtk_cuda_context *context = lane->context;

	if (!lane->spare || context->lane == lane->known)
		return;
	context->lane = lane->known;
	for (size_t i = 0; i < MTK_CUDA_N_GRAPHS; i++) {
		void *graph = context->graphs[i];

		context->graphs[i] = lane->spare[i];
		lane->spare[i] = graph;
	}
}

void rig_lane_close(struct lane *lane)
{
	if (lane->spare) {
		const struct lane twin = {.context = lane->context, .spare = lane->spare};

		enter(&twin);
		mtk_cuda_graphs_forget(lane->context);
		enter(lane);
		free(lane->spare);
	}
	mtk_cuda_context_destroy(lane->context);
	if (!lane->session)
		return;
	rig_must(moetrace_session_close(lane->session), NULL, "close");
	unlink(lane->path);
}

void rig_record(struct lane *lane, bool is_on)
{
	if (!lane->session)
		return;
	rig_must(is_on ? moetrace_start(lane->session, NULL)
		       : moetrace_stop(lane->session, "measured"),
		 NULL, is_on ? "start" : "stop");
}

static void pass_begin(struct lane *lane, uint32_t phase, uint32_t n_rows)
{
	const double begin_us = rig_now_us();
	struct moetrace_pass_info info;

	if (!lane->lane)
		return;
	MOETRACE_INIT(&info);
	info.model = lane->model;
	info.phase = phase;
	info.n_rows = n_rows;
	(void)moetrace_cuda_pass_begin(lane->lane, &info);
	lane->begin_us += rig_now_us() - begin_us;
}

struct rows {
	int32_t token_ids[MAX_ROWS];
	int32_t positions[MAX_ROWS];
	uint32_t slots[MAX_ROWS];
	uint8_t wanted[MAX_ROWS];
	uint8_t is_decode[MAX_ROWS];
	int32_t chosen[MAX_ROWS];
};

static struct rows rows;

static void forward(struct rig *rig, struct lane *lane, uint32_t n_rows,
		    const struct mtk_forward_hooks *hooks)
{
	const struct mtk_batch batch = {.n_rows = n_rows,
					.token_ids = rows.token_ids,
					.positions = rows.positions,
					.slots = rows.slots,
					.want_logits = rows.wanted,
					.is_decode = rows.is_decode};
	const struct mtk_forward_result result = {.greedy_ids = rows.chosen};
	struct mtk_error error;

	enter(lane);
	/* A graph is captured at its first pass: what it holds follows from this. */
	if (lane->recording != RIG_UNRECORDED)
		rig->state->settings.recording = (enum mtk_cuda_recording)lane->recording;
	rig_must(rig->backend->ops->forward(lane->context, &batch, hooks, &result, &error), &error,
		 "pass");
}

/* A pass that ends when it is launched, before it is waited for. */
static void end_pass(void *ctx)
{
	struct lane *lane = ctx;
	const double begin_us = rig_now_us();

	if (!lane->lane)
		return;
	(void)moetrace_cuda_pass_end(lane->lane);
	lane->end_us += rig_now_us() - begin_us;
	lane->n_passes++;
}

static void run_pass(struct rig *rig, struct lane *lane, uint32_t phase, uint32_t n_rows,
		     const struct mtk_forward_hooks *hooks)
{
	const struct mtk_forward_hooks ends = {.ctx = lane, .launched = end_pass};

	pass_begin(lane, phase, n_rows);
	forward(rig, lane, n_rows, hooks || !lane->lane ? hooks : &ends);
	if (hooks)
		end_pass(lane);
}

void rig_decode(struct rig *rig, struct lane *lane, uint32_t n_rows, uint32_t position,
		const struct mtk_forward_hooks *hooks)
{
	for (uint32_t r = 0; r < n_rows; r++) {
		rows.token_ids[r] = (int32_t)(r * 37 % 256);
		rows.positions[r] = (int32_t)position;
		rows.slots[r] = r;
		rows.wanted[r] = rows.is_decode[r] = 1;
		lane->context->kv->slots[r].length = position;
	}
	run_pass(rig, lane, MOETRACE_PHASE_DECODE, n_rows, hooks);
}

void rig_launch(struct rig *rig, const struct lane *lane, uint32_t n_rows)
{
	struct mtk_error error;
	uint32_t graph = 0;

	enter(lane);
	while (1u << graph < n_rows)
		graph++;
	rig_must(mtk_cuda_graph_launch(lane->context->graphs[graph], rig->state->stream, &error),
		 &error, "graph");
}

void rig_replay(struct rig *rig, struct lane *lane, uint32_t n_rows, uint32_t n_replays)
{
	struct mtk_error error;

	for (uint32_t i = 0; i < n_replays; i++) {
		pass_begin(lane, MOETRACE_PHASE_DECODE, n_rows);
		rig_launch(rig, lane, n_rows);
		end_pass(lane);
	}
	rig_must(mtk_cuda_stream_wait(rig->state->stream, &error), &error, "replay");
}

void rig_prefill(struct rig *rig, struct lane *lane, uint32_t n_sequences, uint32_t n_positions)
{
	const uint32_t n_rows = n_sequences * n_positions;

	for (uint32_t r = 0; r < n_rows; r++) {
		rows.token_ids[r] = (int32_t)(r * 2654435761u >> 24);
		rows.positions[r] = (int32_t)(r % n_positions);
		rows.slots[r] = r / n_positions;
		rows.wanted[r] = r % n_positions == n_positions - 1;
		rows.is_decode[r] = 0;
		lane->context->kv->slots[rows.slots[r]].length = 0;
	}
	run_pass(rig, lane, MOETRACE_PHASE_PREFILL, n_rows, NULL);
}
