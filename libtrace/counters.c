/* SPDX-License-Identifier: MIT */
/*
 * The calls of <moetrace/counters.h>: counts by expert, and what dispatch moved. They belong to
 * the hot path: nothing here allocates, locks, logs, makes a system call or waits.
 */
#include "libtrace/hot.h"

#include <string.h>

#include "libtrace/abi.h"

/* Counts of any type as u32; returns 0 if one is negative or above UINT32_MAX. */
static int copy_counts(const void *from, uint32_t type, uint32_t n, uint32_t *to)
{
	uint32_t type_bytes = mt_type_bytes(type);

	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *at = (const uint8_t *)from + (size_t)i * type_bytes;
		uint64_t value = 0;

		/* Little-endian; a negative number shows in its highest bit. */
		memcpy(&value, at, type_bytes);
		if (type != MOETRACE_TYPE_U8 && type != MOETRACE_TYPE_U16 &&
		    type != MOETRACE_TYPE_U32 && type != MOETRACE_TYPE_U64 &&
		    value >> (type_bytes * 8 - 1))
			return 0;
		if (value > UINT32_MAX)
			return 0;
		to[i] = (uint32_t)value;
	}
	return 1;
}

/* A layer of the pass and integers that can be read; returns 0 if so. */
static int check_counts(struct moetrace_pass *pass, uint32_t layer, uint32_t type,
			const void *const *arrays, uint32_t n_arrays)
{
	struct moetrace_session *session = pass->session;

	if (layer >= pass->model->n_layers)
		return mt_misuse(session, MT_MISUSE_LAYER), -1;
	if (!mt_type_is_integer(type))
		return mt_misuse(session, MT_MISUSE_TYPE), -1;
	for (uint32_t i = 0; i < n_arrays; i++)
		if ((uintptr_t)arrays[i] & (mt_type_bytes(type) - 1))
			return mt_misuse(session, MT_MISUSE_POINTER), -1;
	return 0;
}

/* Slots take the place of the routed experts; their number is the map's, which the writer knows. */
static int is_right_number(const struct mt_layer *layer, const struct moetrace_expert_counts *counts)
{
	if (counts->id_space == MOETRACE_ID_PHYSICAL)
		return counts->n_counts >= 1 &&
		       counts->n_counts <= (uint64_t)MOETRACE_MAX_SLOTS + layer->n_ids;
	return counts->n_counts == layer->n_ids || counts->n_counts == layer->n_experts;
}

void moetrace_expert_load(struct moetrace_pass *pass, const struct moetrace_expert_counts *counts)
{
	struct mt_reservation reservation;
	struct mt_record_counts *to;
	struct mt_ring *ring;
	uint32_t map_epoch = 0;
	uint64_t n_bytes;
	uint64_t now_ns;

	if (!pass)
		return;
	if (!counts || !mt_abi_knows(counts->size, MT_FIRST_EXPERT_COUNTS))
		return mt_misuse(pass->session, MT_MISUSE_SIZE);
	if (check_counts(pass, counts->layer_index, counts->count_type, &counts->counts, 1))
		return;
	if (!counts->counts)
		return mt_misuse(pass->session, MT_MISUSE_POINTER);
	if (counts->id_space > MOETRACE_ID_PHYSICAL ||
	    !is_right_number(&pass->model->layers[counts->layer_index], counts))
		return mt_misuse(pass->session, MT_MISUSE_COUNTS);
	if (counts->id_space == MOETRACE_ID_PHYSICAL &&
	    mt_check_epoch(pass, counts->map_epoch, &map_epoch))
		return;
	now_ns = mt_pass_now(pass);
	n_bytes = sizeof(*to) + counts->n_counts * UINT64_C(4);
	ring = mt_stream_of(pass);
	reservation = mt_stream_reserve(pass, ring, MT_RECORD_COUNTS, n_bytes);
	to = (struct mt_record_counts *)reservation.record;
	if (!to)
		return mt_drop_layer(pass, counts->layer_index, n_bytes, now_ns);
	to->record.time_ns = now_ns;
	to->layer = counts->layer_index;
	to->n_counts = counts->n_counts;
	to->map_epoch = map_epoch;
	to->untimed = counts->untimed != 0;
	/* A record that was reserved is committed: without counts the writer passes over it. */
	if (!copy_counts(counts->counts, counts->count_type, counts->n_counts,
			 (uint32_t *)(to + 1))) {
		to->n_counts = 0;
		mt_misuse(pass->session, MT_MISUSE_COUNTS);
	}
	mt_ring_commit(ring, reservation);
}

