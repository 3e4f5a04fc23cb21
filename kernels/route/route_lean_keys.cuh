/* SPDX-License-Identifier: MIT */
/*
 * What the lean kernels are given, the sorted keys of a lane, the choice among all lanes', and
 * groups. Keys are signed numbers: those of positive floats have their order. Negative ones do
 * not, but they are below all positive ones, and a row that would choose one is done by the
 * general code. Of a column's place only what its lane does not say is in the key, so that the
 * key has nearly the precision of the value; who gave a key is known from a vote.
 */
#ifndef MTK_ROUTE_ROUTE_LEAN_KEYS_CUH
#define MTK_ROUTE_ROUTE_LEAN_KEYS_CUH

#include "kernels/route/route_kernel.cuh"

enum route_lean {
	ROUTE_LEAN_NONE,
	ROUTE_LEAN_SIGMOID, /* sigmoid + bias */
	ROUTE_LEAN_GROUPS,  /* the same, some groups left out */
	ROUTE_LEAN_LOGIT,   /* the choosing value grows with the logit, and there is no bias */
};

/*
 * Of a candidate's sigmoid: the exponential is within 2 units in the last place, its sum with 1
 * within a half and the reciprocal within one. Then of its sum with the bias, relative.
 */
#define ROUTE_LEAN_ERROR    2.5e-7f
#define ROUTE_LEAN_ROUNDING 6.5e-8f

/* A lane's queue is empty; its group is left out. */
#define ROUTE_LEAN_DRAINED INT32_MIN
#define ROUTE_LEAN_LEFT	   (INT32_MIN + 1)

/* What every row needs, together: each line of constants that is touched is fetched first. */
struct route_lean_args {
	const float *logits;
	const float *bias;
	int32_t *ids;
	float *weights;
	const uint32_t *n_valid_rows;
	uint32_t n_rows;
	uint32_t top_k;
	uint32_t width;	      /* entries of a row that is written */
	uint32_t bias_stride; /* of rows; 0: all have the same */
	float factor;
	float least_sum;
	bool divides;	 /* weights by their sum */
	bool has_more;	 /* to write: shared slots, packed entries, flags */
	bool is_softmax; /* of LOGIT: else weights are sigmoids */
	bool groups_top2;
	uint32_t n_keep_groups;
	/* Of LOGIT: beyond these logits two that differ may have one score. */
	float least_logit;
	float most_logit;
	float near_zero;
	float widest; /* difference from the largest */
};

/* A row, where a lane reads it and where it writes its entry. */
struct route_lean_place {
	const float *logits;
	const float *bias;
	int32_t *id;
	float *weight;
	uint32_t row;
	uint32_t lane;
};

/* The bits of a key that say which column it is: of the lane's, or of all. */
template <enum route_lean KIND, int N> static __device__ constexpr uint32_t route_lean_mask()
{
	constexpr uint32_t n = KIND == ROUTE_LEAN_LOGIT ? 32 * N : N;

	return n <= 4	  ? 3
	       : n <= 8	  ? 7
	       : n <= 16  ? 15
	       : n <= 32  ? 31
	       : n <= 128 ? 127
	       : n <= 256 ? 255
	       : n <= 512 ? 511
			  : 1023;
}

/* By how much of itself a value is less precise for them. */
template <int N> static __device__ constexpr float route_lean_lost()
{
	return (float)route_lean_mask<ROUTE_LEAN_GROUPS, N>() * ROUTE_ROUNDING;
}

/* Columns of a lane: fours that are 128 columns apart, so that a load is of adjacent ones. */
template <enum route_lean KIND, int N>
static __device__ __forceinline__ uint32_t route_lean_id(uint32_t lane, uint32_t i)
{
	return KIND == ROUTE_LEAN_GROUPS ? lane * N + i : (i / 4) * 128 + lane * 4 + i % 4;
}

template <enum route_lean KIND, int N>
static __device__ __forceinline__ void route_lean_load(const float *from, uint32_t lane,
						       float *ret_values)
{
#pragma unroll
	for (int i = 0; i < N; i += 4) {
		const float4 four =
			__ldg((const float4 *)(from + route_lean_id<KIND, N>(lane, (uint32_t)i)));

		ret_values[i] = four.x;
		ret_values[i + 1] = four.y;
		ret_values[i + 2] = four.z;
		ret_values[i + 3] = four.w;
	}
}

/* ---- a lane's queue ---- */

static __device__ __forceinline__ void route_lean_order(int32_t *a, int32_t *b)
{
	const int32_t larger = max(*a, *b);

	*b = min(*a, *b);
	*a = larger;
}

static __device__ __forceinline__ void route_lean_sort4(int32_t *k)
{
	route_lean_order(k + 0, k + 2);
	route_lean_order(k + 1, k + 3);
	route_lean_order(k + 0, k + 1);
	route_lean_order(k + 2, k + 3);
	route_lean_order(k + 1, k + 2);
}

