/* SPDX-License-Identifier: MIT */
/*
 * Permutation, its inverse and combination: against plain loops, on every instruction-set level,
 * with memory that is poisoned wherever nothing may be read; the fixed order of additions; and
 * offsets past 2^31 and 2^32 on sparse memory, of which only the rows in question exist.
 */
#include <math.h>
#include <sys/mman.h>

#include "kernels/align/align.h"
#include "kernels/permute/permute.h"
#include "tests/kernels/support/levels.h"
#include "tests/moe_ops/support/draw.h"
#include "tests/moe_ops/support/suite.h"

static const struct mtk_cpu_ops *level(int index)
{
	const struct mtk_cpu_ops *ops = mtk_cpu_ops_find((enum mtk_cpu_level)index);

	ck_assert_ptr_nonnull(ops);
	return ops;
}

/* An alignment in memory of its own. */
struct aligned {
	struct mtk_align_settings settings;
	struct mtk_align_sizes sizes;
	struct mtk_align_result result;
};

static struct aligned align_ids(uint32_t n_experts, uint32_t top_k, uint32_t block_rows,
				uint32_t n_rows, const int32_t *ids)
{
	struct aligned a = {
		.settings = {.n_experts = n_experts, .top_k = top_k, .block_rows = block_rows}};

	ck_assert_int_eq(mtk_align_sizes(&a.settings, n_rows, NULL, &a.sizes), 0);
	a.result.sorted_pairs = take((size_t)a.sizes.capacity, sizeof(int64_t));
	a.result.expert_ids = take((size_t)a.sizes.n_blocks, sizeof(int32_t));
	a.result.first_slots = take((size_t)n_experts + 1, sizeof(int64_t));
	a.result.pair_slots = take((size_t)a.sizes.n_pairs, sizeof(int64_t));
	mtk_align_plain(&a.settings, &a.sizes, ids, &a.result);
	return a;
}

static void release_aligned(struct aligned *a)
{
	free(a->result.sorted_pairs);
	free(a->result.expert_ids);
	free(a->result.first_slots);
	free(a->result.pair_slots);
}

/* Row r of the source holds bytes that depend on r and on the place alone. */
static unsigned char source_byte(int64_t row, size_t i)
{
	return (unsigned char)((uint64_t)row * 31 + i * 7 + 1);
}

static bool row_is(const unsigned char *found, int64_t row, size_t row_bytes)
{
	for (size_t i = 0; i < row_bytes; i++)
		if (found[i] != (row < 0 ? 0 : source_byte(row, i)))
			return false;
	return true;
}

static void check_round_trip(struct mtk_rng *rng, uint32_t n_rows, uint32_t top_k,
			     uint32_t block_rows, size_t row_bytes)
{
	const uint32_t n_pairs = n_rows * top_k;
	int32_t *ids = take(n_pairs, sizeof(*ids));
	unsigned char *rows = take(n_rows, row_bytes);
	unsigned char *pairs = take(n_pairs, row_bytes);
	unsigned char *permuted;
	struct aligned a;

	for (uint32_t i = 0; i < n_pairs; i++)
		ids[i] = draw_id(rng, 11, 1);
	for (size_t i = 0; i < n_rows * row_bytes; i++)
		rows[i] = source_byte((int64_t)(i / row_bytes), i % row_bytes);
	a = align_ids(11, top_k, block_rows, n_rows, ids);
	permuted = take((size_t)a.sizes.capacity, row_bytes);
	mtk_permute_run(&(struct mtk_permute){a.result.sorted_pairs, n_pairs, top_k, row_bytes,
					      rows, permuted},
			0, a.sizes.capacity);
	for (int64_t s = 0; s < a.sizes.capacity; s++) {
		int64_t pair = a.result.sorted_pairs[s];

		require(row_is(permuted + (size_t)s * row_bytes,
			       pair == n_pairs ? -1 : pair / top_k, row_bytes));
	}
	/* Backwards in two pieces: a pair gets its row again, or zeros where it was dropped. */
	for (int half = 1; half >= 0; half--)
		mtk_unpermute_run(
			&(struct mtk_unpermute){a.result.pair_slots, row_bytes, permuted, pairs},
			half ? n_pairs / 2 : 0, half ? n_pairs : n_pairs / 2);
	for (uint32_t p = 0; p < n_pairs; p++)
		require(row_is(pairs + p * row_bytes,
			       ids[p] >= 0 && ids[p] < 11 ? (int64_t)(p / top_k) : -1, row_bytes));
	release_aligned(&a);
	free(permuted);
	free(pairs);
	free(rows);
	free(ids);
}

