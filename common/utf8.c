/* SPDX-License-Identifier: MIT */
/*
 * The well-formed byte sequences differ from a plain count of continuation bytes only in the range
 * of the second byte; that range and the length are chosen from the first byte.
 */
#include "common/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct shape {
	size_t length;	   /* 0: not a first byte */
	unsigned char low; /* range of the second byte */
	unsigned char high;
};

static struct shape shape_of(unsigned char first)
{
	if (first < 0x80)
		return (struct shape){1, 0, 0};
	if (first < 0xc2 || first > 0xf4)
		return (struct shape){0, 0, 0};
	if (first < 0xe0)
		return (struct shape){2, 0x80, 0xbf};
	if (first < 0xf0)
		return (struct shape){3, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf};
	return (struct shape){4, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf};
}

bool mt_utf8_sequence(const unsigned char *bytes, size_t n_bytes, size_t *ret_length)
{
	struct shape shape = shape_of(bytes[0]);
	unsigned char low = shape.low, high = shape.high;
	size_t i;

	if (shape.length == 0) {
		*ret_length = 1;
		return false;
	}
	for (i = 1; i < shape.length; i++) {
		if (i >= n_bytes || bytes[i] < low || bytes[i] > high)
			break;
		low = 0x80;
		high = 0xbf;
	}
	*ret_length = i;
	return i == shape.length;
}

bool mt_utf8_is_valid(const void *bytes, size_t n_bytes)
{
	const unsigned char *at = bytes;
	size_t length;

	while (n_bytes > 0) {
		if (!mt_utf8_sequence(at, n_bytes, &length))
			return false;
		at += length;
		n_bytes -= length;
	}
	return true;
}

char *mt_utf8_repair(const char *text)
{
	static const char replacement[] = "\xef\xbf\xbd";
	const size_t n_replacement = sizeof(replacement) - 1;
	const unsigned char *from = (const unsigned char *)text;
	size_t n_bytes = strlen(text);
	char *copy = n_bytes < SIZE_MAX / n_replacement ? malloc(n_bytes * n_replacement + 1) : NULL;
	char *to = copy;
	size_t length;

	for (; copy && n_bytes > 0; from += length, n_bytes -= length) {
		bool is_valid = mt_utf8_sequence(from, n_bytes, &length);

		memcpy(to, is_valid ? (const char *)from : replacement,
		       is_valid ? length : n_replacement);
		to += is_valid ? length : n_replacement;
	}
	if (copy)
		*to = '\0';
	return copy;
}
