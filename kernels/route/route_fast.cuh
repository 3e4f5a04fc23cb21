/* SPDX-License-Identifier: MIT */
/*
 * The fast path of routing: N adjacent columns a lane, in registers. It must choose what the
 * definition chooses in double precision. So a choice counts only where the values that follow
 * each other, up to the best one left out, lie further apart than their errors; otherwise those
 * that lie close to the cut are taken, too, and their order is found in double precision; and
 * where that does not settle it, as for NaN, infinities and many equal values, the definition
 * routes the row.
 *
 * NaN has the largest key of all, and no logit of the fast path is above 1e29 or, where it is
 * chosen, below -1e29, which is what columns beyond the last hold: a look at the ends of the order
 * finds them all.
 */
#ifndef MTK_ROUTE_ROUTE_FAST_CUH
#define MTK_ROUTE_ROUTE_FAST_CUH

#include "kernels/route/route_keys.cuh"
#include "kernels/route/route_score.cuh"

/* The two largest values of a group, from those of its lanes' columns. */
template <class T>
static __device__ __forceinline__ void route_join_lanes(uint32_t shift, T *first, T *second)
{
	for (uint32_t step = 1; step < 1u << shift; step *= 2) {
		const T other = __shfl_xor_sync(ROUTE_ALL_LANES, *first, step);
		const T other_second = __shfl_xor_sync(ROUTE_ALL_LANES, *second, step);

		*second = max(min(*first, other), max(*second, other_second));
		*first = max(*first, other);
	}
}

/*
 * Whether the lane's group is kept, by the scores of groups; is_certain: no group that is left out
 * is within error of the last one kept.
 */
template <class T>
static __device__ __forceinline__ bool
route_rank_groups(const struct route_args *args, uint32_t lane, T score, T error, bool *is_certain)
{
	const uint32_t n_groups = args->config.n_groups;
	const uint32_t n_keep = args->config.n_keep_groups;
	const uint32_t group = lane >> args->group_shift;
	T nearest = INFINITY;
	uint32_t rank = 0;

#pragma unroll 8
	for (uint32_t g = 0; g < n_groups; g++) {
		const T other = __shfl_sync(ROUTE_ALL_LANES, score, g << args->group_shift);
		const bool is_above = other > score || (other == score && g < group);

		rank += is_above;
		nearest = is_above || g == group ? nearest : min(nearest, score - other);
	}
	*is_certain = !__any_sync(ROUTE_ALL_LANES,
				  nearest <= error && rank + 1 == n_keep && group < n_groups);
	return rank < n_keep;
}

/*
 * The same with scores in double precision, where fp32 cannot tell. Returns 1: the group is kept,
 * plus 2: certainly. Values, not pointers, so that nothing of a row lies in memory without need.
 */
template <int N>
static __device__ __noinline__ uint32_t route_keep_precise(const struct route_args *args,
							   const float *logits, const float *bias,
							   struct route_scale scale)
{
	bool is_kept, is_certain;
	const uint32_t lane = threadIdx.x % 32;
	double first = -INFINITY, second = -INFINITY, error;

#pragma unroll 1
	for (uint32_t e = lane * N; e < (lane + 1) * N && e < args->n; e++) {
		double x = logits[e], value;

		if (args->config.bias == MTK_ROUTE_BIAS_LOGIT)
			x += bias[e];
		value = args->by_logit ? x : route_precise(args, &scale, x);
		value += args->adds_bias ? bias[e] : 0.0f;
		second = max(second, min(first, value));
		first = max(first, value);
	}
	route_join_lanes(args->group_shift, &first, &second);
	error = 4.0 * args->precise_error + 1e-15 * (fabs(first) + fabs(second));
	is_kept = route_rank_groups(args, lane, args->groups_top2 ? first + second : first, error,
				    &is_certain);
	return (uint32_t)is_kept + 2 * (uint32_t)is_certain;
}

/*
 * Keep the best groups: keys of the others become 0. A group is 1 << args->group_shift lanes.
 * Returns whether the choice of groups is certain.
 */
template <int N>
static __device__ __forceinline__ bool
route_keep_groups(const struct route_args *args, const float *logits, const float *all_bias,
		  const struct route_scale *scale, uint32_t lane, const float *values,
		  uint32_t *keys)
{
	float first = values[0], second = -INFINITY, error;
	bool is_certain, is_kept;

#pragma unroll
	for (int i = 1; i < N; i++) {
		second = fmaxf(second, fminf(first, values[i]));
		first = fmaxf(first, values[i]);
	}
	route_join_lanes(args->group_shift, &first, &second);
	error = 4.0f * scale->error + 4.0f * ROUTE_ROUNDING * (fabsf(first) + fabsf(second));
	is_kept = route_rank_groups(args, lane, args->groups_top2 ? first + second : first, error,
				    &is_certain);
	if (ROUTE_UNLIKELY(!is_certain)) {
		uint32_t answer = route_keep_precise<N>(args, logits, all_bias, *scale);

		is_kept = answer & 1;
		is_certain = answer >> 1;
	}
	if (!is_kept)
#pragma unroll
		for (int i = 0; i < N; i++)
			keys[i] = keys[i] < ROUTE_KEY_TOO_LARGE ? 0 : keys[i];
	return is_certain;
}

