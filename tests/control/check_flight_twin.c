/* SPDX-License-Identifier: MIT */
/*
 * Flight mode against a twin that recorded everything: what a dump writes is what the twin has of
 * the same passes, row by row, what is kept follows from the bytes, and memory stays what it was at
 * start.
 */
#include <stdio.h>
#include <string.h>

#include "tests/control/support/flight.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

static void run_sql(sqlite3 *db, const char *sql, const char *argument)
{
	sqlite3_stmt *stmt = db_query(db, sql, argument);

	while (db_step(stmt))
		continue;
	sqlite3_finalize(stmt);
}

#define ROWS_OF(schema)                                                                         \
	"SELECT p.runtime_pass, p.phase, p.n_rows, p.verdict, t.row, t.layer, t.state, t.k, "   \
	"hex(t.topk_ids), hex(t.topk_weights), t.position, t.attempt, r.handle, r.external_id " \
	"FROM " schema ".token_topk AS t JOIN " schema ".pass AS p USING (pass_id) "            \
	"LEFT JOIN " schema ".request AS r ON r.request_id = t.request_id "                     \
	"WHERE p.runtime_pass IN (SELECT runtime_pass FROM main.pass)"
#define LAYERS_OF(schema)                                                              \
	"SELECT p.runtime_pass, l.layer_id, l.state, l.active_experts, l.max_load, "   \
	"l.selection_order FROM " schema ".pass_layer AS l JOIN " schema ".pass AS p " \
	"USING (pass_id) WHERE p.runtime_pass IN (SELECT runtime_pass FROM main.pass)"
#define COUNTS_OF(schema)                                                                   \
	"SELECT p.runtime_pass, l.layer_id, hex(l.counts) FROM " schema ".layer_load AS l " \
	"JOIN " schema ".pass AS p USING (pass_id) "                                        \
	"WHERE p.runtime_pass IN (SELECT runtime_pass FROM main.pass)"

static void same_rows(sqlite3 *db, const char *ours, const char *theirs)
{
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM (%s EXCEPT %s)", ours, theirs), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM (%s EXCEPT %s)", theirs, ours), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM (%s)", ours),
			 db_int(db, "SELECT count(*) FROM (%s)", theirs));
}

/* Every pass of the flight is in it as in the twin. */
static void compare(sqlite3 *db, const char *twin_path)
{
	run_sql(db, "ATTACH %Q AS twin", twin_path);
	same_rows(db, ROWS_OF("main"), ROWS_OF("twin"));
	same_rows(db, LAYERS_OF("main"), LAYERS_OF("twin"));
	same_rows(db, COUNTS_OF("main"), COUNTS_OF("twin"));
	run_sql(db, "DETACH %w", "twin");
}

struct twins {
	struct toy toys[2]; /* the flight, and who records everything */
	uint64_t number;
};

static uint64_t twins_request(struct twins *twins, const char *name)
{
	uint64_t request = toy_request(&twins->toys[0], name);

	ck_assert_uint_eq(toy_request(&twins->toys[1], name), request);
	return request;
}

static void twins_pass(struct twins *twins, uint64_t request, uint32_t position, uint32_t n_rows)
{
	twins->number++;
	for (int i = 0; i < 2; i++)
		flight_pass(&twins->toys[i], twins->number, request, position, n_rows);
}

static void twins_end(struct twins *twins, uint64_t request, uint64_t n_positions)
{
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(moetrace_request_end(twins->toys[i].session, request,
						      MOETRACE_REQUEST_FINISHED, n_positions),
				 MOETRACE_OK);
}

/* Requests of which some ended long ago, one is there all the time and the last are whole. */
static void twins_serve(struct twins *twins, uint64_t old, uint32_t *position, uint32_t n_requests)
{
	for (uint32_t i = 0; i < n_requests; i++) {
		char name[32];
		uint64_t request;

		snprintf(name, sizeof(name), "request-%llu", (unsigned long long)twins->number);
		request = twins_request(twins, name);
		for (int k = 0; k < 2; k++) {
			ck_assert_int_eq(moetrace_request_attribute_set(twins->toys[k].session,
									request, "domain", name),
					 MOETRACE_OK);
			if (i % 4 == 1)
				ck_assert_int_eq(
					moetrace_request_retract(twins->toys[k].session, request),
					MOETRACE_OK);
		}
		twins_pass(twins, request, 0, 32);
		twins_pass(twins, old, (*position)++, 1);
		twins_pass(twins, request, 32, 1);
		twins_end(twins, request, 33);
	}
}

