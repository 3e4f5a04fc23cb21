/* SPDX-License-Identifier: MIT */
/* Rules of recordings and files: r11, r12, r13 and r15, a dump, a rotation, and sums by mode. */
#include "tests/contract/rules/rules.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/said.h"
#include "tests/unit/support/suite.h"

START_TEST(r11_start_twice_and_stop_twice_lose_nothing)
{
	struct toy toy = toy_open("r11.db", NULL, 1, 64, 2);
	sqlite3 *db;

	ck_assert_int_eq(moetrace_stop(toy.session, NULL), MOETRACE_E_STATE);
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_E_STATE);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 4));
	ck_assert_int_eq(moetrace_stop(toy.session, "first"), MOETRACE_OK);
	ck_assert_int_eq(moetrace_stop(toy.session, "again"), MOETRACE_E_STATE);
	ck_assert(!toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 5));
	ck_assert_int_eq(moetrace_start(toy.session, NULL), MOETRACE_OK);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 6));
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(s) FROM (SELECT recording_id || ':' || n_rows"
				     " AS s FROM pass ORDER BY pass_id)"), "1:3,1:4,2:6");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(end_reason) FROM recording"), "first,closed");
	db_close(db);
}
END_TEST

/* All that a recording has of passes up to @last, as text; experts decoded by the view. */
static char *cut_of(const char *path, int64_t last)
{
	sqlite3 *db = db_open(path);
	char *text = strdup(db_text(
		db, "SELECT (SELECT group_concat(p.pass_id || p.phase || p.begin_ns || p.n_rows ||"
		    " p.verdict) FROM pass AS p WHERE p.pass_id <= %lld) || (SELECT"
		    " group_concat(pass_id || ':' || slice || ':' || request_id || ':' ||"
		    " first_position || ':' || n_rows) FROM pass_request WHERE pass_id <= %lld) ||"
		    " (SELECT group_concat(pass_id || ':' || layer_id || ':' || active_experts || ':'"
		    " || max_load || ':' || selected_ns) FROM pass_layer WHERE pass_id <= %lld) ||"
		    " (SELECT group_concat(pass_id || ':' || row || ':' || layer || ':' ||"
		    " hex(topk_ids) || hex(topk_weights)) FROM token_topk WHERE pass_id <= %lld)",
		(long long)last, (long long)last, (long long)last, (long long)last));

	db_close(db);
	return text;
}

START_TEST(r11_a_dump_is_the_recording_cut_at_its_watermark)
{
	const char *build = getenv("MOETRACE_BUILDDIR");
	const char *folder = suite_path("sockets"), *part = suite_path("part.db");
	struct toy toy;
	uint64_t request;
	int64_t last;
	char command[8192], *in_part, *in_whole;
	sqlite3 *db;

	/* With ThreadSanitizer only libraries and tests are built. */
	if (!build || suite_has_sanitizer("thread"))
		return;
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	setenv("MOETRACE_SOCKET_DIR", folder, 1);
	toy = toy_start("whole.db", NULL, 2, 64, 4);
	request = toy_request(&toy, "r");
	for (uint32_t i = 0; i < 20; i++)
		ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, i, 1));
	snprintf(command, sizeof(command),
		 "'%s/cli/moetrace' dump %ld -o '%s' >/dev/null", build, (long)getpid(), part);
	ck_assert_int_eq(system(command), 0);
	/* It goes on as if nothing had been. */
	for (uint32_t i = 20; i < 30; i++)
		ck_assert(toy_pass(&toy, MOETRACE_PHASE_DECODE, request, i, 1));
	toy_end(&toy, request, 30);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass"), 30);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM recording"), 1);
	ck_assert_str_eq(toy_verdict(db, "r"), "complete");
	db_close(db);
	agree_prove(part);
	db = db_open(part);
	last = db_int(db, "SELECT max(pass_id) FROM pass");
	ck_assert_str_eq(db_text(db, "SELECT end_reason FROM recording"), "dump");
	ck_assert_str_eq(toy_verdict(db, "r"), "unfinished");
	db_close(db);
	ck_assert_int_eq(last, 20);
	in_part = cut_of(part, INT64_MAX);
	in_whole = cut_of(toy.path, last);
	ck_assert_str_eq(in_part, in_whole);
	free(in_part);
	free(in_whole);
}
END_TEST

