/* SPDX-License-Identifier: MIT */
/*
 * Whole passes of known models on a GPU: what recording costs a decode step, waited for as serving
 * does and back to back, and a prefill pass; the time of a layer under the rule oea against the
 * experts that it touches; and the rate of the expert MLP at prefill, by our own kernel and by the
 * library. Blocks of passes are paired A B B A; printed is the change with its 95 % interval.
 *
 * bench_engine [decode SHAPE [LOCAL_EXPERTS [ROWS [WAY [PAIRS [STEPS]]]]] | oea SHAPE | prefill
 * SHAPE]: without arguments all. WAY is one of those to record: fused, 'adopted buffer', gather,
 * 'launch a layer'; '' stands for all of them, as ROWS 0 does for 1, 16 and 64. bench_engine parts
 * SHAPE ROWS [PAIRS [STEPS]]: what of recording a decode step, fused, is whose: the kernels' that
 * record nothing, the pass's begin and end, the kernels' that record. bench_engine positions SHAPE
 * ROWS [CONTEXT]: a step at positions further and further on, where sequences have room for so many
 * (8192 if it is not said). bench_engine passes SHAPE ROWS: a few steps without a graph, for a
 * profiler.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/cuda/engine_rig.h"

enum { POSITION = 511, MAX_PAIRS = 512, MAX_STEPS = 10000, N_ALONE = 6, MAX_BATCH = 64 };

/*
 * How often a comparison is made, and of how many steps a block is. What switches between recorded
 * steps and others takes is in the first step of a block, so that short blocks have much of it.
 */
struct plan {
	uint32_t n_pairs;
	uint32_t n_steps;
};

static const struct plan usual_plan = {12, 24};

/*
 * Student's factor for a mean of n values, 95 %: the expansion by the normal distribution's
 * (Abramowitz and Stegun 26.7.5), which is off by 0.1 % at 6 values.
 */
static double student(uint32_t n)
{
	const double z = 1.959964, v = n - 1.0;
	const double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;

	return z + (z3 + z) / (4.0 * v) + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * v * v) +
	       (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * v * v * v);
}

struct block {
	struct rig *rig;
	struct lane *lane;
	uint32_t n_rows;
	uint32_t n_steps;
	bool is_waited;
	bool is_prefill;
};

static double block_us(const struct block *block)
{
	const double begin = rig_now_us();

	if (block->is_prefill) {
		rig_prefill(block->rig, block->lane, 16, block->n_rows / 16);
		return rig_now_us() - begin;
	}
	if (!block->is_waited) {
		rig_replay(block->rig, block->lane, block->n_rows, block->n_steps);
		return (rig_now_us() - begin) / block->n_steps;
	}
	for (uint32_t i = 0; i < block->n_steps; i++)
		rig_decode(block->rig, block->lane, block->n_rows, POSITION, NULL);
	return (rig_now_us() - begin) / block->n_steps;
}

/* The change from `base` to `other`, as a share of the former. */
static void compare(const struct block *base, const struct block *other, uint32_t n_pairs,
		    const char *what)
{
	double changes[MAX_PAIRS], mean = 0.0, squares = 0.0, base_us = 0.0;

	(void)block_us(base);
	(void)block_us(other);
	for (uint32_t i = 0; i < n_pairs; i++) {
		const double a1 = block_us(base), b1 = block_us(other);
		const double b2 = block_us(other), a2 = block_us(base);

		changes[i] = (b1 + b2) / (a1 + a2) - 1.0;
		mean += changes[i] / n_pairs;
		base_us += (a1 + a2) / 2.0 / n_pairs;
	}
	for (uint32_t i = 0; i < n_pairs; i++)
		squares += (changes[i] - mean) * (changes[i] - mean);
	squares = student(n_pairs) * sqrt(squares / (n_pairs - 1) / n_pairs);
	printf("%5u rows, %-34s %10.1f us  %+.2f %%  [%+.2f, %+.2f]\n", base->n_rows, what, base_us,
	       100.0 * mean, 100.0 * (mean - squares), 100.0 * (mean + squares));
	fflush(stdout);
}

/* ---- decode ---- */

