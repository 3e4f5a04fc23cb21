/* SPDX-License-Identifier: MIT */
/*
 * Flight mode: what a dump writes is what a twin that recorded everything has of the same passes,
 * row by row; nothing else reaches the file; memory stays what it was at start.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

enum { N_THREADS = 3, N_LAYERS = 3, N_EXPERTS = 64, TOP_K = 8, KEPT_BYTES = 1 << 20 };

static struct moetrace_recording_opts flight_opts(uint64_t n_bytes, uint32_t n_s, uint32_t mode)
{
	struct moetrace_recording_opts opts;

	MOETRACE_INIT(&opts);
	opts.flight_bytes = n_bytes;
	opts.flight_seconds = n_s;
	opts.mode = mode;
	return opts;
}

static struct toy flight_start(const char *name, const struct moetrace_session_opts *session_opts,
			       const struct moetrace_recording_opts *opts)
{
	struct toy toy = toy_open(name, session_opts, N_LAYERS, N_EXPERTS, TOP_K);

	ck_assert_int_eq(moetrace_start(toy.session, opts), MOETRACE_OK);
	return toy;
}

/* The recording that was written. */
static uint32_t dump(const struct toy *toy)
{
	struct moetrace_dump_result result;
	sqlite3 *db;

	MOETRACE_INIT(&result);
	ck_assert_int_eq(moetrace_dump(toy->session, &result), MOETRACE_OK);
	ck_assert_str_eq(result.path, toy->path);
	db = db_open(toy->path);
	ck_assert_int_eq(db_int(db, "SELECT coalesce(max(pass_id), 0) FROM pass WHERE "
				    "recording_id = %u", result.recording_id),
			 (int64_t)result.last_pass_id);
	db_close(db);
	return result.recording_id;
}

/* A pass of one slice that has a number of its own; the rows' experts follow from it. */
static void numbered_pass(const struct toy *toy, uint64_t number, uint64_t request,
			  uint32_t first_position, uint32_t n_rows)
{
	const struct moetrace_slice slice = {
		.request = request, .first_position = first_position, .n_rows = n_rows};
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;

	MOETRACE_INIT(&info);
	info.model = toy->model;
	info.phase = first_position ? MOETRACE_PHASE_DECODE : MOETRACE_PHASE_PREFILL;
	info.runtime_pass = &number;
	info.slices = &slice;
	info.n_slices = 1;
	info.n_rows = n_rows;
	pass = moetrace_pass_begin(toy->session, &info);
	ck_assert_ptr_nonnull(pass);
	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		int32_t ids[64 * TOP_K];

		for (uint32_t i = 0; i < n_rows * TOP_K; i++)
			ids[i] = (int32_t)((number * 5 + layer + i / TOP_K + i % TOP_K) % N_EXPERTS);
		toy_select_ids(pass, layer, n_rows, TOP_K, ids);
	}
	moetrace_pass_end(pass);
}

/* ---- the twin ---- */

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
#define LAYERS_OF(schema)                                                                      \
	"SELECT p.runtime_pass, l.layer_id, l.state, l.active_experts, l.max_load, "           \
	"l.selection_order FROM " schema ".pass_layer AS l JOIN " schema ".pass AS p "         \
	"USING (pass_id) WHERE p.runtime_pass IN (SELECT runtime_pass FROM main.pass)"
#define COUNTS_OF(schema)                                                                      \
	"SELECT p.runtime_pass, l.layer_id, hex(l.counts) FROM " schema ".layer_load AS l "    \
	"JOIN " schema ".pass AS p USING (pass_id) "                                           \
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