START_TEST(test_permute_and_back)
{
	static const uint32_t row_counts[] = {0, 1, 15, 16, 17, 700};
	static const size_t row_bytes[] = {1, 2, 6, 64, 130};
	struct mtk_rng rng;

	mtk_rng_seed(&rng, 8, 0);
	for (int i = 0; i < 6; i++)
		for (int j = 0; j < 5; j++)
			for (uint32_t top_k = 1; top_k <= 8; top_k += 7)
				check_round_trip(&rng, row_counts[i], top_k, j == 0 ? 1 : 16,
						 row_bytes[j]);
}
END_TEST

START_TEST(test_permute_bytes)
{
	ck_assert_uint_eq(mtk_permute_bytes(0, 4096), 0);
	ck_assert_uint_eq(mtk_permute_bytes(655360, 16384), UINT64_C(10737418240));
	ck_assert_uint_eq(mtk_permute_bytes(INT64_C(1) << 50, 1 << 13), 0);
	ck_assert_uint_eq(mtk_permute_bytes(INT64_MAX, SIZE_MAX), 0);
	ck_assert_uint_eq(mtk_permute_bytes(-1, 1), 0);
}
END_TEST

/* The sum in double, with the same skipping, and the sum of magnitudes for the tolerance. */
static double brute_sum(const struct mtk_combine *c, const float *outputs, const int64_t *slots,
			const float *weights, const float *input, uint32_t i, double *ret_magnitude)
{
	double sum = 0.0;

	*ret_magnitude = 0.0;
	for (uint32_t j = 0; j < c->top_k; j++) {
		double value;

		if (slots[j] == -1)
			continue;
		value = slots[j] == -2 ? (double)input[i]
				       : (double)outputs[(size_t)slots[j] * c->output_stride + i];
		value *= weights ? (double)weights[j] : 1.0;
		sum += value;
		*ret_magnitude += fabs(value);
	}
	*ret_magnitude *= fabs((double)c->scale);
	return sum * (double)c->scale;
}

#define N_SLOTS 40
#define MAX_N	131

static void check_row(struct mtk_rng *rng, const struct mtk_cpu_ops *ops, uint32_t n,
		      uint32_t top_k)
{
	const struct mtk_combine combine = {n, top_k, n + draw_below(rng, 3),
					    draw_below(rng, 2) ? 1.0f : 2.5f};
	float *outputs = take(N_SLOTS * combine.output_stride, sizeof(*outputs));
	float *found = take(n, sizeof(*found));
	float input[MAX_N], weights[32];
	int64_t slots[32];
	bool weighted = draw_below(rng, 4) != 0;

	for (size_t i = 0; i < N_SLOTS * combine.output_stride; i++)
		outputs[i] = NAN;
	for (uint32_t i = 0; i < n; i++)
		input[i] = draw_float(rng);
	for (uint32_t j = 0; j < top_k; j++) {
		slots[j] = (int64_t)draw_below(rng, N_SLOTS + 10) - 10;
		if (slots[j] < -2)
			slots[j] = -1;
		/* What is skipped is not read: neither its weight nor any output but the chosen. */
		weights[j] = slots[j] == -1 ? NAN : draw_float(rng);
		for (uint32_t i = 0; slots[j] >= 0 && i < n; i++)
			outputs[(size_t)slots[j] * combine.output_stride + i] = draw_float(rng);
	}
	ops->combine_pairs(&combine, outputs, slots, weighted ? weights : NULL, input, found);
	for (uint32_t i = 0; i < n; i++) {
		double magnitude;
		double expected = brute_sum(&combine, outputs, slots, weighted ? weights : NULL,
					    input, i, &magnitude);

		if (!(fabs((double)found[i] - expected) <= 3e-6 * magnitude))
			ck_abort_msg("%s: element %u is %.9g, not %.9g", ops->name, i,
				     (double)found[i], expected);
	}
	free(outputs);
	free(found);
}

