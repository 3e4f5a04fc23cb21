/* SPDX-License-Identifier: MIT */
/*
 * The check of a routing setting. What passes it can be routed without a further test: products
 * of its sizes fit 32 bits, enum values index tables, and the kept groups hold top_k experts.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include <moetrace/status.h>

#include "kernels/route/route.h"

static const char *const scoring_names[MTK_ROUTE_N_SCORINGS] = {
	[MTK_ROUTE_SOFTMAX] = "softmax",
	[MTK_ROUTE_SIGMOID] = "sigmoid",
	[MTK_ROUTE_SQRTSOFTPLUS] = "sqrtsoftplus",
	[MTK_ROUTE_SOFTMAX_SELECTED] = "softmax-selected",
	[MTK_ROUTE_SPARSEMIXER] = "sparsemixer",
};

static const char *const bias_names[MTK_ROUTE_N_BIASES] = {
	[MTK_ROUTE_BIAS_NONE] = "none",
	[MTK_ROUTE_BIAS_LOGIT] = "logit",
	[MTK_ROUTE_BIAS_LOGIT_CHOICE] = "logit-choice",
	[MTK_ROUTE_BIAS_SCORE] = "score",
};

static const char *const groups_names[MTK_ROUTE_N_GROUPINGS] = {
	[MTK_ROUTE_GROUPS_NONE] = "none",
	[MTK_ROUTE_GROUPS_MAX] = "max",
	[MTK_ROUTE_GROUPS_TOP2] = "top2",
	[MTK_ROUTE_GROUPS_TOPN] = "topn",
};

static const char *const renormalise_names[MTK_ROUTE_N_RENORMALISE] = {
	[MTK_ROUTE_RENORMALISE_NONE] = "none",
	[MTK_ROUTE_RENORMALISE_EPSILON] = "epsilon",
	[MTK_ROUTE_RENORMALISE_IF_POSITIVE] = "if-positive",
	[MTK_ROUTE_RENORMALISE_CLAMP] = "clamp",
};

const char *mtk_route_scoring_name(enum mtk_route_scoring scoring)
{
	return (unsigned int)scoring < MTK_ROUTE_N_SCORINGS ? scoring_names[scoring] : NULL;
}

const char *mtk_route_bias_name(enum mtk_route_bias bias)
{
	return (unsigned int)bias < MTK_ROUTE_N_BIASES ? bias_names[bias] : NULL;
}

const char *mtk_route_groups_name(enum mtk_route_groups groups)
{
	return (unsigned int)groups < MTK_ROUTE_N_GROUPINGS ? groups_names[groups] : NULL;
}

const char *mtk_route_renormalise_name(enum mtk_route_renormalise renormalise)
{
	return (unsigned int)renormalise < MTK_ROUTE_N_RENORMALISE ? renormalise_names[renormalise]
								   : NULL;
}

__attribute__((format(printf, 2, 3))) static int refuse(char *message, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(message, MTK_ROUTE_MESSAGE_BYTES, format, list);
	va_end(list);
	return MOETRACE_E_INVALID;
}

static int check_enums(const struct mtk_route_config *config, char *message)
{
	const struct {
		const char *field;
		unsigned int value;
		unsigned int n_values;
	} enums[] = {
		{"scoring", config->scoring, MTK_ROUTE_N_SCORINGS},
		{"softplus", config->softplus, MTK_ROUTE_N_SOFTPLUS},
		{"choose_by", config->choose_by, MTK_ROUTE_N_CHOOSE_BY},
		{"bias", config->bias, MTK_ROUTE_N_BIASES},
		{"groups", config->groups, MTK_ROUTE_N_GROUPINGS},
		{"renormalise", config->renormalise, MTK_ROUTE_N_RENORMALISE},
		{"scale_owner", config->scale_owner, MTK_ROUTE_N_SCALE_OWNERS},
		{"shared", config->shared, MTK_ROUTE_N_SHARED},
		{"output", config->output, MTK_ROUTE_N_OUTPUTS},
	};

	for (size_t i = 0; i < sizeof(enums) / sizeof(enums[0]); i++)
		if (enums[i].value >= enums[i].n_values)
			return refuse(message, "%s is %u, which is unknown: expected 0 to %u",
				      enums[i].field, enums[i].value, enums[i].n_values - 1);
	return MOETRACE_OK;
}

static int check_sizes(const struct mtk_route_config *config, char *message)
{
	const uint32_t n_experts = config->n_experts;
	const uint32_t n_zero = config->n_zero_experts;

	if (n_experts < 1 || n_experts > MTK_ROUTE_MAX_COLUMNS)
		return refuse(message, "n_experts is %u, expected 1 to %d", n_experts,
			      MTK_ROUTE_MAX_COLUMNS);
	if (n_zero > MTK_ROUTE_MAX_COLUMNS - n_experts)
		return refuse(message,
			      "n_zero_experts is %u, expected at most %u, so that with n_experts, "
			      "which is %u, there are no more than %d",
			      n_zero, MTK_ROUTE_MAX_COLUMNS - n_experts, n_experts,
			      MTK_ROUTE_MAX_COLUMNS);
	if (config->top_k < 1 || config->top_k > MTK_ROUTE_MAX_TOP_K)
		return refuse(message, "top_k is %u, expected 1 to %d", config->top_k,
			      MTK_ROUTE_MAX_TOP_K);
	if (config->top_k > n_experts + n_zero)
		return refuse(message, "top_k is %u, expected at most the experts, which are %u",
			      config->top_k, n_experts + n_zero);
	return MOETRACE_OK;
}

static int check_group_sizes(const struct mtk_route_config *config, char *message)
{
	const uint32_t n_columns = mtk_route_columns(config);
	const uint32_t n_groups = config->n_groups;
	const uint32_t n_keep = config->n_keep_groups;

	if (n_groups < 1 || n_groups > MTK_ROUTE_MAX_GROUPS)
		return refuse(message, "n_groups is %u, expected 1 to %d", n_groups,
			      MTK_ROUTE_MAX_GROUPS);
	if (n_columns % n_groups != 0)
		return refuse(message, "n_groups is %u, which does not divide the %u experts",
			      n_groups, n_columns);
	if (n_keep < 1 || n_keep > n_groups)
		return refuse(message, "n_keep_groups is %u, expected 1 to n_groups, which is %u",
			      n_keep, n_groups);
	if (config->top_k > n_keep * (n_columns / n_groups))
		return refuse(message,
			      "top_k is %u, but the kept groups hold %u experts (%u groups of %u)",
			      config->top_k, n_keep * (n_columns / n_groups), n_keep,
			      n_columns / n_groups);
	return MOETRACE_OK;
}

static int check_groups(const struct mtk_route_config *config, char *message)
{
	uint32_t n_top = config->group_top_n;
	uint32_t size;

	if (config->groups == MTK_ROUTE_GROUPS_NONE) {
		if (config->n_groups != 0 || config->n_keep_groups != 0)
			return refuse(message,
				      "n_groups is %u and n_keep_groups %u, expected 0 "
				      "where groups is none",
				      config->n_groups, config->n_keep_groups);
		return MOETRACE_OK;
	}
	if (check_group_sizes(config, message))
		return MOETRACE_E_INVALID;
	size = mtk_route_columns(config) / config->n_groups;
	if (config->groups == MTK_ROUTE_GROUPS_TOP2 && size < 2)
		return refuse(message, "groups is top2, but a group has one expert: give max");
	if (config->groups == MTK_ROUTE_GROUPS_TOPN &&
	    (n_top < 1 || n_top > size || n_top > MTK_ROUTE_MAX_TOP_K))
		return refuse(message,
			      "group_top_n is %u, expected 1 to the experts of a group, which are "
			      "%u, and at most %d",
			      n_top, size, MTK_ROUTE_MAX_TOP_K);
	return MOETRACE_OK;
}

static int check_reals(const struct mtk_route_config *config, char *message)
{
	if (!(config->scale >= MTK_ROUTE_MIN_SCALE && config->scale <= MTK_ROUTE_MAX_SCALE))
		return refuse(message,
			      "scale is %g, expected a finite number above 0, from %g to %g",
			      config->scale, MTK_ROUTE_MIN_SCALE, MTK_ROUTE_MAX_SCALE);
	if (!isfinite(config->soft_cap) || config->soft_cap < 0.0)
		return refuse(message, "soft_cap is %g, expected a finite number, 0 for none",
			      config->soft_cap);
	if (!(fabs(config->shared_weight) <= MTK_ROUTE_MAX_SCALE))
		return refuse(message, "shared_weight is %g, expected a finite number, %g to %g",
			      config->shared_weight, -MTK_ROUTE_MAX_SCALE, MTK_ROUTE_MAX_SCALE);
	if (config->scoring == MTK_ROUTE_SPARSEMIXER &&
	    (!isfinite(config->jitter) || config->jitter < 0.0))
		return refuse(message, "jitter is %g, expected a finite number of at least 0",
			      config->jitter);
	if (config->renormalise == MTK_ROUTE_RENORMALISE_CLAMP &&
	    !(config->renormalise_min > 0.0 && config->renormalise_min <= MTK_ROUTE_MAX_SCALE))
		return refuse(message,
			      "renormalise_min is %g, expected a finite number above 0, at most %g",
			      config->renormalise_min, MTK_ROUTE_MAX_SCALE);
	return MOETRACE_OK;
}

/* Settings that are each valid and contradict each other. */
static int check_scoring(const struct mtk_route_config *config, char *message)
{
	const char *scoring = scoring_names[config->scoring];

	if (config->scoring == MTK_ROUTE_SPARSEMIXER &&
	    (config->bias != MTK_ROUTE_BIAS_NONE || config->groups != MTK_ROUTE_GROUPS_NONE ||
	     config->hash_table))
		return refuse(message,
			      "scoring is sparsemixer, which has no bias, groups or hash table");
	if (config->bias == MTK_ROUTE_BIAS_SCORE &&
	    (config->scoring == MTK_ROUTE_SOFTMAX_SELECTED ||
	     config->choose_by == MTK_ROUTE_BY_LOGIT))
		return refuse(message,
			      "bias is score, but scoring %s%s chooses by logits: give bias "
			      "logit-choice or logit",
			      scoring,
			      config->choose_by == MTK_ROUTE_BY_LOGIT ? " with choose_by logit"
								      : "");
	if (config->bias_per_token && config->bias == MTK_ROUTE_BIAS_NONE)
		return refuse(message, "bias_per_token is set, but bias is none");
	return MOETRACE_OK;
}

