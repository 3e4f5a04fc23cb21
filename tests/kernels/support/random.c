/* SPDX-License-Identifier: MIT */
/* Reproducible numbers for the tests of the operations. */
#include "tests/kernels/support/random.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/f16.h"
#include "kernels/sample/sample.h"

float *random_floats(uint64_t seed, size_t n)
{
	float *values = malloc(n ? n * sizeof(*values) : 1);
	struct mtk_rng rng;

	ck_assert_ptr_nonnull(values);
	mtk_rng_seed(&rng, seed, n);
	for (size_t i = 0; i < n; i++)
		values[i] = (float)(2.0 * mtk_rng_next(&rng) - 1.0);
	return values;
}

static void *narrow(enum mtk_dtype dtype, const float *values, size_t n)
{
	uint16_t *halves = malloc(n * sizeof(*halves));

	ck_assert_ptr_nonnull(halves);
	for (size_t i = 0; i < n; i++)
		halves[i] = dtype == MTK_DTYPE_F16 ? mt_f16_from_f32(values[i])
						   : mt_bf16_from_f32(values[i]);
	return halves;
}

struct mtk_matrix random_matrix(uint64_t seed, enum mtk_dtype dtype, uint32_t n_out, uint32_t n_in)
{
	const size_t n_bytes = (mtk_matrix_bytes(dtype, n_out, n_in) + 63) / 64 * 64;
	struct mtk_matrix matrix = {dtype, n_out, n_in, aligned_alloc(64, n_bytes)};
	float *values = random_floats(seed, (size_t)n_out * n_in);
	void *source = values;

	ck_assert_ptr_nonnull(matrix.data);
	memset(matrix.data, 0, n_bytes);
	if (dtype != MTK_DTYPE_F32)
		source = narrow(dtype, values, (size_t)n_out * n_in);
	mtk_matrix_pack(&matrix, 0, n_out, dtype, source);
	if (source != values)
		free(source);
	free(values);
	return matrix;
}
