/* SPDX-License-Identifier: MIT */
/*
 * The settings that most models have, in kernels without a branch that is taken: sigmoids with a
 * bias that acts on the choice, with groups or without, and choices by the logit itself. A row
 * goes through straight code, whose end says whether fp32 was sure of everything; if it was not,
 * the row is settled in double precision, or done again by the general code. Like the general
 * code, it must choose what the definition chooses.
 */
#ifndef MTK_ROUTE_ROUTE_LEAN_CUH
#define MTK_ROUTE_ROUTE_LEAN_CUH

#include "kernels/route/route_lean_keys.cuh"

/* The keys of a lane's columns. */
template <enum route_lean KIND, int N>
static __device__ __forceinline__ void route_lean_keys(uint32_t lane, const float *x,
						       const float *bias, int32_t *ret_keys)
{
	constexpr int32_t MASK = (int32_t)route_lean_mask<KIND, N>();
	int32_t upper;

	/* In a register a constant leaves room for another in the instruction that joins both. */
	asm("mov.b32 %0, %1;" : "=r"(upper) : "n"(~MASK));
#pragma unroll
	for (int i = 0; i < N; i++) {
		if constexpr (KIND == ROUTE_LEAN_LOGIT) {
			/* Both zeros are one value. */
			const int32_t bits = __float_as_int(x[i] + 0.0f);
			const int32_t id = (int32_t)route_lean_id<KIND, N>(lane, (uint32_t)i);

			ret_keys[i] = ((bits ^ (bits >> 31 & INT32_MAX)) & upper) | (MASK - id);
		} else {
			const float value = route_inverse(1.0f + route_exp(-x[i])) + bias[i];

			ret_keys[i] = (__float_as_int(value) & upper) | i;
		}
	}
}

/* The candidate that a lane took. Lanes beyond top_k hold one that is not looked at. */
template <enum route_lean KIND, int N>
static __device__ __forceinline__ struct route_candidate
route_lean_candidate(const struct route_lean_args *args, const struct route_lean_place *place,
		     struct route_lean_taken taken)
{
	constexpr int32_t MASK = (int32_t)route_lean_mask<KIND, N>();
	struct route_candidate c;

	if constexpr (KIND == ROUTE_LEAN_LOGIT)
		c.id = MASK - (taken.key & MASK);
	else
		c.id = (int32_t)route_lean_id<KIND, N>((uint32_t)__ffs((int)taken.givers) - 1,
						       (uint32_t)(taken.key & MASK));
	c.x = __ldg(place->logits + c.id);
	c.bias = KIND == ROUTE_LEAN_LOGIT ? 0.0f : __ldg(place->bias + c.id);
	/* Of LOGIT the row's largest, of which each lane has need. */
	c.logit = KIND == ROUTE_LEAN_LOGIT ? __shfl_sync(ROUTE_ALL_LANES, c.x, 0) : c.x;
	if (KIND == ROUTE_LEAN_LOGIT && args->is_softmax) {
		/* The sum that the weights are divided by is that of these. */
		c.score = expf(c.x - c.logit);
	} else {
		const float power = expf(-fabsf(c.x));

		c.score = (c.x < 0.0f ? power : 1.0f) * route_inverse(1.0f + power);
	}
	c.value = KIND == ROUTE_LEAN_LOGIT ? c.x : c.score + c.bias;
	return c;
}

/* What fp32 is sure of, of a lane's candidate. */
struct route_lean_verdict {
	bool is_whole; /* it is what it seems */
	bool is_fit;   /* so it is, or is the first that is left out, or none */
	bool is_above; /* it comes before the next one */
};

/* No less than any value whose key is at most this one. */
template <enum route_lean KIND, int N>
static __device__ __forceinline__ float route_lean_high(int32_t key)
{
	const int32_t high = key | (int32_t)route_lean_mask<KIND, N>();

	if constexpr (KIND == ROUTE_LEAN_LOGIT)
		return __int_as_float(high ^ (high >> 31 & INT32_MAX));
	/* Negative values do not have the order of their keys. */
	return (key < 0 ? 0.0f : __int_as_float(high)) + (ROUTE_ERROR_SIGMOID - ROUTE_LEAN_ERROR);
}

