/* SPDX-License-Identifier: MIT */
/*
 * Invariant: what a hook is told of a row goes to the place of its sequence and position, so that
 * runs that were cut into passes in different ways are compared as they are.
 */
#include "tests/kernels/cuda/support/tiny_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

void rig_open(struct rig *rig, const struct mtk_cuda_backend_settings *settings,
	      const struct mtk_oea *oea, const struct mtk_choice *choice)
{
	const struct mtk_context_settings context = {.n_slots = N_SEQUENCES,
						     .n_context = N_TOKENS,
						     .n_rows_max = N_ROWS,
						     .n_threads = 1,
						     .oea = oea,
						     .choice = choice};
	struct mtk_error error = {""};
	int status;

	memset(rig, 0, sizeof(*rig));
	rig->tiny = tinymoe_open(N_SEQUENCES, N_ROWS, 2);
	rig->tokens =
		tinymoe_read_file(TINY_GOLDEN "tokens.u8", N_SEQUENCES * (N_TOKENS + 1), NULL);
	rig->results = calloc(1, sizeof(*rig->results));
	ck_assert_ptr_nonnull(rig->results);
	status = mtk_backend_cuda_create(rig->tiny.model, settings, &error, &rig->backend);
	ck_assert_msg(status == MOETRACE_OK, "%s", error.text);
	status = rig->backend->ops->context_create(rig->backend, &context, &rig->context, &error);
	ck_assert_msg(status == MOETRACE_OK, "%s", error.text);
	rig->kv = rig->backend->ops->cache(rig->context);
	for (uint32_t s = 0; s < N_SEQUENCES; s++)
		ck_assert_int_eq(mtk_kv_cache_slot_acquire(rig->kv, &rig->slots[s]), 0);
}

void rig_close(struct rig *rig)
{
	rig->backend->ops->context_destroy(rig->context);
	mtk_backend_cuda_destroy(rig->backend);
	tinymoe_close(&rig->tiny);
	free(rig->tokens);
	free(rig->results);
}

static void take_router_logits(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t n,
			       const float *logits)
{
	struct rig *rig = ctx;

	ck_assert_uint_eq(n_rows, rig->n_rows);
	ck_assert_uint_eq(n, N_EXPERTS);
	for (uint32_t r = 0; r < n_rows; r++)
		memcpy(rig->results->router_logits[layer][rig->rows[r]], logits + (size_t)r * n,
		       n * sizeof(*logits));
}

static void take_facts(void *ctx, uint32_t layer, uint32_t n_rows, const float *margins,
		       const uint8_t *flags)
{
	struct rig *rig = ctx;

	ck_assert_uint_eq(n_rows, rig->n_rows);
	for (uint32_t r = 0; r < n_rows; r++) {
		rig->results->margins[layer][rig->rows[r]] = margins[r];
		rig->results->flags[layer][rig->rows[r]] = flags[r];
	}
}

static void take_choice(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t top_k,
			const int32_t *ids, const float *weights)
{
	struct rig *rig = ctx;

	ck_assert_uint_eq(n_rows, rig->n_rows);
	ck_assert_uint_eq(top_k, TOP_K);
	for (uint32_t r = 0; r < n_rows; r++) {
		memcpy(rig->results->ids[layer][rig->rows[r]], ids + (size_t)r * top_k,
		       top_k * sizeof(*ids));
		memcpy(rig->results->weights[layer][rig->rows[r]], weights + (size_t)r * top_k,
		       top_k * sizeof(*weights));
	}
}

static void take_moe_out(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t n,
			 const float *hidden)
{
	struct rig *rig = ctx;

	ck_assert_uint_eq(n, N_HIDDEN);
	for (uint32_t r = 0; r < n_rows; r++)
		memcpy(rig->results->moe_out[layer][rig->rows[r]], hidden + (size_t)r * n,
		       n * sizeof(*hidden));
}

void rig_add_row(struct rig *rig, uint32_t sequence, uint32_t position)
{
	rig->rows[rig->n_rows++] = sequence * N_TOKENS + position;
}

void rig_run_pass(struct rig *rig, struct mtk_backend *backend, void *context,
		  const uint32_t *slots, bool has_taps)
{
	const struct mtk_forward_hooks hooks = {
		.ctx = rig,
		.select_experts = take_choice,
		.row_facts = rig->has_facts ? take_facts : NULL,
		.router_logits = has_taps ? take_router_logits : NULL,
		.moe_output = has_taps ? take_moe_out : NULL,
	};
	static int32_t token_ids[N_ROWS], positions[N_ROWS], greedy[N_ROWS];
	static uint32_t row_slots[N_ROWS];
	static uint8_t ones[N_ROWS];
	static float logits[N_ROWS][N_VOCAB];
	const struct mtk_batch batch = {.n_rows = rig->n_rows,
					.token_ids = token_ids,
					.positions = positions,
					.slots = row_slots,
					.want_logits = ones,
					.is_decode = ones};
	const struct mtk_forward_result result = {.logits = logits[0], .greedy_ids = greedy};
	struct mtk_error error = {""};
	int status;

	for (uint32_t r = 0; r < rig->n_rows; r++) {
		const uint32_t s = rig->rows[r] / N_TOKENS, t = rig->rows[r] % N_TOKENS;

		token_ids[r] = rig->tokens[s * (N_TOKENS + 1) + t];
		positions[r] = (int32_t)t;
		row_slots[r] = slots[s];
		ones[r] = 1;
	}
	status = backend->ops->forward(context, &batch, &hooks, &result, &error);
	ck_assert_msg(status == MOETRACE_OK, "%s", error.text);
	for (uint32_t r = 0; r < rig->n_rows; r++) {
		memcpy(rig->results->logits[rig->rows[r]], logits[r], sizeof(logits[r]));
		rig->results->greedy_ids[rig->rows[r]] = greedy[r];
	}
	rig->n_rows = 0;
}

void rig_run_plan(struct rig *rig, enum plan plan, bool has_taps)
{
	for (uint32_t i = 0; i < N_ROWS; i++) {
		if (plan == PLAN_DECODE)
			rig_add_row(rig, i % N_SEQUENCES, i / N_SEQUENCES);
		else
			rig_add_row(rig, i / N_TOKENS, i % N_TOKENS);
		if ((plan == PLAN_DECODE && (i + 1) % N_SEQUENCES == 0) ||
		    (plan == PLAN_CHUNKS && i % 37 == 36) || i + 1 == N_ROWS)
			rig_run_pass(rig, rig->backend, rig->context, rig->slots, has_taps);
	}
	for (uint32_t s = 0; s < N_SEQUENCES; s++)
		ck_assert_uint_eq(mtk_kv_cache_slot_length(rig->kv, rig->slots[s]), N_TOKENS);
}
