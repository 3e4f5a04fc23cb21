/* SPDX-License-Identifier: MIT */
/*
 * Text of a trace, or a file's name, as a terminal may be given it. Control characters (C0, C1) and
 * bytes that are no UTF-8 would drive it; characters that turn the direction of writing or take no
 * room would make a line look like another. They are written as escapes.
 */
#ifndef MT_CLI_CLEAN_H
#define MT_CLI_CLEAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MT_CLEAN_PIECE_BYTES = 16 };

/* The character of a well-formed sequence of @length bytes. */
uint32_t mt_clean_decode(const unsigned char *bytes, size_t length);
/*
 * The first piece of @text as cells may show it, into @to (MT_CLEAN_PIECE_BYTES); without @is_utf8 in
 * ASCII. Returns the bytes of @text that it was.
 */
size_t mt_clean_piece(const char *text, size_t n_bytes, bool is_utf8, char *to);
/* All pieces, cut at the buffer's end. Returns @buffer. */
const char *mt_clean_text(const char *text, bool is_utf8, char *buffer, size_t buffer_bytes);
/* Likewise for a line that is not laid out in cells: whatever the locale, UTF-8 stays. */
const char *mt_clean_line(const char *text, char *buffer, size_t buffer_bytes);

#endif
