/* SPDX-License-Identifier: MIT */
/*
 * A bit a buffer says that it is free, another that it waits to be read. Where none is free the
 * request is declined, which CUPTI counts; versions that crash then get a buffer whose records nobody
 * reads, and that something was lost is all that is known.
 */
#include "collectors/cupti/buffers.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define N_BUFFERS    24u
#define BUFFER_BYTES (UINT64_C(512) << 10)
#define N_SPARE	     8u
#define SPARE_BYTES  (UINT64_C(64) << 10)

static struct {
	_Atomic uint32_t free;   /* a bit a buffer that nobody has */
	_Atomic uint32_t filled; /* and one that waits to be read */
	_Atomic uint32_t spare;  /* a bit a spare buffer that nobody has */
	_Atomic uint32_t n_overflows;
	size_t valid_bytes[N_BUFFERS]; /* of filled ones */
	uint8_t *memory;         /* [N_BUFFERS][BUFFER_BYTES], zero when free, then the spare ones */
	int may_decline;
} all;

static uint8_t *spare_memory(void)
{
	return all.memory + N_BUFFERS * BUFFER_BYTES;
}

int mtc_cupti_buffers_make(int may_decline)
{
	const size_t n_bytes = N_BUFFERS * BUFFER_BYTES + N_SPARE * SPARE_BYTES;

	all.may_decline = may_decline;
	if (all.memory)
		return 0;
	all.memory = aligned_alloc(4096, n_bytes);
	if (!all.memory)
		return -1;
	/* Touched now, so that no launch waits for the kernel. */
	memset(all.memory, 0, n_bytes);
	atomic_store(&all.spare, (UINT32_C(1) << N_SPARE) - 1);
	atomic_store(&all.free, (UINT32_C(1) << N_BUFFERS) - 1);
	return 0;
}

/* The number of a buffer that was free; -1: none was. */
static int claim(_Atomic uint32_t *mask)
{
	uint32_t free = atomic_load_explicit(mask, memory_order_acquire);

	while (free) {
		uint32_t bit = free & (~free + 1);

		/* Pairs with whoever gave it back. */
		if (atomic_compare_exchange_weak_explicit(mask, &free, free & ~bit,
							  memory_order_acq_rel,
							  memory_order_acquire))
			return __builtin_ctz(bit);
	}
	return -1;
}

void mtc_cupti_buffer_requested(uint8_t **ret_buffer, size_t *ret_bytes, size_t *ret_n_max)
{
	int i = claim(&all.free);

	*ret_n_max = 0;
	if (i >= 0) {
		*ret_buffer = all.memory + (size_t)i * BUFFER_BYTES;
		*ret_bytes = BUFFER_BYTES;
	} else if (all.may_decline) {
		*ret_buffer = NULL;
		*ret_bytes = 0;
	} else {
		atomic_fetch_add_explicit(&all.n_overflows, 1, memory_order_relaxed);
		i = claim(&all.spare);
		/* Several may scribble on the first one: nobody reads it. */
		*ret_buffer = spare_memory() + (size_t)(i < 0 ? 0 : i) * SPARE_BYTES;
		*ret_bytes = SPARE_BYTES;
	}
}

void mtc_cupti_buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t n_bytes,
				size_t valid_bytes)
{
	size_t offset = buffer ? (size_t)(buffer - all.memory) : SIZE_MAX;
	size_t i = offset / BUFFER_BYTES;

	(void)context;
	(void)stream;
	(void)n_bytes;
	if (i < N_BUFFERS) {
		all.valid_bytes[i] = valid_bytes < BUFFER_BYTES ? valid_bytes : BUFFER_BYTES;
		/* Pairs with mtc_cupti_buffers_take(). */
		atomic_fetch_or_explicit(&all.filled, UINT32_C(1) << i, memory_order_release);
		return;
	}
	i = (offset - N_BUFFERS * BUFFER_BYTES) / SPARE_BYTES;
	if (buffer && i < N_SPARE)
		atomic_fetch_or_explicit(&all.spare, UINT32_C(1) << i, memory_order_release);
}

void mtc_cupti_buffers_take(void (*take)(void *context, uint8_t *buffer, size_t valid_bytes),
			    void *context)
{
	/* Pairs with mtc_cupti_buffer_completed(). */
	uint32_t filled = atomic_exchange_explicit(&all.filled, 0, memory_order_acquire);

	for (uint32_t i = 0; i < N_BUFFERS; i++) {
		uint8_t *buffer = all.memory + i * BUFFER_BYTES;

		if (!(filled >> i & 1))
			continue;
		take(context, buffer, all.valid_bytes[i]);
		memset(buffer, 0, BUFFER_BYTES);
		atomic_fetch_or_explicit(&all.free, UINT32_C(1) << i, memory_order_release);
	}
}

int mtc_cupti_buffers_overflowed(void)
{
	return atomic_exchange(&all.n_overflows, 0) != 0;
}
