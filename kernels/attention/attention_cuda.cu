/* SPDX-License-Identifier: MIT */
/*
 * A block has one row and up to eight query heads of one key/value head, and goes through the
 * positions in tiles: eight lanes make a position's scores, 16 bytes of the key at a time, and eight
 * positions are on their way at once; a warp makes a head's weights, with the largest score so far as
 * their reference; then each thread adds up the same 16 bytes of every so many values. Threads that
 * share elements are added up at the end, first within a warp. Heads whose size is no multiple of
 * 16 bytes are taken element by element.
 *
 * A few rows would leave most multiprocessors idle: then several blocks share a row's positions, so
 * many that each multiprocessor has one. Each leaves its sums in scratch memory with the largest
 * score that they refer to, and the one that is done last brings all to one reference and adds them
 * up, in the order of the positions.
 *
 * What counts at decoding is how much of the cache is on its way at once: a warp a head, which waits
 * for nobody but has few loads in flight, took four times as long on an H200.
 */
#include <math.h>

#include "kernels/attention/attention_cuda.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/status.cuh"

#define N_THREADS 256
#define N_HEADS	  8 /* of a block: as many as warps */
#define TILE	  256
#define PEERS	  8 /* lanes of a position */
#define N_GROUPS  (N_THREADS / PEERS)
#define N_AT_ONCE (TILE / N_GROUPS)
#define MAX_DIM	  MTK_ATTENTION_CUDA_MAX_HEAD_DIM

#define SPLIT_BLOCKS 256 /* that share rows, in a launch at most */
#define MAX_SPLITS   64	 /* of a row; at most a tile */
#define MIN_CHUNK    TILE /* positions of a block: fewer do not pay for what joins them */
#define SPLIT_FLOATS (N_HEADS * (MAX_DIM + 2)) /* sums, their references, the sums of weights */

struct shared {
	float queries[N_HEADS][MAX_DIM]; /* at the end: the warps' sums */
	float weights[N_HEADS][TILE];
	float scales[N_HEADS];
	float sums[N_HEADS];
	bool is_last;
};

/* The block's row and heads. */
struct place {
	size_t row;
	uint32_t first_head;
	uint32_t n_heads;
	uint32_t n_positions; /* 0: the row is padding */
	size_t first;	      /* of the slot's keys and values */
};

static __device__ __forceinline__ struct place find_place(const struct mtk_attention_cuda *a)
{
	const uint32_t n_group = a->n_heads / a->n_kv_heads;
	const uint32_t kv_head = blockIdx.y % a->n_kv_heads;
	const uint32_t begin = blockIdx.y / a->n_kv_heads * N_HEADS;
	struct place place;

	place.row = blockIdx.x;
	place.first_head = kv_head * n_group + begin;
	place.n_heads = min(n_group - begin, (uint32_t)N_HEADS);
	place.n_positions = 0;
	place.first = 0;
	if (a->n_valid_rows && place.row >= *a->n_valid_rows)
		return place;
	place.n_positions = (uint32_t)a->positions[place.row] + 1;
	place.first = ((size_t)a->slots[place.row] * a->n_kv_heads + kv_head) * a->n_context *
		      a->head_dim;
	return place;
}

/* The block's positions, and how many blocks share the row. */
struct chunk {
	uint32_t begin;
	uint32_t end;
	uint32_t n_blocks;
};

static __device__ __forceinline__ struct chunk find_chunk(uint32_t n_positions)
{
	const uint32_t even = (n_positions + gridDim.z - 1) / gridDim.z;
	const uint32_t n = max((even + N_GROUPS - 1) / N_GROUPS * N_GROUPS, (uint32_t)MIN_CHUNK);
	struct chunk chunk;

	chunk.begin = blockIdx.z * n;
	chunk.end = min(n_positions, chunk.begin + n);
	chunk.n_blocks = (n_positions + n - 1) / n;
	return chunk;
}

