/* SPDX-License-Identifier: MIT */
/*
 * What the page is answered: JSON, or columns of numbers as they lie in memory (little-endian),
 * which JavaScript reads without parsing. The second form is
 *
 *	"MTA1", u32 bytes of the header, header (JSON, filled up with blanks), arrays
 *
 * where the header's member "arrays" lists [name, type, length] of each array in order, and header
 * and arrays each begin at a multiple of 8 bytes. A failure replaces what was written so far by
 * {"error": TEXT}. An out-of-memory is remembered and told at the end.
 */
#ifndef MT_VIEWER_REPLY_H
#define MT_VIEWER_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/jsonw.h"

/* The states that HTTP has for what happened. */
enum mt_view_status {
	MT_REPLY_OK = 200,
	MT_REPLY_BAD = 400,	  /* the question is wrong, or SQL in it */
	MT_REPLY_FORBIDDEN = 403,
	MT_REPLY_NOT_FOUND = 404,
	MT_REPLY_METHOD = 405,
	MT_REPLY_TIMEOUT = 408,	  /* cut off at its time limit */
	MT_REPLY_GONE = 410,	  /* the file is not the one that was opened */
	MT_REPLY_TOO_LARGE = 413,
	MT_REPLY_FAILED = 500,
	MT_REPLY_BUSY = 503,
};

enum mt_array_type { MT_ARRAY_U8, MT_ARRAY_U16, MT_ARRAY_U32, MT_ARRAY_F32, MT_ARRAY_F64 };

#define MT_REPLY_MAX_ARRAYS 24

struct mt_array {
	char name[32];
	enum mt_array_type type;
	size_t n_items;
	size_t n_bytes, size;
	unsigned char *bytes;
};

struct mt_view_reply {
	enum mt_view_status status;
	const char *content_type; /* a constant */
	char *bytes;
	size_t n_bytes;

	/* While it is written. */
	FILE *out;
	struct mt_jsonw json;
	size_t n_arrays;
	struct mt_array arrays[MT_REPLY_MAX_ARRAYS];
	bool has_failed;
};

/* Returns whether there was memory for it; then mt_view_reply_free() is due. */
bool mt_view_reply_begin(struct mt_view_reply *reply);

/* The index of a new array; it must be below MT_REPLY_MAX_ARRAYS. */
size_t mt_view_reply_array(struct mt_view_reply *reply, const char *name, enum mt_array_type type);
/* Numbers that the type cannot hold become its nearest one; NULL of SQL is the caller's to map. */
void mt_view_reply_item(struct mt_view_reply *reply, size_t array, double value);

/* Bytes of all arrays so far. */
size_t mt_view_reply_array_bytes(const struct mt_view_reply *reply);

/* Answer with an error in place of what was written. */
void mt_view_reply_fail(struct mt_view_reply *reply, enum mt_view_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Put the parts together: bytes and n_bytes are set then. Without memory it becomes a failure. */
void mt_view_reply_end(struct mt_view_reply *reply);

void mt_view_reply_free(struct mt_view_reply *reply);

#endif
