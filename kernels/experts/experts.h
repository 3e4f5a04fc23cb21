/* SPDX-License-Identifier: MIT */
/*
 * The expert MLP. The (row, topk_rank) pairs of a batch, called slots and numbered row * top_k +
 * topk_rank, are grouped by expert, so that the weights of an expert are read once a batch:
 * out[slot] = down(silu(gate(x[row])) * up(x[row])). A slot's result does not depend on the others.
 */
#ifndef MTK_EXPERTS_EXPERTS_H
#define MTK_EXPERTS_EXPERTS_H

#include <stdint.h>

#include "kernels/gemm/gemm.h"

/* The slots of a batch in the order of their expert, and of their number within one. */
struct mtk_expert_groups {
	uint32_t *first;		/* [n_experts + 1]: where each expert's slots begin */
	uint32_t *slots;		/* [n_rows * top_k] */
	uint32_t *rows;			/* [n_rows * top_k]: slots / top_k */
};

/* Group ids [n_rows][top_k], each in 0 .. n_experts - 1. */
void mtk_experts_group(uint32_t n_experts, uint32_t n_rows, uint32_t top_k, const int32_t *ids,
		       struct mtk_expert_groups *groups);

/* In place over [gate n | up n]: the first n become silu(gate) * up. */
typedef void (*mtk_swiglu_fn)(uint32_t n, float *gate_up);

void mtk_swiglu_plain(uint32_t n, float *gate_up);

struct mtk_experts {
	const struct mtk_matrix *gate_up;	/* [n_experts]: [2 * n_intermediate][n_hidden] */
	const struct mtk_matrix *down;		/* [n_experts]: [n_hidden][n_intermediate] */
	uint32_t n_intermediate;
	uint32_t n_hidden;
	mtk_gemm_fn gemm;
	mtk_swiglu_fn swiglu;
	const struct mtk_expert_groups *groups;
	const float *x;				/* [n_rows][n_hidden] */
	float *gate_up_out;			/* scratch, [n_rows * top_k][2 * n_intermediate] */
	float *out;				/* [n_rows * top_k][n_hidden], by slot */
};

/* Run the experts [begin, end); those without a slot cost nothing. */
void mtk_experts_run(const struct mtk_experts *experts, uint32_t begin, uint32_t end);

#endif
