/* SPDX-License-Identifier: MIT */
/*
 * Agreement of the whole engine with one forward pass of the reference implementation, on every
 * instruction-set level of this processor: router logits, chosen experts, weights, cross-entropy,
 * last logits, the output of the MoE block, and the greedy continuations of prompts.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/sample/sample.h"
#include "tests/kernels/support/greedy.h"
#include "tests/kernels/support/levels.h"
#include "tests/kernels/support/tinymoe.h"
#include "tests/unit/support/suite.h"

#define GOLDEN "tests/data/tinymoe/golden/"

#define N_SEQUENCES 10
#define N_TOKENS 160
#define N_ROWS (N_SEQUENCES * N_TOKENS)
#define N_LAYERS 6
#define N_EXPERTS 64
#define N_HIDDEN 128
#define N_VOCAB 256
#define TOP_K 8

/* Below this gap between the eighth and the ninth router logit the choice is a near tie. */
#define NEAR_TIE 1e-4f

/* The block's input and output are stored for this many tokens of the first two sequences. */
#define N_BLOCK_TOKENS 64
#define N_BLOCK_ROWS (2 * N_BLOCK_TOKENS)

/* Tests that run on every level. */
#define N_LEVEL_TESTS 6

struct results {
	float router_logits[N_LAYERS][N_ROWS][N_EXPERTS];
	int32_t ids[N_LAYERS][N_ROWS][TOP_K];
	float weights[N_LAYERS][N_ROWS][TOP_K];
	float moe_in[N_LAYERS][N_ROWS][N_HIDDEN];
	float moe_out[N_LAYERS][N_ROWS][N_HIDDEN];
	float logits[N_ROWS][N_VOCAB];
};

/*
 * A pass is the same whichever test looks at it, so that the first one on a level leaves its
 * results to the processes of the others.
 */
struct shared {
	struct results results;
	bool is_done;
};

static struct shared *levels;	/* [levels_available()] */
static struct results *results; /* of the level in use */
static uint8_t *tokens;		/* [N_SEQUENCES][N_TOKENS + 1] */

static void take_router_logits(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t n_experts,
			       const float *logits)
{
	struct results *to = ctx;

	ck_assert_uint_eq(n_rows, N_ROWS);
	ck_assert_uint_eq(n_experts, N_EXPERTS);
	memcpy(to->router_logits[layer], logits, sizeof(to->router_logits[layer]));
}

static void take_choice(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t top_k,
			const int32_t *ids, const float *weights)
{
	struct results *to = ctx;

	ck_assert_uint_eq(n_rows, N_ROWS);
	ck_assert_uint_eq(top_k, TOP_K);
	memcpy(to->ids[layer], ids, sizeof(to->ids[layer]));
	memcpy(to->weights[layer], weights, sizeof(to->weights[layer]));
}

static void take_moe_in(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t n_hidden,
			const float *hidden)
{
	struct results *to = ctx;

	ck_assert_uint_eq(n_rows, N_ROWS);
	ck_assert_uint_eq(n_hidden, N_HIDDEN);
	memcpy(to->moe_in[layer], hidden, sizeof(to->moe_in[layer]));
}

static void take_moe_out(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t n_hidden,
			 const float *hidden)
{
	struct results *to = ctx;

	ck_assert_uint_eq(n_rows, N_ROWS);
	ck_assert_uint_eq(n_hidden, N_HIDDEN);
	memcpy(to->moe_out[layer], hidden, sizeof(to->moe_out[layer]));
}

/* All sequences in one batch, on the level in use. */
static void run_sequences(void)
{
	const struct mtk_forward_hooks hooks = {
		.ctx = results,
		.router_logits = take_router_logits,
		.select_experts = take_choice,
		.moe_input = take_moe_in,
		.moe_output = take_moe_out,
	};
	static int32_t token_ids[N_ROWS], positions[N_ROWS];
	static uint32_t slots[N_ROWS];
	static uint8_t want_logits[N_ROWS];
	const struct mtk_batch batch = {.n_rows = N_ROWS,
					.token_ids = token_ids,
					.positions = positions,
					.slots = slots,
					.want_logits = want_logits};
	struct tinymoe tiny = tinymoe_open(N_SEQUENCES, N_ROWS, 2);

	for (uint32_t s = 0; s < N_SEQUENCES; s++) {
		uint32_t slot;

		ck_assert_int_eq(mtk_kv_cache_slot_acquire(tiny.kv, &slot), 0);
		for (uint32_t t = 0; t < N_TOKENS; t++) {
			uint32_t row = s * N_TOKENS + t;

			token_ids[row] = tokens[s * (N_TOKENS + 1) + t];
			positions[row] = (int32_t)t;
			slots[row] = slot;
			want_logits[row] = 1;
		}
	}
	ck_assert_int_eq(mtk_model_forward(tiny.model, tiny.workspace, tiny.kv, tiny.threads,
					   &batch, &hooks, results->logits[0]), 0);
	tinymoe_close(&tiny);
}

