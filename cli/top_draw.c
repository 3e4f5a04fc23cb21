/* SPDX-License-Identifier: MIT */
/*
 * The screen of `top`: a head with what is always said, losses first, and below it a panel, with
 * others under it as far as there is room.
 */
#include "cli/top.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MIN_ROWS = 12, MIN_COLUMNS = 50, MIN_PANEL_ROWS = 5 };

static const char *const panel_names[MT_TOP_N_PANELS] = {
	[MT_TOP_MAP] = "load",	       [MT_TOP_LAYERS] = "layers",
	[MT_TOP_POWER] = "power",      [MT_TOP_KERNELS] = "kernels",
	[MT_TOP_SOURCES] = "sources",
};

struct page {
	const struct mt_top *top;
	const struct mt_top_frame *frame;
	struct mt_top_view *view;
	struct mt_canvas *canvas;
	int row;
};

/* ---- the head ---- */

static void title_draw(struct page *page)
{
	static const char keys[] = " q quit  ? help ";
	const struct mt_top_facts *facts = &page->top->facts;
	struct mt_canvas *canvas = page->canvas;
	const int end = canvas->n_columns - (page->view->has_keys ? (int)sizeof(keys) : 0);
	char state[256];
	int column;

	mt_top_state_text(facts, state, sizeof(state));
	column = mt_canvas_text(canvas, page->row, 0, end, 0, MT_BOLD, " moetrace top  ");
	column = mt_canvas_text(canvas, page->row, column, end, 0, MT_BOLD,
				facts->end == MT_TOP_LIVE ? "LIVE  " :
				facts->end == MT_TOP_NONE ? "" :
							    "ENDED  ");
	column = mt_canvas_text(canvas, page->row, column, end, 0, 0, page->view->source->path);
	mt_canvas_text(canvas, page->row, column + 2, end, 0, 0, state);
	if (page->view->has_keys)
		mt_canvas_text(canvas, page->row, end, canvas->n_columns, 0, 0, keys);
	mt_canvas_bar(canvas, page->row++, 0);
}

static int name_draw(struct page *page, const char *name)
{
	mt_canvas_text(page->canvas, page->row, 0, 10, MT_COLOR_DIM, 0, name);
	return 10;
}

static void identity_draw(struct page *page)
{
	const struct mt_top_facts *facts = &page->top->facts;
	char window[64];
	int column = name_draw(page, "recording");

	mt_top_window_text(page->frame, window, sizeof(window));
	column = mt_canvas_format(page->canvas, page->row, column, 0, 0, "%" PRId64 ", %s  ",
				  facts->recording_id, facts->mode);
	column = mt_canvas_format(page->canvas, page->row, column, 0, MT_BOLD, "%s  ", window);
	if (page->view->is_paused)
		column = mt_canvas_format(page->canvas, page->row, column, MT_COLOR_WARN, MT_BOLD,
					  "PAUSED  ");
	if (page->top->is_behind)
		column = mt_canvas_format(page->canvas, page->row, column, MT_COLOR_WARN, MT_BOLD,
					  "still reading  ");
	if (facts->n_models > 1)
		column = mt_canvas_format(page->canvas, page->row, column, 0, 0,
					  "%" PRId64 " of %" PRId64 ": ", facts->model_number,
					  facts->n_models);
	mt_canvas_format(page->canvas, page->row, column, 0, 0, "model %s",
			 facts->model[0] ? facts->model : "n/a");
	page->row++;
}

/* What may be wrong has a line of its own, where there is something. */
static void warning_draw(struct page *page, const char *name, const char *text, int color)
{
	if (!text[0])
		return;
	mt_canvas_text(page->canvas, page->row, 0, 10, color, MT_BOLD, name);
	mt_canvas_text(page->canvas, page->row++, 10, page->canvas->n_columns, color, MT_BOLD, text);
}

static void warnings_draw(struct page *page)
{
	char text[2048];

	warning_draw(page, "NOTICE", page->view->source->notice, MT_COLOR_WARN);
	mt_top_loss_text(&page->top->facts, text, sizeof(text));
	warning_draw(page, "LOST", text, MT_COLOR_BAD);
	mt_top_sources_text(&page->top->facts, text, sizeof(text));
	warning_draw(page, "OFF", text, MT_COLOR_WARN);
}

