/* SPDX-License-Identifier: MIT */
/*
 * report: one screen about a trace. Every number is what a view or a function returns; this file
 * only chooses and names. Losses and missing ends come first, because they decide how far the
 * rest can be trusted.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "cli/cli.h"
#include "cli/explain.h"
#include "cli/lift.h"
#include "schema/functions/questions.h"

static const struct argp_child children[] = {{&mt_args_report_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.parser = mt_args_pass_on,
	.args_doc = "FILE",
	.doc = "Print one screen about a trace: what deserves attention, losses first; what was "
	       "recorded, throughput, the balance of the layers, the hottest experts, experts "
	       "that prefer a kind of text, and the time of the layers. --format markdown is for "
	       "documents."
	       "\v"
	       "Slow passes are those that decode and took more than 1.5 times the median of their "
	       "model, with the first reason that the file shows, and without one where they took 3 "
	       "times as long. "
	       "--explain prints the queries, which any sqlite3 runs; that of the preferences "
	       "needs the extension moetrace_sql. "
	       "The columns mean what 'moetrace balance --help' and 'moetrace experts --help' say. "
	       "tokens_per_s are rows over the time in which passes ran. Experts are compared by "
	       "the request attribute 'domain', else by the one with the fewest values.",
	.children = children,
};

struct section {
	const char *name;
	const char *title;
	const char *sql; /* ?1 recording or NULL, ?2 the attribute; NULL: that of schema/questions */
	bool needs_attribute;
	bool is_vertical;
};

static const struct section sections[] = {
	{"attention", "What deserves attention", NULL, false, false},
	{"slow", "Passes that took more than 1.5 times the usual", NULL, false, false},
	{"padding", "Experts that padding alone made active", NULL, false, false},
	{"recordings", "What was recorded", NULL, false, true},
	{"verdicts", "Verdicts and losses", NULL, false, true},
	{"throughput", "Tokens and throughput", NULL, false, false},
	{"balance", "Balance: the least even layers", NULL, false, false},
	{"hottest", "The hottest experts", NULL, false, false},
	{"preferences", "Experts that prefer a value of the attribute",
	 MT_SQL_LIFT
	 ", ranked AS (SELECT *, row_number() OVER (PARTITION BY recording_id, value "
	 "ORDER BY lift DESC, layer_id, expert) AS place FROM scored WHERE expert_tokens >= 50) "
	 "SELECT recording_id, ?2 AS attribute, value, model_id, layer, expert, tokens, "
	 "expert_tokens, share, lift FROM ranked WHERE place <= 2 "
	 "ORDER BY recording_id, value, place",
	 true, false},
	{"layer_times", "Time of the layers", NULL, false,
	 false},
};

/* 'domain', else the attribute with the fewest values but more than one; NULL: there is none. */
static int attribute_choose(const struct mt_trace *trace, char **ret_attribute)
{
	sqlite3_stmt *stmt;
	const char *key;
	int rc;

	*ret_attribute = NULL;
	stmt = mt_trace_prepare(trace,
				"SELECT key FROM request_attribute JOIN request USING (request_id) "
				"JOIN recording USING (recording_id) WHERE mode = 'per_token' "
				"GROUP BY key "
				"HAVING count(DISTINCT value) > 1 "
				"ORDER BY key <> 'domain', count(DISTINCT value), key LIMIT 1");
	if (!stmt)
		return MT_EXIT_FAILED;
	rc = sqlite3_step(stmt);
	key = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(stmt, 0) : NULL;
	if (key)
		*ret_attribute = strdup(key);
	sqlite3_finalize(stmt);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? MT_EXIT_OK : mt_trace_error(trace);
}

/* Preferences are counted row by row, some millions a second: of large files only when asked for. */
static int size_check(const struct mt_trace *trace, char **attribute)
{
	const int64_t most = 10000000;
	int64_t n_assignments;
	int status = mt_trace_int(trace,
				  "SELECT sum(value) FROM stats WHERE name = 'recorded_assignments'",
				  &n_assignments);

	if (status != MT_EXIT_OK || n_assignments <= most)
		return status;
	mt_note("preferences by '%s' are left out, they take a while here: see 'moetrace experts "
		"--by-attribute'",
		*attribute);
	free(*attribute);
	*attribute = NULL;
	return MT_EXIT_OK;
}

