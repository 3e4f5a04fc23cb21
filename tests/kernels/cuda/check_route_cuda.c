/* SPDX-License-Identifier: MIT */
/*
 * Routing on a GPU against the definition: random settings with rows that are hard to route, the
 * widths and models that the kernels are made for, every way to write a row, sizes about a warp, a
 * block and more, padding by a count on the device, and replay of a graph against eager launches.
 * What is compared of a row says support/route_batch.c. With MOETRACE_TEST_SMALL set there are few
 * rows, for tools that make each launch take a thousand times as long; every kernel is reached all
 * the same, and those that share blocks by many rows of one setting.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/presets/presets.h"
#include "kernels/route/route_cuda.h"
#include "tests/kernels/cuda/support/gpu.h"
#include "tests/kernels/cuda/support/route_batch.h"

#define N_SETTINGS 600
#define HARD_ROWS  97u
#define SMALL_ROWS 33u

static void check_random(struct random *random)
{
	for (uint32_t i = 0; i < (gpu_is_small() ? N_SETTINGS / 10 : N_SETTINGS); i++) {
		struct mtk_route_config config = random_setting(random);
		struct route_batch batch = route_batch_make(random, &config, HARD_ROWS, true);

		if (i % 3 == 0)
			batch.n_valid = random_below(random, batch.n_rows + 1);
		route_batch_check(&batch, i % 4 == 0);
		route_batch_release(&batch);
	}
}

/* Wide rows, wide choices; with ordinary rows and with hard ones. */
static void check_wide(struct random *random)
{
	static const uint32_t sizes[][2] = {{384, 8},  {512, 22},  {512, 10},  {513, 9},
					    {576, 31}, {896, 16},  {1000, 32}, {1024, 32},
					    {1025, 8}, {2048, 32}, {8192, 32}};

	for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct mtk_route_config config =
			mtk_route_config_make(sizes[i / 2][0], sizes[i / 2][1]);

		config.scoring = i % 4 < 2 ? MTK_ROUTE_SIGMOID : MTK_ROUTE_SOFTMAX;
		config.bias = i % 3 ? MTK_ROUTE_BIAS_SCORE : MTK_ROUTE_BIAS_NONE;
		config.renormalise = MTK_ROUTE_RENORMALISE_EPSILON;
		struct route_batch batch = route_batch_make(random, &config, 67, i % 2);

		route_batch_check(&batch, false);
		route_batch_release(&batch);
	}
}

static void check_models(struct random *random)
{
	size_t n_presets;
	const struct mtk_preset *presets = mtk_presets(&n_presets);

	for (size_t i = 0; i < n_presets; i++) {
		if (!presets[i].has_routing)
			continue;
		struct route_batch batch = route_batch_make(random, &presets[i].route, 1031, false);

		route_batch_check(&batch, i % 2);
		route_batch_release(&batch);
	}
}

static void check_sizes(struct random *random)
{
	static const uint32_t sizes[] = {0, 1, 31, 32, 33, 127, 1024, 1025, 8191, 32768};
	struct mtk_route_config config = mtk_preset_find("deepseek-v3")->route;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (gpu_is_small() && sizes[i] > 1025)
			break;
		struct route_batch batch = route_batch_make(random, &config, sizes[i], false);

		route_batch_check(&batch, false);
		route_batch_release(&batch);
	}
}

/* The general kernel, with a block for several rows. */
static void check_general(struct random *random)
{
	const struct mtk_route_config config = mtk_route_config_make(200, 6);
	struct route_batch batch = route_batch_make(random, &config, 1025, false);

	route_batch_check(&batch, false);
	route_batch_release(&batch);
}

/* Logits as a product in bf16 leaves them: many are equal. */
static void round_logits(struct route_batch *batch)
{
	const size_t n = (size_t)batch->n_rows * mtk_route_columns(&batch->config);

	for (size_t i = 0; i < n; i++) {
		uint32_t bits;

		memcpy(&bits, &batch->logits[i], sizeof(bits));
		bits = (bits + 0x8000) & 0xffff0000;
		memcpy(&batch->logits[i], &bits, sizeof(bits));
	}
}

/*
 * The settings of most models with so many rows that all of the rare cases occur: with biases
 * that make values negative, with large ones, and with equal logits.
 */
