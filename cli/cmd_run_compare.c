/* SPDX-License-Identifier: MIT */
/*
 * run --compare: the workload again and again in one process, plainly and under rules. Runs come in
 * rounds of one plain run and one of each rule, every other round the other way around, so that what
 * drifts slowly cancels. Each run is a recording; times, active experts and energy are read from
 * these when the file is closed, texts are compared while they are there. A run under a rule and the
 * plain one of its round are a pair, and what it changed is one value; the change and its interval are
 * those of the median over pairs, which need not be the quotient of the two medians.
 */
#include "cli/cmd_run.h"

#include <stdlib.h>
#include <string.h>

#include <moetrace/moetrace.h>

#include "cli/paired.h"

/* The texts of a run. */
struct texts {
	unsigned char **texts; /* [n]; NULL: the request generated nothing */
	uint32_t *n_bytes;
	uint32_t n;
};

static void texts_free(struct texts *texts)
{
	for (uint32_t i = 0; texts->texts && i < texts->n; i++)
		free(texts->texts[i]);
	free(texts->texts);
	free(texts->n_bytes);
	*texts = (struct texts){0};
}

/* Returns whether there was memory. */
static bool texts_take(const struct mtk_server *server, uint32_t n, struct texts *texts)
{
	*texts = (struct texts){
		.texts = calloc(n, sizeof(*texts->texts)),
		.n_bytes = calloc(n, sizeof(*texts->n_bytes)),
		.n = n,
	};
	if (!texts->texts || !texts->n_bytes)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		const struct mtk_sequence *sequence = mtk_server_sequence(server, i);

		if (sequence->n_generated == 0)
			continue;
		texts->texts[i] = malloc(sequence->n_generated);
		if (!texts->texts[i])
			return false;
		memcpy(texts->texts[i], sequence->text, sequence->n_generated);
		texts->n_bytes[i] = sequence->n_generated;
	}
	return true;
}

/* The share of the tokens (a byte each) of @plain before the first one in which the others differ. */
static double texts_compare(const struct texts *plain, const struct texts *ruled)
{
	uint64_t n_same = 0, n = 0;

	for (uint32_t i = 0; i < plain->n; i++) {
		uint32_t j = 0;

		while (j < plain->n_bytes[i] && j < ruled->n_bytes[i] &&
		       plain->texts[i][j] == ruled->texts[i][j])
			j++;
		n_same += j;
		n += plain->n_bytes[i];
	}
	return n > 0 ? (double)n_same / (double)n : 1;
}

/* ---- runs ---- */

/* What the session knows after the first run. */
struct handles {
	uint32_t model, rules[MT_RUN_MAX_RULES];
};

/* Serve once, under rule @variant - 1. *ret_server is to be destroyed, also after a failure. */
static int block_serve(struct mt_compare *compare, uint32_t variant, struct handles *handles,
		       struct moetrace_session *session, struct mtk_server **ret_server)
{
	const struct mtk_serve_recording recording = {
		.session = session,
		.model_name = compare->model_name,
		.records_tokens = compare->options->records_tokens,
		.records_kernels = compare->options->records_kernels,
		.model = handles ? &handles->model : NULL,
		.rule = handles && variant ? &handles->rules[variant - 1] : NULL,
	};
	struct mtk_serve_options options = compare->serve;
	struct mtk_error error;
	sigset_t before;
	int status;

	options.oea = variant ? mt_rule_oea(&compare->options->compare[variant - 1]) : NULL;
	*ret_server = NULL;
	mt_run_signals_hold(&before);
	status = mtk_server_create(compare->model, compare->workload, &options, ret_server, &error);
	mt_run_signals_release(&before);
	if (status == MOETRACE_OK)
		status = mtk_server_run(*ret_server, &recording, &compare->stats, &error);
	if (status < 0)
		mt_run_fail(compare->failure, "%s", error.text);
	else if (compare->stats.interrupted)
		mt_run_fail(compare->failure, "interrupted by a signal");
	return status < 0 || compare->stats.interrupted ? MT_EXIT_FAILED : MT_EXIT_OK;
}

/* The recording of the run before ends, and another begins. */
static int recording_next(struct mt_compare *compare)
{
	struct moetrace_recording_opts opts;
	char text[512];

	MOETRACE_INIT(&opts);
	opts.routing_source = compare->options->routing_text;
	opts.mode = compare->options->mode;
	opts.sample_every_n_passes = compare->options->sample_every_n_passes;
	opts.sample_every_n_requests = compare->options->sample_every_n_requests;
	if (moetrace_stop(compare->session, "finished") >= 0 &&
	    moetrace_start(compare->session, &opts) >= 0)
		return MT_EXIT_OK;
	moetrace_errmsg(compare->session, text, sizeof(text));
	mt_run_fail(compare->failure, "the next recording cannot be started: %s", text);
	return MT_EXIT_FAILED;
}

