/* SPDX-License-Identifier: MIT */
/*
 * experts: how many tokens each expert of each layer received, from the view expert_load; or which
 * experts prefer which value of a request attribute, from the stored ids.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/explain.h"
#include "cli/experts_sql.h"
#include "cli/notes.h"

enum {
	OPT_LAYER = MT_OPT_OWN,
	OPT_PHASE,
	OPT_TOP,
	OPT_BY_ATTRIBUTE,
	OPT_MIN_TOKENS,
	OPT_COVERAGE,
	OPT_PAIRS,
	OPT_STEPS,
	OPT_BY_WINDOW,
	OPT_BY_REQUEST,
	OPT_FROM,
	OPT_UNTIL,
	OPT_REQUEST,
	OPT_ATTRIBUTE,
};

/* What is printed; one of them. */
enum view {
	VIEW_LOAD,
	VIEW_COVERAGE,
	VIEW_PAIRS,
	VIEW_STEPS,
	VIEW_WINDOWS,
	VIEW_REQUESTS,
	VIEW_ATTRIBUTE,
};

struct experts_args {
	struct mt_args common;
	uint64_t layer;
	bool has_layer;
	const char *phase;     /* NULL: all */
	uint64_t n_top;	       /* 0: all */
	const char *attribute; /* NULL: the load */
	uint64_t min_tokens;
	bool has_min_tokens;
	char *of_value; /* with attribute: only requests that have this value; NULL: all values */
	enum view view;
	uint64_t from_ms, until_ms; /* of the session's clock */
	bool has_from, has_until;
	const char *request; /* its external id or @N; NULL: all */
	int64_t request_id;
	char when_empty[200];
};

static error_t view_parse(struct experts_args *args, enum view view)
{
	if (args->view != VIEW_LOAD && args->view != view)
		return mt_args_error(&args->common,
				     "--by-attribute, --by-request, --by-window, --coverage, "
				     "--pairs and --steps exclude each other");
	args->view = view;
	return 0;
}

static error_t phase_parse(struct experts_args *args, const char *name)
{
	static const char *const phases[] = {"prefill", "decode", "verify", "other"};
	size_t i;

	for (i = 0; i < sizeof(phases) / sizeof(phases[0]); i++) {
		if (strcmp(name, phases[i]) == 0) {
			args->phase = phases[i];
			return 0;
		}
	}
	return mt_args_error(&args->common,
			     "--phase '%s' is not known: give prefill, decode, verify "
			     "or other",
			     name);
}

/* "KEY=VALUE" */
static error_t attribute_parse(struct experts_args *args, char *text)
{
	char *value = strchr(text, '=');

	if (!value || value == text)
		return mt_args_error(&args->common, "--attribute '%s': give KEY=VALUE", text);
	*value = '\0';
	args->of_value = value + 1;
	args->attribute = text;
	return 0;
}