static void check_bounds(sqlite3 *db, int64_t recording_id, int64_t n_passes)
{
	int64_t n_kept = db_int(db, "SELECT count(*) FROM pass WHERE recording_id = %lld",
				recording_id);

	ck_assert_int_eq(n_kept + db_stat(db, recording_id, "flight_let_go_passes"), n_passes);
	ck_assert_int_eq(db_stat(db, recording_id, "dropped_passes"), 0);
	ck_assert_int_eq(db_int(db,
				"SELECT start_ns = (SELECT min(begin_ns) FROM pass WHERE "
				"recording_id = %lld) AND end_ns >= start_ns FROM recording WHERE "
				"recording_id = %lld",
				recording_id, recording_id),
			 1);
	ck_assert_str_eq(db_text(db, "SELECT end_reason FROM recording WHERE recording_id = %lld",
				 recording_id),
			 "dump");
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
		numbered_pass(&twins->toys[i], twins->number, request, position, n_rows);
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
				ck_assert_int_eq(moetrace_request_retract(twins->toys[k].session,
									  request),
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
	struct moetrace_recording_opts opts = flight_opts(KEPT_BYTES, 0, (uint32_t)_i);
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
		ck_assert_uint_eq(status.flight_bytes, KEPT_BYTES);
		ck_assert_uint_le(status.flight_fill_bytes, KEPT_BYTES);
		ck_assert_uint_gt(status.flight_passes, 0);
		ck_assert_uint_eq(status.recorded_passes, 0);
		if (i > 10)
			ck_assert_uint_eq(status.memory_bytes, memory_bytes);
		memory_bytes = status.memory_bytes;
	}
	db = db_open(twins.toys[0].path);
	ck_assert_int_eq(db_int(db, "SELECT (SELECT count(*) FROM pass) + (SELECT count(*) FROM "
				    "request) + (SELECT count(*) FROM topk) + (SELECT count(*) FROM "
				    "expert_load_window)"),
			 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM recording WHERE end_ns IS NULL"), 1);
	db_close(db);
	ck_assert_uint_eq(dump(&twins.toys[0]), 1);
	before = twins.number;
	twins_serve(&twins, old, &position, 5);
	ck_assert_uint_eq(dump(&twins.toys[0]), 2);
	toy_close(&twins.toys[1]);
	agree_check_file(twins.toys[1].path);
	db = toy_close_and_open(&twins.toys[0]);
	check_bounds(db, 1, (int64_t)before);
	check_bounds(db, 2, (int64_t)(twins.number - before));
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
	/* Requests of the second part are whole; so are all of the first but the one at its edge. */
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

/* ---- edges ---- */

START_TEST(test_requests_at_the_edge)
{
	struct moetrace_recording_opts opts = flight_opts(KEPT_BYTES, 0, MOETRACE_MODE_PER_TOKEN);
	struct toy toy = flight_start("edge.db", NULL, &opts);
	uint64_t before = toy_request(&toy, "before"), open = toy_request(&toy, "open");
	uint64_t inside, number = 0;
	sqlite3 *db;

	numbered_pass(&toy, ++number, before, 0, 4);
	while (number < 2000)
		numbered_pass(&toy, ++number, MOETRACE_NO_REQUEST, 0, 32);
	inside = toy_request(&toy, "inside");
	numbered_pass(&toy, ++number, inside, 0, 4);
	numbered_pass(&toy, ++number, before, 4, 1);
	numbered_pass(&toy, ++number, open, 0, 1);
	moetrace_request_end(toy.session, before, MOETRACE_REQUEST_FINISHED, 5);
	moetrace_request_end(toy.session, inside, MOETRACE_REQUEST_FINISHED, 4);
	ck_assert_uint_eq(dump(&toy), 1);
	numbered_pass(&toy, ++number, open, 1, 1);
	moetrace_request_end(toy.session, open, MOETRACE_REQUEST_FINISHED, 2);
	ck_assert_uint_eq(dump(&toy), 2);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(recording_id || external_id || ':' || "
				     "verdict || ifnull(':' || reasons, ''), ' ') FROM (SELECT * "
				     "FROM request WHERE recording_id < 3 ORDER BY recording_id, "
				     "external_id)"),
			 "1before:partial:began_before 1inside:complete 1open:unfinished "
			 "2open:partial:began_before");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM gap"), 0);
	db_close(db);
}
END_TEST

/*
 * Where only so many seconds are kept, a slow machine may need more for what a test keeps: these
 * say whether it did in time, and are tried again with more.
 */
static bool is_within(uint64_t from_ns, uint32_t n_s)
{
	return suite_now_ns() - from_ns < n_s * UINT64_C(1000000000);
}

static bool verify_at_the_edge(uint32_t n_s)
{
	struct moetrace_recording_opts opts = flight_opts(KEPT_BYTES, n_s, MOETRACE_MODE_PER_TOKEN);
	struct toy toy = flight_start("verify.db", NULL, &opts);
	struct moetrace_slice slice = {.request = toy_request(&toy, "r"), .n_rows = 4};
	const uint8_t accepted[4] = {1, 1, 0, 0};
	uint64_t numbers[2], from_ns = 0;
	bool is_in_time;
	sqlite3 *db;

	for (int i = 0; i < 2; i++) {
		struct moetrace_pass *pass;

		from_ns = suite_now_ns();
		pass = toy_begin(&toy, MOETRACE_PHASE_VERIFY, &slice, 1);
		numbers[i] = moetrace_pass_number(pass);
		toy_finish(&toy, pass, 4);
		slice.first_position += 2;
		/* The first is let go before its acceptance comes. */
		suite_sleep_ms(i == 0 ? n_s * 1000 + 300 : 0);
	}
	for (int i = 0; i < 2; i++)
		moetrace_pass_accept(toy.session, numbers[i], 0, accepted, 4);
	ck_assert_uint_eq(dump(&toy), 1);
	is_in_time = is_within(from_ns, n_s);
	db = toy_close_and_open(&toy);
	if (!is_in_time)
		return false;
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 1);
	ck_assert_str_eq(db_text(db, "SELECT hex(accepted) FROM pass_request"), "01010000");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM diagnostic WHERE severity <> 'info'"), 0);
	db_close(db);
	return true;
}

