/* SPDX-License-Identifier: MIT */
/*
 * The writer's cost: CPU time of the writing thread for each assignment (one expert of one row
 * of one layer), 64 rows x 8 experts as u8 + fp16, 58 layers a pass, on /dev/shm. Beside it,
 * in the same run and by turns, bare SQLite: one thread that inserts blobs of the same size
 * into a table with the same columns, pragmas and commits, and does nothing else. Both go once
 * at 20 million assignments a second and once as fast as they can; the blobs of both come from
 * memory far larger than the caches.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include "bench/load.h"

enum {
	N_LAYERS = 58,
	N_ROWS = 64,
	N_ROUNDS = 5,
	N_PASSES = 1400, /* two seconds at the pace below */
	PASS_ASSIGNMENTS = N_LAYERS * N_ROWS * LOAD_TOP_K,
	RUN_ROWS = 65536 / (LOAD_TOP_K * 3), /* rows of a run of 64 KiB */
	COMMIT_MS = 200,
	SOURCE_BYTES = 96 << 20,
};

static const double pace = 20e6; /* assignments a second */
static const double bar_rate = 40e6;
static const double bar_ratio = 0.6;

/* Assignments for a second of the writing thread's CPU time. */
static double run_recorder(uint32_t n_slices, bool is_paced)
{
	struct moetrace_session_status before, after;
	struct moetrace_session_opts opts;
	uint64_t start_ns;
	struct load load;
	uint32_t i;

	/* Without a pace the ring takes all of it, so that nothing is dropped. */
	MOETRACE_INIT(&opts);
	opts.n_rings = is_paced ? 0 : 1;
	opts.ring_bytes = is_paced ? 0 : UINT64_C(256) << 20;
	load_open(&load, "/dev/shm", &opts, N_LAYERS, 256, N_ROWS, n_slices);
	load_pass(&load);
	moetrace_flush(load.session);
	before = load_status(&load);
	start_ns = load_now_ns();
	for (i = 0; i < N_PASSES; i++) {
		load_pass(&load);
		if (is_paced)
			load_sleep_until_ns(start_ns +
					    (uint64_t)((i + 1) * (PASS_ASSIGNMENTS / pace * 1e9)));
	}
	moetrace_flush(load.session);
	after = load_status(&load);
	if (after.recorded_assignments != (uint64_t)(N_PASSES + 1) * PASS_ASSIGNMENTS)
		load_die("bench_writer", "passes were dropped, so the time says nothing");
	load_close(&load, false);
	return (double)N_PASSES * PASS_ASSIGNMENTS * 1e9 /
	       (double)(after.writer_cpu_ns - before.writer_cpu_ns);
}

static void execute(sqlite3 *db, const char *sql)
{
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		load_die(sql, sqlite3_errmsg(db));
}

/* The page size that the recorder chose. */
static int page_bytes(void)
{
	sqlite3_stmt *stmt = NULL;
	struct load load;
	sqlite3 *db;
	int bytes;

	load_open(&load, "/dev/shm", NULL, 1, 64, 1, 1);
	load_close(&load, true);
	if (sqlite3_open(load.path, &db) != SQLITE_OK ||
	    sqlite3_prepare_v2(db, "PRAGMA page_size", -1, &stmt, NULL) != SQLITE_OK ||
	    sqlite3_step(stmt) != SQLITE_ROW)
		load_die(load.path, sqlite3_errmsg(db));
	bytes = sqlite3_column_int(stmt, 0);
	sqlite3_finalize(stmt);
	sqlite3_close(db);
	unlink(load.path);
	return bytes;
}

static sqlite3 *open_bare(const char *path, int n_page_bytes)
{
	char sql[64];
	sqlite3 *db;

	unlink(path);
	if (sqlite3_open(path, &db) != SQLITE_OK)
		load_die(path, sqlite3_errmsg(db));
	snprintf(sql, sizeof(sql), "PRAGMA page_size = %d", n_page_bytes);
	execute(db, sql);
	execute(db, "PRAGMA journal_mode = WAL");
	execute(db, "PRAGMA synchronous = NORMAL");
	execute(db, "PRAGMA cache_size = -65536");
	execute(db, "CREATE TABLE topk (topk_id INTEGER PRIMARY KEY, n_rows INTEGER NOT NULL,"
		    " k INTEGER NOT NULL, id_bytes INTEGER NOT NULL, weight_format TEXT NOT NULL,"
		    " topk_ids BLOB NOT NULL, topk_weights BLOB, row_map BLOB, n_valid BLOB)");
	return db;
}

static void insert_run(sqlite3_stmt *stmt, const void *ids, const void *weights)
{
	sqlite3_bind_int(stmt, 1, RUN_ROWS);
	sqlite3_bind_int(stmt, 2, LOAD_TOP_K);
	sqlite3_bind_int(stmt, 3, 1);
	sqlite3_bind_text(stmt, 4, "fp16", 4, SQLITE_STATIC);
	sqlite3_bind_blob(stmt, 5, ids, RUN_ROWS * LOAD_TOP_K, SQLITE_STATIC);
	sqlite3_bind_blob(stmt, 6, weights, RUN_ROWS * LOAD_TOP_K * 2, SQLITE_STATIC);
	if (sqlite3_step(stmt) != SQLITE_DONE)
		load_die("insert", sqlite3_errmsg(sqlite3_db_handle(stmt)));
	sqlite3_reset(stmt);
}

