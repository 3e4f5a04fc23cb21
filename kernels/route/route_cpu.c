/* SPDX-License-Identifier: MIT */
/*
 * The definition of routing, in double precision: score, choose, weigh. Of the two numbers a
 * column has in scratch, one is its score and one its choosing value. A column that was taken or
 * lies in a group that was not kept has the choosing value minus infinity, below the lowest value
 * of those that may still be chosen.
 */
#include <float.h>
#include <math.h>

#include "kernels/route/route_impl.h"

/* The choosing value of a NaN or of minus infinity. */
#define LOWEST (-DBL_MAX)

/* The logit that scores are made of; NaN passes through. */
static double logit_at(const struct mtk_route_row *row, uint32_t e)
{
	const double cap = row->config->soft_cap;
	double x = row->logits[e];

	if (cap > 0.0)
		x = cap * tanh(x / cap);
	return row->config->bias == MTK_ROUTE_BIAS_LOGIT ? x + row->bias[e] : x;
}

static bool is_nan_at(const struct mtk_route_row *row, uint32_t e)
{
	return isnan(logit_at(row, e)) || (row->bias && isnan(row->bias[e]));
}

/* e^(logit - max) for each column; all 0 when the largest logit is minus infinity. */
static double exponentials(uint32_t n, double *logits)
{
	double max = -INFINITY;
	double sum = 0.0;

	for (uint32_t e = 0; e < n; e++)
		max = logits[e] > max ? logits[e] : max;
	for (uint32_t e = 0; e < n; e++) {
		if (max == -INFINITY)
			logits[e] = 0.0;
		else /* The difference of two infinities would be NaN. */
			logits[e] = logits[e] == max ? 1.0 : exp(logits[e] - max);
		sum += logits[e];
	}
	return sum;
}

void mtk_route_softmax(uint32_t n, double *logits)
{
	double sum = exponentials(n, logits);

	for (uint32_t e = 0; sum > 0.0 && e < n; e++)
		logits[e] /= sum;
}

static double sigmoid(double x)
{
	double power = exp(-fabs(x));

	return x < 0.0 ? power / (1.0 + power) : 1.0 / (1.0 + power);
}

static double sqrtsoftplus(enum mtk_route_softplus form, double x)
{
	x = x > (double)FLT_MAX ? (double)FLT_MAX : x;
	if (form == MTK_ROUTE_SOFTPLUS_LOG)
		return sqrt(x > 20.0 ? x : log((double)(float)(1.0 + exp(x))));
	return sqrt((x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x))));
}

static void score_columns(const struct mtk_route_row *row, double *scores)
{
	const struct mtk_route_config *config = row->config;

	for (uint32_t e = 0; e < row->n; e++) {
		scores[e] = logit_at(row, e);
		if (is_nan_at(row, e))
			scores[e] = -INFINITY;
		if (config->scoring == MTK_ROUTE_SIGMOID)
			scores[e] = sigmoid(scores[e]);
		else if (config->scoring == MTK_ROUTE_SQRTSOFTPLUS)
			scores[e] = sqrtsoftplus(config->softplus, scores[e]);
	}
	if (config->scoring == MTK_ROUTE_SOFTMAX)
		mtk_route_softmax(row->n, scores);
}

static bool chooses_by_logit(const struct mtk_route_config *config)
{
	return config->choose_by == MTK_ROUTE_BY_LOGIT ||
	       config->bias == MTK_ROUTE_BIAS_LOGIT_CHOICE ||
	       config->scoring == MTK_ROUTE_SOFTMAX_SELECTED ||
	       config->scoring == MTK_ROUTE_SPARSEMIXER;
}

static void value_columns(const struct mtk_route_row *row, const double *scores, double *values)
{
	const struct mtk_route_config *config = row->config;
	const bool by_logit = chooses_by_logit(config);
	const bool is_added =
		config->bias == MTK_ROUTE_BIAS_SCORE || config->bias == MTK_ROUTE_BIAS_LOGIT_CHOICE;

	for (uint32_t e = 0; e < row->n; e++) {
		double value = by_logit ? logit_at(row, e) : scores[e];

		if (is_added)
			value += row->bias[e];
		/* Whatever is NaN or minus infinity fails the comparison. */
		values[e] = value > LOWEST && !is_nan_at(row, e) ? value : LOWEST;
	}
}

