/* SPDX-License-Identifier: MIT */
/*
 * The definition of routing (route_cpu.c) for one warp, in double precision and in the same
 * steps: a column's choosing value lies in shared memory; a column that was taken or lies in a
 * group that was not kept has minus infinity there, below LOWEST, the value of a NaN or of minus
 * infinity. Scores are computed again where they are needed.
 */
#ifndef MTK_ROUTE_ROUTE_DEFINE_CUH
#define MTK_ROUTE_ROUTE_DEFINE_CUH

#include <float.h>
#include <math.h>

#include "kernels/route/route_args.cuh"

#define ROUTE_LOWEST (-DBL_MAX)

/* Of softmax over all columns: the largest logit, and the sum of the exponentials. */
struct route_norm {
	double max;
	double sum;
};

static __device__ double define_logit(const struct route_row *row, uint32_t e)
{
	const struct mtk_route_config *config = &row->args->config;
	double x = row->logits[e];

	if (config->soft_cap > 0.0)
		x = config->soft_cap * tanh(x / config->soft_cap);
	return config->bias == MTK_ROUTE_BIAS_LOGIT ? x + row->bias[e] : x;
}

static __device__ bool define_is_nan(const struct route_row *row, uint32_t e)
{
	return isnan(define_logit(row, e)) || (row->bias && isnan(row->bias[e]));
}

static __device__ double define_sum(double value)
{
	for (int step = 16; step > 0; step /= 2)
		value += __shfl_xor_sync(ROUTE_ALL_LANES, value, step);
	return value;
}

static __device__ double define_max(double value)
{
	for (int step = 16; step > 0; step /= 2)
		value = fmax(value, __shfl_xor_sync(ROUTE_ALL_LANES, value, step));
	return value;
}

static __device__ double define_power(double x, double max)
{
	if (max == -INFINITY)
		return 0.0;
	/* The difference of two infinities would be NaN. */
	return x == max ? 1.0 : exp(x - max);
}

static __device__ double define_score_logit(const struct route_row *row, uint32_t e)
{
	return define_is_nan(row, e) ? -INFINITY : define_logit(row, e);
}

static __device__ __noinline__ struct route_norm define_norm(const struct route_row *row)
{
	const uint32_t lane = threadIdx.x % 32;
	struct route_norm norm = {-INFINITY, 0.0};

	for (uint32_t e = lane; e < row->args->n; e += 32)
		norm.max = fmax(norm.max, define_score_logit(row, e));
	norm.max = define_max(norm.max);
	for (uint32_t e = lane; e < row->args->n; e += 32)
		norm.sum += define_power(define_score_logit(row, e), norm.max);
	norm.sum = define_sum(norm.sum);
	return norm;
}

static __device__ struct route_norm define_norm_if(const struct route_row *row)
{
	const struct route_norm none = {0.0, 1.0};

	return row->args->config.scoring == MTK_ROUTE_SOFTMAX ? define_norm(row) : none;
}

static __device__ double define_sigmoid(double x)
{
	double power = exp(-fabs(x));

	return x < 0.0 ? power / (1.0 + power) : 1.0 / (1.0 + power);
}

static __device__ double define_sqrtsoftplus(enum mtk_route_softplus form, double x)
{
	x = x > (double)FLT_MAX ? (double)FLT_MAX : x;
	if (form == MTK_ROUTE_SOFTPLUS_LOG)
		return sqrt(x > 20.0 ? x : log((double)(float)(1.0 + exp(x))));
	return sqrt((x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x))));
}

static __device__ double define_score(const struct route_row *row, struct route_norm norm,
				      uint32_t e)
{
	const struct mtk_route_config *config = &row->args->config;
	const double x = define_score_logit(row, e);

	switch (config->scoring) {
	case MTK_ROUTE_SOFTMAX:
		return norm.sum > 0.0 ? define_power(x, norm.max) / norm.sum : 0.0;
	case MTK_ROUTE_SIGMOID:
		return define_sigmoid(x);
	case MTK_ROUTE_SQRTSOFTPLUS:
		return define_sqrtsoftplus(config->softplus, x);
	default:
		return x;
	}
}

static __device__ bool define_is_by_logit(const struct mtk_route_config *config)
{
	return config->choose_by == MTK_ROUTE_BY_LOGIT ||
	       config->bias == MTK_ROUTE_BIAS_LOGIT_CHOICE ||
	       config->scoring == MTK_ROUTE_SOFTMAX_SELECTED ||
	       config->scoring == MTK_ROUTE_SPARSEMIXER;
}

/* The choosing value of a column. */
static __device__ __noinline__ double define_value(const struct route_row *row,
						   struct route_norm norm, uint32_t e)
{
	const struct mtk_route_config *config = &row->args->config;
	double value =
		define_is_by_logit(config) ? define_logit(row, e) : define_score(row, norm, e);

	if (config->bias == MTK_ROUTE_BIAS_SCORE || config->bias == MTK_ROUTE_BIAS_LOGIT_CHOICE)
		value += row->bias[e];
	/* Whatever is NaN or minus infinity fails the comparison. */
	return value > ROUTE_LOWEST && !define_is_nan(row, e) ? value : ROUTE_LOWEST;
}