START_TEST(test_verify_at_the_edge)
{
	for (uint32_t n_s = 1; !verify_at_the_edge(n_s); n_s *= 4)
		continue;
}
END_TEST

static bool seconds(uint32_t n_s)
{
	struct moetrace_recording_opts opts = flight_opts(0, n_s, MOETRACE_MODE_PER_TOKEN);
	struct toy toy = flight_start("seconds.db", NULL, &opts);
	uint64_t from_ns;
	bool is_in_time;
	sqlite3 *db;

	ck_assert_uint_ge(toy_status(&toy).memory_bytes, 256 << 20);
	for (uint64_t i = 0; i < 10; i++)
		numbered_pass(&toy, i, MOETRACE_NO_REQUEST, 0, 4);
	suite_sleep_ms(n_s * 1000 + 300);
	from_ns = suite_now_ns();
	for (uint64_t i = 10; i < 13; i++)
		numbered_pass(&toy, i, MOETRACE_NO_REQUEST, 0, 4);
	dump(&toy);
	is_in_time = is_within(from_ns, n_s);
	db = toy_close_and_open(&toy);
	if (!is_in_time)
		return false;
	ck_assert_str_eq(db_text(db, "SELECT group_concat(runtime_pass) FROM pass"), "10,11,12");
	check_bounds(db, 1, 13);
	db_close(db);
	return true;
}

START_TEST(test_seconds)
{
	for (uint32_t n_s = 1; !seconds(n_s); n_s *= 4)
		continue;
}
END_TEST

/* Ranges of the time that is kept are written with its passes, older ones are let go with theirs. */
static bool ranges(uint32_t n_s)
{
	const struct moetrace_recording_opts opts = flight_opts(KEPT_BYTES, n_s, MOETRACE_MODE_PER_TOKEN);
	struct toy toy = flight_start("ranges.db", NULL, &opts);
	struct moetrace_range range;
	uint32_t old, step, recording_id;
	uint64_t from_ns;
	bool is_in_time;
	sqlite3 *db;

	ck_assert_int_eq(moetrace_range_name_add(toy.session, "old", &old), MOETRACE_OK);
	ck_assert_int_eq(moetrace_range_name_add(toy.session, "step", &step), MOETRACE_OK);
	moetrace_range_push(toy.session, old, &range);
	numbered_pass(&toy, 1, MOETRACE_NO_REQUEST, 0, 1);
	moetrace_range_pop(toy.session, &range);
	suite_sleep_ms(n_s * 1000 + 50);
	from_ns = suite_now_ns();
	/* More than the ring of ranges holds, while nothing is written. */
	for (uint64_t i = 0; i < 5000; i++) {
		if (i % 1000 == 0) {
			numbered_pass(&toy, 2 + i / 1000, MOETRACE_NO_REQUEST, 0, 1);
			ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
		}
		moetrace_range_push(toy.session, step, &range);
		moetrace_range_pop(toy.session, &range);
	}
	recording_id = dump(&toy);
	is_in_time = is_within(from_ns, n_s);
	toy_close(&toy);
	if (!is_in_time)
		return false;
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_stat(db, recording_id, "dropped_ranges"), 0);
	ck_assert_int_eq(db_stat(db, recording_id, "recorded_ranges"), 5000);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM range WHERE recording_id = %u",
				recording_id), 5000);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM range JOIN string ON string_id = name_id"
				    " WHERE value = 'old'"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 5);
	db_close(db);
	return true;
}