/* An option that would change nothing is a mistake. */
static error_t complete(struct experts_args *args)
{
	if (args->attribute && args->phase && strcmp(args->phase, "other") == 0)
		return mt_args_error(&args->common, "--%sattribute counts computed rows, and --phase "
						    "other has none",
				     args->of_value ? "" : "by-");
	if (args->view != VIEW_LOAD &&
	    (args->has_from || args->has_until || args->request || args->of_value))
		return mt_args_error(&args->common, "--from, --until, --request and --attribute are "
						    "for the load alone");
	if (args->of_value && (args->has_from || args->has_until || args->request))
		return mt_args_error(&args->common,
				     "give --attribute, or --request, --from and --until");
	if (args->has_from && args->has_until && args->from_ms >= args->until_ms)
		return mt_args_error(&args->common, "--from %llu is not before --until %llu",
				     (unsigned long long)args->from_ms,
				     (unsigned long long)args->until_ms);
	if (args->has_min_tokens && args->view != VIEW_ATTRIBUTE)
		return mt_args_error(&args->common, "--min-tokens is for --by-attribute alone");
	if (args->phase && args->view == VIEW_PAIRS)
		return mt_args_error(&args->common, "--pairs counts all phases together");
	if (args->n_top && (args->view == VIEW_COVERAGE || args->view == VIEW_STEPS))
		return mt_args_error(&args->common, "--top is not for --coverage and --steps, which "
						    "have a row a layer and phase");
	return ARGP_ERR_UNKNOWN;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct experts_args *args = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &args->common;
		return 0;
	case OPT_LAYER:
		args->has_layer = true;
		return mt_args_uint(&args->common, "--layer", arg, 0, UINT32_MAX, &args->layer);
	case OPT_PHASE:
		return phase_parse(args, arg);
	case OPT_TOP:
		return mt_args_uint(&args->common, "--top", arg, 1, UINT32_MAX, &args->n_top);
	case OPT_BY_ATTRIBUTE:
		args->attribute = arg;
		return view_parse(args, VIEW_ATTRIBUTE);
	case OPT_COVERAGE:
		return view_parse(args, VIEW_COVERAGE);
	case OPT_PAIRS:
		return view_parse(args, VIEW_PAIRS);
	case OPT_STEPS:
		return view_parse(args, VIEW_STEPS);
	case OPT_BY_WINDOW:
		return view_parse(args, VIEW_WINDOWS);
	case OPT_BY_REQUEST:
		return view_parse(args, VIEW_REQUESTS);
	case OPT_FROM:
		args->has_from = true;
		return mt_args_uint(&args->common, "--from", arg, 0, INT64_MAX / 1000000,
				    &args->from_ms);
	case OPT_UNTIL:
		args->has_until = true;
		return mt_args_uint(&args->common, "--until", arg, 0, INT64_MAX / 1000000,
				    &args->until_ms);
	case OPT_REQUEST:
		args->request = arg;
		return 0;
	case OPT_ATTRIBUTE:
		return attribute_parse(args, arg);
	case OPT_MIN_TOKENS:
		args->has_min_tokens = true;
		return mt_args_uint(&args->common, "--min-tokens", arg, 0, INT64_MAX,
				    &args->min_tokens);
	case ARGP_KEY_END:
		return complete(args);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{"layer", OPT_LAYER, "N", 0, "Only the layer with this number in the model", 0},
	{"phase", OPT_PHASE, "PHASE", 0, "Only rows of prefill, decode, verify or other slices", 0},
	{"top", OPT_TOP, "N", 0, "Only the first N rows of each layer", 0},
	{"from", OPT_FROM, "MS", 0, "Only passes that begin at MS of the session's clock or later",
	 0},
	{"until", OPT_UNTIL, "MS", 0, "Only passes that begin before MS of the session's clock", 0},
	{"request", OPT_REQUEST, "ID", 0, "Only rows of the request with this external id, or @N",
	 0},
	{"attribute", OPT_ATTRIBUTE, "KEY=VALUE", 0,
	 "Only computed rows of requests that have this attribute", 0},
	{"coverage", OPT_COVERAGE, NULL, 0, "How many experts carry 50, 90 and 99 % of the load",
	 0},
	{"pairs", OPT_PAIRS, NULL, 0, "Which experts are selected together", 0},
	{"steps", OPT_STEPS, NULL, 0, "What consecutive positions and passes have in common", 0},
	{"by-window", OPT_BY_WINDOW, NULL, 0, "The load of each window of time", 0},
	{"by-request", OPT_BY_REQUEST, NULL, 0, "The load of each request", 0},
	{"by-attribute", OPT_BY_ATTRIBUTE, "KEY", 0,
	 "Which experts prefer which value of this request attribute", 0},
	{"min-tokens", OPT_MIN_TOKENS, "N", 0,
	 "With --by-attribute: only experts with N tokens or more (50)", 0},
	{0},
};

