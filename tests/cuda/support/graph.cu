/* SPDX-License-Identifier: MIT */
/*
 * The skeleton model; see graph.h. Scores are a hash of layer, row, expert and a counter that each
 * replay increments, so that no two replays choose alike and nothing is zero.
 */
#include "tests/cuda/support/graph.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#include <moetrace/cuda_device.cuh>

#define CHECK(call)                                                                   \
	do {                                                                          \
		const cudaError_t error = (call);                                     \
		if (error != cudaSuccess) {                                           \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
				cudaGetErrorString(error));                           \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

struct graph_buffers {
	uint32_t n_layers, n_rows;
	size_t n_entries;
	float *scores, *scratch;
	int32_t *ids, *kept_ids;
	float *weights, *kept_weights;
	uint32_t *counter;
	float *bias;
	graph_router_fn router; /* NULL: the skeleton's own */
};

struct graph {
	cudaGraphExec_t exec;
};

static __device__ uint32_t mix(uint32_t x)
{
	x = (x ^ x >> 16) * 0x7feb352du;
	x = (x ^ x >> 15) * 0x846ca68bu;
	return x ^ x >> 16;
}

static __global__ void count(uint32_t *counter)
{
	++*counter;
}

static __global__ void score(float *scores, const uint32_t *counter, uint32_t layer, uint32_t n)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		scores[i] =
			static_cast<float>(mix(mix(*counter * 977u + layer) + i) >> 8) * 0x1p-24f;
}

static __global__ void logit(float *scores, const uint32_t *counter, uint32_t layer, uint32_t n)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		const uint32_t one = mix(mix(*counter * 977u + layer) + i);

		/* The two kernels behind it make it -2 .. 2, and a bit more. */
		scores[i] = static_cast<float>((one >> 8) + (mix(one) >> 8)) * 0x1p-21f - 8.0f;
	}
}

static __global__ void scale(float *to, const float *from, uint32_t n)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		to[i] = from[i] * 0.5f + 0.25f;
}

template <bool CAPTURE>
static __global__ void route(const float *scores, int32_t *ids, float *weights, uint32_t n_rows,
			     struct moetrace_cuda_target target)
{
	const uint32_t row = blockIdx.x * 4 + threadIdx.x / 32;
	const uint32_t lane = threadIdx.x % 32;
	uint64_t keys[GRAPH_EXPERTS / 32];
	uint64_t mine = 0;

	if (CAPTURE && blockIdx.x == gridDim.x - 1) {
		if (threadIdx.x == 0)
			moetrace_cuda_store_layer(target, n_rows);
		return;
	}
	if (row >= n_rows)
		return;
	/* Scores are positive: their bits ascend as they do; of equals the lower id is larger. */
	for (int i = 0; i < GRAPH_EXPERTS / 32; i++) {
		const uint32_t id = i * 32 + lane;
		const float s = scores[static_cast<size_t>(row) * GRAPH_EXPERTS + id];

		keys[i] =
			static_cast<uint64_t>(__float_as_uint(s)) << 32 | (GRAPH_EXPERTS - 1 - id);
	}
	struct moetrace_cuda_row to;
	if (CAPTURE) {
		to = moetrace_cuda_open(target, row);
		moetrace_cuda_arrive(to);
	}
	for (uint32_t k = 0; k < GRAPH_TOP_K; k++) {
		uint64_t best = 0;

		for (int i = 0; i < GRAPH_EXPERTS / 32; i++)
			best = keys[i] > best ? keys[i] : best;
		for (int step = 16; step; step >>= 1) {
			const uint64_t other = __shfl_xor_sync(~0u, best, step);

			best = other > best ? other : best;
		}
		for (int i = 0; i < GRAPH_EXPERTS / 32; i++)
			keys[i] = keys[i] == best ? 0 : keys[i];
		mine = lane == k ? best : mine;
	}
	const int32_t id = GRAPH_EXPERTS - 1 - static_cast<int32_t>(mine & 0xffffffffu);
	float weight =
		lane < GRAPH_TOP_K ? __uint_as_float(static_cast<uint32_t>(mine >> 32)) : 0.0f;
	float sum = weight;
	for (int step = 16; step; step >>= 1)
		sum += __shfl_xor_sync(~0u, sum, step);
	weight /= sum;
	if (lane < GRAPH_TOP_K) {
		ids[row * GRAPH_TOP_K + lane] = id;
		weights[row * GRAPH_TOP_K + lane] = weight;
	}
	if (CAPTURE)
		moetrace_cuda_store_entries(to, id, weight, 0);
}

extern "C" int graph_open(char *ret_reason, size_t reason_bytes)
{
	int n = 0;
	const cudaError_t error = cudaGetDeviceCount(&n);

	if (error != cudaSuccess || n == 0) {
		snprintf(ret_reason, reason_bytes, "no GPU: %s", cudaGetErrorString(error));
		return -1;
	}
	CHECK(cudaSetDevice(0));
	CHECK(cudaFree(nullptr));
	return 0;
}

