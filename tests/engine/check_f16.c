/* SPDX-License-Identifier: MIT */
/*
 * The 16-bit conversions against their definition: every half is widened to the value that its
 * fields spell, and rounding is probed on, just below and just above every midpoint between two
 * neighbouring halves.
 */
#include <math.h>
#include <stdint.h>

#include <check.h>

#include "common/f16.h"
#include "tests/support/run_suite.h"
#include "tests/unit/support/suite.h"

/* Of each of the 65536 numbers, i. */
#define HOLDS(condition) REQUIRE(condition, "0x%04x: %s", (unsigned)i, #condition)

/* The value that sign, exponent and fraction of a binary16 spell. */
static double half_value(uint16_t half)
{
	int exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
	double magnitude =
		exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);

	return half & 0x8000 ? -magnitude : magnitude;
}

START_TEST(test_f16_widen_is_exact)
{
	uint32_t i;

	for (i = 0; i <= UINT16_MAX; i++) {
		float value = mt_f32_from_f16((uint16_t)i);

		if ((i & 0x7c00) == 0x7c00) {
			HOLDS((isnan(value) != 0) == ((i & 0x3ff) != 0));
			HOLDS((isinf(value) != 0) == ((i & 0x3ff) == 0));
		} else {
			HOLDS(value == half_value((uint16_t)i));
		}
		HOLDS((signbit(value) != 0) == ((i & 0x8000) != 0));
	}
}
END_TEST

START_TEST(test_f16_narrow_inverts_widen)
{
	uint32_t i;

	for (i = 0; i <= UINT16_MAX; i++) {
		uint16_t back = mt_f16_from_f32(mt_f32_from_f16((uint16_t)i));

		if ((i & 0x7c00) == 0x7c00 && (i & 0x3ff) != 0)
			HOLDS(back == (i | 0x0200));
		else
			HOLDS(back == i);
	}
}
END_TEST

START_TEST(test_f16_narrow_rounds_to_nearest_even)
{
	uint32_t i;

	for (i = 0; i < 0x7bff; i++) {
		float middle =
			(float)((half_value((uint16_t)i) + half_value((uint16_t)(i + 1))) / 2);
		uint16_t even = (uint16_t)(i & 1 ? i + 1 : i);

		HOLDS(mt_f16_from_f32(middle) == even);
		HOLDS(mt_f16_from_f32(-middle) == (even | 0x8000));
		HOLDS(mt_f16_from_f32(nextafterf(middle, 0.0f)) == i);
		HOLDS(mt_f16_from_f32(nextafterf(middle, INFINITY)) == i + 1);
	}
}
END_TEST

START_TEST(test_f16_narrow_at_the_ends)
{
	ck_assert_uint_eq(mt_f16_from_f32(65519.996f), 0x7bff);
	ck_assert_uint_eq(mt_f16_from_f32(65520.0f), 0x7c00);
	ck_assert_uint_eq(mt_f16_from_f32(-3e38f), 0xfc00);
	ck_assert_uint_eq(mt_f16_from_f32(INFINITY), 0x7c00);
	ck_assert_uint_eq(mt_f16_from_f32(ldexpf(1, -25)), 0);
	ck_assert_uint_eq(mt_f16_from_f32(ldexpf(1.0001f, -25)), 1);
	ck_assert_uint_eq(mt_f16_from_f32(-0.0f), 0x8000);
	ck_assert_uint_eq(mt_f16_from_f32(mt_f32_from_bits(1)), 0);
	ck_assert_uint_eq(mt_f16_from_f32(mt_f32_from_bits(0xff800001u)), 0xfe00);
}
END_TEST

START_TEST(test_bf16)
{
	uint32_t i;

	for (i = 0; i <= UINT16_MAX; i++) {
		uint32_t bits = i << 16;
		uint16_t even = (uint16_t)(i & 1 ? i + 1 : i);

		HOLDS(mt_f32_bits(mt_f32_from_bf16((uint16_t)i)) == bits);
		if ((i & 0x7f80) == 0x7f80) {
			uint16_t back = mt_bf16_from_f32(mt_f32_from_bits(bits));

			HOLDS(back == (i & 0x7f ? i | 0x40 : i));
			continue;
		}
		HOLDS(mt_bf16_from_f32(mt_f32_from_bits(bits)) == i);
		HOLDS(mt_bf16_from_f32(mt_f32_from_bits(bits | 0x7fff)) == i);
		HOLDS(mt_bf16_from_f32(mt_f32_from_bits(bits | 0x8000)) == even);
		HOLDS(mt_bf16_from_f32(mt_f32_from_bits(bits | 0x8001)) == i + 1);
	}
	ck_assert_uint_eq(mt_bf16_from_f32(mt_f32_from_bits(0x7f800001u)), 0x7fc0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("f16");
	TCase *tcase = tcase_create("conversions");

	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, test_f16_widen_is_exact);
	tcase_add_test(tcase, test_f16_narrow_inverts_widen);
	tcase_add_test(tcase, test_f16_narrow_rounds_to_nearest_even);
	tcase_add_test(tcase, test_f16_narrow_at_the_ends);
	tcase_add_test(tcase, test_bf16);
	return run_suite(suite);
}
