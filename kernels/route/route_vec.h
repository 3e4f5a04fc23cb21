/* SPDX-License-Identifier: MIT */
/*
 * The vector path of routing, in fp32. It must choose what the definition chooses in double
 * precision, so it serves a row only where its own rounding cannot have decided: where the values
 * that follow each other in the order, up to the first one left out, lie further apart than their
 * error bounds, or are compared exactly. Every other row, and each that holds a NaN or an
 * infinity, goes to the definition.
 *
 * Three ways to choose:
 *   exact     by logits as they are
 *   monotone  by a score to which nothing is added: logits have the same order, as long as they
 *             lie where distinct floats have distinct scores in double precision
 *   bounded   by values that were computed, whose error is bounded
 *
 * Values are padded with minus infinity to whole blocks of VEC_LANES; each block's largest value
 * is kept beside, so that taking an expert looks at one block again.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/route/route_impl.h"
#include "kernels/route/route_variant.h"
#include "kernels/route/sigmoid_vec.h"

enum route_mode {
	ROUTE_EXACT,
	ROUTE_MONOTONE,
	ROUTE_BOUNDED,
};

/* Error of a bounded value, relative to the largest score plus the largest bias of the row. */
#define ROUTE_ERROR_SIGMOID 5e-7f
#define ROUTE_ERROR_SOFTMAX 1.2e-5f
/* Errors that stem from flushing small exponentials to 0. */
#define ROUTE_ERROR_FLUSH 1e-18f

struct route_work {
	const struct mtk_route_config *config;
	enum route_mode mode;
	bool is_grouped; /* by the grouped variant */
	bool has_groups; /* some groups are left out */
	uint32_t n;
	uint32_t n_padded;
	uint32_t n_group; /* experts of a group */
	uint32_t n_top;	  /* values that make a group's score */
	float *scores;	  /* [n_padded + 32]; of softmax, the exponentials */
	float *values;	  /* [n_padded + 32] */
	float *bias;	  /* [n_padded + 32]: less a constant, see route_center() */
	uint32_t *blocks; /* [n_blocks]: the first columns of those that may be chosen from */
	uint32_t n_blocks;
	float *block_max; /* [n_blocks], rounded up to VEC_LANES */
	double *definition;
	float largest_bias;
	float largest_score;
	float sum;			      /* of softmax's exponentials */
	float found[MTK_ROUTE_MAX_TOP_K + 1]; /* values by rank; the last is the best left out */
};

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

/* Where no bias is used, 0 is added. */
VEC_FN struct vec route_bias(const struct route_work *work, uint32_t e)
{
	return work->config->bias != MTK_ROUTE_BIAS_NONE ? vec_load(work->bias + e)
							 : vec_set1(0.0f);
}

/* Scores of columns by themselves, and the values with the bias. Returns whether all are finite. */
#define ROUTE_SCORE_COLUMNS(name, function)                                               \
	VEC_FN bool name(struct route_work *work, const float *logits)                    \
	{                                                                                 \
		struct vec poison = vec_set1(0.0f), largest = vec_set1(0.0f);             \
                                                                                          \
		for (uint32_t e = 0; e < work->n; e += VEC_LANES) {                       \
			struct vec x = route_block(work, logits, e, vec_set1(-1e3f));     \
			struct vec score = function(x);                                   \
                                                                                          \
			poison = vec_add(poison, vec_sub(x, x));                          \
			largest = vec_max(largest, score);                                \
			vec_store(work->scores + e, score);                               \
			vec_store(work->values + e, vec_add(score, route_bias(work, e))); \
		}                                                                         \
		work->largest_score = vec_max_lane(largest);                              \
		return vec_sum(poison) == 0.0f;                                           \
	}

ROUTE_SCORE_COLUMNS(route_sigmoids, route_sigmoid)
ROUTE_SCORE_COLUMNS(route_sqrtsoftpluses, route_sqrtsoftplus)

