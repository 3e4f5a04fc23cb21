/* SPDX-License-Identifier: MIT */
/*
 * The file's size: the pages of topk and pass_layer by SQLite's dbstat, over the bytes of ids
 * and weights that they hold (3 bytes an assignment), for passes of several sizes. With a
 * pause between passes, commits close runs earlier, as they do behind a model that decodes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sqlite3.h>

#include "bench/load.h"

static const double bar = 1.15;

static double ask(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *stmt;
	double value;

	if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK ||
	    sqlite3_step(stmt) != SQLITE_ROW)
		load_die(sql, sqlite3_errmsg(db));
	value = sqlite3_column_double(stmt, 0);
	sqlite3_finalize(stmt);
	return value;
}

struct size {
	double payload_bytes;
	double topk_bytes;
	double pass_layer_bytes;
	double file_bytes;
};

static struct size measure_file(const char *path)
{
	struct size size;
	sqlite3 *db;

	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
		load_die(path, sqlite3_errmsg(db));
	size.payload_bytes =
		ask(db, "SELECT sum(length(topk_ids) + length(topk_weights)) FROM topk");
	size.topk_bytes = ask(db, "SELECT sum(pgsize) FROM dbstat WHERE name = 'topk'");
	size.pass_layer_bytes = ask(db, "SELECT sum(pgsize) FROM dbstat WHERE name = 'pass_layer'");
	size.file_bytes = ask(db, "SELECT sum(pgsize) FROM dbstat");
	sqlite3_close(db);
	return size;
}

static bool run(uint32_t n_rows, uint32_t n_layers, uint32_t n_experts, uint32_t pause_ms)
{
	const double pass_bytes = (double)n_rows * n_layers * LOAD_TOP_K * 3;
	const uint32_t n_passes = (uint32_t)((pause_ms ? 2e6 : 2e7) / pass_bytes) + 2;
	struct moetrace_session_opts opts;
	struct size size;
	struct load load;
	double ratio;
	uint32_t i;

	MOETRACE_INIT(&opts);
	opts.ring_bytes = UINT64_C(64) << 20;
	load_open(&load, "/dev/shm", &opts, n_layers, n_experts, n_rows, 1);
	for (i = 0; i < n_passes; i++) {
		if (!load_pass(&load))
			load_die("bench_size", "passes were dropped");
		if (pause_ms)
			load_sleep_until_ns(load_now_ns() + pause_ms * UINT64_C(1000000));
	}
	load_close(&load, true);
	size = measure_file(load.path);
	unlink(load.path);
	ratio = (size.topk_bytes + size.pass_layer_bytes) / size.payload_bytes;
	printf("%5u rows %3u layers %4u experts %5u passes %3u ms: topk %.3f, pass_layer %.3f,"
	       " together %.3f, whole file %.3f%s\n",
	       n_rows, n_layers, n_experts, n_passes, pause_ms,
	       size.topk_bytes / size.payload_bytes, size.pass_layer_bytes / size.payload_bytes,
	       ratio, size.file_bytes / size.payload_bytes, ratio <= bar ? "" : "  NOT MET");
	return ratio <= bar;
}

int main(void)
{
	static const uint32_t rows[] = {16, 64, 256, 512, 8192};
	static const uint32_t layers[] = {6, 58};
	static const uint32_t experts[] = {64, 256};
	bool is_met = true;
	uint32_t i, j, k;

	for (i = 0; i < 5; i++)
		for (j = 0; j < 2; j++)
			for (k = 0; k < 2; k++)
				is_met &= run(rows[i], layers[j], experts[k], 0);
	printf("with a pause between passes (no bar):\n");
	for (i = 0; i < 3; i++)
		for (j = 0; j < 2; j++)
			run(rows[i], layers[j], 64, 10);
	printf("bar: together at most %.2f: %s\n", bar, is_met ? "met" : "NOT MET");
	return is_met ? EXIT_SUCCESS : EXIT_FAILURE;
}
