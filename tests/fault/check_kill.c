/* SPDX-License-Identifier: MIT */
/*
 * kill -9 at a random moment. The recording process tells through shared memory what it has
 * done; what is in the file afterwards agrees with itself, holds all that was flushed, and
 * lacks no more than what the last moments brought.
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
	/* What may pass between the end of an interval and the end of its commit. */
	PATIENCE_MS = 1500,
	MAX_PASSES = 1 << 20,
	N_KILLS_QUICK = 20,
	N_KILLS_LONG = 200,
};

/* Written by the recording process only. */
struct progress {
	atomic_uint n_ended;   /* passes that ended */
	atomic_uint n_flushed; /* of them before a flush that returned */
	atomic_bool is_recording;
	uint64_t ended_ns[MAX_PASSES];
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
			progress->ended_ns[progress->n_ended] = suite_now_ns();
			progress->n_ended++;
			usleep(200);
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

/* Kills the process after a random time and returns the moment. */
static uint64_t kill_at_random(pid_t pid, const struct progress *progress, struct rng *rng)
{
	uint64_t killed_ns;
	int status;

	while (!progress->is_recording && waitpid(pid, &status, WNOHANG) == 0)
		suite_sleep_ms(1);
	suite_sleep_ms(PATIENCE_MS / 10 + rng_below(rng, 1000));
	killed_ns = suite_now_ns();
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
		      "the recording process ended by itself: %d", WEXITSTATUS(status));
	return killed_ns;
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

static void check_what_is_left(const char *path, const struct progress *progress,
			       uint64_t killed_ns)
{
	const uint64_t late_ns = (COMMIT_INTERVAL_MS + PATIENCE_MS) * UINT64_C(1000000) *
				 (suite_has_sanitizer("address") ? 4 : 1);
	sqlite3 *db = db_open(path);
	uint32_t n_due = 0;
	int64_t n_passes;

	agree_check(db);
	n_passes = db_int(db, "SELECT count(*) FROM pass");
	while (n_due < progress->n_ended && progress->ended_ns[n_due] + late_ns < killed_ns)
		n_due++;
	ck_assert_int_ge(n_passes, progress->n_flushed);
	ck_assert_int_ge(n_passes, n_due);
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
	uint64_t killed_ns;
	pid_t pid;

	ck_assert(progress != MAP_FAILED);
	pid = start_recorder(path, progress, _i % 2 == 0);
	killed_ns = kill_at_random(pid, progress, &rng);
	if (_i % 4 == 1)
		look_with_the_shell(path);
	check_what_is_left(path, progress, killed_ns);
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
