/* SPDX-License-Identifier: MIT */
/*
 * Kernels of the engine's decode graph, by CUPTI on a GPU: each has the pass, the layer and the role that
 * the same pass has when it is launched kernel by kernel; and the time between two layers' captures is
 * the time between the ends of their routers. Of passes that are sampled, while the host ends each as
 * soon as it is launched, all kernels are there and all times are true. On layers of true size. Skipped
 * without GPU or CUPTI.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sqlite3.h>

#include "bench/cuda/engine_rig.h"

enum { N_LAYERS = 6, N_ROWS = 16, POSITION = 511, N_PASSES = 40, MAX_KERNELS = 65536 };

static int n_failed;

#define EXPECT(is_so, ...)                               \
	do {                                             \
		if (!(is_so)) {                          \
			n_failed++;                      \
			printf("FAIL: " __VA_ARGS__);    \
			printf("\n");                    \
		}                                        \
	} while (0)

/* ---- the load ---- */

/* N_PASSES passes as graphs, then as many launched one by one. */
static void run_all(struct rig *rig, struct lane *lane)
{
	for (int i = 0; i < N_PASSES; i++)
		rig_decode(rig, lane, N_ROWS, POSITION, NULL);
	rig->state->settings.without_graphs = true;
	for (int i = 0; i < N_PASSES; i++)
		rig_decode(rig, lane, N_ROWS, POSITION, NULL);
}

/* Passes that the host waits for, and passes that it does not, by turns. */
static void run_ahead(struct rig *rig, struct lane *lane)
{
	for (int i = 0; i < 10; i++) {
		for (int j = 0; j < 20; j++)
			rig_decode(rig, lane, N_ROWS, POSITION, NULL);
		rig_replay(rig, lane, N_ROWS, 20);
	}
}

/* Returns where they are. */
static void record(const char *collectors, void (*run)(struct rig *rig, struct lane *lane),
		   char *ret_path, size_t path_bytes)
{
	struct rig rig;
	struct lane lane;

	if (setenv("MOETRACE_COLLECTORS", collectors, 1))
		exit(1);
	rig = rig_open_layers("qwen3-30b-a3b", N_LAYERS, 0, POSITION + 1, false);
	lane = rig_lane(&rig, N_ROWS, POSITION + 1, N_ROWS, NULL, MTK_CUDA_RECORD_FUSED);
	for (int i = 0; i < 3; i++)
		rig_decode(&rig, &lane, N_ROWS, POSITION, NULL);
	rig_record(&lane, true);
	/* Until records are on. */
	usleep(300000);
	run(&rig, &lane);
	rig_record(&lane, false);
	rig_must(moetrace_session_close(lane.session), NULL, "close");
	lane.session = NULL;
	snprintf(ret_path, path_bytes, "%s", lane.path);
	rig_lane_close(&lane);
	rig_close(&rig);
}

/* ---- the file ---- */

static sqlite3_stmt *query(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *stmt = NULL;

	if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK) {
		printf("FAIL: %s: %s\n", sql, sqlite3_errmsg(db));
		exit(1);
	}
	return stmt;
}

static int64_t number(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *stmt = query(db, sql);
	int64_t value = sqlite3_step(stmt) == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : -1;

	sqlite3_finalize(stmt);
	return value;
}

struct kernel {
	int64_t pass_id;
	int64_t layer; /* -1: none */
	int64_t known_by;
	int64_t end_ns;
	char name[160];
	char role[16];
};

static struct kernel kernels[MAX_KERNELS];

static uint32_t load_kernels(sqlite3 *db)
{
	sqlite3_stmt *stmt = query(db, "SELECT k.pass_id, coalesce(l.layer, -1), k.known_by, k.start_ns + "
				       "k.duration_ns, k.name, k.role FROM kernel_event AS k LEFT JOIN layer "
				       "AS l USING (layer_id) WHERE k.pass_id IS NOT NULL "
				       "ORDER BY k.pass_id, k.start_ns");
	uint32_t n = 0;

	while (sqlite3_step(stmt) == SQLITE_ROW && n < MAX_KERNELS) {
		struct kernel *kernel = &kernels[n++];

		kernel->pass_id = sqlite3_column_int64(stmt, 0);
		kernel->layer = sqlite3_column_int64(stmt, 1);
		kernel->known_by = sqlite3_column_int64(stmt, 2);
		kernel->end_ns = sqlite3_column_int64(stmt, 3);
		snprintf(kernel->name, sizeof(kernel->name), "%s", sqlite3_column_text(stmt, 4));
		snprintf(kernel->role, sizeof(kernel->role), "%s", sqlite3_column_text(stmt, 5));
	}
	sqlite3_finalize(stmt);
	return n;
}

