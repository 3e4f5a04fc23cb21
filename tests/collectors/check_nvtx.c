/* SPDX-License-Identifier: MIT */
/*
 * Ranges for a tool that listens to NVTX: what it hears is what was recorded, and whom the user has
 * chosen to listen stays as it was.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

static char tool[1024];

static void use_tool(const char *log)
{
	const char *folder = getenv("MOETRACE_BUILDDIR");

	snprintf(tool, sizeof(tool), "%s/tests/collectors/.libs/libfake_nvtx.so",
		 folder ? folder : ".");
	ck_assert_int_eq(setenv("NVTX_INJECTION64_PATH", tool, 1), 0);
	ck_assert_int_eq(setenv("FAKE_NVTX_LOG", log, 1), 0);
}

static struct toy open_toy(const char *name)
{
	struct moetrace_session_opts opts = toy_opts();

	ck_assert_int_eq(setenv("MOETRACE_COLLECTOR_TIMEOUT_MS", "60000", 1), 0);
	opts.collectors = "nvtx";
	return toy_open(name, &opts, 2, 64, 2);
}

static struct moetrace_pass *begin(const struct toy *toy, uint64_t number)
{
	const struct moetrace_slice slice = { .n_rows = 1 };
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;

	MOETRACE_INIT(&info);
	info.model = toy->model;
	info.phase = MOETRACE_PHASE_DUMMY;
	info.runtime_pass = &number;
	info.slices = &slice;
	info.n_slices = 1;
	info.n_rows = 1;
	pass = moetrace_pass_begin(toy->session, &info);
	ck_assert_ptr_nonnull(pass);
	return pass;
}

/* All that the tool heard. */
static char *heard(const char *log, char *ret_text, size_t text_bytes)
{
	FILE *file = fopen(log, "r");
	size_t n = file ? fread(ret_text, 1, text_bytes - 1, file) : 0;

	ret_text[n] = '\0';
	if (file)
		fclose(file);
	return ret_text;
}

static sqlite3 *finish(struct toy *toy)
{
	sqlite3 *db;

	toy_close(toy);
	db = db_open(toy->path);
	agree_check(db);
	return db;
}

struct popping {
	struct moetrace_session *session;
	struct moetrace_range *range;
};

static void *pop(void *argument)
{
	const struct popping *popping = argument;

	moetrace_range_pop(popping->session, popping->range);
	return NULL;
}

START_TEST(test_heard)
{
	const char *log = suite_path("heard.log");
	struct moetrace_range step, idle;
	struct moetrace_pass *pass;
	struct popping popping;
	pthread_t thread;
	struct toy toy;
	uint32_t name;
	char text[4096];
	sqlite3 *db;

	use_tool(log);
	toy = open_toy("heard.db");
	ck_assert_int_eq(moetrace_range_name_add(toy.session, "step", &name), MOETRACE_OK);
	/* Nothing is recorded yet. */
	moetrace_range_push(toy.session, name, &idle);
	moetrace_range_pop(toy.session, &idle);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	moetrace_range_push(toy.session, name, &step);
	pass = begin(&toy, 77);
	toy_finish(&toy, pass, 1);
	/* It ends on another thread than it began on. */
	popping = (struct popping){ toy.session, &step };
	ck_assert_int_eq(pthread_create(&thread, NULL, pop, &popping), 0);
	pthread_join(thread, NULL);
	/* The recording ends before the range does: the tool's still ends. */
	moetrace_range_push(toy.session, name, &step);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	moetrace_range_pop(toy.session, &step);
	db = finish(&toy);
	ck_assert_str_eq(heard(log, text, sizeof(text)),
			 "domain moetrace 0 0\n"
			 "begin session 1 0\n"
			 "begin recording 2 1\n"
			 "begin step 3 0\n"
			 "begin dummy 4 77\n"
			 "mark layer 0 0\n"
			 "mark layer 0 1\n"
			 "end - 4 0\n"
			 "end - 3 0\n"
			 "begin step 5 0\n"
			 "end - 2 0\n"
			 "end - 5 0\n"
			 "end - 1 0\n");
	/* They are in the trace, whoever listens. */
	ck_assert_str_eq(db_text(db, "SELECT group_concat(coalesce(text, value)) FROM (SELECT * FROM"
				     " NVTX_EVENTS LEFT JOIN StringIds ON id = textId ORDER BY start)"),
			 "step,pass dummy");
	ck_assert_str_eq(db_text(db, "SELECT state FROM collector WHERE name = 'nvtx'"), "on");
	ck_assert_int_eq(db_int(db, "SELECT instr(reason, '%s') > 0 FROM collector", tool), 1);
	/* What the user set is as it was. */
	ck_assert_str_eq(getenv("NVTX_INJECTION64_PATH"), tool);
	db_close(db);
}
END_TEST

static const struct {
	const char *what, *path, *fake, *wanted, *state, *reason;
} silences[] = {
	{ "nobody listens", NULL, "", "1", "absent", "no tool listens" },
	{ "no such tool", "/nonexistent/tool.so", "", "1", "absent", "takes no ranges" },
	{ "the tool does not want to", "", "refuses", "1", "absent", "takes no ranges" },
	{ "the operator does not want it to", "", "", "0", "absent", "MOETRACE_NVTX=0" },
};

/* Without a tool everything is recorded all the same, and nothing was set in place of it. */
START_TEST(test_silence)
{
	const char *log = suite_path("silence.log");
	struct moetrace_range step;
	char text[256];
	uint32_t name;
	struct toy toy;
	sqlite3 *db;

	use_tool(log);
	if (!silences[_i].path)
		ck_assert_int_eq(unsetenv("NVTX_INJECTION64_PATH"), 0);
	else if (*silences[_i].path)
		ck_assert_int_eq(setenv("NVTX_INJECTION64_PATH", silences[_i].path, 1), 0);
	ck_assert_int_eq(setenv("FAKE_NVTX", silences[_i].fake, 1), 0);
	ck_assert_int_eq(setenv("MOETRACE_NVTX", silences[_i].wanted, 1), 0);
	toy = open_toy("silence.db");
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert_int_eq(moetrace_range_name_add(toy.session, "step", &name), MOETRACE_OK);
	moetrace_range_push(toy.session, name, &step);
	toy_finish(&toy, begin(&toy, 1), 1);
	moetrace_range_pop(toy.session, &step);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	db = finish(&toy);
	ck_assert_msg(strcmp(db_text(db, "SELECT state FROM collector"), silences[_i].state) == 0,
		      "%s: %s", silences[_i].what, db_text(db, "SELECT reason FROM collector"));
	ck_assert_int_eq(db_int(db, "SELECT instr(reason, '%s') > 0 FROM collector",
				silences[_i].reason), 1);
	ck_assert_int_eq(db_int(db, "SELECT (SELECT count(*) FROM range) + (SELECT count(*) FROM pass)"),
			 2);
	ck_assert_ptr_null(strstr(heard(log, text, sizeof(text)), "begin"));
	if (!silences[_i].path)
		ck_assert_ptr_null(getenv("NVTX_INJECTION64_PATH"));
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("nvtx");
	TCase *tests = tcase_create("nvtx");

	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, test_heard);
	tcase_add_loop_test(tests, test_silence, 0, sizeof(silences) / sizeof(silences[0]));
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
