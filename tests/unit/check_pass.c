/* SPDX-License-Identifier: MIT */
/*
 * Passes: their slices, sizes, phases and verdicts.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

/* ---- sizes ---- */

/* A pass without rows has nothing to lose, whether its layers are handed over or not. */
START_TEST(test_no_rows)
{
	struct toy toy = toy_start("empty.db", NULL, 2, 16, 2);
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_IDLE, NULL, 0);
	sqlite3 *db;

	ck_assert_ptr_nonnull(pass);
	moetrace_pass_end(pass);
	pass = toy_begin(&toy, MOETRACE_PHASE_DECODE, NULL, 0);
	ck_assert_ptr_nonnull(pass);
	toy_finish(&toy, pass, 0);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE n_rows = 0 AND"
				    " verdict = 'complete'"),
			 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer WHERE state = 0"), 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer WHERE active_experts = 0 AND"
				    " max_load = 0 AND n_rows = 0"),
			 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM expert_load_window"), 0);
	db_close(db);
}
END_TEST

/* More rows than two bytes count. */
START_TEST(test_70000_rows)
{
	struct moetrace_session_opts opts = toy_opts();
	struct moetrace_slice slices[] = {
		{.n_rows = 1},
		{.n_rows = 69990, .first_position = 0},
		{.n_rows = 9, .first_position = 69990},
	};
	struct moetrace_pass *pass;
	uint64_t request;
	struct toy toy;
	sqlite3 *db;

	opts.ring_bytes = UINT64_C(32) << 20;
	toy = toy_start("large.db", &opts, 3, 300, 8);
	request = toy_request(&toy, "long");
	slices[1].request = request;
	slices[2].request = request;
	pass = toy_begin(&toy, MOETRACE_PHASE_PREFILL, slices, 3);
	ck_assert_ptr_nonnull(pass);
	toy_finish(&toy, pass, 70000);
	ck_assert_int_eq(
		moetrace_request_end(toy.session, request, MOETRACE_REQUEST_FINISHED, 69999),
		MOETRACE_OK);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM request"), "complete");
	ck_assert_int_eq(db_int(db, "SELECT n_rows FROM pass"), 70000);
	ck_assert_int_eq(db_int(db, "SELECT sum(n_rows) FROM topk"), 3 * 70000);
	ck_assert_int_eq(db_int(db, "SELECT sum(tokens) FROM expert_load"), 3 * 70000 * 8);
	/* Row 69999 of layer 2, rank 7: (69999 * 7 + 2 * 3 + 7) % 300 = 106. */
	ck_assert_int_eq(db_int(db, "SELECT expert FROM routed_expert WHERE request_id = 1 AND"
				    " position = 69998 AND layer = 2 AND topk_rank = 7"),
			 toy_expert(&toy, 2, 69999, 7));
	db_close(db);
}
END_TEST

START_TEST(test_many_slices)
{
	enum { N_SLICES = 3000 };
	struct toy toy = toy_start("slices.db", NULL, 1, 64, 2);
	struct moetrace_slice *slices = calloc(N_SLICES, sizeof(*slices));
	struct moetrace_pass *pass;
	uint64_t request = MOETRACE_NO_REQUEST;
	sqlite3 *db;
	uint32_t i;

	ck_assert_ptr_nonnull(slices);
	for (i = 0; i < N_SLICES; i++) {
		slices[i].request = toy_request(&toy, NULL);
		slices[i].first_position = i;
		slices[i].n_rows = 1;
		request = slices[i].request;
	}
	pass = toy_begin(&toy, MOETRACE_PHASE_DECODE, slices, N_SLICES);
	ck_assert_ptr_nonnull(pass);
	toy_finish(&toy, pass, N_SLICES);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_request"), N_SLICES);
	ck_assert_int_eq(db_int(db, "SELECT count(DISTINCT request_id) FROM pass_request"),
			 N_SLICES);
	ck_assert_int_eq(db_int(db,
				"SELECT first_position FROM pass_request JOIN request"
				" USING (request_id) WHERE handle = %lld",
				(long long)request),
			 N_SLICES - 1);
	ck_assert_str_eq(db_text(db, "SELECT external_id FROM request LIMIT 1"), "(null)");
	db_close(db);
	free(slices);
}
END_TEST

