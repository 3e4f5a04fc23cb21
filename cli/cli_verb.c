/* SPDX-License-Identifier: MIT */
/*
 * What verbs that read one trace have in common: the way from the command line to the closed trace,
 * and the output of those that print one table.
 */
#include "cli/cli.h"

static int recording_print(const struct mt_trace_verb *verb, struct mt_trace *trace,
			   const struct mt_args *args, void *input)
{
	int status = mt_trace_recording_check(trace, args->recording_id);

	if (status == MT_EXIT_OK && verb->modes)
		status = mt_trace_mode_check(trace, args->recording_id, verb->modes, verb->needs);
	if (status != MT_EXIT_OK)
		return status;
	if (!verb->takes_empty && !mt_trace_has_recording(trace) &&
	    !mt_format_is_data(args->format))
		return MT_EXIT_OK;
	return verb->print(trace, input);
}

int mt_trace_verb_run(const struct mt_trace_verb *verb, int argc, char **argv,
		      struct mt_args *args, void *input)
{
	struct mt_trace trace;
	int status = mt_args_parse(verb->argp, argc, argv, args, input);

	if (status == MT_EXIT_OK)
		status = mt_trace_open(args->file, &trace);
	if (status != MT_EXIT_OK)
		return status;
	status = recording_print(verb, &trace, args, input);
	mt_trace_close(&trace);
	return status;
}

int mt_trace_print_only(const struct mt_trace *trace, const struct mt_args *args,
			enum mt_scale scale, sqlite3_stmt *stmt)
{
	struct mt_output output;
	int status;

	if (!stmt)
		return MT_EXIT_FAILED;
	mt_output_begin(&output, stdout, args->format);
	output.is_scaled = scale == MT_SCALE_TIMES;
	status = mt_trace_print(trace, &output, stmt);
	sqlite3_finalize(stmt);
	if (status == MT_EXIT_OK)
		mt_output_end(&output);
	if (status == MT_EXIT_OK && output.n_rows == 0 && args->when_empty)
		mt_note("%s", args->when_empty);
	return status;
}
