/* SPDX-License-Identifier: MIT */
/*
 * The whole engine on a GPU with the example model: against the reference implementation's results
 * with the tolerances that hold on the CPU, against the CPU itself, and against itself: graphs give
 * the bits that launches give, a row those that it gives in any batch, and padding changes nothing.
 * Then under a rule, under a choice, with 16-bit inputs, and errors.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/cuda/device.h"
#include "tests/kernels/cuda/support/tiny_rig.h"
#include "tests/kernels/support/levels.h"
#include "tests/support/run_suite.h"

/* ---- against the reference ---- */

static int compare_ids(const void *a, const void *b)
{
	return *(const int32_t *)a - *(const int32_t *)b;
}

static void check_choices(const struct results *results)
{
	const size_t n = (size_t)N_LAYERS * N_ROWS;
	float *gaps = tinymoe_read_file(TINY_GOLDEN "cut_gap.f32", n * sizeof(float), NULL);
	float *weights =
		tinymoe_read_file(TINY_GOLDEN "topk_weights.f32", n * TOP_K * sizeof(float), NULL);
	uint8_t *ids = tinymoe_read_file(TINY_GOLDEN "topk_ids.u8", n * TOP_K, NULL);

	for (size_t row = 0; row < n; row++) {
		const int32_t *found = results->ids[row / N_ROWS][row % N_ROWS];
		const float *found_weights = results->weights[row / N_ROWS][row % N_ROWS];
		int32_t left[TOP_K], right[TOP_K];

		if (gaps[row] < 1e-4f)
			continue;
		for (uint32_t j = 0; j < TOP_K; j++) {
			uint32_t place = 0;

			left[j] = found[j];
			right[j] = ids[row * TOP_K + j];
			while (place < TOP_K && ids[row * TOP_K + place] != found[j])
				place++;
			ck_assert_uint_lt(place, TOP_K);
			ck_assert_float_eq_tol(found_weights[j],
					       weights[row * TOP_K + place], 1e-5f);
		}
		qsort(left, TOP_K, sizeof(left[0]), compare_ids);
		qsort(right, TOP_K, sizeof(right[0]), compare_ids);
		ck_assert_int_eq(memcmp(left, right, sizeof(left)), 0);
	}
	free(gaps);
	free(weights);
	free(ids);
}

static double cross_entropy(const float *logits, uint8_t next)
{
	double max = -INFINITY, sum = 0.0;

	for (uint32_t v = 0; v < N_VOCAB; v++)
		max = fmax(max, (double)logits[v]);
	for (uint32_t v = 0; v < N_VOCAB; v++)
		sum += exp((double)logits[v] - max);
	return max + log(sum) - (double)logits[next];
}

static void check_predictions(const struct rig *rig)
{
	float *ce = tinymoe_read_file(TINY_GOLDEN "ce.f32", N_ROWS * sizeof(float), NULL);
	float *last = tinymoe_read_file(TINY_GOLDEN "last_logits.f32",
					N_SEQUENCES * N_VOCAB * sizeof(float), NULL);
	double sum = 0.0;

	for (uint32_t row = 0; row < N_ROWS; row++) {
		const uint32_t s = row / N_TOKENS, t = row % N_TOKENS;
		const float *logits = rig->results->logits[row];
		double found = cross_entropy(logits, rig->tokens[s * (N_TOKENS + 1) + t + 1]);
		uint32_t best = 0;

		ck_assert_double_eq_tol(found, (double)ce[row], 1e-4);
		sum += found;
		for (uint32_t v = 1; v < N_VOCAB; v++)
			best = logits[v] > logits[best] ? v : best;
		ck_assert_int_eq(rig->results->greedy_ids[row], (int32_t)best);
	}
	ck_assert_double_eq_tol(sum / N_ROWS, 1.01900, 1e-5);
	for (uint32_t s = 0; s < N_SEQUENCES; s++)
		for (uint32_t v = 0; v < N_VOCAB; v++)
			ck_assert_float_eq_tol(
				rig->results->logits[(s + 1) * N_TOKENS - 1][v],
				last[s * N_VOCAB + v], 2e-4f);
	free(ce);
	free(last);
}

