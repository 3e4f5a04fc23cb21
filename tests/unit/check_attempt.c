/* SPDX-License-Identifier: MIT */
/*
 * Attempts: retracts, verify rows accepted later, drafts, aborts, pauses and passes in parts.
 * Every file is proved by `moetrace check`, too.
 */
#include "tests/unit/support/db.h"
#include "tests/unit/support/said.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

/* ---- retract ---- */

/* What was lost before the retract was computed anew; what is missing after it is missing. */
START_TEST(test_verdict_is_on_the_last_attempt)
{
	struct toy toy = toy_start("last.db", NULL, 1, 64, 4);
	const uint64_t good = toy_request(&toy, "good");
	const uint64_t bad = toy_request(&toy, "bad");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, good, 3, 4));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, bad, 0, 9));
	ck_assert_int_eq(moetrace_request_retract(toy.session, good), MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_retract(toy.session, bad), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, good, 0, 9));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, bad, 1, 8));
	toy_end(&toy, good, 9);
	toy_end(&toy, bad, 9);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_verdict(db, "good"), "complete");
	ck_assert_str_eq(toy_verdict(db, "bad"), "partial missing");
	db_close(db);
}
END_TEST

START_TEST(test_pass_belongs_to_the_attempt_that_it_began_in)
{
	struct toy toy = toy_start("running.db", NULL, 1, 64, 4);
	const uint64_t request = toy_request(&toy, "r");
	const struct moetrace_slice slice = {.request = request, .n_rows = 5};
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slice, 1);
	sqlite3 *db;

	ck_assert_int_eq(moetrace_request_retract(toy.session, request), MOETRACE_OK);
	toy_finish(&toy, pass, 5);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 5));
	toy_end(&toy, request, 5);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_verdict(db, "r"), "complete");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(attempt) FROM pass_request"), "0,1");
	db_close(db);
}
END_TEST

/* ---- verify and draft ---- */

static uint64_t verify_pass(const struct toy *toy, uint64_t request, uint32_t first, uint32_t n,
			    const uint8_t *early)
{
	const struct moetrace_slice slice = {
		.request = request, .first_position = first, .n_rows = n};
	struct moetrace_pass *pass = toy_begin(toy, MOETRACE_PHASE_VERIFY, &slice, 1);
	const uint64_t number = moetrace_pass_number(pass);

	ck_assert_uint_ne(number, 0);
	if (early)
		ck_assert_int_eq(moetrace_pass_accept(toy->session, number, 0, early, n),
				 MOETRACE_OK);
	toy_finish(toy, pass, n);
	return number;
}

/* Rejected rows are in the pass and its counts, and not among what the request relies on. */
START_TEST(test_rejected_rows_are_the_pass_s_alone)
{
	static const uint8_t two[] = {1, 1, 0, 0};
	static const uint8_t none[] = {0, 0, 0, 0};
	static const uint8_t all[] = {255, 1, 1, 1};
	struct toy toy = toy_start("verify.db", NULL, 2, 64, 4);
	const uint64_t request = toy_request(&toy, "r");
	uint64_t late;
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 10));
	late = verify_pass(&toy, request, 10, 4, NULL);
	ck_assert_int_eq(moetrace_pass_accept(toy.session, late, 0, two, 4), MOETRACE_OK);
	verify_pass(&toy, request, 12, 4, none);
	late = verify_pass(&toy, request, 12, 4, NULL);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	ck_assert_int_eq(moetrace_pass_accept(toy.session, late, 0, all, 4), MOETRACE_OK);
	toy_end(&toy, request, MOETRACE_POSITIONS_UNKNOWN);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_verdict(db, "r"), "complete");
	ck_assert_int_eq(db_int(db, "SELECT n_positions FROM request"), 16);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(s) FROM (SELECT state || ':' || count(*)"
				     " AS s FROM token_topk WHERE layer = 0 GROUP BY state)"),
			 "computed:16,rejected:6");
	ck_assert_int_eq(db_int(db, "SELECT sum(verify_tokens) FROM expert_load"), 12 * 2 * 4);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(hex(accepted)) FROM pass_request WHERE"
				     " phase = 'verify'"),
			 "01010000,00000000,01010101");
	db_close(db);
}
END_TEST

