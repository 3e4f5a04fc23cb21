/* SPDX-License-Identifier: MIT */
/*
 * Every file that is opened at the end has been held against what its rows must agree on.
 */
#include "tests/collectors/support/sources.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/collectors/support/fakes.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

/* Two sockets with a part each that has the same name, in folders of their own. */
const char *sources_make_powercap(const char *root)
{
	static const struct {
		const char *folder, *name, *energy_uj;
	} domains[] = {
		{ "intel-rapl:0", "package-0", "1000000" },
		{ "intel-rapl:0:0", "dram", "262143000000" },
		{ "intel-rapl:1", "package-1", "5" },
		{ "intel-rapl:1:0", "dram", "7" },
	};

	ck_assert_int_eq(mkdir(root, 0755), 0);
	for (size_t i = 0; i < sizeof(domains) / sizeof(domains[0]); i++)
		fakes_put_domain(root, domains[i].folder, domains[i].name, domains[i].energy_uj);
	fakes_set("MOETRACE_POWERCAP", root);
	return root;
}

struct toy sources_start(const char *name, const char *collectors)
{
	struct moetrace_session_opts opts = toy_opts();

	fakes_be_patient();
	opts.collectors = collectors;
	return toy_start(name, &opts, SOURCES_LAYERS, SOURCES_EXPERTS, SOURCES_TOP_K);
}

bool sources_hold(const struct toy *toy, const char *path, const char *sql)
{
	bool holds;
	sqlite3 *db;

	suite_sleep_ms(10);
	ck_assert_int_eq(moetrace_flush(toy->session), MOETRACE_OK);
	db = db_open(path);
	holds = db_int(db, "%s", sql) > 0;
	db_close(db);
	return holds;
}

void sources_wait_in(const struct toy *toy, const char *path, const char *condition)
{
	char sql[1024];

	snprintf(sql, sizeof(sql), "SELECT count(*) > 0 AND min(%s) FROM collector WHERE recording_id ="
				   " (SELECT max(recording_id) FROM recording)", condition);
	WAIT_UNTIL(sources_hold(toy, path, sql));
}

void sources_wait_until_read(const struct toy *toy)
{
	sources_wait_in(toy, toy->path, SOURCES_ANSWERED);
}

sqlite3 *sources_finish(struct toy *toy)
{
	sqlite3 *db;

	toy_close(toy);
	db = db_open(toy->path);
	agree_check(db);
	db_check_integrity(db);
	return db;
}

const char *sources_state(sqlite3 *db, const char *name)
{
	return db_text(db, "SELECT state FROM collector WHERE name = '%s'", name);
}

bool sources_say(sqlite3 *db, const char *name, const char *text)
{
	return strstr(db_text(db, "SELECT reason FROM collector WHERE name = '%s'", name), text) != NULL;
}

void sources_give_calls(uint32_t timeout_ms)
{
	char text[16];

	ck_assert_uint_lt(timeout_ms, 60000);
	snprintf(text, sizeof(text), "%u", timeout_ms);
	fakes_set("MOETRACE_COLLECTOR_TIMEOUT_MS", text);
}

bool sources_was_late(sqlite3 *db, const char *name, uint32_t timeout_ms)
{
	return strcmp(sources_state(db, name), "hung") == 0 &&
	       db_int(db, "SELECT longest_call_ns >= %lld FROM collector WHERE name = '%s'",
		      timeout_ms * 1000000ll, name) == 1;
}
