/* SPDX-License-Identifier: MIT */
/*
 * The router's product and the expert MLP on a GPU, bf16. At decode: what share of a copy's
 * bandwidth the weights of the active experts pass at with 16 rows of independent choices, and how
 * time follows the number of active experts, whose slope is held against the bandwidth of reading.
 * At prefill: the rate of 8192 rows.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "bench/cuda/gpu_time.h"
#include "kernels/align/align_cuda.h"
#include "kernels/experts/experts_cuda.h"
#include "kernels/gemm/router_cuda.h"

#define TOP_K	     8u
#define DECODE_ROWS  16u
#define PREFILL_ROWS 8192u
#define BAR_SHARE    0.85
#define BAR_R2	     0.99
#define BAR_SLOPE    0.10

struct shape {
	const char *name;
	uint32_t n_experts;
	uint32_t n_hidden;
	uint32_t n_intermediate;
};

static const struct shape shapes[] = {
	{"Qwen3-30B-A3B", 128, 2048, 768},
	{"DeepSeek-V3", 256, 7168, 2048},
};

/* A layer with a batch; the arrays are as large as the largest batch. */
struct work {
	const struct shape *shape;
	struct mtk_align_settings settings;
	struct mtk_align_sizes sizes;
	struct mtk_align_cuda_result aligned;
	struct mtk_experts_cuda experts;
	uint32_t *scratch;
};

static uint32_t random_below(uint32_t n)
{
	static uint64_t state = 7;

	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((state >> 32) * n >> 32);
}

static void must(int status, const struct mtk_error *error)
{
	if (status == MOETRACE_OK)
		return;
	fprintf(stderr, "bench_experts_cuda: %s\n", error->text);
	exit(EXIT_FAILURE);
}

static int launch(void *arg, void *stream, struct mtk_error *error)
{
	return mtk_experts_cuda(&((struct work *)arg)->experts, stream, error);
}

static int launch_align(void *arg, void *stream, struct mtk_error *error)
{
	struct work *work = arg;

	return mtk_align_cuda(&work->settings, &work->sizes, NULL, (const int32_t *)work->scratch,
			      work->scratch + work->sizes.n_pairs, &work->aligned, stream, error);
}

/* Ids of TOP_K different experts a row, out of the first n_from. */
static void choose(int32_t *ids, uint32_t n_rows, uint32_t n_from)
{
	for (uint32_t r = 0; r < n_rows; r++)
		for (uint32_t j = 0; j < TOP_K; j++) {
			uint32_t i = 0;

			do {
				ids[r * TOP_K + j] = (int32_t)random_below(n_from);
				for (i = 0; ids[r * TOP_K + i] != ids[r * TOP_K + j];)
					i++;
			} while (i < j);
		}
}

static uint32_t count_active(const int32_t *ids, size_t n, uint32_t n_experts)
{
	unsigned char *is_active = calloc(n_experts, 1);
	uint32_t n_active = 0;

	for (size_t i = 0; is_active && i < n; i++) {
		n_active += !is_active[ids[i]];
		is_active[ids[i]] = 1;
	}
	free(is_active);
	return n_active;
}

static void make_work(struct work *work, const struct shape *shape, uint32_t n_rows,
		      uint32_t block_rows, const void *gate_up, const void *down)
{
	struct mtk_error error;
	size_t n_scratch;

	*work = (struct work){.shape = shape};
	work->settings = (struct mtk_align_settings){
		.n_experts = shape->n_experts, .top_k = TOP_K, .block_rows = block_rows};
	must(mtk_align_sizes(&work->settings, n_rows, &error, &work->sizes), &error);
	n_scratch = mtk_align_cuda_scratch_elements(&work->settings, &work->sizes);
	work->scratch = gpu_time_memory(4 * (n_scratch + (size_t)work->sizes.n_pairs), NULL);
	work->aligned.sorted_pairs = gpu_time_memory((size_t)work->sizes.capacity * 8, NULL);
	work->aligned.expert_ids = gpu_time_memory((size_t)work->sizes.n_blocks * 4, NULL);
	work->aligned.first_slots = gpu_time_memory(8 * (shape->n_experts + 1), NULL);
	work->aligned.pair_slots = gpu_time_memory((size_t)work->sizes.n_pairs * 8, NULL);
	work->aligned.n_padded = gpu_time_memory(8, NULL);
	work->aligned.n_dropped = gpu_time_memory(8, NULL);
	work->experts = (struct mtk_experts_cuda){
		.dtype = MTK_DTYPE_BF16,
		.n_hidden = shape->n_hidden,
		.n_intermediate = shape->n_intermediate,
		.top_k = TOP_K,
		.gate_up = gate_up,
		.down = down,
		.clamp = {INFINITY, 1.0f, 0.0f},
		.block_rows = block_rows,
		.n_pairs = work->sizes.n_pairs,
		.n_blocks = work->sizes.n_blocks,
		.sorted_pairs = work->aligned.sorted_pairs,
		.expert_ids = work->aligned.expert_ids,
		.x = gpu_time_random16((size_t)n_rows * shape->n_hidden, 1.0f, 1),
		.middle = gpu_time_memory((size_t)work->sizes.capacity * shape->n_intermediate * 2,
					  NULL),
		.out = gpu_time_memory((size_t)work->sizes.capacity * shape->n_hidden * 4, NULL),
	};
}

