/* SPDX-License-Identifier: MIT */
/*
 * Power over time, a curve for each part of a device, under the limits in force. The figures are
 * the rows of view power, which 'moetrace power --readings' prints.
 */
#include "cli/plot.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/out_file.h"

#define WIDTH_PX   960
#define HEIGHT_PX  320
#define ABOVE_PX   24
#define KEY_PX	   18
#define MAX_SERIES 16
/* Readings with a <title> of their own; of more the curve alone is drawn. */
#define MAX_TITLES 5000

struct reading {
	int64_t time_ns;
	double watts, limit; /* limit below 0: not known */
	size_t series;
};

struct readings {
	struct reading *readings; /* [n], by series and time */
	size_t n, size;
	char names[MAX_SERIES][96];
	size_t n_series;
	uint64_t n_left_out; /* of series beyond MAX_SERIES */
	int64_t first_ns, last_ns;
	double most;
};

/* Of Okabe and Ito, each with dashes of its own, so that none is told by colour alone. */
static const struct {
	const char *color, *dashes;
} styles[] = {
	{"#0072b2", "none"},	{"#d55e00", "7 3"}, {"#009e73", "2 2"},
	{"#cc79a7", "9 3 2 3"}, {"#e69f00", "4 4"}, {"#56b4e9", "12 3"},
};

#define N_STYLES (sizeof(styles) / sizeof(styles[0]))

#define SQL_READINGS                                                                       \
	"SELECT d.kind || ' ' || p.device_id || ', ' || p.domain, p.time_ns, "             \
	"coalesce(p.instant_w, p.counted_w, p.average_w), p.limit_w FROM power AS p JOIN " \
	"device AS d USING (device_id) WHERE p.recording_id = ?1 ORDER BY p.device_id, "   \
	"p.domain, p.time_ns, p.source"

static bool reading_add(struct readings *all, const struct reading *reading)
{
	if (all->n == all->size) {
		const size_t size = all->size ? all->size * 2 : 1024;
		struct reading *grown = realloc(all->readings, size * sizeof(*grown));

		if (!grown)
			return false;
		all->readings = grown;
		all->size = size;
	}
	if (all->n == 0 || reading->time_ns < all->first_ns)
		all->first_ns = reading->time_ns;
	if (all->n == 0 || reading->time_ns > all->last_ns)
		all->last_ns = reading->time_ns;
	all->most = reading->watts > all->most ? reading->watts : all->most;
	all->most = reading->limit > all->most ? reading->limit : all->most;
	all->readings[all->n++] = *reading;
	return true;
}

static bool row_take(struct readings *all, sqlite3_stmt *stmt)
{
	const char *name = (const char *)sqlite3_column_text(stmt, 0);
	struct reading reading = {
		.time_ns = sqlite3_column_int64(stmt, 1),
		.watts = sqlite3_column_double(stmt, 2),
		.limit = sqlite3_column_type(stmt, 3) == SQLITE_NULL
				 ? -1
				 : sqlite3_column_double(stmt, 3),
	};

	if (!name || sqlite3_column_type(stmt, 2) == SQLITE_NULL)
		return true;
	if (all->n_series == 0 || strncmp(all->names[all->n_series - 1], name, 95) != 0) {
		if (all->n_series == MAX_SERIES) {
			all->n_left_out++;
			return true;
		}
		snprintf(all->names[all->n_series++], 96, "%s", name);
	}
	reading.series = all->n_series - 1;
	return reading_add(all, &reading);
}

static int readings_read(const struct mt_trace *trace, const struct mt_plot_frame *frame,
			 struct readings *all)
{
	sqlite3_stmt *stmt =
		mt_trace_prepare_recording(trace, SQL_READINGS, (uint64_t)frame->recording_id);
	bool has_memory = true;
	int rc = SQLITE_DONE;

	if (!stmt)
		return MT_EXIT_FAILED;
	while (has_memory && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
		has_memory = row_take(all, stmt);
	sqlite3_finalize(stmt);
	if (!has_memory)
		mt_error("%s: out of memory", trace->path);
	else if (rc != SQLITE_DONE)
		return mt_trace_error(trace);
	else if (all->n == 0)
		mt_error("%s: recording %" PRId64
			 " has no readings of power; 'moetrace power %s' says why",
			 trace->path, frame->recording_id, trace->path);
	else
		return MT_EXIT_OK;
	return has_memory ? MT_EXIT_NOT_FOUND : MT_EXIT_FAILED;
}

static const struct unit {
	double ns;
	const char *name;
} units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "\u00b5s"}, {1, "ns"}};

/* The largest one that the time has some of. */
static const struct unit *unit_of(const struct readings *all)
{
	const struct unit *unit = units;

	while (unit->ns > 1 && (double)(all->last_ns - all->first_ns) < 2 * unit->ns)
		unit++;
	return unit;
}

static double time_of(const struct readings *all, int64_t time_ns)
{
	return (double)(time_ns - all->first_ns) / unit_of(all)->ns;
}

