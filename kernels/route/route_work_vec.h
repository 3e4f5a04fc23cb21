/* SPDX-License-Identifier: MIT */
/*
 * What the steps of the vector path hand on, and the test whether a computed order is the order of
 * the definition. For inclusion by the steps.
 */
#ifndef MTK_ROUTE_ROUTE_WORK_VEC_H
#define MTK_ROUTE_ROUTE_WORK_VEC_H

#include <math.h>

#include "kernels/route/route_impl.h"

enum route_mode {
	ROUTE_EXACT,
	ROUTE_MONOTONE,
	ROUTE_BOUNDED,
};

/* Error of a bounded value, relative to the largest score plus the largest bias of the row. */
#define ROUTE_ERROR_SIGMOID 5e-7f
#define ROUTE_ERROR_SOFTMAX 1.2e-5f
/* Errors that stem from flushing small exponentials to 0. */
#define ROUTE_ERROR_FLUSH 1e-18f

struct route_work {
	const struct mtk_route_config *config;
	enum route_mode mode;
	bool is_grouped; /* by the grouped variant */
	bool has_groups; /* some groups are left out */
	uint32_t n;
	uint32_t n_padded;
	uint32_t n_group; /* experts of a group */
	uint32_t n_top;	  /* values that make a group's score */
	float *scores;	  /* [n_padded + 32]; of softmax, the exponentials */
	float *values;	  /* [n_padded + 32] */
	float *bias;	  /* [n_padded + 32]: less a constant, see route_center() */
	uint32_t *blocks; /* [n_blocks]: the first columns of those that may be chosen from */
	uint32_t n_blocks;
	float *block_max; /* [n_blocks], rounded up to VEC_LANES */
	double *definition;
	float largest_bias;
	float largest_score;
	float sum;			      /* of softmax's exponentials */
	float found[MTK_ROUTE_MAX_TOP_K + 1]; /* values by rank; the last is the best left out */
};

VEC_FN bool route_by_logit(const struct mtk_route_config *config)
{
	return config->choose_by == MTK_ROUTE_BY_LOGIT ||
	       config->bias == MTK_ROUTE_BIAS_LOGIT_CHOICE ||
	       config->scoring == MTK_ROUTE_SOFTMAX_SELECTED;
}

VEC_FN float route_error(const struct route_work *work)
{
	float relative = work->config->scoring == MTK_ROUTE_SOFTMAX && !route_by_logit(work->config)
				 ? ROUTE_ERROR_SOFTMAX
				 : ROUTE_ERROR_SIGMOID;

	return relative * (work->largest_score + work->largest_bias) + ROUTE_ERROR_FLUSH;
}

/* Logits in this range have distinct scores in double precision. */
VEC_FN bool route_is_distinct(const struct route_work *work, float largest, float logit)
{
	if (!(fabsf(logit) >= 1e-6f) || logit < -80.0f)
		return false;
	switch (work->config->scoring) {
	case MTK_ROUTE_SOFTMAX:
		return fabsf(largest) <= 64.0f && largest - logit < 80.0f;
	case MTK_ROUTE_SIGMOID:
		return logit <= 16.0f;
	default:
		return logit <= 1e30f;
	}
}

/* Whether `above` certainly comes before `below`, the next one in the computed order. */
VEC_FN bool route_is_certain(const struct route_work *work, float largest, float above, float below,
			     float error)
{
	if (work->mode == ROUTE_EXACT || below == -INFINITY)
		return true;
	if (work->mode == ROUTE_MONOTONE)
		return route_is_distinct(work, largest, above) &&
		       route_is_distinct(work, largest, below);
	return above - below > 2.0f * error;
}

#endif