/* The same assignments as blobs, with a commit for as many as the recorder's hold. */
static double run_bare(int n_page_bytes, const unsigned char *source, bool is_paced)
{
	const uint64_t run_assignments = RUN_ROWS * LOAD_TOP_K;
	const uint64_t n_runs = (uint64_t)N_PASSES * PASS_ASSIGNMENTS / run_assignments;
	const uint64_t commit_runs = (uint64_t)(pace * COMMIT_MS / 1000) / run_assignments;
	char path[64];
	sqlite3_stmt *stmt;
	uint64_t before_ns, start_ns, i;
	size_t at = 0;
	double rate;
	sqlite3 *db;

	snprintf(path, sizeof(path), "/dev/shm/moetrace-bare-%ld.db", (long)getpid());
	db = open_bare(path, n_page_bytes);
	if (sqlite3_prepare_v2(db,
			       "INSERT INTO topk (n_rows, k, id_bytes, weight_format, topk_ids,"
			       " topk_weights) VALUES (?, ?, ?, ?, ?, ?)",
			       -1, &stmt, NULL) != SQLITE_OK)
		load_die("prepare", sqlite3_errmsg(db));
	before_ns = load_thread_cpu_ns();
	start_ns = load_now_ns();
	execute(db, "BEGIN");
	for (i = 0; i < n_runs; i++) {
		insert_run(stmt, source + at, source + at + run_assignments);
		at = (at + 3 * run_assignments) % (SOURCE_BYTES - 3 * run_assignments);
		if (is_paced)
			load_sleep_until_ns(
				start_ns +
				(uint64_t)((double)((i + 1) * run_assignments) / pace * 1e9));
		if (i % commit_runs == commit_runs - 1)
			execute(db, "COMMIT; BEGIN");
	}
	execute(db, "COMMIT");
	rate = (double)(n_runs * run_assignments) * 1e9 /
	       (double)(load_thread_cpu_ns() - before_ns);
	sqlite3_finalize(stmt);
	sqlite3_close(db);
	unlink(path);
	return rate;
}

struct series {
	double recorder[N_ROUNDS];
	double bare[N_ROUNDS];
	double ratio[N_ROUNDS];
};

static bool report(const char *what, struct series *series)
{
	const double rate = load_quantile(series->recorder, N_ROUNDS, 0.5);
	const double bare = load_quantile(series->bare, N_ROUNDS, 0.5);
	const double ratio = load_quantile(series->ratio, N_ROUNDS, 0.5);
	const bool is_met = rate >= bar_rate && ratio >= bar_ratio;

	printf("%-34s writer %6.1f M assignments/s of CPU time (%.1f to %.1f), bare SQLite %6.1f,"
	       " ratio %.2f: %s\n",
	       what, rate / 1e6, series->recorder[0] / 1e6, series->recorder[N_ROUNDS - 1] / 1e6,
	       bare / 1e6, ratio, is_met ? "met" : "NOT MET");
	return is_met;
}

static bool compare(const char *what, uint32_t n_slices, bool is_paced, int n_page_bytes,
		    const unsigned char *source)
{
	struct series series;
	uint32_t i;

	for (i = 0; i < N_ROUNDS; i++) {
		series.recorder[i] = run_recorder(n_slices, is_paced);
		series.bare[i] = run_bare(n_page_bytes, source, is_paced);
		series.ratio[i] = series.recorder[i] / series.bare[i];
	}
	return report(what, &series);
}

int main(void)
{
	const int n_page_bytes = page_bytes();
	unsigned char *source = malloc(SOURCE_BYTES);
	bool is_met;
	size_t i;

	if (!source)
		load_die("memory", "there is not enough");
	for (i = 0; i < SOURCE_BYTES; i++)
		source[i] = (unsigned char)(i * 2654435761u >> 13);
	printf("pages of %d bytes; %d rows x %d experts x %d layers a pass, %.0f M/s; bar: %.0f M"
	       " assignments/s and %.2f of bare SQLite\n",
	       n_page_bytes, N_ROWS, LOAD_TOP_K, N_LAYERS, pace / 1e6, bar_rate / 1e6, bar_ratio);
	is_met = compare("1 slice of 64 rows, paced", 1, true, n_page_bytes, source);
	is_met &= compare("64 slices of 1 row, paced", N_ROWS, true, n_page_bytes, source);
	is_met &= compare("1 slice of 64 rows, at full speed", 1, false, n_page_bytes, source);
	is_met &= compare("64 slices of 1 row, at full speed", N_ROWS, false, n_page_bytes, source);
	free(source);
	return is_met ? EXIT_SUCCESS : EXIT_FAILURE;
}
