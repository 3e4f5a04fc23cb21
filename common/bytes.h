/* SPDX-License-Identifier: MIT */
/*
 * Numbers in blobs: little-endian and at any address, whatever the machine.
 */
#ifndef MT_COMMON_BYTES_H
#define MT_COMMON_BYTES_H

#include <stddef.h>
#include <stdint.h>

static inline uint32_t mt_u16_at(const unsigned char *bytes)
{
	return bytes[0] | (uint32_t)bytes[1] << 8;
}

static inline uint32_t mt_u32_at(const unsigned char *bytes)
{
	return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
	       (uint32_t)bytes[3] << 24;
}

/* Number @i of an array whose numbers take one byte or two. */
static inline uint32_t mt_narrow_at(const unsigned char *bytes, size_t width, size_t i)
{
	return width == 1 ? bytes[i] : mt_u16_at(bytes + 2 * i);
}

#endif
