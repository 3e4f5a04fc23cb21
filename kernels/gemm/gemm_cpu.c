/* SPDX-License-Identifier: MIT */
/*
 * The definition of the linear operation. Weights are widened once for a few rows; the chain of
 * each output still runs over the inputs in order, whatever rows stand beside it.
 */
#include "kernels/gemm/gemm.h"

#define ROW_BLOCK 8

static const void *panel_at(const struct mtk_matrix *weights, uint32_t panel, uint32_t in)
{
	size_t offset = ((size_t)panel * weights->n_in + in) * MTK_PANEL;

	return (const unsigned char *)weights->data + offset * mtk_dtype_bytes(weights->dtype);
}

static void store_row(const struct mtk_gemm *gemm, uint32_t row, uint32_t panel, const float *sums)
{
	uint32_t first_out = panel * MTK_PANEL;
	float *y = mtk_gemm_y(gemm, row) + first_out;

	for (uint32_t o = 0; o < MTK_PANEL && first_out + o < gemm->weights->n_out; o++)
		y[o] = gemm->accumulate ? y[o] + sums[o] : sums[o];
}

static void gemm_block(const struct mtk_gemm *gemm, uint32_t row, uint32_t n_rows, uint32_t panel)
{
	float sums[ROW_BLOCK][MTK_PANEL] = {{0}};
	float weights[MTK_PANEL];

	for (uint32_t in = 0; in < gemm->weights->n_in; in++) {
		mtk_widen(gemm->weights->dtype, panel_at(gemm->weights, panel, in), MTK_PANEL,
			  weights);
		for (uint32_t r = 0; r < n_rows; r++) {
			float x = mtk_gemm_x(gemm, row + r)[in];

			for (uint32_t o = 0; o < MTK_PANEL; o++)
				sums[r][o] += x * weights[o];
		}
	}
	for (uint32_t r = 0; r < n_rows; r++)
		store_row(gemm, row + r, panel, sums[r]);
}

void mtk_gemm_plain(const struct mtk_gemm *gemm, uint32_t row, uint32_t row_end, uint32_t panel,
		    uint32_t panel_end)
{
	for (; panel < panel_end; panel++) {
		for (uint32_t r = row; r < row_end; r += ROW_BLOCK) {
			uint32_t left = row_end - r;

			gemm_block(gemm, r, left < ROW_BLOCK ? left : ROW_BLOCK, panel);
		}
	}
}
