/* SPDX-License-Identifier: MIT */
/*
 * moetrace_request_routed_experts(): the same answer out of memory and out of the file, held to
 * what the toy runtime chose, position by position; types, states and the text form.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

enum { N_LAYERS = 3, N_EXPERTS = 64, TOP_K = 4, N_PLACES = 12 };

/* What a position must have: the row of its pass that chose the experts, or -1. */
struct want {
	uint32_t state;
	int row;
};

static struct moetrace_session_opts opts_with(uint64_t window_bytes)
{
	struct moetrace_session_opts opts = toy_opts();

	opts.experts_window_bytes = window_bytes;
	return opts;
}

static struct moetrace_routed_experts *ask(const struct toy *toy, uint64_t request,
					   const struct moetrace_routed_experts_opts *opts)
{
	struct moetrace_routed_experts *experts = NULL;
	int status = moetrace_request_routed_experts(toy->session, request, opts, &experts);
	char text[512];

	moetrace_errmsg(toy->session, text, sizeof(text));
	REQUIRE(status == MOETRACE_OK && experts, "routed experts: %d: %s", status, text);
	return experts;
}

static int32_t id_at(const struct moetrace_routed_experts *experts, size_t at)
{
	if (experts->type == MOETRACE_TYPE_U8)
		return ((const uint8_t *)experts->ids)[at];
	if (experts->type == MOETRACE_TYPE_U16)
		return ((const uint16_t *)experts->ids)[at];
	return ((const int32_t *)experts->ids)[at];
}

static int32_t nobody(const struct moetrace_routed_experts *experts)
{
	return experts->type == MOETRACE_TYPE_U8 ? 255 : experts->type == MOETRACE_TYPE_U16 ? 65535
											     : -1;
}

static void compare(const struct toy *toy, const struct moetrace_routed_experts *experts,
		    const struct want *want, uint32_t n_positions)
{
	uint32_t p, layer, rank;

	ck_assert_uint_eq(experts->n_positions, n_positions);
	ck_assert_uint_eq(experts->n_layers, toy->n_layers);
	ck_assert_uint_eq(experts->k, toy->top_k);
	for (p = 0; p < n_positions; p++)
		for (layer = 0; layer < toy->n_layers; layer++) {
			const size_t at = (size_t)p * toy->n_layers + layer;

			REQUIRE(experts->states[at] == want[p].state, "position %u: state %u", p,
				experts->states[at]);
			for (rank = 0; rank < toy->top_k; rank++)
				REQUIRE(id_at(experts, at * toy->top_k + rank) ==
						(want[p].row < 0
							 ? nobody(experts)
							 : (int32_t)toy_expert(toy, layer,
									       (uint32_t)want[p].row,
									       rank)),
					"position %u, layer %u, rank %u: %d", p, layer, rank,
					id_at(experts, at * toy->top_k + rank));
		}
}

static uint64_t verify(const struct toy *toy, uint64_t request, uint32_t first, uint32_t n)
{
	const struct moetrace_slice slice = {
		.request = request, .first_position = first, .n_rows = n};
	struct moetrace_pass *pass = toy_begin(toy, MOETRACE_PHASE_VERIFY, &slice, 1);
	const uint64_t number = moetrace_pass_number(pass);

	toy_finish(toy, pass, n);
	return number;
}

/* A request that meets everything: a prefix hit, a hole, verify rows of every fate. */
static uint64_t run_request(const struct toy *toy, struct want *want)
{
	static const uint8_t one[] = {1, 0};
	const uint64_t source = toy_request(toy, "source");
	const uint64_t request = toy_request(toy, "request");
	struct moetrace_reuse reuse;
	uint32_t i;

	ck_assert(toy_pass(toy, MOETRACE_PHASE_PREFILL, source, 0, 5));
	ck_assert_int_eq(moetrace_request_end(toy->session, source, MOETRACE_REQUEST_FINISHED, 5),
			 MOETRACE_OK);
	/* A first attempt, of which nothing may be in the answer. */
	ck_assert(toy_pass(toy, MOETRACE_PHASE_PREFILL, request, 1, 9));
	ck_assert_int_eq(moetrace_request_retract(toy->session, request), MOETRACE_OK);
	MOETRACE_INIT(&reuse);
	reuse.n_positions = 3;
	reuse.source_request = source;
	reuse.source_attempt = MOETRACE_ATTEMPT_LAST;
	ck_assert_int_eq(moetrace_request_reuse(toy->session, request, &reuse), MOETRACE_OK);
	ck_assert(toy_pass(toy, MOETRACE_PHASE_PREFILL, request, 3, 3));
	ck_assert_int_eq(moetrace_pass_accept(toy->session, verify(toy, request, 7, 2), 0, one, 2),
			 MOETRACE_OK);
	verify(toy, request, 9, 2);
	for (i = 0; i < N_PLACES; i++)
		want[i] = (struct want){MOETRACE_ROW_UNRECORDED, -1};
	for (i = 0; i < 3; i++)
		want[i] = (struct want){MOETRACE_ROW_REUSED, (int)i};
	for (i = 3; i < 6; i++)
		want[i] = (struct want){MOETRACE_ROW_COMPUTED, (int)i - 3};
	want[7] = (struct want){MOETRACE_ROW_COMPUTED, 0};
	want[8] = (struct want){MOETRACE_ROW_REJECTED, 1};
	want[9] = (struct want){MOETRACE_ROW_UNRESOLVED, 0};
	want[10] = (struct want){MOETRACE_ROW_UNRESOLVED, 1};
	return request;
}

