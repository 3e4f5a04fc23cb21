/* SPDX-License-Identifier: MIT */
/*
 * The weights of a shape. The one function that builds a model counts it, too: a plan goes the same
 * way without memory. Every matrix has a number of its own, from which its weights follow, so that
 * the first layers of a model are the same however many there are.
 *
 * Scale: what a linear operation reads is normed, and its weights have a root mean square near
 * 0.014, about that of a fresh model, so that values stay near 1 for inputs some thousands wide.
 * Embeddings are near 1 as well, or tokens would hardly differ after a layer. The router's logits
 * shall spread by one to two, whatever the width: its weights are scaled.
 */
#include <inttypes.h>
#include <math.h>

#include <moetrace/status.h>

#include "kernels/engine/choice.h"
#include "kernels/engine/expert_pool.h"
#include "kernels/engine/model_internal.h"
#include "kernels/engine/shape_internal.h"

#define TOP_EXPONENT	   (-6)
#define EMBEDDING_EXPONENT 0

/* Numbers of a layer's tensors; experts follow. */
enum {
	TENSOR_QKV,
	TENSOR_OUTPUT,
	TENSOR_ROUTER,
	TENSOR_ROUTER_BIAS,
	TENSOR_CORRECTION_BIAS,
	TENSOR_HASH,
	TENSOR_LATENT_DOWN,
	TENSOR_LATENT_UP,
	TENSOR_SHARED_GATE_UP,
	TENSOR_SHARED_DOWN,
	TENSOR_SHARED_GATE,
	TENSOR_GATE_UP_BIAS,
	TENSOR_DOWN_BIAS,
	TENSOR_GATE_UP,
	TENSOR_DOWN = TENSOR_GATE_UP + MTK_ROUTE_MAX_COLUMNS + MTK_ROUTE_MAX_SHARED,
	TENSORS_OF_A_LAYER = 1 << 16,
};

/* Numbers of the model's own tensors, before those of its layers. */
enum {
	TENSOR_EMBEDDING,
	TENSOR_HEAD,
};

struct builder {
	struct mtk_model *model;
	const struct mtk_shape_settings *settings;
	uint64_t seed;
	uint64_t first_tensor; /* of the layer in hand */
};

static uint64_t seed_of(const struct builder *b, uint32_t tensor)
{
	return mtk_synthetic_hash(b->seed, b->first_tensor + tensor);
}

static int take_floats(struct builder *b, size_t n, float **ret_values)
{
	b->model->weight_bytes += n * sizeof(float);
	return mtk_model_take(b->model, n * sizeof(float), (void **)ret_values);
}

/* Norms leave what they read as it is. */
static int take_ones(struct builder *b, size_t n, float **ret_values)
{
	int status = take_floats(b, n, ret_values);

	for (size_t i = 0; *ret_values && i < n; i++)
		(*ret_values)[i] = 1.0f;
	return status;
}

/* Numbers from -range to range. */
static int take_bias(struct builder *b, uint32_t tensor, size_t n, double range, float **ret_values)
{
	const uint64_t seed = seed_of(b, tensor);
	int status = take_floats(b, n, ret_values);

	for (size_t i = 0; *ret_values && i < n; i++) {
		double drawn = (double)(mtk_synthetic_hash(seed, i) >> 11) * 0x1p-52 - 1.0;

		(*ret_values)[i] = (float)(drawn * range);
	}
	return status;
}

/* A matrix with weights of its own. */
static int take_own(struct builder *b, uint32_t tensor, uint32_t n_out, uint32_t n_in,
		    int top_exponent, struct mtk_matrix *ret_matrix)
{
	const size_t bytes = mtk_matrix_bytes(MTK_DTYPE_BF16, n_out, n_in);
	void *memory;

	if (bytes == 0 || mtk_model_take(b->model, bytes, &memory))
		return MOETRACE_E_NOMEM;
	b->model->weight_bytes += bytes;
	/* A panel is 16 outputs wide, so the count is a multiple of 4. */
	if (memory)
		mtk_synthetic_fill(seed_of(b, tensor), bytes / sizeof(uint16_t), top_exponent,
				   memory);
	*ret_matrix = (struct mtk_matrix){MTK_DTYPE_BF16, n_out, n_in, memory};
	return MOETRACE_OK;
}

/* A matrix that is a window into the pool where there is one. */
static int take_matrix(struct builder *b, uint32_t tensor, uint32_t n_out, uint32_t n_in,
		       struct mtk_matrix *ret_matrix)
{
	if (b->settings->expert_pool_bytes == 0)
		return take_own(b, tensor, n_out, n_in, TOP_EXPONENT, ret_matrix);
	*ret_matrix = (struct mtk_matrix){MTK_DTYPE_BF16, n_out, n_in, NULL};
	if (b->model->pool)
		ret_matrix->data = mtk_expert_pool_window(b->model->pool, b->first_tensor + tensor);
	return MOETRACE_OK;
}