/* ---- slices ---- */

/* One request in two slices of a pass, with an empty slice between them. */
START_TEST(test_two_slices_of_a_request)
{
	struct toy toy = toy_start("twice.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r"), other = toy_request(&toy, "other");
	const struct moetrace_slice slices[] = {
		{.request = request, .first_position = 3, .n_rows = 1},
		{.request = other, .first_position = 9, .n_rows = 0},
		{.request = request, .first_position = 0, .n_rows = 3},
	};
	sqlite3 *db;

	toy_finish(&toy, toy_begin(&toy, MOETRACE_PHASE_PREFILL, slices, 3), 4);
	ck_assert_int_eq(moetrace_request_end(toy.session, request, MOETRACE_REQUEST_FINISHED, 4),
			 MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_end(toy.session, other, MOETRACE_REQUEST_FINISHED,
					      MOETRACE_POSITIONS_UNKNOWN),
			 MOETRACE_OK);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(n_rows) FROM (SELECT n_rows FROM"
				     " pass_request ORDER BY slice)"),
			 "1,0,3");
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM request WHERE external_id = 'r'"),
			 "complete");
	ck_assert_int_eq(db_int(db, "SELECT n_positions FROM request WHERE external_id = 'other'"),
			 0);
	ck_assert_int_eq(db_int(db, "SELECT n_requests FROM pass_summary"), 2);
	db_close(db);
}
END_TEST

/* Positions of a draft tree; a list that happens to be consecutive needs no blob. */
START_TEST(test_positions)
{
	static const uint32_t tree[] = {5, 6, 6, 7}, line[] = {7, 8, 9};
	struct toy toy = toy_start("positions.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	const struct moetrace_slice slices[] = {
		{.request = request,
		 .positions = tree,
		 .first_position = 99,
		 .n_rows = 4,
		 .phase = MOETRACE_PHASE_VERIFY},
		{.request = request,
		 .positions = line,
		 .n_rows = 3,
		 .phase = MOETRACE_PHASE_PREFILL},
	};
	sqlite3 *db;

	toy_finish(&toy, toy_begin(&toy, MOETRACE_PHASE_MIXED, slices, 2), 7);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT hex(positions) FROM pass_request WHERE slice = 0"),
			 "05000000060000000600000007000000");
	ck_assert_int_eq(db_int(db, "SELECT first_position FROM pass_request WHERE slice = 0"), 5);
	ck_assert_str_eq(db_text(db, "SELECT positions FROM pass_request WHERE slice = 1"),
			 "(null)");
	ck_assert_int_eq(db_int(db, "SELECT first_position FROM pass_request WHERE slice = 1"), 7);
	ck_assert_str_eq(
		db_text(db, "SELECT group_concat(position || state) FROM (SELECT position,"
			    " state FROM token_topk ORDER BY row)"),
		"5unresolved,6unresolved,6unresolved,7unresolved,7computed,8computed,9computed");
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 0);
	db_close(db);
}
END_TEST

