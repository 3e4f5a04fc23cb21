/* SPDX-License-Identifier: MIT */
/*
 * What a dispatch moved against the rows that it is of. Where the map puts each expert on one rank,
 * ids say how many tokens, or entries, go to each rank; read as slots they say something else. The
 * dispatch knows which of both was sent. Rows of the layer that are not stored, and shared slots,
 * which go where they are put, leave it open.
 */
#include "cli/routing.h"

#include <string.h>

#include "common/bytes.h"

enum { MAX_RANKS = 64 };

#define SQL_DISPATCH                                                                         \
	"SELECT pass_id, layer_id, n_ranks, rank_tokens FROM dispatch WHERE rank_tokens IS " \
	"NOT NULL ORDER BY pass_id, layer_id"

/* Tokens and entries that rows send to each rank. */
struct sent {
	uint64_t tokens[MAX_RANKS];
	uint64_t entries[MAX_RANKS];
};

static bool is_before(sqlite3_stmt *stmt, int64_t pass_id, int64_t layer_id)
{
	const int64_t at = sqlite3_column_int64(stmt, 0);

	return at < pass_id || (at == pass_id && sqlite3_column_int64(stmt, 1) < layer_id);
}

int routing_dispatch_seek(struct routing *routing, int64_t layer_id)
{
	const int64_t pass_id = routing->reader.pass_id;
	int rc = SQLITE_ROW;

	if (!routing->dispatch_stmt) {
		routing->dispatch_stmt = mt_trace_prepare(routing->trace, SQL_DISPATCH);
		if (!routing->dispatch_stmt)
			return MT_EXIT_FAILED;
		rc = sqlite3_step(routing->dispatch_stmt);
		routing->has_dispatch = rc == SQLITE_ROW;
	}
	while (routing->has_dispatch && is_before(routing->dispatch_stmt, pass_id, layer_id)) {
		rc = sqlite3_step(routing->dispatch_stmt);
		routing->has_dispatch = rc == SQLITE_ROW;
	}
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		return mt_trace_error(routing->trace);
	routing->is_at_dispatch = routing->has_dispatch &&
				  sqlite3_column_int64(routing->dispatch_stmt, 0) == pass_id &&
				  sqlite3_column_int64(routing->dispatch_stmt, 1) == layer_id;
	return MT_EXIT_OK;
}

/* The rank of each expert in the map; false: some expert is on several ranks, or on none. */
static bool ranks_find(const struct routing_layer *layer, uint32_t n_ranks, uint8_t *ret_ranks)
{
	const uint32_t size = layer->n_slots / n_ranks;

	memset(ret_ranks, UINT8_MAX, layer->n_experts);
	for (uint32_t slot = 0; slot < layer->n_slots; slot++) {
		const int32_t expert = layer->slot_experts[slot];
		const uint8_t rank = (uint8_t)(slot / size);

		if (expert < 0)
			continue;
		if (ret_ranks[expert] != UINT8_MAX && ret_ranks[expert] != rank)
			return false;
		ret_ranks[expert] = rank;
	}
	return !memchr(ret_ranks, UINT8_MAX, layer->n_experts);
}

static uint32_t id_at(const struct mt_run *run, size_t at)
{
	return mt_narrow_at(run->ids, (size_t)run->id_bytes, at);
}

/* @ranks: of experts; NULL: ids are slots. */
static void rows_send(const struct mt_reader *reader, const struct routing_layer *layer,
		      uint32_t n_ranks, const uint8_t *ranks, struct sent *ret_sent)
{
	const struct mt_run *run = reader->run;
	const uint32_t size = layer->n_slots / n_ranks;

	memset(ret_sent, 0, sizeof(*ret_sent));
	for (size_t i = 0; i < reader->n_layer_rows; i++) {
		const size_t stored = reader->first_row + i;
		const size_t n = run->n_valid ? run->n_valid[stored] : run->k;
		uint64_t seen = 0;

		for (size_t j = 0; j < n && j < run->k; j++) {
			const uint32_t id = id_at(run, stored * run->k + j);
			uint32_t rank;

			if (id >= layer->n_experts)
				continue;
			rank = ranks ? ranks[id] : id / size;
			if (rank >= n_ranks)
				continue;
			ret_sent->entries[rank]++;
			ret_sent->tokens[rank] += !(seen >> rank & 1);
			seen |= UINT64_C(1) << rank;
		}
	}
}

static bool is_sent(const struct sent *sent, const uint8_t *told, uint32_t n_ranks)
{
	bool are_tokens = true, are_entries = true;

	for (uint32_t i = 0; i < n_ranks; i++, told += 4) {
		const uint64_t n = mt_u32_at(told);

		are_tokens &= n == sent->tokens[i];
		are_entries &= n == sent->entries[i];
	}
	return are_tokens || are_entries;
}

void routing_dispatch_take(struct routing *routing, struct routing_count *count)
{
	const struct mt_reader *reader = &routing->reader;
	const struct routing_layer *layer = count->layer;
	const int64_t n_ranks = sqlite3_column_int64(routing->dispatch_stmt, 2);
	const uint8_t *told = sqlite3_column_blob(routing->dispatch_stmt, 3);
	uint8_t ranks[1u << 16];
	struct sent logical, slots;

	if (!told || n_ranks < 2 || n_ranks > MAX_RANKS || !layer->slot_experts ||
	    layer->n_shared > 0 || reader->n_layer_rows != reader->n_rows ||
	    layer->n_slots % n_ranks != 0 ||
	    sqlite3_column_bytes(routing->dispatch_stmt, 3) != 4 * n_ranks ||
	    !ranks_find(layer, (uint32_t)n_ranks, ranks))
		return;
	rows_send(reader, layer, (uint32_t)n_ranks, ranks, &logical);
	rows_send(reader, layer, (uint32_t)n_ranks, NULL, &slots);
	count->n_dispatches++;
	if (is_sent(&logical, told, (uint32_t)n_ranks))
		return;
	count->n_dispatched_slots += is_sent(&slots, told, (uint32_t)n_ranks);
	count->n_other_dispatches++;
}
