/* SPDX-License-Identifier: MIT */
/*
 * Which pass and layer kernels belong to, graphs as templates, and passes that are sampled: lanes on a
 * GPU made for tests, and a CUPTI made for tests that hears of their launches.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectors/cupti/api.h"
#include "tests/collectors/fake/fake_cupti.h"
#include "tests/cuda/support/gpu_toy.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

enum { N_LAYERS = 3, N_ROWS = 4, GRAPH = 9 };

static const struct fake_cupti_api *fake;
static _Atomic uint32_t last_correlation = 100;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static struct gpu start(const char *name, const char *mode)
{
	const char *folder = getenv("MOETRACE_BUILDDIR");
	const struct fake_cupti_api *(*get)(void);
	char path[1024], list[64];
	void *library, *symbol;
	struct gpu gpu;

	snprintf(path, sizeof(path), "%s/tests/collectors/.libs/libfake_cupti.so",
		 folder ? folder : ".");
	snprintf(list, sizeof(list), "cupti=%s", mode);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	symbol = library ? dlsym(library, "fake_cupti") : NULL;
	ck_assert_ptr_nonnull(symbol);
	memcpy(&get, &symbol, sizeof(get));
	fake = get();
	ck_assert_int_eq(setenv("MOETRACE_CUPTI", path, 1), 0);
	ck_assert_int_eq(setenv("MOETRACE_COLLECTORS", list, 1), 0);
	gpu = gpu_start(name, N_LAYERS, 16, 2, 0);
	/* It is tried once at the opening, and on from the first look, or the sampler's, on. */
	for (int i = 0; i < 500 && strcmp(mode, "graph") != 0 && !strstr(mode, "=3600") &&
			fake->n_enabled(MTC_CUPTI_CONCURRENT_KERNEL) < 2;
	     i++)
		suite_sleep_ms(10);
	return gpu;
}

static sqlite3 *finish(struct gpu *gpu)
{
	sqlite3 *db;

	ck_assert_int_eq(moetrace_stop(gpu->toy.session, NULL), MOETRACE_OK);
	toy_close(&gpu->toy);
	db = db_open(gpu->toy.path);
	agree_check(db);
	return db;
}

static void put_kernel(const char *name, uint64_t start_ns, uint64_t length_ns, uint32_t correlation,
		       uint64_t node)
{
	const struct fake_cupti_record record = {
		.kind = MTC_CUPTI_CONCURRENT_KERNEL,
		.name = name,
		.start_ns = start_ns,
		.end_ns = start_ns ? start_ns + length_ns : 0,
		.correlation = correlation,
		.graph = node ? GRAPH : 0,
		.node = node,
	};

	fake->put(&record);
}

static const char *const names[] = { "embed_k", "attention_k", "gate_k", "topk_k", "expert_k" };

/* A kernel launched in the open pass, as a program would. */
static void launch_kernel(struct gpu *gpu, const char *name)
{
	uint32_t correlation = ++last_correlation;

	fake->launch(0, gpu->stream, correlation);
	/* On one stream nothing lasts beyond the next but one. */
	put_kernel(name, now_ns(), 1, correlation, 0);
}

static void begin(struct gpu *gpu)
{
	struct moetrace_slice slice;
	const struct moetrace_pass_info info =
		gpu_info(gpu, &slice, MOETRACE_NO_REQUEST, 0, N_ROWS, 0);

	ck_assert_int_eq(moetrace_cuda_pass_begin(gpu->lane, &info), MOETRACE_OK);
}

static void end(struct gpu *gpu)
{
	for (uint32_t i = 0; i < N_LAYERS; i++)
		gpu_route(gpu, gpu->lane, gpu->stream, i, N_ROWS, N_ROWS);
	ck_assert_int_eq(moetrace_cuda_pass_end(gpu->lane), MOETRACE_OK);
}

/* A pass kernel by kernel, with marks or without. */
static void eager_pass(struct gpu *gpu, int is_marked)
{
	begin(gpu);
	launch_kernel(gpu, names[0]);
	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		for (uint32_t i = 1; i < 5; i++) {
			if (is_marked)
				moetrace_cuda_mark(gpu->lane, layer,
						   i == 1 ? MOETRACE_ROLE_ATTENTION :
							    MOETRACE_ROLE_BY_NAME);
			launch_kernel(gpu, names[i]);
		}
	}
	end(gpu);
}

