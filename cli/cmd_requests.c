/* SPDX-License-Identifier: MIT */
/*
 * requests: the list, from the view request_summary; or one request (cmd_requests_one.c). A
 * request is named by its external id, or by @N, its number in the file.
 */
#include "cli/cmd_requests.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <moetrace/status.h>

#include "cli/request_find.h"

enum {
	OPT_LAYER = MT_OPT_OWN,
	OPT_POSITION,
	OPT_ATTEMPT,
	OPT_SIMILAR,
	OPT_OUTLIERS,
	OPT_ATTEMPTS,
};

static error_t positions_parse(struct requests_args *args, const char *text)
{
	char first[24];
	const char *dash = strchr(text, '-');
	size_t length = dash ? (size_t)(dash - text) : strlen(text);

	if (length < sizeof(first)) {
		memcpy(first, text, length);
		first[length] = '\0';
		if (mt_parse_uint(first, 0, UINT32_MAX, &args->first_position) &&
		    mt_parse_uint(dash ? dash + 1 : first, args->first_position, UINT32_MAX,
				  &args->last_position)) {
			args->has_positions = true;
			return 0;
		}
	}
	return mt_args_error(&args->common,
			     "--position '%s': give a position, or a range A-B with "
			     "A not above B",
			     text);
}

static error_t complete(struct requests_args *args)
{
	const bool is_of_one = args->has_layer || args->has_positions || args->has_attempt;
	const bool is_compared = args->similar || args->has_outliers || args->has_attempts;

	if (!args->common.file)
		return ARGP_ERR_UNKNOWN;
	if (!args->id && is_of_one)
		return mt_args_error(&args->common, "--layer, --position and --attempt are "
						    "of one request: name its ID, too");
	if (!args->id && args->similar)
		return mt_args_error(&args->common, "--similar compares two requests: name the ID of "
						    "the first, too");
	if ((args->has_outliers || args->has_attempts) && args->id)
		return mt_args_error(&args->common, "--outliers and --attempts are of all requests: "
						    "leave the ID out");
	if (is_compared && is_of_one)
		return mt_args_error(&args->common, "--layer, --position and --attempt do not go with "
						    "--similar");
	if (args->has_outliers && args->has_attempts)
		return mt_args_error(&args->common, "give --outliers or --attempts");
	if (args->common.explains && !is_compared)
		return mt_args_error(&args->common, "--explain goes with --similar, --outliers and "
						    "--attempts");
	return ARGP_ERR_UNKNOWN;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct requests_args *args = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &args->common;
		return 0;
	case ARGP_KEY_ARG:
		if (!args->common.file || args->id)
			return ARGP_ERR_UNKNOWN;
		args->id = arg;
		return 0;
	case OPT_LAYER:
		args->has_layer = true;
		return mt_args_uint(&args->common, "--layer", arg, 0, UINT32_MAX, &args->layer);
	case OPT_ATTEMPT:
		args->has_attempt = true;
		return mt_args_uint(&args->common, "--attempt", arg, 0, UINT32_MAX, &args->attempt);
	case OPT_POSITION:
		return positions_parse(args, arg);
	case OPT_SIMILAR:
		args->similar = arg;
		return 0;
	case OPT_OUTLIERS:
		args->has_outliers = true;
		return 0;
	case OPT_ATTEMPTS:
		args->has_attempts = true;
		return 0;
	case ARGP_KEY_END:
		return complete(args);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{"layer", OPT_LAYER, "N", 0, "Only the layer with this number in the model", 0},
	{"position", OPT_POSITION, "A-B", 0, "Only these positions, or one of them", 0},
	{"attempt", OPT_ATTEMPT, "N", 0, "This computation of the request (the last one)", 0},
	{"similar", OPT_SIMILAR, "ID", 0, "How alike the request and this one were routed, by layer",
	 0},
	{"outliers", OPT_OUTLIERS, NULL, 0,
	 "How far the routing of each request is from that of the others, the farthest first", 0},
	{"attempts", OPT_ATTEMPTS, NULL, 0,
	 "What the attempts of each retracted request have in common, by layer", 0},
	{0},
};

