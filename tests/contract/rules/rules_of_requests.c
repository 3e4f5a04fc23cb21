/* SPDX-License-Identifier: MIT */
/* Rules of requests: r07 and r08. */
#include "tests/contract/rules/rules.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/db.h"
#include "tests/unit/support/said.h"
#include "tests/unit/support/suite.h"

/* An attempt as the file has it: its rows in order of position and layer. */
static char *attempt_of(const struct toy *toy, int64_t attempt)
{
	sqlite3 *db = db_open(toy->path);
	char *text = strdup(db_text(db, "SELECT group_concat(s) FROM (SELECT position || ':' || layer"
					" || ':' || hex(topk_ids) || ':' || hex(topk_weights) AS s FROM"
					" token_topk WHERE attempt = %lld ORDER BY position, layer)",
				    (long long)attempt));

	db_close(db);
	return text;
}

START_TEST(r07_a_retract_keeps_the_first_attempt)
{
	struct toy toy = toy_start("r07.db", NULL, 2, 64, 4);
	const uint64_t request = toy_request(&toy, "r");
	char *before, *after;
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 10));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 10, 1));
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	before = attempt_of(&toy, 0);
	ck_assert_int_eq(moetrace_request_retract(toy.session, request), MOETRACE_OK);
	/* Computed again beside others, the toy's rows choose otherwise: position p is row p + 1. */
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 11));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 11, 1));
	toy_end(&toy, request, 12);
	db = toy_prove_and_open(&toy, 0);
	after = attempt_of(&toy, 0);
	ck_assert_str_eq(after, before);
	ck_assert_str_eq(toy_verdict(db, "r"), "complete");
	ck_assert_int_eq(db_int(db, "SELECT n_attempts FROM request"), 2);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(n) FROM (SELECT attempt || ':' || count(*)"
				     " AS n FROM stored_topk WHERE layer = 0 GROUP BY attempt)"),
			 "0:11,1:12");
	free(before);
	free(after);
	db_close(db);
}
END_TEST

static uint64_t verify_pass(const struct toy *toy, uint64_t request, uint32_t first, uint32_t n)
{
	const struct moetrace_slice slice = {
		.request = request, .first_position = first, .n_rows = n};
	struct moetrace_pass *pass = toy_begin(toy, MOETRACE_PHASE_VERIFY, &slice, 1);
	const uint64_t number = moetrace_pass_number(pass);

	toy_finish(toy, pass, n);
	return number;
}

/* Positions 4 and 5, of which the second layer sees the last; then 6, of which it is not told. */
static void absent_and_unwritten(const struct toy *toy, uint64_t request)
{
	static const uint32_t last[] = {1};
	static const int32_t ids[] = {9, 8, 7, 6};
	struct moetrace_slice slice = {.request = request, .first_position = 4, .n_rows = 2};
	struct moetrace_pass *pass = toy_begin(toy, MOETRACE_PHASE_PREFILL, &slice, 1);
	struct moetrace_selection selection;

	toy_select(toy, pass, 0, 2);
	MOETRACE_INIT(&selection);
	selection.layer_index = 1;
	selection.n_rows = 1;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = ids;
	selection.row_map = last;
	moetrace_select_experts(pass, &selection);
	moetrace_pass_end(pass);
	slice.first_position = 6;
	slice.n_rows = 1;
	pass = toy_begin(toy, MOETRACE_PHASE_PREFILL, &slice, 1);
	toy_select(toy, pass, 0, 1);
	moetrace_pass_end(pass);
}

static void states_expect(const struct toy *toy, uint64_t request, const char *want)
{
	static const char letters[] = "CRU-D.wdn"; /* by enum moetrace_row_state */
	struct moetrace_routed_experts *experts;
	const int32_t *ids;
	char text[64] = "", *at = text;

	ck_assert_int_eq(moetrace_request_routed_experts(toy->session, request, NULL, &experts),
			 MOETRACE_OK);
	ids = experts->ids;
	for (uint32_t p = 0; p < experts->n_positions; p++) {
		for (uint32_t l = 0; l < experts->n_layers; l++, ids += experts->k) {
			uint8_t state = experts->states[p * experts->n_layers + l];

			*at++ = letters[state];
			/* Where nothing is known there is no id, and 0 is an expert. */
			for (uint32_t i = 0; i < experts->k; i++)
				REQUIRE((ids[i] >= 0) == (state <= MOETRACE_ROW_DRAFT),
					"position %u, layer %u: %d", p, l, ids[i]);
		}
		*at++ = p + 1 < experts->n_positions ? ' ' : '\0';
	}
	ck_assert_str_eq(text, want);
	moetrace_routed_experts_free(experts);
}

