/* SPDX-License-Identifier: MIT */
/*
 * Alignment: the definition and the fast path against a comparison sort, over random ids, experts,
 * blocks, layouts, maps and threads, every element of every output; the sizes past 2^31; and by
 * name the faults that are known of other implementations.
 */
#include <stdbool.h>

#include "kernels/align/align.h"
#include "tests/moe_ops/support/draw.h"
#include "tests/moe_ops/support/suite.h"

#define MAX_THREADS 4

struct outputs {
	struct mtk_align_sizes sizes;
	struct mtk_align_result result;
};

static struct mtk_threads *pools[MAX_THREADS + 1];

static struct mtk_threads *pool_of(uint32_t n_threads)
{
	if (!pools[n_threads])
		ck_assert_int_eq(mtk_threads_create(n_threads, &pools[n_threads]), 0);
	return pools[n_threads];
}

static void destroy_pools(void)
{
	for (uint32_t n = 0; n <= MAX_THREADS; n++) {
		mtk_threads_destroy(pools[n]);
		pools[n] = NULL;
	}
}

/* Outputs in memory of exactly the sizes that the operation asks for, full of poison. */
static struct outputs take_outputs(const struct mtk_align_settings *settings, uint64_t n_rows)
{
	struct outputs o;
	struct mtk_error error;

	ck_assert_int_eq(mtk_align_check(settings, &error), 0);
	ck_assert_int_eq(mtk_align_sizes(settings, n_rows, &error, &o.sizes), 0);
	o.result.sorted_pairs = take((size_t)o.sizes.capacity, sizeof(int64_t));
	o.result.expert_ids = take((size_t)o.sizes.n_blocks, sizeof(int32_t));
	o.result.first_slots = take((size_t)settings->n_experts + 1, sizeof(int64_t));
	o.result.pair_slots = take((size_t)o.sizes.n_pairs, sizeof(int64_t));
	return o;
}

static void release_outputs(struct outputs *o)
{
	free(o->result.sorted_pairs);
	free(o->result.expert_ids);
	free(o->result.first_slots);
	free(o->result.pair_slots);
}

static struct outputs align_plain(const struct mtk_align_settings *settings, uint64_t n_rows,
				  const int32_t *ids)
{
	struct outputs o = take_outputs(settings, n_rows);

	mtk_align_plain(settings, &o.sizes, ids, &o.result);
	return o;
}

static struct outputs align_fast(const struct mtk_align_settings *settings, uint64_t n_rows,
				 const int32_t *ids, uint32_t n_threads)
{
	struct outputs o = take_outputs(settings, n_rows);
	size_t n_scratch = mtk_align_scratch_elements(settings, n_threads);
	int64_t *scratch = take(n_scratch, sizeof(*scratch));

	ck_assert_uint_eq(n_scratch, ((size_t)settings->n_experts + 1) * n_threads);
	mtk_align_run(settings, &o.sizes, ids, pool_of(n_threads), scratch, &o.result);
	free(scratch);
	return o;
}

static void assert_same_outputs(const struct mtk_align_settings *settings, const struct outputs *a,
				const struct outputs *b)
{
	ck_assert_int_eq(a->result.n_padded, b->result.n_padded);
	ck_assert_int_eq(a->result.n_dropped, b->result.n_dropped);
	ck_assert_mem_eq(a->result.sorted_pairs, b->result.sorted_pairs,
			 (size_t)a->sizes.capacity * sizeof(int64_t));
	ck_assert_mem_eq(a->result.expert_ids, b->result.expert_ids,
			 (size_t)a->sizes.n_blocks * sizeof(int32_t));
	ck_assert_mem_eq(a->result.first_slots, b->result.first_slots,
			 ((size_t)settings->n_experts + 1) * sizeof(int64_t));
	ck_assert_mem_eq(a->result.pair_slots, b->result.pair_slots,
			 (size_t)a->sizes.n_pairs * sizeof(int64_t));
}

/* A pair and its expert, for the comparison sort. */
struct keyed {
	int64_t expert; /* -1: none */
	int64_t pair;
};

