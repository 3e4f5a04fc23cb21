/* SPDX-License-Identifier: MIT */
/*
 * Attempts: retracts, prefix hits and their sources, verify rows accepted later, drafts, aborts,
 * pauses and passes in parts. The rules R7 and R8 that recorders of this kind break are among
 * them by name. Every file is proved by `moetrace check`, too.
 */
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

static const char *verdict(sqlite3 *db, const char *external_id)
{
	return db_text(db,
		       "SELECT verdict || coalesce(' ' || reasons, '') FROM request WHERE"
		       " external_id = %Q",
		       external_id);
}

static void end_as(const struct toy *toy, uint64_t request, enum moetrace_request_end_state state,
		   uint64_t n_positions)
{
	ck_assert_int_eq(moetrace_request_end(toy->session, request, state, n_positions),
			 MOETRACE_OK);
}

static void end(const struct toy *toy, uint64_t request, uint64_t n_positions)
{
	end_as(toy, request, MOETRACE_REQUEST_FINISHED, n_positions);
}

static void reuse(const struct toy *toy, uint64_t request, uint32_t first, uint32_t n,
		  uint64_t source, uint32_t attempt)
{
	struct moetrace_reuse info;

	MOETRACE_INIT(&info);
	info.first_position = first;
	info.n_positions = n;
	info.source_request = source;
	info.source_attempt = attempt;
	ck_assert_int_eq(moetrace_request_reuse(toy->session, request, &info), MOETRACE_OK);
}

/* All links: "request attempt first+n source attempt", with handles. */
static const char *links(sqlite3 *db)
{
	return db_text(db, "SELECT coalesce(group_concat(l, ', '), 'none') FROM (SELECT r.handle"
			   " || ' ' || u.attempt || ' ' || u.first_position || '+' || u.n_positions || ' '"
			   " || coalesce(s.handle || ' ' || source_attempt, '?') AS l FROM"
			   " request_reuse AS u JOIN request AS r USING (request_id) LEFT JOIN request"
			   " AS s ON s.request_id = u.source_request_id ORDER BY r.handle, u.attempt,"
			   " u.first_position)");
}

static sqlite3 *prove_and_open(struct toy *toy, int64_t n_misuse)
{
	sqlite3 *db = toy_close_and_open(toy);

	agree_prove(toy->path);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), n_misuse);
	return db;
}

/* ---- retract ---- */

/* The second computation does not replace the first, and the verdict is on the second. */
START_TEST(test_rule_r7_retract_keeps_the_first_attempt)
{
	struct toy toy = toy_start("retract.db", NULL, 2, 64, 4);
	const uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 10));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 10, 1));
	ck_assert_int_eq(moetrace_request_retract(toy.session, request), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 11));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 11, 1));
	end(&toy, request, 12);
	db = prove_and_open(&toy, 0);
	ck_assert_str_eq(verdict(db, "r"), "complete");
	ck_assert_int_eq(db_int(db, "SELECT n_attempts FROM request"), 2);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(n) FROM (SELECT attempt || ':' || count(*)"
				     " AS n FROM stored_topk WHERE layer = 0 GROUP BY attempt)"),
			 "0:11,1:12");
	db_close(db);
}
END_TEST

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
	end(&toy, good, 9);
	end(&toy, bad, 9);
	db = prove_and_open(&toy, 0);
	ck_assert_str_eq(verdict(db, "good"), "complete");
	ck_assert_str_eq(verdict(db, "bad"), "partial missing");
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
	end(&toy, request, 5);
	db = prove_and_open(&toy, 0);
	ck_assert_str_eq(verdict(db, "r"), "complete");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(attempt) FROM pass_request"), "0,1");
	db_close(db);
}
END_TEST

/* ---- reuse ---- */