/* A candidate of the choice, one a lane. */
struct route_candidate {
	int32_t id;
	float logit;
	float bias;
	float x;     /* the logit that its score is made of */
	float score; /* the logit where the scoring has none before the choice */
	float value; /* the choosing value */
};

/* A score that the weights may be made of. */
static __device__ __forceinline__ float route_score(const struct route_args *args,
						    const struct route_scale *scale, float x)
{
	float power;

	if (ROUTE_LIKELY(args->config.scoring == MTK_ROUTE_SIGMOID)) {
		power = expf(-fabsf(x));
		return (x < 0.0f ? power : 1.0f) * route_inverse(1.0f + power);
	}
	if (args->config.scoring == MTK_ROUTE_SOFTMAX)
		return expf(x - scale->max) * route_inverse(scale->sum);
	if (args->config.scoring == MTK_ROUTE_SQRTSOFTPLUS)
		return sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))));
	return x;
}

/* In fp32. What is no candidate has the lowest value. */
static __device__ __forceinline__ struct route_candidate
route_candidate_of(const struct route_args *args, const float *logits, const float *all_bias,
		   const struct route_scale *scale, bool is_one, uint32_t key)
{
	struct route_candidate c = {-1, 0.0f, 0.0f, -INFINITY, 0.0f, -INFINITY};

	c.id = (int32_t)(args->id_mask - (key & args->id_mask));
	if (ROUTE_UNLIKELY(!is_one || (uint32_t)c.id >= args->n))
		return c;
	c.logit = __ldg(logits + c.id);
	if (all_bias)
		c.bias = __ldg(all_bias + c.id);
	c.x = args->config.bias == MTK_ROUTE_BIAS_LOGIT ? c.logit + c.bias : c.logit;
	c.score = route_score(args, scale, c.x);
	c.value = args->by_logit || args->mode != ROUTE_BOUNDED ? c.x : c.score;
	if (args->adds_bias)
		c.value += c.bias;
	return c;
}

/*
 * Let neighbours that stand in the wrong order change places, first those of even and odd lanes,
 * then those of odd and even ones. Few do: keys had them almost in order. T is the type of the
 * values that say the order.
 */
template <class T>
static __device__ __forceinline__ void route_swap(uint32_t lane, uint32_t n_found,
						  struct route_candidate *c, T *value)
{
#pragma unroll
	for (uint32_t odd = 0; odd < 2; odd++) {
		const uint32_t other = ((lane + odd) ^ 1) - odd;
		const bool is_first = lane < other;
		const bool is_pair = lane < n_found && other < n_found;
		const T other_value = __shfl_sync(ROUTE_ALL_LANES, *value, other);
		const int32_t other_id = __shfl_sync(ROUTE_ALL_LANES, c->id, other);
		const float other_x = __shfl_sync(ROUTE_ALL_LANES, c->x, other);
		const float other_score = __shfl_sync(ROUTE_ALL_LANES, c->score, other);
		const bool is_below =
			other_value > *value || (other_value == *value && other_id < c->id);

		if (is_pair && is_first == is_below) {
			*value = other_value;
			c->id = other_id;
			c->x = other_x;
			c->score = other_score;
		}
	}
}

/* Whether the order of two values in double precision is that of the definition. */
static __device__ __forceinline__ bool route_is_settled(const struct route_args *args,
							const struct route_scale *scale,
							double above, double below)
{
	if (args->mode == ROUTE_BOUNDED)
		return above - below > args->precise_error + 1e-15 * (fabs(above) + fabs(below));
	if (args->mode == ROUTE_MONOTONE && above != below)
		return route_is_distinct(&args->config, scale->max, (float)above) &&
		       route_is_distinct(&args->config, scale->max, (float)below);
	return true;
}

/*
 * Bring candidates into order by values in double precision. is_tied: what was left out has the
 * value of the last that was taken. is_certain: the order is.
 */
struct route_settled {
	struct route_candidate candidate;
	bool is_tied;
	bool is_certain;
};

static __device__ __noinline__ struct route_settled route_settle(const struct route_args *args,
								 struct route_scale scale,
								 uint32_t n_found,
								 struct route_candidate candidate)
{
	const uint32_t top_k = args->config.top_k;
	const uint32_t lane = threadIdx.x % 32;
	struct route_candidate *c = &candidate;
	double value = -INFINITY, below;
	struct route_settled settled;
	bool is_wrong;

