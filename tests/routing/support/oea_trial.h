/* SPDX-License-Identifier: MIT */
/* A batch under opportunistic expert activation, as the tests of the rule make and run it. */
#ifndef TESTS_ROUTING_SUPPORT_OEA_TRIAL_H
#define TESTS_ROUTING_SUPPORT_OEA_TRIAL_H

#include "kernels/oea/oea.h"

#define OEA_TRIAL_MAX_ROWS 24
/* The oracle asks for a list of all columns, which is as long as a choice may be. */
#define OEA_TRIAL_MAX_COLUMNS MTK_ROUTE_MAX_TOP_K

/* A batch, what the router made of it, and what the rule did. */
struct oea_trial {
	struct mtk_route_config route;
	struct mtk_oea oea;
	uint32_t n_rows;
	uint32_t n_valid_rows;
	uint8_t is_decode[OEA_TRIAL_MAX_ROWS];
	float logits[OEA_TRIAL_MAX_ROWS * OEA_TRIAL_MAX_COLUMNS];
	float bias[OEA_TRIAL_MAX_COLUMNS];
	int32_t base_ids[OEA_TRIAL_MAX_ROWS * MTK_ROUTE_MAX_WIDTH];
	float base_weights[OEA_TRIAL_MAX_ROWS * MTK_ROUTE_MAX_WIDTH];
	uint8_t n_base[OEA_TRIAL_MAX_ROWS];
	uint8_t is_loaded[OEA_TRIAL_MAX_COLUMNS];
	int32_t ids[OEA_TRIAL_MAX_ROWS * MTK_ROUTE_MAX_WIDTH];
	float weights[OEA_TRIAL_MAX_ROWS * MTK_ROUTE_MAX_WIDTH];
	uint8_t flags[OEA_TRIAL_MAX_ROWS];
};

struct mtk_route_batch oea_trial_rows(const struct oea_trial *trial);

/* Route on a level, then apply the rule in pieces of `piece` rows. */
void oea_trial_apply(struct oea_trial *trial, mtk_route_fn route, uint32_t piece);

#endif