START_TEST(test_reuse_by_link)
{
	struct toy toy = toy_start("link.db", NULL, 2, 64, 4);
	const uint64_t a = toy_request(&toy, "a");
	const uint64_t b = toy_request(&toy, "b");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, a, 0, 10));
	end(&toy, a, 10);
	reuse(&toy, b, 0, 8, a, MOETRACE_ATTEMPT_LAST);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, b, 8, 4));
	end(&toy, b, MOETRACE_POSITIONS_UNKNOWN);
	db = prove_and_open(&toy, 0);
	ck_assert_str_eq(verdict(db, "b"), "complete");
	ck_assert_str_eq(links(db), "2 0 0+8 1 0");
	ck_assert_int_eq(db_int(db, "SELECT n_positions FROM request WHERE external_id = 'b'"), 12);
	/* A reused position has the top-k of its source and is in no pass. */
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM token_topk WHERE request_id = 2"),
			 12 * 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM token_topk AS t JOIN token_topk AS s"
				    " USING (position, layer_id) WHERE t.request_id = 2 AND"
				    " s.request_id = 1 AND t.state = 'reused' AND t.pass_id IS NULL"
				    " AND t.topk_ids = s.topk_ids AND t.topk_weights = s.topk_weights"),
			 8 * 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM routed_expert WHERE request_id = 2"),
			 4 * 2 * 4);
	db_close(db);
}
END_TEST

/* c reuses what b reused of a: the link goes to the one that computed it, and splits. */
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
		reuse(&toy, request, 0, 8, request, 0);
		ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 8, 2));
		end(&toy, request, 10);
	}
	db = prove_and_open(&toy, 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE reasons = 'reuse_unknown'"),
			 3);
	ck_assert_int_eq(db_int(db, "SELECT sum(n_positions) FROM request_reuse WHERE attempt = 1"
				    " AND source_request_id = request_id AND source_attempt = 0"),
			 3 * 6);
	db_close(db);
}
END_TEST

