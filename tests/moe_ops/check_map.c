/* SPDX-License-Identifier: MIT */
/*
 * The map from logical to physical experts: every rule against brute force over random tables, its
 * independence of batches, order and threads, what becomes of ids that name no expert, and the
 * tables that are refused.
 */
#include <math.h>

#include "kernels/map/map.h"
#include "kernels/threads.h"
#include "tests/moe_ops/support/draw.h"
#include "tests/moe_ops/support/suite.h"

#define MAX_LOGICAL  40
#define MAX_PHYSICAL 100
#define N_ROWS	     4999
#define TOP_K	     5

struct table {
	struct mtk_map_settings settings;
	int32_t physical_to_logical[MAX_PHYSICAL];
	int32_t static_physical[MAX_LOGICAL];
	float probabilities[MAX_PHYSICAL];
};

/* A random valid table: every expert once, the other places anything, in random order. */
static void draw_table(struct mtk_rng *rng, enum mtk_map_kind kind, struct table *table)
{
	struct mtk_map_settings *s = &table->settings;

	*s = (struct mtk_map_settings){
		.kind = kind,
		.n_logical = 1 + draw_below(rng, MAX_LOGICAL),
		.physical_to_logical = table->physical_to_logical,
		.seed = (uint64_t)(mtk_rng_next(rng) * 1e18),
	};
	s->n_physical = s->n_logical + draw_below(rng, MAX_PHYSICAL - s->n_logical + 1);
	for (uint32_t p = 0; p < s->n_physical; p++) {
		uint32_t other = draw_below(rng, p + 1);
		int32_t logical = p < s->n_logical ? (int32_t)p
						   : (int32_t)draw_below(rng, s->n_logical + 1) - 1;

		table->physical_to_logical[p] = table->physical_to_logical[other];
		table->physical_to_logical[other] = logical;
	}
	/* The highest copy, where the lowest is what the rule takes by itself. */
	for (uint32_t p = 0; p < s->n_physical; p++) {
		table->probabilities[p] = 0.1f + (float)mtk_rng_next(rng);
		if (table->physical_to_logical[p] >= 0)
			table->static_physical[table->physical_to_logical[p]] = (int32_t)p;
	}
	if (kind == MTK_MAP_STATIC && draw_below(rng, 2))
		s->static_physical = table->static_physical;
	if (kind == MTK_MAP_PROBABILITY && draw_below(rng, 2))
		s->probabilities = table->probabilities;
}

static uint64_t brute_mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x ^= x >> 30;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 27;
	x *= UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* The place of a hash in [0, 1), and the copy whose share holds it. */
static int32_t brute_share(const struct mtk_map_settings *s, int32_t id, uint64_t row,
			   uint32_t slot)
{
	uint64_t hash = brute_mix(brute_mix(brute_mix(s->seed) ^ row) ^ slot);
	long double place = (long double)hash / 0x1p64L;
	long double sum = 0.0L, before = 0.0L;
	int32_t chosen = -1;

	for (uint32_t p = 0; p < s->n_physical; p++)
		if (s->physical_to_logical[p] == id)
			sum += s->probabilities ? (long double)s->probabilities[p] : 1.0L;
	for (uint32_t p = 0; p < s->n_physical && chosen < 0; p++) {
		if (s->physical_to_logical[p] != id)
			continue;
		before += s->probabilities ? (long double)s->probabilities[p] : 1.0L;
		if (place < before / sum)
			chosen = (int32_t)p;
	}
	return chosen;
}

static int32_t brute_map(const struct mtk_map_settings *s, int32_t id, uint64_t row, uint32_t slot)
{
	uint32_t n = 0, wanted;

	if (id < 0 || id >= (int32_t)s->n_logical)
		return -1;
	if (s->static_physical)
		return s->static_physical[id];
	if (s->kind == MTK_MAP_PROBABILITY)
		return brute_share(s, id, row, slot);
	for (uint32_t p = 0; p < s->n_physical; p++)
		n += s->physical_to_logical[p] == id;
	wanted = s->kind == MTK_MAP_DYNAMIC ? (uint32_t)(row % n) : 0;
	for (uint32_t p = 0;; p++)
		if (s->physical_to_logical[p] == id && wanted-- == 0)
			return (int32_t)p;
}

static struct mtk_map *make_map(const struct mtk_map_settings *settings)
{
	struct mtk_error error;
	struct mtk_map *map = NULL;
	int status = mtk_map_create(settings, &error, &map);