static const struct argp_child children[] = {{&mt_args_explain_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "FILE [ID]",
	.doc = "List the requests of a trace; or print one of them token by token and layer by "
	       "layer, with its experts in the order of selection and their weights."
	       "\v"
	       "ID is the request's external id, or @N, its number in the file (the column "
	       "request_id of the list).\n"
	       "\n"
	       "In JSON one request is\n"
	       "  {\"request\":{},\"tokens\":[{\"position\",\"token\",\"layers\":\n"
	       "  [{\"layer\",\"experts\":[],\"weights\":[]}]}]}\n"
	       "JSON lines have a token a line, CSV an expert a line. A token is shown as text "
	       "where the trace holds token ids and all of them are bytes.\n"
	       "\n"
	       "With --similar and --outliers, of the rows that a request computed itself:\n"
	       "  overlap         sum over experts of the smaller share of the two loads: 1 is the\n"
	       "                  same load; the row without a layer is the mean over layers\n"
	       "  chance_overlap  about what as many choices drawn from one load would overlap\n"
	       "  jaccard         experts that both chose / experts that one of them chose\n"
	       "  distance        1 - overlap with the load of all others together\n"
	       "  floor           the distance of as many choices drawn from it: short requests are\n"
	       "                  far from everything by chance; excess is distance - floor\n"
	       "  score           how unusual that is among the recording's requests, in robust\n"
	       "                  standard deviations; above 3.5 is worth a look\n"
	       "\n"
	       "With --attempts, same_rows and same_choices are shares of the positions that both "
	       "attempts computed.",
	.children = children,
};

/* ---- the list ---- */

#define SQL_LIST                                                                                  \
	"SELECT s.request_id, s.recording_id, s.external_id, s.prompt_positions, s.n_positions, " \
	"s.n_passes, s.duration_ns, s.end_state, s.verdict, s.reasons "                           \
	"FROM request_summary AS s WHERE ?1 IS NULL OR s.recording_id = ?1 ORDER BY s.request_id"

#define SQL_ATTRIBUTES "SELECT key, value FROM request_attribute WHERE request_id = ?1 ORDER BY key"

int mt_requests_attributes_json(const struct mt_trace *trace, sqlite3_stmt *stmt,
				int64_t request_id, struct mt_jsonw *json)
{
	int rc;

	sqlite3_bind_int64(stmt, 1, request_id);
	mt_jsonw_object_begin(json);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const char *value = (const char *)sqlite3_column_text(stmt, 1);

		mt_jsonw_key(json, (const char *)sqlite3_column_text(stmt, 0));
		if (value)
			mt_jsonw_string(json, value);
		else
			mt_jsonw_null(json);
	}
	mt_jsonw_object_end(json);
	sqlite3_reset(stmt);
	return rc == SQLITE_DONE ? MT_EXIT_OK : mt_trace_error(trace);
}

/* Append to the text of @size bytes, which is cut where it would not fit. */
static size_t text_append(char *text, size_t size, size_t at, const char *part)
{
	size_t n = strlen(part);

	if (n > size - 1 - at)
		n = size - 1 - at;
	memcpy(text + at, part, n);
	text[at + n] = '\0';
	return at + n;
}

/* "key=value, key=value" */
int mt_requests_attributes_text(const struct mt_trace *trace, sqlite3_stmt *stmt,
				int64_t request_id, char text[MT_ATTRIBUTES_BYTES])
{
	size_t at = 0;
	int rc;

	text[0] = '\0';
	sqlite3_bind_int64(stmt, 1, request_id);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const char *value = (const char *)sqlite3_column_text(stmt, 1);

		if (at > 0)
			at = text_append(text, MT_ATTRIBUTES_BYTES, at, ", ");
		at = text_append(text, MT_ATTRIBUTES_BYTES, at,
				 (const char *)sqlite3_column_text(stmt, 0));
		if (!value)
			continue;
		at = text_append(text, MT_ATTRIBUTES_BYTES, at, "=");
		at = text_append(text, MT_ATTRIBUTES_BYTES, at, value);
	}
	sqlite3_reset(stmt);
	return rc == SQLITE_DONE ? MT_EXIT_OK : mt_trace_error(trace);
}

sqlite3_stmt *mt_requests_attributes_prepare(const struct mt_trace *trace)
{
	return mt_trace_prepare(trace, SQL_ATTRIBUTES);
}

static void value_print(struct mt_table *table, sqlite3_stmt *stmt, int column)
{
	switch (sqlite3_column_type(stmt, column)) {
	case SQLITE_NULL:
		mt_table_null(table);
		break;
	case SQLITE_INTEGER:
		mt_table_int64(table, sqlite3_column_int64(stmt, column));
		break;
	default:
		mt_table_text(table, (const char *)sqlite3_column_text(stmt, column));
	}
}