static void throughput_draw(struct page *page)
{
	const struct mt_top_frame *frame = page->frame;
	char a[16], b[16], c[16], d[16], e[16], length[32] = "n/a";
	int column = name_draw(page, "tokens/s");

	column = mt_canvas_format(page->canvas, page->row, column, 0, MT_BOLD, "%6s",
				  mt_top_number(frame->tokens_per_s, a));
	mt_canvas_format(page->canvas, page->row++, column, 0, 0,
			 "  prefill %6s  decode %6s  verify %6s  other %6s",
			 mt_top_number(frame->phase_per_s[MT_TOP_PREFILL], b),
			 mt_top_number(frame->phase_per_s[MT_TOP_DECODE], c),
			 mt_top_number(frame->phase_per_s[MT_TOP_VERIFY], d),
			 mt_top_number(frame->phase_per_s[MT_TOP_OTHER], e));
	column = name_draw(page, "passes/s");
	column = mt_canvas_format(page->canvas, page->row, column, 0, MT_BOLD, "%6s",
				  mt_top_number(frame->passes_per_s, a));
	if (frame->mean_ns >= 0)
		snprintf(length, sizeof(length), "%.2f ms", frame->mean_ns / 1e6);
	column = mt_canvas_format(page->canvas, page->row, column, 0, 0,
				  "  rows a pass %6s  length %s  ",
				  mt_top_number(frame->mean_rows, b), length);
	if (frame->n_partial > 0)
		mt_canvas_format(page->canvas, page->row, column, MT_COLOR_WARN, MT_BOLD,
				 "%" PRId64 " partial", frame->n_partial);
	page->row++;
}

static void active_draw(struct page *page)
{
	const struct mt_top_frame *frame = page->frame;
	uint32_t least = page->top->n_layers ? page->top->layers[0].n_experts : 0, most = least;
	char a[16], of[32];
	int column = name_draw(page, "active");

	/* Layers may have different numbers. */
	for (size_t i = 1; i < page->top->n_layers; i++) {
		const uint32_t n = page->top->layers[i].n_experts;

		least = n < least ? n : least;
		most = n > most ? n : most;
	}
	snprintf(of, sizeof(of), "%" PRIu32, most);
	if (least < most)
		snprintf(of, sizeof(of), "%" PRIu32 " to %" PRIu32, least, most);
	column = mt_canvas_format(page->canvas, page->row, column, 0, MT_BOLD, "%6s",
				  mt_top_number(frame->mean_active, a));
	column = mt_canvas_format(page->canvas, page->row, column, 0, 0,
				  " of %s experts a pass, most %" PRIu64 "  ", of,
				  frame->max_active);
	if (frame->mean_active >= 0)
		mt_canvas_spark(page->canvas, page->row, column, frame->active_by_bucket,
				MT_TOP_BUCKETS, most);
	page->row++;
}

static void balance_draw(struct page *page)
{
	const struct mt_top_frame *frame = page->frame;
	double ratios[128];
	size_t n = frame->n_layers < 128 ? frame->n_layers : 128, i;
	int column = name_draw(page, "balance");

	if (frame->ratio_worst < 0) {
		mt_canvas_text(page->canvas, page->row++, column, page->canvas->n_columns, 0, 0,
			       "n/a: no token in the window");
		return;
	}
	column = mt_canvas_format(page->canvas, page->row, column, 0, 0,
				  "max/mean  p50 %.1f  p95 %.1f  worst %.1f (L%" PRId64
				  ")  Jain %.2f  ",
				  frame->ratio_p50, frame->ratio_p95, frame->ratio_worst,
				  page->top->layers[frame->worst_layer].layer, frame->jain_p50);
	for (i = 0; i < n; i++)
		ratios[i] = frame->layers[i].max_over_mean;
	mt_canvas_spark(page->canvas, page->row++, column, ratios, n, frame->ratio_worst);
}

