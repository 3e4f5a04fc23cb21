/* SPDX-License-Identifier: MIT */
/*
 * The command line of `moetrace run` as a whole: what is required, what excludes what, and what the
 * environment adds. Invariant: the command line wins, so what it decides is taken out of the
 * environment before the library reads that.
 */
#include "cli/cmd_run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/pattern.h"

#define DEFAULT_PAIRS 8
#define DEFAULT_CHUNK 128

/* A shape or a file, and what belongs to a shape only with one. */
static error_t model_complete(struct mt_run_options *options)
{
	const char *stray = options->n_layers > 0	     ? "--layers"
			    : options->expert_pool_bytes > 0 ? "--expert-pool"
			    : options->has_shared_slots	     ? "--shared-slots"
							     : NULL;

	if (options->model && options->shape)
		return mt_args_error(&options->args, "--model and --shape exclude each other");
	if (!options->model && !options->shape)
		return mt_args_error(&options->args,
				     "--model FILE.safetensors is missing (or --shape NAME)");
	if (stray && !options->shape)
		return mt_args_error(&options->args, "%s is for a --shape NAME", stray);
	return 0;
}

/* A variable of the environment that is set and not empty; NULL otherwise. */
static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* MOETRACE_OUTPUT takes the place of -o. */
static error_t output_from_environment(struct mt_run_options *options)
{
	static char path[4096];
	const char *pattern = variable("MOETRACE_OUTPUT");

	if (options->output || options->no_record || !pattern)
		return 0;
	if (mt_pattern_expand(pattern, 0, path, sizeof(path)) < 0)
		return mt_args_error(&options->args,
				     "MOETRACE_OUTPUT '%.200s' is too long, or has a letter after "
				     "%% that is not h, p, r or t",
				     pattern);
	options->output = path;
	return 0;
}

/*
 * The environment completes the command line. What is decided here is taken out of it, since in
 * the library it would win over what the command line says.
 */
static error_t environment_take(struct mt_run_options *options)
{
	const char *disable = variable("MOETRACE_DISABLE");
	const char *start = variable("MOETRACE_START");
	error_t error = output_from_environment(options);

	if (error)
		return error;
	if (disable && strcmp(disable, "0") != 0 && !options->no_record) {
		mt_warn("nothing is recorded: MOETRACE_DISABLE is set");
		options->no_record = true;
		options->output = NULL;
	}
	if (start && strcmp(start, "0") != 0 && strcmp(start, "1") != 0)
		return mt_args_error(&options->args, "MOETRACE_START is '%.40s': set it to 0 or 1",
				     start);
	options->is_idle |= start && start[0] == '0';
	unsetenv("MOETRACE_OUTPUT");
	unsetenv("MOETRACE_START");
	/* The recording that the run starts then is none, but a later one knows what it is of. */
	if (options->is_idle && setenv("MOETRACE_START", "0", 1) < 0)
		return ENOMEM;
	if (options->socket_dir)
		unsetenv("MOETRACE_SOCKET_DIR");
	if (options->collectors)
		unsetenv("MOETRACE_COLLECTORS");
	if (options->has_mode)
		unsetenv("MOETRACE_MODE");
	return 0;
}

/* What would go without a word where nothing is recorded; NULL: nothing. */
static const char *option_of_recording(const struct mt_run_options *options)
{
	return options->records_tokens		  ? "--record-tokens"
	       : options->records_kernels	  ? "--kernels"
	       : options->records_margins	  ? "--margins"
	       : options->collectors		  ? "--collect"
	       : options->is_idle		  ? "--idle"
	       : options->flight_seconds	  ? "--flight-seconds"
	       : options->flight_bytes		  ? "--flight-bytes"
	       : options->has_mode		  ? "--mode"
	       : options->sample_every_n_passes	  ? "--sample-passes"
	       : options->sample_every_n_requests ? "--sample-requests"
	       : options->socket_dir		  ? "--socket-dir"
						  : NULL;
}

static error_t recording_complete(struct mt_run_options *options)
{
	const char *stray = option_of_recording(options);
	const char *dir = options->socket_dir ? options->socket_dir : variable("MOETRACE_SOCKET_DIR");

	if (options->no_record && stray && options->n_compare == 0)
		mt_warn("%s has no effect: --no-record was given", stray);
	if (options->no_record || !dir || strcmp(dir, "none") != 0)
		return 0;
	if (options->is_idle)
		return mt_args_error(&options->args,
				     "--idle waits for 'moetrace start', which takes a control socket: "
				     "leave --socket-dir none (or MOETRACE_SOCKET_DIR)");
	if (options->flight_seconds || options->flight_bytes)
		return mt_args_error(&options->args,
				     "a flight recording is written by 'moetrace dump', which takes a "
				     "control socket: leave --socket-dir none (or MOETRACE_SOCKET_DIR)");
	return 0;
}

