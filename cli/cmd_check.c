/* SPDX-License-Identifier: MIT */
/*
 * check: proves that a trace is sound. Every proof is a line with what it looked at and what broke
 * it. A trace whose writer was killed is sound as far as it was committed; that its end is missing
 * is said beside the proofs and, with --strict, by the exit status. With --routing it is not the file
 * that is in question, but what it tells of the routers: routing.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "cli/check.h"
#include "cli/routing.h"

enum { OPT_STRICT = MT_OPT_OWN, OPT_ROUTING, OPT_PRESET, OPT_MODEL };

struct check_args {
	struct mt_args common;
	bool strict;
	bool routing;
	const struct mtk_preset *preset; /* NULL: none */
	uint64_t model_id;		 /* 0: all */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct check_args *args = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &args->common;
		return 0;
	case OPT_STRICT:
		args->strict = true;
		return 0;
	case OPT_ROUTING:
		args->routing = true;
		return 0;
	case OPT_PRESET:
		args->preset = mtk_preset_find(arg);
		return args->preset ? 0
				    : mt_args_error(&args->common,
						    "--preset '%s' is unknown; 'moetrace models' "
						    "lists them",
						    arg);
	case OPT_MODEL:
		return mt_args_uint(&args->common, "--model", arg, 1, INT64_MAX, &args->model_id);
	case ARGP_KEY_END:
		if (!args->routing && (args->preset || args->model_id))
			return mt_args_error(&args->common, "--preset and --model go with --routing");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{"strict", OPT_STRICT, NULL, 0, "Exit with 4 if the trace has losses or an unfinished end",
	 0},
	{"routing", OPT_ROUTING, NULL, 0,
	 "Look for the ways in which routing goes wrong, in place of the proofs", 1},
	{"preset", OPT_PRESET, "NAME", 0,
	 "With --routing: compare with the published router of 'moetrace models NAME'", 1},
	{"model", OPT_MODEL, "ID", 0, "With --routing: only this model", 1},
	{0},
};

static const struct {
	const char *name;
	const char *says;
} proofs[] = {
#define CHECK_PROOF_ROW(identifier, name, says) {name, says},
	CHECK_PROOFS(CHECK_PROOF_ROW)
#undef CHECK_PROOF_ROW
};

/* The proofs, as the text that follows the options. */
static char *help_filter(int key, const char *text, void *input)
{
	char *list = NULL;
	size_t n_bytes;
	FILE *out;
	size_t i;

	(void)input;
	if (key != ARGP_KEY_HELP_POST_DOC)
		return (char *)text;
	out = open_memstream(&list, &n_bytes);
	if (!out)
		return NULL;
	fputs("Proofs, in order:\n", out);
	for (i = 0; i < CHECK_N_PROOFS; i++)
		fprintf(out, "  %-17s %s\n", proofs[i].name, proofs[i].says);
	fputs("\n--routing looks for, in order:\n", out);
	for (i = 0; i < ROUTING_N_LOOKS; i++)
		fprintf(out, "  %-17s %s\n", routing_look_name((enum routing_look)i),
			routing_look_says((enum routing_look)i));
	fputs("\n", out);
	fputs(text, out);
	if (fclose(out) != 0) {
		free(list);
		return NULL;
	}
	return list;
}

