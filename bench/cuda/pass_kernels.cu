/* SPDX-License-Identifier: MIT */
/* The kernels of bench_pass; see pass_kernels.h. */
#include "bench/cuda/pass_kernels.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/status.cuh"

#define SHIP_THREADS 512
#define BODY_CYCLES  1000

static __device__ uint64_t timer(void)
{
	uint64_t timer_ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(timer_ns)::"memory");
	return timer_ns;
}

__global__ void __launch_bounds__(SHIP_THREADS) ship_kernel(const struct pass_ship ship)
{
	const uint4 *from = (const uint4 *)ship.from;
	uint4 *to = (uint4 *)ship.to;

	for (uint64_t i = threadIdx.x; i < ship.n_bytes / sizeof(uint4); i += SHIP_THREADS)
		to[i] = from[i];
	__syncthreads();
	if (threadIdx.x != 0)
		return;
	__threadfence_system();
	if (ship.word)
		*(volatile uint64_t *)ship.word = ship.word_value;
	if (ship.done)
		*(volatile uint64_t *)ship.done = ship.done_value;
}

__global__ void fetch_kernel(uint64_t from, uint64_t to)
{
	*(volatile uint64_t *)to = *(volatile const uint64_t *)from;
}

__global__ void first_kernel(struct pass_stamps *stamps)
{
	if (stamps->n < PASS_MAX_STAMPS)
		stamps->ns[stamps->n][0] = timer();
}

__global__ void body_kernel(void)
{
	const int64_t begin = clock64();

	while (clock64() - begin < BODY_CYCLES)
		continue;
}

__global__ void last_kernel(struct pass_stamps *stamps)
{
	if (stamps->n < PASS_MAX_STAMPS)
		stamps->ns[stamps->n++][1] = timer();
}

int pass_launch_ship(const struct pass_ship *ship, void *stream, struct mtk_error *error)
{
	ship_kernel<<<1, SHIP_THREADS, 0, (cudaStream_t)stream>>>(*ship);
	return mtk_cuda_launched(error, "a pass's copy");
}

static int launch_all(struct pass_stamps *stamps, uint32_t n_kernels, uint64_t fetch_from,
		      uint64_t fetch_to, cudaStream_t stream, struct mtk_error *error)
{
	if (fetch_from)
		fetch_kernel<<<1, 1, 0, stream>>>(fetch_from, fetch_to);
	first_kernel<<<1, 1, 0, stream>>>(stamps);
	for (uint32_t i = 0; i < n_kernels; i++)
		body_kernel<<<1, 32, 0, stream>>>();
	last_kernel<<<1, 1, 0, stream>>>(stamps);
	return mtk_cuda_launched(error, "a graph's kernels");
}

int pass_graph_make(struct pass_stamps *stamps, uint32_t n_kernels, uint64_t fetch_from,
		    uint64_t fetch_to, void *stream, struct mtk_error *error, void **ret_graph)
{
	int status = mtk_cuda_graph_begin(stream, error);

	if (!status)
		status = launch_all(stamps, n_kernels, fetch_from, fetch_to, (cudaStream_t)stream,
				    error);
	return status ? status : mtk_cuda_graph_end(stream, error, ret_graph);
}
