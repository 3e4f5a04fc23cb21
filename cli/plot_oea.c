/* SPDX-License-Identifier: MIT */
/*
 * What a rule would save, as curves over k0: active experts of a layer and pass before and after,
 * and what rows without a preference would need. The figures are the rows of question oea, which
 * 'moetrace oea' prints.
 */
#include "cli/plot.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/out_file.h"

#define WIDTH_PX   640
#define HEIGHT_PX  340
#define BELOW_PX   72
#define ABOVE_PX   24
#define MAX_POINTS 1024

struct point {
	int64_t k0;
	double before, after, uniform_after; /* below 0: not known */
	char *title;
};

struct points {
	struct point points[MAX_POINTS];
	size_t n;
	char phase[24];
	double most;
};

static double real_of(sqlite3_stmt *stmt, const char *name)
{
	for (int i = 0; i < sqlite3_column_count(stmt); i++)
		if (sqlite3_stricmp(sqlite3_column_name(stmt, i), name) == 0 &&
		    sqlite3_column_type(stmt, i) != SQLITE_NULL)
			return sqlite3_column_double(stmt, i);
	return -1;
}

static const char *text_of(sqlite3_stmt *stmt, const char *name)
{
	for (int i = 0; i < sqlite3_column_count(stmt); i++)
		if (sqlite3_stricmp(sqlite3_column_name(stmt, i), name) == 0)
			return (const char *)sqlite3_column_text(stmt, i);
	return NULL;
}

/* Every figure of the row by its name. */
static char *title_make(sqlite3_stmt *stmt)
{
	const char *comma = "";
	char *text = NULL;
	size_t n_bytes;
	FILE *out = open_memstream(&text, &n_bytes);

	if (!out)
		return NULL;
	for (int i = 0; i < sqlite3_column_count(stmt); i++) {
		const unsigned char *value = sqlite3_column_text(stmt, i);

		if (!value)
			continue;
		fprintf(out, "%s%s %s", comma, sqlite3_column_name(stmt, i), (const char *)value);
		comma = ", ";
	}
	return fclose(out) == 0 ? text : NULL;
}

/* Rows are in the order of their phases: the one that was asked for, else decode, else the first.
 */
static bool is_phase(const struct mt_plot_options *options, struct points *points,
		     const char *phase)
{
	const bool is_free = strcmp(options->phase, "all") == 0;

	if (!is_free)
		return strcmp(phase, options->phase) == 0;
	if (points->n > 0 && strcmp(points->phase, phase) != 0 && strcmp(phase, "decode") == 0)
		while (points->n > 0)
			free(points->points[--points->n].title);
	return points->n == 0 || strcmp(points->phase, phase) == 0;
}

static void row_take(const struct mt_plot_options *options, const struct mt_plot_frame *frame,
		     sqlite3_stmt *stmt, struct points *points)
{
	const char *phase = text_of(stmt, "phase");
	struct point *point = &points->points[points->n];

	if ((int64_t)real_of(stmt, "model_id") != frame->model_id || !phase ||
	    !is_phase(options, points, phase) || points->n == MAX_POINTS)
		return;
	snprintf(points->phase, sizeof(points->phase), "%s", phase);
	point = &points->points[points->n++];
	*point = (struct point){
		.k0 = (int64_t)real_of(stmt, "k0"),
		.before = real_of(stmt, "active_before"),
		.after = real_of(stmt, "active_after"),
		.uniform_after = real_of(stmt, "uniform_after"),
		.title = title_make(stmt),
	};
}

static int points_read(const struct mt_trace *trace, const struct mt_plot_options *options,
		       const struct mt_plot_frame *frame, struct points *points)
{
	sqlite3_stmt *stmt = mt_plot_question(trace, "oea", options, frame);
	int rc;

	if (!stmt)
		return MT_EXIT_FAILED;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		row_take(options, frame, stmt, points);
	sqlite3_finalize(stmt);
	if (rc != SQLITE_DONE)
		return mt_trace_error(trace);
	for (size_t i = 0; i < points->n; i++) {
		const struct point *point = &points->points[i];

		points->most = point->before > points->most ? point->before : points->most;
		points->most =
			point->uniform_after > points->most ? point->uniform_after : points->most;
	}
	if (points->n > 0)
		return MT_EXIT_OK;
	mt_error("%s: recording %" PRId64
		 " has no batch that a rule could be rated on; 'moetrace oea %s' "
		 "says why",
		 trace->path, frame->recording_id, trace->path);
	return MT_EXIT_NOT_FOUND;
}

static double after_of(const struct point *point)
{
	return point->after;
}

static double before_of(const struct point *point)
{
	return point->before;
}

static double uniform_of(const struct point *point)
{
	return point->uniform_after;
}

