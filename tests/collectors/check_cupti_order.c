/* SPDX-License-Identifier: MIT */
/*
 * Times that a stream or a graph cannot have, from a CUPTI made for tests: they are marked, whatever
 * order they come in, and no others are.
 */
#include "collectors/cupti/api.h"
#include "tests/collectors/support/cupti_toy.h"
#include "tests/unit/support/agree.h"
#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"

struct run {
	int64_t start_ns;
	int64_t end_ns;
	uint32_t stream; /* 0: 7 */
	uint32_t node;	 /* 0: launched alone */
};

static void put_runs(uint64_t base_ns, const struct run *runs, uint32_t n_runs, uint32_t kind,
		     uint32_t correlation, uint32_t graph)
{
	for (uint32_t i = 0; i < n_runs; i++) {
		const struct fake_cupti_record record = {
			.kind = kind,
			.name = "norm_kernel",
			.start_ns = base_ns + (uint64_t)runs[i].start_ns,
			.end_ns = base_ns + (uint64_t)runs[i].end_ns,
			.stream = runs[i].stream,
			.node = runs[i].node,
			.graph = graph,
			.correlation = graph ? correlation : correlation + i,
		};

		cupti_fake->put(&record);
	}
}

#define PUT(base_ns, runs, kind, correlation, graph) \
	put_runs(base_ns, runs, sizeof(runs) / sizeof((runs)[0]), kind, correlation, graph)

static sqlite3 *finish_proved(struct toy *toy)
{
	sqlite3 *db = cupti_toy_finish(toy);

	agree_prove(toy->path);
	return db;
}

/* Of launches of graphs the second one after it may not begin early, in whatever order they come. */
static const struct run alone[] = {
	{ 0, 500000, 0, 0 },	   { 100000, 200000, 0, 0 },  { 400000, 600000, 0, 0 },
	{ 0, 1000000, 9, 0 },	   { 550000, 700000, 0, 0 },  { 800000, 850000, 0, 0 },
	{ 710000, 790000, 0, 0 },  { 900000, 950000, 9, 0 },  { 860000, 206000000, 0, 0 },
	{ 870000, 206000000, 0, 0 }, { 880000, 206000000, 0, 0 },
};
/* Kernels that are launched alone may chain, and have ends of their own. */
static const char *const alone_flags[] = { "0,0,0,0,0,0,0,0,0,0,0", "32,0,0,0,0,0,0,0,32,32,32" };

START_TEST(test_overtaken)
{
	static const uint32_t kinds[] = { MTC_CUPTI_CONCURRENT_KERNEL, MTC_CUPTI_GRAPH_TRACE };
	static const char *const tables[] = { "kernel", "graph_launch" };
	struct toy toy = cupti_toy_open("overtaken.db", _i ? "graph" : "kernel");
	sqlite3 *db;

	cupti_toy_start(&toy);
	PUT(fakes_realtime_ns(), alone, kinds[_i], 10, 0);
	db = finish_proved(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(flags) FROM (SELECT * FROM %s ORDER BY"
				     " correlation)", tables[_i]), alone_flags[_i]);
	/* Marked, not mended. */
	ck_assert_int_eq(db_int(db, "SELECT end_ns - start_ns FROM %s WHERE correlation = 10",
				tables[_i]), 500000);
	ck_assert_int_eq(db_int(db, "SELECT n_invalid FROM collector"), _i ? 4 : 0);
	db_close(db);
}
END_TEST

