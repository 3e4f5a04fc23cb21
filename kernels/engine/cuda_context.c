/* SPDX-License-Identifier: MIT */
/*
 * The memory of a context: the KV cache and every buffer of the largest pass, taken at creation, so
 * that a pass allocates nothing.
 */
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/attention/attention_cuda.h"
#include "kernels/engine/cuda_internal.h"
#include "kernels/experts/experts_f32_cuda.h"
#include "kernels/oea/oea.h"

/* Behind the count and before the rows, so that each array begins at 16 bytes. */
#define HEAD_WORDS 4

static size_t padded_words(uint32_t n_rows)
{
	return ((size_t)n_rows + 3) / 4 * 4;
}

size_t mtk_cuda_inputs_bytes(uint32_t n_rows)
{
	return (HEAD_WORDS + 4 * padded_words(n_rows)) * sizeof(uint32_t) + padded_words(n_rows);
}

struct mtk_cuda_inputs mtk_cuda_inputs_of(void *block, uint32_t n_rows)
{
	uint32_t *words = block;
	const size_t n = padded_words(n_rows);

	return (struct mtk_cuda_inputs){
		.n_valid_rows = words,
		.token_ids = (int32_t *)words + HEAD_WORDS,
		.positions = (int32_t *)words + HEAD_WORDS + n,
		.slots = words + HEAD_WORDS + 2 * n,
		.wanted_rows = words + HEAD_WORDS + 3 * n,
		.is_decode = (uint8_t *)(words + HEAD_WORDS + 4 * n),
	};
}

struct mtk_align_settings mtk_cuda_align_settings(const struct mtk_cuda_context *context,
						  uint32_t n_rows, uint32_t width)
{
	const struct mtk_cuda_weights *weights = &context->state->weights;
	const uint64_t mean = (uint64_t)n_rows * width / weights->n_experts;
	struct mtk_align_settings settings = {
		.n_experts = weights->n_experts,
		.top_k = width,
		.block_rows = MTK_EXPERTS_F32_BLOCK,
	};

	/* Many rows take tiles; few rows blocks that an expert's rows fill. */
	if (context->state->settings.precision == MTK_CUDA_16BIT) {
		if (mean > 32)
			settings.block_rows = 128;
		else if (mean > 8)
			settings.block_rows = 32;
	}
	if (weights->expert_map) {
		settings.n_ids = context->model->moe.n_experts;
		settings.expert_map = weights->expert_map;
	}
	return settings;
}

/* The largest sizes: those of the largest blocks hold for all. */
static int largest_align(const struct mtk_cuda_context *c, struct mtk_align_sizes *ret_sizes,
			 size_t *ret_scratch, struct mtk_error *error)
{
	struct mtk_align_settings settings =
		mtk_cuda_align_settings(c, c->n_rows_max, c->n_width_max);
	int status;

	settings.block_rows = c->state->settings.precision == MTK_CUDA_16BIT
				      ? 128
				      : MTK_EXPERTS_F32_BLOCK;
	status = mtk_align_sizes(&settings, c->n_rows_max, error, ret_sizes);
	*ret_scratch = status ? 0 : mtk_align_cuda_scratch_elements(&settings, ret_sizes);
	ret_sizes->n_blocks = ret_sizes->capacity / MTK_EXPERTS_F32_BLOCK;
	return status;
}

struct buffer {
	void *place; /* of a pointer */
	size_t n;
	size_t element_bytes;
};

/* Zeroed, so that what padding holds is finite from the start. */
static int take_buffer(struct mtk_cuda_context *c, const struct buffer *buffer,
		       struct mtk_error *error)
{
	size_t n_bytes;
	void *memory;
	int status;

	if (buffer->n == 0)
		return MOETRACE_OK;
	if (__builtin_mul_overflow(buffer->n, buffer->element_bytes, &n_bytes))
		return mtk_error_set(error, MOETRACE_E_INVALID, "a pass of %u rows is too large",
				     c->n_rows_max);
	status = mtk_cuda_alloc(n_bytes, error, &memory);
	if (status == MOETRACE_E_NOMEM)
		return mtk_error_set(error, status,
				     "the GPU has no memory for %u sequences of %u positions and "
				     "passes of %u rows: %zu bytes more are needed; lower --batch, "
				     "--chunk or --context",
				     c->kv->n_slots, c->kv->n_context, c->n_rows_max, n_bytes);
	if (status)
		return status;
	c->blocks[c->n_blocks++] = memory;
	memcpy(buffer->place, &memory, sizeof(memory));
	return mtk_cuda_zero(memory, n_bytes, c->state->stream, error);
}