struct runner {
	struct toy toy;
	atomic_int ends;	   /* release: set by the test, acquired by the thread */
	_Atomic uint64_t n_passes; /* relaxed: only counted */
};

static void *passes_run(void *arg)
{
	struct runner *runner = arg;
	struct moetrace_pass_info info;
	uint64_t n_passes = 0;

	MOETRACE_INIT(&info);
	info.model = runner->toy.model;
	info.phase = MOETRACE_PHASE_DUMMY;
	info.n_rows = 2;
	info.runtime_pass = &n_passes;
	while (!atomic_load_explicit(&runner->ends, memory_order_acquire)) {
		toy_finish(&runner->toy, moetrace_pass_begin(runner->toy.session, &info), 2);
		atomic_store_explicit(&runner->n_passes, ++n_passes, memory_order_relaxed);
		/* As many as the ring holds of in some seconds. */
		if (n_passes % 16 == 0)
			suite_sleep_ms(1);
	}
	return NULL;
}

/* Until some passes both began and ended, however slow the machine is. */
static void passes_wait(struct runner *runner)
{
	const uint64_t from = atomic_load_explicit(&runner->n_passes, memory_order_relaxed);

	WAIT_UNTIL(atomic_load_explicit(&runner->n_passes, memory_order_relaxed) >= from + 64);
}

START_TEST(s_a_rotation_loses_nothing_at_the_boundary)
{
	const char *paths[4] = {NULL, suite_path("1.db"), suite_path("2.db"), suite_path("3.db")};
	struct moetrace_session_opts opts = toy_opts();
	struct runner runner = {.ends = 0};
	int64_t next = 0;
	pthread_t thread;

	/* The writer may have to wait for a processor that the thread has. */
	opts.ring_bytes = UINT64_C(32) << 20;
	runner.toy = toy_start("0.db", &opts, 2, 64, 2);
	paths[0] = runner.toy.path;
	ck_assert_int_eq(pthread_create(&thread, NULL, passes_run, &runner), 0);
	for (uint32_t i = 1; i < 4; i++) {
		passes_wait(&runner);
		ck_assert_int_eq(moetrace_rotate(runner.toy.session, paths[i]), MOETRACE_OK);
	}
	passes_wait(&runner);
	atomic_store_explicit(&runner.ends, 1, memory_order_release);
	pthread_join(thread, NULL);
	toy_close(&runner.toy);
	for (uint32_t i = 0; i < 4; i++) {
		sqlite3 *db = db_open(paths[i]);
		int64_t n = db_int(db, "SELECT count(*) FROM pass");

		agree_prove(paths[i]);
		ck_assert_int_gt(n, 0);
		ck_assert_int_eq(db_int(db, "SELECT min(runtime_pass) FROM pass"), next);
		ck_assert_int_eq(db_int(db, "SELECT count(DISTINCT runtime_pass) FROM pass WHERE verdict"
					    " = 'complete'"), n);
		next += n;
		ck_assert_int_eq(db_int(db, "SELECT max(runtime_pass) + 1 FROM pass"), next);
		ck_assert_int_eq(db_int(db, "SELECT sum(value) FROM stats WHERE name LIKE 'dropped%%'"),
				 0);
		db_close(db);
	}
	ck_assert_uint_eq(atomic_load_explicit(&runner.n_passes, memory_order_relaxed),
			  (uint64_t)next);
}
END_TEST

