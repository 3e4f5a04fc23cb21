/* SPDX-License-Identifier: MIT */
/*
 * eplb: where to put the experts of each layer, with how many replicas, so that ranks are evenly
 * loaded: from a recording, by moe_eplb() and, before and after, moe_balance(); or from a matrix
 * of loads. The figures of a recording are those of its passes, not of its totals.
 */
#include "cli/cmd_eplb.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/moetrace.h>

#include "cli/cli.h"
#include "schema/functions/placement.h"

enum {
	OPT_LOADS = MT_OPT_OWN,
	OPT_REPLICAS,
	OPT_RANKS,
	OPT_GROUPS,
	OPT_NODES,
	OPT_SPREAD,
	OPT_MODEL,
	OPT_EXPORT,
};

struct options {
	struct mt_args args;
	const char *loads;
	struct mt_placement_shape shape; /* n_experts, and n_replicas if 0: as the layers say */
	uint64_t model_id;		 /* 0: the only one */
	bool spreads;
	enum mt_export export;
};

static const struct argp_option argp_options[] = {
	{"loads", OPT_LOADS, "FILE.json", 0,
	 "Loads to go by, instead of a trace: an array a layer, "
	 "a number an expert",
	 1},
	{"ranks", OPT_RANKS, "R", 0, "Ranks (GPUs) of expert parallelism; required", 2},
	{"replicas", OPT_REPLICAS, "N", 0, "Slots on all ranks together [as many as experts]", 2},
	{"groups", OPT_GROUPS, "G", 0, "Groups of experts that stay on one node [1]", 2},
	{"nodes", OPT_NODES, "M", 0, "Nodes that the ranks are on [1]", 2},
	{"spread", OPT_SPREAD, NULL, 0,
	 "Leave no two replicas of an expert on one rank where a "
	 "swap avoids it, and be no worse than replicas dealt out in turn; the published method "
	 "looks at neither",
	 2},
	{"model", OPT_MODEL, "ID", 0, "The model, where the trace has several", 3},
	{"export", OPT_EXPORT, "ENGINE", 0,
	 "Print the placement as sglang, vllm or trtllm reads it, in place of the figures", 3},
	{0},
};

static error_t count_parse(struct options *options, const char *name, const char *text,
			   uint32_t *ret_value)
{
	uint64_t value;
	error_t error = mt_args_uint(&options->args, name, text, 1, MT_PLACEMENT_MAX, &value);

	if (error == 0)
		*ret_value = (uint32_t)value;
	return error;
}

