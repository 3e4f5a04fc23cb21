/* SPDX-License-Identifier: MIT */
/*
 * list, status, start, stop, rotate: live sessions, asked through their control sockets. Each prints
 * one row a session; a session that refuses is an error line, and the others are still asked.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <moetrace/status.h>

#include "cli/live.h"

enum { OPT_ALL = MT_OPT_OWN, OPT_SOCKET_DIR, OPT_MODE, OPT_SOURCE, OPT_REASON, OPT_PATH };

/* The rows of a list. */
static const char *const list_columns[] = {"name",  "pid",	    "rank", "host",
					   "state", "recording_id", "file"};

struct control_args {
	struct mt_args common;
	const char *dir;
	const char *names[64];
	size_t n_names;
	bool all;
	const char *arguments[4][2]; /* of the line, by option; NULL: not given */
};

static error_t name_take(struct control_args *args, char *name)
{
	if (args->n_names == sizeof(args->names) / sizeof(args->names[0]))
		return mt_args_error(&args->common, "too many sessions; give --all");
	args->names[args->n_names++] = name;
	return 0;
}

/* The session may have another current folder. */
static error_t output_take(struct control_args *args, const char *path)
{
	static char absolute[8192];
	char folder[4096];

	if (path[0] == '/')
		snprintf(absolute, sizeof(absolute), "%s", path);
	else if (getcwd(folder, sizeof(folder)))
		snprintf(absolute, sizeof(absolute), "%s/%s", folder, path);
	else
		return mt_args_error(&args->common, "-o '%s': give a path that begins with /", path);
	args->arguments[OPT_PATH - OPT_MODE][1] = absolute;
	return 0;
}

