/* SPDX-License-Identifier: MIT */
/*
 * efficiency: what the experts of each layer had to do, how fast that was against what the machine
 * can, how many rows an expert gets, what power was drawn, and which passes were slow. Every
 * section is one statement (efficiency_sql.h); what is missing for a figure is said, and the figure
 * is empty.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <moetrace/moetrace.h>

#include "cli/cli.h"
#include "cli/explain.h"
#include "cli/efficiency_sql.h"
#include "cli/energy_sql.h"
#include "cli/notes.h"
#include "kernels/cpu.h"
#ifdef MT_HAS_CUDA_ENGINE
#include "kernels/peaks/peaks_cuda.h"
#endif

enum { OPT_BITS = MT_OPT_OWN, OPT_TFLOPS, OPT_GBPS, OPT_TOP, OPT_MEASURE };

/* Some times what the caches of a processor hold. */
#define MEASURE_BYTES ((size_t)512 << 20)

struct options {
	struct mt_args args;
	uint64_t weight_bits, n_top;
	double peak_tflops, peak_gbps; /* 0: not known */
	enum { MEASURE_NOTHING, MEASURE_AUTO, MEASURE_CPU, MEASURE_CUDA } measures;
	char tflops_source[80], gbps_source[80]; /* where they are from */
};

static error_t peak_parse(struct options *options, const char *name, const char *text,
			  double *ret_value)
{
	char *end;
	const double value = strtod(text, &end);

	if (end == text || *end != '\0' || !(value > 0) || !isfinite(value))
		return mt_args_error(&options->args, "%s '%s': give a number above 0", name, text);
	*ret_value = value;
	return 0;
}

static error_t measure_parse(struct options *options, const char *device)
{
	options->measures = !device			  ? MEASURE_AUTO
			    : strcmp(device, "cpu") == 0  ? MEASURE_CPU
			    : strcmp(device, "cuda") == 0 ? MEASURE_CUDA
							  : MEASURE_NOTHING;
	return options->measures != MEASURE_NOTHING
		       ? 0
		       : mt_args_error(&options->args, "--measure '%s': give cpu or cuda", device);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->args;
		return 0;
	case OPT_BITS:
		return mt_args_uint(&options->args, "--weight-bits", arg, 1, 64,
				    &options->weight_bits);
	case OPT_TFLOPS:
		return peak_parse(options, "--peak-tflops", arg, &options->peak_tflops);
	case OPT_GBPS:
		return peak_parse(options, "--peak-gbps", arg, &options->peak_gbps);
	case OPT_TOP:
		return mt_args_uint(&options->args, "--top", arg, 1, UINT32_MAX, &options->n_top);
	case OPT_MEASURE:
		return measure_parse(options, arg);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option argp_options[] = {
	{"weight-bits", OPT_BITS, "N", 0, "Bits a weight takes [by the model's quantization]", 1},
	{"peak-tflops", OPT_TFLOPS, "X", 0, "What the machine computes at most, in TFLOP/s", 1},
	{"peak-gbps", OPT_GBPS, "X", 0, "What its memory delivers at most, in GB/s", 1},
	{"measure", OPT_MEASURE, "DEVICE", OPTION_ARG_OPTIONAL,
	 "Measure what this machine does at most, where it is not given, on its cpu (half a second, 512 "
	 "MiB) or its GPU (cuda) [what the passes ran on]",
	 1},
	{"top", OPT_TOP, "N", 0, "Rows of the layers, and slow passes, to print [12]", 1},
	{0},
};

static const struct argp_child children[] = {{&mt_args_report_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.options = argp_options,
	.parser = parse,
	.args_doc = "FILE",
	.doc = "Print what the experts of each layer had to do and how fast that was, how many "
	       "rows an "
	       "expert gets in a pass, what power was drawn and why not more, and which passes "
	       "were slow and in what they differ."
	       "\v"
	       "Columns:\n"
	       "  gflop          2 x weights of an expert x rows x experts a row, mean of a pass\n"
	       "  weight_mb      active experts x expert_weight_bytes, mean of a pass\n"
	       "  timed_by       experts: their own products; kernel: the layer's operations;\n"
	       "                 selection: from one selection to the next, attention included\n"
	       "  bound_by       which of the peaks takes longer: compute or memory\n"
	       "  share_of_peak  that time / the time it took\n"
	       "  padding        rows that whole blocks add / rows (align_waste)\n"
	       "  times          duration / mean of passes of the same phase and size\n"
	       "  operation_...  the operation that took most more than it usually does in its layer\n"
	       "What is missing for a figure is said on standard error.\n",
	.children = children,
};

static const struct section {
	const char *name, *title, *sql;
} sections[] = {
	{"peaks", "What the machine does at most", MT_SQL_PEAKS},
	{"why", "Why it draws what it draws", MT_SQL_WHY},
	{"layers", "Layers: work, bytes and speed, those that took longest first", MT_SQL_LAYERS},
	{"rows", "Rows that an expert gets in a pass", MT_SQL_ROWS},
	{"power", "Power", MT_SQL_POWER},
	{"energy", "Tokens per joule", MT_SQL_ENERGY},
	{"slow_passes", "Passes that took more than twice the usual time", MT_SQL_SLOW},
};

static sqlite3_stmt *prepare(const struct mt_trace *trace, const struct options *options,
			     const char *sql)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, sql);

	if (!stmt)
		return NULL;
	if (options->args.recording_id)
		sqlite3_bind_int64(stmt, 1, (int64_t)options->args.recording_id);
	if (options->weight_bits)
		sqlite3_bind_int64(stmt, 2, (int64_t)options->weight_bits);
	if (options->peak_tflops > 0)
		sqlite3_bind_double(stmt, 3, options->peak_tflops);
	if (options->peak_gbps > 0)
		sqlite3_bind_double(stmt, 4, options->peak_gbps);
	sqlite3_bind_int64(stmt, 5, (int64_t)options->n_top);
	sqlite3_bind_text(stmt, 6, options->tflops_source, -1, SQLITE_STATIC);
	sqlite3_bind_text(stmt, 7, options->gbps_source, -1, SQLITE_STATIC);
	return stmt;
}

