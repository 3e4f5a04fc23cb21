/* SPDX-License-Identifier: MIT */
/*
 * The file's size: the pages of topk and pass_layer, by SQLite's own account, over the bytes
 * of ids and weights that they hold. A quick choice of the shapes that bench_size measures.
 */
#include <stdio.h>
#include <string.h>

#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

static const double max_ratio = 1.15;

static const struct {
	uint32_t n_rows;
	uint32_t n_layers;
	uint32_t n_experts;
	uint32_t n_passes;
} shapes[] = {
	{16, 6, 64, 1500}, {16, 58, 256, 150}, {64, 6, 256, 400},
	{64, 58, 64, 40},  {256, 6, 64, 100},  {256, 58, 256, 10},
	{512, 6, 64, 50},  {512, 58, 256, 5},  {8192, 6, 256, 4},
};

static bool has_dbstat(sqlite3 *db)
{
	sqlite3_stmt *stmt = NULL;
	const int rc = sqlite3_prepare_v2(db, "SELECT pgsize FROM dbstat", -1, &stmt, NULL);

	sqlite3_finalize(stmt);
	return rc == SQLITE_OK;
}

START_TEST(test_size)
{
	struct moetrace_session_opts opts = toy_opts();
	uint64_t payload_bytes;
	double ratio;
	struct toy toy;
	sqlite3 *db;
	uint32_t i;

	/* The defaults, but for the size of the rings: nothing may be lost at this speed. */
	opts.commit_interval_ms = 0;
	opts.ring_bytes = UINT64_C(64) << 20;
	toy = toy_start("size.db", &opts, shapes[_i].n_layers, shapes[_i].n_experts, 8);
	for (i = 0; i < shapes[_i].n_passes; i++)
		ck_assert(toy_pass(&toy, MOETRACE_PHASE_DUMMY, MOETRACE_NO_REQUEST, 0,
				   shapes[_i].n_rows));
	toy_close(&toy);
	db = db_open(toy.path);
	if (!has_dbstat(db))
		return;
	payload_bytes =
		(uint64_t)shapes[_i].n_rows * shapes[_i].n_layers * shapes[_i].n_passes * 8 * 3;
	ck_assert_int_eq(
		db_int(db, "SELECT sum(length(topk_ids) + length(topk_weights)) FROM topk"),
		(int64_t)payload_bytes);
	ratio = db_double(db,
			  "SELECT sum(pgsize) FROM dbstat WHERE name IN ('topk', 'pass_layer')") /
		(double)payload_bytes;
	ck_assert_msg(ratio <= max_ratio, "%u rows, %u layers, %u experts: %.3f bytes a byte",
		      shapes[_i].n_rows, shapes[_i].n_layers, shapes[_i].n_experts, ratio);
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("size");
	TCase *tcase = tcase_create("size");

	tcase_add_loop_test(tcase, test_size, 0, sizeof(shapes) / sizeof(shapes[0]));
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
