/* SPDX-License-Identifier: MIT */
/*
 * Paired comparison of blocks of steps; see paired.h.
 */
#include "cli/paired.h"

#include <stdlib.h>
#include <string.h>

/* Fewer steps of a batch size in a block say too little of it. */
#define MIN_STEPS 3

static int by_time(const void *a, const void *b)
{
	const struct mt_step *left = a, *right = b;

	return (left->time_ns > right->time_ns) - (left->time_ns < right->time_ns);
}

void mt_steps_prepare(struct mt_step *steps, size_t n_steps, const struct mt_blocks *blocks)
{
	size_t i;

	qsort(steps, n_steps, sizeof(*steps), by_time);
	for (i = 0; i < n_steps; i++) {
		struct mt_step *step = &steps[i];
		uint64_t since_ns = step->time_ns - blocks->start_ns;
		uint64_t block = since_ns / blocks->block_ns;

		step->pair = (uint32_t)(block / 2);
		/* The session's order: off-on and on-off in turns. */
		step->is_on = ((block ^ (block >> 1)) & 1) != 0;
		step->is_counted = i + 1 < n_steps && step->time_ns >= blocks->start_ns &&
				   block / 2 < blocks->n_pairs &&
				   since_ns % blocks->block_ns >= blocks->block_ns / 4;
		step->duration_ns = i + 1 < n_steps ? steps[i + 1].time_ns - step->time_ns : 0;
	}
}

static int compare(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int by_group(const void *a, const void *b)
{
	const struct mt_step *left = a, *right = b;
	int order = compare(left->model, right->model);

	if (!order)
		order = compare(left->phase, right->phase);
	if (!order)
		order = compare(left->n_rows, right->n_rows);
	if (!order)
		order = compare(left->pair, right->pair);
	if (!order)
		order = compare(left->is_on, right->is_on);
	return order ? order : compare(left->duration_ns, right->duration_ns);
}

void mt_steps_group(struct mt_step *steps, size_t n_steps)
{
	qsort(steps, n_steps, sizeof(*steps), by_group);
}

size_t mt_steps_group_size(const struct mt_step *steps, size_t n_steps, size_t at)
{
	size_t end = at;

	while (end < n_steps && steps[end].model == steps[at].model &&
	       steps[end].phase == steps[at].phase && steps[end].n_rows == steps[at].n_rows)
		end++;
	return end - at;
}

static int by_value(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

static double sorted_median(const double *values, size_t n_values)
{
	return (values[(n_values - 1) / 2] + values[n_values / 2]) / 2;
}

/*
 * The k-th smallest and the k-th largest of n values have the median between them unless fewer
 * than k values lie on one side of it, and the number on a side is binomial: the largest k whose
 * two tails are at most 5 %. 0: there is none.
 */
static size_t order_of_bound(size_t n_values)
{
	double term = 1, tail = 0;
	size_t i, k = 0;

	for (i = 0; i < n_values; i++)
		term *= 0.5;
	for (i = 0; i < n_values; i++) {
		tail += term;
		if (tail > 0.025)
			break;
		k = i + 1;
		term = term * (double)(n_values - i) / (double)(i + 1);
	}
	return k;
}

void mt_median_interval(double *values, size_t n_values, struct mt_interval *ret_interval)
{
	size_t k = order_of_bound(n_values);

	memset(ret_interval, 0, sizeof(*ret_interval));
	if (n_values == 0)
		return;
	qsort(values, n_values, sizeof(*values), by_value);
	ret_interval->median = sorted_median(values, n_values);
	ret_interval->has_bounds = k > 0;
	if (k > 0) {
		ret_interval->low = values[k - 1];
		ret_interval->high = values[n_values - k];
	}
}

/* What the blocks of each pair say; 0 or less: nothing. */
struct sides {
	double *off, *on, *percent;
};

static int sides_make(uint32_t n_pairs, struct sides *ret_sides)
{
	double *values = calloc((size_t)n_pairs * 3 + 1, sizeof(*values));

	ret_sides->off = values;
	ret_sides->on = values + n_pairs;
	ret_sides->percent = values + (size_t)n_pairs * 2;
	return values ? 0 : -1;
}

/* Pairs with both sides move to the front. */
static void sides_compare(const struct sides *sides, uint32_t n_pairs, struct mt_change *change)
{
	struct mt_interval off, on;
	size_t n = 0;
	uint32_t i;

	for (i = 0; i < n_pairs; i++) {
		if (sides->off[i] <= 0 || sides->on[i] <= 0)
			continue;
		sides->off[n] = sides->off[i];
		sides->on[n] = sides->on[i];
		sides->percent[n] = (sides->on[n] / sides->off[n] - 1) * 100;
		n++;
	}
	mt_median_interval(sides->off, n, &off);
	mt_median_interval(sides->on, n, &on);
	mt_median_interval(sides->percent, n, &change->percent);
	change->n_pairs = n;
	change->off = off.median;
	change->on = on.median;
}

static bool is_same_side(const struct mt_step *a, const struct mt_step *b)
{
	return a->pair == b->pair && a->is_on == b->is_on;
}

/* The middle of steps that are in order of their durations. */
static double median_ns(const struct mt_step *steps, size_t n_steps)
{
	return ((double)steps[(n_steps - 1) / 2].duration_ns +
		(double)steps[n_steps / 2].duration_ns) /
	       2;
}

int mt_step_change(const struct mt_step *group, size_t n_steps, uint32_t n_pairs,
		   struct mt_change *ret_change)
{
	struct mt_change change = {.n_steps = n_steps};
	struct sides sides;
	size_t i, end;

	if (sides_make(n_pairs, &sides) < 0)
		return -1;
	for (i = 0; i < n_steps; i = end) {
		double *side = group[i].is_on ? sides.on : sides.off;

		for (end = i; end < n_steps && is_same_side(&group[end], &group[i]); end++)
			continue;
		if (group[i].pair < n_pairs && end - i >= MIN_STEPS)
			side[group[i].pair] = median_ns(group + i, end - i);
	}
	sides_compare(&sides, n_pairs, &change);
	free(sides.off);
	*ret_change = change;
	return 0;
}

int mt_rate_change(const struct mt_step *steps, size_t n_steps, uint32_t n_pairs,
		   struct mt_change *ret_change)
{
	struct mt_change change = {.n_steps = n_steps};
	struct sides rows, ns;
	uint32_t pair;
	size_t i;

	if (sides_make(n_pairs, &rows) < 0)
		return -1;
	if (sides_make(n_pairs, &ns) < 0) {
		free(rows.off);
		return -1;
	}
	for (i = 0; i < n_steps; i++) {
		if (steps[i].pair >= n_pairs)
			continue;
		(steps[i].is_on ? rows.on : rows.off)[steps[i].pair] += steps[i].n_rows;
		(steps[i].is_on ? ns.on : ns.off)[steps[i].pair] += (double)steps[i].duration_ns;
	}
	for (pair = 0; pair < n_pairs; pair++) {
		rows.off[pair] = ns.off[pair] > 0 ? rows.off[pair] / ns.off[pair] * 1e9 : 0;
		rows.on[pair] = ns.on[pair] > 0 ? rows.on[pair] / ns.on[pair] * 1e9 : 0;
	}
	sides_compare(&rows, n_pairs, &change);
	free(rows.off);
	free(ns.off);
	*ret_change = change;
	return 0;
}
