/* SPDX-License-Identifier: MIT */
/*
 * For router kernels: store what was selected, in the kernel itself, for a few nanoseconds a
 * layer. Compiled by nvcc for sm_80 or newer; nothing is linked. A kernel with a warp a row:
 *
 *   __global__ void router(..., struct moetrace_cuda_target target)
 *   {
 *           const uint64_t word = moetrace_cuda_load(target);        // first of all
 *           ...
 *           // lane i < k holds the i-th expert of the row and its weight
 *           moetrace_cuda_store_row(target, word, row, n_rows, lane, id, weight, flags);
 *   }
 *
 * The load must stand at the kernel's top, where its latency hides behind the kernel's own loads;
 * late, it costs more than all the stores. While nothing is recorded the rest is one predicted
 * branch. n_rows is what the kernel was launched for, padding included; rows are the pass's rows.
 * Each row is stored once; a kernel may leave out padding rows. See <moetrace/cuda.h>.
 */
#ifndef MOETRACE_CUDA_DEVICE_CUH
#define MOETRACE_CUDA_DEVICE_CUH

#include <stdint.h>

#include <moetrace/cuda.h>

#define MOETRACE_CUDA_FLAG_NAN 1u /* one of the row's scores was NaN */
#define MOETRACE_CUDA_FLAG_TIE 2u /* its k-th and next score were equal: the cut was arbitrary */

/* The lane's word: where rows go, or nowhere. */
static __device__ __forceinline__ uint64_t
moetrace_cuda_load(const struct moetrace_cuda_target &target)
{
	uint64_t word = 1; /* no target has this tag */

	if (target.word)
		asm volatile("ld.volatile.global.u64 %0, [%1];" : "=l"(word) : "l"(target.word));
	return word;
}

/* Is a pass recorded whose rows these are? */
static __device__ __forceinline__ bool
moetrace_cuda_is_on(const struct moetrace_cuda_target &target, uint64_t word)
{
	return (static_cast<uint32_t>(word) & 0x3fffu) == target.tag;
}

/* The 16 bits of a weight in the format of the session, rounded to nearest, ties to even. */
static __device__ __forceinline__ uint16_t
moetrace_cuda_narrow(const struct moetrace_cuda_target &target, float weight)
{
	uint16_t bits;

	if (target.weight_format == MOETRACE_WEIGHT_FORMAT_BF16)
		asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(weight));
	else
		asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(weight));
	return bits;
}

/* Where a layer's rows are; only if moetrace_cuda_is_on(). */
static __device__ __forceinline__ uint64_t
moetrace_cuda_place(const struct moetrace_cuda_target &target, uint64_t word)
{
	return target.ring + ((word >> 14 & 0x3fffffu) << 8) + target.layer_offset;
}

static __device__ __forceinline__ uint64_t
moetrace_cuda_row(const struct moetrace_cuda_target &target, uint64_t word, uint32_t row)
{
	return moetrace_cuda_place(target, word) + 32 +
	       static_cast<uint64_t>(row) * target.row_bytes;
}

/*
 * One entry of a row: @id negative is no expert. The weight is narrowed bits, so that a caller
 * with 16-bit weights of the session's format passes them on.
 */
static __device__ __forceinline__ void
moetrace_cuda_store_entry(const struct moetrace_cuda_target &target, uint64_t row_at, uint32_t rank,
			  int64_t id, uint16_t weight)
{
	/* Ids that the layer does not have keep being none: the two largest values say so. */
	const uint32_t bits = id < 0 ? 0xffffu : id >= target.n_ids ? 0xfffeu : static_cast<uint32_t>(id);

	if (target.id_bytes == 1)
		*reinterpret_cast<uint8_t *>(row_at + rank) = static_cast<uint8_t>(bits);
	else
		*reinterpret_cast<uint16_t *>(row_at + 2 * rank) = static_cast<uint16_t>(bits);
	if (target.weight_format != MOETRACE_WEIGHT_FORMAT_NONE)
		*reinterpret_cast<uint16_t *>(row_at + ((target.k * target.id_bytes + 1u) & ~1u) +
					      2 * rank) = weight;
}

/* By one thread a row, after its entries: the row counts as written. */
static __device__ __forceinline__ void
moetrace_cuda_store_mark(const struct moetrace_cuda_target &target, uint64_t row_at, uint64_t word,
			 uint32_t flags)
{
	*reinterpret_cast<uint32_t *>(row_at + target.row_bytes - 4) =
		static_cast<uint32_t>(word >> 36) | flags << 28;
}

/* By one thread a layer: the layer counts as written, at this time. */
static __device__ __forceinline__ void
moetrace_cuda_store_head(const struct moetrace_cuda_target &target, uint64_t word, uint32_t n_rows)
{
	const uint64_t at = moetrace_cuda_place(target, word);
	uint64_t timer_ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(timer_ns));
	asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
		     :
		     : "l"(at), "r"(static_cast<uint32_t>(word >> 36)), "r"(target.layer_index),
		       "r"(n_rows), "r"(0)
		     : "memory");
	*reinterpret_cast<uint64_t *>(at + 16) = timer_ns;
}

/*
 * A row, by the 32 lanes of a warp: lane i < k holds entry i (k is at most 32). The warp of row 0
 * stores the layer's head, too: where no kernel stores row 0, call moetrace_cuda_store_head().
 */
static __device__ __forceinline__ void
moetrace_cuda_store_row(const struct moetrace_cuda_target &target, uint64_t word, uint32_t row,
			uint32_t n_rows, uint32_t lane, int64_t id, float weight, uint32_t flags)
{
	if (!moetrace_cuda_is_on(target, word) || row >= target.n_rows)
		return;
	const uint64_t row_at = moetrace_cuda_row(target, word, row);
	if (lane < target.k)
		moetrace_cuda_store_entry(target, row_at, lane, id,
					  moetrace_cuda_narrow(target, weight));
	if (lane != 0)
		return;
	moetrace_cuda_store_mark(target, row_at, word, flags);
	if (row == 0)
		moetrace_cuda_store_head(target, word, n_rows);
}

/* A row, by one thread that holds all its entries. */
static __device__ __forceinline__ void
moetrace_cuda_store_row_alone(const struct moetrace_cuda_target &target, uint64_t word, uint32_t row,
			      uint32_t n_rows, const int32_t *ids, const float *weights,
			      uint32_t flags)
{
	if (!moetrace_cuda_is_on(target, word) || row >= target.n_rows)
		return;
	const uint64_t row_at = moetrace_cuda_row(target, word, row);
	for (uint32_t i = 0; i < target.k; i++)
		moetrace_cuda_store_entry(target, row_at, i, ids[i],
					  weights ? moetrace_cuda_narrow(target, weights[i])
						  : static_cast<uint16_t>(0));
	moetrace_cuda_store_mark(target, row_at, word, flags);
	if (row == 0)
		moetrace_cuda_store_head(target, word, n_rows);
}

#endif
