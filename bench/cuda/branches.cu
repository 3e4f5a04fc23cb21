/* SPDX-License-Identifier: MIT */
/* The graph of bench_branches; see branches.h. */
#include "bench/cuda/branches.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/status.cuh"

#define CYCLES 8000

static __device__ void spin(void)
{
	const int64_t begin = clock64();

	while (clock64() - begin < CYCLES)
		continue;
}

__global__ void left_kernel(void)
{
	spin();
}

__global__ void right_kernel(void)
{
	spin();
}

__global__ void join_kernel(void)
{
}

/* @to goes on behind what @from has so far. */
static int follow(cudaStream_t to, cudaStream_t from, struct mtk_error *error)
{
	cudaEvent_t event;
	int status = mtk_cuda_fail(error, cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
				   "cudaEventCreate");

	if (status)
		return status;
	status = mtk_cuda_fail(error, cudaEventRecord(event, from), "cudaEventRecord");
	if (!status)
		status = mtk_cuda_fail(error, cudaStreamWaitEvent(to, event, 0),
				       "cudaStreamWaitEvent");
	cudaEventDestroy(event);
	return status;
}

static int launch_all(uint32_t n, cudaStream_t stream, cudaStream_t beside, struct mtk_error *error)
{
	int status = follow(beside, stream, error);

	for (uint32_t i = 0; !status && i < n; i++) {
		left_kernel<<<1, 32, 0, stream>>>();
		right_kernel<<<1, 32, 0, beside>>>();
		status = mtk_cuda_launched(error, "two branches");
	}
	if (!status)
		status = follow(stream, beside, error);
	if (status)
		return status;
	join_kernel<<<1, 32, 0, stream>>>();
	return mtk_cuda_launched(error, "what joins two branches");
}

int branches_make(uint32_t n, void *stream, void *beside, struct mtk_error *error, void **ret_graph)
{
	int status = mtk_cuda_graph_begin(stream, error);

	if (!status)
		status = launch_all(n, (cudaStream_t)stream, (cudaStream_t)beside, error);
	return status ? status : mtk_cuda_graph_end(stream, error, ret_graph);
}
