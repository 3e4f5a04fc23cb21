/* SPDX-License-Identifier: MIT */
/*
 * The expert MLP at decode: time against the number of active experts, for one layer of the
 * Qwen3-30B-A3B shape in bf16, as k0 goes from 1 to 8 for random router logits. Under the pruned
 * rule each row keeps its k0 best experts; under simplified OEA the experts that some row has among
 * its k0 best form a set, and each row takes its up to 8 best of that set. A fit over all points
 * prints the cost of one more active expert, beside the bytes of one expert over the bandwidth of a
 * streaming read of the same memory in the same run. Every measured run reads weights that are not
 * in cache: the layer is larger than any cache and the experts' numbers are dealt anew each time.
 * One thread is measured by its own processor time, which waiting for memory counts in and other
 * programs do not; two threads by elapsed time, which needs an idle machine.
 *
 * Under OEA the rows' arithmetic stays the same while the bytes fall, so the line bends where the
 * arithmetic alone takes longer than the reads: its time, measured on one expert that stays in
 * cache, is printed too.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/f16.h"
#include "kernels/cpu.h"
#include "kernels/sample/sample.h"
#include "kernels/threads.h"

#define N_HIDDEN       2048u
#define N_INTERMEDIATE 768u
#define N_EXPERTS      128u
#define TOP_K	       8u
#define MAX_ROWS       16u
#define N_DRAWS	       4u
#define N_REPEATS      12u
/* Rows a block of the linear operation takes at most; the arithmetic is fastest there. */
#define BLOCK_ROWS 6u

/* Huge pages, where the system has them, start at multiples of this. */
#define ALIGNMENT (2u << 20)

enum rule {
	RULE_PRUNED,
	RULE_OEA,
	N_RULES,
};

static const char *const rule_names[] = {"pruned", "OEA"};

struct layer {
	unsigned char *memory;
	size_t n_bytes;
	size_t expert_bytes;
	struct mtk_matrix gate_up[N_EXPERTS];
	struct mtk_matrix down[N_EXPERTS];
};

struct bench {
	const struct mtk_cpu_ops *ops;
	clockid_t clock;
	struct layer layer;
	struct mtk_rng rng;
	float x[MAX_ROWS * N_HIDDEN];
	float gate_up_out[MAX_ROWS * TOP_K * 2 * N_INTERMEDIATE];
	float out[MAX_ROWS * TOP_K * N_HIDDEN];
	float logits[MAX_ROWS][N_EXPERTS];
	int32_t ranking[MAX_ROWS][N_EXPERTS]; /* experts by logit, descending */
	int32_t ids[MAX_ROWS * TOP_K];
	uint32_t first[N_EXPERTS + 1];
	uint32_t slots[MAX_ROWS * TOP_K];
	uint32_t rows[MAX_ROWS * TOP_K];
	uint32_t active[N_EXPERTS];
};

struct points {
	double active[N_DRAWS * TOP_K];
	double seconds[N_DRAWS * TOP_K];
	double read_seconds; /* of the whole layer */
	double pair_seconds; /* of one row of one expert, from cache */
};

struct fit {
	double intercept;
	double slope;
	double r2;
};