/* The kernels of the pass that begin at @first; how many. */
static uint32_t pass_length(uint32_t first, uint32_t n)
{
	uint32_t i = first;

	while (i < n && kernels[i].pass_id == kernels[first].pass_id)
		i++;
	return i - first;
}

/* Every pass has the kernels of the last one, which was launched one by one. */
static void check_same(uint32_t n)
{
	uint32_t last = n, n_graph = 0, n_eager = 0, n_last;

	while (last > 0 && kernels[last - 1].pass_id == kernels[n - 1].pass_id)
		last--;
	n_last = n - last;
	for (uint32_t first = 0; first < n; first += pass_length(first, n)) {
		const uint32_t n_own = pass_length(first, n);
		uint32_t n_same = 0;

		n_graph += kernels[first + n_own / 2].known_by == 2;
		n_eager += kernels[first + n_own / 2].known_by == 1;
		for (uint32_t i = 0; i < n_own && i < n_last; i++)
			n_same += kernels[first + i].layer == kernels[last + i].layer &&
				  strcmp(kernels[first + i].role, kernels[last + i].role) == 0 &&
				  strcmp(kernels[first + i].name, kernels[last + i].name) == 0;
		EXPECT(n_own == n_last && n_same == n_last,
		       "pass %lld has %u kernels, of which %u are as those of an eager one, which has %u",
		       (long long)kernels[first].pass_id, n_own, n_same, n_last);
	}
	printf("%u kernels a pass, %u passes as graphs, %u launched one by one\n", n_last, n_graph,
	       n_eager);
	EXPECT(n_graph == N_PASSES && n_eager == N_PASSES, "%d of each were to be there", N_PASSES);
}

static void check_complete(sqlite3 *db)
{
	EXPECT(number(db, "SELECT count(*) FROM graph_launch WHERE pass_id IS NULL") == 0,
	       "a launch of a graph has no pass");
	EXPECT(number(db, "SELECT count(*) FROM graph_launch") == N_PASSES,
	       "%d launches of graphs were to be there", N_PASSES);
	EXPECT(number(db, "SELECT n_invalid + n_dropped FROM collector") == 0,
	       "records have times that cannot be true, or were lost");
	EXPECT(number(db, "SELECT count(*) FROM kernel_event WHERE pass_id IS NOT NULL AND layer_id IS NULL "
			  "AND role NOT IN ('embed', 'head')") == 0,
	       "a kernel inside of a layer has none");
	EXPECT(number(db, "SELECT min(n) FROM (SELECT count(DISTINCT layer_id) AS n FROM kernel_event WHERE "
			  "pass_id IS NOT NULL GROUP BY pass_id)") == N_LAYERS,
	       "a pass lacks a layer");
}

/* ---- times ---- */

static double magnitude(double x)
{
	return x < 0 ? -x : x;
}

/* Between two layers: by the stamps of their captures, and by the ends of their routers. */
static void check_intervals(sqlite3 *db, double tick_ns)
{
	sqlite3_stmt *stmt = query(
		db, "SELECT pl.selected_ns - lag(pl.selected_ns) OVER same, r.end_ns - lag(r.end_ns) OVER "
		    "same FROM pass_layer AS pl JOIN (SELECT pass_id, layer_id, max(start_ns + duration_ns) "
		    "AS end_ns FROM kernel_event WHERE role = 'topk' AND known_by = 2 GROUP BY pass_id, "
		    "layer_id) AS r USING (pass_id, layer_id) WINDOW same AS (PARTITION BY pl.pass_id "
		    "ORDER BY pl.layer_id)");
	double worst = 0.0, worst_ns = 0.0, sum_ns = 0.0;
	uint32_t n = 0, n_apart = 0;

	while (sqlite3_step(stmt) == SQLITE_ROW) {
		const double stamps_ns = sqlite3_column_double(stmt, 0);
		const double kernels_ns = sqlite3_column_double(stmt, 1);
		const double apart_ns = magnitude(stamps_ns - kernels_ns);

		if (sqlite3_column_type(stmt, 0) == SQLITE_NULL)
			continue;
		n++;
		sum_ns += kernels_ns;
		n_apart += apart_ns > 0.05 * kernels_ns && apart_ns > 2 * tick_ns;
		if (apart_ns / kernels_ns > worst)
			worst = apart_ns / kernels_ns;
		if (apart_ns > worst_ns)
			worst_ns = apart_ns;
	}
	sqlite3_finalize(stmt);
	printf("%u intervals of %.0f ns in the mean: stamps are off by %.2f %% or %.0f ns at most, the "
	       "timer's tick is %.0f ns\n",
	       n, n ? sum_ns / n : 0.0, 100.0 * worst, worst_ns, tick_ns);
	EXPECT(n == N_PASSES * (N_LAYERS - 1), "%d intervals were to be there",
	       N_PASSES * (N_LAYERS - 1));
	EXPECT(n_apart == 0, "%u of them differ by more than 5 %% and two ticks", n_apart);
}

