/* SPDX-License-Identifier: MIT */
/*
 * Collectors against fakes: a management library beside the others; what is not there, what hangs, and
 * how recordings come and go. Expected values are those that the fakes give out.
 */
#include <link.h>
#include <stddef.h>
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

/* The vendor's libraries, as a program may have them in itself. */
#pragma GCC visibility push(default)
int cuDriverGetVersion(int *ret_version);
int cudaRuntimeGetVersion(int *ret_version);
int ncclGetVersion(int *ret_version);
#pragma GCC visibility pop

int cuDriverGetVersion(int *ret_version)
{
	*ret_version = 13010;
	return 0;
}

/* It does not know. */
int cudaRuntimeGetVersion(int *ret_version)
{
	(void)ret_version;
	return 1;
}

int ncclGetVersion(int *ret_version)
{
	*ret_version = 22809;
	return 0;
}

/* ---- all at once ---- */

/* Both GPUs, none of them attached: ten times a second at most, the rest once a second. */
static void expect_gpus(sqlite3 *db, int n_s)
{
	ck_assert_str_eq(db_text(db, "SELECT group_concat(name || power_limit_mw) FROM device"
				     " WHERE kind = 'cuda'"), "Fake GPU650000,Fake GPU650000");
	ck_assert_int_eq(db_int(db, "SELECT count(*) BETWEEN 2 AND 3 + 10 * %d FROM"
				    " power_sample WHERE device_id = 2 AND source = 'poll' AND domain ="
				    " 'gpu'", n_s), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM power_sample WHERE source = 'poll' AND"
				    " device_id > 1 AND domain = 'gpu' AND (instant_mw IS NOT 300000 OR average_mw IS NOT"
				    " 299000 OR energy_mj IS NULL OR cost_ns IS NULL)"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) BETWEEN 1 AND 3 + %d FROM power_sample WHERE"
				    " device_id = 2 AND limit_mw IN (700000, 650000) AND throttle_reasons = 4 AND"
				    " processor_mhz = 1980 AND memory_mhz = 2619 AND"
				    " temperature_c = 45", n_s), 1);
	/* Every change of the limit is there, and counts from when it was seen. */
	ck_assert_str_eq(db_text(db, "SELECT group_concat(limit_w) FROM (SELECT CAST(limit_w AS INTEGER) AS"
				     " limit_w, min(time_ns) AS since FROM power WHERE device_id = 2 AND"
				     " source = 'poll' GROUP BY 1 ORDER BY since)"), "700,650");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(device_id || ':' || pcie_generation || 'x' ||"
				     " pcie_width || ':' || coalesce(active_nvlinks || '/' || nvlinks,"
				     " '-')) FROM device_link"), "2:5x16:17/18,3:5x16:-");
}

/* Parts of them are domains of their own, as often as the GPU, and told in the same call. */
static void expect_parts(sqlite3 *db)
{
	ck_assert_str_eq(db_text(db, "SELECT group_concat(device_id || domain || instant_mw || '/' ||"
				     " average_mw || '/' || n) FROM (SELECT p.*, count(*) - (SELECT count(*)"
				     " FROM power_sample AS g WHERE g.device_id = p.device_id AND g.domain ="
				     " 'gpu' AND g.source = 'poll') AS n FROM power_sample AS p WHERE domain"
				     " IN ('module', 'memory') AND cost_ns IS NULL AND energy_mj IS NOT NULL"
				     " GROUP BY device_id, domain, instant_mw, average_mw)"),
			 "2memory60000/59000/0,3module500000/499000/0");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(DISTINCT device_id || domain || limit_mw) FROM"
				     " power_sample WHERE domain <> 'gpu' AND limit_mw IS NOT NULL"),
			 "3module900000");
	ck_assert_str_eq(db_text(db, "SELECT reason FROM collector WHERE name = 'nvml'"),
			 "power of GPUs is read; power of the module by 1, of memory by 1 of 2 GPU(s) "
			 "is not supported: it is unknown, not 0");
}

