/* SPDX-License-Identifier: MIT */
/*
 * The promise of fixed reductions: logits, chosen experts and weights of every token are the same
 * bits however the tokens are cut into chunks, which sequences share a batch, in which order their
 * rows stand and how many threads there are.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/sample/sample.h"
#include "tests/kernels/support/levels.h"
#include "tests/kernels/support/tinymoe.h"
#include "tests/support/run_suite.h"
#include "tests/unit/support/suite.h"

/* Of the ten that the file holds. */
#define N_SEQUENCES 6
#define N_TOKENS 160
#define N_ROWS (N_SEQUENCES * N_TOKENS)
#define N_LAYERS 6
#define N_VOCAB 256
#define TOP_K 8

/* What the engine gave for every token, by sequence and position, in whatever pass it stood. */
struct outcome {
	int32_t ids[N_ROWS][N_LAYERS][TOP_K];
	float weights[N_ROWS][N_LAYERS][TOP_K];
	float logits[N_ROWS][N_VOCAB];
};

struct plan {
	uint32_t n_threads;
	uint32_t n_sequences;	/* sequences that share batches; the next ones wait for them */
	uint32_t max_chunk;	/* rows of a sequence in a pass: random, at most this */
	uint64_t seed;
};

struct runner {
	struct tinymoe tiny;
	const struct plan *plan;
	struct mtk_rng rng;
	const uint8_t *tokens;
	struct outcome *outcome;
	uint32_t slots[N_SEQUENCES];
	uint32_t lengths[N_SEQUENCES];

	/* The pass being built or run. */
	uint32_t n_rows;
	int32_t token_ids[N_ROWS];
	int32_t positions[N_ROWS];
	uint32_t row_slots[N_ROWS];
	uint8_t want_logits[N_ROWS];
	uint32_t outcome_rows[N_ROWS];
	float logits[N_ROWS][N_VOCAB];
};

static uint32_t random_below(struct runner *runner, uint32_t n)
{
	return (uint32_t)(mtk_rng_next(&runner->rng) * n);
}

static void take_choice(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t top_k,
			const int32_t *ids, const float *weights)
{
	struct runner *runner = ctx;

	REQUIRE(n_rows == runner->n_rows && top_k == TOP_K, "%u rows of %u experts", n_rows, top_k);
	for (uint32_t row = 0; row < n_rows; row++) {
		uint32_t to = runner->outcome_rows[row];

		memcpy(runner->outcome->ids[to][layer], ids + row * TOP_K, TOP_K * sizeof(*ids));
		memcpy(runner->outcome->weights[to][layer], weights + row * TOP_K,
		       TOP_K * sizeof(*weights));
	}
}

static void add_row(struct runner *runner, uint32_t sequence)
{
	const uint32_t row = runner->n_rows++;
	const uint32_t position = runner->lengths[sequence]++;

	runner->token_ids[row] = runner->tokens[sequence * (N_TOKENS + 1) + position];
	runner->positions[row] = (int32_t)position;
	runner->row_slots[row] = runner->slots[sequence];
	runner->want_logits[row] = 1;
	runner->outcome_rows[row] = sequence * N_TOKENS + position;
}

/* Deal random chunks of the sequences [first, end), their rows interleaved at random. */
static void build_pass(struct runner *runner, uint32_t first, uint32_t end)
{
	uint32_t chunks[N_SEQUENCES] = {0};
	uint32_t n_left = 0;

	runner->n_rows = 0;
	for (uint32_t s = first; s < end; s++) {
		uint32_t left = N_TOKENS - runner->lengths[s];
		uint32_t chunk = 1 + random_below(runner, runner->plan->max_chunk);

		chunks[s] = chunk < left ? chunk : left;
		n_left += chunks[s];
	}
	while (n_left > 0) {
		uint32_t s = first + random_below(runner, end - first);

		if (chunks[s] == 0)
			continue;
		chunks[s]--;
		n_left--;
		add_row(runner, s);
	}
}

static void run_pass(struct runner *runner)
{
	const struct mtk_forward_hooks hooks = {.ctx = runner, .select_experts = take_choice};
	const struct mtk_batch batch = {.n_rows = runner->n_rows,
					.token_ids = runner->token_ids,
					.positions = runner->positions,
					.slots = runner->row_slots,
					.want_logits = runner->want_logits};
	const struct tinymoe *tiny = &runner->tiny;

	ck_assert_int_eq(mtk_model_forward(tiny->model, tiny->workspace, tiny->kv, tiny->threads,
					   &batch, &hooks, runner->logits[0]), 0);
	for (uint32_t row = 0; row < runner->n_rows; row++)
		memcpy(runner->outcome->logits[runner->outcome_rows[row]], runner->logits[row],
		       sizeof(runner->logits[row]));
}

