/* SPDX-License-Identifier: MIT */
/*
 * Models and rules. Models are copied, checked and published to the hot path. A model is complete in memory, and
 * known to the writer, before its handle exists, and never changes afterwards.
 */
#include "libtrace/session.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libtrace/abi.h"

static const char **const *model_strings(struct mt_model *model, const char **ret_strings[3])
{
	ret_strings[0] = &model->info.name;
	ret_strings[1] = &model->info.architecture;
	ret_strings[2] = &model->info.quantization;
	return ret_strings;
}

static const char **const *layer_strings(struct moetrace_layer_info *layer,
					 const char **ret_strings[3])
{
	ret_strings[0] = &layer->router_impl;
	ret_strings[1] = &layer->runner_backend;
	ret_strings[2] = &layer->impl_reason;
	return ret_strings;
}

void mt_model_free(struct mt_model *model)
{
	const char **strings[3];

	for (uint32_t i = 0; model->layer_infos && i < model->n_layers; i++)
		for (int j = 0; j < 3; j++)
			free((char *)*layer_strings(&model->layer_infos[i], strings)[j]);
	for (int j = 0; j < 3; j++)
		free((char *)*model_strings(model, strings)[j]);
	for (uint32_t i = 0; model->layers && i < model->n_layers; i++)
		free((float *)model->layers[i].bias_values);
	free(model->layer_infos);
	free(model->layers);
	free(model);
}

/* Replace three strings by copies. All are replaced, so that they can be freed, also on failure. */
static int copy_strings(const char **const *strings)
{
	int status = MOETRACE_OK;

	for (int i = 0; i < 3; i++) {
		const char *string = *strings[i];

		*strings[i] = string ? strdup(string) : NULL;
		if (string && !*strings[i])
			status = MOETRACE_E_NOMEM;
	}
	return status;
}

/* Factors are above 0, or not told; not a number compares as neither. */
static int is_told_or_0(double number)
{
	return number >= 0 && number <= DBL_MAX;
}

static int check_numbers(struct moetrace_session *session, const struct moetrace_layer_info *info)
{
	if (!is_told_or_0(info->routed_scaling_factor) || !is_told_or_0(info->soft_cap))
		return mt_session_error(session, MOETRACE_E_INVALID,
					"model: layer %u: routed_scaling_factor %g or soft_cap %g is no "
					"finite number from 0",
					info->layer, info->routed_scaling_factor, info->soft_cap);
	if (info->n_groups > info->n_experts ||
	    (info->n_groups && info->topk_groups > info->n_groups))
		return mt_session_error(session, MOETRACE_E_INVALID,
					"model: layer %u: %u of %u groups of %u experts is impossible",
					info->layer, info->topk_groups, info->n_groups,
					info->n_experts);
	if (info->group_top_n &&
	    (!info->n_groups || info->group_top_n > info->n_experts / info->n_groups))
		return mt_session_error(session, MOETRACE_E_INVALID,
					"model: layer %u: group_top_n %u of %u groups of %u experts is "
					"impossible",
					info->layer, info->group_top_n, info->n_groups,
					info->n_experts);
	if (info->expert_weight_bytes > INT64_MAX)
		return mt_session_error(session, MOETRACE_E_INVALID,
					"model: layer %u: expert_weight_bytes is past 2^63",
					info->layer);
	return MOETRACE_OK;
}

/* A NaN compares with nothing: no order of scores could be restored or proved with it. */
static int check_bias(struct moetrace_session *session, const struct moetrace_layer_info *info)
{
	const uint32_t n_values = info->n_experts + info->n_zero_experts;

	if (!info->bias_values)
		return MOETRACE_OK;
	if (info->correction_bias == MOETRACE_NO)
		return mt_session_error(session, MOETRACE_E_INVALID,
					"model: layer %u: bias_values of a layer without correction_bias",
					info->layer);
	for (uint32_t i = 0; i < n_values; i++)
		if (isnan(info->bias_values[i]))
			return mt_session_error(session, MOETRACE_E_INVALID,
						"model: layer %u: bias_values[%u] is NaN; check the "
						"checkpoint, or pass NULL where the bias is not known",
						info->layer, i);
	return MOETRACE_OK;
}

