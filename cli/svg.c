/* SPDX-License-Identifier: MIT */
/*
 * The writer of SVG. The frame's colours are those of the page's style sheet (viewer/page/src/
 * style.css); nothing is loaded from elsewhere, and there is no script.
 */
#include "cli/svg.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"

#define TEXT_BYTES 2048

static const struct {
	const char *name, *light, *dark, *more;
} classes[] = {
	[MT_SVG_PAGE] = {"page", "#ffffff", "#14171c", ""},
	[MT_SVG_PANEL] = {"panel", "#f5f6f8", "#1e232b", ""},
	[MT_SVG_TEXT] = {"text", "#1c2128", "#e4e7ec", ""},
	[MT_SVG_QUIET] = {"quiet", "#5a6270", "#a2abb8", ""},
	[MT_SVG_ACCENT] = {"accent", "#1f63ad", "#6cb0f5", ""},
	[MT_SVG_WARN] = {"warn", "#a8480a", "#f2a15a", ""},
	[MT_SVG_LINE] = {"line", "#d5d9df", "#3a424e", ""},
	[MT_SVG_MEAN] = {"mean", "#5a6270", "#a2abb8", ";stroke-dasharray:2 2"},
	[MT_SVG_CURVE] = {"curve", "#1f63ad", "#6cb0f5", ";stroke-width:2"},
	[MT_SVG_SECOND] = {"second", "#a8480a", "#f2a15a", ";stroke-width:2;stroke-dasharray:6 3"},
	[MT_SVG_LIMIT] = {"limit", "#b3261e", "#ff8a80", ";stroke-dasharray:8 4"},
};

static bool is_stroke(int class)
{
	return class >= MT_SVG_LINE;
}

const char *mt_svg_class(enum mt_svg_class class)
{
	return classes[class].name;
}

static void colors_write(FILE *out, bool is_dark)
{
	for (int i = 0; i < MT_SVG_N_CLASSES; i++)
		fprintf(out, ".%s{%s:%s%s}", classes[i].name,
			is_stroke(i) ? "fill:none;stroke" : "fill",
			is_dark ? classes[i].dark : classes[i].light, classes[i].more);
}

void mt_svg_begin(struct mt_svg *svg, FILE *out, double width, double height,
		  enum mt_svg_theme theme, const char *title, const char *about)
{
	*svg = (struct mt_svg){.out = out, .width = width, .height = height};
	fprintf(out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 "
		"0 %g "
		"%g\" role=\"img\" font-family=\"system-ui, sans-serif\" "
		"font-size=\"%d\">\n<title>",
		width, height, width, height, MT_SVG_FONT_PX);
	mt_svg_escape(svg, title);
	fputs("</title>\n<desc>", out);
	mt_svg_escape(svg, about);
	fputs("</desc>\n<style>", out);
	colors_write(out, theme == MT_SVG_DARK);
	if (theme == MT_SVG_AUTO) {
		fputs("@media (prefers-color-scheme: dark){", out);
		colors_write(out, true);
		fputs("}", out);
	}
	fputs("</style>\n", out);
	mt_svg_rect(svg, 0, 0, width, height, MT_SVG_PAGE);
}

void mt_svg_end(struct mt_svg *svg)
{
	fputs("</svg>\n", svg->out);
}

/* Of the characters of UTF-8, those that XML 1.0 does not have. */
static bool is_outside_xml(const unsigned char *bytes, size_t n_bytes)
{
	if (n_bytes == 1)
		return bytes[0] < 0x20 && bytes[0] != '\t' && bytes[0] != '\n' && bytes[0] != '\r';
	return n_bytes == 3 && bytes[0] == 0xef && bytes[1] == 0xbf && bytes[2] >= 0xbe;
}

void mt_svg_escape(const struct mt_svg *svg, const char *text)
{
	size_t n_left = strlen(text), n;

	for (; n_left > 0; text += n, n_left -= n) {
		const unsigned char *bytes = (const unsigned char *)text;

		if (!mt_utf8_sequence(bytes, n_left, &n) || is_outside_xml(bytes, n))
			fputs("\xef\xbf\xbd", svg->out);
		else if (n == 1 && strchr("<>&\"'\r", *text))
			fprintf(svg->out, "&#%d;", *text);
		else
			fwrite(text, 1, n, svg->out);
	}
}

