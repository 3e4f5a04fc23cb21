/* SPDX-License-Identifier: MIT */
/*
 * The brute-force definition. Ranks come from one sort of all columns, groups from one sort of
 * all groups and of each group's members.
 */
#include "tests/routing/support/brute.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

struct item {
	double value;
	int id;
	int class; /* 0: may be chosen; 1: NaN or minus infinity; 2: in a group that was dropped */
};

static int item_order(const void *left, const void *right)
{
	const struct item *a = left;
	const struct item *b = right;

	if (a->class != b->class)
		return a->class - b->class;
	if (a->class == 0 && a->value != b->value)
		return a->value > b->value ? -1 : 1;
	return a->id - b->id;
}

static double soft_capped(const struct mtk_route_config *config, double x)
{
	return config->soft_cap > 0 ? config->soft_cap * tanh(x / config->soft_cap) : x;
}

static double plain_score(const struct mtk_route_config *config, double x)
{
	if (config->scoring == MTK_ROUTE_SIGMOID)
		return 1 / (1 + exp(-x));
	if (config->scoring != MTK_ROUTE_SQRTSOFTPLUS)
		return x;
	if (x > 40)
		return sqrt(x < (double)FLT_MAX ? x : (double)FLT_MAX);
	return x < -40 ? exp(x / 2) : sqrt(log1p(exp(x)));
}

static double biggest(const double *x, unsigned int n)
{
	double max = x[0];

	for (unsigned int i = 1; i < n; i++)
		max = x[i] > max ? x[i] : max;
	return max;
}

/* Softmax with NaN as minus infinity; infinities share it all, and nothing can be 0 / 0. */
static void soften(double *x, unsigned int n)
{
	double max, sum = 0;

	for (unsigned int i = 0; i < n; i++)
		x[i] = isnan(x[i]) ? -INFINITY : x[i];
	max = biggest(x, n);
	for (unsigned int i = 0; i < n; i++) {
		x[i] = isinf(max) ? (max > 0 && x[i] == max) : exp(x[i] - max);
		sum += x[i];
	}
	for (unsigned int i = 0; i < n; i++)
		x[i] = sum > 0 ? x[i] / sum : 0;
}

static bool uses_logit(const struct mtk_route_config *config)
{
	return config->choose_by == MTK_ROUTE_BY_LOGIT ||
	       config->bias == MTK_ROUTE_BIAS_LOGIT_CHOICE ||
	       config->scoring == MTK_ROUTE_SOFTMAX_SELECTED ||
	       config->scoring == MTK_ROUTE_SPARSEMIXER;
}

static void drop_groups(const struct mtk_route_config *config, unsigned int n, struct item *items,
			struct brute_row *row)
{
	static struct item members[MTK_ROUTE_MAX_COLUMNS], groups[MTK_ROUTE_MAX_GROUPS];
	unsigned int size = n / config->n_groups;
	unsigned int n_top = config->groups == MTK_ROUTE_GROUPS_MAX    ? 1
			     : config->groups == MTK_ROUTE_GROUPS_TOP2 ? 2
								       : config->group_top_n;

	for (unsigned int g = 0; g < config->n_groups; g++) {
		double sum = 0;

		for (unsigned int i = 0; i < size; i++)
			members[i] = items[g * size + i];
		qsort(members, size, sizeof(*members), item_order);
		for (unsigned int i = 0; i < n_top; i++)
			sum += members[i].class == 0 ? members[i].value : -DBL_MAX;
		if (!(sum > -DBL_MAX))
			sum = -DBL_MAX;
		groups[g] = (struct item){.value = sum, .id = (int)g};
		row->group_scores[g] = sum;
	}
	qsort(groups, config->n_groups, sizeof(*groups), item_order);
	for (unsigned int i = config->n_keep_groups; i < config->n_groups; i++)
		for (unsigned int e = 0; e < size; e++)
			items[(unsigned int)groups[i].id * size + e].class = 2;
	if (config->n_keep_groups < config->n_groups &&
	    groups[config->n_keep_groups - 1].value == groups[config->n_keep_groups].value)
		row->flags |= MTK_ROUTE_FLAG_TIE;
}

/* The weight of place j when the places before it are masked out. */
static double mixed(const struct mtk_route_config *config, const double *x, unsigned int n,
		    struct brute_row *row, unsigned int j)
{
	double max = x[row->ids[j]], sum = 0;

