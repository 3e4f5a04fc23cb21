/* SPDX-License-Identifier: MIT */
/*
 * Prefix hits and their sources: by link and by KV slot, chains of them, what is in flight, not
 * known or not whole. Every file is proved by `moetrace check`, too.
 */
#include "tests/unit/support/db.h"
#include "tests/unit/support/said.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

START_TEST(test_reuse_by_link)
{
	struct toy toy = toy_start("link.db", NULL, 2, 64, 4);
	const uint64_t a = toy_request(&toy, "a");
	const uint64_t b = toy_request(&toy, "b");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, a, 0, 10));
	toy_end(&toy, a, 10);
	toy_reuse(&toy, b, 0, 8, a, MOETRACE_ATTEMPT_LAST);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, b, 8, 4));
	toy_end(&toy, b, MOETRACE_POSITIONS_UNKNOWN);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_verdict(db, "b"), "complete");
	ck_assert_str_eq(toy_links(db), "2 0 0+8 1 0");
	ck_assert_int_eq(db_int(db, "SELECT n_positions FROM request WHERE external_id = 'b'"), 12);
	/* A reused position has the top-k of its source and is in no pass. */
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM token_topk WHERE request_id = 2"),
			 12 * 2);
	ck_assert_int_eq(db_int(db,
				"SELECT count(*) FROM token_topk AS t JOIN token_topk AS s"
				" USING (position, layer_id) WHERE t.request_id = 2 AND"
				" s.request_id = 1 AND t.state = 'reused' AND t.pass_id IS NULL"
				" AND t.topk_ids = s.topk_ids AND t.topk_weights = s.topk_weights"),
			 8 * 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM routed_expert WHERE request_id = 2"),
			 4 * 2 * 4);
	db_close(db);
}
END_TEST

/*
 * A request reuses more than its own first attempt computed: it is looked at once more as a source
 * when it ends, and then remembered, once.
 */
START_TEST(test_reuse_of_an_own_attempt)
{
	struct toy toy = toy_start("own.db", NULL, 1, 64, 4);
	sqlite3 *db;

	for (int i = 0; i < 3; i++) {
		const uint64_t request = toy_request(&toy, "own");

		ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 6));
		ck_assert_int_eq(moetrace_request_retract(toy.session, request), MOETRACE_OK);
		toy_reuse(&toy, request, 0, 8, request, 0);
		ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 8, 2));
		toy_end(&toy, request, 10);
	}
	db = toy_prove_and_open(&toy, 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE reasons = 'reuse_unknown'"),
			 3);
	ck_assert_int_eq(db_int(db, "SELECT sum(n_positions) FROM request_reuse WHERE attempt = 1"
				    " AND source_request_id = request_id AND source_attempt = 0"),
			 3 * 6);
	db_close(db);
}
END_TEST

/* c reuses what b reused of a: the link goes to the one that computed it, and splits. */
START_TEST(test_chain_of_reuse_is_split_where_the_source_changes)
{
	struct toy toy = toy_start("chain.db", NULL, 1, 64, 4);
	const uint64_t a = toy_request(&toy, "a");
	const uint64_t b = toy_request(&toy, "b");
	const uint64_t c = toy_request(&toy, "c");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, a, 0, 8));
	toy_reuse(&toy, b, 0, 8, a, 0);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, b, 8, 8));
	toy_end(&toy, a, 8);
	toy_end(&toy, b, 16);
	toy_reuse(&toy, c, 2, 12, b, MOETRACE_ATTEMPT_LAST);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, c, 0, 2));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, c, 14, 1));
	toy_end(&toy, c, 15);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_links(db), "2 0 0+8 1 0, 3 0 2+6 1 0, 3 0 8+6 2 0");
	ck_assert_str_eq(toy_verdict(db, "c"), "complete");
	db_close(db);
}
END_TEST

/* The hit is known before the pass that computes it has ended, as with chunks in flight. */
START_TEST(test_reuse_of_positions_in_flight)
{
	struct toy toy = toy_start("flight.db", NULL, 1, 64, 4);
	const uint64_t a = toy_request(&toy, "a");
	const uint64_t b = toy_request(&toy, "b");
	const struct moetrace_slice slice = {.request = a, .n_rows = 6};
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slice, 1);
	sqlite3 *db;

	toy_reuse(&toy, b, 0, 6, a, MOETRACE_ATTEMPT_LAST);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	toy_finish(&toy, pass, 6);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, b, 6, 1));
	toy_end(&toy, b, 7);
	toy_end(&toy, a, 6);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_links(db), "2 0 0+6 1 0");
	ck_assert_str_eq(toy_verdict(db, "b"), "complete");
	db_close(db);
}
END_TEST