START_TEST(test_ranges)
{
	for (uint32_t n_s = 1; !ranges(n_s); n_s *= 4)
		continue;
}
END_TEST

/* A runtime that stands still: ranges are kept without a pass, and before the oldest (by pass). */
START_TEST(test_ranges_without_passes)
{
	const struct moetrace_recording_opts opts = flight_opts(KEPT_BYTES, 0, MOETRACE_MODE_PER_TOKEN);
	struct toy toy = flight_start("still.db", NULL, &opts);
	struct moetrace_range range;
	uint32_t step, recording_id;
	sqlite3 *db;

	ck_assert_int_eq(moetrace_range_name_add(toy.session, "step", &step), MOETRACE_OK);
	for (int i = 0; i < 100; i++) {
		moetrace_range_push(toy.session, step, &range);
		moetrace_range_pop(toy.session, &range);
	}
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	if (_i)
		numbered_pass(&toy, 1, MOETRACE_NO_REQUEST, 0, 1);
	recording_id = dump(&toy);
	/* The next one is stopped: its ranges are let go, whether or not they were taken. */
	for (int i = 0; i < 100; i++) {
		moetrace_range_push(toy.session, step, &range);
		moetrace_range_pop(toy.session, &range);
	}
	if (_i)
		numbered_pass(&toy, 2, MOETRACE_NO_REQUEST, 0, 1);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_stat(db, recording_id, "recorded_ranges"), 100);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM range WHERE recording_id = %u",
				recording_id), 100);
	ck_assert_int_eq(db_int(db, "SELECT start_ns = (SELECT min(end_ns) FROM range) FROM "
				    "recording WHERE recording_id = %u", recording_id), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), _i);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM range"), 100);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM diagnostic WHERE message LIKE "
				    "'%% is what flight mode kept: nothing, %%'"), _i);
	db_close(db);
}
END_TEST

START_TEST(test_stop_lets_go)
{
	struct moetrace_recording_opts opts = flight_opts(KEPT_BYTES, 0, (uint32_t)_i);
	struct toy toy = flight_start("stop.db", NULL, &opts);
	uint64_t request = toy_request(&toy, "r");
	sqlite3 *db;

	numbered_pass(&toy, 1, request, 0, 4);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_uint_eq(toy_status(&toy).flight_bytes, 0);
	/* What was said of requests holds on. */
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	numbered_pass(&toy, 2, request, 4, 1);
	moetrace_request_end(toy.session, request, MOETRACE_REQUEST_FINISHED, 5);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_OK);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(end_reason) FROM recording"),
			 "stopped,stopped,closed");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(recording_id || ':' || runtime_pass) "
				     "FROM pass"),
			 "2:2");
	ck_assert_str_eq(db_text(db, "SELECT verdict || ':' || reasons FROM request"),
			 "partial:began_before");
	ck_assert_int_eq(db_stat(db, 1, "flight_let_go_passes"), 1);
	db_close(db);
}
END_TEST

START_TEST(test_wrong_use)
{
	struct moetrace_recording_opts opts = flight_opts(1000, 0, MOETRACE_MODE_PER_TOKEN);
	struct toy toy = toy_open("wrong.db", NULL, N_LAYERS, N_EXPERTS, TOP_K);

	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_E_INVALID);
	opts.flight_bytes = UINT64_MAX;
	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_flight_trigger(toy.session, NULL), MOETRACE_E_STATE);
	ck_assert_int_eq(moetrace_flight_trigger(NULL, NULL), MOETRACE_E_INVALID);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_flight_trigger(toy.session, NULL), MOETRACE_E_STATE);
	toy_close(&toy);
}
END_TEST

