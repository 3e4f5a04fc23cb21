/* SPDX-License-Identifier: MIT */
/*
 * Each operation: its definition against values worked out by hand, every vector level against
 * the definition over sizes around the vector width, and the two vector levels bit for bit.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu.h"
#include "kernels/embed/embed.h"
#include "kernels/rope/rope.h"
#include "tests/kernels/support/levels.h"
#include "tests/kernels/support/random.h"
#include "tests/support/run_suite.h"
#include "tests/unit/support/suite.h"

static const uint32_t sizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 64, 97, 128, 131};

#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static const struct mtk_cpu_ops *plain(void)
{
	return mtk_cpu_ops_find(MTK_CPU_PLAIN);
}

/* The level of a test's loop index; make_suite() gives only those of this processor. */
static const struct mtk_cpu_ops *level(int index)
{
	const struct mtk_cpu_ops *ops = mtk_cpu_ops_find((enum mtk_cpu_level)index);

	ck_assert_ptr_nonnull(ops);
	return ops;
}

static void assert_near(const float *found, const float *expected, size_t n, float tolerance)
{
	for (size_t i = 0; i < n; i++)
		REQUIRE(fabsf(found[i] - expected[i]) <= tolerance * (1.0f + fabsf(expected[i])),
			"element %zu of %zu: %.9g, not %.9g", i, n, (double)found[i],
			(double)expected[i]);
}

static void assert_same_bits(const float *a, const float *b, size_t n)
{
	ck_assert_int_eq(memcmp(a, b, n * sizeof(*a)), 0);
}

START_TEST(test_gemm_by_hand)
{
	const float source[2][3] = {{1, 2, 3}, {-4, 5, 0.5f}};
	const float x[2][3] = {{1, 1, 1}, {2, 0, -2}};
	const uint32_t x_rows[] = {1, 0};
	const uint32_t y_rows[] = {0, 2};
	float data[3 * MTK_PANEL] = {0};
	float y[3][2] = {{10, 20}, {30, 40}, {50, 60}};
	struct mtk_matrix weights = {MTK_DTYPE_F32, 2, 3, data};
	const struct mtk_gemm gemm = {&weights, x[0], 3, x_rows, y[0], 2, y_rows, true};

	mtk_matrix_pack(&weights, 0, 2, MTK_DTYPE_F32, source);
	mtk_gemm_plain(&gemm, 0, 2, 0, 1);
	ck_assert_float_eq(y[0][0], 10 + (2 - 6));
	ck_assert_float_eq(y[0][1], 20 + (-8 - 1));
	ck_assert_float_eq(y[1][0], 30);
	ck_assert_float_eq(y[1][1], 40);
	ck_assert_float_eq(y[2][0], 50 + 6);
	ck_assert_float_eq(y[2][1], 60 + 1.5f);
}
END_TEST

/* Run one linear operation into memory of exactly its size. */
static float *run_gemm(const struct mtk_cpu_ops *ops, const struct mtk_matrix *weights,
		       const float *x, uint32_t n_rows, const float *before)
{
	const size_t n = (size_t)n_rows * weights->n_out;
	float *y = malloc(n ? n * sizeof(*y) : 1);
	struct mtk_gemm gemm = {.weights = weights, .x = x, .x_stride = weights->n_in, .y = y,
				.y_stride = weights->n_out, .accumulate = before != NULL};

	ck_assert_ptr_nonnull(y);
	if (before)
		memcpy(y, before, n * sizeof(*y));
	ops->gemm(&gemm, 0, n_rows, 0, mtk_panel_count(weights->n_out));
	return y;
}