START_TEST(test_combine_matches_double)
{
	static const uint32_t sizes[] = {1, 15, 16, 17, 31, 33, 64, MAX_N};
	static const uint32_t top_ks[] = {1, 2, 8, 22, 32};
	struct mtk_rng rng;

	mtk_rng_seed(&rng, 9, 0);
	for (int round = 0; round < 20; round++)
		for (int i = 0; i < 8; i++)
			for (int j = 0; j < 5; j++)
				check_row(&rng, level(_i), sizes[i], top_ks[j]);
}
END_TEST

/* With every slot in its natural place the sum is that of the engine's own combination. */
START_TEST(test_combine_agrees_with_adjacent_outputs)
{
	const struct mtk_cpu_ops *ops = level(_i);
	const struct mtk_combine combine = {77, 6, 77, 1.0f};
	int64_t slots[6];
	float outputs[6 * 77], weights[6], hidden[77], expected[77], found[77];
	struct mtk_rng rng;

	mtk_rng_seed(&rng, 10, 0);
	for (int i = 0; i < 6 * 77; i++)
		outputs[i] = draw_float(&rng);
	for (int j = 0; j < 6; j++) {
		slots[j] = j;
		weights[j] = draw_float(&rng);
	}
	memset(hidden, 0, sizeof(hidden));
	ops->combine(77, 6, outputs, weights, expected, hidden);
	ops->combine_pairs(&combine, outputs, slots, weights, NULL, found);
	ck_assert_mem_eq(found, expected, sizeof(found));
}
END_TEST

/* 1e8 - 1e8 + 1 is 1 in this order, and 0 where 1 meets 1e8 first. */
START_TEST(test_combine_adds_in_topk_order)
{
	static const float outputs[] = {1e8f, -1e8f, 1.0f};
	static const float ones[] = {1, 1, 1, 1};
	static const int64_t last[] = {0, 1, -1, 2};
	static const int64_t middle[] = {0, 2, -1, 1};
	const struct mtk_combine combine = {1, 4, 1, 1.0f};
	float sum;

	level(_i)->combine_pairs(&combine, outputs, last, ones, NULL, &sum);
	ck_assert_float_eq(sum, 1.0f);
	level(_i)->combine_pairs(&combine, outputs, middle, ones, NULL, &sum);
	ck_assert_float_eq(sum, 0.0f);
}
END_TEST

START_TEST(test_row_of_padding_is_zero)
{
	static const int64_t slots[] = {-1, -1, -1};
	const struct mtk_combine combine = {19, 3, 19, 1.0f};
	float sum[19];

	memset(sum, 0x7f, sizeof(sum));
	level(_i)->combine_pairs(&combine, NULL, slots, NULL, NULL, sum);
	for (int i = 0; i < 19; i++)
		ck_assert(sum[i] == 0.0f && !signbit(sum[i]));
}
END_TEST

/* A zero expert adds its weight times the input; padding, which is another code, adds nothing. */
START_TEST(test_zero_expert_is_not_padding)
{
	static const int64_t slots[] = {-2, -1};
	static const float weights[] = {0.25f, 0.5f};
	static const float input[] = {8.0f, -4.0f};
	const struct mtk_combine combine = {2, 2, 2, 2.0f};
	float sum[2];

	level(_i)->combine_pairs(&combine, NULL, slots, weights, input, sum);
	ck_assert_float_eq(sum[0], 4.0f);
	ck_assert_float_eq(sum[1], -2.0f);
}
END_TEST

/*
 * 65536 rows of 4096 elements with top-10, as fp32: pair rows at offsets up to 10 GiB, of which row
 * 52429 begins past 2^31 elements. The memory is reserved, and only what is touched exists.
 */
START_TEST(test_offsets_past_32_bits)
{
	enum { N_ROWS = 65536, TOP_K = 10, N = 4096 };
	static const int64_t row_numbers[] = {0, 13107, 52428, 52429, 65535};
	const size_t row_bytes = N * sizeof(float);
	const size_t n_bytes = mtk_permute_bytes((int64_t)N_ROWS * TOP_K, row_bytes);
	const struct mtk_combine combine = {N, TOP_K, N, 1.0f};
	float *pairs = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	float row[N], sum[N];

	ck_assert_uint_eq(n_bytes, UINT64_C(10) << 30);
	ck_assert_msg(pairs != MAP_FAILED, "10 GiB of addresses could not be reserved");
	for (int r = 0; r < 5; r++) {
		const int64_t first = row_numbers[r] * TOP_K;
		int64_t slots[TOP_K];
		int64_t zero = 0;

		for (int j = 0; j < TOP_K; j++) {
			/* As unpermute writes them, each from a source of one row. */
			int64_t pair = first + j;

			slots[j] = pair;
			for (int i = 0; i < N; i++)
				row[i] = (float)(pair % 1000 + i);
			mtk_permute_run(&(struct mtk_permute){&zero, 1, 1, row_bytes, row,
							      pairs + (size_t)pair * N},
					0, 1);
		}
		level(_i)->combine_pairs(&combine, pairs, slots, NULL, NULL, sum);
		for (int i = 0; i < N; i++)
			require(sum[i] == (float)(10 * (first % 1000 + i) + 45));
	}
	munmap(pairs, n_bytes);
}
END_TEST

