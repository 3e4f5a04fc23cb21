/* SPDX-License-Identifier: MIT */
/*
 * The environment's variables: they win over the program's options, the set in force is in the
 * file, and with MOETRACE_DISABLE every call succeeds and does nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/control/support/line_peer.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

/* What stands in table meta at @key; "-" for NULL. */
static const char *meta(sqlite3 *db, const char *key)
{
	char sql[128];

	snprintf(sql, sizeof(sql), "SELECT coalesce(value, '-') FROM meta WHERE key = '%s'", key);
	return db_text(db, sql);
}

START_TEST(test_output)
{
	const char *in_code = suite_path("in-code.db");
	char pattern[1024], path[1100];
	struct moetrace_session_opts opts = toy_opts();
	struct moetrace_session *session;

	opts.world = (struct moetrace_rank){3, 8};
	snprintf(pattern, sizeof(pattern), "%s-%%p-%%r-100%%%%.db", suite_path("pattern"));
	setenv("MOETRACE_OUTPUT", pattern, 1);
	ck_assert_int_eq(moetrace_session_open(in_code, &opts, &session), MOETRACE_OK);
	ck_assert_int_eq(moetrace_session_close(session), MOETRACE_OK);
	ck_assert_int_ne(access(in_code, F_OK), 0);
	snprintf(path, sizeof(path), "%.*s-%ld-3-100%%.db",
		 (int)(strstr(pattern, "-%p") - pattern), pattern, (long)getpid());
	ck_assert_msg(access(path, F_OK) == 0, "%s is not there", path);
	/* Without a path in code, too. */
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(moetrace_session_open(NULL, &opts, &session), MOETRACE_OK);
	ck_assert_int_eq(moetrace_session_close(session), MOETRACE_OK);
	ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

static char long_place[1025]; /* a byte more than places may have */

static const char *const settings[][2] = {
	{"MOETRACE_OUTPUT", "/tmp/%x"},
	{"MOETRACE_OUTPUT", "/tmp/%"},
	{"MOETRACE_START", "yes"},
	{"MOETRACE_MODE", "all"},
	{"MOETRACE_NVTX", "off"},
	{"MOETRACE_COLLECTOR_TIMEOUT_MS", "soon"},
	{"MOETRACE_COLLECTOR_TIMEOUT_MS", "0"},
	{"MOETRACE_COLLECTOR_TIMEOUT_MS", "-5"},
	{"MOETRACE_COLLECTOR_TIMEOUT_MS", "3600001"},
	{"MOETRACE_COLLECTOR_TIMEOUT_MS", "99999999999999999999"},
	{"MOETRACE_COLLECTOR_TIMEOUT_MS", "5s"},
	{"MOETRACE_PROC", long_place},
	{"MOETRACE_POWERCAP", long_place},
	{"MOETRACE_NVML", long_place},
	{"MOETRACE_CUPTI", long_place},
	{"MOETRACE_CUPTI_MODE", long_place},
	{"MOETRACE_CUPTI_MODE", "nodes"},
	{"MOETRACE_CUPTI_MODE", "kernel:11"},
	{"MOETRACE_CUPTI_MODE", "kernel:every=0"},
	{"MOETRACE_CUPTI_MODE", "kernel:per_s=5x"},
	{"MOETRACE_CUPTI_MODE", "kernel:window=1+"},
	{"MOETRACE_CUPTI_MODE", "kernel:every=00000000000000000000000001"},
	{"MOETRACE_KERNEL_ROLES", "*my_gemm*"},
	{"MOETRACE_KERNEL_ROLES", "=experts"},
	{"MOETRACE_KERNEL_ROLES", "*my_gemm*=matmul"},
	{"MOETRACE_KERNEL_ROLES", "*a*=gate,,*b*=topk"},
	{"MOETRACE_KERNEL_ROLES", "*a*=gate,"},
	{"MOETRACE_KERNEL_ROLES", ",*a*=gate"},
	{"MOETRACE_KERNEL_ROLES", ","},
	{"MOETRACE_KERNEL_ROLES", "*a*=gate, *b*=topk"},
	{"MOETRACE_KERNEL_ROLES", "*a* =gate"},
	{"MOETRACE_KERNEL_ROLES", "*a*=gate "},
	{"MOETRACE_COLLECTORS", "host,"},
	{"MOETRACE_COLLECTORS", ",host"},
	{"MOETRACE_COLLECTORS", "host,,rapl"},
	{"MOETRACE_COLLECTORS", "host, rapl"},
	{"MOETRACE_COLLECTORS", "host "},
	{"MOETRACE_COLLECTORS", "cupti=kernel:every=5 "},
};

START_TEST(test_wrong_values)
{
	const char *path = suite_path("wrong.db");
	struct moetrace_session *session;

	memset(long_place, 'x', sizeof(long_place) - 1);
	setenv(settings[_i][0], settings[_i][1], 1);
	ck_assert_int_eq(moetrace_session_open(path, NULL, &session), MOETRACE_E_INVALID);
	ck_assert_ptr_null(session);
	ck_assert_msg(strstr(moetrace_open_errmsg(), settings[_i][0]) != NULL,
		      "the reason does not name %s: %s", settings[_i][0], moetrace_open_errmsg());
	ck_assert_int_ne(access(path, F_OK), 0);
	/* Empty is not set. */
	setenv(settings[_i][0], "", 1);
	ck_assert_int_eq(moetrace_session_open(path, NULL, &session), MOETRACE_OK);
	ck_assert_int_eq(moetrace_session_close(session), MOETRACE_OK);
}
END_TEST

START_TEST(test_start_at_once)
{
	struct toy toy;
	sqlite3 *db;

	setenv("MOETRACE_START", "1", 1);
	toy = toy_open("at-once.db", NULL, 2, 64, 4);
	ck_assert_uint_eq(toy_status(&toy).is_recording, 1);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	/* The program's first start finds its wish fulfilled; a second one is one too many. */
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_E_STATE);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	db = toy_close_and_open(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM recording"), 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass WHERE recording_id = 1"), 1);
	ck_assert_str_eq(meta(db, "opt.start"), "1");
	db_close(db);
}
END_TEST

