/* SPDX-License-Identifier: MIT */
/*
 * diff: two recordings, of one trace or of two: how they were made, and what they chose differently,
 * by layer, by position and by request; then what is not in these figures. The numbers are those of
 * moe_diff() and moe_diff_request(), which are asked once each.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/diff_sql.h"
#include "cli/explain.h"

enum { OPT_RECORDING_B = MT_OPT_OWN, OPT_JOIN, OPT_TOP };

struct options {
	struct mt_args args;
	const char *b; /* NULL: the same file */
	uint64_t recording_b, n_top;
	const char *join;
};

static error_t complete(struct options *options)
{
	if (!options->args.file)
		return ARGP_ERR_UNKNOWN;
	if (!options->b && (options->args.recording_id == 0 || options->recording_b == 0))
		return mt_args_error(&options->args,
				     "which B? Name another trace, or two recordings of this one with "
				     "--recording and --recording-b");
	return ARGP_ERR_UNKNOWN;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->args;
		return 0;
	case ARGP_KEY_ARG:
		if (!options->args.file || options->b)
			return ARGP_ERR_UNKNOWN;
		options->b = arg;
		return 0;
	case OPT_RECORDING_B:
		return mt_args_uint(&options->args, "--recording-b", arg, 1, INT64_MAX,
				    &options->recording_b);
	case OPT_JOIN:
		options->join = arg;
		if (strcmp(arg, "id") == 0 || strcmp(arg, "tokens") == 0)
			return 0;
		return mt_args_error(&options->args, "--join '%s' is not known: give id or tokens",
				     arg);
	case OPT_TOP:
		return mt_args_uint(&options->args, "--top", arg, 1, UINT32_MAX, &options->n_top);
	case ARGP_KEY_END:
		return complete(options);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option argp_options[] = {
	{"recording-b", OPT_RECORDING_B, "N", 0,
	 "Recording N of B; --recording is of A [the only one of the file]", 1},
	{"join", OPT_JOIN, "WAY", 0,
	 "Join requests by id or by tokens alone [by id, and the others by tokens]", 1},
	{"top", OPT_TOP, "N", 0, "Requests to print, those that differ most first [12]", 1},
	{0},
};

static const struct argp_child children[] = {{&mt_args_report_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.options = argp_options,
	.parser = parse,
	.args_doc = "A [B]",
	.doc = "Compare what two recordings chose: of two traces, or, without B, of one."
	       "\v"
	       "Requests are joined by their external id, the n-th with the n-th where several have "
	       "it, and the others by the tokens of their prompts. A request is compared position by "
	       "position, up to the first token that differs, in the attempt that its response comes "
	       "from. A row is a position in a layer.\n"
	       "\n"
	       "Columns:\n"
	       "  requests           those in both, by_id and by_tokens\n"
	       "  same_texts         of them, those whose tokens are known, and none differs\n"
	       "  same_while_compared  those of the same experts in all rows that were compared:\n"
	       "                     behind the first token that differs nothing is\n"
	       "  positions          that both could have, up to that token\n"
	       "  compared_positions  those of them with rows in both: sampling, loss leave some out\n"
	       "  differing_rows     of the rows, those with another set of experts\n"
	       "  differing_choices  of the choices, those that the other one did not make\n"
	       "  share_low, _high   its 95 % interval, over requests\n"
	       "  reordered_rows     of rows with the same set and a known order, another order\n"
	       "  weight_distance    mean over rows of the total variation distance of the weights,\n"
	       "                     each divided by their sum: 0 the same, 1 nothing in common\n"
	       "  weight_difference  mean |a - b| of experts that both chose, where both weights\n"
	       "                     include the same; max_weight_difference the largest\n"
	       "  load_shift         part of the choices that went to other experts, over all rows\n"
	       "  chance_shift       what exchanging A and B in random requests gives in the mean\n"
	       "  p_value            how often that gives as much: tokens of a request are alike, so\n"
	       "                     requests are exchanged, not tokens; p_adjusted is for the\n"
	       "                     largest shift of any layer\n"
	       "  token_position     the first token that differs: the comparison ends there\n"
	       "  first_position, first_layer  the first row with another set of experts\n"
	       "  missing_a, _b      rows that the other one has\n"
	       "\n"
	       "Shared slots are no choice. Positions that a request reused from another one are in "
	       "its own figures, and not in those of layers and positions: they were computed, and "
	       "are compared, there. --explain prints queries for a connection that has A as its "
	       "main database and B attached as b.\n",
	.children = children,
};

static const struct section {
	const char *name, *title, *sql;
	bool is_vertical;
} sections[] = {
	{"differences", "What differs in how they were recorded", MT_SQL_DIFFERENCES, false},
	{"summary", "All rows", MT_SQL_SUMMARY, true},
	{"layers", "Layers", MT_SQL_LAYERS, false},
	{"positions", "Positions", MT_SQL_POSITIONS, false},
	{"requests", "Requests, those that differ most first", MT_SQL_REQUESTS, false},
	{"left_out", "Not in these figures, or to know about them", MT_SQL_LEFT_OUT, false},
};

/* What the functions are asked. */
struct comparison {
	int64_t recording_a, recording_b;
	char *layer, *request;
};

static int table_make(const struct mt_trace *trace, const char *name, const char *call)
{
	char *sql = sqlite3_mprintf("CREATE TEMP TABLE %s AS SELECT * FROM %s", name, call);
	int rc = sql ? sqlite3_exec(trace->db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;

	sqlite3_free(sql);
	return rc == SQLITE_OK ? MT_EXIT_OK : mt_trace_error(trace);
}

static char *call_text(const struct comparison *comparison, const char *function,
		       const char *join)
{
	return sqlite3_mprintf(join ? "%s(%lld, %lld, 'b', '%s')" : "%s(%lld, %lld, 'b')", function,
			       (long long)comparison->recording_a,
			       (long long)comparison->recording_b, join);
}

static int tables_make(const struct mt_trace *trace, const struct options *options,
		       struct comparison *comparison)
{
	int status;

	comparison->layer = call_text(comparison, "moe_diff", options->join);
	comparison->request = call_text(comparison, "moe_diff_request", options->join);
	if (!comparison->layer || !comparison->request) {
		mt_error("%s: out of memory", trace->path);
		return MT_EXIT_FAILED;
	}
	status = table_make(trace, "diff_layer", comparison->layer);
	return status == MT_EXIT_OK ? table_make(trace, "diff_request", comparison->request)
				    : status;
}

/* The recording that was asked for, or the only one of the file. */
static int recording_choose(const struct mt_trace *trace, const char *schema, const char *path,
			    const char *option, uint64_t asked, int64_t *ret_recording)
{
	char *sql = sqlite3_mprintf("SELECT count(*), min(recording_id) FROM %s.recording WHERE "
				    "?1 IS NULL OR recording_id = ?1", schema);
	sqlite3_stmt *stmt = sql ? mt_trace_prepare_recording(trace, sql, asked) : NULL;
	int status = MT_EXIT_OK;

	sqlite3_free(sql);
	if (!stmt)
		return MT_EXIT_FAILED;
	if (sqlite3_step(stmt) != SQLITE_ROW) {
		status = mt_trace_error(trace);
	} else if (sqlite3_column_int64(stmt, 0) == 0) {
		if (asked)
			mt_error("%s: has no recording %llu; 'moetrace info' lists them", path,
				 (unsigned long long)asked);
		else
			mt_error("%s: has no recording: none was committed", path);
		status = MT_EXIT_NOT_FOUND;
	} else if (sqlite3_column_int64(stmt, 0) > 1) {
		mt_error("%s: has several recordings: choose one with %s N ('moetrace info' lists "
			 "them)",
			 path, option);
		status = MT_EXIT_USAGE;
	}
	*ret_recording = sqlite3_column_int64(stmt, 1);
	sqlite3_finalize(stmt);
	return status;
}

/* Without tokens nobody knows whether the texts are the same: that has to come before the figures. */
static int textless_print(const struct mt_trace *trace, struct mt_output *output)
{
	int64_t n;
	int status = mt_trace_int(trace, MT_SQL_N_TEXTLESS, &n);

	if (status == MT_EXIT_OK && n > 0)
		mt_output_line(output,
			       "\n%lld requests have no tokens on both sides: their texts may differ, "
			       "and these figures with them",
			       (long long)n);
	return status;
}

static int sections_print(const struct mt_trace *trace, const struct options *options,
			  const struct comparison *comparison)
{
	const struct mt_explain_table tables[] = {{"temp.diff_layer", comparison->layer},
						  {"temp.diff_request", comparison->request},
						  {NULL, NULL}};
	struct mt_explain explain = {.is_on = options->args.explains, .tables = tables};
	struct mt_output output;
	int status = MT_EXIT_OK;

	mt_output_begin(&output, stdout, options->args.format);
	mt_output_sections(&output);
	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]) && status == MT_EXIT_OK;
	     i++) {
		sqlite3_stmt *stmt;

		if (strcmp(sections[i].name, "summary") == 0)
			status = textless_print(trace, &output);
		if (status != MT_EXIT_OK)
			break;
		stmt = mt_trace_prepare(trace, sections[i].sql);

		if (stmt) {
			sqlite3_bind_int64(stmt, 1, comparison->recording_a);
			sqlite3_bind_int64(stmt, 2, comparison->recording_b);
			sqlite3_bind_int64(stmt, 3, (int64_t)options->n_top);
		}
		output.is_vertical = sections[i].is_vertical;
		status = mt_explain_print(&explain, trace, &output, sections[i].name,
					  sections[i].title, stmt);
	}
	status = mt_explain_end(&explain, &output, status);
	if (status == MT_EXIT_OK)
		mt_output_end(&output);
	return status;
}

static int print(struct mt_trace *trace, void *input)
{
	const struct options *options = input;
	const char *b = options->b ? options->b : trace->path;
	struct comparison comparison = {0};
	int status = mt_trace_attach(trace, b, "b");

	if (status == MT_EXIT_OK)
		status = recording_choose(trace, "main", trace->path, "--recording",
					  options->args.recording_id, &comparison.recording_a);
	if (status == MT_EXIT_OK)
		status = recording_choose(trace, "b", b, "--recording-b", options->recording_b,
					  &comparison.recording_b);
	if (status == MT_EXIT_OK)
		status = tables_make(trace, options, &comparison);
	if (status == MT_EXIT_OK)
		status = sections_print(trace, options, &comparison);
	sqlite3_free(comparison.layer);
	sqlite3_free(comparison.request);
	return status;
}

int mt_cmd_diff(int argc, char **argv)
{
	static const struct mt_trace_verb verb = {
		.argp = &argp, .takes_empty = true, .print = print};
	struct options options = {.args = {.no_csv = true, .markdown = true}, .n_top = 12};

	return mt_trace_verb_run(&verb, argc, argv, &options.args, &options);
}
