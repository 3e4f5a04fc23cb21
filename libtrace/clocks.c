/* SPDX-License-Identifier: MIT */
/*
 * Invariant: pairs are in the order of the session's clock; the other one may step either way.
 */
#include "libtrace/clocks.h"

#include <stddef.h>

#define N_TRIES 5

/* More than a clock drifts: crystals differ by 0.01 %, and a correction slews by 0.05 %. */
#define MAX_DRIFT_PER_S 1000000

struct mt_clock_pair mt_clock_read_pair(mt_read_clock_fn *session, mt_read_clock_fn *other,
					void *context)
{
	struct mt_clock_pair best = { 0, 0, UINT64_MAX };

	for (int i = 0; i < N_TRIES; i++) {
		uint64_t before_ns = session(context);
		uint64_t other_ns = other(context);
		uint64_t after_ns = session(context);

		if (after_ns - before_ns >= best.uncertainty_ns)
			continue;
		best.uncertainty_ns = after_ns - before_ns;
		best.session_ns = before_ns + best.uncertainty_ns / 2;
		best.other_ns = other_ns;
	}
	return best;
}

void mt_clock_map_add(struct mt_clock_map *map, const struct mt_clock_pair *pair)
{
	map->pairs[map->n++ % MT_CLOCK_PAIRS] = *pair;
}

/* Pair @i of those that are kept, the oldest first. */
static const struct mt_clock_pair *pair_at(const struct mt_clock_map *map, uint32_t i)
{
	uint32_t first = map->n > MT_CLOCK_PAIRS ? map->n - MT_CLOCK_PAIRS : 0;

	return &map->pairs[(first + i) % MT_CLOCK_PAIRS];
}

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

/* What the distance between the two clocks changed by, from one pair to the other. */
static int64_t drift_between(const struct mt_clock_pair *from, const struct mt_clock_pair *to)
{
	return (int64_t)(to->other_ns - from->other_ns) -
	       (int64_t)(to->session_ns - from->session_ns);
}

static int is_drift(const struct mt_clock_pair *from, const struct mt_clock_pair *to)
{
	int64_t drift_ns = drift_between(from, to);
	uint64_t length_ns = to->session_ns - from->session_ns;
	uint64_t most_ns = length_ns / 1000000000 * MAX_DRIFT_PER_S +
			   length_ns % 1000000000 * MAX_DRIFT_PER_S / 1000000000 +
			   from->uncertainty_ns + to->uncertainty_ns;

	return distance(0, (uint64_t)(drift_ns < 0 ? -drift_ns : drift_ns)) <= most_ns;
}

static uint64_t offset_by(const struct mt_clock_pair *pair, uint64_t other_ns, int64_t drift_ns)
{
	int64_t session_ns = (int64_t)pair->session_ns + (int64_t)(other_ns - pair->other_ns) -
			     drift_ns;

	return session_ns < 0 ? 0 : (uint64_t)session_ns;
}

uint64_t mt_clock_map_to_session(const struct mt_clock_map *map, uint64_t other_ns)
{
	uint32_t n = map->n < MT_CLOCK_PAIRS ? map->n : MT_CLOCK_PAIRS;
	const struct mt_clock_pair *near = NULL;

	for (uint32_t i = 0; i < n; i++) {
		const struct mt_clock_pair *pair = pair_at(map, i);
		const struct mt_clock_pair *next = i + 1 < n ? pair_at(map, i + 1) : NULL;

		/* Between two pairs without a step: the share of the drift until then. */
		if (next && other_ns >= pair->other_ns && other_ns < next->other_ns &&
		    is_drift(pair, next)) {
			double share = (double)(other_ns - pair->other_ns) /
				       (double)(next->other_ns - pair->other_ns);

			return offset_by(pair, other_ns,
					 (int64_t)(share * (double)drift_between(pair, next)));
		}
		/* Of equals the later one: a clock that was set back passes twice. */
		if (!near || distance(other_ns, pair->other_ns) <= distance(other_ns, near->other_ns))
			near = pair;
	}
	return near ? offset_by(near, other_ns, 0) : 0;
}