/* A pass whose rows name KV slots. */
static void slots_pass(const struct toy *toy, uint64_t request, uint32_t first_position,
		       uint32_t n_rows, const int64_t *slots)
{
	const struct moetrace_slice slice = {
		.request = request, .first_position = first_position, .n_rows = n_rows};
	struct moetrace_pass_info info;

	MOETRACE_INIT(&info);
	info.model = toy->model;
	info.phase = MOETRACE_PHASE_PREFILL;
	info.slices = &slice;
	info.n_slices = 1;
	info.n_rows = n_rows;
	info.kv_slots = slots;
	info.kv_slot_type = MOETRACE_TYPE_I64;
	toy_finish(toy, moetrace_pass_begin(toy->session, &info), n_rows);
}

static void reuse_slots(const struct toy *toy, uint64_t request, uint32_t first, uint32_t n,
			const uint64_t *slots)
{
	struct moetrace_reuse info;

	MOETRACE_INIT(&info);
	info.first_position = first;
	info.n_positions = n;
	info.kv_slots = slots;
	ck_assert_int_eq(moetrace_request_reuse(toy->session, request, &info), MOETRACE_OK);
}

START_TEST(test_reuse_resolved_from_kv_slots)
{
	static const int64_t a_slots[] = {900, 901, 7, 8, 1000000, 3};
	static const int64_t b_slots[] = {50, 51, -1};
	static const uint64_t c_hit[] = {900, 901, 7, 8, 50, 51};
	static const uint64_t d_hit[] = {901, 900, 7, 77};
	struct toy toy = toy_start("slots.db", NULL, 1, 64, 4);
	const uint64_t a = toy_request(&toy, "a");
	const uint64_t b = toy_request(&toy, "b");
	const uint64_t c = toy_request(&toy, "c");
	const uint64_t d = toy_request(&toy, "d");
	sqlite3 *db;

	slots_pass(&toy, a, 0, 6, a_slots);
	toy_end(&toy, a, 6);
	reuse_slots(&toy, b, 0, 4, c_hit);
	slots_pass(&toy, b, 4, 3, b_slots);
	toy_end(&toy, b, 7);
	reuse_slots(&toy, c, 0, 6, c_hit);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, c, 6, 1));
	toy_end(&toy, c, 7);
	/* Slots of other positions, and one that nobody named: unknown. */
	reuse_slots(&toy, d, 0, 4, d_hit);
	toy_end(&toy, d, 4);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_links(db),
			 "2 0 0+4 1 0, 3 0 0+4 1 0, 3 0 4+2 2 0, 4 0 0+2 ?, 4 0 2+1 1 0,"
			 " 4 0 3+1 ?");
	ck_assert_str_eq(toy_verdict(db, "c"), "complete");
	ck_assert_str_eq(toy_verdict(db, "d"), "partial reuse_unknown");
	db_close(db);
}
END_TEST

/* A pass that was lost may have written over every slot; what is written after it is known again. */
START_TEST(test_slots_are_unknown_after_a_lost_pass)
{
	static const int64_t slots[] = {0, 1, 2, 3};
	static const uint64_t hit[] = {0, 1, 2, 3};
	struct moetrace_session_opts opts = toy_opts();
	const struct moetrace_slice none = {.n_rows = 1};
	struct moetrace_pass *other;
	uint64_t requests[6];
	struct toy toy;
	sqlite3 *db;

	opts.n_rings = 1;
	toy = toy_start("lost.db", &opts, 1, 64, 4);
	for (uint32_t i = 0; i < 6; i++)
		requests[i] = toy_request(&toy, NULL);
	slots_pass(&toy, requests[0], 0, 4, slots);
	reuse_slots(&toy, requests[1], 0, 4, hit);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	other = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &none, 1);
	slots_pass(&toy, requests[2], 0, 4, slots); /* no ring is left */
	toy_finish(&toy, other, 1);
	reuse_slots(&toy, requests[3], 0, 4, hit);
	slots_pass(&toy, requests[4], 0, 4, slots);
	reuse_slots(&toy, requests[5], 0, 4, hit);
	for (uint32_t i = 0; i < 6; i++)
		toy_end(&toy, requests[i], 4);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_int_eq(db_stat(db, 1, "dropped_passes"), 1);
	ck_assert_str_eq(toy_links(db), "2 0 0+4 1 0, 4 0 0+4 ?, 6 0 0+4 5 0");
	db_close(db);
}
END_TEST

