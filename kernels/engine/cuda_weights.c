/* SPDX-License-Identifier: MIT */
/*
 * Uploading. A packed matrix goes to a staging buffer on the device and is unpacked there, so that
 * the host only copies. Blocks are listed, and freed together.
 */
#include "kernels/engine/cuda_weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/cuda/device.h"
#include "kernels/cuda/weights.h"
#include "kernels/rope/rope.h"

/* The spread of made weights: see shape_fill.c. */
#define TOP_EXPONENT	   (-6)
#define EMBEDDING_EXPONENT 0

struct upload {
	struct mtk_cuda_weights *weights;
	const struct mtk_model *model;
	void *stream;
	void *staging; /* device memory for the largest packed matrix */
	struct mtk_error *error;
};

static int take(struct upload *u, size_t n_bytes, void **ret_memory)
{
	struct mtk_cuda_weights *w = u->weights;
	int status;

	if (w->n_blocks == w->n_blocks_max) {
		size_t n = w->n_blocks_max * 2 + 64;
		void **blocks = realloc(w->blocks, n * sizeof(*blocks));

		if (!blocks)
			return mtk_error_set(u->error, MOETRACE_E_NOMEM, "out of memory");
		w->blocks = blocks;
		w->n_blocks_max = n;
	}
	status = mtk_cuda_alloc(n_bytes, u->error, ret_memory);
	if (status == MOETRACE_E_NOMEM)
		return mtk_error_set(u->error, status,
				     "the GPU has no memory for the weights: %zu bytes were taken, "
				     "%zu more are needed; run on the CPU, or with fewer layers",
				     w->n_bytes, n_bytes);
	if (status)
		return status;
	w->blocks[w->n_blocks++] = *ret_memory;
	w->n_bytes += n_bytes;
	return MOETRACE_OK;
}

/* Wait, so that the source may go. */
static int copy(struct upload *u, void *to, const void *from, size_t n_bytes)
{
	int status = mtk_cuda_upload(to, from, n_bytes, u->stream, u->error);

	return status ? status : mtk_cuda_stream_wait(u->stream, u->error);
}

static int put(struct upload *u, const void *from, size_t n_bytes, void **ret_memory)
{
	int status;

	if (!from)
		return MOETRACE_OK;
	status = take(u, n_bytes, ret_memory);
	return status ? status : copy(u, *ret_memory, from, n_bytes);
}

/* A norm's weights; those of a plan are one. */
static int put_norm(struct upload *u, const float *from, size_t n, float **ret_values)
{
	float *ones;
	int status;

	if (from || !u->model->is_plan)
		return put(u, from, n * sizeof(*from), (void **)ret_values);
	ones = malloc(n * sizeof(*ones));
	if (!ones)
		return mtk_error_set(u->error, MOETRACE_E_NOMEM, "out of memory");
	for (size_t i = 0; i < n; i++)
		ones[i] = 1.0f;
	status = put(u, ones, n * sizeof(*ones), (void **)ret_values);
	free(ones);
	return status;
}

static int synthesize(struct upload *u, size_t n, int top_exponent, void *to)
{
	return mtk_cuda_synthesize(++u->weights->seed << 32, n, top_exponent, to, u->stream,
				   u->error);
}

/* The rows of a packed matrix, in memory that is there. */
static int unpack(struct upload *u, const struct mtk_matrix *matrix, void *to)
{
	int status = copy(u, u->staging, matrix->data,
			  mtk_matrix_bytes(matrix->dtype, matrix->n_out, matrix->n_in));

	return status ? status
		      : mtk_cuda_unpack(matrix->dtype, matrix->n_out, matrix->n_in, u->staging, to,
					u->stream, u->error);
}

static size_t rows_bytes(enum mtk_dtype dtype, size_t n_out, size_t n_in)
{
	return n_out * n_in * mtk_dtype_bytes(dtype);
}

static int put_matrix(struct upload *u, const struct mtk_matrix *matrix, int top_exponent,
		      struct mtk_cuda_matrix *ret_matrix)
{
	const size_t n_bytes = rows_bytes(matrix->dtype, matrix->n_out, matrix->n_in);
	int status;

	if (matrix->n_out == 0 || (!matrix->data && !u->model->is_plan))
		return MOETRACE_OK;
	*ret_matrix = (struct mtk_cuda_matrix){matrix->dtype, matrix->n_out, matrix->n_in, NULL};
	status = take(u, n_bytes, &ret_matrix->data);
	if (status)
		return status;
	return matrix->data ? unpack(u, matrix, ret_matrix->data)
			    : synthesize(u, n_bytes / 2, top_exponent, ret_matrix->data);
}

