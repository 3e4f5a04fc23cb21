/* SPDX-License-Identifier: MIT */
/* Rules of the hot path: r01, r02, r05, r06, r09, r10 and r14. */
#include "tests/contract/rules/rules.h"

#include <string.h>
#include <sys/resource.h>

#include "tests/unit/support/db.h"
#include "tests/unit/support/said.h"
#include "tests/unit/support/suite.h"

static int add_model(const struct toy *toy, uint32_t kind, const uint32_t *numbers,
		     uint32_t n_moe_layers, uint32_t n_experts, uint32_t *ret_model)
{
	struct moetrace_layer_info layers[2];
	struct moetrace_model_info info;

	for (uint32_t i = 0; i < n_moe_layers; i++) {
		MOETRACE_INIT(&layers[i]);
		layers[i].layer = numbers[i];
		layers[i].n_experts = n_experts;
		layers[i].top_k = 2;
		layers[i].n_shared_slots = 1;
	}
	MOETRACE_INIT(&info);
	info.name = "other";
	info.kind = kind;
	info.n_layers = 5;
	info.layers = layers;
	info.n_moe_layers = n_moe_layers;
	return moetrace_model_add(toy->session, &info, ret_model);
}

START_TEST(r01_layers_are_declared_once_and_models_do_not_mix)
{
	static const uint32_t twice[] = {1, 1}, once[] = {0};
	static const int32_t draft_ids[] = {9, 8, 7, 6, 5, 4};
	struct toy toy = toy_start("r01.db", NULL, 2, 64, 4);
	struct toy draft = toy;
	const struct moetrace_slice slice = {.n_rows = 2};
	struct moetrace_pass *pass;
	uint32_t model;
	sqlite3 *db;

	ck_assert_int_eq(add_model(&toy, MOETRACE_MODEL_DRAFT, twice, 2, 10, &model),
			 MOETRACE_E_INVALID);
	ck_assert_int_eq(add_model(&toy, MOETRACE_MODEL_DRAFT, once, 1, 10, &draft.model),
			 MOETRACE_OK);
	/* Both have a layer 0, and hand it over in turn. */
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	pass = toy_begin(&draft, MOETRACE_PHASE_DRAFT, &slice, 1);
	toy_select_ids(pass, 0, 2, 2, draft_ids);
	/* The same layer again is no second choice, and a layer that is none is no layer. */
	toy_select_ids(pass, 0, 2, 2, draft_ids + 2);
	toy_select_ids(pass, 1, 2, 2, draft_ids);
	moetrace_pass_end(pass);
	db = toy_prove_and_open(&toy, 2);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(s) FROM (SELECT kind || ' ' || layer || ' ' ||"
				     " n_experts || ' ' || n_shared_slots || ' ' || top_k AS s FROM"
				     " (SELECT m.kind, l.* FROM layer AS l JOIN model AS m USING"
				     " (model_id)) ORDER BY model_id, layer)"),
			 "target 0 64 0 4,target 1 64 0 4,draft 0 10 1 2");
	ck_assert_str_eq(db_text(db, "SELECT hex(topk_ids) FROM token_topk WHERE phase = 'draft' AND"
				     " row = 0"), "0908");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM token_topk WHERE phase = 'draft'"), 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer JOIN layer USING (layer_id)"
				    " JOIN pass USING (pass_id) WHERE pass.model_id <>"
				    " layer.model_id"), 0);
	db_close(db);
}
END_TEST

