/* SPDX-License-Identifier: MIT */
/*
 * What `moetrace run` prints: one line that is rewritten on a terminal while it serves, and the
 * summary. A rate over no time at all is unknown, not zero.
 */
#include "cli/cmd_run.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "kernels/presets/presets.h"

#define PROGRESS_INTERVAL_NS 100000000u

static double seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

/* Rows a second; not a number where there was no time. */
static double rate(uint64_t n, uint64_t ns)
{
	return ns == 0 ? NAN : (double)n / seconds(ns);
}

void mt_run_fail(struct mt_run_failure *failure, const char *format, ...)
{
	size_t used = strlen(failure->text);
	const size_t max = sizeof(failure->text) - 1;
	va_list args;

	if (used > 0)
		used += (size_t)snprintf(failure->text + used, max - used + 1, "; ");
	if (used >= max)
		return;
	va_start(args, format);
	vsnprintf(failure->text + used, max - used + 1, format, args);
	va_end(args);
}

void mt_run_progress_show(struct mt_run_progress *progress, const struct mtk_serve_stats *stats)
{
	if (stats->total_ns - progress->last_ns < PROGRESS_INTERVAL_NS || !isatty(STDERR_FILENO))
		return;
	progress->last_ns = stats->total_ns;
	progress->is_shown = true;
	fprintf(stderr,
		"\r%" PRIu32 " of %" PRIu32 " requests done, %" PRIu32 " running, %" PRIu64
		" tokens generated, %.0f rows/s\033[K",
		stats->n_done, stats->n_requests, stats->n_active, stats->n_generated,
		rate(stats->prefill_rows + stats->decode_rows, stats->total_ns));
	fflush(stderr);
}

void mt_run_progress_clear(struct mt_run_progress *progress)
{
	if (progress->is_shown)
		fputs("\r\033[K", stderr);
	progress->is_shown = false;
}

/* Who chose and what ran, where it is not the router of a file's model. */
static void model_print(const struct mt_run_result *result)
{
	const struct mtk_preset *preset = mtk_model_preset(result->model);
	const uint32_t n_layers = mtk_model_borrow_config(result->model)->n_layers;
	const size_t pool_bytes = mtk_model_expert_pool_bytes(result->model);

	if (preset) {
		printf("%-10s %s: %u of %u layers with experts, synthetic weights; dense layers are "
		       "left out\n",
		       "shape", preset->name, n_layers, mtk_shape_moe_layers(preset));
		printf("%-10s plain grouped-query attention", "");
		if (preset->real_attention)
			printf(" instead of the model's (%s)", preset->real_attention);
		if (preset->n_heads == 0)
			printf(", its sizes assumed");
		putchar('\n');
	}
	if (preset && preset->note)
		printf("%-10s note: %s\n", "", preset->note);
	if (pool_bytes > 0)
		printf("%-10s %zu bytes, which the weights of all layers alias: no speed is told\n",
		       "pool", pool_bytes);
	if (strcmp(result->routing, "model") != 0)
		printf("%-10s %s\n", "routing", result->routing);
	if (result->device)
		printf("%-10s %s\n", "device", result->device);
}

static void phase_print(const char *name, uint64_t n, uint64_t ns)
{
	printf("%-10s %" PRIu64 " tokens", name, n);
	if (ns > 0)
		printf(", %.0f tokens/s", rate(n, ns));
}

static void served_print(const struct mtk_serve_stats *served)
{
	uint64_t n_passes =
		served->n_prefill_passes + served->n_decode_passes + served->n_mixed_passes;

	printf("%-10s %" PRIu32 " of %" PRIu32 " requests, %" PRIu64
	       " tokens generated, in %.3f s\n",
	       "served", served->n_done, served->n_requests, served->n_generated,
	       seconds(served->total_ns));
	if (served->n_aborted > 0)
		printf("%-10s %" PRIu32 " requests\n", "aborted", served->n_aborted);
	if (served->n_retracts > 0)
		printf("%-10s %" PRIu64 ", for want of KV positions\n", "retracts",
		       served->n_retracts);
	if (served->n_reuses > 0)
		printf("%-10s %" PRIu64 " positions, by %" PRIu64
		       " prefix hits, not computed again\n",
		       "reused", served->n_reused_positions, served->n_reuses);
	phase_print("prefill", served->prefill_rows, served->prefill_ns);
	putchar('\n');
	phase_print("decode", served->decode_rows, served->decode_ns);
	if (served->decode_only_ns > 0)
		printf(" (%.0f in passes with decode rows alone)",
		       rate(served->decode_only_rows, served->decode_only_ns));
	putchar('\n');
	printf("%-10s %" PRIu64 ": %" PRIu64 " prefill, %" PRIu64 " decode, %" PRIu64
	       " mixed (their time is shared by rows)\n",
	       "passes", n_passes, served->n_prefill_passes, served->n_decode_passes,
	       served->n_mixed_passes);
}

/* On a pool of weights times would be those of caches: rates are unknown. */
static struct mtk_serve_stats timed_stats(const struct mt_run_result *result)
{
	struct mtk_serve_stats served = result->served;

	if (mtk_model_expert_pool_bytes(result->model) > 0)
		served.prefill_ns = served.decode_ns = served.decode_only_ns = 0;
	return served;
}

