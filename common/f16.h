/* SPDX-License-Identifier: MIT */
/*
 * Scalar conversions between binary32 and the two 16-bit formats, binary16 (fp16) and bfloat16.
 * Widening is exact for every bit pattern, subnormals included. Narrowing rounds to nearest, ties
 * to even, overflows to infinity, and turns every NaN into a quiet NaN of the same sign. Integer
 * arithmetic only: the floating-point environment is neither read nor changed, so that the bits
 * are the same on every machine.
 */
#ifndef MT_COMMON_F16_H
#define MT_COMMON_F16_H

#include <stdint.h>
#include <string.h>

static inline uint32_t mt_f32_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float mt_f32_from_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline float mt_f32_from_bf16(uint16_t half)
{
	return mt_f32_from_bits((uint32_t)half << 16);
}

static inline uint16_t mt_bf16_from_f32(float value)
{
	uint32_t bits = mt_f32_bits(value);

	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)(bits >> 16 | 0x0040u);
	return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float mt_f32_from_f16(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
	uint32_t exponent = half >> 10 & 0x1fu;
	uint32_t fraction = half & 0x3ffu;

	if (exponent == 0x1fu)
		return mt_f32_from_bits(sign | 0x7f800000u | fraction << 13);
	if (exponent != 0)
		return mt_f32_from_bits(sign | (exponent + 112u) << 23 | fraction << 13);
	if (fraction == 0)
		return mt_f32_from_bits(sign);

	/* A subnormal is fraction x 2^-24: shift its leading one to the implicit place. */
	exponent = 113u;
	while (!(fraction & 0x400u)) {
		fraction <<= 1;
		exponent--;
	}
	return mt_f32_from_bits(sign | exponent << 23 | (fraction & 0x3ffu) << 13);
}

static inline uint16_t mt_f16_from_f32(float value)
{
	uint32_t bits = mt_f32_bits(value);
	uint32_t sign = bits >> 16 & 0x8000u;
	uint32_t magnitude = bits & 0x7fffffffu;
	uint32_t shift, fraction, half, rest, middle;

	if (magnitude > 0x7f800000u)
		return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
	/* 65520 is halfway between the largest finite value and the next step, and ties to even. */
	if (magnitude >= 0x477ff000u)
		return (uint16_t)(sign | 0x7c00u);
	if (magnitude >= 0x38800000u) {
		magnitude -= 0x38000000u;
		return (uint16_t)(sign | (magnitude + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
	}
	/* 2^-25 ties to zero, and so does everything below it. */
	if (magnitude <= 0x33000000u)
		return (uint16_t)sign;

	shift = 126u - (magnitude >> 23);
	fraction = (magnitude & 0x7fffffu) | 0x800000u;
	half = fraction >> shift;
	rest = fraction & ((1u << shift) - 1u);
	middle = 1u << (shift - 1u);
	if (rest > middle || (rest == middle && (half & 1u)))
		half++;
	return (uint16_t)(sign | half);
}

#endif