START_TEST(test_chain_of_reuse_is_split_where_the_source_changes)
{
	struct toy toy = toy_start("chain.db", NULL, 1, 64, 4);
	const uint64_t a = toy_request(&toy, "a");
	const uint64_t b = toy_request(&toy, "b");
	const uint64_t c = toy_request(&toy, "c");
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, a, 0, 8));
	reuse(&toy, b, 0, 8, a, 0);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, b, 8, 8));
	end(&toy, a, 8);
	end(&toy, b, 16);
	reuse(&toy, c, 2, 12, b, MOETRACE_ATTEMPT_LAST);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, c, 0, 2));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, c, 14, 1));
	end(&toy, c, 15);
	db = prove_and_open(&toy, 0);
	ck_assert_str_eq(links(db), "2 0 0+8 1 0, 3 0 2+6 1 0, 3 0 8+6 2 0");
	ck_assert_str_eq(verdict(db, "c"), "complete");
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

	reuse(&toy, b, 0, 6, a, MOETRACE_ATTEMPT_LAST);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	toy_finish(&toy, pass, 6);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, b, 6, 1));
	end(&toy, b, 7);
	end(&toy, a, 6);
	db = prove_and_open(&toy, 0);
	ck_assert_str_eq(links(db), "2 0 0+6 1 0");
	ck_assert_str_eq(verdict(db, "b"), "complete");
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
	end(&toy, a, 6);
	reuse_slots(&toy, b, 0, 4, c_hit);
	slots_pass(&toy, b, 4, 3, b_slots);
	end(&toy, b, 7);
	reuse_slots(&toy, c, 0, 6, c_hit);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, c, 6, 1));
	end(&toy, c, 7);
	/* Slots of other positions, and one that nobody named: unknown. */
	reuse_slots(&toy, d, 0, 4, d_hit);
	end(&toy, d, 4);
	db = prove_and_open(&toy, 0);
	ck_assert_str_eq(links(db), "2 0 0+4 1 0, 3 0 0+4 1 0, 3 0 4+2 2 0, 4 0 0+2 ?, 4 0 2+1 1 0,"
				    " 4 0 3+1 ?");
	ck_assert_str_eq(verdict(db, "c"), "complete");
	ck_assert_str_eq(verdict(db, "d"), "partial reuse_unknown");
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
	reuse(&toy, b, 0, 4, MOETRACE_NO_REQUEST, 0);
	reuse(&toy, c, 0, 4, a, 0);
	reuse(&toy, c, 4, 2, a, 0);
	end(&toy, a, 4);
	end(&toy, b, 4);
	end(&toy, c, 6);
	db = prove_and_open(&toy, 0);
	ck_assert_str_eq(links(db), "2 0 0+4 ?, 3 0 0+4 1 0, 3 0 4+2 ?");
	ck_assert_str_eq(verdict(db, "b"), "partial reuse_unknown");
	ck_assert_str_eq(verdict(db, "c"), "partial unwritten,reuse_unknown");
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
	reuse(&toy, a, 0, 9, a, MOETRACE_ATTEMPT_LAST);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, a, 9, 1));
	ck_assert_int_eq(moetrace_request_retract(toy.session, a), MOETRACE_OK);
	reuse(&toy, a, 0, 10, a, MOETRACE_ATTEMPT_LAST);
	end(&toy, a, 10);
	reuse(&toy, b, 0, 3, b, MOETRACE_ATTEMPT_LAST);
	end(&toy, b, 3);
	db = prove_and_open(&toy, 0);
	ck_assert_str_eq(links(db), "1 1 0+9 1 0, 1 2 0+9 1 0, 1 2 9+1 1 1, 2 0 0+3 ?");
	ck_assert_str_eq(verdict(db, "a"), "complete");
	ck_assert_str_eq(verdict(db, "b"), "partial reuse_unknown");
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
	reuse(&toy, b, 0, 5, a, 0);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, b, 4, 5));
	reuse(&toy, c, 0, 5, a, 0);
	reuse(&toy, c, 3, 6, a, 0);
	end(&toy, a, 9);
	end(&toy, b, 9);
	end(&toy, c, 9);
	db = prove_and_open(&toy, 2);
	ck_assert_str_eq(verdict(db, "b"), "partial repeated");
	ck_assert_str_eq(verdict(db, "c"), "complete");
	ck_assert_str_eq(links(db), "2 0 0+5 1 0, 3 0 0+5 1 0, 3 0 5+4 1 0");
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
	end(&toy, a, 9);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	b = toy_request(&toy, "b");
	reuse(&toy, b, 0, 9, a, 0);
	end(&toy, b, 9);
	db = prove_and_open(&toy, 0);
	ck_assert_str_eq(verdict(db, "b"), "partial reuse_unknown");
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
START_TEST(test_rule_r8_rejected_rows_are_the_pass_s_alone)
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
	end(&toy, request, MOETRACE_POSITIONS_UNKNOWN);
	db = prove_and_open(&toy, 0);
	ck_assert_str_eq(verdict(db, "r"), "complete");
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
	end(&toy, needed, 5);
	end(&toy, spare, 3);
	end(&toy, gone, 5);
	db = prove_and_open(&toy, 2);
	ck_assert_str_eq(verdict(db, "needed"), "partial unresolved");
	ck_assert_str_eq(verdict(db, "spare"), "complete");
	/* Rejected and never computed: no pass carries the positions. */
	ck_assert_str_eq(verdict(db, "gone"), "partial missing");
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
	end(&toy, request, 8);
	db = prove_and_open(&toy, 0);
	ck_assert_str_eq(verdict(db, "r"), "complete");
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
	end(&toy, request, MOETRACE_POSITIONS_UNKNOWN);
	db = prove_and_open(&toy, 0);
	ck_assert_str_eq(verdict(db, "r"), "complete");
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

	end_as(&toy, waiting, MOETRACE_REQUEST_ABORTED, MOETRACE_POSITIONS_UNKNOWN);
	first = toy_begin(&toy, MOETRACE_PHASE_PREFILL, slices, 2);
	second = toy_begin(&toy, MOETRACE_PHASE_DECODE,
			   &(struct moetrace_slice){
				   .request = running, .first_position = 3, .n_rows = 1},
			   1);
	end_as(&toy, running, MOETRACE_REQUEST_ABORTED, MOETRACE_POSITIONS_UNKNOWN);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	toy_finish(&toy, first, 5);
	toy_finish(&toy, second, 1);
	end(&toy, other, 2);
	db = prove_and_open(&toy, 0);
	ck_assert_str_eq(verdict(db, "waiting"), "complete");
	ck_assert_str_eq(verdict(db, "running"), "complete");
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
	end(&toy, request, 4);
	db = prove_and_open(&toy, 1);
	ck_assert_str_eq(verdict(db, "r"), "complete");
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
	uint64_t whole, cut, aborted;
	sqlite3 *db;

	MOETRACE_INIT(&info);
	info.prompt_positions = 6;
	info.external_id = "whole";
	ck_assert_int_eq(moetrace_request_begin(toy.session, &info, &whole), MOETRACE_OK);
	info.external_id = "cut";
	ck_assert_int_eq(moetrace_request_begin(toy.session, &info, &cut), MOETRACE_OK);
	info.external_id = "aborted";
	ck_assert_int_eq(moetrace_request_begin(toy.session, &info, &aborted), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, whole, 0, 6));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, cut, 0, 4));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, aborted, 0, 4));
	end(&toy, whole, MOETRACE_POSITIONS_UNKNOWN);
	end(&toy, cut, MOETRACE_POSITIONS_UNKNOWN);
	end_as(&toy, aborted, MOETRACE_REQUEST_ABORTED, MOETRACE_POSITIONS_UNKNOWN);
	db = prove_and_open(&toy, 0);
	ck_assert_str_eq(verdict(db, "whole"), "complete");
	ck_assert_str_eq(verdict(db, "cut"), "partial missing");
	ck_assert_str_eq(verdict(db, "aborted"), "complete");
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
	struct moetrace_slice slices[2] = {{.request = a, .n_rows = 3}, {.request = b, .n_rows = 2}};
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
	end(&toy, a, 6);
	end(&toy, b, 4);
	db = prove_and_open(&toy, 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 6);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(n) FROM (SELECT p.microbatch || ':' ||"
				     " count(*) AS n FROM pass AS p JOIN pass AS q ON q.pass_id ="
				     " p.parent_pass_id WHERE q.n_rows = 0 GROUP BY p.microbatch)"),
			 "0:2,1:2");
	ck_assert_str_eq(verdict(db, "a"), "complete");
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
	end(&toy, a, 3);
	db = prove_and_open(&toy, 0);
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
	end(&toy, request, 9);
	db = prove_and_open(&toy, 2);
	ck_assert_int_eq(db_int(db, "SELECT count(parent_pass_id) FROM pass"), 0);
	ck_assert_str_eq(verdict(db, "r"), "complete");
	db_close(db);
}
END_TEST