static void use_results(int level)
{
	tinymoe_use_level(level);
	results = &levels[level].results;
	if (!levels[level].is_done)
		run_sequences();
	levels[level].is_done = true;
}

static void setup(void)
{
	tokens = tinymoe_read_file(GOLDEN "tokens.u8", N_SEQUENCES * (N_TOKENS + 1), NULL);
}

static void teardown(void)
{
	free(tokens);
}

START_TEST(test_router_logits)
{
	float *expected = tinymoe_read_file(GOLDEN "router_logits.f32",
					    sizeof(results->router_logits), NULL);
	const float *found;
	float worst = 0.0f;

	use_results(_i);
	found = results->router_logits[0][0];
	for (size_t i = 0; i < sizeof(results->router_logits) / sizeof(float); i++) {
		REQUIRE(fabsf(found[i] - expected[i]) <= 1e-4f, "element %zu: %g, not %g", i,
			      (double)found[i], (double)expected[i]);
		worst = fmaxf(worst, fabsf(found[i] - expected[i]));
	}
	printf("router logits, %s: largest difference %.2g\n", level_name(_i), (double)worst);
	free(expected);
}
END_TEST

static int compare_ids(const void *a, const void *b)
{
	int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;

	return left < right ? -1 : left > right;
}

/* Sorted, both rows are the same: the sets are equal, and no expert comes twice. */
static void check_same_set(size_t row, const int32_t *found, const uint8_t *expected)
{
	int32_t left[TOP_K], right[TOP_K];

	for (uint32_t j = 0; j < TOP_K; j++) {
		left[j] = found[j];
		right[j] = expected[j];
	}
	qsort(left, TOP_K, sizeof(left[0]), compare_ids);
	qsort(right, TOP_K, sizeof(right[0]), compare_ids);
	for (uint32_t j = 0; j < TOP_K; j++) {
		REQUIRE(left[j] == right[j], "row %zu: expert %d, not %d", row, left[j],
			      right[j]);
		REQUIRE(j == 0 || left[j - 1] < left[j], "row %zu: expert %d comes twice",
			      row, left[j]);
	}
}

/* The place of an expert in a row, or TOP_K. */
static uint32_t place_of(const uint8_t *ids, int32_t id)
{
	uint32_t j = 0;

	while (j < TOP_K && ids[j] != id)
		j++;
	return j;
}

START_TEST(test_choice)
{
	const size_t n = (size_t)N_LAYERS * N_ROWS;
	float *gaps = tinymoe_read_file(GOLDEN "cut_gap.f32", n * sizeof(float), NULL);
	float *weights = tinymoe_read_file(GOLDEN "topk_weights.f32", sizeof(results->weights),
					   NULL);
	uint8_t *ids = tinymoe_read_file(GOLDEN "topk_ids.u8", n * TOP_K, NULL);
	uint32_t n_compared = 0;

	use_results(_i);
	for (size_t row = 0; row < n; row++) {
		const int32_t *found_ids = results->ids[0][0] + row * TOP_K;
		const float *found_weights = results->weights[0][0] + row * TOP_K;

		for (uint32_t j = 1; j < TOP_K; j++)
			REQUIRE(found_weights[j - 1] >= found_weights[j],
				"row %zu: weight %u is larger than the one before", row, j);
		if (gaps[row] < NEAR_TIE)
			continue;
		n_compared++;
		check_same_set(row, found_ids, ids + row * TOP_K);
		for (uint32_t j = 0; j < TOP_K; j++) {
			uint32_t place = place_of(ids + row * TOP_K, found_ids[j]);

			float expected = weights[row * TOP_K + place];

			REQUIRE(fabsf(found_weights[j] - expected) <= 1e-5f,
				"row %zu, weight %u: %g, not %g", row, j, (double)found_weights[j],
				(double)expected);
		}
	}
	ck_assert_uint_eq(n_compared, n - 7);
	free(gaps);
	free(weights);
	free(ids);
}
END_TEST