	ck_assert_msg(status == MOETRACE_OK, "%s", error.text);
	return map;
}

START_TEST(test_rules_match_brute_force)
{
	static const uint32_t row_counts[] = {0, 1, 15, 16, 17, N_ROWS};
	struct mtk_rng rng;

	mtk_rng_seed(&rng, 1, (uint64_t)_i);
	for (uint32_t round = 0; round < 60; round++) {
		const uint32_t n_rows = row_counts[round % 6];
		struct table table;
		int32_t *ids = take((size_t)n_rows * TOP_K, sizeof(*ids));
		int32_t *found = take((size_t)n_rows * TOP_K, sizeof(*found));
		struct mtk_map_rows rows = {.top_k = TOP_K,
					    .first_number = UINT32_MAX - 7u,
					    .ids = ids,
					    .physical_ids = found};
		uint64_t n_invalid = 0;
		struct mtk_map *map;

		draw_table(&rng, (enum mtk_map_kind)_i, &table);
		for (uint32_t i = 0; i < n_rows * TOP_K; i++) {
			ids[i] = draw_id(&rng, table.settings.n_logical, 1);
			n_invalid += ids[i] != -1 &&
				     (ids[i] < 0 || ids[i] >= (int32_t)table.settings.n_logical);
		}
		map = make_map(&table.settings);
		ck_assert_uint_eq(mtk_map_run(map, &rows, 0, n_rows), n_invalid);
		for (uint32_t i = 0; i < n_rows * TOP_K; i++)
			require(found[i] == brute_map(&table.settings, ids[i],
						      rows.first_number + i / TOP_K, i % TOP_K));
		mtk_map_destroy(map);
		free(ids);
		free(found);
	}
}
END_TEST

START_TEST(test_hash_is_as_stated)
{
	/* The first value of the generator that the mixing function is known from, seeded by 0. */
	ck_assert_uint_eq(brute_mix(0), UINT64_C(0xe220a8397b1dcdaf));
	for (uint64_t row = 0; row < 100; row++)
		ck_assert_uint_eq(mtk_map_hash(row * 77, row << 33, (uint32_t)row),
				  brute_mix(brute_mix(brute_mix(row * 77) ^ row << 33) ^ row));
}
END_TEST

START_TEST(test_probability_gives_each_copy_its_share)
{
	static const int32_t physical_to_logical[] = {0, 1, 0, 0, -1, 0};
	static const float probabilities[] = {0.0f, 1.0f, 1.0f, 0.0f, 5.0f, 3.0f};
	const struct mtk_map_settings settings = {.kind = MTK_MAP_PROBABILITY,
						  .n_logical = 2,
						  .n_physical = 6,
						  .physical_to_logical = physical_to_logical,
						  .probabilities = probabilities,
						  .seed = 5};
	const uint32_t n_rows = 200000;
	struct mtk_map *map = make_map(&settings);
	uint32_t counts[6] = {0};

	for (uint32_t row = 0; row < n_rows; row++) {
		int32_t id = 0, found;
		struct mtk_map_rows rows = {
			.top_k = 1, .first_number = row, .ids = &id, .physical_ids = &found};

		mtk_map_run(map, &rows, 0, 1);
		counts[found]++;
	}
	/* Shares 1 / 4 and 3 / 4; five standard deviations are 970 rows. */
	ck_assert_uint_eq(counts[2] + counts[5], n_rows);
	ck_assert_int_lt(abs((int)counts[2] - 50000), 970);
	mtk_map_destroy(map);
}
END_TEST

struct map_job {
	const struct mtk_map *map;
	const struct mtk_map_rows *rows;
};

static void map_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct map_job *job = arg;

	mtk_map_run(job->map, job->rows, begin, end);
}

