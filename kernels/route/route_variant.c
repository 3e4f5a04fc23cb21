/* SPDX-License-Identifier: MIT */
/*
 * Which code serves a setting. A variant's refusal is found by one function, which the choice and
 * the explanation share, so that what is recorded is what runs. The first variant in the order of
 * the enum that does not refuse serves.
 */
#include <stdio.h>

#include "kernels/route/route.h"
#include "kernels/route/route_variant.h"

/* Why vectors cannot serve at all; NULL: they can. */
static const char *vector_refusal(const struct mtk_route_config *config)
{
	if (config->hash_table)
		return "no hash table";
	if (config->scoring == MTK_ROUTE_SPARSEMIXER)
		return "no sparsemixer";
	if (config->soft_cap > 0.0)
		return "no soft cap";
	if (config->bias == MTK_ROUTE_BIAS_LOGIT)
		return "no bias in the logit";
	if (config->scoring == MTK_ROUTE_SQRTSOFTPLUS && config->softplus == MTK_ROUTE_SOFTPLUS_LOG)
		return "sqrtsoftplus by log1p only";
	return NULL;
}

enum refusal {
	REFUSAL_NONE,
	REFUSAL_SIZE,
	REFUSAL_UNGROUPED,
	REFUSAL_N_GROUPS,
	REFUSAL_TOP_N,
	REFUSAL_VECTOR,
};

static uint32_t group_size(const struct mtk_route_config *config)
{
	return mtk_route_columns(config) / (config->n_groups > 0 ? config->n_groups : 1);
}

static enum refusal grouped_refusal(const struct mtk_route_config *config)
{
	if (group_size(config) > MTK_ROUTE_GROUPED_SIZE)
		return REFUSAL_SIZE;
	if (config->groups == MTK_ROUTE_GROUPS_NONE)
		return REFUSAL_UNGROUPED;
	if (config->n_groups > MTK_ROUTE_GROUPED_GROUPS)
		return REFUSAL_N_GROUPS;
	if (config->groups == MTK_ROUTE_GROUPS_TOPN && config->group_top_n > 2)
		return REFUSAL_TOP_N;
	return vector_refusal(config) ? REFUSAL_VECTOR : REFUSAL_NONE;
}

static void grouped_reason(const struct mtk_route_config *config, char *ret_text, size_t n_bytes)
{
	uint32_t n_groups = config->n_groups > 0 ? config->n_groups : 1;

	switch (grouped_refusal(config)) {
	case REFUSAL_SIZE:
		snprintf(ret_text, n_bytes,
			 "at most %d experts a group; this layer has %u in %u %s",
			 MTK_ROUTE_GROUPED_SIZE, group_size(config), n_groups,
			 n_groups == 1 ? "group" : "groups");
		break;
	case REFUSAL_UNGROUPED:
		snprintf(ret_text, n_bytes, "only layers with groups");
		break;
	case REFUSAL_N_GROUPS:
		snprintf(ret_text, n_bytes, "at most %d groups; this layer has %u",
			 MTK_ROUTE_GROUPED_GROUPS, n_groups);
		break;
	case REFUSAL_TOP_N:
		snprintf(ret_text, n_bytes, "group scores of at most 2 experts; this layer adds %u",
			 config->group_top_n);
		break;
	default:
		snprintf(ret_text, n_bytes, "%s", vector_refusal(config));
		break;
	}
}

enum mtk_route_variant mtk_route_variant_choose(const struct mtk_route_config *config)
{
	if (vector_refusal(config))
		return MTK_ROUTE_VARIANT_PLAIN;
	return grouped_refusal(config) == REFUSAL_NONE ? MTK_ROUTE_VARIANT_GROUPED
						       : MTK_ROUTE_VARIANT_GENERAL;
}

void mtk_route_variant_explain(const struct mtk_route_config *config, bool has_vectors,
			       struct mtk_route_variant_info ret_info[MTK_ROUTE_N_VARIANTS])
{
	static const char *const names[MTK_ROUTE_N_VARIANTS] = {"fast grouped", "fast general",
								"plain"};
	static const char *const qualities[MTK_ROUTE_N_VARIANTS] = {
		"vectors, a group in two of them", "vectors, any experts and groups",
		"the definition, any setting"};
	enum mtk_route_variant serving =
		has_vectors ? mtk_route_variant_choose(config) : MTK_ROUTE_VARIANT_PLAIN;

	for (int v = 0; v < MTK_ROUTE_N_VARIANTS; v++) {
		struct mtk_route_variant_info *info = &ret_info[v];
		const size_t n_bytes = sizeof(info->reason);

		info->name = names[v];
		info->serves = v == (int)serving;
		if (info->serves)
			snprintf(info->reason, n_bytes, "%s", qualities[v]);
		else if (v > (int)serving)
			snprintf(info->reason, n_bytes, "%s is faster", names[serving]);
		else if (!has_vectors)
			snprintf(info->reason, n_bytes,
				 "this processor, or the choice of its level, "
				 "has no vectors");
		else if (v == MTK_ROUTE_VARIANT_GROUPED)
			grouped_reason(config, info->reason, n_bytes);
		else
			snprintf(info->reason, n_bytes, "%s", vector_refusal(config));
	}
}

void mtk_route_variant_reason(const struct mtk_route_config *config, bool has_vectors,
			      char *ret_text, size_t n_bytes)
{
	struct mtk_route_variant_info info[MTK_ROUTE_N_VARIANTS];
	size_t n = 0;

	mtk_route_variant_explain(config, has_vectors, info);
	ret_text[0] = '\0';
	for (int pass = 0; pass < 2; pass++)
		for (int v = 0; v < MTK_ROUTE_N_VARIANTS; v++)
			if (info[v].serves == (pass == 0) && n < n_bytes)
				n += (size_t)snprintf(ret_text + n, n_bytes - n, "%s%s%s: %s",
						      pass == 0 ? "" : "; ", info[v].name,
						      info[v].serves ? " serves" : "",
						      info[v].reason);
}
