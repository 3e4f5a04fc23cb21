/* SPDX-License-Identifier: MIT */
/*
 * Figures in words, as the screen and the plain lines share them. What is not known is "n/a".
 */
#include "cli/top.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *mt_top_number(double value, char buffer[16])
{
	static const char units[] = " kMGT";
	size_t unit = 0;

	if (value < 0) {
		strcpy(buffer, "n/a");
		return buffer;
	}
	for (; value >= 999.5 && unit + 2 < sizeof(units); unit++)
		value /= 1000;
	if (unit == 0)
		snprintf(buffer, 16, value < 99.95 ? "%.1f" : "%.0f", value);
	else
		snprintf(buffer, 16, value < 9.995 ? "%.2f%c" : value < 99.95 ? "%.1f%c" : "%.0f%c",
			 value > 9999 ? 9999 : value, units[unit]);
	return buffer;
}

const char *mt_top_duration(int64_t length_ns, char buffer[32])
{
	const int64_t seconds = length_ns / 1000000000;

	if (length_ns < 0)
		strcpy(buffer, "n/a");
	else if (seconds < 60)
		snprintf(buffer, 32, "%.1f s", (double)length_ns / 1e9);
	else if (seconds < 3600)
		snprintf(buffer, 32, "%" PRId64 " min %" PRId64 " s", seconds / 60, seconds % 60);
	else
		snprintf(buffer, 32, "%" PRId64 " h %" PRId64 " min", seconds / 3600,
			 seconds / 60 % 60);
	return buffer;
}

void mt_top_state_text(const struct mt_top_facts *facts, char *buffer, size_t buffer_bytes)
{
	char text[32];

	mt_top_duration(facts->now_ns - facts->start_ns, text);
	switch (facts->end) {
	case MT_TOP_NONE:
		snprintf(buffer, buffer_bytes, "no recording yet");
		break;
	case MT_TOP_LIVE:
		snprintf(buffer, buffer_bytes, "live, for %s", text);
		break;
	case MT_TOP_ENDED:
		snprintf(buffer, buffer_bytes, "ended after %s (%s)", text, facts->end_reason);
		break;
	case MT_TOP_NO_END:
		snprintf(buffer, buffer_bytes,
			 "ended after %s without an end: nothing writes the file any more", text);
	}
}

static void append(char *buffer, size_t buffer_bytes, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void append(char *buffer, size_t buffer_bytes, const char *format, ...)
{
	const size_t used = strlen(buffer);
	va_list args;

	va_start(args, format);
	vsnprintf(buffer + used, buffer_bytes - used, format, args);
	va_end(args);
}

void mt_top_loss_text(const struct mt_top_facts *facts, char *buffer, size_t buffer_bytes)
{
	size_t i;

	buffer[0] = '\0';
	for (i = 0; i < facts->n_losses; i++)
		append(buffer, buffer_bytes, "%s%s %" PRId64, i ? ", " : "", facts->losses[i].name,
		       facts->losses[i].value);
	for (i = 0; i < facts->n_sources; i++)
		if (facts->sources[i].n_dropped > 0)
			append(buffer, buffer_bytes, "%s%s dropped %" PRId64, buffer[0] ? ", " : "",
			       facts->sources[i].name, facts->sources[i].n_dropped);
	for (i = 0; i < facts->n_gaps; i++)
		append(buffer, buffer_bytes, "%s%s: %s", i ? ", " : buffer[0] ? "; " : "",
		       facts->gaps[i].stream, facts->gaps[i].reason);
}

void mt_top_sources_text(const struct mt_top_facts *facts, char *buffer, size_t buffer_bytes)
{
	size_t i;

	buffer[0] = '\0';
	for (i = 0; i < facts->n_sources; i++) {
		const struct mt_top_source_state *source = &facts->sources[i];

		if (strcmp(source->state, "on") == 0)
			continue;
		append(buffer, buffer_bytes, "%s%s is %s%s%s", buffer[0] ? "; " : "", source->name,
		       source->state, source->reason[0] ? ": " : "", source->reason);
	}
}

void mt_top_window_text(const struct mt_top_frame *frame, char *buffer, size_t buffer_bytes)
{
	if (frame->is_whole)
		snprintf(buffer, buffer_bytes, "whole recording");
	else
		snprintf(buffer, buffer_bytes, "last %.1f s", frame->span_s);
}