/* What the block `split` of the row and heads leaves for the last one. */
static __device__ __forceinline__ float *find_part(const struct mtk_attention_cuda *a,
						   uint32_t split)
{
	const size_t block = (blockIdx.x * gridDim.y + blockIdx.y) * (size_t)gridDim.z + split;

	return (float *)((uint32_t *)a->scratch + SPLIT_BLOCKS) + block * SPLIT_FLOATS;
}

/* V elements that lie side by side, read at once. */
template <class K, int V> struct alignas(V * sizeof(K)) vector {
	K elements[V];
};

template <class K, int V>
static __device__ __forceinline__ void score_tile(const struct mtk_attention_cuda *a,
						  const struct place *place, uint32_t begin,
						  uint32_t n, struct shared *shared)
{
	const uint32_t peer = threadIdx.x % PEERS, group = threadIdx.x / PEERS;
	const K *first = (const K *)a->keys + place->first + (size_t)begin * a->head_dim;
	float sums[N_AT_ONCE][N_HEADS] = {};

	for (uint32_t d = peer * V; d < a->head_dim; d += PEERS * V) {
		vector<K, V> k[N_AT_ONCE];

		/* A position that is not there is computed as the first and not stored. */
#pragma unroll
		for (int i = 0; i < N_AT_ONCE; i++) {
			const uint32_t t = i * N_GROUPS + group;

			k[i] = *(const vector<K, V> *)(first + (size_t)(t < n ? t : 0) *
								       a->head_dim +
						       d);
		}
#pragma unroll
		for (int h = 0; h < N_HEADS; h++)
#pragma unroll
			for (int v = 0; v < V; v++) {
				const float q = shared->queries[h][d + v];

#pragma unroll
				for (int i = 0; i < N_AT_ONCE; i++)
					sums[i][h] = fmaf(q, element_widen(k[i].elements[v]),
							  sums[i][h]);
			}
	}
#pragma unroll
	for (int i = 0; i < N_AT_ONCE; i++) {
		const uint32_t t = i * N_GROUPS + group;

#pragma unroll
		for (int h = 0; h < N_HEADS; h++) {
			float sum = sums[i][h];

			for (int step = PEERS / 2; step > 0; step /= 2)
				sum += __shfl_xor_sync(ELEMENT_ALL_LANES, sum, step);
			if (peer == h && t < n)
				shared->weights[h][t] = sum * a->scale;
		}
	}
}

/* By warp h, for head h: scores become weights; max and sum are the warp's. */
static __device__ __forceinline__ void weigh_tile(struct shared *shared, uint32_t n, float *max,
						  float *sum)
{
	const uint32_t lane = threadIdx.x % 32, h = threadIdx.x / 32;
	float *weights = shared->weights[h];
	float tile_max = *max, tile_sum = 0.0f;

	for (uint32_t t = lane; t < n; t += 32)
		tile_max = fmaxf(tile_max, weights[t]);
	for (int step = 16; step > 0; step /= 2)
		tile_max = fmaxf(tile_max, __shfl_xor_sync(ELEMENT_ALL_LANES, tile_max, step));
	for (uint32_t t = lane; t < n; t += 32) {
		weights[t] = expf(weights[t] - tile_max);
		tile_sum += weights[t];
	}
	tile_sum = element_sum(tile_sum);
	const float scale = expf(*max - tile_max);

	*sum = *sum * scale + tile_sum;
	*max = tile_max;
	if (lane == 0)
		shared->scales[h] = scale;
}

/* Which values a thread adds up: V elements from `first` on, of every n_parts-th position. */
struct share {
	uint32_t first;
	uint32_t part;
	uint32_t n_parts;
	bool is_there;
};

template <int V> static __device__ __forceinline__ struct share find_share(uint32_t head_dim)
{
	const uint32_t n_across = head_dim / V;
	struct share share;

	share.n_parts = N_THREADS / n_across;
	share.part = threadIdx.x / n_across;
	share.first = threadIdx.x % n_across * V;
	share.is_there = share.part < share.n_parts;
	return share;
}