static int compare_keyed(const void *a, const void *b)
{
	const struct keyed *x = a, *y = b;

	if (x->expert != y->expert)
		return x->expert < y->expert ? -1 : 1;
	return x->pair < y->pair ? -1 : x->pair > y->pair;
}

static int64_t brute_expert(const struct mtk_align_settings *s, int64_t id)
{
	int64_t n = s->expert_map ? s->n_ids : s->n_experts;

	if (id < 0 || id >= n)
		return -1;
	return s->expert_map ? s->expert_map[id] : id;
}

/* Walk the slots in order and say what each must hold. */
static void assert_matches_sort(const struct mtk_align_settings *s, uint64_t n_rows,
				const int32_t *ids, const struct outputs *o)
{
	const int64_t n = (int64_t)n_rows * s->top_k, block = s->block_rows;
	struct keyed *keyed = take((size_t)n, sizeof(*keyed));
	int64_t slot = 0, at = 0, n_dropped = 0;

	for (int64_t p = 0; p < n; p++)
		keyed[p] = (struct keyed){brute_expert(s, ids[p]), p};
	qsort(keyed, (size_t)n, sizeof(*keyed), compare_keyed);
	for (; at < n && keyed[at].expert < 0; at++) {
		n_dropped++;
		require(o->result.pair_slots[keyed[at].pair] == -1);
	}
	require(o->sizes.n_pairs == n);
	require(o->result.n_dropped == n_dropped);
	at = s->invalid_first ? 0 : n_dropped;
	for (int64_t e = s->invalid_first ? -1 : 0; e < s->n_experts; e++) {
		if (e >= 0)
			require(o->result.first_slots[e] == slot);
		while (at < n && keyed[at].expert == e) {
			require(o->result.expert_ids[slot / block] == e);
			if (e >= 0)
				require(o->result.pair_slots[keyed[at].pair] == slot);
			require(o->result.sorted_pairs[slot++] == keyed[at++].pair);
		}
		for (; slot % block != 0; slot++)
			require(o->result.sorted_pairs[slot] == n);
	}
	require(o->result.first_slots[s->n_experts] == slot);
	require(o->result.n_padded == slot);
	require(slot <= o->sizes.capacity);
	require(o->sizes.capacity == o->sizes.n_blocks * block);
	for (int64_t b = slot / block; b < o->sizes.n_blocks; b++)
		require(o->result.expert_ids[b] == -1);
	for (; slot < o->sizes.capacity; slot++)
		require(o->result.sorted_pairs[slot] == n);
	free(keyed);
}

static void check_case(const struct mtk_align_settings *settings, uint64_t n_rows,
		       const int32_t *ids, uint32_t n_threads)
{
	struct outputs fast = align_fast(settings, n_rows, ids, n_threads);

	assert_matches_sort(settings, n_rows, ids, &fast);
	/* The definition scans the pairs for every expert: not where both are many. */
	if ((double)n_rows * settings->top_k * settings->n_experts < 2e6) {
		struct outputs plain = align_plain(settings, n_rows, ids);

		assert_same_outputs(settings, &plain, &fast);
		release_outputs(&plain);
	}
	release_outputs(&fast);
}

static int32_t *draw_ids(struct mtk_rng *rng, uint64_t n, uint32_t n_ids, bool allow_bad)
{
	int32_t *ids = take((size_t)n, sizeof(*ids));
	bool few = draw_below(rng, 3) == 0 && n_ids > 2;

	/* Often all pairs meet in two experts. */
	for (uint64_t i = 0; i < n; i++)
		ids[i] = draw_id(rng, few ? 2 : n_ids, allow_bad);
	return ids;
}

