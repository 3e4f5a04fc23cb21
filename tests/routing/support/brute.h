/* SPDX-License-Identifier: MIT */
/*
 * Routing by brute force, for comparison: everything is sorted, in double precision, by formulas
 * written for this file. It takes the setting's data from kernels/ and none of its code.
 */
#ifndef MTK_TESTS_BRUTE_H
#define MTK_TESTS_BRUTE_H

#include "kernels/route/route.h"

struct brute_row {
	int ids[MTK_ROUTE_MAX_TOP_K];
	double weights[MTK_ROUTE_MAX_TOP_K];
	unsigned int flags;
	double values[MTK_ROUTE_MAX_COLUMNS]; /* choosing values of all columns */
	double group_scores[MTK_ROUTE_MAX_GROUPS];
	double margin;	       /* of the last one chosen over the best that was left */
	double margin_error;   /* what rounding of the two values can make of it */
	bool is_fragile; /* a rounding may decide a weight: sparsemixer at its threshold */
};

/* bias is NULL where the setting has none. */
void brute_route(const struct mtk_route_config *config, const float *logits, const float *bias,
		 struct brute_row *ret_row);

#endif
