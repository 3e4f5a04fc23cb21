/* SPDX-License-Identifier: MIT */
/*
 * view: the page for looking at traces, served to this machine alone until the command is
 * interrupted, or written as one file. The address, which holds the only key, is the one line on
 * standard output.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <moetrace/moetrace.h>

#include "cli/cli.h"
#include "cli/live.h"
#include "cli/out_file.h"
#include "viewer/view.h"

extern char **environ;

enum {
	OPT_PORT = MT_OPT_OWN,
	OPT_OPEN,
	OPT_REDACT,
	OPT_TIME_LIMIT,
	OPT_HTML,
	OPT_SOCKET_DIR,
};

struct options {
	struct mt_args args;
	const char *paths[MT_VIEW_MAX_TRACES];
	size_t n_paths;
	uint64_t port, time_limit_s;
	const char *html, *socket_dir;
	bool opens, redacts, overwrites;
};

static error_t file_add(struct options *options, const char *path)
{
	if (options->n_paths == MT_VIEW_MAX_TRACES)
		return mt_args_error(&options->args, "more than %d traces", MT_VIEW_MAX_TRACES);
	options->paths[options->n_paths++] = path;
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->args;
		return 0;
	case OPT_PORT:
		return mt_args_uint(&options->args, "--port", arg, 1, 65535, &options->port);
	case OPT_OPEN:
		options->opens = true;
		return 0;
	case OPT_REDACT:
		options->redacts = true;
		return 0;
	case OPT_HTML:
		return mt_args_path(&options->args, "--html", arg, &options->html);
	case 'f':
		options->overwrites = true;
		return 0;
	case OPT_SOCKET_DIR:
		options->socket_dir = arg;
		return 0;
	case OPT_TIME_LIMIT:
		return mt_args_uint(&options->args, "--time-limit", arg, 1, 3600,
				    &options->time_limit_s);
	case ARGP_KEY_ARG:
		return file_add(options, arg);
	case ARGP_KEY_END:
		return options->n_paths ? 0
					: mt_args_error(&options->args, "which FILE? Name traces, or live sessions");
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option argp_options[] = {
	{"port", OPT_PORT, "N", 0, "Listen on this port [one that is free]", 1},
	{"open", OPT_OPEN, NULL, 0, "Open the page in a browser, too", 1},
	{"html", OPT_HTML, "FILE", 0,
	 "Do not serve: write the page as one file, with summed-up data of the traces inside", 1},
	{"force", 'f', NULL, 0, "Overwrite FILE", 1},
	{"redact", OPT_REDACT, NULL, 0,
	 "Leave out what may tell of people or machines: token ids, the requests' ids from outside and "
	 "their attributes, host, program, messages, notes and names of ranges",
	 1},
	{"time-limit", OPT_TIME_LIMIT, "S", 0,
	 "Cut off queries that are written in the page after this many seconds [10]", 1},
	{"socket-dir", OPT_SOCKET_DIR, "FOLDER", 0, "Look for sessions there", 1},
	{0},
};

static const struct argp_child children[] = {{&mt_args_plain_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.options = argp_options,
	.parser = parse,
	.args_doc = "FILE|SESSION...",
	.doc = "Serve a page that shows traces, and print its address; it ends with Ctrl-C. Or write the "
	       "page with --html as one file, to be sent to somebody."
	       "\v"
	       "Only programs of this machine reach it, and only with the whole address, which has a "
	       "random key in it. From another machine: ssh -L 8080:localhost:PORT HOST, and open the "
	       "same address with the port 8080. A single file holds summed-up data and says what it leaves "
	       "out; it needs no network. Traces are only read. One that is still being recorded is "
	       "followed: the page shows it as of its last commit, about once a second, until it is "
	       "told to pause. Such a trace may also be named by its session: its name, process id or "
	       "socket.\n",
	.children = children,
};

/* ---- what is shown ---- */

struct shown {
	struct mt_view_file files[MT_VIEW_MAX_TRACES];
	char *uris[MT_VIEW_MAX_TRACES], *paths[MT_VIEW_MAX_TRACES];
	size_t n;
};

/* The file of a live session, to be freed; NULL after an error line, with *ret_status. */
static char *session_file(const char *name, const char *socket_dir, int *ret_status)
{
	const struct mt_live_choice choice = {.dir = socket_dir, .names = &name, .n_names = 1};
	struct mt_live_set set;
	const char *file;
	char *path = NULL;

	*ret_status = mt_live_find(&choice, &set);
	if (*ret_status != MT_EXIT_OK)
		return NULL;
	file = mt_live_value(&set.sessions[0].status, "file");
	if (*file)
		path = strdup(file);
	else
		mt_error("%s: has no file yet: it keeps the last passes in memory; 'moetrace dump %s -o "
			 "FILE' writes them",
			 name, name);
	mt_live_close(&set);
	if (!path)
		*ret_status = MT_EXIT_FAILED;
	return path;
}

/* An existing file is one, anything else a session, unless it is called as files are. */
static char *path_of(const char *name, const char *socket_dir, int *ret_status)
{
	struct stat info;
	const char *dot = strrchr(name, '.');
	const bool is_there = stat(name, &info) == 0;
	char *path;

	if (is_there ? S_ISSOCK(info.st_mode) : !strchr(name, '/') && !(dot && strcmp(dot, ".db") == 0))
		return session_file(name, socket_dir, ret_status);
	path = strdup(name);
	*ret_status = path ? MT_EXIT_OK : MT_EXIT_FAILED;
	if (!path)
		mt_error("%s: out of memory", name);
	return path;
}

