/* SPDX-License-Identifier: MIT */
/*
 * Powercap trees made of files, as a session reads them: counters that wrap around, what may not be
 * read, and trees that no kernel would make.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/collectors/support/fakes.h"
#include "tests/collectors/support/sources.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

/* 1500 J on, and past the end of a counter. */
START_TEST(test_counters)
{
	const char *root = sources_make_powercap(suite_path("powercap"));
	struct toy toy = sources_start("counters.db", "rapl");
	char folder[1024];
	sqlite3 *db;

	sources_wait_until_read(&toy);
	snprintf(folder, sizeof(folder), "%s/intel-rapl:0", root);
	fakes_put_file(folder, "energy_uj", "1501000000");
	snprintf(folder, sizeof(folder), "%s/intel-rapl:0:0", root);
	fakes_put_file(folder, "energy_uj", "671149");
	WAIT_UNTIL(sources_hold(&toy, toy.path,
				"SELECT max(iif(domain = 'package-0', energy_mj, 0)) = 1500000 AND"
				" max(iif(domain = 'dram', energy_mj, 0)) = 1000 FROM power_sample"));
	db = sources_finish(&toy);
	agree_prove(toy.path);
	ck_assert_str_eq(sources_state(db, "rapl"), "on");
	/* The counters begin at 0, whatever they stood at. */
	ck_assert_str_eq(db_text(db, "SELECT group_concat(domain || '=' || first || '-' || last)"
				     " FROM (SELECT domain, min(energy_mj) AS first, max(energy_mj)"
				     " AS last FROM power_sample WHERE device_id = 1 GROUP BY domain"
				     " ORDER BY domain)"),
			 "dram=0-1000,dram intel-rapl:1:0=0-0,package-0=0-1500000,"
			 "package-1=0-0");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM power_sample WHERE device_id = 1 AND"
				    " coalesce(instant_mw, average_mw, limit_mw) IS NOT NULL"), 0);
	db_close(db);
}
END_TEST

/* ---- what is not there, or may not be read ---- */

START_TEST(test_denied)
{
	const char *root = sources_make_powercap(suite_path("denied"));
	static const char *const folders[] = { "0", "0:0", "1", "1:0" };
	struct moetrace_session_opts opts = toy_opts();
	bool is_root = geteuid() == 0;
	char path[1024];
	struct toy toy;
	sqlite3 *db;

	for (size_t i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/intel-rapl:%s/energy_uj", root, folders[i]);
		ck_assert_int_eq(chmod(path, is_root ? 0400 : 0), 0);
	}
	/* Once the folder is closed, once its files are. */
	snprintf(path, sizeof(path), "%s/..", root);
	ck_assert_int_eq(chmod(path, _i ? 0755 : 0700), 0);
	if (!is_root && !_i)
		ck_assert_int_eq(chmod(root, 0), 0);
	fakes_be_patient();
	opts.collectors = "rapl";
	toy = toy_open("denied.db", &opts, SOURCES_LAYERS, SOURCES_EXPERTS, SOURCES_TOP_K);
	/* Nobody could not open it. */
	db = db_open(toy.path);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM collector"), 0);
	/* Root may read anything: it is nobody while the collector opens. */
	if (is_root)
		ck_assert_int_eq(seteuid(65534), 0);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	WAIT_UNTIL((moetrace_flush(toy.session),
		    db_int(db, "SELECT count(*) FROM collector WHERE n_calls > 0")) == 1);
	db_close(db);
	if (is_root)
		ck_assert_int_eq(seteuid(0), 0);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	db = sources_finish(&toy);
	ck_assert_str_eq(sources_state(db, "rapl"), "denied");
	ck_assert(sources_say(db, "rapl", _i ? "no permission to read" : "no permission to look into"));
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM power_sample"), 0);
	db_close(db);
	ck_assert_int_eq(chmod(root, 0755), 0);
}
END_TEST

/* More than are read, made in an order that is not theirs, and one without a name. */
START_TEST(test_many)
{
	const char *root = suite_path("many");
	char folder[32], name[32];
	struct toy toy;
	sqlite3 *db;

	ck_assert_int_eq(mkdir(root, 0755), 0);
	for (int i = 44; i >= 10; i--) {
		snprintf(folder, sizeof(folder), "intel-rapl:%d", i);
		snprintf(name, sizeof(name), "package-%d", i);
		fakes_put_domain(root, folder, i == 12 ? "" : name, "5");
	}
	fakes_set("MOETRACE_POWERCAP", root);
	toy = sources_start("many.db", "rapl");
	sources_wait_until_read(&toy);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	db = sources_finish(&toy);
	ck_assert_str_eq(sources_state(db, "rapl"), "on");
	ck_assert_str_eq(db_text(db, "SELECT reason FROM collector"),
			 "3 of 35 domains are left out: it reads 32 at most");
	ck_assert_str_eq(db_text(db, "SELECT count(DISTINCT domain) || min(domain) || max(domain)"
				     " FROM power_sample"), "32intel-rapl:12package-41");
	db_close(db);
}
END_TEST

