/* SPDX-License-Identifier: MIT */
/*
 * The page of character cells. Text is made harmless first and then taken apart into characters
 * that are known to be printable and one or two cells wide, so a cell never holds anything else.
 */
#include "cli/top_canvas.h"

#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/clean.h"
#include "common/utf8.h"

/* Lightness rises from level to level, from blue over grey to yellow: so hues do not matter. */
const short mt_canvas_colors[MT_N_COLORS] = {
	-1, 72, 214, 203, 245, 231,
	233, 17, 18, 24, 60, 242, 243, 244, 102, 246, 247, 144, 180, 186, 221, 227,
};

static const char ramp[] = " .:-=+*#%@";

/* ---- text ---- */

bool mt_locale_utf8(void)
{
	const char *names[] = {getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG")};
	size_t i;

	if (!setlocale(LC_CTYPE, "")) {
		/* The locale that was asked for is not installed; its characters are what counts. */
		for (i = 0; i < 2 && (!names[i] || !*names[i]); i++)
			;
		if (names[i] && (strstr(names[i], "UTF-8") || strstr(names[i], "utf8")))
			setlocale(LC_CTYPE, "C.UTF-8");
	}
	return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

/* ---- cells ---- */

int mt_canvas_resize(struct mt_canvas *canvas, int n_rows, int n_columns)
{
	struct mt_glyph *glyphs;

	if (n_rows < 1 || n_columns < 1 || n_rows > 4096 || n_columns > 4096)
		return -1;
	glyphs = realloc(canvas->glyphs, (size_t)n_rows * (size_t)n_columns * sizeof(*glyphs));
	if (!glyphs)
		return -1;
	canvas->glyphs = glyphs;
	canvas->n_rows = n_rows;
	canvas->n_columns = n_columns;
	mt_canvas_clear(canvas);
	return 0;
}

void mt_canvas_free(struct mt_canvas *canvas)
{
	free(canvas->glyphs);
	canvas->glyphs = NULL;
}

void mt_canvas_clear(struct mt_canvas *canvas)
{
	size_t n = (size_t)canvas->n_rows * (size_t)canvas->n_columns, i;

	for (i = 0; i < n; i++)
		canvas->glyphs[i] = (struct mt_glyph){.character = L' '};
}

void mt_canvas_put(struct mt_canvas *canvas, int row, int column, struct mt_glyph glyph)
{
	if (row < 0 || row >= canvas->n_rows || column < 0 || column >= canvas->n_columns)
		return;
	if (!canvas->is_colored)
		glyph.color = glyph.ground = MT_COLOR_NONE;
	canvas->glyphs[row * canvas->n_columns + column] = glyph;
}

/* Write a character of one or two cells that ends before @end; returns the column behind it. */
static int character_put(struct mt_canvas *canvas, int row, int column, int end,
			 struct mt_glyph glyph)
{
	int width = glyph.character < 0x80 ? 1 : wcwidth(glyph.character);

	if (width < 1 || column + width > end)
		return end;
	mt_canvas_put(canvas, row, column, glyph);
	if (width == 2) {
		glyph.character = 0;
		mt_canvas_put(canvas, row, column + 1, glyph);
	}
	return column + width;
}

int mt_canvas_text(struct mt_canvas *canvas, int row, int column, int end, int color,
		   int attributes, const char *text)
{
	struct mt_glyph glyph = {.color = (uint8_t)color, .attributes = (uint8_t)attributes};
	size_t n_bytes = strlen(text), length, i, n_clean, clean_length;
	char piece[16];

	if (end > canvas->n_columns)
		end = canvas->n_columns;
	while (n_bytes > 0 && column < end) {
		length = mt_clean_piece(text, n_bytes, canvas->is_utf8, piece);
		n_clean = strlen(piece);
		for (i = 0; i < n_clean; i += clean_length) {
			mt_utf8_sequence((const unsigned char *)piece + i, n_clean - i, &clean_length);
			glyph.character =
				(wchar_t)mt_clean_decode((const unsigned char *)piece + i, clean_length);
			column = character_put(canvas, row, column, end, glyph);
		}
		text += length;
		n_bytes -= length;
	}
	if (n_bytes > 0 && end > 0) {
		/* What was cut is seen to be. */
		glyph.character = canvas->is_utf8 ? L'\u2026' : L'~';
		mt_canvas_put(canvas, row, end - 1, glyph);
	}
	return column;
}

int mt_canvas_format(struct mt_canvas *canvas, int row, int column, int color, int attributes,
		     const char *format, ...)
{
	char text[2048];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return mt_canvas_text(canvas, row, column, canvas->n_columns, color, attributes, text);
}

void mt_canvas_bar(struct mt_canvas *canvas, int row, int column)
{
	for (; row < canvas->n_rows && column < canvas->n_columns; column++)
		canvas->glyphs[row * canvas->n_columns + column].attributes |= MT_REVERSE;
}

wchar_t mt_canvas_ramp(double level)
{
	const int n = (int)sizeof(ramp) - 1;
	int i = level <= 0 ? 0 : 1 + (int)(level * (n - 1));

	return (wchar_t)ramp[i >= n ? n - 1 : i];
}

int mt_canvas_spark(struct mt_canvas *canvas, int row, int column, const double *values, size_t n,
		    double full)
{
	struct mt_glyph glyph = {.color = MT_COLOR_NONE};
	size_t i;
	int level;

	for (i = 0; i < n && full <= 0; i++)
		full = values[i] > full ? values[i] : full;
	for (i = 0; full <= 0 && i < n; i++)
		full = 1;
	for (i = 0; i < n; i++, column++) {
		double share = values[i] < 0 ? 0 : values[i] / full;

		level = (int)(share * 7.999);
		level = level > 7 ? 7 : level;
		glyph.character = !canvas->is_utf8 ? mt_canvas_ramp(share) :
				  values[i] < 0	   ? L' ' :
						     (wchar_t)(L'\u2581' + level);
		mt_canvas_put(canvas, row, column, glyph);
	}
	return column;
}

/* ---- printing ---- */

static void style_print(const struct mt_glyph *glyph, FILE *out)
{
	short color = mt_canvas_colors[glyph->color], ground = mt_canvas_colors[glyph->ground];

	fputs("\033[0", out);
	if (glyph->attributes & MT_BOLD)
		fputs(";1", out);
	if (glyph->attributes & MT_DIM)
		fputs(";2", out);
	if (glyph->attributes & MT_REVERSE)
		fputs(";7", out);
	if (color >= 0)
		fprintf(out, ";38;5;%d", color);
	if (ground >= 0)
		fprintf(out, ";48;5;%d", ground);
	putc('m', out);
}

static bool has_same_style(const struct mt_glyph *a, const struct mt_glyph *b)
{
	return a->color == b->color && a->ground == b->ground && a->attributes == b->attributes;
}

static bool is_blank(const struct mt_glyph *glyph)
{
	return glyph->character == L' ' && !glyph->ground && !(glyph->attributes & MT_REVERSE);
}

static void row_print(const struct mt_canvas *canvas, const struct mt_glyph *row, FILE *out)
{
	const struct mt_glyph plain = {.character = L' '};
	const struct mt_glyph *style = &plain;
	int n = canvas->n_columns, i;
	char bytes[MB_LEN_MAX];

	while (n > 0 && is_blank(&row[n - 1]))
		n--;
	for (i = 0; i < n; i++) {
		mbstate_t state = {0};
		size_t length = row[i].character ? wcrtomb(bytes, row[i].character, &state) : 0;

		if (canvas->is_colored && !has_same_style(style, &row[i])) {
			style = &row[i];
			style_print(style, out);
		}
		fwrite(length <= sizeof(bytes) ? bytes : "?", 1, length <= sizeof(bytes) ? length : 1,
		       out);
	}
	fputs(has_same_style(style, &plain) ? "\n" : "\033[0m\n", out);
}

void mt_canvas_print(const struct mt_canvas *canvas, FILE *out)
{
	int n_rows = canvas->n_rows, row, i;

	for (; n_rows > 0; n_rows--) {
		for (i = 0; i < canvas->n_columns; i++)
			if (!is_blank(&canvas->glyphs[(n_rows - 1) * canvas->n_columns + i]))
				break;
		if (i < canvas->n_columns)
			break;
	}
	for (row = 0; row < n_rows; row++)
		row_print(canvas, canvas->glyphs + row * canvas->n_columns, out);
}
