/* SPDX-License-Identifier: MIT */
/*
 * The records that the hot path writes into a ring and the writer takes out: the only
 * language between the two. Records begin on a cache line. A main stream holds whole passes
 * one after the other: BEGIN, any number of records of layers (LAYER, WIDE, COUNTS, DISPATCH)
 * and of times (KERNELS), END; or a BEGIN alone for a pass that is left out. A side stream holds further records of
 * layers of the same passes; PAD fills the end of the memory.
 */
#ifndef MT_RECORD_H
#define MT_RECORD_H

#include <stdatomic.h>
#include <stdint.h>

#include <moetrace/moetrace.h>

#define MT_LINE_BYTES 64u
#define MT_LAYER_WORDS (MOETRACE_MAX_MOE_LAYERS / 64)

enum mt_record_type {
	MT_RECORD_PAD = 1,
	MT_RECORD_BEGIN = 2,
	MT_RECORD_LAYER = 3,
	MT_RECORD_END = 4,
	MT_RECORD_WIDE = 5,     /* a layer that the writer has to settle before it is stored */
	MT_RECORD_COUNTS = 6,   /* a layer of which only counts are known */
	MT_RECORD_DISPATCH = 7, /* what a layer's dispatch moved */
	MT_RECORD_KERNELS = 8,  /* how long operations of the pass took */
	MT_RECORD_RANGE = 9,    /* of no pass: in the ring of ranges, whole */
	MT_RECORD_COLLECTIVE = 10, /* what the pass moved between ranks */
};

struct mt_record {
	_Atomic uint64_t stamp; /* the ring's key ^ the record's position, once it is complete */
	uint64_t n_bytes;       /* whole lines, this header included */
	uint32_t type;
	uint32_t reserved;
	uint64_t time_ns;       /* when the pass began, the layer was handed over, the pass ended */
};

struct mt_record_slice {
	uint64_t request;
	uint32_t first_position;
	uint32_t n_rows;
	uint32_t phase;         /* the slice's own, never 0 */
	uint32_t has_positions; /* its n_rows positions follow in the record's position array */
};

/*
 * Followed by KV slots [n_rows] if there are any, slices [n_slices], then by the positions of
 * those slices that have them.
 */
struct mt_record_begin {
	struct mt_record record;
	uint64_t runtime_pass;
	uint64_t number;
	uint64_t parent; /* number of the pass that it is a part of; 0: none */
	uint32_t microbatch;
	uint8_t has_runtime_pass;
	uint8_t has_microbatch;
	uint8_t slot_bytes; /* 4 or 8; 0: no KV slots */
	uint8_t slots_are_signed;
	uint32_t recording_id;
	uint32_t model;
	uint32_t phase;
	uint32_t n_rows;
	uint32_t padding_rows;
	uint32_t n_slices;
	uint32_t n_positions; /* in the position array */
	uint32_t map_epoch;   /* of the expert map in force; 0: none */
	uint32_t skip;        /* enum mt_skip */
	uint32_t gpu;         /* index of the attached device that it runs on + 1; 0: not told */
};

/* Why a pass is left out: its BEGIN only says which positions it carried. */
enum mt_skip {
	MT_SKIP_NONE = 0,
	MT_SKIP_SAMPLED = 1,
	MT_SKIP_DISABLED = 2,
};

/* What is told of each row beside its entries. */
#define MT_FACT_MARGINS 1u
#define MT_FACT_FLAGS 2u

/*
 * Followed, in this order and each only as long as it applies, by
 * row_map u32 [n_rows], margins f32 [n_rows], weights u16 [n_rows][k],
 * ids [n_rows + n_padding][k] of id_bytes, base_ids [n_rows][base_k] of id_bytes,
 * row flags u8 [n_rows], n_valid u8 [n_rows + n_padding].
 */
struct mt_record_layer {
	struct mt_record record;
	uint32_t layer;         /* index among the model's MoE layers */
	uint32_t n_rows;        /* rows to store */
	uint32_t n_padding;     /* padding rows, counted only */
	uint32_t n_invalid;     /* ids that the layer does not have, left out */
	uint16_t k;
	uint8_t id_bytes;
	uint8_t weight_format;  /* enum moetrace_weight_format */
	uint8_t order;          /* enum moetrace_selection_order */
	uint8_t has_row_map;
	uint8_t has_valid;      /* 0: all k entries of all stored rows are in use */
	uint8_t has_padding_valid;
	uint8_t untimed;
	uint8_t base_k;         /* 0: no room for base_ids */
	uint8_t has_base;
	uint8_t facts;          /* MT_FACT_* */
	uint32_t rule;          /* 0: none */
};