/* One matrix of each expert that is here; matrices is NULL in a plan. */
static int put_experts(struct upload *u, const struct mtk_matrix *matrices, uint32_t n_out,
		       uint32_t n_in, struct mtk_cuda_matrix *ret_matrix)
{
	const enum mtk_dtype dtype = matrices ? matrices[0].dtype : MTK_DTYPE_BF16;
	const size_t n_bytes = rows_bytes(dtype, n_out, n_in);
	const uint32_t n = u->weights->n_experts;
	int status;

	*ret_matrix = (struct mtk_cuda_matrix){dtype, n_out, n_in, NULL};
	status = take(u, n * n_bytes, &ret_matrix->data);
	if (status || !matrices)
		return status ? status
			      : synthesize(u, n * n_bytes / 2, TOP_EXPONENT, ret_matrix->data);
	for (uint32_t e = 0; !status && e < n; e++)
		status = unpack(u, &matrices[e], (char *)ret_matrix->data + e * n_bytes);
	return status;
}

static int put_router(struct upload *u, const struct mtk_layer *from, struct mtk_cuda_layer *to)
{
	const size_t n = u->model->moe.n_columns;
	const int top_exponent = -(int)floor(log2(sqrt((double)u->model->config.n_hidden))) + 1;
	int status = put_matrix(u, &from->router, top_exponent, &to->router);

	if (!status)
		status = put(u, from->router_bias, n * sizeof(float), (void **)&to->router_bias);
	if (!status)
		status = put(u, from->correction_bias, n * sizeof(float),
			     (void **)&to->correction_bias);
	if (!status && u->model->is_plan && from->route.bias != MTK_ROUTE_BIAS_NONE) {
		status = take(u, n * sizeof(float), (void **)&to->correction_bias);
		if (!status)
			status = mtk_cuda_zero(to->correction_bias, n * sizeof(float), u->stream,
					       u->error);
	}
	if (!status && from->is_hash)
		status = put(u, from->route.hash_table,
			     (size_t)from->route.n_hash_tokens * from->route.top_k *
				     sizeof(int32_t),
			     (void **)&to->hash_table);
	return status;
}

static int put_moe(struct upload *u, const struct mtk_layer *from, struct mtk_cuda_layer *to)
{
	const struct mtk_moe *moe = &u->model->moe;
	const size_t n = u->weights->n_experts;
	int status = put_experts(u, from->gate_up, moe->n_gate_up, moe->n_in, &to->gate_up);

	if (!status)
		status = put_experts(u, from->down, moe->n_in, moe->n_intermediate, &to->down);
	if (!status)
		status = put(u, from->gate_up_bias, n * moe->n_gate_up * sizeof(float),
			     (void **)&to->gate_up_bias);
	if (!status)
		status = put(u, from->down_bias, n * moe->n_in * sizeof(float),
			     (void **)&to->down_bias);
	if (!status)
		status = put_matrix(u, &from->shared_gate_up, TOP_EXPONENT, &to->shared_gate_up);
	if (!status)
		status = put_matrix(u, &from->shared_down, TOP_EXPONENT, &to->shared_down);
	if (!status)
		status = put_matrix(u, &from->shared_gate, TOP_EXPONENT, &to->shared_gate);
	return status;
}

static int put_layer(struct upload *u, const struct mtk_layer *from, struct mtk_cuda_layer *to)
{
	const struct mtk_model_config *c = &u->model->config;
	int status = put_norm(u, from->input_norm, c->n_hidden, &to->input_norm);

	if (!status)
		status = put_norm(u, from->post_attention_norm, c->n_hidden,
				  &to->post_attention_norm);
	if (!status)
		status = put_norm(u, from->query_norm, c->head_dim, &to->query_norm);
	if (!status)
		status = put_norm(u, from->key_norm, c->head_dim, &to->key_norm);
	if (!status)
		status = put_matrix(u, &from->qkv, TOP_EXPONENT, &to->qkv);
	if (!status)
		status = put_matrix(u, &from->output, TOP_EXPONENT, &to->output);
	if (!status)
		status = put_router(u, from, to);
	return status ? status : put_moe(u, from, to);
}

/* A plan has no table of turns. */
static int put_rope(struct upload *u)
{
	const struct mtk_model_config *c = &u->model->config;
	const size_t n = (size_t)c->n_context * (c->head_dim / 2);
	float *table = malloc(2 * n * sizeof(*table));
	int status;

	if (!table)
		return mtk_error_set(u->error, MOETRACE_E_NOMEM, "out of memory");
	mtk_rope_table_fill(c->rope_theta, c->head_dim, c->n_context, table, table + n);
	status = put(u, table, n * sizeof(*table), (void **)&u->weights->cosines);
	if (!status)
		status = put(u, table + n, n * sizeof(*table), (void **)&u->weights->sines);
	free(table);
	return status;
}

