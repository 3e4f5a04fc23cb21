/* SPDX-License-Identifier: MIT */
/*
 * A set of positions as sorted, disjoint, non-adjacent intervals. Passes mostly extend the
 * last interval, which costs nothing more than a comparison.
 */
#ifndef MT_COVERAGE_H
#define MT_COVERAGE_H

#include <stddef.h>
#include <stdint.h>

struct mt_interval {
	uint64_t begin;
	uint64_t end; /* one past the last */
};

struct mt_coverage {
	struct mt_interval *intervals;
	size_t n_intervals;
	size_t capacity;
};

/*
 * Add [begin, end). Returns 1 if part of it was in the set already, 0 if not, a negative
 * status (MOETRACE_E_NOMEM) if the set could not grow.
 */
int mt_coverage_add(struct mt_coverage *coverage, uint64_t begin, uint64_t end);

/* Is [begin, end) in the set? An empty range always is. */
int mt_coverage_has(const struct mt_coverage *coverage, uint64_t begin, uint64_t end);

/*
 * The first run of [begin, end), which is not empty: its end into *ret_end, and whether it is
 * in the set (1) or not (0).
 */
int mt_coverage_run(const struct mt_coverage *coverage, uint64_t begin, uint64_t end,
		    uint64_t *ret_end);

/* Add all of @from; returns MOETRACE_OK or MOETRACE_E_NOMEM. */
int mt_coverage_merge(struct mt_coverage *coverage, const struct mt_coverage *from);

void mt_coverage_free(struct mt_coverage *coverage);

#endif
