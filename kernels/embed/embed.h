/* SPDX-License-Identifier: MIT */
/*
 * The embedding: the weights of one token's output row, widened. A tied model reads them from the
 * matrix of its head. The head itself is the linear operation.
 */
#ifndef MTK_EMBED_EMBED_H
#define MTK_EMBED_EMBED_H

#include "kernels/matrix.h"

/* token is below matrix->n_out; hidden is [matrix->n_in]. */
void mtk_embed(const struct mtk_matrix *matrix, uint32_t token, float *ret_hidden);

#endif
