/* SPDX-License-Identifier: MIT */
/*
 * The pool is an anonymous file, mapped several times in a row into one reserved range of
 * addresses. Nobody writes to it once it is filled.
 */
#define _GNU_SOURCE
#include "kernels/engine/expert_pool.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <moetrace/status.h>

#define CACHE_LINE 64u

struct mtk_expert_pool {
	unsigned char *memory;
	size_t n_bytes;	       /* of one copy */
	size_t reserved_bytes; /* of all */
	uint64_t seed;
};

uint64_t mtk_synthetic_hash(uint64_t seed, uint64_t number)
{
	uint64_t x = seed + (number + 1) * 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

void mtk_synthetic_fill(uint64_t seed, size_t n, int top_exponent, uint16_t *ret_values)
{
	/* Sign and fraction as they are drawn; two more bits are added to the lowest exponent. */
	const uint64_t lowest = (uint64_t)(127 + top_exponent - 3) << 7;
	const uint64_t exponents = lowest * 0x0001000100010001u;

	for (size_t i = 0; i < n / 4; i++) {
		const uint64_t drawn = mtk_synthetic_hash(seed, i);
		const uint64_t values =
			(drawn & 0x807f807f807f807fu) + exponents + (drawn & 0x0180018001800180u);

		for (int j = 0; j < 4; j++)
			ret_values[4 * i + (size_t)j] = (uint16_t)(values >> 16 * j);
	}
}

size_t mtk_expert_pool_size(size_t n_bytes)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t n_pages = n_bytes / page;

	if (n_bytes < MTK_EXPERT_POOL_MIN_BYTES || n_bytes > PTRDIFF_MAX || n_pages == 0)
		return 0;
	return (n_pages - (n_pages % 2 == 0)) * page;
}

/* Map the file behind itself until the range is full. */
static int map_copies(const struct mtk_expert_pool *pool, int file)
{
	const int protection = PROT_READ | PROT_WRITE;

	for (size_t at = 0; at < pool->reserved_bytes; at += pool->n_bytes)
		if (mmap(pool->memory + at, pool->n_bytes, protection, MAP_SHARED | MAP_FIXED, file,
			 0) == MAP_FAILED)
			return MOETRACE_E_NOMEM;
	return MOETRACE_OK;
}

static int map_pool(struct mtk_expert_pool *pool)
{
	int file = memfd_create("moetrace expert pool", MFD_CLOEXEC);
	int status = MOETRACE_E_NOMEM;
	void *range;

	if (file < 0)
		return status;
	/* Room is taken now: a page that is missing later would be a signal. */
	if (posix_fallocate(file, 0, (off_t)pool->n_bytes) != 0)
		goto end;
	range = mmap(NULL, pool->reserved_bytes, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (range == MAP_FAILED)
		goto end;
	pool->memory = range;
	status = map_copies(pool, file);
end:
	close(file);
	return status;
}

int mtk_expert_pool_create(size_t n_bytes, size_t max_window_bytes, uint64_t seed, int top_exponent,
			   struct mtk_expert_pool **ret_pool)
{
	struct mtk_expert_pool *pool;
	size_t n_copies;
	int status;

	n_bytes = mtk_expert_pool_size(n_bytes);
	if (n_bytes == 0 || max_window_bytes > PTRDIFF_MAX - 2 * n_bytes)
		return MOETRACE_E_INVALID;
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return MOETRACE_E_NOMEM;
	/* A window begins in the first copy. */
	n_copies = (max_window_bytes + n_bytes - 1) / n_bytes + 1;
	pool->n_bytes = n_bytes;
	pool->reserved_bytes = n_copies * n_bytes;
	pool->seed = seed;
	status = map_pool(pool);
	if (status) {
		mtk_expert_pool_destroy(pool);
		return status;
	}
	mtk_synthetic_fill(seed, n_bytes / sizeof(uint16_t), top_exponent, (void *)pool->memory);
	*ret_pool = pool;
	return MOETRACE_OK;
}

void mtk_expert_pool_destroy(struct mtk_expert_pool *pool)
{
	if (!pool)
		return;
	if (pool->memory)
		munmap(pool->memory, pool->reserved_bytes);
	free(pool);
}

void *mtk_expert_pool_window(const struct mtk_expert_pool *pool, uint64_t number)
{
	const size_t n_lines = pool->n_bytes / CACHE_LINE;

	return pool->memory + mtk_synthetic_hash(pool->seed, number) % n_lines * CACHE_LINE;
}
