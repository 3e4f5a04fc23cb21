/* SPDX-License-Identifier: MIT */
/*
 * Reproducible numbers for the tests of the operations, and 16-bit weights made of them.
 */
#ifndef MTK_TESTS_RANDOM_H
#define MTK_TESTS_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/matrix.h"

/* n floats in [-1, 1), in memory of exactly n floats, to be freed. */
float *random_floats(uint64_t seed, size_t n);

/* A packed matrix of such weights; its data are to be freed. */
struct mtk_matrix random_matrix(uint64_t seed, enum mtk_dtype dtype, uint32_t n_out, uint32_t n_in);

#endif
