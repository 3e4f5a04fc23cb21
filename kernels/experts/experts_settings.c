/* SPDX-License-Identifier: MIT */
/* What settings the expert MLP takes, and what its weights weigh. */
#include "kernels/experts/experts.h"

#include <math.h>

#include <moetrace/status.h>

static int check_counts(const struct mtk_experts_settings *s, struct mtk_error *error)
{
	uint32_t n_slots;

	/* A group index of all experts' panels is 32 bits wide. */
	if (s->n_experts > UINT16_MAX)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "experts: n_experts: %u is above %d", s->n_experts,
				     UINT16_MAX);
	if (s->top_k == 0)
		return mtk_error_set(error, MOETRACE_E_INVALID, "experts: top_k: 0 is below 1");
	if (s->n_hidden == 0 || s->n_hidden > UINT16_MAX * MTK_PANEL)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "experts: n_hidden: %u is not in 1 .. %d", s->n_hidden,
				     UINT16_MAX * MTK_PANEL);
	if (s->n_intermediate == 0 || s->n_intermediate > UINT16_MAX * MTK_PANEL / 2)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "experts: n_intermediate: %u is not in 1 .. %d",
				     s->n_intermediate, UINT16_MAX * MTK_PANEL / 2);
	if (__builtin_mul_overflow(s->n_rows_max, s->top_k, &n_slots))
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "experts: n_rows_max: %u rows with top_k %u are more slots "
				     "than 32 bits can number",
				     s->n_rows_max, s->top_k);
	return MOETRACE_OK;
}

static int check_clamp(const struct mtk_swiglu_clamp *clamp, struct mtk_error *error)
{
	if (!(clamp->limit > 0.0f))
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "experts: clamp.limit: %g is not above 0",
				     (double)clamp->limit);
	if (!isfinite(clamp->alpha))
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "experts: clamp.alpha: %g is not a finite number",
				     (double)clamp->alpha);
	if (!isfinite(clamp->offset))
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "experts: clamp.offset: %g is not a finite number",
				     (double)clamp->offset);
	return MOETRACE_OK;
}

int mtk_experts_check(const struct mtk_experts_settings *s, struct mtk_error *error)
{
	int status = check_counts(s, error);

	if (status)
		return status;
	if ((unsigned int)s->dtype > MTK_DTYPE_BF16)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "experts: dtype: %d is not fp32, fp16 or bf16", (int)s->dtype);
	if ((unsigned int)s->weighting > MTK_WEIGHT_ON_INPUT)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "experts: weighting: %d is not in the combination, on the "
				     "output or on the input",
				     (int)s->weighting);
	return s->clamped ? check_clamp(&s->clamp, error) : MOETRACE_OK;
}

size_t mtk_experts_weight_bytes(const struct mtk_experts_settings *s)
{
	/* The largest settings that the check lets through need less than 2^60 bytes. */
	return s->n_experts * (mtk_matrix_bytes(s->dtype, 2 * s->n_intermediate, s->n_hidden) +
			       mtk_matrix_bytes(s->dtype, s->n_hidden, s->n_intermediate));
}
