/* SPDX-License-Identifier: MIT */
/*
 * Honesty in odd circumstances: names that SQLite would read as something else, positions
 * computed twice, passes that were never stored, and files of processes that died early.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

static const char *const odd_names[] = { "file:precious.db", ":memory:", "file:x?mode=memory",
					 "a'b\"c d.db" };

/* The path of a name in the working folder, as SQLite takes it literally. */
static sqlite3 *open_literally(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "./%s", name);
	return db_open(path);
}

START_TEST(test_names_are_literal)
{
	struct moetrace_session *session;
	sqlite3 *precious;
	sqlite3 *db;
	char folder[] = "/tmp/moetrace-odd.XXXXXX";

	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(chdir(folder), 0);
	ck_assert_int_eq(sqlite3_open("precious.db", &precious), SQLITE_OK);
	ck_assert_int_eq(sqlite3_exec(precious, "CREATE TABLE bank (x)", NULL, NULL, NULL), SQLITE_OK);
	ck_assert_int_eq(moetrace_session_open(odd_names[_i], NULL, &session), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_session_close(session), MOETRACE_OK);
	ck_assert_int_eq(db_int(precious, "SELECT count(*) FROM sqlite_schema"), 1);
	sqlite3_close(precious);
	db = open_literally(odd_names[_i]);
	ck_assert_str_eq(db_text(db, "SELECT end_reason FROM recording"), "closed");
	db_close(db);
	ck_assert_int_eq(unlink(odd_names[_i]), 0);
	ck_assert_int_eq(unlink("precious.db"), 0);
	ck_assert_int_eq(chdir("/"), 0);
	/* Nothing else was made. */
	ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

/* Positions recomputed in a later pass, and twice in one slice. */
START_TEST(test_repeated_positions)
{
	static const uint32_t twice[] = { 0, 1, 1 };
	struct toy toy = toy_start("repeated.db", NULL, 1, 64, 2);
	const uint64_t later = toy_request(&toy, "later"), at_once = toy_request(&toy, "at_once");
	const struct moetrace_slice slice = { .request = at_once, .positions = twice, .n_rows = 3 };
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, later, 0, 4));
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_PREFILL, later, 2, 4));
	toy_finish(&toy, toy_begin(&toy, MOETRACE_PHASE_PREFILL, &slice, 1), 3);
	ck_assert_int_eq(moetrace_request_end(toy.session, later, MOETRACE_REQUEST_FINISHED, 6), 0);
	ck_assert_int_eq(moetrace_request_end(toy.session, at_once, MOETRACE_REQUEST_FINISHED, 2), 0);
	toy_close(&toy);
	db = db_open(toy.path);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE verdict = 'partial' AND"
				" reasons = 'repeated'"), 2);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 2);
	db_close(db);
}
END_TEST

/* More rows than a pass can have, as rows and as padding. */
START_TEST(test_too_many_rows)
{
	struct toy toy = toy_start("rows.db", NULL, 1, 64, 2);
	struct moetrace_pass_info info;
	sqlite3 *db;

	for (int i = 0; i < 2; i++) {
		MOETRACE_INIT(&info);
		info.model = toy.model;
		info.phase = MOETRACE_PHASE_DUMMY;
		info.n_rows = i ? 1 : MOETRACE_MAX_ROWS + 1u;
		info.padding_rows = i ? MOETRACE_MAX_ROWS : 0;
		ck_assert_ptr_null(moetrace_pass_begin(toy.session, &info));
	}
	toy_close(&toy);
	db = db_open(toy.path);
	ck_assert_int_eq(db_stat(db, 1, "misuse"), 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 0);
	db_close(db);
}
END_TEST

