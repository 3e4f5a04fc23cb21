/* SPDX-License-Identifier: MIT */
/*
 * Plain loops: a few hundred additions into a table that stays in the first-level cache.
 */
#include "libtrace/count.h"

#include <string.h>

static void count_u8(const uint8_t *ids, uint64_t n, uint32_t *counts)
{
	for (uint64_t i = 0; i < n; i++)
		counts[ids[i]]++;
}

static void count_u16(const uint8_t *ids, uint64_t n, uint32_t *counts)
{
	for (uint64_t i = 0; i < n; i++) {
		uint16_t id;

		memcpy(&id, ids + i * 2, sizeof(id));
		counts[id]++;
	}
}

static void count(const struct mt_count_rows *rows, uint64_t first_id, uint64_t n,
		  uint32_t *counts)
{
	if (rows->id_bytes == 1)
		count_u8(rows->ids + first_id, n, counts);
	else
		count_u16(rows->ids + first_id * 2, n, counts);
}

uint64_t mt_count_ids(const struct mt_count_rows *rows, uint32_t *counts)
{
	uint64_t n = 0;

	if (!rows->n_valid) {
		count(rows, 0, rows->n_rows * rows->k, counts);
		return rows->n_rows * rows->k;
	}
	for (uint64_t row = 0; row < rows->n_rows; row++) {
		count(rows, row * rows->k, rows->n_valid[row], counts);
		n += rows->n_valid[row];
	}
	return n;
}

uint64_t mt_count_ids_by_class(const struct mt_count_rows *rows, const uint8_t *row_classes,
			       uint32_t *const counts[MT_N_LOAD])
{
	uint64_t n = 0;

	for (uint64_t row = 0; row < rows->n_rows; row++) {
		uint64_t pass_row = rows->row_map ? rows->row_map[row] : row;
		uint32_t n_ids = rows->n_valid ? rows->n_valid[row] : rows->k;

		count(rows, row * rows->k, n_ids, counts[row_classes[pass_row]]);
		n += n_ids;
	}
	return n;
}

/* The common case, a pass of one class without padding, worth a loop without branches. */
static struct mt_count_summary summarize_one(const uint32_t *counts, uint32_t n_experts)
{
	struct mt_count_summary summary = { 0, 0, 0 };

	for (uint32_t id = 0; id < n_experts; id++) {
		summary.active_experts += counts[id] != 0;
		summary.max_load = counts[id] > summary.max_load ? counts[id] : summary.max_load;
	}
	return summary;
}

void mt_count_summarize(uint32_t *const counts[MT_N_LOAD], uint32_t classes, uint32_t n_experts,
			struct mt_count_summary *ret_summary)
{
	struct mt_count_summary summary = { 0, 0, 0 };
	int has_padding = classes >> MT_LOAD_PADDING & 1;

	if (!(classes & (classes - 1)) && !has_padding) {
		*ret_summary = summarize_one(counts[__builtin_ctz(classes)], n_experts);
		return;
	}
	for (uint32_t id = 0; id < n_experts; id++) {
		uint32_t n = 0;

		for (uint32_t c = 0; c < MT_LOAD_PADDING; c++)
			n += classes >> c & 1 ? counts[c][id] : 0;
		summary.active_experts += n != 0;
		summary.max_load = n > summary.max_load ? n : summary.max_load;
		summary.padding_active_experts += has_padding && !n && counts[MT_LOAD_PADDING][id];
	}
	*ret_summary = summary;
}