static const struct argp_child children[] = {{&mt_args_explain_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "FILE",
	.doc = "Print how many tokens each expert of each layer received, most loaded first."
	       "\v"
	       "Columns:\n"
	       "  tokens         rows that selected the expert, padding excluded\n"
	       "  share          its tokens / tokens of all experts of its kind in the layer\n"
	       "  load_over_mean its tokens / mean tokens of the experts of its kind in the layer\n"
	       "  share_margin   where passes were sampled: half of the 95 % interval of share, "
	       "from\n"
	       "                 the spread between passes; empty: nothing was left out\n"
	       "  state          dead: no token; cold: load_over_mean below 0.5; hot: above 2\n"
	       "\n"
	       "With --coverage, experts_N is the least number of experts that have N % of the "
	       "tokens."
	       "\n"
	       "With --pairs, over the stored rows, lift is the rows that selected both / what\n"
	       "independent experts would give. With --steps, kept_share is the part of a "
	       "position's\n"
	       "experts that the position before selected too, chance_share what independent\n"
	       "positions would give, active_kept_share the same for the experts of passes.\n"
	       "What figures leave out (losses, sampling) is said on standard error.\n"
	       "\n"
	       "With --by-attribute, over the computed rows of requests that have the attribute:\n"
	       "  share          the expert's tokens with this value / all tokens of the expert\n"
	       "  lift           share / (the layer's tokens with this value / all of its "
	       "tokens):\n"
	       "                 1 is no preference, 2 is twice as often as the text would give\n",
	.children = children,
};

static void bind_uint(sqlite3_stmt *stmt, int index, uint64_t value, bool is_given)
{
	if (is_given)
		sqlite3_bind_int64(stmt, index, (int64_t)value);
}

static void load_bind(sqlite3_stmt *stmt, const struct experts_args *args)
{
	bind_uint(stmt, 1, args->common.recording_id, args->common.recording_id != 0);
	if (sqlite3_bind_parameter_count(stmt) >= 2)
		sqlite3_bind_text(stmt, 2, args->phase, -1, SQLITE_STATIC);
	bind_uint(stmt, 3, args->layer, args->has_layer);
	bind_uint(stmt, 4, args->n_top, args->n_top != 0);
	bind_uint(stmt, 5, args->from_ms * 1000000, args->has_from);
	bind_uint(stmt, 6, args->until_ms * 1000000, args->has_until);
	bind_uint(stmt, 7, (uint64_t)args->request_id, args->request != NULL);
	if (args->of_value)
		sqlite3_bind_text(stmt, 8, args->of_value, -1, SQLITE_STATIC);
}

static void attribute_bind(sqlite3_stmt *stmt, const struct experts_args *args)
{
	bind_uint(stmt, 1, args->layer, args->has_layer);
	bind_uint(stmt, 2, args->n_top, args->n_top != 0);
	bind_uint(stmt, 3, args->min_tokens, true);
}

/* MT_EXIT_OK if the query of @sql, with ?1 bound by @key or @number, has a row. */
static int thing_check(const struct mt_trace *trace, const char *sql, const char *key,
		       uint64_t number, const char *what)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, sql);
	int status;

	if (!stmt)
		return MT_EXIT_FAILED;
	if (key)
		sqlite3_bind_text(stmt, 1, key, -1, SQLITE_STATIC);
	else
		sqlite3_bind_int64(stmt, 1, (int64_t)number);
	status = mt_trace_has_row(trace, stmt);
	if (status == MT_EXIT_NOT_FOUND && key)
		mt_error("%s: no request has %s '%s'; 'moetrace requests' shows what they have",
			 trace->path, what, key);
	else if (status == MT_EXIT_NOT_FOUND)
		mt_error("%s: has no %s %llu with experts; 'moetrace info' lists them", trace->path,
			 what, (unsigned long long)number);
	return status;
}