/* Unknown is NULL and named; a source that was not whole passes its fault on. */
START_TEST(test_reuse_of_what_is_not_known_or_not_whole)
{
	struct toy toy = toy_start("unknown.db", NULL, 2, 64, 4);
	const uint64_t a = toy_request(&toy, "a");
	const uint64_t b = toy_request(&toy, "b");
	const uint64_t c = toy_request(&toy, "c");
	const struct moetrace_slice slice = {.request = a, .n_rows = 4};
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slice, 1);
	sqlite3 *db;

	toy_select(&toy, pass, 0, 4);
	moetrace_pass_end(pass);
	toy_reuse(&toy, b, 0, 4, MOETRACE_NO_REQUEST, 0);
	toy_reuse(&toy, c, 0, 4, a, 0);
	toy_reuse(&toy, c, 4, 2, a, 0);
	toy_end(&toy, a, 4);
	toy_end(&toy, b, 4);
	toy_end(&toy, c, 6);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_links(db), "2 0 0+4 ?, 3 0 0+4 1 0, 3 0 4+2 ?");
	ck_assert_str_eq(toy_verdict(db, "b"), "partial reuse_unknown");
	ck_assert_str_eq(toy_verdict(db, "c"), "partial unwritten,reuse_unknown");
	db_close(db);
}
END_TEST

/* The source may be an earlier attempt of the same request, and not the same attempt. */
START_TEST(test_reuse_of_an_earlier_attempt)
{
	struct toy toy = toy_start("own.db", NULL, 1, 64, 4);
	const uint64_t a = toy_request(&toy, "a");
	const uint64_t b = toy_request(&toy, "b");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, a, 0, 9));
	ck_assert_int_eq(moetrace_request_retract(toy.session, a), MOETRACE_OK);
	toy_reuse(&toy, a, 0, 9, a, MOETRACE_ATTEMPT_LAST);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, a, 9, 1));
	ck_assert_int_eq(moetrace_request_retract(toy.session, a), MOETRACE_OK);
	toy_reuse(&toy, a, 0, 10, a, MOETRACE_ATTEMPT_LAST);
	toy_end(&toy, a, 10);
	toy_reuse(&toy, b, 0, 3, b, MOETRACE_ATTEMPT_LAST);
	toy_end(&toy, b, 3);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_links(db), "1 1 0+9 1 0, 1 2 0+9 1 0, 1 2 9+1 1 1, 2 0 0+3 ?");
	ck_assert_str_eq(toy_verdict(db, "a"), "complete");
	ck_assert_str_eq(toy_verdict(db, "b"), "partial reuse_unknown");
	db_close(db);
}
END_TEST

/* A position is computed or reused, once: the rest is misuse, and said. */
START_TEST(test_computed_and_reused_is_repeated)
{
	struct toy toy = toy_start("repeated.db", NULL, 1, 64, 4);
	const uint64_t a = toy_request(&toy, "a");
	const uint64_t b = toy_request(&toy, "b");
	const uint64_t c = toy_request(&toy, "c");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, a, 0, 9));
	toy_reuse(&toy, b, 0, 5, a, 0);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, b, 4, 5));
	toy_reuse(&toy, c, 0, 5, a, 0);
	toy_reuse(&toy, c, 3, 6, a, 0);
	toy_end(&toy, a, 9);
	toy_end(&toy, b, 9);
	toy_end(&toy, c, 9);
	db = toy_prove_and_open(&toy, 2);
	ck_assert_str_eq(toy_verdict(db, "b"), "partial repeated");
	ck_assert_str_eq(toy_verdict(db, "c"), "complete");
	ck_assert_str_eq(toy_links(db), "2 0 0+5 1 0, 3 0 0+5 1 0, 3 0 5+4 1 0");
	db_close(db);
}
END_TEST

