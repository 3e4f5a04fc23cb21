/* SPDX-License-Identifier: MIT */
/* Timing by graphs. A graph is warmed up before it counts. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <moetrace/status.h>

extern "C" {
#include "bench/cuda/gpu_time.h"
}
#include "kernels/cuda/device.h"
#include "kernels/cuda/status.cuh"

#define MAX_RUNS 1000
#define N_WARM	 5

static void *stream;

static void must(int status, const struct mtk_error *error)
{
	if (status == MOETRACE_OK)
		return;
	fprintf(stderr, "bench: %s\n", error->text);
	exit(status == MOETRACE_E_UNSUPPORTED ? 77 : 1);
}

void gpu_time_open(void)
{
	struct mtk_cuda_device device;
	struct mtk_error error;

	must(mtk_cuda_open(0, &error, &device), &error);
	must(mtk_cuda_stream_create(&error, &stream), &error);
	printf("%s, %u multiprocessors, driver for CUDA %u.%u, runtime %u.%u\n", device.name,
	       device.n_multiprocessors, device.driver_version / 1000,
	       device.driver_version % 1000 / 10, device.runtime_version / 1000,
	       device.runtime_version % 1000 / 10);
	printf("an empty kernel in a graph: %.2f us; copy: %.2f TB/s read and written; reading "
	       "alone: %.2f TB/s\n",
	       gpu_time_empty_us(), gpu_copy_bandwidth() * 1e-3, gpu_read_bandwidth() * 1e-3);
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double gpu_time_us(gpu_launch_fn launch, void *arg, uint32_t n_launches, uint32_t n_runs)
{
	static double times[MAX_RUNS];
	struct mtk_error error;
	void *graph, *begin, *end;

	n_runs = n_runs < MAX_RUNS ? n_runs : MAX_RUNS;
	must(mtk_cuda_event_create(&error, &begin), &error);
	must(mtk_cuda_event_create(&error, &end), &error);
	must(mtk_cuda_graph_begin(stream, &error), &error);
	for (uint32_t i = 0; i < n_launches; i++)
		must(launch(arg, stream, &error), &error);
	must(mtk_cuda_graph_end(stream, &error, &graph), &error);
	for (uint32_t i = 0; i < N_WARM; i++)
		must(mtk_cuda_graph_launch(graph, stream, &error), &error);
	for (uint32_t i = 0; i < n_runs; i++) {
		must(mtk_cuda_event_record(begin, stream, &error), &error);
		must(mtk_cuda_graph_launch(graph, stream, &error), &error);
		must(mtk_cuda_event_record(end, stream, &error), &error);
		must(mtk_cuda_event_elapsed_us(begin, end, &error, &times[i]), &error);
	}
	mtk_cuda_graph_destroy(graph);
	mtk_cuda_event_destroy(begin);
	mtk_cuda_event_destroy(end);
	qsort(times, n_runs, sizeof(times[0]), by_value);
	return times[n_runs / 2] / n_launches;
}

__global__ void empty_kernel(void)
{
}

int gpu_launch_empty(void *, void *on, struct mtk_error *error)
{
	empty_kernel<<<1, 32, 0, (cudaStream_t)on>>>();
	return mtk_cuda_launched(error, "an empty kernel");
}

double gpu_time_empty_us(void)
{
	return gpu_time_us(gpu_launch_empty, NULL, 1000, 21);
}

struct copy {
	void *to;
	void *from;
	size_t n_bytes;
};

/* Four loads of 16 bytes in flight a thread. */
__global__ void __launch_bounds__(512) copy_kernel(uint4 *to, const uint4 *from, size_t n)
{
	const size_t stride = (size_t)gridDim.x * blockDim.x;
	size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;

	for (; i + 3 * stride < n; i += 4 * stride) {
		const uint4 a = __ldcs(from + i), b = __ldcs(from + i + stride);
		const uint4 c = __ldcs(from + i + 2 * stride), d = __ldcs(from + i + 3 * stride);

		__stcs(to + i, a);
		__stcs(to + i + stride, b);
		__stcs(to + i + 2 * stride, c);
		__stcs(to + i + 3 * stride, d);
	}
	for (; i < n; i += stride)
		to[i] = from[i];
}

static int launch_copy_kernel(void *arg, void *on, struct mtk_error *error)
{
	const struct copy *copy = (const struct copy *)arg;

	copy_kernel<<<4096, 512, 0, (cudaStream_t)on>>>(
		(uint4 *)copy->to, (const uint4 *)copy->from, copy->n_bytes / sizeof(uint4));
	return mtk_cuda_launched(error, "a copy");
}