/* A pass that found no ring is the recorder's loss, not the runtime's. */
START_TEST(test_a_lost_pass_is_lost)
{
	struct moetrace_session_opts opts = toy_opts();
	const struct moetrace_slice one = { .n_rows = 1 };
	struct moetrace_pass *holder;
	struct toy toy;
	uint64_t request;
	sqlite3 *db;

	opts.n_rings = 1;
	toy = toy_start("lost.db", &opts, 1, 64, 2);
	request = toy_request(&toy, "r");
	holder = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &one, 1);
	ck_assert(!toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 4));
	toy_finish(&toy, holder, 1);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, 4, 1));
	ck_assert_int_eq(moetrace_request_end(toy.session, request, MOETRACE_REQUEST_FINISHED, 5), 0);
	toy_close(&toy);
	db = db_open(toy.path);
	ck_assert_str_eq(db_text(db, "SELECT verdict || ' ' || reasons FROM request"), "partial lost");
	db_close(db);
}
END_TEST

/* start has committed when it returns, so that a death right after it leaves a trace. */
START_TEST(test_start_is_committed)
{
	struct moetrace_session_opts opts = toy_opts();
	struct toy toy;
	sqlite3 *db;

	opts.commit_interval_ms = 10000;
	toy = toy_start("early.db", &opts, 1, 64, 2);
	db = db_open(toy.path);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM recording WHERE end_reason IS NULL"), 1);
	db_close(db);
	toy_close(&toy);
}
END_TEST

/* However early the process dies, the file is empty or has the whole schema. */
START_TEST(test_death_while_opening)
{
	const char *path = suite_path("dying.db");
	pid_t pid = fork();
	sqlite3 *db;

	if (pid == 0) {
		struct moetrace_session *session;

		if (moetrace_session_open(path, NULL, &session) == MOETRACE_OK)
			pause();
		_exit(1);
	}
	WAIT_UNTIL(access(path, F_OK) == 0);
	usleep((useconds_t)_i * 700);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
	ck_assert_int_eq(db_int(db, "SELECT (SELECT count(*) FROM sqlite_schema) = 0 OR"
				" (SELECT count(*) FROM sqlite_schema WHERE name IN ('byte', 'topk',"
				" 'loss', 'routed_expert')) = 4"), 1);
	sqlite3_close(db);
}
END_TEST

/* Half of what the recorder waits for whoever has the file locked that it makes. */
#define LOOK_NS UINT64_C(1000000000)

enum look { LOOK_SHORT, LOOK_LONG, LOOK_FAILED };

/*
 * Locks a file as soon as it is there, as a program does that waits for its rows, and lets it go: a
 * moment later, or, on a machine that stands still meanwhile, after what is a long look.
 */
static void look_early(const char *path, int ready)
{
	uint64_t from_ns;
	sqlite3 *db;

	alarm(100); /* where there never is a file */
	if (write(ready, "", 1) != 1)
		_exit(LOOK_FAILED);
	while (access(path, F_OK) != 0)
		continue;
	from_ns = suite_now_ns();
	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK ||
	    sqlite3_exec(db, "BEGIN; SELECT count(*) FROM sqlite_schema", NULL, NULL, NULL) == SQLITE_OK)
		usleep(50000);
	_exit(suite_now_ns() - from_ns < LOOK_NS ? LOOK_SHORT : LOOK_LONG);
}

