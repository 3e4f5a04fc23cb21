/* SPDX-License-Identifier: MIT */
/*
 * Choices of experts that are not the router's: drawn by a rule, or read off a recording. A choice
 * depends on the seed, the request's place in the workload, the position and the layer, and on
 * nothing else, so it is the same in every batch, chunk, order and thread. Its ids are distinct and
 * in range. The weights are the model's own scores of the chosen experts, from the router's logits,
 * renormalised and scaled as the model does: they need not fall in the order of the choice.
 */
#ifndef MTK_ENGINE_CHOICE_H
#define MTK_ENGINE_CHOICE_H

#include <stdint.h>

#include "kernels/engine/error.h"
#include "kernels/route/route.h"

enum mtk_choice_kind {
	MTK_CHOICE_MODEL,	/* the router decides */
	MTK_CHOICE_UNIFORM,	/* every list of top_k experts is as likely */
	MTK_CHOICE_ROUND_ROBIN, /* top_k experts in a row, from ((request + position) * top_k +
				   layer) */
	MTK_CHOICE_ZIPF,	/* one after another without replacement, likely as 1 / place^S */
	MTK_CHOICE_REPLAY,
};

/* As much of a recording as a replay needs. */
struct mtk_replay_request {
	uint32_t n_positions; /* from 0; all of them have ids */
	uint16_t *ids;	      /* [n_positions][n_layers][top_k] */
};

struct mtk_replay {
	uint32_t n_layers;
	uint32_t top_k;
	uint32_t n_requests; /* those of the workload, in its order */
	struct mtk_replay_request *requests;
};

/* NULL is allowed. */
void mtk_replay_destroy(struct mtk_replay *replay);

struct mtk_choice_settings {
	enum mtk_choice_kind kind;
	double exponent; /* zipf: S, 0 to MTK_CHOICE_MAX_EXPONENT */
	uint64_t seed;
	const struct mtk_replay *replay; /* in use until the choice is destroyed */
	uint32_t n_layers;
	uint32_t n_columns; /* experts, those that compute nothing included */
	uint32_t top_k;
};

#define MTK_CHOICE_MAX_EXPONENT 100.0

struct mtk_choice;

/**
 * Check the settings and make what rows need.
 *
 * @ret_choice  NULL where the router decides.
 *
 * Returns  MOETRACE_OK, MOETRACE_E_INVALID (@error names the field) or MOETRACE_E_NOMEM.
 * Owner    caller; release with mtk_choice_destroy().
 */
int mtk_choice_create(const struct mtk_choice_settings *settings, struct mtk_error *error,
		      struct mtk_choice **ret_choice);

/* NULL is allowed. */
void mtk_choice_destroy(struct mtk_choice *choice);

const struct mtk_choice_settings *mtk_choice_borrow_settings(const struct mtk_choice *choice);

/* Positions that the choice can serve of a request; UINT32_MAX: any. */
uint32_t mtk_choice_positions(const struct mtk_choice *choice, uint32_t request);

/*
 * The ids of a row, [top_k]. Scratch holds a double a column.
 * Pre: position is below mtk_choice_positions() of the request, layer below n_layers.
 */
void mtk_choice_row(const struct mtk_choice *choice, uint32_t layer, uint32_t request,
		    uint32_t position, double *scratch, int32_t *ret_ids);

/* top_k distinct ids below n_columns, each set as likely, of a seed. */
void mtk_choice_draw(uint64_t seed, uint32_t n_columns, uint32_t top_k, int32_t *ret_ids);

#endif