/* The driver's samples lie 20 ms apart, and only those of the recording are there. */
static void expect_samples(sqlite3 *db, int n_s)
{
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM power_sample WHERE device_id > 1 AND"
				    " source = 'buffer' AND domain <> 'gpu'"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) BETWEEN 10 AND 50 * (1 + %d) FROM"
				    " power_sample WHERE device_id = 2 AND source = 'buffer'", n_s), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM power_sample WHERE device_id = 3 AND"
				    " source = 'buffer'"), 0);
	/* The driver keeps a hundred: where nobody looked for longer, some are missing. */
	ck_assert_int_eq(db_int(db, "SELECT max(abs(gap - 20000000 * n)) < 1000000 AND min(n) = 1 AND"
				    " max(n) <= CASE WHEN (SELECT max(time_ns - before) < 1900000000 FROM"
				    " (SELECT time_ns, lag(time_ns) OVER (ORDER BY power_sample_id) AS before"
				    " FROM power_sample WHERE source = 'poll' AND device_id = 2 AND domain ="
				    " 'gpu')) THEN 1 ELSE 1000000 END FROM (SELECT gap, (gap + 10000000) /"
				    " 20000000 AS n FROM (SELECT time_ns - lag(time_ns) OVER (ORDER BY"
				    " power_sample_id) AS gap FROM power_sample WHERE source = 'buffer')"
				    " WHERE gap IS NOT NULL)"), 1);
}

static void expect_host(sqlite3 *db)
{
	ck_assert_int_eq(db_int(db, "SELECT count(*) >= 2 AND min(process_cpu_ns) > 0 AND"
				    " min(recorder_cpu_ns) >= 0 AND min(n_threads) >= 4 AND"
				    " min(resident_bytes) > 1000000 FROM host_sample"), 1);
	/* Some kernels do not tell the time of threads. */
	if (access("/proc/self/schedstat", R_OK) == 0)
		ck_assert_int_eq(db_int(db, "SELECT max(recorder_cpu_ns) > 0 FROM host_sample"), 1);
}

START_TEST(test_readings)
{
	const uint64_t begin_ns = suite_now_ns();
	struct toy toy;
	int n_s; /* seconds that it may have been recorded */
	sqlite3 *db;

	fakes_use("MOETRACE_NVML", "libfake_nvml.so");
	fakes_set("FAKE_NVML", "limit_falls");
	toy = sources_start("all.db", "host,nvml,null");
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	sources_wait_until_read(&toy);
	/* The rest of it once a second, and some of the driver's samples. */
	WAIT_UNTIL(sources_hold(&toy, toy.path,
				"SELECT sum(source = 'buffer') >= 10 AND max(limit_mw = 650000) FROM"
				" power_sample"));
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	n_s = 1 + (int)((suite_now_ns() - begin_ns) / 1000000000);
	db = sources_finish(&toy);
	agree_prove(toy.path);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(name || ':' || state) FROM (SELECT * FROM"
				     " collector ORDER BY name)"),
			 "host:on,null:on,nvml:on");
	expect_gpus(db, n_s);
	expect_parts(db);
	expect_samples(db, n_s);
	expect_host(db);
	ck_assert_str_eq(db_text(db, "SELECT version FROM collector WHERE name = 'nvml'"), "999.1");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(substr(key, 9) || '=' || value) FROM (SELECT *"
				     " FROM meta WHERE key LIKE 'version.%%' ORDER BY key)"),
			 "cuda_driver=13.1,driver=999.1,nccl=2.28.9,nvml=13.999.1");
	db_close(db);
}
END_TEST

/* ---- what is not there ---- */

static const struct {
	const char *what, *library, *fake, *state, *reason;
} nvml_states[] = {
	{ "no library", "/nonexistent/libnvidia-ml.so.1", "", "absent", "no NVML: " },
	{ "another library", "libm.so.6", "", "absent", "no nvmlInit_v2" },
	{ "no driver", NULL, "no_driver", "absent", "Driver Not Loaded" },
	{ "no permission", NULL, "no_permission", "denied", "Insufficient Permissions; let the user open "
							    "/dev/nvidiactl" },
	{ "no GPU", NULL, "no_gpu", "absent", "no GPU" },
	{ "no power", NULL, "unsupported", "unsupported", "neither power nor energy" },
};

