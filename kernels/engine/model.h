/* SPDX-License-Identifier: MIT */
/*
 * The transformer of the routing engine: a decoder with the attention of Qwen3-MoE and the experts
 * of any known family, whose forward pass takes a batch of rows in any mix of requests, positions
 * and phases. It is made of a file (mtk_model_create(), Qwen3-MoE) or of a shape (shape.h). A model is immutable once created and
 * may be shared by threads; a workspace and a KV cache belong to one forward call at a time.
 * Each output element is one reduction in a fixed order, so logits, selected experts and
 * weights are bit-identical for any chunking, batch composition, batch order and thread count
 * on one instruction-set level. All arithmetic is fp32; weights keep the type of the file
 * (fp32, fp16 or bf16) in memory and are widened, exactly, as they are read.
 */
#ifndef MTK_ENGINE_MODEL_H
#define MTK_ENGINE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/matrix.h"
#include "kernels/route/route.h"

struct mtk_choice;
struct mtk_error;
struct mtk_kv_cache;
struct mtk_model;
struct mtk_oea;
struct mtk_preset;
struct mtk_threads;
struct mtk_workspace;

/* Enough for every message of this header; a longer one is cut. */
#define MTK_MESSAGE_BYTES 256

/* The hyper-parameters, under the names of a Hugging Face config in the comments. */
struct mtk_model_config {
	uint32_t n_vocab;		/* vocab_size */
	uint32_t n_hidden;		/* hidden_size */
	uint32_t n_layers;		/* num_hidden_layers */
	uint32_t n_heads;		/* num_attention_heads; a multiple of n_kv_heads */
	uint32_t n_kv_heads;		/* num_key_value_heads */
	uint32_t head_dim;		/* head_dim; even */
	uint32_t n_intermediate;	/* moe_intermediate_size: the width of one expert */
	uint32_t n_experts;		/* num_experts */
	uint32_t top_k;			/* num_experts_per_tok; at most n_experts */
	uint32_t n_context;		/* positions a sequence may have; not read from the file */
	bool norm_topk_prob;		/* weights of the chosen experts are renormalised to 1 */
	bool tie_word_embeddings;	/* the head is the embedding; there is no lm_head.weight */
	float rms_norm_eps;
	float rope_theta;
};

#define MTK_TENSOR_MAX_DIMS 8

/*
 * A tensor as a file holds it: row-major, slowest dimension first, little-endian. The data need
 * not be aligned and must hold n_bytes bytes until mtk_model_create returns; the model copies.
 */
struct mtk_tensor {
	enum mtk_dtype dtype;
	uint32_t n_dims;
	uint64_t dims[MTK_TENSOR_MAX_DIMS];
	const void *data;
	size_t n_bytes;
};

/* Where a model finds its tensors: any reader fills this in. */
struct mtk_tensor_source {
	void *ctx;
	/* Returns MOETRACE_OK and fills *ret_tensor, or MOETRACE_E_NOT_FOUND. */
	int (*find)(void *ctx, const char *name, struct mtk_tensor *ret_tensor);
};

/**
 * Check the hyper-parameters alone: nothing zero or absurdly large, top_k <= n_experts, head_dim
 * even, n_heads a multiple of n_kv_heads, finite positive rms_norm_eps and rope_theta.
 *
 * @message  At least MTK_MESSAGE_BYTES; one line without a newline, written on failure only.
 *
 * Returns  MOETRACE_OK or MOETRACE_E_INVALID.
 */
int mtk_model_config_check(const struct mtk_model_config *config, char *message);

/**
 * Build a model from the tensors of a source, named as Hugging Face names them.
 *
 * @message    At least MTK_MESSAGE_BYTES; one line that names the tensor or the field, what was
 *             found and what was expected, written on failure only.
 * @ret_model  Set on success only.
 *
 * Returns  MOETRACE_OK
 *          MOETRACE_E_INVALID    impossible hyper-parameters
 *          MOETRACE_E_NOT_FOUND  a tensor is missing
 *          MOETRACE_E_FORMAT     a tensor has another shape, type or size than the config implies,
 *                                holds an infinity or NaN, or is one of a layer beyond n_layers
 *          MOETRACE_E_UNSUPPORTED  a tensor that this front end does not compute (a bias), or
 *                                MOETRACE_CPU names a level that is not available
 *          MOETRACE_E_NOMEM
 * Owner    caller; release with mtk_model_destroy().
 */
