/* SPDX-License-Identifier: MIT */
/*
 * The device functions, over the CUDA runtime. Streams do not synchronise with the default
 * stream, and graphs are captured in the thread-local mode, so that other threads may go on
 * allocating.
 */
#include <stdio.h>
#include <string.h>

#include "common/library.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/status.cuh"

static cudaStream_t stream_of(void *stream)
{
	return (cudaStream_t)stream;
}

/* Whether the code of this build runs on the current device. */
__global__ void probe(void)
{
}

/*
 * The runtime opens the driver's library by itself, without a look at it, and takes one that is not
 * there for one that is too old.
 */
static int open_number(uint32_t number, struct mtk_error *error)
{
	char why[256];
	const enum mt_library_state driver = mt_library_look("libcuda.so.1", why, sizeof(why));
	int n_devices = 0;
	cudaError_t code;

	if (driver == MT_LIBRARY_WRONG)
		return mtk_error_set(error, MOETRACE_E_UNSUPPORTED,
				     "cuda: no GPU to use: the driver cannot be opened: %s", why);
	code = cudaGetDeviceCount(&n_devices);
	if (code == cudaSuccess && n_devices == 0)
		code = cudaErrorNoDevice;
	if (code != cudaSuccess) {
		cudaGetLastError();
		return mtk_error_set(error, MOETRACE_E_UNSUPPORTED, "cuda: no GPU to use: %s",
				     code == cudaErrorInsufficientDriver &&
						     driver == MT_LIBRARY_MISSING ?
					     "no libcuda.so.1: no GPU driver is installed" :
					     cudaGetErrorString(code));
	}
	if (number >= (uint32_t)n_devices)
		return mtk_error_set(error, MOETRACE_E_UNSUPPORTED,
				     "cuda: there is no GPU %u, they are 0 to %d", number,
				     n_devices - 1);
	return mtk_cuda_fail(error, cudaSetDevice((int)number), "cudaSetDevice");
}

int mtk_cuda_open(uint32_t number, struct mtk_error *error, struct mtk_cuda_device *ret_device)
{
	struct mtk_cuda_device device = {};
	struct cudaDeviceProp properties;
	int runtime = 0, driver = 0;
	int status = open_number(number, error);

	if (!status)
		status = mtk_cuda_fail(error, cudaGetDeviceProperties(&properties, (int)number),
				       "cudaGetDeviceProperties");
	if (status)
		return status;
	probe<<<1, 1>>>();
	status = mtk_cuda_launched(error, "a first kernel on this GPU");
	if (status)
		return status;
	cudaRuntimeGetVersion(&runtime);
	cudaDriverGetVersion(&driver);
	snprintf(device.name, sizeof(device.name), "%.127s", properties.name);
	device.major = (uint32_t)properties.major;
	device.minor = (uint32_t)properties.minor;
	device.n_multiprocessors = (uint32_t)properties.multiProcessorCount;
	device.memory_bytes = properties.totalGlobalMem;
	device.l2_bytes = (uint64_t)properties.l2CacheSize;
	device.runtime_version = (uint32_t)runtime;
	device.driver_version = (uint32_t)driver;
	*ret_device = device;
	return MOETRACE_OK;
}

int mtk_cuda_alloc(size_t n_bytes, struct mtk_error *error, void **ret_memory)
{
	void *memory = NULL;
	int status =
		mtk_cuda_fail(error, cudaMalloc(&memory, n_bytes > 0 ? n_bytes : 1), "cudaMalloc");

	if (!status)
		*ret_memory = memory;
	return status;
}

void mtk_cuda_free(void *memory)
{
	if (memory)
		cudaFree(memory);
}

int mtk_cuda_host_alloc(size_t n_bytes, struct mtk_error *error, void **ret_memory)
{
	void *memory = NULL;
	int status = mtk_cuda_fail(error, cudaMallocHost(&memory, n_bytes > 0 ? n_bytes : 1),
				   "cudaMallocHost");

	if (!status)
		*ret_memory = memory;
	return status;
}

void mtk_cuda_host_free(void *memory)
{
	if (memory)
		cudaFreeHost(memory);
}

int mtk_cuda_upload(void *to_device, const void *from, size_t n_bytes, void *stream,
		    struct mtk_error *error)
{
	return mtk_cuda_fail(error,
			     cudaMemcpyAsync(to_device, from, n_bytes, cudaMemcpyHostToDevice,
					     stream_of(stream)),
			     "copy to the GPU");
}