/* The sum of the n largest of values [0, size), each counted as often as it occurs. */
static double sum_largest(uint32_t size, const double *values, uint32_t n)
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
	return sum > LOWEST ? sum : LOWEST;
}

static uint32_t best_of(uint32_t n, const double *values)
{
	uint32_t best = 0;

	for (uint32_t e = 1; e < n; e++)
		if (values[e] > values[best])
			best = e;
	return best;
}

static uint32_t group_top_n(const struct mtk_route_config *config)
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

/* How many groups are better than group g. */
static uint32_t groups_above(uint32_t n_groups, const double *group_scores, uint32_t g)
{
	uint32_t n = 0;

	for (uint32_t h = 0; h < n_groups; h++)
		n += group_scores[h] > group_scores[g] ||
		     (group_scores[h] == group_scores[g] && h < g);
	return n;
}

/* Take the columns of all groups but the best out of the choice. Returns flags. */
static uint8_t keep_groups(const struct mtk_route_config *config, uint32_t n, double *values)
{
	double group_scores[MTK_ROUTE_MAX_GROUPS];
	double last_kept = INFINITY;
	double best_left = -INFINITY;
	const uint32_t size = n / config->n_groups;

	for (uint32_t g = 0; g < config->n_groups; g++)
		group_scores[g] = sum_largest(size, values + (size_t)g * size, group_top_n(config));
	for (uint32_t g = 0; g < config->n_groups; g++) {
		if (groups_above(config->n_groups, group_scores, g) < config->n_keep_groups) {
			last_kept = fmin(last_kept, group_scores[g]);
			continue;
		}
		best_left = fmax(best_left, group_scores[g]);
		for (uint32_t e = g * size; e < (g + 1) * size; e++)
			values[e] = -INFINITY;
	}
	return last_kept == best_left ? MTK_ROUTE_FLAG_TIE : 0;
}

/*
 * The weight of the best expert left: a softmax over the experts not yet taken whose logits are
 * within 2 * jitter of it, relative to the larger magnitude of the two.
 */
static double sparsemixer_weight(const struct mtk_route_row *row, const double *values,
				 uint32_t best)
{
	const double max = values[best];
	const double threshold = 2.0 * row->config->jitter;
	double sum = 0.0;

	if (max == LOWEST)
		return 0.0;
	for (uint32_t e = 0; e < row->n; e++) {
		double x = values[e];

		if (x == -INFINITY || x == LOWEST)
			continue;
		if (x == max)
			sum += 1.0;
		else if (!((max - x) / fmax(fabs(x), max) > threshold))
			sum += exp(x - max);
	}
	return 1.0 / sum;
}

/*
 * The weight of an expert by itself; one that only filled up the row has none. Of the softmax over
 * the selected it is the logit.
 */
double mtk_route_weight_of(const struct mtk_route_row *row, const double *scores, uint32_t e,
			   double value, uint8_t *flags)
{
	const bool is_selected = row->config->scoring == MTK_ROUTE_SOFTMAX_SELECTED;

	if (value != LOWEST && logit_at(row, e) != -INFINITY)
		return is_selected ? logit_at(row, e) : scores[e];
	*flags |= MTK_ROUTE_FLAG_FEW;
	return is_selected ? -INFINITY : 0.0;
}

/* From the value of the last one taken and that of the best one left; minus infinity: none is. */
static float margin_of(double last, double next)
{
	const double margin = last - next;

	/* Not by the difference, which is NaN of two infinities. */
	if (last == next)
		return 0.0f;
	if (margin > (double)FLT_MAX)
		return INFINITY;
	return margin > (double)FLT_TRUE_MIN ? (float)margin : FLT_TRUE_MIN;
}

static void choose_columns(const struct mtk_route_row *row, const double *scores, double *values,
			   struct mtk_route_choice *choice)
{
	const struct mtk_route_config *config = row->config;
	double last = 0.0, next;

