/* SPDX-License-Identifier: MIT */
/*
 * The first step of the vector path: scores and choosing values of all columns, or only what the
 * way of choosing needs. A row that holds a NaN or an infinity is refused.
 */
#ifndef MTK_ROUTE_ROUTE_SCORE_VEC_H
#define MTK_ROUTE_ROUTE_SCORE_VEC_H

#include "kernels/route/route_work_vec.h"
#include "kernels/route/sigmoid_vec.h"

/*
 * Biases less a constant, which changes no order: differences between biases that are all about
 * 34.5 are then not rounded away. Returns false where one is not finite or too large for sums.
 */
VEC_FN bool route_center(struct route_work *work, const float *bias)
{
	struct vec low = vec_set1(INFINITY), high = vec_set1(-INFINITY);
	struct vec middle;
	uint32_t tail = work->n % VEC_LANES;

	for (uint32_t e = 0; e < work->n; e += VEC_LANES) {
		uint32_t left = work->n - e;
		struct vec part = left >= VEC_LANES ? vec_load(bias + e)
						    : vec_keep_first(vec_load_first(bias + e, tail),
								     tail, vec_set1(bias[0]));

		/* Where a part is NaN, minus infinity in the end says so. */
		low = vec_min(low, vec_choose_less(vec_abs(part), vec_set1(1e30f), part,
						   vec_set1(-INFINITY)));
		high = vec_max(high, part);
		vec_store(work->bias + e, part);
	}
	middle = vec_set1(0.5f * (vec_max_lane(high) - vec_max_lane(vec_sub(vec_set1(0.0f), low))));
	work->largest_bias = 0.0f;
	if (!(vec_max_lane(vec_sub(vec_set1(0.0f), low)) < INFINITY))
		return false;
	high = vec_set1(0.0f);
	for (uint32_t e = 0; e < work->n_padded; e += VEC_LANES) {
		struct vec part = vec_sub(vec_load(work->bias + e), middle);

		vec_store(work->bias + e, part);
		high = vec_max(high, vec_abs(part));
	}
	work->largest_bias = vec_max_lane(high);
	return true;
}

/* The logits of a block, with fill beyond the last column. */
VEC_FN struct vec route_block(const struct route_work *work, const float *logits, uint32_t e,
			      struct vec fill)
{
	uint32_t left = work->n - e;

	if (left >= VEC_LANES)
		return vec_load(logits + e);
	return vec_keep_first(vec_load_first(logits + e, left), left, fill);
}

/*
 * log(1 + e^x) = max(x, 0) + log(1 + t), t = e^-|x|; log(1 + t) = 2 atanh(s), s = t / (2 + t),
 * by its series: s is at most 1/3, so that the first term left out is below 2e-9 of the sum.
 */
VEC_FN struct vec route_sqrtsoftplus(struct vec x)
{
	const struct vec zero = vec_set1(0.0f);
	struct vec t = vec_exp(vec_sub(zero, vec_abs(x)));
	struct vec s = vec_div(t, vec_add(vec_set1(2.0f), t));
	struct vec square = vec_mul(s, s);
	struct vec sum = vec_set1(1.0f / 15.0f);

	sum = vec_fma(sum, square, vec_set1(1.0f / 13.0f));
	sum = vec_fma(sum, square, vec_set1(1.0f / 11.0f));
	sum = vec_fma(sum, square, vec_set1(1.0f / 9.0f));
	sum = vec_fma(sum, square, vec_set1(1.0f / 7.0f));
	sum = vec_fma(sum, square, vec_set1(1.0f / 5.0f));
	sum = vec_fma(sum, square, vec_set1(1.0f / 3.0f));
	sum = vec_fma(sum, square, vec_set1(1.0f));
	return vec_sqrt(vec_fma(vec_add(s, s), sum, vec_max(x, zero)));
}

/* Copy logits to values. Returns whether all are finite. */
VEC_FN bool route_copy(struct route_work *work, const float *logits)
{
	struct vec poison = vec_set1(0.0f), largest = vec_set1(0.0f);

	for (uint32_t e = 0; e < work->n; e += VEC_LANES) {
		struct vec x = route_block(work, logits, e, vec_set1(0.0f));

		/* The difference is NaN where x is not finite. */
		poison = vec_add(poison, vec_sub(x, x));
		largest = vec_max(largest, vec_abs(x));
		vec_store(work->values + e, route_block(work, logits, e, vec_set1(-INFINITY)));
	}
	work->largest_score = vec_max_lane(largest);
	return vec_sum(poison) == 0.0f;
}