/* Nodes 1 to 13 are captured, 101 to 113 are those of the graph that is launched. */
static void capture(struct gpu *gpu)
{
	fake->node(1, 0);
	for (uint32_t layer = 0; layer < N_LAYERS; layer++)
		for (uint32_t i = 1; i < 5; i++) {
			moetrace_cuda_mark(gpu->lane, layer,
					   i == 1 ? MOETRACE_ROLE_ATTENTION : MOETRACE_ROLE_BY_NAME);
			fake->node(1 + layer * 4 + i, 0);
		}
	moetrace_cuda_mark(gpu->lane, MOETRACE_NO_LAYER, MOETRACE_ROLE_BY_NAME);
	for (uint64_t node = 1; node <= 13; node++)
		fake->node(100 + node, node);
}

/* What a replay of it gives; the node @lost is not delivered, @zero has no times. */
static void replay(struct gpu *gpu, uint64_t start_ns, uint64_t lost, uint64_t zero)
{
	uint32_t correlation = ++last_correlation;

	begin(gpu);
	fake->launch(1, gpu->stream, correlation);
	for (uint64_t node = 1; node <= 13; node++)
		if (node != lost)
			put_kernel(names[node == 1 ? 0 : 1 + (node - 2) % 4],
				   node == zero ? 0 : start_ns + node * 1000, 500 + node, correlation,
				   100 + node);
	end(gpu);
}

START_TEST(test_eager)
{
	struct gpu gpu = start("eager.db", "eager");
	sqlite3 *db;

	eager_pass(&gpu, 1);
	eager_pass(&gpu, 0);
	launch_kernel(&gpu, "alone"); /* in no pass */
	db = finish(&gpu);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel"), 27);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(n || ':' || l) FROM (SELECT count(*) AS n,"
				     " count(layer_id) AS l FROM kernel WHERE known_by = 1 GROUP BY"
				     " pass_id ORDER BY pass_id)"), "13:12,13:0");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel WHERE pass_id IS NULL"), 1);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(layer) FROM (SELECT l.layer FROM kernel_event"
				     " AS k JOIN layer AS l USING (layer_id) WHERE k.pass_id = 1 AND"
				     " k.name = 'topk_k' ORDER BY k.start_ns)"), "0,1,2");
	/* The mark's role counts, else what the name says. */
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel_event WHERE role = 'attention'"), 6);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM layer_time WHERE source = 'kernel'"), 3);
	db_close(db);
}
END_TEST

START_TEST(test_graph_nodes)
{
	struct gpu gpu = start("nodes.db", "kernel");
	uint64_t base_ns;
	sqlite3 *db;

	capture(&gpu);
	/* Later than the launches, however slow this is. */
	base_ns = now_ns() + 100000000;
	for (int i = 0; i < 3; i++)
		replay(&gpu, base_ns + (uint64_t)i * 100000, 0, 0);
	replay(&gpu, base_ns + 300000, 5, 7);
	db = finish(&gpu);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM graph_node"), 13);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(coalesce(l.layer, '-') || n.known_by) FROM (SELECT"
				     " layer_id, coalesce(known_by, '') AS known_by FROM graph_node ORDER BY"
				     " graph, node) AS n LEFT JOIN layer AS l USING (layer_id)"),
			 "-,02,02,02,02,12,12,12,12,22,22,22,22");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(pass_id || ':' || known_by || ':' || n_nodes ||"
				     " ':' || n_untimed) FROM graph_launch"),
			 "1:1:13:0,2:1:13:0,3:1:13:0,4:1:13:2");
	/* Every node of every launch, with its own times, pass and layer. */
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel_event"), 50);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel_event WHERE pass_id = 2 AND"
				    " duration_ns = 501 + node AND known_by = 2 AND start_ns - (SELECT"
				    " min(start_ns) FROM kernel_event WHERE pass_id = 2) = 1000 * node"),
			 12);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM layer_time WHERE source = 'kernel'"), 12);
	ck_assert_int_eq(db_int(db, "SELECT n_rows = 4 AND n_invalid = 1 FROM collector"), 1);
	db_close(db);
}
END_TEST

