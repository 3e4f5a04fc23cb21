/* SPDX-License-Identifier: MIT */
/*
 * Whose the ends are that CUPTI gives for the kernels of a graph, where records are switched on and off
 * around launches, in several orders. All is done on one thread and waited for, so that an order is
 * what happens.
 *
 * bench_ends [TIMES]: for each order how many of its recorded launches have ends that lie behind the
 * begin of their last kernel, and how late those are at most. Invariant: launches are told apart by
 * their correlation ids, which grow.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "bench/cuda/gpu_time.h"
#include "collectors/cupti/api.h"
#include "kernels/cuda/device.h"

enum { N_NODES = 64, N_UNRECORDED = 20, MAX_NODES = 4096, MAX_LAUNCHES = 8, BUFFER_BYTES = 1 << 20 };

/*
 * + and - switch records on and off, A and B launch a graph and wait for it, a launches without waiting,
 * n launches A so many times and waits each time, f flushes, F has forced out what has not ended.
 */
static const struct order {
	const char *name;
	const char *steps;
} orders[] = {
	{"always on", "+AAAf-"},
	{"off behind it", "+A-nf"},
	{"off while it runs", "+a-nf"},
	{"off behind the next launch of the graph", "+AA-nf"},
	{"off behind a launch of another graph", "+AB-nf"},
	{"flushed, then off", "+Af-nf"},
	{"flushed by force, then off", "+AF-nf"},
	{"flushed with the next one running, then off", "+Aaf-nf"},
	{"on again before it is read", "+A-n+B-f"},
};

struct node {
	uint32_t correlation;
	uint64_t start_ns;
	uint64_t end_ns;
};

static struct mtc_cupti cupti;
static struct node nodes[MAX_NODES]; /* [n_nodes] of what was read last */
static uint32_t n_nodes;
static void *stream, *graphs[2];

static void must(int status, const struct mtk_error *error)
{
	if (status == MOETRACE_OK)
		return;
	fprintf(stderr, "bench_ends: %s\n", error->text);
	exit(1);
}

static void must_cupti(int result, const char *what)
{
	if (result == MTC_CUPTI_OK)
		return;
	fprintf(stderr, "bench_ends: CUPTI: %s: error %d\n", what, result);
	exit(1);
}

/* ---- records ---- */

static void requested(uint8_t **ret_buffer, size_t *ret_bytes, size_t *ret_n_max)
{
	*ret_buffer = aligned_alloc(8, BUFFER_BYTES);
	*ret_bytes = *ret_buffer ? BUFFER_BYTES : 0;
	*ret_n_max = 0;
}

static void completed(void *context, uint32_t on_stream, uint8_t *buffer, size_t n_bytes,
		      size_t valid_bytes)
{
	void *record = NULL;

	(void)context;
	(void)on_stream;
	(void)n_bytes;
	while (cupti.next_record(buffer, valid_bytes, &record) == MTC_CUPTI_OK) {
		const struct mtc_cupti_kernel *kernel = record;

		if (kernel->kind == MTC_CUPTI_CONCURRENT_KERNEL && kernel->graph && n_nodes < MAX_NODES)
			nodes[n_nodes++] = (struct node){kernel->correlation, kernel->start_ns,
							 kernel->end_ns};
	}
	free(buffer);
}

static void called(void *context, int domain, uint32_t id, const void *data)
{
	(void)context;
	(void)domain;
	(void)id;
	(void)data;
}

/* Before the driver comes up; ends with 77 where there is none, or no CUPTI. */
static void open_cupti(void)
{
	void *subscriber;
	char error[200];

	if (mtc_cupti_open(NULL, &cupti, error, sizeof(error))) {
		fprintf(stderr, "bench_ends: %s\n", error);
		exit(77);
	}
	if (cupti.subscribe(&subscriber, called, NULL) != MTC_CUPTI_OK) {
		fprintf(stderr, "bench_ends: CUPTI does not start: no driver, or another tool has it\n");
		exit(77);
	}
	must_cupti(cupti.register_callbacks(requested, completed), "register callbacks");
	must_cupti(cupti.enable(MTC_CUPTI_CONCURRENT_KERNEL), "enable");
	must_cupti(cupti.disable(MTC_CUPTI_CONCURRENT_KERNEL), "disable");
}

