/* SPDX-License-Identifier: MIT */
/*
 * kernels: what operations took, from the views kernel_summary, layer_time and overlap.
 */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/explain.h"

enum { OPT_BY_LAYER = MT_OPT_OWN, OPT_BY_ROLE, OPT_GRAPHS, OPT_OVERLAP };

/* A row a layer and a role. */
#define BY_BOTH (-1)

struct options {
	struct mt_args args;
	int view; /* one of the options; 0: by name */
};

static bool is_both(int view, int key)
{
	return view == BY_BOTH ? key == OPT_BY_LAYER || key == OPT_BY_ROLE
			       : view + key == OPT_BY_LAYER + OPT_BY_ROLE;
}

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
	case OPT_GRAPHS:
	case OPT_OVERLAP:
		if (options->view && options->view != key && !is_both(options->view, key))
			return mt_args_error(&options->args,
					     "--graphs, --overlap and what is printed by layer or role "
					     "exclude each other");
		options->view = is_both(options->view, key) ? BY_BOTH : key;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option argp_options[] = {
	{"by-layer", OPT_BY_LAYER, NULL, 0,
	 "A row a layer and phase: the time of a pass in it, and how that was measured", 1},
	{"by-role", OPT_BY_ROLE, NULL, 0,
	 "A row a role: attention, gate, experts, ...; with --by-layer a row a layer and role", 1},
	{"graphs", OPT_GRAPHS, NULL, 0,
	 "A row a size of pass: launches of whole graphs, from their begin to their end", 1},
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

#define SQL_LAYER_ROLES                                                                            \
	"SELECT k.recording_id, l.model_id, l.layer, k.role, count(DISTINCT k.pass_id) AS n_passes, " \
	"count(*) AS n, 1.0 * sum(k.duration_ns) / count(DISTINCT k.pass_id) AS mean_ns, "         \
	"max(k.duration_ns) AS max_ns FROM kernel_event AS k JOIN layer AS l USING (layer_id) "    \
	"WHERE k.pass_id IS NOT NULL AND (?1 IS NULL OR k.recording_id = ?1) "                     \
	"GROUP BY k.recording_id, l.model_id, l.layer, k.role "                                    \
	"ORDER BY k.recording_id, l.model_id, l.layer, mean_ns DESC, k.role"

#define SQL_GRAPHS                                                                              \
	"SELECT g.recording_id, g.device_id, p.phase, p.n_rows, p.padding_rows, count(*) AS n, " \
	"avg(g.end_ns - g.start_ns) AS mean_ns, min(g.end_ns - g.start_ns) AS min_ns, "         \
	"max(g.end_ns - g.start_ns) AS max_ns, max(g.n_nodes) AS n_nodes "                      \
	"FROM graph_launch AS g LEFT JOIN pass AS p USING (pass_id) "                           \
	"WHERE g.flags = 0 AND (?1 IS NULL OR g.recording_id = ?1) "                            \
	"GROUP BY g.recording_id, g.device_id, p.phase, p.n_rows, p.padding_rows "              \
	"ORDER BY g.recording_id, g.device_id, p.phase, p.n_rows, p.padding_rows"

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
	case BY_BOTH:
		return SQL_LAYER_ROLES;
	case OPT_GRAPHS:
		return SQL_GRAPHS;
	case OPT_OVERLAP:
		return SQL_OVERLAP;
	default:
		return SQL_NAMES;
	}
}

/* Why there is nothing to see, where a person would wonder. */
static int nothing_mention(const struct mt_trace *trace, const struct options *options)
{
	int64_t n = 0, n_graphs = 0, n_kept = 0;
	int status = mt_trace_int(trace,
				  "SELECT (SELECT count(*) FROM kernel) + "
				  "(SELECT count(n_nodes) FROM graph_launch)",
				  &n);

	if (status == MT_EXIT_OK)
		status = mt_trace_int(trace, "SELECT count(*) FROM graph_launch", &n_graphs);
	if (status == MT_EXIT_OK)
		status = mt_trace_int(
			trace, "SELECT count(*) FROM recording WHERE mode <> 'stat'", &n_kept);
	if (status != MT_EXIT_OK || n || (!n_graphs && !n_kept) || options->view == OPT_BY_LAYER ||
	    options->view == OPT_GRAPHS)
		return status;
	if (n_graphs)
		mt_note("graphs were recorded as a whole, which --graphs shows: 'moetrace run "
			"--collect cupti=kernel:every=50' records their kernels");
	else
		mt_note("no operation was timed: 'moetrace run --kernels' does it, a runtime with "
			"moetrace_pass_kernels(), on a GPU --collect cupti");
	return status;
}

/* ?1 recording. Such a one has no operations and no layers of passes, whatever was asked for. */
#define SQL_STAT                                                                                \
	"SELECT recording_id, 'its mode is stat, which keeps no passes and so none of the times '" \
	"|| 'that a runtime takes of their operations: record in mode per_token or per_pass' "   \
	"FROM recording WHERE mode = 'stat' AND (?1 IS NULL OR recording_id = ?1) ORDER BY 1"

/* ?1 recording. They are in no answer by pass or layer. */
#define SQL_UNTIED                                                                            \
	"SELECT recording_id, value || ' operations or launches of graphs are of no pass that is " \
	"known: theirs was lost, or its end came too late to be waited for, or there was no room for " \
	"so many to wait (32768)' FROM stats WHERE name = 'untied_kernels' AND value > 0 AND (?1 IS " \
	"NULL OR recording_id = ?1) ORDER BY 1"

static int notes_print(const struct mt_trace *trace, uint64_t recording_id)
{
	int status = mt_trace_print_notes(
		trace, mt_trace_prepare_recording(trace, SQL_UNTIED, recording_id));

	if (status == MT_EXIT_OK)
		status = mt_trace_print_notes(
			trace, mt_trace_prepare_recording(trace, SQL_STAT, recording_id));
	return status;
}

static int print(struct mt_trace *trace, void *input)
{
	const struct options *options = input;
	int status = mt_explain_print_only(
		trace, &options->args, MT_SCALE_TIMES, "kernels", NULL,
		mt_trace_prepare_recording(trace, sql_of(options->view),
					   options->args.recording_id));

	if (status == MT_EXIT_OK)
		status = notes_print(trace, options->args.recording_id);
	return status == MT_EXIT_OK ? nothing_mention(trace, options) : status;
}

int mt_cmd_kernels(int argc, char **argv)
{
	static const struct mt_trace_verb verb = {.argp = &argp, .print = print};
	struct options options = {.view = 0};

	return mt_trace_verb_run(&verb, argc, argv, &options.args, &options);
}
