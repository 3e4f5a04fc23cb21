/* SPDX-License-Identifier: MIT */
/*
 * The expert MLP against a definition in double that goes pair by pair, over weight types, both
 * activations, biases, both places of the weight, every instruction-set level and threads; its
 * independence of batch, order and threads bit for bit; the same bits by alignment, permutation and
 * combination; and the settings that are refused.
 */
#include <math.h>

#include "kernels/align/align.h"
#include "kernels/permute/permute.h"
#include "tests/kernels/support/levels.h"
#include "tests/moe_ops/support/draw.h"
#include "tests/moe_ops/support/layer.h"
#include "tests/moe_ops/support/suite.h"

static struct layer draw_layer(struct mtk_rng *rng, uint32_t round)
{
	static const uint32_t hidden[] = {1, 16, 33, 64, 100};
	static const uint32_t intermediate[] = {1, 15, 16, 17, 40};
	static const uint32_t experts[] = {1, 3, 8, 20};
	static const uint32_t rows[] = {0, 1, 2, 7, 49, 97};
	const struct shape shape = {experts[draw_below(rng, 4)], hidden[draw_below(rng, 5)],
				    intermediate[draw_below(rng, 5)], rows[draw_below(rng, 6)],
				    1 + draw_below(rng, 4)};
	struct layer layer = layer_make(rng, shape, (enum mtk_dtype)(round % 3));

	layer.weighting = (enum mtk_expert_weighting)draw_below(rng, 3);
	layer.clamped = draw_below(rng, 2);
	layer.clamp = draw_below(rng, 2) ? (struct mtk_swiglu_clamp){0.7f, 1.702f, 1.0f}
					 : (struct mtk_swiglu_clamp){2.0f, 1.0f, 0.0f};
	if (draw_below(rng, 2))
		layer_add_biases(rng, &layer);
	return layer;
}

START_TEST(test_experts_match_double)
{
	const struct mtk_cpu_ops *ops = mtk_cpu_ops_find((enum mtk_cpu_level)_i);
	struct mtk_rng rng;

	mtk_rng_seed(&rng, 11, 0);
	for (uint32_t round = 0; round < 90; round++) {
		struct layer layer = draw_layer(&rng, round);
		struct batch batch = batch_make(&rng, &layer.shape);
		const size_t n =
			(size_t)layer.shape.n_rows * layer.shape.top_k * layer.shape.n_hidden;
		float *out = layer_run(ops, &layer, &batch, layer.shape.n_rows, 0);

		layer_assert_double(&layer, &batch, out);
		/* Any number of threads: the same bits, poison of dropped slots included. */
		for (uint32_t n_threads = 1; n_threads <= 3; n_threads++) {
			float *other =
				layer_run(ops, &layer, &batch, layer.shape.n_rows, n_threads);

			ck_assert_int_eq(memcmp(other, out, n * sizeof(*out)), 0);
			free(other);
		}
		free(out);
		batch_release(&batch);
		layer_release(&layer);
	}
}
END_TEST

/* A row alone, and the rows backwards, give the bits of the whole batch. */
START_TEST(test_independent_of_batch_and_order)
{
	const struct shape s = {5, 48, 24, 61, 3};
	const struct mtk_cpu_ops *ops = mtk_cpu_ops_find((enum mtk_cpu_level)_i);
	const size_t width = (size_t)s.top_k * s.n_hidden;
	struct batch batch, back;
	struct mtk_rng rng;
	struct layer layer;
	float *out, *back_out;

	mtk_rng_seed(&rng, 12, 0);
	layer = layer_make(&rng, s, MTK_DTYPE_BF16);
	batch = batch_make(&rng, &s);
	back = batch_make(&rng, &s);
	layer.weighting = MTK_WEIGHT_ON_INPUT;
	out = layer_run(ops, &layer, &batch, s.n_rows, 2);
	for (uint32_t r = 0; r < s.n_rows; r++) {
		const uint32_t to = s.n_rows - 1 - r;
		const struct batch one = {batch.x + (size_t)r * s.n_hidden,
					  batch.weights + (size_t)r * s.top_k,
					  batch.ids + (size_t)r * s.top_k};
		float *alone = layer_run(ops, &layer, &one, 1, 1);

		ck_assert_mem_eq(alone, out + r * width, width * sizeof(*out));
		free(alone);
		memcpy(back.x + (size_t)to * s.n_hidden, one.x, s.n_hidden * sizeof(float));
		memcpy(back.weights + (size_t)to * s.top_k, one.weights, s.top_k * sizeof(float));
		memcpy(back.ids + (size_t)to * s.top_k, one.ids, s.top_k * sizeof(int32_t));
	}
	back_out = layer_run(ops, &layer, &back, s.n_rows, 3);
	for (uint32_t r = 0; r < s.n_rows; r++)
		ck_assert_mem_eq(back_out + (s.n_rows - 1 - r) * width, out + r * width,
				 width * sizeof(*out));
	free(out);
	free(back_out);
	batch_release(&batch);
	batch_release(&back);
	layer_release(&layer);
}
END_TEST