static double largest_block_error(const struct results *results, uint32_t layer)
{
	char path[128];
	float *expected;
	double worst = 0.0;

	snprintf(path, sizeof(path), TINY_GOLDEN "moe_layer%u_out.f32", layer);
	expected = tinymoe_read_file(path, 2 * N_BLOCK_TOKENS * N_HIDDEN * sizeof(float), NULL);
	for (uint32_t i = 0; i < 2 * N_BLOCK_TOKENS; i++) {
		const uint32_t row = i / N_BLOCK_TOKENS * N_TOKENS + i % N_BLOCK_TOKENS;
		double difference = 0.0, norm = 0.0;

		for (uint32_t d = 0; d < N_HIDDEN; d++) {
			const double want = expected[i * N_HIDDEN + d];
			const double off = (double)results->moe_out[layer][row][d] - want;

			difference += off * off;
			norm += want * want;
		}
		worst = fmax(worst, sqrt(difference / norm));
	}
	free(expected);
	return worst;
}

START_TEST(test_golden)
{
	const struct mtk_cuda_backend_settings settings = {.precision = MTK_CUDA_FP32};
	static const uint32_t layers[] = {0, 3, 5};
	float *expected, *found, worst = 0.0f;
	struct rig rig;

	rig_open(&rig, &settings, NULL, NULL);
	rig_run_plan(&rig, PLAN_PREFILL, true);
	expected = tinymoe_read_file(TINY_GOLDEN "router_logits.f32",
				     sizeof(rig.results->router_logits), NULL);
	found = rig.results->router_logits[0][0];
	for (size_t i = 0; i < sizeof(rig.results->router_logits) / sizeof(float); i++)
		worst = fmaxf(worst, fabsf(found[i] - expected[i]));
	printf("router logits: largest difference %.2g\n", (double)worst);
	ck_assert_float_le(worst, 1e-4f);
	check_choices(rig.results);
	check_predictions(&rig);
	for (size_t i = 0; i < sizeof(layers) / sizeof(layers[0]); i++) {
		double error = largest_block_error(rig.results, layers[i]);

		printf("moe block, layer %u: relative error %.2g\n", layers[i], error);
		ck_assert_double_le(error, 5e-6);
	}
	free(expected);
	rig_close(&rig);
}
END_TEST

/* ---- against itself ---- */

static struct results *results_of(const struct mtk_cuda_backend_settings *settings, enum plan plan,
				  const struct mtk_oea *oea)
{
	struct results *results = malloc(sizeof(*results));
	struct rig rig;

	ck_assert_ptr_nonnull(results);
	rig_open(&rig, settings, oea, NULL);
	rig_run_plan(&rig, plan, false);
	*results = *rig.results;
	rig_close(&rig);
	return results;
}

START_TEST(test_any_batch)
{
	const struct mtk_cuda_backend_settings graphs = {.precision = MTK_CUDA_FP32};
	const struct mtk_cuda_backend_settings eager = {.precision = MTK_CUDA_FP32,
							.without_graphs = true};
	struct results *all = results_of(&graphs, PLAN_PREFILL, NULL);
	struct results *chunks = results_of(&graphs, PLAN_CHUNKS, NULL);
	struct results *decode = results_of(&graphs, PLAN_DECODE, NULL);
	struct results *launches = results_of(&eager, PLAN_DECODE, NULL);

	ck_assert_int_eq(memcmp(all, chunks, sizeof(*all)), 0);
	ck_assert_int_eq(memcmp(decode, launches, sizeof(*all)), 0);
	ck_assert_int_eq(memcmp(all, decode, sizeof(*all)), 0);
	free(all);
	free(chunks);
	free(decode);
	free(launches);
}
END_TEST

