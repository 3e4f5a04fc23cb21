/* SPDX-License-Identifier: MIT */
/* Random routing settings and rows that are hard to route, reproducible from a seed. */
#ifndef MTK_TESTS_SETTINGS_H
#define MTK_TESTS_SETTINGS_H

#include "kernels/route/route.h"

struct random {
	uint64_t state;
};

uint64_t random_next(struct random *random);
/* In [0, n). */
uint32_t random_below(struct random *random, uint32_t n);
/* In [-1, 1). */
float random_unit(struct random *random);

/* A setting that mtk_route_config_check() passes. */
struct mtk_route_config random_setting(struct random *random);

/* One row of logits: ordinary, tied, saturated, huge, or with NaN, infinities and denormals. */
void random_logits(struct random *random, const struct mtk_route_config *config, float *logits);

/* Biases: ordinary, tied, about 34.5, huge, or with NaN and infinities. */
void random_biases(struct random *random, uint32_t n, float *bias);

#endif
