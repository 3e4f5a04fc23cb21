/* SPDX-License-Identifier: MIT */
/*
 * What the recorder is told of a model: of each layer, the setting that it routes by, which code
 * serves it and why the others do not, and whose weights its experts have.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/moetrace.h>

#include "kernels/engine/serve_record.h"
#include "kernels/presets/presets.h"

static uint32_t scoring_of(enum mtk_route_scoring scoring)
{
	static const uint32_t scorings[MTK_ROUTE_N_SCORINGS] = {
		[MTK_ROUTE_SOFTMAX] = MOETRACE_SCORING_SOFTMAX,
		[MTK_ROUTE_SIGMOID] = MOETRACE_SCORING_SIGMOID,
		[MTK_ROUTE_SQRTSOFTPLUS] = MOETRACE_SCORING_SQRTSOFTPLUS,
		[MTK_ROUTE_SOFTMAX_SELECTED] = MOETRACE_SCORING_SOFTMAX_SELECTED,
		[MTK_ROUTE_SPARSEMIXER] = MOETRACE_SCORING_SPARSEMIXER,
	};

	return scorings[scoring];
}

static const char *choice_name(const struct mtk_choice *choice)
{
	static const char *const names[] = {
		[MTK_CHOICE_MODEL] = "model",
		[MTK_CHOICE_UNIFORM] = "uniform",
		[MTK_CHOICE_ROUND_ROBIN] = "round-robin",
		[MTK_CHOICE_ZIPF] = "zipf",
		[MTK_CHOICE_REPLAY] = "replay",
	};

	return names[mtk_choice_borrow_settings(choice)->kind];
}

static void choice_describe(const struct mtk_choice *choice, struct mtk_backend_texts *texts)
{
	if (!choice)
		return;
	snprintf(texts->router, sizeof(texts->router), "%s choice", choice_name(choice));
	snprintf(texts->reason, sizeof(texts->reason),
		 "the router does not choose, --routing %s does; the weights are the router's "
		 "scores of the chosen experts",
		 choice_name(choice));
}

/* What stands in for what the preset's model has. */
static void shape_describe(const struct mtk_model *model, struct mtk_backend_texts *texts)
{
	const struct mtk_preset *preset = mtk_model_preset(model);
	size_t n = strlen(texts->reason);

	if (!preset || n >= sizeof(texts->reason))
		return;
	n += (size_t)snprintf(texts->reason + n, sizeof(texts->reason) - n,
			      "; synthetic weights in the shape of %s, dense layers left out, "
			      "grouped-query attention",
			      preset->name);
	if (n < sizeof(texts->reason) && preset->real_attention)
		n += (size_t)snprintf(texts->reason + n, sizeof(texts->reason) - n,
				      " (the model's: %s)", preset->real_attention);
	if (n < sizeof(texts->reason) && mtk_model_expert_pool_bytes(model) > 0)
		snprintf(texts->reason + n, sizeof(texts->reason) - n,
			 "; weights alias a pool: speed means nothing");
}

static void groups_describe(const struct mtk_route_config *route, struct moetrace_layer_info *info)
{
	if (route->groups == MTK_ROUTE_GROUPS_NONE)
		return;
	info->n_groups = route->n_groups;
	info->topk_groups = route->n_keep_groups;
	info->group_top_n = route->groups == MTK_ROUTE_GROUPS_MAX    ? 1
			    : route->groups == MTK_ROUTE_GROUPS_TOP2 ? 2
								     : route->group_top_n;
}

static void layer_describe(const struct mtk_backend *backend, uint32_t index,
			   const struct mtk_choice *choice, struct moetrace_layer_info *info,
			   struct mtk_backend_texts *texts)
{
	const struct mtk_model *model = backend->model;
	struct mtk_layer_info layer;
	const struct mtk_route_config *route;

	mtk_model_layer(model, index, &layer);
	route = layer.route;
	MOETRACE_INIT(info);
	info->layer = layer.number;
	info->kind = layer.is_hash && !choice ? MOETRACE_LAYER_HASH : MOETRACE_LAYER_ROUTED;
	info->n_experts = route->n_experts;
	info->n_zero_experts = route->n_zero_experts;
	info->n_shared_slots = route->n_shared_slots;
	info->top_k = mtk_route_width(route);
	info->scoring = scoring_of(route->scoring);
	groups_describe(route, info);
	info->renormalize =
		route->renormalise != MTK_ROUTE_RENORMALISE_NONE ? MOETRACE_YES : MOETRACE_NO;
	if (route->scale != 1.0) {
		info->routed_scaling_factor = route->scale;
		info->scaling_owner = route->scale_owner == MTK_ROUTE_SCALE_IN_ROUTER
					      ? MOETRACE_SCALING_ROUTER
					      : MOETRACE_SCALING_OUTPUT;
	}
	info->soft_cap = route->soft_cap;
	info->correction_bias = route->bias != MTK_ROUTE_BIAS_NONE ? MOETRACE_YES : MOETRACE_NO;
	/* One that acts on scores, the same for every row. */
	if (route->bias == MTK_ROUTE_BIAS_SCORE && !route->bias_per_token)
		info->bias_values = layer.correction_bias;
	info->weight_kind = mtk_route_weight_kind(route);
	info->router_output = MOETRACE_ROUTER_OUTPUT_STANDARD;
	info->expert_weight_bytes = mtk_model_expert_weight_bytes(model);
	backend->ops->describe(backend, &layer, texts);
	choice_describe(choice, texts);
	shape_describe(model, texts);
	info->router_impl = texts->router;
	info->runner_backend = texts->experts;
	info->impl_reason = texts->reason;
}

int mtk_serve_record_model(struct moetrace_session *session, const struct mtk_backend *backend,
			   const struct mtk_choice *choice, const char *model_name,
			   uint32_t *ret_model, struct mtk_error *error)
{
	const struct mtk_model *model = backend->model;
	const uint32_t n_layers = mtk_model_borrow_config(model)->n_layers;
	struct moetrace_layer_info *layers = calloc(n_layers, sizeof(*layers));
	struct mtk_backend_texts *texts = calloc(n_layers, sizeof(*texts));
	struct moetrace_model_info info;
	int status = MOETRACE_E_NOMEM;

	if (!layers || !texts)
		goto end;
	for (uint32_t i = 0; i < n_layers; i++)
		layer_describe(backend, i, choice, &layers[i], &texts[i]);
	MOETRACE_INIT(&info);
	info.name = model_name;
	info.kind = MOETRACE_MODEL_TARGET;
	info.architecture = mtk_model_preset(model) ? "shape" : "Qwen3MoeForCausalLM";
	info.n_layers = layers[n_layers - 1].layer + 1;
	info.layers = layers;
	info.n_moe_layers = n_layers;
	status = moetrace_model_add(session, &info, ret_model);
end:
	free(layers);
	free(texts);
	if (status < 0)
		return mtk_error_set(error, status, "the model cannot be recorded: %s",
				     moetrace_status_string(status));
	return MOETRACE_OK;
}
