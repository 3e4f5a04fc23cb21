/* SPDX-License-Identifier: MIT */
/*
 * What the parts of the fake driver share: its state and lock, streams with their work, memory.
 */
#ifndef FAKE_INTERNAL_H
#define FAKE_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libtrace/cuda/driver.h"

#define API __attribute__((visibility("default")))

enum kind {
	KIND_CALL,
	KIND_COPY,
	KIND_COPY_2D,
	KIND_SET,
	KIND_WRITE,
	KIND_WAIT_VALUE,
	KIND_RECORD,
	KIND_WAIT_EVENT,
};

struct event {
	uint64_t n_recorded; /* calls of cuEventRecord */
	uint64_t n_reached;
};

struct work {
	struct work *next;
	enum kind kind;
	uint64_t to, from, value;
	size_t n_bytes;
	struct mt_cu_copy_2d copy;
	struct event *event;
	void (*run)(void *argument);
	_Alignas(16) uint8_t argument[];
};

struct stream {
	pthread_t thread;
	struct work *first, **last;
	bool is_working, is_closing, is_capturing, is_held;
	void *context; /* NULL: nobody says */
};

/* Protects all of it, streams and their work too; work itself runs without it. */
extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_changed;
extern bool fake_is_held;
extern uint32_t fake_delay_us;
extern uint64_t fake_n_allocated_bytes;
extern bool fake_is_destroyed; /* the contexts, with what was made in them */

#define FAKE_N_DEVICES 2
extern int fake_contexts[FAKE_N_DEVICES]; /* a primary one each; that of the first is current */

/* Count a call of a function; what it is to answer. */
int fake_called(const char *symbol);

#define CALLED(symbol)                            \
	do {                                      \
		int answer = fake_called(symbol); \
		if (answer)                       \
			return answer;            \
	} while (0)

/* What ends the capture of any stream, unless the calling thread is relaxed about it. */
int fake_is_forbidden(void);

/* The GPU's timer. */
uint64_t fake_timer_ns(void);

/* fake_stream.c: NULL is the default stream. */
struct stream *fake_stream_create(void);
struct stream *fake_stream_of(void *handle);
struct work *fake_work_new(enum kind kind, uint32_t size);
int fake_push(void *handle, struct work *work);
void fake_wait_for(struct stream *stream);

/* fake_memory.c: aligned to 256 bytes like device memory. */
void *fake_memory_new(size_t n_bytes, bool is_event);
void fake_memory_free(void *memory);
void fake_memory_free_host(void); /* all that the driver allocated for the host */

/* fake_context.c: for the table of the steering. */
void fake_destroy_contexts(void);
void fake_stream_of_device(void *stream, uint32_t ordinal);
uint32_t fake_n_retained(void);

#endif
