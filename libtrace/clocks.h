/* SPDX-License-Identifier: MIT */
/*
 * Another clock seen from the session's: pairs of readings, taken about once a second, and
 * conversion between them. A clock that drifts is followed by the line between the two nearest
 * pairs; one that steps is not smoothed over: a step shows as a change of distance that no drift
 * explains, and then the nearest pair alone counts.
 */
#ifndef MT_CLOCKS_H
#define MT_CLOCKS_H

#include <stdint.h>

#define MT_CLOCK_PAIRS 64u

struct mt_clock_pair {
	uint64_t session_ns;
	uint64_t other_ns;
	uint64_t uncertainty_ns; /* the two readings lie within this of each other */
};

struct mt_clock_map {
	uint32_t n;    /* pairs ever added */
	struct mt_clock_pair pairs[MT_CLOCK_PAIRS]; /* the last ones, in turn */
};

/* A look at both clocks: the closest of a few tries. */
typedef uint64_t mt_read_clock_fn(void *context);
struct mt_clock_pair mt_clock_read_pair(mt_read_clock_fn *session, mt_read_clock_fn *other,
					void *context);

void mt_clock_map_add(struct mt_clock_map *map, const struct mt_clock_pair *pair);

/* The session's time of the other clock's; 0: there is no pair yet, or it was before the session. */
uint64_t mt_clock_map_to_session(const struct mt_clock_map *map, uint64_t other_ns);

#endif
