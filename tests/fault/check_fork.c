/* SPDX-License-Identifier: MIT */
/*
 * fork() in a program that records. The child's copy records nothing, never hangs on a lock
 * that another thread held at that moment, and leaves the parent's file alone; the parent
 * records on.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

enum child { CHILD_EXITS, CHILD_RUNS_PASSES, CHILD_CLOSES, CHILD_CLOSES_AND_EXITS, N_CHILDREN };

static void child_main(struct toy *toy, enum child child)
{
	uint32_t i;

	alarm(100); /* a child that hangs is killed, and its status says so */
	for (i = 0; child != CHILD_EXITS && i < 50; i++) {
		uint64_t request;

		if (moetrace_request_begin(toy->session, NULL, &request) == MOETRACE_OK ||
		    toy_pass(toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1))
			_exit(1);
	}
	if (child >= CHILD_CLOSES && moetrace_session_close(toy->session) != MOETRACE_OK)
		_exit(2);
	if (child == CHILD_CLOSES_AND_EXITS && !suite_has_sanitizer("address"))
		exit(0);
	_exit(0);
}

static void run_child(struct toy *toy, enum child child)
{
	const pid_t pid = fork();
	int status;

	/* First, since an assertion allocates: a thread may have had the sanitizer's lock. */
	if (pid == 0)
		child_main(toy, child);
	ck_assert_int_ge(pid, 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(!WIFSIGNALED(status), "a child ended by signal %d", WTERMSIG(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}

START_TEST(test_child)
{
	struct toy toy = toy_start("fork.db", NULL, 2, 64, 4);
	const struct moetrace_slice slice = {.n_rows = 3};
	struct moetrace_pass *pass;
	sqlite3 *db;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	pass = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	toy_select(&toy, pass, 0, 3);
	run_child(&toy, _i);
	toy_select(&toy, pass, 1, 3);
	moetrace_pass_end(pass);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 3);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request"), 0);
	ck_assert_str_eq(db_text(db, "SELECT end_reason FROM recording"), "closed");
	db_close(db);
}
END_TEST

/* A pass that was running at the fork may be gone on with in the child; nobody sees it. */
START_TEST(test_pass_that_crosses_the_fork)
{
	struct toy toy = toy_start("cross.db", NULL, 2, 64, 4);
	const struct moetrace_slice slice = {.n_rows = 3};
	struct moetrace_pass *pass = toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1);
	int status;
	pid_t pid;
	sqlite3 *db;

	pid = fork();
	if (pid == 0) {
		alarm(100);
		toy_finish(&toy, pass, 3);
		moetrace_session_close(toy.session);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	toy_finish(&toy, pass, 3);
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 1);
	db_close(db);
}
END_TEST

/* ---- under load ---- */

struct load {
	struct toy *toy;
	atomic_bool stop;
	atomic_uint n_passes;
};

static void *load_main(void *argument)
{
	struct load *load = argument;

	while (!load->stop) {
		uint64_t request;

		/* Enough to be found busy, and not too much to read afterwards. */
		usleep(suite_has_sanitizer("thread") ? 2000 : 100);
		REQUIRE(moetrace_request_begin(load->toy->session, NULL, &request) == MOETRACE_OK,
			"request");
		load->n_passes += toy_pass(load->toy, MOETRACE_PHASE_PREFILL, request, 0, 4);
		moetrace_request_end(load->toy->session, request, MOETRACE_REQUEST_FINISHED, 4);
	}
	return NULL;
}

/* Forks at any moment of two busy threads and the writer. */
START_TEST(test_forks_under_load)
{
	struct moetrace_session_opts opts = toy_opts();
	struct toy toy;
	struct load load = {.toy = &toy};
	pthread_t ids[2];
	/* Closing frees: AddressSanitizer's allocator does not come unlocked out of a fork. */
	const uint32_t n_children = suite_has_sanitizer("address") ? CHILD_CLOSES : N_CHILDREN;
	sqlite3 *db;
	uint32_t i;

	/* The writer may have to wait for a processor that these threads have. */
	opts.ring_bytes = UINT64_C(16) << 20;
	toy = toy_start("load.db", &opts, 2, 64, 4);
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&ids[i], NULL, load_main, &load), 0);
	for (i = 0; i < (suite_is_long() ? 400u : 40u); i++)
		run_child(&toy, i % n_children);
	load.stop = true;
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_join(ids[i], NULL), 0);
	toy_close(&toy);
	db = db_open(toy.path);
	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"),
			 load.n_passes);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE verdict = 'complete'"),
			 load.n_passes);
	db_close(db);
}
END_TEST

/* A child may have a session of its own. */
START_TEST(test_session_of_the_child)
{
	struct toy toy = toy_start("parent.db", NULL, 2, 64, 4);
	const char *path = suite_path("of-child.db");
	const pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		struct toy own = {.n_layers = 2, .n_experts = 64, .top_k = 4};

		alarm(100);
		if (moetrace_session_open(path, NULL, &own.session) != MOETRACE_OK)
			_exit(1);
		own.model = toy_model_add(own.session, "own", 0, 2, 64, 4);
		if (moetrace_start(own.session, NULL) != MOETRACE_OK)
			_exit(2);
		if (!toy_pass(&own, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 7))
			_exit(3);
		_exit(moetrace_session_close(own.session) == MOETRACE_OK ? 0 : 4);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	toy_close(&toy);
	agree_check_file(toy.path);
	agree_check_file(path);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fork");
	TCase *tcase = tcase_create("fork");

	tcase_set_timeout(tcase, suite_is_long() ? 600 : 120);
	tcase_add_loop_test(tcase, test_child, 0, N_CHILDREN);
	tcase_add_test(tcase, test_pass_that_crosses_the_fork);
	tcase_add_test(tcase, test_forks_under_load);
	/* ThreadSanitizer allows no new threads after the fork of a program with threads. */
	if (!suite_has_sanitizer("thread"))
		tcase_add_test(tcase, test_session_of_the_child);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