/* What a recording of each mode must add up to; rows: 4 + 3 + 2 of three passes, padding 1. */
START_TEST(s_the_sums_of_each_mode)
{
	static const char *const sums[] = {
		[MOETRACE_MODE_PER_TOKEN] =
			("SELECT group_concat(n) FROM (SELECT sum(n_rows * k) AS n FROM topk UNION ALL"
			" SELECT count(*) * 4 FROM token_topk WHERE state = 'computed' UNION ALL SELECT"
			" count(*) FROM routed_expert)"),
		[MOETRACE_MODE_PER_PASS] =
			("SELECT group_concat(n) FROM (SELECT sum(b.value) AS n FROM layer_load AS l JOIN"
			" (SELECT value - 1 AS at FROM byte WHERE value BETWEEN 1 AND 64) JOIN byte AS b"
			" ON b.byte = substr(counts, at + 1, 1) WHERE count_bytes = 1 UNION ALL SELECT"
			" sum(n_rows) * 2 * 4 FROM pass UNION ALL SELECT 9 * 2 * 4)"),
		[MOETRACE_MODE_STAT] =
			("SELECT group_concat(n) FROM (SELECT 9 * 2 * 4 AS n UNION ALL SELECT value FROM"
			" stats WHERE name = 'load_assignments' UNION ALL SELECT count(*) + 72 FROM pass)"),
	};
	struct moetrace_recording_opts recording;
	struct toy toy = toy_open("sums.db", NULL, 2, 64, 4);
	struct moetrace_slice slice = {.request = toy_request(&toy, "r")};
	struct moetrace_pass_info info;
	sqlite3 *db;

	MOETRACE_INIT(&recording);
	recording.mode = (uint32_t)_i;
	ck_assert_int_eq(moetrace_start(toy.session, &recording), MOETRACE_OK);
	MOETRACE_INIT(&info);
	info.model = toy.model;
	info.slices = &slice;
	info.n_slices = 1;
	info.padding_rows = 1;
	for (uint32_t n = 4; n > 1; n--) {
		info.phase = n == 4 ? MOETRACE_PHASE_PREFILL : MOETRACE_PHASE_DECODE;
		info.n_rows = slice.n_rows = n;
		toy_finish(&toy, moetrace_pass_begin(toy.session, &info), n + 1);
		slice.first_position += n;
	}
	toy_end(&toy, slice.request, 9);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(db_text(db, "%s", sums[_i]), "72,72,72");
	/* The windows hold the same in every mode, by phase, and padding apart. */
	ck_assert_str_eq(db_text(db, "SELECT sum(prefill_tokens) || ' ' || sum(decode_tokens) || ' ' ||"
				     " sum(verify_tokens + other_tokens) || ' ' || sum(padding_tokens)"
				     " FROM expert_load_window"), "32 40 0 24");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM expert_load_window AS w JOIN layer USING"
				    " (layer_id) WHERE prefill_tokens <> (SELECT count(*) FROM byte AS r"
				    " JOIN byte AS k WHERE r.value < 4 AND k.value < 4 AND (r.value * 7 +"
				    " layer * 3 + k.value) %% 64 = expert)"), 0);
	db_close(db);
}
END_TEST

START_TEST(r12_a_file_says_which_rank_of_how_many_it_is)
{
	const char *paths[2];
	struct moetrace_session *refused;
	sqlite3_stmt *attach;
	sqlite3 *db;

	for (uint32_t rank = 0; rank < 2; rank++) {
		struct moetrace_session_opts opts = toy_opts();
		struct toy toy;

		opts.ep.rank = rank;
		opts.ep.n_ranks = 2;
		toy = toy_start(rank ? "rank1.db" : "rank0.db", &opts, 2, 64, 4);
		paths[rank] = toy.path;
		ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3 + rank));
		ck_assert_int_eq(moetrace_session_open(toy.path, &opts, &refused), MOETRACE_E_EXISTS);
		toy_close(&toy);
		agree_prove(toy.path);
	}
	db = db_open(paths[0]);
	attach = db_query(db, "ATTACH %Q AS other", paths[1]);
	db_step(attach);
	sqlite3_finalize(attach);
	/* What joins the parts can tell that every rank is there once, and that they fit. */
	ck_assert_str_eq(db_text(db, "SELECT group_concat(ep_rank || '/' || ep_size) FROM (SELECT * FROM"
				     " main.process UNION ALL SELECT * FROM other.process)"),
			 "0/2,1/2");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM (SELECT * FROM main.layer EXCEPT SELECT * FROM"
				    " other.layer)"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(DISTINCT value) FROM (SELECT * FROM main.meta UNION"
				    " ALL SELECT * FROM other.meta) WHERE key = 'session_uuid'"), 2);
	ck_assert_int_eq(db_int(db, "SELECT count(DISTINCT host || boot_id) FROM (SELECT * FROM"
				    " main.process UNION ALL SELECT * FROM other.process)"), 1);
	db_close(db);
}
END_TEST

