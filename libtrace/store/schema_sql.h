/* SPDX-License-Identifier: MIT */
/*
 * The schema's files, embedded at build time in the order in which they are applied.
 */
#ifndef MT_STORE_SCHEMA_SQL_H
#define MT_STORE_SCHEMA_SQL_H

#include <stddef.h>

struct mt_schema_file {
	const char *name;
	const char *sql; /* ended by a zero byte that n_bytes does not count */
	size_t n_bytes;
};

extern const struct mt_schema_file mt_schema_files[];
extern const size_t mt_n_schema_files;

#endif
