/* SPDX-License-Identifier: MIT */
/*
 * The memory that CUPTI writes records into. It asks for buffers and gives them back on threads of
 * others, in the middle of launches, where each takes an atomic operation and nothing else. It keeps
 * what it was given for as long as the process lives: so this is one memory a process, never freed.
 */
#ifndef MTC_CUPTI_BUFFERS_H
#define MTC_CUPTI_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

#include "collectors/cupti/api.h"

/* Make the memory, once a process; -1: out of memory. @may_decline: this version can be refused. */
int mtc_cupti_buffers_make(int may_decline);

mtc_cupti_requested_fn mtc_cupti_buffer_requested;
mtc_cupti_completed_fn mtc_cupti_buffer_completed;

/* Hand each buffer that came back to @take, and let it be written again; on one thread at a time. */
void mtc_cupti_buffers_take(void (*take)(void *context, uint8_t *buffer, size_t valid_bytes),
			    void *context);

/* Whether records were thrown away since the last time, since no buffer was free: nobody knows how many. */
int mtc_cupti_buffers_overflowed(void);

#endif