static void check_gemm(const struct mtk_cpu_ops *ops, enum mtk_dtype dtype, uint32_t n_out,
		       uint32_t n_in, uint32_t n_rows)
{
	struct mtk_matrix weights = random_matrix(n_out, dtype, n_out, n_in);
	float *x = random_floats(1, (size_t)n_rows * n_in);
	float *before = random_floats(2, (size_t)n_rows * n_out);
	float *expected = run_gemm(plain(), &weights, x, n_rows, NULL);
	float *found = run_gemm(ops, &weights, x, n_rows, NULL);
	float *added = run_gemm(ops, &weights, x, n_rows, before);

	assert_near(found, expected, (size_t)n_rows * n_out, 1e-5f);
	for (size_t i = 0; i < (size_t)n_rows * n_out; i++)
		REQUIRE(added[i] == before[i] + found[i], "element %zu", i);
	/* A row alone gives the bits that it gives among others. */
	for (uint32_t row = 0; row < n_rows; row++) {
		float *alone = run_gemm(ops, &weights, x + (size_t)row * n_in, 1, NULL);

		assert_same_bits(alone, found + (size_t)row * n_out, n_out);
		free(alone);
	}
	free(weights.data);
	free(x);
	free(before);
	free(expected);
	free(found);
	free(added);
}

START_TEST(test_gemm)
{
	static const uint32_t row_counts[] = {0, 1, 2, 3, 4, 5, 6, 7, 11, 13};
	const struct mtk_cpu_ops *ops = level(_i);

	for (int dtype = MTK_DTYPE_F32; dtype <= MTK_DTYPE_BF16; dtype++)
		for (size_t o = 0; o < N_SIZES; o++)
			for (size_t r = 0; r < sizeof(row_counts) / sizeof(row_counts[0]); r++)
				check_gemm(ops, (enum mtk_dtype)dtype, sizes[o],
					   sizes[(o + r) % N_SIZES], row_counts[r]);
}
END_TEST

START_TEST(test_widen_every_half)
{
	const struct mtk_cpu_ops *ops = level(_i);
	const float one = 1.0f;

	/* Every 16-bit pattern but the NaNs as a weight: 1 x w is w, with subnormals. */
	for (int dtype = MTK_DTYPE_F16; dtype <= MTK_DTYPE_BF16; dtype++) {
		for (uint32_t first = 0; first < 65536; first += MTK_PANEL) {
			uint16_t data[MTK_PANEL];
			float y[MTK_PANEL];
			struct mtk_matrix weights = {(enum mtk_dtype)dtype, MTK_PANEL, 1, data};
			struct mtk_gemm gemm = {.weights = &weights, .x = &one, .x_stride = 1,
						.y = y, .y_stride = MTK_PANEL};

			for (uint32_t i = 0; i < MTK_PANEL; i++)
				data[i] = (uint16_t)(first + i);
			ops->gemm(&gemm, 0, 1, 0, 1);
			for (uint32_t i = 0; i < MTK_PANEL; i++) {
				float expected = mtk_matrix_at(&weights, i, 0);

				REQUIRE(isnan(expected) ? isnan(y[i]) : y[i] == expected,
					"element %u: %g, not %g", i, (double)y[i],
					(double)expected);
			}
		}
	}
}
END_TEST

START_TEST(test_rmsnorm_by_hand)
{
	const float x[] = {3, -4, 0, 0};
	const float weight[] = {1, 2, 5, 7};
	float y[4];

	/* The mean square is 25 / 4, its root with epsilon 0 is 2.5. */
	mtk_rmsnorm_plain(x, weight, 4, 0.0f, y);
	ck_assert_float_eq_tol(y[0], 1.2f, 1e-6f);
	ck_assert_float_eq_tol(y[1], -3.2f, 1e-6f);
	ck_assert_float_eq(y[2], 0.0f);
	ck_assert_float_eq(y[3], 0.0f);
}
END_TEST

START_TEST(test_rmsnorm)
{
	const struct mtk_cpu_ops *ops = level(_i);

	for (size_t i = 0; i < N_SIZES; i++) {
		const uint32_t n = sizes[i];
		float *x = random_floats(3, n);
		float *weight = random_floats(4, n);
		float expected[131];

		plain()->rmsnorm(x, weight, n, 1e-6f, expected);
		ops->rmsnorm(x, weight, n, 1e-6f, x);
		assert_near(x, expected, n, 2e-6f);
		free(x);
		free(weight);
	}
}
END_TEST

