/* SPDX-License-Identifier: MIT */
/*
 * The balance of the layers as bars: the busiest expert over the mean. The figures are the rows of
 * question balance, which 'moetrace balance' prints.
 */
#include "cli/plot.h"

#include <inttypes.h>
#include <stdlib.h>

#include "cli/out_file.h"

#define HEIGHT_PX 300
#define BELOW_PX  44
#define ABOVE_PX  24
/* From so many times the mean on a bar has another colour and a mark. */
#define HOT_TIMES 3

struct bar {
	int64_t layer, hottest_expert, dead_experts, tokens;
	double max_over_mean, balancedness; /* below 0: no token */
	double mean_active_experts;	    /* below 0: not known */
};

struct bars {
	struct bar *bars; /* [n] */
	size_t n;
	double most;
};

static int column_of(sqlite3_stmt *stmt, const char *name)
{
	for (int i = 0; i < sqlite3_column_count(stmt); i++)
		if (sqlite3_stricmp(sqlite3_column_name(stmt, i), name) == 0)
			return i;
	return -1;
}

static double real_or(sqlite3_stmt *stmt, const char *name, double otherwise)
{
	const int column = column_of(stmt, name);

	return column < 0 || sqlite3_column_type(stmt, column) == SQLITE_NULL
		       ? otherwise
		       : sqlite3_column_double(stmt, column);
}

static bool bar_add(struct bars *bars, sqlite3_stmt *stmt)
{
	struct bar *grown = realloc(bars->bars, (bars->n + 1) * sizeof(*grown));

	if (!grown)
		return false;
	bars->bars = grown;
	grown[bars->n++] = (struct bar){
		.layer = (int64_t)real_or(stmt, "layer", 0),
		.hottest_expert = (int64_t)real_or(stmt, "hottest_expert", -1),
		.dead_experts = (int64_t)real_or(stmt, "dead_experts", 0),
		.tokens = (int64_t)real_or(stmt, "tokens", 0),
		.max_over_mean = real_or(stmt, "max_over_mean", -1),
		.balancedness = real_or(stmt, "balancedness", -1),
		.mean_active_experts = real_or(stmt, "mean_active_experts", -1),
	};
	if (grown[bars->n - 1].max_over_mean > bars->most)
		bars->most = grown[bars->n - 1].max_over_mean;
	return true;
}

static int bars_read(const struct mt_trace *trace, const struct mt_plot_options *options,
		     const struct mt_plot_frame *frame, struct bars *bars)
{
	sqlite3_stmt *stmt = mt_plot_question(trace, "balance", options, frame);
	bool has_memory = true;
	int rc = SQLITE_DONE;

	if (!stmt)
		return MT_EXIT_FAILED;
	while (has_memory && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
		if ((int64_t)real_or(stmt, "model_id", 0) == frame->model_id)
			has_memory = bar_add(bars, stmt);
	sqlite3_finalize(stmt);
	if (!has_memory)
		mt_error("%s: out of memory", trace->path);
	else if (rc != SQLITE_DONE)
		return mt_trace_error(trace);
	else if (bars->n == 0)
		mt_error("%s: recording %" PRId64 " has no load of model %" PRId64
			 "; 'moetrace info %s' "
			 "lists what it has",
			 trace->path, frame->recording_id, frame->model_id, trace->path);
	else
		return MT_EXIT_OK;
	return has_memory ? MT_EXIT_NOT_FOUND : MT_EXIT_FAILED;
}

static void bar_draw(const struct mt_svg *svg, const struct bar *bar, const struct mt_plot_axis *y,
		     double x, double width)
{
	const bool is_hot = bar->max_over_mean > HOT_TIMES;
	const double top = mt_plot_axis_at(y, bar->max_over_mean > 0 ? bar->max_over_mean : 0);

	fprintf(svg->out, "<rect x=\"%g\" y=\"%.2f\" width=\"%g\" height=\"%.2f\" class=\"%s\">", x,
		top, width, y->from_px - top, mt_svg_class(is_hot ? MT_SVG_WARN : MT_SVG_ACCENT));
	fprintf(svg->out, "<title>layer %" PRId64 ": ", bar->layer);
	if (bar->max_over_mean >= 0)
		fprintf(svg->out, "max_over_mean %.6g, balancedness %.6g, hottest_expert %" PRId64,
			bar->max_over_mean, bar->balancedness, bar->hottest_expert);
	else
		fputs("no token", svg->out);
	fprintf(svg->out, ", tokens %" PRId64 ", dead_experts %" PRId64, bar->tokens,
		bar->dead_experts);
	if (bar->mean_active_experts >= 0)
		fprintf(svg->out, ", mean_active_experts %.6g", bar->mean_active_experts);
	fputs("</title></rect>\n", svg->out);
	if (is_hot)
		mt_svg_text(svg, x + width / 2, top - 3, MT_SVG_TEXT, MT_SVG_MIDDLE, "!");
}

static void bars_draw(const struct mt_plot_sheet *sheet, const struct bars *bars, double width)
{
	const double bottom = sheet->top + ABOVE_PX + HEIGHT_PX;
	const struct mt_plot_axis y = mt_plot_axis_make(0, bars->most > 2 ? bars->most : 2, 6,
							bottom, sheet->top + ABOVE_PX);
	const double step = width / (double)bars->n;
	const size_t every = (size_t)(30 / step) + 1;

	mt_plot_axis_draw_y(sheet, &y, MT_PLOT_LEFT_PX, MT_PLOT_LEFT_PX + width,
			    "tokens of the busiest expert / mean of all");
	for (size_t i = 0; i < bars->n; i++) {
		const double x = MT_PLOT_LEFT_PX + (double)i * step;

		bar_draw(&sheet->svg, &bars->bars[i], &y, x + step * 0.15, step * 0.7);
		if (i % every == 0)
			mt_svg_text(&sheet->svg, x + step / 2, bottom + 15, MT_SVG_QUIET,
				    MT_SVG_MIDDLE, "%" PRId64, bars->bars[i].layer);
	}
	mt_svg_line(&sheet->svg, MT_PLOT_LEFT_PX, mt_plot_axis_at(&y, 1), MT_PLOT_LEFT_PX + width,
		    mt_plot_axis_at(&y, 1), MT_SVG_MEAN);
	mt_svg_text(&sheet->svg, MT_PLOT_LEFT_PX, bottom + 31, MT_SVG_QUIET, MT_SVG_START,
		    "layer; the dashed line is a layer that is even, ! is more than %d", HOT_TIMES);
}

int mt_plot_balance(const struct mt_trace *trace, const struct mt_plot_options *options,
		    struct mt_plot_frame *frame)
{
	struct bars bars = {.n = 0};
	struct mt_plot_sheet sheet;
	struct mt_out_file file;
	double width;
	int status = bars_read(trace, options, frame, &bars);

	if (status == MT_EXIT_OK)
		status = mt_out_file_begin(options->output, options->overwrites, &file);
	if (status == MT_EXIT_OK) {
		width = (double)(bars.n < 16 ? 480 : bars.n > 64 ? bars.n * 15 : 960);
		mt_plot_sheet_begin(&sheet, file.out, options, frame, MT_PLOT_LEFT_PX + width + 24,
				    ABOVE_PX + HEIGHT_PX + BELOW_PX, "Balance of the layers",
				    "A bar a layer: its busiest expert over the mean.");
		bars_draw(&sheet, &bars, width);
		mt_plot_sheet_end(&sheet, frame);
		status = mt_out_file_finish(&file);
	}
	free(bars.bars);
	return status;
}