	if (c->value > -INFINITY) {
		double x = c->x;

		if (args->config.bias == MTK_ROUTE_BIAS_LOGIT)
			x = (double)c->logit + c->bias;
		value = args->by_logit || args->mode != ROUTE_BOUNDED
				? x
				: route_precise(args, &scale, x);
		value += args->adds_bias ? c->bias : 0.0f;
	}
	do {
		int32_t below_id;

		route_swap(lane, n_found, c, &value);
		below = __shfl_down_sync(ROUTE_ALL_LANES, value, 1);
		below_id = __shfl_down_sync(ROUTE_ALL_LANES, c->id, 1);
		is_wrong = value < below || (value == below && c->id > below_id);
	} while (__any_sync(ROUTE_ALL_LANES, lane + 1 < n_found && is_wrong));
	settled.candidate = candidate;
	settled.is_tied = __any_sync(ROUTE_ALL_LANES,
				     lane + 1 == top_k && lane + 1 < n_found && value == below);
	settled.is_certain =
		__all_sync(ROUTE_ALL_LANES, lane >= top_k || lane + 1 >= n_found ||
						    route_is_settled(args, &scale, value, below));
	return settled;
}

/* Whether the candidates stand in an order that fp32 is sure of. */
static __device__ __forceinline__ bool route_is_sorted(const struct route_args *args,
						       const struct route_scale *scale,
						       uint32_t lane, uint32_t n_found,
						       const struct route_candidate *c)
{
	const float below = __shfl_down_sync(ROUTE_ALL_LANES, c->value, 1);
	/* Equal logits stand by id already, as their keys did. */
	const bool is_equal = (args->mode != ROUTE_BOUNDED) & (c->value == below) &
			      (lane + 1 < args->config.top_k);

	return __all_sync(ROUTE_ALL_LANES, (lane + 1 >= n_found) | is_equal |
						   route_is_apart(args, scale, c->value, below));
}

/* Renormalise and scale. Returns false where the scores are so small that fp32 has lost them. */
static __device__ __forceinline__ bool route_weigh(const struct route_args *args, uint32_t lane,
						   const struct route_candidate *c,
						   float *ret_weight)
{
	const bool has_entry = lane < args->config.top_k;
	float weight = has_entry ? c->score : 0.0f;
	float factor = args->factor, sum;

	if (ROUTE_UNLIKELY(args->config.scoring == MTK_ROUTE_SOFTMAX_SELECTED)) {
		float largest = route_max(has_entry ? c->x : -INFINITY);

		weight = has_entry ? expf(c->x - largest) : 0.0f;
		weight *= route_inverse(route_sum(weight));
	}
	sum = route_sum(weight);
	if (args->config.renormalise != MTK_ROUTE_RENORMALISE_NONE)
		factor *= route_inverse(fmaxf(sum, args->least_sum));
	*ret_weight = weight * factor;
	return sum > 1e-12f;
}

/* The logits that scores are made of, and what the choice needs of all of them. */
template <int N>
static __device__ __forceinline__ void route_prepare(const struct route_args *args, float *x,
						     const float *bias, struct route_scale *scale)
{
	const bool is_softmax = args->config.scoring == MTK_ROUTE_SOFTMAX;
	float sum = 0.0f;

	scale->error = args->error;
	/* Sigmoids need nothing of each other. */
	if (ROUTE_LIKELY(args->is_simple))
		return;
	if (args->config.bias == MTK_ROUTE_BIAS_LOGIT)
#pragma unroll
		for (int i = 0; i < N; i++)
			x[i] += bias[i];
	if (is_softmax || args->config.scoring == MTK_ROUTE_SQRTSOFTPLUS) {
		float best = x[0];

#pragma unroll
		for (int i = 1; i < N; i++)
			best = fmaxf(best, x[i]);
		scale->max = route_max(best);
	}
	if (args->config.scoring == MTK_ROUTE_SQRTSOFTPLUS)
		scale->error *= sqrtf(1.0f + fmaxf(scale->max, 0.0f));
	if (!is_softmax)
		return;
#pragma unroll
	for (int i = 0; i < N; i++)
		sum += route_exp(x[i] - scale->max);
	scale->sum = route_sum(sum);
}