START_TEST(r02_a_pass_says_whose_its_rows_are)
{
	struct toy toy = toy_start("r02.db", NULL, 2, 64, 4);
	const uint64_t a = toy_request(&toy, "a"), b = toy_request(&toy, "b");
	const uint64_t number = 77;
	const struct moetrace_slice slices[] = {
		{.request = a, .first_position = 5, .n_rows = 3, .phase = MOETRACE_PHASE_PREFILL},
		{.request = b, .first_position = 9, .n_rows = 1, .phase = MOETRACE_PHASE_DECODE},
	};
	struct moetrace_pass_info info;
	sqlite3 *db;

	MOETRACE_INIT(&info);
	info.model = toy.model;
	info.phase = MOETRACE_PHASE_MIXED;
	info.n_rows = 4;
	info.padding_rows = 2;
	info.slices = slices;
	info.n_slices = 2;
	info.runtime_pass = &number;
	toy_finish(&toy, moetrace_pass_begin(toy.session, &info), 6);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(db_text(db, "SELECT phase || n_rows || padding_rows || runtime_pass FROM pass"),
			 "mixed4277");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(s, ', ') FROM (SELECT external_id || ' ' ||"
				     " first_position || '+' || p.n_rows || ' ' || phase AS s FROM"
				     " pass_request AS p JOIN request USING (request_id) ORDER BY slice)"),
			 "a 5+3 prefill, b 9+1 decode");
	/* Row r of the toy's layer chose (7 r + 3 layer + rank) % 64. */
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM routed_expert AS e JOIN request USING"
				    " (request_id) WHERE expert <> ((CASE external_id WHEN 'a' THEN"
				    " position - 5 ELSE 3 END) * 7 + layer * 3 + topk_rank) %% 64"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM routed_expert"), 4 * 2 * 4);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM token_topk"), 4 * 2);
	db_close(db);
}
END_TEST

/*
 * How often this thread gave up its processor because it had to wait. The kernel may make it wait for
 * its own reasons, a fault of a page say: so passes are many and waits few.
 */
static long n_waits(void)
{
	struct rusage usage;

	ck_assert_int_eq(getrusage(RUSAGE_THREAD, &usage), 0);
	return usage.ru_nvcsw;
}

START_TEST(r05_the_hot_path_neither_waits_nor_fails)
{
	struct toy toy = toy_start("r05.db", NULL, 4, 64, 4);
	const struct moetrace_slice slice = {.n_rows = 3}, stranger = {.request = 4711, .n_rows = 3};
	struct moetrace_selection nothing;
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;
	long before;
	sqlite3 *db;

	before = n_waits();
	for (uint32_t i = 0; i < 200; i++)
		REQUIRE(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 16), "%u", i);
	ck_assert_int_lt(n_waits() - before, 20);
	/* What a runtime may get wrong: each is counted, and none is a crash or a lost pass. */
	MOETRACE_INIT(&nothing);
	MOETRACE_INIT(&info);
	moetrace_select_experts(NULL, &nothing);
	moetrace_pass_end(NULL);
	ck_assert_ptr_null(moetrace_pass_begin(NULL, &info));
	ck_assert_ptr_null(moetrace_pass_begin(toy.session, &info)); /* no model */
	info.model = toy.model;
	info.phase = MOETRACE_PHASE_DUMMY;
	info.n_rows = 5;
	info.slices = &slice;
	info.n_slices = 1;
	ck_assert_ptr_null(moetrace_pass_begin(toy.session, &info)); /* 3 rows are not 5 */
	pass = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	moetrace_select_experts(pass, NULL);
	moetrace_select_experts(pass, &nothing); /* no ids */
	toy_select(&toy, pass, 9, 3);            /* no such layer */
	toy_finish(&toy, pass, 3);
	toy_finish(&toy, toy_begin(&toy, MOETRACE_PHASE_DECODE, &stranger, 1), 3);
	db = toy_prove_and_open(&toy, 6);
	ck_assert_int_eq(db_int(db, "SELECT sum(n) FROM (SELECT n_times AS n FROM diagnostic WHERE"
				    " severity <> 'info')"), 6);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 202);
	db_close(db);
}
END_TEST

static uint32_t set_map(const struct toy *toy, const int32_t *slots)
{
	struct moetrace_expert_map map;
	uint32_t epoch;

	MOETRACE_INIT(&map);
	map.n_slots = 6;
	map.n_ranks = 2;
	map.slot_experts = slots;
	ck_assert_int_eq(moetrace_expert_map_set(toy->session, toy->model, &map, &epoch),
			 MOETRACE_OK);
	return epoch;
}