START_TEST(test_16bit)
{
	const struct mtk_cuda_backend_settings fp32 = {.precision = MTK_CUDA_FP32};
	const struct mtk_cuda_backend_settings graphs = {.precision = MTK_CUDA_16BIT};
	const struct mtk_cuda_backend_settings eager = {.precision = MTK_CUDA_16BIT,
							.without_graphs = true};
	struct results *wide = results_of(&fp32, PLAN_DECODE, NULL);
	struct results *replayed = results_of(&graphs, PLAN_DECODE, NULL);
	struct results *launched = results_of(&eager, PLAN_DECODE, NULL);
	double sum = 0.0, largest = 0.0;

	ck_assert_int_eq(memcmp(replayed, launched, sizeof(*replayed)), 0);
	for (size_t i = 0; i < N_ROWS * (size_t)N_VOCAB; i++) {
		const double off = fabs((double)wide->logits[i / N_VOCAB][i % N_VOCAB] -
					(double)replayed->logits[i / N_VOCAB][i % N_VOCAB]);

		sum += off;
		largest = fmax(largest, off);
	}
	printf("16-bit inputs: logits differ by %.2g in the mean, %.2g at most\n",
	       sum / (N_ROWS * (double)N_VOCAB), largest);
	/* Logits spread over some ten; eleven bits of every input leave about this. */
	ck_assert_double_le(sum / (N_ROWS * (double)N_VOCAB), 0.02);
	free(wide);
	free(replayed);
	free(launched);
}
END_TEST

/* ---- against the CPU, where rows depend on each other ---- */

/* The passes of PLAN_DECODE by the CPU, into the rig's results. */
static void run_on_cpu(struct rig *rig, const struct mtk_oea *oea)
{
	const struct mtk_context_settings context = {.n_slots = N_SEQUENCES,
						     .n_context = N_TOKENS,
						     .n_rows_max = N_SEQUENCES,
						     .n_threads = 1,
						     .oea = oea};
	struct mtk_backend cpu = mtk_backend_cpu(rig->tiny.model);
	struct mtk_error error;
	void *on_cpu;

	ck_assert_int_eq(cpu.ops->context_create(&cpu, &context, &on_cpu, &error), 0);
	for (uint32_t s = 0; s < N_SEQUENCES; s++)
		ck_assert_int_eq(mtk_kv_cache_slot_acquire(cpu.ops->cache(on_cpu), &rig->slots[s]),
				 0);
	for (uint32_t t = 0; t < N_TOKENS; t++) {
		for (uint32_t s = 0; s < N_SEQUENCES; s++)
			rig_add_row(rig, s, t);
		rig_run_pass(rig, &cpu, on_cpu, rig->slots, false);
	}
	cpu.ops->context_destroy(on_cpu);
}

static uint32_t n_rows_below_k(const struct results *results)
{
	uint32_t n = 0;

	for (size_t row = 0; row < (size_t)N_LAYERS * N_ROWS; row++)
		n += results->ids[row / N_ROWS][row % N_ROWS][TOP_K - 1] < 0;
	return n;
}

START_TEST(test_rule)
{
	static const struct mtk_oea rules[] = {{.k0 = 3}, {.k0 = 2, .k_max = 2}, {.k0 = 8},
					       {.k0 = 4, .p = 0.5, .max_rank = 20}};
	const struct mtk_cuda_backend_settings settings = {.precision = MTK_CUDA_FP32};
	const struct mtk_oea *rule = &rules[_i];
	struct results *gpu;
	uint32_t n_same = 0;
	struct rig rig;

	gpu = results_of(&settings, PLAN_DECODE, rule);
	rig_open(&rig, &settings, rule, NULL);
	run_on_cpu(&rig, rule);
	for (size_t row = 0; row < (size_t)N_LAYERS * N_ROWS; row++)
		n_same += memcmp(gpu->ids[row / N_ROWS][row % N_ROWS],
				 rig.results->ids[row / N_ROWS][row % N_ROWS],
				 TOP_K * sizeof(int32_t)) == 0;
	printf("rule %d: %u of %d rows choose alike, %u below k on the GPU, %u on the CPU\n", _i,
	       n_same, N_LAYERS * N_ROWS, n_rows_below_k(gpu), n_rows_below_k(rig.results));
	/* A near tie in the union changes the rows of its pass, and later ones a little. */
	ck_assert_uint_ge(n_same, N_LAYERS * N_ROWS * 99 / 100);
	rig_close(&rig);
	free(gpu);
}
END_TEST