static int check_layer(struct moetrace_session *session, const struct moetrace_layer_info *info)
{
	int status;

	uint64_t n_ids = (uint64_t)info->n_experts + info->n_zero_experts + info->n_shared_slots;

	if (!info->n_experts || !info->top_k || info->top_k > n_ids)
		return mt_session_error(session, MOETRACE_E_INVALID,
					"model: layer %u: top_k %u of %llu experts is impossible",
					info->layer, info->top_k, (unsigned long long)n_ids);
	if (n_ids > MOETRACE_MAX_EXPERTS || info->top_k > MOETRACE_MAX_TOP_K)
		return mt_session_error(session, MOETRACE_E_LIMIT,
					"model: layer %u: top_k %u of %llu experts is above the limits",
					info->layer, info->top_k, (unsigned long long)n_ids);
	if (info->kind > MOETRACE_LAYER_HASH || info->scoring > MOETRACE_SCORING_SPARSEMIXER ||
	    info->renormalize > MOETRACE_YES || info->scaling_owner > MOETRACE_SCALING_OUTPUT ||
	    info->correction_bias > MOETRACE_YES ||
	    info->router_output > MOETRACE_ROUTER_OUTPUT_NONE ||
	    (info->weight_kind > MOETRACE_WEIGHT_RENORMALIZED &&
	     info->weight_kind & ~(unsigned)(MOETRACE_WEIGHT_RENORMALIZED | MOETRACE_WEIGHT_SCALED)))
		return mt_session_error(session, MOETRACE_E_INVALID,
					"model: layer %u: an enumeration has no such value",
					info->layer);
	status = check_numbers(session, info);
	return status ? status : check_bias(session, info);
}

/* The array's stride is the caller's version of the struct, which check_sizes() has seen. */
static const struct moetrace_layer_info *layer_at(const struct moetrace_model_info *info,
						  uint32_t index, struct moetrace_layer_info *room)
{
	const struct moetrace_layer_info *layer =
		(const void *)((const char *)info->layers + index * info->layers->size);

	return MT_ABI_WIDEN(layer, room);
}

static int check_sizes(struct moetrace_session *session, const struct moetrace_model_info *info)
{
	const size_t size = info->n_moe_layers ? info->layers->size : 0;
	const char *layer = (const char *)info->layers;

	if (info->n_moe_layers && !mt_abi_knows(size, MT_FIRST_LAYER_INFO))
		return mt_session_error(session, MOETRACE_E_INVALID,
					"model: a layer's size is not set; use MOETRACE_INIT()");
	for (uint32_t i = 0; i < info->n_moe_layers; i++, layer += size)
		if (((const struct moetrace_layer_info *)(const void *)layer)->size != size)
			return mt_session_error(session, MOETRACE_E_INVALID,
						"model: layers of different size members");
	return MOETRACE_OK;
}

static int check_model(struct moetrace_session *session, const struct moetrace_model_info *info)
{
	struct moetrace_layer_info room;
	uint32_t last_layer = 0;

	if (!info->name || info->kind > MOETRACE_MODEL_MTP || (info->n_moe_layers && !info->layers))
		return mt_session_error(session, MOETRACE_E_INVALID,
					"model: no name, kind or layers");
	if (info->n_moe_layers > MOETRACE_MAX_MOE_LAYERS)
		return mt_session_error(session, MOETRACE_E_LIMIT, "model: %u layers are above %u",
					info->n_moe_layers, MOETRACE_MAX_MOE_LAYERS);
	if (check_sizes(session, info))
		return MOETRACE_E_INVALID;
	for (uint32_t i = 0; i < info->n_moe_layers; i++) {
		const struct moetrace_layer_info *layer = layer_at(info, i, &room);
		int status = check_layer(session, layer);

		if (status)
			return status;
		if (i && layer->layer <= last_layer)
			return mt_session_error(session, MOETRACE_E_INVALID,
						"model: layer numbers do not ascend at index %u", i);
		if (info->n_layers && layer->layer >= info->n_layers)
			return mt_session_error(session, MOETRACE_E_INVALID,
						"model: layer %u at index %u is none of %u layers",
						layer->layer, i, info->n_layers);
		last_layer = layer->layer;
	}
	return MOETRACE_OK;
}

/* Returns MOETRACE_OK or MOETRACE_E_NOMEM. */
static int fill_layer(struct mt_layer *layer, struct moetrace_layer_info *info, uint32_t layer_id)
{
	size_t n_values = (size_t)info->n_experts + info->n_zero_experts;
	float *values;

	layer->layer_id = layer_id;
	layer->n_ids = info->n_experts + info->n_zero_experts + info->n_shared_slots;
	layer->n_experts = info->n_experts;
	layer->top_k = info->top_k;
	layer->id_bytes = layer->n_ids <= 256 ? 1 : 2;
	if (!info->bias_values)
		return MOETRACE_OK;
	values = malloc(n_values * sizeof(*values));
	if (values)
		memcpy(values, info->bias_values, n_values * sizeof(*values));
	layer->bias_values = values;
	info->bias_values = values;
	/* Values are given of a bias that acts. */
	info->correction_bias = MOETRACE_YES;
	return values ? MOETRACE_OK : MOETRACE_E_NOMEM;
}