/* Of the series that begins at reading @i; returns where the next one begins. */
static size_t series_draw(const struct mt_svg *svg, const struct readings *all, size_t i,
			  const struct mt_plot_axis *x, const struct mt_plot_axis *y)
{
	const size_t series = all->readings[i].series;
	size_t end = i;

	fprintf(svg->out,
		"<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" "
		"stroke-dasharray=\"%s\" points=\"",
		styles[series % N_STYLES].color, styles[series % N_STYLES].dashes);
	for (; end < all->n && all->readings[end].series == series; end++)
		fprintf(svg->out, "%.2f,%.2f ",
			mt_plot_axis_at(x, time_of(all, all->readings[end].time_ns)),
			mt_plot_axis_at(y, all->readings[end].watts));
	fprintf(svg->out, "\"/>\n<polyline class=\"%s\" points=\"", mt_svg_class(MT_SVG_LIMIT));
	for (size_t j = i; j < end; j++)
		if (all->readings[j].limit >= 0)
			fprintf(svg->out, "%.2f,%.2f ",
				mt_plot_axis_at(x, time_of(all, all->readings[j].time_ns)),
				mt_plot_axis_at(y, all->readings[j].limit));
	fputs("\"/>\n", svg->out);
	return end;
}

static void dots_draw(const struct mt_svg *svg, const struct readings *all,
		      const struct mt_plot_axis *x, const struct mt_plot_axis *y)
{
	for (size_t i = 0; i < all->n && all->n <= MAX_TITLES; i++) {
		const struct reading *reading = &all->readings[i];

		fprintf(svg->out, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"2.5\" fill=\"%s\"><title>",
			mt_plot_axis_at(x, time_of(all, reading->time_ns)),
			mt_plot_axis_at(y, reading->watts),
			styles[reading->series % N_STYLES].color);
		mt_svg_escape(svg, all->names[reading->series]);
		fprintf(svg->out, ": time_ns %" PRId64 ", %.15g W", reading->time_ns,
			reading->watts);
		if (reading->limit >= 0)
			fprintf(svg->out, ", limit_w %.15g", reading->limit);
		fputs("</title></circle>\n", svg->out);
	}
}

static void keys_draw(const struct mt_plot_sheet *sheet, const struct readings *all, double y)
{
	for (size_t i = 0; i < all->n_series; i++, y += KEY_PX) {
		fprintf(sheet->svg.out,
			"<line x1=\"%d\" y1=\"%g\" x2=\"%d\" y2=\"%g\" stroke=\"%s\" "
			"stroke-width=\"1.5\" "
			"stroke-dasharray=\"%s\"/>\n",
			MT_PLOT_LEFT_PX, y - 4, MT_PLOT_LEFT_PX + 40, y - 4,
			styles[i % N_STYLES].color, styles[i % N_STYLES].dashes);
		mt_svg_text(&sheet->svg, MT_PLOT_LEFT_PX + 48, y, MT_SVG_TEXT, MT_SVG_START, "%s",
			    all->names[i]);
	}
	mt_svg_line(&sheet->svg, MT_PLOT_LEFT_PX, y - 4, MT_PLOT_LEFT_PX + 40, y - 4, MT_SVG_LIMIT);
	mt_svg_text(&sheet->svg, MT_PLOT_LEFT_PX + 48, y, MT_SVG_TEXT, MT_SVG_START,
		    "its limit, where known");
}

static void draw(const struct mt_plot_sheet *sheet, const struct readings *all)
{
	const double bottom = sheet->top + ABOVE_PX + HEIGHT_PX;
	const struct mt_plot_axis y =
		mt_plot_axis_make(0, all->most, 6, bottom, sheet->top + ABOVE_PX);
	const struct mt_plot_axis x = mt_plot_axis_make(
		0, time_of(all, all->last_ns), 10, MT_PLOT_LEFT_PX, MT_PLOT_LEFT_PX + WIDTH_PX);
	char name[64];

	mt_plot_axis_draw_y(sheet, &y, MT_PLOT_LEFT_PX, MT_PLOT_LEFT_PX + WIDTH_PX, "power (W)");
	snprintf(name, sizeof(name), "time since the first reading (%s)", unit_of(all)->name);
	mt_plot_axis_draw_x(sheet, &x, bottom, name);
	for (size_t i = 0; i < all->n;)
		i = series_draw(&sheet->svg, all, i, &x, &y);
	dots_draw(&sheet->svg, all, &x, &y);
	keys_draw(sheet, all, bottom + 54);
}

static int write(const struct mt_plot_options *options, struct mt_plot_frame *frame,
		 const struct readings *all)
{
	struct mt_plot_sheet sheet;
	struct mt_out_file file;
	int status = mt_out_file_begin(options->output, options->overwrites, &file);

	if (status != MT_EXIT_OK)
		return status;
	if (all->n > MAX_TITLES)
		mt_plot_note(frame, "%zu readings are too many for figures of their own.", all->n);
	if (all->n_left_out)
		mt_plot_note(frame, "%" PRIu64 " readings of further devices are left out.",
			     all->n_left_out);
	mt_plot_sheet_begin(
		&sheet, file.out, options, frame, MT_PLOT_LEFT_PX + WIDTH_PX + 24,
		ABOVE_PX + HEIGHT_PX + 54 + KEY_PX * (double)(all->n_series + 1), "Power",
		"A curve for each part of a device, under its limit; each point is a reading.");
	draw(&sheet, all);
	mt_plot_sheet_end(&sheet, frame);
	return mt_out_file_finish(&file);
}

int mt_plot_power(const struct mt_trace *trace, const struct mt_plot_options *options,
		  struct mt_plot_frame *frame)
{
	struct readings all = {.n = 0};
	int status = readings_read(trace, frame, &all);

	if (status == MT_EXIT_OK)
		status = write(options, frame, &all);
	free(all.readings);
	return status;
}
