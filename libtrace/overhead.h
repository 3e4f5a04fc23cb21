/* SPDX-License-Identifier: MIT */
/*
 * The measurement of what recording costs: passes of off blocks are left out, as in a region that
 * is disabled, those of on blocks are recorded; of both, the time at which they begin is kept.
 * Which block a pass is in follows from the time at which it begins, so that nothing has to be
 * switched back: when the last block is over, everything is recorded again, whoever is still there.
 *
 * Invariants: the hot path finds the memory made and prefaulted, and claims a place in it by one
 * atomic; a thread is counted in n_measuring before it looks at the memory, and that is freed only
 * after it is out of sight and nobody is counted. While nothing is measured it costs the hot path
 * one load of memory that it reads anyway.
 */
#ifndef MT_OVERHEAD_H
#define MT_OVERHEAD_H

#include "libtrace/session.h"

#define MT_OVERHEAD_MIN_BLOCK_MS 20u
#define MT_OVERHEAD_MAX_BLOCK_MS 60000u
#define MT_OVERHEAD_MAX_PAIRS 1000u
/* Passes of one measurement; later ones are counted, and not kept. */
#define MT_OVERHEAD_MAX_SAMPLES (UINT32_C(1) << 19)

struct mt_overhead_sample {
	uint64_t time_ns; /* since the session's start */
	uint32_t n_rows;
	uint16_t model;
	uint8_t phase;
	_Atomic uint8_t is_there; /* the others are in place */
};

struct mt_overhead {
	uint64_t start_ns; /* since the session's start */
	uint64_t block_ns;
	uint32_t n_blocks;
	uint32_t n_read; /* of the control thread alone */
	_Atomic uint64_t n_taken; /* places claimed; more than there are: passes that are missing */
	struct mt_overhead_sample samples[MT_OVERHEAD_MAX_SAMPLES];
};

/* Blocks come in pairs, off-on and on-off in turns, so that no drift favours one of them. */
static inline int mt_overhead_is_off(uint64_t block)
{
	return ((block ^ (block >> 1)) & 1) == 0;
}

/* A pass begins: keep its time. Returns whether it is to be left out. */
int mt_overhead_pass(struct moetrace_session *session, const struct moetrace_pass_info *info,
		     uint64_t now_ns);

/* MOETRACE_OK, or MOETRACE_E_NOMEM. At most one measurement at a time. */
int mt_overhead_begin(struct moetrace_session *session, uint32_t n_pairs, uint32_t block_ms);

/* End it, if there is one, and free its memory; may wait for a thread that just takes a place. */
void mt_overhead_end(struct moetrace_session *session);

/* The next sample that was not read yet; NULL: there is none at the moment. */
const struct mt_overhead_sample *mt_overhead_next(struct mt_overhead *overhead);

#endif
