/* SPDX-License-Identifier: MIT */
/*
 * The launches of a pass, in order. The same function runs eagerly and is captured. What a block
 * gives is added to the residual stream by the norm that follows it.
 */
#include <math.h>

#include <moetrace/status.h>

#include "kernels/attention/attention_cuda.h"
#include "kernels/embed/embed_cuda.h"
#include "kernels/engine/cuda_internal.h"
#include "kernels/gemm/linear_cuda.h"
#include "kernels/gemm/router_cuda.h"
#include "kernels/rmsnorm/rmsnorm_cuda.h"
#include "kernels/rope/rope_cuda.h"
#include "kernels/sample/sample_cuda.h"

void mtk_cuda_pass_mark(const struct mtk_cuda_pass *pass, uint32_t role)
{
	moetrace_cuda_mark(pass->context->lane, pass->layer, role);
}

/* Few outputs leave most multiprocessors without work there; few rows stream the weights here. */
static bool uses_cublas(const struct mtk_cuda_pass *pass, const struct mtk_cuda_matrix *matrix,
			uint32_t n_rows)
{
	return pass->context->state->cublas && n_rows > 16 &&
	       (n_rows > MTK_CUDA_GRAPH_ROWS || matrix->n_out >= 1024);
}

static int multiply_by_cublas(struct mtk_cuda_pass *pass, const struct mtk_cuda_matrix *matrix,
			      uint32_t n_rows, const void *x, float *y)
{
	const struct mtk_cublas_product product = {
		.dtype = matrix->dtype,
		.n_rows = n_rows,
		.n_in = matrix->n_in,
		.n_out = matrix->n_out,
		.x = x,
		.w = matrix->data,
		.y = y,
	};

	return mtk_cublas_multiply(pass->context->state->cublas, &product, pass->error);
}

int mtk_cuda_pass_linear(struct mtk_cuda_pass *pass, const struct mtk_cuda_matrix *matrix,
			 uint32_t n_rows, const void *x, const float *bias, float *y)
{
	struct mtk_cuda_state *state = pass->context->state;

	if (state->settings.precision == MTK_CUDA_FP32) {
		const struct mtk_linear_cuda linear = {
			.dtype = matrix->dtype,
			.n_rows = n_rows,
			.n_in = matrix->n_in,
			.n_out = matrix->n_out,
			.x = x,
			.x_stride = matrix->n_in,
			.w = matrix->data,
			.bias = bias,
			.y = y,
		};

		return mtk_linear_cuda(&linear, state->stream, pass->error);
	} else if (uses_cublas(pass, matrix, n_rows)) {
		return multiply_by_cublas(pass, matrix, n_rows, x, y);
	} else {
		const struct mtk_router_cuda router = {
			.dtype = matrix->dtype,
			.n_rows = n_rows,
			.n_in = matrix->n_in,
			.n_out = matrix->n_out,
			.x = x,
			.w = matrix->data,
			.y = y,
		};

		return mtk_router_cuda(&router, state->stream, pass->error);
	}
}

/* The shared experts' output, which is added where the model has any. */
static const float *shared_out(const struct mtk_cuda_context *c)
{
	return c->model->moe.n_shared > 0 ? c->shared_out : NULL;
}

static int run_norm(struct mtk_cuda_pass *pass, const float *weight, const float *first_add,
		    const float *second_add)
{
	struct mtk_cuda_context *c = pass->context;
	const struct mtk_rmsnorm_cuda norm = {
		.n_rows = pass->n_rows,
		.n = c->model->config.n_hidden,
		.epsilon = c->model->config.rms_norm_eps,
		.hidden = c->hidden,
		.first_add = first_add,
		.second_add = second_add,
		.weight = weight,
		.dtype = c->state->activations,
		.normed = c->normed,
	};

	return mtk_rmsnorm_cuda(&norm, c->state->stream, pass->error);
}

