/* SPDX-License-Identifier: MIT */
/*
 * For router kernels: store what was selected, in the kernel itself, for some nanoseconds a
 * layer. Compiled by nvcc for sm_80 or newer; nothing is linked. A kernel with a warp a row, that
 * is launched with one block more than its rows need:
 *
 *   __global__ void router(..., struct moetrace_cuda_target target)
 *   {
 *           if (blockIdx.x == gridDim.x - 1) {
 *                   if (threadIdx.x == 0)
 *                           moetrace_cuda_store_layer(target, n_rows);
 *                   return;
 *           }
 *           ... issue the loads of the row's scores ...
 *           struct moetrace_cuda_row to = moetrace_cuda_open(target, row);
 *           ... what uses these scores first ...
 *           moetrace_cuda_arrive(to);
 *           ... select ...
 *           // lane i < k holds the i-th expert of the row and its weight
 *           moetrace_cuda_store_entries(to, id, weight, flags);
 *   }
 *
 * A layer counts as written when both its head, with the GPU's time, and its rows are. The head
 * is stored by a block of its own, which is off the way of all rows; a kernel whose grid cannot be
 * made larger calls moetrace_cuda_store_row() instead of moetrace_cuda_store_entries().
 *
 * moetrace_cuda_open() issues the load of the lane's word and fetches the parameters, and waits
 * for neither. It stands behind the kernel's own loads and before what they are waited for:
 * there all of it is hidden. moetrace_cuda_arrive() finds, when the word has come with the scores,
 * where the row goes; at the kernel's end each step of that would cost what it takes. While
 * nothing is recorded what remains is one predicated store. n_rows is what the kernel was
 * launched for, padding included; rows are the pass's rows. Each row is stored once; a kernel
 * may leave out padding rows. See <moetrace/cuda.h>.
 */
#ifndef MOETRACE_CUDA_DEVICE_CUH
#define MOETRACE_CUDA_DEVICE_CUH

#include <stdint.h>

#include <moetrace/cuda.h>

/* What is known of a row beside its entries. */
#define MOETRACE_CUDA_FLAG_NAN	  1u /* one of its scores was NaN: counted (table diagnostic) */
#define MOETRACE_CUDA_FLAG_TIE	  2u /* what was left out scored what the last entry did */
#define MOETRACE_CUDA_FLAG_MARGIN 4u /* the margin is known, and whether the row ties */

/* A row that may be stored, in registers. */
struct moetrace_cuda_row {
	uint64_t word; /* the lane's: where the pass's rows go, or nowhere */
	uint64_t base; /* address of the layer's head at place 0 */
	uint64_t at;   /* where the thread of a warp stores; before it has arrived: at place 0 */
	uint32_t row;
	uint32_t packed;  /* tag and k of the target */
	uint32_t indices; /* n_ids and layer_index of the target */
	uint32_t tag;	  /* what the word must have for the thread of a warp to store */
	bool is_entry;	  /* it stores an entry, else the mark */
};

static __device__ __forceinline__ uint32_t moetrace_cuda_k(const struct moetrace_cuda_row &to)
{
	return to.packed >> 16 & 0xffu;
}

/*
 * The load must not hold up what follows it. So it is predicated, since a branch around it would
 * wait at its end, and its address differs between lanes as far as the compiler can tell: a value
 * that is known to be the same in all lanes would be moved to a uniform register at once, which
 * waits for it. 0: no target has this tag. The mask of a lane is never 0. The word changes between
 * kernels alone, so that a cached load is right; one that is not takes longer.
 */
static __device__ __forceinline__ uint64_t moetrace_cuda_load_word(uint64_t address)
{
	uint64_t word;

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
		     "@is_there ld.global.u64 %0, [offset];\n\t"
		     "}"
		     : "=&l"(word)
		     : "l"(address));
	return word;
}

static __device__ __forceinline__ uint32_t moetrace_cuda_timer(void)
{
	uint32_t timer_ns;

	asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(timer_ns));
	return timer_ns;
}

/* The values are pinned here, since reading parameters only at the kernel's end can miss the
   cache of constants there. */
static __device__ __forceinline__ struct moetrace_cuda_row
moetrace_cuda_open(const struct moetrace_cuda_target &target, uint32_t row)
{
	struct moetrace_cuda_row to;
	uint32_t lane;

	to.word = moetrace_cuda_load_word(target.word);
	to.base = target.base;
	/* Without a target, or past its rows, the tag is one that no word has. */
	to.packed = target.word && row < target.n_rows ? target.packed : 0x3fffu;
	to.indices = target.indices;
	to.row = row;
	asm("mov.u32 %0, %%laneid;" : "=r"(lane));
	to.at = to.base + 16 + (static_cast<uint64_t>(row) * (moetrace_cuda_k(to) + 1) + lane) * 8;
	to.tag = lane <= moetrace_cuda_k(to) ? to.packed & 0x3fffu : 0x3fffu;
	to.is_entry = lane < moetrace_cuda_k(to);
	asm volatile("" : "+l"(to.at), "+r"(to.tag));
	return to;
}

/* Where in the ring the pass is, of bytes. */
static __device__ __forceinline__ uint64_t moetrace_cuda_place(uint64_t word)
{
	return (word >> 14 & 0x3fffffu) << 8;
}

/* Waits for the lane's word: once, and before moetrace_cuda_store_entries() or _store_row(). */
static __device__ __forceinline__ void moetrace_cuda_arrive(struct moetrace_cuda_row &to)
{
	to.at += moetrace_cuda_place(to.word);
	asm volatile("" : "+l"(to.at));
}