static void hottest_draw(struct page *page)
{
	const struct mt_top_frame *frame = page->frame;
	int column = name_draw(page, "hottest");
	char text[64];

	for (size_t i = 0; i < frame->n_hottest; i++) {
		const struct mt_top_hot *hot = &frame->hottest[i];

		snprintf(text, sizeof(text), "L%" PRId64 "/e%" PRIu32 " %.1fx",
			 page->top->layers[hot->layer].layer, hot->expert, hot->over_mean);
		if (column + (int)strlen(text) > page->canvas->n_columns)
			break;
		column = mt_canvas_text(page->canvas, page->row, column, page->canvas->n_columns, 0,
					i == 0 ? MT_BOLD : 0, text) +
			 2;
	}
	page->row++;
}

static void watts_text(double watts, char text[16])
{
	if (watts < 0)
		strcpy(text, "n/a");
	else
		snprintf(text, 16, watts < 100 ? "%.1f" : "%.0f", watts < 1e6 ? watts : 1e6);
}

static void meter_draw(struct page *page, const struct mt_top_meter *meter)
{
	double watts[MT_TOP_BUCKETS];
	const double mean = mt_top_meter_mean(page->top, meter, page->frame, watts);
	const bool is_near = meter->limit_w > 0 && meter->last_w > 0.95 * meter->limit_w;
	char last[16], limit[16], temperature[16], average[16], name[32];
	size_t skipped;
	int column, room;

	watts_text(meter->last_w, last);
	watts_text(mean, average);
	watts_text(meter->limit_w, limit);
	watts_text(meter->temperature_c, temperature);
	snprintf(name, sizeof(name), "%s %" PRId64, meter->is_gpu ? "gpu" : "dev", meter->device_id);
	column = mt_canvas_format(page->canvas, page->row, 10, is_near ? MT_COLOR_WARN : 0, MT_BOLD,
				  "%-6s %-9.9s %5s W", name, meter->domain, last);
	column = mt_canvas_format(page->canvas, page->row, column, 0, 0,
				  " of %5s W  mean %5s W  %4s C  ", limit, average, temperature);
	if (meter->held_down_by & ~UINT64_C(1))
		column = mt_canvas_format(page->canvas, page->row, column, MT_COLOR_WARN, MT_BOLD,
					  "HELD DOWN  ");
	/* Where there is no room for all, the newest are seen. */
	room = page->canvas->n_columns > column ? page->canvas->n_columns - column : 0;
	skipped = room < MT_TOP_BUCKETS ? (size_t)(MT_TOP_BUCKETS - room) : 0;
	column = mt_canvas_spark(page->canvas, page->row, column, watts + skipped,
				 MT_TOP_BUCKETS - skipped, meter->limit_w);
	mt_canvas_format(page->canvas, page->row, column, 0, 0, "  %s", meter->name);
	page->row++;
}

static void power_draw(struct page *page, size_t max)
{
	const size_t n = page->top->n_meters;
	size_t i;

	name_draw(page, "power");
	if (n == 0) {
		mt_canvas_text(page->canvas, page->row++, 10, page->canvas->n_columns, 0, 0,
			       "n/a: nothing was read");
		return;
	}
	for (i = 0; i < n && i < max; i++)
		meter_draw(page, &page->top->meters[i]);
	if (i < n)
		mt_canvas_format(page->canvas, page->row++, 10, 0, 0,
				 "... and %zu more: panel power (Tab)", n - i);
}

/* ---- panels ---- */

static void layers_draw(struct page *page, int n_rows)
{
	const struct mt_top_frame *frame = page->frame;
	const size_t shown = n_rows > 1 ? (size_t)n_rows - 1 : 0;
	size_t i = page->view->cursor_layer;

	mt_canvas_text(page->canvas, page->row++, 0, page->canvas->n_columns, MT_COLOR_DIM, 0,
		       "layer  experts      tokens  max/mean   Jain  hottest  without a token");
	i = i >= shown ? i - shown + 1 : 0;
	for (size_t end = i + shown; i < frame->n_layers && i < end; i++) {
		const struct mt_top_balance *balance = &frame->layers[i];
		const struct mt_top_layer *layer = &page->top->layers[i];
		const int attributes = i == page->view->cursor_layer ? MT_REVERSE : 0;

		if (balance->max_over_mean < 0)
			mt_canvas_format(page->canvas, page->row, 0, 0, attributes,
					 "%5" PRId64 "  %7" PRIu32
					 "           0       n/a    n/a      n/a  %15" PRIu32,
					 layer->layer, layer->n_experts, balance->n_dead);
		else
			mt_canvas_format(page->canvas, page->row, 0, 0, attributes,
					 "%5" PRId64 "  %7" PRIu32 "  %10" PRIu64
					 "  %8.2f  %5.3f  %7" PRIu32 "  %15" PRIu32,
					 layer->layer, layer->n_experts, balance->tokens,
					 balance->max_over_mean, balance->jain, balance->hottest,
					 balance->n_dead);
		page->row++;
	}
}