static void check_common(struct random *random)
{
	static const uint32_t sizes[][2] = {{128, 8}, {256, 8}, {384, 8}, {512, 22}, {896, 16}};

	for (uint32_t i = 0; i < 6 * sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct mtk_route_config config =
			mtk_route_config_make(sizes[i / 6][0], sizes[i / 6][1]);

		config.renormalise = MTK_ROUTE_RENORMALISE_EPSILON;
		if (i % 6 < 4) {
			config.scoring = MTK_ROUTE_SIGMOID;
			config.bias = MTK_ROUTE_BIAS_SCORE;
		}
		if (i % 6 == 3) {
			config.groups = MTK_ROUTE_GROUPS_TOP2;
			config.n_groups = 8;
			config.n_keep_groups = 4;
		}
		struct route_batch batch = route_batch_make(random, &config, 3001, false);

		for (size_t e = 0; e < route_batch_biases(&batch); e++)
			batch.bias[e] += i % 6 == 1 ? -2.0f : i % 6 == 2 ? 30.0f : 0.0f;
		if (i % 6 == 5)
			round_logits(&batch);
		route_batch_check(&batch, false);
		route_batch_release(&batch);
	}
}

/* What a kernel reads as vectors lies where it cannot: another one serves, and records, the rows.
 */
static void check_askew(struct random *random)
{
	static const uint32_t sizes[][2] = {{128, 8}, {256, 8}, {512, 22}, {896, 16}};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct mtk_route_config config = mtk_route_config_make(sizes[i][0], sizes[i][1]);

		config.renormalise = MTK_ROUTE_RENORMALISE_EPSILON;
		config.scoring = MTK_ROUTE_SIGMOID;
		config.bias = MTK_ROUTE_BIAS_SCORE;
		gpu_check(mtk_route_cuda_records(&config), "%u top-%u is not recorded", sizes[i][0],
			  sizes[i][1]);
		struct route_batch batch = route_batch_make(random, &config, 130, false);

		batch.is_askew = true;
		route_batch_check(&batch, i % 2);
		route_batch_release(&batch);
	}
}

/* Shared slots of both kinds, zero experts, a block of a rank, packed, and a scale elsewhere. */
static void check_outputs(struct random *random)
{
	for (uint32_t i = 0; i < 12; i++) {
		struct mtk_route_config config = mtk_route_config_make(64, i == 11 ? 32 : 6);

		config.scoring = MTK_ROUTE_SIGMOID;
		config.bias = i % 2 ? MTK_ROUTE_BIAS_SCORE : MTK_ROUTE_BIAS_NONE;
		config.n_shared_slots = 1 + i % MTK_ROUTE_MAX_SHARED;
		config.shared_weight = 1.0 / 2.5;
		config.shared = i % 3 ? MTK_ROUTE_SHARED_GLOBAL : MTK_ROUTE_SHARED_BLOCK;
		config.n_zero_experts = i % 3 ? i : 0;
		config.n_local_experts = 16;
		config.rank = 3;
		config.scale = 2.5;
		config.scale_owner = i % 2 ? MTK_ROUTE_SCALE_IN_ROUTER : MTK_ROUTE_SCALE_ON_OUTPUT;
		struct route_batch batch = route_batch_make(random, &config, 65, false);

		batch.n_valid = batch.n_rows - 5;
		route_batch_check(&batch, i % 2);
		route_batch_release(&batch);
	}
}

static void check_hash(struct random *random)
{
	enum { N_TOKENS = 97, TOP_K = 6, N_COLUMNS = 256, N_ROWS = 70 };
	static int32_t table[N_TOKENS * TOP_K];

	for (uint32_t t = 0; t < N_TOKENS; t++)
		for (uint32_t j = 0; j < TOP_K; j++)
			table[t * TOP_K + j] = (int32_t)((t * 31 + j * 37) % N_COLUMNS);
	for (uint32_t scoring = 0; scoring < MTK_ROUTE_SPARSEMIXER; scoring++) {
		struct mtk_route_config config = mtk_route_config_make(N_COLUMNS, TOP_K);

		config.scoring = (enum mtk_route_scoring)scoring;
		config.renormalise = MTK_ROUTE_RENORMALISE_EPSILON;
		config.hash_table = table;
		config.n_hash_tokens = N_TOKENS;
		struct route_batch batch = route_batch_make(random, &config, N_ROWS, scoring % 2);

		batch.token_ids = gpu_host(N_ROWS * sizeof(int32_t));
		for (uint32_t r = 0; r < N_ROWS; r++)
			batch.token_ids[r] = (int32_t)random_below(random, N_TOKENS + 10) - 5;
		route_batch_check(&batch, false);
		route_batch_release(&batch);
	}
}

int main(void)
{
	struct random random = {20};

	gpu_open_or_skip();
	check_sizes(&random);
	check_general(&random);
	if (gpu_is_small())
		route_batch_limit(SMALL_ROWS);
	check_models(&random);
	check_common(&random);
	check_outputs(&random);
	check_askew(&random);
	check_hash(&random);
	check_wide(&random);
	check_random(&random);
	printf("%llu rows equal, %llu of settings with a fast path, %llu recorded, "
	       "%llu with margins\n",
	       (unsigned long long)route_rows.n_checked, (unsigned long long)route_rows.n_fast,
	       (unsigned long long)route_rows.n_recorded, (unsigned long long)route_rows.n_told);
	return 0;
}