START_TEST(test_nvml_state)
{
	struct toy toy;
	sqlite3 *db;

	fakes_use("MOETRACE_NVML", "libfake_nvml.so");
	if (nvml_states[_i].library)
		fakes_set("MOETRACE_NVML", nvml_states[_i].library);
	fakes_set("FAKE_NVML", nvml_states[_i].fake);
	toy = sources_start("state.db", "nvml");
	sources_wait_until_read(&toy);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	db = sources_finish(&toy);
	ck_assert_msg(strcmp(sources_state(db, "nvml"), nvml_states[_i].state) == 0, "%s: %s",
		      nvml_states[_i].what, sources_state(db, "nvml"));
	ck_assert_msg(db_int(db, "SELECT instr(reason, '%s') > 0 FROM collector",
			     nvml_states[_i].reason) == 1,
		      "%s: %s", nvml_states[_i].what, db_text(db, "SELECT reason FROM collector"));
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM power_sample"), 0);
	db_close(db);
}
END_TEST

/* What would stop or end the program in the loader, or what that has misleading words for. */
static const struct {
	const char *what, *reason;
} bad_libraries[] = {
	{ "pipe", "no regular file" },
	{ "device", "no regular file" },
	{ "folder", "no regular file" },
	{ "empty", "an empty file" },
	{ "text", "no ELF file" },
	{ "cut", "cut short" },
	{ "class", "no shared object for this machine" },
	{ "order", "no shared object for this machine" },
	{ "machine", "no shared object for this machine" },
};

/* In place of a library; of files all but two have the first page of the fake one, or begin like it. */
static void make_library(const char *what, const char *path)
{
	char bytes[4096] = "no library";
	FILE *from = fopen(getenv("MOETRACE_NVML"), "r");
	size_t n_bytes = strcmp(what, "empty") == 0 ? 0 : sizeof(bytes);
	FILE *to;

	ck_assert_ptr_nonnull(from);
	if (strcmp(what, "text") != 0)
		ck_assert_uint_eq(fread(bytes, 1, sizeof(bytes), from), sizeof(bytes));
	ck_assert_int_eq(fclose(from), 0);
	bytes[EI_CLASS] ^= strcmp(what, "class") == 0 ? ELFCLASS64 ^ ELFCLASS32 : 0;
	bytes[EI_DATA] ^= strcmp(what, "order") == 0 ? ELFDATA2LSB ^ ELFDATA2MSB : 0;
	bytes[offsetof(ElfW(Ehdr), e_machine)] ^= strcmp(what, "machine") == 0 ? 1 : 0;
	if (strcmp(what, "pipe") == 0) {
		ck_assert_int_eq(mkfifo(path, 0600), 0);
	} else if (strcmp(what, "folder") == 0) {
		ck_assert_int_eq(mkdir(path, 0700), 0);
	} else if (strcmp(what, "device") != 0) {
		to = fopen(path, "w");
		ck_assert_ptr_nonnull(to);
		ck_assert_uint_eq(fwrite(bytes, 1, n_bytes, to), n_bytes);
		ck_assert_int_eq(fclose(to), 0);
	}
}

START_TEST(test_bad_library)
{
	const char *what = bad_libraries[_i].what;
	const char *path = strcmp(what, "device") == 0 ? "/dev/zero" : suite_path(what);
	struct toy toy;
	sqlite3 *db;

	fakes_use("MOETRACE_NVML", "libfake_nvml.so");
	make_library(what, path);
	fakes_set("MOETRACE_NVML", path);
	fakes_set("MOETRACE_CUPTI", path);
	toy = sources_start("bad.db", "nvml,cupti");
	sources_wait_until_read(&toy);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	db = sources_finish(&toy);
	ck_assert_str_eq(sources_state(db, "nvml"), "absent");
	ck_assert_str_eq(sources_state(db, "cupti"), "absent");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM collector WHERE instr(reason, '%s') > 0",
				bad_libraries[_i].reason), 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM collector WHERE instr(reason, '%.60s') > 0",
				path), 2);
	db_close(db);
}
END_TEST

static bool no_answer_yet(uint32_t timeout_ms)
{
	uint64_t begin_ns;
	bool is_in_time;
	struct toy toy;
	sqlite3 *db;

	sources_give_calls(timeout_ms);
	begin_ns = suite_now_ns();
	toy = sources_start("unanswered.db", "nvml,null");
	sources_wait_in(&toy, toy.path, "name = 'nvml' OR n_calls >= 1 OR state = 'hung'");
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	is_in_time = suite_now_ns() - begin_ns < timeout_ms * UINT64_C(1000000);
	db = sources_finish(&toy);
	ck_assert_str_eq(sources_state(db, "nvml"), "hung");
	if (is_in_time) {
		ck_assert_str_eq(sources_state(db, "null"), "on");
		ck_assert_int_eq(db_int(db, "SELECT count(*) FROM collector WHERE name = 'nvml' AND"
					    " instr(reason, 'has not answered yet') > 0"), 1);
	}
	db_close(db);
	return is_in_time;
}

