/* SPDX-License-Identifier: MIT */
/*
 * SVG as it is written: one picture to a stream. Texts are escaped here, whatever they hold, so
 * that a name from a trace is never markup; what XML cannot hold becomes U+FFFD. Colours of the
 * frame follow the theme by class names; programs without style sheets show the light one.
 */
#ifndef MT_CLI_SVG_H
#define MT_CLI_SVG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum mt_svg_theme { MT_SVG_AUTO, MT_SVG_LIGHT, MT_SVG_DARK };

/* What a class stands for: fill of texts and areas, or stroke of lines (MT_SVG_LINE on). */
enum mt_svg_class {
	MT_SVG_PAGE,
	MT_SVG_PANEL,
	MT_SVG_TEXT,
	MT_SVG_QUIET,
	MT_SVG_ACCENT,
	MT_SVG_WARN,
	MT_SVG_LINE,
	MT_SVG_MEAN, /* dashed */
	MT_SVG_CURVE,
	MT_SVG_SECOND, /* another curve, dashed */
	MT_SVG_LIMIT,
	MT_SVG_N_CLASSES
};

enum mt_svg_anchor { MT_SVG_START, MT_SVG_MIDDLE, MT_SVG_END };

struct mt_svg {
	FILE *out;
	double width, height;
};

/* @title and @about are what a reader of the screen is told. */
void mt_svg_begin(struct mt_svg *svg, FILE *out, double width, double height,
		  enum mt_svg_theme theme, const char *title, const char *about);
void mt_svg_end(struct mt_svg *svg);

/* @text as text or as the value of an attribute. */
void mt_svg_escape(const struct mt_svg *svg, const char *text);

void mt_svg_text(const struct mt_svg *svg, double x, double y, enum mt_svg_class class,
		 enum mt_svg_anchor anchor, const char *format, ...)
	__attribute__((format(printf, 6, 7)));

/* The same in bold and larger. */
void mt_svg_heading(const struct mt_svg *svg, double x, double y, const char *text);

void mt_svg_rect(const struct mt_svg *svg, double x, double y, double width, double height,
		 enum mt_svg_class class);
void mt_svg_line(const struct mt_svg *svg, double x1, double y1, double x2, double y2,
		 enum mt_svg_class class);

/* The class attribute of an element that is written by hand: class="...". */
const char *mt_svg_class(enum mt_svg_class class);

/*
 * Lines of @text from (@x, @y) on down, broken at blanks to about @width; returns where the next
 * line would be. With @svg->out NULL it is only measured.
 */
double mt_svg_paragraph(const struct mt_svg *svg, double x, double y, double width,
			enum mt_svg_class class, const char *text);

/* A number as people read it: thousands apart, up to @digits after the point; returns @buffer. */
#define MT_SVG_NUMBER_BYTES 48
const char *mt_svg_number(double value, int digits, char buffer[MT_SVG_NUMBER_BYTES]);

#define MT_SVG_FONT_PX 11
#define MT_SVG_CHAR_PX 6.1 /* a character's width, about */
#define MT_SVG_LINE_PX 15

#endif