static int check_shared(const struct mtk_route_config *config, char *message)
{
	const uint32_t n_local = config->n_local_experts;

	if (config->n_shared_slots > MTK_ROUTE_MAX_SHARED)
		return refuse(message, "n_shared_slots is %u, expected at most %d",
			      config->n_shared_slots, MTK_ROUTE_MAX_SHARED);
	if (config->n_shared_slots == 0 || config->shared == MTK_ROUTE_SHARED_GLOBAL)
		return MOETRACE_OK;
	if (config->n_zero_experts != 0)
		return refuse(message,
			      "n_zero_experts is %u, expected 0 where shared slots lie in "
			      "each rank's block",
			      config->n_zero_experts);
	if (n_local < 1 || config->n_experts % n_local != 0)
		return refuse(message,
			      "n_local_experts is %u, which does not divide n_experts, "
			      "which is %u",
			      n_local, config->n_experts);
	if (config->rank >= config->n_experts / n_local)
		return refuse(message, "rank is %u, expected below %u, the number of blocks",
			      config->rank, config->n_experts / n_local);
	return MOETRACE_OK;
}

/* The ids that a layer can emit are below this. */
static uint32_t id_limit(const struct mtk_route_config *config)
{
	uint32_t n_blocks = 1;

	if (config->n_shared_slots != 0 && config->shared == MTK_ROUTE_SHARED_BLOCK)
		n_blocks = config->n_experts / config->n_local_experts;
	return mtk_route_columns(config) + n_blocks * config->n_shared_slots;
}

