/* SPDX-License-Identifier: MIT */
/* What is not written by a step keeps a pattern, so that a test sees it. */
#include "tests/routing/support/oea_trial.h"

#include <string.h>

struct mtk_route_batch oea_trial_rows(const struct oea_trial *trial)
{
	return (struct mtk_route_batch){trial->n_rows, trial->n_valid_rows, trial->logits,
					trial->bias, NULL};
}

static struct mtk_oea_batch batch_of(struct oea_trial *trial)
{
	return (struct mtk_oea_batch){
		.oea = &trial->oea,
		.route = &trial->route,
		.rows = oea_trial_rows(trial),
		.is_decode = trial->is_decode,
		.base_ids = trial->base_ids,
		.base_weights = trial->base_weights,
		.n_base = trial->n_base,
		.is_loaded = trial->is_loaded,
	};
}

static struct mtk_oea_result result_of(struct oea_trial *trial)
{
	return (struct mtk_oea_result){trial->ids, trial->weights, trial->flags};
}

void oea_trial_apply(struct oea_trial *trial, mtk_route_fn route, uint32_t piece)
{
	static double scratch[4 * OEA_TRIAL_MAX_COLUMNS + 1024];
	const struct mtk_route_result base = {.ids = trial->base_ids,
					      .weights = trial->base_weights};
	const struct mtk_route_batch rows = oea_trial_rows(trial);
	const struct mtk_oea_batch batch = batch_of(trial);
	const struct mtk_oea_result result = result_of(trial);

	route(&trial->route, &rows, 0, rows.n_rows, scratch, &base);
	memset(trial->n_base, 0xff, sizeof(trial->n_base));
	memset(trial->is_loaded, 0xff, sizeof(trial->is_loaded));
	memset(trial->ids, 0x7f, sizeof(trial->ids));
	memset(trial->weights, 0xff, sizeof(trial->weights));
	memset(trial->flags, 0xff, sizeof(trial->flags));
	for (uint32_t r = 0; r < rows.n_rows; r += piece)
		mtk_oea_base(&batch, r, r + piece < rows.n_rows ? r + piece : rows.n_rows, scratch);
	mtk_oea_unite(&batch);
	for (uint32_t r = 0; r < rows.n_rows; r += piece)
		mtk_oea_choose(&batch, r, r + piece < rows.n_rows ? r + piece : rows.n_rows,
			       scratch, &result);
}