/* A slice without a phase has the pass's; the counters follow the slice's own. */
START_TEST(test_slice_phases)
{
	struct toy toy = toy_start("phases.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	const struct moetrace_slice slices[] = {
		{.request = request,
		 .first_position = 0,
		 .n_rows = 3,
		 .phase = MOETRACE_PHASE_PREFILL},
		{.request = request,
		 .first_position = 3,
		 .n_rows = 1,
		 .phase = MOETRACE_PHASE_DECODE},
		{.request = request,
		 .first_position = 4,
		 .n_rows = 5,
		 .phase = MOETRACE_PHASE_VERIFY},
		{.request = request,
		 .first_position = 4,
		 .n_rows = 6,
		 .phase = MOETRACE_PHASE_DRAFT},
		{.n_rows = 2, .phase = MOETRACE_PHASE_DUMMY},
	};
	sqlite3 *db;

	toy_finish(&toy, toy_begin(&toy, MOETRACE_PHASE_MIXED, slices, 5), 17);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 10, 1));
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db,
				 "SELECT group_concat(phase) FROM (SELECT phase FROM pass_request"
				 " ORDER BY pass_id, slice)"),
			 "prefill,decode,verify,draft,dummy,decode");
	ck_assert_str_eq(
		db_text(db, "SELECT sum(prefill_tokens) || ' ' || sum(decode_tokens) || ' '"
			    " || sum(verify_tokens) || ' ' || sum(other_tokens) FROM expert_load"),
		"6 4 10 16");
	db_close(db);
}
END_TEST

/* A pass that names no slices: its rows are those of no request. */
START_TEST(test_rows_of_no_request)
{
	static const int32_t ids[] = {1, 2, 1, 3};
	struct toy toy = toy_start("nobody.db", NULL, 1, 8, 2);
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;
	sqlite3 *db;

	MOETRACE_INIT(&info);
	info.model = toy.model;
	info.phase = MOETRACE_PHASE_DUMMY;
	info.n_rows = 2;
	pass = moetrace_pass_begin(toy.session, &info);
	ck_assert_ptr_nonnull(pass);
	toy_select_ids(pass, 0, 2, 0, ids);
	moetrace_pass_end(pass);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(
		db_int(db, "SELECT sum(n_rows) FROM pass_request WHERE request_id IS NULL"), 2);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(state) FROM token_topk"), "dummy,dummy");
	ck_assert_int_eq(db_int(db, "SELECT sum(other_tokens) FROM expert_load_window"), 4);
	ck_assert_int_eq(db_int(db, "SELECT sum(prefill_tokens + decode_tokens + verify_tokens +"
				    " padding_tokens) FROM expert_load_window"),
			 0);
	db_close(db);
}
END_TEST

/* A request that nobody began, or that has ended: the rows are kept, the name is refused. */
START_TEST(test_unknown_request_in_a_slice)
{
	struct toy toy = toy_start("unknown.db", NULL, 1, 64, 2);
	const uint64_t ended = toy_request(&toy, "ended");
	sqlite3 *db;

	ck_assert_int_eq(moetrace_request_end(toy.session, ended, MOETRACE_REQUEST_FINISHED, 0),
			 MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, ended, 0, 1));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, UINT64_C(1) << 40, 0, 2));
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_request WHERE request_id IS NULL"),
			 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request"), 1);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 2);
	ck_assert_int_eq(db_int(db, "SELECT sum(other_tokens) FROM expert_load"), 6);
	db_close(db);
}
END_TEST

START_TEST(test_runtime_pass)
{
	const uint64_t large = UINT64_C(0x7fffffffffffffff), zero = 0;
	struct toy toy = toy_start("number.db", NULL, 1, 64, 2);
	struct moetrace_pass_info info;
	sqlite3 *db;

	MOETRACE_INIT(&info);
	info.model = toy.model;
	info.phase = MOETRACE_PHASE_IDLE;
	moetrace_pass_end(moetrace_pass_begin(toy.session, &info));
	info.runtime_pass = &zero;
	moetrace_pass_end(moetrace_pass_begin(toy.session, &info));
	info.runtime_pass = &large;
	moetrace_pass_end(moetrace_pass_begin(toy.session, &info));
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(coalesce(runtime_pass, 'none')) FROM"
				     " (SELECT runtime_pass FROM pass ORDER BY pass_id)"),
			 "none,0,9223372036854775807");
	db_close(db);
}
END_TEST

