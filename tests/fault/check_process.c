/* SPDX-License-Identifier: MIT */
/*
 * What programs do around a session: several open one path, one ends without closing, the clock of
 * the day is set.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

enum { N_PROCESSES = 4 };

#define DAY_NS INT64_C(86400000000000)

/* What was added to the clock of the day. */
static _Atomic int64_t step_ns;

/* In place of the C library's, for the recorder, too. */
__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *ret_time)
{
	int result = (int)syscall(SYS_clock_gettime, clock, ret_time);

	if (result == 0 && clock == CLOCK_REALTIME)
		ret_time->tv_sec += step_ns / 1000000000;
	return result;
}

/* Each waits until all are there; the exit status is 0 for the one that has the file. */
static int open_at_once(const char *path, int go)
{
	struct moetrace_session_opts opts = toy_opts();
	struct moetrace_session *session;
	char byte;
	int status;

	opts.n_rings = 2;
	opts.ring_bytes = 1 << 20;
	if (read(go, &byte, 1) != 0)
		return 2;
	status = moetrace_session_open(path, &opts, &session);
	if (status == MOETRACE_E_EXISTS)
		return 1;
	if (status != MOETRACE_OK)
		return 2;
	toy_model_add(session, "toy", 0, 2, 64, 4);
	return moetrace_session_close(session) == MOETRACE_OK ? 0 : 2;
}

START_TEST(test_one_path_several_processes)
{
	const char *path = suite_path("shared.db");
	int n_with[3] = {0, 0, 0};
	int go[2];

	ck_assert_int_eq(pipe(go), 0);
	for (int i = 0; i < N_PROCESSES; i++) {
		pid_t pid = fork();

		ck_assert_int_ge(pid, 0);
		if (pid == 0) {
			close(go[1]);
			_exit(open_at_once(path, go[0]));
		}
	}
	close(go[0]);
	close(go[1]);
	for (int i = 0; i < N_PROCESSES; i++) {
		int status;

		ck_assert_int_gt(wait(&status), 0);
		ck_assert(WIFEXITED(status) && WEXITSTATUS(status) <= 2);
		n_with[WEXITSTATUS(status)]++;
	}
	ck_assert_int_eq(n_with[0], 1);
	ck_assert_int_eq(n_with[1], N_PROCESSES - 1);
	agree_check_file(path);
}
END_TEST

/* The second one is refused, and the first one records as if nothing were. */
START_TEST(test_path_in_use)
{
	struct toy toy = toy_start("used.db", NULL, 2, 64, 4);
	int status;
	sqlite3 *db;
	pid_t pid;

	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	pid = fork();
	if (pid == 0) {
		const struct moetrace_session_opts opts = toy_opts();
		struct moetrace_session *session;

		_exit(moetrace_session_open(toy.path, &opts, &session) == MOETRACE_E_EXISTS ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 2);
	db_close(db);
}
END_TEST

/* Ended by exit() with the session open, and a pass that has not ended: what was flushed is there. */
START_TEST(test_exit_without_close)
{
	const struct moetrace_slice slice = {.n_rows = 3};
	const char *path = suite_path("left.db");
	int status;
	sqlite3 *db;
	pid_t pid = fork();

	if (pid == 0) {
		const struct moetrace_session_opts opts = toy_opts();
		struct toy toy = {.n_layers = 2, .n_experts = 64, .top_k = 4};

		if (moetrace_session_open(path, &opts, &toy.session) != MOETRACE_OK)
			_exit(1);
		toy.model = toy_model_add(toy.session, "toy", 0, 2, 64, 4);
		if (moetrace_start(toy.session, NULL) != MOETRACE_OK ||
		    !toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3) ||
		    moetrace_flush(toy.session) != MOETRACE_OK ||
		    !toy_begin(&toy, MOETRACE_PHASE_DUMMY, &slice, 1))
			_exit(1);
		if (_i == 0)
			/* The handlers of the C library run, the recorder's thread goes on. */
			exit(0);
		signal(SIGTERM, SIG_DFL);
		raise(SIGTERM);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (_i == 0)
		ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	else
		ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	db = db_open(path);
	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM recording WHERE end_ns IS NULL"), 1);
	db_close(db);
}
END_TEST

/* Back by a day, and forward by two: the session's times do not notice. */
START_TEST(test_clock_steps)
{
	static const int64_t steps[] = {0, -DAY_NS, DAY_NS};
	uint64_t begin_ns = suite_now_ns();
	struct toy toy = toy_open("clock.db", NULL, 2, 64, 4);
	uint64_t length_ns;
	sqlite3 *db;

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		step_ns = steps[i];
		ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
		ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
		/* In the middle of a recording, too. */
		step_ns = -steps[i];
		ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
		/* The clocks are compared once a second. */
		if (i == 2)
			suite_sleep_ms(1100);
		ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	}
	step_ns = 0;
	db = toy_close_and_open(&toy);
	length_ns = suite_now_ns() - begin_ns;
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict = 'complete'"), 6);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM (SELECT begin_ns, end_ns, lag(end_ns, 1, 0) "
				    "OVER (ORDER BY pass_id) AS before FROM pass) "
				    "WHERE begin_ns < before OR end_ns < begin_ns"),
			 0);
	ck_assert_int_lt(db_int(db, "SELECT max(end_ns) FROM pass"), (int64_t)length_ns);
	ck_assert_int_lt(db_int(db, "SELECT max(end_ns) FROM recording"), (int64_t)length_ns);
	/* Who wants the time of day finds the steps where the clocks are compared. */
	ck_assert_int_gt(db_int(db, "SELECT max(realtime_ns) - min(realtime_ns) FROM clock_snapshot"),
			 DAY_NS / 2);
	ck_assert_int_lt(db_int(db, "SELECT max(session_ns) FROM clock_snapshot"),
			 (int64_t)length_ns);
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("process");
	TCase *process = tcase_create("process");

	tcase_add_test(process, test_one_path_several_processes);
	tcase_add_test(process, test_path_in_use);
	tcase_add_loop_test(process, test_exit_without_close, 0, 2);
	tcase_add_test(process, test_clock_steps);
	suite_add_tcase(suite, process);
	return suite_run(suite);
}