int mtk_cuda_download(void *to, const void *from_device, size_t n_bytes, void *stream,
		      struct mtk_error *error)
{
	return mtk_cuda_fail(error,
			     cudaMemcpyAsync(to, from_device, n_bytes, cudaMemcpyDeviceToHost,
					     stream_of(stream)),
			     "copy from the GPU");
}

int mtk_cuda_copy(void *to_device, const void *from_device, size_t n_bytes, void *stream,
		  struct mtk_error *error)
{
	return mtk_cuda_fail(error,
			     cudaMemcpyAsync(to_device, from_device, n_bytes,
					     cudaMemcpyDeviceToDevice, stream_of(stream)),
			     "copy on the GPU");
}

int mtk_cuda_zero(void *memory, size_t n_bytes, void *stream, struct mtk_error *error)
{
	return mtk_cuda_fail(error, cudaMemsetAsync(memory, 0, n_bytes, stream_of(stream)),
			     "cudaMemset");
}

int mtk_cuda_stream_create(struct mtk_error *error, void **ret_stream)
{
	cudaStream_t stream;
	int status = mtk_cuda_fail(error, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
				   "cudaStreamCreate");

	if (!status)
		*ret_stream = stream;
	return status;
}

void mtk_cuda_stream_destroy(void *stream)
{
	if (stream)
		cudaStreamDestroy(stream_of(stream));
}

int mtk_cuda_stream_wait(void *stream, struct mtk_error *error)
{
	return mtk_cuda_fail(error, cudaStreamSynchronize(stream_of(stream)),
			     "waiting for the GPU");
}

int mtk_cuda_graph_begin(void *stream, struct mtk_error *error)
{
	return mtk_cuda_fail(
		error, cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal),
		"cudaStreamBeginCapture");
}

int mtk_cuda_graph_end(void *stream, struct mtk_error *error, void **ret_graph)
{
	cudaGraph_t graph = NULL;
	cudaGraphExec_t exec;
	int status = mtk_cuda_fail(error, cudaStreamEndCapture(stream_of(stream), &graph),
				   "cudaStreamEndCapture");

	if (status)
		return status;
	status =
		mtk_cuda_fail(error, cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
	cudaGraphDestroy(graph);
	if (!status)
		*ret_graph = exec;
	return status;
}

int mtk_cuda_graph_launch(void *graph, void *stream, struct mtk_error *error)
{
	return mtk_cuda_fail(error, cudaGraphLaunch((cudaGraphExec_t)graph, stream_of(stream)),
			     "cudaGraphLaunch");
}

void mtk_cuda_graph_destroy(void *graph)
{
	if (graph)
		cudaGraphExecDestroy((cudaGraphExec_t)graph);
}

int mtk_cuda_event_create(struct mtk_error *error, void **ret_event)
{
	cudaEvent_t event;
	int status = mtk_cuda_fail(error, cudaEventCreate(&event), "cudaEventCreate");

	if (!status)
		*ret_event = event;
	return status;
}

void mtk_cuda_event_destroy(void *event)
{
	if (event)
		cudaEventDestroy((cudaEvent_t)event);
}

int mtk_cuda_event_record(void *event, void *stream, struct mtk_error *error)
{
	return mtk_cuda_fail(error, cudaEventRecord((cudaEvent_t)event, stream_of(stream)),
			     "cudaEventRecord");
}

int mtk_cuda_event_elapsed_us(void *begin, void *end, struct mtk_error *error, double *ret_us)
{
	float ms = 0.0f;
	int status = mtk_cuda_fail(error, cudaEventSynchronize((cudaEvent_t)end),
				   "cudaEventSynchronize");

	if (!status)
		status = mtk_cuda_fail(
			error, cudaEventElapsedTime(&ms, (cudaEvent_t)begin, (cudaEvent_t)end),
			"cudaEventElapsedTime");
	if (!status)
		*ret_us = 1e3 * (double)ms;
	return status;
}

int mtk_cuda_event_create_untimed(struct mtk_error *error, void **ret_event)
{
	cudaEvent_t event;
	int status = mtk_cuda_fail(error,
				   cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
				   "cudaEventCreate");

	if (!status)
		*ret_event = event;
	return status;
}

int mtk_cuda_stream_follow(void *stream, void *event, struct mtk_error *error)
{
	return mtk_cuda_fail(error, cudaStreamWaitEvent(stream_of(stream), (cudaEvent_t)event, 0),
			     "cudaStreamWaitEvent");
}
