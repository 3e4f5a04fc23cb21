/* SPDX-License-Identifier: MIT */
/*
 * The drain thread: it polls the oldest record of the pinned ring and hands on what is complete.
 * In steady state it makes no call of the driver, whose locks the program's threads need; only when
 * a pass does not come for seconds it asks whether the device still lives.
 *
 * Invariant: messages that were kept back reach the queue after the passes that had begun before
 * them and before those that begin after them.
 */
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "libtrace/clock.h"
#include "libtrace/cuda/capture.h"

/* Between two looks: while passes are in flight, while recording, while idle. */
#define BUSY_PAUSE_NS 100000
#define CALM_PAUSE_NS 1000000
#define IDLE_PAUSE_NS 20000000
/* A pass that takes longer than this may have died with its device. */
#define SUSPECT_NS (2 * MT_NS_PER_S)

/* Is the record complete: the host is done with it, and the GPU too? */
static int is_complete(const struct moetrace_cuda *cuda, struct mt_cuda_record *record)
{
	/* Acquire: pairs with the GPU's write, which comes after the rows. */
	if (!record->has_data ||
	    atomic_load_explicit(&record->is_done, memory_order_acquire) == record->stamp)
		return 1;
	/* What the driver refused to finish never will be. */
	return atomic_load(&cuda->error) != 0;
}

static void take(struct moetrace_cuda *cuda, struct mt_record *taken)
{
	struct mt_cuda_record *record = (struct mt_cuda_record *)taken;

	pthread_mutex_lock(&cuda->deliver);
	/* A pass that was given up has come after all: its place is free again, no more. */
	if (taken->type != MT_RECORD_PAD && record->start.recording_id > cuda->abandoned_id) {
		if (record->has_data &&
		    atomic_load_explicit(&record->is_done, memory_order_acquire) != record->stamp)
			record->is_lost = 1;
		mt_cuda_deliver(cuda, record);
	}
	if (taken->type != MT_RECORD_PAD && record->is_last)
		mt_ties_arrived(cuda->session->ties, cuda->index, 1);
	mt_ring_take(&cuda->ring, taken);
	pthread_mutex_unlock(&cuda->deliver);
}

/* Hand on all that is complete; returns how many records that were. */
static uint32_t drain(struct moetrace_cuda *cuda)
{
	uint32_t n = 0;
	struct mt_record *record;

	while ((record = mt_ring_peek(&cuda->ring, mt_ring_head(&cuda->ring))) &&
	       (record->type == MT_RECORD_PAD ||
		is_complete(cuda, (struct mt_cuda_record *)record)) &&
	       mt_cuda_post_messages(cuda, mt_ring_tail(&cuda->ring))) {
		take(cuda, record);
		n++;
	}
	(void)mt_cuda_post_messages(cuda, mt_ring_tail(&cuda->ring));
	return n;
}

/* The oldest pass does not come: does its device still live? With the context current. */
static void ask_driver(struct moetrace_cuda *cuda, const struct moetrace_cuda_lane *lane)
{
	/* Streams of a context that is gone must not even be asked. */
	int result = mt_cuda_memory_check(cuda);

	if (result) {
		mt_cuda_fail(cuda, "a look for the ring, which went with its context", result);
		return;
	}
	result = cuda->cu->stream_query(lane->side);
	if (result && result != MT_CU_NOT_READY)
		mt_cuda_fail(cuda, "the work of a pass", result);
}

static void ask_device(struct moetrace_cuda *cuda)
{
	struct mt_record *record = mt_ring_peek(&cuda->ring, mt_ring_head(&cuda->ring));
	void *ignored;
	int result;

	/* What is only in the way of the ring's end is of no lane. */
	if (!record || record->type == MT_RECORD_PAD)
		return;
	result = cuda->cu->ctx_push(cuda->context);
	if (result) {
		mt_cuda_fail(cuda, "a look for the device's context", result);
		return;
	}
	ask_driver(cuda, &cuda->lanes[((struct mt_cuda_record *)record)->lane]);
	(void)cuda->cu->ctx_pop(&ignored);
}

static void report_error(struct moetrace_cuda *cuda)
{
	const char *call = atomic_load(&cuda->error_call);
	int error = atomic_load(&cuda->error);
	char text[256];

	if (!call || cuda->is_reported)
		return;
	cuda->is_reported = 1;
	snprintf(text, sizeof(text), "failed: %s: error %d %s; passes on the GPU are lost from then on",
		 call, error, mt_cu_name(cuda->cu, error));
	mt_cuda_post_state(cuda->session, cuda->index, text, 1);
}

static void pause_between(struct moetrace_cuda *cuda)
{
	struct timespec pause = { 0, IDLE_PAUSE_NS };

	if (mt_ring_waiting_bytes(&cuda->ring))
		pause.tv_nsec = BUSY_PAUSE_NS;
	else if (atomic_load_explicit(&cuda->session->recording_id, memory_order_relaxed))
		pause.tv_nsec = CALM_PAUSE_NS;
	nanosleep(&pause, NULL);
}

static void *run(void *argument)
{
	struct moetrace_cuda *cuda = argument;
	uint64_t last_ns = mt_monotonic_ns();

	(void)mt_cu_capture_relaxed(cuda->cu);
	while (!atomic_load(&cuda->is_closing)) {
		if (drain(cuda) || !mt_ring_waiting_bytes(&cuda->ring))
			last_ns = mt_monotonic_ns();
		else if (mt_monotonic_ns() - last_ns > SUSPECT_NS) {
			last_ns = mt_monotonic_ns();
			ask_device(cuda);
		}
		report_error(cuda);
		pause_between(cuda);
	}
	return NULL;
}

int mt_cuda_drain_start(struct moetrace_cuda *cuda)
{
	sigset_t all, before;
	int result;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	result = pthread_create(&cuda->thread, NULL, run, cuda);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!result)
		(void)pthread_setname_np(cuda->thread, "moetrace-cuda");
	return result ? MOETRACE_E_NOMEM : MOETRACE_OK;
}

void mt_cuda_drain_stop(struct moetrace_cuda *cuda)
{
	atomic_store(&cuda->is_closing, 1);
	pthread_join(cuda->thread, NULL);
	report_error(cuda);
}