/* The first experts are here, and no other. */
static int put_expert_map(struct upload *u, uint32_t n_local)
{
	const uint32_t n = u->model->moe.n_experts;
	int32_t *map;
	int status;

	u->weights->n_experts = n_local > 0 ? n_local : n;
	if (n_local == 0)
		return MOETRACE_OK;
	if (n_local > n)
		return mtk_error_set(u->error, MOETRACE_E_INVALID,
				     "%u local experts are more than the %u of a layer", n_local,
				     n);
	map = malloc(n * sizeof(*map));
	if (!map)
		return mtk_error_set(u->error, MOETRACE_E_NOMEM, "out of memory");
	for (uint32_t e = 0; e < n; e++)
		map[e] = e < n_local ? (int32_t)e : -1;
	status = put(u, map, n * sizeof(*map), (void **)&u->weights->expert_map);
	free(map);
	return status;
}

static size_t larger(size_t bytes, const struct mtk_matrix *matrix)
{
	size_t own = matrix->data
			     ? mtk_matrix_bytes(matrix->dtype, matrix->n_out, matrix->n_in)
			     : 0;

	return own > bytes ? own : bytes;
}

static size_t staging_bytes(const struct mtk_model *model)
{
	size_t n = larger(larger(0, &model->embedding), &model->head);

	for (uint32_t i = 0; i < model->config.n_layers; i++) {
		const struct mtk_layer *layer = &model->layers[i];

		n = larger(larger(larger(n, &layer->qkv), &layer->output), &layer->router);
		n = larger(larger(larger(n, &layer->shared_gate_up), &layer->shared_down),
			   &layer->shared_gate);
		if (layer->gate_up)
			n = larger(larger(n, &layer->gate_up[0]), &layer->down[0]);
	}
	return n;
}

static int put_ends(struct upload *u)
{
	struct mtk_cuda_weights *w = u->weights;
	const struct mtk_model *model = u->model;
	int status = put_matrix(u, &model->embedding, EMBEDDING_EXPONENT, &w->embedding);

	if (!status && model->head.n_out > 0)
		status = put_matrix(u, &model->head, TOP_EXPONENT, &w->head);
	if (!w->head.data)
		w->head = w->embedding;
	if (!status)
		status = put_norm(u, model->final_norm, model->config.n_hidden, &w->final_norm);
	return status ? status : put_rope(u);
}

static int put_all(struct upload *u, uint32_t n_local_experts)
{
	const struct mtk_model *model = u->model;
	const uint32_t n_layers = model->config.n_layers;
	int status = put_expert_map(u, n_local_experts);

	if (!status)
		status = put_ends(u);
	u->weights->layers = calloc(n_layers, sizeof(*u->weights->layers));
	if (!status && !u->weights->layers)
		status = mtk_error_set(u->error, MOETRACE_E_NOMEM, "out of memory");
	for (uint32_t i = 0; !status && i < n_layers; i++)
		status = put_layer(u, &model->layers[i], &u->weights->layers[i]);
	return status ? status : mtk_cuda_stream_wait(u->stream, u->error);
}

static int check(const struct mtk_model *model, struct mtk_error *error)
{
	const char *what = NULL;

	if (model->moe.is_latent)
		what = "experts with a latent";
	else if (model->layers[0].route.n_zero_experts > 0)
		what = "zero experts";
	if (!what)
		return MOETRACE_OK;
	return mtk_error_set(error, MOETRACE_E_UNSUPPORTED,
			     "cuda: a model with %s runs on the CPU only; give --device cpu", what);
}

int mtk_cuda_weights_init(struct mtk_cuda_weights *weights, const struct mtk_model *model,
			  uint32_t n_local_experts, void *stream, struct mtk_error *error)
{
	struct upload upload = {
		.weights = weights, .model = model, .stream = stream, .error = error};
	int status = check(model, error);

	memset(weights, 0, sizeof(*weights));
	if (!status)
		status = mtk_cuda_alloc(staging_bytes(model), error, &upload.staging);
	if (!status)
		status = put_all(&upload, n_local_experts);
	mtk_cuda_free(upload.staging);
	return status;
}

void mtk_cuda_weights_release(struct mtk_cuda_weights *weights)
{
	while (weights->n_blocks > 0)
		mtk_cuda_free(weights->blocks[--weights->n_blocks]);
	free(weights->blocks);
	free(weights->layers);
	memset(weights, 0, sizeof(*weights));
}