START_TEST(r13_runs_of_blobs_that_a_stock_sqlite_reads)
{
	struct toy toy = toy_start("r13.db", NULL, 3, 64, 4);
	sqlite3 *db;
	char wal[4200];

	for (uint32_t i = 0; i < 400; i++)
		ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 16));
	ck_assert_int_eq(moetrace_flush(toy.session), MOETRACE_OK);
	db = db_open(toy.path);
	ck_assert_str_eq(db_text(db, "PRAGMA journal_mode"), "wal");
	db_close(db);
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(db_text(db, "PRAGMA journal_mode"), "delete");
	snprintf(wal, sizeof(wal), "%s-wal", toy.path);
	ck_assert_int_ne(access(wal, F_OK), 0);
	ck_assert_int_eq(db_int(db, "PRAGMA application_id"), 0x4d6f4574);
	ck_assert_int_eq(db_int(db, "PRAGMA user_version"), 1001);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM sqlite_schema WHERE type IN ('index',"
				    " 'trigger') AND sql IS NOT NULL"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM sqlite_schema AS s, pragma_table_info(s.name)"
				    " AS c WHERE s.type = 'table' AND c.type NOT IN ('INTEGER', 'REAL',"
				    " 'TEXT', 'BLOB')"), 0);
	/* 400 x 3 layers x 16 rows x 4 ids: a few runs, each of at most 64 KiB. */
	ck_assert_int_eq(db_int(db, "SELECT sum(n_rows) FROM topk"), 400 * 3 * 16);
	ck_assert_int_lt(db_int(db, "SELECT count(*) FROM topk"), 40);
	ck_assert_int_le(db_int(db, "SELECT max(length(topk_ids)) FROM topk"), 65536);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM topk WHERE length(topk_ids) <> n_rows * k *"
				    " id_bytes OR length(topk_weights) <> n_rows * k * 2"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM pass AS p JOIN pass AS q ON q.pass_id ="
				    " p.pass_id + 1 WHERE q.end_ns < p.end_ns"), 0);
	db_close(db);
}
END_TEST

START_TEST(r15_no_path_is_written_over_and_the_file_says_where_it_is_from)
{
	struct moetrace_session_opts opts = toy_opts();
	const char *taken = suite_path("taken.db");
	struct moetrace_session *session;
	struct stat info;
	struct toy toy;
	FILE *file = fopen(taken, "w");
	char text[8] = "";
	sqlite3 *db;

	ck_assert_ptr_nonnull(file);
	fputs("mine", file);
	fclose(file);
	ck_assert_int_eq(moetrace_session_open(taken, &opts, &session), MOETRACE_E_EXISTS);
	file = fopen(taken, "r");
	ck_assert_ptr_nonnull(fgets(text, sizeof(text), file));
	fclose(file);
	ck_assert_str_eq(text, "mine");
	opts.engine_version = "7";
	toy = toy_start("r15.db", &opts, 1, 64, 2);
	ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0, 3));
	db = toy_prove_and_open(&toy, 0);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(value) FROM (SELECT value FROM meta WHERE key"
				     " IN ('format', 'engine_name', 'engine_version') ORDER BY key)"),
			 "toy,7,moetrace");
	ck_assert_int_ge(db_int(db, "SELECT length(value) FROM meta WHERE key = 'session_uuid'"), 16);
	ck_assert_int_eq(db_int(db, "SELECT pid FROM process"), getpid());
	ck_assert_int_eq(db_int(db, "SELECT length(host) > 0 AND length(executable) > 0 FROM process"),
			 1);
	/* A pass has a place in the calendar, and it is now. */
	ck_assert_int_eq(stat(toy.path, &info), 0);
	ck_assert_int_lt(llabs(db_int(db, "SELECT (c.realtime_ns + p.begin_ns - c.session_ns) /"
					  " 1000000000 FROM pass AS p, clock_snapshot AS c LIMIT 1") -
			       (int64_t)info.st_mtime), 60);
	db_close(db);
}
END_TEST

TCase *rules_of_files(void)
{
	TCase *tcase = tcase_create("files");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, r11_start_twice_and_stop_twice_lose_nothing);
	tcase_add_test(tcase, r11_a_dump_is_the_recording_cut_at_its_watermark);
	tcase_add_test(tcase, r12_a_file_says_which_rank_of_how_many_it_is);
	tcase_add_test(tcase, r13_runs_of_blobs_that_a_stock_sqlite_reads);
	tcase_add_test(tcase, r15_no_path_is_written_over_and_the_file_says_where_it_is_from);
	tcase_add_test(tcase, s_a_rotation_loses_nothing_at_the_boundary);
	tcase_add_loop_test(tcase, s_the_sums_of_each_mode, 0, 3);
	return tcase;
}