/* Which variant run @i of a round is: 0 is plain. */
static uint32_t variant_of(const struct mt_compare *compare, uint32_t round, uint32_t i)
{
	return round % 2 == 0 ? i : compare->options->n_compare - i;
}

static int run_serve(struct mt_compare *compare, uint32_t variant, struct handles *handles,
		     struct texts *texts)
{
	struct mtk_server *server;
	int exit_code = block_serve(compare, variant, handles, compare->session, &server);

	if (exit_code == MT_EXIT_OK && !texts_take(server, compare->stats.n_requests, texts)) {
		mt_run_fail(compare->failure, "out of memory");
		exit_code = MT_EXIT_FAILED;
	}
	mtk_server_destroy(server);
	return exit_code;
}

static int round_serve(struct mt_compare *compare, uint32_t round, struct handles *handles)
{
	const uint32_t n_rules = compare->options->n_compare;
	struct texts texts[MT_RUN_MAX_RULES + 1] = {{0}};
	int exit_code = MT_EXIT_OK;

	for (uint32_t i = 0; i <= n_rules && exit_code == MT_EXIT_OK; i++) {
		const uint32_t variant = variant_of(compare, round, i);

		if (round + i > 0)
			exit_code = recording_next(compare);
		if (exit_code == MT_EXIT_OK)
			exit_code = run_serve(compare, variant, handles, &texts[variant]);
	}
	for (uint32_t i = 0; i < n_rules && exit_code == MT_EXIT_OK; i++)
		compare->same_tokens[i * compare->options->n_pairs + round] =
			texts_compare(&texts[0], &texts[i + 1]);
	for (uint32_t i = 0; i <= n_rules; i++)
		texts_free(&texts[i]);
	return exit_code;
}

int mt_compare_serve(struct mt_compare *compare)
{
	struct mtk_server *server;
	struct handles handles = {0};
	int exit_code = block_serve(compare, 0, NULL, NULL, &server);

	mtk_server_destroy(server);
	for (uint32_t i = 0; i < compare->options->n_pairs && exit_code == MT_EXIT_OK; i++)
		exit_code = round_serve(compare, i, &handles);
	return exit_code;
}

/* ---- what changed ---- */

/* A value a recording; ?1 is its number. NULL: not known. */
static const struct metric {
	const char *name;
	const char *sql;
} metrics[] = {
	{"decode_pass_us", "SELECT avg(end_ns - begin_ns) / 1000 FROM pass WHERE recording_id = ?1"
			   " AND phase = 'decode'"},
	{"layer_us", "SELECT avg(duration_ns) / 1000 FROM layer_time WHERE recording_id = ?1"
		     " AND phase = 'decode'"},
	{"active_experts", "SELECT avg(active_experts) FROM pass_layer JOIN pass USING (pass_id)"
			   " WHERE recording_id = ?1 AND phase = 'decode'"},
	{"energy_j", "SELECT sum(used) / 1000.0 FROM (SELECT max(energy_mj) - min(energy_mj) AS used"
		     " FROM power_sample WHERE recording_id = ?1 AND (domain = 'gpu' OR domain"
		     " LIKE 'package%' OR domain LIKE 'dram%') GROUP BY device_id, domain)"},
};

struct values {
	double *plain, *ruled, *change; /* [n_pairs]; change in percent */
};

/* Reads the values of rule @rule and of the plain runs; returns whether every recording has one. */
static bool metric_read(const struct mt_compare *compare, sqlite3_stmt *stmt, uint32_t rule,
			const struct values *values)
{
	const uint32_t n = compare->options->n_compare + 1;

	for (uint32_t i = 0; i < n * compare->options->n_pairs; i++) {
		const uint32_t variant = variant_of(compare, i / n, i % n);
		bool is_known;

		if (variant != 0 && variant != rule + 1)
			continue;
		sqlite3_reset(stmt);
		sqlite3_bind_int64(stmt, 1, i + 1);
		is_known = sqlite3_step(stmt) == SQLITE_ROW &&
			   sqlite3_column_type(stmt, 0) != SQLITE_NULL;
		(variant ? values->ruled : values->plain)[i / n] =
			is_known ? sqlite3_column_double(stmt, 0) : 0;
		if (!is_known)
			return false;
	}
	return true;
}