static const struct {
	const char *name;
	int recording;
} ways[] = {
	{"fused", MTK_CUDA_RECORD_FUSED},
	{"adopted buffer", MTK_CUDA_RECORD_ADOPT},
	{"gather", MTK_CUDA_RECORD_GATHER},
	{"launch a layer", MTK_CUDA_RECORD_LAUNCH},
};
enum { N_WAYS = sizeof(ways) / sizeof(ways[0]) };

/* What the host spent since it was printed last. */
static void print_host(struct lane *lane)
{
	if (lane->n_passes)
		printf("%12sof a pass the host spends %.2f us in begin, %.2f us in end\n", "",
		       lane->begin_us / (double)lane->n_passes,
		       lane->end_us / (double)lane->n_passes);
	lane->begin_us = lane->end_us = 0.0;
	lane->n_passes = 0;
}

/* One part of recording against the same graph without a lane, waited for and back to back. */
static void decode_part(struct rig *rig, struct lane *none, struct lane *part, const char *name,
			uint32_t n_rows, struct plan plan)
{
	struct block base = {.rig = rig,
			     .lane = none,
			     .n_rows = n_rows,
			     .n_steps = plan.n_steps,
			     .is_waited = true};
	struct block other = base;
	char what[64];

	other.lane = part;
	snprintf(what, sizeof(what), "waited for, %s", name);
	compare(&base, &other, plan.n_pairs, what);
	print_host(part);
	base.is_waited = other.is_waited = false;
	snprintf(what, sizeof(what), "back to back, %s", name);
	compare(&base, &other, plan.n_pairs, what);
	print_host(part);
}

static void decode_way(struct rig *rig, struct lane *none, struct lane *lane, const char *name,
		       uint32_t n_rows, struct plan plan)
{
	const struct block base = {.rig = rig,
				   .lane = none,
				   .n_rows = n_rows,
				   .n_steps = plan.n_steps,
				   .is_waited = true};
	struct block idle = base;

	idle.lane = lane;
	rig_decode(rig, none, n_rows, POSITION, NULL);
	rig_decode(rig, lane, n_rows, POSITION, NULL);
	if (lane->recording == MTK_CUDA_RECORD_FUSED)
		compare(&base, &idle, plan.n_pairs, "waited for, fused, idle");
	print_host(lane);
	rig_record(lane, true);
	decode_part(rig, none, lane, name, n_rows, plan);
	rig_record(lane, false);
}

/* n_rows 0: all batches; way NULL: all ways. */
static void decode(const char *shape, uint32_t n_local, uint32_t n_rows, const char *way,
		   struct plan plan)
{
	static const uint32_t batches[] = {1, 16, 64};
	struct rig rig = rig_open(shape, n_local, POSITION + 1, false);

	for (size_t w = 0; w < N_WAYS; w++) {
		struct lane lane, none;

		if (way && strcmp(way, ways[w].name) != 0)
			continue;
		lane = rig_lane(&rig, MAX_BATCH, POSITION + 1, MAX_BATCH, NULL, ways[w].recording);
		none = rig_twin(&lane);
		for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++)
			if (!n_rows || batches[i] == n_rows)
				decode_way(&rig, &none, &lane, ways[w].name, batches[i], plan);
		rig_lane_close(&lane);
	}
	rig_close(&rig);
}

static void parts(const char *shape, uint32_t n_rows, struct plan plan)
{
	struct rig rig = rig_open(shape, 0, POSITION + 1, false);
	struct lane lane =
		rig_lane(&rig, n_rows, POSITION + 1, n_rows, NULL, MTK_CUDA_RECORD_FUSED);
	struct lane none = rig_twin(&lane), none_again = none, kernels = lane, pass = none;

	kernels.lane = NULL;
	pass.lane = lane.lane;
	pass.model = lane.model;
	rig_decode(&rig, &none, n_rows, POSITION, NULL);
	rig_decode(&rig, &lane, n_rows, POSITION, NULL);
	decode_part(&rig, &none, &none_again, "the same", n_rows, plan);
	decode_part(&rig, &none, &kernels, "idle kernels", n_rows, plan);
	rig_record(&lane, true);
	decode_part(&rig, &none, &pass, "begin and end", n_rows, plan);
	decode_part(&rig, &none, &lane, "all", n_rows, plan);
	rig_record(&lane, false);
	rig_lane_close(&lane);
	rig_close(&rig);
}