static int take_list(struct mtk_cuda_context *c, const struct buffer *buffers, size_t n,
		     struct mtk_error *error)
{
	int status = MOETRACE_OK;

	for (size_t i = 0; !status && i < n; i++)
		status = take_buffer(c, &buffers[i], error);
	return status;
}

#define TAKE(context, buffers, error) \
	take_list(context, buffers, sizeof(buffers) / sizeof((buffers)[0]), error)

static int take_cache(struct mtk_cuda_context *c, struct mtk_error *error)
{
	const struct mtk_kv_cache *kv = c->kv;
	const size_t n_layer = (size_t)kv->n_slots * kv->n_kv_heads * kv->n_context * kv->head_dim;
	const size_t element = mtk_dtype_bytes(c->state->activations);
	const struct buffer buffers[] = {
		{&c->keys, n_layer * kv->n_layers, element},
		{&c->values, n_layer * kv->n_layers, element},
	};

	c->kv_layer_bytes = n_layer * element;
	return TAKE(c, buffers, error);
}

static int take_dense(struct mtk_cuda_context *c, struct mtk_error *error)
{
	const struct mtk_model_config *config = &c->model->config;
	const struct mtk_moe *moe = &c->model->moe;
	const size_t n = c->n_rows_max;
	const size_t n_hidden = n * config->n_hidden;
	const size_t element = mtk_dtype_bytes(c->state->activations);
	const struct buffer buffers[] = {
		{&c->inputs, 1, mtk_cuda_inputs_bytes(c->n_rows_max)},
		{&c->hidden, n_hidden, sizeof(float)},
		{&c->normed, n_hidden, element},
		{&c->qkv, n * mtk_model_qkv_width(config), sizeof(float)},
		{&c->attention, n * config->n_heads * config->head_dim, element},
		{&c->attention_scratch, c->state->settings.precision == MTK_CUDA_16BIT ? 1 : 0,
		 mtk_attention_cuda_scratch_bytes()},
		{&c->attention_out, n_hidden, sizeof(float)},
		{&c->moe_out, n * moe->n_in, sizeof(float)},
		{&c->shared_gate_up, n * moe->n_shared_gate_up, sizeof(float)},
		{&c->shared_middle, n * moe->n_shared, element},
		{&c->shared_gates, moe->n_shared > 0 ? n : 0, sizeof(float)},
		{&c->shared_out, moe->n_shared > 0 ? n_hidden : 0, sizeof(float)},
		{&c->logits, n * config->n_vocab, sizeof(float)},
		{&c->greedy_ids, n, sizeof(int32_t)},
	};

	return TAKE(c, buffers, error);
}

static int take_moe(struct mtk_cuda_context *c, struct mtk_error *error)
{
	const struct mtk_moe *moe = &c->model->moe;
	const size_t n = c->n_rows_max;
	const size_t n_all = n * c->model->config.n_layers;
	const size_t n_base = c->rules ? n_all * moe->width : 0;
	const size_t element = mtk_dtype_bytes(c->state->activations);
	struct mtk_align_sizes sizes;
	size_t n_scratch;
	int status = largest_align(c, &sizes, &n_scratch, error);

	if (status)
		return status;
	{
		const size_t n_slots = (size_t)sizes.capacity;
		/* What the library may compute is in passes that are never captured. */
		const bool is_large = n * c->n_width_max / c->state->weights.n_experts >=
				      c->state->cublas_expert_rows;
		const size_t n_library =
			c->state->cublas && n > MTK_CUDA_GRAPH_ROWS && is_large ? n_slots : 0;
		const struct buffer buffers[] = {
			{&c->router_logits, n * moe->n_columns, sizeof(float)},
			{&c->ids, n_all * c->n_width_max, sizeof(int32_t)},
			{&c->weights, n_all * c->n_width_max, sizeof(float)},
			{&c->base_ids, n_base, sizeof(int32_t)},
			{&c->base_weights, n_base, sizeof(float)},
			{&c->n_base, c->rules ? n : 0, sizeof(uint32_t)},
			{&c->margins, n_all, sizeof(float)},
			{&c->row_flags, n_all, sizeof(uint8_t)},
			{&c->is_loaded, c->rules ? moe->n_columns / 32 + 1 : 0, sizeof(uint32_t)},
			{&c->given_ids, c->choice ? n_all * moe->width : 0, sizeof(int32_t)},
			{&c->row_numbers, c->choice ? n : 0, sizeof(int32_t)},
			{&c->align.sorted_pairs, n_slots, sizeof(int64_t)},
			{&c->align.expert_ids, (size_t)sizes.n_blocks, sizeof(int32_t)},
			{&c->align.first_slots, c->state->weights.n_experts + (size_t)1,
			 sizeof(int64_t)},
			{&c->align.pair_slots, (size_t)sizes.n_pairs, sizeof(int64_t)},
			{&c->align.n_padded, 1, sizeof(int64_t)},
			{&c->align.n_dropped, 1, sizeof(int64_t)},
			{&c->align_scratch, n_scratch, sizeof(uint32_t)},
			{&c->gathered, n_library * moe->n_in, element},
			{&c->gate_up_out, n_library * moe->n_gate_up, sizeof(float)},
			{&c->middle, n_slots * moe->n_intermediate, element},
			{&c->expert_out, n_slots * moe->n_in, sizeof(float)},
		};

		return TAKE(c, buffers, error);
	}
}