/* Both permutations with slots and pairs whose bytes begin past 2^31 and 2^32. */
START_TEST(test_permutations_past_32_bits)
{
	const size_t row_bytes = 40960;
	const int64_t slots[] = {0, 52428, 52429, 104858, 150000};
	const int64_t n_slots = 150001;
	const size_t n_bytes = mtk_permute_bytes(n_slots, row_bytes);
	int64_t *sorted = take((size_t)n_slots, sizeof(*sorted));
	unsigned char *rows = take(5, row_bytes), *back = take(5, row_bytes);
	unsigned char *permuted = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	ck_assert_uint_gt(n_bytes, UINT64_C(1) << 32);
	ck_assert_msg(permuted != MAP_FAILED, "6 GiB of addresses could not be reserved");
	for (size_t i = 0; i < 5 * row_bytes; i++)
		rows[i] = source_byte((int64_t)(i / row_bytes), i % row_bytes);
	for (int r = 0; r < 5; r++) {
		sorted[slots[r]] = r;
		mtk_permute_run(&(struct mtk_permute){sorted, 5, 1, row_bytes, rows, permuted},
				slots[r], slots[r] + 1);
	}
	for (int r = 0; r < 5; r++)
		require(row_is(permuted + (size_t)slots[r] * row_bytes, r, row_bytes));
	mtk_unpermute_run(&(struct mtk_unpermute){slots, row_bytes, permuted, back}, 0, 5);
	ck_assert_mem_eq(back, rows, 5 * row_bytes);
	munmap(permuted, n_bytes);
	free(sorted);
	free(rows);
	free(back);
}
END_TEST

START_TEST(test_bad_settings_are_refused_by_name)
{
	const float nan_value = NAN;
	const struct {
		struct mtk_combine combine;
		const char *field;
	} cases[] = {
		{{0, 1, 1, 1.0f}, "combine: n: "},  {{4, 0, 4, 1.0f}, "top_k"},
		{{4, 1, 3, 1.0f}, "output_stride"}, {{4, 1, 4, nan_value}, "scale"},
		{{4, 1, 4, INFINITY}, "scale"},
	};
	const struct mtk_combine good = {4, 1, 4, 2.5f};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mtk_error error;

		assert_refused(mtk_combine_check(&cases[i].combine, &error), &error,
			       cases[i].field);
	}
	ck_assert_int_eq(mtk_combine_check(&good, NULL), MOETRACE_OK);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("combine");
	TCase *permute = tcase_create("permute");
	TCase *combine = tcase_create("combine");
	const int n_levels = levels_available();

	tcase_set_timeout(permute, 60);
	tcase_add_test(permute, test_permute_and_back);
	tcase_add_test(permute, test_permute_bytes);
	tcase_add_test(permute, test_permutations_past_32_bits);
	suite_add_tcase(suite, permute);

	tcase_set_timeout(combine, 60);
	tcase_add_loop_test(combine, test_combine_matches_double, 0, n_levels);
	tcase_add_loop_test(combine, test_combine_agrees_with_adjacent_outputs, 0, n_levels);
	tcase_add_loop_test(combine, test_combine_adds_in_topk_order, 0, n_levels);
	tcase_add_loop_test(combine, test_row_of_padding_is_zero, 0, n_levels);
	tcase_add_loop_test(combine, test_zero_expert_is_not_padding, 0, n_levels);
	tcase_add_loop_test(combine, test_offsets_past_32_bits, 0, n_levels);
	tcase_add_test(combine, test_bad_settings_are_refused_by_name);
	suite_add_tcase(suite, combine);
	return run_suite(suite);
}
