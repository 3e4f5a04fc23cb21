/* SPDX-License-Identifier: MIT */
/* The definition of combination. */
#include "kernels/combine/combine.h"

#include <math.h>

#include <moetrace/status.h>

void mtk_combine_plain(uint32_t n, uint32_t top_k, const float *outputs, const float *weights,
		       float *ret_sum, float *hidden)
{
	for (uint32_t i = 0; i < n; i++) {
		float sum = 0.0f;

		for (uint32_t j = 0; j < top_k; j++)
			sum += weights[j] * outputs[(size_t)j * n + i];
		ret_sum[i] = sum;
		hidden[i] += sum;
	}
}

int mtk_combine_check(const struct mtk_combine *c, struct mtk_error *error)
{
	if (c->n == 0)
		return mtk_error_set(error, MOETRACE_E_INVALID, "combine: n: 0 is below 1");
	if (c->top_k == 0)
		return mtk_error_set(error, MOETRACE_E_INVALID, "combine: top_k: 0 is below 1");
	if (c->output_stride < c->n)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "combine: output_stride: %zu is below n, which is %u",
				     c->output_stride, c->n);
	if (!isfinite(c->scale))
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "combine: scale: %g is not a finite number",
				     (double)c->scale);
	return MOETRACE_OK;
}

void mtk_combine_pairs_plain(const struct mtk_combine *combine, const float *outputs,
			     const int64_t *slots, const float *weights, const float *input,
			     float *ret_sum)
{
	for (uint32_t i = 0; i < combine->n; i++) {
		float sum = 0.0f;

		for (uint32_t j = 0; j < combine->top_k; j++) {
			float value;

			if (slots[j] == MTK_PAIR_SKIP)
				continue;
			value = slots[j] == MTK_PAIR_IDENTITY
					? input[i]
					: outputs[(size_t)slots[j] * combine->output_stride + i];
			sum += weights ? weights[j] * value : value;
		}
		ret_sum[i] = sum * combine->scale;
	}
}
