/* SPDX-License-Identifier: MIT */
/*
 * The inner loops of moe_load. Any byte pattern is a valid index: the tables have an entry for
 * every value that an id of its width can have.
 */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "load_count.h"

#include <string.h>

enum { N_U16 = 65536 };

static void recent_move(struct mt_counts *counts)
{
	for (size_t id = 0; id < 256; id++)
		counts->total[id] += (uint64_t)counts->recent[0][id] + counts->recent[1][id] +
				     counts->recent[2][id] + counts->recent[3][id];
	memset(counts->recent, 0, sizeof(counts->recent));
	counts->n_recent = 0;
}

static void recent_count(struct mt_counts *counts, const uint8_t *ids, size_t n)
{
	size_t i = 0;

	for (; n - i >= 8; i += 8) {
		uint64_t word;

		memcpy(&word, ids + i, sizeof(word));
		counts->recent[0][word & 255]++;
		counts->recent[1][word >> 8 & 255]++;
		counts->recent[2][word >> 16 & 255]++;
		counts->recent[3][word >> 24 & 255]++;
		counts->recent[0][word >> 32 & 255]++;
		counts->recent[1][word >> 40 & 255]++;
		counts->recent[2][word >> 48 & 255]++;
		counts->recent[3][word >> 56]++;
	}
	for (; i < n; i++)
		counts->recent[i & 3][ids[i]]++;
}

void mt_count_u8(struct mt_counts *counts, const uint8_t *ids, size_t n)
{
	/* A table gets a fourth of the ids, and of each call's rest one more. */
	const size_t max_ids = 4 * (UINT16_MAX - 1);

	while (n > 0) {
		const size_t n_ids = n < max_ids ? n : max_ids;
		const uint32_t n_each = (uint32_t)n_ids / 4 + 1;

		if (counts->n_recent > UINT16_MAX - n_each)
			recent_move(counts);
		recent_count(counts, ids, n_ids);
		counts->n_recent += n_each;
		ids += n_ids;
		n -= n_ids;
	}
}

int mt_count_u16(struct mt_counts *counts, const uint8_t *ids, size_t n)
{
	if (!counts->u16) {
		counts->u16 = sqlite3_malloc(N_U16 * (int)sizeof(*counts->u16));
		if (!counts->u16)
			return SQLITE_NOMEM;
		memset(counts->u16, 0, N_U16 * sizeof(*counts->u16));
	}
	for (size_t i = 0; i < n; i++)
		counts->u16[ids[i * 2] | ids[i * 2 + 1] << 8]++;
	return SQLITE_OK;
}

uint64_t mt_counts_get(const struct mt_counts *counts, size_t id)
{
	uint64_t count = counts->u16 ? counts->u16[id] : 0;

	if (id < 256)
		count += counts->total[id] + counts->recent[0][id] + counts->recent[1][id] +
			 counts->recent[2][id] + counts->recent[3][id];
	return count;
}

size_t mt_counts_size(const struct mt_counts *counts)
{
	return counts->u16 ? N_U16 : 256;
}
