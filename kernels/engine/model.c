/* SPDX-License-Identifier: MIT */
/*
 * Building a model: every tensor is found by name and its shape, type and size are checked before
 * memory is taken for it; then it is copied into the packed form that the operations read. A
 * half-built model is always fit for mtk_model_destroy().
 */
#include "kernels/engine/model.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/engine/model_internal.h"
#include "kernels/rope/rope.h"

#define NAME_BYTES 96

struct loader {
	struct mtk_model *model;
	const struct mtk_tensor_source *source;
	char *message;
};

static int fail(struct loader *loader, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int fail(struct loader *loader, int status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(loader->message, MTK_MESSAGE_BYTES, format, args);
	va_end(args);
	return status;
}

static int take_memory(struct loader *loader, size_t bytes, void **ret_memory)
{
	if (mtk_model_take(loader->model, bytes, ret_memory))
		return fail(loader, MOETRACE_E_NOMEM, "out of memory: %zu bytes for weights",
			    bytes);
	loader->model->weight_bytes += bytes;
	return MOETRACE_OK;
}

/* "[64][128]", cut where it does not fit. */
static void print_shape(uint32_t n_dims, const uint64_t *dims, char *text, size_t n_bytes)
{
	size_t used = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < n_dims && used < n_bytes; i++)
		used += (size_t)snprintf(text + used, n_bytes - used, "[%" PRIu64 "]", dims[i]);
}

static int check_shape(struct loader *loader, const char *name, const struct mtk_tensor *tensor,
		       uint32_t n_dims, const uint64_t *dims)
{
	char found[64], expected[64];
	bool same = tensor->n_dims == n_dims;

	for (uint32_t i = 0; same && i < n_dims; i++)
		same = tensor->dims[i] == dims[i];
	if (same)
		return MOETRACE_OK;
	if (tensor->n_dims > MTK_TENSOR_MAX_DIMS)
		return fail(loader, MOETRACE_E_FORMAT,
			    "%s: %u dimensions, expected %u; convert the model again", name,
			    tensor->n_dims, n_dims);
	print_shape(tensor->n_dims, tensor->dims, found, sizeof(found));
	print_shape(n_dims, dims, expected, sizeof(expected));
	return fail(loader, MOETRACE_E_FORMAT,
		    "%s: shape %s, expected %s; correct the config or convert the model again",
		    name, found, expected);
}

static int check_size(struct loader *loader, const char *name, const struct mtk_tensor *tensor)
{
	uint64_t bytes;

	if (tensor->dtype != MTK_DTYPE_F32 && tensor->dtype != MTK_DTYPE_F16 &&
	    tensor->dtype != MTK_DTYPE_BF16)
		return fail(loader, MOETRACE_E_FORMAT, "%s: expected type F32, F16 or BF16; convert the model again", name);
	bytes = mtk_dtype_bytes(tensor->dtype);
	for (uint32_t i = 0; i < tensor->n_dims; i++)
		if (__builtin_mul_overflow(bytes, tensor->dims[i], &bytes))
			return fail(loader, MOETRACE_E_FORMAT, "%s: shape overflows", name);
	if (bytes != tensor->n_bytes || !tensor->data)
		return fail(loader, MOETRACE_E_FORMAT, "%s: %zu bytes, expected %" PRIu64, name,
			    tensor->n_bytes, bytes);
	return MOETRACE_OK;
}

/* The bits of an element's exponent, all of which are set in an infinity or NaN. */
static uint32_t exponent_bits(enum mtk_dtype dtype)
{
	if (dtype == MTK_DTYPE_F32)
		return 0x7f800000;
	return dtype == MTK_DTYPE_F16 ? 0x7c00 : 0x7f80;
}

