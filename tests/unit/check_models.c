/* SPDX-License-Identifier: MIT */
/*
 * Models as they are told: every fact of them is stored, what was not told is unknown, and what no
 * model can have is refused.
 */
#include <math.h>

#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

static struct moetrace_layer_info full_layer(void)
{
	struct moetrace_layer_info layer;

	MOETRACE_INIT(&layer);
	layer.layer = 3;
	layer.kind = MOETRACE_LAYER_HASH;
	layer.n_experts = 256;
	layer.n_shared_slots = 1;
	layer.top_k = 9;
	layer.scoring = MOETRACE_SCORING_SIGMOID;
	layer.n_groups = 8;
	layer.topk_groups = 4;
	layer.renormalize = MOETRACE_YES;
	layer.routed_scaling_factor = 2.5;
	layer.scaling_owner = MOETRACE_SCALING_OUTPUT;
	layer.soft_cap = 30.0;
	layer.correction_bias = MOETRACE_NO;
	layer.weight_kind = MOETRACE_WEIGHT_RENORMALIZED | MOETRACE_WEIGHT_SCALED;
	layer.gemm_block_rows = 64;
	layer.expert_weight_bytes = UINT64_C(1) << 40;
	layer.router_impl = "router";
	layer.runner_backend = "runner";
	layer.impl_reason = "reason";
	layer.router_output = MOETRACE_ROUTER_OUTPUT_NONE;
	layer.group_top_n = 2;
	return layer;
}

START_TEST(test_model_is_stored)
{
	const struct moetrace_layer_info layer = full_layer();
	struct toy toy = toy_open("model.db", NULL, 1, 64, 2);
	struct moetrace_model_info info;
	uint32_t model;
	sqlite3 *db;

	MOETRACE_INIT(&info);
	info.name = "full";
	info.kind = MOETRACE_MODEL_MTP;
	info.architecture = "Arch";
	info.quantization = "fp8";
	info.n_layers = 61;
	info.layers = &layer;
	info.n_moe_layers = 1;
	info.first_moe_ordinal = 30;
	ck_assert_int_eq(moetrace_model_add(toy.session, &info, &model), MOETRACE_OK);
	ck_assert_uint_ne(model, toy.model);
	toy_close(&toy);
	db = db_open(toy.path);
	ck_assert_str_eq(db_text(db, "SELECT kind || architecture || n_layers || quantization FROM"
				     " model WHERE name = 'full'"),
			 "mtpArch61fp8");
	ck_assert_str_eq(
		db_text(db, "SELECT layer || ' ' || moe_ordinal || ' ' || kind || ' ' ||"
			    " n_experts || ' ' || n_zero_experts || ' ' || n_shared_slots || ' ' ||"
			    " top_k || ' ' || scoring || ' ' || n_groups || ' ' || topk_groups ||"
			    " ' ' || renormalize || ' ' || routed_scaling_factor || ' ' ||"
			    " scaling_owner || ' ' || soft_cap || ' ' || has_correction_bias ||"
			    " ' ' || weight_kind || ' ' || gemm_block_rows || ' ' ||"
			    " expert_weight_bytes || ' ' || router_impl || ' ' || runner_backend"
			    " || ' ' || impl_reason || ' ' || router_output || ' ' || group_top_n"
			    " FROM layer WHERE top_k = 9"),
		"3 30 hash 256 0 1 9 sigmoid 8 4 1 2.5 output 30.0 0 renormalized,scaled 64 "
		"1099511627776 router runner reason none 2");
	db_close(db);
}
END_TEST

/* What was not told is NULL, never 0. */
START_TEST(test_unknown_is_null)
{
	struct toy toy = toy_open("null.db", NULL, 1, 64, 2);
	sqlite3 *db;

	toy_close(&toy);
	db = db_open(toy.path);
	ck_assert_int_eq(
		db_int(db, "SELECT count(*) FROM layer WHERE scoring IS NULL AND n_groups IS"
			   " NULL AND topk_groups IS NULL AND renormalize IS NULL AND"
			   " routed_scaling_factor IS NULL AND scaling_owner IS NULL AND soft_cap"
			   " IS NULL AND has_correction_bias IS NULL AND weight_kind IS NULL AND"
			   " gemm_block_rows IS NULL AND expert_weight_bytes IS NULL AND"
			   " router_impl IS NULL AND runner_backend IS NULL AND impl_reason IS"
			   " NULL AND bias_values IS NULL AND router_output IS NULL AND"
			   " group_top_n IS NULL AND kind = 'routed'"),
		1);
	ck_assert_int_eq(db_int(db,
				"SELECT count(*) FROM model WHERE architecture IS NULL AND"
				" n_layers IS NULL AND quantization IS NULL AND kind = 'target'"),
			 1);
	db_close(db);
}
END_TEST

/* A description that no model can have is refused, whatever of it is wrong, and leaves nothing. */
START_TEST(test_models_that_cannot_be)
{
	enum { N_WRONG = 16 };
	static const double wrong_numbers[] = {INFINITY, -INFINITY, NAN, -1};
	static const float nan_last[256] = {[0] = -INFINITY, [255] = NAN};
	struct toy toy = toy_open("wrong.db", NULL, 1, 64, 2);
	struct moetrace_layer_info layers[N_WRONG];
	struct moetrace_model_info info;
	uint32_t model, i;
	sqlite3 *db;

	for (i = 0; i < N_WRONG; i++)
		layers[i] = full_layer();
	for (i = 0; i < 4; i++) {
		layers[i].soft_cap = wrong_numbers[i];
		layers[4 + i].routed_scaling_factor = wrong_numbers[i];
	}
	layers[8].n_groups = layers[8].n_experts + 1;
	layers[9].topk_groups = layers[9].n_groups + 1;
	layers[10].expert_weight_bytes = UINT64_C(1) << 63;
	layers[11].router_output = MOETRACE_ROUTER_OUTPUT_NONE + 1;
	layers[12].n_groups = layers[12].topk_groups = 0; /* and yet a group_top_n */
	layers[13].group_top_n = 33;
	layers[14].correction_bias = MOETRACE_YES;
	layers[14].bias_values = nan_last;
	layers[15].layer = 61;
	MOETRACE_INIT(&info);
	info.name = "wrong";
	info.n_layers = 61;
	info.n_moe_layers = 1;
	for (i = 0; i < N_WRONG; i++) {
		info.layers = &layers[i];
		ck_assert_msg(moetrace_model_add(toy.session, &info, &model) ==
				      MOETRACE_E_INVALID,
			      "wrong layer %u was accepted", i);
		ck_assert_uint_eq(model, 0);
	}
	layers[15].layer = 60;
	ck_assert_int_eq(moetrace_model_add(toy.session, &info, &model), MOETRACE_OK);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM layer"), 2);
	db_close(db);
}
END_TEST

static Suite *models_suite(void)
{
	Suite *suite = suite_create("models");
	TCase *tc = tcase_create("models");

	tcase_add_test(tc, test_model_is_stored);
	tcase_add_test(tc, test_unknown_is_null);
	tcase_add_test(tc, test_models_that_cannot_be);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	return suite_run(models_suite());
}
