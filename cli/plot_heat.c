/* SPDX-License-Identifier: MIT */
/*
 * The heatmap of layers and experts. Cells lie on whole pixels, so that no seam shows between them;
 * each has its figures in a <title>. Experts that stand out have a mark besides their colour, and
 * how even a layer is stands beside it as a bar and a number.
 */
#include "cli/plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/out_file.h"

#define SIDE_PX		   168 /* right of the cells */
#define BELOW_PX	   100 /* axis and legend */
#define ABOVE_PX	   20
#define LEGEND_PX	   256
#define MAX_CELLS_WIDTH_PX 1024

/* From so many times the mean on an expert has a mark, a layer another colour. */
#define HOT_TIMES 3

struct heat {
	const struct mt_plot_load *load;
	const struct mt_plot_options *options;
	struct mt_plot_sheet *sheet;
	uint32_t cell_width, cell_height;
	double left, top, side;
};

static uint32_t clamp(uint32_t value, uint32_t low, uint32_t high)
{
	return value < low ? low : value > high ? high : value;
}

static const char *value_name(enum mt_plot_value value)
{
	static const char *const names[] = {
		[MT_PLOT_TOKENS] = "tokens",
		[MT_PLOT_SHARE] = "share of the layer",
		[MT_PLOT_TIMES] = "times the mean",
		[MT_PLOT_WEIGHT] = "mean weight",
	};

	return names[value];
}

/* ---- cells ---- */

static double times_of(const struct heat *heat, uint32_t row, double tokens)
{
	const struct mt_plot_balance *balance = &heat->load->balance[row];

	return balance->tokens > 0 ? tokens * heat->load->layers[row].n_experts / balance->tokens
				   : NAN;
}

static void cell_title(const struct heat *heat, uint32_t row, uint32_t expert)
{
	const struct mt_plot_load *load = heat->load;
	const size_t cell = (size_t)row * load->n_slots + expert;
	const double tokens = load->tokens[cell], sum = load->balance[row].tokens;
	FILE *out = heat->sheet->svg.out;

	fprintf(out, "<title>layer %" PRId64 ", expert %" PRIu32 ": %.0f tokens",
		load->layers[row].layer, expert, tokens);
	if (sum > 0)
		fprintf(out, ", share %.6g, %.6g times the mean", tokens / sum,
			times_of(heat, row, tokens));
	if (load->weights && load->weights[cell] >= 0)
		fprintf(out, ", mean weight %.6g", load->weights[cell]);
	if (load->ranks)
		fprintf(out, ", rank %" PRIu32, load->ranks[cell]);
	fputs("</title>", out);
}

static void cell_draw(const struct heat *heat, uint32_t row, uint32_t column)
{
	const struct mt_plot_load *load = heat->load;
	const size_t base = (size_t)row * load->n_slots;
	const uint32_t expert = load->order ? load->order[base + column] : column;
	const int index = mt_plot_color_index(load->values[base + expert], &load->scale);
	FILE *out = heat->sheet->svg.out;

	if (expert >= load->layers[row].n_slots)
		return;
	fprintf(out, "<rect x=\"%g\" y=\"%g\" width=\"%" PRIu32 "\" height=\"%" PRIu32 "\" ",
		heat->left + (double)column * heat->cell_width,
		heat->top + (double)row * heat->cell_height, heat->cell_width, heat->cell_height);
	if (index >= 0)
		fprintf(out, "fill=\"#%06" PRIx32 "\">",
			mt_plot_color(index, load->scale.is_difference));
	else
		fprintf(out, "class=\"%s\">", mt_svg_class(MT_SVG_PANEL));
	cell_title(heat, row, expert);
	fputs("</rect>\n", out);
}

/* Black and white, so that it is seen on every colour. */
static bool mark_draw(const struct heat *heat, uint32_t row, uint32_t column)
{
	const struct mt_plot_load *load = heat->load;
	const size_t base = (size_t)row * load->n_slots;
	const uint32_t expert = load->order ? load->order[base + column] : column;
	const double mean = load->balance[row].tokens / load->layers[row].n_experts;
	const double size = fmin(heat->cell_width, heat->cell_height);

	/* A few tokens among many experts are no sign of anything. */
	if (expert >= load->layers[row].n_experts ||
	    load->tokens[base + expert] < HOT_TIMES * fmax(1, mean))
		return false;
	fprintf(heat->sheet->svg.out,
		"<circle cx=\"%g\" cy=\"%g\" r=\"%g\" fill=\"#fff\" stroke=\"#000\" "
		"stroke-width=\"0.7\" pointer-events=\"none\"/>\n",
		heat->left + (column + 0.5) * heat->cell_width,
		heat->top + (row + 0.5) * heat->cell_height, fmin(3, fmax(1.4, size * 0.3)));
	return true;
}

