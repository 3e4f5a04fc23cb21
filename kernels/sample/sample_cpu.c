/* SPDX-License-Identifier: MIT */
/*
 * Sampling, in double precision and in one pass over the vocabulary in order, so that a seed gives
 * the same token on every instruction-set level as long as the logits are the same.
 */
#include "kernels/sample/sample.h"

#include <math.h>

static uint64_t splitmix(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

void mtk_rng_seed(struct mtk_rng *rng, uint64_t seed, uint64_t stream)
{
	uint64_t mixed_stream = stream;
	uint64_t state = seed ^ splitmix(&mixed_stream);

	for (int i = 0; i < 4; i++)
		rng->state[i] = splitmix(&state);
}

static uint64_t rotate_left(uint64_t value, int n)
{
	return value << n | value >> (64 - n);
}

double mtk_rng_next(struct mtk_rng *rng)
{
	uint64_t *s = rng->state;
	uint64_t result = rotate_left(s[1] * 5, 7) * 9;
	uint64_t shifted = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= shifted;
	s[3] = rotate_left(s[3], 45);
	return (double)(result >> 11) * 0x1p-53;
}

int32_t mtk_sample_greedy(const float *logits, uint32_t n_vocab)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < n_vocab; i++)
		if (logits[i] > logits[best] || (isnan(logits[best]) && !isnan(logits[i])))
			best = i;
	return (int32_t)best;
}

/* The share of one logit, not normalised; NaN has none, and infinities share everything. */
static double share(float logit, float max, float temperature)
{
	if (isnan(logit))
		return 0.0;
	if (logit == max)
		return 1.0;
	return exp(((double)logit - max) / temperature);
}

int32_t mtk_sample_softmax(const float *logits, uint32_t n_vocab, float temperature,
			   struct mtk_rng *rng)
{
	const int32_t best = mtk_sample_greedy(logits, n_vocab);
	const float max = logits[best];
	double sum = 0.0;
	double left;

	if (!(temperature > 0.0f))
		return best;
	for (uint32_t i = 0; i < n_vocab; i++)
		sum += share(logits[i], max, temperature);
	left = mtk_rng_next(rng) * sum;
	for (uint32_t i = 0; i < n_vocab; i++) {
		double part = share(logits[i], max, temperature);

		if (left < part)
			return (int32_t)i;
		left -= part;
	}
	/* Rounding left the draw past the end. */
	return best;
}