/* Is a pass recorded whose row this is? */
static __device__ __forceinline__ bool moetrace_cuda_is_on(const struct moetrace_cuda_row &to)
{
	return ((static_cast<uint32_t>(to.word) ^ to.packed) & 0x3fffu) == 0;
}

/* Where the layer's head is, and a row; only if moetrace_cuda_is_on(). */
static __device__ __forceinline__ uint64_t moetrace_cuda_head_at(const struct moetrace_cuda_row &to)
{
	return to.base + moetrace_cuda_place(to.word);
}

static __device__ __forceinline__ uint64_t moetrace_cuda_row_at(const struct moetrace_cuda_row &to)
{
	return moetrace_cuda_head_at(to) + 16 +
	       static_cast<uint64_t>(to.row) * (8 * (moetrace_cuda_k(to) + 1));
}

/* The first word of a row's last pair: it counts as written. */
static __device__ __forceinline__ uint32_t moetrace_cuda_mark(const struct moetrace_cuda_row &to,
							      uint32_t flags)
{
	return static_cast<uint32_t>(to.word >> 36) | flags << 28;
}

/* Pair i of a row: an entry as id and bits of the weight; or the mark and bits of the margin. */
static __device__ __forceinline__ void moetrace_cuda_put(uint64_t row_at, uint32_t i,
							 uint32_t first, uint32_t second)
{
	asm volatile("st.global.v2.u32 [%0], {%1, %2};"
		     :
		     : "l"(row_at + 8 * i), "r"(first), "r"(second)
		     : "memory");
}

static __device__ __forceinline__ void moetrace_cuda_put_head(uint64_t head_at, uint64_t word,
							      uint32_t layer_index, uint32_t n_rows,
							      uint32_t timer_ns)
{
	asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
		     :
		     : "l"(head_at), "r"(static_cast<uint32_t>(word >> 36)), "r"(layer_index),
		       "r"(n_rows), "r"(timer_ns)
		     : "memory");
}

/* By one thread a launch: the layer's head, with the time. */
static __device__ __forceinline__ void
moetrace_cuda_store_layer(const struct moetrace_cuda_target &target, uint32_t n_rows)
{
	const uint32_t timer_ns = moetrace_cuda_timer();
	const uint64_t word = moetrace_cuda_load_word(target.word);
	/* Without a target, a tag that no word has. */
	const uint32_t packed = target.word ? target.packed : 0x3fffu;

	if (((static_cast<uint32_t>(word) ^ packed) & 0x3fffu) == 0)
		moetrace_cuda_put_head(target.base + moetrace_cuda_place(word), word,
				       target.indices >> 16, n_rows, timer_ns);
}

/* The same by the thread of row 0 that stores the row alone. */
static __device__ __forceinline__ void moetrace_cuda_store_head(const struct moetrace_cuda_row &to,
								uint32_t n_rows)
{
	moetrace_cuda_put_head(moetrace_cuda_head_at(to), to.word, to.indices >> 16, n_rows,
			       moetrace_cuda_timer());
}

/*
 * A row, by the 32 lanes of a warp: lane (%laneid) i < k holds entry i (k is at most 31); an id
 * that is negative is no expert. One instruction stores all of it, and every lane finds a value, so
 * that nothing branches. Weights are narrowed on the host: here that would cost what the rest does.
 * @margin is that of moetrace_selection.margins, and counts with MOETRACE_CUDA_FLAG_MARGIN alone.
 */
static __device__ __forceinline__ void
moetrace_cuda_store_entries_margin(const struct moetrace_cuda_row &to, int32_t id, float weight,
				   uint32_t flags, float margin)
{
	const uint32_t first =
		to.is_entry ? static_cast<uint32_t>(id) : moetrace_cuda_mark(to, flags);
	const float second = to.is_entry ? weight : margin;

	asm volatile("{\n\t"
		     ".reg .pred is_on;\n\t"
		     "setp.eq.u32 is_on, %3, 0;\n\t"
		     "@is_on st.global.v2.u32 [%0], {%1, %2};\n\t"
		     "}"
		     :
		     : "l"(to.at), "r"(first), "r"(__float_as_uint(second)),
		       "r"((static_cast<uint32_t>(to.word) ^ to.tag) & 0x3fffu)
		     : "memory");
}

static __device__ __forceinline__ void
moetrace_cuda_store_entries(const struct moetrace_cuda_row &to, int32_t id, float weight,
			    uint32_t flags)
{
	moetrace_cuda_store_entries_margin(to, id, weight, flags, 0.0f);
}

/* The row, and the head with row 0, for kernels without a block for it. */
static __device__ __forceinline__ void moetrace_cuda_store_row(const struct moetrace_cuda_row &to,
							       uint32_t n_rows, int32_t id,
							       float weight, uint32_t flags)
{
	moetrace_cuda_store_entries(to, id, weight, flags);
	if (to.row == 0 && !to.is_entry && moetrace_cuda_is_on(to))
		moetrace_cuda_store_head(to, n_rows);
}

/* A row, by one thread that holds all its entries; @weights NULL: none. Stores the head, too. */
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
		moetrace_cuda_put(at, i, static_cast<uint32_t>(ids[i]),
				  weights ? __float_as_uint(weights[i]) : 0u);
	moetrace_cuda_put(at, moetrace_cuda_k(to), moetrace_cuda_mark(to, flags), 0u);
}

#endif