START_TEST(test_rope_by_hand)
{
	const float theta = 10000.0f;
	float cosines[3 * 2], sines[3 * 2];
	float head[] = {1, 2, 3, 4};

	mtk_rope_table_fill(theta, 4, 3, cosines, sines);
	ck_assert_float_eq(cosines[0], 1.0f);
	ck_assert_float_eq(sines[1], 0.0f);
	/* Position 2: angles 2 and 2 / 100; element 0 turns with 2, element 1 with 3. */
	mtk_rope_plain(cosines + 4, sines + 4, 4, head);
	ck_assert_double_eq_tol((double)head[0], cos(2.0) - 3.0 * sin(2.0), 1e-6);
	ck_assert_double_eq_tol((double)head[2], 3.0 * cos(2.0) + sin(2.0), 1e-6);
	ck_assert_double_eq_tol((double)head[1], 2.0 * cos(0.02) - 4.0 * sin(0.02), 1e-6);
	ck_assert_double_eq_tol((double)head[3], 4.0 * cos(0.02) + 2.0 * sin(0.02), 1e-6);
}
END_TEST

/* Random attention over n_positions; the rest of the last block of keys is NaN. */
struct attention_case {
	struct mtk_attention attention;
	float *queries;
	float *keys;
	float *values;
};

static struct attention_case make_attention(uint32_t head_dim, uint32_t n_queries,
					    uint32_t n_positions)
{
	const uint32_t n_blocks = (n_positions + MTK_KEY_BLOCK - 1) / MTK_KEY_BLOCK;
	const uint32_t stride = (head_dim + MTK_KEY_BLOCK - 1) / MTK_KEY_BLOCK * MTK_KEY_BLOCK;
	struct attention_case c = {
		.queries = random_floats(5, (size_t)n_queries * head_dim),
		.keys = random_floats(6, (size_t)n_blocks * MTK_KEY_BLOCK * head_dim),
		.values = random_floats(7, (size_t)n_positions * stride),
	};

	for (uint32_t t = n_positions; t < n_blocks * MTK_KEY_BLOCK; t++)
		for (uint32_t d = 0; d < head_dim; d++)
			c.keys[mtk_key_offset(head_dim, t, d)] = NAN;
	/* A large scale makes scores differ by tens, as trained models do. */
	c.attention = (struct mtk_attention){
		.queries = c.queries,
		.n_queries = n_queries,
		.keys = c.keys,
		.values = c.values,
		.head_dim = head_dim,
		.value_stride = stride,
		.n_positions = n_positions,
		.scale = 8.0f,
	};
	return c;
}

static void release_attention(struct attention_case *c)
{
	free(c->queries);
	free(c->keys);
	free(c->values);
}

START_TEST(test_attention_by_hand)
{
	struct attention_case c = make_attention(2, 1, 2);
	float out[2];

	c.queries[0] = 1.0f;
	c.queries[1] = 0.0f;
	c.keys[mtk_key_offset(2, 0, 0)] = 0.0f;
	c.keys[mtk_key_offset(2, 1, 0)] = logf(3.0f);
	c.values[0] = 4.0f;
	c.values[1] = 0.0f;
	c.values[c.attention.value_stride] = 8.0f;
	c.values[c.attention.value_stride + 1] = 1.0f;
	c.attention.scale = 1.0f;
	c.attention.out = out;
	/* The weights are 1 / 4 and 3 / 4. */
	mtk_attention_plain(&c.attention);
	ck_assert_float_eq_tol(out[0], 7.0f, 1e-6f);
	ck_assert_float_eq_tol(out[1], 0.75f, 1e-6f);
	release_attention(&c);
}
END_TEST

