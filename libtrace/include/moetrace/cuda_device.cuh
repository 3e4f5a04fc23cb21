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

#define MOETRACE_CUDA_FLAG_NAN 1u /* one of the row's scores was NaN: counted (table diagnostic) \
				   */

/* A row that may be stored, in registers. */
struct moetrace_cuda_row {
	uint64_t word; /* the lane's: where the pass's rows go, or nowhere */
	uint64_t base; /* address of the layer's head at place 0 */
	uint32_t row;
	uint32_t packed;   /* tag, k and weight_format of the target */
	uint32_t indices;  /* n_ids and layer_index of the target */
	uint64_t at;	   /* where the lane's word would be at place 0 */
	uint32_t part;	   /* what the lane stores, MOETRACE_CUDA_PART_* */
	uint32_t timer_ns; /* the low half of the GPU's */
};

/* Lanes from here on store the head, in the instruction in which others store row 0. */
#define MOETRACE_CUDA_HEAD_LANE	 28u
#define MOETRACE_CUDA_PART_ANY	 1u /* else nothing */
#define MOETRACE_CUDA_PART_ENTRY 2u
#define MOETRACE_CUDA_PART_MARK	 4u /* of the row, or the head's stamp */
#define MOETRACE_CUDA_PART_ROWS	 8u
#define MOETRACE_CUDA_PART_TIMER 16u /* else the layer's index */
#define MOETRACE_CUDA_PART_HEAD	 32u /* all of the head, beside */

static __device__ __forceinline__ uint32_t moetrace_cuda_k(const struct moetrace_cuda_row &to)
{
	return to.packed >> 16 & 0xffu;
}

/*
 * What a lane stores, and where. Of row 0 the last lanes store the head, unless the row needs them.
 * Both are kept in registers: found at the end they would be found from slow ones.
 */
static __device__ __forceinline__ void moetrace_cuda_aim(struct moetrace_cuda_row &to)
{
	const uint32_t k = moetrace_cuda_k(to);
	uint32_t lane, part;
	bool is_head;

	asm("mov.u32 %0, %%laneid;" : "=r"(lane));
	is_head = to.row == 0 && lane >= MOETRACE_CUDA_HEAD_LANE && k < MOETRACE_CUDA_HEAD_LANE;
	to.at = to.base + (is_head ? (lane - MOETRACE_CUDA_HEAD_LANE) * 4
				   : 16 + (static_cast<uint64_t>(to.row) * (k + 1) + lane) * 4);
	part = lane <= k || is_head ? MOETRACE_CUDA_PART_ANY : 0;
	part |= lane < k ? MOETRACE_CUDA_PART_ENTRY : 0;
	part |= lane == k || lane == MOETRACE_CUDA_HEAD_LANE ? MOETRACE_CUDA_PART_MARK : 0;
	part |= lane == MOETRACE_CUDA_HEAD_LANE + 2 ? MOETRACE_CUDA_PART_ROWS : 0;
	part |= lane == MOETRACE_CUDA_HEAD_LANE + 3 ? MOETRACE_CUDA_PART_TIMER : 0;
	part |= to.row == 0 && lane == 0 && k >= MOETRACE_CUDA_HEAD_LANE ? MOETRACE_CUDA_PART_HEAD
									 : 0;
	to.part = part;
	asm("" : "+l"(to.at), "+r"(to.part));
}

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
	moetrace_cuda_aim(to);
	asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(to.timer_ns));
	return to;
}

/* Is a pass recorded whose row this is? */
static __device__ __forceinline__ bool moetrace_cuda_is_on(const struct moetrace_cuda_row &to)
{
	return ((static_cast<uint32_t>(to.word) ^ to.packed) & 0x3fffu) == 0;
}

/* The 16 bits of a weight in the format of the session, rounded to nearest, ties to even. */
static __device__ __forceinline__ uint32_t moetrace_cuda_narrow(const struct moetrace_cuda_row &to,
								float weight)
{
	uint32_t half, bfloat;

	/* Conversions of a pair take a cycle, those of one number many. */
	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(half) : "f"(0.0f), "f"(weight));
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bfloat) : "f"(0.0f), "f"(weight));
	return to.packed >> 24 == MOETRACE_WEIGHT_FORMAT_BF16 ? bfloat : half;
}

/* Where the layer's head is, and a row; only if moetrace_cuda_is_on(). */
static __device__ __forceinline__ uint64_t moetrace_cuda_place(const struct moetrace_cuda_row &to)
{
	return (to.word >> 14 & 0x3fffffu) << 8;
}

static __device__ __forceinline__ uint64_t moetrace_cuda_head_at(const struct moetrace_cuda_row &to)
{
	return to.base + moetrace_cuda_place(to);
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

/* By the thread of row 0 that stores the row alone: the layer counts as written, at this time. */
static __device__ __forceinline__ void moetrace_cuda_store_head(const struct moetrace_cuda_row &to,
								uint32_t n_rows)
{
	asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
		     :
		     : "l"(moetrace_cuda_head_at(to)), "r"(static_cast<uint32_t>(to.word >> 36)),
		       "r"(to.indices >> 16), "r"(n_rows), "r"(to.timer_ns)
		     : "memory");
}

/*
 * A row, by the 32 lanes of a warp: lane (%laneid) i < k holds entry i (k is at most 31). One
 * instruction stores all of it, and every lane finds a value, so that nothing branches.
 */
static __device__ __forceinline__ void moetrace_cuda_store_row(const struct moetrace_cuda_row &to,
							       uint32_t n_rows, int32_t id,
							       float weight, uint32_t flags)
{
	uint32_t value, entry, is_any;
	uint64_t at;

	if (!moetrace_cuda_is_on(to))
		return;
	at = to.at + moetrace_cuda_place(to);
	entry = moetrace_cuda_entry(to, id, moetrace_cuda_narrow(to, weight));
	value = to.part & MOETRACE_CUDA_PART_TIMER ? to.timer_ns : to.indices >> 16;
	value = to.part & MOETRACE_CUDA_PART_ROWS ? n_rows : value;
	value = to.part & MOETRACE_CUDA_PART_MARK ? moetrace_cuda_mark(to, flags) : value;
	value = to.part & MOETRACE_CUDA_PART_ENTRY ? entry : value;
	is_any = to.part & MOETRACE_CUDA_PART_ANY;
	asm volatile("{\n\t"
		     ".reg .pred is_any;\n\t"
		     "setp.ne.u32 is_any, %2, 0;\n\t"
		     "@is_any st.global.u32 [%0], %1;\n\t"
		     "}"
		     :
		     : "l"(at), "r"(value), "r"(is_any)
		     : "memory");
	if (to.part & MOETRACE_CUDA_PART_HEAD)
		moetrace_cuda_store_head(to, n_rows);
}

/* A row, by one thread that holds all its entries; @weights NULL: none. */
static __device__ __forceinline__ void
moetrace_cuda_store_row_alone(const struct moetrace_cuda_row &to, uint32_t n_rows,
			      const int32_t *ids, const float *weights, uint32_t flags)
{
	if (!moetrace_cuda_is_on(to))
		return;
	if (to.row == 0)
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
