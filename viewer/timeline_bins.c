/* SPDX-License-Identifier: MIT */
/*
 * Chunks of bins in the order of time. What is added lies close to what was added before it, mostly,
 * so the chunk of the last one is looked at first.
 */
#include "viewer/timeline_bins.h"

#include <stdlib.h>
#include <string.h>

static int64_t length(const struct mt_bin *bin)
{
	return bin->end_ns - bin->start_ns;
}

void mt_bin_merge(struct mt_bin *into, const struct mt_bin *bin)
{
	const uint32_t n = into->n;

	if (bin->n == 0)
		return;
	if (n == 0) {
		*into = *bin;
		return;
	}
	if (length(bin) > length(into) ||
	    (length(bin) == length(into) && bin->start_ns < into->start_ns)) {
		into->start_ns = bin->start_ns;
		into->end_ns = bin->end_ns;
		into->id = bin->id;
		into->name = bin->name;
		into->node = bin->node;
		into->layer = bin->layer;
		into->kind = bin->kind;
	}
	into->total_ns += bin->total_ns;
	into->n = bin->n > UINT32_MAX - n ? UINT32_MAX : n + bin->n;
	if (bin->low < into->low)
		into->low = bin->low;
	if (bin->high > into->high)
		into->high = bin->high;
}

