/* SPDX-License-Identifier: MIT */
/*
 * Rotary position embedding of the half-split form: elements i and i + head_dim / 2 of a head turn
 * by position * theta^(-2i / head_dim). Angles, sines and cosines are fp32, as in the models'
 * own implementation, and come from a table made once.
 */
#ifndef MTK_ROPE_ROPE_H
#define MTK_ROPE_ROPE_H

#include <stdint.h>

/* Fill the cosines and sines of the first n_positions, each [n_positions][head_dim / 2]. */
void mtk_rope_table_fill(float theta, uint32_t head_dim, uint32_t n_positions, float *ret_cosines,
			 float *ret_sines);

/* Turn one head in place, by the table's row of its position. */
void mtk_rope_plain(const float *cosines, const float *sines, uint32_t head_dim, float *head);

#endif
