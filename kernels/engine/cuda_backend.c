/* SPDX-License-Identifier: MIT */
/* The table of the GPU's back end, and what it has in common for all contexts. */
#include "kernels/engine/cuda_backend.h"

#include <stdio.h>
#include <stdlib.h>

#include <moetrace/moetrace.h>

#include "kernels/attention/attention_cuda.h"
#include "kernels/engine/cuda_internal.h"
#include "kernels/route/route_cuda.h"

static struct mtk_kv_cache *cache(void *context)
{
	return ((struct mtk_cuda_context *)context)->kv;
}

static void describe(const struct mtk_backend *backend, const struct mtk_layer_info *layer,
		     struct mtk_backend_texts *ret_texts)
{
	const char *reason;
	const uint32_t n = mtk_route_cuda_lane_columns(layer->route, &reason);

	snprintf(ret_texts->router, sizeof(ret_texts->router),
		 n > 0 ? "cuda, %u columns a lane" : "cuda, by the definition", n);
	snprintf(ret_texts->reason, sizeof(ret_texts->reason), "cuda: %s", reason);
	snprintf(ret_texts->experts, sizeof(ret_texts->experts), "moetrace cuda, %s",
		 mtk_backend_cuda_description(backend));
}

/* The ids of all layers, as passes leave them until the next one. */
static int adopt(struct mtk_cuda_context *context)
{
	struct moetrace_cuda_buffer buffer;

	if (context->state->settings.recording != MTK_CUDA_RECORD_ADOPT)
		return MOETRACE_OK;
	MOETRACE_INIT(&buffer);
	buffer.ids = (uintptr_t)context->ids;
	buffer.id_type = MOETRACE_TYPE_I32;
	buffer.order = MOETRACE_ORDER_SELECTION;
	buffer.max_rows = context->n_rows_max;
	buffer.row_bytes = context->n_width_max * sizeof(*context->ids);
	buffer.layer_bytes = context->n_rows_max * buffer.row_bytes;
	return moetrace_cuda_adopt(context->lane, &buffer);
}

/* Whether the kernels of all layers that have margins can store them. */
static bool records_margins(const struct mtk_cuda_context *context)
{
	const struct mtk_model *model = context->model;

	for (uint32_t i = 0; i < model->config.n_layers; i++) {
		const struct mtk_route_config *route = &model->layers[i].route;

		if (!route->hash_table && !mtk_route_cuda_records_margins(route))
			return false;
	}
	return context->state->settings.recording == MTK_CUDA_RECORD_FUSED;
}

static struct moetrace_cuda_lane *record(void *memory, struct moetrace_session *session,
					 uint32_t model, bool with_margins)
{
	struct mtk_cuda_context *context = memory;
	struct moetrace_cuda_lane_info info;
	struct moetrace_cuda *cuda;

	if (with_margins && !records_margins(context))
		return NULL;
	/* Why there is none is recorded by attach. */
	if (moetrace_cuda_attach(session, NULL, &cuda) != MOETRACE_OK)
		return NULL;
	MOETRACE_INIT(&info);
	info.stream = context->state->stream;
	info.model = model;
	info.order = MOETRACE_ORDER_SELECTION;
	info.with_margins = with_margins;
	if (moetrace_cuda_lane_add(cuda, &info, &context->lane) != MOETRACE_OK ||
	    adopt(context) != MOETRACE_OK)
		return NULL;
	context->lane_has_margins = with_margins;
	/* Graphs that were captured without it would not record. */
	mtk_cuda_graphs_forget(context);
	return context->lane;
}

static const struct mtk_backend_ops cuda_ops = {
	.name = "cuda",
	.context_create = mtk_cuda_context_create,
	.context_destroy = mtk_cuda_context_destroy,
	.cache = cache,
	.forward = mtk_cuda_forward,
	.describe = describe,
	.record = record,
	.padding_rows = mtk_cuda_padding_rows,
};