/* Whether some request has the value. */
static int value_check(const struct mt_trace *trace, const struct experts_args *args)
{
	sqlite3_stmt *stmt = mt_trace_prepare(
		trace, "SELECT 1 FROM request_attribute WHERE key = ?1 AND value = ?2");
	int status;

	if (!stmt)
		return MT_EXIT_FAILED;
	sqlite3_bind_text(stmt, 1, args->attribute, -1, SQLITE_STATIC);
	sqlite3_bind_text(stmt, 2, args->of_value, -1, SQLITE_STATIC);
	status = mt_trace_has_row(trace, stmt);
	if (status == MT_EXIT_NOT_FOUND)
		mt_error("%s: no request has %s '%s'; 'moetrace requests' shows what they have",
			 trace->path, args->attribute, args->of_value);
	return status;
}

/* Whether what is printed is counted from the stored rows. */
static bool is_of_rows(const struct experts_args *args)
{
	return args->view == VIEW_PAIRS || args->view == VIEW_STEPS ||
	       args->view == VIEW_REQUESTS || args->attribute || args->has_from ||
	       args->has_until || args->request;
}

static int request_find(const struct mt_trace *trace, struct experts_args *args)
{
	sqlite3_stmt *stmt = mt_trace_prepare(
		trace,
		"SELECT request_id FROM request WHERE (external_id = ?2 OR '@' || request_id "
		"= ?2) AND (?1 IS NULL OR recording_id = ?1) ORDER BY request_id DESC");
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	bind_uint(stmt, 1, args->common.recording_id, args->common.recording_id != 0);
	sqlite3_bind_text(stmt, 2, args->request, -1, SQLITE_STATIC);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		args->request_id = sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	if (rc == SQLITE_ROW)
		return MT_EXIT_OK;
	if (rc != SQLITE_DONE)
		return mt_trace_error(trace);
	mt_error("%s: has no request '%s'; 'moetrace requests' lists them", trace->path,
		 args->request);
	return MT_EXIT_NOT_FOUND;
}

/* What an empty table would be empty of. */
static int when_empty_find(const struct mt_trace *trace, struct experts_args *args)
{
	int64_t first_ns = 0, last_ns = 0;
	int status = MT_EXIT_OK;

	if (args->has_from || args->has_until) {
		status = mt_trace_int(trace, "SELECT min(begin_ns) FROM pass", &first_ns);
		if (status == MT_EXIT_OK)
			status = mt_trace_int(trace, "SELECT max(begin_ns) FROM pass", &last_ns);
		snprintf(args->when_empty, sizeof(args->when_empty),
			 "no row was stored of what begins in that time: passes begin from %.3f to %.3f "
			 "ms",
			 (double)first_ns / 1e6, (double)last_ns / 1e6);
	} else if (args->of_value) {
		snprintf(args->when_empty, sizeof(args->when_empty),
			 "no request with %.60s '%.60s' has a computed row%s", args->attribute,
			 args->of_value, args->phase ? " of that phase" : "");
	} else if (args->view == VIEW_ATTRIBUTE) {
		snprintf(args->when_empty, sizeof(args->when_empty),
			 "no expert has %llu computed rows of requests with the attribute; "
			 "--min-tokens asks for fewer",
			 (unsigned long long)args->min_tokens);
	} else {
		snprintf(args->when_empty, sizeof(args->when_empty), "nothing was selected%s%s",
			 args->phase ? " in phase " : "", args->phase ? args->phase : "");
	}
	args->common.when_empty = args->when_empty;
	return status;
}

static int args_check(const struct mt_trace *trace, struct experts_args *args)
{
	int status = MT_EXIT_OK;

	if (is_of_rows(args))
		status = mt_trace_mode_check(trace, args->common.recording_id, "per_token",
					     args->of_value	? "--attribute"
					     : args->attribute ? "--by-attribute"
							       : "what you ask for");
	if (status == MT_EXIT_OK && args->has_layer)
		status = thing_check(trace, "SELECT 1 FROM layer WHERE layer = ?1", NULL,
				     args->layer, "layer");
	if (status == MT_EXIT_OK && args->attribute)
		status = thing_check(trace, "SELECT 1 FROM request_attribute WHERE key = ?1",
				     args->attribute, 0, "an attribute");
	if (status == MT_EXIT_OK && args->of_value)
		status = value_check(trace, args);
	if (status == MT_EXIT_OK && args->request)
		status = request_find(trace, args);
	if (status == MT_EXIT_OK)
		status = when_empty_find(trace, args);
	return status;
}