void mt_svg_text(const struct mt_svg *svg, double x, double y, enum mt_svg_class class,
		 enum mt_svg_anchor anchor, const char *format, ...)
{
	static const char *const anchors[] = {[MT_SVG_START] = "",
					      [MT_SVG_MIDDLE] = " text-anchor=\"middle\"",
					      [MT_SVG_END] = " text-anchor=\"end\""};
	char text[TEXT_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(svg->out, "<text x=\"%g\" y=\"%g\" class=\"%s\"%s>", x, y, classes[class].name,
		anchors[anchor]);
	mt_svg_escape(svg, text);
	fputs("</text>\n", svg->out);
}

void mt_svg_heading(const struct mt_svg *svg, double x, double y, const char *text)
{
	fprintf(svg->out,
		"<text x=\"%g\" y=\"%g\" class=\"text\" font-size=\"15\" font-weight=\"600\">", x,
		y);
	mt_svg_escape(svg, text);
	fputs("</text>\n", svg->out);
}

void mt_svg_rect(const struct mt_svg *svg, double x, double y, double width, double height,
		 enum mt_svg_class class)
{
	fprintf(svg->out, "<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" class=\"%s\"/>\n", x,
		y, width, height, classes[class].name);
}

void mt_svg_line(const struct mt_svg *svg, double x1, double y1, double x2, double y2,
		 enum mt_svg_class class)
{
	fprintf(svg->out, "<line x1=\"%g\" y1=\"%g\" x2=\"%g\" y2=\"%g\" class=\"%s\"/>\n", x1, y1,
		x2, y2, classes[class].name);
}

/* Bytes of the next line of @text, of at most @max_bytes; a word that is longer is cut. */
static size_t line_length(const char *text, size_t max_bytes)
{
	size_t n = strlen(text);

	if (n <= max_bytes)
		return n;
	for (n = max_bytes; n > 0 && text[n] != ' '; n--)
		;
	if (n == 0)
		for (n = max_bytes; n > 1 && ((unsigned char)text[n] & 0xc0) == 0x80; n--)
			;
	return n;
}

double mt_svg_paragraph(const struct mt_svg *svg, double x, double y, double width,
			enum mt_svg_class class, const char *text)
{
	const size_t max_bytes =
		width > 40 * MT_SVG_CHAR_PX ? (size_t)(width / MT_SVG_CHAR_PX) : 40;

	while (*text) {
		const size_t n =
			line_length(text, max_bytes < TEXT_BYTES ? max_bytes : TEXT_BYTES - 1);

		if (svg->out)
			mt_svg_text(svg, x, y, class, MT_SVG_START, "%.*s", (int)n, text);
		y += MT_SVG_LINE_PX;
		text += n;
		text += strspn(text, " ");
	}
	return y;
}

/* Digits of a whole number with a comma before every three of them. */
static void thousands_write(const char *digits, size_t n_digits, char *to)
{
	for (size_t i = 0; i < n_digits; i++) {
		if (i > 0 && (n_digits - i) % 3 == 0)
			*to++ = ',';
		*to++ = digits[i];
	}
	*to = '\0';
}

const char *mt_svg_number(double value, int digits, char buffer[MT_SVG_NUMBER_BYTES])
{
	char text[32];
	char *point;
	size_t n;

	if (!isfinite(value) || value < 0) {
		snprintf(buffer, MT_SVG_NUMBER_BYTES, "-");
		return buffer;
	}
	if (value != 0 && (value < 0.001 || value >= 1e12)) {
		snprintf(buffer, MT_SVG_NUMBER_BYTES, "%.2e", value);
		return buffer;
	}
	snprintf(text, sizeof(text), "%.*f", digits, value);
	point = strchr(text, '.');
	n = point ? (size_t)(point - text) : strlen(text);
	if (point) {
		size_t n_all = strlen(text);

		while (n_all > n && (text[n_all - 1] == '0' || text[n_all - 1] == '.'))
			text[--n_all] = '\0';
	}
	thousands_write(text, n, buffer);
	if (n < strlen(text))
		strcat(buffer, text + n);
	return buffer;
}