/* What a step costs at positions further and further on: what attention adds. */
static void positions(const char *shape, uint32_t n_rows, uint32_t n_context)
{
	struct rig rig = rig_open(shape, 0, n_context, false);
	struct lane lane = rig_lane(&rig, n_rows, n_context, n_rows, NULL, RIG_UNRECORDED);

	for (uint32_t position = 127; position < n_context; position = position * 4 + 3) {
		double begin;

		for (int i = 0; i < 2; i++)
			rig_decode(&rig, &lane, n_rows, position, NULL);
		begin = rig_now_us();
		for (int i = 0; i < N_ALONE; i++)
			rig_decode(&rig, &lane, n_rows, position, NULL);
		printf("%5u rows at position %5u: %10.1f us\n", n_rows, position,
		       (rig_now_us() - begin) / N_ALONE);
	}
	rig_lane_close(&lane);
	rig_close(&rig);
}

/* Steps whose kernels a profiler can tell apart. */
static void passes(const char *shape, uint32_t n_rows)
{
	struct rig rig = rig_open(shape, 0, POSITION + 1, false);
	struct lane lane;

	rig.state->settings.without_graphs = true;
	lane = rig_lane(&rig, n_rows, POSITION + 1, n_rows, NULL, RIG_UNRECORDED);
	for (int i = 0; i < 3; i++)
		rig_decode(&rig, &lane, n_rows, POSITION, NULL);
	rig_lane_close(&lane);
	rig_close(&rig);
}

/* ---- the rule ---- */

struct counted {
	uint32_t n_experts;
	uint64_t n_active;
	uint32_t n_layers;
};