/* Peaks of another machine than the recording's are worth a word. */
static const char sql_elsewhere[] =
	"SELECT printf('peaks were measured on this machine, %s, and process %d ran on %s', ?1, "
	"process_id, host) FROM process WHERE host <> ?1 UNION ALL SELECT 'peaks were measured on the "
	"CPU, and passes ran on a GPU: give --peak-tflops and --peak-gbps of it' WHERE ?2 AND EXISTS "
	"(SELECT 1 FROM device WHERE kind = 'cuda')";

static int elsewhere_print(const struct mt_trace *trace, bool is_cpu)
{
	sqlite3_stmt *stmt = mt_trace_prepare(trace, sql_elsewhere);
	char host[256] = "";

	gethostname(host, sizeof(host) - 1);
	if (stmt)
		sqlite3_bind_text(stmt, 1, host, -1, SQLITE_TRANSIENT);
	if (stmt)
		sqlite3_bind_int(stmt, 2, is_cpu);
	return mt_trace_print_notes(trace, stmt);
}

/* What is given stays. */
static void peaks_take(struct options *options, double flop_per_s, double bytes_per_s,
		       const char *source)
{
	if (options->peak_tflops == 0) {
		options->peak_tflops = flop_per_s / 1e12;
		snprintf(options->tflops_source, sizeof(options->tflops_source), "%s", source);
	}
	if (options->peak_gbps == 0) {
		options->peak_gbps = bytes_per_s / 1e9;
		snprintf(options->gbps_source, sizeof(options->gbps_source), "%s", source);
	}
}

static int cuda_measure(const struct mt_trace *trace, struct options *options)
{
#ifdef MT_HAS_CUDA_ENGINE
	struct mtk_error error = {""};
	struct mtk_peaks_cuda peaks;
	char source[sizeof(options->tflops_source)];

	if (mtk_peaks_measure_cuda(0, &error, &peaks) != MOETRACE_OK) {
		mt_error("--measure=cuda: %s", error.text);
		return MT_EXIT_FAILED;
	}
	snprintf(source, sizeof(source), "measured: %.40s, %s", peaks.device.name,
		 peaks.is_cublas ? "cuBLAS" : "own product");
	peaks_take(options, peaks.flop_per_s, peaks.bytes_per_s, source);
	return elsewhere_print(trace, false);
#else
	(void)trace, (void)options;
	mt_error("--measure=cuda: this build has no code for GPUs; give --peak-tflops and "
		 "--peak-gbps");
	return MT_EXIT_FAILED;
#endif
}

