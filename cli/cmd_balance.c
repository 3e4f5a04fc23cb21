/* SPDX-License-Identifier: MIT */
/*
 * balance: how even the load of each layer is: of its experts, the view layer_balance; of the ranks
 * that hold them, moe_balance() and moe_balance_pass(). The formulas are in the help.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/explain.h"
#include "cli/file_read.h"
#include "cli/notes.h"

enum {
	OPT_RANKS = MT_OPT_OWN,
	OPT_MAP,
	OPT_REPLICAS,
	OPT_SHARED,
	OPT_PHASE,
	OPT_MODEL,
	OPT_BY_PASS
};

struct options {
	struct mt_args args;
	char ranks[256]; /* a JSON array of numbers; empty: experts, not ranks */
	bool has_ranks;
	const char *map; /* 'recorded', or a file; NULL: experts in order */
	void *placement; /* what the file holds; NULL: there is none */
	size_t n_placement_bytes;
	uint64_t n_replicas;
	const char *shared;
	const char *phase;
	uint64_t model_id;
	bool by_pass;
};

/* One number, or several between commas. */
static error_t ranks_parse(struct options *options, const char *text)
{
	size_t length = strspn(text, "0123456789,");
	bool has_zero = false;

	for (const char *at = text; at; at = strchr(at, ',')) {
		at += *at == ',';
		has_zero |= strtoul(at, NULL, 10) == 0;
	}
	if (has_zero || text[length] != '\0' || length == 0 || length > sizeof(options->ranks) - 3 ||
	    text[0] == ',' || text[length - 1] == ',' || strstr(text, ",,"))
		return mt_args_error(&options->args,
				     "--ranks '%s': give a number, or several as 8,16,32", text);
	snprintf(options->ranks, sizeof(options->ranks), "[%s]", text);
	options->has_ranks = true;
	return 0;
}

static error_t word_parse(struct options *options, const char *name, const char *text,
			  const char *const *words, const char **ret_word)
{
	for (; *words; words++) {
		if (strcmp(text, *words) == 0) {
			*ret_word = *words;
			return 0;
		}
	}
	return mt_args_error(&options->args, "%s '%s' is not known", name, text);
}