	if (isnan(max) || max == -INFINITY)
		return 0;
	for (unsigned int e = 0; e < n; e++) {
		double ratio = (max - x[e]) / fmax(fabs(x[e]), max);
		bool is_taken = isnan(x[e]);

		for (unsigned int i = 0; i < j; i++)
			is_taken = is_taken || (unsigned int)row->ids[i] == e;
		if (fabs(ratio - 2 * config->jitter) < 1e-9)
			row->is_fragile = true;
		if (!is_taken && (x[e] == max || !(ratio > 2 * config->jitter)))
			sum += x[e] == max ? 1 : exp(x[e] - max);
	}
	return 1 / sum;
}

static void renormalise(const struct mtk_route_config *config, double *weights)
{
	double sum = 0;

	for (unsigned int j = 0; j < config->top_k; j++)
		sum += weights[j];
	for (unsigned int j = 0; j < config->top_k; j++) {
		if (config->renormalise == MTK_ROUTE_RENORMALISE_EPSILON)
			weights[j] /= sum + 1e-20;
		else if (config->renormalise == MTK_ROUTE_RENORMALISE_IF_POSITIVE && sum > 0)
			weights[j] /= sum;
		else if (config->renormalise == MTK_ROUTE_RENORMALISE_CLAMP)
			weights[j] /= fmax(sum, config->renormalise_min);
		if (config->scale_owner == MTK_ROUTE_SCALE_IN_ROUTER)
			weights[j] *= config->scale;
	}
}

/* Of sorted items; what may not be chosen comes last. */
static void measure_margin(const struct item *items, unsigned int n, unsigned int top_k,
			   struct brute_row *row)
{
	const double last = row->values[items[top_k - 1].id];
	double next;

	row->margin = INFINITY;
	row->margin_error = 0;
	if (top_k == n || items[top_k].class == 2)
		return;
	next = row->values[items[top_k].id];
	if (next == last) {
		row->margin = 0;
		row->flags |= MTK_ROUTE_FLAG_TIE;
	} else if (last - next <= (double)FLT_MAX) {
		row->margin = last - next;
		row->margin_error = 1e-13 * (fabs(last) + fabs(next));
	}
}

void brute_route(const struct mtk_route_config *config, const float *logits, const float *bias,
		 struct brute_row *ret_row)
{
	static struct item items[MTK_ROUTE_MAX_COLUMNS];
	static double x[MTK_ROUTE_MAX_COLUMNS], scores[MTK_ROUTE_MAX_COLUMNS];
	static bool is_nan[MTK_ROUTE_MAX_COLUMNS];
	const unsigned int n = config->n_experts + config->n_zero_experts;

	ret_row->flags = 0;
	ret_row->is_fragile = false;
	for (unsigned int e = 0; e < n; e++) {
		x[e] = soft_capped(config, logits[e]);
		if (config->bias == MTK_ROUTE_BIAS_LOGIT)
			x[e] += bias[e];
		is_nan[e] = isnan(x[e]) || (bias && isnan(bias[e]));
		if (is_nan[e]) {
			x[e] = NAN;
			ret_row->flags |= MTK_ROUTE_FLAG_NAN;
		}
		scores[e] = plain_score(config, x[e]);
	}
	if (config->scoring == MTK_ROUTE_SOFTMAX)
		soften(scores, n);
	for (unsigned int e = 0; e < n; e++) {
		double value = uses_logit(config) ? x[e] : scores[e];

		if (bias && config->bias != MTK_ROUTE_BIAS_LOGIT)
			value += bias[e];
		items[e] = (struct item){value, (int)e, is_nan[e] || !(value > -INFINITY)};
		ret_row->values[e] = items[e].class == 0 ? value : -DBL_MAX;
	}
	if (config->groups != MTK_ROUTE_GROUPS_NONE)
		drop_groups(config, n, items, ret_row);
	qsort(items, n, sizeof(*items), item_order);
	for (unsigned int j = 0; j < config->top_k; j++) {
		int id = items[j].id;

		ret_row->ids[j] = id;
		ret_row->weights[j] = items[j].class != 0 || x[id] == -INFINITY ? 0 : scores[id];
		if (items[j].class != 0 || x[id] == -INFINITY)
			ret_row->flags |= MTK_ROUTE_FLAG_FEW;
		if (config->scoring == MTK_ROUTE_SPARSEMIXER)
			ret_row->weights[j] = mixed(config, x, n, ret_row, j);
		if (config->scoring == MTK_ROUTE_SOFTMAX_SELECTED)
			ret_row->weights[j] = items[j].class != 0 ? NAN : x[id];
	}
	if (config->scoring == MTK_ROUTE_SOFTMAX_SELECTED)
		soften(ret_row->weights, config->top_k);
	measure_margin(items, n, config->top_k, ret_row);
	renormalise(config, ret_row->weights);
}