static void bar_draw(struct page *page, int column, double share)
{
	const int n = (int)(share * (page->canvas->n_columns - column) + 0.5);

	for (int i = 0; i < n; i++)
		mt_canvas_put(page->canvas, page->row, column + i,
			      (struct mt_glyph){.character = page->canvas->is_utf8 ? L'\u2588' : L'#',
						.color = MT_COLOR_GOOD});
}

static void kernels_draw(struct page *page, int n_rows)
{
	const struct mt_top_frame *frame = page->frame;
	const int end = page->row + n_rows;

	if (!frame->all_operations_ns) {
		mt_canvas_text(page->canvas, page->row++, 0, page->canvas->n_columns, 0, 0,
			       "n/a: no operation was timed");
		return;
	}
	mt_canvas_format(page->canvas, page->row++, 0, MT_COLOR_DIM, 0,
			 "role               n    total ms   share  of the last %.1f s",
			 frame->recent_span_s);
	for (size_t i = 0; i < MT_TOP_ROLES && page->row < end; i++) {
		const double share =
			(double)frame->operations_ns[i] / (double)frame->all_operations_ns;

		if (!frame->n_operations[i])
			continue;
		mt_canvas_format(page->canvas, page->row, 0, 0, 0,
				 "%-10s %9" PRIu64 " %11.3f  %5.1f%%", mt_top_roles[i],
				 frame->n_operations[i], (double)frame->operations_ns[i] / 1e6,
				 100 * share);
		bar_draw(page, 42, share);
		page->row++;
	}
}

static void sources_draw(struct page *page, int n_rows)
{
	const struct mt_top_facts *facts = &page->top->facts;
	const int end = page->row + n_rows;
	const int begin = page->row;
	size_t i;

	for (i = 0; i < facts->n_losses && page->row < end; i++)
		mt_canvas_format(page->canvas, page->row++, 0, MT_COLOR_BAD, 0, "%s %" PRId64,
				 facts->losses[i].name, facts->losses[i].value);
	for (i = 0; i < facts->n_gaps && page->row < end; i++)
		mt_canvas_format(page->canvas, page->row++, 0, MT_COLOR_BAD, 0,
				 "%" PRId64 " of stream %s: %s", facts->gaps[i].n_lost,
				 facts->gaps[i].stream, facts->gaps[i].reason);
	for (i = 0; i < facts->n_sources && page->row < end; i++)
		if (facts->sources[i].n_dropped > 0)
			mt_canvas_format(page->canvas, page->row++, 0, MT_COLOR_BAD, 0,
					 "%s dropped %" PRId64, facts->sources[i].name,
					 facts->sources[i].n_dropped);
	if (page->row == begin && page->row < end)
		mt_canvas_format(page->canvas, page->row++, 0, MT_COLOR_GOOD, 0,
				 "nothing was lost");
	for (i = 0; i < facts->n_left_out && page->row < end; i++)
		mt_canvas_format(page->canvas, page->row++, 0, 0, 0, "left out: %s %" PRId64,
				 facts->left_out[i].name, facts->left_out[i].value);
	for (i = 0; i < facts->n_sources && page->row < end; i++)
		mt_canvas_format(page->canvas, page->row++, 0, 0, 0, "collector %s is %s%s%s",
				 facts->sources[i].name, facts->sources[i].state,
				 facts->sources[i].reason[0] ? ": " : "", facts->sources[i].reason);
	if (!facts->n_sources && page->row < end)
		mt_canvas_format(page->canvas, page->row++, 0, 0, 0, "no collector was asked for");
	for (i = 0; i < facts->n_notes && page->row < end; i++)
		mt_canvas_format(page->canvas, page->row++, 0, MT_COLOR_WARN, 0, "%s",
				 facts->notes[i]);
}