static void *capture(void)
{
	struct mtk_error error;
	void *graph;

	must(mtk_cuda_graph_begin(stream, &error), &error);
	for (int i = 0; i < N_NODES; i++)
		must(gpu_launch_empty(NULL, stream, &error), &error);
	must(mtk_cuda_graph_end(stream, &error, &graph), &error);
	return graph;
}

/* ---- orders ---- */

static void launch(int which, int n, int is_waited_for)
{
	struct mtk_error error;

	for (int i = 0; i < n; i++) {
		must(mtk_cuda_graph_launch(graphs[which], stream, &error), &error);
		if (is_waited_for)
			must(mtk_cuda_stream_wait(stream, &error), &error);
	}
}

static void step(char what)
{
	switch (what) {
	case '+':
		return must_cupti(cupti.enable(MTC_CUPTI_CONCURRENT_KERNEL), "enable");
	case '-':
		return must_cupti(cupti.disable(MTC_CUPTI_CONCURRENT_KERNEL), "disable");
	case 'A':
		return launch(0, 1, 1);
	case 'a':
		return launch(0, 1, 0);
	case 'B':
		return launch(1, 1, 1);
	case 'n':
		return launch(0, N_UNRECORDED, 1);
	default:
		must_cupti(cupti.flush(what == 'F' ? MTC_CUPTI_FLUSH_FORCED : 0), "flush");
	}
}

static int by_launch(const void *a, const void *b)
{
	const struct node *x = a, *y = b;

	if (x->correlation != y->correlation)
		return x->correlation < y->correlation ? -1 : 1;
	return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

struct verdict {
	uint32_t n_read;
	uint32_t n_wrong;   /* launches */
	uint32_t n_nodes;   /* of them that have a wrong end */
	uint64_t latest_ns; /* of such an end, behind the begin of the last node */
};

static void judge_launch(const struct node *first, uint32_t n, struct verdict *verdict)
{
	const uint64_t last_ns = first[n - 1].start_ns;
	uint32_t n_late = 0;

	for (uint32_t i = 0; i + 2 < n; i++) {
		if (first[i].end_ns <= last_ns)
			continue;
		n_late++;
		if (first[i].end_ns - last_ns > verdict->latest_ns)
			verdict->latest_ns = first[i].end_ns - last_ns;
	}
	verdict->n_read++;
	verdict->n_wrong += n_late > 0;
	verdict->n_nodes += n_late;
}

/* Into a verdict for each launch that was recorded, in their order. */
static void judge(struct verdict *verdicts)
{
	uint32_t which = 0, n;

	qsort(nodes, n_nodes, sizeof(nodes[0]), by_launch);
	for (uint32_t i = 0; i < n_nodes && which < MAX_LAUNCHES; i += n) {
		for (n = 1; i + n < n_nodes && nodes[i + n].correlation == nodes[i].correlation; n++)
			continue;
		judge_launch(&nodes[i], n, &verdicts[which++]);
	}
}

static void measure(const struct order *order, uint32_t n_times)
{
	struct verdict verdicts[MAX_LAUNCHES] = {{0}};

	for (uint32_t i = 0; i < n_times; i++) {
		n_nodes = 0;
		for (const char *what = order->steps; *what; what++)
			step(*what);
		step('F');
		judge(verdicts);
	}
	printf("%-44s %-9s", order->name, order->steps);
	for (uint32_t i = 0; i < MAX_LAUNCHES && verdicts[i].n_read; i++)
		printf("  %u. launch: %u of %u wrong, %.1f kernels each, up to %.0f us late;", i + 1,
		       verdicts[i].n_wrong, verdicts[i].n_read,
		       verdicts[i].n_wrong ? (double)verdicts[i].n_nodes / verdicts[i].n_wrong : 0.0,
		       (double)verdicts[i].latest_ns * 1e-3);
	printf("\n");
}

int main(int argc, char **argv)
{
	const unsigned long n_times = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;
	struct mtk_error error;

	if (argc > 2 || n_times < 1 || n_times > 100000) {
		fprintf(stderr, "usage: bench_ends [TIMES]\n");
		return 2;
	}
	open_cupti();
	gpu_time_open();
	must(mtk_cuda_stream_create(&error, &stream), &error);
	for (int i = 0; i < 2; i++) {
		graphs[i] = capture();
		launch(i, 5, 1);
	}
	printf("CUPTI %u, graphs of %d empty kernels, %lu times\n", cupti.version_number, N_NODES, n_times);
	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
		measure(&orders[i], (uint32_t)n_times);
	return 0;
}