	for (uint32_t j = 0; j < config->top_k; j++) {
		uint32_t best = best_of(row->n, values);

		last = values[best];
		choice->ids[j] = (int32_t)best;
		choice->weights[j] = mtk_route_weight_of(row, scores, best, last, &choice->flags);
		if (config->scoring == MTK_ROUTE_SPARSEMIXER)
			choice->weights[j] = sparsemixer_weight(row, values, best);
		values[best] = -INFINITY;
	}
	next = values[best_of(row->n, values)];
	choice->margin = margin_of(last, next);
	if (next == last)
		choice->flags |= MTK_ROUTE_FLAG_TIE;
	if (config->scoring == MTK_ROUTE_SOFTMAX_SELECTED)
		mtk_route_softmax(config->top_k, choice->weights);
}

static uint8_t nan_flag(const struct mtk_route_row *row)
{
	for (uint32_t e = 0; e < row->n; e++)
		if (is_nan_at(row, e))
			return MTK_ROUTE_FLAG_NAN;
	return 0;
}

uint8_t mtk_route_score_row(const struct mtk_route_row *row, double *scores, double *values)
{
	uint8_t flags = nan_flag(row);

	score_columns(row, scores);
	value_columns(row, scores, values);
	if (row->config->groups != MTK_ROUTE_GROUPS_NONE)
		flags |= keep_groups(row->config, row->n, values);
	return flags;
}

void mtk_route_define_row(const struct mtk_route_row *row, double *scratch,
			  struct mtk_route_choice *ret_choice)
{
	double *scores = scratch;
	double *values = scratch + row->n;

	ret_choice->flags = mtk_route_score_row(row, scores, values);
	choose_columns(row, scores, values, ret_choice);
	mtk_route_weigh(row->config, ret_choice->weights);
}

float mtk_route_margin(const struct mtk_route_row *row, const int32_t *ids, double *scratch)
{
	const uint32_t top_k = row->config->top_k;
	double *values = scratch + row->n;
	double last;

	mtk_route_score_row(row, scratch, values);
	last = values[ids[top_k - 1]];
	for (uint32_t j = 0; j < top_k; j++)
		values[ids[j]] = -INFINITY;
	return margin_of(last, values[best_of(row->n, values)]);
}

void mtk_route_define_hash_row(const struct mtk_route_row *row, int32_t token_id, double *scratch,
			       struct mtk_route_choice *ret_choice)
{
	const struct mtk_route_config *config = row->config;
	const int32_t *ids = config->hash_table + (size_t)token_id * config->top_k;

	ret_choice->flags = nan_flag(row);
	ret_choice->margin = INFINITY;
	score_columns(row, scratch);
	for (uint32_t j = 0; j < config->top_k; j++) {
		uint32_t e = (uint32_t)ids[j];

		ret_choice->ids[j] = ids[j];
		ret_choice->weights[j] = mtk_route_weight_of(
			row, scratch, e, is_nan_at(row, e) ? LOWEST : 0.0, &ret_choice->flags);
	}
	if (config->scoring == MTK_ROUTE_SOFTMAX_SELECTED)
		mtk_route_softmax(config->top_k, ret_choice->weights);
	mtk_route_weigh(config, ret_choice->weights);
}

void mtk_route_plain(const struct mtk_route_config *config, const struct mtk_route_batch *batch,
		     uint32_t begin, uint32_t end, void *scratch,
		     const struct mtk_route_result *result)
{
	struct mtk_route_choice choice;

	for (uint32_t r = begin; r < end; r++) {
		struct mtk_route_row row = mtk_route_row_of(config, batch, r);

		if (r >= batch->n_valid_rows) {
			mtk_route_write_empty_row(config, r, 0, result);
			continue;
		}
		if (!config->hash_table) {
			mtk_route_define_row(&row, scratch, &choice);
		} else if (batch->token_ids[r] >= 0 &&
			   (uint32_t)batch->token_ids[r] < config->n_hash_tokens) {
			mtk_route_define_hash_row(&row, batch->token_ids[r], scratch, &choice);
		} else {
			mtk_route_write_empty_row(config, r, MTK_ROUTE_FLAG_TOKEN, result);
			continue;
		}
		mtk_route_write_row(config, &choice, r, result);
	}
}
