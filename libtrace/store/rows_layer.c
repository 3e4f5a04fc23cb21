/* SPDX-License-Identifier: MIT */
/*
 * Rows of layers beside their top-k: counts by expert, dispatch, expert maps. Counts are stored in
 * the fewest bytes (1, 2 or 4) that hold the largest of them.
 */
#include "libtrace/store/store_internal.h"

#include <stdlib.h>

#include "libtrace/record.h"

static uint32_t bytes_for(const uint32_t *counts, uint32_t n)
{
	uint32_t all = 0;

	for (uint32_t i = 0; counts && i < n; i++)
		all |= counts[i];
	return all > UINT16_MAX ? 4 : all > UINT8_MAX ? 2 : 1;
}

static void narrow_counts(uint8_t *to, const uint32_t *counts, uint32_t n, uint32_t count_bytes)
{
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t j = 0; j < count_bytes; j++)
			to[(uint64_t)i * count_bytes + j] = (uint8_t)(counts[i] >> (8 * j));
}

int mt_store_layer_load(struct mt_store *store, int64_t pass_id, int64_t layer_id,
			const uint32_t *counts, const uint32_t *padding, uint32_t n_ids)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_LAYER_LOAD);
	uint32_t count_bytes = bytes_for(counts, n_ids);
	uint32_t padding_bytes = bytes_for(padding, n_ids);
	uint64_t n_bytes;
	uint8_t *blob;
	int status;

	count_bytes = count_bytes > padding_bytes ? count_bytes : padding_bytes;
	n_bytes = (uint64_t)n_ids * count_bytes;
	blob = malloc(2 * n_bytes + 1);
	if (!blob)
		return mt_store_fail(store, "write counts: out of memory");
	narrow_counts(blob, counts, n_ids, count_bytes);
	mt_store_bind_int(stmt, 1, pass_id);
	mt_store_bind_int(stmt, 2, layer_id);
	mt_store_bind_int(stmt, 3, count_bytes);
	sqlite3_bind_blob64(stmt, 4, blob, n_bytes, SQLITE_STATIC);
	if (padding) {
		narrow_counts(blob + n_bytes, padding, n_ids, count_bytes);
		sqlite3_bind_blob64(stmt, 5, blob + n_bytes, n_bytes, SQLITE_STATIC);
	}
	store->stats.pending_bytes += 2 * n_bytes;
	status = mt_store_step(store, MT_STMT_LAYER_LOAD);
	free(blob);
	return status;
}

static void bind_array(sqlite3_stmt *stmt, int index, const void *array, uint64_t n_bytes)
{
	/* Not NULL, even where it is empty. */
	if (n_bytes)
		sqlite3_bind_blob64(stmt, index, array, n_bytes, SQLITE_STATIC);
	else
		sqlite3_bind_zeroblob(stmt, index, 0);
}

int mt_store_dispatch(struct mt_store *store, int64_t pass_id, int64_t layer_id,
		      struct mt_record_dispatch *record)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_DISPATCH);
	struct mt_dispatch_parts parts = mt_dispatch_parts(record);

	mt_store_bind_int(stmt, 1, pass_id);
	mt_store_bind_int(stmt, 2, layer_id);
	if (record->has_rank_tokens || record->has_rank_bytes)
		mt_store_bind_int(stmt, 3, record->n_ranks);
	if (record->has_rank_tokens)
		bind_array(stmt, 4, parts.rank_tokens, record->n_ranks * UINT64_C(4));
	if (record->has_rank_bytes)
		bind_array(stmt, 5, parts.rank_bytes, record->n_ranks * UINT64_C(8));
	if (record->has_received_tokens) {
		mt_store_bind_int(stmt, 6, record->n_local_experts);
		mt_store_bind_int(stmt, 7, record->first_local_slot);
		bind_array(stmt, 8, parts.received_tokens, record->n_local_experts * UINT64_C(4));
		mt_store_bind_int(stmt, 9, record->received_alignment);
	}
	if (record->has_rdma_rank_tokens) {
		mt_store_bind_int(stmt, 10, record->n_rdma_ranks);
		bind_array(stmt, 11, parts.rdma_rank_tokens, record->n_rdma_ranks * UINT64_C(4));
	}
	store->stats.pending_bytes += parts.n_bytes;
	return mt_store_step(store, MT_STMT_DISPATCH);
}

int mt_store_expert_map(struct mt_store *store, const struct mt_map_row *row)
{
	sqlite3_stmt *stmt = mt_store_stmt(store, MT_STMT_EXPERT_MAP);

	mt_store_bind_int(stmt, 1, row->layer_id);
	mt_store_bind_int(stmt, 2, row->epoch);
	mt_store_bind_int(stmt, 3, row->set_ns);
	mt_store_bind_int(stmt, 4, row->n_slots);
	mt_store_bind_int(stmt, 5, row->n_ranks);
	sqlite3_bind_blob64(stmt, 6, row->slot_experts, (uint64_t)row->n_slots * 4, SQLITE_STATIC);
	store->stats.pending_bytes += (uint64_t)row->n_slots * 4;
	return mt_store_step(store, MT_STMT_EXPERT_MAP);
}
