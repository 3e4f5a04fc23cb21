/* SPDX-License-Identifier: MIT */
/*
 * Sources that hang while recordings end and begin, and what flight mode says of calls. A file of
 * powercap that became a pipe hangs for as long as the test holds the other end.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libtrace/collect_internal.h"
#include "libtrace/session.h"
#include "tests/collectors/support/fakes.h"
#include "tests/collectors/support/sources.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

/* The next look at a counter does not come back; the end of the pipe that it waits for. */
static int hang_in_look(const char *root)
{
	char path[2000], pipe[2000];
	int fd;

	snprintf(path, sizeof(path), "%s/intel-rapl:0/energy_uj", root);
	snprintf(pipe, sizeof(pipe), "%s/pipe", root);
	ck_assert_int_eq(mkfifo(pipe, 0600), 0);
	ck_assert_int_eq(rename(pipe, path), 0);
	/* It can be opened from now on if somebody is about to read. */
	WAIT_UNTIL((fd = open(path, O_WRONLY | O_NONBLOCK)) >= 0);
	return fd;
}

/* Of a source that hangs as a recording ends. */
#define SAYS_HUNG                                                                         \
	"state = 'hung' AND n_dropped IS NULL AND (instr(reason, 'had not come back') OR" \
	" instr(reason, 'did not come back'))"
/* An end that nobody waits for may come as soon as the call has begun. */
#define SAYS_MISSING "n_dropped IS NULL AND reason IS NOT NULL"

/* Two recordings, and the session's end, while a call hangs; whether the machine was quick enough. */
static bool hangs_at_ends(uint32_t timeout_ms, bool rotates)
{
	const char *root = sources_make_powercap(suite_path("powercap"));
	char next[1024];
	uint64_t begin_ns;
	bool is_in_time;
	struct toy toy;
	sqlite3 *db;
	int fd;

	sources_give_calls(timeout_ms);
	snprintf(next, sizeof(next), "%s", suite_path("next.db"));
	toy = sources_start("ends.db", "rapl,host");
	sources_wait_until_read(&toy);
	fd = hang_in_look(root);
	if (rotates) {
		ck_assert_int_eq(moetrace_rotate(toy.session, next), MOETRACE_OK);
	} else {
		ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
		ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	}
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	begin_ns = suite_now_ns();
	toy_close(&toy);
	is_in_time = suite_now_ns() - begin_ns < timeout_ms * UINT64_C(500000);
	agree_prove(toy.path);
	db = db_open(toy.path);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM collector WHERE name = 'rapl' AND recording_id = 1"
				    " AND %s", rotates ? SAYS_MISSING : SAYS_HUNG), 1);
	if (rotates) {
		db_close(db);
		agree_prove(next);
		db = db_open(next);
	}
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM collector WHERE name = 'rapl' AND recording_id = 2"
				    " AND " SAYS_HUNG), 1);
	db_close(db);
	/* What was left behind goes on by itself, without the session. */
	ck_assert_int_eq(close(fd), 0);
	return is_in_time;
}

START_TEST(test_ends)
{
	for (uint32_t timeout_ms = 3000; !hangs_at_ends(timeout_ms, _i == 1); timeout_ms *= 4)
		continue;
}
END_TEST

/* The end of the session is that of the recording, too: it waits once. */
static bool hangs_at_close(uint32_t timeout_ms)
{
	const char *root = sources_make_powercap(suite_path("powercap"));
	uint64_t begin_ns;
	bool is_in_time;
	struct toy toy;
	sqlite3 *db;
	int fd;

	sources_give_calls(timeout_ms);
	toy = sources_start("close.db", "rapl");
	sources_wait_until_read(&toy);
	fd = hang_in_look(root);
	begin_ns = suite_now_ns();
	toy_close(&toy);
	/* Half of it is waited for. */
	is_in_time = suite_now_ns() - begin_ns < timeout_ms * UINT64_C(750000);
	agree_prove(toy.path);
	db = db_open(toy.path);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM collector WHERE " SAYS_HUNG), 1);
	db_close(db);
	ck_assert_int_eq(close(fd), 0);
	return is_in_time;
}

START_TEST(test_close)
{
	for (uint32_t timeout_ms = 3000; !hangs_at_close(timeout_ms); timeout_ms *= 4)
		continue;
}
END_TEST

/* ---- slow, and no more ---- */

/* The look comes back: the counter is a file again, and has not gone on. */
static void let_look(const char *root, int fd)
{
	static const char figure[] = "1000000\n";
	char path[2000], again[2000];
	FILE *file;

	snprintf(path, sizeof(path), "%s/intel-rapl:0/energy_uj", root);
	snprintf(again, sizeof(again), "%s/again", root);
	REQUIRE((file = fopen(again, "w")) && fputs(figure, file) >= 0 && fclose(file) == 0, "%s", again);
	REQUIRE(rename(again, path) == 0, "%s", path);
	REQUIRE(write(fd, figure, sizeof(figure) - 1) == sizeof(figure) - 1 && close(fd) == 0, "pipe");
}

struct slow {
	struct moetrace_session *session;
	const char *root;
	int fd;
	uint32_t wait_ms; /* the look comes back after that; 0: when the writer ends the recording */
};

static bool is_ended(struct mt_collect *collect, uint32_t n_stops)
{
	bool is_ended;

	pthread_mutex_lock(&collect->lock);
	is_ended = collect->n_stops == n_stops;
	pthread_mutex_unlock(&collect->lock);
	return is_ended;
}