static int take_host(struct mtk_cuda_context *c, struct mtk_error *error)
{
	const struct mtk_moe *moe = &c->model->moe;
	const size_t n_given = (size_t)c->n_rows_max * c->model->config.n_layers * moe->width;
	int status = mtk_cuda_host_alloc(mtk_cuda_inputs_bytes(c->n_rows_max), error,
					 &c->host_inputs);

	if (!status)
		status = mtk_cuda_host_alloc(
			(c->state->weights.n_experts + (size_t)1) * sizeof(int64_t), error,
			(void **)&c->host_first_slots);
	if (status || !c->choice)
		return status;
	status = mtk_cuda_host_alloc(n_given * sizeof(int32_t), error,
				     (void **)&c->host_given_ids);
	c->choice_scratch = malloc(moe->n_columns * sizeof(double));
	if (!status && !c->choice_scratch)
		status = mtk_error_set(error, MOETRACE_E_NOMEM, "out of memory");
	for (uint32_t row = 0; !status && row < c->n_rows_max; row++)
		c->host_given_ids[row] = (int32_t)row;
	if (!status)
		status = mtk_cuda_upload(c->row_numbers, c->host_given_ids,
					 c->n_rows_max * sizeof(int32_t), c->state->stream, error);
	return status ? status : mtk_cuda_stream_wait(c->state->stream, error);
}

static int take_order(struct mtk_cuda_context *c, struct mtk_error *error)
{
	int status = mtk_cuda_stream_create(error, &c->side);

	if (!status)
		status = mtk_cuda_event_create_untimed(error, &c->forked);
	return status ? status : mtk_cuda_event_create_untimed(error, &c->joined);
}

/* The rule of each layer, and how wide rows become. */
static int resolve_rules(struct mtk_cuda_context *c, const struct mtk_oea *oea,
			 struct mtk_error *error)
{
	const struct mtk_model *model = c->model;
	int status = MOETRACE_OK;

	c->n_width_max = model->moe.width;
	if (!oea)
		return MOETRACE_OK;
	c->rules = calloc(model->config.n_layers, sizeof(*c->rules));
	if (!c->rules)
		return mtk_error_set(error, MOETRACE_E_NOMEM, "out of memory");
	for (uint32_t i = 0; !status && i < model->config.n_layers; i++) {
		const struct mtk_layer *layer = &model->layers[i];
		uint32_t width;

		if (layer->is_hash)
			continue;
		status = mtk_oea_resolve(oea, &layer->route, &c->rules[i], error);
		width = status ? 0 : mtk_oea_width(&c->rules[i], &layer->route);
		c->n_width_max = width > c->n_width_max ? width : c->n_width_max;
	}
	return status;
}

static uint32_t graph_rows(uint32_t n_slots)
{
	uint32_t n = 1;

	while (n < n_slots && n < MTK_CUDA_GRAPH_ROWS)
		n *= 2;
	return n;
}