/* Nothing was marked when it was captured: the order of the kernels has to do. */
START_TEST(test_order)
{
	struct gpu gpu = start("order.db", "kernel");
	sqlite3 *db;

	replay(&gpu, now_ns() + 100000000, 0, 0);
	db = finish(&gpu);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(coalesce(l.layer, '-') || n.known_by) FROM (SELECT"
				     " layer_id, coalesce(known_by, '') AS known_by FROM graph_node ORDER BY"
				     " graph, node) AS n LEFT JOIN layer AS l USING (layer_id)"),
			 "-,03,03,03,03,13,13,13,13,23,23,23,23");
	db_close(db);
}
END_TEST

/* A launch as a whole: one row with its pass; and what is launched alone in mode eager. */
START_TEST(test_graph_launches)
{
	struct gpu gpu = start("launches.db", "graph");
	sqlite3 *db;

	for (uint32_t i = 0; i < 5; i++) {
		struct fake_cupti_record record = { .kind = MTC_CUPTI_GRAPH_TRACE };

		begin(&gpu);
		record.correlation = ++last_correlation;
		fake->launch(1, gpu.stream, record.correlation);
		record.start_ns = now_ns();
		record.end_ns = record.start_ns + 1000;
		fake->put(&record);
		end(&gpu);
	}
	db = finish(&gpu);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(pass_id || known_by) FROM graph_launch WHERE"
				     " n_nodes IS NULL AND graph IS NULL"), "11,21,31,41,51");
	db_close(db);
}
END_TEST

static void put_overhead(uint32_t kind, uint64_t start_ns, uint64_t end_ns, uint32_t correlation)
{
	const struct fake_cupti_record record = { .kind = MTC_CUPTI_OVERHEAD,
						  .overhead = kind,
						  .start_ns = start_ns,
						  .end_ns = end_ns,
						  .correlation = correlation };

	fake->put(&record);
}

START_TEST(test_overhead)
{
	struct gpu gpu = start("overhead.db", "graph");
	uint64_t base_ns = now_ns();
	sqlite3 *db;

	put_overhead(1u << 16, base_ns, base_ns + 700, 0);
	put_overhead(6u << 16, base_ns + 1000, base_ns + 1500, 77);
	put_overhead(99u << 16, base_ns + 2000, base_ns + 2000, 0);
	put_overhead(1u << 16, 0, 0, 0); /* says nothing */
	db = finish(&gpu);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(name || ':' || (\"end\" - start) || ':' ||"
				     " coalesce(correlationId, '-')) FROM PROFILER_OVERHEAD"),
			 "buffer_flush:700:-,command_buffer_full:500:77,other:0:-");
	ck_assert_int_eq(db_int(db, "SELECT n_rows FROM collector"), 3);
	db_close(db);
}
END_TEST

/* A pass that is a part of @parent, if that is not 0. */
static struct moetrace_pass *host_begin(const struct gpu *gpu, uint64_t name, uint64_t parent)
{
	struct moetrace_pass_info info;
	struct moetrace_pass *pass;

	MOETRACE_INIT(&info);
	info.model = gpu->toy.model;
	info.phase = MOETRACE_PHASE_DECODE;
	info.runtime_pass = &name;
	info.parent = parent;
	pass = moetrace_pass_begin(gpu->toy.session, &info);
	ck_assert_ptr_nonnull(pass);
	return pass;
}

static const struct {
	const char *mode;
	uint32_t n_least, n_most; /* passes with kernels, of 200 that take 1 ms or more */
	uint32_t per_s;           /* and as many a second: a window may have two passes */
	int is_host;              /* passes are told from the host, not on a lane */
} samplings[] = {
	{ "kernel:every=20", 5, 40, 0, 0 },
	{ "kernel:every=20", 5, 40, 0, 1 },
	{ "kernel:per_s=50", 5, 20, 100, 0 },
	{ "kernel:window=0+3600", 150, 200, 0, 0 },
	{ "kernel:window=3600+1", 0, 0, 0, 0 },
};

