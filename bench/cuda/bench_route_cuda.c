/* SPDX-License-Identifier: MIT */
/*
 * The router kernel inside a graph, fp32 logits in, ids and weights out: microseconds a launch for
 * six settings by rows, beside the bar of each, an empty kernel and the bytes over the bandwidth
 * of a copy. Each launch of the graph routes other rows, as the layers of a model do.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <moetrace/status.h>

#include "bench/cuda/gpu_time.h"
#include "kernels/presets/presets.h"
#include "kernels/route/route_cuda.h"

#define N_LAYERS   8u
#define N_LAUNCHES 64u
#define N_SIZES	   4

static const uint32_t sizes[N_SIZES] = {1, 64, 1024, 8192};

struct setting {
	const char *name;
	uint32_t n_experts;
	uint32_t top_k;
	enum mtk_route_scoring scoring;
	uint32_t n_groups;
	uint32_t n_keep_groups;
	double bars_us[N_SIZES];
};

static const struct setting settings[] = {
	{"256 / 8 sigmoid + bias", 256, 8, MTK_ROUTE_SIGMOID, 0, 0, {2.0, 2.0, 2.9, 6.5}},
	{"256 / 8, 8 groups keep 4", 256, 8, MTK_ROUTE_SIGMOID, 8, 4, {2.2, 2.2, 3.1, 7.5}},
	{"128 / 8 softmax", 128, 8, MTK_ROUTE_SOFTMAX, 0, 0, {1.9, 1.9, 2.4, 4.0}},
	{"384 / 8 sigmoid + bias", 384, 8, MTK_ROUTE_SIGMOID, 0, 0, {2.2, 2.3, 3.3, 9.5}},
	{"896 / 16 sigmoid + bias", 896, 16, MTK_ROUTE_SIGMOID, 0, 0, {3.5, 3.7, 6.5, 25.0}},
	{"512 / 22 sigmoid + bias", 512, 22, MTK_ROUTE_SIGMOID, 0, 0, {3.5, 3.7, 5.5, 20.0}},
};

struct work {
	struct mtk_route_config config;
	struct mtk_route_cuda_batch batch;
	struct mtk_route_result result;
	const float *logits;
	uint32_t layer;
};

static float random_unit(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (float)((double)(*state >> 40) * 0x1p-23 - 1.0);
}

static int launch(void *arg, void *stream, struct mtk_error *error)
{
	struct work *work = arg;

	work->batch.logits = work->logits + (size_t)(work->layer++ % N_LAYERS) *
						    work->batch.n_rows * work->config.n_experts;
	return mtk_route_cuda(&work->config, &work->batch, &work->result, stream, error);
}

static void make_config(const struct setting *setting, struct mtk_route_config *config)
{
	*config = mtk_route_config_make(setting->n_experts, setting->top_k);
	config->scoring = setting->scoring;
	config->renormalise = MTK_ROUTE_RENORMALISE_EPSILON;
	if (setting->scoring == MTK_ROUTE_SIGMOID) {
		config->bias = MTK_ROUTE_BIAS_SCORE;
		config->scale = 2.5;
	}
	if (setting->n_groups > 0) {
		config->groups = MTK_ROUTE_GROUPS_TOP2;
		config->n_groups = setting->n_groups;
		config->n_keep_groups = setting->n_keep_groups;
	}
}

static int bench_setting(const struct setting *setting, const float *logits, const float *bias,
			 void *ids, void *weights)
{
	int n_missed = 0;

	printf("%-26s", setting->name);
	for (int i = 0; i < N_SIZES; i++) {
		struct work work = {.logits = logits};
		double us, floor_us;

		make_config(setting, &work.config);
		work.batch.n_rows = sizes[i];
		work.batch.bias = bias;
		work.result.ids = ids;
		work.result.weights = weights;
		us = gpu_time_us(launch, &work, N_LAUNCHES, 101);
		floor_us = (double)sizes[i] * (4.0 * setting->n_experts + 8.0 * setting->top_k) /
			   (gpu_copy_bandwidth() * 1e3);
		printf("  %6.2f (bar %4.1f, bytes %5.2f)", us, setting->bars_us[i], floor_us);
		n_missed += us > setting->bars_us[i];
	}
	printf("\n");
	return n_missed;
}

int main(void)
{
	const size_t n_logits = (size_t)N_LAYERS * 8192 * 896;
	float *host = malloc(n_logits * sizeof(*host));
	float *logits, *bias;
	void *ids, *weights;
	uint64_t state = 1;
	int n_missed = 0;

	gpu_time_open();
	if (!host) {
		fprintf(stderr, "bench_route_cuda: out of memory\n");
		return EXIT_FAILURE;
	}
	for (size_t i = 0; i < n_logits; i++)
		host[i] = random_unit(&state) + random_unit(&state) + random_unit(&state) +
			  random_unit(&state);
	logits = gpu_time_memory(n_logits * sizeof(*host), host);
	for (size_t i = 0; i < 1024; i++)
		host[i] = 0.05f * random_unit(&state);
	bias = gpu_time_memory(1024 * sizeof(*host), host);
	ids = gpu_time_memory((size_t)8192 * 32 * sizeof(int32_t), NULL);
	weights = gpu_time_memory((size_t)8192 * 32 * sizeof(float), NULL);
	printf("us a launch at 1, 64, 1024 and 8192 rows\n");
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		n_missed += bench_setting(&settings[i], logits, bias, ids, weights);
	free(host);
	printf("bars missed: %d\n", n_missed);
	return n_missed ? EXIT_FAILURE : EXIT_SUCCESS;
}
