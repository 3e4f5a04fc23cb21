/* SPDX-License-Identifier: MIT */
/* The CPU's back end: the model's own forward pass, with its cache, scratch and threads. */
#include "kernels/engine/backend.h"

#include <stdio.h>
#include <stdlib.h>

#include <moetrace/moetrace.h>

#include "kernels/engine/kv_cache.h"
#include "kernels/sample/sample.h"
#include "kernels/threads.h"

struct context {
	const struct mtk_model *model;
	struct mtk_kv_cache *kv;
	struct mtk_workspace *workspace;
	struct mtk_threads *threads;
	float *logits; /* [n_rows_max][n_vocab], for those who ask for ids alone */
	uint32_t n_rows_max;
};

static void context_destroy(void *memory)
{
	struct context *context = memory;

	if (!context)
		return;
	mtk_threads_destroy(context->threads);
	mtk_workspace_destroy(context->workspace);
	mtk_kv_cache_destroy(context->kv);
	free(context->logits);
	free(context);
}

static int parts_create(struct context *context, const struct mtk_context_settings *settings,
			struct mtk_error *error)
{
	int status = mtk_kv_cache_create(mtk_model_borrow_config(context->model), settings->n_slots,
					 settings->n_context, &context->kv);

	if (status)
		return mtk_error_set(error, status,
				     "a cache of %u sequences of %u positions cannot be made: %s; "
				     "lower --batch or --context",
				     settings->n_slots, settings->n_context,
				     moetrace_status_string(status));
	status = mtk_workspace_create_oea(context->model, settings->n_rows_max, settings->oea,
					  &context->workspace);
	if (status)
		return mtk_error_set(error, status,
				     "a pass of %u rows cannot be made: %s; lower --batch or "
				     "--chunk",
				     settings->n_rows_max, moetrace_status_string(status));
	status = mtk_threads_create(settings->n_threads, &context->threads);
	if (status)
		return mtk_error_set(error, status,
				     "%u threads cannot be started: %s; lower --threads",
				     settings->n_threads, moetrace_status_string(status));
	return MOETRACE_OK;
}

static int context_create(struct mtk_backend *backend, const struct mtk_context_settings *settings,
			  void **ret_context, struct mtk_error *error)
{
	struct context *context = calloc(1, sizeof(*context));
	int status;

	if (!context)
		return mtk_error_set(error, MOETRACE_E_NOMEM, "out of memory");
	context->model = backend->model;
	context->n_rows_max = settings->n_rows_max;
	status = parts_create(context, settings, error);
	if (status) {
		context_destroy(context);
		return status;
	}
	*ret_context = context;
	return MOETRACE_OK;
}

static struct mtk_kv_cache *cache(void *context)
{
	return ((struct context *)context)->kv;
}

static uint32_t wanted_count(const struct mtk_batch *batch)
{
	uint32_t n = 0;

	for (uint32_t row = 0; batch->want_logits && row < batch->n_rows; row++)
		n += batch->want_logits[row] != 0;
	return n;
}

/* Where the logits go when only ids are wanted. */
static float *own_logits(struct context *context)
{
	const uint32_t n_vocab = mtk_model_borrow_config(context->model)->n_vocab;

	if (!context->logits)
		context->logits = calloc(context->n_rows_max, n_vocab * sizeof(*context->logits));
	return context->logits;
}

static int forward(void *memory, const struct mtk_batch *batch,
		   const struct mtk_forward_hooks *hooks, const struct mtk_forward_result *result,
		   struct mtk_error *error)
{
	struct context *context = memory;
	const uint32_t n_vocab = mtk_model_borrow_config(context->model)->n_vocab;
	const uint32_t n_wanted = wanted_count(batch);
	float *logits = result->logits;
	int status;

	if (!logits && n_wanted > 0) {
		logits = own_logits(context);
		if (!logits)
			return mtk_error_set(error, MOETRACE_E_NOMEM, "out of memory");
	}
	status = mtk_model_forward(context->model, context->workspace, context->kv,
				   context->threads, batch, hooks, logits);
	if (status)
		return mtk_error_set(error, status, "a pass of %u rows failed: %s", batch->n_rows,
				     moetrace_status_string(status));
	for (uint32_t i = 0; result->greedy_ids && i < n_wanted; i++)
		result->greedy_ids[i] = mtk_sample_greedy(logits + (size_t)i * n_vocab, n_vocab);
	return MOETRACE_OK;
}

static const char *serving_variant(const struct mtk_layer_info *layer)
{
	struct mtk_route_variant_info variants[MTK_ROUTE_N_VARIANTS];
	const char *name = NULL;

	mtk_route_variant_explain(layer->route, layer->has_vectors, variants);
	for (int v = 0; v < MTK_ROUTE_N_VARIANTS; v++)
		name = variants[v].serves ? variants[v].name : name;
	return name;
}

static void describe(const struct mtk_backend *backend, const struct mtk_layer_info *layer,
		     struct mtk_backend_texts *ret_texts)
{
	const size_t pool_bytes = mtk_model_expert_pool_bytes(backend->model);
	const char *cpu = mtk_model_cpu_name(backend->model);

	snprintf(ret_texts->router, sizeof(ret_texts->router), "%s, %s", serving_variant(layer),
		 cpu);
	mtk_route_variant_reason(layer->route, layer->has_vectors, ret_texts->reason,
				 sizeof(ret_texts->reason));
	snprintf(ret_texts->experts, sizeof(ret_texts->experts), "moetrace cpu, %s", cpu);
	if (pool_bytes > 0)
		snprintf(ret_texts->experts, sizeof(ret_texts->experts),
			 "moetrace cpu, %s, expert pool of %zu bytes", cpu, pool_bytes);
}

static const struct mtk_backend_ops cpu_ops = {
	.name = "cpu",
	.context_create = context_create,
	.context_destroy = context_destroy,
	.cache = cache,
	.forward = forward,
	.describe = describe,
};

struct mtk_backend mtk_backend_cpu(const struct mtk_model *model)
{
	return (struct mtk_backend){.ops = &cpu_ops, .model = model};
}
