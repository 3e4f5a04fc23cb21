/* SPDX-License-Identifier: MIT */
/*
 * Weights: every value of the stored formats, what lies between them, and what happens to a
 * weight when its expert is left out or nobody wants weights.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/db.h"
#include "tests/unit/support/half.h"
#include "tests/unit/support/one_layer.h"
#include "tests/unit/support/suite.h"

enum { N_BITS = 65536, ROUNDING_K = 16, ROUNDING_ROWS = N_BITS * 4 / ROUNDING_K };

struct rounding {
	enum moetrace_weight_format format;
	const struct half_format *half;
};

static const struct rounding roundings[] = {
	{MOETRACE_WEIGHT_FORMAT_FP16, &half_fp16},
	{MOETRACE_WEIGHT_FORMAT_BF16, &half_bf16},
};

/* Records @n_rows x ROUNDING_K weights and compares each with what rounding makes of it. */
static void check_rounding(const struct rounding *rounding, uint32_t weight_type,
			   const void *weights, const double *values, uint32_t n_rows)
{
	struct moetrace_session_opts opts = toy_opts();
	uint16_t ids[ROUNDING_K];
	struct moetrace_selection selection = one_layer_selection(MOETRACE_TYPE_U16, NULL);
	uint16_t *all_ids = malloc((size_t)n_rows * sizeof(ids));
	struct moetrace_pass *pass;
	sqlite3_stmt *stmt;
	struct toy toy;
	sqlite3 *db;
	size_t i, done = 0;

	ck_assert_ptr_nonnull(all_ids);
	opts.weight_format = rounding->format;
	toy = toy_start("rounding.db", &opts, 1, 64, ROUNDING_K);
	for (i = 0; i < (size_t)n_rows * ROUNDING_K; i++)
		all_ids[i] = (uint16_t)(i % ROUNDING_K);
	selection.ids = all_ids;
	selection.n_rows = n_rows;
	selection.weight_type = weight_type;
	selection.weights = weights;
	pass = one_layer_begin(&toy, n_rows);
	moetrace_select_experts(pass, &selection);
	moetrace_pass_end(pass);
	toy_close(&toy);
	db = db_open(toy.path);
	stmt = db_query(db, "SELECT topk_weights FROM topk ORDER BY topk_id");
	while (db_step(stmt)) {
		const unsigned char *blob = sqlite3_column_blob(stmt, 0);
		const size_t n = (size_t)sqlite3_column_bytes(stmt, 0) / 2;

		ck_assert_uint_le(done + n, (size_t)n_rows * ROUNDING_K);
		for (i = 0; i < n; i++) {
			const uint16_t got = (uint16_t)(blob[2 * i] | blob[2 * i + 1] << 8);
			const uint16_t want = half_from_double(rounding->half, values[done + i]);

			REQUIRE(half_same(rounding->half, got, want),
				"%a is stored as %#x instead of %#x", values[done + i], got, want);
		}
		done += n;
	}
	sqlite3_finalize(stmt);
	ck_assert_uint_eq(done, (size_t)n_rows * ROUNDING_K);
	db_close(db);
	free(all_ids);
}

/* Every value of the stored format, the middle to the next one, and both sides of that. */
START_TEST(test_rounding_of_fp32)
{
	const struct rounding *rounding = &roundings[_i];
	float *weights = malloc(4 * N_BITS * sizeof(*weights));
	double *values = malloc(4 * N_BITS * sizeof(*values));
	size_t i;

	ck_assert(weights && values);
	for (i = 0; i < N_BITS; i++) {
		const float value = (float)half_to_double(rounding->half, (uint16_t)i);
		const float next = (float)half_to_double(rounding->half, (uint16_t)(i + 1));
		const float middle = isfinite(next) ? (float)(((double)value + (double)next) / 2)
						    : value * 1.0004883f;

		weights[4 * i] = value;
		weights[4 * i + 1] = middle;
		weights[4 * i + 2] = nextafterf(middle, INFINITY);
		weights[4 * i + 3] = nextafterf(middle, -INFINITY);
	}
	for (i = 0; i < 4 * N_BITS; i++)
		values[i] = (double)weights[i];
	check_rounding(rounding, MOETRACE_TYPE_F32, weights, values, ROUNDING_ROWS);
	free(weights);
	free(values);
}
END_TEST

