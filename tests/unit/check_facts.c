/* SPDX-License-Identifier: MIT */
/*
 * Margins and flags of rows, as routers tell them: stored as they were passed beside what they
 * belong to, whichever way the layer took, or not at all where they cannot be so.
 */
#include <math.h>
#include <string.h>

#include "tests/unit/support/db.h"
#include "tests/unit/support/suite.h"
#include "tests/unit/support/toy.h"

enum { N_ROWS = 6, N_EXPERTS = 16, TOP_K = 2 };

static const float margins[N_ROWS] = {0.5f, 0.0f, INFINITY, 1e-30f, 0.25f, 2.0f};
static const uint8_t flags[N_ROWS] = {0, MOETRACE_ROW_TIE, 0, MOETRACE_ROW_NAN, 0,
				      MOETRACE_ROW_TIE};

struct layer {
	int32_t ids[N_ROWS * TOP_K];
	float weights[N_ROWS * TOP_K];
	struct moetrace_selection selection;
};

static void make_layer(const struct toy *toy, struct layer *layer)
{
	for (uint32_t i = 0; i < N_ROWS * TOP_K; i++) {
		layer->ids[i] = (int32_t)toy_expert(toy, 0, i / TOP_K, i % TOP_K);
		layer->weights[i] = 0.5f;
	}
	MOETRACE_INIT(&layer->selection);
	layer->selection.n_rows = N_ROWS;
	layer->selection.id_type = MOETRACE_TYPE_I32;
	layer->selection.ids = layer->ids;
	layer->selection.weight_type = MOETRACE_TYPE_F32;
	layer->selection.weights = layer->weights;
	layer->selection.order = MOETRACE_ORDER_SELECTION;
	layer->selection.margins = margins;
	layer->selection.row_flags = flags;
}

static void record(const struct toy *toy, uint64_t request, const struct moetrace_selection *selection)
{
	const struct moetrace_slice slice = {.request = request, .n_rows = N_ROWS};
	struct moetrace_pass *pass = toy_begin(toy, MOETRACE_PHASE_PREFILL, &slice, 1);

	moetrace_select_experts(pass, selection);
	moetrace_pass_end(pass);
}

static void expect_blobs(sqlite3 *db, const void *want_margins, const uint8_t *want_flags, int n)
{
	sqlite3_stmt *stmt = db_query(db, "SELECT margins, row_flags, n_rows FROM topk");

	ck_assert(db_step(stmt));
	ck_assert_int_eq(sqlite3_column_int(stmt, 2), n);
	ck_assert_int_eq(sqlite3_column_bytes(stmt, 0), want_margins ? n * 4 : 0);
	ck_assert_int_eq(sqlite3_column_bytes(stmt, 1), want_flags ? n : 0);
	if (want_margins)
		ck_assert_mem_eq(sqlite3_column_blob(stmt, 0), want_margins, (size_t)n * 4);
	if (want_flags)
		ck_assert_mem_eq(sqlite3_column_blob(stmt, 1), want_flags, (size_t)n);
	ck_assert(!db_step(stmt));
	sqlite3_finalize(stmt);
}

/* 0: as most layers go, 1: by the writer, 2: margins alone, 3: flags alone, 4: neither. */
START_TEST(test_stored)
{
	struct toy toy = toy_start("facts.db", NULL, 1, N_EXPERTS, TOP_K);
	struct layer layer;
	sqlite3 *db;

	make_layer(&toy, &layer);
	if (_i == 1)
		layer.selection.order = MOETRACE_ORDER_UNORDERED;
	if (_i == 3 || _i == 4)
		layer.selection.margins = NULL;
	if (_i == 2 || _i == 4)
		layer.selection.row_flags = NULL;
	record(&toy, toy_request(&toy, "a"), &layer.selection);
	db = toy_close_and_open(&toy);
	expect_blobs(db, layer.selection.margins, layer.selection.row_flags, N_ROWS);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM diagnostic WHERE severity <> 'info'"), 0);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM token_topk WHERE row_flags = 2 AND"
				    " margin IN (x'00000000', x'00000040')"),
			 _i < 2 ? 2 : 0);
	db_close(db);
}
END_TEST

