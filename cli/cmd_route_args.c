/* SPDX-License-Identifier: MIT */
/*
 * The command line of `moetrace route`: a preset is the start, options change its rule. What the
 * options make together is checked when the files are known.
 */
#include "cli/cmd_route.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/presets/presets.h"

enum {
	OPT_PRESET = MT_OPT_OWN,
	OPT_LOGITS,
	OPT_EXPERTS,
	OPT_TOP_K,
	OPT_SCORING,
	OPT_CHOOSE_BY,
	OPT_SOFTPLUS,
	OPT_SOFT_CAP,
	OPT_JITTER,
	OPT_BIAS_FILE,
	OPT_BIAS,
	OPT_GROUPS,
	OPT_KEEP_GROUPS,
	OPT_GROUP_SCORE,
	OPT_RENORMALIZE,
	OPT_SCALE,
	OPT_SCALE_OWNER,
	OPT_ZERO_EXPERTS,
	OPT_SHARED_SLOTS,
	OPT_SHARED_WEIGHT,
	OPT_SHARED_LOCAL,
	OPT_RANK,
	OPT_VALID_ROWS,
	OPT_HASH_TABLE,
	OPT_TOKEN_IDS,
	OPT_OUTPUT,
};

static const struct argp_option argp_options[] = {
	{"preset", OPT_PRESET, "NAME", 0, "The rule of a known model; 'moetrace models' lists them",
	 1},
	{"logits", OPT_LOGITS, "FILE.f32", 0, "Router logits: rows of --experts fp32 numbers", 1},
	{"experts", OPT_EXPERTS, "N", 0, "Columns of the file, zero experts included", 1},
	{"top-k", OPT_TOP_K, "K", 0, "Experts a row selects, at most 32", 1},
	{"format", OPT_OUTPUT, "FORMAT", 0,
	 "json (the default), csv or binary: for each row its ids as int32, then its weights as "
	 "fp32, little-endian",
	 1},
	{"scoring", OPT_SCORING, "NAME", 0,
	 "softmax, sigmoid, sqrtsoftplus, softmax-selected (of the chosen logits) or sparsemixer",
	 2},
	{"choose-by", OPT_CHOOSE_BY, "WHAT", 0, "score (the default) or logit", 2},
	{"softplus", OPT_SOFTPLUS, "FORM", 0, "log1p (the default), or log as fp32 kernels do", 2},
	{"soft-cap", OPT_SOFT_CAP, "X", 0, "Logits become X * tanh(logit / X) first", 2},
	{"jitter", OPT_JITTER, "X", 0, "Of sparsemixer [0.01]", 2},
	{"correction-bias", OPT_BIAS_FILE, "FILE.f32", 0,
	 "A bias of each column, or of each row and column", 3},
	{"bias", OPT_BIAS, "WHERE", 0,
	 "Where it acts: score (choice by score + bias; the default with a file), logit-choice "
	 "(choice by logit + bias), logit (choice and weight), none",
	 3},
	{"groups", OPT_GROUPS, "N", 0, "Groups of experts, of equal size", 4},
	{"keep-groups", OPT_KEEP_GROUPS, "N", 0, "Groups that a row may choose from", 4},
	{"group-score", OPT_GROUP_SCORE, "N", 0,
	 "A group's score: max, top2 (the default: the sum of its two best), or N best", 4},
	{"renormalize", OPT_RENORMALIZE, "HOW", 0,
	 "Divide weights by their sum: none, epsilon (sum + 1e-20), if-positive, or clamp:MIN", 5},
	{"scale", OPT_SCALE, "X", 0, "The routed scaling factor [1]", 5},
	{"scale-owner", OPT_SCALE_OWNER, "WHO", 0,
	 "router (the default: weights include it) or output", 5},
	{"zero-experts", OPT_ZERO_EXPERTS, "N", 0, "The last N columns compute nothing", 6},
	{"shared-slots", OPT_SHARED_SLOTS, "N", 0, "Shared experts that follow each row's choice",
	 6},
	{"shared-weight", OPT_SHARED_WEIGHT, "X", 0, "The weight of each shared slot [1]", 6},
	{"shared-local", OPT_SHARED_LOCAL, "N", 0,
	 "Shared slots lie behind each rank's block of N experts, not behind all", 6},
	{"rank", OPT_RANK, "N", 0, "The rank whose shared slots are meant [0]", 6},
	{"valid-rows", OPT_VALID_ROWS, "N", 0, "Rows from N on are padding: ids -1, weights 0", 6},
	{"hash-table", OPT_HASH_TABLE, "FILE.i32", 0, "The ids of each token id, --top-k each", 7},
	{"token-ids", OPT_TOKEN_IDS, "FILE.i32", 0, "The token id of each row", 7},
	{0},
};