extern "C" uint32_t graph_n_devices(void)
{
	int n = 0;

	CHECK(cudaGetDeviceCount(&n));
	return static_cast<uint32_t>(n);
}

extern "C" void graph_use(uint32_t ordinal)
{
	CHECK(cudaSetDevice(static_cast<int>(ordinal)));
	CHECK(cudaFree(nullptr));
}

extern "C" void *graph_stream_new(void)
{
	cudaStream_t stream;

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	return stream;
}

extern "C" void graph_stream_wait(void *stream)
{
	CHECK(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
}

static std::vector<void *> taken;

extern "C" void graph_memory_take(size_t left_bytes)
{
	size_t n_free = 0, n_total = 0;

	/* Smaller and smaller blocks, since memory is in pieces. */
	for (size_t n_bytes = size_t(1) << 36; n_bytes >= size_t(1) << 21; n_bytes /= 2)
		for (;;) {
			void *memory;

			CHECK(cudaMemGetInfo(&n_free, &n_total));
			if (n_free < left_bytes + n_bytes)
				break;
			if (cudaMalloc(&memory, n_bytes) != cudaSuccess) {
				(void)cudaGetLastError();
				break;
			}
			taken.push_back(memory);
		}
}

extern "C" void graph_memory_give(void)
{
	for (void *memory : taken)
		CHECK(cudaFree(memory));
	taken.clear();
}

extern "C" void graph_reset(void)
{
	CHECK(cudaDeviceReset());
}

extern "C" void graph_capture_begin(void *stream)
{
	CHECK(cudaStreamBeginCapture(static_cast<cudaStream_t>(stream),
				     cudaStreamCaptureModeGlobal));
}

extern "C" void graph_capture_end(void *stream)
{
	cudaGraph_t captured;

	CHECK(cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &captured));
	CHECK(cudaGraphDestroy(captured));
}

extern "C" struct graph_buffers *graph_buffers_new(uint32_t n_layers, uint32_t n_rows,
						   uint32_t n_kept)
{
	struct graph_buffers *b = new graph_buffers();

	b->n_layers = n_layers;
	b->n_rows = n_rows;
	b->n_entries = static_cast<size_t>(n_layers) * n_rows * GRAPH_TOP_K;
	CHECK(cudaMalloc(&b->scores, sizeof(float) * n_rows * GRAPH_EXPERTS));
	CHECK(cudaMalloc(&b->scratch, sizeof(float) * n_rows * GRAPH_EXPERTS));
	CHECK(cudaMalloc(&b->ids, 4 * b->n_entries));
	CHECK(cudaMalloc(&b->weights, 4 * b->n_entries));
	CHECK(cudaMalloc(&b->kept_ids, 4 * b->n_entries * n_kept));
	CHECK(cudaMalloc(&b->kept_weights, 4 * b->n_entries * n_kept));
	CHECK(cudaMalloc(&b->counter, 4));
	CHECK(cudaMemset(b->counter, 0, 4));
	CHECK(cudaDeviceSynchronize());
	return b;
}

extern "C" void graph_use_router(struct graph_buffers *b, graph_router_fn router)
{
	std::vector<float> bias(GRAPH_EXPERTS);

	for (uint32_t i = 0; i < GRAPH_EXPERTS; i++)
		bias[i] = static_cast<float>(i * 37 % GRAPH_EXPERTS) * 0.0004f - 0.05f;
	b->router = router;
	CHECK(cudaMalloc(&b->bias, sizeof(float) * GRAPH_EXPERTS));
	CHECK(cudaMemcpy(b->bias, bias.data(), sizeof(float) * GRAPH_EXPERTS,
			 cudaMemcpyHostToDevice));
}

extern "C" uint64_t graph_ids(struct graph_buffers *b)
{
	return reinterpret_cast<uint64_t>(b->ids);
}

extern "C" uint64_t graph_weights(struct graph_buffers *b)
{
	return reinterpret_cast<uint64_t>(b->weights);
}

static void launch_layer(struct graph_buffers *b, cudaStream_t stream, uint32_t layer,
			 const struct moetrace_cuda_target *target)
{
	const uint32_t n = b->n_rows * GRAPH_EXPERTS;
	const uint32_t n_blocks = (n + 255) / 256;
	const size_t at = static_cast<size_t>(layer) * b->n_rows * GRAPH_TOP_K;
	const dim3 grid((b->n_rows + 3) / 4);

	count<<<1, 1, 0, stream>>>(b->counter);
	if (b->router)
		logit<<<n_blocks, 256, 0, stream>>>(b->scores, b->counter, layer, n);
	else
		score<<<n_blocks, 256, 0, stream>>>(b->scores, b->counter, layer, n);
	scale<<<n_blocks, 256, 0, stream>>>(b->scratch, b->scores, n);
	scale<<<n_blocks, 256, 0, stream>>>(b->scores, b->scratch, n);
	if (b->router)
		b->router(stream, b->scores, b->bias, b->ids + at, b->weights + at, b->n_rows,
			  target);
	else if (target)
		route<true><<<grid.x + 1, 128, 0, stream>>>(b->scores, b->ids + at, b->weights + at,
						      b->n_rows, *target);
	else
		route<false><<<grid, 128, 0, stream>>>(b->scores, b->ids + at, b->weights + at,
						       b->n_rows, moetrace_cuda_target());
}

