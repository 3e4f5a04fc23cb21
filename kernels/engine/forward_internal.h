/* SPDX-License-Identifier: MIT */
/*
 * A forward pass on its way through the layers: what the parts of it, the attention (forward.c) and
 * the experts (moe.c), share.
 */
#ifndef MTK_ENGINE_FORWARD_INTERNAL_H
#define MTK_ENGINE_FORWARD_INTERNAL_H

#include "kernels/engine/model_internal.h"
#include "kernels/threads.h"

struct mtk_pass {
	const struct mtk_model *model;
	const struct mtk_layer *layer;
	uint32_t layer_number;		/* of the layers that the engine runs, from 0 */
	const struct mtk_oea *rule;	/* that acts in this layer and pass, or NULL */
	uint32_t width;			/* entries of a row in this layer */
	bool has_decode;		/* the batch has decode rows */
	struct mtk_workspace *workspace;
	struct mtk_kv_cache *kv;
	struct mtk_threads *threads;
	const struct mtk_batch *batch;
	const struct mtk_forward_hooks *hooks;
};

/* Tell whoever times operations that this one has just ended. */
static inline void mtk_pass_lap(const struct mtk_pass *pass, enum mtk_op op, uint32_t layer)
{
	if (pass->hooks && pass->hooks->operation)
		pass->hooks->operation(pass->hooks->ctx, op, layer);
}

/* Iterations of one piece of a loop of n whose iterations cost about item_cost multiply-adds. */
uint32_t mtk_pass_grain(const struct mtk_pass *pass, uint32_t n, uint64_t item_cost);

/* Run such a loop. */
void mtk_pass_loop(struct mtk_pass *pass, uint32_t n, uint64_t item_cost, mtk_task_fn fn,
		   void *arg);

/* y = weights * x, or y += it; rows of x are x_stride floats apart, those of y are whole. */
void mtk_pass_linear(struct mtk_pass *pass, const struct mtk_matrix *weights, uint32_t n_rows,
		     const float *x, size_t x_stride, float *y, bool accumulate);

/* Norm rows of the residual stream into workspace->normed; row r reads x_rows[r], NULL: r. */
void mtk_pass_norm(struct mtk_pass *pass, const float *weight, uint32_t n_rows,
		   const uint32_t *x_rows);

/* The layer's experts: route the rows, run what they chose, add it to the residual stream. */
void mtk_pass_moe(struct mtk_pass *pass);

#endif
