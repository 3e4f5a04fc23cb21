/* SPDX-License-Identifier: MIT */
/*
 * Passes: their slices, sizes, phases and verdicts, and what is refused. Every refusal is one
 * misuse, leaves a diagnostic and nothing else.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

static sqlite3 *close_and_open(struct toy *toy)
{
	sqlite3 *db;

	toy_close(toy);
	db = db_open(toy->path);
	agree_check(db);
	return db;
}

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
	db = close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE n_rows = 0 AND"
				" verdict = 'complete'"), 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer WHERE state = 0"), 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer WHERE active_experts = 0 AND"
				" max_load = 0 AND n_rows = 0"), 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM expert_load_window"), 0);
	db_close(db);
}
END_TEST

/* More rows than two bytes count. */
START_TEST(test_70000_rows)
{
	struct toy toy = toy_start("large.db", NULL, 3, 300, 8);
	const uint64_t request = toy_request(&toy, "long");
	const struct moetrace_slice slices[] = {
		{ .n_rows = 1 },
		{ .request = request, .n_rows = 69990, .first_position = 0 },
		{ .request = request, .n_rows = 9, .first_position = 69990 },
	};
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_PREFILL, slices, 3);
	sqlite3 *db;

	ck_assert_ptr_nonnull(pass);
	toy_finish(&toy, pass, 70000);
	ck_assert_int_eq(moetrace_request_end(toy.session, request, MOETRACE_REQUEST_FINISHED, 69999),
			 MOETRACE_OK);
	db = close_and_open(&toy);
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
	db = close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_request"), N_SLICES);
	ck_assert_int_eq(db_int(db, "SELECT count(DISTINCT request_id) FROM pass_request"), N_SLICES);
	ck_assert_int_eq(db_int(db, "SELECT first_position FROM pass_request JOIN request"
				" USING (request_id) WHERE handle = %lld", (long long)request),
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
		{ .request = request, .first_position = 3, .n_rows = 1 },
		{ .request = other, .first_position = 9, .n_rows = 0 },
		{ .request = request, .first_position = 0, .n_rows = 3 },
	};
	sqlite3 *db;

	toy_finish(&toy, toy_begin(&toy, MOETRACE_PHASE_PREFILL, slices, 3), 4);
	ck_assert_int_eq(moetrace_request_end(toy.session, request, MOETRACE_REQUEST_FINISHED, 4),
			 MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_end(toy.session, other, MOETRACE_REQUEST_FINISHED,
					      MOETRACE_POSITIONS_UNKNOWN), MOETRACE_OK);
	db = close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(n_rows) FROM (SELECT n_rows FROM"
				 " pass_request ORDER BY slice)"), "1,0,3");
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM request WHERE external_id = 'r'"),
			 "complete");
	ck_assert_int_eq(db_int(db, "SELECT n_positions FROM request WHERE external_id = 'other'"), 0);
	ck_assert_int_eq(db_int(db, "SELECT n_requests FROM pass_summary"), 2);
	db_close(db);
}
END_TEST

/* Positions of a draft tree; a list that happens to be consecutive needs no blob. */
START_TEST(test_positions)
{
	static const uint32_t tree[] = { 5, 6, 6, 7 }, line[] = { 7, 8, 9 };
	struct toy toy = toy_start("positions.db", NULL, 1, 64, 2);
	const uint64_t request = toy_request(&toy, "r");
	const struct moetrace_slice slices[] = {
		{ .request = request, .positions = tree, .first_position = 99, .n_rows = 4,
		  .phase = MOETRACE_PHASE_VERIFY },
		{ .request = request, .positions = line, .n_rows = 3,
		  .phase = MOETRACE_PHASE_PREFILL },
	};
	sqlite3 *db;

	toy_finish(&toy, toy_begin(&toy, MOETRACE_PHASE_MIXED, slices, 2), 7);
	db = close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT hex(positions) FROM pass_request WHERE slice = 0"),
			 "05000000060000000600000007000000");
	ck_assert_int_eq(db_int(db, "SELECT first_position FROM pass_request WHERE slice = 0"), 5);
	ck_assert_str_eq(db_text(db, "SELECT positions FROM pass_request WHERE slice = 1"), "(null)");
	ck_assert_int_eq(db_int(db, "SELECT first_position FROM pass_request WHERE slice = 1"), 7);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(position || state) FROM (SELECT position,"
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
		{ .request = request, .first_position = 0, .n_rows = 3,
		  .phase = MOETRACE_PHASE_PREFILL },
		{ .request = request, .first_position = 3, .n_rows = 1,
		  .phase = MOETRACE_PHASE_DECODE },
		{ .request = request, .first_position = 4, .n_rows = 5,
		  .phase = MOETRACE_PHASE_VERIFY },
		{ .request = request, .first_position = 4, .n_rows = 6,
		  .phase = MOETRACE_PHASE_DRAFT },
		{ .n_rows = 2, .phase = MOETRACE_PHASE_DUMMY },
	};
	sqlite3 *db;

	toy_finish(&toy, toy_begin(&toy, MOETRACE_PHASE_MIXED, slices, 5), 17);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 10, 1));
	db = close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(phase) FROM (SELECT phase FROM pass_request"
				 " ORDER BY pass_id, slice)"),
			 "prefill,decode,verify,draft,dummy,decode");
	ck_assert_str_eq(db_text(db, "SELECT sum(prefill_tokens) || ' ' || sum(decode_tokens) || ' '"
				 " || sum(verify_tokens) || ' ' || sum(other_tokens) FROM expert_load"),
			 "6 4 10 16");
	db_close(db);
}
END_TEST

