/* SPDX-License-Identifier: MIT */
/*
 * A group: parts of pairs whose rows are in memory together. Private to diff_part.c, which chooses
 * them, and diff_rows.c, which reads their rows.
 */
#ifndef MT_SCHEMA_FUNCTIONS_DIFF_PART_H
#define MT_SCHEMA_FUNCTIONS_DIFF_PART_H

#include "diff.h"

struct mt_diff_part {
	size_t pair;
	uint32_t first, end; /* positions */
	size_t at;	     /* index of the first of them among the positions in memory */
};

/* Positions that are wanted of an attempt. */
struct mt_diff_want {
	sqlite3_int64 request_id, attempt;
	uint32_t first, end;
	size_t at;			     /* index of position @first */
	struct mt_diff_pair *pair;	     /* NULL: the positions are those of another request */
	sqlite3_int64 first_pass, last_pass; /* that may hold them */
	bool is_open;			     /* reading has reached its first pass */
	bool is_found;			     /* the last position was seen */
};

struct mt_diff_start {
	sqlite3_int64 first_pass;
	size_t want;
};

/* A row of the current pass and the position in memory that it goes to. */
struct mt_diff_target {
	size_t row, at;
	bool is_reused;
};

struct mt_diff_group {
	struct mt_diff *diff;
	struct mt_diff_part *parts;
	size_t n_parts, parts_size;
	size_t n_positions, max_positions;
	/* Of the side that is read. */
	struct mt_diff_want *wants; /* by attempt, then position */
	size_t n_wants, wants_size;
	struct mt_diff_start *starts; /* [n_wants], by pass */
	size_t side, next_start;
	size_t n_open;			  /* wants that began and are not found yet */
	sqlite3_int64 open_last_pass;	  /* of those that began */
	sqlite3_int64 found_pass;	  /* the last pass in which one was found */
	struct mt_diff_target *targets; /* by row */
	size_t n_targets, targets_size;
	sqlite3_stmt *reuse[MT_N_SIDES];
	/* Where A's slices were followed to. */
	sqlite3_stmt *slices; /* NULL: to the end */
	bool slice_waits;
	size_t n_a_pairs; /* pairs with a request of A, which come first */
	size_t drained;	  /* pairs before it are done, once all slices were followed */
};

/* The row of position @at in memory and of a layer. */
struct mt_diff_row *mt_diff_entry(const struct mt_diff *diff, size_t side, size_t at, size_t layer);
size_t mt_diff_entry_words(const struct mt_diff *diff);

/* Read the rows of the group's parts on one side into memory. */
int mt_diff_side_read(struct mt_diff_group *group, size_t side);

#endif
