/* SPDX-License-Identifier: MIT */
/*
 * A matrix product for many rows: y = x w^T for tiles of 128 rows by 128 outputs, x and w of 16-bit
 * floats, sums in fp32. Tiles of x and w pass through four stages of shared memory, filled
 * asynchronously; the 16-byte pieces of a row are exchanged by bits of the row's number, so that
 * the eight rows that a warp reads at once lie in different banks.
 *
 * Of an aligned batch, a tile is a block of one expert; its rows may be gathered by pair. With
 * activation a tile holds 64 gates and the 64 ups that belong to them.
 */
#ifndef MTK_GEMM_TILES_CUH
#define MTK_GEMM_TILES_CUH

#include "kernels/cuda/mma.cuh"

#define TILE_ROWS    128
#define TILE_OUTPUTS 128
#define TILE_DEPTH   32
#define TILE_STAGES  4
#define TILE_THREADS 256
/* Bytes of one operand of a stage. */
#define TILE_BYTES	  (TILE_ROWS * TILE_DEPTH * 2)
#define TILE_SHARED_BYTES (2 * TILE_STAGES * TILE_BYTES)

struct tile_args {
	uint32_t n_in;	      /* a multiple of 8 */
	uint32_t n_out;	      /* outputs; of activated tiles, those after activation */
	uint32_t n_rows;      /* where rows are not aligned to experts */
	uint32_t top_k;	      /* row of a pair: pair / top_k; 0: rows are slots */
	int64_t n_pairs;      /* of an aligned batch; slots from it on are padding */
	const int64_t *pairs; /* [slots]; NULL: rows are not aligned */
	const void *x;
	const void *w; /* [experts][outputs][n_in] */
	size_t expert_elements;
};

static __device__ __forceinline__ uint32_t tile_offset(uint32_t row, uint32_t piece)
{
	return row * (TILE_DEPTH * 2) + ((piece ^ (row >> 1 & 3)) << 4);
}

static __device__ __forceinline__ void tile_copy(uint32_t to, const void *from, bool is_there)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
		     "r"(is_there ? 16 : 0));
}

static __device__ __forceinline__ void tile_load_four(uint32_t *values, uint32_t from)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
		     : "r"(from));
}

/* The row of x that a row of the tile reads; negative: none. */
static __device__ __forceinline__ int64_t tile_row(const struct tile_args *args, int64_t slot)
{
	int64_t pair;

	if (!args->pairs)
		return slot < args->n_rows ? slot : -1;
	pair = args->pairs[slot];
	if (pair >= args->n_pairs)
		return -1;
	return args->top_k > 0 ? pair / args->top_k : slot;
}

/* The row of w that column c of the tile reads; not below the number of rows: none. */
template <bool ACTIVATE>
static __device__ __forceinline__ uint32_t tile_output(const struct tile_args *args, uint32_t c)
{
	uint32_t output;

	if (!ACTIVATE)
		return blockIdx.x * TILE_OUTPUTS + c;
	/* Of the 32 columns of a warp the first half are gates. */
	output = blockIdx.x * (TILE_OUTPUTS / 2) + c / 32 * 16 + c % 16;
	if (output >= args->n_out)
		return UINT32_MAX;
	return c % 32 < 16 ? output : args->n_out + output;
}

/* What a thread copies in every stage: two pieces of x and two of w. */
struct tile_source {
	const char *from[4];
	uint32_t to[4];
	uint32_t k[4];
	bool is_there[4];
};

