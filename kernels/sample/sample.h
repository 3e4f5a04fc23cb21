/* SPDX-License-Identifier: MIT */
/*
 * Sampling: from the logits of one row to the next token. Both rules depend on nothing but their
 * arguments; ties go to the lower id, and a NaN is never chosen unless every logit is one.
 */
#ifndef MTK_SAMPLE_SAMPLE_H
#define MTK_SAMPLE_SAMPLE_H

#include <stdint.h>

/* A stream of random numbers (xoshiro256**), one for each request so that batching changes none. */
struct mtk_rng {
	uint64_t state[4];
};

/* Distinct streams of one seed give unrelated numbers. */
void mtk_rng_seed(struct mtk_rng *rng, uint64_t seed, uint64_t stream);

/* Uniform in [0, 1). */
double mtk_rng_next(struct mtk_rng *rng);

/* The largest logit. */
int32_t mtk_sample_greedy(const float *logits, uint32_t n_vocab);

/*
 * Draw from softmax(logits / temperature); takes exactly one number from rng. A temperature that
 * is not above 0 means greedy and takes none.
 */
int32_t mtk_sample_softmax(const float *logits, uint32_t n_vocab, float temperature,
			   struct mtk_rng *rng);

#endif