/* By mode. */
START_TEST(test_dump_equals_twin)
{
	struct moetrace_recording_opts opts = flight_opts(FLIGHT_BYTES, 0, (uint32_t)_i);
	struct moetrace_recording_opts all = flight_opts(0, 0, (uint32_t)_i);
	struct twins twins = {.toys = {flight_start("flight.db", NULL, &opts),
				       flight_start("twin.db", NULL, &all)}};
	uint64_t memory_bytes = 0, old = twins_request(&twins, "old"), before;
	/* Under ThreadSanitizer just enough to fill the memory before it is looked at. */
	const uint32_t n_rounds = suite_has_sanitizer("thread") ? 12 : 20;
	uint32_t position = 0;
	sqlite3 *db;

	twins_serve(&twins, old, &position, 150);
	for (uint32_t i = 0; i < n_rounds; i++) {
		struct moetrace_session_status status;

		twins_serve(&twins, old, &position, n_rounds == 20 ? 50 : 25);
		ck_assert_int_eq(moetrace_flush(twins.toys[0].session), MOETRACE_OK);
		status = toy_status(&twins.toys[0]);
		ck_assert_uint_eq(status.flight_bytes, FLIGHT_BYTES);
		ck_assert_uint_le(status.flight_fill_bytes, FLIGHT_BYTES);
		ck_assert_uint_gt(status.flight_passes, 0);
		ck_assert_uint_eq(status.recorded_passes, 0);
		if (i > 10)
			ck_assert_uint_eq(status.memory_bytes, memory_bytes);
		memory_bytes = status.memory_bytes;
	}
	db = db_open(twins.toys[0].path);
	ck_assert_int_eq(db_int(db,
				"SELECT (SELECT count(*) FROM pass) + (SELECT count(*) FROM "
				"request) + (SELECT count(*) FROM topk) + (SELECT count(*) FROM "
				"expert_load_window)"),
			 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM recording WHERE end_ns IS NULL"), 1);
	db_close(db);
	ck_assert_uint_eq(flight_dump(&twins.toys[0]), 1);
	before = twins.number;
	twins_serve(&twins, old, &position, 5);
	ck_assert_uint_eq(flight_dump(&twins.toys[0]), 2);
	toy_close(&twins.toys[1]);
	agree_check_file(twins.toys[1].path);
	db = toy_close_and_open(&twins.toys[0]);
	flight_check_bounds(db, 1, (int64_t)before);
	flight_check_bounds(db, 2, (int64_t)(twins.number - before));
	ck_assert_int_gt(db_stat(db, 1, "flight_let_go_passes"), 0);
	ck_assert_int_eq(db_stat(db, 2, "flight_let_go_passes"), 0);
	/* The last passes, without a hole. */
	ck_assert_int_eq(db_int(db, "SELECT max(runtime_pass) - min(runtime_pass) + 1 - count(*) "
				    "FROM pass"),
			 0);
	ck_assert_int_eq(db_int(db, "SELECT max(runtime_pass) FROM pass"), (int64_t)twins.number);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM diagnostic WHERE message LIKE "
				    "'recording 1 is what flight mode kept: %%'"),
			 1);
	/* Requests of the second part are whole; so are all of the first but the one at its edge.
	 */
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE recording_id = 2 AND "
				    "external_id <> 'old' AND verdict = 'complete'"),
			 5);
	ck_assert_int_le(db_int(db, "SELECT count(*) FROM request WHERE recording_id = 1 AND "
				    "external_id <> 'old' AND verdict <> 'complete'"),
			 1);
	ck_assert_int_gt(db_int(db, "SELECT count(*) FROM request WHERE recording_id = 1 AND "
				    "verdict = 'complete'"),
			 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request AS r LEFT JOIN request_attribute "
				    "AS a USING (request_id) WHERE external_id <> 'old' AND "
				    "a.value IS NOT external_id"),
			 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM diagnostic WHERE severity <> 'info'"), 0);
	compare(db, twins.toys[1].path);
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("flight twin");
	TCase *twin = tcase_create("twin");

	tcase_set_timeout(twin, 60);
	tcase_add_loop_test(twin, test_dump_equals_twin, MOETRACE_MODE_PER_TOKEN,
			    MOETRACE_MODE_PER_PASS + 1);
	suite_add_tcase(suite, twin);
	return suite_run(suite);
}