/* A pass that names no slices: its rows are those of no request. */
START_TEST(test_rows_of_no_request)
{
	static const int32_t ids[] = { 1, 2, 1, 3 };
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
	db = close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT sum(n_rows) FROM pass_request WHERE request_id IS NULL"), 2);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(state) FROM token_topk"), "dummy,dummy");
	ck_assert_int_eq(db_int(db, "SELECT sum(other_tokens) FROM expert_load_window"), 4);
	ck_assert_int_eq(db_int(db, "SELECT sum(prefill_tokens + decode_tokens + verify_tokens +"
				" padding_tokens) FROM expert_load_window"), 0);
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
	db = close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_request WHERE request_id IS NULL"), 2);
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
	db = close_and_open(&toy);
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
	const struct moetrace_slice slices[] = { { .n_rows = 1 }, { .n_rows = 2 } };
	struct moetrace_pass *first = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slices[0], 1);
	struct moetrace_pass *second = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slices[1], 1);
	sqlite3 *db;

	ck_assert(first && second && first != second);
	toy_select(&toy, first, 0, 1);
	suite_sleep_ms(2);
	toy_finish(&toy, second, 2);
	suite_sleep_ms(2);
	moetrace_pass_end(first);
	db = close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(n_rows) FROM (SELECT n_rows FROM pass"
				 " ORDER BY pass_id)"), "2,1");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(n_rows) FROM (SELECT n_rows FROM pass"
				 " ORDER BY begin_ns)"), "1,2");
	ck_assert_int_ge(db_int(db, "SELECT end_ns - begin_ns FROM pass WHERE n_rows = 1"), 4000000);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer JOIN pass USING (pass_id) WHERE"
				" selected_ns NOT BETWEEN begin_ns AND end_ns"), 0);
	db_close(db);
}
END_TEST

/* ---- what goes wrong ---- */

START_TEST(test_unwritten_layer)
{
	struct toy toy = toy_start("unwritten.db", NULL, 3, 64, 2);
	const uint64_t request = toy_request(&toy, "r"), other = toy_request(&toy, "other");
	const struct moetrace_slice slice = { .request = request, .n_rows = 2 };
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
	db = close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(state) FROM (SELECT state FROM pass_layer"
				 " WHERE pass_id = 1 ORDER BY layer_id)"), "0,1,0");
	ck_assert_str_eq(db_text(db, "SELECT verdict || ' ' || reasons FROM pass WHERE pass_id = 1"),
			 "partial unwritten");
	ck_assert_int_eq(db_int(db, "SELECT n_dropped FROM pass WHERE pass_id = 1"), 0);
	ck_assert_str_eq(db_text(db, "SELECT verdict || ' ' || reasons FROM request WHERE"
				 " external_id = 'r'"), "partial unwritten");
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM request WHERE external_id = 'other'"),
			 "complete");
	db_close(db);
}
END_TEST

