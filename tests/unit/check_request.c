/* SPDX-License-Identifier: MIT */
/*
 * Requests and their verdicts: each reason by itself, and the cases that look like a loss and
 * are none.
 */
#include <stdio.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

/* "VERDICT REASONS" of a request in a recording. */
static const char *verdict(sqlite3 *db, int recording_id, const char *external_id)
{
	return db_text(db,
		       "SELECT verdict || coalesce(' ' || reasons, '') FROM request WHERE"
		       " recording_id = %d AND external_id = %Q",
		       recording_id, external_id);
}

/* ---- complete ---- */

/* The prompt in chunks, then decode; the last sampled token is never forwarded. */
START_TEST(test_prefill_and_decode)
{
	struct toy toy = toy_start("complete.db", NULL, 2, 64, 4);
	const uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;
	uint32_t i;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 64));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 64, 36));
	for (i = 0; i < 9; i++)
		ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 100 + i, 1));
	toy_request_end(&toy, request, 109);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(verdict(db, 1, "r"), "complete");
	ck_assert_int_eq(db_int(db, "SELECT n_positions FROM request"), 109);
	ck_assert_str_eq(db_text(db, "SELECT prefill_rows || ' ' || decode_rows || ' ' || n_passes"
				     " FROM request_summary"),
			 "100 9 11");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM routed_expert"), 109 * 2 * 4);
	ck_assert_int_eq(db_int(db, "SELECT count(DISTINCT position) FROM token_topk"), 109);
	db_close(db);
}
END_TEST

START_TEST(test_positions_left_to_the_recorder)
{
	struct toy toy = toy_start("unknown.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 17));
	toy_request_end(&toy, request, MOETRACE_POSITIONS_UNKNOWN);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(verdict(db, 1, "r"), "complete");
	ck_assert_int_eq(db_int(db, "SELECT n_positions FROM request"), 17);
	db_close(db);
}
END_TEST

/* Verify and draft rows run ahead of the sequence and do not lengthen it. */
START_TEST(test_unknown_positions_ignore_drafts)
{
	struct toy toy = toy_start("ahead.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 5));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DRAFT, request, 5, 4));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_VERIFY, request, 5, 4));
	toy_request_end(&toy, request, MOETRACE_POSITIONS_UNKNOWN);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT n_positions FROM request"), 5);
	db_close(db);
}
END_TEST

/* An end without a pass, as when a client leaves the queue. */
START_TEST(test_aborted_before_the_first_pass)
{
	struct toy toy = toy_start("early.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;

	ck_assert_int_eq(moetrace_request_end(toy.session, request, MOETRACE_REQUEST_ABORTED,
					      MOETRACE_POSITIONS_UNKNOWN),
			 MOETRACE_OK);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(verdict(db, 1, "r"), "complete");
	ck_assert_str_eq(db_text(db, "SELECT end_state || n_positions FROM request"), "aborted0");
	db_close(db);
}
END_TEST

/* How it ended and what was recorded are two things. */
START_TEST(test_end_state_is_not_the_verdict)
{
	static const enum moetrace_request_end_state states[] = {
		MOETRACE_REQUEST_FINISHED, MOETRACE_REQUEST_ABORTED, MOETRACE_REQUEST_FAILED};
	static const char *const names[] = {"finished", "aborted", "failed"};
	struct toy toy = toy_start("state.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 3));
	ck_assert_int_eq(moetrace_request_end(toy.session, request, states[_i], 3), MOETRACE_OK);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(verdict(db, 1, "r"), "complete");
	ck_assert_str_eq(db_text(db, "SELECT end_state FROM request"), names[_i]);
	db_close(db);
}
END_TEST

/* Rows past the declared end do not count, and are kept. */
START_TEST(test_declared_shorter)
{
	struct toy toy = toy_start("shorter.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 10));
	toy_request_end(&toy, request, 4);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(verdict(db, 1, "r"), "complete");
	ck_assert_int_eq(db_int(db, "SELECT n_positions FROM request"), 4);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM token_topk"), 10);
	db_close(db);
}
END_TEST

/* Any order of positions is as good as ascending order. */
START_TEST(test_positions_out_of_order)
{
	static const uint32_t odd[] = {1, 3, 5}, even[] = {4, 0, 2};
	struct toy toy = toy_start("order.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	struct moetrace_slice slice = {.request = request, .n_rows = 3, .positions = odd};
	sqlite3 *db;

	toy_finish(&toy, toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slice, 1), 3);
	slice.positions = even;
	toy_finish(&toy, toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slice, 1), 3);
	toy_request_end(&toy, request, 6);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(verdict(db, 1, "r"), "complete");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(position) FROM token_topk"),
			 "1,3,5,4,0,2");
	db_close(db);
}
END_TEST

/* A layer that by its nature sees fewer rows loses none. */
START_TEST(test_layer_that_skips_rows)
{
	static const uint32_t last[] = {4};
	static const int32_t ids[] = {1, 2};
	struct toy toy = toy_start("skips.db", NULL, 2, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	const struct moetrace_slice slice = {.request = request, .n_rows = 5};
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slice, 1);
	struct moetrace_selection selection;
	sqlite3 *db;

	toy_select(&toy, pass, 0, 5);
	MOETRACE_INIT(&selection);
	selection.layer_index = 1;
	selection.n_rows = 1;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = ids;
	selection.row_map = last;
	moetrace_select_experts(pass, &selection);
	moetrace_pass_end(pass);
	toy_request_end(&toy, request, 5);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(verdict(db, 1, "r"), "complete");
	ck_assert_int_eq(db_int(db, "SELECT position FROM token_topk WHERE layer = 1"), 4);
	db_close(db);
}
END_TEST

/* ---- partial ---- */

START_TEST(test_missing_positions)
{
	struct toy toy = toy_start("missing.db", NULL, 1, 64, 2);
	const uint64_t end_is_missing = toy_request(&toy, "end");
	const uint64_t middle_is_missing = toy_request(&toy, "middle");
	const uint64_t start_is_missing = toy_request(&toy, "start");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, end_is_missing, 0, 9));
	toy_request_end(&toy, end_is_missing, 10);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, middle_is_missing, 0, 4));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, middle_is_missing, 5, 5));
	toy_request_end(&toy, middle_is_missing, MOETRACE_POSITIONS_UNKNOWN);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, start_is_missing, 1, 9));
	toy_request_end(&toy, start_is_missing, 10);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(verdict(db, 1, "end"), "partial missing");
	ck_assert_str_eq(verdict(db, 1, "middle"), "partial missing");
	ck_assert_str_eq(verdict(db, 1, "start"), "partial missing");
	db_close(db);
}
END_TEST

