/* SPDX-License-Identifier: MIT */
/*
 * make_hard OUTPUT.db: a recorded file that analyses find hard. A model with a dense layer and a
 * draft model; recording 1 with a lost pass, a layer that nobody wrote, a map that changes in the
 * middle, a request that was retracted and one that never ends; recording 2 with every third pass
 * alone; recording 3 without a pass. What is recorded follows from pass, layer and row.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <moetrace/moetrace.h>

enum { N_LAYERS = 2, N_EXPERTS = 16, TOP_K = 2, N_DRAFT_EXPERTS = 6, N_REQUESTS = 3 };

static struct moetrace_session *session;
static uint32_t target, draft;
static uint64_t requests[N_REQUESTS];
static uint32_t positions[N_REQUESTS];

static void check(int status, const char *what)
{
	if (status == MOETRACE_OK)
		return;
	fprintf(stderr, "make_hard: %s: %s\n", what, moetrace_status_string(status));
	exit(1);
}

static uint32_t model_add(const char *name, uint32_t kind, uint32_t n_layers, uint32_t n_experts)
{
	struct moetrace_layer_info layers[N_LAYERS];
	struct moetrace_model_info info;
	uint32_t model;

	for (uint32_t i = 0; i < n_layers; i++) {
		MOETRACE_INIT(&layers[i]);
		layers[i].layer = kind == MOETRACE_MODEL_TARGET ? i + 1 : i;
		layers[i].n_experts = n_experts;
		layers[i].top_k = TOP_K;
		layers[i].gemm_block_rows = 4;
		layers[i].expert_weight_bytes = 1000;
	}
	MOETRACE_INIT(&info);
	info.name = name;
	info.kind = kind;
	info.quantization = "bf16";
	info.layers = layers;
	info.n_moe_layers = n_layers;
	info.n_layers = kind == MOETRACE_MODEL_TARGET ? n_layers + 1 : n_layers;
	check(moetrace_model_add(session, &info, &model), "model");
	return model;
}

/* Experts in order with the first ones again on @n_slots slots of @n_ranks ranks. */
static void map_set(uint32_t n_slots, uint32_t n_ranks)
{
	int32_t slots[N_LAYERS * 2 * N_EXPERTS];
	struct moetrace_expert_map map;

	for (uint32_t i = 0; i < N_LAYERS * n_slots; i++)
		slots[i] = (int32_t)(i % n_slots % N_EXPERTS);
	MOETRACE_INIT(&map);
	map.n_slots = n_slots;
	map.n_ranks = n_ranks;
	map.slot_experts = slots;
	check(moetrace_expert_map_set(session, target, &map, NULL), "map");
}

static void request_begin(uint32_t i, const char *id, const char *domain)
{
	struct moetrace_request_info info;

	MOETRACE_INIT(&info);
	info.external_id = id;
	check(moetrace_request_begin(session, &info, &requests[i]), "request");
	check(moetrace_request_attribute_set(session, requests[i], "domain", domain), "attribute");
	positions[i] = 0;
}

static struct moetrace_pass *pass_begin(uint32_t model, uint32_t phase, uint32_t rows_each)
{
	struct moetrace_slice slices[N_REQUESTS] = {{0}};
	struct moetrace_pass_info info;
	uint32_t n = 0;

	for (uint32_t i = 0; i < N_REQUESTS; i++) {
		if (requests[i] == MOETRACE_NO_REQUEST)
			continue;
		slices[n].request = requests[i];
		slices[n].first_position = positions[i];
		slices[n++].n_rows = rows_each;
		if (model == target)
			positions[i] += rows_each;
	}
	MOETRACE_INIT(&info);
	info.model = model;
	info.phase = phase;
	info.slices = slices;
	info.n_slices = n;
	info.n_rows = n * rows_each;
	info.padding_rows = 1;
	return moetrace_pass_begin(session, &info);
}