static int run_embedding(struct mtk_cuda_pass *pass)
{
	struct mtk_cuda_context *c = pass->context;
	const struct mtk_cuda_matrix *matrix = &c->state->weights.embedding;
	const struct mtk_embed_cuda embed = {
		.dtype = matrix->dtype,
		.n_rows = pass->n_rows,
		.n_vocab = matrix->n_out,
		.n_hidden = matrix->n_in,
		.weights = matrix->data,
		.token_ids = pass->inputs.token_ids,
		.hidden = c->hidden,
	};

	return mtk_embed_cuda(&embed, c->state->stream, pass->error);
}

static int run_heads(struct mtk_cuda_pass *pass)
{
	struct mtk_cuda_context *c = pass->context;
	const struct mtk_model_config *config = &c->model->config;
	const struct mtk_cuda_layer *layer = &c->state->weights.layers[pass->layer];
	const struct mtk_heads_cuda heads = {
		.n_rows = pass->n_rows,
		.n_valid_rows = pass->inputs.n_valid_rows,
		.n_heads = config->n_heads,
		.n_kv_heads = config->n_kv_heads,
		.head_dim = config->head_dim,
		.n_context = c->kv->n_context,
		.epsilon = config->rms_norm_eps,
		.query_norm = layer->query_norm,
		.key_norm = layer->key_norm,
		.cosines = c->state->weights.cosines,
		.sines = c->state->weights.sines,
		.positions = pass->inputs.positions,
		.slots = pass->inputs.slots,
		.qkv = c->qkv,
		.kv_dtype = c->state->activations,
		.keys = c->keys + pass->layer * c->kv_layer_bytes,
		.values = c->values + pass->layer * c->kv_layer_bytes,
	};

	return mtk_heads_cuda(&heads, c->state->stream, pass->error);
}

static int run_attention(struct mtk_cuda_pass *pass)
{
	struct mtk_cuda_context *c = pass->context;
	const struct mtk_model_config *config = &c->model->config;
	const struct mtk_attention_cuda attention = {
		.n_rows = pass->n_rows,
		.n_valid_rows = pass->inputs.n_valid_rows,
		.n_heads = config->n_heads,
		.n_kv_heads = config->n_kv_heads,
		.head_dim = config->head_dim,
		.n_context = c->kv->n_context,
		.scale = 1.0f / sqrtf((float)config->head_dim),
		.positions = pass->inputs.positions,
		.slots = pass->inputs.slots,
		.queries = c->qkv,
		.query_stride = mtk_model_qkv_width(config),
		.dtype = c->state->activations,
		.keys = c->keys + pass->layer * c->kv_layer_bytes,
		.values = c->values + pass->layer * c->kv_layer_bytes,
		.out = c->attention,
		.scratch = c->attention_scratch,
	};

	return mtk_attention_cuda(&attention, c->state->stream, pass->error);
}

static int run_layer(struct mtk_cuda_pass *pass)
{
	struct mtk_cuda_context *c = pass->context;
	const struct mtk_cuda_layer *layer = &c->state->weights.layers[pass->layer];
	const bool is_first = pass->layer == 0;
	int status;

	mtk_cuda_pass_mark(pass, MOETRACE_ROLE_NORM);
	status = run_norm(pass, layer->input_norm, is_first ? NULL : c->moe_out,
			  is_first ? NULL : shared_out(c));
	mtk_cuda_pass_mark(pass, MOETRACE_ROLE_ATTENTION);
	if (!status)
		status = mtk_cuda_pass_linear(pass, &layer->qkv, pass->n_rows, c->normed, NULL,
					      c->qkv);
	if (!status)
		status = run_heads(pass);
	if (!status)
		status = run_attention(pass);
	if (!status)
		status = mtk_cuda_pass_linear(pass, &layer->output, pass->n_rows, c->attention,
					      NULL, c->attention_out);
	mtk_cuda_pass_mark(pass, MOETRACE_ROLE_NORM);
	if (!status)
		status = run_norm(pass, layer->post_attention_norm, c->attention_out, NULL);
	return status ? status : mtk_cuda_pass_moe(pass);
}