START_TEST(test_random_cases_match_a_sort)
{
	static const uint32_t experts[] = {0, 1, 2, 3, 31, 33, 60, 64, 257};
	static const uint32_t blocks[] = {1, 2, 4, 16, 64, 128};
	static const uint32_t top_ks[] = {1, 2, 8, 22};
	struct mtk_rng rng;

	mtk_rng_seed(&rng, 3, (uint64_t)_i);
	for (uint32_t round = 0; round < 400; round++) {
		struct mtk_align_settings settings = {
			.n_experts = experts[draw_below(&rng, 9)],
			.top_k = top_ks[draw_below(&rng, 4)],
			.block_rows = blocks[draw_below(&rng, 6)],
			.invalid_first = draw_below(&rng, 2),
		};
		const uint32_t block = settings.block_rows;
		const uint64_t row_counts[] = {0,     1,	 block - 1,
					       block, block + 1, draw_below(&rng, 60)};
		const uint64_t n_rows = row_counts[draw_below(&rng, 6)];
		uint32_t n_ids = settings.n_experts;
		int32_t map[300];
		int32_t *ids;

		if (draw_below(&rng, 2)) {
			n_ids = draw_below(&rng, 300);
			for (uint32_t i = 0; i < n_ids; i++)
				map[i] = (int32_t)draw_below(&rng, settings.n_experts + 1) - 1;
			settings.n_ids = n_ids;
			settings.expert_map = map;
		}
		ids = draw_ids(&rng, n_rows * settings.top_k, n_ids, draw_below(&rng, 2));
		check_case(&settings, n_rows, ids, 1 + draw_below(&rng, MAX_THREADS));
		free(ids);
	}
	destroy_pools();
}
END_TEST

/* Several thousand rows, so that the fast path really cuts its work. */
START_TEST(test_large_batches_match_a_sort)
{
	static const uint32_t experts[] = {8, 160, 256, 896};
	struct mtk_rng rng;

	mtk_rng_seed(&rng, 4, (uint64_t)_i);
	for (uint32_t n_threads = 1; n_threads <= MAX_THREADS; n_threads++) {
		const struct mtk_align_settings settings = {.n_experts = experts[_i],
							    .top_k = 8,
							    .block_rows = 64,
							    .invalid_first = n_threads % 2};
		const uint64_t n_rows = n_threads == MAX_THREADS ? 65536 : 8190 + n_threads;
		int32_t *ids = draw_ids(&rng, n_rows * 8, experts[_i], true);

		check_case(&settings, n_rows, ids, n_threads);
		free(ids);
	}
	destroy_pools();
}
END_TEST

START_TEST(test_example_by_hand)
{
	static const int32_t ids[] = {2, 3, 4, 1, 2, 4, 1, 3, 4, 1, 2, 3};
	/* Experts 1 to 4 as 0 to 3, in blocks of 4: each has three pairs. */
	static const int32_t map[] = {-1, 0, 1, 2, 3};
	static const int64_t expected[] = {3, 6, 9, 12, 0, 4, 10, 12, 1, 7, 11, 12, 2, 5, 8, 12};
	static const int32_t expected_experts[] = {0, 1, 2, 3};
	const struct mtk_align_settings settings = {
		.n_experts = 4, .top_k = 3, .block_rows = 4, .n_ids = 5, .expert_map = map};
	struct outputs o = align_fast(&settings, 4, ids, 1);

	ck_assert_int_eq(o.result.n_padded, 16);
	ck_assert_int_eq(o.sizes.capacity, 24);
	ck_assert_mem_eq(o.result.sorted_pairs, expected, sizeof(expected));
	ck_assert_mem_eq(o.result.expert_ids, expected_experts, sizeof(expected_experts));
	release_outputs(&o);
	destroy_pools();
}
END_TEST

/* No row at all: nothing in use, and the empty outputs say so. */
START_TEST(test_zero_rows)
{
	const struct mtk_align_settings settings = {
		.n_experts = 64, .top_k = 8, .block_rows = 16, .invalid_first = _i};
	struct outputs o = align_fast(&settings, 0, NULL, 2);

	ck_assert_int_eq(o.sizes.capacity, 0);
	ck_assert_int_eq(o.result.n_padded, 0);
	ck_assert_int_eq(o.result.n_dropped, 0);
	for (uint32_t e = 0; e <= 64; e++)
		ck_assert_int_eq(o.result.first_slots[e], 0);
	release_outputs(&o);
	destroy_pools();
}
END_TEST

