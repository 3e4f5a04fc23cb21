/* SPDX-License-Identifier: MIT */
/*
 * Memory of the fake driver, which is memory of the process, and copies in stream order.
 */
#include "tests/cuda/fake/fake_internal.h"

#include <stdlib.h>
#include <string.h>

/*
 * In front of what is handed out, which is aligned to 256 bytes like device memory. All of it is on
 * a list: what a program leaves to the driver is no leak of the process.
 */
struct block {
	struct block *next, **link;
	size_t n_bytes;
	bool is_event, is_host;
};

static struct block *blocks;

void *fake_memory_new(size_t n_bytes, bool is_event)
{
	struct block *block = NULL;

	if (posix_memalign((void **)&block, 256, n_bytes + 256))
		return NULL;
	block->n_bytes = n_bytes;
	block->is_event = is_event;
	block->is_host = false;
	pthread_mutex_lock(&fake_lock);
	block->next = blocks;
	block->link = &blocks;
	if (blocks)
		blocks->link = &block->next;
	blocks = block;
	fake_n_allocated_bytes += is_event ? 0 : n_bytes;
	pthread_mutex_unlock(&fake_lock);
	return (uint8_t *)block + 256;
}

void fake_memory_free(void *memory)
{
	struct block *block = (struct block *)(void *)((uint8_t *)memory - 256);

	pthread_mutex_lock(&fake_lock);
	*block->link = block->next;
	if (block->next)
		block->next->link = block->link;
	fake_n_allocated_bytes -= block->is_event ? 0 : block->n_bytes;
	pthread_mutex_unlock(&fake_lock);
	free(block);
}

void fake_memory_free_host(void)
{
	struct block *block;

	do {
		pthread_mutex_lock(&fake_lock);
		block = blocks;
		while (block && !block->is_host)
			block = block->next;
		pthread_mutex_unlock(&fake_lock);
		if (block)
			fake_memory_free((uint8_t *)block + 256);
	} while (block);
}

API int cuMemAlloc_v2(uint64_t *address, size_t n_bytes);
API int cuMemAlloc_v2(uint64_t *address, size_t n_bytes)
{
	void *memory;

	CALLED("cuMemAlloc");
	if (fake_is_forbidden())
		return 900;
	memory = fake_memory_new(n_bytes, false);
	*address = (uint64_t)(uintptr_t)memory;
	return memory ? 0 : 2;
}

API int cuMemFree_v2(uint64_t address);
API int cuMemFree_v2(uint64_t address)
{
	CALLED("cuMemFree");
	fake_memory_free((void *)(uintptr_t)address);
	return 0;
}

API int cuMemHostAlloc(void **memory, size_t n_bytes, unsigned int flags);
API int cuMemHostAlloc(void **memory, size_t n_bytes, unsigned int flags)
{
	(void)flags;
	CALLED("cuMemHostAlloc");
	if (fake_is_forbidden())
		return 900;
	*memory = fake_memory_new(n_bytes, false);
	if (*memory)
		((struct block *)(void *)((uint8_t *)*memory - 256))->is_host = true;
	return *memory ? 0 : 2;
}

API int cuMemFreeHost(void *memory);
API int cuMemFreeHost(void *memory)
{
	CALLED("cuMemFreeHost");
	fake_memory_free(memory);
	return 0;
}

API int cuMemsetD8Async(uint64_t address, unsigned char value, size_t n_bytes, void *stream);
API int cuMemsetD8Async(uint64_t address, unsigned char value, size_t n_bytes, void *stream)
{
	struct work *work;

	CALLED("cuMemsetD8Async");
	work = fake_work_new(KIND_SET, 0);
	work->to = address;
	work->value = value;
	work->n_bytes = n_bytes;
	return fake_push(stream, work);
}

static int copy(uint64_t to, uint64_t from, size_t n_bytes, void *stream)
{
	struct work *work = fake_work_new(KIND_COPY, 0);

	work->to = to;
	work->from = from;
	work->n_bytes = n_bytes;
	return fake_push(stream, work);
}

API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n_bytes, void *stream);
API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n_bytes, void *stream)
{
	CALLED("cuMemcpyDtoHAsync");
	return copy((uint64_t)(uintptr_t)to, from, n_bytes, stream);
}

API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n_bytes, void *stream);
API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n_bytes, void *stream)
{
	CALLED("cuMemcpyDtoDAsync");
	return copy(to, from, n_bytes, stream);
}

API int cuMemcpy2DAsync_v2(const struct mt_cu_copy_2d *given, void *stream);
API int cuMemcpy2DAsync_v2(const struct mt_cu_copy_2d *given, void *stream)
{
	struct work *work;

	CALLED("cuMemcpy2DAsync");
	work = fake_work_new(KIND_COPY_2D, 0);
	work->copy = *given;
	return fake_push(stream, work);
}