/* Kernels of a sampled pass are all there, those of another pass not at all. */
START_TEST(test_sampling)
{
	struct gpu gpu = start("sampling.db", samplings[_i].mode);
	const uint64_t begin_ns = now_ns();
	struct moetrace_pass *pass = NULL;
	uint64_t n_most;
	int64_t n;
	sqlite3 *db;

	for (uint32_t i = 0; i < 200; i++) {
		struct timespec pause = { 0, 500000 };

		if (samplings[_i].is_host)
			pass = host_begin(&gpu, i, 0);
		else
			begin(&gpu);
		for (uint32_t j = 0; j < 5; j++) {
			launch_kernel(&gpu, names[j]);
			if (j == 2)
				nanosleep(&pause, NULL);
		}
		if (samplings[_i].is_host)
			moetrace_pass_end(pass);
		else
			end(&gpu);
		nanosleep(&pause, NULL);
	}
	db = finish(&gpu);
	n = db_int(db, "SELECT count(DISTINCT pass_id) FROM kernel");
	ck_assert_int_ge(n, samplings[_i].n_least);
	n_most = samplings[_i].n_most + samplings[_i].per_s * (now_ns() - begin_ns) / 1000000000;
	ck_assert_int_le(n, n_most);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel"), 5 * n);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM (SELECT 1 FROM kernel GROUP BY pass_id HAVING"
				    " count(*) <> 5)"), 0);
	ck_assert_int_eq(fake->is_enabled(MTC_CUPTI_CONCURRENT_KERNEL), 0);
	db_close(db);
}
END_TEST

/* A version that crashes when it is refused a buffer is never refused one; that loss is unknown. */
START_TEST(test_old_version)
{
	struct gpu gpu;
	sqlite3 *db;

	ck_assert_int_eq(setenv("FAKE_CUPTI", "old", 1), 0);
	gpu = start("old.db", "kernel");
	/* More than there are buffers for, twice. */
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < 200; i++)
			put_kernel("k", now_ns(), 10, ++last_correlation, 0);
		suite_sleep_ms(150);
	}
	db = finish(&gpu);
	ck_assert_int_ge(db_int(db, "SELECT count(*) FROM kernel"), 20);
	ck_assert_int_eq(db_int(db, "SELECT state = 'on' AND n_dropped IS NULL FROM collector"), 1);
	db_close(db);
}
END_TEST

static struct gpu shared_gpu;

/* Threads with a lane each: what one launches is never another one's. */
static void *run_lane(void *argument)
{
	struct gpu *gpu = argument;

	for (uint32_t i = 0; i < 50; i++) {
		eager_pass(gpu, 1);
		fake->node(10000 + ++last_correlation, 0);
	}
	return NULL;
}

START_TEST(test_threads)
{
	struct gpu lanes[3];
	pthread_t threads[3];
	sqlite3 *db;

	shared_gpu = start("threads.db", "kernel");
	for (int i = 0; i < 3; i++) {
		lanes[i] = shared_gpu;
		lanes[i].lane = gpu_lane(&shared_gpu, &lanes[i].stream);
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run_lane, &lanes[i]), 0);
	}
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	db = finish(&shared_gpu);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel"), 150 * 13);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM (SELECT pass_id FROM kernel WHERE pass_id IS NOT"
				    " NULL GROUP BY pass_id HAVING count(*) = 13 AND count(layer_id) = 12)"),
			 150);
	db_close(db);
}
END_TEST

struct other_launch {
	struct gpu *gpu;
	const char *name;
	uint32_t layer; /* said before; MOETRACE_NO_LAYER: nothing is */
};

static void *launch_there(void *argument)
{
	const struct other_launch *other = argument;

	if (other->layer != MOETRACE_NO_LAYER)
		moetrace_cuda_mark(other->gpu->lane, other->layer, MOETRACE_ROLE_BY_NAME);
	launch_kernel(other->gpu, other->name);
	return NULL;
}

/* On a thread that begins no pass. */
static void launch_elsewhere(struct gpu *gpu, const char *name, uint32_t layer)
{
	struct other_launch other = { gpu, name, layer };
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, launch_there, &other), 0);
	pthread_join(thread, NULL);
}

/* name, the runtime's number of its pass, its layer and known_by of every kernel, by name. */
static const char *ties_of(sqlite3 *db)
{
	return db_text(db, "SELECT group_concat(t, ' ') FROM (SELECT k.name || ':' ||"
			   " coalesce(p.runtime_pass, '-') || coalesce(l.layer, '-') ||"
			   " coalesce(k.known_by, '-') AS t FROM kernel_event AS k LEFT JOIN pass AS p"
			   " USING (pass_id) LEFT JOIN layer AS l ON l.layer_id = k.layer_id ORDER BY"
			   " k.name)");
}

