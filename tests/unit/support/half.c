/* SPDX-License-Identifier: MIT */
/*
 * The 16-bit formats by their definition; see half.h. The rounding mode is the default one,
 * which no test changes.
 */
#include "tests/unit/support/half.h"

#include <math.h>

const struct half_format half_fp16 = {.fraction_bits = 10, .exponent_bits = 5};
const struct half_format half_bf16 = {.fraction_bits = 7, .exponent_bits = 8};

static int bias_of(const struct half_format *format)
{
	return (1 << (format->exponent_bits - 1)) - 1;
}

static uint16_t infinity_of(const struct half_format *format)
{
	return (uint16_t)(((1u << format->exponent_bits) - 1u) << format->fraction_bits);
}

uint16_t half_from_double(const struct half_format *format, double value)
{
	const int bias = bias_of(format);
	const double unit = ldexp(1.0, format->fraction_bits);
	const uint16_t sign = signbit(value) ? 0x8000u : 0;
	const uint16_t inf = infinity_of(format);
	double magnitude = fabs(value);
	double in_last_places;
	int exponent;

	if (isnan(value))
		return (uint16_t)(sign | inf | 1u);
	if (isinf(value))
		return (uint16_t)(sign | inf);
	exponent = magnitude == 0.0 ? 1 - bias : ilogb(magnitude);
	if (exponent < 1 - bias)
		exponent = 1 - bias;
	in_last_places = nearbyint(ldexp(magnitude, format->fraction_bits - exponent));
	if (in_last_places == 2.0 * unit) {
		in_last_places = unit;
		exponent++;
	}
	if (exponent > bias)
		return (uint16_t)(sign | inf);
	if (in_last_places < unit)
		return (uint16_t)(sign | (uint16_t)in_last_places);
	return (uint16_t)(sign | (unsigned int)(exponent + bias) << format->fraction_bits |
			  (unsigned int)(in_last_places - unit));
}

double half_to_double(const struct half_format *format, uint16_t bits)
{
	const int bias = bias_of(format);
	const unsigned int fraction = bits & ((1u << format->fraction_bits) - 1u);
	const int exponent = (bits & 0x7fffu) >> format->fraction_bits;
	const double sign = bits & 0x8000u ? -1.0 : 1.0;

	if (exponent == (1 << format->exponent_bits) - 1)
		return fraction ? (double)NAN : sign * (double)INFINITY;
	if (exponent == 0)
		return sign * ldexp(fraction, 1 - bias - format->fraction_bits);
	return sign * ldexp((1u << format->fraction_bits) + fraction,
			    exponent - bias - format->fraction_bits);
}

bool half_same(const struct half_format *format, uint16_t one, uint16_t other)
{
	const uint16_t inf = infinity_of(format);

	if ((one & 0x7fffu) > inf && (other & 0x7fffu) > inf)
		return true;
	return one == other;
}
