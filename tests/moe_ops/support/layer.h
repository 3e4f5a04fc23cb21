/* SPDX-License-Identifier: MIT */
/*
 * A layer of experts with its rows, run by the operation under test, and its definition in double,
 * which goes pair by pair.
 */
#ifndef MTK_TESTS_MOE_OPS_LAYER_H
#define MTK_TESTS_MOE_OPS_LAYER_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu.h"
#include "kernels/experts/experts.h"
#include "kernels/sample/sample.h"

struct shape {
	uint32_t n_experts, n_hidden, n_intermediate, n_rows, top_k;
};

/* One layer: weights row by row for the definition, and packed for the operation. */
struct layer {
	struct shape shape;
	enum mtk_dtype dtype;
	float *gate_up, *down; /* [n_experts][n_out][n_in] */
	float *gate_up_bias, *down_bias;
	struct mtk_matrix *packed_gate_up, *packed_down;
	struct mtk_swiglu_clamp clamp;
	bool clamped;
	enum mtk_expert_weighting weighting;
};

struct batch {
	float *x, *weights;
	int32_t *ids;
};

struct layer layer_make(struct mtk_rng *rng, struct shape s, enum mtk_dtype dtype);
void layer_add_biases(struct mtk_rng *rng, struct layer *layer);
void layer_release(struct layer *layer);

/* A matrix as the operations want it, of values row by row; its data is to be freed. */
struct mtk_matrix layer_pack(enum mtk_dtype dtype, uint32_t n_out, uint32_t n_in,
			     const float *values);

struct batch batch_make(struct mtk_rng *rng, const struct shape *s);
void batch_release(struct batch *batch);

/* Outputs by slot, to be freed; a slot that no expert wrote keeps its poison. n_threads 0: alone.
 */
float *layer_run(const struct mtk_cpu_ops *ops, const struct layer *layer,
		 const struct batch *batch, uint32_t n_rows, uint32_t n_threads);

/* Ends the test case where an output is not the definition's, or an unused slot was written. */
void layer_assert_double(const struct layer *layer, const struct batch *batch, const float *out);

#endif
