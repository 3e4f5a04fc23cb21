/* SPDX-License-Identifier: MIT */
/*
 * The screen, by ncurses: it knows the terminal, sends only what changed, and takes keys, changes of
 * size and being stopped and continued. Signals that end the program are taken while it waits, and
 * nowhere else, so that the terminal is always as it was before the program ends by them.
 */
#define NCURSES_WIDECHAR 1
#include <curses.h>
#include <term.h>
/* Names of ours. */
#undef lines
#undef columns

#include "cli/top.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const int end_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

enum { N_END_SIGNALS = 4, KEY_CTRL_L = 12 };

static volatile sig_atomic_t ended_by;

static const int64_t windows_ns[] = {
	1000000000,  2000000000,  5000000000,	10000000000, 20000000000,
	30000000000, 60000000000, 300000000000, 600000000000,
};

enum { N_WINDOWS = sizeof(windows_ns) / sizeof(windows_ns[0]) };

struct screen {
	struct mt_top_session *session;
	struct mt_canvas canvas;
	SCREEN *terminal;
	sigset_t waiting; /* signals while it waits */
	int64_t window_ns; /* to come back to from the whole recording */
	bool is_done, needs_look;
	bool has_pair[MT_N_COLORS * MT_N_COLORS + 1];
};

/* ---- signals ---- */

static void end_note(int number)
{
	ended_by = number;
}

static void signals_take(struct screen *screen)
{
	struct sigaction action = {.sa_handler = end_note}, before;
	sigset_t blocked;

	ended_by = 0;
	sigemptyset(&blocked);
	for (int i = 0; i < N_END_SIGNALS; i++) {
		/* Who started us may have wanted one of them to be ignored. */
		sigaction(end_signals[i], NULL, &before);
		if (before.sa_handler == SIG_IGN)
			continue;
		sigaction(end_signals[i], &action, NULL);
		sigaddset(&blocked, end_signals[i]);
	}
	sigaddset(&blocked, SIGWINCH);
	sigprocmask(SIG_BLOCK, &blocked, &screen->waiting);
}

/* The terminal is restored: now end as one ends by that signal. Ctrl-C is as good as q. */
static int signals_end(const struct screen *screen)
{
	sigprocmask(SIG_SETMASK, &screen->waiting, NULL);
	if (ended_by == 0 || ended_by == SIGINT)
		return MT_EXIT_OK;
	signal(ended_by, SIG_DFL);
	raise(ended_by);
	return MT_EXIT_FAILED;
}

/* ---- drawing ---- */

static short pair_of(struct screen *screen, const struct mt_glyph *glyph)
{
	const int pair = 1 + glyph->color * MT_N_COLORS + glyph->ground;

	if (!screen->canvas.is_colored || (!glyph->color && !glyph->ground))
		return 0;
	if (!screen->has_pair[pair]) {
		init_pair((short)pair, mt_canvas_colors[glyph->color],
			  mt_canvas_colors[glyph->ground]);
		screen->has_pair[pair] = true;
	}
	return (short)pair;
}

static attr_t attributes_of(const struct mt_glyph *glyph)
{
	return (glyph->attributes & MT_BOLD ? A_BOLD : A_NORMAL) |
	       (glyph->attributes & MT_DIM ? A_DIM : A_NORMAL) |
	       (glyph->attributes & MT_REVERSE ? A_REVERSE : A_NORMAL);
}

static void canvas_send(struct screen *screen)
{
	const struct mt_canvas *canvas = &screen->canvas;

	for (int row = 0; row < canvas->n_rows; row++) {
		for (int column = 0; column < canvas->n_columns; column++) {
			const struct mt_glyph *glyph =
				&canvas->glyphs[row * canvas->n_columns + column];
			const wchar_t text[2] = {glyph->character, 0};
			cchar_t cell;

			/* The right half of a wide character came with the left one. */
			if (!glyph->character)
				continue;
			setcchar(&cell, text, attributes_of(glyph), pair_of(screen, glyph), NULL);
			mvadd_wch(row, column, &cell);
		}
	}
	refresh();
}

static int draw(struct screen *screen)
{
	struct mt_top_session *session = screen->session;
	int n_rows, n_columns;

	getmaxyx(stdscr, n_rows, n_columns);
	if ((n_rows != screen->canvas.n_rows || n_columns != screen->canvas.n_columns) &&
	    mt_canvas_resize(&screen->canvas, n_rows, n_columns) < 0)
		return -1;
	mt_top_draw(session->top, session->frame, session->view, &screen->canvas);
	canvas_send(screen);
	return 0;
}

static int look(struct screen *screen)
{
	struct mt_top_session *session = screen->session;

	mt_top_source_look(session->source, session->top, true);
	screen->needs_look = false;
	return mt_top_frame_make(session->top, session->frame) == MT_EXIT_OK ? 0 : -1;
}

/* ---- keys ---- */

static void window_change(struct screen *screen, bool is_longer)
{
	struct mt_top *top = screen->session->top;
	int i = 0;

	if (!top->window_ns)
		return;
	if (is_longer)
		for (; i < N_WINDOWS - 1 && windows_ns[i] <= top->window_ns; i++)
			;
	else
		for (i = N_WINDOWS - 1; i > 0 && windows_ns[i] >= top->window_ns; i--)
			;
	mt_top_window_set(top, windows_ns[i]);
	screen->needs_look = true;
}

static void whole_toggle(struct screen *screen)
{
	struct mt_top *top = screen->session->top;

	if (top->window_ns) {
		screen->window_ns = top->window_ns;
		mt_top_window_set(top, 0);
	} else {
		mt_top_window_set(top, screen->window_ns);
	}
	screen->needs_look = true;
}

