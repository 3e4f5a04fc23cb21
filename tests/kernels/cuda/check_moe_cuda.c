/* SPDX-License-Identifier: MIT */
/*
 * Map, alignment, both permutations and combination on a GPU against their definitions, to the bit:
 * every rule and layout, ids that name no expert, no row at all, sizes about a warp, a block and
 * the limit between the one launch and the three, and more experts than a block has threads. With
 * MOETRACE_TEST_SMALL set the batches are small.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

#include "kernels/align/align_cuda.h"
#include "kernels/combine/combine_cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/map/map_cuda.h"
#include "kernels/permute/permute_cuda.h"
#include "tests/kernels/cuda/support/gpu.h"
#include "tests/kernels/cuda/support/values.h"

static const uint32_t row_counts[] = {0, 1, 2, 31, 32, 33, 127, 1009, 4096, 20011, 32768};
#define N_SMALL_ROW_COUNTS 8

static size_t n_row_counts(void)
{
	return gpu_is_small() ? N_SMALL_ROW_COUNTS : sizeof(row_counts) / sizeof(row_counts[0]);
}

/* Compares device memory with what is wanted. */
static void same(const void *want, const void *device, size_t n_bytes, const char *what)
{
	unsigned char *got = gpu_host(n_bytes);

	gpu_read(got, device, n_bytes);
	gpu_check(memcmp(want, got, n_bytes) == 0, "%s differs", what);
	free(got);
}

/* Some ids are -1 and some name no expert. */
static int32_t *random_ids(struct random *random, size_t n, uint32_t n_experts)
{
	int32_t *ids = gpu_host(n * sizeof(*ids));

	for (size_t i = 0; i < n; i++) {
		const uint32_t kind = random_below(random, 40);

		ids[i] = kind == 0   ? -1
			 : kind == 1 ? (int32_t)(n_experts + random_below(random, 1000))
			 : kind == 2 ? -1000 - (int32_t)random_below(random, 1000)
				     : (int32_t)random_below(random, n_experts);
	}
	return ids;
}

/* ---- map ---- */

enum { N_LOGICAL = 37, N_PHYSICAL = 61, MAP_TOP_K = 5 };

static void check_map_rows(struct random *random, const struct mtk_map *map,
			   const struct mtk_map_cuda *on_device, uint32_t n_rows, bool has_numbers)
{
	const size_t n = (size_t)n_rows * MAP_TOP_K;
	int32_t *ids = random_ids(random, n, N_LOGICAL);
	int32_t *want = gpu_host(n * sizeof(*want));
	uint64_t *numbers = gpu_host(n_rows * sizeof(*numbers));
	uint64_t n_invalid = 11, want_invalid;
	struct mtk_map_rows rows = {.top_k = MAP_TOP_K,
				    .first_number = UINT64_MAX - 5,
				    .ids = ids,
				    .physical_ids = want};
	struct mtk_error error;
	uint64_t *counter = gpu_copy_of(&n_invalid, sizeof(n_invalid));

	for (uint32_t r = 0; r < n_rows; r++)
		numbers[r] = random_next(random);
	rows.numbers = has_numbers ? numbers : NULL;
	want_invalid = n_invalid + mtk_map_run(map, &rows, 0, n_rows);
	rows.ids = gpu_copy_of(ids, n * sizeof(*ids));
	rows.numbers = has_numbers ? gpu_copy_of(numbers, n_rows * sizeof(*numbers)) : NULL;
	rows.physical_ids = gpu_memory(n * sizeof(*want));
	gpu_must(mtk_map_cuda_run(on_device, &rows, n_rows, counter, gpu_stream(), &error), &error,
		 "map");
	same(want, rows.physical_ids, n * sizeof(*want), "a physical id");
	same(&want_invalid, counter, sizeof(want_invalid), "the number of invalid ids");
	free(ids);
	free(want);
	free(numbers);
	gpu_free_all();
}

static void check_map(struct random *random)
{
	int32_t physical_to_logical[N_PHYSICAL];
	float probabilities[N_PHYSICAL];
	struct mtk_error error;

	for (uint32_t p = 0; p < N_PHYSICAL; p++) {
		physical_to_logical[p] =
			p < N_LOGICAL ? (int32_t)p : (int32_t)random_below(random, N_LOGICAL);
		probabilities[p] = 1.5f + random_unit(random);
	}
	for (uint32_t i = 0; i < 6; i++) {
		const struct mtk_map_settings settings = {
			.kind = (enum mtk_map_kind)(i % 3),
			.n_logical = N_LOGICAL,
			.n_physical = N_PHYSICAL,
			.physical_to_logical = physical_to_logical,
			.probabilities = i == 5 ? probabilities : NULL,
			.seed = 99,
		};
		struct mtk_map *map;
		struct mtk_map_cuda *on_device;

		gpu_must(mtk_map_create(&settings, &error, &map), &error, "the map");
		gpu_must(mtk_map_cuda_create(map, &error, &on_device), &error, "its copy");
		for (size_t s = 0; s < n_row_counts(); s++)
			check_map_rows(random, map, on_device, row_counts[s], s % 2);
		mtk_map_cuda_destroy(on_device);
		mtk_map_destroy(map);
	}
}