START_TEST(test_start_later)
{
	struct moetrace_recording_opts opts;
	struct toy toy;
	sqlite3 *db;
	const char *folder = line_peer_folder();
	int fd;

	setenv("MOETRACE_START", "0", 1);
	toy = toy_open("later.db", NULL, 2, 64, 4);
	MOETRACE_INIT(&opts);
	opts.routing_source = "replay";
	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_OK);
	ck_assert_uint_eq(toy_status(&toy).is_recording, 0);
	ck_assert(!toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	fd = line_peer_connect(folder);
	ck_assert_ptr_nonnull(strstr(line_peer_say(fd, "start"), "state recording\n"));
	close(fd);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	db = toy_close_and_open(&toy);
	ck_assert_str_eq(db_text(db, "SELECT routing_source FROM recording"), "replay");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 1);
	ck_assert_str_eq(meta(db, "opt.start"), "0");
	ck_assert_str_eq(meta(db, "opt.socket_dir"), folder);
	db_close(db);
}
END_TEST

/* Every call succeeds, and there is neither a file nor a thread nor a socket. */
START_TEST(test_disabled)
{
	const char *path = suite_path("disabled.db");
	const char *folder = line_peer_folder();
	struct moetrace_session_status status;
	struct moetrace_session_opts opts = toy_opts();
	struct toy toy = {.path = path, .n_layers = 2, .n_experts = 64, .top_k = 4};
	uint64_t request;
	uint32_t rule;

	setenv("MOETRACE_DISABLE", "1", 1);
	ck_assert_int_eq(moetrace_session_open(path, &opts, &toy.session), MOETRACE_OK);
	toy.model = toy_model_add(toy.session, "toy", 0, 2, 64, 4);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_rule_add(toy.session, "oea:k0=3", &rule), MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_begin(toy.session, NULL, &request), MOETRACE_OK);
	ck_assert_int_eq(moetrace_request_attribute_set(toy.session, request, "a", "b"),
			 MOETRACE_OK);
	ck_assert(!toy_pass(&toy, MOETRACE_PHASE_PREFILL, request, 0, 3));
	ck_assert_int_eq(moetrace_request_end(toy.session, request, MOETRACE_REQUEST_FINISHED, 3),
			 MOETRACE_OK);
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	MOETRACE_INIT(&status);
	ck_assert_int_eq(moetrace_status(toy.session, &status), MOETRACE_OK);
	ck_assert_uint_eq(status.is_recording, 0);
	ck_assert_uint_eq(status.ring_bytes, 0);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_session_close(toy.session), MOETRACE_OK);
	ck_assert_int_ne(access(path, F_OK), 0);
	ck_assert_int_eq(line_peer_sockets(folder, NULL), 0);
	/* 0 is off. */
	setenv("MOETRACE_DISABLE", "0", 1);
	ck_assert_int_eq(moetrace_session_open(path, &opts, &toy.session), MOETRACE_OK);
	ck_assert_int_eq(moetrace_session_close(toy.session), MOETRACE_OK);
	ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

/* The folder that the variable names, before the one in code. */
START_TEST(test_socket_dir)
{
	const char *in_code = suite_path("in-code");
	const char *folder;
	struct moetrace_session_opts opts = toy_opts();
	struct moetrace_session *session;

	ck_assert_int_eq(mkdir(in_code, 0700), 0);
	opts.socket_dir = in_code;
	unsetenv("MOETRACE_SOCKET_DIR");
	ck_assert_int_eq(moetrace_session_open(suite_path("a.db"), &opts, &session), MOETRACE_OK);
	ck_assert_int_eq(line_peer_sockets(in_code, NULL), 1);
	ck_assert_int_eq(moetrace_session_close(session), MOETRACE_OK);
	ck_assert_int_eq(line_peer_sockets(in_code, NULL), 0);
	folder = line_peer_folder();
	ck_assert_int_eq(moetrace_session_open(suite_path("b.db"), &opts, &session), MOETRACE_OK);
	ck_assert_int_eq(line_peer_sockets(in_code, NULL), 0);
	ck_assert_int_eq(line_peer_sockets(folder, NULL), 1);
	ck_assert_int_eq(moetrace_session_close(session), MOETRACE_OK);
	setenv("MOETRACE_SOCKET_DIR", "none", 1);
	ck_assert_int_eq(moetrace_session_open(suite_path("c.db"), &opts, &session), MOETRACE_OK);
	ck_assert_int_eq(line_peer_sockets(in_code, NULL), 0);
	ck_assert_int_eq(moetrace_session_close(session), MOETRACE_OK);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("environment");
	TCase *variables = tcase_create("variables");

	tcase_add_test(variables, test_output);
	tcase_add_loop_test(variables, test_wrong_values, 0,
			    sizeof(settings) / sizeof(settings[0]));
	tcase_add_test(variables, test_start_at_once);
	tcase_add_test(variables, test_start_later);
	tcase_add_test(variables, test_disabled);
	tcase_add_test(variables, test_socket_dir);
	suite_add_tcase(suite, variables);
	return suite_run(suite);
}