/* values += bias, for values that are not scores + bias already. */
VEC_FN void route_add_bias(struct route_work *work, const float *from)
{
	for (uint32_t e = 0; e < work->n_padded; e += VEC_LANES)
		vec_store(work->values + e, vec_add(vec_load(from + e), route_bias(work, e)));
}

VEC_FN bool route_by_logit(const struct mtk_route_config *config)
{
	return config->choose_by == MTK_ROUTE_BY_LOGIT ||
	       config->bias == MTK_ROUTE_BIAS_LOGIT_CHOICE ||
	       config->scoring == MTK_ROUTE_SOFTMAX_SELECTED;
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

VEC_FN float route_error(const struct route_work *work)
{
	float relative = work->config->scoring == MTK_ROUTE_SOFTMAX && !route_by_logit(work->config)
				 ? ROUTE_ERROR_SOFTMAX
				 : ROUTE_ERROR_SIGMOID;

	return relative * (work->largest_score + work->largest_bias) + ROUTE_ERROR_FLUSH;
}

/* Logits in this range have distinct scores in double precision. */
VEC_FN bool route_is_distinct(const struct route_work *work, float largest, float logit)
{
	if (!(fabsf(logit) >= 1e-6f) || logit < -80.0f)
		return false;
	switch (work->config->scoring) {
	case MTK_ROUTE_SOFTMAX:
		return fabsf(largest) <= 64.0f && largest - logit < 80.0f;
	case MTK_ROUTE_SIGMOID:
		return logit <= 16.0f;
	default:
		return logit <= 1e30f;
	}
}

/* Whether `above` certainly comes before `below`, the next one in the computed order. */
VEC_FN bool route_is_certain(const struct route_work *work, float largest, float above, float below,
			     float error)
{
	if (work->mode == ROUTE_EXACT || below == -INFINITY)
		return true;
	if (work->mode == ROUTE_MONOTONE)
		return route_is_distinct(work, largest, above) &&
		       route_is_distinct(work, largest, below);
	return above - below > 2.0f * error;
}

/* A lane a group; lanes beyond the last group hold minus infinity. */
VEC_FN void route_group_scores(const struct route_work *work, float *ret_scores)
{
	const struct vec lowest = vec_set1(-INFINITY);
	const uint32_t first = work->n_group < VEC_LANES ? work->n_group : VEC_LANES;
	const uint32_t second = work->n_group - first;

	vec_store(ret_scores, lowest);
	for (uint32_t g = 0; g < work->config->n_groups; g++) {
		const float *values = work->values + (size_t)g * work->n_group;
		struct vec a = vec_keep_first(vec_load(values), first, lowest);
		struct vec b = lowest;
		float next;

		if (second > 0)
			b = vec_keep_first(vec_load(values + VEC_LANES), second, lowest);
		ret_scores[g] = vec_top2(a, b, &next);
		ret_scores[g] += work->n_top == 2 ? next : 0.0f;
	}
}

/* The grouped variant's choice of groups: a bit each; 0 where it is not certain. */
VEC_FN uint32_t route_keep_grouped(struct route_work *work)
{
	const uint32_t n_keep = work->config->n_keep_groups;
	const struct vec zero = vec_set1(0.0f), one = vec_set1(1.0f), lowest = vec_set1(-INFINITY);
	const struct vec keep = vec_set1((float)n_keep - 0.5f);
	const float error = (float)work->n_top * route_error(work);
	float each[VEC_LANES];
	struct vec rank = zero, scores;
	float last_kept, best_left;
	uint32_t kept;

	route_group_scores(work, each);
	scores = vec_load(each);
	for (uint32_t g = 0; g < work->config->n_groups; g++)
		rank = vec_add(rank, vec_choose_less(scores, vec_set1(each[g]), one, zero));
	kept = vec_less_bits(rank, keep);
	/* Equal scores have equal ranks: then too many groups are kept. */
	if ((uint32_t)__builtin_popcount(kept) != n_keep)
		return 0;
	last_kept = -vec_max_lane(vec_choose_less(rank, keep, vec_sub(zero, scores), lowest));
	best_left = vec_max_lane(vec_choose_less(rank, keep, lowest, scores));
	return route_is_certain(work, vec_max_lane(scores), last_kept, best_left, error) ? kept : 0;
}

/* Leave the blocks of the groups that were not kept out of the list, or their lanes. */
VEC_FN void route_drop_grouped(struct route_work *work, uint32_t kept)
{
	const uint32_t n_group_blocks = work->n_group / VEC_LANES;

	if (work->n_group % VEC_LANES != 0) {
		for (uint32_t g = 0; g < work->config->n_groups; g++)
			for (uint32_t e = 0; !(kept >> g & 1) && e < work->n_group; e++)
				work->values[(size_t)g * work->n_group + e] = -INFINITY;
		return;
	}
	work->n_blocks = 0;
	for (uint32_t g = 0; g < work->config->n_groups; g++) {
		/* Written whether kept or not: a branch would mispredict half of the time. */
		for (uint32_t i = 0; i < n_group_blocks; i++)
			work->blocks[work->n_blocks + i] = g * work->n_group + i * VEC_LANES;
		work->n_blocks += (kept >> g & 1) * n_group_blocks;
	}
}

/* The sum of the n_top largest values of a group, in any order of columns. */
VEC_FN float route_sum_largest(const struct route_work *work, const float *values)
{
	float largest[MTK_ROUTE_MAX_TOP_K];
	const uint32_t n_top = work->n_top;
	double sum = 0.0;

	for (uint32_t i = 0; i < n_top; i++)
		largest[i] = -INFINITY;
	for (uint32_t e = 0; e < work->n_group; e++) {
		float value = values[e];

		for (uint32_t i = 0; value > largest[n_top - 1] && i < n_top; i++) {
			float old = largest[i];

			if (value > old) {
				largest[i] = value;
				value = old;
			}
		}
	}
	for (uint32_t i = 0; i < n_top; i++)
		sum += largest[i];
	return (float)sum;
}

/* The general variant's choice of groups, applied. Returns whether it is certain. */
VEC_FN bool route_keep_general(struct route_work *work)
{
	const uint32_t n_groups = work->config->n_groups;
	const float error = (float)work->n_top * route_error(work);
	float scores[MTK_ROUTE_MAX_GROUPS];
	float last_kept = INFINITY, best_left = -INFINITY, largest = -INFINITY;

	for (uint32_t g = 0; g < n_groups; g++) {
		scores[g] = route_sum_largest(work, work->values + (size_t)g * work->n_group);
		largest = scores[g] > largest ? scores[g] : largest;
	}
	for (uint32_t g = 0; g < n_groups; g++) {
		uint32_t n_above = 0;

		for (uint32_t h = 0; h < n_groups; h++)
			n_above += scores[h] > scores[g] || (scores[h] == scores[g] && h < g);
		if (n_above < work->config->n_keep_groups) {
			last_kept = scores[g] < last_kept ? scores[g] : last_kept;
			continue;
		}
		best_left = scores[g] > best_left ? scores[g] : best_left;
		for (uint32_t e = 0; e < work->n_group; e++)
			work->values[(size_t)g * work->n_group + e] = -INFINITY;
	}
	return last_kept > best_left &&
	       route_is_certain(work, largest, last_kept, best_left, error);
}

VEC_FN bool route_keep_groups(struct route_work *work)
{
	uint32_t kept;

	if (!work->has_groups)
		return true;
	if (!work->is_grouped)
		return route_keep_general(work);
	kept = route_keep_grouped(work);
	if (kept == 0)
		return false;
	route_drop_grouped(work, kept);
	return true;
}

VEC_FN void route_block_maxima(struct route_work *work)
{
	uint32_t i = 0;

	for (; i < work->n_blocks; i++)
		work->block_max[i] = vec_max_lane(vec_load(work->values + work->blocks[i]));
	for (; i % VEC_LANES != 0; i++)
		work->block_max[i] = -INFINITY;
}

/* One after another. */
VEC_FN void route_take_each(struct route_work *work, uint32_t n_take, int32_t *ids)
{
	route_block_maxima(work);
	for (uint32_t j = 0; j < n_take; j++) {
		struct vec max = vec_load(work->block_max);
		uint32_t block = 0, equal;
		float *values;

		for (uint32_t i = VEC_LANES; i < work->n_blocks; i += VEC_LANES)
			max = vec_max(max, vec_load(work->block_max + i));
		max = vec_set1(vec_max_lane(max));
		while ((equal = vec_equal_bits(vec_load(work->block_max + block), max)) == 0)
			block += VEC_LANES;
		block += (uint32_t)__builtin_ctz(equal);
		/* Beyond the last block there is minus infinity, too: all are taken. */
		block = block < work->n_blocks ? block : 0;
		values = work->values + work->blocks[block];
		equal = (uint32_t)__builtin_ctz(vec_equal_bits(vec_load(values), max));
		ids[j] = (int32_t)(work->blocks[block] + equal);
		work->found[j] = vec_first(max);
		values[equal] = -INFINITY;
		work->block_max[block] = vec_max_lane(vec_load(values));
	}
}

/* Candidates that are ranked by counting, in two vectors. */
#define ROUTE_CANDIDATES (2 * VEC_LANES)

/*
 * A value that at least n_take columns reach and few more do: of the largest value in each lane,
 * the n_take-th. Minus infinity where there are fewer.
 */
VEC_FN float route_threshold(const struct route_work *work, uint32_t n_take)
{
	const struct vec zero = vec_set1(0.0f), one = vec_set1(1.0f), lowest = vec_set1(-INFINITY);
	struct vec lanes = lowest;
	struct vec rank = zero, rank2 = zero, reached;
	float each[VEC_LANES];

	for (uint32_t i = 0; i < work->n_blocks; i++)
		lanes = vec_max(lanes, vec_load(work->values + work->blocks[i]));
	vec_store(each, lanes);
	VEC_UNROLL for (uint32_t i = 0; i < VEC_LANES; i += 2)
	{
		rank = vec_add(rank, vec_choose_less(lanes, vec_set1(each[i]), one, zero));
		rank2 = vec_add(rank2, vec_choose_less(lanes, vec_set1(each[i + 1]), one, zero));
	}
	rank = vec_add(rank, rank2);
	reached = vec_choose_less(rank, vec_set1((float)n_take), vec_sub(zero, lanes), lowest);
	return n_take <= VEC_LANES ? -vec_max_lane(reached) : -INFINITY;
}

/* The columns at or above the threshold, ascending; 0 where there are too many. */
VEC_FN uint32_t route_candidates(const struct route_work *work, float threshold, int32_t *ids,
				 float *values)
{
	const struct vec least = vec_set1(threshold);
	uint32_t n = 0;

	for (uint32_t i = 0; i < work->n_blocks && n <= ROUTE_CANDIDATES; i++) {
		const float *part = work->values + work->blocks[i];

		n += vec_append(part, vec_less_bits(vec_load(part), least) ^ 0xffff,
				(int32_t)work->blocks[i], values + n, ids + n);
	}
	return n <= ROUTE_CANDIDATES ? n : 0;
}

/*
 * Put a candidate into its place: the number of those above it, and of its equals before it, which
 * have lower ids.
 */
VEC_FN void route_rank(struct route_work *work, uint32_t above, uint32_t equal, uint32_t i,
		       int32_t id, float value, int32_t *ret_ids)
{
	uint32_t rank = (uint32_t)__builtin_popcount(above) +
			(uint32_t)__builtin_popcount(equal & ((1u << i) - 1));

	ret_ids[rank] = id;
	work->found[rank] = value;
}

/*
 * All n_take at once, by the ranks of the candidates. Places beyond the last one hold minus
 * infinity and rank behind. Returns false where candidates are too few or too many.
 */
VEC_FN bool route_take_ranked(struct route_work *work, uint32_t n_take, int32_t *ret_ids)
{
	const float threshold = route_threshold(work, n_take);
	const struct vec lowest = vec_set1(-INFINITY);
	float values[ROUTE_CANDIDATES + VEC_LANES];
	int32_t ids[ROUTE_CANDIDATES + VEC_LANES];
	struct vec low, high;
	uint32_t n;

	if (threshold == -INFINITY)
		return false;
	vec_store(values, lowest);
	vec_store(values + VEC_LANES, lowest);
	n = route_candidates(work, threshold, ids, values);
	vec_store(values + n, lowest);
	low = vec_load(values);
	high = vec_load(values + VEC_LANES);
	if (n <= VEC_LANES) {
		VEC_UNROLL for (uint32_t i = 0; i < VEC_LANES; i++)
		{
			const struct vec value = vec_set1(values[i]);

			route_rank(work, vec_less_bits(value, low), vec_equal_bits(value, low), i,
				   ids[i], values[i], ret_ids);
		}
		return n != 0;
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct vec value = vec_set1(values[i]);

		route_rank(work, vec_less_bits(value, low) | vec_less_bits(value, high) << 16,
			   vec_equal_bits(value, low) | vec_equal_bits(value, high) << 16, i,
			   ids[i], values[i], ret_ids);
	}
	return true;
}

/* Take top_k experts and look at the best one left. Returns whether the order is certain. */
VEC_FN bool route_take(struct route_work *work, struct mtk_route_choice *choice)
{
	const uint32_t top_k = work->config->top_k;
	const uint32_t n_take = top_k < work->n ? top_k + 1 : top_k;
	const float error = route_error(work);
	int32_t ids[MTK_ROUTE_MAX_TOP_K + 1];

	if (!route_take_ranked(work, n_take, ids))
		route_take_each(work, n_take, ids);
	for (uint32_t j = 1; j < n_take; j++)
		if (!route_is_certain(work, work->found[0], work->found[j - 1], work->found[j],
				      error))
			return false;
	if (n_take > top_k && work->found[top_k] == work->found[top_k - 1])
		choice->flags |= MTK_ROUTE_FLAG_TIE;
	memcpy(choice->ids, ids, top_k * sizeof(*ids));
	return true;
}

/* Scores of the chosen from their logits, where the other columns' are not needed. */
VEC_FN void route_score_chosen(const struct route_work *work, const float *logits,
			       const int32_t *ids, float *ret_scores)
{
	const uint32_t top_k = work->config->top_k;

	for (uint32_t j = 0; j < 2 * VEC_LANES; j++)
		ret_scores[j] = j < top_k ? logits[ids[j]] : 0.0f;
	for (uint32_t j = 0; j < top_k; j += VEC_LANES) {
		struct vec x = vec_load(ret_scores + j);

		vec_store(ret_scores + j, work->config->scoring == MTK_ROUTE_SIGMOID
						  ? route_sigmoid(x)
						  : route_sqrtsoftplus(x));
	}
}

VEC_FN void route_softmax_chosen(const struct route_work *work, const float *logits,
				 struct mtk_route_choice *choice)
{
	const uint32_t top_k = work->config->top_k;
	float max = -INFINITY;
	double sum = 0.0;

	for (uint32_t j = 0; j < top_k; j++)
		max = fmaxf(max, logits[choice->ids[j]]);
	for (uint32_t j = 0; j < top_k; j++) {
		float x = logits[choice->ids[j]] - max;

		choice->weights[j] = vec_first(vec_exp(vec_set1(x)));
		sum += choice->weights[j];
	}
	for (uint32_t j = 0; j < top_k; j++)
		choice->weights[j] /= sum;
}

/* Returns false where the scores are so small that fp32 has lost them. */
VEC_FN bool route_scores_chosen(const struct route_work *work, const float *logits,
				struct mtk_route_choice *choice)
{
	const struct mtk_route_config *config = work->config;
	const bool is_softmax = config->scoring == MTK_ROUTE_SOFTMAX;
	const bool has_all = work->mode == ROUTE_BOUNDED && !route_by_logit(config);
	float chosen[2 * VEC_LANES];
	double sum = 0.0;

	if (config->scoring == MTK_ROUTE_SOFTMAX_SELECTED) {
		route_softmax_chosen(work, logits, choice);
		return true;
	}
	if (!is_softmax && !has_all)
		route_score_chosen(work, logits, choice->ids, chosen);
	for (uint32_t j = 0; j < config->top_k; j++) {
		int32_t id = choice->ids[j];

		if (is_softmax)
			choice->weights[j] = (double)work->scores[id] / (double)work->sum;
		else
			choice->weights[j] = has_all ? work->scores[id] : chosen[j];
		sum += choice->weights[j];
	}
	return sum > 1e-12;
}

VEC_FN bool route_row_vec(struct route_work *work, const struct mtk_route_row *row,
			  struct mtk_route_choice *choice)
{
	choice->flags = 0;
	if (!route_score(work, row->logits))
		return false;
	route_pad(work);
	if (!route_keep_groups(work) || !route_take(work, choice) ||
	    !route_scores_chosen(work, row->logits, choice))
		return false;
	mtk_route_weigh(work->config, choice->weights);
	return true;
}

VEC_FN struct route_work route_work_make(const struct mtk_route_config *config, void *scratch)
{
	const bool has_groups =
		config->groups != MTK_ROUTE_GROUPS_NONE && config->n_keep_groups < config->n_groups;
	const uint32_t n = mtk_route_columns(config);
	const uint32_t n_padded = (n + VEC_LANES - 1) / VEC_LANES * VEC_LANES;
	struct route_work work = {
		.config = config,
		.is_grouped = mtk_route_variant_choose(config) == MTK_ROUTE_VARIANT_GROUPED,
		.has_groups = has_groups,
		.n = n,
		.n_padded = n_padded,
		.n_group = has_groups ? n / config->n_groups : 0,
		.n_top = config->groups == MTK_ROUTE_GROUPS_MAX	   ? 1
			 : config->groups == MTK_ROUTE_GROUPS_TOP2 ? 2
								   : config->group_top_n,
		.definition = scratch,
		.sum = 1.0f,
	};
	const uint32_t n_max_blocks = (n_padded / VEC_LANES + 15) / 16 * 16;
	bool has_sums = (has_groups && work.n_top > 1) || config->bias != MTK_ROUTE_BIAS_NONE;

	work.mode = has_sums		     ? ROUTE_BOUNDED
		    : route_by_logit(config) ? ROUTE_EXACT
					     : ROUTE_MONOTONE;
	work.scores = (float *)scratch + 4 * (size_t)n_padded;
	work.values = work.scores + n_padded + 32;
	work.bias = work.values + n_padded + 32;
	work.block_max = work.bias + n_padded + 32;
	work.blocks = (uint32_t *)(work.block_max + n_max_blocks);
	work.n_blocks = n_padded / VEC_LANES;
	for (uint32_t i = 0; i < work.n_blocks; i++)
		work.blocks[i] = i * VEC_LANES;
	return work;
}

static VEC_TARGET void route_vec(const struct mtk_route_config *config,
				 const struct mtk_route_batch *batch, uint32_t begin, uint32_t end,
				 void *scratch, const struct mtk_route_result *result)
{
	const uint32_t n_valid = end < batch->n_valid_rows ? end : batch->n_valid_rows;
	struct route_work work;
	struct mtk_route_choice choice;
	bool is_usable = true;

	if (mtk_route_variant_choose(config) == MTK_ROUTE_VARIANT_PLAIN) {
		mtk_route_plain(config, batch, begin, end, scratch, result);
		return;
	}
	work = route_work_make(config, scratch);
	if (config->bias != MTK_ROUTE_BIAS_NONE && !config->bias_per_token && begin < n_valid)
		is_usable = route_center(&work, batch->bias);
	for (; begin < n_valid; begin++) {
		struct mtk_route_row row = mtk_route_row_of(config, batch, begin);

		if (config->bias_per_token)
			is_usable = route_center(&work, row.bias);
		if (!is_usable || !route_row_vec(&work, &row, &choice))
			mtk_route_define_row(&row, work.definition, &choice);
		mtk_route_write_row(config, &choice, begin, result);
	}
	for (; begin < end; begin++)
		mtk_route_write_empty_row(config, begin, 0, result);
}