/* A head's positions lie one after another. What fails is told by the next pass. */
static void copy_positions(void *memory, uint32_t to, uint32_t from, uint32_t n_positions)
{
	struct mtk_cuda_context *c = memory;
	const struct mtk_kv_cache *kv = c->kv;
	const size_t position = kv->head_dim * mtk_dtype_bytes(c->state->activations);
	const uint32_t n_heads = kv->n_layers * kv->n_kv_heads;

	for (uint32_t i = 0; i < n_heads && !c->kv_status; i++) {
		const uint32_t layer = i / kv->n_kv_heads, head = i % kv->n_kv_heads;
		const size_t source = mtk_kv_head_index(kv, layer, from, head) * kv->n_context;
		const size_t target = mtk_kv_head_index(kv, layer, to, head) * kv->n_context;

		c->kv_status = mtk_cuda_copy(c->keys + target * position,
					     c->keys + source * position, n_positions * position,
					     c->state->stream, NULL);
		if (!c->kv_status)
			c->kv_status = mtk_cuda_copy(c->values + target * position,
						     c->values + source * position,
						     n_positions * position, c->state->stream,
						     NULL);
	}
}

static int fill(struct mtk_cuda_context *c, const struct mtk_context_settings *settings,
		struct mtk_error *error)
{
	const uint32_t n_graph = graph_rows(settings->n_slots);
	int status = mtk_kv_cache_create_slots(&c->model->config, settings->n_slots,
					       settings->n_context, &c->kv);

	if (status)
		return mtk_error_set(error, status,
				     "a cache of %u sequences of %u positions cannot be made: %s; "
				     "lower --batch or --context",
				     settings->n_slots, settings->n_context,
				     moetrace_status_string(status));
	c->kv->copy_elsewhere = copy_positions;
	c->kv->elsewhere = c;
	if (settings->n_rows_max == 0 || settings->n_rows_max > MTK_MAX_ROWS)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "a pass of %u rows cannot be made; lower --batch or --chunk",
				     settings->n_rows_max);
	c->n_rows_max = settings->n_rows_max > n_graph ? settings->n_rows_max : n_graph;
	c->choice = settings->choice;
	status = resolve_rules(c, settings->oea, error);
	if (!status)
		status = take_cache(c, error);
	if (!status)
		status = take_dense(c, error);
	if (!status)
		status = take_moe(c, error);
	if (!status)
		status = take_host(c, error);
	if (!status)
		status = take_order(c, error);
	return status ? status : mtk_cuda_stream_wait(c->state->stream, error);
}

int mtk_cuda_context_create(struct mtk_backend *backend,
			    const struct mtk_context_settings *settings, void **ret_context,
			    struct mtk_error *error)
{
	struct mtk_cuda_context *context = calloc(1, sizeof(*context));
	int status;

	if (!context)
		return mtk_error_set(error, MOETRACE_E_NOMEM, "out of memory");
	context->state = backend->state;
	context->model = backend->model;
	status = fill(context, settings, error);
	if (status) {
		mtk_cuda_context_destroy(context);
		return status;
	}
	*ret_context = context;
	return MOETRACE_OK;
}

void mtk_cuda_graphs_forget(struct mtk_cuda_context *context)
{
	for (uint32_t i = 0; i < MTK_CUDA_N_GRAPHS; i++) {
		mtk_cuda_graph_destroy(context->graphs[i]);
		context->graphs[i] = NULL;
	}
}

void mtk_cuda_context_destroy(void *memory)
{
	struct mtk_cuda_context *context = memory;

	if (!context)
		return;
	mtk_cuda_graphs_forget(context);
	mtk_cuda_event_destroy(context->forked);
	mtk_cuda_event_destroy(context->joined);
	mtk_cuda_stream_destroy(context->side);
	while (context->n_blocks > 0)
		mtk_cuda_free(context->blocks[--context->n_blocks]);
	mtk_cuda_host_free(context->host_inputs);
	mtk_cuda_host_free(context->host_first_slots);
	mtk_cuda_host_free(context->host_given_ids);
	mtk_cuda_host_free(context->host_ids);
	mtk_cuda_host_free(context->host_weights);
	mtk_cuda_host_free(context->host_base_ids);
	mtk_cuda_host_free(context->host_margins);
	mtk_cuda_host_free(context->host_row_flags);
	free(context->choice_scratch);
	mtk_kv_cache_destroy(context->kv);
	free(context->rules);
	free(context);
}