/* One such weight would spoil every row that meets it, and choose experts by nothing. */
static int check_finite(struct loader *loader, const char *name, const struct mtk_tensor *tensor)
{
	const size_t element_bytes = mtk_dtype_bytes(tensor->dtype);
	const size_t n = tensor->n_bytes / element_bytes;
	const uint32_t exponent = exponent_bits(tensor->dtype);
	const uint32_t fraction = (exponent & -exponent) - 1;
	const unsigned char *at = tensor->data;

	for (size_t i = 0; i < n; i++, at += element_bytes) {
		uint32_t bits = (uint32_t)at[0] | (uint32_t)at[1] << 8;

		if (element_bytes == 4)
			bits |= (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
		if ((bits & exponent) == exponent)
			return fail(loader, MOETRACE_E_FORMAT,
				    "%s: element %zu is %s; fetch or convert the model again", name,
				    i, bits & fraction ? "NaN" : "infinite");
	}
	return MOETRACE_OK;
}

static int find_tensor(struct loader *loader, const char *name, uint32_t n_dims,
		       const uint64_t *dims, struct mtk_tensor *ret_tensor)
{
	int status = loader->source->find(loader->source->ctx, name, ret_tensor);

	if (status == MOETRACE_E_NOT_FOUND)
		return fail(loader, status, "%s: the tensor is missing; convert the model again", name);
	if (status)
		return fail(loader, status, "%s: the tensor cannot be read", name);
	status = check_shape(loader, name, ret_tensor, n_dims, dims);
	if (!status)
		status = check_size(loader, name, ret_tensor);
	return status ? status : check_finite(loader, name, ret_tensor);
}

/* Norm weights are few: they are kept as fp32. */
static int load_vector(struct loader *loader, const char *name, uint32_t n, float **ret_vector)
{
	const uint64_t dims[] = {n};
	struct mtk_tensor tensor;
	void *memory;
	int status = find_tensor(loader, name, 1, dims, &tensor);

	if (!status)
		status = take_memory(loader, n * sizeof(float), &memory);
	if (status)
		return status;
	mtk_widen(tensor.dtype, tensor.data, n, memory);
	*ret_vector = memory;
	return MOETRACE_OK;
}

static int take_matrix(struct loader *loader, enum mtk_dtype dtype, uint32_t n_out, uint32_t n_in,
		       struct mtk_matrix *ret_matrix)
{
	size_t bytes = mtk_matrix_bytes(dtype, n_out, n_in);
	void *memory;
	int status = bytes ? take_memory(loader, bytes, &memory)
			   : fail(loader, MOETRACE_E_FORMAT, "a matrix of %u x %u is too large",
				  n_out, n_in);

	if (!status)
		*ret_matrix = (struct mtk_matrix){dtype, n_out, n_in, memory};
	return status;
}

static int load_matrix(struct loader *loader, const char *name, uint32_t n_out, uint32_t n_in,
		       struct mtk_matrix *ret_matrix)
{
	const uint64_t dims[] = {n_out, n_in};
	struct mtk_tensor tensor;
	int status = find_tensor(loader, name, 2, dims, &tensor);

	if (!status)
		status = take_matrix(loader, tensor.dtype, n_out, n_in, ret_matrix);
	if (!status)
		mtk_matrix_pack(ret_matrix, 0, n_out, tensor.dtype, tensor.data);
	return status;
}

static void layer_name(char *name, uint32_t layer, const char *suffix)
{
	snprintf(name, NAME_BYTES, "model.layers.%u.%s", layer, suffix);
}

static int load_layer_vector(struct loader *loader, uint32_t layer, const char *suffix, uint32_t n,
			     float **ret_vector)
{
	char name[NAME_BYTES];

	layer_name(name, layer, suffix);
	return load_vector(loader, name, n, ret_vector);
}

static int load_layer_matrix(struct loader *loader, uint32_t layer, const char *suffix,
			     uint32_t n_out, uint32_t n_in, struct mtk_matrix *ret_matrix)
{
	char name[NAME_BYTES];

	layer_name(name, layer, suffix);
	return load_matrix(loader, name, n_out, n_in, ret_matrix);
}

/* Query, key and value projections become one matrix; fp32 if their types differ. */
static int load_qkv(struct loader *loader, uint32_t layer, struct mtk_matrix *ret_matrix)
{
	static const char *const suffixes[] = {"self_attn.q_proj.weight", "self_attn.k_proj.weight",
					       "self_attn.v_proj.weight"};
	const struct mtk_model_config *config = &loader->model->config;
	const uint32_t n_outs[] = {config->n_heads * config->head_dim,
				   config->n_kv_heads * config->head_dim,
				   config->n_kv_heads * config->head_dim};
	struct mtk_tensor tensors[3];
	enum mtk_dtype dtype;
	uint32_t first_out = 0;
	int status;

	for (int i = 0; i < 3; i++) {
		const uint64_t dims[] = {n_outs[i], config->n_hidden};
		char name[NAME_BYTES];

		layer_name(name, layer, suffixes[i]);
		status = find_tensor(loader, name, 2, dims, &tensors[i]);
		if (status)
			return status;
	}
	dtype = tensors[0].dtype == tensors[1].dtype && tensors[0].dtype == tensors[2].dtype
			? tensors[0].dtype
			: MTK_DTYPE_F32;
	status = take_matrix(loader, dtype, mtk_model_qkv_width(config), config->n_hidden,
			     ret_matrix);
	if (status)
		return status;
	for (int i = 0; i < 3; i++) {
		mtk_matrix_pack(ret_matrix, first_out, n_outs[i], tensors[i].dtype,
				tensors[i].data);
		first_out += n_outs[i];
	}
	return MOETRACE_OK;
}

/* A tensor [n_experts][n_out][n_in] becomes one matrix an expert, all in one block of memory. */
static int load_experts(struct loader *loader, uint32_t layer, const char *suffix, uint32_t n_out,
			uint32_t n_in, struct mtk_matrix **ret_matrices)
{
	const uint32_t n_experts = loader->model->config.n_experts;
	const uint64_t dims[] = {n_experts, n_out, n_in};
	struct mtk_tensor tensor;
	struct mtk_matrix *matrices;
	char name[NAME_BYTES];
	size_t bytes, all_bytes, source_bytes;
	void *memory;
	int status;

	layer_name(name, layer, suffix);
	status = find_tensor(loader, name, 3, dims, &tensor);
	if (status)
		return status;
	bytes = mtk_matrix_bytes(tensor.dtype, n_out, n_in);
	if (bytes == 0 || __builtin_mul_overflow(bytes, n_experts, &all_bytes))
		return fail(loader, MOETRACE_E_FORMAT, "%s: too large", name);
	if (mtk_model_take(loader->model, n_experts * sizeof(*matrices), (void **)&matrices))
		return fail(loader, MOETRACE_E_NOMEM, "out of memory: %u experts", n_experts);
	status = take_memory(loader, all_bytes, &memory);
	if (status)
		return status;
	source_bytes = tensor.n_bytes / n_experts;
	for (uint32_t e = 0; e < n_experts; e++) {
		matrices[e] = (struct mtk_matrix){tensor.dtype, n_out, n_in,
						  (unsigned char *)memory + e * bytes};
		mtk_matrix_pack(&matrices[e], 0, n_out, tensor.dtype,
				(const unsigned char *)tensor.data + e * source_bytes);
	}
	*ret_matrices = matrices;
	return MOETRACE_OK;
}

/* Parts that other models of the family have and this one does not compute. */
static int refuse_unknown_parts(struct loader *loader, uint32_t layer)
{
	static const char *const suffixes[] = {
		"self_attn.q_proj.bias",
		"self_attn.k_proj.bias",
		"self_attn.v_proj.bias",
		"self_attn.o_proj.bias",
		"mlp.gate.bias",
		"mlp.gate.e_score_correction_bias",
		"mlp.shared_expert.gate_proj.weight",
		"mlp.gate_proj.weight",
	};

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		char name[NAME_BYTES];
		struct mtk_tensor tensor;

		layer_name(name, layer, suffixes[i]);
		if (loader->source->find(loader->source->ctx, name, &tensor) == MOETRACE_OK)
			return fail(loader, MOETRACE_E_UNSUPPORTED,
				    "%s: a Qwen3-MoE layer has no such tensor; give another model",
				    name);
	}
	return MOETRACE_OK;
}

