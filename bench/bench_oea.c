/* SPDX-License-Identifier: MIT */
/*
 * The sweep over all k0: batches of 64 and 16 rows, 256 experts, top-8, fp16 weights. First by itself
 * in memory, beside a floor that only adds the same ids and weights up; then the whole of moe_oea(),
 * on a trace of 58 layers in memory. Each figure is the best of several runs, in CPU time of the one
 * thread; the bar is 150 M assignments a second.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sqlite3.h>

#include "schema/functions/mt_sql.h"
#include "schema/functions/oea_sweep.h"
#include "schema/reference.h"

#define N_EXPERTS 256
#define K	  8
#define N_LAYERS  58
#define N_RUNS	  7
#define N_ENTRIES (1u << 22) /* of a run in memory */
#define N_PASSES  300
#define BAR	  150.0

static uint8_t *ids, *weights;
static struct mt_oea_scratch scratch;
static uint32_t bins[K * MT_OEA_N_BINS];
static volatile uint64_t sink; /* what is computed is used */

static double now_s(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static uint32_t random_below(uint64_t *state, uint32_t n)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33) % n;
}

/* Distinct ids, low ones more often; weights that fall. */
static void draw_row(uint64_t *state, uint8_t *row_ids, uint8_t *row_weights)
{
	for (int j = 0; j < K; j++) {
		const uint32_t half = 0x3400 - (uint32_t)j * 0x100 + random_below(state, 200);
		bool is_new;

		do {
			const uint32_t a = random_below(state, N_EXPERTS);
			const uint32_t b = random_below(state, N_EXPERTS);

			row_ids[j] = (uint8_t)(a < b ? a : b);
			is_new = true;
			for (int i = 0; i < j; i++)
				is_new &= row_ids[i] != row_ids[j];
		} while (!is_new);
		row_weights[2 * j] = (uint8_t)half;
		row_weights[2 * j + 1] = (uint8_t)(half >> 8);
	}
}

/* @begin: so that no two runs are the same to a compiler. */
static uint64_t run_floor(size_t begin)
{
	uint64_t sum = 0, word;

	for (size_t i = begin; i < N_ENTRIES; i += 8) {
		memcpy(&word, ids + i, 8);
		sum += word;
		for (size_t j = 0; j < 16; j += 8) {
			memcpy(&word, weights + 2 * i + j, 8);
			sum += word;
		}
	}
	return sum;
}

static uint64_t run_sweep(size_t n_rows)
{
	struct mt_oea_result result;
	struct mt_oea_look look;
	uint64_t sum = 0;

	for (size_t i = 0; i + n_rows * K <= N_ENTRIES; i += n_rows * K) {
		const struct mt_oea_batch batch = {.ids = ids + i,
						   .weights = weights + 2 * i,
						   .n_rows = n_rows,
						   .k = K,
						   .id_bytes = 1,
						   .n_experts = N_EXPERTS};

		mt_oea_look(&batch, &look);
		mt_oea_sweep(&batch, &scratch, bins, &result);
		sum += result.active[2] + look.n_unordered;
	}
	return sum;
}

static void fail(const char *what)
{
	fprintf(stderr, "bench_oea: %s\n", what);
	exit(1);
}

static double bench_memory(size_t n_rows)
{
	double best = 1e9;

	for (int run = 0; run < N_RUNS; run++) {
		const double begin = now_s();

		sink += n_rows ? run_sweep(n_rows) : run_floor((size_t)run * 8);
		best = now_s() - begin < best ? now_s() - begin : best;
	}
	return N_ENTRIES / best / 1e6;
}

/* ---- the function ---- */

static void run_sql(sqlite3 *db, const char *sql)
{
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		fail(sqlite3_errmsg(db));
}

