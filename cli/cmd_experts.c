/* SPDX-License-Identifier: MIT */
/*
 * experts: how many tokens each expert of each layer received, from the view expert_load; or which
 * experts prefer which value of a request attribute, from the stored ids.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/lift.h"

enum {
	OPT_LAYER = MT_OPT_OWN,
	OPT_PHASE,
	OPT_TOP,
	OPT_BY_ATTRIBUTE,
	OPT_MIN_TOKENS,
};

struct experts_args {
	struct mt_args common;
	uint64_t layer;
	bool has_layer;
	const char *phase;     /* NULL: all */
	uint64_t n_top;	       /* 0: all */
	const char *attribute; /* NULL: the load */
	uint64_t min_tokens;
};

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
		return 0;
	case OPT_MIN_TOKENS:
		return mt_args_uint(&args->common, "--min-tokens", arg, 0, INT64_MAX,
				    &args->min_tokens);
	case ARGP_KEY_END:
		if (args->attribute && args->phase && strcmp(args->phase, "other") == 0)
			return mt_args_error(&args->common,
					     "--by-attribute counts computed rows, and "
					     "--phase other has none");
		return ARGP_ERR_UNKNOWN;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{"layer", OPT_LAYER, "N", 0, "Only the layer with this number in the model", 0},
	{"phase", OPT_PHASE, "PHASE", 0, "Only rows of prefill, decode, verify or other slices", 0},
	{"top", OPT_TOP, "N", 0, "Only the first N rows of each layer", 0},
	{"by-attribute", OPT_BY_ATTRIBUTE, "KEY", 0,
	 "Which experts prefer which value of this request attribute", 0},
	{"min-tokens", OPT_MIN_TOKENS, "N", 0,
	 "With --by-attribute: only experts with N tokens or more (50)", 0},
	{0},
};

static const struct argp_child children[] = {{&mt_args_recording_argp, 0, NULL, 0}, {0}};

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
	       "  state          dead: no token; cold: load_over_mean below 0.5; hot: above 2\n"
	       "\n"
	       "With --by-attribute, over the computed rows of requests that have the attribute:\n"
	       "  share          the expert's tokens with this value / all tokens of the expert\n"
	       "  lift           share / (the layer's tokens with this value / all of its "
	       "tokens):\n"
	       "                 1 is no preference, 2 is twice as often as the text would give\n",
	.children = children,
};

/* ?1 recording, ?2 phase, ?3 layer, ?4 rows of each layer: NULL is all of them. */
#define SQL_LOAD                                                                                \
	"WITH load AS (SELECT recording_id, model_id, layer_id, layer, expert, kind, "          \
	"CASE WHEN ?2 IS NULL THEN tokens WHEN ?2 = 'prefill' THEN prefill_tokens "             \
	"WHEN ?2 = 'decode' THEN decode_tokens WHEN ?2 = 'verify' THEN verify_tokens "          \
	"ELSE other_tokens END AS tokens FROM expert_load "                                     \
	"WHERE (?1 IS NULL OR recording_id = ?1) AND (?3 IS NULL OR layer = ?3)), "             \
	"ranked AS (SELECT *, 1.0 * tokens / nullif(sum(tokens) OVER kinds, 0) AS share, "      \
	"1.0 * tokens / nullif(avg(tokens) OVER kinds, 0) AS load_over_mean, "                  \
	"row_number() OVER (PARTITION BY recording_id, layer_id ORDER BY tokens DESC, expert) " \
	"AS place FROM load WINDOW kinds AS (PARTITION BY recording_id, layer_id, kind)) "      \
	"SELECT recording_id, model_id, layer, expert, kind, tokens, share, load_over_mean, "   \
	"CASE WHEN tokens = 0 THEN 'dead' WHEN load_over_mean < 0.5 THEN 'cold' "               \
	"WHEN load_over_mean > 2 THEN 'hot' ELSE 'normal' END AS state "                        \
	"FROM ranked WHERE ?4 IS NULL OR place <= ?4 "                                          \
	"ORDER BY recording_id, model_id, layer, place"