START_TEST(test_attention)
{
	static const uint32_t head_dims[] = {2, 6, 16, 32, 34, 48, 64, 80, 128};
	static const uint32_t counts[] = {1,  2,  15,  16,  17,  31,  63,
					  64, 65, 127, 255, 256, 257, 523};
	const struct mtk_cpu_ops *ops = level(_i);

	for (size_t h = 0; h < sizeof(head_dims) / sizeof(head_dims[0]); h++) {
		for (size_t n = 0; n < sizeof(counts) / sizeof(counts[0]); n++) {
			const uint32_t n_queries = 1 + (uint32_t)(h + n) % 5;
			const size_t n_out = (size_t)n_queries * head_dims[h];
			struct attention_case c =
				make_attention(head_dims[h], n_queries, counts[n]);
			float *expected = random_floats(8, n_out);
			float *found = random_floats(9, n_out);

			c.attention.out = expected;
			plain()->attention(&c.attention);
			c.attention.out = found;
			ops->attention(&c.attention);
			assert_near(found, expected, n_out, 1e-5f);
			free(expected);
			free(found);
			release_attention(&c);
		}
	}
}
END_TEST

static void check_choice(const struct mtk_cpu_ops *ops, const float *logits, uint32_t n_experts,
			 uint32_t top_k, bool renormalise, const int32_t *ids, const float *weights)
{
	const struct mtk_route_batch batch = {1, 1, logits, NULL, NULL};
	struct mtk_route_config route = mtk_route_config_make(n_experts, top_k);
	double scratch[2048];
	int32_t found_ids[MTK_ROUTE_MAX_TOP_K];
	float found_weights[MTK_ROUTE_MAX_TOP_K];
	const struct mtk_route_result result = {.ids = found_ids, .weights = found_weights};

	if (renormalise)
		route.renormalise = MTK_ROUTE_RENORMALISE_IF_POSITIVE;
	ck_assert_uint_le(mtk_route_scratch_floats(n_experts) * sizeof(float), sizeof(scratch));
	ops->route(&route, &batch, 0, 1, scratch, &result);
	for (uint32_t j = 0; j < top_k; j++) {
		REQUIRE(found_ids[j] == ids[j], "%s: choice %u is %d, not %d", ops->name, j,
			found_ids[j], ids[j]);
		REQUIRE(fabsf(found_weights[j] - weights[j]) < 2e-6f, "%s: weight %u is %g, not %g",
			ops->name, j, (double)found_weights[j], (double)weights[j]);
	}
}

START_TEST(test_route_by_hand)
{
	const float inf = INFINITY;
	const float nan_value = NAN;
	const struct {
		float logits[5];	/* times ln 2 */
		bool renormalise;
		int32_t ids[3];
		float weights[3];
	} cases[] = {
		/* Scores 8, 4, 2, 1 and 1 sixteenths. */
		{{0, 1, 3, 2, 0}, false, {2, 3, 1}, {8.f / 16, 4.f / 16, 2.f / 16}},
		{{0, 1, 3, 2, 0}, true, {2, 3, 1}, {8.f / 14, 4.f / 14, 2.f / 14}},
		/* Equal scores go to the lower id. */
		{{1, 1, 1, 1, 1}, true, {0, 1, 2}, {1.f / 3, 1.f / 3, 1.f / 3}},
		{{0, 5, 0, 5, 5}, true, {1, 3, 4}, {1.f / 3, 1.f / 3, 1.f / 3}},
		/* NaN is chosen last, an infinity takes everything. */
		{{nan_value, 1, nan_value, 1, nan_value}, false, {1, 3, 0}, {.5f, .5f, 0}},
		{{0, inf, 0, inf, 0}, true, {1, 3, 0}, {.5f, .5f, 0}},
		{{-inf, -inf, -inf, -inf, -inf}, false, {0, 1, 2}, {0, 0, 0}},
		{{nan_value, nan_value, nan_value, nan_value, nan_value}, true, {0, 1, 2},
		 {0, 0, 0}},
		{{-inf, 0, -inf, -inf, -inf}, true, {1, 0, 2}, {1, 0, 0}},
	};
	const struct mtk_cpu_ops *ops = level(_i);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		float logits[5];

		for (int e = 0; e < 5; e++)
			logits[e] = cases[i].logits[e] * logf(2.0f);
		check_choice(ops, logits, 5, 3, cases[i].renormalise, cases[i].ids,
			     cases[i].weights);
	}
}
END_TEST

