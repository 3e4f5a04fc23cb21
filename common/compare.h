/* SPDX-License-Identifier: MIT */
/*
 * Comparisons for qsort() and bsearch().
 */
#ifndef MT_COMMON_COMPARE_H
#define MT_COMMON_COMPARE_H

/* Of doubles, none of them a NaN. */
static inline int mt_compare_doubles(const void *left, const void *right)
{
	const double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

#endif
