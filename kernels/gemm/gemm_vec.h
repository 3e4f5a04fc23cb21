/* SPDX-License-Identifier: MIT */
/*
 * The vector path of the linear operation, instantiated by a cpu_<level>.c after its vec_<level>.h.
 * A block of rows x panels keeps its sums in registers; block shapes only trade reuse of weights
 * against independent chains and never change the order of a chain. Few rows, as at decode, take
 * several panels: that hides the latency of the fused multiply-add, and each panel is a stream of
 * its own from memory, one of which alone is far slower than the memory.
 */
#include "kernels/gemm/gemm.h"

#define GEMM_MAX_ROWS 6
#define GEMM_MAX_PANELS 4

VEC_FN struct vec gemm_load(const struct mtk_matrix *weights, enum mtk_dtype dtype, size_t offset)
{
	if (dtype == MTK_DTYPE_F32)
		return vec_load((const float *)weights->data + offset);
	if (dtype == MTK_DTYPE_F16)
		return vec_load_f16((const uint16_t *)weights->data + offset);
	return vec_load_bf16((const uint16_t *)weights->data + offset);
}

VEC_FN void gemm_store(const struct mtk_gemm *gemm, uint32_t row, uint32_t panel, struct vec sum)
{
	uint32_t first_out = panel * MTK_PANEL;
	uint32_t left = gemm->weights->n_out - first_out;
	float *y = mtk_gemm_y(gemm, row) + first_out;

	if (left > MTK_PANEL)
		left = MTK_PANEL;
	if (gemm->accumulate)
		sum = vec_add(vec_load_first(y, left), sum);
	vec_store_first(y, left, sum);
}

/* dtype, n_rows and n_panels are constants in each caller, so that every loop but one unrolls. */
VEC_FN void gemm_block(const struct mtk_gemm *gemm, uint32_t row, uint32_t panel,
		       const enum mtk_dtype dtype, const uint32_t n_rows, const uint32_t n_panels)
{
	const uint32_t n_in = gemm->weights->n_in;
	const float *x[GEMM_MAX_ROWS];
	struct vec sums[GEMM_MAX_ROWS][GEMM_MAX_PANELS];

	VEC_UNROLL
	for (uint32_t r = 0; r < n_rows; r++) {
		x[r] = mtk_gemm_x(gemm, row + r);
		VEC_UNROLL
		for (uint32_t p = 0; p < n_panels; p++)
			sums[r][p] = vec_set1(0.0f);
	}
	for (uint32_t in = 0; in < n_in; in++) {
		VEC_UNROLL
		for (uint32_t p = 0; p < n_panels; p++) {
			size_t offset = ((size_t)(panel + p) * n_in + in) * MTK_PANEL;
			struct vec weight = gemm_load(gemm->weights, dtype, offset);

			VEC_UNROLL
			for (uint32_t r = 0; r < n_rows; r++)
				sums[r][p] = vec_fma(vec_set1(x[r][in]), weight, sums[r][p]);
		}
	}
	VEC_UNROLL
	for (uint32_t r = 0; r < n_rows; r++) {
		VEC_UNROLL
		for (uint32_t p = 0; p < n_panels; p++)
			gemm_store(gemm, row + r, panel + p, sums[r][p]);
	}
}

/* The panels of a block of rows: n_panels at a time, then one at a time. */
VEC_FN void gemm_rows(const struct mtk_gemm *gemm, uint32_t row, uint32_t panel, uint32_t panel_end,
		      const enum mtk_dtype dtype, const uint32_t n_rows, const uint32_t n_panels)
{
	for (; panel_end - panel >= n_panels; panel += n_panels)
		gemm_block(gemm, row, panel, dtype, n_rows, n_panels);
	for (; panel < panel_end; panel++)
		gemm_block(gemm, row, panel, dtype, n_rows, 1);
}

VEC_FN void gemm_typed(const struct mtk_gemm *gemm, uint32_t row, uint32_t row_end, uint32_t panel,
		       uint32_t panel_end, const enum mtk_dtype dtype)
{
	for (; row_end - row >= 6; row += 6)
		gemm_rows(gemm, row, panel, panel_end, dtype, 6, VEC_GEMM_PANELS_MORE);
	switch (row_end - row) {
	case 5:
		gemm_rows(gemm, row, panel, panel_end, dtype, 5, VEC_GEMM_PANELS_MORE);
		break;
	case 4:
		gemm_rows(gemm, row, panel, panel_end, dtype, 4, VEC_GEMM_PANELS_MORE);
		break;
	case 3:
		gemm_rows(gemm, row, panel, panel_end, dtype, 3, VEC_GEMM_PANELS_3);
		break;
	case 2:
		gemm_rows(gemm, row, panel, panel_end, dtype, 2, VEC_GEMM_PANELS_2);
		break;
	case 1:
		gemm_rows(gemm, row, panel, panel_end, dtype, 1, VEC_GEMM_PANELS_1);
		break;
	default:
		break;
	}
}

/* One instance a type: the sum of their bodies is too large to be useful in one function. */
static VEC_TARGET void gemm_f32(const struct mtk_gemm *gemm, uint32_t row, uint32_t row_end,
				uint32_t panel, uint32_t panel_end)
{
	gemm_typed(gemm, row, row_end, panel, panel_end, MTK_DTYPE_F32);
}

static VEC_TARGET void gemm_f16(const struct mtk_gemm *gemm, uint32_t row, uint32_t row_end,
				uint32_t panel, uint32_t panel_end)
{
	gemm_typed(gemm, row, row_end, panel, panel_end, MTK_DTYPE_F16);
}

static VEC_TARGET void gemm_bf16(const struct mtk_gemm *gemm, uint32_t row, uint32_t row_end,
				 uint32_t panel, uint32_t panel_end)
{
	gemm_typed(gemm, row, row_end, panel, panel_end, MTK_DTYPE_BF16);
}

static void gemm_vec(const struct mtk_gemm *gemm, uint32_t row, uint32_t row_end, uint32_t panel,
		     uint32_t panel_end)
{
	static const mtk_gemm_fn typed[] = {
		[MTK_DTYPE_F32] = gemm_f32,
		[MTK_DTYPE_F16] = gemm_f16,
		[MTK_DTYPE_BF16] = gemm_bf16,
	};

	typed[gemm->weights->dtype](gemm, row, row_end, panel, panel_end);
}