/* Blocks of an alignment, computed from permuted rows, to be freed: outputs by slot. */
static float *run_blocks(const struct mtk_cpu_ops *ops, const struct layer *layer,
			 const struct mtk_align_settings *align, int64_t n_padded,
			 const int32_t *expert_ids, const float *permuted)
{
	const struct shape *s = &layer->shape;
	const uint32_t n_middle = 2 * s->n_intermediate, block = align->block_rows;
	float *out = take((size_t)n_padded * s->n_hidden, sizeof(*out));
	float *middle = take((size_t)block * n_middle, sizeof(*middle));

	for (int64_t b = 0; b < n_padded / block; b++) {
		const size_t first = (size_t)b * block;
		struct mtk_gemm gate_up = {.weights = &layer->packed_gate_up[expert_ids[b]],
					   .x = permuted + first * s->n_hidden,
					   .x_stride = s->n_hidden,
					   .y = middle,
					   .y_stride = n_middle};
		struct mtk_gemm down = {.weights = &layer->packed_down[expert_ids[b]],
					.x = middle,
					.x_stride = n_middle,
					.y = out + first * s->n_hidden,
					.y_stride = s->n_hidden};

		ops->gemm(&gate_up, 0, block, 0, mtk_panel_count(n_middle));
		for (uint32_t r = 0; r < block; r++)
			ops->swiglu(s->n_intermediate, middle + (size_t)r * n_middle);
		ops->gemm(&down, 0, block, 0, mtk_panel_count(s->n_hidden));
	}
	free(middle);
	return out;
}

/* align, permute, blocks and combine give the bits of the groups, with padding and bad ids. */
START_TEST(test_aligned_path_gives_the_same_bits)
{
	const struct shape s = {7, 40, 20, 53, 3};
	const struct mtk_cpu_ops *ops = mtk_cpu_ops_find((enum mtk_cpu_level)_i);
	const struct mtk_align_settings align = {.n_experts = 7, .top_k = 3, .block_rows = 16};
	const struct mtk_combine combine = {s.n_hidden, s.top_k, s.n_hidden, 1.0f};
	struct mtk_align_sizes sizes;
	struct mtk_align_result a;
	struct mtk_rng rng;
	struct layer layer;
	struct batch batch;
	float *by_slot, *by_block, *permuted;

	mtk_rng_seed(&rng, 13, 0);
	layer = layer_make(&rng, s, MTK_DTYPE_F16);
	batch = batch_make(&rng, &s);
	ck_assert_int_eq(mtk_align_sizes(&align, s.n_rows, NULL, &sizes), 0);
	a.sorted_pairs = take((size_t)sizes.capacity, sizeof(int64_t));
	a.expert_ids = take((size_t)sizes.n_blocks, sizeof(int32_t));
	a.first_slots = take(8, sizeof(int64_t));
	a.pair_slots = take((size_t)sizes.n_pairs, sizeof(int64_t));
	mtk_align_plain(&align, &sizes, batch.ids, &a);
	permuted = take((size_t)sizes.capacity * s.n_hidden, sizeof(float));
	mtk_permute_run(&(struct mtk_permute){a.sorted_pairs, sizes.n_pairs, s.top_k,
					      s.n_hidden * sizeof(float), batch.x, permuted},
			0, sizes.capacity);
	by_block = run_blocks(ops, &layer, &align, a.n_padded, a.expert_ids, permuted);
	by_slot = layer_run(ops, &layer, &batch, s.n_rows, 2);
	for (uint32_t row = 0; row < s.n_rows; row++) {
		float sum[40], expected[40];
		int64_t slots[3];

		for (uint32_t j = 0; j < s.top_k; j++)
			slots[j] = a.pair_slots[row * s.top_k + j] < 0 ? -1
								       : (int64_t)row * s.top_k + j;
		ops->combine_pairs(&combine, by_slot, slots, batch.weights + row * s.top_k, NULL,
				   expected);
		ops->combine_pairs(&combine, by_block, a.pair_slots + row * s.top_k,
				   batch.weights + row * s.top_k, NULL, sum);
		ck_assert_mem_eq(sum, expected, sizeof(sum));
	}
	free(a.sorted_pairs);
	free(a.expert_ids);
	free(a.first_slots);
	free(a.pair_slots);
	free(permuted);
	free(by_block);
	free(by_slot);
	batch_release(&batch);
	layer_release(&layer);
}
END_TEST

