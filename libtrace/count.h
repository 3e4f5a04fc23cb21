/* SPDX-License-Identifier: MIT */
/*
 * Counting expert ids: how many rows selected each expert, and what follows from that.
 */
#ifndef MT_COUNT_H
#define MT_COUNT_H

#include <stdint.h>

#include "libtrace/store/store.h"

struct mt_count_rows {
	const uint8_t *ids;      /* [n_rows][k] of id_bytes */
	const uint8_t *n_valid;  /* [n_rows] or NULL: all k */
	const uint32_t *row_map; /* [n_rows] row of the pass, or NULL: 0, 1, ... */
	uint64_t n_rows;
	uint32_t k;
	uint8_t id_bytes;
};

/* Add to counts [ids]; returns how many ids there were. */
uint64_t mt_count_ids(const struct mt_count_rows *rows, uint32_t *counts);

/* The same, where row_classes [rows of the pass] says which of the counts a row belongs to. */
uint64_t mt_count_ids_by_class(const struct mt_count_rows *rows, const uint8_t *row_classes,
			       uint32_t *const counts[MT_N_LOAD]);

struct mt_count_summary {
	uint32_t active_experts;         /* routed experts with rows */
	uint32_t padding_active_experts; /* with padding rows and no others */
	uint32_t max_load;               /* rows of the most loaded routed expert */
};

/* @classes: a bit a class whose counts are in use; @n_experts: routed ones, the first ids. */
void mt_count_summarize(uint32_t *const counts[MT_N_LOAD], uint32_t classes, uint32_t n_experts,
			struct mt_count_summary *ret_summary);

#endif