START_TEST(test_one_row)
{
	static const int32_t ids[] = {7, 63, 0, 31, 32, 1, 62, 33};
	const struct mtk_align_settings settings = {
		.n_experts = 64, .top_k = 8, .block_rows = 16, .invalid_first = _i};

	check_case(&settings, 1, ids, 2);
	destroy_pools();
}
END_TEST

/* Counts of experts at and past every width that kernels couple to their block of threads. */
START_TEST(test_any_number_of_experts)
{
	static const uint32_t experts[] = {31, 32, 33, 1023, 1024, 1025, 2048, 8191, 8192};
	struct mtk_rng rng;

	mtk_rng_seed(&rng, 5, (uint64_t)_i);
	for (uint32_t n_rows = 1; n_rows < 2000; n_rows = n_rows * 5 + 1) {
		const struct mtk_align_settings settings = {
			.n_experts = experts[_i], .top_k = 6, .block_rows = 16};
		int32_t *ids = draw_ids(&rng, n_rows * 6, experts[_i], false);

		ids[0] = (int32_t)experts[_i] - 1;
		check_case(&settings, n_rows, ids, 3);
		free(ids);
	}
	destroy_pools();
}
END_TEST

/* The scratch grows with the experts, not with their square or with the rows. */
START_TEST(test_scratch_is_linear_in_experts)
{
	struct mtk_align_settings settings = {.n_experts = 8192, .top_k = 8, .block_rows = 64};

	ck_assert_uint_eq(mtk_align_scratch_elements(&settings, 1), 8193);
	ck_assert_uint_eq(mtk_align_scratch_elements(&settings, 4), 4 * 8193);
	settings.n_experts = INT32_MAX;
	ck_assert_uint_eq(mtk_align_scratch_elements(&settings, UINT32_MAX), 0);
}
END_TEST

/* 9 + 8 * 15 = 129 slots are no whole number of blocks of 16: the capacity is 144. */
START_TEST(test_capacity_is_whole_blocks)
{
	const struct mtk_align_settings settings = {.n_experts = 8, .top_k = 1, .block_rows = 16};
	static const int32_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 7};
	struct mtk_align_sizes sizes;

	ck_assert_int_eq(mtk_align_sizes(&settings, 9, NULL, &sizes), 0);
	ck_assert_int_eq(sizes.capacity, 144);
	ck_assert_int_eq(sizes.n_blocks, 9);
	check_case(&settings, 9, ids, 1);
	destroy_pools();
}
END_TEST

/* The worst ids there are: as many runs as possible, each one pair into its last block. */
START_TEST(test_capacity_holds_the_worst_case)
{
	for (uint32_t n_experts = 1; n_experts < 20; n_experts++) {
		for (uint32_t block = 1; block < 20; block++) {
			for (uint32_t n_rows = 1; n_rows < 60; n_rows += 7) {
				const struct mtk_align_settings settings = {.n_experts = n_experts,
									    .top_k = 1,
									    .block_rows = block,
									    .invalid_first =
										    n_rows % 2};
				int32_t ids[60];

				for (uint32_t r = 0; r < n_rows; r++)
					ids[r] = (int32_t)(r % (n_experts + 1)) - 1;
				for (uint32_t r = n_experts + 1; r < n_rows; r++)
					ids[r] = -1 + (int32_t)(r / block % (n_experts + 1));
				check_case(&settings, n_rows, ids, 1);
			}
		}
	}
	destroy_pools();
}
END_TEST

START_TEST(test_poisoned_and_negative_ids_are_dropped)
{
	static const int32_t ids[] = {POISON_ID, -1, 3, 4, INT32_MIN, 0, -7, 4};
	const struct mtk_align_settings settings = {.n_experts = 4, .top_k = 2, .block_rows = 2};
	static const int64_t expected[] = {5, 8, 2, 8};
	static const int32_t expected_experts[] = {0, 3};
	struct outputs o = align_fast(&settings, 4, ids, 1);

	ck_assert_int_eq(o.result.n_dropped, 6);
	ck_assert_int_eq(o.result.n_padded, 4);
	ck_assert_mem_eq(o.result.sorted_pairs, expected, sizeof(expected));
	ck_assert_mem_eq(o.result.expert_ids, expected_experts, sizeof(expected_experts));
	release_outputs(&o);
	destroy_pools();
}
END_TEST

