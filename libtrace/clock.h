/* SPDX-License-Identifier: MIT */
/*
 * The session's clock: CLOCK_MONOTONIC minus its value at open. Reading it is a function of
 * the vDSO, not a system call.
 */
#ifndef MT_CLOCK_H
#define MT_CLOCK_H

#include <stdint.h>
#include <time.h>

#define MT_NS_PER_S UINT64_C(1000000000)
#define MT_NS_PER_MS UINT64_C(1000000)

static inline uint64_t mt_clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * MT_NS_PER_S + (uint64_t)now.tv_nsec;
}

static inline uint64_t mt_monotonic_ns(void)
{
	return mt_clock_ns(CLOCK_MONOTONIC);
}

/* A reading of two clocks as close together as a few tries get them. */
struct mt_clock_snapshot {
	uint64_t monotonic_ns;
	uint64_t realtime_ns;
	uint64_t uncertainty_ns;
};

static inline struct mt_clock_snapshot mt_clock_snapshot(void)
{
	struct mt_clock_snapshot best = { 0, 0, UINT64_MAX };

	for (int i = 0; i < 5; i++) {
		uint64_t before_ns = mt_monotonic_ns();
		uint64_t realtime_ns = mt_clock_ns(CLOCK_REALTIME);
		uint64_t after_ns = mt_monotonic_ns();

		if (after_ns - before_ns >= best.uncertainty_ns)
			continue;
		best.uncertainty_ns = after_ns - before_ns;
		best.monotonic_ns = before_ns + best.uncertainty_ns / 2;
		best.realtime_ns = realtime_ns;
	}
	return best;
}

#endif
