/* SPDX-License-Identifier: MIT */
/* A block a row. */
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/status.cuh"
#include "kernels/embed/embed_cuda.h"

#define N_THREADS 256

template <class T>
__global__ void __launch_bounds__(N_THREADS)
	embed_kernel(const __grid_constant__ struct mtk_embed_cuda embed)
{
	const size_t row = blockIdx.x;
	const int32_t token = embed.token_ids[row];
	const bool is_known = token >= 0 && (uint32_t)token < embed.n_vocab;
	const T *from = (const T *)embed.weights + (is_known ? (size_t)token : 0) * embed.n_hidden;

	for (uint32_t i = threadIdx.x; i < embed.n_hidden; i += N_THREADS)
		embed.hidden[row * embed.n_hidden + i] = is_known ? element_widen(from[i]) : 0.0f;
}

int mtk_embed_cuda(const struct mtk_embed_cuda *embed, void *stream, struct mtk_error *error)
{
	cudaStream_t on = (cudaStream_t)stream;

	if (embed->n_rows == 0)
		return MOETRACE_OK;
	if (embed->dtype == MTK_DTYPE_F32)
		embed_kernel<float><<<embed->n_rows, N_THREADS, 0, on>>>(*embed);
	else if (embed->dtype == MTK_DTYPE_F16)
		embed_kernel<__half><<<embed->n_rows, N_THREADS, 0, on>>>(*embed);
	else
		embed_kernel<__nv_bfloat16><<<embed->n_rows, N_THREADS, 0, on>>>(*embed);
	return mtk_cuda_launched(error, "embedding");
}
