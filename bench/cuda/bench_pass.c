/* SPDX-License-Identifier: MIT */
/*
 * Where the time of a recorded pass goes that is not the kernels': what each operation of its begin and
 * end takes on the host and adds on the GPU, and what the recorder's own begin and end are made of
 * while a model decodes, whose kernels and waits leave nothing of it in the caches.
 *
 *   bench_pass operations
 *   bench_pass [SHAPE [ROWS [LOCAL_EXPERTS]]]    the operations, then those of a model's decode step
 *
 * The operations are tried around a graph of small kernels, with copies of as many bytes as a pass of
 * the model has; then around its decode step. A pause of the GPU is what lies between the last stamp of
 * a graph and the first one of the next, both of its own timer.
 */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/cuda/engine_rig.h"
#include "bench/cuda/pass_kernels.h"
#include "bench/cuda/pass_ways.h"

enum { POSITION = 511, N_KERNELS = 150, N_SHORT = 50, N_STEPS = 4, N_LAYERS = 48 };

static void must(int status, const struct mtk_error *error)
{
	if (status == MOETRACE_OK)
		return;
	fprintf(stderr, "bench_pass: %s\n", error->text);
	exit(status == MOETRACE_E_UNSUPPORTED ? 77 : 1);
}

static size_t bytes_of_pass(uint32_t n_layers, uint32_t n_rows)
{
	struct mt_cuda_layer layer;

	pass_must(mt_cuda_layer_init(&layer, 128, 8), "a layer");
	return n_layers * mt_cuda_layer_bytes(&layer, n_rows);
}

/* ---- around a graph of small kernels ---- */

struct small {
	struct moetrace_session *session;
	struct moetrace_cuda *cuda;
	struct moetrace_cuda_lane *lane;
	struct moetrace_pass_info info;
	char path[256];
	void *stream;
	void *graph;
	struct pass_stamps *stamps;
};

static void launch_small(void *context)
{
	struct small *small = context;
	struct mtk_error error;

	must(mtk_cuda_graph_launch(small->graph, small->stream, &error), &error);
}

static double small_gap_us(void *context)
{
	static struct pass_stamps stamps;
	struct small *small = context;
	struct mtk_error error;
	double gap_us = 0.0;

	must(mtk_cuda_download(&stamps, small->stamps, sizeof(stamps), small->stream, &error),
	     &error);
	must(mtk_cuda_zero(small->stamps, sizeof(stamps.n), small->stream, &error), &error);
	must(mtk_cuda_stream_wait(small->stream, &error), &error);
	for (uint64_t i = 1; i < stamps.n; i++)
		gap_us += (double)(stamps.ns[i][0] - stamps.ns[i - 1][1]) * 1e-3;
	return stamps.n > 1 ? gap_us / (double)(stamps.n - 1) : (double)NAN;
}

static void must_trace(struct small *small, int status, const char *what)
{
	char text[512] = "";

	if (status == MOETRACE_OK)
		return;
	moetrace_errmsg(small->session, text, sizeof(text));
	fprintf(stderr, "bench_pass: %s: %s: %s\n", what, moetrace_status_string(status), text);
	exit(1);
}

static void add_model(struct small *small)
{
	static struct moetrace_layer_info layers[N_LAYERS];
	struct moetrace_model_info info;

	for (uint32_t i = 0; i < N_LAYERS; i++) {
		MOETRACE_INIT(&layers[i]);
		layers[i].layer = i;
		layers[i].n_experts = 128;
		layers[i].top_k = 8;
	}
	MOETRACE_INIT(&info);
	info.name = "nothing";
	info.layers = layers;
	info.n_moe_layers = N_LAYERS;
	MOETRACE_INIT(&small->info);
	small->info.phase = MOETRACE_PHASE_DECODE;
	must_trace(small, moetrace_model_add(small->session, &info, &small->info.model), "model");
}

static struct small small_open(uint32_t n_rows)
{
	const char *folder = getenv("TMPDIR");
	struct moetrace_cuda_lane_info lane;
	struct small small = {.session = NULL};
	struct mtk_cuda_device device;
	struct mtk_error error;
	void *memory;