/* In memory, too small a memory, none; while it runs, after its end, after the recording. */
START_TEST(test_memory_and_file_agree)
{
	static const uint64_t windows[] = {1 << 20, 1000, 0};
	static const uint32_t first_attempt;
	const struct moetrace_session_opts opts = opts_with(windows[_i]);
	struct toy toy = toy_start("experts.db", &opts, N_LAYERS, N_EXPERTS, TOP_K);
	struct moetrace_routed_experts_opts all;
	struct moetrace_routed_experts *experts;
	struct want want[N_PLACES];
	const uint64_t request = run_request(&toy, want);
	sqlite3 *db;

	MOETRACE_INIT(&all);
	all.n_positions = N_PLACES;
	experts = ask(&toy, request, &all);
	ck_assert_uint_eq(experts->from_memory, _i == 0);
	ck_assert_uint_eq(experts->attempt, 1);
	compare(&toy, experts, want, N_PLACES);
	moetrace_routed_experts_free(experts);
	/* As long as it is: one past what is computed. */
	experts = ask(&toy, request, NULL);
	compare(&toy, experts, want, 8);
	moetrace_routed_experts_free(experts);
	ck_assert_int_eq(moetrace_request_end(toy.session, request, MOETRACE_REQUEST_FINISHED, 11),
			 MOETRACE_OK);
	experts = ask(&toy, request, NULL);
	ck_assert_uint_eq(experts->from_memory, _i == 0);
	compare(&toy, experts, want, 11);
	moetrace_routed_experts_free(experts);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	experts = ask(&toy, request, NULL);
	ck_assert_uint_eq(experts->from_memory, _i == 0);
	compare(&toy, experts, want, 11);
	moetrace_routed_experts_free(experts);
	MOETRACE_INIT(&all);
	all.attempt = &first_attempt;
	experts = ask(&toy, request, &all);
	ck_assert_uint_eq(experts->n_positions, 10);
	moetrace_routed_experts_free(experts);
	db = toy_close_and_open(&toy);
	db_close(db);
}
END_TEST

/* An attempt by number, part of the positions, each type. */
START_TEST(test_parts_and_types)
{
	static const uint32_t types[] = {MOETRACE_TYPE_U8, MOETRACE_TYPE_U16, MOETRACE_TYPE_I32};
	static const uint32_t first_attempt;
	const struct moetrace_session_opts opts = opts_with(_i % 2 ? 1 << 20 : 0);
	struct toy toy = toy_start("types.db", &opts, N_LAYERS, N_EXPERTS, TOP_K);
	struct moetrace_routed_experts_opts some;
	struct moetrace_routed_experts *experts;
	struct want want[N_PLACES];
	const uint64_t request = run_request(&toy, want);
	uint32_t i;

	MOETRACE_INIT(&some);
	some.type = types[_i / 2];
	some.first_position = 2;
	some.n_positions = 7;
	experts = ask(&toy, request, &some);
	ck_assert_uint_eq(experts->first_position, 2);
	compare(&toy, experts, want + 2, 7);
	moetrace_routed_experts_free(experts);
	some.attempt = &first_attempt;
	experts = ask(&toy, request, &some);
	for (i = 2; i < 9; i++)
		want[i] = (struct want){MOETRACE_ROW_COMPUTED, (int)i - 1};
	compare(&toy, experts, want + 2, 7);
	moetrace_routed_experts_free(experts);
	toy_close(&toy);
}
END_TEST

/*
 * What a client of SGLang decodes: int32, all layers, dense ones zero, base64 of the flat
 * array. Layers 1 and 3 of 4 have experts; the text was made by another implementation.
 */
