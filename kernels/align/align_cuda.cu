/* SPDX-License-Identifier: MIT */
/*
 * A stable counting sort. The pairs are cut into segments, one a warp, in order; a warp counts
 * the runs of its segment in a row of counters of its own, 32 pairs a time: lanes with the same run
 * find each other, and the first of them adds their number, so no two lanes write one counter.
 * Then each column of counters is summed up over the segments, the runs' padded lengths over
 * the runs, and the warps go through their segments once more to place the pairs.
 *
 * Run 0 is that of invalid pairs where these come first; experts follow.
 */
#include "kernels/align/align_cuda.h"
#include "kernels/cuda/status.cuh"

#define N_THREADS   1024
#define N_WARPS	    (N_THREADS / 32)
#define SMALL_PAIRS 8192
/* Counters of the single launch, in shared memory. */
#define SMALL_COUNTERS 8192
#define MAX_SEGMENTS   512
#define SEGMENT_PAIRS  512
#define ALL_LANES      0xffffffffu

struct align_args {
	uint32_t n_experts;
	uint32_t n_ids;
	uint32_t block_rows;
	uint32_t n_runs;
	uint32_t invalid_first;
	uint32_t n_segments;
	int64_t segment_pairs; /* a multiple of 32 */
	struct mtk_align_sizes sizes;
	const int32_t *expert_map;
	const int32_t *ids;
	uint32_t *counters; /* [n_segments][n_runs]; then where a segment's pairs begin in a run */
	uint32_t *counts;   /* [n_runs] */
	int64_t *starts;    /* [n_runs + 1]: slots */
	struct mtk_align_cuda_result result;
};

/* The run of a pair; n_runs: it is in none. */
static __device__ __forceinline__ uint32_t run_of(const struct align_args *args, int64_t pair)
{
	int32_t expert = args->ids[pair];

	if (args->expert_map)
		expert = expert >= 0 && (uint32_t)expert < args->n_ids ? args->expert_map[expert]
								       : -1;
	if (expert < 0 || (uint32_t)expert >= args->n_experts)
		return args->invalid_first ? 0 : args->n_runs;
	return (uint32_t)expert + args->invalid_first;
}

static __device__ __forceinline__ int32_t expert_of(const struct align_args *args, uint32_t run)
{
	return (int32_t)run - (int32_t)args->invalid_first;
}

static __device__ __forceinline__ int64_t padded(const struct align_args *args, uint32_t count)
{
	const uint32_t block = args->block_rows;

	return ((int64_t)count + block - 1) / block * block;
}

/* Count, or place, the pairs of one segment; counters is its row. */
template <bool PLACE>
static __device__ void walk_segment(const struct align_args *args, uint32_t segment,
				    uint32_t *counters)
{
	const uint32_t lane = threadIdx.x % 32;
	const int64_t begin = segment * args->segment_pairs;
	const int64_t end = min(begin + args->segment_pairs, args->sizes.n_pairs);

	for (int64_t first = begin; first < end; first += 32) {
		const int64_t pair = first + lane;
		const uint32_t run = pair < end ? run_of(args, pair) : args->n_runs;
		const uint32_t peers = __match_any_sync(ALL_LANES, run);
		const uint32_t place = __popc(peers & ((1u << lane) - 1));
		uint32_t before = 0;

		if (run < args->n_runs)
			before = counters[run];
		__syncwarp();
		if (run < args->n_runs && place == 0)
			counters[run] = before + (uint32_t)__popc(peers);
		__syncwarp();
		if (!PLACE || pair >= end)
			continue;
		if (run < args->n_runs) {
			const int64_t slot = args->starts[run] + before + place;

			args->result.sorted_pairs[slot] = pair;
			args->result.pair_slots[pair] = expert_of(args, run) < 0 ? -1 : slot;
		} else {
			args->result.pair_slots[pair] = -1;
		}
	}
}

/* Counters of a run become where each segment's pairs begin in it. */
static __device__ void sum_column(const struct align_args *args, uint32_t run)
{
	uint32_t before = 0;

	for (uint32_t s = 0; s < args->n_segments; s++) {
		uint32_t *counter = args->counters + (size_t)s * args->n_runs + run;
		const uint32_t count = *counter;

		*counter = before;
		before += count;
	}
	args->counts[run] = before;
}