/* ---- alignment, and what follows from one ---- */

struct aligned {
	struct mtk_align_settings settings;
	struct mtk_align_sizes sizes;
	uint32_t n_rows;
	struct mtk_align_result want;
	struct mtk_align_cuda_result got;
};

static void make_result(struct aligned *a)
{
	a->want.sorted_pairs = gpu_host((size_t)a->sizes.capacity * sizeof(int64_t));
	a->want.expert_ids = gpu_host((size_t)a->sizes.n_blocks * sizeof(int32_t));
	a->want.first_slots = gpu_host((a->settings.n_experts + 1) * sizeof(int64_t));
	a->want.pair_slots = gpu_host((size_t)a->sizes.n_pairs * sizeof(int64_t));
	a->got = (struct mtk_align_cuda_result){
		.sorted_pairs = gpu_memory((size_t)a->sizes.capacity * sizeof(int64_t)),
		.expert_ids = gpu_memory((size_t)a->sizes.n_blocks * sizeof(int32_t)),
		.first_slots = gpu_memory((a->settings.n_experts + 1) * sizeof(int64_t)),
		.pair_slots = gpu_memory((size_t)a->sizes.n_pairs * sizeof(int64_t)),
		.n_padded = gpu_memory(sizeof(int64_t)),
		.n_dropped = gpu_memory(sizeof(int64_t)),
	};
}

static void release(struct aligned *a)
{
	free(a->want.sorted_pairs);
	free(a->want.expert_ids);
	free(a->want.first_slots);
	free(a->want.pair_slots);
	gpu_free_all();
}

static void compare(const struct aligned *a)
{
	const struct mtk_align_result *want = &a->want;

	same(want->sorted_pairs, a->got.sorted_pairs, (size_t)a->sizes.capacity * sizeof(int64_t),
	     "sorted_pairs");
	same(want->expert_ids, a->got.expert_ids, (size_t)a->sizes.n_blocks * sizeof(int32_t),
	     "expert_ids");
	same(want->first_slots, a->got.first_slots, (a->settings.n_experts + 1) * sizeof(int64_t),
	     "first_slots");
	same(want->pair_slots, a->got.pair_slots, (size_t)a->sizes.n_pairs * sizeof(int64_t),
	     "pair_slots");
	same(&want->n_padded, a->got.n_padded, sizeof(int64_t), "n_padded");
	same(&want->n_dropped, a->got.n_dropped, sizeof(int64_t), "n_dropped");
}

static struct aligned align(struct random *random, struct mtk_align_settings settings,
			    uint32_t n_rows)
{
	struct aligned a = {.settings = settings, .n_rows = n_rows};
	const uint32_t n_ids = settings.expert_map ? settings.n_ids : settings.n_experts;
	const size_t n = (size_t)n_rows * settings.top_k;
	int32_t *ids = random_ids(random, n, n_ids > 0 ? n_ids : 1);
	struct mtk_threads *threads;
	struct mtk_error error;
	int64_t *scratch;
	uint32_t *device_scratch;

	gpu_must(mtk_align_check(&settings, &error), &error, "align settings");
	gpu_must(mtk_align_sizes(&settings, n_rows, &error, &a.sizes), &error, "align sizes");
	make_result(&a);
	/* The linear-time form, which other tests hold against the definition. */
	gpu_check(mtk_threads_create(1, &threads) == MOETRACE_OK, "no thread pool");
	scratch = gpu_host(mtk_align_scratch_elements(&settings, 1) * sizeof(*scratch));
	mtk_align_run(&settings, &a.sizes, ids, threads, scratch, &a.want);
	mtk_threads_destroy(threads);
	free(scratch);
	device_scratch = gpu_memory(mtk_align_cuda_scratch_elements(&settings, &a.sizes) *
				    sizeof(*device_scratch));
	gpu_must(mtk_align_cuda(&settings, &a.sizes,
				gpu_copy_of(settings.expert_map,
					    settings.n_ids * sizeof(*settings.expert_map)),
				gpu_copy_of(ids, n * sizeof(*ids)), device_scratch, &a.got,
				gpu_stream(), &error),
		 &error, "align");
	compare(&a);
	free(ids);
	return a;
}

static void check_align(struct random *random)
{
	static const uint32_t experts[] = {0, 1, 8, 256, 1023, 4097, 8192};
	static int32_t map[300];

	for (uint32_t i = 0; i < 300; i++)
		map[i] = i % 3 == 0 ? -1 : (int32_t)(i % 64);
	for (size_t e = 0; e < sizeof(experts) / sizeof(experts[0]); e++)
		for (size_t s = 0; s < n_row_counts(); s++) {
			struct mtk_align_settings settings = {.n_experts = experts[e],
							      .top_k = 1 + (uint32_t)(s % 8),
							      .block_rows = s % 3 ? 16 : 7,
							      .invalid_first = (e + s) % 2};
			struct aligned a;

			if (experts[e] == 256 && s % 2) {
				settings.expert_map = map;
				settings.n_ids = 300;
			}
			a = align(random, settings, row_counts[s]);
			release(&a);
		}
}