static const struct argp_child children[] = {{&mt_args_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "FILE",
	.doc = "Prove that a trace is sound."
	       "\v"
	       "What no file can prove is left to its writer: which weights, if they are not\n"
	       "renormalized, the order of a row's experts where no score is stored, token ids,\n"
	       "names and attributes, what the padding rows selected, and the clock.\n"
	       "\n"
	       "With --routing a finding is proved: no router that is as its layer says gives the\n"
	       "rows that it points at; or statistical: it then says on how much it stands. What was\n"
	       "seen by a look is its n_seen; where that is 0, needs says what was missing.\n"
	       "\n"
	       "Exit status:\n"
	       "  0  sound; a missing end of a killed or live recording is told, and is no fault;\n"
	       "     with --routing: nothing was found\n"
	       "  1  a proof is violated, or the file could not be read; with --routing: something\n"
	       "     was found\n"
	       "  4  sound, but --strict was given and there are losses or an unfinished end;\n"
	       "     what sampling, a disabled region or a later start left out is no loss\n",
	.children = children,
	.help_filter = help_filter,
};

/* ---- the run ---- */

static void proofs_run(struct check *check)
{
	static int (*const steps[])(struct check * check) = {
		check_integrity_run,   check_schema_run,    check_definitions_load,
		check_sql_run,	       check_timing_run,    check_serial_run, check_source_run,
		check_windows_load,    check_scan_run,
		check_windows_compare, check_load_compare,  check_spans_sort,
		check_links_load,      check_spans_compare, check_ranges_compare,
		check_stats_compare,
	};
	int status;
	size_t i;

	/* One read transaction: a live writer does not move the ground under the proofs. */
	status = sqlite3_exec(check->trace->db, "BEGIN", NULL, NULL, NULL) == SQLITE_OK
			 ? MT_EXIT_OK
			 : mt_trace_error(check->trace);
	for (i = 0; i < sizeof(steps) / sizeof(steps[0]) && status == MT_EXIT_OK; i++)
		if (!check->lacks_tables)
			status = steps[i](check);
	check->is_cut = status != MT_EXIT_OK;
	/* Damage that ends the reading is a finding, too. */
	if (check->is_cut && (sqlite3_errcode(check->trace->db) & 0xff) == SQLITE_CORRUPT)
		check_violation(check, CHECK_INTEGRITY,
				"file: reading ended at damage; the proofs are not complete");
}

static size_t n_violated(const struct check *check)
{
	size_t n = 0;
	size_t i;

	for (i = 0; i < CHECK_N_PROOFS; i++)
		n += check->results[i].n_violations > 0;
	return n;
}

/* ---- the output ---- */

static int proofs_print(const struct check *check, struct mt_output *output)
{
	static const char *const columns[] = {"proof", "n_checked", "n_violations", "says"};
	static const char *const flat_columns[] = {"proof", "n_checked", "n_violations",
						   "first_violation"};
	bool is_flat = !output->in_sections;
	struct mt_table table;
	size_t i;

	if (mt_table_begin(&table, output, is_flat ? flat_columns : columns, 4) != MOETRACE_OK)
		return MOETRACE_E_NOMEM;
	for (i = 0; i < CHECK_N_PROOFS; i++) {
		const struct check_result *result = &check->results[i];

		mt_table_text(&table, proofs[i].name);
		mt_table_int64(&table, (int64_t)result->n_checked);
		mt_table_int64(&table, (int64_t)result->n_violations);
		mt_table_text(&table, is_flat ? result->examples[0] : proofs[i].says);
	}
	return mt_table_end(&table);
}

/* The first violations of each proof. */
static int violations_print(const struct check *check, struct mt_output *output)
{
	static const char *const columns[] = {"proof", "violation"};
	struct mt_table table;
	size_t i;
	size_t j;

	if (mt_table_begin(&table, output, columns, 2) != MOETRACE_OK)
		return MOETRACE_E_NOMEM;
	for (i = 0; i < CHECK_N_PROOFS; i++) {
		for (j = 0; j < CHECK_MAX_EXAMPLES && check->results[i].examples[j]; j++) {
			mt_table_text(&table, proofs[i].name);
			mt_table_text(&table, check->results[i].examples[j]);
		}
	}
	return mt_table_end(&table);
}

#define SQL_ENDS                                                                               \
	"SELECT recording_id, end_reason, dropped_passes, dropped_layers, dropped_bytes, "     \
	"invalid_ids, misuse, n_gaps, partial_passes, partial_requests, unfinished_requests, " \
	"lag_passes FROM loss ORDER BY recording_id"

/* Every recording with its end and its losses, from the view. */
static int ends_print(const struct check *check, struct mt_output *output)
{
	int status;

	mt_output_section(output, "recordings", "Recordings and their losses");
	output->is_vertical = true;
	status = mt_trace_print_sql(check->trace, output, SQL_ENDS);
	output->is_vertical = false;
	return status;
}

/* One line for each recording without an end. */
static int missing_ends_print(const struct check *check, struct mt_output *output)
{
	sqlite3_stmt *stmt;
	int rc;

	stmt = mt_trace_prepare(check->trace,
				"SELECT r.recording_id, (SELECT max(pass_id) FROM pass "
				"AS p WHERE p.recording_id = r.recording_id) FROM recording AS r "
				"WHERE r.end_ns IS NULL ORDER BY 1");
	if (!stmt)
		return MT_EXIT_FAILED;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		int64_t id = sqlite3_column_int64(stmt, 0);
		bool is_live = mt_trace_writer(check->trace, id) == MT_WRITER_LIVE;

		mt_output_line(output, "recording %lld: %s", (long long)id,
			       is_live ? "is still being recorded, so it has no end yet"
				       : "the end is missing: the writer was killed or could not "
					 "write");
		mt_output_line(output, "recording %lld: proved up to its last committed pass, %lld",
			       (long long)id, (long long)sqlite3_column_int64(stmt, 1));
	}
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE ? MT_EXIT_OK : mt_trace_error(check->trace);
}

