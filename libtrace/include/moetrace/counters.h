/* SPDX-License-Identifier: MIT */
/*
 * Counters of a pass and layer, from runtimes that have them: how many rows each expert got,
 * where the ids themselves are not at hand, and what dispatch moved between ranks. Both calls
 * belong to the hot path, like moetrace_select_experts().
 */
#ifndef MOETRACE_COUNTERS_H
#define MOETRACE_COUNTERS_H
#ifndef MOETRACE_IN_UMBRELLA
#error "include <moetrace/moetrace.h>"
#endif

MOETRACE_BEGIN_DECLS

#define MOETRACE_MAX_RANKS 65536 /* ranks that a dispatch can name */

/* How many rows of a pass selected each expert of a layer. */
struct moetrace_expert_counts {
	size_t size;          /* set by MOETRACE_INIT() */
	uint32_t layer_index; /* as in moetrace_selection */
	uint32_t count_type;  /* enum moetrace_type, an integer type */
	const void *counts;   /* [n_counts] rows by id, padding excluded; a negative one is refused */
	uint32_t n_counts;    /* the layer's ids; or its routed experts alone, the others then count 0;
	                         with id_space PHYSICAL the slots of the map take the place of the
	                         routed experts */
	uint32_t id_space;    /* enum moetrace_id_space; replicas of an expert are added up */
	uint32_t map_epoch;   /* as in moetrace_selection */
	uint32_t untimed;     /* as in moetrace_selection */
};

/**
 * Hand over a layer's counts in place of its ids: a layer that was handed over in either form
 * is done. In mode PER_TOKEN the pass and its requests become partial ('counted'), since no row's
 * experts are known. In a pass whose slices differ in phase the counts are of class 'other'.
 *
 * @pass  NULL: nothing happens.
 */
MOETRACE_API
void moetrace_expert_load(struct moetrace_pass *pass, const struct moetrace_expert_counts *counts);

/*
 * What one layer's dispatch moved, as far as it is known; each array may be NULL. The names are
 * of what this process sent, and of what its own experts received. Of DeepEP: rank_tokens is
 * num_tokens_per_rank, rdma_rank_tokens is num_tokens_per_rdma_rank; received_tokens is
 * num_recv_tokens_per_expert_list of the normal kernels (with their expert_alignment), or
 * packed_recv_count of the low-latency ones.
 */
struct moetrace_dispatch_info {
	size_t size;                 /* set by MOETRACE_INIT() */
	uint32_t layer_index;        /* as in moetrace_selection */
	uint32_t count_type;         /* enum moetrace_type, an integer type: of all token counts */
	uint32_t n_ranks;            /* length of rank_tokens and rank_bytes */
	uint32_t n_rdma_ranks;       /* length of rdma_rank_tokens */
	uint32_t n_local_experts;    /* length of received_tokens */
	uint32_t first_local_slot;   /* number of the first of them among the slots of the layer (without
	                                an expert map: its logical id) */
	const void *rank_tokens;     /* [n_ranks] tokens sent to each rank, this one included */
	const uint64_t *rank_bytes;  /* [n_ranks] bytes sent to each rank; NULL: unknown, or see
	                                token_bytes */
	const void *rdma_rank_tokens; /* [n_rdma_ranks] tokens sent to each RDMA rank */
	const void *received_tokens; /* [n_local_experts] tokens that each local expert received */
	uint64_t token_bytes;        /* bytes that one sent token takes, where rank_bytes is NULL;
	                                0: unknown */
	uint32_t received_alignment; /* received_tokens are rounded up to multiples of this; 0 or 1:
	                                exact */
};

/**
 * Hand over what the dispatch of a layer moved, once a pass and layer: a second call is counted
 * and ignored. Stored in mode PER_TOKEN and PER_PASS.
 *
 * @pass  NULL: nothing happens.
 */
MOETRACE_API
void moetrace_dispatch(struct moetrace_pass *pass, const struct moetrace_dispatch_info *dispatch);

MOETRACE_END_DECLS

#endif