/* Of rows, one of which lacks an expert. */
START_TEST(test_lacking)
{
	struct toy toy = toy_start("lacking.db", NULL, 1, N_EXPERTS, TOP_K);
	struct layer layer;
	sqlite3 *db;

	make_layer(&toy, &layer);
	layer.ids[3 * TOP_K + 1] = -1;
	if (_i == 1)
		layer.selection.row_flags = NULL;
	record(&toy, toy_request(&toy, "a"), &layer.selection);
	db = toy_close_and_open(&toy);
	expect_blobs(db, margins, layer.selection.row_flags, N_ROWS);
	ck_assert_int_eq(db_int(db, "SELECT hex(n_valid) = '020202010202' FROM topk"), 1);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM diagnostic WHERE severity <> 'info'"), 0);
	db_close(db);
}
END_TEST

/* With a map of rows, and of those a sample of requests. */
START_TEST(test_sampled)
{
	struct toy toy = toy_open("sampled.db", NULL, 1, N_EXPERTS, TOP_K);
	struct moetrace_recording_opts opts;
	struct moetrace_slice slices[2] = {{.n_rows = 2}, {.n_rows = N_ROWS - 2}};
	struct moetrace_pass *pass;
	struct layer layer;
	sqlite3 *db;

	MOETRACE_INIT(&opts);
	opts.sample_every_n_requests = 2;
	ck_assert_int_eq(moetrace_start(toy.session, &opts), MOETRACE_OK);
	slices[0].request = toy_request(&toy, "a");
	slices[1].request = toy_request(&toy, "b");
	make_layer(&toy, &layer);
	pass = toy_begin(&toy, MOETRACE_PHASE_PREFILL, slices, 2);
	moetrace_select_experts(pass, &layer.selection);
	moetrace_pass_end(pass);
	db = toy_close_and_open(&toy);
	if (db_int(db, "SELECT n_rows FROM topk") == 2)
		expect_blobs(db, margins, flags, 2);
	else
		expect_blobs(db, margins + 2, flags + 2, N_ROWS - 2);
	db_close(db);
}
END_TEST

/* What cannot be takes all of it from the layer and nothing else. */
START_TEST(test_refused)
{
	struct toy toy = toy_start("refused.db", NULL, 1, N_EXPERTS, TOP_K);
	float wrong_margins[N_ROWS];
	uint8_t wrong_flags[N_ROWS];
	struct layer layer;
	sqlite3 *db;

	memcpy(wrong_margins, margins, sizeof(margins));
	memcpy(wrong_flags, flags, sizeof(flags));
	if (_i == 0)
		wrong_margins[3] = -1e-6f;
	if (_i == 1)
		wrong_margins[3] = NAN;
	if (_i == 2)
		wrong_flags[3] = 4;
	if (_i == 3)
		wrong_flags[1] = 0;
	make_layer(&toy, &layer);
	layer.selection.margins = wrong_margins;
	layer.selection.row_flags = wrong_flags;
	record(&toy, toy_request(&toy, "a"), &layer.selection);
	db = toy_close_and_open(&toy);
	expect_blobs(db, NULL, NULL, N_ROWS);
	ck_assert_int_eq(db_int(db, "SELECT count(*) FROM diagnostic WHERE message LIKE 'margins%%'"),
			 1);
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("facts");
	TCase *tc = tcase_create("facts");

	tcase_add_loop_test(tc, test_stored, 0, 5);
	tcase_add_loop_test(tc, test_lacking, 0, 2);
	tcase_add_test(tc, test_sampled);
	tcase_add_loop_test(tc, test_refused, 0, 4);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