/* A layer that the config does not count would be left out without a word. */
static int refuse_unused_layer(struct loader *loader)
{
	static const char *const suffixes[] = {
		"input_layernorm.weight",   "mlp.experts.down_proj",
		"mlp.experts.gate_up_proj", "mlp.gate.weight",
		"post_attention_layernorm.weight", "self_attn.k_norm.weight",
		"self_attn.k_proj.weight",  "self_attn.o_proj.weight",
		"self_attn.q_norm.weight",  "self_attn.q_proj.weight",
		"self_attn.v_proj.weight",
	};
	const uint32_t n_layers = loader->model->config.n_layers;

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		char name[NAME_BYTES];
		struct mtk_tensor tensor;

		layer_name(name, n_layers, suffixes[i]);
		if (loader->source->find(loader->source->ctx, name, &tensor) == MOETRACE_OK)
			return fail(loader, MOETRACE_E_FORMAT,
				    "%s: not used, num_hidden_layers is %u; correct the config",
				    name, n_layers);
	}
	return MOETRACE_OK;
}

/* Softmax over all experts; the check of the config has seen to its sizes. */
static struct mtk_route_config route_config(const struct mtk_model_config *config)
{
	struct mtk_route_config route = mtk_route_config_make(config->n_experts, config->top_k);

	if (config->norm_topk_prob)
		route.renormalise = MTK_ROUTE_RENORMALISE_IF_POSITIVE;
	return route;
}

static struct mtk_moe moe_sizes(const struct mtk_model_config *config)
{
	const struct mtk_route_config route = route_config(config);

