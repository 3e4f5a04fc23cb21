/* SPDX-License-Identifier: MIT */
/*
 * Command lines by argp. argp would print two lines for a mistake and end the process; here it is
 * kept from printing (ARGP_NO_ERRS) and the option at fault is found again in argv, so that every
 * mistake is one line that says what to do.
 */
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/moetrace.h>

#define HELP_FLAGS (ARGP_HELP_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC)

error_t mt_args_pass_on(int key, char *arg, struct argp_state *state)
{
	(void)arg;
	if (key != ARGP_KEY_INIT)
		return ARGP_ERR_UNKNOWN;
	state->child_inputs[0] = state->input;
	return 0;
}

error_t mt_args_error(struct mt_args *args, const char *format, ...)
{
	char text[512];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	mt_error("%s; --help lists the options", text);
	args->is_reported = true;
	return EINVAL;
}

error_t mt_args_uint(struct mt_args *args, const char *name, const char *text, uint64_t min,
		     uint64_t max, uint64_t *ret_value)
{
	if (mt_parse_uint(text, min, max, ret_value))
		return 0;
	return mt_args_error(args, "%s '%s': give a whole number from %" PRIu64 " to %" PRIu64,
			     name, text, min, max);
}

error_t mt_args_path(struct mt_args *args, const char *name, const char *text,
		     const char **ret_path)
{
	if (*text == '\0')
		return mt_args_error(args, "%s is empty: give the path of a file", name);
	*ret_path = text;
	return 0;
}

/* The formats beside table and json that the verb has. */
static const char *formats_more(const struct mt_args *args)
{
	if (args->markdown)
		return ", jsonl or markdown";
	return args->no_csv ? " or jsonl" : ", jsonl or csv";
}

static error_t format_parse(struct mt_args *args, const char *name)
{
	enum mt_format format;

	if (!mt_format_parse(name, &format) || (format == MT_FORMAT_MARKDOWN && !args->markdown))
		return mt_args_error(args, "--format '%s' is not known: give table, json%s", name,
				     formats_more(args));
	if (format == MT_FORMAT_CSV && args->no_csv)
		return mt_args_error(args,
				     "--format csv holds one table, this verb prints several: "
				     "give table, json%s",
				     formats_more(args));
	args->format = format;
	return 0;
}

static int stdout_close(void)
{
	if (fflush(stdout) == 0)
		return MT_EXIT_OK;
	mt_error("standard output: %s; the output is not complete", strerror(errno));
	return MT_EXIT_FAILED;
}

static void help_print(const struct argp_state *state)
{
	argp_help(state->root_argp, stdout, HELP_FLAGS, state->name);
	exit(stdout_close());
}

static void version_print(void)
{
	printf("moetrace %s\n", moetrace_version());
	exit(stdout_close());
}

/* The entry of @argp or its children called @name (@length characters), or with @key. */
static const struct argp_option *option_find(const struct argp *argp, const char *name,
					     size_t length, int key)
{
	const struct argp_option *option = argp->options;
	const struct argp_child *child;

	for (; option && (option->name || option->key || option->doc); option++) {
		if (name && option->name && strlen(option->name) == length &&
		    strncmp(option->name, name, length) == 0)
			return option;
		if (!name && option->key == key)
			return option;
	}
	for (child = argp->children; child && child->argp; child++) {
		option = option_find(child->argp, name, length, key);
		if (option)
			return option;
	}
	return NULL;
}

static void long_option_report(struct mt_args *args, const struct argp *root, const char *text)
{
	size_t length = strcspn(text, "=");
	const struct argp_option *option = option_find(root, text + 2, length - 2, 0);

	if (!option)
		mt_args_error(args, "unknown or ambiguous option '%.*s'", (int)length, text);
	else if (option->arg)
		mt_args_error(args, "option '%s' needs a value (%s)", text, option->arg);
	else
		mt_args_error(args, "option '%.*s' takes no value", (int)length, text);
}

/* getopt failed: argv[next - 1] or, within a group of letters, argv[next] is what it failed at. */
static void option_report(struct mt_args *args, const struct argp_state *state)
{
	const char *text = state->argv[state->next - 1];
	const char *letter;

	if (strncmp(text, "--", 2) == 0 && text[2] != '\0') {
		long_option_report(args, state->root_argp, text);
		return;
	}
	if (text[0] != '-' && state->next < state->argc)
		text = state->argv[state->next];
	for (letter = text + 1; *letter; letter++) {
		const struct argp_option *option = option_find(state->root_argp, NULL, 0, *letter);

		if (!option) {
			mt_args_error(args, "unknown option '-%c'", *letter);
			return;
		}
		if (option->arg && letter[1] == '\0') {
			mt_args_error(args, "option '-%c' needs a value (%s)", *letter,
				      option->arg);
			return;
		}
	}
	mt_args_error(args, "option '%s' is not understood", text);
}

