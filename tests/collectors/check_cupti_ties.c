/* SPDX-License-Identifier: MIT */
/*
 * Which pass and layer kernels belong to, and graphs as templates: lanes on a GPU made for tests, and a
 * CUPTI made for tests that hears of their launches.
 */
#include <pthread.h>

#include "collectors/cupti/api.h"
#include "tests/collectors/support/cupti_lane.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

/* A pass kernel by kernel, with marks or without. */
static void eager_pass(struct gpu *gpu, int is_marked)
{
	cupti_pass_begin(gpu);
	cupti_launch_kernel(gpu, cupti_kernel_names[0]);
	for (uint32_t layer = 0; layer < CUPTI_LAYERS; layer++) {
		for (uint32_t i = 1; i < 5; i++) {
			if (is_marked)
				moetrace_cuda_mark(gpu->lane, layer,
						   i == 1 ? MOETRACE_ROLE_ATTENTION :
							    MOETRACE_ROLE_BY_NAME);
			cupti_launch_kernel(gpu, cupti_kernel_names[i]);
		}
	}
	cupti_pass_end(gpu);
}

/* Nodes 1 to 13 are captured, 101 to 113 are those of the graph that is launched. */
static void capture(struct gpu *gpu)
{
	cupti_fake->node(1, 0);
	for (uint32_t layer = 0; layer < CUPTI_LAYERS; layer++)
		for (uint32_t i = 1; i < 5; i++) {
			moetrace_cuda_mark(gpu->lane, layer,
					   i == 1 ? MOETRACE_ROLE_ATTENTION : MOETRACE_ROLE_BY_NAME);
			cupti_fake->node(1 + layer * 4 + i, 0);
		}
	moetrace_cuda_mark(gpu->lane, MOETRACE_NO_LAYER, MOETRACE_ROLE_BY_NAME);
	for (uint64_t node = 1; node <= 13; node++)
		cupti_fake->node(100 + node, node);
}

/* What a replay of it gives; the node @lost is not delivered, @zero has no times. */
static void replay(struct gpu *gpu, uint64_t start_ns, uint64_t lost, uint64_t zero)
{
	uint32_t correlation = cupti_next_correlation();

	cupti_pass_begin(gpu);
	cupti_fake->launch(1, gpu->stream, correlation);
	for (uint64_t node = 1; node <= 13; node++)
		if (node != lost)
			cupti_put_kernel(cupti_kernel_names[node == 1 ? 0 : 1 + (node - 2) % 4],
				   node == zero ? 0 : start_ns + node * 1000, 500 + node, correlation,
				   100 + node);
	cupti_pass_end(gpu);
}

START_TEST(test_eager)
{
	struct gpu gpu = cupti_lane_start("eager.db", "eager");
	sqlite3 *db;

	eager_pass(&gpu, 1);
	eager_pass(&gpu, 0);
	cupti_launch_kernel(&gpu, "alone"); /* in no pass */
	db = cupti_lane_finish(&gpu);
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
	struct gpu gpu = cupti_lane_start("nodes.db", "kernel");
	uint64_t base_ns;
	sqlite3 *db;

	capture(&gpu);
	/* Later than the launches, however slow this is. */
	base_ns = fakes_realtime_ns() + 100000000;
	for (int i = 0; i < 3; i++)
		replay(&gpu, base_ns + (uint64_t)i * 100000, 0, 0);
	replay(&gpu, base_ns + 300000, 5, 7);
	db = cupti_lane_finish(&gpu);
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
	struct gpu gpu = cupti_lane_start("order.db", "kernel");
	sqlite3 *db;

	replay(&gpu, fakes_realtime_ns() + 100000000, 0, 0);
	db = cupti_lane_finish(&gpu);
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
	struct gpu gpu = cupti_lane_start("launches.db", "graph");
	sqlite3 *db;

	for (uint32_t i = 0; i < 5; i++) {
		struct fake_cupti_record record = { .kind = MTC_CUPTI_GRAPH_TRACE };

		cupti_pass_begin(&gpu);
		record.correlation = cupti_next_correlation();
		cupti_fake->launch(1, gpu.stream, record.correlation);
		record.start_ns = fakes_realtime_ns();
		record.end_ns = record.start_ns + 1000;
		cupti_fake->put(&record);
		cupti_pass_end(&gpu);
	}
	db = cupti_lane_finish(&gpu);
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

	cupti_fake->put(&record);
}

