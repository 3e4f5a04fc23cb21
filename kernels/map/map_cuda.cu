/* SPDX-License-Identifier: MIT */
/* A thread an id. The tables lie in one allocation, the widest first. */
#include <stdlib.h>

#include "kernels/cuda/device.h"
#include "kernels/cuda/status.cuh"
#include "kernels/map/map_cuda.h"
#include "kernels/map/map_tables.h"

#define N_THREADS 256

struct mtk_map_cuda {
	struct mtk_map map; /* with pointers to device memory */
	void *memory;
};

static __device__ uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static __device__ int32_t choose(const struct mtk_map *map, uint32_t logical, uint64_t row,
				 uint32_t slot)
{
	uint32_t first, i;
	uint64_t hash;

	if (map->kind == MTK_MAP_STATIC)
		return map->chosen[logical];
	first = map->first[logical];
	if (map->kind == MTK_MAP_DYNAMIC)
		return map->replicas[first + row % (map->first[logical + 1] - first)];
	/* The last limit is 2^63, above every value. */
	hash = mix(mix(map->seed_hash ^ row) ^ slot) >> 1;
	for (i = first; hash >= map->limits[i];)
		i++;
	return map->replicas[i];
}

__global__ void __launch_bounds__(N_THREADS)
	map_kernel(const __grid_constant__ struct mtk_map map,
		   const __grid_constant__ struct mtk_map_rows rows, uint64_t n_ids,
		   unsigned long long *n_invalid)
{
	const uint64_t i = blockIdx.x * (uint64_t)N_THREADS + threadIdx.x;
	uint64_t row;
	int32_t id;
	bool is_known;

	if (i >= n_ids)
		return;
	row = i / rows.top_k;
	id = rows.ids[i];
	is_known = id >= 0 && (uint32_t)id < map.n_logical;
	if (!is_known && id != -1 && n_invalid)
		atomicAdd(n_invalid, 1ull);
	rows.physical_ids[i] =
		is_known ? choose(&map, (uint32_t)id,
				  rows.numbers ? rows.numbers[row] : rows.first_number + row,
				  (uint32_t)(i % rows.top_k))
			 : -1;
}

/* Copies one table to its place, which moves on. */
static int place(unsigned char **at, const void *table, size_t n_bytes, void *ret_place,
		 struct mtk_error *error)
{
	int status = mtk_cuda_upload(*at, table, n_bytes, NULL, error);

	*(void **)ret_place = *at;
	*at += n_bytes;
	return status;
}

static int place_all(struct mtk_map_cuda *to, const struct mtk_map *map, struct mtk_error *error)
{
	unsigned char *at = (unsigned char *)to->memory;
	int status = place(&at, map->limits, map->n_physical * sizeof(*map->limits),
			   &to->map.limits, error);

	if (!status)
		status = place(&at, map->first, (map->n_logical + (size_t)1) * sizeof(*map->first),
			       &to->map.first, error);
	if (!status)
		status = place(&at, map->replicas, map->n_physical * sizeof(*map->replicas),
			       &to->map.replicas, error);
	if (!status)
		status = place(&at, map->chosen, map->n_logical * sizeof(*map->chosen),
			       &to->map.chosen, error);
	if (!status)
		status = mtk_cuda_stream_wait(NULL, error);
	return status;
}

int mtk_map_cuda_create(const struct mtk_map *map, struct mtk_error *error,
			struct mtk_map_cuda **ret_map)
{
	const size_t n_bytes =
		map->n_physical * (sizeof(*map->limits) + sizeof(*map->replicas)) +
		(map->n_logical + (size_t)1) * (sizeof(*map->first) + sizeof(*map->chosen));
	struct mtk_map_cuda *to = (struct mtk_map_cuda *)calloc(1, sizeof(*to));
	int status;

	if (!to)
		return mtk_error_set(error, MOETRACE_E_NOMEM, "map: out of memory");
	to->map = *map;
	status = mtk_cuda_alloc(n_bytes, error, &to->memory);
	if (!status)
		status = place_all(to, map, error);
	if (status) {
		mtk_map_cuda_destroy(to);
		return status;
	}
	*ret_map = to;
	return MOETRACE_OK;
}

void mtk_map_cuda_destroy(struct mtk_map_cuda *map)
{
	if (!map)
		return;
	mtk_cuda_free(map->memory);
	free(map);
}

int mtk_map_cuda_run(const struct mtk_map_cuda *map, const struct mtk_map_rows *rows,
		     uint32_t n_rows, uint64_t *n_invalid, void *stream, struct mtk_error *error)
{
	const uint64_t n_ids = (uint64_t)n_rows * rows->top_k;
	const uint64_t n_blocks = (n_ids + N_THREADS - 1) / N_THREADS;

	if (n_ids == 0)
		return MOETRACE_OK;
	if (n_blocks > INT32_MAX)
		return mtk_error_set(error, MOETRACE_E_LIMIT,
				     "map: n_rows: %u rows with top_k %u are too many for a launch",
				     n_rows, rows->top_k);
	map_kernel<<<(uint32_t)n_blocks, N_THREADS, 0, (cudaStream_t)stream>>>(
		map->map, *rows, n_ids, (unsigned long long *)n_invalid);
	return mtk_cuda_launched(error, "mapping");
}