/* The margin takes a scan of the file, which is made only where something was sampled. */
static int load_choose(const struct mt_trace *trace, const struct experts_args *args,
		       const char **ret_sql)
{
	sqlite3_stmt *stmt = mt_trace_prepare_recording(
		trace,
		"SELECT EXISTS (SELECT 1 FROM stats WHERE name = 'sampled_passes' AND value > 0 "
		"AND (?1 IS NULL OR recording_id = ?1))",
		args->common.recording_id);
	int status = MT_EXIT_OK;
	bool is_sampled;

	if (!stmt)
		return MT_EXIT_FAILED;
	if (sqlite3_step(stmt) != SQLITE_ROW)
		status = mt_trace_error(trace);
	is_sampled = sqlite3_column_int(stmt, 0) != 0;
	sqlite3_finalize(stmt);
	*ret_sql = is_sampled ? MT_SQL_LOAD MT_SQL_MARGIN MT_SQL_RANKED
			      : MT_SQL_LOAD MT_SQL_NO_MARGIN MT_SQL_RANKED;
	return status;
}

static int sql_choose(const struct mt_trace *trace, const struct experts_args *args,
		      const char **ret_sql)
{
	static const char *const views[] = {
		[VIEW_COVERAGE] = MT_SQL_COVERAGE,   [VIEW_PAIRS] = MT_SQL_PAIRS,
		[VIEW_STEPS] = MT_SQL_STEPS,	     [VIEW_WINDOWS] = MT_SQL_WINDOWS,
		[VIEW_REQUESTS] = MT_SQL_BY_REQUEST, [VIEW_ATTRIBUTE] = MT_SQL_BY_ATTRIBUTE,
	};

	if (args->of_value) {
		*ret_sql = MT_SQL_LOAD_OF_VALUE MT_SQL_RANKED;
		return MT_EXIT_OK;
	}
	*ret_sql = args->view == VIEW_LOAD ? MT_SQL_LOAD_ROWS MT_SQL_RANKED : views[args->view];
	return args->view == VIEW_LOAD && !is_of_rows(args) ? load_choose(trace, args, ret_sql)
							    : MT_EXIT_OK;
}

static int experts_print(const struct mt_trace *trace, const struct experts_args *args)
{
	sqlite3_stmt *stmt;
	const char *sql;
	char *lift = NULL;
	int status;

	if (args->attribute && mt_lift_count(trace, args->attribute, args->common.recording_id,
					     args->phase) != MT_EXIT_OK)
		return MT_EXIT_FAILED;
	status = sql_choose(trace, args, &sql);
	stmt = status == MT_EXIT_OK ? mt_trace_prepare(trace, sql) : NULL;
	if (!stmt)
		return MT_EXIT_FAILED;
	if (args->view == VIEW_ATTRIBUTE)
		attribute_bind(stmt, args);
	else
		load_bind(stmt, args);
	if (args->attribute && args->common.explains)
		lift = mt_lift_query(args->attribute, args->common.recording_id, args->phase);
	status = mt_explain_print_only(trace, &args->common, MT_SCALE_NONE, "experts", lift, stmt);
	if (status == MT_EXIT_OK)
		status = mt_notes_print(trace, args->common.recording_id,
					is_of_rows(args) ? MT_NOTES_ROWS : MT_NOTES_LOAD);
	return status;
}

static int checked_print(struct mt_trace *trace, void *input)
{
	struct experts_args *args = input;
	int status = args_check(trace, args);

	return status == MT_EXIT_OK ? experts_print(trace, args) : status;
}

int mt_cmd_experts(int argc, char **argv)
{
	static const struct mt_trace_verb verb = {.argp = &argp, .print = checked_print};
	struct experts_args args = {.min_tokens = 50};

	return mt_trace_verb_run(&verb, argc, argv, &args.common, &args);
}
