/* SPDX-License-Identifier: MIT */
/*
 * The expert MLP. The (row, topk_rank) pairs of a batch, called slots and numbered row * top_k +
 * topk_rank, are grouped by expert, so that the weights of an expert are read once a batch:
 * out[slot] = down(act(gate(x[row]), up(x[row]))), where act is SwiGLU or its clamped form, or
 * out[slot] = down(max(0, up(x[row]))^2), and gate, up and down may add a bias. The slot's weight multiplies out[slot] here, or x[row] before
 * gate and up (which is another function, because act is not linear), or nothing: then the
 * combination applies it. A slot's result does not depend on the others.
 */
#ifndef MTK_EXPERTS_EXPERTS_H
#define MTK_EXPERTS_EXPERTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/engine/error.h"
#include "kernels/gemm/gemm.h"
#include "kernels/threads.h"

/* The slots of a batch in the order of their expert, and of their number within one. */
struct mtk_expert_groups {
	uint32_t *first;		/* [n_experts + 1]: where each expert's slots begin */
	uint32_t *slots;		/* [n_rows * top_k] */
	uint32_t *rows;			/* [n_rows * top_k]: slots / top_k */
};

/*
 * Group ids [n_rows][top_k]. A slot whose id is negative or not below n_experts is in no group;
 * first[n_experts] is the number of the others. n_rows * top_k fits 32 bits.
 */
void mtk_experts_group(uint32_t n_experts, uint32_t n_rows, uint32_t top_k, const int32_t *ids,
		       struct mtk_expert_groups *groups);

/* In place over [gate n | up n]: the first n become silu(gate) * up. */
typedef void (*mtk_swiglu_fn)(uint32_t n, float *gate_up);

void mtk_swiglu_plain(uint32_t n, float *gate_up);

/*
 * g = min(gate, limit), u = up held in -limit .. limit: g / (1 + exp(-alpha * g)) * (u + offset).
 * {INFINITY, 1, 0} is SwiGLU itself; NaN stays NaN.
 */
struct mtk_swiglu_clamp {
	float limit;
	float alpha;
	float offset;
};

/* In place: max(0, x)^2. Every level gives the same bits. */
void mtk_squared_relu(uint32_t n, float *x);

typedef void (*mtk_swiglu_clamped_fn)(const struct mtk_swiglu_clamp *clamp, uint32_t n,
				      float *gate_up);

void mtk_swiglu_clamped_plain(const struct mtk_swiglu_clamp *clamp, uint32_t n, float *gate_up);

enum mtk_expert_weighting {
	MTK_WEIGHT_IN_COMBINE,
	MTK_WEIGHT_ON_OUTPUT,
	MTK_WEIGHT_ON_INPUT,
};

struct mtk_experts_settings {
	uint32_t n_experts;		/* held here; may be 0 */
	uint32_t top_k;
	uint32_t n_hidden;
	uint32_t n_intermediate;
	enum mtk_dtype dtype;
	enum mtk_expert_weighting weighting;
	bool clamped;
	struct mtk_swiglu_clamp clamp;	/* where clamped */
	uint32_t n_rows_max;
};

/* MOETRACE_OK, or MOETRACE_E_INVALID with the field's name in @error. */
int mtk_experts_check(const struct mtk_experts_settings *settings, struct mtk_error *error);

/* Bytes of the packed weights of all experts, without biases; the settings passed the check. */
size_t mtk_experts_weight_bytes(const struct mtk_experts_settings *settings);

struct mtk_experts {
	/* [n_experts], all of one size: [2 * n_intermediate][n_hidden], or up alone. */
	const struct mtk_matrix *gate_up;
	const struct mtk_matrix *down;		/* [n_experts]: [n_hidden][n_intermediate] */
	const float *gate_up_bias;		/* [n_experts][outputs of gate_up]; NULL: none */
	const float *down_bias;			/* [n_experts][n_hidden]; NULL: none */
	uint32_t n_intermediate;
	uint32_t n_hidden;
	mtk_gemm_fn gemm;
	mtk_swiglu_fn swiglu;
	mtk_swiglu_clamped_fn swiglu_clamped;	/* where clamp is not NULL */
	const struct mtk_swiglu_clamp *clamp;	/* NULL: SwiGLU */
	bool squared_relu;			/* up alone, without a gate */
	enum mtk_expert_weighting weighting;
	const float *weights;			/* [n_rows * top_k]; unless in the combination */
	const struct mtk_expert_groups *groups;
	const float *x;				/* [n_rows][n_hidden] */
	float *weighted_x;			/* scratch for weights on the input: as out */
	float *gate_up_out;			/* scratch, [n_rows * top_k][outputs of gate_up] */
	float *out;				/* [n_rows * top_k][n_hidden], by slot */
};

/* Run the experts [begin, end) on the caller; those without a slot cost nothing. */
void mtk_experts_run(const struct mtk_experts *experts, uint32_t begin, uint32_t end);

/*
 * Run all n_experts on all threads of the pool, to the same bits. Work is cut into groups of
 * panels, not experts, so that all threads read weights even where a single expert is active.
 * active is scratch, [n_experts].
 */
void mtk_experts_run_all(const struct mtk_experts *experts, uint32_t n_experts,
			 struct mtk_threads *threads, uint32_t *active);

#endif