START_TEST(test_acceptance_that_never_comes_is_unresolved)
{
	struct toy toy = toy_start("unresolved.db", NULL, 1, 64, 4);
	const uint64_t needed = toy_request(&toy, "needed");
	const uint64_t spare = toy_request(&toy, "spare");
	const uint64_t gone = toy_request(&toy, "gone");
	static const uint8_t none[] = {0, 0};
	uint64_t number;
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, needed, 0, 3));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, spare, 0, 3));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, gone, 0, 3));
	verify_pass(&toy, needed, 3, 2, NULL);
	verify_pass(&toy, spare, 3, 2, NULL);
	number = verify_pass(&toy, gone, 3, 2, none);
	ck_assert_int_eq(moetrace_pass_accept(toy.session, number, 0, none, 2), MOETRACE_OK);
	ck_assert_int_eq(moetrace_pass_accept(toy.session, number, 7, none, 2), MOETRACE_OK);
	ck_assert_int_eq(moetrace_pass_accept(toy.session, 0, 0, none, 2), MOETRACE_OK);
	toy_end(&toy, needed, 5);
	toy_end(&toy, spare, 3);
	toy_end(&toy, gone, 5);
	db = toy_prove_and_open(&toy, 2);
	ck_assert_str_eq(toy_verdict(db, "needed"), "partial unresolved");
	ck_assert_str_eq(toy_verdict(db, "spare"), "complete");
	/* Rejected and never computed: no pass carries the positions. */
	ck_assert_str_eq(toy_verdict(db, "gone"), "partial missing");
	db_close(db);
}
END_TEST

/* What other passes computed is theirs to explain, and not that of verify rows nobody reported. */
START_TEST(test_unreported_rows_that_were_computed_elsewhere)
{
	struct toy toy = toy_start("elsewhere.db", NULL, 2, 64, 4);
	const uint64_t unwritten = toy_request(&toy, "unwritten");
	const uint64_t both = toy_request(&toy, "both");
	const uint64_t requests[] = {unwritten, both};
	struct moetrace_slice slice = {.first_position = 3, .n_rows = 1};
	struct moetrace_pass *pass;
	sqlite3 *db;

	for (uint32_t i = 0; i < 2; i++) {
		ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, requests[i], 0, 3));
		verify_pass(&toy, requests[i], 3, 2, NULL);
		slice.request = requests[i];
		pass = toy_begin(&toy, MOETRACE_PHASE_DECODE, &slice, 1);
		toy_select(&toy, pass, 0, 1);
		moetrace_pass_end(pass);
	}
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, unwritten, 4, 1));
	toy_end(&toy, unwritten, 5);
	toy_end(&toy, both, 5);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_verdict(db, "unwritten"), "partial unwritten");
	ck_assert_str_eq(toy_verdict(db, "both"), "partial unwritten,unresolved");
	db_close(db);
}
END_TEST

/* Rows of which nobody keeps account any more stay unresolved, and are in a pass all the same. */
START_TEST(test_rows_that_waited_for_too_long)
{
	struct toy toy = toy_start("forgotten.db", NULL, 1, 8, 1);
	const uint64_t needed = toy_request(&toy, "needed");
	const uint64_t spare = toy_request(&toy, "spare");
	struct moetrace_slice slices[] = {
		{.request = needed, .first_position = 3, .n_rows = 1},
		{.request = spare, .first_position = 3, .n_rows = 1},
	};
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, needed, 0, 3));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, spare, 0, 3));
	for (uint32_t i = 0; i < 260; i++) {
		toy_finish(&toy, toy_begin(&toy, MOETRACE_PHASE_VERIFY, slices, 2), 2);
		slices[0].first_position = slices[1].first_position = 4;
	}
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, spare, 3, 1));
	toy_end(&toy, needed, 4);
	/* Its last position is in no pass at all. */
	toy_end(&toy, spare, 6);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_verdict(db, "needed"), "partial unresolved");
	ck_assert_str_eq(toy_verdict(db, "spare"), "partial unresolved,missing");
	db_close(db);
}
END_TEST

/* The recording has ended meanwhile: it stays as it is, and the program has done nothing wrong. */
START_TEST(test_acceptance_after_its_recording_ended)
{
	struct toy toy = toy_start("too-late.db", NULL, 1, 64, 4);
	const uint64_t request = toy_request(&toy, "r");
	static const uint8_t all[] = {1, 1};
	struct moetrace_recording_opts stat;
	uint64_t number;
	sqlite3 *db;

	MOETRACE_INIT(&stat);
	stat.mode = MOETRACE_MODE_STAT;
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 3));
	number = verify_pass(&toy, request, 3, 2, NULL);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 5, 1));
	ck_assert_int_eq(moetrace_pass_accept(toy.session, number, 0, all, 2), MOETRACE_OK);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, &stat), MOETRACE_OK);
	number = verify_pass(&toy, request, 6, 2, all);
	number = verify_pass(&toy, request, 8, 2, NULL);
	ck_assert_int_eq(moetrace_pass_accept(toy.session, number, 0, all, 2), MOETRACE_OK);
	toy_end(&toy, request, 10);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_int_eq(db_stat(db, 2, "misuse"), 0);
	ck_assert_int_eq(db_stat(db, 3, "misuse"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_request WHERE phase = 'verify'"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(accepted) FROM pass_request"), 0);
	db_close(db);
}
END_TEST