static bool is_given(const struct mt_route_options *options, int key)
{
	return options->given >> (key - MT_OPT_OWN) & 1;
}

static error_t word_parse(struct mt_route_options *options, const char *name, const char *text,
			  const char *const *words, int *ret_index)
{
	char list[128] = "";
	size_t n = 0;

	for (int i = 0; words[i]; i++) {
		if (strcmp(words[i], text) == 0) {
			*ret_index = i;
			return 0;
		}
		n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s", i ? ", " : "", words[i]);
	}
	return mt_args_error(&options->args, "%s '%s' is unknown: give one of %s", name, text,
			     list);
}

static error_t u32_parse(struct mt_route_options *options, const char *name, const char *text,
			 uint32_t *ret_value)
{
	uint64_t value;
	error_t error = mt_args_uint(&options->args, name, text, 0, UINT32_MAX, &value);

	if (error == 0)
		*ret_value = (uint32_t)value;
	return error;
}

/* NaN and infinities are numbers here: the check of the setting names the field they are in. */
static error_t real_parse(struct mt_route_options *options, const char *name, const char *text,
			  double *ret_value)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end != '\0')
		return mt_args_error(&options->args, "%s '%s': give a number", name, text);
	*ret_value = value;
	return 0;
}

static error_t renormalize_parse(struct mt_route_options *options, const char *text)
{
	static const char *const words[] = {"none", "epsilon", "if-positive", "clamp", NULL};
	struct mtk_route_config *config = &options->config;
	int index;
	error_t error;

	if (strncmp(text, "clamp:", 6) == 0) {
		config->renormalise = MTK_ROUTE_RENORMALISE_CLAMP;
		return real_parse(options, "--renormalize clamp", text + 6,
				  &config->renormalise_min);
	}
	error = word_parse(options, "--renormalize", text, words, &index);
	if (error == 0)
		config->renormalise = (enum mtk_route_renormalise)index;
	return error;
}

static error_t group_score_parse(struct mt_route_options *options, const char *text)
{
	struct mtk_route_config *config = &options->config;

	if (strcmp(text, "max") == 0) {
		config->groups = MTK_ROUTE_GROUPS_MAX;
	} else if (strcmp(text, "top2") == 0) {
		config->groups = MTK_ROUTE_GROUPS_TOP2;
	} else {
		config->groups = MTK_ROUTE_GROUPS_TOPN;
		return u32_parse(options, "--group-score", text, &config->group_top_n);
	}
	return 0;
}

