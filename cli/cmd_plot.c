/* SPDX-License-Identifier: MIT */
/*
 * plot: pictures without a browser, as SVG. Each is one function of a table; the file gets its name
 * when it is whole.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/plot.h"

enum {
	OPT_VALUE = MT_OPT_OWN,
	OPT_PHASE,
	OPT_REQUEST,
	OPT_ATTRIBUTE,
	OPT_WINDOW,
	OPT_LAYERS,
	OPT_SORT,
	OPT_RANKS,
	OPT_LOG,
	OPT_SCALE,
	OPT_THEME,
	OPT_TITLE,
	OPT_MODEL,
	OPT_RULE,
};

static const struct mt_plot_kind kinds[] = {
	{"heatmap", mt_plot_heatmap},
	{"balance", mt_plot_balance},
	{"oea", mt_plot_oea},
	{"power", mt_plot_power},
};

#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* ---- the command line ---- */

static const char *const value_names[] = {"tokens", "share", "times", "weight", NULL};
static const char *const sort_names[] = {"id", "load", "rank", NULL};
static const char *const theme_names[] = {"auto", "light", "dark", NULL};
static const char *const phase_names[] = {"all",   "prefill", "decode", "verify",
					  "other", "padding", NULL};

/* The index of @text among @words. */
static error_t word_take(struct mt_args *args, const char *name, const char *text,
			 const char *const *words, size_t *ret_index)
{
	char list[128] = "";

	for (size_t i = 0; words[i]; i++) {
		if (strcmp(text, words[i]) == 0) {
			*ret_index = i;
			return 0;
		}
		strncat(list, i ? ", " : "", sizeof(list) - strlen(list) - 1);
		strncat(list, words[i], sizeof(list) - strlen(list) - 1);
	}
	return mt_args_error(args, "%s '%s' is not known: give one of %s", name, text, list);
}

/* N, or N-M. */
static error_t span_take(struct mt_args *args, const char *name, const char *text, uint64_t min,
			 uint64_t *ret_first, uint64_t *ret_last)
{
	const char *dash = strchr(text, '-');
	char first[24];

	snprintf(first, sizeof(first), "%.*s", dash ? (int)(dash - text) : 23, text);
	if (mt_parse_uint(first, min, UINT32_MAX, ret_first) &&
	    mt_parse_uint(dash ? dash + 1 : first, *ret_first, UINT32_MAX, ret_last))
		return 0;
	return mt_args_error(args, "%s '%s': give a number, or two as 2-5", name, text);
}

static error_t scale_take(struct mt_plot_options *options, const char *text)
{
	char *end;
	double to = strtod(text, &end);

	options->is_scale_fixed = strcmp(text, "fixed") == 0;
	if (options->is_scale_fixed || (*text && *end == '\0' && to > 0 && to < 1e15)) {
		options->scale_to = options->is_scale_fixed ? 0 : to;
		return 0;
	}
	return mt_args_error(&options->args,
			     "--scale '%s': give a value above 0 for its end, or fixed", text);
}

/* The first argument is the picture, the next one the file. */
static error_t kind_take(struct mt_plot_options *options, const char *name)
{
	const char *names[N_KINDS + 1] = {NULL};
	const char *close;

	if (options->kind)
		return ARGP_ERR_UNKNOWN;
	for (size_t i = 0; i < N_KINDS; i++) {
		names[i] = kinds[i].name;
		if (strcmp(name, kinds[i].name) == 0)
			options->kind = &kinds[i];
	}
	if (options->kind)
		return 0;
	close = mt_closest(name, names);
	if (close)
		return mt_args_error(&options->args, "unknown picture '%s'; did you mean '%s'?",
				     name, close);
	return mt_args_error(&options->args,
			     "unknown picture '%s'; there are heatmap, balance, oea and power",
			     name);
}

static error_t complete(struct mt_plot_options *options)
{
	const bool has_filter = options->request || options->attribute;

	if (!options->kind)
		return mt_args_error(&options->args,
				     "which PICTURE? Give heatmap, balance, oea or power");
	if (!options->output)
		return mt_args_error(&options->args, "-o FILE is missing ('-' is standard output)");
	if (options->request && options->attribute)
		return mt_args_error(&options->args, "give either --request or --attribute");
	if (options->is_scale_fixed &&
	    (!options->first_window || has_filter || options->value == MT_PLOT_WEIGHT))
		return mt_args_error(&options->args,
				     "--scale fixed is for pictures of one --window and all "
				     "rows; give its end as a value");
	if (strcmp(options->phase, "padding") == 0 &&
	    (has_filter || options->value == MT_PLOT_WEIGHT))
		return mt_args_error(&options->args,
				     "padding rows belong to no request and have no weight");
	return 0;
}

