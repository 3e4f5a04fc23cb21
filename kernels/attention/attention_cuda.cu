/* SPDX-License-Identifier: MIT */
/*
 * A block has one row and up to eight query heads of one key/value head, and goes through the
 * positions in tiles: eight lanes make a position's scores, a warp makes a head's weights, with the
 * largest score so far as their reference, and then each thread adds up one element of the values.
 * Threads that share an element take positions in turns and are added up at the end.
 */
#include <math.h>

#include "kernels/attention/attention_cuda.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/status.cuh"

#define N_THREADS 256
#define N_HEADS	  8 /* of a block: as many as warps */
#define TILE	  128
#define PEERS	  8 /* lanes of a position */
#define MAX_DIM	  MTK_ATTENTION_CUDA_MAX_HEAD_DIM

struct shared {
	float queries[N_HEADS][MAX_DIM]; /* at the end: the threads' sums */
	float weights[N_HEADS][TILE];
	float scales[N_HEADS];
	float sums[N_HEADS];
};

/* The block's row and heads. */
struct place {
	size_t row;
	uint32_t first_head;
	uint32_t n_heads;
	uint32_t n_positions;
	size_t first; /* of the slot's keys and values */
};

template <class K>
static __device__ __forceinline__ void score_tile(const struct mtk_attention_cuda *a,
						  const struct place *place, uint32_t begin,
						  uint32_t n, struct shared *shared)
{
	const uint32_t peer = threadIdx.x % PEERS;

	/* All lanes of a warp go round equally often. */
	for (uint32_t first = 0; first < n; first += N_THREADS / PEERS) {
		const uint32_t t = first + threadIdx.x / PEERS;
		const K *key = (const K *)a->keys + place->first +
			       (size_t)(begin + (t < n ? t : 0)) * a->head_dim;
		float sums[N_HEADS] = {};

		for (uint32_t d = peer; d < a->head_dim; d += PEERS) {
			const float k = element_widen(key[d]);

#pragma unroll
			for (int h = 0; h < N_HEADS; h++)
				sums[h] = fmaf(shared->queries[h][d], k, sums[h]);
		}
#pragma unroll
		for (int h = 0; h < N_HEADS; h++) {
			for (int step = PEERS / 2; step > 0; step /= 2)
				sums[h] += __shfl_xor_sync(ELEMENT_ALL_LANES, sums[h], step);
			if (peer == h && t < n)
				shared->weights[h][t] = sums[h] * a->scale;
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

/* This thread's part of an element of the values. */
template <class K>
static __device__ __forceinline__ void add_values(const struct mtk_attention_cuda *a,
						  const struct place *place, uint32_t begin,
						  uint32_t n, uint32_t part, uint32_t n_parts,
						  uint32_t d, const struct shared *shared, float *out)
{
	const K *value =
		(const K *)a->values + place->first + (size_t)begin * a->head_dim + d;

#pragma unroll
	for (int h = 0; h < N_HEADS; h++)
		out[h] *= shared->scales[h];
#pragma unroll 4
	for (uint32_t t = part; t < n; t += n_parts) {
		const float v = element_widen(value[(size_t)t * a->head_dim]);

#pragma unroll
		for (int h = 0; h < N_HEADS; h++)
			out[h] = fmaf(shared->weights[h][t], v, out[h]);
	}
}

template <class T>
static __device__ __forceinline__ void write_heads(const struct mtk_attention_cuda *a,
						   const struct place *place, uint32_t part,
						   uint32_t n_parts, uint32_t d,
						   struct shared *shared, const float *sums)
{
	/* Queries are not needed any more; the parts of all elements fit where they were. */
	float *parts = &shared->queries[0][0];
	const uint32_t dim = a->head_dim;

	for (int h = 0; h < N_HEADS; h++) {
		__syncthreads();
		if (part < n_parts)
			parts[part * dim + d] = sums[h];
		__syncthreads();
		if (part != 0 || h >= place->n_heads)
			continue;
		float sum = 0.0f;

		for (uint32_t p = 0; p < n_parts; p++)
			sum += parts[p * dim + d];
		element_store((T *)a->out + (place->row * a->n_heads + place->first_head + h) * dim +
				      d,
			      sum / shared->sums[h]);
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

template <class K, class T>
__global__ void __launch_bounds__(N_THREADS)
	attention_kernel(const __grid_constant__ struct mtk_attention_cuda a)
{
	__shared__ struct shared shared;
	const struct place place = find_place(&a);
	const float *queries =
		a.queries + place.row * a.query_stride + (size_t)place.first_head * a.head_dim;
	const uint32_t n_parts = N_THREADS / a.head_dim;
	const uint32_t part = threadIdx.x / a.head_dim, d = threadIdx.x % a.head_dim;
	float max = -INFINITY, sum = 0.0f;
	float out[N_HEADS] = {};

	if (place.n_positions == 0) {
		write_zeros<T>(&a, &place);
		return;
	}
	for (uint32_t i = threadIdx.x; i < N_HEADS * a.head_dim; i += N_THREADS)
		shared.queries[i / a.head_dim][i % a.head_dim] =
			i < place.n_heads * a.head_dim ? queries[i] : 0.0f;
	for (uint32_t begin = 0; begin < place.n_positions; begin += TILE) {
		const uint32_t n = min(place.n_positions - begin, (uint32_t)TILE);

		__syncthreads();
		score_tile<K>(&a, &place, begin, n, &shared);
		__syncthreads();
		weigh_tile(&shared, n, &max, &sum);
		__syncthreads();
		if (part < n_parts)
			add_values<K>(&a, &place, begin, n, part, n_parts, d, &shared, out);
	}
	if (threadIdx.x % 32 == 0)
		shared.sums[threadIdx.x / 32] = sum;
	write_heads<T>(&a, &place, part, n_parts, d, &shared, out);
}

static int check(const struct mtk_attention_cuda *a, struct mtk_error *error)
{
	if (a->head_dim == 0 || a->head_dim > MAX_DIM)
		return mtk_error_set(error, MOETRACE_E_UNSUPPORTED,
				     "attention: head_dim: %u, expected at most %u", a->head_dim,
				     MAX_DIM);
	if (a->n_kv_heads == 0 || a->n_heads % a->n_kv_heads != 0)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "attention: n_heads: %u is no multiple of n_kv_heads %u",
				     a->n_heads, a->n_kv_heads);
	return MOETRACE_OK;
}

template <class K> static void launch(const struct mtk_attention_cuda *a, cudaStream_t on)
{
	const uint32_t n_group = a->n_heads / a->n_kv_heads;
	const dim3 grid(a->n_rows, a->n_kv_heads * ((n_group + N_HEADS - 1) / N_HEADS));

	if (a->out_dtype == MTK_DTYPE_F32)
		attention_kernel<K, float><<<grid, N_THREADS, 0, on>>>(*a);
	else if (a->out_dtype == MTK_DTYPE_F16)
		attention_kernel<K, __half><<<grid, N_THREADS, 0, on>>>(*a);
	else
		attention_kernel<K, __nv_bfloat16><<<grid, N_THREADS, 0, on>>>(*a);
}

int mtk_attention_cuda(const struct mtk_attention_cuda *attention, void *stream,
		       struct mtk_error *error)
{
	cudaStream_t on = (cudaStream_t)stream;
	int status = check(attention, error);

	if (status || attention->n_rows == 0)
		return status;
	if (attention->kv_dtype == MTK_DTYPE_F32)
		launch<float>(attention, on);
	else if (attention->kv_dtype == MTK_DTYPE_F16)
		launch<__half>(attention, on);
	else
		launch<__nv_bfloat16>(attention, on);
	return mtk_cuda_launched(error, "attention");
}