static void count_active(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t width,
			 const int32_t *ids, const float *weights)
{
	struct counted *counted = ctx;
	uint8_t is_active[MTK_ROUTE_MAX_COLUMNS] = {0};

	(void)layer;
	(void)weights;
	for (size_t i = 0; i < (size_t)n_rows * width; i++)
		if (ids[i] >= 0 && (uint32_t)ids[i] < counted->n_experts && !is_active[ids[i]]) {
			is_active[ids[i]] = 1;
			counted->n_active++;
		}
	counted->n_layers++;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The time of a layer under k0, and the experts that it touches in the mean. */
static void measure_rule(struct rig *rig, uint32_t n_rows, uint32_t k0, double *ret_active,
			 double *ret_us)
{
	const struct mtk_oea oea = {.k0 = k0};
	struct lane lane = rig_lane(rig, n_rows, POSITION + 1, n_rows, &oea, RIG_UNRECORDED);
	struct counted counted = {.n_experts = rig->model->moe.n_experts};
	const struct mtk_forward_hooks hooks = {.ctx = &counted, .select_experts = count_active};
	double times[9];

	rig_decode(rig, &lane, n_rows, POSITION, &hooks);
	for (int i = 0; i < 9; i++) {
		const double begin = rig_now_us();

		rig_replay(rig, &lane, n_rows, 20);
		times[i] = (rig_now_us() - begin) / 20 / rig->model->config.n_layers;
	}
	qsort(times, 9, sizeof(times[0]), by_value);
	*ret_us = times[4];
	*ret_active = (double)counted.n_active / counted.n_layers;
	rig_lane_close(&lane);
}

/* The line through all points but one. */
static void fit_without(const double *x, const double *y, uint32_t n, uint32_t without,
			double *ret_a, double *ret_b)
{
	double sx = 0.0, sy = 0.0, sxx = 0.0, sxy = 0.0, m = 0.0;

	for (uint32_t i = 0; i < n; i++) {
		if (i == without)
			continue;
		m += 1.0;
		sx += x[i];
		sy += y[i];
		sxx += x[i] * x[i];
		sxy += x[i] * y[i];
	}
	*ret_b = (m * sxy - sx * sy) / (m * sxx - sx * sx);
	*ret_a = (sy - *ret_b * sx) / m;
}

static void rule(const char *shape)
{
	static const uint32_t batches[] = {16, 64};
	struct rig rig = rig_open(shape, 0, POSITION + 1, false);

	for (size_t b = 0; b < 2; b++) {
		double active[8], us[8];

		for (uint32_t k0 = 1; k0 <= 8; k0++)
			measure_rule(&rig, batches[b], k0, &active[k0 - 1], &us[k0 - 1]);
		for (uint32_t k0 = 1; k0 <= 8; k0++) {
			double a, slope, predicted;

			fit_without(active, us, 8, k0 - 1, &a, &slope);
			predicted = a + slope * active[k0 - 1];
			printf("%5u rows, k0 %u: %6.1f active, %7.2f us a layer, predicted by the "
			       "others %7.2f (%.2f + %.3f a expert): %+.2f %%\n",
			       batches[b], k0, active[k0 - 1], us[k0 - 1], predicted, a, slope,
			       100.0 * (predicted / us[k0 - 1] - 1.0));
		}
		fflush(stdout);
	}
	rig_close(&rig);
}

/* ---- prefill ---- */

/* The rate of a large dense product, in TFLOP/s; 0: there is no library. */
static double dense_rate(struct rig *rig)
{
	enum { N = 8192 };
	const struct mtk_cublas_product product = {.dtype = MTK_DTYPE_BF16,
						   .n_rows = N,
						   .n_in = N,
						   .n_out = N,
						   .x = rig->state->weights.layers[0].gate_up.data,
						   .w = rig->state->weights.layers[1].gate_up.data,
						   .y = NULL};
	struct mtk_cublas_product p = product;
	struct mtk_error error;
	double best = 1e30;
	void *y;

	if (!rig->state->cublas)
		return 0.0;
	rig_must(mtk_cuda_alloc((size_t)N * N * sizeof(float), &error, &y), &error, "product");
	p.y = y;
	for (int i = 0; i < 8; i++) {
		const double begin = rig_now_us();

		rig_must(mtk_cublas_multiply(rig->state->cublas, &p, &error), &error, "product");
		rig_must(mtk_cuda_stream_wait(rig->state->stream, &error), &error, "product");
		best = fmin(best, rig_now_us() - begin);
	}
	mtk_cuda_free(y);
	return 2.0 * N * N * (double)N / best / 1e6;
}

/*
 * The rate of the expert MLP alone: a layer of a pass on which everything else was computed, many
 * times; the router and the combination, which are run with it, count against it.
 */
static double mlp_rate(struct rig *rig, struct lane *lane, uint32_t n_rows)
{
	const struct mtk_moe *moe = &rig->model->moe;
	const double flops = 2.0 * n_rows * moe->width * moe->n_in *
			     (double)(moe->n_gate_up + moe->n_intermediate);
	struct mtk_error error;
	struct mtk_cuda_pass pass = {.context = lane->context,
				     .n_rows = n_rows,
				     .inputs = mtk_cuda_inputs_of(lane->context->inputs, n_rows),
				     .error = &error};
	double best = 1e30;

	for (int i = 0; i < 8; i++) {
		const double begin = rig_now_us();

		for (pass.layer = 0; pass.layer < 4; pass.layer++)
			rig_must(mtk_cuda_pass_moe(&pass), &error, "experts");
		rig_must(mtk_cuda_stream_wait(rig->state->stream, &error), &error, "experts");
		best = fmin(best, (rig_now_us() - begin) / 4);
	}
	return flops / best / 1e6;
}

/* The experts' share by the library and by our own kernel, and whole passes with each choice. */
static void compare_products(struct rig *rig, const struct block *base)
{
	struct mtk_cublas *cublas = rig->state->cublas;
	const double dense = dense_rate(rig);
	struct lane *lane = base->lane;
	double library = 0.0, own;

	if (cublas) {
		rig->state->cublas_expert_rows = 1;
		library = mlp_rate(rig, lane, base->n_rows);
		printf("%5u rows, experts by the library: a pass takes %.1f us\n", base->n_rows,
		       block_us(base));
		rig->state->cublas_expert_rows = UINT32_MAX;
		printf("%5u rows, experts by our own kernel: a pass takes %.1f us\n", base->n_rows,
		       block_us(base));
	}
	own = mlp_rate(rig, lane, base->n_rows);
	rig->state->cublas = NULL;
	printf("%5u rows, no library: a pass takes %.1f us\n", base->n_rows, block_us(base));
	rig->state->cublas = cublas;
	printf("%5u rows, a layer's experts with router and combination: library %.0f, own kernel "
	       "%.0f TFLOP/s",
	       base->n_rows, library, own);
	if (dense > 0.0)
		printf("; a dense product reaches %.0f: %.0f %% and %.0f %% of it", dense,
		       100.0 * library / dense, 100.0 * own / dense);
	putchar('\n');
	fflush(stdout);
}

static void prefill(const char *shape)
{
	enum { N_ROWS = 8192 };
	struct rig rig = rig_open(shape, 0, N_ROWS / 16, false);
	struct lane none, fused;
	struct block base = {.rig = &rig, .lane = &none, .n_rows = N_ROWS, .is_prefill = true};
	struct block other = base;

	/* Contexts with memory for the library's way, whatever the threshold. */
	rig.state->cublas_expert_rows = 1;
	none = rig_lane(&rig, 16, N_ROWS / 16, N_ROWS, NULL, RIG_UNRECORDED);
	rig.state->cublas_expert_rows = MTK_CUDA_CUBLAS_EXPERT_ROWS;
	fused = rig_lane(&rig, 16, N_ROWS / 16, N_ROWS, NULL, MTK_CUDA_RECORD_FUSED);
	other.lane = &fused;
	rig_record(&fused, true);
	compare(&base, &other, 6, "prefill, fused, recording");
	rig_record(&fused, false);
	compare_products(&rig, &base);
	rig_lane_close(&none);
	rig_lane_close(&fused);
	rig_close(&rig);
}

/* An argument that is a number; absent: `without`. */
static uint32_t number(int argc, char **argv, int i, uint32_t without)
{
	return argc > i ? (uint32_t)strtoul(argv[i], NULL, 10) : without;
}

static struct plan plan_of(int argc, char **argv, int i)
{
	struct plan plan = {number(argc, argv, i, usual_plan.n_pairs),
			    number(argc, argv, i + 1, usual_plan.n_steps)};

	if (plan.n_pairs < 2 || plan.n_pairs > MAX_PAIRS)
		plan.n_pairs = usual_plan.n_pairs;
	if (plan.n_steps < 1 || plan.n_steps > MAX_STEPS)
		plan.n_steps = usual_plan.n_steps;
	return plan;
}

static bool is_way(const char *name)
{
	for (size_t i = 0; i < N_WAYS; i++)
		if (strcmp(name, ways[i].name) == 0)
			return true;
	return false;
}

static int usage(void)
{
	fprintf(stderr, "usage: bench_engine [decode SHAPE [LOCAL_EXPERTS [ROWS [WAY [PAIRS "
			"[STEPS]]]]] | oea SHAPE | prefill SHAPE |\n"
			"       parts SHAPE ROWS [PAIRS [STEPS]] | positions SHAPE ROWS [CONTEXT] | "
			"passes SHAPE ROWS]\n"
			"WAY is fused, 'adopted buffer', gather, 'launch a layer' or ''\n");
	return 2;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "all";
	const char *shape = argc > 2 ? argv[2] : "qwen3-30b-a3b";
	const char *way = argc > 5 && *argv[5] ? argv[5] : NULL;
	const uint32_t n = number(argc, argv, 3, 0);

	if (strcmp(what, "all") == 0) {
		decode(shape, 0, 0, NULL, usual_plan);
		decode("deepseek-v3", 4, 0, NULL, usual_plan);
		rule(shape);
		prefill(shape);
	} else if (strcmp(what, "decode") == 0 && (!way || is_way(way))) {
		decode(shape, n, number(argc, argv, 4, 0), way, plan_of(argc, argv, 6));
	} else if (strcmp(what, "parts") == 0 && n > 0) {
		parts(shape, n, plan_of(argc, argv, 4));
	} else if (strcmp(what, "positions") == 0 && n > 0) {
		positions(shape, n, number(argc, argv, 4, 8192));
	} else if (strcmp(what, "passes") == 0 && n > 0) {
		passes(shape, n);
	} else if (strcmp(what, "oea") == 0) {
		rule(shape);
	} else if (strcmp(what, "prefill") == 0) {
		prefill(shape);
	} else {
		return usage();
	}
	return 0;
}