START_TEST(test_overhead)
{
	struct gpu gpu = cupti_lane_start("overhead.db", "graph");
	uint64_t base_ns = fakes_realtime_ns();
	sqlite3 *db;

	put_overhead(1u << 16, base_ns, base_ns + 700, 0);
	put_overhead(6u << 16, base_ns + 1000, base_ns + 1500, 77);
	put_overhead(99u << 16, base_ns + 2000, base_ns + 2000, 0);
	put_overhead(1u << 16, 0, 0, 0); /* says nothing */
	db = cupti_lane_finish(&gpu);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(name || ':' || (\"end\" - start) || ':' ||"
				     " coalesce(correlationId, '-')) FROM PROFILER_OVERHEAD"),
			 "buffer_flush:700:-,command_buffer_full:500:77,other:0:-");
	ck_assert_int_eq(db_int(db, "SELECT n_rows FROM collector"), 3);
	db_close(db);
}
END_TEST

/* A version that crashes when it is refused a buffer is never refused one; that loss is unknown. */
START_TEST(test_old_version)
{
	struct gpu gpu;
	sqlite3 *db;

	fakes_set("FAKE_CUPTI", "old");
	gpu = cupti_lane_start("old.db", "kernel");
	/* More than there are buffers for, twice. */
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < 200; i++)
			cupti_put_kernel("k", fakes_realtime_ns(), 10, cupti_next_correlation(), 0);
		suite_sleep_ms(150);
	}
	db = cupti_lane_finish(&gpu);
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
		cupti_fake->node(10000 + cupti_next_correlation(), 0);
	}
	return NULL;
}

START_TEST(test_threads)
{
	struct gpu lanes[3];
	pthread_t threads[3];
	sqlite3 *db;

	shared_gpu = cupti_lane_start("threads.db", "kernel");
	for (int i = 0; i < 3; i++) {
		lanes[i] = shared_gpu;
		lanes[i].lane = gpu_lane(&shared_gpu, &lanes[i].stream);
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run_lane, &lanes[i]), 0);
	}
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	db = cupti_lane_finish(&shared_gpu);
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
	cupti_launch_kernel(other->gpu, other->name);
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
	struct gpu gpu = cupti_lane_start("host.db", "kernel");
	struct moetrace_pass *pass, *part;
	uint32_t late;
	sqlite3 *db;

	moetrace_cuda_mark(gpu.lane, 2, MOETRACE_ROLE_BY_NAME); /* of before */
	cupti_launch_kernel(&gpu, "a_none");
	pass = cupti_host_begin(&gpu, 1, 0);
	cupti_launch_kernel(&gpu, "b_no_layer");
	moetrace_cuda_mark(gpu.lane, 1, MOETRACE_ROLE_BY_NAME);
	cupti_launch_kernel(&gpu, "c_layer");
	late = cupti_next_correlation();
	cupti_fake->launch(0, gpu.stream, late);
	moetrace_pass_end(pass);
	cupti_launch_kernel(&gpu, "d_behind");
	pass = cupti_host_begin(&gpu, 2, 0);
	cupti_put_kernel("e_ran_late", fakes_realtime_ns(), 1000, late, 0);
	part = cupti_host_begin(&gpu, 3, moetrace_pass_number(pass));
	cupti_launch_kernel(&gpu, "f_part");
	moetrace_pass_end(part);
	cupti_launch_kernel(&gpu, "g_whole");
	part = cupti_host_begin(&gpu, 4, 0);
	cupti_launch_kernel(&gpu, "h_of_either");
	moetrace_pass_end(part);
	cupti_pass_begin(&gpu);
	cupti_launch_kernel(&gpu, "i_lane");
	cupti_pass_end(&gpu);
	cupti_launch_kernel(&gpu, "j_again");
	moetrace_pass_end(pass);
	db = cupti_lane_finish(&gpu);
	ck_assert_str_eq(ties_of(db), "a_none:--- b_no_layer:1-1 c_layer:111 d_behind:--- e_ran_late:111"
				      " f_part:3-1 g_whole:2-1 h_of_either:--- i_lane:--1 j_again:2-1");
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel JOIN pass USING (pass_id) WHERE"
				    " n_rows = %d", CUPTI_ROWS), 1); /* the lane's */
	db_close(db);
}
END_TEST