static Suite *attempt_suite(void)
{
	Suite *suite = suite_create("attempt");
	TCase *attempts = tcase_create("attempts");
	TCase *hits = tcase_create("hits");
	TCase *rows = tcase_create("rows");

	tcase_set_timeout(attempts, 60);
	tcase_set_timeout(hits, 60);
	tcase_set_timeout(rows, 60);
	tcase_add_test(attempts, test_rule_r7_retract_keeps_the_first_attempt);
	tcase_add_test(attempts, test_verdict_is_on_the_last_attempt);
	tcase_add_test(attempts, test_pass_belongs_to_the_attempt_that_it_began_in);
	tcase_add_test(attempts, test_abort_while_passes_run);
	tcase_add_test(attempts, test_pause_and_resume_keep_the_attempt);
	tcase_add_test(attempts, test_prefill_only_and_a_prompt_cut_short);
	tcase_add_test(attempts, test_two_batch_overlap);
	tcase_add_test(attempts, test_part_outlives_its_parents_ring);
	tcase_add_test(attempts, test_parents_that_are_none);
	tcase_add_test(hits, test_reuse_by_link);
	tcase_add_test(hits, test_reuse_of_an_own_attempt);
	tcase_add_test(hits, test_chain_of_reuse_is_split_where_the_source_changes);
	tcase_add_test(hits, test_reuse_of_positions_in_flight);
	tcase_add_test(hits, test_reuse_resolved_from_kv_slots);
	tcase_add_test(hits, test_reuse_of_what_is_not_known_or_not_whole);
	tcase_add_test(hits, test_reuse_of_an_earlier_attempt);
	tcase_add_test(hits, test_computed_and_reused_is_repeated);
	tcase_add_test(hits, test_sources_of_an_earlier_recording_are_unknown);
	tcase_add_test(rows, test_rule_r8_rejected_rows_are_the_pass_s_alone);
	tcase_add_test(rows, test_acceptance_that_never_comes_is_unresolved);
	tcase_add_test(rows, test_draft_tree);
	tcase_add_test(rows, test_draft_and_mtp_models_do_not_disturb_the_target);
	suite_add_tcase(suite, attempts);
	suite_add_tcase(suite, hits);
	suite_add_tcase(suite, rows);
	return suite;
}

int main(void)
{
	return suite_run(attempt_suite());
}