/* Between the ranks of a layer. */
static void ranks_draw(const struct heat *heat, uint32_t row)
{
	const struct mt_plot_load *load = heat->load;
	const size_t base = (size_t)row * load->n_slots;

	for (uint32_t i = 1; i < load->layers[row].n_slots; i++) {
		const double x = heat->left + (double)i * heat->cell_width;

		if (load->ranks[base + load->order[base + i]] ==
		    load->ranks[base + load->order[base + i - 1]])
			continue;
		fprintf(heat->sheet->svg.out,
			"<path d=\"M%g %gv%" PRIu32 "\" stroke=\"#fff\" stroke-width=\"1\" "
			"pointer-events=\"none\"/>\n",
			x, heat->top + (double)row * heat->cell_height, heat->cell_height);
	}
}

/* Returns how many have a mark. */
static uint32_t cells_draw(const struct heat *heat)
{
	const struct mt_plot_load *load = heat->load;
	uint32_t n_marks = 0;

	fputs("<g shape-rendering=\"crispEdges\">\n", heat->sheet->svg.out);
	for (uint32_t row = 0; row < load->n_layers; row++) {
		for (uint32_t column = 0; column < load->n_slots; column++)
			cell_draw(heat, row, column);
		if (load->ranks)
			ranks_draw(heat, row);
	}
	fputs("</g>\n", heat->sheet->svg.out);
	for (uint32_t row = 0; row < load->n_layers; row++)
		for (uint32_t column = 0; column < load->n_slots; column++)
			n_marks += mark_draw(heat, row, column);
	return n_marks;
}

/* ---- axes ---- */

/* Labels every so many, so that each has @least pixels. */
static uint32_t step_of(uint32_t n, double size_px, double least)
{
	static const uint32_t steps[] = {1,  2,	 4,  5,	  8,   10,  16,	 20,
					 32, 50, 64, 100, 128, 256, 512, 1024};

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if ((double)n / steps[i] * least <= size_px)
			return steps[i];
	return n;
}

static const char *order_text(enum mt_plot_sort sort)
{
	static const char *const texts[] = {
		[MT_PLOT_BY_ID] = "expert",
		[MT_PLOT_BY_LOAD] = "experts, the busiest of each layer first",
		[MT_PLOT_BY_RANK] = "experts, those of a rank together, the busiest of each first",
	};

	return texts[sort];
}

static void axes_draw(const struct heat *heat)
{
	const struct mt_plot_load *load = heat->load;
	const struct mt_svg *svg = &heat->sheet->svg;
	const double width = (double)load->n_slots * heat->cell_width;
	const double height = (double)load->n_layers * heat->cell_height;
	const uint32_t every = step_of(load->n_layers, height, 13);
	const uint32_t step = step_of(load->n_slots, width, 36);

	for (uint32_t row = 0; row < load->n_layers; row += every)
		mt_svg_text(svg, heat->left - 6, heat->top + (row + 0.5) * heat->cell_height + 4,
			    MT_SVG_QUIET, MT_SVG_END, "L%" PRId64 "%s", load->layers[row].layer,
			    load->layers[row].is_hash ? "#" : "");
	for (uint32_t i = 0; i < load->n_slots; i += step)
		mt_svg_text(svg, heat->left + (i + 0.5) * heat->cell_width, heat->top + height + 13,
			    MT_SVG_QUIET, MT_SVG_MIDDLE, "%" PRIu32, i);
	mt_svg_text(svg, heat->left, heat->top + height + 29, MT_SVG_QUIET, MT_SVG_START, "%s%s",
		    order_text(heat->options->sort),
		    every > 1 ? "; down: layers, some of which have no label" : "; down: layers");
}

/* ---- how even each layer is ---- */

static void balance_title(const struct heat *heat, uint32_t row)
{
	const struct mt_plot_balance *balance = &heat->load->balance[row];

	fprintf(heat->sheet->svg.out,
		"<title>layer %" PRId64
		": max_over_mean %.6g, balancedness %.6g, hottest_expert %" PRId64
		", tokens %.0f, dead_experts %" PRIu32 "</title>",
		heat->load->layers[row].layer, balance->max_over_mean, balance->balancedness,
		balance->hottest, balance->tokens, balance->dead);
}