/* Graphs that were captured without margins are captured again when these are asked for. */
static struct results *results_with_facts(const struct mtk_cuda_backend_settings *settings,
					  enum plan plan)
{
	struct results *results = malloc(sizeof(*results));
	struct rig rig;

	ck_assert_ptr_nonnull(results);
	rig_open(&rig, settings, NULL, NULL);
	rig_add_row(&rig, 0, 0);
	rig_run_pass(&rig, rig.backend, rig.context, rig.slots, false);
	ck_assert(rig.results->margins[0][0] == 0.0f);
	mtk_kv_cache_slot_release(rig.kv, rig.slots[0]);
	ck_assert_int_eq(mtk_kv_cache_slot_acquire(rig.kv, &rig.slots[0]), 0);
	rig.has_facts = true;
	rig_run_plan(&rig, plan, false);
	*results = *rig.results;
	rig_close(&rig);
	return results;
}

START_TEST(test_margins)
{
	const struct mtk_cuda_backend_settings graphs = {.precision = MTK_CUDA_FP32};
	const struct mtk_cuda_backend_settings eager = {.precision = MTK_CUDA_FP32,
							.without_graphs = true};
	struct results *plain = results_of(&graphs, PLAN_DECODE, NULL);
	struct results *told = results_with_facts(&graphs, PLAN_DECODE);
	struct results *launched = results_with_facts(&eager, PLAN_CHUNKS);
	float worst = 0.0f, largest = 0.0f;
	struct rig rig;

	ck_assert_mem_eq(told->ids, plain->ids, sizeof(told->ids));
	ck_assert_mem_eq(told->weights, plain->weights, sizeof(told->weights));
	ck_assert_mem_eq(told, launched, sizeof(*told));
	rig_open(&rig, &graphs, NULL, NULL);
	rig.has_facts = true;
	run_on_cpu(&rig, NULL);
	ck_assert_mem_eq(told->flags, rig.results->flags, sizeof(told->flags));
	for (size_t i = 0; i < (size_t)N_LAYERS * N_ROWS; i++) {
		const float want = rig.results->margins[i / N_ROWS][i % N_ROWS];
		const float got = told->margins[i / N_ROWS][i % N_ROWS];

		worst = fmaxf(worst, fabsf(got - want));
		largest = fmaxf(largest, want);
	}
	printf("margins up to %.2g: largest difference %.2g\n", (double)largest, (double)worst);
	ck_assert_float_le(worst, 1e-5f);
	ck_assert_float_ge(largest, 1e-3f);
	rig_close(&rig);
	free(plain);
	free(told);
	free(launched);
}
END_TEST

START_TEST(test_choice)
{
	const struct mtk_choice_settings drawn = {.kind = MTK_CHOICE_UNIFORM,
						  .seed = 7,
						  .n_layers = N_LAYERS,
						  .n_columns = N_EXPERTS,
						  .top_k = TOP_K};
	const struct mtk_cuda_backend_settings settings = {.precision = MTK_CUDA_FP32};
	struct mtk_choice *choice;
	struct mtk_error error;
	struct rig rig;

	ck_assert_int_eq(mtk_choice_create(&drawn, &error, &choice), 0);
	rig_open(&rig, &settings, NULL, choice);
	rig_run_plan(&rig, PLAN_DECODE, false);
	for (uint32_t layer = 0; layer < N_LAYERS; layer++)
		for (uint32_t row = 0; row < N_ROWS; row++) {
			double scratch[N_EXPERTS];
			int32_t want[TOP_K];

			mtk_choice_row(choice, layer, 0, row % N_TOKENS, scratch, want);
			ck_assert_int_eq(memcmp(rig.results->ids[layer][row], want, sizeof(want)),
					 0);
		}
	rig_close(&rig);
	mtk_choice_destroy(choice);
}
END_TEST