static int cpu_measure(const struct mt_trace *trace, struct options *options)
{
	const long n_online = sysconf(_SC_NPROCESSORS_ONLN);
	const uint32_t n_threads = n_online < 1			? 1
				   : n_online > MTK_MAX_THREADS ? MTK_MAX_THREADS
								: (uint32_t)n_online;
	const struct mtk_cpu_ops *ops = mtk_cpu_ops_choose();
	struct mtk_threads *threads = NULL;
	struct mtk_peaks peaks;
	char source[64];
	int status;

	if (!ops) {
		mt_error("MOETRACE_CPU names an instruction set that this machine does not have");
		return MT_EXIT_FAILED;
	}
	status = mtk_threads_create(n_threads, &threads);
	if (status == MOETRACE_OK)
		status = mtk_peaks_measure(ops, threads, MEASURE_BYTES, &peaks);
	mtk_threads_destroy(threads);
	if (status != MOETRACE_OK) {
		mt_error("--measure: %s", moetrace_status_string(status));
		return MT_EXIT_FAILED;
	}
	snprintf(source, sizeof(source), "measured: %s, %u threads", peaks.level, peaks.n_threads);
	peaks_take(options, peaks.flop_per_s, peaks.bytes_per_s, source);
	return elsewhere_print(trace, true);
}

/* Without a word: the GPU where passes ran on one and this build and machine can measure it. */
static int measure(const struct mt_trace *trace, struct options *options)
{
	if (options->measures == MEASURE_CUDA)
		return cuda_measure(trace, options);
#ifdef MT_HAS_CUDA_ENGINE
	if (options->measures == MEASURE_AUTO) {
		struct mtk_cuda_device device;
		int64_t is_gpu;
		int status = mt_trace_int(
			trace, "SELECT EXISTS (SELECT 1 FROM device WHERE kind = 'cuda')", &is_gpu);

		if (status != MT_EXIT_OK)
			return status;
		if (is_gpu && mtk_cuda_open(0, NULL, &device) == MOETRACE_OK)
			return cuda_measure(trace, options);
	}
#endif
	return cpu_measure(trace, options);
}

static int sections_print(struct mt_trace *trace, const struct options *options)
{
	struct mt_explain explain = {.is_on = options->args.explains};
	struct mt_output output;
	int status = MT_EXIT_OK;

	mt_output_begin(&output, stdout, options->args.format);
	output.is_scaled = true;
	mt_output_sections(&output);
	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]) && status == MT_EXIT_OK;
	     i++)
		status = mt_explain_print(&explain, trace, &output, sections[i].name,
					  sections[i].title,
					  prepare(trace, options, sections[i].sql));
	status = mt_explain_end(&explain, &output, status);
	if (status == MT_EXIT_OK)
		mt_output_end(&output);
	if (status == MT_EXIT_OK)
		status = mt_trace_print_notes(trace, prepare(trace, options, MT_SQL_MISSING));
	if (status == MT_EXIT_OK)
		status = mt_trace_print_notes(trace, prepare(trace, options, MT_SQL_UNTOLD));
	if (status == MT_EXIT_OK)
		status = mt_notes_print(trace, options->args.recording_id, MT_NOTES_LOAD);
	return status;
}

static int print(struct mt_trace *trace, void *input)
{
	struct options *options = input;
	int status = MT_EXIT_OK;

	snprintf(options->tflops_source, sizeof(options->tflops_source), "given");
	snprintf(options->gbps_source, sizeof(options->gbps_source), "given");
	if (options->measures != MEASURE_NOTHING)
		status = measure(trace, options);
	return status == MT_EXIT_OK ? sections_print(trace, options) : status;
}

int mt_cmd_efficiency(int argc, char **argv)
{
	static const struct mt_trace_verb verb = {
		.argp = &argp,
		.modes = "per_token,per_pass",
		.needs = "efficiency",
		.print = print,
	};
	struct options options = {.args = {.no_csv = true, .markdown = true}, .n_top = 12};

	return mt_trace_verb_run(&verb, argc, argv, &options.args, &options);
}