/* Whether the look was as short as the recorder waits for; then the file was made all the same. */
static bool look_while_opening(void)
{
	const char *path = suite_path("looked-at.db");
	struct moetrace_session *session;
	int ready[2], status, look;
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (pid == 0)
		look_early(path, ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	status = moetrace_session_open(path, NULL, &session);
	ck_assert_int_eq(waitpid(pid, &look, 0), pid);
	close(ready[0]);
	close(ready[1]);
	ck_assert(WIFEXITED(look) && WEXITSTATUS(look) != LOOK_FAILED);
	if (status != MOETRACE_OK && WEXITSTATUS(look) == LOOK_LONG)
		return false;
	ck_assert_msg(status == MOETRACE_OK, "open: %d: %s", status, moetrace_open_errmsg());
	ck_assert_int_eq(moetrace_session_close(session), MOETRACE_OK);
	return true;
}

/* Who looks at a file while it is made does not keep it from being made. */
START_TEST(test_look_while_opening)
{
	int n_tries = 1;

	while (!look_while_opening())
		ck_assert_int_le(++n_tries, 10);
}
END_TEST

/* Cells of any TEXT column of any table that hold these bytes. */
static int64_t cells_with(sqlite3 *db, const char *hex)
{
	sqlite3_stmt *columns = db_query(db, "SELECT m.name, p.name FROM sqlite_schema AS m"
					     " JOIN pragma_table_info(m.name) AS p"
					     " WHERE m.type = 'table' AND p.type = 'TEXT'");
	int64_t n = 0;

	while (db_step(columns))
		n += db_int(db,
			    "SELECT count(*) FROM \"%w\" WHERE instr(CAST(\"%w\" AS BLOB), x'%s')",
			    sqlite3_column_text(columns, 0), sqlite3_column_text(columns, 1), hex);
	sqlite3_finalize(columns);
	return n;
}

/* Bytes that are no UTF-8 do not reach the file, in whatever text they come. */
START_TEST(test_texts_are_utf8)
{
	static const char bad[] = "x\xff\xc3y\xe2\x82";
	struct moetrace_session_opts opts = toy_opts();
	struct moetrace_recording_opts recording;
	struct moetrace_layer_info layer;
	struct moetrace_model_info model;
	struct toy toy;
	uint64_t request;
	uint32_t handle;
	sqlite3 *db;

	opts.session_name = opts.engine_name = opts.engine_version = bad;
	toy = toy_open("bytes.db", &opts, 1, 64, 2);
	MOETRACE_INIT(&layer);
	layer.n_experts = layer.top_k = 1;
	layer.router_impl = layer.runner_backend = layer.impl_reason = bad;
	MOETRACE_INIT(&model);
	model.name = model.architecture = model.quantization = bad;
	model.layers = &layer;
	model.n_moe_layers = 1;
	ck_assert_int_eq(moetrace_model_add(toy.session, &model, &handle), MOETRACE_OK);
	ck_assert_int_eq(moetrace_rule_add(toy.session, bad, &handle), MOETRACE_OK);
	ck_assert_int_eq(moetrace_kernel_name_add(toy.session, bad, 0, 0, &handle), MOETRACE_OK);
	MOETRACE_INIT(&recording);
	recording.routing_source = bad;
	ck_assert_int_eq(moetrace_start(toy.session, &recording), MOETRACE_OK);
	request = toy_request(&toy, bad);
	ck_assert_int_eq(moetrace_request_attribute_set(toy.session, request, bad, bad), MOETRACE_OK);
	ck_assert_int_eq(moetrace_stop(toy.session, bad), MOETRACE_OK);
	toy_close(&toy);
	agree_prove(toy.path);
	db = db_open(toy.path);
	ck_assert_int_eq(cells_with(db, "FF"), 0);
	/* An ill-formed byte each, and the beginning of a sequence, become one character. */
	ck_assert_int_eq(cells_with(db, "78EFBFBDEFBFBD79EFBFBD"), 16);
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("honest");
	TCase *honest = tcase_create("honest");

	tcase_add_loop_test(honest, test_names_are_literal, 0,
			    (int)(sizeof(odd_names) / sizeof(odd_names[0])));
	tcase_add_test(honest, test_repeated_positions);
	tcase_add_test(honest, test_too_many_rows);
	tcase_add_test(honest, test_texts_are_utf8);
	tcase_add_test(honest, test_a_lost_pass_is_lost);
	tcase_add_test(honest, test_start_is_committed);
	tcase_add_loop_test(honest, test_death_while_opening, 0, 20);
	tcase_add_loop_test(honest, test_look_while_opening, 0, 10);
	suite_add_tcase(suite, honest);
	return suite_run(suite);
}