template <enum route_lean KIND>
static __device__ __forceinline__ bool route_lean_is_above(float value, float below)
{
	if constexpr (KIND == ROUTE_LEAN_LOGIT)
		return value > below;
	return value - below >
	       2.0f * ROUTE_LEAN_ERROR + ROUTE_LEAN_ROUNDING * (fabsf(value) + fabsf(below));
}

template <enum route_lean KIND, int N>
static __device__ __forceinline__ struct route_lean_verdict
route_lean_judge(const struct route_lean_args *args, uint32_t top_k, uint32_t lane,
		 struct route_lean_taken taken, const struct route_candidate *c)
{
	/* What was never taken is below the key of the first that is left out. */
	const float high = route_lean_high<KIND, N>(taken.key);
	float value = c->value, below;
	struct route_lean_verdict verdict;

	if constexpr (KIND == ROUTE_LEAN_LOGIT) {
		value = lane == top_k ? high : value;
		verdict.is_whole = (c->x >= args->least_logit) & (c->x <= args->most_logit) &
				   (fabsf(c->x) >= args->near_zero) &
				   (c->logit - c->x <= args->widest);
	} else {
		value = lane == top_k ? fmaxf(value, high) : value;
		verdict.is_whole = (taken.key > 0) & ((taken.givers & (taken.givers - 1)) == 0) &
				   (c->x >= -ROUTE_LARGEST);
	}
	below = __shfl_down_sync(ROUTE_ALL_LANES, value, 1);
	verdict.is_fit = verdict.is_whole | (lane > top_k) |
			 ((lane == top_k) & (KIND == ROUTE_LEAN_LOGIT || taken.key > 0));
	verdict.is_above = (lane >= top_k) | route_lean_is_above<KIND>(value, below);
	/* Equal logits stand by id, as their keys do. */
	if constexpr (KIND == ROUTE_LEAN_LOGIT)
		verdict.is_above |= (value == below) & (lane + 1 != top_k);
	return verdict;
}

template <class Row>
static __device__ __forceinline__ void
route_lean_write(const struct route_lean_args *lean, const struct route_args *args, uint32_t top_k,
		 const struct route_lean_place *place, struct route_entry entry, uint8_t flags,
		 const Row &to)
{
	if (place->lane < top_k) {
		asm volatile("st.global.b32 [%0], %1;"
			     :
			     : "l"(place->id), "r"(entry.id)
			     : "memory");
		asm volatile("st.global.f32 [%0], %1;"
			     :
			     : "l"(place->weight), "f"(entry.weight)
			     : "memory");
	}
	to.store(entry.id, entry.weight, flags);
	if (ROUTE_UNLIKELY(lean->has_more))
		route_write_more(args, place->row, place->lane, entry, flags);
}

/* With K at most 8 the first lanes alone have the sum. */
template <int K> static __device__ __forceinline__ float route_lean_sum(float value)
{
#pragma unroll
	for (int step = K > 0 && K <= 8 ? 4 : 16; step > 0; step /= 2)
		value += __shfl_xor_sync(ROUTE_ALL_LANES, value, step);
	return value;
}

/* The choosing value as precisely as the choice is ever made. */
template <enum route_lean KIND> struct route_lean_precise {
	typedef double type;
	static __device__ __forceinline__ double of(const struct route_candidate *c)
	{
		return route_sigmoid(c->x) + c->bias;
	}
	static __device__ __forceinline__ bool is_certain(double above, double below)
	{
		return above - below > 1e-11 + 1e-15 * (fabs(above) + fabs(below));
	}
};

template <> struct route_lean_precise<ROUTE_LEAN_LOGIT> {
	typedef float type;
	static __device__ __forceinline__ float of(const struct route_candidate *c)
	{
		return c->x;
	}
	static __device__ __forceinline__ bool is_certain(float, float)
	{
		return true;
	}
};

/*
 * Bring the candidates of the first n_found lanes into order, which they nearly are in: neighbours
 * change places until none is wrong. Returns whether each certainly comes before the next one;
 * ret_last: the last value.
 */