static void layer_select(struct moetrace_pass *pass, uint32_t layer, uint32_t n_rows,
			 uint32_t n_experts, uint32_t number)
{
	struct moetrace_selection selection;
	int32_t ids[64 * TOP_K];

	for (uint32_t i = 0; i < n_rows; i++) {
		const uint32_t first = (i * i + number * 3 + layer) % (n_experts / 2);

		ids[TOP_K * i] = (int32_t)first;
		ids[TOP_K * i + 1] = (int32_t)((first + 1 + i % 3) % n_experts);
	}
	MOETRACE_INIT(&selection);
	selection.layer_index = layer;
	selection.n_rows = n_rows;
	selection.k = TOP_K;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = ids;
	moetrace_select_experts(pass, &selection);
}

static void pass_run(uint32_t number, uint32_t phase, uint32_t rows_each, bool skips_layer)
{
	const bool is_draft = phase == MOETRACE_PHASE_DRAFT;
	struct moetrace_pass *pass = pass_begin(is_draft ? draft : target, phase, rows_each);
	uint32_t n_rows = 0;

	for (uint32_t i = 0; i < N_REQUESTS; i++)
		n_rows += requests[i] == MOETRACE_NO_REQUEST ? 0 : rows_each;
	for (uint32_t i = 0; pass && i < (is_draft ? 1u : N_LAYERS); i++)
		if (!skips_layer || i > 0)
			layer_select(pass, i, n_rows, is_draft ? N_DRAFT_EXPERTS : N_EXPERTS,
				     number);
	if (pass)
		moetrace_pass_end(pass);
}

static void start(uint32_t sample)
{
	struct moetrace_recording_opts opts;

	MOETRACE_INIT(&opts);
	opts.sample_every_n_passes = sample;
	check(moetrace_start(session, &opts), "start");
}

static void record_first(void)
{
	struct moetrace_pass *held;

	start(0);
	request_begin(0, "alpha", "c");
	request_begin(1, "beta", "prose");
	request_begin(2, "gamma", "c");
	map_set(16, 2);
	pass_run(0, MOETRACE_PHASE_PREFILL, 8, false);
	for (uint32_t i = 1; i < 12; i++)
		pass_run(i, MOETRACE_PHASE_DECODE, 1, i == 5);
	check(moetrace_request_retract(session, requests[1]), "retract");
	positions[1] = 0;
	map_set(20, 4);
	/* There is one ring: the second of two passes at once is lost. */
	held = pass_begin(target, MOETRACE_PHASE_DECODE, 1);
	pass_run(12, MOETRACE_PHASE_DECODE, 1, false);
	for (uint32_t i = 0; held && i < N_LAYERS; i++)
		layer_select(held, i, N_REQUESTS, N_EXPERTS, 12);
	moetrace_pass_end(held);
	for (uint32_t i = 13; i < 30; i++)
		pass_run(i, i % 4 ? MOETRACE_PHASE_DECODE : MOETRACE_PHASE_DRAFT, 1, false);
	check(moetrace_request_end(session, requests[0], MOETRACE_REQUEST_FINISHED, positions[0]),
	      "end");
	requests[0] = MOETRACE_NO_REQUEST;
	check(moetrace_stop(session, NULL), "stop");
}

int main(int argc, char **argv)
{
	struct moetrace_session_opts opts;

	if (argc != 2) {
		fputs("usage: make_hard OUTPUT.db\n", stderr);
		return 2;
	}
	MOETRACE_INIT(&opts);
	opts.engine_name = "hard";
	opts.n_rings = 1;
	check(moetrace_session_open(argv[1], &opts, &session), "open");
	target = model_add("target", MOETRACE_MODEL_TARGET, N_LAYERS, N_EXPERTS);
	draft = model_add("draft", MOETRACE_MODEL_DRAFT, 1, N_DRAFT_EXPERTS);
	record_first();
	start(3);
	for (uint32_t i = 0; i < 30; i++)
		pass_run(40 + i, MOETRACE_PHASE_DECODE, 1, false);
	check(moetrace_stop(session, NULL), "stop");
	start(0);
	check(moetrace_stop(session, NULL), "stop");
	check(moetrace_session_close(session), "close");
	return 0;
}
