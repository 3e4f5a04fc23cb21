/* SPDX-License-Identifier: MIT */
/*
 * Random numbers for tests: the same sequence on every machine for a given seed, so that a
 * failure is repeated by its seed. The generator is a 64-bit counter with a mixing function.
 */
#ifndef TEST_RNG_H
#define TEST_RNG_H

#include <stdbool.h>
#include <stdint.h>

struct rng {
	uint64_t state;
};

static inline uint64_t rng_next(struct rng *rng)
{
	uint64_t z = rng->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* A number in [0, @bound); @bound is small, so that the slight bias does not matter. */
static inline uint32_t rng_below(struct rng *rng, uint32_t bound)
{
	return (uint32_t)(rng_next(rng) % bound);
}

/* True in @percent of 100 cases. */
static inline bool rng_chance(struct rng *rng, uint32_t percent)
{
	return rng_below(rng, 100) < percent;
}

#endif
