/* SPDX-License-Identifier: MIT */
/*
 * The fast path of routing: N adjacent columns a lane, in registers. It must choose what the
 * definition chooses in double precision. So a choice counts only where the values that follow
 * each other, up to the best one left out, lie further apart than their errors; otherwise those
 * that lie close to the cut are taken, too, and their order is found in double precision; and
 * where that does not settle it, as for NaN, infinities and many equal values, the definition
 * routes the row.
 *
 * Columns beyond the last hold -1e29; logits and biases of the fast path are at most 1e29 in
 * magnitude, so that these columns come last, and by their ids after each that equals them.
 */
#ifndef MTK_ROUTE_ROUTE_FAST_CUH
#define MTK_ROUTE_ROUTE_FAST_CUH

#include "kernels/route/route_args.cuh"
#include "kernels/route/route_define.cuh"
#include "kernels/route/route_keys.cuh"

#define ROUTE_LARGEST 1e29f
/* Rounding of a sum, relative to it. */
#define ROUTE_ROUNDING 1.2e-7f

/* What is known of a row before the choice, the same in all lanes. */
struct route_scale {
	float max;   /* logit; of softmax */
	float sum;   /* of softmax's exponentials */
	float error; /* of a score */
};

static __device__ __forceinline__ float route_max_nan(float a, float b)
{
	float larger;

	asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
	return larger;
}

template <int N>
static __device__ __forceinline__ void route_load(const struct route_args *args, const float *from,
						  uint32_t lane, float *ret_values)
{
	if (N % 4 == 0 && args->has_vectors) {
#pragma unroll
		for (int i = 0; i + 3 < N; i += 4) {
			float4 four = make_float4(-ROUTE_LARGEST, -ROUTE_LARGEST, -ROUTE_LARGEST,
						  -ROUTE_LARGEST);

			if (lane * N + i < args->n)
				four = __ldg((const float4 *)(from + lane * N + i));
			ret_values[i] = four.x;
			ret_values[i + 1] = four.y;
			ret_values[i + 2] = four.z;
			ret_values[i + 3] = four.w;
		}
		return;
	}
#pragma unroll
	for (int i = 0; i < N; i++)
		ret_values[i] = lane * N + i < args->n ? __ldg(from + lane * N + i)
						       : -ROUTE_LARGEST;
}

/*
 * The choosing values of a lane's columns in fp32, of mode ROUTE_BOUNDED. One loop a scoring:
 * within it nothing keeps the columns' latencies from overlapping.
 */
template <int N>
static __device__ __forceinline__ void route_values(const struct route_args *args,
						    const struct route_scale *scale,
						    const float *x, const float *bias,
						    float *ret_values)
{
	const float sign = args->adds_bias ? 1.0f : 0.0f;

	if (args->by_logit) {
#pragma unroll
		for (int i = 0; i < N; i++)
			ret_values[i] = fmaf(sign, bias[i], x[i]);
	} else if (args->config.scoring == MTK_ROUTE_SIGMOID) {
#pragma unroll
		for (int i = 0; i < N; i++)
			ret_values[i] = fmaf(sign, bias[i],
					     __fdividef(1.0f, 1.0f + __expf(-x[i])));
	} else if (args->config.scoring == MTK_ROUTE_SOFTMAX) {
		const float factor = __fdividef(1.0f, scale->sum);

#pragma unroll
		for (int i = 0; i < N; i++)
			ret_values[i] = fmaf(sign, bias[i], expf(x[i] - scale->max) * factor);
	} else {
#pragma unroll
		for (int i = 0; i < N; i++)
			ret_values[i] = fmaf(sign, bias[i],
					     sqrtf(fmaxf(x[i], 0.0f) +
						   log1pf(expf(-fabsf(x[i])))));
	}
}

/*
 * The logistic function to 1e-12: e^-|x| by a polynomial on -ln 2 / 2 .. ln 2 / 2 and a power of
 * two, the division by a reciprocal in fp32 that one step of Newton's method makes precise.
 */
static __device__ __forceinline__ double route_sigmoid(double x)
{
	const double a = fmax(-fabs(x), -700.0);
	const double n = rint(a * 1.4426950408889634);
	const double r = fma(n, -0.69314718055994531, a);
	const double r2 = r * r, r4 = r2 * r2;
	const double low = fma(r2, fma(r, 1.0 / 6, 0.5), 1.0 + r);
	const double middle = fma(r2, fma(r, 1.0 / 5040, 1.0 / 720), fma(r, 1.0 / 120, 1.0 / 24));
	const double high = fma(r2, 1.0 / 3628800, fma(r, 1.0 / 362880, 1.0 / 40320));
	const double power = fma(r4, fma(r4, high, middle), low) *
			     __hiloint2double(((int)n + 1023) << 20, 0);
	const double sum = 1.0 + power;
	double inverse = (double)__fdividef(1.0f, (float)sum);

	inverse = fma(inverse, fma(-sum, inverse, 1.0), inverse);
	return x < 0.0 ? power * inverse : inverse;
}

