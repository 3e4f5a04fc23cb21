/* SPDX-License-Identifier: MIT */
/* The generator of settings and rows. */
#include "tests/routing/support/settings.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moetrace/status.h>

uint64_t random_next(struct random *random)
{
	uint64_t x = random->state += 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

uint32_t random_below(struct random *random, uint32_t n)
{
	return (uint32_t)((random_next(random) >> 32) * n >> 32);
}

float random_unit(struct random *random)
{
	return (float)((double)(random_next(random) >> 40) * 0x1p-23 - 1.0);
}

static uint32_t pick(struct random *random, const uint32_t *values, uint32_t n)
{
	return values[random_below(random, n)];
}

static void set_groups(struct random *random, struct mtk_route_config *config)
{
	static const uint32_t counts[] = {1, 2, 3, 4, 5, 8, 16, 20};
	uint32_t n_columns = mtk_route_columns(config);
	uint32_t n_groups = pick(random, counts, sizeof(counts) / sizeof(counts[0]));
	uint32_t size = n_columns / n_groups;

	if (n_columns % n_groups != 0 || size < 2)
		return;
	config->groups = (enum mtk_route_groups)(1 + random_below(random, 3));
	config->n_groups = n_groups;
	config->n_keep_groups = 1 + random_below(random, n_groups);
	config->group_top_n = 1 + random_below(random, size < 6 ? size : 6);
	if (config->top_k > config->n_keep_groups * size)
		config->top_k = config->n_keep_groups * size;
}

static void set_bias(struct random *random, struct mtk_route_config *config)
{
	config->bias = (enum mtk_route_bias)random_below(random, MTK_ROUTE_N_BIASES);
	if (config->bias == MTK_ROUTE_BIAS_SCORE && (config->choose_by == MTK_ROUTE_BY_LOGIT ||
						     config->scoring == MTK_ROUTE_SOFTMAX_SELECTED))
		config->bias = MTK_ROUTE_BIAS_LOGIT_CHOICE;
	config->bias_per_token =
		config->bias != MTK_ROUTE_BIAS_NONE && random_below(random, 4) == 0;
}

struct mtk_route_config random_setting(struct random *random)
{
	static const uint32_t counts[] = {1,  2,  3,  7,  8,  15, 16, 17,  20,	24,  32,
					  33, 40, 48, 60, 64, 72, 96, 128, 160, 256, 288};
	static const uint32_t top_ks[] = {1, 2, 4, 6, 8, 8, 8, 10, 16, 22, 32};
	static const double scales[] = {1.0, 1.0, 2.5, 2.827, 16.0};
	char message[MTK_ROUTE_MESSAGE_BYTES];
	uint32_t n = pick(random, counts, sizeof(counts) / sizeof(counts[0]));
	uint32_t top_k = pick(random, top_ks, sizeof(top_ks) / sizeof(top_ks[0]));
	struct mtk_route_config config = mtk_route_config_make(n, top_k < n ? top_k : n);

	if (random_below(random, 8) == 0)
		config.n_zero_experts = 1 + random_below(random, 40);
	config.scoring = (enum mtk_route_scoring)random_below(random, MTK_ROUTE_N_SCORINGS);
	config.choose_by = random_below(random, 5) == 0 ? MTK_ROUTE_BY_LOGIT : MTK_ROUTE_BY_SCORE;
	config.soft_cap = random_below(random, 12) == 0 ? 30.0 : 0.0;
	config.renormalise =
		(enum mtk_route_renormalise)random_below(random, MTK_ROUTE_N_RENORMALISE);
	config.renormalise_min = 1e-12;
	config.scale = scales[random_below(random, 5)];
	config.scale_owner = random_below(random, 4) == 0 ? MTK_ROUTE_SCALE_ON_OUTPUT
							  : MTK_ROUTE_SCALE_IN_ROUTER;
	if (config.scoring != MTK_ROUTE_SPARSEMIXER) {
		set_bias(random, &config);
		if (random_below(random, 2) == 0)
			set_groups(random, &config);
	}
	if (mtk_route_config_check(&config, message) != MOETRACE_OK) {
		fprintf(stderr, "random_setting: %s\n", message);
		abort();
	}
	return config;
}

static float special(struct random *random)
{
	static const float values[] = {NAN,	INFINITY, -INFINITY, -0.0f,   0.0f,   1e-40f,
				       -1e-42f, FLT_MAX,  -FLT_MAX,  FLT_MIN, -200.0f};

	return values[random_below(random, sizeof(values) / sizeof(values[0]))];
}

static float as_bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	bits = (bits + 0x8000) & 0xffff0000;
	memcpy(&value, &bits, sizeof(bits));
	return value;
}

void random_logits(struct random *random, const struct mtk_route_config *config, float *logits)
{
	const uint32_t n = mtk_route_columns(config);
	const uint32_t kind = random_below(random, 16);
	const float factor = ldexpf(1.0f, (int)random_below(random, 8) - 3);
	const float shift = 10.0f * random_unit(random);

	for (uint32_t e = 0; e < n; e++) {
		float x =
			factor * (random_unit(random) + random_unit(random) + random_unit(random));

		if (kind == 0)
			x = shift;
		else if (kind == 1)
			x = rintf(2.0f * x) * 0.5f;
		else if (kind == 2)
			x = as_bf16(x);
		else if (kind == 3 || kind == 4)
			x = random_below(random, kind == 3 ? 4 : n) == 0 ? special(random) : x;
		else if (kind == 5)
			x = 28.0f + 14.0f * random_unit(random);
		else if (kind == 6)
			x = -150.0f + 90.0f * random_unit(random);
		else if (kind == 7)
			x *= 1e30f;
		else if (kind == 8 && config->n_groups > 0 && e >= n / config->n_groups)
			x = logits[e - n / config->n_groups];
		else if (kind == 9)
			x = e == 0 || random_below(random, 3) ? x : logits[random_below(random, e)];
		else if (kind == 10)
			x = special(random);
		else if (kind == 11)
			x = shift + x * 1e-6f;
		logits[e] = x;
	}
}

void random_biases(struct random *random, uint32_t n, float *bias)
{
	const uint32_t kind = random_below(random, 9);

	for (uint32_t e = 0; e < n; e++) {
		float b = random_unit(random);

		if (kind <= 1)
			b = 34.5f + 0.1f * b;
		else if (kind == 2)
			b = rintf(4.0f * b) * 0.25f;
		else if (kind == 3)
			b = random_below(random, 6) == 0 ? special(random) : b;
		else if (kind == 4)
			b = -1e30f * fabsf(b);
		else if (kind == 5)
			b = 0.0f;
		else if (kind == 6)
			b *= 0.01f;
		bias[e] = b;
	}
}