/* ---- order and time ---- */

/* pass_id ascends in the order in which passes ended; times tell when they began. */
START_TEST(test_overlapping_passes)
{
	struct toy toy = toy_start("overlap.db", NULL, 1, 64, 2);
	const struct moetrace_slice slices[] = {{.n_rows = 1}, {.n_rows = 2}};
	struct moetrace_pass *first = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slices[0], 1);
	struct moetrace_pass *second = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slices[1], 1);
	sqlite3 *db;

	ck_assert(first && second && first != second);
	toy_select(&toy, first, 0, 1);
	suite_sleep_ms(2);
	toy_finish(&toy, second, 2);
	suite_sleep_ms(2);
	moetrace_pass_end(first);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(n_rows) FROM (SELECT n_rows FROM pass"
				     " ORDER BY pass_id)"),
			 "2,1");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(n_rows) FROM (SELECT n_rows FROM pass"
				     " ORDER BY begin_ns)"),
			 "1,2");
	ck_assert_int_ge(db_int(db, "SELECT end_ns - begin_ns FROM pass WHERE n_rows = 1"),
			 4000000);
	ck_assert_int_eq(db_int(db,
				"SELECT count(*) FROM pass_layer JOIN pass USING (pass_id) WHERE"
				" selected_ns NOT BETWEEN begin_ns AND end_ns"),
			 0);
	db_close(db);
}
END_TEST

/* ---- what goes wrong ---- */

START_TEST(test_unwritten_layer)
{
	struct toy toy = toy_start("unwritten.db", NULL, 3, 64, 2);
	const uint64_t request = toy_request(&toy, "r"), other = toy_request(&toy, "other");
	const struct moetrace_slice slice = {.request = request, .n_rows = 2};
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slice, 1);
	sqlite3 *db;

	toy_select(&toy, pass, 0, 2);
	toy_select(&toy, pass, 2, 2);
	moetrace_pass_end(pass);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, other, 0, 2));
	ck_assert_int_eq(moetrace_request_end(toy.session, request, MOETRACE_REQUEST_FINISHED, 2),
			 MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_end(toy.session, other, MOETRACE_REQUEST_FINISHED, 2),
			 MOETRACE_OK);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(state) FROM (SELECT state FROM pass_layer"
				     " WHERE pass_id = 1 ORDER BY layer_id)"),
			 "0,1,0");
	ck_assert_str_eq(
		db_text(db, "SELECT verdict || ' ' || reasons FROM pass WHERE pass_id = 1"),
		"partial unwritten");
	ck_assert_int_eq(db_int(db, "SELECT n_dropped FROM pass WHERE pass_id = 1"), 0);
	ck_assert_str_eq(db_text(db, "SELECT verdict || ' ' || reasons FROM request WHERE"
				     " external_id = 'r'"),
			 "partial unwritten");
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM request WHERE external_id = 'other'"),
			 "complete");
	db_close(db);
}
END_TEST

/* The first call for a layer counts; the second is told of. */
START_TEST(test_duplicate_layer)
{
	static const int32_t first[] = {1, 2}, second[] = {3, 4};
	struct toy toy = toy_start("duplicate.db", NULL, 2, 8, 2);
	const struct moetrace_slice slice = {.n_rows = 1};
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	sqlite3 *db;

	toy_select_ids(pass, 0, 1, 0, first);
	toy_select_ids(pass, 0, 1, 0, second);
	toy_select_ids(pass, 1, 1, 0, second);
	moetrace_pass_end(pass);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_stat(db, 1, "duplicate_layers"), 1);
	ck_assert_int_eq(db_stat(db, 1, "recorded_layers"), 2);
	ck_assert_str_eq(db_text(db,
				 "SELECT group_concat(expert) FROM (SELECT expert FROM expert_load"
				 " WHERE tokens > 0 ORDER BY layer, expert)"),
			 "1,2,3,4");
	ck_assert_int_ge(db_int(db, "SELECT count(*) FROM diagnostic"), 1);
	db_close(db);
}
END_TEST