/* The cross-entropy of the byte that follows a row, in nats. */
static double cross_entropy(uint32_t row, uint8_t next)
{
	const float *logits = results->logits[row];
	double max = -INFINITY;
	double sum = 0.0;

	for (uint32_t v = 0; v < N_VOCAB; v++)
		max = fmax(max, (double)logits[v]);
	for (uint32_t v = 0; v < N_VOCAB; v++)
		sum += exp((double)logits[v] - max);
	return max + log(sum) - (double)logits[next];
}

START_TEST(test_cross_entropy)
{
	float *expected = tinymoe_read_file(GOLDEN "ce.f32", N_ROWS * sizeof(float), NULL);
	double sum = 0.0;

	use_results(_i);
	for (uint32_t row = 0; row < N_ROWS; row++) {
		uint32_t s = row / N_TOKENS;
		uint32_t t = row % N_TOKENS;
		double found = cross_entropy(row, tokens[s * (N_TOKENS + 1) + t + 1]);

		REQUIRE(fabs(found - (double)expected[row]) <= 1e-4, "row %u: %g, not %g", row,
			found, (double)expected[row]);
		sum += found;
	}
	ck_assert_double_eq_tol(sum / N_ROWS, 1.01900, 1e-5);
	free(expected);
}
END_TEST

START_TEST(test_last_logits)
{
	float *expected = tinymoe_read_file(GOLDEN "last_logits.f32",
					    N_SEQUENCES * N_VOCAB * sizeof(float), NULL);

	use_results(_i);
	for (uint32_t s = 0; s < N_SEQUENCES; s++)
		for (uint32_t v = 0; v < N_VOCAB; v++)
			ck_assert_float_eq_tol(results->logits[(s + 1) * N_TOKENS - 1][v],
					       expected[s * N_VOCAB + v], 2e-4f);
	free(expected);
}
END_TEST

/* The norm of a difference over the norm of what was expected. */
static double relative_error(const float *found, const float *expected, uint32_t n)
{
	double difference = 0.0;
	double norm = 0.0;

	for (uint32_t i = 0; i < n; i++) {
		double d = (double)found[i] - (double)expected[i];

		difference += d * d;
		norm += (double)expected[i] * (double)expected[i];
	}
	return sqrt(difference / norm);
}

/* The golden rows of one layer against what the pass gave; returns the largest error. */
static double compare_block(const char *direction, uint32_t layer,
			    const float (*found)[N_HIDDEN], double bar)
{
	char path[128];
	float *expected;
	double worst = 0.0;

	snprintf(path, sizeof(path), GOLDEN "moe_layer%u_%s.f32", layer, direction);
	expected = tinymoe_read_file(path, N_BLOCK_ROWS * N_HIDDEN * sizeof(float), NULL);
	for (uint32_t i = 0; i < N_BLOCK_ROWS; i++) {
		uint32_t row = i / N_BLOCK_TOKENS * N_TOKENS + i % N_BLOCK_TOKENS;
		double error = relative_error(found[row], expected + i * N_HIDDEN, N_HIDDEN);

		ck_assert_msg(error <= bar, "layer %u, row %u, %s: error %g", layer, i, direction,
			      error);
		worst = fmax(worst, error);
	}
	free(expected);
	return worst;
}

START_TEST(test_moe_block)
{
	static const uint32_t layers[] = {0, 3, 5};

	use_results(_i);
	for (size_t i = 0; i < sizeof(layers) / sizeof(layers[0]); i++) {
		uint32_t layer = layers[i];
		double in = compare_block("in", layer, results->moe_in[layer], 5e-6);
		double out = compare_block("out", layer, results->moe_out[layer], 5e-6);

		printf("moe block, layer %u, %s: relative error in %.2g, out %.2g\n", layer,
		       level_name(_i), in, out);
	}
}
END_TEST

/* Forward n tokens of one slot from position first; gives the greedy successor of the last. */
static int32_t advance(struct tinymoe *tiny, uint32_t slot, uint32_t first, const char *bytes,
		       uint32_t n)
{
	int32_t token_ids[256], positions[256];
	uint32_t slots[256];
	uint8_t want_logits[256] = {0};
	float logits[N_VOCAB];
	const struct mtk_batch batch = {.n_rows = n,
					.token_ids = token_ids,
					.positions = positions,
					.slots = slots,
					.want_logits = want_logits};

	for (uint32_t i = 0; i < n; i++) {
		token_ids[i] = (unsigned char)bytes[i];
		positions[i] = (int32_t)(first + i);
		slots[i] = slot;
	}
	want_logits[n - 1] = 1;
	ck_assert_int_eq(mtk_model_forward(tiny->model, tiny->workspace, tiny->kv, tiny->threads,
					   &batch, NULL, logits), 0);
	return mtk_sample_greedy(logits, N_VOCAB);
}

