/* SPDX-License-Identifier: MIT */
/*
 * Faults that recorders of expert routing had in public, each as a test: rows given to the
 * wrong request, position, layer or model, zeros where nothing was written, ids that turn
 * negative, tokens that vanish from large batches, and steps that come too late.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

/* The expert of rank 0 of a position, as a user asks for it. */
static int64_t expert_of(sqlite3 *db, const char *external_id, uint32_t layer, uint32_t position)
{
	return db_int(db,
		      "SELECT expert FROM routed_expert WHERE request_id = (SELECT request_id FROM"
		      " request WHERE external_id = %Q) AND layer = %u AND position = %u AND"
		      " topk_rank = 0",
		      external_id, layer, position);
}

/* Two prompts in chunks that share passes: each row finds its request and position. */
START_TEST(test_chunked_prefill_attribution)
{
	struct toy toy = toy_start("chunks.db", NULL, 2, 61, 2);
	const uint64_t a = toy_request(&toy, "a"), b = toy_request(&toy, "b");
	uint32_t a_row[20], b_row[20], pass;
	sqlite3 *db;

	for (pass = 0; pass < 4; pass++) {
		const struct moetrace_slice slices[] = {
			{.request = pass % 2 ? a : b, .first_position = pass * 5, .n_rows = 5},
			{.request = pass % 2 ? b : a, .first_position = pass * 5, .n_rows = 5},
		};
		uint32_t i;

		for (i = 0; i < 5; i++) {
			a_row[pass * 5 + i] = (pass % 2 ? 0 : 5) + i;
			b_row[pass * 5 + i] = (pass % 2 ? 5 : 0) + i;
		}
		toy_finish(&toy, toy_begin(&toy, MOETRACE_PHASE_PREFILL, slices, 2), 10);
	}
	toy_request_end(&toy, a, 20);
	toy_request_end(&toy, b, 20);
	db = toy_close_and_open(&toy);
	for (pass = 0; pass < 20; pass++) {
		ck_assert_int_eq(expert_of(db, "a", 1, pass), toy_expert(&toy, 1, a_row[pass], 0));
		ck_assert_int_eq(expert_of(db, "b", 1, pass), toy_expert(&toy, 1, b_row[pass], 0));
	}
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE verdict = 'complete'"), 2);
	db_close(db);
}
END_TEST

/* The last token is sampled and not forwarded: it is a token without experts, no loss. */
START_TEST(test_last_sampled_token)
{
	static const uint32_t tokens[] = {1, 2, 3, 4, 5, 6};
	struct toy toy = toy_start("last.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 4));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 4, 1));
	ck_assert_int_eq(moetrace_request_tokens(toy.session, request, 0, tokens, 6), MOETRACE_OK);
	toy_request_end(&toy, request, 5);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM request"), "complete");
	ck_assert_int_eq(db_int(db, "SELECT n_positions FROM request"), 5);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request_token WHERE position NOT IN"
				    " (SELECT position FROM token_topk)"),
			 1);
	db_close(db);
}
END_TEST

/* Three dense layers first: the layer's number in the model is not its index. */
START_TEST(test_dense_layers_first)
{
	struct toy toy = toy_open("dense.db", NULL, 4, 61, 2);
	sqlite3 *db;
	uint32_t i;

	toy.model = toy_model_add(toy.session, "dense-first", 3, 4, 61, 2);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, toy_request(&toy, "r"), 0, 2));
	db = toy_close_and_open(&toy);
	for (i = 0; i < 4; i++) {
		ck_assert_int_eq(db_int(db,
					"SELECT moe_ordinal FROM layer JOIN model USING (model_id)"
					" WHERE name = 'dense-first' AND layer = %u",
					3 + i),
				 i);
		ck_assert_int_eq(expert_of(db, "r", 3 + i, 1), toy_expert(&toy, i, 1, 0));
	}
	db_close(db);
}
END_TEST

/* The draft model's layer 0 is not the target's layer 0. */
START_TEST(test_draft_beside_target)
{
	static const int32_t target_ids[] = {1, 2}, draft_ids[] = {3, 4};
	struct toy toy = toy_open("draft.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	const struct moetrace_slice slice = {.request = request, .n_rows = 1};
	struct toy draft = toy;
	struct moetrace_pass *pass;
	sqlite3 *db;

	draft.model = toy_model_add(toy.session, "draft", 0, 1, 64, 2);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	pass = toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slice, 1);
	toy_select_ids(pass, 0, 1, 0, target_ids);
	moetrace_pass_end(pass);
	pass = toy_begin(&draft, MOETRACE_PHASE_DRAFT, &slice, 1);
	toy_select_ids(pass, 0, 1, 0, draft_ids);
	moetrace_pass_end(pass);
	toy_request_end(&toy, request, 1);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db,
				 "SELECT group_concat(expert || state) FROM (SELECT expert, state"
				 " FROM routed_expert ORDER BY expert)"),
			 "1computed,2computed,3draft,4draft");
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM request"), "complete");
	ck_assert_int_eq(db_int(db,
				"SELECT sum(tokens) FROM expert_load JOIN model USING (model_id)"
				" WHERE name = 'toy'"),
			 2);
	db_close(db);
}
END_TEST