static int take_experts(struct builder *b, uint32_t tensor, uint32_t n_out, uint32_t n_in,
			struct mtk_matrix **ret_matrices)
{
	const uint32_t n = b->model->moe.n_experts;
	int status = mtk_model_take(b->model, n * sizeof(**ret_matrices), (void **)ret_matrices);

	for (uint32_t e = 0; !status && e < n; e++) {
		struct mtk_matrix matrix;

		status = take_matrix(b, tensor + e, n_out, n_in, &matrix);
		if (!status && *ret_matrices)
			(*ret_matrices)[e] = matrix;
	}
	return status;
}

/* Which experts a byte goes to, in a layer that goes by it. */
static int take_hash_table(struct builder *b, struct mtk_layer *layer)
{
	const uint32_t n_tokens = b->model->config.n_vocab, top_k = layer->route.top_k;
	const uint64_t seed = seed_of(b, TENSOR_HASH);
	int32_t *table;

	if (!layer->is_hash)
		return MOETRACE_OK;
	if (mtk_model_take(b->model, (size_t)n_tokens * top_k * sizeof(*table), (void **)&table))
		return MOETRACE_E_NOMEM;
	if (!table)
		return MOETRACE_OK;
	for (uint32_t token = 0; token < n_tokens; token++)
		mtk_choice_draw(mtk_synthetic_hash(seed, token), layer->route.n_experts, top_k,
				table + (size_t)token * top_k);
	layer->route.hash_table = table;
	layer->route.n_hash_tokens = n_tokens;
	return MOETRACE_OK;
}

/* The choice is made among scores: a bias shall sway it, not decide it. */
static double bias_range(const struct mtk_route_config *route)
{
	return route->scoring == MTK_ROUTE_SOFTMAX ? 0.5 / mtk_route_columns(route) : 0.05;
}

static int build_router(struct builder *b, struct mtk_layer *layer)
{
	const uint32_t n_columns = b->model->moe.n_columns, n_hidden = b->model->config.n_hidden;
	/* 0.88 * 2^e * sqrt(n_hidden) lies between 0.9 and 1.8. */
	const int top_exponent = -(int)floor(log2(sqrt((double)n_hidden))) + 1;
	int status = take_own(b, TENSOR_ROUTER, n_columns, n_hidden, top_exponent, &layer->router);

	if (!status && b->settings->preset->has_gate_bias)
		status = take_bias(b, TENSOR_ROUTER_BIAS, n_columns, 0.1, &layer->router_bias);
	if (!status)
		status = take_hash_table(b, layer);
	if (!status && layer->route.bias != MTK_ROUTE_BIAS_NONE)
		status = take_bias(b, TENSOR_CORRECTION_BIAS, n_columns, bias_range(&layer->route),
				   &layer->correction_bias);
	return status;
}

static int build_experts(struct builder *b, struct mtk_layer *layer)
{
	const struct mtk_moe *moe = &b->model->moe;
	const size_t n = moe->n_experts;
	int status = take_experts(b, TENSOR_GATE_UP, moe->n_gate_up, moe->n_in, &layer->gate_up);

	if (!status)
		status = take_experts(b, TENSOR_DOWN, moe->n_in, moe->n_intermediate, &layer->down);
	if (!status && b->settings->preset->has_expert_bias)
		status = take_bias(b, TENSOR_GATE_UP_BIAS, n * moe->n_gate_up, 0.02,
				   &layer->gate_up_bias);
	if (!status && b->settings->preset->has_expert_bias)
		status = take_bias(b, TENSOR_DOWN_BIAS, n * moe->n_in, 0.02, &layer->down_bias);
	return status;
}

static int build_latent(struct builder *b, struct mtk_layer *layer)
{
	const struct mtk_moe *moe = &b->model->moe;
	const uint32_t n_hidden = b->model->config.n_hidden;
	int status = MOETRACE_OK;

	if (!moe->is_latent)
		return status;
	status = take_matrix(b, TENSOR_LATENT_DOWN, moe->n_in, n_hidden, &layer->latent_down);
	if (!status)
		status = take_matrix(b, TENSOR_LATENT_UP, n_hidden, moe->n_in, &layer->latent_up);
	if (!status && b->settings->preset->is_latent_normed)
		status = take_ones(b, moe->n_in, &layer->latent_norm);
	return status;
}