/* w * x before the experts is not w * the output: silu(2 * 1) * (2 * 1) is not 2 * silu(1) * 1. */
START_TEST(test_weight_on_input_is_another_function)
{
	float ones[] = {1, 1}, one = 1.0f, x = 1.0f, weight = 2.0f;
	int32_t id = 0;
	struct mtk_matrix gate_up = layer_pack(MTK_DTYPE_F32, 2, 1, ones);
	struct mtk_matrix down = layer_pack(MTK_DTYPE_F32, 1, 1, &one);
	struct layer layer = {.shape = {1, 1, 1, 1, 1},
			      .packed_gate_up = &gate_up,
			      .packed_down = &down,
			      .weighting = MTK_WEIGHT_ON_INPUT};
	const struct batch batch = {&x, &weight, &id};
	const struct mtk_cpu_ops *ops = mtk_cpu_ops_find((enum mtk_cpu_level)_i);
	float *on_input = layer_run(ops, &layer, &batch, 1, 0);
	float *on_output;

	layer.weighting = MTK_WEIGHT_ON_OUTPUT;
	on_output = layer_run(ops, &layer, &batch, 1, 0);
	ck_assert_double_eq_tol((double)*on_input, 2.0 / (1.0 + exp(-2.0)) * 2.0, 1e-6);
	ck_assert_double_eq_tol((double)*on_output, 2.0 / (1.0 + exp(-1.0)), 1e-6);
	free(on_input);
	free(on_output);
	free(gate_up.data);
	free(down.data);
}
END_TEST

START_TEST(test_clamped_swiglu)
{
	const struct mtk_cpu_ops *ops = mtk_cpu_ops_find((enum mtk_cpu_level)_i);
	const struct mtk_swiglu_clamp clamp = {7.0f, 1.702f, 1.0f};
	const struct mtk_swiglu_clamp none = {INFINITY, 1.0f, 0.0f};
	/* Gates, then ups: both above the limit, both below its negative, ordinary, NaN. */
	float edge[] = {100, -100, 1, NAN, 1, 100, -100, 0.5f, 1, NAN};
	float a[2 * 53], b[2 * 53];
	struct mtk_rng rng;

	ops->swiglu_clamped(&clamp, 5, edge);
	/* The gate is held from above only. */
	ck_assert_double_eq_tol((double)edge[0], 7.0 / (1.0 + exp(-1.702 * 7.0)) * 8.0, 1e-4);
	ck_assert_double_eq_tol((double)edge[1], 0.0, 1e-30);
	ck_assert_double_eq_tol((double)edge[2], 1.5 / (1.0 + exp(-1.702)), 1e-6);
	ck_assert_float_nan(edge[3]);
	ck_assert_float_nan(edge[4]);
	mtk_rng_seed(&rng, 14, 0);
	for (int i = 0; i < 2 * 53; i++)
		a[i] = b[i] = 20.0f * draw_float(&rng);
	ops->swiglu(53, a);
	ops->swiglu_clamped(&none, 53, b);
	for (int i = 0; i < 53; i++)
		ck_assert_float_eq(a[i], b[i]);
}
END_TEST

START_TEST(test_vector_levels_agree)
{
	struct mtk_rng rng;

	mtk_rng_seed(&rng, 15, 0);
	for (uint32_t round = 0; round < 30; round++) {
		struct layer layer = draw_layer(&rng, round);
		struct batch batch = batch_make(&rng, &layer.shape);
		float *a = layer_run(mtk_cpu_ops_find(MTK_CPU_AVX2), &layer, &batch,
				     layer.shape.n_rows, 1);
		float *b = layer_run(mtk_cpu_ops_find(MTK_CPU_AVX512), &layer, &batch,
				     layer.shape.n_rows, 2);

		ck_assert_int_eq(memcmp(a, b,
					(size_t)layer.shape.n_rows * layer.shape.top_k *
						layer.shape.n_hidden * sizeof(*a)),
				 0);
		free(a);
		free(b);
		batch_release(&batch);
		layer_release(&layer);
	}
}
END_TEST

/* Negative, poisoned and too large ids are in no group, and the others stay in order. */
START_TEST(test_group_skips_bad_ids)
{
	static const int32_t ids[] = {1, -1, POISON_ID, 0, 1, 2};
	static const uint32_t expected_first[] = {0, 1, 3};
	static const uint32_t expected_slots[] = {3, 0, 4};
	static const uint32_t expected_rows[] = {1, 0, 2};
	uint32_t first[3], slots[6], rows[6];
	struct mtk_expert_groups groups = {first, slots, rows};

	mtk_experts_group(2, 3, 2, ids, &groups);
	ck_assert_mem_eq(first, expected_first, sizeof(first));
	ck_assert_mem_eq(slots, expected_slots, sizeof(expected_slots));
	ck_assert_mem_eq(rows, expected_rows, sizeof(expected_rows));
	/* A rank that holds no expert. */
	mtk_experts_group(0, 3, 2, ids, &groups);
	ck_assert_uint_eq(first[0], 0);
}
END_TEST

