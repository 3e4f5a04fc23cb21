/* SPDX-License-Identifier: MIT */
/*
 * Error lines, and small parsing that several verbs need. An error is one line on standard error
 * that begins with the name of the verb.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/clean.h"

static const char *error_name = "moetrace";
static char *captured; /* NULL: lines go to standard error */
static size_t captured_bytes;

void mt_error_set_name(const char *name)
{
	error_name = name;
}

static void line_write(const char *kind, const char *format, va_list args)
	__attribute__((format(printf, 2, 0)));

void mt_error_capture(char *buffer, size_t buffer_bytes)
{
	captured = buffer;
	captured_bytes = buffer_bytes;
}

/* A file's name or content shall neither drive the terminal nor break the line. */
static void line_write(const char *kind, const char *format, va_list args)
{
	char text[2048], clean[8192];

	vsnprintf(text, sizeof(text), format, args);
	mt_clean_line(text, clean, sizeof(clean));
	if (captured) {
		snprintf(captured, captured_bytes, "%s%s", kind, clean);
		return;
	}
	fflush(stdout);
	fprintf(stderr, "%s: %s%s\n", error_name, kind, clean);
}

void mt_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	line_write("", format, args);
	va_end(args);
}

int mt_error_memory(void)
{
	mt_error("out of memory");
	return MT_EXIT_FAILED;
}

void mt_warn(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	line_write("warning: ", format, args);
	va_end(args);
}

void mt_note(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	line_write("note: ", format, args);
	va_end(args);
}

#define MAX_WORD_BYTES 64

/* Edits (insert, delete, replace a character) that make @a of @b; MAX_WORD_BYTES: too long. */
static size_t edit_distance(const char *a, const char *b)
{
	size_t row[MAX_WORD_BYTES + 1];
	size_t n_b = strlen(b);
	size_t i;
	size_t j;

	if (strlen(a) > MAX_WORD_BYTES || n_b > MAX_WORD_BYTES)
		return MAX_WORD_BYTES;
	for (j = 0; j <= n_b; j++)
		row[j] = j;
	for (i = 1; a[i - 1]; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (j = 1; j <= n_b; j++) {
			size_t best = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[n_b];
}

const char *mt_closest(const char *word, const char *const *names)
{
	const char *best = NULL;
	size_t best_distance = strlen(word) / 3 + 2;
	size_t distance;

	for (; *names; names++) {
		distance = edit_distance(word, *names);
		if (*word && strncmp(*names, word, strlen(word)) == 0)
			distance = 0;
		if (distance < best_distance) {
			best = *names;
			best_distance = distance;
		}
	}
	return best;
}

bool mt_parse_uint(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
	unsigned long long value;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno != 0 || *end != '\0' || value < min || value > max)
		return false;
	*ret_value = value;
	return true;
}