static error_t complete(struct options *options)
{
	if (options->loads && options->args.file)
		return mt_args_error(&options->args, "give either FILE or --loads FILE.json");
	if (options->shape.n_ranks == 0)
		return mt_args_error(&options->args, "--ranks R is missing");
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->args;
		return 0;
	case OPT_LOADS:
		options->loads = arg;
		options->args.no_file = true;
		return 0;
	case OPT_RANKS:
		return count_parse(options, "--ranks", arg, &options->shape.n_ranks);
	case OPT_REPLICAS:
		return count_parse(options, "--replicas", arg, &options->shape.n_replicas);
	case OPT_GROUPS:
		return count_parse(options, "--groups", arg, &options->shape.n_groups);
	case OPT_NODES:
		return count_parse(options, "--nodes", arg, &options->shape.n_nodes);
	case OPT_SPREAD:
		options->spreads = true;
		return 0;
	case OPT_MODEL:
		return mt_args_uint(&options->args, "--model", arg, 1, INT64_MAX,
				    &options->model_id);
	case OPT_EXPORT:
		options->export = mt_export_parse(arg);
		if (options->export == MT_EXPORT_NONE)
			return mt_args_error(&options->args,
					     "--export '%s' is not known: give sglang, vllm or "
					     "trtllm",
					     arg);
		return 0;
	case ARGP_KEY_END:
		return complete(options);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_child children[] = {{&mt_args_recording_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.options = argp_options,
	.parser = parse,
	.args_doc = "FILE\n--loads FILE.json",
	.doc = "Compute where to put experts and their replicas so that ranks are evenly loaded, "
	       "after the published EPLB method, and what it would have done to the recorded "
	       "passes."
	       "\v"
	       "Tables have a row a layer: figures before (experts in order, as many on each rank) "
	       "and after. JSON has phy2log, for each layer the expert in each slot, the slots of "
	       "rank 0 first; logcnt, for each layer the slots of each expert; and the table's "
	       "rows "
	       "as layers. Columns:\n"
	       "  balancedness   mean over passes of (mean load of ranks / highest load); with\n"
	       "                 --loads, of the loads given\n"
	       "  max_over_mean  highest load of a rank / mean load of ranks, of the totals\n",
	.children = children,
};

static void plan_free(struct mt_plan *plan)
{
	free(plan->experts);
	free(plan->replicas);
	free(plan->figures);
}

static int plan_alloc(struct mt_plan *plan)
{
	plan->experts = calloc((size_t)plan->n_layers * plan->n_replicas, sizeof(uint32_t));
	plan->replicas = calloc((size_t)plan->n_layers * plan->n_experts, sizeof(uint32_t));
	plan->figures = calloc(plan->n_layers, sizeof(*plan->figures));
	if (plan->experts && plan->replicas && plan->figures)
		return MT_EXIT_OK;
	mt_error("out of memory");
	return MT_EXIT_FAILED;
}

/* ---- from loads ---- */

/* max over mean of the ranks' loads; @experts NULL: experts in order. */
static double loads_max_over_mean(const float *loads, uint32_t n_ranks, const uint32_t *experts,
				  const uint32_t *replicas, uint32_t n_slots)
{
	double total = 0, max = 0;

	for (uint32_t rank = 0; rank < n_ranks; rank++) {
		double load = 0;

		for (uint32_t i = 0; i < n_slots / n_ranks; i++) {
			uint32_t slot = rank * (n_slots / n_ranks) + i;

			load += experts ? (double)loads[experts[slot]] / replicas[experts[slot]]
					: (double)loads[slot];
		}
		total += load;
		max = load > max ? load : max;
	}
	return total > 0 ? max * n_ranks / total : 1.0;
}

static int plan_from_loads(const struct options *options, struct mt_plan *plan)
{
	struct mt_placement_shape shape = options->shape;
	char message[MT_PLACEMENT_MESSAGE_BYTES];
	struct mt_loads loads;
	int status = mt_loads_read(options->loads, &loads);

	if (status != MT_EXIT_OK)
		return status;
	shape.n_experts = loads.n_experts;
	shape.n_replicas = shape.n_replicas ? shape.n_replicas : loads.n_experts;
	*plan = (struct mt_plan){.n_layers = loads.n_layers,
				 .n_experts = loads.n_experts,
				 .n_replicas = shape.n_replicas};
	if (!mt_placement_is_possible(&shape, message)) {
		mt_error("%s: %s", options->loads, message);
		free(loads.loads);
		return MT_EXIT_FAILED;
	}
	status = plan_alloc(plan);
	for (uint32_t i = 0; status == MT_EXIT_OK && i < plan->n_layers; i++) {
		const float *layer = loads.loads + (size_t)i * plan->n_experts;
		uint32_t *experts = plan->experts + (size_t)i * plan->n_replicas;
		uint32_t *replicas = plan->replicas + (size_t)i * plan->n_experts;
		struct mt_plan_figures *figures = &plan->figures[i];

		if (!mt_placement_make(&shape, layer, options->spreads, experts, replicas)) {
			mt_error("out of memory");
			status = MT_EXIT_FAILED;
			break;
		}
		figures->layer = i;
		figures->has_before = plan->n_experts % shape.n_ranks == 0;
		figures->max_over_mean[0] =
			loads_max_over_mean(layer, shape.n_ranks, NULL, NULL, plan->n_experts);
		figures->max_over_mean[1] = loads_max_over_mean(layer, shape.n_ranks, experts,
								replicas, plan->n_replicas);
		for (int j = 0; j < 2; j++)
			figures->balancedness[j] = 1.0 / figures->max_over_mean[j];
	}
	free(loads.loads);
	return status;
}

/* ---- from a trace ---- */

/* What the placement is of: one recording and one model of it, named or the only ones. */
struct source {
	int64_t recording_id;
	int64_t model_id;
};

static int source_find(const struct mt_trace *trace, const struct options *options,
		       struct source *ret_source)
{
	sqlite3_stmt *stmt = mt_trace_prepare(
		trace, "SELECT DISTINCT recording_id, model_id FROM expert_load"
		       " WHERE (?1 IS NULL OR recording_id = ?1) AND (?2 IS NULL OR model_id = ?2)"
		       " AND kind = 'routed' ORDER BY 1, 2 LIMIT 2");
	int n = 0, rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	if (options->args.recording_id)
		sqlite3_bind_int64(stmt, 1, (int64_t)options->args.recording_id);
	if (options->model_id)
		sqlite3_bind_int64(stmt, 2, (int64_t)options->model_id);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		if (n++ == 0)
			*ret_source = (struct source){sqlite3_column_int64(stmt, 0),
						      sqlite3_column_int64(stmt, 1)};
	if (rc != SQLITE_DONE)
		mt_trace_error(trace);
	else if (n == 0)
		mt_error("%s: no expert load was recorded%s", trace->path,
			 options->model_id || options->args.recording_id ? " there" : "");
	else if (n > 1)
		mt_error("%s: holds several recordings or models: choose by --recording and"
			 " --model ('moetrace info' lists them)",
			 trace->path);
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE && n == 1 ? MT_EXIT_OK : MT_EXIT_FAILED;
}

static sqlite3_stmt *prepare(const struct mt_trace *trace, const struct options *options,
			     const struct source *source, const char *sql)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, sql);

	if (!stmt)
		return NULL;
	sqlite3_bind_int64(stmt, 1, options->shape.n_ranks);
	if (options->shape.n_replicas)
		sqlite3_bind_int64(stmt, 2, options->shape.n_replicas);
	sqlite3_bind_int64(stmt, 3, options->shape.n_groups);
	sqlite3_bind_int64(stmt, 4, options->shape.n_nodes);
	sqlite3_bind_int(stmt, 5, options->spreads);
	sqlite3_bind_int64(stmt, 6, source->recording_id);
	sqlite3_bind_int64(stmt, 7, source->model_id);
	return stmt;
}

