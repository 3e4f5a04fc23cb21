/* SPDX-License-Identifier: MIT */
/*
 * Decoding with the example model on a GPU, in batches of many sizes: a graph, which is padded to a
 * power of two, gives the bits that launches give, in both precisions; with fp32 inputs a row has
 * the bits that it has in any other batch; greedy continuations are the reference's; and each way to
 * record stores the ids that the pass chose, with margins where they are asked for.
 */
#include <check.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <moetrace/cuda.h>

#include "kernels/cuda/device.h"
#include "kernels/engine/cuda_backend.h"
#include "kernels/engine/serve_record.h"
#include "tests/kernels/support/greedy.h"
#include "tests/kernels/support/tinymoe.h"
#include "tests/support/run_suite.h"

enum {
	N_SLOTS = 48,
	N_CONTEXT = 320,
	MAX_ROWS = 1024, /* of a pass: all prompts */
	N_POSITIONS = 20, /* decoded of each sequence */
	N_LAYERS = 6,
	N_VOCAB = 256,
	TOP_K = 8,
};

/* What one batch size gave: all rows of all positions. */
struct results {
	int32_t ids[N_LAYERS][N_POSITIONS][N_SLOTS][TOP_K];
	float weights[N_LAYERS][N_POSITIONS][N_SLOTS][TOP_K];
	float margins[N_LAYERS][N_POSITIONS][N_SLOTS];
	float logits[N_POSITIONS][N_SLOTS][N_VOCAB];
	int32_t greedy_ids[N_POSITIONS][N_SLOTS];
};

struct rig {
	struct tinymoe tiny;
	struct moetrace_cuda_lane *lane; /* NULL: passes are not recorded */
	uint32_t model;
	struct mtk_backend *backend;
	void *context;
	struct mtk_kv_cache *kv;
	struct results *results;
	bool has_margins;
	bool ends_late;	   /* passes, when they were waited for */
	uint32_t position; /* of the pass in hand */
	uint32_t n_rows;
};

/* With MOETRACE_TEST_SMALL set: for tools that make each launch take a thousand times as long. */
static bool is_small(void)
{
	return getenv("MOETRACE_TEST_SMALL") != NULL;
}

static uint32_t n_positions(void)
{
	return is_small() ? 4 : N_POSITIONS;
}

static void open_rig(struct rig *rig, enum mtk_cuda_precision precision, bool without_graphs,
		     enum mtk_cuda_recording recording)
{
	const struct mtk_cuda_backend_settings settings = {.precision = precision,
							   .without_graphs = without_graphs,
							   .recording = recording};
	const struct mtk_context_settings context = {
		.n_slots = N_SLOTS, .n_context = N_CONTEXT, .n_rows_max = MAX_ROWS, .n_threads = 1};
	struct mtk_error error = {""};

	memset(rig, 0, sizeof(*rig));
	rig->tiny = tinymoe_open(1, 1, 1);
	ck_assert_msg(mtk_backend_cuda_create(rig->tiny.model, &settings, &error, &rig->backend) ==
			      MOETRACE_OK,
		      "%s", error.text);
	ck_assert_msg(rig->backend->ops->context_create(rig->backend, &context, &rig->context,
							&error) == MOETRACE_OK,
		      "%s", error.text);
	rig->kv = rig->backend->ops->cache(rig->context);
}

static void close_rig(struct rig *rig)
{
	rig->backend->ops->context_destroy(rig->context);
	mtk_backend_cuda_destroy(rig->backend);
	tinymoe_close(&rig->tiny);
}

static void take_choice(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t top_k,
			const int32_t *ids, const float *weights)
{
	struct rig *rig = ctx;

	ck_assert_uint_eq(n_rows, rig->n_rows);
	ck_assert_uint_eq(top_k, TOP_K);
	memcpy(rig->results->ids[layer][rig->position], ids, sizeof(*ids) * n_rows * TOP_K);
	memcpy(rig->results->weights[layer][rig->position], weights,
	       sizeof(*weights) * n_rows * TOP_K);
}

static void take_facts(void *ctx, uint32_t layer, uint32_t n_rows, const float *margins,
		       const uint8_t *flags)
{
	struct rig *rig = ctx;

	(void)flags;
	memcpy(rig->results->margins[layer][rig->position], margins, sizeof(*margins) * n_rows);
}