/* Positions copied between slots, as a prefix that is reused, give the same bits. */
START_TEST(test_copied_prefix)
{
	enum { N_PREFIX = 40 };
	const struct mtk_cuda_backend_settings settings = {.precision = MTK_CUDA_FP32};
	struct rig rig;
	float first[N_VOCAB];

	rig_open(&rig, &settings, NULL, NULL);
	for (uint32_t t = 0; t <= N_PREFIX; t++)
		rig_add_row(&rig, 0, t);
	rig_run_pass(&rig, rig.backend, rig.context, rig.slots, false);
	memcpy(first, rig.results->logits[N_PREFIX], sizeof(first));
	mtk_kv_cache_slot_copy(rig.kv, rig.slots[1], rig.slots[0], N_PREFIX);
	rig.slots[0] = rig.slots[1];
	rig_add_row(&rig, 0, N_PREFIX);
	rig_run_pass(&rig, rig.backend, rig.context, rig.slots, false);
	ck_assert_int_eq(memcmp(first, rig.results->logits[N_PREFIX], sizeof(first)), 0);
	rig_close(&rig);
}
END_TEST

/* ---- errors ---- */

START_TEST(test_errors)
{
	const struct mtk_cuda_backend_settings settings = {.precision = MTK_CUDA_FP32};
	const struct mtk_cuda_backend_settings nowhere = {.device = 9999};
	const struct mtk_context_settings huge = {
		.n_slots = 60000, .n_context = 1024, .n_rows_max = 60000, .n_threads = 1};
	struct mtk_backend *backend = NULL;
	struct mtk_error error = {""};
	void *context = NULL;
	int32_t one = 1;
	uint32_t slot;
	uint8_t wants = 1;
	int32_t greedy;
	const struct mtk_forward_result result = {.greedy_ids = &greedy};
	struct mtk_batch batch = {.n_rows = 1,
				  .token_ids = &one,
				  .positions = &one,
				  .want_logits = &wants};
	struct rig rig;

	rig_open(&rig, &settings, NULL, NULL);
	ck_assert_int_eq(mtk_backend_cuda_create(rig.tiny.model, &nowhere, &error, &backend),
			 MOETRACE_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(error.text, "9999"));
	/* The cache alone would take 188 GB. */
	ck_assert_int_eq(rig.backend->ops->context_create(rig.backend, &huge, &context, &error),
			 MOETRACE_E_NOMEM);
	ck_assert_ptr_nonnull(strstr(error.text, "lower --batch"));
	ck_assert_ptr_null(context);
	/* A position that is not the next one; afterwards everything goes on. */
	slot = rig.slots[0];
	batch.slots = &slot;
	ck_assert_int_eq(rig.backend->ops->forward(rig.context, &batch, NULL, &result, &error),
			 MOETRACE_E_INVALID);
	rig_run_plan(&rig, PLAN_DECODE, false);
	check_predictions(&rig);
	rig_close(&rig);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("engine_cuda");
	TCase *tcase = tcase_create("tinymoe");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, test_golden);
	tcase_add_test(tcase, test_any_batch);
	tcase_add_test(tcase, test_16bit);
	tcase_add_loop_test(tcase, test_rule, 0, 4);
	tcase_add_test(tcase, test_margins);
	tcase_add_test(tcase, test_choice);
	tcase_add_test(tcase, test_copied_prefix);
	tcase_add_test(tcase, test_errors);
	suite_add_tcase(suite, tcase);
	return suite;
}

/* Tests are not forked: a process that has used a GPU cannot use it in a child. */
static int has_gpu(void)
{
	struct mtk_cuda_device device;
	struct mtk_error error;
	int status = mtk_cuda_open(0, &error, &device);

	puts(status == MOETRACE_OK ? device.name : error.text);
	return status == MOETRACE_OK;
}

int main(void)
{
	if (!tinymoe_is_readable())
		return TINYMOE_SKIPPED;
	if (!has_gpu())
		return TINYMOE_SKIPPED;
	return run_suite_unforked(make_suite());
}