/* The first call for a layer counts; the second is told of. */
START_TEST(test_duplicate_layer)
{
	static const int32_t first[] = { 1, 2 }, second[] = { 3, 4 };
	struct toy toy = toy_start("duplicate.db", NULL, 2, 8, 2);
	const struct moetrace_slice slice = { .n_rows = 1 };
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	sqlite3 *db;

	toy_select_ids(pass, 0, 1, 0, first);
	toy_select_ids(pass, 0, 1, 0, second);
	toy_select_ids(pass, 1, 1, 0, second);
	moetrace_pass_end(pass);
	db = close_and_open(&toy);
	ck_assert_int_eq(db_stat(db, 1, "duplicate_layers"), 1);
	ck_assert_int_eq(db_stat(db, 1, "recorded_layers"), 2);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(expert) FROM (SELECT expert FROM expert_load"
				 " WHERE tokens > 0 ORDER BY layer, expert)"), "1,2,3,4");
	ck_assert_int_ge(db_int(db, "SELECT count(*) FROM diagnostic"), 1);
	db_close(db);
}
END_TEST

/* The invalid rows of one request are no fault of the request beside it. */
START_TEST(test_invalid_ids_and_their_request)
{
	static const int32_t ids[] = { 1, 2, 1, 64 };
	struct toy toy = toy_start("invalid.db", NULL, 1, 64, 2);
	const uint64_t good = toy_request(&toy, "good"), bad = toy_request(&toy, "bad");
	const struct moetrace_slice slices[] = { { .request = good, .n_rows = 1 },
						 { .request = bad, .n_rows = 1 } };
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_PREFILL, slices, 2);
	sqlite3 *db;

	toy_select_ids(pass, 0, 2, 0, ids);
	moetrace_pass_end(pass);
	ck_assert_int_eq(moetrace_request_end(toy.session, good, MOETRACE_REQUEST_FINISHED, 1),
			 MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_end(toy.session, bad, MOETRACE_REQUEST_FINISHED, 1),
			 MOETRACE_OK);
	db = close_and_open(&toy);
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
	const struct moetrace_slice slice = { .n_rows = 1 };
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
	db = close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 3);
	ck_assert_int_eq(db_stat(db, 1, "dropped_passes"), 2);
	ck_assert_int_eq(db_int(db, "SELECT sum(n_lost) FROM gap WHERE stream = 'pass' AND"
				" reason = 'no_ring'"), 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM gap WHERE end_ns < start_ns"), 0);
	db_close(db);
}
END_TEST

/* ---- misuse ---- */

static const struct moetrace_slice one_row = { .n_rows = 1 };
static const struct moetrace_slice mixed_row = { .n_rows = 1, .phase = MOETRACE_PHASE_MIXED };
static const struct moetrace_slice strange_row = { .n_rows = 1, .phase = 77 };
static const struct moetrace_slice last_row = { .request = 1, .n_rows = 2,
						.first_position = UINT32_MAX };
static const struct moetrace_slice wrapping_rows[] = { { .n_rows = UINT32_MAX }, { .n_rows = 2 } };

struct wrong_pass {
	const char *what;
	uint32_t model_offset;
	uint32_t phase;
	uint32_t n_rows;
	const struct moetrace_slice *slices;
	uint32_t n_slices;
};

static const struct wrong_pass wrong_passes[] = {
	{ "a model that was not added", 1, MOETRACE_PHASE_DUMMY, 1, &one_row, 1 },
	{ "a model far away", 1u << 20, MOETRACE_PHASE_DUMMY, 1, &one_row, 1 },
	{ "the model 0", UINT32_MAX, MOETRACE_PHASE_DUMMY, 1, &one_row, 1 },
	{ "no phase", 0, 0, 1, &one_row, 1 },
	{ "a phase that is none", 0, MOETRACE_PHASE_DUMMY + 1, 1, &one_row, 1 },
	{ "fewer rows in slices", 0, MOETRACE_PHASE_DUMMY, 2, &one_row, 1 },
	{ "more rows in slices", 0, MOETRACE_PHASE_DUMMY, 0, &one_row, 1 },
	{ "slices that are NULL", 0, MOETRACE_PHASE_DUMMY, 1, NULL, 1 },
	{ "a mixed slice", 0, MOETRACE_PHASE_PREFILL, 1, &mixed_row, 1 },
	{ "a slice that inherits mixed", 0, MOETRACE_PHASE_MIXED, 1, &one_row, 1 },
	{ "a slice's phase that is none", 0, MOETRACE_PHASE_DUMMY, 1, &strange_row, 1 },
	{ "positions past the last one", 0, MOETRACE_PHASE_PREFILL, 2, &last_row, 1 },
	{ "rows whose sum wraps", 0, MOETRACE_PHASE_DUMMY, 1, wrapping_rows, 2 },
};