/* Whether fp32 holds the row's logits, of which lane's candidate is one, precisely enough. */
static __device__ __forceinline__ bool route_is_held(const struct route_args *args,
						     const struct route_scale *scale,
						     const struct route_candidate *c)
{
	/* Rounding of larger sums could be seen in a weight; most where it is a power of them. */
	const float largest = args->config.scoring == MTK_ROUTE_SIGMOID ||
					      args->config.scoring == MTK_ROUTE_SQRTSOFTPLUS
				      ? 32.0f
				      : 4.0f;
	const bool is_near = (fabsf(c->x) <= largest) & (fabsf(scale->max) <= largest);

	return (c->x >= -ROUTE_LARGEST) & (c->value >= -ROUTE_LARGEST) &
	       ((args->config.bias != MTK_ROUTE_BIAS_LOGIT) | is_near);
}

/* Keys that may be chosen from: those of groups that were not kept are 0. */
template <int N>
static __device__ __forceinline__ bool
route_make_keys(const struct route_args *args, const float *logits, const float *all_bias,
		const struct route_scale *scale, uint32_t lane, const float *x, const float *bias,
		uint32_t *ret_keys)
{
	const uint32_t mask = args->id_mask;
	float values[N];

	if (ROUTE_UNLIKELY(args->mode != ROUTE_BOUNDED)) {
#pragma unroll
		for (int i = 0; i < N; i++)
			ret_keys[i] = route_key(x[i], mask, lane * N + i);
		return true;
	}
	route_values<N>(args, scale, x, bias, values);
#pragma unroll
	for (int i = 0; i < N; i++)
		ret_keys[i] = route_key(values[i], mask, lane * N + i);
	return !args->has_groups ||
	       route_keep_groups<N>(args, logits, all_bias, scale, lane, values, ret_keys);
}

/*
 * Choose and weigh one row; x and bias are the lane's columns of it. False: the definition must.
 */
template <int N>
static __device__ __forceinline__ bool
route_row_fast(const struct route_args *args, const float *logits, const float *all_bias,
	       uint32_t lane, float *x, const float *bias, struct route_entry *ret_entry,
	       uint8_t *ret_flags)
{
	constexpr int LENGTH = N < ROUTE_QUEUE ? N : ROUTE_QUEUE;
	const uint32_t mask = args->id_mask;
	const uint32_t top_k = args->config.top_k;
	struct route_scale scale = {0.0f, 1.0f, 0.0f};
	struct route_candidate candidate;
	uint32_t keys[N], mine = 0, last = 0, next;
	uint32_t n_found = top_k;
	bool is_full, is_sorted, is_tied = false;

	route_prepare<N>(args, x, bias, &scale);
	if (!route_make_keys<N>(args, logits, all_bias, &scale, lane, x, bias, keys))
		return false;
	route_make_queue<N>(keys);
	is_full = N > ROUTE_QUEUE && keys[LENGTH - 1] != 0;
#pragma unroll 2
	for (uint32_t j = 0; j < top_k; j++) {
		last = route_take<N>(keys);
		mine = lane == j ? last : mine;
	}
	next = route_take<N>(keys);
	/* Beyond top_k until one is certainly below; as many as lanes at most. */
	while (ROUTE_UNLIKELY(next != 0 && !route_is_apart(args, &scale, route_key_low(last, mask),
							   route_key_high(next, mask)))) {
		if (n_found == 32)
			return false;
		mine = lane == n_found ? next : mine;
		n_found++;
		next = route_take<N>(keys);
	}
	candidate = route_candidate_of(args, logits, all_bias, &scale, lane < n_found, mine);
	/* A lane that gave all it had kept may hold something larger than what others gave. */
	if (__any_sync(ROUTE_ALL_LANES,
		       (mine >= ROUTE_KEY_TOO_LARGE) | (is_full & (keys[0] == 0)) |
			       ((lane < n_found) & !route_is_held(args, &scale, &candidate))))
		return false;
	is_sorted = route_is_sorted(args, &scale, lane, n_found, &candidate);
	if (ROUTE_UNLIKELY(!is_sorted)) {
		/* What truncated keys had wrong, fp32 has right, most of the time. */
		if (args->mode == ROUTE_BOUNDED && args->config.bias == MTK_ROUTE_BIAS_SCORE &&
		    n_found == top_k) {
			struct route_candidate swapped = candidate;

			route_swap(lane, n_found, &swapped, &swapped.value);
			is_sorted = route_is_sorted(args, &scale, lane, n_found, &swapped);
			candidate = is_sorted ? swapped : candidate;
		}
	}
	if (ROUTE_UNLIKELY(!is_sorted)) {
		const struct route_settled settled = route_settle(args, scale, n_found, candidate);

		if (!settled.is_certain)
			return false;
		candidate = settled.candidate;
		is_tied = settled.is_tied;
	}
	ret_entry->id = candidate.id;
	*ret_flags = is_tied ? MTK_ROUTE_FLAG_TIE : 0;
	return route_weigh(args, lane, &candidate, &ret_entry->weight);
}

#endif