START_TEST(test_bad_settings_are_refused_by_name)
{
	const struct mtk_experts_settings good = {.n_experts = 128,
						  .top_k = 8,
						  .n_hidden = 2048,
						  .n_intermediate = 768,
						  .n_rows_max = 4096,
						  .clamp = {7.0f, 1.702f, 1.0f},
						  .clamped = true};
	struct mtk_experts_settings cases[13];
	static const char *const fields[13] = {
		"n_experts",	  "top_k",	 "n_hidden",	"n_hidden",  "n_intermediate",
		"n_intermediate", "n_rows_max",	 "dtype",	"weighting", "clamp.limit",
		"clamp.limit",	  "clamp.alpha", "clamp.offset"};

	for (int i = 0; i < 13; i++)
		cases[i] = good;
	cases[0].n_experts = UINT32_MAX;
	cases[1].top_k = 0;
	cases[2].n_hidden = 0;
	cases[3].n_hidden = UINT32_MAX;
	cases[4].n_intermediate = 0;
	cases[5].n_intermediate = 0x80000000u;
	cases[6].n_rows_max = UINT32_MAX;
	cases[7].dtype = (enum mtk_dtype)3;
	cases[8].weighting = (enum mtk_expert_weighting)3;
	cases[9].clamp.limit = 0.0f;
	cases[10].clamp.limit = NAN;
	cases[11].clamp.alpha = NAN;
	cases[12].clamp.offset = INFINITY;
	ck_assert_int_eq(mtk_experts_check(&good, NULL), MOETRACE_OK);
	for (int i = 0; i < 13; i++) {
		struct mtk_error error;

		assert_refused(mtk_experts_check(&cases[i], &error), &error, fields[i]);
	}
}
END_TEST

/* What one layer weighs: 9 MiB an expert, and 21 GiB for 256 experts of 7168 by 2048. */
START_TEST(test_weight_bytes)
{
	struct mtk_experts_settings settings = {.n_experts = 128,
						.top_k = 8,
						.n_hidden = 2048,
						.n_intermediate = 768,
						.dtype = MTK_DTYPE_BF16};

	ck_assert_uint_eq(mtk_experts_weight_bytes(&settings), UINT64_C(128) * 9 << 20);
	settings.n_experts = 256;
	settings.n_hidden = 7168;
	settings.n_intermediate = 2048;
	ck_assert_uint_eq(mtk_experts_weight_bytes(&settings), UINT64_C(21) << 30);
	settings.n_experts = 0;
	ck_assert_uint_eq(mtk_experts_weight_bytes(&settings), 0);
	ck_assert_int_eq(mtk_experts_check(&settings, NULL), MOETRACE_OK);
	settings.n_experts = UINT16_MAX;
	settings.n_hidden = UINT16_MAX * 16;
	settings.n_intermediate = UINT16_MAX * 8;
	ck_assert_int_eq(mtk_experts_check(&settings, NULL), MOETRACE_OK);
	ck_assert_uint_eq(mtk_experts_weight_bytes(&settings),
			  UINT64_C(65535) * 3 * 65535 * 8 * 65535 * 16 * 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("experts");
	TCase *levels = tcase_create("levels");
	TCase *rules = tcase_create("rules");
	const int n_levels = levels_available();

	tcase_set_timeout(levels, 120);
	tcase_add_loop_test(levels, test_experts_match_double, 0, n_levels);
	tcase_add_loop_test(levels, test_independent_of_batch_and_order, 0, n_levels);
	tcase_add_loop_test(levels, test_aligned_path_gives_the_same_bits, 0, n_levels);
	tcase_add_loop_test(levels, test_weight_on_input_is_another_function, 0, n_levels);
	tcase_add_loop_test(levels, test_clamped_swiglu, 0, n_levels);
	if (n_levels > MTK_CPU_AVX512)
		tcase_add_test(levels, test_vector_levels_agree);
	suite_add_tcase(suite, levels);

	tcase_add_test(rules, test_group_skips_bad_ids);
	tcase_add_test(rules, test_bad_settings_are_refused_by_name);
	tcase_add_test(rules, test_weight_bytes);
	suite_add_tcase(suite, rules);
	return run_suite(suite);
}
