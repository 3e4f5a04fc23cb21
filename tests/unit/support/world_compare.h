/* SPDX-License-Identifier: MIT */
/*
 * What the comparisons of passes and of their layers share.
 */
#ifndef TEST_WORLD_COMPARE_H
#define TEST_WORLD_COMPARE_H

#include <sqlite3.h>
#include <string.h>

#include "tests/unit/support/suite.h"
#include "tests/unit/support/world.h"

/* Where a comparison is, for messages; the world of the current test case. */
struct world_here {
	unsigned long long pass;
	uint32_t layer;
	uint32_t row;
};
extern struct world_here world_here;

#define MUST(condition)                                                                 \
	REQUIRE(condition, "runtime pass %#llx, layer %u, row %u: %s", world_here.pass, \
		world_here.layer, world_here.row, #condition)

static inline bool is_null(sqlite3_stmt *stmt, int column)
{
	return sqlite3_column_type(stmt, column) == SQLITE_NULL;
}

static inline const char *text_of(sqlite3_stmt *stmt, int column)
{
	const char *text = (const char *)sqlite3_column_text(stmt, column);

	return text ? text : "(null)";
}

static inline uint32_t u32_at(const void *blob, size_t index)
{
	uint32_t value;

	memcpy(&value, (const char *)blob + 4 * index, sizeof(value));
	return value;
}

/* All layers of the pass that was found under this key. */
void world_compare_layers(sqlite3 *db, const struct world *world, const struct want_pass *want,
			  int64_t pass_id);

#endif