static void losses_print(const struct moetrace_session_status *recorded)
{
	printf("%-10s ", "losses");
	if (recorded->dropped_passes == 0 && recorded->dropped_layers == 0 && recorded->misuse == 0)
		puts("none");
	else
		printf("%" PRIu64 " passes, %" PRIu64 " layers of other passes, %" PRIu64
		       " bytes, %" PRIu64 " calls refused\n",
		       recorded->dropped_passes, recorded->dropped_layers, recorded->dropped_bytes,
		       recorded->misuse);
}

static void table_print(const struct mt_run_result *result)
{
	const struct moetrace_session_status *recorded = &result->recorded;
	const struct mtk_serve_stats served = timed_stats(result);

	model_print(result);
	served_print(&served);
	if (!result->path)
		return;
	printf("%-10s %" PRIu64 " passes, %" PRIu64 " rows, %" PRIu64 " assignments\n", "recorded",
	       recorded->recorded_passes, recorded->recorded_rows, recorded->recorded_assignments);
	losses_print(recorded);
	printf("%-10s %s, %" PRIu64 " bytes\n", "file", result->path, result->file_bytes);
}

/* One named number; real where is_real says so. */
struct metric {
	const char *name;
	double real;
	uint64_t count;
	bool is_real;
	bool of_recording;
};

#define COUNT(name, value)                   \
	{                                    \
		name, 0, value, false, false \
	}
#define REAL(name, value)                   \
	{                                   \
		name, value, 0, true, false \
	}
#define RECORDED(name, value)               \
	{                                   \
		name, 0, value, false, true \
	}
#define N_METRICS 26

static void metrics_fill(const struct mt_run_result *result, struct metric *ret_metrics)
{
	const struct mtk_serve_stats timed = timed_stats(result), *served = &timed;
	const struct moetrace_session_status *recorded = &result->recorded;
	const struct metric metrics[N_METRICS] = {
		COUNT("n_requests", served->n_requests),
		COUNT("n_done", served->n_done),
		COUNT("n_generated", served->n_generated),
		COUNT("prefill_rows", served->prefill_rows),
		REAL("prefill_tokens_per_s", rate(served->prefill_rows, served->prefill_ns)),
		COUNT("decode_rows", served->decode_rows),
		REAL("decode_tokens_per_s", rate(served->decode_rows, served->decode_ns)),
		COUNT("decode_only_rows", served->decode_only_rows),
		REAL("decode_only_tokens_per_s",
		     rate(served->decode_only_rows, served->decode_only_ns)),
		COUNT("n_prefill_passes", served->n_prefill_passes),
		COUNT("n_decode_passes", served->n_decode_passes),
		COUNT("n_mixed_passes", served->n_mixed_passes),
		COUNT("total_ns", served->total_ns),
		COUNT("interrupted", served->interrupted),
		COUNT("n_aborted", served->n_aborted),
		COUNT("n_retracts", served->n_retracts),
		COUNT("n_reuses", served->n_reuses),
		COUNT("n_reused_positions", served->n_reused_positions),
		RECORDED("recorded_passes", recorded->recorded_passes),
		RECORDED("recorded_rows", recorded->recorded_rows),
		RECORDED("recorded_assignments", recorded->recorded_assignments),
		RECORDED("dropped_passes", recorded->dropped_passes),
		RECORDED("dropped_layers", recorded->dropped_layers),
		RECORDED("dropped_bytes", recorded->dropped_bytes),
		RECORDED("misuse", recorded->misuse),
		RECORDED("file_bytes", result->file_bytes),
	};
	size_t i;

	for (i = 0; i < N_METRICS; i++)
		ret_metrics[i] = metrics[i];
}

static void metric_add(struct mt_table *table, const struct metric *metric, bool is_recorded)
{
	if (metric->of_recording && !is_recorded)
		mt_table_null(table);
	else if (!metric->is_real)
		mt_table_int64(table, (int64_t)metric->count);
	else if (isnan(metric->real))
		mt_table_null(table);
	else
		mt_table_double(table, metric->real);
}

/* The formats for programs: one row of named numbers. */
static int row_print(const struct mt_run_result *result, enum mt_format format)
{
	struct metric metrics[N_METRICS];
	const char *columns[N_METRICS + 1];
	struct mt_output output;
	struct mt_table table;
	int status, end_status;
	size_t i;

	metrics_fill(result, metrics);
	for (i = 0; i < N_METRICS; i++)
		columns[i] = metrics[i].name;
	columns[N_METRICS] = "path";
	mt_output_begin(&output, stdout, format);
	status = mt_table_begin(&table, &output, columns, N_METRICS + 1);
	if (status == MOETRACE_OK) {
		for (i = 0; i < N_METRICS; i++)
			metric_add(&table, &metrics[i], result->path != NULL);
		if (result->path)
			mt_table_text(&table, result->path);
		else
			mt_table_null(&table);
		status = mt_table_end(&table);
	}
	end_status = mt_output_end(&output);
	return status < 0 ? status : end_status;
}

int mt_run_summary_print(const struct mt_run_result *result, enum mt_format format)
{
	int status;

	if (format == MT_FORMAT_TABLE) {
		table_print(result);
		return MT_EXIT_OK;
	}
	status = row_print(result, format);
	/* What standard output could not take is reported where it is closed. */
	if (status < 0 && ferror(stdout))
		return MT_EXIT_FAILED;
	if (status < 0) {
		mt_error("the summary cannot be printed: %s", moetrace_status_string(status));
		return MT_EXIT_FAILED;
	}
	return MT_EXIT_OK;
}