/* Two leaves of a draft tree at one position: the accepted one is computed. */
START_TEST(test_draft_tree)
{
	static const uint32_t positions[] = {5, 6, 6, 7, 7};
	static const uint8_t accepted[] = {1, 0, 1, 1, 0};
	struct toy toy = toy_start("tree.db", NULL, 1, 64, 4);
	const uint64_t request = toy_request(&toy, "r");
	const struct moetrace_slice slice = {
		.request = request, .positions = positions, .n_rows = 5};
	struct moetrace_pass *pass;
	uint64_t number;
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 5));
	pass = toy_begin(&toy, MOETRACE_PHASE_VERIFY, &slice, 1);
	number = moetrace_pass_number(pass);
	toy_finish(&toy, pass, 5);
	ck_assert_int_eq(moetrace_pass_accept(toy.session, number, 0, accepted, 5), MOETRACE_OK);
	toy_end(&toy, request, 8);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_verdict(db, "r"), "complete");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(row) FROM token_topk WHERE state ="
				     " 'computed' AND phase = 'verify'"),
			 "0,2,3");
	db_close(db);
}
END_TEST

START_TEST(test_draft_and_mtp_models_do_not_disturb_the_target)
{
	struct toy toy = toy_open("draft.db", NULL, 2, 64, 4);
	const uint64_t request = toy_request(&toy, "r");
	struct moetrace_layer_info layer;
	struct moetrace_model_info info;
	struct toy draft = toy;
	sqlite3 *db;

	MOETRACE_INIT(&layer);
	layer.n_experts = 64;
	layer.top_k = 4;
	MOETRACE_INIT(&info);
	info.name = "mtp";
	info.kind = MOETRACE_MODEL_MTP;
	info.layers = &layer;
	info.n_moe_layers = 1;
	ck_assert_int_eq(moetrace_model_add(toy.session, &info, &draft.model), MOETRACE_OK);
	draft.n_layers = 1;
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 4));
	ck_assert(toy_pass(&draft, MOETRACE_PHASE_DRAFT, request, 0, 4));
	ck_assert(toy_pass(&draft, MOETRACE_PHASE_DRAFT, request, 2, 4));
	ck_assert(toy_pass(&draft, MOETRACE_PHASE_PREFILL, request, 9, 2));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DRAFT, request, 3, 2));
	toy_end(&toy, request, MOETRACE_POSITIONS_UNKNOWN);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_verdict(db, "r"), "complete");
	ck_assert_int_eq(db_int(db, "SELECT n_positions FROM request"), 4);
	db_close(db);
}
END_TEST

/* ---- ends, pauses, parts ---- */

/* The request ends while passes that name it run: they are its own all the same. */
START_TEST(test_abort_while_passes_run)
{
	struct toy toy = toy_start("abort.db", NULL, 1, 64, 4);
	const uint64_t waiting = toy_request(&toy, "waiting");
	const uint64_t running = toy_request(&toy, "running");
	const uint64_t other = toy_request(&toy, "other");
	const struct moetrace_slice slices[] = {{.request = running, .n_rows = 3},
						{.request = other, .n_rows = 2}};
	struct moetrace_pass *first, *second;
	sqlite3 *db;

	toy_end_as(&toy, waiting, MOETRACE_REQUEST_ABORTED, MOETRACE_POSITIONS_UNKNOWN);
	first = toy_begin(&toy, MOETRACE_PHASE_PREFILL, slices, 2);
	second = toy_begin(
		&toy, MOETRACE_PHASE_DECODE,
		&(struct moetrace_slice){.request = running, .first_position = 3, .n_rows = 1}, 1);
	toy_end_as(&toy, running, MOETRACE_REQUEST_ABORTED, MOETRACE_POSITIONS_UNKNOWN);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	toy_finish(&toy, first, 5);
	toy_finish(&toy, second, 1);
	toy_end(&toy, other, 2);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_verdict(db, "waiting"), "complete");
	ck_assert_str_eq(toy_verdict(db, "running"), "complete");
	ck_assert_int_eq(db_int(db, "SELECT n_positions FROM request WHERE"
				    " external_id = 'running'"),
			 4);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_request WHERE request_id IS NULL"),
			 0);
	db_close(db);
}
END_TEST