/* The score of one column; in fp32 of softmax, whose sum is no better. */
static __device__ __forceinline__ double route_precise(const struct route_args *args,
						       const struct route_scale *scale, double x)
{
	switch (args->config.scoring) {
	case MTK_ROUTE_SIGMOID:
		return route_sigmoid(x);
	case MTK_ROUTE_SQRTSOFTPLUS:
		return define_sqrtsoftplus(MTK_ROUTE_SOFTPLUS_LOG1P, x);
	case MTK_ROUTE_SOFTMAX:
		return (double)(expf((float)x - scale->max) / scale->sum);
	default:
		return x;
	}
}

/* Logits in this range have distinct scores in double precision. */
static __device__ __forceinline__ bool route_is_distinct(const struct mtk_route_config *config,
							 float largest, float logit)
{
	if (!(fabsf(logit) >= 1e-6f) || logit < -80.0f)
		return false;
	switch (config->scoring) {
	case MTK_ROUTE_SOFTMAX:
		return fabsf(largest) <= 64.0f && largest - logit < 80.0f;
	case MTK_ROUTE_SIGMOID:
		return logit <= 16.0f;
	default:
		return logit <= 1e30f;
	}
}

/* Whether `above` certainly comes before `below` and before whatever is less. */
static __device__ __forceinline__ bool route_is_apart(const struct route_args *args,
						      const struct route_scale *scale, float above,
						      float below)
{
	if (args->mode == ROUTE_BOUNDED)
		return above - below >
		       2.0f * scale->error + ROUTE_ROUNDING * (fabsf(above) + fabsf(below));
	if (args->mode == ROUTE_MONOTONE && below > -ROUTE_LARGEST)
		return above > below && route_is_distinct(&args->config, scale->max, above) &&
		       route_is_distinct(&args->config, scale->max, below);
	return above > below;
}

/*
 * Keep the best groups: keys of the others become 0. A group is 1 << args->group_shift lanes.
 * Returns whether the choice of groups is certain.
 */
template <int N>
static __device__ __forceinline__ bool route_keep_groups(const struct route_args *args,
							 const struct route_scale *scale,
							 uint32_t lane, const float *values,
							 uint32_t *keys)
{
	const uint32_t n_lanes = 1u << args->group_shift;
	const uint32_t n_groups = args->config.n_groups;
	const uint32_t n_keep = args->config.n_keep_groups;
	const uint32_t group = lane >> args->group_shift;
	float first = values[0], second = -INFINITY, score, nearest = INFINITY;
	uint32_t rank = 0;
	bool is_near;

#pragma unroll
	for (int i = 1; i < N; i++) {
		second = fmaxf(second, fminf(first, values[i]));
		first = fmaxf(first, values[i]);
	}
	for (uint32_t step = 1; step < n_lanes; step *= 2) {
		float other = __shfl_xor_sync(ROUTE_ALL_LANES, first, step);
		float other_second = __shfl_xor_sync(ROUTE_ALL_LANES, second, step);

		second = fmaxf(fminf(first, other), fmaxf(second, other_second));
		first = fmaxf(first, other);
	}
	score = args->groups_top2 ? first + second : first;
#pragma unroll 8
	for (uint32_t g = 0; g < n_groups; g++) {
		const float other = __shfl_sync(ROUTE_ALL_LANES, score, g << args->group_shift);
		const bool is_above = other > score || (other == score && g < group);

		rank += is_above;
		nearest = is_above || g == group ? nearest : fminf(nearest, score - other);
	}
	if (rank >= n_keep)
#pragma unroll
		for (int i = 0; i < N; i++)
			keys[i] = 0;
	/* The last one kept has one below it that might be above it. */
	is_near = nearest <= 4.0f * scale->error +
				     4.0f * ROUTE_ROUNDING * (fabsf(first) + fabsf(second));
	return !__any_sync(ROUTE_ALL_LANES, is_near && rank + 1 == n_keep && group < n_groups);
}

/* A candidate of the choice, one a lane. */
struct route_candidate {
	int32_t id;
	double x;     /* the logit that its score is made of */
	double score; /* of those scorings that have one before the choice */
	double value; /* the choosing value */
};