template <bool ACTIVATE>
static __device__ __forceinline__ struct tile_source tile_source_of(const struct tile_args *args,
								    int32_t expert, uint32_t shared)
{
	const uint32_t n_weights = ACTIVATE ? 2 * args->n_out : args->n_out;
	struct tile_source source;

#pragma unroll
	for (int i = 0; i < 2; i++) {
		const uint32_t row = (threadIdx.x + i * TILE_THREADS) / 4;
		const uint32_t piece = threadIdx.x % 4;
		const int64_t from = tile_row(args, (int64_t)blockIdx.y * TILE_ROWS + row);
		const uint32_t output = tile_output<ACTIVATE>(args, row);

		source.k[i] = source.k[i + 2] = piece * 8;
		source.is_there[i] = from >= 0;
		source.is_there[i + 2] = output < n_weights;
		source.from[i] = (const char *)args->x +
				 2 * ((source.is_there[i] ? from : 0) * args->n_in + piece * 8);
		source.from[i + 2] =
			(const char *)args->w +
			2 * ((size_t)expert * args->expert_elements +
			     (size_t)(source.is_there[i + 2] ? output : 0) * args->n_in +
			     piece * 8);
		source.to[i] = shared + tile_offset(row, piece);
		source.to[i + 2] = source.to[i] + TILE_STAGES * TILE_BYTES;
	}
	return source;
}

static __device__ __forceinline__ void tile_fill(const struct tile_args *args,
						 const struct tile_source *source, uint32_t step)
{
	const uint32_t k = step * TILE_DEPTH;
	const uint32_t stage = step % TILE_STAGES;

	if (k < args->n_in) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const bool is_there = source->is_there[i] && k + source->k[i] < args->n_in;

			tile_copy(source->to[i] + stage * TILE_BYTES,
				  is_there ? source->from[i] + 2 * (size_t)k : source->from[i],
				  is_there);
		}
	}
	asm volatile("cp.async.commit_group;");
}

/* One stage's products of a warp: 64 rows by 32 outputs. */
template <class T>
static __device__ __forceinline__ void tile_multiply(uint32_t shared, uint32_t warp_row,
						     uint32_t warp_output, float sums[4][4][4])
{
	const uint32_t lane = threadIdx.x % 32;

#pragma unroll
	for (int half = 0; half < 2; half++) {
		uint32_t a[4][4], b[2][4];

#pragma unroll
		for (int i = 0; i < 4; i++)
			tile_load_four(a[i], shared + tile_offset(warp_row + i * 16 + lane % 16,
								  half * 2 + lane / 16));
#pragma unroll
		for (int i = 0; i < 2; i++)
			tile_load_four(b[i], shared + TILE_STAGES * TILE_BYTES +
						     tile_offset(warp_output + i * 16 + lane % 8 +
									 lane / 16 * 8,
								 half * 2 + lane / 8 % 2));
#pragma unroll
		for (int i = 0; i < 4; i++)
#pragma unroll
			for (int j = 0; j < 4; j++)
				mma_type<T>::multiply(sums[i][j], a[i][0], a[i][1], a[i][2],
						      a[i][3], b[j / 2][j % 2 * 2],
						      b[j / 2][j % 2 * 2 + 1]);
	}
}

/*
 * The sums of the block's tile. Row i * 16 + lane / 4 (+ 8) of the warp and output j * 8 + lane %
 * 4 * 2 (+ 1) are sums[i][j][0], [1] (and [2], [3]).
 */
template <class T, bool ACTIVATE>
static __device__ __forceinline__ void tile_run(const struct tile_args *args, int32_t expert,
						float sums[4][4][4])
{
	extern __shared__ __align__(128) char tile_memory[];
	const uint32_t shared = (uint32_t)__cvta_generic_to_shared(tile_memory);
	const uint32_t warp = threadIdx.x / 32;
	const uint32_t n_steps = (args->n_in + TILE_DEPTH - 1) / TILE_DEPTH;
	const struct tile_source source = tile_source_of<ACTIVATE>(args, expert, shared);

#pragma unroll
	for (int i = 0; i < 64; i++)
		sums[i / 16][i / 4 % 4][i % 4] = 0.0f;
	for (uint32_t step = 0; step < TILE_STAGES - 1; step++)
		tile_fill(args, &source, step);
	for (uint32_t step = 0; step < n_steps; step++) {
		asm volatile("cp.async.wait_group %0;" ::"n"(TILE_STAGES - 2));
		__syncthreads();
		/* The stage that is filled now was read before the barrier. */
		tile_fill(args, &source, step + TILE_STAGES - 1);
		tile_multiply<T>(shared + step % TILE_STAGES * TILE_BYTES, warp / 4 * 64,
				 warp % 4 * 32, sums);
	}
}

#endif