	must(mtk_cuda_open(0, &error, &device), &error);
	printf("%s, driver for CUDA %u.%u\n", device.name, device.driver_version / 1000,
	       device.driver_version % 1000 / 10);
	must(mtk_cuda_stream_create(&error, &small.stream), &error);
	must(mtk_cuda_alloc(sizeof(*small.stamps), &error, &memory), &error);
	must(mtk_cuda_zero(memory, sizeof(*small.stamps), small.stream, &error), &error);
	small.stamps = memory;
	snprintf(small.path, sizeof(small.path), "%s/bench_pass-%ld.db",
		 folder && *folder ? folder : "/tmp", (long)getpid());
	must_trace(&small, moetrace_session_open(small.path, NULL, &small.session),
		   moetrace_open_errmsg());
	add_model(&small);
	small.info.n_rows = n_rows;
	must_trace(&small, moetrace_cuda_attach(small.session, NULL, &small.cuda), "attach");
	MOETRACE_INIT(&lane);
	lane.stream = small.stream;
	lane.model = small.info.model;
	must_trace(&small, moetrace_cuda_lane_add(small.cuda, &lane, &small.lane), "lane");
	return small;
}

static void small_close(struct small *small)
{
	must_trace(small, moetrace_session_close(small->session), "close");
	unlink(small->path);
}

/* A way around the graph, in all orders. */
static void try_small(struct small *small, struct ways *ways, const struct way *way, void *graph)
{
	struct small of_base = *small, of_other = *small;
	struct pass_load base = {
		.launch = launch_small, .gap_us = small_gap_us, .context = &of_base, .ways = ways};
	struct pass_load other = base;
	struct change changes[PASS_N_ORDERS];

	if (!pass_is_possible(ways, way))
		return;
	of_other.graph = graph;
	other.context = &of_other;
	for (int order = 0; order < PASS_N_ORDERS; order++) {
		base.order = other.order = (enum pass_order)order;
		changes[order] = pass_compare(&base, &other, way, N_SHORT);
	}
	pass_print(way->name, changes);
}

static void measure_small(uint32_t n_rows, uint32_t n_layers)
{
	static const struct way fetched = {"pinned word, fetched by the graph's first kernel", "s",
					   "", false};
	static const struct way recorder = {"the recorder's begin and end", "B", "Z", true};
	struct small small = small_open(n_rows);
	const size_t n_bytes = bytes_of_pass(n_layers, n_rows);
	struct ways ways = ways_open(small.cuda, small.stream, n_bytes);
	struct mtk_error error;
	void *graph;

	ways.lane = small.lane;
	ways.info = small.info;
	must(pass_graph_make(small.stamps, N_KERNELS, 0, 0, small.stream, &error, &small.graph),
	     &error);
	must(pass_graph_make(small.stamps, N_KERNELS, (uintptr_t)ways.pinned, ways.word,
			     small.stream, &error, &graph),
	     &error);
	printf("a graph of %d kernels, copies of %zu bytes, timer of %llu ns\n", N_KERNELS, n_bytes,
	       (unsigned long long)small.cuda->resolution_ns);
	pass_header("operations around a graph of small kernels");
	for (size_t i = 0; i < pass_n_ways; i++)
		try_small(&small, &ways, &pass_ways[i], small.graph);
	try_small(&small, &ways, &fetched, graph);
	must_trace(&small, moetrace_start(small.session, NULL), "start");
	try_small(&small, &ways, &recorder, small.graph);
	small_close(&small);
}

/* ---- what begin and end are made of ---- */

enum { MAX_CALLS = 8, MAX_PASSES = 400 };

/* The driver's calls within begin, then within end, in the order in which they come. */
static struct parts {
	int which; /* 0: in begin, 1: in end */
	uint32_t pass;
	uint32_t n_calls; /* of this begin or end so far */
	struct {
		uint32_t n_calls;
		const char *names[MAX_CALLS];
		double us[MAX_CALLS][MAX_PASSES];
		double all_us[MAX_PASSES];
		double own_us[MAX_PASSES];
	} of[2];
} parts;
static const struct mt_cu *real;

