/* SPDX-License-Identifier: MIT */
/*
 * overhead: what recording costs a live session. The session leaves out every other block of
 * passes while this command is connected, and says when each pass began; a step lasts from its
 * begin to the next one's. The session records everything again when the connection ends, however
 * it does.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <moetrace/moetrace.h>

#include "cli/live.h"
#include "cli/paired.h"

enum { OPT_SOCKET_DIR = MT_OPT_OWN, OPT_BLOCKS, OPT_BLOCK_MS };

/* Pairs that 95 % need: a batch size that fewer have is not listed. */
#define MIN_PAIRS 6
#define ASK_MS	  100

struct overhead_args {
	struct mt_args common;
	const char *dir;
	const char *name;
	uint64_t n_pairs;
	uint64_t block_ms;
};

struct measured {
	struct mt_blocks blocks;
	struct mt_step *steps;
	size_t n_steps;
	size_t max_steps;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct overhead_args *args = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &args->common;
		return 0;
	case OPT_SOCKET_DIR:
		args->dir = arg;
		return 0;
	case OPT_BLOCKS:
		return mt_args_uint(&args->common, "--blocks", arg, 1, 1000, &args->n_pairs);
	case OPT_BLOCK_MS:
		return mt_args_uint(&args->common, "--block-ms", arg, 20, 60000, &args->block_ms);
	case ARGP_KEY_ARG:
		if (args->name)
			return mt_args_error(&args->common, "one SESSION at a time, not also '%s'",
					     arg);
		args->name = arg;
		return 0;
	case ARGP_KEY_END:
		return args->name ? 0
				  : mt_args_error(&args->common, "which SESSION? Give a name, a "
								 "process id or a socket");
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{"blocks", OPT_BLOCKS, "N", 0, "Pairs of blocks to compare [20]", 0},
	{"block-ms", OPT_BLOCK_MS, "MS", 0, "Length of a block [1000]", 0},
	{"socket-dir", OPT_SOCKET_DIR, "FOLDER", 0,
	 "Where the sockets are [MOETRACE_SOCKET_DIR, else $XDG_RUNTIME_DIR/moetrace or "
	 "/tmp/moetrace-UID]",
	 0},
	{0},
};

