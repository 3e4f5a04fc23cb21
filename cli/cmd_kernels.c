/* SPDX-License-Identifier: MIT */
/*
 * kernels: what operations took, from the views kernel_summary, layer_time and overlap.
 */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/explain.h"

enum { OPT_BY_LAYER = MT_OPT_OWN, OPT_BY_ROLE, OPT_OVERLAP };

struct options {
	struct mt_args args;
	int view; /* one of the options; 0: by name */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	(void)arg;
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->args;
		return 0;
	case OPT_BY_LAYER:
	case OPT_BY_ROLE:
	case OPT_OVERLAP:
		if (options->view && options->view != key)
			return mt_args_error(&options->args,
					     "--by-layer, --by-role and --overlap exclude each other");
		options->view = key;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option argp_options[] = {
	{"by-layer", OPT_BY_LAYER, NULL, 0,
	 "A row a layer and phase: the time of a pass in it, and how that was measured", 1},
	{"by-role", OPT_BY_ROLE, NULL, 0, "A row a role: attention, gate, experts, ...", 1},
	{"overlap", OPT_OVERLAP, NULL, 0,
	 "A row a pass that moves data between ranks: how much of it is hidden under computing", 1},
	{0},
};

static const struct argp_child children[] = {{&mt_args_explain_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.options = argp_options,
	.parser = parse,
	.args_doc = "FILE",
	.doc = "Print what the operations of a recording took: kernels of a GPU, or operations that "
	       "the runtime timed, as 'moetrace run --kernels' does"
	       "\v"
	       "Operations whose times cannot be true are left out; their number is in table "
	       "collector.\n",
	.children = children,
};

#define SQL_NAMES                                                                                  \
	"SELECT k.recording_id, d.kind AS device, k.device_id, k.name, k.role, k.n, k.total_ns, " \
	"k.mean_ns, k.min_ns, k.max_ns, k.share FROM kernel_summary AS k JOIN device AS d USING " \
	"(device_id) WHERE ?1 IS NULL OR k.recording_id = ?1 "                                     \
	"ORDER BY k.recording_id, k.device_id, k.total_ns DESC, k.name"

#define SQL_ROLES                                                                               \
	"SELECT k.recording_id, d.kind AS device, k.device_id, k.role, sum(k.n) AS n, "         \
	"sum(k.total_ns) AS total_ns, sum(k.share) AS share FROM kernel_summary AS k JOIN "     \
	"device AS d USING (device_id) WHERE ?1 IS NULL OR k.recording_id = ?1 "                \
	"GROUP BY k.recording_id, k.device_id, k.role "                                         \
	"ORDER BY k.recording_id, k.device_id, total_ns DESC, k.role"

#define SQL_LAYERS                                                                                \
	"SELECT recording_id, model_id, layer, phase, source, count(*) AS n_passes, "            \
	"avg(n_rows) AS mean_rows, avg(active_experts) AS mean_active_experts, "                 \
	"avg(duration_ns) AS mean_ns, max(duration_ns) AS max_ns, avg(experts_ns) AS "           \
	"mean_experts_ns, 1.0 * sum(experts_ns) / sum(busy_ns) AS experts_share FROM layer_time " \
	"WHERE ?1 IS NULL OR recording_id = ?1 "                                                  \
	"GROUP BY recording_id, model_id, layer, phase, source "                                  \
	"ORDER BY recording_id, model_id, layer, phase, source"

#define SQL_OVERLAP                                                                           \
	"SELECT recording_id, pass_id, device_id, moving_ns, computing_ns, hidden_ns, "       \
	"hidden_share FROM overlap WHERE ?1 IS NULL OR recording_id = ?1 "                    \
	"ORDER BY recording_id, pass_id, device_id"

static const char *sql_of(int view)
{
	switch (view) {
	case OPT_BY_LAYER:
		return SQL_LAYERS;
	case OPT_BY_ROLE:
		return SQL_ROLES;
	case OPT_OVERLAP:
		return SQL_OVERLAP;
	default:
		return SQL_NAMES;
	}
}

/* Why there is nothing to see, where a person would wonder. */
static int nothing_mention(const struct mt_trace *trace, const struct options *options)
{
	int64_t n = 0;
	int status = mt_trace_int(trace,
				  "SELECT (SELECT count(*) FROM kernel) + "
				  "(SELECT count(*) FROM graph_launch)",
				  &n);

	if (status == MT_EXIT_OK && !n && options->view != OPT_BY_LAYER)
		mt_note("no operation was timed: 'moetrace run --kernels' does it, a runtime with "
			"moetrace_pass_kernels()");
	return status;
}

static int print(struct mt_trace *trace, void *input)
{
	const struct options *options = input;
	int status = mt_explain_print_only(
		trace, &options->args, MT_SCALE_TIMES, "kernels", NULL,
		mt_trace_prepare_recording(trace, sql_of(options->view),
					   options->args.recording_id));

	return status == MT_EXIT_OK ? nothing_mention(trace, options) : status;
}

int mt_cmd_kernels(int argc, char **argv)
{
	static const struct mt_trace_verb verb = {.argp = &argp, .print = print};
	struct options options = {.view = 0};

	return mt_trace_verb_run(&verb, argc, argv, &options.args, &options);
}