static void note(const char *name, double us)
{
	if (parts.n_calls == MAX_CALLS)
		return;
	parts.of[parts.which].names[parts.n_calls] = name;
	parts.of[parts.which].us[parts.n_calls++][parts.pass] = us;
}

#define TIMED(member, arguments, names)                         \
	static int timed_##member arguments                     \
	{                                                       \
		const double begin_us = pass_now_us();          \
		const int result = real->member names;          \
                                                                \
		note(#member, pass_now_us() - begin_us);        \
		return result;                                  \
	}

TIMED(stream_is_capturing, (void *stream, int *state), (stream, state))
TIMED(write_value, (void *stream, uint64_t at, uint64_t value, unsigned int flags),
      (stream, at, value, flags))
TIMED(wait_value, (void *stream, uint64_t at, uint64_t value, unsigned int flags),
      (stream, at, value, flags))
TIMED(event_record, (void *event, void *stream), (event, stream))
TIMED(stream_wait_event, (void *stream, void *event, unsigned int flags), (stream, event, flags))
TIMED(copy_to_host, (void *to, uint64_t from, size_t n_bytes, void *stream),
      (to, from, n_bytes, stream))
TIMED(copy_on_device, (uint64_t to, uint64_t from, size_t n_bytes, void *stream),
      (to, from, n_bytes, stream))
TIMED(copy_2d, (const struct mt_cu_copy_2d *copy, void *stream), (copy, stream))
TIMED(launch,
      (void *function, unsigned int x, unsigned int y, unsigned int z, unsigned int block_x,
       unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, void *stream,
       void **parameters, void **extra),
      (function, x, y, z, block_x, block_y, block_z, shared_bytes, stream, parameters, extra))

/* The recorder calls the driver by a table: one whose calls are timed takes its place. */
static void time_calls(struct moetrace_cuda *cuda)
{
	static struct mt_cu timed;

	real = cuda->cu;
	timed = *real;
	timed.stream_is_capturing = timed_stream_is_capturing;
	timed.write_value = timed_write_value;
	timed.wait_value = timed_wait_value;
	timed.event_record = timed_event_record;
	timed.stream_wait_event = timed_stream_wait_event;
	timed.copy_to_host = timed_copy_to_host;
	timed.copy_on_device = timed_copy_on_device;
	timed.copy_2d = timed_copy_2d;
	timed.launch = timed_launch;
	cuda->cu = &timed;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double part_of(double *values, uint32_t n, uint32_t percent)
{
	qsort(values, n, sizeof(*values), by_value);
	return values[(uint64_t)n * percent / 100];
}

static void print_parts(int which, uint32_t n)
{
	double *own_us = parts.of[which].own_us;

	printf("  %-5s %6.2f (99 %%: %6.2f) = ", which ? "end" : "begin",
	       part_of(parts.of[which].all_us, n, 50), part_of(parts.of[which].all_us, n, 99));
	for (uint32_t i = 0; i < parts.of[which].n_calls; i++)
		printf("%s %.2f + ", parts.of[which].names[i],
		       part_of(parts.of[which].us[i], n, 50));
	printf("its own %.2f\n", part_of(own_us, n, 50));
}

static void timed_part(struct ways *ways, int which, uint32_t pass)
{
	const double begin_us = pass_now_us();
	double calls_us = 0.0;

	parts.which = which;
	parts.pass = pass;
	parts.n_calls = 0;
	if (which)
		(void)moetrace_cuda_pass_end(ways->lane);
	else
		(void)moetrace_cuda_pass_begin(ways->lane, &ways->info);
	parts.of[which].all_us[pass] = pass_now_us() - begin_us;
	parts.of[which].n_calls = parts.n_calls;
	for (uint32_t i = 0; i < parts.n_calls; i++)
		calls_us += parts.of[which].us[i][pass];
	parts.of[which].own_us[pass] = parts.of[which].all_us[pass] - calls_us;
}

static void measure_parts(const struct pass_load *load, uint32_t n, const char *what)
{
	struct moetrace_cuda *cuda = load->ways->lane->cuda;

	if (load->is_held)
		pthread_mutex_lock(&cuda->deliver);
	for (uint32_t pass = 0; pass < n; pass++) {
		timed_part(load->ways, 0, pass);
		load->launch(load->context);
		timed_part(load->ways, 1, pass);
	}
	pass_must(real->stream_wait(load->ways->stream), "waiting");
	if (load->is_held)
		pthread_mutex_unlock(&cuda->deliver);
	pass_must(moetrace_flush(cuda->session), "flush");
	printf("%s, %u passes, host us in the median:\n", what, n);
	print_parts(0, n);
	print_parts(1, n);
	fflush(stdout);
}

/* ---- around a model's decode step ---- */

struct step {
	struct rig *rig;
	struct lane lane; /* whose passes are begun and ended elsewhere */
	uint32_t n_rows;
};

static void launch_step(void *context)
{
	struct step *step = context;

	rig_decode(step->rig, &step->lane, step->n_rows, POSITION, NULL);
}

static void launch_graph(void *context)
{
	const struct step *step = context;

	rig_launch(step->rig, &step->lane, step->n_rows);
}

static void launch_nothing(void *context)
{
	(void)context;
}

static struct step step_of(struct rig *rig, const struct lane *lane, uint32_t n_rows)
{
	struct step step = {.rig = rig, .lane = *lane, .n_rows = n_rows};

	step.lane.lane = NULL;
	/* Captures the graph. */
	for (int i = 0; i < 3; i++)
		launch_step(&step);
	return step;
}

/* Steps that are waited for have their inputs sent up and their results fetched; others are the graph. */
static void try_step(struct step *none, struct step *step, struct ways *ways, const struct way *way,
		     bool is_held)
{
	struct pass_load base = {.context = none, .ways = ways};
	struct pass_load other = {.context = step, .ways = ways, .is_held = is_held};
	struct change changes[PASS_N_ORDERS];
	char name[64];

	if (!pass_is_possible(ways, way))
		return;
	for (int order = 0; order < PASS_N_ORDERS; order++) {
		base.order = other.order = (enum pass_order)order;
		base.launch = other.launch = order == PASS_WAITED ? launch_step : launch_graph;
		changes[order] = pass_compare(&base, &other, way, N_STEPS);
	}
	snprintf(name, sizeof(name), "%s%s", way->name, is_held ? ", nobody drains" : "");
	pass_print(name, changes);
}

/* What a file of a thread says: its name, and how long it has run. */
static unsigned long long thread_ns(const char *thread, const char *wanted)
{
	char path[300], name[32] = "";
	unsigned long long ran_ns = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%.64s/comm", thread);
	file = fopen(path, "r");
	if (!file)
		return 0;
	if (fgets(name, sizeof(name), file))
		name[strcspn(name, "\n")] = '\0';
	fclose(file);
	if (strcmp(name, wanted) != 0)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/task/%.64s/schedstat", thread);
	file = fopen(path, "r");
	if (!file)
		return 0;
	if (fscanf(file, "%llu", &ran_ns) != 1)
		ran_ns = 0;
	fclose(file);
	return ran_ns;
}

/* Time that threads of this name have run. */
static double thread_us(const char *wanted)
{
	DIR *folder = opendir("/proc/self/task");
	unsigned long long ns = 0;
	struct dirent *entry;

	while (folder && (entry = readdir(folder)))
		ns += entry->d_name[0] == '.' ? 0 : thread_ns(entry->d_name, wanted);
	if (folder)
		closedir(folder);
	return (double)ns * 1e-3;
}

static void measure_recorder(struct rig *rig, struct ways *ways, uint32_t n_rows, int recording,
			     const char *name)
{
	static const struct way nothing = {"its kernels, idle", "", "", true};
	static const struct way recorder = {"recorded", "B", "Z", true};
	struct lane lane = rig_lane(rig, n_rows, POSITION + 1, n_rows, NULL, recording);
	struct lane twin = rig_twin(&lane);
	struct step none = step_of(rig, &twin, n_rows);
	struct step step = step_of(rig, &lane, n_rows);
	struct pass_load load = {.launch = launch_step, .context = &step, .ways = ways};
	const uint32_t n_held = n_rows > 16 ? 40 : MAX_PASSES / 2;
	double drain_us, writer_us;
	char what[128];

	ways->lane = lane.lane;
	MOETRACE_INIT(&ways->info);
	ways->info.model = lane.model;
	ways->info.phase = MOETRACE_PHASE_DECODE;
	ways->info.n_rows = n_rows;
	snprintf(what, sizeof(what), "decode step of %u rows, %s", n_rows, name);
	pass_header(what);
	try_step(&none, &step, ways, &nothing, false);
	rig_record(&lane, true);
	try_step(&none, &step, ways, &recorder, false);
	try_step(&none, &step, ways, &recorder, true);
	time_calls(lane.lane->cuda);
	drain_us = thread_us("moetrace-cuda");
	writer_us = thread_us("moetrace");
	measure_parts(&load, MAX_PASSES, "waited for");
	printf("  meanwhile a pass took %.1f us of the thread that drains and %.1f us of the writer\n",
	       (thread_us("moetrace-cuda") - drain_us) / MAX_PASSES,
	       (thread_us("moetrace") - writer_us) / MAX_PASSES);
	load.is_held = true;
	measure_parts(&load, n_held, "waited for, nobody drains");
	load.is_held = false;
	load.launch = launch_graph;
	measure_parts(&load, MAX_PASSES, "back to back");
	load.launch = launch_nothing;
	measure_parts(&load, MAX_PASSES, "nothing between begin and end");
	lane.lane->cuda->cu = real;
	rig_record(&lane, false);
	rig_lane_close(&lane);
}

static void measure_model(const char *shape, uint32_t n_rows, uint32_t n_local)
{
	struct rig rig = rig_open(shape, n_local, POSITION + 1, false);
	struct lane lane = rig_lane(&rig, n_rows, POSITION + 1, n_rows, NULL, MTK_CUDA_RECORD_FUSED);
	struct lane without = rig_lane(&rig, n_rows, POSITION + 1, n_rows, NULL, RIG_UNRECORDED);
	struct step none = step_of(&rig, &without, n_rows);
	struct ways ways = ways_open(lane.lane->cuda, rig.state->stream,
				     bytes_of_pass(rig.model->config.n_layers, n_rows));

	pass_header("operations around a decode step that is not recorded");
	for (size_t i = 0; i < pass_n_ways; i++)
		if (pass_ways[i].is_tried_on_models)
			try_step(&none, &none, &ways, &pass_ways[i], false);
	measure_recorder(&rig, &ways, n_rows, MTK_CUDA_RECORD_FUSED, "fused");
	measure_recorder(&rig, &ways, n_rows, MTK_CUDA_RECORD_ADOPT, "adopted buffer");
	rig_lane_close(&without);
	rig_lane_close(&lane);
	rig_close(&rig);
}

int main(int argc, char **argv)
{
	const char *shape = argc > 1 ? argv[1] : "qwen3-30b-a3b";
	const unsigned long n_rows = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
	const unsigned long n_local = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;

	if (argc > 4 || n_rows < 1 || n_rows > 64 || (n_rows & (n_rows - 1)) || n_local > 1024) {
		fprintf(stderr, "usage: bench_pass operations | [SHAPE [ROWS [LOCAL_EXPERTS]]]; ROWS is a "
				"power of two up to 64\n");
		return 2;
	}
	measure_small((uint32_t)n_rows, N_LAYERS);
	if (strcmp(shape, "operations") != 0)
		measure_model(shape, (uint32_t)n_rows, (uint32_t)n_local);
	return 0;
}
