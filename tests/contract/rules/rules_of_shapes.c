/* SPDX-License-Identifier: MIT */
/* What sizes and orders must not change: many experts, large and empty batches, unordered ids. */
#include "tests/contract/rules/rules.h"

#include <stdlib.h>

#include "tests/unit/support/db.h"
#include "tests/unit/support/said.h"
#include "tests/unit/support/suite.h"

/* Ids at the ends of a layer's range, in as few bytes as the largest needs. */
START_TEST(s_experts_of_one_and_of_two_bytes)
{
	static const struct {
		uint32_t n_experts, top_k, id_bytes;
	} cases[] = {{255, 4, 1}, {256, 4, 1}, {257, 4, 2}, {512, 22, 2}};
	const uint32_t n = cases[_i].n_experts, k = cases[_i].top_k;
	struct toy toy = toy_start("experts.db", NULL, 1, n, k);
	const uint64_t request = toy_request(&toy, "r");
	const struct moetrace_slice slice = {.request = request, .n_rows = 3};
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slice, 1);
	int32_t ids[3 * 22];
	sqlite3 *db;

	for (uint32_t i = 0; i < k; i++) {
		ids[i] = (int32_t)i;
		ids[k + i] = (int32_t)(n - 1 - i);
		ids[2 * k + i] = (int32_t)((n / 2 + i * 7) % n);
	}
	toy_select_ids(pass, 0, 3, k, ids);
	moetrace_pass_end(pass);
	toy_end(&toy, request, 3);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_int_eq(db_int(db, "SELECT id_bytes FROM topk"), cases[_i].id_bytes);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM routed_expert"), 3 * k);
	for (uint32_t i = 0; i < 3 * k; i++)
		REQUIRE(db_int(db, "SELECT expert FROM routed_expert WHERE position = %u AND topk_rank ="
				   " %u", i / k, i % k) == ids[i], "position %u, rank %u", i / k, i % k);
	ck_assert_int_eq(db_stat(db, 1, "invalid_ids"), 0);
	db_close(db);
}
END_TEST

/* More rows than a run holds, and than any batch that was ever captured. */
START_TEST(s_batches_of_any_size)
{
	struct toy toy = toy_start("batches.db", NULL, 2, 64, 4);
	const uint64_t request = toy_request(&toy, "r");
	const struct moetrace_slice none = {.request = request};
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 20000));
	/* A pass without rows is a pass, with layers or without. */
	toy_finish(&toy, toy_begin(&toy, MOETRACE_PHASE_DECODE, &none, 1), 0);
	moetrace_pass_end(toy_begin(&toy, MOETRACE_PHASE_IDLE, NULL, 0));
	toy_end(&toy, request, 20000);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_verdict(db, "r"), "complete");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(n_rows || verdict) FROM pass"),
			 "20000complete,0complete,0complete");
	ck_assert_int_eq(db_int(db, "SELECT sum(length(topk_ids)) FROM topk"), 20000 * 2 * 4);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM token_topk WHERE layer = 1 AND position ="
				    " 19999 AND hex(topk_ids) = printf('%%02X%%02X%%02X%%02X', %u, %u,"
				    " %u, %u)", toy_expert(&toy, 1, 19999, 0), toy_expert(&toy, 1, 19999, 1),
				    toy_expert(&toy, 1, 19999, 2), toy_expert(&toy, 1, 19999, 3)), 1);
	db_close(db);
}
END_TEST

/* The same row in order and shuffled: where the weights tell the order, it is restored. */
START_TEST(s_unordered_ids_get_the_order_of_their_twin)
{
	/* In order of their weights: 7, 3, 250, 12. */
	static const int32_t shuffled[] = {12, 250, 7, 3};
	static const float weights[] = {0.0625f, 0.125f, 0.5f, 0.25f};
	static const float bias[256] = {[7] = -1, [12] = 1};
	struct toy toy = toy_open("twin.db", NULL, 1, 256, 4);
	const struct moetrace_slice slice = {.n_rows = 1};
	struct moetrace_layer_info layer;
	struct moetrace_model_info info;
	struct moetrace_selection selection;
	struct moetrace_pass *pass;
	sqlite3 *db;

	MOETRACE_INIT(&layer);
	layer.n_experts = 256;
	layer.top_k = 4;
	layer.weight_kind = MOETRACE_WEIGHT_RAW;
	layer.correction_bias = _i == 0 ? MOETRACE_NO : MOETRACE_YES;
	layer.bias_values = _i == 1 ? bias : NULL;
	MOETRACE_INIT(&info);
	info.name = "twin";
	info.layers = &layer;
	info.n_moe_layers = 1;
	ck_assert_int_eq(moetrace_model_add(toy.session, &info, &toy.model), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	MOETRACE_INIT(&selection);
	selection.n_rows = 1;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = shuffled;
	selection.weight_type = MOETRACE_TYPE_F32;
	selection.weights = weights;
	selection.order = MOETRACE_ORDER_UNORDERED;
	pass = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	moetrace_select_experts(pass, &selection);
	moetrace_pass_end(pass);
	db = toy_prove_and_open(&toy, 0);
	/* By weight; by weight and bias; and where the bias is not told, not at all. */
	ck_assert_str_eq(db_text(db, "SELECT selection_order || ' ' || hex(topk_ids) FROM pass_layer"
				     " JOIN topk USING (topk_id)"),
			 _i == 0 ? "1 0703FA0C" : _i == 1 ? "1 0C03FA07" : "2 0CFA0703");
	db_close(db);
}
END_TEST

TCase *rules_of_shapes(void)
{
	TCase *tcase = tcase_create("shapes");

	tcase_add_loop_test(tcase, s_experts_of_one_and_of_two_bytes, 0, 4);
	tcase_add_test(tcase, s_batches_of_any_size);
	tcase_add_loop_test(tcase, s_unordered_ids_get_the_order_of_their_twin, 0, 3);
	return tcase;
}