template <class K, int V>
static __device__ __forceinline__ void add_values(const struct mtk_attention_cuda *a,
						  const struct place *place, uint32_t begin,
						  uint32_t n, const struct share *share,
						  const struct shared *shared, float out[N_HEADS][V])
{
	const K *value = (const K *)a->values + place->first + (size_t)begin * a->head_dim +
			 share->first;

#pragma unroll
	for (int h = 0; h < N_HEADS; h++)
#pragma unroll
		for (int v = 0; v < V; v++)
			out[h][v] *= shared->scales[h];
#pragma unroll 8
	for (uint32_t t = share->part; t < n; t += share->n_parts) {
		const vector<K, V> x = *(const vector<K, V> *)(value + (size_t)t * a->head_dim);

#pragma unroll
		for (int h = 0; h < N_HEADS; h++) {
			const float weight = shared->weights[h][t];

#pragma unroll
			for (int v = 0; v < V; v++)
				out[h][v] = fmaf(weight, element_widen(x.elements[v]), out[h][v]);
		}
	}
}

/*
 * Add up what the parts have of each head, for the output or, not divided by the weights yet, into
 * sums. Where a warp has whole parts they are joined first; the others fit where the queries were,
 * which are not needed any more.
 */
template <class T, int V>
static __device__ __forceinline__ void write_heads(const struct mtk_attention_cuda *a,
						   const struct place *place,
						   const struct share *share, struct shared *shared,
						   float out[N_HEADS][V], float *sums)
{
	float *parts = &shared->queries[0][0];
	const uint32_t dim = a->head_dim, n_across = dim / V;
	const bool joins = n_across < 32 && 32 % n_across == 0;
	const uint32_t n_joined = joins ? 32 / n_across : 1;

#pragma unroll
	for (int h = 0; h < N_HEADS; h++) {
		float sum = 0.0f;

#pragma unroll
		for (int v = 0; v < V; v++)
			for (uint32_t step = 16; joins && step >= n_across; step /= 2)
				out[h][v] += __shfl_xor_sync(ELEMENT_ALL_LANES, out[h][v], step);
		__syncthreads();
		if (share->is_there && share->part % n_joined == 0)
#pragma unroll
			for (int v = 0; v < V; v++)
				parts[share->part / n_joined * dim + share->first + v] = out[h][v];
		__syncthreads();
		if (threadIdx.x >= dim || h >= place->n_heads)
			continue;
		for (uint32_t p = 0; p < share->n_parts / n_joined; p++)
			sum += parts[p * dim + threadIdx.x];
		if (sums)
			sums[h * dim + threadIdx.x] = sum;
		else
			element_store((T *)a->out +
					      (place->row * a->n_heads + place->first_head + h) *
						      dim +
					      threadIdx.x,
				      sum / shared->sums[h]);
	}
}

/* Whether all other blocks of the row and heads have left their sums. */
static __device__ __forceinline__ bool is_last(const struct mtk_attention_cuda *a,
					       uint32_t n_blocks, struct shared *shared)
{
	uint32_t *counter = (uint32_t *)a->scratch + blockIdx.x * gridDim.y + blockIdx.y;

	__syncthreads();
	if (threadIdx.x == 0) {
		/* Of the whole block's sums, which the barrier has brought before it. */
		__threadfence();
		shared->is_last = atomicAdd(counter, 1u) + 1 == n_blocks;
		/* For the next launch. */
		if (shared->is_last)
			*counter = 0;
		__threadfence();
	}
	__syncthreads();
	return shared->is_last;
}

/* W elements side by side, of memory that other blocks wrote. */
template <int W> static __device__ __forceinline__ void load_fresh(const float *from, float *ret)
{
	if constexpr (W == 4) {
		const float4 four = __ldcg((const float4 *)from);

		ret[0] = four.x;
		ret[1] = four.y;
		ret[2] = four.z;
		ret[3] = four.w;
	} else {
		ret[0] = __ldcg(from);
	}
}