static void change_print(struct mt_table *table, const char *rule, const char *name,
			 const struct values *values, uint32_t n_pairs)
{
	struct mt_interval plain, ruled, change;
	size_t n = 0;

	for (uint32_t i = 0; i < n_pairs; i++)
		if (values->plain[i] > 0)
			values->change[n++] = 100 * (values->ruled[i] / values->plain[i] - 1);
	mt_median_interval(values->plain, n_pairs, &plain);
	mt_median_interval(values->ruled, n_pairs, &ruled);
	mt_table_text(table, rule);
	mt_table_text(table, name);
	mt_table_double(table, plain.median);
	mt_table_double(table, ruled.median);
	if (n == 0) {
		for (int i = 0; i < 3; i++)
			mt_table_null(table);
		mt_table_int64(table, 0);
		return;
	}
	mt_median_interval(values->change, n, &change);
	mt_table_double(table, change.median);
	if (change.has_bounds) {
		mt_table_double(table, change.low);
		mt_table_double(table, change.high);
	} else {
		mt_table_null(table);
		mt_table_null(table);
	}
	mt_table_int64(table, (int64_t)n);
}

static int metrics_print(const struct mt_compare *compare, const struct mt_trace *trace,
			 struct mt_table *table, uint32_t rule, const struct values *values)
{
	const uint32_t n_pairs = compare->options->n_pairs;
	char name[MTK_OEA_NAME_BYTES];

	mtk_oea_name(mt_rule_oea(&compare->options->compare[rule]), name);
	for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
		sqlite3_stmt *stmt = mt_trace_prepare(trace, metrics[i].sql);

		if (!stmt)
			return MT_EXIT_FAILED;
		if (metric_read(compare, stmt, rule, values))
			change_print(table, name, metrics[i].name, values, n_pairs);
		sqlite3_finalize(stmt);
	}
	for (uint32_t i = 0; i < n_pairs; i++) {
		values->plain[i] = 1;
		values->ruled[i] = compare->same_tokens[rule * n_pairs + i];
	}
	change_print(table, name, "same_token_share", values, n_pairs);
	return MT_EXIT_OK;
}

/* What the table does not say of itself. */
static int notes_print(const struct mt_compare *compare, const struct mt_trace *trace)
{
	int64_t n_samples = 0;
	int status = mt_trace_int(trace, "SELECT count(energy_mj) FROM power_sample", &n_samples);

	mt_note("paired_change_percent is the median over pairs of ruled / plain - 1, which need not be "
		"the quotient of the medians");
	if (compare->options->n_pairs < MT_INTERVAL_MIN_VALUES)
		mt_note("an interval of 95 %% needs %d pairs or more; there are %u",
			MT_INTERVAL_MIN_VALUES, compare->options->n_pairs);
	if (status == MT_EXIT_OK && n_samples == 0)
		mt_note("no energy_j: no power source that counts energy was read");
	return status;
}

static int table_print(const struct mt_compare *compare, const struct mt_trace *trace,
		       const struct values *values)
{
	static const char *const columns[] = {
		"rule",	       "figure",      "plain_median", "ruled_median", "paired_change_percent",
		"low_percent", "high_percent", "pairs"};
	struct mt_output output;
	struct mt_table table;
	int exit_code = MT_EXIT_OK;

	mt_output_begin(&output, stdout, compare->options->args.format);
	if (mt_table_begin(&table, &output, columns, 8) < 0) {
		mt_error("out of memory");
		return MT_EXIT_FAILED;
	}
	for (uint32_t i = 0; i < compare->options->n_compare && exit_code == MT_EXIT_OK; i++)
		exit_code = metrics_print(compare, trace, &table, i, values);
	mt_table_end(&table);
	mt_output_end(&output);
	return exit_code == MT_EXIT_OK ? notes_print(compare, trace) : exit_code;
}

int mt_compare_print(const struct mt_compare *compare, const char *path)
{
	const size_t n = compare->options->n_pairs;
	double *memory = calloc(3 * n, sizeof(*memory));
	const struct values values = {memory, memory + n, memory + 2 * n};
	struct mt_trace trace;
	int exit_code;

	if (!memory) {
		mt_error("out of memory");
		return MT_EXIT_FAILED;
	}
	exit_code = mt_trace_open(path, &trace);
	if (exit_code == MT_EXIT_OK) {
		exit_code = table_print(compare, &trace, &values);
		mt_trace_close(&trace);
	}
	free(memory);
	return exit_code;
}