/* Those of a launch whose ends are of a later one of its graph: all, or the first ones. */
static const struct run good_nodes[] = {
	{ 0, 5000, 0, 1 },     { 5200, 10700, 0, 2 },  { 11000, 21500, 0, 3 },
	{ 21000, 24000, 0, 4 }, { 24000, 25000, 0, 5 },
};
static const struct run late_nodes[] = {
	{ 0, 205660627, 0, 1 },	    { 5280, 205666195, 0, 2 },	{ 11168, 205676787, 0, 3 },
	{ 21888, 205679667, 0, 4 }, { 24888, 205680667, 0, 5 },
};
static const struct run half_nodes[] = {
	{ 0, 389150, 0, 1 },	 { 1633, 391166, 0, 2 },   { 173631, 188255, 0, 3 },
	{ 188671, 191903, 0, 4 }, { 192159, 193695, 0, 5 },
};
/* A branch that runs beside the others. */
static const struct run forked_nodes[] = {
	{ 0, 5000, 0, 11 },	   { 5200, 90000, 8, 12 }, { 5300, 10000, 0, 13 },
	{ 11000, 20000, 0, 14 }, { 21000, 30000, 0, 15 }, { 91000, 95000, 0, 16 },
};
/* Now another node has that stream. */
static const struct run mixed_nodes[] = {
	{ 0, 5000, 0, 11 },	   { 5200, 10000, 0, 12 }, { 5300, 90000, 8, 13 },
	{ 11000, 20000, 0, 14 }, { 21000, 30000, 0, 15 }, { 91000, 95000, 0, 16 },
};

/* Branches that have one number: the first kernel runs beside all others. */
static const struct run beside_nodes[] = {
	{ 0, 100000, 0, 21 },	   { 1000, 9000, 0, 22 },   { 11000, 20000, 0, 23 },
	{ 21000, 30000, 0, 24 }, { 31000, 40000, 0, 25 },
};
/* Kernels that chain. */
static const struct run chained_nodes[] = {
	{ 0, 25000, 0, 1 },      { 5200, 26000, 0, 2 },   { 11000, 27000, 0, 3 },
	{ 21000, 28000, 0, 4 }, { 28000, 29000, 0, 5 },
};

START_TEST(test_overtaken_nodes)
{
	const uint32_t kind = MTC_CUPTI_CONCURRENT_KERNEL;
	struct toy toy = cupti_toy_open("overtaken_nodes.db", "kernel");
	uint64_t base_ns;
	sqlite3 *db;

	cupti_toy_start(&toy);
	/* Of 11 and 12 it is not known whether their graph was launched again. */
	for (uint32_t i = 10; i <= 18; i++)
		if (i != 11 && i != 12)
			cupti_fake->launch(1, NULL, i);
	base_ns = fakes_realtime_ns();
	PUT(base_ns, good_nodes, kind, 10, 4);
	PUT(base_ns + 1000000, late_nodes, kind, 11, 4);
	PUT(base_ns + 2000000, half_nodes, kind, 12, 4);
	PUT(base_ns + 3000000, good_nodes, kind, 13, 4);
	PUT(base_ns + 4000000, forked_nodes, kind, 14, 6);
	PUT(base_ns + 5000000, mixed_nodes, kind, 15, 6);
	PUT(base_ns + 6000000, forked_nodes, kind, 16, 6);
	PUT(base_ns + 7000000, beside_nodes, kind, 17, 8);
	PUT(base_ns + 8000000, chained_nodes, kind, 18, 4);
	db = finish_proved(&toy);
	ck_assert_str_eq(db_text(db, "SELECT group_concat(correlation || ':' || flags || ':' || n_untimed"
				     " || ':' || coalesce(end_ns - start_ns, '-')) FROM (SELECT * FROM"
				     " graph_launch ORDER BY correlation)"),
			 "10:0:0:25000,11:33:5:-,12:32:2:20064,13:0:0:25000,14:0:0:95000,"
			 "15:0:0:95000,16:0:0:95000,17:0:0:100000,18:0:0:29000");
	ck_assert_str_eq(db_text(db, "SELECT group_concat(b) FROM (SELECT graph, group_concat(coalesce("
				     "branch, '-'), '') AS b FROM (SELECT * FROM graph_node ORDER BY"
				     " graph, node) GROUP BY graph)"), "00000,010000,------,-----");
	ck_assert_int_eq(db_int(db, "SELECT n_rows = 9 AND n_invalid = 2 FROM collector"), 1);
	ck_assert_int_eq(db_int(db, "SELECT max(duration_ns) FROM kernel_event"), 100000);
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cupti order");
	TCase *tests = tcase_create("order");

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, test_overtaken, 0, 2);
	tcase_add_test(tests, test_overtaken_nodes);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
