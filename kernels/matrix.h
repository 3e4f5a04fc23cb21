/* SPDX-License-Identifier: MIT */
/*
 * Weight matrices, packed for the linear operation: [n_out][n_in] is cut into panels of
 * MTK_PANEL outputs, each stored as [n_in][MTK_PANEL], so that one vector load gives the weights
 * of one input for a whole panel. The last panel is padded with zeros. Elements keep the type of
 * the file; widening them to fp32 is exact.
 */
#ifndef MTK_MATRIX_H
#define MTK_MATRIX_H

#include <stddef.h>
#include <stdint.h>

#define MTK_PANEL 16

enum mtk_dtype {
	MTK_DTYPE_F32,
	MTK_DTYPE_F16,
	MTK_DTYPE_BF16,
};

struct mtk_matrix {
	enum mtk_dtype dtype;
	uint32_t n_out;
	uint32_t n_in;
	void *data;		/* mtk_matrix_bytes() bytes, aligned to 64 */
};

static inline uint32_t mtk_panel_count(uint32_t n_out)
{
	return n_out / MTK_PANEL + (n_out % MTK_PANEL != 0);
}

size_t mtk_dtype_bytes(enum mtk_dtype dtype);

/* Bytes of the packed data, or 0 when the size overflows. */
size_t mtk_matrix_bytes(enum mtk_dtype dtype, uint32_t n_out, uint32_t n_in);

/*
 * Write row-major weights [n_rows][n_in], of any alignment, over the outputs from first_out on.
 * The source type must be that of the matrix, or the matrix must be fp32.
 */
void mtk_matrix_pack(struct mtk_matrix *matrix, uint32_t first_out, uint32_t n_rows,
		     enum mtk_dtype source_dtype, const void *source);

/* The weight of one output for one input, widened. */
float mtk_matrix_at(const struct mtk_matrix *matrix, uint32_t out, uint32_t in);

/* Widen n elements, of any alignment. */
void mtk_widen(enum mtk_dtype dtype, const void *source, size_t n, float *ret_values);

#endif