/* What is no violation, but should be known. */
static int notes_print(const struct check *check, struct mt_output *output)
{
	int status = missing_ends_print(check, output);

	if (check->n_recordings == 0)
		mt_output_line(output, "no recording was committed");
	return status == MT_EXIT_OK ? check_foreign_print(check, output) : status;
}

static void verdict_print(const struct check *check, struct mt_output *output)
{
	size_t n = n_violated(check);

	if (check->lacks_tables)
		mt_output_line(output, "the other proofs were not made: they need what is missing");
	if (n == 0 && check->is_cut)
		mt_output_line(output, "%s: not proved: the proofs ended at an error",
			       check->trace->path);
	else if (n == 0)
		mt_output_line(output, "%s: sound", check->trace->path);
	else
		mt_output_line(output, "%s: not sound: %zu of %d proofs are violated",
			       check->trace->path, n, CHECK_N_PROOFS);
}

/* The proofs alone in the formats that hold one table; else also ends and violations. */
static int results_print(struct check *check, enum mt_format format)
{
	struct mt_output output;
	int status;

	mt_output_begin(&output, stdout, format);
	if (format == MT_FORMAT_CSV || format == MT_FORMAT_JSONL) {
		if (proofs_print(check, &output) != MOETRACE_OK)
			return MT_EXIT_FAILED;
		return mt_output_end(&output) == MOETRACE_OK ? MT_EXIT_OK : MT_EXIT_FAILED;
	}
	mt_output_sections(&output);
	mt_output_section(&output, "proofs", "Proofs");
	status = proofs_print(check, &output);
	if (status == MOETRACE_OK && check->n_recordings > 0 && !check->lacks_views &&
	    !check->is_cut)
		status = ends_print(check, &output);
	if (format == MT_FORMAT_JSON || n_violated(check) > 0) {
		mt_output_section(&output, "violations", "The first violations");
		if (status == MOETRACE_OK)
			status = violations_print(check, &output);
	}
	mt_output_line(&output, "%s", "");
	if (status == MOETRACE_OK && !check->lacks_tables && !check->is_cut)
		status = notes_print(check, &output);
	check->is_cut = check->is_cut || status != MOETRACE_OK;
	verdict_print(check, &output);
	return status == MOETRACE_OK && mt_output_end(&output) == MOETRACE_OK ? MT_EXIT_OK
									      : MT_EXIT_FAILED;
}

