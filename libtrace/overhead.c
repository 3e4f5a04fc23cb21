/* SPDX-License-Identifier: MIT */
/*
 * The measurement of what recording costs; see overhead.h. The first function belongs to the hot
 * path: it does not allocate, lock, log, make a system call or wait.
 */
#include "libtrace/overhead.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libtrace/clock.h"

static int take(struct mt_overhead *overhead, const struct moetrace_pass_info *info,
		uint64_t now_ns)
{
	struct mt_overhead_sample *sample;
	uint64_t block, place;

	/* A pass that took its time before the start. */
	if (now_ns < overhead->start_ns)
		return 0;
	block = (now_ns - overhead->start_ns) / overhead->block_ns;
	if (block >= overhead->n_blocks)
		return 0;
	place = atomic_fetch_add_explicit(&overhead->n_taken, 1, memory_order_relaxed);
	if (place < MT_OVERHEAD_MAX_SAMPLES) {
		sample = &overhead->samples[place];
		sample->time_ns = now_ns;
		sample->n_rows = info->n_rows;
		sample->model = (uint16_t)info->model;
		sample->phase = (uint8_t)info->phase;
		/* Pairs with mt_overhead_next(). */
		atomic_store_explicit(&sample->is_there, 1, memory_order_release);
	}
	return mt_overhead_is_off(block);
}

__attribute__((noinline)) int mt_overhead_pass(struct moetrace_session *session,
					       const struct moetrace_pass_info *info,
					       uint64_t now_ns)
{
	struct mt_overhead *overhead;
	int is_off = 0;

	/* Both sequentially consistent, like their counterparts in mt_overhead_end(). */
	atomic_fetch_add(&session->n_measuring, 1);
	overhead = atomic_load(&session->overhead);
	if (overhead)
		is_off = take(overhead, info, now_ns);
	atomic_fetch_sub(&session->n_measuring, 1);
	return is_off;
}

int mt_overhead_begin(struct moetrace_session *session, uint32_t n_pairs, uint32_t block_ms)
{
	struct mt_overhead *overhead = malloc(sizeof(*overhead));

	if (!overhead)
		return mt_session_error(session, MOETRACE_E_NOMEM, "overhead: out of memory");
	/* Prefaults it, too. */
	memset(overhead, 0, sizeof(*overhead));
	overhead->block_ns = block_ms * MT_NS_PER_MS;
	overhead->n_blocks = 2 * n_pairs;
	overhead->start_ns = mt_session_ns(session, mt_monotonic_ns());
	atomic_store(&session->overhead, overhead);
	return MOETRACE_OK;
}

void mt_overhead_end(struct moetrace_session *session)
{
	const struct timespec pause = { 0, 100 * 1000 };
	struct mt_overhead *overhead = atomic_exchange(&session->overhead, NULL);

	/* A forked child has the threads' counts, and not the threads. */
	while (overhead && atomic_load(&session->n_measuring) && !atomic_load(&session->forked))
		nanosleep(&pause, NULL);
	free(overhead);
}

const struct mt_overhead_sample *mt_overhead_next(struct mt_overhead *overhead)
{
	const struct mt_overhead_sample *sample;

	if (overhead->n_read == MT_OVERHEAD_MAX_SAMPLES)
		return NULL;
	sample = &overhead->samples[overhead->n_read];
	/* Pairs with take(). */
	if (!atomic_load_explicit(&sample->is_there, memory_order_acquire))
		return NULL;
	overhead->n_read++;
	return sample;
}