START_TEST(test_route)
{
	static const uint32_t expert_counts[] = {1,  2,   8,   15,  16,  17, 60,
						 64, 127, 128, 160, 256, 257};
	const struct mtk_cpu_ops *ops = level(_i);

	for (size_t i = 0; i < sizeof(expert_counts) / sizeof(expert_counts[0]); i++) {
		const uint32_t n = expert_counts[i];
		const uint32_t top_k = n < 200 ? (n < 8 ? n : 8) : MTK_ROUTE_MAX_TOP_K;
		struct mtk_route_config route = mtk_route_config_make(n, top_k);
		float *logits = random_floats(10 + i, n);
		const struct mtk_route_batch batch = {1, 1, logits, NULL, NULL};
		double scratch[2048];
		int32_t ids[MTK_ROUTE_MAX_TOP_K];
		float weights[MTK_ROUTE_MAX_TOP_K];
		const struct mtk_route_result result = {.ids = ids, .weights = weights};

		for (uint32_t e = 0; e < n; e++)
			logits[e] *= 6.0f;
		if (i % 2 == 0)
			route.renormalise = MTK_ROUTE_RENORMALISE_IF_POSITIVE;
		mtk_route_plain(&route, &batch, 0, 1, scratch, &result);
		check_choice(ops, logits, n, top_k, i % 2 == 0, ids, weights);
		free(logits);
	}
}
END_TEST

START_TEST(test_swiglu)
{
	const struct mtk_cpu_ops *ops = level(_i);
	float edge[] = {0.0f, 200.0f, -200.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f};

	for (size_t i = 0; i < N_SIZES; i++) {
		const uint32_t n = sizes[i];
		float *found = random_floats(11, 2 * (size_t)n);
		float *expected = malloc(2 * n * sizeof(*expected));

		ck_assert_ptr_nonnull(expected);
		for (uint32_t j = 0; j < n; j++)
			found[j] *= 20.0f;
		memcpy(expected, found, 2 * n * sizeof(*expected));
		plain()->swiglu(n, expected);
		ops->swiglu(n, found);
		assert_near(found, expected, n, 2e-6f);
		free(found);
		free(expected);
	}
	/* silu(0) is 0, silu(200) is 200, silu(-200) is nothing, silu(1) is 1 / (1 + 1 / e). */
	ops->swiglu(4, edge);
	ck_assert_float_eq(edge[0], 0.0f);
	ck_assert_float_eq(edge[1], 600.0f);
	ck_assert_float_eq_tol(edge[2], 0.0f, 1e-30f);
	ck_assert_float_eq_tol(edge[3], 5.0f * 0.73105858f, 1e-6f);
}
END_TEST

START_TEST(test_combine)
{
	const struct mtk_cpu_ops *ops = level(_i);

	for (size_t i = 0; i < N_SIZES; i++) {
		const uint32_t n = sizes[i];
		const uint32_t top_k = 1 + (uint32_t)i % 9;
		float *outputs = random_floats(12, (size_t)n * top_k);
		float *weights = random_floats(13, top_k);
		float *hidden = random_floats(14, n);
		float sum[131], expected_sum[131], expected_hidden[131];

		memcpy(expected_hidden, hidden, n * sizeof(*hidden));
		plain()->combine(n, top_k, outputs, weights, expected_sum, expected_hidden);
		ops->combine(n, top_k, outputs, weights, sum, hidden);
		assert_near(sum, expected_sum, n, 2e-6f);
		assert_near(hidden, expected_hidden, n, 2e-6f);
		free(outputs);
		free(weights);
		free(hidden);
	}
}
END_TEST

START_TEST(test_group)
{
	const int32_t ids[] = {3, 0, 1, 3, 3, 1};
	uint32_t first[6], slots[6], rows[6];
	struct mtk_expert_groups groups = {first, slots, rows};
	const uint32_t expected_first[] = {0, 1, 3, 3, 6, 6};
	const uint32_t expected_slots[] = {1, 2, 5, 0, 3, 4};
	const uint32_t expected_rows[] = {0, 1, 2, 0, 1, 2};

	mtk_experts_group(5, 3, 2, ids, &groups);
	ck_assert_mem_eq(first, expected_first, sizeof(first));
	ck_assert_mem_eq(slots, expected_slots, sizeof(slots));
	ck_assert_mem_eq(rows, expected_rows, sizeof(rows));
}
END_TEST

