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
#include "kernels/route/route.h"

/* The largest batch of a workspace: far above any use, far below an overflow of rows x heads. */
#define MTK_MAX_ROWS (1u << 16)

/* Routing is cut into no more pieces than this: each has a scratch of its own. */
#define MTK_ROUTE_PIECES 64u

/* The sizes of the experts' part of a layer, which all layers with experts share. */
struct mtk_moe {
	uint32_t n_columns;		/* router logits a row */
	uint32_t width;			/* entries a row: top_k and shared slots */
	uint32_t n_experts;		/* with weights: routed ones and shared slots */
	uint32_t n_in;			/* input and output of the experts: n_hidden or a latent */
	uint32_t n_intermediate;
	uint32_t n_gate_up;		/* outputs of the experts' first linear operation */
	uint32_t n_shared;		/* width of the shared experts beside; 0: none */
	uint32_t n_shared_gate_up;
	enum mtk_expert_weighting weighting;
	bool squared_relu;
	bool is_clamped;
	struct mtk_swiglu_clamp clamp;	/* where clamped */
	bool is_latent;
	bool combines_pairs;		/* by mtk_combine_pairs_fn: zero experts, latents, ... */
};

struct mtk_layer {
	uint32_t number;		/* in the model, dense layers counted */
	bool is_hash;			/* experts follow from the token; route has the table */
	float *input_norm;		/* [n_hidden] */
	float *post_attention_norm;	/* [n_hidden] */
	float *query_norm;		/* [head_dim] */
	float *key_norm;		/* [head_dim] */
	struct mtk_matrix qkv;		/* outputs: query heads, key heads, value heads */
	struct mtk_matrix output;
	struct mtk_matrix router;
	float *router_bias;		/* [n_columns], in the logits; NULL: none */
	struct mtk_route_config route;	/* was checked */
	float *correction_bias;		/* [n_columns]; NULL: the setting has none */
	struct mtk_matrix *gate_up;	/* [n_experts] */
	struct mtk_matrix *down;	/* likewise */
	float *gate_up_bias;		/* [n_experts][n_gate_up]; NULL: none */
	float *down_bias;		/* [n_experts][n_in]; NULL: none */
	struct mtk_matrix latent_down;	/* n_hidden to n_in, where the experts have a latent */
	struct mtk_matrix latent_up;	/* and back */
	float *latent_norm;		/* [n_in]; NULL: none */
	struct mtk_matrix shared_gate_up;
	struct mtk_matrix shared_down;
	struct mtk_matrix shared_gate;	/* one output; no data: the shared experts have no gate */
};

struct mtk_block;

struct mtk_model {
	struct mtk_model_config config;
	const struct mtk_preset *preset; /* whose shape it has; NULL: it is of a file */
	const struct mtk_cpu_ops *ops;
	struct mtk_moe moe;
	struct mtk_layer *layers;
	struct mtk_matrix embedding;
	struct mtk_matrix head;		/* data is NULL when the embedding is the head */
	float *final_norm;
	float *cosines;			/* [n_context][head_dim / 2] */
	float *sines;
	size_t weight_bytes;
	bool is_plan;			/* it counts its memory and has none */
	size_t n_bytes;			/* of all blocks */
	struct mtk_block *blocks;
	struct mtk_expert_pool *pool;	/* what the layers' matrices alias; NULL: nothing */
	size_t pool_bytes;		/* its own, also when it is planned */
};

/* What a block of a model takes; below bytes: too large. */
static inline size_t mtk_block_bytes(size_t bytes)
{
	return bytes + 63 - (bytes + 63) % 64;
}

/*
 * Zeroed memory at a cache line, released with the model. NULL with MOETRACE_OK where the model is
 * a plan or bytes is 0. Returns MOETRACE_OK or MOETRACE_E_NOMEM.
 */
int mtk_model_take(struct mtk_model *model, size_t bytes, void **ret_memory);

void mtk_model_release_memory(struct mtk_model *model);

/* Make the table of the positions' turns, of the config's sizes. */
int mtk_model_fill_rope(struct mtk_model *model);

/* The sizes of experts that read and write the hidden state and stand alone in their layer. */
struct mtk_moe mtk_moe_make(const struct mtk_route_config *route, uint32_t n_hidden,
			    uint32_t n_intermediate);

struct mtk_workspace {
	uint32_t n_rows_max;
	size_t bytes;
	float *hidden;			/* [rows][n_hidden]: the residual stream */
	float *normed;			/* [rows][n_hidden] */
	float *qkv;			/* [rows][qkv outputs] */
	float *attention;		/* [rows][n_heads * head_dim] */
	float *router_logits;		/* [rows][n_columns] */
	float *route_scratch;		/* [pieces][mtk_route_scratch_floats()] */
	uint32_t n_width_max;		/* entries of a row: top_k, or what a rule may add up to */
	float *weights;			/* [rows][width of the layer's rows] */
	int32_t *ids;			/* likewise */
	int32_t *given_ids;		/* [rows][top_k]: a choice that is not the router's */
	float *margins;			/* [rows] */
	uint8_t *row_flags;		/* [rows] */
	int32_t *row_numbers;		/* [rows]: 0, 1, ... */
	float *latent;			/* [rows][n_in], where the experts have a latent */
	float *gate_up_out;		/* [rows * width][n_gate_up] */
	float *weighted_x;		/* [rows * width][n_in], where weights are on the input */
	float *expert_out;		/* [rows * width][n_in] */
	int64_t *pair_slots;		/* [rows][width], where pairs are combined */
	float *moe_out;			/* [rows][n_in] */
	float *shared_out;		/* [rows][n_shared_gate_up] */
	float *shared_gates;		/* [rows] */
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
