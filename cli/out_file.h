/* SPDX-License-Identifier: MIT */
/*
 * Files that the command writes: under a temporary name in the folder of the final one, which a
 * file gets when it is complete. So under the final name there is the old file or the new one, and
 * whatever goes wrong, an interrupt included, nothing half-written stays.
 */
#ifndef MT_CLI_OUT_FILE_H
#define MT_CLI_OUT_FILE_H

#include <stdbool.h>
#include <stdio.h>

struct mt_out_file {
	const char *path; /* as given; not owned */
	char *temporary;  /* NULL: standard output */
	bool overwrites;
	FILE *out;
};

/**
 * Begin to write @path; "-" is standard output. A path that exists is refused here already, unless
 * it is a regular file and @overwrites; an input of the command is refused in any case.
 *
 * Returns  MT_EXIT_OK
 *          MT_EXIT_USAGE   it is an input; after one line on standard error
 *          MT_EXIT_FAILED  after one line on standard error; nothing was made
 * Owner    caller; one of the two functions below ends it. One file at a time.
 */
int mt_out_file_begin(const char *path, bool overwrites, struct mt_out_file *ret_file);

/* Complete it and give it its name. MT_EXIT_OK, or MT_EXIT_FAILED after one line; then it is gone.
 */
int mt_out_file_finish(struct mt_out_file *file);

/* Remove what was written so far. */
void mt_out_file_discard(struct mt_out_file *file);

/*
 * Whether @path may become a file of ours: MT_EXIT_OK, or after one line on standard error
 * MT_EXIT_USAGE (it is an input) or MT_EXIT_FAILED.
 */
int mt_out_file_may_be(const char *path, bool overwrites);

/* ---- inputs (out_input.c) ---- */

/*
 * Whoever opens a file that the command was given tells it here, before any output begins. It may have
 * gone meanwhile.
 */
void mt_out_file_input(const char *path);

/*
 * Whether @path is an input by any name, or one of the files that SQLite keeps beside it, also one that
 * does not exist yet; then one line on standard error says so.
 */
bool mt_out_file_is_input(const char *path);

/* Whether two paths are one name in one folder, however they are written. */
bool mt_out_file_is_same_name(const char *a, const char *b);

/*
 * Give a complete file its final name, which it then has alone; without @overwrites never over a
 * file that appeared meanwhile. Returns 0, or -1 with errno.
 */
int mt_out_file_name(const char *temporary, const char *path, bool overwrites);

/* ".NAME.PID.tmp" in the folder of @path, to be freed; NULL: out of memory. */
char *mt_out_file_temporary(const char *path);

#endif