static void *look_slowly(void *argument)
{
	struct slow *slow = argument;

	if (slow->wait_ms)
		suite_sleep_ms(slow->wait_ms);
	else
		WAIT_UNTIL(is_ended(atomic_load(&slow->session->collect), 1));
	let_look(slow->root, slow->fd);
	return NULL;
}

/* A recording ends while a look is under way that comes back; whether its file lacks nothing. */
static bool ends_in_slow_look(const char *name, uint32_t wait_ms)
{
	struct slow slow = {.root = sources_make_powercap(suite_path("powercap")), .wait_ms = wait_ms};
	struct toy toy = sources_start(name, "rapl");
	pthread_t thread;
	bool is_whole;
	sqlite3 *db;

	sources_wait_until_read(&toy);
	slow.session = toy.session;
	slow.fd = hang_in_look(slow.root);
	ck_assert_int_eq(pthread_create(&thread, NULL, look_slowly, &slow), 0);
	if (wait_ms)
		ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	else
		ck_assert_int_eq(moetrace_rotate(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	toy_close(&toy);
	agree_prove(toy.path);
	db = db_open(toy.path);
	is_whole = db_int(db, "SELECT count(*) FROM collector WHERE state = 'on' AND n_dropped = 0");
	db_close(db);
	return is_whole;
}

/* A machine that stands still for as long as a look may last finds it late all the same. */
START_TEST(test_slow_look)
{
	uint32_t timeout_ms = 3000;

	for (sources_give_calls(timeout_ms); !ends_in_slow_look("slow.db", timeout_ms / 4);
	     sources_give_calls(timeout_ms))
		timeout_ms *= 4;
}
END_TEST

/* And for the tenth of a second that a rotation waits, once in a while. */
START_TEST(test_rotate_in_look)
{
	WAIT_UNTIL(ends_in_slow_look("rotate.db", 0));
}
END_TEST

/* Who wants to end soon does, and takes no source for one that hangs after so short a time. */
static bool ends_soon(uint32_t timeout_ms)
{
	const char *root = sources_make_powercap(suite_path("powercap"));
	struct moetrace_session_opts opts = toy_opts();
	struct toy toy;
	uint64_t begin_ns, took_ns;
	bool is_soon;
	sqlite3 *db;
	int fd;

	sources_give_calls(timeout_ms);
	opts.stop_timeout_ms = 1;
	opts.collectors = "rapl";
	toy = toy_start("soon.db", &opts, SOURCES_LAYERS, SOURCES_EXPERTS, SOURCES_TOP_K);
	sources_wait_until_read(&toy);
	fd = hang_in_look(root);
	begin_ns = suite_now_ns();
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	took_ns = suite_now_ns() - begin_ns;
	toy_close(&toy);
	agree_prove(toy.path);
	db = db_open(toy.path);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM collector WHERE n_dropped IS NULL AND"
				    " instr(reason, 'had not come back')"), 1);
	is_soon = took_ns < timeout_ms * UINT64_C(400000) &&
		  db_int(db, "SELECT count(*) FROM collector WHERE state = 'on'") == 1;
	db_close(db);
	ck_assert_int_eq(close(fd), 0);
	return is_soon;
}

START_TEST(test_ends_soon)
{
	for (uint32_t timeout_ms = 3000; !ends_soon(timeout_ms); timeout_ms *= 4)
		continue;
}
END_TEST

/* ---- flight mode ---- */

/* A dump of what was kept since a pass began; whether a source has read meanwhile. */
static bool dump_has_read(struct toy *toy)
{
	struct moetrace_dump_result result;
	int64_t n_rows;
	sqlite3 *db;

	ck_assert(toy_pass(toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	suite_sleep_ms(250);
	MOETRACE_INIT(&result);
	ck_assert_int_eq(moetrace_dump(toy->session, &result), MOETRACE_OK);
	db = db_open(toy->path);
	n_rows = db_int(db, "SELECT n_rows FROM collector WHERE recording_id = %u AND name = 'rapl'",
			result.recording_id);
	/* Each call reads four domains, the one that opens none; one may not be over yet. */
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM collector WHERE n_calls IS NULL OR"
				    " n_calls + 1 < n_rows / 4 OR (n_calls > 0) <> (calls_ns > 0)"
				    " OR (n_calls > 0) <> (longest_call_ns > 0)"), 0);
	db_close(db);
	return n_rows >= 2 * 4;
}

START_TEST(test_flight)
{
	struct moetrace_session_opts session_opts = toy_opts();
	struct moetrace_recording_opts opts;
	struct toy toy;

	sources_make_powercap(suite_path("powercap"));
	fakes_be_patient();
	session_opts.collectors = "rapl";
	toy = toy_open("flight.db", &session_opts, SOURCES_LAYERS, SOURCES_EXPERTS, SOURCES_TOP_K);
	MOETRACE_INIT(&opts);
	opts.flight_bytes = 1 << 20;
	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_OK);
	WAIT_UNTIL(dump_has_read(&toy));
	db_close(sources_finish(&toy));
	agree_prove(toy.path);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hang");
	TCase *tests = tcase_create("hang");

	tcase_set_timeout(tests, 240);
	tcase_add_loop_test(tests, test_ends, 0, 2);
	tcase_add_test(tests, test_close);
	tcase_add_test(tests, test_slow_look);
	tcase_add_test(tests, test_rotate_in_look);
	tcase_add_test(tests, test_ends_soon);
	tcase_add_test(tests, test_flight);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
