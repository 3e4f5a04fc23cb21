/* SPDX-License-Identifier: MIT */
/*
 * eval: what a routing rule costs and saves on texts. The texts are run as decoding would run them,
 * a batch in lockstep, and the model's surprise at each next byte is averaged; under a rule, how
 * far its predictions move from the plain ones, too.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/device_args.h"
#include "cli/file_read.h"
#include "cli/model_load.h"
#include "cli/rule_args.h"
#include "kernels/engine/eval.h"
#include "kernels/threads.h"

#define DEFAULT_BATCH 16
#define MAX_BATCH     (1u << 16)

enum {
	OPT_MODEL = MT_OPT_OWN,
	OPT_SHAPE,
	OPT_TEXT,
	OPT_BATCH,
	OPT_THREADS,
	OPT_RULE,
	OPT_OEA,
	OPT_DEVICE,
	OPT_PRECISION,
};

static const struct argp_option argp_options[] = {
	{"model", OPT_MODEL, "FILE.safetensors", 0, "The model, a Qwen3-MoE over bytes", 1},
	{"shape", OPT_SHAPE, "NAME", OPTION_HIDDEN, NULL, 1},
	{"text", OPT_TEXT, "FILE...", 0, "The texts: each file is a sequence of bytes", 1},
	{"batch", OPT_BATCH, "N", 0, "Texts at a time [16]", 2},
	{"threads", OPT_THREADS, "N", 0, "Threads of the engine [the CPUs online]", 2},
	{"device", OPT_DEVICE, "WHERE", 0, MT_DEVICE_HELP, 2},
	{"precision", OPT_PRECISION, "HOW", 0, MT_PRECISION_HELP, 2},
	{"rule", OPT_RULE, "NAME:ARGS", 0, MT_RULE_HELP, 3},
	{"oea", OPT_OEA, "ARGS", 0, MT_RULE_OEA_HELP, 3},
	{0},
};

struct options {
	struct mt_args args;
	const char *model;
	const char **texts; /* [argc] */
	size_t n_texts;
	uint64_t n_batch;
	uint64_t n_threads;
	struct mt_rule rule;
	struct mt_device device;
};

static error_t text_add(struct options *options, const char *path)
{
	return mt_args_path(&options->args, "--text", path, &options->texts[options->n_texts++]);
}

static error_t options_complete(struct options *options)
{
	if (!options->model)
		return mt_args_error(&options->args, "--model FILE.safetensors is missing");
	if (options->n_texts == 0)
		return mt_args_error(&options->args, "--text FILE is missing");
	return mt_device_complete(&options->args, &options->device);
}