START_TEST(test_independent_of_batch_order_and_threads)
{
	static int32_t ids[N_ROWS * TOP_K], expected[N_ROWS * TOP_K];
	static int32_t moved_ids[N_ROWS * TOP_K], found[N_ROWS * TOP_K];
	static uint64_t numbers[N_ROWS];
	struct mtk_map *map;
	struct mtk_map_rows rows = {.top_k = TOP_K, .ids = ids, .physical_ids = expected};
	struct mtk_map_rows moved = {
		.top_k = TOP_K, .numbers = numbers, .ids = moved_ids, .physical_ids = found};
	struct map_job job;
	struct mtk_threads *threads;
	struct mtk_rng rng;
	struct table table;

	mtk_rng_seed(&rng, 2, (uint64_t)_i);
	draw_table(&rng, (enum mtk_map_kind)_i, &table);
	map = make_map(&table.settings);
	job = (struct map_job){map, &moved};
	for (uint32_t i = 0; i < N_ROWS * TOP_K; i++)
		ids[i] = draw_id(&rng, table.settings.n_logical, 1);
	for (uint32_t row = 0; row < N_ROWS; row++)
		mtk_map_run(map, &rows, row, row + 1);
	/* The rows backwards, in pieces, on three threads. */
	for (uint32_t row = 0; row < N_ROWS; row++) {
		numbers[row] = N_ROWS - 1 - row;
		memcpy(moved_ids + row * TOP_K, ids + numbers[row] * TOP_K, TOP_K * sizeof(*ids));
	}
	ck_assert_int_eq(mtk_threads_create(3, &threads), 0);
	mtk_threads_run(threads, N_ROWS, 17, map_task, &job);
	for (uint32_t row = 0; row < N_ROWS; row++)
		ck_assert_mem_eq(found + row * TOP_K, expected + numbers[row] * TOP_K,
				 TOP_K * sizeof(*found));
	/* In place. */
	rows.physical_ids = ids;
	mtk_map_run(map, &rows, 0, N_ROWS);
	ck_assert_mem_eq(ids, expected, sizeof(ids));
	mtk_threads_destroy(threads);
	mtk_map_destroy(map);
}
END_TEST

START_TEST(test_padding_and_poison_become_minus_one)
{
	static const int32_t physical_to_logical[] = {0, 1, 2, 1};
	const struct mtk_map_settings settings = {.kind = MTK_MAP_DYNAMIC,
						  .n_logical = 3,
						  .n_physical = 4,
						  .physical_to_logical = physical_to_logical};
	int32_t ids[] = {-1, -1, POISON_ID, 3, INT32_MIN, 2};
	struct mtk_map_rows rows = {.top_k = 2, .ids = ids, .physical_ids = ids};
	struct mtk_map *map = make_map(&settings);

	ck_assert_uint_eq(mtk_map_run(map, &rows, 0, 3), 3);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(ids[i], -1);
	ck_assert_int_eq(ids[5], 2);
	mtk_map_destroy(map);
}
END_TEST

/* Two copies of expert 1 side by side, as a packing that does no better may leave them. */
START_TEST(test_replicas_on_one_rank_are_allowed)
{
	static const int32_t physical_to_logical[] = {1, 1, 0, 1};
	const struct mtk_map_settings settings = {.kind = MTK_MAP_DYNAMIC,
						  .n_logical = 2,
						  .n_physical = 4,
						  .physical_to_logical = physical_to_logical};
	const int32_t expected[] = {0, 1, 3, 0};
	struct mtk_map *map = make_map(&settings);
	const int32_t *replicas;
	uint32_t n;

	replicas = mtk_map_replicas(map, 1, &n);
	ck_assert_uint_eq(n, 3);
	ck_assert_mem_eq(replicas, expected, 3 * sizeof(*replicas));
	for (uint32_t row = 0; row < 4; row++) {
		int32_t id = 1, found;
		struct mtk_map_rows rows = {
			.top_k = 1, .first_number = row, .ids = &id, .physical_ids = &found};

		mtk_map_run(map, &rows, 0, 1);
		ck_assert_int_eq(found, expected[row]);
	}
	mtk_map_destroy(map);
}
END_TEST

