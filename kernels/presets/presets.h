/* SPDX-License-Identifier: MIT */
/*
 * Known models: the routing setting and the dimensions of each, in one table. A number that is
 * not known is 0; a part of the routing that the model's published configuration does not state
 * is named in the note. Biases and hash tables are data of a checkpoint and not here: a setting
 * says where a bias acts, and its hash_table is NULL.
 */
#ifndef MTK_PRESETS_PRESETS_H
#define MTK_PRESETS_PRESETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/route/route.h"

struct mtk_preset {
	const char *name;
	bool has_routing; /* the scoring is known; otherwise route holds sizes alone */
	struct mtk_route_config route;
	bool has_gate_bias;	   /* the router's linear layer has a bias: logits include it */
	bool weight_on_input;	   /* weights multiply the experts' input, not their output */
	bool is_shared_gated;	   /* the shared expert is multiplied by a sigmoid of its own */
	uint32_t n_shared_experts; /* beside the routed ones */
	uint32_t n_layers;
	uint32_t n_moe_layers;
	uint32_t n_dense_layers; /* dense layers before the first layer with experts */
	uint32_t n_hash_layers;	 /* the first of the layers with experts choose by token id */
	uint32_t n_hidden;
	uint32_t n_latent;	 /* input and output of the routed experts; 0: n_hidden */
	uint32_t n_intermediate; /* of one expert */
	uint32_t n_shared_intermediate;
	uint32_t n_dense_intermediate;
	uint32_t n_vocab;
	/* Which layers have experts, where it is neither all of them nor all after the dense ones. */
	uint32_t moe_layer_step; /* every so many layers, the last of them; 0: 1 */
	const char *layer_kinds; /* a character a layer, E: experts; NULL: by the counts above */
	bool is_latent_normed;	 /* the experts' input is normed in its own width */
	bool squared_relu;	 /* experts are up, max(0, x)^2 and down; without: SwiGLU */
	bool has_expert_bias;	 /* the experts' linear layers have biases */
	double swiglu_limit;	 /* 0: none or unknown */
	double swiglu_alpha;	 /* of the clamped SwiGLU; 0: 1 */
	double swiglu_offset;	 /* likewise */
	/*
	 * A plain grouped-query attention of the model's sizes; 0: not known. Where the model has
	 * latent keys and values (MLA), the key/value heads are those whose cache comes nearest.
	 */
	uint32_t n_heads;
	uint32_t n_kv_heads;
	uint32_t head_dim;
	const char *real_attention; /* what the model has instead; NULL: just that */
	const char *note;    /* NULL: none */
};

/* All presets, by name ascending. */
const struct mtk_preset *mtk_presets(size_t *ret_n_presets);

/* NULL: there is none of that name. */
const struct mtk_preset *mtk_preset_find(const char *name);

/* The number, dense layers counted, of a layer with experts; moe_ordinal is below their number. */
uint32_t mtk_preset_layer_number(const struct mtk_preset *preset, uint32_t moe_ordinal);

/* What the weights of a setting include: enum moetrace_weight_kind, flags or-ed. */
uint32_t mtk_route_weight_kind(const struct mtk_route_config *config);

#endif