static error_t complete(struct options *options)
{
	if (options->map && strcmp(options->map, "recorded") == 0) {
		if (options->n_replicas)
			return mt_args_error(&options->args, "give either --map or --replicas");
		if (!options->has_ranks)
			snprintf(options->ranks, sizeof(options->ranks), "[null]");
		return 0;
	}
	if (options->map && options->n_replicas)
		return mt_args_error(&options->args, "give either --map or --replicas");
	if (!options->has_ranks && (options->map || options->n_replicas || options->shared ||
				    options->phase || options->by_pass))
		return mt_args_error(&options->args, "--ranks R is missing");
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	static const char *const shared[] = {"even", "waterfill", NULL};
	static const char *const phases[] = {"prefill", "decode", "mixed", "verify", "draft", NULL};
	struct options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->args;
		return 0;
	case OPT_RANKS:
		return ranks_parse(options, arg);
	case OPT_MAP:
		return mt_args_path(&options->args, "--map", arg, &options->map);
	case OPT_REPLICAS:
		return mt_args_uint(&options->args, "--replicas", arg, 1, 65536,
				    &options->n_replicas);
	case OPT_SHARED:
		return word_parse(options, "--shared", arg, shared, &options->shared);
	case OPT_PHASE:
		return word_parse(options, "--phase", arg, phases, &options->phase);
	case OPT_MODEL:
		return mt_args_uint(&options->args, "--model", arg, 1, INT64_MAX,
				    &options->model_id);
	case OPT_BY_PASS:
		options->by_pass = true;
		return 0;
	case ARGP_KEY_END:
		return complete(options);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option argp_options[] = {
	{"ranks", OPT_RANKS, "R[,R...]", 0,
	 "Balance of R ranks of expert parallelism, for each R; without it, of the experts", 1},
	{"map", OPT_MAP, "FILE|recorded", 0,
	 "Where the experts are: JSON as 'moetrace eplb --format json' or --export sglang writes "
	 "it, "
	 "or the maps of the trace [experts in order, as many on each rank]",
	 1},
	{"replicas", OPT_REPLICAS, "N", 0, "Experts in N slots, placed by the EPLB method", 1},
	{"shared", OPT_SHARED, "WAY", 0,
	 "Count shared experts too: even, each rank computes those of its own rows; waterfill, "
	 "they go "
	 "to the least loaded ranks",
	 1},
	{"phase", OPT_PHASE, "PHASE", 0, "Only passes of this phase", 2},
	{"model", OPT_MODEL, "ID", 0, "Only this model", 2},
	{"by-pass", OPT_BY_PASS, NULL, 0, "A row a pass instead of a row a layer", 2},
	{0},
};

static const struct argp_child children[] = {{&mt_args_explain_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.options = argp_options,
	.parser = parse,
	.args_doc = "FILE",
	.doc = "Print how even the load of each layer is, over a recording. Routed experts only, "
	       "padding excluded; dense layers and passes without rows are in no figure."
	       "\v"
	       "Columns without --ranks:\n"
	       "  tokens               selections of routed experts: rows x experts a row\n"
	       "  mean_active_experts  distinct experts that a pass touched, mean over passes\n"
	       "  mean_max_load        rows of a pass's most loaded expert, mean over passes\n"
	       "  max_over_mean        tokens of the hottest expert / (tokens / n_experts)\n"
	       "  balancedness         (tokens / n_experts) / tokens of the hottest expert: 1 is\n"
	       "                       even, 1 / n_experts is one expert taking all\n"
	       "  dead_experts         experts without a token\n"
	       "\n"
	       "Columns with --ranks, from the ranks' loads in each pass; an expert's tokens are "
	       "shared\n"
	       "evenly by its replicas:\n"
	       "  left_out             passes in which the layer's counts, or its map, are not "
	       "known\n"
	       "  mean_balancedness    mean over passes of (mean + 1e-5) / (max + 1e-5), as "
	       "SGLang's\n"
	       "  total_balancedness   sum of means / sum of maxima over passes, as vLLM's\n"
	       "  mean_max_over_mean   mean over passes of max / mean; less 1, TensorRT-LLM's "
	       "imbalance\n"
	       "  p95_max_over_mean    what 95 % of the passes do not exceed\n"
	       "  mean_cv              mean over passes of the standard deviation / mean\n"
	       "  mean_gini            mean over passes of the Gini coefficient: 0 is even\n"
	       "  mean_entropy         mean over passes of the shares' entropy / log R: 1 is even\n"
	       "  max_over_mean        of the totals over passes: what a counter shows\n"
	       "\n"
	       "With --by-pass, sglang_balancedness is the mean over the pass's layers of (mean + "
	       "1e-5) / "
	       "(max + 1e-5), vllm_balancedness sum of means / sum of maxima over them.\n",
	.children = children,
};

#define SQL_EXPERTS                                                                                \
	"SELECT recording_id, model_id, layer, n_experts, n_passes, tokens, mean_active_experts, " \
	"max_active_experts, mean_max_load, max_load, hottest_expert, max_over_mean, "             \
	"balancedness, dead_experts FROM layer_balance WHERE (?1 IS NULL OR recording_id = ?1) "   \
	"AND (?7 IS NULL OR model_id = ?7) ORDER BY recording_id, model_id, layer"

/*
 * What is balanced: each recording, model and number of ranks, with its placement. ?1 recording, ?2
 * ranks, ?3 map, ?4 replicas, ?5 shared, ?6 phase, ?7 model. A map with a row a layer of the model,
 * dense ones too, is SGLang's: those with experts are taken from it.
 */
#define SQL_PICK                                                                                  \
	"WITH map AS (SELECT CASE WHEN ?3 = 'recorded' THEN NULL ELSE coalesce(json_extract(?3, " \
	"'$.phy2log'), ?3) END AS by_ordinal, CASE WHEN ?3 = 'recorded' THEN NULL ELSE "          \
	"json_extract(?3, '$.physical_to_logical_map') END AS by_layer), "                        \
	"pick AS (SELECT r.recording_id, m.model_id, k.value AS ranks, CASE WHEN ?3 = "           \
	"'recorded' THEN ?3 WHEN by_layer IS NOT NULL THEN (SELECT json_group_array("             \
	"json_extract(by_layer, '$[' || layer || ']')) FROM (SELECT layer FROM layer AS l "       \
	"WHERE l.model_id = m.model_id ORDER BY moe_ordinal)) WHEN ?3 IS NOT NULL THEN "          \
	"by_ordinal WHEN ?4 IS NOT NULL THEN (SELECT json_group_array(json(slots)) FROM "         \
	"(SELECT json_group_array(expert) AS slots FROM (SELECT layer_id, expert FROM "           \
	"moe_eplb(k.value, ?4, 1, 1, 0, m.model_id, r.recording_id) ORDER BY layer_id, slot) "    \
	"GROUP BY layer_id)) END AS placement FROM recording AS r CROSS JOIN model AS m "         \
	"CROSS JOIN json_each(?2) AS k CROSS JOIN map WHERE (?1 IS NULL OR r.recording_id = ?1) " \
	"AND (?7 IS NULL OR m.model_id = ?7) AND (?3 IS NOT NULL OR ?4 IS NOT NULL OR NOT "       \
	"EXISTS (SELECT 1 FROM layer AS l WHERE l.model_id = m.model_id AND l.n_experts % "       \
	"k.value <> 0))) "

#define SQL_LAYERS                                                                               \
	SQL_PICK "SELECT b.recording_id, b.model_id, b.layer, b.ranks, b.n_passes, b.left_out, " \
		 "b.tokens, b.mean_balancedness, b.total_balancedness, b.mean_max_over_mean, "   \
		 "b.p50_max_over_mean, b.p95_max_over_mean, b.max_max_over_mean, b.mean_cv, "    \
		 "b.mean_gini, b.mean_entropy, b.max_over_mean FROM pick AS p CROSS JOIN "       \
		 "moe_balance(p.ranks, p.placement, ?5, ?6, p.model_id, p.recording_id) AS b "   \
		 "ORDER BY b.recording_id, b.model_id, b.ranks, b.layer"

#define SQL_PASSES                                                                              \
	SQL_PICK "SELECT b.recording_id, b.model_id, b.pass_id, b.phase, b.begin_ns, b.ranks, " \
		 "count(*) AS layers, sum(b.tokens) AS tokens, avg(b.balancedness) AS "         \
		 "sglang_balancedness, sum(b.mean_rank_tokens) / sum(b.max_rank_tokens) AS "    \
		 "vllm_balancedness, max(b.max_over_mean) AS max_max_over_mean, avg(b.cv) AS "  \
		 "mean_cv, avg(b.gini) AS mean_gini, avg(b.entropy) AS mean_entropy FROM pick " \
		 "AS p CROSS JOIN moe_balance_pass(p.ranks, p.placement, ?5, ?6, p.model_id, "  \
		 "p.recording_id) AS b GROUP BY b.recording_id, b.model_id, b.ranks, b.pass_id"

/* Models that in-order placement leaves out. */
#define SQL_LEFT_OUT                                                                            \
	"SELECT printf('model %d is left out: its %d experts cannot be divided by %d ranks; "   \
	"give --map or --replicas', m.model_id, max(l.n_experts), k.value) FROM model AS m "    \
	"JOIN layer AS l USING (model_id) CROSS JOIN json_each(?2) AS k WHERE l.n_experts % "   \
	"k.value <> 0 AND (?7 IS NULL OR m.model_id = ?7) GROUP BY m.model_id, k.value "        \
	"ORDER BY m.model_id, k.value"

static sqlite3_stmt *prepare(const struct mt_trace *trace, const struct options *options,
			     const char *sql)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, sql);
	const char *texts[] = {[2] = options->ranks,
			       [3] = options->map,
			       [5] = options->shared,
			       [6] = options->phase};

	if (!stmt)
		return NULL;
	if (options->args.recording_id)
		sqlite3_bind_int64(stmt, 1, (int64_t)options->args.recording_id);
	for (int i = 2; i <= 6; i++)
		if (i != 4 && texts[i])
			sqlite3_bind_text(stmt, i, texts[i], -1, SQLITE_STATIC);
	if (options->placement)
		sqlite3_bind_text64(stmt, 3, options->placement, options->n_placement_bytes,
				    SQLITE_STATIC, SQLITE_UTF8);
	if (options->n_replicas)
		sqlite3_bind_int64(stmt, 4, (int64_t)options->n_replicas);
	if (options->model_id)
		sqlite3_bind_int64(stmt, 7, (int64_t)options->model_id);
	return stmt;
}

