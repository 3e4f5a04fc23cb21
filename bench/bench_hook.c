/* SPDX-License-Identifier: MIT */
/*
 * The cost of the hook on the host: moetrace_select_experts() with int32 ids and fp32 weights,
 * narrowed to u8 and fp16 on the way into the ring. Rings are far larger than the second-level
 * cache and are used in full, so that each store misses it; the router's arrays are warm.
 * Passes are spaced, so that the writer keeps up and nothing is dropped. Times are of all
 * layers of a pass, divided by their number; medians over passes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load.h"

enum { N_LAYERS = 58, N_PASSES = 3000, COPY_BYTES = 64 << 20 };

static const double bar_ns = 150.0;

struct shape {
	const char *what;
	uint32_t n_rows;
	uint32_t n_slices;
	uint32_t n_layers;
	uint32_t n_passes;
	bool is_idle;
	bool has_facts; /* margins and flags of rows are told, too */
};

struct timing {
	double *begin_ns;
	double *layer_ns;
	double *end_ns;
	uint32_t n;
};

static struct timing timing_new(uint32_t n)
{
	struct timing timing = {.n = n};

	timing.begin_ns = calloc(n, sizeof(double));
	timing.layer_ns = calloc(n, sizeof(double));
	timing.end_ns = calloc(n, sizeof(double));
	if (!timing.begin_ns || !timing.layer_ns || !timing.end_ns)
		load_die("memory", "there is not enough");
	return timing;
}

static void timing_free(struct timing *timing)
{
	free(timing->begin_ns);
	free(timing->layer_ns);
	free(timing->end_ns);
}

/* What is told of each row beside its entries; NULL: nothing. */
struct facts {
	float *margins;
	uint8_t *flags;
};

static struct facts facts_new(uint32_t n_rows)
{
	struct facts facts = {calloc(n_rows, sizeof(float)), calloc(n_rows, 1)};
	uint32_t i;

	if (!facts.margins || !facts.flags)
		load_die("memory", "there is not enough");
	for (i = 0; i < n_rows; i++) {
		facts.margins[i] = (float)(i % 7) / 64.0f;
		facts.flags[i] = i % 7 == 0 ? MOETRACE_ROW_TIE : 0;
	}
	return facts;
}

/* One pass with a clock between its parts. */
static void time_pass(struct load *load, const struct facts *facts, struct timing *timing,
		      uint32_t i)
{
	struct moetrace_selection selection = load_selection(load, 0);
	uint64_t before_ns = load_now_ns(), begun_ns, selected_ns;
	struct moetrace_pass *pass = load_begin(load);
	uint32_t layer;

	selection.margins = facts->margins;
	selection.row_flags = facts->flags;
	begun_ns = load_now_ns();
	for (layer = 0; layer < load->n_layers; layer++) {
		selection.layer_index = layer;
		selection.ids = load->ids[layer % LOAD_N_SOURCES];
		selection.weights = load->weights[layer % LOAD_N_SOURCES];
		moetrace_select_experts(pass, &selection);
	}
	selected_ns = load_now_ns();
	moetrace_pass_end(pass);
	timing->end_ns[i] = (double)(load_now_ns() - selected_ns);
	timing->begin_ns[i] = (double)(begun_ns - before_ns);
	timing->layer_ns[i] = (double)(selected_ns - begun_ns) / load->n_layers;
}

/* Room for the writer: what it needs at 40 million assignments a second, and a commit's stop. */
static void pause_for(const struct load *load)
{
	const uint64_t n = (uint64_t)load->n_rows * load->n_layers * LOAD_TOP_K;

	load_sleep_until_ns(load_now_ns() + 200000 + n * 40);
}

