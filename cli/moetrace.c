/* SPDX-License-Identifier: MIT */
/*
 * The command: finds the verb and runs it. Every verb is one line of the table below and one file
 * cmd_NAME.c. What holds for all of them is here: how a closed pipe ends a program that only
 * prints, and that output which could not be written is a failure.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/moetrace.h>

#include "cli/cli.h"

struct verb {
	const char *name;
	mt_verb_fn *run;
	const char *summary;
	bool is_writer; /* must not die of a closed pipe: it has a file to finish */
};

static const struct verb verbs[] = {
	{"run", mt_cmd_run, "serve a workload on the built-in engine and record it", true},
	{"report", mt_cmd_report, "one screen: what was recorded, losses, load, balance, time",
	 false},
	{"requests", mt_cmd_requests, "the requests, or the experts of one of them", false},
	{"experts", mt_cmd_experts, "how many tokens each expert received", false},
	{"balance", mt_cmd_balance, "how even the load of each layer is", false},
	{"efficiency", mt_cmd_efficiency, "work, speed and power of the layers, and slow passes", false},
	{"eplb", mt_cmd_eplb, "where to put experts so that ranks are evenly loaded", false},
	{"oea", mt_cmd_oea, "what opportunistic expert activation would save, or did", false},
	{"kernels", mt_cmd_kernels, "what operations and layers took", false},
	{"power", mt_cmd_power, "what a recording drew, and energy a token", false},
	{"diff", mt_cmd_diff, "what two recordings chose differently, and where", false},
	{"info", mt_cmd_info, "what a trace holds, and what recorded it", false},
	{"dump", mt_cmd_dump, "the tables, or the rows of one of them; a snapshot of a live session", false},
	{"query", mt_cmd_query, "run one SQL statement on a trace", false},
	{"plot", mt_cmd_plot, "draw a picture of a trace, as SVG", true},
	{"view", mt_cmd_view, "serve a page that shows traces", true},
	{"top", mt_cmd_top, "show a recording in a terminal while it is made", false},
	{"route", mt_cmd_route, "route a file of router logits by a model's rule", false},
	{"eval", mt_cmd_eval, "cross-entropy and active experts of a model on texts, under a rule",
	 false},
	{"models", mt_cmd_models, "the known models, their routing and dimensions", false},
	{"list", mt_cmd_list, "the live sessions on this machine", false},
	{"status", mt_cmd_status, "what live sessions are doing, and what it costs", false},
	{"start", mt_cmd_start, "start a recording in live sessions", false},
	{"stop", mt_cmd_stop, "stop the recording of live sessions", false},
	{"rotate", mt_cmd_rotate, "let live sessions go on in another file", false},
	{"overhead", mt_cmd_overhead, "what recording costs a live session, measured", false},
	{"recover", mt_cmd_recover, "make a clean trace of what a killed process left", true},
	{"doctor", mt_cmd_doctor, "which sources of times and power are there, and what to do", false},
	{"check", mt_cmd_check, "prove that a trace is sound", false},
};

#define N_VERBS (sizeof(verbs) / sizeof(verbs[0]))

struct command {
	struct mt_args args;
	int verb; /* index in argv; 0: none */
};

static const struct verb *verb_find(const char *name)
{
	size_t i;

	for (i = 0; i < N_VERBS; i++)
		if (strcmp(name, verbs[i].name) == 0)
			return &verbs[i];
	return NULL;
}

static int verb_unknown(const char *name)
{
	const char *names[N_VERBS + 1] = {NULL};
	const char *close;
	size_t i;

	for (i = 0; i < N_VERBS; i++)
		names[i] = verbs[i].name;
	close = mt_closest(name, names);
	if (close)
		mt_error("unknown verb '%s'; did you mean '%s'?", name, close);
	else
		mt_error("unknown verb '%s'; 'moetrace --help' lists them", name);
	return MT_EXIT_USAGE;
}