static void curve_draw(const struct mt_svg *svg, const struct points *points,
		       const struct mt_plot_axis *x, const struct mt_plot_axis *y,
		       enum mt_svg_class class, double (*value_of)(const struct point *))
{
	fprintf(svg->out, "<polyline class=\"%s\" points=\"", mt_svg_class(class));
	for (size_t i = 0; i < points->n; i++)
		if (value_of(&points->points[i]) >= 0)
			fprintf(svg->out, "%.2f,%.2f ",
				mt_plot_axis_at(x, (double)points->points[i].k0),
				mt_plot_axis_at(y, value_of(&points->points[i])));
	fputs("\"/>\n", svg->out);
}

static void dots_draw(const struct mt_svg *svg, const struct points *points,
		      const struct mt_plot_axis *x, const struct mt_plot_axis *y)
{
	for (size_t i = 0; i < points->n; i++) {
		const struct point *point = &points->points[i];

		if (point->after < 0)
			continue;
		fprintf(svg->out, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"4\" class=\"%s\"><title>",
			mt_plot_axis_at(x, (double)point->k0), mt_plot_axis_at(y, point->after),
			mt_svg_class(MT_SVG_ACCENT));
		mt_svg_escape(svg, point->title ? point->title : "");
		fputs("</title></circle>\n", svg->out);
	}
}

static void key_draw(const struct mt_svg *svg, double x, double y, enum mt_svg_class class,
		     const char *text)
{
	mt_svg_line(svg, x, y - 4, x + 28, y - 4, class);
	mt_svg_text(svg, x + 34, y, MT_SVG_TEXT, MT_SVG_START, "%s", text);
}

static void draw(const struct mt_plot_sheet *sheet, const struct points *points)
{
	const double bottom = sheet->top + ABOVE_PX + HEIGHT_PX;
	const struct mt_plot_axis y =
		mt_plot_axis_make(0, points->most, 6, bottom, sheet->top + ABOVE_PX);
	struct mt_plot_axis x = mt_plot_axis_make(0, (double)points->points[points->n - 1].k0, 12,
						  MT_PLOT_LEFT_PX, MT_PLOT_LEFT_PX + WIDTH_PX);

	mt_plot_axis_draw_y(sheet, &y, MT_PLOT_LEFT_PX, MT_PLOT_LEFT_PX + WIDTH_PX,
			    "active experts a layer and pass, mean");
	mt_plot_axis_draw_x(sheet, &x, bottom, "k0, the experts that each row keeps in any case");
	curve_draw(&sheet->svg, points, &x, &y, MT_SVG_MEAN, uniform_of);
	curve_draw(&sheet->svg, points, &x, &y, MT_SVG_SECOND, before_of);
	curve_draw(&sheet->svg, points, &x, &y, MT_SVG_CURVE, after_of);
	dots_draw(&sheet->svg, points, &x, &y);
	key_draw(&sheet->svg, MT_PLOT_LEFT_PX, bottom + 54, MT_SVG_SECOND, "as recorded");
	key_draw(&sheet->svg, MT_PLOT_LEFT_PX + 140, bottom + 54, MT_SVG_CURVE, "under the rule");
	key_draw(&sheet->svg, MT_PLOT_LEFT_PX + 290, bottom + 54, MT_SVG_MEAN,
		 "under it, if rows had no preference");
}

static int write(const struct mt_plot_options *options, struct mt_plot_frame *frame,
		 const struct points *points)
{
	struct mt_plot_sheet sheet;
	struct mt_out_file file;
	char title[256];
	int status = mt_out_file_begin(options->output, options->overwrites, &file);

	if (status != MT_EXIT_OK)
		return status;
	snprintf(title, sizeof(title), "Active experts under %.100s, %s",
		 options->rule ? options->rule : "oea", points->phase);
	mt_plot_sheet_begin(
		&sheet, file.out, options, frame, MT_PLOT_LEFT_PX + WIDTH_PX + 24,
		ABOVE_PX + HEIGHT_PX + BELOW_PX, title,
		"Curves over k0; each point tells the figures that moetrace oea prints.");
	draw(&sheet, points);
	mt_plot_sheet_end(&sheet, frame);
	return mt_out_file_finish(&file);
}

int mt_plot_oea(const struct mt_trace *trace, const struct mt_plot_options *options,
		struct mt_plot_frame *frame)
{
	struct points *points = calloc(1, sizeof(*points));
	int status =
		mt_trace_mode_check(trace, (uint64_t)frame->recording_id, "per_token", "plot oea");

	if (!points) {
		mt_error("%s: out of memory", trace->path);
		return MT_EXIT_FAILED;
	}
	if (status == MT_EXIT_OK)
		status = points_read(trace, options, frame, points);
	if (status == MT_EXIT_OK)
		status = write(options, frame, points);
	while (points->n > 0)
		free(points->points[--points->n].title);
	free(points);
	return status;
}