/*
 * A layer as it was passed, ids and weights widened but otherwise untouched: entries without an
 * expert are still in place. Followed by row_map u32 [n_rows], margins f32 [n_rows], ids i32 [n_rows + n_padding][k],
 * weights f32 [n_rows][k], physical ids i32 [n_rows][k], base_ids i32 [n_rows][base_k],
 * candidate ids i32 [n_rows][n_candidates], candidate scores f32 [n_rows][n_candidates], row flags
 * u8 [n_rows], each only where it applies.
 */
struct mt_record_wide {
	struct mt_record record;
	uint32_t layer;
	uint32_t n_rows;
	uint32_t n_padding;
	uint32_t rule;
	uint32_t map_epoch;    /* that explains physical ids; 0: none are there */
	uint32_t none_id;      /* means no expert, where the layer has no such id */
	uint32_t n_candidates; /* 0: none */
	uint16_t k;
	uint8_t order;         /* enum moetrace_selection_order */
	uint8_t is_physical;   /* ids are */
	uint8_t has_row_map;
	uint8_t has_weights;
	uint8_t has_physical;
	uint8_t untimed;
	uint8_t base_k;        /* 0: no base_ids */
	uint8_t weight_type;   /* enum moetrace_type that the weights were passed in */
	uint8_t score_type;    /* the same of the candidates' scores */
	uint8_t facts;         /* MT_FACT_* */
	uint8_t reserved[4];
};

/* Followed by counts u32 [n_counts]. */
struct mt_record_counts {
	struct mt_record record;
	uint32_t layer;
	uint32_t n_counts;
	uint32_t map_epoch;    /* counts are of slots under this map; 0: of logical ids */
	uint32_t untimed;
};

/*
 * Followed by rank_bytes u64 [n_ranks], then u32 arrays: rank_tokens [n_ranks],
 * rdma_rank_tokens [n_rdma_ranks], received_tokens [n_local_experts]; each only if it is there.
 */
struct mt_record_dispatch {
	struct mt_record record;
	uint32_t layer;
	uint32_t n_ranks;
	uint32_t n_rdma_ranks;
	uint32_t n_local_experts;
	uint32_t first_local_slot;
	uint32_t received_alignment;
	uint8_t has_rank_tokens;
	uint8_t has_rank_bytes;
	uint8_t has_rdma_rank_tokens;
	uint8_t has_received_tokens;
	uint32_t reserved;
};

/* Times of the session's clock; checked when they were handed over. */
struct mt_record_kernels {
	struct mt_record record;
	uint32_t n_times;
	uint32_t reserved;
	struct moetrace_kernel_time times[];
};

struct mt_record_collective {
	struct mt_record record;
	struct moetrace_collective collective; /* times of the session's clock */
};

struct mt_record_range {
	struct mt_record record; /* its time is the end */
	uint64_t start_ns;
	uint64_t thread;
	uint32_t name;
	uint32_t reserved;
};

struct mt_record_end {
	struct mt_record record;
	uint64_t n_dropped;
	uint64_t side_position; /* records of the pass in the side stream lie before it */
	uint64_t dropped_layers[MT_LAYER_WORDS]; /* a bit a layer index */
};

/* In n_valid of a stored row, never of a padding row: ids were left out that the layer does not
   have. */
#define MT_ROW_INVALID 0x80u
_Static_assert(MOETRACE_MAX_TOP_K < MT_ROW_INVALID, "the mark is no part of the count");

/* Where the parts that follow a LAYER header lie. */
struct mt_layer_parts {
	uint32_t *row_map;
	float *margins;
	uint16_t *weights;
	uint8_t *ids;
	uint8_t *base_ids;
	uint8_t *row_flags;
	uint8_t *n_valid; /* of the stored rows, then of the padding rows */
	uint64_t n_bytes; /* of header and parts */
};

static inline struct mt_layer_parts mt_layer_parts(struct mt_record_layer *layer)
{
	struct mt_layer_parts parts;
	uint64_t n_rows = layer->n_rows;
	uint64_t n_all = n_rows + layer->n_padding;
	uint8_t *at = (uint8_t *)(layer + 1);

	parts.row_map = (uint32_t *)at;
	at += layer->has_row_map ? n_rows * 4 : 0;
	parts.margins = (float *)at;
	at += layer->facts & MT_FACT_MARGINS ? n_rows * 4 : 0;
	parts.weights = (uint16_t *)at;
	at += layer->weight_format != MOETRACE_WEIGHT_FORMAT_NONE ? n_rows * layer->k * 2 : 0;
	parts.ids = at;
	at += n_all * layer->k * layer->id_bytes;
	parts.base_ids = at;
	at += n_rows * layer->base_k * layer->id_bytes;
	parts.row_flags = at;
	at += layer->facts & MT_FACT_FLAGS ? n_rows : 0;
	parts.n_valid = at;
	at += n_all;
	parts.n_bytes = (uint64_t)(at - (uint8_t *)layer);
	return parts;
}