static error_t name_parse(int key, char *text, struct mt_route_options *options)
{
	static const char *const scorings[] = {"softmax",	   "sigmoid",	  "sqrtsoftplus",
					       "softmax-selected", "sparsemixer", NULL};
	static const char *const biases[] = {"none", "logit", "logit-choice", "score", NULL};
	static const char *const choices[] = {"score", "logit", NULL};
	static const char *const forms[] = {"log1p", "log", NULL};
	static const char *const owners[] = {"router", "output", NULL};
	static const char *const formats[] = {"json", "csv", "binary", NULL};
	struct mtk_route_config *config = &options->config;
	int index = 0;
	error_t error;

	switch (key) {
	case OPT_SCORING:
		error = word_parse(options, "--scoring", text, scorings, &index);
		config->scoring = (enum mtk_route_scoring)index;
		return error;
	case OPT_BIAS:
		error = word_parse(options, "--bias", text, biases, &index);
		config->bias = (enum mtk_route_bias)index;
		return error;
	case OPT_CHOOSE_BY:
		error = word_parse(options, "--choose-by", text, choices, &index);
		config->choose_by = (enum mtk_route_choose_by)index;
		return error;
	case OPT_SOFTPLUS:
		error = word_parse(options, "--softplus", text, forms, &index);
		config->softplus = (enum mtk_route_softplus)index;
		return error;
	case OPT_SCALE_OWNER:
		error = word_parse(options, "--scale-owner", text, owners, &index);
		config->scale_owner = (enum mtk_route_scale_owner)index;
		return error;
	case OPT_OUTPUT:
		error = word_parse(options, "--format", text, formats, &index);
		options->format = (enum mt_route_format)index;
		return error;
	case OPT_RENORMALIZE:
		return renormalize_parse(options, text);
	case OPT_GROUP_SCORE:
		return group_score_parse(options, text);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t number_parse(int key, char *text, struct mt_route_options *options)
{
	struct mtk_route_config *config = &options->config;
	uint64_t n = 0;
	error_t error;

	switch (key) {
	case OPT_EXPERTS:
		return mt_args_uint(&options->args, "--experts", text, 1, MTK_ROUTE_MAX_COLUMNS,
				    &options->n_columns);
	case OPT_TOP_K:
		return u32_parse(options, "--top-k", text, &config->top_k);
	case OPT_SOFT_CAP:
		return real_parse(options, "--soft-cap", text, &config->soft_cap);
	case OPT_JITTER:
		return real_parse(options, "--jitter", text, &config->jitter);
	case OPT_GROUPS:
		return u32_parse(options, "--groups", text, &config->n_groups);
	case OPT_KEEP_GROUPS:
		return u32_parse(options, "--keep-groups", text, &config->n_keep_groups);
	case OPT_SCALE:
		return real_parse(options, "--scale", text, &config->scale);
	case OPT_ZERO_EXPERTS:
		error = mt_args_uint(&options->args, "--zero-experts", text, 0,
				     MTK_ROUTE_MAX_COLUMNS - 1, &n);
		config->n_zero_experts = (uint32_t)n;
		return error;
	case OPT_SHARED_SLOTS:
		return u32_parse(options, "--shared-slots", text, &config->n_shared_slots);
	case OPT_SHARED_WEIGHT:
		return real_parse(options, "--shared-weight", text, &config->shared_weight);
	case OPT_SHARED_LOCAL:
		config->shared = MTK_ROUTE_SHARED_BLOCK;
		return u32_parse(options, "--shared-local", text, &config->n_local_experts);
	case OPT_RANK:
		return u32_parse(options, "--rank", text, &config->rank);
	case OPT_VALID_ROWS:
		return mt_args_uint(&options->args, "--valid-rows", text, 0, UINT32_MAX,
				    &options->n_valid_rows);
	default:
		return name_parse(key, text, options);
	}
}

/* The preset is the start, whatever its place in the command line. */
static error_t preset_apply(struct mt_route_options *options, const char *name)
{
	const struct mtk_preset *preset = mtk_preset_find(name);

	if (options->given != 0)
		return mt_args_error(&options->args,
				     "--preset must come before the options that change its rule");
	if (!preset)
		return mt_args_error(&options->args,
				     "--preset '%s' is unknown; 'moetrace models' lists them",
				     name);
	options->preset = name;
	options->config = preset->route;
	if (!preset->has_routing)
		options->config.scoring = MTK_ROUTE_N_SCORINGS;
	return 0;
}

static error_t groups_complete(struct mt_route_options *options)
{
	struct mtk_route_config *config = &options->config;

	if (!is_given(options, OPT_GROUPS))
		return 0;
	if (config->n_groups == 0) {
		config->groups = MTK_ROUTE_GROUPS_NONE;
		config->n_keep_groups = 0;
		return 0;
	}
	if (!is_given(options, OPT_KEEP_GROUPS))
		return mt_args_error(&options->args, "--groups needs --keep-groups, too");
	if (config->groups == MTK_ROUTE_GROUPS_NONE)
		config->groups = MTK_ROUTE_GROUPS_TOP2;
	return 0;
}

static error_t options_complete(struct mt_route_options *options)
{
	struct mtk_route_config *config = &options->config;
	struct mt_args *args = &options->args;
	uint64_t n_preset = options->preset ? mtk_route_columns(config) : 0;

	if (!options->logits)
		return mt_args_error(args, "--logits FILE.f32 is missing");
	if (!options->preset && !is_given(options, OPT_SCORING))
		return mt_args_error(args, "give --preset NAME or --scoring NAME");
	if (options->n_columns == 0)
		options->n_columns = n_preset;
	if (options->n_columns == 0)
		return mt_args_error(args, "--experts N is missing");
	if (config->top_k == 0 && !is_given(options, OPT_TOP_K))
		return mt_args_error(args, "--top-k K is missing");
	if (config->scoring == MTK_ROUTE_N_SCORINGS)
		return mt_args_error(args, "the scoring of %s is not known: give --scoring",
				     options->preset);
	if (config->n_zero_experts >= options->n_columns)
		return mt_args_error(args,
				     "--zero-experts %u: fewer than the %" PRIu64 " columns "
				     "are needed",
				     config->n_zero_experts, options->n_columns);
	config->n_experts = (uint32_t)options->n_columns - config->n_zero_experts;
	if (options->bias_file && config->bias == MTK_ROUTE_BIAS_NONE &&
	    !is_given(options, OPT_BIAS))
		config->bias = MTK_ROUTE_BIAS_SCORE;
	if (!options->bias_file != (config->bias == MTK_ROUTE_BIAS_NONE))
		return options->bias_file
			       ? mt_args_error(args, "--correction-bias is given, but --bias none")
			       : mt_args_error(args, "this rule has a bias: give --correction-bias "
						     "FILE.f32, or --bias none");
	if (!options->hash_file != !options->token_file)
		return mt_args_error(args, "--hash-table and --token-ids need each other");
	return groups_complete(options);
}

static error_t option_parse(int key, char *text, struct argp_state *state)
{
	struct mt_route_options *options = state->input;
	error_t error;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->args;
		return 0;
	case OPT_PRESET:
		return preset_apply(options, text);
	case OPT_LOGITS:
		return mt_args_path(&options->args, "--logits", text, &options->logits);
	case OPT_BIAS_FILE:
		return mt_args_path(&options->args, "--correction-bias", text, &options->bias_file);
	case OPT_HASH_TABLE:
		return mt_args_path(&options->args, "--hash-table", text, &options->hash_file);
	case OPT_TOKEN_IDS:
		return mt_args_path(&options->args, "--token-ids", text, &options->token_file);
	case ARGP_KEY_END:
		return options_complete(options);
	default:
		error = number_parse(key, text, options);
		if (error == 0 && key != OPT_OUTPUT && key != OPT_VALID_ROWS)
			options->given |= UINT64_C(1) << (key - MT_OPT_OWN);
		return error;
	}
}

static const struct argp_child children[] = {{&mt_args_plain_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.options = argp_options,
	.parser = option_parse,
	.doc = "Route a file of router logits by a model family's rule and print ids and weights"
	       "\v"
	       "Experts are listed in the order of the choice: by score (with the bias, where one "
	       "acts on the choice) descending, equal ones by lower id. A NaN is chosen last, with "
	       "weight 0. JSON is {\"rows\":[{\"ids\":[],\"weights\":[]}]}.",
	.children = children,
};

int mt_route_options_parse(int argc, char **argv, struct mt_route_options *ret_options)
{
	struct mt_route_options options = {
		.args.no_file = true,
		.config = mtk_route_config_make(0, 0),
		.n_valid_rows = UINT64_MAX,
	};
	int status = mt_args_parse(&argp, argc, argv, &options.args, &options);

	if (status == MT_EXIT_OK)
		*ret_options = options;
	return status;
}