/* A batch larger than any before it loses no row and mixes none up. */
START_TEST(test_growing_batches)
{
	enum { N = 700 };
	struct toy toy = toy_start("grow.db", NULL, 1, 61, 2);
	static struct moetrace_slice slices[N];
	char name[16];
	uint32_t n, i;
	sqlite3 *db;

	for (i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "r%u", i);
		slices[i].request = toy_request(&toy, name);
		slices[i].n_rows = 1;
	}
	for (n = 1; n <= N; n = n * 3 + 1) {
		toy_finish(&toy, toy_begin(&toy, MOETRACE_PHASE_DECODE, slices, n), n);
		for (i = 0; i < n; i++)
			slices[i].first_position++;
	}
	for (i = 0; i < N; i++)
		toy_request_end(&toy, slices[i].request, slices[i].first_position);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE verdict = 'complete'"), N);
	ck_assert_int_eq(expert_of(db, "r0", 0, 5), toy_expert(&toy, 0, 0, 0));
	ck_assert_int_eq(expert_of(db, "r363", 0, 0), toy_expert(&toy, 0, 363, 0));
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM token_topk"),
			 1 + 4 + 13 + 40 + 121 + 364);
	db_close(db);
}
END_TEST

/* Rows masked to -1 are rows without an expert: not expert 63, 255 or 65535. */
START_TEST(test_masked_rows)
{
	static const int32_t ids[] = {0, 1, -1, -1, 2, 3};
	struct toy toy = toy_start("masked.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	const struct moetrace_slice slice = {.request = request, .n_rows = 3};
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slice, 1);
	sqlite3 *db;

	toy_select_ids(pass, 0, 3, 0, ids);
	moetrace_pass_end(pass);
	toy_request_end(&toy, request, 3);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM routed_expert WHERE position = 1"), 0);
	ck_assert_int_eq(db_int(db, "SELECT n_valid FROM token_topk WHERE position = 1"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM expert_load WHERE tokens > 0"), 4);
	ck_assert_int_eq(db_stat(db, 1, "invalid_ids"), 0);
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM request"), "complete");
	db_close(db);
}
END_TEST

/* A kernel that bypasses the hook leaves no zeros behind that look like expert 0. */
START_TEST(test_bypassed_hook)
{
	struct toy toy = toy_start("bypass.db", NULL, 2, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	const struct moetrace_slice slice = {.request = request, .n_rows = 3};
	sqlite3 *db;

	moetrace_pass_end(toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slice, 1));
	toy_request_end(&toy, request, 3);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer WHERE state = 1"), 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM token_topk"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM topk"), 0);
	ck_assert_int_eq(db_int(db, "SELECT coalesce(sum(tokens), 0) FROM expert_load"), 0);
	ck_assert_str_eq(db_text(db, "SELECT verdict || reasons FROM request"), "partialunwritten");
	db_close(db);
}
END_TEST

/* A model without experts is nothing to record, and no error. */
START_TEST(test_model_without_experts)
{
	struct toy toy = toy_open("no-moe.db", NULL, 0, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;

	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 5));
	toy_request_end(&toy, request, 5);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM pass"), "complete");
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM request"), "complete");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM expert_load"), 0);
	db_close(db);
}
END_TEST

/* Dummy rows of warm-up keep to their own counter and to no request. */
START_TEST(test_dummy_rows)
{
	struct toy toy = toy_start("dummy.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	const struct moetrace_slice slices[] = {
		{.n_rows = 3, .phase = MOETRACE_PHASE_DUMMY},
		{.request = request, .n_rows = 1},
	};
	sqlite3 *db;

	toy_finish(&toy, toy_begin(&toy, MOETRACE_PHASE_DECODE, slices, 2), 4);
	toy_request_end(&toy, request, 1);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT sum(decode_tokens) || ' ' || sum(other_tokens) FROM"
				     " expert_load"),
			 "2 6");
	ck_assert_int_eq(expert_of(db, "r", 0, 0), toy_expert(&toy, 0, 3, 0));
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM token_topk WHERE state = 'dummy'"), 3);
	ck_assert_int_eq(db_int(db, "SELECT max_load FROM pass_layer"),
			 db_int(db, "SELECT max(tokens) FROM expert_load"));
	db_close(db);
}
END_TEST