/* A folder that is not there, an empty one, and a file in place of one. */
START_TEST(test_absent)
{
	static const char *const reasons[] = { "/nonexistent: No such file or directory: this machine",
					       ": no intel-rapl domain: this machine",
					       ": Not a directory: this machine" };
	const char *place = _i ? suite_path("place") : "/nonexistent";
	struct toy toy;
	sqlite3 *db;

	if (_i == 1)
		ck_assert_int_eq(mkdir(place, 0755), 0);
	else if (_i == 2)
		ck_assert_int_eq(close(open(place, O_CREAT | O_WRONLY | O_CLOEXEC, 0644)), 0);
	fakes_set("MOETRACE_POWERCAP", place);
	toy = sources_start("absent.db", "rapl");
	sources_wait_until_read(&toy);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	db = sources_finish(&toy);
	ck_assert_str_eq(sources_state(db, "rapl"), "absent");
	ck_assert(sources_say(db, "rapl", reasons[_i]));
	ck_assert(sources_say(db, "rapl", ", or MOETRACE_POWERCAP names the wrong folder"));
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM power_sample"), 0);
	db_close(db);
}
END_TEST

/* ---- trees that no kernel would make ---- */

static void put(const char *root, const char *domain, const char *file, const char *text)
{
	char folder[1024];

	snprintf(folder, sizeof(folder), "%s/%s", root, domain);
	fakes_put_file(folder, file, text);
}

/* A domain whose file is a folder. */
static void put_folder(const char *root, const char *domain, const char *file)
{
	char path[1100];

	snprintf(path, sizeof(path), "%s/%s/%s", root, domain, file);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkdir(path, 0755), 0);
}

/* Each domain but two is wrong in its own way, from the start on. */
static void make_hostile(const char *root)
{
	static const char *const folders[] = { "0", "1", "2", "3", "4", "5", "6", "7", "8" };
	char folder[32];

	ck_assert_int_eq(mkdir(root, 0755), 0);
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		snprintf(folder, sizeof(folder), "intel-rapl:%s", folders[i]);
		fakes_put_domain(root, folder, folders[i], "1000000");
	}
	put_folder(root, "intel-rapl:1", "energy_uj");
	put_folder(root, "intel-rapl:2", "name");
	put(root, "intel-rapl:3", "max_energy_range_uj", "0");
	put(root, "intel-rapl:4", "max_energy_range_uj", "99999999999999999999");
	put(root, "intel-rapl:5", "energy_uj", "-1");
	put(root, "intel-rapl:6", "energy_uj", "262143328851");
	put(root, "intel-rapl:7", "energy_uj", "0000000000000000000000000000001000000");
	/* What follows a name's line is none of it. */
	put(root, "intel-rapl:8", "name", "psys\nsecond line");
	fakes_set("MOETRACE_POWERCAP", root);
}

START_TEST(test_hostile)
{
	const char *root = suite_path("hostile");
	struct toy toy;
	char path[1100];
	sqlite3 *db;

	make_hostile(root);
	toy = sources_start("hostile.db", "rapl");
	sources_wait_until_read(&toy);
	db = db_open(toy.path);
	ck_assert(sources_say(db, "rapl", "7 of 9 domains cannot be read ("));
	ck_assert(sources_say(db, "rapl", "intel-rapl:7/energy_uj holds no number"));
	db_close(db);
	/* A domain that is there no more. */
	snprintf(path, sizeof(path), "%s/intel-rapl:8/energy_uj", root);
	ck_assert_int_eq(unlink(path), 0);
	WAIT_UNTIL(sources_hold(&toy, toy.path, "SELECT n_dropped > 0 FROM collector"));
	db = sources_finish(&toy);
	agree_prove(toy.path);
	ck_assert_str_eq(sources_state(db, "rapl"), "on");
	ck_assert(sources_say(db, "rapl", "No such file"));
	ck_assert_str_eq(db_text(db, "SELECT group_concat(DISTINCT domain) FROM power_sample"), "0,psys");
	db_close(db);
}
END_TEST

/* Domains of one name, in folders that begin alike for longer than a name is stored. */
START_TEST(test_names)
{
	const char *root = suite_path("names");
	char folder[100];
	struct toy toy;
	sqlite3 *db;

	ck_assert_int_eq(mkdir(root, 0755), 0);
	for (int i = 0; i < 12; i++) {
		snprintf(folder, sizeof(folder), "intel-rapl:%s:%d", "1234567890123456789012345678901234567890",
			 i);
		fakes_put_domain(root, folder, "uncore", "5");
	}
	fakes_put_domain(root, "intel-rapl:0", "memory", "5");
	fakes_put_domain(root, "intel-rapl:1", "gpu", "5");
	fakes_set("MOETRACE_POWERCAP", root);
	toy = sources_start("names.db", "rapl");
	sources_wait_until_read(&toy);
	db = sources_finish(&toy);
	agree_prove(toy.path);
	ck_assert_int_eq(db_int(db, "SELECT count(DISTINCT domain) FROM power_sample"), 14);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM power_sample WHERE domain IN ('gpu', 'memory')"),
			 0);
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rapl");
	TCase *tests = tcase_create("rapl");

	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, test_counters);
	tcase_add_loop_test(tests, test_denied, 0, 2);
	tcase_add_test(tests, test_many);
	tcase_add_loop_test(tests, test_absent, 0, 3);
	tcase_add_test(tests, test_hostile);
	tcase_add_test(tests, test_names);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
