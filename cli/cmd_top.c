/* SPDX-License-Identifier: MIT */
/*
 * top: a recording while it is made, on a terminal, as lines again and again, or once.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli/top.h"

enum {
	OPT_ONCE = MT_OPT_OWN,
	OPT_PLAIN,
	OPT_ASCII,
	OPT_INTERVAL,
	OPT_WINDOW,
	OPT_MODEL,
	OPT_SOCKET_DIR,
};

/* A look of the screen reads so long, and goes on at the next one. */
#define BUDGET_NS 150000000

struct options {
	struct mt_args args;
	bool once, plain, ascii;
	double interval_s; /* 0: not given */
	double window_s;   /* 0: the whole recording */
	uint64_t model_id;
	const char *dir;
};

static error_t seconds_parse(struct options *options, const char *name, const char *text,
			     double min, double max, double *ret_value)
{
	char *end;
	const double value = strtod(text, &end);

	if (end == text || *end || !(value >= min && value <= max))
		return mt_args_error(&options->args, "%s '%s': give seconds from %g to %g", name,
				     text, min, max);
	*ret_value = value;
	return 0;
}

static error_t end_check(struct options *options)
{
	if (options->args.format != MT_FORMAT_TABLE && !options->once)
		return mt_args_error(&options->args, "--format is for one frame: give --once, too");
	if (options->once && options->interval_s > 0)
		return mt_args_error(&options->args, "--once and --interval exclude each other");
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->args;
		return 0;
	case OPT_ONCE:
		options->once = true;
		return 0;
	case OPT_PLAIN:
		options->plain = true;
		return 0;
	case OPT_ASCII:
		options->ascii = true;
		return 0;
	case OPT_SOCKET_DIR:
		options->dir = arg;
		return 0;
	case OPT_INTERVAL:
		return seconds_parse(options, "--interval", arg, 0.1, 3600, &options->interval_s);
	case OPT_MODEL:
		return mt_args_uint(&options->args, "--model", arg, 1, INT64_MAX,
				    &options->model_id);
	case OPT_WINDOW:
		options->window_s = 0;
		return strcmp(arg, "all") == 0 ?
			       0 :
			       seconds_parse(options, "--window", arg, 1, 3600, &options->window_s);
	case ARGP_KEY_END:
		return end_check(options);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option argp_options[] = {
	{"once", OPT_ONCE, NULL, 0, "Show one frame and exit", 1},
	{"plain", OPT_PLAIN, NULL, 0,
	 "Lines of text and no drawing, for screen readers; so it is where standard output is no "
	 "terminal",
	 1},
	{"ascii", OPT_ASCII, NULL, 0, "Draw with ASCII characters alone", 1},
	{"interval", OPT_INTERVAL, "S", 0, "Seconds between two frames [0.5; of lines 5]", 1},
	{"window", OPT_WINDOW, "S", 0,
	 "Rates and load are of the last S seconds, or of the whole recording: all [5]", 1},
	{"model", OPT_MODEL, "N", 0, "Model N of the file [the first target model]", 1},
	{"socket-dir", OPT_SOCKET_DIR, "FOLDER", 0,
	 "Where the sockets are [MOETRACE_SOCKET_DIR, else $XDG_RUNTIME_DIR/moetrace or "
	 "/tmp/moetrace-UID]",
	 1},
	{0},
};

static const struct argp_child children[] = {{&mt_args_follow_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
	.options = argp_options,
	.parser = parse,
	.args_doc = "FILE|SESSION",
	.doc = "Show a recording while it is made: tokens and passes a second, active experts, "
	       "balance, the load of layers and experts, power, kernels, and what was lost."
	       "\v"
	       "An existing regular file is a FILE, anything else a SESSION: a name, a process id "
	       "or the path of a socket, as 'moetrace list' shows them. A session is followed when "
	       "it goes on in another file. The recorder is not disturbed: the file is opened for "
	       "reading, for some milliseconds a frame. A trace that has ended is shown as it was "
	       "in its end.\n"
	       "\n"
	       "Keys:\n"
	       "  q          quit\n"
	       "  ?          what the keys do\n"
	       "  p          pause, and go on\n"
	       "  Tab        the next panel: load, layers, power, kernels, sources\n"
	       "  arrows     move the cell cursor; what is under it is said below\n"
	       "  + -        a longer, a shorter window\n"
	       "  w          the whole recording, and back\n"
	       "  s          order of the columns: expert id, load, rank of the expert map\n"
	       "  m          what a column of several experts shows: mean, max, p95\n"
	       "  l          a logarithmic scale, and back\n"
	       "  n          the next model\n"
	       "\n"
	       "With NO_COLOR set there are no colours; without UTF-8 or colours the terminal gets "
	       "ASCII alone.\n",
	.children = children,
};

/* ---- once, and lines ---- */

static bool is_colored(void)
{
	const char *terminal = getenv("TERM"), *depth = getenv("COLORTERM");
	struct mt_output output;

	mt_output_begin(&output, stdout, MT_FORMAT_TABLE);
	return output.is_colored &&
	       ((terminal && strstr(terminal, "256color")) || (depth && *depth));
}

static int canvas_show(const struct mt_top_session *session)
{
	struct mt_canvas canvas = {.is_utf8 = mt_locale_utf8() && !session->is_ascii,
				   .is_colored = is_colored()};
	struct winsize size = {.ws_row = 0};
	int n_rows = 24, n_columns = 80;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1 && size.ws_col > 0) {
		n_rows = size.ws_row - 1;
		n_columns = size.ws_col;
	}
	if (mt_canvas_resize(&canvas, n_rows, n_columns) < 0) {
		mt_error("out of memory");
		return MT_EXIT_FAILED;
	}
	mt_top_draw(session->top, session->frame, session->view, &canvas);
	mt_canvas_print(&canvas, stdout);
	mt_canvas_free(&canvas);
	return MT_EXIT_OK;
}

static void lines_show(const struct mt_top_session *session)
{
	mt_top_plain_print(session->top, session->frame, session->source->path,
			   session->source->notice, mt_locale_utf8() && !session->is_ascii);
}

static int once_show(const struct mt_top_session *session, const struct options *options)
{
	if (mt_format_is_data(options->args.format))
		return mt_top_data_print(session->top, session->frame, options->args.format);
	if (!options->plain)
		return canvas_show(session);
	lines_show(session);
	return MT_EXIT_OK;
}

static void sleep_ns(int64_t length_ns)
{
	const struct timespec length = {length_ns / 1000000000, length_ns % 1000000000};

	nanosleep(&length, NULL);
}

/* Whether no other lines can come: nobody could begin another recording there. */
static bool is_over(const struct mt_top_session *session)
{
	const struct mt_top_source *source = session->source;

	if (source->is_session)
		return source->is_silent;
	return source->is_gone || (session->top->facts.end != MT_TOP_LIVE && !source->is_held);
}

/* Until that, or until the reader goes away. */
static int lines_run(const struct mt_top_session *session)
{
	struct mt_top *top = session->top;

	for (;;) {
		lines_show(session);
		if (fflush(stdout) != 0)
			return MT_EXIT_FAILED;
		if (is_over(session))
			return session->source->had_error ? MT_EXIT_FAILED : MT_EXIT_OK;
		sleep_ns(session->interval_ns > session->source->rest_ns ? session->interval_ns :
									  session->source->rest_ns);
		putchar('\n');
		mt_top_source_look(session->source, top, true);
		if (mt_top_frame_make(top, session->frame) != MT_EXIT_OK)
			return MT_EXIT_FAILED;
	}
}

/* ---- the verb ---- */

static int show(struct mt_top_session *session, const struct options *options)
{
	const char *reason;

	if (options->once)
		return once_show(session, options);
	if (options->plain)
		return lines_run(session);
	reason = mt_top_screen_absent();
	if (!reason)
		return mt_top_screen_run(session);
	mt_error("%s", reason);
	return MT_EXIT_FAILED;
}

static int run(const struct options *options)
{
	struct mt_top top = {
		.window_ns = (int64_t)(options->window_s * 1e9),
		.recording_wanted = (int64_t)options->args.recording_id,
		.model_wanted = (int64_t)options->model_id,
	};
	struct mt_top_source source = {.target = NULL};
	struct mt_top_frame frame = {.tokens = NULL};
	struct mt_top_view view = {.has_keys = !options->once};
	struct mt_top_session session = {&top, &source, &frame, &view, .is_ascii = options->ascii};
	const double interval_s = options->plain ? 5 : 0.5;
	int status = mt_top_init(&top);

	session.interval_ns =
		(int64_t)((options->interval_s > 0 ? options->interval_s : interval_s) * 1e9);
	if (status == MT_EXIT_OK)
		status = mt_top_source_find(&source, options->args.file, options->dir);
	if (status == MT_EXIT_OK)
		status = mt_top_source_look(&source, &top, false);
	if (status == MT_EXIT_OK)
		status = mt_top_frame_make(&top, &frame);
	if (status == MT_EXIT_OK) {
		top.budget_ns = options->once ? 0 : BUDGET_NS;
		view.source = &source;
		status = show(&session, options);
	}
	mt_top_frame_free(&frame);
	mt_top_source_free(&source);
	mt_top_free(&top);
	return status;
}

int mt_cmd_top(int argc, char **argv)
{
	struct options options = {.args = {.no_csv = true}, .window_s = 5};
	int status = mt_args_parse(&argp, argc, argv, &options.args, &options);

	if (status != MT_EXIT_OK)
		return status;
	if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))
		options.plain = options.plain || !options.once || !isatty(STDOUT_FILENO);
	return run(&options);
}
