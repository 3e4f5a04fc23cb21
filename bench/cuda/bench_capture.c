/* SPDX-License-Identifier: MIT */
/*
 * What the capture costs on a GPU: a graph of 58 layers, each four small kernels and the engine's
 * router (256 experts top-8, sigmoids and a bias), with and without it, by rows. Blocks of replays
 * are paired A B B A, so that drifts cancel; printed is the difference a layer with its 95 %
 * interval. Recording goes to a file in the folder that is the first argument (else TMPDIR, else
 * /tmp); nothing may be lost.
 *
 *   bench_capture [-r ROWS,...] [-l LANES] [FOLDER]
 *
 * With -r: what a GPU makes of grids. For each number of rows also the router without capture on
 * one row more, whose grid is as large as that of the kernel with capture. With -l the kernel with
 * capture is idle on each of so many lanes, whose words lie 64 bytes apart.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/route/route_cuda.h"
#include "tests/cuda/support/graph.h"

enum { N_LAYERS = 58, N_REPLAYS = 40, N_PAIRS = 32, MAX_PASSES = N_PAIRS * N_REPLAYS * 8 };

struct bench {
	struct moetrace_session *session;
	struct moetrace_cuda *cuda;
	struct moetrace_cuda_lane *lane; /* the first */
	struct moetrace_cuda_lane *lanes[MOETRACE_CUDA_MAX_LANES];
	uint32_t n_lanes;
	struct moetrace_pass_info info;
	void *stream;
	double *host_us; /* begin and end of each pass */
	uint32_t n_host;
	double begun_us;
};

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void must(struct bench *bench, int status, const char *what)
{
	char text[512] = "";

	if (status == MOETRACE_OK)
		return;
	moetrace_errmsg(bench->session, text, sizeof(text));
	fprintf(stderr, "bench_capture: %s: %s: %s\n", what, moetrace_status_string(status), text);
	exit(1);
}

static void around(void *context, int is_after)
{
	struct bench *bench = context;
	const double before = now_us();

	if (!is_after) {
		(void)moetrace_cuda_pass_begin(bench->lane, &bench->info);
		bench->begun_us = now_us() - before;
		return;
	}
	(void)moetrace_cuda_pass_end(bench->lane);
	if (bench->n_host < MAX_PASSES)
		bench->host_us[bench->n_host++] = bench->begun_us + (now_us() - before);
}

/* A graph to time, and whether its replays are passes. */
struct variant {
	const char *name;
	struct graph *graph;
	int is_recorded;
};