static void physical_pass(const struct toy *toy, const int32_t *slots)
{
	const struct moetrace_slice slice = {.n_rows = 3};
	struct moetrace_pass *pass = toy_begin(toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	struct moetrace_selection selection;

	MOETRACE_INIT(&selection);
	selection.n_rows = 3;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = slots;
	selection.id_space = MOETRACE_ID_PHYSICAL;
	moetrace_select_experts(pass, &selection);
	moetrace_pass_end(pass);
}

/* The same slots mean other experts after a rebalance; what ran before keeps its map. */
START_TEST(r06_logical_ids_under_the_map_of_their_time)
{
	/* Expert 0 lies twice; then all lie the other way round. */
	static const int32_t before[] = {0, 1, 2, 3, 4, 0}, after[] = {0, 4, 3, 2, 1, 0};
	static const int32_t slots[] = {5, 1, 2, 3, 4, 0};
	struct toy toy = toy_start("r06.db", NULL, 1, 5, 2);
	struct moetrace_pass *running;
	const struct moetrace_slice slice = {.n_rows = 3};
	struct moetrace_selection selection;
	sqlite3 *db;

	ck_assert_uint_eq(set_map(&toy, before), 1);
	physical_pass(&toy, slots);
	running = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	ck_assert_uint_eq(set_map(&toy, after), 2);
	MOETRACE_INIT(&selection);
	selection.n_rows = 3;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = slots;
	selection.id_space = MOETRACE_ID_PHYSICAL;
	moetrace_select_experts(running, &selection);
	moetrace_pass_end(running);
	physical_pass(&toy, slots);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(map_epoch) FROM (SELECT map_epoch FROM"
				     " pass_layer ORDER BY pass_id)"), "1,1,2");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(s) FROM (SELECT group_concat(h, '') AS s"
				     " FROM (SELECT pass_id, hex(topk_ids) AS h FROM token_topk ORDER"
				     " BY pass_id, row) GROUP BY pass_id)"),
			 "000102030400,000102030400,000403020100");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(h, '') FROM (SELECT hex(physical_ids) AS h"
				     " FROM topk ORDER BY topk_id)"),
			 "050102030400050102030400050102030400");
	db_close(db);
}
END_TEST

START_TEST(r09_padding_is_counted_apart)
{
	/* Three rows touch 0, 1 and 2; two rows of padding touch 2 again, and 5 and 6. */
	static const int32_t ids[] = {0, 1, 1, 2, 0, 2, 2, 5, 6, 5};
	struct toy toy = toy_start("r09.db", NULL, 1, 8, 2);
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;
	sqlite3 *db;

	MOETRACE_INIT(&info);
	info.model = toy.model;
	info.phase = MOETRACE_PHASE_DUMMY;
	info.n_rows = 3;
	info.padding_rows = 2;
	pass = moetrace_pass_begin(toy.session, &info);
	toy_select_ids(pass, 0, 5, 2, ids);
	moetrace_pass_end(pass);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(db_text(db, "SELECT active_experts || ' ' || padding_active_experts || ' ' ||"
				     " max_load || ' ' || n_rows FROM pass_layer"), "3 2 2 3");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(s, ', ') FROM (SELECT expert || ':' ||"
				     " other_tokens || '+' || padding_tokens AS s FROM"
				     " expert_load_window ORDER BY expert)"),
			 "0:2+0, 1:2+0, 2:2+1, 5:0+2, 6:0+1");
	ck_assert_int_eq(db_int(db, "SELECT sum(length(topk_ids)) FROM topk"), 3 * 2);
	db_close(db);
}
END_TEST