static error_t word_parse(struct mt_plot_options *options, int key, const char *arg)
{
	struct mt_args *args = &options->args;
	size_t i = 0;
	error_t error;

	switch (key) {
	case OPT_VALUE:
		error = word_take(args, "--value", arg, value_names, &i);
		options->value = (enum mt_plot_value)i;
		return error;
	case OPT_SORT:
		error = word_take(args, "--sort", arg, sort_names, &i);
		options->sort = (enum mt_plot_sort)i;
		return error;
	case OPT_THEME:
		error = word_take(args, "--theme", arg, theme_names, &i);
		options->theme = (enum mt_svg_theme)i;
		return error;
	case OPT_PHASE:
		error = word_take(args, "--phase", arg, phase_names, &i);
		options->phase = phase_names[i];
		return error;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct mt_plot_options *options = state->input;
	struct mt_args *args = &options->args;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = args;
		return 0;
	case ARGP_KEY_ARG:
		return kind_take(options, arg);
	case 'o':
		return mt_args_path(args, "-o", arg, &options->output);
	case 'f':
		options->overwrites = true;
		return 0;
	case OPT_REQUEST:
		options->request = arg;
		return 0;
	case OPT_ATTRIBUTE:
		options->attribute = arg;
		return 0;
	case OPT_WINDOW:
		return span_take(args, "--window", arg, 1, &options->first_window,
				 &options->last_window);
	case OPT_LAYERS:
		return span_take(args, "--layers", arg, 0, &options->first_layer,
				 &options->last_layer);
	case OPT_RANKS:
		return mt_args_uint(args, "--ranks", arg, 1, 65536, &options->n_ranks);
	case OPT_MODEL:
		return mt_args_uint(args, "--model", arg, 1, INT64_MAX, &options->model_id);
	case OPT_LOG:
		options->is_log = true;
		return 0;
	case OPT_SCALE:
		return scale_take(options, arg);
	case OPT_TITLE:
		options->title = arg;
		return 0;
	case OPT_RULE:
		options->rule = arg;
		return 0;
	case ARGP_KEY_END:
		return complete(options);
	default:
		return word_parse(options, key, arg);
	}
}

static const struct argp_option argp_options[] = {
	{"output", 'o', "FILE", 0, "Write the picture there; '-' is standard output", 1},
	{"force", 'f', NULL, 0, "Overwrite FILE", 1},
	{"theme", OPT_THEME, "THEME", 0,
	 "auto (the default: light or dark as who looks at it prefers), light or dark", 1},
	{"title", OPT_TITLE, "TEXT", 0, "The heading [what is shown]", 1},
	{"model", OPT_MODEL, "N", 0, "Only model N [the first one with load]", 1},
	{NULL, 0, NULL, 0, "Heatmap:", 2},
	{"value", OPT_VALUE, "VALUE", 0,
	 "tokens (the default), share (of its layer), times (the mean of its layer) or weight "
	 "(mean "
	 "weight)",
	 2},
	{"phase", OPT_PHASE, "PHASE", 0,
	 "all (the default), prefill, decode, verify, other (draft, dummy) or padding (padding "
	 "alone)",
	 2},
	{"request", OPT_REQUEST, "ID", 0, "Only rows of a request, by its id, or @N", 2},
	{"attribute", OPT_ATTRIBUTE, "KEY=VALUE", 0, "Only rows of requests with this attribute",
	 2},
	{"window", OPT_WINDOW, "N[-M]", 0, "Only windows N to M of time, from 1", 2},
	{"layers", OPT_LAYERS, "N[-M]", 0, "Only layers N to M of the model", 2},
	{"sort", OPT_SORT, "ORDER", 0,
	 "Experts of each layer by id (the default), load (the busiest first) or rank (those of a "
	 "GPU "
	 "together)",
	 2},
	{"ranks", OPT_RANKS, "N", 0,
	 "With --sort rank: N ranks with the experts in order [placed as recorded]", 2},
	{"log", OPT_LOG, NULL, 0, "Colours by the logarithm", 2},
	{"scale", OPT_SCALE, "TO", 0,
	 "Colours up to this value, or fixed: up to that of the busiest window, so that pictures "
	 "of "
	 "several windows compare",
	 2},
	{NULL, 0, NULL, 0, "OEA:", 3},
	{"rule", OPT_RULE, "RULE", 0, "oea (the default) or pruned, with its options", 3},
	{0},
};

static const struct argp_child children[] = {{&mt_args_picture_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.options = argp_options,
	.parser = parse,
	.args_doc = "PICTURE FILE",
	.doc = "Draw a picture of a trace as SVG"
	       "\v"
	       "Pictures:\n"
	       "  heatmap  layers and experts, with how even each layer is\n"
	       "  balance  busiest expert of each layer over the mean, as 'moetrace balance' "
	       "prints\n"
	       "  oea      active experts a layer for every k0, as 'moetrace oea' prints\n"
	       "  power    power over time under its limit, as 'moetrace power --readings' prints\n"
	       "\n"
	       "Every mark has its figures as a <title>, which a browser shows under the pointer. "
	       "What "
	       "the figures leave out, losses first, is said below. Without --recording it is the "
	       "first one.\n",
	.children = children,
};

/* ---- the verb ---- */

static int print(struct mt_trace *trace, void *input)
{
	const struct mt_plot_options *options = input;
	struct mt_plot_frame frame;
	int status = mt_plot_frame_read(trace, options, &frame);

	if (status != MT_EXIT_OK)
		return status;
	status = options->kind->draw(trace, options, &frame);
	mt_plot_frame_free(&frame);
	return status;
}

int mt_cmd_plot(int argc, char **argv)
{
	static const struct mt_trace_verb verb = {
		.argp = &argp, .print = print, .takes_empty = true};
	struct mt_plot_options options = {.phase = "all", .last_layer = UINT32_MAX};

	return mt_trace_verb_run(&verb, argc, argv, &options.args, &options);
}
