/* SPDX-License-Identifier: MIT */
/*
 * Finds statements in the embedded files. They are the program's own and in order, which a test
 * proves, so nothing here can fail but a name that is not there.
 */
#include "schema/functions/questions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char mark[] = "-- @";
static const char section_mark[] = "-- @section ";

static const char *line_end(const char *text)
{
	const char *end = strchr(text, '\n');

	return end ? end + 1 : text + strlen(text);
}

/* The directives from @text on are taken into @part; returns where the SQL begins. */
static const char *directives_read(const char *text, struct mt_question_part *part)
{
	unsigned long n;

	for (; *text; text = line_end(text)) {
		if (strncmp(text, "--", 2) != 0 && *text != '\n')
			break;
		if (sscanf(text, "-- @arrays %lu", &n) == 1 || sscanf(text, "-- @rows %lu", &n) == 1) {
			part->is_arrays = text[strlen(mark)] == 'a';
			part->max_rows = (uint32_t)n;
		}
		(void)sscanf(text, "-- @section %31s", part->section);
	}
	return text;
}

static void part_read(const char *text, struct mt_question_part *part)
{
	const char *end;

	part->sql = directives_read(text, part);
	end = strstr(part->sql, section_mark);
	part->n_bytes = end ? (size_t)(end - part->sql) : strlen(part->sql);
}

/* Whether @path is ".../NAME.sql". */
static bool is_file_of(const char *path, const char *name)
{
	const char *base = strrchr(path, '/');
	size_t n_name = strlen(name);

	return base && strncmp(base + 1, name, n_name) == 0 && strcmp(base + 1 + n_name, ".sql") == 0;
}

bool mt_question_first(const char *name, struct mt_question_part *ret_part)
{
	for (size_t i = 0; i < mt_n_question_files; i++) {
		if (!is_file_of(mt_question_files[i].name, name))
			continue;
		*ret_part = (struct mt_question_part){.max_rows = 10000};
		part_read(mt_question_files[i].sql, ret_part);
		return true;
	}
	return false;
}

bool mt_question_next(struct mt_question_part *part)
{
	const char *next = part->sql + part->n_bytes;

	if (*next == '\0')
		return false;
	part_read(next, part);
	return true;
}

struct mt_question_part mt_question_section(const char *name, const char *section)
{
	struct mt_question_part part = {.sql = ""};
	bool is_there;

	for (is_there = mt_question_first(name, &part); is_there; is_there = mt_question_next(&part))
		if (strcmp(part.section, section) == 0)
			return part;
	return (struct mt_question_part){.sql = ""};
}