/* Is there a reason besides those that somebody chose: what was left out is no loss. */
#define NOT_CHOSEN                                                                                 \
	"trim(replace(replace(replace(replace(coalesce(reasons, 'lost'), 'sampled', ''), "         \
	"'disabled', ''), 'counted', ''), 'began_before', ''), ',') <> ''"

/* What --strict does not accept, from the view of losses. */
static int has_losses(const struct check *check, int64_t *ret_n)
{
	return mt_trace_int(check->trace,
			    "SELECT count(*) FROM loss AS l WHERE end_reason IS NULL "
			    "OR end_reason IN ('file_limit', 'io_error') OR dropped_passes > 0 "
			    "OR dropped_layers > 0 OR dropped_bytes > 0 OR invalid_ids > 0 "
			    "OR misuse > 0 OR n_gaps > 0 "
			    "OR EXISTS (SELECT 1 FROM pass WHERE recording_id = l.recording_id "
			    "AND verdict = 'partial' AND " NOT_CHOSEN ") "
			    "OR EXISTS (SELECT 1 FROM request WHERE recording_id = l.recording_id "
			    "AND verdict = 'partial' AND " NOT_CHOSEN ")",
			    ret_n);
}

static int strict_status(const struct check *check)
{
	int64_t n;
	int status;

	if (check->n_recordings == 0 && check->trace->is_wal) {
		mt_error("%s: no recording was committed, and the file was never closed "
			 "(--strict); record again",
			 check->trace->path);
		return MT_EXIT_LOSSES;
	}
	status = has_losses(check, &n);
	if (status != MT_EXIT_OK || n == 0)
		return status;
	mt_error("%s: %" PRId64 " recordings have losses or no proper end (--strict); 'moetrace "
		 "query' on the view 'loss' and the table 'gap' says which",
		 check->trace->path, n);
	return MT_EXIT_LOSSES;
}

static int routing_steps_run(struct routing *routing)
{
	static int (*const steps[])(struct routing * routing) = {
		routing_definitions_load, routing_scan_run,	 routing_judge,
		routing_tables_run,	  routing_preset_compare,
	};
	int status = sqlite3_exec(routing->trace->db, "BEGIN", NULL, NULL, NULL) == SQLITE_OK
			     ? MT_EXIT_OK
			     : mt_trace_error(routing->trace);

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && status == MT_EXIT_OK; i++)
		status = steps[i](routing);
	return status;
}

static int routing_run(struct mt_trace *trace, const struct check_args *args)
{
	struct routing routing = {
		.trace = trace,
		.preset = args->preset,
		.model_id = (int64_t)args->model_id,
	};
	int status = routing_steps_run(&routing);

	if (status == MT_EXIT_OK && args->model_id && routing.n_layers == 0) {
		mt_error("%s: has no layers with experts of a model %" PRIu64, trace->path,
			 args->model_id);
		status = MT_EXIT_NOT_FOUND;
	}
	if (status == MT_EXIT_OK)
		status = routing_print(&routing, args->common.format);
	if (status == MT_EXIT_OK && routing.n_findings > 0)
		status = MT_EXIT_FAILED;
	routing_free(&routing);
	return status;
}

static int proofs_make(struct mt_trace *trace, const struct check_args *args)
{
	struct check check = {.trace = trace};
	int status;

	trace->is_check = true;
	proofs_run(&check);
	status = results_print(&check, args->common.format);
	if (check.is_cut || n_violated(&check) > 0)
		status = MT_EXIT_FAILED;
	if (status == MT_EXIT_OK && args->strict)
		status = strict_status(&check);
	check_free(&check);
	return status;
}

static int check_print(struct mt_trace *trace, void *input)
{
	const struct check_args *args = input;

	return args->routing ? routing_run(trace, args) : proofs_make(trace, args);
}

int mt_cmd_check(int argc, char **argv)
{
	static const struct mt_trace_verb verb = {
		.argp = &argp, .takes_empty = true, .print = check_print};
	struct check_args args = {0};

	return mt_trace_verb_run(&verb, argc, argv, &args.common, &args);
}