static void tabs_draw(struct page *page, enum mt_top_panel panel)
{
	int column = 1;

	for (int i = 0; i < MT_TOP_N_PANELS; i++) {
		if (page->view->has_keys || i == (int)panel)
			column = mt_canvas_format(page->canvas, page->row, column, 0,
						  i == (int)panel ? MT_BOLD : 0,
						  i == (int)panel ? "[%s]" : " %s ", panel_names[i]) +
				 1;
	}
	mt_canvas_bar(page->canvas, page->row++, 0);
}

static void panel_draw(struct page *page, enum mt_top_panel panel, int n_rows)
{
	switch (panel) {
	case MT_TOP_MAP:
		page->row += mt_top_map_draw(page->top, page->frame, page->view, page->canvas,
					     page->row, n_rows);
		break;
	case MT_TOP_LAYERS:
		layers_draw(page, n_rows);
		break;
	case MT_TOP_POWER:
		power_draw(page, (size_t)n_rows);
		break;
	case MT_TOP_KERNELS:
		kernels_draw(page, n_rows);
		break;
	default:
		sources_draw(page, n_rows);
	}
}

static void panels_draw(struct page *page)
{
	static const enum mt_top_panel others[] = {MT_TOP_KERNELS, MT_TOP_SOURCES};
	struct mt_canvas *canvas = page->canvas;
	size_t i;

	tabs_draw(page, page->view->panel);
	panel_draw(page, page->view->panel, canvas->n_rows - page->row);
	for (i = 0; page->view->panel == MT_TOP_MAP && i < 2; i++) {
		if (canvas->n_rows - page->row < MIN_PANEL_ROWS)
			break;
		mt_canvas_format(canvas, page->row, 1, 0, MT_BOLD, "%s", panel_names[others[i]]);
		mt_canvas_bar(canvas, page->row++, 0);
		panel_draw(page, others[i], canvas->n_rows - page->row);
	}
}

/* ---- help ---- */

static void help_draw(struct page *page)
{
	static const char *const lines[] = {
		"q          quit                    p      pause, or go on",
		"Tab        the next panel          ?      this text, or back",
		"arrows     move the cell cursor    n      the next model",
		"+  -       longer, shorter window  w      whole recording, or window",
		"s          order of the columns: expert id, load, rank of the expert map",
		"m          pool of a column of several experts: mean, max, p95",
		"l          linear or logarithmic   Ctrl-L draw all of it again",
		"",
		"Rates are of passes that began in the window. Active experts, kernels and power",
		"are of the last seconds in any case. Routed experts alone are in load and",
		"balance, padding in neither; max/mean and Jain's index are of each layer.",
		"LOST, OFF and NOTICE are shown only where there is something to say.",
	};
	size_t i;

	for (i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		mt_canvas_text(page->canvas, page->row++, 1, page->canvas->n_columns, 0, 0,
			       lines[i]);
}

void mt_top_draw(const struct mt_top *top, const struct mt_top_frame *frame,
		 struct mt_top_view *view, struct mt_canvas *canvas)
{
	struct page page = {top, frame, view, canvas, 0};

	mt_canvas_clear(canvas);
	if (canvas->n_rows < MIN_ROWS || canvas->n_columns < MIN_COLUMNS) {
		mt_canvas_format(canvas, 0, 0, 0, 0, "%d x %d is too small", canvas->n_columns,
				 canvas->n_rows);
		mt_canvas_format(canvas, 1, 0, 0, 0, "%d x %d is needed", MIN_COLUMNS, MIN_ROWS);
		return;
	}
	title_draw(&page);
	if (top->facts.end == MT_TOP_NONE || view->has_help) {
		warning_draw(&page, "NOTICE", view->source->notice, MT_COLOR_WARN);
		if (view->has_help)
			help_draw(&page);
		else
			mt_canvas_text(canvas, page.row, 0, canvas->n_columns, 0, 0,
				       "The file has no recording yet; it is looked at again.");
		return;
	}
	identity_draw(&page);
	warnings_draw(&page);
	throughput_draw(&page);
	active_draw(&page);
	balance_draw(&page);
	hottest_draw(&page);
	power_draw(&page, canvas->n_rows < 30 ? 2 : 8);
	panels_draw(&page);
}