/* A pass that hangs does not keep the others from the file. */
START_TEST(test_hanging_pass)
{
	struct moetrace_recording_opts opts = flight_opts(KEPT_BYTES, 0, MOETRACE_MODE_PER_TOKEN);
	struct moetrace_session_opts session_opts = toy_opts();
	const struct moetrace_slice slice = {.n_rows = 3};
	struct moetrace_pass *pass;
	struct toy toy;
	sqlite3 *db;

	session_opts.stop_timeout_ms = 50;
	toy = flight_start("hangs.db", &session_opts, &opts);
	pass = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	numbered_pass(&toy, 1, MOETRACE_NO_REQUEST, 0, 4);
	dump(&toy);
	toy_finish(&toy, pass, 3);
	numbered_pass(&toy, 2, MOETRACE_NO_REQUEST, 0, 4);
	dump(&toy);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(recording_id || ':' || verdict, ' ') FROM "
				     "(SELECT * FROM pass ORDER BY recording_id, verdict)"),
			 "1:complete 1:partial 2:complete");
	ck_assert_str_eq(db_text(db, "SELECT reason FROM gap"), "stop_timeout");
	db_close(db);
}
END_TEST

START_TEST(test_file_limit)
{
	struct moetrace_recording_opts opts = flight_opts(8 << 20, 0, MOETRACE_MODE_PER_TOKEN);
	struct moetrace_session_opts session_opts = toy_opts();
	struct moetrace_dump_result result;
	struct toy toy;
	sqlite3 *db;

	session_opts.file_limit_bytes = 1 << 20;
	toy = flight_start("limit.db", &session_opts, &opts);
	for (uint64_t i = 0; i < 2000; i++) {
		numbered_pass(&toy, i, MOETRACE_NO_REQUEST, 0, 64);
		if (i % 64 == 63)
			moetrace_flush(toy.session);
	}
	ck_assert_uint_eq(toy_status(&toy).is_recording, 1);
	MOETRACE_INIT(&result);
	ck_assert_int_eq(moetrace_dump(toy.session, &result), MOETRACE_E_IO);
	ck_assert_uint_eq(toy_status(&toy).is_recording, 0);
	ck_assert_int_eq(moetrace_rotate(toy.session, NULL), MOETRACE_OK);
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT end_reason FROM recording"), "file_limit");
	ck_assert_int_eq(db_int(db, "SELECT (SELECT count(*) FROM pass) + "
				    "(SELECT sum(n_lost) FROM gap)"),
			 2000 - db_stat(db, 1, "flight_let_go_passes"));
	db_close(db);
}
END_TEST

/* ---- under load ---- */

struct load {
	struct toy toy;
	atomic_bool stop;
	atomic_uint n_recorded;
	atomic_uint n_other;
};

static void *load_main(void *argument)
{
	struct load *load = argument;

	while (!load->stop) {
		uint64_t request;

		suite_sleep_ms(1);
		REQUIRE(moetrace_request_begin(load->toy.session, NULL, &request) == MOETRACE_OK,
			"request");
		if (toy_pass(&load->toy, MOETRACE_PHASE_PREFILL, request, 0, 16))
			load->n_recorded++;
		else
			load->n_other++;
		moetrace_request_end(load->toy.session, request, MOETRACE_REQUEST_FINISHED, 16);
	}
	return NULL;
}

static void write_somehow(struct load *load, uint32_t i)
{
	switch (i % 4) {
	case 0:
		suite_sleep_ms(30);
		break;
	case 1:
		ck_assert_int_eq(moetrace_flight_trigger(load->toy.session, "slow step"), MOETRACE_OK);
		break;
	case 2:
		ck_assert_int_eq(moetrace_rotate(load->toy.session, NULL), MOETRACE_OK);
		break;
	default:
		(void)moetrace_flight_trigger(load->toy.session, NULL);
		break;
	}
}