static double block_us(struct bench *bench, const struct variant *variant)
{
	double us = graph_time_us(variant->graph, bench->stream, N_REPLAYS,
				  variant->is_recorded ? around : NULL, bench);

	if (variant->is_recorded)
		must(bench, moetrace_flush(bench->session), "flush");
	return us;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void compare(struct bench *bench, uint32_t n_rows, const struct variant *base,
		    const struct variant *variant)
{
	double mean = 0, base_us = 0, squares = 0;
	double differences[N_PAIRS];
	double half_width;

	(void)block_us(bench, base);
	(void)block_us(bench, variant);
	for (int i = 0; i < N_PAIRS; i++) {
		const double a1 = block_us(bench, base);
		const double b1 = block_us(bench, variant);
		const double b2 = block_us(bench, variant);
		const double a2 = block_us(bench, base);

		differences[i] = (b1 + b2 - a1 - a2) / 2;
		mean += differences[i] / N_PAIRS;
		base_us += (a1 + a2) / 2 / N_PAIRS;
	}
	for (int i = 0; i < N_PAIRS; i++)
		squares += (differences[i] - mean) * (differences[i] - mean);
	half_width = 2.04 * sqrt(squares / (N_PAIRS - 1) / N_PAIRS);
	printf("%6u %-22s %9.2f %9.2f %9.1f  [%7.1f, %7.1f]\n", n_rows, variant->name, base_us,
	       base_us + mean, mean / N_LAYERS * 1e3, (mean - half_width) / N_LAYERS * 1e3,
	       (mean + half_width) / N_LAYERS * 1e3);
	fflush(stdout);
}

static void add_model(struct bench *bench)
{
	static struct moetrace_layer_info layers[N_LAYERS];
	struct moetrace_model_info info;

	for (uint32_t i = 0; i < N_LAYERS; i++) {
		MOETRACE_INIT(&layers[i]);
		layers[i].layer = i;
		layers[i].n_experts = GRAPH_EXPERTS;
		layers[i].top_k = GRAPH_TOP_K;
	}
	MOETRACE_INIT(&info);
	info.name = "skeleton";
	info.layers = layers;
	info.n_moe_layers = N_LAYERS;
	MOETRACE_INIT(&bench->info);
	must(bench, moetrace_model_add(bench->session, &info, &bench->info.model), "model_add");
	bench->info.phase = MOETRACE_PHASE_DECODE;
}

struct store {
	struct bench *bench;
	struct moetrace_cuda_layers layers;
	int is_one_launch;
};

static void launch_stores(void *context)
{
	struct store *store = context;
	struct moetrace_cuda_layers layers = store->layers;

	layers.n_layers = store->is_one_launch ? N_LAYERS : 1;
	for (uint32_t l = 0; l < (store->is_one_launch ? 1 : N_LAYERS); l++) {
		layers.first_layer = l;
		layers.ids = store->layers.ids + l;
		layers.weights = store->layers.weights + l;
		must(store->bench,
		     moetrace_cuda_store(store->bench->lane, store->bench->stream, &layers),
		     "store");
	}
}

static uint32_t n_left_out; /* rows of a graph that the router does without */

static void route(void *stream, const float *logits, const float *bias, int32_t *ids,
		  float *weights, uint32_t n_rows, const struct moetrace_cuda_target *target)
{
	struct mtk_route_config config = mtk_route_config_make(GRAPH_EXPERTS, GRAPH_TOP_K);
	const struct mtk_route_cuda_batch batch = {
		.n_rows = n_rows - n_left_out, .logits = logits, .bias = bias, .target = target};
	const struct mtk_route_result result = {.ids = ids, .weights = weights};
	struct mtk_error error;

	config.scoring = MTK_ROUTE_SIGMOID;
	config.bias = MTK_ROUTE_BIAS_SCORE;
	config.renormalise = MTK_ROUTE_RENORMALISE_EPSILON;
	config.scale = 2.5;
	if (!mtk_route_cuda(&config, &batch, &result, stream, &error))
		return;
	fprintf(stderr, "bench_capture: routing: %s\n", error.text);
	exit(1);
}

static void targets_get(struct bench *bench, uint32_t lane, uint32_t n_rows,
			struct moetrace_cuda_target *ret_targets)
{
	for (uint32_t l = 0; l < N_LAYERS; l++)
		must(bench,
		     moetrace_cuda_target_get(bench->lanes[lane], l, n_rows, &ret_targets[l]),
		     "target");
}

/* What one block more takes, and where a lane's word lies: both without anything recorded. */
static void measure_grid(struct bench *bench, uint32_t n_rows)
{
	struct graph_buffers *buffers = graph_buffers_new(N_LAYERS, n_rows + 1, 1);
	struct variant base = {.name = "none"}, more = {.name = "one row more"};
	struct moetrace_cuda_target targets[N_LAYERS];
	char name[32];

	graph_use_router(buffers, route);
	more.graph = graph_new(buffers, bench->stream, 0, N_LAYERS, NULL, NULL, NULL);
	n_left_out = 1;
	base.graph = graph_new(buffers, bench->stream, 0, N_LAYERS, NULL, NULL, NULL);
	compare(bench, n_rows, &base, &base);
	compare(bench, n_rows, &base, &more);
	for (uint32_t i = 0; i < bench->n_lanes; i++) {
		targets_get(bench, i, n_rows, targets);
		snprintf(name, sizeof(name), "idle, lane %u", i);
		more.name = name;
		more.graph = graph_new(buffers, bench->stream, 0, N_LAYERS, targets, NULL, NULL);
		compare(bench, n_rows, &base, &more);
	}
	n_left_out = 0;
}

/* All ways for one number of rows. */
static void measure_rows(struct bench *bench, uint32_t n_rows, int has_all)
{
	struct graph_buffers *buffers = graph_buffers_new(N_LAYERS, n_rows, 1);
	struct moetrace_cuda_target targets[N_LAYERS];
	uint64_t ids[N_LAYERS], weights[N_LAYERS];
	struct store store = {.bench = bench};
	struct moetrace_cuda_buffer buffer;
	struct variant base = {.name = "none"}, idle = {.name = "idle"},
		       fused = {.name = "fused", .is_recorded = 1},
		       other = {.name = "adopted buffer", .is_recorded = 1};

	graph_use_router(buffers, route);
	bench->info.n_rows = n_rows;
	targets_get(bench, 0, n_rows, targets);
	for (uint32_t l = 0; l < N_LAYERS; l++) {
		ids[l] = graph_ids(buffers) + (uint64_t)l * n_rows * GRAPH_TOP_K * 4;
		weights[l] = graph_weights(buffers) + (uint64_t)l * n_rows * GRAPH_TOP_K * 4;
	}
	base.graph = graph_new(buffers, bench->stream, 0, N_LAYERS, NULL, NULL, NULL);
	fused.graph = graph_new(buffers, bench->stream, 0, N_LAYERS, targets, NULL, NULL);
	idle.graph = fused.graph;
	compare(bench, n_rows, &base, &base);
	compare(bench, n_rows, &base, &idle);
	compare(bench, n_rows, &base, &fused);
	if (!has_all)
		return;
	MOETRACE_INIT(&buffer);
	buffer.ids = ids[0];
	buffer.id_type = MOETRACE_TYPE_I32;
	buffer.max_rows = n_rows;
	buffer.row_bytes = GRAPH_TOP_K * 4;
	buffer.layer_bytes = (uint64_t)n_rows * GRAPH_TOP_K * 4;
	other.graph = base.graph;
	must(bench, moetrace_cuda_adopt(bench->lane, &buffer), "adopt");
	compare(bench, n_rows, &base, &other);
	must(bench, moetrace_cuda_adopt(bench->lane, NULL), "adopt");
	MOETRACE_INIT(&store.layers);
	store.layers.n_rows = n_rows;
	store.layers.id_type = MOETRACE_TYPE_I32;
	store.layers.weight_type = MOETRACE_TYPE_F32;
	store.layers.ids = ids;
	store.layers.weights = weights;
	store.is_one_launch = 1;
	other.name = "gather launch a pass";
	other.graph = graph_new(buffers, bench->stream, 0, N_LAYERS, NULL, launch_stores, &store);
	compare(bench, n_rows, &base, &other);
	store.is_one_launch = 0;
	other.name = "launch a layer";
	other.graph = graph_new(buffers, bench->stream, 0, N_LAYERS, NULL, launch_stores, &store);
	compare(bench, n_rows, &base, &other);
}

static void set_up(struct bench *bench, const char *path)
{
	struct moetrace_session_opts opts;
	struct moetrace_cuda_lane_info lane;
	struct moetrace_cuda_status status;

	MOETRACE_INIT(&opts);
	opts.ring_bytes = UINT64_C(64) << 20;
	must(bench, moetrace_session_open(path, &opts, &bench->session), moetrace_open_errmsg());
	add_model(bench);
	must(bench, moetrace_start(bench->session, NULL), "start");
	must(bench, moetrace_cuda_attach(bench->session, NULL, &bench->cuda), "attach");
	bench->stream = graph_stream_new();
	MOETRACE_INIT(&lane);
	lane.stream = bench->stream;
	lane.model = bench->info.model;
	lane.order = MOETRACE_ORDER_SELECTION;
	for (uint32_t i = 0; i < bench->n_lanes; i++)
		must(bench, moetrace_cuda_lane_add(bench->cuda, &lane, &bench->lanes[i]),
		     "lane_add");
	bench->lane = bench->lanes[0];
	MOETRACE_INIT(&status);
	must(bench, moetrace_cuda_query(bench->cuda, &status), "query");
	printf("%s, driver %u.%u, stream writes %s, timer resolution %llu ns\n", status.name,
	       status.driver_version / 1000, status.driver_version % 1000 / 10,
	       status.has_stream_writes ? "yes" : "no",
	       (unsigned long long)status.timer_resolution_ns);
}

enum { MAX_SIZES = 64 };

struct options {
	uint32_t rows[MAX_SIZES];
	uint32_t n_rows; /* 0: the usual ones */
	uint32_t n_lanes;
	const char *folder;
};

static void usage(void)
{
	fprintf(stderr, "usage: bench_capture [-r ROWS,...] [-l LANES] [FOLDER]\n");
	exit(2);
}

static uint32_t number(const char *text, const char *ends, uint32_t most, char **ret_end)
{
	unsigned long value = strtoul(text, ret_end, 10);

	if (*ret_end == text || !strchr(ends, **ret_end) || value < 1 || value > most)
		usage();
	return (uint32_t)value;
}

static void rows_parse(const char *text, struct options *options)
{
	char *end;

	for (;;) {
		if (options->n_rows == MAX_SIZES)
			usage();
		options->rows[options->n_rows++] = number(text, ",", 8192, &end);
		if (!*end)
			return;
		text = end + 1;
	}
}

static struct options options_parse(int argc, char **argv)
{
	struct options options = {.n_lanes = 1};
	char *end;
	int c;

	while ((c = getopt(argc, argv, "r:l:")) != -1) {
		if (c == 'r')
			rows_parse(optarg, &options);
		else if (c == 'l')
			options.n_lanes = number(optarg, "", MOETRACE_CUDA_MAX_LANES, &end);
		else
			usage();
	}
	options.folder = optind < argc ? argv[optind] : getenv("TMPDIR");
	if (!options.folder || !*options.folder)
		options.folder = "/tmp";
	return options;
}

static void measure_usual(struct bench *bench)
{
	static const uint32_t rows[] = {64, 256, 16, 1};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		measure_rows(bench, rows[i], rows[i] == 64);
		qsort(bench->host_us, bench->n_host, sizeof(double), by_value);
		printf("%6u host time of begin + end: median %.2f us, 99 %% %.2f us\n", rows[i],
		       bench->host_us[bench->n_host / 2],
		       bench->host_us[(uint64_t)bench->n_host * 99 / 100]);
		bench->n_host = 0;
	}
}