/* Begun here, launched there: time alone has to do, where it says anything. */
START_TEST(test_host_by_time)
{
	struct gpu gpu = cupti_lane_start("time.db", "kernel");
	struct moetrace_pass *pass, *other;
	sqlite3 *db;

	launch_elsewhere(&gpu, "a_none", MOETRACE_NO_LAYER);
	pass = cupti_host_begin(&gpu, 1, 0);
	launch_elsewhere(&gpu, "b_only", MOETRACE_NO_LAYER);
	launch_elsewhere(&gpu, "c_layer", 2);
	other = cupti_host_begin(&gpu, 2, 0);
	launch_elsewhere(&gpu, "d_of_two", MOETRACE_NO_LAYER);
	moetrace_pass_end(other);
	other = cupti_host_begin(&gpu, 3, moetrace_pass_number(pass));
	launch_elsewhere(&gpu, "e_part", MOETRACE_NO_LAYER);
	moetrace_pass_end(other);
	cupti_pass_begin(&gpu);
	launch_elsewhere(&gpu, "f_lane", MOETRACE_NO_LAYER);
	cupti_pass_end(&gpu);
	launch_elsewhere(&gpu, "g_again", MOETRACE_NO_LAYER);
	/* Of what is not recorded nobody knows when it is open. */
	moetrace_region_disable(gpu.toy.session);
	ck_assert(!toy_pass(&gpu.toy, MOETRACE_PHASE_DECODE, MOETRACE_NO_REQUEST, 0, 1));
	moetrace_region_enable(gpu.toy.session);
	launch_elsewhere(&gpu, "h_left_out", MOETRACE_NO_LAYER);
	cupti_launch_kernel(&gpu, "i_own");
	moetrace_pass_end(pass);
	db = cupti_lane_finish(&gpu);
	ck_assert_str_eq(ties_of(db), "a_none:--- b_only:1-4 c_layer:124 d_of_two:--- e_part:3-4 f_lane:---"
				      " g_again:1-4 h_left_out:--- i_own:1-1");
	db_close(db);
}
END_TEST

/* Graphs: the layers are known by their nodes, the pass by the launch, or by time. */
START_TEST(test_host_graphs)
{
	struct gpu gpu = cupti_lane_start("host_graphs.db", "kernel");
	const uint64_t base_ns = fakes_realtime_ns() + 100000000;
	const uint32_t correlation = cupti_next_correlation();
	struct moetrace_pass *pass;
	sqlite3 *db;

	capture(&gpu);
	for (uint32_t i = 0; i < 2; i++) {
		pass = cupti_host_begin(&gpu, 1 + i, 0);
		if (i == 0)
			cupti_fake->launch(1, gpu.stream, correlation);
		else
			launch_elsewhere(&gpu, "alone", MOETRACE_NO_LAYER);
		moetrace_pass_end(pass);
		for (uint64_t node = 1; i == 0 && node <= 13; node++)
			cupti_put_kernel(cupti_kernel_names[node == 1 ? 0 : 1 + (node - 2) % 4], base_ns + node * 1000, 500,
				   correlation, 100 + node);
	}
	db = cupti_lane_finish(&gpu);
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
		struct moetrace_pass *pass = cupti_host_begin(host_gpu, first + i, 0);

		for (uint32_t j = 0; j < 5; j++)
			cupti_launch_kernel(host_gpu, cupti_kernel_names[first / 1000]);
		moetrace_pass_end(pass);
	}
	return NULL;
}