START_TEST(test_pause_and_resume_keep_the_attempt)
{
	struct toy toy = toy_start("pause.db", NULL, 1, 64, 4);
	const uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 3));
	ck_assert_int_eq(moetrace_request_pause(toy.session, request), MOETRACE_OK);
	suite_sleep_ms(2);
	ck_assert_int_eq(moetrace_request_resume(toy.session, request), MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_resume(toy.session, request), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 3, 1));
	ck_assert_int_eq(moetrace_request_pause(toy.session, request), MOETRACE_OK);
	toy_end(&toy, request, 4);
	db = toy_prove_and_open(&toy, 1);
	ck_assert_str_eq(toy_verdict(db, "r"), "complete");
	ck_assert_int_eq(db_int(db, "SELECT n_pauses FROM request"), 2);
	ck_assert_int_ge(db_int(db, "SELECT paused_ns FROM request"), 2000000);
	ck_assert_int_eq(db_int(db, "SELECT n_attempts FROM request"), 1);
	db_close(db);
}
END_TEST

/* Prefill-only: the last position was forwarded, too, and nothing was sampled from it. */
START_TEST(test_prefill_only_and_a_prompt_cut_short)
{
	struct toy toy = toy_start("prompt.db", NULL, 1, 64, 4);
	struct moetrace_request_info info;
	uint64_t whole, cut, aborted, less;
	sqlite3 *db;

	MOETRACE_INIT(&info);
	info.prompt_positions = 6;
	info.external_id = "whole";
	ck_assert_int_eq(moetrace_request_begin(toy.session, &info, &whole), MOETRACE_OK);
	info.external_id = "cut";
	ck_assert_int_eq(moetrace_request_begin(toy.session, &info, &cut), MOETRACE_OK);
	info.external_id = "aborted";
	ck_assert_int_eq(moetrace_request_begin(toy.session, &info, &aborted), MOETRACE_OK);
	info.external_id = "less";
	ck_assert_int_eq(moetrace_request_begin(toy.session, &info, &less), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, whole, 0, 6));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, cut, 0, 4));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, aborted, 0, 4));
	toy_end(&toy, whole, MOETRACE_POSITIONS_UNKNOWN);
	toy_end(&toy, cut, MOETRACE_POSITIONS_UNKNOWN);
	toy_end_as(&toy, aborted, MOETRACE_REQUEST_ABORTED, MOETRACE_POSITIONS_UNKNOWN);
	/* The program says less than was computed: its number is kept, the rows are judged. */
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, less, 0, 6));
	toy_end(&toy, less, 3);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_verdict(db, "less"), "complete");
	ck_assert_str_eq(toy_verdict(db, "whole"), "complete");
	ck_assert_str_eq(toy_verdict(db, "cut"), "partial missing");
	ck_assert_str_eq(toy_verdict(db, "aborted"), "complete");
	db_close(db);
}
END_TEST

static struct moetrace_pass *part_begin(const struct toy *toy, uint64_t parent, uint32_t microbatch,
					const struct moetrace_slice *slice)
{
	struct moetrace_pass_info info;

	MOETRACE_INIT(&info);
	info.model = toy->model;
	info.phase = MOETRACE_PHASE_PREFILL;
	info.slices = slice;
	info.n_slices = slice != NULL;
	info.n_rows = slice ? slice->n_rows : 0;
	info.parent = parent;
	info.microbatch = parent ? &microbatch : NULL;
	return moetrace_pass_begin(toy->session, &info);
}

/* Two microbatches whose layers alternate; the parent ends last, or first. */
START_TEST(test_two_batch_overlap)
{
	struct toy toy = toy_start("parts.db", NULL, 2, 64, 4);
	const uint64_t a = toy_request(&toy, "a");
	const uint64_t b = toy_request(&toy, "b");
	struct moetrace_slice slices[2] = {{.request = a, .n_rows = 3},
					   {.request = b, .n_rows = 2}};
	struct moetrace_pass *parent, *parts[2];
	sqlite3 *db;
	uint32_t round, i;

	for (round = 0; round < 2; round++) {
		parent = part_begin(&toy, 0, 0, NULL);
		for (i = 0; i < 2; i++)
			parts[i] = part_begin(&toy, moetrace_pass_number(parent), i, &slices[i]);
		if (round)
			moetrace_pass_end(parent);
		for (i = 0; i < 4; i++)
			toy_select(&toy, parts[i % 2], i / 2, slices[i % 2].n_rows);
		moetrace_pass_end(parts[0]);
		moetrace_pass_end(parts[1]);
		if (!round)
			moetrace_pass_end(parent);
		slices[0].first_position = 3;
		slices[1].first_position = 2;
	}
	toy_end(&toy, a, 6);
	toy_end(&toy, b, 4);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 6);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(n) FROM (SELECT p.microbatch || ':' ||"
				     " count(*) AS n FROM pass AS p JOIN pass AS q ON q.pass_id ="
				     " p.parent_pass_id WHERE q.n_rows = 0 GROUP BY p.microbatch)"),
			 "0:2,1:2");
	ck_assert_str_eq(toy_verdict(db, "a"), "complete");
	db_close(db);
}
END_TEST