/* The resolution that attach measured and wrote down. */
static double tick_of(sqlite3 *db)
{
	sqlite3_stmt *stmt = query(db, "SELECT value FROM meta WHERE key = 'source.cuda'");
	const char *text = sqlite3_step(stmt) == SQLITE_ROW ?
				   (const char *)sqlite3_column_text(stmt, 0) :
				   "";
	const char *at = strstr(text, "timer ");
	double tick_ns = at ? strtod(at + strlen("timer "), NULL) : 0.0;

	printf("%s\n", text);
	sqlite3_finalize(stmt);
	return tick_ns;
}

static void check_all(sqlite3 *db)
{
	check_complete(db);
	check_same(load_kernels(db));
	check_intervals(db, tick_of(db));
}

/* ---- samples ---- */

static void check_sampled(sqlite3 *db)
{
	const int64_t n_sampled = number(db, "SELECT count(DISTINCT pass_id) FROM kernel_event");

	printf("%lld of %lld passes sampled, with %lld to %lld kernels; %lld launches of graphs, %lld "
	       "times that are not known\n",
	       (long long)n_sampled, (long long)number(db, "SELECT count(*) FROM pass"),
	       (long long)number(db, "SELECT min(n) FROM (SELECT count(*) AS n FROM kernel_event GROUP BY "
				     "pass_id)"),
	       (long long)number(db, "SELECT max(n) FROM (SELECT count(*) AS n FROM kernel_event GROUP BY "
				     "pass_id)"),
	       (long long)number(db, "SELECT count(*) FROM graph_launch"),
	       (long long)number(db, "SELECT sum(n_untimed) FROM graph_launch"));
	EXPECT(n_sampled >= 3, "hardly a pass was sampled");
	EXPECT(number(db, "SELECT count(DISTINCT n) FROM (SELECT count(*) AS n FROM kernel_event GROUP BY "
			  "pass_id)") == 1,
	       "sampled passes have not all as many kernels");
	EXPECT(number(db, "SELECT count(*) FROM graph_launch WHERE pass_id IS NULL OR flags <> 0 OR "
			  "n_untimed > 0") == 0,
	       "a launch of a sampled pass has no pass, or times that are not known");
	EXPECT(number(db, "SELECT count(*) FROM pass WHERE verdict <> 'complete'") == 0,
	       "a pass is not complete");
}

static int check(const char *collectors, void (*run)(struct rig *rig, struct lane *lane),
		 void (*look)(sqlite3 *db))
{
	char path[256];
	sqlite3 *db;

	record(collectors, run, path, sizeof(path));
	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
		return 1;
	if (number(db, "SELECT state = 'on' FROM collector") != 1) {
		printf("skipped: CUPTI is not there, or another tool has it\n");
		sqlite3_close(db);
		unlink(path);
		return 77;
	}
	look(db);
	sqlite3_close(db);
	unlink(path);
	printf("%s: %s\n", collectors, n_failed ? "not ok" : "ok");
	fflush(stdout);
	return n_failed != 0;
}

/* In a process of its own, since CUPTI is asked for once in each. */
int main(void)
{
	pid_t child = fork();
	int status = 0;

	if (child == 0)
		exit(check("cupti=kernel:every=5", run_ahead, check_sampled));
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return 1;
	if (WEXITSTATUS(status) != 0)
		return WEXITSTATUS(status);
	return check("cupti=kernel", run_all, check_all);
}
