/* SPDX-License-Identifier: MIT */
/*
 * Threads that call the recorder while a test case does something else: one that makes one call,
 * and one that starts and stops for as long as it is let.
 */
#ifndef TEST_CUDA_CALLER_H
#define TEST_CUDA_CALLER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include <moetrace/moetrace.h>

struct caller {
	struct moetrace_session *session;
	pthread_t thread;
	int status; /* of the call, to be read by caller_status() */
};

/* Let a thread run @run, which gets the caller and writes its status. */
void caller_start(struct caller *caller, struct moetrace_session *session, void *(*run)(void *));

/* Wait for it. */
int caller_status(struct caller *caller);

/* To be run: what the functions of this name do, without options or results. */
void *caller_flush(void *caller);
void *caller_rotate(void *caller);
void *caller_stop(void *caller);

/* Stops after @on_ms of recording and starts after @off_ms without, again and again. */
struct switcher {
	struct moetrace_session *session;
	uint32_t on_ms, off_ms;
	pthread_t thread;
	_Atomic int is_over;
	/* The first stop lasts until a pass began while it did. */
	_Atomic int has_stopped, was_idle;
	_Atomic uint32_t n_starts;
	_Atomic int status; /* of the last call: where one fails there are no more */
};

void switcher_start(struct switcher *switcher);

/* Let it come to its end; the status of its last call. */
int switcher_end(struct switcher *switcher);

#endif