/* Two reasons are both named. */
START_TEST(test_missing_beside_another_reason)
{
	static const int32_t wrong[] = {1, 64};
	struct toy toy = toy_start("both.db", NULL, 1, 64, 2);
	const uint64_t invalid = toy_request(&toy, "invalid"), verify = toy_request(&toy, "verify");
	const struct moetrace_slice slice = {.request = invalid, .n_rows = 1};
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slice, 1);
	sqlite3 *db;

	toy_select_ids(pass, 0, 1, 0, wrong);
	moetrace_pass_end(pass);
	toy_request_end(&toy, invalid, 5);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_VERIFY, verify, 0, 2));
	toy_request_end(&toy, verify, 5);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(verdict(db, 1, "invalid"), "partial missing,invalid");
	ck_assert_str_eq(verdict(db, 1, "verify"), "partial unresolved,missing");
	db_close(db);
}
END_TEST

START_TEST(test_unresolved)
{
	struct toy toy = toy_start("verify.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 5));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_VERIFY, request, 5, 3));
	toy_request_end(&toy, request, 7);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(verdict(db, 1, "r"), "partial unresolved");
	ck_assert_str_eq(db_text(db, "SELECT ifnull(accepted, 'never') FROM pass_request WHERE"
				     " phase = 'verify'"),
			 "never");
	db_close(db);
}
END_TEST

/* A draft model's rows say nothing about the request's own positions. */
START_TEST(test_draft_rows_compute_nothing)
{
	struct toy toy = toy_start("draft.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 5));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DRAFT, request, 5, 3));
	toy_request_end(&toy, request, 8);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(verdict(db, 1, "r"), "partial missing");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(DISTINCT state) FROM token_topk WHERE"
				     " position >= 5"),
			 "draft");
	db_close(db);
}
END_TEST