static void side_row_draw(const struct heat *heat, uint32_t row, double room, double most,
			  bool has_text)
{
	const struct mt_plot_balance *balance = &heat->load->balance[row];
	const double middle = heat->top + (row + 0.5) * heat->cell_height;
	const double length = balance->max_over_mean / most * room;
	char text[MT_SVG_NUMBER_BYTES];

	if (!(balance->max_over_mean > 0))
		return;
	fprintf(heat->sheet->svg.out,
		"<rect x=\"%g\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" class=\"%s\">",
		heat->side, middle - heat->cell_height * 0.35, length, heat->cell_height * 0.7,
		mt_svg_class(balance->max_over_mean > HOT_TIMES ? MT_SVG_WARN : MT_SVG_ACCENT));
	balance_title(heat, row);
	fputs("</rect>\n", heat->sheet->svg.out);
	if (has_text)
		mt_svg_text(&heat->sheet->svg, heat->side + length + 4, middle + 4, MT_SVG_TEXT,
			    MT_SVG_START, "%s%s", mt_svg_number(balance->max_over_mean, 2, text),
			    balance->max_over_mean > HOT_TIMES ? " !" : "");
}

static void side_draw(const struct heat *heat)
{
	const struct mt_plot_load *load = heat->load;
	const double height = (double)load->n_layers * heat->cell_height;
	const uint32_t every = step_of(load->n_layers, height, 12);
	const double room = SIDE_PX - 76;
	double most = 2;

	for (uint32_t row = 0; row < load->n_layers; row++)
		if (load->balance[row].max_over_mean > most)
			most = load->balance[row].max_over_mean;
	mt_svg_text(&heat->sheet->svg, heat->side, heat->top - 6, MT_SVG_QUIET, MT_SVG_START,
		    "busiest / mean");
	for (uint32_t row = 0; row < load->n_layers; row++)
		side_row_draw(heat, row, room, most, row % every == 0);
	mt_svg_line(&heat->sheet->svg, heat->side + room / most, heat->top,
		    heat->side + room / most, heat->top + height, MT_SVG_MEAN);
}

/* ---- the legend ---- */

static void ramp_draw(const struct heat *heat, double x, double y)
{
	const bool is_difference = heat->load->scale.is_difference;
	FILE *out = heat->sheet->svg.out;

	fputs("<linearGradient id=\"scale\">", out);
	for (int i = 0; i < MT_PLOT_COLORS; i += 15)
		fprintf(out, "<stop offset=\"%.4f\" stop-color=\"#%06" PRIx32 "\"/>",
			i / (MT_PLOT_COLORS - 1.0), mt_plot_color(i, is_difference));
	fprintf(out,
		"</linearGradient>\n<rect x=\"%g\" y=\"%g\" width=\"%d\" height=\"10\" "
		"fill=\"url(#scale)\"/>\n",
		x, y, LEGEND_PX);
}

static void legend_texts(const struct mt_plot_scale *scale, char texts[3][MT_SVG_NUMBER_BYTES + 8])
{
	char number[MT_SVG_NUMBER_BYTES];

	if (scale->is_difference) {
		mt_svg_number(scale->to, 1, number);
		snprintf(texts[0], sizeof(texts[0]), "1/%s", number);
		snprintf(texts[1], sizeof(texts[1]), "the mean");
		snprintf(texts[2], sizeof(texts[2]), "%s \u00d7", number);
		return;
	}
	snprintf(texts[0], sizeof(texts[0]), "%s",
		 mt_svg_number(scale->is_log ? scale->from : 0, 3, number));
	if (scale->is_log)
		snprintf(texts[1], sizeof(texts[1]), "logarithmic");
	else
		snprintf(texts[1], sizeof(texts[1]), "%s", mt_svg_number(scale->to / 2, 3, number));
	snprintf(texts[2], sizeof(texts[2]), "%s", mt_svg_number(scale->to, 3, number));
}

static void legend_draw(const struct heat *heat, uint32_t n_marks)
{
	const struct mt_svg *svg = &heat->sheet->svg;
	const double y = heat->top + (double)heat->load->n_layers * heat->cell_height + 44;
	const double x = heat->left, key = x + LEGEND_PX + 40;
	char texts[3][MT_SVG_NUMBER_BYTES + 8];

	legend_texts(&heat->load->scale, texts);
	ramp_draw(heat, x, y);
	for (int i = 0; i < 3; i++)
		mt_svg_text(svg, x + i * LEGEND_PX / 2.0, y + 23, MT_SVG_TEXT,
			    (enum mt_svg_anchor)i, "%s", texts[i]);
	mt_svg_text(svg, x, y + 38, MT_SVG_QUIET, MT_SVG_START, "%s",
		    value_name(heat->options->value));
	if (n_marks)
		fprintf(svg->out,
			"<circle cx=\"%g\" cy=\"%g\" r=\"3\" fill=\"#fff\" stroke=\"#000\" "
			"stroke-width=\"0.7\"/>\n",
			key, y + 5);
	if (n_marks)
		mt_svg_text(svg, key + 10, y + 9, MT_SVG_TEXT, MT_SVG_START,
			    "at least %d times the mean of its layer, and %d tokens (%" PRIu32 ")",
			    HOT_TIMES, HOT_TIMES, n_marks);
	mt_svg_text(svg, key - 4, y + 24, MT_SVG_TEXT, MT_SVG_START,
		    "!  busiest / mean above %d; the dashed line is 1", HOT_TIMES);
}