/* Opens it as every verb does, so that what is wrong is said as everywhere; then lets it go. */
static int file_look(const char *name, const char *socket_dir, struct shown *shown)
{
	struct mt_trace trace;
	int status;
	char *path = path_of(name, socket_dir, &status);

	shown->paths[shown->n] = path;
	if (status == MT_EXIT_OK)
		status = mt_trace_open(path, &trace);
	if (status != MT_EXIT_OK) {
		free(path);
		return status;
	}
	shown->uris[shown->n] = mt_trace_uri(path, trace.parameters);
	shown->files[shown->n] = (struct mt_view_file){.path = path,
						       .uri = shown->uris[shown->n],
						       .is_live = trace.is_held,
						       .writer_pid = mt_trace_writer_pid(&trace)};
	mt_trace_close(&trace);
	shown->n++;
	if (shown->uris[shown->n - 1])
		return MT_EXIT_OK;
	mt_error("%s: out of memory", path);
	return MT_EXIT_FAILED;
}

static int files_look(const struct options *options, struct shown *shown)
{
	int status = MT_EXIT_OK;

	for (size_t i = 0; i < options->n_paths && status == MT_EXIT_OK; i++)
		status = file_look(options->paths[i], options->socket_dir, shown);
	return status;
}

/* ---- one file ---- */

static void progress_print(const char *trace, const char *what, double part)
{
	if (part > 0)
		fprintf(stderr, "\r\033[K%s: %s %.0f %%", trace, what, 100 * part);
	else
		fprintf(stderr, "\r\033[K%s: %s", trace, what);
}

static int html_export(const struct mt_view_options *view, const char *path, bool overwrites)
{
	char error[MT_VIEW_ERROR_BYTES];
	struct mt_out_file file;
	bool is_written;
	int status = mt_out_file_begin(path, overwrites, &file);

	if (status != MT_EXIT_OK)
		return status;
	is_written = mt_view_export(view, file.out, error);
	if (view->progress)
		fputs("\r\033[K", stderr);
	if (is_written)
		return mt_out_file_finish(&file);
	mt_error("%s: %s", path, error);
	mt_out_file_discard(&file);
	return MT_EXIT_FAILED;
}

/* ---- serving ---- */

/* The desktop's own opener; what it prints is not ours. */
static void browser_open(const char *address)
{
	char program[] = "xdg-open";
	char *text = strdup(address);
	char *argv[] = {program, text, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	pid_t pid;
	int error = ENOMEM;

	if (text && posix_spawn_file_actions_init(&actions) == 0) {
		posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
		posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
		posix_spawnattr_init(&attributes);
		sigemptyset(&none);
		posix_spawnattr_setsigmask(&attributes, &none);
		posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
		error = posix_spawnp(&pid, program, &actions, &attributes, argv, environ);
		posix_spawnattr_destroy(&attributes);
		posix_spawn_file_actions_destroy(&actions);
	}
	free(text);
	if (error)
		mt_warn("xdg-open: %s; open the address yourself", strerror(error));
}

/* Until somebody wants it to end. */
static void end_await(const sigset_t *ends)
{
	int number;

	while (sigwait(ends, &number) != 0)
		;
}

static int serve(const struct options *options, const struct mt_view_options *view)
{
	char error[MT_VIEW_ERROR_BYTES];
	struct mt_view_server *server;
	sigset_t ends;

	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	server = mt_view_server_start(view, (uint16_t)options->port, error);
	if (!server) {
		mt_error("%s", error);
		return MT_EXIT_FAILED;
	}
	printf("%s\n", mt_view_server_address(server));
	if (fflush(stdout) != 0) {
		mt_error("standard output: %s; the address cannot be told", strerror(errno));
		mt_view_server_stop(server);
		return MT_EXIT_FAILED;
	}
	if (options->opens)
		browser_open(mt_view_server_address(server));
	if (isatty(STDERR_FILENO))
		mt_note("serving %zu trace%s; Ctrl-C ends", view->n_files, view->n_files == 1 ? "" : "s");
	end_await(&ends);
	mt_view_server_stop(server);
	return MT_EXIT_OK;
}

int mt_cmd_view(int argc, char **argv)
{
	struct options options = {.args = {.no_file = true}, .time_limit_s = 10};
	struct shown shown = {.n = 0};
	struct mt_view_options view;
	const char *reason;
	int status;

	status = mt_args_parse(&argp, argc, argv, &options.args, &options);
	if (status == MT_EXIT_OK)
		status = files_look(&options, &shown);
	view = (struct mt_view_options){
		.files = shown.files,
		.n_files = shown.n,
		.version = moetrace_version(),
		.is_redacted = options.redacts,
		.query_limit_ms = (uint32_t)options.time_limit_s * 1000,
		.progress = isatty(STDERR_FILENO) ? progress_print : NULL,
	};
	if (status == MT_EXIT_OK && !options.html && !mt_view_can_serve(&reason)) {
		mt_error("%s", reason);
		status = MT_EXIT_FAILED;
	}
	if (status == MT_EXIT_OK)
		status = options.html ? html_export(&view, options.html, options.overwrites)
				      : serve(&options, &view);
	for (size_t i = 0; i < shown.n; i++) {
		free(shown.uris[i]);
		free(shown.paths[i]);
	}
	return status;
}