/* Passes of n_rows requests; the layers of a pass are one run. */
static sqlite3 *make_trace(int n_rows)
{
	static const char fill[] =
		"INSERT INTO process (process_id, pid) VALUES (1, 1);"
		"INSERT INTO model VALUES (1, 'm', 'target', NULL, 58, NULL);"
		"INSERT INTO recording VALUES (1, 1, 0, 1, 'stopped', 'per_token', 'model', NULL);"
		"WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 58)"
		" INSERT INTO layer (layer_id, model_id, layer, moe_ordinal, kind, n_experts,"
		" n_zero_experts, n_shared_slots, top_k) SELECT i, 1, i, i - 1, 'routed', 256, 0, 0, 8"
		" FROM n;";
	sqlite3 *db;
	sqlite3_stmt *stmt;
	char sql[1024];

	if (sqlite3_open(":memory:", &db) != SQLITE_OK || mt_sql_register(db) != SQLITE_OK)
		fail("no database");
	for (size_t i = 0; i < mt_n_reference_files; i++)
		run_sql(db, mt_reference_files[i].sql);
	run_sql(db, fill);
	snprintf(sql, sizeof(sql),
		 "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)"
		 " INSERT INTO pass SELECT i, 1, 1, 'decode', i, i, %d, 0, i, NULL, NULL,"
		 " 'complete', NULL, 0, NULL FROM n;"
		 "INSERT INTO pass_request SELECT pass_id, value, value + 1, 0, 1, NULL, value, 1,"
		 " 'decode', NULL FROM pass, byte WHERE value < %d;"
		 "INSERT INTO pass_layer SELECT pass_id, layer_id, 1, NULL, 1, 1, 0, NULL, 0, %d,"
		 " pass_id, (layer_id - 1) * %d, NULL FROM pass, layer",
		 N_PASSES, n_rows, n_rows, n_rows, n_rows);
	run_sql(db, sql);
	snprintf(sql, sizeof(sql),
		 "INSERT INTO topk (topk_id, n_rows, k, id_bytes, weight_format, topk_ids,"
		 " topk_weights) VALUES (?1, %d, 8, 1, 'fp16', ?2, ?3)", n_rows * N_LAYERS);
	if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
		fail(sqlite3_errmsg(db));
	for (int i = 1; i <= N_PASSES; i++) {
		const size_t first = (size_t)i * 1000 % (N_ENTRIES / 2) / K * K;

		sqlite3_bind_int(stmt, 1, i);
		sqlite3_bind_blob(stmt, 2, ids + first, n_rows * N_LAYERS * K, SQLITE_STATIC);
		sqlite3_bind_blob(stmt, 3, weights + 2 * first, n_rows * N_LAYERS * K * 2,
				  SQLITE_STATIC);
		if (sqlite3_step(stmt) != SQLITE_DONE)
			fail(sqlite3_errmsg(db));
		sqlite3_reset(stmt);
	}
	sqlite3_finalize(stmt);
	return db;
}

static double bench_function(int n_rows)
{
	sqlite3 *db = make_trace(n_rows);
	double best = 1e9;

	for (int run = 0; run < N_RUNS; run++) {
		const double begin = now_s();

		run_sql(db, "SELECT sum(active_after) FROM moe_oea(0)");
		best = now_s() - begin < best ? now_s() - begin : best;
	}
	sqlite3_close(db);
	return (double)N_PASSES * N_LAYERS * n_rows * K / best / 1e6;
}

int main(void)
{
	static const int sizes[] = {64, 16};
	uint64_t state = 1;
	double floor_rate;

	ids = malloc(N_ENTRIES);
	weights = malloc(2 * N_ENTRIES);
	if (!ids || !weights)
		fail("out of memory");
	for (size_t i = 0; i < N_ENTRIES; i += K)
		draw_row(&state, ids + i, weights + 2 * i);
	floor_rate = bench_memory(0);
	printf("floor: ids and weights added up  %8.0f M assignments/s\n", floor_rate);
	for (int i = 0; i < 2; i++)
		printf("sweep, %2d rows, all k0           %8.0f M assignments/s (bar %.0f)\n",
		       sizes[i], bench_memory((size_t)sizes[i]), BAR);
	for (int i = 0; i < 2; i++)
		printf("moe_oea(0), %2d rows, 58 layers   %8.0f M assignments/s\n", sizes[i],
		       bench_function(sizes[i]));
	free(ids);
	free(weights);
	return 0;
}