/* Where the parts that follow a WIDE header lie. */
struct mt_wide_parts {
	uint32_t *row_map;
	float *margins;
	int32_t *ids; /* of the stored rows, then of the padding rows */
	float *weights;
	int32_t *physical_ids;
	int32_t *base_ids;
	int32_t *candidate_ids;
	float *candidate_scores;
	uint8_t *row_flags;
	uint64_t n_bytes; /* of header and parts */
};

static inline struct mt_wide_parts mt_wide_parts(struct mt_record_wide *wide)
{
	struct mt_wide_parts parts;
	uint64_t n_rows = wide->n_rows;
	uint64_t n_entries = n_rows * wide->k;
	uint64_t n_candidates = n_rows * wide->n_candidates;
	uint8_t *at = (uint8_t *)(wide + 1);

	parts.row_map = (uint32_t *)at;
	at += wide->has_row_map ? n_rows * 4 : 0;
	parts.margins = (float *)at;
	at += wide->facts & MT_FACT_MARGINS ? n_rows * 4 : 0;
	parts.ids = (int32_t *)at;
	at += (n_rows + wide->n_padding) * wide->k * 4;
	parts.weights = (float *)at;
	at += wide->has_weights ? n_entries * 4 : 0;
	parts.physical_ids = (int32_t *)at;
	at += wide->has_physical ? n_entries * 4 : 0;
	parts.base_ids = (int32_t *)at;
	at += n_rows * wide->base_k * 4;
	parts.candidate_ids = (int32_t *)at;
	at += n_candidates * 4;
	parts.candidate_scores = (float *)at;
	at += n_candidates * 4;
	parts.row_flags = at;
	at += wide->facts & MT_FACT_FLAGS ? n_rows : 0;
	parts.n_bytes = (uint64_t)(at - (uint8_t *)wide);
	return parts;
}

/* Where the parts that follow a DISPATCH header lie. */
struct mt_dispatch_parts {
	uint64_t *rank_bytes;
	uint32_t *rank_tokens;
	uint32_t *rdma_rank_tokens;
	uint32_t *received_tokens;
	uint64_t n_bytes; /* of header and parts */
};

static inline struct mt_dispatch_parts mt_dispatch_parts(struct mt_record_dispatch *dispatch)
{
	struct mt_dispatch_parts parts;
	uint8_t *at = (uint8_t *)(dispatch + 1);

	parts.rank_bytes = (uint64_t *)at;
	at += dispatch->has_rank_bytes ? dispatch->n_ranks * UINT64_C(8) : 0;
	parts.rank_tokens = (uint32_t *)at;
	at += dispatch->has_rank_tokens ? dispatch->n_ranks * UINT64_C(4) : 0;
	parts.rdma_rank_tokens = (uint32_t *)at;
	at += dispatch->has_rdma_rank_tokens ? dispatch->n_rdma_ranks * UINT64_C(4) : 0;
	parts.received_tokens = (uint32_t *)at;
	at += dispatch->has_received_tokens ? dispatch->n_local_experts * UINT64_C(4) : 0;
	parts.n_bytes = (uint64_t)(at - (uint8_t *)dispatch);
	return parts;
}

_Static_assert(sizeof(struct mt_record) == 32, "the header has no holes");
_Static_assert(sizeof(struct mt_record_layer) % 8 == 0, "parts begin aligned");
/* Bytes of the KV slots of a BEGIN record, so that slices begin aligned. */
static inline uint64_t mt_slots_bytes(uint32_t n_rows, uint32_t slot_bytes)
{
	return ((uint64_t)n_rows * slot_bytes + 7) & ~UINT64_C(7);
}

_Static_assert(sizeof(struct mt_record_begin) % 8 == 0, "slices begin aligned");
_Static_assert(sizeof(struct mt_record_wide) % 8 == 0, "parts begin aligned");
_Static_assert(sizeof(struct mt_record_counts) % 8 == 0, "counts begin aligned");
_Static_assert(sizeof(struct mt_record_kernels) % 8 == 0, "times begin aligned");
_Static_assert(sizeof(struct mt_record_dispatch) % 8 == 0, "parts begin aligned");

#endif
