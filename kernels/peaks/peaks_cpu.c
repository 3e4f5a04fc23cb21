/* SPDX-License-Identifier: MIT */
/*
 * The measurement on the CPU, and the plain loops. Each run gives every thread one piece of equal
 * work; the time is that of the slowest. The machine may be busy with something else, so the best of
 * the runs counts.
 */
#include "kernels/peaks/peaks.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <moetrace/status.h>

#include "kernels/cpu.h"

enum { N_RUNS = 7, ROUNDS_A_PIECE = 1 << 16 };

float mtk_peak_fma_plain(uint64_t n_rounds)
{
	float sums[MTK_PEAK_FMAS], all = 0;

	for (int i = 0; i < MTK_PEAK_FMAS; i++)
		sums[i] = (float)i;
	for (uint64_t n = 0; n < n_rounds; n++)
		for (int i = 0; i < MTK_PEAK_FMAS; i++)
			sums[i] = sums[i] * 0.5f + 1.0f;
	for (int i = 0; i < MTK_PEAK_FMAS; i++)
		all += sums[i];
	return all;
}

float mtk_peak_read_plain(const float *from, size_t n)
{
	float sums[4] = {0};

	for (size_t i = 0; i < n; i += 4)
		for (int j = 0; j < 4; j++)
			sums[j] += from[i + j];
	return sums[0] + sums[1] + sums[2] + sums[3];
}

struct work {
	const struct mtk_cpu_ops *ops;
	float *memory;
	size_t n_floats; /* a piece */
	uint64_t n_rounds;
	float *results; /* [pieces]: nobody may leave the work out */
};

static void piece_fma(void *arg, uint32_t begin, uint32_t end)
{
	struct work *work = arg;

	for (uint32_t i = begin; i < end; i++)
		work->results[i] += work->ops->peak_fma(work->n_rounds);
}

static void piece_read(void *arg, uint32_t begin, uint32_t end)
{
	struct work *work = arg;

	for (uint32_t i = begin; i < end; i++)
		work->results[i] +=
			work->ops->peak_read(work->memory + i * work->n_floats, work->n_floats);
}

/* First touched by the thread that reads it, as far as pieces stay where they were. */
static void piece_fill(void *arg, uint32_t begin, uint32_t end)
{
	struct work *work = arg;

	for (uint32_t i = begin; i < end; i++)
		for (size_t j = 0; j < work->n_floats; j++)
			work->memory[i * work->n_floats + j] = 1.0f;
}

static double now_s(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double best_s(struct mtk_threads *threads, uint32_t n_pieces, mtk_task_fn fn,
		     struct work *work)
{
	double best = 0;

	for (int run = 0; run < N_RUNS; run++) {
		const double begin = now_s();
		double took;

		mtk_threads_run(threads, n_pieces, 1, fn, work);
		took = now_s() - begin;
		if (run == 0 || took < best)
			best = took;
	}
	return best > 1e-9 ? best : 1e-9;
}

int mtk_peaks_measure(const struct mtk_cpu_ops *ops, struct mtk_threads *threads, size_t n_bytes,
		      struct mtk_peaks *ret_peaks)
{
	const uint32_t n = mtk_threads_count(threads);
	struct work work = {.ops = ops,
			    .n_floats = n_bytes / n / sizeof(float) / 64 * 64,
			    .n_rounds = ROUNDS_A_PIECE};
	int status = MOETRACE_E_NOMEM;

	work.memory = malloc(work.n_floats * n * sizeof(float));
	work.results = calloc(n, sizeof(*work.results));
	if (!work.memory || !work.results)
		goto out;
	mtk_threads_run(threads, n, 1, piece_fill, &work);
	ret_peaks->level = ops->name;
	ret_peaks->n_threads = n;
	ret_peaks->bytes_per_s = (double)work.n_floats * n * sizeof(float) /
				 best_s(threads, n, piece_read, &work);
	ret_peaks->flop_per_s = 2.0 * MTK_PEAK_FMAS * ROUNDS_A_PIECE * n /
				best_s(threads, n, piece_fma, &work);
	status = MOETRACE_OK;
out:
	free(work.memory);
	free(work.results);
	return status;
}
