/* SPDX-License-Identifier: MIT */
/*
 * Lines are hostile: any bytes of any length. The parser writes into its own copy only, never
 * past what it has read, since unescaping makes text shorter.
 */
#include "libtrace/control/line.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

static int is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static int is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

static int fail(const char **ret_error, const char *text)
{
	*ret_error = text;
	return MOETRACE_E_FORMAT;
}

/* A value in quotes: *at is behind the first one. Unescaped in place. */
static int take_quoted(char **at, const char **ret_error)
{
	char *from = *at;
	char *to = *at;

	for (; *from != '"'; from++) {
		if (*from == '\\') {
			from++;
			if (*from != '"' && *from != '\\' && *from != 'n')
				return fail(ret_error, "a backslash is followed by \", \\ or n");
			*to++ = *from;
			if (*from == 'n')
				to[-1] = '\n';
			continue;
		}
		if (*from == '\0')
			return fail(ret_error, "a quote is not closed");
		*to++ = *from;
	}
	if (from[1] != '\0' && !is_blank(from[1]))
		return fail(ret_error, "a blank must follow a closing quote");
	*at = from + 1;
	*to = '\0';
	return MOETRACE_OK;
}

static int take_plain(char **at, const char **ret_error)
{
	while (**at && !is_blank(**at))
		if (*(*at)++ == '"')
			return fail(ret_error, "a quote in the middle of a value");
	if (**at)
		*(*at)++ = '\0';
	return MOETRACE_OK;
}

static int take_argument(struct mt_control_line *line, char **at, const char **ret_error)
{
	const char *key = *at;
	const char *value;
	int status;

	while (is_word(**at))
		(*at)++;
	if (*at == key || **at != '=')
		return fail(ret_error, "arguments are KEY=VALUE");
	*(*at)++ = '\0';
	if (mt_control_line_value(line, key))
		return fail(ret_error, "an argument is given twice");
	if (line->n_args == MT_CONTROL_MAX_ARGS)
		return fail(ret_error, "too many arguments");
	value = *at;
	if (**at == '"') {
		value = ++*at;
		status = take_quoted(at, ret_error);
	} else {
		status = take_plain(at, ret_error);
	}
	line->args[line->n_args].key = key;
	line->args[line->n_args++].value = value;
	return status;
}

static int check_bytes(const char *bytes, size_t n_bytes, const char **ret_error)
{
	if (n_bytes > MT_CONTROL_LINE_BYTES)
		return fail(ret_error, "the line is too long");
	for (size_t i = 0; i < n_bytes; i++)
		if (((unsigned char)bytes[i] < 0x20 && bytes[i] != '\t') || bytes[i] == 0x7f)
			return fail(ret_error, "control characters are not text");
	return MOETRACE_OK;
}

int mt_control_line_parse(const char *bytes, size_t n_bytes, struct mt_control_line *ret_line,
			  const char **ret_error)
{
	struct mt_control_line *line = ret_line;
	char *at = line->text;
	int status;

	if (n_bytes && bytes[n_bytes - 1] == '\r')
		n_bytes--;
	status = check_bytes(bytes, n_bytes, ret_error);
	if (status)
		return status;
	memcpy(line->text, bytes, n_bytes);
	line->text[n_bytes] = '\0';
	line->n_args = 0;
	while (is_blank(*at))
		at++;
	line->verb = at;
	while (is_word(*at))
		at++;
	if (*at && !is_blank(*at))
		return fail(ret_error, "a line begins with a verb; 'help' lists them");
	if (*at)
		*at++ = '\0';
	while (!status) {
		while (is_blank(*at))
			at++;
		if (!*at)
			break;
		status = take_argument(line, &at, ret_error);
	}
	return status;
}

const char *mt_control_line_value(const struct mt_control_line *line, const char *key)
{
	for (uint32_t i = 0; i < line->n_args; i++)
		if (strcmp(line->args[i].key, key) == 0)
			return line->args[i].value;
	return NULL;
}

void mt_reply_free(struct mt_reply *reply)
{
	free(reply->text);
	memset(reply, 0, sizeof(*reply));
}

static void append(struct mt_reply *reply, const char *bytes, size_t n_bytes)
{
	size_t capacity_bytes = reply->capacity_bytes ? reply->capacity_bytes : 1024;
	char *text;

	while (capacity_bytes - reply->n_bytes < n_bytes)
		capacity_bytes *= 2;
	if (capacity_bytes != reply->capacity_bytes) {
		text = realloc(reply->text, capacity_bytes);
		if (!text) {
			reply->has_failed = 1;
			return;
		}
		reply->text = text;
		reply->capacity_bytes = capacity_bytes;
	}
	memcpy(reply->text + reply->n_bytes, bytes, n_bytes);
	reply->n_bytes += n_bytes;
}

static void append_escaped(struct mt_reply *reply, const char *value)
{
	for (; *value; value++) {
		if (*value == '\\')
			append(reply, "\\\\", 2);
		else if (*value == '\n')
			append(reply, "\\n", 2);
		else
			append(reply, value, 1);
	}
}

void mt_reply_text(struct mt_reply *reply, const char *key, const char *value)
{
	append(reply, key, strlen(key));
	append(reply, " ", 1);
	append_escaped(reply, value);
	append(reply, "\n", 1);
}

void mt_reply_line(struct mt_reply *reply, const char *format, ...)
{
	char line[256];
	va_list arguments;
	int n;

	va_start(arguments, format);
	n = vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	if (n < 0)
		return;
	append(reply, line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
	append(reply, "\n", 1);
}

void mt_reply_number(struct mt_reply *reply, const char *key, uint64_t value)
{
	mt_reply_line(reply, "%s %llu", key, (unsigned long long)value);
}

/* The program may have set a locale with another decimal point. */
void mt_reply_double(struct mt_reply *reply, const char *key, double value)
{
	double magnitude = value < 0 ? -value : value;
	unsigned long long whole;

	if (!(magnitude < 1e15))
		magnitude = 1e15;
	magnitude += 0.0005;
	whole = (unsigned long long)magnitude;
	mt_reply_line(reply, "%s %s%llu.%03llu", key, value < 0 ? "-" : "", whole,
		      (unsigned long long)((magnitude - (double)whole) * 1000.0));
}

static const char *code_name(int status)
{
	switch (status) {
#define MT_CODE_NAME(name, value, sentence) \
	case value:                         \
		return #name;
		MOETRACE_STATUS_MAP(MT_CODE_NAME)
#undef MT_CODE_NAME
	default:
		return "E_STATE";
	}
}

void mt_reply_end(struct mt_reply *reply, int status, const char *text)
{
	if (status == MOETRACE_OK) {
		append(reply, "ok\n", 3);
		return;
	}
	append(reply, "error ", 6);
	mt_reply_text(reply, code_name(status), text);
}