/* Bytes of the golden sequences, begun at another place for each sequence. */
static int32_t token_of(const uint8_t *tokens, uint32_t sequence, uint32_t position)
{
	return tokens[sequence % 10 * 161 + (sequence / 10 * 31 + position) % 161];
}

static void begin_pass(const struct rig *rig, uint64_t number, const struct mtk_batch *batch)
{
	struct moetrace_pass_info info;

	if (!rig->lane)
		return;
	MOETRACE_INIT(&info);
	info.model = rig->model;
	info.phase = MOETRACE_PHASE_DECODE;
	info.n_rows = batch->n_rows;
	info.padding_rows = rig->backend->ops->padding_rows(rig->context, batch);
	info.runtime_pass = &number;
	ck_assert_int_eq(moetrace_cuda_pass_begin(rig->lane, &info), MOETRACE_OK);
}

static void end_pass(void *ctx)
{
	const struct rig *rig = ctx;

	ck_assert_int_eq(moetrace_cuda_pass_end(rig->lane), MOETRACE_OK);
}

/* Decode @n_rows sequences side by side, from nothing. */
static void run_batch(struct rig *rig, const uint8_t *tokens, uint32_t n_rows)
{
	const struct mtk_forward_hooks hooks = {.ctx = rig,
						.select_experts = take_choice,
						.row_facts = rig->has_margins ? take_facts : NULL,
						.launched = rig->ends_late ? NULL : end_pass};
	int32_t token_ids[N_SLOTS], positions[N_SLOTS];
	uint32_t slots[N_SLOTS];
	uint8_t ones[N_SLOTS];
	struct mtk_error error = {""};

	rig->n_rows = n_rows;
	for (uint32_t s = 0; s < n_rows; s++)
		ck_assert_int_eq(mtk_kv_cache_slot_acquire(rig->kv, &slots[s]), 0);
	for (uint32_t t = 0; t < n_positions(); t++) {
		const struct mtk_batch batch = {.n_rows = n_rows,
						.token_ids = token_ids,
						.positions = positions,
						.slots = slots,
						.want_logits = ones,
						.is_decode = ones};
		const struct mtk_forward_result result = {
			.logits = rig->results->logits[t][0],
			.greedy_ids = rig->results->greedy_ids[t]};

		rig->position = t;
		for (uint32_t s = 0; s < n_rows; s++) {
			token_ids[s] = token_of(tokens, s, t);
			positions[s] = (int32_t)t;
			ones[s] = 1;
		}
		begin_pass(rig, t, &batch);
		ck_assert_msg(rig->backend->ops->forward(rig->context, &batch, &hooks, &result,
							 &error) == MOETRACE_OK,
			      "%s", error.text);
		if (rig->ends_late)
			end_pass(rig);
	}
	for (uint32_t s = 0; s < n_rows; s++)
		mtk_kv_cache_slot_release(rig->kv, slots[s]);
}

/* The rows below @n_rows are the same to the bit. */
static void expect_same(const struct results *a, const struct results *b, uint32_t n_rows)
{
	for (uint32_t t = 0; t < n_positions(); t++) {
		ck_assert_mem_eq(a->logits[t], b->logits[t], n_rows * sizeof(a->logits[t][0]));
		ck_assert_mem_eq(a->greedy_ids[t], b->greedy_ids[t],
				 n_rows * sizeof(a->greedy_ids[t][0]));
		for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
			ck_assert_mem_eq(a->ids[layer][t], b->ids[layer][t],
					 n_rows * sizeof(a->ids[layer][t][0]));
			ck_assert_mem_eq(a->weights[layer][t], b->weights[layer][t],
					 n_rows * sizeof(a->weights[layer][t][0]));
		}
	}
}

static struct results *results_new(void)
{
	struct results *results = calloc(1, sizeof(*results));

	ck_assert_ptr_nonnull(results);
	return results;
}

/* Powers of two, one less and one more; the largest first, to compare the others' rows with. */
static const uint32_t sizes[] = {48, 33, 32, 31, 17, 16, 15, 9, 8, 7, 5, 4, 3, 2, 1};

