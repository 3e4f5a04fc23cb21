/* SPDX-License-Identifier: MIT */
/*
 * What a recording leaves out: by its mode, by sampling, and in regions that are disabled.
 */
#ifndef MT_SAMPLING_H
#define MT_SAMPLING_H

#include "libtrace/session.h"

/* Longest text of recording.sampling, with its end. */
#define MT_SAMPLING_BYTES 128

/* Is a request's sequence kept where every @n-th is? Handles count from 1; 0 or 1: all are. */
static inline int mt_is_sampled_request(uint64_t handle, uint32_t n)
{
	return n <= 1 || (handle != MOETRACE_NO_REQUEST && (handle - 1) % n == 0);
}

/* Returns MOETRACE_OK, or MOETRACE_E_INVALID with the session's error text. @opts may be NULL. */
int mt_sampling_check(struct moetrace_session *session, const struct moetrace_recording_opts *opts);

/*
 * Let passes that begin from now on follow @opts. No recording runs: the caller publishes its
 * number to the hot path afterwards.
 */
void mt_sampling_set(struct moetrace_session *session, const struct moetrace_recording_opts *opts);

/* As recording.sampling says it, into MT_SAMPLING_BYTES; NULL: nothing is left out. */
const char *mt_sampling_text(const struct moetrace_recording_opts *opts, char *ret_text);

#endif
