/* SPDX-License-Identifier: MIT */
/*
 * A frame as lines, one fact each, with nothing drawn: for screen readers, pipes and logs.
 */
#include "cli/clean.h"
#include "cli/top.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

struct lines {
	const struct mt_top *top;
	const struct mt_top_frame *frame;
	bool is_utf8;
};

static void line(const struct lines *lines, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* All of it is made harmless, whatever the file holds. */
static void line(const struct lines *lines, const char *name, const char *format, ...)
{
	char text[4096], clean[8192];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	printf("%s: %s\n", name, mt_clean_text(text, lines->is_utf8, clean, sizeof(clean)));
}

/* "12.3", or "n/a". */
static const char *figure(double value, int decimals, char buffer[32])
{
	if (value < 0)
		return "n/a";
	snprintf(buffer, 32, "%.*f", decimals, value);
	return buffer;
}

static void identity_print(const struct lines *lines, const char *label)
{
	const struct mt_top_facts *facts = &lines->top->facts;
	char text[512], window[64];

	mt_top_state_text(facts, text, sizeof(text));
	line(lines, "trace", "%s", label);
	if (facts->end == MT_TOP_NONE) {
		line(lines, "state", "%s", text);
		return;
	}
	line(lines, "recording", "%" PRId64 " of %" PRId64 ", mode %s, choices of %s, session %s",
	     facts->recording_id, facts->n_recordings, facts->mode,
	     facts->source[0] ? facts->source : "n/a", facts->session[0] ? facts->session : "n/a");
	line(lines, "state", "%s", text);
	line(lines, "model", "%s (%s), %" PRId64 " of %" PRId64, facts->model, facts->model_kind,
	     facts->model_number, facts->n_models);
	mt_top_window_text(lines->frame, window, sizeof(window));
	line(lines, "window", "%s, from %.3f s to %.3f s%s", window,
	     (double)lines->frame->from_ns / 1e9, (double)lines->frame->until_ns / 1e9,
	     lines->top->is_behind ? "; not all of it is read yet" : "");
}

static void throughput_print(const struct lines *lines)
{
	const struct mt_top_frame *frame = lines->frame;
	char a[32], b[32], c[32], d[32], e[32];

	line(lines, "passes",
	     "%s a second, %s in the window, %s of them partial, mean length %s ms",
	     figure(frame->passes_per_s, 1, a), figure((double)frame->n_passes, 0, c),
	     figure((double)frame->n_partial, 0, d),
	     figure(frame->mean_ns < 0 ? -1 : frame->mean_ns / 1e6, 3, b));
	line(lines, "tokens", "%s a second: prefill %s, decode %s, verify %s, other %s",
	     figure(frame->tokens_per_s, 1, a), figure(frame->phase_per_s[MT_TOP_PREFILL], 1, b),
	     figure(frame->phase_per_s[MT_TOP_DECODE], 1, c),
	     figure(frame->phase_per_s[MT_TOP_VERIFY], 1, d),
	     figure(frame->phase_per_s[MT_TOP_OTHER], 1, e));
	line(lines, "rows a pass", "mean %s, padding rows %s in the window",
	     figure(frame->mean_rows, 1, a), figure((double)frame->padding_rows, 0, b));
	line(lines, "active experts", "mean %s a layer and pass, most %" PRIu64 ", last %.1f s",
	     figure(frame->mean_active, 1, a), frame->max_active, frame->recent_span_s);
}

static void balance_print(const struct lines *lines)
{
	const struct mt_top_frame *frame = lines->frame;
	const struct mt_top_layer *layers = lines->top->layers;
	char a[32], b[32], c[32], d[32], e[32];
	size_t i;

	if (frame->ratio_worst < 0) {
		line(lines, "balance", "n/a: no token in the window");
		return;
	}
	line(lines, "balance", "max over mean of layers: p50 %s, p95 %s, worst %s (layer %" PRId64
	     "); Jain's index: p50 %s, worst %s",
	     figure(frame->ratio_p50, 2, a), figure(frame->ratio_p95, 2, b),
	     figure(frame->ratio_worst, 2, c), layers[frame->worst_layer].layer,
	     figure(frame->jain_p50, 3, d), figure(frame->jain_worst, 3, e));
	for (i = 0; i < frame->n_hottest && i < 5; i++)
		line(lines, "hot", "layer %" PRId64 ", expert %" PRIu32 ": %" PRIu64
		     " tokens, %s times the mean",
		     layers[frame->hottest[i].layer].layer, frame->hottest[i].expert,
		     frame->hottest[i].tokens, figure(frame->hottest[i].over_mean, 2, a));
}

static void power_print(const struct lines *lines)
{
	double watts[MT_TOP_BUCKETS];
	char a[32], b[32], c[32], d[32];

	if (lines->top->n_meters == 0)
		line(lines, "power", "n/a: nothing was read");
	for (size_t i = 0; i < lines->top->n_meters; i++) {
		const struct mt_top_meter *meter = &lines->top->meters[i];
		const double mean =
			mt_top_meter_mean(lines->top, meter, lines->frame, watts);

		line(lines, "power", "device %" PRId64 " %s %s: %s W, mean %s W, limit %s W, %s C",
		     meter->device_id, meter->name, meter->domain, figure(meter->last_w, 1, a),
		     figure(mean, 1, b), figure(meter->limit_w, 1, c),
		     figure(meter->temperature_c, 0, d));
	}
}

static void operations_print(const struct lines *lines)
{
	const struct mt_top_frame *frame = lines->frame;

	if (!frame->all_operations_ns)
		line(lines, "kernels", "n/a: none was timed");
	for (size_t i = 0; i < MT_TOP_ROLES; i++)
		if (frame->n_operations[i] > 0)
			line(lines, "kernels", "%s: %.1f %%, %" PRIu64 " of %.3f ms together",
			     mt_top_roles[i],
			     100.0 * (double)frame->operations_ns[i] /
				     (double)(frame->all_operations_ns + !frame->all_operations_ns),
			     frame->n_operations[i], (double)frame->operations_ns[i] / 1e6);
}

static void losses_print(const struct lines *lines)
{
	const struct mt_top_facts *facts = &lines->top->facts;
	char text[2048];
	size_t i;

	mt_top_loss_text(facts, text, sizeof(text));
	line(lines, "losses", "%s", text[0] ? text : "none");
	for (i = 0; i < facts->n_left_out; i++)
		line(lines, "left out", "%s %" PRId64, facts->left_out[i].name,
		     facts->left_out[i].value);
	for (i = 0; i < facts->n_sources; i++)
		line(lines, "collector", "%s is %s%s%s", facts->sources[i].name,
		     facts->sources[i].state, facts->sources[i].reason[0] ? ": " : "",
		     facts->sources[i].reason);
	if (facts->n_sources == 0)
		line(lines, "collector", "none was asked for");
	for (i = 0; i < facts->n_notes; i++)
		line(lines, "diagnostic", "%s", facts->notes[i]);
}

void mt_top_plain_print(const struct mt_top *top, const struct mt_top_frame *frame,
			const char *label, const char *notice, bool is_utf8)
{
	const struct lines lines = {top, frame, is_utf8};

	identity_print(&lines, label);
	if (notice[0])
		line(&lines, "notice", "%s", notice);
	if (top->facts.end == MT_TOP_NONE)
		return;
	losses_print(&lines);
	throughput_print(&lines);
	balance_print(&lines);
	power_print(&lines);
	operations_print(&lines);
}
