/* SPDX-License-Identifier: MIT */
/*
 * For router kernels: store what was selected, in the kernel itself, for some nanoseconds a
 * layer. Compiled by nvcc for sm_80 or newer; nothing is linked. A kernel with a warp a row:
 *
 *   __global__ void router(..., struct moetrace_cuda_target target)
 *   {
 *           ... issue the kernel's own loads ...
 *           const struct moetrace_cuda_row to = moetrace_cuda_open(target, row);
 *           ... score and select ...
 *           // lane i < k holds the i-th expert of the row and its weight
 *           moetrace_cuda_store_row(to, n_rows, row == 0 && lane == 0, lane, id, weight, flags);
 *   }
 *
 * moetrace_cuda_open() issues the load of the lane's word and fetches the parameters, and waits
 * for neither. It stands behind the kernel's own loads and before what they are waited for:
 * there all of it is hidden; at the end, each would cost what the stores cost. While nothing is
 * recorded what remains is one predicted branch. n_rows is what the kernel was launched for,
 * padding included; rows are the pass's rows. Each row is stored once; a kernel may leave out
 * padding rows. See <moetrace/cuda.h>.
 */
#ifndef MOETRACE_CUDA_DEVICE_CUH
#define MOETRACE_CUDA_DEVICE_CUH

#include <stdint.h>

#include <moetrace/cuda.h>

#define MOETRACE_CUDA_FLAG_NAN 1u /* one of the row's scores was NaN: counted (table diagnostic) */

/* A row that may be stored, in registers. */
struct moetrace_cuda_row {
	uint64_t word; /* the lane's: where the pass's rows go, or nowhere */
	uint64_t base; /* address of the layer's head at place 0 */
	uint32_t row;
	uint32_t packed;  /* tag, k and weight_format of the target */
	uint32_t indices; /* n_ids and layer_index of the target */
};

/*
 * The load must not hold up what follows it. So it is predicated, since a branch around it would
 * wait at its end, and its address differs between lanes as far as the compiler can tell: a value
 * that is known to be the same in all lanes would be moved to a uniform register at once, which
 * waits for it. The other values are pinned here, since reading parameters only at the kernel's
 * end can miss the cache of constants there.
 */
static __device__ __forceinline__ struct moetrace_cuda_row
moetrace_cuda_open(const struct moetrace_cuda_target &target, uint32_t row)
{
	struct moetrace_cuda_row to;

	/* 0: no target has this tag. The mask of a lane is never 0. */
	asm volatile("{\n\t"
		     ".reg .pred is_there, is_odd;\n\t"
		     ".reg .u32 mask;\n\t"
		     ".reg .u64 offset;\n\t"
		     "mov.u32 mask, %%lanemask_eq;\n\t"
		     "setp.eq.u32 is_odd, mask, 0;\n\t"
		     "selp.u64 offset, 8, 0, is_odd;\n\t"
		     "add.u64 offset, offset, %1;\n\t"
		     "setp.ne.u64 is_there, %1, 0;\n\t"
		     "mov.u64 %0, 0;\n\t"
		     "@is_there ld.volatile.global.u64 %0, [offset];\n\t"
		     "}"
		     : "=&l"(to.word)
		     : "l"(target.word));
	to.base = target.base;
	/* Without a target, or past its rows, the tag is one that no word has. */
	to.packed = target.word && row < target.n_rows ? target.packed : 0x3fffu;
	to.indices = target.indices;
	to.row = row;
	asm volatile("" : "+l"(to.base), "+r"(to.packed), "+r"(to.indices));
	return to;
}

/* Is a pass recorded whose row this is? */
static __device__ __forceinline__ bool moetrace_cuda_is_on(const struct moetrace_cuda_row &to)
{
	return ((static_cast<uint32_t>(to.word) ^ to.packed) & 0x3fffu) == 0;
}

static __device__ __forceinline__ uint32_t moetrace_cuda_k(const struct moetrace_cuda_row &to)
{
	return to.packed >> 16 & 0xffu;
}

/* The 16 bits of a weight in the format of the session, rounded to nearest, ties to even. */
static __device__ __forceinline__ uint32_t moetrace_cuda_narrow(const struct moetrace_cuda_row &to,
								float weight)
{
	uint16_t half, bfloat;

	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(weight));
	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bfloat) : "f"(weight));
	return to.packed >> 24 == MOETRACE_WEIGHT_FORMAT_BF16 ? bfloat : half;
}