int main(int argc, char **argv)
{
	const struct options options = options_parse(argc, argv);
	struct bench bench = {.host_us = calloc(MAX_PASSES, sizeof(double)),
			      .n_lanes = options.n_lanes};
	struct moetrace_cuda_status status;
	char path[512], reason[256];

	if (graph_open(reason, sizeof(reason))) {
		fprintf(stderr, "bench_capture: %s\n", reason);
		return 77;
	}
	snprintf(path, sizeof(path), "%s/bench_capture-%ld.db", options.folder, (long)getpid());
	set_up(&bench, path);
	printf("  rows what                    base us   with us  ns/layer  95 %% interval\n");
	for (uint32_t i = 0; i < options.n_rows; i++)
		measure_grid(&bench, options.rows[i]);
	if (!options.n_rows)
		measure_usual(&bench);
	MOETRACE_INIT(&status);
	must(&bench, moetrace_cuda_query(bench.cuda, &status), "query");
	printf("%llu passes, %llu delivered, %llu lost, %llu refused\n",
	       (unsigned long long)status.begun_passes, (unsigned long long)status.delivered_passes,
	       (unsigned long long)status.lost_passes, (unsigned long long)status.refused_passes);
	must(&bench, moetrace_session_close(bench.session), "close");
	unlink(path);
	free(bench.host_us);
	return status.refused_passes || status.lost_passes ? 1 : 0;
}