START_TEST(test_host)
{
	struct gpu gpu = start("host.db", "kernel");
	struct moetrace_pass *pass, *part;
	uint32_t late;
	sqlite3 *db;

	moetrace_cuda_mark(gpu.lane, 2, MOETRACE_ROLE_BY_NAME); /* of before */
	launch_kernel(&gpu, "a_none");
	pass = host_begin(&gpu, 1, 0);
	launch_kernel(&gpu, "b_no_layer");
	moetrace_cuda_mark(gpu.lane, 1, MOETRACE_ROLE_BY_NAME);
	launch_kernel(&gpu, "c_layer");
	late = ++last_correlation;
	fake->launch(0, gpu.stream, late);
	moetrace_pass_end(pass);
	launch_kernel(&gpu, "d_behind");
	pass = host_begin(&gpu, 2, 0);
	put_kernel("e_ran_late", now_ns(), 1000, late, 0);
	part = host_begin(&gpu, 3, moetrace_pass_number(pass));
	launch_kernel(&gpu, "f_part");
	moetrace_pass_end(part);
	launch_kernel(&gpu, "g_whole");
	part = host_begin(&gpu, 4, 0);
	launch_kernel(&gpu, "h_of_either");
	moetrace_pass_end(part);
	begin(&gpu);
	launch_kernel(&gpu, "i_lane");
	end(&gpu);
	launch_kernel(&gpu, "j_again");
	moetrace_pass_end(pass);
	db = finish(&gpu);
	ck_assert_str_eq(ties_of(db), "a_none:--- b_no_layer:1-1 c_layer:111 d_behind:--- e_ran_late:111"
				      " f_part:3-1 g_whole:2-1 h_of_either:--- i_lane:--1 j_again:2-1");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel JOIN pass USING (pass_id) WHERE"
				    " n_rows = %d", N_ROWS), 1); /* the lane's */
	db_close(db);
}
END_TEST

/* Begun here, launched there: time alone has to do, where it says anything. */
START_TEST(test_host_by_time)
{
	struct gpu gpu = start("time.db", "kernel");
	struct moetrace_pass *pass, *other;
	sqlite3 *db;

	launch_elsewhere(&gpu, "a_none", MOETRACE_NO_LAYER);
	pass = host_begin(&gpu, 1, 0);
	launch_elsewhere(&gpu, "b_only", MOETRACE_NO_LAYER);
	launch_elsewhere(&gpu, "c_layer", 2);
	other = host_begin(&gpu, 2, 0);
	launch_elsewhere(&gpu, "d_of_two", MOETRACE_NO_LAYER);
	moetrace_pass_end(other);
	other = host_begin(&gpu, 3, moetrace_pass_number(pass));
	launch_elsewhere(&gpu, "e_part", MOETRACE_NO_LAYER);
	moetrace_pass_end(other);
	begin(&gpu);
	launch_elsewhere(&gpu, "f_lane", MOETRACE_NO_LAYER);
	end(&gpu);
	launch_elsewhere(&gpu, "g_again", MOETRACE_NO_LAYER);
	/* Of what is not recorded nobody knows when it is open. */
	moetrace_region_disable(gpu.toy.session);
	ck_assert(!toy_pass(&gpu.toy, MOETRACE_PHASE_DECODE, MOETRACE_NO_REQUEST, 0, 1));
	moetrace_region_enable(gpu.toy.session);
	launch_elsewhere(&gpu, "h_left_out", MOETRACE_NO_LAYER);
	launch_kernel(&gpu, "i_own");
	moetrace_pass_end(pass);
	db = finish(&gpu);
	ck_assert_str_eq(ties_of(db), "a_none:--- b_only:1-4 c_layer:124 d_of_two:--- e_part:3-4 f_lane:---"
				      " g_again:1-4 h_left_out:--- i_own:1-1");
	db_close(db);
}
END_TEST

/* Graphs: the layers are known by their nodes, the pass by the launch, or by time. */
START_TEST(test_host_graphs)
{
	struct gpu gpu = start("host_graphs.db", "kernel");
	const uint64_t base_ns = now_ns() + 100000000;
	struct moetrace_pass *pass;
	sqlite3 *db;

	capture(&gpu);
	for (uint32_t i = 0; i < 2; i++) {
		pass = host_begin(&gpu, 1 + i, 0);
		if (i == 0)
			fake->launch(1, gpu.stream, ++last_correlation);
		else
			launch_elsewhere(&gpu, "alone", MOETRACE_NO_LAYER);
		moetrace_pass_end(pass);
		for (uint64_t node = 1; i == 0 && node <= 13; node++)
			put_kernel(names[node == 1 ? 0 : 1 + (node - 2) % 4], base_ns + node * 1000, 500,
				   last_correlation, 100 + node);
	}
	db = finish(&gpu);
	ck_assert_str_eq(db_text(db, "SELECT runtime_pass || known_by || n_untimed FROM graph_launch JOIN"
				     " pass USING (pass_id)"), "110");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(n || ':' || known_by) FROM (SELECT count(*) AS n,"
				     " known_by FROM kernel_event GROUP BY known_by ORDER BY known_by)"),
			 "1:1,12:2,1:4");
	db_close(db);
}
END_TEST

