/* SPDX-License-Identifier: MIT */
/*
 * The vector path of the peaks, instantiated by a cpu_<level>.c after its vec_<level>.h: ten chains of
 * sixteen lanes for the multiply-adds, four streams for the memory.
 */
#include "kernels/peaks/peaks.h"

#define PEAK_CHAINS (MTK_PEAK_FMAS / VEC_LANES)

static VEC_TARGET float peak_fma_vec(uint64_t n_rounds)
{
	struct vec sums[PEAK_CHAINS], all;
	/* Neither overflows nor becomes denormal, however many rounds there are. */
	const struct vec factor = vec_set1(0.5f), term = vec_set1(1.0f);

	for (int i = 0; i < PEAK_CHAINS; i++)
		sums[i] = vec_set1((float)i);
	for (uint64_t n = 0; n < n_rounds; n++)
		for (int i = 0; i < PEAK_CHAINS; i++)
			sums[i] = vec_fma(sums[i], factor, term);
	all = sums[0];
	for (int i = 1; i < PEAK_CHAINS; i++)
		all = vec_add(all, sums[i]);
	return vec_sum(all);
}

static VEC_TARGET float peak_read_vec(const float *from, size_t n)
{
	struct vec a = vec_set1(0), b = a, c = a, d = a;

	for (size_t i = 0; i < n; i += 4 * VEC_LANES) {
		a = vec_add(a, vec_load(from + i));
		b = vec_add(b, vec_load(from + i + VEC_LANES));
		c = vec_add(c, vec_load(from + i + 2 * VEC_LANES));
		d = vec_add(d, vec_load(from + i + 3 * VEC_LANES));
	}
	return vec_sum(vec_add(vec_add(a, b), vec_add(c, d)));
}