/* ---- all of it ---- */

static void title_make(const struct heat *heat, char *title, size_t n_bytes)
{
	const struct mt_plot_options *options = heat->options;

	snprintf(title, n_bytes, "%s by layer and expert, %s%s, %s%.200s",
		 value_name(options->value),
		 strcmp(options->phase, "all") == 0 ? "all phases" : options->phase,
		 strcmp(options->phase, "padding") == 0 ? " alone" : "",
		 options->request     ? "request "
		 : options->attribute ? "requests with "
				      : "all rows",
		 options->request     ? options->request
		 : options->attribute ? options->attribute
				      : "");
}

static void notes_add(const struct heat *heat, struct mt_plot_frame *frame)
{
	const struct mt_plot_load *load = heat->load;
	const struct mt_plot_options *options = heat->options;
	char text[MT_SVG_NUMBER_BYTES];
	bool has_hash = false, has_more = false;
	double tokens = 0;

	for (uint32_t i = 0; i < load->n_layers; i++) {
		has_hash |= load->layers[i].is_hash;
		has_more |= load->layers[i].n_slots > load->layers[i].n_experts;
		tokens += load->balance[i].tokens;
	}
	mt_plot_note(frame, "%s selections of routed experts.", mt_svg_number(tokens, 0, text));
	if (options->first_window)
		mt_plot_note(frame,
			     "Windows %" PRIu64 " to %" PRIu64 " of %" PRIu64
			     ": from %.3f to %.3f s of the session.",
			     options->first_window, options->last_window, load->n_windows,
			     (double)frame->from_ns / 1e9, (double)frame->until_ns / 1e9);
	if (load->padding_tokens > 0 && strcmp(options->phase, "padding") != 0)
		mt_plot_note(
			frame,
			"Selections by padding rows, %s, are not counted: --phase padding shows "
			"them.",
			mt_svg_number(load->padding_tokens, 0, text));
	if (has_hash)
		mt_plot_note(frame, "Layers with # choose experts by token id.");
	if (has_more)
		mt_plot_note(
			frame,
			"Zero experts and shared slots stand right of the routed experts, and are "
			"in no balance.");
}

static int write(const struct heat *heat, struct mt_plot_frame *frame)
{
	const struct mt_plot_load *load = heat->load;
	const double width = (double)load->n_slots * heat->cell_width;
	const double height = (double)load->n_layers * heat->cell_height;
	struct mt_plot_sheet sheet;
	struct heat drawn = *heat;
	struct mt_out_file file;
	char title[512];
	int status = mt_out_file_begin(heat->options->output, heat->options->overwrites, &file);

	if (status != MT_EXIT_OK)
		return status;
	title_make(heat, title, sizeof(title));
	mt_plot_sheet_begin(
		&sheet, file.out, heat->options, frame,
		MT_PLOT_LEFT_PX + fmax(width, 440) + SIDE_PX, ABOVE_PX + height + BELOW_PX, title,
		"Rows are layers, columns experts; each cell and bar tells its figures.");
	drawn.sheet = &sheet;
	drawn.left = MT_PLOT_LEFT_PX;
	drawn.top = sheet.top + ABOVE_PX;
	drawn.side = drawn.left + width + 12;
	axes_draw(&drawn);
	side_draw(&drawn);
	legend_draw(&drawn, cells_draw(&drawn));
	mt_plot_sheet_end(&sheet, frame);
	return mt_out_file_finish(&file);
}

static int modes_check(const struct mt_trace *trace, const struct mt_plot_options *options,
		       const struct mt_plot_frame *frame)
{
	if (!options->request && !options->attribute && options->value != MT_PLOT_WEIGHT)
		return MT_EXIT_OK;
	return mt_trace_mode_check(trace, (uint64_t)frame->recording_id, "per_token",
				   options->request	? "--request"
				   : options->attribute ? "--attribute"
							: "--value weight");
}

int mt_plot_heatmap(const struct mt_trace *trace, const struct mt_plot_options *options,
		    struct mt_plot_frame *frame)
{
	struct heat heat = {.options = options};
	struct mt_plot_load load;
	int status = modes_check(trace, options, frame);

	if (status == MT_EXIT_OK)
		status = mt_plot_load_read(trace, options, frame, &load);
	if (status != MT_EXIT_OK)
		return status;
	heat.load = &load;
	heat.cell_width = clamp(MAX_CELLS_WIDTH_PX / load.n_slots, 2, 24);
	heat.cell_height = clamp(620 / load.n_layers, 7, 30);
	notes_add(&heat, frame);
	status = write(&heat, frame);
	mt_plot_load_free(&load);
	return status;
}
