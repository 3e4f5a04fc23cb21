/* SPDX-License-Identifier: MIT */
/*
 * What a budget of experts a batch does to it. And what rows take instead of what they lose, where the
 * router's further candidates were recorded.
 */
#ifndef MT_SCHEMA_FUNCTIONS_OEA_RULES_H
#define MT_SCHEMA_FUNCTIONS_OEA_RULES_H

#include "oea_batch.h"
#include "oea_general.h"

/**
 * Let a batch have @n_budget experts: those of rows that keep their choice and the best one of each
 * other row, more if these are more; then those that hold most of the rows' weight together
 * (without weights, that most rows chose), of equals the lower id. The figures stand at index 0.
 *
 * @weights  [65536], all 0; left so.
 */
void mt_oea_budget(const struct mt_oea_batch *batch, struct mt_oea_scratch *scratch,
		   uint32_t n_budget, float *weights, uint32_t *bins,
		   struct mt_oea_result *ret_result);

/* Of the changed rows whose further candidates are known, index k0 - 1. */
struct mt_oea_taken {
	uint64_t n_rows;
	uint64_t n_truncated[MT_OEA_MAX_K]; /* the candidates ended before the row was full */
	double retained[MT_OEA_MAX_K];	    /* score of the row's set / of its own choice */
};

/*
 * Whether the scores of a layer's candidates tell what rows would take: no bias acts on the choice or it
 * is known, and rows may take what is of the groups that they had kept.
 */
bool mt_oea_has_candidates(const struct mt_oea_source *source);

/* After a sweep of the source's batch in @form into @swept. Returns an SQLite code. */
int mt_oea_take(const struct mt_oea_source *source, const struct mt_oea_form *form,
		const uint8_t *limits, const struct mt_oea_scratch *scratch,
		const struct mt_oea_result *swept, struct mt_oea_taken *ret_taken);

/* A router's expert that a row did not choose, or its own choice. */
struct mt_oea_candidate {
	uint32_t id;
	float score;
	float key; /* what the choice goes by: the score and the bias */
};

/* The bias that acts on the choice of an expert; 0: none. */
float mt_oea_bias(const struct mt_oea_source *source, uint32_t id);

/**
 * The scores of a row's choice, and the further candidates that it may take, in the order of choice.
 *
 * @ret_scores      [batch.k]
 * @ret_candidates  [run->n_candidates]
 *
 * Returns whether these are known.
 */
bool mt_oea_row_scores(const struct mt_oea_source *source, size_t row, float *ret_scores,
		       struct mt_oea_candidate *ret_candidates, size_t *ret_n_candidates);

#endif
