/* SPDX-License-Identifier: MIT */
/*
 * What the collector cupti finds of a graph that was captured of two streams, whose kernels run at the
 * same time: each kernel's branch, or that it does not know, and how many times it left out as not
 * possible. Kernels of one branch that ran at once would be wrong: that ends with 1.
 *
 * bench_branches [FILE.db [TIMES]]: FILE.db is left behind.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include <moetrace/cuda.h>

#include "bench/cuda/branches.h"
#include "kernels/cuda/device.h"

enum { N_KERNELS = 20, PATIENCE_US = 20000000, PAUSE_US = 10000 };

struct load {
	struct moetrace_session *session;
	struct moetrace_cuda_lane *lane;
	struct moetrace_pass_info info;
	void *stream;
	void *graph;
};

static void must(int status, const struct mtk_error *error)
{
	if (status == MOETRACE_OK)
		return;
	fprintf(stderr, "bench_branches: %s\n", error->text);
	exit(status == MOETRACE_E_UNSUPPORTED ? 77 : 1);
}

static void must_trace(const struct load *load, int status, const char *what)
{
	char text[512] = "";

	if (status == MOETRACE_OK)
		return;
	moetrace_errmsg(load->session, text, sizeof(text));
	fprintf(stderr, "bench_branches: %s: %s: %s\n", what, moetrace_status_string(status), text);
	exit(1);
}

static void open_session(struct load *load, const char *path)
{
	struct moetrace_layer_info layer;
	struct moetrace_model_info model;
	struct moetrace_cuda_lane_info lane;
	struct moetrace_cuda *cuda;

	must_trace(load, moetrace_session_open(path, NULL, &load->session), moetrace_open_errmsg());
	MOETRACE_INIT(&layer);
	layer.n_experts = 8;
	layer.top_k = 2;
	MOETRACE_INIT(&model);
	model.name = "branches";
	model.layers = &layer;
	model.n_moe_layers = 1;
	MOETRACE_INIT(&load->info);
	load->info.phase = MOETRACE_PHASE_DECODE;
	load->info.n_rows = 1;
	must_trace(load, moetrace_model_add(load->session, &model, &load->info.model), "model");
	must_trace(load, moetrace_cuda_attach(load->session, NULL, &cuda), "attach");
	MOETRACE_INIT(&lane);
	lane.stream = load->stream;
	lane.model = load->info.model;
	must_trace(load, moetrace_cuda_lane_add(cuda, &lane, &load->lane), "lane");
}

static void run_pass(struct load *load)
{
	struct mtk_error error;

	(void)moetrace_cuda_pass_begin(load->lane, &load->info);
	must(mtk_cuda_graph_launch(load->graph, load->stream, &error), &error);
	must(mtk_cuda_stream_wait(load->stream, &error), &error);
	(void)moetrace_cuda_pass_end(load->lane);
}

static sqlite3_stmt *query(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *stmt = NULL;

	if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK)
		return stmt;
	fprintf(stderr, "bench_branches: %s\n", sqlite3_errmsg(db));
	exit(1);
}

static int64_t number(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *stmt = query(db, sql);
	const int64_t value = sqlite3_step(stmt) == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;

	sqlite3_finalize(stmt);
	return value;
}

static sqlite3 *open_file(const char *path)
{
	sqlite3 *db = NULL;

	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK) {
		fprintf(stderr, "bench_branches: %s: %s\n", path, sqlite3_errmsg(db));
		exit(1);
	}
	return db;
}

/* Passes until the first kernels of a graph are in the file: records are on then. */
static void warm_up(struct load *load, const char *path)
{
	sqlite3 *db = open_file(path);

	for (uint32_t waited_us = 0; waited_us < PATIENCE_US; waited_us += PAUSE_US) {
		run_pass(load);
		usleep(PAUSE_US);
		if (waited_us % (100 * PAUSE_US) == 0 &&
		    number(db, "SELECT count(*) FROM graph_launch WHERE n_nodes"))
			break;
	}
	sqlite3_close(db);
}

