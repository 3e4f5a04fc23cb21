/* SPDX-License-Identifier: MIT */
/*
 * The inside of a model and of a workspace, for the files that build them and the forward pass.
 */
#ifndef MTK_ENGINE_MODEL_INTERNAL_H
#define MTK_ENGINE_MODEL_INTERNAL_H

#include "kernels/cpu.h"
#include "kernels/engine/model.h"
#include "kernels/experts/experts.h"
#include "kernels/matrix.h"
#include "kernels/oea/oea.h"

/* The largest batch of a workspace: far above any use, far below an overflow of rows x heads. */
#define MTK_MAX_ROWS (1u << 16)

/* Routing is cut into no more pieces than this: each has a scratch of its own. */
#define MTK_ROUTE_PIECES 64u

struct mtk_layer {
	float *input_norm;		/* [n_hidden] */
	float *post_attention_norm;	/* [n_hidden] */
	float *query_norm;		/* [head_dim] */
	float *key_norm;		/* [head_dim] */
	struct mtk_matrix qkv;		/* outputs: query heads, key heads, value heads */
	struct mtk_matrix output;
	struct mtk_matrix router;
	struct mtk_route_config route;	/* was checked */
	struct mtk_matrix *gate_up;	/* [n_experts]; data are pieces of one block */
	struct mtk_matrix *down;	/* likewise */
};

struct mtk_model {
	struct mtk_model_config config;
	const struct mtk_cpu_ops *ops;
	struct mtk_layer *layers;
	struct mtk_matrix embedding;
	struct mtk_matrix head;		/* data is NULL when the embedding is the head */
	float *final_norm;
	float *cosines;			/* [n_context][head_dim / 2] */
	float *sines;
	size_t weight_bytes;
};

struct mtk_workspace {
	uint32_t n_rows_max;
	size_t bytes;
	float *hidden;			/* [rows][n_hidden]: the residual stream */
	float *normed;			/* [rows][n_hidden] */
	float *qkv;			/* [rows][qkv outputs] */
	float *attention;		/* [rows][n_heads * head_dim] */
	float *router_logits;		/* [rows][n_experts] */
	float *route_scratch;		/* [pieces][mtk_route_scratch_floats()] */
	uint32_t n_width_max;		/* entries of a row: top_k, or what a rule may add up to */
	float *weights;			/* [rows][width of the layer's rows] */
	int32_t *ids;			/* likewise */
	float *gate_up_out;		/* [rows * width][2 * n_intermediate] */
	float *expert_out;		/* [rows * width][n_hidden] */
	float *moe_out;			/* [rows][n_hidden] */
	uint32_t *wanted_rows;		/* rows whose logits are wanted */
	struct mtk_expert_groups groups;
	uint32_t *active_experts;	/* [n_experts]: scratch of the expert MLP */
	struct mtk_oea *rules;		/* [n_layers], resolved; NULL: none; k0 is 0: none here */
	int32_t *base_ids;		/* [rows][top_k]: before the rule */
	float *base_weights;
	uint8_t *n_base;		/* [rows]: scratch of the rule, as the next */
	uint8_t *is_loaded;		/* [n_experts] */
};

/* Outputs of the query, key and value projections together. */
static inline uint32_t mtk_model_qkv_width(const struct mtk_model_config *config)
{
	return (config->n_heads + 2 * config->n_kv_heads) * config->head_dim;
}

#endif
