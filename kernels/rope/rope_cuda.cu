/* SPDX-License-Identifier: MIT */
/* A warp a head of a row. */
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/status.cuh"
#include "kernels/rope/rope_cuda.h"

#define N_THREADS 128
#define N_WARPS	  (N_THREADS / 32)

struct turned {
	float low;
	float high;
};

/* Elements i and i + head_dim / 2, normed and turned. */
static __device__ __forceinline__ struct turned turn(const struct mtk_heads_cuda *heads,
						     const float *head, const float *norm,
						     float scale, size_t position, uint32_t i)
{
	const uint32_t half = heads->head_dim / 2;
	const float c = heads->cosines[position * half + i], s = heads->sines[position * half + i];
	const float a = head[i] * scale * norm[i];
	const float b = head[i + half] * scale * norm[i + half];

	return {a * c - b * s, b * c + a * s};
}

template <class K>
static __device__ __forceinline__ void query_or_key(const struct mtk_heads_cuda *heads, size_t row,
						    bool is_key, float *head, K *cached)
{
	const float *norm = is_key ? heads->key_norm : heads->query_norm;
	const uint32_t half = heads->head_dim / 2;
	float sum = 0.0f;

	for (uint32_t i = threadIdx.x % 32; i < heads->head_dim; i += 32)
		sum = fmaf(head[i], head[i], sum);
	sum = element_sum(sum);
	const float scale = 1.0f / sqrtf(sum / (float)heads->head_dim + heads->epsilon);

	for (uint32_t i = threadIdx.x % 32; i < half; i += 32) {
		const struct turned turned =
			turn(heads, head, norm, scale, (size_t)heads->positions[row], i);

		if (is_key) {
			element_store(cached + i, turned.low);
			element_store(cached + i + half, turned.high);
		} else {
			head[i] = turned.low;
			head[i + half] = turned.high;
		}
	}
}

template <class K>
__global__ void __launch_bounds__(N_THREADS)
	heads_kernel(const __grid_constant__ struct mtk_heads_cuda heads)
{
	const uint32_t n = heads.n_heads + 2 * heads.n_kv_heads;
	const uint32_t h = blockIdx.y * N_WARPS + threadIdx.x / 32;
	const size_t row = blockIdx.x;
	float *head = heads.qkv + (row * n + h) * heads.head_dim;

	if (h >= n || (heads.n_valid_rows && row >= *heads.n_valid_rows))
		return;
	if (h < heads.n_heads) {
		query_or_key<K>(&heads, row, false, head, NULL);
		return;
	}
	const uint32_t kv_head = (h - heads.n_heads) % heads.n_kv_heads;
	const size_t place = (((size_t)heads.slots[row] * heads.n_kv_heads + kv_head) *
				      heads.n_context +
			      (size_t)heads.positions[row]) *
			     heads.head_dim;

	if (h < heads.n_heads + heads.n_kv_heads) {
		query_or_key<K>(&heads, row, true, head, (K *)heads.keys + place);
		return;
	}
	for (uint32_t i = threadIdx.x % 32; i < heads.head_dim; i += 32)
		element_store((K *)heads.values + place + i, head[i]);
}

int mtk_heads_cuda(const struct mtk_heads_cuda *heads, void *stream, struct mtk_error *error)
{
	const uint32_t n = heads->n_heads + 2 * heads->n_kv_heads;
	const dim3 grid(heads->n_rows, (n + N_WARPS - 1) / N_WARPS);
	cudaStream_t on = (cudaStream_t)stream;

	if (heads->n_rows == 0)
		return MOETRACE_OK;
	if (heads->kv_dtype == MTK_DTYPE_F32)
		heads_kernel<float><<<grid, N_THREADS, 0, on>>>(*heads);
	else if (heads->kv_dtype == MTK_DTYPE_F16)
		heads_kernel<__half><<<grid, N_THREADS, 0, on>>>(*heads);
	else
		heads_kernel<__nv_bfloat16><<<grid, N_THREADS, 0, on>>>(*heads);
	return mtk_cuda_launched(error, "heads");
}
