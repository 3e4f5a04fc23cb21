/* SPDX-License-Identifier: MIT */
/*
 * Packing of weight matrices and the widening of their elements. Sizes are checked by
 * mtk_matrix_bytes(); everything else relies on a matrix whose size passed it.
 */
#include "kernels/matrix.h"

#include <string.h>

#include "common/f16.h"

size_t mtk_dtype_bytes(enum mtk_dtype dtype)
{
	return dtype == MTK_DTYPE_F32 ? 4 : 2;
}

size_t mtk_matrix_bytes(enum mtk_dtype dtype, uint32_t n_out, uint32_t n_in)
{
	size_t bytes = (size_t)mtk_panel_count(n_out) * MTK_PANEL;

	if (__builtin_mul_overflow(bytes, n_in, &bytes) ||
	    __builtin_mul_overflow(bytes, mtk_dtype_bytes(dtype), &bytes) ||
	    bytes > PTRDIFF_MAX)
		return 0;
	return bytes;
}

static size_t element_offset(const struct mtk_matrix *matrix, uint32_t out, uint32_t in)
{
	return ((size_t)(out / MTK_PANEL) * matrix->n_in + in) * MTK_PANEL + out % MTK_PANEL;
}

static float widen_one(enum mtk_dtype dtype, const unsigned char *source)
{
	uint16_t half;
	float value;

	if (dtype == MTK_DTYPE_F32) {
		memcpy(&value, source, sizeof(value));
		return value;
	}
	memcpy(&half, source, sizeof(half));
	return dtype == MTK_DTYPE_F16 ? mt_f32_from_f16(half) : mt_f32_from_bf16(half);
}

void mtk_widen(enum mtk_dtype dtype, const void *source, size_t n, float *ret_values)
{
	const unsigned char *bytes = source;
	size_t size = mtk_dtype_bytes(dtype);

	for (size_t i = 0; i < n; i++)
		ret_values[i] = widen_one(dtype, bytes + i * size);
}

float mtk_matrix_at(const struct mtk_matrix *matrix, uint32_t out, uint32_t in)
{
	const unsigned char *bytes = matrix->data;

	return widen_one(matrix->dtype,
			 bytes + element_offset(matrix, out, in) * mtk_dtype_bytes(matrix->dtype));
}

void mtk_matrix_pack(struct mtk_matrix *matrix, uint32_t first_out, uint32_t n_rows,
		     enum mtk_dtype source_dtype, const void *source)
{
	const unsigned char *from = source;
	unsigned char *to = matrix->data;
	size_t size = mtk_dtype_bytes(source_dtype);
	size_t packed_size = mtk_dtype_bytes(matrix->dtype);

	for (uint32_t row = 0; row < n_rows; row++) {
		for (uint32_t in = 0; in < matrix->n_in; in++, from += size) {
			size_t offset = element_offset(matrix, first_out + row, in) * packed_size;
			float value;

			if (source_dtype == matrix->dtype) {
				memcpy(to + offset, from, size);
				continue;
			}
			value = widen_one(source_dtype, from);
			memcpy(to + offset, &value, sizeof(value));
		}
	}
}