/* A recording stands for itself: what an earlier one holds is no source in it. */
START_TEST(test_sources_of_an_earlier_recording_are_unknown)
{
	struct toy toy = toy_start("earlier.db", NULL, 1, 64, 4);
	const uint64_t a = toy_request(&toy, "a");
	uint64_t b;
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, a, 0, 9));
	toy_end(&toy, a, 9);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	b = toy_request(&toy, "b");
	toy_reuse(&toy, b, 0, 9, a, 0);
	toy_end(&toy, b, 9);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_verdict(db, "b"), "partial reuse_unknown");
	db_close(db);
}
END_TEST

/* What is said after a request has ended does not change what it reused. */
START_TEST(test_source_said_after_the_end_stays_unknown)
{
	struct toy toy = toy_start("after.db", NULL, 1, 64, 4);
	const uint64_t a = toy_request(&toy, "a");
	const uint64_t b = toy_request(&toy, "b");
	const uint64_t c = toy_request(&toy, "c");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, a, 0, 8));
	toy_reuse(&toy, c, 0, 8, b, 0);
	toy_end(&toy, c, 8);
	toy_reuse(&toy, b, 0, 8, a, 0);
	toy_end(&toy, b, 8);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_links(db), "2 0 0+8 1 0, 3 0 0+8 ?");
	ck_assert_str_eq(toy_verdict(db, "b"), "complete");
	ck_assert_str_eq(toy_verdict(db, "c"), "partial reuse_unknown");
	db_close(db);
}
END_TEST

/* Requests that reuse each other: nobody computed the positions. */
START_TEST(test_circle_of_reuse_has_no_source)
{
	struct toy toy = toy_start("circle.db", NULL, 1, 64, 4);
	const uint64_t a = toy_request(&toy, "a");
	const uint64_t b = toy_request(&toy, "b");
	sqlite3 *db;

	toy_reuse(&toy, a, 0, 8, b, 0);
	toy_reuse(&toy, b, 0, 8, a, 0);
	toy_end(&toy, a, 8);
	toy_end(&toy, b, 8);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_links(db), "1 0 0+8 ?, 2 0 0+8 ?");
	db_close(db);
}
END_TEST

/* A hit on a hit leads back to a later attempt of the request itself, which cannot be. */
START_TEST(test_no_attempt_reuses_a_later_one)
{
	struct toy toy = toy_start("later.db", NULL, 1, 64, 4);
	const uint64_t a = toy_request(&toy, "a");
	const uint64_t b = toy_request(&toy, "b");
	sqlite3 *db;

	toy_reuse(&toy, a, 0, 8, b, 0);
	ck_assert_int_eq(moetrace_request_retract(toy.session, a), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, a, 0, 8));
	toy_reuse(&toy, b, 0, 8, a, MOETRACE_ATTEMPT_LAST);
	toy_end(&toy, b, 8);
	toy_end(&toy, a, 8);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(toy_links(db), "1 0 0+8 ?, 2 0 0+8 1 1");
	ck_assert_str_eq(toy_verdict(db, "a"), "complete");
	ck_assert_str_eq(toy_verdict(db, "b"), "complete");
	db_close(db);
}
END_TEST

static Suite *reuse_suite(void)
{
	Suite *suite = suite_create("reuse");
	TCase *hits = tcase_create("hits");

	tcase_set_timeout(hits, 60);
	tcase_add_test(hits, test_reuse_by_link);
	tcase_add_test(hits, test_reuse_of_an_own_attempt);
	tcase_add_test(hits, test_chain_of_reuse_is_split_where_the_source_changes);
	tcase_add_test(hits, test_reuse_of_positions_in_flight);
	tcase_add_test(hits, test_reuse_resolved_from_kv_slots);
	tcase_add_test(hits, test_slots_are_unknown_after_a_lost_pass);
	tcase_add_test(hits, test_reuse_of_what_is_not_known_or_not_whole);
	tcase_add_test(hits, test_reuse_of_an_earlier_attempt);
	tcase_add_test(hits, test_computed_and_reused_is_repeated);
	tcase_add_test(hits, test_sources_of_an_earlier_recording_are_unknown);
	tcase_add_test(hits, test_source_said_after_the_end_stays_unknown);
	tcase_add_test(hits, test_circle_of_reuse_has_no_source);
	tcase_add_test(hits, test_no_attempt_reuses_a_later_one);
	suite_add_tcase(suite, hits);
	return suite;
}

int main(void)
{
	return suite_run(reuse_suite());
}