/* Under an expert map no block of -1 stands in the used range, and padding rows are in none. */
START_TEST(test_no_inactive_block_in_use)
{
	enum { N_ROWS = 500, N_LOCAL = 8 };
	int32_t map[64], ids[N_ROWS];
	const struct mtk_align_settings settings = {
		.n_experts = N_LOCAL, .top_k = 1, .block_rows = 16, .n_ids = 64, .expert_map = map};
	int64_t n_local = 0;
	struct outputs o;
	struct mtk_rng rng;

	mtk_rng_seed(&rng, 6, 0);
	for (int32_t i = 0; i < 64; i++)
		map[i] = i >= 24 && i < 24 + N_LOCAL ? i - 24 : -1;
	for (int r = 0; r < N_ROWS; r++) {
		/* The last hundred rows are padding. */
		ids[r] = r < N_ROWS - 100 ? (int32_t)draw_below(&rng, 64) : -1;
		n_local += ids[r] >= 24 && ids[r] < 24 + N_LOCAL;
	}
	o = align_fast(&settings, N_ROWS, ids, 2);
	ck_assert_int_eq(o.result.n_dropped, N_ROWS - n_local);
	for (int64_t b = 0; b < o.result.n_padded / 16; b++)
		ck_assert_int_ge(o.result.expert_ids[b], 0);
	for (int r = N_ROWS - 100; r < N_ROWS; r++)
		ck_assert_int_eq(o.result.pair_slots[r], -1);
	for (int64_t s = 0; s < o.result.n_padded; s++)
		ck_assert(o.result.sorted_pairs[s] < N_ROWS - 100 ||
			  o.result.sorted_pairs[s] == N_ROWS);
	release_outputs(&o);
	destroy_pools();
}
END_TEST

START_TEST(test_invalid_first_layout_by_hand)
{
	static const int32_t ids[] = {1, -1, 0, 9, 1, -1};
	const struct mtk_align_settings settings = {
		.n_experts = 2, .top_k = 2, .block_rows = 2, .invalid_first = true};
	static const int64_t expected[] = {1, 3, 5, 6, 2, 6, 0, 4, 6, 6};
	static const int32_t expected_experts[] = {-1, -1, 0, 1, -1};
	struct outputs o = align_fast(&settings, 3, ids, 1);

	ck_assert_int_eq(o.result.n_padded, 8);
	ck_assert_int_eq(o.sizes.capacity, 10);
	ck_assert_mem_eq(o.result.sorted_pairs, expected, sizeof(expected));
	ck_assert_mem_eq(o.result.expert_ids, expected_experts, sizeof(expected_experts));
	ck_assert_int_eq(o.result.first_slots[0], 4);
	ck_assert_int_eq(o.result.pair_slots[1], -1);
	release_outputs(&o);
	destroy_pools();
}
END_TEST

/* A rank without experts: every pair is dropped, in either layout. */
START_TEST(test_rank_without_experts)
{
	static const int32_t map[] = {-1, -1, -1, -1};
	static const int32_t ids[] = {0, 1, 2, 3, 3, -1};
	const struct mtk_align_settings settings = {.n_experts = 0,
						    .top_k = 2,
						    .block_rows = 4,
						    .invalid_first = _i,
						    .n_ids = 4,
						    .expert_map = map};

	check_case(&settings, 3, ids, 2);
	destroy_pools();
}
END_TEST

/* Counters and places that another thread has not finished would differ sooner or later. */
START_TEST(test_repeated_runs_give_the_same_bits)
{
	const struct mtk_align_settings settings = {.n_experts = 256, .top_k = 8, .block_rows = 16};
	struct mtk_rng rng;
	struct outputs expected;
	int32_t *ids;

	mtk_rng_seed(&rng, 7, 0);
	ids = draw_ids(&rng, 2048 * 8, 256, true);
	expected = align_plain(&settings, 2048, ids);
	for (int i = 0; i < 1000; i++) {
		struct outputs o = align_fast(&settings, 2048, ids, 2 + (uint32_t)i % 3);

		assert_same_outputs(&settings, &expected, &o);
		release_outputs(&o);
	}
	release_outputs(&expected);
	free(ids);
	destroy_pools();
}
END_TEST