static int left_out_print(const struct mt_trace *trace, const struct options *options)
{
	if (!options->has_ranks || options->map || options->n_replicas)
		return MT_EXIT_OK;
	return mt_trace_print_notes(trace, prepare(trace, options, SQL_LEFT_OUT));
}

/* Whether every model is left out for every number of ranks. */
#define SQL_ALL_LEFT_OUT                                                                         \
	"SELECT NOT EXISTS (SELECT 1 FROM model AS m CROSS JOIN json_each(?2) AS k WHERE (?7 IS " \
	"NULL OR m.model_id = ?7) AND EXISTS (SELECT 1 FROM layer AS l WHERE l.model_id = "      \
	"m.model_id) AND NOT EXISTS (SELECT 1 FROM layer AS l WHERE l.model_id = m.model_id AND " \
	"l.n_experts % k.value <> 0))"

/* Why the table may be empty; what is left out is said by itself. */
static int when_empty_find(const struct mt_trace *trace, struct options *options)
{
	sqlite3_stmt *stmt;
	int status = MT_EXIT_OK;

	options->args.when_empty = options->phase
					   ? "no layer of a pass of that phase was stored or counted"
					   : "no layer of a pass was stored or counted";
	if (!options->has_ranks || options->map || options->n_replicas)
		return MT_EXIT_OK;
	stmt = prepare(trace, options, SQL_ALL_LEFT_OUT);
	if (!stmt)
		return MT_EXIT_FAILED;
	if (sqlite3_step(stmt) != SQLITE_ROW)
		status = mt_trace_error(trace);
	else if (sqlite3_column_int(stmt, 0))
		options->args.when_empty = NULL;
	sqlite3_finalize(stmt);
	return status;
}

