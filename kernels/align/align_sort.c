/* SPDX-License-Identifier: MIT */
/*
 * The fast path of alignment: a counting sort over chunks of pairs. Each chunk counts its pairs
 * (bucket 0 holds those without an expert, bucket e + 1 those of expert e); a scan over buckets,
 * and over chunks within one, gives each chunk its own range of every run; then each chunk places
 * its pairs in order. Hence the result is stable and the same for any number of chunks.
 */
#include "kernels/align/align_impl.h"

#include <stddef.h>
#include <string.h>

/* Pairs that are worth a chunk of their own. */
#define MIN_CHUNK 4096

struct sort {
	const struct mtk_align_settings *settings;
	const struct mtk_align_sizes *sizes;
	const int32_t *ids;
	int64_t *places; /* [n_chunks][n_buckets]: counts, then the next slots */
	size_t n_buckets;
	uint32_t n_chunks;
	struct mtk_align_result *result;
};

static size_t bucket_count(const struct mtk_align_settings *settings)
{
	return (size_t)settings->n_experts + 1;
}

size_t mtk_align_scratch_elements(const struct mtk_align_settings *settings, uint32_t n_threads)
{
	size_t n, bytes;

	if (__builtin_mul_overflow(bucket_count(settings), n_threads, &n) ||
	    __builtin_mul_overflow(n, sizeof(int64_t), &bytes) || bytes > PTRDIFF_MAX)
		return 0;
	return n;
}

static int64_t chunk_begin(const struct sort *sort, uint32_t chunk)
{
	const int64_t n = sort->sizes->n_pairs;
	int64_t length = n / sort->n_chunks + (n % sort->n_chunks != 0);
	int64_t begin = length * chunk;

	return begin < n ? begin : n;
}

static void count_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct sort *sort = arg;

	for (uint32_t c = begin; c < end; c++) {
		int64_t *counts = sort->places + c * sort->n_buckets;
		const int64_t pair_end = chunk_begin(sort, c + 1);

		memset(counts, 0, sort->n_buckets * sizeof(*counts));
		for (int64_t p = chunk_begin(sort, c); p < pair_end; p++)
			counts[align_expert_of(sort->settings, sort->ids[p]) + 1]++;
	}
}

static void place_task(void *arg, uint32_t begin, uint32_t end)
{
	const struct sort *sort = arg;
	struct mtk_align_result *result = sort->result;
	const bool keep_invalid = sort->settings->invalid_first;

	for (uint32_t c = begin; c < end; c++) {
		int64_t *places = sort->places + c * sort->n_buckets;
		const int64_t pair_end = chunk_begin(sort, c + 1);

		for (int64_t p = chunk_begin(sort, c); p < pair_end; p++) {
			int32_t expert = align_expert_of(sort->settings, sort->ids[p]);

			result->pair_slots[p] = expert < 0 ? -1 : places[expert + 1];
			if (expert >= 0 || keep_invalid)
				result->sorted_pairs[places[expert + 1]++] = p;
		}
	}
}

/* Turn a bucket's counts into places from first on. Returns the end of its pairs. */
static int64_t scan_bucket(struct sort *sort, size_t bucket, int64_t first)
{
	for (uint32_t c = 0; c < sort->n_chunks; c++) {
		int64_t *place = &sort->places[c * sort->n_buckets + bucket];
		int64_t count = *place;

		*place = first;
		first += count;
	}
	return first;
}

/* Close a run that ends at end: padding and its blocks. */
static void close_run(struct sort *sort, int32_t expert, int64_t end)
{
	const int64_t block = sort->settings->block_rows;
	struct mtk_align_result *result = sort->result;
	int64_t b = result->n_padded / block;

	for (result->n_padded = end; result->n_padded % block != 0; result->n_padded++)
		result->sorted_pairs[result->n_padded] = sort->sizes->n_pairs;
	for (; b < result->n_padded / block; b++)
		result->expert_ids[b] = expert;
}

static void scan(struct sort *sort)
{
	const struct mtk_align_settings *settings = sort->settings;
	struct mtk_align_result *result = sort->result;

	result->n_padded = 0;
	result->n_dropped = scan_bucket(sort, 0, 0);
	if (settings->invalid_first)
		close_run(sort, -1, result->n_dropped);
	for (uint32_t e = 0; e < settings->n_experts; e++) {
		result->first_slots[e] = result->n_padded;
		close_run(sort, (int32_t)e, scan_bucket(sort, (size_t)e + 1, result->n_padded));
	}
	result->first_slots[settings->n_experts] = result->n_padded;
	for (int64_t s = result->n_padded; s < sort->sizes->capacity; s++)
		result->sorted_pairs[s] = sort->sizes->n_pairs;
	for (int64_t b = result->n_padded / settings->block_rows; b < sort->sizes->n_blocks; b++)
		result->expert_ids[b] = -1;
}

void mtk_align_run(const struct mtk_align_settings *settings, const struct mtk_align_sizes *sizes,
		   const int32_t *ids, struct mtk_threads *threads, int64_t *scratch,
		   struct mtk_align_result *result)
{
	const uint32_t n_threads = mtk_threads_count(threads);
	const int64_t n_wanted = sizes->n_pairs / MIN_CHUNK + 1;
	struct sort sort = {
		.settings = settings,
		.sizes = sizes,
		.ids = ids,
		.places = scratch,
		.n_buckets = bucket_count(settings),
		.n_chunks = n_wanted < n_threads ? (uint32_t)n_wanted : n_threads,
		.result = result,
	};

	mtk_threads_run(threads, sort.n_chunks, 1, count_task, &sort);
	scan(&sort);
	mtk_threads_run(threads, sort.n_chunks, 1, place_task, &sort);
}