/* Sum of a value a thread over the threads before it, and over all of the block. */
static __device__ int64_t sum_before(int64_t value, int64_t *ret_all)
{
	__shared__ int64_t sums[N_WARPS];
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	int64_t sum = value, all = 0, before = 0;

	for (int step = 1; step < 32; step *= 2) {
		const int64_t other = __shfl_up_sync(ALL_LANES, sum, step);

		sum += lane >= (uint32_t)step ? other : 0;
	}
	__syncthreads();
	if (lane == 31)
		sums[warp] = sum;
	__syncthreads();
	for (uint32_t w = 0; w < N_WARPS; w++) {
		before += w < warp ? sums[w] : 0;
		all += sums[w];
	}
	*ret_all = all;
	return before + sum - value;
}

/* By one block of N_THREADS: where each run begins, and what is known of all of them. */
static __device__ void sum_runs(const struct align_args *args)
{
	const uint32_t invalid = args->invalid_first;
	int64_t start = 0, placed = 0;

	for (uint32_t first = 0; first < args->n_runs; first += N_THREADS) {
		const uint32_t run = first + threadIdx.x;
		const uint32_t count = run < args->n_runs ? args->counts[run] : 0;
		int64_t all, n;
		const int64_t before = sum_before(padded(args, count), &all);

		sum_before(run < invalid ? 0 : count, &n);
		if (run < args->n_runs) {
			args->starts[run] = start + before;
			if (run >= invalid)
				args->result.first_slots[run - invalid] = start + before;
		}
		start += all;
		placed += n;
	}
	if (threadIdx.x == 0) {
		args->starts[args->n_runs] = start;
		args->result.first_slots[args->n_experts] = start;
		*args->result.n_padded = start;
		*args->result.n_dropped = args->sizes.n_pairs - placed;
	}
}

/* Padding slots, the experts of blocks, and what lies beyond; thread `self` of `n` threads. */
static __device__ void fill(const struct align_args *args, int64_t self, int64_t n)
{
	const uint32_t block = args->block_rows;
	const int64_t n_padded = args->starts[args->n_runs];

	/* A warp a run: its blocks, then the rest of the last one. */
	for (int64_t run = self / 32; run < args->n_runs; run += n / 32) {
		const int64_t start = args->starts[run];
		const int64_t end = args->starts[run + 1];

		for (int64_t b = start / block + self % 32; b < end / block; b += 32)
			args->result.expert_ids[b] = expert_of(args, (uint32_t)run);
		for (int64_t s = start + args->counts[run] + self % 32; s < end; s += 32)
			args->result.sorted_pairs[s] = args->sizes.n_pairs;
	}
	for (int64_t s = n_padded + self; s < args->sizes.capacity; s += n)
		args->result.sorted_pairs[s] = args->sizes.n_pairs;
	for (int64_t b = n_padded / block + self; b < args->sizes.n_blocks; b += n)
		args->result.expert_ids[b] = -1;
}

/* All of it by one block; counters, counts and starts are in shared memory. */
__global__ void __launch_bounds__(N_THREADS)
	align_small_kernel(const __grid_constant__ struct align_args global)
{
	extern __shared__ int64_t shared[];
	struct align_args args = global;
	const uint32_t warp = threadIdx.x / 32;

	args.starts = shared;
	args.counts = (uint32_t *)(shared + args.n_runs + 1);
	args.counters = args.counts + args.n_runs;
	for (uint32_t i = threadIdx.x; i < args.n_segments * args.n_runs; i += N_THREADS)
		args.counters[i] = 0;
	__syncthreads();
	if (warp < args.n_segments)
		walk_segment<false>(&args, warp, args.counters + warp * args.n_runs);
	__syncthreads();
	for (uint32_t run = threadIdx.x; run < args.n_runs; run += N_THREADS)
		sum_column(&args, run);
	__syncthreads();
	sum_runs(&args);
	__syncthreads();
	if (warp < args.n_segments)
		walk_segment<true>(&args, warp, args.counters + warp * args.n_runs);
	fill(&args, threadIdx.x, N_THREADS);
}

/* A warp a segment. */
__global__ void __launch_bounds__(128)
	align_count_kernel(const __grid_constant__ struct align_args args)
{
	const uint32_t segment = blockIdx.x * 4 + threadIdx.x / 32;
	uint32_t *counters = args.counters + (size_t)segment * args.n_runs;

	if (segment >= args.n_segments)
		return;
	for (uint32_t run = threadIdx.x % 32; run < args.n_runs; run += 32)
		counters[run] = 0;
	__syncwarp();
	walk_segment<false>(&args, segment, counters);
}

__global__ void __launch_bounds__(N_THREADS)
	align_sum_kernel(const __grid_constant__ struct align_args args)
{
	for (uint32_t run = threadIdx.x; run < args.n_runs; run += N_THREADS)
		sum_column(&args, run);
	__syncthreads();
	sum_runs(&args);
}

