/* SPDX-License-Identifier: MIT */
/*
 * Permutation: rows copied into the order of an alignment, so that every block of slots reads
 * adjacent memory, and back. Rows are bytes, of any element type. A padding slot is all zeros, and
 * so is a pair that is in no slot; both hold for slots and pairs that nobody should read, so that
 * nothing depends on what the memory held.
 */
#ifndef MTK_PERMUTE_PERMUTE_H
#define MTK_PERMUTE_PERMUTE_H

#include <stddef.h>
#include <stdint.h>

/* The bytes of n_rows rows, or 0 when they overflow. */
size_t mtk_permute_bytes(int64_t n_rows, size_t row_bytes);

struct mtk_permute {
	const int64_t *sorted_pairs;	/* [n_slots]; n_pairs or more: padding */
	int64_t n_pairs;
	uint32_t top_k;
	size_t row_bytes;
	const void *rows;		/* [n_pairs / top_k] */
	void *permuted;			/* [n_slots] */
};

/* permuted[s] = rows[sorted_pairs[s] / top_k] for the slots [begin, end). */
void mtk_permute_run(const struct mtk_permute *permute, int64_t begin, int64_t end);

struct mtk_unpermute {
	const int64_t *pair_slots;	/* [n_pairs]; negative: the pair is in no slot */
	size_t row_bytes;
	const void *permuted;		/* [n_slots] */
	void *pairs;			/* [n_pairs] */
};

/* pairs[p] = permuted[pair_slots[p]] for the pairs [begin, end). */
void mtk_unpermute_run(const struct mtk_unpermute *unpermute, int64_t begin, int64_t end);

#endif
