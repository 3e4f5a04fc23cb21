/* SPDX-License-Identifier: MIT */
/*
 * Base64 (RFC 4648, with padding), group by group: three bytes become four characters.
 */
#ifndef MT_COMMON_BASE64_H
#define MT_COMMON_BASE64_H

#include <stddef.h>

/* The first group of what is left, @n_bytes of at least one. There is no end of text behind it. */
static inline void mt_base64_group(const unsigned char *bytes, size_t n_bytes, char ret_text[4])
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned value = (unsigned)bytes[0] << 16 |
			       (n_bytes > 1 ? (unsigned)bytes[1] << 8 : 0) |
			       (n_bytes > 2 ? bytes[2] : 0u);

	ret_text[0] = digits[value >> 18];
	ret_text[1] = digits[value >> 12 & 63];
	ret_text[2] = n_bytes > 1 ? digits[value >> 6 & 63] : '=';
	ret_text[3] = n_bytes > 2 ? digits[value & 63] : '=';
}

#endif