/* Entry by entry: one change to a good table, and what the refusal must name. */
START_TEST(test_bad_tables_are_refused_by_name)
{
	const float nan_value = NAN;
	const struct {
		struct mtk_map_settings settings;
		int32_t table[3], chosen[2];
		float shares[3];
		const char *field;
	} cases[] = {
		{{.kind = 3, .n_logical = 2, .n_physical = 3},
		 {0, 1, 1},
		 {0, 1},
		 {1, 1, 1},
		 "kind"},
		{{.n_logical = 0, .n_physical = 3}, {0, 1, 1}, {0, 1}, {1, 1, 1}, "n_logical"},
		{{.n_logical = 2, .n_physical = 1}, {0, 1, 1}, {0, 1}, {1, 1, 1}, "n_physical"},
		{{.n_logical = 2, .n_physical = 0x80000000u},
		 {0, 1, 1},
		 {0, 1},
		 {1, 1, 1},
		 "n_physical"},
		{{.n_logical = 2, .n_physical = 3},
		 {0, 2, 1},
		 {0, 1},
		 {1, 1, 1},
		 "physical_to_logical[1]: 2 "},
		{{.n_logical = 2, .n_physical = 3},
		 {0, 1, -2},
		 {0, 1},
		 {1, 1, 1},
		 "physical_to_logical[2]: -2 "},
		{{.kind = MTK_MAP_DYNAMIC, .n_logical = 2, .n_physical = 3},
		 {0, 0, -1},
		 {0, 1},
		 {1, 1, 1},
		 "physical_to_logical: logical expert 1 "},
		{{.n_logical = 2, .n_physical = 3},
		 {0, 1, 1},
		 {0, 3},
		 {1, 1, 1},
		 "static_physical[1]: 3 "},
		{{.n_logical = 2, .n_physical = 3},
		 {0, 1, 1},
		 {-1, 1},
		 {1, 1, 1},
		 "static_physical[0]: -1 "},
		{{.n_logical = 2, .n_physical = 3},
		 {0, 1, 1},
		 {1, 1},
		 {1, 1, 1},
		 "static_physical[0]: "},
		{{.kind = MTK_MAP_PROBABILITY, .n_logical = 2, .n_physical = 3},
		 {0, 1, 1},
		 {0, 1},
		 {1, -1, 1},
		 "probabilities[1]: -1 "},
		{{.kind = MTK_MAP_PROBABILITY, .n_logical = 2, .n_physical = 3},
		 {0, 1, 1},
		 {0, 1},
		 {1, 1, nan_value},
		 "probabilities[2]: "},
		{{.kind = MTK_MAP_PROBABILITY, .n_logical = 2, .n_physical = 3},
		 {0, 1, 1},
		 {0, 1},
		 {1, 1, INFINITY},
		 "probabilities[2]: inf"},
		{{.kind = MTK_MAP_PROBABILITY, .n_logical = 2, .n_physical = 3},
		 {0, 1, 1},
		 {0, 1},
		 {1, 0, 0},
		 "probabilities: those of logical expert 1 "},
	};
	struct mtk_map *map = NULL;
	struct mtk_error error;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mtk_map_settings settings = cases[i].settings;

		settings.physical_to_logical = cases[i].table;
		if (settings.kind == MTK_MAP_STATIC)
			settings.static_physical = cases[i].chosen;
		if (settings.kind == MTK_MAP_PROBABILITY)
			settings.probabilities = cases[i].shares;
		assert_refused(mtk_map_create(&settings, &error, &map), &error, cases[i].field);
		ck_assert_int_eq(mtk_map_create(&settings, NULL, &map), MOETRACE_E_INVALID);
		ck_assert_ptr_null(map);
	}
}
END_TEST

START_TEST(test_fields_of_another_rule_are_refused)
{
	static const int32_t table[] = {0, 1};
	static const float shares[] = {1, 1};
	struct mtk_map_settings settings = {
		.kind = MTK_MAP_DYNAMIC, .n_logical = 2, .n_physical = 2};
	struct mtk_map *map = NULL;
	struct mtk_error error;

	assert_refused(mtk_map_create(&settings, &error, &map), &error, "physical_to_logical");
	settings.physical_to_logical = table;
	settings.static_physical = table;
	assert_refused(mtk_map_create(&settings, &error, &map), &error, "static_physical");
	settings.static_physical = NULL;
	settings.probabilities = shares;
	assert_refused(mtk_map_create(&settings, &error, &map), &error, "probabilities");
	ck_assert_ptr_null(map);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("map");
	TCase *tcase = tcase_create("map");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, test_rules_match_brute_force, 0, MTK_MAP_PROBABILITY + 1);
	tcase_add_test(tcase, test_hash_is_as_stated);
	tcase_add_test(tcase, test_probability_gives_each_copy_its_share);
	tcase_add_loop_test(tcase, test_independent_of_batch_order_and_threads, 0,
			    MTK_MAP_PROBABILITY + 1);
	tcase_add_test(tcase, test_padding_and_poison_become_minus_one);
	tcase_add_test(tcase, test_replicas_on_one_rank_are_allowed);
	tcase_add_test(tcase, test_bad_tables_are_refused_by_name);
	tcase_add_test(tcase, test_fields_of_another_rule_are_refused);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
