/* SPDX-License-Identifier: MIT */
/*
 * Interval set by insertion: find the intervals that touch the new one, replace them by their
 * union.
 */
#include "libtrace/coverage.h"

#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

static int reserve_one(struct mt_coverage *coverage)
{
	size_t capacity = coverage->capacity ? coverage->capacity * 2 : 4;
	struct mt_interval *intervals;

	if (coverage->n_intervals < coverage->capacity)
		return MOETRACE_OK;
	intervals = realloc(coverage->intervals, capacity * sizeof(*intervals));
	if (!intervals)
		return MOETRACE_E_NOMEM;
	coverage->intervals = intervals;
	coverage->capacity = capacity;
	return MOETRACE_OK;
}

/* The first interval that ends at or after @begin. */
static size_t first_touching(const struct mt_coverage *coverage, uint64_t begin)
{
	size_t low = 0;
	size_t high = coverage->n_intervals;

	if (high && coverage->intervals[high - 1].end < begin)
		return high;
	if (high && coverage->intervals[high - 1].begin <= begin)
		return high - 1;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (coverage->intervals[middle].end < begin)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int mt_coverage_add(struct mt_coverage *coverage, uint64_t begin, uint64_t end)
{
	size_t first = first_touching(coverage, begin);
	size_t last = first;
	int overlaps = 0;
	struct mt_interval *at;

	if (begin >= end)
		return 0;
	while (last < coverage->n_intervals && coverage->intervals[last].begin <= end) {
		at = &coverage->intervals[last];
		overlaps |= at->begin < end && at->end > begin;
		last++;
	}
	if (first == last) {
		if (reserve_one(coverage))
			return MOETRACE_E_NOMEM;
		at = &coverage->intervals[first];
		memmove(at + 1, at, (coverage->n_intervals - first) * sizeof(*at));
		coverage->n_intervals++;
		at->begin = begin;
		at->end = end;
		return 0;
	}
	at = &coverage->intervals[first];
	if (begin < at->begin)
		at->begin = begin;
	if (coverage->intervals[last - 1].end > end)
		end = coverage->intervals[last - 1].end;
	at->end = end;
	memmove(at + 1, &coverage->intervals[last],
		(coverage->n_intervals - last) * sizeof(*at));
	coverage->n_intervals -= last - first - 1;
	return overlaps;
}

int mt_coverage_has(const struct mt_coverage *coverage, uint64_t begin, uint64_t end)
{
	size_t i;

	if (begin >= end)
		return 1;
	/* The interval that holds begin ends after it, so it is the first that ends at begin + 1. */
	i = first_touching(coverage, begin + 1);
	return i < coverage->n_intervals && coverage->intervals[i].begin <= begin &&
	       coverage->intervals[i].end >= end;
}

int mt_coverage_run(const struct mt_coverage *coverage, uint64_t begin, uint64_t end,
		    uint64_t *ret_end)
{
	size_t i = first_touching(coverage, begin + 1);
	const struct mt_interval *at = &coverage->intervals[i];
	uint64_t next;
	int is_in;

	if (i == coverage->n_intervals) {
		*ret_end = end;
		return 0;
	}
	is_in = at->begin <= begin;
	next = is_in ? at->end : at->begin;
	*ret_end = next < end ? next : end;
	return is_in;
}

int mt_coverage_merge(struct mt_coverage *coverage, const struct mt_coverage *from)
{
	for (size_t i = 0; i < from->n_intervals; i++)
		if (mt_coverage_add(coverage, from->intervals[i].begin, from->intervals[i].end) < 0)
			return MOETRACE_E_NOMEM;
	return MOETRACE_OK;
}

void mt_coverage_free(struct mt_coverage *coverage)
{
	free(coverage->intervals);
	memset(coverage, 0, sizeof(*coverage));
}
