/* SPDX-License-Identifier: MIT */
/*
 * The memory of an attached device: the ring on the device, the lanes' words, and the ring on the host
 * that the copies go to.
 *
 * Invariant: the host's ring outlives the context. A program may destroy that, or the driver may on
 * its way out, while the drain thread and whoever begins a pass look at the ring; so it is memory of
 * the process, which the device is allowed to use. Where the driver refuses that, it is the driver's,
 * and goes with the context.
 */
#include <string.h>
#include <sys/mman.h>

#include "libtrace/cuda/capture.h"

#define WORDS_BYTES (MOETRACE_CUDA_MAX_LANES * MT_CUDA_WORD_BYTES)
#define POISON 0xff

/* What copies and kernels write to: at the address that it has on the host. */
static int allow(const struct mt_cu *cu, void *memory, size_t n_bytes)
{
	uint64_t address = 0;

	if (cu->host_register(memory, n_bytes, MT_CU_MEMHOSTREGISTER_PORTABLE))
		return -1;
	if (!cu->host_address(&address, memory, 0) && address == (uint64_t)(uintptr_t)memory)
		return 0;
	(void)cu->host_unregister(memory);
	return -1;
}

/* NULL: there is none, or the device may not use it. */
static void *own_memory(const struct mt_cu *cu, size_t n_bytes)
{
	void *memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);

	if (memory == MAP_FAILED)
		return NULL;
	/* After a fork the parent's pages must stay those that the device knows. */
	if (!madvise(memory, n_bytes, MADV_DONTFORK) && !allow(cu, memory, n_bytes))
		return memory;
	(void)munmap(memory, n_bytes);
	return NULL;
}

static int make_host_ring(struct moetrace_cuda *cuda)
{
	void *memory = own_memory(cuda->cu, cuda->ring_bytes);
	int result = 0;

	cuda->is_own_memory = memory != NULL;
	if (!memory)
		result = cuda->cu->host_alloc(&memory, cuda->ring_bytes,
					      MT_CU_MEMHOSTALLOC_PORTABLE);
	if (result)
		return result;
	memset(memory, 0, cuda->ring_bytes);
	mt_ring_open(&cuda->ring, memory, cuda->ring_bytes);
	return 0;
}

/* What no kernel wrote has no pass's stamp. */
static int set_device_memory(struct moetrace_cuda *cuda, void *stream, const char **ret_call)
{
	const struct mt_cu *cu = cuda->cu;
	int result = cu->memset_async(cuda->device_ring, POISON, cuda->ring_bytes, stream);

	*ret_call = "cuMemsetD8Async";
	if (!result)
		result = cu->memset_async(cuda->words, 0, WORDS_BYTES, stream);
	if (result)
		return result;
	*ret_call = "cuStreamSynchronize";
	return cu->stream_wait(stream);
}

int mt_cuda_memory_make(struct moetrace_cuda *cuda, void *stream, const char **ret_call,
			int *ret_result)
{
	int result = cuda->cu->mem_alloc(&cuda->device_ring, cuda->ring_bytes);

	*ret_call = "cuMemAlloc";
	if (!result)
		result = cuda->cu->mem_alloc(&cuda->words, WORDS_BYTES);
	if (!result) {
		*ret_call = "cuMemHostAlloc";
		result = make_host_ring(cuda);
	}
	*ret_result = result;
	if (result)
		return MOETRACE_E_NOMEM;
	*ret_result = result = set_device_memory(cuda, stream, ret_call);
	return result ? MOETRACE_E_IO : MOETRACE_OK;
}

void mt_cuda_memory_free(struct moetrace_cuda *cuda)
{
	const struct mt_cu *cu = cuda->cu;

	if (cuda->module)
		(void)cu->module_unload(cuda->module);
	if (cuda->device_ring)
		(void)cu->mem_free(cuda->device_ring);
	if (!cuda->ring.data)
		return;
	if (!cuda->is_own_memory)
		(void)cu->host_free(cuda->ring.data);
	else if (!cu->host_unregister(cuda->ring.data))
		(void)munmap(cuda->ring.data, cuda->ring_bytes);
}

int mt_cuda_memory_check(const struct moetrace_cuda *cuda)
{
	void *context = NULL;

	return cuda->cu->pointer_get(&context, MT_CU_POINTER_CONTEXT, cuda->words);
}
