/* SPDX-License-Identifier: MIT */
/*
 * The vector loops of narrowing against the scalar conversions, over sizes around their widths
 * and unaligned places. Each variant runs only where the processor has it; the plain one always.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/f16.h"
#include "libtrace/narrow.h"
#include "tests/unit/support/half.h"
#include "tests/unit/support/rng.h"
#include "tests/unit/support/suite.h"

#define MAX_N 600

static const uint32_t sizes[] = { 0, 1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 97, 512, 599 };

struct variant {
	const char *name;
	mt_narrow_plain_fn fn;
	int (*is_available)(void);
};

static int always(void)
{
	return 1;
}

static const struct variant variants[] = {
	{ "plain", mt_narrow_plain, always },
	{ "avx2", mt_narrow_plain_avx2, mt_narrow_has_avx2 },
	{ "avx512", mt_narrow_plain_avx512, mt_narrow_has_avx512 },
};

static float random_weight(struct rng *rng)
{
	static const float special[] = { 0.0f, -0.0f, 1.0f, 65504.0f, 65520.0f, 1e-8f, 6e-8f, 3e-5f,
					 INFINITY, -INFINITY, 1e30f, 0.333333343f };

	if (rng_chance(rng, 20))
		return special[rng_below(rng, sizeof(special) / sizeof(special[0]))];
	return mt_f32_from_bits((uint32_t)rng_next(rng) & 0xbfffffffu);
}

static void check_size(const struct variant *variant, struct rng *rng, uint32_t n)
{
	static int32_t ids[MAX_N + 1];
	static float weights[MAX_N + 1];
	uint8_t got_ids[MAX_N + 8];
	uint16_t got_weights[MAX_N + 8];
	uint32_t offset = rng_below(rng, 2);

	for (uint32_t i = 0; i < n; i++) {
		ids[offset + i] = (int32_t)rng_below(rng, 256);
		weights[offset + i] = random_weight(rng);
	}
	memset(got_ids, 0xa5, sizeof(got_ids));
	memset(got_weights, 0xa5, sizeof(got_weights));
	ck_assert_uint_eq(variant->fn(ids + offset, weights + offset, n, 256, got_ids + 3,
				      got_weights + 3), 0);
	for (uint32_t i = 0; i < n; i++) {
		uint16_t want = half_from_double(&half_fp16, (double)weights[offset + i]);

		ck_assert_uint_eq(got_ids[3 + i], (uint32_t)ids[offset + i]);
		ck_assert_msg(half_same(&half_fp16, got_weights[3 + i], want),
			      "%s, %u of %u: %a becomes %04x instead of %04x", variant->name, i, n,
			      (double)weights[offset + i], got_weights[3 + i], want);
	}
	/* Nothing is written outside. */
	ck_assert_uint_eq(got_ids[2], 0xa5);
	ck_assert_uint_eq(got_ids[3 + n], 0xa5);
	ck_assert_uint_eq(got_weights[2], 0xa5a5);
	ck_assert_uint_eq(got_weights[3 + n], 0xa5a5);
}

START_TEST(test_sizes)
{
	struct rng rng = { 7 };

	if (!variants[_i].is_available())
		return;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (int round = 0; round < 40; round++)
			check_size(&variants[_i], &rng, sizes[i]);
}
END_TEST

/* One id out of range at any place is seen, also as a negative number. */
START_TEST(test_out_of_range)
{
	static const int32_t wrong[] = { -1, 64, 255, INT32_MIN, INT32_MAX };
	int32_t ids[100] = { 0 };
	float weights[100] = { 0 };
	uint8_t got_ids[100];
	uint16_t got_weights[100];

	if (!variants[_i].is_available())
		return;
	for (uint32_t at = 0; at < 100; at++) {
		for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
			ids[at] = wrong[i];
			ck_assert_uint_ne(variants[_i].fn(ids, weights, 100, 64, got_ids, got_weights),
					  0);
		}
		ids[at] = 63;
		ck_assert_uint_eq(variants[_i].fn(ids, weights, 100, 64, got_ids, got_weights), 0);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("narrow");
	TCase *narrow = tcase_create("narrow");

	tcase_add_loop_test(narrow, test_sizes, 0, 2);
	tcase_add_loop_test(narrow, test_out_of_range, 0, 2);
	suite_add_tcase(suite, narrow);
	return suite_run(suite);
}