/* A copy of everything; NULL: out of memory. */
static struct mt_model *copy_model(const struct moetrace_model_info *info, uint32_t first_layer_id)
{
	struct mt_model *model = calloc(1, sizeof(*model));
	struct moetrace_layer_info room;
	const char **strings[3];
	int status;

	if (!model)
		return NULL;
	model->kind = info->kind;
	model->info = *info;
	status = copy_strings(model_strings(model, strings));
	model->info.layers = NULL;
	model->layers = calloc(info->n_moe_layers + 1ul, sizeof(*model->layers));
	model->layer_infos = calloc(info->n_moe_layers + 1ul, sizeof(*model->layer_infos));
	if (!model->layers || !model->layer_infos) {
		mt_model_free(model);
		return NULL;
	}
	model->n_layers = info->n_moe_layers;
	for (uint32_t i = 0; i < model->n_layers; i++) {
		model->layer_infos[i] = *layer_at(info, i, &room);
		if (copy_strings(layer_strings(&model->layer_infos[i], strings)))
			status = MOETRACE_E_NOMEM;
		if (fill_layer(&model->layers[i], &model->layer_infos[i], first_layer_id + i))
			status = MOETRACE_E_NOMEM;
	}
	if (status) {
		mt_model_free(model);
		return NULL;
	}
	return model;
}

static int add_locked(struct moetrace_session *session, const struct moetrace_model_info *info,
		      uint32_t *ret_model)
{
	uint32_t index = atomic_load(&session->n_models);
	struct mt_message *message;
	struct mt_model *model;

	if (index == MOETRACE_MAX_MODELS)
		return mt_session_error(session, MOETRACE_E_LIMIT, "model: there are %u already",
					index);
	message = mt_message_new(MT_MESSAGE_MODEL, NULL, NULL);
	model = message ? copy_model(info, session->n_layers_added + 1) : NULL;
	if (!model) {
		free(message);
		return mt_session_error(session, MOETRACE_E_NOMEM, "out of memory");
	}
	model->model_id = index + 1;
	session->models[index] = model;
	session->n_layers_added += model->n_layers;
	message->model = index;
	mt_session_post(session, message);
	/* Releases the model to the hot path; its message is in the queue before any record. */
	atomic_store(&session->n_models, index + 1);
	*ret_model = index + 1;
	return MOETRACE_OK;
}

int moetrace_rule_add(struct moetrace_session *session, const char *name, uint32_t *ret_rule)
{
	struct mt_message *message;

	if (ret_rule)
		*ret_rule = 0;
	if (!session)
		return MOETRACE_E_INVALID;
	if (atomic_load(&session->forked))
		return MOETRACE_E_STATE;
	if (!ret_rule || !name || !*name)
		return mt_session_error(session, MOETRACE_E_INVALID,
					"rule: no name, or nowhere to put the handle");
	message = mt_message_new(MT_MESSAGE_RULE, name, NULL);
	if (!message)
		return mt_session_error(session, MOETRACE_E_NOMEM, "out of memory");
	pthread_mutex_lock(&session->control);
	message->number = atomic_load(&session->n_rules) + 1;
	*ret_rule = (uint32_t)message->number;
	mt_session_post(session, message);
	/* Its message is in the queue before any record can name it. */
	atomic_store(&session->n_rules, *ret_rule);
	pthread_mutex_unlock(&session->control);
	return MOETRACE_OK;
}

int moetrace_model_add(struct moetrace_session *session, const struct moetrace_model_info *info,
		       uint32_t *ret_model)
{
	struct moetrace_model_info room;
	int status;

	if (ret_model)
		*ret_model = 0;
	if (!session || !ret_model)
		return MOETRACE_E_INVALID;
	if (atomic_load(&session->forked))
		return MOETRACE_E_STATE;
	if (!info || !mt_abi_knows(info->size, MT_FIRST_MODEL_INFO))
		return mt_session_error(session, MOETRACE_E_INVALID,
					"model: no description, or its size is not set");
	info = MT_ABI_WIDEN(info, &room);
	status = check_model(session, info);
	if (status)
		return status;
	pthread_mutex_lock(&session->control);
	status = add_locked(session, info, ret_model);
	pthread_mutex_unlock(&session->control);
	return status;
}
