/* SPDX-License-Identifier: MIT */
/*
 * A layer against the published router of a family. What the layer does not say is taken from the
 * preset before rows are looked at; what it says otherwise is a finding. Draft models are not
 * compared: they have routers of their own.
 */
#include "cli/routing.h"

#include <math.h>

static enum routing_scoring scoring_of(enum mtk_route_scoring scoring)
{
	static const enum routing_scoring scorings[MTK_ROUTE_N_SCORINGS] = {
		[MTK_ROUTE_SOFTMAX] = ROUTING_SOFTMAX,
		[MTK_ROUTE_SIGMOID] = ROUTING_SIGMOID,
		[MTK_ROUTE_SQRTSOFTPLUS] = ROUTING_SQRTSOFTPLUS,
		[MTK_ROUTE_SOFTMAX_SELECTED] = ROUTING_SOFTMAX_SELECTED,
		[MTK_ROUTE_SPARSEMIXER] = ROUTING_SPARSEMIXER,
	};

	return scorings[scoring];
}

static const char *scoring_name(enum routing_scoring scoring)
{
	static const char *const names[] = {
		[ROUTING_SCORING_UNKNOWN] = "not told",
		[ROUTING_SOFTMAX] = "softmax",
		[ROUTING_SIGMOID] = "sigmoid",
		[ROUTING_SQRTSOFTPLUS] = "sqrtsoftplus",
		[ROUTING_SOFTMAX_SELECTED] = "softmax_selected",
		[ROUTING_SPARSEMIXER] = "sparsemixer",
	};

	return names[scoring];
}

/* A group's score is a sum of so many; 0: without groups, or with one that is always kept. */
static uint32_t group_top_n_of(const struct mtk_route_config *route)
{
	if (route->groups == MTK_ROUTE_GROUPS_NONE || route->n_groups < 2)
		return 0;
	return route->groups == MTK_ROUTE_GROUPS_MAX	? 1
	       : route->groups == MTK_ROUTE_GROUPS_TOP2 ? 2
							: route->group_top_n;
}

void routing_preset_fill(const struct mtk_preset *preset, struct routing_layer *layer)
{
	const struct mtk_route_config *route = &preset->route;

	if (!layer->is_target || !preset->has_routing || layer->n_experts != route->n_experts)
		return;
	if (layer->scoring == ROUTING_SCORING_UNKNOWN)
		layer->scoring = scoring_of(route->scoring);
	if (layer->n_groups == 0 && group_top_n_of(route) > 0) {
		layer->n_groups = route->n_groups;
		layer->topk_groups = route->n_keep_groups;
	}
	if (layer->group_top_n == 0)
		layer->group_top_n = group_top_n_of(route);
	if (layer->has_bias < 0)
		layer->has_bias = route->bias != MTK_ROUTE_BIAS_NONE;
	if (layer->factor == 0)
		layer->factor = route->scale;
	if (layer->renormalize < 0)
		layer->renormalize = route->renormalise != MTK_ROUTE_RENORMALISE_NONE;
}

struct compared {
	struct routing *routing;
	const struct routing_layer *layer;
	int status;
};

static void differs(struct compared *c, const char *rule, const char *name, double is,
		    double published)
{
	const struct routing_fault fault = {.n_seen = 1, .n_bad = 1};

	if (c->status == MT_EXIT_OK && fabs(is - published) > 1e-6 * fabs(published))
		c->status = routing_find(c->routing, ROUTING_PRESET, true, rule, 0, c->layer,
					 &fault, "%s is %.6g, of %s %.6g", name, is,
					 c->routing->preset->name, published);
}

static void sizes_compare(struct compared *c)
{
	const struct routing_layer *layer = c->layer;
	const struct mtk_preset *preset = c->routing->preset;

	differs(c, "the number of experts", "n_experts", layer->n_experts, preset->route.n_experts);
	differs(c, "the number of zero experts", "n_zero_experts", layer->n_zero,
		preset->route.n_zero_experts);
	differs(c, "top-k without shared slots", "top_k - n_shared_slots", layer->k_routed,
		preset->route.top_k);
	if (layer->n_shared > preset->n_shared_experts && preset->n_layers != 0)
		differs(c, "shared slots are at most the shared experts", "n_shared_slots",
			layer->n_shared, preset->n_shared_experts);
}