static const struct argp_child children[] = {{&mt_args_sections_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "SESSION",
	.doc = "Measure what recording costs a live session: the change of step time by batch size "
	       "and of tokens a second, with 95 % intervals.\v"
	       "SESSION is a name, a process id or the path of a socket, as 'moetrace list' shows "
	       "them; it must be recording. For --blocks times two blocks of --block-ms, passes "
	       "are recorded in one block of each pair and left out in the other, like in a "
	       "disabled region: the requests of that time are partial in the file. A step lasts "
	       "from the begin of a pass to the next one's; those of a block's first quarter do "
	       "not count, since the writer works for the block before. The change is the median "
	       "over pairs. Intervals are those of order statistics, and need six pairs. However "
	       "this command ends, the session then records everything again.",
	.children = children,
};

/* Say a line; an error of the session's is an error line. */
static int say(const struct mt_live *live, const char *line, struct mt_live_answer *ret_answer)
{
	char label[300];

	if (mt_live_call(live, line, ret_answer) < 0)
		return MT_EXIT_FAILED;
	if (ret_answer->is_ok)
		return MT_EXIT_OK;
	mt_error("%s: %s", mt_live_label(live, label, sizeof(label)), ret_answer->error);
	mt_live_answer_free(ret_answer);
	return MT_EXIT_FAILED;
}

static uint64_t number_of(const struct mt_live_answer *answer, const char *key)
{
	return strtoull(mt_live_value(answer, key), NULL, 10);
}

static int step_add(struct measured *measured, const char *text)
{
	struct mt_step step = {0};
	char *end;

	if (measured->n_steps == measured->max_steps) {
		size_t n = measured->max_steps ? measured->max_steps * 2 : 4096;
		struct mt_step *grown = realloc(measured->steps, n * sizeof(*grown));

		if (!grown)
			return mt_error_memory();
		measured->steps = grown;
		measured->max_steps = n;
	}
	step.time_ns = strtoull(text, &end, 10);
	step.model = (uint32_t)strtoul(end, &end, 10);
	step.phase = (uint32_t)strtoul(end, &end, 10);
	step.n_rows = (uint32_t)strtoul(end, &end, 10);
	measured->steps[measured->n_steps++] = step;
	return MT_EXIT_OK;
}

/* Take what an answer has; *ret_is_over: there is no more to come. */
static int samples_take(const struct mt_live *live, const struct mt_live_answer *answer,
			struct measured *measured, bool *ret_is_over)
{
	uint64_t end_ns = measured->blocks.start_ns +
			  2 * (uint64_t)measured->blocks.n_pairs * measured->blocks.block_ns;
	int status = MT_EXIT_OK;
	char label[300];
	size_t i;

	for (i = 0; i < answer->n_fields && status == MT_EXIT_OK; i++)
		if (strcmp(answer->fields[i].key, "sample") == 0)
			status = step_add(measured, answer->fields[i].value);
	if (status != MT_EXIT_OK)
		return status;
	mt_live_label(live, label, sizeof(label));
	if (strcmp(mt_live_value(answer, "state"), "recording") != 0) {
		mt_error("%s: the recording has ended before the measurement; start another one",
			 label);
		return MT_EXIT_FAILED;
	}
	*ret_is_over = number_of(answer, "has_more") == 0 && number_of(answer, "now_ns") > end_ns;
	if (*ret_is_over && number_of(answer, "n_missing") > 0)
		mt_warn("%s: %s passes too many for the session to remember; fewer or shorter "
			"blocks have none left out",
			label, mt_live_value(answer, "n_missing"));
	return MT_EXIT_OK;
}

static int measure(const struct mt_live *live, const struct overhead_args *args,
		   struct measured *measured)
{
	const struct timespec pause = {0, ASK_MS * 1000000L};
	struct mt_live_answer answer;
	bool is_over = false;
	char line[128];
	int status;

	snprintf(line, sizeof(line), "overhead pairs=%llu block_ms=%llu",
		 (unsigned long long)args->n_pairs, (unsigned long long)args->block_ms);
	status = say(live, line, &answer);
	if (status != MT_EXIT_OK)
		return status;
	measured->blocks.start_ns = number_of(&answer, "start_ns");
	measured->blocks.block_ns = args->block_ms * 1000000;
	measured->blocks.n_pairs = (uint32_t)args->n_pairs;
	mt_live_answer_free(&answer);
	while (status == MT_EXIT_OK && !is_over) {
		status = say(live, "samples", &answer);
		if (status != MT_EXIT_OK)
			return status;
		status = samples_take(live, &answer, measured, &is_over);
		if (number_of(&answer, "has_more") == 0 && !is_over)
			nanosleep(&pause, NULL);
		mt_live_answer_free(&answer);
	}
	return status;
}

/* Steps that do not count are left out. */
static void steps_keep_counted(struct measured *measured)
{
	size_t n = 0, i;

	for (i = 0; i < measured->n_steps; i++)
		if (measured->steps[i].is_counted)
			measured->steps[n++] = measured->steps[i];
	measured->n_steps = n;
}

static void change_print(struct mt_table *table, const struct mt_change *change)
{
	mt_table_double(table, change->percent.median);
	if (change->percent.has_bounds) {
		mt_table_double(table, change->percent.low);
		mt_table_double(table, change->percent.high);
	} else {
		mt_table_null(table);
		mt_table_null(table);
	}
}

static const char *phase_name(uint32_t phase)
{
	static const char *const names[] = {
		[MOETRACE_PHASE_PREFILL] = "prefill", [MOETRACE_PHASE_DECODE] = "decode",
		[MOETRACE_PHASE_MIXED] = "mixed",     [MOETRACE_PHASE_VERIFY] = "verify",
		[MOETRACE_PHASE_DRAFT] = "draft",     [MOETRACE_PHASE_IDLE] = "idle",
		[MOETRACE_PHASE_DUMMY] = "dummy",
	};

	return phase < sizeof(names) / sizeof(names[0]) ? names[phase] : NULL;
}

static int steps_print(const struct measured *measured, struct mt_output *output)
{
	static const char *const columns[] = {
		"model_id", "phase",	  "rows",	    "steps",	   "pairs",
		"off_ns",   "on_ns", "change_percent", "low_percent", "high_percent"};
	uint32_t n_pairs = measured->blocks.n_pairs;
	struct mt_table table;
	size_t i, n;

	if (mt_table_begin(&table, output, columns, sizeof(columns) / sizeof(columns[0])))
		return mt_error_memory();
	for (i = 0; i < measured->n_steps; i += n) {
		const struct mt_step *step = &measured->steps[i];
		const char *phase = phase_name(step->phase);
		struct mt_change change;

		n = mt_steps_group_size(measured->steps, measured->n_steps, i);
		if (mt_step_change(step, n, n_pairs, &change) < 0)
			return mt_error_memory();
		if (!phase || !step->n_rows || change.n_pairs == 0 ||
		    change.n_pairs < (n_pairs < MIN_PAIRS ? n_pairs : MIN_PAIRS))
			continue;
		mt_table_int64(&table, step->model);
		mt_table_text(&table, phase);
		mt_table_int64(&table, step->n_rows);
		mt_table_int64(&table, (int64_t)change.n_steps);
		mt_table_int64(&table, (int64_t)change.n_pairs);
		mt_table_int64(&table, (int64_t)change.off);
		mt_table_int64(&table, (int64_t)change.on);
		change_print(&table, &change);
	}
	return mt_table_end(&table) == MOETRACE_OK ? MT_EXIT_OK : mt_error_memory();
}

static int rate_print(const struct mt_change *rate, struct mt_output *output)
{
	static const char *const columns[] = {"steps",		 "pairs",
					      "off_tokens_per_s", "on_tokens_per_s",
					      "change_percent",	 "low_percent",
					      "high_percent"};
	struct mt_table table;

	if (mt_table_begin(&table, output, columns, sizeof(columns) / sizeof(columns[0])))
		return mt_error_memory();
	mt_table_int64(&table, (int64_t)rate->n_steps);
	mt_table_int64(&table, (int64_t)rate->n_pairs);
	mt_table_double(&table, rate->off);
	mt_table_double(&table, rate->on);
	change_print(&table, rate);
	return mt_table_end(&table) == MOETRACE_OK ? MT_EXIT_OK : mt_error_memory();
}

static int print(struct measured *measured, enum mt_format format)
{
	struct mt_output output;
	struct mt_change rate;
	int status;

	mt_steps_prepare(measured->steps, measured->n_steps, &measured->blocks);
	steps_keep_counted(measured);
	if (mt_rate_change(measured->steps, measured->n_steps, measured->blocks.n_pairs, &rate) < 0)
		return mt_error_memory();
	if (rate.n_pairs == 0) {
		mt_error("no pair of blocks has passes in both; is the session busy? Longer blocks "
			 "(--block-ms) hold more passes");
		return MT_EXIT_FAILED;
	}
	mt_steps_group(measured->steps, measured->n_steps);
	mt_output_begin(&output, stdout, format);
	output.is_scaled = true;
	mt_output_sections(&output);
	mt_output_section(&output, "steps", "Step time by batch size");
	status = steps_print(measured, &output);
	if (status == MT_EXIT_OK) {
		mt_output_section(&output, "throughput", "Tokens a second");
		status = rate_print(&rate, &output);
	}
	mt_output_end(&output);
	return status;
}

int mt_cmd_overhead(int argc, char **argv)
{
	struct overhead_args args = {.common.no_file = true, .n_pairs = 20, .block_ms = 1000};
	int status = mt_args_parse(&argp, argc, argv, &args.common, &args);
	struct mt_live_choice choice = {.dir = args.dir, .names = &args.name, .n_names = 1};
	struct measured measured = {0};
	struct mt_live_set set;

	if (status == MT_EXIT_OK)
		status = mt_live_find(&choice, &set);
	if (status != MT_EXIT_OK)
		return status;
	status = measure(&set.sessions[0], &args, &measured);
	/* Before the printing: the session needs not go on for it. */
	mt_live_close(&set);
	if (status == MT_EXIT_OK)
		status = print(&measured, args.common.format);
	free(measured.steps);
	return status;
}