int mtk_model_create(const struct mtk_model_config *config, const struct mtk_tensor_source *source,
		     char *message, struct mtk_model **ret_model);

/* NULL is allowed. */
void mtk_model_destroy(struct mtk_model *model);

const struct mtk_model_config *mtk_model_borrow_config(const struct mtk_model *model);

/* The instruction-set level that the model runs on: plain, avx2 or avx512. */
const char *mtk_model_cpu_name(const struct mtk_model *model);

/* The shape that the model was made of; NULL: it was made of a file. */
const struct mtk_preset *mtk_model_preset(const struct mtk_model *model);

/* Bytes of weights the model holds in memory, and those of one expert of one layer. */
size_t mtk_model_weight_bytes(const struct mtk_model *model);
size_t mtk_model_expert_weight_bytes(const struct mtk_model *model);

/* All memory of the model, or what it will take when it is a plan. */
size_t mtk_model_bytes(const struct mtk_model *model);

/* The pool that the layers' weights alias; 0: each has weights of its own. */
size_t mtk_model_expert_pool_bytes(const struct mtk_model *model);

/* How a layer routes. */
struct mtk_layer_info {
	uint32_t number;		/* in the model, dense layers counted */
	bool is_hash;			/* experts follow from the token */
	const struct mtk_route_config *route;
	bool has_vectors;		/* what mtk_route_variant_explain() asks for */
	const float *correction_bias;	/* [mtk_route_columns(route)]; NULL: none */
};

/* The layer that the engine runs as number index, from 0. */
void mtk_model_layer(const struct mtk_model *model, uint32_t index,
		     struct mtk_layer_info *ret_info);

/**
 * Allocate the scratch memory of forward passes of up to n_rows_max rows.
 *
 * Returns  MOETRACE_OK, MOETRACE_E_INVALID (n_rows_max is 0 or too large) or MOETRACE_E_NOMEM.
 * Owner    caller; release with mtk_workspace_destroy().
 */
int mtk_workspace_create(const struct mtk_model *model, uint32_t n_rows_max,
			 struct mtk_workspace **ret_workspace);

/**
 * Whether a routing rule fits each router of the model. Layers that take their ids from a table have
 * no preferences: the rule leaves them alone.
 *
 * Returns  what mtk_oea_resolve() returns, with the field's name in @error.
 */
int mtk_model_oea_check(const struct mtk_model *model, const struct mtk_oea *oea,
			struct mtk_error *error);

/**
 * The same as mtk_workspace_create() for passes under a routing rule: it acts on the rows that
 * struct mtk_batch marks as decode rows.
 *
 * @oea  Copied; NULL: no rule.
 *
 * Returns  what mtk_workspace_create() or mtk_model_oea_check() return.
 */
int mtk_workspace_create_oea(const struct mtk_model *model, uint32_t n_rows_max,
			     const struct mtk_oea *oea, struct mtk_workspace **ret_workspace);

/*
 * The bytes that such a workspace takes; 0 where it cannot be made. The model may be a plan.
 */
size_t mtk_workspace_size(const struct mtk_model *model, uint32_t n_rows_max,
			  const struct mtk_oea *oea);

/* NULL is allowed. */
void mtk_workspace_destroy(struct mtk_workspace *workspace);

size_t mtk_workspace_bytes(const struct mtk_workspace *workspace);

/*
 * The rows of one pass. Rows of different sequences may stand in any order; the rows of one
 * sequence stand in the order of their positions, without a gap, and the first of them has the
 * position mtk_kv_cache_slot_length() of its slot.
 */
struct mtk_batch {
	uint32_t n_rows;
	const int32_t *token_ids;	/* [n_rows], 0 .. n_vocab - 1 */
	const int32_t *positions;	/* [n_rows], 0 .. the cache's n_context - 1 */
	const uint32_t *slots;		/* [n_rows], slots acquired from the KV cache */
	const uint8_t *want_logits;	/* [n_rows], non-zero: wanted; NULL: none is */
	const uint8_t *is_decode;	/* [n_rows], non-zero: a rule acts on it; NULL: none is */
	const struct mtk_choice *choice; /* who chooses the experts; NULL: the router */
	const uint32_t *requests;	/* [n_rows], as the choice counts them; NULL: all are 0 */
};