static int list_row_print(const struct mt_trace *trace, struct mt_table *table, sqlite3_stmt *list,
			  sqlite3_stmt *attributes)
{
	int64_t request_id = sqlite3_column_int64(list, 0);
	char text[MT_ATTRIBUTES_BYTES];
	struct mt_jsonw *json;
	int status;
	int i;

	for (i = 0; i < 10; i++)
		value_print(table, list, i);
	json = mt_table_json_begin(table);
	if (json) {
		status = mt_requests_attributes_json(trace, attributes, request_id, json);
		mt_table_json_end(table);
		return status;
	}
	status = mt_requests_attributes_text(trace, attributes, request_id, text);
	mt_table_text(table, text[0] ? text : NULL);
	return status;
}

static int list_rows_print(const struct mt_trace *trace, struct mt_table *table,
			   uint64_t recording_id)
{
	sqlite3_stmt *list = mt_trace_prepare(trace, SQL_LIST);
	sqlite3_stmt *attributes = mt_requests_attributes_prepare(trace);
	int status = list && attributes ? MT_EXIT_OK : MT_EXIT_FAILED;
	int rc = SQLITE_DONE;

	if (list && recording_id != 0)
		sqlite3_bind_int64(list, 1, (int64_t)recording_id);
	while (status == MT_EXIT_OK && (rc = sqlite3_step(list)) == SQLITE_ROW)
		status = list_row_print(trace, table, list, attributes);
	if (status == MT_EXIT_OK && rc != SQLITE_DONE)
		status = mt_trace_error(trace);
	sqlite3_finalize(list);
	sqlite3_finalize(attributes);
	return status;
}

static int list_print(const struct mt_trace *trace, const struct requests_args *args)
{
	static const char *const columns[] = {"request_id",	  "recording_id", "external_id",
					      "prompt_positions", "n_positions",  "n_passes",
					      "duration_ns",	  "end_state",	  "verdict",
					      "reasons",	  "attributes"};
	struct mt_output output;
	struct mt_table table;
	int status;

	mt_output_begin(&output, stdout, args->common.format);
	output.is_scaled = true;
	if (mt_table_begin(&table, &output, columns, 11) != MOETRACE_OK) {
		mt_error("%s: out of memory", trace->path);
		return MT_EXIT_FAILED;
	}
	status = list_rows_print(trace, &table, args->common.recording_id);
	if (mt_table_end(&table) != MOETRACE_OK && status == MT_EXIT_OK) {
		mt_error("%s: out of memory; rows are missing", trace->path);
		status = MT_EXIT_FAILED;
	}
	mt_output_end(&output);
	return status;
}

static int one_print(const struct mt_trace *trace, const struct requests_args *args)
{
	int64_t request_id, other;
	int status = mt_request_find(trace, args->common.recording_id, args->id, &request_id);

	if (status == MT_EXIT_OK && args->similar)
		status = mt_request_find(trace, args->common.recording_id, args->similar, &other);
	if (status != MT_EXIT_OK)
		return status;
	return args->similar ? mt_requests_similar_print(trace, args, request_id, other)
			     : mt_requests_one_print(trace, args, request_id);
}

static int print(struct mt_trace *trace, void *input)
{
	const struct requests_args *args = input;
	const bool needs_rows = args->id || args->has_outliers || args->has_attempts;
	int status;

	status = mt_trace_mode_check(trace, args->common.recording_id,
				     needs_rows ? "per_token" : "per_token,per_pass",
				     args->id	  ? "one request's experts"
				     : needs_rows ? "to compare requests"
						  : "a list of requests");
	if (status != MT_EXIT_OK)
		return status;
	if (args->id)
		return one_print(trace, args);
	if (needs_rows)
		return mt_requests_judged_print(trace, args);
	return mt_trace_has_recording(trace) || mt_format_is_data(args->common.format)
		       ? list_print(trace, args)
		       : MT_EXIT_OK;
}

int mt_cmd_requests(int argc, char **argv)
{
	static const struct mt_trace_verb verb = {
		.argp = &argp, .takes_empty = true, .print = print};
	struct requests_args args = {0};

	return mt_trace_verb_run(&verb, argc, argv, &args.common, &args);
}
