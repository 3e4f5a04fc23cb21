/* SPDX-License-Identifier: MIT */
/* Both permutations: copies of whole rows, which the C library's memcpy does at full speed. */
#include "kernels/permute/permute.h"

#include <string.h>

size_t mtk_permute_bytes(int64_t n_rows, size_t row_bytes)
{
	size_t bytes;

	if (n_rows < 0 || __builtin_mul_overflow((uint64_t)n_rows, row_bytes, &bytes) ||
	    bytes > PTRDIFF_MAX)
		return 0;
	return bytes;
}

static void copy_row(void *to, int64_t to_row, const void *from, int64_t from_row, size_t row_bytes)
{
	unsigned char *row = (unsigned char *)to + (size_t)to_row * row_bytes;

	if (from_row < 0)
		memset(row, 0, row_bytes);
	else
		memcpy(row, (const unsigned char *)from + (size_t)from_row * row_bytes, row_bytes);
}

void mtk_permute_run(const struct mtk_permute *permute, int64_t begin, int64_t end)
{
	for (int64_t slot = begin; slot < end; slot++) {
		int64_t pair = permute->sorted_pairs[slot];

		copy_row(permute->permuted, slot, permute->rows,
			 pair < permute->n_pairs ? pair / permute->top_k : -1, permute->row_bytes);
	}
}

void mtk_unpermute_run(const struct mtk_unpermute *unpermute, int64_t begin, int64_t end)
{
	for (int64_t pair = begin; pair < end; pair++)
		copy_row(unpermute->pairs, pair, unpermute->permuted, unpermute->pair_slots[pair],
			 unpermute->row_bytes);
}