/* A recording that ends before it is known whether the start ever comes back. */
START_TEST(test_no_answer_yet)
{
	fakes_use("MOETRACE_NVML", "libfake_nvml.so");
	fakes_set("FAKE_NVML", "start_hangs");
	for (uint32_t timeout_ms = 800; !no_answer_yet(timeout_ms); timeout_ms *= 3)
		continue;
}
END_TEST

/* An old driver has one figure of power, which newer GPUs mean as an average. */
START_TEST(test_nvml_old)
{
	struct toy toy;
	sqlite3 *db;

	fakes_use("MOETRACE_NVML", "libfake_nvml_old.so");
	toy = sources_start("old.db", "nvml");
	sources_wait_until_read(&toy);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	db = sources_finish(&toy);
	ck_assert_str_eq(sources_state(db, "nvml"), "on");
	ck_assert_int_eq(db_int(db, "SELECT count(*) >= 2 AND min(average_mw) = 250000 AND"
				    " max(instant_mw) IS NULL AND max(energy_mj) IS NULL AND"
				    " max(limit_mw) IS NULL FROM power_sample"), 1);
	db_close(db);
}
END_TEST

START_TEST(test_nvml_slow)
{
	struct toy toy;
	sqlite3 *db;

	fakes_use("MOETRACE_NVML", "libfake_nvml.so");
	fakes_set("FAKE_NVML", "slow,no_instant");
	toy = sources_start("slow.db", "nvml");
	sources_wait_in(&toy, toy.path, "interval_ns > 100000000");
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	db = sources_finish(&toy);
	ck_assert_int_eq(db_int(db, "SELECT interval_ns > 100000000 AND longest_call_ns >= 20000000"
				    " FROM collector"), 1);
	ck_assert_int_eq(db_int(db, "SELECT min(cost_ns) >= 10000000 FROM power_sample WHERE"
				    " source = 'poll'"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM power_sample WHERE source = 'poll' AND"
				    " (instant_mw IS NOT NULL OR average_mw IS NULL)"), 0);
	db_close(db);
}
END_TEST

static bool nvml_hang(uint32_t timeout_ms)
{
	uint64_t begin_ns;
	struct toy toy;
	sqlite3 *db;
	bool is_late;

	sources_give_calls(timeout_ms);
	toy = sources_start("hang.db", "nvml,host");
	sources_wait_in(&toy, toy.path, "iif(name = 'nvml', state = 'hung' AND instr(reason, 'did not come back'),"
				" n_calls >= 1)");
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	begin_ns = suite_now_ns();
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	db = sources_finish(&toy);
	ck_assert_uint_lt(suite_now_ns() - begin_ns, UINT64_C(30000000000));
	ck_assert_str_eq(sources_state(db, "nvml"), "hung");
	ck_assert_int_eq(db_int(db, "SELECT instr(reason, 'did not come back for %u ms') > 0 FROM collector"
				    " WHERE name = 'nvml'", timeout_ms), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 1);
	is_late = sources_was_late(db, "host", timeout_ms);
	if (!is_late)
		ck_assert_str_eq(sources_state(db, "host"), "on");
	db_close(db);
	return !is_late;
}

/* Cut off in a look or as it starts: recording goes on, and nothing waits for it for long. */
START_TEST(test_nvml_hang)
{
	fakes_use("MOETRACE_NVML", "libfake_nvml.so");
	fakes_set("FAKE_NVML", _i ? "start_hangs" : "hang");
	for (uint32_t timeout_ms = 100; !nvml_hang(timeout_ms); timeout_ms *= 8)
		continue;
}
END_TEST

