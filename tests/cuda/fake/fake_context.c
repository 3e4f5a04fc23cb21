/* SPDX-License-Identifier: MIT */
/*
 * Contexts of the fake driver: what they hold of the process's own memory, whose streams are, and what
 * is left when they are destroyed, which is nothing.
 */
#include "tests/cuda/fake/fake_internal.h"

#include <stdlib.h>

#define MAX_REGISTERED 32

bool fake_is_destroyed;

static struct {
	void *memory;
	size_t n_bytes;
} registered[MAX_REGISTERED]; /* protected by fake_lock, as the next */
static uint32_t n_retained;

/* Under the lock; MAX_REGISTERED: there is none. */
static int find_registered(const void *memory)
{
	int i = 0;

	while (i < MAX_REGISTERED && registered[i].memory != memory)
		i++;
	return i;
}

API int cuMemHostRegister_v2(void *memory, size_t n_bytes, unsigned int flags);
API int cuMemHostRegister_v2(void *memory, size_t n_bytes, unsigned int flags)
{
	int i;

	(void)flags;
	CALLED("cuMemHostRegister");
	if (fake_is_forbidden())
		return 900;
	pthread_mutex_lock(&fake_lock);
	i = find_registered(NULL);
	if (i < MAX_REGISTERED) {
		registered[i].memory = memory;
		registered[i].n_bytes = n_bytes;
		fake_n_allocated_bytes += n_bytes;
	}
	pthread_mutex_unlock(&fake_lock);
	return i < MAX_REGISTERED ? 0 : 2;
}

API int cuMemHostUnregister(void *memory);
API int cuMemHostUnregister(void *memory)
{
	int i;

	CALLED("cuMemHostUnregister");
	pthread_mutex_lock(&fake_lock);
	i = find_registered(memory);
	if (i < MAX_REGISTERED) {
		registered[i].memory = NULL;
		fake_n_allocated_bytes -= registered[i].n_bytes;
	}
	pthread_mutex_unlock(&fake_lock);
	return i < MAX_REGISTERED ? 0 : 713;
}

API int cuMemHostGetDevicePointer_v2(uint64_t *address, void *memory, unsigned int flags);
API int cuMemHostGetDevicePointer_v2(uint64_t *address, void *memory, unsigned int flags)
{
	(void)flags;
	CALLED("cuMemHostGetDevicePointer");
	*address = (uint64_t)(uintptr_t)memory;
	return 0;
}

API int cuPointerGetAttribute(void *value, int attribute, uint64_t address);
API int cuPointerGetAttribute(void *value, int attribute, uint64_t address)
{
	(void)address;
	/* Of memory that it does not know the driver says that the value is invalid. */
	if (fake_called("cuPointerGetAttribute") || attribute != MT_CU_POINTER_CONTEXT)
		return 1;
	*(void **)value = &fake_contexts[0];
	return 0;
}

API int cuStreamGetCtx(void *stream, void **context);
API int cuStreamGetCtx(void *stream, void **context)
{
	CALLED("cuStreamGetCtx");
	*context = fake_stream_of(stream)->context;
	return 0;
}

API int cuDevicePrimaryCtxRetain(void **context, int device);
API int cuDevicePrimaryCtxRetain(void **context, int device)
{
	CALLED("cuDevicePrimaryCtxRetain");
	*context = &fake_contexts[device];
	pthread_mutex_lock(&fake_lock);
	n_retained++;
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

API int cuDevicePrimaryCtxRelease_v2(int device);
API int cuDevicePrimaryCtxRelease_v2(int device)
{
	(void)device;
	CALLED("cuDevicePrimaryCtxRelease");
	pthread_mutex_lock(&fake_lock);
	n_retained--;
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

void fake_destroy_contexts(void)
{
	pthread_mutex_lock(&fake_lock);
	fake_is_destroyed = true;
	pthread_cond_broadcast(&fake_changed);
	pthread_mutex_unlock(&fake_lock);
	fake_memory_free_host();
}

void fake_stream_of_device(void *stream, uint32_t ordinal)
{
	fake_stream_of(stream)->context = &fake_contexts[ordinal];
}

uint32_t fake_n_retained(void)
{
	uint32_t n;

	pthread_mutex_lock(&fake_lock);
	n = n_retained;
	pthread_mutex_unlock(&fake_lock);
	return n;
}