static struct mt_record_dispatch dispatch_header(const struct moetrace_dispatch_info *dispatch)
{
	struct mt_record_dispatch header = {
		.layer = dispatch->layer_index,
		.n_ranks = dispatch->rank_tokens || dispatch->rank_bytes ? dispatch->n_ranks : 0,
		.n_rdma_ranks = dispatch->rdma_rank_tokens ? dispatch->n_rdma_ranks : 0,
		.n_local_experts = dispatch->received_tokens ? dispatch->n_local_experts : 0,
		.first_local_slot = dispatch->first_local_slot,
		.received_alignment = dispatch->received_alignment ? dispatch->received_alignment :
								     1,
		.has_rank_tokens = dispatch->rank_tokens != NULL,
		.has_rank_bytes = dispatch->rank_bytes != NULL ||
				  (dispatch->rank_tokens && dispatch->token_bytes),
		.has_rdma_rank_tokens = dispatch->rdma_rank_tokens != NULL,
		.has_received_tokens = dispatch->received_tokens != NULL,
	};

	return header;
}

/* Returns 0 if a count is none, or the bytes are more than 64 bits hold. */
static int write_dispatch(struct mt_record_dispatch *to, const struct moetrace_dispatch_info *dispatch)
{
	struct mt_dispatch_parts parts = mt_dispatch_parts(to);
	uint32_t type = dispatch->count_type;

	if (to->has_rank_tokens &&
	    !copy_counts(dispatch->rank_tokens, type, to->n_ranks, parts.rank_tokens))
		return 0;
	if (to->has_rdma_rank_tokens && !copy_counts(dispatch->rdma_rank_tokens, type,
						     to->n_rdma_ranks, parts.rdma_rank_tokens))
		return 0;
	if (to->has_received_tokens && !copy_counts(dispatch->received_tokens, type,
						    to->n_local_experts, parts.received_tokens))
		return 0;
	for (uint32_t i = 0; to->has_rank_bytes && i < to->n_ranks; i++) {
		if (dispatch->rank_bytes)
			parts.rank_bytes[i] = dispatch->rank_bytes[i];
		else if (__builtin_mul_overflow(dispatch->token_bytes, parts.rank_tokens[i],
						&parts.rank_bytes[i]))
			return 0;
	}
	return 1;
}

static int check_dispatch(struct moetrace_pass *pass, const struct moetrace_dispatch_info *dispatch)
{
	const void *const arrays[] = { dispatch->rank_tokens, dispatch->rdma_rank_tokens,
				       dispatch->received_tokens };

	if (check_counts(pass, dispatch->layer_index, dispatch->count_type, arrays, 3))
		return -1;
	if ((uintptr_t)dispatch->rank_bytes & 7)
		return mt_misuse(pass->session, MT_MISUSE_POINTER), -1;
	if (dispatch->n_ranks > MOETRACE_MAX_RANKS || dispatch->n_rdma_ranks > MOETRACE_MAX_RANKS ||
	    dispatch->n_local_experts > MOETRACE_MAX_SLOTS ||
	    dispatch->first_local_slot > MOETRACE_MAX_SLOTS - dispatch->n_local_experts)
		return mt_misuse(pass->session, MT_MISUSE_DISPATCH), -1;
	return 0;
}

void moetrace_dispatch(struct moetrace_pass *pass, const struct moetrace_dispatch_info *dispatch)
{
	struct mt_record_dispatch header;
	struct mt_reservation reservation;
	struct mt_record_dispatch *to;
	struct mt_ring *ring;
	uint64_t n_bytes;
	uint64_t now_ns;

	if (!pass)
		return;
	if (!dispatch || !mt_abi_knows(dispatch->size, MT_FIRST_DISPATCH))
		return mt_misuse(pass->session, MT_MISUSE_SIZE);
	if (check_dispatch(pass, dispatch) || pass->mode == MOETRACE_MODE_STAT)
		return;
	header = dispatch_header(dispatch);
	now_ns = mt_pass_now(pass);
	n_bytes = mt_dispatch_parts(&header).n_bytes;
	ring = mt_stream_of(pass);
	reservation = mt_stream_reserve(pass, ring, MT_RECORD_DISPATCH, n_bytes);
	to = (struct mt_record_dispatch *)reservation.record;
	if (!to)
		return mt_count_loss(pass->session, mt_recording_of(pass),
				     MT_LOSS_DISPATCH_RING_FULL, n_bytes, now_ns);
	memcpy((uint8_t *)to + sizeof(to->record), (uint8_t *)&header + sizeof(header.record),
	       sizeof(header) - sizeof(header.record));
	to->record.time_ns = now_ns;
	if (!write_dispatch(to, dispatch)) {
		/* The writer passes over a record that names no layer of the model. */
		to->layer = UINT32_MAX;
		mt_misuse(pass->session, MT_MISUSE_DISPATCH);
	}
	mt_ring_commit(ring, reservation);
}