template <enum route_lean KIND>
static __device__ __forceinline__ bool route_lean_sort(uint32_t top_k, uint32_t lane,
						       uint32_t n_found, struct route_candidate *c,
						       float *ret_last, uint8_t *ret_flags)
{
	typedef route_lean_precise<KIND> precise;
	typename precise::type value = precise::of(c), below;
	const bool has_next = lane + 1 < n_found;
	uint32_t wrong;

	for (;;) {
		below = __shfl_down_sync(ROUTE_ALL_LANES, value, 1);
		const int32_t below_id = __shfl_down_sync(ROUTE_ALL_LANES, c->id, 1);
		const bool is_wrong =
			(value < below) | ((value == below) & (c->id > below_id));

		wrong = __ballot_sync(ROUTE_ALL_LANES, has_next & is_wrong);
		if (wrong == 0)
			break;
		/* Pairs that have no lane in common. */
		wrong &= ~(wrong << 1);
		const uint32_t from = lane + (wrong >> lane & 1) - (wrong << 1 >> lane & 1);

		value = __shfl_sync(ROUTE_ALL_LANES, value, from);
		c->id = __shfl_sync(ROUTE_ALL_LANES, c->id, from);
		c->score = __shfl_sync(ROUTE_ALL_LANES, c->score, from);
	}
	*ret_last = __shfl_sync(ROUTE_ALL_LANES, (float)value, n_found - 1);
	*ret_flags = __any_sync(ROUTE_ALL_LANES,
				(lane + 1 == top_k) & has_next & (value == below))
			     ? MTK_ROUTE_FLAG_TIE
			     : 0;
	return __all_sync(ROUTE_ALL_LANES, !has_next | precise::is_certain(value, below));
}

/*
 * Entries of one row whose order is not certain yet, settled if that can be; high is no less than
 * any value whose key is at most the lane's, next_key than any key that was not taken. The code is
 * short, as all of it is fetched where one row of thousands comes here. False: other code must do
 * the row.
 */
template <enum route_lean KIND, int N>
static __device__ __forceinline__ bool
route_lean_resolve(uint32_t top_k, uint32_t lane, struct route_lean_taken taken,
		   struct route_lean_verdict verdict, int32_t next_key, struct route_candidate *c,
		   uint8_t *ret_flags)
{
	const bool has_more = !__shfl_sync(ROUTE_ALL_LANES, verdict.is_above, top_k - 1);
	const int32_t next = __reduce_max_sync(ROUTE_ALL_LANES, next_key);
	const float own = fmaxf(c->value, route_lean_high<KIND, N>(taken.key));
	float bound = __shfl_sync(ROUTE_ALL_LANES, own, top_k), last;
	bool is_certain;

	if (has_more)
		bound = route_lean_high<KIND, N>(next);
	is_certain = route_lean_sort<KIND>(top_k, lane, top_k + has_more, c, &last, ret_flags);
	return __all_sync(ROUTE_ALL_LANES,
			  is_certain & route_lean_is_above<KIND>(last, bound) &
				  (has_more ? verdict.is_whole | (lane > top_k) : verdict.is_fit));
}

/* Choose, weigh and write a row. False: nothing was written, other code must. */
template <enum route_lean KIND, int N, int K, int Q, bool IS_UNIQUE, class Row>
static __device__ __forceinline__ bool
route_lean_row(const struct route_lean_args *lean, const struct route_args *args,
	       const struct route_lean_place *place, const float *x, const float *bias, Row &to)
{
	const uint32_t lane = place->lane;
	const uint32_t top_k = K > 0 ? K : lean->top_k;
	/* Lanes without an entry hold column 0, which may be read. */
	struct route_lean_taken taken = {
		KIND == ROUTE_LEAN_LOGIT ? (int32_t)route_lean_mask<KIND, N>() : 0, 1};
	struct route_lean_verdict verdict;
	struct route_candidate c;
	int32_t keys[N], rest, last;
	bool is_sure = true;
	uint8_t flags = 0;
	float sum, factor = lean->factor;

	route_lean_keys<KIND, N>(lane, x, bias, keys);
	rest = route_lean_queue<N, Q>(keys);
	if constexpr (KIND == ROUTE_LEAN_GROUPS)
		is_sure = route_lean_keep<N, Q>(lean, place, keys, &rest);
	last = route_lean_choose<K, Q, IS_UNIQUE>(top_k, lane, keys, &taken);
	to.arrive();
	c = route_lean_candidate<KIND, N>(lean, place, taken);
	verdict = route_lean_judge<KIND, N>(lean, top_k, lane, taken, &c);
	sum = route_lean_sum<K>(lane < top_k ? c.score : 0.0f);
	verdict.is_whole &= is_sure & ((lane >= top_k) | (sum > 1e-12f));
	/* What was not queued must be less than all that was taken. */
	verdict.is_fit &= is_sure & (rest <= last) & ((lane >= top_k) | (sum > 1e-12f));
	if (ROUTE_UNLIKELY(!__all_sync(ROUTE_ALL_LANES, verdict.is_fit & verdict.is_above))) {
		if (!route_lean_resolve<KIND, N>(top_k, lane, taken, verdict, max(keys[0], rest),
						 &c, &flags))
			return false;
		sum = route_lean_sum<K>(lane < top_k ? c.score : 0.0f);
	}
	if (lean->divides)
		factor *= route_inverse(fmaxf(sum, lean->least_sum));
	route_lean_write(lean, args, top_k, place, {c.id, c.score * factor}, flags, to);
	return true;
}