#define SQL_PLAN                                                                          \
	"FROM moe_eplb(?1, ?2, ?3, ?4, ?5, ?7, ?6) AS p JOIN layer AS l ON l.layer_id = " \
	"p.layer_id"                                                                      \
	" WHERE p.recording_id = ?6 AND p.model_id = ?7"

/* All layers of a plan have one shape: what the engines that read it demand. */
static int plan_size(const struct mt_trace *trace, const struct options *options,
		     const struct source *source, struct mt_plan *plan)
{
	sqlite3_stmt *stmt = prepare(trace, options, source,
				     "SELECT count(DISTINCT p.layer_id), max(l.n_experts),"
				     " min(l.n_experts), max(p.slot) + 1, (SELECT n_layers FROM"
				     " model WHERE model_id = ?7) " SQL_PLAN);
	bool is_even = false;
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW) {
		plan->n_layers = (uint32_t)sqlite3_column_int64(stmt, 0);
		plan->n_experts = (uint32_t)sqlite3_column_int64(stmt, 1);
		plan->n_replicas = (uint32_t)sqlite3_column_int64(stmt, 3);
		is_even = sqlite3_column_int64(stmt, 2) == plan->n_experts;
		plan->n_model_layers = sqlite3_column_int64(stmt, 4);
	} else {
		mt_trace_error(trace);
	}
	sqlite3_finalize(stmt);
	if (rc == SQLITE_ROW && !is_even)
		mt_error("%s: the layers of model %" PRId64 " have different numbers of experts;"
			 " use moe_eplb() layer by layer",
			 trace->path, source->model_id);
	return rc == SQLITE_ROW && is_even ? plan_alloc(plan) : MT_EXIT_FAILED;
}

