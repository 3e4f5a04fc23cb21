/* SPDX-License-Identifier: MIT */
/*
 * From a preset to the sizes of a model. Everything is checked here: what comes out is a model
 * whose settings the operations take without a further test.
 */
#include "kernels/engine/shape.h"

#include <stdlib.h>

#include <moetrace/status.h>

#include "kernels/engine/expert_pool.h"
#include "kernels/engine/model_internal.h"
#include "kernels/engine/shape_internal.h"

#define N_VOCAB	 256
#define HEAD_DIM 128

uint32_t mtk_shape_moe_layers(const struct mtk_preset *preset)
{
	/* Where it is not stated, all of them have. */
	return preset->n_moe_layers > 0 ? preset->n_moe_layers : preset->n_layers;
}

/* The width of all shared experts together, as one MLP. */
static uint32_t shared_width(const struct mtk_preset *preset)
{
	if (preset->n_shared_intermediate > 0)
		return preset->n_shared_intermediate;
	return preset->n_shared_experts * preset->n_intermediate;
}

static int check_preset(const struct mtk_preset *preset, struct mtk_error *error)
{
	if (!preset->has_routing)
		return mtk_error_set(error, MOETRACE_E_UNSUPPORTED,
				     "the routing of %s is not known", preset->name);
	if (preset->n_hidden == 0 || preset->n_intermediate == 0 || preset->n_layers == 0)
		return mtk_error_set(error, MOETRACE_E_UNSUPPORTED,
				     "the dimensions of %s are not known", preset->name);
	return MOETRACE_OK;
}

static int check_shared_slots(const struct mtk_preset *preset, struct mtk_error *error)
{
	if (preset->n_shared_experts == 0)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "shared slots: %s has no shared experts", preset->name);
	if (shared_width(preset) != preset->n_shared_experts * preset->n_intermediate ||
	    preset->is_shared_gated || preset->n_latent > 0 || preset->weight_on_input)
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "shared slots: the shared experts of %s are not like its "
				     "routed ones",
				     preset->name);
	return MOETRACE_OK;
}

static int check_settings(const struct mtk_shape_settings *settings, struct mtk_error *error)
{
	const struct mtk_preset *preset = settings->preset;
	int status = check_preset(preset, error);

	if (status)
		return status;
	if (settings->n_layers > mtk_shape_moe_layers(preset))
		return mtk_error_set(
			error, MOETRACE_E_INVALID, "layers is %u, %s has %u layers with experts",
			settings->n_layers, preset->name, mtk_shape_moe_layers(preset));
	if (settings->expert_pool_bytes > 0 &&
	    (settings->expert_pool_bytes > SIZE_MAX ||
	     mtk_expert_pool_size((size_t)settings->expert_pool_bytes) == 0))
		return mtk_error_set(error, MOETRACE_E_INVALID,
				     "expert pool is %llu bytes, expected at least %zu",
				     (unsigned long long)settings->expert_pool_bytes,
				     MTK_EXPERT_POOL_MIN_BYTES);
	return settings->has_shared_slots ? check_shared_slots(preset, error) : MOETRACE_OK;
}

static struct mtk_model_config config_of(const struct mtk_shape_settings *settings)
{
	const struct mtk_preset *preset = settings->preset;
	const uint32_t n_heads = preset->n_hidden / HEAD_DIM;
	const bool is_known = preset->n_heads > 0;

	return (struct mtk_model_config){
		.n_vocab = N_VOCAB,
		.n_hidden = preset->n_hidden,
		.n_layers =
			settings->n_layers > 0 ? settings->n_layers : mtk_shape_moe_layers(preset),
		.n_heads = is_known ? preset->n_heads : n_heads,
		.n_kv_heads = is_known		 ? preset->n_kv_heads
			      : n_heads % 4 == 0 ? n_heads / 4
						 : 1,
		.head_dim = is_known ? preset->head_dim : HEAD_DIM,
		.n_intermediate = preset->n_intermediate,
		.n_experts = preset->route.n_experts,
		.top_k = preset->route.top_k,
		.n_context = settings->n_context,
		.norm_topk_prob = preset->route.renormalise != MTK_ROUTE_RENORMALISE_NONE,
		.rms_norm_eps = 1e-6f,
		.rope_theta = 10000.0f,
	};
}

static struct mtk_route_config route_of(const struct mtk_shape_settings *settings)
{
	struct mtk_route_config route = settings->preset->route;

	if (settings->has_shared_slots)
		route.n_shared_slots = settings->preset->n_shared_experts;
	return route;
}

static struct mtk_moe moe_of(const struct mtk_shape_settings *settings)
{
	const struct mtk_preset *p = settings->preset;
	const struct mtk_route_config route = route_of(settings);
	const bool is_latent = p->n_latent > 0;
	struct mtk_moe moe =
		mtk_moe_make(&route, is_latent ? p->n_latent : p->n_hidden, p->n_intermediate);