static int build_shared(struct builder *b, struct mtk_layer *layer)
{
	const struct mtk_moe *moe = &b->model->moe;
	const uint32_t n_hidden = b->model->config.n_hidden;
	int status = MOETRACE_OK;

	if (moe->n_shared == 0)
		return status;
	status = take_matrix(b, TENSOR_SHARED_GATE_UP, moe->n_shared_gate_up, n_hidden,
			     &layer->shared_gate_up);
	if (!status)
		status = take_matrix(b, TENSOR_SHARED_DOWN, n_hidden, moe->n_shared,
				     &layer->shared_down);
	if (!status && b->settings->preset->is_shared_gated)
		status = take_matrix(b, TENSOR_SHARED_GATE, 1, n_hidden, &layer->shared_gate);
	return status;
}

static int build_attention(struct builder *b, struct mtk_layer *layer)
{
	const struct mtk_model_config *c = &b->model->config;
	int status = take_ones(b, c->n_hidden, &layer->input_norm);

	if (!status)
		status = take_ones(b, c->n_hidden, &layer->post_attention_norm);
	if (!status)
		status = take_ones(b, c->head_dim, &layer->query_norm);
	if (!status)
		status = take_ones(b, c->head_dim, &layer->key_norm);
	if (!status)
		status = take_matrix(b, TENSOR_QKV, mtk_model_qkv_width(c), c->n_hidden,
				     &layer->qkv);
	if (!status)
		status = take_matrix(b, TENSOR_OUTPUT, c->n_hidden, c->n_heads * c->head_dim,
				     &layer->output);
	return status;
}

/* The largest matrix of a layer that may be a window. */
static size_t max_window_bytes(const struct mtk_model *model)
{
	const struct mtk_model_config *c = &model->config;
	const struct mtk_moe *moe = &model->moe;
	const uint32_t sizes[][2] = {
		{mtk_model_qkv_width(c), c->n_hidden},
		{c->n_hidden, c->n_heads * c->head_dim},
		{moe->n_gate_up, moe->n_in},
		{moe->n_in, moe->n_intermediate},
		{moe->n_in, c->n_hidden},
		{c->n_hidden, moe->n_in},
		{moe->n_shared_gate_up, c->n_hidden},
		{c->n_hidden, moe->n_shared},
	};
	size_t max = 0;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t bytes = mtk_matrix_bytes(MTK_DTYPE_BF16, sizes[i][0], sizes[i][1]);

		max = bytes > max ? bytes : max;
	}
	return max;
}

static int build_pool(struct builder *b)
{
	const size_t wanted = (size_t)b->settings->expert_pool_bytes;
	struct mtk_model *model = b->model;
	const size_t bytes = mtk_expert_pool_size(wanted);

	model->pool_bytes = bytes;
	model->weight_bytes += bytes;
	if (bytes == 0 || model->is_plan)
		return MOETRACE_OK;
	return mtk_expert_pool_create(wanted, max_window_bytes(model), b->seed, TOP_EXPONENT,
				      &model->pool);
}

static int build_ends(struct builder *b)
{
	struct mtk_model *model = b->model;
	const struct mtk_model_config *c = &model->config;
	int status = take_own(b, TENSOR_EMBEDDING, c->n_vocab, c->n_hidden, EMBEDDING_EXPONENT,
			      &model->embedding);

	if (!status)
		status = take_own(b, TENSOR_HEAD, c->n_vocab, c->n_hidden, TOP_EXPONENT,
				  &model->head);
	if (!status)
		status = take_ones(b, c->n_hidden, &model->final_norm);
	return status ? status : mtk_model_fill_rope(model);
}

static int build_layer(struct builder *b, uint32_t index)
{
	struct mtk_layer *layer = &b->model->layers[index];
	int status;

	b->first_tensor = (uint64_t)(index + 1) * TENSORS_OF_A_LAYER;
	status = build_attention(b, layer);
	if (!status)
		status = build_router(b, layer);
	if (!status)
		status = build_experts(b, layer);
	if (!status)
		status = build_latent(b, layer);
	return status ? status : build_shared(b, layer);
}

int mtk_shape_build(struct mtk_model *model, const struct mtk_shape_settings *settings,
		    struct mtk_error *error)
{
	struct builder builder = {
		.model = model,
		.settings = settings,
		.seed = mtk_synthetic_hash(settings->seed, model->config.n_hidden),
	};
	int status = build_pool(&builder);

	if (!status)
		status = build_ends(&builder);
	for (uint32_t i = 0; !status && i < model->config.n_layers; i++)
		status = build_layer(&builder, i);
	if (status)
		return mtk_error_set(error, status, "%s: out of memory for %u layers",
				     settings->preset->name, model->config.n_layers);
	return MOETRACE_OK;
}