static struct gpu *host_gpu;

/* Passes of the host's whose kernels have the thread's own name. */
static void *run_host(void *argument)
{
	const uint64_t first = *(const uint64_t *)argument;

	for (uint64_t i = 0; i < 200; i++) {
		struct moetrace_pass *pass = host_begin(host_gpu, first + i, 0);

		for (uint32_t j = 0; j < 5; j++)
			launch_kernel(host_gpu, names[first / 1000]);
		moetrace_pass_end(pass);
	}
	return NULL;
}

START_TEST(test_host_threads)
{
	struct gpu gpu = start("host_threads.db", "kernel");
	uint64_t firsts[3] = { 1000, 2000, 3000 };
	pthread_t threads[3];
	sqlite3 *db;

	host_gpu = &gpu;
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run_host, &firsts[i]), 0);
	for (uint32_t i = 0; i < 100; i++)
		launch_kernel(&gpu, "elsewhere"); /* meanwhile: of one of them, or of none */
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	db = finish(&gpu);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM (SELECT p.runtime_pass FROM kernel_event AS k JOIN"
				    " pass AS p USING (pass_id) WHERE k.known_by = 1 AND k.name = CASE"
				    " p.runtime_pass / 1000 WHEN 1 THEN 'attention_k' WHEN 2 THEN 'gate_k'"
				    " ELSE 'topk_k' END GROUP BY p.pass_id HAVING count(*) = 5)"), 600);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel_event WHERE name = 'elsewhere' AND"
				    " (pass_id IS NULL OR known_by = 4)"), 100);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel"), 3100);
	db_close(db);
}
END_TEST

START_TEST(test_misuse)
{
	struct gpu gpu = start("misuse.db", "graph");
	sqlite3 *db;

	moetrace_cuda_mark(NULL, 0, MOETRACE_ROLE_GATE);
	moetrace_cuda_mark(gpu.lane, N_LAYERS, MOETRACE_ROLE_GATE);
	moetrace_cuda_mark(gpu.lane, 0, 99);
	moetrace_cuda_mark(gpu.lane, MOETRACE_NO_LAYER, MOETRACE_ROLE_COPY);
	db = finish(&gpu);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM diagnostic WHERE message LIKE"
				    " '%%moetrace_cuda_mark()%%2 times%%' OR message LIKE"
				    " '%%moetrace_cuda_mark()%%'"), 1);
	db_close(db);
}
END_TEST

/* The host ends a pass long after its kernel was read: that waits for as long as the pass is open. */
START_TEST(test_late_end)
{
	struct gpu gpu = start("late.db", "kernel:every=1");
	sqlite3 *db;

	begin(&gpu);
	launch_kernel(&gpu, "expert_k");
	suite_sleep_ms(2600);
	end(&gpu);
	suite_sleep_ms(50);
	db = finish(&gpu);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel AS k JOIN pass AS p USING (pass_id)"
				    " WHERE p.end_ns - k.end_ns > 2000000000"), 1);
	ck_assert_int_eq(db_stat(db, 1, "untied_kernels"), 0);
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cupti_ties");
	TCase *tests = tcase_create("cupti_ties");

	tcase_set_timeout(tests, 30);
	tcase_add_test(tests, test_eager);
	tcase_add_test(tests, test_graph_nodes);
	tcase_add_test(tests, test_order);
	tcase_add_test(tests, test_graph_launches);
	tcase_add_test(tests, test_overhead);
	tcase_add_loop_test(tests, test_sampling, 0, sizeof(samplings) / sizeof(samplings[0]));
	tcase_add_test(tests, test_old_version);
	tcase_add_test(tests, test_threads);
	tcase_add_test(tests, test_host);
	tcase_add_test(tests, test_host_by_time);
	tcase_add_test(tests, test_host_graphs);
	tcase_add_test(tests, test_host_threads);
	tcase_add_test(tests, test_late_end);
	tcase_add_test(tests, test_misuse);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
