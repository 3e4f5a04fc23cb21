/* SPDX-License-Identifier: MIT */
/*
 * The GPU's timer against the session's clock, without a call of the driver: each layer that arrives
 * was stamped after its pass had begun and before it arrived, so the distance between the clocks lies
 * between two bounds, and what the passes of a second have in common is a narrow one. A pair of
 * readings goes to the writer about once a second while passes arrive. Used under the lock deliver,
 * and before there is a drain thread.
 */
#include "libtrace/clock.h"
#include "libtrace/cuda/capture.h"

#define INTERVAL_NS MT_NS_PER_S

uint64_t mt_cuda_whole_ns(uint32_t low_ns, uint64_t begin_ns, uint64_t arrival_ns)
{
	uint64_t passed_ns = arrival_ns - begin_ns;
	/* As far from both as can be, since the clocks' distance is not known better than that. */
	uint64_t middle_ns = passed_ns <= UINT32_MAX ? begin_ns + passed_ns / 2 : arrival_ns;

	return middle_ns + (uint64_t)(int64_t)(int32_t)(low_ns - (uint32_t)middle_ns);
}

static void post(struct moetrace_cuda *cuda, uint64_t session_ns)
{
	struct mt_cuda_timer *timer = &cuda->timer;
	struct mt_message *message = mt_message_new(MT_MESSAGE_CLOCK, NULL, NULL);
	int64_t offset_ns = timer->least_ns + (timer->most_ns - timer->least_ns) / 2;

	timer->posted_ns = session_ns;
	timer->has_bounds = 0;
	if (!message)
		return;
	message->state = cuda->index;
	message->source = session_ns;
	message->number = session_ns - (uint64_t)offset_ns;
	message->request = (uint64_t)(timer->most_ns - timer->least_ns);
	(void)mt_session_post(cuda->session, message);
}

static void bound(struct mt_cuda_timer *timer, uint64_t timer_ns, uint64_t begin_ns,
		  uint64_t end_ns)
{
	int64_t least_ns = (int64_t)(begin_ns - timer_ns);
	int64_t most_ns = (int64_t)(end_ns - timer_ns);

	timer->seen_ns = end_ns;
	if (!timer->has_bounds || least_ns > timer->most_ns || most_ns < timer->least_ns) {
		/* The first one, or the clocks have drifted apart since. */
		timer->least_ns = least_ns;
		timer->most_ns = most_ns;
		timer->has_bounds = 1;
	} else {
		timer->least_ns = least_ns > timer->least_ns ? least_ns : timer->least_ns;
		timer->most_ns = most_ns < timer->most_ns ? most_ns : timer->most_ns;
	}
	/* The last one is kept as long as it lies between the bounds. */
	if (timer->offset_ns < timer->least_ns || timer->offset_ns > timer->most_ns)
		timer->offset_ns = timer->least_ns + (timer->most_ns - timer->least_ns) / 2;
}

void mt_cuda_timer_begin(struct moetrace_cuda *cuda, uint64_t timer_ns, uint64_t before_ns,
			 uint64_t after_ns)
{
	bound(&cuda->timer, timer_ns, before_ns, after_ns);
}

void mt_cuda_timer_post(struct moetrace_cuda *cuda)
{
	if (cuda->timer.has_bounds)
		post(cuda, cuda->timer.seen_ns);
}

void mt_cuda_timer_note(struct moetrace_cuda *cuda, uint32_t low_ns, uint64_t begin_ns,
			uint64_t arrival_ns)
{
	struct mt_cuda_timer *timer = &cuda->timer;
	uint64_t timer_ns = low_ns;

	/* 32 bits last for 4 s: the session's clock says which 4 s it are. */
	if (timer->seen_ns)
		timer_ns = mt_cuda_whole_ns(low_ns, begin_ns - (uint64_t)timer->offset_ns,
					    arrival_ns - (uint64_t)timer->offset_ns);
	bound(timer, timer_ns, begin_ns, arrival_ns);
	if (arrival_ns - timer->posted_ns >= INTERVAL_NS)
		post(cuda, arrival_ns);
}