/* What 16 bits do not do: the kernels for tensor cores know neither. */
static int check_16bit(const struct mtk_model *model, struct mtk_error *error)
{
	const struct mtk_model_config *config = &model->config;
	const struct mtk_moe *moe = &model->moe;
	const uint32_t widths = config->n_hidden | moe->n_intermediate | moe->n_shared |
				config->n_heads * config->head_dim;
	const char *what = NULL;

	if (model->embedding.dtype == MTK_DTYPE_F32 ||
	    (model->layers[0].gate_up && model->layers[0].gate_up[0].dtype == MTK_DTYPE_F32))
		what = "weights in fp32";
	else if (model->layers[0].router_bias)
		what = "a bias in the router";
	else if (moe->squared_relu)
		what = "squared ReLU";
	else if (widths % 8 != 0)
		what = "a width that is no multiple of 8";
	if (!what)
		return MOETRACE_OK;
	return mtk_error_set(error, MOETRACE_E_UNSUPPORTED,
			     "cuda: a model with %s does not run with inputs of 16 bits; give "
			     "--precision fp32",
			     what);
}

static int check(const struct mtk_model *model, const struct mtk_cuda_backend_settings *settings,
		 struct mtk_error *error)
{
	if (model->config.head_dim > MTK_ATTENTION_CUDA_MAX_HEAD_DIM)
		return mtk_error_set(error, MOETRACE_E_UNSUPPORTED,
				     "cuda: heads of %u run on the CPU only, at most %u on a GPU",
				     model->config.head_dim, MTK_ATTENTION_CUDA_MAX_HEAD_DIM);
	if (settings->precision == MTK_CUDA_16BIT)
		return check_16bit(model, error);
	return MOETRACE_OK;
}

static int state_fill(struct mtk_cuda_state *state, const struct mtk_model *model,
		      struct mtk_error *error)
{
	const struct mtk_cuda_backend_settings *settings = &state->settings;
	char library[64];
	int status = mtk_cuda_open(settings->device, error, &state->device);

	if (!status)
		status = check(model, settings, error);
	if (!status)
		status = mtk_cuda_stream_create(error, &state->stream);
	if (status)
		return status;
	state->activations = settings->precision == MTK_CUDA_FP32 ? MTK_DTYPE_F32
								   : model->embedding.dtype;
	state->cublas_expert_rows = MTK_CUDA_CUBLAS_EXPERT_ROWS;
	snprintf(library, sizeof(library), "own kernels");
	if (settings->precision == MTK_CUDA_16BIT && !settings->without_cublas)
		state->cublas = mtk_cublas_open(state->stream, library, sizeof(library));
	if (settings->precision == MTK_CUDA_FP32)
		snprintf(state->description, sizeof(state->description), "%.60s, fp32 inputs",
			 state->device.name);
	else
		snprintf(state->description, sizeof(state->description),
			 "%.40s, 16-bit inputs, %.60s", state->device.name, library);
	return mtk_cuda_weights_init(&state->weights, model, settings->n_local_experts,
				     state->stream, error);
}

int mtk_backend_cuda_create(const struct mtk_model *model,
			    const struct mtk_cuda_backend_settings *settings,
			    struct mtk_error *error, struct mtk_backend **ret_backend)
{
	struct mtk_backend *backend = calloc(1, sizeof(*backend));
	struct mtk_cuda_state *state = calloc(1, sizeof(*state));
	int status;

	if (!backend || !state) {
		free(backend);
		free(state);
		return mtk_error_set(error, MOETRACE_E_NOMEM, "out of memory");
	}
	*backend = (struct mtk_backend){.ops = &cuda_ops, .model = model, .state = state};
	state->settings = *settings;
	status = state_fill(state, model, error);
	if (status) {
		mtk_backend_cuda_destroy(backend);
		return status;
	}
	*ret_backend = backend;
	return MOETRACE_OK;
}

void mtk_backend_cuda_destroy(struct mtk_backend *backend)
{
	struct mtk_cuda_state *state = backend ? backend->state : NULL;

	if (!backend)
		return;
	mtk_cuda_weights_release(&state->weights);
	mtk_cublas_close(state->cublas);
	mtk_cuda_stream_destroy(state->stream);
	free(state);
	free(backend);
}

const char *mtk_backend_cuda_description(const struct mtk_backend *backend)
{
	return ((const struct mtk_cuda_state *)backend->state)->description;
}