/* Time with experts chosen out of n_from; returns how many are active. */
static uint32_t measure(struct work *work, uint32_t n_from, double *ret_us)
{
	const size_t n_pairs = (size_t)work->sizes.n_pairs;
	int32_t *ids = malloc(n_pairs * sizeof(*ids));
	uint32_t n_active;

	if (!ids)
		exit(EXIT_FAILURE);
	choose(ids, (uint32_t)(n_pairs / TOP_K), n_from);
	n_active = count_active(ids, n_pairs, work->shape->n_experts);
	gpu_time_write(work->scratch, ids, n_pairs * sizeof(*ids));
	gpu_time_us(launch_align, work, 1, 1);
	*ret_us = gpu_time_us(launch, work, 4, 15);
	free(ids);
	return n_active;
}

static double expert_bytes(const struct shape *shape)
{
	return 6.0 * shape->n_hidden * shape->n_intermediate;
}

/* The line through the points, and R2. */
static void fit(const double *x, const double *y, uint32_t n, double *ret_a, double *ret_b,
		double *ret_r2)
{
	double sx = 0, sy = 0, sxx = 0, sxy = 0, syy = 0, residual = 0;

	for (uint32_t i = 0; i < n; i++) {
		sx += x[i];
		sy += y[i];
		sxx += x[i] * x[i];
		sxy += x[i] * y[i];
		syy += y[i] * y[i];
	}
	*ret_b = (n * sxy - sx * sy) / (n * sxx - sx * sx);
	*ret_a = (sy - *ret_b * sx) / n;
	for (uint32_t i = 0; i < n; i++)
		residual += pow(y[i] - *ret_a - *ret_b * x[i], 2);
	*ret_r2 = 1.0 - residual / (syy - sy * sy / n);
}

/* Returns the number of bars that were missed. */
static int bench_decode(const struct shape *shape, const void *gate_up, const void *down)
{
	double active[16], us[16], a, b, r2, share, ideal_us;
	uint32_t n = 0;
	struct work work;
	int n_missed = 0;

	make_work(&work, shape, DECODE_ROWS, 16, gate_up, down);
	active[0] = measure(&work, shape->n_experts, &us[0]);
	share = active[0] * expert_bytes(shape) / (us[0] * 1e3) / gpu_copy_bandwidth();
	printf("%s, 16 rows, %.0f active experts: %.1f us, %.3f of copy bandwidth (bar %.2f)\n",
	       shape->name, active[0], us[0], share, BAR_SHARE);
	n_missed += share < BAR_SHARE;
	for (uint32_t n_from = 8; n_from <= shape->n_experts && n < 15; n_from += n_from / 3, n++)
		active[n] = measure(&work, n_from, &us[n]);
	fit(active, us, n, &a, &b, &r2);
	/* Weights are read and never written. */
	ideal_us = expert_bytes(shape) / (gpu_read_bandwidth() * 1e3);
	printf("%s, %.0f to %.0f active: %.2f us + %.3f us an expert (reading its bytes: %.3f), "
	       "R2 %.5f\n",
	       shape->name, active[0], active[n - 1], a, b, ideal_us, r2);
	n_missed += r2 < BAR_R2;
	n_missed += fabs(b / ideal_us - 1.0) > BAR_SLOPE;
	return n_missed;
}

static void bench_prefill(const struct shape *shape, const void *gate_up, const void *down)
{
	struct work work;
	double us, flops;

	make_work(&work, shape, PREFILL_ROWS, 128, gate_up, down);
	measure(&work, shape->n_experts, &us);
	flops = 6.0 * PREFILL_ROWS * TOP_K * shape->n_hidden * shape->n_intermediate;
	printf("%s, %u rows: %.0f us, %.0f TFLOP/s; alignment %.1f us\n", shape->name, PREFILL_ROWS,
	       us, flops / us * 1e-6, gpu_time_us(launch_align, &work, 8, 15));
}

static int launch_router(void *arg, void *stream, struct mtk_error *error)
{
	return mtk_router_cuda(arg, stream, error);
}

static void bench_router(uint32_t n_in, uint32_t n_out)
{
	static const uint32_t rows[] = {1, 16, 64, 1024, 8192};
	struct mtk_router_cuda router = {
		.dtype = MTK_DTYPE_BF16,
		.n_in = n_in,
		.n_out = n_out,
		.x = gpu_time_random16((size_t)8192 * n_in, 1.0f, 1),
		.w = gpu_time_random16((size_t)n_out * n_in, 1.0f, 1),
		.y = gpu_time_memory((size_t)8192 * n_out * 4, NULL),
	};

	printf("router %u x %u, us at 1, 16, 64, 1024, 8192 rows:", n_out, n_in);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		router.n_rows = rows[i];
		printf(" %.2f", gpu_time_us(launch_router, &router, 16, 31));
	}
	printf("\n");
}

int main(void)
{
	int n_missed = 0;

	gpu_time_open();
	bench_router(7168, 256);
	bench_router(2048, 128);
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		const struct shape *shape = &shapes[i];
		const size_t n = (size_t)shape->n_experts * shape->n_hidden * shape->n_intermediate;
		const void *gate_up = gpu_time_random16(2 * n, 0.02f, 1);
		const void *down = gpu_time_random16(n, 0.02f, 1);

		n_missed += bench_decode(shape, gate_up, down);
		bench_prefill(shape, gate_up, down);
	}
	printf("bars missed: %d\n", n_missed);
	return n_missed ? EXIT_FAILURE : EXIT_SUCCESS;
}