/* A recording in which nothing ran says so, and not with invented rows. */
START_TEST(test_absence_is_absence)
{
	struct toy toy = toy_start("nothing.db", NULL, 2, 64, 2);
	sqlite3 *db = toy_close_and_open(&toy);

	ck_assert_int_eq(db_int(db,
				"SELECT recorded_passes FROM (SELECT value AS recorded_passes FROM"
				" stats WHERE name = 'recorded_passes')"),
			 0);
	ck_assert_int_eq(db_int(db,
				"SELECT (SELECT count(*) FROM pass) + (SELECT count(*) FROM"
				" pass_layer) + (SELECT count(*) FROM topk) + (SELECT count(*) FROM"
				" expert_load_window)"),
			 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM expert_load"), 0);
	ck_assert_int_eq(db_int(db, "SELECT lag_passes FROM loss"), 0);
	db_close(db);
}
END_TEST

/* ---- the request that ends in the same instant ---- */

struct handoff {
	const struct toy *toy;
	_Atomic uint64_t request;
	atomic_bool is_done;
	uint32_t n_rounds;
};

/*
 * Until there is a request, or it was taken; returns it. Without a rest, so that both threads go on in
 * the same instant; where they share a processor each lets the other have it.
 */
static uint64_t handoff_wait(const struct handoff *handoff, bool is_there)
{
	uint64_t request;

	for (uint32_t n = 1; ((request = handoff->request) != MOETRACE_NO_REQUEST) != is_there; n++)
		if (n % 1024 == 0)
			sched_yield();
	return request;
}

static void *end_at_once(void *argument)
{
	struct handoff *handoff = argument;
	uint32_t i;

	for (i = 0; i < handoff->n_rounds; i++) {
		const uint64_t request = handoff_wait(handoff, true);

		moetrace_request_end(handoff->toy->session, request, MOETRACE_REQUEST_FINISHED, 4);
		handoff->request = MOETRACE_NO_REQUEST;
	}
	handoff->is_done = true;
	return NULL;
}

/*
 * Another thread ends the request the moment that its last pass ended: the pass is still the
 * request's, whichever way the two reach the writer.
 */
START_TEST(test_request_ended_in_the_same_instant)
{
	struct toy toy = toy_start("instant.db", NULL, 1, 64, 2);
	struct handoff handoff = {.toy = &toy, .n_rounds = 3000};
	pthread_t id;
	sqlite3 *db;
	uint32_t i;

	ck_assert_int_eq(pthread_create(&id, NULL, end_at_once, &handoff), 0);
	for (i = 0; i < handoff.n_rounds; i++) {
		const uint64_t request = toy_request(&toy, "r");

		ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 3));
		ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 3, 1));
		handoff.request = request;
		(void)handoff_wait(&handoff, false);
	}
	ck_assert_int_eq(pthread_join(id, NULL), 0);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE verdict = 'complete'"),
			 handoff.n_rounds);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 0);
	db_close(db);
}
END_TEST

/* A request that begins on one thread and is named at once by a pass of another. */
static void *run_at_once(void *argument)
{
	struct handoff *handoff = argument;
	uint32_t i;

	for (i = 0; i < handoff->n_rounds; i++) {
		const uint64_t request = handoff_wait(handoff, true);

		toy_pass(handoff->toy, MOETRACE_PHASE_PREFILL, request, 0, 4);
		handoff->request = MOETRACE_NO_REQUEST;
	}
	return NULL;
}

START_TEST(test_request_named_in_the_same_instant)
{
	struct toy toy = toy_start("named.db", NULL, 1, 64, 2);
	struct handoff handoff = {.toy = &toy, .n_rounds = 3000};
	pthread_t id;
	sqlite3 *db;
	uint32_t i;

	ck_assert_int_eq(pthread_create(&id, NULL, run_at_once, &handoff), 0);
	for (i = 0; i < handoff.n_rounds; i++) {
		const uint64_t request = toy_request(&toy, "r");

		handoff.request = request;
		(void)handoff_wait(&handoff, false);
		toy_request_end(&toy, request, 4);
	}
	ck_assert_int_eq(pthread_join(id, NULL), 0);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE verdict = 'complete'"),
			 handoff.n_rounds);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 0);
	db_close(db);
}
END_TEST

static Suite *catalogue_suite(void)
{
	Suite *suite = suite_create("catalogue");
	TCase *rows = tcase_create("rows");
	TCase *instants = tcase_create("instants");

	tcase_add_test(rows, test_chunked_prefill_attribution);
	tcase_add_test(rows, test_last_sampled_token);
	tcase_add_test(rows, test_dense_layers_first);
	tcase_add_test(rows, test_draft_beside_target);
	tcase_add_test(rows, test_growing_batches);
	tcase_add_test(rows, test_masked_rows);
	tcase_add_test(rows, test_bypassed_hook);
	tcase_add_test(rows, test_model_without_experts);
	tcase_add_test(rows, test_dummy_rows);
	tcase_add_test(rows, test_absence_is_absence);
	tcase_add_test(instants, test_request_ended_in_the_same_instant);
	tcase_add_test(instants, test_request_named_in_the_same_instant);
	suite_add_tcase(suite, rows);
	suite_add_tcase(suite, instants);
	return suite;
}

int main(void)
{
	return suite_run(catalogue_suite());
}