static struct outcome *run_plan(const struct plan *plan, const uint8_t *tokens)
{
	struct runner *runner = calloc(1, sizeof(*runner));
	struct outcome *outcome = calloc(1, sizeof(*outcome));

	ck_assert_ptr_nonnull(runner);
	ck_assert_ptr_nonnull(outcome);
	runner->plan = plan;
	runner->tokens = tokens;
	runner->outcome = outcome;
	runner->tiny = tinymoe_open(N_SEQUENCES, N_ROWS, plan->n_threads);
	mtk_rng_seed(&runner->rng, plan->seed, 0);
	for (uint32_t s = 0; s < N_SEQUENCES; s++)
		ck_assert_int_eq(mtk_kv_cache_slot_acquire(runner->tiny.kv, &runner->slots[s]), 0);
	for (uint32_t first = 0; first < N_SEQUENCES; first += plan->n_sequences) {
		uint32_t end = first + plan->n_sequences;

		if (end > N_SEQUENCES)
			end = N_SEQUENCES;
		for (build_pass(runner, first, end); runner->n_rows > 0;
		     build_pass(runner, first, end))
			run_pass(runner);
	}
	tinymoe_close(&runner->tiny);
	free(runner);
	return outcome;
}

/* Sanitizers look at memory, not at bits, and take ten times as long: two plans do. */
static size_t plan_step(void)
{
	const char *sanitizers = getenv("MOETRACE_SANITIZERS");

	return sanitizers && *sanitizers ? 4 : 1;
}

START_TEST(test_same_bits)
{
	/* The first is the measure: token by token, sequence by sequence, one thread. */
	static const struct plan plans[] = {
		{1, 1, 1, 1},  {1, 1, 160, 2}, {1, 6, 1, 3},	{2, 6, 1, 4},
		{2, 6, 7, 5},  {3, 4, 40, 6},  {2, 3, 160, 7},	{1, 6, 160, 8},
		{5, 5, 13, 9},
	};
	uint8_t *tokens = tinymoe_read_file("tests/data/tinymoe/golden/tokens.u8",
					    10 * (N_TOKENS + 1), NULL);
	struct outcome *expected;

	tinymoe_use_level(_i);
	expected = run_plan(&plans[0], tokens);
	for (size_t i = 1; i < sizeof(plans) / sizeof(plans[0]); i += plan_step()) {
		struct outcome *found = run_plan(&plans[i], tokens);

		ck_assert_msg(!memcmp(found->ids, expected->ids, sizeof(found->ids)),
			      "plan %zu: other experts", i);
		ck_assert_msg(!memcmp(found->weights, expected->weights, sizeof(found->weights)),
			      "plan %zu: other weights", i);
		ck_assert_msg(!memcmp(found->logits, expected->logits, sizeof(found->logits)),
			      "plan %zu: other logits", i);
		free(found);
	}
	free(expected);
	free(tokens);
}
END_TEST

/* A sequence that is cut back and computed again gives the same bits (retract, prefix reuse). */
START_TEST(test_truncated_slot)
{
	struct tinymoe tiny = tinymoe_open(1, 64, 1);
	float first[64][N_VOCAB], again[34][N_VOCAB];
	int32_t token_ids[64], positions[64];
	uint32_t slots[64];
	uint8_t want_logits[64];
	struct mtk_batch batch = {.n_rows = 64,
				  .token_ids = token_ids,
				  .positions = positions,
				  .slots = slots,
				  .want_logits = want_logits};
	uint32_t slot;

	ck_assert_int_eq(mtk_kv_cache_slot_acquire(tiny.kv, &slot), 0);
	for (int32_t t = 0; t < 64; t++) {
		token_ids[t] = 'a' + t % 26;
		positions[t] = t;
		slots[t] = slot;
		want_logits[t] = 1;
	}
	ck_assert_int_eq(mtk_model_forward(tiny.model, tiny.workspace, tiny.kv, tiny.threads,
					   &batch, NULL, first[0]), 0);
	mtk_kv_cache_slot_truncate(tiny.kv, slot, 30);
	ck_assert_uint_eq(mtk_kv_cache_slot_length(tiny.kv, slot), 30);
	batch.n_rows = 34;
	batch.token_ids = token_ids + 30;
	batch.positions = positions + 30;
	ck_assert_int_eq(mtk_model_forward(tiny.model, tiny.workspace, tiny.kv, tiny.threads,
					   &batch, NULL, again[0]), 0);
	ck_assert_mem_eq(again, first[30], sizeof(again));
	tinymoe_close(&tiny);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("determinism");
	TCase *tcase = tcase_create("bits");

	tcase_set_timeout(tcase, 300);
	tcase_add_loop_test(tcase, test_same_bits, MTK_CPU_PLAIN, levels_available());
	tcase_add_test(tcase, test_truncated_slot);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	if (!tinymoe_is_readable())
		return TINYMOE_SKIPPED;
	return run_suite(make_suite());
}
