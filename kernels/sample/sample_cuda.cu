/* SPDX-License-Identifier: MIT */
/*
 * A warp a row. Numbers come before NaN, larger ones before smaller, and lower ids before higher:
 * a total order, so that it does not matter how the row is cut.
 */
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/status.cuh"
#include "kernels/sample/sample_cuda.h"

static __device__ __forceinline__ bool is_better(float a, uint32_t a_id, float b, uint32_t b_id)
{
	if (isnan(a) || isnan(b))
		return isnan(a) == isnan(b) ? a_id < b_id : isnan(b);
	return a > b || (a == b && a_id < b_id);
}

__global__ void __launch_bounds__(32)
	greedy_kernel(const float *logits, uint32_t n_vocab, int32_t *token_ids)
{
	const float *row = logits + (size_t)blockIdx.x * n_vocab;
	float best = __uint_as_float(0x7fffffffu);
	uint32_t best_id = UINT32_MAX;

	for (uint32_t i = threadIdx.x; i < n_vocab; i += 32)
		if (is_better(row[i], i, best, best_id)) {
			best = row[i];
			best_id = i;
		}
	for (int step = 16; step > 0; step /= 2) {
		const float other = __shfl_xor_sync(ELEMENT_ALL_LANES, best, step);
		const uint32_t other_id = __shfl_xor_sync(ELEMENT_ALL_LANES, best_id, step);

		if (is_better(other, other_id, best, best_id)) {
			best = other;
			best_id = other_id;
		}
	}
	if (threadIdx.x == 0)
		token_ids[blockIdx.x] = (int32_t)best_id;
}

int mtk_sample_greedy_cuda(const float *logits, uint32_t n_rows, uint32_t n_vocab,
			   int32_t *ret_token_ids, void *stream, struct mtk_error *error)
{
	if (n_vocab == 0)
		return mtk_error_set(error, MOETRACE_E_INVALID, "sampling: n_vocab is 0");
	if (n_rows == 0)
		return MOETRACE_OK;
	greedy_kernel<<<n_rows, 32, 0, (cudaStream_t)stream>>>(logits, n_vocab, ret_token_ids);
	return mtk_cuda_launched(error, "sampling");
}
