/* SPDX-License-Identifier: MIT */
/* The yardstick of bench_route: out[i] = sigmoid(x[i]) with the terms that the router uses. */
#ifndef MTK_BENCH_SIGMOID_H
#define MTK_BENCH_SIGMOID_H

#include <stddef.h>

typedef void (*bench_sigmoid_fn)(size_t n, const float *x, float *out);

/* n is a multiple of 16. */
void bench_sigmoid_avx2(size_t n, const float *x, float *out);
void bench_sigmoid_avx512(size_t n, const float *x, float *out);

#endif
