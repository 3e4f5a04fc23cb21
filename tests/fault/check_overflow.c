/* SPDX-License-Identifier: MIT */
/*
 * A writer that does not keep up: the disk stands still while passes go on. The traced program
 * does not wait, what is lost is counted and told, and what is stored is right.
 */
#include "tests/fault/support/io_fault.h"
#include "tests/fault/support/peer.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

enum { N_ROUNDS = 3000, N_ROWS = 64 };

struct tally {
	uint32_t n_recorded;
	uint32_t n_null;
};

/* A request of one pass a round, as fast as it goes. */
static struct tally run_rounds(const struct toy *toy, uint32_t n_rounds)
{
	struct tally tally = {0};
	uint32_t i;

	for (i = 0; i < n_rounds; i++) {
		uint64_t request;
		bool is_recorded;

		if (moetrace_request_begin(toy->session, NULL, &request) != MOETRACE_OK)
			ck_abort_msg("a request was refused");
		is_recorded = toy_pass(toy, MOETRACE_PHASE_PREFILL, request, 0, N_ROWS);
		tally.n_recorded += is_recorded;
		tally.n_null += !is_recorded;
		moetrace_request_end(toy->session, request, MOETRACE_REQUEST_FINISHED, N_ROWS);
	}
	return tally;
}

static void check_losses(const char *path, const struct tally *tally)
{
	sqlite3 *db = db_open(path);

	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), tally->n_recorded);
	ck_assert_int_eq(db_stat(db, 1, "dropped_passes"), tally->n_null);
	ck_assert_int_eq(db_stat(db, 1, "dropped_layers"),
			 db_int(db, "SELECT sum(n_dropped) FROM pass"));
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_layer WHERE state = 2"),
			 db_stat(db, 1, "dropped_layers"));
	ck_assert_int_gt(db_stat(db, 1, "dropped_bytes"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM gap WHERE reason <> 'ring_full'"), 0);
	ck_assert_int_ge(db_int(db, "SELECT count(*) FROM gap"), 1);
	ck_assert_int_eq(
		db_int(db, "SELECT count(*) FROM gap AS g JOIN recording AS r USING"
			   " (recording_id) WHERE g.start_ns < r.start_ns OR g.end_ns > r.end_ns"),
		0);
	/* A request whose pass was lost, whole or in part, is not complete, and says why. */
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request"), 2 * N_ROUNDS);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE verdict = 'complete'"),
			 db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete' AND"
				    " phase <> 'dummy'"));
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE phase = 'dummy' AND"
				    " verdict = 'complete'"),
			 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE verdict = 'partial' AND"
				    " instr(reasons, 'lost') = 0"),
			 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE verdict = 'unfinished'"),
			 0);
	db_close(db);
}

/* Rows that survive are the rows that were shown: of each stored layer, the first and last. */
static void check_rows(const struct toy *toy)
{
	sqlite3 *db = db_open(toy->path);
	sqlite3_stmt *stmt =
		db_query(db, "SELECT l.layer, t.topk_ids, pl.topk_row FROM pass_layer AS pl"
			     " JOIN layer AS l USING (layer_id) JOIN topk AS t USING (topk_id)");

	while (db_step(stmt)) {
		const unsigned char *ids = sqlite3_column_blob(stmt, 1);
		const uint32_t layer = (uint32_t)sqlite3_column_int64(stmt, 0);
		const size_t first = (size_t)sqlite3_column_int64(stmt, 2);

		REQUIRE(ids[first * toy->top_k] == toy_expert(toy, layer, 0, 0),
			"a wrong first row");
		REQUIRE(ids[(first + N_ROWS) * toy->top_k - 1] ==
				toy_expert(toy, layer, N_ROWS - 1, toy->top_k - 1),
			"a wrong last row");
	}
	sqlite3_finalize(stmt);
	db_close(db);
}

START_TEST(test_disk_stands_still)
{
	struct moetrace_session_opts opts = toy_opts();
	struct tally tally, again;
	struct toy toy;

	io_fault_install();
	opts.ring_bytes = _i ? UINT64_C(1) << 20 : UINT64_C(1) << 16;
	opts.n_rings = 2;
	toy = toy_start("stall.db", &opts, 6, 64, 8);
	io_fault_stall(true);
	tally = run_rounds(&toy, N_ROUNDS);
	/* Nobody waited: the disk comes back only now. */
	ck_assert_uint_gt(tally.n_null, 0);
	ck_assert_uint_eq(toy_status(&toy).dropped_passes, tally.n_null);
	io_fault_stall(false);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, N_ROWS));
	again = run_rounds(&toy, N_ROUNDS);
	tally.n_recorded += again.n_recorded + 1;
	tally.n_null += again.n_null;
	toy_close(&toy);
	check_rows(&toy);
	check_losses(toy.path, &tally);
}
END_TEST

/* Another program that holds the file's write lock for a while only delays the writer. */
START_TEST(test_locked_by_another_program)
{
	struct peer peer = peer_start();
	struct toy toy = toy_start("locked.db", NULL, 6, 64, 8);
	struct tally tally;
	sqlite3 *db;

	peer_open(&peer, toy.path);
	peer_exec(&peer, "BEGIN IMMEDIATE");
	tally = run_rounds(&toy, 500);
	suite_sleep_ms(1000);
	peer_exec(&peer, "COMMIT");
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	ck_assert_uint_eq(toy_status(&toy).is_recording, 1);
	ck_assert_uint_eq(tally.n_null, 0);
	peer_stop(&peer);
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 500);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE verdict = 'complete'"),
			 500);
	db_close(db);
}
END_TEST

/* A pass that no ring can hold is lost in part, and the next one is whole. */
START_TEST(test_pass_larger_than_a_ring)
{
	struct moetrace_session_opts opts = toy_opts();
	struct toy toy;
	sqlite3 *db;

	opts.ring_bytes = UINT64_C(1) << 16;
	toy = toy_start("larger.db", &opts, 4, 64, 8);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 4000));
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 4));
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(verdict || coalesce(reasons, '')) FROM"
				     " (SELECT * FROM pass ORDER BY pass_id)"),
			 "partiallost,complete");
	ck_assert_int_eq(db_int(db, "SELECT n_dropped FROM pass WHERE n_rows = 4000"), 4);
	ck_assert_int_eq(db_stat(db, 1, "dropped_layers"), 4);
	ck_assert_int_ge(db_stat(db, 1, "dropped_bytes"), 4 * 4000 * 8);
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("overflow");
	TCase *tcase = tcase_create("overflow");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, test_disk_stands_still, 0, 2);
	tcase_add_test(tcase, test_locked_by_another_program);
	tcase_add_test(tcase, test_pass_larger_than_a_ring);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
