/* SPDX-License-Identifier: MIT */
/*
 * Restoring the order of a selection: score that chose, descending, then lower id; fused shared
 * slots last.
 */
#ifndef MT_RESTORE_H
#define MT_RESTORE_H

#include <stdint.h>

#include "libtrace/settle.h"

/* An entry of a row. */
struct mt_entry {
	int32_t id;       /* logical */
	int32_t physical; /* -1: not known */
	float weight;
	float key;        /* what chose it */
};

/* What tells the order; NONE: nothing does. */
enum mt_basis { MT_BASIS_NONE, MT_BASIS_SCORES, MT_BASIS_WEIGHTS, MT_BASIS_BIASED };

/* The bases that a layer has, the best first; returns how many. */
uint32_t mt_restore_bases(const struct mt_settle_input *input, enum mt_basis ret_bases[2]);

/* Set the keys of a row's entries; returns 0 if one of them has none. */
int mt_restore_keys(const struct mt_settle_input *input, enum mt_basis basis, uint32_t row,
		    struct mt_entry *entries, uint32_t n);

/* Sort a row whose keys are set; returns 1 if entries tied, so that ids decided. */
int mt_restore_sort(const struct mt_settle_input *input, enum mt_basis basis,
		    struct mt_entry *entries, uint32_t n);

#endif
