/* SPDX-License-Identifier: MIT */
/*
 * A page of character cells, to be shown by ncurses or printed. Whatever is written on it is text:
 * control characters, and characters that have no width or that turn the direction of writing, are
 * written as escapes, so nothing that a trace holds reaches a terminal as a command.
 */
#ifndef MT_CLI_TOP_CANVAS_H
#define MT_CLI_TOP_CANVAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <wchar.h>

/* Colours; the levels of a heatmap come last, darkest first. */
enum {
	MT_COLOR_NONE,
	MT_COLOR_GOOD,
	MT_COLOR_WARN,
	MT_COLOR_BAD,
	MT_COLOR_DIM,
	MT_COLOR_WHITE,
	MT_COLOR_LEVEL,
	MT_N_LEVELS = 16,
	MT_N_COLORS = MT_COLOR_LEVEL + MT_N_LEVELS,
};

/* Number of each in the table of 256 colours; -1: the terminal's own. */
extern const short mt_canvas_colors[MT_N_COLORS];

enum { MT_BOLD = 1, MT_REVERSE = 2, MT_DIM = 4 };

struct mt_glyph {
	wchar_t character; /* 0: covered by a wide one on its left */
	uint8_t color, ground, attributes;
};

struct mt_canvas {
	int n_rows, n_columns;
	bool is_utf8;	 /* else ASCII alone */
	bool is_colored; /* 256 colours are there and wanted */
	struct mt_glyph *glyphs; /* [n_rows][n_columns] */
};

/* Make it, or change its size; it is blank then. 0, or -1: out of memory. */
int mt_canvas_resize(struct mt_canvas *canvas, int n_rows, int n_columns);
void mt_canvas_free(struct mt_canvas *canvas);
void mt_canvas_clear(struct mt_canvas *canvas);

/* Outside of the canvas nothing is written. */
void mt_canvas_put(struct mt_canvas *canvas, int row, int column, struct mt_glyph glyph);
/* Write @text up to @end (a column), cut with a mark; returns the column behind it. */
int mt_canvas_text(struct mt_canvas *canvas, int row, int column, int end, int color,
		   int attributes, const char *text);
int mt_canvas_format(struct mt_canvas *canvas, int row, int column, int color, int attributes,
		     const char *format, ...) __attribute__((format(printf, 6, 7)));
/* A row in reverse, from @column on. */
void mt_canvas_bar(struct mt_canvas *canvas, int row, int column);
/* A glyph a value, scaled to the largest (or to @full, above 0); a blank of a negative one. */
int mt_canvas_spark(struct mt_canvas *canvas, int row, int column, const double *values, size_t n,
		    double full);
/* The character of a level in [0, 1] where there are no colours; 0 is a blank. */
wchar_t mt_canvas_ramp(double level);

/* Print the rows up to the last that is not blank, with escape sequences where it is colored. */
void mt_canvas_print(const struct mt_canvas *canvas, FILE *out);

/* Whether the locale's characters are UTF-8; sets the program's LC_CTYPE from the environment. */
bool mt_locale_utf8(void);

#endif