/*
 * a becomes the Q largest of itself and of n sorted keys, sorted; rest the largest of what it was
 * and of those that fell out.
 */
template <int Q, int n>
static __device__ __forceinline__ void route_lean_merge(int32_t *a, const int32_t *b, int32_t *rest)
{
#pragma unroll
	for (int i = Q - n; i < Q; i++) {
		*rest = max(*rest, min(a[i], b[Q - 1 - i]));
		a[i] = max(a[i], b[Q - 1 - i]);
	}
#pragma unroll
	for (int step = Q / 2; step > 0; step /= 2)
#pragma unroll
		for (int i = 0; i < Q; i++)
			if ((i & step) == 0)
				route_lean_order(a + i, a + i + step);
}

/* Eight sorted out of two sorted fours. */
static __device__ __forceinline__ void route_lean_join(int32_t *k)
{
	const int32_t low[4] = {k[7], k[6], k[5], k[4]};

#pragma unroll
	for (int i = 0; i < 4; i++)
		k[4 + i] = low[i];
#pragma unroll
	for (int step = 4; step > 0; step /= 2)
#pragma unroll
		for (int i = 0; i < 8; i++)
			if ((i & step) == 0)
				route_lean_order(k + i, k + i + step);
}

/* The Q largest keys, sorted, become the first. Returns the largest of the others. */
template <int N, int Q> static __device__ __forceinline__ int32_t route_lean_queue(int32_t *keys)
{
	int32_t rest = ROUTE_LEAN_DRAINED;

#pragma unroll
	for (int i = 0; i < N; i += 4)
		route_lean_sort4(keys + i);
	if constexpr (Q == 4) {
#pragma unroll
		for (int i = 4; i < N; i += 4)
			route_lean_merge<4, 4>(keys, keys + i, &rest);
	} else {
		route_lean_join(keys);
#pragma unroll
		for (int i = 8; i + 7 < N; i += 8) {
			route_lean_join(keys + i);
			route_lean_merge<8, 8>(keys, keys + i, &rest);
		}
		if constexpr (N % 8 == 4)
			route_lean_merge<8, 4>(keys, keys + N - 4, &rest);
		if constexpr (Q < 8)
			rest = max(rest, keys[Q]);
	}
	return rest;
}

/* What a lane holds of the choice: entry number `lane`, of top_k + 1. */
struct route_lean_taken {
	int32_t key;
	uint32_t givers; /* the lanes that gave it: one, unless keys were equal */
};

/*
 * Take the largest key of the warp out of its lane's queue, for one lane. Returns it. IS_UNIQUE: of
 * equal keys the first lane's alone.
 */
template <int Q, bool IS_UNIQUE>
static __device__ __forceinline__ int32_t route_lean_take(bool is_slot, int32_t *queue,
							  struct route_lean_taken *taken)
{
	const int32_t largest = __reduce_max_sync(ROUTE_ALL_LANES, queue[0]);
	bool is_mine = queue[0] == largest;
	uint32_t givers = __ballot_sync(ROUTE_ALL_LANES, is_mine);

	if constexpr (IS_UNIQUE) {
		givers &= ~givers + 1;
		is_mine = givers >> threadIdx.x % 32 & 1;
	}

#pragma unroll
	for (int i = 0; i + 1 < Q; i++)
		queue[i] = is_mine ? queue[i + 1] : queue[i];
	queue[Q - 1] = is_mine ? ROUTE_LEAN_DRAINED : queue[Q - 1];
	taken->key = is_slot ? largest : taken->key;
	taken->givers = is_slot ? givers : taken->givers;
	return largest;
}

/* K: top_k, if it is that of the kernel; 0: any. Returns the last key that was taken. */
template <int K, int Q, bool IS_UNIQUE>
static __device__ __forceinline__ int32_t route_lean_choose(uint32_t top_k, uint32_t lane,
							    int32_t *queue,
							    struct route_lean_taken *taken)
{
	int32_t last = 0;

	if constexpr (K > 0) {
#pragma unroll
		for (uint32_t j = 0; j <= K; j++)
			last = route_lean_take<Q, IS_UNIQUE>(lane == j, queue, taken);
	} else {
#pragma unroll 4
		for (uint32_t j = 0; j <= top_k; j++)
			last = route_lean_take<Q, IS_UNIQUE>(lane == j, queue, taken);
	}
	return last;
}

/* ---- groups ---- */

/* Eight groups of four lanes. */
#define ROUTE_LEAN_GROUP_SHIFT 2u
#define ROUTE_LEAN_GROUP_LANES (1u << ROUTE_LEAN_GROUP_SHIFT)