/* The sum of the n largest of values [0, size), each counted as often as it occurs. */
static __device__ double define_sum_largest(uint32_t size, const double *values, uint32_t n)
{
	double largest[MTK_ROUTE_MAX_TOP_K];
	uint32_t n_found = 0;
	double sum = 0.0;

	for (uint32_t e = 0; e < size; e++) {
		uint32_t place = n_found < n ? n_found++ : n;

		for (; place > 0 && values[e] > largest[place - 1]; place--)
			if (place < n)
				largest[place] = largest[place - 1];
		if (place < n)
			largest[place] = values[e];
	}
	for (uint32_t i = 0; i < n_found; i++)
		sum += largest[i];
	return sum > ROUTE_LOWEST ? sum : ROUTE_LOWEST;
}

static __device__ uint32_t define_top_n(const struct mtk_route_config *config)
{
	switch (config->groups) {
	case MTK_ROUTE_GROUPS_MAX:
		return 1;
	case MTK_ROUTE_GROUPS_TOP2:
		return 2;
	default:
		return config->group_top_n;
	}
}

/* Take the columns of all groups but the best out of the choice. Returns flags. */
static __device__ uint8_t define_keep_groups(const struct route_args *args, double *values,
					     double *group_scores)
{
	const struct mtk_route_config *config = &args->config;
	const uint32_t lane = threadIdx.x % 32;
	const uint32_t n_groups = config->n_groups;
	const uint32_t size = args->n / n_groups;
	double last_kept = INFINITY, best_left = -INFINITY;

	for (uint32_t g = lane; g < n_groups; g += 32)
		group_scores[g] =
			define_sum_largest(size, values + (size_t)g * size, define_top_n(config));
	__syncwarp();
	for (uint32_t g = lane; g < n_groups; g += 32) {
		const double score = group_scores[g];
		uint32_t n_above = 0;

		for (uint32_t h = 0; h < n_groups; h++)
			n_above += group_scores[h] > score || (group_scores[h] == score && h < g);
		if (n_above < config->n_keep_groups) {
			last_kept = fmin(last_kept, score);
			continue;
		}
		best_left = fmax(best_left, score);
		for (uint32_t e = g * size; e < (g + 1) * size; e++)
			values[e] = -INFINITY;
	}
	last_kept = -define_max(-last_kept);
	best_left = define_max(best_left);
	__syncwarp();
	return last_kept == best_left ? MTK_ROUTE_FLAG_TIE : 0;
}

struct route_best {
	double value;
	uint32_t id;
};

/* The largest value, the lowest id among equals. */
static __device__ struct route_best define_best(uint32_t n, const double *values)
{
	struct route_best best = {-INFINITY, UINT32_MAX};

	for (uint32_t e = threadIdx.x % 32; e < n; e += 32)
		if (values[e] > best.value)
			best = {values[e], e};
	for (int step = 16; step > 0; step /= 2) {
		struct route_best other;

		other.value = __shfl_xor_sync(ROUTE_ALL_LANES, best.value, step);
		other.id = __shfl_xor_sync(ROUTE_ALL_LANES, best.id, step);
		if (other.value > best.value || (other.value == best.value && other.id < best.id))
			best = other;
	}
	return best;
}

/* A softmax over the experts not yet taken that are near the best one; see route_cpu.c. */
static __device__ double define_sparsemixer(const struct route_args *args, const double *values,
					    double max)
{
	const double threshold = 2.0 * args->config.jitter;
	double sum = 0.0;

	if (max == ROUTE_LOWEST)
		return 0.0;
	for (uint32_t e = threadIdx.x % 32; e < args->n; e += 32) {
		double x = values[e];

		if (x == -INFINITY || x == ROUTE_LOWEST)
			continue;
		if (x == max)
			sum += 1.0;
		else if (!((max - x) / fmax(fabs(x), max) > threshold))
			sum += exp(x - max);
	}
	return 1.0 / define_sum(sum);
}

/* Of softmax over the selected it is the logit; see route_cpu.c. */
static __device__ double define_weight(const struct route_row *row, struct route_norm norm,
				       uint32_t e, double value, uint8_t *flags)
{
	const bool is_selected = row->args->config.scoring == MTK_ROUTE_SOFTMAX_SELECTED;

	if (value != ROUTE_LOWEST && define_logit(row, e) != -INFINITY)
		return is_selected ? define_logit(row, e) : define_score(row, norm, e);
	*flags |= MTK_ROUTE_FLAG_FEW;
	return is_selected ? -INFINITY : 0.0;
}

/* Renormalised and scaled; lanes from top_k on hold 0. */
static __device__ float define_weigh(const struct mtk_route_config *config, double weight)
{
	const double sum = define_sum(weight);
	const double scale = config->scale_owner == MTK_ROUTE_SCALE_IN_ROUTER ? config->scale : 1.0;
	double divisor = 1.0;

	switch (config->renormalise) {
	case MTK_ROUTE_RENORMALISE_EPSILON:
		divisor = sum + 1e-20;
		break;
	case MTK_ROUTE_RENORMALISE_IF_POSITIVE:
		divisor = sum > 0.0 ? sum : 1.0;
		break;
	case MTK_ROUTE_RENORMALISE_CLAMP:
		divisor = sum > config->renormalise_min ? sum : config->renormalise_min;
		break;
	default:
		break;
	}
	/* Not by the reciprocal, which a sum of denormal scores does not have. */
	return (float)(weight / divisor * scale);
}