/* The mode in force, be it the operator's, and what it does not keep. */
static error_t mode_complete(struct mt_run_options *options)
{
	struct mt_args *args = &options->args;

	if (!options->has_mode && variable("MOETRACE_MODE"))
		(void)mt_run_mode_find(variable("MOETRACE_MODE"), &options->mode);
	if (options->mode != MOETRACE_MODE_PER_TOKEN && options->sample_every_n_requests > 1)
		return mt_args_error(args,
				     "--sample-requests is of mode per_token: other modes keep no "
				     "rows");
	if (options->mode != MOETRACE_MODE_STAT)
		return 0;
	if (options->records_tokens)
		return mt_args_error(args, "--record-tokens is of other modes: stat keeps no requests");
	if (options->records_kernels)
		return mt_args_error(args, "--kernels is of other modes: stat keeps no passes");
	return 0;
}

/* How the engine serves. */
static error_t serving_complete(struct mt_run_options *options)
{
	if (options->n_chunk > 0 && options->is_lockstep)
		return mt_args_error(&options->args,
				     "--chunk and --lockstep exclude each other: in lockstep prompts "
				     "advance by one row a pass");
	if (options->n_chunk == 0)
		options->n_chunk = DEFAULT_CHUNK;
	if (options->has_seed && !options->shape && options->temperature <= 0.0 &&
	    options->routing != MTK_CHOICE_UNIFORM && options->routing != MTK_CHOICE_ZIPF)
		mt_note("--seed has no effect: it is of --temperature, of a --shape, and of --routing "
			"uniform or zipf");
	return mt_device_complete(&options->args, &options->device);
}

/* A comparison is made of whole runs, whose recordings it reads. */
static error_t compare_complete(struct mt_run_options *options)
{
	struct mt_args *args = &options->args;

	if (options->n_compare == 0) {
		if (options->n_pairs > 0)
			return mt_args_error(args, "--pairs is for --compare RULE");
		return 0;
	}
	if (options->n_pairs == 0)
		options->n_pairs = DEFAULT_PAIRS;
	if (options->no_record)
		return mt_args_error(args, "--compare reads what was recorded: leave --no-record");
	if (mt_rule_oea(&options->rule) || options->text_output || options->is_idle ||
	    options->flight_bytes > 0 || options->flight_seconds > 0 ||
	    options->mode == MOETRACE_MODE_STAT)
		return mt_args_error(args, "--compare goes with neither --rule, --text-output, "
					   "--idle, a flight recording nor --mode stat");
	if (options->routing != MTK_CHOICE_MODEL)
		return mt_args_error(args, "a rule changes the router's choice: leave --routing "
					   "model");
	return 0;
}

/* Margins are of the router's own choice, by row. */
static error_t margins_complete(struct mt_run_options *options)
{
	struct mt_args *args = &options->args;

	if (!options->records_margins)
		return 0;
	if (options->mode != MOETRACE_MODE_PER_TOKEN)
		return mt_args_error(args,
				     "--margins is of mode per_token: other modes keep no rows");
	if (mt_rule_oea(&options->rule) || options->n_compare > 0 ||
	    options->routing != MTK_CHOICE_MODEL)
		return mt_args_error(args, "--margins is of the router's own choice: leave --rule, "
					   "--oea, --compare and --routing");
	return 0;
}

/* What is required or excluded depends on all options together. */
error_t mt_run_options_complete(struct mt_run_options *options)
{
	struct mt_args *args = &options->args;
	error_t error = model_complete(options);

	if (error)
		return error;
	if (mt_rule_oea(&options->rule) && options->routing != MTK_CHOICE_MODEL)
		return mt_args_error(args,
				     "a rule changes the router's choice: leave --routing model");
	if (options->reuses_prefixes && options->is_lockstep)
		return mt_args_error(
			args, "--prefix-reuse and --lockstep exclude each other: in lockstep "
			      "requests begin together, at their first position");
	if (options->reuses_prefixes && options->routing != MTK_CHOICE_MODEL)
		return mt_args_error(args,
				     "--prefix-reuse is of --routing model: other choices differ "
				     "between requests of the same text");
	if (options->records_kernels && options->device.kind != MT_DEVICE_CPU)
		return mt_args_error(args,
				     "--kernels times the operations of --device cpu alone");
	if (mode_complete(options) || margins_complete(options) || serving_complete(options))
		return EINVAL;
	if (!options->workload)
		return mt_args_error(args, "--workload FILE.jsonl is missing");
	if (recording_complete(options))
		return EINVAL;
	if (environment_take(options))
		return EINVAL;
	if (compare_complete(options))
		return EINVAL;
	if (!options->output && !options->no_record)
		return mt_args_error(args, "-o FILE.db is missing (or give --no-record)");
	if (options->no_record && options->output) {
		mt_warn("%s is not written: --no-record was given", options->output);
		options->output = NULL;
	}
	return 0;
}
