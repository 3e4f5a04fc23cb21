/* SPDX-License-Identifier: MIT */
/*
 * The linear operation: y[r][o] = sum over i of x[r][i] * w[o][i], optionally added to y. Each
 * output is one chain over i = 0 .. n_in - 1, so it depends on neither the other rows nor the
 * other outputs. The definition rounds product and sum apart; the vector paths fuse them.
 * In and out must not overlap.
 */
#ifndef MTK_GEMM_GEMM_H
#define MTK_GEMM_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/matrix.h"

struct mtk_gemm {
	const struct mtk_matrix *weights;
	const float *x;
	size_t x_stride;		/* floats from one row to the next */
	const uint32_t *x_rows;		/* the row of x that row r reads; NULL: r */
	float *y;
	size_t y_stride;
	const uint32_t *y_rows;		/* the row of y that row r writes; NULL: r */
	bool accumulate;		/* y += the sum, instead of y = the sum */
};

static inline const float *mtk_gemm_x(const struct mtk_gemm *gemm, uint32_t row)
{
	return gemm->x + (size_t)(gemm->x_rows ? gemm->x_rows[row] : row) * gemm->x_stride;
}

static inline float *mtk_gemm_y(const struct mtk_gemm *gemm, uint32_t row)
{
	return gemm->y + (size_t)(gemm->y_rows ? gemm->y_rows[row] : row) * gemm->y_stride;
}

/* Compute the rows [row, row_end) of the outputs of the panels [panel, panel_end). */
typedef void (*mtk_gemm_fn)(const struct mtk_gemm *gemm, uint32_t row, uint32_t row_end,
			    uint32_t panel, uint32_t panel_end);

void mtk_gemm_plain(const struct mtk_gemm *gemm, uint32_t row, uint32_t row_end, uint32_t panel,
		    uint32_t panel_end);

#endif