static void check_permute(struct random *random, const struct aligned *a, size_t row_bytes)
{
	const size_t n_in = a->n_rows * row_bytes;
	const size_t n_permuted = (size_t)a->sizes.capacity * row_bytes;
	const size_t n_pairs = (size_t)a->sizes.n_pairs * row_bytes;
	unsigned char *rows = gpu_host(n_in), *permuted = gpu_host(n_permuted);
	unsigned char *pairs = gpu_host(n_pairs);
	struct mtk_permute permute = {a->want.sorted_pairs,
				      a->sizes.n_pairs,
				      a->settings.top_k,
				      row_bytes,
				      rows,
				      permuted};
	struct mtk_unpermute unpermute = {a->want.pair_slots, row_bytes, permuted, pairs};
	struct mtk_error error;

	for (size_t i = 0; i < n_in; i++)
		rows[i] = (unsigned char)random_next(random);
	mtk_permute_run(&permute, 0, a->sizes.capacity);
	mtk_unpermute_run(&unpermute, 0, a->sizes.n_pairs);
	permute.sorted_pairs = a->got.sorted_pairs;
	permute.rows = gpu_copy_of(rows, n_in);
	permute.permuted = gpu_memory(n_permuted);
	gpu_must(mtk_permute_cuda(&permute, a->sizes.capacity, gpu_stream(), &error), &error,
		 "permute");
	same(permuted, permute.permuted, n_permuted, "a permuted row");
	unpermute.pair_slots = a->got.pair_slots;
	unpermute.permuted = permute.permuted;
	unpermute.pairs = gpu_memory(n_pairs);
	gpu_must(mtk_unpermute_cuda(&unpermute, a->sizes.n_pairs, gpu_stream(), &error), &error,
		 "unpermute");
	same(pairs, unpermute.pairs, n_pairs, "an unpermuted row");
	free(rows);
	free(permuted);
	free(pairs);
}

static void check_combine_of(struct random *random, const struct aligned *a, uint32_t n,
			     bool has_weights)
{
	const uint32_t top_k = a->settings.top_k;
	const struct mtk_combine combine = {n, top_k, n + 4, has_weights ? 1.0f : 2.5f};
	const size_t n_outputs = (size_t)a->sizes.capacity * combine.output_stride;
	float *outputs = values_random(random, n_outputs);
	float *weights = values_random(random, (size_t)a->sizes.n_pairs);
	float *input = values_random(random, (size_t)a->n_rows * n);
	float *want = gpu_host((size_t)a->n_rows * n * sizeof(*want));
	struct mtk_combine_cuda_rows rows = {.n_rows = a->n_rows};
	struct mtk_error error;

	/* Pairs in no expert are skipped, or stand for the input. */
	for (int64_t p = 0; p < a->sizes.n_pairs; p++)
		if (a->want.pair_slots[p] < 0)
			a->want.pair_slots[p] = p % 2 ? MTK_PAIR_SKIP : MTK_PAIR_IDENTITY;
	for (uint32_t r = 0; r < a->n_rows; r++)
		mtk_combine_pairs_plain(&combine, outputs, a->want.pair_slots + (size_t)r * top_k,
					has_weights ? weights + (size_t)r * top_k : NULL,
					input + (size_t)r * n, want + (size_t)r * n);
	rows.outputs = gpu_copy_of(outputs, n_outputs * sizeof(*outputs));
	rows.slots = gpu_copy_of(a->want.pair_slots, (size_t)a->sizes.n_pairs * sizeof(int64_t));
	rows.weights =
		has_weights ? gpu_copy_of(weights, (size_t)a->sizes.n_pairs * sizeof(float)) : NULL;
	rows.input = gpu_copy_of(input, (size_t)a->n_rows * n * sizeof(*input));
	rows.sums = gpu_memory((size_t)a->n_rows * n * sizeof(*want));
	gpu_must(mtk_combine_cuda(&combine, &rows, gpu_stream(), &error), &error, "combine");
	same(want, rows.sums, (size_t)a->n_rows * n * sizeof(*want), "a combined row");
	free(outputs);
	free(weights);
	free(input);
	free(want);
}

static void check_rows(struct random *random)
{
	static const size_t row_bytes[] = {1, 16, 18, 512, 4098};

	for (size_t s = 0; s < n_row_counts(); s++) {
		const struct mtk_align_settings settings = {
			.n_experts = 33, .top_k = 6, .block_rows = 8};
		struct aligned a = align(random, settings, row_counts[s]);

		check_permute(random, &a, row_bytes[s % 5]);
		check_combine_of(random, &a, s % 2 ? 67 : 256, s % 3);
		release(&a);
	}
}

int main(void)
{
	struct random random = {5};

	gpu_open_or_skip();
	check_map(&random);
	check_align(&random);
	check_rows(&random);
	printf("map, align, permute and combine equal their definitions\n");
	return 0;
}