	return mtk_moe_make(&route, config->n_hidden, config->n_intermediate);
}

static int load_layer(struct loader *loader, uint32_t i)
{
	const struct mtk_model_config *c = &loader->model->config;
	struct mtk_layer *layer = &loader->model->layers[i];
	int status = refuse_unknown_parts(loader, i);

	layer->number = i;
	layer->route = route_config(c);
	if (!status)
		status = load_layer_vector(loader, i, "input_layernorm.weight", c->n_hidden,
					   &layer->input_norm);
	if (!status)
		status = load_layer_vector(loader, i, "post_attention_layernorm.weight",
					   c->n_hidden, &layer->post_attention_norm);
	if (!status)
		status = load_layer_vector(loader, i, "self_attn.q_norm.weight", c->head_dim,
					   &layer->query_norm);
	if (!status)
		status = load_layer_vector(loader, i, "self_attn.k_norm.weight", c->head_dim,
					   &layer->key_norm);
	if (!status)
		status = load_qkv(loader, i, &layer->qkv);
	if (!status)
		status = load_layer_matrix(loader, i, "self_attn.o_proj.weight", c->n_hidden,
					   c->n_heads * c->head_dim, &layer->output);
	if (!status)
		status = load_layer_matrix(loader, i, "mlp.gate.weight", c->n_experts, c->n_hidden,
					   &layer->router);
	if (!status)
		status = load_experts(loader, i, "mlp.experts.gate_up_proj", 2 * c->n_intermediate,
				      c->n_hidden, &layer->gate_up);
	if (!status)
		status = load_experts(loader, i, "mlp.experts.down_proj", c->n_hidden,
				      c->n_intermediate, &layer->down);
	return status;
}

int mtk_model_fill_rope(struct mtk_model *model)
{
	const struct mtk_model_config *config = &model->config;
	const size_t bytes = (size_t)config->n_context * (config->head_dim / 2) * sizeof(float);

	if (mtk_model_take(model, bytes, (void **)&model->cosines) ||
	    mtk_model_take(model, bytes, (void **)&model->sines))
		return MOETRACE_E_NOMEM;
	if (!model->is_plan)
		mtk_rope_table_fill(config->rope_theta, config->head_dim, config->n_context,
				    model->cosines, model->sines);
	return MOETRACE_OK;
}

static int load_model(struct loader *loader)
{
	struct mtk_model *model = loader->model;
	const struct mtk_model_config *config = &model->config;
	int status = load_matrix(loader, "model.embed_tokens.weight", config->n_vocab,
				 config->n_hidden, &model->embedding);

	if (!status)
		status = load_vector(loader, "model.norm.weight", config->n_hidden,
				     &model->final_norm);
	if (!status && !config->tie_word_embeddings)
		status = load_matrix(loader, "lm_head.weight", config->n_vocab, config->n_hidden,
				     &model->head);
	for (uint32_t i = 0; !status && i < config->n_layers; i++)
		status = load_layer(loader, i);
	if (!status)
		status = refuse_unused_layer(loader);
	if (!status && mtk_model_fill_rope(model))
		status = fail(loader, MOETRACE_E_NOMEM, "out of memory: a context of %u positions",
			      config->n_context);
	return status;
}

int mtk_model_create(const struct mtk_model_config *config, const struct mtk_tensor_source *source,
		     char *message, struct mtk_model **ret_model)
{
	struct mtk_model *model;
	struct loader loader = {.source = source, .message = message};
	int status = mtk_model_config_check(config, message);

	if (status)
		return status;
	model = calloc(1, sizeof(*model));
	if (!model)
		return fail(&loader, MOETRACE_E_NOMEM, "out of memory: a model");
	loader.model = model;
	model->config = *config;
	model->moe = moe_sizes(config);
	model->ops = mtk_cpu_ops_choose();
	if (!model->ops) {
		status = fail(&loader, MOETRACE_E_UNSUPPORTED,
			      "MOETRACE_CPU names an instruction set that this processor or build "
			      "lacks; use plain, avx2 or avx512, or unset it");
		goto err_model;
	}
	if (mtk_model_take(model, config->n_layers * sizeof(*model->layers),
			   (void **)&model->layers)) {
		status = fail(&loader, MOETRACE_E_NOMEM, "out of memory: %u layers",
			      config->n_layers);
		goto err_model;
	}
	status = load_model(&loader);
	if (status)
		goto err_model;
	*ret_model = model;
	return MOETRACE_OK;

err_model:
	mtk_model_destroy(model);
	return status;
}
