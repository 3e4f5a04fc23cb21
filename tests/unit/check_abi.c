/* SPDX-License-Identifier: MIT */
/*
 * Structs of other versions of the headers: what a shorter one lacks is 0 and is not read from
 * beyond its end, what a longer one has beyond ours is left alone, and what is handed out fits
 * the caller's.
 */
#include <stdlib.h>

#include "libtrace/abi.h"
#include "tests/unit/support/suite.h"

struct version {
	size_t size;
	uint32_t first;
	uint32_t second;
	uint64_t third;
};

START_TEST(test_sizes)
{
	const size_t first_bytes = MT_BYTES_UP_TO(struct version, first);

	ck_assert_uint_eq(first_bytes, sizeof(size_t) + sizeof(uint32_t));
	ck_assert(!mt_abi_knows(0, first_bytes));
	ck_assert(!mt_abi_knows(first_bytes - 1, first_bytes));
	ck_assert(mt_abi_knows(first_bytes, first_bytes));
	ck_assert(mt_abi_knows(sizeof(struct version) + 8, first_bytes));
	ck_assert(!mt_abi_knows(SIZE_MAX, first_bytes));
}
END_TEST

/* The shorter struct lies in memory of its own size, so that a sanitizer sees every byte read. */
START_TEST(test_shorter_struct)
{
	const struct version old = {.size = MT_BYTES_UP_TO(struct version, first), .first = 7};
	volatile size_t size = old.size; /* not a number that the compiler may know */
	struct version *given = malloc(size);
	struct version room;
	const struct version *wide;

	memset(&room, 0xff, sizeof(room));
	ck_assert_ptr_nonnull(given);
	memcpy(given, &old, size);
	wide = MT_ABI_WIDEN(given, &room);
	ck_assert_ptr_eq(wide, &room);
	ck_assert_uint_eq(wide->first, 7);
	ck_assert_uint_eq(wide->second, 0);
	ck_assert_uint_eq(wide->third, 0);
	free(given);
}
END_TEST

START_TEST(test_equal_and_longer_structs)
{
	struct version given = {.size = sizeof(given), .third = 9}, room;

	ck_assert_ptr_eq(MT_ABI_WIDEN(&given, &room), &given);
	given.size += 16;
	ck_assert_ptr_eq(MT_ABI_WIDEN(&given, &room), &given);
}
END_TEST

START_TEST(test_handing_out)
{
	const struct version known = {.size = sizeof(known), .first = 1, .second = 2, .third = 3};
	struct {
		struct version ours;
		uint64_t later;
	} to;

	memset(&to, 0xff, sizeof(to));
	to.ours.size = MT_BYTES_UP_TO(struct version, second);
	mt_abi_narrow(&to, to.ours.size, &known, sizeof(known));
	ck_assert_uint_eq(to.ours.size, MT_BYTES_UP_TO(struct version, second));
	ck_assert_uint_eq(to.ours.second, 2);
	ck_assert_uint_eq(to.ours.third, UINT64_MAX);

	to.ours.size = sizeof(to);
	mt_abi_narrow(&to, sizeof(to), &known, sizeof(known));
	ck_assert_uint_eq(to.ours.size, sizeof(to));
	ck_assert_uint_eq(to.ours.third, 3);
	ck_assert_uint_eq(to.later, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("abi");
	TCase *sizes = tcase_create("sizes");

	tcase_add_test(sizes, test_sizes);
	tcase_add_test(sizes, test_shorter_struct);
	tcase_add_test(sizes, test_equal_and_longer_structs);
	tcase_add_test(sizes, test_handing_out);
	suite_add_tcase(suite, sizes);
	return suite_run(suite);
}
