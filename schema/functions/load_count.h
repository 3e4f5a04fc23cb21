/* SPDX-License-Identifier: MIT */
/*
 * Counts of expert ids. One-byte ids are counted in four tables in turn: an id that follows
 * itself would otherwise wait for its own store. These tables are small, because the layers of a
 * pass take turns, and those of all layers have to stay near the processor; what they cannot hold
 * any more moves to `total`.
 */
#ifndef MT_SCHEMA_FUNCTIONS_LOAD_COUNT_H
#define MT_SCHEMA_FUNCTIONS_LOAD_COUNT_H

#include <stddef.h>
#include <stdint.h>

struct mt_counts {
	uint16_t recent[4][256];
	uint32_t n_recent; /* no number of `recent` is above it */
	uint64_t total[256];
	uint64_t *u16; /* NULL: no two-byte id was counted */
};

void mt_count_u8(struct mt_counts *counts, const uint8_t *ids, size_t n);
/* Returns SQLITE_OK, or SQLITE_NOMEM. */
int mt_count_u16(struct mt_counts *counts, const uint8_t *ids, size_t n);
uint64_t mt_counts_get(const struct mt_counts *counts, size_t id);
/* Every id that was counted is below it. */
size_t mt_counts_size(const struct mt_counts *counts);

#endif
