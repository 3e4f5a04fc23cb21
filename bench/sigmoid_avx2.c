/* SPDX-License-Identifier: MIT */
/* The yardstick of bench_route on this level; on another architecture it is never called. */
#include "bench/sigmoid.h"

#if defined(__x86_64__)

#include "kernels/vec_avx2.h"

#include "kernels/route/sigmoid_vec.h"

VEC_TARGET void bench_sigmoid_avx2(size_t n, const float *x, float *out)
{
	for (size_t i = 0; i < n; i += VEC_LANES)
		vec_store(out + i, route_sigmoid(vec_load(x + i)));
}

#else

void bench_sigmoid_avx2(size_t n, const float *x, float *out)
{
	(void)n;
	(void)x;
	(void)out;
}

#endif
