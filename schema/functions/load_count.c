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

void mt_count_u8(struct mt_counts *counts, const uint8_t *ids, size_t n)
{
	size_t i = 0;

	for (; n - i >= 8; i += 8) {
		uint64_t word;

		memcpy(&word, ids + i, sizeof(word));
		counts->u8[0][word & 255]++;
		counts->u8[1][word >> 8 & 255]++;
		counts->u8[2][word >> 16 & 255]++;
		counts->u8[3][word >> 24 & 255]++;
		counts->u8[0][word >> 32 & 255]++;
		counts->u8[1][word >> 40 & 255]++;
		counts->u8[2][word >> 48 & 255]++;
		counts->u8[3][word >> 56]++;
	}
	for (; i < n; i++)
		counts->u8[i & 3][ids[i]]++;
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
		count += counts->u8[0][id] + counts->u8[1][id] + counts->u8[2][id] +
			 counts->u8[3][id];
	return count;
}

size_t mt_counts_size(const struct mt_counts *counts)
{
	return counts->u16 ? N_U16 : 256;
}