static void print_nodes(sqlite3 *db)
{
	sqlite3_stmt *stmt = query(db, "SELECT graph, s.value, branch, count(*) FROM graph_node JOIN string "
				       "AS s ON s.string_id = name_id GROUP BY 1, 2, 3 ORDER BY 1, 3, 2");

	while (sqlite3_step(stmt) == SQLITE_ROW)
		printf("graph %d: %2d times %s on branch %s\n", sqlite3_column_int(stmt, 0),
		       sqlite3_column_int(stmt, 3), (const char *)sqlite3_column_text(stmt, 1),
		       sqlite3_column_type(stmt, 2) == SQLITE_NULL
			       ? "not known"
			       : (const char *)sqlite3_column_text(stmt, 2));
	sqlite3_finalize(stmt);
}

/* Both kernels on one branch. */
static const char mixed[] =
	"SELECT count(*) FROM (SELECT 1 FROM graph_node JOIN string AS s ON s.string_id = name_id WHERE "
	"branch IS NOT NULL AND (s.value LIKE '%left_kernel%' OR s.value LIKE '%right_kernel%') GROUP BY "
	"graph, branch HAVING count(DISTINCT name_id) > 1)";

static int report(const char *path)
{
	sqlite3 *db = open_file(path);
	const int64_t n_nodes = number(db, "SELECT count(*) FROM graph_node");
	const int64_t n_mixed = number(db, mixed);

	print_nodes(db);
	printf("%lld launches with nodes, %lld of them marked 32, %lld kernels of them without times; %lld "
	       "branches with kernels of both\n",
	       (long long)number(db, "SELECT count(*) FROM graph_launch WHERE n_nodes"),
	       (long long)number(db, "SELECT count(*) FROM graph_launch WHERE n_nodes AND flags & 32"),
	       (long long)number(db, "SELECT coalesce(sum(n_untimed), 0) FROM graph_launch"),
	       (long long)n_mixed);
	if (!n_nodes)
		printf("no nodes: CUPTI was not there, see moetrace info %s\n", path);
	sqlite3_close(db);
	return n_mixed || !n_nodes ? 1 : 0;
}

int main(int argc, char **argv)
{
	const unsigned long n_times = argc > 2 ? strtoul(argv[2], NULL, 10) : 200;
	struct load load = {.session = NULL};
	struct mtk_cuda_device device;
	struct mtk_error error;
	const char *folder = getenv("TMPDIR");
	char path[512];
	void *beside;
	int status;

	if (argc > 3 || n_times < 1 || n_times > 1000000) {
		fprintf(stderr, "usage: bench_branches [FILE.db [TIMES]]\n");
		return 2;
	}
	if (setenv("MOETRACE_COLLECTORS", "cupti=kernel", 1))
		return 1;
	snprintf(path, sizeof(path), "%s/bench_branches-%ld.db", folder && *folder ? folder : "/tmp",
		 (long)getpid());
	if (argc > 1)
		snprintf(path, sizeof(path), "%s", argv[1]);
	must(mtk_cuda_open(0, &error, &device), &error);
	must(mtk_cuda_stream_create(&error, &load.stream), &error);
	must(mtk_cuda_stream_create(&error, &beside), &error);
	open_session(&load, path);
	must(branches_make(N_KERNELS, load.stream, beside, &error, &load.graph), &error);
	must_trace(&load, moetrace_start(load.session, NULL), "start");
	warm_up(&load, path);
	for (unsigned long i = 0; i < n_times; i++)
		run_pass(&load);
	must_trace(&load, moetrace_stop(load.session, "measured"), "stop");
	must_trace(&load, moetrace_session_close(load.session), "close");
	status = report(path);
	if (argc == 1)
		unlink(path);
	return status;
}
