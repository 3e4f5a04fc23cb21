/* SPDX-License-Identifier: MIT */
/*
 * The questions that more than one reader of traces asks: the files of schema/questions, embedded.
 * A file is a question, named by the file; it has one statement or several, each under its section's
 * name. Their parameters are named. A line `-- @arrays N` or `-- @rows N` in front says how many
 * rows may be of interest, and whether their columns, named "name:type", are meant as arrays of
 * numbers; `-- @section NAME` begins a section.
 */
#ifndef MT_SCHEMA_FUNCTIONS_QUESTIONS_H
#define MT_SCHEMA_FUNCTIONS_QUESTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mt_question_file {
	const char *name; /* relative to the top of the tree */
	const char *sql;  /* ended by a zero byte that n_bytes does not count */
	size_t n_bytes;
};

extern const struct mt_question_file mt_question_files[];
extern const size_t mt_n_question_files;

struct mt_question_part {
	char section[32]; /* "": the file has none */
	const char *sql;  /* up to the next section or the end of the file */
	size_t n_bytes;
	bool is_arrays;
	uint32_t max_rows;
};

/* The first statement of question @name. Returns whether there is such a question. */
bool mt_question_first(const char *name, struct mt_question_part *ret_part);

/* The one after @part, in its place. Returns whether there is one. */
bool mt_question_next(struct mt_question_part *part);

/* The statement of a section; "", 0 bytes: there is none. */
struct mt_question_part mt_question_section(const char *name, const char *section);

#endif
