/* SPDX-License-Identifier: MIT */
/*
 * The check of a model's hyper-parameters. What passes it has products that fit 64 bits: every
 * later size is computed from these fields and from nothing else.
 */
#include <math.h>
#include <stdio.h>

#include <moetrace/status.h>

#include "kernels/engine/model.h"
#include "kernels/route/route.h"

struct limit {
	const char *name;
	uint32_t value;
	uint32_t max;
};

static int check_limit(const struct limit *limit, char *message)
{
	if (limit->value >= 1 && limit->value <= limit->max)
		return MOETRACE_OK;
	snprintf(message, MTK_MESSAGE_BYTES, "%s is %u, expected 1 to %u", limit->name,
		 limit->value, limit->max);
	return MOETRACE_E_INVALID;
}

static int check_real(const char *name, float value, char *message)
{
	if (isfinite(value) && value > 0.0f)
		return MOETRACE_OK;
	snprintf(message, MTK_MESSAGE_BYTES, "%s is %g, expected a finite number above 0", name,
		 (double)value);
	return MOETRACE_E_INVALID;
}

static int check_relations(const struct mtk_model_config *config, char *message)
{
	if (config->head_dim % 2 != 0) {
		snprintf(message, MTK_MESSAGE_BYTES, "head_dim is %u, expected an even number",
			 config->head_dim);
		return MOETRACE_E_INVALID;
	}
	if (config->n_heads % config->n_kv_heads != 0) {
		snprintf(message, MTK_MESSAGE_BYTES,
			 "num_attention_heads is %u, expected a multiple of num_key_value_heads, "
			 "which is %u",
			 config->n_heads, config->n_kv_heads);
		return MOETRACE_E_INVALID;
	}
	if (config->top_k > config->n_experts) {
		snprintf(message, MTK_MESSAGE_BYTES,
			 "num_experts_per_tok is %u, expected at most num_experts, which is %u",
			 config->top_k, config->n_experts);
		return MOETRACE_E_INVALID;
	}
	return MOETRACE_OK;
}

int mtk_model_config_check(const struct mtk_model_config *config, char *message)
{
	const struct limit limits[] = {
		{"vocab_size", config->n_vocab, 1u << 24},
		{"hidden_size", config->n_hidden, 1u << 20},
		{"num_hidden_layers", config->n_layers, 1u << 12},
		{"num_attention_heads", config->n_heads, 1u << 12},
		{"num_key_value_heads", config->n_kv_heads, 1u << 12},
		{"head_dim", config->head_dim, 1u << 12},
		{"moe_intermediate_size", config->n_intermediate, 1u << 20},
		{"num_experts", config->n_experts, MTK_ROUTE_MAX_COLUMNS},
		{"num_experts_per_tok", config->top_k, MTK_ROUTE_MAX_TOP_K},
		{"context", config->n_context, 1u << 24},
	};

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		if (check_limit(&limits[i], message))
			return MOETRACE_E_INVALID;
	if (check_real("rms_norm_eps", config->rms_norm_eps, message) ||
	    check_real("rope_theta", config->rope_theta, message))
		return MOETRACE_E_INVALID;
	return check_relations(config, message);
}