/* Warp h: the weights of the blocks' sums for head h, and what these are divided by. */
static __device__ __forceinline__ void weigh_blocks(const float *parts, uint32_t n_blocks,
						    struct shared *shared)
{
	const uint32_t lane = threadIdx.x % 32, h = threadIdx.x / 32;
	const float *references = parts + N_HEADS * MAX_DIM + h;
	float reference[MAX_SPLITS / 32], sums[MAX_SPLITS / 32], max = -INFINITY, sum = 0.0f;

#pragma unroll
	for (int i = 0; i < MAX_SPLITS / 32; i++) {
		const uint32_t b = i * 32 + lane;

		reference[i] = b < n_blocks ? __ldcg(references + b * SPLIT_FLOATS) : -INFINITY;
		sums[i] = b < n_blocks ? __ldcg(references + b * SPLIT_FLOATS + N_HEADS) : 0.0f;
	}
#pragma unroll
	for (int i = 0; i < MAX_SPLITS / 32; i++)
		max = fmaxf(max, reference[i]);
	for (int step = 16; step > 0; step /= 2)
		max = fmaxf(max, __shfl_xor_sync(ELEMENT_ALL_LANES, max, step));
#pragma unroll
	for (int i = 0; i < MAX_SPLITS / 32; i++) {
		const float weight = expf(reference[i] - max);

		shared->weights[h][i * 32 + lane] = weight;
		sum = fmaf(weight, sums[i], sum);
	}
	sum = element_sum(sum);
	if (lane == 0)
		shared->sums[h] = sum;
}

/* Each thread adds up W elements of a head at a time. */
template <class T, int W>
static __device__ __forceinline__ void join_blocks(const struct mtk_attention_cuda *a,
						   const struct place *place, uint32_t n_blocks,
						   struct shared *shared)
{
	const uint32_t dim = a->head_dim;
	const float *parts = find_part(a, 0);
	T *out = (T *)a->out + (place->row * a->n_heads + place->first_head) * dim;

	weigh_blocks(parts, n_blocks, shared);
	__syncthreads();
	for (uint32_t i = threadIdx.x * W; i < place->n_heads * dim; i += N_THREADS * W) {
		const uint32_t h = i / dim;
		float values[W] = {};

#pragma unroll 8
		for (uint32_t b = 0; b < n_blocks; b++) {
			const float weight = shared->weights[h][b];
			float x[W];

			load_fresh<W>(parts + b * SPLIT_FLOATS + i, x);
#pragma unroll
			for (int w = 0; w < W; w++)
				values[w] = fmaf(weight, x[w], values[w]);
		}
#pragma unroll
		for (int w = 0; w < W; w++)
			element_store(out + i + w, values[w] / shared->sums[h]);
	}
}

template <class T>
static __device__ __forceinline__ void write_zeros(const struct mtk_attention_cuda *a,
						   const struct place *place)
{
	T *out = (T *)a->out + (place->row * a->n_heads + place->first_head) * a->head_dim;

	for (uint32_t i = threadIdx.x; i < place->n_heads * a->head_dim; i += N_THREADS)
		element_store(out + i, 0.0f);
}

template <class K, int V>
__global__ void __launch_bounds__(N_THREADS)
	attention_kernel(const __grid_constant__ struct mtk_attention_cuda a)
{
	__shared__ struct shared shared;
	const struct place place = find_place(&a);
	const float *queries =
		a.queries + place.row * a.query_stride + (size_t)place.first_head * a.head_dim;
	const struct share share = find_share<V>(a.head_dim);
	const struct chunk chunk = find_chunk(place.n_positions);
	float *part = chunk.n_blocks > 1 ? find_part(&a, blockIdx.z) : NULL;
	float max = -INFINITY, sum = 0.0f;
	float out[N_HEADS][V] = {};

	if (place.n_positions == 0 && blockIdx.z == 0)
		write_zeros<K>(&a, &place);
	if (blockIdx.z >= chunk.n_blocks)
		return;
	for (uint32_t i = threadIdx.x; i < N_HEADS * a.head_dim; i += N_THREADS)
		shared.queries[i / a.head_dim][i % a.head_dim] =
			i < place.n_heads * a.head_dim ? queries[i] : 0.0f;
	for (uint32_t begin = chunk.begin; begin < chunk.end; begin += TILE) {
		const uint32_t n = min(chunk.end - begin, (uint32_t)TILE);

		__syncthreads();
		score_tile<K, V>(&a, &place, begin, n, &shared);
		__syncthreads();
		weigh_tile(&shared, n, &max, &sum);
		__syncthreads();
		if (share.is_there)
			add_values<K, V>(&a, &place, begin, n, &share, &shared, out);
	}
	if (threadIdx.x % 32 == 0) {
		shared.sums[threadIdx.x / 32] = sum;
		if (part) {
			part[N_HEADS * MAX_DIM + threadIdx.x / 32] = max;
			part[N_HEADS * (MAX_DIM + 1) + threadIdx.x / 32] = sum;
		}
	}
	write_heads<K, V>(&a, &place, &share, &shared, out, part);
	if (part && is_last(&a, chunk.n_blocks, &shared))
		join_blocks<K, (V > 1 ? 4 : 1)>(&a, &place, chunk.n_blocks, &shared);
}

