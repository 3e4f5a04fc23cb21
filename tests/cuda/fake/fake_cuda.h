/* SPDX-License-Identifier: MIT */
/*
 * A CUDA driver for tests, as libcuda.so.1: device memory is memory of the process, a stream is a
 * thread that does its work in order. Tests load it before the recorder looks for a driver, and
 * steer it through the table that fake_api() returns.
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

struct fake_api {
	/* Work of the test's own, in stream order; @size bytes of @argument are copied. */
	void (*launch)(void *stream, void (*run)(void *argument), const void *argument,
		       uint32_t size);
	void *(*stream_new)(void);
	void (*stream_wait)(void *stream);
	/* From now on the function @symbol (a prefix) answers @error, after @n_good more calls. */
	void (*refuse)(const char *symbol, uint32_t n_good, int error);
	void (*heal)(void);
	/* From now on calls of @symbol (a prefix) do not return; "": all go on. */
	void (*stall)(const char *symbol);
	/* Until there is a call that does not return. */
	void (*wait_for_stalled)(void);
	/* Each piece of work begins this much later. */
	void (*delay)(uint32_t delay_us);
	/* Streams stand still, or go on. */
	void (*hold)(bool is_held);
	void (*hold_one)(void *stream, bool is_held);
	void (*capture)(void *stream, bool is_capturing);
	void (*make_current)(bool has_context);
	/* Calls of a function so far, by prefix. */
	uint64_t (*n_calls)(const char *symbol);
	/* The GPU's timer: CLOCK_MONOTONIC and an offset. */
	uint64_t (*timer_ns)(void);
	uint64_t (*allocated_bytes)(void);
	/* The contexts are gone, and with them streams' work and what the driver allocated for the host. */
	void (*destroy_contexts)(void);
	/* The driver says of the stream that it is this device's. */
	void (*stream_of_device)(void *stream, uint32_t ordinal);
	/* Primary contexts that were retained and not released. */
	uint32_t (*n_retained)(void);
};

const struct fake_api *fake_api(void);

#endif
