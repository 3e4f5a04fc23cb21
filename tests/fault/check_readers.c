/* SPDX-License-Identifier: MIT */
/*
 * Other programs that have the file open when the session closes. A reader that goes in time
 * costs nothing; one that stays costs two seconds and a journal beside the file, and the file
 * is read all the same.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fault/support/peer.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

static bool has_journal(const char *path)
{
	char name[1024];

	snprintf(name, sizeof(name), "%s-wal", path);
	return access(name, F_OK) == 0;
}

static struct toy record(const char *name, struct peer *peer, const char *transaction)
{
	struct toy toy = toy_start(name, NULL, 2, 64, 4);
	uint32_t i;

	for (i = 0; i < 100; i++)
		ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 16));
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	peer_open(peer, toy.path);
	peer_exec(peer, "SELECT count(*) FROM pass");
	if (transaction) {
		peer_exec(peer, "BEGIN");
		peer_exec(peer, transaction);
	}
	for (i = 0; i < 100; i++)
		ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 16));
	return toy;
}

static void check_whole(const char *path)
{
	sqlite3 *db = db_open(path);

	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 200);
	ck_assert_str_eq(db_text(db, "SELECT end_reason FROM recording"), "closed");
	db_close(db);
}

/* In a read transaction, or with an idle connection, all the time. */
static const char *const transactions[] = {"SELECT count(*) FROM topk", NULL};

START_TEST(test_reader_that_stays)
{
	struct peer peer = peer_start();
	struct toy toy = record("stays.db", &peer, transactions[_i]);
	const uint64_t before_ns = suite_now_ns();
	uint64_t spent_ns;

	ck_assert_int_eq(moetrace_session_close(toy.session), MOETRACE_OK);
	spent_ns = suite_now_ns() - before_ns;
	ck_assert_uint_gt(spent_ns, UINT64_C(1500000000));
	ck_assert(has_journal(toy.path));
	check_whole(toy.path);
	peer_stop(&peer);
	check_whole(toy.path);
}
END_TEST

/* Whether closing took less than it waits for, so that the reader was seen to go, or missed. */
static bool reader_that_goes(const char *transaction)
{
	struct peer peer = peer_start();
	struct toy toy = record("goes.db", &peer, transaction);
	const uint64_t before_ns = suite_now_ns();
	bool is_in_time;

	peer_close_after_ms(&peer, 200);
	ck_assert_int_eq(moetrace_session_close(toy.session), MOETRACE_OK);
	is_in_time = !has_journal(toy.path);
	ck_assert(is_in_time || suite_now_ns() - before_ns >= UINT64_C(2000000000));
	check_whole(toy.path);
	peer_stop(&peer);
	return is_in_time;
}

/* It goes too late only where the machine stands still. */
START_TEST(test_reader_that_goes)
{
	int n_tries = 1;

	while (!reader_that_goes(transactions[_i]))
		ck_assert_int_le(++n_tries, 8);
}
END_TEST

/* While a process stands still, the time is not over in which a reader may go. */
START_TEST(test_reader_that_goes_after_a_standstill)
{
	struct peer peer = peer_start();
	int status, begun[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(begun), 0);
	pid = fork();
	if (pid == 0) {
		struct toy toy = record("standstill.db", &peer, transactions[0]);

		if (write(begun[1], "+", 1) != 1 || moetrace_session_close(toy.session))
			_exit(2);
		_exit(has_journal(toy.path));
	}
	ck_assert_int_gt(pid, 0);
	ck_assert_int_eq(read(begun[0], &byte, 1), 1);
	usleep(100000); /* so that it is stopped while it waits */
	ck_assert_int_eq(kill(pid, SIGSTOP), 0);
	usleep(2200000);
	ck_assert_int_eq(kill(pid, SIGCONT), 0);
	peer_close_after_ms(&peer, 100);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	peer_stop(&peer);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

/* A long reader keeps the journal from being folded; the writer goes on all the same. */
START_TEST(test_long_reader_beside_the_writer)
{
	struct peer peer = peer_start();
	struct toy toy = record("beside.db", &peer, transactions[0]);
	uint32_t i;

	for (i = 0; i < 2000; i++)
		toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 64);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	peer_stop(&peer);
	toy_close(&toy);
	ck_assert(!has_journal(toy.path));
	agree_check_file(toy.path);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("readers");
	TCase *tcase = tcase_create("close");

	tcase_add_loop_test(tcase, test_reader_that_stays, 0, 2);
	tcase_add_loop_test(tcase, test_reader_that_goes, 0, 2);
	tcase_add_test(tcase, test_reader_that_goes_after_a_standstill);
	tcase_add_test(tcase, test_long_reader_beside_the_writer);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