static error_t targets_check(struct control_args *args)
{
	if (args->all && args->n_names > 0)
		return mt_args_error(&args->common, "--all and the session %s exclude each other",
				     args->names[0]);
	if (args->arguments[OPT_PATH - OPT_MODE][1] && (args->all || args->n_names > 1))
		return mt_args_error(&args->common, "-o names one file: give one SESSION");
	if (!args->all && args->n_names == 0)
		return mt_args_error(&args->common, "which SESSION? Give a name, a process id or "
						    "a socket, or --all");
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct control_args *args = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &args->common;
		return 0;
	case OPT_ALL:
		args->all = true;
		return 0;
	case OPT_SOCKET_DIR:
		args->dir = arg;
		return 0;
	case OPT_MODE:
	case OPT_SOURCE:
	case OPT_REASON:
	case OPT_PATH:
		args->arguments[key - OPT_MODE][1] = arg;
		return 0;
	case 'o':
		return output_take(args, arg);
	case ARGP_KEY_ARG:
		return name_take(args, arg);
	case ARGP_KEY_END:
		return targets_check(args);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t list_parse(int key, char *arg, struct argp_state *state)
{
	if (key == ARGP_KEY_ARG || key == ARGP_KEY_END)
		return ARGP_ERR_UNKNOWN;
	return parse(key, arg, state);
}

#define OPTION_SOCKET_DIR                                                          \
	{                                                                          \
		"socket-dir", OPT_SOCKET_DIR, "FOLDER", 0,                         \
			"Where the sockets are [MOETRACE_SOCKET_DIR, else "        \
			"$XDG_RUNTIME_DIR/moetrace or /tmp/moetrace-UID]",         \
			0                                                          \
	}
#define OPTION_ALL                                                   \
	{                                                            \
		"all", OPT_ALL, NULL, 0, "Every live session", 0     \
	}

static const struct argp_option list_options[] = {OPTION_SOCKET_DIR, {0}};
static const struct argp_option status_options[] = {OPTION_ALL, OPTION_SOCKET_DIR, {0}};
static const struct argp_option start_options[] = {
	OPTION_ALL,
	OPTION_SOCKET_DIR,
	{"mode", OPT_MODE, "MODE", 0, "per_token, per_pass or stat [as the program started last]",
	 0},
	{"source", OPT_SOURCE, "NAME", 0,
	 "Where the choices come from [as the program started last]", 0},
	{0},
};
static const struct argp_option stop_options[] = {
	OPTION_ALL,
	OPTION_SOCKET_DIR,
	{"reason", OPT_REASON, "WORD", 0, "Stored as the recording's end_reason [stopped]", 0},
	{0},
};

static const struct argp_option rotate_options[] = {
	OPTION_ALL,
	OPTION_SOCKET_DIR,
	{"output", 'o', "FILE", 0,
	 "The new file [the first one's with the next free number before its suffix]", 0},
	{0},
};

static const struct argp_child children[] = {{&mt_args_argp, 0, NULL, 0}, {0}};

#define DOC_SESSION                                                                            \
	"SESSION is a name, a process id or the path of a socket, as 'moetrace list' shows "   \
	"them. Only sessions of the same user can be reached."

static const struct argp list_argp = {
	.options = list_options,
	.parser = list_parse,
	.args_doc = "",
	.doc = "List the live sessions: programs that record, or could, on this machine.",
	.children = children,
};
static const struct argp status_argp = {
	.options = status_options,
	.parser = parse,
	.args_doc = "SESSION...",
	.doc = "Print what live sessions are doing: rates, losses, size, rings, the recorder's own "
	       "cost.\v" DOC_SESSION
	       " Counters are those of the current recording, or of the last one; rates are over "
	       "the last second or two, and limit_in_s is the time until the file limit at that "
	       "rate (negative: unknown).",
	.children = children,
};
static const struct argp start_argp = {
	.options = start_options,
	.parser = parse,
	.args_doc = "SESSION...",
	.doc = "Start a recording in live sessions.\v" DOC_SESSION
	       " A session that is recording already is left alone, and that is an error.",
	.children = children,
};
static const struct argp stop_argp = {
	.options = stop_options,
	.parser = parse,
	.args_doc = "SESSION...",
	.doc = "Stop the recording of live sessions.\v" DOC_SESSION
	       " Everything recorded stays in the file; start begins another recording there.",
	.children = children,
};

static const struct argp rotate_argp = {
	.options = rotate_options,
	.parser = parse,
	.args_doc = "SESSION...",
	.doc = "Let live sessions go on in another file, and print it.\v" DOC_SESSION
	       " The boundary lies between two passes, and no pass is lost at it. The new file has "
	       "all definitions, and the requests that are open. The old one is closed and whole. A "
	       "session whose recording ended by itself at its file limit can record again in the "
	       "new file.",
	.children = children,
};

static void number_or_text(struct mt_table *table, const char *text)
{
	char *end;
	double value = strtod(text, &end);

	if (*text == '\0')
		mt_table_null(table);
	else if (*end != '\0' || (text[0] != '-' && (text[0] < '0' || text[0] > '9')))
		mt_table_text(table, text);
	else if (strchr(text, '.'))
		mt_table_double(table, value);
	else
		mt_table_int64(table, strtoll(text, NULL, 10));
}

/* The columns of a status are the fields of its answer; the first session's, for all. */
static int columns_of(const struct mt_live_answer *answer, const char ***ret_columns)
{
	const char **columns = calloc(answer->n_fields + 1, sizeof(*columns));
	size_t i;

	for (i = 0; columns && i < answer->n_fields; i++)
		columns[i] = answer->fields[i].key;
	*ret_columns = columns;
	return columns ? 0 : -1;
}

static int answers_print(const struct mt_live_answer *answers, const struct mt_live_set *set,
			 const char *const *columns, size_t n_columns, enum mt_format format,
			 bool is_vertical)
{
	struct mt_output output;
	struct mt_table table;
	size_t n_ok = 0, i, j;
	int status;

	for (i = 0; i < set->n_sessions; i++)
		n_ok += answers[i].is_ok;
	if (n_ok == 0 && !mt_format_is_data(format))
		return MT_EXIT_OK;
	mt_output_begin(&output, stdout, format);
	output.is_vertical = is_vertical;
	if (mt_table_begin(&table, &output, columns, n_columns) != MOETRACE_OK)
		return mt_error_memory();
	for (i = 0; i < set->n_sessions; i++) {
		for (j = 0; j < n_columns && answers[i].is_ok; j++) {
			if (strcmp(columns[j], "socket") == 0)
				mt_table_text(&table, set->sessions[i].socket);
			else
				number_or_text(&table, mt_live_value(&answers[i], columns[j]));
		}
	}
	status = mt_table_end(&table) == MOETRACE_OK ? MT_EXIT_OK : mt_error_memory();
	mt_output_end(&output);
	return status;
}

static int status_print(const struct mt_live_answer *answers, const struct mt_live_set *set,
			enum mt_format format)
{
	const char **columns;
	int status;
	size_t n;

	if (columns_of(&answers[0], &columns) < 0)
		return mt_error_memory();
	n = answers[0].n_fields;
	columns[n++] = "socket";
	status = answers_print(answers, set, columns, n, format, true);
	free(columns);
	return status;
}

/* The line to say: the verb and its arguments; to be freed. */
static char *line_make(const char *verb, const struct control_args *args)
{
	char *line = NULL;
	size_t n_bytes, i;
	FILE *out = open_memstream(&line, &n_bytes);

	if (!out)
		return NULL;
	fputs(verb, out);
	for (i = 0; i < sizeof(args->arguments) / sizeof(args->arguments[0]); i++) {
		char *argument = args->arguments[i][1] ? mt_live_argument(args->arguments[i][0],
									  args->arguments[i][1])
						       : NULL;

		if (argument)
			fprintf(out, " %s", argument);
		free(argument);
	}
	if (fclose(out) == 0)
		return line;
	free(line);
	return NULL;
}

/* Say the line to every session; those that answer ok come out in @answers. */
static int say_to_all(const struct mt_live_set *set, const char *line,
		      struct mt_live_answer *answers)
{
	int status = MT_EXIT_OK;
	char label[300];
	size_t i;

	for (i = 0; i < set->n_sessions; i++) {
		if (mt_live_call(&set->sessions[i], line, &answers[i]) < 0) {
			status = MT_EXIT_FAILED;
		} else if (!answers[i].is_ok) {
			mt_error("%s: %s", mt_live_label(&set->sessions[i], label, sizeof(label)),
				 answers[i].error);
			status = MT_EXIT_FAILED;
		}
	}
	return status;
}

static int verb_run(const char *verb, const struct control_args *args)
{
	const struct mt_live_choice choice = {args->dir, args->names, args->n_names, args->all};
	struct mt_live_answer *answers;
	struct mt_live_set set;
	char *line;
	int status = mt_live_find(&choice, &set);
	int print_status = MT_EXIT_OK;
	size_t i;

	if (status != MT_EXIT_OK)
		return status;
	line = line_make(verb, args);
	answers = calloc(set.n_sessions + 1, sizeof(*answers));
	if (line && answers) {
		status = say_to_all(&set, line, answers);
		if (strcmp(verb, "status") == 0)
			print_status = status_print(answers, &set, args->common.format);
		else
			print_status = answers_print(answers, &set, list_columns,
						     sizeof(list_columns) / sizeof(list_columns[0]),
						     args->common.format, false);
	} else {
		status = mt_error_memory();
	}
	for (i = 0; answers && i < set.n_sessions; i++)
		mt_live_answer_free(&answers[i]);
	free(answers);
	free(line);
	mt_live_close(&set);
	return status != MT_EXIT_OK ? status : print_status;
}

static int control(const char *verb, const struct argp *argp, int argc, char **argv)
{
	struct control_args args = {.common.no_file = true,
				    .arguments = {{"mode"}, {"source"}, {"reason"}, {"path"}}};
	int status = mt_args_parse(argp, argc, argv, &args.common, &args);

	return status == MT_EXIT_OK ? verb_run(verb, &args) : status;
}

int mt_cmd_status(int argc, char **argv)
{
	return control("status", &status_argp, argc, argv);
}

int mt_cmd_start(int argc, char **argv)
{
	return control("start", &start_argp, argc, argv);
}

int mt_cmd_stop(int argc, char **argv)
{
	return control("stop", &stop_argp, argc, argv);
}

int mt_cmd_rotate(int argc, char **argv)
{
	return control("rotate", &rotate_argp, argc, argv);
}

int mt_cmd_list(int argc, char **argv)
{
	static const char *const columns[] = {"name",	      "pid",  "rank",  "host", "state",
					      "recording_id", "file", "socket"};
	struct control_args args = {.common.no_file = true};
	struct mt_live_answer *answers;
	struct mt_live_set set;
	int status = mt_args_parse(&list_argp, argc, argv, &args.common, &args);
	size_t i;

	if (status == MT_EXIT_OK)
		status = mt_live_list(args.dir, &set);
	if (status != MT_EXIT_OK)
		return status;
	answers = calloc(set.n_sessions + 1, sizeof(*answers));
	if (!answers)
		status = mt_error_memory();
	for (i = 0; answers && i < set.n_sessions; i++)
		answers[i] = set.sessions[i].status;
	if (answers)
		status = answers_print(answers, &set, columns,
				       sizeof(columns) / sizeof(columns[0]), args.common.format,
				       false);
	if (answers && set.silent[0])
		mt_warn("%s does not answer; is its process stopped?", set.silent);
	else if (answers && set.n_sessions == 0)
		fputs("no live session\n", stderr);
	free(answers);
	mt_live_close(&set);
	return status;
}