/* Where the layer's head is, and a row; only if moetrace_cuda_is_on(). */
static __device__ __forceinline__ uint64_t moetrace_cuda_head_at(const struct moetrace_cuda_row &to)
{
	return to.base + ((to.word >> 14 & 0x3fffffu) << 8);
}

static __device__ __forceinline__ uint64_t moetrace_cuda_row_at(const struct moetrace_cuda_row &to)
{
	return moetrace_cuda_head_at(to) + 16 +
	       static_cast<uint64_t>(to.row) * (4 * (moetrace_cuda_k(to) + 1));
}

/*
 * An entry of a row: @id negative is no expert. The weight is narrowed bits, so that a caller
 * with 16-bit weights of the session's format passes them on.
 */
static __device__ __forceinline__ uint32_t moetrace_cuda_entry(const struct moetrace_cuda_row &to,
							       int64_t id, uint32_t weight)
{
	/* Ids that the layer does not have stay none: the two largest values say so. */
	const uint32_t bits = id < 0			     ? 0xffffu
			      : id >= (to.indices & 0xffffu) ? 0xfffeu
							     : static_cast<uint32_t>(id);

	return weight << 16 | bits;
}

/* The last word of a row: it counts as written. */
static __device__ __forceinline__ uint32_t moetrace_cuda_mark(const struct moetrace_cuda_row &to,
							      uint32_t flags)
{
	return static_cast<uint32_t>(to.word >> 36) | flags << 28;
}

static __device__ __forceinline__ void moetrace_cuda_put(uint64_t row_at, uint32_t i,
							 uint32_t value)
{
	asm volatile("st.global.u32 [%0], %1;" : : "l"(row_at + 4 * i), "r"(value) : "memory");
}

/* By one thread a layer, of any row: the layer counts as written, at this time. */
static __device__ __forceinline__ void moetrace_cuda_store_head(const struct moetrace_cuda_row &to,
								uint32_t n_rows)
{
	uint32_t timer_ns;

	asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(timer_ns));
	asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
		     :
		     : "l"(moetrace_cuda_head_at(to)), "r"(static_cast<uint32_t>(to.word >> 36)),
		       "r"(to.indices >> 16), "r"(n_rows), "r"(timer_ns)
		     : "memory");
}

/*
 * A row, by the 32 lanes of a warp: lane i < k holds entry i (k is at most 31). The lane with
 * @is_first, one a layer, also stores the layer's head.
 */
static __device__ __forceinline__ void moetrace_cuda_store_row(const struct moetrace_cuda_row &to,
							       uint32_t n_rows, bool is_first,
							       uint32_t lane, int32_t id,
							       float weight, uint32_t flags)
{
	if (!moetrace_cuda_is_on(to))
		return;
	if (is_first)
		moetrace_cuda_store_head(to, n_rows);
	if (lane <= moetrace_cuda_k(to))
		moetrace_cuda_put(
			moetrace_cuda_row_at(to), lane,
			lane < moetrace_cuda_k(to)
				? moetrace_cuda_entry(to, id, moetrace_cuda_narrow(to, weight))
				: moetrace_cuda_mark(to, flags));
}

/* A row, by one thread that holds all its entries; @weights NULL: none. */
static __device__ __forceinline__ void
moetrace_cuda_store_row_alone(const struct moetrace_cuda_row &to, uint32_t n_rows, bool is_first,
			      const int32_t *ids, const float *weights, uint32_t flags)
{
	if (!moetrace_cuda_is_on(to))
		return;
	if (is_first)
		moetrace_cuda_store_head(to, n_rows);
	const uint64_t at = moetrace_cuda_row_at(to);
	for (uint32_t i = 0; i < moetrace_cuda_k(to); i++)
		moetrace_cuda_put(
			at, i,
			moetrace_cuda_entry(to, ids[i],
					    weights ? moetrace_cuda_narrow(to, weights[i]) : 0u));
	moetrace_cuda_put(at, moetrace_cuda_k(to), moetrace_cuda_mark(to, flags));
}

#endif