START_TEST(test_sizes)
{
	const enum mtk_cuda_precision precision = _i == 0 ? MTK_CUDA_FP32 : MTK_CUDA_16BIT;
	uint8_t *tokens = tinymoe_read_file("tests/data/tinymoe/golden/tokens.u8", 1610, NULL);
	struct results *largest = results_new(), *replayed = results_new();
	struct results *launched = results_new();
	const size_t step = is_small() ? 6 : 1;
	struct rig graphs, eager;

	open_rig(&graphs, precision, false, MTK_CUDA_RECORD_FUSED);
	open_rig(&eager, precision, true, MTK_CUDA_RECORD_FUSED);
	eager.results = launched;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i += step) {
		graphs.results = i == 0 ? largest : replayed;
		run_batch(&graphs, tokens, sizes[i]);
		run_batch(&eager, tokens, sizes[i]);
		expect_same(graphs.results, launched, sizes[i]);
		if (precision == MTK_CUDA_FP32 && i > 0)
			expect_same(largest, replayed, sizes[i]);
	}
	close_rig(&graphs);
	close_rig(&eager);
	free(largest);
	free(replayed);
	free(launched);
	free(tokens);
}
END_TEST

/* ---- greedy text ---- */

/* One pass over the sequences' next bytes; those whose prompt is not through take it whole. */
static void advance(struct rig *rig, const struct greedy_cases *cases, const uint32_t *slots,
		    uint32_t n_made, int32_t *ret_next)
{
	static int32_t token_ids[MAX_ROWS], positions[MAX_ROWS];
	static uint32_t row_slots[MAX_ROWS];
	static uint8_t wanted[MAX_ROWS];
	const struct mtk_forward_result result = {.greedy_ids = ret_next};
	struct mtk_batch batch = {.token_ids = token_ids,
				  .positions = positions,
				  .slots = row_slots,
				  .want_logits = wanted};
	struct mtk_error error = {""};

	for (uint32_t i = 0; i < cases->n_cases; i++) {
		const struct greedy_case *at = &cases->cases[i];
		const size_t end = at->n_prompt + n_made;

		for (size_t p = n_made ? end - 1 : 0; p < end; p++) {
			const uint32_t row = batch.n_rows++;

			ck_assert_uint_lt(row, MAX_ROWS);
			token_ids[row] = (unsigned char)at->text[p];
			positions[row] = (int32_t)p;
			row_slots[row] = slots[i];
			wanted[row] = p + 1 == end;
		}
	}
	ck_assert_msg(rig->backend->ops->forward(rig->context, &batch, NULL, &result, &error) ==
			      MOETRACE_OK,
		      "%s", error.text);
}

/* Where the gap allows; a byte that differs is not fed back, so that the rest is compared, too. */
START_TEST(test_greedy_text)
{
	static struct greedy_cases cases;
	int32_t next[GREEDY_MAX];
	uint32_t slots[GREEDY_MAX];
	const uint32_t n_bytes = is_small() ? 4 : GREEDY_BYTES;
	uint32_t n_compared = 0, n_other = 0;
	struct rig rig;

	greedy_read(&cases);
	open_rig(&rig, MTK_CUDA_FP32, _i == 1, MTK_CUDA_RECORD_FUSED);
	for (uint32_t i = 0; i < cases.n_cases; i++)
		ck_assert_int_eq(mtk_kv_cache_slot_acquire(rig.kv, &slots[i]), 0);
	for (uint32_t t = 0; t < n_bytes; t++) {
		advance(&rig, &cases, slots, t, next);
		for (uint32_t i = 0; i < cases.n_cases; i++) {
			const struct greedy_case *at = &cases.cases[i];
			const int is_same = (char)next[i] == at->text[at->n_prompt + t];

			n_compared += at->min_logit_gap >= GREEDY_GAP;
			n_other += !is_same;
			ck_assert_msg(is_same || at->min_logit_gap < GREEDY_GAP,
				      "%.*s: byte %u is 0x%02x", (int)at->n_prompt, at->prompt, t,
				      (unsigned int)next[i]);
		}
	}
	printf("greedy text: %u bytes compared, %u of near ties are others\n", n_compared, n_other);
	ck_assert_uint_ge(n_compared, 10 * n_bytes);
	close_rig(&rig);
}
END_TEST

/* ---- recording ---- */

