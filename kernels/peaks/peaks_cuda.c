/* SPDX-License-Identifier: MIT */
/*
 * Each run lies between two events of a stream. The product is square and so large that the units
 * that multiply are full; of zeros, which take as long as numbers do at most.
 */
#include "kernels/peaks/peaks_cuda.h"

#include <string.h>

#include <moetrace/status.h>

#include "kernels/cuda/cublas.h"
#include "kernels/gemm/router_cuda.h"

#define COPY_BYTES ((size_t)512 << 20)

enum { N_RUNS = 5, N_SIDE = 8192 };

struct bench {
	void *stream, *begin, *end;
	void *from, *to; /* [COPY_BYTES]: the product's two matrices, and its result */
	struct mtk_cublas *cublas;
};

static int copy_run(const struct bench *bench, struct mtk_error *error)
{
	return mtk_cuda_copy(bench->to, bench->from, COPY_BYTES, bench->stream, error);
}

static int product_run(const struct bench *bench, struct mtk_error *error)
{
	const char *matrices = bench->from;
	const size_t matrix_bytes = (size_t)N_SIDE * N_SIDE * 2;
	const struct mtk_cublas_product product = {.dtype = MTK_DTYPE_BF16,
						   .n_rows = N_SIDE,
						   .n_in = N_SIDE,
						   .n_out = N_SIDE,
						   .x = matrices,
						   .w = matrices + matrix_bytes,
						   .y = bench->to};
	const struct mtk_router_cuda own = {.dtype = product.dtype,
					    .n_rows = product.n_rows,
					    .n_in = product.n_in,
					    .n_out = product.n_out,
					    .x = product.x,
					    .w = product.w,
					    .y = product.y};

	return bench->cublas ? mtk_cublas_multiply(bench->cublas, &product, error)
			     : mtk_router_cuda(&own, bench->stream, error);
}

static int best_us(const struct bench *bench,
		   int (*run)(const struct bench *bench, struct mtk_error *error),
		   struct mtk_error *error, double *ret_us)
{
	double best = 0, us;

	for (int i = 0; i < N_RUNS; i++) {
		int status = mtk_cuda_event_record(bench->begin, bench->stream, error);

		if (status == MOETRACE_OK)
			status = run(bench, error);
		if (status == MOETRACE_OK)
			status = mtk_cuda_event_record(bench->end, bench->stream, error);
		if (status == MOETRACE_OK)
			status = mtk_cuda_stream_wait(bench->stream, error);
		if (status == MOETRACE_OK)
			status = mtk_cuda_event_elapsed_us(bench->begin, bench->end, error, &us);
		if (status != MOETRACE_OK)
			return status;
		if (i == 0 || us < best)
			best = us;
	}
	*ret_us = best > 1e-3 ? best : 1e-3;
	return MOETRACE_OK;
}

static void bench_close(struct bench *bench)
{
	mtk_cublas_close(bench->cublas);
	mtk_cuda_free(bench->from);
	mtk_cuda_free(bench->to);
	if (bench->begin)
		mtk_cuda_event_destroy(bench->begin);
	if (bench->end)
		mtk_cuda_event_destroy(bench->end);
	if (bench->stream)
		mtk_cuda_stream_destroy(bench->stream);
}

static int bench_open(struct bench *bench, struct mtk_error *error)
{
	char text[128];
	int status = mtk_cuda_stream_create(error, &bench->stream);

	if (status == MOETRACE_OK)
		status = mtk_cuda_event_create(error, &bench->begin);
	if (status == MOETRACE_OK)
		status = mtk_cuda_event_create(error, &bench->end);
	if (status == MOETRACE_OK)
		status = mtk_cuda_alloc(COPY_BYTES, error, &bench->from);
	if (status == MOETRACE_OK)
		status = mtk_cuda_alloc(COPY_BYTES, error, &bench->to);
	if (status == MOETRACE_OK)
		status = mtk_cuda_zero(bench->from, COPY_BYTES, bench->stream, error);
	if (status == MOETRACE_OK)
		bench->cublas = mtk_cublas_open(bench->stream, text, sizeof(text));
	return status;
}

int mtk_peaks_measure_cuda(uint32_t number, struct mtk_error *error,
			   struct mtk_peaks_cuda *ret_peaks)
{
	struct mtk_cuda_device device;
	struct bench bench;
	double copy_us, product_us;
	int status = mtk_cuda_open(number, error, &device);

	if (status != MOETRACE_OK)
		return status;
	memset(&bench, 0, sizeof(bench));
	status = bench_open(&bench, error);
	if (status == MOETRACE_OK)
		status = best_us(&bench, copy_run, error, &copy_us);
	if (status == MOETRACE_OK)
		status = best_us(&bench, product_run, error, &product_us);
	if (status == MOETRACE_OK)
		*ret_peaks = (struct mtk_peaks_cuda){
			.device = device,
			.is_cublas = bench.cublas != NULL,
			.flop_per_s = 2.0 * N_SIDE * N_SIDE * N_SIDE / product_us * 1e6,
			.bytes_per_s = 2.0 * (double)COPY_BYTES / copy_us * 1e6,
		};
	bench_close(&bench);
	return status;
}