START_TEST(test_under_load)
{
	struct moetrace_recording_opts opts = flight_opts(KEPT_BYTES, 0, MOETRACE_MODE_PER_TOKEN);
	struct load load = {.toy = flight_start("load.db", NULL, &opts)};
	char path[1024];
	pthread_t threads[N_THREADS];
	int64_t n_found = 0, n_triggered = 0;
	uint32_t i;

	for (i = 0; i < N_THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, load_main, &load), 0);
	for (i = 0; i < 12; i++) {
		struct moetrace_dump_result result;

		suite_sleep_ms(i * 7 % 40);
		write_somehow(&load, i);
		MOETRACE_INIT(&result);
		ck_assert_int_eq(moetrace_dump(load.toy.session, &result), MOETRACE_OK);
	}
	load.stop = true;
	for (i = 0; i < N_THREADS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	/* No pass begins between two recordings. */
	ck_assert_uint_eq(load.n_other, 0);
	toy_close(&load.toy);
	snprintf(path, sizeof(path), "%s", load.toy.path);
	for (i = 1; i <= 4; i++) {
		sqlite3 *db = db_open(path);

		agree_check(db);
		n_found += db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'");
		n_found += db_int(db, "SELECT sum(value) FROM stats WHERE name = "
				      "'flight_let_go_passes'");
		n_triggered += db_int(db, "SELECT count(*) FROM recording WHERE end_reason IN "
					  "('slow step', 'trigger')");
		ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE recording_id IN "
					    "(SELECT recording_id FROM stats WHERE name = "
					    "'flight_let_go_passes' AND value = 0) AND "
					    "reasons LIKE '%%missing%%'"),
				 0);
		/* Passes know their requests, whichever recording they came to. */
		ck_assert_int_eq(db_int(db, "SELECT count(*) FROM diagnostic WHERE severity <> "
					    "'info'"),
				 0);
		ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass_request WHERE request_id "
					    "IS NULL"),
				 0);
		db_close(db);
		snprintf(path, sizeof(path), "%.*s.%u.db", (int)strlen(load.toy.path) - 3,
			 load.toy.path, i);
	}
	ck_assert_int_eq(n_found, load.n_recorded);
	ck_assert_int_le(n_triggered, 6);
}
END_TEST

/* The trigger alone, of a thread in the middle of a pass. */
START_TEST(test_trigger)
{
	struct moetrace_recording_opts opts = flight_opts(KEPT_BYTES, 0, MOETRACE_MODE_PER_TOKEN);
	struct toy toy = flight_start("trigger.db", NULL, &opts);
	const struct moetrace_slice slice = {.n_rows = 3};
	struct moetrace_pass *pass;
	char reason[300];
	sqlite3 *db;

	/* Its 255th byte is the first of two of a letter. */
	memset(reason, 'r', sizeof(reason));
	memcpy(reason + 254, "\xc3\xa4", 2);
	reason[299] = '\0';
	numbered_pass(&toy, 1, MOETRACE_NO_REQUEST, 0, 4);
	pass = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	ck_assert_int_eq(moetrace_flight_trigger(toy.session, reason), MOETRACE_OK);
	toy_finish(&toy, pass, 3);
	while (toy_status(&toy).recording_id < 2)
		suite_sleep_ms(5);
	numbered_pass(&toy, 2, MOETRACE_NO_REQUEST, 0, 4);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 2);
	ck_assert_int_eq(db_int(db, "SELECT length(end_reason) FROM recording WHERE "
				    "recording_id = 1"),
			 254);
	ck_assert_str_eq(db_text(db, "SELECT end_reason FROM recording WHERE recording_id = 2"),
			 "closed");
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("flight");
	TCase *twin = tcase_create("twin");
	TCase *edges = tcase_create("edges");
	TCase *load = tcase_create("load");

	tcase_set_timeout(twin, 60);
	tcase_add_loop_test(twin, test_dump_equals_twin, MOETRACE_MODE_PER_TOKEN,
			    MOETRACE_MODE_PER_PASS + 1);
	tcase_add_test(edges, test_requests_at_the_edge);
	tcase_add_test(edges, test_verify_at_the_edge);
	tcase_add_test(edges, test_seconds);
	tcase_add_test(edges, test_ranges);
	tcase_add_loop_test(edges, test_ranges_without_passes, 0, 2);
	tcase_add_loop_test(edges, test_stop_lets_go, MOETRACE_MODE_PER_TOKEN,
			    MOETRACE_MODE_STAT + 1);
	tcase_add_test(edges, test_wrong_use);
	tcase_add_test(edges, test_hanging_pass);
	tcase_add_test(edges, test_file_limit);
	tcase_add_test(load, test_under_load);
	tcase_add_test(load, test_trigger);
	suite_add_tcase(suite, twin);
	suite_add_tcase(suite, edges);
	suite_add_tcase(suite, load);
	return suite_run(suite);
}
