/* SPDX-License-Identifier: MIT */
/*
 * Routing on one core: 8192 rows of 256 logits, sigmoid, a bias on the choice, 8 groups of which 4
 * are kept, top-8, on every level of instructions, beside the vectorised sigmoid of the same
 * logits on that level and the plain definition. Each figure is the least CPU time of several runs,
 * taken in turns, so that other load disturbs all alike; the bar is 4 times the sigmoid.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <moetrace/status.h>

#include "bench/sigmoid.h"
#include "kernels/cpu.h"
#include "kernels/presets/presets.h"

#define N_ROWS	  8192u
#define N_EXPERTS 256u
#define N_RUNS	  15
#define BAR	  4.0

struct work {
	struct mtk_route_config config;
	struct mtk_route_batch batch;
	struct mtk_route_result result;
	float *scores;
	double *scratch;
};

static double now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static float random_unit(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (float)((double)(*state >> 40) * 0x1p-23 - 1.0);
}

static double time_route(const struct mtk_cpu_ops *ops, struct work *work)
{
	double begin = now_ms();

	ops->route(&work->config, &work->batch, 0, N_ROWS, work->scratch, &work->result);
	return now_ms() - begin;
}

static double time_sigmoid(bench_sigmoid_fn sigmoid, struct work *work)
{
	double begin = now_ms();

	sigmoid((size_t)N_ROWS * N_EXPERTS, work->batch.logits, work->scores);
	return now_ms() - begin;
}

static void least(double *best, double value)
{
	*best = value < *best ? value : *best;
}

/* Returns the ratio. */
static double bench_level(const struct mtk_cpu_ops *ops, bench_sigmoid_fn sigmoid,
			  struct work *work, double plain_ms)
{
	double route_ms = 1e9, sigmoid_ms = 1e9;

	for (int run = 0; run < N_RUNS; run++) {
		least(&route_ms, time_route(ops, work));
		least(&sigmoid_ms, time_sigmoid(sigmoid, work));
	}
	printf("%-7s route %7.2f ms  sigmoid %6.2f ms  ratio %5.2f (bar %.0f)  plain %8.2f ms\n",
	       ops->name, route_ms, sigmoid_ms, route_ms / sigmoid_ms, BAR, plain_ms);
	return route_ms / sigmoid_ms;
}

static int work_make(struct work *work)
{
	static float logits[N_ROWS * N_EXPERTS], bias[N_EXPERTS], scores[N_ROWS * N_EXPERTS];
	static float weights[N_ROWS * MTK_ROUTE_MAX_WIDTH];
	static int32_t ids[N_ROWS * MTK_ROUTE_MAX_WIDTH];
	uint64_t state = 1;

	/* The sum of four uniform numbers, about normal, of standard deviation 1.2. */
	for (size_t i = 0; i < (size_t)N_ROWS * N_EXPERTS; i++)
		logits[i] = random_unit(&state) + random_unit(&state) + random_unit(&state) +
			    random_unit(&state);
	for (size_t e = 0; e < N_EXPERTS; e++)
		bias[e] = 0.05f * random_unit(&state);
	work->config = mtk_preset_find("deepseek-v3")->route;
	work->batch = (struct mtk_route_batch){N_ROWS, N_ROWS, logits, bias, NULL};
	work->result = (struct mtk_route_result){.ids = ids, .weights = weights};
	work->scores = scores;
	work->scratch = malloc(mtk_route_scratch_floats(N_EXPERTS) * sizeof(float));
	return work->scratch ? MOETRACE_OK : MOETRACE_E_NOMEM;
}

int main(void)
{
	const bench_sigmoid_fn sigmoids[MTK_CPU_N_LEVELS] = {
		[MTK_CPU_AVX2] = bench_sigmoid_avx2,
		[MTK_CPU_AVX512] = bench_sigmoid_avx512,
	};
	double plain_ms = 1e9;
	bool is_met = true;
	struct work work;

	if (work_make(&work)) {
		fprintf(stderr, "bench_route: out of memory\n");
		return EXIT_FAILURE;
	}
	for (int run = 0; run < 3; run++)
		least(&plain_ms, time_route(mtk_cpu_ops_find(MTK_CPU_PLAIN), &work));
	printf("%u rows, %u experts top-%u, sigmoid with bias, %u groups keep %u, one core\n",
	       N_ROWS, N_EXPERTS, work.config.top_k, work.config.n_groups,
	       work.config.n_keep_groups);
	for (int level = MTK_CPU_AVX2; level < MTK_CPU_N_LEVELS; level++) {
		const struct mtk_cpu_ops *ops = mtk_cpu_ops_find((enum mtk_cpu_level)level);

		if (ops)
			is_met =
				bench_level(ops, sigmoids[level], &work, plain_ms) <= BAR && is_met;
	}
	free(work.scratch);
	return is_met ? EXIT_SUCCESS : EXIT_FAILURE;
}