/* A parent that ended first: its ring has another pass before its part ends. */
START_TEST(test_part_outlives_its_parents_ring)
{
	struct moetrace_session_opts opts;
	struct moetrace_pass *parent, *part, *other;
	struct toy toy;
	uint64_t a;
	struct moetrace_slice slice = {.n_rows = 3};
	sqlite3 *db;

	MOETRACE_INIT(&opts);
	opts.n_rings = 2;
	toy = toy_start("outlive.db", &opts, 1, 64, 4);
	a = toy_request(&toy, "a");
	slice.request = a;
	parent = part_begin(&toy, 0, 0, NULL);
	part = part_begin(&toy, moetrace_pass_number(parent), 0, &slice);
	moetrace_pass_end(parent);
	for (int i = 0; i < 100; i++) {
		other = part_begin(&toy, 0, 0, NULL);
		ck_assert_ptr_nonnull(other);
		if (i % 40 == 0)
			ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
		moetrace_pass_end(other);
	}
	toy_select(&toy, part, 0, 3);
	moetrace_pass_end(part);
	toy_end(&toy, a, 3);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_int_eq(db_int(db, "SELECT parent_pass_id FROM pass WHERE n_rows = 3"), 1);
	db_close(db);
}
END_TEST

START_TEST(test_parents_that_are_none)
{
	struct toy toy = toy_start("noparent.db", NULL, 1, 64, 4);
	const uint64_t request = toy_request(&toy, "r");
	struct moetrace_slice slice = {.request = request, .n_rows = 3};
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slice, 1);
	struct moetrace_pass *part;
	sqlite3 *db;

	slice.first_position = 3;
	part = part_begin(&toy, moetrace_pass_number(pass), 0, &slice);
	toy_finish(&toy, part, 3);
	toy_finish(&toy, pass, 3);
	slice.first_position = 6;
	part = part_begin(&toy, UINT64_C(1) << 60, 0, &slice);
	toy_finish(&toy, part, 3);
	toy_end(&toy, request, 9);
	db = toy_prove_and_open(&toy, 2);
	ck_assert_int_eq(db_int(db, "SELECT count(parent_pass_id) FROM pass"), 0);
	ck_assert_str_eq(toy_verdict(db, "r"), "complete");
	db_close(db);
}
END_TEST

static Suite *attempt_suite(void)
{
	Suite *suite = suite_create("attempt");
	TCase *attempts = tcase_create("attempts");
	TCase *rows = tcase_create("rows");

	tcase_set_timeout(attempts, 60);
	tcase_set_timeout(rows, 60);
	tcase_add_test(attempts, test_verdict_is_on_the_last_attempt);
	tcase_add_test(attempts, test_pass_belongs_to_the_attempt_that_it_began_in);
	tcase_add_test(attempts, test_abort_while_passes_run);
	tcase_add_test(attempts, test_pause_and_resume_keep_the_attempt);
	tcase_add_test(attempts, test_prefill_only_and_a_prompt_cut_short);
	tcase_add_test(attempts, test_two_batch_overlap);
	tcase_add_test(attempts, test_part_outlives_its_parents_ring);
	tcase_add_test(attempts, test_parents_that_are_none);
	tcase_add_test(rows, test_rejected_rows_are_the_pass_s_alone);
	tcase_add_test(rows, test_acceptance_that_never_comes_is_unresolved);
	tcase_add_test(rows, test_unreported_rows_that_were_computed_elsewhere);
	tcase_add_test(rows, test_rows_that_waited_for_too_long);
	tcase_add_test(rows, test_acceptance_after_its_recording_ended);
	tcase_add_test(rows, test_draft_tree);
	tcase_add_test(rows, test_draft_and_mtp_models_do_not_disturb_the_target);
	suite_add_tcase(suite, attempts);
	suite_add_tcase(suite, rows);
	return suite;
}

int main(void)
{
	return suite_run(attempt_suite());
}