START_TEST(test_host_threads)
{
	struct gpu gpu = cupti_lane_start("host_threads.db", "kernel");
	uint64_t firsts[3] = { 1000, 2000, 3000 };
	pthread_t threads[3];
	sqlite3 *db;

	host_gpu = &gpu;
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run_host, &firsts[i]), 0);
	for (uint32_t i = 0; i < 100; i++)
		cupti_launch_kernel(&gpu, "elsewhere"); /* meanwhile: of one of them, or of none */
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	db = cupti_lane_finish(&gpu);
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

/* Kernels that are in the file already, or were lost and counted. */
static int64_t n_written(struct gpu *gpu)
{
	sqlite3 *db;
	int64_t n;

	ck_assert_int_eq(moetrace_flush(gpu->toy.session), MOETRACE_OK);
	db = db_open(gpu->toy.path);
	n = db_int(db, "SELECT (SELECT count(*) FROM kernel) + (SELECT n_dropped FROM collector)");
	db_close(db);
	return n;
}

/*
 * More kernels than may wait for the end of their pass: what found no room is there at once, without a
 * pass, and is counted.
 */
START_TEST(test_full)
{
	enum { N_ROOM = 32768, N_AT_ONCE = 4000, N_KERNELS = 9 * N_AT_ONCE };
	struct gpu gpu = cupti_lane_start("full.db", "kernel");
	struct moetrace_pass *pass = cupti_host_begin(&gpu, 1, 0);
	sqlite3 *db;

	for (int i = 0; i < N_KERNELS; i++) {
		cupti_launch_kernel(&gpu, "expert_k");
		for (int j = 0; j < 6000 && i % N_AT_ONCE == 0 && cupti_fake->n_waiting(); j++)
			suite_sleep_ms(10);
	}
	for (int j = 0; j < 600 && n_written(&gpu) < N_KERNELS - N_ROOM; j++)
		suite_sleep_ms(100);
	moetrace_pass_end(pass);
	db = cupti_lane_finish(&gpu);
	agree_prove(gpu.toy.path);
	ck_assert_int_eq(db_int(db, "SELECT count(*) + (SELECT n_dropped FROM collector) FROM kernel"),
			 N_KERNELS);
	ck_assert_int_le(db_int(db, "SELECT count(*) FROM kernel WHERE pass_id = 1 AND known_by = 1"), N_ROOM);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel WHERE pass_id IS NULL"),
			 db_stat(db, 1, "untied_kernels"));
	ck_assert_int_ge(db_int(db, "SELECT count(*) + (SELECT n_dropped FROM collector) FROM kernel WHERE"
				    " pass_id IS NULL"), N_KERNELS - N_ROOM);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM kernel WHERE flags <> 0 OR pass_id <> 1"), 0);
	db_close(db);
}
END_TEST

START_TEST(test_misuse)
{
	struct gpu gpu = cupti_lane_start("misuse.db", "graph");
	sqlite3 *db;

	moetrace_cuda_mark(NULL, 0, MOETRACE_ROLE_GATE);
	moetrace_cuda_mark(gpu.lane, CUPTI_LAYERS, MOETRACE_ROLE_GATE);
	moetrace_cuda_mark(gpu.lane, 0, 99);
	moetrace_cuda_mark(gpu.lane, MOETRACE_NO_LAYER, MOETRACE_ROLE_COPY);
	db = cupti_lane_finish(&gpu);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM diagnostic WHERE message LIKE"
				    " '%%moetrace_cuda_mark()%%2 times%%' OR message LIKE"
				    " '%%moetrace_cuda_mark()%%'"), 1);
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cupti_ties");
	TCase *tests = tcase_create("cupti_ties");

	tcase_set_timeout(tests, 180);
	tcase_add_test(tests, test_eager);
	tcase_add_test(tests, test_graph_nodes);
	tcase_add_test(tests, test_order);
	tcase_add_test(tests, test_graph_launches);
	tcase_add_test(tests, test_overhead);
	tcase_add_test(tests, test_old_version);
	tcase_add_test(tests, test_threads);
	tcase_add_test(tests, test_host);
	tcase_add_test(tests, test_host_by_time);
	tcase_add_test(tests, test_host_graphs);
	tcase_add_test(tests, test_host_threads);
	tcase_add_test(tests, test_full);
	tcase_add_test(tests, test_misuse);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
