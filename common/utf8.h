/* SPDX-License-Identifier: MIT */
/*
 * Well-formedness of UTF-8 as Unicode defines it: no overlong forms, no surrogates, nothing above
 * U+10FFFF.
 */
#ifndef MT_COMMON_UTF8_H
#define MT_COMMON_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/**
 * Look at the sequence at the start of @bytes.
 *
 * @n_bytes     Above 0.
 * @ret_length  Bytes of the well-formed sequence; else bytes of the longest prefix of a well-formed
 *              sequence, at least 1: what one U+FFFD replaces.
 *
 * Returns whether the sequence is well-formed.
 */
bool mt_utf8_sequence(const unsigned char *bytes, size_t n_bytes, size_t *ret_length);

bool mt_utf8_is_valid(const void *bytes, size_t n_bytes);

/**
 * A copy of @text in which U+FFFD takes the place of what is not well-formed; free() it. NULL: out
 * of memory.
 */
char *mt_utf8_repair(const char *text);

#endif
