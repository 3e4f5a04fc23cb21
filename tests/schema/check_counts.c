/* SPDX-License-Identifier: MIT */
/*
 * Counts of expert ids against plain counting: calls of every length, and so many of one id that
 * the small tables have to give theirs away again and again.
 */
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "schema/functions/load_count.h"
#include "tests/unit/support/rng.h"
#include "tests/unit/support/suite.h"

static struct mt_counts counts;
static uint64_t want[65536];
static uint8_t ids[600000];

static void count(const uint8_t *bytes, size_t n)
{
	mt_count_u8(&counts, bytes, n);
	for (size_t i = 0; i < n; i++)
		want[bytes[i]]++;
}

static void expect_same(size_t n_ids)
{
	ck_assert_uint_eq(mt_counts_size(&counts), n_ids);
	for (size_t id = 0; id < n_ids; id++)
		ck_assert_uint_eq(mt_counts_get(&counts, id), want[id]);
}

START_TEST(test_u8_random)
{
	struct rng rng = {.state = 1};

	for (size_t i = 0; i < 4096; i++)
		ids[i] = (uint8_t)rng_below(&rng, 256);
	for (size_t n = 0; n < 70; n++)
		count(ids + n * 7, n);
	expect_same(256);
}
END_TEST

/* One call behind another, of a length whose rest always falls on the same table; then one long call. */
START_TEST(test_u8_one_id)
{
	memset(ids, 77, sizeof(ids));
	for (size_t i = 0; i < 200000; i++)
		count(ids, 1);
	for (size_t i = 0; i < 30000; i++)
		count(ids, 9);
	expect_same(256);
	count(ids, sizeof(ids));
	expect_same(256);
}
END_TEST

START_TEST(test_both_widths)
{
	struct rng rng = {.state = 2};
	uint8_t wide[2 * 1000];

	for (size_t i = 0; i < 1000; i++) {
		const uint32_t id = rng_below(&rng, 65536);

		wide[2 * i] = (uint8_t)id;
		wide[2 * i + 1] = (uint8_t)(id >> 8);
		want[id]++;
		ids[i] = (uint8_t)rng_below(&rng, 256);
	}
	count(ids, 1000);
	ck_assert_int_eq(mt_count_u16(&counts, wide, 1000), SQLITE_OK);
	expect_same(65536);
	sqlite3_free(counts.u16);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("counts");
	TCase *tcase = tcase_create("counts");

	tcase_add_test(tcase, test_u8_random);
	tcase_add_test(tcase, test_u8_one_id);
	tcase_add_test(tcase, test_both_widths);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