/* A position computed twice is told of; the request stays judged by its positions. */
START_TEST(test_position_computed_twice)
{
	struct toy toy = toy_start("again.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 5));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 3, 4));
	toy_request_end(&toy, request, 7);
	toy_close(&toy);
	db = db_open(toy.path);
	db_check_integrity(db);
	ck_assert_int_ge(db_stat(db, 1, "misuse"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM token_topk"), 9);
	db_close(db);
}
END_TEST

/* ---- recordings ---- */

START_TEST(test_began_before)
{
	struct toy toy = toy_open("before.db", NULL, 1, 64, 2);
	const uint64_t forwarded = toy_request(&toy, "forwarded"),
		       queued = toy_request(&toy, "queued");
	const uint64_t ended = toy_request(&toy, "ended");
	sqlite3 *db;

	ck_assert(!toy_pass(&toy, MOETRACE_PHASE_PREFILL, forwarded, 0, 10));
	toy_request_end(&toy, ended, 0);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, forwarded, 10, 1));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, queued, 0, 8));
	toy_request_end(&toy, forwarded, 11);
	toy_request_end(&toy, queued, 8);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(verdict(db, 1, "forwarded"), "partial began_before");
	ck_assert_str_eq(verdict(db, 1, "queued"), "complete");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE external_id = 'ended'"), 0);
	ck_assert_int_eq(db_int(db,
				"SELECT count(*) FROM request JOIN recording USING (recording_id)"
				" WHERE begin_ns < start_ns"),
			 2);
	db_close(db);
}
END_TEST

/* A request that is open in two recordings has a row in each, with the same handle. */
START_TEST(test_open_across_two_recordings)
{
	struct toy toy = toy_start("across.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;

	ck_assert_int_eq(moetrace_request_attribute_set(toy.session, request, "domain", "prose"),
			 MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 10));
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert(!toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 10, 1));
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 11, 1));
	toy_request_end(&toy, request, 12);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(verdict(db, 1, "r"), "unfinished");
	ck_assert_str_eq(verdict(db, 2, "r"), "partial began_before");
	ck_assert_int_eq(
		db_int(db, "SELECT count(*) FROM request WHERE handle = %lld", (long long)request),
		2);
	ck_assert_int_eq(db_int(db,
				"SELECT count(*) FROM request WHERE recording_id = 1 AND"
				" n_positions IS NULL AND end_state IS NULL AND end_ns IS NULL"),
			 1);
	ck_assert_int_eq(db_int(db, "SELECT n_positions FROM request WHERE recording_id = 2"), 12);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request_attribute WHERE value = 'prose'"),
			 2);
	ck_assert_int_eq(db_int(db, "SELECT count(DISTINCT request_id) FROM pass_request"), 2);
	db_close(db);
}
END_TEST

/* What went wrong in the first recording is not held against the second. */
START_TEST(test_reasons_stay_in_their_recording)
{
	static const int32_t wrong[] = {1, 64};
	struct toy toy = toy_start("reasons.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	const struct moetrace_slice slice = {.request = request, .first_position = 5, .n_rows = 1};
	struct moetrace_pass *pass;
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 5));
	pass = toy_begin(&toy, MOETRACE_PHASE_DECODE, &slice, 1);
	toy_select_ids(pass, 0, 1, 0, wrong);
	moetrace_pass_end(pass);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_VERIFY, request, 6, 1));
	moetrace_pass_end(toy_begin(&toy, MOETRACE_PHASE_DECODE, &slice, 1));
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 8, 1));
	toy_request_end(&toy, request, 9);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(verdict(db, 2, "r"), "partial began_before");
	db_close(db);
}
END_TEST