static void number_compare(struct compared *c)
{
	const struct routing_layer *layer = c->layer;
	const struct mtk_preset *preset = c->routing->preset;
	const struct routing_fault fault = {.n_seen = 1, .n_bad = 1};
	int64_t number;

	if (preset->n_moe_layers == 0 || c->status != MT_EXIT_OK)
		return;
	c->routing->n_seen[ROUTING_LAYER_SHIFT]++;
	if (layer->moe_ordinal >= preset->n_moe_layers) {
		differs(c, "the number of layers with experts", "moe_ordinal",
			(double)layer->moe_ordinal, preset->n_moe_layers - 1.0);
		return;
	}
	number = mtk_preset_layer_number(preset, (uint32_t)layer->moe_ordinal);
	if (number != layer->layer)
		c->status = routing_find(
			c->routing, ROUTING_LAYER_SHIFT, true,
			"layers with experts have the published numbers", 0, layer, &fault,
			"the layer with experts number %lld is layer %lld, of %s %lld",
			(long long)layer->moe_ordinal, (long long)layer->layer, preset->name,
			(long long)number);
	if (c->status == MT_EXIT_OK)
		differs(c, "layers that choose by token id", "kind 'hash'", layer->is_hash,
			layer->moe_ordinal < preset->n_hash_layers);
}

static void groups_compare(struct compared *c)
{
	const struct routing_layer *layer = c->layer;
	const struct mtk_route_config *route = &c->routing->preset->route;
	const uint32_t top_n = group_top_n_of(route);

	/* One group is none, and so are groups that are all kept. */
	if (top_n == 0 && (layer->n_groups < 2 || layer->topk_groups == layer->n_groups))
		return;
	differs(c, "the number of groups", "n_groups", layer->n_groups,
		top_n ? route->n_groups : 0);
	differs(c, "the groups that are kept", "topk_groups", layer->topk_groups,
		top_n ? route->n_keep_groups : 0);
	differs(c, "the values that a group's score is the sum of", "group_top_n",
		layer->group_top_n, top_n);
}

static void semantics_compare(struct compared *c)
{
	const struct routing_layer *layer = c->layer;
	const struct mtk_preset *preset = c->routing->preset;
	const struct mtk_route_config *route = &preset->route;
	const bool is_renormalized = route->renormalise != MTK_ROUTE_RENORMALISE_NONE;
	const struct routing_fault fault = {.n_seen = 1, .n_bad = 1};

	if (layer->scoring != scoring_of(route->scoring) && c->status == MT_EXIT_OK)
		c->status = routing_find(c->routing, ROUTING_PRESET, true, "the score function", 0,
					 layer, &fault, "scoring is %s, of %s %s",
					 scoring_name(layer->scoring), preset->name,
					 scoring_name(scoring_of(route->scoring)));
	/* A layer that chooses by token id has no use for what acts on the choice. */
	if (!layer->is_hash) {
		groups_compare(c);
		differs(c, "a bias that acts on the choice", "has_correction_bias", layer->has_bias,
			route->bias != MTK_ROUTE_BIAS_NONE);
	}
	differs(c, "renormalization", "renormalize", layer->renormalize, is_renormalized);
	/* A softmax of the selected adds up to 1 either way. */
	if (layer->weight_kind && route->scoring != MTK_ROUTE_SOFTMAX_SELECTED &&
	    layer->weight_kind & ROUTING_RENORMALIZED && layer->renormalize == is_renormalized)
		differs(c, "renormalization of the stored weights", "weight_kind 'renormalized'", 1,
			is_renormalized);
	differs(c, "the scaling factor", "routed_scaling_factor", layer->factor, route->scale);
}

int routing_preset_compare(struct routing *routing)
{
	struct compared c = {.routing = routing, .status = MT_EXIT_OK};

	for (size_t i = 0; routing->preset && i < routing->n_layers; i++) {
		c.layer = &routing->layers[i];
		if (!c.layer->is_target)
			continue;
		routing->n_seen[ROUTING_PRESET]++;
		sizes_compare(&c);
		number_compare(&c);
		if (routing->preset->has_routing)
			semantics_compare(&c);
	}
	return c.status;
}
