/* SPDX-License-Identifier: MIT */
/*
 * balance: how even the load of each layer is; the view layer_balance, with its formulas in the
 * help.
 */
#include <stdio.h>

#include "cli/cli.h"

static error_t parse(int key, char *arg, struct argp_state *state)
{
	(void)arg;
	if (key != ARGP_KEY_INIT)
		return ARGP_ERR_UNKNOWN;
	state->child_inputs[0] = state->input;
	return 0;
}

static const struct argp_child children[] = {{&mt_args_recording_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.parser = parse,
	.args_doc = "FILE",
	.doc = "Print how even the load of each layer is, over a recording. Routed experts only, "
	       "padding excluded."
	       "\v"
	       "Columns:\n"
	       "  tokens               selections of routed experts: rows x experts a row\n"
	       "  mean_active_experts  distinct experts that a pass touched, mean over passes\n"
	       "  mean_max_load        rows of a pass's most loaded expert, mean over passes\n"
	       "  max_over_mean        tokens of the hottest expert / (tokens / n_experts)\n"
	       "  balancedness         (tokens / n_experts) / tokens of the hottest expert: 1 is\n"
	       "                       even, 1 / n_experts is one expert taking all\n"
	       "  dead_experts         experts without a token\n",
	.children = children,
};

#define SQL_BALANCE                                                                                \
	"SELECT recording_id, model_id, layer, n_experts, n_passes, tokens, mean_active_experts, " \
	"max_active_experts, mean_max_load, max_load, hottest_expert, max_over_mean, "             \
	"balancedness, "                                                                           \
	"dead_experts FROM layer_balance WHERE ?1 IS NULL OR recording_id = ?1 "                   \
	"ORDER BY recording_id, model_id, layer"

int mt_cmd_balance(int argc, char **argv)
{
	struct mt_args args = {0};
	struct mt_trace trace;
	struct mt_output output;
	int status;

	status = mt_args_parse(&argp, argc, argv, &args, &args);
	if (status == MT_EXIT_OK)
		status = mt_trace_open(args.file, &trace);
	if (status != MT_EXIT_OK)
		return status;
	status = mt_trace_recording_check(&trace, args.recording_id);
	if (status == MT_EXIT_OK &&
	    (mt_trace_has_recording(&trace) || mt_format_is_data(args.format))) {
		mt_output_begin(&output, stdout, args.format);
		status = mt_trace_print_recording(&trace, &output, SQL_BALANCE, args.recording_id,
						  NULL);
		if (status == MT_EXIT_OK)
			mt_output_end(&output);
	}
	mt_trace_close(&trace);
	return status;
}
