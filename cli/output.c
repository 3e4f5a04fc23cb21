/* SPDX-License-Identifier: MIT */
/*
 * Outputs: what holds for the tables of one run together. In JSON one table is an array; named
 * sections are members of one object.
 */
#include "cli/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <moetrace/status.h>

static const char *const format_names[] = {
	[MT_FORMAT_TABLE] = "table", [MT_FORMAT_JSON] = "json",		[MT_FORMAT_JSONL] = "jsonl",
	[MT_FORMAT_CSV] = "csv",     [MT_FORMAT_MARKDOWN] = "markdown",
};

bool mt_format_parse(const char *name, enum mt_format *ret_format)
{
	size_t i;

	for (i = 0; i < sizeof(format_names) / sizeof(format_names[0]); i++) {
		if (strcmp(name, format_names[i]) == 0) {
			*ret_format = (enum mt_format)i;
			return true;
		}
	}
	return false;
}

bool mt_format_is_data(enum mt_format format)
{
	return format != MT_FORMAT_TABLE && format != MT_FORMAT_MARKDOWN;
}

static bool wants_color(FILE *out)
{
	const char *no_color = getenv("NO_COLOR");
	const char *terminal = getenv("TERM");

	if (no_color && *no_color)
		return false;
	if (!terminal || strcmp(terminal, "dumb") == 0)
		return false;
	return isatty(fileno(out));
}

void mt_output_begin(struct mt_output *output, FILE *out, enum mt_format format)
{
	memset(output, 0, sizeof(*output));
	output->out = out;
	output->format = format;
	output->is_colored = format == MT_FORMAT_TABLE && wants_color(out);
	mt_jsonw_init(&output->json, out);
}

void mt_output_sections(struct mt_output *output)
{
	output->in_sections = true;
	if (output->format == MT_FORMAT_JSON)
		mt_jsonw_object_begin(&output->json);
}

void mt_output_section(struct mt_output *output, const char *name, const char *title)
{
	output->section = name;
	if (output->format == MT_FORMAT_JSON)
		mt_jsonw_key(&output->json, name);
	if (output->format == MT_FORMAT_TABLE && title)
		fprintf(output->out, "%s%s%s%s\n", output->n_sections ? "\n" : "",
			output->is_colored ? "\033[1m" : "", title,
			output->is_colored ? "\033[0m" : "");
	if (output->format == MT_FORMAT_MARKDOWN && title)
		fprintf(output->out, "%s## %s\n\n", output->n_sections ? "\n" : "", title);
	output->n_sections++;
}

void mt_output_line(struct mt_output *output, const char *format, ...)
{
	va_list args;

	if (output->format != MT_FORMAT_TABLE && output->format != MT_FORMAT_MARKDOWN)
		return;
	va_start(args, format);
	vfprintf(output->out, format, args);
	va_end(args);
	fputs(output->format == MT_FORMAT_MARKDOWN ? "\n\n" : "\n", output->out);
}

int mt_output_end(struct mt_output *output)
{
	if (output->format == MT_FORMAT_JSON) {
		if (output->in_sections)
			mt_jsonw_object_end(&output->json);
		return mt_jsonw_end_line(&output->json);
	}
	return ferror(output->out) ? MOETRACE_E_IO : MOETRACE_OK;
}