/* Rows past the declared end cannot make the rest partial. */
START_TEST(test_reasons_past_the_end)
{
	static const int32_t wrong[] = {1, 64};
	struct toy toy = toy_start("past.db", NULL, 1, 64, 2);
	const uint64_t invalid = toy_request(&toy, "invalid"), verify = toy_request(&toy, "verify");
	const uint64_t unwritten = toy_request(&toy, "unwritten");
	struct moetrace_slice slice = {.request = invalid, .first_position = 5, .n_rows = 1};
	struct moetrace_pass *pass;
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, invalid, 0, 5));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, verify, 0, 5));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, unwritten, 0, 5));
	pass = toy_begin(&toy, MOETRACE_PHASE_DECODE, &slice, 1);
	toy_select_ids(pass, 0, 1, 0, wrong);
	moetrace_pass_end(pass);
	slice.request = unwritten;
	moetrace_pass_end(toy_begin(&toy, MOETRACE_PHASE_DECODE, &slice, 1));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_VERIFY, verify, 5, 2));
	toy_request_end(&toy, invalid, 5);
	toy_request_end(&toy, verify, 5);
	toy_request_end(&toy, unwritten, 5);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(verdict(db, 1, "invalid"), "complete");
	ck_assert_str_eq(verdict(db, 1, "verify"), "complete");
	ck_assert_str_eq(verdict(db, 1, "unwritten"), "complete");
	db_close(db);
}
END_TEST

/* The row stays unfinished when the request ends while the session is idle. */
START_TEST(test_ended_while_idle)
{
	struct toy toy = toy_start("idle.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	uint64_t only_idle;
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 10));
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	toy_request_end(&toy, request, 10);
	only_idle = toy_request(&toy, "idle");
	toy_request_end(&toy, only_idle, 0);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request"), 1);
	ck_assert_str_eq(verdict(db, 1, "r"), "unfinished");
	db_close(db);
}
END_TEST

START_TEST(test_unfinished_at_close)
{
	struct toy toy = toy_start("open.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 10));
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(verdict(db, 1, "r"), "unfinished");
	ck_assert_int_eq(db_int(db, "SELECT unfinished_requests FROM loss"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM token_topk"), 10);
	db_close(db);
}
END_TEST

/* A row is there as soon as the request's beginning is committed. */
START_TEST(test_open_request_is_seen)
{
	struct toy toy = toy_start("seen.db", NULL, 1, 64, 2);
	sqlite3 *db;

	toy_request(&toy, "r");
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	db = db_open(toy.path);
	ck_assert_str_eq(verdict(db, 1, "r"), "unfinished");
	db_close(db);
	toy_close(&toy);
}
END_TEST

static Suite *request_suite(void)
{
	Suite *suite = suite_create("request");
	TCase *complete = tcase_create("complete");
	TCase *partial = tcase_create("partial");
	TCase *recordings = tcase_create("recordings");

	tcase_add_test(complete, test_prefill_and_decode);
	tcase_add_test(complete, test_positions_left_to_the_recorder);
	tcase_add_test(complete, test_unknown_positions_ignore_drafts);
	tcase_add_test(complete, test_aborted_before_the_first_pass);
	tcase_add_loop_test(complete, test_end_state_is_not_the_verdict, 0, 3);
	tcase_add_test(complete, test_declared_shorter);
	tcase_add_test(complete, test_positions_out_of_order);
	tcase_add_test(complete, test_layer_that_skips_rows);
	tcase_add_test(partial, test_missing_positions);
	tcase_add_test(partial, test_missing_beside_another_reason);
	tcase_add_test(partial, test_unresolved);
	tcase_add_test(partial, test_draft_rows_compute_nothing);
	tcase_add_test(partial, test_position_computed_twice);
	tcase_add_test(recordings, test_began_before);
	tcase_add_test(recordings, test_open_across_two_recordings);
	tcase_add_test(recordings, test_reasons_stay_in_their_recording);
	tcase_add_test(recordings, test_reasons_past_the_end);
	tcase_add_test(recordings, test_ended_while_idle);
	tcase_add_test(recordings, test_unfinished_at_close);
	tcase_add_test(recordings, test_open_request_is_seen);
	suite_add_tcase(suite, complete);
	suite_add_tcase(suite, partial);
	suite_add_tcase(suite, recordings);
	return suite;
}

int main(void)
{
	return suite_run(request_suite());
}