START_TEST(test_embed)
{
	struct mtk_matrix matrix = random_matrix(15, MTK_DTYPE_BF16, 33, 19);
	float hidden[19];

	for (uint32_t token = 0; token < 33; token += 8) {
		mtk_embed(&matrix, token, hidden);
		for (uint32_t i = 0; i < 19; i++)
			REQUIRE(hidden[i] == mtk_matrix_at(&matrix, token, i), "element %u", i);
	}
	free(matrix.data);
}
END_TEST

/* Both vector levels promise the same bits; the definition does not. */
START_TEST(test_vector_levels_agree)
{
	const struct mtk_cpu_ops *a = level(MTK_CPU_AVX2);
	const struct mtk_cpu_ops *b = level(MTK_CPU_AVX512);

	for (size_t i = 0; i < N_SIZES; i++) {
		const uint32_t n = sizes[i];
		struct attention_case c = make_attention(2 * n, 1, 3 * n);
		struct mtk_matrix weights = random_matrix(16, MTK_DTYPE_F16, n, 77);
		float *x = random_floats(17, 77 * 7);
		float *y_a = run_gemm(a, &weights, x, 7, NULL);
		float *y_b = run_gemm(b, &weights, x, 7, NULL);
		float out_a[2 * 131], out_b[2 * 131];

		assert_same_bits(y_a, y_b, 7 * (size_t)n);
		c.attention.out = out_a;
		a->attention(&c.attention);
		c.attention.out = out_b;
		b->attention(&c.attention);
		assert_same_bits(out_a, out_b, 2 * (size_t)n);
		a->rmsnorm(c.queries, c.queries, 2 * n, 1e-6f, out_a);
		b->rmsnorm(c.queries, c.queries, 2 * n, 1e-6f, out_b);
		assert_same_bits(out_a, out_b, 2 * (size_t)n);
		a->swiglu(n, out_a);
		b->swiglu(n, out_b);
		assert_same_bits(out_a, out_b, n);
		release_attention(&c);
		free(weights.data);
		free(x);
		free(y_a);
		free(y_b);
	}
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("ops");
	TCase *hand = tcase_create("definitions");
	TCase *levels = tcase_create("levels");
	const int n_levels = levels_available();

	tcase_add_test(hand, test_gemm_by_hand);
	tcase_add_test(hand, test_rmsnorm_by_hand);
	tcase_add_test(hand, test_rope_by_hand);
	tcase_add_test(hand, test_attention_by_hand);
	tcase_add_loop_test(hand, test_route_by_hand, MTK_CPU_PLAIN, n_levels);
	tcase_add_test(hand, test_group);
	tcase_add_test(hand, test_embed);
	suite_add_tcase(suite, hand);

	tcase_set_timeout(levels, 60);
	tcase_add_loop_test(levels, test_gemm, MTK_CPU_AVX2, n_levels);
	tcase_add_loop_test(levels, test_widen_every_half, MTK_CPU_AVX2, n_levels);
	tcase_add_loop_test(levels, test_rmsnorm, MTK_CPU_AVX2, n_levels);
	tcase_add_loop_test(levels, test_attention, MTK_CPU_AVX2, n_levels);
	tcase_add_loop_test(levels, test_route, MTK_CPU_AVX2, n_levels);
	tcase_add_loop_test(levels, test_swiglu, MTK_CPU_PLAIN, n_levels);
	tcase_add_loop_test(levels, test_combine, MTK_CPU_AVX2, n_levels);
	if (n_levels > MTK_CPU_AVX512)
		tcase_add_test(levels, test_vector_levels_agree);
	suite_add_tcase(suite, levels);
	return suite;
}

int main(void)
{
	return run_suite(make_suite());
}
