/* SPDX-License-Identifier: MIT */
/*
 * The SQL files of the schema as text, embedded at build time in the order in which they are
 * applied: what a trace is compared with.
 */
#ifndef MT_SCHEMA_REFERENCE_H
#define MT_SCHEMA_REFERENCE_H

#include <stddef.h>

struct mt_reference_file {
	const char *name; /* relative to the top of the tree */
	const char *sql;  /* ended by a zero byte that n_bytes does not count */
	size_t n_bytes;
};

extern const struct mt_reference_file mt_reference_files[];
extern const size_t mt_n_reference_files;

#endif