START_TEST(r10_layers_by_number_and_ordinal)
{
	static const uint32_t numbers[] = {3, 4}, last_row[] = {3};
	static const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8};
	struct toy toy = toy_open("r10.db", NULL, 1, 8, 2);
	const struct moetrace_slice slice = {.n_rows = 4};
	struct moetrace_selection selection;
	struct moetrace_pass *pass;
	sqlite3 *db;

	ck_assert_int_eq(add_model(&toy, MOETRACE_MODEL_TARGET, numbers, 2, 9, &toy.model),
			 MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	pass = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	toy_select_ids(pass, 0, 4, 2, ids);
	/* The last layer of a prompt sees the rows whose logits are wanted. */
	MOETRACE_INIT(&selection);
	selection.layer_index = 1;
	selection.n_rows = 1;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = ids;
	selection.row_map = last_row;
	moetrace_select_experts(pass, &selection);
	moetrace_pass_end(pass);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(layer || ':' || moe_ordinal) FROM layer"
				     " WHERE model_id = 2"), "3:0,4:1");
	ck_assert_int_eq(db_int(db, "SELECT n_layers FROM model WHERE model_id = 2"), 5);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(s) FROM (SELECT layer || ':' || row || ':' ||"
				     " hex(topk_ids) AS s FROM token_topk ORDER BY layer, row)"),
			 "3:0:0102,3:1:0304,3:2:0506,3:3:0708,4:3:0102");
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM pass"), "complete");
	db_close(db);
}
END_TEST

START_TEST(r14_what_does_not_fit_is_counted_and_nobody_waits)
{
	struct moetrace_session_opts opts = toy_opts();
	struct moetrace_slice slices[3];
	struct moetrace_pass *first;
	struct toy toy;
	long before;
	sqlite3 *db;

	opts.n_rings = 1;
	opts.ring_bytes = 65536;
	toy = toy_start("r14.db", &opts, 2, 64, 4);
	for (uint32_t i = 0; i < 3; i++)
		slices[i] = (struct moetrace_slice){.n_rows = i == 2 ? 6000 : 8};
	slices[0].request = toy_request(&toy, "good");
	slices[1].request = toy_request(&toy, "no ring");
	slices[2].request = toy_request(&toy, "too large");
	before = n_waits();
	first = toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slices[0], 1);
	for (uint32_t i = 0; i < 200; i++)
		REQUIRE(!toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slices[1], 1), "%u", i);
	toy_finish(&toy, first, 8);
	toy_finish(&toy, toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slices[2], 1), 6000);
	ck_assert_int_lt(n_waits() - before, 20);
	for (uint32_t i = 0; i < 3; i++)
		toy_end(&toy, slices[i].request, slices[i].n_rows);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_verdict(db, "good"), "complete");
	ck_assert_str_eq(toy_verdict(db, "no ring"), "partial lost");
	ck_assert_str_eq(toy_verdict(db, "too large"), "partial lost");
	ck_assert_int_eq(db_stat(db, 1, "dropped_passes"), 200);
	ck_assert_int_eq(db_stat(db, 1, "dropped_layers"), 2);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(s) FROM (SELECT stream || ':' || sum(n_lost)"
				     " AS s FROM gap GROUP BY stream ORDER BY stream)"),
			 "layer:2,pass:200");
	ck_assert_str_eq(db_text(db, "SELECT verdict || ' ' || reasons || ' ' || n_dropped FROM pass"
				     " WHERE n_rows = 6000"), "partial lost 2");
	db_close(db);
}
END_TEST

TCase *rules_of_passes(void)
{
	TCase *tcase = tcase_create("passes");

	tcase_add_test(tcase, r01_layers_are_declared_once_and_models_do_not_mix);
	tcase_add_test(tcase, r02_a_pass_says_whose_its_rows_are);
	tcase_add_test(tcase, r05_the_hot_path_neither_waits_nor_fails);
	tcase_add_test(tcase, r06_logical_ids_under_the_map_of_their_time);
	tcase_add_test(tcase, r09_padding_is_counted_apart);
	tcase_add_test(tcase, r10_layers_by_number_and_ordinal);
	tcase_add_test(tcase, r14_what_does_not_fit_is_counted_and_nobody_waits);
	return tcase;
}