	moe.is_latent = is_latent;
	moe.squared_relu = p->squared_relu;
	if (p->squared_relu)
		moe.n_gate_up = p->n_intermediate;
	if (!settings->has_shared_slots)
		moe.n_shared = shared_width(p);
	moe.n_shared_gate_up = p->squared_relu ? moe.n_shared : 2 * moe.n_shared;
	moe.weighting = p->weight_on_input ? MTK_WEIGHT_ON_INPUT : MTK_WEIGHT_IN_COMBINE;
	moe.is_clamped = p->swiglu_limit > 0.0;
	moe.clamp = (struct mtk_swiglu_clamp){
		.limit = (float)p->swiglu_limit,
		.alpha = p->swiglu_alpha > 0.0 ? (float)p->swiglu_alpha : 1.0f,
		.offset = (float)p->swiglu_offset,
	};
	moe.combines_pairs = is_latent || p->weight_on_input || route.n_zero_experts > 0 ||
			     route.scale_owner == MTK_ROUTE_SCALE_ON_OUTPUT;
	return moe;
}

static int check_moe(const struct mtk_model *model, struct mtk_error *error)
{
	const struct mtk_moe *moe = &model->moe;
	const struct mtk_experts_settings experts = {
		.n_experts = moe->n_experts,
		.top_k = moe->width,
		.n_hidden = moe->n_in,
		.n_intermediate = moe->n_intermediate,
		.dtype = MTK_DTYPE_BF16,
		.weighting = moe->weighting,
		.clamped = moe->is_clamped,
		.clamp = moe->clamp,
		.n_rows_max = MTK_MAX_ROWS,
	};

	return mtk_experts_check(&experts, error);
}

/* A table chooses: there is nothing for a bias or groups to act on. */
static struct mtk_route_config hash_route(struct mtk_route_config route)
{
	route.bias = MTK_ROUTE_BIAS_NONE;
	route.groups = MTK_ROUTE_GROUPS_NONE;
	route.n_groups = route.n_keep_groups = 0;
	return route;
}

/* The sizes of all layers, which are alike but for their number and their hash table. */
static int make_layers(struct mtk_model *model, const struct mtk_shape_settings *settings,
		       struct mtk_error *error)
{
	const uint32_t n_layers = model->config.n_layers;
	const struct mtk_route_config route = route_of(settings);
	char message[MTK_ROUTE_MESSAGE_BYTES];

	if (mtk_route_config_check(&route, message))
		return mtk_error_set(error, MOETRACE_E_INVALID, "%s: %s", settings->preset->name,
				     message);
	if (mtk_model_take(model, n_layers * sizeof(*model->layers), (void **)&model->layers))
		return mtk_error_set(error, MOETRACE_E_NOMEM, "out of memory: %u layers", n_layers);
	for (uint32_t i = 0; i < n_layers; i++) {
		model->layers[i].number = mtk_preset_layer_number(settings->preset, i);
		model->layers[i].is_hash = i < settings->preset->n_hash_layers;
		model->layers[i].route = model->layers[i].is_hash ? hash_route(route) : route;
	}
	return MOETRACE_OK;
}

static int plan(struct mtk_model *model, const struct mtk_shape_settings *settings,
		struct mtk_error *error)
{
	char message[MTK_MESSAGE_BYTES];
	int status;

	if (mtk_model_config_check(&model->config, message))
		return mtk_error_set(error, MOETRACE_E_INVALID, "%s: %s", settings->preset->name,
				     message);
	if (!model->ops)
		return mtk_error_set(error, MOETRACE_E_UNSUPPORTED,
				     "MOETRACE_CPU names an instruction set that this processor or "
				     "build lacks; use plain, avx2 or avx512, or unset it");
	status = check_moe(model, error);
	if (!status)
		status = make_layers(model, settings, error);
	if (status)
		return status;
	model->is_plan = true;
	return mtk_shape_build(model, settings, error);
}

int mtk_shape_plan(const struct mtk_shape_settings *settings, struct mtk_error *error,
		   struct mtk_model **ret_model)
{
	struct mtk_model *model;
	int status = check_settings(settings, error);

	if (status)
		return status;
	model = calloc(1, sizeof(*model));
	if (!model)
		return mtk_error_set(error, MOETRACE_E_NOMEM, "out of memory: a model");
	model->preset = settings->preset;
	model->config = config_of(settings);
	model->moe = moe_of(settings);
	model->ops = mtk_cpu_ops_choose();
	status = plan(model, settings, error);
	if (status) {
		mtk_model_destroy(model);
		return status;
	}
	*ret_model = model;
	return MOETRACE_OK;
}

int mtk_shape_fill(struct mtk_model *model, const struct mtk_shape_settings *settings,
		   struct mtk_error *error)
{
	/* The layers themselves are there; everything else is counted again. */
	model->n_bytes = mtk_block_bytes(model->config.n_layers * sizeof(*model->layers));
	model->weight_bytes = 0;
	model->is_plan = false;
	return mtk_shape_build(model, settings, error);
}
