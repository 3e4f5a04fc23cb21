/* SPDX-License-Identifier: MIT */
/*
 * kill -9 at a random moment. The recording process tells through shared memory what it has
 * done; what is in the file afterwards agrees with itself, and holds all that was flushed and all
 * that another program saw in it.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/rng.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

enum {
	COMMIT_INTERVAL_MS = 50,
	MAX_PASSES = 1 << 20,
	N_KILLS_QUICK = 20,
	N_KILLS_LONG = 200,
};

/* Written by the recording process only. */
struct progress {
	atomic_uint n_ended;   /* passes that ended */
	atomic_uint n_flushed; /* of them before a flush that returned */
	atomic_bool is_recording;
};

struct recorder {
	struct toy toy;
	struct progress *progress;
};

static void *flush_main(void *argument)
{
	struct recorder *recorder = argument;

	for (;;) {
		const uint32_t n_ended = recorder->progress->n_ended;

		if (moetrace_flush(recorder->toy.session) != MOETRACE_OK)
			_exit(4);
		recorder->progress->n_flushed = n_ended;
		suite_sleep_ms(97);
	}
	return NULL;
}

/* Requests of five passes each; never returns. */
static void record(struct recorder *recorder, bool flushes)
{
	struct progress *progress = recorder->progress;
	pthread_t id;
	uint32_t n;

	if (flushes && pthread_create(&id, NULL, flush_main, recorder) != 0)
		_exit(3);
	for (n = 0; n < MAX_PASSES; n += 5) {
		uint64_t request;
		uint32_t i;

		if (moetrace_request_begin(recorder->toy.session, NULL, &request) != MOETRACE_OK)
			_exit(1);
		for (i = 0; i < 5; i++) {
			if (!toy_pass(&recorder->toy, MOETRACE_PHASE_PREFILL, request, i * 20, 20))
				_exit(2);
			progress->n_ended++;
			usleep(200);
			/* What the ring has no room for would be lost. */
			toy_keep_pace(&recorder->toy, progress->n_ended, 400);
		}
		moetrace_request_end(recorder->toy.session, request, MOETRACE_REQUEST_FINISHED,
				     100);
	}
	_exit(0);
}

static pid_t start_recorder(const char *path, struct progress *progress, bool flushes)
{
	const pid_t pid = fork();
	struct moetrace_session_opts opts = toy_opts();
	struct recorder recorder = {
		.toy = {.path = path, .n_layers = 6, .n_experts = 64, .top_k = 8},
		.progress = progress};

	ck_assert_int_ge(pid, 0);
	if (pid != 0)
		return pid;
	opts.commit_interval_ms = COMMIT_INTERVAL_MS;
	opts.window_ns = 100000000;
	if (moetrace_session_open(path, &opts, &recorder.toy.session) != MOETRACE_OK)
		_exit(10);
	recorder.toy.model = toy_model_add(recorder.toy.session, "toy", 0, 6, 64, 8);
	if (moetrace_start(recorder.toy.session, NULL) != MOETRACE_OK)
		_exit(11);
	progress->is_recording = true;
	record(&recorder, flushes);
	return 0;
}

/* It does so only if something is wrong, which is said. */
static bool has_ended(pid_t pid)
{
	int status = 0;

	ck_assert_int_ge(waitpid(pid, &status, WNOHANG), 0);
	ck_assert_msg(status == 0, "the recording process ended by itself: %d", status);
	return false;
}

/* Kills the process a random time after its first commit; returns the passes that were seen then. */
static int64_t kill_at_random(pid_t pid, const char *path, const struct progress *progress,
			      struct rng *rng)
{
	int64_t n_seen = 0;
	sqlite3 *db;
	int status;

	WAIT_UNTIL(progress->is_recording || has_ended(pid));
	db = db_open(path);
	/* Nobody else asks for it: what was recorded is committed after the interval. */
	WAIT_UNTIL(db_int(db, "SELECT count(*) FROM pass") > 0 || has_ended(pid));
	suite_sleep_ms(rng_below(rng, 500));
	n_seen = db_int(db, "SELECT count(*) FROM pass");
	db_close(db);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
		      "the recording process ended by itself: %d", WEXITSTATUS(status));
	return n_seen;
}

/* Stock tools first: the shell folds the journal, as a user's first look would. */
static void look_with_the_shell(const char *path)
{
	char command[1200];
	int status;

	snprintf(command, sizeof(command),
		 "command -v sqlite3 >/dev/null || exit 0;"
		 " test \"$(sqlite3 -batch '%s' 'PRAGMA integrity_check; SELECT count(*) FROM "
		 "loss')\" ="
		 " \"$(printf 'ok\\n1')\"",
		 path);
	status = system(command);
	ck_assert_msg(status == 0, "the sqlite3 shell does not open the file: %d", status);
}

static void check_what_is_left(const char *path, const struct progress *progress, int64_t n_seen)
{
	sqlite3 *db = db_open(path);
	int64_t n_passes;

	agree_check(db);
	n_passes = db_int(db, "SELECT count(*) FROM pass");
	ck_assert_int_ge(n_passes, progress->n_flushed);
	ck_assert_int_ge(n_passes, n_seen);
	ck_assert_int_le(n_passes, (int64_t)progress->n_ended + 1);
	ck_assert_str_eq(db_text(db, "SELECT end_reason FROM recording"), "(null)");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE verdict <> 'complete'"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE verdict = 'partial'"), 0);
	/* What the file says it has is what it has. */
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM request WHERE verdict = 'complete'"),
			 db_int(db, "SELECT count(*) FROM request WHERE n_positions = 100"));
	ck_assert_int_ge(db_int(db, "SELECT count(*) FROM request"), n_passes / 5);
	db_close(db);
}

START_TEST(test_kill)
{
	const char *path = suite_path("kill.db");
	struct progress *progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE,
					 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct rng rng = {.state = (uint64_t)_i * 7919 + 1};
	int64_t n_seen;
	pid_t pid;

	ck_assert(progress != MAP_FAILED);
	pid = start_recorder(path, progress, _i % 2 == 0);
	n_seen = kill_at_random(pid, path, progress, &rng);
	if (_i % 4 == 1)
		look_with_the_shell(path);
	check_what_is_left(path, progress, n_seen);
}
END_TEST

/* A session that was opened and never recorded leaves a file that opens, too. */
START_TEST(test_kill_while_idle)
{
	const char *path = suite_path("idle.db");
	const pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		struct moetrace_session *session;

		if (moetrace_session_open(path, NULL, &session) != MOETRACE_OK)
			_exit(1);
		kill(getpid(), SIGKILL);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status));
	agree_check_file(path);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kill");
	TCase *tcase = tcase_create("kill");

	tcase_add_loop_test(tcase, test_kill, 0, suite_is_long() ? N_KILLS_LONG : N_KILLS_QUICK);
	tcase_add_test(tcase, test_kill_while_idle);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