static void check_greedy(struct tinymoe *tiny, const struct greedy_case *expected)
{
	uint32_t position = (uint32_t)expected->n_prompt;
	uint32_t slot;
	int32_t next;

	ck_assert_uint_eq(expected->n_text, expected->n_prompt + GREEDY_BYTES);
	ck_assert_int_eq(mtk_kv_cache_slot_acquire(tiny->kv, &slot), 0);
	next = advance(tiny, slot, 0, expected->prompt, position);
	for (;;) {
		char byte = (char)next;

		ck_assert_msg(byte == expected->text[position],
			      "%.*s: byte %u is 0x%02x, not 0x%02x", (int)expected->n_prompt,
			      expected->prompt, position, (unsigned)next,
			      (unsigned char)expected->text[position]);
		if (position + 1 == expected->n_text)
			break;
		next = advance(tiny, slot, position, &byte, 1);
		position++;
	}
	mtk_kv_cache_slot_release(tiny->kv, slot);
}

START_TEST(test_greedy_text)
{
	static struct greedy_cases cases;
	struct tinymoe tiny;
	uint32_t n_compared = 0;

	tinymoe_use_level(_i);
	greedy_read(&cases);
	tiny = tinymoe_open(1, 256, 1);
	for (uint32_t i = 0; i < cases.n_cases; i++) {
		if (cases.cases[i].min_logit_gap < GREEDY_GAP)
			continue;
		check_greedy(&tiny, &cases.cases[i]);
		n_compared++;
	}
	ck_assert_uint_ge(n_compared, 10);
	tinymoe_close(&tiny);
}
END_TEST

/* What the processor says of itself, without the engine's own detection. */
static int levels_of_processor(void)
{
	int n_levels = 1;

#if defined(__x86_64__)
	static const char *const flags[][5] = {
		{" avx2 ", " fma ", " f16c ", NULL},
		{" avx512f ", " avx512vl ", " avx512bw ", " avx512dq ", NULL},
	};
	static char line[1 << 16];
	FILE *in = fopen("/proc/cpuinfo", "r");

	ck_assert_ptr_nonnull(in);
	while (fgets(line, sizeof(line), in) && strncmp(line, "flags", 5) != 0)
		continue;
	fclose(in);
	ck_assert_int_eq(strncmp(line, "flags", 5), 0);
	line[strcspn(line, "\n")] = ' ';
	for (size_t i = 0; i < 2; i++, n_levels++)
		for (size_t j = 0; flags[i][j]; j++)
			if (!strstr(line, flags[i][j]))
				return n_levels;
#endif
	return n_levels;
}

START_TEST(test_levels)
{
	ck_assert_int_ge(levels_available(), 1);
	ck_assert_int_eq(levels_available(), levels_of_processor());
	for (int i = 0; i < levels_available(); i++) {
		struct tinymoe tiny;

		tinymoe_use_level(i);
		tiny = tinymoe_open(1, 1, 1);
		ck_assert_str_eq(mtk_model_cpu_name(tiny.model), level_name(i));
		tinymoe_close(&tiny);
	}
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("golden");
	TCase *tcase = tcase_create("reference");
	const int n_levels = levels_available();

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, test_levels);
	tcase_add_loop_test(tcase, test_router_logits, 0, n_levels);
	tcase_add_loop_test(tcase, test_choice, 0, n_levels);
	tcase_add_loop_test(tcase, test_cross_entropy, 0, n_levels);
	tcase_add_loop_test(tcase, test_last_logits, 0, n_levels);
	tcase_add_loop_test(tcase, test_moe_block, 0, n_levels);
	tcase_add_loop_test(tcase, test_greedy_text, 0, n_levels);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	SRunner *runner;
	const int n_levels = levels_available();
	int n_failed, n_run;

	if (!tinymoe_is_readable())
		return TINYMOE_SKIPPED;
	levels = mmap(NULL, (size_t)n_levels * sizeof(*levels), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (levels == MAP_FAILED)
		return EXIT_FAILURE;
	runner = srunner_create(make_suite());
	srunner_run_all(runner, CK_NORMAL);
	n_failed = srunner_ntests_failed(runner);
	n_run = srunner_ntests_run(runner);
	srunner_free(runner);
	printf("levels run: %d\n", n_levels);
	if (n_levels < 1 || n_run != 1 + N_LEVEL_TESTS * n_levels) {
		printf("%d tests ran, not one and %d a level\n", n_run, N_LEVEL_TESTS);
		return EXIT_FAILURE;
	}
	return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
