/* SPDX-License-Identifier: MIT */
/*
 * Numbers for the tests on a GPU: drawn, widened, and compared with what a kernel gave.
 */
#ifndef MTK_TESTS_VALUES_H
#define MTK_TESTS_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/matrix.h"
#include "tests/routing/support/settings.h"

/* In [-1, 1), to be freed. */
float *values_random(struct random *random, size_t n);

/* Ends the program unless every element is within a tolerance of the largest one. */
void values_near(const float *want, const void *device, size_t n, double tolerance,
		 const char *what);

/* Weights of a type, and the same widened. bf16 is the upper half of a float. */
struct weights {
	void *data;
	float *wide;
	size_t n_bytes;
};

struct weights weights_random(struct random *random, enum mtk_dtype dtype, size_t n);
void weights_free(struct weights *w);

#endif
