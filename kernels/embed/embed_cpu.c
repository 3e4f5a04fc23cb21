/* SPDX-License-Identifier: MIT */
/* The definition of the embedding. */
#include "kernels/embed/embed.h"

void mtk_embed(const struct mtk_matrix *matrix, uint32_t token, float *ret_hidden)
{
	for (uint32_t i = 0; i < matrix->n_in; i++)
		ret_hidden[i] = mtk_matrix_at(matrix, token, i);
}