/* Is there a row that a rule acts on? */
static inline bool mtk_batch_has_decode(const struct mtk_batch *batch)
{
	for (uint32_t row = 0; batch->is_decode && row < batch->n_rows; row++)
		if (batch->is_decode[row])
			return true;
	return false;
}

/* The operations that a pass is made of, as they are timed. */
enum mtk_op {
	MTK_OP_EMBED,
	MTK_OP_INPUT_NORM,
	MTK_OP_QKV,		/* the product for queries, keys and values */
	MTK_OP_ATTENTION,	/* their norms and turns, the cache, the attention itself */
	MTK_OP_OUTPUT,		/* the product behind it */
	MTK_OP_EXPERT_NORM,
	MTK_OP_ROUTER,		/* logits */
	MTK_OP_ROUTE,		/* the choice, with what a rule makes of it */
	MTK_OP_LATENT,		/* what the experts read, where that is not the layer's input */
	MTK_OP_GROUP,		/* rows by expert */
	MTK_OP_EXPERTS,
	MTK_OP_COMBINE,
	MTK_OP_SHARED,
	MTK_OP_HEAD,		/* norm and product of the wanted rows */
	MTK_N_OPS,
	MTK_OP_NONE = MTK_N_OPS,
};

/* No layer: of an operation before or behind them. */
#define MTK_NO_LAYER UINT32_MAX

/*
 * Called on the thread of mtk_model_forward(), layers in order. Any member may be NULL. The
 * arrays are the engine's own, valid during the call; rows are those of the batch, in order.
 */
struct mtk_forward_hooks {
	void *ctx;
	/*
	 * Where a rule acts in a layer, before select_experts: what the router had chosen,
	 * [n_rows][the router's width], and as such.
	 */
	void (*base_experts)(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t width,
			     const int32_t *ids);
	/*
	 * Where a router chose by its scores, before select_experts: the rows' margins, and of
	 * their flags those of a NaN and of a tie; [n_rows] each. They are computed for this hook
	 * alone. Neither where a rule or a given choice acts is it called, nor of a layer with a
	 * hash table.
	 */
	void (*row_facts)(void *ctx, uint32_t layer, uint32_t n_rows, const float *margins,
			  const uint8_t *flags);
	/*
	 * The choice of a layer: ids and weights are [n_rows][width], in the order of the choice,
	 * shared slots last. Under a rule width may be more than the router's, and what a row
	 * lacks is -1, at its end.
	 */
	void (*select_experts)(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t width,
			       const int32_t *ids, const float *weights);
	/*
	 * For whoever times operations: what ran since the last call was @op; MTK_OP_NONE: it was
	 * none, the first one begins now.
	 */
	void (*operation)(void *ctx, enum mtk_op op, uint32_t layer);
	/* On a GPU: all of the pass is launched, and its results are waited for next. */
	void (*launched)(void *ctx);
	/* Taps of the tests: [n_rows][columns of the router], and [n_rows][n_hidden] twice (the block's input
	 * is the normalised hidden state, its output is taken before the residual is added). */
	void (*router_logits)(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t n_columns,
			      const float *logits);
	void (*moe_input)(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t n_hidden,
			  const float *hidden);
	void (*moe_output)(void *ctx, uint32_t layer, uint32_t n_rows, uint32_t n_hidden,
			   const float *hidden);
};

/**
 * Run one forward pass and append the rows' keys and values to the cache.
 *
 * @workspace   Created for this model; not in use by another call.
 * @hooks       NULL: none.
 * @ret_logits  [number of rows whose logits are wanted][n_vocab], in row order; may be NULL when
 *              none is wanted.
 *
 * Returns  MOETRACE_OK, or MOETRACE_E_INVALID when the batch breaks a rule of struct mtk_batch, has
 *          more rows than the workspace or does not fit the cache; the cache is then unchanged.
 * Threads  one call at a time for a workspace, a cache and a thread pool. Allocates nothing.
 */
int mtk_model_forward(const struct mtk_model *model, struct mtk_workspace *workspace,
		      struct mtk_kv_cache *kv, struct mtk_threads *threads,
		      const struct mtk_batch *batch, const struct mtk_forward_hooks *hooks,
		      float *ret_logits);

#endif