static __device__ __forceinline__ struct route_lean_place
route_lean_place_of(const struct route_lean_args *lean, uint32_t n, uint32_t row, uint32_t lane)
{
	const size_t at = (size_t)row * lean->width + lane;
	struct route_lean_place place = {lean->logits + (size_t)row * n,
					 lean->bias + (size_t)row * lean->bias_stride,
					 lean->ids + at,
					 lean->weights + at,
					 row,
					 lane};

	/* Kept from here on: they would be found anew at the end otherwise, which takes time. */
	asm volatile("" : "+l"(place.id), "+l"(place.weight));
	return place;
}

/* A row once more, with queues that hold more; and if that is not enough, by the general code. */
template <enum route_lean KIND, int N, class Hook>
static __device__ __noinline__ void route_lean_again(const struct route_lean_args *lean,
						     const struct route_args *args, uint32_t row,
						     const Hook &hook)
{
	const struct route_lean_place place =
		route_lean_place_of(lean, 32 * N, row, threadIdx.x % 32);
	typename Hook::Row to;
	float x[N], bias[N];

	route_lean_load<KIND, N>(place.logits, place.lane, x);
	if constexpr (KIND != ROUTE_LEAN_LOGIT)
		route_lean_load<KIND, N>(place.bias, place.lane, bias);
	to.open(hook, row, place.lane);
	if (!route_lean_row<KIND, N, 0, (N < 8 ? 4 : 8), true>(lean, args, &place, x, bias, to))
		route_do_row<N>(args, row, hook);
}

template <enum route_lean KIND, int N, int K, int Q, class Hook>
__global__ void __launch_bounds__(ROUTE_MAX_THREADS, N <= 4 ? 16 : N <= 8 ? 10 : N <= 16 ? 8 : 5)
	route_lean_kernel(const __grid_constant__ struct route_lean_args lean,
			  const __grid_constant__ Hook hook,
			  const __grid_constant__ struct route_args args)
{
	uint32_t thread, n_valid = lean.n_rows;
	typename Hook::Row to;
	float x[N], bias[N];
	bool is_done;

	/* Asked for here, it comes while the block learns whether it is the head. */
	asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
	if (route_is_head(hook))
		return;
	const uint32_t row = blockIdx.x * (blockDim.x / 32) + thread / 32;
	const struct route_lean_place place = route_lean_place_of(&lean, 32 * N, row, thread % 32);

	if (row >= lean.n_rows)
		return;
	route_lean_load<KIND, N>(place.logits, place.lane, x);
	if constexpr (KIND != ROUTE_LEAN_LOGIT)
		route_lean_load<KIND, N>(place.bias, place.lane, bias);
	to.open(hook, row, place.lane);
	if (lean.n_valid_rows)
		n_valid = __ldg(lean.n_valid_rows);
	if (ROUTE_UNLIKELY(row >= n_valid)) {
		route_write_padding(&args, row, place.lane, hook);
		return;
	}
	is_done = route_lean_row<KIND, N, K, Q, false>(&lean, &args, &place, x, bias, to);
	if (ROUTE_UNLIKELY(!is_done))
		route_lean_again<KIND, N>(&lean, &args, row, hook);
}

#endif