static error_t option_parse(int key, char *text, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->args;
		return 0;
	case OPT_MODEL:
		return mt_args_path(&options->args, "--model", text, &options->model);
	case OPT_SHAPE:
		return mt_args_error(&options->args,
				     "--shape %s: the weights of a shape are synthetic, so that "
				     "its cross-entropy says nothing; give a --model, or record the "
				     "experts of 'moetrace run --shape %s' under the rule",
				     text, text);
	case OPT_TEXT:
	case ARGP_KEY_ARG:
		return text_add(options, text);
	case OPT_BATCH:
		return mt_args_uint(&options->args, "--batch", text, 1, MAX_BATCH,
				    &options->n_batch);
	case OPT_THREADS:
		options->device.has_threads = true;
		return mt_args_uint(&options->args, "--threads", text, 1, MTK_MAX_THREADS,
				    &options->n_threads);
	case OPT_DEVICE:
		return mt_device_parse(&options->args, text, &options->device);
	case OPT_PRECISION:
		return mt_precision_parse(&options->args, text, &options->device);
	case OPT_RULE:
		return mt_rule_parse(&options->args, text, &options->rule);
	case OPT_OEA:
		return mt_rule_parse_oea(&options->args, text, &options->rule);
	case ARGP_KEY_END:
		return options_complete(options);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_child children[] = {{&mt_args_sections_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.options = argp_options,
	.parser = option_parse,
	.args_doc = "[TEXT...]",
	.doc = "Run a model on texts and print its cross-entropy and the experts it touches, under "
	       "a "
	       "routing rule or without one"
	       "\v"
	       "A byte is a token; a text of n bytes gives n - 1 predictions. The first N texts "
	       "make "
	       "the first batch of --batch N, the next ones the next. A batch advances by one "
	       "position a pass, every row as a decode row; a text that has ended leaves it. The "
	       "model is a file: the weights of the shapes of 'moetrace run' are synthetic and "
	       "predict nothing.\n"
	       "\n"
	       "  ce_nats              mean over predictions of -ln p(next byte)\n"
	       "  kl_nats              mean over predictions of KL(plain || rule), 0\n"
	       "                       without a rule. The plain run goes beside the\n"
	       "                       ruled one with a cache of its own, so that its\n"
	       "                       whole context is plain\n"
	       "  mean_active_experts  distinct routed experts of a pass and layer, mean\n"
	       "                       over passes; in all: over passes and layers\n"
	       "  tokens_below_k       rows of a layer with fewer experts than the\n"
	       "                       model's top_k; in all: the sum over layers\n"
	       "\n"
	       "The rule oea: a decode row keeps its best k0 experts, or fewer that hold p of its "
	       "score [1: off], then takes further ones in the order of its preference from those "
	       "that the batch loads anyway, down to rank maxp [every one], up to kmax in all [the "
	       "model's top_k].",
	.children = children,
};

static uint64_t threads_default(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : n > MTK_MAX_THREADS ? MTK_MAX_THREADS : (uint64_t)n;
}

/* ---- texts ---- */

static void texts_release(struct mtk_eval_text *texts, size_t n_texts)
{
	for (size_t i = 0; texts && i < n_texts; i++)
		free((void *)texts[i].bytes);
	free(texts);
}

static int texts_read(const struct options *options, struct mtk_eval_text *texts)
{
	for (size_t i = 0; i < options->n_texts; i++) {
		const char *path = options->texts[i];
		void *bytes;
		int exit_code = mt_file_read(path, &bytes, &texts[i].n_bytes);

		if (exit_code != MT_EXIT_OK)
			return exit_code;
		texts[i].bytes = bytes;
		if (texts[i].n_bytes == 0) {
			mt_error("%s is empty: there is nothing to predict; leave it out", path);
			return MT_EXIT_FAILED;
		}
		if (mtk_eval_n_context(&texts[i], 1) == 0) {
			mt_error("%s: %zu bytes are more positions than a model can have; cut it",
				 path, texts[i].n_bytes);
			return MT_EXIT_FAILED;
		}
	}
	return MT_EXIT_OK;
}

/* ---- printing ---- */

struct outcome {
	struct mtk_eval_result result;
	struct mtk_eval_layer *layers;
	uint32_t n_layers;
};

static double mean_active(const struct outcome *outcome, uint64_t n_active)
{
	return (double)n_active / (double)outcome->result.n_passes;
}

static void totals_find(const struct outcome *outcome, double *ret_mean_active,
			uint64_t *ret_below_k)
{
	uint64_t n_active = 0, below_k = 0;

	for (uint32_t i = 0; i < outcome->n_layers; i++) {
		n_active += outcome->layers[i].n_active;
		below_k += outcome->layers[i].tokens_below_k;
	}
	*ret_mean_active = mean_active(outcome, n_active) / outcome->n_layers;
	*ret_below_k = below_k;
}

static int json_print(const struct outcome *outcome)
{
	struct mt_jsonw json;
	double mean;
	uint64_t below_k;

	totals_find(outcome, &mean, &below_k);
	mt_jsonw_init(&json, stdout);
	mt_jsonw_object_begin(&json);
	mt_jsonw_key(&json, "ce_nats");
	mt_jsonw_double(&json, outcome->result.ce_nats);
	mt_jsonw_key(&json, "kl_nats");
	mt_jsonw_double(&json, outcome->result.kl_nats);
	mt_jsonw_key(&json, "mean_active_experts");
	mt_jsonw_double(&json, mean);
	mt_jsonw_key(&json, "tokens_below_k");
	mt_jsonw_uint64(&json, below_k);
	mt_jsonw_key(&json, "layers");
	mt_jsonw_array_begin(&json);
	for (uint32_t i = 0; i < outcome->n_layers; i++) {
		mt_jsonw_object_begin(&json);
		mt_jsonw_key(&json, "layer");
		mt_jsonw_uint64(&json, i);
		mt_jsonw_key(&json, "mean_active_experts");
		mt_jsonw_double(&json, mean_active(outcome, outcome->layers[i].n_active));
		mt_jsonw_key(&json, "tokens_below_k");
		mt_jsonw_uint64(&json, outcome->layers[i].tokens_below_k);
		mt_jsonw_object_end(&json);
	}
	mt_jsonw_array_end(&json);
	mt_jsonw_object_end(&json);
	return mt_jsonw_end_line(&json) < 0 ? MT_EXIT_FAILED : MT_EXIT_OK;
}

static int table_print(const struct outcome *outcome, struct mt_output *output,
		       const char *const *columns, size_t n_columns)
{
	struct mt_table table;
	double mean;
	uint64_t below_k;

	if (mt_table_begin(&table, output, columns, n_columns) < 0)
		return MT_EXIT_FAILED;
	if (n_columns == 3) {
		for (uint32_t i = 0; i < outcome->n_layers; i++) {
			mt_table_int64(&table, i);
			mt_table_double(&table, mean_active(outcome, outcome->layers[i].n_active));
			mt_table_int64(&table, (int64_t)outcome->layers[i].tokens_below_k);
		}
	} else {
		totals_find(outcome, &mean, &below_k);
		mt_table_double(&table, outcome->result.ce_nats);
		mt_table_double(&table, outcome->result.kl_nats);
		mt_table_double(&table, mean);
		mt_table_int64(&table, (int64_t)below_k);
	}
	return mt_table_end(&table) < 0 ? MT_EXIT_FAILED : MT_EXIT_OK;
}

static int tables_print(const struct outcome *outcome)
{
	static const char *const totals[] = {"ce_nats", "kl_nats", "mean_active_experts",
					     "tokens_below_k"};
	static const char *const by_layer[] = {"layer", "mean_active_experts", "tokens_below_k"};
	struct mt_output output;
	int exit_code;

	mt_output_begin(&output, stdout, MT_FORMAT_TABLE);
	mt_output_sections(&output);
	mt_output_section(&output, "total", NULL);
	exit_code = table_print(outcome, &output, totals, 4);
	mt_output_section(&output, "layers", "by layer");
	if (exit_code == MT_EXIT_OK)
		exit_code = table_print(outcome, &output, by_layer, 3);
	if (mt_output_end(&output) < 0 || exit_code != MT_EXIT_OK) {
		mt_error("the output is not complete");
		return MT_EXIT_FAILED;
	}
	return MT_EXIT_OK;
}

/* ---- the run ---- */

static int evaluate(const struct options *options, const struct mtk_model *model,
		    const struct mtk_eval_text *texts)
{
	const struct mtk_eval_options eval = {
		.n_batch = (uint32_t)options->n_batch,
		.n_threads = (uint32_t)options->n_threads,
		.backend = options->device.backend,
		.oea = mt_rule_oea(&options->rule),
	};
	struct outcome outcome = {.n_layers = mtk_model_borrow_config(model)->n_layers};
	struct mtk_error error;
	int exit_code = MT_EXIT_FAILED;

	outcome.layers = calloc(outcome.n_layers, sizeof(*outcome.layers));
	if (!outcome.layers) {
		mt_error("out of memory");
		return MT_EXIT_FAILED;
	}
	if (mtk_eval_run(model, texts, options->n_texts, &eval, &outcome.result, outcome.layers,
			 &error) < 0) {
		mt_error("%s", error.text);
	} else {
		exit_code = options->args.format == MT_FORMAT_TABLE ? tables_print(&outcome)
								    : json_print(&outcome);
		if (eval.oea && outcome.result.n_one_row_passes > 0)
			mt_warn("%" PRIu64 " of %" PRIu64 " passes have one row, for which a rule "
				"only prunes: give more texts of equal length",
				outcome.result.n_one_row_passes, outcome.result.n_passes);
	}
	free(outcome.layers);
	return exit_code;
}

static int eval_run(struct options *options)
{
	struct mtk_eval_text *texts = calloc(options->n_texts, sizeof(*texts));
	struct mtk_model *model = NULL;
	int exit_code;

	if (!texts) {
		mt_error("out of memory");
		return MT_EXIT_FAILED;
	}
	exit_code = texts_read(options, texts);
	if (exit_code == MT_EXIT_OK)
		exit_code = mt_model_load(options->model,
					  mtk_eval_n_context(texts, options->n_texts), &model);
	if (exit_code == MT_EXIT_OK)
		exit_code = mt_model_rule_check(model, mt_rule_oea(&options->rule));
	if (exit_code == MT_EXIT_OK)
		exit_code = mt_device_open(&options->device, model);
	if (exit_code == MT_EXIT_OK && options->device.kind == MT_DEVICE_AUTO)
		mt_warn("device: %s", options->device.text);
	if (exit_code == MT_EXIT_OK)
		exit_code = evaluate(options, model, texts);
	mt_device_close(&options->device);
	mtk_model_destroy(model);
	texts_release(texts, options->n_texts);
	return exit_code;
}

int mt_cmd_eval(int argc, char **argv)
{
	struct options options = {
		.args = {.no_file = true, .no_csv = true},
		.n_batch = DEFAULT_BATCH,
		.n_threads = threads_default(),
	};
	int exit_code;

	options.texts = calloc((size_t)argc, sizeof(*options.texts));
	if (!options.texts) {
		mt_error("out of memory");
		return MT_EXIT_FAILED;
	}
	exit_code = mt_args_parse(&argp, argc, argv, &options.args, &options);
	if (exit_code == MT_EXIT_OK)
		exit_code = eval_run(&options);
	free(options.texts);
	return exit_code;
}
