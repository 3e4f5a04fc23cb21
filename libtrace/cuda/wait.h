/* SPDX-License-Identifier: MIT */
/*
 * What the rest of the recorder asks of the devices: whether the passes of a recording have come, and
 * what was said after them. Each call accepts a session without a device.
 *
 * A recording is named after it was switched off, or over to the next one: no pass begins any more
 * that is of it, and those that have begun are counted.
 */
#ifndef MT_CUDA_WAIT_H
#define MT_CUDA_WAIT_H

#include <stdint.h>

#include <moetrace/cuda.h>

struct moetrace_session;
struct mt_message;

/* What was begun and said until a moment. */
struct mt_cuda_mark {
	uint64_t n_kept; /* messages that were kept back */
	uint64_t heads[MOETRACE_CUDA_MAX_DEVICES]; /* positions of the devices' rings */
};

void mt_cuda_mark(struct moetrace_session *session, struct mt_cuda_mark *ret_mark);

/* Keep a message back until the passes before it are delivered; 0: it need not wait. */
int mt_cuda_defer(struct moetrace_session *session, struct mt_message *message);

/*
 * Have the passes of the recording and of those before it been delivered (0: what was begun until the
 * mark), and did the messages up to the mark go on?
 */
int mt_cuda_is_through(struct moetrace_session *session, uint32_t recording_id,
		       const struct mt_cuda_mark *mark);

/* Wait for that; returns how many passes are left after @timeout_ns. */
uint64_t mt_cuda_wait(struct moetrace_session *session, uint32_t recording_id,
		      const struct mt_cuda_mark *mark, uint64_t timeout_ns);

/*
 * Count the passes of the recording, and of those before it, that are left as lost, and let the
 * messages up to the mark go; returns how many passes that are.
 */
uint64_t mt_cuda_abandon(struct moetrace_session *session, uint32_t recording_id,
			 const struct mt_cuda_mark *mark);

/* With no pass begun any more: wait for those there are, and end the threads. */
void mt_cuda_end(struct moetrace_session *session);
/* After that, and without a writer, who asks too. In a forked child, alone, it frees memory. */
void mt_cuda_close(struct moetrace_session *session);

#endif