/* A warning line for each recording without an end. */
static int ends_print(const struct mt_trace *trace, struct mt_output *output, uint64_t recording_id)
{
	sqlite3_stmt *stmt;
	int rc;

	stmt = mt_trace_prepare(trace,
				"SELECT recording_id FROM recording WHERE end_ns IS NULL "
				"AND (?1 IS NULL OR recording_id = ?1) ORDER BY recording_id");
	if (!stmt)
		return MT_EXIT_FAILED;
	if (recording_id != 0)
		sqlite3_bind_int64(stmt, 1, (int64_t)recording_id);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		int64_t id = sqlite3_column_int64(stmt, 0);

		mt_output_line(
			output, "recording %" PRId64 ": %s", id,
			mt_trace_writer(trace, id) == MT_WRITER_LIVE
				? "still being recorded; this is its state at the last commit"
				: "the end is missing: the writer was killed or could not write");
	}
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE ? MT_EXIT_OK : mt_trace_error(trace);
}

static sqlite3_stmt *section_prepare(const struct mt_trace *trace, const struct section *section,
				     uint64_t recording_id, const char *attribute)
{
	struct mt_question_part part = mt_question_section("report", section->name);
	char *sql = section->sql ? strdup(section->sql) : strndup(part.sql, part.n_bytes);
	sqlite3_stmt *stmt = sql ? mt_trace_prepare(trace, sql) : NULL;

	if (!sql)
		mt_error("%s: out of memory", trace->path);
	free(sql);
	if (stmt && recording_id != 0)
		sqlite3_bind_int64(stmt, 1, (int64_t)recording_id);
	if (stmt && section->needs_attribute)
		sqlite3_bind_text(stmt, 2, attribute, -1, SQLITE_STATIC);
	return stmt;
}

static int sections_print(const struct mt_trace *trace, struct mt_output *output,
			  const struct mt_args *args, const char *attribute)
{
	struct mt_explain explain = {.is_on = args->explains};
	int status = MT_EXIT_OK;

	if (args->explains && attribute)
		explain.lift = mt_lift_query(attribute, args->recording_id, NULL);
	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]) && status == MT_EXIT_OK; i++) {
		const struct section *section = &sections[i];

		if (section->needs_attribute && !attribute)
			continue;
		output->is_vertical = section->is_vertical;
		status = mt_explain_print(&explain, trace, output, section->name, section->title,
					  section_prepare(trace, section, args->recording_id,
							  attribute));
	}
	return mt_explain_end(&explain, output, status);
}

static int report_print(struct mt_trace *trace, void *input)
{
	const struct mt_args *args = input;
	struct mt_output output;
	char *attribute;
	int status;

	status = attribute_choose(trace, &attribute);
	if (status == MT_EXIT_OK && attribute)
		status = size_check(trace, &attribute);
	if (status == MT_EXIT_OK && attribute)
		status = mt_lift_count(trace, attribute, args->recording_id, NULL);
	if (status != MT_EXIT_OK) {
		free(attribute);
		return status;
	}
	mt_output_begin(&output, stdout, args->format);
	output.is_scaled = true;
	mt_output_sections(&output);
	mt_output_line(&output, args->format == MT_FORMAT_MARKDOWN ? "# %s" : "%s", trace->path);
	status = ends_print(trace, &output, args->recording_id);
	if (args->format == MT_FORMAT_TABLE)
		putchar('\n');
	if (status == MT_EXIT_OK)
		status = sections_print(trace, &output, args, attribute);
	if (status == MT_EXIT_OK)
		mt_output_end(&output);
	free(attribute);
	return status;
}

int mt_cmd_report(int argc, char **argv)
{
	static const struct mt_trace_verb verb = {.argp = &argp, .print = report_print};
	struct mt_args args = {.no_csv = true, .markdown = true};

	return mt_trace_verb_run(&verb, argc, argv, &args, &args);
}
