/* SPDX-License-Identifier: MIT */
/*
 * The two 16-bit formats of stored weights, computed from their definition in double
 * arithmetic: the value is scaled to units of its last place and rounded by nearbyint(),
 * which rounds to nearest, ties to even. It shares nothing with the recorder's bit
 * arithmetic, so that one checks the other.
 */
#ifndef TEST_HALF_H
#define TEST_HALF_H

#include <stdbool.h>
#include <stdint.h>

struct half_format {
	int fraction_bits;
	int exponent_bits;
};

extern const struct half_format half_fp16;
extern const struct half_format half_bf16;

/* The nearest value of the format, as bits. */
uint16_t half_from_double(const struct half_format *format, double value);

/* The value that @bits stand for. */
double half_to_double(const struct half_format *format, uint16_t bits);

/* Equal bits, or both not a number. */
bool half_same(const struct half_format *format, uint16_t one, uint16_t other);

#endif