static __device__ __forceinline__ struct route_candidate
route_candidate_of(const struct route_row *row, const struct route_scale *scale, bool is_one,
		   uint32_t key)
{
	const struct route_args *args = row->args;
	struct route_candidate c = {-1, 0.0, 0.0, -INFINITY};
	double bias = 0.0;

	c.id = (int32_t)(args->id_mask - (key & args->id_mask));
	if (!is_one || (uint32_t)c.id >= args->n)
		return c;
	c.x = __ldg(row->logits + c.id);
	if (row->bias)
		bias = __ldg(row->bias + c.id);
	if (args->config.bias == MTK_ROUTE_BIAS_LOGIT)
		c.x += bias;
	c.score = route_precise(args, scale, c.x);
	c.value = args->by_logit || args->mode != ROUTE_BOUNDED ? c.x : c.score;
	if (args->adds_bias)
		c.value += bias;
	return c;
}

/* Move candidates to the lanes of their ranks: values descending, then lower ids. */
static __device__ __forceinline__ void route_sort_candidates(uint32_t lane, uint32_t n_found,
							     struct route_candidate *c)
{
	uint32_t rank = 0, source = 0;

	for (uint32_t i = 0; i < n_found; i++) {
		const double other = __shfl_sync(ROUTE_ALL_LANES, c->value, i);
		const int32_t other_id = __shfl_sync(ROUTE_ALL_LANES, c->id, i);

		rank += other > c->value || (other == c->value && other_id < c->id);
	}
	for (uint32_t i = 0; i < n_found; i++)
		source = __shfl_sync(ROUTE_ALL_LANES, rank, i) == lane ? i : source;
	c->id = __shfl_sync(ROUTE_ALL_LANES, c->id, source);
	c->x = __shfl_sync(ROUTE_ALL_LANES, c->x, source);
	c->score = __shfl_sync(ROUTE_ALL_LANES, c->score, source);
	c->value = __shfl_sync(ROUTE_ALL_LANES, c->value, source);
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
 * Bring the candidates into order and see whether it is certain. is_tied: what was left out has the
 * value of the last that was taken.
 */
static __device__ __forceinline__ bool route_settle(const struct route_args *args,
						    const struct route_scale *scale, uint32_t lane,
						    uint32_t n_found, struct route_candidate *c,
						    bool *is_tied)
{
	const uint32_t top_k = args->config.top_k;
	double below = __shfl_down_sync(ROUTE_ALL_LANES, c->value, 1);

	/* Equal values stand by id already, as their keys did. */
	if (__any_sync(ROUTE_ALL_LANES, lane + 1 < n_found && !(c->value >= below))) {
		route_sort_candidates(lane, n_found, c);
		below = __shfl_down_sync(ROUTE_ALL_LANES, c->value, 1);
	}
	*is_tied = __any_sync(ROUTE_ALL_LANES, lane + 1 == top_k && lane + 1 < n_found &&
						       c->value == below);
	return __all_sync(ROUTE_ALL_LANES,
			  lane >= top_k || lane + 1 >= n_found ||
				  route_is_settled(args, scale, c->value, below));
}

/* Renormalise and scale. Returns false where the scores are so small that fp32 has lost them. */
static __device__ __forceinline__ bool route_weigh(const struct route_args *args, uint32_t lane,
						   const struct route_candidate *c,
						   float *ret_weight)
{
	const bool has_entry = lane < args->config.top_k;
	float weight = has_entry ? (float)c->score : 0.0f;
	float factor = args->factor, sum;

	if (args->config.scoring == MTK_ROUTE_SOFTMAX_SELECTED) {
		float largest = route_max(has_entry ? (float)c->x : -INFINITY);

		weight = has_entry ? expf((float)c->x - largest) : 0.0f;
		weight = __fdividef(weight, route_sum(weight));
	}
	sum = route_sum(weight);
	if (args->config.renormalise != MTK_ROUTE_RENORMALISE_NONE)
		factor = __fdividef(factor, fmaxf(sum, args->least_sum));
	*ret_weight = weight * factor;
	return sum > 1e-12f;
}

/* The logits that scores are made of, their bound, and what softmax needs of them. */
template <int N>
static __device__ __forceinline__ bool route_prepare(const struct route_args *args, float *x,
						     const float *bias, struct route_scale *scale)
{
	const bool has_bias = args->config.bias != MTK_ROUTE_BIAS_NONE;
	float largest = 0.0f;

#pragma unroll
	for (int i = 0; i < N; i++)
		largest = route_max_nan(largest, fabsf(x[i]));
	if (has_bias) {
#pragma unroll
		for (int i = 0; i < N; i++)
			largest = route_max_nan(largest, fabsf(bias[i]));
	}
	if (__any_sync(ROUTE_ALL_LANES, !(largest <= ROUTE_LARGEST)))
		return false;
	if (args->config.bias == MTK_ROUTE_BIAS_LOGIT) {
		float sum = 0.0f;

#pragma unroll
		for (int i = 0; i < N; i++) {
			x[i] += bias[i];
			sum = fmaxf(sum, x[i] < -0.5f * ROUTE_LARGEST ? 0.0f : fabsf(x[i]));
		}
		/* Rounding of larger sums could be seen in a weight. */
		if (__any_sync(ROUTE_ALL_LANES, sum > 32.0f))
			return false;
	}
	scale->error = args->error;
	if (args->config.scoring == MTK_ROUTE_SQRTSOFTPLUS) {
		float best = x[0];

#pragma unroll
		for (int i = 1; i < N; i++)
			best = fmaxf(best, x[i]);
		scale->error *= sqrtf(1.0f + fmaxf(route_max(best), 0.0f));
	}
	if (args->config.scoring == MTK_ROUTE_SOFTMAX) {
		float best = x[0], sum = 0.0f;

#pragma unroll
		for (int i = 1; i < N; i++)
			best = fmaxf(best, x[i]);
		scale->max = route_max(best);
#pragma unroll
		for (int i = 0; i < N; i++)
			sum += expf(x[i] - scale->max);
		scale->sum = route_sum(sum);
	}
	return true;
}

/* Keys that may be chosen from: those of groups that were not kept are 0. */
template <int N>
static __device__ __forceinline__ bool route_make_keys(const struct route_args *args,
						       const struct route_scale *scale,
						       uint32_t lane, const float *x,
						       const float *bias, uint32_t *ret_keys)
{
	const uint32_t mask = args->id_mask;
	float values[N];

	if (args->mode != ROUTE_BOUNDED) {
#pragma unroll
		for (int i = 0; i < N; i++)
			ret_keys[i] = route_key(x[i], mask, lane * N + i);
		return true;
	}
	route_values<N>(args, scale, x, bias, values);
#pragma unroll
	for (int i = 0; i < N; i++)
		ret_keys[i] = route_key(values[i], mask, lane * N + i);
	return !args->has_groups || route_keep_groups<N>(args, scale, lane, values, ret_keys);
}

/* Choose and weigh one row whose logits and biases are at hand. False: the definition must. */
template <int N>
static __device__ __forceinline__ bool route_row_fast(const struct route_row *row, uint32_t lane,
						      float *x, const float *bias,
						      struct route_entry *ret_entry,
						      uint8_t *ret_flags)
{
	constexpr int LENGTH = N < ROUTE_QUEUE ? N : ROUTE_QUEUE;
	const struct route_args *args = row->args;
	const uint32_t mask = args->id_mask;
	const uint32_t top_k = args->config.top_k;
	struct route_scale scale = {0.0f, 1.0f, 0.0f};
	struct route_candidate candidate;
	uint32_t keys[N], mine = 0, last = 0, next = 0;
	uint32_t n_found = 0;
	bool is_full, is_tied;

	if (!route_prepare<N>(args, x, bias, &scale) ||
	    !route_make_keys<N>(args, &scale, lane, x, bias, keys))
		return false;
	route_make_queue<N>(keys);
	is_full = N > ROUTE_QUEUE && keys[LENGTH - 1] != 0;
	next = route_take<N>(keys);
	/* Beyond top_k until one is certainly below; as many as lanes at most. */
	do {
		if (n_found == 32)
			return false;
		mine = lane == n_found ? next : mine;
		last = n_found < top_k ? next : last;
		n_found++;
		next = route_take<N>(keys);
	} while (n_found < top_k ||
		 (next != 0 && !route_is_apart(args, &scale, route_key_low(last, mask),
					       route_key_high(next, mask))));
	/* A lane gave all that it had kept: what it did not keep may be larger. */
	if (N > ROUTE_QUEUE && __any_sync(ROUTE_ALL_LANES, is_full && keys[0] == 0))
		return false;
	candidate = route_candidate_of(row, &scale, lane < n_found, mine);
	if (!route_settle(args, &scale, lane, n_found, &candidate, &is_tied))
		return false;
	ret_entry->id = candidate.id;
	*ret_flags = is_tied ? MTK_ROUTE_FLAG_TIE : 0;
	return route_weigh(args, lane, &candidate, &ret_entry->weight);
}

#endif
