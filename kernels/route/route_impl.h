/* SPDX-License-Identifier: MIT */
/*
 * What the definition and the vector paths of routing share: one row's inputs and outputs, and
 * the end of a row, from the chosen ids and their scores to what is written.
 */
#ifndef MTK_ROUTE_ROUTE_IMPL_H
#define MTK_ROUTE_ROUTE_IMPL_H

#include "kernels/route/route.h"

struct mtk_route_row {
	const struct mtk_route_config *config;
	uint32_t n;	     /* columns */
	const float *logits; /* [n] */
	const float *bias;   /* [n], or NULL where the setting has none */
};

/* What a row selected: top_k entries, in the order of the choice. */
struct mtk_route_choice {
	int32_t ids[MTK_ROUTE_MAX_TOP_K];
	double weights[MTK_ROUTE_MAX_TOP_K];
	uint8_t flags;
	float margin;
};

struct mtk_route_row mtk_route_row_of(const struct mtk_route_config *config,
				      const struct mtk_route_batch *batch, uint32_t row);

/*
 * The definition's steps before the choice: a score and a choosing value for each column, both
 * [n]. A column that may not be chosen, because its group was not kept, has the value minus
 * infinity, and no other has. Returns flags.
 */
uint8_t mtk_route_score_row(const struct mtk_route_row *row, double *scores, double *values);

/*
 * What column e, chosen by its value, weighs before mtk_route_weigh(); of the softmax over the
 * selected, before mtk_route_softmax() over the chosen.
 */
double mtk_route_weight_of(const struct mtk_route_row *row, const double *scores, uint32_t e,
			   double value, uint8_t *flags);

/* In place; all 0 where every logit is minus infinity. */
void mtk_route_softmax(uint32_t n, double *logits);

/* Choose and weigh one row; scratch holds two doubles a column. */
void mtk_route_define_row(const struct mtk_route_row *row, double *scratch,
			  struct mtk_route_choice *ret_choice);

/* The same for a layer whose ids follow from the token id. */
void mtk_route_define_hash_row(const struct mtk_route_row *row, int32_t token_id, double *scratch,
			       struct mtk_route_choice *ret_choice);

/* The margin of a row that chose these columns; scratch holds two doubles a column. */
float mtk_route_margin(const struct mtk_route_row *row, const int32_t *ids, double *scratch);

/* Weights, which are scores, become what the setting wants: renormalised and scaled. */
void mtk_route_weigh(const struct mtk_route_config *config, double *weights);

/* Write row number `row` of the result, shared slots included. */
void mtk_route_write_row(const struct mtk_route_config *config,
			 const struct mtk_route_choice *choice, uint32_t row,
			 const struct mtk_route_result *result);

/* Write a row that selects nothing. */
void mtk_route_write_empty_row(const struct mtk_route_config *config, uint32_t row, uint8_t flags,
			       const struct mtk_route_result *result);

#endif