/* The sum of the two largest scores of a lane's group, or the largest. */
template <class T>
static __device__ __forceinline__ T route_lean_group_score(bool is_top2, T first, T second)
{
#pragma unroll
	for (uint32_t step = 1; step < ROUTE_LEAN_GROUP_LANES; step *= 2) {
		const T other = __shfl_xor_sync(ROUTE_ALL_LANES, first, step);
		const T other_second = __shfl_xor_sync(ROUTE_ALL_LANES, second, step);

		second = max(min(first, other), max(second, other_second));
		first = max(first, other);
	}
	return is_top2 ? first + second : first;
}

/*
 * Whether the lane's group is among the best. Each lane compares its group with two others;
 * *is_near in some lane: one that is left out is within margin of the last that is kept.
 */
template <class T>
static __device__ __forceinline__ bool route_lean_is_kept(uint32_t n_keep, uint32_t lane, T score,
							  T margin, bool *ret_is_near)
{
	constexpr uint32_t N_LANES = ROUTE_LEAN_GROUP_LANES;
	const uint32_t group = lane / N_LANES;
	bool is_near = false;
	uint32_t rank = 0;

#pragma unroll
	for (uint32_t begin = 0; begin < 32 / N_LANES; begin += N_LANES) {
		const uint32_t g = begin + lane % N_LANES;
		const T other = __shfl_sync(ROUTE_ALL_LANES, score, g * N_LANES);
		const bool is_above = (other > score) | ((other == score) & (g < group));
		const uint32_t above = __ballot_sync(ROUTE_ALL_LANES, is_above);

		rank += __popc(above >> (lane & ~(N_LANES - 1)) & ((1u << N_LANES) - 1));
		is_near |= (g != group) & !is_above & (score - other <= margin);
	}
	*ret_is_near = is_near & (rank + 1 == n_keep);
	return rank < n_keep;
}

/*
 * The same in double precision, of the two largest values of each lane, whose keys are given with
 * the third. Returns 1: the group is kept, plus 2: certainly.
 */
template <int N>
static __device__ __noinline__ uint32_t route_lean_keep_precise(const struct route_lean_args *args,
								const float *logits,
								const float *bias, int32_t first,
								int32_t second, int32_t third)
{
	constexpr int32_t MASK = (int32_t)route_lean_mask<ROUTE_LEAN_GROUPS, N>();
	const float low = __int_as_float(second & ~MASK), high = __int_as_float(third | MASK);
	/* A third that may be the second: then the sum is not known. */
	const bool is_odd = low - high <= 2.0f * ROUTE_ERROR_SIGMOID + ROUTE_ROUNDING * low;
	const uint32_t lane = threadIdx.x % 32;
	double values[2], score;
	bool is_near, is_kept;

#pragma unroll
	for (int i = 0; i < 2; i++) {
		const uint32_t id = lane * N + (uint32_t)((i ? second : first) & MASK);

		values[i] = route_sigmoid(__ldg(logits + id)) + __ldg(bias + id);
	}
	score = route_lean_group_score(args->groups_top2, max(values[0], values[1]),
				       min(values[0], values[1]));
	is_kept = route_lean_is_kept(args->n_keep_groups, lane, score, 1e-11, &is_near);
	return (uint32_t)is_kept + 2u * !__any_sync(ROUTE_ALL_LANES, is_near | is_odd);
}

/*
 * Leave out the queues of groups that are not among the best; a group is four adjacent lanes. False
 * in some lane: which those are is not certain.
 */
template <int N, int Q>
static __device__ __forceinline__ bool route_lean_keep(const struct route_lean_args *args,
						       const struct route_lean_place *place,
						       int32_t *queue, int32_t *rest)
{
	const float first = __int_as_float(queue[0]), second = __int_as_float(queue[1]);
	const bool is_odd = (queue[1] <= 0) | !(first < ROUTE_LARGEST);
	const float score = route_lean_group_score(args->groups_top2, first, second);
	const float margin = 4.0f * ROUTE_ERROR_SIGMOID +
			     (2.0f * route_lean_lost<N>() + 4.0f * ROUTE_ROUNDING) * score;
	bool is_near, is_kept, is_certain = true;

	is_kept = route_lean_is_kept(args->n_keep_groups, place->lane, score, margin, &is_near);
	if (ROUTE_UNLIKELY(__any_sync(ROUTE_ALL_LANES, is_near))) {
		const uint32_t answer = route_lean_keep_precise<N>(args, place->logits, place->bias,
								   queue[0], queue[1], queue[2]);

		is_kept = answer & 1;
		is_certain = answer >> 1;
	}
	if (!is_kept) {
#pragma unroll
		for (int i = 0; i < Q; i++)
			queue[i] = ROUTE_LEAN_LEFT;
		*rest = ROUTE_LEAN_LEFT;
	}
	return is_certain & !is_odd;
}

#endif
