/* SPDX-License-Identifier: MIT */
/*
 * Weights are made in their own type and widened, so that a definition in fp32 computes with the
 * very values that the kernel reads.
 */
#include "tests/kernels/cuda/support/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/cuda/support/gpu.h"

float *values_random(struct random *random, size_t n)
{
	float *values = gpu_host(n * sizeof(*values));

	for (size_t i = 0; i < n; i++)
		values[i] = random_unit(random);
	return values;
}

struct weights weights_random(struct random *random, enum mtk_dtype dtype, size_t n)
{
	struct weights w = {.n_bytes = n * mtk_dtype_bytes(dtype)};
	uint16_t *halves;

	w.data = gpu_host(w.n_bytes);
	w.wide = gpu_host(n * sizeof(float));
	halves = w.data;
	for (size_t i = 0; i < n; i++) {
		const float value = random_unit(random);
		uint32_t bits;

		memcpy(&bits, &value, sizeof(bits));
		if (dtype == MTK_DTYPE_F32)
			memcpy((char *)w.data + 4 * i, &value, sizeof(value));
		else if (dtype == MTK_DTYPE_BF16)
			halves[i] = (uint16_t)(bits >> 16);
		else /* a sign, an exponent near that of 1, and any fraction */
			halves[i] = (uint16_t)((bits >> 16 & 0x8000) | 0x3400 | (bits & 0x3ff));
	}
	mtk_widen(dtype, w.data, n, w.wide);
	return w;
}

void weights_free(struct weights *w)
{
	free(w->data);
	free(w->wide);
}

void values_near(const float *want, const void *device, size_t n, double tolerance,
		 const char *what)
{
	float *got = gpu_host(n * sizeof(*got));
	double largest = 1e-30;

	gpu_read(got, device, n * sizeof(*got));
	for (size_t i = 0; i < n; i++)
		largest = fmax(largest, fabs((double)want[i]));
	for (size_t i = 0; i < n; i++)
		gpu_check(fabs((double)got[i] - (double)want[i]) <= tolerance * largest,
			  "%s: element %zu is %.9g, not %.9g", what, i, (double)got[i],
			  (double)want[i]);
	free(got);
}
