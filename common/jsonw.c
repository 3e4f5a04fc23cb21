/* SPDX-License-Identifier: MIT */
/*
 * The JSON writer. One bit a depth says whether the container is an object and whether it has an
 * item; every value passes value_begin(), which checks the place and writes the comma.
 */
#include "common/jsonw.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "common/utf8.h"

void mt_jsonw_init(struct mt_jsonw *writer, FILE *out)
{
	memset(writer, 0, sizeof(*writer));
	writer->out = out;
}

static void comma(struct mt_jsonw *writer)
{
	uint64_t bit = UINT64_C(1) << writer->depth;

	if (writer->has_item & bit)
		putc(',', writer->out);
	writer->has_item |= bit;
}

static void value_begin(struct mt_jsonw *writer)
{
	bool in_object = writer->in_object >> writer->depth & 1;

	if (in_object != writer->after_key)
		writer->misused = true;
	if (writer->depth == 0 && (writer->has_item & 1))
		writer->misused = true;
	if (!writer->after_key)
		comma(writer);
	writer->after_key = false;
}

static void container_begin(struct mt_jsonw *writer, bool is_object)
{
	uint64_t bit;

	value_begin(writer);
	putc(is_object ? '{' : '[', writer->out);
	if (writer->depth + 1 >= MT_JSONW_MAX_DEPTH) {
		writer->misused = true;
		return;
	}
	writer->depth++;
	bit = UINT64_C(1) << writer->depth;
	writer->has_item &= ~bit;
	writer->in_object = is_object ? writer->in_object | bit : writer->in_object & ~bit;
}

static void container_end(struct mt_jsonw *writer, bool is_object)
{
	bool in_object = writer->in_object >> writer->depth & 1;

	putc(is_object ? '}' : ']', writer->out);
	if (writer->depth == 0 || in_object != is_object || writer->after_key) {
		writer->misused = true;
		return;
	}
	writer->depth--;
}

void mt_jsonw_object_begin(struct mt_jsonw *writer)
{
	container_begin(writer, true);
}

void mt_jsonw_object_end(struct mt_jsonw *writer)
{
	container_end(writer, true);
}

void mt_jsonw_array_begin(struct mt_jsonw *writer)
{
	container_begin(writer, false);
}

void mt_jsonw_array_end(struct mt_jsonw *writer)
{
	container_end(writer, false);
}

static void ascii_write(FILE *out, unsigned char c)
{
	static const char short_escapes[] = "\b\t\n\f\r\"\\";
	static const char letters[] = "btnfr\"\\";
	const char *escape = c ? strchr(short_escapes, c) : NULL;

	if (escape)
		fprintf(out, "\\%c", letters[escape - short_escapes]);
	else if (c < 0x20 || c == 0x7f)
		fprintf(out, "\\u%04x", c);
	else
		putc(c, out);
}

static void text_write(FILE *out, const unsigned char *bytes, size_t n_bytes)
{
	size_t length;

	putc('"', out);
	while (n_bytes > 0) {
		if (*bytes < 0x80) {
			ascii_write(out, *bytes);
			length = 1;
		} else if (mt_utf8_sequence(bytes, n_bytes, &length)) {
			fwrite(bytes, 1, length, out);
		} else {
			fputs("\xef\xbf\xbd", out);
		}
		bytes += length;
		n_bytes -= length;
	}
	putc('"', out);
}

void mt_jsonw_key(struct mt_jsonw *writer, const char *key)
{
	if (!(writer->in_object >> writer->depth & 1) || writer->after_key)
		writer->misused = true;
	comma(writer);
	text_write(writer->out, (const unsigned char *)key, strlen(key));
	putc(':', writer->out);
	writer->after_key = true;
}

void mt_jsonw_string(struct mt_jsonw *writer, const char *text)
{
	mt_jsonw_bytes(writer, text, strlen(text));
}

void mt_jsonw_bytes(struct mt_jsonw *writer, const void *bytes, size_t n_bytes)
{
	value_begin(writer);
	text_write(writer->out, bytes, n_bytes);
}

void mt_jsonw_hex(struct mt_jsonw *writer, const void *bytes, size_t n_bytes)
{
	const unsigned char *at = bytes;
	size_t i;

	value_begin(writer);
	putc('"', writer->out);
	for (i = 0; i < n_bytes; i++)
		fprintf(writer->out, "%02x", at[i]);
	putc('"', writer->out);
}

void mt_jsonw_int64(struct mt_jsonw *writer, int64_t value)
{
	value_begin(writer);
	fprintf(writer->out, "%" PRId64, value);
}

void mt_jsonw_uint64(struct mt_jsonw *writer, uint64_t value)
{
	value_begin(writer);
	fprintf(writer->out, "%" PRIu64, value);
}

void mt_jsonw_double(struct mt_jsonw *writer, double value)
{
	char text[64];
	char *comma_at;
	int digits;

	if (!isfinite(value)) {
		mt_jsonw_null(writer);
		return;
	}
	value_begin(writer);
	for (digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}
	/* The locale chooses the decimal point for printf and strtod alike; JSON has its own. */
	comma_at = strchr(text, ',');
	if (comma_at)
		*comma_at = '.';
	fputs(text, writer->out);
}

void mt_jsonw_boolean(struct mt_jsonw *writer, bool value)
{
	value_begin(writer);
	fputs(value ? "true" : "false", writer->out);
}

void mt_jsonw_null(struct mt_jsonw *writer)
{
	value_begin(writer);
	fputs("null", writer->out);
}

int mt_jsonw_end_line(struct mt_jsonw *writer)
{
	bool misused = writer->misused || writer->depth != 0 || writer->after_key ||
		       !(writer->has_item & 1);

	putc('\n', writer->out);
	mt_jsonw_init(writer, writer->out);
	if (misused)
		return MOETRACE_E_STATE;
	return ferror(writer->out) ? MOETRACE_E_IO : MOETRACE_OK;
}
