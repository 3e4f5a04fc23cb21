/* SPDX-License-Identifier: MIT */
/* A block a row, in pieces of 16 bytes where rows and pointers allow it, of one byte otherwise. */
#include "kernels/cuda/status.cuh"
#include "kernels/permute/permute_cuda.h"

#define N_THREADS  128
#define MAX_BLOCKS (1 << 20)

template <class T> static __device__ void copy_row(T *to, const T *from, size_t n)
{
	for (size_t i = threadIdx.x; i < n; i += N_THREADS)
		to[i] = from ? from[i] : T{};
}

template <class T>
__global__ void __launch_bounds__(N_THREADS)
	permute_kernel(const __grid_constant__ struct mtk_permute permute, int64_t n_slots)
{
	const size_t n = permute.row_bytes / sizeof(T);

	for (int64_t slot = blockIdx.x; slot < n_slots; slot += gridDim.x) {
		const int64_t pair = permute.sorted_pairs[slot];
		const T *rows = (const T *)permute.rows;

		copy_row((T *)permute.permuted + slot * n,
			 pair < permute.n_pairs ? rows + pair / permute.top_k * n : NULL, n);
	}
}

template <class T>
__global__ void __launch_bounds__(N_THREADS)
	unpermute_kernel(const __grid_constant__ struct mtk_unpermute unpermute, int64_t n_pairs)
{
	const size_t n = unpermute.row_bytes / sizeof(T);

	for (int64_t pair = blockIdx.x; pair < n_pairs; pair += gridDim.x) {
		const int64_t slot = unpermute.pair_slots[pair];
		const T *permuted = (const T *)unpermute.permuted;

		copy_row((T *)unpermute.pairs + pair * n, slot >= 0 ? permuted + slot * n : NULL,
			 n);
	}
}

static bool is_vector(const void *a, const void *b, size_t row_bytes)
{
	return ((uintptr_t)a | (uintptr_t)b | row_bytes) % sizeof(uint4) == 0;
}

static uint32_t count_blocks(int64_t n)
{
	return n < MAX_BLOCKS ? (uint32_t)n : MAX_BLOCKS;
}

int mtk_permute_cuda(const struct mtk_permute *permute, int64_t n_slots, void *stream,
		     struct mtk_error *error)
{
	const uint32_t n_blocks = count_blocks(n_slots);
	const cudaStream_t on = (cudaStream_t)stream;

	if (n_slots <= 0)
		return MOETRACE_OK;
	if (is_vector(permute->rows, permute->permuted, permute->row_bytes))
		permute_kernel<uint4><<<n_blocks, N_THREADS, 0, on>>>(*permute, n_slots);
	else
		permute_kernel<unsigned char><<<n_blocks, N_THREADS, 0, on>>>(*permute, n_slots);
	return mtk_cuda_launched(error, "permutation");
}

int mtk_unpermute_cuda(const struct mtk_unpermute *unpermute, int64_t n_pairs, void *stream,
		       struct mtk_error *error)
{
	const uint32_t n_blocks = count_blocks(n_pairs);
	const cudaStream_t on = (cudaStream_t)stream;

	if (n_pairs <= 0)
		return MOETRACE_OK;
	if (is_vector(unpermute->permuted, unpermute->pairs, unpermute->row_bytes))
		unpermute_kernel<uint4><<<n_blocks, N_THREADS, 0, on>>>(*unpermute, n_pairs);
	else
		unpermute_kernel<unsigned char>
			<<<n_blocks, N_THREADS, 0, on>>>(*unpermute, n_pairs);
	return mtk_cuda_launched(error, "permutation");
}
