/* SPDX-License-Identifier: MIT */
/*
 * The example model on a GPU with the ten sequences of its golden files, run through it in passes
 * of any form; what each row gave is kept by sequence and position, however it came.
 */
#ifndef MTK_TESTS_TINY_RIG_H
#define MTK_TESTS_TINY_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/engine/choice.h"
#include "kernels/engine/cuda_backend.h"
#include "kernels/oea/oea.h"
#include "tests/kernels/support/tinymoe.h"

#define TINY_GOLDEN "tests/data/tinymoe/golden/"

enum {
	N_SEQUENCES = 10,
	N_TOKENS = 160,
	N_ROWS = N_SEQUENCES * N_TOKENS,
	N_LAYERS = 6,
	N_EXPERTS = 64,
	N_HIDDEN = 128,
	N_VOCAB = 256,
	TOP_K = 8,
	N_BLOCK_TOKENS = 64,
};

/* What a run over all sequences gave, however it was cut into passes. */
struct results {
	float router_logits[N_LAYERS][N_ROWS][N_EXPERTS];
	int32_t ids[N_LAYERS][N_ROWS][TOP_K];
	float weights[N_LAYERS][N_ROWS][TOP_K];
	float margins[N_LAYERS][N_ROWS]; /* zero where the rig has no facts, as the next */
	uint8_t flags[N_LAYERS][N_ROWS];
	float moe_out[N_LAYERS][N_ROWS][N_HIDDEN];
	float logits[N_ROWS][N_VOCAB];
	int32_t greedy_ids[N_ROWS];
};

/* How the rows of the sequences come in passes. */
enum plan {
	PLAN_PREFILL, /* all rows in one pass */
	PLAN_CHUNKS,  /* 37 rows a pass, sequence by sequence */
	PLAN_DECODE,  /* a position of every sequence a pass: 10 rows, a graph of 16 */
};

struct rig {
	struct tinymoe tiny;
	struct mtk_backend *backend;
	void *context;
	struct mtk_kv_cache *kv;
	uint8_t *tokens; /* [N_SEQUENCES][N_TOKENS + 1] */
	uint32_t slots[N_SEQUENCES];
	struct results *results;
	bool has_facts; /* margins and flags are asked for */
	/* The pass in hand: the row of the results that each of its rows is. */
	uint32_t rows[N_ROWS];
	uint32_t n_rows;
};

/* oea and choice may be NULL. */
void rig_open(struct rig *rig, const struct mtk_cuda_backend_settings *settings,
	      const struct mtk_oea *oea, const struct mtk_choice *choice);
void rig_close(struct rig *rig);

/* A row of the pass in hand. */
void rig_add_row(struct rig *rig, uint32_t sequence, uint32_t position);

/* Run the pass in hand; the slots are those of the backend's own cache. */
void rig_run_pass(struct rig *rig, struct mtk_backend *backend, void *context,
		  const uint32_t *slots, bool has_taps);

/* Run all rows of all sequences. */
void rig_run_plan(struct rig *rig, enum plan plan, bool has_taps);

#endif