static __device__ double define_softmax_selected(double logit, bool has_entry)
{
	const double max = define_max(has_entry ? logit : -INFINITY);
	const double power = has_entry ? define_power(logit, max) : 0.0;
	const double sum = define_sum(power);

	return sum > 0.0 ? power / sum : power;
}

static __device__ uint8_t define_nan_flag(const struct route_row *row)
{
	bool has_nan = false;

	for (uint32_t e = threadIdx.x % 32; e < row->args->n; e += 32)
		has_nan = has_nan || define_is_nan(row, e);
	return __any_sync(ROUTE_ALL_LANES, has_nan) ? MTK_ROUTE_FLAG_NAN : 0;
}

/* Lane j's weight before renormalisation becomes its entry; flags are joined. */
static __device__ struct route_entry define_finish(const struct route_args *args, int32_t id,
						   double weight, uint8_t *flags)
{
	const bool has_entry = threadIdx.x % 32 < args->config.top_k;

	if (args->config.scoring == MTK_ROUTE_SOFTMAX_SELECTED)
		weight = define_softmax_selected(weight, has_entry);
	*flags = (uint8_t)__reduce_or_sync(ROUTE_ALL_LANES, *flags);
	return {id, define_weigh(&args->config, has_entry ? weight : 0.0)};
}

/* Choose and weigh one row; values is [n], group_scores [n_groups], in shared memory. */
static __device__ __noinline__ struct route_entry
define_row(const struct route_row *row, double *values, double *group_scores, uint8_t *ret_flags)
{
	const struct route_args *args = row->args;
	const uint32_t lane = threadIdx.x % 32;
	const struct route_norm norm = define_norm_if(row);
	uint8_t flags = define_nan_flag(row);
	double weight = 0.0, last = 0.0;
	int32_t id = -1;

	for (uint32_t e = lane; e < args->n; e += 32)
		values[e] = define_value(row, norm, e);
	__syncwarp();
	if (args->config.groups != MTK_ROUTE_GROUPS_NONE)
		flags |= define_keep_groups(args, values, group_scores);
	for (uint32_t j = 0; j < args->config.top_k; j++) {
		struct route_best best = define_best(args->n, values);
		double mixed = 0.0;

		if (args->config.scoring == MTK_ROUTE_SPARSEMIXER)
			mixed = define_sparsemixer(args, values, best.value);
		last = best.value;
		/* All have read what the next step changes. */
		__syncwarp();
		if (lane == j) {
			id = (int32_t)best.id;
			weight = define_weight(row, norm, best.id, last, &flags);
			if (args->config.scoring == MTK_ROUTE_SPARSEMIXER)
				weight = mixed;
			values[best.id] = -INFINITY;
		}
		__syncwarp();
	}
	if (define_best(args->n, values).value == last)
		flags |= MTK_ROUTE_FLAG_TIE;
	*ret_flags = flags;
	return define_finish(args, id, weight, ret_flags);
}

/*
 * The margin of a row behind define_row(), which left in values what it did not take; lane j has
 * entry j's column.
 */
static __device__ float define_margin(const struct route_row *row, const double *values, int32_t id)
{
	const struct route_args *args = row->args;
	const struct route_norm norm = define_norm_if(row);
	const int32_t last_id =
		__shfl_sync(ROUTE_ALL_LANES, id, static_cast<int>(args->config.top_k) - 1);
	const double last = define_value(row, norm, static_cast<uint32_t>(last_id));
	const double next = define_best(args->n, values).value;
	const double margin = last - next;

	if (last == next)
		return 0.0f;
	if (margin > static_cast<double>(FLT_MAX))
		return INFINITY;
	/* The least float above 0, where it would be rounded to 0. */
	return margin > 1.5e-45 ? static_cast<float>(margin) : __int_as_float(1);
}

/* The same for a layer whose ids follow from the token id, which is in the table. */
static __device__ struct route_entry define_hash_row(const struct route_row *row, int32_t token,
						     uint8_t *ret_flags)
{
	const struct route_args *args = row->args;
	const uint32_t lane = threadIdx.x % 32;
	const uint32_t top_k = args->config.top_k;
	const struct route_norm norm = define_norm_if(row);
	uint8_t flags = define_nan_flag(row);
	double weight = 0.0;
	int32_t id = -1;

	if (lane < top_k) {
		id = args->hash_table[(size_t)token * top_k + lane];
		weight = define_weight(row, norm, (uint32_t)id,
				       define_is_nan(row, (uint32_t)id) ? ROUTE_LOWEST : 0.0,
				       &flags);
	}
	*ret_flags = flags;
	return define_finish(args, id, weight, ret_flags);
}

#endif
