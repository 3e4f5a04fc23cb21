/* SPDX-License-Identifier: MIT */
/*
 * Where things lie in the ring, as host and kernels agree. <moetrace/cuda_device.cuh> reads the
 * same numbers; tests hold the two to each other.
 *
 * The word of a lane: stamp << 36 | place << 14 | tag. A tag of 0: nothing is stored. place is
 * the pass's (or group's) offset in the ring in granules; the tag is what a kernel's target must
 * have: the number of rows and the group of layers that the place was made for. The stamp is a
 * number that no other pass of the last 2^28 had; with each row it is stored, too, so that rows
 * which nobody wrote are told from those of a pass that had the same place before.
 *
 * At the place, for each layer of the group: a head, then rows of pairs of 32 bits, so that a warp
 * stores a row by one instruction: k entries (id, weight as a float), then a mark
 * (stamp | flags << 28) and the margin; the next layer begins at a multiple of 16 bytes.
 */
#ifndef MT_CUDA_LAYOUT_H
#define MT_CUDA_LAYOUT_H

#include <stdint.h>

#include <moetrace/cuda.h>

#define MT_CUDA_GRANULE_BYTES 256u
#define MT_CUDA_STAMP_BITS 28u
#define MT_CUDA_STAMP_MASK ((UINT32_C(1) << MT_CUDA_STAMP_BITS) - 1)
#define MT_CUDA_PLACE_SHIFT 14u
#define MT_CUDA_STAMP_SHIFT 36u
#define MT_CUDA_N_GROUPS 8u /* told apart by a tag: the first, and of the others 7 in a row */
#define MT_CUDA_HEAD_BYTES 16u
#define MT_CUDA_FLAG_NAN (UINT32_C(1) << MT_CUDA_STAMP_BITS)
#define MT_CUDA_FLAG_TIE (UINT32_C(2) << MT_CUDA_STAMP_BITS)
#define MT_CUDA_FLAG_MARGIN (UINT32_C(4) << MT_CUDA_STAMP_BITS)

/* Written by one thread of the layer's kernel. */
struct mt_cuda_head {
	uint32_t stamp;
	uint32_t layer_index;
	uint32_t n_rows;   /* that the kernel was launched for */
	uint32_t timer_ns; /* the low half of the GPU's */
};
_Static_assert(sizeof(struct mt_cuda_head) == MT_CUDA_HEAD_BYTES, "the kernels' layout");

/* How the rows of a layer lie. */
struct mt_cuda_layer {
	uint32_t n_ids;
	uint32_t row_bytes;
	uint32_t k;
};

/* A group of layers that is stored in one place, and where one of them lies in it. */
struct mt_cuda_group {
	uint32_t group;
	uint32_t first_layer;
	uint32_t end_layer;
	uint32_t layer_offset;
	uint64_t n_bytes;
};

/* Recorded in two bytes at most, and there must be one that says "no expert". */
#define MT_CUDA_MAX_IDS 65534u

static inline int mt_cuda_layer_init(struct mt_cuda_layer *layer, uint32_t n_ids, uint32_t k)
{
	if (n_ids > MT_CUDA_MAX_IDS)
		return -1;
	layer->n_ids = n_ids;
	layer->k = k;
	layer->row_bytes = 8 * (k + 1);
	return 0;
}

/*
 * Numbers of rows as 11 bits: exponent << 7 | mantissa, rounded up by less than 1/64. Rows
 * beyond MOETRACE_CUDA_MAX_ROWS have no code.
 */
static inline uint32_t mt_cuda_rows_code(uint32_t n_rows)
{
	uint32_t exponent = 0;

	while (((n_rows + (1u << exponent) - 1) >> exponent) > 127)
		exponent++;
	return exponent << 7 | ((n_rows + (1u << exponent) - 1) >> exponent);
}

static inline uint32_t mt_cuda_rows_of_code(uint32_t code)
{
	return (code & 127) << (code >> 7);
}

/*
 * None of the other groups has the tag of the first one, whose place stays that of the lane's word where
 * nobody says that further layers come.
 */
static inline uint32_t mt_cuda_tag(uint32_t code, uint32_t group)
{
	uint32_t number = group ? 1 + (group - 1) % (MT_CUDA_N_GROUPS - 1) : 0;

	return number << 11 | code;
}

static inline uint64_t mt_cuda_word(uint32_t stamp, uint64_t ring_offset, uint32_t tag)
{
	return (uint64_t)stamp << MT_CUDA_STAMP_SHIFT |
	       ring_offset / MT_CUDA_GRANULE_BYTES << MT_CUDA_PLACE_SHIFT | tag;
}

/* What is written when nothing more goes to the place of @word: no kernel has its tag. */
static inline uint64_t mt_cuda_closed(uint64_t word)
{
	return ((word >> MT_CUDA_STAMP_SHIFT) + 1) << MT_CUDA_STAMP_SHIFT;
}

static inline int mt_cuda_is_closed(uint64_t word)
{
	return !(word & ((UINT64_C(1) << MT_CUDA_PLACE_SHIFT) - 1));
}

static inline uint64_t mt_cuda_granules(uint64_t n_bytes)
{
	return (n_bytes + MT_CUDA_GRANULE_BYTES - 1) & ~(uint64_t)(MT_CUDA_GRANULE_BYTES - 1);
}

static inline uint64_t mt_cuda_layer_bytes(const struct mt_cuda_layer *layer, uint32_t n_rows)
{
	return (MT_CUDA_HEAD_BYTES + (uint64_t)n_rows * layer->row_bytes + 15) & ~UINT64_C(15);
}

/*
 * The group of @layer_index when groups have at most @limit_bytes; 0, or -1 where a layer alone
 * has more.
 */
static inline int mt_cuda_group_of(const struct mt_cuda_layer *layers, uint32_t n_layers,
				   uint32_t layer_index, uint32_t n_rows, uint64_t limit_bytes,
				   struct mt_cuda_group *ret_group)
{
	struct mt_cuda_group at = { 0, 0, 0, 0, 0 };

	for (at.end_layer = 0; at.end_layer < n_layers; at.end_layer++) {
		uint64_t n_bytes = mt_cuda_layer_bytes(&layers[at.end_layer], n_rows);

		if (n_bytes > limit_bytes)
			return -1;
		if (at.n_bytes + n_bytes > limit_bytes) {
			if (at.end_layer > layer_index)
				break;
			at.group++;
			at.first_layer = at.end_layer;
			at.n_bytes = 0;
		}
		if (at.end_layer == layer_index)
			at.layer_offset = (uint32_t)at.n_bytes;
		at.n_bytes += n_bytes;
	}
	*ret_group = at;
	return 0;
}

#endif