static bool nvml_end_hangs(uint32_t timeout_ms, bool stops)
{
	uint64_t begin_ns;
	uint32_t wait_ms;
	struct toy toy;
	sqlite3 *db;
	bool is_late;

	sources_give_calls(timeout_ms);
	toy = sources_start("end.db", "nvml,host");
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 1));
	sources_wait_until_read(&toy);
	if (stops)
		ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	begin_ns = suite_now_ns();
	toy_close(&toy);
	ck_assert_uint_lt(suite_now_ns() - begin_ns, UINT64_C(30000000000));
	db = db_open(toy.path);
	agree_check(db);
	agree_prove(toy.path);
	ck_assert_str_eq(sources_state(db, "nvml"), "hung");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 1);
	/* Ends are waited for as long as that of a recording, and not longer than calls are. */
	wait_ms = timeout_ms < 500 ? timeout_ms : timeout_ms / 6 < 500 ? 500 : timeout_ms / 6;
	is_late = strcmp(sources_state(db, "host"), "on") != 0 ||
		  !sources_say(db, "nvml", "its end did not come back");
	if (!is_late) {
		ck_assert_str_eq(sources_state(db, "host"), "on");
		ck_assert_int_eq(db_int(db, "SELECT CAST(substr(reason, length('its end did not come back for ')"
					    " + 1) AS INTEGER) >= %u AND n_dropped IS NULL FROM collector"
					    " WHERE name = 'nvml' AND recording_id = 1", wait_ms), 1);
		ck_assert_int_eq(db_int(db, "SELECT count(*) > 0 FROM power_sample"), 1);
	}
	db_close(db);
	return !is_late;
}

/*
 * Its end does not come back: the program's does, and the file is whole. The end of the program may be
 * that of the recording.
 */
START_TEST(test_nvml_end_hangs)
{
	fakes_use("MOETRACE_NVML", "libfake_nvml.so");
	fakes_set("FAKE_NVML", "end_stalls");
	for (uint32_t timeout_ms = 150; !nvml_end_hangs(timeout_ms, _i == 0); timeout_ms *= 8)
		continue;
}
END_TEST

/* ---- life ---- */

/* Each recording has its own counters, a file of its own too; between them nothing is read. */
START_TEST(test_recordings)
{
	char next[1024];
	struct toy toy;
	sqlite3 *db;

	fakes_use("MOETRACE_NVML", "libfake_nvml.so");
	toy = sources_start("first.db", "nvml");
	sources_wait_until_read(&toy);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	suite_sleep_ms(250);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	sources_wait_until_read(&toy);
	snprintf(next, sizeof(next), "%s", suite_path("next.db"));
	ck_assert_int_eq(moetrace_rotate(toy.session, next), MOETRACE_OK);
	sources_wait_in(&toy, next, SOURCES_ANSWERED);
	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_OK);
	db = sources_finish(&toy);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM collector WHERE state = 'on' AND"
				    " n_calls < 5000"), 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM device_link"), 4);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM power_sample AS p JOIN recording AS r USING"
				    " (recording_id) WHERE time_ns NOT BETWEEN start_ns AND end_ns"), 0);
	db_close(db);
	agree_prove(next);
	db = db_open(next);
	agree_check(db);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM device_link"), 2);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM meta WHERE key LIKE 'version.%%'"), 4);
	ck_assert_int_eq(db_int(db, "SELECT count(*) >= 2 FROM power_sample WHERE device_id = 3"), 1);
	db_close(db);
}
END_TEST

/* The writer is there before the collectors, and looks for them: a race, if they are not handed over. */
START_TEST(test_writer_looks_early)
{
	struct moetrace_session_opts opts = toy_opts();
	struct moetrace_session *session;
	const char *path = suite_path("early.db");

	fakes_be_patient();
	opts.collectors = "null";
	ck_assert_int_eq(moetrace_session_open(path, &opts, &session), MOETRACE_OK);
	/* It looks once a second; no call between the two, which would put them in order. */
	suite_sleep_ms(1300);
	ck_assert_int_eq(moetrace_session_close(session), MOETRACE_OK);
	agree_check_file(path);
}
END_TEST

static const struct {
	const char *list, *says;
} wrong_lists[] = {
	{ ",", "MOETRACE_COLLECTORS: an entry has no name: give some of host,rapl," },
	{ "host,", "an entry has no name" },
	{ "host,,rapl", "an entry has no name" },
	{ "=graph", "an entry has no name" },
	{ "host, rapl", "there is no collector ' rapl'" },
	{ "host,none", "there is no collector 'none': give some of host,rapl,nvml,nvtx,cupti,null, or none by itself" },
	{ "cupti=foo", "cupti has no mode 'foo': give off, graph, eager, kernel, kernel:every=N" },
	{ "cupti=", "cupti has no mode '': give off" },
	{ "cupti=kernel:every=0", "cupti has no mode 'kernel:every=0'" },
	{ "cupti=kernel:every=00000000000000000000000001", "cupti has no mode 'kernel:every=0" },
	{ "watts=graph", "there is no collector 'watts'" },
	{ "host=fast", "host has no modes: give host alone" },
	{ "cupti=graph,cupti=kernel", "cupti is asked in two ways: give it once" },
	{ "cupti,host,cupti=off", "cupti is asked in two ways: give it once" },
};