/* Recordings in which no pass ran under a map. */
#define SQL_NO_MAP                                                                             \
	"SELECT r.recording_id, 'no layer of a pass has a map in force: see table expert_map' " \
	"FROM recording AS r WHERE (?1 IS NULL OR recording_id = ?1) AND EXISTS (SELECT 1 FROM " \
	"pass AS p WHERE p.recording_id = r.recording_id) AND NOT EXISTS (SELECT 1 FROM pass "   \
	"AS p JOIN pass_layer AS l USING (pass_id) WHERE p.recording_id = r.recording_id AND "   \
	"l.map_epoch IS NOT NULL) ORDER BY 1"

static int model_check(const struct mt_trace *trace, const struct options *options)
{
	sqlite3_stmt *stmt = prepare(trace, options, "SELECT 1 FROM model WHERE model_id = ?7");
	int rc = stmt ? sqlite3_step(stmt) : SQLITE_ERROR;

	sqlite3_finalize(stmt);
	if (rc == SQLITE_ROW || !options->model_id)
		return MT_EXIT_OK;
	if (rc != SQLITE_DONE)
		return stmt ? mt_trace_error(trace) : MT_EXIT_FAILED;
	mt_error("%s: has no model %llu; 'moetrace info' lists them", trace->path,
		 (unsigned long long)options->model_id);
	return MT_EXIT_NOT_FOUND;
}

static int print(const struct mt_trace *trace, const struct options *options)
{
	const bool is_of_ranks = options->ranks[0] != '\0';
	const char *sql = !is_of_ranks	     ? SQL_EXPERTS
			  : options->by_pass ? SQL_PASSES
					     : SQL_LAYERS;
	int status = mt_explain_print_only(trace, &options->args, MT_SCALE_NONE, "balance", NULL,
					   prepare(trace, options, sql));

	if (status == MT_EXIT_OK)
		status = left_out_print(trace, options);
	if (status == MT_EXIT_OK && options->map && strcmp(options->map, "recorded") == 0)
		status = mt_trace_print_notes(trace, prepare(trace, options, SQL_NO_MAP));
	if (status == MT_EXIT_OK)
		status = mt_notes_print(trace, options->args.recording_id,
					is_of_ranks ? MT_NOTES_ROWS : MT_NOTES_LOAD);
	return status;
}

static int map_check(const struct mt_trace *trace, const struct options *options)
{
	sqlite3_stmt *stmt;
	bool is_json;

	if (!options->placement)
		return MT_EXIT_OK;
	stmt = prepare(trace, options, "SELECT json_valid(?3)");
	is_json = stmt && sqlite3_step(stmt) == SQLITE_ROW && sqlite3_column_int(stmt, 0);
	sqlite3_finalize(stmt);
	if (!is_json)
		mt_error("%s: is no JSON; give what 'moetrace eplb --format json' prints",
			 options->map);
	return is_json ? MT_EXIT_OK : MT_EXIT_FAILED;
}

static int placed_print(struct mt_trace *trace, void *input)
{
	struct options *options = input;
	int status = MT_EXIT_OK;

	if (options->map && strcmp(options->map, "recorded") != 0)
		status = mt_file_read(options->map, &options->placement,
				      &options->n_placement_bytes);
	if (status == MT_EXIT_OK)
		status = map_check(trace, options);
	if (status == MT_EXIT_OK)
		status = model_check(trace, options);
	if (status == MT_EXIT_OK)
		status = when_empty_find(trace, options);
	if (status == MT_EXIT_OK && options->ranks[0] != '\0')
		status = mt_trace_mode_check(trace, options->args.recording_id,
					     "per_token,per_pass", "--ranks");
	if (status == MT_EXIT_OK)
		status = print(trace, options);
	free(options->placement);
	return status;
}

int mt_cmd_balance(int argc, char **argv)
{
	static const struct mt_trace_verb verb = {.argp = &argp, .print = placed_print};
	struct options options = {.ranks = ""};

	return mt_trace_verb_run(&verb, argc, argv, &options.args, &options);
}