static int launch_copy(void *arg, void *on, struct mtk_error *error)
{
	const struct copy *copy = (const struct copy *)arg;

	return mtk_cuda_copy(copy->to, copy->from, copy->n_bytes, on, error);
}

double gpu_copy_bandwidth(void)
{
	static double bandwidth;
	struct copy copy = {NULL, NULL, (size_t)2 << 30};
	struct mtk_error error;
	double us;

	if (bandwidth > 0.0)
		return bandwidth;
	must(mtk_cuda_alloc(copy.n_bytes, &error, &copy.to), &error);
	must(mtk_cuda_alloc(copy.n_bytes, &error, &copy.from), &error);
	us = fmin(gpu_time_us(launch_copy, &copy, 4, 11),
		  gpu_time_us(launch_copy_kernel, &copy, 4, 11));
	bandwidth = 2.0 * (double)copy.n_bytes / (us * 1e3);
	mtk_cuda_free(copy.to);
	mtk_cuda_free(copy.from);
	return bandwidth;
}

/* The sum keeps the loads from being left out. */
__global__ void __launch_bounds__(512) read_kernel(uint4 *to, const uint4 *from, size_t n)
{
	const size_t stride = (size_t)gridDim.x * blockDim.x;
	uint32_t sum = 0;

	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i + 3 * stride < n;
	     i += 4 * stride) {
		const uint4 a = __ldcs(from + i), b = __ldcs(from + i + stride);
		const uint4 c = __ldcs(from + i + 2 * stride), d = __ldcs(from + i + 3 * stride);

		sum += a.x ^ b.y ^ c.z ^ d.w;
	}
	if (sum == 0x12345678)
		to->x = sum;
}

static int launch_read(void *arg, void *on, struct mtk_error *error)
{
	const struct copy *copy = (const struct copy *)arg;

	read_kernel<<<4096, 512, 0, (cudaStream_t)on>>>(
		(uint4 *)copy->to, (const uint4 *)copy->from, copy->n_bytes / sizeof(uint4));
	return mtk_cuda_launched(error, "reading");
}

double gpu_read_bandwidth(void)
{
	static double bandwidth;
	struct copy copy = {NULL, NULL, (size_t)4 << 30};
	struct mtk_error error;

	if (bandwidth > 0.0)
		return bandwidth;
	must(mtk_cuda_alloc(16, &error, &copy.to), &error);
	must(mtk_cuda_alloc(copy.n_bytes, &error, &copy.from), &error);
	bandwidth = (double)copy.n_bytes / (gpu_time_us(launch_read, &copy, 4, 11) * 1e3);
	mtk_cuda_free(copy.to);
	mtk_cuda_free(copy.from);
	return bandwidth;
}

void *gpu_time_memory(size_t n_bytes, const void *from)
{
	struct mtk_error error;
	void *memory;

	must(mtk_cuda_alloc(n_bytes, &error, &memory), &error);
	if (from)
		must(mtk_cuda_upload(memory, from, n_bytes, stream, &error), &error);
	else
		must(mtk_cuda_zero(memory, n_bytes, stream, &error), &error);
	must(mtk_cuda_stream_wait(stream, &error), &error);
	return memory;
}

void gpu_time_write(void *to, const void *from, size_t n_bytes)
{
	struct mtk_error error;

	must(mtk_cuda_upload(to, from, n_bytes, stream, &error), &error);
	must(mtk_cuda_stream_wait(stream, &error), &error);
}

template <class T> __global__ void fill_random(T *values, size_t n, float scale)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x) {
		uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;

		x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
		x ^= x >> 27;
		values[i] = (T)(scale * ((float)(uint32_t)(x >> 20) * 0x1p-31f - 1.0f));
	}
}

void *gpu_time_random16(size_t n, float scale, int is_bf16)
{
	struct mtk_error error;
	void *memory;

	must(mtk_cuda_alloc(2 * n, &error, &memory), &error);
	if (is_bf16)
		fill_random<<<1024, 256>>>((__nv_bfloat16 *)memory, n, scale);
	else
		fill_random<<<1024, 256>>>((__half *)memory, n, scale);
	must(mtk_cuda_launched(&error, "filling with random numbers"), &error);
	must(mtk_cuda_stream_wait(NULL, &error), &error);
	return memory;
}
