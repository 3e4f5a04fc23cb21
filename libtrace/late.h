/* SPDX-License-Identifier: MIT */
/*
 * Passes that reach the recorder after the fact: what must be known of the moment in which they
 * began was settled then, their rows came later from somewhere else. Between begin and end they
 * are passes like any other, handed over with moetrace_select_experts(), except that whoever does
 * it says what time it is.
 */
#ifndef MT_LATE_H
#define MT_LATE_H

#include "libtrace/hot.h"

/* What is settled when a pass begins. */
struct mt_pass_start {
	uint64_t n_positions; /* in the lists of its slices */
	uint64_t number;      /* 0: the next one of its ring */
	uint64_t begin_ns;
	uint32_t recording_id; /* of a late pass */
	uint32_t map_epoch;
	uint32_t slot_bytes; /* of a KV slot; 0: none */
	uint32_t skip;       /* enum mt_skip */
	uint32_t gpu;        /* index of the attached device that it runs on + 1; 0: not told */
};

/*
 * Check a description, as moetrace_pass_begin() does; 0, or -1 after counting the misuse. Sets
 * n_positions and slot_bytes.
 */
int mt_pass_check(struct moetrace_session *session, const struct moetrace_pass_info *info,
		  struct mt_pass_start *ret_start);

/* With a recording running: map_epoch and skip of a pass that begins now, at begin_ns. */
void mt_pass_latch(struct moetrace_session *session, const struct moetrace_pass_info *info,
		   struct mt_pass_start *start);

/*
 * Begin a checked pass as of @start. MOETRACE_OK: the pass is there (NULL: it is left out by
 * sampling, which was noted). MOETRACE_E_LIMIT: no ring is free or has room now; nothing is
 * counted, so that the caller may try again.
 */
int mt_pass_begin_late(struct moetrace_session *session, const struct moetrace_pass_info *info,
		       const struct mt_pass_start *start, struct moetrace_pass **ret_pass);

/* The time of what follows: of layers that are handed over, and of the pass's end. */
static inline void mt_pass_set_time(struct moetrace_pass *pass, uint64_t time_ns)
{
	pass->time_ns = time_ns;
	pass->is_special = 1;
}

#endif