START_TEST(r08_every_position_has_a_state_and_none_is_an_expert)
{
	static const uint8_t one[] = {1, 0, 0};
	struct toy toy = toy_start("r08.db", NULL, 2, 64, 4);
	const uint64_t r = toy_request(&toy, "r"), other = toy_request(&toy, "other");
	struct moetrace_slice draft = {.request = r, .first_position = 10, .n_rows = 1,
				       .phase = MOETRACE_PHASE_DRAFT};
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, r, 0, 4));
	absent_and_unwritten(&toy, r);
	ck_assert_int_eq(moetrace_pass_accept(toy.session, verify_pass(&toy, r, 7, 3), 0, one, 3),
			 MOETRACE_OK);
	verify_pass(&toy, r, 8, 1); /* whether it was accepted is never told */
	toy_finish(&toy, toy_begin(&toy, MOETRACE_PHASE_DRAFT, &draft, 1), 1);
	moetrace_region_disable(toy.session);
	(void)toy_pass(&toy, MOETRACE_PHASE_DECODE, r, 11, 1);
	moetrace_region_enable(toy.session);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, r, 12, 1));
	toy_reuse(&toy, other, 0, 2, r, MOETRACE_ATTEMPT_LAST);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, other, 2, 1));
	toy_end(&toy, r, 13);
	toy_end(&toy, other, 3);
	/* C computed, R reused, U unresolved, - rejected, D draft, . absent, w unwritten, n no row */
	states_expect(&toy, r, "CC CC CC CC C. CC Cw CC UU -- DD nn CC");
	states_expect(&toy, other, "RR RR CC");
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_verdict(db, "r"), "partial unwritten,unresolved,missing,disabled");
	ck_assert_str_eq(toy_verdict(db, "other"), "complete");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(s) FROM (SELECT state || ':' || count(*) AS s"
				     " FROM token_topk JOIN request AS r USING (request_id) WHERE layer"
				     " = 0 AND external_id = 'r' GROUP BY state)"),
			 "computed:9,draft:1,rejected:2,unresolved:1");
	/* Rejected rows are in the pass and its counts, and not among what the request relies on. */
	ck_assert_int_eq(db_int(db, "SELECT sum(verify_tokens) FROM expert_load"), 4 * 2 * 4);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(state) FROM pass_layer WHERE state <> 0"),
			 "1");
	db_close(db);
}
END_TEST

/* A layer that nobody handed over has no bytes, no count and no expert 0. */
START_TEST(s_expert_0_never_stands_for_an_unwritten_layer)
{
	static const int32_t zeros[] = {0, 1, 0, 2};
	struct toy toy = toy_start("zero.db", NULL, 2, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	const struct moetrace_slice slice = {.request = request, .n_rows = 2};
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slice, 1);
	sqlite3 *db;

	toy_select_ids(pass, 0, 2, 2, zeros); /* here expert 0 is a choice */
	moetrace_pass_end(pass);
	toy_end(&toy, request, 2);
	states_expect(&toy, request, "Cw Cw");
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_verdict(db, "r"), "partial unwritten");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(layer || ':' || tokens) FROM (SELECT layer,"
				     " prefill_tokens AS tokens FROM expert_load WHERE expert = 0)"),
			 "0:2,1:0");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM routed_expert WHERE layer = 1"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer JOIN layer USING (layer_id) WHERE"
				    " layer = 1 AND state = 1 AND topk_id IS NULL AND active_experts"
				    " IS NULL"), 1);
	ck_assert_int_eq(db_stat(db, 1, "unwritten_layers"), 1);
	db_close(db);
}
END_TEST

TCase *rules_of_requests(void)
{
	TCase *tcase = tcase_create("requests");

	tcase_add_test(tcase, r07_a_retract_keeps_the_first_attempt);
	tcase_add_test(tcase, r08_every_position_has_a_state_and_none_is_an_expert);
	tcase_add_test(tcase, s_expert_0_never_stands_for_an_unwritten_layer);
	return tcase;
}