static error_t file_take(struct mt_args *args, char *arg)
{
	if (args->no_file || args->file)
		return mt_args_error(args, "unexpected argument '%s'", arg);
	args->file = arg;
	return 0;
}

static error_t common_parse(int key, char *arg, struct argp_state *state)
{
	struct mt_args *args = state->input;

	switch (key) {
	case MT_OPT_HELP:
		help_print(state);
		return 0;
	case MT_OPT_VERSION:
		version_print();
		return 0;
	case MT_OPT_FORMAT:
		return format_parse(args, arg);
	case MT_OPT_EXPLAIN:
		args->explains = true;
		return 0;
	case MT_OPT_RECORDING:
		return mt_args_uint(args, "--recording", arg, 1, INT64_MAX, &args->recording_id);
	case ARGP_KEY_ARG:
		return file_take(args, arg);
	case ARGP_KEY_END:
		if (!args->file && !args->no_file)
			return mt_args_error(args, "which FILE? Name a trace file");
		return 0;
	case ARGP_KEY_ERROR:
		if (!args->is_reported)
			option_report(args, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

#define OPTION_RECORDING                                                                 \
	{                                                                                \
		"recording", MT_OPT_RECORDING, "N", 0, "Only recording N of the file", 0 \
	}
#define OPTION_EXPLAIN                                                                          \
	{                                                                                       \
		"explain", MT_OPT_EXPLAIN, NULL, 0, "Print the query behind each table, too", 0 \
	}
#define OPTION_FORMAT(formats)                                   \
	{                                                        \
		"format", MT_OPT_FORMAT, "FORMAT", 0, formats, 0 \
	}
#define OPTION_HELP                                                          \
	{                                                                    \
		"help", MT_OPT_HELP, NULL, 0, "Print this text and exit", -1 \
	}
#define OPTION_VERSION                                                               \
	{                                                                            \
		"version", MT_OPT_VERSION, NULL, 0, "Print the version and exit", -1 \
	}

static const struct argp_option common_options[] = {
	OPTION_RECORDING,
	OPTION_FORMAT("table (the default), json, jsonl or csv"),
	OPTION_HELP,
	OPTION_VERSION,
	{0},
};

static const struct argp_option picture_options[] = {
	OPTION_RECORDING,
	OPTION_HELP,
	OPTION_VERSION,
	{0},
};

static const struct argp_option explain_options[] = {
	OPTION_RECORDING,
	OPTION_EXPLAIN,
	OPTION_FORMAT("table (the default), json, jsonl or csv"),
	OPTION_HELP,
	OPTION_VERSION,
	{0},
};

static const struct argp_option report_options[] = {
	OPTION_RECORDING,
	OPTION_EXPLAIN,
	OPTION_FORMAT("table (the default), json, jsonl or markdown"),
	OPTION_HELP,
	OPTION_VERSION,
	{0},
};

static const struct argp_option sections_options[] = {
	OPTION_FORMAT("table (the default), json or jsonl"),
	OPTION_HELP,
	OPTION_VERSION,
	{0},
};

static const struct argp_option follow_options[] = {
	OPTION_RECORDING,
	OPTION_FORMAT("table (the default), json or jsonl"),
	OPTION_HELP,
	OPTION_VERSION,
	{0},
};

const struct argp mt_args_follow_argp = {.options = follow_options, .parser = common_parse};
const struct argp mt_args_recording_argp = {.options = common_options, .parser = common_parse};
const struct argp mt_args_explain_argp = {.options = explain_options, .parser = common_parse};
const struct argp mt_args_argp = {.options = common_options + 1, .parser = common_parse};
const struct argp mt_args_picture_argp = {.options = picture_options, .parser = common_parse};
const struct argp mt_args_plain_argp = {.options = common_options + 2, .parser = common_parse};
const struct argp mt_args_sections_argp = {.options = sections_options, .parser = common_parse};
const struct argp mt_args_report_argp = {.options = report_options, .parser = common_parse};

int mt_args_parse(const struct argp *argp, int argc, char **argv, struct mt_args *args, void *input)
{
	error_t error;

	error = argp_parse(argp, argc, argv,
			   ARGP_NO_ERRS | ARGP_NO_EXIT | ARGP_NO_HELP | ARGP_IN_ORDER, NULL, input);
	if (error == 0)
		return MT_EXIT_OK;
	if (!args->is_reported)
		mt_error("the command line: %s; --help lists the options", strerror(error));
	return MT_EXIT_USAGE;
}