START_TEST(test_sglang_form)
{
	struct toy toy = toy_open("base64.db", NULL, 1, 8, 1);
	struct moetrace_layer_info layers[2];
	struct moetrace_model_info info;
	struct moetrace_routed_experts_opts form;
	struct moetrace_routed_experts *experts;
	static const int32_t ids[] = {1, 2, 3, 4};
	struct moetrace_slice slice = {.n_rows = 2};
	struct moetrace_pass *pass;
	uint32_t i;

	for (i = 0; i < 2; i++) {
		MOETRACE_INIT(&layers[i]);
		layers[i].layer = 1 + 2 * i;
		layers[i].n_experts = 300;
		layers[i].top_k = 2;
	}
	MOETRACE_INIT(&info);
	info.name = "with dense layers";
	info.layers = layers;
	info.n_moe_layers = 2;
	info.n_layers = 4;
	ck_assert_int_eq(moetrace_model_add(toy.session, &info, &toy.model), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	slice.request = toy_request(&toy, "r");
	pass = toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slice, 1);
	toy_select_ids(pass, 0, 2, 2, ids);
	moetrace_pass_end(pass);
	MOETRACE_INIT(&form);
	form.model = toy.model;
	form.layers = MOETRACE_EXPERTS_ALL_LAYERS;
	form.base64 = 1;
	experts = ask(&toy, slice.request, &form);
	ck_assert_uint_eq(experts->n_layers, 4);
	ck_assert_uint_eq(experts->ids_bytes, 2 * 4 * 2 * 4);
	ck_assert_uint_eq(experts->states[0], MOETRACE_ROW_ABSENT);
	ck_assert_uint_eq(experts->states[1], MOETRACE_ROW_COMPUTED);
	ck_assert_uint_eq(experts->states[3], MOETRACE_ROW_UNWRITTEN);
	ck_assert_str_eq(experts->base64,
			 "AAAAAAAAAAABAAAAAgAAAAAAAAAAAAAA//////////8AAAAAAAAAAAMAAAAEAAAA"
			 "AAAAAAAAAAD//////////w==");
	moetrace_routed_experts_free(experts);
	form.type = MOETRACE_TYPE_U8;
	experts = (void *)1;
	ck_assert_int_eq(moetrace_request_routed_experts(toy.session, slice.request, &form,
							 &experts),
			 MOETRACE_E_LIMIT);
	ck_assert_ptr_null(experts);
	toy_close(&toy);
}
END_TEST

/* A layer that sees fewer rows, one with fewer experts in a row, a draft model. */
START_TEST(test_absent_rows_and_drafts)
{
	const struct moetrace_session_opts opts = opts_with(_i ? 1 << 20 : 0);
	struct toy toy = toy_start("absent.db", &opts, 2, 64, 2);
	static const uint32_t map[] = {2};
	static const int32_t ids[] = {9, -1};
	struct moetrace_selection selection;
	struct moetrace_slice slice = {.request = toy_request(&toy, "r"), .n_rows = 3};
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slice, 1);
	struct moetrace_routed_experts *experts;

	toy_select(&toy, pass, 0, 3);
	MOETRACE_INIT(&selection);
	selection.layer_index = 1;
	selection.n_rows = 1;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = ids;
	selection.row_map = map;
	moetrace_select_experts(pass, &selection);
	moetrace_pass_end(pass);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DRAFT, slice.request, 2, 1));
	experts = ask(&toy, slice.request, NULL);
	ck_assert_uint_eq(experts->from_memory, _i);
	ck_assert_uint_eq(experts->n_positions, 3);
	ck_assert_uint_eq(experts->states[1], MOETRACE_ROW_ABSENT);
	ck_assert_uint_eq(experts->states[4], MOETRACE_ROW_COMPUTED);
	ck_assert_uint_eq(experts->states[5], MOETRACE_ROW_COMPUTED);
	ck_assert_int_eq(id_at(experts, 2), -1);
	ck_assert_int_eq(id_at(experts, 10), 9);
	ck_assert_int_eq(id_at(experts, 11), -1);
	moetrace_routed_experts_free(experts);
	toy_close(&toy);
}
END_TEST

