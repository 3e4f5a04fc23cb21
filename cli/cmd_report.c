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

#include "cli/cli.h"
#include "cli/lift.h"

static error_t parse(int key, char *arg, struct argp_state *state)
{
	(void)arg;
	if (key != ARGP_KEY_INIT)
		return ARGP_ERR_UNKNOWN;
	state->child_inputs[0] = state->input;
	return 0;
}

static const struct argp_child children[] = {{&mt_args_report_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.parser = parse,
	.args_doc = "FILE",
	.doc = "Print one screen about a trace: what was recorded, what was lost, throughput, the "
	       "balance of the layers, the hottest experts, experts that prefer a kind of text, "
	       "and "
	       "the time of the layers. --format markdown is for documents."
	       "\v"
	       "The columns mean what 'moetrace balance --help' and 'moetrace experts --help' say. "
	       "tokens_per_s are rows over the time in which passes ran. Experts are compared by "
	       "the request attribute 'domain', else by the one with the fewest values.",
	.children = children,
};

struct section {
	const char *name;
	const char *title;
	const char *sql; /* ?1 recording or NULL, ?2 the attribute */
	bool needs_attribute;
	bool is_vertical;
};

static const struct section sections[] = {
	{"recordings", "What was recorded",
	 "SELECT r.recording_id, r.mode, coalesce(r.sampling, 'none') AS sampling, "
	 "coalesce(r.routing_source, '-') AS routing_source, "
	 "(SELECT group_concat(m.name, ', ') FROM model AS m WHERE EXISTS (SELECT 1 FROM pass AS p "
	 "WHERE p.recording_id = r.recording_id AND p.model_id = m.model_id) OR EXISTS (SELECT 1 FROM "
	 "expert_load_window AS w JOIN layer AS y USING (layer_id) WHERE w.recording_id = "
	 "r.recording_id AND y.model_id = m.model_id)) AS models, "
	 "coalesce(r.end_ns, (SELECT max(end_ns) FROM pass AS p WHERE p.recording_id = "
	 "r.recording_id)) - r.start_ns AS duration_ns, "
	 "(SELECT count(*) FROM request_summary AS q WHERE q.recording_id = r.recording_id) "
	 "AS requests, "
	 "(SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id "
	 "AND s.name = 'recorded_passes') AS passes, "
	 "(SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id "
	 "AND s.name = 'recorded_rows') AS rows, "
	 "(SELECT value FROM stats AS s WHERE s.recording_id = r.recording_id "
	 "AND s.name = 'recorded_assignments') AS assignments, "
	 "coalesce(r.end_reason, 'missing') AS end "
	 "FROM recording AS r WHERE ?1 IS NULL OR r.recording_id = ?1 ORDER BY r.recording_id",
	 false, true},
	{"verdicts", "Verdicts and losses",
	 "SELECT l.recording_id, (SELECT count(*) FROM request_summary AS q "
	 "WHERE q.recording_id = l.recording_id AND q.verdict = 'complete') AS complete_requests, "
	 "l.partial_requests, l.unfinished_requests, l.partial_passes, l.dropped_passes, "
	 "l.dropped_layers, l.unwritten_layers, l.sampled_passes, l.disabled_passes, "
	 "l.dropped_bytes, l.invalid_ids, l.misuse, l.n_gaps "
	 "FROM loss AS l WHERE ?1 IS NULL OR l.recording_id = ?1 ORDER BY l.recording_id",
	 false, true},
	{"throughput", "Tokens and throughput",
	 /* Rows are of the parts of a pass, the time is that of the whole. */
	 "SELECT recording_id, phase, sum(NOT is_parent) AS passes, sum(n_rows) AS rows, "
	 "sum(decode_rows) AS decode_rows, "
	 "avg(n_rows) FILTER (WHERE NOT is_parent) AS mean_rows, "
	 "avg(mean_active_experts) AS mean_active_experts, "
	 "avg(duration_ns) FILTER (WHERE NOT is_parent) AS mean_duration_ns, "
	 "sum(n_rows) * 1e9 / nullif(sum(duration_ns) FILTER (WHERE parent_pass_id IS NULL), 0) "
	 "AS tokens_per_s FROM (SELECT *, pass_id IN (SELECT parent_pass_id FROM pass "
	 "WHERE parent_pass_id IS NOT NULL) AS is_parent FROM pass_summary) "
	 "WHERE ?1 IS NULL OR recording_id = ?1 "
	 "GROUP BY recording_id, phase ORDER BY recording_id, rows DESC",
	 false, false},
	{"balance", "Balance: the least even layers",
	 "SELECT recording_id, model_id, layer, n_experts, tokens, mean_active_experts, max_load, "
	 "hottest_expert, max_over_mean, balancedness, dead_experts FROM layer_balance "
	 "WHERE (?1 IS NULL OR recording_id = ?1) AND tokens > 0 "
	 "ORDER BY balancedness, recording_id, model_id, layer LIMIT 6",
	 false, false},
	{"hottest", "The hottest experts",
	 "SELECT recording_id, model_id, layer, expert, tokens, share, load_over_mean FROM ("
	 "SELECT *, 1.0 * tokens / nullif(sum(tokens) OVER layers, 0) AS share, "
	 "1.0 * tokens / nullif(avg(tokens) OVER layers, 0) AS load_over_mean FROM expert_load "
	 "WHERE kind = 'routed' AND (?1 IS NULL OR recording_id = ?1) "
	 "WINDOW layers AS (PARTITION BY recording_id, layer_id)) WHERE tokens > 0 "
	 "ORDER BY load_over_mean DESC, recording_id, model_id, layer, expert LIMIT 6",
	 false, false},
	{"preferences", "Experts that prefer a value of the attribute",
	 MT_SQL_LIFT
	 ", ranked AS (SELECT *, row_number() OVER (PARTITION BY recording_id, value "
	 "ORDER BY lift DESC, layer_id, expert) AS place FROM scored WHERE expert_tokens >= 50) "
	 "SELECT recording_id, ?2 AS attribute, value, model_id, layer, expert, tokens, "
	 "expert_tokens, share, lift FROM ranked WHERE place <= 2 "
	 "ORDER BY recording_id, value, place",
	 true, false},
	{"layer_times", "Time of the layers",
	 "SELECT recording_id, model_id, layer, count(*) AS passes, "
	 "avg(duration_ns) AS mean_duration_ns, max(duration_ns) AS max_duration_ns, "
	 "1.0 * sum(duration_ns) / nullif(sum(sum(duration_ns)) OVER (PARTITION BY recording_id, "
	 "model_id), 0) AS share FROM layer_time WHERE ?1 IS NULL OR recording_id = ?1 "
	 "GROUP BY recording_id, model_id, layer ORDER BY share DESC, layer LIMIT 6",
	 false, false},
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

static int sections_print(const struct mt_trace *trace, struct mt_output *output,
			  uint64_t recording_id, const char *attribute)
{
	int status = MT_EXIT_OK;
	size_t i;

	for (i = 0; i < sizeof(sections) / sizeof(sections[0]) && status == MT_EXIT_OK; i++) {
		if (sections[i].needs_attribute && !attribute)
			continue;
		mt_output_section(output, sections[i].name, sections[i].title);
		output->is_vertical = sections[i].is_vertical;
		status = mt_trace_print_recording(trace, output, sections[i].sql, recording_id,
						  sections[i].needs_attribute ? attribute : NULL);
	}
	return status;
}

static int report_print(const struct mt_trace *trace, const struct mt_args *args)
{
	struct mt_output output;
	char *attribute;
	int status;

	status = attribute_choose(trace, &attribute);
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
		status = sections_print(trace, &output, args->recording_id, attribute);
	if (status == MT_EXIT_OK)
		mt_output_end(&output);
	free(attribute);
	return status;
}

int mt_cmd_report(int argc, char **argv)
{
	struct mt_args args = {.no_csv = true, .markdown = true};
	struct mt_trace trace;
	int status;

	status = mt_args_parse(&argp, argc, argv, &args, &args);
	if (status == MT_EXIT_OK)
		status = mt_trace_open(args.file, &trace);
	if (status != MT_EXIT_OK)
		return status;
	status = mt_trace_recording_check(&trace, args.recording_id);
	if (status == MT_EXIT_OK &&
	    (mt_trace_has_recording(&trace) || mt_format_is_data(args.format)))
		status = report_print(&trace, &args);
	mt_trace_close(&trace);
	return status;
}