size_t mtk_attention_cuda_scratch_bytes(void)
{
	return SPLIT_BLOCKS * (sizeof(uint32_t) + SPLIT_FLOATS * sizeof(float));
}

static int check(const struct mtk_attention_cuda *a, struct mtk_error *error)
{
	if (a->head_dim == 0 || a->head_dim > MAX_DIM)
		return mtk_error_set(error, MOETRACE_E_UNSUPPORTED,
				     "attention: head_dim: %u, expected at most %u", a->head_dim,
				     MAX_DIM);
	if (a->n_kv_heads == 0 || a->n_heads == 0 || a->n_heads % a->n_kv_heads != 0)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "attention: n_heads: %u is no multiple of n_kv_heads %u",
				     a->n_heads, a->n_kv_heads);
	return MOETRACE_OK;
}

/* Blocks that may share a row: of any number of rows up to a power of two the same. */
static uint32_t count_splits(const struct mtk_attention_cuda *a, uint32_t n_blocks_a_row)
{
	uint64_t n_blocks = n_blocks_a_row, n;
	int device, n_processors = 0;

	if (!a->scratch || a->n_rows > MTK_ATTENTION_CUDA_SPLIT_ROWS ||
	    cudaGetDevice(&device) != cudaSuccess ||
	    cudaDeviceGetAttribute(&n_processors, cudaDevAttrMultiProcessorCount, device) !=
		    cudaSuccess)
		return 1;
	for (uint32_t i = 1; i < a->n_rows; i *= 2)
		n_blocks *= 2;
	n = (n_processors < SPLIT_BLOCKS ? n_processors : SPLIT_BLOCKS) / n_blocks;
	return n > MAX_SPLITS ? MAX_SPLITS : n > 1 ? (uint32_t)n : 1;
}

template <class K> static void launch(const struct mtk_attention_cuda *a, cudaStream_t on)
{
	constexpr int V = 16 / sizeof(K);
	const uintptr_t pointers = (uintptr_t)a->keys | (uintptr_t)a->values;
	const uint32_t n_group = a->n_heads / a->n_kv_heads;
	const uint32_t n_blocks = a->n_kv_heads * ((n_group + N_HEADS - 1) / N_HEADS);
	const dim3 grid(a->n_rows, n_blocks, count_splits(a, n_blocks));

	if (a->head_dim % V == 0 && pointers % 16 == 0)
		attention_kernel<K, V><<<grid, N_THREADS, 0, on>>>(*a);
	else
		attention_kernel<K, 1><<<grid, N_THREADS, 0, on>>>(*a);
}

int mtk_attention_cuda(const struct mtk_attention_cuda *attention, void *stream,
		       struct mtk_error *error)
{
	cudaStream_t on = (cudaStream_t)stream;
	int status = check(attention, error);

	if (status || attention->n_rows == 0)
		return status;
	if (attention->dtype == MTK_DTYPE_F32)
		launch<float>(attention, on);
	else if (attention->dtype == MTK_DTYPE_F16)
		launch<__half>(attention, on);
	else
		launch<__nv_bfloat16>(attention, on);
	return mtk_cuda_launched(error, "attention");
}
