/* SPDX-License-Identifier: MIT */
/*
 * make_live OUTPUT.db SECONDS PASSES_PER_S MODE [N_PASSES]: records that long, or until SIGTERM, or
 * that many, passes of 64 decode rows and every 16th of 128 prefill rows, over layers of 256 experts
 * that are unevenly loaded, with a map to four ranks. Names hold what would drive a terminal, were it sent to one.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <moetrace/moetrace.h>

enum { N_LAYERS = 8, N_EXPERTS = 256, TOP_K = 8, MAX_ROWS = 128, N_RANKS = 4 };

static struct moetrace_session *session;
static uint32_t model;
static volatile sig_atomic_t is_over;

static void check(int status, const char *what)
{
	if (status == MOETRACE_OK)
		return;
	fprintf(stderr, "make_live: %s: %s\n", what, moetrace_status_string(status));
	exit(1);
}

static void end_note(int number)
{
	is_over = number;
}

static void model_add(void)
{
	struct moetrace_layer_info layers[N_LAYERS];
	struct moetrace_model_info info;

	for (uint32_t i = 0; i < N_LAYERS; i++) {
		MOETRACE_INIT(&layers[i]);
		layers[i].layer = i + 3;
		layers[i].n_experts = N_EXPERTS;
		layers[i].top_k = TOP_K;
	}
	MOETRACE_INIT(&info);
	info.name = "evil\033]0;stolen\007\033[31mred\302\233"
		    "5m\342\200\256gnp";
	info.kind = MOETRACE_MODEL_TARGET;
	info.layers = layers;
	info.n_moe_layers = N_LAYERS;
	check(moetrace_model_add(session, &info, &model), "model");
}

static void map_set(void)
{
	static int32_t slots[N_LAYERS * N_EXPERTS];
	struct moetrace_expert_map map;

	for (uint32_t i = 0; i < N_LAYERS * N_EXPERTS; i++)
		slots[i] = (int32_t)(i % N_EXPERTS * 5 % N_EXPERTS);
	MOETRACE_INIT(&map);
	map.n_slots = N_EXPERTS;
	map.n_ranks = N_RANKS;
	map.slot_experts = slots;
	check(moetrace_expert_map_set(session, model, &map, NULL), "map");
}

/* Low experts are chosen more often, another one most in each layer. */
static void layer_select(struct moetrace_pass *pass, uint32_t layer, uint32_t n_rows,
			 uint32_t number)
{
	static int32_t ids[MAX_ROWS * TOP_K];
	struct moetrace_selection selection;

	for (uint32_t i = 0; i < n_rows; i++) {
		const uint32_t first = (i * i * 7 + number * 31 + layer * 17) % 97;

		for (uint32_t j = 0; j < TOP_K; j++)
			ids[i * TOP_K + j] = (int32_t)((first + j * j) % N_EXPERTS);
	}
	MOETRACE_INIT(&selection);
	selection.layer_index = layer;
	selection.n_rows = n_rows;
	selection.k = TOP_K;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = ids;
	moetrace_select_experts(pass, &selection);
}

static void pass_run(uint32_t number)
{
	const bool is_prefill = number % 16 == 0;
	struct moetrace_slice slice = {.request = MOETRACE_NO_REQUEST,
				       .n_rows = is_prefill ? MAX_ROWS : MAX_ROWS / 2,
				       .phase = is_prefill ? MOETRACE_PHASE_PREFILL :
							     MOETRACE_PHASE_DECODE};
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;

	MOETRACE_INIT(&info);
	info.model = model;
	info.phase = slice.phase;
	info.slices = &slice;
	info.n_slices = 1;
	info.n_rows = slice.n_rows;
	pass = moetrace_pass_begin(session, &info);
	for (uint32_t i = 0; pass && i < N_LAYERS; i++)
		layer_select(pass, i, slice.n_rows, number);
	if (pass)
		moetrace_pass_end(pass);
}

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void run(double seconds, double passes_per_s, uint32_t n_passes)
{
	const struct timespec pause = {0, 1000000};
	const double begin_s = now_s();
	double next_s = begin_s;
	uint32_t number = 0;

	/* A machine too slow for that many runs what it can; what it was held up for, it does not
	 * make up for all at once.
	 */
	while (!is_over && number < n_passes && now_s() - begin_s < seconds) {
		if (now_s() - next_s > 0.05)
			next_s = now_s() - 0.05;
		for (int i = 0; i < 16 && number < n_passes && next_s < now_s(); i++) {
			pass_run(number++);
			next_s += 1 / passes_per_s;
		}
		nanosleep(&pause, NULL);
	}
}

int main(int argc, char **argv)
{
	struct moetrace_session_opts opts;
	struct moetrace_recording_opts recording;

	if (argc != 5 && argc != 6) {
		fputs("usage: make_live OUTPUT.db SECONDS PASSES_PER_S MODE [N_PASSES]\n", stderr);
		return 2;
	}
	signal(SIGTERM, end_note);
	MOETRACE_INIT(&opts);
	check(moetrace_session_open(argv[1], &opts, &session), "open");
	model_add();
	map_set();
	MOETRACE_INIT(&recording);
	recording.mode = strcmp(argv[4], "stat") == 0	    ? MOETRACE_MODE_STAT :
			 strcmp(argv[4], "per_pass") == 0 ? MOETRACE_MODE_PER_PASS :
							      MOETRACE_MODE_PER_TOKEN;
	check(moetrace_start(session, &recording), "start");
	run(atof(argv[2]), atof(argv[3]),
	    argc == 6 ? (uint32_t)strtoul(argv[5], NULL, 10) : UINT32_MAX);
	check(moetrace_stop(session, NULL), "stop");
	check(moetrace_session_close(session), "close");
	return 0;
}