START_TEST(test_misuse_of_begin)
{
	const struct wrong_pass *wrong = &wrong_passes[_i];
	struct toy toy = toy_start("begin.db", NULL, 1, 64, 2);
	struct moetrace_pass_info info;
	sqlite3 *db;

	MOETRACE_INIT(&info);
	info.model = wrong->model_offset == UINT32_MAX ? 0 : toy.model + wrong->model_offset;
	info.phase = wrong->phase;
	info.n_rows = wrong->n_rows;
	info.slices = wrong->slices;
	info.n_slices = wrong->n_slices;
	ck_assert_msg(!moetrace_pass_begin(toy.session, &info), "%s was accepted", wrong->what);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	ck_assert_uint_eq(toy_status(&toy).misuse, 1);
	db = close_and_open(&toy);
	ck_assert_msg(db_stat(db, 1, "misuse") == 1, "%s is not counted once", wrong->what);
	ck_assert_int_ge(db_int(db, "SELECT count(*) FROM diagnostic WHERE source = 'pass' AND"
				" n_times = 1 AND length(message) > 10"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 1);
	ck_assert_int_eq(db_stat(db, 1, "dropped_passes"), 0);
	db_close(db);
}
END_TEST

START_TEST(test_misuse_of_begin_without_info)
{
	struct toy toy = toy_start("null.db", NULL, 1, 64, 2);
	struct moetrace_pass_info info;
	sqlite3 *db;

	memset(&info, 0, sizeof(info)); /* not MOETRACE_INIT() */
	info.model = toy.model;
	info.phase = MOETRACE_PHASE_IDLE;
	ck_assert_ptr_null(moetrace_pass_begin(toy.session, NULL));
	ck_assert_ptr_null(moetrace_pass_begin(toy.session, &info));
	db = close_and_open(&toy);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 2);
	db_close(db);
}
END_TEST

static const int32_t right_ids[] = { 1, 2, 3, 4 };
static const float right_weights[] = { 1, 2, 3, 4 };
static const uint32_t falling_map[] = { 1, 0 }, equal_map[] = { 1, 1 }, far_map[] = { 0, 2 };

enum wrong_selection {
	LAYER_INDEX,
	LAYER_INDEX_FAR,
	FEW_ROWS,
	MANY_ROWS,
	PADDING_THAT_IS_NOT_THERE,
	K_ABOVE_TOP_K,
	K_HUGE,
	ID_TYPE_NONE,
	ID_TYPE_FLOAT,
	ID_TYPE_UNKNOWN,
	IDS_NULL,
	WEIGHT_TYPE_INTEGER,
	WEIGHT_TYPE_UNKNOWN,
	WEIGHTS_NULL,
	ORDER_UNKNOWN,
	MAP_FALLS,
	MAP_REPEATS,
	MAP_LEAVES_THE_PASS,
	MAP_WITH_TOO_MANY_ROWS,
	SIZE_ZERO,
	BASE_K_ABOVE_TOP_K,
	SELECTION_NULL,
	N_WRONG_SELECTIONS,
};

static void make_wrong(struct moetrace_selection *selection, enum wrong_selection wrong,
		       uint32_t rule)
{
	switch (wrong) {
	case LAYER_INDEX: selection->layer_index = 1; break;
	case LAYER_INDEX_FAR: selection->layer_index = UINT32_MAX; break;
	case FEW_ROWS: selection->n_rows = 1; break;
	case MANY_ROWS: selection->n_rows = 3; break;
	case PADDING_THAT_IS_NOT_THERE: selection->n_rows = 10; break;
	case K_ABOVE_TOP_K: selection->k = 3; break;
	case K_HUGE: selection->k = UINT32_MAX; break;
	case ID_TYPE_NONE: selection->id_type = MOETRACE_TYPE_NONE; break;
	case ID_TYPE_FLOAT: selection->id_type = MOETRACE_TYPE_BF16; break;
	case ID_TYPE_UNKNOWN: selection->id_type = 12; break;
	case IDS_NULL: selection->ids = NULL; break;
	case WEIGHT_TYPE_INTEGER: selection->weight_type = MOETRACE_TYPE_U16; break;
	case WEIGHT_TYPE_UNKNOWN: selection->weight_type = 12; break;
	case WEIGHTS_NULL: selection->weights = NULL; break;
	case ORDER_UNKNOWN: selection->order = 2; break;
	case MAP_FALLS: selection->row_map = falling_map; break;
	case MAP_REPEATS: selection->row_map = equal_map; break;
	case MAP_LEAVES_THE_PASS: selection->row_map = far_map; break;
	case MAP_WITH_TOO_MANY_ROWS:
		selection->row_map = far_map;
		selection->n_rows = 3;
		break;
	case SIZE_ZERO: selection->size = 0; break;
	case BASE_K_ABOVE_TOP_K:
		selection->rule = rule;
		selection->base_ids = right_ids;
		selection->base_k = 3;
		break;
	default: break;
	}
}