static double run(const struct shape *shape)
{
	struct moetrace_session_opts opts;
	struct timing timing = timing_new(shape->n_passes);
	struct facts facts = {NULL, NULL};
	struct moetrace_session_status status;
	struct load load;
	double layer_ns;
	uint32_t i;

	MOETRACE_INIT(&opts);
	opts.ring_bytes = UINT64_C(64) << 20;
	load_open(&load, "/dev/shm", &opts, shape->n_layers, 256, shape->n_rows, shape->n_slices);
	if (shape->is_idle)
		moetrace_stop(load.session, NULL);
	if (shape->has_facts)
		facts = facts_new(shape->n_rows);
	for (i = 0; i < shape->n_passes; i++) {
		time_pass(&load, &facts, &timing, i);
		if (!shape->is_idle)
			pause_for(&load);
	}
	status = load_status(&load);
	if (status.dropped_passes || status.dropped_layers)
		load_die(shape->what, "the writer did not keep up, so the times say nothing");
	layer_ns = load_quantile(timing.layer_ns, shape->n_passes, 0.5);
	printf("%-40s layer %8.1f ns (least %8.1f, p99 %8.1f)  begin %7.1f ns  end %6.1f ns\n",
	       shape->what, layer_ns, timing.layer_ns[0],
	       load_quantile(timing.layer_ns, shape->n_passes, 0.99),
	       load_quantile(timing.begin_ns, shape->n_passes, 0.5),
	       load_quantile(timing.end_ns, shape->n_passes, 0.5));
	load_close(&load, false);
	free(facts.margins);
	free(facts.flags);
	timing_free(&timing);
	return layer_ns;
}

/* For comparison: copying the same arrays, unnarrowed, through as much memory. */
static double time_copy(void)
{
	enum { ROW_BYTES = LOAD_TOP_K * 8, BYTES = 64 * ROW_BYTES, N = 20000 };
	unsigned char *memory = malloc(COPY_BYTES);
	static unsigned char source[BYTES];
	double *times = calloc(N / N_LAYERS, sizeof(*times));
	size_t at = 0;
	uint32_t i, j;
	double median;

	if (!memory || !times)
		load_die("memory", "there is not enough");
	memset(memory, 1, COPY_BYTES);
	for (i = 0; i < N / N_LAYERS; i++) {
		const uint64_t before_ns = load_now_ns();

		for (j = 0; j < N_LAYERS; j++) {
			source[j] ^= 1;
			memcpy(memory + at, source, BYTES);
			at = (at + BYTES) % (COPY_BYTES - BYTES);
		}
		times[i] = (double)(load_now_ns() - before_ns) / N_LAYERS;
	}
	median = load_quantile(times, N / N_LAYERS, 0.5);
	if (memory[at] > 1)
		puts("the copy was not seen");
	free(memory);
	free(times);
	return median;
}

static double time_clock(void)
{
	const uint64_t before_ns = load_now_ns();
	uint32_t i;

	for (i = 0; i < 1000; i++)
		load_now_ns();
	return (double)(load_now_ns() - before_ns) / 1000;
}

int main(void)
{
	static const struct shape shapes[] = {
		{"64 rows, one slice", 64, 1, N_LAYERS, N_PASSES, false, false},
		{"64 rows, margins and flags of them", 64, 1, N_LAYERS, N_PASSES, false, true},
		{"64 rows, 64 slices", 64, 64, N_LAYERS, N_PASSES, false, false},
		{"1 row", 1, 1, N_LAYERS, N_PASSES, false, false},
		{"8192 rows, 6 layers", 8192, 1, 6, 100, false, false},
		{"64 rows, idle (pass is NULL)", 64, 1, N_LAYERS, N_PASSES, true, false},
	};
	const double copy_ns = time_copy();
	double hook_ns;
	size_t i;

	printf("reading the clock %.1f ns; copying 64 x 8 ids and weights unnarrowed %.1f ns\n",
	       time_clock(), copy_ns);
	hook_ns = run(&shapes[0]);
	for (i = 1; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		run(&shapes[i]);
	printf("bar: 64 rows %.1f ns of at most %.0f ns: %s; %.2f of the copy\n", hook_ns, bar_ns,
	       hook_ns <= bar_ns ? "met" : "NOT MET", hook_ns / copy_ns);
	return hook_ns <= bar_ns ? EXIT_SUCCESS : EXIT_FAILURE;
}