static double now_seconds(const struct bench *bench)
{
	struct timespec now;

	clock_gettime(bench->clock, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* One MiB of small random weights, repeated: what the weights are does not change the time. */
static void fill_weights(struct bench *bench)
{
	const size_t n_tile = 1u << 20;
	uint16_t *tile = (uint16_t *)bench->layer.memory;
	size_t n_done = n_tile;

	for (size_t i = 0; i < n_tile / sizeof(*tile); i++)
		tile[i] = mt_bf16_from_f32((float)(0.04 * mtk_rng_next(&bench->rng) - 0.02));
	while (n_done < bench->layer.n_bytes) {
		size_t left = bench->layer.n_bytes - n_done;
		size_t n = left < n_done ? left : n_done;

		memcpy(bench->layer.memory + n_done, bench->layer.memory, n);
		n_done += n;
	}
}

static int make_layer(struct bench *bench)
{
	struct layer *layer = &bench->layer;
	const size_t gate_up = mtk_matrix_bytes(MTK_DTYPE_BF16, 2 * N_INTERMEDIATE, N_HIDDEN);
	const size_t down = mtk_matrix_bytes(MTK_DTYPE_BF16, N_HIDDEN, N_INTERMEDIATE);
	unsigned char *at;

	layer->expert_bytes = gate_up + down;
	layer->n_bytes = N_EXPERTS * layer->expert_bytes;
	layer->memory =
		aligned_alloc(ALIGNMENT, (layer->n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
	if (!layer->memory)
		return -1;
	/* Only advice: without huge pages the run measures small ones. */
	(void)madvise(layer->memory, layer->n_bytes, MADV_HUGEPAGE);
	fill_weights(bench);
	at = layer->memory;
	for (uint32_t e = 0; e < N_EXPERTS; e++, at += layer->expert_bytes) {
		layer->gate_up[e] =
			(struct mtk_matrix){MTK_DTYPE_BF16, 2 * N_INTERMEDIATE, N_HIDDEN, at};
		layer->down[e] =
			(struct mtk_matrix){MTK_DTYPE_BF16, N_HIDDEN, N_INTERMEDIATE, at + gate_up};
	}
	return 0;
}

/* Sums keep the reads from being optimised away; 64 bytes a step, in four sums. */
static void read_task(void *arg, uint32_t begin, uint32_t end)
{
	typedef uint64_t lanes __attribute__((vector_size(16)));
	const struct layer *layer = arg;
	lanes sums[4] = {{0}};
	static _Thread_local volatile uint64_t sink;

	for (uint32_t e = begin; e < end; e++) {
		const lanes *from = (const lanes *)(layer->memory + e * layer->expert_bytes);
		const size_t n = layer->expert_bytes / sizeof(*from);

		for (size_t i = 0; i < n; i += 4) {
			sums[0] += from[i];
			sums[1] += from[i + 1];
			sums[2] += from[i + 2];
			sums[3] += from[i + 3];
		}
	}
	sums[0] += sums[1] + sums[2] + sums[3];
	sink = sums[0][0] + sums[0][1];
	(void)sink;
}

/* Seconds of one streaming read of the whole layer. */
static double read_seconds(struct bench *bench, struct mtk_threads *threads)
{
	double begin = now_seconds(bench);

	mtk_threads_run(threads, N_EXPERTS, 1, read_task, &bench->layer);
	return now_seconds(bench) - begin;
}

/* Logits with experts that all rows like, as trained routers give them. */
static void draw_logits(struct bench *bench, uint32_t n_rows)
{
	float common[N_EXPERTS];

	for (uint32_t e = 0; e < N_EXPERTS; e++)
		common[e] = (float)mtk_rng_next(&bench->rng);
	for (uint32_t row = 0; row < n_rows; row++) {
		for (uint32_t e = 0; e < N_EXPERTS; e++) {
			uint32_t place = e;

			bench->logits[row][e] = common[e] + 2.0f * (float)mtk_rng_next(&bench->rng);
			while (place > 0 && bench->logits[row][bench->ranking[row][place - 1]] <
						    bench->logits[row][e]) {
				bench->ranking[row][place] = bench->ranking[row][place - 1];
				place--;
			}
			bench->ranking[row][place] = (int32_t)e;
		}
	}
}

/* Deal fresh numbers to the experts. */
static void deal(struct bench *bench, int32_t number[N_EXPERTS])
{
	for (uint32_t e = 0; e < N_EXPERTS; e++) {
		uint32_t other = (uint32_t)(mtk_rng_next(&bench->rng) * (e + 1));

		number[e] = number[other];
		number[other] = (int32_t)e;
	}
}

/* Route by a rule. Returns the number of active experts. */
static uint32_t route(struct bench *bench, enum rule rule, uint32_t n_rows, uint32_t k0)
{
	const uint32_t n_kept = rule == RULE_OEA ? TOP_K : k0;
	bool in_set[N_EXPERTS] = {false};
	int32_t number[N_EXPERTS];
	uint32_t n_active = 0;

	deal(bench, number);
	for (uint32_t row = 0; row < n_rows; row++) {
		for (uint32_t j = 0; j < k0; j++) {
			n_active += !in_set[bench->ranking[row][j]];
			in_set[bench->ranking[row][j]] = true;
		}
	}
	for (uint32_t row = 0; row < n_rows; row++) {
		uint32_t n = 0;

		for (uint32_t j = 0; j < N_EXPERTS && n < n_kept; j++)
			if (in_set[bench->ranking[row][j]])
				bench->ids[row * TOP_K + n++] = number[bench->ranking[row][j]];
		while (n < TOP_K)
			bench->ids[row * TOP_K + n++] = -1;
	}
	return n_active;
}

static double run_seconds(struct bench *bench, struct mtk_threads *threads, uint32_t n_rows)
{
	struct mtk_expert_groups groups = {bench->first, bench->slots, bench->rows};
	const struct mtk_experts experts = {
		.gate_up = bench->layer.gate_up,
		.down = bench->layer.down,
		.n_intermediate = N_INTERMEDIATE,
		.n_hidden = N_HIDDEN,
		.gemm = bench->ops->gemm,
		.swiglu = bench->ops->swiglu,
		.groups = &groups,
		.x = bench->x,
		.gate_up_out = bench->gate_up_out,
		.out = bench->out,
	};
	double begin;

	mtk_experts_group(N_EXPERTS, n_rows, TOP_K, bench->ids, &groups);
	begin = now_seconds(bench);
	mtk_experts_run_all(&experts, N_EXPERTS, threads, bench->active);
	return now_seconds(bench) - begin;
}

static struct fit fit_line(const double *x, const double *y, uint32_t n)
{
	double mean_x = 0.0, mean_y = 0.0, xx = 0.0, xy = 0.0, yy = 0.0;
	struct fit fit;

	for (uint32_t i = 0; i < n; i++) {
		mean_x += x[i] / n;
		mean_y += y[i] / n;
	}
	for (uint32_t i = 0; i < n; i++) {
		xx += (x[i] - mean_x) * (x[i] - mean_x);
		xy += (x[i] - mean_x) * (y[i] - mean_y);
		yy += (y[i] - mean_y) * (y[i] - mean_y);
	}
	fit.slope = xy / xx;
	fit.intercept = mean_y - fit.slope * mean_x;
	fit.r2 = xy * xy / (xx * yy);
	return fit;
}

/* Rows of one expert, which the run before has left in cache. */
static double pair_seconds(struct bench *bench, struct mtk_threads *threads)
{
	for (uint32_t i = 0; i < BLOCK_ROWS * TOP_K; i++)
		bench->ids[i] = i % TOP_K == 0 ? 0 : -1;
	run_seconds(bench, threads, BLOCK_ROWS);
	return run_seconds(bench, threads, BLOCK_ROWS) / BLOCK_ROWS;
}

/*
 * The least time of each point over the repeats, which go round all points and the read, so that
 * whatever else the machine does falls on all alike.
 */
static void measure(struct bench *bench, struct mtk_threads *threads, enum rule rule,
		    uint32_t n_rows, struct points *points)
{
	points->read_seconds = INFINITY;
	points->pair_seconds = INFINITY;
	for (uint32_t i = 0; i < N_DRAWS * TOP_K; i++)
		points->seconds[i] = INFINITY;
	for (uint32_t draw = 0; draw < N_DRAWS; draw++) {
		draw_logits(bench, n_rows);
		for (uint32_t repeat = 0; repeat < N_REPEATS; repeat++) {
			points->pair_seconds =
				fmin(points->pair_seconds, pair_seconds(bench, threads));
			points->read_seconds =
				fmin(points->read_seconds, read_seconds(bench, threads));
			for (uint32_t k0 = 1; k0 <= TOP_K; k0++) {
				uint32_t i = draw * TOP_K + k0 - 1;

				points->active[i] = route(bench, rule, n_rows, k0);
				points->seconds[i] = fmin(points->seconds[i],
							  run_seconds(bench, threads, n_rows));
			}
		}
	}
}

static void report(const struct bench *bench, enum rule rule, uint32_t n_rows,
		   const struct points *points)
{
	const struct fit fit = fit_line(points->active, points->seconds, N_DRAWS * TOP_K);
	const double bandwidth = (double)bench->layer.n_bytes / points->read_seconds;
	const double expert = (double)bench->layer.expert_bytes / bandwidth;

	printf("  B = %u, %s: active", n_rows, rule_names[rule]);
	for (uint32_t k0 = 1; k0 <= TOP_K; k0++)
		printf(" %.0f", points->active[k0 - 1]);
	printf(" (k0 = 1 .. %u), us", TOP_K);
	for (uint32_t k0 = 1; k0 <= TOP_K; k0++)
		printf(" %.0f", points->seconds[k0 - 1] * 1e6);
	printf("\n    fit over %u points: %.0f us + %.1f us * active, R2 = %.4f (%s 0.98)\n",
	       N_DRAWS * TOP_K, fit.intercept * 1e6, fit.slope * 1e6, fit.r2,
	       fit.r2 >= 0.98 ? "at least" : "BELOW");
	printf("    an expert's bytes / streaming read at %.1f GB/s: %.1f us; the slope is %.2f "
	       "times that\n",
	       bandwidth * 1e-9, expert * 1e6, fit.slope / expert);
	if (rule == RULE_OEA)
		printf("    arithmetic of %u pairs: %.0f us, the reads of %.0f experts\n",
		       n_rows * TOP_K, n_rows * TOP_K * points->pair_seconds * 1e6,
		       n_rows * TOP_K * points->pair_seconds / expert);
}

static int run_threads(struct bench *bench, uint32_t n_threads)
{
	static const uint32_t batch_sizes[] = {4, 16};
	struct mtk_threads *threads;
	struct points points;

	if (mtk_threads_create(n_threads, &threads))
		return -1;
	bench->clock = n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
	printf("%u thread%s\n", n_threads,
	       n_threads == 1 ? ", its processor time" : "s, elapsed time");
	for (size_t i = 0; i < sizeof(batch_sizes) / sizeof(batch_sizes[0]); i++) {
		for (int rule = 0; rule < N_RULES; rule++) {
			measure(bench, threads, (enum rule)rule, batch_sizes[i], &points);
			report(bench, (enum rule)rule, batch_sizes[i], &points);
		}
	}
	mtk_threads_destroy(threads);
	return 0;
}

int main(void)
{
	struct bench *bench = calloc(1, sizeof(*bench));
	const long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int failed;

	if (!bench)
		return EXIT_FAILURE;
	bench->ops = mtk_cpu_ops_choose();
	mtk_rng_seed(&bench->rng, 1, 0);
	for (size_t i = 0; i < sizeof(bench->x) / sizeof(bench->x[0]); i++)
		bench->x[i] = (float)(2.0 * mtk_rng_next(&bench->rng) - 1.0);
	if (!bench->ops || make_layer(bench)) {
		fprintf(stderr, "bench_experts: unknown MOETRACE_CPU, or out of memory\n");
		free(bench);
		return EXIT_FAILURE;
	}
	printf("expert MLP, %s: hidden %u, intermediate %u, %u experts top-%u, bf16: "
	       "%.2f MB an expert\n",
	       bench->ops->name, N_HIDDEN, N_INTERMEDIATE, N_EXPERTS, TOP_K,
	       1e-6 * (double)bench->layer.expert_bytes);
	failed = run_threads(bench, 1);
	if (!failed && n_cpus >= 2)
		failed = run_threads(bench, 2);
	free(bench->layer.memory);
	free(bench);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