static int plan_read(const struct mt_trace *trace, const struct options *options,
		     const struct source *source, struct mt_plan *plan)
{
	sqlite3_stmt *stmt = prepare(trace, options, source,
				     "SELECT p.layer, p.expert, p.n_replicas " SQL_PLAN
				     " ORDER BY p.layer_id, p.slot");
	size_t n = (size_t)plan->n_layers * plan->n_replicas, i = 0;
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && i < n) {
		const size_t layer = i / plan->n_replicas;
		const uint32_t expert = (uint32_t)sqlite3_column_int64(stmt, 1);

		plan->figures[layer].layer = sqlite3_column_int64(stmt, 0);
		plan->experts[i++] = expert;
		plan->replicas[layer * plan->n_experts + expert] =
			(uint32_t)sqlite3_column_int64(stmt, 2);
	}
	if (rc != SQLITE_DONE)
		mt_trace_error(trace);
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE && i == n ? MT_EXIT_OK : MT_EXIT_FAILED;
}

static void numbers_write(struct mt_jsonw *json, const uint32_t *numbers, uint32_t n_layers,
			  uint32_t n)
{
	mt_jsonw_array_begin(json);
	for (uint32_t i = 0; i < n_layers; i++) {
		mt_jsonw_array_begin(json);
		for (uint32_t j = 0; j < n; j++)
			mt_jsonw_uint64(json, numbers[(size_t)i * n + j]);
		mt_jsonw_array_end(json);
	}
	mt_jsonw_array_end(json);
}