/* The ids, and margins, of every pass and layer in the file are those that the hooks were told. */
static void expect_recorded(const char *path, const struct rig *rig, uint32_t n_rows)
{
	const struct results *results = rig->results;
	sqlite3_stmt *stmt = NULL;
	sqlite3 *db = NULL;
	uint32_t n = 0;

	ck_assert_int_eq(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	ck_assert_int_eq(
		sqlite3_prepare_v2(db,
				   "SELECT p.runtime_pass, l.layer_id - 1, substr(t.topk_ids,"
				   " l.topk_row * t.k + 1, p.n_rows * t.k), p.padding_rows,"
				   " substr(t.margins, l.topk_row * 4 + 1, p.n_rows * 4)"
				   " FROM pass AS p JOIN pass_layer AS l USING (pass_id)"
				   " JOIN topk AS t USING (topk_id) WHERE p.verdict = 'complete'",
				   -1, &stmt, NULL),
		SQLITE_OK);
	for (; sqlite3_step(stmt) == SQLITE_ROW; n++) {
		const int layer = sqlite3_column_int(stmt, 1), pass = sqlite3_column_int(stmt, 0);
		const int32_t(*want)[TOP_K] = results->ids[layer][pass];
		const uint8_t *got = sqlite3_column_blob(stmt, 2);

		ck_assert_int_eq(sqlite3_column_bytes(stmt, 2), (int)n_rows * TOP_K);
		ck_assert_int_eq(sqlite3_column_int(stmt, 3), 7);
		for (uint32_t i = 0; i < n_rows * TOP_K; i++)
			ck_assert_int_eq(got[i], want[i / TOP_K][i % TOP_K]);
		if (!rig->has_margins) {
			ck_assert_int_eq(sqlite3_column_type(stmt, 4), SQLITE_NULL);
			continue;
		}
		ck_assert_int_eq(sqlite3_column_bytes(stmt, 4), (int)(n_rows * sizeof(float)));
		ck_assert_mem_eq(sqlite3_column_blob(stmt, 4), results->margins[layer][pass],
				 n_rows * sizeof(float));
	}
	ck_assert_uint_eq(n, n_positions() * N_LAYERS);
	sqlite3_finalize(stmt);
	ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
}

/* Each way to record, and the first once more with margins; passes end when launched, or waited for. */
enum { N_WAYS = MTK_CUDA_RECORD_ADOPT + 2 };

START_TEST(test_recording)
{
	const bool has_margins = _i % N_WAYS > MTK_CUDA_RECORD_ADOPT;
	const enum mtk_cuda_recording way = has_margins ? MTK_CUDA_RECORD_FUSED
							: (enum mtk_cuda_recording)(_i % N_WAYS);
	uint8_t *tokens = tinymoe_read_file("tests/data/tinymoe/golden/tokens.u8", 1610, NULL);
	struct moetrace_session *session;
	struct mtk_error error;
	struct rig rig;
	char path[64];

	open_rig(&rig, MTK_CUDA_FP32, false, way);
	rig.has_margins = has_margins;
	rig.ends_late = _i >= N_WAYS;
	rig.results = results_new();
	snprintf(path, sizeof(path), "/tmp/check_decode-%ld-%d.db", (long)getpid(), _i);
	ck_assert_int_eq(moetrace_session_open(path, NULL, &session), MOETRACE_OK);
	ck_assert_int_eq(mtk_serve_record_model(session, rig.backend, NULL, "tinymoe", &rig.model,
						&error),
			 MOETRACE_OK);
	ck_assert_int_eq(moetrace_start(session, NULL), MOETRACE_OK);
	rig.lane = rig.backend->ops->record(rig.context, session, rig.model, has_margins);
	ck_assert_ptr_nonnull(rig.lane);
	run_batch(&rig, tokens, 9);
	ck_assert_int_eq(moetrace_session_close(session), MOETRACE_OK);
	expect_recorded(path, &rig, 9);
	unlink(path);
	free(rig.results);
	close_rig(&rig);
	free(tokens);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("decode_cuda");
	TCase *tcase = tcase_create("tinymoe");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, test_sizes, 0, 2);
	tcase_add_loop_test(tcase, test_greedy_text, 0, 2);
	tcase_add_loop_test(tcase, test_recording, 0, 2 * N_WAYS);
	suite_add_tcase(suite, tcase);
	return suite;
}

/* Tests are not forked: a process that has used a GPU cannot use it in a child. */
int main(void)
{
	struct mtk_cuda_device device;
	struct mtk_error error;

	if (!tinymoe_is_readable())
		return TINYMOE_SKIPPED;
	if (mtk_cuda_open(0, &error, &device) != MOETRACE_OK) {
		puts(error.text);
		return TINYMOE_SKIPPED;
	}
	puts(device.name);
	return run_suite_unforked(make_suite());
}