/* The invalid rows of one request are no fault of the request beside it. */
START_TEST(test_invalid_ids_and_their_request)
{
	static const int32_t ids[] = {1, 2, 1, 64};
	struct toy toy = toy_start("invalid.db", NULL, 1, 64, 2);
	const uint64_t good = toy_request(&toy, "good"), bad = toy_request(&toy, "bad");
	const struct moetrace_slice slices[] = {{.request = good, .n_rows = 1},
						{.request = bad, .n_rows = 1}};
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_PREFILL, slices, 2);
	sqlite3 *db;

	toy_select_ids(pass, 0, 2, 0, ids);
	moetrace_pass_end(pass);
	ck_assert_int_eq(moetrace_request_end(toy.session, good, MOETRACE_REQUEST_FINISHED, 1),
			 MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_end(toy.session, bad, MOETRACE_REQUEST_FINISHED, 1),
			 MOETRACE_OK);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_stat(db, 1, "invalid_ids"), 1);
	ck_assert_str_eq(db_text(db, "SELECT reasons FROM pass"), "invalid");
	ck_assert_str_eq(db_text(db, "SELECT reasons FROM request WHERE external_id = 'bad'"),
			 "invalid");
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM request WHERE external_id = 'good'"),
			 "complete");
	db_close(db);
}
END_TEST

/* More passes at once than rings: NULL, counted, and the others are whole. */
START_TEST(test_no_ring)
{
	struct moetrace_session_opts opts = toy_opts();
	const struct moetrace_slice slice = {.n_rows = 1};
	struct moetrace_pass *passes[4];
	struct toy toy;
	sqlite3 *db;
	uint32_t i, n_recorded = 0;

	opts.n_rings = 2;
	toy = toy_start("rings.db", &opts, 1, 64, 2);
	for (i = 0; i < 4; i++) {
		passes[i] = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
		n_recorded += passes[i] != NULL;
	}
	ck_assert_uint_eq(n_recorded, 2);
	ck_assert_uint_eq(toy_status(&toy).dropped_passes, 2);
	for (i = 0; i < 4; i++)
		toy_finish(&toy, passes[i], 1);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 3);
	ck_assert_int_eq(db_stat(db, 1, "dropped_passes"), 2);
	ck_assert_int_eq(db_int(db, "SELECT sum(n_lost) FROM gap WHERE stream = 'pass' AND"
				    " reason = 'no_ring'"),
			 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM gap WHERE end_ns < start_ns"), 0);
	db_close(db);
}
END_TEST

static Suite *pass_suite(void)
{
	Suite *suite = suite_create("pass");
	TCase *shapes = tcase_create("shapes");
	TCase *losses = tcase_create("losses");

	tcase_add_test(shapes, test_no_rows);
	tcase_add_test(shapes, test_70000_rows);
	tcase_add_test(shapes, test_many_slices);
	tcase_add_test(shapes, test_two_slices_of_a_request);
	tcase_add_test(shapes, test_positions);
	tcase_add_test(shapes, test_slice_phases);
	tcase_add_test(shapes, test_rows_of_no_request);
	tcase_add_test(shapes, test_unknown_request_in_a_slice);
	tcase_add_test(shapes, test_runtime_pass);
	tcase_add_test(shapes, test_overlapping_passes);
	tcase_add_test(losses, test_unwritten_layer);
	tcase_add_test(losses, test_duplicate_layer);
	tcase_add_test(losses, test_invalid_ids_and_their_request);
	tcase_add_test(losses, test_no_ring);
	suite_add_tcase(suite, shapes);
	suite_add_tcase(suite, losses);
	return suite;
}

int main(void)
{
	return suite_run(pass_suite());
}