static int check_output(const struct mtk_route_config *config, char *message)
{
	if (config->output == MTK_ROUTE_OUTPUT_NONE && config->has_expert_map)
		return refuse(message,
			      "output is none, so the code that runs the experts routes by "
			      "itself, but has_expert_map says that ids must be mapped");
	if (config->output == MTK_ROUTE_OUTPUT_PACKED && id_limit(config) > 32768)
		return refuse(message,
			      "output is packed, which holds ids below 32768, but there "
			      "are %u",
			      id_limit(config));
	return MOETRACE_OK;
}

static int check_hash_token(const struct mtk_route_config *config, uint32_t token, char *message)
{
	const int32_t *ids = config->hash_table + (size_t)token * config->top_k;

	for (uint32_t j = 0; j < config->top_k; j++) {
		if (ids[j] < 0 || (uint32_t)ids[j] >= mtk_route_columns(config))
			return refuse(message,
				      "hash_table has id %d for token %u, expected 0 to %u", ids[j],
				      token, mtk_route_columns(config) - 1);
		for (uint32_t i = 0; i < j; i++)
			if (ids[i] == ids[j])
				return refuse(message, "hash_table has id %d twice for token %u",
					      ids[j], token);
	}
	return MOETRACE_OK;
}

static int check_hash(const struct mtk_route_config *config, char *message)
{
	if (!config->hash_table)
		return MOETRACE_OK;
	if (config->n_hash_tokens < 1 || config->n_hash_tokens > INT32_MAX)
		return refuse(message, "n_hash_tokens is %u, expected 1 to %d",
			      config->n_hash_tokens, INT32_MAX);
	for (uint32_t token = 0; token < config->n_hash_tokens; token++)
		if (check_hash_token(config, token, message))
			return MOETRACE_E_INVALID;
	return MOETRACE_OK;
}

int mtk_route_config_check(const struct mtk_route_config *config, char *message)
{
	if (check_enums(config, message) || check_sizes(config, message) ||
	    check_groups(config, message) || check_reals(config, message) ||
	    check_scoring(config, message) || check_shared(config, message) ||
	    check_output(config, message) || check_hash(config, message))
		return MOETRACE_E_INVALID;
	return MOETRACE_OK;
}