/* The first chunk of that number or a higher one. */
static size_t chunk_find(const struct mt_bins *bins, int64_t number)
{
	size_t low = 0, high = bins->n_chunks;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (bins->chunks[middle]->number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool chunk_insert(struct mt_bins *bins, size_t at, int64_t number)
{
	struct mt_chunk *chunk;

	if (bins->n_chunks == bins->size) {
		const size_t size = bins->size ? bins->size * 2 : 16;
		void *more = realloc(bins->chunks, size * sizeof(struct mt_chunk *));

		if (!more)
			return false;
		bins->chunks = more;
		bins->size = size;
	}
	chunk = calloc(1, sizeof(*chunk));
	if (!chunk)
		return false;
	chunk->number = number;
	chunk->reach_ns = INT64_MIN;
	memmove(&bins->chunks[at + 1], &bins->chunks[at],
		(bins->n_chunks - at) * sizeof(struct mt_chunk *));
	bins->chunks[at] = chunk;
	bins->n_chunks++;
	return true;
}

static void chunk_add(struct mt_chunk *chunk, size_t i, const struct mt_bin *bin)
{
	mt_bin_merge(&chunk->bins[i], bin);
	if (bin->end_ns > chunk->reach_ns)
		chunk->reach_ns = bin->end_ns;
}

bool mt_bins_add(struct mt_bins *bins, const struct mt_bin *bin)
{
	const int64_t index = bin->start_ns >> bins->shift;
	const int64_t number = index >> 8;
	size_t at = bins->hint;

	_Static_assert(MT_CHUNK_BINS == 1 << 8, "a chunk's number is that of a bin without 8 bits");
	if (at >= bins->n_chunks || bins->chunks[at]->number != number)
		at = chunk_find(bins, number);
	if ((at == bins->n_chunks || bins->chunks[at]->number != number) &&
	    !chunk_insert(bins, at, number))
		return false;
	bins->hint = at;
	chunk_add(bins->chunks[at], (size_t)(index & (MT_CHUNK_BINS - 1)), bin);
	return true;
}

/* @chunk becomes a half of the one twice as long. */
static void chunk_fold(struct mt_chunk *chunk)
{
	const size_t base = chunk->number & 1 ? MT_CHUNK_BINS / 2 : 0;
	struct mt_bin before[MT_CHUNK_BINS];

	memcpy(before, chunk->bins, sizeof(before));
	memset(chunk->bins, 0, sizeof(chunk->bins));
	for (size_t i = 0; i < MT_CHUNK_BINS; i++)
		mt_bin_merge(&chunk->bins[base + i / 2], &before[i]);
	chunk->number >>= 1;
}

void mt_bins_coarsen(struct mt_bins *bins)
{
	size_t n = 0;

	for (size_t i = 0; i < bins->n_chunks; i++) {
		struct mt_chunk *chunk = bins->chunks[i];

		chunk_fold(chunk);
		if (n == 0 || bins->chunks[n - 1]->number != chunk->number) {
			bins->chunks[n++] = chunk;
			continue;
		}
		for (size_t j = MT_CHUNK_BINS / 2; j < MT_CHUNK_BINS; j++)
			bins->chunks[n - 1]->bins[j] = chunk->bins[j];
		if (chunk->reach_ns > bins->chunks[n - 1]->reach_ns)
			bins->chunks[n - 1]->reach_ns = chunk->reach_ns;
		free(chunk);
	}
	bins->n_chunks = n;
	bins->shift++;
}

void mt_bins_free(struct mt_bins *bins)
{
	for (size_t i = 0; i < bins->n_chunks; i++)
		free(bins->chunks[i]);
	free(bins->chunks);
	memset(bins, 0, sizeof(*bins));
}

/* ---- walking ---- */

void mt_bins_walk(struct mt_bins_walk *walk, const struct mt_bins *bins, unsigned shift,
		  int64_t from_ns, int64_t until_ns)
{
	const unsigned more = shift - bins->shift;
	const int64_t first = (from_ns >> shift) * (INT64_C(1) << more);

	*walk = (struct mt_bins_walk){.bins = bins, .shift = shift};
	walk->until = (until_ns >> shift) + ((until_ns & ((INT64_C(1) << shift) - 1)) != 0);
	walk->chunk = chunk_find(bins, first >> 8);
	if (walk->chunk < bins->n_chunks && bins->chunks[walk->chunk]->number == first >> 8)
		walk->bin = (size_t)(first & (MT_CHUNK_BINS - 1));
}

static const struct mt_bin *bin_at(const struct mt_bins_walk *walk, int64_t *ret_step)
{
	const struct mt_chunk *chunk = walk->bins->chunks[walk->chunk];

	*ret_step = (chunk->number * MT_CHUNK_BINS + (int64_t)walk->bin) >> (walk->shift - walk->bins->shift);
	return &chunk->bins[walk->bin];
}

static void walk_on(struct mt_bins_walk *walk)
{
	if (++walk->bin == MT_CHUNK_BINS) {
		walk->bin = 0;
		walk->chunk++;
	}
}

bool mt_bins_next(struct mt_bins_walk *walk, struct mt_bin *ret_bin, int64_t *ret_step)
{
	struct mt_bin sum = {.n = 0};
	int64_t step = 0, here;

	for (; walk->chunk < walk->bins->n_chunks; walk_on(walk)) {
		const struct mt_bin *bin = bin_at(walk, &here);

		if (here >= walk->until || (sum.n > 0 && here != step))
			break;
		if (bin->n == 0)
			continue;
		step = here;
		mt_bin_merge(&sum, bin);
	}
	if (sum.n == 0)
		return false;
	*ret_bin = sum;
	*ret_step = step;
	return true;
}

size_t mt_bins_reaching(const struct mt_bins *bins, unsigned shift, int64_t from_ns, size_t max,
			const struct mt_bin **ret_bins)
{
	const int64_t first = (from_ns >> shift) * (INT64_C(1) << (shift - bins->shift));
	size_t n = 0, i = chunk_find(bins, first >> 8);

	if (i < bins->n_chunks && bins->chunks[i]->number == first >> 8)
		i++;
	while (i-- > 0 && n < max) {
		const struct mt_chunk *chunk = bins->chunks[i];

		for (size_t j = MT_CHUNK_BINS; chunk->reach_ns > from_ns && j-- > 0 && n < max;)
			if (chunk->bins[j].n > 0 && chunk->bins[j].end_ns > from_ns &&
			    chunk->number * MT_CHUNK_BINS + (int64_t)j < first)
				ret_bins[n++] = &chunk->bins[j];
	}
	return n;
}