/* The rows whose logits are wanted: all of a captured pass, else those listed. */
static int run_head(struct mtk_cuda_pass *pass)
{
	struct mtk_cuda_context *c = pass->context;
	const struct mtk_cuda_weights *weights = &c->state->weights;
	const struct mtk_rmsnorm_cuda norm = {
		.n_rows = pass->n_wanted,
		.n = c->model->config.n_hidden,
		.epsilon = c->model->config.rms_norm_eps,
		.hidden = c->hidden,
		.first_add = c->moe_out,
		.second_add = shared_out(c),
		.rows = pass->inputs.wanted_rows,
		.weight = weights->final_norm,
		.dtype = c->state->activations,
		.normed = c->normed,
	};
	int status = MOETRACE_OK;

	if (pass->n_wanted == 0)
		return status;
	status = mtk_rmsnorm_cuda(&norm, c->state->stream, pass->error);
	if (!status)
		status = mtk_cuda_pass_linear(pass, &weights->head, pass->n_wanted, c->normed, NULL,
					      c->logits);
	return status ? status
		      : mtk_sample_greedy_cuda(c->logits, pass->n_wanted, weights->head.n_out,
					       c->greedy_ids, c->state->stream, pass->error);
}

/* Let the taps see a part of a layer. */
static int show(struct mtk_cuda_pass *pass, const float *from, uint32_t n_columns,
		void (*tap)(void *, uint32_t, uint32_t, uint32_t, const float *))
{
	struct mtk_cuda_context *c = pass->context;
	const size_t n_bytes = (size_t)pass->n_rows * n_columns * sizeof(float);
	void *host;
	int status;

	if (!tap)
		return MOETRACE_OK;
	status = mtk_cuda_host_alloc(n_bytes, pass->error, &host);
	if (status)
		return status;
	status = mtk_cuda_download(host, from, n_bytes, c->state->stream, pass->error);
	if (!status)
		status = mtk_cuda_stream_wait(c->state->stream, pass->error);
	if (!status)
		tap(pass->taps->ctx, pass->layer, pass->n_rows, n_columns, host);
	mtk_cuda_host_free(host);
	return status;
}

static int show_layer(struct mtk_cuda_pass *pass)
{
	const struct mtk_cuda_context *c = pass->context;
	const struct mtk_forward_hooks *taps = pass->taps;
	int status = MOETRACE_OK;

	if (!taps)
		return status;
	/* The experts' input lies there until the next norm. */
	if (c->state->activations == MTK_DTYPE_F32)
		status = show(pass, c->normed, c->model->config.n_hidden, taps->moe_input);
	if (!status)
		status = show(pass, c->router_logits, c->model->moe.n_columns,
			      taps->router_logits);
	return status ? status : show(pass, c->moe_out, c->model->moe.n_in, taps->moe_output);
}

/* The layers' marks are of their own parts; what lies around them has none. */
int mtk_cuda_pass_launch(struct mtk_cuda_pass *pass)
{
	struct mtk_cuda_context *c = pass->context;
	int status;

	c->has_branch = false;
	moetrace_cuda_mark(c->lane, MOETRACE_NO_LAYER, MOETRACE_ROLE_EMBED);
	status = run_embedding(pass);
	for (uint32_t i = 0; !status && i < c->model->config.n_layers; i++) {
		pass->layer = i;
		/* A large pass is recorded in groups of layers; what it returns is counted there. */
		if (!pass->is_graph)
			(void)moetrace_cuda_pass_layers(c->lane, i);
		status = run_layer(pass);
		if (!status)
			status = show_layer(pass);
	}
	moetrace_cuda_mark(c->lane, MOETRACE_NO_LAYER, MOETRACE_ROLE_OTHER);
	if (!status)
		status = mtk_cuda_pass_gather(pass);
	moetrace_cuda_mark(c->lane, MOETRACE_NO_LAYER, MOETRACE_ROLE_HEAD);
	if (!status)
		status = run_head(pass);
	if (!status)
		status = mtk_cuda_pass_join(pass);
	moetrace_cuda_mark(c->lane, MOETRACE_NO_LAYER, MOETRACE_ROLE_BY_NAME);
	return status;
}