extern "C" void graph_eager(struct graph_buffers *b, void *handle, uint32_t first, uint32_t end,
			    const struct moetrace_cuda_target *targets)
{
	for (uint32_t layer = first; layer < end; layer++)
		launch_layer(b, static_cast<cudaStream_t>(handle), layer, &targets[layer]);
}

static __global__ void spread(int32_t *to, const int32_t *from, uint32_t n_layers, uint32_t n_rows)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
	const uint32_t rank = i % GRAPH_TOP_K, layer = i / GRAPH_TOP_K % n_layers;
	const uint32_t row = i / GRAPH_TOP_K / n_layers;

	if (row < n_rows)
		to[i] = from[(static_cast<size_t>(layer) * n_rows + row) * GRAPH_TOP_K + rank];
}

extern "C" void graph_spread(struct graph_buffers *b, void *handle, uint64_t ids)
{
	const uint32_t n_blocks = static_cast<uint32_t>((b->n_entries + 255) / 256);

	spread<<<n_blocks, 256, 0, static_cast<cudaStream_t>(handle)>>>(
		reinterpret_cast<int32_t *>(ids), b->ids, b->n_layers, b->n_rows);
	CHECK(cudaGetLastError());
}

extern "C" uint64_t graph_memory_new(size_t n_bytes)
{
	void *memory;

	CHECK(cudaMalloc(&memory, n_bytes));
	CHECK(cudaMemset(memory, 0, n_bytes));
	CHECK(cudaDeviceSynchronize());
	return reinterpret_cast<uint64_t>(memory);
}

extern "C" struct graph *graph_new(struct graph_buffers *b, void *handle, uint32_t first,
				   uint32_t end, const struct moetrace_cuda_target *targets,
				   void (*extra)(void *context), void *context)
{
	const cudaStream_t stream = static_cast<cudaStream_t>(handle);
	struct graph *graph = new struct graph();
	cudaGraph_t captured;

	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	for (uint32_t layer = first; layer < end; layer++)
		launch_layer(b, stream, layer, targets ? &targets[layer] : nullptr);
	if (extra)
		extra(context);
	CHECK(cudaStreamEndCapture(stream, &captured));
	CHECK(cudaGraphInstantiate(&graph->exec, captured, 0));
	CHECK(cudaGraphDestroy(captured));
	return graph;
}

extern "C" void graph_launch(struct graph *graph, void *stream)
{
	CHECK(cudaGraphLaunch(graph->exec, static_cast<cudaStream_t>(stream)));
}

extern "C" void graph_keep(struct graph_buffers *b, uint32_t i, void *handle)
{
	const cudaStream_t stream = static_cast<cudaStream_t>(handle);

	CHECK(cudaMemcpyAsync(b->kept_ids + i * b->n_entries, b->ids, 4 * b->n_entries,
			      cudaMemcpyDeviceToDevice, stream));
	CHECK(cudaMemcpyAsync(b->kept_weights + i * b->n_entries, b->weights, 4 * b->n_entries,
			      cudaMemcpyDeviceToDevice, stream));
}

extern "C" void graph_kept(struct graph_buffers *b, uint32_t i, int32_t *ret_ids,
			   float *ret_weights)
{
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaMemcpy(ret_ids, b->kept_ids + i * b->n_entries, 4 * b->n_entries,
			 cudaMemcpyDeviceToHost));
	CHECK(cudaMemcpy(ret_weights, b->kept_weights + i * b->n_entries, 4 * b->n_entries,
			 cudaMemcpyDeviceToHost));
}

extern "C" double graph_time_us(struct graph *graph, void *handle, uint32_t n,
				void (*around)(void *context, int is_after), void *context)
{
	const cudaStream_t stream = static_cast<cudaStream_t>(handle);
	static cudaEvent_t begin, end;
	float ms = 0;

	if (!begin) {
		CHECK(cudaEventCreate(&begin));
		CHECK(cudaEventCreate(&end));
	}
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaEventRecord(begin, stream));
	for (uint32_t i = 0; i < n; i++) {
		if (around)
			around(context, 0);
		CHECK(cudaGraphLaunch(graph->exec, stream));
		if (around)
			around(context, 1);
	}
	CHECK(cudaEventRecord(end, stream));
	CHECK(cudaEventSynchronize(end));
	CHECK(cudaEventElapsedTime(&ms, begin, end));
	return static_cast<double>(ms) * 1000.0 / n;
}