/* The wrong call leaves the layer free for the right one. */
START_TEST(test_misuse_of_select)
{
	struct toy toy = toy_start("select.db", NULL, 1, 64, 2);
	const struct moetrace_slice slice = { .n_rows = 2 };
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	struct moetrace_selection selection;
	uint32_t rule;
	sqlite3 *db;

	ck_assert_int_eq(moetrace_rule_add(toy.session, "rule", &rule), MOETRACE_OK);
	MOETRACE_INIT(&selection);
	selection.n_rows = 2;
	selection.id_type = MOETRACE_TYPE_I32;
	selection.ids = right_ids;
	selection.weight_type = MOETRACE_TYPE_F32;
	selection.weights = right_weights;
	make_wrong(&selection, _i, rule);
	moetrace_select_experts(pass, _i == SELECTION_NULL ? NULL : &selection);
	toy_select_ids(pass, 0, 2, 0, right_ids);
	moetrace_pass_end(pass);
	db = close_and_open(&toy);
	ck_assert_msg(db_stat(db, 1, "misuse") == 1, "wrong selection %d is not counted", _i);
	ck_assert_int_eq(db_stat(db, 1, "duplicate_layers"), 0);
	ck_assert_str_eq(db_text(db, "SELECT verdict FROM pass"), "complete");
	ck_assert_str_eq(db_text(db, "SELECT hex(topk_ids) FROM topk"), "01020304");
	ck_assert_int_ge(db_int(db, "SELECT count(*) FROM diagnostic WHERE source = 'pass'"), 1);
	db_close(db);
}
END_TEST

/* A thousand equal mistakes are one diagnostic that says a thousand times. */
START_TEST(test_misuse_is_told_once)
{
	struct toy toy = toy_start("often.db", NULL, 1, 64, 2);
	sqlite3 *db;
	uint32_t i;

	for (i = 0; i < 1000; i++)
		ck_assert_ptr_null(moetrace_pass_begin(toy.session, NULL));
	db = close_and_open(&toy);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 1000);
	ck_assert_int_eq(db_int(db, "SELECT n_times FROM diagnostic WHERE source = 'pass'"), 1000);
	db_close(db);
}
END_TEST

/* With a session that did not open, or that is idle, the hot path does nothing. */
START_TEST(test_null_handles)
{
	struct toy toy = toy_open("idle.db", NULL, 1, 64, 2);
	const struct moetrace_slice slice = { .n_rows = 1 };
	struct moetrace_pass_info info;
	sqlite3 *db;

	MOETRACE_INIT(&info);
	info.model = toy.model;
	info.phase = MOETRACE_PHASE_DUMMY;
	ck_assert_ptr_null(moetrace_pass_begin(NULL, &info));
	ck_assert_ptr_null(moetrace_pass_begin(NULL, NULL));
	ck_assert_ptr_null(toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1));
	moetrace_select_experts(NULL, NULL);
	toy_select_ids(NULL, 0, 2, 0, right_ids);
	moetrace_pass_end(NULL);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	db = close_and_open(&toy);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 0);
	db_close(db);
}
END_TEST

static Suite *pass_suite(void)
{
	Suite *suite = suite_create("pass");
	TCase *shapes = tcase_create("shapes");
	TCase *losses = tcase_create("losses");
	TCase *misuse = tcase_create("misuse");

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
	tcase_add_loop_test(misuse, test_misuse_of_begin, 0,
			    sizeof(wrong_passes) / sizeof(wrong_passes[0]));
	tcase_add_test(misuse, test_misuse_of_begin_without_info);
	tcase_add_loop_test(misuse, test_misuse_of_select, 0, N_WRONG_SELECTIONS);
	tcase_add_test(misuse, test_misuse_is_told_once);
	tcase_add_test(misuse, test_null_handles);
	suite_add_tcase(suite, shapes);
	suite_add_tcase(suite, losses);
	suite_add_tcase(suite, misuse);
	return suite;
}

int main(void)
{
	return suite_run(pass_suite());
}