/* The values' exponentials as scores, and their sum: in parts of 256, so that errors stay small. */
VEC_FN void route_exponentials(struct route_work *work)
{
	struct vec max = vec_load(work->values), total = vec_set1(0.0f);

	for (uint32_t e = VEC_LANES; e < work->n_padded; e += VEC_LANES)
		max = vec_max(max, vec_load(work->values + e));
	max = vec_set1(vec_max_lane(max));
	for (uint32_t begin = 0; begin < work->n_padded; begin += 16 * VEC_LANES) {
		uint32_t end = begin + 16 * VEC_LANES;
		struct vec part = vec_set1(0.0f);

		end = end < work->n_padded ? end : work->n_padded;
		for (uint32_t e = begin; e < end; e += VEC_LANES) {
			struct vec power = vec_exp(vec_sub(vec_load(work->values + e), max));

			vec_store(work->scores + e, power);
			part = vec_add(part, power);
		}
		total = vec_add(total, part);
	}
	work->sum = vec_sum(total);
}

VEC_FN void route_divide(struct route_work *work)
{
	const struct vec sum = vec_set1(work->sum);

	for (uint32_t e = 0; e < work->n_padded; e += VEC_LANES)
		vec_store(work->scores + e, vec_div(vec_load(work->scores + e), sum));
}

/* Scores of columns by themselves, and the values with the bias. Returns whether all are finite. */
#define ROUTE_SCORE_COLUMNS(name, function)                                                     \
	VEC_FN bool name(struct route_work *work, const float *logits)                          \
	{                                                                                       \
		const uint32_t n_whole = work->n / VEC_LANES * VEC_LANES;                       \
		struct vec poison = vec_set1(0.0f), largest = vec_set1(0.0f);                   \
                                                                                                \
		for (uint32_t e = 0; e < work->n; e += VEC_LANES) {                             \
			struct vec x = e < n_whole                                              \
					       ? vec_load(logits + e)                           \
					       : route_block(work, logits, e, vec_set1(-1e3f)); \
			struct vec score = function(x);                                         \
                                                                                                \
			poison = vec_add(poison, vec_sub(x, x));                                \
			largest = vec_max(largest, score);                                      \
			vec_store(work->scores + e, score);                                     \
			vec_store(work->values + e, vec_add(score, vec_load(work->bias + e)));  \
		}                                                                               \
		work->largest_score = vec_max_lane(largest);                                    \
		return vec_sum(poison) == 0.0f;                                                 \
	}

ROUTE_SCORE_COLUMNS(route_sigmoids, route_sigmoid)
ROUTE_SCORE_COLUMNS(route_sqrtsoftpluses, route_sqrtsoftplus)

/* values += bias, for values that are not scores + bias already. */
VEC_FN void route_add_bias(struct route_work *work, const float *from)
{
	for (uint32_t e = 0; e < work->n_padded; e += VEC_LANES)
		vec_store(work->values + e, vec_add(vec_load(from + e), vec_load(work->bias + e)));
}

/* Scores and values of all columns. Returns false where the row is one for the definition. */
VEC_FN bool route_score(struct route_work *work, const float *logits)
{
	const struct mtk_route_config *config = work->config;
	const bool by_score = work->mode == ROUTE_BOUNDED && !route_by_logit(config);

	if (by_score && config->scoring == MTK_ROUTE_SIGMOID)
		return route_sigmoids(work, logits);
	if (by_score && config->scoring == MTK_ROUTE_SQRTSOFTPLUS)
		return route_sqrtsoftpluses(work, logits);
	if (!route_copy(work, logits))
		return false;
	if (config->scoring == MTK_ROUTE_SOFTMAX)
		route_exponentials(work);
	if (by_score) {
		route_divide(work);
		work->largest_score = 1.0f / work->sum;
		work->sum = 1.0f;
		route_add_bias(work, work->scores);
	} else if (config->bias == MTK_ROUTE_BIAS_LOGIT_CHOICE) {
		route_add_bias(work, work->values);
	}
	return true;
}

/* Columns beyond the last one can never be chosen. */
VEC_FN void route_pad(struct route_work *work)
{
	for (uint32_t e = work->n; e < work->n_padded; e++)
		work->values[e] = -INFINITY;
}

#endif
