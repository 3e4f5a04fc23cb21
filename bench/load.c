/* SPDX-License-Identifier: MIT */
/*
 * The load of the benchmarks; see load.h. Ids are distinct in a row and all experts are used;
 * weights are different numbers that add up to about 1.
 */
#include "bench/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void load_die(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(EXIT_FAILURE);
}

static uint64_t read_clock(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t load_now_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t load_thread_cpu_ns(void)
{
	return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

void load_sleep_until_ns(uint64_t due_ns)
{
	const struct timespec due = {.tv_sec = (time_t)(due_ns / 1000000000u),
				     .tv_nsec = (long)(due_ns % 1000000000u)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) != 0)
		continue;
}

static void *allocate(size_t n, size_t bytes)
{
	void *memory = calloc(n, bytes);

	if (!memory)
		load_die("memory", "there is not enough");
	return memory;
}

static void make_sources(struct load *load)
{
	const size_t n = (size_t)load->n_rows * LOAD_TOP_K;
	uint32_t source;
	size_t i;

	for (source = 0; source < LOAD_N_SOURCES; source++) {
		load->ids[source] = allocate(n, sizeof(int32_t));
		load->weights[source] = allocate(n, sizeof(float));
		for (i = 0; i < n; i++) {
			const uint32_t row = (uint32_t)(i / LOAD_TOP_K) * 2654435761u >> 7;

			load->ids[source][i] = (int32_t)((row + source * 5 + (i % LOAD_TOP_K) * 7) %
							 load->n_experts);
			load->weights[source][i] = 0.2f / (1.0f + (float)(i % 13) / 8.0f);
		}
	}
}

static void add_model(struct load *load)
{
	struct moetrace_layer_info *layers = allocate(load->n_layers, sizeof(*layers));
	struct moetrace_model_info info;
	uint32_t i;

	for (i = 0; i < load->n_layers; i++) {
		MOETRACE_INIT(&layers[i]);
		layers[i].layer = i;
		layers[i].n_experts = load->n_experts;
		layers[i].top_k = LOAD_TOP_K;
	}
	MOETRACE_INIT(&info);
	info.name = "bench";
	info.layers = layers;
	info.n_moe_layers = load->n_layers;
	if (moetrace_model_add(load->session, &info, &load->model) != MOETRACE_OK)
		load_die(load->path, "the model was refused");
	free(layers);
}

static void make_slices(struct load *load)
{
	uint32_t i;

	load->slices = allocate(load->n_slices, sizeof(*load->slices));
	for (i = 0; i < load->n_slices; i++) {
		load->slices[i].n_rows = load->n_rows / load->n_slices;
		if (moetrace_request_begin(load->session, NULL, &load->slices[i].request) !=
		    MOETRACE_OK)
			load_die(load->path, "a request was refused");
	}
}

void load_open(struct load *load, const char *folder, const struct moetrace_session_opts *opts,
	       uint32_t n_layers, uint32_t n_experts, uint32_t n_rows, uint32_t n_slices)
{
	memset(load, 0, sizeof(*load));
	load->n_layers = n_layers;
	load->n_experts = n_experts;
	load->n_rows = n_rows;
	load->n_slices = n_slices;
	snprintf(load->path, sizeof(load->path), "%s/moetrace-bench-%ld.db", folder,
		 (long)getpid());
	if (moetrace_session_open(load->path, opts, &load->session) != MOETRACE_OK)
		load_die("moetrace_session_open", moetrace_open_errmsg());
	add_model(load);
	if (moetrace_start(load->session, NULL) != MOETRACE_OK)
		load_die(load->path, "the recording did not start");
	make_slices(load);
	make_sources(load);
}

struct moetrace_pass *load_begin(struct load *load)
{
	const uint32_t slice_rows = load->n_rows / load->n_slices;
	struct moetrace_pass_info info;
	uint32_t i;

	for (i = 0; i < load->n_slices; i++)
		load->slices[i].first_position = load->position;
	load->position += slice_rows;
	MOETRACE_INIT(&info);
	info.model = load->model;
	info.phase = load->n_slices == 1 ? MOETRACE_PHASE_PREFILL : MOETRACE_PHASE_DECODE;
	info.n_rows = load->n_rows;
	info.slices = load->slices;
	info.n_slices = load->n_slices;
	return moetrace_pass_begin(load->session, &info);
}

struct moetrace_selection load_selection(const struct load *load, uint32_t layer)
{
	struct moetrace_selection selection;

	MOETRACE_INIT(&selection);
	selection.layer_index = layer;
	selection.n_rows = load->n_rows;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = load->ids[layer % LOAD_N_SOURCES];
	selection.weight_type = MOETRACE_TYPE_F32;
	selection.weights = load->weights[layer % LOAD_N_SOURCES];
	selection.order = MOETRACE_ORDER_SELECTION;
	return selection;
}

bool load_pass(struct load *load)
{
	struct moetrace_pass *pass = load_begin(load);
	struct moetrace_selection selection = load_selection(load, 0);
	uint32_t layer;

	for (layer = 0; layer < load->n_layers; layer++) {
		selection.layer_index = layer;
		selection.ids = load->ids[layer % LOAD_N_SOURCES];
		selection.weights = load->weights[layer % LOAD_N_SOURCES];
		moetrace_select_experts(pass, &selection);
	}
	moetrace_pass_end(pass);
	return pass != NULL;
}

struct moetrace_session_status load_status(const struct load *load)
{
	struct moetrace_session_status status;

	MOETRACE_INIT(&status);
	if (moetrace_status(load->session, &status) != MOETRACE_OK)
		load_die(load->path, "no status");
	return status;
}

void load_close(struct load *load, bool keep)
{
	uint32_t i;

	if (moetrace_session_close(load->session) != MOETRACE_OK)
		load_die(load->path, "it was not closed properly");
	if (!keep)
		unlink(load->path);
	for (i = 0; i < LOAD_N_SOURCES; i++) {
		free(load->ids[i]);
		free(load->weights[i]);
	}
	free(load->slices);
}

static int compare(const void *one, const void *other)
{
	const double a = *(const double *)one, b = *(const double *)other;

	return (a > b) - (a < b);
}

double load_quantile(double *values, uint32_t n, double q)
{
	qsort(values, n, sizeof(*values), compare);
	return values[(uint32_t)(q * (n - 1) + 0.5)];
}
