/* SPDX-License-Identifier: MIT */
/*
 * models: the known models with their routing and dimensions, one row each; or one of them, with
 * the code that would route it here and why.
 */
#include <stdio.h>
#include <string.h>

#include <moetrace/moetrace.h>

#include "cli/cli.h"
#include "kernels/cpu.h"
#include "kernels/presets/presets.h"

struct options {
	struct mt_args args;
	const char *name; /* NULL: all */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->args;
		return 0;
	case ARGP_KEY_ARG:
		if (options->name)
			return ARGP_ERR_UNKNOWN;
		options->name = arg;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_child children[] = {{&mt_args_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.parser = parse,
	.args_doc = "[NAME]",
	.doc = "List the known models: how each routes, and its dimensions"
	       "\v"
	       "Unknown numbers are '-' in tables, null in JSON. With NAME, only that model, and "
	       "why the code that routes it was chosen. 'moetrace route --preset NAME' routes by a "
	       "model's rule.",
	.children = children,
};

static const char *const columns[] = {
	"name",
	"n_experts",
	"n_zero_experts",
	"top_k",
	"scoring",
	"bias",
	"n_groups",
	"topk_groups",
	"group_score",
	"renormalize",
	"routed_scaling_factor",
	"weight_kind",
	"n_shared",
	"n_layers",
	"n_moe_layers",
	"n_dense_layers",
	"n_hash_layers",
	"hidden",
	"latent",
	"intermediate",
	"shared_intermediate",
	"dense_intermediate",
	"vocab",
	"note",
	"router_impl",
	"impl_reason",
};

#define N_COLUMNS (sizeof(columns) / sizeof(columns[0]))

static void number_add(struct mt_table *table, uint32_t value)
{
	if (value != 0)
		mt_table_int64(table, value);
	else
		mt_table_null(table);
}

static void text_add(struct mt_table *table, const char *text)
{
	if (text)
		mt_table_text(table, text);
	else
		mt_table_null(table);
}

static const char *weight_kind_name(uint32_t kind)
{
	switch (kind) {
	case MOETRACE_WEIGHT_RENORMALIZED:
		return "renormalized";
	case MOETRACE_WEIGHT_SCALED:
		return "scaled";
	case MOETRACE_WEIGHT_RENORMALIZED | MOETRACE_WEIGHT_SCALED:
		return "renormalized+scaled";
	default:
		return "raw";
	}
}

static void routing_add(struct mt_table *table, const struct mtk_preset *preset)
{
	const struct mtk_route_config *route = &preset->route;
	const bool is_known = preset->has_routing;

	mt_table_int64(table, route->n_experts);
	mt_table_int64(table, route->n_zero_experts);
	mt_table_int64(table, route->top_k);
	text_add(table, is_known ? mtk_route_scoring_name(route->scoring) : NULL);
	text_add(table, is_known ? mtk_route_bias_name(route->bias) : NULL);
	number_add(table, route->n_groups);
	number_add(table, route->n_keep_groups);
	text_add(table, is_known ? mtk_route_groups_name(route->groups) : NULL);
	text_add(table, is_known ? mtk_route_renormalise_name(route->renormalise) : NULL);
	if (is_known)
		mt_table_double(table, route->scale);
	else
		mt_table_null(table);
	text_add(table, is_known ? weight_kind_name(mtk_route_weight_kind(route)) : NULL);
}

static void dimensions_add(struct mt_table *table, const struct mtk_preset *preset)
{
	/* Where layers are known, none of a kind is a number, too. */
	if (preset->n_layers != 0)
		mt_table_int64(table, preset->n_shared_experts);
	else
		mt_table_null(table);
	number_add(table, preset->n_layers);
	number_add(table, preset->n_moe_layers);
	if (preset->n_moe_layers != 0) {
		mt_table_int64(table, preset->n_dense_layers);
		mt_table_int64(table, preset->n_hash_layers);
	} else {
		mt_table_null(table);
		mt_table_null(table);
	}
	number_add(table, preset->n_hidden);
	number_add(table, preset->n_latent);
	number_add(table, preset->n_intermediate);
	number_add(table, preset->n_shared_intermediate);
	number_add(table, preset->n_dense_intermediate);
	number_add(table, preset->n_vocab);
	text_add(table, preset->note);
}

static void preset_add(struct mt_table *table, const struct mtk_preset *preset, bool has_vectors,
		       bool is_one)
{
	struct mtk_route_variant_info info[MTK_ROUTE_N_VARIANTS];
	char reason[MTK_ROUTE_REASON_BYTES];
	const char *impl = NULL;

	mt_table_text(table, preset->name);
	routing_add(table, preset);
	dimensions_add(table, preset);
	mtk_route_variant_explain(&preset->route, has_vectors, info);
	for (int v = 0; v < MTK_ROUTE_N_VARIANTS; v++)
		impl = info[v].serves ? info[v].name : impl;
	text_add(table, preset->has_routing ? impl : NULL);
	if (!is_one)
		return;
	mtk_route_variant_reason(&preset->route, has_vectors, reason, sizeof(reason));
	text_add(table, preset->has_routing ? reason : NULL);
}

static int models_print(const struct options *options, const struct mtk_preset *one)
{
	const struct mtk_cpu_ops *ops = mtk_cpu_ops_choose();
	const bool has_vectors = ops && ops != mtk_cpu_ops_find(MTK_CPU_PLAIN);
	const struct mtk_preset *presets;
	struct mt_output output;
	struct mt_table table;
	size_t n_presets;

	mt_output_begin(&output, stdout, options->args.format);
	output.is_vertical = one != NULL;
	if (mt_table_begin(&table, &output, columns, one ? N_COLUMNS : N_COLUMNS - 1)) {
		mt_error("out of memory");
		return MT_EXIT_FAILED;
	}
	presets = mtk_presets(&n_presets);
	for (size_t i = 0; i < n_presets; i++)
		if (!one || one == &presets[i])
			preset_add(&table, &presets[i], has_vectors, one != NULL);
	if (mt_table_end(&table)) {
		mt_error("out of memory");
		return MT_EXIT_FAILED;
	}
	mt_output_end(&output);
	return MT_EXIT_OK;
}

int mt_cmd_models(int argc, char **argv)
{
	struct options options = {.args.no_file = true};
	const struct mtk_preset *one = NULL;
	int status = mt_args_parse(&argp, argc, argv, &options.args, &options);

	if (status != MT_EXIT_OK)
		return status;
	if (options.name) {
		one = mtk_preset_find(options.name);
		if (!one) {
			mt_error("no model is called '%s'; 'moetrace models' lists them",
				 options.name);
			return MT_EXIT_NOT_FOUND;
		}
	}
	return models_print(&options, one);
}