START_TEST(test_what_is_refused)
{
	struct toy toy = toy_start("refused.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	struct moetrace_routed_experts_opts opts;
	struct moetrace_routed_experts *experts;
	static const uint32_t attempt = 5;

	moetrace_routed_experts_free(NULL);
	MOETRACE_INIT(&opts);
	ck_assert_int_eq(moetrace_request_routed_experts(NULL, request, &opts, &experts),
			 MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_request_routed_experts(toy.session, request, &opts, NULL),
			 MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_request_routed_experts(toy.session, 77, &opts, &experts),
			 MOETRACE_E_INVALID);
	opts.model = 9;
	ck_assert_int_eq(moetrace_request_routed_experts(toy.session, request, &opts, &experts),
			 MOETRACE_E_INVALID);
	opts.model = 0;
	opts.type = MOETRACE_TYPE_F32;
	ck_assert_int_eq(moetrace_request_routed_experts(toy.session, request, &opts, &experts),
			 MOETRACE_E_INVALID);
	opts.type = 0;
	opts.attempt = &attempt;
	ck_assert_int_eq(moetrace_request_routed_experts(toy.session, request, &opts, &experts),
			 MOETRACE_E_NOT_FOUND);
	opts.attempt = NULL;
	opts.n_positions = UINT32_MAX;
	ck_assert_int_eq(moetrace_request_routed_experts(toy.session, request, &opts, &experts),
			 MOETRACE_E_LIMIT);
	opts.n_positions = 0;
	experts = ask(&toy, request, &opts);
	ck_assert_uint_eq(experts->n_positions, 0);
	moetrace_routed_experts_free(experts);
	toy_close(&toy);
}
END_TEST

START_TEST(test_nothing_is_found_where_recording_is_disabled)
{
	struct moetrace_routed_experts *experts;
	struct toy toy;

	ck_assert_int_eq(setenv("MOETRACE_DISABLE", "1", 1), 0);
	toy = toy_start("disabled.db", NULL, 1, 64, 2);
	ck_assert_int_eq(moetrace_request_routed_experts(toy.session, toy_request(&toy, "r"), NULL,
							 &experts),
			 MOETRACE_E_NOT_FOUND);
	ck_assert_ptr_null(experts);
	toy_close(&toy);
}
END_TEST

/* What was asked after a rotation, of requests that had ended before it and of one that had not. */
START_TEST(test_after_rotation)
{
	const struct moetrace_session_opts opts = opts_with(_i ? 1u << 24 : 0);
	struct toy toy = toy_start("rotated.db", &opts, N_LAYERS, N_EXPERTS, TOP_K);
	const struct moetrace_routed_experts_opts form = {.size = sizeof(form),
							  .n_positions = N_PLACES};
	struct moetrace_routed_experts *experts;
	const uint64_t open = toy_request(&toy, "open");
	struct want want[N_PLACES];
	const uint64_t request = run_request(&toy, want);
	uint32_t i;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, open, 0, 2));
	ck_assert_int_eq(moetrace_request_end(toy.session, request, MOETRACE_REQUEST_FINISHED, 12),
			 MOETRACE_OK);
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(moetrace_rotate(toy.session, NULL), MOETRACE_OK);
		experts = ask(&toy, request, &form);
		ck_assert_uint_eq(experts->from_memory, (uint32_t)_i);
		compare(&toy, experts, want, N_PLACES);
		moetrace_routed_experts_free(experts);
	}
	/* An open request is in each file, and asked for in the last one. */
	experts = ask(&toy, open, NULL);
	ck_assert_uint_eq(experts->n_positions, 0);
	moetrace_routed_experts_free(experts);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, open, 2, 1));
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	experts = ask(&toy, request, &form);
	compare(&toy, experts, want, N_PLACES);
	moetrace_routed_experts_free(experts);
	experts = ask(&toy, open, NULL);
	ck_assert_uint_eq(experts->n_positions, 3);
	ck_assert_uint_eq(experts->states[0], MOETRACE_ROW_UNRECORDED);
	moetrace_routed_experts_free(experts);
	ck_assert_int_eq(unlink(toy.path), 0);
	ck_assert_int_eq(moetrace_request_routed_experts(toy.session, request, &form, &experts),
			 _i ? MOETRACE_OK : MOETRACE_E_NOT_FOUND);
	moetrace_routed_experts_free(experts);
	toy_close(&toy);
}
END_TEST

static Suite *experts_suite(void)
{
	Suite *suite = suite_create("experts");
	TCase *tcase = tcase_create("experts");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, test_memory_and_file_agree, 0, 3);
	tcase_add_loop_test(tcase, test_parts_and_types, 0, 6);
	tcase_add_loop_test(tcase, test_after_rotation, 0, 2);
	tcase_add_test(tcase, test_sglang_form);
	tcase_add_loop_test(tcase, test_absent_rows_and_drafts, 0, 2);
	tcase_add_test(tcase, test_what_is_refused);
	tcase_add_test(tcase, test_nothing_is_found_where_recording_is_disabled);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return suite_run(experts_suite());
}