static void check_halves(const struct rounding *rounding, uint32_t type,
			 const struct half_format *from)
{
	uint16_t *weights = malloc(N_BITS * sizeof(*weights));
	double *values = malloc(N_BITS * sizeof(*values));
	size_t i;

	ck_assert(weights && values);
	for (i = 0; i < N_BITS; i++) {
		weights[i] = (uint16_t)i;
		values[i] = half_to_double(from, (uint16_t)i);
	}
	check_rounding(rounding, type, weights, values, N_BITS / ROUNDING_K);
	free(weights);
	free(values);
}

START_TEST(test_rounding_of_fp16)
{
	check_halves(&roundings[_i], MOETRACE_TYPE_F16, &half_fp16);
}
END_TEST

START_TEST(test_rounding_of_bf16)
{
	check_halves(&roundings[_i], MOETRACE_TYPE_BF16, &half_bf16);
}
END_TEST

/* Weights follow their experts when entries are left out. */
START_TEST(test_weights_move_with_ids)
{
	static const int32_t ids[] = {-1, 9, 99, 4};
	static const float weights[] = {7.0f, 1.0f, 7.0f, 0.5f};
	struct moetrace_selection selection = one_layer_selection(MOETRACE_TYPE_I32, ids);
	sqlite3 *db;

	selection.weight_type = MOETRACE_TYPE_F32;
	selection.weights = weights;
	db = one_layer_record(16, 4, 1, &selection);
	ck_assert_str_eq(one_layer_stored(db, "topk_ids"), "09040000");
	ck_assert_str_eq(one_layer_stored(db, "topk_weights"), "003C003800000000");
	ck_assert_str_eq(one_layer_stored(db, "n_valid"), "02");
	db_close(db);
}
END_TEST

START_TEST(test_weights_not_wanted)
{
	static const int32_t ids[] = {1, 2};
	static const float weights[] = {0.5f, 0.5f};
	struct moetrace_session_opts opts = toy_opts();
	struct moetrace_selection selection = one_layer_selection(MOETRACE_TYPE_I32, ids);
	struct moetrace_pass *pass;
	struct toy toy;
	sqlite3 *db;

	opts.weight_format = MOETRACE_WEIGHT_FORMAT_NONE;
	toy = toy_start("none.db", &opts, 1, 8, 2);
	selection.n_rows = 1;
	selection.weight_type = MOETRACE_TYPE_F32;
	selection.weights = weights;
	pass = one_layer_begin(&toy, 1);
	moetrace_select_experts(pass, &selection);
	moetrace_pass_end(pass);
	toy_close(&toy);
	db = db_open(toy.path);
	ck_assert_str_eq(db_text(db, "SELECT weight_format FROM topk"), "none");
	ck_assert_str_eq(one_layer_stored(db, "topk_weights"), "none");
	ck_assert_str_eq(one_layer_stored(db, "topk_ids"), "0102");
	db_close(db);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("weights");
	TCase *weights = tcase_create("weights");

	tcase_add_loop_test(weights, test_rounding_of_fp32, 0, 2);
	tcase_add_loop_test(weights, test_rounding_of_fp16, 0, 2);
	tcase_add_loop_test(weights, test_rounding_of_bf16, 0, 2);
	tcase_add_test(weights, test_weights_move_with_ids);
	tcase_add_test(weights, test_weights_not_wanted);
	suite_add_tcase(suite, weights);
	return suite_run(suite);
}