/* Pairs, slots and blocks beyond 32 bits; and beyond 64 the number of rows is refused by name. */
START_TEST(test_sizes_past_32_bits)
{
	const struct mtk_align_settings settings = {.n_experts = 256, .top_k = 8, .block_rows = 64};
	struct mtk_align_sizes sizes = {1, 2, 3};
	struct mtk_error error;

	ck_assert_int_eq(mtk_align_sizes(&settings, UINT64_C(1) << 30, &error, &sizes), 0);
	ck_assert_int_eq(sizes.n_pairs, INT64_C(1) << 33);
	/* 2^33 + 256 * 63 is a multiple of 64. */
	ck_assert_int_eq(sizes.capacity, (INT64_C(1) << 33) + 256 * 63);
	ck_assert_int_eq(sizes.n_blocks, (INT64_C(1) << 27) + 252);
	sizes.n_pairs = 1;
	assert_refused(mtk_align_sizes(&settings, UINT64_C(1) << 57, &error, &sizes), &error,
		       "n_rows");
	assert_refused(mtk_align_sizes(&settings, UINT64_MAX, &error, &sizes), &error, "n_rows");
	ck_assert_int_eq(sizes.n_pairs, 1);
}
END_TEST

START_TEST(test_bad_settings_are_refused_by_name)
{
	static const int32_t map[] = {0, -1, 4};
	static const int32_t negative[] = {-2};
	const struct {
		struct mtk_align_settings settings;
		const char *field;
	} cases[] = {
		{{.n_experts = 0x80000000u, .top_k = 1, .block_rows = 1}, "n_experts"},
		{{.n_experts = 4, .top_k = 0, .block_rows = 1}, "top_k"},
		{{.n_experts = 4, .top_k = 1, .block_rows = 0}, "block_rows"},
		{{.n_experts = 4, .top_k = 1, .block_rows = 1, .n_ids = 3}, "n_ids"},
		{{.n_experts = 4, .top_k = 1, .block_rows = 1, .n_ids = 3, .expert_map = map},
		 "expert_map[2]: 4 "},
		{{.n_experts = 4, .top_k = 1, .block_rows = 1, .n_ids = 1, .expert_map = negative},
		 "expert_map[0]: -2 "},
		{{.n_experts = 0, .top_k = 1, .block_rows = 1, .n_ids = 1, .expert_map = map},
		 "expert_map[0]: 0 "},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mtk_error error;

		assert_refused(mtk_align_check(&cases[i].settings, &error), &error, cases[i].field);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("align");
	TCase *property = tcase_create("property");
	TCase *faults = tcase_create("faults");

	tcase_set_timeout(property, 120);
	tcase_add_loop_test(property, test_random_cases_match_a_sort, 0, 4);
	tcase_add_loop_test(property, test_large_batches_match_a_sort, 0, 4);
	tcase_add_test(property, test_example_by_hand);
	tcase_add_test(property, test_invalid_first_layout_by_hand);
	suite_add_tcase(suite, property);

	tcase_set_timeout(faults, 120);
	tcase_add_loop_test(faults, test_zero_rows, 0, 2);
	tcase_add_loop_test(faults, test_one_row, 0, 2);
	tcase_add_loop_test(faults, test_any_number_of_experts, 0, 9);
	tcase_add_test(faults, test_scratch_is_linear_in_experts);
	tcase_add_test(faults, test_capacity_is_whole_blocks);
	tcase_add_test(faults, test_capacity_holds_the_worst_case);
	tcase_add_test(faults, test_poisoned_and_negative_ids_are_dropped);
	tcase_add_test(faults, test_no_inactive_block_in_use);
	tcase_add_loop_test(faults, test_rank_without_experts, 0, 2);
	tcase_add_test(faults, test_repeated_runs_give_the_same_bits);
	tcase_add_test(faults, test_sizes_past_32_bits);
	tcase_add_test(faults, test_bad_settings_are_refused_by_name);
	suite_add_tcase(suite, faults);
	return run_suite(suite);
}