static void cursor_move(struct mt_top_view *view, size_t n_layers, wint_t key)
{
	if (key == KEY_UP && view->cursor_layer > 0)
		view->cursor_layer--;
	if (key == KEY_DOWN && view->cursor_layer + 1 < n_layers)
		view->cursor_layer++;
	if (key == KEY_LEFT && view->cursor_column > 0)
		view->cursor_column--;
	if (key == KEY_RIGHT && view->cursor_column + 1 < view->n_columns)
		view->cursor_column++;
}

/* Keys that change what is seen of the same frame. */
static void view_key(struct screen *screen, wint_t key)
{
	struct mt_top_view *view = screen->session->view;

	switch (key) {
	case '\t':
		view->panel = (view->panel + 1) % MT_TOP_N_PANELS;
		break;
	case KEY_BTAB:
		view->panel = (view->panel + MT_TOP_N_PANELS - 1) % MT_TOP_N_PANELS;
		break;
	case '?':
		view->has_help = !view->has_help;
		break;
	case 's':
		view->order = (view->order + 1) % MT_TOP_N_ORDERS;
		break;
	case 'm':
		view->pool = (view->pool + 1) % MT_TOP_N_POOLS;
		break;
	case 'l':
		view->is_log = !view->is_log;
		break;
	case KEY_CTRL_L:
		clearok(curscr, TRUE);
		break;
	default:
		cursor_move(view, screen->session->frame->n_layers, key);
	}
}

static void key_take(struct screen *screen, wint_t key)
{
	struct mt_top_session *session = screen->session;

	switch (key) {
	case 'q':
		screen->is_done = true;
		break;
	case 'p':
		session->view->is_paused = !session->view->is_paused;
		screen->needs_look = !session->view->is_paused;
		break;
	case '+':
	case '=':
	case '-':
		window_change(screen, key != '-');
		break;
	case 'w':
		whole_toggle(screen);
		break;
	case 'n':
		mt_top_model_next(session->top);
		screen->needs_look = true;
		break;
	default:
		view_key(screen, key);
	}
}

/* All keys that are there; ERR as a key of ncurses is the end of them. */
static void keys_take(struct screen *screen)
{
	wint_t key;
	int kind;

	while ((kind = get_wch(&key)) != ERR)
		key_take(screen, key);
}

/* Until a key, a signal, or the time of the next look; what of them it was does not matter. */
static void await(struct screen *screen, int64_t next_ns)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	int64_t left_ns = next_ns - mt_top_clock_ns();
	struct timespec timeout;

	left_ns = left_ns > 0 ? left_ns : 0;
	timeout.tv_sec = left_ns / 1000000000;
	timeout.tv_nsec = left_ns % 1000000000;
	if (ppoll(&input, 1, &timeout, &screen->waiting) > 0 &&
	    (input.revents & (POLLHUP | POLLERR | POLLNVAL)))
		ended_by = SIGHUP;
}

static int loop(struct screen *screen)
{
	struct mt_top_session *session = screen->session;
	int64_t next_ns = mt_top_clock_ns() + session->interval_ns;

	for (;;) {
		if (draw(screen) < 0)
			return -1;
		await(screen, next_ns);
		if (ended_by)
			return 0;
		keys_take(screen);
		if (screen->is_done)
			return 0;
		if (mt_top_clock_ns() >= next_ns) {
			screen->needs_look = !session->view->is_paused;
			next_ns = mt_top_clock_ns() + session->interval_ns;
		}
		if (!screen->needs_look)
			continue;
		if (look(screen) < 0)
			return -1;
		if (next_ns < mt_top_clock_ns() + session->source->rest_ns)
			next_ns = mt_top_clock_ns() + session->source->rest_ns;
	}
}

/* ---- the terminal ---- */

const char *mt_top_screen_absent(void)
{
	int error;

	if (setupterm(NULL, STDOUT_FILENO, &error) != OK)
		return "the terminal is not known: set TERM, or give --plain or --once";
	if (!cursor_address || !clear_screen)
		return "this terminal cannot move its cursor: give --plain or --once";
	return NULL;
}

static void modes_set(struct screen *screen)
{
	const char *no_color = getenv("NO_COLOR");
	const bool has_colors_here = has_colors();

	cbreak();
	noecho();
	nonl();
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	set_escdelay(25);
	curs_set(0);
	screen->canvas.is_utf8 =
		mt_locale_utf8() && has_colors_here && !screen->session->is_ascii;
	if (has_colors_here && !(no_color && *no_color) && start_color() == OK) {
		use_default_colors();
		screen->canvas.is_colored =
			COLORS >= 256 && COLOR_PAIRS > MT_N_COLORS * MT_N_COLORS;
	}
}

int mt_top_screen_run(struct mt_top_session *session)
{
	struct screen *screen = calloc(1, sizeof(*screen));
	int result = -1, status;

	if (!screen) {
		mt_error("out of memory");
		return MT_EXIT_FAILED;
	}
	screen->session = session;
	screen->window_ns = session->top->window_ns ? session->top->window_ns : windows_ns[2];
	signals_take(screen);
	screen->terminal = newterm(NULL, stdout, stdin);
	if (screen->terminal) {
		modes_set(screen);
		result = loop(screen);
		endwin();
		delscreen(screen->terminal);
	}
	mt_canvas_free(&screen->canvas);
	status = signals_end(screen);
	free(screen);
	if (result == 0)
		return status;
	mt_error("the terminal cannot be used, or there is no memory: give --plain or --once");
	return MT_EXIT_FAILED;
}