START_TEST(test_unknown)
{
	struct moetrace_session_opts opts = toy_opts();
	const char *refused = suite_path("w.db");
	struct moetrace_session *session;

	opts.collectors = "host,power";
	ck_assert_int_eq(moetrace_session_open(suite_path("x.db"), &opts, &session),
			 MOETRACE_E_INVALID);
	ck_assert_ptr_nonnull(strstr(moetrace_open_errmsg(), "no collector 'power'"));
	ck_assert_ptr_nonnull(strstr(moetrace_open_errmsg(), "host,rapl,nvml"));
	fakes_set("MOETRACE_COLLECTORS", "watts");
	ck_assert_int_eq(moetrace_session_open(suite_path("z.db"), &opts, &session),
			 MOETRACE_E_INVALID);
	ck_assert_ptr_nonnull(strstr(moetrace_open_errmsg(),
				     "MOETRACE_COLLECTORS: there is no collector 'watts'"));
	for (size_t i = 0; i < sizeof(wrong_lists) / sizeof(wrong_lists[0]); i++) {
		fakes_set("MOETRACE_COLLECTORS", wrong_lists[i].list);
		ck_assert_int_eq(moetrace_session_open(refused, &opts, &session),
				 MOETRACE_E_INVALID);
		ck_assert_msg(strstr(moetrace_open_errmsg(), wrong_lists[i].says) != NULL, "%s: %s",
			      wrong_lists[i].list, moetrace_open_errmsg());
	}
	fakes_set("MOETRACE_COLLECTORS", "none");
	/* A variable of one of them is looked at where nobody asks for it, too. */
	fakes_set("MOETRACE_CUPTI_MODE", "foo");
	ck_assert_int_eq(moetrace_session_open(refused, &opts, &session), MOETRACE_E_INVALID);
	ck_assert_str_eq(moetrace_open_errmsg(),
			 "MOETRACE_CUPTI_MODE is 'foo': set it to off, graph, eager, kernel, "
			 "kernel:every=N (1 to 1000000), kernel:per_s=N (1 to 100) or "
			 "kernel:window=START+LENGTH (seconds)");
	fakes_set("MOETRACE_CUPTI_MODE", "eager");
	fakes_set("MOETRACE_KERNEL_ROLES", "*my_gemm*=experts,*x*=nothing");
	ck_assert_int_eq(moetrace_session_open(refused, &opts, &session), MOETRACE_E_INVALID);
	ck_assert_str_eq(moetrace_open_errmsg(),
			 "MOETRACE_KERNEL_ROLES has '*x*=nothing': write PATTERN=ROLE, with commas "
			 "between entries and no blanks around them; roles are gate, topk, align, dispatch, experts, combine, "
			 "shared, attention, norm, embed, head, collective, copy and other");
	fakes_set("MOETRACE_KERNEL_ROLES", "*my_gemm*=experts,*x*=norm");
	ck_assert_int_eq(moetrace_session_open(suite_path("y.db"), &opts, &session), MOETRACE_OK);
	ck_assert_int_eq(moetrace_session_close(session), MOETRACE_OK);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("collectors");
	TCase *tests = tcase_create("collectors");

	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, test_readings);
	tcase_add_loop_test(tests, test_nvml_state, 0,
			    sizeof(nvml_states) / sizeof(nvml_states[0]));
	tcase_add_loop_test(tests, test_bad_library, 0,
			    sizeof(bad_libraries) / sizeof(bad_libraries[0]));
	tcase_add_test(tests, test_no_answer_yet);
	tcase_add_test(tests, test_nvml_old);
	tcase_add_test(tests, test_nvml_slow);
	tcase_add_loop_test(tests, test_nvml_hang, 0, 2);
	tcase_add_loop_test(tests, test_nvml_end_hangs, 0, 2);
	tcase_add_test(tests, test_recordings);
	/* Nobody else sees it. */
	if (suite_has_sanitizer("thread"))
		tcase_add_test(tests, test_writer_looks_early);
	tcase_add_test(tests, test_unknown);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