/* ?1 layer, ?2 rows of each layer, ?3 tokens that an expert must have. */
#define SQL_BY_ATTRIBUTE                                                                  \
	MT_SQL_LIFT                                                                       \
	", ranked AS (SELECT *, row_number() OVER (PARTITION BY recording_id, layer_id "  \
	"ORDER BY lift DESC, expert, value) AS place FROM scored WHERE expert_tokens >= " \
	"?3 "                                                                             \
	"AND (?1 IS NULL OR layer = ?1)) "                                                \
	"SELECT recording_id, model_id, layer, expert, value, tokens, expert_tokens, "    \
	"share, lift "                                                                    \
	"FROM ranked WHERE ?2 IS NULL OR place <= ?2 "                                    \
	"ORDER BY recording_id, model_id, layer, place"

static void bind_uint(sqlite3_stmt *stmt, int index, uint64_t value, bool is_given)
{
	if (is_given)
		sqlite3_bind_int64(stmt, index, (int64_t)value);
}

static void load_bind(sqlite3_stmt *stmt, const struct experts_args *args)
{
	bind_uint(stmt, 1, args->common.recording_id, args->common.recording_id != 0);
	sqlite3_bind_text(stmt, 2, args->phase, -1, SQLITE_STATIC);
	bind_uint(stmt, 3, args->layer, args->has_layer);
	bind_uint(stmt, 4, args->n_top, args->n_top != 0);
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
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	if (key)
		sqlite3_bind_text(stmt, 1, key, -1, SQLITE_STATIC);
	else
		sqlite3_bind_int64(stmt, 1, (int64_t)number);
	rc = sqlite3_step(stmt);
	sqlite3_finalize(stmt);
	if (rc == SQLITE_ROW)
		return MT_EXIT_OK;
	if (rc != SQLITE_DONE)
		return mt_trace_error(trace);
	if (key)
		mt_error("%s: no request has %s '%s'; 'moetrace requests' shows what they have",
			 trace->path, what, key);
	else
		mt_error("%s: has no %s %llu with experts; 'moetrace info' lists them", trace->path,
			 what, (unsigned long long)number);
	return MT_EXIT_NOT_FOUND;
}

static int args_check(const struct mt_trace *trace, const struct experts_args *args)
{
	int status = MT_EXIT_OK;

	if (args->attribute)
		status = mt_trace_mode_check(trace, args->common.recording_id, "per_token",
					     "--by-attribute");
	if (status == MT_EXIT_OK && args->has_layer)
		status = thing_check(trace, "SELECT 1 FROM layer WHERE layer = ?1", NULL,
				     args->layer, "layer");
	if (status == MT_EXIT_OK && args->attribute)
		status = thing_check(trace, "SELECT 1 FROM request_attribute WHERE key = ?1",
				     args->attribute, 0, "an attribute");
	return status;
}

static int experts_print(const struct mt_trace *trace, const struct experts_args *args)
{
	struct mt_output output;
	sqlite3_stmt *stmt;
	int status;

	if (args->attribute && mt_lift_count(trace, args->attribute, args->common.recording_id,
					     args->phase) != MT_EXIT_OK)
		return MT_EXIT_FAILED;
	stmt = mt_trace_prepare(trace, args->attribute ? SQL_BY_ATTRIBUTE : SQL_LOAD);
	if (!stmt)
		return MT_EXIT_FAILED;
	if (args->attribute)
		attribute_bind(stmt, args);
	else
		load_bind(stmt, args);
	mt_output_begin(&output, stdout, args->common.format);
	status = mt_trace_print(trace, &output, stmt);
	sqlite3_finalize(stmt);
	if (status == MT_EXIT_OK)
		mt_output_end(&output);
	return status;
}

int mt_cmd_experts(int argc, char **argv)
{
	struct experts_args args = {.min_tokens = 50};
	struct mt_trace trace;
	int status;

	status = mt_args_parse(&argp, argc, argv, &args.common, &args);
	if (status == MT_EXIT_OK)
		status = mt_trace_open(args.common.file, &trace);
	if (status != MT_EXIT_OK)
		return status;
	status = mt_trace_recording_check(&trace, args.common.recording_id);
	if (status == MT_EXIT_OK && mt_trace_has_recording(&trace))
		status = args_check(&trace, &args);
	else if (!mt_format_is_data(args.common.format))
		goto out;
	if (status == MT_EXIT_OK)
		status = experts_print(&trace, &args);
out:
	mt_trace_close(&trace);
	return status;
}