/* The list of verbs, as the text that follows the options. */
static char *help_filter(int key, const char *text, void *input)
{
	char *list = NULL;
	size_t n_bytes;
	FILE *out;
	size_t i;

	(void)input;
	if (key != ARGP_KEY_HELP_POST_DOC)
		return (char *)text;
	out = open_memstream(&list, &n_bytes);
	if (!out)
		return NULL;
	fputs("Verbs:\n", out);
	for (i = 0; i < N_VERBS; i++)
		fprintf(out, "  %-10s  %s\n", verbs[i].name, verbs[i].summary);
	fputs("  help        the same as --help; 'help VERB' is 'VERB --help'\n\n", out);
	fputs(text, out);
	if (fclose(out) != 0) {
		free(list);
		return NULL;
	}
	return list;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct command *command = state->input;

	(void)arg;
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &command->args;
		return 0;
	case ARGP_KEY_ARG:
		command->verb = state->next - 1;
		state->next = state->argc;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_child children[] = {{&mt_args_plain_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.parser = parse,
	.args_doc = "VERB [ARGUMENT...]",
	.doc = "Record which experts a mixture-of-experts model routes its tokens to, and read "
	       "such "
	       "traces."
	       "\v"
	       "Exit status:\n"
	       "  0  success\n"
	       "  1  the verb failed, or the trace is not sound\n"
	       "  2  the command line is wrong, or a MOETRACE_ variable of the environment\n"
	       "  3  what was named does not exist, be it a file, a session, a table or a part of a\n"
	       "     trace, or there is nothing in it to draw\n"
	       "  4  --strict was given, and the trace has losses or an unfinished end\n"
	       "  5  the file has a newer schema than this program\n",
	.children = children,
	.help_filter = help_filter,
};

/* Output that was lost is a failure, except into a pipe that its reader closed. */
static int output_finish(int status)
{
	bool has_failed = ferror(stdout) != 0;
	int error = EIO;

	/* What errno was when an earlier write failed is gone; another one tells it again. */
	if (has_failed) {
		clearerr(stdout);
		if (putchar('\n') == EOF || fflush(stdout) != 0)
			error = errno;
	}
	if (fclose(stdout) != 0 && !has_failed) {
		has_failed = true;
		error = errno;
	}
	if (!has_failed || error == EPIPE)
		return status;
	mt_error("standard output: %s; the output is not complete", strerror(error));
	return status == MT_EXIT_OK ? MT_EXIT_FAILED : status;
}

static int verb_run(const struct verb *verb, int argc, char **argv)
{
	char name[64];

	snprintf(name, sizeof(name), "moetrace %s", verb->name);
	mt_error_set_name(name);
	argv[0] = name;
	if (!verb->is_writer)
		signal(SIGPIPE, SIG_DFL);
	return output_finish(verb->run(argc, argv));
}

/* `help`, `help VERB`: what --help prints. */
static int help_run(int argc, char **argv)
{
	static char option[] = "--help";
	char *command_argv[] = {argv[0], option, NULL};
	struct command command = {.args = {.no_file = true}};
	const struct verb *verb;

	if (argc > 1) {
		verb = verb_find(argv[1]);
		return verb ? verb_run(verb, 2, command_argv) : verb_unknown(argv[1]);
	}
	command_argv[0] = argv[-1];
	return mt_args_parse(&argp, 2, command_argv, &command.args, &command);
}

int main(int argc, char **argv)
{
	struct command command = {.args = {.no_file = true}};
	const struct verb *verb;
	int status;

	argp_err_exit_status = MT_EXIT_USAGE;
	if (argc < 1)
		return MT_EXIT_USAGE;
	status = mt_args_parse(&argp, argc, argv, &command.args, &command);
	if (status != MT_EXIT_OK)
		return status;
	if (command.verb == 0) {
		mt_error("which VERB? 'moetrace --help' lists them");
		return MT_EXIT_USAGE;
	}
	argc -= command.verb;
	argv += command.verb;
	if (strcmp(argv[0], "help") == 0)
		return help_run(argc, argv);
	verb = verb_find(argv[0]);
	return verb ? verb_run(verb, argc, argv) : verb_unknown(argv[0]);
}