__global__ void __launch_bounds__(128)
	align_place_kernel(const __grid_constant__ struct align_args args)
{
	const uint32_t segment = blockIdx.x * 4 + threadIdx.x / 32;

	if (segment < args.n_segments)
		walk_segment<true>(&args, segment, args.counters + (size_t)segment * args.n_runs);
	fill(&args, blockIdx.x * (int64_t)128 + threadIdx.x, gridDim.x * (int64_t)128);
}

static bool is_small(const struct mtk_align_settings *settings, int64_t n_pairs)
{
	return n_pairs <= SMALL_PAIRS && settings->n_experts < SMALL_COUNTERS / 2;
}

static uint32_t count_runs(const struct mtk_align_settings *settings)
{
	return settings->n_experts + settings->invalid_first;
}

/* As many warps as have counters, or enough pairs for each segment. */
static uint32_t count_segments(const struct mtk_align_settings *settings, int64_t n_pairs)
{
	const uint32_t n_runs = count_runs(settings) > 0 ? count_runs(settings) : 1;
	const int64_t pairs = is_small(settings, n_pairs) ? 32 : SEGMENT_PAIRS;
	const int64_t most = is_small(settings, n_pairs) ? SMALL_COUNTERS / n_runs : MAX_SEGMENTS;
	int64_t n = (n_pairs + pairs - 1) / pairs;

	n = n < most ? n : most;
	if (is_small(settings, n_pairs) && n > N_WARPS)
		n = N_WARPS;
	return n > 0 ? (uint32_t)n : 1;
}

size_t mtk_align_cuda_scratch_elements(const struct mtk_align_settings *settings,
				       const struct mtk_align_sizes *sizes)
{
	const uint64_t n_runs = count_runs(settings);

	if (is_small(settings, sizes->n_pairs))
		return 1;
	/* Below 2^32 runs by 512 segments. */
	return (size_t)(n_runs * count_segments(settings, sizes->n_pairs) + 3 * n_runs + 4);
}

static void launch_large(struct align_args *args, uint32_t *scratch, cudaStream_t stream)
{
	const uint32_t n_blocks = (args->n_segments + 3) / 4;

	args->starts = (int64_t *)scratch;
	args->counts = scratch + 2 * ((size_t)args->n_runs + 1);
	args->counters = args->counts + args->n_runs;
	align_count_kernel<<<n_blocks, 128, 0, stream>>>(*args);
	align_sum_kernel<<<1, N_THREADS, 0, stream>>>(*args);
	align_place_kernel<<<n_blocks, 128, 0, stream>>>(*args);
}

int mtk_align_cuda(const struct mtk_align_settings *settings, const struct mtk_align_sizes *sizes,
		   const int32_t *expert_map, const int32_t *ids, uint32_t *scratch,
		   const struct mtk_align_cuda_result *result, void *stream,
		   struct mtk_error *error)
{
	struct align_args args = {};
	int64_t pairs;

	if (sizes->n_pairs > UINT32_MAX)
		return mtk_error_set(error, MOETRACE_E_LIMIT,
				     "align: %lld pairs are more than 32 bits count",
				     (long long)sizes->n_pairs);
	args.n_experts = settings->n_experts;
	args.n_ids = settings->n_ids;
	args.block_rows = settings->block_rows;
	args.invalid_first = settings->invalid_first;
	args.n_runs = count_runs(settings);
	args.n_segments = count_segments(settings, sizes->n_pairs);
	pairs = (sizes->n_pairs + args.n_segments - 1) / args.n_segments;
	args.segment_pairs = (pairs + 31) / 32 * 32;
	args.sizes = *sizes;
	args.expert_map = expert_map;
	args.ids = ids;
	args.result = *result;
	if (is_small(settings, sizes->n_pairs)) {
		const size_t n_bytes = (args.n_runs + (size_t)1) * 8 + args.n_runs * (size_t)4 +
				       (size_t)args.n_segments * args.n_runs * 4;
		int status = mtk_cuda_fail(
			error,
			cudaFuncSetAttribute(align_small_kernel,
					     cudaFuncAttributeMaxDynamicSharedMemorySize, 90112),
			"shared memory for alignment");

		if (status)
			return status;
		align_small_kernel<<<1, N_THREADS, n_bytes, (cudaStream_t)stream>>>(args);
	} else {
		launch_large(&args, scratch, (cudaStream_t)stream);
	}
	return mtk_cuda_launched(error, "alignment");
}