/* The experts by slot as moe_balance() takes them, to be freed; NULL: out of memory. */
static char *placement_text(const struct mt_plan *plan)
{
	struct mt_jsonw json;
	char *text = NULL;
	size_t n_bytes;
	FILE *out = open_memstream(&text, &n_bytes);

	if (!out)
		return NULL;
	mt_jsonw_init(&json, out);
	numbers_write(&json, plan->experts, plan->n_layers, plan->n_replicas);
	if (fclose(out) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

static int balance_read(const struct mt_trace *trace, const struct options *options,
			const struct source *source, const char *placement, int after,
			struct mt_plan *plan)
{
	sqlite3_stmt *stmt = mt_trace_prepare(
		trace, "SELECT mean_balancedness, max_over_mean FROM moe_balance(?1, ?2,"
		       " NULL, NULL, ?4, ?3) WHERE n_passes > 0 ORDER BY layer_id");
	uint32_t i = 0;
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_int64(stmt, 1, options->shape.n_ranks);
	sqlite3_bind_text(stmt, 2, placement, -1, SQLITE_STATIC);
	sqlite3_bind_int64(stmt, 3, source->recording_id);
	sqlite3_bind_int64(stmt, 4, source->model_id);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && i < plan->n_layers) {
		plan->figures[i].balancedness[after] = sqlite3_column_double(stmt, 0);
		plan->figures[i].max_over_mean[after] = sqlite3_column_double(stmt, 1);
		plan->figures[i++].has_before |= after == 0;
	}
	if (rc != SQLITE_DONE)
		mt_trace_error(trace);
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE ? MT_EXIT_OK : MT_EXIT_FAILED;
}

static int plan_from_trace(const struct mt_trace *trace, const struct options *options,
			   struct mt_plan *plan)
{
	struct source source;
	char *placement = NULL;
	int status = source_find(trace, options, &source);

	if (status == MT_EXIT_OK)
		status = plan_size(trace, options, &source, plan);
	if (status == MT_EXIT_OK)
		status = plan_read(trace, options, &source, plan);
	if (status == MT_EXIT_OK && plan->n_experts % options->shape.n_ranks == 0)
		status = balance_read(trace, options, &source, NULL, 0, plan);
	if (status == MT_EXIT_OK && !(placement = placement_text(plan))) {
		mt_error("out of memory");
		status = MT_EXIT_FAILED;
	}
	if (status == MT_EXIT_OK)
		status = balance_read(trace, options, &source, placement, 1, plan);
	free(placement);
	return status;
}

/* ---- output ---- */

static const char *const columns[] = {"layer", "balancedness_before", "balancedness_after",
				      "max_over_mean_before", "max_over_mean_after"};

#define N_COLUMNS (sizeof(columns) / sizeof(columns[0]))

static double figure(const struct mt_plan_figures *figures, size_t column)
{
	return column < 3 ? figures->balancedness[column - 1] : figures->max_over_mean[column - 3];
}

static bool is_unknown(const struct mt_plan_figures *figures, size_t column)
{
	return column % 2 == 1 && !figures->has_before;
}

static int table_print(const struct mt_plan *plan, enum mt_format format)
{
	struct mt_output output;
	struct mt_table table;

	mt_output_begin(&output, stdout, format);
	if (mt_table_begin(&table, &output, columns, N_COLUMNS) != MOETRACE_OK)
		return MT_EXIT_FAILED;
	for (uint32_t i = 0; i < plan->n_layers; i++) {
		mt_table_int64(&table, plan->figures[i].layer);
		for (size_t j = 1; j < N_COLUMNS; j++)
			if (is_unknown(&plan->figures[i], j))
				mt_table_null(&table);
			else
				mt_table_double(&table, figure(&plan->figures[i], j));
	}
	if (mt_table_end(&table) != MOETRACE_OK || mt_output_end(&output) != MOETRACE_OK) {
		mt_error("out of memory");
		return MT_EXIT_FAILED;
	}
	return MT_EXIT_OK;
}

static int json_print(const struct mt_plan *plan)
{
	struct mt_jsonw json;

	mt_jsonw_init(&json, stdout);
	mt_jsonw_object_begin(&json);
	mt_jsonw_key(&json, "phy2log");
	numbers_write(&json, plan->experts, plan->n_layers, plan->n_replicas);
	mt_jsonw_key(&json, "logcnt");
	numbers_write(&json, plan->replicas, plan->n_layers, plan->n_experts);
	mt_jsonw_key(&json, "layers");
	mt_jsonw_array_begin(&json);
	for (uint32_t i = 0; i < plan->n_layers; i++) {
		mt_jsonw_object_begin(&json);
		mt_jsonw_key(&json, columns[0]);
		mt_jsonw_int64(&json, plan->figures[i].layer);
		for (size_t j = 1; j < N_COLUMNS; j++) {
			mt_jsonw_key(&json, columns[j]);
			if (is_unknown(&plan->figures[i], j))
				mt_jsonw_null(&json);
			else
				mt_jsonw_double(&json, figure(&plan->figures[i], j));
		}
		mt_jsonw_object_end(&json);
	}
	mt_jsonw_array_end(&json);
	mt_jsonw_object_end(&json);
	return mt_jsonw_end_line(&json) == MOETRACE_OK ? MT_EXIT_OK : MT_EXIT_FAILED;
}

int mt_cmd_eplb(int argc, char **argv)
{
	struct options options = {.shape = {.n_groups = 1, .n_nodes = 1}};
	struct mt_plan plan = {0};
	struct mt_trace trace;
	int status = mt_args_parse(&argp, argc, argv, &options.args, &options);

	if (status != MT_EXIT_OK)
		return status;
	if (options.loads) {
		status = plan_from_loads(&options, &plan);
	} else {
		status = mt_trace_open(options.args.file, &trace);
		if (status != MT_EXIT_OK)
			return status;
		status = mt_trace_recording_check(&trace, options.args.recording_id);
		if (status == MT_EXIT_OK)
			status = plan_from_trace(&trace, &options, &plan);
		mt_trace_close(&trace);
	}
	if (status == MT_EXIT_OK && options.export != MT_EXPORT_NONE)
		status = mt_plan_export(&plan, options.export);
	else if (status == MT_EXIT_OK)
		status = options.args.format == MT_FORMAT_JSON
				 ? json_print(&plan)
				 : table_print(&plan, options.args.format);
	plan_free(&plan);
	return status;
}
